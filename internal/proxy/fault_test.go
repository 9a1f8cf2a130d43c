package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// checkError checks that a reply is one OpenAI error object.
func checkError(t testing.TB, r reply) (code string) {
	t.Helper()
	var body struct {
		Error *struct {
			Message string
			Type    string
			Param   any
			Code    any
		}
	}
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil || body.Error == nil || body.Error.Message == "" || body.Error.Type == "" {
		t.Errorf("not an OpenAI error: %d %q (%v)", r.status, r.body, err)
		return ""
	}
	if ct := r.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("error with Content-Type %q", ct)
	}
	if r.err != nil {
		t.Errorf("error body cut: %v", r.err)
	}
	code, _ = body.Error.Code.(string)
	return code
}

// checkCutStream checks that a stream is whole events of sent, in order from
// the first, and then one error event; that nothing says it is complete. It
// returns the number of events forwarded and the error's code.
func checkCutStream(t testing.TB, r reply, sent string) (forwarded int, code string) {
	t.Helper()
	if r.err != nil {
		t.Errorf("the stream to the client was cut itself: %v", r.err)
	}
	i := strings.LastIndex(r.body, `data: {"error":`)
	if i < 0 {
		t.Errorf("no error event in %q", r.body)
		return 0, ""
	}
	before, last := r.body[:i], r.body[i:]
	if !strings.HasPrefix(sent, before) || before != "" && !strings.HasSuffix(before, "\n\n") {
		t.Errorf("forwarded %q of %q", before, sent)
	}
	if strings.Contains(r.body, "[DONE]") {
		t.Errorf("[DONE] in a stream that is not complete: %q", r.body)
	}
	events := openai.NewReader(strings.NewReader(last), 1<<20)
	e, err := events.Next()
	if err != nil {
		t.Errorf("error event %q: %v", last, err)
		return 0, ""
	}
	var body struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(e.Data, &body); err != nil || body.Error.Message == "" || body.Error.Type != "server_error" {
		t.Errorf("error event %q: %v", e.Data, err)
	}
	if len(last) != len(e.Raw) {
		t.Errorf("data after the error event: %q", last)
	}
	return strings.Count(before, "\n\n"), body.Error.Code
}

// Every way in which an engine fails, for a stream and for a whole reply.
func TestFaults(t *testing.T) {
	type want struct {
		status int // 200 for a stream that has begun
		code   string
		events int // forwarded before the error
	}
	short := Config{FirstByteTimeout: 150 * time.Millisecond, StallTimeout: 150 * time.Millisecond, ConnectTimeout: time.Second, MaxReply: 1 << 16, MaxEvent: 1 << 12}
	for _, tt := range []struct {
		name          string
		script        func(k *call)
		whole, stream want
	}{
		{"reset before the reply", func(k *call) { k.hangUp(true) },
			want{502, "engine_cut", 0}, want{502, "engine_cut", 0}},
		{"close before the reply", func(k *call) { k.hangUp(false) },
			want{502, "engine_cut", 0}, want{502, "engine_cut", 0}},
		{"half a head", func(k *call) { k.write("HTTP/1.1 200 OK\r\nContent-Ty"); k.hangUp(false) },
			want{502, "engine_bad_reply", 0}, want{502, "engine_bad_reply", 0}},
		{"no HTTP", func(k *call) { k.write("SSH-2.0-OpenSSH_9\r\n\r\n"); k.hangUp(false) },
			want{502, "engine_bad_reply", 0}, want{502, "engine_bad_reply", 0}},
		{"silence", func(k *call) { k.waitClosed() },
			want{504, "engine_timeout", 0}, want{504, "engine_timeout", 0}},
		{"redirect", func(k *call) { k.json(307, "Location: http://127.0.0.1:1/\r\n", "") },
			want{502, "engine_redirect", 0}, want{502, "engine_redirect", 0}},
		{"stall after the head", func(k *call) {
			if k.stream() {
				k.head()
			} else {
				k.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n")
			}
			k.waitClosed()
		}, want{504, "engine_stalled", 0}, want{504, "engine_stalled", 0}},
		{"stall in the middle", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1 + event2[:10])
			} else {
				k.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"id\":")
			}
			k.waitClosed()
		}, want{504, "engine_stalled", 0}, want{200, "engine_stalled", 1}},
		{"cut in the middle", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1 + event2[:10])
			} else {
				k.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"id\":")
			}
			k.hangUp(false)
		}, want{502, "engine_cut", 0}, want{200, "engine_cut", 1}},
		{"reset in the middle", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1 + event2)
			} else {
				k.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
				k.chunk(`{"id":`)
			}
			time.Sleep(20 * time.Millisecond) // a reset overtakes what has not been read
			k.hangUp(true)
		}, want{502, "engine_cut", 0}, want{200, "engine_cut", 2}},
		{"ended without [DONE], or half of it without a length", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1)
				k.end()
				return
			}
			k.write("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + wholeReply[:30])
			k.hangUp(false)
		}, want{502, "engine_malformed_reply", 0}, want{200, "engine_cut", 1}},
		{"ended inside an event, or no JSON", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1 + event2[:20])
				k.end()
				return
			}
			k.json(200, "", "<html>")
		}, want{502, "engine_malformed_reply", 0}, want{200, "engine_cut", 1}},
		{"malformed event", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1 + "data: {\"choices\":[{\"delta\n\n" + doneEvent)
				k.end()
				return
			}
			k.json(200, "", "{} {}")
		}, want{502, "engine_malformed_reply", 0}, want{200, "engine_malformed_event", 1}},
		{"malformed first event", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk("data: oops\n\n" + doneEvent)
				k.end()
				return
			}
			k.json(200, "", "")
		}, want{502, "engine_malformed_reply", 0}, want{502, "engine_malformed_event", 0}},
		{"bad chunk", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1)
				time.Sleep(20 * time.Millisecond) // net/http reports a bad chunk before the good one that came with it
				k.write("zz\r\n")
				k.hangUp(false)
				return
			}
			k.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
			k.hangUp(false)
		}, want{502, "engine_bad_reply", 0}, want{200, "engine_bad_reply", 1}},
		{"too large", func(k *call) {
			if k.stream() {
				k.head()
				k.chunk(event1 + "data: {\"x\":\"" + strings.Repeat("x", 1<<13))
				k.waitClosed()
				return
			}
			k.json(200, "", `{"x":"`+strings.Repeat("x", 1<<17)+`"}`)
		}, want{502, "engine_reply_too_large", 0}, want{200, "engine_event_too_large", 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, adapter string) {
				eng := newEngine(t, tt.script)
				cfg := short
				cfg.Engine = eng.url
				p, base := start(t, adapter, cfg)
				c := newClientFor(t)
				for _, try := range []struct {
					body string
					want want
				}{{wholeBody, tt.whole}, {streamBody, tt.stream}} {
					r := ask(t, c, "POST", base+chatPath, try.body)
					got := want{status: r.status}
					if r.status == 200 {
						got.events, got.code = checkCutStream(t, r, event1+event2)
					} else {
						got.code = checkError(t, r)
					}
					if got != try.want {
						t.Errorf("%s: got %v, want %v (%q)", try.body, got, try.want, r.body)
					}
					if n := counter(p, "sidecar_engine_errors_total", "kind", try.want.code); n == 0 {
						t.Errorf("%s is not counted", try.want.code)
					}
				}
			})
		})
	}
}

