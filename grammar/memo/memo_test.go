package memo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(s string) Key { return sha256.Sum256([]byte(s)) }

func table(max int) *Table[string] {
	return New(max, func(s string, err error) int {
		if err != nil {
			return len(err.Error())
		}
		return len(s)
	})
}

// TestOnce: of many who ask at once one works, errors are kept as well.
func TestOnce(t *testing.T) {
	tab := table(1 << 20)
	bad := errors.New("no")
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprint(i % 2)
			v, err := tab.Get(context.Background(), key(name), func(context.Context) (string, error) {
				made.Add(1)
				if name == "1" {
					return "", bad
				}
				return name, nil
			})
			if name == "0" && (v != "0" || err != nil) || name == "1" && err != bad {
				t.Errorf("%s: %q, %v", name, v, err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 2 {
		t.Errorf("made %d times", made.Load())
	}
}

// TestCancelled: who waits can leave, and what was cancelled is made by the next.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table(1 << 20)
		first, cancel := context.WithCancel(context.Background())
		second, leave := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := tab.Get(first, key("a"), func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", fmt.Errorf("compile: %w", ctx.Err())
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait() // the first is at work
		wg.Go(func() {
			if _, err := tab.Get(second, key("a"), nil); err != context.Canceled {
				t.Error(err)
			}
		})
		wg.Go(func() {
			v, err := tab.Get(context.Background(), key("a"), func(context.Context) (string, error) { return "made", nil })
			if v != "made" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
		synctest.Wait() // both wait
		leave()
		synctest.Wait()
		cancel()
		wg.Wait()
		if _, n := tab.Size(); n != 1 {
			t.Errorf("%d results", n)
		}
	})
}

// TestPanic: a panic goes on, and those who ask later aren't left waiting.
func TestPanic(t *testing.T) {
	tab := table(1 << 20)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		tab.Get(context.Background(), key("a"), func(context.Context) (string, error) { panic("bug") })
	}()
	if v, err := tab.Get(context.Background(), key("a"), func(context.Context) (string, error) { return "b", nil }); v != "b" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// TestBytes: what was not used for longest goes, also where it grew later.
func TestBytes(t *testing.T) {
	size := map[string]int{}
	tab := New(10_000, func(s string, _ error) int { return size[s] })
	made := map[string]int{}
	get := func(s string) {
		tab.Get(context.Background(), key(s), func(context.Context) (string, error) { made[s]++; return s, nil })
	}
	for _, s := range []string{"a", "b", "c"} {
		size[s] = 2700
		get(s)
	}
	if n, k := tab.Size(); n != 9000 || k != 3 {
		t.Fatal(n, k)
	}
	get("a")
	size["a"] = 5000
	get("a") // b is the oldest
	for _, s := range []string{"c", "a"} {
		get(s)
	}
	if made["a"] != 1 || made["c"] != 1 {
		t.Error(made)
	}
	if get("b"); made["b"] != 2 {
		t.Error(made)
	}
	size["d"] = 1 << 20
	get("d")
	if n, k := tab.Size(); k != 1 || n < 1<<20 {
		t.Error(n, k)
	}
}
