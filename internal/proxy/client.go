package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// An engineClient calls the engine. It follows no redirects, adds no headers,
// knows no proxy from the environment and holds no cookies.
type engineClient interface {
	// do sends a request and returns when the reply's head has come. The
	// caller closes the reply's body; ctx ends both the call and the reading
	// of that body. Nothing is sent twice once a byte of it may have been
	// read. The request's body is not read after do has failed or the reply's
	// body has been closed.
	do(ctx context.Context, r *engineRequest) (*http.Response, error)
	// sendsFirst says whether the request's body is not read any more when do
	// has returned.
	sendsFirst() bool
	// close drops connections that are not in use.
	close()
}

// An engineRequest is one request to the engine.
type engineRequest struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// A transport is an engineClient for those who call with net/http.
type transport struct{ engineClient }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	return t.do(r.Context(), &engineRequest{r.Method, r.URL, r.Header.Clone(), body})
}

// engineIdle is how long a connection to the engine is kept unused. uvicorn,
// which serves vLLM and SGLang, closes idle connections after 5 s; a request
// sent at that moment would be lost.
const engineIdle = 3 * time.Second

const (
	maxReplyHead = 1 << 20 // bytes of the head of an engine's reply
	maxIdleConns = 512
)

// stdClient is net/http's client. It serves https engines, and tests as the
// oracle of plainClient.
type stdClient struct{ t *http.Transport }

func newStdClient(cfg *Config) *stdClient {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}
	return &stdClient{&http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        engineIdle,
		MaxResponseHeaderBytes: maxReplyHead,
		WriteBufferSize:        16 << 10, // a request of a few KB leaves in one write
	}}
}

func (c *stdClient) sendsFirst() bool { return false }

func (c *stdClient) close() { c.t.CloseIdleConnections() }

