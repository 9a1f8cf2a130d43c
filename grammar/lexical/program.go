package lexical

import (
	"fmt"
	"slices"
)

// A program is a pattern ready to run: its characters are told apart no
// further than the pattern does.
type program struct {
	root    *node
	behinds []*node // what lookbehinds look for, inner ones first
	behind  map[*node]int
	sets    map[*node]int // members of an opSet
	starts  []rune        // where a stretch of characters of one class starts
	classes []uint16      // of the stretches
	count   int           // of classes
	members [][]uint64    // by set: bits of classes
	words   []uint64      // classes of \w
	useWord bool
	found   found // see open.go
	whole   bool  // all of the text must match, from ^ to $
}

const (
	maxClasses = 1 << 15 // an index of one takes 16 bits
	maxRanges  = 1 << 17 // \p{L} has 650
	maxBehinds = 16
)

func newProgram(src string, root *node) (*program, error) {
	p := &program{root: root, found: find(root), whole: bounded(root, opStart) && bounded(root, opEnd), sets: map[*node]int{}, behind: map[*node]int{}}
	var sets []charset
	ids := map[string]int{}
	add := func(s charset) int {
		key := string(s)
		id, ok := ids[key]
		if !ok {
			id = len(sets)
			ids[key] = id
			sets = append(sets, s)
		}
		return id
	}
	var visit func(n *node)
	visit = func(n *node) {
		for _, s := range n.sub {
			visit(s)
		}
		switch n.op {
		case opSet:
			p.sets[n] = add(n.set)
		case opWord:
			p.useWord = true
		case opBehind:
			p.behind[n] = len(p.behinds)
			p.behinds = append(p.behinds, n.sub[0])
		}
	}
	visit(root)
	if len(p.behinds) > maxBehinds {
		return nil, &PatternError{src, 0, fmt.Sprintf("more than %d lookbehinds", maxBehinds)}
	}
	word := -1
	if p.useWord {
		word = add(wordChars)
	}
	ranges := 0
	for _, s := range sets {
		ranges += len(s) / 2
	}
	if ranges > maxRanges {
		return nil, &PatternError{src, 0, fmt.Sprintf("more than %d ranges of characters", maxRanges)}
	}
	if !p.partition(sets) {
		return nil, &PatternError{src, 0, fmt.Sprintf("more than %d kinds of characters", maxClasses)}
	}
	if word >= 0 {
		p.words = p.members[word]
	}
	return p, nil
}

// partition finds the coarsest classes of characters of which every set is a
// union; false if there are too many.
func (p *program) partition(sets []charset) bool {
	type turn struct {
		at  rune
		set int
	}
	var turns []turn
	for i, s := range sets {
		for k := 0; k < len(s); k += 2 {
			turns = append(turns, turn{s[k], i}, turn{s[k+1] + 1, i})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return int(a.at - b.at) })
	words := len(sets)/64 + 1
	p.members = make([][]uint64, len(sets))
	now := make([]uint64, words)
	sum := [2]uint64{}
	seen := map[[2]uint64]uint16{}
	var of [][]uint64 // sets by class, until they are turned round
	for i := 0; ; {
		id, ok := seen[sum]
		if !ok {
			if len(seen) == maxClasses || len(seen)*words > 1<<22 {
				return false
			}
			id = uint16(len(seen))
			seen[sum] = id
			of = append(of, slices.Clone(now))
		}
		at := rune(0)
		if i > 0 {
			at = turns[i-1].at
		}
		if n := len(p.starts); n > 0 && p.starts[n-1] == at {
			p.classes[n-1] = id
		} else {
			p.starts, p.classes = append(p.starts, at), append(p.classes, id)
		}
		if i == len(turns) {
			break
		}
		for at = turns[i].at; i < len(turns) && turns[i].at == at; i++ {
			s := turns[i].set
			now[s/64] ^= 1 << (s % 64)
			sum[0] ^= mix(uint64(s) + 1)
			sum[1] ^= mix(^uint64(s))
		}
	}
	p.count = len(of)
	for s := range sets {
		p.members[s] = make([]uint64, p.count/64+1)
		for c, in := range of {
			if in[s/64]>>(s%64)&1 != 0 {
				p.members[s][c/64] |= 1 << (c % 64)
			}
		}
	}
	return true
}

func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

func in(bits []uint64, class int) bool { return bits[class/64]>>(class%64)&1 != 0 }

// counted takes a bounded repeat of one character out of a pattern whose other
// characters are of a known number: ^[a-z][a-z0-9]{0,62}$ is
// ^[a-z][a-z0-9]*$ in 1 to 63 characters, which costs no state per character.
func counted(root *node) (rest *node, lo, hi int, ok bool) {
	if root.op != opCat || root.sub[0].op != opStart || root.sub[len(root.sub)-1].op != opEnd {
		return nil, 0, 0, false
	}
	at, fixed := -1, 0
	for i, n := range root.sub {
		if w, ok := width(n); ok {
			fixed += w
		} else if at >= 0 || n.op != opLoop || n.sub[0].op != opSet {
			return nil, 0, 0, false
		} else {
			at = i
		}
	}
	if at < 0 || fixed > maxRepeat {
		return nil, 0, 0, false
	}
	loop := root.sub[at]
	if loop.min <= 1 && loop.max < 0 {
		return nil, 0, 0, false
	}
	free := *loop
	free.min, free.max = 0, -1
	sub := slices.Clone(root.sub)
	sub[at] = &free
	lo, hi = loop.min+fixed, -1
	if loop.max >= 0 {
		hi = loop.max + fixed
	}
	return &node{op: opCat, sub: sub}, lo, hi, true
}

// width is how many characters n matches, if that is always the same.
func width(n *node) (int, bool) {
	switch n.op {
	case opSet:
		return 1, true
	case opCat:
		sum := 0
		for _, s := range n.sub {
			w, ok := width(s)
			if sum += w; !ok || sum > maxRepeat {
				return 0, false
			}
		}
		return sum, true
	case opAlt:
		first, ok := width(n.sub[0])
		for _, s := range n.sub[1:] {
			w, same := width(s)
			ok = ok && same && w == first
		}
		return first, ok
	case opLoop:
		w, ok := width(n.sub[0])
		if ok && (n.min == n.max || w == 0) {
			if w > 0 && n.min > maxRepeat/w {
				return 0, false
			}
			return w * n.min, true
		}
		return 0, false
	}
	return 0, true
}
