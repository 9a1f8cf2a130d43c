// Package jsontext reads JSON texts into values that keep the order of members
// and the spelling of numbers, and writes them.
package jsontext

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Value is a JSON value that keeps what encoding/json forgets: the order of
// members and the spelling of numbers.
type Value struct {
	Kind    byte   // one of { [ " 0 t f n
	Str     string // of a string: decoded; of a number: its spelling
	Elems   []*Value
	Members []Member
	byKey   map[string]int // index into members; nil below 8 members
}

// A Member is a member of an object.
type Member struct {
	Key string
	Val *Value
}

// Get is the member of that key; nil if v is no object or has none.
func (v *Value) Get(key string) *Value {
	if v == nil || v.Kind != '{' {
		return nil
	}
	if v.byKey != nil {
		if i, ok := v.byKey[key]; ok {
			return v.Members[i].Val
		}
		return nil
	}
	for i := range v.Members {
		if v.Members[i].Key == key {
			return v.Members[i].Val
		}
	}
	return nil
}

// Has tells whether an object has a member of that key.
func (v *Value) Has(key string) bool { return v.Get(key) != nil }

// IsTrue and IsFalse tell whether v is that literal.
func (v *Value) IsTrue() bool  { return v != nil && v.Kind == 't' }
func (v *Value) IsFalse() bool { return v != nil && v.Kind == 'f' }

// IsSchema tells whether v can stand where a schema is expected.
func (v *Value) IsSchema() bool { return v != nil && (v.Kind == '{' || v.Kind == 't' || v.Kind == 'f') }

// With returns an object like v in which key has the value val.
func (v *Value) With(key string, val *Value) *Value {
	out := &Value{Kind: '{', Members: make([]Member, 0, len(v.Members)+1)}
	done := false
	for _, m := range v.Members {
		if m.Key == key {
			m.Val, done = val, true
		}
		out.Members = append(out.Members, m)
	}
	if !done {
		out.Members = append(out.Members, Member{key, val})
	}
	out.Index()
	return out
}

// Without returns an object like v that has none of the keys.
func (v *Value) Without(keys ...string) *Value {
	out := &Value{Kind: '{', Members: make([]Member, 0, len(v.Members))}
next:
	for _, m := range v.Members {
		for _, k := range keys {
			if m.Key == k {
				continue next
			}
		}
		out.Members = append(out.Members, m)
	}
	out.Index()
	return out
}

// Index makes Get fast on an object whose Members were set by hand.
func (v *Value) Index() {
	if len(v.Members) < 8 {
		v.byKey = nil
		return
	}
	v.byKey = make(map[string]int, len(v.Members))
	for i, m := range v.Members {
		v.byKey[m.Key] = i
	}
}

// Plain is v as encoding/json with UseNumber gives it, with numbers beyond
// hugeExponent brought down to it.
func (v *Value) Plain() any {
	switch v.Kind {
	case '{':
		m := make(map[string]any, len(v.Members))
		for _, e := range v.Members {
			m[e.Key] = e.Val.Plain()
		}
		return m
	case '[':
		a := make([]any, len(v.Elems))
		for i, e := range v.Elems {
			a[i] = e.Plain()
		}
		return a
	case '"':
		return v.Str
	case '0':
		return json.Number(TameNumber(v.Str))
	case 't':
		return true
	case 'f':
		return false
	}
	return nil
}

// AppendTo writes v as JSON: ", " and ": " between, as models write it, and
// strings with the fewest escapes.
func (v *Value) AppendTo(dst []byte) []byte {
	switch v.Kind {
	case '{':
		dst = append(dst, '{')
		for i, m := range v.Members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = AppendString(dst, m.Key)
			dst = append(dst, ": "...)
			dst = m.Val.AppendTo(dst)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for i, e := range v.Elems {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = e.AppendTo(dst)
		}
		return append(dst, ']')
	case '"':
		return AppendString(dst, v.Str)
	case '0':
		return append(dst, v.Str...)
	case 't':
		return append(dst, "true"...)
	case 'f':
		return append(dst, "false"...)
	}
	return append(dst, "null"...)
}

// AppendString writes s as a JSON string in which only what must be escaped is.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// hugeExponent bounds what a number costs to compare: a number whose decimal
// exponent in scientific notation lies beyond ±2,000 is compared as if it were
// ±1e2000 or ±1e-2000. No bound in a schema may lie beyond ±1e1000, so minimum
// and maximum are still exact; multipleOf and equality are not, out there.
const hugeExponent = 2000

