package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Render appends the prompt which the family's chat template makes of a
// conversation, in the form in which vLLM 0.32 hands it to the template: tools
// and the arguments of calls are read as JSON and written again as Python
// writes them (see [AppendTool] and [AppendPython]), and arguments that are no
// JSON object become {}.
//
// With tools, the calls and results in msgs are rendered by the template's own
// rules. A name is not escaped, as the template doesn't either. A family with
// TemplateOnly renders to nothing.
func (f *Family) Render(dst []byte, msgs []Message, tools []json.RawMessage, opt Options) []byte {
	if f.render == nil {
		return dst
	}
	dst = f.render(f, dst, msgs, tools, opt)
	if opt.AddGenerationPrompt {
		dst = f.prompt(f, dst, msgs, opt)
	}
	return dst
}

// AnswerPrompt is what Render appends to a conversation to which an answer is
// wanted.
func (f *Family) AnswerPrompt(msgs []Message, opt Options) string {
	if f.prompt == nil {
		return ""
	}
	return string(f.prompt(f, nil, msgs, opt))
}

// Spoken is the text of a turn as the model generates it behind an AnswerPrompt.
func (f *Family) Spoken(answerPrompt, reasoning, text string) string {
	within := f.ThinkInPrompt && strings.HasSuffix(answerPrompt, f.ThinkOpen)
	switch text = f.TurnLead + text; {
	case f.ThinkClose == "" || reasoning == "" && !within:
		return text
	case within:
		return reasoning + f.ThoughtClose + text
	}
	return f.ThoughtOpen + reasoning + f.ThoughtClose + text
}

// Seams are the tokens that part an assistant's turn from what follows it.
func (f *Family) Seams() []string {
	if f.Roles == nil {
		return []string{f.TurnStart, strings.TrimRight(f.TurnEnd, "\n")}
	}
	return slices.Sorted(maps.Values(f.Roles))
}

func (f *Family) promptChatML(dst []byte, _ []Message, opt Options) []byte {
	dst = append(dst, f.TurnStart...)
	dst = append(dst, "assistant\n"...)
	if f.ThinkOpen != "" && opt.EnableThinking != nil && !*opt.EnableThinking {
		dst = append(dst, f.ThinkOpen...)
		dst = append(dst, "\n\n"...)
		dst = append(dst, f.ThinkClose...)
		dst = append(dst, "\n\n"...)
	}
	return dst
}

func (f *Family) appendTurn(dst []byte, role, content string) []byte {
	dst = append(dst, f.TurnStart...)
	dst = append(dst, role...)
	dst = append(dst, '\n')
	dst = append(dst, content...)
	return append(dst, f.TurnEnd...)
}

// renderPlain is a template that writes every message alike.
func (f *Family) renderPlain(dst []byte, msgs []Message, _ []json.RawMessage, _ Options) []byte {
	if len(msgs) > 0 && msgs[0].Role != "system" && f.DefaultSystem != "" {
		dst = f.appendTurn(dst, "system", f.DefaultSystem)
	}
	for _, m := range msgs {
		dst = f.appendTurn(dst, m.Role, m.Content)
	}
	return dst
}

func (f *Family) renderTools(dst []byte, msgs []Message, tools []json.RawMessage, _ Options) []byte {
	hasSystem := len(msgs) > 0 && msgs[0].Role == "system"
	switch {
	case len(tools) > 0:
		dst = append(dst, f.TurnStart...)
		dst = append(dst, "system\n"...)
		if hasSystem {
			dst = append(dst, msgs[0].Content...)
			dst = append(dst, "\n\n"...)
		}
		dst = f.appendTools(dst, tools, "")
		dst = append(dst, f.TurnEnd...)
	case hasSystem:
		dst = f.appendTurn(dst, "system", msgs[0].Content)
	}
	query := f.lastQuery(msgs)
	for i, m := range msgs {
		switch {
		case m.Role == "user" || m.Role == "system" && i > 0:
			dst = f.appendTurn(dst, m.Role, m.Content)
		case m.Role == "assistant":
			dst = f.appendAssistant(dst, m, i > query, i == len(msgs)-1)
		case m.Role == "tool":
			if i == 0 || msgs[i-1].Role != "tool" {
				dst = append(dst, f.TurnStart...)
				dst = append(dst, "user"...)
			}
			dst = append(dst, '\n')
			dst = append(dst, f.ResponseOpen...)
			dst = append(dst, m.Content...)
			dst = append(dst, f.ResponseClose...)
			if i == len(msgs)-1 || msgs[i+1].Role != "tool" {
				dst = append(dst, f.TurnEnd...)
			}
		}
	}
	return dst
}

