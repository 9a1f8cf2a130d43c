package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/prefix"
)

// A constraint is what the engine holds a reply to: one of the three, or nothing.
type constraint struct {
	tag    json.RawMessage // the format of a structural tag
	legacy string          // a structural tag of structures and triggers
	gbnf   grammar.Text    // a grammar of llama.cpp
}

func (c *constraint) none() bool { return c.tag == nil && c.legacy == "" && c.gbnf.Text == "" }

func (c *constraint) kind() string {
	switch {
	case c.tag != nil:
		return "structural tag"
	case c.legacy != "":
		return "legacy tag"
	}
	return "gbnf"
}

// lazy says that the constraint begins at a call.
func (c *constraint) lazy() bool { return c.gbnf.Lazy }

// put writes the constraint into a body, instead of the client's own format.
func (c *constraint) put(o *openai.Object) {
	switch {
	case c.tag != nil:
		o.Set("response_format", append(append([]byte(`{"type":"structural_tag","format":`), c.tag...), '}'))
	case c.legacy != "":
		o.Set("response_format", []byte(c.legacy))
	case c.gbnf.Text != "":
		o.Delete("response_format")
		o.Set("grammar", openai.AppendString(nil, c.gbnf.Text))
	}
}

// release takes the constraint out of the turn, and out of the body if an earlier
// round has put it there.
func (t *turn) release() {
	if t.constraint.none() {
		return
	}
	t.record.unheld()
	if t.format != nil {
		t.object.Set("response_format", t.format)
	} else {
		t.object.Delete("response_format")
	}
	if t.constraint.gbnf.Text != "" {
		t.object.Delete("grammar")
	}
	t.constraint = constraint{}
}

// allows says whether tool_choice lets the model call a tool, beside its mode.
func (t *turn) allows(name string) bool {
	return t.allowed == nil || slices.Contains(t.allowed, name)
}

// constrain compiles the callable tools and writes the constraint.
func (s *stages) constrain(t *turn) error {
	var err error
	t.offered, t.schemas, t.canSearch = map[string]*grammar.Checked{}, map[string]json.RawMessage{prefix.SearchTool: json.RawMessage(searchSchema)}, false
	ix := t.set.Index()
	syntax := grammar.SyntaxOf(t.info.Family)
	var tools []*grammar.Checked
	for _, shown := range t.conv.Shown() {
		i, ok := ix.Lookup(shown.Name)
		if !ok && shown.JSON == searchTool && t.searches() {
			checked, err := grammar.Compile(grammar.Tool{Name: shown.Name, Schema: []byte(searchSchema)}, grammar.Closed)
			if err != nil {
				panic("proxy: the schema of tool_search: " + err.Error()) // our own
			}
			t.offered[shown.Name], t.canSearch = checked, true
			tools = append(tools, checked)
			continue
		}
		if !ok || !t.mayUse(i) || !t.allows(shown.Name) || t.choice.Mode == grammar.None {
			continue
		}
		if t.choice.Mode == grammar.Named && shown.Name != t.choice.Name {
			continue
		}
		t.schemas[shown.Name] = ix.Tool(i).Schema
		mine := i >= t.set.Client() && t.choice.Mode != grammar.Named // the client can't mend a tool of the server
		if err := t.info.Family.CheckName(shown.Name); err != nil && mine {
			t.record.Dropped = append(t.record.Dropped, err.Error())
			continue
		} else if err != nil {
			return badRequest("tools", "%v", err)
		}
		if !s.cfg.Grammar {
			t.offered[shown.Name] = nil
			continue
		}
		checked, err := grammar.Compile(grammar.Tool{Name: shown.Name, Schema: ix.Tool(i).Schema}, s.cfg.World)
		if err == nil {
			err = syntax.Carries(checked)
		}
		if err != nil && mine {
			t.record.Dropped = append(t.record.Dropped, err.Error())
			continue
		}
		if err != nil {
			return badRequest("tools", "%v", err)
		}
		t.offered[shown.Name] = checked
		tools = append(tools, checked)
	}
	if len(t.offered) == 0 && (t.choice.Mode == grammar.Required || t.choice.Mode == grammar.Named) {
		return badRequest("tool_choice", "tool_choice %s: none of the tools it allows is on offer in this turn", t.choice.Mode)
	}
	if !s.cfg.Grammar {
		t.record.Constraint = "off"
		return nil
	}
	if t.format != nil {
		// It holds for the text of a reply without calls.
		if t.choice.Response, err = grammar.Compile(grammar.Tool{Name: "response_format", Schema: t.schema}, grammar.Open); err != nil {
			if ix.Len() == 0 { // the engine may know better
				return &unstaged{"response_format: " + err.Error()}
			}
			return badRequest("response_format", "response_format: %v", err)
		}
	}
	switch {
	case t.refused:
		t.record.Held = heldByNothing(tools)
	case t.noTag: // in an earlier round
		s.hold(t, syntax, tools, t.legacy)
	default:
		s.hold(t, syntax, tools, t.write)
	}
	if t.again = nil; t.constraint.tag != nil {
		t.again = func() { s.hold(t, syntax, tools, t.legacy) }
	}
	return nil
}

