package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/prefix"
)

// wants: every chat request is looked at; plan says which ones are left alone.
func (s *stages) wants(*openai.Object) bool { return true }

// serve runs one chat completion through the stages.
//
// The failure policy: retrieval and prefix fail open to the client's bytes, also
// by a fault of our own; a
// constraint that the engine refuses is left out and every call is checked; a
// reply that breaks the contract is an error, also in the middle of a stream.
func (s *stages) serve(x *exchange, o *openai.Object) {
	rec := &Record{ID: x.id, Time: x.start, Mode: "passthrough", tenant: tenant(x.req)}
	x.closing = sync.OnceFunc(func() { s.records.expect(rec) })
	defer s.records.settle(rec)
	defer func() {
		switch x.kind {
		case "engine_unreachable", "engine_connect_timeout", "engine_cut":
			s.engine.forget() // it may come back as another
		}
		rec.Total = milliseconds(time.Since(x.start))
		if rec.Error == "" {
			rec.Error = x.kind
		}
		s.note(rec)
	}()
	if s.cfg.Observe {
		defer s.observe(x, rec)()
		x.p.forward(x, true)
		return
	}
	s.salt(x, o)
	s.volatile(x, o, rec)
	t, err := s.planned(x, o, rec)
	var u *unstaged
	var e *openai.Error
	switch {
	case errors.As(err, &u) && s.withheld(x.req, o) != nil:
		rec.Mode, rec.Reason = "refused", u.reason
		x.p.refuse(x, "tool_not_allowed", s.withheld(x.req, o))
	case errors.As(err, &u):
		rec.Mode, rec.Reason = "passthrough", u.reason
		rec.Held = heldByEngine(o)
		x.extra = rec.header()
		s.pin(x, o)
		x.p.forward(x, true)
	case errors.As(err, &e):
		rec.Mode = "refused"
		x.p.refuse(x, "bad_request", e)
	case err != nil:
		panic(err) // plan returns these two kinds
	default:
		rec.Stream = t.stream
		s.run(x, t)
		s.dissect(x, t)
	}
}

// planned is plan, whose own faults leave the request to the engine.
func (s *stages) planned(x *exchange, o *openai.Object, rec *Record) (t *turn, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			x.p.fault(fault)
			t, err = nil, &unstaged{"a fault of the stages"}
		}
	}()
	return s.plan(x.ctx, x.req, o, rec)
}

// run sends the turn and answers the client, in as many rounds as it takes. A body
// with a constraint that the engine refuses is sent once more in the next notation,
// and then without: calls are checked either way, and the names that may be called
// stay closed.
func (s *stages) run(x *exchange, t *turn) {
	defer s.cache.over(t)
	for {
		o := s.attempt(x, t)
		switch {
		case o.searched != nil:
			if err := s.search(t, o.searched); err != nil {
				s.fault(x, err)
				return
			}
		case o.refusal != "":
			t.record.fallBack("the engine refused the constraint, a " + t.constraint.kind() + ": " + o.refusal)
			t.next()
		default:
			return
		}
	}
}

// outcome is what came of one attempt; the zero value is that the client has its
// answer, or its error.
type outcome struct {
	refusal  string      // the engine refused the constraint, in its words
	searched *generation // the reply ended in a search
}

// attempt sends t.body once.
func (s *stages) attempt(x *exchange, t *turn) outcome {
	x.extra = t.record.header()
	resp, e := x.p.send(x, t.path, t.body)
	if e != nil {
		x.engineFault(e)
		return outcome{}
	}
	if resp.StatusCode != http.StatusOK {
		x.within(x.p.cfg.StallTimeout, errStalled)
		body, err := readReply(resp, maxRefusal, x.alive)
		x.clock.Stop()
		resp.Body.Close()
		if refused := resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusInternalServerError; err == nil && refused && !t.constraint.none() && aboutConstraint(body) {
			return outcome{refusal: cmp.Or(message(body), "no reason given")}
		}
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), errorReader{err}))
		if x.status != 0 { // an earlier round has begun the reply
			x.engineFault(serverError(502, fmt.Sprintf("engine_status_%d", resp.StatusCode), "The engine answered "+http.StatusText(resp.StatusCode)+": "+message(body)))
			return outcome{}
		}
		x.p.relay(x, resp, true)
		return outcome{}
	}
	defer resp.Body.Close()
	s.cache.begun(t)
	return s.answer(x, resp, t)
}

// errorReader ends a body that was read before: with the error that ended it, or
// with io.EOF.
type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	return 0, io.EOF
}

// maxRefusal bounds the body of an error answer in bytes.
const maxRefusal = 1 << 20

// aboutConstraint says whether a refusal speaks of the grammar rather than of the
// client's request: both engines name it in the message.
func aboutConstraint(body []byte) bool {
	for _, word := range []string{"structural_tag", "structural tag", "grammar", "response_format", "xgrammar"} {
		if bytes.Contains(body, []byte(word)) {
			return true
		}
	}
	return false
}

