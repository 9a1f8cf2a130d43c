package usage

import (
	"bytes"
	"cmp"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/toolsidecar/sidecar/retrieval"
)

// How alike two queries are, and what that says of tools. Chosen on the merged
// evaluation set; docs/usage-memory.md has the curve.
const (
	meaning    = 0.5  // share of the cosine of vectors in the likeness; the rest is that of words
	threshold  = 0.44 // likeness from which on a query speaks
	neighbours = 8    // queries that speak at most

	together = 1.5  // weight of what the neighbours say together, as sum ÷ (greatest sum + certain)
	certain  = 0.75 // of a neighbour: so much is missing to certainty
	nearest  = 1.1  // weight of the nearest query that led to a tool
	behind   = 1.25 // weight of the share of calls that follow the last one
	smooth   = 2    // calls that are taken to have followed it to nowhere
	doubt    = 0.25 // of the loudest share, see Recollection
)

// Recall implements [retrieval.Memory]. Its time grows with the queries held: a
// product of a matrix and a vector, and the lists of the query's words.
func (m *Memory) Recall(t *retrieval.Trace) (out retrieval.Recollection) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.entries) == 0 {
		return out
	}
	alike, near := m.alike(t)
	out.Tools = make([]retrieval.Recalled, len(m.tools))
	for i, name := range m.tools {
		out.Tools[i].Tool = name
	}
	sum, best := make([]float64, len(m.tools)), make([]float64, len(m.tools))
	most := 0.0
	for _, i := range near {
		w := (alike[i] - threshold) / (1 - threshold)
		for _, tool := range m.entries[i].tools {
			sum[tool] += w
			best[tool] = max(best[tool], w)
			most = max(most, sum[tool])
		}
	}
	loudest := 0.0
	add := func(tool int32, to *float64, score float64) {
		*to = score * m.cfg.Strength
		loudest = max(loudest, out.Tools[tool].Alike+out.Tools[tool].After)
	}
	for i := range out.Tools {
		if sum[i] > 0 {
			add(int32(i), &out.Tools[i].Alike, together*sum[i]/(most+certain)+nearest*best[i])
		}
	}
	if last, ok := m.tool[t.Last]; ok && m.after[last] != nil {
		counts := m.after[last]
		for tool, n := range counts.tools {
			add(tool, &out.Tools[tool].After, behind*float64(n)/float64(counts.sum+smooth))
		}
	}
	out.Doubt = doubt * loudest
	return out
}

// alike returns how alike every query held is to t, and the neighbours, the
// nearest first.
func (m *Memory) alike(t *retrieval.Trace) (alike []float64, near []int32) {
	alike = make([]float64, len(m.entries))
	for _, w := range unit(t.Words) {
		for _, p := range m.words[w.Text] {
			alike[p.entry] += float64(w.Weight) * float64(p.weight)
		}
	}
	if scale := lengthOf(t.Vector); scale > 0 {
		if sp := m.spaces[spaceKey(t)]; sp != nil {
			sp.add(alike, t.Vector, scale)
		}
	}
	for i, v := range alike {
		if v > threshold {
			near = append(near, int32(i))
		}
	}
	slices.SortFunc(near, func(a, b int32) int {
		return cmp.Or(cmp.Compare(alike[b], alike[a]), bytes.Compare(m.entries[a].key[:], m.entries[b].key[:]))
	})
	return alike, near[:min(len(near), neighbours)]
}

// add mixes the cosine of vectors into the likeness by words of the entries that
// have one; of the others it leaves the words.
func (sp *space) add(alike []float64, vector []int8, scale float32) {
	query := make([]float32, sp.dim)
	for i, x := range vector {
		query[i] = float32(x)
	}
	n := len(sp.entries)
	out := make([]float32, n)
	blas32.Gemv(blas.NoTrans, 1, blas32.General{Rows: n, Cols: sp.dim, Stride: sp.dim, Data: sp.rows},
		blas32.Vector{N: sp.dim, Inc: 1, Data: query}, 0, blas32.Vector{N: n, Inc: 1, Data: out})
	for row, i := range sp.entries {
		cosine := float64(out[row]) * float64(sp.scale[row]) * float64(scale)
		alike[i] = meaning*cosine + (1-meaning)*alike[i]
	}
}
