package store

import (
	"container/list"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/prefix"
)

// Memory is a Ledger in the memory of this process.
type Memory struct {
	// TTL is how long an entry is kept that nobody uses; 0 is for ever. Now is the
	// clock, nil for time.Now. Both are set before the first use, or not at all.
	TTL time.Duration
	Now func() time.Time

	max int // bytes

	// mu guards the fields below.
	mu      sync.Mutex
	size    int // bytes
	evicted int
	order   *list.List // of *item, most recently used first
	items   map[prefix.Key]*list.Element
}

type item struct {
	key   prefix.Key
	entry *prefix.Entry
	size  int
	used  time.Time // zero without TTL
}

// NewMemory returns a ledger that holds at most maxBytes of entries, counted by
// Entry.Size. An entry larger than that is not kept.
func NewMemory(maxBytes int) *Memory {
	return &Memory{max: maxBytes, order: list.New(), items: map[prefix.Key]*list.Element{}}
}

// Get returns the entry under k and marks it as used.
func (m *Memory) Get(k prefix.Key) (*prefix.Entry, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.expire()
	el, ok := m.items[k]
	if !ok {
		return nil, false
	}
	m.order.MoveToFront(el)
	it := el.Value.(*item)
	it.used = now
	return it.entry, true
}

// Put stores e under k, replacing what was there.
func (m *Memory) Put(k prefix.Key, e *prefix.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.expire()
	if el, ok := m.items[k]; ok {
		m.drop(el)
	}
	size := e.Size()
	if size > m.max {
		m.evicted++
		return
	}
	m.items[k] = m.order.PushFront(&item{k, e, size, now})
	m.size += size
	for m.size > m.max {
		m.evicted++
		m.drop(m.order.Back())
	}
}

// Delete removes the entries of a conversation. It looks at every entry.
func (m *Memory) Delete(n prefix.Name) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropWhere(func(it *item) bool { return it.entry.Conversation == n }), nil
}

// Close drops all entries.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = 0 // for what is put from now on
	m.dropWhere(func(*item) bool { return true })
	return nil
}

// dropWhere drops the entries that match; the caller holds mu.
func (m *Memory) dropWhere(match func(*item) bool) (n int) {
	var next *list.Element
	for el := m.order.Front(); el != nil; el = next {
		next = el.Next()
		if match(el.Value.(*item)) {
			m.drop(el)
			n++
		}
	}
	return n
}

// expire drops what nobody used for the TTL and returns the time, zero without
// TTL. The caller holds mu.
func (m *Memory) expire() (now time.Time) {
	if m.TTL == 0 {
		return now
	}
	if now = time.Now(); m.Now != nil {
		now = m.Now()
	}
	for el := m.order.Back(); el != nil && now.Sub(el.Value.(*item).used) > m.TTL; el = m.order.Back() {
		m.drop(el)
	}
	return now
}

// drop removes an element; the caller holds mu.
func (m *Memory) drop(el *list.Element) {
	it := m.order.Remove(el).(*item)
	delete(m.items, it.key)
	m.size -= it.size
}

// Stats reports entries held, their bytes, and how many entries were evicted
// since the start.
func (m *Memory) Stats() (entries, bytes, evicted int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.items), m.size, m.evicted
}