// message is the text of an engine's error object: {"error":{"message":…}}, or
// {"message":…} as SGLang writes it.
func message(body []byte) string {
	o, err := openai.Scan(body, openai.Limits{})
	if err != nil {
		return cutText(strings.TrimSpace(string(body)), 300)
	}
	if v, ok := o.Get("error"); ok {
		if e, ok := openai.ObjectOf(v); ok {
			o = e
		}
	}
	return cutText(text(o, "message"), 300)
}

// next rewrites the body with another notation of the constraint, and when none
// is left with the client's own response_format.
func (t *turn) next() {
	if again := t.again; again != nil {
		t.again, t.noTag = nil, true
		again()
	} else {
		t.release()
		t.record.Constraint, t.record.CompileMS = "checked", 0
	}
	t.refused = t.constraint.none()
	t.constraint.put(t.object)
	t.encode()
}

// answer turns the engine's stream into the client's answer. SGLang reports a
// constraint that it can't compile as the first event of a stream with status
// 200, so that the client's status waits for the first event.
func (s *stages) answer(x *exchange, resp *http.Response, t *turn) outcome {
	x.within(x.p.cfg.StallTimeout, errStalled)
	defer func() { x.clock.Stop() }()
	x.p.metrics.streams.Inc()
	defer x.p.metrics.streams.Dec()
	r := &generation{
		family:   t.info.Family,
		tools:    t.offered,
		schema:   func(tool string) json.RawMessage { return t.schemas[tool] },
		none:     t.choice.Mode == grammar.None,
		must:     t.choice.Mode == grammar.Required || t.choice.Mode == grammar.Named,
		single:   !t.choice.Parallel,
		within:   t.within(),
		limits:   openai.Limits{MaxBytes: x.p.cfg.MaxEvent},
		response: t.choice.Response,
		search:   t.canSearch,
		stream:   t.stream,
		stops:    t.stops,
		earlier:  &t.earlier,
		ids:      t.ids != nil,
		keepIDs:  t.wantsIDs,
		top:      integer(t.object, "top_logprobs", 0),
		newID:    func() string { return "call_" + strings.ReplaceAll(uuid.NewString(), "-", "") },
	}
	if t.prompt != nil {
		switch t.info.TokenIn {
		case engine.Completions:
			r.read = r.completions
		case engine.Completion:
			r.read = newLlamaStream(s.cfg.Counter, cmp.Or(t.model, t.info.Models[0].ID), t.choices, r.top).read
		}
	}
	events := openai.NewReader(resp.Body, x.p.cfg.MaxEvent)
	done := false // the engine said so
	for {
		e, err := events.Next()
		if done = err == nil && bytes.Equal(e.Data, doneData); done || err == io.EOF && x.ctx.Err() == nil {
			break
		}
		if err != nil {
			s.settle(t, r, x.ending())
			x.engineFault(classify(context.Cause(x.ctx), err))
			return outcome{}
		}
		x.alive()
		if t.record.FirstByte == 0 {
			t.record.FirstByte = milliseconds(time.Since(x.start))
		}
		chunks, err := r.chunk(slices.Clone(e.Data), t.includeUsage)
		var reported *upstreamEvent
		if errors.As(err, &reported) && r.head == nil && !t.constraint.none() && aboutConstraint(reported.raw) {
			return outcome{refusal: cmp.Or(message(reported.raw), "no reason given")}
		}
		if t.stream && len(chunks) > 0 && !s.stream(x, t, chunks) {
			s.settle(t, r, left)
			return outcome{}
		}
		if err != nil {
			s.settle(t, r, failed)
			s.fault(x, err)
			return outcome{}
		}
	}
	if !r.finished() || !done && len(r.choices) < t.choices {
		s.settle(t, r, failed)
		x.engineFault(serverError(502, "engine_cut", "The engine's stream ended before its finish reason."))
		return outcome{}
	}
	if c := r.choices[0]; c.search != nil {
		if t.stream && x.status == 0 && !s.stream(x, t, nil) {
			return outcome{}
		}
		s.settle(t, r, failed)
		x.drain(resp.Body, events)
		return outcome{searched: r}
	}
	s.settle(t, r, finished)
	if t.stream {
		x.ends() // some clients stop at the finish reason
		x.complete = s.stream(x, t, nil) && x.write([]byte("data: [DONE]\n\n")) == nil
		x.drain(resp.Body, events)
		return outcome{}
	}
	x.drain(resp.Body, events)
	x.reply(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, r.completion())
	return outcome{}
}

// drainTime is how long the end of an engine's stream may take after [DONE].
const drainTime = 50 * time.Millisecond

