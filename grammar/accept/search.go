package accept

import (
	"slices"

	"github.com/toolsidecar/sidecar/grammar/lexical"
)

// Whether a formula has a value: of alternatives one must have, and a
// conjunction is looked at as a whole.

func (l *liveness) ended(r remains) answer {
	if r.goal <= yes {
		return answerOf(r.goal == yes)
	}
	if l.m.truth(r.goal, l.m.atTheEnd) {
		return surely
	}
	if a := l.rest[r]; a != unasked {
		return a
	}
	if l.steps += 1 + len(l.m.x.conjuncts(r.goal))/16; l.tired() {
		return perhaps
	}
	low := l.low
	l.low = 1 << 30
	a := l.split(r)
	if a != never || l.low == 1<<30 {
		l.rest[r] = a
	}
	l.low = min(low, l.low)
	return a
}

func answerOf(b bool) answer {
	if b {
		return surely
	}
	return never
}

// split takes the alternatives of a goal one by one.
func (l *liveness) split(r remains) answer {
	x := l.m.x
	t := tArray
	if r.reader != nil {
		t = tObject
	}
	list := x.conjuncts(r.goal)
	for i, e := range list {
		n, alt := l.alternatives(e)
		if n == 0 {
			continue
		}
		others := x.and(slices.Delete(slices.Clone(list), i, i+1)...)
		best := never
		for k := range n {
			if l.tired() {
				return better(best, perhaps)
			}
			q := r
			q.goal = l.m.about(x.and(others, alt(k)), t)
			if best = better(best, l.ended(q)); best == surely {
				break
			}
		}
		return best
	}
	if r.reader == nil {
		return l.array(r, list)
	}
	return l.object(r, list)
}

// alternatives gives formulas of which one must be true for e to be; none if e
// is an atom or the opposite of one.
func (l *liveness) alternatives(e expr) (n int, alt func(int) expr) {
	m, x := l.m, l.m.x
	d := x.nodes[e]
	switch {
	case d.op == opOr:
		return len(d.args), func(i int) expr { return d.args[i] }
	case d.op == opOne:
		return len(d.args), func(i int) expr {
			l.steps += len(d.args) / 16
			return x.and(d.args[i], x.neg(x.or(slices.Delete(slices.Clone(d.args), i, i+1)...)))
		}
	case d.op != opNot:
		return 0, nil
	}
	switch d = x.nodes[d.args[0]]; {
	case d.op == opOne: // none, or two
		k := len(d.args)
		return 1 + k*k, func(i int) expr {
			if i == 0 {
				return x.neg(x.or(d.args...))
			}
			p, q := (i-1)/k, (i-1)%k
			if p <= q {
				l.steps++
				return no
			}
			return x.and(d.args[p], d.args[q])
		}
	case d.op == opHas && m.sets.len(set(d.n)) > 1:
		var words []uint32
		m.sets.each(set(d.n), func(w uint32) bool {
			words = append(words, w)
			return true
		})
		return len(words), func(i int) expr { return x.neg(x.atom(opHas, uint64(m.sets.of(words[i])))) }
	}
	return 0, nil
}

// exists tells whether there is a value of which e is true.
func (l *liveness) exists(e expr) answer {
	if e <= yes {
		return answerOf(e == yes)
	}
	if a := l.some[e]; a != unasked {
		return a
	}
	if depth, ok := l.open[e]; ok { // none, unless there is one without this
		l.low = min(l.low, depth)
		return never
	}
	if l.steps++; l.tired() || len(l.open) > maxBuildDepth {
		return perhaps
	}
	depth := len(l.open)
	l.open[e] = depth
	low := l.low
	l.low = 1 << 30
	best := never
	for i := range 7 {
		if best = better(best, l.existsOf(l.m.about(e, types(1)<<i), types(1)<<i)); best == surely {
			break
		}
	}
	delete(l.open, e)
	if best != never || l.low >= depth {
		if l.low >= depth {
			l.low = 1 << 30
		}
		if best != perhaps || !l.tired() {
			l.some[e] = best
		}
	}
	l.low = min(l.low, low)
	return best
}

