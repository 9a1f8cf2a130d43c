package retrieval

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/retrieval/hnsw"
)

// changed is a later version of a catalog: some tools go, change or come, and
// all stand in another order.
func changed(t *rapid.T, tools []Tool) []Tool {
	out := make([]Tool, 0, len(tools)+3)
	for i, x := range tools {
		switch {
		case len(tools) > 1 && rapid.IntRange(0, 5).Draw(t, "fate") == 0:
			continue
		case rapid.IntRange(0, 5).Draw(t, "fate") == 0:
			x.Description = textGen(12).Draw(t, fmt.Sprint("description ", i))
			if rapid.Bool().Draw(t, "repeated") {
				x.Description += ". Needs the scope of the key to be set before."
			}
		}
		out = append(out, x)
	}
	for range rapid.IntRange(0, 3).Draw(t, "new") {
		name := fmt.Sprintf("erp__new%d", rapid.IntRange(0, 1<<20).Draw(t, "name"))
		if !slices.ContainsFunc(out, func(x Tool) bool { return x.Name == name }) {
			out = append(out, Tool{Name: name, Description: textGen(8).Draw(t, "description")})
		}
	}
	rand.New(rand.NewSource(rapid.Int64().Draw(t, "order"))).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func fullGraph(ix *Index) (*Graph, error) {
	g, err := NewGraph(ix)
	if err == nil {
		_, err = g.Add(ix, ix.Len())
	}
	return g, err
}

func sameHits(a, b []Hit) bool {
	return slices.EqualFunc(a, b, func(x, y Hit) bool {
		return sameHit(x, y) && x.Near == y.Near && x.Fit == y.Fit && len(x.Why) == len(y.Why)
	})
}

// An index brought up to date is the one that is made anew, and reads only the
// texts of tools that are other than before.
func TestUpdate(t *testing.T) {
	space := toySpace(16)
	rapid.Check(t, func(t *rapid.T) {
		var asked int
		counting := &Space{Name: "toy", Dim: 16, Embed: func(text string) []float32 { asked++; return space.Embed(text) }}
		cfg := Default()
		cfg.Space = counting
		tools := toolsGen().Draw(t, "catalog")
		ix, err := NewIndex(tools, cfg)
		if err != nil {
			t.Fatal(err)
		}
		asked = 0
		if same, err := ix.Update(slices.Clone(tools)); err != nil || asked > 0 {
			t.Fatalf("%d texts are read for a catalog of the same tools, %v", asked, err)
		} else {
			ix = same
		}
		for range 3 {
			tools = changed(t, tools)
			if ix, err = ix.Update(tools); err != nil {
				t.Fatal(err)
			}
			anew, err := NewIndex(tools, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if ix.mean != anew.mean || len(ix.post) != len(anew.post) {
				t.Fatalf("mean %v, %d postings; made anew %v, %d", ix.mean, len(ix.post), anew.mean, len(anew.post))
			}
			q := queryGen(tools).Draw(t, "query")
			q.Explain = true
			if got, want := ix.Search(q, len(tools)), anew.Search(q, len(tools)); !sameHits(got, want) {
				t.Fatalf("%+v\nmade anew\n%+v", got, want)
			}
		}
	})
}

func TestUpdateErrors(t *testing.T) {
	ix := spaceIndex(t, []Tool{{Name: "a"}}, toySpace(4))
	var dup *DuplicateError
	if _, err := ix.Update([]Tool{{Name: "b"}, {Name: "b"}}); !errors.As(err, &dup) {
		t.Error(err)
	}
	if _, err := ix.Update([]Tool{{Name: "b", Schema: []byte("{")}}); err == nil {
		t.Error("a schema that is no JSON")
	}
	if none, err := ix.Update(nil); err != nil || none.Len() != 0 || len(none.Search(Text("a"), 3)) != 0 {
		t.Error(err)
	}
}

// On few tools the walk meets all: what a graph finds is what a look at all
// finds, whatever was added, changed and removed, and whatever a query allows.
func TestGraphAgainstScan(t *testing.T) {
	space := toySpace(16)
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		for i := range 100 {
			tools = append(tools, Tool{Name: fmt.Sprintf("more_%d", i), Description: fmt.Sprintf("%s and %s", testWords[i%len(testWords)], testWords[i*7%len(testWords)])})
		}
		ix := spaceIndexOf(t, tools, space)
		g, err := fullGraph(ix)
		if err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"update": func(t *rapid.T) {
				before := ix
				tools = changed(t, tools)
				if ix, err = ix.Update(tools); err != nil {
					t.Fatal(err)
				}
				if _, err := g.Add(ix, 1<<20); err != nil {
					t.Fatal(err)
				}
				g.Prune(before, ix)
			},
			"lag": func(t *rapid.T) { // tools that the graph has not, or has no longer
				tools = changed(t, tools)
				if ix, err = ix.Update(tools); err != nil {
					t.Fatal(err)
				}
			},
			"reload": func(t *rapid.T) {
				var b bytes.Buffer
				if err := g.Save(&b); err != nil {
					t.Fatal(err)
				}
				if g, err = LoadGraph(&b, ix); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				with, err := ix.WithGraph(g)
				if err != nil {
					t.Fatal(err)
				}
				q := queryGen(tools).Draw(t, "query")
				if rapid.Bool().Draw(t, "filtered") {
					mod := rapid.IntRange(2, 50).Draw(t, "mod")
					q.Allow = func(tool int) bool { return tool%mod == 1 }
				}
				k := rapid.IntRange(1, 40).Draw(t, "k")
				got, want := with.Search(q, k), ix.Search(q, k)
				if !sameHits(got, want) {
					t.Fatalf("%+v\nby a look at all\n%+v", got, want)
				}
				for _, h := range got {
					if q.Allow != nil && !q.Allow(h.Tool) {
						t.Fatalf("%d is not allowed", h.Tool)
					}
				}
			},
		})
	})
}

