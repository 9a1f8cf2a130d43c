package lexical

import (
	"encoding/binary"
	"slices"
)

// A term is a set of texts that may still follow, by index into runner.terms;
// equal terms have equal indexes. Its derivative by a character is the term of
// what may follow that character (Brzozowski 1964). Conjunction and complement
// are as cheap as alternation, which is what lookaheads need; a repeat is one
// term with its bounds, however large they are.
type term = int32

const (
	none  term = iota // no text
	all               // any text
	empty             // the empty text
)

type kind uint8

const (
	kNone kind = iota
	kAll
	kEmpty
	kSet    // a: set
	kCat    // a then b; a is no kCat
	kOr     // list
	kAnd    // list
	kNot    // a
	kLoop   // min to max rounds of a
	kStart  // ^
	kEnd    // $
	kWord   // \b; b 1: \B
	kAhead  // a follows; b 1: does not
	kBehind // lookbehind a holds; b 1: does not
)

type entry struct {
	kind     kind
	a, b     term
	min, max int32
	list     []term
	flags    uint8
}

const (
	always   = 1 << iota // matches the empty text anywhere
	never                // matches the empty text nowhere
	looks                // has a lookahead
	hasStart             // has ^
)

// A place is what stands around a position: one int, so that it can be a key.
type place uint32

const (
	atStart  place = 1 << iota // nothing before
	wordHere                   // the last character is one of \w
	atEnd                      // nothing after
	wordNext                   // the next character is one of \w
	behinds                    // first of the bits of lookbehinds that hold
)

// A runner is the automaton of one program, made as it is used. It is guarded
// by the mutex of the machine that it belongs to.
type runner struct {
	p       *program
	lim     Limits
	terms   []entry
	ids     map[string]term
	scratch []byte
	derived map[derivation]term
	empties map[derivation]bool
	settled map[term]term
	behind  []term
	states  []runState
	index   map[string]int32
	bytes   int
	work    int  // terms looked at, see Limits.Work
	over    bool // Limits.Width or Limits.Work was reached
}

type derivation struct {
	t     term
	class int32 // -1: end
	at    place
}

type runState struct {
	t      term
	behind []term // of the lookbehinds
	at     place  // atStart and wordHere only
	next   []int32
	holds  int8 // at the end: 0 not known, 1 yes, -1 no
}

func newRunner(p *program, lim Limits) *runner {
	r := &runner{
		p: p, lim: lim, ids: map[string]term{}, derived: map[derivation]term{}, empties: map[derivation]bool{},
		settled: map[term]term{}, index: map[string]int32{},
		terms: []entry{{kind: kNone, flags: never}, {kind: kAll, flags: always}, {kind: kEmpty, flags: always}},
	}
	r.behind = make([]term, len(p.behinds))
	for i, n := range p.behinds {
		r.behind[i] = r.cat(all, r.build(n))
	}
	root := r.cat(all, r.cat(r.build(p.root), all))
	at := atStart
	r.state(root, r.behind, at)
	return r
}

func (r *runner) build(n *node) term {
	neg := term(0)
	if n.neg {
		neg = 1
	}
	switch n.op {
	case opEmpty:
		return empty
	case opSet:
		if len(n.set) == 0 {
			return none
		}
		return r.intern(entry{kind: kSet, a: term(r.p.sets[n]), flags: never})
	case opCat:
		t := empty
		for _, s := range slices.Backward(n.sub) {
			t = r.cat(r.build(s), t)
		}
		return t
	case opAlt:
		ts := make([]term, len(n.sub))
		for i, s := range n.sub {
			ts[i] = r.build(s)
		}
		return r.or(ts)
	case opLoop:
		return r.loop(r.build(n.sub[0]), int32(n.min), int32(n.max))
	case opStart:
		return r.intern(entry{kind: kStart, flags: hasStart})
	case opEnd:
		return r.intern(entry{kind: kEnd})
	case opWord:
		return r.intern(entry{kind: kWord, b: neg})
	case opAhead:
		a := r.cat(r.build(n.sub[0]), all)
		if a == none || a == all {
			if (a == all) != n.neg {
				return empty
			}
			return none
		}
		return r.intern(entry{kind: kAhead, a: a, b: neg, flags: looks | r.terms[a].flags&hasStart})
	case opBehind:
		return r.intern(entry{kind: kBehind, a: term(r.p.behind[n]), b: neg})
	}
	panic("lexical: unknown op")
}

