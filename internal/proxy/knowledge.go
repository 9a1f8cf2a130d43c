package proxy

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
)

// engineState is what is known of the engine: probed on demand, by one goroutine
// at a time, and forgotten when the engine goes away, since it may come back as
// another one. As long as there are requests it is checked now and then, since an
// engine can be replaced between two of them.
type engineState struct {
	probe func(context.Context) (*engine.Info, error)
	same  func(context.Context, *engine.Info) (bool, error)
	base  context.Context // ends with the proxy
	now   func() time.Time
	log   func(format string, args ...any)

	// mu guards the fields below.
	mu       sync.Mutex
	known    *engine.Info
	err      error
	tried    time.Time
	running  chan struct{} // closed when the probe in flight is over; nil when none is
	checked  time.Time     // when known was last seen to hold, or could not be
	due      time.Time     // of the next check
	checking chan struct{} // closed when the check in flight is over; nil when none is
	wg       sync.WaitGroup
}

// A probe takes a handful of requests and one generated token; a CPU engine that
// compiles its first grammar needs a second or two.
const (
	probeTimeout = 30 * time.Second
	probeRetry   = time.Second // after a failed probe
)

// A check is a few small requests beside one of a client. Only where nobody has asked
// for so long that the engine may well be another one does the client wait for it.
const (
	checkEvery   = 30 * time.Second // a quarter more or less, so that replicas don't ask together
	checkBefore  = 5 * time.Minute
	checkTimeout = 2 * time.Second
)

// info returns what is known, probing first when nothing is. It waits no longer
// than ctx.
func (e *engineState) info(ctx context.Context) (*engine.Info, error) {
	for {
		e.mu.Lock()
		if e.known != nil {
			over := e.check()
			if over == nil {
				defer e.mu.Unlock()
				return e.known, nil
			}
			e.mu.Unlock()
			select {
			case <-over:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if e.running == nil && e.err != nil && e.now().Sub(e.tried) < probeRetry {
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
	e.known, e.err, e.tried, e.running = info, err, e.now(), nil
	e.held()
	close(over)
}

// held notes that what is known need not be checked for a while. The caller holds mu.
func (e *engineState) held() {
	e.checked = e.now()
	e.due = e.checked.Add(checkEvery*3/4 + rand.N(checkEvery/2))
}

// check begins a check when one is due, and returns what is closed when it is over
// where that must be waited for. The caller holds mu.
func (e *engineState) check() (over chan struct{}) {
	now := e.now()
	if e.checking == nil && now.After(e.due) {
		e.checking = make(chan struct{})
		e.wg.Add(1)
		go e.compare(e.known, e.checking)
	}
	if e.checking != nil && now.Sub(e.checked) > checkBefore {
		return e.checking
	}
	return nil
}

// compare drops what is known when it is of another engine. An engine that does not
// answer is left to the requests, which will tell.
func (e *engineState) compare(known *engine.Info, over chan struct{}) {
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.base, checkTimeout)
	defer cancel()
	same, err := e.same(ctx, known)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checking = nil
	close(over)
	if e.known != known {
		return
	}
	if e.held(); err == nil && !same {
		e.log("the engine is another one than was probed, and is probed anew")
		e.known, e.err = nil, nil
	}
}

// forget drops what is known: the engine could not be reached, or hung up.
func (e *engineState) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known, e.err = nil, nil
}

// wait returns when neither probe nor check is in flight; the base context must have ended.
func (e *engineState) wait() { e.wg.Wait() }

// pin sees to it that the engine has had the probe's tag before a constraint of the
// client's own: vLLM settles on a grammar backend at the first of its life, and on
// another one it answers every tag with an error.
func (s *stages) pin(x *exchange, o *openai.Object) {
	if !s.cfg.Grammar || s.cfg.Observe {
		return
	}
	for _, key := range []string{"response_format", "structured_outputs", "tools"} {
		if v, ok := o.Get(key); ok && v.Kind() != 'n' {
			s.engine.info(x.ctx) // an engine that can't be probed is sent the request all the same
			return
		}
	}
}
