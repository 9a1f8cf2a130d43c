package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFillDefaults(t *testing.T) {
	const read = `{"type":"object","properties":{"path":{"type":"string","default":"/"},"offset_bytes":{"type":"integer","default":0,"minimum":0},
		"max_bytes":{"type":"integer","minimum":1,"maximum":1048576,"default":65536},"encoding":{"enum":["utf-8","ascii"],"default":"utf-8"}},"required":["path"]}`
	nested := `{"properties":{"opt":{"type":"object","properties":{"n":{"default":1e2},"s":{"default":"é\"\n"}}},
		"list":{"type":"array","items":{"$ref":"#/$defs/row"}},"map":{"additionalProperties":{"$ref":"#/$defs/row"}},"tail":{"$ref":"#/$defs/row","default":{"k":[]}}},
		"$defs":{"row":{"type":"object","properties":{"z":{"default":null},"a":{"$ref":"#/$defs/num"}}},"num":{"type":"number","default":0.10}}}`
	for _, tt := range []struct{ schema, args, want string }{
		{read, `{"path":"/a"}`, `{"path":"/a", "offset_bytes": 0, "max_bytes": 65536, "encoding": "utf-8"}`},
		{read, ` { "max_bytes" : 1 ,"path":"/a" } `, ` { "max_bytes" : 1 ,"path":"/a", "offset_bytes": 0, "encoding": "utf-8" } `},
		{read, `{}`, `{"offset_bytes": 0, "max_bytes": 65536, "encoding": "utf-8"}`}, // required is the model's
		{read, `{"offset_bytes":null,"max_bytes":"x","encoding":""}`, `{"offset_bytes":null,"max_bytes":"x","encoding":""}`},
		{read, `{"\u006dax_bytes":1}`, `{"\u006dax_bytes":1, "offset_bytes": 0, "encoding": "utf-8"}`},
		{nested, `{"opt": { } ,"list":[{},{"a":1},7],"map":{"x":{"z":1}},"tail":1}`,
			`{"opt": {"n": 1e2, "s": "é\"\n" } ,"list":[{"z": null, "a": 0.10},{"a":1, "z": null},7],"map":{"x":{"z":1, "a": 0.10}},"tail":1}`},
		{nested, `{}`, `{"tail": {"k": [], "z": null, "a": 0.10}}`},
		{`{"allOf":[{"properties":{"a":{"default":1}}},{"properties":{"a":{"default":2},"b":{"default":3}}}],"properties":{"c":{"default":4}}}`, `{}`, `{"c": 4, "a": 1, "b": 3}`},
		{`{"anyOf":[{"properties":{"a":{"default":1}}}],"patternProperties":{"x":{"properties":{"y":{"default":1}}}}}`, `{"x":{}}`, `{"x":{}}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"items":[{"properties":{"x":{"default":1}}}],"additionalItems":{"properties":{"y":{"default":2}}}}}}`,
			`{"a":[{},{},{}]}`, `{"a":[{"x": 1},{"y": 2},{"y": 2}]}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/a","default":1}},"definitions":{"a":{"default":2}}}`, `{}`, `{"a": 1}`},
		{`{"properties":{"a":{"prefixItems":[{"properties":{"x":{"default":1}}}],"items":{"properties":{"y":{"default":2}}}}}}`, `{"a":[{},{}]}`, `{"a":[{"x": 1},{"y": 2}]}`},
		{``, `{"a":1}`, `{"a":1}`},
		{`true`, `{}`, `{}`},
	} {
		got, err := FillDefaults([]byte(tt.schema), []byte(tt.args))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s\n got %s, %v\nwant %s", tt.args, got, err, tt.want)
		}
	}
}

