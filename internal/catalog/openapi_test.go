package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

const petsYAML = `
openapi: 3.0.3
info: {title: Pet Shop, version: "1"}
paths:
  /pets/{id}:
    parameters:
      - {name: id, in: path, required: true, description: Which pet, schema: {type: integer, minimum: 0, exclusiveMinimum: true}}
    get:
      operationId: pets.get
      summary: Read a pet
      parameters:
        - {name: id, in: query, schema: {type: string, nullable: true, enum: [a, b]}}
        - {name: Authorization, in: header, schema: {type: string}}
        - $ref: '#/components/parameters/Trace'
    put:
      summary: Replace a pet
      description: All of it.
      requestBody:
        required: true
        content:
          text/plain: {schema: {type: string}}
          application/json: {schema: {$ref: '#/components/schemas/Pet'}}
  /broken:
    get:
      operationId: broken
      parameters:
        - {name: x, in: query, schema: {$ref: 'other.yaml#/X'}}
components:
  parameters:
    Trace: {name: X-Trace, in: header, schema: {type: string, example: abc}}
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        zebra: {type: boolean}
        id: {type: integer, readOnly: true}
        name: {$ref: '#/components/schemas/Name'}
        children: {type: array, items: {$ref: '#/components/schemas/Pet'}}
    Name: {type: string, maxLength: 20, x-hidden: 1}
`

func TestOpenAPI(t *testing.T) {
	c, problems, err := Load(t.Context(), write(t, t.TempDir(), "pets.yaml", petsYAML))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"pets_get": `{"type":"function","function":{"name":"pets_get","description":"Read a pet","parameters":{"type":"object","properties":{` +
			`"path_id":{"type":"integer","exclusiveMinimum":0,"description":"Which pet"},` +
			`"query_id":{"type":["string","null"],"enum":["a","b",null]},` +
			`"X-Trace":{"type":"string"}},"required":["path_id"]}}}`,
		"put_pets_id": `{"type":"function","function":{"name":"put_pets_id","description":"Replace a pet\nAll of it.","parameters":{"type":"object","properties":{` +
			`"id":{"type":"integer","exclusiveMinimum":0,"description":"Which pet"},` +
			`"body":{"$ref":"#/$defs/Pet"}},"required":["id","body"],"$defs":{` +
			`"Pet":{"type":"object","required":["name"],"properties":{"zebra":{"type":"boolean"},"name":{"type":"string","maxLength":20},` +
			`"children":{"type":"array","items":{"$ref":"#/$defs/Pet"}}}}}}}}`,
	}
	if c.Len() != len(want) {
		t.Errorf("%d tools", c.Len())
	}
	for _, tool := range c.Tools() {
		if string(tool.Raw) != want[tool.Name] {
			t.Errorf("%s:\n got %s\nwant %s", tool.Name, tool.Raw, want[tool.Name])
		}
		if tool.Server != "pet_shop" {
			t.Errorf("%s is of server %q", tool.Name, tool.Server)
		}
	}
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "GET /broken") || !strings.Contains(problems[0].Reason, "leaves the document") {
		t.Errorf("problems %v", problems)
	}
}

// Two schemas that each refer twice to the next double with every level when
// they are written out; then they stay references.
func TestOpenAPIExpansion(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"openapi":"3.1.0","info":{"title":"x"},"paths":{"/a":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/S0"}}}}}}},"components":{"schemas":{`)
	for i := range 30 {
		fmt.Fprintf(&b, `"S%d":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/S%d"},"b":{"$ref":"#/components/schemas/S%d","description":"other","maxProperties":3}}},`, i, i+1, i+1)
	}
	b.WriteString(`"S30":{"type":"string"}}}}`)
	c, problems, err := Load(t.Context(), write(t, t.TempDir(), "deep.json", b.String()))
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if n := len(c.Tools()[0].Raw); n > 10_000 {
		t.Errorf("%d bytes", n)
	}
	if !strings.Contains(string(c.Tools()[0].Raw), `"allOf":[{"$ref":"#/$defs/S1"},{"maxProperties":3}],"description":"other"`) {
		t.Errorf("what stands beside a reference is lost: %.600s", c.Tools()[0].Raw)
	}
}

func TestOpenAPIRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"swagger":"2.0","paths":{}}`:                                                           "convert it to 3.0 or 3.1",
		`{"openapi":"4.0.0","paths":{}}`:                                                         "3.0 and 3.1 are supported",
		`{"openapi":"3.0.0","paths":{}}`:                                                         "no usable tool",
		`{"openapi":"3.0.0","paths":{"/a":{"$ref":"#/paths/~1a"}}}`:                              "no usable tool",
		`{"openapi":"3.0.0","paths":{"/a":{"get":{"parameters":[{"$ref":"#/nowhere"}]}}}}`:       "no usable tool",
		`{"openapi":"3.0.0","paths":{"/a":{"get":{"parameters":[{"name":"x","in":"query"},1]}}}`: "byte",
	} {
		_, problems, err := Load(t.Context(), write(t, t.TempDir(), "a.json", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v", text, err, problems)
		}
	}
}

func TestYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [1.50, 1e3, 0x1f, ~, yes, 'no', 2020-01-02]": `{"a":1,"b":[1.50,1e3,31,null,"yes","no","2020-01-02"]}`,
		"z: &x {q: true}\na: *x":                               `{"z":{"q":true},"a":{"q":true}}`,
		"1: one":                                               `{"1":"one"}`,
	} {
		got, err := yamlToJSON([]byte(text), 1000)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v", text, got, err)
		}
		if !json.Valid(got) {
			t.Errorf("%s: not JSON", got)
		}
	}
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i, i, i)
	}
	for _, text := range []string{bomb, "a: .inf", "<<: {a: 1}", "? [a]\n: 1", "a: [", ""} {
		if got, err := yamlToJSON([]byte(text), 1<<20); err == nil {
			t.Errorf("%.40s: %s", text, got)
		}
	}
}

func FuzzOpenAPI(f *testing.F) {
	j, err := yamlToJSON([]byte(petsYAML), 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(j)
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := newLoader()
		if _, err := l.openAPI("f", "", raw); err != nil {
			var fe *FileError
			if !errors.As(err, &fe) {
				t.Fatalf("%T", err)
			}
		}
		for _, tool := range l.tools {
			if !json.Valid(tool.Raw) || checkName(tool.Name, DefaultLimits.NameBytes) != nil {
				t.Fatalf("%s", tool.Raw)
			}
		}
	})
}

func TestUnescapePointer(t *testing.T) {
	for tok, want := range map[string]string{"a~1b": "a/b", "~01": "~1", "%7Bid%7D": "{id}", "caf%C3%A9%24": "café$", "100%": "100%"} {
		if got := unescapePointer(tok); got != want {
			t.Errorf("%s: %s, not %s", tok, got, want)
		}
	}
}
