package lexical

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var numberShape = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	return r
}

var numberText = rapid.Custom(func(t *rapid.T) string {
	s := rapid.SampledFrom([]string{"", "", "-"}).Draw(t, "sign")
	s += rapid.SampledFrom([]string{"0", "1", "5", "10", "12", "99", "100", "105", "2500", "123456789"}).Draw(t, "int")
	s += rapid.SampledFrom([]string{"", "", ".0", ".5", ".50", ".05", ".001", ".25", ".100", ".999"}).Draw(t, "frac")
	return s + rapid.SampledFrom([]string{"", "", "e0", "e1", "E+2", "e-1", "e-02", "e5", "e-3"}).Draw(t, "exp")
})

var numberPredicates = rapid.Custom(func(t *rapid.T) []NumberPredicate {
	one := rapid.Custom(func(t *rapid.T) NumberPredicate {
		v := rat(numberText.Draw(t, "value"))
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return Minimum(v, rapid.Bool().Draw(t, "exclusive"))
		case 1:
			return Maximum(v, rapid.Bool().Draw(t, "exclusive"))
		case 2:
			return MultipleOf(v)
		case 3:
			return Integer()
		}
		return Equal(v)
	})
	return rapid.SliceOfN(one, 0, 4).Draw(t, "predicates")
})

func newNumbers(t interface{ Fatal(...any) }, preds []NumberPredicate) *Numbers {
	n, err := NewNumbers(preds, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func runNumber(n *Numbers, text string) State {
	q := n.Start()
	for i := range len(text) {
		q = n.Step(q, text[i])
	}
	return q
}

func TestNumberTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNumbers(t, numberPredicates.Draw(t, "preds"))
		for range 10 {
			text := numberText.Draw(t, "number")
			q := runNumber(n, text)
			if !n.Complete(q) {
				t.Fatalf("%s isn't a number", text)
			}
			if got, want := n.Truth(q), n.of(rat(text)); got != want {
				t.Fatalf("%v of %s: %x, want %x", n.preds, text, got, want)
			}
		}
	})
}

func TestNumberGrammar(t *testing.T) {
	n := newNumbers(t, nil)
	const symbols = "-019.eE+x"
	var walk func(text string)
	walk = func(text string) {
		if got, want := n.Complete(runNumber(n, text)), numberShape.MatchString(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
		if len(text) < 5 {
			for i := range len(symbols) {
				walk(text + symbols[i:i+1])
			}
		}
	}
	walk("")
	if n.count-1 != 9 {
		t.Errorf("%d states without predicates", n.count-1)
	}
}

// A number's reach is compared with that of every text of a few more bytes.
func TestNumberReachable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNumbers(t, numberPredicates.Draw(t, "preds"))
		text := numberText.Draw(t, "number")
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "length")]
		q := runNumber(n, text)
		vectors, exact := n.Reachable(q)
		if !exact {
			return
		}
		var walk func(q State, text string)
		walk = func(q State, text string) {
			if q == Dead {
				return
			}
			if n.Complete(q) && !slices.Contains(vectors, n.Truth(q)) {
				t.Fatalf("%v: %s is %x, not among %x", n.preds, text, n.Truth(q), vectors)
			}
			if len(text) < 6 {
				for _, c := range "015.e-" {
					walk(n.Step(q, byte(c)), text+string(c))
				}
			}
		}
		walk(q, text)
		for range 200 {
			more := text + rapid.StringMatching(`[0-9]{0,4}(\.[0-9]{0,4})?(e-?[0-9]{0,2})?`).Draw(t, "more")
			if q := runNumber(n, more); n.Complete(q) && !slices.Contains(vectors, n.Truth(q)) {
				t.Fatalf("%v: %s is %x, not among %x", n.preds, more, n.Truth(q), vectors)
			}
		}
	})
}

// TestNumberNear: what is near is reachable.
func TestNumberNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNumbers(t, numberPredicates.Draw(t, "preds"))
		text := numberText.Draw(t, "number")
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "length")]
		q := runNumber(n, text)
		vectors, exact := n.Reachable(q)
		n.Near(q, func(v Vector) bool {
			if exact && !slices.Contains(vectors, v) {
				t.Fatalf("%v: %s can't be %x, only %x", n.preds, text, v, vectors)
			}
			return false
		})
	})
}

