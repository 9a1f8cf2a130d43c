package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// Limits of what the agent takes in; past them a turn fails.
const (
	maxRounds      = 8        // turns that answer one message of the user
	maxDemoEvent   = 1 << 20  // bytes of one event
	maxDemoReply   = 1 << 20  // bytes of text and arguments of one reply
	maxDemoCalls   = 128      // calls of one reply, OpenAI's own bound on tools
	maxDemoAnswer  = 64 << 20 // bytes of an answer that is not a stream: /tokenize gives 400,000 ids in 3 MB
	maxDemoRefusal = 64 << 10 // bytes of an error answer
)

// agent is a plain client of the OpenAI API. It sends messages and no tools: the
// catalog is the server's.
type agent struct {
	client    *http.Client
	base      string // of the sidecar, without /v1
	model     string
	maxTokens int           // per turn
	timeout   time.Duration // per turn
	now       func() time.Time
	// call runs one call against the tools' handlers.
	call func(name string, arguments json.RawMessage) (string, error)
}

// demoMessage is one message of the conversation, as openai-python sends it.
type demoMessage struct {
	Role       string         `json:"role"`
	Content    *string        `json:"content"` // null beside calls
	ToolCalls  []demoToolCall `json:"tool_calls,omitempty"`
	ToolCallID string         `json:"tool_call_id,omitempty"`
}

type demoToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// demoTurn is one request to the sidecar and what came of it.
type demoTurn struct {
	ID       string `json:"id"`             // X-Request-Id, also that of the decision record
	Task     int    `json:"task"`           // from 1
	Turn     int    `json:"turn"`           // from 1 within its task
	User     string `json:"user,omitempty"` // the user's message, at the turn that it opens
	Mode     string `json:"mode"`
	Reason   string `json:"reason,omitempty"`   // why the request was passed through
	Fallback string `json:"fallback,omitempty"` // why a stage was left out

	Found       []demoFound  `json:"found"`
	Need        []string     `json:"need,omitempty"`     // tools that the user's message needs
	Missed      []string     `json:"missed,omitempty"`   // of these, not found when its first turn was sent
	Searches    []demoSearch `json:"searches,omitempty"` // of the model, answered within the turn
	Shown       int          `json:"shown"`              // tools in the prompt, those of earlier turns included
	ShownTokens int          `json:"shown_tokens"`

	PromptTokens     int  `json:"prompt_tokens"` // as the engine reports
	CompletionTokens int  `json:"completion_tokens"`
	CachedTokens     *int `json:"cached_tokens"`          // as the engine reports; null when it does not
	ExpectedCached   *int `json:"expected_cached_tokens"` // by the sidecar; null when it was not in charge
	// AllTools is the prompt with every tool of the catalog in front; null when it
	// could not be counted.
	AllTools *int `json:"all_tools_prompt_tokens"`

	Calls  []demoCall `json:"calls,omitempty"`
	Text   string     `json:"text,omitempty"`
	Finish string     `json:"finish,omitempty"`

	Stages  []demoStage `json:"stages,omitempty"`
	FirstMs float64     `json:"first_token_ms"` // from the request to the first text or call
	TotalMs float64     `json:"total_ms"`
	Error   string      `json:"error,omitempty"`
}

type demoFound struct {
	Name   string  `json:"name"`
	Score  float64 `json:"score,omitempty"`
	Tokens int     `json:"tokens,omitempty"`
	Why    string  `json:"why,omitempty"`
}

type demoCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Result    string `json:"result"`
}

type demoStage struct {
	Stage        string  `json:"stage"`
	Milliseconds float64 `json:"ms"`
}

// stagesMs is the time of all stages of the sidecar.
func (t *demoTurn) stagesMs() float64 {
	sum := 0.0
	for _, s := range t.Stages {
		sum += s.Milliseconds
	}
	return sum
}

