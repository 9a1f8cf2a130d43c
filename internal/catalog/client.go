package catalog

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/toolsidecar/sidecar/retrieval"
)

// ClientError is a tools list of a request that cannot be served. Err is a
// [*TypeError] where the list holds something other than functions: the caller
// may then pass the request through.
type ClientError struct {
	Index int    // of the tool in the list, from 0; -1 for the list itself
	Name  string // of the tool, where it is known
	Err   error
}

func (e *ClientError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("tools: %v", e.Err)
	}
	return fmt.Sprintf("tools[%d]: %v", e.Index, e.Err)
}

func (e *ClientError) Unwrap() error { return e.Err }

// Param names the place as OpenAI's error object does.
func (e *ClientError) Param() string {
	if e.Index < 0 {
		return "tools"
	}
	return fmt.Sprintf("tools[%d]", e.Index)
}

// Cache keeps the catalogs made from the tools lists of requests, found by the
// SHA-256 of their bytes. It is safe for concurrent use; the first requests
// with a list build it once.
type Cache struct {
	lim  Limits
	most int

	mu    sync.Mutex // guards the fields below
	at    map[cacheKey]*list.Element
	order list.List // of *cached, the latest used first
	bytes int
	stats CacheStats
}

// CacheStats counts what a cache did.
type CacheStats struct {
	Hits, Misses, Evictions uint64
	Entries, Bytes          int
}

// cacheKey is a client's list and the server's catalog it was merged with; the
// latter is zero for none. With rules, it is the catalog that they cut.
type cacheKey struct {
	client, server [sha256.Size]byte
	rules          string
}

type cached struct {
	key   cacheKey
	once  sync.Once
	c     *Catalog
	err   error
	bytes int // counted in Cache.bytes; 0 while it is built
}

// DefaultCacheBytes holds about 25 lists of 3,200 tools, or thousands of short ones.
const DefaultCacheBytes = 256 << 20

// NewCache returns a cache of at most so many bytes, as [Catalog.Bytes]
// estimates them; 0 means [DefaultCacheBytes]. A catalog larger than all of it
// is served but not kept.
func NewCache(bytes int) *Cache {
	if bytes == 0 {
		bytes = DefaultCacheBytes
	}
	return &Cache{lim: DefaultLimits, most: bytes, at: make(map[cacheKey]*list.Element)}
}

// Stats returns the counts so far.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries, s.Bytes = c.order.Len(), c.bytes
	return s
}

// FromClient returns the catalog of a request's tools array: the same bytes
// give the same *Catalog while it is kept. The only error is a [*ClientError].
func (c *Cache) FromClient(raw []byte) (*Catalog, error) {
	return c.get(cacheKey{client: sha256.Sum256(raw)}, func() (*Catalog, error) {
		return fromClient(raw, &c.lim)
	})
}

// Merged returns the catalog of a request's tools array (empty for none) with
// the server's tools behind it; where both have a name, the client's tool is
// it. The only error is a [*ClientError].
func (c *Cache) Merged(raw []byte, server *Catalog) (*Catalog, error) {
	if len(raw) == 0 {
		return server, nil
	}
	return c.get(cacheKey{client: sha256.Sum256(raw), server: server.key}, func() (*Catalog, error) {
		own, err := fromClient(raw, &c.lim)
		if err != nil {
			return nil, err
		}
		taken := make(map[string]bool, own.Len())
		for i := range own.tools {
			taken[own.tools[i].Name] = true
		}
		tools := make([]retrieval.Tool, 0, own.Len()+server.Len())
		tools = append(tools, own.tools...)
		for _, t := range server.tools {
			if !taken[t.Name] {
				tools = append(tools, t)
			}
		}
		return newCatalog("client + "+server.name, tools, own.Len(), server)
	})
}

// Permitted returns the catalog of the tools that rules let through, c itself where
// that is all of them.
func (c *Cache) Permitted(whole *Catalog, rules *AccessRules) (*Catalog, error) {
	if rules.All() {
		return whole, nil
	}
	key := cacheKey{client: whole.key, rules: fmt.Sprintf("%d %s", whole.client, rules.key())}
	return c.get(key, func() (*Catalog, error) {
		var tools []retrieval.Tool
		own := 0
		for i, t := range whole.tools {
			if rules.Permits(&t, i < whole.client) {
				tools = append(tools, t)
				if i < whole.client {
					own++
				}
			}
		}
		if len(tools) == len(whole.tools) {
			return whole, nil
		}
		return newCatalog(whole.name, tools, own, whole)
	})
}

func (c *Cache) get(key cacheKey, build func() (*Catalog, error)) (*Catalog, error) {
	c.mu.Lock()
	el, ok := c.at[key]
	if ok {
		c.order.MoveToFront(el)
		c.stats.Hits++
	} else {
		el = c.order.PushFront(&cached{key: key})
		c.at[key] = el
		c.stats.Misses++
	}
	c.mu.Unlock()
	e := el.Value.(*cached)
	e.once.Do(func() {
		e.err = errors.New("tools: the catalog was not built") // stays only if build panics
		defer c.built(el, e)
		if e.c, e.err = build(); e.err == nil {
			e.c.Index() // once, outside of the lock
		}
	})
	return e.c, e.err
}

// built counts a finished entry, drops a failed one, and makes room.
func (c *Cache) built(el *list.Element, e *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[e.key] != el {
		return
	}
	if e.err != nil || e.c.Bytes() > c.most {
		c.remove(el, e)
		return
	}
	e.bytes = e.c.Bytes()
	c.bytes += e.bytes
	for last := c.order.Back(); c.bytes > c.most && last != nil; {
		before := last.Prev()
		if x := last.Value.(*cached); x.bytes > 0 && x != e {
			c.remove(last, x)
			c.stats.Evictions++
		}
		last = before
	}
}

func (c *Cache) remove(el *list.Element, e *cached) {
	c.order.Remove(el)
	delete(c.at, e.key)
	c.bytes -= e.bytes
}

// fromClient reads a tools array in OpenAI's chat form, strictly.
func fromClient(raw []byte, lim *Limits) (*Catalog, error) {
	compact, err := compactOutline(raw)
	if err != nil {
		return nil, &ClientError{Index: -1, Err: err}
	}
	if compact[0] != '[' {
		return nil, &ClientError{Index: -1, Err: errors.New("not an array")}
	}
	var tools []retrieval.Tool
	seen := make(map[string]int)
	for v := range elements(compact) {
		i := len(tools)
		if i >= lim.Tools {
			return nil, &ClientError{Index: -1, Err: fmt.Errorf("more than %d tools", lim.Tools)}
		}
		t, err := canonical(v, lim, form{nested: true})
		if err != nil {
			return nil, &ClientError{i, t.Name, err}
		}
		if first, dup := seen[t.Name]; dup {
			return nil, &ClientError{i, t.Name, fmt.Errorf("name %q already used by tools[%d]", t.Name, first)}
		}
		seen[t.Name] = i
		tools = append(tools, t)
	}
	c, err := newCatalog("client", tools, len(tools), nil)
	if err != nil {
		return nil, &ClientError{Index: -1, Err: err}
	}
	return c, nil
}
