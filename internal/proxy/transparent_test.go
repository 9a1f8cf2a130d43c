package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// What the OpenAI clients send reaches the engine byte for byte, and what the
// engine sends reaches them: status, content type and body equal a direct call.
func TestTransparent(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.http")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recorded requests, %v", len(files), err)
	}
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url})
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".http"), func(t *testing.T) {
				raw, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				direct := exchangeRaw(t, eng.url, raw)
				asked := eng.last()
				through := exchangeRaw(t, base, raw)
				seen := eng.last()
				if seen == asked {
					t.Fatal("the request did not reach the engine")
				}
				if !bytes.Equal(seen.body, asked.body) {
					t.Errorf("the engine got the body\n%q, directly\n%q", seen.body, asked.body)
				}
				if seen.req.Method != asked.req.Method || seen.req.RequestURI != asked.req.RequestURI {
					t.Errorf("the engine got %s %s, directly %s %s", seen.req.Method, seen.req.RequestURI, asked.req.Method, asked.req.RequestURI)
				}
				for key := range asked.req.Header {
					if hopByHop[key] || ownRequest[key] {
						continue
					}
					if got, want := seen.req.Header[key], asked.req.Header[key]; fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("the engine got %s: %q, directly %q", key, got, want)
					}
				}
				for key := range seen.req.Header {
					if asked.req.Header[key] == nil && key != "X-Request-Id" {
						t.Errorf("the engine got %s: %q, which the client did not send", key, seen.req.Header[key])
					}
				}
				if through.status != direct.status || through.body != direct.body || through.err != nil {
					t.Errorf("got %d %q %v\ndirectly %d %q", through.status, through.body, through.err, direct.status, direct.body)
				}
				for _, key := range []string{"Content-Type", "X-Engine"} {
					if got, want := through.header.Get(key), direct.header.Get(key); got != want {
						t.Errorf("%s: %q, directly %q", key, got, want)
					}
				}
				if _, err := uuid.Parse(through.header.Get("X-Request-Id")); err != nil {
					t.Errorf("X-Request-Id: %v", err)
				}
			})
		}
	})
}

// exchangeRaw sends the bytes of a request and reads the reply.
func exchangeRaw(t testing.TB, base string, raw []byte) reply {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	r, err := readReplyRaw(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readReplyRaw(r *bufio.Reader) (reply, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}, nil
}

// Each event is handed on when it has come, not when the next one does.
func TestEventsArriveOneByOne(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		next := make(chan string)
		eng := newEngine(t, func(k *call) {
			k.head()
			for s := range next {
				k.chunk(s)
			}
			k.end()
		})
		_, base := start(t, adapter, Config{Engine: eng.url})
		result := make(chan *http.Response, 1)
		go func() {
			resp, err := newClientFor(t).Post(base+chatPath, "application/json", strings.NewReader(streamBody))
			if err != nil {
				t.Error(err)
			}
			result <- resp
		}()
		next <- event1
		resp := <-result
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		want := event1
		for _, then := range []string{ping, event2, event1, doneEvent} {
			got := make([]byte, len(want))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
				t.Fatalf("got %q %v, want %q", got, err, want)
			}
			next <- then
			want = then
		}
		close(next)
		rest, err := io.ReadAll(r)
		if string(rest) != doneEvent || err != nil {
			t.Errorf("at the end %q %v", rest, err)
		}
	})
}

func TestHeaders(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, func(k *call) {
			k.json(200, "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nServer: uvicorn\r\nX-Many: a\r\nX-Many: b\r\n", wholeReply)
		})
		_, base := start(t, adapter, Config{Engine: eng.url})
		c := newClientFor(t)
		r := ask(t, c, "POST", base+chatPath+"?a=b%20c&d", wholeBody, "Authorization", "Bearer client", "Connection", "X-Mine", "X-Mine", "1",
			"Te", "trailers", "Proxy-Authorization", "secret", "X-Other", "2", "X-Other", "3", "Accept-Encoding", "gzip, br", "X-Request-Id", "mine-1")
		if r.status != 200 || r.header.Get("X-Hop") != "" || r.header.Get("Keep-Alive") != "" || r.header.Get("Server") != "uvicorn" || fmt.Sprint(r.header["X-Many"]) != "[a b]" {
			t.Errorf("client got %v", r.header)
		}
		if got := r.header.Get("X-Request-Id"); got != "mine-1" {
			t.Errorf("X-Request-Id %q", got)
		}
		k := eng.last()
		h := k.req.Header
		if h.Get("Authorization") != "Bearer client" || fmt.Sprint(h["X-Other"]) != "[2 3]" || h.Get("X-Request-Id") != "mine-1" || h.Get("Accept-Encoding") != "identity" {
			t.Errorf("engine got %v", h)
		}
		for _, key := range []string{"X-Mine", "Te", "Proxy-Authorization", "Connection"} {
			if h.Get(key) != "" {
				t.Errorf("engine got the client's %s: %q", key, h[key])
			}
		}
		if "http://"+k.req.Host != eng.url {
			t.Errorf("engine got Host %q", k.req.Host)
		}
		if k.req.RequestURI != chatPath+"?a=b%20c&d" {
			t.Errorf("engine got %s", k.req.RequestURI)
		}
		ask(t, c, "POST", base+chatPath, wholeBody, "X-Request-Id", "a b")
		if got := eng.last().req.Header.Get("X-Request-Id"); got == "a b" || len(got) != 36 {
			t.Errorf("an invalid request id became %q", got)
		}
	})
}

