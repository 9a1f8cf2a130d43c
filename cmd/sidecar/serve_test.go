package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is the command when this variable says so.
const asCommand = "SIDECAR_TEST_AS_COMMAND"

func init() {
	if os.Getenv(asCommand) == "1" {
		os.Exit(run(os.Args[1:]))
	}
}

// command prepares a run of the sidecar command as a process.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// SIGTERM lets a live stream end, then the process ends with status 0; a
// stream that does not end is cut with an error event.
func TestServeDrains(t *testing.T) {
	finish := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"n\":1}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-finish:
		case <-r.Context().Done():
			return
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	defer engine.Close()
	for _, tt := range []struct {
		name, timeout, end, stderr string
		finish                     bool
	}{
		{"is cut", "100ms", `"code":"draining"}}` + "\n\n", "1 requests were cut", false},
		{"ends by itself", "20s", "data: [DONE]\n\n", "draining for at most 20s", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := command(t, "serve", "--listen", "127.0.0.1:0", "--drain-timeout", tt.timeout)
			cmd.Env = append(cmd.Env, "SIDECAR_ENGINE="+engine.URL)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stuck := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
			defer stuck.Stop()
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "sidecar: listening on http://127.0.0.1:") || !strings.Contains(line, "engine "+engine.URL) {
				t.Fatalf("start line %q %v", line, err)
			}
			base, _, _ := strings.Cut(strings.TrimPrefix(line, "sidecar: listening on "), ",")
			resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			r := bufio.NewReader(resp.Body)
			if line, err := r.ReadString('\n'); line != "data: {\"n\":1}\n" {
				t.Fatalf("%q %v", line, err)
			}
			cmd.Process.Signal(syscall.SIGTERM)
			if tt.finish {
				for { // until the signal has been taken
					resp, err := http.Get(base + "/readyz")
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					if resp.StatusCode == 503 {
						break
					}
				}
				close(finish)
			}
			rest, err := io.ReadAll(r)
			if err != nil || !strings.HasSuffix(string(rest), tt.end) {
				t.Errorf("the stream ended with %q %v", rest, err)
			}
			http.DefaultClient.CloseIdleConnections()
			if err := cmd.Wait(); err != nil {
				t.Errorf("exit: %v", err)
			}
			if !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stderr %q", stderr.String())
			}
		})
	}
}

func TestServeRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, "no engine"},
		{[]string{"serve", "--engine", "localhost"}, "http://host:port"},
		{[]string{"serve", "--engine", "http://h", "--listen", taken.Addr().String()}, "another program listens there"},
		{[]string{"serve", "--engine", "http://h", "--listen", "nowhere"}, "missing port"},
		{[]string{"serve", "--engine", "http://h", "--allow-engine-field", "model"}, `engine field "model" needs no permission`},
		{[]string{"serve", "--engine", "http://h", "--access-log", filepath.Join(t.TempDir(), "no", "such")}, "access log"},
		{[]string{"serve", "extra"}, "takes no argument"},
		{[]string{"serve", "--retrieval", "false"}, "--retrieval=false"},
		{[]string{"serve", "--engine", "127.0.0.1:8000"}, "http://host:port"},
		{[]string{"serv"}, "unknown command"},
	} {
		cmd := command(t, tt.args...)
		stuck := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		stuck.Stop()
		if cmd.ProcessState.ExitCode() == 0 || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: %v\n%s", tt.args, err, out)
		}
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "hint: ") {
			t.Errorf("%q: status %d, no hint\n%s", tt.args, cmd.ProcessState.ExitCode(), out)
		}
	}
}

// The benchmark runs, and its rows add up.
func TestBenchProxy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	for _, stream := range []string{"--stream=false", "--stream=true"} {
		cmd := command(t, "bench", "proxy", "--kib", "1,16", "--pairs", "20", "--runs", "2", "--json", file, stream)
		stuck := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		stuck.Stop()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rows []struct {
			Run, Bytes int
			Direct     float64 `json:"direct_p50_us"`
			Through    float64 `json:"through_p50_us"`
			Added      float64 `json:"added_p50_us"`
		}
		if err := json.Unmarshal(raw, &rows); err != nil || len(rows) != 4 {
			t.Fatalf("%v %s", err, raw)
		}
		for _, r := range rows {
			if r.Direct <= 0 || r.Through <= 0 || r.Added != r.Through-r.Direct { // which is faster is no matter of a test
				t.Errorf("%+v", r)
			}
		}
	}
}
