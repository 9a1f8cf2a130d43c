package grammar

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/internal/alloctest"
	"golang.org/x/sys/unix"
)

// A trap is a schema made to take long, and a text for it.
type trap struct{ name, schema, text string }

// listed is f n times, with its number for <i>, the next for <j>, and commas
// between.
func listed(n int, f string) string {
	var b strings.Builder
	parts := strings.Split(f, "<")
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(parts[0])
		for _, p := range parts[1:] {
			b.WriteString(strconv.Itoa(i + int(p[0]-'i')))
			b.WriteString(p[2:])
		}
	}
	return b.String()
}

func traps() []trap {
	property := func(inner string) string {
		return `{"type":"object","properties":{"p":` + inner + `},"required":["p"]}`
	}
	nest := func(n int, before, inner, after string) string {
		return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
	}
	two := `{"oneOf":[` + listed(2, `{"properties":{"a@":{"const":<i>}},"required":["a@"],"$ref":"#/$defs/d+"}`) + `]}`
	ways := `{"type":"object","$ref":"#/$defs/d0","$defs":{"d20":{"type":"object"}`
	for i := range 20 {
		ways += fmt.Sprintf(`,"d%d":`, i) + strings.NewReplacer("@", fmt.Sprint(i), "+", fmt.Sprint(i+1)).Replace(two)
	}
	var tree func(n int) string
	tree = func(n int) string {
		if n == 0 {
			return `{"const":1}`
		}
		return `{"oneOf":[` + tree(n-1) + `,` + tree(n-1) + `]}`
	}
	letters := strings.Repeat("ab", 2000)
	return []trap{
		{"oneOf of 2^20 ways by references", ways + "}}", `{` + listed(20, `"a<i>":0`) + `}`},
		{"oneOf of 2^12 ways written out", property(tree(12)), `{"p":1}`},
		{"oneOf of 2^20 written out", property(`{"oneOf":[{}` + strings.Repeat(`,{}`, 1<<20) + `]}`), `{"p":1}`},
		{"allOf of 200 oneOf", `{"type":"object","allOf":[` + listed(200, `{"oneOf":[{"required":["a<i>"]},{"required":["b<i>"]},{"not":{"required":["c<i>"]}}]}`) + `]}`, `{"a1":1}`},
		{"2,000 alternatives", `{"type":"object","anyOf":[` + listed(2000, `{"properties":{"k":{"const":"v<i>"},"x<i>":{"type":"integer"}},"required":["k","x<i>"],"additionalProperties":false}`) + `]}`, `{"k":"v7","x8":1}`},
		{"oneOf of 2,000, unevaluated", `{"type":"object","unevaluatedProperties":false,"oneOf":[` + listed(2000, `{"properties":{"k":{"const":"v<i>"},"x<i>":{"type":"integer"},"o":{"type":"object","properties":{"z":{"const":<i>}}}},"required":["k"]}`) + `]}`, `{"o":{"z":7},"x7":1,"k":"v7"}`},
		{"alternatives of lengths", property(`{"anyOf":[` + listed(2000, `{"type":"object","properties":{"k":{"const":<i>},"v":{"type":"string","maxLength":<i>}},"required":["k","v"]}`) + `]}`), `{"p":{"k":3,"v":"abcd"}}`},
		{"nested 60 deep", property(nest(60, `{"type":"array","items":`, `{"type":"integer"}`, `}`)), `{"p":` + nest(60, `[`, `"x"`, `]`) + `}`},
		{"nested 100,000 deep", property(nest(100_000, `{"items":`, `{}`, `}`)), `{"p":[]}`},
		{"recursion in place", `{"type":"object","anyOf":[{"$ref":"#"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"},{"type":"object"}]}}}`, `{}`},
		{"recursion three ways", `{"type":"object","properties":{"l":{"$ref":"#"},"m":{"$ref":"#"},"r":{"$ref":"#"},"v":{"type":"integer"}},"required":["v"]}`, nest(400, `{"v":1,"l":`, `{"v":""}`, `}`)},
		{"a row of 9,000 references", `{"$ref":"#/$defs/d0","type":"object","$defs":{"d9000":{}` + `,` + listed(9000, `"d<i>":{"$ref":"#/$defs/d<j>"}`) + `}}`, `{}`},
		{"minItems 1e9", property(`{"type":"array","items":{"type":"string"},"minItems":1000000000}`), `{"p":[]}`},
		{"minItems 1e9 of two values", property(`{"type":"array","items":{"type":"boolean"},"minItems":1000000000,"uniqueItems":true}`), `{"p":[true]}`},
		{"minContains 1e9", property(`{"type":"array","contains":{"const":1},"minContains":1000000000}`), `{"p":[1]}`},
		{"minProperties 1e9", property(`{"type":"object","minProperties":1000000000}`), `{"p":{}}`},
		{"maxLength 1e15", property(`{"type":"string","maxLength":1000000000000000}`), `{"p":"` + letters + `"}`},
		{"maxLength 1e5, 300 times", `{"type":"object","properties":{` + listed(300, `"p<i>":{"type":"string","minLength":9000,"maxLength":100000}`) + `}}`, `{"p7":"` + letters + `"}`},
		{"pattern (a+)+$", property(`{"type":"string","pattern":"^(a+)+$"}`), `{"p":"` + strings.Repeat("a", 5000) + `b"}`},
		{"pattern of nested stars", property(`{"type":"string","pattern":"^((([a-z])+.)+[A-Z]([a-z])+)+$"}`), `{"p":"` + letters + `"}`},
		{"pattern of 2^200 states", property(`{"type":"string","pattern":"^[ab]*a[ab]{200}$"}`), `{"p":"` + letters + `"}`},
		{"pattern of nested counts", property(`{"type":"string","pattern":"^((a{1,100}){1,100}){1,100}$"}`), `{"p":"` + strings.Repeat("a", 4000) + `b"}`},
		{"pattern of windows", property(`{"type":"string","pattern":"^(.*a.{99}){8}$"}`), `{"p":"` + letters + `"}`},
		{"pattern of looks ahead", property(`{"type":"string","pattern":"` + strings.Repeat(`(?=.*a.*b)`, 40) + `x"}`), `{"p":"` + letters + `"}`},
		{"300 patterns of keys", `{"type":"object","patternProperties":{` + listed(300, `"a.*<i>":{"type":["string","integer"]}`) + `}}`, `{"ab12":null}`},
		{"4,900 properties", `{"type":"object","properties":{` + listed(4900, `"property<i>":{"type":"string","description":"Text <i>."}`) + `}}`, `{"property4899":1}`},
		{"50,000 properties", `{"type":"object","properties":{` + listed(50_000, `"property<i>":{"type":"string"}`) + `},"required":["property49999"]}`, `{"property49999":1}`},
		{"4,900 required", `{"type":"object","properties":{` + listed(4900, `"p<i>":{"type":"integer"}`) + `},"required":[` + listed(4900, `"p<i>"`) + `]}`, `{` + listed(4899, `"p<i>":1`) + `}`},
		{"enum of 20,000", property(`{"enum":[` + listed(20_000, `"value <i>"`) + `]}`), `{"p":"value x"}`},
		{"enum of 60,000 beside a pattern", property(`{"type":"string","enum":[` + listed(60_000, `"value <i>"`) + `],"pattern":"^value [0-9]+$"}`), `{"p":"value x"}`},
		{"enum of 60,000 objects", property(`{"enum":[` + listed(60_000, `{"a":<i>}`) + `]}`), `{"p":{"a":-1}}`},
		{"300,000 unique items", property(`{"type":"array","uniqueItems":true}`), `{"p":[` + listed(300_000, `<i>`) + `,7]}`},
		{"3,000 unique objects", property(`{"type":"array","uniqueItems":true,"items":{"type":"object"}}`), `{"p":[` + listed(3000, `{"a":<i>,"b":[<i>]}`) + `,{"b":[7],"a":7}]}`},
		{"contains, 60 times", property(`{"type":"array","allOf":[` + listed(60, `{"contains":{"multipleOf":<j>}}`) + `]}`), `{"p":[` + listed(500, `<i>`) + `]}`},
		{"20,000 keys, all required", `{"type":"object","additionalProperties":{"type":"integer"},"required":[` + listed(20_000, `"k<i>"`) + `]}`, `{` + listed(19_999, `"k<i>":1`) + `}`},
		{"200 keys of 3,000 alternatives", `{"type":"object","unevaluatedProperties":false,"anyOf":[true,` + listed(3000, `{"properties":{"k<i>":true},"required":["k<i>"]}`) + `]}`, `{` + listed(200, `"k<i>":1`) + `}`},
		{"a key of 500 kB", `{"type":"object","properties":{"` + strings.Repeat("k", 500_000) + `":{"type":"object","properties":{` + listed(2000, `"p<i>":{"type":"integer"}`) + `}}}}`, `{"` + strings.Repeat("k", 500_000) + `":{` + listed(2000, `"p<i>":""`) + `}}`},
		{"a description of 900 kB", `{"type":"object","properties":{"a":{"type":"string","description":"` + strings.Repeat("a, 'b' or ", 90_000) + `"}}}`, `{"a":1}`},
		{"10 MB", `{"type":"object","description":"` + strings.Repeat("x", 10<<20) + `"}`, `{}`},
		{"a text of 10 MB", property(`{"type":"string"}`), `{"p":"` + strings.Repeat("x", 10<<20) + `","q":1}`},
		{"a million items", property(`{"type":"array","items":{"type":"integer"}}`), `{"p":[` + strings.Repeat("12,", 1_000_000) + `""]}`},
		{"a thousand wrong items", property(`{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}},"required":["b"]}}`), `{"p":[` + listed(1000, `{"a":"<i>"}`) + `]}`},
	}
}

