package proxy

import (
	"fmt"
	"strings"
	"testing"
)

// TestHistoryStaysCallable: a sidecar that knows nothing of a conversation shows
// the tools called in its history again, and lets them be called.
func TestHistoryStaysCallable(t *testing.T) {
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	history := `[{"role":"user","content":"weather"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"get_payroll","arguments":"{\"id\":1}"}}]},
		{"role":"tool","tool_call_id":"a","content":"none"}]`
	eng.say(scriptedReply{text: "<tool_call>\n{\"name\": \"get_payroll\", \"arguments\": {\"id\": 2}}\n</tool_call>"})
	status, _, body := s.ask(chatBody(toolList(200), history, ""))
	if status != 200 || printSeen(whole(t, body)) != `get_payroll({"id": 2}) finish=tool_calls` {
		t.Fatalf("status %d: %s", status, body)
	}
	sent := eng.took()[0]
	if last := sent.Messages[len(sent.Messages)-1].Content; !strings.Contains(last, `"get_payroll"`) {
		t.Errorf("the schema is not in the prompt: %q", last)
	}
}

// talk plays turns of one conversation; each turn's tools and user message come
// from the arguments, the engine answers "ok". It returns what the engine was
// sent in the last turn.
func talk(t *testing.T, eng *scripted, s *sidecar, tools, users []string) scriptedBody {
	t.Helper()
	var messages []string
	var sent scriptedBody
	for i, user := range users {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":%q}`, user))
		eng.say(scriptedReply{text: "ok"})
		status, _, body := s.ask(chatBody(tools[min(i, len(tools)-1)], "["+strings.Join(messages, ",")+"]", ""))
		if status != 200 {
			t.Fatalf("turn %d: status %d: %s", i, status, body)
		}
		sent = eng.took()[0]
		messages = append(messages, `{"role":"assistant","content":"ok"}`)
	}
	return sent
}

// TestToolsChange: tools that come or go leave the conversation's prompt as it
// is; one that means something else now starts a new epoch.
func TestToolsChange(t *testing.T) {
	before := toolList(200)
	users := []string{"weather", "the invoice too"}
	for _, tt := range []struct {
		name, after, epoch string
		keeps              bool
	}{
		{"the same", before, "", true},
		{"one more", strings.TrimSuffix(before, "]") + `,{"type":"function","function":{"name":"extra","description":"Extra."}}]`, "", true},
		{"another definition", strings.Replace(before, "Look up the weather of one customer, number 0.", "Weather by zip code.", 1), "get_weather has another definition now", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eng, srv := newScripted(t)
			s := newSidecar(t, srv.URL, allStages())
			first := talk(t, eng, s, []string{before}, users[:1])
			eng, srv = newScripted(t)
			s = newSidecar(t, srv.URL, allStages())
			second := talk(t, eng, s, []string{before, tt.after}, users)
			kept := len(second.Messages) > len(first.Messages)
			for i := range first.Messages {
				kept = kept && second.Messages[i] == first.Messages[i]
			}
			if kept != tt.keeps || s.last().Epoch != tt.epoch {
				t.Errorf("kept the prompt: %v, epoch %q", kept, s.last().Epoch)
			}
			if !tt.keeps && strings.Contains(string(second.raw), "number 0.") {
				t.Error("the old definition is still in the prompt")
			}
		})
	}
}

// TestLateTokensBound: when the late tools of a conversation go beyond their
// bound, the next turn starts over with a prompt that shows few.
func TestLateTokensBound(t *testing.T) {
	eng, srv := newScripted(t)
	cfg := allStages()
	cfg.MaxLate = 500
	s := newSidecar(t, srv.URL, cfg)
	users := []string{"weather", "invoice", "calendar", "kubernetes", "translation", "warehouse", "payroll", "ticket"}
	talk(t, eng, s, []string{toolList(200)}, users)
	epochs, most := 0, 0
	for _, rec := range s.p.stages.(*stages).records.last() {
		most = max(most, rec.ShownTokens-rec.FrontTokens)
		if rec.Epoch != "" {
			epochs++
		}
	}
	if epochs == 0 || most > cfg.MaxLate+DefaultTokens {
		t.Errorf("%d epochs, at most %d late tokens", epochs, most)
	}
}
