// Package toolname reads the names of tools and of their parameters: the words
// they are made of, and what their verbs say that a call does.
package toolname

import (
	"strings"
	"unicode"
)

// Words cuts a name or a text into lower-case words: at everything that is
// neither a letter nor a digit, and inside names like fileName, HTTPCode and
// sha256Sum. Of scripts written without spaces each character is a word.
func Words(s string) []string {
	var words []string
	var w []rune
	flush := func() {
		if len(w) > 0 {
			words = append(words, strings.ToLower(string(w)))
			w = w[:0]
		}
	}
	rs := []rune(s)
	for i, r := range rs {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			continue
		case r > 0x7f && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			flush()
			words = append(words, string(r))
			continue
		case unicode.IsUpper(r) && i > 0:
			next := i+1 < len(rs) && unicode.IsLower(rs[i+1])
			if !unicode.IsUpper(rs[i-1]) || next {
				flush()
			}
		}
		w = append(w, r)
	}
	flush()
	return words
}
