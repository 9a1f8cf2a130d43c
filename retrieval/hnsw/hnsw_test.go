package hnsw

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clustered vectors are what embeddings look like: groups with noise around
// their centres.
func clustered(r *rand.Rand, n, dim, groups int, noise float64) [][]float32 {
	centres := make([][]float64, groups)
	for i := range centres {
		centres[i] = make([]float64, dim)
		for j := range centres[i] {
			centres[i][j] = r.NormFloat64()
		}
	}
	out := make([][]float32, n)
	for i := range out {
		c := centres[r.IntN(groups)]
		out[i] = make([]float32, dim)
		for j := range out[i] {
			out[i][j] = float32(c[j] + noise*r.NormFloat64())
		}
	}
	return out
}

func seq(n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = uint64(i)
	}
	return keys
}

func build(tb testing.TB, cfg Config, vs [][]float32) *Index {
	tb.Helper()
	x, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if err := x.AddBatch(seq(len(vs)), vs); err != nil {
		tb.Fatal(err)
	}
	return x
}

// recall is the share of the true k nearest that a search finds.
func recall(tb testing.TB, x *Index, queries [][]float32, k int, opt Options) float64 {
	tb.Helper()
	hit, all := 0, 0
	for _, q := range queries {
		want, err := x.Exact(q, k, opt.Filter)
		if err != nil {
			tb.Fatal(err)
		}
		got, err := x.Search(q, k, opt)
		if err != nil {
			tb.Fatal(err)
		}
		if !slices.IsSortedFunc(got, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) }) {
			tb.Fatalf("not sorted: %v", got)
		}
		all += len(want)
		for _, w := range want {
			if slices.ContainsFunc(got, func(g Hit) bool { return g.Key == w.Key && g.Score == w.Score }) {
				hit++
			}
		}
	}
	return float64(hit) / float64(all)
}

func TestRecall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, metric := range []Metric{Cosine, Inner} {
		vs := clustered(r, 4100, 32, 60, 0.6)
		queries, vs := vs[:100], vs[100:]
		x := build(t, Config{Dim: 32, Metric: metric, Seed: 7}, vs)
		if got := recall(t, x, queries, 10, Options{Candidates: 100}); got < 0.99 {
			t.Errorf("metric %d: recall@10 %.4f", metric, got)
		}
		// A filter that one in 100, one in 5 and most pass.
		for _, mod := range []uint64{100, 5} {
			few := Options{Filter: func(k uint64) bool { return k%mod == 0 }}
			if got := recall(t, x, queries, 10, few); got < 0.98 {
				t.Errorf("metric %d: recall@10 among one in %d: %.4f", metric, mod, got)
			}
		}
		most := Options{Candidates: 100, Filter: func(k uint64) bool { return k%5 != 0 }}
		if got := recall(t, x, queries, 10, most); got < 0.98 {
			t.Errorf("metric %d: recall@10 among four in five: %.4f", metric, got)
		}
		for k := range uint64(4000) {
			if k%3 == 0 {
				x.Remove(k)
			}
		}
		if x.Len() != 2666 {
			t.Errorf("%d left", x.Len())
		}
		if got := recall(t, x, queries, 10, Options{Candidates: 100}); got < 0.99 {
			t.Errorf("metric %d: recall@10 after a third is removed: %.4f", metric, got)
		}
	}
}

