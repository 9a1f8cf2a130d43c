package grammar

import (
	"slices"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// sameJSON tells whether two values are written the same but for spaces.
func sameJSON(a, b *jsontext.Value) bool { return string(a.AppendTo(nil)) == string(b.AppendTo(nil)) }

// sameValue is sameJSON, but numbers may be spelled in different ways.
func sameValue(a, b *jsontext.Value) bool {
	switch {
	case a.Kind != b.Kind:
		return false
	case a.Kind == '"' || a.Str == b.Str && a.Kind == '0':
		return a.Str == b.Str
	case a.Kind == '0':
		x, ok := a.Rat()
		y, ok2 := b.Rat()
		return ok && ok2 && x.Cmp(y) == 0
	}
	return sameJSON(a, b)
}

var falseSchema = &jsontext.Value{Kind: 'f'}

// mergeSchemas returns a schema for "a and b" if one can be written down
// without any keyword changing its meaning. At depth 0 a is the outer schema:
// it may have unevaluatedProperties: false, which counts b's properties.
// Deeper both are schemas of one child, side by side.
func mergeSchemas(a, b *jsontext.Value, depth int) (*jsontext.Value, bool) {
	if depth > maxSchemaDepth {
		return nil, false
	}
	switch {
	case a.Kind == 'f' || b.Kind == 'f':
		return falseSchema, true
	case a.Kind == 't':
		return b, true
	case b.Kind == 't':
		return a, true
	}
	if depth > 0 && (a.Has("unevaluatedProperties") || a.Has("unevaluatedItems")) {
		return nil, false // below the top neither schema sees what the other evaluates
	}
	if depth > 0 && (a.Has("$ref") || b.Has("$ref")) && !sameJSON(a, b) {
		// Up to draft 7 nothing counts beside a reference; flatten follows it.
		return record("allOf", &jsontext.Value{Kind: '[', Elems: []*jsontext.Value{a, b}}), true
	}
	if b.Has("unevaluatedProperties") || b.Has("unevaluatedItems") ||
		a.Has("unevaluatedItems") && hasAny(b, "items", "prefixItems", "contains", "additionalItems") {
		return nil, false
	}
	if hasAny(a, "if", "then", "else") && hasAny(b, "if", "then", "else") {
		return nil, false
	}
	if a.Has("contains") && hasAny(b, "minContains", "maxContains") || b.Has("contains") && hasAny(a, "minContains", "maxContains") {
		return nil, false
	}
	itemKeys := []string{"items", "prefixItems", "additionalItems"}
	if hasAny(a, itemKeys...) && hasAny(b, itemKeys...) {
		if hasAny(a, "prefixItems", "additionalItems") || hasAny(b, "prefixItems", "additionalItems") ||
			!a.Get("items").IsSchema() || !b.Get("items").IsSchema() {
			return nil, false
		}
	}
	a, b, ok := mergeOthers(a, b)
	if !ok {
		return nil, false
	}
	out := a
	for _, m := range b.Members {
		mine := out.Get(m.Key)
		switch {
		case m.Key == "$schema" || m.Key == "$defs" || m.Key == "definitions" || m.Key == "$id" || m.Key == "id":
			continue
		case mine == nil:
			out = out.With(m.Key, m.Val)
			continue
		case annotations[m.Key] || !known[m.Key] || sameJSON(mine, m.Val):
			continue
		}
		v, ok := mergeKeyword(m.Key, mine, m.Val, depth)
		if !ok {
			return nil, false
		}
		if v == nil {
			return falseSchema, true
		}
		out = out.With(m.Key, v)
	}
	return out, true
}

// mergeKeyword merges two values of one keyword; nil means that nothing fits.
func mergeKeyword(key string, a, b *jsontext.Value, depth int) (*jsontext.Value, bool) {
	switch key {
	case "type":
		var both []*jsontext.Value
		for _, t := range typeList(a) {
			for _, u := range typeList(b) {
				if t == u || t == "integer" && u == "number" {
					both = append(both, &jsontext.Value{Kind: '"', Str: t})
				} else if t == "number" && u == "integer" {
					both = append(both, &jsontext.Value{Kind: '"', Str: u})
				}
			}
		}
		if len(both) == 0 {
			return nil, true
		}
		return &jsontext.Value{Kind: '[', Elems: both}, true
	case "required":
		out := &jsontext.Value{Kind: '[', Elems: slices.Clone(a.Elems)}
		in := map[string]bool{}
		for _, e := range a.Elems {
			in[e.Str] = true
		}
		for _, e := range b.Elems {
			if !in[e.Str] {
				in[e.Str] = true
				out.Elems = append(out.Elems, e)
			}
		}
		return out, true
	case "properties":
		out := &jsontext.Value{Kind: '{', Members: slices.Clone(a.Members)}
		at := map[string]int{}
		for i, m := range a.Members {
			at[m.Key] = i
		}
		for _, m := range b.Members {
			i, both := at[m.Key]
			if !both {
				out.Members = append(out.Members, m)
				continue
			}
			v, ok := mergeSchemas(a.Members[i].Val, m.Val, depth+1)
			if !ok {
				return nil, false
			}
			out.Members[i].Val = v
		}
		out.Index()
		return out, true
	case "items":
		return mergeSchemas(a, b, depth+1)
	case "enum":
		var both []*jsontext.Value
		theirs := map[string]bool{}
		for _, e := range b.Elems {
			theirs[string(e.AppendTo(nil))] = true
		}
		for _, e := range a.Elems {
			if theirs[string(e.AppendTo(nil))] {
				both = append(both, e)
			}
		}
		if len(both) == 0 {
			return nil, true
		}
		return &jsontext.Value{Kind: '[', Elems: both}, true
	case "const":
		return nil, a.Kind == '"' && b.Kind == '"' // two strings, not the same
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return bound(a, b, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return bound(a, b, -1)
	case "uniqueItems":
		if a.IsTrue() {
			return a, true
		}
		return b, true
	case "not":
		return anyOf([]*jsontext.Value{a, b}), true
	case "anyOf":
		out := &jsontext.Value{Kind: '['}
		for _, x := range a.Elems {
			for _, y := range b.Elems {
				both, ok := mergeSchemas(x, y, depth+1)
				if !ok || len(out.Elems) > maxSpread {
					return nil, false
				}
				if !both.IsFalse() {
					out.Elems = append(out.Elems, both)
				}
			}
		}
		if len(out.Elems) == 0 {
			return nil, true
		}
		return out, true
	}
	return nil, false
}

func bound(a, b *jsontext.Value, sign int) (*jsontext.Value, bool) {
	x, ok := a.Rat()
	y, ok2 := b.Rat()
	if !ok || !ok2 {
		return nil, false // draft 4 has exclusiveMinimum: true
	}
	if x.Cmp(y)*sign >= 0 {
		return a, true
	}
	return b, true
}

func typeList(t *jsontext.Value) []string {
	if t == nil {
		return nil
	}
	if t.Kind == '"' {
		return []string{t.Str}
	}
	var out []string
	for _, e := range t.Elems {
		out = append(out, e.Str)
	}
	return out
}

// mergeOthers settles additionalProperties and patternProperties, which speak
// of the keys that their own schema doesn't declare.
func mergeOthers(a, b *jsontext.Value) (*jsontext.Value, *jsontext.Value, bool) {
	drop := func(v *jsontext.Value) *jsontext.Value {
		if v.Get("additionalProperties").IsTrue() && !v.Has("unevaluatedProperties") {
			return v.Without("additionalProperties")
		}
		return v
	}
	a, b = drop(a), drop(b)
	others := func(v *jsontext.Value) bool { return hasAny(v, "additionalProperties", "patternProperties") }
	shut := func(v *jsontext.Value) bool {
		return v.Get("additionalProperties").IsFalse() && !v.Has("patternProperties")
	}
	props := func(v *jsontext.Value) []jsontext.Member { return v.Get("properties").List() }
	if !others(a) && !others(b) {
		return a, b, true
	}
	only := func(v, by *jsontext.Value) *jsontext.Value { // v without the properties that by doesn't declare
		if !v.Has("properties") {
			return v
		}
		kept := &jsontext.Value{Kind: '{'}
		for _, m := range props(v) {
			if by.Get("properties").Has(m.Key) {
				kept.Members = append(kept.Members, m)
			}
		}
		kept.Index()
		return v.With("properties", kept)
	}
	switch {
	case shut(a) && shut(b):
		return only(a, b), only(b, a), true
	case shut(a) && !others(b):
		return a, only(b, a), true
	case shut(b) && !others(a):
		return only(a, b), b, true
	case others(a) && !others(b) && len(props(b)) == 0, others(b) && !others(a) && len(props(a)) == 0:
		return a, b, true
	}
	return nil, nil, false
}
