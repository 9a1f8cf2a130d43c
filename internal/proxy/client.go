package proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsidecar/sidecar/internal/engine"
)

// An engineClient calls the engine by net/http. It follows no redirects, adds no
// headers, knows no proxy from the environment and holds no cookies. It repeats a
// request by itself only where net/http does: on a kept connection that the engine
// had closed before a byte of the request was written.
type engineClient struct{ transport *engine.Connections }

// An engineRequest is one request to the engine.
type engineRequest struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// engineIdle is how long a connection to the engine is kept unused. uvicorn,
// which serves vLLM and SGLang, closes idle connections after 5 s; a request
// sent at that moment would be lost.
const engineIdle = 3 * time.Second

const (
	maxReplyHead = 1 << 20 // bytes of the head of an engine's reply
	maxIdleConns = 512
)

func newEngineClient(cfg *Config) *engineClient {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}
	return &engineClient{&engine.Connections{Transport: &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        engineIdle,
		MaxResponseHeaderBytes: maxReplyHead,
		WriteBufferSize:        8 << 10, // a request of a few KB leaves in one write
	}}}
}

// close drops connections that are not in use.
func (c *engineClient) close() { c.transport.CloseIdleConnections() }

// do sends a request and returns when the reply's head has come. The caller closes
// the reply's body; ctx ends both the call and the reading of that body. The
// request's body is not read after do has failed or the reply's body has been
// closed.
func (c *engineClient) do(ctx context.Context, r *engineRequest) (*http.Response, error) {
	sent := new(openBodies)
	req := (&http.Request{
		Method: r.method, URL: r.url, Header: r.header, Host: r.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if r.header["User-Agent"] == nil {
		r.header["User-Agent"] = []string{""} // none, rather than Go's
	}
	if len(r.body) > 0 {
		open := func() (io.ReadCloser, error) {
			b := sent.open()
			b.Reset(r.body)
			return b, nil
		}
		req.ContentLength = int64(len(r.body))
		req.Body, _ = open()
		req.GetBody = open
	} else if r.method == "POST" {
		req.Body = http.NoBody
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		sent.wait()
		return nil, err
	}
	resp.Body = &replyBody{resp.Body, sent}
	return resp, nil
}

// A replyBody is the body of a reply. Closing it waits until the transport reads
// the request's body no more.
type replyBody struct {
	io.ReadCloser
	sent *openBodies
}

func (b *replyBody) Close() error {
	err := b.ReadCloser.Close()
	b.sent.wait()
	return err
}

// openBodies counts the readers of one request's body that the transport holds.
type openBodies struct {
	n    atomic.Int32
	done sync.WaitGroup
}

func (o *openBodies) open() *sentBody {
	o.n.Add(1)
	o.done.Add(1)
	return &sentBody{of: o}
}

func (o *openBodies) wait() { o.done.Wait() }

// read says whether the body is not being read.
func (o *openBodies) read() bool { return o.n.Load() == 0 }

// A sentBody reads a request's body and tells when it is read no more.
type sentBody struct {
	bytes.Reader
	once sync.Once
	of   *openBodies
}

func (b *sentBody) Close() error {
	b.once.Do(func() {
		b.of.n.Add(-1)
		b.of.done.Done()
	})
	return nil
}
