package retrieval

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"gonum.org/v1/gonum/blas/blas32"
)

// A Space turns texts into vectors whose inner product says how near two texts
// are in meaning.
type Space struct {
	Name string // what made the vectors; part of no computation
	Dim  int    // of a vector, at least 1
	// Embed returns the vector of a text, Dim long and of length 1, or nil where
	// it has none. It must be safe for concurrent use.
	Embed func(text string) []float32
}

// A tool has one vector: a sum of four of its texts.
const (
	weightCore       = 0.4 // name and sentences of its own
	weightWhole      = 0.2 // full name and whole description
	weightShort      = 0.3 // name within its server
	weightParameters = 0.1 // names of parameters
)

// maxEmbed is how much of one text of a tool is turned into a vector, in bytes;
// what a tool does is said in its first sentences.
const maxEmbed = 2000

// dense holds one row a tool. Rows and queries are rounded to whole numbers of
// which an inner product is below 2^24, so that float32 arithmetic is exact and
// every machine, whatever its vector instructions, gets the same scores.
type dense struct {
	space *Space
	rows  [][]float32 // tool -> grid times its vector, whole numbers; versions of a catalog share them
	keys  []uint64    // tool -> its name in a graph, see graph.go
}

// maxDim is the largest dimension of a vector.
const maxDim = 4096

// grid is how many steps a length of 1 is rounded to. The parts of a rounded
// vector are off by 1/2 at most, all of it by sqrt(maxDim)/2 = 32, and by
// Cauchy-Schwarz (4,000 + 32)² < 2^24 bounds every partial sum of a product.
const grid = 4000

// faint is the length from which on a vector counts as none.
const faint = 1e-6

func (d *dense) bytes() int {
	if d == nil {
		return 0
	}
	return len(d.rows) * (24 + 8 + 4*d.space.Dim)
}

// length returns the Euclidean length of v, 0 where it is faint or not finite.
func length(v []float32) float64 {
	square := 0.0
	for _, x := range v {
		square += float64(float64(x) * float64(x))
	}
	if l := math.Sqrt(square); l > faint && !math.IsInf(l, 0) {
		return l
	}
	return 0
}

// round writes v, made long times its length, in steps of the grid to dst.
func round(dst, v []float32, long float64) {
	by := grid * long
	for i, x := range v {
		dst[i] = float32(math.Round(float64(x) * by))
	}
}

// add adds weight times the vector of a text.
func (s *Space) add(sum []float32, t weighted) {
	v := s.Embed(t.text)
	if len(v) != len(sum) {
		return
	}
	for i, x := range v {
		sum[i] += float32(t.weight * x)
	}
}

// beginning is the start of a text, cut between characters.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// ToolTexts returns the texts that a space is asked for to hold the tools, each
// once.
func (ix *Index) ToolTexts() []string {
	var out []string
	for i := range ix.tools {
		for _, t := range toolTexts(&ix.tools[i], ix.repeated) {
			out = append(out, t.text)
		}
	}
	return distinct(out)
}

// Texts returns the texts whose vectors a search for q needs, each once.
func (ix *Index) Texts(q *Query) []string {
	var out []string
	for _, t := range pieces(q.Parts, ix.cfg.QueryBytes) {
		out = append(out, t.text)
	}
	for _, c := range q.Clauses {
		for _, t := range pieces([]Part{{c, 1}}, ix.cfg.QueryBytes) {
			out = append(out, t.text)
		}
	}
	return distinct(out)
}

func distinct(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	return slices.DeleteFunc(texts, func(t string) bool {
		again := seen[t] || t == ""
		seen[t] = true
		return again
	})
}

// WithSpace returns an index of the same tools and words with vectors of another
// space, nil for none.
func (ix *Index) WithSpace(space *Space) (*Index, error) {
	cfg := ix.cfg
	cfg.Space = space
	if err := cfg.check(); err != nil {
		return nil, err
	}
	other := ix.clone()
	other.cfg, other.dense, other.graph = cfg, nil, nil
	other.setDense(nil, nil)
	return other, nil
}

