package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"pgregory.net/rapid"
)

const readBytes = `{"type":"object","properties":{"path":{"type":"string"},"offset_bytes":{"type":"integer","minimum":0},
"max_bytes":{"type":"integer","minimum":1,"maximum":1048576},"encoding":{"type":"string","enum":["utf-8","ascii"]}},"required":["path"],"additionalProperties":false}`

// TestEnvelope: what a model is told, in full. The first is the example of the
// specification.
func TestEnvelope(t *testing.T) {
	for _, tt := range []struct{ schema, args, errors string }{
		{readBytes, `{"path":"/a","max_bytes":2097152}`,
			`{"loc":["max_bytes"],"input_value":2097152,"error_type":"less_than_equal","message":"Input should be less than or equal to 1048576","expected_domain":"integer in range [1, 1048576]"}`},
		{readBytes, `{"verbose": true, "max_bytes":"many", "offset_bytes": -1, "encoding":"utf-16"}`,
			`{"loc":["verbose"],"input_value":null,"error_type":"extra_forbidden","message":"Extra inputs are not permitted","expected_domain":"keys encoding, max_bytes, offset_bytes, path"}` +
				`,{"loc":["path"],"input_value":null,"error_type":"missing","message":"Field required","expected_domain":"string"}` +
				`,{"loc":["max_bytes"],"input_value":"many","error_type":"int_type","message":"Input should be a valid integer","expected_domain":"integer in range [1, 1048576]"}` +
				`,{"loc":["offset_bytes"],"input_value":-1,"error_type":"greater_than_equal","message":"Input should be greater than or equal to 0","expected_domain":"integer of at least 0"}` +
				`,{"loc":["encoding"],"input_value":"utf-16","error_type":"enum","message":"Input should be \"utf-8\" or \"ascii\"","expected_domain":"one of \"utf-8\", \"ascii\""}`},
		{`{"properties":{"a":{"type":"array","items":{"type":"object","properties":{"n":{"type":"number","exclusiveMinimum":0,"maximum":1.5}}}}}}`,
			`{"a":[{"n":1},{"n": 2}]}`,
			`{"loc":["a",1,"n"],"input_value":2,"error_type":"less_than_equal","message":"Input should be less than or equal to 1.5","expected_domain":"number in range (0, 1.5]"}`},
		{`{"properties":{"v":{"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]}}}`, `{"v":7}`,
			`{"loc":["v"],"input_value":7,"error_type":"anyOf","message":"Input fits none of the alternatives","expected_domain":"string of at most 3 characters or null"}`},
		{`{"properties":{"v":{"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]}}}`, `{"v":"four"}`,
			`{"loc":["v"],"input_value":"four","error_type":"string_too_long","message":"String should have at most 3 characters, not 4","expected_domain":"string of at most 3 characters"}`},
		{`{"properties":{"h":{"type":"string","pattern":"^[0-9a-f]{40}$"}}}`, `{"h":"HEAD~"}`,
			`{"loc":["h"],"input_value":"HEAD~","error_type":"string_pattern_mismatch","message":"String should match pattern '^[0-9a-f]{40}$'","expected_domain":"string matching ^[0-9a-f]{40}$"}`},
		{`{"properties":{"l":{"type":"array","items":{"$ref":"#/$defs/s"},"minItems":2,"uniqueItems":true}},"$defs":{"s":{"type":"string","minLength":1}}}`, `{"l":[""]}`,
			`{"loc":["l"],"input_value":[""],"error_type":"too_short","message":"List should have at least 2 items, not 1","expected_domain":"array of at least 2 items, all different, each string of at least 1 character"}` +
				`,{"loc":["l",0],"input_value":"","error_type":"string_too_short","message":"String should have at least 1 character, not 0","expected_domain":"string of at least 1 character"}`},
		{`{"properties":{"a":{},"b":{"type":"integer"}},"dependentRequired":{"a":["b"]}}`, `{"a":1}`,
			`{"loc":["b"],"input_value":null,"error_type":"missing","message":"Field required beside \"a\"","expected_domain":"integer"}`},
		{`{"properties":{"a":{"type":"string"}},"allOf":[{"properties":{"b":{}}}]}`, `{"c":1}`,
			`{"loc":["c"],"input_value":1,"error_type":"extra_forbidden","message":"Extra inputs are not permitted","expected_domain":"nothing here"}`},
		{readBytes, `{"path":"/a"`,
			`{"loc":[],"input_value":"{\"path\":\"/a\"","error_type":"json_syntax","message":"byte 12: the text ends where ',' or '}' should follow","expected_domain":"one JSON object"}`},
		{readBytes, `["/a"]`,
			`{"loc":[],"input_value":["/a"],"error_type":"object_type","message":"Input should be an object","expected_domain":"object"}`},
	} {
		all := compileTest(t, tt.schema, Closed).Misfits([]byte(tt.args), true)
		got := string(Envelope("fs_read_bytes", all...))
		want := fmt.Sprintf(`{"status":"validation_error","tool_name":"fs_read_bytes","error_count":%d,"errors":[%s]}`, strings.Count(tt.errors, `{"loc"`), tt.errors)
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", tt.args, got, want)
		}
	}
}

