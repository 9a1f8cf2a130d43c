package lexical

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A PatternError says why a pattern is not decided.
type PatternError struct {
	Pattern string
	Offset  int // bytes
	Reason  string
}

func (e *PatternError) Error() string {
	src := e.Pattern
	if len(src) > 80 {
		src = strings.ToValidUTF8(src[:80], "") + "…"
	}
	return fmt.Sprintf("pattern %q: %s at byte %d", src, e.Reason, e.Offset)
}

type op uint8

const (
	opEmpty op = iota
	opSet
	opCat
	opAlt
	opLoop   // min to max rounds of sub[0]; max -1: no end
	opStart  // ^
	opEnd    // $
	opWord   // \b, negated \B
	opAhead  // (?=…), negated (?!…)
	opBehind // (?<=…), negated (?<!…)
)

// A node is a part of a pattern.
type node struct {
	op       op
	neg      bool
	min, max int
	set      charset
	sub      []*node
}

const (
	maxNesting     = 500     // groups within groups
	maxPatternSize = 1 << 16 // bytes of a pattern
	maxRepeat      = 1 << 30 // rounds; more than a text has characters
)

type parser struct {
	src    string
	at     int
	depth  int
	strict bool // only what ECMA-262 allows with the u flag
	names  map[string]bool
	behind int // lookbehinds around
	ranges int // of characters in classes so far
	refs   []ref
	groups int // that capture
}

// A ref is a backreference, by name or by number.
type ref struct {
	at    int
	name  string
	group int
}

// parsePattern reads a pattern of ECMA-262 with the u flag. Unless it is
// strict, what only the older grammar allows is read as that reads it, where
// it has but one meaning: a bracket or brace that closes or opens nothing, a
// needless backslash before a sign, a class within a range.
func parsePattern(src string, strict bool) (n *node, err error) {
	p := &parser{src: src, strict: strict, names: map[string]bool{}}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*PatternError)
			if !ok {
				panic(r)
			}
			n, err = nil, e
		}
	}()
	if len(src) > maxPatternSize {
		p.fail(0, fmt.Sprintf("more than %d bytes", maxPatternSize))
	}
	if !utf8.ValidString(src) {
		p.fail(0, "not UTF-8")
	}
	n = p.alternatives()
	if p.at < len(src) {
		p.fail(p.at, "unmatched )")
	}
	for _, r := range p.refs {
		if strict && (p.names[r.name] || 0 < r.group && r.group <= p.groups) {
			continue // it is a pattern, just none that is decided
		}
		p.fail(r.at, "backreference")
	}
	return n, nil
}

func (p *parser) fail(at int, reason string) {
	panic(&PatternError{p.src, at, reason})
}

func (p *parser) more() bool { return p.at < len(p.src) }

func (p *parser) looking(s string) bool { return strings.HasPrefix(p.src[p.at:], s) }

func (p *parser) take(s string) bool {
	if p.looking(s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *parser) char() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.at:])
	p.at += n
	return r
}

func (p *parser) alternatives() *node {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.at, fmt.Sprintf("more than %d groups within one another", maxNesting))
	}
	defer func() { p.depth-- }()
	alts := []*node{p.sequence()}
	for p.take("|") {
		alts = append(alts, p.sequence())
	}
	if len(alts) == 1 {
		return alts[0]
	}
	return &node{op: opAlt, sub: alts}
}

func (p *parser) sequence() *node {
	var items []*node
	for p.more() && !p.looking("|") && !p.looking(")") {
		at := p.at
		item := p.item()
		if lo, hi, ok := p.quantifier(); ok {
			for _, none := range [...]string{"^", "$", `\b`, `\B`, "(?=", "(?!", "(?<=", "(?<!"} {
				if strings.HasPrefix(p.src[at:], none) {
					p.fail(at, "nothing to repeat")
				}
			}
			item = &node{op: opLoop, min: lo, max: hi, sub: []*node{item}}
		}
		items = append(items, item)
	}
	switch len(items) {
	case 0:
		return &node{op: opEmpty}
	case 1:
		return items[0]
	}
	return &node{op: opCat, sub: items}
}

func (p *parser) quantifier() (lo, hi int, ok bool) {
	if !p.more() {
		return 0, 0, false
	}
	switch p.src[p.at] {
	case '*':
		lo, hi = 0, -1
		p.at++
	case '+':
		lo, hi = 1, -1
		p.at++
	case '?':
		lo, hi = 0, 1
		p.at++
	case '{':
		if lo, hi, ok = p.braces(); !ok {
			return 0, 0, false
		}
	default:
		return 0, 0, false
	}
	p.take("?")
	return lo, hi, true
}

