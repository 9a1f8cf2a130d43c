package dialect

import (
	"maps"
	"slices"
)

// A Verdict is how what was written compares with what was meant.
//
// The rules that both have by name are compared one by one, calls of them read
// as letters. If all bodies are equal so are the languages, by induction over
// derivations; the same holds for "inside". Where rules differ in a way that
// the languages needn't, the languages are walked side by side for a number of
// states, and Bounded says how far.
type Verdict struct {
	// Equal: the same texts.
	Equal bool
	// Inside: every text that was written was meant; proved unless Bounded.
	Inside bool
	// Bounded is the number of bytes up to which Inside was looked at; 0 if it
	// is proved, or disproved by Wider.
	Bounded int
	// Wider is a shortest text that was written and not meant, Narrower one
	// that was meant and not written; nil if none is known. Shortest is within
	// a rule, in the shortest surroundings that lead to it.
	Wider, Narrower *string
	// States is how many pairs of states were looked at.
	States int
}

// Compare looks at no more than about budget pairs of states, of some 500 bytes
// each.
func Compare(written, meant *Machine, budget int) Verdict {
	c := &comparison{budget: budget}
	c.sides = [2]*side{newSide(written, meant), newSide(meant, written)}
	v := c.rules()
	v.States = c.looked
	return v
}

// A side is one of two machines.
type side struct {
	m      *Machine
	name   map[int32]string // of letters
	byName map[string]int32
	w      *walker // calls of shared rules are letters
	full   *walker // nothing is a letter
}

func newSide(m, other *Machine) *side {
	s := &side{m: m, name: map[int32]string{}, byName: map[string]int32{}}
	letters := map[int32]bool{}
	for name, at := range m.Rules {
		if _, ok := other.Rules[name]; ok {
			letters[at] = true
			s.name[at], s.byName[name] = name, at
		}
	}
	s.w, s.full = m.walker(letters), m.walker(nil)
	return s
}

type comparison struct {
	sides  [2]*side
	budget int
	looked int
	// needWider: a text that was written and not meant is known to be there
	needWider bool
}

// rank tells which symbols a search depth first follows first.
func rank(s symbol) int {
	switch s.letter {
	case RawPiece:
		return 0
	case "":
		return 1
	}
	return 2
}

// shaped is a set of one side with the shape of a set of the other.
type shaped struct {
	written *set
	meant   shape
}

// A shape is a set but for the rounds of the one loop that it is in.
type shape struct {
	hash uint64
	loop int32
	up   *frame
}

// A symbol is a byte or a letter.
type symbol struct {
	b      byte
	letter string
}

// A pair is two sets that the same symbols lead to.
type pair struct {
	at   [2]*set
	from int // index of the pair before; -1: none
	by   symbol
}

// A walkedRule is what was found in one rule: pairs in breadth-first order,
// and the first difference in each direction.
type walkedRule struct {
	name    string
	pairs   []pair
	wider   *difference
	narrow  *difference
	callers map[string]int // letters met first, and in which pair
	done    bool
}

type difference struct {
	pair int
	by   *symbol // nil: one may end there and the other not
}

