package grammar

import (
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// What a grammar can't count or remember is written as a choice here: which of
// the optional members are there, where in an array the item stands that it must
// contain, in which order listed items come. Each is exact within its limit, and
// left to Check beyond it.
const (
	maxCountings    = 64  // sets of members for minProperties and maxProperties
	maxArrangements = 512 // arrays of different items
	maxContained    = 8   // items among which the first is that must be contained
)

// membered is an object with least to most of its fields, as a choice of objects;
// nil if that takes too many. Most is -1 for no limit.
func membered(l *lang, least, most int) *lang {
	out := &lang{kind: choice}
	var walk func(written, rest []field, least, most int) bool
	walk = func(written, rest []field, least, most int) bool {
		required := 0
		for _, f := range rest {
			if f.required {
				required++
			}
		}
		switch {
		case least > len(rest) || most >= 0 && most < required:
			return true
		case least <= required && (most < 0 || most >= len(rest)):
			all := append(slices.Clone(written), rest...)
			out.alts = append(out.alts, &lang{kind: object, max: -1, fields: all})
			return len(out.alts) <= maxCountings
		}
		f := rest[0]
		optional := !f.required
		f.required = true
		more := most
		if most > 0 {
			more--
		}
		if most != 0 && !walk(append(slices.Clone(written), f), rest[1:], least-1, more) {
			return false
		}
		return !optional || walk(written, rest[1:], least, most)
	}
	if !walk(nil, l.fields, least, most) {
		return nil
	}
	if len(out.alts) == 0 {
		return &lang{kind: none}
	}
	return out
}

// different is an array whose items are all different, as a choice of arrays;
// nil if they are not few.
func different(l *lang) *lang {
	if len(l.prefix) > 0 || l.item == nil {
		return nil
	}
	vals, ok := fewValues(l.item)
	if !ok {
		return nil
	}
	most := len(vals)
	if l.max >= 0 {
		most = min(most, l.max)
	}
	if l.min > most {
		return &lang{kind: none}
	}
	total, ways := 0, 1
	for k := range most + 1 {
		if k > 0 {
			ways *= len(vals) - k + 1
		}
		if k >= l.min {
			total += ways
		}
		if total > maxArrangements || ways > maxArrangements {
			return nil
		}
	}
	out := &lang{kind: choice}
	var walk func(items []*lang)
	walk = func(items []*lang) {
		if len(items) >= l.min {
			out.alts = append(out.alts, &lang{kind: array, min: len(items), max: len(items), prefix: slices.Clone(items)})
		}
		if len(items) == most {
			return
		}
		for _, v := range vals {
			if !slices.Contains(items, v) {
				walk(append(items, v))
			}
		}
	}
	walk(nil)
	return out
}

// fewValues lists the values of a lang, one spelling each, if there are few.
func fewValues(l *lang) ([]*lang, bool) {
	var lits []string
	switch l.kind {
	case literals:
		lits = l.lits
	case boolean:
		lits = []string{"true", "false"}
	case integer:
		if l.lo == nil || l.hi == nil {
			return nil, false
		}
		var ok bool
		if lits, ok = multiples(l, ratInt(1), true, nil); !ok {
			return nil, false
		}
	case choice:
		var all []*lang
		for _, a := range l.alts {
			vals, ok := fewValues(a)
			if !ok {
				return nil, false
			}
			all = append(all, vals...)
		}
		return distinct(all), true
	default:
		return nil, false
	}
	var out []*lang
	for _, s := range lits {
		out = append(out, &lang{kind: literals, lits: []string{s}})
	}
	return distinct(out), true
}

// distinct leaves out what equals a value before it.
func distinct(vals []*lang) []*lang {
	seen := map[string]bool{}
	return slices.DeleteFunc(vals, func(l *lang) bool {
		key := identity(parsed(l.lits[0]))
		again := seen[key]
		seen[key] = true
		return again
	})
}

// identity is the same for equal values however they are written.
func identity(v *jsontext.Value) string {
	switch v.Kind {
	case '0':
		if r, ok := v.Rat(); ok {
			return r.RatString()
		}
	case '[':
		var parts []string
		for _, e := range v.Elems {
			parts = append(parts, identity(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case '{':
		var parts []string
		for _, m := range v.Members {
			parts = append(parts, string(jsontext.AppendString(nil, m.Key))+":"+identity(m.Val))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	}
	return string(v.AppendTo(nil))
}

// containing is an array with contains, as a choice of where the first item that
// is contained stands; nil if it can't be said so.
func (n *narrower) containing(v *jsontext.Value, l *lang, loc string) *lang {
	c := v.Get("contains")
	if n.coarse || hasAny(v, "prefixItems", "unevaluatedItems", "additionalItems") || v.Get("uniqueItems").IsTrue() {
		return nil
	}
	items := v.Get("items")
	if items == nil {
		items = &jsontext.Value{Kind: 't'}
	}
	if !items.IsSchema() {
		return nil
	}
	count := func(key string, absent int) int {
		if b, ok := intOf(v.Get(key)); ok && n.speaks(key) {
			return b
		}
		return absent
	}
	if count("minContains", 1) != 1 || count("maxContains", 1) != 1 {
		return nil
	}
	once := count("maxContains", -1) == 1
	flat := n.flatten(items, loc+"/items", 0)
	both := func(sub *jsontext.Value) (*jsontext.Value, bool) {
		return mergeSchemas(flat, n.flatten(sub, loc+"/contains", 0), 1)
	}
	hit, ok := both(c)
	if !ok {
		return nil
	}
	missed := items
	if broken, fine := n.broken(c, loc+"/contains", 0); fine {
		missed, fine = both(anyOf(broken))
		if !fine {
			missed, broken = items, nil
		}
		if once && broken == nil {
			return nil
		}
	} else if once {
		return nil
	}
	contained := n.schema(hit, loc+"/contains")
	if contained.kind == none {
		return contained
	}
	before, after := n.schema(missed, loc+"/items"), n.schema(items, loc+"/items")
	if once {
		after = before
	}
	if after.kind == none {
		after = nil
	}
	out := &lang{kind: choice}
	for i := range maxContained {
		if l.max >= 0 && i >= l.max || i > 0 && before.kind == none {
			break
		}
		a := &lang{kind: array, min: max(l.min, i+1), max: l.max, item: after}
		for range i {
			a.prefix = append(a.prefix, before)
		}
		a.prefix = append(a.prefix, contained)
		if a.max < 0 && after == nil {
			a.max = i + 1
		}
		if a.min <= len(a.prefix) || after != nil {
			out.alts = append(out.alts, a)
		}
	}
	if len(out.alts) == 0 {
		return &lang{kind: none}
	}
	return out
}