// The same operations give the same graph on one core and on many.
func TestDeterminism(t *testing.T) {
	vs := clustered(rand.New(rand.NewPCG(3, 4)), 1500, 16, 20, 0.5)
	snapshot := func(cores int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		x := build(t, Config{Dim: 16, Metric: Cosine, Seed: 9}, vs[:1000])
		x.Remove(1, 5, 7)
		if err := x.AddBatch(seq(500), vs[1000:]); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := x.Save(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	one := snapshot(1)
	for range 3 {
		if !bytes.Equal(one, snapshot(4)) {
			t.Fatal("another graph")
		}
	}
}

// Random operations against a map: what a search returns is there, is scored
// right, and with as many candidates as vectors it is the exact answer.
func TestAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const dim = 4
		metric := rapid.SampledFrom([]Metric{Inner, Cosine}).Draw(t, "metric")
		x, err := New(Config{Dim: dim, Metric: metric, M: 4, Build: 32, Seed: rapid.Uint64().Draw(t, "seed")})
		if err != nil {
			t.Fatal(err)
		}
		vector := rapid.SliceOfN(rapid.Float32Range(-1, 1), dim, dim).Filter(func(v []float32) bool { return v[0] != 0 })
		twin := map[uint64][]float32{}
		key := rapid.Uint64Range(0, 40)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := rapid.IntRange(1, 20).Draw(t, "n")
				keys, vs := make([]uint64, n), make([][]float32, n)
				for i := range keys {
					keys[i], vs[i] = key.Draw(t, "key"), vector.Draw(t, "vector")
					twin[keys[i]] = vs[i]
				}
				if err := x.AddBatch(keys, vs); err != nil {
					t.Fatal(err)
				}
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				delete(twin, k)
				x.Remove(k)
			},
			"reload": func(t *rapid.T) {
				var b bytes.Buffer
				if err := x.Save(&b); err != nil {
					t.Fatal(err)
				}
				var err error
				if x, err = Load(&b, nil); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				if x.Len() != len(twin) {
					t.Fatalf("%d vectors, not %d", x.Len(), len(twin))
				}
				q := vector.Draw(t, "query")
				k := rapid.IntRange(1, 10).Draw(t, "k")
				var filter func(uint64) bool
				if rapid.Bool().Draw(t, "filtered") {
					filter = func(k uint64) bool { return k%3 != 1 }
				}
				own, err := x.own(q)
				if err != nil {
					t.Fatal(err)
				}
				var want []Hit
				for key, v := range twin {
					if filter != nil && !filter(key) {
						continue
					}
					v, err := x.own(v)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, Hit{key, dot(own, v)})
				}
				want = best(want, k)
				exact, err := x.Exact(q, k, filter)
				if err != nil || !slices.Equal(exact, want) {
					t.Fatalf("exact %v, want %v, %v", exact, want, err)
				}
				got, err := x.Search(q, k, Options{Candidates: 1000, Filter: filter})
				if err != nil || len(got) != len(want) {
					t.Fatalf("%d hits, want %d: %v", len(got), len(want), err)
				}
				for _, h := range got {
					if v, ok := twin[h.Key]; !ok || filter != nil && !filter(h.Key) {
						t.Fatalf("found %v, which isn't there", h)
					} else if v, err = x.own(v); err != nil || dot(own, v) != h.Score {
						t.Fatalf("score of %v", h)
					}
				}
			},
		})
	})
}

// Searches go on while vectors come, change and go.
func TestConcurrent(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	vs := clustered(r, 1200, 8, 12, 0.5)
	x := build(t, Config{Dim: 8, Metric: Cosine}, vs[:400])
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				hits, err := x.Search(vs[(i*7+w)%len(vs)], 10, Options{})
				if err != nil || len(hits) != 10 {
					t.Errorf("%d hits, %v", len(hits), err)
					return
				}
				seen := map[uint64]bool{}
				for _, h := range hits {
					if seen[h.Key] {
						t.Errorf("key %d twice", h.Key)
					}
					seen[h.Key] = true
				}
			}
		})
	}
	for i := 400; i < 1200; i += 50 {
		keys := seq(50)
		for j := range keys {
			keys[j] += uint64(i)
			if j%3 == 0 {
				keys[j] %= 400 // replaces
			}
		}
		if err := x.AddBatch(keys, vs[i:i+50]); err != nil {
			t.Fatal(err)
		}
		x.Remove(uint64(i%350), uint64(i-20))
	}
	close(done)
	wg.Wait()
}

