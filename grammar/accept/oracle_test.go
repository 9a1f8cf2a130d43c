package accept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// schemaGen draws schemas whose keywords meet often: few keys, few values.
type schemaGen struct {
	t     *rapid.T
	draft Draft
}

func (g schemaGen) pick(from ...string) string { return rapid.SampledFrom(from).Draw(g.t, "pick") }

func (g schemaGen) key() string { return g.pick(`"a"`, `"b"`, `"c"`, `"ab"`) }

func (g schemaGen) leaf() string {
	if g.draft == Draft04 {
		return g.pick(`{"type":"string"}`, `{"type":"null"}`, `{"type":"integer"}`, `{"enum":["a",1,null,{"a":1},[1]]}`, `{}`,
			`{"not":{}}`, `{"minimum":1,"exclusiveMinimum":true}`, `{"maximum":2}`, `{"pattern":"^a"}`, `{"$ref":"#/definitions/d"}`, `{"$ref":"#"}`)
	}
	return g.pick(`{"type":"string"}`, `{"type":"null"}`, `{"type":"boolean"}`, `{"type":"integer"}`, `{"const":"a"}`, `{"const":1}`, `{"enum":["a","b",1,2,null]}`,
		`{"const":{"a":1}}`, `{"const":[1]}`, `{"enum":[{"a":1,"b":[2]},[],true]}`, `{"minLength":2}`, `{"maxLength":1}`, `{"pattern":"^a"}`, `{"pattern":"b"}`,
		`{"minimum":1}`, `{"exclusiveMaximum":2}`, `{"multipleOf":0.5}`, `{"multipleOf":2}`, `true`, `false`, `{"type":"object"}`, `{"type":"array"}`,
		`{"$ref":"#/$defs/d"}`, `{"$ref":"#/$defs/e"}`, `{"required":["a"]}`, `{"minItems":1}`, `{"type":["object","null"]}`, `{"$ref":"#"}`)
}

