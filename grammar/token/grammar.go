package token

import (
	"sync"
	"sync/atomic"
)

// A Grammar is a source with all that was found out by using it: states, masks
// of one vocabulary. Many texts share it and warm one another; it is safe for
// concurrent use.
//
// What it keeps is bounded. When that grows beyond the bound, new texts begin
// with nothing known, and those under way follow when they grow themselves.
type Grammar struct {
	open func() (Source, error)
	v    *Vocabulary
	max  int

	mu     sync.Mutex // guards beginning anew
	table  atomic.Pointer[table]
	epochs int // times that it began
}

// MaxBytes is what a Grammar keeps unless told otherwise. A tool of the wild
// needs 50 kB of it.
const MaxBytes = 16 << 20

// New makes a grammar over the sources that open gives, which all are the same
// automaton: the first at once, another whenever more than maxBytes are kept
// (0: MaxBytes). v may be nil if only bytes are fed.
func New(v *Vocabulary, maxBytes int, open func() (Source, error)) (*Grammar, error) {
	if maxBytes <= 0 {
		maxBytes = MaxBytes
	}
	g := &Grammar{open: open, v: v, max: maxBytes}
	_, err := g.renew(nil)
	return g, err
}

// current is the table that new texts begin with.
func (g *Grammar) current() (*table, error) {
	t := g.table.Load()
	if t.total.Load() <= int64(g.max) {
		return t, nil
	}
	return g.renew(t)
}

// renew replaces the table old by a fresh one, unless somebody has.
func (g *Grammar) renew(old *table) (*table, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.table.Load(); t != old {
		return t, nil
	}
	src, err := g.open()
	if err != nil {
		return nil, err
	}
	t, err := newTable(src)
	if err != nil {
		return nil, err
	}
	g.table.Store(t)
	g.epochs++
	return t, nil
}

// Empty tells that no text at all fits.
func (g *Grammar) Empty() bool { return g.table.Load().start == dead }

// Vocabulary is what the masks are of.
func (g *Grammar) Vocabulary() *Vocabulary { return g.v }

// MemoryBytes is about what the grammar keeps. What belongs to a Vocabulary is
// counted there.
func (g *Grammar) MemoryBytes() int { return int(g.table.Load().total.Load()) }

// Epochs is how many times the grammar began with nothing known.
func (g *Grammar) Epochs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.epochs
}
