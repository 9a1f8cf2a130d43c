package grammar

import (
	"slices"
)

// sameJSON tells whether two values are written the same but for spaces.
func sameJSON(a, b *value) bool { return string(a.appendTo(nil)) == string(b.appendTo(nil)) }

var falseSchema = &value{kind: 'f'}

// mergeSchemas returns a schema for "a and b" if one can be written down
// without any keyword changing its meaning. At depth 0 a is the outer schema:
// it may have unevaluatedProperties: false, which counts b's properties.
// Deeper both are schemas of one child, side by side.
func mergeSchemas(a, b *value, depth int) (*value, bool) {
	if depth > maxSchemaDepth {
		return nil, false
	}
	switch {
	case a.kind == 'f' || b.kind == 'f':
		return falseSchema, true
	case a.kind == 't':
		return b, true
	case b.kind == 't':
		return a, true
	}
	if depth > 0 && (a.has("unevaluatedProperties") || a.has("unevaluatedItems")) {
		return nil, false // below the top neither schema sees what the other evaluates
	}
	if b.has("unevaluatedProperties") || b.has("unevaluatedItems") ||
		a.has("unevaluatedItems") && hasAny(b, "items", "prefixItems", "contains", "additionalItems") {
		return nil, false
	}
	if hasAny(a, "if", "then", "else") && hasAny(b, "if", "then", "else") {
		return nil, false
	}
	if a.has("contains") && hasAny(b, "minContains", "maxContains") || b.has("contains") && hasAny(a, "minContains", "maxContains") {
		return nil, false
	}
	itemKeys := []string{"items", "prefixItems", "additionalItems"}
	if hasAny(a, itemKeys...) && hasAny(b, itemKeys...) {
		if hasAny(a, "prefixItems", "additionalItems") || hasAny(b, "prefixItems", "additionalItems") ||
			!a.get("items").isSchema() || !b.get("items").isSchema() {
			return nil, false
		}
	}
	a, b, ok := mergeOthers(a, b)
	if !ok {
		return nil, false
	}
	out := a
	for _, m := range b.members {
		mine := out.get(m.key)
		switch {
		case m.key == "$schema" || m.key == "$defs" || m.key == "definitions" || m.key == "$id" || m.key == "id":
			continue
		case mine == nil:
			out = out.with(m.key, m.val)
			continue
		case annotations[m.key] || !known[m.key] || sameJSON(mine, m.val):
			continue
		}
		v, ok := mergeKeyword(m.key, mine, m.val, depth)
		if !ok {
			return nil, false
		}
		if v == nil {
			return falseSchema, true
		}
		out = out.with(m.key, v)
	}
	return out, true
}

// mergeKeyword merges two values of one keyword; nil means that nothing fits.
func mergeKeyword(key string, a, b *value, depth int) (*value, bool) {
	switch key {
	case "type":
		var both []*value
		for _, t := range typeList(a) {
			for _, u := range typeList(b) {
				if t == u || t == "integer" && u == "number" {
					both = append(both, &value{kind: '"', str: t})
				} else if t == "number" && u == "integer" {
					both = append(both, &value{kind: '"', str: u})
				}
			}
		}
		if len(both) == 0 {
			return nil, true
		}
		return &value{kind: '[', elems: both}, true
	case "required":
		out := &value{kind: '[', elems: slices.Clone(a.elems)}
		for _, e := range b.elems {
			if !slices.ContainsFunc(out.elems, func(o *value) bool { return o.str == e.str }) {
				out.elems = append(out.elems, e)
			}
		}
		return out, true
	case "properties":
		out := a
		for _, m := range b.members {
			v := m.val
			if mine := out.get(m.key); mine != nil {
				var ok bool
				if v, ok = mergeSchemas(mine, v, depth+1); !ok {
					return nil, false
				}
			}
			out = out.with(m.key, v)
		}
		return out, true
	case "items":
		return mergeSchemas(a, b, depth+1)
	case "enum":
		var both []*value
		for _, e := range a.elems {
			if slices.ContainsFunc(b.elems, func(o *value) bool { return sameJSON(e, o) }) {
				both = append(both, e)
			}
		}
		if len(both) == 0 {
			return nil, true
		}
		return &value{kind: '[', elems: both}, true
	case "const":
		return nil, a.kind == '"' && b.kind == '"' // two strings, not the same
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return bound(a, b, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return bound(a, b, -1)
	case "uniqueItems":
		return &value{kind: 't'}, true
	}
	return nil, false
}

func bound(a, b *value, sign int) (*value, bool) {
	x, ok := a.rat()
	y, ok2 := b.rat()
	if !ok || !ok2 {
		return nil, false // draft 4 has exclusiveMinimum: true
	}
	if x.Cmp(y)*sign >= 0 {
		return a, true
	}
	return b, true
}

func typeList(t *value) []string {
	if t == nil {
		return nil
	}
	if t.kind == '"' {
		return []string{t.str}
	}
	var out []string
	for _, e := range t.elems {
		out = append(out, e.str)
	}
	return out
}

// mergeOthers settles additionalProperties and patternProperties, which speak
// of the keys that their own schema doesn't declare.
func mergeOthers(a, b *value) (*value, *value, bool) {
	drop := func(v *value) *value {
		if v.get("additionalProperties").isTrue() && !v.has("unevaluatedProperties") {
			return v.without("additionalProperties")
		}
		return v
	}
	a, b = drop(a), drop(b)
	others := func(v *value) bool { return hasAny(v, "additionalProperties", "patternProperties") }
	shut := func(v *value) bool { return v.get("additionalProperties").isFalse() && !v.has("patternProperties") }
	props := func(v *value) []member { return v.get("properties").list() }
	if !others(a) && !others(b) {
		return a, b, true
	}
	only := func(v, by *value) *value { // v without the properties that by doesn't declare
		if !v.has("properties") {
			return v
		}
		kept := &value{kind: '{'}
		for _, m := range props(v) {
			if by.get("properties").has(m.key) {
				kept.members = append(kept.members, m)
			}
		}
		kept.index()
		return v.with("properties", kept)
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
