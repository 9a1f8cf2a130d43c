package accept

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func compileT(t interface {
	Helper()
	Fatalf(string, ...any)
}, schema string, o Options) *Automaton {
	t.Helper()
	a, err := Compile(context.Background(), []byte(schema), o)
	if err != nil {
		t.Fatalf("%.300s: %v", schema, err)
	}
	return a
}

// TestMalformed: what is wrong with a schema, and where.
func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		draft                        Draft
		schema, path, keyword, wants string
	}{
		{Draft2020, `{"type":12}`, "", "type", "12 where a type"},
		{Draft2020, `{"type":["string","string"]}`, "", "type", "different types"},
		{Draft2020, `{"properties":{"a/b":{"minLength":-1}}}`, "/properties/a~1b", "minLength", "-1 where an integer"},
		{Draft2020, `{"items":[{}]}`, "", "items", "an array where a schema"},
		{Draft2020, `{"allOf":[]}`, "", "allOf", "an empty array where"},
		{Draft2020, `{"allOf":[{"not":3}]}`, "/allOf/0", "not", "3 where a schema"},
		{Draft2020, `{"required":["a","a"]}`, "", "required", "different strings"},
		{Draft2020, `{"pattern":"("}`, "", "pattern", "pattern"},
		{Draft2020, `{"patternProperties":{"(":{}}}`, "/patternProperties", "(", "pattern"},
		{Draft2020, `{"pattern":"(a)\\1"}`, "", "pattern", "back"},
		{Draft2020, `{"multipleOf":0}`, "", "multipleOf", "above 0"},
		{Draft2020, `{"minimum":1e99999}`, "", "minimum", "beyond"},
		{Draft2020, `{"$ref":"#/$defs/x"}`, "", "$ref", "nothing is at"},
		{Draft2020, `{"$ref":"#x"}`, "", "$ref", "no anchor"},
		{Draft2020, `{"$ref":"other.json"}`, "", "$ref", "not among the given documents"},
		{Draft2020, `{"$ref":"#/$defs/a","$defs":{"a":3}}`, "/$defs/a", "", "3 where a schema"},
		{Draft2020, `{"$schema":"https://example.com/unknown"}`, "", "$schema", "no draft"},
		{Draft2020, `{"$schema":"http://json-schema.org/draft-03/schema#"}`, "", "$schema", "no draft"},
		{Draft2020, `{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`, "/$defs/b", "$id", "another schema"},
		{Draft2020, `{"allOf":[{"$ref":"#"}]}`, "", "", "refers to itself"},
		{Draft2020, `{"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`, "/$defs/a", "", "refers to itself"},
		{Draft2020, `[]`, "", "", "where a schema"},
		{Draft2020, `{"a":1,"a":2}`, "", "", "twice"},
		{Draft2020, `{`, "", "", "not JSON"},
		{Draft04, `{"exclusiveMinimum":3}`, "", "exclusiveMinimum", "true or false"},
		{Draft04, `{"required":[]}`, "", "required", "not empty"},
		{Draft04, `{"not":true}`, "", "not", "true where a schema"},
		{Draft07, `{"exclusiveMinimum":true}`, "", "exclusiveMinimum", "a number"},
		{Draft07, `{"items":[]}`, "", "items", "a schema or an array"},
		{Draft06, `{"$id":"http://a/","definitions":{"b":{"$ref":"c"}},"allOf":[{"$ref":"#/definitions/b"}]}`, "/definitions/b", "$ref", "http://a/c"},
	} {
		_, err := Compile(context.Background(), []byte(c.schema), Options{Draft: c.draft})
		var r *RefusedError
		if !errors.As(err, &r) {
			t.Errorf("%v %s: %v", c.draft, c.schema, err)
			continue
		}
		if r.Path != c.path || r.Keyword != c.keyword || !strings.Contains(r.Reason, c.wants) {
			t.Errorf("%v %s: %q %q %q", c.draft, c.schema, r.Path, r.Keyword, r.Reason)
		}
	}
}

const openAPI = `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{},"components":{"schemas":{
	"Pet":{"type":"object","required":["name"],"properties":{"name":{"$ref":"#/components/schemas/Name"}},"xml":{"name":"pet"}},
	"Name":{"type":"string","nullable":true},
	"Tagged":{"$ref":"#/components/schemas/Pet","required":["tag"]}}}}`

