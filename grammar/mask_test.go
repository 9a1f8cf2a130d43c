package grammar

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// wholeVocabulary is the slow twin of masks: every token's bytes through the
// automaton from this very place, and then, unless live is nil, a search for a
// way to the end.
func wholeVocabulary(t fataler, v *Vocabulary, m *Matcher, live map[*config]bool) bitmap {
	t.Helper()
	out := make(bitmap, v.Words())
	exact := m.a.exact(m.now)
	for id := range int32(v.size) {
		b, _, ok := v.tok.Token(id)
		if !ok || v.tok.IsAdded(id) || len(b) > far {
			continue
		}
		c := exact
		for _, x := range b {
			var err error
			if c, err = m.a.next(c, x); err != nil {
				t.Fatal(err)
			}
			if c == nil {
				break
			}
		}
		if c != nil && (live == nil || canEnd(t, m.a, c, live)) {
			out.set(id)
		}
	}
	if exact.accepting {
		for _, id := range v.ends {
			out.set(id)
		}
	}
	return out
}

// canEnd searches for a way from c to an accepting config.
func canEnd(t fataler, a *Automaton, c *config, live map[*config]bool) bool {
	_, ok, _ := ending(t, a, c, live)
	return ok
}

// ending finds bytes that lead from c to an accepting config, or to a live one.
// It gets tired of schemas that recurse too widely.
func ending(t fataler, a *Automaton, c *config, live map[*config]bool) (text []byte, ok, tired bool) {
	if c.accepting || live[c] {
		return nil, true, false
	}
	type at struct {
		c  *config
		of []byte // still to be tried, the last first
	}
	// What closes comes first, so that the search is short.
	choices := func(c *config) []byte {
		e := a.edgesOf(c)
		of := slices.Clone(e.of[1:])
		order := closers
		if e.index('~') != 0 { // in a string
			order += "\""
		}
		slices.SortStableFunc(of, func(x, y byte) int { return strings.LastIndexByte(order, x) - strings.LastIndexByte(order, y) })
		return of
	}
	seen := map[*config]bool{c: true}
	path := []at{{c, choices(c)}}
	for steps := 0; len(path) > 0; steps++ {
		if steps > 500_000 {
			return nil, false, true
		}
		top := &path[len(path)-1]
		if len(top.of) == 0 || len(path) > 100_000 {
			path = path[:len(path)-1]
			text = text[:max(0, len(text)-1)]
			continue
		}
		b := top.of[len(top.of)-1]
		top.of = top.of[:len(top.of)-1]
		n, err := a.next(top.c, b)
		if err != nil {
			t.Fatal(err)
		}
		if seen[n] {
			continue
		}
		seen[n] = true
		text = append(text, b)
		if n.accepting || live[n] {
			for _, p := range path {
				live[p.c] = true
			}
			live[n] = true
			return text, true, false
		}
		path = append(path, at{n, choices(n)})
	}
	return nil, false, false
}

const closers = "{[tn ,0\"]}" // the last first

// walk goes through random tokens that masks allow, n at most and then on the
// way to the end that ending finds; nil if it got tired. visit sees every place.
func walk(t fataler, a *Automaton, v *Vocabulary, rng *rand.Rand, n int, visit func(m *Matcher, text []byte, mask bitmap)) []byte {
	t.Helper()
	m := a.Matcher(v)
	mask := make(bitmap, v.Words())
	var text, rest []byte
	hurry := false
	for i := 0; !m.Done(); i++ {
		if err := m.Mask(mask); err != nil {
			t.Fatal(err)
		}
		if visit != nil {
			visit(m, text, mask)
		}
		if i >= n && !hurry {
			var ok, tired bool
			if rest, ok, tired = ending(t, a, a.exact(m.now), map[*config]bool{}); tired {
				return nil
			}
			if !ok {
				t.Fatalf("no end after %q", text)
			}
			hurry = true
		}
		id := int32(-1)
		switch {
		case hurry && len(rest) == 0:
			id = v.ends[0]
		case hurry:
			id = v.trie.id[v.trie.first[rest[0]]]
			rest = rest[1:]
		default:
			id = draw(rng, mask)
		}
		if id < 0 || mask[id>>6]>>(id&63)&1 == 0 {
			t.Fatalf("stuck after %q", text)
		}
		if err := m.Advance(id); err != nil {
			t.Fatalf("allowed after %q: %v", text, err)
		}
		if !m.Done() {
			b, _, _ := v.tok.Token(id)
			text = append(text, b...)
		}
	}
	if !m.Accepts() {
		t.Fatalf("done, but not accepted: %q", text)
	}
	return text
}

