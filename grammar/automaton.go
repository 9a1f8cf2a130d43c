package grammar

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// An Automaton decides byte by byte what a model may write as arguments of a
// tool: the language that Tag gives to an engine, with these differences. A
// string with maxLength may use escapes freely, while the engine counts the
// characters of their spelling. No more than 128 brackets are open at once. And
// a grammar too large for the engine is kept here. From every place that it
// reaches the end can be reached.
//
// It is determinised as it is used. What was found out, masks included, is
// kept for all that use the automaton, up to maxKept bytes; beyond that it
// starts anew. An Automaton is safe for concurrent use.
type Automaton struct {
	p       *program
	salt    uint64 // of hashes, so that nobody can make them collide
	maxKept int
	first   atomic.Pointer[config]

	mu      sync.Mutex         // guards all below and the making of what a config holds
	configs map[uint64]*config // by hash, more in their chains
	frames  map[frameKey]*frame
	dense   map[uint64][]*bitmap
	serial  uint32 // of frames
	kept    int    // bytes
	epochs  int    // times that it started anew
	set     threadSet
	queue   []thread // scratch
}

// maxKept bounds what an automaton remembers. A tool of the wild needs 50 kB
// of it; strings with a large maxLength a configuration per character.
const maxKept = 16 << 20

// A frame says what comes after the innermost call, or which round of a loop
// this is. Frames are interned: equal ones are one.
type frame struct {
	frameKey
	id    uint32
	depth int32  // brackets open below the innermost call
	canon *frame // see canonical; nil: not known
}

type frameKey struct {
	up    *frame
	node  int32 // calls: where to go on; loops: ^index
	count int32 // loops: rounds so far, up to min if there is no max
}

// A thread is a place in the program: a node that reads a byte, or accept.
type thread struct {
	node int32
	top  *frame
}

// A config is a set of threads: all that the text so far may mean.
type config struct {
	threads   []thread // sorted
	accepting bool
	chain     *config                // of the same hash
	lone      *frame                 // see place
	low       atomic.Pointer[config] // see place; nil: not known
	edges     atomic.Pointer[edges]
	canon     atomic.Pointer[config] // with the same mask, see canonical; nil: not known
	masks     atomic.Pointer[maskOf]
}

// edges leads from bytes to configs. class[b] is 0 if b doesn't fit, and else
// an index into next; without class it is lo to hi that fit.
type edges struct {
	lo, hi byte
	class  *[256]uint8
	next   []atomic.Pointer[config] // nil: not made yet
	of     []byte                   // a byte of each class
}

func (e *edges) index(b byte) int {
	if e.class != nil {
		return int(e.class[b])
	}
	if e.lo <= b && b <= e.hi {
		return 1
	}
	return 0
}

func newAutomaton(p *program, maxKept int) (*Automaton, error) {
	a := &Automaton{p: p, salt: rand.Uint64(), maxKept: maxKept}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clear()
	return a, a.begin()
}

// clear forgets everything. Configs in use live on without what they led to.
func (a *Automaton) clear() {
	for _, c := range a.configs {
		for c != nil { // nothing that is still held keeps all the rest alive
			next := c.chain
			c.chain = nil
			c.edges.Store(nil)
			c.canon.Store(nil)
			c.low.Store(nil)
			c.masks.Store(nil)
			c = next
		}
	}
	a.configs, a.frames, a.dense = map[uint64]*config{}, map[frameKey]*frame{}, map[uint64][]*bitmap{}
	a.kept = 0
	a.epochs++
}

func (a *Automaton) begin() error {
	a.set.reset()
	if err := a.close(a.p.start, nil); err != nil {
		return err
	}
	a.first.Store(a.intern())
	return nil
}

// MemoryBytes is about what the automaton holds: the program and what was
// found out by using it. Masks that belong to a Vocabulary are counted there.
func (a *Automaton) MemoryBytes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.p
	return a.kept + 16*cap(p.nodes) + 4*cap(p.need) + 8*cap(p.ranges) + 4*cap(p.targets) + 48*cap(p.loops) + 24*len(a.set.slots) + 16*cap(a.queue)
}

// next is where byte b leads from c; nil if it doesn't fit.
func (a *Automaton) next(c *config, b byte) (*config, error) {
	if e := c.edges.Load(); e != nil {
		i := e.index(b)
		if i == 0 {
			return nil, nil
		}
		if n := e.next[i].Load(); n != nil {
			return n, nil
		}
	}
	return a.step(c, b)
}

