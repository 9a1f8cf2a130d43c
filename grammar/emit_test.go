package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/internal/alloctest"
	"pgregory.net/rapid"
)

// ends lists where n can end in s when it starts at i: a slow matcher.
func (r ruleSet) ends(n *ebnfNode, s string, i int, out map[int]bool) {
	switch n.op {
	case 'l':
		if strings.HasPrefix(s[i:], n.text) {
			out[i+len(n.text)] = true
		}
	case 'c':
		c, size := utf8.DecodeRuneInString(s[i:])
		for j := 0; size > 0 && j < len(n.set); j += 2 {
			if n.set[j] <= c && c <= n.set[j+1] {
				out[i+size] = true
			}
		}
	case 'r':
		r.ends(r[n.text].body, s, i, out)
	case '|':
		for _, sub := range n.subs {
			r.ends(sub, s, i, out)
		}
	case 's':
		at := map[int]bool{i: true}
		for _, sub := range n.subs {
			next := map[int]bool{}
			for p := range at {
				r.ends(sub, s, p, next)
			}
			at = next
		}
		for p := range at {
			out[p] = true
		}
	case '*':
		at := map[int]bool{i: true}
		for k := 0; len(at) > 0 && (n.max < 0 || k <= n.max); k++ {
			next := map[int]bool{}
			for p := range at {
				if k >= n.min {
					out[p] = true
				}
				if n.max < 0 || k < n.max {
					r.ends(n.subs[0], s, p, next)
				}
			}
			at = next
		}
	}
}

type ruleSet map[string]*ebnfRule

func (r ruleSet) matches(s string) bool {
	out := map[int]bool{}
	r.ends(r["root"].body, s, 0, out)
	return out[len(s)]
}

// TestNumbers: a number is written if and only if it is on the grid and
// between the bounds.
func TestNumbers(t *testing.T) {
	digits := rapid.Map(rapid.IntRange(-2000, 2000), func(i int) string { return fmt.Sprint(i) })
	point := rapid.Custom(func(t *rapid.T) string {
		s := fmt.Sprintf("%d.%0*d", rapid.IntRange(0, 120).Draw(t, "whole"), 3, rapid.IntRange(0, 999).Draw(t, "frac"))
		if rapid.Bool().Draw(t, "neg") {
			s = "-" + s
		}
		return s
	})
	any := rapid.OneOf(digits, point)
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]string{"integer", "number"}).Draw(t, "type")
		lo, hi := any.Draw(t, "lo"), any.Draw(t, "hi")
		loKey := rapid.SampledFrom([]string{"minimum", "exclusiveMinimum", ""}).Draw(t, "loKey")
		hiKey := rapid.SampledFrom([]string{"maximum", "exclusiveMaximum", ""}).Draw(t, "hiKey")
		val := fmt.Sprintf(`{"type":%q`, typ)
		if loKey != "" {
			val += fmt.Sprintf(`,%q:%s`, loKey, lo)
		}
		if hiKey != "" {
			val += fmt.Sprintf(`,%q:%s`, hiKey, hi)
		}
		c := compileTest(t, `{"properties":{"n":`+val+`}},"required":["n"]}`, Closed)
		rules := ruleSet(readEBNF(t, c.content.String()))
		costs(rules)
		fits := func(n string) bool { return c.Check([]byte(`{"n": `+n+`}`)) == nil }
		if len(c.content.reasons) > 0 { // no number in range
			if loKey == "" || hiKey == "" {
				t.Fatal(c.content.reasons)
			}
			return
		}
		for i := range 20 {
			text := derive(rules, rand.New(rand.NewPCG(uint64(i), 1)), 5*i)
			if err := c.Check([]byte(text)); err != nil {
				t.Fatalf("%s derives %s: %v", val, text, err)
			}
		}
		near := []string{lo, hi, lo + "0", any.Draw(t, "x"), digits.Draw(t, "y")}
		for _, b := range []string{lo, hi} {
			r, _ := new(big.Rat).SetString(b)
			for _, d := range []string{"1", "-1", "0.5", "0.001", "-0.001", "0.0000001", "-0.0000001"} {
				e, _ := new(big.Rat).SetString(d)
				s, _ := decimal(new(big.Rat).Add(r, e))
				near = append(near, s)
			}
		}
		for _, n := range near {
			if r, ok := new(big.Rat).SetString(n); !ok || r.Sign() == 0 && n[0] == '-' || !json.Valid([]byte(n)) {
				continue // a zero with a sign is written where numbers below zero are
			}
			if typ == "integer" && strings.Contains(n, ".") {
				continue // written without a point
			}
			text := `{"n": ` + n + `}`
			if got, want := rules.matches(text), fits(n); got != want {
				t.Fatalf("%s: %s: written %v, fits %v\n%s", val, n, got, want, c.content.String())
			}
			if got, want := accepts(automatonOf(t, c), text), fits(n); got != want {
				t.Fatalf("%s: %s: accepted %v, fits %v", val, n, got, want)
			}
		}
	})
}

