package grammar

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/lexical"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// narrow makes the lang of a schema. For every keyword it either stays inside
// what the keyword accepts, or leaves the keyword out and notes a reason; the
// lang lies inside the schema if and only if there are no reasons.
//
//	keyword                          what is written
//	type, enum, const, boolean       exactly that; enum values that break a sibling are left out
//	minimum … on integers            digits in range; without a bound at most 15 digits
//	minimum … on numbers             decimals in range with at most 15 places, no exponent
//	multipleOf                       integers and decimals: a power of ten, or a range of at most 256 multiples
//	minLength, maxLength             characters are counted; an escape counts at least as one
//	pattern                          RE2 syntax without inner anchors and word boundaries; open ends where not anchored
//	pattern beside lengths           if the pattern's own lengths or its one repeat can keep them
//	format                           date, time, date-time, uuid, ipv4; an annotation to Check, so any other is left out
//	items, prefixItems, min/maxItems exactly that
//	properties, required             declared keys in declared order, each once, no others
//	additionalProperties without     a map; as the engine can't remember keys, one may come twice: reason,
//	  properties, patternProperties    unless maxProperties is at most 1
//	$ref                             JSON pointers into the document, recursive ones too
//	allOf, siblings of $ref, anyOf   merged if the merge is exact (merge.go)
//	oneOf                            if each branch as written breaks all others, else as below
//	{} (any value)                   any JSON; contains maps: reason
//	not, if/then/else, dependent*    as a choice (spread.go), or left out with a reason
//	uniqueItems, contains,           as a choice if it has few cases (arrange.go), or left
//	  min/maxProperties                out with a reason
//	unevaluated* with a schema       left out with a reason, unless the closed object can't meet it
type narrower struct {
	root      *jsontext.Value
	draft     int
	plainRefs bool
	defs      map[*jsontext.Value]*def
	order     []*def   // those referred to
	later     []func() // checks that need every def made
	reasons   []string
	seen      map[string]bool
	budget    int    // schemas still to be looked at
	barren    string // the first place found where no value fits
	manner
	spreads   bool // a keyword was spread
	patterned bool // a pattern was written
	// The schemas that are being applied to the value at hand: one that applies
	// itself to the same value again says nothing new.
	inPlace  []*jsontext.Value
	matchers map[string]*lexical.Matcher // by pattern
}

// maxNarrowed bounds the work where allOf and $ref multiply schemas.
const maxNarrowed = 50_000

// matcher is patternMatcher, which makes each once.
func (n *narrower) matcher(pattern string) (*lexical.Matcher, error) {
	if re := n.matchers[pattern]; re != nil {
		return re, nil
	}
	re, err := patternMatcher(pattern)
	if err == nil {
		if n.matchers == nil {
			n.matchers = map[string]*lexical.Matcher{}
		}
		n.matchers[pattern] = re
	}
	return re, err
}

func (n *narrower) because(loc, format string, a ...any) {
	r := loc + ": " + fmt.Sprintf(format, a...)
	if !n.seen[r] && len(n.seen) < 64 {
		n.seen[r] = true
		n.reasons = append(n.reasons, r)
	}
}

func (n *narrower) spend(loc string) bool {
	if n.budget--; n.budget < 0 {
		n.because("#", "too large to be narrowed")
		return false
	}
	return true
}

// target follows a local reference.
func (n *narrower) target(v *jsontext.Value, loc string) (*jsontext.Value, bool) {
	r := v.Get("$ref")
	if r == nil || r.Kind != '"' || !n.plainRefs {
		return nil, false
	}
	return resolve(n.root, r.Str)
}

func (n *narrower) any(loc string) *lang {
	n.because(loc, "any value fits, and in an object of any shape a key may come twice")
	return &lang{kind: anyValue}
}

func (n *narrower) schema(v *jsontext.Value, loc string) *lang {
	if !n.spend(loc) {
		return &lang{kind: none}
	}
	switch v.Kind {
	case 't':
		return n.any(loc)
	case 'f':
		if n.barren == "" {
			n.barren = loc
		}
		return &lang{kind: none}
	}
	if d := n.defs[v]; d != nil { // met before, maybe above this very place
		if !d.used {
			d.used = true
			n.order = append(n.order, d)
		}
		return &lang{kind: reference, def: d}
	}
	d := &def{}
	n.defs[v] = d
	n.inPlace = append(n.inPlace, v)
	d.lang = n.fresh(v, loc)
	n.inPlace = n.inPlace[:len(n.inPlace)-1]
	if d.lang.kind == none && n.barren == "" {
		n.barren = loc
	}
	return d.lang
}

