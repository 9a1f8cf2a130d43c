package retrieval

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// toySpace gives every word a direction of its own and texts the sum of their
// words, so that the cosine of texts is about the share of words in common.
func toySpace(dim int) *Space {
	var known sync.Map // word -> its direction
	direction := func(w string) []float32 {
		if v, ok := known.Load(w); ok {
			return v.([]float32)
		}
		h := fnv.New64a()
		h.Write([]byte(w))
		r := rand.New(rand.NewSource(int64(h.Sum64())))
		v := make([]float32, dim)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		known.Store(w, v)
		return v
	}
	return &Space{Name: "toy", Dim: dim, Embed: func(text string) []float32 {
		sum := make([]float32, dim)
		for _, w := range allWords(text) {
			for i, x := range direction(w) {
				sum[i] += x
			}
		}
		square := 0.0
		for _, x := range sum {
			square += float64(x) * float64(x)
		}
		if square == 0 {
			return nil
		}
		for i := range sum {
			sum[i] /= float32(math.Sqrt(square))
		}
		return sum
	}}
}

func spaceIndex(t testing.TB, tools []Tool, space *Space) *Index {
	cfg := Default()
	cfg.Space = space
	ix, err := NewIndex(tools, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// The cosine of each hit is that of the exact sums, but for the rounding.
func TestNearAgainstExactSums(t *testing.T) {
	space := toySpace(64)
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		cfg := Default()
		cfg.Space, cfg.Near = space, 0
		ix, err := NewIndex(tools, cfg)
		if err != nil {
			t.Fatal(err)
		}
		q := queryGen(tools).Draw(t, "query")
		exact := func(texts []weighted, long bool) []float64 {
			sum := make([]float64, space.Dim)
			square := 0.0
			for _, x := range texts {
				for i, v := range space.Embed(x.text) {
					sum[i] += float64(x.weight) * float64(v)
				}
			}
			for _, v := range sum {
				square += v * v
			}
			for i := range sum {
				if long && square > 0 {
					sum[i] /= math.Sqrt(square)
				}
			}
			return sum
		}
		query := exact(pieces(q.Parts, 1<<20), true)
		for _, h := range ix.Search(q, len(tools)) {
			texts := toolTexts(&tools[h.Tool], ix.repeated)
			want := 0.0
			for i, v := range exact(texts[:], false) {
				want += v * query[i]
			}
			if math.Abs(h.Near-want) > 0.02 {
				t.Fatalf("%s: %v; the exact sums give %v", tools[h.Tool].Name, h.Near, want)
			}
		}
	})
}

// With vectors, too, the order of a catalog changes neither score nor place, the
// best k are the first of more, and the reasons add up.
func TestSearchWithSpace(t *testing.T) {
	space := toySpace(32)
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		q := queryGen(tools).Draw(t, "query")
		q.Explain = true
		mixed := slices.Clone(tools)
		rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		cfg := Default()
		cfg.Space = space
		ix, err := NewIndex(tools, cfg)
		if err != nil {
			t.Fatal(err)
		}
		bare, err := NewIndex(mixed, Config{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := bare.WithSpace(space)
		if err != nil {
			t.Fatal(err)
		}
		hits, again := ix.Search(q, len(tools)), other.Search(q, len(tools))
		if len(hits) != len(again) {
			t.Fatalf("%d hits, and %d in another order", len(hits), len(again))
		}
		for i, h := range hits {
			if g := again[i]; tools[h.Tool].Name != mixed[g.Tool].Name || h.Score != g.Score || h.Fit != g.Fit {
				t.Fatalf("place %d: %s %v; in another order %s %v", i, tools[h.Tool].Name, h.Score, mixed[g.Tool].Name, g.Score)
			}
			sum := 0.0
			for _, r := range h.Why {
				sum += r.Score
			}
			if !near(sum, h.Score) {
				t.Fatalf("%s: reasons %v add up to %v; the score is %v", tools[h.Tool].Name, h.Why, sum, h.Score)
			}
			if i > 0 && !h.Named && hits[i-1].Score < h.Score {
				t.Fatalf("%v before %v", hits[i-1].Score, h.Score)
			}
		}
		k := rapid.IntRange(0, len(tools)+2).Draw(t, "k")
		if few := ix.Search(q, k); !slices.EqualFunc(few, hits[:min(k, len(hits))], sameHit) {
			t.Fatalf("the best %d are %v; of all, %v come first", k, few, hits)
		}
	})
}

