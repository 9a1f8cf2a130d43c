// Package quantile says what the benchmarks mean by a quantile.
package quantile

import "cmp"

// Of is the quantile q of sorted values: the value before which at most a share
// of q lies. With q 1 it is the largest; of no values it is zero.
func Of[T cmp.Ordered](sorted []T, q float64) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
