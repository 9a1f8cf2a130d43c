package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A class is the set of the character properties that the split patterns and
// the normaliser ask for.
type class uint8

const (
	space    class = 1 << iota // \s, that is White_Space
	newline                    // \r and \n; they are space too
	upper                      // \p{Lu} or \p{Lt}
	lower                      // \p{Ll}
	caseless                   // \p{Lm} or \p{Lo}
	mark                       // \p{M}
	number                     // \p{N}
	unstable                   // may change, or change its neighbours, in normalisation form C

	letter = upper | lower | caseless // \p{L}
	// The two sets of the o200k pattern, which splits camel case.
	upperish = upper | caseless | mark
	lowerish = lower | caseless | mark
)

// A classTable holds the class of every code point in two stages: the block of
// 256 code points, then the code point in it.
type classTable struct {
	ascii  [256]class // by byte; zero from 0x80 on
	block  [(unicode.MaxRune + 1) >> 8]uint8
	blocks [][256]class
}

// classes are the classes of Unicode 17, which both reference implementations
// use (Hugging Face tokenizers 0.23 by Oniguruma, tiktoken 0.14 by Rust's regex
// crate). Go 1.26 is at Unicode 15, so since15 is added to Go's own tables.
var classes = sync.OnceValue(func() *classTable {
	all := make([]class, unicode.MaxRune+1)
	for _, p := range []struct {
		c class
		t *unicode.RangeTable
	}{
		{space, unicode.White_Space}, {upper, unicode.Lu}, {upper, unicode.Lt}, {lower, unicode.Ll},
		{caseless, unicode.Lm}, {caseless, unicode.Lo}, {mark, unicode.M}, {number, unicode.N},
	} {
		for _, r := range p.t.R16 {
			for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
				all[c] |= p.c
			}
		}
		for _, r := range p.t.R32 {
			for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
				all[c] |= p.c
			}
		}
	}
	for _, r := range since15 {
		for c := r.lo; c <= r.hi; c++ {
			all[c] |= r.class
		}
	}
	for _, r := range unstableRanges {
		for c := r.lo; c <= r.hi; c++ {
			p := norm.NFC.PropertiesString(string(c))
			if !p.BoundaryBefore() || p.Decomposition() != nil && !norm.NFC.IsNormalString(string(c)) {
				all[c] |= unstable
			}
		}
	}
	all['\r'] |= newline
	all['\n'] |= newline

	t := new(classTable)
	copy(t.ascii[:utf8.RuneSelf], all)
	seen := make(map[[256]class]uint8)
	for i := range t.block {
		b := [256]class(all[i<<8:])
		n, ok := seen[b]
		if !ok {
			n = uint8(len(t.blocks))
			seen[b] = n
			t.blocks = append(t.blocks, b)
		}
		t.block[i] = n
	}
	if len(t.blocks) > 256 {
		panic("tokenizer: more than 256 distinct blocks of character classes")
	}
	return t
})

// unstableRanges hold every unstable character. They leave out ASCII and the
// large blocks of ideographs and syllables.
var unstableRanges = []struct{ lo, hi rune }{
	{0x80, 0x33ff}, {0xa000, 0xabff}, {0xd7a4, 0xd7ff}, {0xf900, 0x16fff}, {0x1b000, 0x1ffff}, {0x2f800, 0x2faff},
}

// at is the class of the character that starts at s[i], and its length in
// bytes. A byte that is not part of valid UTF-8 is a character of its own in no
// class.
func (t *classTable) at(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, w := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && w == 1 {
		return 0, 1
	}
	return t.blocks[t.block[r>>8]][r&0xff], w
}

// run is the end of the run of characters of class c that starts at s[i].
func (t *classTable) run(s string, i int, c class) int {
	for i < len(s) {
		if b := s[i]; b < utf8.RuneSelf {
			if t.ascii[b]&c == 0 {
				return i
			}
			i++
			continue
		}
		k, w := t.at(s, i)
		if k&c == 0 {
			return i
		}
		i += w
	}
	return i
}
