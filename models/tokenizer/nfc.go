package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc is s in normalisation form C, as Hugging Face tokenizers 0.23 has it: by
// the tables of Unicode 9. Bytes that aren't valid UTF-8 stay as they are.
//
// Most text has no unstable character and is normal for that reason. Of the rest
// package norm says whether it is. (A text that it says is normal is so for
// Unicode 9 too, which orders and composes less.) Its own result would be that of
// a newer Unicode, with U+034F put in where there are more than 30 marks in a
// row, as in the Stream-Safe Text Format.
func nfc(s string) string {
	t := classes()
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		c, w := t.at(s, i)
		if c&unstable != 0 {
			if norm.NFC.IsNormalString(s) {
				return s
			}
			return string(composeAll(s))
		}
		i += w
	}
	return s
}

// composeAll is nfc by the book (UAX 15): decompose, order the marks between
// starters by class, compose.
func composeAll(s string) []byte {
	type char struct {
		r   rune // -1 - b for a byte b that isn't valid UTF-8
		ccc uint8
	}
	chars := make([]char, 0, len(s)/2)
	mark := func(r rune, ccc uint8) {
		if ccc != 0 && newToNFC(r) {
			ccc = 0
		}
		chars = append(chars, char{r, ccc})
	}
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			chars = append(chars, char{rune(s[i]), 0})
			i++
			continue
		}
		r, w := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && w == 1 {
			chars = append(chars, char{-1 - rune(s[i]), 0})
			i++
			continue
		}
		p := norm.NFD.PropertiesString(s[i : i+w])
		// No decomposition is given for Hangul syllables. None is needed: to
		// compose them with a final consonant is all that can happen to them.
		if d := p.Decomposition(); d == nil || newToNFC(r) {
			mark(r, p.CCC())
		} else {
			for len(d) > 0 {
				r, w := utf8.DecodeRune(d)
				mark(r, norm.NFD.Properties(d).CCC())
				d = d[w:]
			}
		}
		i += w
	}
	for i := 0; i < len(chars); {
		if chars[i].ccc == 0 {
			i++
			continue
		}
		j := i
		for j < len(chars) && chars[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b char) int { return int(a.ccc) - int(b.ccc) })
		i = j
	}
	out := chars[:0]
	starter := -1 // index in out
	for _, c := range chars {
		// A character is blocked from the starter by one between them of its
		// own class or higher.
		if starter >= 0 && c.r >= firstSecond && (len(out)-1 == starter || out[len(out)-1].ccc < c.ccc) {
			if r, ok := compose(out[starter].r, c.r); ok {
				out[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	b := make([]byte, 0, len(s))
	for _, c := range out {
		if c.r < 0 {
			b = append(b, byte(-1-c.r))
		} else {
			b = utf8.AppendRune(b, c.r)
		}
	}
	return b
}

// firstSecond is the lowest code point that composes with one before it.
const firstSecond = 0x300

// compose is the primary composite of a and b.
func compose(a, b rune) (rune, bool) {
	if a < 0 {
		return 0, false
	}
	var in, out [2 * utf8.UTFMax]byte
	s := utf8.AppendRune(utf8.AppendRune(in[:0], a), b)
	t := norm.NFC.Append(out[:0], s...)
	r, n := utf8.DecodeRune(t)
	if n != len(t) || newToNFC(r) {
		return 0, false
	}
	return r, true
}

// newToNFC reports whether r is younger than Unicode 9, as far as package norm
// treats such a character other than an unassigned one.
func newToNFC(r rune) bool {
	for _, v := range since9 {
		if r <= v.hi {
			if r >= v.lo {
				return true
			}
			break
		}
	}
	for _, v := range since15 {
		if r <= v.hi {
			return r >= v.lo
		}
	}
	return false
}

// since9 are the characters of Unicode 10 to 15 with a combining class other
// than 0 or a canonical decomposition.
var since9 = []struct{ lo, hi rune }{
	{0x7fd, 0x7fd}, {0x898, 0x89f}, {0x8ca, 0x8d3}, {0x9fe, 0x9fe}, {0xc3c, 0xc3c}, {0xd3b, 0xd3c}, {0xeba, 0xeba}, {0x1715, 0x1715},
	{0x1abf, 0x1ace}, {0x1df6, 0x1dfa}, {0xa82c, 0xa82c}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
	{0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
	{0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
	{0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
}
