package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/racetest"
)

// goneWithin is how fast the engine's connection must close after the client
// has left. Under the race detector it is only told.
const goneWithin = 250 * time.Millisecond

// checkGone does so for a connection that has closed.
func checkGone(t *testing.T, took time.Duration) {
	t.Helper()
	if took > goneWithin && racetest.Enabled {
		t.Logf("the engine's connection closed after %v", took)
	} else if took > goneWithin {
		t.Errorf("the engine's connection closed after %v", took)
	}
}

func dialRaw(t testing.TB, base string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func rawRequest(body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
}

// A client that leaves closes the engine's connection: while the engine is
// silent, between two events, by FIN or by reset, and with a request of its
// own already waiting behind.
func TestClientLeaves(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events int // sent before the engine falls silent; -1: no head either
		behind string
		reset  bool
	}{
		{"prefill", -1, "", false},
		{"prefill, reset", -1, "", true},
		{"prefill, another request behind", -1, rawRequest(streamBody), false},
		{"stream", 2, "", false},
		{"stream, reset", 2, "", true},
		{"stream, another request behind", 2, rawRequest(streamBody), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, adapter string) {
				if adapter == "nethttp" && tt.behind != "" {
					t.Skip("net/http sees a pipelined byte and looks no further")
				}
				silent := make(chan struct{}, 2)
				closed := make(chan time.Time, 2)
				eng := newEngine(t, func(k *call) {
					if tt.events >= 0 {
						k.head()
					}
					for range tt.events {
						k.chunk(event1)
					}
					silent <- struct{}{}
					k.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
					if _, err := k.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
						closed <- time.Now()
					}
				})
				p, base := start(t, adapter, Config{Engine: eng.url})
				for range 5 {
					conn := dialRaw(t, base)
					io.WriteString(conn, rawRequest(streamBody)+tt.behind)
					<-silent
					if tt.events > 0 {
						r := bufio.NewReader(conn)
						for n := 0; n < tt.events; {
							line, err := r.ReadString('\n')
							if err != nil {
								t.Fatal(err)
							}
							if strings.HasPrefix(line, "data:") {
								n++
							}
						}
					}
					if tt.reset {
						conn.(*net.TCPConn).SetLinger(0)
					}
					left := time.Now()
					conn.Close()
					select {
					case at := <-closed:
						checkGone(t, at.Sub(left))
					case <-time.After(20 * time.Second):
						t.Fatal("the engine's connection stayed open")
					}
				}
				phase := "prefill"
				if tt.events > 0 {
					phase = "stream"
				}
				eventually(t, "all departures counted", func() bool {
					return counter(p, "sidecar_client_disconnects_total", "phase", phase) == 5
				})
			})
		})
	}
}

// The watcher takes nothing from the connection: requests sent ahead, whole or
// in pieces, are answered in order.
func TestPipelined(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url})
		conn := dialRaw(t, base)
		r := bufio.NewReader(conn)
		var all strings.Builder
		const n = 40
		for i := range n {
			body := wholeBody
			if i%2 == 1 {
				body = streamBody
			}
			all.WriteString(rawRequest(body))
		}
		go func() {
			rest := all.String()
			for i := 1; len(rest) > 0; i++ {
				cut := min(len(rest), 1+i*37%500)
				io.WriteString(conn, rest[:cut])
				rest = rest[cut:]
				runtime.Gosched()
			}
		}()
		for i := range n {
			got, err := readReplyRaw(r)
			want := wholeReply
			if i%2 == 1 {
				want = event1 + ping + event2 + doneEvent
			}
			if err != nil || got.err != nil || got.status != 200 || got.body != want {
				t.Fatalf("reply %d: %d %q %v %v", i, got.status, got.body, err, got.err)
			}
		}
	})
}

// A connection is kept for the next request, after streams and after errors.
func TestKeepAlive(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url, HeaderTimeout: 100 * time.Millisecond, BodyTimeout: 100 * time.Millisecond})
		conn := dialRaw(t, base)
		r := bufio.NewReader(conn)
		for i, tt := range []struct {
			body   string
			status int
		}{{wholeBody, 200}, {streamBody, 200}, {`{`, 400}, {`{"cache_salt":"x"}`, 400}, {streamBody, 200}, {wholeBody, 200}} {
			if i == 3 {
				time.Sleep(150 * time.Millisecond) // an idle connection outlives the time for a head
			}
			io.WriteString(conn, rawRequest(tt.body))
			got, err := readReplyRaw(r)
			if err != nil || got.status != tt.status {
				t.Fatalf("request %d: %v %v", i, got, err)
			}
		}
	})
}

