package grammar

import (
	"fmt"
	"math/big"
	"regexp/syntax"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A schemaWriter writes a lang as a JSON Schema that says nothing else: every
// object is closed and in the declared order, every type is named, nothing
// stands beside anyOf or $ref. That is the part of JSON Schema which llguidance
// enforces to the letter; what it can't say is refused.
type schemaWriter struct {
	named map[*lang]*def
	err   error
}

// rewrite is the schema of a lang, in 2020-12.
//
// x-guidance is read by llguidance alone: without it, it takes any white space
// between tokens, and a model with nothing to say writes blanks until it is cut.
func rewrite(l *lang, defs []*def) (*jsontext.Value, error) {
	w := &schemaWriter{named: map[*lang]*def{}}
	for _, d := range defs {
		w.named[d.lang] = d
	}
	root := w.value(l)
	if len(defs) > 0 {
		in := &jsontext.Value{Kind: '{'}
		for _, d := range defs {
			in.Members = append(in.Members, jsontext.Member{Key: d.name, Val: w.inline(d.lang)})
		}
		in.Index()
		root = root.With("$defs", in)
	}
	root = root.With("x-guidance", record("whitespace_flexible", falseSchema, "item_separator", quotedText(", "), "key_separator", quotedText(": ")))
	return root, w.err
}

// record is an object of keys and values in turn.
func record(kv ...any) *jsontext.Value {
	v := &jsontext.Value{Kind: '{'}
	for i := 0; i < len(kv); i += 2 {
		v.Members = append(v.Members, jsontext.Member{Key: kv[i].(string), Val: kv[i+1].(*jsontext.Value)})
	}
	v.Index()
	return v
}

func quotedText(s string) *jsontext.Value { return &jsontext.Value{Kind: '"', Str: s} }

func parsed(s string) *jsontext.Value {
	v, err := jsontext.Parse([]byte(s), maxJSONDepth)
	if err != nil {
		panic("grammar: a literal is no JSON: " + s)
	}
	return v
}

func count(n int) *jsontext.Value { return parsed(itoa(n)) }

func typed(name string) *jsontext.Value { return record("type", quotedText(name)) }

func (w *schemaWriter) refuse(format string, a ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, a...)
	}
}

func (w *schemaWriter) value(l *lang) *jsontext.Value {
	if d := w.named[l]; d != nil {
		return record("$ref", quotedText("#/$defs/"+d.name))
	}
	return w.inline(l)
}

func (w *schemaWriter) inline(l *lang) *jsontext.Value {
	switch l.kind {
	case anyValue:
		return record()
	case literals:
		all := &jsontext.Value{Kind: '['}
		for _, s := range l.lits {
			all.Elems = append(all.Elems, parsed(s))
		}
		return record("enum", all)
	case boolean:
		return typed("boolean")
	case integer, number:
		return w.number(l)
	case text:
		return w.text(l)
	case array:
		return w.array(l)
	case object:
		return w.object(l)
	case choice:
		all := &jsontext.Value{Kind: '['}
		for _, a := range l.alts {
			all.Elems = append(all.Elems, w.value(a))
		}
		return record("anyOf", all)
	case reference:
		return record("$ref", quotedText("#/$defs/"+l.def.name))
	}
	panic("grammar: a lang without values is written")
}

// number has both bounds, so that digits come to an end.
func (w *schemaWriter) number(l *lang) *jsontext.Value {
	v := typed("number")
	if l.kind == integer {
		v = typed("integer")
	}
	lo, hi, loOpen, hiOpen := ends(l)
	bound := func(key string, b *big.Rat, open bool) {
		s, ok := decimal(b)
		if !ok {
			w.refuse("a bound with more than %d places", maxPlaces)
			return
		}
		if open {
			key = "exclusive" + strings.ToUpper(key[:1]) + key[1:]
		}
		v = v.With(key, parsed(s))
	}
	bound("minimum", lo, loOpen)
	bound("maximum", hi, hiOpen)
	if l.kind == number && l.places < maxPlaces {
		v = v.With("multipleOf", parsed("1e-"+itoa(l.places)))
	}
	return v
}

func (w *schemaWriter) text(l *lang) *jsontext.Value {
	v := typed("string")
	if l.pattern != nil {
		var alts []string
		for _, b := range l.pattern.branches {
			re := (&syntax.Regexp{Op: syntax.OpConcat, Sub: b.seq}).String()
			re = "(?:" + re + ")"
			if b.start {
				re = "^" + re
			}
			if b.end {
				re += "$"
			}
			alts = append(alts, re)
		}
		return v.With("pattern", quotedText(strings.Join(alts, "|")))
	}
	if l.min > 0 {
		v = v.With("minLength", count(l.min))
	}
	if l.max >= 0 {
		v = v.With("maxLength", count(l.max))
	}
	return v
}

func (w *schemaWriter) array(l *lang) *jsontext.Value {
	v := typed("array")
	least, most := max(l.min, len(l.prefix)), l.max
	if len(l.prefix) > 0 {
		all := &jsontext.Value{Kind: '['}
		for _, p := range l.prefix {
			all.Elems = append(all.Elems, w.value(p))
		}
		v = v.With("prefixItems", all)
	}
	if l.item == nil {
		v, most = v.With("items", falseSchema), len(l.prefix)
	} else {
		v = v.With("items", w.value(l.item))
	}
	if least > 0 {
		v = v.With("minItems", count(least))
	}
	if most >= 0 {
		v = v.With("maxItems", count(most))
	}
	return v
}

func (w *schemaWriter) object(l *lang) *jsontext.Value {
	v := typed("object")
	if len(l.fields) == 0 && l.rest != nil && l.max != 0 {
		if l.min > 0 || l.max > 0 {
			w.refuse("a map with a number of members")
		}
		switch {
		case l.key == nil:
			return v.With("additionalProperties", w.value(l.rest))
		case l.key.kind == text && l.key.pattern != nil:
			of := record(w.text(l.key).Get("pattern").Str, w.value(l.rest))
			return v.With("patternProperties", of).With("additionalProperties", falseSchema)
		}
		w.refuse("a map whose keys have a schema")
		return v
	}
	props, required := &jsontext.Value{Kind: '{'}, &jsontext.Value{Kind: '['}
	for _, f := range l.fields {
		props.Members = append(props.Members, jsontext.Member{Key: f.key, Val: w.value(f.lang)})
		if f.required {
			required.Elems = append(required.Elems, quotedText(f.key))
		}
	}
	props.Index()
	v = v.With("properties", props)
	if len(required.Elems) > 0 {
		v = v.With("required", required)
	}
	return v.With("additionalProperties", falseSchema)
}
