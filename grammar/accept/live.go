package accept

import "github.com/toolsidecar/sidecar/grammar/lexical"

// Whether a text can still be completed is asked of every state. The formulas
// that a frame is left with say what its value must still get; so the question
// is whether a formula has a value. It is answered exactly for conjunctions,
// by trying where there are alternatives, and where the search becomes too
// long or the reasons entangle with "perhaps", which counts as alive.

// An answer says whether there is a completion. The larger is the better one.
type answer uint8

const (
	unasked answer = iota
	never
	perhaps
	surely
)

func better(a, b answer) answer { return max(a, b) }
func worse(a, b answer) answer  { return min(a, b) }

type liveness struct {
	m     *machine
	some  map[expr]answer    // is there a value?
	open  map[expr]int       // being looked at, and how deep
	low   int                // the least deep of open that an answer relied on
	rest  map[remains]answer // can an open object or array be ended?
	frame map[uint32]answer  // can what a frame is within be read, and the frame ended?
	past  map[leaving]answer // the same after what it is within
	key   map[keyed]answer   // and with a key of that class
	sure  map[expr]set       // words with which there is a member that an object without a say on its other keys takes
	runs  map[uint64][]run   // of item rules
	loose [3][]answer        // by frame: see anything
	steps int                // of this search
	count int                // of searches that ended in perhaps
}

// remains is what an open object or array has before it.
type remains struct {
	goal   expr
	reader *reader // nil: array
	seen   set
}

type leaving struct {
	frame   uint32
	answers set
	value   uint32
}

type keyed struct{ frame, class uint32 }

func newLiveness(m *machine) *liveness {
	return &liveness{
		m: m, some: map[expr]answer{}, open: map[expr]int{}, rest: map[remains]answer{}, frame: map[uint32]answer{},
		past: map[leaving]answer{}, key: map[keyed]answer{}, sure: map[expr]set{}, runs: map[uint64][]run{}, low: 1 << 30,
	}
}

func (l *liveness) bytes() int {
	return 24 * (len(l.some) + len(l.frame) + 2*len(l.rest) + 2*len(l.past) + len(l.key) + len(l.sure))
}

// alive tells whether some text that goes on from c fits.
func (m *machine) alive(c config) bool {
	l := m.live
	work := m.work
	l.steps, m.work = 0, 0
	a := l.of(c)
	m.effort += l.steps + m.work
	m.work = work
	if a == perhaps {
		l.count++
	}
	return a != never
}

// tired tells whether the search has taken long enough.
func (l *liveness) tired() bool {
	return l.steps > l.m.limits.Search || l.m.work > l.m.limits.Work/4
}

func (l *liveness) of(c config) answer {
	m := l.m
	switch c.mode {
	case atEnd:
		return surely
	case atValue:
		f := &m.frames[c.top]
		if c.sub == 1 && m.truth(f.goal, m.atTheEnd) {
			return surely
		}
		return l.within(c.top)
	case atColon:
		return l.within(c.top)
	case inNull, inTrue, inFalse:
		q := m.asks[m.frames[c.top].ask]
		p := m.part(q, wordType(c.mode))
		o := m.outcomeOf(p.goal, p.qs, func(expr) bool { return false })
		return l.leave(c.top, o, m.recorded(q, words[c.mode]))
	case inString:
		if l.anything(c) == surely {
			return surely
		}
		f := &m.frames[c.top]
		p := m.part(m.asks[f.ask], 4)
		return l.strings(c.top, p, c.lex)
	case inNumber:
		if l.anything(c) == surely {
			return surely
		}
		f := &m.frames[c.top]
		p := m.part(m.asks[f.ask], 3)
		return l.numbers(c.top, p, c.lex)
	case atKey:
		f := &m.frames[c.top]
		if c.sub == 1 && m.truth(f.goal, m.atTheEnd) {
			return surely
		}
		r := m.readerList[f.keys]
		return l.keys(c.top, r.lex.Start())
	case inKey:
		if l.anything(c) == surely {
			return surely
		}
		return l.keys(c.top, c.lex)
	case afterValue:
		f := &m.frames[c.top]
		return l.ends(f)
	}
	return never
}

