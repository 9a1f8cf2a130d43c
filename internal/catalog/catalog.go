// Package catalog holds where tools come from: files of several shapes, the
// tools list of a request, the built-in demo.
//
// Every tool is kept in canonical bytes: compact JSON in OpenAI's shape with
// the keys type, function{name, description, parameters} in this order, the
// parameters' own order and the spelling of their numbers. The same tool has
// the same bytes wherever it came from, so that a prompt made from them is
// stable.
//
// The files are steps: limits.go what is refused; name.go what a tool is called;
// canonical.go one tool's bytes; yaml.go, openapi.go and load.go files,
// directories and API descriptions; mcp.go MCP servers; source.go all of these
// as they are named on a command line; join.go several as one; pins.go changes
// that wait for approval; live.go sources that are followed while they change;
// client.go the list of a request, cached; demo.go and toy.go the demo catalog
// and its handlers; tasks.go what the demo asks of it.
//
// Not supported: tools other than functions (a typed error), Swagger 2.0,
// references between documents, YAML merge keys.
package catalog

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/toolsidecar/sidecar/models/embedding"
	"github.com/toolsidecar/sidecar/retrieval"
)

// Catalog is an immutable list of tools with unique names. It is safe for
// concurrent use.
type Catalog struct {
	name   string
	tools  []retrieval.Tool
	client int // the first so many tools are the client's own
	key    [sha256.Size]byte
	bytes  int
	index  *retrieval.Index

	mu    sync.Mutex // guards costs
	costs map[string]*retrieval.Costs
}

// New makes a catalog of canonical tools. The tools must not be changed
// afterwards. Errors are those of [retrieval.NewIndex].
func New(name string, tools []retrieval.Tool) (*Catalog, error) {
	return newCatalog(name, tools, 0)
}

func newCatalog(name string, tools []retrieval.Tool, client int) (*Catalog, error) {
	cfg := retrieval.Default()
	cfg.Space = space()
	ix, err := retrieval.NewIndex(tools, cfg)
	if err != nil {
		return nil, fmt.Errorf("catalog %s: %w", name, err)
	}
	c := &Catalog{name: name, tools: tools, client: client, index: ix}
	h := sha256.New()
	for i := range tools {
		h.Write(tools[i].Raw)
		h.Write([]byte{'\n'})
		c.bytes += len(tools[i].Raw) + len(tools[i].Name) + len(tools[i].Description) + len(tools[i].Schema)
	}
	h.Sum(c.key[:0])
	c.bytes += ix.Bytes()
	return c, nil
}

// space is where tools and queries get their vectors unless told otherwise.
var space = sync.OnceValue(func() *retrieval.Space {
	t := embedding.Default()
	return &retrieval.Space{Name: "static", Dim: t.Dim(), Embed: t.Embed}
})

// named is c under another name. The index is the same.
func (c *Catalog) named(name string) *Catalog {
	return &Catalog{name: name, tools: c.tools, client: c.client, key: c.key, bytes: c.bytes, index: c.index}
}

// Name says where the catalog comes from, for people.
func (c *Catalog) Name() string { return c.name }

// Len returns the number of tools.
func (c *Catalog) Len() int { return len(c.tools) }

// Tools returns all tools, the client's own first. They must not be changed.
func (c *Catalog) Tools() []retrieval.Tool { return c.tools }

// Client returns how many tools, from the first on, are the client's own.
func (c *Catalog) Client() int { return c.client }

// Index returns the search index over Tools.
func (c *Catalog) Index() *retrieval.Index { return c.index }

// Key is the SHA-256 of the canonical bytes of all tools in order.
func (c *Catalog) Key() [sha256.Size]byte { return c.key }

// Bytes estimates the memory held by tools and index.
func (c *Catalog) Bytes() int { return c.bytes }

// Lookup finds a tool by its exact name.
func (c *Catalog) Lookup(name string) (*retrieval.Tool, bool) {
	i, ok := c.index.Lookup(name)
	if !ok {
		return nil, false
	}
	return &c.tools[i], true
}

// Costs returns the memory of token counts under the counter of that name,
// the same for each call.
func (c *Catalog) Costs(counter string) *retrieval.Costs {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.costs[counter]
	if !ok {
		if c.costs == nil {
			c.costs = make(map[string]*retrieval.Costs)
		}
		m = retrieval.NewCosts(c.index)
		c.costs[counter] = m
	}
	return m
}