// TameNumber applies hugeExponent to a valid JSON number.
func TameNumber(s string) string {
	i := strings.IndexAny(s, "eE")
	if i < 0 && len(s) <= hugeExponent {
		return s
	}
	mant, exp := s, 0
	if i >= 0 {
		mant = s[:i]
		e, err := strconv.Atoi(s[i+1:])
		switch {
		case err != nil && s[i+1] == '-':
			e = -1 << 40
		case err != nil:
			e = 1 << 40
		}
		exp = e
	}
	sign := ""
	if mant[0] == '-' {
		sign, mant = "-", mant[1:]
	}
	whole, frac, _ := strings.Cut(mant, ".")
	// at is the exponent of the first digit that isn't zero.
	at := 0
	if w := strings.TrimLeft(whole, "0"); w != "" {
		at = len(w) - 1
	} else if f := strings.TrimLeft(frac, "0"); f != "" {
		at = -(len(frac) - len(f) + 1)
	} else {
		return "0"
	}
	switch {
	case at+exp > hugeExponent:
		return sign + "1e" + strconv.Itoa(hugeExponent)
	case at+exp < -hugeExponent:
		return sign + "1e-" + strconv.Itoa(hugeExponent)
	}
	return s
}

// Rat is the exact value of a number.
func (v *Value) Rat() (*big.Rat, bool) {
	if v == nil || v.Kind != '0' {
		return nil, false
	}
	return new(big.Rat).SetString(TameNumber(v.Str))
}

// Size gives the number of values in v and how deep they are nested.
func (v *Value) Size() (n, depth int) {
	n = 1
	for _, e := range v.Elems {
		k, d := e.Size()
		n, depth = n+k, max(depth, d+1)
	}
	for _, m := range v.Members {
		k, d := m.Val.Size()
		n, depth = n+k, max(depth, d+1)
	}
	return n, depth
}

// Order gives for each step of a path the index of the member or item; -1
// where there is none.
func (v *Value) Order(path []string) []int {
	at := make([]int, len(path))
	for k, tok := range path {
		v, at[k] = v.Child(tok)
	}
	return at
}

// Child is the member or item that a token of a JSON pointer names.
func (v *Value) Child(tok string) (*Value, int) {
	switch {
	case v == nil:
	case v.Kind == '{' && v.byKey != nil:
		if i, ok := v.byKey[tok]; ok {
			return v.Members[i].Val, i
		}
	case v.Kind == '{':
		for i := range v.Members {
			if v.Members[i].Key == tok {
				return v.Members[i].Val, i
			}
		}
	case v.Kind == '[':
		if i, err := strconv.Atoi(tok); err == nil && i >= 0 && i < len(v.Elems) {
			return v.Elems[i], i
		}
	}
	return nil, -1
}

var (
	intoPointer  = strings.NewReplacer("~", "~0", "/", "~1")
	outOfPointer = strings.NewReplacer("~1", "/", "~0", "~")
)

// EscapePointer is a key as it stands in a JSON pointer (RFC 6901, section 3).
func EscapePointer(key string) string { return intoPointer.Replace(key) }

// UnescapePointer is the key that a token of a JSON pointer means.
func UnescapePointer(tok string) string { return outOfPointer.Replace(tok) }

// Locate is the offset at which the value at a path begins in a valid JSON text,
// or the last one on the way to it that is there.
func Locate(text []byte, path []string) int {
	p := NewReader(text, len(text))
	p.Space()
	at := p.Offset()
	for _, tok := range path {
		open := p.Byte()
		if open != '{' && open != '[' {
			return at
		}
		p.Skip()
		for i := 0; ; i++ {
			if p.Space(); p.Byte() == '}' || p.Byte() == ']' {
				return at
			}
			name := strconv.Itoa(i)
			if open == '{' {
				var err error
				if name, err = p.String(); err != nil {
					return at
				}
				p.Space()
				p.Skip() // the colon
				p.Space()
			}
			if name == tok {
				at = p.Offset()
				break
			}
			if _, err := p.Value(); err != nil {
				return at
			}
			if p.Space(); p.Byte() == ',' {
				p.Skip()
			}
		}
	}
	return at
}

// Items is the items of an array, and nothing of nil.
func (v *Value) Items() []*Value {
	if v == nil {
		return nil
	}
	return v.Elems
}

