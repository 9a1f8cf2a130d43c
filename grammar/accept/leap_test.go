package accept

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLeap: long strings read at once, in pieces, and byte by byte stop at the
// same byte for the same reason, and lead to the same state.
func TestLeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rules []string
		for _, r := range []string{`"maxLength":100`, `"minLength":150`, `"maxLength":5000`, `"pattern":"^[a-z \\\\]*$"`, `"pattern":"b$"`, `"format":"uri"`, `"not":{"maxLength":200}`, `"pattern":"a{90}"`} {
			if rapid.IntRange(0, 3).Draw(t, "rule") == 0 {
				rules = append(rules, ",{"+r+"}")
			}
		}
		schema := `{"type":["array","object"],"items":{"anyOf":[{"allOf":[{}` + strings.Join(rules, "") + `]},{"enum":["` + strings.Repeat("a", 120) + `"]}]},"additionalProperties":{"maxLength":300}}`
		if rapid.IntRange(0, 4).Draw(t, "unique") == 0 {
			schema = strings.Replace(schema, "{", `{"uniqueItems":true,`, 1)
		}
		part := rapid.SampledFrom([]string{"a", "b", " ", "z", `\n`, `\"`, `\\`, `\u0061`, "é", "http://a/"})
		text := "["
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			text += `"` + strings.Repeat("a", rapid.SampledFrom([]int{0, 63, 64, 89, 90, 100, 101, 120, 149, 150, 300}).Draw(t, "n")) +
				strings.Repeat(part.Draw(t, "more"), rapid.IntRange(0, 130).Draw(t, "times")) + part.Draw(t, "end") + `",`
		}
		text = text[:len(text)-1] + "]"
		if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
			text = text[:rapid.IntRange(0, len(text)).Draw(t, "at")]
		}
		a, b := compileT(t, schema, Options{Formats: true}), compileT(t, schema, Options{Formats: true})
		one := a.NewFollower()
		want := one.Feed([]byte(text))
		for name, cuts := range map[string]func() int{"bytes": func() int { return 1 }, "pieces": func() int { return rapid.IntRange(1, 200).Draw(t, "piece") }} {
			other := b.NewFollower()
			var got error
			for rest := []byte(text); len(rest) > 0 && got == nil; {
				n := min(cuts(), len(rest))
				got = other.Feed(rest[:n])
				rest = rest[n:]
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || one.Path() != other.Path() || one.Done() != other.Done() || got == nil && fmt.Sprint(one.Expected()) != fmt.Sprint(other.Expected()) {
				t.Fatalf("%s\n%s\nat once %v\n%s %v", schema, text, want, name, got)
			}
		}
	})
}

// TestLeapLong: a megabyte in a string that is bounded takes few states.
func TestLeapLong(t *testing.T) {
	a := compileT(t, `{"properties":{"s":{"maxLength":2000000,"minLength":900000}}}`, Options{})
	text := `{"s":"` + strings.Repeat("a quote \\\" ", 100_000) + `"}`
	if err := a.Check([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if a.count > 300 || a.MemoryBytes() > 1<<20 {
		t.Errorf("%d states, %d bytes", a.count, a.MemoryBytes())
	}
	text = `{"s":"` + strings.Repeat("a quote \\\" ", 50_000)
	stop, ok := a.Check([]byte(text + `"}`)).(*StopError)
	if !ok || stop.Offset != len(text) {
		t.Errorf("%+v; want byte %d", stop, len(text))
	}
}
