package accept

import "github.com/toolsidecar/sidecar/grammar/lexical"

// A config is what the bytes so far mean: the open frames and a place between
// or within their values. It has no gaps, so that it is hashed at once.
type config struct {
	top  uint32        // frame
	lex  lexical.State // within a string, number or key
	kept uint32        // record: trail of the scalar's bytes
	mode mode
	sub  uint16 // literal: bytes read; value, key: whether the bracket may close instead
}

type mode uint16

const (
	atDead  mode = iota
	atValue      // a value comes next
	inNull       // within null, true, false
	inTrue
	inFalse
	inNumber
	inString
	atKey   // a key comes next
	inKey   // within a key
	atColon // after a key
	afterValue
	atEnd // after the whole value
)

var words = [...]string{inNull: "null", inTrue: "true", inFalse: "false"}

func space(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// start is the config before the first byte.
func (m *machine) start() config {
	return config{top: m.frame(frame{kind: frameText, ask: m.ask(ask{goal: m.root}), within: true}), mode: atValue}
}

var dead = config{}

// step is where b leads from c. That the text can still be completed is not
// looked at here.
func (m *machine) step(c config, b byte) (config, error) {
	switch c.mode {
	case atValue:
		if space(b) {
			return c, nil
		}
		if b == ']' && c.sub == 1 {
			return m.closeFrame(c.top)
		}
		return m.begin(c.top, b)
	case inNull, inTrue, inFalse:
		if b != words[c.mode][c.sub] {
			return dead, nil
		}
		if c.sub++; int(c.sub) < len(words[c.mode]) {
			return c, nil
		}
		q := m.asks[m.frames[c.top].ask]
		p := m.part(q, wordType(c.mode))
		o := m.outcomeOf(p.goal, p.qs, func(expr) bool { return false })
		return m.closeValue(c.top, o, words[c.mode])
	case inNumber:
		return m.digit(c, b)
	case inString, inKey:
		return m.quoted(c, b)
	case atKey:
		switch {
		case space(b):
			return c, nil
		case b == '}' && c.sub == 1:
			return m.closeFrame(c.top)
		case b == '"':
			f := &m.frames[c.top]
			c = config{top: c.top, mode: inKey, lex: m.readerList[f.keys].lex.Start()}
			if f.record {
				c.kept = m.trail(0, uint32(b))
			}
			return c, nil
		}
	case atColon:
		switch {
		case space(b):
			return c, nil
		case b == ':':
			return config{top: c.top, mode: atValue}, nil
		}
	case afterValue:
		return m.between(c, b)
	case atEnd:
		if space(b) {
			return c, nil
		}
	}
	return dead, nil
}

func wordType(mo mode) int {
	switch mo {
	case inNull:
		return 0
	case inFalse:
		return 1
	}
	return 2
}

// begin reads the first byte of a value.
func (m *machine) begin(top uint32, b byte) (config, error) {
	f := &m.frames[top]
	q := m.asks[f.ask]
	switch {
	case b == '"':
		p := m.part(q, 4)
		if p.goal == no {
			return dead, nil
		}
		r, err := m.readerOf(p, false)
		if err != nil {
			return dead, err
		}
		c := config{top: top, mode: inString, lex: r.lex.Start()}
		if q.record {
			c.kept = m.trail(0, uint32(b))
		}
		return c, nil
	case b == '{' || b == '[':
		return m.open(top, b)
	case b == 'n' || b == 'f' || b == 't':
		mo := inNull
		switch b {
		case 'f':
			mo = inFalse
		case 't':
			mo = inTrue
		}
		if m.part(q, wordType(mo)).goal == no {
			return dead, nil
		}
		return config{top: top, mode: mo, sub: 1}, nil
	case b == '-' || b >= '0' && b <= '9':
		p := m.part(q, 3)
		if p.goal == no {
			return dead, nil
		}
		t, err := m.tallyOf(p)
		if err != nil {
			return dead, err
		}
		return m.digit(config{top: top, mode: inNumber, lex: t.lex.Start()}, b)
	}
	return dead, nil
}

// open begins an object or array.
func (m *machine) open(top uint32, b byte) (config, error) {
	up := &m.frames[top]
	q := m.asks[up.ask]
	if int(up.depth) >= m.limits.Depth {
		return dead, nil
	}
	f := frame{up: top, depth: up.depth + 1, kind: frameObject, record: q.record, of: up.ask}
	i := 6
	if b == '[' {
		f.kind, i = frameArray, 5
	}
	p := m.part(q, i)
	if p.goal == no {
		return dead, nil
	}
	f.goal, f.qs = p.goal, p.qs
	if f.kind == frameArray {
		return m.nextItem(f, 1), nil
	}
	r, err := m.readerOf(p, true)
	if err != nil {
		return dead, err
	}
	f.keys = r.id
	return config{top: m.frame(f), mode: atKey, sub: 1}, nil
}

// nextItem asks for the next item of an array.
func (m *machine) nextItem(f frame, mayClose uint16) config {
	f.ask, f.within = m.ask(m.live.restrict(f, m.askKid(&f, 0))), true
	return config{top: m.frame(f), mode: atValue, sub: mayClose}
}

// between reads what separates members or items, or ends them.
func (m *machine) between(c config, b byte) (config, error) {
	f := m.frames[c.top]
	switch {
	case space(b):
		return c, nil
	case b == ',' && f.kind == frameArray:
		return m.nextItem(f, 0), nil
	case b == ',':
		return config{top: c.top, mode: atKey}, nil
	case b == ']' && f.kind == frameArray, b == '}' && f.kind == frameObject:
		return m.closeFrame(c.top)
	}
	return dead, nil
}

// closeFrame ends the object or array on top.
func (m *machine) closeFrame(top uint32) (config, error) {
	f := &m.frames[top]
	o := m.outcomeOf(f.goal, f.qs, m.atTheEnd)
	if !o.fits {
		return dead, nil
	}
	value := uint32(0)
	if f.record {
		value = m.composite(f)
	}
	return m.closed(f.up, o, value)
}

// closeValue ends a scalar with that canonical text.
func (m *machine) closeValue(top uint32, o outcome, text string) (config, error) {
	if !o.fits {
		return dead, nil
	}
	value := uint32(0)
	if m.asks[m.frames[top].ask].record {
		value = m.value(text)
	}
	return m.closed(top, o, value)
}

// closed tells the frame on top that the value within it has ended.
func (m *machine) closed(top uint32, o outcome, value uint32) (config, error) {
	f := m.frames[top]
	if f.kind == frameText {
		return config{top: top, mode: atEnd}, nil
	}
	if f.record {
		f.kept = m.trail(f.kept, value)
	}
	f = m.after(f, o.answers, value)
	if f.goal == no {
		return dead, nil
	}
	return config{top: m.frame(f), mode: afterValue}, nil
}

// quoted reads a byte of a string or key.
func (m *machine) quoted(c config, b byte) (config, error) {
	f := &m.frames[c.top]
	var r *reader
	var p *part
	record := f.record
	if c.mode == inKey {
		r = m.readerList[f.keys]
	} else {
		q := m.asks[f.ask]
		p = m.part(q, 4)
		r = p.reader
		record = q.record
	}
	c.lex = r.lex.Step(c.lex, b)
	if c.lex <= lexical.Lost {
		if c.lex == lexical.Lost {
			return dead, m.lexical(r.lex.Limit(), m.askedBy(r.texts, nil))
		}
		return dead, nil
	}
	if record {
		c.kept = m.trail(c.kept, uint32(b))
	}
	if b != '"' || !r.lex.Closed(c.lex) {
		return c, nil
	}
	id := m.classAt(r, lexical.Outcome{Vector: r.lex.Truth(c.lex), Label: r.lex.Label(c.lex)})
	if p != nil {
		text := ""
		if record {
			text = m.stringOf(c.kept)
		}
		return m.closeValue(c.top, m.stringOutcome(p, id), text)
	}
	kept := uint32(0)
	if record {
		kept = m.value(m.stringOf(c.kept))
	}
	c, _ = m.endKey(c.top, id, kept)
	return c, nil
}

// endKey begins the member whose key is of that class; false if there can be
// none.
func (m *machine) endKey(top, id, value uint32) (config, bool) {
	f := m.frames[top]
	key := keyed{top, id}
	to, known := uint32(0), false
	if !f.record {
		to, known = m.begun[key]
	}
	if w := m.classes[id].word; !known && (w == 0 || !m.sets.has(f.seen, w)) {
		f.goal = m.given(f.goal, id)
		if a := m.askKid(&f, id); a.goal != no {
			if w != 0 {
				f.seen = m.sets.add(f.seen, w)
			}
			if f.record {
				f.kept = m.trail(f.kept, value)
			}
			f.class = id
			f.ask, f.within = m.ask(m.live.restrict(f, a)), true
			to = m.frame(f)
		}
	}
	if !known && !f.record {
		m.begun[key] = to
	}
	if to == 0 {
		return dead, false
	}
	return config{top: to, mode: atColon}, true
}

// digit reads a byte of a number, or the first one after it.
func (m *machine) digit(c config, b byte) (config, error) {
	q := m.asks[m.frames[c.top].ask]
	p := m.part(q, 3)
	lex := p.tally.lex
	next := lex.Step(c.lex, b)
	switch {
	case next == lexical.Lost:
		return dead, m.lexical(lex.Limit(), m.askedBy(nil, p.tally.nums))
	case next != lexical.Dead:
		c.lex = next
		if q.record {
			c.kept = m.trail(c.kept, uint32(b))
		}
		return c, nil
	case !lex.Complete(c.lex):
		return dead, nil
	}
	text := ""
	if q.record {
		text = canonicalNumber(string(m.trailOfBytes(c.kept)))
	}
	c, err := m.closeValue(c.top, m.numberOutcome(p, lex.Truth(c.lex)), text)
	if err != nil || c == dead {
		return dead, err
	}
	return m.step(c, b)
}

// accepting tells whether the text may end at c.
func (m *machine) accepting(c config) bool {
	if c.mode != inNumber || m.frames[c.top].kind != frameText {
		return c.mode == atEnd
	}
	p := m.part(m.asks[m.frames[c.top].ask], 3)
	return p.tally.lex.Complete(c.lex) && m.numberOutcome(p, p.tally.lex.Truth(c.lex)).fits
}