// bundle holds schemas that are found by an $id of their own, and one that is
// no schema at all.
var bundle = map[string][]byte{
	"http://a/bad.json":    []byte(`{"type":7,"$id":"http://bad/"}`),
	"http://a/bundle.json": []byte(`{"$defs":{"x":{"$id":"http://b/x.json","type":"null","$defs":{"i":{"$anchor":"in","type":"string"}}}}}`),
	"http://a/moved.json":  []byte(`{"$id":"http://c/y.json","$defs":{"z":{"type":"boolean"}}}`),
}

// TestDrafts: what a keyword means in one draft and not in another.
func TestDrafts(t *testing.T) {
	for _, c := range []struct {
		o       Options
		schema  string
		yes, no string // texts, by |
	}{
		{Options{Draft: Draft04}, `{"minimum":1,"exclusiveMinimum":true}`, `2|1.1|"a"`, `1|1.0|10e-1`},
		{Options{Draft: Draft04}, `{"const":1,"contains":{"type":"null"},"if":{},"then":{"type":"null"}}`, `2|[]`, ``},
		{Options{Draft: Draft06}, `{"const":1}`, `1|1.0|1e0|10E-1`, `2`},
		{Options{Draft: Draft06}, `{"if":{},"then":{"type":"null"}}`, `2`, ``},
		{Options{Draft: Draft07}, `{"$ref":"#/definitions/a","type":"null","definitions":{"a":{"type":"string"}}}`, `"a"`, `null`},
		{Options{Draft: Draft2019}, `{"$ref":"#/$defs/a","maxLength":1,"$defs":{"a":{"type":"string"}}}`, `"a"`, `null|"ab"`},
		{Options{Draft: Draft2019}, `{"items":[{"type":"null"}],"unevaluatedItems":false}`, `[null]|[]`, `[null,1]|[1]`},
		{Options{Draft: Draft2019}, `{"contains":{"type":"null"},"unevaluatedItems":false}`, ``, `[null]|[]`},
		{Options{Draft: Draft2020}, `{"contains":{"type":"null"},"unevaluatedItems":false}`, `[null]|[null,null]`, `[null,1]|[]`},
		{Options{Draft: Draft2019}, `{"$id":"http://a/root","$recursiveAnchor":true,"properties":{"next":{"$ref":"tree"}},"required":["v"],"$defs":{"tree":{"$id":"tree","$recursiveAnchor":true,"properties":{"kids":{"items":{"$recursiveRef":"#"}}}}}}`,
			`{"v":1}|{"v":1,"next":{"kids":[{"v":2}]}}`, `{}|{"v":1,"next":{"kids":[{}]}}`},
		{Options{Draft: Draft2020}, `{"dependentRequired":{"a":["b"]}}`, `{"b":1}|{"b":1,"a":1}|{"a":1,"b":1}|[]`, `{"a":1}`},
		{Options{Draft: OpenAPI31}, `{"discriminator":{"propertyName":"k"},"example":3,"xml":{},"type":["string","null"]}`, `null|"a"`, `3`},
		{Options{Draft: OpenAPI31}, `{"$schema":"https://spec.openapis.org/oas/3.1/dialect/base","prefixItems":[{"type":"null"}]}`, `[null,1]`, `[1]`},
		{Options{Draft: OpenAPI31}, `{"type":"string","nullable":true}`, `"a"`, `null`},
		{Options{Draft: OpenAPI31}, `{"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"discriminator":{"propertyName":"k","mapping":{"x":"#/$defs/a"}},"$defs":{"a":{"required":["a"]},"b":{"required":["b"]}}}`,
			`{"a":1,"k":"y"}|{"b":1,"k":"x"}`, `{"a":1,"b":1}|{"k":"x"}`},
		{Options{Draft: OpenAPI31}, `{"exclusiveMinimum":1,"$defs":{"a":{"example":{"type":7}}}}`, `2`, `1`},
		{Options{Draft: OpenAPI31, Documents: map[string][]byte{"http://a/openapi.json": []byte(openAPI)}}, `{"$ref":"http://a/openapi.json#/components/schemas/Pet"}`, `{"name":"x"}`, `{}|{"name":null}|{"name":1}`},
		{Options{Draft: OpenAPI31, Base: "http://a/openapi.json", Documents: map[string][]byte{"http://a/old.json": []byte(strings.Replace(openAPI, `{`, `{"jsonSchemaDialect":"http://json-schema.org/draft-07/schema#",`, 1))}},
			`{"$ref":"old.json#/components/schemas/Tagged"}`, `{"name":"x"}|{"name":"x","tag":1}`, `{}`},
		{Options{Draft: OpenAPI31, Documents: map[string][]byte{"http://a/openapi.json": []byte(openAPI)}}, `{"$ref":"http://a/openapi.json#/components/schemas/Tagged"}`, `{"name":"x","tag":"t"}`, `{"name":"x"}`},
		{Options{Draft: Draft07}, `{"contentEncoding":"base64","contentMediaType":"application/json"}`, `"!"|"e30="|3`, ``},
		{Options{Draft: Draft2020}, `{"contentEncoding":"base64","contentMediaType":"application/json","contentSchema":{"type":"null"}}`, `"!"|"e30="|3`, ``},
		{Options{Draft: Draft06}, `{"contentEncoding":7}`, `"a"`, ``},
		{Options{}, `{"$ref":"#/$defs/a~1b~0c%25d%22e%C3%A9","$defs":{"a/b~c%d\"eé":{"type":"null"}}}`, `null`, `1`},
		{Options{}, `{"$ref":"#/$defs/~01","$defs":{"~1":{"type":"null"},"/":false}}`, `null`, `1`},
		{Options{Draft: Draft04}, `{"$ref":"#/definitions/a%20b/items/1","definitions":{"a b":{"items":[{},{"type":"null"}]}}}`, `null`, `1`},
		{Options{}, `{"$ref":"#x%2Ey","$defs":{"a":{"$anchor":"x.y","type":"null"}}}`, `null`, `1`},
		{Options{}, `{"$id":"http://a/","$ref":"b#x","$defs":{"a":{"$anchor":"x","type":"string"},"b":{"$id":"b","$defs":{"c":{"$anchor":"x","type":"null"}}}}}`, `null`, `1|"a"`},
		{Options{Draft: Draft07}, `{"allOf":[{"$ref":"#x"}],"definitions":{"a":{"$id":"#x","type":"null"}}}`, `null`, `1`},
		{Options{Draft: Draft04}, `{"allOf":[{"$ref":"#x"}],"definitions":{"a":{"id":"#x","type":"null"}}}`, `null`, `1`},
		{Options{Documents: bundle}, `{"$ref":"http://b/x.json"}`, `null`, `1`},
		{Options{Documents: bundle}, `{"$ref":"http://b/x.json#in"}`, `"a"`, `null`},
		{Options{Documents: bundle}, `{"$ref":"http://c/y.json#/$defs/z"}`, `true`, `null`},
		{Options{Documents: bundle, Base: "http://b/z.json"}, `{"allOf":[{"$ref":"x.json"},{"$ref":"http://a/bundle.json#/$defs/x"}]}`, `null`, `1`},
		{Options{Formats: true}, `{"format":"date"}`, `"2024-02-29"|3|"2024-\u0030\u0032-29"`, `"2023-02-29"|"x"`},
		{Options{Formats: true}, `{"format":"nobody-knows"}`, `"x"`, ``},
		{Options{}, `{"format":"date"}`, `"x"`, ``},
		{Options{Documents: map[string][]byte{"http://a/b.json": []byte(`{"$schema":"http://json-schema.org/draft-04/schema#","definitions":{"c":{"minimum":1,"exclusiveMinimum":true}}}`)}, Base: "http://a/x.json"},
			`{"$ref":"b.json#/definitions/c"}`, `2`, `1`},
		{Options{}, `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":"string"}|true|{"properties":{"a":{"minLength":1}}}`, `{"type":3}|1|{"properties":{"a":{"minLength":-1}}}`},
		{Options{}, `{"$ref":"http://json-schema.org/draft-04/schema#"}`, `{"exclusiveMinimum":true,"minimum":1}|{"$schema":"x"}`, `{"exclusiveMinimum":true}|true|{"additionalProperties":3}`},
		{Options{}, `{"$ref":"http://json-schema.org/draft-06/schema#/definitions/nonNegativeInteger"}`, `1|0`, `-1|"a"`},
	} {
		a := compileT(t, c.schema, c.o)
		for i, list := range []string{c.yes, c.no} {
			if list == "" {
				continue
			}
			for text := range strings.SplitSeq(list, "|") {
				if err := a.Check([]byte(text)); (err == nil) != (i == 0) {
					t.Errorf("%v %s: %s: %v", c.o.Draft, c.schema, text, err)
				}
			}
		}
	}
}

