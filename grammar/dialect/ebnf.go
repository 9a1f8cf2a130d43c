package dialect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GBNF writes g for llama.cpp. Its parser copies what is repeated, so a
// repetition over maxCopies is halves of halves: 20 rules count to a million,
// and no text is derived twice. The names of all rules begin with prefix.
func GBNF(g *Grammar, prefix string) string {
	x := llama{newLowering(g)}
	var b strings.Builder
	for _, r := range lowered(g, x.lowering, x.expr).Rules {
		bnfRule(&b, &r, r.Name, func(name string) string { return prefix + name })
	}
	return b.String()
}

func lowered(g *Grammar, w *lowering, expr func(*Expr) *Expr) *Grammar {
	out := &Grammar{}
	for _, r := range g.Rules {
		r.Body = expr(r.Body)
		out.Rules = append(out.Rules, r)
	}
	out.Rules = append(out.Rules, w.rules...)
	return out
}

// each rewrites the parts of e that are neither a Seq nor Chars.
func each(e *Expr, expr func(*Expr) *Expr) *Expr {
	if e.Op == Token {
		return expr(e.Subs[0])
	}
	if len(e.Subs) == 0 {
		return e
	}
	out := *e
	out.Subs = make([]*Expr, len(e.Subs))
	for i, s := range e.Subs {
		out.Subs[i] = expr(s)
	}
	return &out
}

// flat are the parts of a sequence without Tokens around them.
func flat(e *Expr) []*Expr {
	switch e.Op {
	case Token:
		return flat(e.Subs[0])
	case Seq:
		var out []*Expr
		for _, s := range e.Subs {
			out = append(out, flat(s)...)
		}
		return out
	}
	return []*Expr{e}
}

type xgrammar struct{ *lowering }

func (w xgrammar) expr(e *Expr) *Expr {
	switch e.Op {
	case Seq, Token, Chars:
		return w.seq(joined(flat(e)))
	}
	return each(e, w.expr)
}

func (w xgrammar) seq(es []*Expr) *Expr {
	var out []*Expr
	for i := 0; i < len(es); i++ {
		e := es[i]
		if e.Op != Chars {
			out = append(out, w.expr(e))
			continue
		}
		closed := quoteFollows(es[i+1:])
		if !broad(e.Set) {
			out = append(out, w.few(e, closed))
			continue
		}
		least := e.Min
		if least > maxChain {
			// Masks of 40 ms a token, but no rule for every character.
			char := w.rule("char", func(string) Rule { return Rule{Body: spelled(e)} })
			out = append(out, Times(char, least-1, least-1))
			least = 1
		}
		switch {
		case e.Max == e.Min:
			out = append(out, w.exactly(e, least))
		case e.Max >= 0:
			most := min(e.Max-e.Min+least, 1<<30)
			out = append(out, w.rule("max", func(string) Rule { return Rule{Body: w.open(e, least, closed), MaxChars: most} }))
		case closed:
			out = append(out, w.tail(e, least))
			if es[i+1] = Text(es[i+1].Text[1:]); es[i+1].Text == "" {
				i++
			}
		default:
			out = append(out, w.open(e, least, false))
		}
	}
	return w.branched(out)
}

// branched is a sequence without optional characters and without repetitions
// that something follows. xgrammar would make a rule of each, and to it a rule
// costs more than the states that alternatives add, which it merges.
func (w xgrammar) branched(es []*Expr) *Expr {
	for i, e := range es {
		if e.Op != Repeat || e.Min != 0 || e.Max > 1 || (e.Max == 1) != (e.Subs[0].Op == Class) {
			continue
		}
		if e.Max < 0 && i == len(es)-1 {
			break
		}
		rest := w.branched(es[i+1:])
		if e.Max < 0 {
			round := e.Subs[0]
			out := append(slices.Clip(es[:i]), w.rule("loop", func(me string) Rule { return Rule{Body: Or(Then(round, Use(me)), rest)} }))
			return Then(out...)
		}
		if i == 0 && words(rest) {
			return Or(append(slices.Clip(rest.Subs), prefixed(e.Subs[0], rest.Subs)...)...)
		}
		if len(rest.Subs) > maxParts || rest.Op == Alt {
			body := rest
			rest = w.rule("then", func(string) Rule { return Rule{Body: body} })
		}
		if i > maxParts {
			return Then(append(slices.Clip(es[:i]), w.rule("then", func(string) Rule { return Rule{Body: Or(rest, Then(e.Subs[0], rest))} }))...)
		}
		before := Then(es[:i]...)
		return Or(Then(before, rest), Then(before, e.Subs[0], rest))
	}
	return Then(es...)
}