func (n *narrower) fresh(v *jsontext.Value, loc string) *lang {
	if v.Has("$ref") && (n.draft < draft2019 || lone(v, "$ref")) {
		t, ok := n.target(v, loc)
		if !ok {
			n.because(loc+"/$ref", "reference by anchor or $id")
			return n.any(loc)
		}
		return n.schema(t, v.Get("$ref").Str)
	}
	v = n.flatten(v, loc, 0)
	if v.Kind != '{' {
		return n.schema(v, loc)
	}
	if hasAny(v, "enum", "const") {
		if l, sure := n.listed(v); sure {
			return l
		}
	}
	if alts, word, ok := n.spread(v, loc); ok {
		n.spreads = true
		return n.either(alts, loc+"/"+word)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if l := n.branches(v, key, loc); l != nil {
			return l
		}
		v = v.Without(key)
	}
	return n.values(v, loc)
}

// either is the choice between schemas.
func (n *narrower) either(alts []*jsontext.Value, loc string) *lang {
	barren := n.barren
	l := &lang{kind: choice}
	for _, a := range alts {
		if sub := n.schema(a, loc); sub.kind != none {
			l.alts = append(l.alts, sub)
		}
	}
	switch len(l.alts) {
	case 0:
		return &lang{kind: none}
	case 1:
		l = l.alts[0]
	}
	n.barren = barren // what can't be is one case of several
	return l
}

// flatten puts $ref and allOf into one schema without them. What can't be
// merged is left out with a reason.
func (n *narrower) flatten(v *jsontext.Value, loc string, depth int) *jsontext.Value {
	if v.Kind != '{' || !n.spend(loc) {
		return v
	}
	if depth > maxSchemaDepth {
		n.because(loc, "allOf and $ref nested too deep")
		return v.Without("$ref", "allOf")
	}
	add := func(at string, sub *jsontext.Value) {
		sub = n.flatten(sub, at, depth+1)
		if v.Has("if") && sub.Has("if") && !n.coarse && n.draft >= draft7 { // two don't go into one schema
			if alts, ok := n.conditional(sub, sub.Get("if"), at); ok && besides(v, alts) {
				sub, n.spreads = anyOf(alts), true
			}
		}
		merged, ok := mergeSchemas(v, sub, 0)
		if !ok {
			n.because(at, "can't be merged with its siblings")
			return
		}
		v = merged
	}
	if v.Has("$ref") {
		t, ok := n.target(v, loc)
		if n.draft < draft2019 && ok {
			return n.flatten(t, loc, depth+1)
		}
		v = v.Without("$ref")
		if ok {
			add(loc+"/$ref", t)
		} else {
			n.because(loc+"/$ref", "reference by anchor or $id")
		}
	}
	if v.Kind == '{' && v.Has("allOf") {
		all := v.Get("allOf").Elems
		v = v.Without("allOf")
		for i, sub := range all {
			if v.Kind != '{' {
				break
			}
			add(loc+"/allOf/"+strconv.Itoa(i), sub)
		}
	}
	if v.Kind == '{' && v.Get("unevaluatedProperties").IsFalse() && !hasAny(v, "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas", "$dynamicRef", "$recursiveRef", "additionalProperties") {
		// Nothing applies to this object any more but its own keywords.
		v = v.Without("unevaluatedProperties").With("additionalProperties", falseSchema)
	}
	return v
}

// means is the schema that v is, if v is nothing but a reference.
func (n *narrower) means(v *jsontext.Value) *jsontext.Value {
	for range maxSchemaDepth {
		t, ok := n.target(v, "")
		if !ok || n.draft >= draft2019 && !lone(v, "$ref") {
			break
		}
		v = t
	}
	return v
}

// inside gives f a value of its own: what is applied to the value around it
// isn't applied to that.
func (n *narrower) inside(f func(*jsontext.Value, string) *lang, v *jsontext.Value, loc string) *lang {
	outer := n.inPlace
	n.inPlace = nil
	l := f(v, loc)
	n.inPlace = outer
	return l
}

// branches makes the lang of anyOf or oneOf; nil if the keyword isn't there or
// has to be left out.
func (n *narrower) branches(v *jsontext.Value, key, loc string) *lang {
	b := v.Get(key)
	if b == nil || b.Kind != '[' {
		return nil
	}
	rest := v.Without(key)
	alone, again := lone(v, key), false
	var subs []*jsontext.Value
	var alts []*lang
	for i, sub := range b.Elems {
		at := loc + "/" + key + "/" + strconv.Itoa(i)
		if alone {
			subs = append(subs, sub)
			alts = append(alts, n.schema(sub, at))
			continue
		}
		means := n.means(sub)
		if slices.Contains(n.inPlace, sub) || slices.Contains(n.inPlace, means) {
			again = true
			continue
		}
		flat := n.flatten(sub, at, 0)
		merged, ok := mergeSchemas(rest, flat, 0)
		if !ok {
			continue
		}
		subs = append(subs, flat)
		n.inPlace = append(n.inPlace, sub, means)
		alts = append(alts, n.schema(merged, at))
		n.inPlace = n.inPlace[:len(n.inPlace)-2]
	}
	if again && (key == "oneOf" || len(alts) == 0) {
		n.because(loc+"/"+key, "refers to itself without going into the value")
	}
	if again && len(alts) == 0 {
		return nil
	}
	if len(alts) < len(b.Elems) && !again && (key == "oneOf" || len(alts) == 0) {
		n.because(loc+"/"+key, "can't be merged with its siblings")
		if len(alts) == 0 {
			return nil
		}
	} else if key == "oneOf" {
		if !n.disjoint(alts, subs) {
			if each, ok := n.exclusive(v, loc); ok {
				n.spreads = true
				return n.either(each, loc+"/oneOf")
			}
		}
		n.later = append(n.later, func() {
			if !n.disjoint(alts, subs) {
				n.because(loc+"/"+key, "branches may overlap")
			}
		})
	}
	return &lang{kind: choice, alts: alts}
}

