package token

import "strings"

// A Source is an automaton over bytes. Its states are numbers from 1 on, small
// enough to index a table; 0 is where no text goes on. From every other state
// an accepting one can be reached.
//
// A source makes its states as it is asked, and needn't be safe for concurrent
// use: a Grammar asks once for each, under a lock.
type Source interface {
	// Start is the state of the empty text, 0 if there is no text at all.
	Start() (uint32, error)
	// Step is where b leads from s.
	Step(s uint32, b byte) (uint32, error)
	// Accepting tells whether the text may end in s.
	Accepting(s uint32) bool
	// Classes puts bytes that lead to the same state into one class and gives
	// the number of each. Bytes of class 0 lead nowhere; others may do so too.
	// Many states share a table, and nobody changes one.
	Classes(s uint32) *[256]uint8
	// Text tells whether s stands within a run of characters.
	Text(s uint32) (Text, bool)
	// Canonical is a state from which texts of up to 128 bytes go on as they do
	// from s, so that the two have the same mask; s itself if none is known.
	Canonical(s uint32) uint32
	// Cost is about how many bytes the source holds, and how much it has worked
	// so far, in operations of some 50 ns.
	Cost() (bytes, work int)
}

// A TokenSource is a source that also takes special and added tokens, which
// stand for themselves.
type TokenSource interface {
	Source
	// Tokens are those that may follow s.
	Tokens(s uint32) []int32
	// StepToken is where one leads.
	StepToken(s uint32, id int32) (uint32, error)
}

// A Text says that in a state any characters of a set may follow, as inside a
// string. Then most of the mask is known without a walk over the vocabulary.
type Text struct {
	Chars Chars
	// Max is how many characters may follow; negative for any number.
	Max int
	// Min is how many must follow before the run can end. It matters only if
	// the run is free.
	Min int
	// Free runs end alike whatever their characters were: after Min to Max of
	// them each byte of Ends leads to one state. Of others it is only known
	// that the characters may follow.
	Free bool
	// Alike runs are told apart by how many characters they have alone: each
	// character of the set leads from a state to the same one.
	Alike bool
	// Ends are the bytes that may stand behind the run, none of which begins a
	// character of the set.
	Ends string
	// Words are runs that end unlike others, where Behind is set. It gives the
	// state behind a quote that follows a word, or, for -1, any other run; it is
	// called like the methods of the source. If Closed, words are all that may
	// follow; else the run is free but for them, and there is no bound. No word
	// has a character that needs an escape or has a short one.
	Words  []string
	Closed bool
	Behind func(word int) (uint32, error)
}

// Chars is a set of characters as a JSON string spells them.
type Chars struct {
	ASCII   [2]uint64 // bytes below 0x80 that stand for themselves
	Others  bool      // all characters from U+0080 on, but for Except
	Except  string    // in the order of their codes, at most maxExcept
	Escapes Escapes
}

// maxExcept is fewer than the characters that share all bytes but the last: so
// whatever begins a character may go on to one of the set.
const maxExcept = 63

// Escapes is a set of spellings with a backslash.
type Escapes uint16

// The two-character escapes, and \u with four digits.
const (
	EscapeQuote     Escapes = 1 << iota // \"
	EscapeBackslash                     // \\
	EscapeSlash                         // \/
	EscapeB
	EscapeF
	EscapeN
	EscapeR
	EscapeT
	EscapeU     // any code but the halves of surrogate pairs
	EscapePairs // two halves, which are one character
	EscapeHalf  // one half that has no other; with EscapePairs two in a row are still one character

	EscapeShort = EscapeQuote | EscapeBackslash | EscapeSlash | EscapeB | EscapeF | EscapeN | EscapeR | EscapeT
)

// AnyChar is the characters that a JSON string may hold as they are.
var AnyChar = Chars{ASCII: [2]uint64{0xFFFFFFFB_00000000, 0xFFFFFFFF_EFFFFFFF}, Others: true}

// Has tells whether b, below 0x80, stands for itself.
func (c *Chars) Has(b byte) bool { return b < 0x80 && c.ASCII[b>>6]>>(b&63)&1 == 1 }

// one is a byte that is a character of the set.
func (c *Chars) one() (byte, bool) {
	for b := byte(' '); b < 0x7F; b++ {
		if c.Has(b) {
			return b, true
		}
	}
	return 0, false
}

const shorts = `"\/bfnrt`