// trapCost is what a step may allocate: some 250 ms of one core. It is reached
// by what is long, not by what multiplies.
var trapCost = alloctest.Cost{Bytes: 320 << 20, Objects: 4_000_000}

// TestTraps takes each trap through all that one does with a schema. Each step
// ends with an answer, or with an error that says what was too much, and allocates
// a bounded amount. The processor time is logged only.
func TestTraps(t *testing.T) {
	v := qwenVocabulary(t)
	for _, x := range traps() {
		t.Run(x.name, func(t *testing.T) {
			var line strings.Builder
			step := func(name string, f func() error) (err error) {
				begin := cpuTime()
				cost := alloctest.Of(func() { err = f() })
				fmt.Fprintf(&line, "%s %v, %v; ", name, (cpuTime() - begin).Round(10*time.Microsecond), cost)
				if err != nil {
					fmt.Fprintf(&line, "%.90s; ", err)
				}
				if !cost.Within(trapCost) {
					t.Errorf("%s: %v allocated", name, cost)
				}
				return err
			}
			x.through(t, v, step)
			t.Log(line.String())
		})
	}
}

// through takes the trap through the steps.
func (x *trap) through(t *testing.T, v *token.Vocabulary, step func(string, func() error) error) {
	tool := Tool{"delete_it", []byte(x.schema)}
	step("accept", func() error {
		_, err := accept.Compile(context.Background(), tool.Schema, accept.Options{})
		return err
	})
	var c *Checked
	err := step("compile", func() (err error) { c, err = Compile(tool, Open); return err })
	if se := (*SchemaError)(nil); err != nil && !errors.As(err, &se) {
		t.Error(err)
	}
	if err == nil {
		step("mask", func() error {
			a, err := c.Automaton()
			if err != nil {
				return err
			}
			m, err := grammarOf(t, a, v).Matcher()
			if err != nil {
				return err
			}
			return m.Fill(make([]uint64, v.Words()))
		})
		err := step("check", func() error { return c.Check([]byte(x.text)) })
		if m := (*Misfit)(nil); err != nil && !errors.As(err, &m) {
			t.Error(err)
		}
		step("envelope", func() error {
			if e := Envelope("t", c.Misfits([]byte(x.text), true)...); len(e) > maxEnvelope {
				t.Errorf("an envelope of %d bytes", len(e))
			}
			return nil
		})
	}
	step("lint", func() error {
		if fs := Lint([]Described{{tool, ""}}); len(fs) == 0 || len(fs) > maxFindings+10 {
			t.Errorf("%d findings", len(fs))
		}
		return nil
	})
}

func cpuTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
