package lexical

import (
	"encoding/json"
	"testing"
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