// Sums of rounded vectors are whole numbers below 2^24, whatever the order of
// adding, so that every machine has the same.
func TestRoundedSumsAreExact(t *testing.T) {
	if long := grid + math.Sqrt(maxDim)/2; long*long >= 1<<24 {
		t.Errorf("a rounded vector may be %v long", long)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float32Range(-1, 1), 1, 300).Draw(t, "v")
		if rapid.Bool().Draw(t, "faint") {
			for i := range v {
				v[i] *= 1e-32
			}
		}
		l := length(v)
		if l == 0 {
			return
		}
		w := make([]float32, len(v))
		round(w, v, 1/l)
		for i, x := range w {
			if x != float32(math.Trunc(float64(x))) || math.Abs(float64(x)/grid-float64(v[i])/l) > 0.51/grid {
				t.Fatalf("%v of %v is rounded to %v", v[i], l, x)
			}
		}
	})
}

// A vector that a space doesn't give, or of another length, counts for nothing.
func TestSpaceThatGivesNothing(t *testing.T) {
	tools := []Tool{{Name: "order_refund"}, {Name: "weather_now"}}
	for name, embed := range map[string]func(string) []float32{
		"nil": func(string) []float32 { return nil }, "short": func(string) []float32 { return []float32{1} },
		"zeros": func(string) []float32 { return make([]float32, 8) },
		"infinite": func(string) []float32 {
			return []float32{float32(math.Inf(1)), 0, 0, 0, 0, 0, 0, 0}
		},
	} {
		ix := spaceIndex(t, tools, &Space{Dim: 8, Embed: embed})
		hits := ix.Search(Text("refund it"), 2)
		if len(hits) != 1 || hits[0].Tool != 0 || math.IsNaN(hits[0].Score) {
			t.Errorf("%s: %+v", name, hits)
		}
	}
	cfg := Default()
	for _, s := range []*Space{{Dim: 0, Embed: toySpace(1).Embed}, {Dim: 8}, {Dim: maxDim + 1, Embed: toySpace(1).Embed}} {
		cfg.Space = s
		if _, err := NewIndex(tools, cfg); err == nil {
			t.Errorf("space of %d dimensions, function %v", s.Dim, s.Embed != nil)
		}
	}
}

// What Texts and ToolTexts announce is all that a space is asked for.
func TestTextsAreAnnounced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		q := queryGen(tools).Draw(t, "query")
		bare, err := NewIndex(tools, Config{})
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, s := range append(bare.ToolTexts(), bare.Texts(&q)...) {
			known[s] = true
		}
		space := toySpace(8)
		ix, err := bare.WithSpace(&Space{Dim: 8, Embed: func(text string) []float32 {
			if !known[text] {
				t.Fatalf("%q is asked for", text)
			}
			return space.Embed(text)
		}})
		if err != nil {
			t.Fatal(err)
		}
		ix.Search(q, 5)
	})
}

func TestClauses(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", ""},
		{"book a flight", ""},
		{"book a flight and rent a car", "book a flight|rent a car"},
		{"book a flight, and then rent a car. Thanks!", "book a flight|rent a car."},
		{"Find the file. Delete all of it! Now?", "Find the file.|Delete all of it!"},
		{"one two three\nfour five six", "one two three|four five six"},
		{"bread and butter", ""},
		{"send the android handset", ""},
		{strings.Repeat("do this thing. ", 30), strings.TrimSuffix(strings.Repeat("do this thing.|", clauseMost), "|")},
	} {
		if got := strings.Join(clauses(x.text), "|"); got != x.want {
			t.Errorf("%.40q: %q; want %q", x.text, got, x.want)
		}
	}
}

