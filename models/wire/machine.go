package wire

import (
	"fmt"
	"slices"
)

// maxCallDepth is how deep the arguments of a call may nest.
const maxCallDepth = 500

// jsonMachine reads the object of a call byte by byte: whitespace, one JSON
// object, and it knows which of its members it is in.
type jsonMachine struct {
	// keys are the keys of the member that holds the arguments; without any, the
	// object itself is the arguments.
	keys []string

	stack  []byte // '{' or '[' of the open values, the call object first
	expect expectation
	inStr  bool
	isKey  bool
	escape uint8 // 1 after a backslash, 1 + the hexadecimal digits still due after \u
	word   string
	num    numberState
	key    []byte // raw text of the member's key while it is read
	text   []byte // raw text of the name
	place  callPlace

	name          string
	named, argued bool
	done          bool
	valueByte     bool // the last byte belonged to the value of the member
}

type expectation uint8

const (
	wantObject expectation = iota
	wantKeyOrEnd
	wantKey
	wantColon
	wantValue
	wantValueOrEnd
	wantCommaOrEnd
)

// callPlace is the member of the call object that is being read.
type callPlace uint8

const (
	placeNone callPlace = iota
	placeName
	placeArguments
	placeOther
)

type numberState uint8

const (
	noNumber numberState = iota
	numMinus
	numZero
	numInt
	numDot
	numFrac
	numE
	numESign
	numExp
)

func (j *jsonMachine) reset(keys []string) {
	*j = jsonMachine{keys: keys, stack: j.stack[:0], key: j.key[:0], text: j.text[:0]}
}

// step takes one byte; a non-empty result says why it can't stand here.
func (j *jsonMachine) step(c byte) string {
	j.valueByte = false
	if j.inStr {
		return j.inString(c)
	}
	if j.word != "" {
		if c != j.word[0] {
			return fmt.Sprintf("%q inside a word", c)
		}
		j.word = j.word[1:]
		j.valueByte = true
		if j.word == "" {
			j.endValue()
		}
		return ""
	}
	if j.num != noNumber {
		if next := j.num.next(c); next != noNumber {
			j.num = next
			j.valueByte = true
			return ""
		}
		if !j.num.whole() {
			return fmt.Sprintf("%q inside a number", c)
		}
		j.num = noNumber
		j.endValue()
		// c is read as what follows the number
	}
	switch c {
	case ' ', '\t', '\n', '\r':
		j.valueByte = j.place != placeNone && len(j.stack) > 1
		return ""
	}
	switch j.expect {
	case wantObject:
		if c != '{' {
			if len(j.keys) == 0 {
				return fmt.Sprintf("%q where the object of the arguments is expected", c)
			}
			return fmt.Sprintf("%q where the object of the call is expected", c)
		}
		j.stack = append(j.stack, c)
		j.expect = wantKeyOrEnd
	case wantKey, wantKeyOrEnd:
		if c == '}' && j.expect == wantKeyOrEnd {
			return j.pop(c)
		}
		if c != '"' {
			return fmt.Sprintf("%q where a key is expected", c)
		}
		j.inStr, j.isKey = true, true
		j.key = j.key[:0]
		j.valueByte = len(j.stack) > 1
	case wantColon:
		if c != ':' {
			return fmt.Sprintf("%q where ':' is expected", c)
		}
		j.expect = wantValue
		j.valueByte = len(j.stack) > 1
	case wantCommaOrEnd:
		if c == ',' {
			if j.stack[len(j.stack)-1] == '{' {
				j.expect = wantKey
			} else {
				j.expect = wantValue
			}
			j.valueByte = len(j.stack) > 1
			return ""
		}
		return j.pop(c)
	case wantValue, wantValueOrEnd:
		if c == ']' && j.expect == wantValueOrEnd {
			return j.pop(c)
		}
		return j.value(c)
	}
	return ""
}