// TestEnvelopeByHand: a misfit that no check made keeps its words.
func TestEnvelopeByHand(t *testing.T) {
	m := &Misfit{Loc: "/a~1b/0", InputValue: `{"x": 1}`, ErrorType: "policy", Message: "not today", Expected: "tomorrow", Offset: -1}
	want := `{"status":"validation_error","tool_name":"t\"","error_count":1,"errors":[{"loc":["a/b","0"],"input_value":{"x":1},"error_type":"policy","message":"not today","expected_domain":"tomorrow"}]}`
	if got := string(m.Envelope(`t"`)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestMisfitsDeterministic: the same misfits in the same words, each time.
func TestMisfitsDeterministic(t *testing.T) {
	c := compileTest(t, `{"properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"properties":{"d":{"minimum":3,"multipleOf":2}}},"e":{"maxLength":1}},"dependentRequired":{"a":["x"],"b":["y"]},"propertyNames":{"maxLength":1}}`, Open)
	args := []byte(`{"e":"ab","b":"x","c":{"d":1},"a":"y","long":1,"longer":2}`)
	first := string(Envelope("t", c.Misfits(args, true)...))
	one := c.Check(args).Error()
	for range 100 {
		if again := string(Envelope("t", c.Misfits(args, true)...)); again != first {
			t.Fatalf("%s\n%s", first, again)
		}
		if again := c.Check(args).Error(); again != one {
			t.Fatalf("%s\n%s", one, again)
		}
	}
}

// TestEnvelopeProperties: valid JSON, at most 4 KB, there if and only if Check
// refuses, with as many errors as it counts, or 8, or those that find room.
func TestEnvelopeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := schemaGen{t}
		schema := fmt.Sprintf(`{"type":"object","properties":{"a":%s,"b":%s},"required":["b"],"$defs":{"d":%s,"e":%s}}`, g.schema(3), g.schema(2), g.schema(2), g.schema(1))
		c, err := Judge(Tool{"t", []byte(schema)}, Closed)
		if err != nil {
			t.Skip(err)
		}
		args := []byte(`{"a":` + jsonGen(t, 3) + `,` + string(jsontext.AppendString(nil, rapid.String().Draw(t, "key"))) + `:` + jsonGen(t, 2) + `}`)
		all := c.Misfits(args, true)
		if (c.Check(args) == nil) != (len(all) == 0) {
			t.Fatalf("check %v, misfits %v", c.Check(args), all)
		}
		if len(all) > 0 {
			checkEnvelope(t, Envelope("t", all...))
		}
	})
}

func checkEnvelope(t fataler, raw []byte) {
	t.Helper()
	var e struct {
		Status string `json:"status"`
		Count  int    `json:"error_count"`
		Errors []struct {
			Loc      []any           `json:"loc"`
			Input    json.RawMessage `json:"input_value"`
			Type     string          `json:"error_type"`
			Message  string          `json:"message"`
			Expected string          `json:"expected_domain"`
		} `json:"errors"`
	}
	if err := json.Unmarshal(raw, &e); err != nil || len(raw) > maxEnvelope {
		t.Fatalf("%d bytes, %v: %s", len(raw), err, raw)
	}
	if e.Status != "validation_error" || len(e.Errors) == 0 || len(e.Errors) > e.Count || len(e.Errors) > maxEnvelopeErrors || len(e.Errors) < min(e.Count, 2) {
		t.Fatalf("%s", raw)
	}
	for _, x := range e.Errors {
		if x.Type == "" || x.Message == "" || x.Expected == "" || len(x.Input) == 0 {
			t.Fatalf("%+v in %s", x, raw)
		}
	}
}

func jsonGen(t *rapid.T, depth int) string {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return "null"
	case 1:
		return rapid.SampledFrom([]string{"0", "-1", "1.5", "12", "1e3", "7"}).Draw(t, "number")
	case 2:
		return string(jsontext.AppendString(nil, rapid.StringN(0, 200, -1).Draw(t, "text")))
	case 3:
		return "true"
	case 4:
		return "[" + jsonGen(t, depth-1) + "," + jsonGen(t, depth-1) + "]"
	}
	return `{"a":` + jsonGen(t, depth-1) + `,"z\u0000":` + jsonGen(t, depth-1) + `}`
}

