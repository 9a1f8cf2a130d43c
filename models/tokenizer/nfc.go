package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc is s in normalisation form C. Bytes that aren't valid UTF-8 stay as they
// are.
func nfc(s string) string {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf {
		i++
	}
	if i == len(s) || norm.NFC.IsNormalString(s) {
		return s
	}
	if hasLongMarks(s) {
		return string(composeAll(s))
	}
	return norm.NFC.String(s)
}

// hasLongMarks reports whether s has a run of combining marks at which package
// norm might insert U+034F, as its Stream-Safe Text Format wants once there are
// more than 30. A character decomposes to at most 3 marks or ends with at most
// 3, so with 8 in a row there are no more than 27.
func hasLongMarks(s string) bool {
	n := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			n = 0
			i++
			continue
		}
		p := norm.NFC.PropertiesString(s[i:])
		if p.CCC() == 0 {
			n = 0
		} else if n++; n > 8 {
			return true
		}
		i += max(p.Size(), 1)
	}
	return false
}

// composeAll is nfc by the book (UAX 15): decompose, order the marks between
// starters by class, compose.
func composeAll(s string) []byte {
	type char struct {
		r   rune // -1 - b for a byte b that isn't valid UTF-8
		ccc uint8
	}
	var chars []char
	var buf []byte
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && w == 1 {
			chars = append(chars, char{-1 - rune(s[i]), 0})
			i++
			continue
		}
		buf = norm.NFD.AppendString(buf[:0], s[i:i+w])
		for j := 0; j < len(buf); {
			p := norm.NFD.Properties(buf[j:])
			d, n := utf8.DecodeRune(buf[j:])
			chars = append(chars, char{d, p.CCC()})
			j += n
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
	last := uint8(0)
	for _, c := range chars {
		// A mark is blocked from the starter by one of its own class or higher.
		if starter >= 0 && c.r >= 0 && out[starter].r >= 0 && (len(out)-1 == starter || last < c.ccc) {
			if r, ok := compose(out[starter].r, c.r); ok {
				out[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		last = c.ccc
		out = append(out, c)
	}
	var b []byte
	for _, c := range out {
		if c.r < 0 {
			b = append(b, byte(-1-c.r))
		} else {
			b = utf8.AppendRune(b, c.r)
		}
	}
	return b
}

// compose is the primary composite of a and b.
func compose(a, b rune) (rune, bool) {
	var in, out [2 * utf8.UTFMax]byte
	s := utf8.AppendRune(utf8.AppendRune(in[:0], a), b)
	t := norm.NFC.Append(out[:0], s...)
	r, n := utf8.DecodeRune(t)
	return r, n == len(t) && n > 0
}
