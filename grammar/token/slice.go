package token

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"unsafe"
)

// A slice is what the tokens of a vocabulary mean to a run of characters, so
// that its masks need no walk over most of the vocabulary: 95 of 100 tokens may
// stand inside a string.
//
// A token that the run can take as a whole is listed by how many characters it
// begins; its last one may be cut. Any other token is in the group of the byte
// where the run must have ended: the first that no character of the set begins
// with. A token that only departs from the set within a character is in no
// group, as no run with an end that begins otherwise can take it.
type slice struct {
	chars  Chars
	whole  bitmap      // the tokens that the run can take
	spelt  []leaver    // those of them with escapes
	groups [256]*group // made when needed
	size   int         // bytes

	upTo   [far]*bitmap // by characters: the tokens that begin at most so many, made when needed
	opened *opened      // made when asked for often
	asked  int          // times that opened was
}

// A group is the tokens that leave the run at one byte, as stems in the order
// of the trie.
type group struct {
	stems    []stem
	nodes    int       // of the trie, those of the stems and below
	chars    [2]uint64 // bit n%64 of word n/64: some stem has n chars
	suffixes *leaves   // made when asked for often
	asked    int       // times that suffixes were
}

// A stem is where tokens leave the run: their first skip bytes begin and end
// chars characters of the set, and what comes next, up to a node of the trie,
// is none: a byte, or a whole character that the set lacks.
type stem struct {
	node               uint32
	skip, depth, chars uint8 // depth: bytes up to the node and with it
}

// often is how many times a slice is asked for what takes 0.1 ms to make and
// saves 10 µs a time, until it is made.
const often = 8

// A leaver is a token that leaves the run after a number of characters.
type leaver struct {
	id    int32
	chars uint8
}

// leaves are the tokens of a group by what they hold behind the run: id in the
// trie is an index into by, whose leavers stand in the order of their chars.
type leaves struct {
	trie trie
	by   [][]leaver
}

// opened are the tokens that begin with a quote: those whose other bytes are
// characters of the run, in the order of how many, and the trie of what the
// others hold behind the quote.
type opened struct {
	pure []leaver
	rest trie
}

type bitmap []uint64

// without removes tokens.
func (b bitmap) without(these bitmap) {
	for i, w := range these {
		b[i] &^= w
	}
}

// count is how many tokens there are.
func (b bitmap) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

func (b bitmap) set(id int32)      { b[id>>6] |= 1 << (id & 63) }
func (b bitmap) remove(id int32)   { b[id>>6] &^= 1 << (id & 63) }
func (b bitmap) has(id int32) bool { return b[id>>6]>>(id&63)&1 == 1 }

// maxSlices bounds how many slices a vocabulary keeps, at 20 to 200 kB each.
const maxSlices = 128

// slice gives the slice of a set, and makes it the first time: 0.05 ms.
func (v *Vocabulary) slice(c Chars) *slice {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, s := range v.slices {
		if s.chars == c {
			copy(v.slices[1:i+1], v.slices[:i])
			v.slices[0] = s
			return s
		}
	}
	s := &slice{chars: c, whole: v.index.whole(&c)}
	for _, x := range c.Except {
		v.holding(string(x), func(i uint32, _ int) {
			for _, id := range v.trie.id[i:v.trie.end[i]] {
				if id >= 0 {
					s.whole.remove(id)
				}
			}
		})
	}
	if c.Escapes != 0 {
		for _, id := range v.backslashed {
			text, _, _ := v.tok.Token(id)
			if r := c.scan(text); r.whole {
				s.whole.set(id)
				s.spelt = append(s.spelt, leaver{id, uint8(r.chars)})
			}
		}
	}
	s.size = int(unsafe.Sizeof(*s)) + 8*len(s.whole) + 8*len(s.spelt)
	if len(v.slices) < maxSlices {
		v.slices = append(v.slices, nil)
	} else {
		v.shelf.clear() // whose masks hold bitmaps of the slice that goes
	}
	copy(v.slices[1:], v.slices)
	v.slices[0] = s
	return s
}

