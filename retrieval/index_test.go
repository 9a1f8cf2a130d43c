package retrieval

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsidecar/sidecar/internal/racetest"
	"pgregory.net/rapid"
)

// oracle scores every tool straight from the formula: no postings, no heap, no
// shared counts, everything in float64.
type oracle struct {
	cfg   Config
	tools []Tool
	docs  [][fields]map[string]int
	df    map[string]int
	mean  float64
}

func newOracle(tools []Tool, cfg Config) *oracle {
	o := &oracle{cfg: cfg, tools: tools, df: map[string]int{}}
	in := map[string]int{}
	split := func(text string) []string {
		var out []string
		for rest := text; rest != ""; {
			var s string
			if s, rest = sentence(rest); s != "" {
				out = append(out, s)
			}
		}
		return out
	}
	for _, t := range tools {
		once := map[string]bool{}
		for _, s := range split(t.Description) {
			once[s] = true
		}
		for s := range once {
			in[s]++
		}
	}
	for _, t := range tools {
		var texts [fields][]string
		texts[FieldName] = []string{t.Name}
		for _, s := range split(t.Description) {
			f := FieldDescription
			if in[s] >= cfg.RepeatedIn && len([]rune(s)) > 20 {
				f = FieldRepeated
			}
			texts[f] = append(texts[f], s)
		}
		if len(texts[FieldDescription]) == 0 {
			texts[FieldDescription], texts[FieldRepeated] = []string{t.Description}, nil
		}
		texts[FieldDescription] = append(texts[FieldDescription], t.Tags...)
		if len(t.Schema) > 0 {
			var v any
			if err := json.Unmarshal(t.Schema, &v); err != nil {
				panic(err)
			}
			texts[FieldParameters] = slowParameterText(v, 0)
		}
		var d [fields]map[string]int
		all := map[string]bool{}
		for f := range texts {
			d[f] = map[string]int{}
			for _, w := range texts[f] {
				for _, w := range allTerms(w) {
					d[f][w]++
					all[w] = true
				}
			}
		}
		for w := range all {
			o.df[w]++
		}
		o.docs = append(o.docs, d)
		o.mean += o.length(d) / float64(len(tools))
	}
	return o
}

func (o *oracle) weights() [fields]float64 {
	return [fields]float64{o.cfg.Name, o.cfg.Description, o.cfg.Repeated, o.cfg.Parameters}
}

func (o *oracle) length(d [fields]map[string]int) float64 {
	sum := 0.0
	for f, w := range o.weights() {
		for _, n := range d[f] {
			sum += w * float64(n)
		}
	}
	return sum
}

// lexical returns the BM25F score of each tool for weighted texts.
func (o *oracle) lexical(parts []Part) (scores []float64, best float64) {
	weight := o.query(parts)
	for _, d := range o.docs {
		s := 0.0
		for w, qw := range weight {
			tf := 0.0
			for f, fw := range o.weights() {
				tf += fw * float64(d[f][w])
			}
			if tf == 0 {
				continue
			}
			s += qw * slowIDF(len(o.tools), o.df[w]) * tf * (o.cfg.K1 + 1) / (tf + o.cfg.K1*(1-o.cfg.B+o.cfg.B*o.length(d)/o.mean))
		}
		scores = append(scores, s)
		best = max(best, s)
	}
	return scores, best
}

func slowIDF(tools, df int) float64 {
	n, d := float64(tools), float64(df)
	return math.Log(1 + (n-d+0.5)/(d+0.5))
}

// query returns the weight of each term.
func (o *oracle) query(parts []Part) map[string]float64 {
	weight := map[string]float64{}
	for _, p := range parts {
		n := map[string]int{}
		for _, w := range allTerms(p.Text) { // the test words are no fillers
			n[w]++
		}
		for w, k := range n {
			weight[w] += p.Weight * float64(min(k, o.cfg.TermMost))
		}
	}
	return weight
}

// stems are those of a tool's name, each once.
func (o *oracle) stems(t *Tool) map[string]bool {
	m := map[string]bool{}
	for _, w := range allTerms(t.Short()) {
		if strings.HasPrefix(w, "~") {
			m[w] = true
		}
	}
	return m
}