// A stream outlives the times for a request's head and body.
func TestLongStream(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, func(k *call) {
			k.head()
			for range 6 {
				k.chunk(event1)
				time.Sleep(50 * time.Millisecond)
			}
			k.chunk(doneEvent)
			k.end()
		})
		_, base := start(t, adapter, Config{Engine: eng.url, HeaderTimeout: 100 * time.Millisecond, BodyTimeout: 100 * time.Millisecond, WriteTimeout: 200 * time.Millisecond, StallTimeout: 200 * time.Millisecond})
		r := ask(t, newClientFor(t), "POST", base+chatPath, streamBody)
		if want := strings.Repeat(event1, 6) + doneEvent; r.body != want || r.err != nil {
			t.Errorf("%q %v", r.body, r.err)
		}
	})
}

// A reader who stalls ends his stream after the write timeout, and what waits
// for him is bounded meanwhile.
func TestStalledReader(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		var sent atomic.Int64
		ended := make(chan struct{})
		eng := newEngine(t, func(k *call) {
			defer close(ended)
			k.head()
			k.conn.SetWriteDeadline(time.Now().Add(15 * time.Second))
			big := "data: {\"x\":\"" + strings.Repeat("x", 16<<10) + "\"}\n\n"
			for {
				n, err := fmt.Fprintf(k.conn, "%x\r\n%s\r\n", len(big), big)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		_, base := start(t, adapter, Config{Engine: eng.url, WriteTimeout: 300 * time.Millisecond})
		conn := dialRaw(t, base)
		io.WriteString(conn, rawRequest(streamBody))
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			t.Fatal("the stream to a stalled reader goes on")
		}
		t.Logf("%d KiB were taken from the engine", sent.Load()>>10)
		if sent.Load() > 64<<20 {
			t.Errorf("%d MiB were taken from the engine", sent.Load()>>20)
		}
	})
}

func TestBodyChecks(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url, MaxBody: 1 << 16, MaxDepth: 10, AllowEngineFields: []string{"priority"}})
		c := newClientFor(t)
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
			for _, tt := range []struct {
				body, code, contains string
				status               int
			}{
				{`{"model":"m","model":"n"}`, "invalid_json", `line 1 column 14 (byte 13): duplicate key`, 400},
				{"{\n \"a\": \"\xff\"}", "invalid_json", `line 2 column 8 (byte 9): invalid UTF-8`, 400},
				{`{"a":`, "invalid_json", "ends where a value is expected", 400},
				{`[]`, "invalid_json", "object is expected", 400},
				{`{"a":"\ud800"}`, "invalid_json", "lone surrogate", 400},
				{strings.Repeat(`{"a":`, 11), "invalid_json", "nested deeper than 10", 400},
				{`{"a":NaN}`, "invalid_json", "NaN", 400},
				{`{"a":"` + strings.Repeat("x", 1<<16) + `"}`, "body_too_large", "65536 bytes (--max-body)", 413},
				{`{"cache_salt":"x"}`, "engine_field_refused", "--allow-engine-field cache_salt", 400},
				{`{"model":"m","kv_transfer_params":null}`, "engine_field_refused", `"param":"kv_transfer_params"`, 400},
				{`{"cache\u005fsalt":"x"}`, "engine_field_refused", "cache_salt", 400},
			} {
				before := eng.count()
				r := ask(t, c, "POST", base+path, tt.body)
				if code := checkError(t, r); r.status != tt.status || code != tt.code || !strings.Contains(r.body, tt.contains) {
					t.Errorf("%.60q: %d %s", tt.body, r.status, r.body)
				}
				if eng.count() != before {
					t.Errorf("%.60q reached the engine", tt.body)
				}
			}
			// What is unusual and means one thing passes as it is.
			for _, body := range []string{
				`{"priority":1}`, `{"Cache_Salt":1}`, `{"a":{"cache_salt":1}}`, `{"n":9007199254740993,"f":1e400,"m":-0}`,
				" {\t\"a\":\r\n1} ", `{"unknown_field":{"x":["\u0000","\/"]},"return_token_ids":true,"chat_template_kwargs":{}}`,
			} {
				r := ask(t, c, "POST", base+path, body)
				if r.status != 200 || string(eng.last().body) != body {
					t.Errorf("%q: %d, engine got %q", body, r.status, eng.last().body)
				}
			}
		}
		for enc, status := range map[string]int{"gzip": 415, "br, gzip": 415, "identity": 200} {
			r := ask(t, c, "POST", base+chatPath, wholeBody, "Content-Encoding", enc)
			if r.status != status {
				t.Errorf("Content-Encoding %s: %d", enc, r.status)
			}
			if status == 415 {
				checkError(t, r)
			}
		}
	})
}

