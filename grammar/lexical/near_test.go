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
			// What was once wanted doesn't change what is near elsewhere.
			wanted := rapid.IntRange(0, 5).Draw(t, "wanted")
			s.Near(q, func(Outcome) bool { wanted--; return wanted == 0 })
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
	if found, _ := s.Near(s.Start(), func(o Outcome) bool { return o.Has(0) }); !found {
		t.Error("no date with time is near")
	}
}

// TestRun: whichever characters of a run come, the state is the same.
func TestRun(t *testing.T) {
	var preds []Predicate
	for _, src := range []string{"^[a-zA-Z0-9]{2,20}$", "^([a-z0-9.]{1,9}-)+[A-Z]{3}$", "[^0-9]{3}x", "^[\\x20-\\x7e\\u{80}-\\u{10ffff}]{0,5}$"} {
		p, err := Pattern(src)
		if err != nil {
			t.Fatal(err)
		}
		preds = append(preds, p)
	}
	for _, name := range []string{"email", "hostname", "uri"} {
		p, _ := Format(name)
		preds = append(preds, p)
	}
	preds = append(preds, Length(3, 7))
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom(preds), 1, 2).Draw(t, "predicates")
		s, err := NewStrings(some, nil, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		q := s.Start()
		for _, c := range []byte(rapid.StringMatching(`[ab0x@.:/-]{0,5}`).Draw(t, "text")) {
			q = s.Step(q, c)
		}
		r, ok := s.Run(q, 30)
		if !ok {
			return
		}
		runs++
		var chars []string
		for c := range 0x80 {
			if r.ASCII[c>>6]>>(c&63)&1 == 1 {
				chars = append(chars, string(rune(c)))
			}
		}
		if r.Others {
			chars = append(chars, "é", "語", "\U0001F600")
		}
		for range 30 {
			next := State(0)
			for i, c := range chars {
				to := q
				for _, b := range []byte(c) {
					to = s.Step(to, b)
				}
				if i > 0 && to != next || to <= Lost {
					t.Fatalf("%q leads elsewhere than %q", c, chars[0])
				}
				next = to
			}
			q = next
		}
	})
	if runs == 0 {
		t.Error("no state stands within a run")
	}
}
