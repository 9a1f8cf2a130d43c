package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Parameters is how a family writes arguments one by one: Open, key, Is, value,
// Close. Text stands there as it is, any other value as JSON; the parser goes by
// the schema to tell which it is.
type Parameters struct {
	Open  string
	Is    string
	Close string
	// End, within Close, ends a value wherever it stands; what of Close is before
	// it belongs to no value.
	End string
	// Bars are texts that can't stand in a value.
	Bars []string
	// IsText says whether whatever stands as the value of a parameter is read as
	// a string, given the schema of the arguments.
	IsText func(schema json.RawMessage, key string) bool
	// Read is the JSON that a text stands for as the value of a parameter.
	Read func(schema json.RawMessage, key, text string) json.RawMessage
	// CheckKey says why a key can't be written; nil when it can.
	CheckKey func(key string) error
}

// maxDeref is how many references in a row are followed.
const maxDeref = 64

// A paramWriter writes arguments as rules: parameter after parameter, in
// declared order. What JSON could say and parameters can't is left out as long
// as something remains: the grammar is narrower then, not wider.
type paramWriter struct {
	p       *Parameters
	counts  bool // the notation counts the characters of a rule
	schema  json.RawMessage
	json    *drafter // of values that are JSON
	own     []dialect.Rule
	reasons []string
}

// content writes the arguments of a tool as a grammar, in a notation that counts
// the characters of a rule or not. The error is that of
// CheckKey, or says that a required parameter has no value that could be written.
func (p *Parameters) content(c *Checked, counts bool) (*dialect.Grammar, []string, error) {
	l, defs, err := c.lang()
	if err != nil {
		l, defs = anyObject(), nil
	}
	w := &paramWriter{p: p, counts: counts, schema: json.RawMessage(c.raw), json: &drafter{byBody: map[string]string{}, named: map[*lang]*def{}}}
	for _, d := range defs {
		w.json.named[d.lang] = d
	}
	root, err := w.object(l, maxDeref)
	if err != nil {
		return nil, nil, fmt.Errorf("tool %q: %w", c.name, err)
	}
	rules := []dialect.Rule{{Name: "root", Body: root}}
	for _, d := range defs {
		rules = append(rules, dialect.Rule{Name: d.name, Body: untagged(w.json.inline(d.lang))})
	}
	for _, r := range w.json.rules {
		r.Body = untagged(r.Body)
		rules = append(rules, r)
	}
	if w.json.size > maxGrammar {
		return nil, nil, fmt.Errorf("tool %q: %w", c.name, errTooLarge)
	}
	return &dialect.Grammar{Rules: append(rules, w.own...)}, w.reasons, nil
}

func (w *paramWriter) because(key, why string) {
	reason := "#/properties/" + jsontext.EscapePointer(key) + ": " + why
	if !slices.Contains(w.reasons, reason) {
		w.reasons = append(w.reasons, reason)
	}
}

func (w *paramWriter) object(l *lang, depth int) (*dialect.Expr, error) {
	if depth == 0 {
		return nil, fmt.Errorf("references without end")
	}
	switch l.kind {
	case reference:
		return w.object(l.def.lang, depth-1)
	case literals, choice:
		var alts []*dialect.Expr
		var first error
		add := func(e *dialect.Expr, err error) {
			switch {
			case err == nil:
				alts = append(alts, e)
			case first == nil:
				first = err
			}
		}
		for _, lit := range l.lits {
			add(w.literal(lit))
		}
		for _, a := range l.alts {
			add(w.object(a, depth-1))
		}
		if len(alts) == 0 {
			return nil, first
		}
		return dialect.Or(alts...), nil
	}
	if len(l.fields) == 0 && l.min > 0 {
		// A key could spell a tag.
		return nil, fmt.Errorf("parameters that the schema doesn't name can't be written")
	}
	var out []*dialect.Expr
	for _, f := range l.fields {
		e, err := w.parameter(f.key, f.lang)
		switch {
		case err != nil && f.required:
			return nil, err
		case err != nil:
			continue
		case !f.required:
			e = dialect.Maybe(e)
		}
		out = append(out, e)
	}
	return dialect.Then(out...), nil
}

