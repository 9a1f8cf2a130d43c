package token

import (
	"sync"
	"sync/atomic"
)

// A table is what was found out about a source by using it. Its states are
// linked by pointers, so that a walk over known ones takes no lock and asks
// nobody. It only grows; a Grammar begins a new one when it has grown too large.
type table struct {
	src   Source
	start *state

	mu     sync.Mutex // guards src and all below, and the making of what a state holds
	byID   []*state
	masks  map[*Mask]struct{} // those of its states
	shapes map[*[256]uint8]*shape
	slab   []state
	rows   []row
	slots  []atomic.Pointer[state]
	kept   int // bytes beside those of src
	work   int // of src, at last sight
	asked  int // times that account was called
	total  atomic.Int64
}

// A state of the source with what is known of it.
type state struct {
	id        uint32
	accepting bool
	row       atomic.Pointer[row]
	text      atomic.Pointer[Text] // nil: not asked yet
	mask      atomic.Pointer[Mask]
}

// A row leads from bytes to states.
type row struct {
	*shape
	next  []atomic.Pointer[state] // by class; nil: not asked yet
	chars atomic.Pointer[chars]   // nil: not asked yet
}

// A shape sorts bytes into classes, see Source.
type shape struct {
	class *[256]uint8
	most  int
	live  byteSet // bytes of a class
}

// A byteSet has bit b%64 of word b/64 set for its bytes.
type byteSet [4]uint64

func (s *byteSet) add(b byte) { s[b>>6] |= 1 << (b & 63) }

// dead is where no text goes on.
var dead = &state{}

func newTable(src Source) (*table, error) {
	t := &table{src: src, byID: make([]*state, 64), masks: map[*Mask]struct{}{}, shapes: map[*[256]uint8]*shape{}}
	id, err := src.Start()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.start = t.state(id); id != 0 {
		t.look(t.start)
	}
	t.account()
	return t, nil
}

// state is that of a number.
func (t *table) state(id uint32) *state {
	if id == 0 {
		return dead
	}
	for int(id) >= len(t.byID) {
		t.byID = append(t.byID, make([]*state, len(t.byID))...)
	}
	s := t.byID[id]
	if s == nil {
		if len(t.slab) == 0 {
			t.slab = make([]state, 32)
		}
		s = &t.slab[0]
		t.slab = t.slab[1:]
		s.id, s.accepting = id, t.src.Accepting(id)
		t.byID[id] = s
		t.kept += 56
	}
	return s
}

// rowOf is what leads from s, made if it isn't there yet.
func (t *table) rowOf(s *state) *row {
	if r := s.row.Load(); r != nil {
		return r
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.look(s)
}

func (t *table) look(s *state) *row {
	if r := s.row.Load(); r != nil {
		return r
	}
	class := &nothing
	if s != dead {
		class = t.src.Classes(s.id)
	}
	sh := t.shapes[class]
	if sh == nil {
		sh = &shape{class: class}
		for b, k := range class {
			if k > 0 {
				sh.live.add(byte(b))
				sh.most = max(sh.most, int(k))
			}
		}
		t.shapes[class] = sh
		t.kept += 100
	}
	n := sh.most + 1
	if len(t.slots) < n {
		t.slots = make([]atomic.Pointer[state], 128+n)
	}
	if len(t.rows) == 0 {
		t.rows = make([]row, 32)
	}
	r := &t.rows[0]
	t.rows = t.rows[1:]
	r.shape = sh
	r.next, t.slots = t.slots[:n:n], t.slots[n:]
	r.next[0].Store(dead)
	t.kept += 48 + 8*n
	if s != dead { // which belongs to all tables
		s.row.Store(r)
	}
	return r
}

var nothing [256]uint8

// noText is that of states outside of runs.
var noText = &Text{}

// textOf is the run that s stands in; noText if none.
func (t *table) textOf(s *state) *Text {
	if x := s.text.Load(); x != nil {
		return x
	}
	if s == dead {
		return noText
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x := noText
	if text, ok := t.src.Text(s.id); ok {
		x = &text
		t.kept += 80
	}
	s.text.Store(x)
	return x
}

// next is where b leads from s.
func (t *table) next(s *state, b byte) (*state, error) {
	if r := s.row.Load(); r != nil {
		if n := r.next[r.class[b]].Load(); n != nil {
			return n, nil
		}
	}
	n, _, err := t.step(s, b)
	return n, err
}

// step asks the source, and tells how much it worked.
func (t *table) step(s *state, b byte) (*state, int, error) {
	if s == dead {
		return dead, 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.look(s)
	i := r.class[b]
	if n := r.next[i].Load(); n != nil {
		return n, 0, nil
	}
	before := t.work
	id, err := t.src.Step(s.id, b)
	if err != nil {
		return nil, 0, err
	}
	n := t.state(id)
	r.next[i].Store(n)
	t.account()
	return n, t.work - before, nil
}

// behind is where a quote behind a word of a run leads.
func (t *table) behind(text *Text, word int) (*state, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, err := text.Behind(word)
	if err != nil {
		return nil, err
	}
	n := t.state(id)
	t.account()
	return n, nil
}

// tokens are those that stand for themselves and that s takes.
func (t *table) tokens(s *state) []int32 {
	src, ok := t.src.(TokenSource)
	if !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return src.Tokens(s.id)
}

// stepToken is where a token that stands for itself leads.
func (t *table) stepToken(s *state, id int32) (*state, error) {
	src, ok := t.src.(TokenSource)
	if !ok || s == dead {
		return dead, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	to, err := src.StepToken(s.id, id)
	if err != nil {
		return nil, err
	}
	n := t.state(to)
	t.account()
	return n, nil
}

// canonical is a state with the mask of s.
func (t *table) canonical(s *state) *state {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.src.Canonical(s.id)
	if id == s.id {
		return s
	}
	c := t.state(id)
	t.account()
	return c
}

// hold counts bytes that a walk found out for all.
func (t *table) hold(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept += bytes
}

// account brings total up to date, now and then: a source may have to count.
func (t *table) account() {
	if t.asked++; t.asked%16 != 1 {
		return
	}
	b, w := t.src.Cost()
	t.work = w
	t.total.Store(int64(b + t.kept))
}
