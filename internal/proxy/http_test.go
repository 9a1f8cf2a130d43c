package proxy

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Headers that could carry a second request to the engine do not pass.
func TestBadHeader(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"X-A", "plain \t é", ""},
		{"X-A", "a\r\nX-B: c", "X-A"},
		{"X-A", "a\rb", "X-A"},
		{"X-A", "a\x00b", "X-A"},
		{"X-A", "a\x7fb", "X-A"},
		{"X A", "b", "X A"},
		{"X:A", "b", "X:A"},
		{"X\r\nA", "b", "X\r\nA"},
	} {
		if got := badHeader(map[string][]string{tt.name: {tt.value}}); got != tt.want {
			t.Errorf("%q: %q gives %q", tt.name, tt.value, got)
		}
	}
	// As sent: fiber itself may refuse, or the core; the engine gets nothing.
	eng := newEngine(t, plainEngine)
	_, base := start(t, "fiber", Config{Engine: eng.url})
	for _, line := range []string{"X-A: a\rb", "X-A: a\x00b", "X\x01A: b", "X-A: b\x7f", "X(A): b"} {
		conn := dialRaw(t, base)
		io.WriteString(conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: %d\r\n\r\n%s", chatPath, line, len(wholeBody), wholeBody))
		r, err := readReplyRaw(bufio.NewReader(conn))
		if err != nil || r.status != 400 {
			t.Errorf("%q: %d %v", line, r.status, err)
		} else {
			checkError(t, r)
		}
	}
	if n := eng.count(); n != 0 {
		t.Errorf("%d requests reached the engine: %q", n, eng.last().req.Header)
	}
}

// Old and careful clients are served too: HTTP/1.0 and Expect: 100-continue.
func TestOtherClients(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url})
		for _, body := range []string{wholeBody, streamBody} {
			conn := dialRaw(t, base)
			io.WriteString(conn, fmt.Sprintf("POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body))
			r, err := readReplyRaw(bufio.NewReader(conn))
			want := wholeReply
			if body == streamBody {
				want = event1 + ping + event2 + doneEvent
			}
			if err != nil || r.status != 200 || r.body != want || r.header.Get("Transfer-Encoding") != "" {
				t.Errorf("HTTP/1.0 %s: %d %q %v %v", body, r.status, r.body, err, r.err)
			}
		}
		conn := dialRaw(t, base)
		in := bufio.NewReader(conn)
		io.WriteString(conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", chatPath, len(wholeBody)))
		if line, err := in.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			t.Fatalf("%q %v", line, err)
		}
		in.ReadString('\n')
		io.WriteString(conn, wholeBody)
		if r, err := readReplyRaw(in); err != nil || r.body != wholeReply {
			t.Errorf("after 100: %q %v", r.body, err)
		}
	})
}

// Whatever a client asks and an engine answers, fiber and net/http give the
// same reply and the engine the same request.
func TestAdaptersAgree(t *testing.T) {
	var answer func(k *call)
	eng := newEngine(t, func(k *call) { answer(k) })
	_, fiberBase := start(t, "fiber", Config{Engine: eng.url, MaxBody: 4096, MaxDepth: 8})
	_, stdBase := start(t, "nethttp", Config{Engine: eng.url, MaxBody: 4096, MaxDepth: 8})
	c := newClientFor(t)
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]string{"POST", "POST", "POST", "GET", "PUT"}).Draw(t, "method")
		path := rapid.SampledFrom([]string{chatPath, chatPath, "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/a%2Fb", "/v1//models", "/v1/models?x=%20&y", "/healthz", "/none"}).Draw(t, "path")
		body := rapid.SampledFrom([]string{wholeBody, streamBody, `{"a":1,"a":2}`, `{"a":`, `{"cache_salt":""}`, "", `{"x":"` + strings.Repeat("é", 3000) + `"}`, `{"k":[[[[[[[[[1]]]]]]]]]}`}).Draw(t, "body")
		if method == "GET" {
			body = ""
		}
		header := rapid.SliceOfN(rapid.SampledFrom([]string{"X-Api-Key", "Accept", "User-Agent", "X-Stainless-Lang", "Content-Encoding", "Te", "Cookie", "OpenAI-Organization"}), 0, 3).Draw(t, "headers")
		var pairs []string
		for _, h := range header {
			pairs = append(pairs, h, rapid.SampledFrom([]string{"a", "b, c", "identity", "gzip", "é"}).Draw(t, "value"))
		}
		pairs = append(pairs, "X-Request-Id", "same")
		status := rapid.SampledFrom([]int{200, 200, 200, 201, 400, 404, 429, 500, 503, 302}).Draw(t, "status")
		text := rapid.SampledFrom([]string{wholeReply, `{"error":{"message":"x"}}`, "oops", "", "[]"}).Draw(t, "text")
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{event1, event2, ping, doneEvent, "data: ", "\n", "\r\n", "data: {}\r\n\r\n", "event: e\n", "data: [DONE]"}), 0, 6).Draw(t, "pieces")
		cut := rapid.Bool().Draw(t, "cut")
		answer = func(k *call) {
			if !k.stream() || status != 200 {
				k.json(status, "X-E: 1\r\nRetry-After: 2\r\nLocation: /x\r\n", text)
				return
			}
			k.head()
			for _, p := range pieces {
				k.chunk(p)
			}
			if cut {
				k.hangUp(false)
				return
			}
			k.end()
		}
		type outcome struct {
			status        int
			body, cType   string
			err           bool
			retry, engine string
		}
		var got [2]outcome
		for i, base := range []string{fiberBase, stdBase} {
			before := eng.count()
			r := ask(tb{outer, t}, c, method, base+path, body, pairs...)
			got[i] = outcome{status: r.status, body: r.body, cType: r.header.Get("Content-Type"), err: r.err != nil, retry: r.header.Get("Retry-After")}
			if eng.count() > before {
				k := eng.last()
				h := k.req.Header
				if h.Get("User-Agent") == "" {
					h.Del("User-Agent")
				}
				got[i].engine = fmt.Sprint(k.req.Method, k.req.RequestURI, h, string(k.body))
			}
		}
		if got[0] != got[1] {
			t.Fatalf("%s %s %q %v, engine %d %q %q cut %v\nfiber   %+v\nnethttp %+v", method, path, body, pairs, status, text, pieces, cut, got[0], got[1])
		}
	})
}

// tb lets helpers that want a testing.TB report to rapid.
type tb struct {
	testing.TB
	r *rapid.T
}

func (t tb) Fatal(args ...any) { t.r.Fatal(args...) }
