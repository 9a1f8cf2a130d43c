package grammar

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A grammar has no word for "not", "if" or "depends on". spread writes such a
// keyword as a choice of schemas without it that together accept exactly the
// same: not S as the ways of breaking S, if as the case that holds and those that
// don't, a dependency as the key being absent or its demands being met, and oneOf
// as each branch with all others broken. Where that can't be done exactly, or in
// no more than maxSpread schemas, nothing is spread and the keyword is left to
// Check.

// maxSpread is how many schemas one keyword may become.
const maxSpread = 32

// spread is v as a choice; ok is false if there is nothing to spread or no way
// to. why is the keyword that was spread.
func (n *narrower) spread(v *jsontext.Value, loc string) (alts []*jsontext.Value, why string, ok bool) {
	if n.coarse {
		return nil, "", false
	}
	if no := v.Get("not"); no != nil && no.IsSchema() && !leaf(v) {
		base := v.Without("not")
		if broken, ok := n.broken(no, loc+"/not", 0); ok && besides(v, broken) {
			if alts, ok := n.each(base, broken, loc); ok {
				return alts, "not", true
			}
		}
	}
	if cond := v.Get("if"); cond != nil && cond.IsSchema() && n.draft >= draft7 {
		if alts, ok := n.conditional(v, cond, loc); ok {
			return alts, "if", true
		}
	}
	for _, word := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		if alts, ok := n.dependency(v, word, loc); ok {
			return alts, word, true
		}
	}
	return nil, "", false
}

// leaf says that what a schema denies is looked at where its type is written.
func leaf(v *jsontext.Value) bool {
	no := v.Get("not")
	if no.Kind != '{' || len(no.Members) != 1 {
		return false
	}
	types := typeList(v.Get("type"))
	if len(types) != 1 {
		return false
	}
	switch no.Members[0].Key {
	case "multipleOf":
		return types[0] == "integer" || types[0] == "number"
	case "enum":
		return types[0] == "string" && !slices.ContainsFunc(no.Members[0].Val.Elems, func(e *jsontext.Value) bool { return e.Kind != '"' })
	case "pattern":
		return types[0] == "string"
	}
	return false
}

// besides says that the alternatives may stand beside the other keywords of v:
// properties and items under a denial are not evaluated, and those of an
// alternative would be.
func besides(v *jsontext.Value, alts []*jsontext.Value) bool {
	for _, a := range alts {
		if v.Has("unevaluatedItems") && hasAny(a, "items", "prefixItems", "contains") {
			return false
		}
		if !v.Has("unevaluatedProperties") {
			continue
		}
		for _, p := range a.Get("properties").List() {
			if !p.Val.IsFalse() && !v.Get("properties").Has(p.Key) {
				return false
			}
		}
	}
	return true
}

// each is base together with each of the alternatives, without those that can't
// be; ok is false if two can't be written as one.
func (n *narrower) each(base *jsontext.Value, with []*jsontext.Value, loc string) ([]*jsontext.Value, bool) {
	var out []*jsontext.Value
	for _, a := range with {
		if !n.spend(loc) {
			return nil, false
		}
		merged, ok := mergeSchemas(base, n.flatten(a, loc, 0), 0)
		if !ok {
			return nil, false
		}
		if !merged.IsFalse() {
			out = append(out, merged)
		}
	}
	return out, len(out) <= maxSpread
}

// conditional is a schema with if as its two cases.
func (n *narrower) conditional(v, cond *jsontext.Value, loc string) ([]*jsontext.Value, bool) {
	base := v.Without("if", "then", "else")
	part := func(key string) []*jsontext.Value {
		if sub := v.Get(key); sub != nil {
			return []*jsontext.Value{sub}
		}
		return []*jsontext.Value{{Kind: 't'}}
	}
	if !hasAny(v, "then", "else") {
		return []*jsontext.Value{base}, !v.Has("unevaluatedProperties") && !v.Has("unevaluatedItems")
	}
	broken, ok := n.broken(cond, loc+"/if", 0)
	if !ok || !besides(v, broken) {
		return nil, false
	}
	var out []*jsontext.Value
	for _, c := range []struct {
		cases []*jsontext.Value
		key   string
	}{{[]*jsontext.Value{cond}, "then"}, {broken, "else"}} {
		bases, ok := n.each(base, c.cases, loc+"/if")
		for _, b := range bases {
			if !ok {
				break
			}
			var alts []*jsontext.Value
			alts, ok = n.each(b, part(c.key), loc+"/"+c.key)
			out = append(out, alts...)
		}
		if !ok {
			return nil, false
		}
	}
	return out, len(out) <= maxSpread
}

