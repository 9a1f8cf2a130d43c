package token

import (
	"bytes"
	"cmp"
	"slices"
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
	chars Chars
	whole bitmap        // the tokens that the run can take
	pure  [][]int32     // the same by how many characters they begin
	rest  [256][]leaver // by group, sorted by bytes
	size  int           // bytes

	upTo []bitmap // by characters: the tokens that begin at most so many, made when needed

	tries    [256]*trie   // of the tokens of a group, made when needed
	suffixes [256]*leaves // the same
	opened   *opened      // the same
}

// A leaver is a token that leaves the run: skip bytes, which begin and end
// chars characters of the set, and then something else.
type leaver struct {
	id    int32
	skip  uint8
	chars uint8
}

// leaves are the tokens of a group by what they hold behind the run: id in the
// trie is an index into by, whose leavers stand in the order of their chars.
type leaves struct {
	trie    trie
	by      [][]leaver
	spelled []int32 // tokens with \u before b
}

// opened are the tokens that begin with a quote: those whose other bytes are
// characters of the run, in the order of how many, and the trie of what the
// others hold behind the quote.
type opened struct {
	pure []leaver
	rest trie
}

type bitmap []uint64

func (b bitmap) set(id int32)      { b[id>>6] |= 1 << (id & 63) }
func (b bitmap) has(id int32) bool { return b[id>>6]>>(id&63)&1 == 1 }

// maxSlices bounds how many slices a vocabulary keeps, at about 2 MB each.
const maxSlices = 32

// slice gives the slice of a set, and makes it the first time: some 5 ms.
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
	s := v.cut(c)
	if len(v.slices) < maxSlices {
		v.slices = append(v.slices, nil)
	}
	copy(v.slices[1:], v.slices)
	v.slices[0] = s
	return s
}

// cut sorts the tokens by what they mean to the run.
func (v *Vocabulary) cut(c Chars) *slice {
	s := &slice{chars: c, whole: make(bitmap, v.Words()), pure: make([][]int32, far+1)}
	most := 0
	v.trie.each(func(id int32, text []byte) {
		switch r := c.scan(text); {
		case r.whole:
			s.pure[r.chars] = append(s.pure[r.chars], id)
			s.whole.set(id)
			s.size += 4
			most = max(most, r.chars)
		case r.clean:
			d := text[r.n]
			s.rest[d] = append(s.rest[d], leaver{id, uint8(r.n), uint8(r.chars)})
			s.size += 8
		}
	})
	s.pure = s.pure[:most+1]
	s.size += 8 * len(s.whole)
	return s
}

// within is the tokens that begin at most n characters and stay in the run;
// a negative n is no limit.
func (v *Vocabulary) within(s *slice, n int) *bitmap {
	if n < 0 || n >= len(s.pure)-1 {
		return &s.whole
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.upTo == nil {
		words := v.Words()
		all := make(bitmap, len(s.pure)*words)
		for n, ids := range s.pure {
			row := all[n*words : (n+1)*words : (n+1)*words]
			if n > 0 {
				copy(row, s.upTo[n-1])
			}
			for _, id := range ids {
				row.set(id)
			}
			s.upTo = append(s.upTo, row)
		}
		s.size += 8 * len(all)
	}
	return &s.upTo[n]
}

// leavers is how many tokens leave the run at one of ends.
func (s *slice) leavers(ends string) int {
	n := 0
	for i := range len(ends) {
		n += len(s.rest[ends[i]])
	}
	return n
}

// leaving is the trie of the tokens that leave the run at byte b.
func (v *Vocabulary) leaving(s *slice, b byte) *trie {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.tries[b] == nil {
		tokens := make([]entry, len(s.rest[b]))
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

// behind is the tokens that leave the run at byte b, by what follows b.
func (v *Vocabulary) behind(s *slice, b byte) *leaves {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.suffixes[b] != nil {
		return s.suffixes[b]
	}
	type part struct {
		text []byte
		leaver
	}
	ls := &leaves{}
	all := make([]part, len(s.rest[b]))
	for i, l := range s.rest[b] {
		t, _, _ := v.tok.Token(l.id)
		all[i] = part{t[l.skip:], l}
		if bytes.Contains(t[:l.skip], []byte(`\u`)) {
			ls.spelled = append(ls.spelled, l.id)
		}
	}
	slices.SortFunc(all, func(x, y part) int {
		return cmp.Or(bytes.Compare(x.text, y.text), cmp.Compare(x.chars, y.chars), cmp.Compare(x.id, y.id))
	})
	var tokens []entry
	for i, l := range all {
		if i == 0 || !bytes.Equal(all[i-1].text, l.text) {
			tokens = append(tokens, entry{l.text, int32(len(ls.by))})
			ls.by = append(ls.by, nil)
		}
		ls.by[len(ls.by)-1] = append(ls.by[len(ls.by)-1], l.leaver)
	}
	ls.trie.build(tokens)
	s.suffixes[b] = ls
	s.size += ls.trie.bytes() + 8*len(all) + 24*len(ls.by)
	return ls
}

// opening is the tokens that begin with a quote, behind which the run begins.
func (v *Vocabulary) opening(s *slice) *opened {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.opened != nil {
		return s.opened
	}
	o := &opened{}
	var rest []entry
	t := &v.trie
	var text [far]byte
	var ends [far]uint32
	depth := 0
	for i := t.first['"'] + 1; i < t.first['"'+1]; i++ {
		for depth > 0 && ends[depth-1] <= i {
			depth--
		}
		text[depth], ends[depth] = t.b[i], t.end[i]
		depth++
		if id := t.id[i]; id >= 0 {
			if r := s.chars.scan(text[:depth]); r.whole {
				o.pure = append(o.pure, leaver{id, 0, uint8(r.chars)})
			} else {
				rest = append(rest, entry{bytes.Clone(text[:depth]), id})
			}
		}
	}
	slices.SortStableFunc(o.pure, func(x, y leaver) int { return cmp.Compare(x.chars, y.chars) })
	o.rest.build(rest)
	s.opened = o
	s.size += 8*len(o.pure) + o.rest.bytes()
	return o
}
