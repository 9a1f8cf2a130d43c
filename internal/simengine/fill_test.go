package simengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

type object = map[string]any

// drawSchema draws a schema that some value fits.
func drawSchema(t *rapid.T, depth int) object {
	kinds := []string{"string", "pattern", "format", "integer", "number", "multiple", "boolean", "null", "enum", "const", "types"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "object", "map", "array", "tuple", "set", "anyOf", "oneOf", "allOf", "ref", "if")
	}
	d := func(v any) any { return v }
	switch k := rapid.SampledFrom(kinds).Draw(t, "kind"); k {
	case "string":
		low := rapid.IntRange(0, 12).Draw(t, "low")
		return object{"type": "string", "minLength": low, "maxLength": low + rapid.IntRange(0, 9).Draw(t, "more")}
	case "pattern":
		return object{"type": "string", "pattern": rapid.SampledFrom([]string{
			"^[A-Z]{2,3}-\\d{1,4}$", "^(alpha|beta)+$", "[0-9a-f]{8}", "^\\+?[1-9]\\d{6,14}$", "^v\\d+\\.\\d+\\.\\d+$", "^[^@ ]+@[a-z]+\\.com$", "x",
		}).Draw(t, "pattern")}
	case "format":
		return object{"type": "string", "format": rapid.SampledFrom([]string{
			"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid", "json-pointer", "regex",
		}).Draw(t, "format")}
	case "integer":
		low := rapid.IntRange(-1000, 1000).Draw(t, "low")
		s := object{"type": "integer", "minimum": low}
		if rapid.Bool().Draw(t, "exclusive") {
			s = object{"type": "integer", "exclusiveMinimum": low - 1}
		}
		if rapid.Bool().Draw(t, "bounded") {
			s["maximum"] = low + rapid.IntRange(0, 5).Draw(t, "more")
		}
		return s
	case "number":
		low := rapid.Float64Range(-100, 100).Draw(t, "low")
		return object{"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + rapid.Float64Range(0.001, 10).Draw(t, "more")}
	case "multiple":
		step := rapid.SampledFrom([]any{5, 0.25, 7, 0.1, 100}).Draw(t, "step")
		return object{"type": rapid.SampledFrom([]string{"number", "integer"}).Draw(t, "type"), "multipleOf": step, "minimum": rapid.IntRange(-50, 50).Draw(t, "low")}
	case "boolean", "null":
		return object{"type": k}
	case "enum":
		return object{"enum": []any{"celsius", "fahrenheit", 3, nil, true, object{"a": 1}}[:rapid.IntRange(1, 6).Draw(t, "n")]}
	case "const":
		return object{"const": rapid.SampledFrom([]any{"fixed", 7, false, nil}).Draw(t, "const")}
	case "types":
		return object{"type": []string{"null", "string"}, "maxLength": 5}
	case "map":
		s := object{"type": "object", "additionalProperties": drawSchema(t, depth-1), "minProperties": rapid.IntRange(0, 3).Draw(t, "min")}
		if rapid.Bool().Draw(t, "names") {
			s["propertyNames"] = object{"pattern": "^[a-z]{3,8}\\d?$"}
		}
		return s
	case "array":
		low := rapid.IntRange(0, 3).Draw(t, "low")
		return object{"type": "array", "items": drawSchema(t, depth-1), "minItems": low, "maxItems": low + rapid.IntRange(0, 2).Draw(t, "more")}
	case "tuple":
		return object{"type": "array", "prefixItems": []any{drawSchema(t, depth-1), drawSchema(t, depth-1)}, "items": false, "minItems": rapid.IntRange(0, 2).Draw(t, "low")}
	case "set":
		s := object{"type": "array", "uniqueItems": true, "minItems": rapid.IntRange(0, 4).Draw(t, "low")}
		s["items"] = rapid.SampledFrom([]object{{"type": "string"}, {"type": "integer"}, {"enum": []any{"a", "b", "c", "d"}}}).Draw(t, "items")
		if rapid.Bool().Draw(t, "contains") && s["minItems"].(int) > 0 {
			s["items"] = object{"type": "integer"}
			s["contains"] = object{"minimum": 5}
		}
		return s
	case "anyOf", "oneOf":
		return object{k: []any{
			object{"type": "string", "maxLength": 8}, object{"type": "integer"}, object{"type": "null"},
			object{"type": "object", "properties": object{"v": drawSchema(t, depth-1)}, "required": []string{"v"}},
		}[rapid.IntRange(0, 3).Draw(t, "from"):]}
	case "allOf":
		return object{
			"allOf": []any{
				object{"type": "object", "properties": object{"a": drawSchema(t, depth-1)}, "required": []string{"a"}},
				object{"properties": object{"b": object{"type": "integer", "minimum": 3}}, "required": []string{"b"}},
			},
			"properties": object{"b": object{"maximum": 9}},
		}
	case "ref":
		return object{"$ref": rapid.SampledFrom([]string{"#/$defs/leaf", "#/$defs/tree", "#/$defs/list", "#here"}).Draw(t, "ref")}
	case "if":
		return object{
			"type": "object", "properties": object{"kind": object{"enum": []any{"card", "cash"}}, "number": object{"type": "string"}, "sum": object{"type": "integer"}},
			"required": []string{"kind"},
			"if":       object{"properties": object{"kind": object{"const": "card"}}},
			"then":     object{"required": []string{"number"}},
			"else":     object{"required": []string{"sum"}},
		}
	}
	props := object{}
	var required []string
	for i := range rapid.IntRange(0, 4).Draw(t, "properties") {
		name := fmt.Sprintf("%s_%d", rapid.SampledFrom([]string{"city", "user_id", "query", "date", "count", "tags"}).Draw(t, "name"), i)
		props[name] = d(drawSchema(t, depth-1))
		if rapid.Bool().Draw(t, "required") {
			required = append(required, name)
		}
	}
	s := object{"type": "object", "properties": props}
	if len(required) > 0 {
		s["required"] = required
		if rapid.Bool().Draw(t, "dependent") {
			props["extra"] = object{"type": "boolean"}
			s["dependentRequired"] = object{required[0]: []string{"extra"}}
		}
	}
	if rapid.Bool().Draw(t, "closed") {
		s["additionalProperties"] = false
	} else if rapid.Bool().Draw(t, "patterns") {
		s["patternProperties"] = object{"^x-": object{"type": "integer"}}
		s["required"] = append(required, "x-1")
	}
	return s
}