// TestStop: where a text stops fitting is the first byte that nothing can
// follow.
func TestStop(t *testing.T) {
	const point = `{"type":"object","properties":{"x":{"type":"integer","maximum":9},"y":{"enum":["up","down"]}},"required":["x"],"additionalProperties":false}`
	for _, c := range []struct {
		schema, text string
		offset       int
		pointer      string
		expected     string
	}{
		{point, `[`, 0, "", "an object"},
		{point, `{"z`, 2, "", `"x" or "y"`},
		{point, `{"x":"`, 5, "/x", "a number"},
		{point, `{"x":1.5`, 7, "/x", "a digit"}, // 1.5e1 is an integer, but above 9
		{point, `{"x":0.5`, 8, "/x", "'e'"},
		{point, `{"x":99`, 6, "/x", "'}'"},
		{point, `{"y":"x`, 6, "/y", `"up" or "down"`},
		{point, `{"y":"up"}`, 9, "/y", "','"},
		{point, `{"x":1,"x`, 8, "", `"y"`},
		{point, `{"x":1} x`, 8, "", "the end of the text"},
		{point, `{"x":1`, 6, "/x", "'}'"},
		{`{"items":{"type":"string"}}`, `["a",[`, 5, "/1", "a string"},
		{`{"uniqueItems":true,"items":{"enum":["a","b"]}}`, `["a","b",`, 8, "/1", "']'"},
		{`{"uniqueItems":true,"items":{"enum":["a","b"]}}`, `["a","a`, 6, "/1", `"b"`},
		{`{"maxItems":1}`, `[1,`, 2, "/0", "']'"},
		{`{"additionalProperties":{"type":"null"}}`, `{"aaab":1`, 8, "/aaab", "null"},
		{`{}`, `{"aab":{"aab":1,"b":2},"acb":1,"\u0061ab":2}`, 40, "", ""},
		{`{"properties":{"a":{}}}`, `{"a":1,"a":2}`, 9, "", ""},
		{`{"minProperties":3,"propertyNames":{"pattern":"^[ab]$"}}`, `{"a":1,"a":1,"a":1}`, 9, "", ""},
		{`{"properties":{"a":{"$ref":"#"}},"required":["a"],"type":"object"}`, `{`, 0, "", ""},
		{`{"oneOf":[{"properties":{"k":{"const":"a"}},"required":["k","va"]},{"properties":{"k":{"const":"b"}},"required":["k"],"not":{"required":["va"]}}]}`,
			`{"va":1,"k":"b`, 13, "/k", `"a"`},
		{`{"const":{"a":[1,2]}}`, `{"a":[1,3`, 8, "/a/1", "a number"},
		{`{}`, "\"\x80", 1, "", ""},
		{`{}`, `{"a":1,}`, 7, "", "a key"},
		{`false`, `1`, 0, "", ""},
		{`{"anyOf":[{"minItems":2,"maxItems":2,"items":{"type":"null"}},{"maxItems":1}]}`, `[1,`, 2, "/0", "']'"},
	} {
		a := compileT(t, c.schema, Options{})
		err := a.Check([]byte(c.text))
		var stop *StopError
		if !errors.As(err, &stop) {
			t.Errorf("%s: %s: %v", c.schema, c.text, err)
			continue
		}
		if stop.Offset != c.offset && stop.Offset != len(c.text) || stop.Offset < c.offset || stop.Pointer != c.pointer ||
			!strings.Contains(strings.Join(stop.Expected, " or "), c.expected) {
			t.Errorf("%s: %s: %d %q %q: %s; want %d %q %q", c.schema, c.text, stop.Offset, stop.Pointer, stop.Expected, stop.Why, c.offset, c.pointer, c.expected)
		}
	}
}

