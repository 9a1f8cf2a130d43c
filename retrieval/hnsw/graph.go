package hnsw

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas/blas32"
)

// A Metric says how similar two vectors are; more is nearer.
type Metric uint8

const (
	Inner  Metric = iota // inner product
	Cosine               // inner product of the vectors scaled to length 1
)

// Config of an index. The zero of a field means its default.
type Config struct {
	Dim    int // of all vectors; must be given
	Metric Metric
	M      int    // links of a node on each level above the lowest, which has twice as many; default 16
	Build  int    // candidates kept while a vector is linked; default 200
	Search int    // candidates kept by a search that asks for fewer; default 64
	Seed   uint64 // of the levels
	// Shared keeps vectors as they are given instead of copies; they must not be
	// changed then. It needs the metric Inner.
	Shared bool
}

const (
	maxLevel = 16
	chunk    = 1024 // nodes of one allocation
	maxM     = 256
	maxDim   = 1 << 16
)

func (c *Config) setDefaults() error {
	if c.Dim <= 0 || c.Dim > maxDim {
		return fmt.Errorf("hnsw: dimension %d; 1 to %d are possible", c.Dim, maxDim)
	}
	if c.Metric > Cosine {
		return fmt.Errorf("hnsw: metric %d is unknown", c.Metric)
	}
	if c.Shared && c.Metric != Inner {
		return errors.New("hnsw: shared vectors can't be scaled to length 1")
	}
	if c.M == 0 {
		c.M = 16
	}
	if c.Build == 0 {
		c.Build = 200
	}
	if c.Search == 0 {
		c.Search = 64
	}
	if c.M < 2 || c.M > maxM || c.Build < 1 || c.Search < 1 {
		return fmt.Errorf("hnsw: M %d, Build %d, Search %d; M is 2 to %d and the others at least 1", c.M, c.Build, c.Search, maxM)
	}
	return nil
}

// A node is one version of a vector. Its vector never changes; its links do,
// and each list is replaced as a whole.
type node struct {
	key   uint64
	vec   []float32
	dead  atomic.Bool
	links []atomic.Pointer[[]uint32] // by level, of slots
}

func (n *node) level() int { return len(n.links) - 1 }

func (n *node) at(level int) []uint32 {
	if l := n.links[level].Load(); l != nil {
		return *l
	}
	return nil
}

// An Index is a set of vectors by key. It is safe for concurrent use.
type Index struct {
	cfg   Config
	scale float64 // of levels: 1/ln M

	now atomic.Pointer[graph] // what searches read

	mu    sync.Mutex        // of writers; guards all below
	slots map[uint64]uint32 // of live keys
	dead  int
}

// A graph is what one search walks. Nodes are added to it in place, at slots
// beyond what earlier searches know; a rebuilt index has another graph.
type graph struct {
	chunks atomic.Pointer[[]*[chunk]node]
	size   atomic.Uint32 // slots in use
	entry  atomic.Int64  // slot of the entry point; -1 for none
	pool   sync.Pool     // of *marks
}

func newGraph() *graph {
	g := &graph{}
	g.chunks.Store(&[]*[chunk]node{})
	g.entry.Store(-1)
	g.pool.New = func() any { return new(marks) }
	return g
}

func (g *graph) node(slot uint32) *node { return &(*g.chunks.Load())[slot/chunk][slot%chunk] }

// New makes an empty index.
func New(cfg Config) (*Index, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	x := &Index{cfg: cfg, scale: 1 / math.Log(float64(cfg.M)), slots: make(map[uint64]uint32)}
	x.now.Store(newGraph())
	return x, nil
}

// Len returns the number of vectors.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.slots)
}

// Bytes estimates the memory held, dead nodes included and shared vectors not.
func (x *Index) Bytes() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.now.Load()
	n := int(g.size.Load())
	vector := 4 * x.cfg.Dim
	if x.cfg.Shared {
		vector = 0
	}
	return n*(vector+104+4*2*x.cfg.M+48) + 24*len(x.slots)
}

// Dim returns the dimension of all vectors.
func (x *Index) Dim() int { return x.cfg.Dim }

// Config returns what the index was made with, defaults filled in.
func (x *Index) Config() Config { return x.cfg }

// Has says whether a key is there.
func (x *Index) Has(key uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.slots[key]
	return ok
}

// Keys returns all keys, ascending.
func (x *Index) Keys() []uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.slots))
}

var (
	errDim      = errors.New("hnsw: vector of another dimension")
	errNumber   = errors.New("hnsw: vector with NaN or an infinity")
	errNoLength = errors.New("hnsw: vector of length 0 has no direction")
)

// own is a vector as the index keeps it.
func (x *Index) own(v []float32) ([]float32, error) {
	if len(v) != x.cfg.Dim {
		return nil, fmt.Errorf("%w: %d, not %d", errDim, len(v), x.cfg.Dim)
	}
	sum := 0.0
	for _, f := range v {
		if f != f || math.IsInf(float64(f), 0) {
			return nil, errNumber
		}
		sum += float64(f) * float64(f)
	}
	if x.cfg.Shared {
		return v, nil
	}
	if x.cfg.Metric != Cosine {
		return slices.Clone(v), nil
	}
	if sum == 0 {
		return nil, errNoLength
	}
	out := make([]float32, len(v))
	s := 1 / math.Sqrt(sum)
	for i, f := range v {
		out[i] = float32(float64(f) * s)
	}
	return out, nil
}

func dot(a, b []float32) float32 {
	return blas32.Dot(blas32.Vector{N: len(a), Inc: 1, Data: a}, blas32.Vector{N: len(b), Inc: 1, Data: b})
}

// levelOf is geometric with ratio 1/M, by a hash of seed and key.
func (x *Index) levelOf(key uint64) int {
	h := mix(key ^ mix(x.cfg.Seed))
	u := (float64(h>>11) + 0.5) / (1 << 53)
	return min(int(-math.Log(u)*x.scale), maxLevel-1)
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
