package openai

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Limits bounds what Scan accepts.
type Limits struct {
	MaxBytes int // length of the body in bytes; 0 means no limit
	MaxDepth int // nested objects and arrays, the outermost included; 0 means DefaultMaxDepth
	MaxKeys  int // keys of an object and of those around it; 0 means DefaultMaxKeys
}

// DefaultMaxDepth is the depth allowed when Limits does not say. Tool schemas
// in the wild stay below 30 levels; CPython's json module, which vLLM and
// SGLang parse with, gives up near 1,000.
const DefaultMaxDepth = 256

// DefaultMaxKeys bounds what finding duplicates costs: 16 bytes a key and 4 to
// 16 in the table, 2 MiB in all. A body of 32 MiB could hold six million keys.
const DefaultMaxKeys = 1 << 16

// A SyntaxError says where a body stops being acceptable JSON, and why.
type SyntaxError struct {
	Offset int // bytes before the offending one
	Line   int // from 1
	Column int // bytes from the start of the line, from 1
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at line %d column %d (byte %d): %s", e.Line, e.Column, e.Offset, e.Msg)
}

// A SizeError says that a body is longer than Limits.MaxBytes.
type SizeError struct{ Size, Max int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("body of %d bytes is over the limit of %d bytes", e.Size, e.Max)
}

// Scan validates raw, which must be one whole JSON object, and returns a view
// of its members. The view aliases raw. The error is a *SyntaxError or a
// *SizeError.
func Scan(raw []byte, lim Limits) (*Object, error) {
	if lim.MaxBytes > 0 && len(raw) > lim.MaxBytes {
		return nil, &SizeError{len(raw), lim.MaxBytes}
	}
	s := newScanner(raw, lim, true)
	defer s.release()
	o := &Object{raw: raw}
	if !s.document(o) {
		return nil, s.syntaxError()
	}
	return o, nil
}

// Valid reports whether raw is one whole JSON object in syntax and UTF-8. It
// tolerates duplicate keys and lone surrogates: it judges what an engine sent,
// which is handed on and not interpreted.
func Valid(raw []byte) bool {
	s := newScanner(raw, Limits{}, false)
	defer s.release()
	return s.document(nil)
}