// TestNarrow: what each construct writes and what it doesn't.
func TestNarrow(t *testing.T) {
	for _, tt := range []struct {
		schema  string
		written []string
		not     []string
		reasons string
	}{
		{`{"properties":{"a/b":{"type":"string"}},"required":["a/b"]}`, []string{`{"a/b": "x/y"}`, "{\n\"a/b\":\"\\u00e9\\n😀\"\n}"}, []string{`{"a\/b": "x"}`, `{}`, "{\"a/b\": \"\x01\"}", `{"a/b": "\ud800"}`}, ""},
		{`{"properties":{"a":{"type":"string","minLength":2,"maxLength":3}}}`, []string{`{}`, `{"a": "\n\""}`, `{"a": "日本語"}`}, []string{`{"a": "x"}`}, ""},
		{`{"properties":{"a":{"type":"string","pattern":"^x"}}}`, []string{`{"a": "x"}`, `{"a": "x\"\\y"}`}, []string{`{"a": "yx"}`}, ""},
		{`{"properties":{"a":{"type":"string","pattern":"x|^y$"}}}`, []string{`{"a": "axb"}`, `{"a": "y"}`}, []string{`{"a": "yy"}`}, ""},
		{`{"properties":{"a":{"type":"string","pattern":"^[^/]+$"}}}`, []string{`{"a": "\"\\"}`}, []string{`{"a": "/"}`, `{"a": ""}`}, ""},
		{`{"properties":{"a":{"type":"string","pattern":"^[a-z]*$","maxLength":2}}}`, []string{`{"a": ""}`}, []string{`{"a": "A"}`}, ""},
		{`{"properties":{"a":{"type":"string","pattern":"^(ab)+$","maxLength":4}}}`, nil, nil, "#/properties/a: lengths beside pattern; checked after the reply"},
		{`{"properties":{"a":{"type":"string","pattern":"\\bx"}}}`, nil, nil, "#/properties/a/pattern: pattern with ^, $ or a word boundary inside; checked after the reply"},
		{`{"properties":{"a":{"type":"string","format":"date"}}}`, []string{`{"a": "2026-11-30"}`}, []string{`{"a": "2026-11-31"}`}, ""},
		{`{"properties":{"a":{"enum":[1,"x/y",null,{"k":[1, 2]}]}}}`, []string{`{"a": 1}`, `{"a": "x/y"}`, `{"a": null}`, `{"a": {"k": [1, 2]}}`}, []string{`{"a": 2}`}, ""},
		{`{"properties":{"a":{"enum":["a","bb",1],"maxLength":1,"type":"string"}}}`, []string{`{"a": "a"}`}, []string{`{"a": "bb"}`, `{"a": 1}`}, ""},
		{`{"properties":{"a":{"type":["string","null"]}}}`, []string{`{"a": null}`, `{"a": "x"}`}, []string{`{"a": 1}`}, ""},
		{`{"properties":{"a":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2}}}`, []string{`{"a": [true]}`, `{"a": [true, false]}`}, []string{`{"a": []}`, `{"a": [true, true, true]}`}, ""},
		{`{"properties":{"a":{"prefixItems":[{"type":"boolean"},{"type":"null"}],"items":false,"type":"array"}}}`, []string{`{"a": [true, null]}`}, []string{`{"a": [null, true]}`, `{"a": [true, null, true]}`}, ""},
		{`{"properties":{"a":{"type":"array","items":{"type":"string"},"uniqueItems":true}}}`, nil, nil, "#/properties/a/uniqueItems: checked after the reply"},
		{`{"properties":{"a":{"type":"array","items":{"enum":["x","y",1,1.0]},"uniqueItems":true,"minItems":2}}}`, []string{`{"a": ["y", "x"]}`, `{"a": [1, "x", "y"]}`}, []string{`{"a": ["x"]}`, `{"a": ["x", "x"]}`, `{"a": [1, 1.0]}`}, ""},
		{`{"properties":{"a":{"type":"array","items":{"type":"boolean"},"contains":{"const":true}}}}`, []string{`{"a": [true]}`, `{"a": [false, false, true, false, true]}`}, []string{`{"a": []}`, `{"a": [false]}`}, ""},
		{`{"properties":{"a":{"type":"null"},"b":{"type":"null"}},"minProperties":1,"maxProperties":1}`, []string{`{"a": null}`, `{"b": null}`}, []string{`{}`, `{"a": null, "b": null}`}, ""},
		{`{"properties":{"a":{"type":"null"},"b":{"type":"null"}},"not":{"required":["a","b"]}}`, []string{`{}`, `{"a": null}`, `{"b": null}`}, []string{`{"a": null, "b": null}`}, ""},
		{`{"properties":{"a":{"type":"boolean"},"b":{"type":"null"}},"if":{"properties":{"a":{"const":true}},"required":["a"]},"then":{"required":["b"]},"else":{"properties":{"b":false}}}`, []string{`{}`, `{"a": false}`, `{"a": true, "b": null}`}, []string{`{"a": true}`, `{"b": null}`}, ""},
		{`{"properties":{"a":{"type":"null"},"b":{"type":"null"}},"dependentRequired":{"a":["b"]}}`, []string{`{}`, `{"b": null}`, `{"a": null, "b": null}`}, []string{`{"a": null}`}, ""},
		{`{"properties":{"a":{"type":"string","not":{"enum":["x","xy"]}}}}`, []string{`{"a": ""}`, `{"a": "xyz"}`, `{"a": "xz"}`, `{"a": "y"}`}, []string{`{"a": "x"}`, `{"a": "xy"}`}, ""},
		{`{"properties":{"a":{"type":"string","not":{"pattern":"^x"}}}}`, nil, nil, "#/properties/a/not: checked after the reply"},
		{`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"properties":{"next":{"$ref":"#/$defs/t"}},"type":"object"}}}`, []string{`{"a": {"next": {"next": {}}}}`}, []string{`{"a": {"x": 1}}`}, ""},
		{`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"properties":{"next":{"$ref":"#/$defs/t"}},"required":["next"],"type":"object"}}}`, []string{`{}`}, []string{`{"a": {}}`}, ""},
		{`{"allOf":[{"properties":{"a":{"type":"null"}}},{"properties":{"b":{"type":"null"}},"required":["b"]}],"type":"object"}`, []string{`{"a": null, "b": null}`, `{"b": null}`}, []string{`{"a": null}`}, ""},
		{`{"properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`, []string{`{"a": null}`, `{"b": null}`, `{"a": null, "b": null}`}, []string{`{}`}, ""},
		{`{"properties":{"a":{"oneOf":[{"type":"string"},{"type":"integer"}]}}}`, []string{`{"a": "x"}`, `{"a": 1}`}, []string{`{"a": null}`}, ""},
		{`{"properties":{"a":{"oneOf":[{"type":"number"},{"type":"integer"}]}}}`, nil, nil, "#/properties/a/oneOf/not: checked after the reply"},
		{`{"properties":{"a":{"oneOf":[{"type":"integer","minimum":0,"maximum":5},{"type":"integer","minimum":4,"maximum":9}]}}}`, []string{`{"a": 3}`, `{"a": 6}`}, []string{`{"a": 4}`, `{"a": 5}`, `{"a": 10}`}, ""},
		{`{"properties":{"a":{"oneOf":[{"properties":{"k":{"const":"x"}},"required":["k"],"type":"object"},{"properties":{"k":{"const":"y"},"z":{"type":"null"}},"required":["k"],"type":"object"}]}}}`, []string{`{"a": {"k": "x"}}`, `{"a": {"k": "y", "z": null}}`}, []string{`{"a": {"k": "x", "z": null}}`}, ""},
		{`{"properties":{"a":{"type":"object","additionalProperties":{"type":"null"}}}}`, []string{`{"a": {}}`, `{"a": {"k": null, "l": null}}`}, []string{`{"a": {"k": 1}}`}, "#/properties/a: a map, in which a key may come twice"},
		{`{"properties":{"a":{"type":"object","additionalProperties":{"type":"null"},"maxProperties":1}}}`, []string{`{"a": {}}`, `{"a": {"k": null}}`}, []string{`{"a": {"k": null, "l": null}}`}, ""},
		{`{"properties":{"a":{"type":"integer","multipleOf":5,"minimum":0,"maximum":10}}}`, []string{`{"a": 0}`, `{"a": 5}`, `{"a": 10}`}, []string{`{"a": 1}`}, ""},
		{`{"properties":{"a":{"type":"number","multipleOf":0.01}}}`, []string{`{"a": 0.25}`, `{"a": -7}`}, []string{`{"a": 0.255}`, `{"a": 1e-5}`}, ""},
		{`{"properties":{"a":{"type":"null"}},"required":["b"]}`, []string{`{}`}, nil, "#: no object fits that could be written: nothing fits #/additionalProperties for required \"b\""},
		{``, []string{`{}`, "{\n}"}, []string{`{"a": 1}`, `[]`}, ""},
	} {
		c := compileTest(t, tt.schema, Closed)
		if got := strings.Join(c.content.reasons, "; "); got != tt.reasons {
			t.Errorf("%s: reasons %q, want %q", tt.schema, got, tt.reasons)
		}
		rules := ruleSet(readEBNF(t, c.content.String()))
		for _, s := range tt.written {
			if !rules.matches(s) {
				t.Errorf("%s: %s can't be written\n%s", tt.schema, s, c.content.String())
			}
			if err := c.Check([]byte(s)); err != nil && tt.reasons == "" {
				t.Errorf("%s: %s: %v", tt.schema, s, err)
			}
		}
		for _, s := range tt.not {
			if rules.matches(s) {
				t.Errorf("%s: %s can be written\n%s", tt.schema, s, c.content.String())
			}
		}
		checkDerivations(t, c, 200)
	}
}

