package dialect

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A ReadError says where a text leaves the notation that a reader knows.
type ReadError struct {
	Dialect string
	Line    int // from 1; 0 if the text is one expression
	Column  int // bytes, from 1
	Msg     string
}

func (e *ReadError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s, byte %d: %s", e.Dialect, e.Column, e.Msg)
	}
	return fmt.Sprintf("%s, line %d, byte %d: %s", e.Dialect, e.Line, e.Column, e.Msg)
}

// maxDepth bounds how deep groups nest in what is read.
const maxDepth = 512

// A scanner walks one line. Its methods panic with a *ReadError, which the
// readers catch.
type scanner struct {
	dialect string
	line    int
	s       string
	i       int
	depth   int
}

func (r *scanner) fail(format string, a ...any) {
	panic(&ReadError{r.dialect, r.line, r.i + 1, fmt.Sprintf(format, a...)})
}

// caught turns the panic of a scanner into an error.
func caught(err *error) {
	switch e := recover().(type) {
	case nil:
	case *ReadError:
		*err = e
	default:
		panic(e)
	}
}

func (r *scanner) space() {
	for r.i < len(r.s) && r.s[r.i] == ' ' {
		r.i++
	}
}

func (r *scanner) peek() byte {
	if r.i < len(r.s) {
		return r.s[r.i]
	}
	return 0
}

// take tells whether s comes next, and goes behind it.
func (r *scanner) take(s string) bool {
	if strings.HasPrefix(r.s[r.i:], s) {
		r.i += len(s)
		return true
	}
	return false
}

func (r *scanner) need(s string) {
	if !r.take(s) {
		r.fail("%q should be here", s)
	}
}

func (r *scanner) rune() rune {
	c, n := utf8.DecodeRuneInString(r.s[r.i:])
	if n == 0 {
		r.fail("the text ends")
	}
	if c == utf8.RuneError && n == 1 {
		r.fail("not UTF-8")
	}
	r.i += n
	return c
}

func (r *scanner) hex(digits int) rune {
	if r.i+digits > len(r.s) {
		r.fail("%d hexadecimal digits should be here", digits)
	}
	v, err := strconv.ParseUint(r.s[r.i:r.i+digits], 16, 32)
	if err != nil || v > utf8.MaxRune || v >= 0xD800 && v < 0xE000 {
		r.fail("%q is no character", r.s[r.i:r.i+digits])
	}
	r.i += digits
	return rune(v)
}

func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func (r *scanner) name() string {
	from := r.i
	for r.i < len(r.s) && isName(r.s[r.i]) {
		r.i++
	}
	if from == r.i {
		r.fail("a name should be here")
	}
	return r.s[from:r.i]
}

// number reads decimal digits; ok is false if there are none.
func (r *scanner) number() (n int, ok bool) {
	from := r.i
	for r.peek() >= '0' && r.peek() <= '9' {
		r.i++
	}
	if from == r.i {
		return 0, false
	}
	n, err := strconv.Atoi(r.s[from:r.i])
	if err != nil || n > 1<<30 {
		r.fail("%s is too large", r.s[from:r.i])
	}
	return n, true
}

// suffixes reads what may stand behind e: at most one of ? * + {n} {n,} {n,m}.
func (r *scanner) suffixes(e *Expr) *Expr {
	least, most := 1, 1
	switch {
	case r.take("?"):
		least, most = 0, 1
	case r.take("*"):
		least, most = 0, -1
	case r.take("+"):
		least, most = 1, -1
	case r.take("{"):
		var ok bool
		if least, ok = r.number(); !ok {
			r.fail("a number should be here")
		}
		if most = least; r.take(",") {
			if most, ok = r.number(); !ok {
				most = -1
			}
		}
		if most >= 0 && most < least {
			r.fail("{%d,%d} is no range", least, most)
		}
		r.need("}")
	default:
		return e
	}
	if c := r.peek(); c == '?' || c == '*' || c == '+' || c == '{' {
		r.fail("a second repetition of the same")
	}
	if most == 0 {
		return Then()
	}
	return Times(e, least, most)
}

// set reads a class behind its [. char reads one character of it; ok is false
// if it stands for more than itself.
func (r *scanner) set(char func() rune) *Expr {
	negated := r.take("^")
	var pairs []rune
	for !r.take("]") {
		lo := char()
		hi := lo
		if r.peek() == '-' && r.i+1 < len(r.s) && r.s[r.i+1] != ']' {
			r.i++
			hi = char()
		}
		if lo > hi {
			r.fail("the range is empty")
		}
		pairs = append(pairs, lo, hi)
	}
	if negated {
		pairs = outside(pairs)
	}
	if len(pairs) == 0 {
		r.fail("no character is in the class")
	}
	return One(pairs...)
}

