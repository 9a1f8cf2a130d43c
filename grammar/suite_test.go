package grammar

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSuite puts the official JSON-Schema-Test-Suite to Check, each schema as
// the one property of a tool in the open world, and derives from its grammar.
// Left out: schemas with references or ids, which mean another thing inside a
// property; refRemote; optional, among it format, which is an annotation here.
func TestSuite(t *testing.T) {
	total, schemas, exact := 0, 0, 0
	for _, d := range []struct{ folder, id string }{
		{"draft7", "http://json-schema.org/draft-07/schema#"}, {"draft2020-12", "https://json-schema.org/draft/2020-12/schema"},
	} {
		files := dataFiles(t, "schemas/json-schema-test-suite/tests/"+d.folder+"/*.json")
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var groups []struct {
				Description string
				Schema      json.RawMessage
				Tests       []struct {
					Description string
					Data        json.RawMessage
					Valid       bool
				}
			}
			if err := json.Unmarshal(raw, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				s := string(g.Schema)
				if strings.Contains(s, `Ref"`) || strings.Contains(s, `ref"`) || strings.Contains(s, `id"`) || filepath.Base(f) == "vocabulary.json" {
					continue
				}
				name := d.folder + "/" + filepath.Base(f) + ": " + g.Description
				tool := fmt.Sprintf(`{"$schema":%q,"type":"object","properties":{"v":%s}}`, d.id, s)
				c, err := Judge(Tool{name, json.RawMessage(tool)}, Open)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				schemas++
				if len(c.content.reasons) == 0 {
					exact++
				}
				for _, tt := range g.Tests {
					total++
					err := c.Check([]byte(`{"v": ` + string(tt.Data) + `}`))
					if (err == nil) != tt.Valid {
						t.Errorf("%s: %s: valid %v, got %v", name, tt.Description, tt.Valid, err)
					}
				}
				checkDerivations(t, c, 60)
				if closed, err := Judge(Tool{name, json.RawMessage(tool)}, Closed); err != nil {
					t.Errorf("%s: closed: %v", name, err)
				} else {
					checkDerivations(t, closed, 60)
				}
			}
		}
	}
	t.Logf("%d schemas (%d exact), %d verdicts", schemas, exact, total)
}

// TestDeriveRandom: random schemas with applicators in each other's way.
func TestDeriveRandom(t *testing.T) {
	exact, all := 0, 0
	rapid.Check(t, func(t *rapid.T) { // -rapid.checks=N for more than 100
		g := schemaGen{t}
		tool := fmt.Sprintf(`{"type":"object","properties":{"v":%s,"w":%s},"required":["v"],"$defs":{"d":%s,"e":%s}}`,
			g.schema(3), g.schema(2), g.schema(2), g.schema(1))
		for _, w := range []World{Closed, Open} {
			c, err := Judge(Tool{"t", json.RawMessage(tool)}, w)
			if err != nil {
				if strings.Contains(err.Error(), "refers to itself") {
					continue
				}
				t.Fatalf("%s: %v", tool, err)
			}
			all++
			if len(c.content.reasons) == 0 {
				exact++
			}
			before := c.name
			c2 := *c
			c2.name = before + " " + tool
			checkDerivations(t, &c2, 8)
		}
	})
	t.Logf("%d of %d exact", exact, all)
}

type schemaGen struct{ t *rapid.T }

func (g schemaGen) pick(from ...string) string { return rapid.SampledFrom(from).Draw(g.t, "pick") }

func (g schemaGen) schema(depth int) string {
	if depth <= 0 {
		return g.pick(`{"type":"string"}`, `{"type":"null"}`, `{"type":"boolean"}`, `{"type":"integer"}`, `{"const":"x"}`, `{"enum":["x","y",1,null]}`,
			`{"type":"string","maxLength":2}`, `{"type":"integer","minimum":0,"maximum":12}`, `{"type":"string","pattern":"^[xy]"}`, `false`, `true`,
			`{"type":"number","exclusiveMaximum":1.5}`, `{"$ref":"#/$defs/d"}`, `{"$ref":"#/$defs/e"}`)
	}
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	sub := func() string { return g.schema(depth - 1) }
	for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(1, 17), 1, 3, rapid.ID).Draw(g.t, "keywords") {
		switch k {
		case 1:
			add(`"type":%s`, g.pick(`"object"`, `"array"`, `"string"`, `["object","null"]`, `["integer","string"]`, `"number"`))
		case 2:
			add(`"properties":{%s:%s,%s:%s}`, `"a"`, sub(), g.pick(`"b"`, `"c"`), sub())
		case 3:
			add(`"required":[%s]`, g.pick(`"a"`, `"b"`, `"a","c"`, ``, `"z"`))
		case 4:
			add(`"additionalProperties":%s`, g.pick(`false`, `true`, sub()))
		case 5:
			add(`"anyOf":[%s,%s]`, sub(), sub())
		case 6:
			add(`"oneOf":[%s,%s]`, sub(), sub())
		case 7:
			add(`"allOf":[%s,%s]`, sub(), sub())
		case 8:
			add(`"$ref":"#/$defs/%s"`, g.pick("d", "e"))
		case 9:
			add(`"items":%s`, sub())
		case 10:
			add(`"prefixItems":[%s,%s]`, sub(), sub())
		case 11:
			add(`"minItems":%s`, g.pick("0", "1", "3"))
		case 12:
			add(`"maxItems":%s`, g.pick("0", "1", "3"))
		case 13:
			add(`"patternProperties":{"^[ab]":%s}`, sub())
		case 14:
			add(`"unevaluatedProperties":%s`, g.pick(`false`, sub()))
		case 15:
			add(`"enum":[1,"x",null,{"a":"x"},[1]]`)
		case 16:
			add(`%s`, g.pick(`"minLength":1`, `"maxLength":3`, `"minimum":1`, `"multipleOf":3`, `"uniqueItems":true`, `"minProperties":1`, `"maxProperties":1`))
		case 17:
			add(`%s`, g.pick(`"not":`+sub(), `"if":`+sub()+`,"then":`+sub(), `"dependentRequired":{"a":["b"]}`, `"contains":`+sub(), `"propertyNames":{"maxLength":1}`,
				`"dependentSchemas":{"a":`+sub()+`}`, `"unevaluatedItems":`+sub()))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}
