package store

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/prefix"
)

// size is what an entry counts as.
func size(e *prefix.Entry) int {
	b, _ := e.MarshalBinary()
	return itemOver + len(b)
}

func key(i int) (k prefix.Key) {
	k[0], k[1] = byte(i), byte(i>>8)
	return k
}

// TestMemoryAgainstTwin compares the store with a slice that is searched from
// the end, under random operations.
func TestMemoryAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := rapid.IntRange(300, 3000).Draw(t, "max")
		m := NewMemory(max)
		type kv struct {
			k prefix.Key
			e *prefix.Entry
		}
		var twin []kv // least recently used first
		find := func(k prefix.Key) int {
			for i := range twin {
				if twin[i].k == k {
					return i
				}
			}
			return -1
		}
		for range rapid.IntRange(1, 60).Draw(t, "ops") {
			k := key(rapid.IntRange(0, 9).Draw(t, "key"))
			i := find(k)
			if rapid.Bool().Draw(t, "put") {
				e := &prefix.Entry{Text: strings.Repeat("x", rapid.IntRange(0, 1000).Draw(t, "len"))}
				m.Put(k, e)
				if i >= 0 {
					twin = append(twin[:i], twin[i+1:]...)
				}
				if size(e) <= max {
					twin = append(twin, kv{k, e})
				}
				for total := 0; ; total = 0 {
					for _, x := range twin {
						total += size(x.e)
					}
					if total <= max {
						break
					}
					twin = twin[1:]
				}
				continue
			}
			got, ok := m.Get(k)
			if ok != (i >= 0) || ok && !reflect.DeepEqual(got, twin[i].e) {
				t.Fatalf("Get = %v, %v; twin has it: %v", got, ok, i >= 0)
			}
			if ok {
				x := twin[i]
				twin = append(append(twin[:i:i], twin[i+1:]...), x)
			}
		}
		want := 0
		for _, x := range twin {
			want += size(x.e)
		}
		if n, bytes, _ := m.Stats(); n != len(twin) || bytes != want {
			t.Fatalf("Stats = %d entries, %d bytes; twin %d, %d", n, bytes, len(twin), want)
		}
	})
}

func TestMemoryConcurrent(t *testing.T) {
	m := NewMemory(4 << 10)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				m.Put(key(i*w%37), &prefix.Entry{Text: "text"})
				m.Get(key(i % 37))
			}
		})
	}
	wg.Wait()
	if _, bytes, _ := m.Stats(); bytes > 4<<10 {
		t.Errorf("%d bytes held, bound is %d", bytes, 4<<10)
	}
}