func (r *runner) intern(e entry) term {
	k := append(r.scratch[:0], byte(e.kind))
	for _, v := range [...]int32{e.a, e.b, e.min, e.max} {
		k = binary.AppendVarint(k, int64(v))
	}
	for _, t := range e.list {
		k = binary.AppendUvarint(k, uint64(t))
	}
	r.scratch = k
	if t, ok := r.ids[string(k)]; ok {
		return t
	}
	t := term(len(r.terms))
	r.terms = append(r.terms, e)
	r.ids[string(k)] = t
	r.bytes += 120 + len(k) + 4*len(e.list)
	return t
}

func (r *runner) cat(a, b term) term {
	switch {
	case a == none || b == none:
		return none
	case a == empty:
		return b
	case b == empty:
		return a
	case a == all && b == all:
		return all
	}
	x := &r.terms[a]
	if x.kind == kCat {
		return r.cat(x.a, r.cat(x.b, b))
	}
	if b == all && x.flags&looks == 0 {
		if x.flags&always != 0 {
			return all
		}
		if x.kind == kLoop && x.min != x.max {
			return r.cat(r.loop(x.a, x.min, x.min), all)
		}
	}
	y := &r.terms[b]
	flags := (x.flags | y.flags) & (looks | hasStart | never)
	flags |= x.flags & y.flags & always
	return r.intern(entry{kind: kCat, a: a, b: b, flags: flags})
}

// spread is cat, with alternatives of a apart.
func (r *runner) spread(a, b term) term {
	if r.terms[a].kind != kOr {
		return r.cat(a, b)
	}
	list := r.terms[a].list
	ts := make([]term, len(list))
	for i, t := range list {
		ts[i] = r.spread(t, b)
	}
	return r.or(ts)
}

func (r *runner) loop(a term, lo, hi int32) term {
	x := r.terms[a]
	switch {
	case hi == 0 || a == empty:
		return empty
	case a == none && lo == 0:
		return empty
	case a == none:
		return none
	case a == all:
		return all
	case lo == 1 && hi == 1:
		return a
	case x.kind == kSet && lo == 0 && hi < 0 && r.p.members[x.a] != nil && r.full(x.a):
		return all
	}
	if x.flags&always != 0 && x.flags&looks == 0 {
		lo = 0
		if hi == 1 {
			return a
		}
	}
	if x.kind == kLoop && x.flags&looks == 0 {
		if l, h, ok := flatten(x, lo, hi); ok {
			return r.loop(x.a, l, h)
		}
	}
	flags := x.flags & (looks | hasStart | never)
	if lo == 0 {
		flags = flags&^never | always
	} else {
		flags |= x.flags & always
	}
	return r.intern(entry{kind: kLoop, a: a, min: lo, max: hi, flags: flags})
}

// full tells whether a set has all characters.
func (r *runner) full(set term) bool {
	for c := range r.p.count {
		if !in(r.p.members[set], c) {
			return false
		}
	}
	return true
}

// flatten makes one loop of two, (R{a,b}){lo,hi}, if the numbers of rounds have
// no gaps: k rounds of a to b are ka to kb, and the next k must follow at once.
func flatten(x entry, lo, hi int32) (l, h int32, ok bool) {
	a, b := int64(x.min), int64(x.max)
	k := int64(lo)
	if k == 0 {
		if a > 1 {
			return 0, 0, false
		}
		k = 1
	}
	if b >= 0 && int64(hi) != k && (k+1)*a > k*b+1 {
		return 0, 0, false
	}
	low, high := int64(lo)*a, int64(-1)
	if b >= 0 && hi >= 0 {
		high = int64(hi) * b
	}
	if low > maxRepeat {
		return 0, 0, false
	}
	if high > maxRepeat {
		high = -1
	}
	return int32(low), int32(high), true
}