// anything tells of the frame of c what is true of all strings, keys or numbers
// there, whatever was read of them: that they can turn out to be one of those
// that matter to nothing, after which the frame can be ended. Otherwise it is
// perhaps.
func (l *liveness) anything(c config) answer {
	m := l.m
	at := 0
	switch c.mode {
	case inKey:
		at = 1
	case inNumber:
		at = 2
	}
	known := l.loose[at]
	if int(c.top) < len(known) && known[c.top] != unasked {
		return known[c.top]
	}
	a := perhaps
	switch c.mode {
	case inString:
		p := m.part(m.asks[m.frames[c.top].ask], 4)
		if record, _ := l.again(c.top); !record && p.reader.lex.OnlyLists() {
			a = l.leave(c.top, m.stringOutcome(p, m.classAt(p.reader, p.reader.lex.Other())), 0)
		}
	case inKey:
		r := m.readerList[m.frames[c.top].keys]
		if r.lex.OnlyLists() {
			a = l.behind(c.top, m.classAt(r, r.lex.Other()))
		}
	case inNumber:
		p := m.part(m.asks[m.frames[c.top].ask], 3)
		if record, _ := l.again(c.top); !record {
			switch {
			case len(p.tally.nums) == 0:
				a = l.leave(c.top, m.numberOutcome(p, ""), 0)
			case len(p.tally.nums) == 1 && m.nums[p.tally.nums[0]].op == numInteger: // any exponent may follow
				a = l.leave(c.top, m.numberOutcome(p, "\x01"), 0)
			}
		}
	}
	if a != surely {
		a = perhaps
	}
	if l.tired() && a != surely {
		return a
	}
	for len(known) < len(m.frames) {
		known = append(known, unasked)
	}
	known[c.top] = a
	l.loose[at] = known
	return a
}

func (m *machine) recorded(q *question, text string) uint32 {
	if q.record {
		return m.value(text)
	}
	return 0
}

// ends tells whether a frame that is within nothing can be ended.
func (l *liveness) ends(f *frame) answer {
	r := remains{goal: f.goal, seen: f.seen}
	if f.kind == frameObject {
		r.reader = l.m.readerList[f.keys]
	}
	return l.ended(r)
}

// within tells whether what a frame is within can be read, and the frame ended.
func (l *liveness) within(top uint32) answer {
	if a := l.frame[top]; a != unasked {
		return a
	}
	m := l.m
	f := m.frames[top]
	q := m.asks[f.ask]
	a := never
	if q.goal != no {
		a = l.kid(top, q)
	}
	if !l.tired() {
		l.frame[top] = a
	}
	return a
}

func (l *liveness) kid(top uint32, q *question) answer {
	m := l.m
	if q.qs == 0 && !q.record {
		a := l.exists(q.goal)
		if m.frames[top].kind == frameText || a == never {
			return a
		}
		return worse(a, l.leave(top, outcome{fits: true}, 0))
	}
	best := never
	for i, mo := range []mode{inNull, inFalse, inTrue} {
		p := m.part(q, i)
		o := m.outcomeOf(p.goal, p.qs, func(expr) bool { return false })
		if best = better(best, l.leave(top, o, m.recorded(q, words[mo]))); best == surely {
			return best
		}
	}
	if p := m.part(q, 4); p.goal != no {
		a := perhaps
		if r, err := m.readerOf(p, false); err == nil {
			a = l.strings(top, p, r.lex.Start())
		}
		best = better(best, a)
	}
	if p := m.part(q, 3); p.goal != no && best != surely {
		a := perhaps
		if t, err := m.tallyOf(p); err == nil {
			a = l.numbers(top, p, t.lex.Start())
		}
		best = better(best, a)
	}
	_, again := l.again(top)
	for _, i := range []int{5, 6} {
		if p := m.part(q, i); p.goal != no && best != surely {
			a := l.composite(top, p, types(1)<<i)
			if again && p.goal != yes {
				a = worse(a, perhaps)
			}
			best = better(best, a)
		}
	}
	return best
}

// maxAnswers bounds the questions of which all combinations of answers are
// tried: 2^4 formulas.
const maxAnswers = 4

// composite tries the answers that an object or array may give.
func (l *liveness) composite(top uint32, p *part, t types) answer {
	qs := l.m.lists.list[p.qs]
	if len(qs) > maxAnswers {
		return worse(l.existsOf(p.goal, t), perhaps)
	}
	best := never
	for bits := range 1 << len(qs) {
		goal := p.goal
		o := outcome{fits: true}
		for i, e := range qs {
			if bits>>i&1 == 0 {
				e = l.m.x.neg(e)
			} else {
				o.answers = l.m.sets.add(o.answers, uint32(i))
			}
			goal = l.m.x.and(goal, e)
		}
		a := l.existsOf(l.m.about(goal, t), t)
		if a != never {
			a = worse(a, l.leave(top, o, 0))
		}
		if best = better(best, a); best == surely {
			break
		}
	}
	return best
}