// Every private field is refused by name and allowed by name, or all at once.
func TestEngineFields(t *testing.T) {
	eng := newEngine(t, plainEngine)
	_, closed := start(t, "nethttp", Config{Engine: eng.url})
	_, open := start(t, "nethttp", Config{Engine: eng.url, AllowEngineFields: []string{"all"}})
	c := newClientFor(t)
	for field := range engineFields {
		body := fmt.Sprintf(`{"model":"m",%q:1}`, field)
		if r := ask(t, c, "POST", closed+chatPath, body); r.status != 400 || !strings.Contains(r.body, "--allow-engine-field "+field) {
			t.Errorf("%s: %d %s", field, r.status, r.body)
		}
		if r := ask(t, c, "POST", open+chatPath, body); r.status != 200 {
			t.Errorf("%s allowed: %d %s", field, r.status, r.body)
		}
		_, one := start(t, "nethttp", Config{Engine: eng.url, AllowEngineFields: []string{field}})
		if r := ask(t, c, "POST", one+chatPath, body); r.status != 200 {
			t.Errorf("%s allowed by name: %d %s", field, r.status, r.body)
		}
	}
}

func TestEngineHeaders(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, closed := start(t, adapter, Config{Engine: eng.url})
		_, open := start(t, adapter, Config{Engine: eng.url, AllowEngineFields: []string{"X-Data-Parallel-Rank"}})
		c := newClientFor(t)
		r := ask(t, c, "POST", closed+chatPath, wholeBody, "x-data-parallel-rank", "1")
		if code := checkError(t, r); r.status != 400 || code != "engine_field_refused" || eng.count() != 0 {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := ask(t, c, "POST", open+chatPath, wholeBody, "x-data-parallel-rank", "1"); r.status != 200 || eng.last().req.Header.Get("X-Data-Parallel-Rank") != "1" {
			t.Errorf("allowed: %d", r.status)
		}
	})
}

// A thousand clients that leave at any moment leave nothing behind: every
// connection of the engine ends or is free for others.
func TestThousandDepartures(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		var late atomic.Int64
		eng := newEngine(t, func(k *call) {
			k.head()
			for range 3 {
				k.chunk(event1)
			}
			from := time.Now()
			k.conn.SetReadDeadline(from.Add(5 * time.Second))
			if _, err := k.r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
				late.Add(1)
			}
		})
		p, base := start(t, adapter, Config{Engine: eng.url})
		goroutines, files, _ := settled()
		var all sync.WaitGroup
		slots := make(chan struct{}, 50)
		for i := range 1000 {
			slots <- struct{}{}
			all.Add(1)
			go func() {
				defer func() { <-slots; all.Done() }()
				conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				request := rawRequest(streamBody)
				if i%5 == 0 {
					request = request[:i%len(request)] // not even the request is whole
				}
				io.WriteString(conn, request)
				if i%3 == 0 && i%5 != 0 {
					conn.Read(make([]byte, i%700))
				}
				if i%2 == 0 {
					conn.(*net.TCPConn).SetLinger(0)
				}
				conn.Close()
			}()
		}
		all.Wait()
		eventually(t, "no request being served", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.live) == 0
		})
		p.Close()
		eng.waitIdle(t)
		if n := late.Load(); n != 0 {
			t.Errorf("%d requests stayed at the engine", n)
		}
		eventually(t, "goroutines and files back at the start", func() bool {
			g, f, _ := settled()
			return g <= goroutines+20 && f <= files+20
		})
	})
}