func (j *jsonMachine) value(c byte) string {
	if len(j.stack) == 1 && j.place == placeName && c != '"' {
		return fmt.Sprintf("%q where the name is expected, which is a string", c)
	}
	j.valueByte = true
	switch {
	case c == '{' || c == '[':
		if len(j.stack) > maxCallDepth {
			return fmt.Sprintf("nested deeper than %d", maxCallDepth)
		}
		j.stack = append(j.stack, c)
		j.expect = wantKeyOrEnd
		if c == '[' {
			j.expect = wantValueOrEnd
		}
	case c == '"':
		j.inStr, j.isKey = true, false
		j.text = j.text[:0]
	case c == 't':
		j.word = "rue"
	case c == 'f':
		j.word = "alse"
	case c == 'n':
		j.word = "ull"
	case c == '-':
		j.num = numMinus
	case c == '0':
		j.num = numZero
	case '1' <= c && c <= '9':
		j.num = numInt
	default:
		return fmt.Sprintf("%q where a value is expected", c)
	}
	return ""
}

func (j *jsonMachine) inString(c byte) string {
	j.valueByte = len(j.stack) > 1 || !j.isKey
	top := len(j.stack) == 1
	if c != '"' || j.escape != 0 {
		if top && j.isKey {
			j.key = append(j.key, c)
		} else if top && j.place == placeName {
			j.text = append(j.text, c)
		}
	}
	switch {
	case j.escape == 1:
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			j.escape = 0
		case 'u':
			j.escape = 5
		default:
			return fmt.Sprintf("%q after a backslash", c)
		}
		return ""
	case j.escape > 1:
		if _, ok := hex4([]byte{'0', '0', '0', c}); !ok {
			return fmt.Sprintf("%q where a hexadecimal digit is expected", c)
		}
		if j.escape--; j.escape == 1 {
			j.escape = 0
		}
		return ""
	case c == '\\':
		j.escape = 1
		return ""
	case c < 0x20:
		return fmt.Sprintf("control character %q in a string", c)
	case c != '"':
		return ""
	}
	j.inStr = false
	if !j.isKey {
		if top && j.place == placeName {
			j.name, _ = unescape(j.text)
			if j.name == "" {
				return "the name is empty"
			}
			j.named = true
		}
		j.endValue()
		return ""
	}
	j.expect = wantColon
	if !top || len(j.keys) == 0 {
		return ""
	}
	switch key, _ := unescape(j.key); {
	case key == "name":
		if j.named {
			return `"name" stands twice`
		}
		j.place = placeName
	case slices.Contains(j.keys, key):
		if j.argued {
			return fmt.Sprintf("%q stands twice", j.keys[0])
		}
		j.place = placeArguments
	default:
		j.place = placeOther
	}
	return ""
}

func (j *jsonMachine) pop(c byte) string {
	open := j.stack[len(j.stack)-1]
	if !(open == '{' && c == '}' || open == '[' && c == ']') {
		return fmt.Sprintf("%q where ',' or the end of %q is expected", c, open)
	}
	j.stack = j.stack[:len(j.stack)-1]
	if len(j.stack) == 0 {
		j.done = true
		return ""
	}
	j.valueByte = true
	j.endValue()
	return ""
}

func (j *jsonMachine) endValue() {
	j.expect = wantCommaOrEnd
	if len(j.stack) == 1 {
		if j.place == placeArguments {
			j.argued = true
		}
		j.place = placeNone
	}
}

func (n numberState) whole() bool {
	return n == numZero || n == numInt || n == numFrac || n == numExp
}

// next is the state after c, noNumber when c doesn't continue the number.
func (n numberState) next(c byte) numberState {
	digit := '0' <= c && c <= '9'
	switch n {
	case numMinus:
		if c == '0' {
			return numZero
		} else if digit {
			return numInt
		}
	case numZero, numInt, numFrac:
		switch {
		case digit && n != numZero:
			return n
		case c == '.' && n != numFrac:
			return numDot
		case c == 'e' || c == 'E':
			return numE
		}
	case numDot:
		if digit {
			return numFrac
		}
	case numE:
		if c == '+' || c == '-' {
			return numESign
		} else if digit {
			return numExp
		}
	case numESign, numExp:
		if digit {
			return numExp
		}
	}
	return noNumber
}