// restrict adds to what a member or item is asked that its answers must let f be
// ended.
func (l *liveness) restrict(f frame, a ask) ask {
	m, x := l.m, l.m.x
	qs := m.lists.list[a.qs]
	if len(qs) == 0 || len(qs) > maxAnswers || a.goal == no {
		return a
	}
	steps, work := l.steps, m.work
	l.steps, m.work = 0, 0
	defer func() { l.steps, m.work = steps, work }()
	f.ask, f.within = m.ask(a), true
	allowed, all := no, true
	for bits := range 1 << len(qs) {
		var answers set
		these := yes
		for i, e := range qs {
			if bits>>i&1 == 0 {
				e = x.neg(e)
			} else {
				answers = m.sets.add(answers, uint32(i))
			}
			these = x.and(these, e)
		}
		if these == no {
			continue
		}
		after := m.after(f, answers, 0)
		if l.ends(&after) == never {
			all = false
		} else {
			allowed = x.or(allowed, these)
		}
	}
	if !all {
		a.goal = x.and(a.goal, allowed)
	}
	return a
}

// leave tells whether a frame can be ended after what it is within gave o.
func (l *liveness) leave(top uint32, o outcome, value uint32) answer {
	if !o.fits {
		return never
	}
	m := l.m
	f := m.frames[top]
	if f.kind == frameText {
		return surely
	}
	key := leaving{top, o.answers, value}
	if a := l.past[key]; a != unasked {
		return a
	}
	f = m.after(f, o.answers, value)
	a := l.ends(&f)
	if !l.tired() {
		l.past[key] = a
	}
	return a
}

// again tells whether what a frame is within is recorded, and whether it stands
// among others that it may have to differ from.
func (l *liveness) again(top uint32) (record, others bool) {
	f := &l.m.frames[top]
	record = l.m.asks[f.ask].record
	return record, record && f.kind == frameArray && l.m.repeats(f.goal)
}

// strings tells whether a string read to q can end so that the frame can.
func (l *liveness) strings(top uint32, p *part, q lexical.State) answer {
	m := l.m
	record, again := l.again(top)
	return l.outcomes(p.reader, q, func(id uint32) answer {
		out := m.stringOutcome(p, id)
		if !out.fits {
			return never
		}
		value := uint32(0)
		if w := m.classes[id].word; record && w != 0 {
			value = m.value(`"` + m.words.list[w])
		}
		a := l.leave(top, out, value)
		if value == 0 && again && m.few(p) {
			a = worse(a, perhaps)
		}
		return a
	})
}

// outcomes gives the best that f says of the classes that a string read to q
// can turn out to be in, which is asked of those at hand first.
func (l *liveness) outcomes(r *reader, q lexical.State, f func(class uint32) answer) answer {
	best := never
	try := func(o lexical.Outcome) bool {
		if l.tired() {
			best = better(best, perhaps)
			return true
		}
		l.steps++
		best = better(best, f(l.m.classAt(r, o)))
		return best == surely
	}
	switch stopped, all := r.lex.Near(q, try); {
	case stopped:
		return best
	case all:
		return best
	}
	found, exact := r.lex.Reachable(q)
	for _, o := range found {
		if try(o) {
			return best
		}
	}
	return better(best, answerIf(exact))
}

// keys tells whether a key read to q can go on to a member after which the
// object can be ended.
func (l *liveness) keys(top uint32, q lexical.State) answer {
	m := l.m
	r := m.readerList[m.frames[top].keys]
	return l.outcomes(r, q, func(id uint32) answer { return l.behind(top, id) })
}

// behind tells whether a key of that class can go on to a member after which the
// object can be ended.
func (l *liveness) behind(top, class uint32) answer {
	key := keyed{top, class}
	a := l.key[key]
	if a == unasked {
		a = never
		if c, ok := l.m.endKey(top, class, 0); ok {
			a = l.within(c.top)
		}
		if !l.tired() {
			l.key[key] = a
		}
	}
	return a
}

// maxTally bounds the predicates on numbers of which it is looked at together
// what can still hold: that takes the square of their number.
const maxTally = 128

// numbers tells whether a number read to q can end so that the frame can.
func (l *liveness) numbers(top uint32, p *part, q lexical.State) answer {
	if len(p.tally.nums) > maxTally {
		return perhaps
	}
	record, again := l.again(top)
	try := func(v lexical.Vector) answer {
		out := l.m.numberOutcome(p, v)
		if !out.fits {
			return never
		}
		value := uint32(0)
		if record {
			value = l.m.known(p.tally, v)
		}
		a := l.leave(top, out, value)
		if value == 0 && again && l.m.few(p) {
			a = worse(a, perhaps)
		}
		return a
	}
	// Most often it may end right here, or soon.
	lex := p.tally.lex
	if lex.Near(q, func(v lexical.Vector) bool { return try(v) == surely }) {
		return surely
	}
	found, exact := lex.Reachable(q)
	best := answerIf(exact)
	for _, v := range found {
		if best = better(best, try(v)); best == surely {
			break
		}
	}
	return best
}