// disjoint tells whether no value of alts[i] fits subs[j], j other than i.
func (n *narrower) disjoint(alts []*lang, subs []*jsontext.Value) bool {
	if len(alts) > 200 {
		return false
	}
	for i, a := range alts {
		for j, s := range subs {
			if i != j && !n.excludes(a, s, 0) {
				return false
			}
		}
	}
	return true
}

// excludes tells, if it can, that no value of l fits schema s.
func (n *narrower) excludes(l *lang, s *jsontext.Value, depth int) bool {
	if depth > 8 || s.Kind == 't' {
		return false
	}
	if s.Kind == 'f' || l.kind == none {
		return true
	}
	if s.Has("$ref") {
		if t, ok := n.target(s, ""); ok && (n.draft < draft2019 || n.excludes(l, t, depth+1)) {
			return n.excludes(l, t, depth+1)
		}
		if n.draft < draft2019 {
			return false
		}
	}
	switch l.kind {
	case choice:
		for _, a := range l.alts {
			if !n.excludes(a, s, depth+1) {
				return false
			}
		}
		return true
	case reference:
		return l.def.lang != nil && n.excludes(l.def.lang, s, depth+1)
	case literals:
		for _, lit := range l.lits {
			v, err := jsontext.Parse([]byte(lit), maxJSONDepth)
			if err != nil {
				return false
			}
			if fits, sure := n.fits(v, s); fits || !sure {
				return false
			}
		}
		return true
	}
	mine := map[langKind]string{boolean: "boolean", integer: "integer", number: "number", text: "string", array: "array", object: "object"}[l.kind]
	if mine == "" {
		return false
	}
	if t := s.Get("type"); t != nil {
		hit := false
		for _, name := range typeList(t) {
			hit = hit || name == mine || name == "number" && mine == "integer" || name == "integer" && mine == "number"
		}
		if !hit {
			return true
		}
	}
	for _, key := range []string{"const", "enum"} {
		e := s.Get(key)
		if e == nil {
			continue
		}
		other := true
		kinds := map[string]string{"boolean": "tf", "integer": "0", "number": "0", "string": "\"", "array": "[", "object": "{"}[mine]
		for _, v := range append(slices.Clone(e.Elems), e) {
			if (key == "const") == (v == e) && strings.IndexByte(kinds, v.Kind) >= 0 {
				other = false
			}
		}
		if other {
			return true
		}
	}
	for _, sub := range s.Get("allOf").Items() {
		if n.excludes(l, sub, depth+1) {
			return true
		}
	}
	if l.kind != object || l.rest != nil {
		return false
	}
	fields := make(map[string]field, len(l.fields))
	for _, f := range l.fields {
		fields[f.key] = f
	}
	for _, r := range s.Get("required").Items() {
		if _, ok := fields[r.Str]; !ok {
			return true
		}
	}
	for _, p := range s.Get("properties").List() {
		if f, ok := fields[p.Key]; ok && f.required && n.excludes(f.lang, p.Val, depth+1) {
			return true
		}
	}
	if s.Get("additionalProperties").IsFalse() && !s.Has("patternProperties") {
		for _, f := range l.fields {
			if f.required && !s.Get("properties").Has(f.key) {
				return true
			}
		}
	}
	return false
}

