package grammar

import (
	"fmt"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Stream checks the argument bytes of one call as they arrive: they must be
// one JSON object (RFC 8259, UTF-8), and nothing but white space around it.
// The zero value is ready. It costs constant time a byte and one bit a level
// of nesting; it doesn't look at keys, so that a key written twice is left to
// Check.
type Stream struct {
	mode   streamMode
	stack  []byte // one bit a level: 1 object, 0 array
	depth  int
	offset int
	word   string // what is left of true, false, null
	hex    int    // hexadecimal digits still due
	key    bool   // the string being read is a member name
	// UTF-8: continuation bytes still due and the range of the next one.
	more   int
	lo, hi byte
	err    error
}

type streamMode byte

const (
	atStart      streamMode = iota // before the object
	atKeyOrClose                   // after {
	atKey                          // after , in an object
	atColon                        // after a member name
	atValue                        // after : or , in an array
	atValueOrEnd                   // after [
	atComma                        // after a value
	atEnd                          // after the object
	inString
	inEscape
	inHex
	inWord
	inMinus    // after -
	inZero     // after a leading 0
	inInt      // in the digits before the point
	inDot      // after .
	inFraction // in the digits after the point
	inE        // after e or E
	inESign    // after e+ or e-
	inExponent
)

// A StreamError says at which byte a stream stopped being the prefix of a JSON
// object.
type StreamError struct {
	Offset int  // of the byte, from the first byte fed
	Byte   byte // the byte
	Want   string
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("byte %d of the arguments: %q where %s should be", e.Offset, e.Byte, e.Want)
}

// maxStreamDepth bounds the memory of a stream: 4,096 levels are 512 bytes.
const maxStreamDepth = 4096

// Feed takes the next bytes. Every prefix which it takes can be completed to a
// JSON object. At the first byte that rules this out it stops: consumed is the
// number of bytes of p before it, err a *StreamError, and every later Feed
// gives the same error.
func (s *Stream) Feed(p []byte) (consumed int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	for i, c := range p {
		if want := s.step(c); want != "" {
			s.err = &StreamError{s.offset, c, want}
			return i, s.err
		}
		s.offset++
	}
	return len(p), nil
}

// Done tells whether the bytes so far are a whole object.
func (s *Stream) Done() bool { return s.err == nil && s.mode == atEnd }

// Partial tells whether the bytes so far are a prefix of an object, and not
// the whole of one.
func (s *Stream) Partial() bool { return s.err == nil && s.mode != atEnd }

// Offset is the number of bytes taken so far.
func (s *Stream) Offset() int { return s.offset }

func (s *Stream) push(object bool) string {
	if s.depth == maxStreamDepth {
		return fmt.Sprintf("at most %d levels", maxStreamDepth)
	}
	if s.depth>>3 == len(s.stack) {
		s.stack = append(s.stack, 0)
	}
	bit := byte(1) << (s.depth & 7)
	s.stack[s.depth>>3] &^= bit
	if object {
		s.stack[s.depth>>3] |= bit
	}
	s.depth++
	return ""
}

func (s *Stream) inObject() bool {
	d := s.depth - 1
	return s.stack[d>>3]>>(d&7)&1 == 1
}

// closed follows a value: a comma may come, or the end when it was the object.
func (s *Stream) closed() {
	s.mode = atComma
	if s.depth == 0 {
		s.mode = atEnd
	}
}

// step takes one byte; otherwise it says what should stand there.
func (s *Stream) step(c byte) string {
	space := c == ' ' || c == '\n' || c == '\t' || c == '\r'
	switch s.mode {
	case inString:
		return s.char(c)
	case inEscape:
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.mode = inString
		case 'u':
			s.mode, s.hex = inHex, 4
		default:
			return "an escape"
		}
		return ""
	case inHex:
		if jsontext.HexDigit(c) < 0 {
			return "a hexadecimal digit"
		}
		if s.hex--; s.hex == 0 {
			s.mode = inString
		}
		return ""
	case inWord:
		if c != s.word[0] {
			return fmt.Sprintf("%q", s.word[0])
		}
		if s.word = s.word[1:]; s.word == "" {
			s.closed()
		}
		return ""
	case atStart:
		if space {
			return ""
		}
		if c != '{' {
			return "'{'"
		}
		s.mode = atKeyOrClose
		return s.push(true)
	case atKeyOrClose, atKey:
		switch {
		case space:
		case c == '"':
			s.mode, s.key = inString, true
		case c == '}' && s.mode == atKeyOrClose:
			s.depth--
			s.closed()
		default:
			return "a member name"
		}
		return ""
	case atColon:
		switch {
		case space:
		case c == ':':
			s.mode = atValue
		default:
			return "':'"
		}
		return ""
	case atValue, atValueOrEnd:
		if c == ']' && s.mode == atValueOrEnd {
			s.depth--
			s.closed()
			return ""
		}
		if space {
			return ""
		}
		return s.value(c)
	case atEnd:
		if space {
			return ""
		}
		return "nothing"
	}
	return s.afterValue(c, space)
}

