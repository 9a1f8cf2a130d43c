package lexical

import (
	"strings"

	"pgregory.net/rapid"
)

// randomPattern draws patterns over few characters, so that texts meet them.
func randomPattern(t *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{
			"a", "b", "c", "-", ".", `\d`, `\w`, `\s`, `\W`, `\S`, "[ab]", "[^a]", "[^]", `[\da]`, `\u0061`, `\x62`, "é", `\p{L}`, `\P{L}`, `\u{1F600}`, `[😀b]`, `[a-c\-]`,
			"^", "$", `\b`, `\B`, "", `\/`, `\n`, `\cJ`,
		}).Draw(t, "atom")
	}
	part := func() string { return randomPattern(t, depth-1) }
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1, 2:
		return part() + part()
	case 3:
		return part() + "|" + part()
	case 4, 5:
		q := rapid.SampledFrom([]string{"*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}", "*?", "{0}", "{1,2}?"}).Draw(t, "quantifier")
		return "(?:" + part() + ")" + q
	case 6:
		return "(" + part() + ")"
	case 7:
		return rapid.SampledFrom([]string{"(?=", "(?!"}).Draw(t, "look") + part() + ")"
	case 8:
		inner := part()
		if strings.Contains(inner, "(?=") || strings.Contains(inner, "(?!") {
			return inner
		}
		return rapid.SampledFrom([]string{"(?<=", "(?<!"}).Draw(t, "look") + inner + ")"
	}
	return part()
}

var patternTexts = rapid.Custom(func(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "a", "b", "-", " ", "1", "é", "😀", "\n", "_", "\u2028", "/"}), 0, 7).Draw(t, "text"), "")
})