func (g schemaGen) schema(depth int) string {
	if depth <= 0 {
		return g.leaf()
	}
	var parts []string
	add := func(name, format string, a ...any) {
		twice := slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, strconv.Quote(name)) })
		if lookup(name, g.draft) != nil && !twice {
			parts = append(parts, fmt.Sprintf("%q:"+format, append([]any{name}, a...)...))
		}
	}
	sub := func() string { return g.schema(depth - 1) }
	for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(0, 27), 1, 4, rapid.ID).Draw(g.t, "keywords") {
		switch k {
		case 0:
			add("type", "%s", g.pick(`"object"`, `"array"`, `"string"`, `["object","null"]`, `["integer","string"]`, `"number"`))
		case 1, 2:
			add("properties", `{"a":%s,%s:%s}`, sub(), g.pick(`"b"`, `"c"`), sub())
		case 3:
			add("required", `[%s]`, g.pick(`"a"`, `"b"`, `"a","c"`, `"ab"`))
		case 4:
			if g.draft == Draft04 {
				add("additionalProperties", "%s", g.pick(`false`, `true`, sub()))
			} else {
				add("additionalProperties", "%s", g.pick(`false`, sub()))
			}
		case 5:
			add("anyOf", "[%s,%s]", sub(), sub())
		case 6:
			add("oneOf", "[%s,%s]", sub(), sub())
		case 7:
			add("allOf", "[%s,%s]", sub(), sub())
		case 8:
			add("$ref", "%s", g.pick(`"#/$defs/d"`, `"#/$defs/e"`))
		case 9:
			if g.draft < Draft2020 && g.pick("tuple", "one") == "tuple" {
				add("items", "[%s,%s]", sub(), sub())
				add("additionalItems", "%s", g.pick(`false`, sub()))
				break
			}
			add("items", "%s", sub())
		case 10:
			add("prefixItems", "[%s,%s]", sub(), sub())
		case 11:
			add("minItems", "%s", g.pick("0", "1", "2"))
		case 12:
			add("maxItems", "%s", g.pick("0", "1", "2"))
		case 13:
			add("patternProperties", `{%s:%s}`, g.pick(`"^a"`, `"b"`, `"^[ab]$"`), sub())
		case 14, 15:
			add("unevaluatedProperties", "%s", g.pick(`false`, sub()))
		case 16:
			add("unevaluatedItems", "%s", g.pick(`false`, sub()))
		case 17:
			add("uniqueItems", "true")
		case 18:
			add("minProperties", "%s", g.pick("0", "1", "2"))
		case 19:
			add("maxProperties", "%s", g.pick("0", "1", "2"))
		case 20:
			add("not", "%s", sub())
		case 21, 22:
			add("if", "%s", sub())
			add("then", "%s", sub())
			if g.pick("else", "") == "else" {
				add("else", "%s", sub())
			}
		case 23:
			add("contains", "%s", sub())
			add("minContains", "%s", g.pick("0", "1", "2"))
			if g.pick("max", "") == "max" {
				add("maxContains", "%s", g.pick("0", "1", "2"))
			}
		case 24:
			add("propertyNames", "%s", g.pick(`{"maxLength":1}`, `{"pattern":"^a"}`, `{"enum":["a","b"]}`, sub()))
		case 25:
			add("dependentRequired", `{%s:[%s]}`, g.key(), g.key())
		case 26:
			add("dependentSchemas", `{%s:%s}`, g.key(), sub())
		case 27:
			add("dependencies", `{%s:%s}`, g.key(), g.pick(`["a"]`, sub()))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// whole is a schema with definitions.
func (g schemaGen) whole(depth int) string {
	s := g.schema(depth)
	for s == "true" || s == "false" {
		s = `{}`
	}
	s = strings.TrimSuffix(s, "}")
	if s != "{" {
		s += ","
	}
	name := "$defs"
	if g.draft <= Draft07 {
		name = "definitions"
	}
	s += fmt.Sprintf(`%q:{"d":%s,"e":%s}}`, name, g.schema(depth-1), g.schema(1))
	return strings.ReplaceAll(s, "/$defs/", "/"+name+"/")
}

// valueGen draws values and their spellings.
type valueGen struct{ t *rapid.T }

func (g valueGen) n(max int) int { return rapid.IntRange(0, max).Draw(g.t, "n") }

func (g valueGen) value(depth int) any {
	k := g.n(9)
	if depth == 0 {
		k %= 6
	}
	switch k {
	case 0:
		return nil
	case 1:
		return g.n(1) == 0
	case 2, 3:
		return json.Number(rapid.SampledFrom([]string{"0", "1", "2", "3", "-1", "1.5", "0.25"}).Draw(g.t, "number"))
	case 4, 5:
		return rapid.SampledFrom([]string{"", "a", "b", "ab", "ba", "é"}).Draw(g.t, "string")
	case 6, 7:
		list := make([]any, g.n(3))
		for i := range list {
			list[i] = g.value(depth - 1)
		}
		return list
	}
	obj := map[string]any{}
	for range g.n(3) {
		obj[rapid.SampledFrom([]string{"a", "b", "c", "ab", "zz"}).Draw(g.t, "key")] = g.value(depth - 1)
	}
	return obj
}

func (g valueGen) space() string {
	if g.n(3) > 0 {
		return ""
	}
	return rapid.SampledFrom([]string{" ", "\n", "\t", "\r\n", "  "}).Draw(g.t, "space")
}

func (g valueGen) spell(v any) string {
	var s string
	switch v := v.(type) {
	case nil:
		s = "null"
	case bool:
		s = fmt.Sprint(v)
	case json.Number:
		s = string(v)
		if g.n(2) == 0 {
			r := rapid.SampledFrom([]string{"e0", "E+0", ".0", "0e-1", "00E-02"}).Draw(g.t, "number spelling")
			switch {
			case r == ".0" && !strings.Contains(s, "."):
				s += r
			case strings.HasPrefix(r, "0") && strings.Contains(s, ".") && s != "0":
				s += r[:strings.IndexAny(r, "eE")]
			case strings.HasPrefix(r, "0") && s != "0":
				s += r
			case !strings.HasPrefix(r, "0") && r != ".0":
				s += r
			}
		}
	case string:
		s = g.quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = g.spell(e)
		}
		s = "[" + g.space() + strings.Join(parts, ",") + "]"
	case map[string]any:
		var parts []string
		for k, e := range v { // any order
			parts = append(parts, g.space()+g.quote(k)+g.space()+":"+g.spell(e))
		}
		s = "{" + g.space() + strings.Join(parts, ",") + "}"
	}
	return g.space() + s + g.space()
}

func (g valueGen) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if g.n(4) == 0 {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func compileOracle(schema string, d Draft) (*jsonschema.Schema, error) {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	switch d {
	case Draft04:
		c.DefaultDraft(jsonschema.Draft4)
	case Draft06:
		c.DefaultDraft(jsonschema.Draft6)
	case Draft07:
		c.DefaultDraft(jsonschema.Draft7)
	case Draft2019:
		c.DefaultDraft(jsonschema.Draft2019)
	default:
		c.DefaultDraft(jsonschema.Draft2020)
	}
	for _, name := range []string{ // which it would assert in drafts before 2019-09
		"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference",
		"iri", "iri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer", "period", "semver",
	} {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	if err := c.AddResource("file:///schema.json", v); err != nil {
		return nil, err
	}
	return c.Compile("file:///schema.json")
}

// counted draws a schema in which counts, names and denials of objects, or of
// arrays, stand in each other's way.
func (g schemaGen) counted(object bool) string {
	var parts []string
	leaf := func() string {
		return g.pick(`{"const":1}`, `{"type":"integer"}`, `{"enum":[1,2]}`, `true`, `false`, `{"type":"null"}`, `{"not":{"const":1}}`, `{"type":"boolean"}`)
	}
	n := func() string { return g.pick("0", "1", "2", "3") }
	var one func(depth int) string
	one = func(depth int) string {
		var parts []string
		list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		for _, k := range rapid.Permutation(list).Draw(g.t, "keywords")[:rapid.IntRange(1, 4).Draw(g.t, "n")] {
			add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
			switch {
			case k >= 8 && depth > 0:
				switch k {
				case 8:
					add(`"not":%s`, one(depth-1))
				case 9:
					add(`"oneOf":[%s,%s,%s]`, one(depth-1), one(depth-1), one(0))
				case 10:
					add(`"if":%s,"then":%s,"else":%s`, one(0), one(depth-1), one(depth-1))
				}
			case object:
				switch k {
				case 0:
					add(`"properties":{"a":%s,"b":%s}`, leaf(), leaf())
				case 1:
					add(`"required":[%s]`, g.pick(`"a"`, `"a","b"`, `"c"`))
				case 2:
					add(`"minProperties":%s`, n())
				case 3:
					add(`"maxProperties":%s`, n())
				case 4:
					add(`"additionalProperties":%s`, leaf())
				case 5:
					add(`"propertyNames":%s`, g.pick(`{"enum":["a","b"]}`, `{"enum":["b","c"]}`, `{"not":{"const":"a"}}`, `{"maxLength":1}`))
				case 6:
					add(`"patternProperties":{"^a":%s,"b$":%s}`, leaf(), leaf())
				case 7:
					add(`"unevaluatedProperties":%s`, leaf())
				}
			default:
				switch k {
				case 0:
					add(`"prefixItems":[%s,%s]`, leaf(), leaf())
				case 1:
					add(`"items":%s`, leaf())
				case 2:
					add(`"minItems":%s`, n())
				case 3:
					add(`"maxItems":%s`, n())
				case 4:
					add(`"contains":%s,"minContains":%s`, leaf(), n())
				case 5:
					add(`"contains":%s,"maxContains":%s`, leaf(), n())
				case 6:
					add(`"uniqueItems":true`)
				case 7:
					add(`"unevaluatedItems":%s`, leaf())
				}
			}
		}
		slices.Sort(parts)
		parts = slices.CompactFunc(parts, func(x, y string) bool { return x[:8] == y[:8] })
		return "{" + strings.Join(parts, ",") + "}"
	}
	for range rapid.IntRange(1, 3).Draw(g.t, "parts") {
		parts = append(parts, one(2))
	}
	return `{"allOf":[` + strings.Join(parts, ",") + `]}`
}

// TestCounted: as TestOracle, for schemas that are harder to complete; whether
// a text is alive must not change whether it is accepted.
func TestCounted(t *testing.T) {
	var values, fit, perhaps int
	var stuck []string
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.Bool().Draw(t, "object")
		schema := schemaGen{t, Draft2020}.counted(object)
		a := compileT(t, schema, Options{})
		o, err := compileOracle(schema, Draft2020)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		searched := false
		for range 20 {
			item := func() any {
				return rapid.SampledFrom([]any{json.Number("1"), json.Number("2"), json.Number("3"), nil, true, false}).Draw(t, "item")
			}
			var v any
			if n := rapid.IntRange(0, 4).Draw(t, "n"); object {
				obj := map[string]any{}
				for _, k := range rapid.Permutation([]string{"a", "b", "c", "ab", "d"}).Draw(t, "keys")[:n] {
					obj[k] = item()
				}
				v = obj
			} else {
				list := make([]any, n)
				for i := range list {
					list[i] = item()
				}
				v = list
			}
			text := valueGen{t}.spell(v)
			values++
			want, got := o.Validate(v), a.Check([]byte(text))
			agrees(t, a, []byte(text), got)
			if got == nil {
				fit++
			}
			if (want == nil) != (got == nil) {
				t.Fatalf("%s\n%s\nours: %v\noracle: %v", schema, text, got, want)
			}
			var stop *StopError
			if errors.As(got, &stop) && stop.Offset > 0 && !searched {
				searched = true // once a schema, it takes long
				fresh := compileT(t, schema, Options{})
				f := fresh.NewFollower()
				if err := f.Feed([]byte(text[:stop.Offset])); err != nil {
					t.Fatal(err)
				}
				if a.Undecided() > 0 {
					continue
				}
				if _, ok := complete(fresh, f.State(), 30_000); !ok {
					stuck = append(stuck, fmt.Sprintf("%s\n%q", schema, text[:stop.Offset]))
				}
			}
		}
		perhaps += min(1, a.Undecided())
	})
	t.Logf("%d values, %d fit; %d schemas with states perhaps alive, %d stops not completed", values, fit, perhaps, len(stuck))
	report(t, stuck, values)
}

// TestOracle: random schemas and values, by us and by santhosh-tekuri/jsonschema.
func TestOracle(t *testing.T) {
	var schemas, refused, loops, values, fit, perhaps int
	var stuck []string
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]Draft{Draft2020, Draft2020, Draft2020, Draft2019, Draft07, Draft06, Draft04}).Draw(t, "draft")
		schema := schemaGen{t, d}.whole(3)
		schemas++
		a, err := Compile(context.Background(), []byte(schema), Options{Draft: d})
		if err != nil {
			var r *RefusedError
			if errors.As(err, &r) && strings.Contains(r.Reason, "refers to itself") {
				loops++
				return
			}
			refused++
			if _, err2 := compileOracle(schema, d); err2 == nil {
				t.Fatalf("%s: %v", schema, err)
			}
			return
		}
		o, err := compileOracle(schema, d)
		if err != nil {
			t.Fatalf("%s: accepted, but the oracle says %v", schema, err)
		}
		g := valueGen{t}
		for range 12 {
			v := g.value(3)
			text := g.spell(v)
			values++
			want := o.Validate(v)
			got := a.Check([]byte(text))
			var stop *StopError
			if got != nil && !errors.As(got, &stop) {
				t.Fatalf("%s: %s: %v", schema, text, got)
			}
			if (got == nil) != (want == nil) {
				t.Fatalf("%v %s\n%s\nours: %v\noracle: %v", d, schema, text, got, want)
			}
			agrees(t, a, []byte(text), got)
			if got == nil {
				fit++
				continue
			}
			// What it is alive in can be completed, if that was certain.
			f := a.NewFollower()
			if err := f.Feed([]byte(text[:stop.Offset])); err != nil {
				continue // full
			}
			before := a.Undecided()
			end, ok := complete(a, f.State(), 3000)
			if !ok && before == 0 {
				end, ok = complete(a, f.State(), 60_000)
			}
			switch {
			case ok:
				whole := []byte(text[:stop.Offset] + end)
				_, twice := jsontext.Parse(whole, 512) // a key, which states don't know of
				if err := a.Check(whole); err != nil && twice == nil {
					t.Fatalf("%s: %q was completed by %q: %v", schema, text[:stop.Offset], end, err)
				}
			case before > 0:
				perhaps++
			case f.State() != 0:
				stuck = append(stuck, fmt.Sprintf("%v %s\n%q", d, schema, text[:stop.Offset]))
			}
		}
	})
	t.Logf("%d schemas, %d malformed, %d refer to themselves; %d values, %d fit; %d stops perhaps alive, %d not completed", schemas, refused, loops, values, fit, perhaps, len(stuck))
	report(t, stuck, values)
}

