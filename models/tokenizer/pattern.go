package tokenizer

import "unicode/utf8"

// A pattern says how text is split into the pieces within which merging takes
// place. The references spell it as a regular expression; here it is data for
// one scanner, next, which takes each byte a bounded number of times.
type pattern struct {
	name string
	// regexes are the spellings under which the pattern appears in
	// tokenizer.json files and in tiktoken, all with the same matches.
	regexes []string

	contraction contraction
	foldCase    bool // 'S is a contraction too; and 'ſ, as s is its simple fold

	// anyLead lets one character other than \r, \n, letter or number lead a run
	// of letters; otherwise only U+0020 may.
	anyLead bool
	camel   bool // letters are split where lower case is followed by upper case

	maxDigits  int  // characters in a run of numbers; 0 is no limit
	leadDigits bool // U+0020 may lead a run of numbers

	symbolTail string // ASCII characters that a run of symbols takes along at its end

	newlines bool // \s*[\r\n]+ is a piece
	lastRun  bool // white space at the end of the text is one piece, newlines or not

	// cutNumbers splits the text at every number first; the other rules then
	// see each part as a text of its own.
	cutNumbers bool
}

type contraction uint8

const (
	noContraction contraction = iota
	ownPiece                  // 's, 't, 're, 've, 'm, 'll, 'd are pieces
	withWord                  // they end the word before them
)

