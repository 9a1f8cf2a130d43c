package grammar

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/toolsidecar/sidecar/grammar/token"
)

// An Automaton decides byte by byte what a model may write as arguments of a
// tool: the language that Tag gives to an engine, with these differences. A
// string with maxLength may use escapes freely, while the engine counts the
// characters of their spelling. No more than 128 brackets are open at once. And
// a grammar too large for the engine is kept here. From every place that it
// reaches the end can be reached.
//
// An Automaton is safe for concurrent use.
type Automaton struct {
	p *program

	mu       sync.Mutex // guards grammars
	grammars map[*token.Vocabulary]*token.Grammar
}

// Grammar is the automaton with the masks of a vocabulary. It is made at the
// first call and shared by all that hold the automaton. v may be nil if only
// bytes are fed.
func (a *Automaton) Grammar(v *token.Vocabulary) (*token.Grammar, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g := a.grammars[v]; g != nil {
		return g, nil
	}
	g, err := token.New(v, 0, a.Source)
	if err != nil {
		return nil, err
	}
	if a.grammars == nil {
		a.grammars = map[*token.Vocabulary]*token.Grammar{}
	}
	a.grammars[v] = g
	return g, nil
}

// Source is the automaton as a source of states, with nothing known. The error
// is a *LimitError.
func (a *Automaton) Source() (token.Source, error) { return newSource(a.p) }

// Automaton is the automaton of what a model may write as arguments. It is made
// at the first call and shared by all that hold the same compiled tool. The
// error is a *LimitError.
//
// What the Emission says about a tool's exactness holds here too: if it has
// reasons, so the automaton takes more than fits, and Check judges.
func (c *Checked) Automaton() (*Automaton, error) {
	h := c.automaton
	h.once.Do(func() {
		var p *program
		if p, h.err = assemble(h.lang, h.defs, maxNesting); h.err == nil {
			h.a = &Automaton{p: p}
		}
		h.lang, h.defs = nil, nil
	})
	return h.a, h.err
}

// automatonOnce is the automaton of a tool under all its names.
type automatonOnce struct {
	lang *lang // until it is made
	defs []*def
	once sync.Once
	a    *Automaton
	err  error
}

// A source determinises a program as it is asked.
type source struct {
	p    *program
	salt uint64 // of hashes, so that nobody can make them collide

	places  []place          // by state; 0 stands for none
	far     map[place]uint32 // states of places with rounds over
	configs []*config        // a hash table with room for as many again; nil: free
	frames  map[frameKey]*frame
	serial  uint32 // of frames
	kept    int    // bytes
	work    int    // threads moved
	set     threadSet
	queue   []thread // scratch
	slab    []config
	threads []thread // a slab, of those of configs
	known   int      // configs
}

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
	sum       uint64   // their hash
	state     uint32   // with no rounds over; 0: not numbered
	accepting bool
	lone      *frame      // see place
	low       *config     // see place; nil: not known
	class     *[256]uint8 // see Classes; nil: not known
}

func newSource(p *program) (*source, error) {
	a := &source{
		p: p, salt: rand.Uint64(), places: make([]place, 1, 128), far: map[place]uint32{},
		configs: make([]*config, 256), frames: map[frameKey]*frame{},
	}
	a.set.reset()
	if err := a.close(p.start, nil); err != nil {
		return nil, err
	}
	a.state(place{c: a.intern()})
	return a, nil
}

// state gives a place its number.
func (a *source) state(p place) uint32 {
	if p.over == 0 {
		if p.c.state == 0 {
			p.c.state = a.number(p)
		}
		return p.c.state
	}
	s, ok := a.far[p]
	if !ok {
		s = a.number(p)
		a.far[p] = s
		a.kept += 48
	}
	return s
}

func (a *source) number(p place) uint32 {
	a.places = append(a.places, p)
	a.kept += 24
	return uint32(len(a.places) - 1)
}

func (a *source) Start() (uint32, error) { return 1, nil }

func (a *source) Step(s uint32, b byte) (uint32, error) {
	n, err := a.move(a.places[s], b)
	if n.c == nil || err != nil {
		return 0, err
	}
	return a.state(n), nil
}

func (a *source) Accepting(s uint32) bool { return a.places[s].c.accepting }

func (a *source) Cost() (bytes, work int) {
	p := a.p
	program := 16*cap(p.nodes) + 4*cap(p.need) + 8*cap(p.ranges) + 4*cap(p.targets) + 48*cap(p.loops)
	return a.kept + program + 8*len(a.configs) + 24*len(a.set.slots) + 16*cap(a.queue), a.work
}

// next is where byte b leads from c; nil if it doesn't fit.
func (a *source) next(c *config, b byte) (*config, error) {
	a.set.reset()
	a.work += 1 + len(c.threads)
	if len(c.threads) == 1 { // most often in a text that is fixed
		t := c.threads[0]
		if t.node = a.p.on(t.node, b); t.node < 0 {
			return nil, nil
		}
		if op := a.p.nodes[t.node].op; op <= opSet || op == opAccept {
			if t.top.below()+a.p.need[t.node] > a.p.depth {
				return nil, nil
			}
			a.set.found = append(a.set.found, t)
			return a.intern(), nil
		}
	}
	for _, t := range c.threads {
		if to := a.p.on(t.node, b); to >= 0 {
			if err := a.close(to, t.top); err != nil {
				return nil, err
			}
		}
	}
	if len(a.set.found) == 0 {
		return nil, nil
	}
	return a.intern(), nil
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
func (a *source) close(n int32, top *frame) error {
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
func (a *source) decide(i int32, l *loop, k frameKey) {
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

func (a *source) frame(k frameKey, depth int32) *frame {
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
func (a *source) intern() *config {
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
	at := int(sum>>32) & (len(a.configs) - 1)
	for ; a.configs[at] != nil; at = (at + 1) & (len(a.configs) - 1) {
		if c := a.configs[at]; c.sum == sum && slices.Equal(c.threads, ts) {
			return c
		}
	}
	if len(a.slab) == 0 {
		a.slab = make([]config, 16)
	}
	if len(a.threads) < len(ts) {
		a.threads = make([]thread, 64+len(ts))
	}
	c := &a.slab[0]
	a.slab = a.slab[1:]
	c.sum, c.threads = sum, a.threads[:len(ts):len(ts)]
	a.threads = a.threads[copy(c.threads, ts):]
	for _, t := range ts {
		c.accepting = c.accepting || a.p.nodes[t.node].op == opAccept
	}
	c.lone = a.p.lone(ts)
	a.configs[at] = c
	a.kept += 112 + 16*len(ts)
	if a.known++; 2*a.known > len(a.configs) {
		a.rehash()
	}
	return c
}

func (a *source) rehash() {
	old := a.configs
	a.configs = make([]*config, 2*len(old))
	for _, c := range old {
		if c == nil {
			continue
		}
		at := int(c.sum>>32) & (len(a.configs) - 1)
		for a.configs[at] != nil {
			at = (at + 1) & (len(a.configs) - 1)
		}
		a.configs[at] = c
	}
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

// Classes finds out which bytes lead to the same.
func (a *source) Classes(s uint32) *[256]uint8 {
	c := a.places[s].c
	if c.class == nil {
		c.class = a.p.classes(c.threads)
	}
	return c.class
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
