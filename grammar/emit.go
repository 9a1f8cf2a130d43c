package grammar

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Target is a notation in which the tools of a request can be written.
type Target string

// The targets of Write, but for structural tags, which Tag writes.
const (
	StructuralTag Target = "structural-tag" // xgrammar

	GBNF  Target = "gbnf"  // llama.cpp
	Lark  Target = "lark"  // llguidance
	Regex Target = "regex" // any engine; tools whose values don't nest without end

	JSONSchema Target = "json-schema" // the arguments of one tool, for an engine that reads schemas: llguidance
	LegacyTag  Target = "legacy-tag"  // structures and triggers, for the guidance backends; free text is always allowed
)

// engineReads is what can't be proved where an engine is given a schema.
const engineReads = "#: what the engine makes of a schema is judged, not proved"

// A Text holds a whole reply to the tools.
type Text struct {
	Text string
	// Lazy, with GBNF and Auto: free text is not part of Text, which begins at
	// the trigger (grammar_lazy and grammar_triggers of llama.cpp).
	Lazy  bool
	Tools []ToolEmission // those that may be called, in the order given
	// Response is about Choice.Response, if it is part of the text.
	Response *ToolEmission
}

// A TargetError says that a tool can't be written in a notation.
type TargetError struct {
	Tool   string
	Target Target
	Err    error
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("tool %q as %s: %v", e.Tool, e.Target, e.Err)
}
func (e *TargetError) Unwrap() error { return e.Err }

// Write writes the tools that may be called for an engine that takes no
// structural tags. What it means for each tool_choice is what Tag means. The
// error joins a *TargetError for each tool that has no form in the notation.
//
// The part of a tool doesn't depend on the others: the same tool gives the
// same bytes in every text, and they are kept.
func Write(s Syntax, tools []*Checked, choice Choice, target Target) (Text, error) {
	if err := s.writes(target); err != nil {
		return Text{}, err
	}
	w := &replyWriter{target: target, syntax: s, choice: choice}
	tools, err := choice.among(tools)
	if err != nil {
		return Text{}, err
	}
	for _, t := range tools {
		te := t.written(target)
		if e := w.tool(t, &te); e != nil {
			err = errors.Join(err, &TargetError{t.name, target, e})
		}
		w.out.Tools = append(w.out.Tools, te)
	}
	if choice.Response != nil && (choice.Mode == Auto || choice.Mode == None) {
		if e := w.response(choice.Response); e != nil {
			err = errors.Join(err, &TargetError{choice.Response.name, target, e})
		}
		te := choice.Response.written(target)
		w.out.Response = &te
	}
	if err != nil {
		return Text{}, err
	}
	switch target {
	case JSONSchema:
		if len(tools) != 1 {
			return Text{}, fmt.Errorf("a schema holds the arguments of one tool, and these are %d", len(tools))
		}
		w.out.Text = w.schemas[0]
	case LegacyTag:
		if choice.Mode != Auto || choice.Response != nil {
			return Text{}, fmt.Errorf("a legacy tag can't hold a reply to tool_choice %s or to a format: free text is always allowed", choice.Mode)
		}
		w.out.Text = w.legacy()
	default:
		if w.out.Text, err = w.write(); err != nil {
			return Text{}, err
		}
	}
	return w.out, nil
}

// writes says why calls of a syntax can't be written in a notation.
func (s *Syntax) writes(target Target) error {
	switch {
	case s.Channels:
		return fmt.Errorf("a reply of messages can't be written as %s; it is held by a structural tag", target)
	case s.Parameters != nil && target != GBNF:
		return fmt.Errorf("arguments in tags can't be written as %s; they are held by a structural tag or by gbnf", target)
	case s.Section+s.ID != "" && (target == JSONSchema || target == LegacyTag):
		return fmt.Errorf("sections and ids of calls can't be written as %s; they are held by a structural tag, gbnf, lark or regex", target)
	}
	for _, m := range s.Tokens {
		if target == Lark && (!strings.HasPrefix(m, "<") || !strings.HasSuffix(m, ">")) {
			return fmt.Errorf("the token %s has no name in lark; calls are held by a structural tag, gbnf or regex", m)
		}
	}
	return nil
}

