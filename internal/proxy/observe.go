package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
)

// observe runs the stages in shadow for a request that is forwarded unchanged:
// x.sink passes everything on and notes the engine's usage. The caller calls
// finish when the answer is over, which then waits for no probe: the client's
// connection waits for finish.
func (s *stages) observe(x *exchange, rec *Record) (finish func()) {
	tap := &tapSink{Sink: x.sink}
	x.sink = tap
	ctx, answered := context.WithCancel(x.ctx)
	done := make(chan struct{})
	var body *dissection
	var info *engine.Info
	go func() {
		defer close(done)
		defer func() {
			if fault := recover(); fault != nil { // the wire must not notice
				x.p.fault(fault)
				rec.Mode, rec.Reason = "passthrough", "a fault of the shadow stages"
			}
		}()
		o, err := openai.Scan(x.req.Body, openai.Limits{MaxBytes: x.p.cfg.MaxBody, MaxDepth: x.p.cfg.MaxDepth})
		if err != nil {
			rec.Reason = err.Error()
			return
		}
		if c, err := readChat(o); err == nil {
			s.records.settled(ctx) // the turn before may have ended this moment
			body = s.open(x.id, tenant(x.req), c.request())
			rec.Stream = c.stream
		}
		if t, err := s.plan(ctx, x.req, o, rec); err != nil {
			rec.Mode, rec.Reason = "passthrough", err.Error()
		} else {
			rec.Mode = "observe"
			s.cache.over(t) // it is never sent
		}
		if info, err = s.engine.info(ctx); err == nil && info.Family != nil && body != nil {
			s.compare(body, info.Family)
		}
	}()
	return func() {
		answered()
		<-done
		if usage := tap.usage(); usage != nil {
			rec.Reported = reported(usage)
		}
		if body != nil {
			s.conclude(body, rec, info)
		}
	}
}

// tapSink passes an answer on and keeps what may hold the usage object.
type tapSink struct {
	Sink
	stream bool
	last   []byte // the last event with a usage, or the body so far
	over   bool   // the body is too large to keep
}

// maxTap bounds the body that is kept to read its usage, in bytes.
const maxTap = 4 << 20

func (s *tapSink) Start(status int, h http.Header) error {
	s.stream = strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
	return s.Sink.Start(status, h)
}

func (s *tapSink) Write(b []byte) (int, error) {
	switch {
	case s.stream:
		if bytes.Contains(b, []byte(`"usage"`)) {
			s.last = bytes.Clone(b)
		}
	case len(s.last)+len(b) > maxTap:
		s.last, s.over = nil, true
	case !s.over:
		s.last = append(s.last, b...)
	}
	return s.Sink.Write(b)
}

// usage is the usage object of the answer, nil when it has none.
func (s *tapSink) usage() []byte {
	data := [][]byte{s.last}
	if s.stream {
		data = nil
		events := openai.NewReader(bytes.NewReader(s.last), maxTap)
		for e, err := events.Next(); err == nil; e, err = events.Next() {
			data = append(data, bytes.Clone(e.Data))
		}
	}
	for i := len(data) - 1; i >= 0; i-- {
		o, err := openai.Scan(data[i], openai.Limits{})
		if err != nil {
			continue
		}
		if v, ok := o.Get("usage"); ok && v.Kind() == '{' {
			return v.Raw
		}
	}
	return nil
}

// rawElements are the elements of an array as the renderer takes them.
func rawElements(v openai.Value) []json.RawMessage {
	var raw []json.RawMessage
	for _, e := range openai.Elements(v) {
		raw = append(raw, e.Raw)
	}
	return raw
}
