package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON value that keeps what encoding/json forgets: the order of
// members and the spelling of numbers.
type value struct {
	kind    byte   // one of { [ " 0 t f n
	str     string // of a string: decoded; of a number: its spelling
	elems   []*value
	members []member
	byKey   map[string]int // index into members; nil below 8 members
}

type member struct {
	key string
	val *value
}

func (v *value) get(key string) *value {
	if v == nil || v.kind != '{' {
		return nil
	}
	if v.byKey != nil {
		if i, ok := v.byKey[key]; ok {
			return v.members[i].val
		}
		return nil
	}
	for i := range v.members {
		if v.members[i].key == key {
			return v.members[i].val
		}
	}
	return nil
}

func (v *value) has(key string) bool { return v.get(key) != nil }

func (v *value) isTrue() bool  { return v != nil && v.kind == 't' }
func (v *value) isFalse() bool { return v != nil && v.kind == 'f' }

// isSchema tells whether v can stand where a schema is expected.
func (v *value) isSchema() bool { return v != nil && (v.kind == '{' || v.kind == 't' || v.kind == 'f') }

// with returns an object like v in which key has the value val.
func (v *value) with(key string, val *value) *value {
	out := &value{kind: '{', members: make([]member, 0, len(v.members)+1)}
	done := false
	for _, m := range v.members {
		if m.key == key {
			m.val, done = val, true
		}
		out.members = append(out.members, m)
	}
	if !done {
		out.members = append(out.members, member{key, val})
	}
	out.index()
	return out
}

func (v *value) without(keys ...string) *value {
	out := &value{kind: '{', members: make([]member, 0, len(v.members))}
next:
	for _, m := range v.members {
		for _, k := range keys {
			if m.key == k {
				continue next
			}
		}
		out.members = append(out.members, m)
	}
	out.index()
	return out
}

func (v *value) index() {
	if len(v.members) < 8 {
		v.byKey = nil
		return
	}
	v.byKey = make(map[string]int, len(v.members))
	for i, m := range v.members {
		v.byKey[m.key] = i
	}
}

// plain is v as encoding/json with UseNumber gives it, with numbers beyond
// hugeExponent brought down to it.
func (v *value) plain() any {
	switch v.kind {
	case '{':
		m := make(map[string]any, len(v.members))
		for _, e := range v.members {
			m[e.key] = e.val.plain()
		}
		return m
	case '[':
		a := make([]any, len(v.elems))
		for i, e := range v.elems {
			a[i] = e.plain()
		}
		return a
	case '"':
		return v.str
	case '0':
		return json.Number(tameNumber(v.str))
	case 't':
		return true
	case 'f':
		return false
	}
	return nil
}

// appendTo writes v as JSON: ", " and ": " between, as models write it, and
// strings with the fewest escapes.
func (v *value) appendTo(dst []byte) []byte {
	switch v.kind {
	case '{':
		dst = append(dst, '{')
		for i, m := range v.members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendString(dst, m.key)
			dst = append(dst, ": "...)
			dst = m.val.appendTo(dst)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for i, e := range v.elems {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = e.appendTo(dst)
		}
		return append(dst, ']')
	case '"':
		return appendString(dst, v.str)
	case '0':
		return append(dst, v.str...)
	case 't':
		return append(dst, "true"...)
	case 'f':
		return append(dst, "false"...)
	}
	return append(dst, "null"...)
}

