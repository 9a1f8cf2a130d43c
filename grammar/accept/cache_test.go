package accept

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

// TestCache: one automaton for a schema in any spelling, another for other
// options; refusals are kept, cancelled compiles aren't.
func TestCache(t *testing.T) {
	ctx := context.Background()
	c := NewCache(16 << 20)
	compile := func(schema string, o Options) *Automaton {
		t.Helper()
		a, err := c.Compile(ctx, []byte(schema), o)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := compile(`{"type":"object","properties":{"a":{"minimum":1},"b":{}}}`, Options{})
	for _, same := range []string{`{"properties": {"b":{}, "a":{"minimum":1}}, "\u0074ype":"object"}`, `{"type":"object","properties":{"a":{"minimum":1},"b":{}}}`} {
		if compile(same, Options{}) != first || compile(same, Options{Draft: Draft2020}) != first {
			t.Errorf("%s: another automaton", same)
		}
	}
	for _, o := range []Options{{Draft: Draft07}, {Formats: true}, {Base: "http://a/"}, {Limits: Limits{Depth: 3}}, {Documents: map[string][]byte{"http://a/": []byte("{}")}}} {
		if compile(`{"type":"object","properties":{"a":{"minimum":1},"b":{}}}`, o) == first {
			t.Errorf("%+v: the same automaton", o)
		}
	}
	_, n := c.Size()
	for range 3 {
		var no *RefusedError
		if _, err := c.Compile(ctx, []byte(`{"type":7}`), Options{}); !errors.As(err, &no) || no.Keyword != "type" {
			t.Errorf("refused: %v", err)
		}
	}
	if _, m := c.Size(); m != n+1 {
		t.Errorf("%d results, then %d", n, m)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Compile(cancelled, []byte(`{"type":8}`), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var no *RefusedError
	if _, err := c.Compile(ctx, []byte(`{"type":8}`), Options{}); !errors.As(err, &no) {
		t.Errorf("after a cancelled one: %v", err)
	}
	// What is used grows, and what was not used for longest goes.
	small := NewCache(200_000)
	for i := range 50 {
		a, err := small.Compile(ctx, []byte(`{"maxLength":`+strings.Repeat("1", i%8+1)+`,"minLength":`+strings.Repeat("1", i/8+1)+`}`), Options{})
		if err != nil {
			t.Fatal(err)
		}
		a.Check([]byte(`"` + strings.Repeat("x", 60) + `"`))
		if b, n := small.Size(); b > 200_000 && n > 1 {
			t.Fatalf("%d bytes in %d results", b, n)
		}
	}
}

// TestCacheShared: of many at once one compiles.
func TestCacheShared(t *testing.T) {
	c := NewCache(1 << 20)
	var wg sync.WaitGroup
	all := make([]*Automaton, 32)
	for i := range all {
		wg.Go(func() {
			all[i], _ = c.Compile(context.Background(), []byte(`{"items":{"type":"string"}}`), Options{})
		})
	}
	wg.Wait()
	for _, a := range all {
		if a == nil || a != all[0] {
			t.Fatal("not one automaton")
		}
	}
}

// TestWidthPlace: a limit of the schema itself names the place that reached it.
func TestWidthPlace(t *testing.T) {
	wide := `{"properties":{"a":{"anyOf":[` + strings.Repeat(`{"type":"null"},`, 30) + `{}]}}}`
	var limit *LimitError
	if _, err := Compile(context.Background(), []byte(wide), Options{Limits: Limits{Width: 20}}); !errors.As(err, &limit) || limit.Path != "/properties/a" || limit.Keyword != "anyOf" {
		t.Errorf("%+v", limit)
	}
}
