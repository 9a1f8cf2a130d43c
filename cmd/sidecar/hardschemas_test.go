package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/models/wire"
)

// A hardSchema is a schema and the name of a tool that takes it.
type hardSchema struct{ name, schema string }

// fits says what is wrong with a text, "" for nothing: by the automaton of all
// that the schema accepts, and by a judge that is none of ours. Of a cut text
// only the beginning is asked.
func (h hardSchema) fits(text string, cut bool) string {
	all, err := accept.Compile(context.Background(), []byte(h.schema), accept.Options{})
	if err != nil {
		return err.Error()
	}
	if cut {
		if err := all.NewFollower().Feed([]byte(text)); err != nil {
			return fmt.Sprintf("the beginning %q leads nowhere: %v", text, err)
		}
		return ""
	}
	if err := all.Check([]byte(text)); err != nil {
		return fmt.Sprintf("%s: %v", text, err)
	}
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(h.schema))
	if err != nil {
		return err.Error()
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:schema", schema); err != nil {
		return err.Error()
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		return err.Error()
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fmt.Sprintf("%q is not JSON: %v", text, err)
	}
	if err := s.Validate(v); err != nil {
		return fmt.Sprintf("%s: %v", text, err)
	}
	return ""
}

// TestHardSchemas: of which schemas the tag holds every finished answer to all
// that they say. Of the others the reply is checked.
func TestHardSchemas(t *testing.T) {
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	exact := 0
	for _, h := range hardSchemas {
		c, err := grammar.Compile(grammar.Tool{Name: h.name, Schema: []byte(h.schema)}, grammar.Closed)
		if err != nil {
			t.Errorf("%s: %v", h.name, err)
			continue
		}
		e, err := grammar.Tag(grammar.SyntaxOf(f), []*grammar.Checked{c}, grammar.Choice{Mode: grammar.Required}, grammar.Engine{Name: "xgrammar", Version: "0.2.8"})
		if err != nil {
			t.Errorf("%s: %v", h.name, err)
			continue
		}
		if exact++; !e.Tools[0].Exact {
			exact--
			t.Logf("%s: %v", h.name, e.Tools[0].Reasons)
		}
	}
	t.Logf("%d of %d schemas are held exactly", exact, len(hardSchemas))
	if exact < 95 {
		t.Errorf("%d schemas are held exactly", exact)
	}
}

