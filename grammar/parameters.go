package grammar

import (
	"bytes"
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

// A paramWriter writes arguments as a format of a structural tag: a sequence of
// parameters in declared order. What JSON could say and parameters can't is left
// out as long as something remains: the format is narrower then, not wider.
type paramWriter struct {
	p       *Parameters
	schema  json.RawMessage
	defs    []*def
	reasons []string
}

// content writes the arguments of a tool. The error is that of CheckKey, or
// says that a required parameter has no value that could be written.
func (p *Parameters) content(c *Checked) (format []byte, reasons []string, err error) {
	l, defs, err := c.lang()
	if err != nil {
		l, defs = anyObject(), nil
	}
	w := &paramWriter{p: p, schema: json.RawMessage(c.raw), defs: defs}
	format, err = w.object(l, maxDeref)
	if err != nil {
		return nil, nil, fmt.Errorf("tool %q: %w", c.name, err)
	}
	return format, w.reasons, nil
}

func (w *paramWriter) because(key, why string) {
	reason := "#/properties/" + escapePointer(key) + ": " + why
	if !slices.Contains(w.reasons, reason) {
		w.reasons = append(w.reasons, reason)
	}
}

func (w *paramWriter) object(l *lang, depth int) ([]byte, error) {
	if depth == 0 {
		return nil, fmt.Errorf("references without end")
	}
	switch l.kind {
	case reference:
		return w.object(l.def.lang, depth-1)
	case literals, choice:
		var alts [][]byte
		var first error
		add := func(format []byte, err error) {
			switch {
			case err == nil:
				alts = append(alts, format)
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
		return elements("or", alts), nil
	}
	if len(l.fields) == 0 {
		// Undeclared parameters aren't written: a key could spell a tag.
		if l.min > 0 {
			return nil, fmt.Errorf("parameters that the schema doesn't name can't be written")
		}
		return constant(""), nil
	}
	var out [][]byte
	for _, f := range l.fields {
		element, err := w.parameter(f.key, f.lang)
		switch {
		case err != nil && f.required:
			return nil, err
		case err != nil:
			continue
		case !f.required:
			element = append(append([]byte(`{"type":"optional","content":`), element...), '}')
		}
		out = append(out, element)
	}
	return elements("sequence", out), nil
}

// literal writes an object that is given whole.
func (w *paramWriter) literal(lit string) ([]byte, error) {
	v, err := jsontext.Parse([]byte(lit), maxJSONDepth)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, m := range v.List() {
		element, err := w.parameter(m.Key, &lang{kind: literals, lits: []string{string(m.Val.AppendTo(nil))}})
		if err != nil {
			return nil, err
		}
		out = append(out, element)
	}
	return elements("sequence", out), nil
}

func elements(kind string, all [][]byte) []byte {
	switch len(all) {
	case 0:
		return constant("")
	case 1:
		return all[0]
	}
	out := append([]byte(`{"type":"`), kind...)
	out = append(append(out, `","elements":[`...), bytes.Join(all, []byte(","))...)
	return append(out, `]}`...)
}

func constant(s string) []byte {
	return append(jsontext.AppendString([]byte(`{"type":"const_string","value":`), s), '}')
}

func (w *paramWriter) parameter(key string, l *lang) ([]byte, error) {
	if err := w.p.CheckKey(key); err != nil {
		return nil, err
	}
	var value []byte
	if w.p.IsText(w.schema, key) {
		value = elements("or", w.texts(key, l, maxDeref))
	} else {
		value = w.json(key, l)
	}
	if value == nil || bytes.Equal(value, constant("")) && !w.empty(l) {
		return nil, fmt.Errorf("parameter %q has no value that could be written", key)
	}
	return elements("sequence", [][]byte{constant(w.p.Open + key + w.p.Is), value, constant(w.p.Close)}), nil
}

// empty says that the empty text is a value of l.
func (w *paramWriter) empty(l *lang) bool {
	return l.kind == text && l.max == 0 || slices.Contains(l.lits, `""`)
}

// texts are formats for those values of l that are strings, or null where the
// schema reads the word as such.
func (w *paramWriter) texts(key string, l *lang, depth int) [][]byte {
	if depth == 0 {
		return nil
	}
	switch l.kind {
	case reference:
		return w.texts(key, l.def.lang, depth-1)
	case choice:
		var out [][]byte
		for _, a := range l.alts {
			out = append(out, w.texts(key, a, depth-1)...)
		}
		return out
	case literals:
		var out [][]byte
		for _, lit := range l.lits {
			if s, ok := w.spelled(key, lit); ok {
				out = append(out, constant(s))
			}
		}
		return out
	case anyValue:
		return [][]byte{w.anyText(0, -1)}
	case text:
		if l.pattern != nil {
			w.because(key, "the pattern of a text in tags is checked after the reply")
			return [][]byte{w.anyText(0, l.pattern.max)}
		}
		return [][]byte{w.anyText(l.min, l.max)}
	}
	return nil
}

// spelled is the text of a literal that is read back as the literal.
func (w *paramWriter) spelled(key, lit string) (string, bool) {
	s := lit
	if lit[0] == '"' && json.Unmarshal([]byte(lit), &s) != nil {
		return "", false
	}
	for _, bar := range w.p.Bars {
		if strings.Contains(s, bar) {
			return "", false
		}
	}
	back, err := jsontext.Parse(w.p.Read(w.schema, key, s), maxJSONDepth)
	if err != nil {
		return "", false
	}
	want, err := jsontext.Parse([]byte(lit), maxJSONDepth)
	return s, err == nil && sameJSON(back, want)
}

// anyText is least to most characters that spell no end. Those that must be
// there hold no beginning of one.
func (w *paramWriter) anyText(least, most int) []byte {
	if most == 0 {
		return constant("")
	}
	out := append([]byte(nil), `{"type":"any_text","excludes":[`...)
	for i, bar := range w.p.Bars {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsontext.AppendString(out, bar)
	}
	out = append(out, ']')
	if most > 0 {
		out = append(out, `,"max_chars":`...)
		out = strconv.AppendInt(out, int64(min(most-least, 1<<30)), 10)
	}
	out = append(out, '}')
	if least == 0 {
		return out
	}
	head := jsontext.AppendString([]byte(`{"type":"regex","pattern":`), "[^<\\n]{"+strconv.Itoa(least)+"}")
	all := [][]byte{append(head, '}')}
	if most < 0 || most > least {
		all = append(all, out)
	}
	return elements("sequence", all)
}

// json is a format for those values of l that are read back as JSON.
func (w *paramWriter) json(key string, l *lang) []byte {
	if l = w.readable(key, l, maxDeref); l == nil {
		return nil
	}
	g, err := draft(l, w.defs)
	if err != nil {
		w.because(key, err.Error())
		g, _ = draft(&lang{kind: anyValue}, nil)
	}
	for i := range g.Rules {
		g.Rules[i].Body = untagged(g.Rules[i].Body)
	}
	return append(jsontext.AppendString([]byte(`{"type":"grammar","grammar":`), dialect.EBNF(g)), '}')
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

func (w *paramWriter) barred(s string) bool {
	for _, bar := range w.p.Bars {
		if strings.Contains(s, bar) {
			return true
		}
	}
	return false
}
