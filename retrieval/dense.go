package retrieval

import (
	"math"
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

// round writes v in whole numbers to dst and returns the scale that undoes it.
func round(dst, v []float32) float32 {
	most := float32(0)
	for _, x := range v {
		most = max(most, float32(math.Abs(float64(x))))
	}
	if !(most > 0) || math.IsInf(float64(most), 0) {
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

// add adds weight times the vector of a text, cut to most bytes.
func (s *Space) add(sum []float32, text string, weight float32, most int) {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	if text == "" {
		return
	}
	v := s.Embed(text)
	if len(v) != len(sum) {
		return
	}
	for i, x := range v {
		sum[i] += float32(weight * x)
	}
}

// embed makes the rows of all tools. repeated are the sentences that several
// tools share.
func (ix *Index) embed(space *Space, repeated map[string]bool) *dense {
	d := &dense{space: space, rows: make([]float32, len(ix.tools)*space.Dim), scale: make([]float32, len(ix.tools))}
	sum := make([]float32, space.Dim)
	for i := range ix.tools {
		clear(sum)
		for _, t := range toolTexts(&ix.tools[i], repeated) {
			space.add(sum, t.text, t.weight, maxEmbed)
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
		{short + ": " + core, weightCore},
		{spaced(t.Name) + ": " + t.Description, weightWhole},
		{short, weightShort},
		{spaced(string(parameterNames(nil, t.Schema))), weightParameters},
	}
}

// vector writes the rounded vector of weighted texts to dst and returns its
// scale, 0 where the texts have none.
func (d *dense) vector(dst []float32, parts []Part, embed func(string) []float32, limit int) float32 {
	sum := make([]float32, d.space.Dim)
	space := Space{Embed: embed}
	for _, p := range parts {
		if !(p.Weight > 0) || limit <= 0 {
			continue
		}
		head, tail := clip(p.Text, limit)
		limit -= len(head) + len(tail)
		space.add(sum, head, float32(min(p.Weight, 1e6)), len(head))
		space.add(sum, tail, float32(min(p.Weight, 1e6)), len(tail))
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