// hardSchemas are schemas on which constraint engines are known to be wrong:
// keywords that they drop, refuse, count otherwise or spell otherwise. Each says
// what is hard about it. They can all be met in a few hundred bytes, so that a
// model that writes at random comes to an end.
var hardSchemas = []hardSchema{
	// Siblings of $ref: counted from 2019-09 on, ignored before.
	{"ref-length", `{"type":"object","properties":{"a":{"$ref":"#/$defs/s","maxLength":2},"b":{"$ref":"#/$defs/s","maxLength":1},"c":{"$ref":"#/$defs/s","maxLength":3}},"required":["a","b","c"],"$defs":{"s":{"type":"string"}}}`},
	{"ref-range", `{"type":"object","properties":{"a":{"$ref":"#/$defs/n","maximum":7},"b":{"$ref":"#/$defs/n","minimum":990},"c":{"$ref":"#/$defs/n","enum":[5,6]}},"required":["a","b","c"],"$defs":{"n":{"type":"integer","minimum":0,"maximum":999}}}`},
	{"ref-required", `{"type":"object","properties":{"p":{"$ref":"#/$defs/point","required":["x","y"]}},"required":["p"],"$defs":{"point":{"type":"object","properties":{"x":{"type":"integer","minimum":0,"maximum":9},"y":{"type":"integer","minimum":0,"maximum":9},"z":{"type":"boolean"}},"additionalProperties":false}}}`},
	{"ref-enum", `{"type":"object","properties":{"level":{"$ref":"#/$defs/level","enum":["high","off"]},"other":{"$ref":"#/$defs/level","not":{"const":"low"}}},"required":["level","other"],"$defs":{"level":{"enum":["low","middle","high"]}}}`},
	{"ref-items", `{"type":"object","properties":{"list":{"$ref":"#/$defs/list","minItems":2,"maxItems":3}},"required":["list"],"$defs":{"list":{"type":"array","items":{"type":"boolean"}}}}`},
	{"ref-ignored-draft7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/definitions/d","maximum":3},"b":{"$ref":"#/definitions/d","type":"string"}},"required":["a","b"],"definitions":{"d":{"type":"integer","minimum":100,"maximum":200}}}`},
	{"ref-chain", `{"type":"object","properties":{"v":{"$ref":"#/$defs/a","maxLength":2}},"required":["v"],"$defs":{"a":{"$ref":"#/$defs/b","minLength":1},"b":{"$ref":"#/$defs/c"},"c":{"type":"string"}}}`},
	{"ref-escaped", `{"type":"object","properties":{"v":{"$ref":"#/$defs/a~1b%20c~0","maximum":4},"w":{"$ref":"#/$defs/a~1b%20c~0","minimum":5}},"required":["v","w"],"$defs":{"a/b c~":{"type":"integer","minimum":0,"maximum":9}}}`},

	// allOf: of two branches one or none is kept.
	{"allof-ranges", `{"type":"object","properties":{"n":{"allOf":[{"type":"integer","minimum":10},{"maximum":19},{"not":{"const":13}}]},"m":{"allOf":[{"type":"integer"},{"minimum":-3,"maximum":3}]}},"required":["n","m"]}`},
	{"allof-objects", `{"allOf":[{"type":"object","properties":{"id":{"type":"integer","minimum":1,"maximum":99}},"required":["id"]},{"type":"object","properties":{"tag":{"enum":["x","y"]}},"required":["tag"]}]}`},
	{"allof-refs", `{"type":"object","allOf":[{"$ref":"#/$defs/named"},{"$ref":"#/$defs/aged"}],"$defs":{"named":{"properties":{"name":{"type":"string","maxLength":6}},"required":["name"]},"aged":{"properties":{"age":{"type":"integer","minimum":0,"maximum":120}},"required":["age"]}}}`},
	{"allof-enums", `{"type":"object","properties":{"c":{"allOf":[{"enum":["red","green","blue"]},{"enum":["green","blue","black"]}]},"d":{"allOf":[{"enum":[1,2,3,4]},{"minimum":3}]}},"required":["c","d"]}`},
	{"allof-nested", `{"type":"object","properties":{"s":{"allOf":[{"allOf":[{"type":"string"},{"minLength":3}]},{"maxLength":3}]},"n":{"allOf":[{"type":["integer","null"]},{"type":["integer","string"]},{"minimum":1,"maximum":3}]}},"required":["s","n"]}`},
	{"allof-tighten", `{"type":"object","properties":{"size":{"type":"integer","minimum":0,"maximum":100}},"allOf":[{"properties":{"size":{"maximum":5}}},{"required":["size"]}]}`},
	{"allof-lists", `{"type":"object","properties":{"l":{"allOf":[{"type":"array","items":{"type":"integer"},"maxItems":4},{"minItems":2},{"items":{"minimum":0,"maximum":9}}]}},"required":["l"]}`},

	// oneOf: engines take it for anyOf.
	{"oneof-keys", `{"type":"object","properties":{"mail":{"enum":["a@b.c","d@e.f"]},"phone":{"type":"integer","minimum":100,"maximum":999}},"oneOf":[{"required":["mail"]},{"required":["phone"]}],"additionalProperties":false}`},
	{"oneof-overlap", `{"type":"object","properties":{"n":{"type":"integer","oneOf":[{"minimum":0,"maximum":10},{"minimum":5,"maximum":15}]},"m":{"type":"integer","oneOf":[{"minimum":0,"maximum":3},{"minimum":2,"maximum":5}]}},"required":["n","m"]}`},
	{"oneof-tagged", `{"type":"object","oneOf":[{"properties":{"kind":{"const":"circle"},"r":{"type":"integer","minimum":1,"maximum":9}},"required":["kind","r"]},{"properties":{"kind":{"const":"square"},"side":{"type":"integer","minimum":1,"maximum":9}},"required":["kind","side"]}],"unevaluatedProperties":false}`},
	{"oneof-siblings", `{"type":"object","properties":{"unit":{"enum":["m","km"]},"length":{"type":"integer"}},"required":["unit","length"],"oneOf":[{"properties":{"unit":{"const":"m"},"length":{"minimum":0,"maximum":999}}},{"properties":{"unit":{"const":"km"},"length":{"minimum":1,"maximum":9}}}]}`},
	{"oneof-types", `{"type":"object","properties":{"v":{"oneOf":[{"type":"integer","minimum":0,"maximum":9},{"type":"number","minimum":0,"maximum":9,"multipleOf":0.5}]}},"required":["v"]}`},
	{"oneof-strings", `{"type":"object","properties":{"v":{"type":"string","oneOf":[{"maxLength":2},{"minLength":2,"maxLength":4}]},"w":{"type":"string","oneOf":[{"maxLength":1},{"enum":["","abc"]}]}},"required":["v","w"]}`},
	{"oneof-three", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"}},"oneOf":[{"required":["a"]},{"required":["b"]},{"required":["c"]}],"additionalProperties":false}`},

	// anyOf beside other keywords.
	{"anyof-siblings", `{"type":"object","properties":{"v":{"type":"string","maxLength":2,"anyOf":[{"minLength":2},{"enum":["a","abc"]}]},"n":{"anyOf":[{"minimum":90},{"maximum":5}],"type":"integer","minimum":0,"maximum":99}},"required":["v","n"]}`},
	{"anyof-required", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"}},"anyOf":[{"required":["a","b"]},{"required":["c"]}]}`},
	{"anyof-both", `{"type":"object","properties":{"n":{"type":"integer","anyOf":[{"maximum":2},{"minimum":8}],"oneOf":[{"maximum":0},{"minimum":9}],"minimum":-9,"maximum":18}},"required":["n"]}`},

	// not.
	{"not-enum", `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9,"not":{"enum":[0,1,2,3,4,5]}},"b":{"enum":["x","y","z"],"not":{"const":"y"}},"c":{"type":"boolean","not":{"const":false}}},"required":["a","b","c"]}`},
	{"not-range", `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99,"not":{"minimum":10,"maximum":89}},"b":{"type":"integer","minimum":0,"maximum":99,"not":{"minimum":2}}},"required":["a","b"]}`},
	{"not-type", `{"type":"object","properties":{"a":{"type":["integer","boolean","null"],"not":{"type":["boolean","null"]},"minimum":0,"maximum":9},"b":{"type":["boolean","string"],"maxLength":3,"not":{"type":"boolean"}},"c":{"type":["null","integer"],"minimum":0,"maximum":9,"not":{"type":"null"}}},"required":["a","b","c"]}`},
	{"not-required", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"}},"required":["c"],"not":{"required":["a","b"]}}`},
	{"not-anyof", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"integer","minimum":0,"maximum":9},"c":{"type":"boolean"}},"required":["b"],"not":{"anyOf":[{"required":["a"]},{"properties":{"b":{"maximum":6}}},{"required":["c"]}]}}`},
	{"not-property", `{"type":"object","properties":{"mode":{"enum":["r","w","x"]},"n":{"type":"integer","minimum":0,"maximum":9}},"required":["mode","n"],"not":{"properties":{"mode":{"enum":["w","x"]}}}}`},
	{"not-multiple", `{"type":"object","properties":{"a":{"type":"integer","minimum":1,"maximum":30,"not":{"multipleOf":2}},"b":{"type":"integer","minimum":1,"maximum":30,"not":{"multipleOf":3}}},"required":["a","b"]}`},
	{"not-length", `{"type":"object","properties":{"a":{"type":"string","maxLength":5,"not":{"minLength":2}},"b":{"type":"array","items":{"type":"boolean"},"maxItems":3,"not":{"maxItems":1}}},"required":["a","b"]}`},
	{"not-not", `{"type":"object","properties":{"a":{"not":{"not":{"type":"integer","minimum":3,"maximum":5}}},"b":{"type":"integer","not":{"not":{"minimum":0,"maximum":1}}}},"required":["a","b"]}`},

	// if, then, else.
	{"if-const", `{"type":"object","properties":{"kind":{"enum":["int","text"]},"value":{}},"required":["kind","value"],"if":{"properties":{"kind":{"const":"int"}}},"then":{"properties":{"value":{"type":"integer","minimum":0,"maximum":9}}},"else":{"properties":{"value":{"type":"string","maxLength":4}}}}`},
	{"if-required", `{"type":"object","properties":{"card":{"type":"integer","minimum":1000,"maximum":9999},"cvc":{"type":"integer","minimum":100,"maximum":999},"cash":{"type":"boolean"}},"if":{"required":["card"]},"then":{"required":["cvc"]},"else":{"required":["cash"]}}`},
	{"if-range", `{"type":"object","properties":{"age":{"type":"integer","minimum":0,"maximum":99},"guardian":{"enum":["mother","father"]}},"required":["age"],"if":{"properties":{"age":{"maximum":90}}},"then":{"required":["guardian"]},"else":{"not":{"required":["guardian"]}}}`},
	{"if-chain", `{"type":"object","properties":{"c":{"enum":["us","ca","nl"]},"code":{"type":"integer"}},"required":["c","code"],"allOf":[{"if":{"properties":{"c":{"const":"us"}}},"then":{"properties":{"code":{"minimum":10000,"maximum":99999}}}},{"if":{"properties":{"c":{"const":"ca"}}},"then":{"properties":{"code":{"minimum":100,"maximum":999}}}},{"if":{"properties":{"c":{"const":"nl"}}},"then":{"properties":{"code":{"minimum":1000,"maximum":9999}}}}]}`},
	{"if-then-only", `{"type":"object","properties":{"on":{"type":"boolean"},"level":{"type":"integer","minimum":0,"maximum":9}},"required":["on"],"if":{"properties":{"on":{"const":true}}},"then":{"required":["level"],"properties":{"level":{"minimum":5}}}}`},
	{"if-else-only", `{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":99,"if":{"minimum":50},"else":{"maximum":4}}},"required":["n"]}`},
	{"if-draft7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"t":{"enum":["a","b"]},"n":{"type":"integer","minimum":0,"maximum":99}},"required":["t","n"],"if":{"properties":{"t":{"const":"a"}}},"then":{"properties":{"n":{"maximum":9}}},"else":{"properties":{"n":{"minimum":90}}},"additionalProperties":false}`},

	// dependentRequired, dependentSchemas, dependencies.
	{"dependent-required", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"}},"dependentRequired":{"a":["b","c"]},"additionalProperties":false}`},
	{"dependent-each-other", `{"type":"object","properties":{"from":{"type":"integer","minimum":0,"maximum":9},"to":{"type":"integer","minimum":0,"maximum":9}},"dependentRequired":{"from":["to"],"to":["from"]}}`},
	{"dependent-schema", `{"type":"object","properties":{"zip":{"type":"boolean"},"level":{"type":"integer","minimum":0,"maximum":99}},"required":["level"],"dependentSchemas":{"zip":{"properties":{"level":{"maximum":9}}}}}`},
	{"dependencies-draft7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"n":{"type":"integer","minimum":0,"maximum":99}},"dependencies":{"a":["b","n"],"b":{"properties":{"n":{"maximum":9}},"required":["n"]}},"additionalProperties":false}`},
	{"dependent-false", `{"type":"object","properties":{"old":{"type":"boolean"},"new":{"type":"boolean"},"x":{"type":"boolean"}},"dependentSchemas":{"new":{"properties":{"old":false}},"x":false}}`},

	// patternProperties, propertyNames, maps.
	{"pattern-declared", `{"type":"object","properties":{"x_a":{"type":"integer"},"x_b":{"type":"integer"},"y":{"type":"boolean"}},"patternProperties":{"^x_":{"minimum":0,"maximum":9}},"required":["x_a","x_b"],"additionalProperties":false}`},
	{"pattern-map", `{"type":"object","patternProperties":{"^[a-z]{6}$":{"type":"integer","minimum":0,"maximum":99}},"additionalProperties":false,"minProperties":1,"maxProperties":2}`},
	{"pattern-two", `{"type":"object","properties":{"ab":{},"b":{}},"patternProperties":{"a":{"type":"integer"},"b":{"minimum":3,"maximum":6}},"required":["ab"],"additionalProperties":false}`},
	{"names-enum", `{"type":"object","propertyNames":{"enum":["north","south"]},"additionalProperties":{"type":"integer","minimum":0,"maximum":9},"maxProperties":1,"minProperties":1}`},
	{"names-declared", `{"type":"object","properties":{"alpha":{"type":"boolean"},"b":{"type":"boolean"},"gamma":{"type":"boolean"}},"propertyNames":{"minLength":2},"required":["alpha"]}`},
	{"map-values", `{"type":"object","properties":{"scores":{"type":"object","additionalProperties":{"type":"integer","minimum":0,"maximum":9},"maxProperties":1,"minProperties":1}},"required":["scores"]}`},
	{"map-names", `{"type":"object","properties":{"env":{"type":"object","propertyNames":{"pattern":"^[A-Z]{8}$"},"additionalProperties":{"type":"string","maxLength":4},"minProperties":1,"maxProperties":2}},"required":["env"]}`},

	// Counted properties.
	{"min-properties", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"}},"minProperties":2,"additionalProperties":false}`},
	{"max-properties", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"},"d":{"type":"boolean"}},"maxProperties":1,"additionalProperties":false}`},
	{"both-properties", `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"boolean"},"d":{"type":"boolean"}},"required":["b"],"minProperties":2,"maxProperties":3,"additionalProperties":false}`},

	// unevaluated keywords.
	{"unevaluated-allof", `{"type":"object","allOf":[{"properties":{"a":{"type":"boolean"}},"required":["a"]}],"properties":{"b":{"type":"integer","minimum":0,"maximum":9}},"required":["b"],"unevaluatedProperties":false}`},
	{"unevaluated-anyof", `{"type":"object","anyOf":[{"properties":{"a":{"type":"boolean"}},"required":["a"]},{"properties":{"b":{"type":"integer","minimum":0,"maximum":9}},"required":["b"]}],"unevaluatedProperties":false}`},
	{"unevaluated-if", `{"type":"object","properties":{"k":{"enum":[1,2]}},"required":["k"],"if":{"properties":{"k":{"const":1}}},"then":{"properties":{"one":{"type":"boolean"}},"required":["one"]},"else":{"properties":{"two":{"type":"integer","minimum":0,"maximum":9}},"required":["two"]},"unevaluatedProperties":false}`},
	{"unevaluated-items", `{"type":"object","properties":{"t":{"type":"array","prefixItems":[{"type":"integer","minimum":0,"maximum":9},{"type":"boolean"}],"minItems":2,"unevaluatedItems":false}},"required":["t"]}`},
	{"unevaluated-ref", `{"type":"object","$ref":"#/$defs/base","properties":{"b":{"type":"boolean"}},"required":["a","b"],"unevaluatedProperties":false,"$defs":{"base":{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9}}}}}`},

	// uniqueItems and contains.
	{"unique-enum", `{"type":"object","properties":{"days":{"type":"array","items":{"enum":["mo","tu","we","th","fr"]},"uniqueItems":true,"minItems":3,"maxItems":4}},"required":["days"]}`},
	{"unique-bools", `{"type":"object","properties":{"l":{"type":"array","items":{"type":["boolean","null"]},"uniqueItems":true,"minItems":2,"maxItems":3}},"required":["l"]}`},
	{"unique-digits", `{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer","minimum":1,"maximum":4},"uniqueItems":true,"minItems":3,"maxItems":4}},"required":["l"]}`},
	{"unique-pairs", `{"type":"object","properties":{"l":{"type":"array","items":{"enum":[[1,2],[2,1],{"a":1},"x"]},"uniqueItems":true,"minItems":3}},"required":["l"]}`},
	{"contains", `{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer","minimum":0,"maximum":9},"contains":{"minimum":9},"minItems":1,"maxItems":3}},"required":["l"]}`},
	{"contains-const", `{"type":"object","properties":{"l":{"type":"array","items":{"enum":["a","b","c","d"]},"contains":{"const":"d"},"maxItems":3}},"required":["l"]}`},
	{"contains-none", `{"type":"object","properties":{"l":{"type":"array","items":{"enum":["a","b","c"]},"not":{"contains":{"enum":["a","b"]}},"minItems":2,"maxItems":4}},"required":["l"]}`},
	{"contains-one", `{"type":"object","properties":{"l":{"type":"array","items":{"type":"boolean"},"contains":{"const":true},"maxContains":1,"minItems":3,"maxItems":4}},"required":["l"]}`},

	// Numbers.
	{"multiples", `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":100,"multipleOf":7},"b":{"type":"number","minimum":0,"maximum":5,"multipleOf":0.25},"c":{"type":"integer","minimum":-30,"maximum":30,"multipleOf":10}},"required":["a","b","c"]}`},
	{"cents", `{"type":"object","properties":{"price":{"type":"number","minimum":0,"maximum":99,"multipleOf":0.01},"tax":{"type":"number","exclusiveMinimum":0,"maximum":1,"multipleOf":0.1}},"required":["price","tax"]}`},
	{"exclusive", `{"type":"object","properties":{"a":{"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":6},"b":{"type":"number","exclusiveMinimum":-1,"exclusiveMaximum":0}},"required":["a","b"]}`},
	{"fractions", `{"type":"object","properties":{"a":{"type":"number","minimum":0.5,"maximum":1.5},"b":{"type":"integer","minimum":-2.5,"maximum":2.5},"c":{"type":"number","minimum":1e2,"maximum":1.5e2}},"required":["a","b","c"]}`},
	{"odd-ranges", `{"type":"object","properties":{"a":{"type":"integer","minimum":-128,"maximum":127},"b":{"type":"integer","minimum":999,"maximum":1001},"c":{"type":"integer","minimum":-1,"maximum":1},"d":{"type":"integer","minimum":0,"maximum":65535}},"required":["a","b","c","d"]}`},
	{"draft4-exclusive", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":2,"exclusiveMaximum":true},"b":{"type":"integer","minimum":7,"maximum":8,"exclusiveMaximum":true}},"required":["a","b"],"additionalProperties":false}`},
	{"integer-as-number", `{"type":"object","properties":{"a":{"type":"number","multipleOf":1,"minimum":0,"maximum":9},"b":{"type":"number","enum":[1.5,2,3e1]}},"required":["a","b"]}`},

	// Strings.
	{"surrogates", `{"type":"object","properties":{"s":{"type":"string","minLength":4,"maxLength":4},"t":{"type":"string","minLength":2,"maxLength":3}},"required":["s","t"]}`},
	{"pattern-length", `{"type":"object","properties":{"code":{"type":"string","pattern":"^[A-Z]+$","maxLength":3},"id":{"type":"string","pattern":"^[0-9a-f]*$","minLength":4,"maxLength":6}},"required":["code","id"]}`},
	{"pattern-open", `{"type":"object","properties":{"s":{"type":"string","pattern":"ab"},"t":{"type":"string","pattern":"^x"},"u":{"type":"string","pattern":"9$"}},"required":["s","t","u"]}`},
	{"pattern-alternatives", `{"type":"object","properties":{"s":{"type":"string","pattern":"^(ab|cd)$|^e{2,3}$"},"t":{"type":"string","pattern":"^\\d{2}\\.\\w$"}},"required":["s","t"]}`},
	{"format-length", `{"type":"object","properties":{"d":{"type":"string","format":"date","maxLength":10},"u":{"type":"string","format":"uri","maxLength":5},"e":{"type":"string","format":"email","maxLength":4}},"required":["d","u","e"]}`},
	{"long", `{"type":"object","properties":{"note":{"type":"string","maxLength":20000},"n":{"$ref":"#/$defs/n","maximum":9}},"required":["note","n"],"$defs":{"n":{"type":"integer","minimum":0}}}`},
	{"enum-escapes", `{"type":"object","properties":{"path":{"enum":["a/b","c\\d","e\"f","g\nh","\u00a0","\t"]},"sep":{"const":"\u2028"},"n":{"$ref":"#/$defs/n","maximum":3}},"required":["path","sep","n"],"$defs":{"n":{"type":"integer","minimum":0,"maximum":99}}}`},
	{"enum-mixed", `{"type":"object","properties":{"v":{"enum":[null,true,"true",1,1.5,[],[1],{},{"a":[null]}],"type":["array","object","null"]},"w":{"type":"string","enum":["1",1,true]}},"required":["v","w"]}`},
	{"const-object", `{"type":"object","properties":{"c":{"const":{"b":[1,{"x":null}],"a":"é"}},"n":{"allOf":[{"type":"integer","minimum":0},{"maximum":9}]}},"required":["c","n"]}`},

	// Keys.
	{"keys-unicode", `{"type":"object","properties":{"größe":{"type":"integer","minimum":0,"maximum":9},"数量":{"type":"boolean"},"😀":{"enum":["ja","nein"]}},"required":["größe","数量","😀"],"dependentRequired":{"größe":["数量"]},"minProperties":3}`},
	{"keys-escaped", `{"type":"object","properties":{"a\"b":{"type":"boolean"},"c\\d":{"type":"boolean"},"e\nf":{"$ref":"#/$defs/n","maximum":2},"":{"type":"boolean"}},"required":["a\"b","c\\d","e\nf",""],"$defs":{"n":{"type":"integer","minimum":0,"maximum":99}}}`},
	{"keys-keywords", `{"type":"object","properties":{"type":{"enum":["type"]},"properties":{"type":"object","properties":{"required":{"type":"boolean"}},"required":["required"]},"$ref":{"type":"integer","minimum":0,"maximum":9},"not":{"type":"boolean"}},"required":["type","properties","$ref"],"not":{"required":["not"]}}`},

	// Recursion.
	{"tree", `{"type":"object","properties":{"v":{"type":"integer","minimum":0,"maximum":9},"kids":{"type":"array","items":{"$ref":"#"},"maxItems":1}},"required":["v"],"additionalProperties":false,"not":{"properties":{"v":{"maximum":4}}}}`},
	{"list", `{"type":"object","properties":{"head":{"$ref":"#/$defs/node"}},"required":["head"],"$defs":{"node":{"type":"object","properties":{"v":{"allOf":[{"type":"integer","minimum":0},{"maximum":9}]},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}}`},
	{"expression", `{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},"required":["e"],"$defs":{"e":{"oneOf":[{"type":"integer","minimum":0,"maximum":9},{"type":"object","properties":{"op":{"enum":["neg","abs"]},"x":{"$ref":"#/$defs/e"}},"required":["op","x"],"additionalProperties":false},{"type":"string","maxLength":0}]}}}`},
	{"two-types", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"],"$defs":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/b"}},"minProperties":0,"additionalProperties":false},"b":{"type":"array","items":{"$ref":"#/$defs/a"},"maxItems":1,"minItems":1}}}`},

	// Tuples and booleans as schemas.
	{"tuple", `{"type":"object","properties":{"t":{"type":"array","prefixItems":[{"type":"integer","minimum":0,"maximum":9},{"enum":["x"]},{"type":"boolean"}],"items":false,"minItems":2}},"required":["t"]}`},
	{"tuple-draft7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"t":{"type":"array","items":[{"type":"integer","minimum":0,"maximum":9},{"type":"boolean"}],"additionalItems":{"enum":["z"]},"minItems":3,"maxItems":4}},"required":["t"],"additionalProperties":false}`},
	{"false-property", `{"type":"object","properties":{"a":{"type":"boolean"},"gone":false,"b":{"anyOf":[false,{"type":"integer","minimum":0,"maximum":9}]}},"required":["a","b"]}`},

	{"tuple-draft4", `{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://example.org/t","type":"object","properties":{"t":{"type":"array","items":[{"type":"integer","minimum":0,"maximum":9,"exclusiveMinimum":true},{"type":"boolean"}],"additionalItems":false,"minItems":2}},"required":["t"],"additionalProperties":false}`},
	{"all-false-but-one", `{"type":"object","properties":{"v":{"anyOf":[{"type":"integer","minimum":5,"maximum":4},{"type":"boolean","enum":[0]},{"type":"string","minLength":2,"maxLength":1},{"const":"only"}]}},"required":["v"]}`},

	// Several at once.
	{"discriminated-list", `{"type":"object","properties":{"steps":{"type":"array","minItems":1,"maxItems":2,"items":{"oneOf":[{"$ref":"#/$defs/wait"},{"$ref":"#/$defs/say"}],"required":["do"]}}},"required":["steps"],"$defs":{"wait":{"type":"object","properties":{"do":{"const":"wait"},"s":{"allOf":[{"type":"integer"},{"minimum":1,"maximum":60}]}},"required":["s"],"additionalProperties":false},"say":{"type":"object","properties":{"do":{"const":"say"},"text":{"type":"string","maxLength":6}},"required":["text"],"additionalProperties":false}}}`},
	{"everything", `{"type":"object","properties":{"kind":{"enum":["a","b"]},"n":{"$ref":"#/$defs/n","maximum":9},"tags":{"type":"array","items":{"enum":["p","q","r"]},"uniqueItems":true,"maxItems":2},"opt":{"type":"boolean"}},"required":["kind","n","tags"],"if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["opt"]},"else":{"not":{"required":["opt"]}},"allOf":[{"properties":{"n":{"minimum":3}}}],"$defs":{"n":{"type":"integer","minimum":0,"maximum":99}},"unevaluatedProperties":false}`},
	{"order", `{"type":"object","properties":{"items":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"object","properties":{"sku":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{3}$"},"qty":{"allOf":[{"type":"integer"},{"minimum":1},{"maximum":9}]},"gift":{"type":"boolean"},"text":{"type":"string","maxLength":8}},"required":["sku","qty"],"dependentRequired":{"text":["gift"]},"additionalProperties":false}}},"required":["items"]}`},
}