// score returns the lexical score and the whole one of each tool, chains and
// the parting of like tools left out.
func (o *oracle) score(q Query) (lexical, total []float64) {
	lexical, best := o.lexical(q.Parts)
	damp := min(o.cfg.Damp, 7*slowIDF(len(o.tools), 1))
	clause := make([]float64, len(o.tools))
	for _, c := range q.Clauses {
		scores, best := o.lexical([]Part{{c, 1}})
		for i, s := range scores {
			clause[i] = max(clause[i], s/(best+damp/2))
		}
	}
	inNames := map[string]int{}
	for i := range o.tools {
		for w := range o.stems(&o.tools[i]) {
			inNames[w]++
		}
	}
	weight := o.query(q.Parts)
	prior := map[string]float64{}
	style := styleNone
	next := o.cfg.Server
	for n, name := range slices.Backward(q.Called) {
		for i := range o.tools {
			if s := o.tools[i].Origin(); o.tools[i].Name == name {
				if _, ok := prior[s]; !ok && s != "" {
					prior[s] = next
					next /= 2
				}
				if s == "" && n == len(q.Called)-1 {
					style = styleOf(name)
				}
			}
		}
	}
	for i := range o.tools {
		v := lexical[i]/(best+damp) + o.cfg.Clause*clause[i]
		spelled, whole := 0.0, 0.0
		for w := range o.stems(&o.tools[i]) {
			x := slowIDF(len(o.tools), inNames[w])
			whole += x
			spelled += x * min(1, weight[w])
		}
		if whole > 0 {
			v += o.cfg.Cover * spelled / whole * spelled / whole
		}
		if s := o.tools[i].Origin(); s != "" {
			v += prior[s]
		} else if style != styleNone && styleOf(o.tools[i].Name) == style {
			v += o.cfg.Style
		}
		if slices.Contains(q.Called, o.tools[i].Name) {
			v -= o.cfg.Called
		}
		if lexical[i] == 0 {
			v = 0
		}
		total = append(total, v)
	}
	return lexical, total
}

var testWords = strings.Fields("invoice order refund list create users weather city send mail table query report open close price stock room event train")

func textGen(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		w := rapid.SliceOfN(rapid.SampledFrom(testWords), 0, most).Draw(t, "words")
		sep := rapid.SampledFrom([]string{" ", ". ", "_", "\n"}).Draw(t, "separator")
		return strings.Join(w, sep)
	})
}

func toolsGen() *rapid.Generator[[]Tool] {
	return rapid.Custom(func(t *rapid.T) []Tool {
		n := rapid.IntRange(1, 30).Draw(t, "tools")
		shared := "Needs the scope of the key to be set before."
		var out []Tool
		for i := range n {
			x := Tool{Name: fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"", "crm__", "erp__", "Get"}).Draw(t, "server"), i) + rapid.SampledFrom(testWords).Draw(t, "name")}
			x.Description = textGen(12).Draw(t, "description")
			if rapid.Bool().Draw(t, "repeated") {
				x.Description += ". " + shared
			}
			if rapid.Bool().Draw(t, "parameters") {
				schema := map[string]any{"properties": map[string]any{
					rapid.SampledFrom(testWords).Draw(t, "parameter"): map[string]any{
						"description": textGen(6).Draw(t, "about"),
						"enum":        rapid.SliceOfN(rapid.SampledFrom(testWords), 0, 4).Draw(t, "enum"),
					},
				}}
				x.Schema, _ = json.Marshal(schema)
			}
			if rapid.Bool().Draw(t, "tagged") {
				x.Tags = []string{rapid.SampledFrom(testWords).Draw(t, "tag")}
			}
			out = append(out, x)
		}
		return out
	})
}

