package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// outcomeOf runs the command in a process and returns what it wrote.
func outcomeOf(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

const smashed = "my parcel came smashed, give me the money back"

func conversationLog(t *testing.T, result string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	line := fmt.Sprintf(`{"messages":[{"role":"user","content":%q},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"orders__refund_order","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":%q}]}`, smashed, result)
	if err := os.WriteFile(path, []byte(line+"\n"+`{"query":"who works here","gold":["hr__list_employees"]}`+"\nrubbish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUsageCommand: a log is imported, seen, used by search, exported and cleared.
func TestUsageCommand(t *testing.T) {
	log, memory := conversationLog(t, "done"), filepath.Join(t.TempDir(), "memory.jsonl")
	must := func(args ...string) string {
		t.Helper()
		out, errs, err := outcomeOf(t, args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, errs)
		}
		return out + errs
	}
	if out := must("usage", "import", log, "--usage", memory); !strings.Contains(out, "2 calls of 3 lines learned") || !strings.Contains(out, "1 of 3 lines are passed over") {
		t.Errorf("import: %s", out)
	}
	if out := must("usage", "show", "--usage", memory); !strings.Contains(out, "clients without a key") {
		t.Errorf("show: %s", out)
	}
	ask := "my parcel came smashed, I want the money back"
	without := must("search", "-k", "1", ask)
	for _, from := range []string{memory, log} {
		out := must("search", "-k", "1", "--explain", "--usage", from, ask)
		if strings.Contains(without, "refund_order") || !strings.Contains(out, "orders__refund_order") || !strings.Contains(out, "called for queries like this") {
			t.Errorf("search with %s:\n%s\nwithout:\n%s", from, out, without)
		}
	}
	var line struct {
		Tenant string
		Event  struct {
			Tools []string
			Words map[string]float64
		}
	}
	out, _, _ := strings.Cut(must("usage", "export", "--usage", memory), "\n")
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.Tenant == "" || len(line.Event.Tools) != 1 || strings.Contains(out, "came smashed") {
		t.Errorf("export: %v: %s", err, out)
	}
	if out := must("usage", "clear", "--usage", memory, "--tenant", "nobody"); !strings.Contains(out, "0 queries forgotten") {
		t.Errorf("clear: %s", out)
	}
	if out := must("usage", "clear", "--usage", memory); !strings.Contains(out, "2 queries forgotten") {
		t.Errorf("clear: %s", out)
	}
	if out := must("search", "-k", "1", "--usage", memory, ask); strings.Contains(out, "refund_order") {
		t.Errorf("cleared, and still found: %s", out)
	}
	for _, args := range [][]string{{"usage", "show"}, {"usage", "show", "--usage", "absent"}, {"usage", "clear", "--usage", log}, {"usage", "import", "--usage", memory}, {"search", "--usage", "absent", "x"}} {
		if _, errs, err := outcomeOf(t, args...); err == nil || !strings.Contains(errs, "hint: ") {
			t.Errorf("%v: %v: %s", args, err, errs)
		}
	}
}

// chatAs posts one chat request with an API key, with more members behind it.
func (s *serving) chatAs(key, messages, more string) (status int, header http.Header, body string) {
	s.t.Helper()
	return s.as(key, "POST", "/v1/chat/completions", `{"model":"sim-qwen3","max_tokens":40,"messages":`+messages+more+`}`)
}

// as sends one request with an API key; "" for none.
func (s *serving) as(key, method, path, body string) (status int, header http.Header, answer string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

func (s *serving) recordOf(key string) proxy.Record {
	s.t.Helper()
	_, _, answer := s.as(key, "GET", "/sidecar/v1/sessions", "")
	var sessions struct{ Sessions []proxy.Record }
	if err := json.Unmarshal([]byte(answer), &sessions); err != nil || len(sessions.Sessions) == 0 {
		s.t.Fatal(len(sessions.Sessions), err)
	}
	return sessions.Sessions[len(sessions.Sessions)-1]
}

// TestServeUsage: over the simulated engine, what one client's call taught is there
// after kill -9, for that client alone.
func TestServeUsage(t *testing.T) {
	engine, stopEngine, err := startSimulated(simengine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stopEngine()
	memory := filepath.Join(t.TempDir(), "memory.jsonl")
	args := []string{"--engine", engine, "--catalog", "demo", "--usage", memory}
	s := startServing(t, args...)
	call := fmt.Sprintf(`[{"role":"user","content":%q},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"orders__refund_order","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"refunded"}]`, smashed)
	if status, _, body := s.chatAs("one", call, ""); status != 200 {
		t.Fatal(status, body)
	}
	s.kill()
	s = startServing(t, args...)
	again := `[{"role":"user","content":"my parcel came smashed, I want the money back"}]`
	for key, want := range map[string]bool{"one": true, "two": false, "": false} {
		status, header, body := s.chatAs(key, again, "")
		if got := strings.Contains(header.Get("X-Sidecar-Tools"), "orders__refund_order"); status != 200 || got != want {
			t.Errorf("key %q: status %d, tools %s: %s", key, status, header.Get("X-Sidecar-Tools"), body)
		}
	}
	if _, errs, err := outcomeOf(t, "usage", "clear", "--usage", memory); err == nil || !strings.Contains(errs, "another process has it open") {
		t.Errorf("cleared under a running sidecar: %v: %s", err, errs)
	}
}

// TestServeClients: over the simulated engine, each client has its own catalog.
func TestServeClients(t *testing.T) {
	engine, stopEngine, err := startSimulated(simengine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stopEngine()
	config := filepath.Join(t.TempDir(), "sidecar.yaml")
	const section = "clients:\n  reader:\n    key: r\n    max_risk: A0\n  sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb: {deny: [orders__*]}\n  k: {allow: ['orders__*', 'crm__*']}\n"
	if err := os.WriteFile(config, []byte("engine: "+engine+"\ncatalog: demo\n"+section), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServing(t, "--config", config)
	ask := `[{"role":"user","content":"refund the order and delete the customer"}]`
	total := map[string]int{}
	for key, fits := range map[string]func(string) bool{
		"r": func(name string) bool { return !strings.Contains(name, "refund") && !strings.Contains(name, "delete") },
		"a": func(name string) bool { return !strings.HasPrefix(name, "orders__") },
		"k": func(name string) bool { return strings.HasPrefix(name, "orders__") || strings.HasPrefix(name, "crm__") },
	} {
		status, _, body := s.chatAs(key, ask, "")
		if status != 200 && status != 502 { // the random model may call wrongly
			t.Fatal(key, status, body)
		}
		rec := s.recordOf(key)
		total[key] = rec.AllTools
		if len(rec.Added) == 0 {
			t.Errorf("%s: nothing added", key)
		}
		for _, name := range rec.Visible {
			if name != "tool_search" && !fits(name) {
				t.Errorf("%s sees %s", key, name)
			}
		}
	}
	if total["r"] >= 3200 || total["a"] >= 3200 || total["k"] >= 300 {
		t.Errorf("tools counted: %v", total)
	}
	if status, header, body := s.chatAs("", ask, ""); status != 200 || header.Get("X-Sidecar-Mode") != "passthrough" {
		t.Errorf("a client that is not listed: %d, mode %s: %s", status, header.Get("X-Sidecar-Mode"), body)
	}
	named := `,"tool_choice":{"type":"function","function":{"name":"orders__refund_order"}}`
	if status, _, body := s.chatAs("a", ask, named); status != 400 {
		t.Errorf("a forbidden tool_choice: %d %s", status, body)
	}
	s.kill()
	if !strings.Contains(s.stderr.String(), "no default entry") {
		t.Errorf("stderr: %s", s.stderr)
	}
}

// TestClientsFileRefused: what is wrong with a file of clients is said with its place.
func TestClientsFileRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n  key: x\n  dney: [b]\n":                          ":3: clients: a: unknown key dney",
		"a:\n  key: x\nb:\n  key: x\n":                         ":3: clients: client b: it has the same key as a",
		"a:\n  key: x\na:\n  key: y\n":                         ":3: clients: a: listed twice",
		"a:\n  key: x\n  max_risk: A0\n  max-risk: A3\n":       ":4: clients: a: max-risk: given twice",
		"a:\n  key: x\n  allow: [b]\n  allow: []\n":            ":4: clients: a: allow: given twice",
		"default: {max_risk: A0}\na:\n  key: ''\n":             ":2: clients: client a: a key that is empty",
		"default: {max_risk: A0}\na:\n  key: Bearer x\n":       ":2: clients: client a: a key that is empty or has a space",
		"default: {max_risk: A0}\na:\n  key: x\n  deny: ['[']": ":2: clients: client a: pattern",
		"a:\n  key: x\n  max_risk: 3\n":                        ":3: clients: a: max_risk: risk \"3\"",
		"default: {max_risk: A0}\n---\nk: {}\n":                ":2: a second document",
		"default: {max_risk: A0}\n---\n[\n":                    "line ",
		"- a\n":                                                ":1: clients: a mapping is expected",
		"":                                                     "empty",
	} {
		path := filepath.Join(t.TempDir(), "clients.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadClients(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestServeEmbedder: the command starts with an embedder that is down, and uses it
// when it is up.
func TestServeEmbedder(t *testing.T) {
	engine, stopEngine, err := startSimulated(simengine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stopEngine()
	var key atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key.Store(r.Header.Get("Authorization"))
		var req struct{ Input []string }
		if json.NewDecoder(r.Body).Decode(&req) != nil {
			w.WriteHeader(400)
			return
		}
		for i := range req.Input {
			req.Input[i] = fmt.Sprintf(`{"index":%d,"embedding":[%d,1,2]}`, i, len(req.Input[i])%7)
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(req.Input, ","))
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	if err := server.Listener.Close(); err != nil { // refused until it starts
		t.Fatal(err)
	}
	t.Setenv("SIDECAR_EMBEDDER_KEY", "secret")
	s := startServing(t, "--engine", engine, "--catalog", "demo", "--embedder", "http://"+address, "--embedder-deadline", "50ms")
	n := 0
	ask := func() proxy.Record {
		n++
		if status, _, body := s.chatAs("", fmt.Sprintf(`[{"role":"user","content":"refund order %d"}]`, n), ""); status != 200 && status != 502 {
			t.Fatal(status, body)
		}
		return s.recordOf("")
	}
	if rec := ask(); len(rec.Added) == 0 || !strings.Contains(rec.Fallback, "embedder: ") {
		t.Errorf("down: added %v, fallback %q", rec.Added, rec.Fallback)
	}
	if server.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server.Start()
	for range 600 {
		if rec := ask(); !strings.Contains(rec.Fallback, "embedder") && len(rec.Added) > 0 {
			if key.Load() != "Bearer secret" {
				t.Errorf("the key is %q", key.Load())
			}
			return
		}
	}
	s.kill()
	t.Errorf("never used: %s", s.stderr)
}

// TestDoctorEmbedder: an embedder that does not answer is named.
func TestDoctorEmbedder(t *testing.T) {
	engine, stopEngine, err := startSimulated(simengine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stopEngine()
	var status atomic.Int32
	status.Store(500)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(status.Load()))
		io.WriteString(w, `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
	}))
	defer server.Close()
	args := []string{"doctor", "--engine", engine, "--embedder", server.URL}
	if _, errs, err := outcomeOf(t, args...); err == nil || !strings.Contains(errs, "the embedder at "+server.URL+": embeddings: status 500") {
		t.Errorf("%v: %s", err, errs)
	}
	status.Store(200)
	if _, errs, err := outcomeOf(t, args...); err != nil || !strings.Contains(errs, "vectors of 3 dimensions") {
		t.Errorf("%v: %s", err, errs)
	}
}
