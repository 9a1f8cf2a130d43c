package retrieval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Tool is one entry of a catalog.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the parameters; empty means none
	Raw         json.RawMessage // canonical bytes of the OpenAI tool object: what is shown and counted
	Server      string          // where it comes from; empty means the name up to "__", if there is one
	Tags        []string        // searched like the description
}

// Config holds the weights of the ranking. The zero value means [Default].
type Config struct {
	Name        float64 // weight of a word in the tool's name
	Description float64 // weight in sentences of its own and in tags
	Repeated    float64 // weight in sentences that RepeatedIn tools or more share
	Parameters  float64 // weight in names, descriptions and enum values of parameters
	RepeatedIn  int     // tools; 0 means that no sentence counts as repeated

	K1 float64 // how soon further occurrences of a word stop counting, > 0
	B  float64 // how much long texts are held back, 0 to 1

	Damp   float64 // a query's best word score counts as best ÷ (best + Damp), so that a weak match is no certainty; see smallDamp
	Cover  float64 // added to a tool all of whose name the query spells; falls with the square of the share spelled
	Dense  float64 // weight of the cosine between query and tool; 0 means words alone, as does Space
	Near   float64 // cosine from which on a tool is found that shares no word with the query
	Space  *Space  // where texts get their vectors; nil means words alone
	Clause float64 // added to the tool that fits one clause of the last message best by its words
	Gist   float64 // weight of the cosine with the nearest clause

	Server   float64 // added to tools of the server last called; halves for each server before it; 0 means none
	Style    float64 // the same for a tool of no server, to tools of none whose names are written alike; 0 means none
	Called   float64 // taken from tools called before, which are on view anyway; 0 means none
	Chain    float64 // added to a tool whose name the parameters of the best tool of its server speak of; 0 means none
	Apart    float64 // taken from a tool found by the same words as a better one, where a message has three clauses or more
	TermMost int     // occurrences of a word in one part that count; at least 1

	SegmentMass float64 // summed idf below which [Index.Segment] adds older messages; 0 means none
	QueryBytes  int     // of a query's parts together; of what is longer, head and tail are read; at least 64
}

// smallDamp bounds Config.Damp to so many times the inverse document frequency of
// a word in one tool. In a catalog of a few dozen tools no word is rare,
// and 32 would leave nothing of the scores.
const smallDamp = 7

// Default returns the weights that one choice for all the shared evaluation sets
// came out with. They were set by hand, one after another, none by training. It
// has no Space.
func Default() Config {
	return Config{
		Name: 2, Description: 1, Repeated: 0.2, Parameters: 0.5, RepeatedIn: 3,
		K1: 1.2, B: 0.75,
		Damp: 32, Cover: 0.1, Dense: 1, Near: 0.15, Clause: 0.15, Gist: 0.4,
		Server: 0.6, Style: 0.3, Called: 0.4, Chain: 0.2, Apart: 0.2, TermMost: 3,
		SegmentMass: 25, QueryBytes: 64 << 10,
	}
}

func (c *Config) check() error {
	for _, v := range [...]struct {
		name    string
		v       float64
		atLeast float64
		atMost  float64
	}{
		{"Name", c.Name, 0, 1000}, {"Description", c.Description, 0, 1000},
		{"Repeated", c.Repeated, 0, 1000}, {"Parameters", c.Parameters, 0, 1000},
		{"RepeatedIn", float64(c.RepeatedIn), 0, math.MaxInt32},
		{"K1", c.K1, 1e-6, 1000}, {"B", c.B, 0, 1},
		{"Damp", c.Damp, 0, 1e6}, {"Cover", c.Cover, 0, 1000}, {"Dense", c.Dense, 0, 1000}, {"Near", c.Near, 0, 1},
		{"Clause", c.Clause, 0, 1000}, {"Gist", c.Gist, 0, 1000},
		{"Server", c.Server, 0, 1000}, {"Style", c.Style, 0, 1000}, {"Called", c.Called, 0, 1000},
		{"Chain", c.Chain, 0, 1000}, {"Apart", c.Apart, 0, 1000},
		{"TermMost", float64(c.TermMost), 1, math.MaxInt32},
		{"SegmentMass", c.SegmentMass, 0, math.MaxFloat64},
		{"QueryBytes", float64(c.QueryBytes), 64, math.MaxInt32},
	} {
		if !(v.v >= v.atLeast && v.v <= v.atMost) {
			return fmt.Errorf("retrieval: Config.%s = %v; must be from %v to %v", v.name, v.v, v.atLeast, v.atMost)
		}
	}
	if s := c.Space; s != nil && (s.Dim < 1 || s.Dim > maxDim || s.Embed == nil) {
		return fmt.Errorf("retrieval: Config.Space of %d dimensions; from 1 to %d are possible, and Embed must be set", s.Dim, maxDim)
	}
	return nil
}

