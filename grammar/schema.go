package grammar

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Bounds on a schema: what goes beyond them is refused by name. A tool of the
// wild has a few kilobytes and 6 levels; the largest schema of the public
// collections, a cloud template, has 4 MB and isn't a tool.
const (
	maxSchemaBytes   = 1 << 20
	maxSchemaDepth   = 64     // nested subschemas
	maxJSONDepth     = 512    // nested brackets of schema or arguments
	maxSubschemas    = 10_000 // before $ref is followed
	maxPatternBytes  = 4096
	maxArgumentBytes = 16 << 20
)

// A SchemaError says why a tool's schema was refused. Loc is a JSON pointer
// into the schema as a URI fragment, "#/properties/tags/pattern".
type SchemaError struct {
	Tool string
	Loc  string
	Msg  string
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

func draftOf(root *value) int {
	s := root.get("$schema")
	if s == nil || s.kind != '"' {
		return draft2020
	}
	for _, d := range []struct {
		name  string
		draft int
	}{{"draft-04", draft4}, {"draft-06", draft6}, {"draft-07", draft7}, {"2019-09", draft2019}} {
		if strings.Contains(s.str, d.name) {
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
func lone(v *value, key string) bool {
	for _, m := range v.members {
		if m.key != key && known[m.key] && !annotations[m.key] {
			return false
		}
	}
	return true
}

func hasAny(v *value, keys ...string) bool {
	for _, k := range keys {
		if v.has(k) {
			return true
		}
	}
	return false
}

// eachSubschema calls f with every schema directly inside v and its place
// relative to v.
func eachSubschema(v *value, f func(loc string, sub *value)) {
	for _, m := range v.members {
		switch m.key {
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
			for _, p := range m.val.members {
				if p.val.isSchema() {
					f("/"+m.key+"/"+escapePointer(p.key), p.val)
				}
			}
		case "allOf", "anyOf", "oneOf", "prefixItems", "items":
			for i, e := range m.val.elems {
				if e.isSchema() {
					f("/"+m.key+"/"+strconv.Itoa(i), e)
				}
			}
			if m.key == "items" && m.val.isSchema() {
				f("/items", m.val)
			}
		case "not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems",
			"unevaluatedItems", "contains", "contentSchema":
			if m.val.isSchema() {
				f("/"+m.key, m.val)
			}
		}
	}
}

func escapePointer(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// resolve finds the target of a "#" or "#/…" reference.
func resolve(root *value, ref string) (*value, bool) {
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
		tok = strings.NewReplacer("~1", "/", "~0", "~").Replace(tok)
		switch v.kind {
		case '{':
			if v = v.get(tok); v == nil {
				return nil, false
			}
		case '[':
			i, err := strconv.Atoi(tok)
			if err != nil || i < 0 || i >= len(v.elems) || strconv.Itoa(i) != tok {
				return nil, false
			}
			v = v.elems[i]
		default:
			return nil, false
		}
	}
	return v, v.isSchema()
}

// survey walks every subschema once, bounds it, and tells whether references
// mean what resolve says they mean (no embedded $id, no anchors in use).
func survey(tool string, root *value) (plainRefs bool, err error) {
	plainRefs = true
	n := 0
	draft := draftOf(root)
	var walk func(v *value, loc string, depth int) error
	walk = func(v *value, loc string, depth int) error {
		if n++; n > maxSubschemas {
			return &SchemaError{tool, loc, "more than 10,000 subschemas"}
		}
		if depth > maxSchemaDepth {
			return &SchemaError{tool, loc, "subschemas nested more than 64 deep"}
		}
		if v.kind != '{' {
			return nil
		}
		if v != root && (v.has("$id") || draft == draft4 && v.has("id")) {
			plainRefs = false
		}
		if v.has("$dynamicRef") || v.has("$recursiveRef") {
			plainRefs = false
		}
		if r := v.get("$ref"); r != nil && r.kind == '"' {
			if !strings.HasPrefix(r.str, "#") && !strings.HasPrefix(r.str, "http://json-schema.org/") &&
				!strings.HasPrefix(r.str, "https://json-schema.org/") {
				if id := root.get("$id"); id == nil && root.get("id") == nil {
					return &SchemaError{tool, loc + "/$ref", "refers to " + strconv.Quote(r.str) + ", outside this schema; nothing is fetched: inline it under $defs"}
				}
			}
			if _, ok := resolve(root, r.str); !ok {
				plainRefs = false
			}
		}
		if p := v.get("pattern"); p != nil && p.kind == '"' {
			if err := patternError(p.str); err != "" {
				return &SchemaError{tool, loc + "/pattern", err}
			}
		}
		for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
			if b := v.get(key); b != nil && b.kind == '0' && !tame(b.str) {
				return &SchemaError{tool, loc + "/" + key, "number beyond 1e1000 or below 1e-1000"}
			}
		}
		for _, p := range v.get("patternProperties").list() {
			if err := patternError(p.key); err != "" {
				return &SchemaError{tool, loc + "/patternProperties/" + escapePointer(p.key), err}
			}
		}
		var err error
		eachSubschema(v, func(at string, sub *value) {
			if err == nil {
				err = walk(sub, loc+at, depth+1)
			}
		})
		return err
	}
	return plainRefs, walk(root, "#", 0)
}

// patternError says why a regular expression is refused; "" if it isn't.
func patternError(p string) string {
	if len(p) > maxPatternBytes {
		return "pattern longer than 4,096 bytes"
	}
	if _, err := regexp.Compile(p); err != nil {
		return "pattern is not RE2: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return ""
}

// list is the members of an object, and nothing of anything else.
func (v *value) list() []member {
	if v == nil {
		return nil
	}
	return v.members
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
