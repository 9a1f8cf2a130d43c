package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// client gives the client of an engine and the engine's chat path.
func client(t *testing.T, engine string) (*engineClient, *url.URL) {
	t.Helper()
	cfg := Config{Engine: engine}
	cfg.setDefaults()
	u, err := cfg.baseURL()
	if err != nil {
		t.Fatal(err)
	}
	u.Path = chatPath
	c := newEngineClient(&cfg)
	t.Cleanup(c.close)
	return c, u
}

func TestEngineClientReplies(t *testing.T) {
	big := strings.Repeat("x", 8<<20)
	for _, tt := range []struct {
		name   string
		body   string
		script func(k *call)
		want   string // "status body", or part of an error
		calls  int    // on how many requests the engine answers, of 3
		conns  int    // connections that 3 calls take
	}{
		{"length", "{}", func(k *call) { k.json(200, "", "{}") }, "200 {}", 3, 1},
		{"no body", "", func(k *call) { k.write("HTTP/1.1 204 No Content\r\n\r\n") }, "204 ", 3, 1},
		{"chunks", "{}", func(k *call) { k.head(); k.chunk("a"); k.chunk("b"); k.end() }, "200 ab", 3, 1},
		{"until close", "{}", func(k *call) { k.write("HTTP/1.0 200 OK\r\n\r\nrest"); k.hangUp(false) }, "200 rest", 3, 3},
		{"asked to close", "{}", func(k *call) { k.json(200, "Connection: close\r\n", "{}") }, "200 {}", 3, 3},
		{"interim replies", "{}", func(k *call) {
			k.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
			k.json(200, "", "{}")
		}, "200 {}", 3, 1},
		{"more than one reply", "{}", func(k *call) { k.json(200, "", "{}"); k.json(200, "", "smuggled") }, "200 {}", 3, 3},
		{"head too long", "{}", func(k *call) {
			k.write("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 2<<20) + "\r\n\r\n")
			k.hangUp(false)
		}, "error", 3, 3},
		{"large request", big, func(k *call) { k.json(200, "", fmt.Sprint(len(k.body))) }, "200 8388608", 3, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eng := newEngine(t, tt.script)
			c, u := client(t, eng.url)
			before := eng.count()
			remote := map[string]bool{}
			for range 3 {
				method := "POST"
				if tt.body == "" {
					method = "GET"
				}
				resp, err := c.do(context.Background(), &engineRequest{method, u, http.Header{"X-A": {"1", "2"}}, []byte(tt.body)})
				got := "error"
				if err == nil {
					body, rerr := io.ReadAll(resp.Body)
					got = fmt.Sprintf("%d %s", resp.StatusCode, body)
					if rerr != nil {
						got = rerr.Error()
					}
					resp.Body.Close()
				}
				if got != tt.want {
					t.Errorf("got %.100q, want %q (%v)", got, tt.want, err)
				}
				k := eng.last()
				remote[k.conn.RemoteAddr().String()] = true
				if fmt.Sprint(k.req.Header["X-A"]) != "[1 2]" || k.req.Host != u.Host || string(k.body) != tt.body {
					t.Errorf("engine got %v %s", k.req.Header, k.req.Host)
				}
				time.Sleep(5 * time.Millisecond) // for a second reply, or the close, to arrive
			}
			if n := eng.count() - before; n != tt.calls {
				t.Errorf("the engine got %d requests, want %d", n, tt.calls)
			}
			if len(remote) != tt.conns {
				t.Errorf("%d connections, want %d", len(remote), tt.conns)
			}
		})
	}
}

// Many callers at once get their own replies, whoever gives up in between.
func TestEngineClientConcurrent(t *testing.T) {
	eng := newEngine(t, func(k *call) {
		k.head()
		k.chunk(string(k.body))
		time.Sleep(time.Duration(len(k.body)%7) * time.Millisecond)
		k.chunk(string(k.body))
		k.end()
	})
	c, u := client(t, eng.url)
	var all sync.WaitGroup
	for g := range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			r := rand.New(rand.NewSource(int64(g)))
			for i := range 40 {
				ctx, cancel := context.WithCancel(context.Background())
				text := fmt.Sprintf("%d-%d-%s", g, i, strings.Repeat("x", r.Intn(20)))
				resp, err := c.do(ctx, &engineRequest{"POST", u, http.Header{}, []byte(text)})
				if err != nil {
					t.Error(err)
					cancel()
					continue
				}
				switch r.Intn(3) {
				case 0:
					cancel() // the reply's rest may be there or not, but is no one else's
					body, _ := io.ReadAll(resp.Body)
					if !strings.HasPrefix(text+text, string(body)) {
						t.Errorf("%q got %q", text, body)
					}
				case 1: // closed early
				default:
					body, err := io.ReadAll(resp.Body)
					if string(body) != text+text || err != nil {
						t.Errorf("%q got %q %v", text, body, err)
					}
				}
				resp.Body.Close()
				cancel()
			}
		}()
	}
	all.Wait()
}

// A connection that is not used is closed in time, before the engine does it.
func TestEngineClientDropsIdle(t *testing.T) {
	closed := make(chan error, 1)
	eng := newEngine(t, func(k *call) {
		k.json(200, "", "{}")
		k.conn.SetReadDeadline(time.Now().Add(10 * engineIdle)) // when it would close it itself
		_, err := k.r.Peek(1)
		closed <- err
	})
	c, u := client(t, eng.url)
	from := time.Now()
	resp, err := c.do(context.Background(), &engineRequest{method: "GET", url: u, header: http.Header{}})
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	if err, took := <-closed, time.Since(from); err != io.EOF || took < engineIdle {
		t.Errorf("closed after %v: %v", took, err)
	}
}

// An engine that refuses a large request unread is heard.
func TestEngineAnswersEarly(t *testing.T) {
	both(t, func(t *testing.T, adapter string) {
		early := newRawEngine(t, "HTTP/1.1 413 Content Too Large\r\nContent-Type: application/json\r\nContent-Length: 29\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"large\"}}")
		_, base := start(t, adapter, Config{Engine: early})
		for range 5 {
			r := ask(t, newClientFor(t), "POST", base+chatPath, `{"x":"`+strings.Repeat("x", 8<<20)+`"}`)
			if r.status != 413 || r.body != `{"error":{"message":"large"}}` {
				t.Errorf("%d %s", r.status, r.body)
			}
		}
	})
}
