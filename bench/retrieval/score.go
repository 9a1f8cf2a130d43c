package retrieval

import (
	"math"
	"slices"
)

// ranks returns for each step of gold the place, from 1 on, of its first
// alternative among names, or 0.
func ranks(names []string, gold [][]string) []int {
	out := make([]int, len(gold))
	for i, step := range gold {
		out[i] = 1 + slices.IndexFunc(names, func(n string) bool { return slices.Contains(step, n) })
	}
	return out
}

// recall is the share of steps found among the first k, all whether that is
// every one.
func recall(ranks []int, k int) (share float64, all bool) {
	n := 0
	for _, r := range ranks {
		if r > 0 && r <= k {
			n++
		}
	}
	return float64(n) / float64(len(ranks)), n == len(ranks)
}

// reciprocal is 1 ÷ the first place found among ten, or 0.
func reciprocal(ranks []int) float64 {
	first := 0
	for _, r := range ranks {
		if r > 0 && r <= 10 && (first == 0 || r < first) {
			first = r
		}
	}
	if first == 0 {
		return 0
	}
	return 1 / float64(first)
}

// mean collects values of which the mean is asked, in percent to two places.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) { m.sum += x; m.n++ }

func (m *mean) percent() float64 {
	if m.n == 0 {
		return 0
	}
	return math.Round(1e4*m.sum/float64(m.n)) / 100
}