// existsOf is exists for a formula about values of type t.
func (l *liveness) existsOf(e expr, t types) answer {
	m := l.m
	if e <= yes {
		return answerOf(e == yes)
	}
	switch t {
	case tString:
		if d := &m.x.nodes[e]; d.op == opStrIn || d.op == opStr && m.texts[d.n].op != textPattern {
			return answerOf(d.op == opStrIn || m.texts[d.n].some())
		}
		p := &part{goal: e}
		r, err := m.readerOf(p, false)
		if err != nil {
			return perhaps
		}
		return l.outcomes(r, r.lex.Start(), func(id uint32) answer { return answerOf(m.stringOutcome(p, id).fits) })
	case tNumber:
		if a := m.someNumber(m.x.conjuncts(e)); a != unasked {
			return a
		}
		p := &part{goal: e}
		t, err := m.tallyOf(p)
		if err != nil {
			return perhaps
		}
		return l.number(p, t.lex.Start())
	case tArray:
		return l.ended(remains{goal: e})
	case tObject:
		p := &part{goal: e}
		r, err := m.readerOf(p, true)
		if err != nil {
			return perhaps
		}
		return l.ended(remains{goal: e, reader: r})
	}
	return never
}

// answerIf is what to say when nothing was found: never if all was looked at.
func answerIf(exact bool) answer {
	if exact {
		return never
	}
	return perhaps
}

// object is ended for a goal without alternatives.
func (l *liveness) object(r remains, list []expr) answer {
	m, x := l.m, l.m.x
	var needed, lacks set
	var doubts []expr // of which some member must be false
	least, most := uint64(0), uint64(maxCount)
	for _, e := range list {
		d := &x.nodes[e]
		switch d.op {
		case opHas:
			needed = set(d.n)
		case opMinKeys:
			least = d.n
		case opMaxKeys:
			most = d.n
		case opNot:
			if a := &x.nodes[d.args[0]]; a.op == opHas {
				lacks = m.sets.combine(setUnion, lacks, set(a.n))
			} else {
				doubts = append(doubts, d.args[0])
			}
		}
	}
	n := uint64(m.sets.len(needed))
	if n > most || m.sets.combine(setBoth, needed, lacks) != 0 || m.sets.combine(setBoth, needed, r.seen) != 0 {
		return never
	}
	out := l.required(r, list, needed)
	if out == never {
		return never
	}
	if len(doubts) == 0 && n >= least {
		return out
	}
	found, exact := l.classes(r.reader)
	// Enough other members.
	want := max(least, n) - n
	if n+want > most {
		return never
	}
	if want > 0 {
		got, sure := uint64(0), uint64(0)
		for _, id := range found {
			w := m.classes[id].word
			if w != 0 && (m.sets.has(needed, w) || m.sets.has(r.seen, w)) {
				continue
			}
			k := uint64(1)
			a := l.member(r, list, lacks, id, nil)
			if w == 0 { // no end of keys, or as few as a pattern leaves
				k = want
				if want > 1 && len(r.reader.texts) > 0 {
					a = worse(a, perhaps)
				}
			}
			switch a {
			case surely:
				sure += k
				got += k
			case perhaps:
				got += k
			}
			if sure >= want {
				break
			}
		}
		if got < want && exact {
			return never
		}
		if sure < want {
			out = perhaps
		}
	}
	if len(doubts) == 0 {
		return out
	}
	return worse(out, l.settled(r, list, lacks, needed, doubts, want, most))
}