// Requests that are too long, too slow or no HTTP end with a reply or a closed
// connection, soon, and none reaches the engine. This is about fiber's reading
// of HTTP; net/http's is another.
func TestHostileRequests(t *testing.T) {
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n"
	endless := func(piece string) func(net.Conn) {
		return func(c net.Conn) {
			for range 1 << 16 {
				if _, err := io.WriteString(c, piece); err != nil {
					return
				}
			}
		}
	}
	for _, tt := range []struct {
		name   string
		send   string
		more   func(net.Conn)
		status []int // acceptable; 0: closed without a reply
	}{
		{"long head", head + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", nil, []int{431, 0}},
		{"10,000 headers", head + strings.Repeat("X-A: b\r\n", 10_000) + "\r\n", nil, []int{431, 0}},
		{"long request line", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n\r\n", nil, []int{431, 0}},
		{"large body announced", head + "Content-Length: 67108864\r\n\r\n", endless(strings.Repeat("x", 4096)), []int{413}},
		{"chunks without end", head + "Transfer-Encoding: chunked\r\n\r\n", endless("1000\r\n" + strings.Repeat("x", 4096) + "\r\n"), []int{413}},
		{"negative length", head + "Content-Length: -1\r\n\r\n{}", nil, []int{400, 0}},
		{"two lengths", head + "Content-Length: 2\r\nContent-Length: 27\r\n\r\n{}", nil, []int{400, 0}},
		{"length and chunks", head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", nil, []int{400, 0}},
		{"odd transfer encoding", head + "Transfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{}", nil, []int{400, 501, 0}},
		{"space before the colon", head + "Content-Length : 2\r\n\r\n{}", nil, []int{400, 0}},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", nil, []int{400, 0}},
		{"bad chunk size", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", nil, []int{400, 0}},
		{"length too long, then silence", head + "Content-Length: 50\r\n\r\n{}", nil, []int{408, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eng := newEngine(t, plainEngine)
			p, err := New(Config{Engine: eng.url, MaxBody: 1 << 20, HeaderTimeout: 300 * time.Millisecond, BodyTimeout: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			base, stop := adapterNamed("fiber")(t, p)
			defer stop()
			conn := dialRaw(t, base)
			var sending sync.WaitGroup
			sending.Add(1)
			go func() {
				defer sending.Done()
				io.WriteString(conn, tt.send)
				if tt.more != nil {
					tt.more(conn)
				}
			}()
			r := bufio.NewReader(conn)
			got, err := readReplyRaw(r)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("no answer, and the connection stays open")
			}
			if err != nil {
				got.status = 0
			}
			ok := false
			for _, s := range tt.status {
				ok = ok || s == got.status
			}
			if !ok {
				t.Errorf("got %d %q %v, want %v", got.status, got.body, err, tt.status)
			}
			if got.status != 0 {
				checkError(t, got)
			}
			if _, err := readReplyRaw(r); err == nil && got.status != 0 {
				t.Error("a second reply came for one request")
			}
			conn.Close()
			sending.Wait()
			if n := eng.count(); n != 0 {
				t.Errorf("%d requests reached the engine: %s %q", n, eng.last().req.RequestURI, eng.last().body)
			}
		})
	}
}

func adapterNamed(name string) func(testing.TB, *Proxy) (string, func()) {
	for _, a := range adapters {
		if a.name == name {
			return a.start
		}
	}
	panic(name)
}

// Connections that send a byte now and then are closed after the header
// timeout, and others are served meanwhile.
func TestSlowHeaders(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url, HeaderTimeout: 400 * time.Millisecond})
		const n = 200
		var all sync.WaitGroup
		var closed, whole atomic.Int64
		for range n {
			conn := dialRaw(t, base)
			all.Add(2)
			go func() {
				defer all.Done()
				head := "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 1000)
				for i := range head {
					if _, err := io.WriteString(conn, head[i:i+1]); err != nil {
						return
					}
					time.Sleep(50 * time.Millisecond)
				}
				whole.Add(1)
			}()
			go func() {
				defer all.Done()
				if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
					closed.Add(1)
				}
				conn.Close()
			}()
		}
		c := newClientFor(t)
		for range 50 {
			if r := ask(t, c, "POST", base+chatPath, wholeBody); r.status != 200 {
				t.Errorf("beside slow clients: %d", r.status)
			}
		}
		all.Wait()
		if closed.Load() != n || whole.Load() > 0 {
			t.Errorf("%d of %d were closed, %d heads were taken whole", closed.Load(), n, whole.Load())
		}
	})
}

