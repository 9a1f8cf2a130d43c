package accept

import (
	"sort"

	"github.com/toolsidecar/sidecar/grammar/lexical"
)

// Within a string whose length counts every character is a state of its own. A
// text that is judged needs none of them: what lexical says of the string is
// known without, and whether the text can still be completed need not be asked
// after each character, since a text that is dead stays dead.

const (
	leapFrom = 64      // bytes of a string that are left, from which on they aren't read one by one
	leapMost = 1 << 20 // bytes of one leap; four times as many of memory
)

// leap reads the beginning of text as one, if s is within a long string: the rest of the string with the closing quote, or as much of
// it as leaves the text alive. It gives the bytes read and the state behind them;
// 0 bytes if the next one is to be taken alone.
func (a *Automaton) leap(s State, text []byte) (n int, to State) {
	r := a.row(s)
	if r.mode != inString || len(text) < leapFrom || ends(text[:leapFrom]) {
		return 0, s
	}
	text = text[:min(len(text), leapMost)]
	lex := a.stringsAt(r)
	if lex == nil {
		return 0, s
	}
	// The states after each byte before the quote.
	at, closed := r.lex, false
	states := make([]lexical.State, 0, len(text))
	for _, b := range text {
		next := lex.Step(at, b)
		if next <= lexical.Lost { // left to step
			break
		}
		if closed = b == '"' && lex.Closed(next); closed {
			break
		}
		at = next
		states = append(states, at)
	}
	if len(states) == 0 {
		return 0, s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if closed {
		c := r.config
		c.lex = at
		if next, err := a.m.step(c, '"'); err == nil && next != dead && a.lives(next) {
			return len(states) + 1, a.intern(next)
		}
	}
	c := r.config
	n = sort.Search(len(states), func(i int) bool {
		c.lex = states[i]
		return !a.lives(c)
	})
	if n == 0 {
		return 0, s
	}
	c.lex = states[n-1]
	return n, a.intern(c)
}

// ends tells whether there is a quote without a backslash before it.
func ends(text []byte) bool {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return true
		case '\\':
			i++
		}
	}
	return false
}

// stringsAt is what reads the string that r is within; nil if its characters
// are wanted, or too much is kept already.
func (a *Automaton) stringsAt(r *row) *lexical.Strings {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.m.asks[a.m.frames[r.top].ask]
	if q.record || a.kept > a.limits.Memory/2 {
		return nil
	}
	return a.m.part(q, 4).reader.lex
}

// lives tells whether a text can be completed, for certain or not. Where a limit
// is reached it can't be told, which counts as no: then step says which.
func (a *Automaton) lives(c config) bool {
	a.m.work, a.m.effort = 0, 0
	return a.m.alive(c) && a.m.exceeded() == nil
}