// dependency is a schema in which a key that others depend on is absent, or there
// with them.
func (n *narrower) dependency(v *jsontext.Value, word, loc string) ([]*jsontext.Value, bool) {
	if n.draft < draft2019 && word != "dependencies" || n.draft >= draft2019 && word == "dependencies" {
		return nil, false
	}
	all := v.Get(word)
	for _, d := range all.List() {
		required := slices.ContainsFunc(v.Get("required").Items(), func(e *jsontext.Value) bool { return e.Str == d.Key })
		if !required && !v.Get("properties").Has(d.Key) {
			continue // written only by a map
		}
		base := v.Without(word)
		if rest := all.Without(d.Key); len(rest.Members) > 0 {
			base = base.With(word, rest)
		}
		there := names(d.Key)
		if d.Val.Kind == '[' {
			there.Elems = append(there.Elems, d.Val.Elems...)
		}
		alts, ok := n.each(base, []*jsontext.Value{record("required", there)}, loc)
		if !ok {
			return nil, false
		}
		if d.Val.IsSchema() {
			var met []*jsontext.Value
			for _, a := range alts {
				more, ok := n.each(a, []*jsontext.Value{d.Val}, loc+"/"+word+"/"+jsontext.EscapePointer(d.Key))
				if !ok {
					return nil, false
				}
				met = append(met, more...)
			}
			alts = met
		}
		rest, ok := n.each(base, []*jsontext.Value{absent(d.Key)}, loc)
		if !ok {
			return nil, false
		}
		return append(alts, rest...), true
	}
	return nil, false
}

// names is an array of strings.
func names(all ...string) *jsontext.Value {
	v := &jsontext.Value{Kind: '['}
	for _, s := range all {
		v.Elems = append(v.Elems, quotedText(s))
	}
	return v
}

// absent accepts what has no such key.
func absent(key string) *jsontext.Value {
	return record("properties", record(key, falseSchema))
}

// exclusive is the branches of oneOf, each with all others broken.
func (n *narrower) exclusive(v *jsontext.Value, loc string) ([]*jsontext.Value, bool) {
	if n.coarse {
		return nil, false
	}
	branches := v.Get("oneOf").Elems
	base := v.Without("oneOf")
	var out []*jsontext.Value
	broken := make([][]*jsontext.Value, len(branches))
	for i, b := range branches {
		var ok bool
		if broken[i], ok = n.broken(b, loc+"/oneOf/"+strconv.Itoa(i), 0); !ok || !besides(v, broken[i]) {
			return nil, false
		}
	}
	for i, b := range branches {
		alts, ok := n.each(base, []*jsontext.Value{b}, loc)
		for j := range branches {
			if j == i || !ok {
				continue
			}
			var next []*jsontext.Value
			for _, a := range alts {
				more, fine := n.each(a, broken[j], loc)
				ok = ok && fine
				next = append(next, more...)
			}
			alts = next
			ok = ok && len(alts) <= maxSpread
		}
		if !ok {
			return nil, false
		}
		out = append(out, alts...)
	}
	return out, len(out) <= maxSpread
}

// everyType are the types of values; every number is one.
var everyType = []string{"null", "boolean", "number", "string", "array", "object"}

// otherTypes accepts what is of none of these types.
func otherTypes(types ...string) []*jsontext.Value {
	rest := slices.DeleteFunc(slices.Clone(everyType), func(t string) bool { return slices.Contains(types, t) })
	fraction := slices.Contains(types, "integer") && slices.Contains(rest, "number")
	if fraction {
		rest = slices.DeleteFunc(rest, func(t string) bool { return t == "number" })
	}
	var out []*jsontext.Value
	if len(rest) > 0 {
		out = append(out, record("type", names(rest...)))
	}
	if fraction {
		out = append(out, record("type", quotedText("number"), "not", record("multipleOf", count(1))))
	}
	return out
}

// broken are schemas that together accept exactly what s does not.
func (n *narrower) broken(s *jsontext.Value, loc string, depth int) (out []*jsontext.Value, ok bool) {
	if depth > maxSchemaDepth || !n.spend(loc) {
		return nil, false
	}
	switch s.Kind {
	case 't':
		return nil, true
	case 'f':
		return []*jsontext.Value{{Kind: 't'}}, true
	}
	if s.Has("$ref") {
		t, ok := n.target(s, loc)
		if !ok {
			return nil, false
		}
		if out, ok = n.broken(t, loc, depth+1); !ok || n.draft < draft2019 {
			return out, ok
		}
	}
	for _, m := range s.Members {
		if annotations[m.Key] || !known[m.Key] || m.Key == "$ref" || !n.speaks(m.Key) {
			continue
		}
		alts, ok := n.breaking(s, m.Key, m.Val, loc, depth)
		if !ok {
			return nil, false
		}
		out = append(out, alts...)
	}
	return out, len(out) <= maxSpread
}

