package simengine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/accept"
)

// longestString is the longest minLength, in characters, that is served.
const longestString = 1 << 20

// fillAttempts is how many values are tried until one fits the schema.
const fillAttempts = 24

// fill returns a JSON value that fits schema, in the declared order of
// properties, with values taken from the user's text where they fit. ok is
// false when no such value was found; the value is then the best guess.
func fill(schema *node, said string, seed uint64) (value []byte, ok bool) {
	check := compileSchema(schema)
	var first []byte
	for try := range fillAttempts {
		f := filler{
			root: schema, try: try, rng: rand.New(rand.NewPCG(seed, uint64(try))),
			budget: 2000,
		}
		if try < 3 {
			f.hints = readHints(said)
		}
		v := f.value(schema, "", 0)
		if v == nil {
			continue
		}
		text := v.append(nil)
		if check == nil || check(text) {
			return text, true
		}
		if first == nil {
			first = text
		}
	}
	if first == nil {
		first = []byte("{}")
	}
	return first, false
}

// compileSchema returns the check of the schema, nil when it can't be compiled.
func compileSchema(schema *node) func([]byte) bool {
	a, err := accept.Compile(context.Background(), schema.append(nil), accept.Options{Formats: true})
	if err != nil {
		return nil
	}
	return func(text []byte) bool { return a.Check(text) == nil }
}

// soundSchema reports whether a schema obeys the rules for schemas. One that
// can't be compiled for another reason, an unknown reference say, passes.
func soundSchema(schema *node) bool {
	_, err := accept.Read(context.Background(), schema.append(nil), accept.Options{})
	var refused *accept.RefusedError
	return !errors.As(err, &refused) || refused.Keyword == "$schema"
}

// filler makes one value. The number of the try steers its choices: which
// branch of an alternative, and how many optional members.
type filler struct {
	root   *node
	try    int
	rng    *rand.Rand
	hints  hints
	budget int // values still allowed, against schemas that grow without end
}

func (f *filler) value(s *node, name string, depth int) *node {
	if f.budget--; f.budget < 0 || depth > 40 {
		return nil
	}
	if s == nil || s.kind == 't' || s.kind == '{' && len(s.keys) == 0 {
		return f.str(&node{kind: '{'}, name)
	}
	if s.kind != '{' {
		return nil
	}
	s = f.flatten(s, 0)
	if s == nil {
		return nil
	}
	if c := s.get("const"); c != nil {
		return c
	}
	if e := s.get("enum").elements(); len(e) > 0 {
		return f.oneOf(e)
	}
	switch f.kind(s) {
	case "object":
		return f.object(s, depth)
	case "array":
		return f.array(s, name, depth)
	case "integer":
		return f.number(s, name, true)
	case "number":
		return f.number(s, name, false)
	case "boolean":
		return boolNode(f.hints.yes || f.rng.IntN(2) == 0)
	case "null":
		return nullNode
	}
	return f.str(s, name)
}

// flatten resolves references and picks branches until one schema is left.
func (f *filler) flatten(s *node, steps int) *node {
	for {
		if steps++; steps > 60 {
			return nil
		}
		if ref := s.get("$ref"); ref != nil {
			target := f.resolve(ref.text())
			if target == nil {
				return nil
			}
			s = merge(s.without("$ref"), target)
			continue
		}
		if all := s.get("allOf").elements(); all != nil {
			s = s.without("allOf")
			for _, part := range all {
				if part.kind == '{' {
					if part.has("$ref") || part.has("allOf") || part.has("anyOf") || part.has("oneOf") || part.has("if") {
						if part = f.flatten(part, steps); part == nil {
							return nil
						}
					}
					s = merge(s, part)
				}
			}
			continue
		}
		branched := false
		for _, key := range []string{"anyOf", "oneOf"} {
			alternatives := s.get(key).elements()
			if len(alternatives) == 0 {
				continue
			}
			branch := alternatives[f.branch(alternatives)]
			s = s.without(key)
			branched = true
			if branch.kind == '{' {
				s = merge(s, branch)
			} else if branch.kind == 'f' {
				return nil
			}
			break
		}
		if branched {
			continue
		}
		if cond := s.get("if"); cond != nil {
			then, otherwise := s.get("then"), s.get("else")
			s = s.without("if", "then", "else")
			if f.try%2 == 0 {
				s = merge(merge(s, cond), then)
			} else {
				s = merge(s, otherwise)
			}
			continue
		}
		return s
	}
}

