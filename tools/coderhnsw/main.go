// Coderhnsw measures coder/hnsw on exported vectors: coderhnsw DIR. It is a module
// of its own, so that nothing else depends on that package.
package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coder/hnsw"
)

const nearest = 10

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: coderhnsw DIR, which holds vectors.f32 and queries.f32")
		os.Exit(2)
	}
	if err := measure(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "coderhnsw:", err)
		os.Exit(1)
	}
}

func measure(dir string, w io.Writer) error {
	vectors, err := read(filepath.Join(dir, "vectors.f32"))
	if err != nil {
		return err
	}
	queries, err := read(filepath.Join(dir, "queries.f32"))
	if err != nil {
		return err
	}
	queries = queries[:min(len(queries), 500)]
	for _, ef := range []int{64, 128} {
		g := hnsw.NewGraph[int]()
		g.M, g.EfSearch, g.Rng = 16, ef, rand.New(rand.NewSource(1))
		g.Distance = func(a, b hnsw.Vector) float32 { return -dot(a, b) }
		start := time.Now()
		for i, v := range vectors {
			g.Add(hnsw.MakeNode(i, v))
		}
		build := time.Since(start)
		hit := 0
		var took []time.Duration
		for _, q := range queries {
			start := time.Now()
			found := g.Search(q, nearest)
			took = append(took, time.Since(start))
			want := scan(vectors, q)
			for _, n := range found {
				if slices.Contains(want, n.Key) {
					hit++
				}
			}
		}
		slices.Sort(took)
		fmt.Fprintf(w, "%-24s %8d %8.1f s %10.4f %8d/%d µs\n", fmt.Sprintf("coder/hnsw v0.6.1, ef %d", ef), len(vectors), build.Seconds(),
			float64(hit)/float64(nearest*len(queries)), took[len(took)/2].Microseconds(), took[len(took)*99/100].Microseconds())
	}
	return nil
}

func dot(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// scan returns the true nearest.
func scan(vectors [][]float32, q []float32) []int {
	type scored struct {
		key   int
		score float32
	}
	all := make([]scored, len(vectors))
	for i, v := range vectors {
		all[i] = scored{i, dot(v, q)}
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.key, b.key)) })
	out := make([]int, 0, nearest)
	for _, s := range all[:min(nearest, len(all))] {
		out = append(out, s.key)
	}
	return out
}

func read(path string) ([][]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var head [2]uint32
	if err := binary.Read(f, binary.LittleEndian, &head); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := make([]float32, int(head[0])*int(head[1]))
	if err := binary.Read(f, binary.LittleEndian, all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return slices.Collect(slices.Chunk(all, int(head[1]))), nil
}
