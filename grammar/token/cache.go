package token

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// A Cache keeps grammars by key, as many as fit its bytes, those used last.
// Grammars grow as they are used, so that what is kept is looked at whenever one
// is asked for; in between it may exceed the budget by what those in use grow.
// It is safe for concurrent use.
type Cache struct {
	max int

	mu      sync.Mutex // guards all below
	order   *list.List // of *cacheEntry, those used last in front
	entries map[string]*list.Element
}

type cacheEntry struct {
	key  string
	once sync.Once
	g    atomic.Pointer[Grammar]
	err  error // once is done
}

// cacheEntryBytes is about what an entry takes beside its grammar; one that is
// only an error takes no more.
const cacheEntryBytes = 300

// NewCache makes a cache of maxBytes.
func NewCache(maxBytes int) *Cache {
	return &Cache{max: maxBytes, order: list.New(), entries: map[string]*list.Element{}}
}

// Get is the grammar of a key, which make makes the first time; its error is
// kept likewise. Of those who ask at once for the same key, one makes it.
func (c *Cache) Get(key string, make func() (*Grammar, error)) (*Grammar, error) {
	c.mu.Lock()
	at := c.entries[key]
	if at == nil {
		at = c.order.PushFront(&cacheEntry{key: key})
		c.entries[key] = at
	} else {
		c.order.MoveToFront(at)
	}
	e := at.Value.(*cacheEntry)
	c.trim()
	c.mu.Unlock()
	e.once.Do(func() {
		g, err := make()
		e.g.Store(g)
		e.err = err
	})
	return e.g.Load(), e.err
}

// trim drops what was not used for longest; the last one used stays.
func (c *Cache) trim() {
	for n := c.bytes(); n > c.max && c.order.Len() > 1; {
		last := c.order.Remove(c.order.Back()).(*cacheEntry)
		delete(c.entries, last.key)
		n -= last.bytes()
	}
}

func (e *cacheEntry) bytes() int {
	n := cacheEntryBytes + len(e.key)
	if g := e.g.Load(); g != nil {
		n += g.MemoryBytes()
	}
	return n
}

func (c *Cache) bytes() int {
	n := 0
	for at := c.order.Front(); at != nil; at = at.Next() {
		n += at.Value.(*cacheEntry).bytes()
	}
	return n
}

// MemoryBytes is about what all grammars in the cache hold, and how many these
// are.
func (c *Cache) MemoryBytes() (bytes, grammars int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes(), c.order.Len()
}