// branch picks among alternatives, null and references last at first.
func (f *filler) branch(alternatives []*node) int {
	if f.try == 0 {
		for i, a := range alternatives {
			if a.get("type").text() != "null" && !a.has("$ref") {
				return i
			}
		}
	}
	if f.budget < 1000 { // deep in: rather something that ends
		for i, a := range alternatives {
			if k := a.get("type").text(); k != "object" && k != "array" && k != "" {
				return i
			}
		}
	}
	return f.rng.IntN(len(alternatives))
}

func (f *filler) resolve(ref string) *node {
	if !strings.HasPrefix(ref, "#") {
		return nil
	}
	if name := ref[1:]; name != "" && name[0] != '/' { // an anchor
		return findAnchor(f.root, name)
	}
	return f.root.pointer(ref[1:])
}

func findAnchor(n *node, name string) *node {
	if n == nil || n.kind != '{' && n.kind != '[' {
		return nil
	}
	if n.get("$anchor").text() == name {
		return n
	}
	for _, v := range n.vals {
		if found := findAnchor(v, name); found != nil {
			return found
		}
	}
	return nil
}

// merge is a schema that both a and b describe, as far as one object can.
func merge(a, b *node) *node {
	if b == nil || b.kind != '{' {
		return a
	}
	for i, key := range b.keys {
		v := b.vals[i]
		have := a.get(key)
		switch {
		case have == nil:
			a = a.with(key, v)
		case key == "properties" || key == "patternProperties":
			for j, p := range v.keys {
				if old := have.get(p); old != nil {
					have = have.with(p, &node{kind: '{', keys: []string{"allOf"}, vals: []*node{listNode(old, v.vals[j])}})
				} else {
					have = have.with(p, v.vals[j])
				}
			}
			a = a.with(key, have)
		case key == "required":
			a = a.with(key, &node{kind: '[', vals: append(append([]*node(nil), have.vals...), v.vals...)})
		case key == "allOf":
			a = a.with(key, &node{kind: '[', vals: append(append([]*node(nil), have.vals...), v.vals...)})
		case strings.HasPrefix(key, "min") || key == "exclusiveMinimum":
			if x, _ := have.float(); x < floatOf(v) {
				a = a.with(key, v)
			}
		case strings.HasPrefix(key, "max") || key == "exclusiveMaximum":
			if x, _ := have.float(); x > floatOf(v) {
				a = a.with(key, v)
			}
		case key == "enum":
			both := &node{kind: '['}
			for _, x := range have.elements() {
				for _, y := range v.elements() {
					if equalNodes(x, y) {
						both.vals = append(both.vals, x)
					}
				}
			}
			a = a.with(key, both)
		case key == "type":
			a = a.with(key, mergeTypes(have, v))
		case key == "anyOf" || key == "oneOf":
			other := "anyOf"
			if key == "anyOf" {
				other = "oneOf"
			}
			if !a.has(other) {
				a = a.with(other, v)
			}
		default:
			a = a.with(key, v)
		}
	}
	return a
}

func mergeTypes(a, b *node) *node {
	names := func(n *node) []string {
		if n.kind == '"' {
			return []string{n.str}
		}
		return n.strings()
	}
	var both []*node
	for _, x := range names(a) {
		for _, y := range names(b) {
			if x == y {
				both = append(both, stringNode(x))
			} else if x == "number" && y == "integer" || x == "integer" && y == "number" {
				both = append(both, stringNode("integer"))
			}
		}
	}
	if len(both) == 1 {
		return both[0]
	}
	return listNode(both...)
}

func floatOf(n *node) float64 { f, _ := n.float(); return f }

func (f *filler) oneOf(values []*node) *node {
	for _, v := range values {
		if v.kind == '"' && f.hints.mentions(v.str) {
			return v
		}
	}
	if f.try == 0 {
		return values[0]
	}
	return values[f.rng.IntN(len(values))]
}

