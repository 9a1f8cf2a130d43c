package grammar

import (
	"errors"
	"regexp/syntax"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Limits of what is written. Numbers: 15 digits are below 2^53, which a client
// in JavaScript reads back as written.
const (
	maxPlaces  = 15
	maxWhole   = 999_999_999_999_999
	maxCounted = 4096      // characters or items counted one by one
	maxGrammar = 512 << 10 // bytes of one tool's grammar
)

var errTooLarge = errors.New("the grammar would be larger than 512 KiB")

// A drafter writes a lang as rules which every dialect can be made of. A
// definition is a rule of its own, also where it stands itself. Equal bodies
// share a rule.
type drafter struct {
	rules  []dialect.Rule
	byBody map[string]string
	named  map[*lang]*def
	size   int // about the bytes of it
}

// draft gives a grammar that begins with l. defs are those that l refers to.
func draft(l *lang, defs []*def) (*dialect.Grammar, error) {
	w := &drafter{byBody: map[string]string{}, named: map[*lang]*def{}}
	for _, d := range defs {
		w.named[d.lang] = d
	}
	rules := []dialect.Rule{{Name: "root", Body: w.value(l)}}
	for _, d := range defs {
		rules = append(rules, dialect.Rule{Name: d.name, Body: w.inline(d.lang)})
	}
	if w.size > maxGrammar {
		return nil, errTooLarge
	}
	return &dialect.Grammar{Rules: append(rules, w.rules...)}, nil
}

// rule makes a rule of what is written more than once.
func (w *drafter) rule(hint string, body *dialect.Expr) *dialect.Expr {
	key := hint + body.String()
	name, ok := w.byBody[key]
	if !ok {
		name = hint + itoa(len(w.byBody))
		w.byBody[key] = name
		w.rules = append(w.rules, dialect.Rule{Name: name, Body: body})
		w.size += len(name) + 6
	}
	return dialect.Use(name)
}

func (w *drafter) text(s string) *dialect.Expr {
	w.size += len(s) + 4
	return dialect.Text(s)
}

func space() *dialect.Expr {
	return dialect.Maybe(dialect.One(' ', ' ', '\n', '\n', '\t', '\t'))
}

// end is the closing bracket. It is a rule, as is a value with the white space
// before it, so that what is left of an object is a key and a few names: engines
// do work for every rule and for every place where a character may come.
func (w *drafter) end(bracket string) *dialect.Expr {
	return w.rule("end", dialect.Then(space(), dialect.Text(bracket)))
}

// spaced is white space and e.
func (w *drafter) spaced(e *dialect.Expr) *dialect.Expr {
	return w.rule("value", dialect.Then(space(), e))
}

// value is an expression for l that can stand in a sequence.
func (w *drafter) value(l *lang) *dialect.Expr {
	if d := w.named[l]; d != nil {
		return dialect.Use(d.name)
	}
	return w.inline(l)
}

func (w *drafter) inline(l *lang) *dialect.Expr {
	if w.size > maxGrammar {
		return dialect.Then()
	}
	w.size += 16
	switch l.kind {
	case anyValue:
		return w.any()
	case literals:
		alts := make([]*dialect.Expr, len(l.lits))
		for i, s := range l.lits {
			alts[i] = w.literal(s)
		}
		return dialect.Or(alts...)
	case boolean:
		return dialect.Or(dialect.Text("true"), dialect.Text("false"))
	case integer, number:
		return w.number(l)
	case text:
		return w.string(l)
	case array:
		return w.array(l)
	case object:
		return w.object(l)
	case choice:
		var alts []*dialect.Expr
		seen := map[string]bool{}
		for _, a := range l.alts {
			e := w.value(a)
			if s := e.String(); !seen[s] {
				seen[s] = true
				alts = append(alts, e)
			}
		}
		return dialect.Or(alts...)
	case reference:
		return dialect.Use(l.def.name)
	}
	panic("grammar: a lang without values is written")
}

// literal writes a JSON text token by token.
func (w *drafter) literal(s string) *dialect.Expr {
	var out []*dialect.Expr
	for i := 0; i < len(s); {
		k := i + 1
		switch s[i] {
		case '"':
			for ; s[k] != '"'; k++ {
				if s[k] == '\\' {
					k++
				}
			}
			k++
		case '{', '}', '[', ']', ',', ':', ' ':
		default:
			for k < len(s) && s[k] != ',' && s[k] != ']' && s[k] != '}' {
				k++
			}
		}
		out = append(out, w.text(s[i:k]))
		i = k
	}
	return dialect.Then(out...)
}

func (w *drafter) any() *dialect.Expr {
	const name = "any"
	if w.byBody[name] == "" {
		w.byBody[name] = name
		at := len(w.rules)
		w.rules = append(w.rules, dialect.Rule{Name: name})
		any := &lang{kind: anyValue}
		body := dialect.Or(w.object(&lang{kind: object, max: -1, rest: any}), w.array(&lang{kind: array, max: -1, item: any}),
			w.string(&lang{kind: text, max: -1}), w.number(&lang{kind: number, places: maxPlaces}), dialect.Text("true"), dialect.Text("false"), dialect.Text("null"))
		w.rules[at].Body = body
	}
	return dialect.Use(name)
}

func (w *drafter) array(l *lang) *dialect.Expr {
	var head []*dialect.Expr
	for i, p := range l.prefix {
		if i > 0 {
			head = append(head, dialect.Text(","))
		}
		head = append(head, w.spaced(w.value(p)))
	}
	least, most := max(0, l.min-len(l.prefix)), minus(l.max, len(l.prefix))
	open := []*dialect.Expr{dialect.Text("[")}
	switch {
	case l.item == nil || most == 0:
		return dialect.Then(append(append(open, head...), w.end("]"))...)
	case len(head) > 0:
		more := dialect.Times(dialect.Then(dialect.Text(","), w.spaced(w.value(l.item))), least, most)
		return dialect.Then(append(append(open, head...), more, w.end("]"))...)
	}
	return w.list("[", "]", w.value(l.item), l.min, l.max)
}

// list is min to max times e between brackets, with commas.
func (w *drafter) list(open, close string, e *dialect.Expr, least, most int) *dialect.Expr {
	e = w.spaced(e)
	list := []*dialect.Expr{e}
	if most != 1 {
		list = append(list, dialect.Times(dialect.Then(dialect.Text(","), e), max(0, least-1), minus(most, 1)))
	}
	end := w.end(close)
	body := dialect.Then(append(list, end)...)
	if least == 0 {
		body = dialect.Or(body, end)
	}
	return dialect.Then(dialect.Text(open), body)
}

func minus(a, b int) int {
	if a < 0 {
		return a
	}
	return a - b
}

func (w *drafter) object(l *lang) *dialect.Expr {
	if len(l.fields) == 0 {
		if l.rest == nil || l.max == 0 {
			return dialect.Then(dialect.Text("{"), w.end("}"))
		}
		key := l.key
		if key == nil {
			key = &lang{kind: text, max: -1}
		}
		return w.list("{", "}", dialect.Then(w.value(key), dialect.Text(":"), w.spaced(w.value(l.rest))), l.min, l.max)
	}
	// Until the first required member each may be the first that is written,
	// or stand behind a comma.
	first := 0
	for first < len(l.fields)-1 && !l.fields[first].required {
		first++
	}
	var alts []*dialect.Expr
	if !l.fields[first].required {
		alts = append(alts, dialect.Text("}"))
	}
	after := w.end("}") // what may follow once a member has been written
	for i := len(l.fields) - 1; i >= 0; i-- {
		f := l.fields[i]
		member := dialect.Then(w.text(string(jsontext.AppendString(nil, f.key))), dialect.Text(":"), w.spaced(w.value(f.lang)), after)
		if i <= first {
			if i > 0 {
				member = w.rule("member", member)
			}
			alts = append(alts, member)
		}
		if next := dialect.Then(dialect.Text(","), space(), member); i > 0 {
			if !f.required {
				next = dialect.Or(next, after)
			}
			after = w.rule("more", next)
		}
	}
	for i, k := 0, len(alts)-1; i < k; i, k = i+1, k-1 {
		alts[i], alts[k] = alts[k], alts[i]
	}
	return dialect.Then(dialect.Text("{"), space(), dialect.Or(alts...))
}

// ---- strings

func anyChars(least, most int) *dialect.Expr {
	return &dialect.Expr{Op: dialect.Chars, Set: rawChars, Escapes: dialect.AnyEscape, Min: least, Max: most}
}

func (w *drafter) string(l *lang) *dialect.Expr {
	quote := dialect.Text(`"`)
	if l.pattern == nil {
		if l.max == 0 {
			return dialect.Text(`""`)
		}
		return dialect.Lexeme(dialect.Then(quote, anyChars(l.min, l.max), quote))
	}
	var alts []*dialect.Expr
	for _, b := range l.pattern.branches {
		seq := []*dialect.Expr{quote}
		if !b.start {
			seq = append(seq, anyChars(0, -1))
		}
		for _, re := range b.seq {
			seq = append(seq, w.regexp(re))
		}
		if !b.end {
			seq = append(seq, anyChars(0, -1))
		}
		alts = append(alts, dialect.Then(append(seq, quote)...))
	}
	return dialect.Lexeme(dialect.Or(alts...))
}

// ofSet is least to most characters of a set, as it is spelled.
func ofSet(s charSet, least, most int) *dialect.Expr {
	return &dialect.Expr{Op: dialect.Chars, Set: s.raw, Escapes: s.escaped, Min: least, Max: most}
}

func (w *drafter) regexp(re *syntax.Regexp) *dialect.Expr {
	w.size += 12
	switch re.Op {
	case syntax.OpEmptyMatch:
		return dialect.Then()
	case syntax.OpCapture:
		return w.regexp(re.Sub[0])
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			s := jsontext.AppendString(nil, string(re.Rune))
			return w.text(string(s[1 : len(s)-1]))
		}
		var seq []*dialect.Expr
		for i := range re.Rune {
			one := *re
			one.Rune = re.Rune[i : i+1]
			seq = append(seq, ofSet(setOf(&one), 1, 1))
		}
		return dialect.Then(seq...)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return ofSet(setOf(re), 1, 1)
	case syntax.OpConcat, syntax.OpAlternate:
		subs := make([]*dialect.Expr, len(re.Sub))
		for i, sub := range re.Sub {
			subs[i] = w.regexp(sub)
		}
		if re.Op == syntax.OpConcat {
			return dialect.Then(subs...)
		}
		return dialect.Or(subs...)
	}
	from, to := bounds(re)
	sub := re.Sub[0]
	for sub.Op == syntax.OpCapture {
		sub = sub.Sub[0]
	}
	if single(sub) {
		// A repeated character is spelled as in a class, an ordinary one as in
		// a literal: that tells for \b and \u0008.
		if s := setOf(sub); len(s.raw) > 0 || s.escaped != "" && (sub.Op != syntax.OpLiteral || to < 0 || to-from > 8) {
			return ofSet(s, from, to)
		}
	}
	if to < 0 && (sub.Op == syntax.OpStar || sub.Op == syntax.OpPlus && from > 0) {
		return w.regexp(sub) // (x*)* and (x+)+
	}
	return dialect.Times(w.regexp(sub), from, to)
}
