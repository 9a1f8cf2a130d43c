// Package memo keeps the results of a costly function, errors among them: each
// is worked out once, however many ask at the same time, and what was not asked
// for longest goes when there are too many bytes.
package memo

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"sync"
)

// A Key is a hash of all that a result depends on.
type Key [sha256.Size]byte

// A Table keeps results by key. It is safe for concurrent use.
type Table[V any] struct {
	max  int
	size func(V, error) int

	mu      sync.Mutex // guards all below
	order   *list.List // of *entry[V], those used last in front
	entries map[Key]*list.Element
	bytes   int // of those that are done, when they were last asked for
}

// An entry is guarded by the table's mutex; value and err by done.
type entry[V any] struct {
	key   Key
	done  chan struct{} // closed when value and err are known
	kept  bool          // done, and neither given up nor dropped
	bytes int
	value V
	err   error
}

// entryBytes is about what an entry takes beside its value.
const entryBytes = 300

// New makes a table that keeps at most maxBytes, and the last result in any
// case. size is what a result takes now; it is asked again whenever the result
// is, since what is used may grow.
func New[V any](maxBytes int, size func(V, error) int) *Table[V] {
	return &Table[V]{max: maxBytes, size: size, order: list.New(), entries: map[Key]*list.Element{}}
}

// Get is the result of a key. The first to ask makes it, under its own context;
// others wait for that. A result that was cancelled is not kept: one of those
// who wait makes it then. The error is that of make, or of ctx.
func (t *Table[V]) Get(ctx context.Context, key Key, make func(context.Context) (V, error)) (V, error) {
	for {
		e, mine := t.entry(key)
		if mine {
			return t.fill(ctx, e, make)
		}
		select {
		case <-e.done:
		default:
			select {
			case <-e.done:
			case <-ctx.Done():
				var none V
				return none, ctx.Err()
			}
		}
		if t.used(e) {
			return e.value, e.err
		}
	}
}

// entry finds an entry, or begins one.
func (t *Table[V]) entry(key Key) (e *entry[V], mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.entries[key]; at != nil {
		t.order.MoveToFront(at)
		return at.Value.(*entry[V]), false
	}
	e = &entry[V]{key: key, done: make(chan struct{})}
	t.entries[key] = t.order.PushFront(e)
	return e, true
}

func (t *Table[V]) fill(ctx context.Context, e *entry[V], make func(context.Context) (V, error)) (V, error) {
	kept := false // if make panics
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		e.kept = kept
		if !kept {
			t.order.Remove(t.entries[e.key])
			delete(t.entries, e.key)
		} else {
			t.weigh(e)
		}
		close(e.done)
	}()
	e.value, e.err = make(ctx)
	kept = !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded)
	return e.value, e.err
}

// used tells whether a done entry has a result.
func (t *Table[V]) used(e *entry[V]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[e.key] != nil && t.entries[e.key].Value == e {
		t.weigh(e)
	}
	return e.kept
}

// weigh measures an entry and drops what was not used for longest.
func (t *Table[V]) weigh(e *entry[V]) {
	now := entryBytes + t.size(e.value, e.err)
	t.bytes += now - e.bytes
	e.bytes = now
	for at := t.order.Back(); t.bytes > t.max && at != nil; {
		last := at.Value.(*entry[V])
		at = at.Prev()
		if last == e || last.bytes == 0 { // being made
			continue
		}
		t.order.Remove(t.entries[last.key])
		delete(t.entries, last.key)
		t.bytes -= last.bytes
	}
}

// Size is about what the table keeps, and how many results these are.
func (t *Table[V]) Size() (bytes, results int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, t.order.Len()
}
