package retrieval

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
	Risk        uint8           // class of what a call can do, as the catalog numbers them; no part of the ranking
	Given       string          // the name that its source gives it, where it had to get another; no part of the ranking
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

	// Postings of term t are post[start[t]:start[t+1]], by ascending tool.
	start []uint32
	post  []posting
	peak  []float32 // term -> its greatest impact
	bags  []bag     // tool -> its words; what postings are made of
	mean  float64   // weighted words of a tool

	sentences map[string]int32 // long sentence -> tools whose descriptions have it

	server  []int32 // tool -> server, -1 for none
	servers map[string]int32
	members [][]int32       // server -> its tools in the order of their names
	style   []nameStyle     // tool -> how its name is written
	alike   [styles][]int32 // the tools of no server by style, in the order of their names

	damp     float32 // Config.Damp in units of scores
	names    nameCover
	dense    *dense          // nil without a space
	graph    *graphView      // nil: all vectors are compared
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
	return newIndex(tools, cfg, nil)
}

// Update returns the index of another list of tools. It is the same as that of
// [NewIndex] and takes less time: what is known of tools that ix has too is taken
// over, and only the texts of others are read and turned into vectors. Errors are
// those of NewIndex. A graph is not taken over; see [Index.WithGraph].
func (ix *Index) Update(tools []Tool) (*Index, error) { return newIndex(tools, ix.cfg, ix) }

// Check returns the error of NewIndex for these tools, if they have one.
func Check(tools []Tool) error {
	seen := make(map[string]bool, len(tools))
	for i := range tools {
		t := &tools[i]
		if t.Name == "" {
			return fmt.Errorf("tool %d: no name", i)
		}
		if seen[t.Name] {
			return &DuplicateError{t.Name}
		}
		seen[t.Name] = true
		if err := checkSchema(t); err != nil {
			return err
		}
	}
	return nil
}

func newIndex(tools []Tool, cfg Config, old *Index) (*Index, error) {
	if len(tools) > math.MaxInt32/2 {
		return nil, fmt.Errorf("retrieval: %d tools; at most %d", len(tools), math.MaxInt32/2)
	}
	ix := &Index{cfg: cfg, tools: tools}
	from := ix.from(old)
	if err := ix.name(old, from); err != nil {
		return nil, err
	}
	ix.countSentences(old, from)
	ix.stale(old, from)
	ix.readWords(old, from)
	ix.layOut()
	ix.coverNames(old, from)
	ix.damp = float32(min(cfg.Damp, smallDamp*idf(max(len(tools), 1), 1)))
	ix.setDense(old, from)
	return ix, nil
}

// from returns for each tool its number in an older index that has the very
// same, or -1.
func (ix *Index) from(old *Index) []int32 {
	from := make([]int32, len(ix.tools))
	for i := range ix.tools {
		from[i] = -1
		if old == nil {
			continue
		}
		if at, ok := old.byName[ix.tools[i].Name]; ok && sameTool(&ix.tools[i], &old.tools[at]) {
			from[i] = at
		}
	}
	return from
}

func sameTool(a, b *Tool) bool {
	return a.Name == b.Name && a.Description == b.Description && a.Server == b.Server && bytes.Equal(a.Schema, b.Schema) && slices.Equal(a.Tags, b.Tags)
}

// Len returns the number of tools.
func (ix *Index) Len() int { return len(ix.tools) }

// Bytes estimates the memory of the index in bytes, tools not counted.
func (ix *Index) Bytes() int {
	const mapEntry = 48 // key, value and share of the table
	return len(ix.post)*(8+8) + len(ix.start)*4 + len(ix.term)*(8+16+8+4+mapEntry) + len(ix.sentences)*mapEntry +
		len(ix.tools)*(4+4+4+1+mapEntry+mapEntry+24+56) + len(ix.servers)*mapEntry + len(ix.names.post)*12 + len(ix.names.start)*4 +
		ix.dense.bytes() + ix.graph.bytes()
}

// Tool returns the i-th tool, in the order given to [NewIndex].
func (ix *Index) Tool(i int) *Tool { return &ix.tools[i] }

// Lookup finds a tool by its exact name.
func (ix *Index) Lookup(name string) (tool int, ok bool) {
	i, ok := ix.byName[name]
	return int(i), ok
}