// counter sums a counter's samples whose label has a value.
func counter(p *Proxy, name, label, value string) (sum float64) {
	families, _ := p.metrics.registry.Gather()
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == label && l.GetValue() == value {
					sum += m.Counter.GetValue()
				}
			}
		}
	}
	return sum
}

func TestEngineUnreachable(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		eng.stop()
		_, base := start(t, adapter, Config{Engine: eng.url})
		for _, body := range []string{wholeBody, streamBody} {
			r := ask(t, newClientFor(t), "POST", base+chatPath, body)
			if code := checkError(t, r); r.status != 502 || code != "engine_unreachable" {
				t.Errorf("%d %s", r.status, r.body)
			}
			if strings.Contains(r.body, "127.0.0.1") {
				t.Errorf("the error shows the engine's address: %s", r.body)
			}
		}
	})
}

// Errors of the engine: what is JSON passes as it is, other text is wrapped,
// status and Retry-After stay.
func TestEngineStatus(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		for _, tt := range []struct {
			status         int
			header, body   string
			want, contains string // body exactly, or part of a wrapped one
		}{
			{429, "Retry-After: 7\r\n", `{"error": {"message":"slow down","type":"x"}}`, `{"error": {"message":"slow down","type":"x"}}`, ""},
			{429, "Retry-After: 7\r\n", "Too many\n", "", `The engine answered Too Many Requests: Too many`},
			{500, "", `{"object":"error","message":"boom"}`, `{"object":"error","message":"boom"}`, ""},
			{500, "", "Internal Server Error", "", `Internal Server Error: Internal Server Error`},
			{503, "Retry-After: 3\r\n", "<html>\xff</html>", "", `Service Unavailable: \u003chtml`},
			{502, "", "", "", `without saying why`},
			{400, "", `{"error":{"message":"bad","type":"BadRequestError","param":null,"code":400}}`, `{"error":{"message":"bad","type":"BadRequestError","param":null,"code":400}}`, ""},
			{404, "", `{"detail":"Not Found"}`, `{"detail":"Not Found"}`, ""},
			{422, "", `[1]`, "", `Unprocessable Entity: [1]`},
		} {
			eng := newEngine(t, func(k *call) { k.json(tt.status, tt.header, tt.body) })
			_, base := start(t, adapter, Config{Engine: eng.url})
			for _, body := range []string{wholeBody, streamBody} {
				r := ask(t, newClientFor(t), "POST", base+chatPath, body)
				if r.status != tt.status {
					t.Errorf("%d became %d", tt.status, r.status)
				}
				if tt.want != "" && r.body != tt.want {
					t.Errorf("%q became %q", tt.want, r.body)
				}
				if tt.want == "" {
					checkError(t, r)
					if want := strings.ReplaceAll(tt.contains, `\u003c`, "<"); !strings.Contains(r.body, want) {
						t.Errorf("%q has no %q", r.body, want)
					}
				}
				if want := strings.TrimSuffix(strings.TrimPrefix(tt.header, "Retry-After: "), "\r\n"); r.header.Get("Retry-After") != want {
					t.Errorf("Retry-After %q, want %q", r.header.Get("Retry-After"), want)
				}
			}
			if n := eng.count(); n != 2 {
				t.Errorf("%d: the engine was asked %d times for 2 requests", tt.status, n)
			}
		}
	})
}

