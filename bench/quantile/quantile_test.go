package quantile

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOf(t *testing.T) {
	if got := Of([]int(nil), .5); got != 0 {
		t.Errorf("of none %d", got)
	}
	for _, tt := range []struct {
		n       int
		q       float64
		want    int
		comment string
	}{{1, .5, 0, "one"}, {2, .5, 1, "the upper of two"}, {3, .5, 1, "the middle"}, {100, .99, 99, "the last of a hundred"}, {1000, .99, 990, ""}, {10, 0, 0, "the least"}, {10, 1, 9, "the most"}} {
		values := make([]int, tt.n)
		for i := range values {
			values[i] = i
		}
		if got := Of(values, tt.q); got != tt.want {
			t.Errorf("%g of %d: %d, want %d: %s", tt.q, tt.n, got, tt.want, tt.comment)
		}
	}
}

// TestShare: at most a share of q is below, and at least that much isn't above.
func TestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		slices.Sort(values)
		v := Of(values, q)
		below, upTo := 0, 0
		for _, x := range values {
			if x < v {
				below++
			}
			if x <= v {
				upTo++
			}
		}
		if n := q * float64(len(values)); float64(below) > n || float64(upTo) < n {
			t.Fatalf("%g of %v is %d", q, values, v)
		}
	})
}
