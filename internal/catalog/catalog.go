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
// that wait for approval; risk.go what a tool can do and who may use it; live.go
// sources that are followed while they change; graph.go the graph of a large
// catalog; client.go the list of a request, cached; demo.go and toy.go the demo
// catalog and its handlers; tasks.go what the demo asks of it.
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
	bytes  int                     // of tools
	index  func() *retrieval.Index // made at the first call

	costs *costs
}

// costs are the memories of token counts of a catalog, whatever its name and index.
type costs struct {
	mu sync.Mutex // guards by
	by map[string]*retrieval.Costs
}

// New makes a catalog of canonical tools. The tools must not be changed
// afterwards. Errors are those of [retrieval.NewIndex].
func New(name string, tools []retrieval.Tool) (*Catalog, error) {
	return newCatalog(name, tools, 0, nil)
}

// newCatalog makes a catalog whose index is brought up to date from that of
// another which has many of its tools; like may be nil.
func newCatalog(name string, tools []retrieval.Tool, client int, like *Catalog) (*Catalog, error) {
	if err := retrieval.Check(tools); err != nil {
		return nil, fmt.Errorf("catalog %s: %w", name, err)
	}
	c := &Catalog{name: name, tools: tools, client: client, costs: new(costs)}
	c.indexLike(like)
	h := sha256.New()
	for i := range tools {
		h.Write(tools[i].Raw)
		h.Write([]byte{'\n'})
		if r := tools[i].Risk; r != 0 {
			h.Write([]byte{r})
		}
		h.Write([]byte(tools[i].Given))
		c.bytes += len(tools[i].Raw) + len(tools[i].Name) + len(tools[i].Description) + len(tools[i].Schema)
	}
	h.Sum(c.key[:0])
	return c, nil
}

// indexLike says what the index will be made from. It is called before the first
// call of Index.
func (c *Catalog) indexLike(like *Catalog) {
	c.index = sync.OnceValue(func() *retrieval.Index {
		ix, err := c.newIndex(like)
		like = nil
		if err != nil {
			panic("catalog: " + err.Error()) // tools are checked when they come
		}
		return ix
	})
}

func (c *Catalog) newIndex(like *Catalog) (*retrieval.Index, error) {
	if like == nil {
		cfg := retrieval.Default()
		cfg.Space = space()
		return retrieval.NewIndex(c.tools, cfg)
	}
	old := like.Index()
	ix, err := old.Update(c.tools)
	if err != nil || old.Graph() == nil {
		return ix, err
	}
	return ix.WithGraph(old.Graph())
}

// withIndex is c with another index of the same tools.
func (c *Catalog) withIndex(ix *retrieval.Index) *Catalog {
	return &Catalog{name: c.name, tools: c.tools, client: c.client, key: c.key, bytes: c.bytes, index: func() *retrieval.Index { return ix }, costs: c.costs}
}

// space is where tools and queries get their vectors unless told otherwise.
var space = sync.OnceValue(func() *retrieval.Space {
	t := embedding.Default()
	return &retrieval.Space{Name: "static", Dim: t.Dim(), Embed: t.Embed}
})

// named is c under another name. The index is the same.
func (c *Catalog) named(name string) *Catalog {
	return &Catalog{name: name, tools: c.tools, client: c.client, key: c.key, bytes: c.bytes, index: c.index, costs: c.costs}
}

// Name says where the catalog comes from, for people.
func (c *Catalog) Name() string { return c.name }

// Len returns the number of tools.
func (c *Catalog) Len() int { return len(c.tools) }

// Tools returns all tools, the client's own first. They must not be changed.
func (c *Catalog) Tools() []retrieval.Tool { return c.tools }

// Client returns how many tools, from the first on, are the client's own.
func (c *Catalog) Client() int { return c.client }

// Index returns the search index over Tools. The first call makes it.
func (c *Catalog) Index() *retrieval.Index { return c.index() }

// Key is the SHA-256 of the canonical bytes of all tools in order, of the classes
// of risk that they declare and of the names that their sources gave them.
func (c *Catalog) Key() [sha256.Size]byte { return c.key }

// Bytes estimates the memory held by tools and index.
func (c *Catalog) Bytes() int { return c.bytes + c.Index().Bytes() }

// Lookup finds a tool by its exact name.
func (c *Catalog) Lookup(name string) (*retrieval.Tool, bool) {
	i, ok := c.Index().Lookup(name)
	if !ok {
		return nil, false
	}
	return &c.tools[i], true
}

// Costs returns the memory of token counts under the counter of that name,
// the same for each call.
func (c *Catalog) Costs(counter string) *retrieval.Costs {
	c.costs.mu.Lock()
	defer c.costs.mu.Unlock()
	m, ok := c.costs.by[counter]
	if !ok {
		if c.costs.by == nil {
			c.costs.by = make(map[string]*retrieval.Costs)
		}
		m = retrieval.NewCosts(c.Index())
		c.costs.by[counter] = m
	}
	return m
}