func (p *parser) braces() (lo, hi int, ok bool) {
	at := p.at
	p.at++
	lo, ok = p.decimal()
	if ok {
		hi = lo
		if p.take(",") {
			hi = -1
			if n, some := p.decimal(); some {
				hi = n
			}
		}
		ok = p.take("}")
	}
	if !ok {
		if p.strict {
			p.fail(at, "incomplete quantifier")
		}
		p.at = at
		return 0, 0, false
	}
	if hi >= 0 && hi < lo {
		p.fail(at, "quantifier out of order")
	}
	if lo > maxRepeat {
		p.fail(at, fmt.Sprintf("more than %d repeats", maxRepeat))
	}
	if hi > maxRepeat {
		hi = -1
	}
	return lo, hi, true
}

// decimal reads digits; what is too large for any text is maxRepeat+1.
func (p *parser) decimal() (n int, ok bool) {
	for p.more() && '0' <= p.src[p.at] && p.src[p.at] <= '9' {
		n = min(10*n+int(p.src[p.at]-'0'), maxRepeat+1)
		ok = true
		p.at++
	}
	return n, ok
}

func (p *parser) item() *node {
	at := p.at
	switch c := p.char(); c {
	case '^':
		return &node{op: opStart}
	case '$':
		return &node{op: opEnd}
	case '.':
		return &node{op: opSet, set: dotChars}
	case '(':
		return p.group(at)
	case '[':
		return p.class(at)
	case '\\':
		return p.escape(at)
	case '*', '+', '?':
		p.fail(at, "nothing to repeat")
	case '{':
		p.at = at
		if _, _, ok := p.braces(); ok {
			p.fail(at, "nothing to repeat")
		}
		p.at = at + 1
		return literal('{')
	case '}', ']':
		if p.strict {
			p.fail(at, "lone "+string(c))
		}
		return literal(c)
	default:
		return literal(c)
	}
	return nil
}

func literal(r rune) *node { return &node{op: opSet, set: charset{r, r}} }

func (p *parser) group(at int) *node {
	n := &node{}
	switch {
	case p.take("?:"):
	case p.take("?="):
		n.op = opAhead
	case p.take("?!"):
		n.op, n.neg = opAhead, true
	case p.take("?<="):
		n.op = opBehind
	case p.take("?<!"):
		n.op, n.neg = opBehind, true
	case p.take("?<"):
		name := p.groupName(at)
		if p.names[name] {
			p.fail(at, "second group of the name "+name)
		}
		p.names[name] = true
		p.groups++
	case p.looking("?"):
		p.fail(at, "unknown kind of group")
	default:
		p.groups++
	}
	if n.op == opAhead && p.behind > 0 && !p.strict {
		p.fail(at, "lookahead inside a lookbehind")
	}
	if n.op == opBehind {
		p.behind++
	}
	sub := p.alternatives()
	if n.op == opBehind {
		p.behind--
	}
	if !p.take(")") {
		p.fail(at, "unclosed group")
	}
	if n.op == opEmpty {
		return sub
	}
	n.sub = []*node{sub}
	return n
}

func (p *parser) groupName(at int) string {
	end := strings.IndexByte(p.src[p.at:], '>')
	if end <= 0 {
		p.fail(at, "bad group name")
	}
	name := p.src[p.at : p.at+end]
	p.at += end + 1
	for i, r := range name {
		if r == '\\' {
			p.fail(at, "escape in a group name")
		}
		if nameChar(r, i == 0) {
			continue
		}
		p.fail(at, "bad group name")
	}
	return name
}

// nameChar tells whether r may stand in the name of a group.
func nameChar(r rune, first bool) bool {
	start, _ := propertySet("ID_Start", "")
	part, _ := propertySet("ID_Continue", "")
	return r == '$' || r == '_' || start.has(r) || !first && (part.has(r) || r == 0x200C || r == 0x200D)
}

// escape reads what follows a backslash outside of a class.
func (p *parser) escape(at int) *node {
	if !p.more() {
		p.fail(at, "backslash at the end")
	}
	switch c := p.src[p.at]; {
	case c == 'b' || c == 'B':
		p.at++
		return &node{op: opWord, neg: c == 'B'}
	case '1' <= c && c <= '9':
		n, _ := p.decimal()
		p.refs = append(p.refs, ref{at: at, group: n})
		return &node{op: opEmpty}
	case c == 'k':
		p.at++
		if !p.take("<") {
			p.fail(at, `\k without a name`)
		}
		p.refs = append(p.refs, ref{at: at, name: p.groupName(at)})
		return &node{op: opEmpty}
	}
	if s, ok := p.classEscape(at); ok {
		return &node{op: opSet, set: s}
	}
	return literal(p.charEscape(at, false))
}

