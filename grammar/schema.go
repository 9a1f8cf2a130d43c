package grammar

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Bounds on a schema: what goes beyond them is refused by name. A tool of the
// wild has a few kilobytes and 6 levels; the largest schema of the public
// collections, a cloud template, has 4 MB and isn't a tool.
const (
	maxSchemaBytes   = 1 << 20
	maxSchemaDepth   = 64       // nested subschemas
	maxJSONDepth     = 512      // nested brackets of schema or arguments
	maxSubschemas    = 10_000   // before $ref is followed
	maxPointerBytes  = 16 << 20 // of the pointers to all subschemas
	maxPatternBytes  = 4096
	maxArgumentBytes = 16 << 20
)

// A SchemaError says why a tool's schema was refused. Loc is a JSON pointer
// into the schema as a URI fragment, "#/properties/tags/pattern".
type SchemaError struct {
	Tool string
	Loc  string
	Msg  string
	// Keyword is the one that is refused: the last token of Loc, or what the
	// schema at Loc fails by; "" where none is to blame.
	Keyword string
}

// Place is the error in parts: the schema, the keyword in it, and why.
func (e *SchemaError) Place() (path, keyword, reason string) {
	path = strings.TrimPrefix(e.Loc, "#")
	if e.Keyword != "" {
		path = strings.TrimSuffix(path, "/"+jsontext.EscapePointer(e.Keyword))
	}
	return path, e.Keyword, e.Msg
}

func (e *SchemaError) Error() string {
	return "tool " + strconv.Quote(e.Tool) + ": schema " + e.Loc + ": " + e.Msg
}

// Drafts in the order they appeared; only the order matters.
const (
	draft4    = 4
	draft6    = 6
	draft7    = 7
	draft2019 = 2019
	draft2020 = 2020
)

func draftOf(root *jsontext.Value) int {
	s := root.Get("$schema")
	if s == nil || s.Kind != '"' {
		return draft2020
	}
	for _, d := range []struct {
		name  string
		draft int
	}{{"draft-04", draft4}, {"draft-06", draft6}, {"draft-07", draft7}, {"2019-09", draft2019}} {
		if strings.Contains(s.Str, d.name) {
			return d.draft
		}
	}
	return draft2020
}

// annotations say nothing about which values fit.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "example": true, "deprecated": true,
	"readOnly": true, "writeOnly": true, "$comment": true, "$schema": true, "$id": true, "id": true, "$defs": true,
	"definitions": true, "$anchor": true, "$dynamicAnchor": true, "$recursiveAnchor": true, "$vocabulary": true,
	"contentEncoding": true, "contentMediaType": true, "contentSchema": true, "format": true,
	"nullable": true, "xml": true, "externalDocs": true, "discriminator": true,
}

// inPlace are the keywords that apply further schemas to the same value.
var inPlace = []string{"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
	"dependentSchemas", "dependencies"}

// known are the keywords that say something about a value in some draft. All
// others are annotations, as the standard has it.
var known = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range inPlace {
		m[k] = true
	}
	for _, k := range []string{"type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"minLength", "maxLength", "pattern", "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains",
		"maxContains", "minItems", "maxItems", "uniqueItems", "properties", "patternProperties", "additionalProperties",
		"unevaluatedProperties", "propertyNames", "required", "minProperties", "maxProperties", "dependentRequired"} {
		m[k] = true
	}
	return m
}()

// lone tells whether schema v says something by keyword key only.
func lone(v *jsontext.Value, key string) bool {
	for _, m := range v.Members {
		if m.Key != key && known[m.Key] && !annotations[m.Key] {
			return false
		}
	}
	return true
}

func hasAny(v *jsontext.Value, keys ...string) bool {
	for _, k := range keys {
		if v.Has(k) {
			return true
		}
	}
	return false
}