// legacy is the tag of structures and triggers. What ends a call stops before
// the first marker that is an added token: llguidance would allow that token
// and then refuse it, and nothing else is allowed.
func (w *replyWriter) legacy() string {
	end := w.syntax.End
	for _, m := range w.syntax.Tokens {
		if i := strings.Index(end, m); i >= 0 {
			end = end[:i]
		}
	}
	out := []byte(`{"type":"structural_tag","structures":[`)
	for i, schema := range w.schemas {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"begin":`...)
		out = jsontext.AppendString(out, w.begins[i])
		out = append(out, `,"schema":`...)
		out = append(out, schema...)
		out = append(out, `,"end":`...)
		out = jsontext.AppendString(out, end)
		out = append(out, '}')
	}
	out = append(out, `],"triggers":[`...)
	out = jsontext.AppendString(out, w.syntax.Trigger)
	return string(append(out, `]}`...))
}

func (c *Checked) written(target Target) ToolEmission {
	reasons := c.reasons(target)
	return ToolEmission{Name: c.name, Exact: len(reasons) == 0, Reasons: reasons}
}

// reasons are why a tool isn't exact in a notation.
func (c *Checked) reasons(target Target) []string {
	if target == JSONSchema || target == LegacyTag {
		return append(slices.Clip(c.content.reasons), engineReads)
	}
	return c.content.reasons
}

// A replyWriter puts the parts of tools into a frame.
type replyWriter struct {
	target  Target
	syntax  Syntax
	choice  Choice
	begins  []string        // of each tool: what stands before its arguments
	args    []*dialect.Expr // of each tool
	answer  *dialect.Expr   // of the client's own format; nil if it has none
	parts   strings.Builder // rules of the tools
	seen    map[string]bool // their prefixes
	schemas []string        // of each tool, where its part is one
	out     Text
}

func (w *replyWriter) tool(t *Checked, te *ToolEmission) error {
	if w.syntax.CheckName != nil {
		if err := w.syntax.CheckName(t.name); err != nil {
			return err
		}
	}
	part := w.part
	if w.syntax.Parameters != nil {
		part = func(t *Checked) (*dialect.Expr, error) { return w.inTags(t, te) }
	}
	args, err := part(t)
	if err != nil {
		return err
	}
	w.begins = append(w.begins, w.syntax.Begin(t.name))
	w.args = append(w.args, args)
	return nil
}

// text is a literal in which markers that are tokens of their own may also be
// those tokens. llguidance alone needs to be told.
func (w *replyWriter) text(s string) *dialect.Expr {
	var out []*dialect.Expr
	for w.target == Lark && s != "" {
		at, which := len(s), ""
		for _, m := range w.syntax.Tokens {
			if i := strings.Index(s, m); m != "" && i >= 0 && i < at {
				at, which = i, m
			}
		}
		if which == "" {
			break
		}
		if at > 0 {
			out = append(out, dialect.Text(s[:at]))
		}
		out = append(out, dialect.Marker(which))
		s = s[at+len(which):]
	}
	if s != "" || len(out) == 0 {
		out = append(out, dialect.Text(s))
	}
	return dialect.Then(out...)
}

// calls are the calls of each tool; after is what of them has been read before.
func (w *replyWriter) calls(before *dialect.Expr, read string) []*dialect.Expr {
	var out []*dialect.Expr
	for i, args := range w.args {
		begin := w.text(strings.TrimPrefix(w.begins[i], read))
		out = append(out, dialect.Then(before, begin, w.id(), args, w.text(w.syntax.End)))
	}
	return out
}

// id is the id of a call and what stands behind it.
func (w *replyWriter) id() *dialect.Expr {
	if w.syntax.ID == "" {
		return dialect.Then()
	}
	return dialect.Then(dialect.Lexeme(w.syntax.id()), w.text(w.syntax.AfterID))
}

// several is one call or more.
func (w *replyWriter) several(call *dialect.Expr) *dialect.Expr {
	if !w.choice.Parallel || w.choice.Mode == Named {
		return call
	}
	return dialect.Then(call, dialect.Times(dialect.Then(dialect.Text(w.syntax.Separator), call), 0, -1))
}

// section is the calls of a reply with what stands around them; before and read
// as for calls.
func (w *replyWriter) section(before *dialect.Expr, read string, call *dialect.Expr) *dialect.Expr {
	return dialect.Then(before, w.text(strings.TrimPrefix(w.syntax.Section, read)), w.several(call), w.text(w.syntax.SectionEnd))
}

func (w *replyWriter) response(t *Checked) (err error) {
	w.answer, err = w.part(t)
	return err
}

// part refers to the arguments of a tool.
func (w *replyWriter) part(t *Checked) (*dialect.Expr, error) {
	p, err := t.parts.of(t, w.target)
	if err != nil {
		return nil, err
	}
	switch w.target {
	case Regex:
		return dialect.Verbatim(p.text), nil
	case JSONSchema, LegacyTag:
		w.schemas = append(w.schemas, p.text)
		return dialect.Then(), nil
	}
	w.add(p.prefix, func() string { return p.text })
	return dialect.Use(p.prefix + "root"), nil
}

// inTags refers to the arguments of a tool as parameters in tags, and adds what
// of them isn't held.
func (w *replyWriter) inTags(t *Checked, te *ToolEmission) (*dialect.Expr, error) {
	g, reasons, err := w.syntax.Parameters.content(t, false)
	if err != nil {
		return nil, err
	}
	te.Reasons = append(slices.Clip(te.Reasons), reasons...)
	te.Exact = len(te.Reasons) == 0
	prefix := "p" + t.hash() + "-"
	w.add(prefix, func() string { return dialect.GBNF(g, prefix) })
	return dialect.Use(prefix + "root"), nil
}

// add adds the rules of a tool unless they are there.
func (w *replyWriter) add(prefix string, rules func() string) {
	if w.seen[prefix] {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[prefix] = true
	w.parts.WriteString(rules())
}

func (w *replyWriter) write() (string, error) {
	calls := w.calls(dialect.Then(), "")
	call := func() *dialect.Expr {
		if len(calls) == 1 || w.target == Regex {
			return dialect.Or(calls...)
		}
		return dialect.Use("call")
	}
	// group is what the trigger begins: a call, or the section of all calls.
	group := call
	several := func() *dialect.Expr { return w.several(call()) }
	if w.syntax.Section != "" {
		group = func() *dialect.Expr { return w.section(dialect.Then(), "", call()) }
		several = group
	}
	var root *dialect.Expr
	var more string // rules of the frame that are no Grammar
	switch {
	case len(calls) == 0 && w.answer != nil:
		root = w.answer
	case w.choice.Mode == Auto && w.answer != nil:
		root = dialect.Or(several(), w.answer)
	case w.choice.Mode == Required || w.choice.Mode == Named:
		root = several()
	case w.target == GBNF && len(calls) > 0:
		w.out.Lazy = true
		root = several()
	case w.target == Lark:
		// A lexer that takes the longest match needs a lexeme which ends with
		// the trigger, as soon as there is one.
		free := dialect.Use("free")
		quoted := dialect.Quote(w.syntax.Trigger)
		more = "free: FREE\nFREE: /(?s:.*)/ & ~/(?s:.*" + quoted + "(?s:.*))/\n"
		root = free
		if len(calls) > 0 {
			more += "until[lazy]: /(?s:.*)" + quoted + "/\n"
			before := dialect.Use("until")
			if slices.Contains(w.syntax.Tokens, w.syntax.Trigger) {
				more += "until-token: FREE <" + strings.Trim(w.syntax.Trigger, "<>") + ">\n"
				before = dialect.Or(before, dialect.Use("until-token"))
			}
			if w.syntax.Section == "" {
				calls = w.calls(before, w.syntax.Trigger)
			} else {
				group = func() *dialect.Expr { return w.section(before, w.syntax.Trigger, call()) }
			}
			if root = dialect.Or(group(), free); w.choice.Parallel {
				root = dialect.Then(dialect.Times(group(), 0, -1), free)
			}
		}
	default:
		free, err := without(w.syntax.Trigger)
		if err != nil {
			return "", err
		}
		if root = free; len(calls) > 0 {
			if root = dialect.Then(free, dialect.Maybe(group())); w.choice.Parallel {
				root = dialect.Then(free, dialect.Times(dialect.Then(group(), free), 0, -1))
			}
		}
	}
	g := &dialect.Grammar{Rules: []dialect.Rule{{Name: "root", Body: root}}}
	if len(calls) > 1 {
		g.Rules = append(g.Rules, dialect.Rule{Name: "call", Body: dialect.Or(calls...)})
	}
	switch w.target {
	case GBNF:
		return dialect.GBNF(g, "") + w.parts.String(), nil
	case Lark:
		g.Rules[0].Name = "start"
		return dialect.Lark(g, "") + more + w.parts.String(), nil
	case Regex:
		return dialect.Regex(g)
	}
	return "", fmt.Errorf("no target %q", w.target)
}

// without is the texts in which the trigger doesn't stand. Its first character
// must stand in it once, so that a broken-off trigger holds no beginning of
// another.
func without(trigger string) (*dialect.Expr, error) {
	rs := []rune(trigger)
	if len(rs) == 0 || strings.ContainsRune(string(rs[1:]), rs[0]) {
		return nil, fmt.Errorf("free text without %q can't be written", trigger)
	}
	other := func(not ...rune) *dialect.Expr { return dialect.One(complement(not)...) }
	rest := dialect.Times(other(rs[0]), 0, -1)
	var broken *dialect.Expr // what may follow the first i characters, before the next first one
	for i := len(rs) - 1; i > 0; i-- {
		off := dialect.Then(other(rs[0], rs[i]), rest)
		if i < len(rs)-1 {
			off = dialect.Or(off, dialect.Then(dialect.Text(string(rs[i])), broken))
		}
		broken = dialect.Maybe(off)
	}
	if len(rs) == 1 {
		return rest, nil
	}
	return dialect.Then(rest, dialect.Times(dialect.Then(dialect.Text(string(rs[0])), broken), 0, -1)), nil
}

// complement is all characters but surrogates and those given, as pairs.
func complement(not []rune) []rune {
	pairs := []rune{0, 0xD7FF, 0xE000, 0x10FFFF}
	for _, n := range not {
		for i := 0; i < len(pairs); i += 2 {
			lo, hi := pairs[i], pairs[i+1]
			if n < lo || n > hi {
				continue
			}
			var in []rune
			if lo < n {
				in = append(in, lo, n-1)
			}
			if n < hi {
				in = append(in, n+1, hi)
			}
			pairs = append(append(append([]rune{}, pairs[:i]...), in...), pairs[i+2:]...)
			break
		}
	}
	return pairs
}

// A part is one tool's arguments in a notation.
type part struct {
	prefix string // of the names of its rules: the hash of the schema
	text   string
	err    error
}

// parts are what was written of a tool, under all its names.
type parts struct {
	mu     sync.Mutex // guards both, each made when first asked for
	made   map[Target]part
	inTags map[string]parameters // by the texts of Parameters
}

func (p *parts) of(c *Checked, target Target) (part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, ok := p.made[target]
	if !ok {
		out = c.part(target)
		if p.made == nil {
			p.made = map[Target]part{}
		}
		p.made[target] = out
	}
	return out, out.err
}

// hash tells schemas apart in the names of rules.
func (c *Checked) hash() string {
	sum := sha256.Sum256(append([]byte{byte(c.world)}, c.raw...))
	return hex.EncodeToString(sum[:5])
}

func (c *Checked) part(target Target) part {
	p := part{prefix: "t" + c.hash() + "-"}
	l, defs, err := c.lang()
	if err != nil {
		p.err = err
		return p
	}
	if target == JSONSchema || target == LegacyTag {
		v, err := rewrite(l, defs)
		if p.err = err; err == nil {
			p.text = string(v.AppendTo(nil))
		}
		return p
	}
	g, err := draft(l, defs)
	if err != nil {
		p.err = err
		return p
	}
	switch target {
	case GBNF:
		p.text = dialect.GBNF(g, p.prefix)
	case Lark:
		p.text = dialect.Lark(g, p.prefix)
	case Regex:
		p.text, p.err = dialect.Regex(g)
	default:
		p.err = fmt.Errorf("no target %q", target)
	}
	return p
}

// root is the schema in its world.
func (c *Checked) root() (root *jsontext.Value, plainRefs bool, err error) {
	root = &jsontext.Value{Kind: '{'}
	if len(c.raw) > 0 {
		v, err := jsontext.Parse([]byte(c.raw), maxJSONDepth)
		if err != nil {
			return nil, false, err
		}
		if v.Kind == '{' {
			root = v
		}
	}
	if plainRefs, err = survey(c.name, root); err != nil {
		return nil, false, err
	}
	if c.world == Closed {
		root = closeWorld(root, plainRefs)
	}
	return root, plainRefs, nil
}

// lang narrows the schema again: most tools are written in one notation only,
// and a lang is ten times its text.
func (c *Checked) lang() (*lang, []*def, error) {
	root, plainRefs, err := c.root()
	if err != nil {
		return nil, nil, err
	}
	l, defs, _, _, _ := langOf(root, plainRefs, c.content.manner)
	return l, defs, nil
}