// Field is one of the texts of a tool.
type Field uint8

const (
	FieldName        Field = iota
	FieldDescription       // sentences of its own
	FieldRepeated          // sentences shared with other tools
	FieldParameters
	fields = 4
)

func (f Field) String() string {
	return [...]string{"name", "description", "repeated sentence", "parameters"}[f]
}

// Index is a searchable catalog. It is immutable and safe for concurrent use.
type Index struct {
	cfg   Config
	tools []Tool
	rank  []int32 // tool -> its place in the order of names

	terms map[string]int32
	term  []string  // term -> its spelling
	idf   []float64 // term -> inverse document frequency

	// Postings of term t are post[start[t]:start[t+1]], by ascending tool;
	// freq holds for each posting how often the term occurs in each field.
	start []uint32
	post  []posting
	freq  [][fields]uint8

	server  []int32 // tool -> server, -1 for none
	servers map[string]int32
	members [][]int32   // server -> its tools in the order of their names
	style   []nameStyle // tool -> how its name is written

	damp     float32 // Config.Damp in units of scores
	names    nameCover
	dense    *dense          // nil without a space
	repeated map[string]bool // sentences that several tools share

	byName   map[string]int32   // exact name -> tool
	mentions map[string][]int32 // folded name or name within a server -> tools, see mention.go

	scratch sync.Pool // of *scratch
}

// posting is one tool in a term's list; impact is what one occurrence of the
// term in the query adds to the tool's score.
type posting struct {
	tool   int32
	impact float32
}

// DuplicateError is a name that two tools of a catalog share.
type DuplicateError struct{ Name string }

func (e *DuplicateError) Error() string { return fmt.Sprintf("tool %q: listed twice", e.Name) }