// draw picks one of some allowed tokens; -1 if there is none.
func draw(rng *rand.Rand, mask bitmap) int32 {
	var ids []int32
	from := rng.IntN(len(mask))
	for k := range mask {
		w := (from + k) % len(mask)
		for b := range 64 {
			if mask[w]>>b&1 == 1 {
				ids = append(ids, int32(w*64+b))
			}
		}
		if len(ids) > 0 {
			return ids[rng.IntN(len(ids))]
		}
	}
	return -1
}

func compareMasks(t fataler, v *Vocabulary, c *Checked, text []byte, got, want bitmap) {
	t.Helper()
	for w := range got {
		if got[w] == want[w] {
			continue
		}
		for b := range 64 {
			id := int32(w*64 + b)
			if g, x := got[w]>>b&1, want[w]>>b&1; g != x {
				tok, _, _ := v.tok.Token(id)
				t.Fatalf("%s: after %q token %d %q: mask %d, whole vocabulary %d", c.name, clipText(string(text), 300), id, tok, g, x)
			}
		}
	}
}

// TestMaskSample: masks on random places of the sample's grammars are those of
// the whole-vocabulary walk; random decoding ends, and what it writes fits
// where the tool is exact.
func TestMaskSample(t *testing.T) {
	v := qwenVocabulary(t)
	cs := sample(t, 4)
	places, exact := 0, 0
	for i, c := range cs {
		a := automatonOf(t, c)
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		live := map[*config]bool{}
		n := 0
		text := walk(t, a, v, rng, 30, func(m *Matcher, text []byte, mask bitmap) {
			if n++; n == 1 || rng.IntN(15) == 0 && n < 80 && i%4 == 0 {
				places++
				compareMasks(t, v, c, text, mask, wholeVocabulary(t, v, m, live))
			}
		})
		if len(c.content.reasons) == 0 {
			exact++
			if err := c.Check(text); err != nil {
				t.Errorf("%s: %v: %s", c.name, err, clipText(string(text), 600))
			}
		}
	}
	t.Logf("%d schemas, %d places compared, %d texts of exact tools", len(cs), places, exact)
}

// TestMaskStrings: bounded strings, loops over classes, and what follows them.
func TestMaskStrings(t *testing.T) {
	v := qwenVocabulary(t)
	for _, s := range []string{
		`{"type":"string"}`,
		`{"type":"string","maxLength":3}`,
		`{"type":"string","minLength":2,"maxLength":140}`,
		`{"type":"string","minLength":30}`,
		`{"type":"string","maxLength":100000}`,
		`{"type":"string","pattern":"^[a-z]+$"}`,
		`{"type":"string","pattern":"^[A-Za-z .]{1,1000}$"}`,
		`{"type":"string","pattern":"^[^/]+/[^/]+$"}`,
		`{"type":"string","pattern":"^[é-ü]*[è-ÿ]x$"}`,
		`{"type":"string","pattern":"^(a?b?){3,20}$"}`,
		`{"type":"string","pattern":"[0-9]{3}"}`,
		`{"type":"string","pattern":"^[a-z]{1,400}[0-9]{2,5}$"}`,
		`{"type":"string","pattern":"^([a-z]{2,300},)+x?$"}`,
		`{"type":"string","format":"uuid"}`,
		`{"type":"string","pattern":"^p:([a-z-]+)?:([a-z-]+|x.*)[0-9]+$"}`,
		`{"type":"string","pattern":"^[a-z]*[a-z0-9]{2,40}$"}`,
		`{"anyOf":[{"type":"string","maxLength":5},{"type":"array","items":{"type":"string","maxLength":9},"minItems":2,"maxItems":300},{"type":"number","minimum":-1.5}]}`,
		`{"enum":["red","green","\u00e9","a\"b\\"]}`,
		`{"type":"object","additionalProperties":{"type":"integer"},"maxProperties":4}`,
		`{}`,
	} {
		c := compileTest(t, `{"properties":{"a":`+s+`,"b":{"type":"boolean"}},"required":["a"]}`, Closed)
		a := automatonOf(t, c)
		live := map[*config]bool{}
		for seed := range 3 {
			rng := rand.New(rand.NewPCG(uint64(seed), 5))
			n := 0
			walk(t, a, v, rng, 12+60*seed, func(m *Matcher, text []byte, mask bitmap) {
				if n++; n > 3 && n < 7 || n > 3 && rng.IntN(12) == 0 {
					compareMasks(t, v, c, text, mask, wholeVocabulary(t, v, m, live))
				}
			})
		}
	}
}

