package lexical

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// regexScan reads what parsePattern does under the u flag, character by
// character, and keeps no more of the text than what is to come depends on: in
// which groups it stands, how the atom goes that isn't read to its end, and
// which groups are there to refer to.
func regexScan() *scan {
	return &scan{
		start:  (&regexState{mode: regexFresh}).String(),
		step:   func(state string, r rune) string { return readRegex(state).step(r).String() },
		accept: func(state string) bool { return readRegex(state).accepts() },
		told: func(state string) told {
			switch s := readRegex(state); s.mode {
			case regexFresh, regexAtom, regexRepeat:
				return told{runes: regexSigns}
			case regexNumber:
				return told{runes: regexSignsAndDigits}
			}
			return told{all: true}
		},
		run: func(state string) (Run, bool) { return readRegex(state).run() },
	}
}

// run is the characters of which any number may follow within a class, a name
// or a property.
func (s *regexState) run() (r Run, ok bool) {
	from := rune(' ')
	switch {
	case s.mode == regexClass:
		c := readRegexClass(strings.TrimPrefix(s.tail, "^"))
		if c.hyphen { // the first of them ends a range
			from = c.lo.r
		}
		if r.Others = true; c.hi.kind != noMember || c.escape != "" || c.lo.kind == aZero || c.hyphen && c.lo.kind != aChar || from > '}' {
			return r, false
		}
	case s.mode == regexEscape && len(s.tail) > 1 && s.tail[0]|0x20 == 'p' && len(s.tail) < maxProperty-maxRun:
	case (s.mode == regexName || s.mode == regexRefer) && len(s.tail) > 1:
	default:
		return r, false
	}
	for c := max(from, ' '); c < 0x7F; c++ {
		in := strings.IndexByte(`"-\]`, byte(c)) < 0
		if s.mode != regexClass {
			in = wordChars.has(c)
		}
		if in {
			r.ASCII[c>>6] |= 1 << (c & 63)
		}
	}
	return r, true
}

// maxRun is how many characters of a run may be asked for at once.
const maxRun = 128

var (
	regexSigns          = []rune(`$()*+?[\]^{|}`)
	regexSignsAndDigits = []rune(`$()*+0123456789?[\]^{|}`)
)

// A regexMode is what was read last.
type regexMode byte

const (
	regexFresh  regexMode = 'f'  // nothing that could be repeated
	regexAtom   regexMode = 'a'  // an atom, which may be repeated
	regexRepeat regexMode = 'r'  // a quantifier, which may be lazy
	regexBraces regexMode = '{'  // { and part of a quantifier
	regexNumber regexMode = '1'  // an atom that more digits would change: tail
	regexEscape regexMode = '\\' // \ and part of an escape
	regexOpen   regexMode = '('  // ( and part of what says its kind
	regexName   regexMode = '<'  // part of the name of a group
	regexRefer  regexMode = 'k'  // part of the name that \k refers to
	regexClass  regexMode = '['  // within a class: see class
)

// A regexState is the state of a regexScan.
type regexState struct {
	mode    regexMode
	groups  int      // that capture
	highest int      // group that is referred to
	open    string   // of the groups around, inmost last: a if it is an atom, f if it can't be repeated
	names   []string // of groups, sorted
	wanted  []string // names that are referred to and not there yet, sorted
	tail    string   // of what isn't read to its end
}

// String is the parts in one line; that of nil is hasFailed.
func (s *regexState) String() string {
	if s == nil {
		return hasFailed
	}
	return string(rune(s.mode)) + strings.Join([]string{
		strconv.Itoa(s.groups), strconv.Itoa(s.highest), s.open, strings.Join(s.names, ","), strings.Join(s.wanted, ","), s.tail,
	}, " ")
}

func readRegex(text string) *regexState {
	parts := strings.SplitN(text[1:], " ", 6)
	list := func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, ",")
	}
	s := &regexState{mode: regexMode(text[0]), open: parts[2], names: list(parts[3]), wanted: list(parts[4]), tail: parts[5]}
	s.groups, _ = strconv.Atoi(parts[0])
	s.highest, _ = strconv.Atoi(parts[1])
	return s
}

func (s *regexState) accepts() bool {
	switch s.mode {
	case regexFresh, regexAtom, regexRepeat:
	case regexNumber:
		s = s.settled()
	default:
		return false
	}
	return s.open == "" && len(s.wanted) == 0 && s.highest <= s.groups
}