func (c *stdClient) do(ctx context.Context, r *engineRequest) (*http.Response, error) {
	sent := new(sync.WaitGroup) // readers of r.body that the transport holds
	req := (&http.Request{
		Method: r.method, URL: r.url, Header: r.header, Host: r.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if r.header["User-Agent"] == nil {
		r.header["User-Agent"] = []string{""} // none, rather than Go's
	}
	if len(r.body) > 0 {
		open := func() (io.ReadCloser, error) {
			sent.Add(1)
			b := &sentBody{done: sent.Done}
			b.Reset(r.body)
			return b, nil
		}
		req.ContentLength = int64(len(r.body))
		req.Body, _ = open()
		req.GetBody = open
	} else if r.method == "POST" {
		req.Body = http.NoBody
	}
	resp, err := c.t.RoundTrip(req)
	if err != nil {
		sent.Wait()
		return nil, err
	}
	resp.Body = &stdBody{resp.Body, sent}
	return resp, nil
}

type stdBody struct {
	io.ReadCloser
	sent *sync.WaitGroup
}

func (b *stdBody) Close() error {
	err := b.ReadCloser.Close()
	b.sent.Wait()
	return err
}

// A sentBody reads a request's body and tells when it is read no more.
type sentBody struct {
	bytes.Reader
	once sync.Once
	done func()
}

func (b *sentBody) Close() error {
	b.once.Do(b.done)
	return nil
}

// A plainClient calls an engine over http:// in the caller's goroutine, with
// net/http's reading of replies. net/http's own client hands each request to
// one goroutine and each reply to another, which costs more than all else the
// proxy does with a small request.
//
// The request is written before the reply is read: an engine that answers
// early, without reading a large request or closing the connection, is waited
// for until ctx ends.
type plainClient struct {
	addr   string
	dialer net.Dialer

	mu    sync.Mutex    // guards what follows
	idle  []*engineConn // longest unused first
	sweep *time.Timer   // closes what is unused for too long; nil when idle is empty
}

// An engineConn is a connection to the engine. It is the reader under its own
// buffer, so that the head of a reply can be bounded.
type engineConn struct {
	*net.TCPConn
	raw   syscall.RawConn
	r     *bufio.Reader
	left  int // bytes that may be read
	since time.Time
}

func newPlainClient(cfg *Config, engine *url.URL) *plainClient {
	addr := engine.Host
	if engine.Port() == "" {
		addr = net.JoinHostPort(engine.Hostname(), "80")
	}
	return &plainClient{addr: addr, dialer: net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}}
}

var errHeadTooLong = errors.New("the head of the reply is too long")

func (c *engineConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeadTooLong
	}
	n, err := c.TCPConn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func (c *plainClient) do(ctx context.Context, r *engineRequest) (*http.Response, error) {
	conn := c.take()
	if conn == nil {
		var err error
		if conn, err = c.dial(ctx); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { conn.TCPConn.Close() })
	resp, err := conn.call(r)
	if err != nil {
		stop()
		conn.TCPConn.Close()
		return nil, err
	}
	body := &plainBody{ReadCloser: resp.Body, client: c, conn: conn, stop: stop, keep: !resp.Close}
	if resp.Body == http.NoBody {
		body.release()
	}
	resp.Body = body
	return resp, nil
}

func (c *plainClient) dial(ctx context.Context) (*engineConn, error) {
	nc, err := c.dialer.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	tcp := nc.(*net.TCPConn)
	raw, err := tcp.SyscallConn()
	if err != nil {
		tcp.Close()
		return nil, err
	}
	conn := &engineConn{TCPConn: tcp, raw: raw}
	conn.r = bufio.NewReaderSize(conn, 4096)
	return conn, nil
}

// call writes a request and reads the head of its reply.
func (c *engineConn) call(r *engineRequest) (*http.Response, error) {
	head := make([]byte, 0, 1024)
	head = append(head, r.method...)
	head = append(head, ' ')
	head = append(head, r.url.RequestURI()...)
	head = append(head, " HTTP/1.1\r\nHost: "...)
	head = append(head, r.url.Host...)
	for key, values := range r.header {
		for _, v := range values {
			head = append(head, "\r\n"...)
			head = append(head, key...)
			head = append(head, ": "...)
			head = append(head, v...)
		}
	}
	if len(r.body) > 0 || r.method == "POST" {
		head = append(head, "\r\nContent-Length: "...)
		head = strconv.AppendInt(head, int64(len(r.body)), 10)
	}
	head = append(head, "\r\n\r\n"...)
	pieces := net.Buffers{head, r.body}
	_, failed := pieces.WriteTo(c.TCPConn)
	if failed != nil {
		// An engine that refuses a large request may have answered before it
		// closed the connection.
		c.SetReadDeadline(time.Now().Add(lingerTime))
	}
	for {
		c.left = maxReplyHead
		resp, err := http.ReadResponse(c.r, &http.Request{Method: r.method})
		switch {
		case err != nil && failed != nil:
			return nil, failed
		case errors.Is(err, io.ErrUnexpectedEOF) && c.left == maxReplyHead:
			return nil, io.EOF
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the engine wants to switch protocols")
		case resp.StatusCode < 200:
			continue // an interim reply; the head's limit holds for each
		}
		c.left = math.MaxInt
		if failed != nil {
			resp.Close = true
			c.SetReadDeadline(time.Time{})
		}
		return resp, nil
	}
}

// take returns a kept connection on which nothing has happened since, or nil.
func (c *plainClient) take() *engineConn {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			return nil
		}
		conn := c.idle[n-1]
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		still := false
		conn.raw.Control(func(fd uintptr) { still = quiet(fd) })
		if still && time.Since(conn.since) < engineIdle {
			return conn
		}
		conn.TCPConn.Close()
	}
}

func (c *plainClient) put(conn *engineConn) {
	conn.since = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == maxIdleConns {
		conn.TCPConn.Close()
		return
	}
	c.idle = append(c.idle, conn)
	if c.sweep == nil {
		c.sweep = time.AfterFunc(engineIdle, c.dropOld)
	}
}

func (c *plainClient) dropOld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := 0
	for old < len(c.idle) && time.Since(c.idle[old].since) >= engineIdle {
		c.idle[old].TCPConn.Close()
		old++
	}
	c.idle = slices.Delete(c.idle, 0, old)
	if c.sweep = nil; len(c.idle) > 0 {
		c.sweep = time.AfterFunc(engineIdle-time.Since(c.idle[0].since), c.dropOld)
	}
}

func (c *plainClient) sendsFirst() bool { return true }

func (c *plainClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.TCPConn.Close()
	}
	c.idle = nil
	if c.sweep != nil {
		c.sweep.Stop()
		c.sweep = nil
	}
}

// A plainBody is the body of a reply. Read to its end, it gives the connection
// back; closed before, it closes the connection.
type plainBody struct {
	io.ReadCloser
	client *plainClient
	conn   *engineConn // nil once given back or closed
	stop   func() bool
	keep   bool
}

func (b *plainBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.release()
	}
	return n, err
}

// release ends the use of the connection after the whole reply.
func (b *plainBody) release() {
	if b.stop() && b.keep && b.conn.r.Buffered() == 0 {
		b.client.put(b.conn)
	} else {
		b.conn.TCPConn.Close()
	}
	b.conn = nil
}

func (b *plainBody) Close() error {
	if b.conn == nil {
		return nil
	}
	b.stop()
	err := b.conn.TCPConn.Close()
	b.conn = nil
	return err
}
