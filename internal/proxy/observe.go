package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
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
	var lost *broken
	go func() {
		defer close(done)
		defer func() {
			if fault := recover(); fault != nil { // the wire must not notice
				x.p.metrics.panics.Inc()
				x.p.logFault(fault)
				rec.Mode, rec.Reason = "passthrough", "a fault of the shadow stages"
			}
		}()
		o, err := openai.Scan(x.req.Body, openai.Limits{MaxBytes: x.p.cfg.MaxBody, MaxDepth: x.p.cfg.MaxDepth})
		if err != nil {
			rec.Reason = err.Error()
			return
		}
		t, err := s.plan(ctx, x.req, o, rec)
		if err != nil {
			rec.Mode, rec.Reason = "passthrough", err.Error()
			return
		}
		rec.Mode, rec.Stream = "observe", t.stream
		lost = s.compare(t, tenant(x.req))
	}()
	return func() {
		answered()
		<-done
		if usage := tap.usage(); usage != nil {
			rec.Reported = reported(usage)
		}
		if lost != nil {
			s.records.broken(lost.where, lost.tokens)
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

// prompts remembers, for the report, the last prompt of conversations as their
// clients sent them. A conversation is known by its first user message, so that a
// change above it (a date in the system text, another tool order) is still seen
// as the same conversation.
type prompts struct {
	// mu guards the fields below.
	mu    sync.Mutex
	last  map[promptKey]sent
	keys  []promptKey // oldest first
	bytes int         // of the texts
}

// promptKey is the hash of tenant and first user message.
type promptKey [sha256.Size]byte

type sent struct {
	text     string
	messages int
}

// maxPrompts and maxPromptBytes bound the prompts remembered together: a window of
// 128k tokens is about 600 kB.
const (
	maxPrompts     = 1024
	maxPromptBytes = 64 << 20
)

func (p *prompts) swap(key promptKey, now sent) (before sent, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[promptKey]sent{}
	}
	before, ok = p.last[key]
	if ok {
		i := slices.Index(p.keys, key)
		p.keys = slices.Delete(p.keys, i, i+1)
	}
	p.keys = append(p.keys, key)
	p.last[key] = now
	p.bytes += len(now.text) - len(before.text)
	for p.bytes > maxPromptBytes || len(p.keys) > maxPrompts {
		p.bytes -= len(p.last[p.keys[0]].text)
		delete(p.last, p.keys[0])
		p.keys = p.keys[1:]
	}
	return before, ok
}

// broken is where a prompt stopped being a continuation of the turn before.
type broken struct {
	where  string
	tokens int // of the turn before behind that point
}

// compare renders the client's own prompt and compares it with the turn before.
func (s *stages) compare(t *turn, tenant string) *broken {
	f := t.info.Family
	var key promptKey
	keyed := false
	msgs := make([]wire.Message, len(t.messages))
	for i := range t.messages {
		m := &t.messages[i]
		msgs[i] = wire.Message{Role: m.Role, Content: m.Text, Reasoning: m.Reasoning}
		for _, k := range m.Calls {
			msgs[i].Calls = append(msgs[i].Calls, wire.Call{Name: k.Name, Arguments: k.Arguments})
		}
		if !keyed && m.Role == "user" {
			key, keyed = sha256.Sum256([]byte(tenant+"\x00"+m.Text)), true
		}
	}
	text := string(f.Render(nil, msgs, rawElements(t.tools), wire.Options{}))
	if len(text) > maxPromptBytes {
		return nil
	}
	before, ok := s.prompts.swap(key, sent{text, len(msgs)})
	if !ok || before.messages >= len(msgs) || strings.HasPrefix(text, before.text) {
		return nil
	}
	n := commonPrefix(before.text, text)
	return &broken{where: region(f, before.text, n), tokens: s.cfg.Counter.Count(before.text[n:])}
}

// rawElements are the elements of an array as the renderer takes them.
func rawElements(v openai.Value) []json.RawMessage {
	var raw []json.RawMessage
	for _, e := range openai.Elements(v) {
		raw = append(raw, e.Raw)
	}
	return raw
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// region names what stands at byte n of a rendered prompt.
func region(f *wire.Family, text string, n int) string {
	start := strings.LastIndex(text[:n], f.TurnStart)
	if start < 0 {
		return "start"
	}
	role, body, _ := strings.Cut(text[start+len(f.TurnStart):], "\n")
	if role != "system" {
		return role + " message"
	}
	if head, _, _ := strings.Cut(f.ToolsHead, "\n"); head != "" {
		if at := strings.Index(body, head); at >= 0 && n >= len(text)-len(body)+at {
			return "tools"
		}
	}
	return "system message"
}