// rules compares the start and every shared rule that can be reached.
func (c *comparison) rules() Verdict {
	type origin struct {
		rule *walkedRule
		pair int
	}
	from := map[string]origin{"": {}}
	order := []string{""}
	all := map[string]*walkedRule{}
	v := Verdict{Equal: true, Inside: true}
	settled := true
	for i := 0; i < len(order); i++ {
		r := c.walk(order[i], equal)
		if r.wider != nil || r.narrow != nil {
			in := c.walk(order[i], inside)
			// The examples come from a search breadth first, so that they are short.
			c.needWider = in.wider != nil
			short := c.walk(order[i], shortest)
			r = &walkedRule{name: in.name, pairs: short.pairs, callers: in.callers, wider: short.wider, narrow: short.narrow, done: in.done}
			if in.wider != nil && short.wider == nil {
				r.pairs, r.wider, r.narrow = in.pairs, in.wider, nil
			} else if in.wider == nil {
				r.wider = nil
			}
			r.callers = short.callers
			for name := range in.callers {
				if _, ok := r.callers[name]; !ok {
					r.callers[name] = -1
				}
			}
		}
		all[order[i]] = r
		settled = settled && r.done
		for _, name := range slices.Sorted(maps.Keys(r.callers)) {
			if _, ok := from[name]; !ok {
				from[name] = origin{r, r.callers[name]}
				order = append(order, name)
			}
		}
	}
	// whole puts a text of a rule into the shortest surroundings.
	whole := func(s int, name, text string) (string, bool) {
		for name != "" {
			o := from[name]
			if o.pair < 0 {
				return "", false
			}
			before, ok := c.spelled(s, o.rule, o.pair)
			rest := c.sides[s].w.after(o.rule.pairs[o.pair].at[s], c.sides[s].byName[name])
			if !ok || rest == nil {
				return "", false
			}
			end, ok := c.sides[s].m.shortest(rest)
			if !ok {
				return "", false
			}
			text = before + text + end
			name = o.rule.name
		}
		return text, true
	}
	example := func(s int, name string, r *walkedRule, d *difference) *string {
		text, ok := c.spelled(s, r, d.pair)
		if !ok {
			return nil
		}
		at := r.pairs[d.pair].at[s]
		if d.by != nil {
			var word string
			if d.by.letter != "" {
				word, _ = c.sides[s].m.word(c.sides[s].byName[d.by.letter])
				at = c.sides[s].w.after(at, c.sides[s].byName[d.by.letter])
			} else {
				word = string([]byte{d.by.b})
				at = c.sides[s].w.step(at, d.by.b)
			}
			end, ok := c.sides[s].m.shortest(at)
			if !ok {
				return nil
			}
			text += word + end
		}
		text, ok = whole(s, name, text)
		if !ok || !c.sides[s].full.accepts(text) || c.sides[1-s].full.accepts(text) {
			return nil
		}
		return &text
	}
	for _, name := range order {
		r := all[name]
		if r.wider != nil {
			v.Equal = false
			if t := example(0, name, r, r.wider); t != nil {
				v.Inside = false
				if v.Wider == nil || len(*t) < len(*v.Wider) {
					v.Wider = t
				}
			} else {
				settled = false
			}
		}
		if r.narrow != nil {
			v.Equal = false
			if t := example(1, name, r, r.narrow); t != nil && (v.Narrower == nil || len(*t) < len(*v.Narrower)) {
				v.Narrower = t
			}
		}
	}
	if v.Inside && !settled {
		v.Equal = false
		c.bounded(&v)
	}
	return v
}

// A search is a way to walk two rules side by side.
type search int

const (
	// equal: sets that are equal if all is are one, as Hopcroft and Karp have
	// it; ends at the first difference.
	equal search = iota
	// inside: only what is written and not meant counts. Depth first and raw
	// characters first, so that a loop is met with its counts as high as they
	// get, and what was meant after fewer rounds is known to be no less.
	inside
	// shortest: breadth first, until a difference in the other direction is
	// found, or in this if one is needed.
	shortest
)

// walk compares one rule's bodies, or the starts.
func (c *comparison) walk(name string, by search) *walkedRule {
	r := &walkedRule{name: name, callers: map[string]int{}}
	var first [2]*set
	for i, s := range c.sides {
		at := s.m.Start
		if name != "" {
			at = s.byName[name]
			first[i] = s.w.at(s.m.Nodes[at].To[0])
		} else {
			first[i] = s.w.at(at)
		}
	}
	seen := map[[2]*set]bool{}
	classes := forest{}
	rounds := map[shaped]int32{} // the most of them that were looked at
	var stack []pair
	add := func(at [2]*set, from int, sym symbol) {
		switch by {
		case equal:
			if !classes.join(at[0], at[1]) {
				return
			}
		case inside:
			stack = append(stack, pair{at, from, sym})
			return
		default:
			if seen[at] {
				return
			}
			seen[at] = true
		}
		r.pairs = append(r.pairs, pair{at, from, sym})
	}
	// pop moves the next of the stack to the pairs, if it is worth a look.
	pop := func() {
		for len(stack) > 0 {
			p := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[p.at] {
				continue
			}
			seen[p.at] = true
			if key, n, ok := c.sides[1].w.shape(p.at[1]); ok {
				k := shaped{p.at[0], key}
				if most, had := rounds[k]; had && n <= most {
					continue
				}
				rounds[k] = n
			}
			r.pairs = append(r.pairs, p)
			return
		}
	}
	differ := func(writtenOnly bool, i int, by *symbol) {
		if writtenOnly && r.wider == nil {
			r.wider = &difference{i, by}
		}
		if !writtenOnly && r.narrow == nil {
			r.narrow = &difference{i, by}
		}
	}
	r.done = true
	if first[0] == nil || first[1] == nil {
		return r // both machines are pruned; a rule without texts is called nowhere
	}
	add(first, -1, symbol{})
	pop()
	for i := 0; i < len(r.pairs); i++ {
		if c.looked++; c.looked > c.budget || c.sides[0].w.over || c.sides[1].w.over {
			r.done = false
			return r
		}
		at := r.pairs[i].at
		if at[0].ends != at[1].ends {
			differ(at[0].ends, i, nil)
		}
		c0, c1 := c.sides[0].w.classOf(at[0]), c.sides[1].w.classOf(at[1])
		mark := len(stack)
		var met [256][4]uint64 // by class of the first: a set of classes of the second
		for b := range 256 {
			x, y := c0[b], c1[b]
			if x == 0 && y == 0 {
				continue
			}
			bit := uint64(1) << (y & 63)
			if met[x][y>>6]&bit != 0 {
				continue
			}
			met[x][y>>6] |= bit
			sym := symbol{b: byte(b)}
			switch {
			case y == 0:
				differ(true, i, &sym)
			case x == 0:
				differ(false, i, &sym)
			default:
				add([2]*set{c.sides[0].w.step(at[0], byte(b)), c.sides[1].w.step(at[1], byte(b))}, i, sym)
			}
		}
		var names [2]map[string]bool
		for s := range c.sides {
			names[s] = map[string]bool{}
			for _, l := range c.sides[s].w.calling(at[s]) {
				names[s][c.sides[s].name[l]] = true
			}
		}
		for _, n := range slices.Sorted(maps.Keys(names[0])) {
			sym := symbol{letter: n}
			if !names[1][n] {
				differ(true, i, &sym)
				continue
			}
			if _, ok := r.callers[n]; !ok {
				r.callers[n] = i
			}
			add([2]*set{c.sides[0].w.after(at[0], c.sides[0].byName[n]), c.sides[1].w.after(at[1], c.sides[1].byName[n])}, i, sym)
		}
		for _, n := range slices.Sorted(maps.Keys(names[1])) {
			if !names[0][n] {
				differ(false, i, &symbol{letter: n})
			}
		}
		switch {
		case by == equal && (r.wider != nil || r.narrow != nil),
			by == inside && r.wider != nil,
			by == shortest && (r.wider != nil || !c.needWider && r.narrow != nil):
			return r
		}
		slices.Reverse(stack[mark:]) // letters are sorted with raw characters first
		if by == inside {
			// Letters were added last; they are to be popped first.
			n := len(stack)
			slices.SortStableFunc(stack[mark:n], func(a, b pair) int { return rank(b.by) - rank(a.by) })
			pop()
		}
	}
	return r
}