// unreachableError says that nothing answers at an address.
type unreachableError struct {
	what, addr string
	err        error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("%s at %s cannot be reached: %v", e.what, e.addr, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// reach names the cause of a failed request without the URL that net/http puts
// before it, and tells an address where nothing listens from other failures.
func reach(what, addr string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = errors.New("connection refused")
	}
	return &unreachableError{what, addr, err}
}

// statusError is an answer other than 200.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("status %d: %s", e.status, e.message)
}

// getJSON decodes the answer to a GET into v.
func getJSON(ctx context.Context, client *http.Client, what, addr string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return err
	}
	return doJSON(client, req, what, v)
}

// postJSON decodes the answer to a POST of body into v.
func postJSON(ctx context.Context, client *http.Client, what, addr string, body, v any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, addr, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return doJSON(client, req, what, v)
}

func doJSON(client *http.Client, req *http.Request, what string, v any) error {
	resp, err := client.Do(req)
	if err != nil {
		return reach(what, req.URL.String(), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s at %s: %w", what, req.URL, refusal(resp))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDemoAnswer)).Decode(v); err != nil {
		return fmt.Errorf("%s at %s answers something else than the JSON expected: %v", what, req.URL, err)
	}
	return nil
}

// refusal reads the error object of an answer, else the start of its text.
func refusal(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxDemoRefusal)) // what came is enough
	e := &statusError{status: resp.StatusCode, message: plain(errorMessage(raw))}
	if e.message == "" {
		e.message = cut(plain(string(raw)), 200)
	}
	if e.message == "" {
		e.message = http.StatusText(resp.StatusCode)
	}
	return e
}

// errorMessage is the message of OpenAI's error object, "" when raw is not one.
func errorMessage(raw []byte) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return ""
	}
	return body.Error.Message
}

