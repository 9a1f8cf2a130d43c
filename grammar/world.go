package grammar

import (
	"slices"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// World says what an object schema of a tool means that declares properties
// and is silent about others.
type World int

const (
	// Closed, the default: other keys don't fit.
	Closed World = iota
	// Open: the schema is taken by the letter, other keys fit.
	Open
)

func (w World) String() string {
	if w == Open {
		return "open"
	}
	return "closed"
}

// closeWorld returns root with silent objects closed. The rule, exactly:
//
// A schema is a place of its own if the path from the root to it only passes
// properties, patternProperties, additionalProperties, unevaluatedProperties,
// items, prefixItems, additionalItems, unevaluatedItems, a $ref without
// siblings, and an anyOf without siblings; and if no other path, through a
// $ref from somewhere else, leads to it, and properties and patternProperties
// don't stand side by side above it. Below allOf, oneOf, not, if, then,
// else, dependentSchemas, contains and propertyNames nothing is a place of its
// own: there a schema describes part of an object, or counts.
//
// A place of its own that has properties (the root even without any) and none
// of additionalProperties, unevaluatedProperties and patternProperties gets
//
//   - additionalProperties: false, if no keyword applies a further schema to
//     the same object;
//   - unevaluatedProperties: false otherwise, which counts what those schemas
//     declare; in drafts 4 to 7, which lack it, the object stays open.
//
// With references that are not JSON pointers into this document (embedded
// $id, anchors, $dynamicRef) only the root is considered. So what fits the
// closed schema always fits the schema as written.
func closeWorld(root *jsontext.Value, plainRefs bool) *jsontext.Value {
	if root.Kind != '{' {
		return root
	}
	c := closer{root: root, draft: draftOf(root), own: map[*jsontext.Value]bool{}, shared: map[*jsontext.Value]bool{}, with: map[*jsontext.Value]string{}}
	if plainRefs {
		c.place(root)
	} else {
		c.consider(root)
	}
	for v := range c.shared {
		delete(c.with, v)
	}
	if len(c.with) == 0 {
		return root
	}
	return c.rebuild(root)
}

type closer struct {
	root   *jsontext.Value
	draft  int
	own    map[*jsontext.Value]bool   // visited as a place of its own
	shared map[*jsontext.Value]bool   // visited as anything else
	with   map[*jsontext.Value]string // keyword that closes it
}

func (c *closer) target(v *jsontext.Value) *jsontext.Value {
	if r := v.Get("$ref"); r != nil && r.Kind == '"' {
		t, _ := resolve(c.root, r.Str)
		return t
	}
	return nil
}

// consider decides by which keyword v is closed, and tells whether other
// schemas apply to the same value.
func (c *closer) consider(v *jsontext.Value) (more bool) {
	more = hasAny(v, inPlace...)
	declares := len(v.Get("properties").List()) > 0
	if v == c.root && !(v.Has("$ref") && lone(v, "$ref")) && !(v.Has("anyOf") && lone(v, "anyOf")) {
		declares = true
	}
	if !declares || hasAny(v, "additionalProperties", "unevaluatedProperties", "patternProperties") {
		return more
	}
	if t := v.Get("type"); t != nil && !(t.Kind == '"' && t.Str == "object" || t.Kind == '[' && slices.ContainsFunc(t.Elems, func(e *jsontext.Value) bool { return e.Str == "object" })) {
		return more
	}
	switch {
	case c.draft < draft2019 && v.Has("$ref"):
	case !more:
		c.with[v] = "additionalProperties"
	case c.draft >= draft2019:
		c.with[v] = "unevaluatedProperties"
	}
	return more
}

func (c *closer) place(v *jsontext.Value) {
	if v == nil || v.Kind != '{' || c.own[v] {
		return
	}
	c.own[v] = true
	switch {
	case v.Has("$ref") && (c.draft < draft2019 || lone(v, "$ref")):
		c.place(c.target(v))
		return
	case v.Has("anyOf") && lone(v, "anyOf"):
		for _, e := range v.Get("anyOf").Elems {
			c.place(e)
		}
		return
	}
	more := c.consider(v)
	twice := v.Has("properties") && v.Has("patternProperties") // both may speak about one key
	eachSubschema(v, func(loc string, sub *jsontext.Value) {
		switch key := firstToken(loc); key {
		case "$defs", "definitions":
		case "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems",
			"additionalItems", "unevaluatedItems":
			if !more && !(twice && (key == "properties" || key == "patternProperties")) {
				c.place(sub)
				return
			}
			// Another schema may speak about the same child.
			c.share(sub)
		default:
			c.share(sub)
		}
	})
	if more {
		c.share(c.target(v))
	}
}

func firstToken(loc string) string {
	for i := 1; i < len(loc); i++ {
		if loc[i] == '/' {
			return loc[1:i]
		}
	}
	return loc[1:]
}

func (c *closer) share(v *jsontext.Value) {
	if v == nil || v.Kind != '{' || c.shared[v] {
		return
	}
	c.shared[v] = true
	c.share(c.target(v))
	eachSubschema(v, func(loc string, sub *jsontext.Value) {
		if key := firstToken(loc); key != "$defs" && key != "definitions" {
			c.share(sub)
		}
	})
}

// rebuild copies v with the closing keywords in it. Values without any below
// them are shared with the original.
func (c *closer) rebuild(v *jsontext.Value) *jsontext.Value {
	out := *v
	for i, e := range v.Elems {
		if r := c.rebuild(e); r != e {
			if &out.Elems[0] == &v.Elems[0] {
				out.Elems = slices.Clone(v.Elems)
			}
			out.Elems[i] = r
		}
	}
	for i, m := range v.Members {
		if r := c.rebuild(m.Val); r != m.Val {
			if &out.Members[0] == &v.Members[0] {
				out.Members = slices.Clone(v.Members)
			}
			out.Members[i].Val = r
		}
	}
	if key, ok := c.with[v]; ok {
		return (&out).With(key, &jsontext.Value{Kind: 'f'})
	}
	if len(v.Elems) > 0 && &out.Elems[0] != &v.Elems[0] || len(v.Members) > 0 && &out.Members[0] != &v.Members[0] {
		return &out
	}
	return v
}
