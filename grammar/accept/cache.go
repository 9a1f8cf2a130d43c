package accept

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/toolsidecar/sidecar/grammar/memo"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A Cache keeps automata, and why schemas were refused, as many as fit its
// bytes, those used last. Of those who ask for one schema at a time, in whatever
// spelling and order of members, one compiles it. Cancelled compiles are not
// kept. It is safe for concurrent use.
type Cache struct {
	table *memo.Table[*cached]
}

type cached struct {
	*Automaton
	bytes atomic.Int64 // when they were last told
}

// NewCache makes a cache of maxBytes.
func NewCache(maxBytes int) *Cache {
	return &Cache{memo.New(maxBytes, func(c *cached, err error) int {
		if err != nil {
			return len(err.Error())
		}
		// Who is looking for a way may hold the lock for long.
		if c.mu.TryLock() {
			c.bytes.Store(int64(c.Automaton.bytes + c.m.bytes()))
			c.mu.Unlock()
		}
		return len(c.schema) + int(c.bytes.Load())
	})}
}

// Compile is Compile, or what it gave for this schema and these options before.
// A refusal may name the place in another spelling of the schema. All share the
// automaton.
func (c *Cache) Compile(ctx context.Context, schema []byte, o Options) (*Automaton, error) {
	a, err := c.table.Get(ctx, o.key(schema), func(ctx context.Context) (*cached, error) {
		a, err := Compile(ctx, schema, o)
		if err != nil {
			return nil, err
		}
		return &cached{Automaton: a}, nil
	})
	if err != nil {
		return nil, err
	}
	return a.Automaton, nil
}

// Size is about the bytes kept, and the number of results.
func (c *Cache) Size() (bytes, results int) { return c.table.Size() }

// key is the hash of all that Compile depends on: equal for schemas that differ
// in white space, spelling of strings, and order of members.
func (o Options) key(schema []byte) memo.Key {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(b))))
		h.Write(b)
	}
	limits := o.Limits.orDefault()
	for _, l := range limits.each() {
		h.Write(binary.AppendUvarint(nil, uint64(*l.at)))
	}
	flags := []byte{byte(o.Draft), 0}
	if o.Draft == Default {
		flags[0] = byte(Draft2020)
	}
	if o.Formats {
		flags[1] = 1
	}
	part(flags)
	part([]byte(o.Base))
	names := make([]string, 0, len(o.Documents))
	for name := range o.Documents {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		part([]byte(name))
		part(o.Documents[name])
	}
	if len(schema) <= limits.Bytes {
		if v, err := jsontext.Parse(schema, limits.Nesting); err == nil {
			schema = sorted(v).AppendTo(nil)
		}
	}
	part(schema)
	return memo.Key(h.Sum(nil))
}

// sorted is v with the members of its objects in the order of their keys.
func sorted(v *jsontext.Value) *jsontext.Value {
	out := *v
	out.Elems = make([]*jsontext.Value, len(v.Elems))
	for i, e := range v.Elems {
		out.Elems[i] = sorted(e)
	}
	out.Members = make([]jsontext.Member, len(v.Members))
	for i, m := range v.Members {
		out.Members[i] = jsontext.Member{Key: m.Key, Val: sorted(m.Val)}
	}
	slices.SortFunc(out.Members, func(a, b jsontext.Member) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return &out
}
