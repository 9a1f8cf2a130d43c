package retrieval

import (
	"iter"
	"strings"
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
	root [1 + maxWord + utf8.UTFMax]byte
	// plain says that the latest word is ASCII throughout.
	plain bool
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
		w.plain = ascii
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

// stem returns the term of a word's stem: stemMark and the stem. The bytes are
// valid until the following call.
func (w *words) stem(word []byte) []byte {
	w.root[0] = stemMark
	n := copy(w.root[1:], stem(word, w.plain))
	return w.root[:1+n]
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

var stopWords = wordSet(`a an and are as at be been by can could did do does for from had has have how i if in into is it its me my
	no not of on or our please s she so such that the their them then there these they this to us was we were what when where which who will
	with would you your`)

// stemMark begins a stem among the terms of an index; no word has it.
const stemMark = '~'

// stemEndings are cut off by stem, the first that leaves enough of the word.
var stemEndings = [...]string{"ations", "ation", "ings", "ing", "ied", "ed", "er", "ers", "or", "ors", "ment", "ly", "e", "ion", "al", "y", "s"}

// stem returns what is left of a word in lower case when an ending of English
// inflection is cut off: booking, booked and book have one stem. It is a prefix
// of the word and at least three letters long, four before an ending of one
// letter; short words and words of other scripts are left as they are.
func stem(word []byte, ascii bool) []byte {
	if len(word) <= 4 || !ascii {
		return word
	}
	for _, end := range stemEndings {
		n := len(word) - len(end)
		if n < 3 || n < 4 && len(end) == 1 || string(word[n:]) != end {
			continue
		}
		// stopp-ed is stop, but sell-ing, pass-ed and buzz-er keep both letters
		if c := word[n-1]; n > 3 && c == word[n-2] && c != 'l' && c != 's' && c != 'z' {
			n--
		}
		return word[:n]
	}
	return word
}

// filler says whether a word of a query is about the asking rather than about
// what is asked for. In the text of a tool such words count.
func filler(word []byte) bool {
	if len(word) > 7 {
		return false
	}
	_, is := fillers[string(word)]
	return is
}

var fillers = func() map[string]struct{} {
	m := make(map[string]struct{})
	for w := range wordSet(`able about above again against also am any because being below both but d doing during each few finally give going
		having he hello help her here hers hey hi him his im just kindly know lastly let like ll look looking m may maybe might more most much
		must need now ok okay once only other own perhaps re ready really same should since some still sure t tell than thank thanks they
		those through too until ve very want wanted while`) {
		m[string(singular([]byte(w)))] = struct{}{} // as a query has them
	}
	return m
}()

func wordSet(words string) map[string]struct{} {
	m := make(map[string]struct{})
	for w := range strings.FieldsSeq(words) {
		m[w] = struct{}{}
	}
	return m
}

// spaced writes a name as words: camel case and joints become spaces.
func spaced(name string) string {
	var b strings.Builder
	var last, before class
	for i, r := range name {
		c := classOf(r)
		switch {
		case r == '_' || r == '-' || r == '.' || r == '/':
			b.WriteByte(' ')
			last, before = other, other
			continue
		case c == upper && (last == lower || last == digit):
			b.WriteByte(' ')
		case c == lower && last == upper && before == upper:
			// the capital before belongs to this word: HTTPServer
			s := b.String()
			_, size := utf8.DecodeLastRuneInString(s)
			head, tail := s[:len(s)-size], s[len(s)-size:]
			b.Reset()
			b.WriteString(head)
			b.WriteByte(' ')
			b.WriteString(tail)
		}
		b.WriteString(name[i : i+utf8.RuneLen(r)])
		last, before = c, last
	}
	return b.String()
}

// sentences yields the sentences of a text that hold anything.
func sentences(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			var s string
			s, text = sentence(text)
			if s != "" && !yield(s) {
				return
			}
		}
	}
}

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