// to is s with nothing left open.
func (s *regexState) to(m regexMode) *regexState {
	s.mode, s.tail = m, ""
	return s
}

// with is s with more of what isn't read to its end.
func (s *regexState) with(m regexMode, tail string) *regexState {
	s.mode, s.tail = m, tail
	return s
}

// settled takes a number as read.
func (s *regexState) settled() *regexState {
	if n, err := strconv.Atoi(s.tail); err == nil {
		s.highest = max(s.highest, n)
	}
	return s.to(regexAtom)
}

// step is the state after one more character; nil if no pattern begins so.
func (s *regexState) step(r rune) *regexState {
	switch s.mode {
	case regexNumber:
		if digit(r) {
			if s.tail == "0" {
				return nil // an octal escape
			}
			n, _ := strconv.Atoi(s.tail + string(r))
			return s.with(regexNumber, strconv.Itoa(min(n, maxRepeat+1)))
		}
		s.settled()
	case regexBraces:
		return s.braces(r)
	case regexEscape:
		return s.escape(r)
	case regexOpen:
		return s.kind(r)
	case regexName, regexRefer:
		return s.name(r)
	case regexClass:
		return s.class(r)
	}
	switch r {
	case '^', '$', '|':
		return s.to(regexFresh)
	case '(':
		if len(s.open)+1 >= maxNesting {
			return nil
		}
		return s.to(regexOpen)
	case ')':
		if s.open == "" {
			return nil
		}
		n := len(s.open) - 1
		m := regexMode(s.open[n])
		s.open = s.open[:n]
		return s.to(m)
	case '[':
		return s.with(regexClass, "^")
	case '\\':
		return s.to(regexEscape)
	case '*', '+', '?', '{':
		switch {
		case s.mode == regexRepeat && r == '?':
			return s.to(regexFresh)
		case s.mode != regexAtom:
			return nil
		case r == '{':
			return s.to(regexBraces)
		}
		return s.to(regexRepeat)
	case ']', '}':
		return nil
	}
	return s.to(regexAtom)
}

func digit(r rune) bool { return '0' <= r && r <= '9' }

// braces reads on in {lo}, {lo,} or {lo,hi}.
func (s *regexState) braces(r rune) *regexState {
	lo, hi, second := strings.Cut(s.tail, ",")
	switch {
	case digit(r):
		number := func(digits string) string {
			n, _ := strconv.Atoi(digits + string(r))
			return strconv.Itoa(min(n, maxRepeat+1))
		}
		if second {
			return s.with(regexBraces, lo+","+number(hi))
		}
		return s.with(regexBraces, number(lo))
	case lo == "":
		return nil
	case r == ',' && !second:
		return s.with(regexBraces, s.tail+",")
	case r != '}':
		return nil
	}
	least, _ := strconv.Atoi(lo)
	most, err := strconv.Atoi(hi)
	if least > maxRepeat || err == nil && most < least {
		return nil
	}
	return s.to(regexRepeat)
}

// kind reads what follows the bracket of a group.
func (s *regexState) kind(r rune) *regexState {
	tail := s.tail + string(r)
	open := func(after regexMode) *regexState {
		s.open += string(rune(after))
		return s.to(regexFresh)
	}
	switch tail {
	case "?", "?<":
		return s.with(regexOpen, tail)
	case "?:":
		return open(regexAtom)
	case "?=", "?!", "?<=", "?<!":
		return open(regexFresh)
	}
	switch {
	case strings.HasPrefix(tail, "?<"):
		s.groups++
		s.open += string(rune(regexAtom))
		return s.to(regexName).name(r)
	case s.tail != "":
		return nil
	}
	s.groups++
	return open(regexAtom).step(r)
}

// name reads on in a name. One is read like any other character of it.
func (s *regexState) name(r rune) *regexState {
	if s.mode == regexRefer && s.tail == "" { // the < before it
		if r != '<' {
			return nil
		}
		return s.with(regexRefer, "<")
	}
	text := strings.TrimPrefix(s.tail, "<")
	if r != '>' {
		if !nameChar(r, text == "") {
			return nil
		}
		return s.with(s.mode, s.tail+string(r))
	}
	at, there := slices.BinarySearch(s.names, text)
	switch {
	case text == "", s.mode == regexName && there:
		return nil
	case s.mode == regexName:
		s.names = slices.Insert(s.names, at, text)
		s.wanted = slices.DeleteFunc(s.wanted, func(w string) bool { return w == text })
		return s.to(regexFresh)
	case !there:
		if at, again := slices.BinarySearch(s.wanted, text); !again {
			s.wanted = slices.Insert(s.wanted, at, text)
		}
	}
	return s.to(regexAtom)
}