// required tells whether each of the needed members can have a value. What was
// found of a key is known to the states after: that a search has a limit only
// means that the first states of an object of many keys are perhaps alive.
func (l *liveness) required(r remains, list []expr, needed set) answer {
	m := l.m
	var about []expr // what members are asked
	for _, e := range list {
		switch m.x.nodes[e].op {
		case opMember, opNames, opFree:
			about = append(about, e)
		}
	}
	key := m.x.and(about...)
	sure := l.sure[key]
	out := surely
	m.sets.each(m.sets.combine(setMinus, needed, sure), func(w uint32) bool {
		if l.tired() {
			out = perhaps
			return false
		}
		a := l.member(r, list, 0, l.named(r.reader, w), nil)
		if a == surely {
			sure = m.sets.add(sure, w)
		}
		out = worse(out, a)
		return out != never
	})
	l.sure[key] = sure
	return out
}

// settled tells whether of each doubt some member can be false: one member of
// all, or one for each.
func (l *liveness) settled(r remains, list []expr, lacks, needed set, doubts []expr, want, most uint64) answer {
	m := l.m
	var first []uint32 // classes of the keys that must come
	m.sets.each(needed, func(w uint32) bool {
		first = append(first, l.named(r.reader, w))
		return true
	})
	for _, id := range first {
		if l.member(r, list, lacks, id, doubts) == surely {
			return surely
		}
	}
	n, more := uint64(len(first)), uint64(0)
	found, exact := l.classes(r.reader)
	taken := map[uint32]bool{}
	out := surely
	for _, e := range doubts {
		best, pick := answerIf(exact), uint32(0)
		for _, id := range append(first[:len(first):len(first)], found...) {
			w := m.classes[id].word
			if must := w != 0 && m.sets.has(needed, w); !must && n >= most {
				continue // no other member can come
			}
			a := l.member(r, list, lacks, id, []expr{e})
			best = better(best, a)
			if a == surely && (w == 0 || !taken[id]) {
				pick = id
				break
			}
		}
		switch {
		case best == never:
			return never
		case pick == 0:
			out = perhaps
			continue
		}
		taken[pick] = true
		if w := m.classes[pick].word; w == 0 || !m.sets.has(needed, w) {
			more++
		}
	}
	if n+max(more, want) > most {
		return perhaps
	}
	return out
}

// named is the class of a word.
func (l *liveness) named(r *reader, w uint32) uint32 {
	if i, ok := slices.BinarySearch(r.names, w); ok && len(r.texts) == 0 {
		return l.m.classAt(r, lexical.Outcome{Label: i})
	}
	text := l.m.words.list[w]
	q := r.lex.Start()
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"' || b == '\\':
			q = r.lex.Step(r.lex.Step(q, '\\'), b)
		case b < 0x20:
			const hex = "0123456789abcdef"
			for _, e := range []byte{'\\', 'u', '0', '0', hex[b>>4], hex[b&15]} {
				q = r.lex.Step(q, e)
			}
		default:
			q = r.lex.Step(q, b)
		}
	}
	q = r.lex.Step(q, '"')
	if q <= lexical.Lost {
		return 0
	}
	return l.m.classAt(r, lexical.Outcome{Vector: r.lex.Truth(q), Label: r.lex.Label(q)})
}

// classes are those that a key can turn out to be in.
func (l *liveness) classes(r *reader) ([]uint32, bool) {
	found, exact := r.lex.Reachable(r.lex.Start())
	ids := make([]uint32, len(found))
	for i, o := range found {
		ids[i] = l.m.classAt(r, o)
	}
	return ids, exact
}

