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
	r := m.reading(c)
	if !r.lex.PlainAlive(c.lex) {
		return t, false
	}
	m.live.steps = 0
	t.Open = len(r.texts) == 0 && m.others(c, r)
	if c.mode == inKey {
		t.Key = true
		if t.Open && !f.record {
			_, t.Max, t.Free = r.lex.Free(c.lex)
		}
		return t, true
	}
	q := m.asks[f.ask]
	p := m.part(q, 4)
	if q.record || !m.plain(p) {
		return t, true
	}
	t.Min, t.Max, t.Free = r.lex.Free(c.lex)
	t.Open = t.Open || t.Free && t.Max < 0
	return t, true
}

// Bytes is the bytes that lead on from s: found out once, and without a try of
// those that can't.
func (a *Automaton) Bytes(s State) (lexical.Bytes, error) {
	var set lexical.Bytes
	if s == 0 {
		return set, nil
	}
	r := a.row(s)
	if known := r.alive.Load(); known != nil {
		return *known, nil
	}
	a.mu.Lock()
	might := a.m.might(r.config)
	a.mu.Unlock()
	for b := range 256 {
		if !might.Has(byte(b)) {
			continue
		}
		n, err := a.Step(s, byte(b))
		if err != nil {
			return set, err
		}
		if n != 0 {
			set.Add(byte(b))
		}
	}
	r.alive.Store(&set)
	return set, nil
}

// might is bytes outside of which none leads on from c.
func (m *machine) might(c config) lexical.Bytes {
	var set lexical.Bytes
	add := func(s string) {
		for i := range len(s) {
			set.Add(s[i])
		}
	}
	add(" \t\r\n")
	switch c.mode {
	case atValue:
		add(`"{[]-0123456789tfn`)
	case inNull, inTrue, inFalse:
		set = lexical.Bytes{}
		set.Add(words[c.mode][c.sub])
	case inNumber:
		add("0123456789.eE+-,]}")
	case atKey:
		add(`"}`)
	case atColon:
		add(":")
	case afterValue:
		add(",]}")
	case inString, inKey:
		if r := m.reading(c); len(r.texts) == 0 && !m.others(c, r) {
			if names, ok := r.lex.ToNames(c.lex); ok {
				return names
			}
		}
		return lexical.Bytes{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	}
	return set
}

// reading is the reader of the string or key that c is within.
func (m *machine) reading(c config) *reader {
	f := &m.frames[c.top]
	if c.mode == inKey {
		return m.readerList[f.keys]
	}
	return m.part(m.asks[f.ask], 4).reader
}

// others tells whether a string or key may be one that the schema doesn't name.
func (m *machine) others(c config, r *reader) bool {
	other := m.classAt(r, lexical.Outcome{Label: -1})
	if c.mode == inKey {
		next, ok := m.endKey(c.top, other, 0)
		return ok && m.live.within(next.top) != never
	}
	out := m.stringOutcome(m.part(m.asks[m.frames[c.top].ask], 4), other)
	return out.fits && m.live.leave(c.top, out, 0) != never
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