// name fills what depends on names alone.
func (ix *Index) name(old *Index, from []int32) error {
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
		if from[i] < 0 {
			if err := checkSchema(t); err != nil {
				return err
			}
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
	slices.SortFunc(order, func(a, b int32) int {
		if from[a] >= 0 && from[b] >= 0 {
			return cmp.Compare(old.rank[from[a]], old.rank[from[b]])
		}
		return cmp.Compare(ix.tools[a].Name, ix.tools[b].Name)
	})
	ix.rank = make([]int32, n)
	ix.members = make([][]int32, len(ix.servers))
	ix.style = make([]nameStyle, n)
	for place, tool := range order {
		ix.rank[tool] = int32(place)
		ix.addMention(tool)
		if s := ix.server[tool]; s >= 0 {
			ix.members[s] = append(ix.members[s], tool)
		} else {
			style := styleOf(ix.tools[tool].Name)
			ix.style[tool] = style
			ix.alike[style] = append(ix.alike[style], tool)
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

// maxSeen is how many sentences of one tool are remembered as counted.
const maxSeen = 64

// countSentences fills ix.sentences and ix.repeated: the sentences that stand in
// the descriptions of at least RepeatedIn tools.
func (ix *Index) countSentences(old *Index, from []int32) {
	if ix.cfg.RepeatedIn == 0 {
		return
	}
	if old == nil {
		ix.sentences = make(map[string]int32)
	} else {
		ix.sentences = maps.Clone(old.sentences)
		left := make([]bool, len(old.tools))
		for _, at := range from {
			if at >= 0 {
				left[at] = true
			}
		}
		for i := range old.tools {
			if !left[i] {
				ix.count(&old.tools[i], -1)
			}
		}
	}
	for i := range ix.tools {
		if from[i] < 0 {
			ix.count(&ix.tools[i], 1)
		}
	}
	ix.repeated = make(map[string]bool)
	for s, n := range ix.sentences {
		if int(n) >= ix.cfg.RepeatedIn {
			ix.repeated[s] = true
		}
	}
}

// count adds n to the count of each long sentence of a tool.
func (ix *Index) count(t *Tool, n int32) {
	var seen []string // a tool counts once
	for s := range sentences(t.Description) {
		if len(s) <= minRepeated || utf8.RuneCountInString(s) <= minRepeated || slices.Contains(seen, s) {
			continue
		}
		if len(seen) < maxSeen {
			seen = append(seen, s)
		}
		if ix.sentences[s] += n; ix.sentences[s] == 0 {
			delete(ix.sentences, s)
		}
	}
}

// stale strikes from the tools taken over those with a sentence that is repeated
// now and was not before, or the other way round.
func (ix *Index) stale(old *Index, from []int32) {
	if old == nil {
		return
	}
	changed := make(map[string]bool)
	for s := range ix.repeated {
		if !old.repeated[s] {
			changed[s] = true
		}
	}
	for s := range old.repeated {
		if !ix.repeated[s] {
			changed[s] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for i := range from {
		if from[i] < 0 {
			continue
		}
		for s := range sentences(ix.tools[i].Description) {
			if changed[s] {
				from[i] = -1
				break
			}
		}
	}
}

// bag holds the words of one tool. It never changes, and versions of a catalog
// share it.
type bag struct {
	words  []wordCount // by ascending term
	length lengths     // words by field
}

// wordCount is how often a term occurs in each field of a tool, at most 255.
type wordCount struct {
	term int32
	freq [fields]uint8
}

type lengths [fields]uint64

// readWords fills the bags and the vocabulary, to which it adds: the number of a
// term is the same in the next version.
func (ix *Index) readWords(old *Index, from []int32) {
	ix.terms = make(map[string]int32)
	if old != nil {
		live := 0
		for t := range old.term {
			if old.start[t+1] > old.start[t] {
				live++
			}
		}
		if len(old.term) > 2*live+1024 { // mostly words of tools that are gone
			for i := range from {
				from[i] = -1
			}
		} else {
			ix.terms, ix.term = maps.Clone(old.terms), slices.Clip(old.term)
		}
	}
	r := wordReader{ix: ix, at: make([]int32, len(ix.term))}
	ix.bags = make([]bag, len(ix.tools))
	for i := range ix.tools {
		if from[i] >= 0 {
			ix.bags[i] = old.bags[from[i]]
		} else {
			ix.bags[i] = r.bag(&ix.tools[i])
		}
	}
}

// wordReader turns tools into bags.
type wordReader struct {
	ix    *Index
	at    []int32 // term -> 1 + its place in words; zeros between tools
	words []wordCount
	sum   lengths
	text  []byte
	block []wordCount // room for bags
}

func (r *wordReader) bag(t *Tool) bag {
	r.words, r.sum = r.words[:0], lengths{}
	r.read(FieldName, t.Name)
	repeated := r.ix.repeated
	own := false
	for s := range sentences(t.Description) {
		if !repeated[s] {
			own = true
			r.read(FieldDescription, s)
		}
	}
	if !own { // a description of shared sentences only is all that there is to say
		r.read(FieldDescription, t.Description)
	} else if len(repeated) > 0 {
		for s := range sentences(t.Description) {
			if repeated[s] {
				r.read(FieldRepeated, s)
			}
		}
	}
	for _, tag := range t.Tags {
		r.read(FieldDescription, tag)
	}
	if len(t.Schema) > 0 {
		r.text = parameterText(r.text[:0], t.Schema)
		r.read(FieldParameters, string(r.text))
	}
	for _, w := range r.words {
		r.at[w.term] = 0
	}
	slices.SortFunc(r.words, func(a, b wordCount) int { return cmp.Compare(a.term, b.term) })
	if len(r.block) < len(r.words) {
		r.block = make([]wordCount, max(len(r.words), min(1<<12, 64*len(r.ix.tools))))
	}
	n := copy(r.block, r.words)
	b := bag{words: r.block[:n:n], length: r.sum}
	r.block = r.block[n:]
	return b
}

// read adds the words of a text and, for each, its stem: a query finds exact
// words twice, other forms of them once.
func (r *wordReader) read(f Field, text string) {
	w := words{text: text}
	for word := w.next(); word != nil; word = w.next() {
		r.add(f, word)
		r.add(f, w.stem(word))
	}
}

func (r *wordReader) add(f Field, word []byte) {
	ix := r.ix
	id, ok := ix.terms[string(word)]
	if !ok {
		id = int32(len(ix.term))
		spelling := string(word)
		ix.terms[spelling] = id
		ix.term = append(ix.term, spelling)
		r.at = append(r.at, 0)
	}
	at := r.at[id] - 1
	if at < 0 {
		at = int32(len(r.words))
		r.words = append(r.words, wordCount{term: id})
		r.at[id] = at + 1
	}
	if n := &r.words[at].freq[f]; *n < math.MaxUint8 {
		*n++
	}
	r.sum[f]++
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

// layOut turns bags into postings.
func (ix *Index) layOut() {
	n := len(ix.tools)
	var total lengths
	df := make([]uint32, len(ix.term))
	for i := range ix.bags {
		for _, w := range ix.bags[i].words {
			df[w.term]++
		}
		for f, k := range ix.bags[i].length {
			total[f] += k
		}
	}
	ix.mean = ix.cfg.weigh(total) / float64(max(n, 1))
	if ix.mean == 0 {
		ix.mean = 1
	}
	ix.start = make([]uint32, len(df)+1)
	ix.idf = make([]float64, len(df))
	ix.peak = make([]float32, len(df))
	for t, k := range df {
		ix.start[t+1] = ix.start[t] + k
		if k > 0 {
			ix.idf[t] = idf(n, int(k))
		}
	}
	ix.post = make([]posting, ix.start[len(df)])
	next := df
	copy(next, ix.start)
	for tool := range n {
		long := ix.long(int32(tool))
		for _, w := range ix.bags[tool].words {
			gain := ix.gain(w, long)
			ix.post[next[w.term]] = posting{int32(tool), gain}
			ix.peak[w.term] = max(ix.peak[w.term], gain)
			next[w.term]++
		}
	}
}

// long is how a tool's length counts against it: 1 for the mean.
func (ix *Index) long(tool int32) float64 {
	return 1 - ix.cfg.B + float64(ix.cfg.B*ix.cfg.weigh(ix.bags[tool].length)/ix.mean)
}

// gain is what one occurrence of a term in the query adds to the score of a tool
// that has it so often.
func (ix *Index) gain(w wordCount, long float64) float32 {
	tf := ix.cfg.weigh(w.counts())
	if !(tf > 0) {
		return 0
	}
	return float32(ix.idf[w.term] * tf * (ix.cfg.K1 + 1) / (tf + float64(ix.cfg.K1*long)))
}

func (w *wordCount) counts() (n lengths) {
	for f, k := range w.freq {
		n[f] = uint64(k)
	}
	return n
}

// find returns how often a tool has a term, nil for never.
func (ix *Index) find(term, tool int32) *wordCount {
	list := ix.bags[tool].words
	at, ok := slices.BinarySearchFunc(list, term, func(w wordCount, term int32) int { return cmp.Compare(w.term, term) })
	if !ok {
		return nil
	}
	return &list[at]
}
