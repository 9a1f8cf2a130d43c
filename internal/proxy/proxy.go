package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// invalidRequest is the OpenAI error type of what a client did wrong.
const invalidRequest = "invalid_request_error"

// serverError is an error that the client did not cause.
func serverError(status int, code, message string) *openai.Error {
	return &openai.Error{Status: status, Message: message, Type: "server_error", Code: code}
}

// A Proxy serves requests from many goroutines.
type Proxy struct {
	cfg     Config
	engine  *url.URL
	client  *engineClient
	gate    fieldGate
	metrics *metrics
	ready   readiness
	stages  stagedPath // nil: every request is passed on as it is

	stop context.CancelFunc // ends what runs beside the requests

	logMu sync.Mutex // guards writes to the logs of cfg

	mu       sync.Mutex // guards what follows
	live     map[*exchange]struct{}
	draining bool
	idle     chan struct{} // closed when draining and live is empty
}

// New checks cfg and returns a Proxy. It calls nobody yet.
func New(cfg Config) (*Proxy, error) {
	cfg.setDefaults()
	engine, err := cfg.baseURL()
	if err != nil {
		return nil, err
	}
	gate, err := newFieldGate(cfg.AllowEngineFields)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, engine: engine, gate: gate, metrics: newMetrics(), live: map[*exchange]struct{}{}, idle: make(chan struct{})}
	p.client = newEngineClient(&p.cfg)
	base, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.cfg.Stages.enabled() {
		stages, err := newStages(base, p)
		if err != nil {
			stop()
			return nil, err
		}
		p.stages = stages
	}
	return p, nil
}

// Close ends what runs beside the requests and drops the idle connections to
// the engine.
func (p *Proxy) Close() {
	p.stop()
	if s, ok := p.stages.(*stages); ok {
		s.engine.wait()
		if s.embedding != nil {
			s.embedding.wg.Wait()
		}
		s.prover.wg.Wait()
		if s.tokenIn != nil {
			s.tokenIn.wg.Wait()
		}
	}
	p.client.close()
}

// A route is one path that is served.
type route struct {
	path    string // ends in * when what follows is free
	methods []string
	serve   func(*Proxy, *exchange)
	open    bool // served while draining and over the limit
}

var routes []route

func init() { // routes name methods that name routes
	get, post, probe := []string{"GET"}, []string{"POST"}, []string{"GET", "HEAD"}
	routes = []route{
		{"/v1/chat/completions", post, (*Proxy).chat, false},
		{"/v1/completions", post, (*Proxy).completions, false},
		{"/v1/embeddings", post, (*Proxy).embeddings, false},
		{"/v1/models", get, (*Proxy).models, false},
		{"/v1/models/*", get, (*Proxy).models, false},
		{"/sidecar/v1/sessions", get, (*Proxy).serveSessions, true},
		{"/sidecar/v1/sessions/*", []string{"DELETE"}, (*Proxy).serveForget, true},
		{"/sidecar/v1/usage", []string{"GET", "DELETE"}, (*Proxy).serveUsage, true},
		{"/sidecar/v1/prefix-diff", post, (*Proxy).servePrefixDiff, true},
		{"/sidecar/v1/report", get, (*Proxy).serveReport, true},
		{"/healthz", probe, (*Proxy).serveHealth, true},
		{"/readyz", probe, (*Proxy).serveReady, true},
		{"/metrics", probe, (*Proxy).serveMetrics, true},
	}
}

func findRoute(path string) (*route, bool) {
	for i := range routes {
		r := &routes[i]
		if prefix, ok := strings.CutSuffix(r.path, "*"); ok {
			rest, ok := strings.CutPrefix(path, prefix)
			if ok && rest != "" && plainPath(rest) {
				return r, true
			}
		} else if r.path == path {
			return r, true
		}
	}
	return nil, false
}

// plainPath says whether a path has no segment that leads upwards or is empty,
// in whatever spelling, so that it reaches the engine as what it looks like.
func plainPath(path string) bool {
	path, err := url.PathUnescape(path)
	if err != nil || strings.ContainsAny(path, "\\\x00?#%") {
		return false
	}
	for seg := range strings.SplitSeq(path, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return false
		}
	}
	return true
}