// firstModel asks the engine for the model to use and its context in tokens, 0
// when the engine does not tell.
func firstModel(ctx context.Context, client *http.Client, engine string) (id string, contextLen int, err error) {
	var list struct {
		Data []struct {
			ID          string `json:"id"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := getJSON(ctx, client, "the engine", engine+"/v1/models", &list); err != nil {
		return "", 0, err
	}
	if len(list.Data) == 0 {
		return "", 0, fmt.Errorf("the engine at %s lists no model", engine)
	}
	return list.Data[0].ID, list.Data[0].MaxModelLen, nil
}

// turn sends the conversation once and reads the reply. What came before a
// failure is in the turn, also when the error is not nil. progress, when not nil,
// is told the text and arguments as they arrive.
func (a *agent) turn(ctx context.Context, messages []demoMessage, t *demoTurn, progress func(string)) ([]demoToolCall, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"model":          a.model,
		"messages":       messages,
		"stream":         true,
		"stream_options": map[string]bool{"include_usage": true},
		"temperature":    0,
		"max_tokens":     a.maxTokens,
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := a.now()
	calls, err := a.exchange(req, start, t, progress)
	t.TotalMs = milliseconds(a.now().Sub(start))
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no end of the reply within %v", a.timeout)
	}
	if ctx.Err() == nil && t.ID != "" {
		if e := a.record(ctx, t); e != nil && err == nil {
			err = e
		}
	}
	return calls, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (a *agent) exchange(req *http.Request, start time.Time, t *demoTurn, progress func(string)) ([]demoToolCall, error) {
	resp, err := a.client.Do(req)
	if err != nil {
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
		return nil, reach("the sidecar", a.base, err)
	}
	defer resp.Body.Close()
	t.fromHeader(resp.Header)
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp)
	}
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		return nil, fmt.Errorf("a stream was asked for, the reply is %q", ct)
	}
	r := reply{turn: t, now: a.now, start: start, progress: progress}
	events := openai.NewReader(resp.Body, maxDemoEvent)
	for {
		e, err := events.Next()
		switch {
		case err == io.EOF:
			return nil, errors.New("the stream ended without [DONE]")
		case err != nil && req.Context().Err() != nil:
			return nil, req.Context().Err()
		case err != nil:
			return nil, err
		case string(e.Data) == "[DONE]":
			return r.finish()
		}
		if err := r.add(e.Data); err != nil {
			return nil, err
		}
	}
}

// fromHeader takes over what the sidecar decided before the engine was asked.
func (t *demoTurn) fromHeader(h http.Header) {
	t.ID = h.Get("X-Request-Id")
	t.Mode = h.Get("X-Sidecar-Mode")
	t.Reason = h.Get("X-Sidecar-Reason")
	t.Fallback = h.Get("X-Sidecar-Fallback")
	t.Found = []demoFound{}
	if names := h.Get("X-Sidecar-Tools"); names != "" {
		for name := range strings.SplitSeq(names, ",") {
			t.Found = append(t.Found, demoFound{Name: name})
		}
	}
	if n, err := strconv.Atoi(h.Get("X-Sidecar-Tool-Tokens")); err == nil {
		t.ShownTokens = n
	}
	if n, err := strconv.Atoi(h.Get("X-Sidecar-Expected-Cached-Tokens")); err == nil {
		t.ExpectedCached = &n
	}
	for part := range strings.SplitSeq(h.Get("Server-Timing"), ",") {
		name, dur, ok := strings.Cut(strings.TrimSpace(part), ";dur=")
		if ms, err := strconv.ParseFloat(dur, 64); ok && err == nil {
			t.Stages = append(t.Stages, demoStage{name, ms})
		}
	}
}

// reply gathers the deltas of one streamed reply.
type reply struct {
	turn     *demoTurn
	now      func() time.Time
	start    time.Time
	progress func(string)
	text     strings.Builder
	calls    []demoToolCall
	size     int // bytes of text and arguments
}

func (r *reply) add(data []byte) error {
	if msg := errorMessage(data); msg != "" {
		return fmt.Errorf("the stream ended with an error: %s", msg)
	}
	var chunk struct {
		Choices []struct {
			Delta struct {
				Content   string `json:"content"`
				ToolCalls []struct {
					Index    int    `json:"index"`
					ID       string `json:"id"`
					Function struct {
						Name      string `json:"name"`
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"delta"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("malformed chunk: %v", err)
	}
	if u := chunk.Usage; u != nil {
		r.turn.PromptTokens, r.turn.CompletionTokens = u.Prompt, u.Completion
		if u.Details != nil {
			r.turn.CachedTokens = u.Details.Cached
		}
	}
	for _, c := range chunk.Choices {
		r.arrived(c.Delta.Content)
		r.text.WriteString(c.Delta.Content)
		for _, d := range c.Delta.ToolCalls {
			if d.Index < 0 || d.Index > len(r.calls) || d.Index >= maxDemoCalls {
				return fmt.Errorf("malformed chunk: tool call %d after %d", d.Index, len(r.calls))
			}
			if d.Index == len(r.calls) {
				r.calls = append(r.calls, demoToolCall{ID: d.ID, Type: "function"})
			}
			call := &r.calls[d.Index]
			call.Function.Name += d.Function.Name
			call.Function.Arguments += d.Function.Arguments
			r.arrived(d.Function.Name + d.Function.Arguments)
		}
		if c.FinishReason != "" {
			r.turn.Finish = c.FinishReason
		}
	}
	if r.size > maxDemoReply {
		return fmt.Errorf("the reply is longer than %d bytes", maxDemoReply)
	}
	return nil
}

func (r *reply) arrived(s string) {
	if s == "" {
		return
	}
	if r.size == 0 {
		r.turn.FirstMs = milliseconds(r.now().Sub(r.start))
	}
	r.size += len(s)
	if r.progress != nil {
		r.progress(s)
	}
}

// finish judges a reply that has come to its end.
func (r *reply) finish() ([]demoToolCall, error) {
	t := r.turn
	t.Text = r.text.String()
	for _, c := range r.calls {
		t.Calls = append(t.Calls, demoCall{Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	switch {
	case t.Finish == "":
		return nil, errors.New("the stream ended without a finish reason")
	case t.Finish == "length" && len(r.calls) > 0:
		return nil, errors.New("the reply was cut inside a call by --max-tokens")
	case t.Finish == "tool_calls" && len(r.calls) == 0:
		return nil, errors.New("finish reason tool_calls without a call")
	}
	return r.calls, nil
}

// record completes a turn with the decision record of the same id. The sidecar
// files it when the reply has ended, which the client may see first.
func (a *agent) record(ctx context.Context, t *demoTurn) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		var all struct {
			Sessions []demoRecord `json:"sessions"`
		}
		err := getJSON(ctx, a.client, "the sidecar", a.base+"/sidecar/v1/sessions", &all)
		var status *statusError
		if errors.As(err, &status) && status.status == http.StatusNotFound {
			return errors.New("no decision records at " + a.base + "/sidecar/v1/sessions: is this a sidecar?")
		}
		for i := len(all.Sessions) - 1; i >= 0; i-- {
			if all.Sessions[i].ID == t.ID {
				all.Sessions[i].complete(t)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return fmt.Errorf("the sidecar has no decision record %s", t.ID)
		case <-again.C:
		}
	}
}

// demoSearch is one search of the model.
type demoSearch struct {
	Query string   `json:"query"`
	Found []string `json:"found"`
}

// demoRecord is what the demo reads of a decision record.
type demoRecord struct {
	ID          string      `json:"id"`
	Mode        string      `json:"mode"`
	Reason      string      `json:"reason"`
	Fallback    string      `json:"fallback"`
	Shown       int         `json:"shown"`
	ShownTokens int         `json:"shown_tokens"`
	Added       []demoFound `json:"added"`
	TokensExact bool        `json:"tokens_exact"`
	Expected    int         `json:"expected_cached_tokens"`
	Reported    *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Cached     int `json:"cached_tokens"` // -1 when the engine does not tell
	} `json:"reported"`
	Searches []demoSearch `json:"searches"`
	Earlier  *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Cached     int `json:"cached_tokens"`
		Expected   int `json:"expected_cached_tokens"`
	} `json:"earlier_rounds"`
	Timing []demoStage `json:"timing"`
}

func (r *demoRecord) complete(t *demoTurn) {
	t.Mode, t.Reason, t.Fallback = r.Mode, r.Reason, r.Fallback
	t.Shown, t.ShownTokens = r.Shown, r.ShownTokens
	if r.Added != nil {
		t.Found = r.Added
	}
	if r.Timing != nil {
		t.Stages = r.Timing
	}
	if (r.Mode == "owned" || r.Mode == "token-in") && r.TokensExact { // else nothing is expected
		t.ExpectedCached = &r.Expected
	}
	if r.Reported != nil {
		t.PromptTokens, t.CompletionTokens = r.Reported.Prompt, r.Reported.Completion
		if r.Reported.Cached >= 0 {
			t.CachedTokens = &r.Reported.Cached
		}
	}
	t.Searches = r.Searches
	if e := r.Earlier; e != nil { // the turn cost what all its rounds did
		t.PromptTokens, t.CompletionTokens = t.PromptTokens+e.Prompt, t.CompletionTokens+e.Completion
		if t.CachedTokens != nil && e.Cached >= 0 {
			*t.CachedTokens += e.Cached
		}
		if t.ExpectedCached != nil {
			*t.ExpectedCached += e.Expected
		}
	}
}

// run executes the calls of a turn and returns the messages that answer them.
func (a *agent) run(t *demoTurn, calls []demoToolCall) ([]demoMessage, error) {
	said := demoMessage{Role: "assistant", ToolCalls: calls}
	if t.Text != "" {
		said.Content = &t.Text
	}
	out := []demoMessage{said}
	for i, c := range calls {
		result, err := a.call(c.Function.Name, json.RawMessage(c.Function.Arguments))
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", c.Function.Name, err)
		}
		t.Calls[i].Result = result
		out = append(out, demoMessage{Role: "tool", Content: &result, ToolCallID: c.ID})
	}
	return out, nil
}
