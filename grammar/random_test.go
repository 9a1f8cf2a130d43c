package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
	"github.com/toolsidecar/sidecar/models/jsontext"
	"pgregory.net/rapid"
)

// randomSchema draws a schema of what narrow writes: bounds, patterns, lists,
// maps, alternatives and references.
func randomSchema(t *rapid.T, depth int) string {
	num := func(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, "n") }
	bounds := func(lo, hi string, most int) string {
		var b strings.Builder
		if num(0, 1) == 1 {
			fmt.Fprintf(&b, `,%q:%d`, lo, num(0, most/2))
		}
		if num(0, 1) == 1 {
			fmt.Fprintf(&b, `,%q:%d`, hi, num(most/2, most))
		}
		return b.String()
	}
	kinds := 7
	if depth > 0 {
		kinds = 13
	}
	sub := func() string { return randomSchema(t, depth-1) }
	switch num(0, kinds-1) {
	case 0:
		return `{"type":"string"` + bounds("minLength", "maxLength", []int{4, 20, 140, 400}[num(0, 3)]) + `}`
	case 1:
		return `{"type":"string","pattern":` + string(jsontext.AppendString(nil, randomPattern(t, 3))) + `}`
	case 2:
		return `{"type":"integer"` + bounds("minimum", "maximum", []int{3, 120, 99999}[num(0, 2)]) + `}`
	case 3:
		return fmt.Sprintf(`{"type":"number","minimum":%d.%d,"maximum":%d.5}`, num(-30, 3), num(0, 99), num(4, 2000))
	case 4:
		return `{"enum":["a","ab","b\"\\",12,true,null,{"k":[1,2]}]}`
	case 5:
		return rapid.SampledFrom([]string{`{"type":["string","null"]}`, `{"type":"boolean"}`, `{"type":"number"}`, `{}`, `{"format":"date-time"}`}).Draw(t, "plain")
	case 6:
		return rapid.SampledFrom([]string{`{"$ref":"#/$defs/a"}`, `{"$ref":"#/$defs/b"}`, `{"$ref":"#"}`}).Draw(t, "ref")
	case 7, 8:
		return `{"type":"array","items":` + sub() + bounds("minItems", "maxItems", []int{2, 6, 20}[num(0, 2)]) + `}`
	case 9:
		return `{"type":"array","prefixItems":[` + sub() + `,` + sub() + `],"items":` + rapid.SampledFrom([]string{`false`, sub()}).Draw(t, "items") + `}`
	case 10:
		return `{"type":"object","additionalProperties":` + sub() + bounds("minProperties", "maxProperties", 5) + `}`
	case 11:
		return `{"anyOf":[` + sub() + `,` + sub() + `]}`
	}
	return randomObject(t, depth)
}

func randomObject(t *rapid.T, depth int) string {
	var props, required []string
	for i := range rapid.IntRange(0, 4).Draw(t, "members") {
		key := fmt.Sprintf("%q", []string{"a", "ab", "b", "key"}[i])
		props = append(props, key+":"+randomSchema(t, depth-1))
		if rapid.IntRange(0, 2).Draw(t, "required") == 0 {
			required = append(required, key)
		}
	}
	return `{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(required, ",") + `]}`
}

func randomPattern(t *rapid.T, depth int) string {
	piece := rapid.SampledFrom([]string{"a", "ab", "[a-c]", "[^b]", ".", `\d`, `"`, `\\`, "é", "[à-ü]", `\n`, "(?i)k", `[\x00-\x1f]`, "[0-9A-Fa-f]"})
	var gen func(depth int) string
	gen = func(depth int) string {
		if depth == 0 {
			return piece.Draw(t, "piece")
		}
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0:
			return gen(depth-1) + gen(depth-1)
		case 1:
			return "(" + gen(depth-1) + "|" + gen(depth-1) + ")"
		case 2:
			return "(" + gen(depth-1) + ")" + rapid.SampledFrom([]string{"*", "+", "?", "{2}", "{0,3}", "{2,5}", "{1,}", "{3,40}"}).Draw(t, "times")
		case 3:
			return piece.Draw(t, "piece") + rapid.SampledFrom([]string{"*", "+", "{2,30}", "{1,200}"}).Draw(t, "times")
		}
		return gen(depth - 1)
	}
	return rapid.SampledFrom([]string{"^", ""}).Draw(t, "start") + gen(depth) + rapid.SampledFrom([]string{"$", ""}).Draw(t, "end")
}

// TestRandomSchemas: on random schemas the automaton agrees with its twin, the
// masks of a small vocabulary with the whole-vocabulary walk, and what random
// decoding writes fits where the tool is exact.
func TestRandomSchemas(t *testing.T) {
	pieces := strings.Fields(`aa ab abc "a "ab" "b ": "," "}} ]} ]] {" ["" [[ 12 34 00 0. .5 1e e- true null tr ull é\" à ü \n \u \u00 00e \\ \\" \" kK Kk 2024- T1 :00 Z" aé éa b", a":a","b":`)
	pieces = append(pieces, strings.Repeat("a", 40), strings.Repeat("ab", 30), `": "`, `", "`, "\n\n", ": ", ", ")
	v, err := token.NewVocabulary(tokentest.Ranks(t, pieces...), 1)
	if err != nil {
		t.Fatal(err)
	}
	compiled, exact := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		schema := strings.TrimSuffix(randomObject(t, 3), "}") + `,"$defs":{"a":` + randomObject(t, 1) + `,"b":` + randomObject(t, 1) + `}}`
		c, err := Judge(Tool{"t", []byte(schema)}, Closed)
		if err != nil {
			t.Skip(err)
		}
		compiled++
		checkTwin(t, c, 4)
		a := automatonOf(t, c)

		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 8))
		twin := slowly(t, a)
		text := tokentest.Walk(t, grammarOf(t, a, v), twin, rng, 40, func(_ *token.Matcher, text []byte, mask []uint64) {
			tokentest.Compare(t, v, schema, text, mask, twin.Mask(v, text, false))
		})
		if len(c.content.reasons) == 0 && text != nil {
			exact++
			if err := c.Check(text); err != nil {
				t.Fatalf("%s: %v: %s", schema, err, text)
			}
		}
	})
	t.Logf("%d schemas, %d of them exact", compiled, exact)
}