func TestWorld(t *testing.T) {
	obj := func(inner string) string { return `{"type":"object","properties":{"p":` + inner + `}}` }
	for _, tt := range []struct {
		schema string
		args   string
		closed bool // fits in the closed world; all fit in the open one
	}{
		{obj(`{"type":"object","properties":{"a":{}}}`), `{"p":{"x":1}}`, false},
		{obj(`{"type":"object"}`), `{"p":{"x":1}}`, true},
		{obj(`{"type":"object","properties":{"a":{}},"additionalProperties":{}}`), `{"p":{"x":1}}`, true},
		{obj(`{"type":"object","properties":{"a":{}},"patternProperties":{"^y":{}}}`), `{"p":{"x":1}}`, true},
		{obj(`{"type":"array","items":{"type":"object","properties":{"a":{}}}}`), `{"p":[{"x":1}]}`, false},
		{obj(`{"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"null"}]}`), `{"p":{"x":1}}`, false},
		{obj(`{"oneOf":[{"type":"object","properties":{"a":{}}},{"type":"null"}]}`), `{"p":{"x":1}}`, true},
		{obj(`{"allOf":[{"properties":{"a":{}}},{"properties":{"x":{}}}]}`), `{"p":{"x":1}}`, true},
		{obj(`{"properties":{"a":{}},"allOf":[{"properties":{"x":{}}}]}`), `{"p":{"x":1}}`, true},
		{obj(`{"properties":{"a":{}},"allOf":[{"properties":{"x":{}}}]}`), `{"p":{"y":1}}`, false},
		{obj(`{"not":{"properties":{"a":{"type":"null"}},"required":["b"]}}`), `{"p":{"x":1}}`, true},
		{`{"properties":{"p":{"$ref":"#/$defs/d"}},"$defs":{"d":{"properties":{"a":{}}}}}`, `{"p":{"x":1}}`, false},
		{`{"properties":{"p":{"$ref":"#/$defs/d"},"q":{"allOf":[{"$ref":"#/$defs/d"},{"properties":{"x":{}}}]}},"$defs":{"d":{"properties":{"a":{}}}}}`, `{"p":{"x":1}}`, true},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"p":{"properties":{"a":{}},"allOf":[{"required":["x"]}]}}}`, `{"p":{"x":1}}`, true},
		{`{"properties":{"p":{"$ref":"#a"}},"$defs":{"d":{"$anchor":"a","properties":{"a":{}}}}}`, `{"p":{"x":1}}`, true},
	} {
		if err := compileTest(t, tt.schema, Closed).Check([]byte(tt.args)); (err == nil) != tt.closed {
			t.Errorf("closed: %s: %s: %v", tt.schema, tt.args, err)
		}
		if err := compileTest(t, tt.schema, Open).Check([]byte(tt.args)); err != nil {
			t.Errorf("open: %s: %s: %v", tt.schema, tt.args, err)
		}
	}
}

func TestHostile(t *testing.T) {
	deep := strings.Repeat(`{"properties":{"a":`, 100) + `{}` + strings.Repeat(`}}`, 100)
	many := `{"anyOf":[` + strings.Repeat(`{},`, 10_001) + `{}]}`
	twins := `{"$defs":{`
	for i := range 60 {
		twins += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	twins += `"d60":{"type":"object"}},"$ref":"#/$defs/d0"}`
	for _, tt := range []struct{ name, schema, loc, msg string }{
		{"deep", deep, "", "nested more than 64 deep"},
		{"brackets", strings.Repeat("[", 100_000), "#", "nested too deep"},
		{"many", many, "", "more than 10,000 subschemas"},
		{"long", `{"description":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "#", "at most 1 MiB"},
		{"remote", `{"properties":{"a":{"$ref":"https://example.com/s.json"}}}`, "#/properties/a/$ref", "nothing is fetched"},
		{"file", `{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "#/properties/a/$ref", "nothing is fetched"},
		{"metaschema", `{"$schema":"https://example.com/s.json"}`, "#/$schema", "no draft from 04 on"},
		{"backreference", `{"properties":{"a":{"pattern":"(x)\\1"}}}`, "#/properties/a/pattern", "backreference"},
		{"flags", `{"properties":{"a":{"pattern":"(?i)x"}}}`, "#/properties/a/pattern", "at byte 0"},
		{"type", `{"properties":{"a":{"type":"strin"}}}`, "#/properties/a/type", "where a type"},
		{"itself", `{"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"},{"type":"null"}]}}}`, "#/properties/a", "refers to itself"},
		{"twice", `{"type":"object","type":"array"}`, "#", "stands twice"},
		{"cut", `{"type":`, "#", "ends where"},
		{"array", `[]`, "#", "a schema is"},
		{"huge number", `{"properties":{"a":{"maximum":1e999999999}}}`, "#/properties/a/maximum", "beyond"},
		{"missing ref", `{"properties":{"a":{"$ref":"#/$defs/no"}}}`, "", ""},
	} {
		var err error
		cost := alloctest.Of(func() { _, err = Compile(Tool{"t", json.RawMessage(tt.schema)}, Closed) })
		var se *SchemaError
		if !errors.As(err, &se) || tt.loc != "" && se.Loc != tt.loc || !strings.Contains(se.Msg, tt.msg) {
			t.Errorf("%s: %v (at %q)", tt.name, err, tt.loc)
		}
		if !cost.Within(alloctest.Cost{Bytes: 16 << 20, Objects: 200_000}) {
			t.Errorf("%s: %v allocated", tt.name, cost)
		}
		if _, again := Compile(Tool{"other", json.RawMessage(tt.schema)}, Closed); again == nil || !strings.Contains(again.Error(), `"other"`) {
			t.Errorf("%s: refusal for another tool: %v", tt.name, again)
		}
	}
	// 2^60 paths through the schema, and 2^60 looks at the arguments.
	c := compileTest(t, twins, Closed)
	if err := c.Check([]byte(`{}`)); err != nil {
		t.Errorf("2^60 paths: %v", err)
	}
	c = compileTest(t, `{"anyOf":[{"properties":{"a":{"$ref":"#"},"b":false}},{"properties":{"a":{"$ref":"#"},"c":false}}]}`, Open)
	err := c.Check([]byte(strings.Repeat(`{"a":`, 60) + `{"b":1,"c":1}` + strings.Repeat(`}`, 60)))
	if m, ok := err.(*Misfit); !ok || m.Loc != strings.Repeat("/a", 60)+"/b" {
		t.Errorf("2^60 looks: %v", err)
	}
}

func TestTag(t *testing.T) {
	a, b := compileTest(t, `{"properties":{"x":{"type":"null"}}}`, Closed), compileTest(t, ``, Closed)
	named := *b
	named.name = `b"`
	b = &named
	const (
		ra = `args-n2p4e33za4 ::= \"{\" then-n6lypaotde | \"{\" [ \\n\\t] then-n6lypaotde\nend-srv622omju ::= \"}\" | [ \\n\\t] \"}\"\nvalue-dw7ime3f2u ::= \"null\" | [ \\n\\t] \"null\"\nthen-n6lypaotde ::= \"\\\"x\\\":\" value-dw7ime3f2u end-srv622omju | \"}\"\n`
		rb = `args-ty3lprdesm ::= \"{\" end-srv622omju\n`
		gb = `"root ::= args-ty3lprdesm\n` + rb + `end-srv622omju ::= \"}\" | [ \\n\\t] \"}\"\n"`
		ta = `{"type":"tag","begin":"<tool_call>\n{\"name\": \"t\", \"arguments\": ","content":{"type":"grammar","grammar":"root ::= args-n2p4e33za4\n` + ra + `"},"end":"}\n</tool_call>"}`
		// What a and b have in common stands there once.
		tab = `{"type":"tag","begin":"<tool_call>\n{\"name\": \"","content":{"type":"grammar","grammar":"root ::= \"t\\\", \\\"arguments\\\": \" args-n2p4e33za4 | \"b\\\\\\\"\\\", \\\"arguments\\\": \" args-ty3lprdesm\n` + ra + rb + `"},"end":"}\n</tool_call>"}`
	)
	both := []*Checked{a, b}
	for _, tt := range []struct {
		tools  []*Checked
		choice Choice
		want   string // the error if it doesn't begin with {
	}{
		{both, Choice{Mode: Auto, Parallel: true}, `{"type":"triggered_tags","triggers":["<tool_call>"],"tags":[` + tab + `],"at_least_one":false,"stop_after_first":false}`},
		{both, Choice{Mode: Auto}, `{"type":"triggered_tags","triggers":["<tool_call>"],"tags":[` + tab + `],"at_least_one":false,"stop_after_first":true}`},
		{both, Choice{Mode: Required, Parallel: true}, `{"type":"tags_with_separator","tags":[` + tab + `],"separator":"\n","at_least_one":true,"stop_after_first":false}`},
		{both, Choice{Mode: Named, Name: "t", Parallel: true}, `{"type":"tags_with_separator","tags":[` + ta + `],"separator":"\n","at_least_one":true,"stop_after_first":true}`},
		{both, Choice{Mode: None}, `{"type":"any_text","excludes":["<tool_call>"]}`},
		{nil, Choice{Mode: Auto}, `{"type":"any_text","excludes":["<tool_call>"]}`},
		{[]*Checked{a}, Choice{Mode: Auto, Response: b}, `{"type":"or","elements":[{"type":"tags_with_separator","tags":[` + ta + `],"separator":"\n","at_least_one":true,"stop_after_first":true},{"type":"grammar","grammar":` + gb + `}]}`},
		{both, Choice{Mode: None, Response: b}, `{"type":"grammar","grammar":` + gb + `}`},
		{both, Choice{Mode: Named, Name: "no"}, `tool_choice named "no": no such tool among those shown`},
		{both, Choice{Mode: "some"}, `unknown tool_choice mode "some"`},
	} {
		e, err := Tag(hermes, tt.tools, tt.choice, xgrammar028)
		got := string(e.Format)
		if err != nil {
			got = err.Error()
		} else if !json.Valid(e.Format) {
			t.Errorf("%+v: not JSON: %s", tt.choice, got)
		}
		if got != tt.want {
			t.Errorf("%+v:\n got %s\nwant %s", tt.choice, got, tt.want)
		}
	}
	for eng, ok := range map[Engine]bool{{"xgrammar", "0.2.8"}: true, {"xgrammar", "0.2.6"}: false, {"xgrammar", "0.1.30"}: false, {"xgrammar", "0.3.0"}: true, {"llguidance", "1.7.6"}: false} {
		e, err := Tag(hermes, both, Choice{Mode: Auto}, eng)
		var ee *EngineError
		if (err == nil) != ok || err != nil && !errors.As(err, &ee) {
			t.Errorf("%v: %v", eng, err)
		}
		if ok && e.Tools[0].Exact != (eng == xgrammar028) {
			t.Errorf("%v: exact %v", eng, e.Tools[0].Exact)
		}
	}
}