// Keywords by the type of value they speak about.
var (
	numberWords = []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
	textWords   = []string{"minLength", "maxLength", "pattern"}
	arrayWords  = []string{"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems"}
	objectWords = []string{"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
		"required", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies"}
)

// values makes the lang of a schema without $ref, allOf, anyOf and oneOf.
func (n *narrower) values(v *jsontext.Value, loc string) *lang {
	for _, key := range []string{"$dynamicRef", "$recursiveRef"} {
		if v.Has(key) {
			n.because(loc+"/"+key, "not followed")
		}
	}
	if v.Has("if") && hasAny(v, "then", "else") {
		n.because(loc+"/if", "checked after the reply")
	}
	var types []string
	if v.Has("type") {
		types = typeList(v.Get("type"))
	} else {
		for _, g := range []struct {
			t     string
			words []string
		}{{"object", objectWords}, {"array", arrayWords}, {"string", textWords}, {"number", numberWords}} {
			if hasAny(v, g.words...) {
				types = append(types, g.t)
			}
		}
	}
	if hasAny(v, "enum", "const") {
		return n.literals(v, loc)
	}
	if v.Has("not") && !leaf(v) {
		n.not(v, loc)
	}
	if len(types) == 0 {
		if v.Has("type") {
			return &lang{kind: none}
		}
		if f := v.Get("format"); f != nil && formats[f.Str] != "" {
			types = []string{"string"}
		} else {
			return n.any(loc)
		}
	}
	if slices.Contains(types, "number") {
		types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "integer" })
	}
	var alts []*lang
	for _, t := range types {
		switch t {
		case "null":
			alts = append(alts, &lang{kind: literals, lits: []string{"null"}})
		case "boolean":
			alts = append(alts, &lang{kind: boolean})
		case "integer":
			alts = append(alts, n.number(v, loc, true))
		case "number":
			alts = append(alts, n.number(v, loc, false))
		case "string":
			alts = append(alts, n.text(v, loc))
		case "array":
			alts = append(alts, n.inside(n.array, v, loc))
		case "object":
			alts = append(alts, n.inside(n.object, v, loc))
		default:
			n.because(loc+"/type", "unknown type %q", t)
		}
	}
	if len(alts) == 1 {
		return alts[0]
	}
	return &lang{kind: choice, alts: alts}
}

// not notes a reason unless the negated schema plainly can't hold.
func (n *narrower) not(v *jsontext.Value, loc string) {
	no := v.Get("not")
	if no.IsFalse() {
		return
	}
	if no.Kind == '{' && v.Has("type") {
		if ts := typeList(no.Get("type")); len(ts) > 0 {
			mine := typeList(v.Get("type"))
			hit := false
			for _, t := range ts {
				for _, m := range mine {
					hit = hit || t == m || t == "integer" && m == "number" || t == "number" && m == "integer"
				}
			}
			if !hit {
				return
			}
		}
		if slices.Equal(typeList(v.Get("type")), []string{"object"}) && v.Has("properties") {
			for _, r := range no.Get("required").Items() {
				if !v.Get("properties").Has(r.Str) && !slices.ContainsFunc(v.Get("required").Items(), func(e *jsontext.Value) bool { return e.Str == r.Str }) {
					return // never written
				}
			}
		}
	}
	n.because(loc+"/not", "checked after the reply")
}

// enumeration gives the values that a schema lists, and what else it says.
func enumeration(v *jsontext.Value) (vals []*jsontext.Value, siblings *jsontext.Value) {
	if c := v.Get("const"); c != nil {
		return []*jsontext.Value{c}, v.Without("const")
	}
	return v.Get("enum").Items(), v.Without("enum")
}

// listed is the listed values that fit; sure is false if that can't be said of
// each.
func (n *narrower) listed(v *jsontext.Value) (l *lang, sure bool) {
	vals, siblings := enumeration(v)
	l = &lang{kind: literals}
	for _, e := range vals {
		fits, sure := n.fits(e, siblings)
		if !sure {
			return nil, false
		}
		if fits {
			l.lits = append(l.lits, string(e.AppendTo(nil)))
		}
	}
	if len(l.lits) == 0 {
		l.kind = none
	}
	return l, true
}

func (n *narrower) literals(v *jsontext.Value, loc string) *lang {
	vals, siblings := enumeration(v)
	l := &lang{kind: literals}
	for _, e := range vals {
		if fits, sure := n.fits(e, siblings); fits && sure {
			l.lits = append(l.lits, string(e.AppendTo(nil)))
		}
	}
	if len(l.lits) == 0 {
		for _, e := range vals {
			if fits, sure := n.fits(e, siblings); fits || !sure {
				n.because(loc+"/enum", "beside keywords that aren't evaluated here")
				l.lits = append(l.lits, string(e.AppendTo(nil)))
			}
		}
	}
	if len(l.lits) == 0 {
		return &lang{kind: none}
	}
	return l
}