// A query that allows some tools finds all of them that it finds without.
func TestAllowLosesNothing(t *testing.T) {
	cfg := Default()
	cfg.Space, cfg.Chain, cfg.Server = toySpace(16), 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		ix, err := NewIndex(tools, cfg)
		if err != nil {
			t.Fatal(err)
		}
		q := queryGen(tools).Draw(t, "query")
		q.Called = nil
		allowed := rapid.SliceOfN(rapid.Bool(), len(tools), len(tools)).Draw(t, "allowed")
		found := func() (out []int) {
			for _, h := range ix.Search(q, len(tools)) {
				out = append(out, h.Tool)
			}
			slices.Sort(out)
			return out
		}
		want := slices.DeleteFunc(found(), func(tool int) bool { return !allowed[tool] })
		q.Allow = func(tool int) bool { return allowed[tool] }
		if got := found(); !slices.Equal(got, want) {
			t.Fatalf("%v; of all, %v are allowed", got, want)
		}
	})
}

// Searches of an old version and a new one go on while the graph they share
// follows the catalog.
func TestGraphWhileCatalogChanges(t *testing.T) {
	space := toySpace(8)
	var tools []Tool
	for i := range 300 {
		tools = append(tools, Tool{Name: fmt.Sprintf("tool_%d", i), Description: fmt.Sprintf("%s number%d", testWords[i%len(testWords)], i)})
	}
	ix := spaceIndex(t, tools, space)
	g, err := fullGraph(ix)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for version := range 8 {
		with, err := ix.WithGraph(g)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wg.Go(func() {
				for i := range 30 {
					if hits := with.Search(Text(testWords[(i+version)%len(testWords)]+" now"), 5); len(hits) == 0 {
						t.Error("nothing found")
					}
				}
			})
		}
		next := slices.Clone(tools[20*(version+1):])
		next = append(next, Tool{Name: fmt.Sprintf("fresh_%d", version), Description: "brand new"})
		before := ix
		if ix, err = ix.Update(next); err != nil {
			t.Fatal(err)
		}
		if n, err := g.Add(ix, 1<<20); n != 1 || err != nil {
			t.Fatalf("%d are added, %v", n, err)
		}
		g.Prune(before, ix)
	}
	wg.Wait()
}

