package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/toolsidecar/sidecar/internal/simengine"
)

// TestProbeComesFirst: whatever constraint a client sends first, the engine has
// had the probe's tag before it.
func TestProbeComesFirst(t *testing.T) {
	for name, request := range map[string]struct{ path, body string }{
		"own tag":     {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"structural_tag","structures":[{"begin":"a","schema":{},"end":"b"}],"triggers":["a"]}}`},
		"own output":  {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"structured_outputs":{"regex":"a"}}`},
		"json object": {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}}`},
		"completion":  {"/v1/completions", `{"model":"m","prompt":"x","max_tokens":1,"structured_outputs":{"regex":"a"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			sim, err := simengine.New(simengine.Config{MaxModelLen: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var first string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				mu.Lock()
				if first == "" && strings.HasSuffix(r.URL.Path, "/completions") {
					first = string(raw)
				}
				mu.Unlock()
				r.Body = io.NopCloser(strings.NewReader(string(raw)))
				sim.ServeHTTP(w, r)
			}))
			defer srv.Close()
			s := newSidecar(t, srv.URL, allStages())
			resp, err := http.Post(s.srv.URL+request.path, "application/json", strings.NewReader(request.body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(first, `"structural_tag","format"`) {
				t.Errorf("the engine's first request of a text is %s", first)
			}
		})
	}
}

// TestStalledFormat: a text for response_format that goes nowhere ends with an
// error, long before max_tokens.
func TestStalledFormat(t *testing.T) {
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"r","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}`
	for name, tt := range map[string]struct{ text, want string }{
		"blanks": {"{" + strings.Repeat("\n", 200), "blanks in a row"},
		"digits": {`{"n": ` + strings.Repeat("7", 200), "digits"},
	} {
		for _, tools := range []string{toolList(3), "[]"} {
			for _, stream := range []string{"", `,"stream":true`} {
				eng, srv := newScripted(t)
				s := newSidecar(t, srv.URL, allStages())
				eng.say(scriptedReply{text: tt.text, finish: "length"})
				status, _, body := s.ask(chatBody(tools, `[{"role":"user","content":"weather"}]`, format+stream))
				if !strings.Contains(string(body), tt.want) || strings.Contains(string(body), "[DONE]") || stream == "" && status != 502 {
					t.Errorf("%s, tools %.9s%s: status %d: %s", name, tools, stream, status, body)
				}
			}
		}
	}
}

// TestFormatAlone: a schema without tools is held by a tag of ours and checked, and
// the prompt stays the client's.
func TestFormatAlone(t *testing.T) {
	format := `{"type":"json_schema","json_schema":{"name":"r","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"not":{"properties":{"n":{"const":3}}}}}}`
	body := func(format, more string) string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"x"}],"response_format":%s%s}`, format, more)
	}
	for _, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
		eng, srv := newScripted(t)
		s := newSidecar(t, srv.URL, allStages())
		eng.say(scriptedReply{text: `{"n": 4}`})
		status, header, answer := s.ask(body(format, stream))
		if got, _ := answerOf(t, stream != "", answer); status != 200 || printSeen(got) != `content="{\"n\": 4}" finish=stop` {
			t.Errorf("status %d %s: %s", status, header.Get("X-Sidecar-Fallback"), answer)
		}
		sent := eng.took()
		if got := fmt.Sprint(sent[0].Messages); got != "[{system Be terse.} {user x}]" {
			t.Errorf("messages %s", got)
		}
		if !strings.Contains(string(sent[0].Format), `"structural_tag"`) || s.last().Constraint != "structural tag" {
			t.Errorf("held by %s: %s", s.last().Constraint, sent[0].Format)
		}
		eng.say(scriptedReply{text: `{"n": 3}`})
		if _, _, answer := s.ask(body(format, stream)); !strings.Contains(string(answer), "doesn't fit response_format") {
			t.Errorf("%s", answer)
		}
		// what is no schema of ours is the engine's own affair
		eng.took()
		eng.say(scriptedReply{text: "[1]"})
		status, header, _ = s.ask(body(strings.Replace(format, `"type":"object"`, `"type":"array"`, 1), stream))
		if status != 200 || header.Get("X-Sidecar-Mode") != "passthrough" || !strings.Contains(string(eng.took()[0].Format), `"array"`) {
			t.Errorf("status %d, mode %s", status, header.Get("X-Sidecar-Mode"))
		}
	}
}

// TestFaultsOfConstraints: the simulated engine refuses tags, or breaks off, and the
// client gets an answer or an error; names stay closed.
func TestFaultsOfConstraints(t *testing.T) {
	sim, err := simengine.New(simengine.Config{MaxModelLen: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	defer srv.Close()
	s := newSidecar(t, srv.URL, allStages())
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"r","schema":{"type":"object","properties":{"n":{"type":"integer","minimum":3,"maximum":9}},"required":["n"]}}}`
	for _, tt := range []struct{ fault, more, constraint, want string }{
		{"", `,"tool_choice":"required"`, "structural tag", `"finish_reason":"tool_calls"`},
		{"refuse=tag", `,"tool_choice":"auto"`, "legacy tag", `"finish_reason":"tool_calls"`},
		{"refuse=tag", `,"tool_choice":"required"`, "legacy tag", `"finish_reason":"tool_calls"`},
		{"refuse=tag", `,"tool_choice":"none"`, "checked", `"finish_reason":"stop"`},
		{"refuse=tag", format + `,"tool_choice":"none"`, "checked", `"finish_reason":"stop"`},
		{"refuse=all", `,"tool_choice":"auto"`, "checked", `"finish_reason":`},
		{"cut=900", `,"tool_choice":"required"`, "structural tag", "engine_cut"},
		{"malformed-sse", `,"tool_choice":"required"`, "structural tag", "engine_bad_reply"},
		{"", format + `,"tool_choice":"none"`, "structural tag", `"finish_reason":"stop"`},
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			body := strings.Replace(chatBody(toolList(3), `[{"role":"user","content":"the weather of customer 7"}]`, tt.more+stream), `"model":"m"`, `"model":"sim-qwen3"`, 1)
			req, err := http.NewRequest("POST", s.srv.URL+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if tt.fault != "" {
				req.Header.Set(simengine.FaultHeader, tt.fault)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			rec := s.last()
			if rec.Constraint != tt.constraint || !strings.Contains(string(answer), tt.want) {
				t.Errorf("%s%s%s: status %d, held by %q, fallback %q: %s", tt.fault, tt.more, stream, resp.StatusCode, rec.Constraint, rec.Fallback, answer)
			}
			if refused := strings.HasPrefix(tt.fault, "refuse"); refused != strings.Contains(rec.Fallback, "refused the constraint") {
				t.Errorf("%s%s%s: fallback %q", tt.fault, tt.more, stream, rec.Fallback)
			}
		}
	}
}
