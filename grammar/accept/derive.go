package accept

import "slices"

// What is left of a formula about an object or array once a member or item was
// read is a formula again. It is found in two steps: first which questions the
// member or item must be asked, then, with the answers, what is left.

// A kid is the member or item that comes next.
type kid struct {
	m     *machine
	class uint32 // of the key; 0: an item
	goal  map[expr]expr
	qs    exprList
	seen  map[expr]bool
	fixed []expr // known to be true
}

// ask gives the question for a member with a key of that class, or for an item.
func (m *machine) askKid(f *frame, class uint32) ask {
	if f.goal == yes && f.qs == 0 {
		return ask{goal: yes, record: f.record}
	}
	k := kid{m: m, class: class}
	a := ask{goal: yes, record: f.record}
	plain := f.qs == 0
	for _, e := range m.x.conjuncts(f.goal) {
		switch m.x.nodes[e].op {
		case opMember, opItems:
			c := k.asked(e)
			a.goal = m.x.and(a.goal, c)
			k.fixed = append(k.fixed, c)
		case opHas, opMinKeys, opMin:
		case opMaxKeys, opMax:
			if m.x.nodes[e].n == 0 {
				return ask{goal: no}
			}
		case opNames:
			if !m.textTruth(m.x.nodes[e].args[0], class) {
				return ask{goal: no}
			}
		case opUnique:
			a.record = true
			plain = false
		default:
			plain = false
		}
	}
	if plain {
		return a
	}
	k.seen, k.goal = map[expr]bool{}, map[expr]expr{}
	a.goal = k.need(f.goal)
	k.questions(f.goal)
	for _, e := range m.lists.list[f.qs] {
		k.questions(e)
		a.record = a.record || m.mentions(e, opUnique)
	}
	a.record = a.record || m.mentions(f.goal, opUnique)
	slices.Sort(k.qs)
	k.qs = slices.DeleteFunc(slices.Compact(k.qs), func(e expr) bool { return e <= yes || slices.Contains(k.fixed, e) })
	a.qs = uint32(m.lists.id(k.qs))
	return a
}

// mentions tells whether there is an atom of that kind in e.
func (m *machine) mentions(e expr, o op) bool {
	d := &m.x.nodes[e]
	m.work++
	switch d.op {
	case o:
		return true
	case opAnd, opOr, opOne, opNot:
		return slices.ContainsFunc(d.args, func(a expr) bool { return m.mentions(a, o) })
	case opFree, opRest:
		return slices.ContainsFunc(d.args[1:], func(a expr) bool { return m.mentions(a, o) })
	}
	return false
}

// repeats tells whether an item of an array is remembered that another may
// have to differ from.
func (m *machine) repeats(goal expr) bool {
	for _, e := range m.x.conjuncts(goal) {
		if d := &m.x.nodes[e]; d.op == opUnique && d.n != 0 {
			return true
		}
	}
	return false
}

// asked is what an opMember or opItems asks of the kid.
func (k *kid) asked(e expr) expr {
	d := &k.m.x.nodes[e]
	if d.op == opItems {
		return k.m.itemSet.list[d.n].at(d.m)
	}
	return k.m.member(k.m.memberSet.list[d.n], k.class)
}

// member is the question that r has for values of keys of that class.
func (m *machine) member(r *memberRule, class uint32) expr {
	c := &m.classes[class]
	e, named := yes, false
	if c.word != 0 {
		if v, ok := r.named(c.word); ok {
			e, named = v, true
		}
	}
	for _, p := range r.patterns {
		if m.holds(class, p.text) {
			e, named = m.x.and(e, p.e), true
		}
	}
	if !named {
		return r.rest
	}
	return e
}

// covered tells whether a cover has keys of that class.
func (m *machine) covers(v *cover, class uint32) bool {
	if v.all || m.classes[class].word != 0 && m.sets.has(v.keys, m.classes[class].word) {
		return true
	}
	return slices.ContainsFunc(v.patterns, func(p uint32) bool { return m.holds(class, p) })
}

