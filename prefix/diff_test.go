package prefix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// loop is a request in the middle of an agent's loop, with what clients change.
func loop() *Request {
	tool := func(name, description string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":%q,"parameters":{"type":"object","properties":{"id":{"type":"string","description":"An id."},"n":{"type":"integer"}},"required":["id"]}}}`, name, description))
	}
	return &Request{
		Messages: []Message{
			{Role: "system", Text: "You are an agent.\nCurrent time: 2026-11-30T17:45:00Z\nSession: 550e8400-e29b-41d4-a716-446655440000\nTokens remaining: 18,204\nx-build: 9f8a7c6b5d\nAnswer in English."},
			{Role: "user", Text: "Look up both orders."},
			{Role: "assistant", Reasoning: "Two look-ups.", Calls: []Call{{"a", "get_order", `{"id": "7", "n": 1}`}, {"b", "get_order", `{"id": "8", "n": 2}`}}},
			{Role: "tool", CallID: "a", Text: "seven"},
			{Role: "tool", CallID: "b", Text: "eight"},
			{Role: "assistant", Text: "Seven and eight."},
			{Role: "user", Text: "And the third?"},
			{Role: "assistant", Reasoning: "One more.", Calls: []Call{{"c", "get_order", `{"id": "9"}`}}},
			{Role: "tool", CallID: "c", Text: "nine"},
		},
		Tools: []json.RawMessage{tool("get_order", "Get an order."), tool("refund", "Refund it, at most 50 times."), tool("search", "Search.")},
	}
}

func clone(r *Request) *Request {
	c := &Request{Messages: slices.Clone(r.Messages), Tools: slices.Clone(r.Tools)}
	for i := range c.Messages {
		c.Messages[i].Calls = slices.Clone(c.Messages[i].Calls)
	}
	return c
}

func TestCompare(t *testing.T) {
	inSystem := func(old, new string) func(*Request) {
		return func(r *Request) { r.Messages[0].Text = strings.Replace(r.Messages[0].Text, old, new, 1) }
	}
	inTool := func(i int, old, new string) func(*Request) {
		return func(r *Request) { r.Tools[i] = json.RawMessage(strings.Replace(string(r.Tools[i]), old, new, 1)) }
	}
	for _, tt := range []struct {
		name string
		edit func(*Request)
		want string // relation, or kind owner path
	}{
		{"nothing", func(*Request) {}, "equal"},
		{"another message", func(r *Request) { r.Messages = append(r.Messages, Message{Role: "assistant", Text: "Nine."}) }, "extends"},
		{"call ids", func(r *Request) { r.Messages[7].Calls[0].ID, r.Messages[8].CallID = "x", "x" }, "equal"},
		{"spaces in arguments", func(r *Request) { r.Messages[7].Calls[0].Arguments = `{"id":"9"}` }, "equal"}, // the template writes them anew
		{"reasoning that the template drops", func(r *Request) { r.Messages[2].Reasoning = "" }, "equal"},

		{"time", inSystem("17:45:00", "17:46:10"), "date client /messages/0/content"},
		{"day", inSystem("2026-11-30T17:45:00Z", "2026-12-01T09:00:00Z"), "date client /messages/0/content"},
		{"uuid", inSystem("550e8400", "f47ac10b"), "hash client /messages/0/content"},
		{"hash", inSystem("9f8a7c6b5d", "1a2b3c4d5e"), "hash client /messages/0/content"},
		{"counter", inSystem("18,204", "16,977"), "counter client /messages/0/content"},
		{"shorter counter", inSystem("18,204", "977"), "counter client /messages/0/content"},
		{"line ends", inSystem("\n", "\r\n"), "whitespace client /messages/0/content"},
		{"trailing space", inSystem("English.", "English. "), "whitespace client /messages/0/content"},
		{"other words", inSystem("English", "German"), "system text client /messages/0/content"},
		{"more words", inSystem("You are an agent.", "You are an agent of Acme."), "system text client /messages/0/content"},

		{"order of tools", func(r *Request) { slices.Reverse(r.Tools) }, "reordered tools tools /tools/0"},
		{"a tool more, in front", func(r *Request) {
			r.Tools = slices.Insert(r.Tools, 0, json.RawMessage(`{"type":"function","function":{"name":"new"}}`))
		}, "added tool tools /tools/0"},
		{"a tool more, at the end", func(r *Request) {
			r.Tools = append(r.Tools, json.RawMessage(`{"type":"function","function":{"name":"new"}}`))
		}, "added tool tools /tools/3"},
		{"a tool less", func(r *Request) { r.Tools = slices.Delete(r.Tools, 1, 2) }, "removed tool tools /tools/1"},
		{"the last tool less", func(r *Request) { r.Tools = r.Tools[:2] }, "removed tool tools /tools/2"},
		{"no tools", func(r *Request) { r.Tools = nil }, "removed tool tools /tools/0"},
		{"description", inTool(1, "Refund it", "Give it back"), "changed tool tools /tools/1/function/description"},
		{"number in a description", inTool(1, "50", "49"), "counter tools /tools/1/function/description"},
		{"deep in a schema", inTool(2, "An id.", "The id."), "changed tool tools /tools/2/function/parameters/properties/id/description"},
		{"order of keys", inTool(2, `"type":"object","properties"`, `"additionalProperties":false,"properties"`), "changed tool tools /tools/2/function/parameters"},

		{"order of arguments", func(r *Request) { r.Messages[2].Calls[0].Arguments = `{"n": 1, "id": "7"}` }, "re-dumped arguments client /messages/2/tool_calls/0/function/arguments"},
		{"number spelling", func(r *Request) { r.Messages[2].Calls[1].Arguments = `{"id": "8", "n": 2.0}` }, "re-dumped arguments client /messages/2/tool_calls/1/function/arguments"},
		{"other arguments", func(r *Request) { r.Messages[2].Calls[1].Arguments = `{"id": "x", "n": 2}` }, "edited message client /messages/2/tool_calls/1/function/arguments"},
		{"reasoning dropped", func(r *Request) { r.Messages[7].Reasoning = "" }, "stripped reasoning client /messages/7/reasoning_content"},
		{"results turned round", func(r *Request) { r.Messages[3], r.Messages[4] = r.Messages[4], r.Messages[3] }, "reordered results client /messages/3"},
		{"an edit", func(r *Request) { r.Messages[1].Text = "Look up all orders." }, "edited message client /messages/1/content"},
		{"a new user message", func(r *Request) {
			r.Messages = append(r.Messages, Message{Role: "assistant", Text: "Nine."}, Message{Role: "user", Text: "Thanks."})
		}, "stripped reasoning template /messages/7/reasoning_content"},
		{"the oldest turns left out", func(r *Request) { r.Messages = slices.Delete(r.Messages, 1, 6) }, "dropped messages client /messages/1"},
		{"a summary", func(r *Request) {
			r.Messages = []Message{r.Messages[0], {Role: "user", Text: "So far: two orders."}, {Role: "assistant", Text: "Yes."}}
		}, "dropped messages client /messages/1"},
		{"a message put in", func(r *Request) { r.Messages = slices.Insert(r.Messages, 1, Message{Role: "user", Text: "Be quick."}) }, "inserted messages client /messages/1"},
	} {
		before, after := loop(), clone(loop())
		tt.edit(after)
		d := Compare(before, after, hermes(t), tokenizer.Qwen3())
		got := string(d.Relation)
		if d.Relation == Breaks {
			got = fmt.Sprintf("%s %s %s", d.Kind, d.Owner, d.Path)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s (%q, %q)", tt.name, got, tt.want, d.Before, d.After)
		}
		if d.Relation == Breaks && (d.LostTokens <= 0 || d.Token <= 0) {
			t.Errorf("%s: token %d, %d lost", tt.name, d.Token, d.LostTokens)
		}
	}
}

