package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// serving is a sidecar in a process of its own.
type serving struct {
	t      *testing.T
	base   string
	kill   func() // with SIGKILL; waits for the end
	stderr *bytes.Buffer
}

func startServing(t *testing.T, args ...string) *serving {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	s := &serving{t: t, stderr: &bytes.Buffer{}}
	cmd.Stderr = s.stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	s.kill = func() {
		if !killed {
			killed = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	t.Cleanup(s.kill)
	stuck := time.AfterFunc(20*time.Second, s.kill)
	defer stuck.Stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.kill()
		t.Fatalf("no start line: %v\n%s", err, s.stderr)
	}
	s.base, _, _ = strings.Cut(strings.TrimPrefix(line, "sidecar: listening on "), ",")
	return s
}

// turn asks and returns the reply's message and the record.
func (s *serving) turn(messages []json.RawMessage) (json.RawMessage, proxy.Record) {
	s.t.Helper()
	raw := post(s.t, s.base+"/v1/chat/completions", `{"model":"sim-qwen3","max_tokens":60,"messages":[`+string(bytes.Join(asBytes(messages), []byte(",")))+`]}`)
	var reply struct {
		Choices []struct{ Message json.RawMessage }
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		s.t.Fatal(err)
	}
	var sessions struct{ Sessions []proxy.Record }
	if err := getJSON(s.t.Context(), http.DefaultClient, "", s.base+"/sidecar/v1/sessions", &sessions); err != nil {
		s.t.Fatal(err)
	}
	return reply.Choices[0].Message, sessions.Sessions[len(sessions.Sessions)-1]
}

// TestLedgerSurvives: a conversation goes on after kill -9 as if nothing had
// happened: it is recognised, no tool is chosen anew, and the engine finds its
// prompt in the cache. A deleted one does not come back, and a ledger that was
// overwritten with rubbish costs the conversation's prefix and nothing else.
func TestLedgerSurvives(t *testing.T) {
	for _, mode := range []string{proxy.ModeTokenIn, proxy.ModeOwned} {
		t.Run(mode, func(t *testing.T) { ledgerSurvives(t, mode) })
	}
}

func ledgerSurvives(t *testing.T, mode string) {
	engine, stopEngine, err := startSimulated(simengine.Config{PromptTokensDetails: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stopEngine()
	dir := filepath.Join(t.TempDir(), "ledger")
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--engine", engine, "--catalog", "demo", "--ledger", "file:" + dir, "--ledger-key-file", key, "--mode", mode}
	say := func(text string) json.RawMessage {
		return marshal(t, map[string]string{"role": "user", "content": text})
	}

	s := startServing(t, args...)
	messages := []json.RawMessage{say("Give the customer of order ord_5512kk her money back, 49.90 euros.")}
	said, first := s.turn(messages)
	if first.Mode != mode || len(first.Added) == 0 {
		t.Fatalf("the first turn: mode %s, added %+v", first.Mode, first.Added)
	}
	s.kill()

	s = startServing(t, args...)
	messages = append(messages, said)
	var call struct {
		ToolCalls []struct{ ID string } `json:"tool_calls"`
	}
	if err := json.Unmarshal(said, &call); err != nil || len(call.ToolCalls) == 0 {
		t.Fatalf("the engine said %s", said)
	}
	messages = append(messages, marshal(t, map[string]string{"role": "tool", "tool_call_id": call.ToolCalls[0].ID, "content": "refunded"}))
	_, second := s.turn(messages)
	if second.Conversation != first.Conversation || second.Recognised < 2 || len(second.Added) != 0 {
		t.Errorf("after the kill: conversation %s and %s, %d recognised, added %+v", first.Conversation, second.Conversation, second.Recognised, second.Added)
	}
	if least := first.Reported.Prompt / 16 * 16; second.Reported.Cached < least {
		t.Errorf("after the kill: %d tokens cached of a first prompt of %d", second.Reported.Cached, first.Reported.Prompt)
	}
	if d := second.Reported.Cached - second.ExpectedCached; d < -16 || d > 16 {
		t.Errorf("after the kill: %d tokens cached, %d expected", second.Reported.Cached, second.ExpectedCached)
	}

	status, _, raw := s.as("", "DELETE", "/sidecar/v1/sessions/"+first.Conversation, "")
	var gone proxy.Forgotten
	if err := json.Unmarshal([]byte(raw), &gone); err != nil || status != 200 || gone.Entries < 3 {
		t.Fatalf("DELETE: status %d, %v: %s", status, err, raw)
	}
	s.kill()

	s = startServing(t, args...)
	if _, third := s.turn(messages); third.Recognised != 0 {
		t.Errorf("a deleted conversation is recognised in %d messages", third.Recognised)
	}
	s.kill()

	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err == nil {
			err = os.WriteFile(f, bytes.Repeat([]byte("rubbish "), int(info.Size()/8)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s = startServing(t, args...)
	if _, fourth := s.turn(messages); fourth.Mode != mode || fourth.Recognised != 0 || fourth.Error != "" {
		t.Errorf("with a damaged ledger: %+v", fourth)
	}
	s.kill()
	if !strings.Contains(s.stderr.String(), "does not begin as a segment does") {
		t.Errorf("the log says %q", s.stderr)
	}
}

// TestLedgerOptions: what is wrong with where and how a ledger is kept.
func TestLedgerOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cfg  ledgerConfig
		want string
	}{
		{ledgerConfig{Where: "disk"}, `--ledger "disk"`},
		{ledgerConfig{Where: "file:"}, `--ledger "file:"`},
		{ledgerConfig{Where: "file:" + file, Key: "0123456789abcdef"}, "not a directory"},
		{ledgerConfig{Where: "file:" + t.TempDir(), Key: "short"}, "at least 16"},
		{ledgerConfig{Where: "file:" + t.TempDir(), Key: "0123456789abcdef", KeyFile: file}, "both given"},
		{ledgerConfig{Where: "file:" + t.TempDir(), KeyFile: file + "s"}, "no such file"},
		{ledgerConfig{Where: "file:" + t.TempDir(), KeyFile: file}, "at least 16"},
	} {
		if _, _, err := openLedger(&tt.cfg, 1<<20, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.cfg, err, tt.want)
		}
	}
	// Without a key one is made, and found again.
	cfg := ledgerConfig{Where: "file:" + filepath.Join(t.TempDir(), "sub", "ledger")}
	var secrets [2]string
	for i := range secrets {
		l, secret, err := openLedger(&cfg, 1<<20, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		secrets[i] = fmt.Sprintf("%x", secret)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if secrets[0] != secrets[1] || len(secrets[0]) != 64 {
		t.Errorf("secrets %q", secrets)
	}
}
