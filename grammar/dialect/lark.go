package dialect

import (
	"fmt"
	"strings"
)

// Lark writes g for llguidance. A token of JSON is one lexeme, because the
// engine's lexer takes the longest match and never goes back: cut so, no two
// lexemes that may come next can be told apart only by what follows. Lengths
// stand in the regular expression of the lexeme, which the engine turns into
// an automaton as it needs it; a million cost what ten cost. The names of all
// rules begin with prefix.
func Lark(g *Grammar, prefix string) string {
	var b strings.Builder
	for _, r := range g.Rules {
		b.WriteString(prefix)
		b.WriteString(r.Name)
		b.WriteString(": ")
		lark(&b, g, prefix, r.Body, 0)
		b.WriteByte('\n')
	}
	return b.String()
}

// Marker is a text that may also be the added token of that name, which
// llguidance takes for no text: it allows the token where it allows the text,
// and then refuses it.
func Marker(s string) *Expr { return &Expr{Op: marker, Text: s} }

func lark(b *strings.Builder, g *Grammar, prefix string, e *Expr, within int) {
	group := func(when int, body func()) {
		if within >= when {
			b.WriteByte('(')
			body()
			b.WriteByte(')')
			return
		}
		body()
	}
	switch e.Op {
	case Lit:
		larkString(b, e.Text)
	case marker:
		b.WriteByte('(')
		larkString(b, e.Text)
		fmt.Fprintf(b, " | <%s>)", strings.Trim(e.Text, "<>"))
	case Ref:
		b.WriteString(prefix)
		b.WriteString(e.Text)
	case Class, Token, Chars:
		r := regex{g: g, lark: true}
		r.print(e, 0)
		b.WriteByte('/')
		b.WriteString(r.b.String())
		b.WriteByte('/')
	case Seq:
		if len(e.Subs) == 0 {
			b.WriteString(`""`)
			return
		}
		group(2, func() {
			for i, s := range e.Subs {
				if i > 0 {
					b.WriteByte(' ')
				}
				lark(b, g, prefix, s, 1)
			}
		})
	case Alt:
		group(1, func() {
			for i, s := range e.Subs {
				if i > 0 {
					b.WriteString(" | ")
				}
				lark(b, g, prefix, s, 0)
			}
		})
	case Repeat:
		group(2, func() {
			lark(b, g, prefix, e.Subs[0], 2)
			b.WriteString(suffix(e.Min, e.Max))
		})
	}
}

// larkString writes a literal with the escapes of JSON.
func larkString(b *strings.Builder, s string) {
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
		case r < ' ' || r == 0x7F:
			fmt.Fprintf(b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