func TestFillDefaultsRefuses(t *testing.T) {
	for _, tt := range []struct{ schema, args, want string }{
		{`{"properties":{"n":{"type":"integer","default":"ten"}}}`, `{}`, `#/properties/n/default: "ten" does not fit its own schema: is string where integer should be`},
		{`{"properties":{"n":{"type":"integer","default":"ten"}}}`, `{"n":1}`, ``}, // not due
		{`{"properties":{"o":{"properties":{"n":{"maximum":3}},"default":{"n":4}}}}`, `{}`, `#/properties/o/default: {"n": 4} does not fit its own schema: /n is above 3`},
		{`{"properties":{"o":{"properties":{"n":{"$ref":"#/$defs/n"}}}},"$defs":{"n":{"type":"string","default":1}}}`, `{"o":{}}`, `#/$defs/n/default: 1 does not fit`},
		{`{"properties":{"c":{"$ref":"#","default":{}}}}`, `{}`, `#/properties/c/default: defaults hold one another without end`},
		{`{"properties":{"a":{"$ref":"#/$defs/n","default":{}},"b":{"$ref":"#/$defs/n","default":{}}},"$defs":{"n":{"properties":{"x":{"default":"` + strings.Repeat("x", 5000) + `"},"l":{"items":{"$ref":"#/$defs/n"},"default":[{},{},{},{},{}]}}}}}`, `{}`, `defaults `},
		{`{"properties":{"a":{},"b":{"default":1}},"dependentRequired":{"b":["c"]}}`, `{"a":1}`, `#/properties/b/default: with the defaults put in, the arguments no longer fit: arguments: has "b" and lacks "c"`},
		{`{"properties":{"a":{},"b":{"default":1}},"maxProperties":1}`, `{"a":1}`, `no longer fit`},
	} {
		got, err := FillDefaults([]byte(tt.schema), []byte(tt.args))
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.schema, err)
			}
			continue
		}
		var de *DefaultError
		if got != nil || !errors.As(err, &de) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s, %v; want %s", tt.schema, got, err, tt.want)
		}
	}
	var m *Misfit
	for _, args := range []string{``, `[]`, `{"a":1,"a":2}`, `{"a":`} {
		if _, err := FillDefaults([]byte(`{}`), []byte(args)); !errors.As(err, &m) {
			t.Errorf("%q: %v", args, err)
		}
	}
	var se *SchemaError
	if _, err := FillDefaults([]byte(`{"type":7}`), []byte(`{}`)); !errors.As(err, &se) {
		t.Error(err)
	}
}

// TestFillDefaultsProperties: what was there stays there, byte for byte and in
// order; what fits still fits; filling again changes nothing.
func TestFillDefaultsProperties(t *testing.T) {
	filled := 0
	rapid.Check(t, func(t *rapid.T) {
		g := schemaGen{t}
		dflt := func() string { return `"default":` + jsonGen(t, 2) }
		sub := func() string {
			s := g.schema(2)
			if s[0] != '{' || !rapid.Bool().Draw(t, "default") {
				return s
			}
			return strings.TrimSuffix(s, "}") + map[bool]string{true: "", false: ","}[s == "{}"] + dflt() + "}"
		}
		schema := fmt.Sprintf(`{"type":"object","properties":{"a":%s,"p":{%s},"q":{"type":"object","properties":{"r":%s,"a":{%s}}}},"$defs":{"d":%s,"e":%s}}`,
			sub(), dflt(), sub(), dflt(), sub(), g.schema(1))
		args := fmt.Sprintf(` {"q" : %s,"a": %s } `, jsonGen(t, 3), jsonGen(t, 3))
		c, err := Compile(Tool{"t", []byte(schema)}, Open)
		if err != nil {
			t.Skip(err)
		}
		out, err := c.FillDefaults([]byte(args))
		if err != nil {
			return
		}
		filled++
		if c.Check([]byte(args)) == nil && c.Check(out) != nil {
			t.Fatalf("%s: %s no longer fits: %s", schema, args, out)
		}
		again, err := c.FillDefaults(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%s: %s, then %s, %v", schema, out, again, err)
		}
		// The bytes of args are a subsequence of those of out; and so are values.
		rest := out
		for _, b := range []byte(args) {
			i := bytes.IndexByte(rest, b)
			if i < 0 {
				t.Fatalf("%s lost bytes of %s", out, args)
			}
			rest = rest[i+1:]
		}
		var before, after any
		if json.Unmarshal([]byte(args), &before) != nil || json.Unmarshal(out, &after) != nil || !extends(before, after) {
			t.Fatalf("%s: %s became %s", schema, args, out)
		}
	})
	if filled < 10 {
		t.Errorf("only %d filled", filled)
	}
}

// extends tells whether a is b but for members that b has in addition.
func extends(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		m, ok := b.(map[string]any)
		for k, v := range a {
			ok = ok && extends(v, m[k])
		}
		return ok
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return false
		}
		for i := range a {
			if !extends(a[i], l[i]) {
				return false
			}
		}
		return true
	}
	return a == b
}

func FuzzFillDefaults(f *testing.F) {
	f.Add(`{"properties":{"a":{"default":{}},"b":{"items":{"$ref":"#"}}}}`, `{"b":[{}, {"a":1}]}`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		out, err := FillDefaults([]byte(schema), []byte(args))
		if err != nil {
			return
		}
		again, err := FillDefaults([]byte(schema), out)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("%q, then %q, %v", out, again, err)
		}
	})
}