func TestDefects(t *testing.T) {
	for _, tt := range []struct {
		eng  Engine
		want string // of distrust
	}{
		{Engine{"xgrammar", "0.2.7"}, "#: xgrammar 0.2.7: some random walks end where no token is allowed"},
		{Engine{"xgrammar", "0.2.8"}, ""},
		{Engine{"xgrammar", "0.2.9"}, "#: xgrammar 0.2.9 has not been measured"},
		{Engine{"xgrammar", ""}, "#: xgrammar has not been measured"},
		{Engine{"llguidance", "1.9.1"}, ""},
	} {
		if got := distrust(tt.eng); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.eng, got, tt.want)
		}
	}
	for _, d := range engines.Wrong {
		if d.Engine == "" || d.What == "" || d.Effect == "" || d.Ours == "" || d.Source == "" {
			t.Errorf("a field is missing: %+v", d)
		}
	}
	if len(Defects(Engine{"xgrammar", "0.2.7"})) != len(Defects(Engine{"xgrammar", "0.2.8"}))+1 {
		t.Error("what 0.2.8 mended is still held against it")
	}
}

// TestSlow: what would take the engine seconds is written without patterns, and
// what still would as any object; both say so.
func TestSlow(t *testing.T) {
	words := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `%c[^%c]`, 'a'+i%26, 'a'+i%25)
		}
		return b.String()
	}
	for _, tt := range []struct {
		schema, reason string
		atMost         float64
	}{
		{`{"properties":{"a":{"type":"string","pattern":"^` + words(20) + `$"}}}`, "", maxCompileMS},
		{`{"properties":{"a":{"type":"string","pattern":"^` + words(150) + `$"}}}`, "patterns that the engine would take seconds to compile", 100},
	} {
		c := compileTest(t, tt.schema, Closed)
		if got := strings.Join(c.content.reasons, "; "); (tt.reason == "") != (got == "") || !strings.Contains(got, tt.reason) || c.content.cost().MS() > tt.atMost {
			t.Errorf("%.80s…: %q, %.0f ms", tt.schema, got, c.content.cost().MS())
		}
		if e, err := Tag(hermes, []*Checked{c, c}, Choice{Mode: Auto}, xgrammar028); err != nil || e.CompileMS > 1.1*c.content.cost().MS()+10 {
			t.Errorf("%v, %v", e.CompileMS, err)
		}
	}
}

