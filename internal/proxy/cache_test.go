package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/toolsidecar/sidecar/internal/racetest"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// TestExpectedAcrossModes: what the engine holds does not depend on how it was sent.
// A conversation that drops to text and comes back finds what was foretold.
func TestExpectedAcrossModes(t *testing.T) {
	for _, mode := range []string{ModeAuto, ModeOwned} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", mode, stream), func(t *testing.T) {
				_, url := newIDEngine(t, simengine.Config{})
				cfg := idStages()
				cfg.Mode = mode
				p, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
				a := &agent{t: t, base: base, stream: stream, more: map[string]any{}}
				a.say("system", "You are an assistant with many tools.")
				modes := map[string]int{}
				turns := 15
				if racetest.Enabled {
					turns = 8
				}
				for i := range turns {
					delete(a.more, "something_new")
					if i%5 > 2 {
						a.more["something_new"] = 1
					}
					a.step(i)
					turn := a.ask()
					rec := record(t, p)
					modes[rec.Mode]++
					if d := turn.Cached - rec.ExpectedCached; d < -16 || d > 16 {
						t.Errorf("turn %d, %s: %d tokens cached, %d expected", i, rec.Mode, turn.Cached, rec.ExpectedCached)
					}
					if len(rec.Finish) != 1 || rec.PromptTokens != turn.Prompt {
						t.Errorf("turn %d, %s: %d prompt tokens counted, %d reported", i, rec.Mode, rec.PromptTokens, turn.Prompt)
					}
				}
				if mode == ModeAuto && (modes[ModeOwned] == 0 || modes[ModeTokenIn] == 0) {
					t.Errorf("modes %v", modes)
				}
			})
		}
	}
}

// TestExpectedTogether: of equal prompts that are computed at the same time the
// engine may compute one or several. What it does is as expected, and what follows
// is foretold exactly.
func TestExpectedTogether(t *testing.T) {
	_, url := newIDEngine(t, simengine.Config{})
	p, base := start(t, "nethttp", Config{Engine: url, Stages: idStages()})
	for round := range 6 {
		raw, err := json.Marshal(map[string]any{"model": "sim-qwen3", "messages": []map[string]string{
			{"role": "system", "content": fmt.Sprintf("Session %d. Be terse.", round/2)}, {"role": "user", "content": "refund an order"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				resp, err := http.Post(base+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				io.Copy(io.Discard, resp.Body)
			})
		}
		wg.Wait()
	}
	p.settled()
	all := p.stages.(*stages).records.last()
	if len(all) != 48 {
		t.Fatalf("%d records", len(all))
	}
	for _, rec := range all {
		if rec.Reported == nil || rec.Reported.Cached-rec.ExpectedCached > 16 || rec.ExpectedCached-rec.Reported.Cached > 16 {
			t.Errorf("%+v reported, %d expected", rec.Reported, rec.ExpectedCached)
		}
	}
	if c := p.stages.(*stages).cache; len(c.sent) != 0 {
		t.Errorf("%d prompts are taken to be computed still", len(c.sent))
	}
}

// TestConcede: only what is within the range of prompts computed together is
// conceded.
func TestConcede(t *testing.T) {
	_, url := newIDEngine(t, simengine.Config{})
	p, _ := start(t, "nethttp", Config{Engine: url, Stages: idStages()})
	info, err := p.stages.(*stages).engine.info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, 100)
	for _, tt := range []struct{ seen, overlap, reported, want int }{
		{32, 0, 96, 32},  // nobody else: the engine found more than foretold
		{32, 64, 32, 32}, // computed by itself
		{32, 64, 64, 64}, // or with another
		{32, 64, 96, 64}, // but not more
		{32, 64, 0, 32},  // a loss stays one
	} {
		x := &turn{info: info, ids: ids, overlap: tt.overlap, record: &Record{ExpectedCached: tt.seen, Reported: &Reported{Cached: tt.reported}}}
		c := &cacheModel{}
		if c.concede(x); x.record.ExpectedCached != tt.want {
			t.Errorf("%+v: %d expected", tt, x.record.ExpectedCached)
		}
	}
}