// fits evaluates the simple keywords of s on v. It is sure only if s has no
// others that speak about values of this kind.
func (n *narrower) fits(v *jsontext.Value, s *jsontext.Value) (fits, sure bool) {
	switch s.Kind {
	case 't':
		return true, true
	case 'f':
		return false, true
	}
	sure = true
	if s.Has("$ref") {
		t, ok := n.target(s, "")
		if n.draft < draft2019 || lone(s, "$ref") {
			if !ok || n.budget < 0 {
				return true, false
			}
			n.budget--
			return n.fits(v, t)
		}
		sure = false
	}
	for _, m := range s.Members {
		if !known[m.Key] || annotations[m.Key] || !n.speaks(m.Key) {
			continue
		}
		switch m.Key {
		case "not", "allOf", "anyOf", "oneOf", "if", "then", "else", "multipleOf":
			holds, certain := n.combined(v, s, m)
			if certain && !holds {
				return false, true
			}
			sure = sure && certain
		case "type":
			hit := false
			for _, t := range typeList(m.Val) {
				switch t {
				case "null":
					hit = hit || v.Kind == 'n'
				case "boolean":
					hit = hit || v.Kind == 't' || v.Kind == 'f'
				case "string":
					hit = hit || v.Kind == '"'
				case "array":
					hit = hit || v.Kind == '['
				case "object":
					hit = hit || v.Kind == '{'
				case "number":
					hit = hit || v.Kind == '0'
				case "integer":
					r, ok := v.Rat()
					hit = hit || ok && r.IsInt()
				}
			}
			if !hit {
				return false, true
			}
		case "enum", "const":
			vals := []*jsontext.Value{m.Val}
			if m.Key == "enum" {
				vals = m.Val.Elems
			}
			if n.budget -= len(vals) / 100; n.budget < 0 {
				return true, false
			}
			if !slices.ContainsFunc(vals, func(e *jsontext.Value) bool { return sameValue(e, v) }) {
				if v.Kind == '{' || v.Kind == '[' {
					sure = false // other spelling or order
					continue
				}
				return false, true
			}
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
			x, ok := v.Rat()
			if !ok {
				continue
			}
			b, ok := m.Val.Rat()
			if !ok || n.draft == draft4 {
				sure = false
				continue
			}
			c := x.Cmp(b)
			if m.Key == "minimum" && c < 0 || m.Key == "maximum" && c > 0 || m.Key == "exclusiveMinimum" && c <= 0 || m.Key == "exclusiveMaximum" && c >= 0 {
				return false, true
			}
		case "minLength", "maxLength":
			if v.Kind == '"' {
				b, ok := intOf(m.Val)
				if !ok {
					sure = false
				} else if l := utf8.RuneCountInString(v.Str); m.Key == "minLength" && l < b || m.Key == "maxLength" && l > b {
					return false, true
				}
			}
		case "pattern":
			if v.Kind == '"' {
				re, err := n.matcher(m.Val.Str)
				matches := err == nil
				if err == nil {
					matches, err = re.Match(v.Str)
				}
				if err != nil {
					sure = false
				} else if !matches {
					return false, true
				}
			}
		default:
			switch {
			case slices.Contains(numberWords, m.Key) && v.Kind != '0':
			case slices.Contains(arrayWords, m.Key) && v.Kind != '[':
			case slices.Contains(objectWords, m.Key) && v.Kind != '{':
			default:
				sure = false
			}
		}
	}
	return true, sure
}

// combined is fits for a keyword made of other schemas, and for multipleOf.
func (n *narrower) combined(v, s *jsontext.Value, m jsontext.Member) (fits, sure bool) {
	if n.budget--; n.budget < 0 {
		return true, false
	}
	switch m.Key {
	case "multipleOf":
		x, ok := v.Rat()
		if !ok {
			return true, v.Kind != '0'
		}
		by, ok := m.Val.Rat()
		if !ok || by.Sign() <= 0 {
			return true, false
		}
		return new(big.Rat).Quo(x, by).IsInt(), true
	case "not":
		fits, sure = n.fits(v, m.Val)
		return !fits || !sure, sure
	case "if":
		holds, sure := n.fits(v, m.Val)
		if !sure {
			return true, false
		}
		then := s.Get("else")
		if holds {
			then = s.Get("then")
		}
		if then == nil {
			return true, true
		}
		return n.fits(v, then)
	case "then", "else":
		return true, true // said by if
	}
	hits := 0
	sure = true
	for _, sub := range m.Val.Items() {
		fits, certain := n.fits(v, sub)
		switch {
		case !certain:
			sure = false
		case fits:
			hits++
		case m.Key == "allOf":
			return false, true
		}
	}
	switch m.Key {
	case "anyOf":
		return hits > 0 || !sure, hits > 0 || sure
	case "oneOf":
		return hits == 1 || hits == 0 && !sure, sure || hits > 1
	}
	return true, sure
}

func intOf(v *jsontext.Value) (int, bool) {
	r, ok := v.Rat()
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	i := r.Num().Int64()
	if i < 0 {
		return 0, false
	}
	return int(min(i, 1<<30)), true
}