func queryGen(tools []Tool) *rapid.Generator[Query] {
	return rapid.Custom(func(t *rapid.T) Query {
		var q Query
		for range rapid.IntRange(0, 4).Draw(t, "clauses") {
			q.Clauses = append(q.Clauses, textGen(6).Draw(t, "clause"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			q.Parts = append(q.Parts, Part{textGen(15).Draw(t, "text"), rapid.SampledFrom([]float64{1, 0.5, 0.4}).Draw(t, "weight")})
		}
		for range rapid.IntRange(0, min(3, len(tools))).Draw(t, "calls") {
			q.Called = append(q.Called, tools[rapid.IntRange(0, len(tools)-1).Draw(t, "called")].Name)
		}
		return q
	})
}

func TestSearchAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		cfg := Default()
		cfg.Chain, cfg.Apart = 0, 0
		ix, err := NewIndex(tools, cfg)
		if err != nil {
			t.Fatal(err)
		}
		o := newOracle(tools, cfg)
		for range 3 { // one index, several queries: nothing of one may leak into the next
			q := queryGen(tools).Draw(t, "query")
			lexical, total := o.score(q)
			hits := ix.Search(q, len(tools))
			seen := map[int]bool{}
			for i, h := range hits {
				if seen[h.Tool] {
					t.Fatalf("%s twice", tools[h.Tool].Name)
				}
				seen[h.Tool] = true
				if !near(h.Score, total[h.Tool]) || !near(h.Lexical, lexical[h.Tool]) {
					t.Fatalf("%s: score %v, lexical %v; the oracle has %v, %v", tools[h.Tool].Name, h.Score, h.Lexical, total[h.Tool], lexical[h.Tool])
				}
				if i > 0 {
					p := hits[i-1]
					if p.Score < h.Score || p.Score == h.Score && tools[p.Tool].Name > tools[h.Tool].Name {
						t.Fatalf("%s (%v) before %s (%v)", tools[p.Tool].Name, p.Score, tools[h.Tool].Name, h.Score)
					}
				}
			}
			for i, v := range total {
				if v > 1e-6 && !seen[i] {
					t.Fatalf("%s left out; the oracle gives it %v", tools[i].Name, v)
				}
			}
			k := rapid.IntRange(0, len(tools)+2).Draw(t, "k")
			if few := ix.Search(q, k); !slices.EqualFunc(few, hits[:min(k, len(hits))], sameHit) {
				t.Fatalf("the best %d are %v; of all, %v come first", k, few, hits)
			}
		}
	})
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-5*(1+math.Abs(a)+math.Abs(b)) }

func sameHit(a, b Hit) bool {
	return a.Tool == b.Tool && a.Score == b.Score && a.Lexical == b.Lexical && a.Named == b.Named
}

// The order of a catalog changes no score and no place.
func TestOrderOfCatalogDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		q := queryGen(tools).Draw(t, "query")
		type line struct {
			name    string
			score   float64
			lexical float64
		}
		run := func(tools []Tool) (out []line) {
			ix, err := NewIndex(tools, Config{})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range ix.Search(q, len(tools)) {
				out = append(out, line{tools[h.Tool].Name, h.Score, h.Lexical})
			}
			return out
		}
		first := run(tools)
		mixed := slices.Clone(tools)
		rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if second := run(mixed); !slices.Equal(first, second) {
			t.Fatalf("%v; in another order %v", first, second)
		}
	})
}

func TestReasonsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		ix, err := NewIndex(tools, Config{})
		if err != nil {
			t.Fatal(err)
		}
		q := queryGen(tools).Draw(t, "query")
		q.Explain = true
		for _, h := range ix.Search(q, len(tools)) {
			sum := 0.0
			for _, r := range h.Why {
				sum += r.Score
			}
			if !near(sum, h.Score) {
				t.Fatalf("%s: reasons %v add up to %v; the score is %v", tools[h.Tool].Name, h.Why, sum, h.Score)
			}
		}
	})
}