// TestRollback: taking back n steps is the same as not having taken them.
func TestRollback(t *testing.T) {
	v := qwenVocabulary(t)
	cs := sample(t, 40)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(cs).Draw(t, "schema")
		a := automatonOf(t, c)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		m := a.Matcher(v)
		var ids []int32
		got, want := make([]uint64, v.Words()), make([]uint64, v.Words())
		for range rapid.IntRange(1, 30).Draw(t, "ops") {
			if rapid.IntRange(0, 3).Draw(t, "op") > 0 && !m.Done() {
				if err := m.Mask(got); err != nil {
					t.Fatal(err)
				}
				id := draw(rng, got)
				if err := m.Advance(id); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
				continue
			}
			n := rapid.IntRange(0, len(ids)).Draw(t, "n")
			if err := m.Rollback(n); err != nil {
				t.Fatal(err)
			}
			ids = ids[:len(ids)-n]
			if m.Rollback(len(ids)+1) == nil {
				t.Fatal("more steps back than were taken")
			}
		}
		replay := a.Matcher(v)
		for _, id := range ids {
			if err := replay.Advance(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Mask(got); err != nil {
			t.Fatal(err)
		}
		if err := replay.Mask(want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || m.Accepts() != replay.Accepts() || m.Done() != replay.Done() || string(m.Forced()) != string(replay.Forced()) {
			t.Fatalf("%s: rolled back and replayed differ after %v", c.name, ids)
		}
	})
}

// TestMatcherRefuses: what doesn't fit changes nothing.
func TestMatcherRefuses(t *testing.T) {
	v := qwenVocabulary(t)
	c := compileTest(t, `{"properties":{"city":{"const":"Paris"}},"required":["city"]}`, Closed)
	m := automatonOf(t, c).Matcher(v)
	if f := string(m.Forced()); f != `{` {
		t.Errorf("forced %q", f)
	}
	call, _ := v.tok.ID("<tool_call>")
	for _, id := range []int32{call, v.ends[0], 1 << 30, -1, v.trie.id[v.trie.first['x']]} {
		if err := m.Advance(id); err == nil {
			t.Errorf("token %d is taken", id)
		}
	}
	err := m.AdvanceBytes([]byte(`{"city": "Pxris`))
	if e, ok := err.(*RefusedError); !ok || e.Offset != 11 {
		t.Errorf("%v", err)
	}
	if err := m.AdvanceBytes([]byte(`{"ci`)); err != nil {
		t.Fatal(err)
	}
	if f := string(m.Forced()); f != `ty":` {
		t.Errorf("forced %q", f)
	}
	if err := m.AdvanceBytes([]byte(`ty": "Paris"}`)); err != nil || !m.Accepts() {
		t.Fatal(err)
	}
	mask := make(bitmap, v.Words()+2)
	mask[v.Words()] = 7
	if err := m.Mask(mask); err != nil {
		t.Fatal(err)
	}
	want := make(bitmap, v.Words()+2)
	want.set(v.ends[0])
	if !slices.Equal(mask, want) {
		t.Error("more than the end is allowed at the end")
	}
	if err := m.Advance(v.ends[0]); err != nil || !m.Done() {
		t.Fatal(err)
	}
	if err := m.AdvanceBytes([]byte(" ")); err == nil {
		t.Error("a byte after the end")
	}
}

// TestShared: many use one automaton at once, small enough to start anew again
// and again, and all see the same masks.
func TestShared(t *testing.T) {
	v := qwenVocabulary(t)
	schema := `{"properties":{"a":{"type":"string","maxLength":300},"b":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":200},"c":{"enum":["x","yy"]}},"required":["a","b"],
		"$defs":{"t":{"type":"object","properties":{"n":{"type":"integer","minimum":-5},"t":{"$ref":"#/$defs/t"}}}}}`
	c, err := compile("t", json.RawMessage(schema), Closed)
	if err != nil {
		t.Fatal(err)
	}
	p, err := assemble(c.automaton.lang, c.automaton.defs, maxNesting)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAutomaton(p, 60<<10)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([][]byte, 8)
	sums := make([]uint64, 8)
	var wg sync.WaitGroup
	for i := range texts {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i/2), 9))
			texts[i] = walk(t, a, v, rng, 150, func(m *Matcher, _ []byte, mask bitmap) {
				for k, w := range mask {
					sums[i] = sums[i]*31 + w ^ uint64(k)
				}
			})
		})
	}
	wg.Wait()
	for i := 0; i < len(texts); i += 2 {
		if string(texts[i]) != string(texts[i+1]) || sums[i] != sums[i+1] {
			t.Errorf("equal draws, but\n%s\n%s", texts[i], texts[i+1])
		}
		if err := c.Check(texts[i]); err != nil {
			t.Errorf("%v: %s", err, texts[i])
		}
	}
	if a.epochs < 3 {
		t.Errorf("started anew %d times: the test is too small", a.epochs)
	}
	if n := a.MemoryBytes(); n > 400<<10 {
		t.Errorf("%d bytes held", n)
	}
}