// number makes integers and decimals.
func (n *narrower) number(v *jsontext.Value, loc string, whole bool) *lang {
	l := &lang{kind: number, places: maxPlaces}
	if whole {
		l.kind, l.places = integer, 0
	}
	low := func(b *big.Rat, open bool) {
		if l.lo == nil || b.Cmp(l.lo) > 0 || b.Cmp(l.lo) == 0 && open {
			l.lo, l.loOpen = b, open
		}
	}
	high := func(b *big.Rat, open bool) {
		if l.hi == nil || b.Cmp(l.hi) < 0 || b.Cmp(l.hi) == 0 && open {
			l.hi, l.hiOpen = b, open
		}
	}
	if b, ok := v.Get("minimum").Rat(); ok {
		low(b, v.Get("exclusiveMinimum").IsTrue())
	}
	if b, ok := v.Get("maximum").Rat(); ok {
		high(b, v.Get("exclusiveMaximum").IsTrue())
	}
	if b, ok := v.Get("exclusiveMinimum").Rat(); ok {
		low(b, true)
	}
	if b, ok := v.Get("exclusiveMaximum").Rat(); ok {
		high(b, true)
	}
	m, ok := v.Get("multipleOf").Rat()
	if no, denied := v.Get("not").Get("multipleOf").Rat(); denied && no.Sign() > 0 {
		step := m
		if !ok || m.Sign() <= 0 {
			step = ratInt(1)
		}
		if l.lo != nil && l.hi != nil && (ok || whole) {
			if lits, ok := multiples(l, step, whole, no); ok {
				if len(lits) == 0 {
					return &lang{kind: none}
				}
				return &lang{kind: literals, lits: lits}
			}
		}
		if whole && new(big.Rat).Quo(ratInt(1), no).IsInt() {
			return &lang{kind: none} // every integer is a multiple
		}
		n.because(loc+"/not", "checked after the reply")
	}
	if !ok || m.Sign() <= 0 {
		return within(l)
	}
	if p, ok := powerOfTen(m); ok && p <= 0 && -p <= maxPlaces {
		if p == 0 {
			l.kind, l.places = integer, 0
		} else if !whole {
			l.places = -p
			if l.lo == nil { // so that no exponent is written
				l.lo = ratInt(-maxWhole)
			}
		}
		return within(l)
	}
	if l.lo != nil && l.hi != nil {
		if lits, ok := multiples(l, m, whole, nil); ok {
			if len(lits) == 0 {
				return &lang{kind: none}
			}
			return &lang{kind: literals, lits: lits}
		}
	}
	n.because(loc+"/multipleOf", "checked after the reply")
	return within(l)
}

// within is l, or none if no number lies between its bounds.
func within(l *lang) *lang {
	if (l.lo != nil || l.hi != nil) && len(between(l)) == 0 {
		return &lang{kind: none}
	}
	return l
}

// powerOfTen tells p with r = 10^p.
func powerOfTen(r *big.Rat) (p int, ok bool) {
	one := big.NewInt(1)
	x, sign := r.Num(), 1
	if r.IsInt() {
	} else if x.Cmp(one) == 0 {
		x, sign = r.Denom(), -1
	} else {
		return 0, false
	}
	s := x.String()
	if strings.Trim(s[1:], "0") != "" || s[0] != '1' {
		return 0, false
	}
	return sign * (len(s) - 1), true
}

