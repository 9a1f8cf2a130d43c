package retrieval

import "testing"

// TestSplit: no dialogue stands on both sides, and half of them as a log help the
// other half.
func TestSplit(t *testing.T) {
	ix, queries := openSet(t, "api-bank", nil)
	s, err := NewSplit(ix, queries, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Asked)+len(s.log) != len(queries) {
		t.Errorf("%d and %d of %d queries", len(s.Asked), len(s.log), len(queries))
	}
	asked := map[string]bool{}
	for _, q := range s.Asked {
		asked[q.Group] = true
	}
	for _, q := range s.log {
		if q.Group != "" && asked[q.Group] {
			t.Errorf("dialogue %s stands on both sides", q.Group)
		}
	}
	base, _ := s.recall(nil)
	with, _ := s.recall(s.Memory)
	if with.percent() < base.percent()+2 {
		t.Errorf("recall@4 is %.1f, with the memory %.1f", base.percent(), with.percent())
	}
	if u := s.Unlogged(); u.Queries > 0 && u.WithUsage < u.Base-5 {
		t.Errorf("tools never called: %+v", u)
	}
	if _, err := NewSplit(ix, queries[:1], 1); err == nil {
		t.Error("one query is split")
	}
}