// literal writes an object that is given whole.
func (w *paramWriter) literal(lit string) (*dialect.Expr, error) {
	v, err := jsontext.Parse([]byte(lit), maxJSONDepth)
	if err != nil {
		return nil, err
	}
	var out []*dialect.Expr
	for _, m := range v.List() {
		e, err := w.parameter(m.Key, &lang{kind: literals, lits: []string{string(m.Val.AppendTo(nil))}})
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return dialect.Then(out...), nil
}

func (w *paramWriter) parameter(key string, l *lang) (*dialect.Expr, error) {
	if err := w.p.CheckKey(key); err != nil {
		return nil, err
	}
	var alts []*dialect.Expr
	if w.p.IsText(w.schema, key) {
		alts = w.texts(key, l, maxDeref)
	} else if l = w.readable(key, l, maxDeref); l != nil {
		alts = append(alts, untagged(w.json.value(l)))
	}
	if len(alts) == 0 {
		return nil, fmt.Errorf("parameter %q has no value that could be written", key)
	}
	return dialect.Then(dialect.Text(w.p.Open+key+w.p.Is), dialect.Or(alts...), dialect.Text(w.p.Close)), nil
}

// texts write those values of l that are strings, or null where the parser reads
// the word as such.
func (w *paramWriter) texts(key string, l *lang, depth int) []*dialect.Expr {
	if depth == 0 {
		return nil
	}
	switch l.kind {
	case reference:
		return w.texts(key, l.def.lang, depth-1)
	case choice:
		var out []*dialect.Expr
		for _, a := range l.alts {
			out = append(out, w.texts(key, a, depth-1)...)
		}
		return out
	case literals:
		var out []*dialect.Expr
		for _, lit := range l.lits {
			if s, ok := w.spelled(key, lit); ok {
				out = append(out, dialect.Text(s))
			}
		}
		return out
	case anyValue:
		return []*dialect.Expr{w.anyText(0, -1)}
	case text:
		least, most := l.min, l.max
		if l.pattern != nil {
			w.because(key, "the pattern of a text in tags is checked after the reply")
			least, most = 0, l.pattern.max
		}
		if most > least && !w.counts {
			w.because(key, "the length of a text in tags is checked after the reply")
			most = -1
		}
		return []*dialect.Expr{w.anyText(least, most)}
	}
	return nil
}

// spelled is the text of a literal that is read back as the literal.
func (w *paramWriter) spelled(key, lit string) (string, bool) {
	s := lit
	if lit[0] == '"' && json.Unmarshal([]byte(lit), &s) != nil || w.barred(s) {
		return "", false
	}
	back, err := jsontext.Parse(w.p.Read(w.schema, key, s), maxJSONDepth)
	if err != nil {
		return "", false
	}
	want, err := jsontext.Parse([]byte(lit), maxJSONDepth)
	return s, err == nil && sameJSON(back, want)
}

func (w *paramWriter) barred(s string) bool {
	for _, bar := range w.p.Bars {
		if strings.Contains(s, bar) {
			return true
		}
	}
	return false
}

// anyText is least to most characters that spell no end; those that must be
// there hold no beginning of one.
func (w *paramWriter) anyText(least, most int) *dialect.Expr {
	head := dialect.Times(dialect.One(complement([]rune{'<', '\n'})...), least, least)
	if most >= 0 && most <= least {
		return head
	}
	free := w.free()
	if most > 0 {
		name := "most" + strconv.Itoa(most-least)
		if !slices.ContainsFunc(w.own, func(r dialect.Rule) bool { return r.Name == name }) {
			w.own = append(w.own, dialect.Rule{Name: name, Body: free, MaxChars: min(most-least, 1<<30)})
		}
		free = dialect.Use(name)
	}
	if least == 0 {
		return free
	}
	return dialect.Then(head, free)
}

// free is the texts in which no bar stands: a walk over the trie of the bars,
// all of which begin with "<" and hold no other.
func (w *paramWriter) free() *dialect.Expr {
	if slices.ContainsFunc(w.own, func(r dialect.Rule) bool { return r.Name == "free" }) {
		return dialect.Use("free")
	}
	rule := func(name string, alts ...*dialect.Expr) {
		w.own = append(w.own, dialect.Rule{Name: name, Body: dialect.Or(append([]*dialect.Expr{dialect.Then()}, alts...)...)})
	}
	begins := map[string]string{"<": "bar0"}
	names := []string{"<"}
	for _, bar := range w.p.Bars {
		for n := 2; n < len(bar); n++ {
			if _, ok := begins[bar[:n]]; !ok {
				begins[bar[:n]] = "bar" + strconv.Itoa(len(begins))
				names = append(names, bar[:n])
			}
		}
	}
	rule("free", dialect.Then(dialect.One(complement([]rune{'<'})...), dialect.Use("free")), dialect.Then(dialect.Text("<"), dialect.Use("bar0")))
	for _, p := range names {
		alts := []*dialect.Expr{dialect.Then(dialect.Text("<"), dialect.Use("bar0"))}
		not := []rune{'<'}
		for _, bar := range w.p.Bars {
			if !strings.HasPrefix(bar, p) || len(bar) == len(p) {
				continue
			}
			c := rune(bar[len(p)])
			if slices.Contains(not, c) {
				continue
			}
			not = append(not, c)
			if next, ok := begins[p+string(c)]; ok {
				alts = append(alts, dialect.Then(dialect.Text(string(c)), dialect.Use(next)))
			}
		}
		alts = append(alts, dialect.Then(dialect.One(complement(not)...), dialect.Use("free")))
		rule(begins[p], alts...)
	}
	return dialect.Use("free")
}

// untagged is e in which no string spells a tag: "<" is escaped there.
func untagged(e *dialect.Expr) *dialect.Expr {
	out := *e
	if e.Op == dialect.Class || e.Op == dialect.Chars {
		out.Set = nil
		for i := 0; i < len(e.Set); i += 2 {
			lo, hi := e.Set[i], e.Set[i+1]
			if lo <= '<' && '<' <= hi {
				if lo < '<' {
					out.Set = append(out.Set, lo, '<'-1)
				}
				lo = '<' + 1
			}
			if lo <= hi {
				out.Set = append(out.Set, lo, hi)
			}
		}
	}
	out.Subs = make([]*dialect.Expr, len(e.Subs))
	for i, s := range e.Subs {
		out.Subs[i] = untagged(s)
	}
	return &out
}

// readable leaves out strings, which the parser might take for text with its
// quotes, where it does so.
func (w *paramWriter) readable(key string, l *lang, depth int) *lang {
	if depth == 0 {
		return nil
	}
	quoted := string(w.p.Read(w.schema, key, `"x"`)) == `"x"`
	switch l.kind {
	case reference:
		if w.readable(key, l.def.lang, depth-1) == l.def.lang {
			return l
		}
		return w.readable(key, l.def.lang, depth-1)
	case text:
		if !quoted {
			return nil
		}
	case literals:
		var lits []string
		for _, lit := range l.lits {
			if back := w.p.Read(w.schema, key, lit); string(back) == lit && !w.barred(lit) {
				lits = append(lits, lit)
			}
		}
		switch len(lits) {
		case len(l.lits):
		case 0:
			return nil
		default:
			return &lang{kind: literals, lits: lits}
		}
	case choice:
		var alts []*lang
		for _, a := range l.alts {
			if a = w.readable(key, a, depth-1); a != nil {
				alts = append(alts, a)
			}
		}
		switch {
		case len(alts) == 0:
			return nil
		case !slices.Equal(alts, l.alts):
			return &lang{kind: choice, alts: alts}
		}
	}
	return l
}
