package store_test

import (
	"slices"
	"testing"
	"time"
)

// reportP99 times find for every iteration by itself and reports the 99th
// percentile.
func reportP99(b *testing.B, find func(i int) bool) {
	b.ReportAllocs()
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if !find(i) {
			b.Fatalf("look-up %d found nothing", i)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100])/1e3, "p99-µs")
}
