package token_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/token"
)

// TestCache: one makes a grammar for all who ask, errors are kept, and what was
// not used for longest goes when the budget is spent.
func TestCache(t *testing.T) {
	open := arguments(t, `{"properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"integer"}}}}`)
	var made atomic.Int32
	build := func() (*token.Grammar, error) {
		made.Add(1)
		return token.New(nil, 0, open)
	}
	c := token.NewCache(1 << 20)
	grammars := make([]*token.Grammar, 8)
	var wg sync.WaitGroup
	for i := range grammars {
		wg.Go(func() { grammars[i], _ = c.Get("one", build) })
	}
	wg.Wait()
	for _, g := range grammars {
		if g == nil || g != grammars[0] {
			t.Fatal("not the same for all")
		}
	}
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
	boom := errors.New("boom")
	for range 2 {
		if _, err := c.Get("bad", func() (*token.Grammar, error) { made.Add(1); return nil, boom }); err != boom {
			t.Errorf("error %v", err)
		}
	}
	if made.Load() != 2 {
		t.Errorf("an error was made %d times", made.Load()-1)
	}
	for i := range 1000 {
		if _, err := c.Get(fmt.Sprint(i), build); err != nil {
			t.Fatal(err)
		}
		c.Get("one", build)
	}
	bytes, n := c.MemoryBytes()
	if bytes > 1<<20+1<<16 || n < 10 || n >= 1002 {
		t.Errorf("%d bytes in %d grammars", bytes, n)
	}
	if g, _ := c.Get("one", build); g != grammars[0] {
		t.Error("the one in use was dropped")
	}
	before := made.Load()
	c.Get("0", build)
	if made.Load() != before+1 {
		t.Error("the oldest was kept")
	}
}
