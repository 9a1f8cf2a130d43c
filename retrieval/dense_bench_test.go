package retrieval

import (
	"fmt"
	"math/rand"
	"testing"
)

// BenchmarkScan is the exact scan alone, over random rows.
func BenchmarkScan(b *testing.B) {
	for _, n := range []int{3200, 32000, 100000} {
		b.Run(fmt.Sprintf("tools=%d/dim=256", n), func(b *testing.B) {
			r := rand.New(rand.NewSource(1))
			d := &dense{space: &Space{Dim: 256}, rows: make([]float32, n*256), scale: make([]float32, n)}
			for i := range d.rows {
				d.rows[i] = float32(r.Intn(255) - 127)
			}
			query, out := d.rows[:256], make([]float32, n)
			for b.Loop() {
				d.scan(out, query, 1)
			}
		})
	}
}