// lastQuery is the index of the last user message that is not the text of tool
// results; the reasoning of assistant turns before it is left out. Without such
// a message it is the last index.
func (f *Family) lastQuery(msgs []Message) int {
	open := strings.TrimSuffix(f.ResponseOpen, "\n")
	end := strings.TrimPrefix(f.ResponseClose, "\n")
	for i := len(msgs) - 1; i >= 0; i-- {
		m := &msgs[i]
		if m.Role == "user" && !(strings.HasPrefix(m.Content, open) && strings.HasSuffix(m.Content, end)) {
			return i
		}
	}
	return len(msgs) - 1
}

func (f *Family) appendAssistant(dst []byte, m Message, afterQuery, last bool) []byte {
	content, reasoning := m.Content, m.Reasoning
	if reasoning == "" {
		content, reasoning = f.SplitReasoning(content)
	}
	dst = append(dst, f.TurnStart...)
	dst = append(dst, "assistant\n"...)
	if afterQuery && (last || reasoning != "") {
		dst = append(dst, f.ThinkOpen...)
		dst = append(dst, '\n')
		dst = append(dst, strings.Trim(reasoning, "\n")...)
		dst = append(dst, '\n')
		dst = append(dst, f.ThinkClose...)
		dst = append(dst, "\n\n"...)
		dst = append(dst, strings.TrimLeft(content, "\n")...)
	} else {
		dst = append(dst, content...)
	}
	for i, c := range m.Calls {
		if i > 0 || content != "" {
			dst = append(dst, '\n')
		}
		dst = f.appendCall(dst, c)
	}
	return append(dst, f.TurnEnd...)
}

// appendCall appends a call in history, whose arguments Python writes.
func (f *Family) appendCall(dst []byte, c Call) []byte {
	s := &f.Calls
	dst = append(append(append(append(dst, s.Open...), s.Name...), c.Name...), s.Arguments...)
	return append(appendArguments(dst, c.Arguments), s.Close...)
}

// SplitReasoning parts content that still holds its reasoning: what follows the
// last closing tag is content, what stands between the last opening tag before
// the first closing tag and that tag is reasoning.
func (f *Family) SplitReasoning(content string) (rest, reasoning string) {
	first := strings.Index(content, f.ThinkClose)
	if first < 0 {
		return content, ""
	}
	reasoning = strings.TrimRight(content[:first], "\n")
	if i := strings.LastIndex(reasoning, f.ThinkOpen); i >= 0 {
		reasoning = reasoning[i+len(f.ThinkOpen):]
	}
	last := strings.LastIndex(content, f.ThinkClose)
	return strings.TrimLeft(content[last+len(f.ThinkClose):], "\n"), strings.TrimLeft(reasoning, "\n")
}

// appendArguments appends the arguments of a call in history.
func appendArguments(dst []byte, arguments string) []byte {
	raw := bytes.TrimLeft([]byte(arguments), " \t\r\n")
	if len(raw) == 0 || raw[0] != '{' {
		return append(dst, "{}"...)
	}
	n := len(dst)
	dst, err := AppendPython(dst, raw)
	if err != nil {
		return append(dst[:n], "{}"...)
	}
	return dst
}