// multiples lists the multiples of m within the bounds of l that are none of
// deny, if there are few; nil denies nothing.
func multiples(l *lang, m *big.Rat, whole bool, deny *big.Rat) ([]string, bool) {
	first := new(big.Rat).Quo(l.lo, m)
	k := ceil(first)
	last := floor(new(big.Rat).Quo(l.hi, m))
	if new(big.Int).Sub(last, k).Cmp(big.NewInt(255)) > 0 {
		return nil, false
	}
	var out []string
	for ; k.Cmp(last) <= 0; k = new(big.Int).Add(k, big.NewInt(1)) {
		x := new(big.Rat).Mul(new(big.Rat).SetInt(k), m)
		if l.loOpen && x.Cmp(l.lo) == 0 || l.hiOpen && x.Cmp(l.hi) == 0 || whole && !x.IsInt() || deny != nil && new(big.Rat).Quo(x, deny).IsInt() {
			continue
		}
		s, ok := decimal(x)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

func (n *narrower) text(v *jsontext.Value, loc string) *lang {
	l := &lang{kind: text, max: -1}
	if b, ok := intOf(v.Get("minLength")); ok {
		l.min = b
	}
	if b, ok := intOf(v.Get("maxLength")); ok {
		l.max = b
	}
	if l.max >= 0 && l.min > l.max {
		return &lang{kind: none}
	}
	if l.min > maxCounted {
		n.because(loc+"/minLength", "more than %d characters; checked after the reply", maxCounted)
		l.min = 0
	}
	src, at := "", loc+"/pattern"
	deny := v.Get("not")
	if deny != nil {
		at = loc + "/not"
		if src = otherWords(deny.Get("enum").Items(), l.min, l.max); src == "" || hasAny(v, "pattern", "format") {
			n.because(at, "checked after the reply")
			src = ""
		} else {
			l.min, l.max = 0, -1
		}
	}
	if src != "" {
	} else if p := v.Get("pattern"); p != nil && p.Kind == '"' {
		src = p.Str
	} else if f := v.Get("format"); f != nil {
		src = formats[f.Str]
		if src == "" {
			return l
		}
	}
	if src == "" {
		return l
	}
	p, err := parsePattern(src)
	if err == nil && n.plain {
		err = errSlow
	}
	if err != nil {
		if v.Has("pattern") || deny != nil {
			n.because(at, "%v; checked after the reply", err)
		}
		return l
	}
	p.fit(&l.min, &l.max)
	if p.min >= l.min && (l.max < 0 || p.max >= 0 && p.max <= l.max) {
		l.min, l.max = 0, -1
	} else if v.Has("pattern") {
		if l.max >= 0 && p.min > l.max || p.max >= 0 && p.max < l.min {
			return &lang{kind: none}
		}
		n.because(loc, "lengths beside pattern; checked after the reply")
		l.min, l.max = 0, -1
	} else {
		return l // the format is only a narrowing
	}
	l.pattern, n.patterned = p, true
	return l
}

func (n *narrower) array(v *jsontext.Value, loc string) *lang {
	l := &lang{kind: array, max: -1}
	if b, ok := intOf(v.Get("minItems")); ok {
		l.min = b
	}
	if b, ok := intOf(v.Get("maxItems")); ok {
		l.max = b
	}
	if l.max >= 0 && l.min > l.max {
		return &lang{kind: none}
	}
	tuple, rest, restAt := v.Get("prefixItems").Items(), v.Get("items"), "/items"
	at := "/prefixItems/"
	if rest != nil && rest.Kind == '[' {
		tuple, rest, restAt, at = rest.Elems, v.Get("additionalItems"), "/additionalItems", "/items/"
	}
	if rest == nil {
		if rest = v.Get("unevaluatedItems"); rest != nil {
			restAt = "/unevaluatedItems"
		}
	}
	if v.Has("contains") && n.speaks("contains") {
		if c := n.containing(v, l, loc); c != nil {
			n.spreads = true
			return c
		}
		n.because(loc+"/contains", "checked after the reply")
	}
	for i, p := range tuple {
		if l.max >= 0 && i >= l.max {
			break
		}
		pl := n.schema(p, loc+at+strconv.Itoa(i))
		if pl.kind == none {
			l.max = i
			break
		}
		l.prefix = append(l.prefix, pl)
	}
	need := l.max < 0 || l.max > len(l.prefix)
	switch {
	case !need:
	case rest != nil:
		l.item = n.schema(rest, loc+restAt)
	case len(tuple) == 0 || l.min > len(l.prefix):
		l.item = n.any(loc + "/items")
	}
	if l.item != nil && l.item.kind == none {
		l.item = nil
	}
	if l.min > len(l.prefix) && l.item == nil || l.max >= 0 && l.min > l.max {
		return &lang{kind: none}
	}
	// All of the tuple is written, and no more than must be unless it is a list.
	if len(tuple) > 0 && l.min <= len(l.prefix) && rest == nil {
		l.item = nil
	}
	if v.Get("uniqueItems").IsTrue() && l.max != 1 && l.max != 0 {
		if !n.coarse {
			if d := different(l); d != nil {
				n.spreads = true
				return d
			}
		}
		n.because(loc+"/uniqueItems", "checked after the reply")
	}
	return l
}

func (n *narrower) object(v *jsontext.Value, loc string) *lang {
	l := &lang{kind: object, max: -1}
	required := map[string]bool{}
	for _, r := range v.Get("required").Items() {
		required[r.Str] = true
	}
	others := v.Get("additionalProperties")
	othersAt := loc + "/additionalProperties"
	if others == nil {
		if others = v.Get("unevaluatedProperties"); others != nil {
			othersAt = loc + "/unevaluatedProperties"
		}
	}
	if others == nil {
		others = &jsontext.Value{Kind: 't'}
	}
	if others.Kind == '{' && v.Has("unevaluatedProperties") && !v.Has("additionalProperties") && hasAny(v, "anyOf", "oneOf", "if", "not", "dependentSchemas") {
		n.because(othersAt, "checked after the reply")
	}
	type keyPattern struct {
		re  *lexical.Matcher
		src string
		sub *jsontext.Value
		at  string
	}
	var patterns []keyPattern
	for _, p := range v.Get("patternProperties").List() {
		re, err := n.matcher(p.Key)
		if err != nil {
			return &lang{kind: none} // Compile has refused it
		}
		patterns = append(patterns, keyPattern{re, p.Key, p.Val, loc + "/patternProperties/" + jsontext.EscapePointer(p.Key)})
	}
	names := v.Get("propertyNames")
	add := func(key string, sub *jsontext.Value, at string) {
		for _, p := range patterns {
			matches, err := p.re.Match(key)
			if err != nil {
				n.because(p.at, "%v; checked after the reply", err)
				continue
			}
			if !matches {
				continue
			}
			if sub == nil {
				sub, at = p.sub, p.at
				continue
			}
			merged, ok := mergeSchemas(n.flatten(sub, at, 0), n.flatten(p.sub, p.at, 0), 1)
			if !ok {
				n.because(p.at, "can't be merged with property %q", key)
				continue
			}
			sub = merged
		}
		if sub == nil {
			sub, at = others, othersAt
		}
		if names != nil {
			if fits, sure := n.fits(&jsontext.Value{Kind: '"', Str: key}, names); !fits {
				sub = falseSchema
			} else if !sure {
				n.because(loc+"/propertyNames", "checked after the reply")
			}
		}
		if sub.IsFalse() {
			if required[key] {
				l.fields = append(l.fields, field{key, &lang{kind: none}, true})
				if n.barren == "" {
					n.barren = at + " for required " + strconv.Quote(clipText(key, 64))
				}
			}
			return
		}
		l.fields = append(l.fields, field{key, n.schema(sub, at), required[key]})
	}
	for _, p := range v.Get("properties").List() {
		add(p.Key, p.Val, loc+"/properties/"+jsontext.EscapePointer(p.Key))
	}
	added := map[string]bool{}
	for _, r := range v.Get("required").Items() {
		if !v.Get("properties").Has(r.Str) && !added[r.Str] {
			added[r.Str] = true
			add(r.Str, nil, loc+"/required")
		}
	}
	for _, f := range l.fields {
		if f.required && f.lang.kind == none {
			return &lang{kind: none}
		}
	}
	n.dependents(v, l, loc)
	least, most := 0, -1
	if b, ok := intOf(v.Get("minProperties")); ok {
		least = b
	}
	if b, ok := intOf(v.Get("maxProperties")); ok {
		most = b
	}
	if len(l.fields) > 0 || len(v.Get("properties").List()) > 0 {
		must := 0
		for _, f := range l.fields {
			if f.required {
				must++
			}
		}
		if most >= 0 && must > most {
			return &lang{kind: none}
		}
		few, many := least > must, most >= 0 && len(l.fields) > most
		if (few || many) && !n.coarse {
			if c := membered(l, least, most); c != nil {
				n.spreads = true
				return c
			}
		}
		if few {
			n.because(loc+"/minProperties", "checked after the reply")
		}
		if many {
			n.because(loc+"/maxProperties", "checked after the reply")
		}
		return l
	}
	// A map.
	l.min, l.max = least, most
	switch {
	case most == 0:
	case len(patterns) > 0:
		// Keys of the first pattern only, so that there is one schema to meet.
		p := patterns[0]
		if len(patterns) > 1 || names != nil {
			n.because(loc+"/patternProperties", "checked after the reply")
		}
		l.rest = n.schema(p.sub, p.at)
		if pat, err := parsePattern(p.src); err == nil {
			l.key = &lang{kind: text, max: -1, pattern: pat}
		} else {
			n.because(p.at, "%v; checked after the reply", err)
		}
	default:
		if !others.IsFalse() {
			l.rest = n.schema(others, othersAt)
		}
		if names != nil && l.rest != nil {
			k := names
			if k.Kind == '{' && !k.Has("type") {
				k = k.With("type", &jsontext.Value{Kind: '"', Str: "string"})
			}
			if k.Kind == '{' {
				l.key = n.schema(k, loc+"/propertyNames")
			}
		}
	}
	if l.rest != nil && l.rest.kind == none {
		l.rest = nil
	}
	if l.rest == nil && l.min > 0 {
		return &lang{kind: none}
	}
	if l.rest != nil && l.max != 1 {
		n.because(loc, "a map, in which a key may come twice")
	}
	return l
}

// dependents looks at the keywords that ask for keys when another is there.
func (n *narrower) dependents(v *jsontext.Value, l *lang, loc string) {
	has := func(key string) (required, written bool) {
		for _, f := range l.fields {
			if f.key == key {
				return f.required, true
			}
		}
		return false, len(l.fields) == 0 // a map may write it
	}
	for _, word := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		for _, d := range v.Get(word).List() {
			if _, written := has(d.Key); !written {
				continue
			}
			if d.Val.Kind == '[' {
				met := true
				for _, k := range d.Val.Elems {
					required, _ := has(k.Str)
					met = met && required
				}
				if met {
					continue
				}
			}
			if !d.Val.IsTrue() {
				n.because(loc+"/"+word, "checked after the reply")
			}
		}
	}
}
