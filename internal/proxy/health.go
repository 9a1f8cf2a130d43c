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

// serveReady says whether a request would reach the engine. An embedder that is
// down makes nobody wait: retrieval has a table of its own.
func (p *Proxy) serveReady(x *exchange) {
	if p.isDraining() {
		x.fail("", serverError(503, "draining", "The sidecar is shutting down."))
		return
	}
	if err := p.ready.check(x.ctx, p); err != nil {
		x.fail("", serverError(503, "engine_not_ready", "The engine is not ready: "+err.Error()))
		return
	}
	body := "ready\n"
	if s, ok := p.stages.(*stages); ok && s.embedding != nil {
		body += s.embedding.state() + "\n"
	}
	x.reply(200, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte(body))
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
// An engine without it is ready when it lists its models.
func (p *Proxy) askHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	status, err := p.askStatus(ctx, "/health")
	if err == nil && status == http.StatusNotFound {
		status, err = p.askStatus(ctx, "/v1/models")
		if err == nil && status >= 400 && status != http.StatusUnauthorized && status != http.StatusForbidden {
			return fmt.Errorf("neither /health nor /v1/models is there; --engine must name an OpenAI-compatible server")
		}
	}
	if err == nil && status >= 500 {
		err = fmt.Errorf("GET /health answered %d", status)
	}
	return err
}

// askStatus is the status of a GET.
func (p *Proxy) askStatus(ctx context.Context, path string) (int, error) {
	url, err := p.engineURL(path, "")
	if err != nil {
		return 0, err
	}
	resp, err := p.client.do(ctx, &engineRequest{method: "GET", url: url, header: http.Header{}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	return resp.StatusCode, nil
}

// Ready asks the engine whether it serves, and probes one that does, before there
// is traffic; the error says why it does not serve.
func (p *Proxy) Ready(ctx context.Context) error {
	err := p.ready.check(ctx, p)
	if s, ok := p.stages.(*stages); ok && err == nil && !s.cfg.Observe {
		s.engine.info(ctx) // what can't be probed now is probed with a request
	}
	return err
}