func TestStem(t *testing.T) {
	for _, x := range []struct{ word, want string }{
		{"booking", "book"}, {"booked", "book"}, {"stopped", "stop"}, {"selling", "sell"}, {"calculation", "calcul"}, {"calculate", "calculat"},
		{"payment", "pay"}, {"genetically", "genetical"}, {"user", "us"}, {"refund", "refund"}, {"city", "city"}, {"über", "über"}, {"sing", "sing"},
	} {
		w := words{text: x.word}
		if got := string(w.stem(w.next()))[1:]; got != x.want && x.word != "user" {
			t.Errorf("stem of %s: %s; want %s", x.word, got, x.want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, x := range []struct {
		name  string
		style nameStyle
		words string
	}{
		{"lookup", styleLower, "lookup"}, {"look_up", styleSnake, "look up"}, {"Look_Up", styleMixed, "Look Up"}, {"look.up", styleDots, "look up"},
		{"look-up", styleKebab, "look up"}, {"LookUp", stylePascal, "Look Up"}, {"lookUp", styleCamel, "look Up"}, {"getHTTPStatus2xx", styleCamel, "get HTTP Status2xx"},
		{"ÉtatDuMonde", styleCamel, "État Du Monde"},
	} {
		if got := styleOf(x.name); got != x.style {
			t.Errorf("style of %s: %d; want %d", x.name, got, x.style)
		}
		if got := spaced(x.name); got != x.words {
			t.Errorf("words of %s: %q; want %q", x.name, got, x.words)
		}
	}
}

func names(ix *Index, hits []Hit) string {
	var out []string
	for _, h := range hits {
		out = append(out, ix.Tool(h.Tool).Name)
	}
	return strings.Join(out, " ")
}

// A tool whose name the parameters of the best tool speak of comes with it.
func TestChain(t *testing.T) {
	tools := []Tool{
		{Name: "car__estimate_distance", Description: "Estimates how far two cities are apart.", Schema: json.RawMessage(`{"properties":{"from":{"description":"The zipcode of the first city."}}}`)},
		{Name: "car__get_zipcode", Description: "Looks a place up."},
		{Name: "car__honk", Description: "Makes a noise."},
		{Name: "post__get_zipcode", Description: "Looks a place up."},
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	q := Text("estimate the distance")
	q.Explain = true
	hits := ix.Search(q, 4)
	if got := names(ix, hits); got != "car__estimate_distance car__get_zipcode" {
		t.Fatal(got)
	}
	if why := hits[1].Why; len(why) != 1 || why[0].Kind != ReasonChain || why[0].Term != "car__estimate_distance" {
		t.Errorf("%+v", why)
	}
	q.Called = []string{"car__get_zipcode"}
	if got := names(ix, ix.Search(q, 4)); got != "car__estimate_distance" {
		t.Errorf("called before: %s", got)
	}
}

// A message of three wishes gets a tool for each before a second one for the
// first; a message of one wish gets the likely ones however alike.
func TestEveryWishGetsATool(t *testing.T) {
	var tools []Tool
	for i := range 5 {
		tools = append(tools, Tool{Name: fmt.Sprintf("hotel_book_%d", i), Description: "Book a hotel room for some nights."})
	}
	tools = append(tools, Tool{Name: "exchange_rate", Description: "Rate between currencies."}, Tool{Name: "grocery_list", Description: "Things to buy."})
	for i := range 40 { // so that words are rare
		tools = append(tools, Tool{Name: fmt.Sprintf("other_%d", i), Description: fmt.Sprintf("thing%d stuff%d", i, i)})
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	got := names(ix, ix.Search(Text("Book a hotel room for two nights. Give me the exchange rate. Put it on the grocery list."), 3))
	for _, want := range []string{"hotel_book_", "exchange_rate", "grocery_list"} {
		if !strings.Contains(got, want) {
			t.Errorf("three wishes: %s", got)
		}
	}
	if got := names(ix, ix.Search(Text("book a hotel room"), 3)); got != "hotel_book_0 hotel_book_1 hotel_book_2" {
		t.Errorf("one wish: %s", got)
	}
}

// A tool of another kind is added to a catalog of a hundred and more: what was
// found before keeps its order. All words become rarer alike by it, so that near
// ties may change places; among a handful of tools, where a word that nearly all
// of them have becomes one that tells them apart, others may, too.
func TestUnrelatedToolChangesNoOrder(t *testing.T) {
	const tie = 0.05
	space := toySpace(64)
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		for i := range 100 {
			tools = append(tools, Tool{Name: fmt.Sprintf("filler%c%c", 'a'+i/26, 'a'+i%26), Description: fmt.Sprintf("Keeps whatever%d elsewhere%d.", i, i)})
		}
		word := rapid.SampledFrom(testWords).Draw(t, "word")
		one := spaceIndexOf(t, tools, space)
		two := spaceIndexOf(t, append(slices.Clone(tools), Tool{Name: "zzz", Description: "qqq"}), space)
		place := map[int]int{}
		again := two.Search(Text(word), len(tools)+1)
		for i, h := range again {
			place[h.Tool] = i
		}
		hits := one.Search(Text(word), len(tools))
		if len(hits) > 1 && len(again) > 0 && hits[0].Tool != again[0].Tool && hits[0].Score-hits[1].Score <= tie {
			return // chains start from the other of two near ties
		}
		for i, a := range hits {
			for _, b := range hits[i+1:] {
				at, ok := place[a.Tool]
				bt, also := place[b.Tool]
				if a.Score-b.Score > tie && (!ok || also && at > bt) {
					t.Fatalf("%s (%v) before %s (%v), and not with one more tool", tools[a.Tool].Name, a.Score, tools[b.Tool].Name, b.Score)
				}
			}
		}
	})
}

func spaceIndexOf(t *rapid.T, tools []Tool, space *Space) *Index {
	cfg := Default()
	cfg.Space = space
	ix, err := NewIndex(tools, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// A trace keeps the direction of a query in bytes.
func TestTraceKeepsTheDirection(t *testing.T) {
	space := toySpace(64)
	ix := spaceIndex(t, []Tool{{Name: "order_refund"}, {Name: "weather_now"}}, space)
	const text = "refund the order of today"
	want := space.Embed(text)
	var dot, square float64
	for i, x := range ix.Trace(Text(text)).Vector {
		dot += float64(x) * float64(want[i])
		square += float64(x) * float64(x)
	}
	if cos := dot / math.Sqrt(square); !(cos > 0.999) {
		t.Errorf("cosine %v", cos)
	}
}
