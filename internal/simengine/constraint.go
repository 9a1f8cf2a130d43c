package simengine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar/dialect"
)

// format is a node of a structural tag's format tree. A constraint of another
// kind (JSON schema, regex, choice) is one node as well.
type format struct {
	kind     string
	text     string // const_string: value; regex: pattern; grammar: its text; tag: begin; tags_with_separator: separator
	schema   *node  // json_schema
	grammar  *dialect.Grammar
	root     string           // its rule that the text is
	machine  *dialect.Machine // of the grammar
	parts    []*format
	ends     []string // tag
	triggers []string
	excludes []string
	least    int  // repeat
	one      bool // at_least_one
	stop     bool // stop_after_first
	tool     *tool
}

const badTag = "Invalid response_format structural_tag specification."

// formatError is a constraint that is refused, in the field param.
type formatError struct{ msg, param string }

func (e *formatError) Error() string { return e.msg }

func unsupported(what string) error {
	return &formatError{fmt.Sprintf("The simulated engine does not support %s; it supports const_string, json_schema (style json), regex, grammar, any_text, "+
		"sequence, or, optional, plus, star, repeat, tag, triggered_tags and tags_with_separator.", what), "response_format"}
}

var (
	errBadTag        = &formatError{badTag, "response_format"}
	errBadStructured = &formatError{"Invalid structured_outputs structural_tag specification.", "structured_outputs"}
)

// inferred are the kinds of format that are known by a member where no type is given.
var inferred = [...]struct{ member, kind string }{
	{"begin", "tag"}, {"value", "const_string"}, {"json_schema", "json_schema"}, {"pattern", "regex"}, {"grammar", "grammar"},
	{"triggers", "triggered_tags"}, {"separator", "tags_with_separator"},
}

// callStyles are the styles of json_schema that are no JSON.
var callStyles = []string{"qwen_xml", "minimax_xml", "deepseek_xml", "glm_xml", "cohere_xml", "kimi_k3_xml"}