// or is the union. Among repeats of the same before the same, those that
// follow one another are one: a state of [a-z]{1000}$ is a range of counts.
func (r *runner) or(ts []term) term {
	list := make([]term, 0, len(ts))
	for _, t := range ts {
		if e := &r.terms[t]; e.kind == kOr {
			list = append(list, e.list...)
		} else if t == all {
			return all
		} else if t != none {
			list = append(list, t)
		}
	}
	r.work += 1 + len(list)
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > 1 {
		list = r.mergeLoops(list)
	}
	for _, t := range list {
		if t == all {
			return all
		}
		if r.terms[t].kind == kNot {
			if _, ok := slices.BinarySearch(list, r.terms[t].a); ok {
				return all
			}
		}
	}
	switch len(list) {
	case 0:
		return none
	case 1:
		return list[0]
	}
	r.over = r.over || len(list) > r.lim.Width || r.work > r.lim.Work
	return r.intern(entry{kind: kOr, list: list, flags: r.joint(list, never, always)})
}

// joint is the flags of a list: those of each, if all have every, and those
// that one alone gives.
func (r *runner) joint(list []term, every, some uint8) uint8 {
	and, or := uint8(0xFF), uint8(0)
	for _, t := range list {
		and &= r.terms[t].flags
		or |= r.terms[t].flags
	}
	return and&every | or&(some|looks|hasStart)
}

type repeat struct {
	body, rest term
	lo, hi     int32
}

// asRepeat takes t as rounds of something before something.
func (r *runner) asRepeat(t term) (repeat, bool) {
	rest := empty
	if e := &r.terms[t]; e.kind == kCat {
		t, rest = e.a, e.b
	}
	switch e := &r.terms[t]; {
	case e.kind == kLoop && e.flags&looks == 0:
		return repeat{e.a, rest, e.min, e.max}, true
	case e.kind == kSet:
		return repeat{t, rest, 1, 1}, true
	}
	return repeat{}, false
}

func (r *runner) mergeLoops(list []term) []term {
	var reps []repeat
	kept := list[:0:0]
	loops := false
	for _, t := range list {
		if rep, ok := r.asRepeat(t); ok {
			reps = append(reps, rep)
			loops = loops || rep.lo != 1 || rep.hi != 1
		} else {
			kept = append(kept, t)
		}
	}
	// What a repeat of no round is already holds.
	optional := map[term]bool{}
	for _, rep := range reps {
		if rep.lo == 0 {
			optional[rep.rest] = true
		}
	}
	for _, t := range list {
		if e := &r.terms[t]; e.kind == kCat && e.a == all {
			optional[e.b] = true
		}
	}
	if !loops && len(optional) == 0 {
		return list
	}
	slices.SortFunc(reps, func(x, y repeat) int {
		switch {
		case x.body != y.body:
			return int(x.body) - int(y.body)
		case x.rest != y.rest:
			return int(x.rest) - int(y.rest)
		}
		return int(x.lo) - int(y.lo)
	})
	out := reps[:0]
	for _, x := range reps {
		if n := len(out); n > 0 && out[n-1].body == x.body && out[n-1].rest == x.rest {
			last := &out[n-1]
			if x.rest == all {
				continue // the fewest rounds say it all
			}
			if last.hi < 0 || x.lo <= last.hi+1 {
				if last.hi >= 0 && (x.hi < 0 || x.hi > last.hi) {
					last.hi = x.hi
				}
				continue
			}
		}
		out = append(out, x)
	}
	for _, x := range out {
		kept = append(kept, r.cat(r.loop(x.body, x.lo, x.hi), x.rest))
	}
	kept = slices.DeleteFunc(kept, func(t term) bool { return optional[t] })
	slices.Sort(kept)
	return slices.Compact(kept)
}

func (r *runner) and(ts []term) term {
	list := make([]term, 0, len(ts))
	for _, t := range ts {
		if e := &r.terms[t]; e.kind == kAnd {
			list = append(list, e.list...)
		} else if t == none {
			return none
		} else if t != all {
			list = append(list, t)
		}
	}
	r.work += 1 + len(list)
	slices.Sort(list)
	list = slices.Compact(list)
	for _, t := range list {
		if r.terms[t].kind == kNot {
			if _, ok := slices.BinarySearch(list, r.terms[t].a); ok {
				return none
			}
		}
	}
	switch len(list) {
	case 0:
		return all
	case 1:
		return list[0]
	}
	r.over = r.over || len(list) > r.lim.Width || r.work > r.lim.Work
	return r.intern(entry{kind: kAnd, list: list, flags: r.joint(list, always, never)})
}

