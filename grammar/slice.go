package grammar

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// A slice is what the tokens of a vocabulary mean to a loop over one set of
// characters, so that its masks need no walk over most of the vocabulary: 95
// of 100 tokens may stand inside a string.
//
// A token that the loop can take as a whole is listed by how many characters
// it begins; its last one may be cut. Any other token is in the group of the
// byte where the loop must have ended: the first that no character of the set
// begins with. A token that only departs from the set within a character is in
// no group, as no loop with an end that begins otherwise can take it.
type slice struct {
	key   string
	first byteSet       // bytes that begin a character of the set
	upTo  []bitmap      // by characters: the tokens that begin at most so many
	rest  [256][]leaver // by group, sorted by bytes
	size  int           // bytes

	tries    [256]*trie   // of the tokens of a group, made when needed
	suffixes [256]*leaves // the same
}

// A leaver is a token that leaves the loop: skip bytes, which begin and end
// chars characters of the set, and then something else.
type leaver struct {
	id    int32
	skip  uint8
	chars uint8
}

// leaves are the tokens of a group by what they hold behind the loop: id in
// the trie is an index into by, whose leavers stand in the order of their chars.
type leaves struct {
	trie trie
	by   [][]leaver
}

// A byteSet has bit b%64 of word b/64 set for its bytes.
type byteSet [4]uint64

func (s *byteSet) add(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 == 1 }

func (s *byteSet) meets(o *byteSet) bool {
	return s[0]&o[0]|s[1]&o[1]|s[2]&o[2]|s[3]&o[3] != 0
}

// loopSet is the set of characters of a loop.
type loopSet struct {
	set       charSet
	anyEscape bool
}

// free is the loop of strings without a pattern.
func (l *loopSet) free() bool { return l.anyEscape }

// narrow tells that few tokens begin with characters of the set only, so that
// a walk over them is quick: hexadecimal digits take 60 µs.
func (l *loopSet) narrow() bool {
	n := 0
	for i := 0; i < len(l.set.raw); i += 2 {
		n += int(l.set.raw[i+1]-l.set.raw[i]) + 1
	}
	return n <= 22
}

func (l *loopSet) key() string {
	var b strings.Builder
	for _, r := range l.set.raw {
		b.WriteRune(r)
	}
	b.WriteByte(0)
	b.WriteString(l.set.escaped)
	if l.anyEscape {
		b.WriteByte(0)
	}
	return b.String()
}

// maxSlices bounds how many slices a vocabulary keeps, at about 2 MB each.
const maxSlices = 16

// slice gives the slice of a set, and makes it the first time: some 5 ms.
func (v *Vocabulary) slice(l *loopSet) *slice {
	key := l.key()
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, s := range v.slices {
		if s.key == key {
			copy(v.slices[1:i+1], v.slices[:i])
			v.slices[0] = s
			return s
		}
	}
	s := v.cut(l, key)
	if len(v.slices) < maxSlices {
		v.slices = append(v.slices, nil)
	}
	copy(v.slices[1:], v.slices)
	v.slices[0] = s
	return s
}

// cut sorts the tokens by what they mean to the loop.
func (v *Vocabulary) cut(l *loopSet, key string) *slice {
	w := &assembler{p: &program{depth: 1}, entry: map[*def]int32{}}
	w.node(node{op: opReturn})
	w.p.start = w.chars(l.set, l.anyEscape, 0, -1, w.node(node{op: opAccept}))
	w.p.measureNeed()
	a, err := newAutomaton(w.p, maxKept)
	if err != nil {
		panic(err) // one character at a time
	}
	s := &slice{key: key}
	begin := a.first.Load()
	e := a.edgesOf(begin)
	for b := range 256 {
		if e.index(byte(b)) != 0 {
			s.first.add(byte(b), byte(b))
		}
	}
	type level struct {
		c     *config
		end   uint32
		chars int
	}
	t := &v.trie
	var pure [][]int32 // by characters begun
	levels := []level{{begin, uint32(len(t.b)), 0}}
	for i := uint32(0); ; {
		top := levels[len(levels)-1]
		if i >= top.end {
			if levels = levels[:len(levels)-1]; len(levels) == 0 {
				break
			}
			continue
		}
		n, _ := a.next(top.c, t.b[i])
		if n == nil {
			if top.c == begin {
				s.group(v, i, len(levels)-1, top.chars)
			}
			i = t.end[i]
			continue
		}
		chars := top.chars
		if top.c == begin {
			chars++
		}
		if id := t.id[i]; id >= 0 {
			for len(pure) <= chars {
				pure = append(pure, nil)
			}
			pure[chars] = append(pure[chars], id)
		}
		levels = append(levels, level{n, t.end[i], chars})
		i++
	}
	last := make(bitmap, v.Words())
	s.upTo = append(s.upTo, last)
	for chars := 1; chars < len(pure); chars++ {
		last = append(bitmap(nil), last...)
		for _, id := range pure[chars] {
			last.set(id)
		}
		s.upTo = append(s.upTo, last)
	}
	s.size += len(s.upTo) * 8 * len(last)
	return s
}

// group puts the tokens at and below node i into the group of its byte.
func (s *slice) group(v *Vocabulary, i uint32, skip, chars int) {
	g := v.trie.b[i]
	for _, id := range v.trie.id[i:v.trie.end[i]] {
		if id >= 0 {
			s.rest[g] = append(s.rest[g], leaver{id, uint8(skip), uint8(chars)})
			s.size += 8
		}
	}
}

