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

	reply     *Tokens // of a recorded assistant turn
	output    IDs     // ids of a generated text, nil when they are not known
	reasoning string  // of an assistant message that is sent as the client's bytes
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
func (c *Conversation) Layout(f *wire.Family) []Turn { return c.layout(f, neutral{f}) }

// A spelling says what becomes of texts that may spell tokens of the vocabulary or
// the family's tags.
type spelling interface {
	text(s string) string      // of a client
	result(s string) string    // inside a frame: a tool result, a tool
	said(s string) string      // of an assistant turn, by a client
	generated(s string) string // of one, by the engine
	turn(s string) string      // a whole turn, its framing included
}

// neutral is the spelling of prompts that are text.
type neutral struct{ f *wire.Family }

func (n neutral) text(s string) string      { return s }
func (n neutral) result(s string) string    { return n.f.NeutralResult(s) }
func (n neutral) said(s string) string      { return s }
func (n neutral) generated(s string) string { return s }
func (n neutral) turn(s string) string      { return n.f.Neutral(s) }

func (c *Conversation) layout(f *wire.Family, as spelling) []Turn {
	turns := c.turns(f, as)
	for i := range turns {
		turns[i].Text = as.turn(turns[i].Text)
	}
	return turns
}

func (c *Conversation) turns(f *wire.Family, as spelling) []Turn {
	var turns []Turn
	start := 0
	tools := ""
	if c.front != nil && (len(c.front.Tools) > 0 || c.front.Directory != "") {
		tools = f.ToolsText(rawTools(as, c.front), as.text(c.front.Directory))
	}
	switch {
	case tools == "":
	case len(c.messages) > 0 && isSystem(c.messages[0].Role) && c.messages[0].Opaque == nil:
		turns = append(turns, Turn{Role: "system", Text: f.SystemText(as.text(c.messages[0].Text), true, tools), Client: -1})
		turns = c.appendLate(turns, f, as, 0)
		start = 1
	default:
		turns = append(turns, Turn{Role: "system", Text: f.SystemText("", false, tools), Client: -1})
	}
	for i := start; i < len(c.messages); i++ {
		m := &c.messages[i]
		switch {
		case m.Opaque != nil:
			turns = append(turns, Turn{Role: m.Role, Client: i})
		case m.Role == "assistant" && c.Replaced(i):
			t := Turn{Role: "assistant", Text: WithReasoning(f, as.generated(c.Reasoning(i)), as.generated(c.Text(i))), Client: -1, Generated: true}
			if t.reply = c.entries[i].Tokens; t.reply != nil {
				t.output = t.reply.Output
			}
			turns = append(turns, t)
		case m.Role == "assistant" && len(m.Calls) > 0:
			turns = append(turns, Turn{Role: "assistant", Text: assistant(f, as, m), Client: -1})
		case m.Role == "tool":
			results := []string{as.result(c.Text(i))}
			j := i
			for len(c.Late(j)) == 0 && j+1 < len(c.messages) && c.messages[j+1].Role == "tool" && c.messages[j+1].Opaque == nil {
				j++
				results = append(results, as.result(c.Text(j)))
			}
			turns = appendResults(turns, f, results)
			i = j
		case m.Role == "developer":
			// A template that knows no such role leaves the message out.
			turns = append(turns, Turn{Role: "system", Text: as.text(m.Text), Client: -1})
		case m.Role == "assistant":
			turns = append(turns, Turn{Role: m.Role, Text: as.said(m.Text), reasoning: as.said(m.Reasoning), Client: i})
		default:
			turns = append(turns, Turn{Role: m.Role, Text: as.text(m.Text), Client: i})
		}
		turns = c.appendLate(turns, f, as, i)
	}
	return turns
}

// isSystem: OpenAI's developer message is the system message of newer models; the
// tools text needs a place that every template renders.
func isSystem(role string) bool { return role == "system" || role == "developer" }

// assistant is the text of an assistant turn that the ledger does not have,
// written from the client's message in the family's syntax.
func assistant(f *wire.Family, as spelling, m *Message) string {
	calls := make([]wire.Call, len(m.Calls))
	for j, k := range m.Calls {
		calls[j] = wire.Call{Name: as.text(k.Name), Arguments: arguments(f, as, k.Arguments)}
	}
	return WithReasoning(f, as.said(m.Reasoning), f.TurnText(as.said(m.Text), calls))
}

// arguments spells the arguments of a call. A family that writes their values
// without the escapes of JSON gets them with none, so that none hides a spelling.
// What is no JSON has no values for it to write.
func arguments(f *wire.Family, as spelling, raw string) string {
	if f.Calls.Form == wire.Parameters {
		if plain, err := wire.AppendPython(nil, []byte(raw)); err == nil {
			raw = string(plain)
		}
	}
	return as.text(raw)
}

// WithReasoning puts reasoning that the engine's parser split off back in front
// of the text, so that the template decides whether it stays.
func WithReasoning(f *wire.Family, reasoning, text string) string {
	if reasoning == "" || f.ThinkOpen == "" {
		return text
	}
	return f.ThinkOpen + "\n" + strings.Trim(reasoning, "\n") + "\n" + f.ThinkClose + "\n\n" + text
}

func (c *Conversation) appendLate(turns []Turn, f *wire.Family, as spelling, i int) []Turn {
	for _, late := range c.Late(i) {
		call, answer := as.generated(late.Call), as.result(late.Note)
		if late.Call == "" {
			call = f.TurnText("", []wire.Call{{Name: SearchTool, Arguments: arguments(f, as, `{"query": `+quoteJSON(late.Query)+`}`)}})
		}
		if len(late.Tools) > 0 {
			answer = f.LateText(rawTools(as, late))
		}
		turns = append(turns,
			Turn{Role: "assistant", Text: call, Client: -1, Generated: late.Call != "", output: late.CallIDs})
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

// rawTools are the tools of a block, with no spelling hidden in an escape of JSON.
func rawTools(as spelling, b *Block) []json.RawMessage {
	raw := make([]json.RawMessage, len(b.Tools))
	for i, t := range b.Tools {
		plain, err := wire.AppendPython(nil, []byte(t.JSON))
		if err != nil { // no JSON: as it is
			plain = []byte(t.JSON)
		}
		raw[i] = json.RawMessage(as.result(string(plain)))
	}
	return raw
}

// quoteJSON spells a string as JSON in which < is escaped, so that a query can't
// close the call that it stands in.
func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}
