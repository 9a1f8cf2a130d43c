package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
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
	"time"
)

const (
	// StartTime is how long an engine may take to answer: it needs 45 s of CPU
	// time, which is 45 to 80 s of wall time on two idle cores, and on busy ones
	// has been more than six minutes.
	StartTime = 10 * time.Minute
	// stopTime is how long it may take to end; SGLang takes 10 s.
	stopTime = 25 * time.Second
	// killTime is how long the system may take to end what was killed.
	killTime = 5 * time.Second
	// pollTime is the pause between two looks at what only polling shows.
	pollTime = 200 * time.Millisecond
)

// A MissingError says that an engine or a model is not installed.
type MissingError struct {
	Engine Engine
	Model  Model
	Path   string // what is not there
}

func (e *MissingError) Error() string {
	how := "make engines"
	if e.Engine == KindLlama {
		how = "make llama"
	}
	return fmt.Sprintf("%s with the model %s is not installed (no %s): run '%s'", e.Engine, e.Model, e.Path, how)
}

// A Process is an engine that this program started.
type Process struct {
	URL string
	Log string // file with all that it wrote

	cmd    *exec.Cmd
	exited chan struct{} // closed when the leader of the process group has ended
	guard  *exec.Cmd
	alive  io.Closer // what the guard waits on
}

// Start runs an engine on a free port of 127.0.0.1 and returns when it has
// answered a request. It gives up when the engine ends, StartTime has passed or
// ctx is done; the error then carries the end of the log.
//
// The engine's processes form a group that ends with Stop, or when this program
// ends in whatever way without having called it.
func Start(ctx context.Context, e Engine, m Model) (*Process, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	if err := installed(root, e, m); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(root, ".cache", "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(logs, fmt.Sprintf("%s-%s-*.log", e, m))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	p := &Process{
		URL:    "http://127.0.0.1:" + strconv.Itoa(port),
		Log:    log.Name(),
		exited: make(chan struct{}),
	}
	p.cmd = exec.Command(filepath.Join(root, "tools", "serve.sh"), string(e), string(m), strconv.Itoa(port))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	if err := p.watch(); err != nil {
		p.Stop()
		return nil, err
	}
	if err := p.ready(ctx, e, m); err != nil {
		tail := p.Tail(40)
		p.Stop()
		return nil, fmt.Errorf("%s %s: %w; its log %s ends with\n%s", e, m, err, p.Log, tail)
	}
	return p, nil
}

func installed(root string, e Engine, m Model) error {
	directory, ok := map[Model]string{Tiny: "tiny-qwen3", SmolLM2: "smollm2-135m"}[m]
	if !ok {
		return fmt.Errorf("no model %q: there are %s and %s", m, Tiny, SmolLM2)
	}
	var need []string
	switch e {
	case KindLlama:
		need = []string{".cache/llama/llama-server", ".cache/models/" + string(m) + "-gguf/model.gguf"}
	case KindSGLang:
		need = append(need, ".venv/sglang/stamp")
		fallthrough // its packages lie on top of vLLM's
	default:
		need = append(need, ".venv/vllm/stamp", ".cache/models/"+directory+"/config.json")
	}
	for _, path := range need {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			return &MissingError{Engine: e, Model: m, Path: path}
		}
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// watch starts a guard that ends the engine when this program is gone: it reads a
// pipe that only we hold open, which no way of dying leaves open.
func (p *Process) watch() error {
	group := strconv.Itoa(p.cmd.Process.Pid)
	p.guard = exec.Command("sh", "-c", `read -r _; kill -TERM -"$1"; sleep `+strconv.Itoa(int(stopTime.Seconds()))+`; kill -KILL -"$1"`, "guard", group)
	p.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal must not end it first
	pipe, err := p.guard.StdinPipe()
	if err != nil {
		return err
	}
	p.alive = pipe
	return p.guard.Start()
}

// ready waits until the engine has answered a constrained request of one token.
//
// The constraint is there for vLLM, which settles on a grammar backend at the
// first constrained request of its life: one that its default backend cannot do
// would leave it with a backend that answers every structural tag with an error.
// With a tag first, the tests may come in any order.
func (p *Process) ready(ctx context.Context, e Engine, m Model) error {
	ctx, cancel := context.WithTimeoutCause(ctx, StartTime, fmt.Errorf("not ready within %v", StartTime))
	defer cancel()
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	server := &Server{URL: p.URL, Engine: e, Model: m}
	for server.healthy(ctx) != nil {
		select {
		case <-p.exited:
			return errors.New("it ended while starting")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	first := map[string]any{
		"model":      m,
		"max_tokens": 1,
		"messages":   []any{map[string]string{"role": "user", "content": "ready?"}},
	}
	if e != KindLlama { // it has no structural tags
		first["response_format"] = map[string]any{
			"type":   "structural_tag",
			"format": map[string]string{"type": "const_string", "value": "yes"},
		}
	}
	body, err := json.Marshal(first)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("first request: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("first request: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("first request: %s: %s", resp.Status, answer)
	}
	return nil
}

// Stop ends the engine and all its processes and returns when they are gone.
func (p *Process) Stop() {
	group := -p.cmd.Process.Pid
	syscall.Kill(group, syscall.SIGTERM)
	if !gone(group, stopTime) {
		syscall.Kill(group, syscall.SIGKILL)
		gone(group, killTime)
	}
	<-p.exited
	if p.guard != nil && p.guard.Process != nil {
		p.guard.Process.Kill()
		p.alive.Close()
		p.guard.Wait()
	}
}

// gone waits for the end of a process group whose members are mostly not our
// children, so that looking again and again is the only way.
func gone(group int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(pollTime) {
		if syscall.Kill(group, 0) == syscall.ESRCH {
			return true
		}
	}
	return false
}

// Tail returns the last n lines of the log.
func (p *Process) Tail(n int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
