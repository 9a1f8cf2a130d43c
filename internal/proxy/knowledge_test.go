package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// TestCheck: what is known of the engine is checked when its time has come, once,
// beside the request that finds it due; after a long pause before it. Another engine
// is probed anew, one that does not answer is left alone.
func TestCheck(t *testing.T) {
	now := time.Unix(0, 0)
	probes, checks := 0, 0
	same, broken := true, error(nil)
	var lines strings.Builder
	e := &engineState{
		probe: func(context.Context) (*engine.Info, error) {
			probes++
			return &engine.Info{Version: fmt.Sprint(probes)}, nil
		},
		same: func(context.Context, *engine.Info) (bool, error) {
			checks++
			return same, broken
		},
		base: context.Background(),
		now:  func() time.Time { return now },
		log:  func(format string, args ...any) { fmt.Fprintf(&lines, format+"\n", args...) },
	}
	for _, step := range []struct {
		after                   time.Duration
		same                    bool
		broken                  error
		version                 string // that the request is planned with
		wantChecks, nextVersion int    // once the check is over
	}{
		{0, true, nil, "1", 0, 1},
		{checkEvery / 2, true, nil, "1", 0, 1},
		{checkEvery, true, nil, "1", 1, 1},
		{time.Second, false, nil, "1", 1, 1},                       // not due
		{2 * checkEvery, true, errors.New("no answer"), "1", 2, 1}, // nothing is known of it
		{2 * checkEvery, false, nil, "1", 3, 2},                    // another, for the next request
		{2 * checkBefore, true, nil, "2", 4, 2},
		{2 * checkBefore, false, nil, "3", 5, 3}, // another, for this one
		{2 * checkBefore, false, errors.New("no answer"), "3", 6, 3},
	} {
		now, same, broken = now.Add(step.after), step.same, step.broken
		info, err := e.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e.wait()
		if info.Version != step.version || checks != step.wantChecks {
			t.Errorf("%+v: planned with %s after %d checks", step, info.Version, checks)
		}
		if info, err = e.info(t.Context()); err != nil || info.Version != fmt.Sprint(step.nextVersion) {
			t.Errorf("%+v: then %+v, %v", step, info, err)
		}
		e.wait()
	}
	if n := strings.Count(lines.String(), "another one"); n != 2 {
		t.Errorf("log: %s", lines.String())
	}
}

// TestEngineReplaced: another engine behind the same address, which answers every
// request, is noticed.
func TestEngineReplaced(t *testing.T) {
	var behind atomic.Pointer[simengine.Engine]
	replace := func(cfg simengine.Config) {
		cfg.PromptTokensDetails = true
		eng, err := simengine.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		behind.Store(eng)
	}
	replace(simengine.Config{BlockSize: 16})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { behind.Load().ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	p, base := start(t, "nethttp", Config{Engine: srv.URL, Stages: idStages()})
	state := p.stages.(*stages).engine
	var later atomic.Int64
	state.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	a := &agent{t: t, base: base}
	blocks := func() int {
		a.step(len(a.turns))
		a.ask()
		info, err := state.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.BlockSize
	}
	if n := blocks(); n != 16 {
		t.Fatalf("block size %d", n)
	}
	replace(simengine.Config{BlockSize: 64})
	if n := blocks(); n != 16 {
		t.Errorf("block size %d before the check", n)
	}
	later.Add(int64(2 * checkBefore))
	if n := blocks(); n != 64 {
		t.Errorf("block size %d behind the check", n)
	}
	if rec := record(t, p); rec.Mode != ModeTokenIn {
		t.Errorf("mode %s: %s", rec.Mode, rec.Fallback)
	}
}