// Beyond the limit requests are refused with Retry-After, and served again
// when others have ended.
func TestTooManyStreams(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		release := make(chan struct{})
		eng := newEngine(t, func(k *call) {
			<-release
			plainEngine(k)
		})
		_, base := start(t, adapter, Config{Engine: eng.url, MaxStreams: 3})
		c := newClientFor(t)
		var all sync.WaitGroup
		for range 3 {
			all.Add(1)
			go func() {
				defer all.Done()
				if r := ask(t, c, "POST", base+chatPath, streamBody); r.status != 200 {
					t.Errorf("admitted request: %d", r.status)
				}
			}()
		}
		eventually(t, "three requests at the engine", func() bool { return eng.count() == 3 })
		r := ask(t, c, "POST", base+chatPath, streamBody)
		if code := checkError(t, r); r.status != 429 || code != "too_many_streams" || r.header.Get("Retry-After") == "" {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
		if r := ask(t, c, "GET", base+"/healthz", ""); r.status != 200 {
			t.Errorf("healthz under load: %d", r.status)
		}
		close(release)
		all.Wait()
		if r := ask(t, c, "POST", base+chatPath, streamBody); r.status != 200 {
			t.Errorf("afterwards: %d", r.status)
		}
	})
}

// Draining refuses what is new, lets live requests end and cuts those that do
// not in time with a well-formed error.
func TestDrain(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		finish := make(chan struct{})
		eng := newEngine(t, func(k *call) {
			switch {
			case k.req.URL.Path == "/health":
				k.json(200, "", "{}")
			case bytes.Contains(k.body, []byte("forever")):
				if k.stream() {
					k.head()
					k.chunk(event1)
				}
				k.waitClosed()
				k.waitClosed()
				k.waitClosed()
			default:
				k.head()
				k.chunk(event1)
				<-finish
				k.chunk(doneEvent)
				k.end()
			}
		})
		p, err := New(Config{Engine: eng.url})
		if err != nil {
			t.Fatal(err)
		}
		base, stop := adapterNamed(adapter)(t, p)
		defer stop()
		c := newClientFor(t)
		var all sync.WaitGroup
		replies := make([]reply, 3)
		for i, body := range []string{streamBody, `{"forever":1,"stream":true}`, `{"forever":1}`} {
			all.Add(1)
			go func() {
				defer all.Done()
				replies[i] = ask(t, c, "POST", base+chatPath, body)
			}()
		}
		eventually(t, "three requests at the engine", func() bool { return eng.count() == 3 })
		limit, cut := context.WithCancel(context.Background())
		drained := make(chan int)
		go func() { drained <- p.Drain(limit) }()
		eventually(t, "draining", p.isDraining)

		r := ask(t, c, "GET", base+"/readyz", "")
		if code := checkError(t, r); r.status != 503 || code != "draining" {
			t.Errorf("readyz: %d %s", r.status, r.body)
		}
		if r := ask(t, c, "GET", base+"/healthz", ""); r.status != 200 {
			t.Errorf("healthz: %d", r.status)
		}
		r = ask(t, c, "POST", base+chatPath, wholeBody)
		if code := checkError(t, r); r.status != 503 || code != "draining" || r.header.Get("Retry-After") == "" {
			t.Errorf("new request: %d %v %s", r.status, r.header, r.body)
		}
		close(finish)
		eventually(t, "one stream ended", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.live) == 2
		})
		cut()
		if n := <-drained; n != 2 {
			t.Errorf("%d cut, want 2", n)
		}
		all.Wait()
		if r := replies[0]; r.body != event1+doneEvent || r.err != nil {
			t.Errorf("the stream that had time: %q %v", r.body, r.err)
		}
		if n, code := checkCutStream(t, replies[1], event1); n != 1 || code != "draining" {
			t.Errorf("the cut stream: %q", replies[1].body)
		}
		if code := checkError(t, replies[2]); replies[2].status != 503 || code != "draining" {
			t.Errorf("the cut request: %d %q", replies[2].status, replies[2].body)
		}
	})
}

// A shutdown that cuts many streams ends each of them well-formed, soon.
func TestDrainManyStreams(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		const n = 500
		eng := newEngine(t, func(k *call) {
			k.head()
			k.chunk(event1 + event2[:9]) // half an event is on its way
			k.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := k.r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a stream was not cut before the engine gave up")
			}
		})
		p, err := New(Config{Engine: eng.url})
		if err != nil {
			t.Fatal(err)
		}
		base, stop := adapterNamed(adapter)(t, p)
		conns := make([]net.Conn, n)
		for i := range conns {
			conns[i] = dialRaw(t, base)
			io.WriteString(conns[i], rawRequest(streamBody))
		}
		eventually(t, "all streams begun", func() bool { return eng.count() == n })
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if cut := p.Drain(now); cut != n {
			t.Errorf("%d cut, want %d", cut, n)
		}
		for _, c := range conns {
			r, err := readReplyRaw(bufio.NewReader(c))
			if err != nil {
				t.Fatal(err)
			}
			if r.status == 503 { // cut before its first event had come
				checkError(t, r)
			} else if _, code := checkCutStream(t, r, event1); code != "draining" {
				t.Errorf("%q", r.body)
			}
			c.Close()
		}
		stop()
	})
}

