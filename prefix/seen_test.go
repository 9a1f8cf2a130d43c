package prefix

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSeen compares with a list of all sequences, and counts the tokens held.
func TestSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roomy := NewSeen(1 << 20)
		tight := NewSeen(rapid.IntRange(1, 40).Draw(t, "max"))
		var all [][]int32
		sequence := rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 12)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			ids := sequence.Draw(t, "ids")
			want := 0
			for _, a := range all {
				want = max(want, common(a, ids))
			}
			if got := roomy.Match(ids); got != want {
				t.Fatalf("%v: %d seen, want %d of %v", ids, got, want, all)
			}
			if got := tight.Match(ids); got > want {
				t.Fatalf("%v: %d seen in little room, more than %d of %v", ids, got, want, all)
			}
			roomy.Add(ids)
			tight.Add(ids)
			if got, want := tight.Match(ids), min(len(ids), tight.max); got != want {
				t.Fatalf("%v: %d seen right after, want %d", ids, got, want)
			}
			for _, s := range []*Seen{roomy, tight} {
				if got := s.root.count(); got != s.size || got > s.max {
					t.Fatalf("%d tokens held, %d counted, %d allowed", got, s.size, s.max)
				}
			}
			all = append(all, ids)
		}
	})
}

func (n *seenNode) count() int {
	sum := len(n.ids)
	for _, c := range n.children {
		sum += c.count()
	}
	return sum
}
