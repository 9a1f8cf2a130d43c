package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // Both sleep for the life of the process or ten seconds past it.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// adapters are the two ways into the core; every test of behaviour runs
// against both.
var adapters = []struct {
	name  string
	start func(t testing.TB, p *Proxy) (base string, stop func())
}{
	{"fiber", func(t testing.TB, p *Proxy) (string, func()) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(p)
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		return "http://" + ln.Addr().String(), func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if _, err := s.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			if err := <-served; err != nil {
				t.Errorf("serve: %v", err)
			}
		}
	}},
	{"nethttp", func(t testing.TB, p *Proxy) (string, func()) {
		s := httptest.NewUnstartedServer(p.Handler())
		s.Config.MaxHeaderBytes = p.cfg.MaxHeader
		s.Config.ReadHeaderTimeout = p.cfg.HeaderTimeout
		s.Start()
		return s.URL, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			p.Drain(ctx)
			s.Close()
			p.Close()
		}
	}},
}

// start serves p by one adapter until the test ends.
func start(t testing.TB, adapter string, cfg Config) (*Proxy, string) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range adapters {
		if a.name == adapter {
			base, stop := a.start(t, p)
			t.Cleanup(stop)
			return p, base
		}
	}
	t.Fatalf("no adapter %s", adapter)
	return nil, ""
}

func TestSmoke(t *testing.T) {
	eng := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Query().Get("s") != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"a\":1}\n\n")
			w.(http.Flusher).Flush()
			io.WriteString(w, "data: [DONE]\n\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}))
	defer eng.Close()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			_, base := start(t, a.name, Config{Engine: eng.URL})
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			c := &http.Client{Transport: tr}
			for _, q := range []string{"", "?s=1", "", "?s=1"} {
				resp, err := c.Post(base+"/v1/chat/completions"+q, "application/json", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				t.Log(resp.Status, resp.Header, string(b), err)
				req, _ := http.NewRequest("POST", base+"/v1/chat/completions"+q, stringsReader(`{"x": 1}`))
				resp, err = c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				b, err = io.ReadAll(resp.Body)
				t.Log(resp.Status, resp.Header, string(b), err)
			}
			for _, u := range []string{"/healthz", "/readyz", "/v1/models", "/nope"} {
				resp, err := c.Get(base + u)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				t.Log(resp.Status, resp.Header, string(b), err)
			}
		})
	}
}

func stringsReader(s string) io.Reader { return io.NopCloser(&stepper{s}) }

type stepper struct{ s string }

func (r *stepper) Read(p []byte) (int, error) {
	if r.s == "" {
		return 0, io.EOF
	}
	n := copy(p, r.s)
	r.s = r.s[n:]
	return n, nil
}
