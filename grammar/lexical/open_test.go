package lexical

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOpen reads random texts and asks whether one of the open outcomes can
// still come about.
func TestOpen(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	patterns := []string{
		"a", "ab+c", "[ab]{2}", "a$", "ab?$", "^a|b", "^a|b|ca$", "^ab$", "^(a|bc)$", "^a$|^b$", "^a*$", "^[^a]*$", "^.*$", "(?=a)b", "(?!a)b", `\bab`,
		"a$b", "(a$)*b", "[]", "^", "$", "(a|b)+", "(^a|b$)", "^a", "a.", "[^b]$", `[\ud800]`, "(a$|b)c", "(a|b$)$",
	}
	sure := 0
	for range 600 {
		var preds []Predicate
		what := ""
		for range 1 + rng.IntN(3) {
			var p Predicate
			switch k := rng.IntN(len(patterns) + 2); {
			case k < len(patterns):
				var err error
				if p, err = Pattern(patterns[k]); err != nil {
					t.Fatal(err)
				}
			case k == len(patterns):
				p = OneOf([]string{"a", "abc", "ca"})
			default:
				p, _ = Format("date")
			}
			preds = append(preds, p)
			what += fmt.Sprintf("%q ", p.Key())
		}
		s, err := NewStrings(preds, []string{"ab"}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		open := s.Open()
		if len(open) == 0 {
			continue
		}
		sure++
		for range 12 {
			q, text := s.Start(), ""
			for range rng.IntN(6) {
				c := "abcx0-"[rng.IntN(6)]
				q, text = s.Step(q, c), text+string(c)
			}
			found, exact := s.Reachable(q)
			if exact && !slices.ContainsFunc(found, func(o Outcome) bool { return slices.Contains(open, o) }) {
				t.Fatalf("%s: behind %q none of %x can come about, but %x", what, text, open, found)
			}
		}
	}
	if sure < 100 {
		t.Errorf("of %d only is it known", sure)
	}
}

// TestHopeful compares what bytes that end all hope lead to with what is said of
// it, and the other bytes with Classes.
func TestHopeful(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	sources := []func() Predicate{
		func() Predicate { p, _ := Format("date-time"); return p },
		func() Predicate { p, _ := Format("email"); return p },
		func() Predicate { p, _ := Format("uuid"); return p },
		func() Predicate { p, _ := Pattern("^[a-c]{2,4}-é?$"); return p },
		func() Predicate { p, _ := Pattern("^(?:ab|\\u2028x)+$"); return p },
		func() Predicate { p, _ := Pattern("b[0-9]"); return p },
		func() Predicate { return Length(2, 5) },
		func() Predicate { return OneOf([]string{"ab", "ac\"", "é"}) },
	}
	hopeless := 0
	for range 300 {
		var preds []Predicate
		for range 1 + rng.IntN(2) {
			preds = append(preds, sources[rng.IntN(len(sources))]())
		}
		s, err := NewStrings(preds, []string{"ad"}[:rng.IntN(2)], Limits{})
		if err != nil {
			t.Fatal(err)
		}
		q, text := s.Start(), ""
		for range 10 {
			all, some := s.Classes(q, false), s.Hopeful(q)
			var fits []byte
			for b := range 256 {
				switch {
				case some[b] != 0 && all[b] == 0:
					t.Fatalf("%q: byte %#x doesn't fit, but gives hope", text, b)
				case some[b] == 0 && all[b] != 0:
					hopeless++
					found, exact := s.Reachable(s.Step(q, byte(b)))
					for _, o := range found {
						if !slices.Contains(s.Hopeless(), o) {
							t.Fatalf("%q, then byte %#x: %x, where %x are said to be all", text, b, o, s.Hopeless())
						}
					}
					if !exact {
						t.Logf("%q, then byte %#x: not all is known", text, b)
					}
				case some[b] != 0:
					fits = append(fits, byte(b))
					for c := range b {
						if some[c] == some[b] && s.Step(q, byte(c)) != s.Step(q, byte(b)) {
							t.Fatalf("%q: bytes %#x and %#x lead apart", text, b, c)
						}
					}
				}
			}
			if len(fits) == 0 {
				break
			}
			b := fits[rng.IntN(len(fits))]
			if q, text = s.Step(q, b), text+string([]byte{b}); s.Closed(q) {
				break
			}
		}
	}
	if hopeless == 0 {
		t.Error("no byte ends all hope")
	}
}