// need is what must be true of the kid for e to become true, as far as that
// can be said by a formula about the kid.
func (k *kid) need(e expr) expr {
	if e <= yes {
		return e
	}
	if f, ok := k.goal[e]; ok {
		return f
	}
	m, x := k.m, k.m.x
	m.work++
	d := x.nodes[e]
	f := yes
	switch d.op {
	case opAnd, opOr, opOne:
		parts := make([]expr, len(d.args))
		for i, a := range d.args {
			parts[i] = k.need(a)
		}
		if d.op == opAnd {
			f = x.and(parts...)
		} else {
			f = x.or(parts...)
		}
	case opNot:
		if a := &x.nodes[d.args[0]]; a.op == opHas && m.classes[k.class].word != 0 && a.n == uint64(m.sets.of(m.classes[k.class].word)) {
			f = no
		}
	case opMember, opItems:
		f = k.asked(e)
	case opNames:
		if !m.textTruth(d.args[0], k.class) {
			f = no
		}
	case opMaxKeys, opMax:
		if d.n == 0 {
			f = no
		}
	case opFew:
		if d.n == 0 {
			f = x.neg(d.args[0])
		}
	case opFree, opRest:
		f = d.args[0]
		for i, v := range m.coverSet.list[d.n] {
			f = x.or(f, x.and(k.need(d.args[i+1]), k.reach(d.op, &v)))
		}
	}
	k.goal[e] = f
	return f
}

// reach is what must be true of the kid for a cover to have it.
func (k *kid) reach(o op, v *cover) expr {
	switch {
	case o == opFree:
		if k.m.covers(v, k.class) {
			return yes
		}
		return no
	case v.all || v.items > 0:
		return yes
	}
	return v.some
}

// questions gathers what the kid is asked.
func (k *kid) questions(e expr) {
	if e <= yes || k.seen[e] {
		return
	}
	k.seen[e] = true
	m := k.m
	m.work++
	d := m.x.nodes[e]
	switch d.op {
	case opAnd, opOr, opOne, opNot:
		for _, a := range d.args {
			k.questions(a)
		}
	case opMember, opItems:
		k.qs = append(k.qs, k.asked(e))
	case opSome, opFew:
		k.qs = append(k.qs, d.args[0])
	case opFree, opRest:
		sure := false
		for i, v := range m.coverSet.list[d.n] {
			k.questions(d.args[i+1])
			r := k.reach(d.op, &v)
			k.qs = append(k.qs, r)
			sure = sure || r == yes && d.args[i+1] == yes
		}
		if !sure {
			k.qs = append(k.qs, d.args[0])
		}
	}
}

// given is e where it is known that there is a member with a key of that class:
// what can't be true of any such object is no. So alternatives that the key
// rules out need not be asked about its value.
func (m *machine) given(e expr, class uint32) expr {
	if e <= yes {
		return e
	}
	x := m.x
	d := &x.nodes[e]
	switch d.op {
	case opMember:
		if m.member(m.memberSet.list[d.n], class) == no {
			return no
		}
		return e
	case opNames:
		if !m.textTruth(d.args[0], class) {
			return no
		}
		return e
	case opMaxKeys:
		if d.n == 0 {
			return no
		}
		return e
	case opAnd, opOr:
	default:
		return e
	}
	key := keyed{uint32(e), class}
	if f, ok := m.givens[key]; ok {
		return f
	}
	m.work++
	o, args := d.op, d.args
	parts := make([]expr, len(args))
	same := true
	for i, a := range args {
		parts[i] = m.given(a, class)
		same = same && parts[i] == a
	}
	f := e
	switch {
	case same:
	case o == opAnd:
		f = x.and(parts...)
	default:
		f = x.or(parts...)
	}
	m.givens[key] = f
	return f
}

// A reply is what is known of a kid that was read.
type reply struct {
	m       *machine
	class   uint32
	asked   exprList
	answers set
	value   uint32 // if recorded
	memo    map[expr]expr
}

// A derivation is a formula and a kid that was read, for which what is left
// was found out.
type derivation struct {
	e       expr
	class   uint32
	qs      uint32
	answers set
	value   uint32
}

func (r *reply) of(e expr) bool {
	if e <= yes {
		return e == yes
	}
	i, ok := slices.BinarySearch(r.asked, e)
	return !ok || r.m.sets.has(r.answers, uint32(i))
}

