package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/models/wire"
)

// offered compiles tools by name for a reply under test.
func offered(t interface{ Fatal(...any) }, schemas map[string]string) map[string]*grammar.Checked {
	tools := map[string]*grammar.Checked{}
	for name, schema := range schemas {
		c, err := grammar.Compile(grammar.Tool{Name: name, Schema: []byte(schema)}, grammar.Closed)
		if err != nil {
			t.Fatal(err)
		}
		tools[name] = c
	}
	return tools
}

var replySchemas = map[string]string{
	"add":  `{"type":"object","properties":{"a":{"type":"integer"},"note":{"type":"string"}},"required":["a"]}`,
	"noop": `{}`,
}

func newGeneration(t interface{ Fatal(...any) }) *generation {
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	return &generation{family: f, tools: offered(t, replySchemas), newID: func() string { n++; return fmt.Sprintf("call_%d", n) }}
}

// engineChunks writes pieces of text as an engine streams them.
func engineChunks(pieces []string, finish string) []string {
	head := `"id":"c1","object":"chat.completion.chunk","created":7,"model":"m"`
	out := []string{fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`, head)}
	for _, p := range pieces {
		text, _ := json.Marshal(p)
		out = append(out, fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":null,"token_ids":null}]}`, head, text))
	}
	if finish != "" {
		out = append(out, fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{},"finish_reason":%q,"stop_reason":null}]}`, head, finish))
	}
	return append(out, fmt.Sprintf(`{%s,"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8}}}`, head))
}

// seen is what a client of the stream puts together.
type seen struct {
	Role, Content, Reasoning, Finish string
	Calls                            []seenCall
}

type seenCall struct{ ID, Name, Arguments string }