// outside is all characters but those of the pairs, surrogates among them: an
// engine's "any other" is by number.
func outside(pairs []rune) []rune {
	out := []rune{0, utf8.MaxRune}
	for i := 0; i < len(pairs); i += 2 {
		var next []rune
		for k := 0; k < len(out); k += 2 {
			lo, hi := out[k], out[k+1]
			if lo < pairs[i] {
				next = append(next, lo, min(hi, pairs[i]-1))
			}
			if hi > pairs[i+1] {
				next = append(next, max(lo, pairs[i+1]+1), hi)
			}
		}
		out = next
	}
	return out
}

func (r *scanner) deeper() func() {
	if r.depth++; r.depth > maxDepth {
		r.fail("groups nested more than %d deep", maxDepth)
	}
	return func() { r.depth-- }
}

// checkRefs makes sure that what a grammar refers to is there, once.
func checkRefs(dialect string, g *Grammar) error {
	names := map[string]bool{}
	for i, r := range g.Rules {
		if names[r.Name] {
			return &ReadError{dialect, i + 1, 1, fmt.Sprintf("rule %s stands twice", r.Name)}
		}
		names[r.Name] = true
	}
	for i, r := range g.Rules {
		var missing string
		var walk func(e *Expr)
		walk = func(e *Expr) {
			if e.Op == Ref && !names[e.Text] {
				missing = e.Text
			}
			for _, s := range e.Subs {
				walk(s)
			}
		}
		if r.Body != nil {
			walk(r.Body)
		}
		if missing != "" {
			return &ReadError{dialect, i + 1, 1, fmt.Sprintf("no rule %s", missing)}
		}
	}
	return nil
}

// ---- the two notations of rules with ::=

// ReadEBNF reads the EBNF of xgrammar 0.2.7 to 0.2.9, a rule a line. A
// lookahead (= …) is read as a hint, which it is for xgrammar.
func ReadEBNF(text string) (*Grammar, error) { return readBNF("EBNF", text) }

// ReadGBNF reads the GBNF of llama.cpp, a rule a line.
func ReadGBNF(text string) (*Grammar, error) { return readBNF("GBNF", text) }

type bnfReader struct{ scanner }

func readBNF(dialect, text string) (g *Grammar, err error) {
	defer caught(&err)
	g = &Grammar{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" {
			continue
		}
		r := bnfReader{scanner{dialect: dialect, line: i + 1, s: line}}
		g.Rules = append(g.Rules, r.rule())
	}
	if len(g.Rules) == 0 {
		return nil, &ReadError{dialect, 1, 1, "no rule"}
	}
	for i, r := range g.Rules {
		if r.Name == "root" {
			g.Rules[0], g.Rules[i] = g.Rules[i], g.Rules[0]
		}
	}
	return g, checkRefs(dialect, g)
}

// ReadRule reads one line of the EBNF of xgrammar.
func ReadRule(line string) (rule Rule, err error) {
	defer caught(&err)
	r := bnfReader{scanner{dialect: "EBNF", line: 1, s: line}}
	return r.rule(), nil
}

func (r *bnfReader) rule() Rule {
	rule := Rule{Name: r.name()}
	if r.dialect == "EBNF" && r.take("[max_chars=") {
		n, ok := r.number()
		if !ok || n == 0 {
			r.fail("max_chars is a positive number here")
		}
		rule.MaxChars = n
		r.need("]")
	}
	r.space()
	r.need("::=")
	rule.Body = r.choice(&rule)
	if r.i < len(r.s) {
		r.fail("nothing should follow")
	}
	return rule
}

func (r *bnfReader) choice(rule *Rule) *Expr {
	defer r.deeper()()
	alts := []*Expr{r.sequence(rule)}
	for r.take("|") {
		alts = append(alts, r.sequence(rule))
	}
	return Or(alts...)
}

func (r *bnfReader) sequence(rule *Rule) *Expr {
	var seq []*Expr
	for {
		r.space()
		switch c := r.peek(); {
		case c == 0 || c == '|' || c == ')':
			return Then(seq...)
		case c == '(' && r.dialect == "EBNF" && r.take("(="):
			rule.Follow = r.choice(rule)
			r.need(")")
			continue
		}
		seq = append(seq, r.suffixes(r.element(rule)))
	}
}

func (r *bnfReader) element(rule *Rule) *Expr {
	switch {
	case r.take(`"`):
		var b strings.Builder
		for !r.take(`"`) {
			b.WriteRune(r.char())
		}
		return Text(b.String())
	case r.take("["):
		return r.set(r.char)
	case r.take("("):
		e := r.choice(rule)
		r.need(")")
		return e
	}
	return Use(r.name())
}

// char reads one character of a literal or class.
func (r *bnfReader) char() rune {
	c := r.rune()
	if c != '\\' {
		return c
	}
	switch c = r.rune(); c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'u':
		return r.hex(4)
	case 'U':
		return r.hex(8)
	case 'x':
		if r.dialect == "GBNF" { // xgrammar takes any number of digits
			return r.hex(2)
		}
	case '"', '\\', '[', ']':
		return c
	}
	r.fail("no escape \\%c", c)
	return 0
}