// within is the tokens that begin at most n characters and stay in the run;
// a negative n is no limit.
func (v *Vocabulary) within(s *slice, n int) *bitmap {
	if n < 0 || n >= far {
		return &s.whole
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.upTo[n] == nil {
		row := slices.Clone(s.whole)
		v.index.upTo(n, row)
		for _, l := range s.spelt {
			if int(l.chars) <= n {
				row.set(l.id)
			}
		}
		if slices.Equal(row, s.whole) {
			s.upTo[n] = &s.whole
		} else {
			s.upTo[n] = &row
			s.size += 8 * len(row)
		}
	}
	return s.upTo[n]
}

// group is the tokens that leave the run at byte b.
func (v *Vocabulary) group(s *slice, b byte) *group {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.groupOf(s, b)
}

func (v *Vocabulary) groupOf(s *slice, b byte) *group {
	if g := s.groups[b]; g != nil {
		return g
	}
	g := &group{}
	if !s.chars.Others && s.chars.Escapes == 0 && s.whole.count() < len(v.index.at(b)) {
		v.leaveFew(s, g, b, 0, uint32(len(v.trie.b)), 0)
	} else {
		v.leave(s, g, string([]byte{b}))
	}
	for _, x := range s.chars.Except {
		if x := string(x); x[0] == b {
			v.leave(s, g, x)
		}
	}
	slices.SortFunc(g.stems, func(x, y stem) int { return cmp.Compare(x.node, y.node) })
	s.groups[b] = g
	s.size += int(unsafe.Sizeof(*g)) + 8*cap(g.stems)
	return g
}

// leave adds the stems of tokens that leave the run with x, a byte or a whole
// character.
func (v *Vocabulary) leave(s *slice, g *group, x string) {
	v.holding(x, func(i uint32, depth int) {
		r := s.chars.scan(v.text(i)[:depth])
		if !r.clean || r.n != depth-len(x) {
			return
		}
		v.add(g, stem{i, uint8(r.n), uint8(depth), uint8(r.chars)})
	})
}

// leaveFew is leave for a byte and a set of which few tokens are made, none with
// a character of more bytes than one. It looks at the nodes from i to end, at a
// depth.
func (v *Vocabulary) leaveFew(s *slice, g *group, b byte, i, end uint32, depth uint8) {
	t := &v.trie
	for ; i < end; i = t.end[i] {
		switch {
		case t.b[i] < 0x80 && s.chars.Has(t.b[i]):
			v.leaveFew(s, g, b, i+1, t.end[i], depth+1)
		case t.b[i] == b:
			v.add(g, stem{i, depth, depth + 1, depth})
		}
	}
}

func (v *Vocabulary) add(g *group, st stem) {
	g.stems = append(g.stems, st)
	g.nodes += int(v.trie.end[st.node] - st.node)
	g.chars[st.chars>>6] |= 1 << (st.chars & 63)
}

// holding calls f with the nodes whose text ends with x, and its length.
func (v *Vocabulary) holding(x string, f func(i uint32, depth int)) {
	for _, i := range v.index.at(x[len(x)-1]) {
		depth := int(v.index.depth[i])
		if len(x) == 1 || depth >= len(x) && string(v.text(i)[depth-len(x):depth]) == x {
			f(i, depth)
		}
	}
}

// leavers is about how many tokens leave the run at one of ends.
func (v *Vocabulary) leavers(s *slice, ends string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for i := range len(ends) {
		n += v.groupOf(s, ends[i]).nodes
	}
	return n / 2 // nodes that a token has to itself
}

// behind is the tokens that leave the run at byte b, by what follows b; nil
// unless asked for often.
func (v *Vocabulary) behind(s *slice, b byte) *leaves {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.groupOf(s, b)
	if g.asked++; g.suffixes != nil || g.asked < often || g.nodes > 2*maxLeavers {
		return g.suffixes
	}
	return v.sortBehind(s, b)
}

// sortBehind makes the suffixes of a group.
func (v *Vocabulary) sortBehind(s *slice, b byte) *leaves {
	type part struct {
		head uint64 // the first bytes of text
		text []byte
		leaver
	}
	g := v.groupOf(s, b)
	ls := &leaves{}
	all := make([]part, 0, g.nodes)
	t := &v.trie
	for _, st := range g.stems {
		for _, id := range t.id[st.node:t.end[st.node]] {
			if id < 0 {
				continue
			}
			text, _, _ := v.tok.Token(id)
			text = text[st.skip:]
			all = append(all, part{head(text), text, leaver{id, st.chars}})
		}
	}
	slices.SortFunc(all, func(x, y part) int {
		if x.head != y.head {
			return cmp.Compare(x.head, y.head)
		}
		return cmp.Or(bytes.Compare(x.text, y.text), cmp.Compare(x.chars, y.chars), cmp.Compare(x.id, y.id))
	})
	var texts [][]byte
	leavers := make([]leaver, len(all))
	from := 0
	for i, l := range all {
		leavers[i] = l.leaver
		if i+1 == len(all) || !bytes.Equal(all[i+1].text, l.text) {
			texts = append(texts, l.text)
			ls.by = append(ls.by, leavers[from:i+1:i+1])
			from = i + 1
		}
	}
	ls.trie.build(len(texts), func(i int) ([]byte, int32) { return texts[i], int32(i) })
	g.suffixes = ls
	s.size += ls.trie.bytes() + 8*len(all) + 24*len(ls.by)
	return ls
}

// opening is the tokens that begin with a quote, behind which the run begins;
// nil unless asked for often.
func (v *Vocabulary) opening(s *slice) *opened {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.asked++; s.opened != nil || s.asked < often {
		return s.opened
	}
	return v.sortOpening(s)
}

// sortOpening makes opened.
func (v *Vocabulary) sortOpening(s *slice) *opened {
	o := &opened{}
	var rest []int32
	t := &v.trie
	for _, id := range t.id[t.first['"']+1 : t.first['"'+1]] {
		if id < 0 {
			continue
		}
		text, _, _ := v.tok.Token(id)
		if r := s.chars.scan(text[1:]); r.whole {
			o.pure = append(o.pure, leaver{id, uint8(r.chars)})
		} else {
			rest = append(rest, id)
		}
	}
	slices.SortStableFunc(o.pure, func(x, y leaver) int { return cmp.Compare(x.chars, y.chars) })
	o.rest.build(len(rest), func(i int) ([]byte, int32) {
		text, _, _ := v.tok.Token(rest[i])
		return text[1:], rest[i]
	})
	s.opened = o
	s.size += 8*len(o.pure) + o.rest.bytes()
	return o
}
