package proxy

import (
	"context"
	"net"
	"net/http/httptest"
	"testing"
	"time"
)

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

// both runs a test against each adapter.
func both(t *testing.T, test func(t *testing.T, adapter string)) {
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) { test(t, a.name) })
	}
}
