package grammar

import (
	"fmt"
	"sync"
)

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
		if p, h.err = assemble(h.lang, h.defs, min(maxNesting, len(c.work)-1)); h.err == nil {
			h.a, h.err = newAutomaton(p, maxKept)
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

// A Matcher follows one text through an automaton and says which tokens may
// come next. It belongs to one request; it isn't safe for concurrent use, while
// its automaton and vocabulary are.
type Matcher struct {
	a    *Automaton
	v    *Vocabulary
	now  place
	done bool // an end-of-turn token came
	past []step
}

type step struct {
	at   place
	done bool
}

// A RefusedError says what didn't fit.
type RefusedError struct {
	Token  int32 // -1 if bytes were given
	Offset int   // of the first byte that doesn't fit, in the token or the bytes
	Why    string
}

func (e *RefusedError) Error() string {
	if e.Token < 0 {
		return fmt.Sprintf("byte %d %s", e.Offset, e.Why)
	}
	return fmt.Sprintf("token %d %s", e.Token, e.Why)
}

// Matcher starts a text. v may be nil if only bytes are fed.
func (a *Automaton) Matcher(v *Vocabulary) *Matcher {
	return &Matcher{a: a, v: v, now: place{c: a.first.Load()}}
}

// Mask writes into dst, which has at least Words words, the tokens that may
// come next: those whose bytes fit and after which the text can be finished,
// and the ends of a turn if it is finished. Words beyond those are cleared. The
// error is a *LimitError; then dst isn't touched.
func (m *Matcher) Mask(dst []uint64) error {
	if m.done {
		clear(dst)
		return nil
	}
	k, err := m.a.mask(m.v, m.now.c)
	if err != nil {
		return err
	}
	k.write(dst)
	return nil
}

// Advance takes a token, which then is one step for Rollback. If it doesn't fit
// the error is a *RefusedError and nothing changes.
func (m *Matcher) Advance(token int32) error {
	for _, end := range m.v.ends {
		if token == end {
			if m.done || !m.now.c.accepting {
				return &RefusedError{Token: token, Why: "ends the turn too early"}
			}
			m.past = append(m.past, step{m.now, m.done})
			m.done = true
			return nil
		}
	}
	if m.v.tok.IsAdded(token) {
		return &RefusedError{Token: token, Why: "is a special token"}
	}
	b, _, ok := m.v.tok.Token(token)
	if !ok {
		return &RefusedError{Token: token, Why: "isn't in the vocabulary"}
	}
	return m.feed(token, b)
}

// AdvanceBytes takes bytes as one step for Rollback. If they don't fit the
// error is a *RefusedError and nothing changes.
func (m *Matcher) AdvanceBytes(b []byte) error { return m.feed(-1, b) }

func (m *Matcher) feed(token int32, text []byte) error {
	if m.done {
		return &RefusedError{Token: token, Why: "comes after the end"}
	}
	at := m.now
	for i, b := range text {
		n, err := m.a.move(at, b)
		if err != nil {
			return err
		}
		if n.c == nil {
			return &RefusedError{Token: token, Offset: i, Why: "doesn't fit"}
		}
		at = n
	}
	m.past = append(m.past, step{m.now, m.done})
	m.now = at
	return nil
}

// Rollback takes back the last n steps.
func (m *Matcher) Rollback(n int) error {
	if n < 0 || n > len(m.past) {
		return fmt.Errorf("%d steps back, of %d", n, len(m.past))
	}
	if n > 0 {
		at := len(m.past) - n
		m.now, m.done = m.past[at].at, m.past[at].done
		m.past = m.past[:at]
	}
	return nil
}

// Accepts tells whether the text may end here.
func (m *Matcher) Accepts() bool { return m.now.c.accepting }

// Done tells whether an end-of-turn token came.
func (m *Matcher) Done() bool { return m.done }

// maxForced bounds what Forced gives at once, in bytes.
const maxForced = 4096

// Forced is the bytes that must come next, up to the first place with a choice
// and at most 4 KiB. It takes no step.
func (m *Matcher) Forced() []byte {
	var out []byte
	for c := m.a.exact(m.now); !m.done && !c.accepting && len(out) < maxForced; {
		e := m.a.edgesOf(c)
		b, ok := e.only()
		if !ok {
			break
		}
		n, err := m.a.next(c, b)
		if n == nil || err != nil {
			break
		}
		out = append(out, b)
		c = n
	}
	return out
}

// only is the one byte that fits.
func (e *edges) only() (byte, bool) {
	if e.class == nil {
		return e.lo, e.lo == e.hi
	}
	if len(e.of) != 2 {
		return 0, false
	}
	n := 0
	for _, k := range e.class {
		n += int(k)
	}
	return e.of[1], n == 1
}
