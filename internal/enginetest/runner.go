package enginetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A runner is a script below tools/clients that answers lines of JSON by lines of
// JSON with the same id. Its methods may be called concurrently.
type runner struct {
	stdin  io.WriteCloser
	exited chan struct{} // closed when no more answers will come

	mu      sync.Mutex // guards what follows, and writes to stdin
	waiting map[string]chan []byte
	err     error // why it ended
}

// startRunner starts a script and ends it with the test. The test is skipped when
// what the script needs is not installed, and fails instead when
// SIDECAR_REQUIRE_DATA is 1.
func startRunner(t testing.TB, name, script string, arguments ...string) *runner {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	var command, mark string
	switch {
	case strings.HasSuffix(script, ".py"):
		command, mark = filepath.Join(root, ".venv/clients/bin/python"), ".venv/clients/stamp"
	case strings.HasSuffix(script, ".mjs"):
		command, mark = "node", "tools/clients/node/node_modules/.stamp"
	default:
		t.Fatalf("no library %q", name)
	}
	if _, err := os.Stat(filepath.Join(root, mark)); err != nil {
		message := fmt.Sprintf("%s is not installed (no %s): run 'make test-install'", name, mark)
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("%s; SIDECAR_REQUIRE_DATA is 1", message)
		}
		t.Skip(message)
	}
	cmd := exec.Command(command, append([]string{filepath.Join(root, "tools/clients", script)}, arguments...)...)
	cmd.Stderr = os.Stderr
	r := &runner{exited: make(chan struct{}), waiting: make(map[string]chan []byte)}
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go r.read(stdout)
	t.Cleanup(func() {
		r.mu.Lock()
		idle := len(r.waiting) == 0
		r.mu.Unlock()
		r.stdin.Close() // an idle runner then ends by itself
		if !idle {
			cmd.Process.Kill()
		}
		<-r.exited
		if err := cmd.Wait(); err != nil && idle {
			t.Errorf("%s: %v", name, err)
		}
	})
	return r
}

// read hands each answer to the call that waits for it.
func (r *runner) read(stdout io.Reader) {
	defer close(r.exited)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			r.fail(errors.New("the client has ended"))
			return
		}
		var answer struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			r.fail(fmt.Errorf("answer of the client: %w: %s", err, line))
			io.Copy(io.Discard, stdout)
			return
		}
		r.mu.Lock()
		ch := r.waiting[answer.ID]
		delete(r.waiting, answer.ID)
		r.mu.Unlock()
		if ch != nil {
			ch <- line // has room for it
		}
	}
}

func (r *runner) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// exchange sends a request, whose id must be unique among those of the runner, and
// reads its answer into answer.
func (r *runner) exchange(ctx context.Context, id string, request, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ch := make(chan []byte, 1)
	r.mu.Lock()
	if r.waiting[id] != nil {
		r.mu.Unlock()
		return fmt.Errorf("a call %q is already under way", id)
	}
	r.waiting[id] = ch
	_, err = r.stdin.Write(append(line, '\n'))
	r.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case line := <-ch:
		return json.Unmarshal(line, answer)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.exited:
	}
	select {
	case line := <-ch: // its last word
		return json.Unmarshal(line, answer)
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