// classEscape reads \d \w \s \p and their opposites.
func (p *parser) classEscape(at int) (charset, bool) {
	switch c := p.src[p.at]; c {
	case 'd', 'D', 'w', 'W', 's', 'S':
		p.at++
		s := map[byte]charset{'d': digitChars, 'w': wordChars, 's': spaceChars}[c|0x20]
		if c < 'a' {
			s = s.negate()
		}
		return s, true
	case 'p', 'P':
		p.at++
		end := strings.IndexByte(p.src[p.at:], '}')
		if !p.looking("{") || end < 0 {
			p.fail(at, `\p without {…}`)
		}
		text := p.src[p.at+1 : p.at+end]
		p.at += end + 1
		name, value, pair := strings.Cut(text, "=")
		if pair && value == "" {
			p.fail(at, "property without a value")
		}
		s, ok := propertySet(name, value)
		if !ok {
			p.fail(at, fmt.Sprintf("unknown property %.40q", text))
		}
		if c == 'P' {
			s = s.negate()
		}
		return s, true
	}
	return nil, false
}

// controlEscape is the control character of the letter behind a backslash.
func controlEscape(letter rune) (rune, bool) {
	switch letter {
	case 't':
		return '\t', true
	case 'n':
		return '\n', true
	case 'v':
		return '\v', true
	case 'f':
		return '\f', true
	case 'r':
		return '\r', true
	}
	return 0, false
}

func (p *parser) charEscape(at int, inClass bool) rune {
	c := p.char()
	if r, ok := controlEscape(c); ok {
		return r
	}
	switch c {
	case '0':
		if p.more() && '0' <= p.src[p.at] && p.src[p.at] <= '9' {
			p.fail(at, "octal escape")
		}
		return 0
	case 'c':
		if p.more() {
			if l := p.src[p.at] | 0x20; 'a' <= l && l <= 'z' {
				p.at++
				return rune(l & 31)
			}
		}
		p.fail(at, `\c without a letter`)
	case 'x':
		if r, ok := p.hex(2); ok {
			return r
		}
		p.fail(at, `\x without two hex digits`)
	case 'u':
		return p.unicodeEscape(at)
	default:
		if strings.ContainsRune(`^$\.*+?()[]{}|/`, c) || inClass && c == '-' {
			return c
		}
		if !p.strict && c < 0x80 && c > ' ' && !wordChars.has(c) {
			return c
		}
		p.fail(at, fmt.Sprintf("unknown escape %q", `\`+string(c)))
	}
	return 0
}

func (p *parser) unicodeEscape(at int) rune {
	if p.take("{") {
		r, n := rune(0), 0
		for p.more() && p.src[p.at] != '}' {
			d := hexDigit(p.src[p.at])
			if d < 0 {
				p.fail(at, `bad \u{…}`)
			}
			if r = r<<4 | rune(d); r > utf8.MaxRune {
				p.fail(at, `\u{…} beyond Unicode`)
			}
			p.at++
			n++
		}
		if n == 0 || !p.take("}") {
			p.fail(at, `bad \u{…}`)
		}
		return r
	}
	r, ok := p.hex(4)
	if !ok {
		p.fail(at, `\u without four hex digits`)
	}
	if 0xD800 <= r && r < 0xDC00 && p.looking(`\u`) {
		back := p.at
		p.at += 2
		if low, ok := p.hex(4); ok && 0xDC00 <= low && low < 0xE000 {
			return 0x10000 + (r-0xD800)<<10 + low - 0xDC00
		}
		p.at = back
	}
	return r
}

func (p *parser) hex(n int) (r rune, ok bool) {
	if p.at+n > len(p.src) {
		return 0, false
	}
	for i := range n {
		d := hexDigit(p.src[p.at+i])
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	p.at += n
	return r, true
}

func hexDigit(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return int(b|0x20-'a') + 10
	}
	return -1
}

func (p *parser) class(at int) *node {
	neg := p.take("^")
	var s charset
	for {
		if !p.more() {
			p.fail(at, "unclosed class")
		}
		if p.take("]") {
			break
		}
		from := p.at
		lo, one := p.classAtom()
		if !p.looking("-") || strings.HasPrefix(p.src[p.at:], "-]") {
			s = append(s, lo...)
			continue
		}
		p.at++
		if !p.more() {
			p.fail(at, "unclosed class")
		}
		hi, other := p.classAtom()
		if !one || !other {
			if p.strict {
				p.fail(from, "class in a range")
			}
			s = append(append(append(s, lo...), hi...), '-', '-')
			continue
		}
		if lo[0] > hi[0] {
			p.fail(from, "range out of order")
		}
		s = append(s, lo[0], hi[0])
	}
	if p.ranges += len(s) / 2; p.ranges > maxRanges {
		p.fail(at, fmt.Sprintf("more than %d ranges of characters", maxRanges))
	}
	s = s.normal()
	if neg {
		s = s.negate()
	}
	return &node{op: opSet, set: s}
}

// classAtom reads one member of a class; one says that it is a character.
func (p *parser) classAtom() (s charset, one bool) {
	at := p.at
	r := p.char()
	if r != '\\' {
		return charset{r, r}, true
	}
	if !p.more() {
		p.fail(at, "backslash at the end")
	}
	if s, ok := p.classEscape(at); ok {
		return s, false
	}
	if p.take("b") {
		return charset{'\b', '\b'}, true
	}
	r = p.charEscape(at, true)
	return charset{r, r}, true
}
