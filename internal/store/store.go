// Package store keeps what must outlive a request. Memory is the ledger of
// conversations in this process: bounded by bytes, least recently used first out.
package store

import (
	"container/list"
	"sync"

	"github.com/toolsidecar/sidecar/prefix"
)

// Memory is a prefix.Ledger of bounded size, safe for concurrent use.
type Memory struct {
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
	el, ok := m.items[k]
	if !ok {
		return nil, false
	}
	m.order.MoveToFront(el)
	return el.Value.(*item).entry, true
}

// Put stores e under k, replacing what was there.
func (m *Memory) Put(k prefix.Key, e *prefix.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el, ok := m.items[k]; ok {
		m.drop(el)
	}
	size := e.Size()
	if size > m.max {
		m.evicted++
		return
	}
	m.items[k] = m.order.PushFront(&item{k, e, size})
	m.size += size
	for m.size > m.max {
		m.evicted++
		m.drop(m.order.Back())
	}
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