// within is the tokens that begin at most n characters and stay in the loop.
func (s *slice) within(n int) *bitmap { return &s.upTo[min(n, len(s.upTo)-1)] }

// trie is the tokens that leave the loop at byte b.
func (v *Vocabulary) leaving(s *slice, b byte) *trie {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.tries[b] == nil {
		tokens := make([]token, len(s.rest[b]))
		for i, l := range s.rest[b] {
			tokens[i].id = l.id
			tokens[i].b, _, _ = v.tok.Token(l.id)
		}
		t := &trie{}
		t.build(tokens)
		s.tries[b] = t
		s.size += t.bytes()
	}
	return s.tries[b]
}

// behind is the tokens that leave the loop at byte b, by what stands there.
func (v *Vocabulary) behind(s *slice, b byte) *leaves {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.suffixes[b] != nil {
		return s.suffixes[b]
	}
	ls := &leaves{}
	all := slices.Clone(s.rest[b])

	suffix := func(l leaver) []byte {
		t, _, _ := v.tok.Token(l.id)
		return t[l.skip:]
	}
	slices.SortFunc(all, func(x, y leaver) int {
		return cmp.Or(bytes.Compare(suffix(x), suffix(y)), cmp.Compare(x.chars, y.chars), cmp.Compare(x.id, y.id))
	})
	var tokens []token
	for i, l := range all {
		if i == 0 || !bytes.Equal(suffix(all[i-1]), suffix(l)) {
			tokens = append(tokens, token{suffix(l), int32(len(ls.by))})
			ls.by = append(ls.by, nil)
		}
		ls.by[len(ls.by)-1] = append(ls.by[len(ls.by)-1], l)
	}
	ls.trie.build(tokens)
	s.suffixes[b] = ls
	s.size += ls.trie.bytes() + 8*len(all) + 24*len(ls.by)
	return ls
}

// slicing says how a config's mask is put together from a slice.
type slicing struct {
	s     *slice
	chars int // that the loop may still take
	least int // that it must take before it ends
	exits []byte
	exit  *config // where the loop's end leads, if c is the loop and its end and nothing else
}

// slicing finds a loop in c whose slice can be used.
func (a *Automaton) slicing(v *Vocabulary, c *config) (best slicing, ok bool) {
	a.mu.Lock()
	var loops []*loopSet
	left := map[*loopSet]int{}
	for _, t := range c.threads {
		i, ok := a.p.loopAt[t.node]
		if !ok {
			continue
		}
		l := &a.p.loops[i]
		n := far
		if l.max >= 0 {
			n = int(min(far, l.max-t.top.count))
		}
		if _, ok := left[l.set]; !ok {
			loops = append(loops, l.set)
		}
		left[l.set] = max(left[l.set], n)
	}
	type candidate struct {
		l     *loopSet
		exits byteSet
		least int
		exit  *config
	}
	var cs []candidate
	for _, set := range loops {
		if set.narrow() {
			continue
		}
		k := candidate{l: set}
		members, others := 0, false
		var end []thread // what the loop's end leads to
		for _, t := range c.threads {
			i, in := a.p.loopAt[t.node]
			if in = in && a.p.loops[i].set == set; !in {
				continue
			}
			members++
			l := &a.p.loops[i]
			up := t.top
			if l.min > 0 || l.max >= 0 {
				k.least = int(max(0, l.min-t.top.count))
				up = t.top.up
			}
			a.set.reset()
			if a.close(l.exit, up) != nil {
				a.mu.Unlock()
				return slicing{}, false
			}
			for _, x := range a.set.found {
				a.firstBytes(x.node, &k.exits)
			}
			end = append(end, a.set.found...)
		}
		for _, t := range c.threads {
			if i, in := a.p.loopAt[t.node]; in && a.p.loops[i].set == set {
				continue
			}
			a.firstBytes(t.node, &k.exits)
			others = others || k.least > 0 || !slices.Contains(end, t)
		}
		if members == 1 && !others {
			k.exit = a.intern()
		}
		if set.free() {
			// Whatever else is going on inside the string, each of its
			// characters is one of the set, and it ends with a quote.
			if left[set] < far && others {
				continue
			}
			var quote byteSet
			quote.add('"', '"')
			if k.exits != quote {
				k.exit = nil // what the token holds before the quote matters
			}
			k.exits = quote
		}
		cs = append(cs, k)
	}
	a.mu.Unlock()
	for _, k := range cs {
		s := v.slice(k.l)
		if s.first.meets(&k.exits) {
			continue
		}
		best = slicing{s: s, chars: left[k.l], least: k.least, exit: k.exit}
		for b := range 256 {
			if k.exits.has(byte(b)) {
				best.exits = append(best.exits, byte(b))
			}
		}
		return best, true
	}
	return slicing{}, false
}

func (a *Automaton) firstBytes(n int32, to *byteSet) {
	switch n := &a.p.nodes[n]; n.op {
	case opByte:
		to.add(n.lo, n.hi)
	case opSet:
		for _, r := range a.p.ranges[n.a : n.a+n.b] {
			to.add(r.lo, r.hi)
		}
	}
}
