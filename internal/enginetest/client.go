package enginetest

import (
	"context"
	"encoding/json"
	"strconv"
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
type Client struct{ runner *runner }

// Connect starts a library that talks to baseURL (".../v1"), with up to jobs calls
// at a time, and ends it with the test. The test is skipped when the library is
// not installed, and fails instead when SIDECAR_REQUIRE_DATA is 1.
func Connect(t testing.TB, lib Library, baseURL string, jobs int) *Client {
	t.Helper()
	scripts := map[Library]string{OpenAIPython: "python/run.py", OpenAINode: "node/run.mjs"}
	return &Client{startRunner(t, string(lib), scripts[lib], "--base-url", baseURL, "--jobs", strconv.Itoa(jobs))}
}

// Do makes one call. The error is about the client, not about what the server
// answered: for that see Answer.OK.
func (c *Client) Do(ctx context.Context, call Call) (*Answer, error) {
	answer := new(Answer)
	if err := c.runner.exchange(ctx, call.ID, call, answer); err != nil {
		return nil, err
	}
	return answer, nil
}