// A writing is a constraint, and how well it holds each tool.
type writing func(grammar.Syntax, []*grammar.Checked) (constraint, []grammar.ToolEmission, error)

// hold puts a constraint into the turn and says how well it holds each tool; or
// why there is none, and then the reply is checked alone.
func (s *stages) hold(t *turn, syntax grammar.Syntax, tools []*grammar.Checked, write writing) {
	c, held, err := write(syntax, tools)
	t.release()
	t.record.Checked, t.record.CompileMS = nil, 0
	if err != nil {
		t.record.Held = heldByNothing(tools)
		t.record.Constraint = "checked"
		t.record.fallBack(err.Error())
		return
	}
	t.constraint = c
	t.record.Held = s.heldBy(syntax, tools, held)
	t.record.Constraint = c.kind()
	for _, e := range held {
		if !e.Exact {
			t.record.Checked = append(t.record.Checked, e.Name+": "+strings.Join(e.Reasons, "; "))
		}
	}
}

// What a constraint may cost the engine. Its compiler has no timeout, and other
// requests may wait behind it; a turn's tools are within 6,000 tokens, which are
// some 25 kB of schemas and as a rule 2 s.
const (
	maxConstraint = 4 << 20 // bytes
	maxCompileMS  = 30_000  // predicted
)

// write writes the constraint in the notation of the engine, and how well it holds
// each tool.
func (t *turn) write(syntax grammar.Syntax, tools []*grammar.Checked) (constraint, []grammar.ToolEmission, error) {
	switch {
	case t.info.StructuralTag:
		e, err := grammar.Tag(syntax, tools, t.choice, grammar.Engine{Name: "xgrammar", Version: t.info.XGrammar()})
		t.record.CompileMS = e.CompileMS
		switch {
		case err != nil:
		case e.CompileMS > maxCompileMS:
			err = fmt.Errorf("no constraint: the engine would take %.0f s to compile it", e.CompileMS/1000)
		case len(e.Format) > maxConstraint:
			err = fmt.Errorf("no constraint: %d bytes, at most %d", len(e.Format), maxConstraint)
		}
		return constraint{tag: e.Format}, e.Tools, err
	case t.info.GBNF:
		e, err := grammar.Write(syntax, tools, t.choice, grammar.GBNF)
		for i := range e.Tools { // exact is what an engine was found to keep
			e.Tools[i].Exact = false
			e.Tools[i].Reasons = append(slices.Clip(e.Tools[i].Reasons), "#: llama.cpp has not been measured")
		}
		return constraint{gbnf: e}, e.Tools, err
	case t.info.LegacyTag:
		return t.legacy(syntax, tools)
	}
	return constraint{}, nil, errors.New("no constraint: " + t.info.TagReason)
}

// legacy is the older form of a tag, which always lets free text through: that a
// call is made is seen by the check. It has no place for a response_format.
func (t *turn) legacy(syntax grammar.Syntax, tools []*grammar.Checked) (constraint, []grammar.ToolEmission, error) {
	if t.choice.Response != nil || len(tools) == 0 {
		return constraint{}, nil, errors.New("no constraint: a legacy tag holds calls alone")
	}
	if t.choice.Mode == grammar.Named {
		tools = slices.DeleteFunc(slices.Clone(tools), func(c *grammar.Checked) bool { return c.Name() != t.choice.Name })
	}
	e, err := grammar.Write(syntax, tools, grammar.Choice{Mode: grammar.Auto, Parallel: t.choice.Parallel}, grammar.LegacyTag)
	return constraint{legacy: e.Text}, e.Tools, err
}
