package lexical

import (
	"slices"
	"sync"
)

// A search goes deep at once, as most ways lead to an end, then looks at what
// is near, then goes deep once more. These bound the texts that it goes through
// each time.
const (
	hastyVisits = 48
	nearVisits  = 64
	deepVisits  = 1024
)

// An end is a text that another one can come to, after so many characters. Each
// text keeps the ends that were wanted of it, so that what it takes to find one
// is paid once for all texts on the way.
type end struct{ text, after int32 }

// maxEnds is how many ends a text keeps: one for each thing that is wanted of
// the strings that begin with it.
const maxEnds = 4

// A visit is a text on the way, and where in the list of visits the one before
// it stands; -1 if none does.
type visit struct {
	end
	from  int
	class int32  // of the character between; -1: none that says a class
	tried int    // of the characters that may come next
	runes []rune // those of them that matter by themselves, once one was tried
}

// A view is a search from one state.
type view struct {
	s      *Strings
	count  int
	id     uint32 // marks what was seen
	byText bool   // a text that was seen is of no use further away
	visits []visit
	found  []sight
	asked  []Outcome
}

var viewPool = sync.Pool{New: func() any { return new(view) }}

// A sight is an outcome of a text that is some way from a visit.
type sight struct {
	Outcome
	end
	visit int
}

// Near gives what the whole string may turn out to be, by looking at a few
// hundred texts before it, until yield says stop by true, which it returns. It
// is quicker than Reachable where the first that comes is good enough. An
// outcome may come more than once. All tells that nothing else is possible.
func (s *Strings) Near(q State, yield func(Outcome) bool) (stopped, all bool) {
	if q <= Lost {
		return false, q == Dead
	}
	if s.Closed(q) {
		return yield(s.outcome(q)), true
	}
	b, count := s.split(q)
	if s.onlyLists {
		return s.nearLists(b, yield)
	}
	if b.mode == plain && s.nearKnown(b.text, count, yield) {
		return true, false
	}
	v := viewPool.Get().(*view)
	defer viewPool.Put(v)
	v.s, v.count, v.byText = s, count, false
	v.visits, v.found, v.asked = v.visits[:0], v.found[:0], v.asked[:0]
	s.mu.Lock()
	s.x.views++
	v.id = s.x.views
	layers, ok := s.enter(b.form)
	for after, layer := range layers {
		for _, t := range layer {
			if t >= 0 {
				v.add(visit{end: end{t, int32(after)}, from: -1, class: -1})
			}
		}
	}
	for i := range v.visits {
		v.look(i)
	}
	s.mu.Unlock()
	return v.give(yield) || ok && (v.deep(hastyVisits, yield) || v.near(yield) || v.deep(deepVisits, yield)), false
}

// nearKnown is Near as far as nothing is to be found out.
func (s *Strings) nearKnown(text int32, count int, yield func(Outcome) bool) bool {
	var known [1 + maxEnds]Outcome
	s.mu.Lock()
	ends := s.x.all[text].ends
	n := 1 + len(ends)
	known[0] = s.x.outcome(text, min(count, s.last))
	for i, e := range ends {
		known[1+i] = s.x.outcome(e.text, min(count+int(e.after), s.last))
	}
	s.mu.Unlock()
	return slices.ContainsFunc(known[:n], yield)
}

// nearLists is Near where words are all that matters.
func (s *Strings) nearLists(b *base, yield func(Outcome) bool) (stopped, all bool) {
	if yield(s.Other()) {
		return true, true
	}
	if len(s.x.words) == 0 {
		return false, true
	}
	var texts []*text
	var one [1]*text
	s.mu.Lock()
	if b.mode == plain {
		one[0] = s.x.all[b.text]
		texts = one[:]
	} else {
		layers, _ := s.enter(b.form)
		for _, t := range slices.Concat(layers...) {
			if t >= 0 {
				texts = append(texts, s.x.all[t])
			}
		}
	}
	s.mu.Unlock()
	all = b.mode == plain
	for _, t := range texts {
		hi := min(t.hi, t.lo+int32(s.lim.Visits))
		all = all && hi == t.hi
		for i := t.lo; i < hi; i++ {
			if yield(s.x.outcomeOf(&s.x.words[i])) {
				return true, true
			}
		}
	}
	return false, all
}

// deep goes from each text to the first that follows it, and back where there
// is none that it hasn't seen.
func (v *view) deep(most int, yield func(Outcome) bool) bool {
	v.byText = true
	stack := make([]int, 0, 32)
	for i := range v.visits {
		stack = append(stack, i)
	}
	for n := 0; n < most && len(stack) > 0; {
		v.s.mu.Lock()
		for len(v.found) == 0 && n < most && len(stack) > 0 {
			switch k, more := v.next(stack[len(stack)-1]); {
			case !more:
				stack = stack[:len(stack)-1]
			case k >= 0:
				stack = append(stack, k)
			}
			n++
		}
		v.s.mu.Unlock()
		if v.give(yield) {
			return true
		}
	}
	return false
}

