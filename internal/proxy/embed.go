package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/retrieval"
)

// An Embedder gives the vectors of texts, by text. With an error comes what is
// known. It is safe for concurrent use, and keeps what it was asked for.
type Embedder interface {
	Embed(ctx context.Context, texts []string) (map[string][]float32, error)
}

const (
	DefaultEmbedDeadline = 150 * time.Millisecond

	embedTimeout  = 30 * time.Second // for the texts of one request, in the background
	embedCatalog  = 30 * time.Minute // for the texts of a catalog
	embedRetry    = time.Second      // after a failure, doubled up to embedRetryMax
	embedRetryMax = 30 * time.Second
	embedTexts    = 4096 // texts whose vectors are at hand; the embedder has more
	embedIndices  = 16   // catalogs that have vectors of the embedder at a time
)

// embedding is retrieval with vectors of an embedder. Tools are embedded in the
// background, and so are the texts of messages as they are seen; a request waits
// for its own until the deadline. Whoever has no vectors in time goes on with the
// table in the program, and the record says why.
type embedding struct {
	from     Embedder
	name     string
	deadline time.Duration
	retry    time.Duration // the first pause after a failure
	base     context.Context
	log      func(format string, args ...any)
	wg       sync.WaitGroup

	// mu guards the fields below.
	mu      sync.Mutex
	known   map[string][]float32
	flights map[string]*flight // text -> the call that fetches it
	indices map[catalogKey]*embedded
	clock   int       // counts uses of indices
	down    error     // the last failure; nil after a success
	again   time.Time // when the next try is due
	pause   time.Duration
}

// catalogKey tells catalogs apart.
type catalogKey [32]byte

// embedded is a catalog on its way to vectors of the embedder.
type embedded struct {
	index *retrieval.Index // nil until it is ready
	dim   int
	stop  context.CancelFunc // ends the build; nil while none runs
	used  int
}

// flight is one call of the embedder.
type flight struct {
	done chan struct{}
	err  error
}

func newEmbedding(base context.Context, cfg *StageConfig, log func(string, ...any)) *embedding {
	e := &embedding{from: cfg.Embedder, name: cfg.EmbedderName, deadline: cfg.EmbedDeadline, retry: embedRetry, base: base, log: log}
	if e.deadline == 0 {
		e.deadline = DefaultEmbedDeadline
	}
	e.known, e.flights, e.indices = map[string][]float32{}, map[string]*flight{}, map[catalogKey]*embedded{}
	return e
}

// index is the catalog with vectors of the embedder, or why it has none yet; then
// somebody is at it.
func (e *embedding) index(c *catalog.Catalog) (ix *retrieval.Index, dim int, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := catalogKey(c.Key())
	x := e.indices[key]
	if x == nil {
		for len(e.indices) >= embedIndices {
			e.evict()
		}
		x = &embedded{}
		e.indices[key] = x
	}
	e.clock++
	x.used = e.clock
	if x.index != nil {
		return x.index, x.dim, ""
	}
	if x.stop == nil && !e.waits() {
		var ctx context.Context
		ctx, x.stop = context.WithTimeout(e.base, embedCatalog)
		e.wg.Go(func() { e.build(ctx, c, x) })
	}
	if e.down != nil {
		return nil, 0, e.down.Error()
	}
	return nil, 0, "the tools are not all embedded yet"
}

// evict drops the catalog that was used least recently; mu is held.
func (e *embedding) evict() {
	var oldest catalogKey
	least := math.MaxInt
	for key, x := range e.indices {
		if x.used < least {
			oldest, least = key, x.used
		}
	}
	if stop := e.indices[oldest].stop; stop != nil {
		stop()
	}
	delete(e.indices, oldest)
}

// waits says that the embedder failed a moment ago and is left alone; mu is held.
func (e *embedding) waits() bool { return e.down != nil && time.Now().Before(e.again) }

// build embeds the tools of a catalog. Those whose texts the embedder was asked for
// before cost nothing.
func (e *embedding) build(ctx context.Context, c *catalog.Catalog, x *embedded) {
	vectors, err := e.from.Embed(ctx, c.Index().ToolTexts())
	dim := 0
	if err == nil {
		dim, err = sound(vectors, 0)
	}
	var ix *retrieval.Index
	if err == nil {
		ix, err = c.Index().WithSpace(&retrieval.Space{Name: e.name, Dim: dim, Embed: func(text string) []float32 {
			if v := vectors[text]; v != nil {
				return v
			}
			return e.get(text)
		}})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	gone := ctx.Err() == context.Canceled // the catalog, or the process
	x.stop()
	x.stop = nil
	if gone {
		return
	}
	e.told(err)
	if err == nil {
		x.index, x.dim = ix, dim
		e.log("embedder %s: %d tools have vectors of %d dimensions", e.name, c.Len(), dim)
	}
}

// told notes how a call ended; mu is held.
func (e *embedding) told(err error) {
	switch {
	case err == nil:
		if e.down != nil {
			e.log("embedder %s: answers again", e.name)
		}
		e.down, e.pause = nil, 0
	case e.base.Err() != nil:
	default:
		if e.down == nil {
			e.log("embedder %s: %v; retrieval goes on with the table in the program", e.name, err)
		}
		e.pause = min(max(e.retry, 2*e.pause), embedRetryMax)
		e.down, e.again = err, time.Now().Add(e.pause)
	}
}

// sound checks vectors: all of dim numbers, or of one number of them where dim is
// 0, finite, and not all zero. It returns their dimension.
func sound(vectors map[string][]float32, dim int) (int, error) {
	for _, v := range vectors {
		if dim == 0 {
			dim = len(v)
		}
		if len(v) != dim || dim == 0 {
			return 0, fmt.Errorf("vectors of %d and of %d dimensions", dim, len(v))
		}
		square := 0.0
		for _, x := range v {
			square += float64(x) * float64(x)
		}
		if !(square > 0) || math.IsInf(square, 0) {
			return 0, errors.New("a vector that points nowhere: its numbers are zero or not finite")
		}
	}
	if dim == 0 {
		return 0, errors.New("no vectors")
	}
	return dim, nil
}

// state is the embedder in a line, for people.
func (e *embedding) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return "embedder " + e.name + ": down: " + cutText(e.down.Error(), 200)
	}
	for _, x := range e.indices {
		if x.stop != nil {
			return "embedder " + e.name + ": embedding tools"
		}
	}
	return "embedder " + e.name + ": ready"
}

