package grammar

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Syntax is how a model family writes a call: the grammar package needs only
// these strings.
type Syntax struct {
	// Trigger begins every call and only calls: "<tool_call>".
	Trigger string
	// Begin is all that stands before the arguments; it starts with Trigger.
	Begin func(name string) string
	// End is what stands after the arguments.
	End string
	// Separator stands between calls. Qwen3 writes "\n".
	Separator string
	// Tokens are the markers in all these that the vocabulary has as one added
	// token: "<tool_call>". llguidance must be told; every engine takes both
	// spellings.
	Tokens []string
}

// Mode is the tool_choice of a request.
type Mode string

const (
	Auto     Mode = "auto"     // text, and calls where the model wants some
	Required Mode = "required" // calls and nothing else
	Named    Mode = "named"    // one call of one tool
	None     Mode = "none"     // text without any call
)

// Choice is what a request allows.
type Choice struct {
	Mode     Mode
	Name     string // of the tool, with Named
	Parallel bool   // more than one call
	// Response is the client's own response_format, compiled as a tool; nil if
	// it has none. With Auto and None the text must then be such an object;
	// Required and Named go before it.
	Response *Checked
}

// Engine names the constraint engine behind an inference server.
type Engine struct {
	Name    string // "xgrammar"
	Version string // "0.2.8"
}

// An EngineError says that an engine is not spoken to.
type EngineError struct{ Engine Engine }

func (e *EngineError) Error() string {
	return fmt.Sprintf("no structural tag for constraint engine %q; xgrammar from 0.2.7 on is supported", e.Engine.Name+" "+e.Engine.Version)
}

// Emission is a structural tag and what it promises.
type Emission struct {
	// Format is the value of "format" in a response_format of the type
	// structural_tag. Equal input gives equal bytes.
	Format json.RawMessage
	Tools  []ToolEmission // those that may be called, in the order given
	// Response is about Choice.Response, if it is part of the tag.
	Response *ToolEmission
	// CompileMS is about what the engine takes to compile it the first time, in
	// processor time: the sum over tools.
	CompileMS float64
}

// ToolEmission tells how well a tool is held by the engine.
type ToolEmission struct {
	Name string
	// Exact: every finished call fits the schema.
	Exact bool
	// Reasons, if not exact, name what must be checked after the reply:
	// "#/properties/tags/uniqueItems: checked after the reply".
	Reasons []string
}

// Tag writes the structural tag for a request over the tools that may be
// called. A tool that isn't exact is held to as much of its schema as the
// engine can keep and named as such.
//
//	auto       triggered_tags: free text, and at the trigger one of the calls
//	required   tags_with_separator: one call or more
//	named      the same with one tool and one call
//	none       any_text that excludes the trigger
//	response   with auto: calls as in required, or an object of the client's format; with none: the latter
func Tag(s Syntax, tools []*Checked, choice Choice, eng Engine) (Emission, error) {
	if eng.Name != "xgrammar" || tooOld(eng.Version) {
		return Emission{}, &EngineError{eng}
	}
	var e Emission
	if choice.Mode == Named {
		var one []*Checked
		for _, t := range tools {
			if t.name == choice.Name {
				one = append(one, t)
			}
		}
		tools = one
	}
	switch choice.Mode {
	case Auto, None:
	case Required, Named:
		if len(tools) == 0 {
			return Emission{}, fmt.Errorf("tool_choice %s %q: no such tool among those shown", choice.Mode, choice.Name)
		}
	default:
		return Emission{}, fmt.Errorf("unknown tool_choice mode %q", choice.Mode)
	}
	var out []byte
	switch {
	case choice.Mode == None || len(tools) == 0:
		if choice.Response != nil {
			out = e.response(out, choice.Response, eng)
			break
		}
		out = append(out, `{"type":"any_text","excludes":[`...)
		out = jsontext.AppendString(out, s.Trigger)
		out = append(out, `]}`...)
	case choice.Mode == Auto && choice.Response == nil:
		out = append(out, `{"type":"triggered_tags","triggers":[`...)
		out = jsontext.AppendString(out, s.Trigger)
		out = append(out, `],"tags":`...)
		out = e.tags(out, s, tools, eng)
		out = append(out, `,"at_least_one":false,"stop_after_first":`...)
		out = strconv.AppendBool(out, !choice.Parallel)
		out = append(out, '}')
	default:
		either := choice.Mode == Auto
		if either {
			out = append(out, `{"type":"or","elements":[`...)
		}
		out = append(out, `{"type":"tags_with_separator","tags":`...)
		out = e.tags(out, s, tools, eng)
		out = append(out, `,"separator":`...)
		out = jsontext.AppendString(out, s.Separator)
		out = append(out, `,"at_least_one":true,"stop_after_first":`...)
		out = strconv.AppendBool(out, !choice.Parallel || choice.Mode == Named)
		out = append(out, '}')
		if either {
			out = append(out, ',')
			out = e.response(out, choice.Response, eng)
			out = append(out, `]}`...)
		}
	}
	e.Format = out
	return e, nil
}

func (e *Emission) tags(out []byte, s Syntax, tools []*Checked, eng Engine) []byte {
	out = append(out, '[')
	for i, t := range tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"type":"tag","begin":`...)
		out = jsontext.AppendString(out, s.Begin(t.name))
		out = append(out, `,"content":{"type":"grammar","grammar":`...)
		out = append(out, t.content.quoted...)
		out = append(out, `},"end":`...)
		out = jsontext.AppendString(out, s.End)
		out = append(out, '}')
		e.Tools = append(e.Tools, t.emission(eng))
		e.CompileMS += t.content.costMS
	}
	return append(out, ']')
}

func (e *Emission) response(out []byte, r *Checked, eng Engine) []byte {
	te := r.emission(eng)
	e.Response = &te
	e.CompileMS += r.content.costMS
	out = append(out, `{"type":"grammar","grammar":`...)
	out = append(out, r.content.quoted...)
	return append(out, '}')
}

func (c *Checked) emission(eng Engine) ToolEmission {
	te := ToolEmission{Name: c.name, Reasons: c.content.reasons}
	if why := distrust(eng); why != "" {
		te.Reasons = append(te.Reasons[:len(te.Reasons):len(te.Reasons)], why)
	}
	te.Exact = len(te.Reasons) == 0
	return te
}

// tooOld tells whether a version is known and before the first on which rules
// with max_chars were tried.
func tooOld(version string) bool { return before(version, "0.2.7") }