func (r *runner) not(t term) term {
	switch e := &r.terms[t]; {
	case t == none:
		return all
	case t == all:
		return none
	case e.kind == kNot:
		return e.a
	}
	f := r.terms[t].flags
	flags := f & (looks | hasStart)
	if f&looks == 0 {
		if f&always != 0 {
			flags |= never
		}
		if f&never != 0 {
			flags |= always
		}
	}
	return r.intern(entry{kind: kNot, a: t, flags: flags})
}

func (r *runner) condition(e *entry, at place) bool {
	holds := false
	switch e.kind {
	case kStart:
		holds = at&atStart != 0
	case kEnd:
		holds = at&atEnd != 0
	case kWord:
		holds = (at&wordHere != 0) != (at&wordNext != 0)
	case kBehind:
		holds = at&(behinds<<e.a) != 0
	}
	return holds != (e.b == 1)
}

// matchesEmpty tells whether t matches the empty text at a place. A lookahead
// is asked only at the end, where nothing follows.
func (r *runner) matchesEmpty(t term, at place) bool {
	e := &r.terms[t]
	if e.flags&looks == 0 {
		if e.flags&always != 0 {
			return true
		}
		if e.flags&never != 0 {
			return false
		}
	}
	switch e.kind {
	case kAll, kEmpty:
		return true
	case kNone, kSet:
		return false
	case kStart, kEnd, kWord, kBehind:
		return r.condition(e, at)
	}
	k := derivation{t, -1, at}
	if v, ok := r.empties[k]; ok {
		return v
	}
	v := false
	switch e.kind {
	case kCat:
		v = r.matchesEmpty(e.a, at) && r.matchesEmpty(e.b, at)
	case kOr:
		v = slices.ContainsFunc(e.list, func(t term) bool { return r.matchesEmpty(t, at) })
	case kAnd:
		v = !slices.ContainsFunc(e.list, func(t term) bool { return !r.matchesEmpty(t, at) })
	case kNot:
		v = !r.matchesEmpty(e.a, at)
	case kLoop:
		v = e.min == 0 || r.matchesEmpty(e.a, at)
	case kAhead:
		v = r.matchesEmpty(e.a, at) != (e.b == 1)
	}
	r.empties[k] = v
	r.bytes += 40
	return v
}

// derive is what may follow a character of class at a place, after t.
func (r *runner) derive(t term, class int32, at place) term {
	if t <= empty {
		if t == all {
			return all
		}
		return none
	}
	k := derivation{t, class, at}
	if d, ok := r.derived[k]; ok {
		return d
	}
	if r.over {
		return none
	}
	e := r.terms[t]
	d := none
	switch e.kind {
	case kOr, kAnd:
		ds := make([]term, len(e.list))
		for i, t := range e.list {
			ds[i] = r.derive(t, class, at)
		}
		if e.kind == kOr {
			d = r.or(ds)
		} else {
			d = r.and(ds)
		}
	case kNot:
		d = r.not(r.derive(e.a, class, at))
	case kCat:
		d = r.deriveCat(e.a, e.b, class, at)
	default:
		d = r.deriveCat(t, empty, class, at)
	}
	r.derived[k] = d
	r.bytes += 48
	return d
}