// appendString writes s as a JSON string in which only what must be escaped is.
func appendString(dst []byte, s string) []byte {
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

// tameNumber applies hugeExponent to a valid JSON number.
func tameNumber(s string) string {
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

// rat is the exact value of a number.
func (v *value) rat() (*big.Rat, bool) {
	if v == nil || v.kind != '0' {
		return nil, false
	}
	return new(big.Rat).SetString(tameNumber(v.str))
}

// A jsonError says where a text stops being JSON as we take it.
type jsonError struct {
	offset int    // byte offset
	code   string // ErrorType of the misfit
	msg    string
}

func (e *jsonError) Error() string { return fmt.Sprintf("byte %d: %s", e.offset, e.msg) }

// parseJSON reads one whole JSON value: RFC 8259, UTF-8, no member twice, no
// byte after it but white space, nesting to maxDepth.
func parseJSON(b []byte, maxDepth int) (*value, error) {
	p := parser{b: b, depth: maxDepth}
	p.space()
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.i < len(p.b) {
		return nil, p.fail(p.i, "trailing_data", "more text after the JSON value")
	}
	return v, nil
}

type parser struct {
	b     []byte
	i     int
	depth int // levels left
}

func (p *parser) fail(at int, code, format string, a ...any) error {
	return &jsonError{at, code, fmt.Sprintf(format, a...)}
}

func (p *parser) syntax(want string) error {
	if p.i >= len(p.b) {
		return p.fail(p.i, "json_syntax", "the text ends where %s should follow", want)
	}
	return p.fail(p.i, "json_syntax", "%q where %s should be", p.b[p.i], want)
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) value() (*value, error) {
	if p.i >= len(p.b) {
		return nil, p.syntax("a value")
	}
	switch c := p.b[p.i]; c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		s, err := p.string()
		return &value{kind: '"', str: s}, err
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

func (p *parser) word(w string) (*value, error) {
	for k := range len(w) {
		if p.i >= len(p.b) || p.b[p.i] != w[k] {
			return nil, p.syntax(w)
		}
		p.i++
	}
	return &value{kind: w[0]}, nil
}

func (p *parser) digits() bool {
	from := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

func (p *parser) number() (*value, error) {
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
	return &value{kind: '0', str: string(p.b[from:p.i])}, nil
}

func (p *parser) string() (string, error) {
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
func (p *parser) char() error {
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

func (p *parser) escape(out []byte) ([]byte, error) {
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

func (p *parser) hex4() (rune, error) {
	var r rune
	for range 4 {
		if p.i >= len(p.b) {
			return 0, p.syntax("a hexadecimal digit")
		}
		d := hexDigit(p.b[p.i])
		if d < 0 {
			return 0, p.syntax("a hexadecimal digit")
		}
		r = r<<4 + rune(d)
		p.i++
	}
	return r, nil
}

func hexDigit(c byte) int {
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

func (p *parser) deeper() error {
	if p.depth == 0 {
		return p.fail(p.i, "too_deep", "nested too deep")
	}
	p.depth--
	return nil
}

func (p *parser) array() (*value, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	p.i++
	v := &value{kind: '['}
	p.space()
	if p.i < len(p.b) && p.b[p.i] == ']' {
		p.i++
		p.depth++
		return v, nil
	}
	for {
		p.space()
		e, err := p.value()
		if err != nil {
			return nil, err
		}
		v.elems = append(v.elems, e)
		p.space()
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

func (p *parser) object() (*value, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	p.i++
	v := &value{kind: '{'}
	p.space()
	if p.i < len(p.b) && p.b[p.i] == '}' {
		p.i++
		p.depth++
		return v, nil
	}
	var seen map[string]bool
	for {
		p.space()
		at := p.i
		if p.i >= len(p.b) || p.b[p.i] != '"' {
			return nil, p.syntax("a member name")
		}
		key, err := p.string()
		if err != nil {
			return nil, err
		}
		if seen == nil && len(v.members) == 8 {
			seen = make(map[string]bool, 32)
			for _, m := range v.members {
				seen[m.key] = true
			}
		}
		if seen != nil && seen[key] || seen == nil && v.has(key) {
			return nil, p.fail(at, "duplicate_key", "member %q stands twice", key)
		}
		if seen != nil {
			seen[key] = true
		}
		p.space()
		if p.i >= len(p.b) || p.b[p.i] != ':' {
			return nil, p.syntax("':'")
		}
		p.i++
		p.space()
		e, err := p.value()
		if err != nil {
			return nil, err
		}
		v.members = append(v.members, member{key, e})
		p.space()
		if p.i >= len(p.b) {
			return nil, p.syntax("',' or '}'")
		}
		switch p.b[p.i] {
		case ',':
			p.i++
		case '}':
			p.i++
			p.depth++
			v.index()
			return v, nil
		default:
			return nil, p.syntax("',' or '}'")
		}
	}
}
