package engine

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Connections carries requests to an engine. It keeps connections for the next
// request, but none to a llama-server: that closes them behind each stream and
// promises the opposite, so that the next request on one would be lost.
type Connections struct {
	*http.Transport
	llama atomic.Bool // the engine has said that it is one
}

// RoundTrip implements http.RoundTripper.
func (c *Connections) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.llama.Load() {
		once := *req
		once.Close = true
		return c.Transport.RoundTrip(&once)
	}
	resp, err := c.Transport.RoundTrip(req)
	if err == nil && resp.Header.Get("Server") == "llama.cpp" && c.llama.CompareAndSwap(false, true) {
		resp.Body = &lastKept{resp.Body, c.Transport}
	}
	return resp, err
}

// lastKept is the body of the reply by which a llama-server was known.
type lastKept struct {
	io.ReadCloser
	transport *http.Transport
}

func (b *lastKept) Close() error {
	err := b.ReadCloser.Close()
	b.transport.CloseIdleConnections()
	return err
}