// A stream cut at every byte gives whole events and one error, and a stream
// that is cut behind [DONE] is complete.
func TestCutAtEveryByte(t *testing.T) {
	stream := ping + event1 + event2 + "data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\r\n\r\n" + doneEvent
	both(t, func(t *testing.T, adapter string) {
		var keep atomic.Int64
		eng := newEngine(t, func(k *call) {
			k.head()
			if cut := keep.Load(); cut > 0 {
				k.chunk(stream[:cut])
			}
			k.hangUp(false)
		})
		_, base := start(t, adapter, Config{Engine: eng.url})
		c := newClientFor(t)
		for cut := 0; cut <= len(stream); cut++ {
			keep.Store(int64(cut))
			r := ask(t, c, "POST", base+chatPath, streamBody)
			switch {
			case cut == len(stream):
				if r.status != 200 || r.body != stream || r.err != nil {
					t.Errorf("whole: %d %q %v", r.status, r.body, r.err)
				}
			case cut < len(ping):
				if code := checkError(t, r); r.status != 502 || code != "engine_cut" {
					t.Errorf("cut at %d: %d %s", cut, r.status, r.body)
				}
			default:
				// \r\n\r\n ends an event at its second \r; the \n that follows may be cut off.
				r.body = plainLines(r.body)
				if _, code := checkCutStream(t, r, plainLines(stream)); code != "engine_cut" {
					t.Errorf("cut at %d: %q", cut, r.body)
				}
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	})
}

func plainLines(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// A connection that the engine closes while it is idle costs no request.
func TestEngineClosesIdleConnections(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, func(k *call) {
			k.json(200, "", wholeReply)
			k.hangUp(false)
		})
		_, base := start(t, adapter, Config{Engine: eng.url})
		c := newClientFor(t)
		for i := range 50 {
			if r := ask(t, c, "POST", base+chatPath, wholeBody); r.status != 200 || r.body != wholeReply {
				t.Fatalf("request %d: %d %s", i, r.status, r.body)
			}
			eng.waitIdle(t)
			time.Sleep(2 * time.Millisecond) // for the close to arrive
		}
		if n := eng.count(); n != 50 {
			t.Errorf("the engine got %d requests", n)
		}
	})
}

// A fault of our own is one request's 500, or error event, and is logged.
func TestPanic(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		var log lockedBuffer
		p, err := New(Config{Engine: eng.url, ErrorLog: &log})
		if err != nil {
			t.Fatal(err)
		}
		p.stages = faultyStages{}
		base, stop := adapterNamed(adapter)(t, p)
		defer stop()
		c := newClientFor(t)
		r := ask(t, c, "POST", base+chatPath, `{"panic":"early"}`)
		if code := checkError(t, r); r.status != 500 || code != "internal_error" || !strings.Contains(log.String(), "fault_test.go") {
			t.Errorf("%d %s\n%s", r.status, r.body, log.String())
		}
		r = ask(t, c, "POST", base+chatPath, `{"panic":"late"}`)
		if n, code := checkCutStream(t, r, event1); n != 1 || code != "internal_error" {
			t.Errorf("%q", r.body)
		}
		if r := ask(t, c, "POST", base+chatPath, wholeBody); r.status != 200 {
			t.Errorf("afterwards: %d", r.status)
		}
	})
}

// faultyStages want requests with a field panic.
type faultyStages struct{}

func (faultyStages) wants(o *openai.Object) bool {
	_, ok := o.Get("panic")
	return ok
}

func (faultyStages) serve(x *exchange, o *openai.Object) {
	when, _ := o.Get("panic")
	if s, _ := when.String(); s == "late" {
		x.stream = true
		x.begin(200, map[string][]string{"Content-Type": {"text/event-stream"}})
		x.write([]byte(event1))
	}
	panic(fmt.Sprint("on purpose: ", string(when.Raw)))
}