// escape reads on after a backslash outside of a class.
func (s *regexState) escape(r rune) *regexState {
	if s.tail == "" {
		switch {
		case r == 'b' || r == 'B':
			return s.to(regexFresh)
		case digit(r):
			return s.with(regexNumber, string(r))
		case r == 'k':
			return s.to(regexRefer)
		}
	}
	tail := s.tail + string(r)
	switch escapeSoFar(tail, false) {
	case escapeBad:
		return nil
	case escapeDone:
		return s.to(regexAtom)
	}
	if tail[0] == 'x' || tail[0] == 'u' && !strings.HasPrefix(tail, "u{") { // whichever digits
		tail = tail[:1] + strings.Repeat("0", len(tail)-1)
	}
	return s.with(regexEscape, tail)
}

// An escapeEnd says whether the text of an escape is whole.
type escapeEnd uint8

const (
	escapeBad escapeEnd = iota
	escapeOpen
	escapeDone
)

// escapeSoFar looks at what follows a backslash, without \b, \B, \k and digits
// outside of a class. Half a surrogate pair is whole.
func escapeSoFar(text string, inClass bool) escapeEnd {
	more := func(n int) escapeEnd { // n characters are it
		if utf8.RuneCountInString(text) < n {
			return escapeOpen
		}
		return escapeDone
	}
	hex := func(digits string) bool { return strings.Trim(digits, "0123456789abcdefABCDEF") == "" }
	rest := text[1:]
	switch text[0] {
	case 'd', 'D', 'w', 'W', 's', 'S', 't', 'n', 'v', 'f', 'r':
		return more(1)
	case 'p', 'P':
		switch {
		case rest == "":
			return escapeOpen
		case rest[0] != '{' || len(rest) > maxProperty || strings.Trim(rest[1:], propertyChars) != "" && !strings.HasSuffix(rest, "}"):
			return escapeBad
		case !strings.HasSuffix(rest, "}"):
			return escapeOpen
		}
		name, value, pair := strings.Cut(rest[1:len(rest)-1], "=")
		if _, ok := propertySet(name, value); !ok || pair && value == "" {
			return escapeBad
		}
		return escapeDone
	case 'c':
		if rest != "" && (rest[0]|0x20 < 'a' || rest[0]|0x20 > 'z') {
			return escapeBad
		}
		return more(2)
	case 'x':
		if !hex(rest) {
			return escapeBad
		}
		return more(3)
	case 'u':
		if digits, braced := strings.CutPrefix(rest, "{"); braced {
			digits, done := strings.CutSuffix(digits, "}")
			switch {
			case !hex(digits) || done && digits == "" || hexValue(digits) > utf8.MaxRune:
				return escapeBad
			case done:
				return escapeDone
			}
			return escapeOpen
		}
		if !hex(rest) {
			return escapeBad
		}
		return more(5)
	}
	r, _ := utf8.DecodeRuneInString(text)
	if strings.ContainsRune(`^$\.*+?()[]{}|/`, r) || inClass && r == '-' {
		return more(1)
	}
	return escapeBad
}

const propertyChars = "=ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz0123456789"

// maxProperty is how long \p{…} may be, in bytes; the names that are known are
// far shorter, so that a run may follow most of them.
const maxProperty = 3 * maxRun

// hexValue is the number of some hex digits, or one beyond Unicode.
func hexValue(digits string) rune {
	n := rune(0)
	for i := range len(digits) {
		n = min(n<<4|rune(hexDigit(digits[i])), utf8.MaxRune+1)
	}
	return n
}