// eachSubschema calls f with every schema directly inside v and its place
// relative to v.
func eachSubschema(v *jsontext.Value, f func(loc string, sub *jsontext.Value)) {
	for _, m := range v.Members {
		switch m.Key {
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
			for _, p := range m.Val.Members {
				if p.Val.IsSchema() {
					f("/"+m.Key+"/"+jsontext.EscapePointer(p.Key), p.Val)
				}
			}
		case "allOf", "anyOf", "oneOf", "prefixItems", "items":
			for i, e := range m.Val.Elems {
				if e.IsSchema() {
					f("/"+m.Key+"/"+strconv.Itoa(i), e)
				}
			}
			if m.Key == "items" && m.Val.IsSchema() {
				f("/items", m.Val)
			}
		case "not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems",
			"unevaluatedItems", "contains", "contentSchema":
			if m.Val.IsSchema() {
				f("/"+m.Key, m.Val)
			}
		}
	}
}

// resolve finds the target of a "#" or "#/…" reference.
func resolve(root *jsontext.Value, ref string) (*jsontext.Value, bool) {
	frag, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	if frag == "" {
		return root, true
	}
	frag, err := url.PathUnescape(frag)
	if err != nil || frag[0] != '/' {
		return nil, false
	}
	v := root
	for _, tok := range strings.Split(frag[1:], "/") {
		tok = jsontext.UnescapePointer(tok)
		switch v.Kind {
		case '{':
			if v = v.Get(tok); v == nil {
				return nil, false
			}
		case '[':
			i, err := strconv.Atoi(tok)
			if err != nil || i < 0 || i >= len(v.Elems) || strconv.Itoa(i) != tok {
				return nil, false
			}
			v = v.Elems[i]
		default:
			return nil, false
		}
	}
	return v, v.IsSchema()
}

// survey walks every subschema once, bounds it, and tells whether references
// mean what resolve says they mean (no embedded $id, no anchors in use).
func survey(tool string, root *jsontext.Value) (plainRefs bool, err error) {
	plainRefs = true
	n, pointers := 0, 0
	draft := draftOf(root)
	var walk func(v *jsontext.Value, loc string, depth int) error
	walk = func(v *jsontext.Value, loc string, depth int) error {
		if n++; n > maxSubschemas {
			return &SchemaError{Tool: tool, Loc: loc, Msg: "more than 10,000 subschemas"}
		}
		if pointers += len(loc); pointers > maxPointerBytes {
			return &SchemaError{Tool: tool, Loc: "#", Msg: "pointers to its subschemas longer than 16 MiB together: its keys are too long"}
		}
		if depth > maxSchemaDepth {
			return &SchemaError{Tool: tool, Loc: loc, Msg: "subschemas nested more than 64 deep"}
		}
		if v.Kind != '{' {
			return nil
		}
		if v != root && (v.Has("$id") || draft == draft4 && v.Has("id")) {
			plainRefs = false
		}
		if v.Has("$dynamicRef") || v.Has("$recursiveRef") {
			plainRefs = false
		}
		if r := v.Get("$ref"); r != nil && r.Kind == '"' {
			if _, ok := resolve(root, r.Str); !ok {
				plainRefs = false
			}
		}
		if p := v.Get("pattern"); p != nil && len(p.Str) > maxPatternBytes {
			return &SchemaError{Tool: tool, Loc: loc + "/pattern", Keyword: "pattern", Msg: "pattern longer than 4,096 bytes"}
		}
		for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
			if b := v.Get(key); b != nil && b.Kind == '0' && !tame(b.Str) {
				return &SchemaError{Tool: tool, Loc: loc + "/" + key, Keyword: key, Msg: "number beyond 1e1000 or below 1e-1000"}
			}
		}
		for _, p := range v.Get("patternProperties").List() {
			if len(p.Key) > maxPatternBytes {
				return &SchemaError{Tool: tool, Loc: loc + "/patternProperties", Keyword: "patternProperties", Msg: "pattern longer than 4,096 bytes"}
			}
		}
		var err error
		eachSubschema(v, func(at string, sub *jsontext.Value) {
			if err == nil {
				err = walk(sub, loc+at, depth+1)
			}
		})
		return err
	}
	return plainRefs, walk(root, "#", 0)
}

// tame tells whether a number is within 1e±1000 (or zero).
func tame(s string) bool {
	if len(s) > 1000 {
		return false
	}
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return true
	}
	e, err := strconv.Atoi(s[i+1:])
	return err == nil && e > -900 && e < 900 && i < 100
}