func (r *runner) deriveCat(a, b term, class int32, at place) term {
	if a == all {
		if d := r.derive(b, class, at); d != none {
			return r.or([]term{r.cat(all, b), d})
		}
		return r.cat(all, b)
	}
	e := r.terms[a]
	switch e.kind {
	case kSet:
		if in(r.p.members[e.a], int(class)) {
			return b
		}
		return none
	case kStart, kEnd, kWord, kBehind:
		if r.condition(&e, at) {
			return r.derive(b, class, at)
		}
		return none
	case kAhead:
		d := r.derive(e.a, class, at)
		if e.b == 1 {
			d = r.not(d)
		}
		if d == none {
			return none
		}
		return r.and([]term{d, r.derive(b, class, at)})
	case kOr:
		ds := make([]term, len(e.list))
		for i, t := range e.list {
			ds[i] = r.derive(r.cat(t, b), class, at)
		}
		return r.or(ds)
	case kLoop:
		if e.flags&looks != 0 {
			return r.walk(a, &after{t: b}, class, at)
		}
		lo, hi := max(e.min-1, 0), e.max
		empties := r.matchesEmpty(e.a, at)
		if empties {
			lo = 0
		}
		if hi > 0 {
			hi--
		}
		d := r.spread(r.derive(e.a, class, at), r.cat(r.loop(e.a, lo, hi), b))
		if e.min == 0 || empties {
			return r.or([]term{d, r.derive(b, class, at)})
		}
		return d
	}
	panic("lexical: unknown head")
}

// after is what follows a part of a loop's body. A gate lets nothing through
// before a character is read: a round that reads none is no progress.
type after struct {
	t    term
	gate bool
	next *after
}

// walk is derive for parts that have a lookahead within a loop, where what
// follows must be at hand, since the lookahead is about all of it.
func (r *runner) walk(t term, k *after, class int32, at place) term {
	r.work++
	r.over = r.over || r.work > r.lim.Work
	if r.over {
		return none
	}
	e := r.terms[t]
	if e.flags&looks == 0 && k == nil {
		return r.derive(t, class, at)
	}
	switch e.kind {
	case kNone:
		return none
	case kEmpty:
		return r.through(k, class, at)
	case kAll:
		return r.or([]term{r.cat(all, r.rest(k)), r.through(k, class, at)})
	case kSet:
		if in(r.p.members[e.a], int(class)) {
			return r.rest(k)
		}
		return none
	case kStart, kEnd, kWord, kBehind:
		if r.condition(&e, at) {
			return r.through(k, class, at)
		}
		return none
	case kAhead:
		d := r.derive(e.a, class, at)
		if e.b == 1 {
			d = r.not(d)
		}
		if d == none {
			return none
		}
		return r.and([]term{d, r.through(k, class, at)})
	case kOr:
		ds := make([]term, len(e.list))
		for i, t := range e.list {
			ds[i] = r.walk(t, k, class, at)
		}
		return r.or(ds)
	case kCat:
		return r.walk(e.a, &after{t: e.b, next: k}, class, at)
	case kLoop:
		less := e.max
		if less > 0 {
			less--
		}
		d := r.walk(e.a, &after{t: r.loop(e.a, max(e.min-1, 0), less), gate: true, next: k}, class, at)
		if e.min == 0 {
			return r.or([]term{d, r.through(k, class, at)})
		}
		// A round that reads nothing may stand for all that are due: they
		// would ask the same.
		if here := r.here(e.a, class, at); here != none {
			free := r.through(k, class, at)
			if less != 0 {
				free = r.walk(r.loop(e.a, 0, less), k, class, at)
			}
			d = r.or([]term{d, r.and([]term{here, free})})
		}
		return d
	}
	panic("lexical: a conjunction within a pattern")
}

// rest is what follows once a character was read.
func (r *runner) rest(k *after) term {
	var ts []term
	for ; k != nil; k = k.next {
		ts = append(ts, k.t)
	}
	t := empty
	for _, s := range slices.Backward(ts) {
		t = r.cat(s, t)
	}
	return t
}

func (r *runner) through(k *after, class int32, at place) term {
	switch {
	case k == nil || k.gate:
		return none
	}
	return r.walk(k.t, k.next, class, at)
}

// here is what must follow for t to match the empty text before class.
func (r *runner) here(t term, class int32, at place) term {
	e := r.terms[t]
	if e.flags&looks == 0 {
		if r.matchesEmpty(t, at) {
			return all
		}
		return none
	}
	switch e.kind {
	case kAhead:
		d := r.derive(e.a, class, at)
		if e.b == 1 {
			d = r.not(d)
		}
		return d
	case kOr:
		ds := make([]term, len(e.list))
		for i, t := range e.list {
			ds[i] = r.here(t, class, at)
		}
		return r.or(ds)
	case kCat:
		return r.and([]term{r.here(e.a, class, at), r.here(e.b, class, at)})
	case kLoop:
		if e.min == 0 {
			return all
		}
		return r.here(e.a, class, at)
	}
	return none
}