// Serve answers one request through sink. It returns when the reply is
// complete or can't be completed; whoever calls cancels ctx when the client
// leaves. It never panics: a fault of our own is a 500 or an error event.
func (p *Proxy) Serve(ctx context.Context, req *Request, sink Sink) {
	ctx, cancel := context.WithCancelCause(ctx)
	x := &exchange{p: p, ctx: ctx, cancel: cancel, req: req, sink: sink, start: time.Now(), route: "other", in: len(req.Body)}
	if x.id = req.Header.Get("X-Request-Id"); !validRequestID(x.id) {
		x.id = newRequestID()
	}
	defer func() {
		if fault := recover(); fault != nil {
			p.fault(fault)
			x.fail("panic", serverError(500, "internal_error", "The sidecar failed on this request (X-Request-Id "+x.id+")."))
		}
		x.finish()
		cancel(nil)
	}()

	r, ok := findRoute(req.Path)
	if !ok {
		p.refuse(x, "unknown_path", &openai.Error{Status: 404, Type: invalidRequest, Code: "unknown_url",
			Message: fmt.Sprintf("There is no %s %s here. There are %s.", req.Method, cutText(req.Path, 200), routeList())})
		return
	}
	x.route = r.path
	if !slices.Contains(r.methods, req.Method) {
		p.refuse(x, "method", &openai.Error{Status: 405, Type: invalidRequest, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s is not allowed on %s; use %s.", cutText(req.Method, 20), r.path, r.methods[0])}, "Allow", strings.Join(r.methods, ", "))
		return
	}
	if !r.open {
		if reason, e := p.enter(x); e != nil {
			p.refuse(x, reason, e, "Retry-After", "1", "Connection", "close")
			return
		}
		p.metrics.active.Inc()
		defer func() {
			p.metrics.active.Dec()
			p.leave(x)
		}()
		if e := p.gate.checkHeader(req.Header); e != nil {
			p.refuse(x, "engine_field", e)
			return
		}
	}
	r.serve(p, x)
}

// newRequestID mints a random UUID. It need not be hard to guess, so that it
// costs no system call.
func newRequestID() string {
	var id uuid.UUID
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// refuse answers a request that does not reach the engine.
func (p *Proxy) refuse(x *exchange, reason string, e *openai.Error, extra ...string) {
	p.metrics.refused.WithLabelValues(reason).Inc()
	x.fail(reason, e, extra...)
}

// enter admits a request unless there are too many or the proxy drains.
func (p *Proxy) enter(x *exchange) (reason string, e *openai.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return "draining", serverError(503, "draining", "The sidecar is shutting down and takes no new requests; send it again to another replica.")
	}
	if len(p.live) >= p.cfg.MaxStreams {
		return "too_many_streams", &openai.Error{Status: 429, Type: "rate_limit_error", Code: "too_many_streams",
			Message: fmt.Sprintf("%d requests are being served, which is the limit (--max-streams); try again later.", p.cfg.MaxStreams)}
	}
	p.live[x] = struct{}{}
	return "", nil
}

func (p *Proxy) leave(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, x)
	if p.draining && len(p.live) == 0 {
		p.closeIdle()
	}
}

func (p *Proxy) closeIdle() {
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// Drain makes /readyz say no and refuses new requests, then waits for those
// being served. When ctx ends first, they are cut: an event stream gets an
// error event, a reply that has not begun a 503. It returns how many were cut
// once all have ended.
func (p *Proxy) Drain(ctx context.Context) (cut int) {
	p.mu.Lock()
	p.draining = true
	if len(p.live) == 0 {
		p.closeIdle()
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
		return 0
	case <-ctx.Done():
	}
	p.mu.Lock()
	cut = len(p.live)
	for x := range p.live {
		x.cancel(errDraining)
	}
	p.mu.Unlock()
	<-p.idle
	return cut
}

func (p *Proxy) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

// log writes one line for the operator.
func (p *Proxy) log(format string, args ...any) {
	if p.cfg.ErrorLog == nil {
		return
	}
	p.logMu.Lock()
	defer p.logMu.Unlock()
	fmt.Fprintf(p.cfg.ErrorLog, "sidecar: "+format+"\n", args...)
}

// fault counts and logs a fault of ours, after which things go on.
func (p *Proxy) fault(fault any) {
	p.metrics.panics.Inc()
	if p.cfg.ErrorLog == nil {
		return
	}
	p.logMu.Lock()
	defer p.logMu.Unlock()
	fmt.Fprintf(p.cfg.ErrorLog, "fault: %v\n%s", fault, debug.Stack())
}

func routeList() string {
	var names []string
	for _, r := range routes {
		names = append(names, r.methods[0]+" "+strings.Replace(r.path, "*", "{id}", 1))
	}
	return strings.Join(names, ", ")
}

// cutText bounds what of a client's text goes into a message.
func cutText(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
