package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// send calls the engine with the client's method, query and headers, a path and a
// body. It returns when the engine's reply has begun. The caller closes
// the reply's body.
func (p *Proxy) send(x *exchange, path string, body []byte) (*http.Response, *openai.Error) {
	u, err := p.engineURL(path, x.req.RawQuery)
	if err != nil {
		return nil, &openai.Error{Status: 400, Type: invalidRequest, Code: "bad_path", Message: "The request's path is not well-formed."}
	}
	header := make(http.Header, len(x.req.Header)+2)
	endToEnd(header, x.req.Header, ownRequest)
	if name := badHeader(header); name != "" {
		return nil, &openai.Error{Status: 400, Type: invalidRequest, Code: "bad_header", Message: fmt.Sprintf("The request header %q has characters that HTTP does not allow.", cutText(name, 40))}
	}
	if c := header["Cookie"]; len(c) > 1 { // fasthttp joins them itself
		header["Cookie"] = []string{strings.Join(c, "; ")}
	}
	header["Accept-Encoding"] = []string{"identity"}
	header["X-Request-Id"] = []string{x.id}
	if p.cfg.EngineAPIKey != "" {
		header["Authorization"] = []string{"Bearer " + p.cfg.EngineAPIKey}
	}
	x.within(p.cfg.FirstByteTimeout, errSilent)
	from := time.Now()
	resp, err := p.client.do(x.ctx, &engineRequest{x.req.Method, u, header, body})
	x.engine += time.Since(from)
	x.clock.Stop()
	if err != nil {
		return nil, classify(context.Cause(x.ctx), err)
	}
	return resp, nil
}

// engineURL is the engine's address with a path as a client spelled it.
func (p *Proxy) engineURL(path, rawQuery string) (*url.URL, error) {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, err
	}
	u := *p.engine
	u.Path, u.RawPath, u.RawQuery = p.engine.Path+plain, p.engine.EscapedPath()+path, rawQuery
	return &u, nil
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
