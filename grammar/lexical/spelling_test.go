package lexical

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// read runs a JSON string, quotes and all.
func read(s *Strings, text string) State {
	q := s.Start()
	for i := 1; i < len(text); i++ {
		q = s.Step(q, text[i])
	}
	return q
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func matches(t testing.TB, pattern, text string) bool {
	t.Helper()
	p, err := Pattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return holds(t, p, text)
}

func holds(t testing.TB, p Predicate, text string) bool {
	t.Helper()
	s, err := NewStrings([]Predicate{p}, nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	q := read(s, quote(text))
	if !s.Closed(q) {
		t.Fatalf("%s on %q: state %d: %v", p.Key(), text, q, s.Limit())
	}
	return s.Truth(q).Has(0)
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string
	}{
		{`foo`, "a foo", "fo"},
		{`^foo$`, "foo", "foo\n"},
		{`^(?!foo)`, "bar", "food"},
		{`^(?=.*x)(?=.*y)[xyz]+$`, "zyx", "zyz"},
		{`a|^b$|c$`, "b", "bc "},
		{`^(a+)+$`, "aaaa", "aaab"},
		{`\bfoo\b`, "a foo.", "afoo"},
		{`(?<=a)b`, "ab", "cb"},
		{`(?<!a)b`, "b", "ab"},
		{`^(?:(?!ab).)*$`, "acb", "aab"},
		{`^(?:(?=a)|b){2}a$`, "ba", "bb"},
		{`^\u{1F600}\uD83D\uDE00$`, "😀😀", "😀"},
		{`^.{0,100000}x`, "ax", "a"},
		{`^[a-z]{2,1000}$`, "ab", "a"},
		{`^(?:[a-z]{2}){2,3}$`, "abcd", "abcde"},
		{`^\p{L}+$`, "é", "1"},
		{`^[^]$`, "\n", ""},
		{`^.$`, "a", "\u2028"},
		{`^(?:a|(b(?=c)|c))*$`, "abcca", "abba"},
	} {
		if !matches(t, c.pattern, c.yes) {
			t.Errorf("%s does not match %q", c.pattern, c.yes)
		}
		if matches(t, c.pattern, c.no) {
			t.Errorf("%s matches %q", c.pattern, c.no)
		}
	}
}

// spell writes text as a JSON string in a random legal spelling.
func spell(t *rapid.T, text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", r)
		switch how := rapid.IntRange(0, 3).Draw(t, "how"); {
		case how == 0 && short >= 0:
			b.WriteString(`\` + `"\/bfnrt`[short:short+1])
		case how > 1 && r >= 0x20 && r != '"' && r != '\\':
			b.WriteRune(r)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04X`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

var stringPredicates = rapid.Custom(func(t *rapid.T) []Predicate {
	one := rapid.Custom(func(t *rapid.T) Predicate {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			lo := rapid.IntRange(0, 4).Draw(t, "min")
			return Length(lo, rapid.IntRange(-1, 5).Draw(t, "max"))
		case 1:
			return OneOf(rapid.SliceOfN(patternTexts, 0, 4).Draw(t, "values"))
		case 2:
			p, _ := Format(rapid.SampledFrom([]string{"date", "ipv4", "json-pointer", "uri-reference", "hostname", "regex"}).Draw(t, "format"))
			return p
		}
		p, err := Pattern(randomPattern(t, rapid.IntRange(0, 4).Draw(t, "depth")))
		if err != nil {
			return Length(0, 3)
		}
		return p
	})
	return rapid.SliceOfN(one, 0, 4).Draw(t, "predicates")
})

// twin decides a decoded text predicate by predicate, each on a machine of its
// own where it isn't trivial.
func twin(t testing.TB, p Predicate, text string) bool {
	if p.get().values != nil {
		return slices.Contains(p.get().values, text)
	}
	if n := utf8.RuneCountInString(text); n < p.get().min || p.get().max >= 0 && n > p.get().max {
		return false
	}
	return p.get().prog == nil && p.get().scan == nil || holds(t, p, text)
}

func TestSpelling(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		preds := stringPredicates.Draw(r, "preds")
		names := rapid.SliceOfN(patternTexts, 0, 3).Draw(r, "names")
		s, err := NewStrings(preds, names, Limits{})
		if err != nil {
			r.Fatal(err)
		}
		for range 4 {
			text := patternTexts.Draw(r, "text")
			spelled := spell(r, text)
			var decoded string
			if err := json.Unmarshal([]byte(spelled), &decoded); err != nil || decoded != text {
				r.Fatalf("%s is no spelling of %q: %v", spelled, text, err)
			}
			q := read(s, spelled)
			if !s.Closed(q) {
				r.Fatalf("%s: %d, %v", spelled, q, s.Limit())
			}
			for i, p := range preds {
				if got, want := s.Truth(q).Has(i), twin(t, p, text); got != want {
					r.Fatalf("%s of %s: %t", p.Key(), spelled, got)
				}
			}
			if got, want := s.Label(q), slices.Index(names, text); got != want {
				r.Fatalf("%s is name %d, want %d", spelled, got, want)
			}
		}
	})
}

func keys(preds []Predicate) string {
	var ks []string
	for _, p := range preds {
		ks = append(ks, p.Key())
	}
	return strings.Join(ks, "; ")
}

// What a state can come to is compared with what every text of a few more
// characters comes to, both ways.
func TestReachable(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		preds := stringPredicates.Draw(r, "preds")
		names := rapid.SliceOfN(patternTexts, 0, 3).Draw(r, "names")
		s, err := NewStrings(preds, names, Limits{})
		if err != nil {
			r.Fatal(err)
		}
		spelled := spell(r, patternTexts.Draw(r, "text"))
		spelled = spelled[:rapid.IntRange(1, len(spelled)).Draw(r, "cut")]
		q := read(s, spelled)
		outcomes, exact := s.Reachable(q)
		lo, hi, free := s.Free(q)
		found := map[Outcome]bool{}
		for _, o := range outcomes {
			found[o] = true
		}
		// Every state that these can lead to, if they are not too many.
		got := map[Outcome]bool{}
		queue, seen := []State{q}, map[State]bool{q: true}
		for i := 0; i < len(queue) && len(queue) < 3000; i++ {
			at := queue[i]
			if s.Closed(at) {
				o := Outcome{s.Truth(at), s.Label(at)}
				got[o] = true
				if exact && !found[o] {
					r.Fatalf("%s: %x, label %d, is not among %v", spelled, o.Vector, o.Label, outcomes)
				}
			}
			for _, c := range []string{`"`, "a", "b", "c", "-", "1", " ", "_", "/", "é", "😀", `\n`, `\ud83d`, `\ude00`, `\ude01`, `\u2028`, "0", "d", "8", "u", "e", "\\", "\x80", "\xa8", "\xa9", "\x9f\x98\x80"} {
				n := at
				for i := range len(c) {
					n = s.Step(n, c[i])
				}
				if n != Dead && !seen[n] {
					seen[n] = true
					queue = append(queue, n)
				}
			}
		}
		// The alphabet has a character of each class of the patterns drawn,
		// but not each digit of its escape.
		if len(queue) < 3000 && plainAlive(s, q) && !strings.Contains(keys(preds), "format") {
			for _, o := range outcomes {
				if !got[o] {
					r.Fatalf("%s: %x, label %d, is not reached from %s; %v is", keys(preds), o.Vector, o.Label, spelled, got)
				}
			}
		}
		if !exact {
			return
		}
		if free {
			for _, o := range outcomes {
				if o.Label >= 0 {
					r.Fatalf("free, and may be name %d", o.Label)
				}
			}
			if n := lo; hi < 0 || n <= hi {
				end := q
				for range n {
					end = s.Step(end, 'a')
				}
				end = s.Step(end, '"')
				for _, o := range outcomes {
					for i, p := range preds {
						if o.Has(i) && !s.Truth(end).Has(i) && (p.get().max < 0 || p.get().max >= n) {
							r.Fatalf("%s is not met after %d", p.Key(), n)
						}
					}
				}
			}
		}
	})
}

