// Package proxy measures what the sidecar adds to a request: the same bytes
// are sent to a fake engine directly and through the sidecar, in turns, one at
// a time, and the times compared. The engine reads the request and answers at
// once with a fixed reply, so that every microsecond of difference is the
// sidecar's, its two extra socket hops included.
package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/bench/quantile"
)

// Config says what is measured.
type Config struct {
	Sizes  []int // bytes of the request body
	Pairs  int   // direct and through, of each size in each run
	Runs   int
	Stream bool // the reply is an event stream, timed to its first event
}

// A Row is the result for one size in one run. Times are in microseconds.
type Row struct {
	Run        int     `json:"run"`
	Bytes      int     `json:"bytes"`
	Stream     bool    `json:"stream"`
	Pairs      int     `json:"pairs"`
	DirectP50  float64 `json:"direct_p50_us"`
	DirectP99  float64 `json:"direct_p99_us"`
	ThroughP50 float64 `json:"through_p50_us"`
	ThroughP99 float64 `json:"through_p99_us"`
	AddedP50   float64 `json:"added_p50_us"`  // through less direct, of the medians
	AddedP99   float64 `json:"added_p99_us"`  // of the 99th percentiles
	PairedP50  float64 `json:"paired_p50_us"` // median of the differences within pairs
}

// Run measures and calls report for every row. The sidecar listens on through
// and forwards to engine.
func Run(ctx context.Context, cfg Config, engine, through string, report func(Row)) error {
	for run := range cfg.Runs {
		for _, size := range cfg.Sizes {
			row, err := measure(ctx, cfg, size, engine, through)
			if err != nil {
				return err
			}
			row.Run = run + 1
			report(row)
		}
	}
	return nil
}

func measure(ctx context.Context, cfg Config, size int, engine, through string) (Row, error) {
	request := chatRequest(size, cfg.Stream)
	a, err := dial(ctx, engine, request)
	if err != nil {
		return Row{}, err
	}
	defer a.conn.Close()
	b, err := dial(ctx, through, request)
	if err != nil {
		return Row{}, err
	}
	defer b.conn.Close()
	var direct, behind, diff []float64
	warm := max(20, cfg.Pairs/20)
	for i := range warm + cfg.Pairs {
		if ctx.Err() != nil {
			return Row{}, ctx.Err()
		}
		first, second := a, b
		if i%2 == 1 {
			first, second = b, a
		}
		t1, err := first.call(cfg.Stream)
		if err != nil {
			return Row{}, err
		}
		t2, err := second.call(cfg.Stream)
		if err != nil {
			return Row{}, err
		}
		if i%2 == 1 {
			t1, t2 = t2, t1
		}
		if i >= warm {
			direct, behind, diff = append(direct, t1), append(behind, t2), append(diff, t2-t1)
		}
	}
	slices.Sort(direct)
	slices.Sort(behind)
	slices.Sort(diff)
	row := Row{
		Bytes: size, Stream: cfg.Stream, Pairs: cfg.Pairs,
		DirectP50: quantile.Of(direct, 0.50), DirectP99: quantile.Of(direct, 0.99),
		ThroughP50: quantile.Of(behind, 0.50), ThroughP99: quantile.Of(behind, 0.99),
		PairedP50: quantile.Of(diff, 0.50),
	}
	row.AddedP50, row.AddedP99 = row.ThroughP50-row.DirectP50, row.ThroughP99-row.DirectP99
	return row, nil
}

// A caller sends one request again and again on one connection.
type caller struct {
	conn    net.Conn
	r       *bufio.Reader
	request []byte
}

func dial(ctx context.Context, addr string, request []byte) (*caller, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &caller{conn, bufio.NewReaderSize(conn, 64<<10), request}, nil
}

