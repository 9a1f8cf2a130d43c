package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// engineIdle is how long a connection to the engine is kept unused. uvicorn,
// which serves vLLM and SGLang, closes idle connections after 5 s; a request
// sent at that moment would be lost.
const engineIdle = 3 * time.Second

// newClient returns the client of the engine. It follows no redirects, adds no
// compression, knows no proxy from the environment and holds no cookies. It
// repeats a request by itself only where net/http does: on a kept connection
// that the engine had closed before a byte of the request was written.
func newClient(cfg *Config) http.RoundTripper {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConns:           0, // no limit: one engine
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        engineIdle,
		MaxResponseHeaderBytes: 1 << 20,
		WriteBufferSize:        16 << 10, // a request of a few KB leaves in one write
		ReadBufferSize:         4 << 10,
	}
}

// send calls the engine with the client's method, path, query and headers and
// with body. It returns when the engine's reply has begun. The caller closes
// the reply's body.
func (p *Proxy) send(x *exchange, body []byte) (*http.Response, *openai.Error) {
	u := *p.engine
	u.RawQuery = x.req.RawQuery
	if unescaped, err := url.PathUnescape(x.req.Path); err == nil {
		u.RawPath = p.engine.EscapedPath() + x.req.Path
		u.Path = p.engine.Path + unescaped
	}
	header := make(http.Header, len(x.req.Header)+2)
	endToEnd(header, x.req.Header, ownRequest)
	header["Accept-Encoding"] = []string{"identity"}
	header["X-Request-Id"] = []string{x.id}
	if p.cfg.EngineAPIKey != "" {
		header["Authorization"] = []string{"Bearer " + p.cfg.EngineAPIKey}
	}
	if header["User-Agent"] == nil {
		header["User-Agent"] = []string{""} // none, rather than Go's
	}
	req := (&http.Request{
		Method: x.req.Method, URL: &u, Header: header, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(x.ctx)
	if len(body) > 0 {
		req.ContentLength = int64(len(body))
		req.Body = x.sent.open(body)
		req.GetBody = func() (io.ReadCloser, error) { return x.sent.open(body), nil }
	} else if x.req.Method == "POST" {
		req.Body = http.NoBody
	}
	x.within(p.cfg.FirstByteTimeout, errSilent)
	from := time.Now()
	resp, err := p.client.RoundTrip(req)
	x.engine += time.Since(from)
	x.clock.Stop()
	if err != nil {
		return nil, classify(context.Cause(x.ctx), err)
	}
	return resp, nil
}

// classify says what became of a call that brought no reply, or of a reply
// that ended early, by who caused it. cause is why our own context ended, nil
// if it did not.
func classify(cause, err error) *openai.Error {
	switch cause {
	case nil:
	case errSilent:
		return serverError(504, "engine_timeout", "The engine did not begin its reply in time (--first-byte-timeout).")
	case errStalled:
		return serverError(504, "engine_stalled", "The engine stopped in the middle of its reply (--stall-timeout).")
	case errDraining:
		return serverError(503, "draining", "The sidecar is shutting down before this reply was complete.")
	default:
		return serverError(499, "client_gone", cause.Error())
	}
	var op *net.OpError
	var cut *openai.CutError
	var size *openai.EventSizeError
	switch {
	case errors.As(err, &size):
		return serverError(502, "engine_event_too_large", "The engine sent an event that is too large: "+err.Error()+".")
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return serverError(504, "engine_connect_timeout", "The engine could not be connected to in time (--connect-timeout).")
	case errors.As(err, &op) && op.Op == "dial":
		return serverError(502, "engine_unreachable", "The engine could not be connected to: "+reason(op.Err)+".")
	case errors.As(err, &cut):
		return serverError(502, "engine_cut", "The engine's stream ended in the middle of an event.")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return serverError(502, "engine_cut", "The engine closed the connection before its reply was complete.")
	}
	return serverError(502, "engine_bad_reply", "The engine's reply could not be read: "+reason(err)+".")
}

// reason is an error's text without the addresses of our own network.
func reason(err error) string {
	var sys syscall.Errno
	if errors.As(err, &sys) {
		return sys.Error()
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.Err
	}
	return cutText(strings.TrimPrefix(err.Error(), "net/http: "), 200)
}

// sentBodies are the readers of a request's body that the client may still
// hold after its call has returned. The bytes belong to whoever called Serve,
// so Serve waits for them.
type sentBodies struct{ held sync.WaitGroup }

type sentBody struct {
	bytes.Reader
	once   sync.Once
	bodies *sentBodies
}

func (s *sentBodies) open(body []byte) io.ReadCloser {
	s.held.Add(1)
	b := &sentBody{bodies: s}
	b.Reset(body)
	return b
}

func (s *sentBodies) wait() { s.held.Wait() }

func (b *sentBody) Close() error {
	b.once.Do(b.bodies.held.Done)
	return nil
}
