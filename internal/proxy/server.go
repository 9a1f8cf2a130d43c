package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// A Server is the fiber adapter.
type Server struct {
	p   *Proxy
	app *fiber.App
}

// NewServer returns a Server of p.
func NewServer(p *Proxy) *Server {
	s := &Server{p: p}
	s.app = fiber.New(fiber.Config{
		AppName:                   "sidecar",
		DisableStartupMessage:     true,
		DisableDefaultContentType: true,
		BodyLimit:                 p.cfg.MaxBody,
		ReadBufferSize:            p.cfg.MaxHeader,
		ReadTimeout:               p.cfg.HeaderTimeout,
		IdleTimeout:               p.cfg.IdleTimeout,
		ReduceMemoryUsage:         true, // no read buffer while a reply goes out, no body once it is released
		ErrorHandler:              s.serverError,
	})
	s.app.Server().HeaderReceived = func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
		return fasthttp.RequestConfig{ReadTimeout: p.cfg.BodyTimeout}
	}
	s.app.Server().CloseOnShutdown = true
	s.app.Server().MaxIdleWorkerDuration = 2 * time.Second // rather than 10: a burst's goroutines end soon
	s.app.Use(s.handle)
	routed := s.app.Handler()
	s.app.Server().Handler = func(fc *fasthttp.RequestCtx) {
		// Fiber answers a method that it does not know by itself, in plain text.
		if slices.Contains(fiber.DefaultMethods, string(fc.Method())) {
			routed(fc)
		} else {
			s.serve(fc)
		}
	}
	return s
}

// Serve accepts clients on ln, which must be a TCP listener, until Shutdown.
// It may return before the last of them has been served; Shutdown does not.
func (s *Server) Serve(ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return errors.New("a TCP listener is needed")
	}
	return s.app.Listener(&clientListener{tcp, s.p.cfg.WriteTimeout})
}

// Shutdown drains the proxy until ctx ends, then cuts what is left, closes the
// connections and waits for all of them, for a little longer than the write
// timeout at most. It returns how many requests were cut.
func (s *Server) Shutdown(ctx context.Context) (cut int, err error) {
	cut = s.p.Drain(ctx)
	closing, cancel := context.WithTimeout(context.Background(), s.p.cfg.WriteTimeout+lingerTime)
	defer cancel()
	err = s.app.ShutdownWithContext(closing)
	s.p.Close()
	return cut, err
}

// serverError answers what fiber refuses by itself: a request's head or body
// that is too long, too slow or no HTTP.
func (s *Server) serverError(c *fiber.Ctx, err error) error {
	status := 400
	var fe *fiber.Error
	if errors.As(err, &fe) {
		status = fe.Code
	}
	e := s.p.adapterError(status)
	if conn, ok := c.Context().Conn().(*clientConn); ok {
		conn.refused.Store(true)
	}
	c.Set("Content-Type", "application/json")
	c.Context().SetConnectionClose()
	return c.Status(e.Status).Send(e.Body())
}

// adapterError is the error for a request that the core has not seen: its head
// or body is too long (431, 413), too slow (408) or no HTTP (400).
func (p *Proxy) adapterError(status int) *openai.Error {
	e := &openai.Error{Status: status, Type: invalidRequest}
	switch status {
	case 413:
		e = bodyTooLarge(p.cfg.MaxBody)
	case 431:
		e.Code, e.Message = "headers_too_large", fmt.Sprintf("The request's head is over the limit of %d bytes (--max-header).", p.cfg.MaxHeader)
	case 408:
		e.Code, e.Message = "request_timeout", "The request did not arrive in time (--header-timeout, --body-timeout)."
	default:
		e.Status, e.Code, e.Message = 400, "bad_request", "The request is not well-formed HTTP/1.1."
	}
	p.metrics.refused.WithLabelValues(e.Code).Inc()
	p.metrics.requests.WithLabelValues("other", strconv.Itoa(e.Status)).Inc()
	return e
}

func (s *Server) handle(c *fiber.Ctx) error {
	s.serve(c.Context())
	return nil
}

// serve runs the core in a goroutine of its own until status and header are
// known, and watches the client meanwhile. fasthttp writes them and then reads
// the body from the pipe, whose Close, called in every case, ends core and
// watcher before the next request of the connection is read.
func (s *Server) serve(fc *fasthttp.RequestCtx) {
	ctx, cancel := context.WithCancelCause(context.Background())
	pipe := &pipe{cancel: cancel, done: make(chan struct{})}
	pipe.data.L = &pipe.mu
	pipe.room.L = &pipe.mu
	pipe.ready.init(fc.Conn())
	req := requestOf(fc)
	if s.p.stages != nil {
		// What the stages remember of a request may be part of its body.
		req.Body, req.Release = bytes.Clone(req.Body), nil
		fc.Request.ResetBody()
	}
	go func() {
		defer close(pipe.done)
		s.p.Serve(ctx, req, pipe)
		pipe.end()
	}()
	pipe.ready.wait(pipe.clientGone)

	resp := &fc.Response
	resp.SetStatusCode(pipe.status)
	for key, values := range pipe.header {
		for _, v := range values {
			resp.Header.Add(key, v)
		}
	}
	if pipe.header.Get("Connection") == "close" {
		fc.SetConnectionClose()
	}
	if pipe.whole {
		pipe.Close()
		resp.SetBodyRaw(pipe.buf)
		return
	}
	if conn := pipe.ready.conn; conn != nil {
		pipe.watcher = watch(conn, pipe.clientGone)
	}
	resp.ImmediateHeaderFlush = !pipe.hasData() // else they leave together
	resp.SetBodyStream(pipe, -1)
}