const (
	regexGPT2    = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	regexR50k    = `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
	regexCL100k  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	regexCL100kT = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
	regexQwen2   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	regexO200k   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// patterns are all that we know, by the names that RanksConfig takes.
var patterns = []pattern{
	{name: "gpt2", regexes: []string{regexGPT2, regexR50k},
		contraction: ownPiece, leadDigits: true},
	{name: "smollm", // Digits before ByteLevel in tokenizer.json: no one regex
		contraction: ownPiece, leadDigits: true, cutNumbers: true},
	{name: "cl100k", regexes: []string{regexCL100kT},
		contraction: ownPiece, foldCase: true, anyLead: true, maxDigits: 3, symbolTail: "\r\n", newlines: true, lastRun: true},
	{name: "llama3", regexes: []string{regexCL100k}, // cl100k but for white space at the end of the text; Hugging Face files of cl100k say it too
		contraction: ownPiece, foldCase: true, anyLead: true, maxDigits: 3, symbolTail: "\r\n", newlines: true},
	{name: "qwen2", regexes: []string{regexQwen2},
		contraction: ownPiece, foldCase: true, anyLead: true, maxDigits: 1, symbolTail: "\r\n", newlines: true},
	{name: "o200k", regexes: []string{regexO200k},
		contraction: withWord, foldCase: true, anyLead: true, camel: true, maxDigits: 3, symbolTail: "\r\n/", newlines: true},
}

// next is the end of the piece that starts at s[i], i < len(s). Its rules stand
// in the order of the alternatives of the regular expression.
func (p *pattern) next(t *classTable, s string, i int) int {
	c, w := t.at(s, i)
	if p.contraction == ownPiece && s[i] == '\'' {
		if n := p.contracted(s[i:]); n > 0 {
			return i + n
		}
	}

	// after is where a run led by this character would start.
	after := -1
	if i+w < len(s) && (s[i] == ' ' || p.anyLead && c&(letter|number|newline) == 0) {
		after = i + w
	}
	if p.camel {
		if e := p.camelWord(t, s, i, after, c); e > 0 {
			return e
		}
	} else if c&letter != 0 {
		return t.run(s, i+w, letter)
	} else if after > 0 {
		if k, n := t.at(s, after); k&letter != 0 {
			return t.run(s, after+n, letter)
		}
	}

	spaced := i // where a run of numbers or symbols starts that a U+0020 may lead
	lead, leadLen := c, w
	if s[i] == ' ' && i+1 < len(s) {
		spaced = i + 1
		lead, leadLen = t.at(s, spaced)
	}
	if c&number != 0 {
		return p.digits(t, s, i)
	}
	if p.leadDigits && lead&number != 0 {
		return p.digits(t, s, spaced)
	}

	if lead&(space|letter|number) == 0 {
		return p.symbols(t, s, spaced+leadLen)
	}
	return p.blanks(t, s, i)
}

// contracted is the length of the contraction at the start of s, which starts
// with an apostrophe; 0 if there is none.
func (p *pattern) contracted(s string) int {
	if len(s) < 2 {
		return 0
	}
	const long = "\u017f" // ſ
	if p.foldCase && len(s) > len(long) && s[1:1+len(long)] == long {
		return 1 + len(long)
	}
	a, b := s[1], byte(0)
	if len(s) > 2 {
		b = s[2]
	}
	if p.foldCase {
		a, b = lowerASCII(a), lowerASCII(b)
	}
	switch {
	case a == 's', a == 't', a == 'm', a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	return 0
}

func lowerASCII(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// camelWord is the end of the word of the first two alternatives of the o200k
// pattern at s[i], or 0. The character at i, of class c, may lead it: then
// after > 0 is where its letters would start.
func (p *pattern) camelWord(t *classTable, s string, i, after int, c class) int {
	capitals := 0 // end of the run of capitals that alternative 2 would take
	end := 0
	if after > 0 {
		end, capitals = camelLetters(t, s, after)
	}
	// A mark may lead the word or be its first character.
	if end == 0 && c&(letter|mark) != 0 {
		e, run := camelLetters(t, s, i)
		end = e
		if capitals == 0 {
			capitals = run
		}
	}
	if end == 0 {
		end = capitals
	}
	if end > 0 && end < len(s) && s[end] == '\'' {
		end += p.contracted(s[end:])
	}
	return end
}

// camelLetters matches [upperish]*[lowerish]+ at s[i]. If there is no match,
// end is 0 and capitals the end of [upperish]+, or 0.
func camelLetters(t *classTable, s string, i int) (end, capitals int) {
	e, both := i, 0 // both: end of the last character that is upperish and lowerish
	for e < len(s) {
		k, w := t.at(s, e)
		if k&lower != 0 {
			return t.run(s, e+w, lowerish), 0
		}
		if k&upperish == 0 {
			break
		}
		e += w
		if k&lowerish != 0 {
			both = e
		}
	}
	if both > 0 {
		return both, 0
	}
	if e > i {
		return 0, e
	}
	return 0, 0
}

// digits is the end of the run of numbers at s[i].
func (p *pattern) digits(t *classTable, s string, i int) int {
	if p.maxDigits == 0 {
		return t.run(s, i, number)
	}
	for n := 0; n < p.maxDigits && i < len(s); n++ {
		c, w := t.at(s, i)
		if c&number == 0 {
			break
		}
		i += w
	}
	return i
}

// symbols is the end of the run of symbols that continues at s[i], with its
// tail.
func (p *pattern) symbols(t *classTable, s string, i int) int {
	for i < len(s) {
		c, w := t.at(s, i)
		if c&(space|letter|number) != 0 {
			break
		}
		i += w
	}
tail:
	for i < len(s) {
		for j := range len(p.symbolTail) {
			if s[i] == p.symbolTail[j] {
				i++
				continue tail
			}
		}
		break
	}
	return i
}

// blanks is the end of the piece of white space that starts at s[i].
func (p *pattern) blanks(t *classTable, s string, i int) int {
	e, last, line := i, i, 0 // last: start of the run's last character; line: end of its last newline
	for e < len(s) {
		c, w := t.at(s, e)
		if c&space == 0 {
			break
		}
		last = e
		e += w
		if c&newline != 0 {
			line = e
		}
	}
	switch {
	case p.lastRun && e == len(s):
		return e
	case p.newlines && line > 0:
		return line
	case e == len(s) || last == i:
		return e
	}
	return last // the next piece takes the last character as its lead, or alone
}

// nextNumber is the index of the first number in s and its end; len(s) twice if
// there is none.
func nextNumber(t *classTable, s string) (start, end int) {
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if t.ascii[b]&number != 0 {
				return i, i + 1
			}
			i++
			continue
		}
		c, w := t.at(s, i)
		if c&number != 0 {
			return i, i + w
		}
		i += w
	}
	return len(s), len(s)
}