// TestSelfApplied: a schema that applies itself to the same value is refused by
// name, or means something anyway; either takes little work.
func TestSelfApplied(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}`,
		`{"type":"object","oneOf":[` + strings.Repeat(`{"$ref":"#"},`, 8) + `{"$ref":"#"}]}`,
		`{"properties":{"a":{"type":"object","anyOf":[{"$ref":"#"},{"$ref":"#/properties/a"},{"required":["x"]}]},"b":{"anyOf":[{"$ref":"#"},{"$ref":"#/properties/a"}]}}}`,
		`{"type":"object","anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{"a":{"type":"object","anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#"}]},"b":{"required":["x"],"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#"}]}}}`,
	} {
		var err error
		cost := alloctest.Of(func() { _, err = compile(t.Context(), "t", []byte(schema), Closed) })
		if err != nil && !strings.Contains(err.Error(), "refers to itself") {
			t.Errorf("%s: %v", schema, err)
		}
		if !cost.Within(alloctest.Cost{Bytes: 1 << 20, Objects: 10_000}) {
			t.Errorf("%s: %v allocated", schema, cost)
		}
	}
}

// TestTagBytes: the same tools give the same bytes, whatever the cache holds.
func TestTagBytes(t *testing.T) {
	schema := `{"properties":{"z":{"type":"string","maxLength":9},"a":{"enum":["q",2]},"m":{"anyOf":[{"type":"number","minimum":0.5},{"type":"null"}]}},"required":["m"],"$defs":{"b":{},"a":{}}}`
	var first string
	for range 20 {
		c, err := compile(t.Context(), "t", []byte(schema), Closed)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Tag(hermes, []*Checked{c}, Choice{Mode: Required}, xgrammar028)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(e.Format)
		}
		if string(e.Format) != first {
			t.Fatalf("two emissions:\n%s\n%s", first, e.Format)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	schema := []byte(`{"type":"object","properties":{"city":{"type":"string","maxLength":80},"unit":{"enum":["c","f"]},"days":{"type":"integer","minimum":1,"maximum":14},"tags":{"type":"array","items":{"type":"string"},"maxItems":5}},"required":["city"]}`)
	b.Run("step=fresh", func(b *testing.B) {
		for b.Loop() {
			if _, err := compile(b.Context(), "t", schema, Closed); err != nil {
				b.Fatal(err)
			}
		}
	})
	c, err := Compile(Tool{"t", schema}, Closed)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("step=cached", func(b *testing.B) {
		for b.Loop() {
			if _, err := Compile(Tool{"t", schema}, Closed); err != nil {
				b.Fatal(err)
			}
		}
	})
	args := []byte(`{"city": "Paris", "unit": "c", "days": 3, "tags": ["a", "b"]}`)
	b.Run("step=check", func(b *testing.B) {
		for b.Loop() {
			if err := c.Check(args); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("step=stream", func(b *testing.B) {
		b.SetBytes(int64(len(args)))
		for b.Loop() {
			var s Stream
			if _, err := s.Feed(args); err != nil {
				b.Fatal(err)
			}
		}
	})
	tools := make([]*Checked, 32)
	for i := range tools {
		tools[i] = c
	}
	b.Run("step=tag/tools=32", func(b *testing.B) {
		for b.Loop() {
			if _, err := Tag(hermes, tools, Choice{Mode: Auto, Parallel: true}, xgrammar028); err != nil {
				b.Fatal(err)
			}
		}
	})
}
