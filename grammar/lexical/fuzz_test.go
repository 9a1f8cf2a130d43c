package lexical

import (
	"encoding/json"
	"math/big"
	"testing"
	"unicode/utf8"
)

// Any text is a JSON string for the machine if it is one for encoding/json, in
// UTF-8, and its truth is that of its plain spelling.
func FuzzSpelling(f *testing.F) {
	for _, s := range []string{`"a"`, `"\ud83d\ude00"`, `"\ud83d\ud83d\ude00x"`, `"\ude00\u00e9\n"`, `"\ud83dA"`, `"é\/"`, "\"\x80\"", `"\u00g0"`, `"a" `} {
		f.Add(s)
	}
	var preds []Predicate
	for _, src := range []string{`^\p{L}+$`, `\uFFFD`, `^.{2,3}$`, `[\u{10000}-\u{10FFFF}]`, `^😀|\n`} {
		p, err := Pattern(src)
		if err != nil {
			f.Fatal(err)
		}
		preds = append(preds, p)
	}
	preds = append(preds, Length(2, 3), OneOf([]string{"é/", "😀"}))
	s, err := NewStrings(preds, []string{"a", "\uFFFD"}, Limits{Bytes: 1 << 28})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, spelled string) {
		var text string
		ok := len(spelled) > 0 && spelled[0] == '"' && spelled[len(spelled)-1] == '"' && utf8.ValidString(spelled) && json.Unmarshal([]byte(spelled), &text) == nil
		if spelled == "" || spelled[0] != '"' {
			return
		}
		q := read(s, spelled)
		if s.Closed(q) != ok {
			t.Fatalf("%q: %t", spelled, !ok)
		}
		if ok {
			plain := read(s, quote(text))
			if s.Truth(q) != s.Truth(plain) || s.Label(q) != s.Label(plain) {
				t.Fatalf("%q is %x, %q is %x", spelled, s.Truth(q), text, s.Truth(plain))
			}
			if n := utf8.RuneCountInString(text); s.Truth(q).Has(5) != (n == 2 || n == 3) || s.Truth(q).Has(2) && !s.Truth(q).Has(5) {
				t.Fatalf("%q has %d characters", spelled, n)
			}
		}
	})
}

func FuzzPattern(f *testing.F) {
	f.Add(`^(?=.*[A-Z])(?<n>a|b{2,3}?)+\b[^\w\p{Lu}]$`, "aB c")
	f.Add(`(?<!x)\u{1F600}|\cJ\0[^]`, "😀")
	f.Fuzz(func(t *testing.T, src, text string) {
		p, err := Pattern(src)
		if err != nil || len(text) > 200 {
			return
		}
		s, err := NewStrings([]Predicate{p}, nil, Limits{Bytes: 1 << 20})
		if err != nil {
			return
		}
		q := read(s, quote(text))
		if q == Lost {
			return
		}
		if !s.Closed(q) {
			t.Fatalf("%q is no string", text)
		}
		half := read(s, quote(text)[:1+len(quote(text))/2])
		if outcomes, exact := s.Reachable(half); exact {
			for _, o := range outcomes {
				if o == (Outcome{s.Truth(q), -1}) {
					return
				}
			}
			t.Fatalf("%q on %q: %x is not among %v", src, text, s.Truth(q), outcomes)
		}
	})
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0.0e-1", "12.5E+3", "1e99", "00", "1.", "120"} {
		f.Add(s)
	}
	preds := []NumberPredicate{Integer(), MultipleOf(rat("0.25")), Minimum(rat("-12.5"), true), Maximum(rat("1e30"), false), Equal(rat("120"))}
	n, err := NewNumbers(preds, Limits{Bytes: 1 << 28})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q := runNumber(n, text)
		if n.Complete(q) != numberShape.MatchString(text) {
			t.Fatalf("%q: %t", text, n.Complete(q))
		}
		if !n.Complete(q) || len(text) > 12 {
			return
		}
		x, ok := new(big.Rat).SetString(text)
		if ok && n.Truth(q) != n.of(x) {
			t.Fatalf("%q is %x, want %x", text, n.Truth(q), n.of(x))
		}
	})
}