func (s *Stream) value(c byte) string {
	switch c {
	case '{':
		s.mode = atKeyOrClose
		return s.push(true)
	case '[':
		s.mode = atValueOrEnd
		return s.push(false)
	case '"':
		s.mode, s.key = inString, false
	case 't':
		s.mode, s.word = inWord, "rue"
	case 'f':
		s.mode, s.word = inWord, "alse"
	case 'n':
		s.mode, s.word = inWord, "ull"
	case '-':
		s.mode = inMinus
	case '0':
		s.mode = inZero
	default:
		if c < '1' || c > '9' {
			return "a value"
		}
		s.mode = inInt
	}
	return ""
}

// afterValue takes a byte inside a number, or the one after a value.
func (s *Stream) afterValue(c byte, space bool) string {
	digit := c >= '0' && c <= '9'
	switch s.mode {
	case inMinus:
		if !digit {
			return "a digit"
		}
		s.mode = inInt
		if c == '0' {
			s.mode = inZero
		}
		return ""
	case inDot, inE, inESign:
		if s.mode == inE && (c == '+' || c == '-') {
			s.mode = inESign
			return ""
		}
		if !digit {
			return "a digit"
		}
		if s.mode == inDot {
			s.mode = inFraction
		} else {
			s.mode = inExponent
		}
		return ""
	case inZero, inInt, inFraction, inExponent:
		switch {
		case digit && s.mode != inZero:
			return ""
		case c == '.' && (s.mode == inZero || s.mode == inInt):
			s.mode = inDot
			return ""
		case (c == 'e' || c == 'E') && s.mode != inExponent:
			s.mode = inE
			return ""
		}
		// The number ends here; this byte follows it.
		s.mode = atComma
	}
	switch {
	case space:
		return ""
	case c == ',' && s.inObject():
		s.mode = atKey
		return ""
	case c == ',':
		s.mode = atValue
		return ""
	case c == '}' && s.inObject(), c == ']' && !s.inObject():
		s.depth--
		s.closed()
		return ""
	case s.inObject():
		return "',' or '}'"
	}
	return "',' or ']'"
}

// char takes one byte of a string.
func (s *Stream) char(c byte) string {
	if s.more > 0 {
		if c < s.lo || c > s.hi {
			return "a UTF-8 continuation byte"
		}
		s.more--
		s.lo, s.hi = 0x80, 0xBF
		return ""
	}
	switch {
	case c == '"':
		if s.key {
			s.mode = atColon
		} else {
			s.closed()
		}
	case c == '\\':
		s.mode = inEscape
	case c < 0x20:
		return "no control character"
	case c < utf8.RuneSelf:
	default: // lead bytes and what may follow: Unicode table 3-7
		s.lo, s.hi = 0x80, 0xBF
		switch {
		case c >= 0xC2 && c <= 0xDF:
			s.more = 1
		case c == 0xE0:
			s.more, s.lo = 2, 0xA0
		case c == 0xED:
			s.more, s.hi = 2, 0x9F
		case c >= 0xE1 && c <= 0xEF:
			s.more = 2
		case c == 0xF0:
			s.more, s.lo = 3, 0x90
		case c >= 0xF1 && c <= 0xF3:
			s.more = 3
		case c == 0xF4:
			s.more, s.hi = 3, 0x8F
		default:
			return "a UTF-8 lead byte"
		}
	}
	return ""
}
