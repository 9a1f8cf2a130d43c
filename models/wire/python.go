package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest before it is refused; CPython's reader
// gives up near its recursion limit of 1,000.
const maxDepth = 900

// AppendPython appends raw, one JSON value, as Python's
// json.dumps(json.loads(raw), ensure_ascii=False) writes it: ", " and ": " as
// separators, of a repeated key the last value in the place of the first,
// integers digit for digit, other numbers as the shortest text that reads back,
// text unescaped where it may be. The NaN and Infinity which Python reads are no
// JSON and refused; a lone surrogate, which Python can't send on, becomes U+FFFD.
// On an error dst is returned as it was.
func AppendPython(dst, raw []byte) ([]byte, error) {
	r := dumper{in: raw}
	out, err := r.value(dst, 0)
	if err == nil {
		r.space()
		if r.at < len(r.in) {
			err = r.fail("something follows the value")
		}
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendTool appends a tool in the form in which vLLM hands it to a chat
// template, written by Python: the keys type, function{name, description,
// parameters, strict, defer_loading} and defer_loading in this order; a missing
// description or missing parameters are null, a missing strict or defer_loading
// is left out, and unknown keys are dropped. The bare inner object of a tool,
// without type and function, is taken for the whole. What is no tool object is
// appended unchanged.
func AppendTool(dst []byte, tool json.RawMessage) []byte {
	var outer map[string]json.RawMessage
	if json.Unmarshal(tool, &outer) != nil {
		return append(dst, tool...)
	}
	fn, ok := outer["function"]
	if !ok && outer["name"] != nil {
		fn = tool
		outer = nil
	}
	var f map[string]json.RawMessage
	if json.Unmarshal(fn, &f) != nil || f == nil {
		return append(dst, tool...)
	}
	set := func(m map[string]json.RawMessage, key string) bool {
		v, ok := m[key]
		return ok && string(v) != "null"
	}
	if set(outer, "defer_loading") && !set(f, "defer_loading") {
		f["defer_loading"] = outer["defer_loading"]
	}
	start := len(dst)
	var err error
	put := func(text string, v json.RawMessage) {
		dst = append(dst, text...)
		if v == nil {
			v = json.RawMessage("null")
		}
		if err == nil {
			dst, err = AppendPython(dst, v)
		}
	}
	kind := outer["type"]
	if kind == nil {
		kind = json.RawMessage(`"function"`)
	}
	put(`{"type": `, kind)
	put(`, "function": {"name": `, f["name"])
	put(`, "description": `, f["description"])
	put(`, "parameters": `, f["parameters"])
	if set(f, "strict") {
		put(`, "strict": `, f["strict"])
	}
	if set(f, "defer_loading") {
		put(`, "defer_loading": `, f["defer_loading"])
	}
	dst = append(dst, '}')
	if set(outer, "defer_loading") {
		put(`, "defer_loading": `, outer["defer_loading"])
	}
	dst = append(dst, '}')
	if err != nil {
		return append(dst[:start], tool...)
	}
	return dst
}

// dumper reads one JSON text and writes it again.
type dumper struct {
	in []byte
	at int
}

func (d *dumper) fail(msg string) error {
	return fmt.Errorf("JSON at byte %d: %s", d.at, msg)
}

func (d *dumper) space() {
	for d.at < len(d.in) {
		switch d.in[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

func (d *dumper) peek() byte {
	if d.at < len(d.in) {
		return d.in[d.at]
	}
	return 0
}

func (d *dumper) value(dst []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return dst, d.fail(fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	d.space()
	if d.at == len(d.in) {
		return dst, d.fail("the text ends where a value is expected")
	}
	switch c := d.in[d.at]; c {
	case '{':
		return d.object(dst, depth)
	case '[':
		return d.array(dst, depth)
	case '"':
		s, err := d.str()
		if err != nil {
			return dst, err
		}
		return appendString(dst, s), nil
	case 't', 'f', 'n':
		for _, w := range [...]string{"true", "false", "null"} {
			if len(d.in)-d.at >= len(w) && string(d.in[d.at:d.at+len(w)]) == w {
				d.at += len(w)
				return append(dst, w...), nil
			}
		}
		return dst, d.fail("unknown word")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return d.number(dst)
		}
		return dst, d.fail(fmt.Sprintf("unexpected %q", c))
	}
}

func (d *dumper) object(dst []byte, depth int) ([]byte, error) {
	type member struct {
		key        string
		start, end int // of the value in dst
	}
	var few [8]member
	members := few[:0]
	var index map[string]int // only for large objects
	find := func(key string) int {
		if index != nil {
			if i, ok := index[key]; ok {
				return i
			}
			return -1
		}
		for i := range members {
			if members[i].key == key {
				return i
			}
		}
		return -1
	}
	start := len(dst)
	repeated := false
	d.at++
	dst = append(dst, '{')
	d.space()
	if d.peek() == '}' {
		d.at++
		return append(dst, '}'), nil
	}
	for {
		d.space()
		if d.peek() != '"' {
			return dst, d.fail("a key is expected")
		}
		key, err := d.str()
		if err != nil {
			return dst, err
		}
		d.space()
		if d.peek() != ':' {
			return dst, d.fail("':' is expected")
		}
		d.at++
		if len(dst) > start+1 {
			dst = append(dst, ", "...)
		}
		dst = appendString(dst, key)
		dst = append(dst, ": "...)
		m := member{key: key, start: len(dst)}
		if dst, err = d.value(dst, depth+1); err != nil {
			return dst, err
		}
		m.end = len(dst)
		if i := find(key); i >= 0 {
			repeated = true
			members[i].start, members[i].end = m.start, m.end
		} else {
			if len(members) == 16 && index == nil {
				index = make(map[string]int)
				for i := range members {
					index[members[i].key] = i
				}
			}
			if index != nil {
				index[key] = len(members)
			}
			members = append(members, m)
		}
		d.space()
		c := d.peek()
		if c != ',' && c != '}' {
			return dst, d.fail("',' or '}' is expected")
		}
		d.at++
		if c == '}' {
			break
		}
	}
	if repeated {
		once := []byte{'{'}
		for i, m := range members {
			if i > 0 {
				once = append(once, ", "...)
			}
			once = appendString(once, m.key)
			once = append(once, ": "...)
			once = append(once, dst[m.start:m.end]...)
		}
		dst = append(dst[:start], once...)
	}
	return append(dst, '}'), nil
}

func (d *dumper) array(dst []byte, depth int) ([]byte, error) {
	d.at++
	dst = append(dst, '[')
	d.space()
	if d.peek() == ']' {
		d.at++
		return append(dst, ']'), nil
	}
	for {
		var err error
		if dst, err = d.value(dst, depth+1); err != nil {
			return dst, err
		}
		d.space()
		c := d.peek()
		if c != ',' && c != ']' {
			return dst, d.fail("',' or ']' is expected")
		}
		d.at++
		if c == ']' {
			return append(dst, ']'), nil
		}
		dst = append(dst, ", "...)
	}
}

// str reads a string, which starts at d.at.
func (d *dumper) str() (string, error) {
	end := d.at + 1
	plain := true
	for ; ; end++ {
		if end >= len(d.in) {
			return "", d.fail("the string does not end")
		}
		c := d.in[end]
		if c == '"' {
			break
		}
		if c < 0x20 {
			d.at = end
			return "", d.fail("control character in a string")
		}
		if c == '\\' {
			plain = false
			end++
		}
	}
	body := d.in[d.at+1 : end]
	if plain {
		d.at = end + 1
		return string(body), nil
	}
	s, ok := unescape(body)
	if !ok {
		return "", d.fail("bad escape in a string")
	}
	d.at = end + 1
	return s, nil
}

// unescape is the text of a JSON string, given without its quotes.
func unescape(body []byte) (string, bool) {
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			out = append(out, body[i])
			continue
		}
		i++
		if i == len(body) {
			return "", false
		}
		switch body[i] {
		case '"', '\\', '/':
			out = append(out, body[i])
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
			r, ok := hex4(body[i+1:])
			if !ok {
				return "", false
			}
			i += 4
			if utf16.IsSurrogate(r) && i+2 < len(body) && body[i+1] == '\\' && body[i+2] == 'u' {
				if low, ok := hex4(body[i+3:]); ok {
					if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
						r = full
						i += 6
					}
				}
			}
			out = utf8.AppendRune(out, r) // a lone surrogate is written as U+FFFD
		default:
			return "", false
		}
	}
	return string(out), true
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number reads a JSON number and writes it as Python's int or float prints it.
func (d *dumper) number(dst []byte) ([]byte, error) {
	start := d.at
	digits := func() bool {
		n := d.at
		for d.at < len(d.in) && '0' <= d.in[d.at] && d.in[d.at] <= '9' {
			d.at++
		}
		return d.at > n
	}
	if d.peek() == '-' {
		d.at++
	}
	if d.peek() == '0' {
		d.at++
	} else if !digits() {
		return dst, d.fail("a digit is expected")
	}
	whole := true
	if d.peek() == '.' {
		whole = false
		d.at++
		if !digits() {
			return dst, d.fail("a digit is expected")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		whole = false
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		if !digits() {
			return dst, d.fail("a digit is expected")
		}
	}
	text := string(d.in[start:d.at])
	if whole {
		if text == "-0" {
			text = "0"
		}
		return append(dst, text...), nil
	}
	f, _ := strconv.ParseFloat(text, 64) // out of range gives an infinity, as in Python
	return append(dst, pythonFloat(f)...), nil
}

// pythonFloat is repr(f): the shortest digits, plain for exponents from -4 to
// 15, else with an exponent of at least two digits.
func pythonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	i := strings.IndexByte(s, 'e')
	exp, _ := strconv.Atoi(s[i+1:])
	if f != 0 && (exp < -4 || exp >= 16) {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

// appendString appends s as Python's json.dumps writes it with ensure_ascii off.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