// edgesOf is what c's bytes lead to, made if it isn't there yet.
func (a *Automaton) edgesOf(c *config) *edges {
	if e := c.edges.Load(); e != nil {
		return e
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.makeEdges(c)
}

// step makes the config that b leads to.
func (a *Automaton) step(c *config, b byte) (*config, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept > a.maxKept {
		a.clear()
		if err := a.begin(); err != nil {
			return nil, err
		}
	}
	e := a.makeEdges(c)
	i := e.index(b)
	if i == 0 {
		return nil, nil
	}
	if n := e.next[i].Load(); n != nil {
		return n, nil
	}
	a.set.reset()
	for _, t := range c.threads {
		if to := a.p.on(t.node, b); to >= 0 {
			if err := a.close(to, t.top); err != nil {
				return nil, err
			}
		}
	}
	n := a.intern()
	e.next[i].Store(n)
	return n, nil
}

// on is where node n leads on byte b; -1 if nowhere.
func (p *program) on(n int32, b byte) int32 {
	switch n := &p.nodes[n]; n.op {
	case opByte:
		if n.lo <= b && b <= n.hi {
			return n.a
		}
	case opSet:
		for _, r := range p.ranges[n.a : n.a+n.b] {
			if r.lo <= b && b <= r.hi {
				return r.to
			}
		}
	}
	return -1
}

// close adds what node n with stack top means to a.set: the threads that read
// a byte next.
func (a *Automaton) close(n int32, top *frame) error {
	a.queue = append(a.queue[:0], thread{n, top})
	for len(a.queue) > 0 {
		t := a.queue[len(a.queue)-1]
		a.queue = a.queue[:len(a.queue)-1]
		if t.top.below()+a.p.need[t.node] > a.p.depth {
			continue
		}
		n := &a.p.nodes[t.node]
		if n.op <= opSet || n.op == opAccept {
			if a.set.add(t) {
				if a.set.found = append(a.set.found, t); len(a.set.found) > maxThreads {
					return &LimitError{"threads", maxThreads}
				}
			}
			continue
		}
		if n.op == opNext {
			l := &a.p.loops[n.a]
			k := t.top.frameKey
			if l.nullable && a.set.has(t) {
				continue // an empty round
			}
			if k.count++; l.max < 0 && k.count > l.min {
				k.count = l.min
			}
			a.decide(n.a, l, k)
			continue
		}
		if !a.set.add(t) {
			continue
		}
		switch n.op {
		case opFork:
			for _, to := range a.p.targets[n.a : n.a+n.b] {
				a.queue = append(a.queue, thread{to, t.top})
			}
		case opEnter:
			k := frameKey{t.top, ^n.a, 0}
			if n.b > 0 {
				a.queue = append(a.queue, thread{n.b, a.frame(k, t.top.below())})
			} else {
				a.decide(n.a, &a.p.loops[n.a], k)
			}
		case opCall:
			top := t.top
			depth := top.below() + n.open
			if a.p.nodes[n.b].op != opReturn || n.open > 0 {
				top = a.frame(frameKey{top, n.b, 0}, depth)
			}
			a.queue = append(a.queue, thread{n.a, top})
		case opReturn:
			a.queue = append(a.queue, thread{t.top.node, t.top.up})
		}
	}
	return nil
}

// decide goes round loop i once more, leaves it, or either.
func (a *Automaton) decide(i int32, l *loop, k frameKey) {
	if k.count >= l.min {
		a.queue = append(a.queue, thread{l.exit, k.up})
	}
	if l.max < 0 || k.count < l.max {
		top := a.frame(k, k.up.below())
		if l.nullable {
			// Reaching opNext with this very frame is an empty round.
			a.set.add(thread{l.again, top})
		}
		a.queue = append(a.queue, thread{l.body, top})
	}
}

func (f *frame) below() int32 {
	if f == nil {
		return 0
	}
	return f.depth
}

func (a *Automaton) frame(k frameKey, depth int32) *frame {
	f := a.frames[k]
	if f == nil {
		a.serial++
		f = &frame{frameKey: k, id: a.serial, depth: depth}
		a.frames[k] = f
		a.kept += 120
	}
	return f
}

func byPlace(x, y thread) int {
	if c := cmp.Compare(x.node, y.node); c != 0 {
		return c
	}
	return cmp.Compare(x.top.serial(), y.top.serial())
}

func (f *frame) serial() uint32 {
	if f == nil {
		return 0
	}
	return f.id
}

// intern makes a config of what a.set found.
func (a *Automaton) intern() *config {
	ts := a.set.found
	if len(ts) > 1 {
		ts = a.p.subsume(ts)
		slices.SortFunc(ts, byPlace)
	}
	sum := a.salt
	for _, t := range ts {
		sum = (sum ^ uint64(uint32(t.node))<<32 ^ uint64(t.top.serial())) * 0x9E3779B97F4A7C15
		sum ^= sum >> 32
	}
	for c := a.configs[sum]; c != nil; c = c.chain {
		if slices.Equal(c.threads, ts) {
			return c
		}
	}
	c := &config{threads: slices.Clone(ts), chain: a.configs[sum]}
	for _, t := range ts {
		c.accepting = c.accepting || a.p.nodes[t.node].op == opAccept
	}
	c.lone = a.p.lone(ts)
	a.configs[sum] = c
	a.kept += 260 + 16*len(ts)
	return c
}

// subsume leaves out threads that mean nothing new: in the same place, a loop
// that has reached its minimum in fewer rounds can do all that one in more
// rounds can. Without it a pattern such as .*[a-z]{1,1000} has a thread for
// every count.
func (p *program) subsume(ts []thread) []thread {
	counted := 0
	for _, t := range ts {
		if t.top != nil && t.top.node < 0 && t.top.count >= p.loops[^t.top.node].min {
			counted++
		}
	}
	if counted < 2 {
		return ts
	}
	type place struct {
		node, loop int32
		up         *frame
	}
	least := map[place]int32{}
	done := func(t thread) (place, bool) {
		if t.top == nil || t.top.node >= 0 || t.top.count < p.loops[^t.top.node].min {
			return place{}, false
		}
		return place{t.node, t.top.node, t.top.up}, true
	}
	for _, t := range ts {
		if at, ok := done(t); ok {
			if c, ok := least[at]; !ok || t.top.count < c {
				least[at] = t.top.count
			}
		}
	}
	return slices.DeleteFunc(ts, func(t thread) bool {
		at, ok := done(t)
		return ok && t.top.count > least[at]
	})
}

// makeEdges finds out which bytes lead to the same.
func (a *Automaton) makeEdges(c *config) *edges {
	if e := c.edges.Load(); e != nil {
		return e
	}
	e := &edges{lo: 1, hi: 0}
	if len(c.threads) == 1 && a.p.nodes[c.threads[0].node].op == opByte {
		n := &a.p.nodes[c.threads[0].node]
		e.lo, e.hi = n.lo, n.hi
		e.next, e.of = make([]atomic.Pointer[config], 2), []byte{0, n.lo}
		a.kept += 112
	} else {
		a.classes(c, e)
		a.kept += 360 + 10*len(e.next)
	}
	c.edges.Store(e)
	return e
}

func (a *Automaton) classes(c *config, e *edges) {
	var cut [257]bool
	for _, t := range c.threads {
		switch n := &a.p.nodes[t.node]; n.op {
		case opByte:
			cut[n.lo], cut[int(n.hi)+1] = true, true
		case opSet:
			for _, r := range a.p.ranges[n.a : n.a+n.b] {
				cut[r.lo], cut[int(r.hi)+1] = true, true
			}
		}
	}
	e.class = new([256]uint8)
	e.of = append(e.of, 0)
	var sums []uint64
	class := uint8(0)
	for b := range 256 {
		if b == 0 || cut[b] {
			sum := uint64(0)
			for i, t := range c.threads {
				if to := a.p.on(t.node, byte(b)); to >= 0 {
					sum = (sum ^ uint64(i)<<32 ^ uint64(to) + 1) * 0x9E3779B97F4A7C15
					sum ^= sum >> 29
				}
			}
			class = 0
			if sum != 0 {
				for k, s := range sums {
					if s == sum && a.sameTargets(c, e.of[k+1], byte(b)) {
						class = uint8(k + 1)
						break
					}
				}
				if class == 0 { // at most 255 of them: byte 0 never fits
					sums = append(sums, sum)
					e.of = append(e.of, byte(b))
					class = uint8(len(sums))
				}
			}
		}
		e.class[b] = class
	}
	e.next = make([]atomic.Pointer[config], len(e.of))
}

func (a *Automaton) sameTargets(c *config, x, y byte) bool {
	for _, t := range c.threads {
		if a.p.on(t.node, x) != a.p.on(t.node, y) {
			return false
		}
	}
	return true
}

// A threadSet is a hash set that is emptied in no time.
type threadSet struct {
	slots []slot
	gen   uint32
	n     int
	found []thread // the members that read a byte, in the order they came
}

type slot struct {
	t   thread
	gen uint32
}

func (s *threadSet) reset() {
	if s.slots == nil {
		s.slots = make([]slot, 64)
	}
	if s.gen++; s.gen == 0 {
		clear(s.slots)
		s.gen = 1
	}
	s.n = 0
	s.found = s.found[:0]
}

func (s *threadSet) find(t thread) *slot {
	h := (uint64(uint32(t.node))<<32 | uint64(t.top.serial())) * 0x9E3779B97F4A7C15
	for i := h >> 32; ; i++ {
		at := &s.slots[int(i)&(len(s.slots)-1)]
		if at.gen != s.gen || at.t == t {
			return at
		}
	}
}

func (s *threadSet) has(t thread) bool { return s.find(t).gen == s.gen }

// add tells whether t is new.
func (s *threadSet) add(t thread) bool {
	at := s.find(t)
	if at.gen == s.gen {
		return false
	}
	*at = slot{t, s.gen}
	if s.n++; 2*s.n > len(s.slots) {
		old, gen := s.slots, s.gen
		s.slots = make([]slot, 2*len(old))
		for _, o := range old {
			if o.gen == gen {
				*s.find(o.t) = o
			}
		}
	}
	return true
}
