package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func searchFor(query string) string {
	q, _ := json.Marshal(query)
	return "<tool_call>\n{\"name\": \"tool_search\", \"arguments\": {\"query\": " + string(q) + "}}\n</tool_call>"
}

const callPayroll = "<tool_call>\n{\"name\": \"get_payroll\", \"arguments\": {\"id\": 3}}\n</tool_call>"

func printSent(b scriptedBody) string {
	var out strings.Builder
	for _, m := range b.Messages {
		fmt.Fprintf(&out, "%s %q\n", m.Role, m.Content)
	}
	return out.String()
}

// answerOf reads an answer of either kind, and the usage that came with it.
func answerOf(t *testing.T, stream bool, body []byte) (seen, Reported) {
	t.Helper()
	var u struct {
		Usage json.RawMessage
	}
	if !stream {
		if err := json.Unmarshal(body, &u); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		var c struct {
			Choices []struct {
				Message struct {
					Content   *string
					ToolCalls []struct {
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal(body, &c); err != nil || len(c.Choices) != 1 {
			t.Fatalf("%v: %s", err, body)
		}
		s := seen{Finish: c.Choices[0].Finish}
		if m := c.Choices[0].Message; m.Content != nil {
			s.Content = *m.Content
		}
		for _, k := range c.Choices[0].Message.ToolCalls {
			s.Calls = append(s.Calls, seenCall{k.ID, k.Function.Name, k.Function.Arguments})
		}
		return s, *reported(u.Usage)
	}
	var s seen
	events := strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n")
	if events[len(events)-1] != "data: [DONE]" {
		t.Fatalf("the stream does not end with [DONE]: %s", body)
	}
	for _, e := range events[:len(events)-1] {
		data := []byte(strings.TrimPrefix(e, "data: "))
		s.take(t, data)
		if err := json.Unmarshal(data, &u); err != nil {
			t.Fatal(err)
		}
	}
	if s.Role != "assistant" {
		t.Errorf("roles %q", s.Role)
	}
	return s, *reported(u.Usage)
}

// TestSearch: the model searches, the sidecar answers within the request, and
// the client sees one reply. The next turn replays the search.
func TestSearch(t *testing.T) {
	user := `{"role":"user","content":"weather, please"}`
	for _, stream := range []bool{false, true} {
		eng, srv := newScripted(t)
		s := newSidecar(t, srv.URL, allStages())
		eng.say(scriptedReply{text: "Let me look.\n" + searchFor("payroll of a customer") + "\nand more"}, scriptedReply{text: callPayroll})
		more := `,"max_tokens":50`
		if stream {
			more += `,"stream":true,"stream_options":{"include_usage":true}`
		}
		status, _, body := s.ask(chatBody(toolList(200), "["+user+"]", more))
		if status != 200 {
			t.Fatalf("status %d: %s", status, body)
		}
		got, usage := answerOf(t, stream, body)
		if want := `content="Let me look." get_payroll({"id": 3}) finish=tool_calls`; printSeen(got) != want {
			t.Errorf("stream %v: %s, want %s", stream, printSeen(got), want)
		}
		if usage != (Reported{Prompt: 18, Completion: 8, Cached: 16}) {
			t.Errorf("usage %+v is not the sum of two rounds", usage)
		}
		sent := eng.took()
		if len(sent) != 2 {
			t.Fatalf("%d rounds", len(sent))
		}
		asked := "Let me look.\n" + searchFor("payroll of a customer")
		first := printSent(sent[0]) + fmt.Sprintf("assistant %q\n", asked)
		if second := printSent(sent[1]); !strings.HasPrefix(second, first) || !strings.Contains(second, `get_payroll`) {
			t.Errorf("the second round does not continue the first:\n%s\n%s", first, second)
		}
		if !strings.Contains(string(sent[0].raw), `"max_tokens":50`) || !strings.Contains(string(sent[1].raw), `"max_tokens":46`) {
			t.Error("max_tokens does not span the rounds")
		}
		if !strings.Contains(string(sent[0].Format), "tool_search") {
			t.Error("the constraint has no tool_search")
		}
		rec := s.last()
		if rec.Earlier == nil || rec.Earlier.Rounds != 1 || rec.Earlier.Prompt != 9 || rec.Earlier.Cached != 8 || rec.Reported.Prompt != 9 {
			t.Errorf("record: reported %+v, earlier %+v", rec.Reported, rec.Earlier)
		}
		if len(rec.Searches) != 1 || rec.Searches[0].Query != "payroll of a customer" || !slices.Contains(rec.Searches[0].Found, "get_payroll") || slices.Contains(rec.Calls, "tool_search") {
			t.Errorf("record: searches %+v, calls %v", rec.Searches, rec.Calls)
		}

		said := `{"role":"assistant","content":"Let me look.","tool_calls":[{"id":"a","type":"function","function":{"name":"get_payroll","arguments":"{\"id\":3}"}}]}`
		eng.say(scriptedReply{text: "Done."})
		s.ask(chatBody(toolList(200), "["+user+","+said+`,{"role":"tool","tool_call_id":"a","content":"12"}]`, ""))
		before := printSent(sent[1]) + fmt.Sprintf("assistant %q\n", callPayroll)
		if third := printSent(eng.took()[0]); !strings.HasPrefix(third, before) {
			t.Errorf("the next turn does not continue the search:\n%s\n%s", before, third)
		}
		// a retry of the first turn has the search behind it
		eng.say(scriptedReply{text: callPayroll})
		s.ask(chatBody(toolList(200), "["+user+"]", more))
		if again := eng.took(); len(again) != 1 || printSent(again[0]) != printSent(sent[1]) {
			t.Error("a retry searches again")
		}
	}
}

// TestSearchLimits: where the model may not search, a search is a call of a tool
// that was not offered; nothing found is said so; the client's calls come first.
func TestSearchLimits(t *testing.T) {
	user := `[{"role":"user","content":"weather, please"}]`
	own := strings.Replace(toolList(200), "get_recipe", "tool_search", 1)
	for _, tt := range []struct {
		name, tools, more string
		rounds            int
		replies           []string
		want              string // of the answer, or of the error's message
		note              string // in the last prompt
	}{
		{"too many rounds", toolList(200), "", 1, []string{searchFor("payroll"), searchFor("ticket")}, "not offered", ""},
		{"switched off", toolList(200), "", 0, []string{searchFor("payroll")}, "not offered", ""},
		{"two choices", toolList(200), `,"n":2`, 3, []string{searchFor("payroll")}, "not offered", ""},
		{"another tool named", toolList(200), `,"tool_choice":{"type":"function","function":{"name":"get_weather"}}`, 3, []string{searchFor("payroll")}, "not offered", ""},
		{"allowed tools", toolList(200), `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"get_weather"}}]}}`, 3, []string{searchFor("payroll")}, "not offered", ""},
		{"few tools", toolList(5), "", 3, []string{searchFor("payroll")}, "not offered", ""},
		{"the client's own tool_search", own, `,"tool_choice":{"type":"function","function":{"name":"tool_search"}}`, 3, []string{"<tool_call>\n{\"name\": \"tool_search\", \"arguments\": {\"id\": 4}}\n</tool_call>"}, `tool_search({"id": 4}) finish=tool_calls`, ""},
		{"nothing found", toolList(200), "", 3, []string{searchFor("zzz"), "No."}, `content="No." finish=stop`, "No further tool matches."},
		{"by name", toolList(200), "", 3, []string{searchFor("select:get_payroll, nosuch"), callPayroll}, `get_payroll({"id": 3}) finish=tool_calls`, "get_payroll"},
		{"required", toolList(200), `,"tool_choice":"required"`, 3, []string{searchFor("payroll"), callPayroll}, `get_payroll({"id": 3}) finish=tool_calls`, ""},
		{"required, then text", toolList(200), `,"tool_choice":"required"`, 3, []string{searchFor("payroll"), "No."}, "made no call", ""},
		{"calls before it", toolList(200), "", 3, []string{callWeather + "\n" + searchFor("payroll")}, `get_weather({"id": 7}) finish=tool_calls`, ""},
		{"arguments that don't fit", toolList(200), "", 3, []string{"<tool_call>\n{\"name\": \"tool_search\", \"arguments\": {\"q\": 1}}\n</tool_call>"}, "don't fit its schema", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eng, srv := newScripted(t)
			cfg := allStages()
			cfg.Rounds = tt.rounds
			s := newSidecar(t, srv.URL, cfg)
			for _, r := range tt.replies {
				eng.say(scriptedReply{text: r})
			}
			status, _, body := s.ask(chatBody(tt.tools, user, tt.more))
			sent := eng.took()
			if len(sent) != len(tt.replies) {
				t.Errorf("%d rounds, want %d", len(sent), len(tt.replies))
			}
			if status != 200 {
				if !strings.Contains(string(body), tt.want) {
					t.Errorf("status %d: %s, want %q", status, body, tt.want)
				}
				return
			}
			if got, _ := answerOf(t, false, body); printSeen(got) != tt.want {
				t.Errorf("%s, want %s", printSeen(got), tt.want)
			}
			if !strings.Contains(printSent(sent[len(sent)-1]), tt.note) {
				t.Errorf("%q is not in the last prompt", tt.note)
			}
		})
	}
}

// TestSearchCut: a search that is cut by length ends the reply; an engine that
// fails in the second round of a stream gives an error event.
func TestSearchCut(t *testing.T) {
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	user := `[{"role":"user","content":"weather, please"}]`
	eng.say(scriptedReply{text: "Well.\n<tool_call>\n{\"name\": \"tool_search\", \"arguments\": {\"que", finish: "length"})
	_, _, body := s.ask(chatBody(toolList(200), user, ""))
	if got, _ := answerOf(t, false, body); printSeen(got) != `content="Well." finish=length` {
		t.Errorf("%s", printSeen(got))
	}
	for name, second := range map[string]scriptedReply{
		"status": {status: 500, body: `{"error":{"message":"boom"}}`},
		"cut":    {raw: true, body: "data: {\"id\""},
	} {
		eng.say(scriptedReply{text: "Well.\n" + searchFor(name+" ticket")}, second)
		_, _, body = s.ask(chatBody(toolList(200), `[{"role":"user","content":"`+name+`"}]`, `,"stream":true`))
		if !strings.Contains(string(body), `"content":"Wel"`) || !strings.Contains(string(body), `"error"`) || strings.Contains(string(body), "[DONE]") || strings.Contains(string(body), `"finish_reason":"`) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// TestSearchOnOpenStream: an engine that leaves its stream open after [DONE] holds
// up neither the round after a search nor the client's answer.
func TestSearchOnOpenStream(t *testing.T) {
	eng, engine := newScripted(t)
	engine.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probe := r.URL.Path != "/v1/chat/completions" || r.Header.Get("X-Request-Id") == ""
		eng.ServeHTTP(w, r)
		if !probe {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(srv.Close)
	s := newSidecar(t, srv.URL, allStages())
	for _, more := range []string{"", `,"stream":true`} {
		eng.say(scriptedReply{text: searchFor("payroll")}, scriptedReply{text: callPayroll})
		status, _, body := s.ask(chatBody(toolList(200), `[{"role":"user","content":"`+more[:min(len(more), 1)]+`?"}]`, more))
		if status != 200 || !strings.Contains(string(body), "get_payroll") || more != "" && !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
			t.Errorf("status %d: %s", status, body)
		}
	}
}

// TestRefusedInSearch: a notation that the engine refuses in one round, by its
// status or as SGLang does by the first event of a stream, is not sent again in
// those after it; tools that a search finds are said to be held as the others are.
func TestRefusedInSearch(t *testing.T) {
	const message = `{"message":"Failed to compile json grammar: structural_tag","code":400}`
	for name, no := range map[string]scriptedReply{
		"status": {status: 400, body: `{"error":` + message + `}`},
		"event":  {raw: true, body: `data: {"error":` + message + "}\n\n"},
	} {
		for refusals, want := range []struct{ formats, constraint string }{
			{"tag tag", "structural tag"}, {"tag legacy legacy", "legacy tag"}, {"tag legacy - -", "checked"},
		} {
			for _, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
				eng, srv := newScripted(t)
				s := newSidecar(t, srv.URL, allStages())
				for range refusals {
					eng.say(no)
				}
				eng.say(scriptedReply{text: searchFor("payroll of a customer")}, scriptedReply{text: callPayroll})
				status, _, body := s.ask(chatBody(toolList(200), `[{"role":"user","content":"weather, please"}]`, stream))
				if status != 200 || !strings.Contains(string(body), "get_payroll") {
					t.Fatalf("%s %d%s: status %d: %s", name, refusals, stream, status, body)
				}
				var formats []string
				for _, b := range eng.took() {
					kind := "-"
					switch format := string(b.Format); {
					case strings.Contains(format, `"structures"`):
						kind = "legacy"
					case strings.Contains(format, `"structural_tag"`):
						kind = "tag"
					}
					formats = append(formats, kind)
				}
				rec := s.last()
				if got := strings.Join(formats, " "); got != want.formats || rec.Constraint != want.constraint {
					t.Errorf("%s %d%s: sent %s, held by %s", name, refusals, stream, got, rec.Constraint)
				}
				at := slices.IndexFunc(rec.Held, func(h Held) bool { return h.Name == "get_payroll" })
				if at < 0 || (rec.Held[at].Status == unconstrained) != (rec.Constraint == "checked") {
					t.Errorf("%s %d%s: held %v", name, refusals, stream, rec.Held)
				}
			}
		}
	}
}
