package retrieval

import (
	"fmt"
	"io"
	"slices"

	"github.com/toolsidecar/sidecar/retrieval/hnsw"
)

// GraphFrom is the number of tools from which on a [Graph] saves time: below it,
// comparing the query with every vector takes no longer than the walk.
const GraphFrom = 10000

// A Graph finds the tools whose vectors are nearest to a query's without looking
// at all of them. The versions of a catalog share one: tools are put in under a
// key of name and vector, and a version passes over those that it doesn't have.
// It is safe for concurrent use.
type Graph struct {
	space string
	x     *hnsw.Index
}

// NewGraph returns an empty graph for the vectors of an index.
func NewGraph(ix *Index) (*Graph, error) {
	if ix.dense == nil {
		return nil, errNoSpace
	}
	x, err := hnsw.New(GraphConfig(ix.dense.space.Dim))
	if err != nil {
		return nil, err
	}
	return &Graph{ix.dense.space.Name, x}, nil
}

var errNoSpace = fmt.Errorf("retrieval: an index without a space has no vectors to make a graph of")

// GraphConfig is how graphs of tools are made; docs/retrieval.md has what it comes
// to.
func GraphConfig(dim int) hnsw.Config {
	return hnsw.Config{Dim: dim, Metric: hnsw.Inner, M: 16, Build: 200, Search: 256, Seed: 1, Shared: true}
}

// Add puts in what ix has and the graph has not, at most so many tools, and says
// how many. It takes all cores, and about a millisecond of one for a tool among
// 100,000. The order is that of the keys, so that the same tools make the same
// graph whatever their order in a catalog.
func (g *Graph) Add(ix *Index, most int) (int, error) {
	d := ix.dense
	if d == nil {
		return 0, errNoSpace
	}
	if d.space.Dim != g.x.Dim() || d.space.Name != g.space {
		return 0, fmt.Errorf("retrieval: a graph of space %q, %d dimensions; the index has %q, %d", g.space, g.x.Dim(), d.space.Name, d.space.Dim)
	}
	var missing []int32
	for i, k := range d.keys {
		if k != 0 && !g.x.Has(k) {
			missing = append(missing, int32(i))
		}
	}
	slices.SortFunc(missing, func(a, b int32) int {
		if d.keys[a] < d.keys[b] {
			return -1
		}
		return 1
	})
	missing = missing[:min(len(missing), most)]
	keys, rows := make([]uint64, len(missing)), make([][]float32, len(missing))
	for i, tool := range missing {
		keys[i], rows[i] = d.keys[tool], d.rows[tool]
	}
	return len(missing), g.x.AddBatch(keys, rows)
}