// maxWords bounds the bytes of words that stand twice instead of in a rule. The
// engine puts a rule of words into the alternative that begins with it and
// keeps it for the other; of alternatives in one rule it merges what is equal.
const maxWords = 1 << 10

// words tells whether e is a choice of so few words.
func words(e *Expr) bool {
	n := 0
	for _, s := range e.Subs {
		if s.Op != Lit {
			return false
		}
		n += len(s.Text)
	}
	return e.Op == Alt && n <= maxWords
}

func prefixed(first *Expr, alts []*Expr) []*Expr {
	var out []*Expr
	for _, a := range alts {
		out = append(out, Then(first, a))
	}
	return out
}

// maxParts is how long a sequence is that stands twice instead of in a rule.
const maxParts = 4

// maxChain is how many characters that must be there get a rule each, of 25 ms.
const maxChain = 8

// broad tells whether a set has most characters: a place where one of it may
// come takes xgrammar 25 ms to compile, and 100 ms if it stands in a rule among
// other things. So each such place is a rule of its own that all strings share.
func broad(set []rune) bool {
	n := 0
	for i := 0; i < len(set); i += 2 {
		n += int(set[i+1]-set[i]) + 1
	}
	return n > 1000
}

// few is characters of a small set.
func (w xgrammar) few(e *Expr, closed bool) *Expr {
	one := spelled(e)
	if e.Max >= 0 && e.Max-e.Min <= 8 {
		return Times(one, e.Min, e.Max)
	}
	rest := Times(one, 0, -1)
	if one.Op != Class {
		rest = w.open(e, 0, closed)
	}
	if e.Max >= 0 {
		body := rest
		rest = w.rule("max", func(string) Rule { return Rule{Body: body, MaxChars: min(e.Max-e.Min, 1<<30)} })
	}
	return Then(Times(one, e.Min, e.Min), rest)
}

// steps are the ways to read one character and go on with a rule.
func steps(e, next *Expr) []*Expr {
	one := spelled(e)
	if one.Op != Alt {
		return []*Expr{Then(one, next)}
	}
	var out []*Expr
	for _, s := range one.Subs {
		out = append(out, Then(s, next))
	}
	return out
}

// open is least characters and any number more, by right recursion, because a
// loop over what has several bytes is slow.
func (w xgrammar) open(e *Expr, least int, closed bool) *Expr {
	if least > 0 {
		next := w.open(e, least-1, closed)
		return w.rule("loop", func(string) Rule { return Rule{Body: Or(steps(e, next)...)} })
	}
	return w.rule("loop", func(me string) Rule {
		r := Rule{Body: Or(append([]*Expr{Text("")}, steps(e, Use(me))...)...)}
		if closed {
			r.Follow = Text(`"`)
		}
		return r
	})
}

// tail is the same with the closing quote. It has no Follow: a wider one than
// what really follows makes xgrammar allow tokens which it then refuses, and
// that fails the request.
func (w xgrammar) tail(e *Expr, least int) *Expr {
	if least > 0 {
		next := w.tail(e, least-1)
		return w.rule("str", func(string) Rule { return Rule{Body: Or(steps(e, next)...)} })
	}
	return w.rule("str", func(me string) Rule {
		return Rule{Body: Or(append([]*Expr{Text(`"`)}, steps(e, Use(me))...)...)}
	})
}

// exactly is n characters.
func (w xgrammar) exactly(e *Expr, n int) *Expr {
	if n <= 1 {
		return Times(spelled(e), n, n)
	}
	next := w.exactly(e, n-1)
	return w.rule("chars", func(string) Rule { return Rule{Body: Or(steps(e, next)...)} })
}

// maxCopies is what GBNF repeats by copies.
const maxCopies = 16

type llama struct{ *lowering }

func (w llama) expr(e *Expr) *Expr {
	switch e.Op {
	case Seq:
		out := joined(flat(e))
		for i, s := range out {
			out[i] = w.expr(s)
		}
		return Then(out...)
	case Chars:
		one := spelled(e)
		if one.Op == Alt && e.Escapes == AnyEscape {
			one = w.rule("one", func(string) Rule { return Rule{Body: spelled(e)} })
		}
		return w.times(one, e.Min, e.Max)
	case Repeat:
		return w.times(w.expr(e.Subs[0]), e.Min, e.Max)
	}
	return each(e, w.expr)
}

func (w llama) times(e *Expr, least, most int) *Expr {
	if max(least, most) <= maxCopies {
		return Times(e, least, most)
	}
	if e.Op != Ref && e.Op != Class {
		body := e
		e = w.rule("one", func(string) Rule { return Rule{Body: body} })
	}
	out := []*Expr{w.exactly(e, least)}
	switch {
	case most < 0:
		out = append(out, Times(e, 0, -1))
	case most > least:
		out = append(out, w.upTo(e, most-least))
	}
	return Then(out...)
}