// left is what is left of e.
func (r *reply) left(e expr) expr {
	if e <= yes {
		return e
	}
	if f, ok := r.memo[e]; ok {
		return f
	}
	m, x := r.m, r.m.x
	m.work++
	d := x.nodes[e]
	f := e
	switch d.op {
	case opAnd, opOr, opOne, opNot:
		parts := make([]expr, len(d.args))
		same := true
		for i, a := range d.args {
			parts[i] = r.left(a)
			same = same && parts[i] == a
		}
		switch {
		case same:
		case d.op == opAnd:
			f = x.and(parts...)
		case d.op == opOr:
			f = x.or(parts...)
		case d.op == opOne:
			f = x.one(parts...)
		default:
			f = x.neg(parts[0])
		}
	case opMember:
		if !r.of(m.member(m.memberSet.list[d.n], r.class)) {
			f = no
		}
	case opNames:
		if !m.textTruth(d.args[0], r.class) {
			f = no
		}
	case opHas:
		if w := m.classes[r.class].word; w != 0 && m.sets.has(set(d.n), w) {
			f = x.atom(opHas, uint64(m.sets.remove(set(d.n), w)))
		}
	case opMinKeys, opMin:
		f = x.atom(d.op, d.n-1)
	case opMaxKeys, opMax:
		f = no
		if d.n > 0 {
			f = x.atom(d.op, d.n-1)
		}
	case opItems:
		rule := m.itemSet.list[d.n]
		switch {
		case !r.of(rule.at(d.m)):
			f = no
		case int(d.m) < len(rule.prefix):
			f = x.intern(opItems, d.n, d.m+1, nil)
			if int(d.m)+1 == len(rule.prefix) && rule.rest == yes {
				f = yes
			}
		}
	case opSome:
		if r.of(d.args[0]) {
			f = x.atom(opSome, d.n-1, d.args[0])
		}
	case opFew:
		if r.of(d.args[0]) {
			f = no
			if d.n > 0 {
				f = x.atom(opFew, d.n-1, d.args[0])
			}
		}
	case opUnique:
		f = no
		if !m.sets.has(set(d.n), r.value) {
			f = x.intern(opUnique, uint64(m.sets.add(set(d.n), r.value)), 0, nil)
		}
	case opFree, opRest:
		f = r.uncovered(e, &d)
	}
	t := tObject
	if r.class == 0 {
		t = tArray
	}
	f = m.bare(f, t)
	if f != e && (d.op == opOne || d.op == opNot) {
		f = m.about(f, t)
	}
	r.memo[e] = f
	return f
}

// uncovered is what is left of an opFree or opRest: the kid must fit, or one of
// the covers that have it must turn out to hold.
func (r *reply) uncovered(e expr, d *node) expr {
	m, x := r.m, r.m.x
	old := m.coverSet.list[d.n]
	when := make([]expr, len(old))
	next := make(coverage, len(old))
	held := no
	for i, v := range old {
		when[i] = r.left(d.args[i+1])
		has := false
		switch {
		case d.op == opFree:
			has = m.covers(&v, r.class)
		case v.all || v.items > 0:
			has = true
			v.items -= min(v.items, 1)
		default:
			has = r.of(v.some)
		}
		next[i] = v
		if has {
			held = x.or(held, when[i])
		}
	}
	for i := len(old) - 1; i >= 0; i-- {
		if v := &next[i]; d.op == opRest && !v.all && v.items == 0 && v.some == no {
			next = slices.Delete(next, i, i+1)
			when = slices.Delete(when, i, i+1)
		}
	}
	rest := m.left(d.op, d.args[0], next, when)
	if held == yes || r.of(d.args[0]) {
		return rest
	}
	return x.and(rest, held)
}

// after is f once the kid that it was within has been read.
func (m *machine) after(f frame, answers set, value uint32) frame {
	q := m.asks[f.ask]
	key := derivation{class: f.class, qs: q.qs, answers: answers, value: value}
	if !m.record(f.goal, f.qs) {
		key.value = 0
	}
	r := &reply{m: m, class: f.class, asked: m.lists.list[q.qs], answers: answers, value: value}
	left := func(e expr) expr {
		if e <= yes {
			return e
		}
		key.e = e
		if g, ok := m.derived[key]; ok {
			return g
		}
		if r.memo == nil {
			r.memo = map[expr]expr{}
		}
		g := r.left(e)
		m.derived[key] = g
		return g
	}
	f.goal = left(f.goal)
	if f.qs != 0 {
		qs := slices.Clone(m.lists.list[f.qs])
		for i, e := range qs {
			qs[i] = left(e)
		}
		f.qs = uint32(m.lists.id(qs))
	}
	f.class, f.ask, f.within = 0, 0, false
	return f
}

func (m *machine) record(goal expr, qs uint32) bool {
	return m.mentions(goal, opUnique) || slices.ContainsFunc(m.lists.list[qs], func(e expr) bool { return m.mentions(e, opUnique) })
}