func TestCorruptSnapshot(t *testing.T) {
	x := build(t, Config{Dim: 3}, clustered(rand.New(rand.NewPCG(7, 8)), 40, 3, 4, 1))
	x.Remove(3)
	var b bytes.Buffer
	if err := x.Save(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	y, err := Load(bytes.NewReader(whole), nil)
	if err != nil || y.Len() != 39 {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	for i := range whole {
		for _, cut := range [][]byte{whole[:i], append(append(bytes.Clone(whole[:i]), whole[i]^0x40), whole[i+1:]...)} {
			if _, err := Load(bytes.NewReader(cut), nil); !errors.As(err, &corrupt) {
				t.Fatalf("byte %d of %d: %v", i, len(whole), err)
			}
		}
	}
	if _, err := Load(bytes.NewReader(append(bytes.Clone(whole), 0)), nil); !errors.As(err, &corrupt) {
		t.Errorf("%v", err)
	}
}

func FuzzLoad(f *testing.F) {
	x := build(f, Config{Dim: 2, M: 2}, clustered(rand.New(rand.NewPCG(9, 1)), 6, 2, 2, 1))
	var b bytes.Buffer
	if err := x.Save(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := Load(bytes.NewReader(raw), nil)
		var corrupt *CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			t.Fatalf("%v", err)
		}
		if err == nil && x.Dim() < 100 {
			if _, err := x.Search(make([]float32, x.Dim()), 3, Options{}); err != nil && !errors.Is(err, errNoLength) {
				t.Fatal(err)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	for _, cfg := range []Config{{}, {Dim: -1}, {Dim: 1 << 20}, {Dim: 2, M: 1}, {Dim: 2, M: 1000}, {Dim: 2, Build: -1}, {Dim: 2, Metric: 9}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v", cfg)
		}
	}
	x, err := New(Config{Dim: 2, Metric: Cosine})
	if err != nil {
		t.Fatal(err)
	}
	if hits, err := x.Search([]float32{1, 0}, 3, Options{}); len(hits) > 0 || err != nil {
		t.Errorf("%v %v", hits, err)
	}
	for want, v := range map[error][]float32{errDim: {1}, errNumber: {float32(math.NaN()), 1}, errNoLength: {0, 0}} {
		if err := x.Add(1, v); !errors.Is(err, want) {
			t.Errorf("%v: %v", v, err)
		}
		if _, err := x.Search(v, 1, Options{}); !errors.Is(err, want) {
			t.Errorf("%v: %v", v, err)
		}
	}
	if err := x.AddBatch([]uint64{1, 2}, [][]float32{{1, 0}, {0, float32(math.Inf(1))}}); err == nil || x.Len() != 0 {
		t.Errorf("%v, %d kept", err, x.Len())
	}
	if err := x.AddBatch([]uint64{1}, nil); err == nil {
		t.Error("keys without vectors")
	}
	if hits, err := x.Search([]float32{1, 0}, 0, Options{}); hits != nil || err != nil {
		t.Errorf("%v %v", hits, err)
	}
}

// BenchmarkBuild and BenchmarkSearch take the size from -bench: n=3200, 26000.
func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{3200, 26000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			vs := clustered(rand.New(rand.NewPCG(1, 1)), n, 256, n/20, 0.7)
			b.ResetTimer()
			for b.Loop() {
				build(b, Config{Dim: 256, Metric: Cosine}, vs)
			}
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{1000, 3200, 10000, 26000} {
		vs := clustered(rand.New(rand.NewPCG(1, 1)), n+200, 256, n/20, 0.7)
		queries := vs[n:]
		x := build(b, Config{Dim: 256, Metric: Cosine}, vs[:n])
		b.Run(fmt.Sprintf("by=graph/n=%d", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, err := x.Search(queries[i%len(queries)], 10, Options{}); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.StopTimer()
			b.ReportMetric(recall(b, x, queries, 10, Options{}), "recall@10")
		})
		b.Run(fmt.Sprintf("by=scan/n=%d", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, err := x.Exact(queries[i%len(queries)], 10, nil); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// Vectors that come twice, all go, or go with the entry point among them.
func TestHostileOrder(t *testing.T) {
	vs := clustered(rand.New(rand.NewPCG(11, 1)), 60, 4, 3, 0.5)
	for _, cfg := range []Config{{Dim: 4, M: 8}, {Dim: 4, M: 8, Metric: Cosine}, {Dim: 4, M: 8, Shared: true}} {
		x, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.AddBatch([]uint64{5, 5, 5}, vs[:3]); err != nil || x.Len() != 1 { // the last counts
			t.Fatalf("%d vectors, %v", x.Len(), err)
		}
		if hits, err := x.Search(vs[2], 3, Options{}); err != nil || len(hits) != 1 || hits[0].Key != 5 {
			t.Errorf("%v, %v", hits, err)
		}
		x.Remove(5, 5, 77)
		if hits, err := x.Search(vs[2], 3, Options{}); err != nil || len(hits) != 0 || x.Len() != 0 {
			t.Errorf("of none: %v, %v", hits, err)
		}
		for range 3 { // all go, the entry point too, and all come back
			if err := x.AddBatch(seq(len(vs)), vs); err != nil {
				t.Fatal(err)
			}
			g := x.now.Load()
			x.Remove(g.node(uint32(g.entry.Load())).key)
			if got := recall(t, x, vs[:20], 5, Options{Candidates: 60}); got != 1 {
				t.Errorf("recall without the entry point: %v", got)
			}
			x.Remove(seq(len(vs))...)
			if hits, err := x.Search(vs[0], 3, Options{}); err != nil || len(hits) != 0 {
				t.Errorf("of none: %v, %v", hits, err)
			}
		}
		if cfg.Metric == Inner { // a vector of length 0 is as far from all as it is
			if err := x.Add(1, make([]float32, 4)); err != nil {
				t.Error(err)
			}
			if hits, err := x.Search(vs[0], 3, Options{}); err != nil || len(hits) != 1 || hits[0].Score != 0 {
				t.Errorf("%v, %v", hits, err)
			}
		}
	}
	if _, err := New(Config{Dim: 4, Metric: Cosine, Shared: true}); err == nil {
		t.Error("shared vectors can't be scaled")
	}
}

// A snapshot keeps vectors of the caller's where they are the same.
func TestLoadShares(t *testing.T) {
	vs := clustered(rand.New(rand.NewPCG(12, 1)), 10, 3, 2, 1)
	x := build(t, Config{Dim: 3, Shared: true}, vs)
	var b bytes.Buffer
	if err := x.Save(&b); err != nil {
		t.Fatal(err)
	}
	y, err := Load(&b, func(key uint64) []float32 { return vs[key%9] }) // of the last key another
	if err != nil || y.Config() != x.Config() || !slices.Equal(y.Keys(), seq(10)) || !y.Has(9) || y.Has(10) {
		t.Fatal(err)
	}
	for s := range uint32(10) {
		n := y.now.Load().node(s)
		if shared := &n.vec[0] == &vs[n.key%9][0]; shared != (n.key < 9) || !slices.Equal(n.vec, vs[n.key]) {
			t.Errorf("key %d: shared %v", n.key, shared)
		}
	}
}
