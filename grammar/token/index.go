package token

import (
	"math/bits"
	"slices"
	"unsafe"
)

// An index tells of the tokens of a vocabulary what they hold, and of its trie
// where bytes stand, so that a slice takes no walk over all of them.
type index struct {
	all    bitmap      // the tokens of the trie
	has    [128]bitmap // those with a byte; nil: none
	others bitmap      // those with a byte from 0x80 on
	broken bitmap      // those that no run takes, as such bytes make no characters
	begin  [8]bitmap   // those in whose number of beginning characters a bit is set

	depth []uint8    // by node: bytes up to it and with it
	nodes []uint32   // in the order of their bytes, and of the trie
	from  [257]int32 // by byte: where its nodes begin
}

// build makes the index of a trie.
func (x *index) build(t *trie, size int) {
	words := (size + 63) / 64
	x.all, x.others, x.broken = make(bitmap, words), make(bitmap, words), make(bitmap, words)
	for i := range x.begin {
		x.begin[i] = make(bitmap, words)
	}
	x.depth, x.nodes = make([]uint8, len(t.b)), make([]uint32, len(t.b))
	for _, b := range t.b {
		x.from[b]++
	}
	sum := int32(0)
	for b, n := range x.from {
		x.from[b] = sum
		sum += n
	}
	any := Chars{ASCII: [2]uint64{^uint64(0), ^uint64(0)}, Others: true}
	next := x.from
	var text [far]byte
	var ends [far]uint32
	depth := 0
	for i, b := range t.b {
		for depth > 0 && ends[depth-1] <= uint32(i) {
			depth--
		}
		text[depth], ends[depth] = b, t.end[i]
		depth++
		x.depth[i] = uint8(depth)
		x.nodes[next[b]] = uint32(i)
		next[b]++
		id := t.id[i]
		if id < 0 {
			continue
		}
		x.all.set(id)
		begin, other := 0, false
		for _, b := range text[:depth] {
			if b < 0x80 {
				if x.has[b] == nil {
					x.has[b] = make(bitmap, words)
				}
				x.has[b].set(id)
				begin++
			} else {
				other = true
				if b >= 0xC0 {
					begin++
				}
			}
		}
		for ; begin > 0; begin &= begin - 1 {
			x.begin[bits.TrailingZeros(uint(begin))].set(id)
		}
		if other {
			x.others.set(id)
			if !any.scan(text[:depth]).whole {
				x.broken.set(id)
			}
		}
	}
}

// at is the nodes of a byte.
func (x *index) at(b byte) []uint32 { return x.nodes[x.from[b]:x.from[int(b)+1]] }

// upTo leaves those of tokens in which at most n characters begin, if none of
// these is an escape. It compares all of 64 tokens at once, bit by bit.
func (x *index) upTo(n int, tokens bitmap) {
	for i := range tokens {
		more, same := uint64(0), tokens[i]
		for bit := len(x.begin) - 1; bit >= 0; bit-- {
			if has := x.begin[bit][i]; n>>bit&1 == 0 {
				more |= same & has
				same &^= has
			} else {
				same &= has
			}
		}
		tokens[i] &^= more
	}
}

// whole is the tokens that are nothing but characters of a set, spelt without
// escapes; the last may be cut.
func (x *index) whole(c *Chars) bitmap {
	out := slices.Clone(x.all)
	if !c.Others {
		out.without(x.others)
	} else {
		out.without(x.broken)
	}
	var not [4]bitmap // four at a time, as most of the work is to go through out
	n := 0
	for b, has := range x.has {
		if has == nil || c.Has(byte(b)) && (b != '\\' || c.Escapes == 0) {
			continue
		}
		if not[n] = has; n < len(not)-1 {
			n++
			continue
		}
		n = 0
		p, q, r, s := not[0][:len(out)], not[1][:len(out)], not[2][:len(out)], not[3][:len(out)]
		for i := range out {
			out[i] &^= p[i] | q[i] | r[i] | s[i]
		}
	}
	for _, has := range not[:n] {
		out.without(has)
	}
	return out
}

// bytes is what the index holds.
func (x *index) bytes() int {
	n := int(unsafe.Sizeof(*x)) + len(x.depth) + 4*len(x.nodes)
	for _, b := range slices.Concat(x.has[:], x.begin[:], []bitmap{x.all, x.others, x.broken}) {
		n += 8 * len(b)
	}
	return n
}