// List is the members of an object, and nothing of nil.
func (v *Value) List() []Member {
	if v == nil {
		return nil
	}
	return v.Members
}

// A SyntaxError says where a text stops being JSON as we take it.
type SyntaxError struct {
	Offset int    // byte offset
	Code   string // ErrorType of the misfit
	Msg    string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg) }

// Parse reads one whole JSON value: RFC 8259, UTF-8, no member twice, no
// byte after it but white space, nesting to maxDepth.
func Parse(b []byte, maxDepth int) (*Value, error) {
	p := NewReader(b, maxDepth)
	p.Space()
	v, err := p.Value()
	if err != nil {
		return nil, err
	}
	p.Space()
	if p.i < len(p.b) {
		return nil, p.fail(p.i, "trailing_data", "more text after the JSON value")
	}
	return v, nil
}

// A Reader reads values one after the other.
type Reader struct {
	b     []byte
	i     int
	depth int // levels left
}

// NewReader reads b, with values nested at most maxDepth deep.
func NewReader(b []byte, maxDepth int) *Reader { return &Reader{b: b, depth: maxDepth} }

// Offset is the place of the next byte.
func (p *Reader) Offset() int { return p.i }

// Byte is the next byte. There must be one.
func (p *Reader) Byte() byte { return p.b[p.i] }

// Skip passes the next byte.
func (p *Reader) Skip() { p.i++ }

func (p *Reader) fail(at int, code, format string, a ...any) error {
	return &SyntaxError{at, code, fmt.Sprintf(format, a...)}
}

func (p *Reader) syntax(want string) error {
	if p.i >= len(p.b) {
		return p.fail(p.i, "json_syntax", "the text ends where %s should follow", want)
	}
	return p.fail(p.i, "json_syntax", "%q where %s should be", p.b[p.i], want)
}

func (p *Reader) Space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *Reader) Value() (*Value, error) {
	if p.i >= len(p.b) {
		return nil, p.syntax("a value")
	}
	switch c := p.b[p.i]; c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		s, err := p.String()
		return &Value{Kind: '"', Str: s}, err
	case 't':
		return p.word("true")
	case 'f':
		return p.word("false")
	case 'n':
		return p.word("null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return p.number()
		}
		return nil, p.syntax("a value")
	}
}

func (p *Reader) word(w string) (*Value, error) {
	for k := range len(w) {
		if p.i >= len(p.b) || p.b[p.i] != w[k] {
			return nil, p.syntax(w)
		}
		p.i++
	}
	return &Value{Kind: w[0]}, nil
}

