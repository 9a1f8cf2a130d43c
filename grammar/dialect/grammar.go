// Package dialect writes and reads the notations in which constraint engines
// take a grammar: the EBNF of xgrammar, the GBNF of llama.cpp, the Lark of
// llguidance, and regular expressions.
//
// A Grammar is what they have in common. A writer lowers it to what its engine
// does well: a bounded string is a counter of xgrammar's, halves of halves in
// GBNF, one lexeme in Lark. A reader takes a text back to a Grammar by the
// rules of the engine version that it names, knowing nothing of the writer, so
// that what was written can be compared with what was meant.
//
// Readers take the notation that the writers use and refuse all else by name;
// they are no parsers for grammars of the wild.
package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// A Grammar is rules, the first of which is where a text starts.
type Grammar struct{ Rules []Rule }

// A Rule names an expression.
type Rule struct {
	Name string
	Body *Expr
	// MaxChars ends the rule once it holds that many characters, at the next
	// place where its body may end; 0 for no limit.
	MaxChars int
	// Follow, if not nil, is what always stands behind the rule: a hint to the
	// engine, which changes nothing.
	Follow *Expr
}

// An Expr is a set of texts.
type Expr struct {
	Op   Op
	Text string // Lit: the text; Ref: the name of the rule
	// Set are pairs of characters from-to, of Class and Chars.
	Set []rune
	// Escapes are, of Chars, the letters that may stand behind a backslash;
	// AnyEscape for all that JSON knows.
	Escapes  string
	Subs     []*Expr
	Min, Max int // Repeat and Chars; Max is -1 for no limit
}

// Op says what an Expr is.
type Op byte

// The operators of an Expr.
const (
	Lit    Op = iota // the text itself
	Class            // one character of Set
	Seq              // Subs one after the other; none: the empty text
	Alt              // one of Subs
	Repeat           // Subs[0], Min to Max times
	Ref              // what the rule derives
	Chars            // Min to Max characters of a JSON string, each raw from Set or an escape
	Token            // Subs[0] without Refs: one token of JSON, which a lexer reads in one piece

	marker   // Text, or the added token of that name
	verbatim // a regular expression in Text
)

// AnyEscape is the Escapes of a character that may be spelled by any escape of
// JSON but for halves of surrogate pairs.
const AnyEscape = "*"

// RawChars are the characters that a JSON string may hold unescaped,
// surrogates apart.
var RawChars = []rune{' ', '!', '#', '[', ']', 0xD7FF, 0xE000, 0x10FFFF}

// Text is a literal.
func Text(s string) *Expr { return &Expr{Op: Lit, Text: s} }

// Use is a reference to a rule.
func Use(rule string) *Expr { return &Expr{Op: Ref, Text: rule} }

// One is one character out of pairs from-to.
func One(pairs ...rune) *Expr { return &Expr{Op: Class, Set: pairs} }

// Lexeme is e as one token of JSON.
func Lexeme(e *Expr) *Expr { return &Expr{Op: Token, Subs: []*Expr{e}} }

// Then is its arguments one after the other.
func Then(es ...*Expr) *Expr {
	var subs []*Expr
	for _, e := range es {
		switch {
		case e.Op == Seq:
			subs = append(subs, e.Subs...)
		default:
			subs = append(subs, e)
		}
	}
	if len(subs) == 1 {
		return subs[0]
	}
	return &Expr{Op: Seq, Subs: subs}
}

// Or is one of its arguments.
func Or(es ...*Expr) *Expr {
	var subs []*Expr
	for _, e := range es {
		if e.Op == Alt {
			subs = append(subs, e.Subs...)
		} else {
			subs = append(subs, e)
		}
	}
	if len(subs) == 1 {
		return subs[0]
	}
	return &Expr{Op: Alt, Subs: subs}
}

// Times is e from least to most times; most is -1 for no limit.
func Times(e *Expr, least, most int) *Expr {
	switch {
	case least == 1 && most == 1:
		return e
	case most == 0:
		return Then()
	}
	return &Expr{Op: Repeat, Subs: []*Expr{e}, Min: least, Max: most}
}

// Maybe is e or nothing.
func Maybe(e *Expr) *Expr { return Times(e, 0, 1) }

// String is a printed form without loss: equal texts, equal expressions.
func (e *Expr) String() string {
	var b strings.Builder
	e.print(&b)
	return b.String()
}