// A scan tells what a token means to a run of characters: n of its bytes begin
// chars characters of the set. If whole, these are all of its bytes, and the
// last character may be cut. Otherwise byte n can't go on; clean means that it
// stands between characters.
type scan struct {
	n, chars     int
	whole, clean bool
}

// behindLead is how many bytes a character needs behind its first one, of those
// from 0xC2 to 0xF4, and what the next of them may be.
func behindLead(b byte) (more int, lo, hi byte) {
	switch {
	case b < 0xE0:
		return 1, 0x80, 0xBF
	case b == 0xE0:
		return 2, 0xA0, 0xBF
	case b == 0xED:
		return 2, 0x80, 0x9F
	case b < 0xF0:
		return 2, 0x80, 0xBF
	case b == 0xF0:
		return 3, 0x90, 0xBF
	case b == 0xF4:
		return 3, 0x80, 0x8F
	}
	return 3, 0x80, 0xBF
}

func (c *Chars) scan(b []byte) scan {
	s := scan{}
	for s.n < len(b) {
		if x := b[s.n]; x < 0x80 && x != '\\' && c.ASCII[x>>6]>>(x&63)&1 == 1 {
			s.n++
			s.chars++
			continue
		}
		n, cut := c.char(b[s.n:])
		if n == 0 {
			s.clean = true
			return s
		}
		s.chars++
		if n < 0 { // departs within
			return s
		}
		if s.n += n; cut {
			break
		}
	}
	s.whole = true
	return s
}

// char is the length of the character at the start of b, 0 if none of the set
// begins so, and -1 if one only begins. cut tells that b ends within it.
func (c *Chars) char(b []byte) (n int, cut bool) {
	switch x := b[0]; {
	case x == '\\' && c.Escapes != 0:
		return c.escape(b)
	case x < 0x80:
		if c.Has(x) {
			return 1, false
		}
		return 0, false
	case !c.Others || x < 0xC2 || x > 0xF4:
		return 0, false
	default:
		more, lo, hi := behindLead(x)
		n := 1 + more
		for i := 1; i < n; i++ {
			if i == len(b) {
				return i, true
			}
			if b[i] < lo || b[i] > hi {
				return -1, false
			}
			lo, hi = 0x80, 0xBF
		}
		if c.Except != "" && strings.Contains(c.Except, string(b[:n])) {
			return 0, false
		}
		return n, false
	}
}

func (c *Chars) escape(b []byte) (n int, cut bool) {
	if len(b) == 1 {
		return 1, true
	}
	if b[1] != 'u' {
		for i := range len(shorts) {
			if shorts[i] == b[1] && c.Escapes>>i&1 == 1 {
				return 2, false
			}
		}
		return -1, false
	}
	const code = EscapeU | EscapePairs | EscapeHalf
	if c.Escapes&code == 0 {
		return -1, false
	}
	high := false
	for i := 2; i < 6; i++ {
		if i == len(b) {
			return i, true
		}
		d, ok := hexDigit(b[i])
		if !ok {
			return -1, false
		}
		// \uD8xx to \uDBxx are first halves, \uDCxx to \uDFxx second ones.
		if i == 3 && b[2]|0x20 == 'd' && d >= 8 {
			if high = d < 12; high && c.Escapes&(EscapePairs|EscapeHalf) == 0 || !high && c.Escapes&EscapeHalf == 0 {
				return -1, false
			}
		} else if i == 3 && c.Escapes&EscapeU == 0 {
			return -1, false
		}
	}
	if !high || c.Escapes&EscapePairs == 0 {
		return 6, false
	}
	second := func(n int) (int, bool) { // the other half isn't there
		if c.Escapes&EscapeHalf != 0 {
			return 6, false
		}
		return n, false
	}
	for i := 6; i < 12; i++ {
		if i == len(b) {
			return i, true
		}
		ok := true
		switch i {
		case 6:
			ok = b[i] == '\\'
		case 7:
			ok = b[i] == 'u'
		case 8:
			ok = b[i]|0x20 == 'd'
		default:
			var d byte
			if d, ok = hexDigit(b[i]); i == 9 {
				ok = ok && d >= 12
			}
		}
		if !ok {
			return second(-1)
		}
	}
	return 12, false
}

func hexDigit(b byte) (byte, bool) {
	switch {
	case '0' <= b && b <= '9':
		return b - '0', true
	case 'a' <= b && b <= 'f':
		return b - 'a' + 10, true
	case 'A' <= b && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