// requestOf is the core's view of a request. The body is fasthttp's own, which
// lives until it is released or the reply has been written, and is then
// another request's.
func requestOf(fc *fasthttp.RequestCtx) *Request {
	uri := fc.Request.URI()
	req := &Request{
		Method:   string(fc.Method()),
		Path:     string(uri.PathOriginal()),
		RawQuery: string(uri.QueryString()),
		Local:    fc.RemoteIP().IsLoopback(),
		Body:     fc.Request.Body(),
		Release:  fc.Request.ResetBody,
	}
	// All names and values are parts of one string, all lists of one slice.
	var text []byte
	n := 0
	for key, value := range fc.Request.Header.All() {
		text = append(append(text, key...), value...)
		n++
	}
	rest := string(text)
	lists := make([]string, n)
	req.Header = make(http.Header, n)
	for key, value := range fc.Request.Header.All() {
		k := http.CanonicalHeaderKey(rest[:len(key)])
		lists[0] = rest[len(key) : len(key)+len(value)]
		rest = rest[len(key)+len(value):]
		if have := req.Header[k]; have != nil {
			req.Header[k] = append(have, lists[0])
		} else {
			req.Header[k] = lists[:1:1]
		}
		lists = lists[1:]
	}
	return req
}

// pipeSize is what a client may lag behind the engine, in bytes.
const pipeSize = 64 << 10

// A pipe is the Sink of the core at one end and the body that fasthttp reads
// at the other. A whole reply gathers in it; of a stream it holds what
// fasthttp has not yet taken.
type pipe struct {
	cancel  context.CancelCauseFunc
	watcher *watcher      // of a stream
	ready   gate          // opened when status, header and, of a whole reply, body are known
	done    chan struct{} // closed when the core has returned

	status int
	header http.Header
	whole  bool

	mu     sync.Mutex // guards what follows
	data   sync.Cond  // buf has grown, or ended
	room   sync.Cond  // buf has shrunk, or closed
	buf    []byte
	off    int  // of buf, taken by fasthttp
	ended  bool // by the core
	closed bool // by the client or fasthttp
}

var errPipeClosed = errors.New("the client's connection is closed")

func (p *pipe) Start(status int, h http.Header) error {
	p.status, p.header = status, h
	if p.whole = h.Get("Content-Length") != ""; !p.whole {
		p.ready.open()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errPipeClosed
	}
	return nil
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.whole && len(p.buf) > 0 && len(p.buf)+len(b) > pipeSize && !p.closed { // one larger piece goes in alone
		p.room.Wait()
	}
	if p.closed {
		return 0, errPipeClosed
	}
	p.buf = append(p.buf, b...)
	p.data.Signal()
	return len(b), nil
}

// end is called when the core has returned.
func (p *pipe) end() {
	p.mu.Lock()
	p.ended = true
	p.data.Signal()
	p.mu.Unlock()
	if p.status == 0 { // nobody is there to answer
		p.status, p.header, p.whole = 499, http.Header{"Connection": {"close"}}, true
	}
	if p.whole {
		p.ready.open()
	}
}

func (p *pipe) clientGone() {
	p.cancel(errClientGone)
	p.mu.Lock()
	p.closed = true
	p.data.Signal()
	p.room.Signal()
	p.mu.Unlock()
}

func (p *pipe) hasData() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.buf) > p.off
}

// Read is called by fasthttp, which sends and flushes what it returns.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.off == len(p.buf) && !p.ended && !p.closed {
		p.data.Wait()
	}
	if p.closed {
		return 0, errPipeClosed
	}
	if p.off == len(p.buf) {
		return 0, io.EOF
	}
	n := copy(b, p.buf[p.off:])
	if p.off += n; p.off == len(p.buf) {
		p.buf, p.off = p.buf[:0], 0
	}
	p.room.Signal()
	return n, nil
}

// Close ends the exchange and waits until core and watcher have returned.
func (p *pipe) Close() error {
	p.mu.Lock()
	if !p.ended { // fasthttp could not write, or the client left
		p.closed = true
		p.room.Signal()
		p.cancel(errClientGone)
	}
	p.mu.Unlock()
	<-p.done
	p.cancel(nil)
	if p.watcher != nil {
		p.watcher.stop()
	}
	return nil
}
