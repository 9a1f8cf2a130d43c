package token

import "fmt"

// A Matcher follows one text through a grammar and says which tokens may come
// next. It belongs to one request; it isn't safe for concurrent use, while its
// grammar is.
type Matcher struct {
	g    *Grammar
	t    *table
	now  *state
	done bool // an end-of-turn token came
	past []step
	stay int64 // bytes up to which the table may grow although it is large
}

// A step is what was fed, and where that was.
type step struct {
	t     *table // nil: the matcher has left it since
	at    *state
	token int32 // -1: bytes
	text  []byte
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

// Matcher starts a text. The error is that of the source.
func (g *Grammar) Matcher() (*Matcher, error) {
	t, err := g.current()
	if err != nil {
		return nil, err
	}
	return &Matcher{g: g, t: t, now: t.start}, nil
}

// Mask is the tokens that may come next: those whose bytes fit and after which
// the text can be finished, the special ones that the source takes, and the
// ends of a turn if it is finished. The error is a *LimitError, or the source's.
func (m *Matcher) Mask() (*Mask, error) {
	if m.done {
		return &Mask{words: m.g.v.Words()}, nil
	}
	if k := m.now.mask.Load(); k != nil {
		return k, nil
	}
	return m.t.mask(m.g.v, m.now)
}

// Fill writes the mask into dst, which has at least as many words as the
// vocabulary's. Words beyond those are cleared. On an error dst isn't touched.
func (m *Matcher) Fill(dst []uint64) error {
	k, err := m.Mask()
	if err != nil {
		return err
	}
	k.Write(dst)
	return nil
}

// Advance takes a token, which then is one step for Rollback. If it doesn't fit
// the error is a *RefusedError and nothing changes.
func (m *Matcher) Advance(token int32) error {
	v := m.g.v
	for _, end := range v.ends {
		if token == end {
			if m.done || !m.now.accepting {
				return &RefusedError{Token: token, Why: "ends the turn too early"}
			}
			m.past = append(m.past, step{m.t, m.now, token, nil})
			m.done = true
			return nil
		}
	}
	b, _, ok := v.tok.Token(token)
	if !ok {
		return &RefusedError{Token: token, Why: "isn't in the vocabulary"}
	}
	if !v.added[token] {
		return m.feed(token, b)
	}
	if err := m.renew(); err != nil {
		return err
	}
	to, err := m.t.stepToken(m.now, token)
	if err != nil {
		return err
	}
	if m.done || to == dead {
		return &RefusedError{Token: token, Why: "is a special token"}
	}
	m.past = append(m.past, step{m.t, m.now, token, nil})
	m.now = to
	return nil
}

// AdvanceBytes takes bytes as one step for Rollback. If they don't fit the
// error is a *RefusedError and nothing changes.
func (m *Matcher) AdvanceBytes(b []byte) error {
	// Kept for replay.
	return m.feed(-1, append([]byte(nil), b...))
}

func (m *Matcher) feed(token int32, text []byte) error {
	if m.done {
		return &RefusedError{Token: token, Why: "comes after the end"}
	}
	if err := m.renew(); err != nil {
		return err
	}
	at := m.now
	for i, b := range text {
		n, err := m.t.next(at, b)
		if err != nil {
			return err
		}
		if n == dead {
			return &RefusedError{Token: token, Offset: i, Why: "doesn't fit"}
		}
		at = n
	}
	m.past = append(m.past, step{m.t, m.now, token, text})
	m.now = at
	return nil
}

// renew moves to a fresh table when this one has grown too large. If it is this
// very text that takes so much, it may go on until four times the bound.
func (m *Matcher) renew() error {
	total := m.t.total.Load()
	if total <= int64(m.g.max) || total <= m.stay {
		return nil
	}
	t, err := m.g.current()
	if err != nil {
		return err
	}
	at, err := m.replay(t, len(m.past))
	if err != nil {
		return err
	}
	m.t, m.now = t, at
	for i := range m.past { // or they would keep the tables that were left
		m.past[i].t, m.past[i].at = nil, nil
	}
	if m.stay = t.total.Load() + int64(m.g.max)/2; m.stay > 4*int64(m.g.max) {
		return &LimitError{"memory", m.g.max}
	}
	return nil
}

// replay is where the first n steps lead in t.
func (m *Matcher) replay(t *table, n int) (*state, error) {
	at := t.start
	for i := range m.past[:n] {
		p := &m.past[i]
		var err error
		switch {
		case p.text == nil && p.token >= 0 && !m.ends(p.token):
			at, err = t.stepToken(at, p.token)
		default:
			for _, b := range p.text {
				if at, err = t.next(at, b); err != nil {
					break
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return at, nil
}

func (m *Matcher) ends(token int32) bool {
	for _, end := range m.g.v.ends {
		if token == end {
			return true
		}
	}
	return false
}

// Rollback takes back the last n steps.
func (m *Matcher) Rollback(n int) error {
	if n < 0 || n > len(m.past) {
		return fmt.Errorf("%d steps back, of %d", n, len(m.past))
	}
	if n == 0 {
		return nil
	}
	left := len(m.past) - n
	p := m.past[left]
	if p.t != m.t {
		at, err := m.replay(m.t, left)
		if err != nil {
			return err
		}
		p.at = at
	}
	m.now, m.done = p.at, false
	m.past = m.past[:left]
	return nil
}

// Accepts tells whether the text may end here.
func (m *Matcher) Accepts() bool { return m.now.accepting }

// Done tells whether an end-of-turn token came.
func (m *Matcher) Done() bool { return m.done }

// maxForced bounds what Forced gives at once, in bytes.
const maxForced = 4096

// Forced is the bytes that must come next, up to the first place with a choice
// and at most 4 KiB. It takes no step.
func (m *Matcher) Forced() []byte {
	var out []byte
	for s := m.now; !m.done && s != dead && !s.accepting && len(out) < maxForced && len(m.t.tokens(s)) == 0; {
		only, n := byte(0), dead
		for b, k := range m.t.rowOf(s).class {
			if k == 0 {
				continue
			}
			to, err := m.t.next(s, byte(b))
			if err != nil || to != dead && n != dead {
				return out
			}
			if to != dead {
				only, n = byte(b), to
			}
		}
		if n == dead {
			break
		}
		out = append(out, only)
		s = n
	}
	return out
}

// Next are the bytes that may come next. The error is that of the source.
func (m *Matcher) Next() ([]byte, error) {
	var out []byte
	for b, k := range m.t.rowOf(m.now).class {
		if k > 0 {
			to, err := m.t.next(m.now, byte(b))
			if err != nil {
				return nil, err
			}
			if to != dead {
				out = append(out, byte(b))
			}
		}
	}
	return out, nil
}
