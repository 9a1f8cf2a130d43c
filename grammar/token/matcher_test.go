package token_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/grammar/token"
)

// TestRenewLetsGo: a text that outlives many beginnings of its grammar keeps
// none of the sources that were left, and can be taken back over all of them.
func TestRenewLetsGo(t *testing.T) {
	open := arguments(t, `{"properties":{"a":{"type":"array","items":{"type":"string","pattern":"^[a-z]{0,90}x?[0-9]{0,90}$"}}},"required":["a"]}`)
	type counted struct{ token.Source }
	var made, gone atomic.Int64
	g, err := token.New(qwen(t), 24<<10, func() (token.Source, error) {
		src, err := open()
		if err != nil {
			return nil, err
		}
		c := &counted{src}
		made.Add(1)
		runtime.AddCleanup(c, func(struct{}) { gone.Add(1) }, struct{}{})
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Matcher()
	if err != nil {
		t.Fatal(err)
	}
	feed := func(m *token.Matcher, s string) {
		t.Helper()
		if err := m.AdvanceBytes([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	feed(m, `{"a": [`)
	steps := 0
	for ; steps < 3000 && made.Load() < 8; steps++ {
		other, err := g.Matcher() // one of many texts that use the grammar up
		if err != nil {
			t.Fatal(err)
		}
		feed(other, `{"a": ["`+strings.Repeat("a", steps%80)+"x"+strings.Repeat("1", steps%70))
		if _, err := other.Mask(); err != nil {
			t.Fatal(err)
		}
		feed(m, `"x", `)
	}
	if made.Load() < 8 {
		t.Fatalf("began %d times: the test is too small", made.Load())
	}
	// Cleanups run some time after a collection finds the value gone.
	for end := time.Now().Add(10 * time.Second); made.Load()-gone.Load() > 2 && time.Now().Before(end); {
		runtime.GC()
		runtime.Gosched()
	}
	if n := made.Load() - gone.Load(); n > 2 {
		t.Errorf("%d of %d sources are still held", n, made.Load())
	}
	if err := m.Rollback(steps); err != nil {
		t.Fatal(err)
	}
	feed(m, `"x1"]}`)
	if !m.Accepts() {
		t.Error("taken back to another place")
	}
}
