package accept

import "github.com/toolsidecar/sidecar/grammar/lexical"

// A Text tells about a state between two characters of a string or key, for
// those who look at many continuations at once.
type Text struct {
	Key bool
	// Open: whatever characters come, in whatever spelling, the text stays
	// alive, and the string or key may end after any of them, or only ever not
	// where it is one that the schema names.
	Open bool
	// Free: nothing but the number of characters matters. The string or key may
	// end after Min to Max more, and goes on as it does whichever they are; a
	// Max of -1 is no bound.
	Free     bool
	Min, Max int
}

// Text is what is known of s; ok is false if it isn't between two characters
// of a string or key.
func (a *Automaton) Text(s State) (t Text, ok bool) {
	if s == 0 {
		return t, false
	}
	c := a.row(s).config
	if c.mode != inString && c.mode != inKey {
		return t, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.m
	f := &m.frames[c.top]
	if c.mode == inKey {
		r := m.readerList[f.keys]
		return m.freeKey(c, r), r.lex.PlainAlive(c.lex)
	}
	q := m.asks[f.ask]
	p := m.part(q, 4)
	if !p.reader.lex.PlainAlive(c.lex) {
		return t, false
	}
	if len(p.reader.texts) == 0 {
		out := m.stringOutcome(p, m.classAt(p.reader, lexical.Outcome{Label: -1}))
		t.Open = out.fits && m.live.leave(c.top, out, 0) != never
	}
	if q.record || !m.plain(p) {
		return t, true
	}
	t.Min, t.Max, t.Free = p.reader.lex.Free(c.lex)
	t.Open = t.Open || t.Free && t.Max < 0
	return t, true
}

// plain tells whether a part asks that some text predicates hold, and nothing
// else.
func (m *machine) plain(p *part) bool {
	for _, e := range m.lists.list[p.qs] {
		if e > yes {
			return false
		}
	}
	for _, e := range m.x.conjuncts(p.goal) {
		if m.x.nodes[e].op != opStr {
			return false
		}
	}
	return true
}

// freeKey tells about a key: what it is if it is none that the schema names.
func (m *machine) freeKey(c config, r *reader) Text {
	t := Text{Key: true}
	if len(r.texts) > 0 {
		return t
	}
	m.live.steps = 0
	next, ok := m.endKey(c.top, m.classAt(r, lexical.Outcome{Label: -1}), 0)
	if !ok || m.live.within(next.top) == never {
		return t
	}
	t.Open = true
	_, t.Max, t.Free = r.lex.Free(c.lex)
	t.Free = t.Free && !m.frames[c.top].record
	return t
}
