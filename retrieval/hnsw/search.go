package hnsw

import (
	"cmp"
	"slices"
)

// A Hit is a vector found, with its similarity to the query.
type Hit struct {
	Key   uint64
	Score float32
}

// Options of one search.
type Options struct {
	// Candidates kept on the way; 0 is Config.Search, and at least k are kept.
	// More of them find more of the true neighbours and take longer.
	Candidates int
	// Filter says whether a key may be found; nil lets all pass. It must be
	// safe for concurrent use and the same during one search.
	Filter func(key uint64) bool
}

// Search returns the k vectors most similar to q, best first, ties by key. It
// is an error if q is no vector of this index.
func (x *Index) Search(q []float32, k int, opt Options) ([]Hit, error) {
	v, err := x.own(q)
	if err != nil {
		return nil, err
	}
	if k <= 0 {
		return nil, nil
	}
	g := x.now.Load()
	entry := g.entry.Load()
	if entry < 0 {
		return nil, nil
	}
	m := g.pool.Get().(*marks)
	defer g.pool.Put(m)
	ef := max(opt.Candidates, k)
	if opt.Candidates == 0 {
		ef = max(x.cfg.Search, k)
	}
	at := g.descend(v, uint32(entry), 0)
	found, thin := g.near(m, v, []candidate{at}, 0, ef, opt.Filter, true)
	if thin {
		return g.scan(v, k, opt.Filter), nil
	}
	hits := make([]Hit, 0, min(k, len(found)))
	for _, c := range found {
		n := g.node(c.slot)
		hits = append(hits, Hit{n.key, c.score})
	}
	return best(hits, k), nil
}

// Exact compares q with every vector: the oracle of Search, and better than it
// for small sets.
func (x *Index) Exact(q []float32, k int, filter func(key uint64) bool) ([]Hit, error) {
	v, err := x.own(q)
	if err != nil {
		return nil, err
	}
	return x.now.Load().scan(v, k, filter), nil
}

func (g *graph) scan(v []float32, k int, filter func(uint64) bool) []Hit {
	if k <= 0 {
		return nil
	}
	var heap []Hit // the worst of the best at the top
	for slot := range g.size.Load() {
		n := g.node(slot)
		if n.dead.Load() || filter != nil && !filter(n.key) {
			continue
		}
		h := Hit{n.key, dot(v, n.vec)}
		if len(heap) < k {
			heap = append(heap, h)
			for i := len(heap) - 1; i > 0 && worse(heap[i], heap[(i-1)/2]); i = (i - 1) / 2 {
				heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
			}
			continue
		}
		if !worse(heap[0], h) {
			continue
		}
		heap[0] = h
		for i := 0; ; {
			j := 2*i + 1
			if j >= len(heap) {
				break
			}
			if j+1 < len(heap) && worse(heap[j+1], heap[j]) {
				j++
			}
			if !worse(heap[j], heap[i]) {
				break
			}
			heap[i], heap[j] = heap[j], heap[i]
			i = j
		}
	}
	return best(heap, k)
}

func worse(a, b Hit) bool { return a.Score < b.Score || a.Score == b.Score && a.Key > b.Key }

// best sorts hits, leaves each key once and keeps k. While a key is replaced
// both of its vectors may be met.
func best(hits []Hit, k int) []Hit {
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Key, b.Key))
	})
	out := hits[:0]
	for _, h := range hits {
		if !slices.ContainsFunc(out, func(o Hit) bool { return o.Key == h.Key }) {
			out = append(out, h)
		}
		if len(out) == k {
			break
		}
	}
	return out
}

// A candidate is a node and its similarity to what is looked for.
type candidate struct {
	score float32
	slot  uint32
}

func (a candidate) before(b candidate) bool {
	return a.score > b.score || a.score == b.score && a.slot < b.slot
}

// descend goes greedily from the entry point down to above level.
func (g *graph) descend(v []float32, entry uint32, level int) candidate {
	n := g.node(entry)
	at := candidate{dot(v, n.vec), entry}
	for l := n.level(); l > level; l-- {
		for moved := true; moved; {
			moved = false
			for _, s := range g.node(at.slot).at(l) {
				if c := (candidate{dot(v, g.node(s).vec), s}); c.before(at) {
					at, moved = c, true
				}
			}
		}
	}
	return at
}

