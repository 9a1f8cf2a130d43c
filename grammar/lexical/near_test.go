package lexical

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNear: what Near gives is reachable, and it is all that is where Reachable
// knows all and there is little of it.
func TestNear(t *testing.T) {
	var preds []Predicate
	for _, src := range []string{"^a+b?$", "^[0-9]{3}", "x|é"} {
		p, err := Pattern(src)
		if err != nil {
			t.Fatal(err)
		}
		preds = append(preds, p)
	}
	date, _ := Format("date-time")
	preds = append(preds, Length(2, 5), date)
	rapid.Check(t, func(t *rapid.T) {
		var some []Predicate
		for _, p := range preds {
			if rapid.Bool().Draw(t, "in") {
				some = append(some, p)
			}
		}
		s, err := NewStrings(some, []string{"ab", "x"}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		q := s.Start()
		for _, c := range []byte(rapid.StringMatching(`[ab0x]{0,4}(\\u0?)?`).Draw(t, "text")) {
			q = s.Step(q, c)
		}
		all, exact := s.Reachable(q)
		n := 0
		s.Near(q, func(o Outcome) bool {
			n++
			if exact && !slices.Contains(all, o) {
				t.Fatalf("%v is near but not reachable", o)
			}
			return false
		})
		if exact && len(all) > 0 && n == 0 {
			t.Fatalf("nothing is near of %v", all)
		}
	})
	s, err := NewStrings([]Predicate{date}, nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Near(s.Start(), func(o Outcome) bool { return o.Has(0) }) {
		t.Error("no date with time is near")
	}
}