func (p *Reader) digits() bool {
	from := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

func (p *Reader) number() (*Value, error) {
	from := p.i
	if p.b[p.i] == '-' {
		p.i++
	}
	if p.i < len(p.b) && p.b[p.i] == '0' {
		p.i++
	} else if !p.digits() {
		return nil, p.syntax("a digit")
	}
	if p.i < len(p.b) && p.b[p.i] == '.' {
		p.i++
		if !p.digits() {
			return nil, p.syntax("a digit")
		}
	}
	if p.i < len(p.b) && (p.b[p.i] == 'e' || p.b[p.i] == 'E') {
		p.i++
		if p.i < len(p.b) && (p.b[p.i] == '+' || p.b[p.i] == '-') {
			p.i++
		}
		if !p.digits() {
			return nil, p.syntax("a digit")
		}
	}
	return &Value{Kind: '0', Str: string(p.b[from:p.i])}, nil
}

func (p *Reader) String() (string, error) {
	p.i++
	from := p.i
	for p.i < len(p.b) { // the usual string: no escape
		c := p.b[p.i]
		if c == '"' {
			s := string(p.b[from:p.i])
			p.i++
			return s, nil
		}
		if c == '\\' {
			break
		}
		if err := p.char(); err != nil {
			return "", err
		}
	}
	out := append([]byte(nil), p.b[from:p.i]...)
	for p.i < len(p.b) {
		switch c := p.b[p.i]; c {
		case '"':
			p.i++
			return string(out), nil
		case '\\':
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		default:
			at := p.i
			if err := p.char(); err != nil {
				return "", err
			}
			out = append(out, p.b[at:p.i]...)
		}
	}
	return "", p.syntax(`'"'`)
}

// char steps over one unescaped character of a string.
func (p *Reader) char() error {
	c := p.b[p.i]
	if c < 0x20 {
		return p.fail(p.i, "json_syntax", "raw control character %#02x in a string", c)
	}
	if c < utf8.RuneSelf {
		p.i++
		return nil
	}
	r, n := utf8.DecodeRune(p.b[p.i:])
	if r == utf8.RuneError && n <= 1 {
		return p.fail(p.i, "invalid_utf8", "byte %#02x is not UTF-8", c)
	}
	p.i += n
	return nil
}

func (p *Reader) escape(out []byte) ([]byte, error) {
	p.i++
	if p.i >= len(p.b) {
		return nil, p.syntax("an escape")
	}
	switch c := p.b[p.i]; c {
	case '"', '\\', '/':
		out = append(out, c)
	case 'b':
		out = append(out, '\b')
	case 'f':
		out = append(out, '\f')
	case 'n':
		out = append(out, '\n')
	case 'r':
		out = append(out, '\r')
	case 't':
		out = append(out, '\t')
	case 'u':
		p.i++
		r, err := p.hex4()
		if err != nil {
			return nil, err
		}
		if r >= 0xD800 && r < 0xDC00 && p.i+1 < len(p.b) && p.b[p.i] == '\\' && p.b[p.i+1] == 'u' {
			back := p.i
			p.i += 2
			low, err := p.hex4()
			if err != nil {
				return nil, err
			}
			if low >= 0xDC00 && low < 0xE000 {
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
			} else {
				p.i = back
			}
		}
		// Half a surrogate pair is legal JSON and no character: U+FFFD, as in encoding/json.
		return utf8.AppendRune(out, r), nil
	default:
		return nil, p.syntax("an escape")
	}
	p.i++
	return out, nil
}

func (p *Reader) hex4() (rune, error) {
	var r rune
	for range 4 {
		if p.i >= len(p.b) {
			return 0, p.syntax("a hexadecimal digit")
		}
		d := HexDigit(p.b[p.i])
		if d < 0 {
			return 0, p.syntax("a hexadecimal digit")
		}
		r = r<<4 + rune(d)
		p.i++
	}
	return r, nil
}

// HexDigit is the value of a hexadecimal digit, -1 of any other byte.
func HexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func (p *Reader) deeper() error {
	if p.depth == 0 {
		return p.fail(p.i, "too_deep", "nested too deep")
	}
	p.depth--
	return nil
}

func (p *Reader) array() (*Value, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	p.i++
	v := &Value{Kind: '['}
	p.Space()
	if p.i < len(p.b) && p.b[p.i] == ']' {
		p.i++
		p.depth++
		return v, nil
	}
	for {
		p.Space()
		e, err := p.Value()
		if err != nil {
			return nil, err
		}
		v.Elems = append(v.Elems, e)
		p.Space()
		if p.i >= len(p.b) {
			return nil, p.syntax("',' or ']'")
		}
		switch p.b[p.i] {
		case ',':
			p.i++
		case ']':
			p.i++
			p.depth++
			return v, nil
		default:
			return nil, p.syntax("',' or ']'")
		}
	}
}

func (p *Reader) object() (*Value, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	p.i++
	v := &Value{Kind: '{'}
	p.Space()
	if p.i < len(p.b) && p.b[p.i] == '}' {
		p.i++
		p.depth++
		return v, nil
	}
	var seen map[string]bool
	for {
		p.Space()
		at := p.i
		if p.i >= len(p.b) || p.b[p.i] != '"' {
			return nil, p.syntax("a member name")
		}
		key, err := p.String()
		if err != nil {
			return nil, err
		}
		if seen == nil && len(v.Members) == 8 {
			seen = make(map[string]bool, 32)
			for _, m := range v.Members {
				seen[m.Key] = true
			}
		}
		if seen != nil && seen[key] || seen == nil && v.Has(key) {
			return nil, p.fail(at, "duplicate_key", "member %q stands twice", key)
		}
		if seen != nil {
			seen[key] = true
		}
		p.Space()
		if p.i >= len(p.b) || p.b[p.i] != ':' {
			return nil, p.syntax("':'")
		}
		p.i++
		p.Space()
		e, err := p.Value()
		if err != nil {
			return nil, err
		}
		v.Members = append(v.Members, Member{key, e})
		p.Space()
		if p.i >= len(p.b) {
			return nil, p.syntax("',' or '}'")
		}
		switch p.b[p.i] {
		case ',':
			p.i++
		case '}':
			p.i++
			p.depth++
			v.Index()
			return v, nil
		default:
			return nil, p.syntax("',' or '}'")
		}
	}
}