// thinAfter is how many nodes a filtered search looks at before it judges by
// the share that passed. Below one in thinShare a scan of those that pass costs
// about as much as the walk to them and finds all.
const (
	thinAfter = 512
	thinShare = 10
)

// near walks one level from the candidates given and returns the ef best
// nodes it met, best first. With live only those are returned that are alive and
// pass the filter. thin says that it gave up: too few pass.
func (g *graph) near(m *marks, v []float32, from []candidate, level, ef int, filter func(uint64) bool, live bool) (found []candidate, thin bool) {
	m.reset(int(g.size.Load()))
	m.open.reset(true)
	m.kept.reset(false)
	seen, passed := 0, 0
	take := func(c candidate) {
		if n := g.node(c.slot); live {
			seen++
			if n.dead.Load() || filter != nil && !filter(n.key) {
				return
			}
			passed++
		}
		m.kept.push(c)
		if m.kept.len() > ef {
			m.kept.pop()
		}
	}
	for _, c := range from {
		if m.mark(c.slot) {
			m.open.push(c)
			take(c)
		}
	}
	for m.open.len() > 0 {
		c := m.open.pop()
		if m.kept.len() >= ef && m.kept.top().before(c) {
			break
		}
		if filter != nil && seen > thinAfter && passed*thinShare < seen {
			return nil, true
		}
		m.next = m.next[:0]
		for _, s := range g.node(c.slot).at(level) {
			if m.mark(s) {
				vec := g.node(s).vec
				m.touch += Fetch(vec)
				m.next = append(m.next, neighbour{s, vec})
			}
		}
		for _, n := range m.next {
			next := candidate{dot(v, n.vec), n.slot}
			if m.kept.len() < ef || next.before(m.kept.top()) {
				m.open.push(next)
				take(next)
			}
		}
	}
	if filter != nil && m.kept.len() < ef && passed < seen {
		return nil, true // the walk ended before it found enough
	}
	found = slices.Clone(m.kept.all)
	slices.SortFunc(found, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	return found, false
}

// marks is the scratch of one walk.
type marks struct {
	gen  uint32
	seen []uint32
	open heap // best first
	kept heap // worst first

	next  []neighbour // of the node that is looked at
	touch float32
}

type neighbour struct {
	slot uint32
	vec  []float32
}

// line is how many numbers a line of a cache holds.
const line = 16

// Fetch reads a number of each line of a vector and returns their sum, which
// means nothing: the lines of several vectors come at the same time, where
// comparing one after another waits for each.
func Fetch(v []float32) (sum float32) {
	for i := 0; i < len(v); i += line {
		sum += v[i]
	}
	return sum
}

func (m *marks) reset(size int) {
	if m.gen++; m.gen == 0 {
		clear(m.seen)
		m.gen = 1
	}
	if len(m.seen) < size {
		m.seen = append(m.seen, make([]uint32, size+size/4-len(m.seen)+64)...)
	}
}

// mark tells whether the slot is new to this walk.
func (m *marks) mark(slot uint32) bool {
	if int(slot) >= len(m.seen) { // added since the walk began
		m.seen = append(m.seen, make([]uint32, int(slot)+1024-len(m.seen))...)
	}
	if m.seen[slot] == m.gen {
		return false
	}
	m.seen[slot] = m.gen
	return true
}

// A heap has its best or its worst candidate at the top.
type heap struct {
	all  []candidate
	best bool
}

func (h *heap) reset(best bool)    { h.all, h.best = h.all[:0], best }
func (h *heap) len() int           { return len(h.all) }
func (h *heap) top() candidate     { return h.all[0] }
func (h *heap) less(i, j int) bool { return h.all[i].before(h.all[j]) == h.best }

func (h *heap) push(c candidate) {
	h.all = append(h.all, c)
	for i := len(h.all) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h.all[i], h.all[up] = h.all[up], h.all[i]
		i = up
	}
}

func (h *heap) pop() candidate {
	top := h.all[0]
	last := len(h.all) - 1
	h.all[0] = h.all[last]
	h.all = h.all[:last]
	for i := 0; ; {
		j := 2*i + 1
		if j >= last {
			return top
		}
		if j+1 < last && h.less(j+1, j) {
			j++
		}
		if !h.less(j, i) {
			return top
		}
		h.all[i], h.all[j] = h.all[j], h.all[i]
		i = j
	}
}
