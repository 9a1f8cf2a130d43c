package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fakeEngine answers requests by a script that writes to the connection, so
// that it can do what no HTTP library would.
type fakeEngine struct {
	url    string
	script func(*call)
	ln     net.Listener
	conns  sync.WaitGroup
	mu     sync.Mutex // guards what follows
	open   map[net.Conn]bool
	seen   []*call
}

// A call is one request that the engine got.
type call struct {
	conn net.Conn
	r    *bufio.Reader
	req  *http.Request
	body []byte
}

// newEngine runs a fakeEngine until the test ends.
func newEngine(t testing.TB, script func(*call)) *fakeEngine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEngine{url: "http://" + ln.Addr().String(), script: script, ln: ln, open: map[net.Conn]bool{}}
	e.conns.Add(1)
	go func() {
		defer e.conns.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.open[c] = true
			e.mu.Unlock()
			e.conns.Add(1)
			go e.serve(c)
		}
	}()
	t.Cleanup(e.stop)
	return e
}

func (e *fakeEngine) stop() {
	e.ln.Close()
	e.mu.Lock()
	for c := range e.open {
		c.Close()
	}
	e.mu.Unlock()
	e.conns.Wait()
}

func (e *fakeEngine) serve(c net.Conn) {
	defer e.conns.Done()
	defer func() {
		c.Close()
		e.mu.Lock()
		delete(e.open, c)
		e.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		k := &call{c, r, req, body}
		e.mu.Lock()
		e.seen = append(e.seen, k)
		e.mu.Unlock()
		e.script(k)
	}
}

// last returns the last request that the engine got.
func (e *fakeEngine) last() *call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) == 0 {
		return nil
	}
	return e.seen[len(e.seen)-1]
}

func (e *fakeEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

// waitIdle returns when the engine has no connection.
func (e *fakeEngine) waitIdle(t testing.TB) {
	eventually(t, "the engine without connections", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.open) == 0
	})
}

func (k *call) stream() bool { return bytes.Contains(k.body, []byte(`"stream":true`)) }

func (k *call) write(s string) { io.WriteString(k.conn, s) }

// json answers with a whole reply.
func (k *call) json(status int, header, body string) {
	k.write(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", status, http.StatusText(status), len(body), header, body))
}

// head begins an event stream in chunks.
func (k *call) head() {
	k.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\nX-Engine: fake\r\n\r\n")
}

func (k *call) chunk(s string) { k.write(fmt.Sprintf("%x\r\n%s\r\n", len(s), s)) }

func (k *call) end() { k.write("0\r\n\r\n") }

// hangUp closes the connection, with a reset if hard.
func (k *call) hangUp(hard bool) {
	if hard {
		k.conn.(*net.TCPConn).SetLinger(0)
	}
	k.conn.Close()
}

// waitClosed returns when the other side has closed the connection, or false
// after a second.
func (k *call) waitClosed() bool {
	k.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err := k.r.ReadByte()
	ne, timeout := err.(net.Error)
	return err != nil && !(timeout && ne.Timeout())
}

const (
	wholeReply = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"h\u00e9 \/ <b>"},"finish_reason":"stop"}], "usage":{"prompt_tokens":9007199254740993}}`
	event1     = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n"
	event2     = "event: x\ndata: {\"id\":\"c\",\ndata:  \"choices\":[]}\n\n"
	ping       = ": ping\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

// plainEngine answers as an engine in good health.
func plainEngine(k *call) {
	switch {
	case k.req.URL.Path == "/health":
		k.json(200, "", "")
	case k.stream():
		k.head()
		for _, s := range []string{event1, ping, event2[:7], event2[7:], doneEvent} {
			k.chunk(s)
		}
		k.end()
	case strings.HasPrefix(k.req.URL.Path, "/v1/models"):
		k.json(200, "X-Engine: fake\r\n", `{"object":"list", "data":[]}`)
	default:
		k.json(200, "X-Engine: fake\r\n", wholeReply)
	}
}

// A reply is what a client got.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// newClientFor returns an HTTP client whose connections end with the test.
func newClientFor(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func ask(t testing.TB, c *http.Client, method, url, body string, header ...string) reply {
	t.Helper()
	var r io.Reader = http.NoBody
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(got), err}
}

const (
	chatPath   = "/v1/chat/completions"
	wholeBody  = `{"model":"m","messages":[]}`
	streamBody = `{"model":"m","messages":[],"stream":true}`
)

// eventually waits for a state that another goroutine is about to reach.
func eventually(t testing.TB, what string, state func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !state() {
		if time.Now().After(deadline) {
			t.Fatalf("not in 5 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// newRawEngine answers each connection after a KiB of its request, closes its
// sending side and reads no more.
func newRawEngine(t testing.TB, answer string) (base string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 1024))
			io.WriteString(c, answer)
			c.(*net.TCPConn).CloseWrite()
			time.Sleep(50 * time.Millisecond)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); all.Wait() })
	return "http://" + ln.Addr().String()
}
