package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/internal/engine"
)

// engineState is what is known of the engine: probed on demand, by one goroutine
// at a time, and forgotten when the engine goes away, since it may come back as
// another one.
type engineState struct {
	probe func(context.Context) (*engine.Info, error)
	base  context.Context // ends with the proxy

	// mu guards the fields below.
	mu      sync.Mutex
	known   *engine.Info
	err     error
	tried   time.Time
	running chan struct{} // closed when the probe in flight is over; nil when none is
	wg      sync.WaitGroup
}

// A probe takes a handful of requests and one generated token; a CPU engine that
// compiles its first grammar needs a second or two.
const (
	probeTimeout = 30 * time.Second
	probeRetry   = time.Second // after a failed probe
)

// info returns what is known, probing first when nothing is. It waits no longer
// than ctx.
func (e *engineState) info(ctx context.Context) (*engine.Info, error) {
	for {
		e.mu.Lock()
		if e.known != nil {
			defer e.mu.Unlock()
			return e.known, nil
		}
		if e.running == nil && e.err != nil && time.Since(e.tried) < probeRetry {
			defer e.mu.Unlock()
			return nil, e.err
		}
		if e.running == nil {
			e.running = make(chan struct{})
			e.wg.Add(1)
			go e.run(e.running)
		}
		running := e.running
		e.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (e *engineState) run(over chan struct{}) {
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.base, probeTimeout)
	defer cancel()
	info, err := e.probe(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known, e.err, e.tried, e.running = info, err, time.Now(), nil
	close(over)
}

// forget drops what is known: the engine could not be reached, or hung up.
func (e *engineState) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known, e.err = nil, nil
}

// wait returns when no probe is in flight; the base context must have ended.
func (e *engineState) wait() { e.wg.Wait() }