func drawParameters(t *rapid.T) []byte {
	s := drawSchema(t, 3)
	s["$defs"] = object{
		"leaf": object{"type": "string", "enum": []any{"north", "south"}},
		"tree": object{"type": "object", "properties": object{"value": object{"type": "integer"}, "next": object{"anyOf": []any{object{"type": "null"}, object{"$ref": "#/$defs/tree"}}}}, "required": []string{"value", "next"}, "additionalProperties": false},
		"list": object{"type": "array", "items": object{"$ref": "#/$defs/list"}},
		"any":  object{"$anchor": "here", "type": "boolean"},
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

const fillRequest = `Email "The report" to ada@example.com in Oslo by 2026-12-01, ticket ABC-42, 7 copies in celsius, see https://example.org/x`

// TestFillFits says that arguments fit, by another validator than the one
// which fill compiled, whatever the user said and for every seed.
func TestFillFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := drawParameters(t)
		n, err := parseNode(raw)
		if err != nil {
			t.Fatal(err)
		}
		said := rapid.SampledFrom([]string{"", fillRequest}).Draw(t, "said")
		value, ok := fill(n, said, rapid.Uint64().Draw(t, "seed"))
		if !ok {
			t.Fatalf("no value was found for %s; best guess %s", raw, value)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("test:schema", doc); err != nil {
			t.Fatal(err)
		}
		schema, err := c.Compile("test:schema")
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		got, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		if err != nil {
			t.Fatalf("%s is no JSON: %v", value, err)
		}
		if err := schema.Validate(got); err != nil {
			t.Fatalf("%s does not fit %s: %v", value, raw, err)
		}
	})
}

func TestFillTakesFromTheText(t *testing.T) {
	for _, tt := range []struct{ schema, want string }{
		{`{"type":"object","properties":{"to":{"type":"string","format":"email"}},"required":["to"]}`, `{"to": "ada@example.com"}`},
		{`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`, `{"city": "Oslo"}`},
		{`{"type":"object","properties":{"ticket_id":{"type":"string","pattern":"^[A-Z]+-\\d+$"}},"required":["ticket_id"]}`, `{"ticket_id": "ABC-42"}`},
		{`{"type":"object","properties":{"copies":{"type":"integer"}},"required":["copies"]}`, `{"copies": 7}`},
		{`{"type":"object","properties":{"unit":{"enum":["fahrenheit","celsius"]}},"required":[]}`, `{"unit": "celsius"}`},
		{`{"type":"object","properties":{"title":{"type":"string"},"due_date":{"type":"string"}},"required":["title","due_date"]}`, `{"title": "The report", "due_date": "2026-12-01"}`},
		{`{"type":"object","properties":{"url":{"type":"string"}},"required":["url"]}`, `{"url": "https://example.org/x"}`},
		{`{"type":"object","properties":{"b":{"type":"integer","minimum":3},"a":{"const":1}},"required":["a","b"]}`, `{"b": 7, "a": 1}`},
	} {
		n, err := parseNode([]byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := fill(n, fillRequest, 1)
		if !ok || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.schema, got, ok, tt.want)
		}
	}
}

// TestFillGivesUp: schemas without a value end, and are reported.
func TestFillGivesUp(t *testing.T) {
	for _, s := range []string{
		`{"not":{}}`,
		`{"type":"object","properties":{"a":false},"required":["a"]}`,
		`{"$ref":"#"}`,
		`{"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]}`,
		`{"type":"integer","minimum":5,"maximum":4}`,
		`{"allOf":[{"$ref":"#"}]}`,
		`{"type":"string","pattern":"(?=lookahead)x"}`,
	} {
		n, err := parseNode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := fill(n, "", 1); ok && s != `{"$ref":"#"}` && s != `{"allOf":[{"$ref":"#"}]}` && s != `{"type":"string","pattern":"(?=lookahead)x"}` {
			t.Errorf("%s: %s is said to fit", s, v)
		}
	}
}
