package hnsw

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// wave bounds how many vectors are searched for before they are linked: they
// don't find each other in the graph, so each is compared with those before it
// in its wave, which costs wave/2 comparisons a vector.
const wave = 256

// Add puts a vector in, or replaces that of the key.
func (x *Index) Add(key uint64, v []float32) error {
	return x.AddBatch([]uint64{key}, [][]float32{v})
}

// AddBatch is Add of each, in order, on all cores. Nothing is added if one of
// them can't be.
func (x *Index) AddBatch(keys []uint64, vs [][]float32) error {
	if len(keys) != len(vs) {
		return fmt.Errorf("hnsw: %d keys and %d vectors", len(keys), len(vs))
	}
	own := make([][]float32, len(vs))
	last := make(map[uint64]int, len(keys))
	for i, v := range vs {
		var err error
		if own[i], err = x.own(v); err != nil {
			return fmt.Errorf("vector %d: %w", i, err)
		}
		last[keys[i]] = i
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]entry, 0, len(last))
	for i, k := range keys {
		if last[k] == i {
			list = append(list, entry{key: k, vec: own[i]})
		}
	}
	g := x.now.Load()
	x.insert(g, list, func(e *entry) {
		if old, ok := x.slots[e.key]; ok {
			g.node(old).dead.Store(true)
			x.dead++
		}
		x.slots[e.key] = e.slot
	})
	x.tidy()
	return nil
}

// Remove takes vectors out. Keys that aren't there are passed over.
func (x *Index) Remove(keys ...uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.now.Load()
	for _, k := range keys {
		if slot, ok := x.slots[k]; ok {
			g.node(slot).dead.Store(true)
			delete(x.slots, k)
			x.dead++
		}
	}
	x.tidy()
}

// tidy builds the graph anew when it is mostly dead.
func (x *Index) tidy() {
	if x.dead <= len(x.slots) {
		return
	}
	old, g := x.now.Load(), newGraph()
	slots := make(map[uint64]uint32, len(x.slots))
	list := make([]entry, 0, len(x.slots))
	for s := range old.size.Load() {
		if n := old.node(s); !n.dead.Load() {
			list = append(list, entry{key: n.key, vec: n.vec})
		}
	}
	x.insert(g, list, func(e *entry) { slots[e.key] = e.slot })
	x.slots, x.dead = slots, 0
	x.now.Store(g)
}

// An entry is a vector on its way in.
type entry struct {
	key    uint64
	vec    []float32
	slot   uint32
	level  int
	around [][]candidate // by level, best first
}

// insert links a list into g wave by wave. done is called when a vector can be
// found.
func (x *Index) insert(g *graph, list []entry, done func(*entry)) {
	for len(list) > 0 {
		n := 1
		if size := int(g.size.Load()); size > 0 {
			n = min(wave, max(1, size/4), len(list))
		}
		part := list[:n]
		list = list[n:]
		base := g.size.Load()
		for i := range part {
			part[i].slot, part[i].level = base+uint32(i), x.levelOf(part[i].key)
		}
		x.survey(g, part)
		for i := range part {
			x.link(g, &part[i])
			done(&part[i])
			part[i].around = nil
		}
	}
}

// survey finds the neighbourhood of each, on all cores. What it finds depends on
// g as it stood, and not on the number of cores.
func (x *Index) survey(g *graph, part []entry) {
	workers := min(runtime.GOMAXPROCS(0), len(part))
	if workers == 1 {
		for i := range part {
			x.surroundings(g, part, i)
		}
		return
	}
	var next atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(part); i = next.Add(1) - 1 {
				x.surroundings(g, part, int(i))
			}
		})
	}
	wg.Wait()
}

func (x *Index) surroundings(g *graph, part []entry, i int) {
	e := &part[i]
	e.around = make([][]candidate, e.level+1)
	if first := g.entry.Load(); first >= 0 {
		m := g.pool.Get().(*marks)
		top := g.node(uint32(first)).level()
		at := []candidate{g.descend(e.vec, uint32(first), e.level)}
		for l := min(top, e.level); l >= 0; l-- {
			found, _ := g.near(m, e.vec, at, l, x.cfg.Build, nil, true)
			if len(found) == 0 { // all around are dead: they are bridges still
				found, _ = g.near(m, e.vec, at, l, x.cfg.M, nil, false)
			}
			e.around[l], at = found, found
		}
		g.pool.Put(m)
	}
	for j := range i {
		o := &part[j]
		c := candidate{dot(e.vec, o.vec), o.slot}
		for l := 0; l <= min(e.level, o.level); l++ {
			at, _ := slices.BinarySearchFunc(e.around[l], c, func(a, b candidate) int {
				if a.before(b) {
					return -1
				}
				return 1
			})
			e.around[l] = slices.Insert(e.around[l], at, c)
		}
	}
}

// link adds e to g as its next node.
func (x *Index) link(g *graph, e *entry) {
	n := g.grow()
	n.key, n.vec = e.key, e.vec
	n.links = make([]atomic.Pointer[[]uint32], e.level+1)
	for l, around := range e.around {
		chosen := g.choose(around, x.cfg.M)
		n.links[l].Store(&chosen)
	}
	g.size.Store(e.slot + 1)
	for l := range e.around {
		for _, s := range n.at(l) {
			x.linkBack(g, s, e.slot, l)
		}
	}
	if top := g.entry.Load(); top < 0 || e.level > g.node(uint32(top)).level() {
		g.entry.Store(int64(e.slot))
	}
}

// linkBack adds a link from one node to another. A node that has too many keeps
// the most diverse.
func (x *Index) linkBack(g *graph, from, to uint32, level int) {
	n := g.node(from)
	old := n.at(level)
	most := x.cfg.M
	if level == 0 {
		most *= 2
	}
	if len(old) < most {
		all := append(slices.Clip(slices.Clone(old)), to)
		n.links[level].Store(&all)
		return
	}
	around := make([]candidate, 0, len(old)+1)
	for _, s := range append(slices.Clone(old), to) {
		around = append(around, candidate{dot(n.vec, g.node(s).vec), s})
	}
	slices.SortFunc(around, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	chosen := g.choose(around, most)
	n.links[level].Store(&chosen)
}

// choose picks neighbours from candidates, best first: one that is more like a
// chosen one than like the node itself is passed over, so that links lead in
// all directions; what is left fills the rest (algorithm 4 of the paper).
func (g *graph) choose(around []candidate, most int) []uint32 {
	out := make([]uint32, 0, min(most, len(around)))
	if len(around) <= most {
		for _, c := range around {
			out = append(out, c.slot)
		}
		return out
	}
	var passed []uint32
	for _, c := range around {
		v := g.node(c.slot).vec
		near := slices.ContainsFunc(out, func(s uint32) bool { return dot(v, g.node(s).vec) > c.score })
		if near {
			passed = append(passed, c.slot)
		} else if out = append(out, c.slot); len(out) == most {
			return out
		}
	}
	return append(out, passed[:min(most-len(out), len(passed))]...)
}

// grow makes room for one more node.
func (g *graph) grow() *node {
	slot := g.size.Load()
	chunks := *g.chunks.Load()
	if int(slot/chunk) == len(chunks) {
		more := append(slices.Clip(slices.Clone(chunks)), new([chunk]node))
		g.chunks.Store(&more)
	}
	return g.node(slot)
}