// near looks at all texts that follow each.
func (v *view) near(yield func(Outcome) bool) bool {
	v.byText = len(v.s.x.cuts) == 0
	for i := 0; i < min(len(v.visits), nearVisits); {
		v.s.mu.Lock()
		for len(v.found) == 0 && i < min(len(v.visits), nearVisits) {
			if _, more := v.next(i); !more {
				i++
			}
		}
		v.s.mu.Unlock()
		if v.give(yield) {
			return true
		}
	}
	return false
}

// add takes a text unless it was seen. Where lengths matter, and not byText, one
// that is further away is another.
func (v *view) add(to visit) int {
	t := v.s.x.all[to.text]
	if t.seen.view == v.id && (v.byText || t.seen.after == to.after) {
		return -1
	}
	t.seen.view, t.seen.after = v.id, to.after
	v.visits = append(v.visits, to)
	return len(v.visits) - 1
}

// see takes what a text can be that is after characters further than visit i.
func (v *view) see(i int, e end) {
	x := v.s.x
	o := x.outcome(e.text, min(v.count+int(v.visits[i].after+e.after), v.s.last))
	if slices.Contains(v.asked, o) {
		return
	}
	v.asked = append(v.asked, o)
	v.found = append(v.found, sight{o, e, i})
}

// look takes what is known of a visit.
func (v *view) look(i int) {
	x := v.s.x
	to := v.visits[i]
	t := x.all[to.text]
	v.see(i, end{to.text, 0})
	for _, e := range t.ends {
		v.see(i, e)
	}
	if x.stays(t) {
		for _, cut := range x.cuts {
			if more := cut - v.count - int(to.after); more > 0 {
				v.see(i, end{to.text, int32(more)})
			}
		}
	}
}

// next tries one more character after visit i: those that led to ends lately
// come first. It gives the visit of the text that it leads to, -1 if that was
// seen; more is false if there is no other character.
func (v *view) next(i int) (k int, more bool) {
	x := v.s.x
	at := &v.visits[i]
	t := x.all[at.text]
	if t.keeps || x.spent(t) {
		return -1, false
	}
	samples := x.samples()
	if at.tried == 0 && (!t.rests || t.lo < t.hi) {
		at.runes = x.continuations(t)
	}
	n := at.tried
	at.tried++
	to, class := int32(-1), int32(-1)
	if n < len(at.runes) {
		if r := at.runes[n]; noSurrogates.has(r) {
			to = x.step(at.text, r)
		}
	} else {
		if n -= len(at.runes); n < len(x.hints) {
			class = x.hints[n]
		} else if class = int32(n - len(x.hints)); int(class) >= len(samples) {
			return -1, false
		}
		if other(samples[class], noSurrogates, at.runes) {
			to = x.stepClass(at.text, class)
		}
	}
	if to < 0 {
		return -1, true
	}
	if k = v.add(visit{end: end{to, at.after + 1}, from: i, class: class}); k >= 0 {
		v.look(k)
	}
	return k, true
}

// give yields what was found, and remembers the one that was enough for all
// texts on the way to it.
func (v *view) give(yield func(Outcome) bool) bool {
	for _, f := range v.found {
		if yield(f.Outcome) {
			v.s.mu.Lock()
			v.keep(f)
			v.s.mu.Unlock()
			return true
		}
	}
	v.found = v.found[:0]
	return false
}

func (v *view) keep(f sight) {
	x := v.s.x
	whole := v.visits[f.visit].after + f.after
	for i := f.visit; i >= 0; i = v.visits[i].from {
		at := v.visits[i]
		if at.text != f.text {
			x.end(at.text, end{f.text, whole - at.after})
		}
		if at.class >= 0 && !slices.Contains(x.hints, at.class) {
			if len(x.hints) == maxEnds {
				x.hints = slices.Delete(x.hints, 0, 1)
			}
			x.hints = append(x.hints, at.class)
		}
	}
}

// end adds an end of a text, or makes the way to it shorter.
func (x *texts) end(text int32, e end) {
	t := x.all[text]
	for i := range t.ends {
		if t.ends[i].text == e.text {
			t.ends[i].after = min(t.ends[i].after, e.after)
			return
		}
	}
	if len(t.ends) == maxEnds {
		t.ends = slices.Delete(t.ends, 0, 1)
	} else {
		x.bytes += 8
	}
	t.ends = append(t.ends, e)
}

// spent tells whether nothing that follows can change what is known of t.
func (x *texts) spent(t *text) bool {
	if !t.rests || t.lo < t.hi {
		return false
	}
	for i, r := range x.runners {
		if !r.dead(t.states[i]) {
			return false
		}
	}
	return true
}

// stays tells whether some character is known to lead from t to t.
func (x *texts) stays(t *text) bool { return slices.Contains(t.next, t.id) }