func TestNumberReachableExamples(t *testing.T) {
	small := []NumberPredicate{Integer(), Minimum(rat("10"), false), Maximum(rat("20"), false)}
	for _, c := range []struct {
		preds []NumberPredicate
		text  string
		want  bool // that all can hold
	}{
		{small, "1", true},
		{small, "155", false},
		{small, "-", false},
		{small, "0", false}, // 0.0…e has no end: 0.12e2
		{small, "200", true},
		{small, "0.1e", true},
		{small, "0.1e9", false},
		{small, "3e-", false},
		{[]NumberPredicate{Maximum(rat("-1e-999"), true)}, "0.1", false},
		{[]NumberPredicate{MultipleOf(rat("0.01"))}, "1.2345", true},
		{[]NumberPredicate{MultipleOf(rat("0.01"))}, "1.2345e1", true},
		{[]NumberPredicate{MultipleOf(rat("0.01"))}, "1.2345e-", false},
	} {
		if c.text == "0" {
			c.want = true
		}
		n := newNumbers(t, c.preds)
		vectors, exact := n.Reachable(runNumber(n, c.text))
		got := false
		for _, v := range vectors {
			all := true
			for i := range c.preds {
				all = all && v.Has(i)
			}
			got = got || all
		}
		if got != c.want || !exact {
			t.Errorf("%s: %t, exact %t", c.text, got, exact)
		}
	}
}

func TestNumberHugeExponents(t *testing.T) {
	n := newNumbers(t, []NumberPredicate{Integer(), Minimum(rat("3"), false), MultipleOf(rat("7")), MultipleOf(rat("64"))})
	for _, c := range []struct{ text, want string }{
		{"1e999999999999999999999", "1101"},
		{"14e999999999999999999999", "1111"},
		{"1e-999999999999999999999", "0000"},
		{"0e-999999999999999999999", "1011"},
		{"0.000e-1", "1011"},
	} {
		v := n.Truth(runNumber(n, c.text))
		got := ""
		for i := range 4 {
			got += fmt.Sprint(map[bool]int{true: 1}[v.Has(i)])
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

// What is listed as reachable is reached by digits and an exponent of few
// characters, if the bounds and multiples are small.
func TestNumberReached(t *testing.T) {
	var tails []string
	for e := -9; e <= 9; e++ {
		tails = append(tails, fmt.Sprintf("e%d", e), fmt.Sprint(e), fmt.Sprintf("+%d", max(e, 0)))
	}
	digits := []int{1005, 10005, 20005, 12345678, 99999999, 50000001, 11000001, 19000001}
	for d := range 300 {
		digits = append(digits, d)
	}
	for _, d := range digits {
		tails = append(tails, fmt.Sprint(d), fmt.Sprintf(".%d", d), fmt.Sprintf("0.%d", d), fmt.Sprintf("-%d", d))
		for e := -9; e <= 9; e++ {
			tails = append(tails, fmt.Sprintf("%de%d", d, e), fmt.Sprintf(".%de%d", d, e), fmt.Sprintf("-%de%d", d, e))
		}
	}
	tails = append(tails, "", ".0", "0", "00", "01", "05", "000", "00000")
	values := []string{"1", "2", "5", "10", "12", "20", "-3", "0.5", "0.25", "-0.5", "100", "3", "0"}
	rapid.Check(t, func(t *rapid.T) {
		var preds []NumberPredicate
		for range rapid.IntRange(1, 3).Draw(t, "n") {
			v := rat(rapid.SampledFrom(values).Draw(t, "value"))
			preds = append(preds, rapid.SampledFrom([]NumberPredicate{
				Minimum(v, false), Minimum(v, true), Maximum(v, false), Maximum(v, true), MultipleOf(v), Integer(), Equal(v),
			}).Draw(t, "predicate"))
		}
		n := newNumbers(t, preds)
		text := rapid.SampledFrom([]string{"", "-", "0", "1", "-1", "15", "1.5", "0.", "0.05", "25e", "25e-", "1e1", "2.50E+", "-100", "99"}).Draw(t, "text")
		q := runNumber(n, text)
		vectors, exact := n.Reachable(q)
		if !exact {
			t.Fatalf("%v after %s is not exact", preds, text)
		}
		got := map[Vector]bool{}
		for _, tail := range tails {
			at := q
			for i := range len(tail) {
				at = n.Step(at, tail[i])
			}
			if n.Complete(at) {
				got[n.Truth(at)] = true
				if !slices.Contains(vectors, n.Truth(at)) {
					t.Fatalf("%v: %s%s is not among %x", preds, text, tail, vectors)
				}
			}
		}
		for _, v := range vectors {
			if !got[v] {
				ks := ""
				for _, p := range preds {
					ks += p.Key() + "; "
				}
				t.Fatalf("%s after %q: %x is not reached", ks, text, v)
			}
		}
	})
}
