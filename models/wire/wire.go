// Package wire describes how model families are written to and read from: the
// framing of turns, the text that shows tools, the spelling of a tool call and
// of its result, and where reasoning stands. A [Family] is data; the functions
// on it render prompts byte for byte as the model's own chat template does, and
// [Parser] turns generated text back into text and calls, however it was cut.
//
// Families built in: "hermes" (also called "qwen3": the template of Qwen3,
// whose call syntax Hermes and Qwen2.5 share) and "chatml" (SmolLM2: turns
// only, the template knows neither tools nor calls, so that their texts go into
// the content of turns).
//
// Not described here: multimodal parts, documents, templates that print
// dates, and families whose calls are not JSON objects between two tags.
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

	// The texts around the tools of the system turn: ToolsHead, one "\n" and
	// tool per tool, ToolsTail, ToolsUse.
	ToolsHead string
	ToolsTail string
	ToolsUse  string
	// The tags around tools that are shown late.
	LateOpen  string
	LateClose string

	// A call is CallOpen, "\n", CallName, name, CallArguments, arguments, CallClose.
	CallOpen      string
	CallName      string
	CallArguments string
	CallClose     string // from the brace that closes the call object
	CallTag       string // the tag that ends CallClose

	ResponseOpen  string
	ResponseClose string

	// ThinkOpen and ThinkClose stand around reasoning; "" when the family has none.
	ThinkOpen  string
	ThinkClose string
}

const hermesUse = "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
	"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"

var hermes = Family{
	Name:          "hermes",
	Aliases:       []string{"qwen3"},
	TurnStart:     "<|im_start|>",
	TurnEnd:       "<|im_end|>\n",
	StopTokens:    []string{"<|im_end|>", "<|endoftext|>"},
	Controls:      qwenControls,
	TemplateTools: true,
	ToolsHead: "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
	ToolsTail:     "\n</tools>",
	ToolsUse:      hermesUse,
	LateOpen:      "<tools>",
	LateClose:     "</tools>",
	CallOpen:      "<tool_call>",
	CallName:      `{"name": "`,
	CallArguments: `", "arguments": `,
	CallClose:     "}\n</tool_call>",
	CallTag:       "</tool_call>",
	ResponseOpen:  "<tool_response>\n",
	ResponseClose: "\n</tool_response>",
	ThinkOpen:     "<think>",
	ThinkClose:    "</think>",
}

var chatml = func() Family {
	f := hermes
	f.Name = "chatml"
	f.Aliases = []string{"smollm2"}
	f.DefaultSystem = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
	f.TemplateTools = false
	f.Controls = smolControls
	f.ThinkOpen, f.ThinkClose = "", ""
	return f
}()

var families = []*Family{&hermes, &chatml}

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
}

// Options are the variables of the chat template.
type Options struct {
	AddGenerationPrompt bool
	// EnableThinking is the template's enable_thinking; nil leaves it undefined.
	EnableThinking *bool
}

// Trigger is the text that starts a call.
func (f *Family) Trigger() string { return f.CallOpen }

// CallBegin is the text of a call to name up to its arguments.
func (f *Family) CallBegin(name string) string {
	return f.CallOpen + "\n" + f.CallName + nameText(name) + f.CallArguments
}

// CallEnd is the text of a call after its arguments.
func (f *Family) CallEnd() string { return f.CallClose }

// CallText is the text of a call as a model writes it, the name JSON-escaped
// and the arguments as they are; no arguments at all are written as {}.
func (f *Family) CallText(c Call) string {
	args := c.Arguments
	if args == "" {
		args = "{}"
	}
	return f.CallBegin(c.Name) + args + f.CallEnd()
}

// TurnText is the content of an assistant turn: content and calls joined as the
// template joins them, with one newline before a call that something precedes.
func (f *Family) TurnText(content string, calls []Call) string {
	var b strings.Builder
	b.WriteString(content)
	for i, c := range calls {
		if i > 0 || content != "" {
			b.WriteByte('\n')
		}
		b.WriteString(f.CallText(c))
	}
	return b.String()
}

// ResponseText is the content of the one user turn which holds the results of
// consecutive calls.
func (f *Family) ResponseText(results []string) string {
	var b strings.Builder
	for i, r := range results {
		if i > 0 {
			b.WriteByte('\n')
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
		dst = AppendTool(dst, t)
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
		dst = AppendTool(dst, t)
	}
	dst = append(dst, f.ToolsTail...)
	dst = append(dst, "\n\n"...)
	if directory != "" {
		dst = append(dst, directory...)
		dst = append(dst, "\n\n"...)
	}
	return append(dst, f.ToolsUse...)
}

// nameText is a name as it stands between the quotes of a call.
func nameText(name string) string {
	q := appendString(nil, name)
	return string(q[1 : len(q)-1])
}