// A machine that has looked ahead from other states says the same as one that
// has not.
func TestReachableAgain(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		preds := append(stringPredicates.Draw(r, "preds"), Length(2, rapid.IntRange(2, 9).Draw(r, "max")))
		fresh := func() *Strings {
			s, err := NewStrings(preds, nil, Limits{})
			if err != nil {
				r.Fatal(err)
			}
			return s
		}
		shared := fresh()
		spelled := spell(r, strings.Repeat(rapid.SampledFrom([]string{"a", "ab", "-"}).Draw(r, "unit"), rapid.IntRange(0, 6).Draw(r, "times"))+patternTexts.Draw(r, "text"))
		for cut := 1; cut < len(spelled); cut++ {
			a, exactly := shared.Reachable(read(shared, spelled[:cut]))
			own := fresh()
			b, exact := own.Reachable(read(own, spelled[:cut]))
			if exact != exactly || !slices.Equal(a, b) {
				r.Fatalf("%s after %s: %v, afresh %v", keys(preds), spelled[:cut], a, b)
			}
		}
	})
}

// Of nine characters, what follows b is even in number after "b", odd after
// "ab", though the pattern is in the same state.
func TestReachableParity(t *testing.T) {
	p, err := Pattern(`^a*b(?:[^][^])*$`)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStrings([]Predicate{p, Length(9, 9)}, nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{`"b`: true, `"ab`: false, `"aab`: true} {
		outcomes, exact := s.Reachable(read(s, text))
		got := slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Has(0) && o.Has(1) })
		if got != want || !exact {
			t.Errorf("%s: %t, exact %t", text, got, exact)
		}
	}
}

// plainAlive tells whether a character that needs no escape may come next.
func plainAlive(s *Strings, q State) bool {
	if q <= Lost {
		return false
	}
	b, _ := s.split(q)
	return b.mode == plain || b.mode == high
}
