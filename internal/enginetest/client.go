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
	"strconv"
	"sync"
	"testing"
)

// A Library is a client library with a runner below tools/clients.
type Library string

const (
	OpenAIPython Library = "openai-python"
	OpenAINode   Library = "openai-node"
)

// Libraries are all of them.
var Libraries = []Library{OpenAIPython, OpenAINode}

// A Call is one request as tools/clients/README.md describes it.
type Call struct {
	ID          string            `json:"id"` // unique among the calls of one Client
	Call        string            `json:"call,omitempty"`
	Stream      bool              `json:"stream,omitempty"`
	Params      any               `json:"params,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Timeout     float64           `json:"timeout,omitempty"` // seconds
	CancelAfter int               `json:"cancel_after,omitempty"`
}

// An Answer is what a library made of the response to a Call.
type Answer struct {
	ID           string            `json:"id"`
	OK           bool              `json:"ok"`
	Status       int               `json:"status"` // 0 when there was no response
	Error        *ClientError      `json:"error"`
	Message      json.RawMessage   `json:"message"`
	ToolCalls    []ToolCall        `json:"tool_calls"`
	FinishReason string            `json:"finish_reason"` // "" when none came
	Usage        json.RawMessage   `json:"usage"`
	Headers      map[string]string `json:"headers"`
	Chunks       int               `json:"chunks"`
	Cancelled    bool              `json:"cancelled"`
	Body         json.RawMessage   `json:"body"`
}

// A ToolCall is a tool call as the library hands it to the program.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// A ClientError is what the library raised.
type ClientError struct {
	Kind    string `json:"kind"` // name of its class
	Message string `json:"message"`
	Code    any    `json:"code"`
	Param   any    `json:"param"`
	Type    any    `json:"type"`
}

func (e *ClientError) Error() string { return e.Kind + ": " + e.Message }

// Content returns the text of the assistant's message, "" when there is none.
func (a *Answer) Content() string {
	var m struct{ Content string }
	json.Unmarshal(a.Message, &m) // null content is ""
	return m.Content
}

// A Client is a running library. Its methods may be called concurrently.
type Client struct {
	stdin  io.WriteCloser
	exited chan struct{} // closed when no more answers will come

	mu      sync.Mutex // guards what follows, and writes to stdin
	waiting map[string]chan *Answer
	err     error // why it ended
}

// Connect starts a library that talks to baseURL (".../v1"), with up to jobs calls
// at a time, and ends it with the test. The test is skipped when the library is
// not installed, and fails instead when SIDECAR_REQUIRE_DATA is 1.
func Connect(t testing.TB, lib Library, baseURL string, jobs int) *Client {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	var command []string
	var mark string
	switch lib {
	case OpenAIPython:
		command = []string{filepath.Join(root, ".venv/clients/bin/python"), filepath.Join(root, "tools/clients/python/run.py")}
		mark = ".venv/clients/stamp"
	case OpenAINode:
		command = []string{"node", filepath.Join(root, "tools/clients/node/run.mjs")}
		mark = "tools/clients/node/node_modules/.stamp"
	default:
		t.Fatalf("no library %q", lib)
	}
	if _, err := os.Stat(filepath.Join(root, mark)); err != nil {
		message := fmt.Sprintf("%s is not installed (no %s): run 'make test-install'", lib, mark)
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("%s; SIDECAR_REQUIRE_DATA is 1", message)
		}
		t.Skip(message)
	}
	cmd := exec.Command(command[0], append(command[1:], "--base-url", baseURL, "--jobs", strconv.Itoa(jobs))...)
	cmd.Stderr = os.Stderr
	c := &Client{exited: make(chan struct{}), waiting: make(map[string]chan *Answer)}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(stdout)
	t.Cleanup(func() {
		c.mu.Lock()
		idle := len(c.waiting) == 0
		c.mu.Unlock()
		c.stdin.Close() // an idle runner then ends by itself
		if !idle {
			cmd.Process.Kill()
		}
		<-c.exited
		if err := cmd.Wait(); err != nil && idle {
			t.Errorf("%s: %v", lib, err)
		}
	})
	return c
}

// read hands each answer to the call that waits for it.
func (c *Client) read(stdout io.Reader) {
	defer close(c.exited)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			c.fail(errors.New("the client has ended"))
			return
		}
		answer := new(Answer)
		if err := json.Unmarshal(line, answer); err != nil {
			c.fail(fmt.Errorf("answer of the client: %w: %s", err, line))
			io.Copy(io.Discard, stdout)
			return
		}
		c.mu.Lock()
		ch := c.waiting[answer.ID]
		delete(c.waiting, answer.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- answer // has room for it
		}
	}
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// Do makes one call. The error is about the client, not about what the server
// answered: for that see Answer.OK.
func (c *Client) Do(ctx context.Context, call Call) (*Answer, error) {
	line, err := json.Marshal(call)
	if err != nil {
		return nil, err
	}
	ch := make(chan *Answer, 1)
	c.mu.Lock()
	if c.waiting[call.ID] != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("a call %q is already under way", call.ID)
	}
	c.waiting[call.ID] = ch
	_, err = c.stdin.Write(append(line, '\n'))
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case answer := <-ch:
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.exited:
	}
	select {
	case answer := <-ch: // its last word
		return answer, nil
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, c.err
}