func (e *Expr) print(b *strings.Builder) {
	list := func(sep string) {
		b.WriteByte('(')
		for i, s := range e.Subs {
			if i > 0 {
				b.WriteString(sep)
			}
			s.print(b)
		}
		b.WriteByte(')')
	}
	times := func() { fmt.Fprintf(b, "{%d,%d}", e.Min, e.Max) }
	switch e.Op {
	case Lit:
		b.WriteString(strconv.Quote(e.Text))
	case Ref:
		b.WriteString(e.Text)
	case Class, Chars:
		b.WriteByte('[')
		for i := 0; i < len(e.Set); i += 2 {
			fmt.Fprintf(b, "%x-%x ", e.Set[i], e.Set[i+1])
		}
		b.WriteByte(']')
		if e.Op == Chars {
			fmt.Fprintf(b, "\\%q", e.Escapes)
			times()
		}
	case Seq:
		list(" ")
	case Alt:
		list(" | ")
	case Repeat:
		list("")
		times()
	case Token:
		b.WriteByte('`')
		e.Subs[0].print(b)
		b.WriteByte('`')
	}
}

// String prints the rules, one a line.
func (g *Grammar) String() string {
	var b strings.Builder
	for _, r := range g.Rules {
		b.WriteString(r.Name)
		if r.MaxChars > 0 {
			fmt.Fprintf(&b, "[%d]", r.MaxChars)
		}
		b.WriteString(" = ")
		r.Body.print(&b)
		b.WriteByte('\n')
	}
	return b.String()
}

// Rule finds a rule by name; nil if there is none.
func (g *Grammar) Rule(name string) *Rule {
	for i := range g.Rules {
		if g.Rules[i].Name == name {
			return &g.Rules[i]
		}
	}
	return nil
}

// Rename gives rules the names that the map has for theirs.
func (g *Grammar) Rename(names map[string]string) {
	var in func(e *Expr)
	in = func(e *Expr) {
		if n, ok := names[e.Text]; ok && e.Op == Ref {
			e.Text = n
		}
		for _, s := range e.Subs {
			in(s)
		}
	}
	for i := range g.Rules {
		r := &g.Rules[i]
		if n, ok := names[r.Name]; ok {
			r.Name = n
		}
		in(r.Body)
		if r.Follow != nil {
			in(r.Follow)
		}
	}
}

// anyEscape is what may stand behind a backslash in JSON, without halves of
// surrogate pairs.
func anyEscape() *Expr {
	hex := func() *Expr { return One('0', '9', 'A', 'F', 'a', 'f') }
	return Or(One('"', '"', '\\', '\\', '/', '/', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't'),
		Then(Text("u"), Or(Then(One('0', '9', 'A', 'C', 'E', 'F', 'a', 'c', 'e', 'f'), hex()), Then(One('D', 'D', 'd', 'd'), One('0', '7'))), hex(), hex()))
}

// spelled is one character of a Chars.
func spelled(c *Expr) *Expr {
	var alts []*Expr
	if len(c.Set) > 0 {
		alts = append(alts, One(c.Set...))
	}
	switch c.Escapes {
	case "":
	case AnyEscape:
		alts = append(alts, Then(Text(`\`), anyEscape()))
	default:
		var set []rune
		for _, r := range c.Escapes {
			set = append(set, r, r)
		}
		alts = append(alts, Then(Text(`\`), One(set...)))
	}
	return Or(alts...)
}

// A lowering rewrites a grammar for one engine, adding rules as it goes. Equal
// bodies share a rule.
type lowering struct {
	rules  []Rule
	byBody map[string]string
	taken  map[string]bool
	next   map[string]int // by hint: the first number not tried yet
}

func newLowering(g *Grammar) *lowering {
	w := &lowering{byBody: map[string]string{}, taken: map[string]bool{}, next: map[string]int{}}
	for _, r := range g.Rules {
		w.taken[r.Name] = true
	}
	return w
}

// rule makes a rule whose body may speak of the rule itself: the name is what
// body gets.
func (w *lowering) rule(hint string, body func(me string) Rule) *Expr {
	r := body("@")
	key := hint + strconv.Itoa(r.MaxChars) + r.Body.String()
	if r.Follow != nil {
		key += "=" + r.Follow.String()
	}
	name, ok := w.byBody[key]
	if !ok {
		for name == "" || w.taken[name] {
			name = hint
			if i := w.next[hint]; i > 0 {
				name += strconv.Itoa(i)
			}
			w.next[hint]++
		}
		w.taken[name] = true
		w.byBody[key] = name
		r = body(name)
		r.Name = name
		w.rules = append(w.rules, r)
	}
	return Use(name)
}

func quoteFollows(es []*Expr) bool {
	return len(es) > 0 && es[0].Op == Lit && strings.HasPrefix(es[0].Text, `"`)
}

// joined is a sequence in which neighbouring literals are one.
func joined(es []*Expr) []*Expr {
	var out []*Expr
	for _, e := range es {
		if n := len(out); n > 0 && e.Op == Lit && out[n-1].Op == Lit {
			out[n-1] = Text(out[n-1].Text + e.Text)
			continue
		}
		if e.Op == Lit && e.Text == "" {
			continue
		}
		out = append(out, e)
	}
	return out
}
