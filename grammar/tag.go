package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Syntax is how a model family writes a call; see [SyntaxOf].
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

	// Triggers are all texts that begin calls; empty when Trigger is the only one.
	Triggers []string
	// Begins are all spellings of Begin; nil when there is one.
	Begins func(name string) []string
	// Section and SectionEnd stand around the calls of a reply; "" for nothing.
	// Trigger is Section then.
	Section, SectionEnd string
	// ID is a regular expression for the id between Begin and AfterID; "" when
	// the arguments follow Begin.
	ID, AfterID string
	// Parameters, if not nil, is how the arguments are written one by one.
	Parameters *Parameters
	// Channels says that a reply is messages of channels (gpt-oss), among which
	// calls stand.
	Channels bool
	// CheckName says why a tool can't be called by its name; nil for any name.
	CheckName func(name string) error
}

func (s *Syntax) triggers() []string {
	if len(s.Triggers) == 0 {
		return []string{s.Trigger}
	}
	return s.Triggers
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

// among is the tools that may be called, of those shown.
func (c Choice) among(tools []*Checked) ([]*Checked, error) {
	switch c.Mode {
	case None:
		return nil, nil
	case Auto:
		return tools, nil
	case Named:
		tools = slices.DeleteFunc(slices.Clone(tools), func(t *Checked) bool { return t.name != c.Name })
	case Required:
	default:
		return nil, fmt.Errorf("unknown tool_choice mode %q", c.Mode)
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("tool_choice %s %q: no such tool among those shown", c.Mode, c.Name)
	}
	return tools, nil
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
	// processor time. Rules that tools have in common count once.
	CompileMS float64

	cost dialect.Cost
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
//
// Where calls stand in a section, the section is the tag. Where a reply is
// messages of channels, it is tags_with_separator over messages.
//
//	response   with auto: calls as in required, or an object of the client's format; with none: the latter
func Tag(s Syntax, tools []*Checked, choice Choice, eng Engine) (Emission, error) {
	if eng.Name != "xgrammar" || tooOld(eng.Version) {
		return Emission{}, &EngineError{eng}
	}
	var e Emission
	tools, err := choice.among(tools)
	if err != nil {
		return Emission{}, err
	}
	tags, err := e.tags(s, tools, eng)
	if err != nil {
		return Emission{}, err
	}
	var out []byte
	switch {
	case s.Channels:
		out = e.channels(out, s, tags, choice, eng)
	case len(tools) == 0:
		if choice.Response != nil {
			out = e.response(out, choice.Response, eng)
			break
		}
		out = e.anyText(out, s.triggers())
	case choice.Mode == Auto && choice.Response == nil:
		triggers := s.triggers()
		e.free(triggers)
		if s.Section != "" {
			tags = s.section(tags, choice)
			triggers = triggers[:1]
		}
		out = append(out, `{"type":"triggered_tags","triggers":`...)
		out = appendStrings(out, triggers)
		out = append(append(append(out, `,"tags":[`...), tags...), ']')
		if len(s.triggers()) > len(triggers) {
			out = append(out, `,"excludes":`...)
			out = appendStrings(out, s.triggers()[len(triggers):])
		}
		out = append(out, `,"at_least_one":false,"stop_after_first":`...)
		out = strconv.AppendBool(out, !choice.Parallel)
		out = append(out, '}')
	default:
		either := choice.Mode == Auto
		if either {
			out = append(out, `{"type":"or","elements":[`...)
		}
		if s.Section != "" {
			out = append(out, s.section(tags, choice)...)
		} else {
			out = append(out, s.several(tags, choice)...)
		}
		if either {
			out = append(out, ',')
			out = e.response(out, choice.Response, eng)
			out = append(out, `]}`...)
		}
	}
	e.Format = out
	e.CompileMS = e.cost.MS()
	return e, nil
}

// several is one of tags or, when the choice allows it, more.
func (s *Syntax) several(tags []byte, choice Choice) []byte {
	return separated(tags, s.Separator, true, !choice.Parallel || choice.Mode == Named)
}

// separated is tags with a text between them.
func separated(tags []byte, between string, atLeastOne, one bool) []byte {
	out := append([]byte(`{"type":"tags_with_separator","tags":[`), tags...)
	out = append(out, `],"separator":`...)
	out = jsontext.AppendString(out, between)
	out = append(out, `,"at_least_one":`...)
	out = strconv.AppendBool(out, atLeastOne)
	out = append(out, `,"stop_after_first":`...)
	out = strconv.AppendBool(out, one)
	return append(out, '}')
}

// section is the tag around the calls of a reply.
func (s *Syntax) section(tags []byte, choice Choice) []byte {
	return tag(s.Section, s.several(tags, choice), s.SectionEnd)
}

func tag(begin string, content []byte, ends ...string) []byte {
	out := jsontext.AppendString([]byte(`{"type":"tag","begin":`), begin)
	out = append(append(append(out, `,"content":`...), content...), `,"end":`...)
	if len(ends) == 1 {
		out = jsontext.AppendString(out, ends[0])
	} else {
		out = appendStrings(out, ends)
	}
	return append(out, '}')
}

func constant(s string) []byte {
	return append(jsontext.AppendString([]byte(`{"type":"const_string","value":`), s), '}')
}

// elements is a format made of others.
func elements(kind string, all ...[]byte) []byte {
	out := append([]byte(`{"type":"`), kind...)
	out = append(append(out, `","elements":[`...), bytes.Join(all, []byte(","))...)
	return append(out, `]}`...)
}

// free counts that text is free until one of texts.
func (e *Emission) free(texts []string) {
	for _, t := range texts {
		e.cost.Free += len(t)
	}
}

func (e *Emission) anyText(out []byte, excludes []string) []byte {
	e.free(excludes)
	return append(appendStrings(append(out, `{"type":"any_text","excludes":`...), excludes), '}')
}

func appendStrings(out []byte, list []string) []byte {
	out = append(out, '[')
	for i, s := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsontext.AppendString(out, s)
	}
	return append(out, ']')
}

// Carries says why no call to a tool can be written in this syntax; nil if one
// can.
func (s *Syntax) Carries(t *Checked) error {
	if s.CheckName != nil {
		if err := s.CheckName(t.name); err != nil {
			return err
		}
	}
	if s.Parameters != nil {
		_, err := t.parameters(s.Parameters)
		return err
	}
	return nil
}

// The messages of gpt-oss beside calls: reasoning, words before a call, and the
// answer.
const (
	analysisMessage = "<|channel|>analysis<|message|>"
	preambleMessage = "<|channel|>commentary<|message|>"
	finalMessage    = "<|channel|>final<|message|>"
)

// channels is a reply of messages. Reasoning is free; a call ends the reply
// unless more are allowed.
func (e *Emission) channels(out []byte, s Syntax, calls []byte, choice Choice, eng Engine) []byte {
	text := e.anyText(nil, []string{"<|start|>", "<|channel|>", "<|message|>", "<|call|>"})
	analysis := tag(analysisMessage, text, "<|end|>")
	answer := text
	if choice.Response != nil && (choice.Mode == Auto || choice.Mode == None) {
		answer = e.response(nil, choice.Response, eng)
	}
	final := tag(finalMessage, answer, "<|end|>", "<|return|>")
	others := join(analysis, tag(preambleMessage, text, "<|end|>"))
	must := choice.Mode == Required || choice.Mode == Named
	one := !choice.Parallel || choice.Mode == Named
	switch {
	case len(calls) == 0:
		return append(out, separated(join(others, final), s.Separator, true, false)...)
	case !must && !one:
		return append(out, separated(join(join(calls, others), final), s.Separator, true, false)...)
	}
	several := separated(calls, s.Separator, true, one)
	before := separated(others, s.Separator, true, false)
	alts := [][]byte{several, elements("sequence", before, constant(s.Separator), several)}
	if !must {
		alts = append(alts, separated(join(others, final), s.Separator, true, false))
	}
	return append(out, elements("or", alts...)...)
}

func join(a, b []byte) []byte { return append(append(append([]byte(nil), a...), ','), b...) }

func (e *Emission) response(out []byte, r *Checked, eng Engine) []byte {
	te := r.emission(eng)
	e.Response = &te
	var g grammarNode
	g.add(&r.content.fragment)
	e.cost = e.cost.Add(g.cost)
	return append(out, g.node(dialect.Use(r.content.Root()))...)
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