// escapeValue is the character of an escape that is whole.
func escapeValue(text string) rune {
	if r, ok := controlEscape(rune(text[0])); ok {
		return r
	}
	switch text[0] {
	case 'b':
		return '\b'
	case 'c':
		return rune(text[1] & 31)
	case 'x', 'u':
		return hexValue(strings.Trim(text[1:], "{}"))
	}
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

// A member is one of a class.
type member struct {
	kind memberKind
	r    rune
}

type memberKind byte

const (
	noMember memberKind = 0
	aChar    memberKind = 'c'
	aHigh    memberKind = 'h' // half a pair, whose other half may follow
	aZero    memberKind = 'z' // \0, which no digit may follow
	aSet     memberKind = 's' // more than one character
)

// A regexClassState is what is pending in a class: a member that may begin a
// range, its hyphen, the member that ends it, and an escape that isn't whole.
//
//	""  "c97"  "c97-"  "c97-h55357"  "c97\u00"
type regexClassState struct {
	lo     member
	hyphen bool
	hi     member
	escape string // with its backslash
}

func (c regexClassState) String() string {
	part := func(m member) string {
		if m.kind == noMember {
			return ""
		}
		return string(rune(m.kind)) + strconv.Itoa(int(m.r))
	}
	hyphen := ""
	if c.hyphen {
		hyphen = "-"
	}
	return part(c.lo) + hyphen + part(c.hi) + c.escape
}

func readRegexClass(text string) (c regexClassState) {
	if i := strings.IndexByte(text, '\\'); i >= 0 {
		text, c.escape = text[:i], text[i:]
	}
	part := func(text string) member {
		if text == "" {
			return member{}
		}
		n, _ := strconv.Atoi(text[1:])
		return member{memberKind(text[0]), rune(n)}
	}
	lo, hi, hyphen := strings.Cut(text, "-")
	c.lo, c.hyphen, c.hi = part(lo), hyphen, part(hi)
	return c
}

// class reads on in a class, of which the tail says what is pending; ^ is the
// place where a class may be denied.
func (s *regexState) class(r rune) *regexState {
	if s.tail == "^" {
		if s.tail = ""; r == '^' {
			return s
		}
	}
	c := readRegexClass(s.tail)
	ok := true
	switch {
	case c.escape != "":
		ok = c.escaped(r)
	case c.last().kind == aZero && digit(r):
		return nil
	case r == '\\':
		c.escape = `\`
	case !c.settle():
		return nil
	case r == ']':
		return s.to(regexAtom)
	case r == '-' && c.lo.kind != noMember && !c.hyphen:
		c.hyphen = true
	default:
		ok = c.take(member{aChar, r})
	}
	if !ok {
		return nil
	}
	return s.with(regexClass, c.String())
}

// last is the member that was read last; none behind a hyphen.
func (c *regexClassState) last() *member {
	switch {
	case c.hi.kind != noMember:
		return &c.hi
	case c.hyphen:
		return &member{}
	}
	return &c.lo
}

// escaped reads on in an escape; false if there is none such.
func (c *regexClassState) escaped(r rune) bool {
	text := c.escape[1:] + string(r)
	kind := aChar
	switch {
	case text == "b":
	case text == "0":
		kind = aZero
	default:
		switch escapeSoFar(text, true) {
		case escapeBad:
			return false
		case escapeOpen:
			c.escape += string(r)
			return true
		}
	}
	c.escape = ""
	if strings.ContainsRune("dDwWsSpP", rune(text[0])) {
		return c.settle() && c.take(member{kind: aSet})
	}
	m := member{kind, escapeValue(text)}
	if kind == aZero {
		m.r = 0
	}
	if text[0] == 'u' && len(text) == len("uXXXX") && text[1] != '{' {
		if last := c.last(); last.kind == aHigh && lowFirst <= m.r && m.r <= lowLast {
			*last = member{aChar, astral + (last.r-highFirst)<<10 + m.r - lowFirst}
			return last != &c.hi || c.settle()
		}
		if highFirst <= m.r && m.r <= highLast {
			m.kind = aHigh
		}
	}
	return c.settle() && c.take(m)
}

// settle ends a range whose end was pending; false if it is out of order.
func (c *regexClassState) settle() bool {
	if c.hi.kind == noMember {
		return true
	}
	ok := c.lo.kind != aSet && c.hi.kind != aSet && c.lo.r <= c.hi.r
	*c = regexClassState{escape: c.escape}
	return ok
}

// take reads a member; false if it makes a range that is none.
func (c *regexClassState) take(m member) bool {
	if !c.hyphen {
		c.lo = m
		return true
	}
	if c.hi = m; m.kind == aHigh || m.kind == aZero {
		return true
	}
	return c.settle()
}