// Prune takes out what none of the indexes has, and says how many that were.
func (g *Graph) Prune(list ...*Index) int {
	keep := make(map[uint64]bool, g.x.Len())
	for _, ix := range list {
		if ix.dense != nil {
			for _, k := range ix.dense.keys {
				keep[k] = true
			}
		}
	}
	var gone []uint64
	for _, k := range g.x.Keys() {
		if !keep[k] {
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	g.x.Remove(gone...)
	return len(gone)
}

// Len returns the number of tools in the graph.
func (g *Graph) Len() int { return g.x.Len() }

// Save writes the graph.
func (g *Graph) Save(w io.Writer) error { return g.x.Save(w) }

// LoadGraph reads what Save wrote for the space of ix. Tools that ix has and the
// graph has not can be added; those that the graph has alone are to be pruned.
// Errors: a [*hnsw.CorruptError], those of r, another space.
func LoadGraph(r io.Reader, ix *Index) (*Graph, error) {
	if ix.dense == nil {
		return nil, errNoSpace
	}
	row := make(map[uint64][]float32, len(ix.tools))
	for i, k := range ix.dense.keys {
		row[k] = ix.dense.rows[i]
	}
	x, err := hnsw.Load(r, func(key uint64) []float32 { return row[key] })
	if err != nil {
		return nil, err
	}
	if want := GraphConfig(ix.dense.space.Dim); x.Config() != want {
		return nil, fmt.Errorf("retrieval: a graph of %+v; %+v is wanted", x.Config(), want)
	}
	return &Graph{ix.dense.space.Name, x}, nil
}

// Vector returns a tool's vector as it is compared, nil without a space. It must
// not be changed.
func (ix *Index) Vector(tool int) []float32 {
	if ix.dense == nil {
		return nil
	}
	return ix.dense.rows[tool]
}

// QueryVector returns the vector that tools are compared with for q, nil where it
// has none.
func (ix *Index) QueryVector(q Query) []float32 {
	if ix.dense == nil {
		return nil
	}
	embed := q.Embed
	if embed == nil {
		embed = ix.dense.space.Embed
	}
	v := make([]float32, ix.dense.space.Dim)
	if !ix.dense.vector(v, pieces(q.Parts, ix.cfg.QueryBytes), embed) {
		return nil
	}
	return v
}

// graphView is a graph as one index sees it.
type graphView struct {
	g    *Graph
	tool map[uint64]int32 // key -> tool, of those in the graph
	rest []int32          // the others, which are compared one by one
}

func (v *graphView) bytes() int {
	if v == nil {
		return 0
	}
	return v.g.x.Bytes() + 32*len(v.tool) + 4*len(v.rest)
}

// WithGraph returns the same index with a graph to find what is near, nil for
// none. Tools that g lacks now are compared one by one.
func (ix *Index) WithGraph(g *Graph) (*Index, error) {
	other := ix.clone()
	other.graph = nil
	if g != nil {
		if ix.dense == nil {
			return nil, errNoSpace
		}
		v := &graphView{g: g, tool: make(map[uint64]int32, len(ix.tools))}
		for i, k := range ix.dense.keys {
			if k == 0 {
				continue // it is near nothing
			}
			if _, twice := v.tool[k]; !twice && g.x.Has(k) {
				v.tool[k] = int32(i)
			} else {
				v.rest = append(v.rest, int32(i))
			}
		}
		other.graph = v
	}
	other.scratch.New = func() any { return newScratch(other) }
	return other, nil
}

// Graph returns the graph in use, or nil.
func (ix *Index) Graph() *Graph {
	if ix.graph == nil {
		return nil
	}
	return ix.graph.g
}

// rowKey is a tool's key in a graph: a hash of its name and vector, 0 for no
// vector.
func rowKey(name string, row []float32) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	some := false
	for _, x := range row {
		h = (h ^ uint64(uint32(int32(x)))) * prime
		some = some || x != 0
	}
	if !some {
		return 0
	}
	return max(h, 1)
}

const (
	// graphNear is how many of the nearest the graph is asked for.
	graphNear = 64
	// graphBatch is how many vectors are fetched at a time.
	graphBatch = 16
	// openMost is how many blocks of tools are looked into before more postings are
	// read, so that fewer have to be.
	openMost = 400
	// graphSlack covers the roundings of a bound against those of a score.
	graphSlack = 1e-4
)

// wanted is how many of the nearest are asked for: those called and named may be
// among them.
func (s *scratch) wanted() int { return graphNear + len(s.called) + len(s.named) }

// neighbours is what the graph gave, or how asking it ended.
type neighbours struct {
	hits  []hnsw.Hit
	fault any
}

// nearest asks the graph, while the words of the query are looked up.
func (ix *Index) nearest(s *scratch, want int) {
	var n neighbours
	defer func() {
		n.fault = recover()
		s.nearest <- n
	}()
	v := ix.graph
	var filter func(uint64) bool
	if s.allow != nil || v.g.Len() > len(v.tool)+len(v.tool)/8 {
		filter = func(key uint64) bool {
			tool, ok := v.tool[key]
			return ok && s.allowed(tool)
		}
	}
	var err error
	if n.hits, err = v.g.x.Search(s.query, want, hnsw.Options{Candidates: want, Filter: filter}); err != nil {
		panic("retrieval: " + err.Error()) // a rounded query is finite and of the right length
	}
}

// topByGraph is top without a look at most vectors. The graph gives the nearest
// tools; no other is nearer than the last of them, which bounds its score by its
// words and priors alone. So the outcome is that of a look at all, as far as the
// graph gave the nearest indeed and graphNear of them hold all that share no word
// with the query.
func (ix *Index) topByGraph(s *scratch, room int, scale float32) {
	v := ix.graph
	reach := float32(-1)
	n := <-s.nearest
	if n.fault != nil {
		panic(n.fault) // for whoever asked
	}
	hits := n.hits
	for _, h := range hits {
		if tool, ok := v.tool[h.Key]; ok {
			ix.consider(s, tool, room, scale)
		}
	}
	if want := s.wanted(); len(hits) == want {
		reach = float32(hits[want-1].Score * (1.0 / (grid * grid)))
	}
	for _, tool := range v.rest {
		ix.consider(s, tool, room, scale)
	}

	// Those of servers in use, those that the words read so far give most, those whose
	// names are alike, then whatever may be among the best.
	for srv, x := range s.prior {
		if x > 0 {
			for _, tool := range ix.members[srv] {
				ix.maybe(s, tool, room, scale, reach)
			}
		}
	}
	batch := s.hit[:0]
	flush := func() {
		for _, tool := range batch {
			s.touch += hnsw.Fetch(ix.dense.rows[tool]) + fetchWords(ix.bags[tool].words)
		}
		for _, tool := range batch {
			ix.maybe(s, tool, room, scale, reach)
		}
		batch = batch[:0]
	}
	add := func(tool int) {
		if batch = append(batch, int32(tool)); len(batch) == graphBatch {
			flush()
		}
	}
	least := s.leastOf(room)
	for b, x := range s.most {
		if x < least {
			continue
		}
		for i := b * block; i < min((b+1)*block, len(s.upper)); i++ {
			if s.upper[i] >= least {
				add(i)
			}
		}
	}
	flush()
	for style, x := range s.style {
		if x > 0 {
			for _, tool := range ix.alike[style] {
				ix.maybe(s, tool, room, scale, reach)
			}
		}
	}
	short := func(upper, cover float32) bool {
		return len(s.heap) == room && ix.atMost(s, upper, cover, scale, reach) < s.heap[0].score
	}
	open := func() (n int) { // blocks to look into
		for b, x := range s.most {
			if x+s.bound.rest > 0 && !short(x, s.mostCover[b]) {
				n++
			}
		}
		return n
	}
	for len(s.bound.lists) > 0 && open() > openMost {
		half := s.bound.rest / 2
		ix.readLists(s, func() bool { return s.bound.rest <= half })
	}
	for b, x := range s.most {
		if x+s.bound.rest == 0 || short(x, s.mostCover[b]) {
			continue
		}
		for i := b * block; i < min((b+1)*block, len(s.upper)); i++ {
			if x := s.upper[i]; x+s.bound.rest > 0 && !short(x, s.cover[i]) {
				add(i)
			}
		}
	}
	flush()
	s.hit = batch
}

// leastOf returns a score, above 0, that n tools have or more, if so many have
// any: one that the best of n blocks reach.
func (s *scratch) leastOf(n int) float32 {
	const buckets = 256
	var count [buckets + 1]int
	best := float32(0)
	for _, x := range s.most {
		best = max(best, x)
	}
	if best == 0 {
		return 1
	}
	by := buckets / best
	for _, x := range s.most {
		count[int(x*by)]++
	}
	at := buckets + 1
	for at > 1 && n > 0 {
		at--
		n -= count[at]
	}
	return float32(at) / by
}

// maybe considers a tool that was not considered yet, unless it is not among the
// best `room` even if it is as near as reach.
func (ix *Index) maybe(s *scratch, tool int32, room int, scale, reach float32) {
	if s.near[tool] != unknown || len(s.heap) == room && ix.atMost(s, s.upper[tool], s.cover[tool], scale, reach)+ix.priorOf(s, tool) < s.heap[0].score {
		return
	}
	ix.consider(s, tool, room, scale)
}
