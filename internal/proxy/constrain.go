package proxy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/prefix"
)

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
		if !ok || !t.allows(shown.Name) || t.choice.Mode == grammar.None {
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
		if t.choice.Response, err = response(t.format); err != nil {
			return err
		}
	}
	if t.refused {
		return nil
	}
	if !t.info.StructuralTag {
		t.record.Constraint = "checked"
		t.record.fallBack("no structural tag: " + t.info.TagReason)
		return nil
	}
	emitted, err := grammar.Tag(syntax, tools, t.choice, grammar.Engine{Name: "xgrammar", Version: t.info.XGrammar()})
	if err != nil {
		t.record.Constraint = "checked"
		t.record.fallBack(err.Error())
		return nil
	}
	t.emitted = emitted
	t.record.Constraint, t.record.Checked = "structural tag", nil
	for _, e := range emitted.Tools {
		if !e.Exact {
			t.record.Checked = append(t.record.Checked, e.Name+": "+strings.Join(e.Reasons, "; "))
		}
	}
	return nil
}

// response compiles the client's own response_format, which then holds for the
// text of a reply without calls.
func response(format []byte) (*grammar.Checked, error) {
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(format, &f); err != nil {
		return nil, badRequest("response_format", "response_format: %v", err)
	}
	schema := []byte(`{"type":"object","additionalProperties":true}`)
	if f.Type == "json_schema" {
		schema = f.Schema.Schema
	}
	c, err := grammar.Compile(grammar.Tool{Name: "response_format", Schema: schema}, grammar.Open)
	if err != nil {
		return nil, badRequest("response_format", "response_format: %v", err)
	}
	return c, nil
}
