// Package storetest holds what every store.Ledger must do, as a test.
package storetest

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/prefix"
)

// Config is what a ledger under test is opened with.
type Config struct {
	Bytes int // its bound
	TTL   time.Duration
	Now   func() time.Time // nil for the real clock
}

// T is what opening a ledger may need of a test or of a check of rapid.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Bytes is a bound that every ledger can be opened with.
const Bytes = store.MinFileBytes

// Run tests the ledgers that open returns, each of which is empty.
func Run(t *testing.T, open func(t T, c Config) store.Ledger) {
	t.Run("latest", func(t *testing.T) { latest(t, open) })
	t.Run("least recently used", func(t *testing.T) { leastRecent(t, open) })
	t.Run("too large", func(t *testing.T) { tooLarge(t, open) })
	t.Run("ttl", func(t *testing.T) { ttl(t, open) })
	t.Run("delete", func(t *testing.T) { deletion(t, open) })
	t.Run("closed", func(t *testing.T) { closed(t, open) })
	t.Run("concurrent", func(t *testing.T) { concurrent(t, open) })
}

// Key is the i-th of many keys. Both of its halves differ.
func Key(i int) (k prefix.Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(i))
	binary.LittleEndian.PutUint64(k[16:], uint64(i))
	return k
}

// Name is the i-th of many names.
func Name(i int) (n prefix.Name) {
	binary.LittleEndian.PutUint64(n[:], uint64(i+1)*0x9e3779b97f4a7c15)
	return n
}

func closing(t T, l store.Ledger) {
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// latest: what is found is what was put last, under any order of operations; what
// was never put is not found, and with room for all nothing is lost.
func latest(t *testing.T, open func(T, Config) store.Ledger) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, Config{Bytes: Bytes})
		defer closing(t, l)
		twin := map[prefix.Key]*prefix.Entry{}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			k := Key(rapid.IntRange(0, 9).Draw(t, "key"))
			switch rapid.IntRange(0, 9).Draw(t, "operation") {
			case 0:
				n, want := Name(rapid.IntRange(0, 2).Draw(t, "name")), 0
				for k, e := range twin {
					if e.Conversation == n {
						want++
						delete(twin, k)
					}
				}
				if got, err := l.Delete(n); err != nil || got != want {
					t.Fatalf("Delete = %d, %v; want %d", got, err, want)
				}
			case 1, 2, 3, 4:
				e := &prefix.Entry{Conversation: Name(rapid.IntRange(0, 2).Draw(t, "of")), Text: rapid.StringN(0, 400, -1).Draw(t, "text"), Replaced: true}
				if rapid.Bool().Draw(t, "late") {
					e.Late = []*prefix.Block{{Query: "q", Tools: []prefix.Shown{{Name: "n", JSON: "{}"}}}}
				}
				l.Put(k, e)
				twin[k] = e
			default:
				got, ok := l.Get(k)
				want, has := twin[k]
				if ok != has || ok && !reflect.DeepEqual(got, want) {
					t.Fatalf("Get = %+v, %v; want %+v, %v", got, ok, want, has)
				}
			}
		}
		if n, bytes, evicted := l.Stats(); n != len(twin) || bytes > Bytes || evicted != 0 {
			t.Fatalf("Stats = %d entries, %d bytes, %d evicted; want %d, at most %d, 0", n, bytes, evicted, len(twin), Bytes)
		}
	})
}

// leastRecent: of entries of one size those used last remain, and their bytes keep
// to the bound.
func leastRecent(t *testing.T, open func(T, Config) store.Ledger) {
	l := open(t, Config{Bytes: Bytes})
	defer closing(t, l)
	const n = 1000
	text := strings.Repeat("x", 4000)
	var order []int // by use
	for i := range n {
		l.Put(Key(i), &prefix.Entry{Text: text, Replaced: true})
		order = append(order, i)
		if i%3 == 0 && i > 50 { // an older one is used
			if _, ok := l.Get(Key(i - 50)); !ok {
				t.Fatalf("entry %d, 50 before the last, is gone", i-50)
			}
			order = append(order, i-50)
		}
	}
	held, bytes, evicted := l.Stats()
	if bytes > Bytes || held+evicted != n || held < Bytes/2/4096 {
		t.Errorf("%d entries of %d bytes are held, %d evicted", held, bytes, evicted)
	}
	last := map[int]int{}
	for at, i := range order {
		last[i] = at
	}
	seen, want := map[int]bool{}, map[int]bool{}
	for at := len(order) - 1; at >= 0 && len(want) < held; at-- {
		if i := order[at]; last[i] == at {
			want[i] = true
		}
	}
	for i := range n {
		if _, ok := l.Get(Key(i)); ok {
			seen[i] = true
		}
	}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("held are %d entries, which are not the %d used last", len(seen), len(want))
	}
}