// TestEnvelopeBounds: arguments made to make it long.
func TestEnvelopeBounds(t *testing.T) {
	key := strings.Repeat("\x01é", 100)
	deep := `{"type":"object","properties":{"v":{"$ref":"#/$defs/n"}},"$defs":{"n":{"additionalProperties":{"$ref":"#/$defs/n"},"maxProperties":1,"type":"object"}}}`
	c := compileTest(t, deep, Closed)
	q := string(jsontext.AppendString(nil, key))
	args := strings.Repeat(`{`+q+`:`, 40) + `"` + strings.Repeat(`\u0001`, 500) + `"` + strings.Repeat("}", 40)
	wide := `{"v":{`
	for i := range 20 {
		if i > 0 {
			wide += ","
		}
		wide += fmt.Sprintf(`"%d":%s`, i, args)
	}
	wide += `},` + q + `:1}`
	all := c.Misfits([]byte(wide), true)
	raw := Envelope(key, all...)
	checkEnvelope(t, raw)
	if !strings.Contains(string(raw), `"error_count":22`) {
		t.Errorf("%s", raw)
	}
}

// FuzzMisfits: Check and Misfits agree, and what refuses has an envelope.
func FuzzMisfits(f *testing.F) {
	f.Add(readBytes, `{"path":1,"x":[2]}`)
	f.Add(`{"anyOf":[{"$ref":"#"},{"required":["a"]}],"dependentRequired":{"a":["b"]}}`, `{"a":{"b":"`+"\x80"+`"}}`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		c, err := Judge(Tool{"t", []byte(schema)}, Closed)
		if err != nil {
			return
		}
		all := c.Misfits([]byte(args), true)
		if (c.Check([]byte(args)) == nil) != (len(all) == 0) {
			t.Fatalf("check %v, misfits %v", c.Check([]byte(args)), all)
		}
		if len(all) > 0 {
			checkEnvelope(t, Envelope("t", all...))
		}
	})
}

func TestMisfitsOfValues(t *testing.T) {
	for _, tt := range []struct {
		schema, text string
		fits         bool
	}{
		{`{"type":"integer"}`, ` 3 `, true},
		{`{"type":"integer"}`, `3.5`, false},
		{`{"type":"integer"}`, `{}`, false},
		{`false`, `1`, false},
		{`{"enum":[[1]]}`, `[1.0]`, true},
		{`{"enum":[[1]]}`, `[1`, false},
	} {
		c := compileTest(t, tt.schema, Open)
		if all := c.Misfits([]byte(tt.text), false); (len(all) == 0) != tt.fits {
			t.Errorf("%s under %s: %v", tt.text, tt.schema, all)
		}
	}
}

// TestSuiteBare puts the official suites to bare schemas as sidecar check does,
// references, anchors and ids included. Left out are the optional files, format
// among them. What isn't right must be refused by name.
func TestSuiteBare(t *testing.T) {
	for _, draft := range []struct{ folder, schema string }{
		{"draft7", "http://json-schema.org/draft-07/schema#"}, {"draft2020-12", ""},
	} {
		files := dataFiles(t, "schemas/json-schema-test-suite/tests/"+draft.folder+"/*.json")
		right := 0
		var refused []string
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
				if s := bytes.TrimSpace(g.Schema); draft.schema != "" && s[0] == '{' && !bytes.Contains(s, []byte("\"$schema\"")) {
					g.Schema = append([]byte(`{"$schema":"`+draft.schema+`"`+map[bool]string{true: "", false: ","}[bytes.Equal(bytes.TrimSpace(s[1:]), []byte("}"))]), s[1:]...)
				}
				name := filepath.Base(f) + ": " + g.Description
				c, err := Judge(Tool{name, g.Schema}, Open)
				if err != nil {
					refused = append(refused, err.Error())
					continue
				}
				for _, tt := range g.Tests {
					all := c.Misfits(tt.Data, false)
					if (len(all) == 0) != tt.Valid {
						t.Errorf("%s %s: %s: valid %v, got %v", draft.folder, name, tt.Description, tt.Valid, all)
						continue
					}
					right++
					if len(all) > 0 {
						checkEnvelope(t, Envelope(name, all...))
					}
				}
			}
		}
		t.Logf("%s: %d right, %d schemas refused", draft.folder, right, len(refused))
		for _, r := range refused { // other documents, which nobody gave
			if !strings.Contains(r, "given documents") {
				t.Error(r)
			}
		}
	}
}

// TestLargeValueIsShownShort: a listed value of any size is looked at as far as
// it is shown, for each place where it doesn't fit.
func TestLargeValueIsShownShort(t *testing.T) {
	items := "0" + strings.Repeat(",0", 50_000)
	c, err := Compile(Tool{"f", []byte(`{"properties":{"a":{"items":{"enum":[[` + items + `]]}}}}`)}, Open)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"a":[` + items + `]}`)
	allocs := testing.AllocsPerRun(1, func() {
		if m := (*Misfit)(nil); !errors.As(c.Check(text), &m) || m.Loc != "/a/0" || len(m.Expected) > 1000 {
			t.Errorf("%v", m)
		}
	})
	if most := 10e6; allocs > most {
		t.Errorf("%.0f allocations, at most %.0f", allocs, most)
	}
	t.Logf("%.0f allocations", allocs)
}