// A scanner is the state of one pass. Its methods return false after a fault,
// which is then in msg and at.
type scanner struct {
	raw      []byte
	i        int // next byte
	depth    int // containers open
	maxDepth int
	maxKeys  int
	strict   bool // refuse duplicate keys and lone surrogates

	keys  []string // keys of the open objects, outermost first; they alias raw unless escaped
	free  [][]uint32
	fault string
	at    int
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

func newScanner(raw []byte, lim Limits, strict bool) *scanner {
	s := scanners.Get().(*scanner)
	if s.maxDepth = lim.MaxDepth; s.maxDepth <= 0 {
		s.maxDepth = DefaultMaxDepth
	}
	if s.maxKeys = lim.MaxKeys; s.maxKeys <= 0 {
		s.maxKeys = DefaultMaxKeys
	}
	s.raw, s.i, s.depth, s.strict = raw, 0, 0, strict
	s.keys, s.fault, s.at = s.keys[:0], "", 0
	return s
}

func (s *scanner) release() {
	s.raw = nil
	clear(s.keys[:cap(s.keys)])
	if cap(s.keys) > 4096 {
		s.keys = nil
	}
	if len(s.free) > 64 {
		s.free = s.free[:64:64]
	}
	scanners.Put(s)
}

func (s *scanner) fail(at int, msg string) bool {
	s.at, s.fault = at, msg
	return false
}

func (s *scanner) syntaxError() *SyntaxError {
	e := &SyntaxError{Offset: s.at, Line: 1, Column: 1, Msg: s.fault}
	for _, c := range s.raw[:s.at] {
		e.Column++
		if c == '\n' {
			e.Line++
			e.Column = 1
		}
	}
	return e
}

func (s *scanner) document(o *Object) bool {
	if len(s.raw) >= 3 && string(s.raw[:3]) == "\xef\xbb\xbf" {
		return s.fail(0, "byte order mark before the object; send UTF-8 without one")
	}
	s.space()
	if s.i == len(s.raw) {
		return s.fail(s.i, "the body is empty; a JSON object is expected")
	}
	if s.raw[s.i] != '{' {
		return s.fail(s.i, "a JSON object is expected, found "+quoteByte(s.raw[s.i]))
	}
	if !s.object(o) {
		return false
	}
	s.space()
	if s.i < len(s.raw) {
		return s.fail(s.i, "data after the object: "+quoteByte(s.raw[s.i]))
	}
	return true
}

func (s *scanner) space() {
	i := s.i
	for i < len(s.raw) {
		switch s.raw[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			s.i = i
			return
		}
	}
	s.i = i
}

// value scans one value; white space before it has been passed.
func (s *scanner) value() bool {
	if s.i == len(s.raw) {
		return s.fail(s.i, "the body ends where a value is expected")
	}
	switch c := s.raw[s.i]; c {
	case '"':
		_, ok := s.str()
		return ok
	case '{':
		return s.object(nil)
	case '[':
		return s.array()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	case 'N', 'I':
		return s.fail(s.i, "NaN and Infinity are not JSON; use null or leave the field out")
	default:
		return s.fail(s.i, "a value is expected, found "+quoteByte(c))
	}
}

func (s *scanner) literal(word string) bool {
	if len(s.raw)-s.i >= len(word) && string(s.raw[s.i:s.i+len(word)]) == word {
		s.i += len(word)
		return true
	}
	for k := 0; k < len(word); k++ {
		if s.i+k == len(s.raw) {
			return s.fail(s.i+k, "the body ends inside "+word)
		}
		if s.raw[s.i+k] != word[k] {
			return s.fail(s.i+k, "expected "+word+", found "+quoteByte(s.raw[s.i+k]))
		}
	}
	return true
}

func (s *scanner) number() bool {
	i, raw := s.i, s.raw
	digits := func() bool {
		from := i
		for i < len(raw) && raw[i]-'0' <= 9 {
			i++
		}
		if i > from {
			return true
		}
		if i == len(raw) {
			return s.fail(i, "the body ends inside a number")
		}
		return s.fail(i, "a digit is expected, found "+quoteByte(raw[i]))
	}
	if raw[i] == '-' {
		i++
	}
	if i < len(raw) && raw[i] == '0' {
		i++
		if i < len(raw) && raw[i]-'0' <= 9 {
			return s.fail(i, "a number must not start with 0")
		}
	} else if !digits() {
		return false
	}
	if i < len(raw) && raw[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(raw) && (raw[i] == 'e' || raw[i] == 'E') {
		i++
		if i < len(raw) && (raw[i] == '+' || raw[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	s.i = i
	return true
}

func (s *scanner) enter() bool {
	if s.depth++; s.depth > s.maxDepth {
		return s.fail(s.i, fmt.Sprintf("nested deeper than %d levels", s.maxDepth))
	}
	s.i++
	s.space()
	return true
}

func (s *scanner) array() bool {
	if !s.enter() {
		return false
	}
	if s.i < len(s.raw) && s.raw[s.i] == ']' {
		s.i++
		s.depth--
		return true
	}
	for {
		if !s.value() {
			return false
		}
		s.space()
		if s.i == len(s.raw) {
			return s.fail(s.i, "the body ends inside an array")
		}
		switch s.raw[s.i] {
		case ',':
			s.i++
			s.space()
		case ']':
			s.i++
			s.depth--
			return true
		default:
			return s.fail(s.i, "a comma or ] is expected, found "+quoteByte(s.raw[s.i]))
		}
	}
}

// object scans one object. If o is not nil its members are recorded there.
func (s *scanner) object(o *Object) bool {
	open := s.i
	if !s.enter() {
		return false
	}
	if s.i < len(s.raw) && s.raw[s.i] == '}' {
		s.i++
		s.depth--
		if o != nil {
			o.start, o.end = open, s.i
		}
		return true
	}
	seen := keySet{first: len(s.keys)}
	for {
		if s.i == len(s.raw) {
			return s.fail(s.i, "the body ends where a key is expected")
		}
		at := s.i
		if s.raw[at] != '"' {
			return s.fail(at, "a key in double quotes is expected, found "+quoteByte(s.raw[at]))
		}
		escaped, ok := s.str()
		if !ok {
			return false
		}
		if s.strict {
			name := s.raw[at+1 : s.i-1]
			if escaped {
				name = unquote(name)
			}
			// The key lives no longer than the scan, during which raw stays as it is.
			if !seen.add(s, unsafe.String(unsafe.SliceData(name), len(name))) {
				return s.fail(at, "duplicate key "+quoteKey(name))
			}
			if len(s.keys) > s.maxKeys {
				return s.fail(at, fmt.Sprintf("more than %d keys in an object and those around it", s.maxKeys))
			}
		}
		keyEnd := s.i
		s.space()
		if s.i == len(s.raw) {
			return s.fail(s.i, "the body ends after a key")
		}
		if s.raw[s.i] != ':' {
			return s.fail(s.i, "a colon is expected after the key, found "+quoteByte(s.raw[s.i]))
		}
		s.i++
		s.space()
		from := s.i
		if !s.value() {
			return false
		}
		if o != nil {
			o.add(s.raw[at:keyEnd], at, Value{s.raw[from:s.i], from, s.i})
		}
		s.space()
		if s.i == len(s.raw) {
			return s.fail(s.i, "the body ends inside an object")
		}
		switch s.raw[s.i] {
		case ',':
			s.i++
			s.space()
		case '}':
			s.i++
			s.depth--
			seen.close(s)
			if o != nil {
				o.start, o.end = open, s.i
			}
			return true
		default:
			return s.fail(s.i, "a comma or } is expected, found "+quoteByte(s.raw[s.i]))
		}
	}
}

// A keySet finds duplicates among the keys of one object, which stand in
// scanner.keys from first on. Up to fewKeys are compared one by one; more go
// through an open-addressing table of positions, at most half full.
type keySet struct {
	first int
	table []uint32 // 1 + position relative to first; 0 is empty
}

const fewKeys = 8

var keySeed = maphash.MakeSeed()

func (k *keySet) add(s *scanner, key string) bool {
	n := len(s.keys) - k.first
	if k.table == nil {
		for _, have := range s.keys[k.first:] {
			if have == key {
				return false
			}
		}
		s.keys = append(s.keys, key)
		if n+1 > fewKeys {
			k.grow(s, 8*fewKeys)
		}
		return true
	}
	if 2*(n+1) > len(k.table) {
		k.grow(s, 2*len(k.table))
	}
	slot := k.slot(s, key)
	if k.table[slot] != 0 {
		return false
	}
	s.keys = append(s.keys, key)
	k.table[slot] = uint32(n + 1)
	return true
}

func (k *keySet) slot(s *scanner, key string) int {
	mask := len(k.table) - 1
	slot := int(maphash.String(keySeed, key)) & mask
	for k.table[slot] != 0 && s.keys[k.first+int(k.table[slot])-1] != key {
		slot = (slot + 1) & mask
	}
	return slot
}

func (k *keySet) grow(s *scanner, size int) {
	if n := len(s.free); size == 8*fewKeys && n > 0 {
		k.table, s.free = s.free[n-1], s.free[:n-1]
		clear(k.table)
	} else {
		k.table = make([]uint32, size)
	}
	for n, key := range s.keys[k.first:] {
		k.table[k.slot(s, key)] = uint32(n + 1)
	}
}

func (k *keySet) close(s *scanner) {
	s.keys = s.keys[:k.first]
	if len(k.table) == 8*fewKeys {
		s.free = append(s.free, k.table)
	}
}

// Eight bytes at a time: lo and hi have one bit in every byte.
const (
	lo = 0x0101010101010101
	hi = 0x8080808080808080
)

// special returns a word whose lowest set bit stands in the first byte of w
// that is a quote, a backslash or below 0x20. Later bytes may be marked
// falsely. Bytes from 0x80 on are not marked.
func special(w uint64) uint64 {
	q := w ^ lo*'"'
	b := w ^ lo*'\\'
	return ((q-lo)&^q | (b-lo)&^b | (w-lo*0x20)&^w) & hi
}

// str scans the string that starts at the quote at s.i and says whether it
// holds an escape.
func (s *scanner) str() (escaped, ok bool) {
	raw, i := s.raw, s.i+1
	open := s.i
	var high uint64
	for {
		for i+8 <= len(raw) {
			w := binary.LittleEndian.Uint64(raw[i:])
			if m := special(w); m != 0 {
				n := bits.TrailingZeros64(m) >> 3
				high |= w & (1<<(8*n) - 1)
				i += n
				goto found
			}
			high |= w
			i += 8
		}
		for i < len(raw) && raw[i] >= 0x20 && raw[i] != '"' && raw[i] != '\\' {
			high |= uint64(raw[i])
			i++
		}
		if i == len(raw) {
			if at := badUTF8(raw[open:i]); at >= 0 {
				return false, s.fail(open+at, "invalid UTF-8")
			}
			return false, s.fail(i, "the body ends inside a string")
		}
	found:
		switch c := raw[i]; c {
		case '"':
			if high&hi != 0 && !utf8.Valid(raw[open+1:i]) {
				return false, s.fail(open+badUTF8(raw[open:i]), "invalid UTF-8")
			}
			s.i = i + 1
			return escaped, true
		case '\\':
			escaped = true
			if i = s.escape(i); i < 0 {
				if at := badUTF8(raw[open:s.at]); at >= 0 {
					return false, s.fail(open+at, "invalid UTF-8")
				}
				return false, false
			}
		default:
			if at := badUTF8(raw[open:i]); at >= 0 {
				return false, s.fail(open+at, "invalid UTF-8")
			}
			return false, s.fail(i, fmt.Sprintf("control character 0x%02x in a string must be escaped", c))
		}
	}
}

// badUTF8 returns the position of the first byte that is not UTF-8, or -1.
func badUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// escape scans the escape whose backslash is at i and returns the position
// behind it, or -1.
func (s *scanner) escape(i int) int {
	if i+1 >= len(s.raw) {
		s.fail(len(s.raw), "the body ends inside an escape")
		return -1
	}
	switch s.raw[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		s.fail(i, `invalid escape \`+quoteByte(s.raw[i+1]))
		return -1
	}
	u, ok := s.hex4(i)
	if !ok {
		return -1
	}
	if !s.strict || u < 0xd800 || u > 0xdfff {
		return i + 6
	}
	if u < 0xdc00 && i+7 < len(s.raw) && s.raw[i+6] == '\\' && s.raw[i+7] == 'u' {
		v, ok := s.hex4(i + 6)
		if !ok {
			return -1
		}
		if v >= 0xdc00 && v <= 0xdfff {
			return i + 12
		}
	}
	s.fail(i, fmt.Sprintf(`lone surrogate \u%04x is not a character`, u))
	return -1
}

// hex4 reads the four digits of the \u escape at i.
func (s *scanner) hex4(i int) (rune, bool) {
	var u rune
	for k := i + 2; k < i+6; k++ {
		if k >= len(s.raw) {
			return 0, s.fail(len(s.raw), "the body ends inside an escape")
		}
		d := unhex(s.raw[k])
		if d < 0 {
			return 0, s.fail(k, `four hexadecimal digits are expected after \u, found `+quoteByte(s.raw[k]))
		}
		u = u<<4 | d
	}
	return u, true
}

func unhex(c byte) rune {
	switch {
	case c-'0' <= 9:
		return rune(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return -1
}

func quoteByte(c byte) string {
	if c < 0x20 || c >= 0x7f {
		return fmt.Sprintf("byte 0x%02x", c)
	}
	return fmt.Sprintf("%q", c)
}

// quoteKey spells a key for an error message, cut to a readable length.
func quoteKey(key []byte) string {
	const most = 64
	if len(key) > most {
		return fmt.Sprintf("%q…", key[:most])
	}
	return fmt.Sprintf("%q", key)
}
