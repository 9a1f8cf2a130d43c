package accept

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/alloctest"
)

// hostile schemas, each with a text that fits it ("" if there is none at hand).
func hostile() map[string][2]string {
	all := map[string][2]string{}
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{"d20":{"type":"integer"}`)
	for i := range 20 {
		fmt.Fprintf(&b, `,"d%d":{"oneOf":[{"properties":{"a%d":{"const":0}},"required":["a%d"],"$ref":"#/$defs/d%d"},{"properties":{"a%d":{"const":1}},"required":["a%d"],"$ref":"#/$defs/d%d"}]}`, i, i, i, i+1, i, i, i+1)
	}
	all["a oneOf of 2^20 ways by references"] = [2]string{b.String() + "}}", ""}
	var nest func(n int) string
	nest = func(n int) string {
		if n == 0 {
			return `{"const":1}`
		}
		return `{"oneOf":[` + nest(n-1) + `,` + nest(n-1) + `]}`
	}
	all["a oneOf of 2^14 ways written out"] = [2]string{nest(14), ""}
	all["deep nesting"] = [2]string{strings.Repeat(`{"items":`, 400) + `{}` + strings.Repeat(`}`, 400), `[]`}
	all["deeper nesting"] = [2]string{strings.Repeat(`{"items":`, 100_000) + `{}` + strings.Repeat(`}`, 100_000), ``}
	b.Reset()
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{"d20000":{}`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `,"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1)
	}
	all["a row of references"] = [2]string{b.String() + "}}", ""}
	all["minItems 1e9"] = [2]string{`{"type":"array","minItems":1000000000}`, ""}
	all["minProperties 1e9"] = [2]string{`{"type":"object","minProperties":1000000000}`, ""}
	all["minItems 1e9 of what must be distinct and few"] = [2]string{`{"type":"array","minItems":1000000000,"uniqueItems":true,"items":{"type":"boolean"}}`, ""}
	all["contains 1e9"] = [2]string{`{"type":"array","contains":{"const":1},"minContains":1000000000}`, ""}
	all["maxLength 1e9"] = [2]string{`{"type":"string","maxLength":1000000000,"minLength":3}`, `"abc"`}
	all["a catastrophic pattern"] = [2]string{`{"type":"string","pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"}`, `"abAa"`}
	all["a pattern with many states"] = [2]string{`{"type":"string","pattern":"^[ab]*a[ab]{200}$"}`, ""}
	all["a repeated group"] = [2]string{`{"type":"string","pattern":"^((a{1,100}){1,100}){1,100}$"}`, `"a"`}
	b.Reset()
	b.WriteString(`{"type":"object","properties":{`)
	for i := range 50_000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"property%d":{"type":"string"}`, i)
	}
	all["50k properties"] = [2]string{b.String() + `},"required":["property49999"]}`, `{"property49999":"","property3":"x"}`}
	b.Reset()
	b.WriteString(`{"enum":[`)
	for i := range 50_000 {
		fmt.Fprintf(&b, `%d,"w%d",`, i, i)
	}
	all["an enum of 100k"] = [2]string{b.String() + `null]}`, `"w49999"`}
	all["10 MB"] = [2]string{`{"description":"` + strings.Repeat("x", 10<<20) + `"}`, ""}
	all["anyOf that refers to itself"] = [2]string{`{"anyOf":[{"$ref":"#"},{"type":"string"}]}`, ""}
	all["$ref to itself"] = [2]string{`{"$ref":"#"}`, ""}
	all["unevaluated that refers to itself"] = [2]string{`{"unevaluatedProperties":false,"allOf":[{"anyOf":[{"$ref":"#"},{}]}]}`, ""}
	all["itself within"] = [2]string{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, ""}
	b.Reset()
	b.WriteString(`{"anyOf":[`)
	for i := range 2000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"properties":{"k":{"const":"v%d"},"x%d":{"type":"integer"}},"required":["k","x%d"],"additionalProperties":false}`, i, i, i)
	}
	all["2,000 alternatives"] = [2]string{b.String() + `]}`, `{"k":"v7","x7":1}`}
	b.Reset()
	b.WriteString(`{"allOf":[`)
	for i := range 300 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"oneOf":[{"required":["a%d"]},{"required":["b%d"]},{"not":{"required":["c%d"]}}]}`, i, i, i)
	}
	all["300 oneOf at once"] = [2]string{b.String() + `]}`, `{}`}
	b.Reset()
	b.WriteString(`{"not":{"anyOf":[`)
	for i := range 200 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"patternProperties":{"^a{%d}":{"type":"string"}},"minProperties":1}`, i+1)
	}
	all["200 patterns denied"] = [2]string{b.String() + `]}}`, `{}`}
	for _, n := range []int{200, 2000} {
		for _, k := range []string{"oneOf", "anyOf"} {
			b.Reset()
			fmt.Fprintf(&b, `{"unevaluatedProperties":false,%q:[`, k)
			for i := range n {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, `{"properties":{"k":{"const":"v%d"},"x%d":{"type":"integer"},"o":{"type":"object","properties":{"z":{"const":%d}}}},"required":["k"]}`, i, i, i)
			}
			all[fmt.Sprintf("%s of %d, unevaluated", k, n)] = [2]string{b.String() + `]}`, `{"o":{"z":7},"x7":1,"k":"v7"}`}
		}
	}
	b.Reset()
	b.WriteString(`{"type":"array","uniqueItems":true,"items":{"type":["integer","object"]}}`)
	var items []string
	for i := range 1500 {
		items = append(items, fmt.Sprintf(`%d,{"a":%d}`, i, i))
	}
	all["3,000 unique items"] = [2]string{b.String(), "[" + strings.Join(items, ",") + "]"}
	all["a constant array of 3,000"] = [2]string{`{"const":[` + strings.Join(items, ",") + `]}`, "[" + strings.Join(items, ",") + "]"}
	all["an enum of 1,500 arrays"] = [2]string{`{"enum":[[` + strings.Join(items, "],[") + `]]}`, `[77,{"a":77}]`}
	b.Reset()
	b.WriteString(`{"patternProperties":{`)
	for i := range 300 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"a.*%d":{"type":["string","integer"]}`, i)
	}
	all["300 patterns of keys"] = [2]string{b.String() + `}}`, `{"ab12":1}`}
	b.Reset()
	b.WriteString(`{"dependentSchemas":{`)
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"a%d":{"required":["a%d"]}`, i, i+1)
	}
	all["a chain of 1,000 dependentSchemas"] = [2]string{b.String() + `}}`, ``}
	b.Reset()
	for range 200 {
		b.WriteString(`{"not":{"contains":`)
	}
	all["200 not contains"] = [2]string{b.String() + `true` + strings.Repeat("}}", 200), `[[[]]]`}
	b.Reset()
	b.WriteString(`{"allOf":[`)
	for i := range 60 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"contains":{"multipleOf":%d},"minContains":3},{"anyOf":[{"maxItems":%d},{"contains":{"minimum":%d}}]}`, i+2, i, i)
	}
	all["60 contains with alternatives"] = [2]string{b.String() + `]}`, ``}
	b.Reset()
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{"d9000":{}`)
	for i := range 9000 {
		fmt.Fprintf(&b, `,"d%d":{"allOf":[{"required":["a%d"]},{"$ref":"#/$defs/d%d"}]}`, i, i, i+1)
	}
	all["a row of 9,000 allOf"] = [2]string{b.String() + "}}", ""}
	b.Reset()
	b.WriteString(`{"$id":"http://r/","allOf":[true`)
	for i := range 14 {
		fmt.Fprintf(&b, `,{"$ref":"s%d"}`, i)
	}
	b.WriteString(`],"$defs":{"x":true`)
	for i := range 14 {
		fmt.Fprintf(&b, `,"d%d":{"$id":"s%d","$dynamicAnchor":"n%d","items":{"$dynamicRef":"#n%d"},"properties":{"x":true`, i, i, i, i)
		for j := range 14 {
			fmt.Fprintf(&b, `,"x%d":{"$ref":"s%d"}`, j, j)
		}
		b.WriteString(`}}`)
	}
	all["2^14 scopes of dynamic references"] = [2]string{b.String() + `}}`, `1`}
	var names, members []string
	for i := range 20_000 {
		names = append(names, fmt.Sprintf(`"k%d"`, i))
		members = append(members, names[i]+`:1`)
	}
	all["20k required keys in a text"] = [2]string{`{"additionalProperties":{"type":"integer"},"required":[` + strings.Join(names, ",") + `]}`, `{` + strings.Join(members, ",") + `}`}
	b.Reset()
	b.WriteString(`{"unevaluatedProperties":false,"anyOf":[true`)
	for i := range 3000 {
		fmt.Fprintf(&b, `,{"properties":{"k%d":true},"required":["k%d"]}`, i, i)
	}
	all["3,000 alternatives and a text of 200 keys"] = [2]string{b.String() + `]}`, `{` + strings.Join(members[:200], ",") + `}`}
	all["a million alternatives"] = [2]string{`{"oneOf":[{}` + strings.Repeat(`,{}`, 1_000_000) + `]}`, ""}
	all["a long text"] = [2]string{`{"type":"string","maxLength":1000000}`, `"` + strings.Repeat("é", 100_000) + `"`}
	all["a long array"] = [2]string{`{"type":"array","maxItems":1000000,"items":{"type":"integer"}}`, `[` + strings.Repeat("12,", 50_000) + `1]`}
	all["a deep text"] = [2]string{`{}`, strings.Repeat("[", 512) + strings.Repeat("]", 512)}
	return all
}

// hostileCost is some 250 ms.
var hostileCost = alloctest.Cost{Bytes: 256 << 20, Objects: 2_000_000}

// TestHostile: an answer for little work, or the name of a limit or reason.
func TestHostile(t *testing.T) {
	for name, s := range hostile() {
		var a *Automaton
		var err, fit error
		began := time.Now()
		cost := alloctest.Of(func() { a, err = Compile(context.Background(), []byte(s[0]), Options{}) })
		took := time.Since(began)
		var limit *LimitError
		var refused *RefusedError
		if err != nil && !errors.As(err, &limit) && !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
		var check time.Duration
		var checkCost alloctest.Cost
		if err == nil && s[1] != "" {
			began = time.Now()
			checkCost = alloctest.Of(func() { fit = a.Check([]byte(s[1])) })
			check = time.Since(began)
			if fit != nil && !errors.As(fit, &limit) {
				t.Errorf("%s: %.200s: %v", name, s[1], fit)
			}
		}
		t.Logf("%-50s compile %8v, %v %.120v; check %v, %v %.100v", name, took.Round(time.Microsecond), cost, err, check.Round(time.Microsecond), checkCost, fit)
		if !cost.Within(hostileCost) || !checkCost.Within(hostileCost) {
			t.Errorf("%s: compile %v, check %v allocated", name, cost, checkCost)
		}
	}
}

// TestCheckWhole: what is too much for an automaton is judged as a value; where
// it is wrong is the beginning of the value at fault.
func TestCheckWhole(t *testing.T) {
	var items []string
	for i := range 20_000 {
		items = append(items, fmt.Sprint(i))
	}
	list := strings.Join(items, " , ")
	a, err := Compile(context.Background(), []byte(`{"properties":{"a/b":{"uniqueItems":true,"items":{"type":"integer"}},"c":false}}`), Options{Limits: Limits{Memory: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, pointer string
		at            int
	}{
		{`{"x":[{"a/b":3}], "a/b" : [` + list + `] }`, "", -1},
		{` { "a/b":[` + list + `,7]}`, "/a~1b", len(` { "a/b":`)},
		{`{"a/b":[` + list + `, true]}`, "/a~1b/20000", len(`{"a/b":[` + list + `, `)},
		{`{"a/b":[` + list + `],"c": [1]}`, "/c", len(`{"a/b":[` + list + `],"c": `)},
	} {
		err := a.Check([]byte(c.text))
		var stop *StopError
		switch {
		case c.at < 0 && err != nil:
			t.Errorf("%.30s…: %v", c.text, err)
		case c.at >= 0 && (!errors.As(err, &stop) || stop.Offset != c.at || stop.Pointer != c.pointer):
			t.Errorf("%.30s…: %v, want byte %d, %s", c.text, err, c.at, c.pointer)
		}
	}
}

// TestLimitPlace: the limit of a scalar names the keyword that reaches it.
func TestLimitPlace(t *testing.T) {
	for _, c := range []struct{ schema, text, path, keyword string }{
		{`{"properties":{"a":{"pattern":"^[ab]*a[ab]{900}$"}}}`, `{"a":"` + strings.Repeat("abbab", 3000), "/properties/a", "pattern"},
		{`{"patternProperties":{"[ab]*a[ab]{900}$":{"type":"null"}}}`, `{"` + strings.Repeat("abbab", 3000), "/patternProperties", "[ab]*a[ab]{900}$"},
		{`{"items":{"multipleOf":3,"minimum":5}}`, `[1` + strings.Repeat("0", 100_000), "/items", "minimum"},
	} {
		a, err := Compile(context.Background(), []byte(c.schema), Options{Limits: Limits{Memory: 4 << 20, Effort: 1 << 30}})
		if err != nil {
			t.Fatal(err)
		}
		err = a.NewFollower().Feed([]byte(c.text))
		var limit *LimitError
		if !errors.As(err, &limit) {
			t.Fatalf("%s: %v", c.schema, err)
		}
		if path, keyword, _ := limit.Place(); path != c.path || keyword != c.keyword {
			t.Errorf("%s: %v", c.schema, err)
		}
	}
}
