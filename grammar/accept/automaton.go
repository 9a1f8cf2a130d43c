package accept

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Options say how a schema is read.
type Options struct {
	Draft     Draft             // of schemas without $schema
	Formats   bool              // format is asserted; else it says nothing, but where a metaschema asserts it
	Documents map[string][]byte // by absolute URI: other schemas that may be referred to, and metaschemas. Nothing is fetched
	Base      string            // URI of the schema itself, for relative references
	Limits    Limits
}

// A State is what the bytes so far mean to an Automaton. 0 is dead: whatever
// follows, the text won't fit.
type State uint32

// An Automaton decides byte by byte which JSON texts a schema accepts. It is
// made as it is used; what was once found out serves all that use it, up to
// Limits.Memory, after which Step says so where it would have to find out more.
// It is safe for concurrent use.
type Automaton struct {
	limits  Limits
	schema  []byte
	options Options
	first   State
	rows    atomic.Pointer[[]*[rowsPerPage]row]

	mu     sync.Mutex // guards all below, and the making of what rows hold
	m      *machine
	states map[config]State // 0: not alive
	bytes  int
	count  int // of states
	made   int // steps
	kept   int // bytes, as of some of the last 64 steps
}

const rowsPerPage = 64

// A row is a state and where bytes lead from it.
type row struct {
	config
	accepting bool
	edges     atomic.Pointer[edges] // nil: none is known
}

// Edges are where bytes lead, 32 to a page; 0: not known.
type edges [8]atomic.Pointer[[32]atomic.Uint32]

const toDead = ^uint32(0) // of an edge: the byte leads to State 0

// Compile reads a schema. The error is a *RefusedError, a *LimitError, or that
// of ctx.
func Compile(ctx context.Context, schema []byte, o Options) (*Automaton, error) {
	m, err := build(ctx, schema, o)
	if err != nil {
		return nil, err
	}
	a := &Automaton{limits: m.limits, schema: slices.Clone(schema), options: o, m: m, states: make(map[config]State, 100)}
	a.rows.Store(&[]*[rowsPerPage]row{new([rowsPerPage]row)})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.states[dead] = 0
	c := m.start()
	m.work = 0
	if !m.alive(c) {
		return a, m.exceeded()
	}
	a.first = a.intern(c)
	return a, m.exceeded()
}

// build makes the machine of a schema.
func build(ctx context.Context, schema []byte, o Options) (*machine, error) {
	l := newLoader(ctx, o)
	r, err := l.document(o.Base, schema, &path{})
	if err != nil {
		return nil, err
	}
	m := newMachine(l.limits)
	m.x.nodes = slices.Grow(m.x.nodes, min(3*l.schemas, 1<<16))
	b := &builder{l: l, m: m, x: m.x, done: map[buildKey]*built{}}
	m.root, err = b.root(r)
	return m, err
}

// Start is the state before the first byte: 0 if no text fits.
func (a *Automaton) Start() State { return a.first }

func (a *Automaton) row(s State) *row {
	return &(*a.rows.Load())[s/rowsPerPage][s%rowsPerPage]
}

// Step is the state after one more byte. The error is a *LimitError.
func (a *Automaton) Step(s State, b byte) (State, error) {
	n, _, err := a.stepIn(s, b, a.limits.Memory)
	return n, err
}

// stepIn also tells how many formulas were looked at: none if the way was known.
func (a *Automaton) stepIn(s State, b byte, room int) (n State, work int, err error) {
	if s == 0 {
		return 0, 0, nil
	}
	r := a.row(s)
	if n, known := r.to(b); known {
		return n, 0, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n, known := r.to(b); known {
		return n, 0, nil
	}
	if n, work, err = a.find(r, b, room); err == nil {
		a.bytes += r.set(b, n)
	}
	return n, work, err
}

// to is where b leads, if that is known.
func (r *row) to(b byte) (State, bool) {
	e := r.edges.Load()
	if e == nil {
		return 0, false
	}
	p := e[b>>5].Load()
	if p == nil {
		return 0, false
	}
	n := p[b&31].Load()
	if n == toDead {
		return 0, true
	}
	return State(n), n != 0
}

// set keeps where b leads, and tells how many bytes that takes.
func (r *row) set(b byte, n State) (bytes int) {
	e := r.edges.Load()
	if e == nil {
		e = new(edges)
		r.edges.Store(e)
		bytes = 64
	}
	p := e[b>>5].Load()
	if p == nil {
		p = new([32]atomic.Uint32)
		e[b>>5].Store(p)
		bytes += 128
	}
	if n == 0 {
		p[b&31].Store(toDead)
	} else {
		p[b&31].Store(uint32(n))
	}
	return bytes
}

// find makes the state that b leads to, if less than room bytes are kept.
func (a *Automaton) find(r *row, b byte, room int) (n State, work int, err error) {
	if a.made%64 == 0 {
		a.kept = a.bytes + a.m.bytes()
	}
	if a.made++; a.kept > room {
		return 0, 0, &LimitError{Limit: "memory", Max: room}
	}
	a.m.work, a.m.effort = 0, 0
	c, err := a.m.step(r.config, b)
	if err != nil {
		return 0, a.m.work, err
	}
	n, met := a.states[c]
	if !met {
		alive := a.m.alive(c)
		if err := a.m.exceeded(); err != nil {
			return 0, a.m.work, err
		}
		if alive {
			n = a.add(c)
		} else {
			a.states[c] = 0
			a.bytes += 60
		}
	}
	return n, a.m.work + a.m.effort, nil
}

// intern gives the state of a config that is alive.
func (a *Automaton) intern(c config) State {
	if s, ok := a.states[c]; ok {
		return s
	}
	return a.add(c)
}

func (a *Automaton) add(c config) State {
	a.count++
	s := State(a.count)
	pages := *a.rows.Load()
	if int(s/rowsPerPage) == len(pages) {
		more := append(pages, new([rowsPerPage]row)) // readers know no more than they have
		a.rows.Store(&more)
		pages = more
		a.bytes += rowsPerPage*32 + 8
	}
	r := &pages[s/rowsPerPage][s%rowsPerPage]
	r.config, r.accepting = c, a.m.accepting(c)
	a.states[c] = s
	a.bytes += 60
	return s
}

// Accepting tells whether the text may end in s.
func (a *Automaton) Accepting(s State) bool { return s != 0 && a.row(s).accepting }

// MemoryBytes is about what the automaton holds.
func (a *Automaton) MemoryBytes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes + a.m.bytes()
}

// exceeded is the limit that was reached in this step, if one was.
func (m *machine) exceeded() error {
	if m.work > m.limits.Work {
		return &LimitError{Limit: "work", Max: m.limits.Work}
	}
	return nil
}

// Undecided counts the states met so far of which it was not certain that they
// can be completed; they count as alive.
func (a *Automaton) Undecided() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.live.count
}
