package dialect

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTooLarge says that a regular expression would be longer than maxRegex:
// rules that are used twice stand in it twice.
var ErrTooLarge = errors.New("the regular expression would be longer than 256 KiB")

const maxRegex = 256 << 10 // bytes

// A RecursiveError says that no regular expression has the texts of a grammar,
// because the rule is part of itself.
type RecursiveError struct{ Rule string }

func (e *RecursiveError) Error() string {
	return "a value of " + e.Rule + " holds values of the same kind, which no regular expression can say"
}

// Regex writes g as one regular expression for whole texts, in the syntax that
// Rust's regex crate (llguidance, outlines) and xgrammar share: no anchors, no
// captures, classes without names. The error is a *RecursiveError or
// ErrTooLarge.
func Regex(g *Grammar) (string, error) {
	r := regex{g: g, inside: map[string]bool{}}
	r.print(g.Rules[0].Body, 0)
	return r.b.String(), r.err
}

type regex struct {
	g      *Grammar
	b      strings.Builder
	inside map[string]bool
	lark   bool // stands between slashes
	err    error
}

// print writes e; within 1 in a sequence, 2 before a repeat.
func (r *regex) print(e *Expr, within int) {
	if r.b.Len() > maxRegex && r.err == nil {
		r.err = ErrTooLarge
	}
	if r.err != nil {
		return
	}
	group := func(when int, body func()) {
		if within >= when {
			r.b.WriteString("(?:")
			body()
			r.b.WriteByte(')')
			return
		}
		body()
	}
	switch e.Op {
	case Lit:
		many := len([]rune(e.Text)) != 1
		group(map[bool]int{true: 2, false: 3}[many], func() {
			for _, c := range e.Text {
				r.literal(c)
			}
		})
	case Class:
		r.class(e.Set)
	case Token:
		r.print(e.Subs[0], within)
	case Ref:
		if r.inside[e.Text] {
			r.err = &RecursiveError{e.Text}
			return
		}
		r.inside[e.Text] = true
		r.print(r.g.Rule(e.Text).Body, within)
		delete(r.inside, e.Text)
	case Seq:
		group(2, func() {
			for _, s := range e.Subs {
				r.print(s, 1)
			}
		})
	case Alt:
		group(1, func() {
			for i, s := range e.Subs {
				if i > 0 {
					r.b.WriteByte('|')
				}
				r.print(s, 0)
			}
		})
	case Repeat:
		group(2, func() {
			r.print(e.Subs[0], 2)
			r.b.WriteString(suffix(e.Min, e.Max))
		})
	case verbatim:
		group(1, func() { r.b.WriteString(e.Text) })
	case Chars:
		r.print(Times(spelled(e), e.Min, e.Max), within)
	}
}

// Quote is the regular expression of a text, as it can stand in Lark too.
func Quote(s string) string {
	r := regex{lark: true}
	for _, c := range s {
		r.literal(c)
	}
	return r.b.String()
}

// Verbatim is a regular expression as it is.
func Verbatim(re string) *Expr { return &Expr{Op: verbatim, Text: re} }

func (r *regex) literal(c rune) {
	switch {
	case strings.ContainsRune(`\.+*?()|[]{}^$`, c), c == '/' && r.lark:
		r.b.WriteByte('\\')
		r.b.WriteRune(c)
	case c == '\n':
		r.b.WriteString(`\n`)
	case c == '\t':
		r.b.WriteString(`\t`)
	case c < ' ' || c == 0x7F:
		fmt.Fprintf(&r.b, `\x%02X`, c)
	default:
		r.b.WriteRune(c)
	}
}

func (r *regex) class(set []rune) {
	r.b.WriteByte('[')
	for i := 0; i < len(set); i += 2 {
		r.bound(set[i])
		if set[i+1] > set[i] {
			r.b.WriteByte('-')
			r.bound(set[i+1])
		}
	}
	r.b.WriteByte(']')
}

// bound writes a character of a class.
func (r *regex) bound(c rune) {
	switch {
	case c == '\n':
		r.b.WriteString(`\n`)
	case c == '\t':
		r.b.WriteString(`\t`)
	case c == '[' || c == ']' || c == '\\' || c == '^' || c == '-':
		r.b.WriteByte('\\')
		r.b.WriteRune(c)
	case c == '&' || c == '~' || c == '/' || c < ' ' || c == 0x7F: // && and ~~ are set operators of Rust's
		fmt.Fprintf(&r.b, `\x%02X`, c)
	case c < 0x7F:
		r.b.WriteRune(c)
	case c < 0x10000:
		fmt.Fprintf(&r.b, `\u%04X`, c)
	default:
		fmt.Fprintf(&r.b, `\u{%X}`, c)
	}
}