// call returns the microseconds from the first byte sent to the last one of
// the reply, or of its first event.
func (c *caller) call(stream bool) (float64, error) {
	c.conn.SetDeadline(time.Now().Add(30 * time.Second))
	start := time.Now()
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	head, err := readHead(c.r)
	if err != nil {
		return 0, err
	}
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		rest := make([]byte, min(c.r.Buffered(), 500))
		io.ReadFull(c.r, rest)
		return 0, fmt.Errorf("reply is %q", head+string(rest))
	}
	if n, ok := contentLength(head); ok {
		if _, err := c.r.Discard(n); err != nil {
			return 0, err
		}
		return micros(start), nil
	}
	var took float64
	for { // chunks
		line, err := c.r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("chunk size: %w", err)
		}
		if _, err := c.r.Discard(int(n) + 2); err != nil {
			return 0, err
		}
		if took == 0 {
			took = micros(start)
		}
		if n == 0 {
			return took, nil
		}
	}
}

func micros(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e3 }

// readHead reads up to and including the blank line.
func readHead(r *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := r.ReadSlice('\n')
		head.Write(line)
		if err != nil {
			return "", err
		}
		if len(line) <= 2 {
			return head.String(), nil
		}
	}
}

func contentLength(head string) (int, bool) {
	i := strings.Index(strings.ToLower(head), "\r\ncontent-length:")
	if i < 0 {
		return 0, false
	}
	line, _, _ := strings.Cut(head[i+len("\r\ncontent-length:"):], "\r\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	return n, err == nil
}

// chatRequest is a chat request as an agent sends it, with a body of about
// size bytes: half conversation, half tools.
func chatRequest(size int, stream bool) []byte {
	const line = "The build failed: undefined reference to `parse` in main.o, see the log below.\\n"
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"model":"fake","stream":%v,"messages":[{"role":"system","content":"You are a helpful agent."}`, stream)
	for b.Len() < size/2 {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"}`, strings.Repeat(line, min(20, 1+(size/2-b.Len())/200)))
	}
	b.WriteString(`],"tools":[`)
	for i := 0; i == 0 || b.Len() < size-200; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"tool_%d","description":"%s","parameters":{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}}}`, i, line)
	}
	b.WriteString(`]}`)
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer none\r\nContent-Type: application/json\r\nUser-Agent: sidecar-bench\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n", b.Len())
	return append([]byte(head), b.Bytes()...)
}

// An Engine is the fake engine. It answers any request at once.
type Engine struct {
	ln    net.Listener
	conns sync.WaitGroup
	mu    sync.Mutex // guards open
	open  map[net.Conn]struct{}
}

// StartEngine listens on a free port of the loopback interface.
func StartEngine() (*Engine, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &Engine{ln: ln, open: map[net.Conn]struct{}{}}
	e.conns.Add(1)
	go e.accept()
	return e, nil
}

// Addr returns the engine's host and port.
func (e *Engine) Addr() string { return e.ln.Addr().String() }

// Close ends the engine and its connections.
func (e *Engine) Close() {
	e.ln.Close()
	e.mu.Lock()
	for c := range e.open {
		c.Close()
	}
	e.mu.Unlock()
	e.conns.Wait()
}

func (e *Engine) accept() {
	defer e.conns.Done()
	for {
		c, err := e.ln.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.open[c] = struct{}{}
		e.mu.Unlock()
		e.conns.Add(1)
		go func() {
			defer e.conns.Done()
			defer func() {
				e.mu.Lock()
				delete(e.open, c)
				e.mu.Unlock()
				c.Close()
			}()
			answer(c)
		}()
	}
}

const event = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":0,"model":"fake","choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}` + "\n\n"

// answer serves one connection until it ends.
func answer(c net.Conn) {
	r := bufio.NewReaderSize(c, 64<<10)
	body := `{"id":"chatcmpl-0","object":"chat.completion","created":0,"model":"fake","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 60) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":60,"total_tokens":61}}`
	whole := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	streamed := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
		len(event), event, len("data: [DONE]\n\n"))
	for {
		head, err := readHead(r)
		if err != nil {
			return
		}
		n, _ := contentLength(head)
		reply := whole
		start, err := r.Peek(min(n, 200))
		if err != nil {
			return
		}
		if bytes.Contains(start, []byte(`"stream":true`)) {
			reply = streamed
		}
		if _, err := r.Discard(n); err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}