func TestNewIndexErrors(t *testing.T) {
	var dup *DuplicateError
	if _, err := NewIndex([]Tool{{Name: "a"}, {Name: "b"}, {Name: "a"}}, Config{}); !errors.As(err, &dup) || dup.Name != "a" {
		t.Errorf("two tools a: %v", err)
	}
	var bad *SchemaError
	if _, err := NewIndex([]Tool{{Name: "a", Schema: json.RawMessage(`{"type":`)}}, Config{}); !errors.As(err, &bad) || bad.Tool != "a" {
		t.Errorf("broken schema: %v", err)
	}
	if _, err := NewIndex([]Tool{{Description: "x"}}, Config{}); err == nil {
		t.Error("a tool without a name is indexed")
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.K1 = 0 }, func(c *Config) { c.B = 1.1 }, func(c *Config) { c.Name = math.NaN() },
		func(c *Config) { c.Server = -1 }, func(c *Config) { c.TermMost = 0 }, func(c *Config) { c.QueryBytes = 1 },
	} {
		c := Default()
		change(&c)
		if _, err := NewIndex(nil, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	ix, err := NewIndex(nil, Config{})
	if err != nil || len(ix.Search(Text("x"), 3)) != 0 {
		t.Errorf("an empty catalog: %v", err)
	}
}

func TestConcurrentSearch(t *testing.T) {
	var tools []Tool
	for i := range 200 {
		tools = append(tools, Tool{Name: fmt.Sprintf("srv%d__tool_%d", i%7, i), Description: testWords[i%len(testWords)] + " " + testWords[(i*7)%len(testWords)]})
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var queries []Query
	var want [][]Hit
	for i, w := range testWords {
		q := Query{Parts: []Part{{w + " " + testWords[len(testWords)-1-i], 1}}, Called: []string{tools[i].Name}}
		queries = append(queries, q)
		want = append(want, ix.Search(q, 10))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range 200 {
				i := (n*13 + g) % len(queries)
				if got := ix.Search(queries[i], 10); !slices.EqualFunc(got, want[i], sameHit) {
					t.Errorf("query %d: %v; alone %v", i, got, want[i])
					return
				}
			}
		}()
	}
	wg.Wait()
}

func TestMentions(t *testing.T) {
	names := []string{"get_user", "get_user_profile", "get-user", "search", "book", "sendMail", "fs__read_file", "ftp__read_file", "fs__list", "ns.tool", "ns.tool.sub", "GET_USER", "s3"}
	var tools []Tool
	for _, n := range names {
		tools = append(tools, Tool{Name: n})
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ text, want string }{
		{"call get_user now", "get_user"},
		{"call get_user_profile(id=1)", "get_user_profile"},
		{"xget_user get_user2 get_user-x _get_user", ""},
		{"get_user.", "get_user"},
		{"get_user, get_user_profile and get-user!", "get_user get_user_profile get-user"},
		{"Get_User", "GET_USER get_user"}, // no exact spelling: all of any case, by name
		{"use GET_USER", "GET_USER"},
		{"SENDMAIL please", "sendMail"},
		{"search for a book", ""},
		{"use the tool search", "search"},
		{"the `book` thing", "book"},
		{`"search" and 'book'`, "search book"},
		{"search(q)", "search"},
		{"the Search function", "search"},
		{"research tool", ""},
		{"read_file", "fs__read_file ftp__read_file"},
		{"fs__read_file", "fs__read_file"},
		{"list", ""},
		{"ns.tool.sub", "ns.tool.sub"},
		{"ns.tool.other", "ns.tool"},
		{"other.ns.tool", "ns.tool"},
		{"put it on s3", "s3"},
		{"请调用get_user查询", "get_user"},
		{strings.Repeat("a/", 5000) + "get_user", ""},
		{strings.Repeat("x", 10000), ""},
	} {
		var got []string
		for _, tool := range ix.mentioned(nil, x.text) {
			got = append(got, names[tool])
		}
		if s := strings.Join(got, " "); s != x.want {
			t.Errorf("%.60q mentions %q; want %q", x.text, s, x.want)
		}
	}
	hits := ix.Search(Query{Parts: []Part{{"search search search book get-user", 1}}, Named: []string{"ns.tool", "none", "ns.tool"}}, 3)
	if len(hits) != 3 || !hits[0].Named || names[hits[0].Tool] != "ns.tool" || names[hits[1].Tool] != "get-user" || hits[2].Named {
		t.Errorf("named first, then mentioned, then ranked: %+v", hits)
	}
}

// Whatever else stands in a query, a name that looks like an identifier puts
// its tool before all that is not named.
func TestMentionAlwaysFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		ix, err := NewIndex(tools, Config{})
		if err != nil {
			t.Fatal(err)
		}
		q := queryGen(tools).Draw(t, "query")
		want := rapid.IntRange(0, len(tools)-1).Draw(t, "tool")
		q.Parts = append(q.Parts, Part{textGen(5).Draw(t, "before") + " " + tools[want].Name + ", " + textGen(5).Draw(t, "after"), 0.1})
		at := -1
		named := 0
		for i, h := range ix.Search(q, len(tools)) {
			if h.Tool == want {
				at = i
			}
			if h.Named {
				named++
			}
		}
		if at < 0 || at >= named {
			t.Fatalf("%s at place %d; %d tools are named", tools[want].Name, at, named)
		}
	})
}

