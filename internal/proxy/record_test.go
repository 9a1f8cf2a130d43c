package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecordAtOnce: a client that has read its answer up to [DONE] finds the record
// of it, and can delete it, though the engine's stream has not ended yet.
func TestRecordAtOnce(t *testing.T) {
	for name, edit := range map[string]func(*StageConfig){
		"staged":  func(*StageConfig) {},
		"observe": func(c *StageConfig) { c.Observe = true },
	} {
		t.Run(name, func(t *testing.T) {
			script, _ := newScripted(t)
			eng := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				script.ServeHTTP(w, r)
				if bytes.Contains(body, []byte(`"stream":true`)) {
					w.(http.Flusher).Flush()
					<-r.Context().Done() // the connection stays open until the proxy gives it up
				}
			}))
			t.Cleanup(eng.Close)
			config := allStages()
			edit(&config)
			s := newSidecar(t, eng.URL, config)
			client := newClientFor(t)
			for i := range 3 {
				script.say(scriptedReply{text: "ok"})
				resp, err := http.Post(s.srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(chatBody(toolList(3), `[{"role":"user","content":"weather"}]`, `,"stream":true`)))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewScanner(resp.Body)
				for lines.Scan() && lines.Text() != "data: [DONE]" {
				}
				if lines.Text() != "data: [DONE]" {
					t.Fatalf("the answer ended with %q: %v", lines.Text(), lines.Err())
				}
				var list struct{ Sessions []Record }
				if err := json.Unmarshal([]byte(ask(t, client, "GET", s.srv.URL+"/sidecar/v1/sessions", "").body), &list); err != nil {
					t.Fatal(err)
				}
				if len(list.Sessions) != 1 || list.Sessions[0].ID != resp.Header.Get("X-Request-Id") {
					t.Fatalf("answer %d: its record is not listed alone: %v", i, list.Sessions)
				}
				id := list.Sessions[0].ID
				if i == 2 {
					id = list.Sessions[0].Conversation
				}
				if got := ask(t, client, "DELETE", s.srv.URL+"/sidecar/v1/sessions/"+id, ""); got.status != 200 || !strings.Contains(got.body, `"records":1`) {
					t.Fatalf("answer %d: deleted with status %d: %s", i, got.status, got.body)
				}
			}
		})
	}
}

// TestRecordsSettled: only answers that have ended are waited for, and not for ever.
func TestRecordsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecords(4)
		r.settled(t.Context()) // nothing is due
		rec := new(Record)
		r.settle(rec) // never expected
		r.expect(rec)
		waited := false
		go func() { r.settled(t.Context()); waited = true }()
		if synctest.Wait(); waited {
			t.Error("settled while a record is due")
		}
		r.settle(rec)
		if synctest.Wait(); !waited {
			t.Error("not settled though the record is kept")
		}
		r.expect(rec)
		start := time.Now()
		if r.settled(t.Context()); time.Since(start) != settleTime {
			t.Errorf("waited %v for a record that never comes, not %v", time.Since(start), settleTime)
		}
	})
}

// TestForgetAnyRecord: whatever became of a request, the id of its record deletes it,
// for its own tenant alone.
func TestForgetAnyRecord(t *testing.T) {
	script, srv := newScripted(t)
	unknown := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/chat") {
			script.ServeHTTP(w, r)
			return
		}
		<-r.Context().Done() // no probe is answered: the shadow ends with the answer
	}))
	t.Cleanup(unknown.Close)
	for name, tt := range map[string]struct {
		engine, messages, mode string
		observe                bool
	}{
		"staged":              {srv.URL, `[{"role":"user","content":"weather"}]`, ModeOwned, false},
		"observed":            {srv.URL, `[{"role":"user","content":"weather"}]`, "", true}, // or cut, as the answer is there at once
		"shadow is cut":       {unknown.URL, `[{"role":"user","content":"weather"}]`, "passthrough", true},
		"nobody says a thing": {srv.URL, `[{"role":"system","content":"weather"}]`, "", true},
		"no messages":         {srv.URL, `[]`, "refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := allStages()
			config.Observe = tt.observe
			s := newSidecar(t, tt.engine, config)
			script.say(scriptedReply{text: "ok"})
			client, url := newClientFor(t), s.srv.URL+"/sidecar/v1/sessions"
			if got := ask(t, client, "POST", s.srv.URL+"/v1/chat/completions", chatBody(toolList(3), tt.messages, ""), "Authorization", "Bearer one"); got.status != 200 && name != "no messages" {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			rec := s.last()
			if rec.Mode != tt.mode && tt.mode != "" {
				t.Fatalf("mode %s, %s", rec.Mode, rec.Reason)
			}
			if got := ask(t, client, "DELETE", url+"/"+rec.ID, "", "Authorization", "Bearer two"); got.status != 404 {
				t.Errorf("another tenant: status %d: %s", got.status, got.body)
			}
			if got := ask(t, client, "DELETE", url+"/"+rec.ID, "", "Authorization", "Bearer one"); got.status != 200 || !strings.Contains(got.body, `"records":1`) {
				t.Errorf("status %d: %s", got.status, got.body)
			}
			if list := ask(t, client, "GET", url, "", "Authorization", "Bearer one"); strings.Contains(list.body, rec.ID) {
				t.Errorf("still listed: %s", list.body)
			}
		})
	}
}
