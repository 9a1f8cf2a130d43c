package prefix

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSeen compares with a list of all sequences, and counts the tokens and nodes
// held.
func TestSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roomy := NewSeen(1 << 20)
		tight := NewSeen(rapid.IntRange(1, 40).Draw(t, "max"))
		few := NewSeen(1 << 20)
		few.most = rapid.IntRange(1, 6).Draw(t, "nodes")
		var all [][]int32
		sequence := rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 12)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			ids := sequence.Draw(t, "ids")
			want := 0
			for _, a := range all {
				want = max(want, Common(a, ids))
			}
			if got := roomy.Match(ids); got != want {
				t.Fatalf("%v: %d seen, want %d of %v", ids, got, want, all)
			}
			if got := tight.Match(ids); got > want {
				t.Fatalf("%v: %d seen in little room, more than %d of %v", ids, got, want, all)
			}
			if got := few.Match(ids); got > want {
				t.Fatalf("%v: %d seen in few nodes, more than %d of %v", ids, got, want, all)
			}
			roomy.Add(ids)
			tight.Add(ids)
			few.Add(ids)
			if got, want := tight.Match(ids), min(len(ids), tight.max); got != want {
				t.Fatalf("%v: %d seen right after, want %d", ids, got, want)
			}
			for _, s := range []*Seen{roomy, tight, few} {
				tokens, nodes := s.root.count()
				if tokens != s.size || tokens > s.max {
					t.Fatalf("%d tokens held, %d counted, %d allowed", tokens, s.size, s.max)
				}
				if nodes != s.nodes || nodes > s.most {
					t.Fatalf("%d nodes held, %d counted, %d allowed", nodes, s.nodes, s.most)
				}
			}
			all = append(all, ids)
		}
	})
}

// count is the tokens of n and below it, and the nodes below it.
func (n *seenNode) count() (tokens, nodes int) {
	tokens = len(n.ids)
	for _, c := range n.children {
		t, k := c.count()
		tokens, nodes = tokens+t, nodes+k+1
	}
	return tokens, nodes
}
