package lexical

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// readsRegex runs the scan over a text, and tells where it failed.
func readsRegex(text string) (ok bool, failed int) {
	s := regexScan()
	state := s.start
	for i, r := range text {
		if what := s.told(state); !what.all && !containsRune(what.runes, r) {
			r = outside
		}
		if state = s.step(state, r); state == hasFailed {
			return false, i
		}
	}
	return s.accept(state), len(text)
}

func containsRune(rs []rune, r rune) bool { return strings.ContainsRune(string(rs), r) }

// TestRegexScan: what is read character by character is what the parser takes,
// and where it stops nothing that goes on is a pattern.
func TestRegexScan(t *testing.T) {
	check := func(t interface{ Errorf(string, ...any) }, text string, more ...string) {
		_, err := parsePattern(text, true)
		ok, failed := readsRegex(text)
		if ok != (err == nil) {
			t.Errorf("%q: scan says %v, parser %v", text, ok, err)
		}
		for _, m := range more {
			if failed < len(text) {
				if _, err := parsePattern(text[:failed+1]+m, true); err == nil {
					t.Errorf("%q is a pattern, but the scan fails after %q", text[:failed+1]+m, text[:failed+1])
				}
			}
		}
	}
	for _, text := range []string{
		"", "a*?", "a**", "^*", `\b+`, "(?=a)*", "(?:a)*", "(?<=a)", "(?<n>a)\\k<n>", `\k<n>(?<n>a)`, `\k<n>`, `\2(a)(b)`, `\3(a)(b)`, `\0`, `\01`, "a{2,1}", "a{,2}", "a{2", "{", "}", "]", "[a-z]",
		"[z-a]", "[a-]", "[-a]", "[a--]", "[--a]", `[\d-z]`, `[\d-]`, `[a-\d]`, "[]", "[^]", "[^^]", `[\uD83D\uDE00-\uD83D\uDE02]`, `[\uD83D\uDE02-\uD83D\uDE00]`, `[\uD83D-\uDE00]`, `[a-\uD83D\uDE00]`,
		`[\uD83D\u0061]`, `[\0-9]`, `[\09]`, `[a-\0]`, `[\0-\0]`, `[\u{1F600}-\u{1F602}]`, `\u{110000}`, `\u{}`, `\u{000000000041}`, `\p{L}`, `\p{Script=Greek}`, `\p{Nope}`, `\p{sc=}`, `\cA`, `\c1`, `\x4`, `\x41`, `\-`,
		`[\-]`, `[\B]`, `[\b]`, "(((a)))", "((a)", "a)", "(?<a>.)(?<a>.)", "(?<1>a)", "(?<a1>a)", "a|*", "(*)", "(?)", "é+", "a{1073741825}", strings.Repeat("(", 499) + strings.Repeat(")", 499),
		strings.Repeat("(", 500) + strings.Repeat(")", 500),
	} {
		check(t, text, "", "]", ")", "}", ">", "a", "1]", "00]", "a)]")
	}
	pieces := []string{
		"a", "b", "é", "*", "+", "?", "{1", "{1,2}", "{2,1}", ",", "}", "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<n", "(?<m>", ">", ")", "[", "[^", "]", "-", "^", "$", ".", "|", "\\", `\d`, `\b`, `\1`, `\2`,
		`\0`, "0", "9", `\k<n>`, `\k<m>`, `\uD83D`, `\uDE00`, `\u{61}`, `\u00`, `\x41`, `\cA`, `\p{L}`, `\p{`, "u", "n", "z", "/", " ",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 9).Draw(t, "text"), "")
		check(t, text, strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 3).Draw(t, "more"), ""))
	})
}
