package store_test

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/internal/store/storetest"
	"github.com/toolsidecar/sidecar/prefix"
)

// TestMemoryIsReal: what Memory counts, and bounds, is what it takes of the heap,
// within a fifth.
func TestMemoryIsReal(t *testing.T) {
	const n = 20_000
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, entry := range map[string]func(i int) *prefix.Entry{
		"decision": func(int) *prefix.Entry { return &prefix.Entry{} },
		"alias":    func(int) *prefix.Entry { return &prefix.Entry{Origin: new(prefix.Key)} },
		"reply":    func(i int) *prefix.Entry { return &prefix.Entry{Text: x(500 + i%10), Replaced: true} },
		"ids": func(int) *prefix.Entry {
			return &prefix.Entry{Text: x(400), Replaced: true, Tokens: &prefix.Tokens{Head: make(prefix.IDs, 100), Output: make(prefix.IDs, 300)}}
		},
		"late tools": func(int) *prefix.Entry {
			return &prefix.Entry{Late: []*prefix.Block{{Query: x(60), Tools: []prefix.Shown{{Name: x(20), JSON: x(800)}, {Name: x(20), JSON: x(500)}}}}}
		},
	} {
		m := store.NewMemory(1 << 30)
		before := heap()
		for i := range n {
			m.Put(storetest.Key(i), entry(i))
		}
		took := heap() - before
		_, counted, _ := m.Stats()
		t.Logf("%s: %d bytes each, counted as %d", name, took/n, counted/n)
		if math.Abs(float64(took)/float64(counted)-1) > 0.2 {
			t.Errorf("%s: an entry takes %d bytes and counts as %d", name, took/n, counted/n)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