// TestTogether: many goroutines over one automaton agree.
func TestTogether(t *testing.T) {
	schema := `{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#"},"uniqueItems":true},"s":{"pattern":"^[a-z]+$","maxLength":20},"n":{"multipleOf":3}},"required":["s"],"unevaluatedProperties":false,"anyOf":[{"required":["n"]},{"properties":{"b":{"type":"boolean"}}}]}`
	texts := map[string]bool{
		`{"s":"abc","n":3}`: true, `{"s":"abc","n":4}`: false, `{"s":"abc","b":true}`: true, `{"n":3,"s":"x","b":1}`: false,
		`{"a":[{"s":"a"},{"s":"b"}],"s":"c"}`: true, `{"a":[{"s":"a"},{"s":"a"}],"s":"c"}`: false, `{"s":"abc","zz":1}`: false,
		`{"s":"\u0061bc" , "n":1.5e1}`: true, `{"s":"A"}`: false,
	}
	a := compileT(t, schema, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				for text, want := range texts {
					if err := a.Check([]byte(text)); (err == nil) != want {
						t.Errorf("%s: %v", text, err)
					}
					a.MemoryBytes()
				}
			}
		})
	}
	wg.Wait()
}

// TestMemory: an automaton says when it is full, and Check goes on.
func TestMemory(t *testing.T) {
	a := compileT(t, `{"type":"array","items":{"type":"string","maxLength":1000000}}`, Options{Limits: Limits{Memory: 1 << 20}})
	text := `["` + strings.Repeat("x", 20_000) + `"]`
	if err := a.Check([]byte(text)); err != nil {
		t.Error(err)
	}
	if err := a.Check([]byte(text + "]")); err == nil {
		t.Error("accepts two ends")
	}
	twice := `["` + strings.Repeat("x", 20_000) + `",{"a":1,"a":1}]`
	var stop *StopError
	if err := compileT(t, `{"items":{"maxLength":1000000}}`, Options{Limits: Limits{Memory: 1 << 20}}).Check([]byte(twice)); !errors.As(err, &stop) || stop.Offset != len(twice)-5 {
		t.Errorf("a key twice: %v", err)
	}
	s := a.Start()
	var err error
	for i := 0; i < len(text) && err == nil; i++ {
		s, err = a.Step(s, text[i])
	}
	var limit *LimitError
	if !errors.As(err, &limit) || limit.Limit != "memory" {
		t.Errorf("got %v", err)
	}
	if n := a.MemoryBytes(); n > 2<<20 {
		t.Errorf("%d bytes", n)
	}
}