// exactly is n times e, from its binary digits.
func (w llama) exactly(e *Expr, n int) *Expr {
	if n <= maxCopies {
		return Times(e, n, n)
	}
	var out []*Expr
	for k := 0; n>>k > 0; k++ {
		if n>>k&1 == 1 {
			out = append(out, w.power(e, k))
		}
	}
	return Then(out...)
}

// power is 2^k times e.
func (w llama) power(e *Expr, k int) *Expr {
	if 1<<k <= maxCopies {
		return Times(e, 1<<k, 1<<k)
	}
	half := w.power(e, k-1)
	return w.rule("pow", func(string) Rule { return Rule{Body: Then(half, half)} })
}

// upTo is at most n times e: with 2^k the greatest power in n, either 2^k and
// at most the rest, or less than 2^k.
func (w llama) upTo(e *Expr, n int) *Expr {
	if n <= maxCopies {
		return Times(e, 0, n)
	}
	k := 0
	for 2<<k <= n {
		k++
	}
	big := Then(w.power(e, k), w.upTo(e, n-1<<k))
	small := w.upTo(e, 1<<k-1)
	return w.rule("most", func(string) Rule { return Rule{Body: Or(big, small)} })
}

// ---- printing

// bnfRule prints a line. called says what rules are called there.
func bnfRule(b *strings.Builder, r *Rule, name string, called func(string) string) {
	b.WriteString(called(name))
	if r.MaxChars > 0 {
		fmt.Fprintf(b, "[max_chars=%d]", r.MaxChars)
	}
	b.WriteString(" ::= ")
	if r.Follow == nil {
		bnf(b, called, r.Body, 0)
	} else {
		b.WriteString("( ")
		bnf(b, called, r.Body, 0)
		b.WriteString(" ) (= ")
		bnf(b, called, r.Follow, 0)
		b.WriteByte(')')
	}
	b.WriteByte('\n')
}

// bnf prints e; within 1 in a sequence, 2 before a repeat.
func bnf(b *strings.Builder, called func(string) string, e *Expr, within int) {
	group := func(when int, body func()) {
		if within >= when {
			b.WriteString("( ")
			body()
			b.WriteString(" )")
			return
		}
		body()
	}
	switch e.Op {
	case Lit:
		quoted(b, e.Text)
	case Ref:
		b.WriteString(called(e.Text))
	case Class:
		class(b, e.Set)
	case Seq:
		if len(e.Subs) == 0 {
			b.WriteString(`""`)
			return
		}
		group(2, func() {
			for i, s := range joined(e.Subs) {
				if i > 0 {
					b.WriteByte(' ')
				}
				bnf(b, called, s, 1)
			}
		})
	case Alt:
		group(1, func() {
			for i, s := range e.Subs {
				if i > 0 {
					b.WriteString(" | ")
				}
				bnf(b, called, s, 0)
			}
		})
	case Repeat:
		group(2, func() {
			bnf(b, called, e.Subs[0], 2)
			b.WriteString(suffix(e.Min, e.Max))
		})
	default:
		panic("dialect: an expression is printed before it is lowered")
	}
}

// suffix is how a repetition is written, in all four notations.
func suffix(least, most int) string {
	switch {
	case least == 0 && most < 0:
		return "*"
	case least == 1 && most < 0:
		return "+"
	case least == 0 && most == 1:
		return "?"
	case most < 0:
		return "{" + strconv.Itoa(least) + ",}"
	case least == most:
		return "{" + strconv.Itoa(least) + "}"
	}
	return "{" + strconv.Itoa(least) + "," + strconv.Itoa(most) + "}"
}

func quoted(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		default:
			char(b, r)
		}
	}
	b.WriteByte('"')
}

// char writes what is not printable ASCII by its number.
func char(b *strings.Builder, r rune) {
	switch {
	case r >= ' ' && r < 0x7F:
		b.WriteRune(r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04X`, r)
	default:
		fmt.Fprintf(b, `\U%08X`, r)
	}
}

func class(b *strings.Builder, set []rune) {
	b.WriteByte('[')
	for i := 0; i < len(set); i += 2 {
		classChar(b, set[i])
		if set[i+1] > set[i] {
			b.WriteByte('-')
			classChar(b, set[i+1])
		}
	}
	b.WriteByte(']')
}

func classChar(b *strings.Builder, r rune) {
	switch r {
	case '\n':
		b.WriteString(`\n`)
	case '\t':
		b.WriteString(`\t`)
	case '[', ']', '\\':
		b.WriteByte('\\')
		b.WriteRune(r)
	case '-', '^', '"', '&', '~', '/': // marks of some notation
		fmt.Fprintf(b, `\u%04X`, r)
	default:
		char(b, r)
	}
}