func TestApply(t *testing.T) {
	inf := float32(math.Inf(-1))
	z := make([]float32, 131)
	for i := range z {
		z[i] = float32(i)
	}
	z[1] = float32(math.Inf(1))
	Apply(z, []uint64{1 << 5, math.MaxUint64})
	for i, x := range z {
		want := inf
		if i == 5 || i >= 64 && i < 128 {
			want = float32(i)
		}
		if x != want {
			t.Errorf("logit %d is %v, want %v", i, x, want)
		}
	}
}

// FuzzAdvanceBytes: however a text is cut, the automaton takes the same, and
// what an exact tool's automaton accepts fits.
func FuzzAdvanceBytes(f *testing.F) {
	schemas := []string{
		`{"properties":{"a":{"type":"string","maxLength":4},"n":{"type":"number","minimum":0.5,"maximum":20}},"required":["a"]}`,
		`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"type":"array","items":{"$ref":"#/$defs/t"},"minItems":1},"s":{"type":"string","pattern":"^(ab?)+$"}}}}}`,
	}
	var cs []*Checked
	for _, s := range schemas {
		cs = append(cs, compileTest(f, s, Closed))
	}
	f.Add(0, `{"a": "x", "n": 1.25}`, 5)
	f.Add(1, `{"l": [{}, {"s": "aab"}]}`, 9)
	f.Add(0, `{"a": "\u00e9\n"}`, 8)
	f.Fuzz(func(t *testing.T, which int, text string, cut int) {
		c := cs[uint(which)%uint(len(cs))]
		a := automatonOf(t, c)
		whole := a.Matcher(nil)
		err := whole.AdvanceBytes([]byte(text))
		parts := a.Matcher(nil)
		cut = int(uint(cut) % uint(len(text)+1))
		perr := parts.AdvanceBytes([]byte(text[:cut]))
		if perr == nil {
			perr = parts.AdvanceBytes([]byte(text[cut:]))
		}
		if (err == nil) != (perr == nil) || err == nil && a.exact(whole.now) != a.exact(parts.now) {
			t.Fatalf("%q in one piece: %v; cut at %d: %v", text, err, cut, perr)
		}
		if err == nil && whole.Accepts() {
			if cerr := c.Check([]byte(text)); cerr != nil {
				t.Fatalf("accepted, but %v", cerr)
			}
		}
		if err == nil && len(text) < 300 {
			if got, want := whole.Accepts(), twinAccepts(readEBNF(t, c.content.ebnf), text); got != want {
				t.Fatalf("%q: accepted %v, by the twin %v", text, got, want)
			}
		}
	})
}