// TestEffort: what all steps of a text may cost is bounded, however little each
// of them does; but a text may be long.
func TestEffort(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"unevaluatedProperties":false,"anyOf":[true`)
	for i := range 100 {
		fmt.Fprintf(&b, `,{"properties":{"k%d":true},"required":["k%d"]}`, i, i)
	}
	limits := Limits{Effort: 10_000}
	text := `{"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"k8":8}`
	a := compileT(t, b.String()+`]}`, Options{Limits: limits})
	var limit *LimitError
	for range 2 {
		if err := a.Check([]byte(text)); !errors.As(err, &limit) || limit.Limit != "effort" {
			t.Errorf("got %v", err)
		}
	}
	if err := a.Check([]byte(`{"k1":1}`)); err != nil {
		t.Error(err)
	}
	a = compileT(t, `{"maxLength":1000000,"pattern":"^[a-z]+$"}`, Options{Limits: limits})
	if err := a.Check([]byte(`"` + strings.Repeat("x", 100_000) + `"`)); err != nil {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Compile(ctx, []byte(`{}`), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := Compile(ctx, []byte(hostile()["50k properties"][0]), Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestUndecided: a state that can't be completed, and that the search takes for
// alive, is counted.
func TestUndecided(t *testing.T) {
	for _, c := range []struct {
		schema, text string
		undecided    bool
	}{
		{`{"type":"object","minProperties":3,"propertyNames":{"maxLength":0}}`, `{`, true},
		{`{"type":"object","minProperties":3,"patternProperties":{"^[ab]$":{}},"additionalProperties":false}`, `{`, true},
		{`{"type":"object","minProperties":3,"properties":{"a":{}}}`, `{"a":1`, false},
		{`{"type":"object","minProperties":1,"propertyNames":{"maxLength":3}}`, `{`, false},
	} {
		a := compileT(t, c.schema, Options{})
		s := a.Start()
		for i := range len(c.text) {
			var err error
			if s, err = a.Step(s, c.text[i]); err != nil || s == 0 {
				t.Fatalf("%s: %s: byte %d, %v", c.schema, c.text, i, err)
			}
		}
		if n := a.Undecided(); n > 0 != c.undecided {
			t.Errorf("%s: %d undecided", c.schema, n)
		}
	}
}