func (f *filler) kind(s *node) string {
	t := s.get("type")
	if t.text() != "" {
		return t.str
	}
	if names := t.strings(); len(names) > 0 {
		if f.try < 4 {
			for _, n := range names {
				if n != "null" {
					return n
				}
			}
		}
		return names[f.rng.IntN(len(names))]
	}
	for _, k := range []struct{ key, kind string }{
		{"properties", "object"}, {"required", "object"}, {"additionalProperties", "object"}, {"minProperties", "object"},
		{"patternProperties", "object"}, {"propertyNames", "object"},
		{"items", "array"}, {"prefixItems", "array"}, {"minItems", "array"}, {"uniqueItems", "array"}, {"contains", "array"},
		{"minimum", "number"}, {"maximum", "number"}, {"multipleOf", "number"}, {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},
	} {
		if s.has(k.key) {
			return k.kind
		}
	}
	return "string"
}

func (f *filler) object(s *node, depth int) *node {
	out := &node{kind: '{'}
	required := map[string]bool{}
	for _, r := range s.get("required").strings() {
		required[r] = true
	}
	props := s.get("properties")
	most := s.get("maxProperties").int(1 << 20)
	dependents := s.get("dependentRequired")
	want := func(key string, p *node) bool {
		if required[key] {
			return true
		}
		if p.kind == 'f' || len(out.keys) >= most || depth > 6 {
			return false
		}
		switch f.try {
		case 0:
			return f.hints.suggests(key, p)
		case 1:
			return false
		case 2:
			return true
		}
		return f.rng.IntN(2) == 0
	}
	if props != nil {
		// members that others ask for
		for range 3 {
			for _, key := range props.keys {
				if required[key] {
					for _, d := range dependents.get(key).strings() {
						required[d] = true
					}
				}
			}
		}
		for i, key := range props.keys {
			if out.has(key) || !want(key, props.vals[i]) {
				continue
			}
			v := f.value(props.vals[i], key, depth+1)
			if v == nil {
				if required[key] {
					return nil
				}
				continue
			}
			out = out.with(key, v)
			for _, d := range dependents.get(key).strings() {
				required[d] = true
			}
		}
	}
	// required members that are not declared, or came too late
	for _, key := range append(s.get("required").strings(), slices.Sorted(maps.Keys(required))...) {
		if out.has(key) {
			continue
		}
		p := props.get(key)
		if p == nil {
			p = f.undeclared(s, key)
		}
		v := f.value(p, key, depth+1)
		if v == nil {
			return nil
		}
		out = out.with(key, v)
	}
	for i, least := 0, s.get("minProperties").int(0); len(out.keys) < least && i < 200; i++ {
		key := f.freshKey(s, props, i)
		if key == "" || out.has(key) {
			continue
		}
		p := props.get(key)
		if p == nil {
			p = f.undeclared(s, key)
		}
		if v := f.value(p, key, depth+1); v != nil {
			out = out.with(key, v)
		}
	}
	return out
}

// freshKey is a name for one more member.
func (f *filler) freshKey(s, props *node, i int) string {
	if props != nil && i < len(props.keys) {
		return props.keys[i]
	}
	if names := s.get("propertyNames"); names != nil && names.kind == '{' {
		if v := f.value(names, "", 0); v.text() != "" {
			f.hints = hints{} // the next name is drawn, not taken from the text
			if i > 3 {
				return v.str + strconv.Itoa(i)
			}
			return v.str
		}
	}
	if pats := s.get("patternProperties"); pats != nil && len(pats.keys) > 0 {
		if k, ok := sampleRegexp(pats.keys[i%len(pats.keys)], f.rng, 0, 60); ok {
			return k
		}
	}
	return "key" + strconv.Itoa(i+1)
}

// undeclared is the schema of a member that properties does not name.
func (f *filler) undeclared(s *node, key string) *node {
	if pats := s.get("patternProperties"); pats != nil {
		for i, p := range pats.keys {
			if re, err := regexp.Compile(p); err == nil && re.MatchString(key) {
				return pats.vals[i]
			}
		}
	}
	if a := s.get("additionalProperties"); a != nil {
		return a
	}
	return &node{kind: 't'}
}