// drain reads the end of the engine's stream, which keeps its connection for the
// next request. A stream without an end costs its connection, not the exchange:
// another round may follow.
func (x *exchange) drain(body io.Closer, events *openai.Reader) {
	x.clock.Stop()
	late := time.AfterFunc(drainTime, func() { body.Close() })
	defer late.Stop()
	for range 4 { // nothing but the end is expected
		if _, err := events.Next(); err != nil {
			return
		}
	}
}

// stream sends chunks as events, the head first. It returns false when the
// client is gone.
func (s *stages) stream(x *exchange, t *turn, chunks [][]byte) bool {
	if x.status == 0 {
		x.stream = true
		h := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}, "Cache-Control": {"no-cache"}}
		if x.begin(http.StatusOK, h) != nil {
			return false
		}
	}
	if len(chunks) == 0 {
		return true
	}
	var b []byte
	for _, c := range chunks {
		b = append(append(append(b, "data: "...), c...), "\n\n"...)
	}
	return x.write(b) == nil
}

// fault tells the client of a reply that can't be handed on.
func (s *stages) fault(x *exchange, err error) {
	var m *misfit
	if errors.As(err, &m) {
		s.records.misfit()
		e := &openai.Error{Status: 502, Type: "tool_call_error", Code: "tool_call_misfit", Message: "The model's reply was withheld: " + m.message + "."}
		var g *grammar.Misfit
		if errors.As(m.detail, &g) {
			e.Param, e.Detail = g.Loc, m.envelope
		}
		x.engineFault(e)
		return
	}
	code := "engine_bad_reply"
	if errors.As(err, new(*upstreamEvent)) {
		code = "engine_error_event"
	}
	x.engineFault(serverError(502, code, err.Error()))
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// An ending is how a reply ended.
type ending int

const (
	failed   ending = iota // by an error, or in a search
	finished               // with the engine's finish reason
	left                   // the client closed its connection
)

// ending is that of a reply whose next event could not be read.
func (x *exchange) ending() ending {
	if x.gone || context.Cause(x.ctx) == errClientGone {
		return left
	}
	return failed
}

// settle puts the outcome into the record and the turn into the ledger. What was
// cut by length, or by a client that left, is an open branch; a failed reply is
// none.
func (s *stages) settle(t *turn, r *generation, end ending) {
	if r.usage != nil {
		t.record.Reported = reported(r.usage)
	}
	inStep := true
	if rep := t.record.Reported; r.usage != nil && rep != nil && t.prompt != nil && rep.Prompt != len(t.prompt.IDs) {
		s.tokenIn.alarm(t, rep.Prompt)
		inStep = false
	}
	s.cache.concede(t)
	if t.ids != nil {
		for i, c := range r.choices {
			s.cache.generated(t, i, s.output(t, c))
		}
	}
	if len(r.choices) > 0 && r.choices[0].search != nil {
		return
	}
	for _, c := range r.choices {
		s.foreseeReply(t, t.earlier.text+c.text.String())
		t.record.Finish = append(t.record.Finish, c.finish)
		for _, k := range c.calls {
			t.record.Calls = append(t.record.Calls, k.name)
		}
	}
	for _, c := range r.choices {
		g := prefix.Generated{Text: c.raw(), Reasoning: c.reasoning.String()}
		switch {
		case end == finished && (c.finish == "length" || c.half):
			g.Open = true
		case end == finished && (c.finish == "stop" || c.finish == "tool_calls"):
		case end == left && t.stream && c.text.Len() > 0 && len(c.calls) == 0 && strings.HasPrefix(g.Text, c.text.String()):
			g.Text, g.Open = c.text.String(), true // what the client has seen
		default:
			continue
		}
		if t.prompt != nil && inStep {
			output, err := prefix.Output(t.info.Family, s.cfg.Counter, c.ids, g.Reasoning, g.Text)
			if err != nil {
				t.record.fallBack("the reply goes on as text: " + err.Error())
			} else {
				g.Prompt, g.Output = t.prompt, output
			}
		}
		t.conv.Reply(r.said(c), g)
	}
}

// reported reads the engine's usage object.
func reported(usage []byte) *Reported {
	o, err := openai.Scan(usage, openai.Limits{})
	if err != nil {
		return nil
	}
	rep := &Reported{Prompt: integer(o, "prompt_tokens", 0), Completion: integer(o, "completion_tokens", 0), Cached: -1}
	if v, ok := o.Get("prompt_tokens_details"); ok {
		if d, ok := openai.ObjectOf(v); ok {
			rep.Cached = integer(d, "cached_tokens", -1)
		}
	}
	return rep
}

// integer is the integer member of an object, or absent.
func integer(o *openai.Object, key string, absent int) int {
	if v, ok := o.Get(key); ok {
		if n, ok := v.Int(); ok {
			return int(n)
		}
	}
	return absent
}