// member tells whether there can be a member with a key of that class, of
// which all doubts are false.
func (l *liveness) member(r remains, list []expr, lacks set, class uint32, doubts []expr) answer {
	if class == 0 {
		return perhaps
	}
	if l.steps++; l.tired() {
		return perhaps
	}
	m, x := l.m, l.m.x
	if w := m.classes[class].word; w != 0 && (m.sets.has(lacks, w) || m.sets.has(r.seen, w)) {
		return never
	}
	goal, loose := yes, yes
	for _, e := range list {
		d := x.nodes[e]
		switch d.op {
		case opMember:
			goal = x.and(goal, m.member(m.memberSet.list[d.n], class))
		case opNames:
			if !m.textTruth(d.args[0], class) {
				return never
			}
		case opFree:
			covered := no
			for i, v := range m.coverSet.list[d.n] {
				if m.covers(&v, class) {
					covered = x.or(covered, d.args[i+1])
				}
			}
			if covered == no {
				goal = x.and(goal, d.args[0])
			} else if covered != yes {
				loose = x.and(loose, d.args[0])
			}
		}
	}
	out := surely
	for _, e := range doubts {
		switch d := x.nodes[e]; d.op {
		case opMember:
			goal = x.and(goal, x.neg(m.member(m.memberSet.list[d.n], class)))
		case opNames:
			if m.textTruth(d.args[0], class) {
				return never
			}
		default:
			goal = x.and(goal, x.neg(d.args[0]))
			out = perhaps
		}
		if goal == no {
			return never
		}
	}
	if loose == yes {
		return worse(out, l.exists(goal))
	}
	// Within the unevaluated keyword, or covered by what may turn out to hold.
	if a := l.exists(x.and(goal, loose)); a != never {
		return worse(out, a)
	}
	return worse(perhaps, l.exists(goal))
}

// array is ended for a goal without alternatives.
func (l *liveness) array(r remains, list []expr) answer {
	m, x := l.m, l.m.x
	least, most := uint64(0), uint64(maxCount)
	prefix := 0
	var unique *node
	var doubts []node // of which some item must be false
	out := surely
	for _, e := range list {
		d := &x.nodes[e]
		switch d.op {
		case opMin:
			least = max(least, d.n)
		case opMax:
			most = d.n
		case opItems:
			prefix = max(prefix, len(m.itemSet.list[d.n].prefix)-int(d.m))
		case opUnique:
			u := *d
			unique = &u
		case opRest:
			for _, v := range m.coverSet.list[d.n] {
				prefix = max(prefix, int(v.items))
			}
			out = perhaps
		case opNot:
			doubt := x.nodes[d.args[0]]
			if doubt.op != opItems {
				out = perhaps
				break
			}
			prefix = max(prefix, len(m.itemSet.list[doubt.n].prefix)-int(doubt.m))
			doubts = append(doubts, doubt)
		case opFew:
			if d.n > 0 {
				out = perhaps
			}
		}
	}
	if least > most {
		return never
	}
	// How long it can get, item by item through the prefix.
	at := func(i int) expr {
		goal := yes
		for _, e := range list {
			d := x.nodes[e]
			switch {
			case d.op == opItems:
				goal = x.and(goal, m.itemSet.list[d.n].at(d.m+uint32(i)))
			case d.op == opFew && d.n == 0:
				goal = x.and(goal, x.neg(d.args[0]))
			case d.op == opRest:
				goal = x.and(goal, m.surelyLeft(d, i))
			}
		}
		return goal
	}
	length := uint64(maxCount)
	if rule, off, ok := l.lone(list); ok {
		if n := l.itemsFrom(rule, off); n.length < length {
			length = n.length
		} else {
			out = worse(out, n.sure)
		}
	} else {
		for i := 0; i <= prefix && uint64(i) < most; i++ {
			if l.steps++; l.tired() {
				return perhaps
			}
			a := l.exists(at(i))
			if a == never {
				length = uint64(i)
				break
			}
			out = worse(out, a)
		}
	}
	length = min(length, most)
	if unique != nil {
		if n, finite := l.distinct(at(prefix), set(unique.n)); finite {
			if prefix == 0 {
				length = min(length, n)
			} else {
				length = min(length, n+uint64(prefix))
				out = worse(out, perhaps)
			}
		}
	}
	if length < least {
		return never
	}
	// Items for contains.
	somes := 0
	for _, e := range list {
		d := x.nodes[e]
		if d.op != opSome {
			continue
		}
		somes++
		got, sure := uint64(0), uint64(0)
		for i := 0; i <= prefix && uint64(i) < length && sure < d.n; i++ {
			k := uint64(1)
			if i == prefix {
				k = length - uint64(i)
			}
			switch l.exists(x.and(at(i), d.args[0])) {
			case surely:
				sure += k
				got += k
			case perhaps:
				got += k
			}
		}
		if got < d.n {
			return never
		}
		if sure < d.n {
			out = perhaps
		}
	}
	for _, d := range doubts {
		best := never
		for i := 0; i <= prefix && uint64(i) < length && best != surely; i++ {
			best = better(best, l.exists(x.and(at(i), x.neg(m.itemSet.list[d.n].at(d.m+uint32(i))))))
		}
		out = worse(out, best)
	}
	if somes += len(doubts); somes > 1 || somes == 1 && unique != nil {
		out = worse(out, perhaps)
	}
	return out
}