func TestEngineAPIKeyAndBasePath(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		for _, suffix := range []string{"", "/", "/v1", "/v1/"} {
			_, base := start(t, adapter, Config{Engine: eng.url + "/engine-a" + suffix, EngineAPIKey: "ours"})
			r := ask(t, newClientFor(t), "POST", base+chatPath, wholeBody, "Authorization", "Bearer client")
			if k := eng.last(); r.status != 200 || k.req.Header.Get("Authorization") != "Bearer ours" || k.req.RequestURI != "/engine-a"+chatPath {
				t.Errorf("%s: %d, engine got %s %v", suffix, r.status, k.req.RequestURI, k.req.Header)
			}
		}
	})
}

func TestRoutes(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		eng := newEngine(t, plainEngine)
		_, base := start(t, adapter, Config{Engine: eng.url})
		c := newClientFor(t)
		for _, tt := range []struct {
			method, path, body string
			status             int
			contains           string
		}{
			{"POST", "/v1/completions", wholeBody, 200, "chatcmpl-1"},
			{"POST", "/v1/embeddings", wholeBody, 200, "chatcmpl-1"},
			{"GET", "/v1/models", "", 200, `"data"`},
			{"GET", "/v1/models/org%2Fname", "", 200, `"data"`},
			{"GET", "/v1/models/org/name", "", 200, `"data"`},
			{"GET", "/v1/models/..%2f..%2fmetrics", "", 404, `"unknown_url"`},
			{"GET", "/v1/models/a%252fb", "", 404, `"unknown_url"`},
			{"GET", "/v1/models/", "", 404, `"unknown_url"`},
			{"POST", "/v1/chat/completions/", wholeBody, 404, `POST /v1/chat/completions, `},
			{"POST", "/v1/responses", wholeBody, 404, `"invalid_request_error"`},
			{"GET", "/", "", 404, `"unknown_url"`},
			{"GET", "/v1/load_lora_adapter", "", 404, `"unknown_url"`},
			{"GET", "/v1/chat/completions", "", 405, `use POST`},
			{"DELETE", "/v1/models/m", "", 405, `use GET`},
			{"BREW", "/v1/models", "", 405, `BREW is not allowed on /v1/models; use GET`},
			{"POST", "/healthz", "{}", 405, `use GET`},
			{"GET", "/healthz", "", 200, "ok\n"},
			{"HEAD", "/healthz", "", 200, ""},
			{"GET", "/readyz", "", 200, "ready\n"},
			{"GET", "/metrics", "", 200, "sidecar_requests_total{route=\"/v1/chat/completions\",status=\"405\"} 1\n"},
		} {
			before := eng.count()
			r := ask(t, c, tt.method, base+tt.path, tt.body)
			if r.status != tt.status || !strings.Contains(r.body, tt.contains) {
				t.Errorf("%s %s: %d %s", tt.method, tt.path, r.status, r.body)
			}
			if r.status >= 400 {
				checkError(t, r)
				if eng.count() != before {
					t.Errorf("%s %s reached the engine", tt.method, tt.path)
				}
			}
			if r.status == 405 && r.header.Get("Allow") == "" {
				t.Errorf("%s %s: no Allow", tt.method, tt.path)
			}
		}
		ask(t, c, "GET", base+"/v1/models/org%2Fname", "")
		if got := eng.last().req.RequestURI; got != "/v1/models/org%2Fname" {
			t.Errorf("engine got %s", got)
		}
	})
}

func TestReady(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		var health atomic.Int64
		var models atomic.Int64 // status of /v1/models
		models.Store(200)
		eng := newEngine(t, func(k *call) {
			if k.req.RequestURI == "/v1/models" {
				k.json(int(models.Load()), "", "{}")
				return
			}
			k.json(int(health.Load()), "", "{}")
		})
		c := newClientFor(t)
		for _, status := range []int64{200, 404, 401} {
			health.Store(status)
			_, base := start(t, adapter, Config{Engine: eng.url})
			if r := ask(t, c, "GET", base+"/readyz", ""); r.status != 200 {
				t.Errorf("engine's /health %d: %d %s", status, r.status, r.body)
			}
		}
		health.Store(404)
		models.Store(404)
		_, base := start(t, adapter, Config{Engine: eng.url})
		if r := ask(t, c, "GET", base+"/readyz", ""); r.status != 503 || !strings.Contains(r.body, "OpenAI-compatible") {
			t.Errorf("no engine: %d %s", r.status, r.body)
		}
		health.Store(503)
		_, base = start(t, adapter, Config{Engine: eng.url})
		r := ask(t, c, "GET", base+"/readyz", "")
		if r.status != 503 || !strings.Contains(r.body, "503") {
			t.Errorf("sick engine: %d %s", r.status, r.body)
		}
		checkError(t, r)
		eng.stop()
		_, base = start(t, adapter, Config{Engine: eng.url})
		if r := ask(t, c, "GET", base+"/readyz", ""); r.status != 503 {
			t.Errorf("no engine: %d %s", r.status, r.body)
		}
		if r := ask(t, c, "GET", base+"/healthz", ""); r.status != 200 {
			t.Errorf("health without engine: %d", r.status)
		}
	})
}

func TestNew(t *testing.T) {
	for engine, want := range map[string]string{
		"":                   "no engine",
		"localhost:8000":     "http://host:port",
		"ftp://h":            "http://host:port",
		"http://":            "http://host:port",
		"http://h?x=1":       "no query",
		"http://u:secret@h/": "no query, fragment or password",
		"http://h:port":      "engine URL",
		"http://h/v1#x":      "no query",
	} {
		_, err := New(Config{Engine: engine})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("engine %q: %v", engine, err)
		}
	}
	if _, err := New(Config{Engine: "http://h", AllowEngineFields: []string{"temperature"}}); err == nil || !strings.Contains(err.Error(), "cache_salt") {
		t.Errorf("unknown field: %v", err)
	}
}
