package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// serveHealth says that the process answers.
func (p *Proxy) serveHealth(x *exchange) {
	x.reply(200, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte("ok\n"))
}

// serveReady says whether a request would reach the engine.
func (p *Proxy) serveReady(x *exchange) {
	if p.isDraining() {
		x.fail("", serverError(503, "draining", "The sidecar is shutting down."))
		return
	}
	if err := p.ready.check(x.ctx, p); err != nil {
		x.fail("", serverError(503, "engine_not_ready", "The engine is not ready: "+err.Error()))
		return
	}
	x.reply(200, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte("ready\n"))
}

// readiness remembers for readyFor what the engine last said, so that many
// probes are one.
type readiness struct {
	mu   sync.Mutex // guards what follows; held while the engine is asked
	at   time.Time
	last error
}

const (
	readyFor     = time.Second
	readyTimeout = 2 * time.Second
)

func (r *readiness) check(ctx context.Context, p *Proxy) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < readyFor {
		return r.last
	}
	err := p.askHealth(ctx)
	if ctx.Err() == nil {
		r.last, r.at = err, time.Now()
	}
	return err
}

// askHealth asks the engine's /health, which vLLM, SGLang and llama.cpp have.
// An engine without it is taken as ready when it answers at all.
func (p *Proxy) askHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	url, err := p.engineURL("/health", "")
	if err != nil {
		return err
	}
	resp, err := p.client.do(ctx, &engineRequest{method: "GET", url: url, header: http.Header{}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode >= 500 {
		return fmt.Errorf("GET %s answered %s", url.Path, resp.Status)
	}
	return nil
}
