package grammar

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestECMA: what is written for regexp/syntax matches what the pattern means.
func TestECMA(t *testing.T) {
	written := 0
	rapid.Check(t, func(t *rapid.T) {
		atoms := []string{"a", "b", "-", "_", " ", ".", `\s`, `\S`, `\d`, `\D`, `\w`, `\W`, `\b`, `\.`, `\-`, `\/`, `\n`, `\v`, `\0`, `\x41`, `\u00e9`, `\u{1F600}`,
			`\cA`, `\p{L}`, `\p{Lu}`, `\P{N}`, `\p{Script=Greek}`, `(?=a)`, "^", "$", "é", "\U0001F600", "\u00a0", "\u2028"}
		var gen func(depth int) string
		gen = func(depth int) string {
			kinds := 3
			if depth == 0 {
				kinds = 1
			}
			switch rapid.IntRange(0, kinds).Draw(t, "kind") {
			case 0:
				return rapid.SampledFrom(atoms).Draw(t, "atom")
			case 1:
				in := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "A-C", "-", "_", "[", ":", ".", `\s`, `\S`, `\w`, `\d`, `\b`, `\]`, `\-`, `\\`, `\u2028`, "é", "^"}), 0, 4).Draw(t, "class")
				return rapid.SampledFrom([]string{"[", "[^"}).Draw(t, "open") + strings.Join(in, "") + "]"
			case 2:
				return rapid.SampledFrom([]string{"(?:", "("}).Draw(t, "group") + gen(depth-1) + rapid.SampledFrom([]string{"|", ""}).Draw(t, "or") + gen(depth-1) + ")" +
					rapid.SampledFrom([]string{"", "?", "*", "+", "{2}", "{1,}", "+?"}).Draw(t, "times")
			}
			return gen(depth-1) + gen(depth-1)
		}
		src := gen(3)
		exact, err := patternMatcher(src)
		if err != nil {
			t.Skip(err)
		}
		plain, err := re2Of(src)
		if err != nil {
			return
		}
		re, err := regexp.Compile(plain)
		if err != nil {
			return
		}
		written++
		for range 20 {
			s := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "A", "B", "1", "-", "_", " ", ".", "[", "]", ":", "/", "\\", "^", "\n", "\v", "\x00", "\x01", "\b", "é", "\u00a0", "\u1680", "\u2028", "\ufeff", "Ω", "\U0001F600"}), 0, 5).Draw(t, "text"), "")
			want, err := exact.Match(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := re.MatchString(s); got != want {
				t.Fatalf("%q as %q: %q: %v, want %v", src, plain, s, got, want)
			}
		}
	})
	if written == 0 {
		t.Error("no pattern was written")
	}
}