// ---- Lark

// ReadLark reads the Lark of llguidance 1.9, a rule a line: what a lexeme is
// made of, not how the lexer cuts. A rule with options, and a terminal made
// with & and ~, is kept by its name only.
func ReadLark(text string) (g *Grammar, err error) {
	defer caught(&err)
	g = &Grammar{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" {
			continue
		}
		r := larkReader{scanner{dialect: "Lark", line: i + 1, s: line}}
		rule := Rule{Name: r.name()}
		opaque := r.peek() == '[' || rule.Name == strings.ToUpper(rule.Name)
		if r.take("[lazy]"); !r.take(":") {
			r.fail("a colon should be here")
		}
		if !opaque {
			rule.Body = r.choice()
			if r.i < len(r.s) {
				r.fail("nothing should follow")
			}
		}
		g.Rules = append(g.Rules, rule)
	}
	if len(g.Rules) == 0 {
		return nil, &ReadError{"Lark", 1, 1, "no rule"}
	}
	return g, checkRefs("Lark", g)
}

// alternatives reads sequences with | between them.
func (r *scanner) alternatives(sequence func() *Expr) *Expr {
	defer r.deeper()()
	alts := []*Expr{sequence()}
	for r.take("|") {
		alts = append(alts, sequence())
	}
	return Or(alts...)
}

type larkReader struct{ scanner }

func (r *larkReader) choice() *Expr { return r.alternatives(r.sequence) }

func (r *larkReader) sequence() *Expr {
	var seq []*Expr
	for {
		r.space()
		if c := r.peek(); c == 0 || c == '|' || c == ')' {
			return Then(seq...)
		}
		seq = append(seq, r.suffixes(r.element()))
	}
}

func (r *larkReader) element() *Expr {
	switch {
	case r.take(`"`):
		var b strings.Builder
		for !r.take(`"`) {
			c := r.rune()
			if c == '\\' {
				switch c = r.rune(); c {
				case 'n':
					c = '\n'
				case 't':
					c = '\t'
				case 'u':
					c = r.hex(4)
				case '"', '\\':
				default:
					r.fail("no escape \\%c", c)
				}
			}
			b.WriteRune(c)
		}
		return Text(b.String())
	case r.take("/"):
		end := r.i
		for end < len(r.s) && r.s[end] != '/' {
			if r.s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(r.s) {
			r.fail("no second slash")
		}
		re := regexReader{scanner{dialect: "Lark", line: r.line, s: r.s[:end], i: r.i}}
		e := re.choice()
		if re.i < end {
			re.fail("nothing should follow in the regular expression")
		}
		r.i = end + 1
		return Lexeme(e)
	case r.take("<"): // an added token, which stands for its name
		end := strings.IndexByte(r.s[r.i:], '>')
		if end < 0 {
			r.fail("no >")
		}
		e := Text(r.s[r.i-1 : r.i+end+1])
		r.i += end + 1
		return e
	case r.take("("):
		e := r.choice()
		r.need(")")
		return e
	}
	return Use(r.name())
}

// ---- regular expressions

// ReadRegex reads a regular expression for a whole text, in the syntax that
// Rust's regex crate and xgrammar 0.2 share.
func ReadRegex(text string) (g *Grammar, err error) {
	defer caught(&err)
	r := regexReader{scanner{dialect: "regex", s: text}}
	e := r.choice()
	if r.i < len(r.s) {
		r.fail("nothing should follow")
	}
	return &Grammar{Rules: []Rule{{Name: "root", Body: e}}}, nil
}

type regexReader struct{ scanner }

func (r *regexReader) choice() *Expr { return r.alternatives(r.sequence) }

func (r *regexReader) sequence() *Expr {
	var seq []*Expr
	for {
		if c := r.peek(); c == 0 || c == '|' || c == ')' {
			return Then(seq...)
		}
		seq = append(seq, r.suffixes(r.element()))
	}
}

func (r *regexReader) element() *Expr {
	switch {
	case r.take("(?:"):
		e := r.choice()
		r.need(")")
		return e
	case r.take("["):
		return r.set(r.char)
	}
	if c := r.peek(); strings.IndexByte(`.^$(*+?{`, c) >= 0 {
		r.fail("%q is not read here", c)
	}
	return Text(string(r.char()))
}

func (r *regexReader) char() rune {
	c := r.rune()
	if c != '\\' {
		return c
	}
	switch c = r.rune(); c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'x':
		return r.hex(2)
	case 'u':
		if !r.take("{") {
			return r.hex(4)
		}
		end := strings.IndexByte(r.s[r.i:], '}')
		if end < 0 {
			r.fail("no }")
		}
		v := r.hex(end)
		r.need("}")
		return v
	}
	if c < 0x80 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') {
		r.fail("no escape \\%c", c)
	}
	return c
}
