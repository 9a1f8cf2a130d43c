package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// A Request is what a client asks. Serve changes nothing of it but Body, which
// it clears before it calls Release.
type Request struct {
	Method   string
	Path     string // as the client spelled it, escapes included
	RawQuery string
	Header   http.Header // canonical keys
	Local    bool        // the connection comes from this machine
	Body     []byte      // valid until Serve returns, or until Release is called; with stages, for ever
	// Release, if not nil, is called when Body is not needed any more though the
	// reply goes on, so that a long stream does not hold it.
	Release func()
}

// A Sink takes the reply to one request. Its methods are called by one
// goroutine; Start once, before any Write.
type Sink interface {
	// Start sends status and header. A Content-Length in h promises as many
	// bytes; without one the body is a stream.
	Start(status int, h http.Header) error
	// Write sends p and, in a stream, flushes it. It does not keep p. An error
	// means that the client can't be reached any more.
	Write(p []byte) (int, error)
}

// Why a request's context ended. The causes are ours, so that a failed call of
// the engine can be told from a call that we gave up.
var (
	errClientGone = errors.New("the client closed its connection")
	errSilent     = errors.New("the engine did not begin its reply in time")
	errStalled    = errors.New("the engine stopped in the middle of its reply")
	errDraining   = errors.New("the sidecar is shutting down")
)

// An exchange is one request while it runs. It is used by one goroutine; what
// ends it from outside is its context.
type exchange struct {
	p      *Proxy
	ctx    context.Context
	cancel context.CancelCauseFunc
	req    *Request
	sink   Sink
	extra  http.Header // added to the reply's head
	id     string      // X-Request-Id
	route  string      // label in metrics and log
	start  time.Time

	in       int                   // bytes of the request's body
	status   int                   // sent to the client; 0 before Start
	stream   bool                  // the reply is a stream of events
	bytes    int                   // of the reply's body
	gone     bool                  // a write failed
	complete bool                  // the reply was sent to its end
	kind     string                // of failure, for metrics and log
	engine   time.Duration         // spent waiting for the engine's reply to begin
	added    time.Duration         // from the request's arrival to its first byte to the client, less engine
	clock    *time.Timer           // ends the exchange when the engine is late
	late     atomic.Pointer[error] // with which cause
	closing  func()                // called before a piece that may be the last a client waits for; may be nil
}

// begin starts the reply.
func (x *exchange) begin(status int, h http.Header) error {
	if h.Get("X-Request-Id") == "" {
		h.Set("X-Request-Id", x.id)
	}
	for key, values := range x.extra {
		h[key] = values
	}
	x.status = status
	x.added = time.Since(x.start) - x.engine
	err := x.sink.Start(status, h)
	x.gone = x.gone || err != nil
	return err
}

// write sends a piece of the reply.
func (x *exchange) write(p []byte) error {
	n, err := x.sink.Write(p)
	x.bytes += n
	x.gone = x.gone || err != nil
	return err
}

// ends says that the client may soon take the reply for whole.
func (x *exchange) ends() {
	if x.closing != nil {
		x.closing()
	}
}

// reply sends a whole reply.
func (x *exchange) reply(status int, h http.Header, body []byte) {
	x.ends()
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if x.begin(status, h) == nil {
		x.complete = len(body) == 0 || x.write(body) == nil
	}
}

// releaseBody gives the request's body back.
func (x *exchange) releaseBody() {
	if x.req.Release != nil {
		x.req.Body = nil
		x.req.Release()
	}
}

// fail tells the client about e: as the reply if none has begun, else as the
// last event of the stream. kind counts the failure; "" does not.
func (x *exchange) fail(kind string, e *openai.Error, extra ...string) {
	x.kind = kind
	if x.gone || context.Cause(x.ctx) == errClientGone {
		return
	}
	if x.status == 0 {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i+1 < len(extra); i += 2 {
			h.Set(extra[i], extra[i+1])
		}
		x.reply(e.Status, h, e.Body())
		return
	}
	if x.stream {
		event := append([]byte("data: "), e.Body()...)
		x.ends()
		x.write(append(event, "\n\n"...))
	}
}

// An accessLine is one line of the access log.
type accessLine struct {
	Time      string  `json:"time"`
	ID        string  `json:"id"`
	Method    string  `json:"method"`
	Path      string  `json:"path"`
	Status    int     `json:"status"`
	Stream    bool    `json:"stream"`
	In        int     `json:"bytes_in"`
	Out       int     `json:"bytes_out"`
	Seconds   float64 `json:"seconds"`
	EngineSec float64 `json:"engine_seconds"`
	Failure   string  `json:"failure,omitempty"`
}

// finish counts the request and logs it.
func (x *exchange) finish() {
	status := x.status
	if !x.complete && (context.Cause(x.ctx) == errClientGone || x.gone) {
		phase := "stream"
		if x.status == 0 {
			phase, status = "prefill", 499
		}
		x.kind = "client_gone"
		x.p.metrics.gone.WithLabelValues(phase).Inc()
	}
	x.p.metrics.requests.WithLabelValues(x.route, statusLabel(status)).Inc()
	if x.engine > 0 && x.status != 0 {
		x.p.metrics.added.Observe(x.added.Seconds())
	}
	if x.p.cfg.AccessLog == nil {
		return
	}
	line, err := json.Marshal(accessLine{
		Time: x.start.UTC().Format(time.RFC3339Nano), ID: x.id, Method: x.req.Method, Path: x.req.Path, Status: status,
		Stream: x.stream, In: x.in, Out: x.bytes, Seconds: time.Since(x.start).Seconds(), EngineSec: x.engine.Seconds(), Failure: x.kind,
	})
	if err != nil {
		panic(err) // strings and numbers alone
	}
	x.p.logMu.Lock()
	defer x.p.logMu.Unlock()
	x.p.cfg.AccessLog.Write(append(line, '\n'))
}

// statusLabel is strconv.Itoa without an allocation for what is common.
func statusLabel(status int) string {
	if status == 200 {
		return "200"
	}
	return strconv.Itoa(status)
}

// bodyTooLarge is the error for a request body beyond Config.MaxBody.
func bodyTooLarge(most int) *openai.Error {
	return &openai.Error{Status: 413, Type: invalidRequest, Code: "body_too_large",
		Message: fmt.Sprintf("The request body is over the limit of %d bytes (--max-body).", most)}
}