// settle is t where nothing can be at the start any more.
func (r *runner) settle(t term) term {
	e := r.terms[t]
	if e.flags&hasStart == 0 {
		return t
	}
	if s, ok := r.settled[t]; ok {
		return s
	}
	s := t
	switch e.kind {
	case kStart:
		s = none
	case kCat:
		s = r.cat(r.settle(e.a), r.settle(e.b))
	case kOr, kAnd:
		ts := make([]term, len(e.list))
		for i, t := range e.list {
			ts[i] = r.settle(t)
		}
		if e.kind == kOr {
			s = r.or(ts)
		} else {
			s = r.and(ts)
		}
	case kNot:
		s = r.not(r.settle(e.a))
	case kLoop:
		s = r.loop(r.settle(e.a), e.min, e.max)
	case kAhead:
		switch a := r.settle(e.a); {
		case a == none && e.b == 1, a == all && e.b == 0:
			s = empty
		case a == none, a == all:
			s = none
		default:
			s = r.intern(entry{kind: kAhead, a: a, b: e.b, flags: looks})
		}
	}
	r.settled[t] = s
	return s
}

// state interns a state of the automaton.
func (r *runner) state(t term, behind []term, at place) int32 {
	k := binary.AppendUvarint(r.scratch[:0], uint64(t))
	k = append(k, byte(at))
	for _, b := range behind {
		k = binary.AppendUvarint(k, uint64(b))
	}
	r.scratch = k
	if id, ok := r.index[string(k)]; ok {
		return id
	}
	id := int32(len(r.states))
	r.states = append(r.states, runState{t: t, behind: behind, at: at})
	r.index[string(k)] = id
	r.bytes += 120 + len(k) + 4*len(behind)
	return id
}

// around completes a place by what comes next and by the lookbehinds.
func (r *runner) around(s *runState, class int32) place {
	at := s.at
	switch {
	case class < 0:
		at |= atEnd
	case r.p.useWord && in(r.p.words, int(class)):
		at |= wordNext
	}
	for i, b := range s.behind {
		if r.matchesEmpty(b, at) {
			at |= behinds << i
		}
	}
	return at
}

// step is where a character of class leads.
func (r *runner) step(state int32, class uint16) int32 {
	s := &r.states[state]
	if s.next == nil {
		s.next = make([]int32, r.p.count)
		for i := range s.next {
			s.next[i] = -1
		}
		r.bytes += 4 * r.p.count
	}
	if n := s.next[class]; n >= 0 {
		return n
	}
	here := *s
	at := r.around(&here, int32(class))
	t := r.derive(here.t, int32(class), at)
	behind := make([]term, len(here.behind))
	for i, b := range here.behind {
		behind[i] = r.derive(b, int32(class), at)
	}
	if here.at&atStart != 0 {
		t = r.settle(t)
		for i, b := range behind {
			behind[i] = r.settle(b)
		}
	}
	then := place(0)
	if r.p.useWord && in(r.p.words, int(class)) {
		then = wordHere
	}
	if t == none || t == all {
		then = 0
		clear(behind)
	}
	if r.over {
		return -1
	}
	n := r.state(t, behind, then)
	r.states[state].next[class] = n
	return n
}

// accepts tells whether the text may end in state.
func (r *runner) accepts(state int32) bool {
	s := &r.states[state]
	if s.holds == 0 {
		v := int8(-1)
		if r.matchesEmpty(s.t, r.around(s, -1)) {
			v = 1
		}
		r.states[state].holds = v
	}
	return r.states[state].holds > 0
}

// forget drops what a step that reached a limit left half done.
func (r *runner) forget() {
	r.over = false
	clear(r.derived)
	clear(r.settled)
}

// dead tells whether no text that goes on from state is in the set, as far as
// can be seen at once.
func (r *runner) dead(state int32) bool { return r.states[state].t == none }