// TestMaskPlaces compares masks at places that random texts seldom reach.
func TestMaskPlaces(t *testing.T) {
	v := qwenVocabulary(t)
	a250 := strings.Repeat("a", 250)
	for _, tt := range []struct{ schema, text string }{
		{`{"type":"string","pattern":"^p:([a-z-]+)?:x$"}`, `p:`},
		{`{"type":"string","pattern":"^p:([a-z-]{3,9})?:x$"}`, `p:a`},
		{`{"type":"string","pattern":"\\\\+$"}`, `x`},
		{`{"type":"string","maxLength":400}`, a250},
		{`{"type":"string","maxLength":400}`, a250 + a250[:40]},
		{`{"type":"string","maxLength":400}`, a250 + a250[:145]},
		{`{"type":"string","minLength":3,"maxLength":260}`, a250 + "é\\"},
		{`{"type":"string","pattern":"^[a-z]{2,300}x?[0-9]{1,200}$"}`, a250 + "x11"},
	} {
		c := compileTest(t, `{"properties":{"a":`+tt.schema+`},"required":["a"]}`, Closed)
		m := automatonOf(t, c).Matcher(v)
		text := `{"a": "` + tt.text
		if err := m.AdvanceBytes([]byte(text)); err != nil {
			t.Fatalf("%s: %q: %v", tt.schema, text, err)
		}
		mask := make(bitmap, v.Words())
		if err := m.Mask(mask); err != nil {
			t.Fatal(err)
		}
		compareMasks(t, v, c, []byte(text), mask, wholeVocabulary(t, v, m, map[*config]bool{}))
	}
}

// TestBounds: strings and lists of just the allowed sizes fit, however they
// are fed; one more or one less doesn't.
func TestBounds(t *testing.T) {
	for _, n := range []int{1, 2, 100, 127, 128, 129, 130, 200, 300, 1000} {
		for _, char := range []string{"a", "é", `\n`, `\u00e9`, "😀"} {
			for _, tt := range []struct{ schema, head, tail string }{
				{fmt.Sprintf(`{"type":"string","maxLength":%d}`, n), `"`, `"`},
				{fmt.Sprintf(`{"type":"string","minLength":1,"maxLength":%d}`, n), `"`, `"`},
				{fmt.Sprintf(`{"type":"string","pattern":"^[^b]{1,%d}b+$"}`, n), `"`, `bb"`},
				{fmt.Sprintf(`{"type":"array","items":{"type":"string","maxLength":%d},"maxItems":2}`, n), `["", "`, `"]`},
			} {
				if char == `\u00e9` && strings.Contains(tt.schema, "pattern") {
					continue // not how a class spells it
				}
				c := compileTest(t, `{"properties":{"a":`+tt.schema+`},"required":["a"]}`, Closed)
				a := automatonOf(t, c)
				for _, k := range []int{n - 1, n, n + 1} {
					text := `{"a": ` + tt.head + strings.Repeat(char, k) + tt.tail + `}`
					want := k <= n && (k > 0 || !strings.Contains(tt.schema, "1,") && !strings.Contains(tt.schema, `"minLength":1`))
					if got := accepts(a, text); got != want {
						t.Errorf("%s: %d times %q: accepted %v", tt.schema, k, char, got)
					}
					m := a.Matcher(nil)
					var err error
					for i := 0; i < len(text) && err == nil; i += 3 {
						err = m.AdvanceBytes([]byte(text[i:min(i+3, len(text))]))
					}
					if got := err == nil && m.Accepts(); got != want {
						t.Errorf("%s: %d times %q in pieces: accepted %v", tt.schema, k, char, got)
					}
				}
			}
		}
		c := compileTest(t, fmt.Sprintf(`{"properties":{"a":{"type":"array","items":{"type":"null"},"minItems":%d,"maxItems":%d}},"required":["a"]}`, n, n+1), Closed)
		for k := n - 1; k <= n+2; k++ {
			list := strings.TrimSuffix(strings.Repeat("null,", k), ",")
			if got, want := accepts(automatonOf(t, c), `{"a":[`+list+`]}`), k >= n && k <= n+1; got != want {
				t.Errorf("%d to %d items: %d accepted %v", n, n+1, k, got)
			}
		}
	}
}