func (f *filler) array(s *node, name string, depth int) *node {
	out := listNode()
	prefix := s.get("prefixItems").elements()
	items := s.get("items")
	if items != nil && items.kind == '[' { // before draft 2020-12
		prefix, items = items.vals, s.get("additionalItems")
	}
	least, most := s.get("minItems").int(0), s.get("maxItems").int(1<<20)
	n := max(least, min(len(prefix), most))
	if n == 0 && most > 0 && depth < 5 && (f.try == 0 || f.rng.IntN(3) == 0) {
		n = 1
	}
	unique := s.get("uniqueItems") != nil && s.get("uniqueItems").kind == 't'
	contains := s.get("contains")
	containsLeast := s.get("minContains").int(1)
	if contains != nil {
		n = max(n, containsLeast)
	}
	for len(out.vals) < min(n, 4000) {
		i := len(out.vals)
		var e *node
		for again := range 40 {
			switch {
			case i < len(prefix):
				e = f.value(prefix[i], name, depth+1)
			case contains != nil && n-i <= containsLeast:
				both := contains
				if items != nil && items.kind == '{' && contains.kind == '{' {
					both = merge(items, contains)
				}
				e = f.value(both, name, depth+1)
			default:
				e = f.value(items, singular(name), depth+1)
			}
			if e == nil || !unique || !containsNode(out.vals, e) {
				break
			}
			e = f.vary(e, again)
			if !containsNode(out.vals, e) {
				break
			}
			e = nil
		}
		if e == nil {
			break
		}
		out.vals = append(out.vals, e)
	}
	if len(out.vals) < least {
		return nil
	}
	return out
}

// vary changes a value that stands in a list already: it has another one drawn
// at first, then makes one up. The whole is checked later.
func (f *filler) vary(e *node, again int) *node {
	f.try = max(f.try, 3) // draws, rather than the first choice
	if again < 25 {
		return e
	}
	switch e.kind {
	case '0':
		if i, err := e.num.Int64(); err == nil {
			return intNode(i + int64(again) + 1)
		}
	case '"':
		if again%2 == 0 {
			return stringNode(e.str + strconv.Itoa(again))
		}
	}
	return e
}

func containsNode(list []*node, e *node) bool {
	for _, x := range list {
		if equalNodes(x, e) {
			return true
		}
	}
	return false
}

func singular(name string) string { return strings.TrimSuffix(name, "s") }

func (f *filler) number(s *node, name string, whole bool) *node {
	low, high := math.Inf(-1), math.Inf(1)
	if v, ok := s.get("minimum").float(); ok {
		low = v
	}
	if v, ok := s.get("maximum").float(); ok {
		high = v
	}
	step := 0.0
	if v, ok := s.get("multipleOf").float(); ok && v > 0 {
		step = v
	}
	unit := 1.0
	if whole {
		if step == 0 {
			step = 1
		} else if step != math.Trunc(step) {
			step = wholeStep(step)
		}
	}
	if step > 0 {
		unit = step
	} else if w := high - low; w < 4 {
		unit = w / 8
	}
	if b := s.get("exclusiveMinimum"); b != nil {
		if v, ok := b.float(); ok {
			low = math.Max(low, math.Nextafter(v, math.Inf(1)))
		} else if b.kind == 't' {
			low = math.Nextafter(low, math.Inf(1))
		}
	}
	if b := s.get("exclusiveMaximum"); b != nil {
		if v, ok := b.float(); ok {
			high = math.Min(high, math.Nextafter(v, math.Inf(-1)))
		} else if b.kind == 't' {
			high = math.Nextafter(high, math.Inf(-1))
		}
	}
	fits := func(x float64) bool {
		return x >= low && x <= high && (!whole || x == math.Trunc(x)) && (step == 0 || math.Abs(math.Remainder(x, step)) < 1e-9*math.Max(1, step))
	}
	for _, h := range f.hints.numbers {
		if fits(h) {
			f.hints.useNumber(h)
			return number(h, whole)
		}
	}
	start := 1.0
	switch {
	case !math.IsInf(low, 0) && start < low || start > high && !math.IsInf(low, 0):
		start = low
	case start > high:
		start = high - 3*unit
	}
	if f.try > 0 {
		start += float64(f.rng.IntN(7)) * unit
	}
	if step > 0 {
		k := math.Ceil(start/step - 1e-9)
		if k*step > high {
			k = math.Floor(high/step + 1e-9)
		}
		return numberOf(k, step, whole)
	}
	if start > high {
		start = low + (high-low)/2
	}
	return number(start, whole)
}

