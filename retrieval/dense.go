package retrieval

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"gonum.org/v1/gonum/blas"
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
	rows  []float32 // tool × dim, whole numbers
	scale []float32 // of a tool's row; times the row it is the vector
}

// maxDim is the largest dimension of a vector; 64 levels are left there.
const maxDim = 4096

func (d *dense) bytes() int {
	if d == nil {
		return 0
	}
	return 4 * (len(d.rows) + len(d.scale))
}

// levels is the largest whole number in a rounded vector: by Cauchy-Schwarz a
// partial sum is at most dim × levels², which must stay below 2^24.
func levels(dim int) float32 {
	return float32(min(127, math.Floor(math.Sqrt((1<<24)/float64(dim)))))
}

// faint is where a vector counts as none: its scale would be no normal float32.
const faint = 1e-30

// round writes v in whole numbers to dst and returns the scale that undoes it.
// A faint vector and one that is not finite are all zeros, with scale 0.
func round(dst, v []float32) float32 {
	most := float32(0)
	for _, x := range v {
		most = max(most, float32(math.Abs(float64(x))))
	}
	if !(most > faint) || math.IsInf(float64(most), 0) {
		clear(dst)
		return 0
	}
	top := levels(len(v))
	by := top / most
	for i, x := range v {
		dst[i] = float32(math.Round(float64(x * by)))
	}
	return most / top
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
	other := &Index{
		cfg: cfg, tools: ix.tools, rank: ix.rank, terms: ix.terms, term: ix.term, idf: ix.idf, start: ix.start, post: ix.post, freq: ix.freq,
		server: ix.server, servers: ix.servers, members: ix.members, style: ix.style, damp: ix.damp, names: ix.names, repeated: ix.repeated,
		byName: ix.byName, mentions: ix.mentions,
	}
	other.setDense()
	return other, nil
}

// setDense makes the vectors and what searches keep.
func (ix *Index) setDense() {
	if ix.cfg.Space != nil && ix.cfg.Dense+ix.cfg.Gist > 0 {
		ix.dense = ix.embed(ix.cfg.Space)
	}
	ix.scratch.New = func() any { return newScratch(ix) }
}

// embed makes the rows of all tools.
func (ix *Index) embed(space *Space) *dense {
	d := &dense{space: space, rows: make([]float32, len(ix.tools)*space.Dim), scale: make([]float32, len(ix.tools))}
	sum := make([]float32, space.Dim)
	for i := range ix.tools {
		clear(sum)
		for _, t := range toolTexts(&ix.tools[i], ix.repeated) {
			if t.text != "" {
				space.add(sum, t)
			}
		}
		d.scale[i] = round(d.rows[i*space.Dim:][:space.Dim], sum)
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
	for rest := t.Description; rest != "" && len(core) < maxEmbed; {
		var s string
		if s, rest = sentence(rest); s == "" || repeated[s] {
			continue
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

// vector writes the rounded vector of weighted texts to dst and returns its
// scale, 0 where the texts have none.
func (d *dense) vector(dst []float32, texts []weighted, embed func(string) []float32) float32 {
	sum := make([]float32, d.space.Dim)
	space := Space{Embed: embed}
	for _, t := range texts {
		space.add(sum, t)
	}
	square := 0.0
	for _, x := range sum {
		square += float64(float64(x) * float64(x))
	}
	if square == 0 {
		return 0
	}
	return round(dst, sum) / float32(math.Sqrt(square))
}

// scan writes the cosine of every tool with a rounded query to out.
func (d *dense) scan(out, query []float32, scale float32) {
	n := len(d.scale)
	if n == 0 {
		return
	}
	blas32.Gemv(blas.NoTrans, 1, blas32.General{Rows: n, Cols: d.space.Dim, Stride: d.space.Dim, Data: d.rows},
		blas32.Vector{N: d.space.Dim, Inc: 1, Data: query}, 0, blas32.Vector{N: n, Inc: 1, Data: out})
	for i, by := range d.scale {
		out[i] *= float32(by * scale)
	}
}

// near returns the cosine of one tool with a rounded query.
func (d *dense) near(tool int32, query []float32, scale float32) float32 {
	dim := d.space.Dim
	dot := blas32.Dot(blas32.Vector{N: dim, Inc: 1, Data: d.rows[int(tool)*dim:][:dim]}, blas32.Vector{N: dim, Inc: 1, Data: query})
	return float32(dot * float32(d.scale[tool]*scale))
}