// A thousand streams that wait cost bounded memory, and nothing is left of
// them when they have ended.
func TestThousandIdleStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 4,000 sockets")
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil && limit.Cur < 8000 {
		limit.Cur = min(limit.Max, 16000)
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); limit.Cur < 8000 {
			t.Skipf("only %d files may be open", limit.Cur)
		}
	}
	both(t, func(t *testing.T, adapter string) {
		const n = 1000
		const perStream = 128 << 10                                                        // bytes, of client, sidecar and engine, which share this process; two connections of net/http and their goroutines among them
		request := rawRequest(`{"stream":true,"x":"` + strings.Repeat("x", 60<<10) + `"}`) // sent by all, held by none
		if adapter == "nethttp" {
			request = rawRequest(streamBody)
		}
		finish := make(chan struct{})
		eng := newEngine(t, func(k *call) {
			k.body = nil // the engine holds none either
			k.head()
			k.chunk(event1)
			<-finish
			k.chunk(doneEvent)
			k.end()
			k.hangUp(false)
		})
		p, base := start(t, adapter, Config{Engine: eng.url})
		exchangeRaw(t, base, []byte("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
		goroutines, files, heap := settled()
		conns := make([]net.Conn, n)
		for i := range conns {
			conns[i] = dialRaw(t, base)
			io.WriteString(conns[i], request)
		}
		heads := make([]*bufio.Reader, n)
		for i, c := range conns {
			heads[i] = bufio.NewReaderSize(c, 512)
			for {
				line, err := heads[i].ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line, "data:") {
					break
				}
			}
		}
		g, f, h := settled()
		t.Logf("per stream: %.1f goroutines, %.1f files, %.1f KiB (heap and stacks) of client, sidecar and engine together",
			float64(g-goroutines)/n, float64(f-files)/n, float64(h-heap)/n/1024)
		if h-heap > n*perStream {
			t.Errorf("%d KiB a stream", (h-heap)/n/1024)
		}
		if r := ask(t, newClientFor(t), "GET", base+"/metrics", ""); !strings.Contains(r.body, "sidecar_active_streams 1000\n") {
			t.Error("metrics do not show 1,000 active streams")
		}
		close(finish)
		for i, c := range conns {
			rest, err := io.ReadAll(io.LimitReader(heads[i], int64(len("\n\r\ne\r\n"+doneEvent+"\r\n0\r\n\r\n"))))
			if err != nil || !strings.HasSuffix(string(rest), "0\r\n\r\n") {
				t.Fatalf("stream %d ended with %q %v", i, rest, err)
			}
			c.Close()
		}
		p.Close()
		eventually(t, "goroutines and files back at the start", func() bool {
			g, f, _ := settled()
			return g <= goroutines+20 && f <= files+20
		})
	})
}

// settled returns the numbers of goroutines and open files and the bytes of
// live heap and stacks.
func settled() (goroutines, files int, bytes int64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	entries, _ := os.ReadDir("/proc/self/fd")
	return runtime.NumGoroutine(), len(entries), int64(m.HeapAlloc + m.StackInuse)
}

// The access log has one line a request and shows neither bodies nor keys.
func TestAccessLog(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		var log lockedBuffer
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url, AccessLog: &log})
		c := newClientFor(t)
		ask(t, c, "POST", base+chatPath, streamBody, "Authorization", "Bearer sk-secret", "X-Request-Id", "r1")
		ask(t, c, "POST", base+chatPath, `{"text":"hidden"`, "X-Request-Id", "r2")
		eventually(t, "two lines", func() bool { return strings.Count(log.String(), "\n") == 2 })
		var lines []map[string]any
		dec := json.NewDecoder(strings.NewReader(log.String()))
		for dec.More() {
			var l map[string]any
			if err := dec.Decode(&l); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, l)
		}
		if l := lines[0]; l["id"] != "r1" || l["status"] != 200.0 || l["stream"] != true || l["bytes_out"] != float64(len(event1+ping+event2+doneEvent)) {
			t.Errorf("%v", l)
		}
		if l := lines[1]; l["id"] != "r2" || l["status"] != 400.0 || l["failure"] != "invalid_json" {
			t.Errorf("%v", l)
		}
		if s := log.String(); strings.Contains(s, "secret") || strings.Contains(s, "hidden") {
			t.Errorf("the log tells too much: %s", s)
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