// wholeStep is the smallest whole multiple of step.
func wholeStep(step float64) float64 {
	for k := 1.0; k < 1000; k++ {
		if v := step * k; math.Abs(v-math.Round(v)) < 1e-9 {
			return math.Round(v)
		}
	}
	return 1
}

func number(x float64, whole bool) *node {
	if whole || x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return &node{kind: '0', num: json.Number(strconv.FormatFloat(x, 'f', -1, 64))}
	}
	return numberNode(x)
}

// numberOf is k times step, exactly as the decimal text of step says.
func numberOf(k, step float64, whole bool) *node {
	if step == math.Trunc(step) {
		return number(k*step, whole)
	}
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(step, 'f', -1, 64))
	if !ok {
		return number(k*step, whole)
	}
	r.Mul(r, new(big.Rat).SetFloat64(k))
	text := r.FloatString(12)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	return &node{kind: '0', num: json.Number(text)}
}

var formats = map[string]string{
	"date": "2026-11-30", "time": "09:30:00Z", "date-time": "2026-11-30T09:30:00Z", "duration": "PT30M",
	"email": "ada@example.com", "idn-email": "ada@example.com", "hostname": "example.com", "idn-hostname": "example.com",
	"ipv4": "192.0.2.7", "ipv6": "2001:db8::7", "uri": "https://example.com/a", "uri-reference": "/a", "iri": "https://example.com/a",
	"iri-reference": "/a", "uri-template": "https://example.com/{id}", "uuid": "3f2b8c1e-5d4a-4e6f-9a7b-0c1d2e3f4a5b",
	"json-pointer": "/a/0", "relative-json-pointer": "1/a", "regex": "^a+$",
}

func (f *filler) str(s *node, name string) *node {
	least, most := s.get("minLength").int(0), s.get("maxLength").int(1<<20)
	fits := func(v string) bool {
		n := utf8.RuneCountInString(v)
		if n < least || n > most {
			return false
		}
		if p := s.get("pattern").text(); p != "" {
			re, err := regexp.Compile(p)
			return err == nil && re.MatchString(v)
		}
		return true
	}
	format := s.get("format").text()
	if h, ok := f.hints.forString(name, format, fits); ok {
		return stringNode(h)
	}
	for _, key := range []string{"default", "examples"} {
		v := s.get(key)
		if e := v.elements(); len(e) > 0 {
			v = e[0]
		}
		if v != nil && v.kind == '"' && fits(v.str) && format == "" && f.try < 3 {
			return v
		}
	}
	if v, ok := formats[format]; ok && fits(v) {
		return stringNode(v)
	}
	if p := s.get("pattern").text(); p != "" {
		for range 20 {
			if v, ok := sampleRegexp(p, f.rng, least, most); ok && fits(v) {
				return stringNode(v)
			}
		}
		return stringNode("")
	}
	v := strings.ReplaceAll(name, "_", " ")
	if v == "" || f.try > 2 {
		v = sampleWords[f.rng.IntN(len(sampleWords))]
	}
	if least > longestString {
		return nil
	}
	if n := utf8.RuneCountInString(v); n < least {
		var b strings.Builder
		b.WriteString(v)
		for n < least {
			w := sampleWords[f.rng.IntN(len(sampleWords))]
			b.WriteString(" " + w)
			n += 1 + len(w)
		}
		v = b.String()
	}
	if r := []rune(v); len(r) > most {
		v = string(r[:most])
	}
	return stringNode(v)
}

var sampleWords = []string{"alpha", "bravo", "delta", "echo", "kilo", "lima", "mike", "oscar", "romeo", "sierra", "tango", "zulu"}

