package grammar

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSpread: schemas of three keys with the keywords that are spread, against
// every object over a few values. Where no reason is given, what is written is
// what fits.
func TestSpread(t *testing.T) {
	values := []string{"", "true", "false", "0", "1", "2", `"x"`, `"xy"`, `["x"]`, `["x", 1]`}
	exact, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		scalar := rapid.SampledFrom([]string{`{"type":"boolean"}`, `{"type":"integer","minimum":0,"maximum":2}`, `{"enum":["x","xy",1]}`, `{"type":"string","maxLength":2}`,
			`{"type":"array","items":{"enum":["x",1]},"maxItems":2}`, `{"type":["boolean","integer"],"maximum":2,"minimum":-1}`})
		key := rapid.SampledFrom([]string{"a", "b", "c"})
		var clause func(depth int) string
		value := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{`{"const":true}`, `{"const":1}`, `{"enum":["x",0]}`, `{"minimum":1}`, `{"exclusiveMaximum":1}`, `{"type":"string"}`, `{"type":["integer","null"]}`,
				`{"maxLength":1}`, `{"minItems":2}`, `{"multipleOf":2}`, `{"contains":{"const":1}}`, `{"items":{"type":"string"}}`, `{"uniqueItems":true}`, `false`, `true`,
				`{"not":{"type":"boolean"}}`, `{"anyOf":[{"const":1},{"type":"string"}]}`, `{"not":{"multipleOf":2}}`, `{"if":{"type":"integer"},"then":{"minimum":1}}`}).Draw(t, "value")
		})
		clause = func(depth int) string {
			if depth == 0 {
				switch rapid.IntRange(0, 2).Draw(t, "leaf") {
				case 0:
					return fmt.Sprintf(`{"required":[%q]}`, key.Draw(t, "k"))
				case 1:
					return fmt.Sprintf(`{"properties":{%q:%s}}`, key.Draw(t, "k"), value.Draw(t, "v"))
				}
				return fmt.Sprintf(`{"required":[%q],"properties":{%q:%s}}`, key.Draw(t, "k"), key.Draw(t, "l"), value.Draw(t, "v"))
			}
			sub := func() string { return clause(depth - 1) }
			switch rapid.IntRange(0, 9).Draw(t, "word") {
			case 0:
				return `{"not":` + sub() + `}`
			case 1:
				return `{"if":` + sub() + `,"then":` + sub() + `,"else":` + sub() + `}`
			case 2:
				return `{"if":` + sub() + `,"then":` + sub() + `}`
			case 3:
				return `{"oneOf":[` + sub() + `,` + sub() + `]}`
			case 4:
				return `{"anyOf":[` + sub() + `,` + sub() + `]}`
			case 5:
				return `{"allOf":[` + sub() + `,` + sub() + `]}`
			case 6:
				return fmt.Sprintf(`{"dependentRequired":{%q:[%q]}}`, key.Draw(t, "k"), key.Draw(t, "l"))
			case 7:
				return fmt.Sprintf(`{"dependentSchemas":{%q:%s}}`, key.Draw(t, "k"), sub())
			case 8:
				return fmt.Sprintf(`{"minProperties":%d}`, rapid.IntRange(0, 3).Draw(t, "n"))
			}
			return fmt.Sprintf(`{"maxProperties":%d}`, rapid.IntRange(0, 3).Draw(t, "n"))
		}
		shut := rapid.SampledFrom([]string{`"additionalProperties":false`, `"unevaluatedProperties":false`, `"description":"open"`}).Draw(t, "shut")
		schema := fmt.Sprintf(`{"type":"object","properties":{"a":%s,"b":%s,"c":%s},"allOf":[%s],%s}`, scalar.Draw(t, "a"), scalar.Draw(t, "b"), scalar.Draw(t, "c"), clause(rapid.IntRange(0, 2).Draw(t, "depth")), shut)
		c, err := Judge(Tool{Name: "t", Schema: []byte(schema)}, Closed)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		all++
		if len(c.content.reasons) > 0 || c.content.barren != nil {
			return
		}
		exact++
		a, err := c.Automaton()
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		for i := range len(values) * len(values) * len(values) {
			var members []string
			for j, k := range []string{"a", "b", "c"} {
				if v := values[i/[]int{1, len(values), len(values) * len(values)}[j]%len(values)]; v != "" {
					members = append(members, fmt.Sprintf("%q: %s", k, v))
				}
			}
			text := "{" + strings.Join(members, ", ") + "}"
			if got, want := accepts(a, text), c.Check([]byte(text)) == nil; got != want {
				t.Fatalf("%s: %s: written %v, fits %v", schema, text, got, want)
			}
		}
	})
	if exact < all/2 {
		t.Errorf("%d of %d schemas were written exactly", exact, all)
	}
	t.Logf("%d of %d schemas were written exactly", exact, all)
}
