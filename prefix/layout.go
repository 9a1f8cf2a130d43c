package prefix

import (
	"encoding/json"
	"strings"

	"github.com/toolsidecar/sidecar/models/wire"
)

// SearchTool is the name of the call that a late block answers.
const SearchTool = "tool_search"

// Turn is one message of the layout that goes to the engine.
type Turn struct {
	Role string
	Text string
	// Client is the index of the client message whose own bytes are sent
	// unchanged, or -1 when Role and Text are ours.
	Client int
	// Generated says that the engine wrote this text itself.
	Generated bool
}

// Layout is the message list for the engine in owned-text mode:
//
//	system    the client's text, a blank line, the family's tools text
//	user      the client's bytes; a later developer message as system text
//	assistant tool_search(query)          late blocks,
//	user      <tool_response>tools</…>    after the message they were decided at
//	assistant the generated text, as the engine generated it
//	user      <tool_response>…</…>        a run of tool results, one turn
//
// Where the family's template frames results ([wire.Family.ResultRole]), each is
// a turn of its own with the bare text.
//
// Every turn but the last is the same on the next request of the conversation,
// which makes the prompt a prefix of the next one.
//
// No text spells a control token of the family, and neither a result nor a tool
// spells the tags of its frame: see [wire.Family.Neutral]. The bytes of a client's
// message (Turn.Client) are the client's; whoever sends them sees to it.
func (c *Conversation) Layout(f *wire.Family) []Turn {
	turns := c.layout(f)
	for i := range turns {
		turns[i].Text = f.Neutral(turns[i].Text)
	}
	return turns
}

func (c *Conversation) layout(f *wire.Family) []Turn {
	var turns []Turn
	start := 0
	tools := ""
	if c.front != nil {
		tools = f.ToolsText(rawTools(f, c.front), c.front.Directory)
	}
	switch {
	case tools == "":
	case len(c.messages) > 0 && isSystem(c.messages[0].Role) && c.messages[0].Opaque == nil:
		turns = append(turns, Turn{Role: "system", Text: f.SystemText(c.messages[0].Text, true, tools), Client: -1})
		turns = c.appendLate(turns, f, 0)
		start = 1
	default:
		turns = append(turns, Turn{Role: "system", Text: f.SystemText("", false, tools), Client: -1})
	}
	for i := start; i < len(c.messages); i++ {
		m := &c.messages[i]
		switch {
		case m.Opaque != nil:
			turns = append(turns, Turn{Role: m.Role, Client: i})
		case m.Role == "assistant" && (c.Replaced(i) || len(m.Calls) > 0):
			turns = append(turns, Turn{Role: "assistant", Text: c.assistant(f, i), Client: -1, Generated: c.Replaced(i)})
		case m.Role == "tool":
			results := []string{f.NeutralResult(c.Text(i))}
			j := i
			for len(c.Late(j)) == 0 && j+1 < len(c.messages) && c.messages[j+1].Role == "tool" && c.messages[j+1].Opaque == nil {
				j++
				results = append(results, f.NeutralResult(c.Text(j)))
			}
			turns = appendResults(turns, f, results)
			i = j
		case m.Role == "developer":
			// A template that knows no such role leaves the message out.
			turns = append(turns, Turn{Role: "system", Text: m.Text, Client: -1})
		default:
			turns = append(turns, Turn{Role: m.Role, Text: m.Text, Client: i})
		}
		turns = c.appendLate(turns, f, i)
	}
	return turns
}

// isSystem: OpenAI's developer message is the system message of newer models; the
// tools text needs a place that every template renders.
func isSystem(role string) bool { return role == "system" || role == "developer" }

// assistant is the text of an assistant turn: as generated when the ledger has
// it, else written from the client's message in the family's syntax.
func (c *Conversation) assistant(f *wire.Family, i int) string {
	m := &c.messages[i]
	if c.Replaced(i) {
		return WithReasoning(f, c.Reasoning(i), c.Text(i))
	}
	calls := make([]wire.Call, len(m.Calls))
	for j, k := range m.Calls {
		calls[j] = wire.Call{Name: k.Name, Arguments: k.Arguments}
	}
	return WithReasoning(f, m.Reasoning, f.TurnText(m.Text, calls))
}

// WithReasoning puts reasoning that the engine's parser split off back in front
// of the text, so that the template decides whether it stays.
func WithReasoning(f *wire.Family, reasoning, text string) string {
	if reasoning == "" || f.ThinkOpen == "" {
		return text
	}
	return f.ThinkOpen + "\n" + strings.Trim(reasoning, "\n") + "\n" + f.ThinkClose + "\n\n" + text
}

func (c *Conversation) appendLate(turns []Turn, f *wire.Family, i int) []Turn {
	for _, late := range c.Late(i) {
		call, answer := late.Call, late.Note
		if call == "" {
			call = f.TurnText("", []wire.Call{{Name: SearchTool, Arguments: `{"query": ` + quoteJSON(late.Query) + `}`}})
		}
		if len(late.Tools) > 0 {
			answer = f.LateText(rawTools(f, late))
		}
		turns = append(turns,
			Turn{Role: "assistant", Text: call, Client: -1, Generated: late.Call != ""})
		turns = appendResults(turns, f, []string{answer})
	}
	return turns
}

// appendResults appends the results of consecutive calls: one turn in the
// family's frame, or a turn for each where the template frames them.
func appendResults(turns []Turn, f *wire.Family, results []string) []Turn {
	if f.ResultRole == "user" {
		return append(turns, Turn{Role: "user", Text: f.ResponseText(results), Client: -1})
	}
	for _, r := range results {
		turns = append(turns, Turn{Role: f.ResultRole, Text: r, Client: -1})
	}
	return turns
}

func rawTools(f *wire.Family, b *Block) []json.RawMessage {
	raw := make([]json.RawMessage, len(b.Tools))
	for i, t := range b.Tools {
		raw[i] = json.RawMessage(f.NeutralResult(t.JSON))
	}
	return raw
}

// quoteJSON spells a string as JSON in which < is escaped, so that a query can't
// close the call that it stands in.
func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}
