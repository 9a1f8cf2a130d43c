package prefix

import (
	"slices"
	"testing"
)

// run is a sequence of n ids from a number on.
func run(from, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(from + i)
	}
	return ids
}

// TestSlots: what a slot gives up behind a branch is found again where it was more
// than half of the sequence, and is gone otherwise.
func TestSlots(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slots int
		sent  [][]int32
		want  []int // found of each
	}{
		{"goes on", 1, [][]int32{run(0, 100), run(0, 150), run(0, 300)}, []int{0, 100, 150}},
		{"a short branch loses the tail", 1, [][]int32{run(0, 100), slices.Concat(run(0, 60), run(500, 10)), run(0, 100)}, []int{0, 60, 60}},
		{"a long branch puts it by", 1, [][]int32{run(0, 100), slices.Concat(run(0, 40), run(500, 10)), run(0, 100)}, []int{0, 40, 40}},
		{"and has it back where it loses as much again", 1, [][]int32{run(0, 100), slices.Concat(run(0, 40), run(500, 100)), run(0, 100)}, []int{0, 40, 100}},
		{"one conversation a slot", 2, [][]int32{run(0, 100), run(1000, 100), run(0, 110), run(1000, 110)}, []int{0, 0, 100, 100}},
		{"three on two slots", 2, [][]int32{run(0, 100), run(1000, 100), run(2000, 100), run(0, 110), run(1000, 110), run(2000, 110)}, []int{0, 0, 0, 100, 100, 100}},
	} {
		s := NewSlots(tt.slots, 1000)
		for i, ids := range tt.sent {
			if got := s.Match(ids); got != tt.want[i] {
				t.Errorf("%s: prompt %d finds %d tokens, want %d", tt.name, i, got, tt.want[i])
			}
			s.Free(s.Take(ids))
		}
	}
	s := NewSlots(1, 1000)
	s.Take(run(0, 10))
	if at := s.Take(run(0, 10)); at != -1 || s.Match(run(0, 10)) != 0 {
		t.Errorf("a busy slot took another prompt: %d", at)
	}
}
