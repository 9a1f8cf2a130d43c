package retrieval

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// benchTools returns n tools: those of the merged set, then of the large one,
// copies with other names where there are not enough.
func benchTools(b testing.TB, n int) []Tool {
	tools := setTools(b, "merged")
	if n > len(tools) {
		tools = append(tools, setTools(b, "aws-ops")...)
	}
	for i, have := 0, len(tools); len(tools) < n; i++ {
		t := tools[i%have]
		t.Name = fmt.Sprintf("%s_copy%d", t.Name, i/have)
		tools = append(tools, t)
	}
	return tools[:n]
}

// heap returns the live bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkNewIndex(b *testing.B) {
	for _, n := range []int{320, 3200, 32000, 100000} {
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			tools := benchTools(b, n)
			before := heap()
			b.ReportAllocs()
			var ix *Index
			for b.Loop() {
				var err error
				if ix, err = NewIndex(tools, Config{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(ix.Bytes())/1e6, "MB-estimated")
			b.ReportMetric(float64(heap()-before)/1e6, "MB-held")
			runtime.KeepAlive(ix)
			b.ReportMetric(float64(len(ix.post)), "postings")
		})
	}
}

// BenchmarkSearch runs the merged set's queries, segment and all, and only the
// search.
func BenchmarkSearch(b *testing.B) {
	msgs := setQueries(b, "merged")
	for _, n := range []int{320, 3200, 32000, 100000} {
		ix, err := NewIndex(benchTools(b, n), Config{})
		if err != nil {
			b.Fatal(err)
		}
		queries := make([]Query, len(msgs))
		for i, m := range msgs {
			queries[i] = ix.Segment(m)
		}
		b.Run(fmt.Sprintf("tools=%d/k=8", n), func(b *testing.B) {
			b.ReportAllocs()
			var hits []Hit
			times := make([]time.Duration, 0, 1<<20)
			i := 0
			for b.Loop() {
				start := time.Now()
				hits = ix.AppendSearch(hits[:0], queries[i%len(queries)], 8)
				if len(times) < cap(times) {
					times = append(times, time.Since(start))
				}
				i++
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
			b.ReportMetric(float64(times[len(times)*99/100]), "p99-ns")
		})
	}
}

func BenchmarkSegment(b *testing.B) {
	ix, err := NewIndex(benchTools(b, 3200), Config{})
	if err != nil {
		b.Fatal(err)
	}
	msgs := setQueries(b, "merged")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		ix.Segment(msgs[i%len(msgs)])
		i++
	}
}
