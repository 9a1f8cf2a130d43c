package retrieval

import (
	"unicode"
	"unicode/utf8"
)

// maxWord is the length in bytes after which the rest of a word is ignored;
// no word of a language is longer, and hostile text cannot fill the vocabulary.
const maxWord = 64

// words reads the words of a text one after another. A word is a run of
// letters or a run of digits in lower case; camelCase, PascalCase and
// HTTPServer are split into their parts; a Chinese or Japanese character is a
// word by itself. Stop words are left out and English plurals cut.
type words struct {
	text string
	pos  int
	buf  [maxWord + utf8.UTFMax]byte
}

type class uint8

const (
	other class = iota
	lower
	upper
	digit
	ideograph
)

func classOf(r rune) class {
	if r < utf8.RuneSelf {
		switch {
		case 'a' <= r && r <= 'z':
			return lower
		case 'A' <= r && r <= 'Z':
			return upper
		case '0' <= r && r <= '9':
			return digit
		}
		return other
	}
	switch {
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
		return ideograph
	case unicode.IsUpper(r):
		return upper
	case unicode.IsLetter(r), unicode.IsMark(r):
		return lower
	case unicode.IsDigit(r):
		return digit
	}
	return other
}

func (w *words) peek(at int) (r rune, size int, c class) {
	if at >= len(w.text) {
		return 0, 0, other
	}
	if b := w.text[at]; b < utf8.RuneSelf {
		return rune(b), 1, classOf(rune(b))
	}
	r, size = utf8.DecodeRuneInString(w.text[at:])
	return r, size, classOf(r)
}

// next returns the next word, or nil at the end. The bytes are valid until the
// following call.
func (w *words) next() []byte {
	for {
		word, ascii := w.raw()
		if word == nil {
			return nil
		}
		if stop(word) {
			continue
		}
		if ascii {
			word = singular(word)
		}
		return word
	}
}

// raw returns the next word before stop words and plurals are seen to, and
// whether it is ASCII throughout.
func (w *words) raw() (word []byte, ascii bool) {
	var r rune
	var size int
	var c class
	for {
		r, size, c = w.peek(w.pos)
		if size == 0 {
			return nil, false
		}
		if c != other {
			break
		}
		w.pos += size
	}
	ascii = true
	n := 0
	first := c
	prev := c
	for {
		if r >= utf8.RuneSelf {
			ascii = false
			r = unicode.ToLower(r)
		} else if c == upper {
			r += 'a' - 'A'
		}
		if n < maxWord {
			n += utf8.EncodeRune(w.buf[n:], r)
		}
		w.pos += size
		if first == ideograph {
			break
		}
		prev = c
		r, size, c = w.peek(w.pos)
		if size == 0 || c == other || c == ideograph || (c == digit) != (first == digit) {
			break
		}
		if c == upper {
			if prev == lower {
				break
			}
			if prev == upper {
				if _, _, after := w.peek(w.pos + size); after == lower {
					break
				}
			}
		}
	}
	return w.buf[:n], ascii
}

// singular cuts the plural ending of an English word of more than three
// letters: queries to query, tools to tool; access stays.
func singular(word []byte) []byte {
	n := len(word)
	if n <= 3 || word[n-1] != 's' {
		return word
	}
	if n > 4 && word[n-2] == 'e' && word[n-3] == 'i' {
		word[n-3] = 'y'
		return word[:n-2]
	}
	if word[n-2] != 's' {
		return word[:n-1]
	}
	return word
}

// stop says whether a word carries no meaning for the choice of a tool.
func stop(word []byte) bool {
	if len(word) > 6 {
		return false
	}
	_, is := stopWords[string(word)]
	return is
}

var stopWords = func() map[string]struct{} {
	m := make(map[string]struct{})
	for _, w := range [...]string{
		"a", "an", "and", "are", "as", "at", "be", "been", "by", "can", "could",
		"did", "do", "does", "for", "from", "had", "has", "have", "how", "i",
		"if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of",
		"on", "or", "our", "please", "s", "she", "so", "such", "that", "the",
		"their", "them", "then", "there", "these", "they", "this", "to", "us",
		"was", "we", "were", "what", "when", "where", "which", "who", "will",
		"with", "would", "you", "your",
	} {
		m[w] = struct{}{}
	}
	return m
}()

// sentence cuts the first sentence off a text: up to white space after a full
// stop, question or exclamation mark, or up to a line break. Both parts are
// trimmed; the sentence may be empty.
func sentence(text string) (first, rest string) {
	ended := false
	for i, r := range text {
		switch {
		case r == '\n', ended && unicode.IsSpace(r):
			return trim(text[:i]), trim(text[i:])
		case r == '.', r == '!', r == '?', r == '。':
			ended = true
		default:
			ended = false
		}
	}
	return trim(text), ""
}
