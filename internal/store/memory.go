package store

import (
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/prefix"
)

// Memory is a Ledger in the memory of this process. Entries are kept as the bytes of
// their encoding, half of what their structures would take.
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
	items   map[short]*item
	ring    item // next is used last, prev used longest ago
}

// item is one entry, 64 bytes.
type item struct {
	key        short
	name       prefix.Name // of the conversation
	entry      string      // as AppendBinary writes it
	used       int64       // nanoseconds since 1970; 0 without TTL
	prev, next *item
}

// itemOver is what an entry takes besides its bytes: 64 for the item, some 40 for its
// place in the map, whose groups of eight are about two thirds full, and 12 by which
// the allocator rounds the bytes up.
const itemOver = 64 + 40 + 12

func (it *item) size() int { return itemOver + len(it.entry) }

// NewMemory returns a ledger that takes at most maxBytes of the heap. An entry that
// takes more is not kept.
func NewMemory(maxBytes int) *Memory {
	m := &Memory{max: maxBytes, items: map[short]*item{}}
	m.ring.prev, m.ring.next = &m.ring, &m.ring
	return m
}

// Get returns the entry under k and marks it as used.
func (m *Memory) Get(k prefix.Key) (*prefix.Entry, bool) {
	b, ok := m.bytes(k)
	if !ok {
		return nil, false
	}
	e := &prefix.Entry{}
	if err := e.Unmarshal(b); err != nil {
		panic(err) // it was written by Put
	}
	return e, true
}

func (m *Memory) bytes(k prefix.Key) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.expire()
	it, ok := m.items[shorten(k)]
	if !ok {
		return "", false
	}
	it.used = now
	it.unlink()
	m.first(it)
	return it.entry, true
}

// Put stores e under k, replacing what was there.
func (m *Memory) Put(k prefix.Key, e *prefix.Entry) {
	var scratch [1 << 10]byte
	b, _ := e.AppendBinary(scratch[:0]) // does not fail
	it := &item{key: shorten(k), name: e.Conversation, entry: string(b)}

	m.mu.Lock()
	defer m.mu.Unlock()
	it.used = m.expire()
	if old, ok := m.items[it.key]; ok {
		m.drop(old)
	}
	if it.size() > m.max {
		m.evicted++
		return
	}
	m.items[it.key] = it
	m.first(it)
	m.size += it.size()
	for m.size > m.max {
		m.evicted++
		m.drop(m.ring.prev)
	}
}

// first puts an item in front; the caller holds mu.
func (m *Memory) first(it *item) {
	it.prev, it.next = &m.ring, m.ring.next
	it.next.prev, m.ring.next = it, it
}

func (it *item) unlink() { it.prev.next, it.next.prev = it.next, it.prev }

// Delete removes the entries of a conversation. It looks at every entry.
func (m *Memory) Delete(n prefix.Name) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropWhere(func(it *item) bool { return it.name == n }), nil
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
	for _, it := range m.items {
		if match(it) {
			m.drop(it)
			n++
		}
	}
	return n
}

// expire drops what nobody used for the TTL and returns the time, 0 without TTL.
// The caller holds mu.
func (m *Memory) expire() (now int64) {
	if m.TTL == 0 {
		return 0
	}
	clock := time.Now
	if m.Now != nil {
		clock = m.Now
	}
	now = clock().UnixNano()
	for it := m.ring.prev; it != &m.ring && now-it.used > int64(m.TTL); it = m.ring.prev {
		m.drop(it)
	}
	return now
}

// drop removes an item; the caller holds mu.
func (m *Memory) drop(it *item) {
	it.unlink()
	delete(m.items, it.key)
	m.size -= it.size()
}

// Stats reports entries held, their bytes, and how many entries were evicted
// since the start.
func (m *Memory) Stats() (entries, bytes, evicted int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.items), m.size, m.evicted
}