func TestGraphRefused(t *testing.T) {
	bare, err := NewIndex([]Tool{{Name: "a"}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewGraph(bare); !errors.Is(err, errNoSpace) {
		t.Error(err)
	}
	ix := spaceIndex(t, []Tool{{Name: "a_word"}}, toySpace(4))
	g, err := fullGraph(ix)
	if err != nil || g.Len() != 1 {
		t.Fatal(err)
	}
	if _, err := bare.WithGraph(g); !errors.Is(err, errNoSpace) {
		t.Error(err)
	}
	if _, err := g.Add(spaceIndex(t, []Tool{{Name: "b_word"}}, toySpace(8)), 1); err == nil {
		t.Error("another dimension")
	}
	var b bytes.Buffer
	if err := g.Save(&b); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	if _, err := LoadGraph(bytes.NewReader(raw), spaceIndex(t, []Tool{{Name: "b_word"}}, toySpace(8))); err == nil {
		t.Error("another dimension")
	}
	raw[len(raw)/2] ^= 1
	var corrupt *hnsw.CorruptError
	if _, err := LoadGraph(bytes.NewReader(raw), ix); !errors.As(err, &corrupt) {
		t.Error(err)
	}
}

// On more tools than the graph is asked for, most of the postings and tools are
// passed over, and the scores are still those of a look at all.
func TestBoundAgainstScan(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	word := func() string { // a few in most texts, many in few
		n := r.Float64()
		return fmt.Sprintf("w%c%c", 'a'+int(n*n*n*25), 'a'+int(r.Float64()*n*25))
	}
	text := func(n int) string {
		var b bytes.Buffer
		for i := range n {
			if i > 0 && i%6 == 0 {
				b.WriteString(" and then")
			}
			b.WriteString(" " + word())
		}
		return b.String()
	}
	var tools []Tool
	for i := range manyTools {
		tools = append(tools, Tool{Name: fmt.Sprintf("s%d__%s_%s_%d", i%7, word(), word(), i), Description: text(20)})
	}
	ix := spaceIndex(t, tools, toySpace(16))
	g, err := fullGraph(ix)
	if err != nil {
		t.Fatal(err)
	}
	with, err := ix.WithGraph(g)
	if err != nil {
		t.Fatal(err)
	}
	same, unread, looked := 0, 0, 0
	const queries = 200
	for i := range queries {
		q := Text(text(4 + i%20))
		if i%3 == 0 {
			q.Called = []string{tools[i].Name}
		}
		if i%5 == 0 {
			q.Allow = func(tool int) bool { return tool%4 == 1 }
		}
		if i%7 == 0 {
			q.Clauses = append(q.Clauses, text(5)) // of another text than the query
		}
		got, want := with.Search(q, 16), ix.Search(q, 16)
		if sameHits(got, want) {
			same++
		}
		s := with.scratch.Get().(*scratch)
		with.read(s, &q)
		with.embedQuery(s, &q)
		s.lazy, s.allow = true, q.Allow
		with.setPrior(s, q.Called)
		go with.nearest(s, s.wanted())
		best := with.boundWords(s)
		if len(s.bound.lists) > 0 {
			unread++
		}
		with.boundClauses(s, &q)
		with.top(s, with.candidates(), 1/(best+with.damp))
		looked += len(s.known)
		exact := ix.scratch.Get().(*scratch)
		exact.allow = q.Allow
		ix.read(exact, &q)
		if want := ix.accumulate(exact); best != want {
			t.Fatalf("query %d: the best score is %v by bounds, %v by a look at all", i, best, want)
		}
	}
	t.Logf("%d of %d rankings are those of a scan; postings were left unread in %d; %d tools were looked at for a query", same, queries, unread, looked/queries)
	if same < queries*98/100 {
		t.Errorf("%d of %d rankings are those of a scan", same, queries)
	}
	if unread == 0 || looked/queries > len(tools)/4 {
		t.Errorf("postings were left unread in %d of %d; %d of %d tools were looked at", unread, queries, looked/queries, len(tools))
	}
}

// TestNearestFault: what goes wrong beside a search goes wrong in it, for whoever asked
// to recover from; the next search is as any other.
func TestNearestFault(t *testing.T) {
	var tools []Tool
	for i := range 200 {
		tools = append(tools, Tool{Name: fmt.Sprintf("tool_%c%d", 'a'+i%20, i), Description: fmt.Sprintf("word%d of word%d", i%7, i)})
	}
	plain := spaceIndex(t, tools, toySpace(16))
	g, err := fullGraph(plain)
	if err != nil {
		t.Fatal(err)
	}
	ix, err := plain.WithGraph(g)
	if err != nil {
		t.Fatal(err)
	}
	want := ix.Search(Text(tools[7].Name), 4)
	for range 3 {
		fault := func() (fault any) {
			defer func() { fault = recover() }()
			q := Text(tools[7].Name)
			q.Allow = func(int) bool { panic("no rule") }
			ix.Search(q, 4)
			return nil
		}()
		if fault != "no rule" {
			t.Fatalf("the search ended with %v", fault)
		}
		if got := ix.Search(Text(tools[7].Name), 4); !sameHits(got, want) {
			t.Fatalf("after a fault %v, before %v", got, want)
		}
	}
}

func TestGreatest(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	for n := range 200 {
		list := make([]float32, n%70)
		for i := range list {
			if rng.Intn(3) > 0 {
				list[i] = float32(math.Exp(20 * rng.NormFloat64()))
			}
		}
		want := float32(0)
		if len(list) > 0 {
			want = slices.Max(list)
		}
		if got := greatest(list); got != want {
			t.Fatalf("%v of %v", got, list)
		}
	}
}
