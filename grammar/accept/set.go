package accept

import "math/bits"

// A set is a set of small numbers, hash-consed: equal sets have one id, so
// that states that hold them can be compared and hashed. 0 is the empty set.
//
// It is a binary trie over words of 64. A node of level 0 is a word; one of
// level k holds the numbers below 64<<(k-1) in lo and the others, less that, in
// hi, which isn't empty. So there is one form of each set.
type set uint32

type setNode struct {
	word   uint64
	lo, hi set
	level  uint8
}

type sets struct {
	nodes []setNode
	ids   map[setNode]set
}

func newSets() *sets {
	return &sets{nodes: make([]setNode, 1, 16), ids: map[setNode]set{}}
}

func (s *sets) intern(n setNode) set {
	if n.level == 0 && n.word == 0 {
		return 0
	}
	if n.level > 0 && n.hi == 0 {
		return n.lo
	}
	if id, ok := s.ids[n]; ok {
		return id
	}
	id := set(len(s.nodes))
	s.nodes = append(s.nodes, n)
	s.ids[n] = id
	return id
}

func levelOf(x uint32) uint8 {
	return uint8(bits.Len32(x >> 6))
}

// half is where the numbers of hi begin.
func half(level uint8) uint32 { return 64 << (level - 1) }

func (s *sets) add(a set, x uint32) set {
	n := s.nodes[a]
	if l := levelOf(x); a == 0 || l > n.level {
		if l == 0 {
			return s.intern(setNode{word: 1 << x})
		}
		return s.intern(setNode{lo: a, hi: s.add(0, x-half(l)), level: l})
	}
	switch {
	case n.level == 0:
		n.word |= 1 << x
	case x < half(n.level):
		n.lo = s.add(n.lo, x)
	default:
		n.hi = s.add(n.hi, x-half(n.level))
	}
	return s.intern(n)
}

func (s *sets) has(a set, x uint32) bool {
	for a != 0 {
		n := &s.nodes[a]
		switch {
		case n.level == 0:
			return x < 64 && n.word>>x&1 != 0
		case x < half(n.level):
			a = n.lo
		default:
			a, x = n.hi, x-half(n.level)
		}
	}
	return false
}

func (s *sets) remove(a set, x uint32) set {
	if !s.has(a, x) {
		return a
	}
	n := s.nodes[a]
	switch {
	case n.level == 0:
		n.word &^= 1 << x
	case x < half(n.level):
		n.lo = s.remove(n.lo, x)
	default:
		n.hi = s.remove(n.hi, x-half(n.level))
	}
	return s.intern(n)
}

// split gives the halves of a at a level that isn't below its own.
func (s *sets) split(a set, level uint8) (lo, hi set) {
	if n := &s.nodes[a]; n.level == level {
		return n.lo, n.hi
	}
	return a, 0
}

type setOp uint8

const (
	setUnion setOp = iota
	setBoth
	setMinus
)

func (s *sets) combine(op setOp, a, b set) set {
	switch {
	case a == b && op != setMinus, b == 0 && op != setBoth:
		return a
	case a == b, a == 0 && op != setUnion, b == 0:
		return 0
	case a == 0:
		return b
	}
	level := max(s.nodes[a].level, s.nodes[b].level)
	if level == 0 {
		x, y := s.nodes[a].word, s.nodes[b].word
		switch op {
		case setUnion:
			x |= y
		case setBoth:
			x &= y
		case setMinus:
			x &^= y
		}
		return s.intern(setNode{word: x})
	}
	al, ah := s.split(a, level)
	bl, bh := s.split(b, level)
	return s.intern(setNode{lo: s.combine(op, al, bl), hi: s.combine(op, ah, bh), level: level})
}

func (s *sets) len(a set) int {
	if a == 0 {
		return 0
	}
	n := s.nodes[a]
	if n.level == 0 {
		return bits.OnesCount64(n.word)
	}
	return s.len(n.lo) + s.len(n.hi)
}

// each calls f with the members in rising order until it says stop by false.
func (s *sets) each(a set, f func(uint32) bool) bool { return s.eachFrom(a, 0, f) }

func (s *sets) eachFrom(a set, base uint32, f func(uint32) bool) bool {
	if a == 0 {
		return true
	}
	n := s.nodes[a]
	if n.level > 0 {
		return s.eachFrom(n.lo, base, f) && s.eachFrom(n.hi, base+half(n.level), f)
	}
	for w := n.word; w != 0; w &= w - 1 {
		if !f(base + uint32(bits.TrailingZeros64(w))) {
			return false
		}
	}
	return true
}

func (s *sets) of(xs ...uint32) set {
	a := set(0)
	for _, x := range xs {
		a = s.add(a, x)
	}
	return a
}

func (s *sets) bytes() int { return 24*cap(s.nodes) + 60*len(s.ids) }