// tooLarge: an entry beyond the bound is not kept, nor is what it replaces.
func tooLarge(t *testing.T, open func(T, Config) store.Ledger) {
	l := open(t, Config{Bytes: Bytes})
	defer closing(t, l)
	l.Put(Key(1), &prefix.Entry{Text: "small"})
	l.Put(Key(2), &prefix.Entry{Text: "other"})
	l.Put(Key(1), &prefix.Entry{Text: strings.Repeat("x", Bytes+1)})
	if e, ok := l.Get(Key(1)); ok {
		t.Errorf("Get = an entry of %d bytes", len(e.Text))
	}
	if _, ok := l.Get(Key(2)); !ok {
		t.Error("another entry went with it")
	}
}

// ttl: an entry leaves when nobody used it for that long.
func ttl(t *testing.T, open func(T, Config) store.Ledger) {
	var now atomic.Int64
	now.Store(1_000_000)
	l := open(t, Config{Bytes: Bytes, TTL: time.Minute, Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	defer closing(t, l)
	l.Put(Key(1), &prefix.Entry{Text: "used"})
	l.Put(Key(2), &prefix.Entry{Text: "left"})
	now.Add(50)
	if _, ok := l.Get(Key(1)); !ok {
		t.Error("an entry of 50 s is gone")
	}
	now.Add(50)
	if _, ok := l.Get(Key(2)); ok {
		t.Error("an entry that nobody used for 100 s is there")
	}
	if _, ok := l.Get(Key(1)); !ok {
		t.Error("an entry used 50 s ago is gone")
	}
	if n, _, _ := l.Stats(); n != 1 {
		t.Errorf("%d entries are held, want 1", n)
	}
}

// deletion: a conversation goes as a whole, and alone.
func deletion(t *testing.T, open func(T, Config) store.Ledger) {
	l := open(t, Config{Bytes: Bytes})
	defer closing(t, l)
	for i := range 30 {
		l.Put(Key(i), &prefix.Entry{Conversation: Name(i % 3), Text: fmt.Sprint(i)})
	}
	if n, err := l.Delete(Name(1)); n != 10 || err != nil {
		t.Errorf("Delete = %d, %v", n, err)
	}
	for i := range 30 {
		if _, ok := l.Get(Key(i)); ok != (i%3 != 1) {
			t.Errorf("entry %d of conversation %d: found is %v", i, i%3, ok)
		}
	}
	if n, err := l.Delete(Name(1)); n != 0 || err != nil {
		t.Errorf("the second Delete = %d, %v", n, err)
	}
	l.Put(Key(1), &prefix.Entry{Conversation: Name(1), Text: "again"})
	if e, ok := l.Get(Key(1)); !ok || e.Text != "again" {
		t.Error("a deleted key can't be put again")
	}
}

// closed: a closed ledger is empty and takes nothing.
func closed(t *testing.T, open func(T, Config) store.Ledger) {
	l := open(t, Config{Bytes: Bytes})
	l.Put(Key(1), &prefix.Entry{Text: "x"})
	closing(t, l)
	if _, ok := l.Get(Key(1)); ok {
		t.Error("a closed ledger has an entry")
	}
	l.Put(Key(2), &prefix.Entry{Text: "x"})
	if _, ok := l.Get(Key(2)); ok {
		t.Error("a closed ledger took an entry")
	}
	if n, err := l.Delete(Name(1)); n != 0 || err != nil {
		t.Errorf("Delete = %d, %v", n, err)
	}
}

// concurrent: goroutines put, read and delete while entries are evicted; what is
// found belongs to its key.
func concurrent(t *testing.T, open func(T, Config) store.Ledger) {
	l := open(t, Config{Bytes: Bytes})
	defer closing(t, l)
	text := strings.Repeat("x", 8000)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 400 {
				k := (i*7 + w) % 200
				l.Put(Key(k), &prefix.Entry{Conversation: Name(k % 5), Text: text, Reasoning: fmt.Sprint(k)})
				k = (i*11 + w) % 200
				if e, ok := l.Get(Key(k)); ok && e.Reasoning != fmt.Sprint(k) {
					t.Errorf("under key %d stands %s", k, e.Reasoning)
				}
				if i%100 == 99 {
					if _, err := l.Delete(Name(w)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if _, bytes, _ := l.Stats(); bytes > Bytes {
		t.Errorf("%d bytes are held, bound is %d", bytes, Bytes)
	}
}