func (e *embedding) get(text string) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[text]
}

// fetch gets what of texts is neither known nor on its way, in the background, and
// returns what there is to wait for. Nothing is fetched while the embedder is left
// alone.
func (e *embedding) fetch(texts []string, dim int) (wait []*flight, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var missing []string
	seen := map[*flight]bool{}
	for _, t := range texts {
		if e.known[t] != nil {
			continue
		}
		if f := e.flights[t]; f != nil {
			if !seen[f] {
				seen[f] = true
				wait = append(wait, f)
			}
			continue
		}
		missing = append(missing, t)
	}
	if len(missing) == 0 {
		return wait, ""
	}
	if e.waits() {
		return nil, e.down.Error()
	}
	f := &flight{done: make(chan struct{})}
	for _, t := range missing {
		e.flights[t] = f
	}
	e.wg.Go(func() { e.run(f, missing, dim) })
	return append(wait, f), ""
}

func (e *embedding) run(f *flight, texts []string, dim int) {
	ctx, cancel := context.WithTimeout(e.base, embedTimeout)
	defer cancel()
	vectors, err := e.from.Embed(ctx, texts)
	if err == nil {
		_, err = sound(vectors, dim)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told(err)
	f.err = err
	for _, t := range texts {
		delete(e.flights, t)
		if err == nil {
			e.know(t, vectors[t])
		}
	}
	close(f.done)
}

// know keeps a vector at hand in the place of any other; mu is held.
func (e *embedding) know(text string, v []float32) {
	for other := range e.known {
		if len(e.known) < embedTexts {
			break
		}
		delete(e.known, other)
	}
	e.known[text] = v
}

// ready waits until the texts have vectors, at most until the deadline. It says why
// they have none.
func (e *embedding) ready(ctx context.Context, texts []string, dim int) (reason string) {
	wait, reason := e.fetch(texts, dim)
	if reason != "" {
		return reason
	}
	timer := time.NewTimer(e.deadline)
	defer timer.Stop()
	for _, f := range wait {
		select {
		case <-f.done:
			if f.err != nil {
				return f.err.Error()
			}
		case <-timer.C:
			return fmt.Sprintf("no vectors within %v", e.deadline)
		case <-ctx.Done():
			return "the request ended"
		}
	}
	return ""
}

// find searches with the vectors of the embedder, if there is one and they are
// there, else with those of the table.
func (s *stages) find(t *turn, q retrieval.Query, k int) []retrieval.Hit {
	ix := t.set.Index()
	if s.embedding == nil {
		return ix.Search(q, k)
	}
	other, dim, reason := s.embedding.index(t.set)
	if reason == "" {
		if reason = s.embedding.ready(t.ctx, other.Texts(&q), dim); reason == "" {
			return other.Search(q, k)
		}
	}
	t.record.fallBack("embedder: " + cutText(reason, 120) + "; the built-in table is used")
	s.metrics.embedFallbacks.Inc()
	return ix.Search(q, k)
}

// foresee fetches vectors that a later turn will ask for: those of the messages as
// they stand now, while a tool runs or the engine answers.
func (s *stages) foresee(t *turn) {
	if s.embedding == nil || !s.cfg.Retrieval || s.allInFront(t.set) {
		return
	}
	if ix, dim, reason := s.embedding.index(t.set); reason == "" {
		q := ix.Segment(s.segment(t))
		s.embedding.fetch(ix.Texts(&q), dim)
	}
}

// foreseeReply does it for what the model said, which is part of the next query.
func (s *stages) foreseeReply(t *turn, text string) {
	if s.embedding == nil || text == "" || !s.cfg.Retrieval || s.allInFront(t.set) {
		return
	}
	if ix, dim, reason := s.embedding.index(t.set); reason == "" {
		q := retrieval.Query{Parts: []retrieval.Part{{Text: text, Weight: 1}}}
		s.embedding.fetch(ix.Texts(&q), dim)
	}
}

// traced is the index that a turn's calls are remembered by: with vectors of the
// same space as those it is searched with.
func (s *stages) traced(t *turn) *retrieval.Index {
	if s.embedding != nil {
		if ix, _, reason := s.embedding.index(t.set); reason == "" {
			return ix
		}
	}
	return t.set.Index()
}