// speaks says that a keyword means something in the draft.
func (n *narrower) speaks(key string) bool {
	switch key {
	case "const", "contains", "propertyNames":
		return n.draft >= draft6
	case "if", "then", "else":
		return n.draft >= draft7
	case "dependentRequired", "dependentSchemas", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems", "$recursiveRef":
		return n.draft >= draft2019
	case "prefixItems", "$dynamicRef":
		return n.draft >= draft2020
	}
	return true
}

// breaking is broken for one keyword of s.
func (n *narrower) breaking(s *jsontext.Value, key string, v *jsontext.Value, loc string, depth int) ([]*jsontext.Value, bool) {
	one := func(kv ...any) ([]*jsontext.Value, bool) { return []*jsontext.Value{record(kv...)}, true }
	number, text, list, object := quotedText("number"), quotedText("string"), quotedText("array"), quotedText("object")
	bounded := func(kind *jsontext.Value, word string, by int) ([]*jsontext.Value, bool) {
		switch i, ok := intOf(v); {
		case !ok || i >= 1<<30:
			return nil, false
		case i+by < 0:
			return nil, true // at least nothing always holds
		default:
			return one("type", kind, word, count(i+by))
		}
	}
	switch key {
	case "type":
		return otherTypes(typeList(v)...), true
	case "const":
		return n.unlisted([]*jsontext.Value{v})
	case "enum":
		return n.unlisted(v.Elems)
	case "minimum", "maximum":
		open := map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}[key]
		other := map[string]string{"minimum": "exclusiveMaximum", "maximum": "exclusiveMinimum"}[key]
		if s.Get(open).IsTrue() { // draft 4
			other = map[string]string{"minimum": "maximum", "maximum": "minimum"}[key]
		}
		return one("type", number, other, v)
	case "exclusiveMinimum", "exclusiveMaximum":
		if v.Kind != '0' {
			return nil, true // draft 4: said of the bound beside it
		}
		return one("type", number, map[string]string{"exclusiveMinimum": "maximum", "exclusiveMaximum": "minimum"}[key], v)
	case "multipleOf":
		return one("type", number, "not", record("multipleOf", v))
	case "minLength":
		return bounded(text, "maxLength", -1)
	case "maxLength":
		return bounded(text, "minLength", 1)
	case "pattern":
		return one("type", text, "not", record("pattern", v))
	case "minItems":
		return bounded(list, "maxItems", -1)
	case "maxItems":
		return bounded(list, "minItems", 1)
	case "minProperties":
		return bounded(object, "maxProperties", -1)
	case "maxProperties":
		return bounded(object, "minProperties", 1)
	case "contains":
		if hasAny(s, "minContains", "maxContains") {
			return nil, false
		}
		alts, ok := n.broken(v, loc+"/contains", depth+1)
		if !ok {
			return nil, false
		}
		return one("type", list, "items", anyOf(alts))
	case "items":
		if !v.IsSchema() || hasAny(s, "prefixItems") {
			return nil, false
		}
		alts, ok := n.broken(v, loc+"/items", depth+1)
		if !ok || len(alts) == 0 {
			return nil, ok
		}
		return one("type", list, "contains", anyOf(alts))
	case "required":
		var out []*jsontext.Value
		for _, k := range v.Elems {
			out = append(out, absent(k.Str).With("type", object))
		}
		return out, true
	case "properties":
		var out []*jsontext.Value
		for _, p := range v.Members {
			alts, ok := n.broken(p.Val, loc+"/properties/"+jsontext.EscapePointer(p.Key), depth+1)
			if !ok {
				return nil, false
			}
			if len(alts) == 0 {
				continue
			}
			out = append(out, record("type", object, "required", names(p.Key), "properties", record(p.Key, anyOf(alts))))
		}
		return out, true
	case "dependentRequired":
		var out []*jsontext.Value
		for _, d := range v.Members {
			for _, k := range d.Val.Elems {
				out = append(out, absent(k.Str).With("type", object).With("required", names(d.Key)))
			}
		}
		return out, true
	case "not":
		return []*jsontext.Value{v}, true
	case "allOf":
		var out []*jsontext.Value
		for i, sub := range v.Elems {
			alts, ok := n.broken(sub, loc+"/allOf/"+strconv.Itoa(i), depth+1)
			if !ok {
				return nil, false
			}
			out = append(out, alts...)
		}
		return out, true
	case "anyOf":
		out := []*jsontext.Value{{Kind: 't'}}
		for i, sub := range v.Elems {
			alts, ok := n.broken(sub, loc+"/anyOf/"+strconv.Itoa(i), depth+1)
			if !ok {
				return nil, false
			}
			var next []*jsontext.Value
			for _, o := range out {
				more, ok := n.each(o, alts, loc)
				if !ok {
					return nil, false
				}
				next = append(next, more...)
			}
			if out = next; len(out) > maxSpread {
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

// anyOf accepts what one of the schemas accepts.
func anyOf(alts []*jsontext.Value) *jsontext.Value {
	switch len(alts) {
	case 0:
		return falseSchema
	case 1:
		return alts[0]
	}
	return record("anyOf", &jsontext.Value{Kind: '[', Elems: alts})
}

// unlisted accepts every value but those listed.
func (n *narrower) unlisted(vals []*jsontext.Value) ([]*jsontext.Value, bool) {
	var numbers []*jsontext.Value
	strings := &jsontext.Value{Kind: '['}
	types, bools := map[string]bool{}, map[byte]bool{}
	for _, v := range vals {
		switch v.Kind {
		case '0':
			numbers = append(numbers, v)
			types["number"] = true
		case '"':
			strings.Elems = append(strings.Elems, v)
			types["string"] = true
		case 't', 'f':
			bools[v.Kind] = true
			types["boolean"] = true
		case 'n':
			types["null"] = true
		default:
			return nil, false // all objects but one have no shape
		}
	}
	out := otherTypes(slices.Collect(maps.Keys(types))...)
	if len(strings.Elems) > 0 {
		out = append(out, record("type", quotedText("string"), "not", record("enum", strings)))
	}
	if len(bools) == 1 {
		other := &jsontext.Value{Kind: 't'}
		if bools['t'] {
			other = falseSchema
		}
		out = append(out, record("enum", &jsontext.Value{Kind: '[', Elems: []*jsontext.Value{other}}))
	}
	if len(numbers) > 0 {
		between, ok := gaps(numbers)
		if !ok {
			return nil, false
		}
		out = append(out, between...)
	}
	return out, len(out) <= maxSpread
}

// gaps are the ranges between numbers.
func gaps(numbers []*jsontext.Value) ([]*jsontext.Value, bool) {
	type point struct {
		at   *big.Rat
		text *jsontext.Value
	}
	var points []point
	for _, v := range numbers {
		r, ok := v.Rat()
		if !ok {
			return nil, false
		}
		points = append(points, point{r, v})
	}
	slices.SortFunc(points, func(a, b point) int { return a.at.Cmp(b.at) })
	points = slices.CompactFunc(points, func(a, b point) bool { return a.at.Cmp(b.at) == 0 })
	var out []*jsontext.Value
	for i := range len(points) + 1 {
		r := typed("number")
		if i > 0 {
			r = r.With("exclusiveMinimum", points[i-1].text)
		}
		if i < len(points) {
			r = r.With("exclusiveMaximum", points[i].text)
		}
		out = append(out, r)
	}
	return out, true
}

// maxDenied bounds the words that a string may be held away from, in bytes.
const maxDenied = 512

// otherWords is a pattern for all strings of min to max characters but those
// listed; max -1 is for no limit. "" if it would be too long.
func otherWords(deny []*jsontext.Value, least, most int) string {
	words := map[string]bool{} // true: denied; false: the beginning of one
	size := 0
	for _, d := range deny {
		if size += len(d.Str); d.Kind != '"' || size > maxDenied {
			return ""
		}
		for i := range d.Str {
			if start := d.Str[:i]; !words[start] {
				words[start] = false
			}
		}
		words[d.Str] = true
	}
	if len(words) == 0 {
		return ""
	}
	var out strings.Builder
	alternative := func(s string) {
		if out.Len() > 0 {
			out.WriteByte('|')
		}
		out.WriteString("^" + s + "$")
	}
	for _, w := range slices.Sorted(maps.Keys(words)) {
		n := utf8.RuneCountInString(w)
		if !words[w] && n >= least && (most < 0 || n <= most) {
			alternative(regexp.QuoteMeta(w))
		}
		if most >= 0 && n >= most {
			continue
		}
		var next strings.Builder
		for longer := range words {
			if rest, ok := strings.CutPrefix(longer, w); ok && utf8.RuneCountInString(rest) == 1 {
				if strings.ContainsAny(rest, `\]^-`) {
					next.WriteByte('\\')
				}
				next.WriteString(rest)
			}
		}
		after := `[^]`
		if next.Len() > 0 {
			after = `[^` + next.String() + `]`
		}
		end := ""
		if most >= 0 {
			end = strconv.Itoa(most - n - 1)
		}
		alternative(regexp.QuoteMeta(w) + after + fmt.Sprintf(`[^]{%d,%s}`, max(least-n-1, 0), end))
	}
	return out.String()
}
