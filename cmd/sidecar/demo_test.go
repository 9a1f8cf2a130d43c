package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/models"
	"github.com/toolsidecar/sidecar/models/cost"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

var updateDemo = flag.Bool("update-demo", false, "rewrite the golden outputs of the demo")

// scripted plays sidecar and engine from a list of replies.
type scripted struct {
	t       *testing.T
	steps   []step
	toolsIn int // tokens that tools add to /tokenize with messages; 0: the template leaves them out
	perTurn int // tokens that tools add for each message on top; no template does
	noCount bool
	models  string
	tools   int // expected; 0 for few

	mu       sync.Mutex
	at       int
	sessions []demoRecord
	bodies   []map[string]json.RawMessage
}

// step is one reply to a chat request.
type step struct {
	status int // 0 for 200
	mode   string
	body   string // events, or the error body
	record demoRecord
	noID   bool
	hang   bool // no answer until the client leaves
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/models":
		if s.models == "" {
			s.models = `{"object":"list","data":[{"id":"sim-qwen3","max_model_len":32768}]}`
		}
		io.WriteString(w, s.models)
	case "GET /sidecar/v1/sessions":
		json.NewEncoder(w).Encode(map[string]any{"sessions": s.sessions})
	case "POST /tokenize":
		var body struct {
			Messages []json.RawMessage `json:"messages"`
			Tools    []json.RawMessage `json:"tools"`
			Prompt   *string           `json:"prompt"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.t.Errorf("/tokenize: %v", err)
		}
		n := 0
		for _, m := range body.Messages {
			n += len(m) / 4
		}
		switch {
		case s.noCount:
			http.NotFound(w, r)
			return
		case body.Prompt != nil:
			n = len(*body.Prompt) / 4
		case len(body.Tools) > 0:
			if len(body.Tools) != s.tools {
				s.t.Errorf("/tokenize with %d tools", len(body.Tools))
			}
			n += s.toolsIn + s.perTurn*len(body.Messages)
		}
		fmt.Fprintf(w, `{"count":%d,"max_model_len":32768,"tokens":[1,2,3]}`, n)
	case "POST /v1/chat/completions":
		var body map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.t.Errorf("request: %v", err)
		}
		s.bodies = append(s.bodies, body)
		if s.at == len(s.steps) {
			s.t.Errorf("request %d is not in the script", s.at+1)
			http.Error(w, "", http.StatusTeapot)
			return
		}
		st := s.steps[s.at]
		s.at++
		if st.hang {
			if st.mode != "" { // after the head of the reply
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
			return
		}
		if st.mode != "" {
			w.Header().Set("X-Sidecar-Mode", st.mode)
			w.Header().Set("X-Sidecar-Reason", st.record.Reason)
		}
		if !st.noID {
			id := fmt.Sprintf("req-%d", s.at)
			w.Header().Set("X-Request-Id", id)
			rec := st.record
			rec.ID, rec.Mode = id, st.mode
			s.sessions = append(s.sessions, rec)
		}
		if st.status != 0 {
			w.WriteHeader(st.status)
		} else {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		}
		io.WriteString(w, st.body)
	default:
		s.t.Errorf("%s %s", r.Method, r.URL)
		http.NotFound(w, r)
	}
}

func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

const done = "[DONE]"

func textDelta(s string) string {
	raw, _ := json.Marshal(s)
	return `{"choices":[{"index":0,"delta":{"content":` + string(raw) + `}}]}`
}

func callDelta(index int, id, name, arguments string) string {
	raw, _ := json.Marshal(arguments)
	first := ""
	if name != "" {
		first = `"id":"` + id + `","type":"function",`
		name = `"name":"` + name + `",`
	}
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,%s"function":{%s"arguments":%s}}]}}]}`, index, first, name, raw)
}

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func usage(prompt, completion, cached int) string {
	details := ""
	if cached >= 0 {
		details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, cached)
	}
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d%s}}`, prompt, completion, details)
}

func record(shown, tokens, expected int, found ...demoFound) demoRecord {
	return demoRecord{TokensExact: true, Shown: shown, ShownTokens: tokens, Expected: expected, Added: found,
		Timing: []demoStage{{"read", 0.021}, {"prefix", 0.034}, {"retrieval", 1.38}, {"grammar", 0.4}, {"layout", 0.052}}}
}

var scriptTasks = []catalog.Task{
	{Name: "refund and tell", Turns: []catalog.Turn{
		{Say: "Order ord_5512kk arrived broken. Give the customer her money back for order ord_5512kk, 49.90 euros.", Need: []string{"orders__refund_order"}},
		{Say: "Now write her an e-mail at ana@mail.example that the refund is on its way.", Need: []string{"email__send_message"}},
	}},
	{Name: "noisy service", Turns: []catalog.Turn{
		{Say: "Checkout is down for many users. Open an incident with critical severity for the checkout service.", Need: []string{"incidents__create_incident"}},
		{Say: "Roll the checkout deployment back to the version before, 2.3.9.", Need: []string{"kubernetes__rollback_deployment"}},
		{Say: "It's urgent: put a note on the status page that we are working on it, then publish it.", Need: []string{"incidents__create_status_page_update", "incidents__publish_status_page_update"}},
	}},
}

// sameAnswer is a handler for golden outputs.
func sameAnswer(name string, _ json.RawMessage) (string, error) {
	return `{"answer_of":"` + name + `","state":"done","note":"the same words each time, long enough to be cut on every terminal that people have"}`, nil
}

// goodScript answers scriptTasks.
func goodScript() []step {
	refund := demoFound{"orders__refund_order", 14.21, 187, "name and description: refund, order"}
	return []step{
		{mode: "owned", record: record(3, 512, 0, refund,
			demoFound{"payments__create_refund", 9.87, 203, "description: money, back"},
			demoFound{"orders__get_order", 7.5, 122, "name: order"}),
			body: events(
				callDelta(0, "call_a", "orders__refund_order", `{"order_id":"ord_5512kk",`),
				callDelta(0, "", "", `"amount":49.90}`),
				callDelta(1, "call_b", "orders__get_order", `{"order_id":"ord_5512kk"}`),
				finish("tool_calls"), usage(1311, 61, 0), done)},
		{mode: "owned", record: record(3, 512, 1360),
			body: events(textDelta("The refund of 49.90 euros "), textDelta("is on its way."), finish("stop"), usage(1702, 12, 1360), done)},
		{mode: "owned", record: record(4, 701, 1712, demoFound{"email__send_message", 11.02, 189, "name: message; description: e-mail"}),
			body: events(textDelta("Sent."), finish("stop"), usage(1994, 3, 1712), done)},
		{mode: "owned", record: record(1, 233, 16, demoFound{"incidents__create_incident", 12.5, 233, "name: incident"}),
			body: events(textDelta("日本語 and \x1b[2Jcontrol \u202ecodes.\nSecond line."), finish("stop"), usage(981, 20, 16), done)},
		{mode: "owned", record: demoRecord{TokensExact: true, Shown: 1, ShownTokens: 233, Expected: 992},
			body: events(textDelta("Nothing to do."), finish("stop"), usage(1024, 5, 992), done)},
		{mode: "owned", record: demoRecord{TokensExact: true, Shown: 1, ShownTokens: 233, Expected: 1024, Fallback: "retrieval: the index is being built"},
			body: events(textDelta("Noted, and cut"), finish("length"), usage(1060, 512, 1024), done)},
	}
}

// newScripted builds a demo against a scripted server. Times are fake: each look
// at the clock is 7 ms later.
func newScripted(t *testing.T, s *scripted, f demoFlags, out io.Writer) *demo {
	t.Helper()
	s.t = t
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	addr := srv.Listener.Addr().String()
	tr := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	f.catalog = "demo"
	if f.gpu == "" {
		f.gpu = "H100-SXM-80GB"
	}
	if f.card == "" {
		f.card = "Qwen/Qwen3-8B"
	}
	if f.timeout == 0 {
		f.timeout = time.Minute
	}
	f.maxTokens = 512
	calc, err := f.check()
	if err != nil {
		t.Fatal(err)
	}
	d := f.demo(calc, "http://sidecar.test", "http://engine.test/v1/", out)
	if s.tools == 0 {
		s.tools = 40
	}
	d.tools = d.tools[:s.tools]
	d.tasks = scriptTasks[:f.tasks]
	d.agent.client = &http.Client{Transport: tr}
	tick := time.Time{}
	d.agent.now = func() time.Time { tick = tick.Add(7 * time.Millisecond); return tick }
	return d
}

// noLeaks fails the test if a goroutine is left when its other cleanups are done.
func noLeaks(t *testing.T, but ...goleak.Option) {
	but = append(but, goleak.IgnoreCurrent())
	t.Cleanup(func() { goleak.VerifyNone(t, but...) })
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "demo", name)
	if *updateDemo {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (rewrite with -update-demo):\n%s", name, got)
	}
}

func TestDemoOutput(t *testing.T) {
	noLeaks(t)
	for _, c := range []struct {
		name    string
		columns int
		flags   demoFlags
		script  func() *scripted
	}{
		{"plain.golden", 80, demoFlags{tasks: 2}, func() *scripted { return &scripted{steps: goodScript(), toolsIn: 412_000, tools: 3200} }},
		{"wide.golden", 200, demoFlags{tasks: 2}, func() *scripted { return &scripted{steps: goodScript(), toolsIn: 412_000, tools: 3200} }},
		{"narrow.golden", 44, demoFlags{tasks: 2}, func() *scripted { return &scripted{steps: goodScript(), toolsIn: 412_000, tools: 3200} }},
		{"json.golden", 80, demoFlags{tasks: 2, json: true}, func() *scripted { return &scripted{steps: goodScript(), toolsIn: 412_000, tools: 3200} }},
		{"sparse.golden", 80, demoFlags{tasks: 2, engine: "http://engine.test/v1", card: "deepseek-v3.2"}, func() *scripted {
			// The engine reports no cached tokens and its template knows no tools.
			s := &scripted{steps: goodScript(), tools: 3200}
			for i := range s.steps {
				for _, n := range []string{"0", "1360", "1712", "16", "992", "1024"} {
					s.steps[i].body = strings.ReplaceAll(s.steps[i].body, `,"prompt_tokens_details":{"cached_tokens":`+n+`}`, "")
				}
			}
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("COLUMNS", fmt.Sprint(c.columns))
			var out bytes.Buffer
			s := c.script()
			d := newScripted(t, s, c.flags, &out)
			d.agent.call = sameAnswer
			if err := d.run(t.Context(), &out); err != nil {
				t.Error(err)
			}
			if s.at != len(s.steps) {
				t.Errorf("%d of %d requests made", s.at, len(s.steps))
			}
			for i, line := range strings.Split(out.String(), "\n") {
				if strings.ContainsFunc(line, unicode.IsControl) {
					t.Errorf("line %d has a control character: %q", i+1, line)
				}
				if c.flags.json || strings.HasPrefix(line, "  -d ") || strings.HasPrefix(line, "bin/sidecar serve") || strings.HasPrefix(line, "bin/sidecar engine") || strings.HasPrefix(line, "curl") {
					continue // to be copied, never wrapped
				}
				if w := textWidth(line); w > c.columns {
					t.Errorf("line %d is %d cells wide: %q", i+1, w, line)
				}
			}
			golden(t, c.name, out.Bytes())
		})
	}
}

// TestDemoRequests: the client sends no tools, asks for a stream with usage, and
// the conversation grows as that of any OpenAI client.
func TestDemoRequests(t *testing.T) {
	s := &scripted{steps: goodScript(), toolsIn: 1000}
	d := newScripted(t, s, demoFlags{tasks: 1}, io.Discard)
	s.steps = s.steps[:3]
	if err := d.run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	var last []map[string]any
	for i, b := range s.bodies {
		if b["tools"] != nil || b["tool_choice"] != nil {
			t.Errorf("request %d has tools", i+1)
		}
		if string(b["stream"]) != "true" || string(b["stream_options"]) != `{"include_usage":true}` || string(b["model"]) != `"sim-qwen3"` {
			t.Errorf("request %d: %s", i+1, b)
		}
		var messages []map[string]any
		if err := json.Unmarshal(b["messages"], &messages); err != nil {
			t.Fatal(err)
		}
		if len(messages) < len(last) || fmt.Sprint(messages[:len(last)]) != fmt.Sprint(last) {
			t.Errorf("request %d does not begin with the conversation before it", i+1)
		}
		last = messages
	}
	var roles []string
	for _, m := range last {
		roles = append(roles, m["role"].(string))
	}
	if got := strings.Join(roles, " "); got != "user assistant tool tool assistant user" {
		t.Errorf("roles %s", got)
	}
	if last[1]["content"] != nil || last[2]["tool_call_id"] != "call_a" || last[3]["tool_call_id"] != "call_b" {
		t.Errorf("calls and results: %v", last[1:4])
	}
	args := `{"order_id":"ord_5512kk","amount":49.90}`
	if want := catalog.Toy("orders__refund_order", []byte(args)); last[2]["content"] != want {
		t.Errorf("result %v, want %v", last[2]["content"], want)
	}
}

func TestDemoFailures(t *testing.T) {
	noLeaks(t)
	call := func(name, args, reason string) step {
		return step{mode: "owned", body: events(callDelta(0, "c", name, args), finish(reason), usage(10, 5, 0), done)}
	}
	loop := slices.Repeat([]step{call("orders__get_order", `{}`, "tool_calls")}, maxRounds)
	for _, c := range []struct {
		name  string
		steps []step
		want  string // of the last turn
	}{
		{"refused", []step{{mode: "owned", status: 503, body: `{"error":{"message":"engine is busy","type":"server_error"}}`}}, "status 503: engine is busy"},
		{"refused without a body", []step{{mode: "owned", status: 502}}, "status 502: Bad Gateway"},
		{"passed through", []step{{mode: "passthrough", record: demoRecord{Reason: "the model has no family"}, body: events(textDelta("hi"), finish("stop"), done)}},
			"the sidecar passed the request through without tools: the model has no family"},
		{"no sidecar", []step{{noID: true, body: events(textDelta("hi"), finish("stop"), done)}}, "no X-Sidecar-Mode in the reply"},
		{"error event", []step{{mode: "owned", body: events(callDelta(0, "c", "orders__get_order", `{"id":`), `{"error":{"message":"argument id does not fit"}}`)}},
			"the stream ended with an error: argument id does not fit"},
		{"cut", []step{{mode: "owned", body: events(textDelta("hal"))}}, "the stream ended without [DONE]"},
		{"cut in an event", []step{{mode: "owned", body: events(textDelta("hal")) + "data: {"}}, "event stream ended inside an event"},
		{"malformed chunk", []step{{mode: "owned", body: events("{nope}", done)}}, "malformed chunk"},
		{"call out of order", []step{{mode: "owned", body: events(callDelta(3, "c", "orders__get_order", "{}"), done)}}, "malformed chunk: tool call 3 after 0"},
		{"no finish", []step{{mode: "owned", body: events(textDelta("hal"), done)}}, "without a finish reason"},
		{"calls without a call", []step{{mode: "owned", body: events(finish("tool_calls"), done)}}, "finish reason tool_calls without a call"},
		{"cut call", []step{call("orders__get_order", `{"id"`, "length")}, "cut inside a call by --max-tokens"},
		{"unknown tool", []step{call("no_such_tool", `{}`, "tool_calls")}, "call no_such_tool: no such tool in the catalog"},
		{"broken arguments", []step{call("orders__get_order", `{"id":`, "tool_calls")}, "call orders__get_order: the arguments are not a JSON object"},
		{"no end of calls", loop, "still no text answer after 8 turns"},
		{"not a stream", []step{{mode: "owned", status: 200, body: `{}`}}, `a stream was asked for, the reply is`},
		{"hangs", []step{{hang: true}}, "no end of the reply within 50ms"},
		{"stalls", []step{{hang: true, mode: "owned"}}, "no end of the reply within 50ms"},
		{"long reply", []step{{mode: "owned", body: events(slices.Repeat([]string{textDelta(strings.Repeat("a", 1<<19))}, 3)...)}}, "the reply is longer than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &scripted{steps: c.steps, toolsIn: 1000}
			f := demoFlags{tasks: 1, json: true}
			if c.steps[0].hang {
				f.timeout = 50 * time.Millisecond
			}
			err := newScripted(t, s, f, &out).run(t.Context(), &out)
			var failed *failedTurnsError
			if !errors.As(err, &failed) || failed.failed != 1 || failed.turns != len(c.steps) {
				t.Errorf("error %v, want one failed turn of %d", err, len(c.steps))
			}
			var r demoReport
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			if got := r.Turns[len(r.Turns)-1].Error; !strings.Contains(got, c.want) {
				t.Errorf("turn failed with %q, want %q", got, c.want)
			}
			if r.Summary.Failed != 1 {
				t.Errorf("summary %+v", r.Summary)
			}
		})
	}
}

// TestDemoFailureShown: what fails is said, and the other tasks go on.
func TestDemoFailureShown(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	steps := goodScript()
	steps[1] = step{mode: "owned", status: 500, body: `{"error":{"message":"the engine closed the stream inside a call to orders__refund_order, 12 tokens into it"}}`}
	s := &scripted{steps: append(steps[:2:2], steps[3:]...), toolsIn: 412_000}
	var out bytes.Buffer
	d := newScripted(t, s, demoFlags{tasks: 2}, &out)
	d.agent.call = sameAnswer
	err := d.run(t.Context(), &out)
	if err == nil || err.Error() != "demo: 1 of 5 turns failed" {
		t.Errorf("error %v", err)
	}
	golden(t, "failed.golden", out.Bytes())
}

func TestDemoUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := "http://" + l.Addr().String()
	l.Close()
	var out bytes.Buffer
	f := demoFlags{catalog: "demo", tasks: 1, maxTokens: 10, timeout: time.Minute, gpu: "L4-24GB", card: "phi-4"}
	err = f.run(t.Context(), &out, io.Discard, func(context.Context, localConfig) (string, string, func(), error) {
		return addr, addr, func() {}, nil
	})
	if want := "demo: the engine at " + addr + "/v1/models cannot be reached: connection refused"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if out.Len() != 0 {
		t.Errorf("output %q", &out)
	}
	err = f.run(t.Context(), &out, io.Discard, func(_ context.Context, cfg localConfig) (string, string, func(), error) {
		if cfg.Engine != "" || !slices.Equal(cfg.Catalog, []string{"demo"}) {
			t.Errorf("started with %+v", cfg)
		}
		return "", "", nil, errors.New("no port is free")
	})
	if err == nil || err.Error() != "demo: no port is free" {
		t.Errorf("error %v", err)
	}
	s := &scripted{models: `{"data":[]}`}
	if err := newScripted(t, s, demoFlags{}, &out).run(t.Context(), &out); err == nil || err.Error() != "demo: the engine at http://engine.test lists no model" {
		t.Errorf("error %v", err)
	}
	s = &scripted{models: `<html>`}
	if err := newScripted(t, s, demoFlags{}, &out).run(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "something else than the JSON expected") {
		t.Errorf("error %v", err)
	}
}

func TestDemoInterrupted(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := &scripted{steps: []step{{hang: true}}, toolsIn: 10}
	d := newScripted(t, s, demoFlags{tasks: 1}, io.Discard)
	d.agent.now = func() time.Time { cancel(); return time.Time{} } // when the first turn starts
	if err := d.run(ctx, io.Discard); err == nil || err.Error() != "demo: interrupted" {
		t.Errorf("error %v", err)
	}
}

func TestDemoUsage(t *testing.T) {
	good := demoFlags{catalog: "demo", maxTokens: 1, timeout: 1, gpu: "MI300X", card: "phi-4"}
	if _, err := good.check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*demoFlags)
		want   string
	}{
		{func(f *demoFlags) { f.catalog = "mine.json" }, `no tasks for catalog "mine.json"`},
		{func(f *demoFlags) { f.tasks = -1 }, "--tasks -1"},
		{func(f *demoFlags) { f.maxTokens = 0 }, "--max-tokens 0"},
		{func(f *demoFlags) { f.timeout = 0 }, "--timeout 0s"},
		{func(f *demoFlags) { f.engine = "localhost:8000" }, `--engine "localhost:8000" is no URL`},
		{func(f *demoFlags) { f.engine = "vllm" }, `--engine "vllm" is no URL`},
		{func(f *demoFlags) { f.gpu = "H100" }, `--gpu: no GPU card "H100"; nearest: H100-SXM-80GB`},
		{func(f *demoFlags) { f.card = "qwen3-9b" }, `--model-card: no model card "qwen3-9b"; nearest: Qwen/Qwen3-8B`},
	} {
		f := good
		c.change(&f)
		_, err := f.check()
		var u *usageError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), c.want) || u.hint == "" {
			t.Errorf("error %v, want %q and a hint", err, c.want)
		}
	}
}

// TestDemoLive: on a terminal there are colours and a line that is taken away
// again; without colour no colours.
func TestDemoLive(t *testing.T) {
	noLeaks(t)
	for _, colour := range []bool{true, false} {
		var out bytes.Buffer
		s := &scripted{steps: goodScript(), toolsIn: 412_000}
		d := newScripted(t, s, demoFlags{tasks: 2}, &out)
		d.view.t = &terminal{w: &out, width: 80, colour: colour, live: true}
		if err := d.run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(out.String(), "\x1b[1m"); got != colour {
			t.Errorf("colour %v: painted %v", colour, got)
		}
	}
	var out bytes.Buffer
	v := &demoView{t: &terminal{w: &out, width: 50, live: true}}
	v.begin("turn 1.1")
	v.progress("\x1b[2Jan answer that is much longer than the line has room for")
	v.draw()
	v.line("x")
	v.end()
	got := out.String()
	if !strings.HasPrefix(got, "\r\x1b[Kturn 1.1 · 0.") || !strings.Contains(got, "line has room for\r\x1b[Kx\n") {
		t.Errorf("%q", got)
	}
	if line, _, _ := strings.Cut(strings.TrimPrefix(got, "\r\x1b[K"), "\r"); textWidth(line) > 49 || strings.Contains(line, "\x1b") {
		t.Errorf("%d cells: %q", textWidth(line), line)
	}
}

type fullDisk struct{ room int }

func (w *fullDisk) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

func TestDemoCannotWrite(t *testing.T) {
	for _, f := range []demoFlags{{tasks: 1}, {tasks: 1, json: true}} {
		w := &fullDisk{room: 1000}
		s := &scripted{steps: goodScript()[:3], toolsIn: 1000}
		if err := newScripted(t, s, f, w).run(t.Context(), w); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("json %v: error %v", f.json, err)
		}
	}
}

func TestTerminal(t *testing.T) {
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		w     io.Writer
		env   func(string) string
		width int
	}{
		{&bytes.Buffer{}, env(), 80},
		{file, env("TERM", "xterm-256color"), 80},
		{file, env("COLUMNS", "60"), 60},
		{file, env("COLUMNS", "5"), leastWidth},
		{file, env("COLUMNS", "5000"), mostWidth},
		{file, env("COLUMNS", "wide"), 80},
	} {
		if got := newTerminal(c.w, false, c.env); got.width != c.width || got.live || got.colour {
			t.Errorf("%+v", got)
		}
	}
}

func TestBaseline(t *testing.T) {
	one, two := "Give the money back.", "Done."
	messages := []demoMessage{{Role: "user", Content: &one}, {Role: "assistant", Content: &two}, {Role: "user", Content: &one}}
	for _, c := range []struct {
		s      *scripted
		method string
	}{
		{&scripted{toolsIn: 5000}, byTemplate},
		{&scripted{toolsIn: 4997, perTurn: 1}, byTemplate},
		{&scripted{}, byPrompt},
		{&scripted{noCount: true}, byVocabulary},
	} {
		d := newScripted(t, c.s, demoFlags{}, io.Discard)
		b, err := newBaseline(t.Context(), d.agent.client, "http://engine.test", "m", d.tools)
		if err != nil || b.method != c.method {
			t.Fatalf("%v, %v; want %s", b, err, c.method)
		}
		if _, err := b.count(t.Context(), messages, true); err != nil {
			t.Fatal(err)
		}
		if want := c.method == byTemplate && c.s.perTurn == 0; b.constant != want {
			t.Errorf("%s: taken to be constant: %v", c.method, b.constant)
		}
		got, err := b.count(t.Context(), messages, false)
		if err != nil {
			t.Fatal(err)
		}
		want := 5000
		for _, m := range messages {
			raw, _ := json.Marshal(m)
			want += len(raw) / 4
		}
		text := string(b.render(messages))
		switch c.method {
		case byPrompt:
			want = len(text) / 4
		case byVocabulary:
			want = tokenizer.Qwen3().Count(text)
		}
		if got != want {
			t.Errorf("%s: %d tokens, want %d", c.method, got, want)
		}
		if n := strings.Count(text, `{"type": "function", "function": `); n != c.s.tools || !strings.HasSuffix(text, "<|im_start|>assistant\n") {
			t.Errorf("rendering has %d tools and ends %q", n, text[len(text)-40:])
		}
	}
}

// TestEstimate prices two turns of one conversation on Qwen3-8B (8.19e9
// parameters, 589,824 FLOPs per pair, 147,456 bytes per token) and one H100
// (494.5 TFLOP/s and 2.68 TB/s after utilisation).
func TestEstimate(t *testing.T) {
	m, _ := models.ByID("Qwen3-8B")
	g, _ := models.GPUByID("H100-SXM-80GB")
	calc, err := cost.New(cost.Config{Model: m, GPU: g})
	if err != nil {
		t.Fatal(err)
	}
	n := func(n int) *int { return &n }
	e := estimate(calc, []demoTurn{
		{Task: 1, PromptTokens: 2000, CompletionTokens: 50, AllTools: n(100_000), CachedTokens: n(0)},
		{Task: 1, PromptTokens: 3000, AllTools: n(101_050), CachedTokens: n(2000)},
		{Task: 2, PromptTokens: 2000, AllTools: n(100_000), CachedTokens: n(16)},
		{Task: 2, Error: "failed"},
	})
	seconds := func(n, cached float64) float64 {
		return (2*8.19e9*n + 589824*(n*cached+n*(n+1)/2)) / 494.5e12
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"cold", e.Sidecar.ColdMs, 1e3 * seconds(2000, 0)},
		{"cold, all", e.All.ColdMs, 1e3 * seconds(100_000, 0)},
		{"warm", e.Sidecar.WarmMs, 1e3 * seconds(1000, 2000)},
		{"warm, all", e.All.WarmMs, 1e3 * seconds(1000, 100_050)},
		{"warm tokens, all", e.All.WarmTokens, 1000},
		{"token", e.Sidecar.TokenMs, 1e3 * (16.38e9 + 147456*3000) / 2.68e12},
		{"token, all", e.All.TokenMs, 1e3 * (16.38e9 + 147456*101_050) / 2.68e12},
		{"KV, all", e.All.KVBytes, 147456 * 101_050},
	} {
		if d := c.got/c.want - 1; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if e := estimate(calc, []demoTurn{{Task: 1, Error: "failed"}}); e.Error == "" || e.Sidecar != nil {
		t.Errorf("estimate of nothing: %+v", e)
	}
}

// TestDemoLocal runs the demo as a user does: simulated engine, sidecar and agent.
func TestDemoLocal(t *testing.T) {
	// fasthttp's clock never ends, its cleaner wakes up every 10 s.
	noLeaks(t, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
	var out bytes.Buffer
	f := demoFlags{catalog: "demo", tasks: 1, maxTokens: 512, timeout: time.Minute, gpu: "H100-SXM-80GB", card: "Qwen3-8B", json: true}
	if err := f.run(t.Context(), &out, io.Discard, startLocal); err != nil {
		t.Fatal(err)
	}
	var r demoReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Engine.Simulated || r.Baseline != byTemplate || r.Catalog.Tools != 3200 || len(r.Turns) < 3 || r.Summary.Calls == 0 || r.Estimate.All == nil {
		t.Errorf("report %+v", r)
	}
	hermes := &baseline{method: byVocabulary}
	hermes.hermes, _ = wire.ByName("hermes")
	for _, tool := range catalog.Demo().Tools() {
		hermes.tools = append(hermes.tools, tool.Raw)
	}
	for _, turn := range r.Turns {
		name := fmt.Sprintf("turn %d.%d", turn.Task, turn.Turn)
		if turn.Mode != "token-in" || turn.ID == "" || turn.Shown == 0 || turn.ShownTokens == 0 || len(turn.Stages) == 0 {
			t.Errorf("%s: %+v", name, turn)
		}
		if turn.AllTools == nil || turn.PromptTokens == 0 || *turn.AllTools < 100*turn.PromptTokens {
			t.Errorf("%s: prompt of %d tokens, with all tools %v", name, turn.PromptTokens, turn.AllTools)
		}
		if turn.CachedTokens == nil || turn.ExpectedCached == nil || *turn.CachedTokens < *turn.ExpectedCached || turn.Turn > 1 && *turn.ExpectedCached == 0 {
			t.Errorf("%s: cached %v, expected %v", name, turn.CachedTokens, turn.ExpectedCached)
		}
		for _, c := range turn.Calls {
			if c.Result != catalog.Toy(c.Name, []byte(c.Arguments)) {
				t.Errorf("%s: %s has the result %s", name, c.Name, c.Result)
			}
		}
		if turn.Turn > 1 {
			continue
		}
		// The engine's count of the first prompt against our own vocabulary.
		want, err := hermes.count(t.Context(), []demoMessage{{Role: "user", Content: &turn.User}}, false)
		if err != nil || turn.AllTools == nil || *turn.AllTools != want {
			t.Errorf("%s: with all tools %v tokens, want %d, %v", name, turn.AllTools, want, err)
		}
	}
}

func TestTextLayout(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{plain("a\x1b[31mb\r\n\tc\u202e\xff"), "a·[31mb c·"},
		{cut("日本語", 5), "日本…"},
		{cut("日本語", 6), "日本語"},
		{pad("日", 4, false) + "|", "日  |"},
		{pad("e\u0301", 3, true), "  e\u0301"},
		{strings.Join(wrap("one two  three", 7), "|"), "one two|three"},
		{strings.Join(wrap("日本語日本語", 5), "|"), "日本|語日|本語"},
		{thousands(412007), "412,007"},
		{thousands(-1000), "-1,000"},
		{thousands(999), "999"},
		{duration(0.004), "<0.01 ms"},
		{duration(0.25), "0.25 ms"},
		{duration(41.4), "41 ms"},
		{duration(1890), "1.9 s"},
		{duration(250_000), "250 s"},
		{bytesText(60_123_456_789), "60.1 GB"},
		{ratio(100, 41_200), "412×"},
		{ratio(0, 10), ""},
		{shellWord("http://127.0.0.1:8000"), "http://127.0.0.1:8000"},
		{shellWord("it's"), `'it'\''s'`},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestTextBounds: whatever the text, no line is wider than asked and none holds a
// control character; wrapping loses nothing but white space.
func TestTextBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := plain(rapid.String().Draw(t, "s"))
		n := rapid.IntRange(2, 20).Draw(t, "n")
		if strings.ContainsFunc(s, unicode.IsControl) {
			t.Fatalf("control character in %q", s)
		}
		if c := cut(s, n); textWidth(c) > n {
			t.Fatalf("cut to %d: %q", n, c)
		}
		lines := wrap(s, n)
		for _, l := range lines {
			if textWidth(l) > n {
				t.Fatalf("wrapped to %d: %q", n, l)
			}
		}
		if got, want := strings.ReplaceAll(strings.Join(lines, ""), " ", ""), strings.Join(strings.Fields(s), ""); got != want {
			t.Fatalf("wrapped %q, want %q", got, want)
		}
	})
}