// TestCompareAgainstTwin: byte and token are those of the whole prompts, encoded
// whole, under random edits; what breaks has a kind and an owner.
func TestCompareAgainstTwin(t *testing.T) {
	tok := tokenizer.Qwen3()
	rapid.Check(t, func(t *rapid.T) {
		f := hermes(t)
		before, after := loop(), clone(loop())
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			if len(after.Messages) == 0 {
				break
			}
			i := rapid.IntRange(0, len(after.Messages)-1).Draw(t, "message")
			switch rapid.IntRange(0, 4).Draw(t, "edit") {
			case 0:
				after.Messages[i].Text += rapid.StringN(0, 5, -1).Draw(t, "text")
			case 1:
				after.Messages = slices.Delete(after.Messages, i, i+1)
			case 2:
				after.Messages = slices.Insert(after.Messages, i, Message{Role: "user", Text: "more"})
			case 3:
				after.Messages[i].Reasoning = ""
			case 4:
				slices.Reverse(after.Tools)
			}
		}
		d := Compare(before, after, f, tok)
		a, b := render(f, before), render(f, after)
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		x, y := tok.Encode(nil, a), tok.Encode(nil, b)
		m := 0
		for m < min(len(x), len(y)) && x[m] == y[m] {
			m++
		}
		if d.Byte != n || d.Token != m || d.BeforeTokens != len(x) || d.AfterTokens != len(y) {
			t.Fatalf("byte %d token %d of %d and %d; want %d, %d of %d and %d", d.Byte, d.Token, d.BeforeTokens, d.AfterTokens, n, m, len(x), len(y))
		}
		if (d.Relation == Breaks) != (n < len(a) && n < len(b)) || d.Relation == Breaks && (d.Kind == "" || d.Owner == "" || d.Path == "") {
			t.Fatalf("%+v", d)
		}
	})
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		before, after string
		want          Kind
	}{
		{"Today is Monday.", "Today is Tuesday.", Date},
		{"Today is Mon Nov 30 17:45:01 2026", "Today is Mon Nov 30 17:45:02 2026", Date},
		{"Date: Mon, 30 Nov 2026 17:45:00 GMT", "Date: Tue, 01 Dec 2026 09:00:00 GMT", Date},
		{"It is 9:59 PM", "It is 10:00 PM", Date},
		{"30.11.2026", "01.12.2026", Date},
		{"11/30/26", "12/01/26", Date},
		{"November 30th, 2026", "December 1st, 2026", Date},
		{"ts=1796060700", "ts=1796060701", Date},
		{"ts=1796060700123", "ts=1796060700999", Date},
		{"20261130T174500Z", "20261130T174501Z", Date},
		{"id 550e8400-e29b-41d4-a716-446655440000", "id 550e8400-e29b-41d4-a716-446655440001", Hash},
		{"rev 9f8a7c6", "rev 9f8a7c7", Counter}, // seven characters are too few to tell
		{"rev 9f8a7c6b", "rev 1f8a7c6b", Hash},
		{"req_8fKq2ZpL9xTn", "req_Qm3vB7cW1sYd", Hash},
		{"step 9 of 50", "step 10 of 50", Counter},
		{"memory at 41%", "memory at 42%", Counter},
		{"cost: $1.25", "cost: $1.30", Counter},
		{"a  b", "a b", Whitespace},
		{"a\tb", "a    b", Whitespace},
		{"You may go.", "You must go.", ""},
		{"Use version 2 of it", "Use the version of it", ""},
		{"", "more", ""},
	} {
		if got := classify(tt.before, tt.after); got != tt.want {
			t.Errorf("classify(%q, %q) = %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}