// report shows the states for which no completion was found. Some take longer
// to complete than was searched.
func report(t *testing.T, stuck []string, values int) {
	t.Helper()
	for _, s := range stuck {
		t.Logf("called alive, and nothing was found that completes it: %s", s)
	}
	if 500*len(stuck) > values {
		t.Error("too many of them")
	}
}

// complete searches for a text that leads from s to an accepting state, what
// is cheap to end first.
func complete(a *Automaton, s State, budget int) (string, bool) {
	if s == 0 {
		return "", false
	}
	seen := map[State]bool{s: true}
	queue := [][]ending{0: {{s, ""}}}
	for cost := 0; cost < len(queue); cost++ {
		for len(queue[cost]) > 0 && budget > 0 {
			p := queue[cost][0]
			queue[cost] = queue[cost][1:]
			if a.Accepting(p.s) {
				return p.text, true
			}
			budget--
			mo := a.row(p.s).mode
			for _, b := range []byte(`}],:"ntf0123456789{[abcdef.-lursz\x`) {
				n, err := a.Step(p.s, b)
				if err != nil || n == 0 || seen[n] {
					continue
				}
				seen[n] = true
				c := cost + 1
				switch {
				case mo == inNumber && b >= '0' && b <= '9', mo == inString && b != '"':
					c += 4
				case b == '[' || b == '{':
					c += 2
				case b == ',':
					c++
				case mo == inKey && a.row(n).config == a.row(p.s).config:
					c += 4
				}
				for len(queue) <= c {
					queue = append(queue, nil)
				}
				queue[c] = append(queue[c], ending{n, p.text + string(rune(b))})
			}
		}
	}
	return "", false
}

type ending struct {
	s    State
	text string
}