// spelled is the text that leads to a pair, by the words of side s.
func (c *comparison) spelled(s int, r *walkedRule, i int) (string, bool) {
	var back []symbol
	for ; r.pairs[i].from >= 0; i = r.pairs[i].from {
		back = append(back, r.pairs[i].by)
	}
	var out []byte
	for _, by := range slices.Backward(back) {
		if by.letter == "" {
			out = append(out, by.b)
			continue
		}
		w, ok := c.sides[s].m.word(c.sides[s].byName[by.letter])
		if !ok {
			return "", false
		}
		out = append(out, w...)
	}
	return string(out), true
}

// bounded walks both languages side by side, breadth first.
func (c *comparison) bounded(v *Verdict) {
	type place struct {
		at   [2]*set
		from int
		b    byte
		len  int
	}
	a, b := c.sides[0].full, c.sides[1].full
	start := place{at: [2]*set{a.at(c.sides[0].m.Start), b.at(c.sides[1].m.Start)}, from: -1}
	seen := map[[2]*set]bool{start.at: true}
	places := []place{start}
	found := func(i int, last []byte) {
		var back []byte
		for ; places[i].from >= 0; i = places[i].from {
			back = append(back, places[i].b)
		}
		slices.Reverse(back)
		text := string(append(back, last...))
		v.Wider, v.Inside = &text, false
	}
	for i := 0; i < len(places); i++ {
		p := places[i]
		if i > c.budget || a.over || b.over {
			v.Bounded = max(p.len-1, 1)
			return
		}
		if p.at[0].ends && !p.at[1].ends {
			found(i, nil)
			return
		}
		a.classOf(p.at[0])
		b.classOf(p.at[1])
		met := map[[2]*set]bool{}
		for x := range 256 {
			next := [2]*set{a.step(p.at[0], byte(x)), b.step(p.at[1], byte(x))}
			if next[0] == nil || met[next] {
				continue
			}
			met[next] = true
			if next[1] == nil {
				if end, ok := a.m.shortest(next[0]); ok {
					found(i, append([]byte{byte(x)}, end...))
					return
				}
				continue
			}
			if !seen[next] {
				seen[next] = true
				places = append(places, place{next, i, byte(x), p.len + 1})
			}
		}
	}
	// Nothing is left to look at: that is a proof too.
}

// A forest is sets of sets: union and find with halved paths.
type forest map[*set]*set

func (f forest) find(s *set) *set {
	for f[s] != nil {
		if up := f[f[s]]; up != nil {
			f[s] = up
		}
		s = f[s]
	}
	return s
}

// join tells whether the two were apart.
func (f forest) join(a, b *set) bool {
	a, b = f.find(a), f.find(b)
	if a == b {
		return false
	}
	f[a] = b
	return true
}
