// Package wire describes how model families are written to and read from: the
// framing of turns, the text that shows tools, the spelling of a tool call and
// of its result, and where reasoning stands. A [Family] is data; the functions
// on it render prompts byte for byte as the model's own chat template does, and
// [Parser] turns generated text back into text and calls, however it was cut.
//
// The families stand in families.go; [Family.Form] says which of four forms the
// calls of one have:
//
//	Object      one JSON object with the name and the arguments in it
//	Value       the name in tags, then the arguments as JSON
//	Parameters  the name in tags, then each argument in tags of its own
//	Channels    messages of several channels, some of them to a tool
//
// Not described here: multimodal parts, documents, templates that print the
// date of today, and Python syntax for calls.
package wire

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Family is the wire format of one model family. The values of this package
// are shared and must not be changed.
type Family struct {
	Name    string
	Aliases []string

	// Framing. A turn is TurnStart, role, "\n", content, TurnEnd.
	TurnStart string
	TurnEnd   string
	// Roles are the tokens that begin the turns of each role, where each role has
	// its own. Then turns need no TurnEnd.
	Roles map[string]string
	// TurnLead is what the template writes between the prompt for an answer and the
	// content of a past turn: the model has generated it.
	TurnLead string
	// DefaultSystem is the content of the system turn that the template writes
	// when the conversation does not start with one; "" for none.
	DefaultSystem string
	// StopTokens are the special tokens that end generation, the usual one first.
	StopTokens []string
	// Controls are the spellings of the vocabulary's control tokens.
	Controls []string

	// TemplateTools says that the chat template renders tools, calls in history
	// and results by itself. Without it Render leaves them out, as the template
	// does, and a caller writes ToolsText, CallText and ResponseText into the
	// content of turns.
	TemplateTools bool
	// TemplateOnly says that tools can be shown by the engine's own template
	// only: their text is no part of any turn's content.
	TemplateOnly bool

	// The texts around the tools of the system turn: ToolsHead, one "\n" and
	// tool per tool, ToolsTail, ToolsUse.
	ToolsHead string
	ToolsTail string
	ToolsUse  string
	// The tags around tools that are shown late.
	LateOpen  string
	LateClose string

	Calls Syntax

	// ResultRole is the role of a turn that holds a result: "user" when the
	// family frames results in its text by ResponseOpen and ResponseClose, joined
	// by ResponseJoin, or "tool" when the template frames a bare text.
	ResultRole    string
	ResponseOpen  string
	ResponseClose string
	ResponseJoin  string

	// ThinkOpen and ThinkClose stand around reasoning; "" when the family has none.
	ThinkOpen  string
	ThinkClose string
	// ThinkInPrompt says that the prompt of a thinking turn ends with ThinkOpen,
	// so that the generated text begins inside reasoning: see [Parser.Thinking].
	ThinkInPrompt bool
	// ThoughtOpen and ThoughtClose are ThinkOpen and ThinkClose with the blanks that
	// stand around them in a past turn whose reasoning the template keeps.
	ThoughtOpen  string
	ThoughtClose string
	// NoThought is what the template writes into a past turn without reasoning,
	// whether or not it stood in the prompt that the turn was generated from; "" where
	// it writes nothing.
	NoThought string

	// tool appends one tool as the template shows it; nil for AppendTool.
	tool func(dst []byte, tool json.RawMessage) []byte
	// render is Render without the prompt for an answer.
	render func(f *Family, dst []byte, msgs []Message, tools []json.RawMessage, opt Options) []byte
	// prompt is what follows a conversation to which an answer is wanted.
	prompt func(f *Family, dst []byte, msgs []Message, opt Options) []byte
}

// ByName returns the family of that name or alias.
func ByName(name string) (*Family, error) {
	var known []string
	for _, f := range families {
		if f.Name == name {
			return f, nil
		}
		known = append(known, f.Name)
		for _, a := range f.Aliases {
			if a == name {
				return f, nil
			}
			known = append(known, a)
		}
	}
	return nil, fmt.Errorf("unknown model family %q; known are %s", name, strings.Join(known, ", "))
}

// Message is one message of a conversation. Role is "system", "user",
// "assistant" or "tool"; what other roles render to is the family's affair.
type Message struct {
	Role    string
	Content string
	// Calls are those of an assistant message.
	Calls []Call
	// Reasoning is the reasoning of an assistant message, without its tags; ""
	// when the message has none or has it inside Content.
	Reasoning string
}

// Call is a tool call. Arguments is raw JSON text.
type Call struct {
	Name      string
	Arguments string
	// ID is the call's id where the family spells one; "" for the usual one.
	ID string
}

// Options are the variables of the chat template.
type Options struct {
	AddGenerationPrompt bool
	// EnableThinking is the template's enable_thinking; nil leaves it undefined.
	EnableThinking *bool
}

// ResponseText is the content of the one user turn which holds the results of
// consecutive calls.
func (f *Family) ResponseText(results []string) string {
	var b strings.Builder
	for i, r := range results {
		if i > 0 {
			b.WriteString(f.ResponseJoin)
		}
		b.WriteString(f.ResponseOpen)
		b.WriteString(r)
		b.WriteString(f.ResponseClose)
	}
	return b.String()
}

// LateText is the content of a tool result that shows tools in the middle of a
// conversation, one to a line.
func (f *Family) LateText(tools []json.RawMessage) string {
	dst := append([]byte(nil), f.LateOpen...)
	for _, t := range tools {
		dst = append(dst, '\n')
		dst = f.appendTool(dst, t)
	}
	dst = append(dst, '\n')
	return string(append(dst, f.LateClose...))
}

// ToolsText is what stands in the system turn after the client's system text
// and the two newlines that part them (see [Family.SystemText]). A directory of
// tools that are not shown goes between the tools and the words on how to call;
// with directory "" the text is that of the template.
func (f *Family) ToolsText(tools []json.RawMessage, directory string) string {
	return string(f.appendTools(nil, tools, directory))
}

// SystemText joins the client's system text with a tools text. The template
// parts them by an empty line whenever the conversation starts with a system
// message, also an empty one.
func (f *Family) SystemText(system string, hasSystem bool, toolsText string) string {
	if !hasSystem {
		return toolsText
	}
	return system + "\n\n" + toolsText
}

func (f *Family) appendTools(dst []byte, tools []json.RawMessage, directory string) []byte {
	dst = append(dst, f.ToolsHead...)
	for _, t := range tools {
		dst = append(dst, '\n')
		dst = f.appendTool(dst, t)
	}
	dst = append(dst, f.ToolsTail...)
	for _, text := range []string{directory, f.ToolsUse} {
		if text != "" {
			dst = append(append(dst, "\n\n"...), text...)
		}
	}
	return dst
}

func (f *Family) appendTool(dst []byte, tool json.RawMessage) []byte {
	if f.tool != nil {
		return f.tool(dst, tool)
	}
	return AppendTool(dst, tool)
}