// sampleRegexp draws a text that the pattern matches, if Go reads the pattern.
func sampleRegexp(pattern string, rng *rand.Rand, least, most int) (string, bool) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	if !sampleNode(&b, re.Simplify(), rng, most, 0) {
		return "", false
	}
	for b.Len() < least {
		n := b.Len()
		if sampleNode(&b, re.Simplify(), rng, most, 0); b.Len() == n {
			break
		}
	}
	return b.String(), true
}

func sampleNode(b *strings.Builder, re *syntax.Regexp, rng *rand.Rand, most, depth int) bool {
	if depth > 100 || b.Len() > 1<<16 {
		return false
	}
	repeat := func(least, up int) bool {
		for range least + rng.IntN(up-least+1) {
			if !sampleNode(b, re.Sub[0], rng, most, depth+1) {
				return false
			}
		}
		return true
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			b.WriteRune(r)
		}
	case syntax.OpCharClass:
		r, ok := sampleClass(re.Rune, rng)
		if !ok {
			return false
		}
		b.WriteRune(r)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte("abcdefghij0123456789"[rng.IntN(20)])
	case syntax.OpCapture:
		return sampleNode(b, re.Sub[0], rng, most, depth+1)
	case syntax.OpStar:
		return repeat(0, 2)
	case syntax.OpPlus:
		return repeat(1, 3)
	case syntax.OpQuest:
		return repeat(0, 1)
	case syntax.OpRepeat:
		up := re.Max
		if up < 0 {
			up = re.Min + 2
		}
		return repeat(re.Min, min(up, re.Min+8))
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !sampleNode(b, sub, rng, most, depth+1) {
				return false
			}
		}
	case syntax.OpAlternate:
		return sampleNode(b, re.Sub[rng.IntN(len(re.Sub))], rng, most, depth+1)
	}
	return true // anchors and the empty match write nothing
}

// sampleClass prefers letters, digits and other readable characters.
func sampleClass(ranges []rune, rng *rand.Rand) (rune, bool) {
	if len(ranges) == 0 {
		return 0, false
	}
	var readable []rune
	for r := rune('a'); r <= 'z'; r++ {
		readable = append(readable, r)
	}
	for r := rune('A'); r <= 'Z'; r++ {
		readable = append(readable, r)
	}
	for r := rune(' '); r < 'A'; r++ {
		readable = append(readable, r)
	}
	var fit []rune
	for _, r := range readable {
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i] <= r && r <= ranges[i+1] {
				fit = append(fit, r)
			}
		}
	}
	if len(fit) > 0 {
		return fit[rng.IntN(len(fit))], true
	}
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1] && r < ranges[i]+100; r++ {
			if unicode.IsPrint(r) && !(0xd800 <= r && r < 0xe000) {
				return r, true
			}
		}
	}
	return ranges[0], ranges[0] < 0xd800 || ranges[0] > 0xdfff
}

// hints are the values that a user's text offers.
type hints struct {
	all      string
	lower    string
	quoted   []string
	numbers  []float64
	codes    []string // ids, dates, paths: words with a digit or a separator inside
	emails   []string
	urls     []string
	proper   []string // capitalised phrases
	yes      bool
	consumed map[string]bool
}

var (
	hintQuoted = regexp.MustCompile("\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|`([^`\n]{1,200})`|“([^”\n]{1,200})”|«([^»\n]{1,200})»")
	hintEmail  = regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`)
	hintURL    = regexp.MustCompile(`https?://[^\s"'<>)]+`)
	hintNumber = regexp.MustCompile(`(?:^|[\s(#$€=:])(-?\d{1,15}(?:\.\d{1,9})?)(?:$|[\s),;:?!%°]|\.(?:\s|$))`)
	hintCode   = regexp.MustCompile(`[\w/.:#~-]*(?:\d|[/_#~])[\w/.:#~-]*\w`)
	hintDate   = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	hintProper = regexp.MustCompile(`\p{Lu}[\p{L}\d]*(?:[ -]\p{Lu}[\p{L}\d]*)*`)
)

// maxHintBytes is how much of a text is read for hints, so that a long request stays cheap.
const maxHintBytes = 4096