// clone returns an index of the same parts.
func (ix *Index) clone() *Index {
	return &Index{
		cfg: ix.cfg, tools: ix.tools, rank: ix.rank, terms: ix.terms, term: ix.term, idf: ix.idf, start: ix.start, post: ix.post, peak: ix.peak, bags: ix.bags, mean: ix.mean,
		sentences: ix.sentences, server: ix.server, servers: ix.servers, members: ix.members, style: ix.style, alike: ix.alike, damp: ix.damp, names: ix.names,
		dense: ix.dense, graph: ix.graph, repeated: ix.repeated, byName: ix.byName, mentions: ix.mentions,
	}
}

// setDense makes the vectors and what searches keep. Rows of old for the same
// texts are taken over; old may be nil.
func (ix *Index) setDense(old *Index, from []int32) {
	if ix.cfg.Space != nil && ix.cfg.Dense+ix.cfg.Gist > 0 {
		ix.dense = ix.embed(ix.cfg.Space, old, from)
	}
	ix.scratch.New = func() any { return newScratch(ix) }
}

// embed makes the rows of all tools.
func (ix *Index) embed(space *Space, old *Index, from []int32) *dense {
	d := &dense{space: space, rows: make([][]float32, len(ix.tools)), keys: make([]uint64, len(ix.tools))}
	sum := make([]float32, space.Dim)
	var block []float32
	for i := range ix.tools {
		if old != nil && from[i] >= 0 && old.dense != nil {
			d.rows[i], d.keys[i] = old.dense.rows[from[i]], old.dense.keys[from[i]]
			continue
		}
		clear(sum)
		for _, t := range toolTexts(&ix.tools[i], ix.repeated) {
			if t.text != "" {
				space.add(sum, t)
			}
		}
		if len(block) < space.Dim {
			block = make([]float32, min(256, len(ix.tools)-i)*space.Dim)
		}
		row := block[:space.Dim:space.Dim]
		block = block[space.Dim:]
		if l := length(sum); l > 0 {
			round(row, sum, min(1, 1/l)) // a sum of unit vectors whose weights add up to 1 is no longer than that
		}
		d.rows[i], d.keys[i] = row, rowKey(ix.tools[i].Name, row)
	}
	return d
}

type weighted struct {
	text   string
	weight float32
}

// toolTexts are the texts that make a tool's vector.
func toolTexts(t *Tool, repeated map[string]bool) [4]weighted {
	short := spaced(t.Short())
	core := ""
	for s := range sentences(t.Description) {
		if repeated[s] {
			continue
		}
		if len(core) >= maxEmbed {
			break
		}
		if core != "" {
			core += " "
		}
		core += s
	}
	if core == "" {
		core = t.Description
	}
	return [4]weighted{
		{beginning(short+": "+core, maxEmbed), weightCore},
		{beginning(spaced(t.Name)+": "+beginning(t.Description, maxEmbed), maxEmbed), weightWhole},
		{beginning(short, maxEmbed), weightShort},
		{beginning(strings.TrimSpace(spaced(string(parameterNames(nil, t.Schema)))), maxEmbed), weightParameters},
	}
}

// pieces are the texts of a query as they are read within limit bytes.
func pieces(parts []Part, limit int) []weighted {
	var out []weighted
	for _, p := range parts {
		if !(p.Weight > 0) || limit <= 0 {
			continue
		}
		head, tail := clip(p.Text, limit)
		limit -= len(head) + len(tail)
		for _, text := range [...]string{head, tail} {
			if text != "" {
				out = append(out, weighted{text, float32(min(p.Weight, 1e6))})
			}
		}
	}
	return out
}

// vector writes the rounded vector of length 1 of weighted texts to dst, and says
// whether they have one.
func (d *dense) vector(dst []float32, texts []weighted, embed func(string) []float32) bool {
	sum := make([]float32, d.space.Dim)
	space := Space{Embed: embed}
	for _, t := range texts {
		space.add(sum, t)
	}
	l := length(sum)
	if l == 0 {
		return false
	}
	round(dst, sum, 1/l)
	return true
}

// near returns the cosine of one tool with a rounded query.
func (d *dense) near(tool int32, query []float32) float32 {
	dot := blas32.Dot(blas32.Vector{N: len(query), Inc: 1, Data: d.rows[tool]}, blas32.Vector{N: len(query), Inc: 1, Data: query})
	return float32(dot * (1.0 / (grid * grid)))
}