// lone gives the opItems of a goal in which nothing else is about single items.
func (l *liveness) lone(list []expr) (rule uint64, off uint32, ok bool) {
	for _, e := range list {
		switch d := &l.m.x.nodes[e]; d.op {
		case opItems:
			if ok {
				return 0, 0, false
			}
			rule, off, ok = d.n, d.m, true
		case opMin, opMax, opUnique:
		default:
			return 0, 0, false
		}
	}
	return rule, off, ok
}

// A run is how many items there can be from one on, and whether that is
// certain if there is no end to them.
type run struct {
	length uint64
	sure   answer
}

// itemsFrom is the run of a rule from an item on.
func (l *liveness) itemsFrom(rule uint64, off uint32) run {
	runs, ok := l.runs[rule]
	if !ok {
		r := l.m.itemSet.list[rule]
		runs = make([]run, len(r.prefix)+1)
		low := l.low
		l.low = 1 << 30
		for i := len(r.prefix); i >= 0; i-- {
			a := l.exists(r.at(uint32(i)))
			switch {
			case a == never:
				runs[i] = run{0, surely}
			case i == len(r.prefix):
				runs[i] = run{maxCount, a}
			default:
				next := runs[i+1]
				runs[i] = run{min(next.length+1, maxCount), worse(a, next.sure)}
			}
		}
		if l.low == 1<<30 && !l.tired() {
			l.runs[rule] = runs
		}
		l.low = min(l.low, low)
	}
	return runs[min(int(off), len(runs)-1)]
}

// surelyLeft is what an opRest asks of item i if nothing can have it covered.
func (m *machine) surelyLeft(d node, i int) expr {
	for _, v := range m.coverSet.list[d.n] {
		if v.all || v.some != no || int(v.items) > i {
			return yes
		}
	}
	return d.args[0]
}

// distinct counts the values of e that are not in used, if they are few.
func (l *liveness) distinct(e expr, used set) (uint64, bool) {
	m := l.m
	n := uint64(0)
	for i, mo := range []mode{inNull, inFalse, inTrue} {
		if m.about(e, types(1)<<i) == yes && !m.sets.has(used, m.value(words[mo])) {
			n++
		}
	}
	if s := m.about(e, tString); s != no {
		d := m.x.nodes[s]
		if d.op != opStrIn {
			return 0, false
		}
		m.sets.each(set(d.n), func(w uint32) bool {
			if !m.sets.has(used, m.value(`"`+m.words.list[w])) {
				n++
			}
			return true
		})
	}
	if e := m.about(e, tNumber); e != no {
		equal, ok := m.equals(e)
		if !ok {
			return 0, false
		}
		for _, p := range equal {
			if !m.sets.has(used, m.value(canonicalNumber(p.val))) {
				n++
			}
		}
	}
	if m.about(e, tArray) != no || m.about(e, tObject) != no {
		return 0, false
	}
	return n, true
}

// number tells whether a number read to q can turn out as p wants.
func (l *liveness) number(p *part, q lexical.State) answer {
	if len(p.tally.nums) > maxTally {
		return perhaps
	}
	found, exact := p.tally.lex.Reachable(q)
	for _, v := range found {
		if l.m.numberOutcome(p, v).fits {
			return surely
		}
	}
	return answerIf(exact)
}
