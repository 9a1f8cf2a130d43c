package grammar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/lexical"
)

// Patterns are ECMA-262's, which lexical decides. What an engine is held to is
// made from their syntax trees as regexp/syntax gives them, of patterns that
// are written in its own notation first, where \s and the dot mean other sets.

// errNotRE2 is of patterns that have no counterpart there.
var errNotRE2 = errors.New("pattern with lookaround, backreferences or other signs that only ECMA-262 has")

// ecmaSpace is \s in a class, and ecmaNoSpace is \S.
const (
	ecmaSpace   = `\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}`
	ecmaNoSpace = `\x00-\x08\x0E-\x1F!-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}`
)

// re2Of writes a pattern in the notation of regexp/syntax.
func re2Of(src string) (string, error) {
	var out strings.Builder
	class := false
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c == '\\':
			text, n, err := re2Escape(src[i:], class)
			if err != nil {
				return "", err
			}
			out.WriteString(text)
			i += n
			continue
		case class && c == ']':
			class = false
		case class && c == '[':
			out.WriteByte('\\')
		case class:
		case c == '.':
			out.WriteString(`[^\n\r\x{2028}\x{2029}]`)
			i++
			continue
		case strings.HasPrefix(src[i:], "[^]"):
			out.WriteString(`[\x00-\x{10FFFF}]`)
			i += len("[^]")
			continue
		case strings.HasPrefix(src[i:], "[]"):
			out.WriteString(`[^\x00-\x{10FFFF}]`)
			i += len("[]")
			continue
		case c == '[':
			class = true
			if strings.HasPrefix(src[i:], "[^") {
				out.WriteByte('[')
				i++
			}
		case strings.HasPrefix(src[i:], "(?"):
			next := strings.TrimPrefix(src[i:], "(?")
			if next == "" || next[0] != ':' && next[0] != '<' || strings.HasPrefix(next, "<=") || strings.HasPrefix(next, "<!") {
				return "", errNotRE2
			}
		}
		_, n := utf8.DecodeRuneInString(src[i:])
		out.WriteString(src[i : i+n])
		i += n
	}
	return out.String(), nil
}

// re2Escape is what begins with a backslash, and its length.
func re2Escape(src string, class bool) (text string, n int, err error) {
	if len(src) < 2 {
		return "", 0, errNotRE2
	}
	char := func(r int64, n int) (string, int, error) { return fmt.Sprintf(`\x{%X}`, r), n, nil }
	switch c := src[1]; {
	case c == 's' && class:
		return ecmaSpace, 2, nil
	case c == 'S' && class:
		return ecmaNoSpace, 2, nil
	case c == 's':
		return "[" + ecmaSpace + "]", 2, nil
	case c == 'S':
		return "[" + ecmaNoSpace + "]", 2, nil
	case c == 'b' && class:
		return `\x08`, 2, nil
	case strings.IndexByte("dDwWfnrtv", c) >= 0 || !class && (c == 'b' || c == 'B'):
		return src[:2], 2, nil
	case c == '0' && (len(src) == 2 || src[2] < '0' || src[2] > '9'):
		return char(0, 2)
	case c == 'c' && len(src) > 2 && (src[2]|0x20 >= 'a' && src[2]|0x20 <= 'z'):
		return char(int64(src[2]&0x1F), 3)
	case c == 'x' && len(src) >= 4:
		if r, err := strconv.ParseUint(src[2:4], 16, 32); err == nil {
			return char(int64(r), 4)
		}
	case c == 'u' && len(src) >= 6 && src[2] != '{':
		// Halves of a surrogate pair are left to lexical.
		if r, err := strconv.ParseUint(src[2:6], 16, 32); err == nil && (r < 0xD800 || r > 0xDFFF) {
			return char(int64(r), 6)
		}
	case c == 'u' || c == 'p' || c == 'P':
		inner, _, closed := strings.Cut(src[2:], "}")
		name, opened := strings.CutPrefix(inner, "{")
		if !opened || !closed {
			break
		}
		n := len(`\u{}`) + len(name)
		if c != 'u' {
			if len(name) <= 2 { // a general category; other names differ
				return src[:n], n, nil
			}
			break
		}
		if r, err := strconv.ParseUint(name, 16, 32); err == nil && r <= utf8.MaxRune && (r < 0xD800 || r > 0xDFFF) {
			return char(int64(r), n)
		}
	case c < 0x80 && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z'):
		return char(int64(c), 2)
	}
	return "", 0, errNotRE2
}

// patternMatcher matches strings against a pattern of a schema.
func patternMatcher(pattern string) (*lexical.Matcher, error) {
	p, err := lexical.Pattern(pattern)
	if err != nil {
		return nil, err
	}
	return lexical.NewMatcher(p, lexical.Limits{})
}
