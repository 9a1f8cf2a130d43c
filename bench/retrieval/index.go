package retrieval

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/bench/quantile"
	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/retrieval/hnsw"
)

// IndexReport compares a graph with a scan over the same vectors.
type IndexReport struct {
	Vectors int     `json:"vectors"`
	Dim     int     `json:"dim"`
	Of      string  `json:"of"` // tools or uniform
	Build   float64 `json:"build_s"`
	Recall  float64 `json:"recall10"` // share of the ten nearest that the graph finds
	Graph   Latency `json:"hnsw_us"`  // of one search for ten
	Scan    Latency `json:"scan_us"`
	MB      float64 `json:"links_mb"` // of the graph, vectors not counted
}

// indexNearest is how many of the nearest are asked for.
const indexNearest = 10

// buildStep is how many vectors are linked before it is asked whether to go on.
const buildStep = 1 << 12

// MeasureIndex builds a graph of vectors and asks every query of it and of a scan.
func MeasureIndex(ctx context.Context, of string, vectors, queries [][]float32) (*IndexReport, error) {
	if len(vectors) == 0 || len(queries) == 0 {
		return nil, errors.New("no vectors, or no queries")
	}
	r := &IndexReport{Vectors: len(vectors), Dim: len(vectors[0]), Of: of}
	x, err := hnsw.New(retrieval.GraphConfig(r.Dim))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for from := 0; from < len(vectors); from += buildStep {
		part := vectors[from:min(from+buildStep, len(vectors))]
		keys := make([]uint64, len(part))
		for i := range keys {
			keys[i] = uint64(from + i)
		}
		if err := errors.Join(x.AddBatch(keys, part), ctx.Err()); err != nil {
			return nil, err
		}
	}
	r.Build = time.Since(start).Seconds()
	r.MB = float64(x.Bytes()) / 1e6
	var graph, scan []float64
	hit, all := 0, 0
	for _, q := range queries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		got, err := x.Search(q, indexNearest, hnsw.Options{})
		graph = append(graph, float64(time.Since(start).Nanoseconds())/1e3)
		if err != nil {
			return nil, err
		}
		start = time.Now()
		want, err := x.Exact(q, indexNearest, nil)
		scan = append(scan, float64(time.Since(start).Nanoseconds())/1e3)
		if err != nil {
			return nil, err
		}
		all += len(want)
		for _, w := range want {
			if slices.ContainsFunc(got, func(h hnsw.Hit) bool { return h.Key == w.Key }) {
				hit++
			}
		}
	}
	r.Recall = math.Round(1e4*float64(hit)/float64(all)) / 1e4
	slices.Sort(graph)
	slices.Sort(scan)
	r.Graph = Latency{quantile.Of(graph, .5), quantile.Of(graph, .99)}
	r.Scan = Latency{quantile.Of(scan, .5), quantile.Of(scan, .99)}
	return r, nil
}

// ToolVectors are those of all tools that have one, and of the queries, in the
// space of an index.
func ToolVectors(ix *retrieval.Index, queries []Query) (vectors, asked [][]float32) {
	some := func(v []float32) bool { return slices.ContainsFunc(v, func(x float32) bool { return x != 0 }) }
	for i := range ix.Len() {
		if v := ix.Vector(i); some(v) {
			vectors = append(vectors, v)
		}
	}
	for i := range queries {
		if v := ix.QueryVector(ix.Segment(queries[i].Messages)); v != nil {
			asked = append(asked, v)
		}
	}
	return vectors, asked
}

// UniformVectors are n random directions, the same for the same seed.
func UniformVectors(n, dim int, seed uint64) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	out := make([][]float32, n)
	for i := range out {
		v := make([]float32, dim)
		square := 0.0
		for j := range v {
			v[j] = float32(r.NormFloat64())
			square += float64(v[j]) * float64(v[j])
		}
		for j := range v {
			v[j] /= float32(math.Sqrt(square))
		}
		out[i] = v
	}
	return out
}

// ExportVectors writes vectors.f32 and queries.f32 to a directory, so that other
// programs can be measured on them: the number of vectors and their dimension as
// u32, then all numbers as float32, little endian.
func ExportVectors(dir string, vectors, queries [][]float32) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(exportVectors(filepath.Join(dir, "vectors.f32"), vectors), exportVectors(filepath.Join(dir, "queries.f32"), queries))
}

func exportVectors(path string, vectors [][]float32) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	dim := 0
	if len(vectors) > 0 {
		dim = len(vectors[0])
	}
	err = binary.Write(w, binary.LittleEndian, [2]uint32{uint32(len(vectors)), uint32(dim)})
	for _, v := range vectors {
		if err == nil {
			err = binary.Write(w, binary.LittleEndian, v)
		}
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// PrintIndex writes reports as a table.
func PrintIndex(w io.Writer, reports []*IndexReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %8s %5s %9s %10s %20s %20s %9s\n", "vectors", "number", "dim", "built in", "recall@10", "graph p50/p99", "scan p50/p99", "links")
	for _, r := range reports {
		fmt.Fprintf(&b, "%-8s %8d %5d %7.1f s %10.4f %17s µs %17s µs %6.0f MB\n", r.Of, r.Vectors, r.Dim, r.Build, r.Recall,
			fmt.Sprintf("%.0f/%.0f", r.Graph.P50, r.Graph.P99), fmt.Sprintf("%.0f/%.0f", r.Scan.P50, r.Scan.P99), r.MB)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
