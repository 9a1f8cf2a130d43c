package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolsidecar/sidecar/retrieval"
)

// graphFile is the name of a graph in an index cache.
const graphFile = "tools.graph"

// graphStep is how many tools are linked before it is asked whether to go on; it
// takes about a second.
const graphStep = 1 << 10

// OpenGraph returns the graph of an index: that of an index cache, brought up to
// date, or a new one, which is written there; dir "" is none. problem says why
// the cache was of no use, for people; the graph is good all the same. The error
// is that of ctx.
func OpenGraph(ctx context.Context, dir string, ix *retrieval.Index) (g *retrieval.Graph, problem, err error) {
	if dir != "" {
		g, problem = readGraph(dir, ix)
	}
	changed := 0
	if g == nil {
		if g, err = retrieval.NewGraph(ix); err != nil {
			return nil, problem, err
		}
	} else {
		changed = g.Prune(ix)
	}
	n, err := growGraph(ctx, g, ix)
	if err != nil {
		return nil, problem, err
	}
	if dir != "" && n+changed > 0 {
		problem = errors.Join(problem, writeGraph(dir, g))
	}
	return g, problem, nil
}

// growGraph adds what the graph lacks and says how many tools that were.
func growGraph(ctx context.Context, g *retrieval.Graph, ix *retrieval.Index) (added int, err error) {
	for {
		n, err := g.Add(ix, graphStep)
		added += n
		if err != nil || n < graphStep {
			return added, err
		}
		if err := ctx.Err(); err != nil {
			return added, err
		}
	}
}

func readGraph(dir string, ix *retrieval.Index) (*retrieval.Graph, error) {
	path := filepath.Join(dir, graphFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("index cache: %w", err)
	}
	defer f.Close()
	g, err := retrieval.LoadGraph(f, ix)
	if err != nil {
		return nil, fmt.Errorf("index cache: %s is of no use: %w", path, err)
	}
	return g, nil
}

func writeGraph(dir string, g *retrieval.Graph) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = replaceFile(filepath.Join(dir, graphFile), g.Save)
	}
	if err != nil {
		return fmt.Errorf("index cache: not written: %w", err)
	}
	return nil
}

// keepGraph keeps a graph of a large catalog while there is one. Until the graph
// has caught up, a version compares what it lacks one by one.
func (l *Live) keepGraph(ctx context.Context) {
	var g *retrieval.Graph
	var before *retrieval.Index // a version that requests may hold still
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.grow:
		}
		c := l.now.Load()
		if c.Len() < l.cfg.GraphFrom {
			continue
		}
		ix := c.Index()
		var problem, err error
		if g == nil {
			g, problem, err = OpenGraph(ctx, l.cfg.IndexCache, ix)
		} else {
			changed := g.Prune(before, ix)
			var n int
			if n, err = growGraph(ctx, g, ix); err == nil && n+changed > 0 && l.cfg.IndexCache != "" {
				problem = writeGraph(l.cfg.IndexCache, g)
			}
		}
		if err == nil {
			ix, err = ix.WithGraph(g)
		}
		before = ix
		l.mu.Lock()
		if err = errors.Join(problem, err); err != nil && ctx.Err() == nil && l.cfg.Report != nil {
			l.cfg.Report("index", err)
		}
		if ix != nil && l.now.Load() == c {
			l.now.Store(c.withIndex(ix))
		}
		l.mu.Unlock()
	}
}