func (s *seen) take(t interface{ Fatal(...any) }, chunk []byte) {
	var c struct {
		ID, Object, Model string
		Choices           []struct {
			Delta struct {
				Role      string
				Content   *string
				Reasoning string `json:"reasoning_content"`
				ToolCalls []struct {
					Index    int
					ID       string
					Type     string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish *string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(chunk, &c); err != nil {
		t.Fatal("a chunk is not JSON: " + string(chunk))
	}
	if c.ID != "c1" || c.Object != "chat.completion.chunk" || c.Model != "m" {
		t.Fatal("a chunk lost the engine's members: " + string(chunk))
	}
	for _, ch := range c.Choices {
		if s.Finish != "" {
			t.Fatal("a delta follows the finish reason: " + string(chunk))
		}
		s.Role += ch.Delta.Role
		if ch.Delta.Content != nil {
			s.Content += *ch.Delta.Content
		}
		s.Reasoning += ch.Delta.Reasoning
		for _, k := range ch.Delta.ToolCalls {
			if k.ID != "" {
				if k.Index != len(s.Calls) || k.Type != "function" || k.Function.Name == "" {
					t.Fatal("a call starts badly: " + string(chunk))
				}
				s.Calls = append(s.Calls, seenCall{ID: k.ID, Name: k.Function.Name})
			}
			s.Calls[k.Index].Arguments += k.Function.Arguments
		}
		if ch.Finish != nil {
			s.Finish = *ch.Finish
		}
	}
}

func play(t interface{ Fatal(...any) }, r *generation, chunks []string) (seen, error) {
	var s seen
	for _, c := range chunks {
		out, err := r.chunk([]byte(c), true)
		for _, o := range out {
			s.take(t, o)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func TestReply(t *testing.T) {
	call := func(name, args string) string {
		return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + args + "}\n</tool_call>"
	}
	for _, tt := range []struct {
		name, text, finish string
		want               string
		wantErr            string
	}{
		{"text", "Hello <b>you</b>", "stop", `content="Hello <b>you</b>" finish=stop`, ""},
		{"one call", call("add", `{"a": 1}`), "stop", `add({"a": 1}) finish=tool_calls`, ""},
		{"text and call", "Adding.\n" + call("add", `{"a": 1}`), "stop", `content="Adding." add({"a": 1}) finish=tool_calls`, ""},
		{"two calls", call("add", `{"a":1}`) + "\n" + call("noop", `{}`), "stop", `add({"a":1}) noop({}) finish=tool_calls`, ""},
		{"reasoning", "<think>\nhm <tool_call>\n</think>\n\nHi", "stop", `content="Hi" reasoning="hm <tool_call>" finish=stop`, ""},
		{"cut in a call", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1", "length", `add({"a": 1) finish=length`, ""},
		{"cut in text", "Hello", "length", `content="Hello" finish=length`, ""},
		{"call inside a string", call("add", `{"a": 1, "note": "<tool_call>"}`), "stop", `add({"a": 1, "note": "<tool_call>"}) finish=tool_calls`, ""},
		{"unknown name", call("rm", `{}`), "stop", "", `the model called "rm", which it was not offered`},
		{"endless blanks", call("add", `{"a": 1,`+strings.Repeat("\n", 100)+`"b": 2}`), "stop", "", "lead nowhere: byte 72 of the reply: 65 blanks"},
		{"endless digits", call("add", `{"a": 1`+strings.Repeat("0", 100)+`}`), "stop", "", "a number of 65 digits"},
		{"misfit", call("add", `{"a": "x"}`), "stop", "", "arguments of add don't fit its schema"},
		{"undeclared key", call("noop", `{"x": 1}`), "stop", "", "arguments of noop don't fit its schema"},
		{"no object", call("add", `[1]`), "stop", "", "no JSON object at byte 0"},
		{"stopped in a call", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1", "stop", "", "in the middle of a tool call"},
		{"malformed", "<tool_call>\nadd(1)\n</tool_call>", "stop", "", "malformed tool call"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var pieces []string
				for rest := tt.text; rest != ""; {
					n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
					pieces, rest = append(pieces, rest[:n]), rest[n:]
				}
				r := newGeneration(t)
				got, err := play(t, r, engineChunks(pieces, tt.finish))
				if tt.wantErr != "" {
					var m *misfit
					if !errors.As(err, &m) || !strings.Contains(m.message, tt.wantErr) {
						t.Fatalf("error %v, want a misfit with %q", err, tt.wantErr)
					}
					if got.Finish != "" {
						t.Fatalf("the client was told %q before the error", got.Finish)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if s := printSeen(got); s != tt.want {
					t.Fatalf("stream\n got %s\nwant %s", s, tt.want)
				}
				if s := printSeen(whole(t, r.completion())); s != tt.want {
					t.Fatalf("completion\n got %s\nwant %s", s, tt.want)
				}
				if got.Role != "assistant" || !r.finished() || r.choices[0].raw() != tt.text {
					t.Fatalf("role %q, finished %v, raw %q", got.Role, r.finished(), r.choices[0].raw())
				}
			})
		})
	}
}

// TestStopStringInCall: a stop string of the client that matches within a call ends
// the reply as it would with the OpenAI API. A client that does not stream is not
// handed the half call. Without a stop string of the client's it is the engine's
// fault.
func TestStopStringInCall(t *testing.T) {
	const whole1 = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
	const half = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1"
	for _, tt := range []struct {
		name, text, told     string
		stops, must          bool
		streamed, unstreamed string // "" where the reply is withheld
	}{
		{"vLLM", "Hi." + half, `,"stop_reason":"STOP"`, true, false, `content="Hi." add({"a": 1) finish=stop`, `content="Hi." finish=stop`},
		{"SGLang", half, `,"matched_stop":"STOP"`, true, true, `add({"a": 1) finish=stop`, `finish=stop`},
		{"an engine that says nothing", half, ``, true, false, `add({"a": 1) finish=stop`, `finish=stop`},
		{"behind a whole call", whole1 + "\n" + half, `,"stop_reason":"STOP"`, true, true, `add({"a": 1}) add({"a": 1) finish=stop`, `add({"a": 1}) finish=tool_calls`},
		{"in the head of a call", "<tool_call>\n{\"na", `,"stop_reason":"STOP"`, true, true, `finish=stop`, `finish=stop`},
		{"at the end of a call", strings.TrimSuffix(whole1, "</tool_call>"), `,"stop_reason":"</tool_call>"`, true, true, `add({"a": 1}) finish=tool_calls`, `add({"a": 1}) finish=tool_calls`},
		{"in the text before any call", "Hi.", `,"stop_reason":"STOP"`, true, true, `content="Hi." finish=stop`, `content="Hi." finish=stop`},
		{"a token of the model's own", half, `,"stop_reason":null`, true, false, "", ""},
		{"no stop string of the client's", half, `,"stop_reason":"STOP"`, false, false, "", ""},
	} {
		for _, stream := range []bool{true, false} {
			r := newGeneration(t)
			r.stops, r.must, r.stream = tt.stops, tt.must, stream
			chunks := engineChunks([]string{tt.text}, "stop")
			for i := range chunks {
				chunks[i] = strings.Replace(chunks[i], `,"stop_reason":null`, tt.told, 1)
			}
			got, err := play(t, r, chunks)
			want := tt.streamed
			if !stream {
				want = tt.unstreamed
			}
			if want == "" {
				if !errors.As(err, new(*misfit)) {
					t.Errorf("%s, stream %v: error %v, want a misfit", tt.name, stream, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, stream %v: %v", tt.name, stream, err)
				continue
			}
			if !stream {
				got = whole(t, r.completion())
			}
			if s := printSeen(got); s != want {
				t.Errorf("%s, stream %v: %s, want %s", tt.name, stream, s, want)
			}
		}
	}
}

func printSeen(s seen) string {
	var b strings.Builder
	if s.Content != "" {
		fmt.Fprintf(&b, "content=%q ", s.Content)
	}
	if s.Reasoning != "" {
		fmt.Fprintf(&b, "reasoning=%q ", s.Reasoning)
	}
	for _, c := range s.Calls {
		fmt.Fprintf(&b, "%s(%s) ", c.Name, c.Arguments)
	}
	return b.String() + "finish=" + s.Finish
}

// whole reads a completion into the same form as a stream.
func whole(t interface{ Fatal(...any) }, body []byte) seen {
	var c struct {
		Object string
		Usage  struct {
			PromptTokens int `json:"prompt_tokens"`
		}
		Choices []struct {
			Message struct {
				Role      string
				Content   *string
				Reasoning string `json:"reasoning_content"`
				ToolCalls []struct {
					ID       string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(body, &c); err != nil {
		t.Fatal(err)
	}
	if c.Object != "chat.completion" || len(c.Choices) != 1 || c.Usage.PromptTokens != 9 {
		t.Fatal("not the completion expected: " + string(body))
	}
	m := c.Choices[0].Message
	s := seen{Role: m.Role, Reasoning: m.Reasoning, Finish: c.Choices[0].Finish}
	if m.Content != nil {
		s.Content = *m.Content
	}
	for _, k := range m.ToolCalls {
		s.Calls = append(s.Calls, seenCall{k.ID, k.Function.Name, k.Function.Arguments})
	}
	return s
}

func TestReplyUpstreamFaults(t *testing.T) {
	for _, tt := range []struct{ name, chunk, want string }{
		{"not JSON", `{"choices":[`, "not JSON"},
		{"error event", `{"error":{"message":"out of memory"}}`, "out of memory"},
		{"no delta", `{"id":"c1","choices":[{"index":0}]}`, "without a delta"},
		{"calls without tools", `{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}`, "although it was sent no tools"},
		{"choice out of range", `{"id":"c1","choices":[{"index":1000,"delta":{}}]}`, "choice 1000"},
	} {
		if _, err := newGeneration(t).chunk([]byte(tt.chunk), true); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	r := newGeneration(t)
	if _, err := play(t, r, engineChunks([]string{"x"}, "stop")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.chunk([]byte(`{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`), true); err == nil {
		t.Error("a second finish was accepted")
	}
}

// TestReplyNone: under tool_choice none, text that looks like a call is text.
func TestReplyNone(t *testing.T) {
	r := newGeneration(t)
	r.none = true
	text := "<tool_call>\n{\"name\": \"rm\"}"
	got, err := play(t, r, engineChunks([]string{text}, "stop"))
	if err != nil || got.Content != text || got.Finish != "stop" || len(got.Calls) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHeldTextKeepsLogprobs: a chunk whose text can't be shown yet still hands on
// what it says of its tokens, once.
func TestHeldTextKeepsLogprobs(t *testing.T) {
	r := newGeneration(t)
	all := ""
	for i, piece := range []string{"a", "<tool", "_x> b", "\n", "<tool_call>\n{\"name\": \"noop\", \"arguments\": {", "}}\n</tool_call>"} {
		text, _ := json.Marshal(piece)
		chunks, err := r.chunk(fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{"content":%s},"logprobs":{"content":[{"token":"t%d"}]},"token_ids":[%d],"finish_reason":null}]}`, text, i, i), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			all += string(c)
		}
	}
	for i := range 6 {
		if n, m := strings.Count(all, fmt.Sprintf(`"t%d"`, i)), strings.Count(all, fmt.Sprintf(`"token_ids":[%d]`, i)); n != 1 || m != 1 {
			t.Errorf("chunk %d: logprobs %d times, token ids %d times in %s", i, n, m, all)
		}
	}
}

// TestReplyFamilies: in every family a reply becomes the same calls, checked
// against the schema that tells text from numbers.
func TestReplyFamilies(t *testing.T) {
	for _, name := range wire.Names() {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		pieces := func(calls ...wire.Call) []string {
			text := []rune(f.TurnText("", calls))
			var out []string
			for len(text) > 3 {
				out, text = append(out, string(text[:3])), text[3:]
			}
			return append(out, string(text))
		}
		reply := func(calls ...wire.Call) (seen, error) {
			r := newGeneration(t)
			r.family = f
			r.schema = func(tool string) json.RawMessage { return json.RawMessage(replySchemas[tool]) }
			return play(t, r, engineChunks(pieces(calls...), "stop"))
		}
		s, err := reply(wire.Call{Name: "add", Arguments: `{"a": 1, "note": "2"}`}, wire.Call{Name: "noop"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Calls) != 2 || s.Calls[0].Name != "add" || s.Calls[0].Arguments != `{"a": 1, "note": "2"}` || s.Calls[1].Arguments != "{}" || s.Content != "" || s.Finish != "tool_calls" {
			t.Errorf("%s: %+v", name, s)
		}
		if _, err := reply(wire.Call{Name: "add", Arguments: `{"a": "x"}`}); err == nil || !strings.Contains(err.Error(), "don't fit its schema") {
			t.Errorf("%s: a misfit passes: %v", name, err)
		}
		if _, err := reply(wire.Call{Name: "rm", Arguments: `{}`}); err == nil || !strings.Contains(err.Error(), "not offered") {
			t.Errorf("%s: an unknown name passes: %v", name, err)
		}
	}
}