// NewIndex compiles a catalog. It keeps the tools, which must not be changed
// afterwards. Errors: a weight out of range, a tool without a name,
// [*DuplicateError], [*SchemaError].
func NewIndex(tools []Tool, cfg Config) (*Index, error) {
	if cfg == (Config{}) {
		cfg = Default()
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if len(tools) > math.MaxInt32/2 {
		return nil, fmt.Errorf("retrieval: %d tools; at most %d", len(tools), math.MaxInt32/2)
	}
	ix := &Index{cfg: cfg, tools: tools}
	if err := ix.name(); err != nil {
		return nil, err
	}
	b := builder{ix: ix, terms: make(map[string]int32)}
	ix.repeated = repeatedSentences(tools, cfg.RepeatedIn)
	b.repeated = ix.repeated
	for i := range tools {
		b.add(int32(i), &tools[i])
	}
	b.finish()
	ix.coverNames()
	ix.damp = float32(min(cfg.Damp, smallDamp*idf(max(len(tools), 1), 1)))
	ix.setDense()
	return ix, nil
}

// Len returns the number of tools.
func (ix *Index) Len() int { return len(ix.tools) }

// Bytes estimates the memory of the index in bytes, tools not counted.
func (ix *Index) Bytes() int {
	const mapEntry = 48 // key, value and share of the table
	return len(ix.post)*8 + len(ix.freq)*fields + len(ix.start)*4 + len(ix.term)*(8+16+8+mapEntry) +
		len(ix.tools)*(4+4+4+1+mapEntry+mapEntry+24) + len(ix.servers)*mapEntry + len(ix.names.post)*12 + len(ix.names.start)*4 + ix.dense.bytes()
}

// Tool returns the i-th tool, in the order given to [NewIndex].
func (ix *Index) Tool(i int) *Tool { return &ix.tools[i] }

// Lookup finds a tool by its exact name.
func (ix *Index) Lookup(name string) (tool int, ok bool) {
	i, ok := ix.byName[name]
	return int(i), ok
}

// name fills what depends on names alone.
func (ix *Index) name() error {
	n := len(ix.tools)
	ix.byName = make(map[string]int32, n)
	ix.mentions = make(map[string][]int32, n)
	ix.servers = make(map[string]int32)
	ix.server = make([]int32, n)
	order := make([]int32, n)
	for i := range ix.tools {
		t := &ix.tools[i]
		if t.Name == "" {
			return fmt.Errorf("tool %d: no name", i)
		}
		if _, dup := ix.byName[t.Name]; dup {
			return &DuplicateError{t.Name}
		}
		if err := checkSchema(t); err != nil {
			return err
		}
		ix.byName[t.Name] = int32(i)
		order[i] = int32(i)
		ix.server[i] = -1
		if s := t.Origin(); s != "" {
			id, ok := ix.servers[s]
			if !ok {
				id = int32(len(ix.servers))
				ix.servers[s] = id
			}
			ix.server[i] = id
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(ix.tools[a].Name, ix.tools[b].Name) })
	ix.rank = make([]int32, n)
	ix.members = make([][]int32, len(ix.servers))
	ix.style = make([]nameStyle, n)
	for place, tool := range order {
		ix.rank[tool] = int32(place)
		ix.addMention(tool)
		if s := ix.server[tool]; s >= 0 {
			ix.members[s] = append(ix.members[s], tool)
		} else {
			ix.style[tool] = styleOf(ix.tools[tool].Name)
		}
	}
	return nil
}

// Origin is the server that a tool comes from: Server, else its name up to "__",
// else "".
func (t *Tool) Origin() string {
	if t.Server != "" {
		return t.Server
	}
	if server, _, ok := strings.Cut(t.Name, "__"); ok {
		return server
	}
	return ""
}

// Short is a tool's name within its server: what follows the last "__".
func (t *Tool) Short() string {
	if at := strings.LastIndex(t.Name, "__"); at >= 0 && at+len("__") < len(t.Name) {
		return t.Name[at+len("__"):]
	}
	return t.Name
}

// minRepeated is the length in characters a sentence must exceed to count as
// repeated text: "Returns a list." says something even in many tools.
const minRepeated = 20

// repeatedSentences returns the sentences that stand in the descriptions of at
// least `in` tools.
func repeatedSentences(tools []Tool, in int) map[string]bool {
	if in == 0 || len(tools) < in {
		return nil
	}
	type seen struct{ tools, last int }
	count := make(map[string]seen)
	for i := range tools {
		for rest := tools[i].Description; rest != ""; {
			var s string
			s, rest = sentence(rest)
			if len(s) <= minRepeated {
				continue
			}
			c := count[s]
			if c.tools == 0 || c.last != i {
				count[s] = seen{c.tools + 1, i}
			}
		}
	}
	repeated := make(map[string]bool)
	for s, c := range count {
		if c.tools >= in && utf8.RuneCountInString(s) > minRepeated {
			repeated[s] = true
		}
	}
	return repeated
}

// builder collects the words of all tools in tool order; finish turns them
// into postings in term order.
type builder struct {
	ix       *Index
	repeated map[string]bool
	terms    map[string]int32

	entries []entry   // of all tools, one after another
	first   []int     // tool -> its first entry
	last    []int32   // term -> 1 + index in entries of its latest entry
	df      []uint32  // term -> tools
	length  []lengths // tool -> words by field
	total   lengths
	text    []byte
}

type entry struct {
	term int32
	freq [fields]uint16 // saturating
}

type lengths [fields]uint64

func (b *builder) add(tool int32, t *Tool) {
	b.first = append(b.first, len(b.entries))
	b.length = append(b.length, lengths{})
	b.words(tool, FieldName, t.Name)
	own := false
	for rest := t.Description; rest != ""; {
		var s string
		s, rest = sentence(rest)
		if s != "" && !b.repeated[s] {
			own = true
			b.words(tool, FieldDescription, s)
		}
	}
	if !own { // a description of shared sentences only is all that there is to say
		b.words(tool, FieldDescription, t.Description)
	} else if len(b.repeated) > 0 {
		for rest := t.Description; rest != ""; {
			var s string
			s, rest = sentence(rest)
			if b.repeated[s] {
				b.words(tool, FieldRepeated, s)
			}
		}
	}
	for _, tag := range t.Tags {
		b.words(tool, FieldDescription, tag)
	}
	if len(t.Schema) > 0 {
		b.text = parameterText(b.text[:0], t.Schema)
		b.words(tool, FieldParameters, string(b.text))
	}
}

// words adds the words of a text and, for each, its stem: a query finds exact
// words twice, other forms of them once.
func (b *builder) words(tool int32, f Field, text string) {
	w := words{text: text}
	for word := w.next(); word != nil; word = w.next() {
		b.term(tool, f, word)
		b.term(tool, f, w.stem(word))
	}
}

func (b *builder) term(tool int32, f Field, word []byte) {
	id, ok := b.terms[string(word)]
	if !ok {
		id = int32(len(b.last))
		spelling := string(word)
		b.terms[spelling] = id
		b.ix.term = append(b.ix.term, spelling)
		b.last = append(b.last, 0)
		b.df = append(b.df, 0)
	}
	at := int(b.last[id]) - 1
	if at < b.first[tool] {
		at = len(b.entries)
		b.entries = append(b.entries, entry{term: id})
		b.last[id] = int32(at + 1)
		b.df[id]++
	}
	if n := &b.entries[at].freq[f]; *n < math.MaxUint16 {
		*n++
	}
	b.length[tool][f]++
	b.total[f]++
}

// weigh returns the weighted sum of counts by field. Counts are whole numbers
// up to here, so that the order of a catalog cannot change a rounding.
func (c *Config) weigh(n lengths) float64 {
	sum := float64(c.Name * float64(n[FieldName]))
	sum += float64(c.Description * float64(n[FieldDescription]))
	sum += float64(c.Repeated * float64(n[FieldRepeated]))
	sum += float64(c.Parameters * float64(n[FieldParameters]))
	return sum
}

// idf is the inverse document frequency of a word that df of n tools have.
func idf(n, df int) float64 {
	return math.Log(1 + (float64(n)-float64(df)+0.5)/(float64(df)+0.5))
}

func (b *builder) finish() {
	ix := b.ix
	n := len(ix.tools)
	ix.terms = b.terms
	ix.start = make([]uint32, len(b.df)+1)
	ix.idf = make([]float64, len(b.df))
	for t, df := range b.df {
		ix.start[t+1] = ix.start[t] + df
		ix.idf[t] = idf(n, int(df))
	}
	ix.post = make([]posting, len(b.entries))
	ix.freq = make([][fields]uint8, len(b.entries))
	next := slices.Clone(ix.start[:len(b.df)])
	mean := ix.cfg.weigh(b.total) / float64(max(n, 1))
	if mean == 0 {
		mean = 1
	}
	for tool := range n {
		end := len(b.entries)
		if tool+1 < n {
			end = b.first[tool+1]
		}
		long := 1 - ix.cfg.B + float64(ix.cfg.B*ix.cfg.weigh(b.length[tool])/mean)
		for _, e := range b.entries[b.first[tool]:end] {
			var count lengths
			var small [fields]uint8
			for f, k := range e.freq {
				count[f] = uint64(k)
				small[f] = uint8(min(k, math.MaxUint8))
			}
			tf := ix.cfg.weigh(count)
			impact := 0.0
			if tf > 0 {
				impact = ix.idf[e.term] * tf * (ix.cfg.K1 + 1) / (tf + float64(ix.cfg.K1*long))
			}
			at := next[e.term]
			next[e.term]++
			ix.post[at] = posting{int32(tool), float32(impact)}
			ix.freq[at] = small
		}
	}
}