// parseFormat reads a format tree. What an engine refuses is refused in its
// words; what only this engine can't do is named.
func parseFormat(n *node, depth int) (*format, error) {
	if n == nil || n.kind != '{' || depth > 60 {
		return nil, errBadTag
	}
	f := &format{kind: n.get("type").text()}
	if !n.has("type") {
		for _, i := range inferred {
			if n.has(i.member) {
				f.kind = i.kind
				break
			}
		}
	}
	if w := n.get("max_whitespace_cnt"); w != nil && w.kind != 'n' {
		if v, ok := w.float(); !ok || v < 1 {
			return nil, errBadTag
		}
	}
	one := func(key string) error {
		part, err := parseFormat(n.get(key), depth+1)
		f.parts = []*format{part}
		return err
	}
	many := func(key string) error {
		list := n.get(key).elements()
		if len(list) == 0 {
			return errBadTag
		}
		for _, e := range list {
			if calls := callTags(e); calls != nil {
				f.parts = append(f.parts, calls...)
				continue
			}
			part, err := parseFormat(e, depth+1)
			if err != nil {
				return err
			}
			f.parts = append(f.parts, part)
		}
		return nil
	}
	str := func(key string) error {
		v := n.get(key)
		if v == nil || v.kind != '"' {
			return errBadTag
		}
		f.text = v.str
		return nil
	}
	var err error
	switch f.kind {
	case "const_string":
		err = str("value")
	case "json_schema":
		f.schema = n.get("json_schema")
		if f.schema == nil || f.schema.kind != '{' && f.schema.kind != 't' {
			return nil, errBadTag
		}
		switch style := n.get("style").text(); {
		case slices.Contains(callStyles, style):
			return nil, unsupported("json_schema of style " + style)
		case style != "" && style != "json", !soundSchema(f.schema):
			return nil, errBadTag
		}
	case "regex":
		if err = str("pattern"); err == nil {
			if _, e := syntax.Parse(f.text, syntax.Perl); e != nil {
				return nil, errBadTag
			}
		}
	case "grammar":
		if err = str("grammar"); err == nil {
			err = f.read()
		}
	case "any_text":
		f.excludes = n.get("excludes").strings()
	case "sequence", "or":
		err = many("elements")
	case "optional", "plus", "star":
		err = one("content")
	case "repeat":
		low, okLow := n.get("min").float()
		high, okHigh := n.get("max").float()
		if !okLow || !okHigh || low < 0 || high != -1 && high < low {
			return nil, errBadTag
		}
		f.least = n.get("min").int(1 << 30)
		err = one("content")
	case "tag":
		if err = str("begin"); err != nil {
			break
		}
		switch e := n.get("end"); {
		case e != nil && e.kind == '"':
			if e.str == "" && n.get("content").get("type").text() == "any_text" {
				return nil, errBadTag // such a text would have no end
			}
			f.ends = []string{e.str}
		case len(e.strings()) > 0:
			f.ends = e.strings()
		case e != nil && e.kind == '{':
			return nil, unsupported("a token as the end of a tag")
		default:
			return nil, errBadTag
		}
		err = one("content")
	case "triggered_tags":
		f.triggers, f.excludes = n.get("triggers").strings(), n.get("excludes").strings()
		if err = f.flags(n); err != nil {
			break
		}
		if len(f.triggers) == 0 || n.has("excludes") && n.get("excludes").kind != '[' {
			return nil, errBadTag
		}
		for i, t := range f.triggers {
			for k, other := range f.triggers {
				if t == "" || i != k && strings.HasPrefix(other, t) {
					return nil, errBadTag
				}
			}
		}
		if err = many("tags"); err != nil {
			break
		}
		for _, t := range f.parts {
			if t.kind != "tag" || countPrefixes(f.triggers, t.text) != 1 {
				return nil, errBadTag
			}
		}
	case "tags_with_separator":
		if err = f.flags(n); err == nil {
			err = str("separator")
		}
		if err != nil {
			break
		}
		if err = many("tags"); err != nil {
			break
		}
		for _, t := range f.parts {
			if t.kind != "tag" {
				return nil, errBadTag
			}
		}
	case "token", "exclude_token", "any_tokens", "token_triggered_tags", "token_dispatch", "dispatch":
		return nil, unsupported("the format " + f.kind)
	default:
		return nil, errBadTag
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// callTags are the calls of a tag whose content is a grammar that goes on with
// one of several names, a tag each; nil if n is no such tag.
func callTags(n *node) []*format {
	begin, end, content := n.get("begin"), n.get("end"), n.get("content")
	if n.get("type").text() != "tag" || begin == nil || end == nil || end.kind != '"' || content.get("type").text() != "grammar" || beginName(begin.str) != "" {
		return nil
	}
	g, err := dialect.ReadEBNF(content.get("grammar").text())
	if err != nil {
		return nil
	}
	root := g.Rule("root")
	if root == nil {
		return nil
	}
	alts := []*dialect.Expr{root.Body}
	if root.Body.Op == dialect.Alt {
		alts = root.Body.Subs
	}
	var out []*format
	whole := root.Body
	for i, a := range alts {
		if a.Op != dialect.Seq || a.Subs[0].Op != dialect.Lit || beginName(begin.str+a.Subs[0].Text) == "" {
			return nil
		}
		rest := fmt.Sprintf("call %d", i) // a name that no text can have
		g.Rules = append(g.Rules, dialect.Rule{Name: rest, Body: dialect.Then(a.Subs[1:]...)})
		whole = dialect.Or(whole, dialect.Use(rest))
		args := &format{kind: "grammar", text: rest, grammar: g, root: rest}
		if i == 0 { // once is enough to tell these tags from others
			args.text += content.get("grammar").text()
		}
		out = append(out, &format{kind: "tag", text: begin.str + a.Subs[0].Text, ends: []string{end.str}, parts: []*format{args}})
	}
	g.Rule("root").Body = whole
	m, err := g.Machine("", "root")
	if err != nil {
		return nil
	}
	for _, f := range out {
		f.parts[0].machine = m.From(f.parts[0].root)
	}
	return out
}

// read reads a grammar by the rules of xgrammar's EBNF. What the reader does not
// know is refused by name, as is a grammar that has no text.
func (f *format) read() error {
	var err error
	if f.grammar, err = dialect.ReadEBNF(f.text); err == nil {
		f.root = "root"
		f.machine, err = f.grammar.Machine("", f.root)
	}
	if err == nil && f.machine.Empty() {
		err = errors.New("it has no text")
	}
	if err != nil {
		return &formatError{"The simulated engine can't read the grammar: " + err.Error(), "response_format"}
	}
	return nil
}

// flags reads at_least_one and stop_after_first.
func (f *format) flags(n *node) error {
	for _, key := range []string{"at_least_one", "stop_after_first"} {
		if v := n.get(key); v != nil && v.kind != 't' && v.kind != 'f' {
			return errBadTag
		}
	}
	f.one, f.stop = isTrue(n.get("at_least_one")), isTrue(n.get("stop_after_first"))
	return nil
}

func isTrue(n *node) bool { return n != nil && n.kind == 't' }

func countPrefixes(triggers []string, begin string) int {
	n := 0
	for _, t := range triggers {
		if t != "" && strings.HasPrefix(begin, t) {
			n++
		}
	}
	return n
}

// legacyFormat is the tree of {structures, triggers}.
func legacyFormat(n *node) (*format, error) {
	f := &format{kind: "triggered_tags", triggers: n.get("triggers").strings()}
	for _, s := range n.get("structures").elements() {
		begin, end := s.get("begin"), s.get("end")
		schema := s.get("schema")
		if schema == nil {
			schema = &node{kind: 't'}
		}
		if begin == nil || begin.kind != '"' || end == nil || end.kind != '"' || countPrefixes(f.triggers, begin.str) != 1 {
			return nil, errBadTag
		}
		f.parts = append(f.parts, &format{
			kind: "tag", text: begin.str, ends: []string{end.str},
			parts: []*format{{kind: "json_schema", schema: schema}},
		})
	}
	if len(f.parts) == 0 || len(f.triggers) == 0 {
		return nil, errBadTag
	}
	return f, nil
}

// parseConstraint reads response_format, else structured_outputs; nil when
// neither constrains.
func parseConstraint(responseFormat, structured json.RawMessage) (*format, error) {
	if rf, err := optionalNode(responseFormat); err != nil {
		return nil, err
	} else if rf != nil {
		switch kind := rf.get("type").text(); kind {
		case "text":
		case "json_object":
			return &format{kind: "json_schema", schema: &node{kind: '{', keys: []string{"type"}, vals: []*node{stringNode("object")}}}, nil
		case "json_schema":
			js := rf.get("json_schema")
			if js == nil {
				return nil, &formatError{"When response_format type is 'json_schema', the 'json_schema' field must be provided.", "response_format"}
			}
			schema := js.get("schema")
			if schema == nil {
				schema = &node{kind: '{'}
			}
			return &format{kind: "json_schema", schema: schema}, nil
		case "structural_tag":
			return parseTag(rf)
		default:
			return nil, &formatError{fmt.Sprintf("response_format.type %q is none of text, json_object, json_schema and structural_tag", kind), "response_format"}
		}
	}
	so, err := optionalNode(structured)
	if err != nil || so == nil {
		return nil, err
	}
	n := 0
	for _, key := range []string{"json", "regex", "choice", "grammar", "json_object", "structural_tag"} {
		if v := so.get(key); v != nil && v.kind != 'n' {
			n++
		}
	}
	if n > 1 {
		return nil, &formatError{"You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').", ""}
	}
	switch {
	case so.has("grammar"):
		f, err := parseFormat(&node{kind: '{', keys: []string{"type", "grammar"}, vals: []*node{stringNode("grammar"), so.get("grammar")}}, 0)
		var e *formatError
		if errors.As(err, &e) {
			err = &formatError{e.msg, "structured_outputs"}
		}
		return f, err
	case so.has("json"):
		schema := so.get("json")
		if schema.kind == '"' {
			if schema, err = parseNode([]byte(schema.str)); err != nil {
				return nil, &formatError{"structured_outputs.json is no JSON: " + err.Error(), "structured_outputs"}
			}
		}
		return &format{kind: "json_schema", schema: schema}, nil
	case isTrue(so.get("json_object")):
		return &format{kind: "json_schema", schema: &node{kind: '{', keys: []string{"type"}, vals: []*node{stringNode("object")}}}, nil
	case so.has("regex"):
		return parseFormat(&node{kind: '{', keys: []string{"type", "pattern"}, vals: []*node{stringNode("regex"), so.get("regex")}}, 0)
	case so.has("choice"):
		f := &format{kind: "or"}
		for _, c := range so.get("choice").strings() {
			f.parts = append(f.parts, &format{kind: "const_string", text: c})
		}
		if len(f.parts) == 0 {
			return nil, &formatError{"structured_outputs.choice must be a list of strings that is not empty", "structured_outputs"}
		}
		return f, nil
	case so.has("structural_tag"):
		v := so.get("structural_tag")
		if v.kind != '"' {
			return nil, errBadStructured
		}
		tag, err := parseNode([]byte(v.str))
		if err != nil {
			return nil, errBadStructured
		}
		return parseTag(tag)
	}
	return nil, nil
}

func optionalNode(raw json.RawMessage) (*node, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	n, err := parseNode(raw)
	if err != nil {
		return nil, &formatError{err.Error(), ""}
	}
	if n.kind != '{' {
		return nil, errBadTag
	}
	return n, nil
}

func parseTag(n *node) (*format, error) {
	if n.has("structures") {
		return legacyFormat(n)
	}
	return parseFormat(n.get("format"), 0)
}

// toolChoiceFormat is the constraint of a required or named tool.
func toolChoiceFormat(begin func(string) string, end string, tools []*tool, named string, one bool) *format {
	f := &format{kind: "tags_with_separator", text: "\n", one: true, stop: one}
	for _, t := range tools {
		if named == "" || t.name == named {
			f.parts = append(f.parts, &format{
				kind: "tag", text: begin(t.name), ends: []string{end},
				parts: []*format{{kind: "json_schema", schema: t.schema}},
			})
		}
	}
	return f
}

// constrained writes a text that stays inside the format.
type constrained struct {
	p     *policy
	rng   *rand.Rand
	tools map[string]*tool // shown ones by name
	b     strings.Builder
	steps int
}

// Limits of one answer against formats that repeat without measure; what is cut
// by them is far longer than an answer can be, or empty.
const (
	maxFormatSteps = 100_000
	maxFormatBytes = 4 << 20
	maxDerived     = 200 // characters after which a random text makes for its end
)

func (c *constrained) write(f *format) {
	if c.steps++; c.steps > maxFormatSteps || c.b.Len() > maxFormatBytes {
		return
	}
	switch f.kind {
	case "const_string":
		c.b.WriteString(f.text)
	case "json_schema":
		v, _ := fill(f.schema, c.p.tr.request, c.p.seed)
		c.b.Write(v)
	case "regex":
		if s, ok := sampleRegexp(f.text, c.rng, 0, 1000); ok {
			c.b.WriteString(s)
		}
	case "grammar":
		// Of the texts inside a grammar the policy knows none better.
		if s, ok := f.grammar.Deriver("", f.root).Text(c.rng, maxDerived); ok {
			c.b.WriteString(s)
		}
	case "any_text":
		c.text(f.excludes)
	case "sequence":
		for _, part := range f.parts {
			c.write(part)
		}
	case "or":
		c.write(c.pick(f.parts))
	case "optional", "star":
		if c.wanted(f.parts[0]) {
			c.write(f.parts[0])
		}
	case "plus":
		c.write(f.parts[0])
	case "repeat":
		for i := 0; i < f.least && c.steps <= maxFormatSteps; i++ {
			c.write(f.parts[0])
		}
	case "tag":
		if list, _ := c.candidates([]*format{f}); len(list) > 0 {
			defer c.p.call(list[0])
		}
		c.tag(f)
	case "triggered_tags":
		c.tags(f, "", append(append([]string(nil), f.excludes...), f.triggers...))
	case "tags_with_separator":
		c.tags(f, f.text, nil)
	}
}

// text writes free text without the excluded strings.
func (c *constrained) text(excludes []string) {
	s := c.p.answer()
	for _, x := range excludes {
		if x != "" {
			s = strings.ReplaceAll(s, x, "")
		}
	}
	c.b.WriteString(s)
}

func (c *constrained) tags(f *format, separator string, excludes []string) {
	candidates, byTool := c.candidates(f.parts)
	wrote := false
	for c.p.again() || f.one && !wrote {
		var t *tool
		if len(candidates) > 0 {
			t = c.p.best(candidates)
			if t == nil && f.one && !wrote {
				t = c.p.forced(candidates)
			}
		}
		if t == nil {
			if f.one && !wrote { // tags that name no tool
				c.tag(f.parts[0])
				wrote = true
			}
			break
		}
		if wrote {
			c.b.WriteString(separator)
		}
		c.tag(byTool[t])
		c.p.call(t)
		wrote = true
		if f.stop {
			return
		}
	}
	if !wrote && f.kind == "triggered_tags" {
		c.text(excludes)
	}
}

// candidates are the tags that call a tool. The tool takes its description from
// the prompt and its schema from the tag.
func (c *constrained) candidates(tags []*format) ([]*tool, map[*tool]*format) {
	var out []*tool
	by := make(map[*tool]*format)
	seen := make(map[string]bool)
	for _, f := range tags {
		name := beginName(f.text)
		if f.kind != "tag" || name == "" || seen[name] {
			continue
		}
		seen[name] = true
		t := &tool{name: name, schema: &node{kind: 't'}}
		if shown := c.tools[name]; shown != nil {
			*t = *shown
		}
		if s := f.parts[0].schema; s != nil && s.kind == '{' {
			t.schema = s
		}
		f.tool = t
		by[t] = f
		out = append(out, t)
	}
	return out, by
}

// beginName is the tool that the begin of a tag names: the string after "name".
func beginName(begin string) string {
	_, rest, ok := strings.Cut(begin, `"name"`)
	if !ok {
		return ""
	}
	rest = strings.TrimLeft(rest, " \t\n:")
	if !strings.HasPrefix(rest, `"`) {
		return ""
	}
	var name string
	if json.NewDecoder(strings.NewReader(rest)).Decode(&name) != nil {
		return ""
	}
	return name
}

func (c *constrained) tag(f *format) {
	c.b.WriteString(f.text)
	content := f.parts[0]
	if content.kind == "json_schema" && f.tool != nil {
		t := *f.tool
		if content.schema.kind == 't' && c.tools[t.name] == nil {
			c.b.WriteString("{}")
		} else {
			args, _ := c.p.arguments(&t)
			c.b.WriteString(args)
		}
	} else if content.kind == "grammar" && f.tool != nil && c.tools[f.tool.name] != nil {
		// Arguments are written from the schema that the prompt shows, if the
		// grammar lets them through.
		t := *f.tool
		if args, _ := c.p.arguments(&t); content.machine.Accepts(args) {
			c.b.WriteString(args)
		} else {
			c.write(content)
		}
	} else {
		c.write(content)
	}
	c.b.WriteString(f.ends[0])
}

// wanted reports whether the format holds a call that the policy wants.
func (c *constrained) wanted(f *format) bool {
	if !c.p.again() {
		return false
	}
	switch f.kind {
	case "tag":
		list, _ := c.candidates([]*format{f})
		return len(list) > 0 && c.p.best(list) != nil
	case "triggered_tags", "tags_with_separator":
		list, _ := c.candidates(f.parts)
		return len(list) > 0 && c.p.best(list) != nil
	}
	for _, part := range f.parts {
		if c.wanted(part) {
			return true
		}
	}
	return false
}

func (f *format) calls() bool {
	if f.kind == "tag" {
		return beginName(f.text) != ""
	}
	for _, p := range f.parts {
		if p.calls() {
			return true
		}
	}
	return false
}

// pick is the alternative that holds the wanted call; else the first that holds
// none, of constant texts one that the request mentions; else the first.
func (c *constrained) pick(alternatives []*format) *format {
	var tags []*format
	for _, f := range alternatives {
		if f.kind == "tag" {
			tags = append(tags, f)
		}
	}
	if list, by := c.candidates(tags); len(list) > 0 && c.p.again() {
		if t := c.p.best(list); t != nil {
			return by[t]
		}
	}
	for _, f := range alternatives {
		if f.kind != "tag" && c.wanted(f) {
			return f
		}
	}
	h := hints{lower: strings.ToLower(c.p.tr.request)}
	for _, f := range alternatives {
		if f.kind == "const_string" && h.mentions(f.text) {
			return f
		}
	}
	for _, f := range alternatives {
		if !f.calls() {
			return f
		}
	}
	return alternatives[0]
}