func readHints(text string) hints {
	if len(text) > maxHintBytes {
		text = text[:maxHintBytes]
	}
	text = strings.ToValidUTF8(text, "")
	h := hints{all: strings.TrimSpace(text), lower: strings.ToLower(text), consumed: map[string]bool{}}
	for _, m := range hintQuoted.FindAllStringSubmatch(text, 20) {
		for _, g := range m[1:] {
			if g != "" {
				h.quoted = append(h.quoted, g)
			}
		}
	}
	h.emails = hintEmail.FindAllString(text, 20)
	h.urls = hintURL.FindAllString(text, 20)
	for _, m := range hintNumber.FindAllStringSubmatch(text, 20) {
		if x, err := strconv.ParseFloat(m[1], 64); err == nil {
			h.numbers = append(h.numbers, x)
		}
	}
	h.codes = hintCode.FindAllString(text, 20)
	for _, m := range hintProper.FindAllStringIndex(text, 40) {
		before := strings.TrimRight(text[:m[0]], " \n\t")
		alone := len(h.all) == m[1]-m[0]
		if alone || before != "" && !strings.ContainsAny(before[len(before)-1:], ".\"'`") { // neither the start of a sentence nor of a quotation
			h.proper = append(h.proper, text[m[0]:m[1]])
		}
	}
	h.yes = strings.Contains(h.lower, "yes") || strings.Contains(h.lower, "enable") || strings.Contains(h.lower, "turn on")
	return h
}

// mentions reports whether the text has that word.
func (h *hints) mentions(word string) bool {
	word = strings.ToLower(word)
	if word == "" || h.lower == "" {
		return false
	}
	for i := 0; ; {
		at := strings.Index(h.lower[i:], word)
		if at < 0 {
			return false
		}
		at += i
		before, _ := utf8.DecodeLastRuneInString(h.lower[:at])
		after, _ := utf8.DecodeRuneInString(h.lower[at+len(word):])
		if !isWord(before) && !isWord(after) {
			return true
		}
		i = at + 1
	}
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// suggests reports whether an optional property should be given.
func (h *hints) suggests(key string, p *node) bool {
	if p.get("format").text() == "email" && len(h.emails) > 0 {
		return true
	}
	for _, e := range p.get("enum").elements() {
		if h.mentions(e.text()) {
			return true
		}
	}
	return h.mentions(strings.ReplaceAll(key, "_", " "))
}

func (h *hints) useNumber(x float64) {
	for i, n := range h.numbers {
		if n == x {
			h.numbers = append(append([]float64(nil), h.numbers[:i]...), h.numbers[i+1:]...)
			return
		}
	}
}

// forString is the value of the text that suits a string property best.
func (h *hints) forString(name, format string, fits func(string) bool) (string, bool) {
	if h.all == "" {
		return "", false
	}
	take := func(lists ...[]string) (string, bool) {
		for _, l := range lists {
			for _, v := range l {
				if !h.consumed[v] && fits(v) {
					h.consumed[v] = true
					return v, true
				}
			}
		}
		return "", false
	}
	lower := strings.ToLower(name)
	like := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(lower, w) {
				return true
			}
		}
		return false
	}
	switch {
	case format == "email" || like("email", "recipient", "attendee"):
		return take(h.emails)
	case format == "uri" || like("url", "uri", "link", "website"):
		return take(h.urls)
	case format == "date" || format == "" && like("date", "day"):
		var dates []string
		for _, c := range h.codes {
			if hintDate.MatchString(c) {
				dates = append(dates, c)
			}
		}
		return take(dates)
	case format != "":
		return "", false
	case like("query", "prompt", "question", "search"):
		return take(h.quoted, []string{h.all})
	case lower == "id" || strings.HasSuffix(lower, "_id") || like("key", "code", "number", "path", "file", "version", "ref", "sku"):
		return take(h.codes, h.quoted)
	case like("city", "location", "place", "country", "origin", "destination", "town"):
		return take(h.proper, h.quoted, h.codes)
	case like("name", "person", "user", "owner", "assignee", "channel", "project", "repo"):
		return take(h.quoted, h.proper, h.codes)
	case like("text", "message", "body", "content", "title", "description", "summary", "subject", "comment", "note"):
		return take(h.quoted, []string{h.all})
	}
	return take(h.quoted, h.proper, h.codes)
}