func TestSegment(t *testing.T) {
	ix, err := NewIndex([]Tool{{Name: "a__weather"}, {Name: "b__mail"}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	user := func(s string) Message { return Message{Role: "user", Text: s} }
	say := func(s string) Message { return Message{Role: "assistant", Text: s} }
	call := func(n ...string) Message { return Message{Role: "assistant", Calls: n} }
	result := Message{Role: "tool", Text: "result"}
	for _, x := range []struct {
		name   string
		msgs   []Message
		parts  string
		called string
	}{
		{"nothing", nil, "", ""},
		{"system alone", []Message{{Role: "system", Text: "x"}}, "", ""},
		{"one", []Message{{Role: "system", Text: "x"}, user("q")}, "q*1", ""},
		{"talk", []Message{user("a"), say("b"), user("c")}, "c*1 b*1 a*1", ""},
		{"after a call", []Message{user("a"), call("a__weather"), result, say("b"), user("c")}, "c*1 b*1 a*0.5", "a__weather"},
		{"within a turn", []Message{user("a"), call("a__weather"), result, say("so far")}, "so far*1 a*1", "a__weather"},
		{"calls", []Message{user("a"), call("b__mail", "a__weather"), result, call("b__mail"), user("c")}, "c*1 a*0.5", "a__weather b__mail"},
	} {
		q := ix.Segment(x.msgs)
		var parts []string
		for _, p := range q.Parts {
			parts = append(parts, fmt.Sprintf("%s*%v", p.Text, p.Weight))
		}
		if got := strings.Join(parts, " "); got != x.parts {
			t.Errorf("%s: parts %q; want %q", x.name, got, x.parts)
		}
		if got := strings.Join(q.Called, " "); got != x.called {
			t.Errorf("%s: called %q; want %q", x.name, got, x.called)
		}
	}
}

func TestMentionsAreBounded(t *testing.T) {
	var tools []Tool
	var text strings.Builder
	for i := range 500 {
		tools = append(tools, Tool{Name: fmt.Sprintf("srv%d__do_it", i)}, Tool{Name: fmt.Sprintf("tool_%d", i)})
		fmt.Fprintf(&text, "tool_%d ", i)
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{text.String(), "do_it"} {
		named := 0
		for _, h := range ix.Search(Text(q), len(tools)) {
			if h.Named {
				named++
			}
		}
		if named != maxNamed {
			t.Errorf("%.20q… names %d tools; at most %d count", q, named, maxNamed)
		}
	}
}

func TestLongQueryIsBounded(t *testing.T) {
	ix, err := NewIndex([]Tool{{Name: "head"}, {Name: "tail"}, {Name: "middle"}, {Name: "second"}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.Repeat("é ", 1<<20)
	var got []string
	for _, h := range ix.Search(Query{Parts: []Part{{"head " + fill + "middle " + fill + " tail", 1}, {"second", 1}}}, 4) {
		got = append(got, ix.Tool(h.Tool).Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"head", "tail"}) {
		t.Errorf("of 4 MB, %v are found", got)
	}
}

func TestSearchAllocatesNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector makes sync.Pool forget")
	}
	var tools []Tool
	for i := range 500 {
		tools = append(tools, Tool{Name: fmt.Sprintf("srv__%s_%d", testWords[i%len(testWords)], i), Description: testWords[(i*3)%len(testWords)]})
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Parts: []Part{{"list the open invoices of srv__order_1 and refund them", 1}}, Called: []string{tools[3].Name}}
	dst := make([]Hit, 0, 16)
	n := testing.AllocsPerRun(200, func() { dst = ix.AppendSearch(dst[:0], q, 8) })
	if n >= 1 {
		t.Errorf("%v allocations a query", n)
	}
}

func TestRankIsByName(t *testing.T) {
	tools := []Tool{{Name: "c", Description: "equal"}, {Name: "a", Description: "equal"}, {Name: "b", Description: "equal"}}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	hits := ix.Search(Text("equal"), 3)
	if !slices.IsSortedFunc(hits, func(a, b Hit) int { return cmp.Compare(tools[a.Tool].Name, tools[b.Tool].Name) }) || len(hits) != 3 {
		t.Errorf("equal scores: %+v", hits)
	}
}
