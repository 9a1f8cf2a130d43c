package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"net/http/httptest"
)

// TestClientLeavesStaged: a client that leaves while its turn is in the engine,
// silent or streaming, or in the second round after a search, frees the engine as
// on the transparent path; and an open turn is not recorded.
func TestClientLeavesStaged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  string // what the engine says before it falls silent, "" for nothing
		rounds int    // whole rounds before that
		stream bool
	}{
		{"prefill", "", 0, true},
		{"prefill, not streamed", "", 0, false},
		{"stream", "Well, ", 0, true},
		{"second round", "", 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, adapter string) {
				script, _ := newScripted(t)
				silent, closed := make(chan struct{}, 1), make(chan time.Time, 1)
				var turns atomic.Int64
				eng := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					probe := strings.Contains(string(body), `"begin":"ok "`)
					if r.URL.Path != "/v1/chat/completions" || probe || turns.Add(1) <= int64(tt.rounds) {
						script.ServeHTTP(w, r)
						return
					}
					w.Header().Set("Content-Type", "text/event-stream")
					if tt.first != "" {
						for _, c := range engineChunks([]string{tt.first}, "")[:2] {
							fmt.Fprintf(w, "data: %s\n\n", c)
						}
						w.(http.Flusher).Flush()
					}
					silent <- struct{}{}
					<-r.Context().Done()
					closed <- time.Now()
				}))
				defer eng.Close()
				for range tt.rounds {
					script.say(scriptedReply{text: searchFor("payroll")})
				}
				p, base := start(t, adapter, Config{Engine: eng.URL, Stages: allStages()})
				more := ""
				if tt.stream {
					more = `,"stream":true`
				}
				conn := dialRaw(t, base)
				io.WriteString(conn, rawRequest(chatBody(toolList(200), `[{"role":"user","content":"weather"}]`, more)))
				<-silent
				if tt.first != "" {
					r := bufio.NewReader(conn)
					for line := ""; !strings.Contains(line, "Well"); {
						var err error
						if line, err = r.ReadString('\n'); err != nil {
							t.Fatal(err)
						}
					}
				}
				left := time.Now()
				conn.Close()
				select {
				case at := <-closed:
					checkGone(t, at.Sub(left))
				case <-time.After(20 * time.Second):
					t.Fatal("the engine's connection was not closed")
				}
				p.Drain(t.Context()) // until the turn has ended
				if rec := p.stages.(*stages).records.last()[0]; rec.Error != "client_gone" || len(rec.Finish) > 0 && rec.Finish[0] != "" {
					t.Errorf("record: error %q, finish %v", rec.Error, rec.Finish)
				}
			})
		})
	}
}
