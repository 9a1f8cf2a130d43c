package accept

import (
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A builder turns schemas into formulas.
type builder struct {
	l      *loader
	m      *machine
	x      *exprs
	done   map[buildKey]*built
	scopes rules[scope]
	defs   []*path // where each definition stands
	depth  int
}

// buildKey: what a schema means depends on where a $dynamicRef in it leads.
type buildKey struct {
	v  *jsontext.Value
	in uint64 // scope
}

type built struct {
	e    expr
	made bool
	def  int // -1: nothing refers to it from within
}

// A scope holds, for each dynamic anchor, the outermost schema that has it on
// the way from the root; sorted by name.
type scope []scoped

type scoped struct {
	name string
	to   place
}

func (s scope) encode() string {
	var b strings.Builder
	for _, e := range s {
		b.WriteString(e.name + "\x00" + e.to.in.uri + "\x00" + e.to.path.String() + "\x00")
	}
	return b.String()
}

func (s scope) find(name string) (place, bool) {
	for _, e := range s {
		if e.name == name {
			return e.to, true
		}
	}
	return place{}, false
}

// enter adds the dynamic anchors of a resource.
func (b *builder) enter(id uint64, r *resource) uint64 {
	if len(r.dynamic) == 0 {
		return id
	}
	s := slices.Clone(b.scopes.list[id])
	for name, p := range r.dynamic {
		if _, ok := s.find(name); !ok {
			s = append(s, scoped{name, p})
		}
	}
	slices.SortFunc(s, func(x, y scoped) int { return strings.Compare(x.name, y.name) })
	return b.scopes.id(s)
}

// maxBuildDepth bounds how deep schemas refer to one another: 10,000 calls of
// about 1 kB each.
const maxBuildDepth = 10_000

func (b *builder) root(r *resource) (expr, error) {
	b.scopes.id(nil)
	e, err := b.schema(place{r.root, r, r.path}, 0)
	if err != nil {
		return no, err
	}
	return e, b.checkLoops()
}

// schema is what p asks of a value.
func (b *builder) schema(p place, in uint64) (expr, error) {
	switch p.v.Kind {
	case 't':
		return yes, nil
	case 'f':
		return no, nil
	}
	if r := b.l.roots[p.v]; r != nil {
		p.in = r
		in = b.enter(in, r)
	}
	key := buildKey{p.v, in}
	if d := b.done[key]; d != nil {
		if d.made {
			return d.e, nil
		}
		if d.def < 0 {
			d.def = len(b.m.defs)
			b.m.defs = append(b.m.defs, no)
			b.defs = append(b.defs, p.path)
		}
		return b.x.intern(opRef, uint64(d.def), 0, nil), nil
	}
	if b.depth++; b.depth > maxBuildDepth {
		return no, &LimitError{Limit: "references in a row", Max: maxBuildDepth, Path: p.path.String()}
	}
	defer func() { b.depth-- }()
	if b.x.parts > b.l.limits.Formulas {
		return no, &LimitError{Limit: "formulas", Max: b.l.limits.Formulas, Path: p.path.String()}
	}
	if len(b.done) > b.l.schemas+b.l.limits.Scopes {
		return no, &LimitError{Limit: "scopes", Max: b.l.limits.Scopes, Path: p.path.String(), Keyword: "$dynamicRef"}
	}
	if len(b.done)&0x3FF == 0x3FF {
		if err := b.l.ctx.Err(); err != nil {
			return no, err
		}
	}
	d := &built{def: -1}
	b.done[key] = d
	e, err := b.keywords(p, in)
	if err != nil {
		return no, err
	}
	if d.def >= 0 {
		b.m.defs[d.def] = e
	}
	d.e, d.made = e, true
	return e, nil
}

// get is a keyword's value, if the draft and the vocabulary of p know it.
func (p place) get(name string) *jsontext.Value {
	v := p.v.Get(name)
	if v == nil {
		return nil
	}
	if k := lookup(name, p.in.draft); k == nil || k.vocab&p.in.vocab == 0 {
		return nil
	}
	return v
}

// child is the schema at a keyword.
func (b *builder) child(p place, v *jsontext.Value, toks ...string) place {
	at := p.path
	for _, t := range toks {
		at = b.l.to(at, t)
	}
	return place{v, p.in, at}
}

// references gives what $ref, $dynamicRef and $recursiveRef mean.
func (b *builder) references(p place, in uint64) ([]place, []uint64, error) {
	var to []place
	var scopes []uint64
	for _, name := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		ref := p.get(name)
		if ref == nil {
			continue
		}
		target, anchor, err := b.l.find(ref.Str, p.in, p.path, name)
		if err != nil {
			return nil, nil, err
		}
		if name != "$ref" && (anchor != "" || name == "$recursiveRef") {
			if d, ok := target.in.dynamic[anchor]; ok && d.v == target.v {
				if outer, ok := b.scopes.list[in].find(anchor); ok {
					target = outer
				}
			}
		}
		if !target.v.IsSchema() {
			return nil, nil, refuse(p.path, name, "%s leads to %s", ref.Str, kindName(target.v))
		}
		to = append(to, target)
		scopes = append(scopes, b.enter(in, target.in))
	}
	return to, scopes, nil
}

func (b *builder) keywords(p place, in uint64) (expr, error) {
	x := b.x
	all := make([]expr, 0, 4)
	add := func(e expr) { all = append(all, e) }
	to, scopes, err := b.references(p, in)
	if err != nil {
		return no, err
	}
	for i, t := range to {
		e, err := b.schema(t, scopes[i])
		if err != nil {
			return no, err
		}
		add(e)
	}
	if p.in.draft <= Draft07 && len(to) > 0 {
		return x.and(all...), nil
	}
	steps := [...]func(place, uint64, func(expr)) error{b.values, b.combined, b.objects, b.arrays}
	var about [len(steps)]bool
	for i := range p.v.Members {
		if k := stepOf[p.v.Members[i].Key]; k > 0 {
			about[k-1] = true
		}
	}
	for i, step := range steps {
		if about[i] {
			if err := step(p, in, add); err != nil {
				return no, err
			}
		}
	}
	return x.and(all...), nil
}

// stepOf says of a keyword from 1 which of the steps of keywords it needs.
var stepOf = func() map[string]int {
	of := map[string]int{}
	for i, names := range []string{
		"type const enum minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format",
		"allOf anyOf oneOf not if",
		"properties patternProperties additionalProperties propertyNames required minProperties maxProperties " +
			"dependentRequired dependencies dependentSchemas unevaluatedProperties",
		"prefixItems items additionalItems minItems maxItems uniqueItems contains unevaluatedItems",
	} {
		for name := range strings.FieldsSeq(names) {
			of[name] = i + 1
		}
	}
	return of
}()

// values is about type, enum, const, and the keywords of numbers and strings.
func (b *builder) values(p place, _ uint64, add func(expr)) error {
	x := b.x
	if v := p.get("type"); v != nil {
		var t types
		integer := false
		name := func(s string) {
			if s == "integer" {
				integer = true
			} else {
				t |= typeNames[s]
			}
		}
		if v.Kind == '"' {
			name(v.Str)
		}
		for _, n := range v.Elems {
			name(n.Str)
		}
		e := x.typed(t)
		if integer && t&tNumber == 0 {
			b.m.at = origin{p.path, "type"}
			i, err := b.m.number(numberRule{op: numInteger})
			if err != nil {
				return err
			}
			e = x.or(e, i)
		}
		add(e)
	}
	for _, name := range []string{"const", "enum"} {
		v := p.get(name)
		if v == nil {
			continue
		}
		list := v.Elems
		if name == "const" {
			list = []*jsontext.Value{v}
		}
		e, err := b.anyOfValues(list)
		if err != nil {
			return wrap(err, p, name)
		}
		add(e)
	}
	for i := range bounds {
		k := &bounds[i]
		v := p.get(k.name)
		if v == nil || v.Kind != '0' {
			continue
		}
		open := k.open
		if p.in.draft == Draft04 && k.draft04 != "" {
			open = p.get(k.draft04).IsTrue()
		}
		b.m.at = origin{p.path, k.name}
		e, err := b.m.number(numberRule{k.op, v.Str, open})
		if err != nil {
			return wrap(err, p, k.name)
		}
		add(x.when(tNumber, e))
	}
	lo, hi := p.get("minLength"), p.get("maxLength")
	if lo != nil && count(lo) > 0 || hi != nil {
		r := textRule{op: textLength, lo: 0, hi: -1}
		if lo != nil {
			r.lo = int64(count(lo))
		}
		if hi != nil {
			r.hi = int64(count(hi))
		}
		b.m.at = origin{p.path, "maxLength"}
		e, err := b.m.text(r)
		if err != nil {
			return wrap(err, p, "maxLength")
		}
		add(x.when(tString, e))
	}
	if v := p.get("pattern"); v != nil {
		b.m.at = origin{p.path, "pattern"}
		e, err := b.m.text(textRule{op: textPattern, val: v.Str})
		if err != nil {
			return wrap(err, p, "pattern")
		}
		add(x.when(tString, e))
	}
	if v := p.get("format"); v != nil && p.in.formats {
		b.m.at = origin{p.path, "format"}
		e, err := b.m.text(textRule{op: textFormat, val: v.Str})
		if err != nil {
			return wrap(err, p, "format")
		}
		add(x.when(tString, e))
	}
	return nil
}

// bounds are the keywords of numbers.
var bounds = [...]struct {
	name    string
	op      numberOp
	open    bool
	draft04 string // what makes it open there
}{
	{"minimum", numMin, false, "exclusiveMinimum"}, {"maximum", numMax, false, "exclusiveMaximum"},
	{"exclusiveMinimum", numMin, true, ""}, {"exclusiveMaximum", numMax, true, ""}, {"multipleOf", numMultiple, false, ""},
}

// wrap adds to what lexical says where it is.
func wrap(err error, p place, keyword string) error {
	if why, ok := undecidable(err); ok {
		return refuse(p.path, keyword, "%s", why)
	}
	return err
}

// anyOfValues is true of the values in list.
func (b *builder) anyOfValues(list []*jsontext.Value) (expr, error) {
	x := b.x
	var words set
	var numbers []string
	var es []expr
	for _, v := range list {
		switch v.Kind {
		case '"':
			words = x.sets.add(words, b.m.word(v.Str))
		case '0':
			numbers = append(numbers, v.Str)
		default:
			e, err := b.value(v)
			if err != nil {
				return no, err
			}
			es = append(es, e)
		}
	}
	if words != 0 {
		es = append(es, x.atom(opStrIn, uint64(words)))
	}
	if len(numbers) > 0 {
		b.m.at = origin{} // of a value of a list nothing is to be told
		e, err := b.m.numbers(numbers)
		if err != nil {
			return no, err
		}
		es = append(es, e)
	}
	return x.or(es...), nil
}

// value is true of v alone.
func (b *builder) value(v *jsontext.Value) (expr, error) {
	x := b.x
	switch v.Kind {
	case 'n':
		return x.typed(tNull), nil
	case 't':
		return x.typed(tTrue), nil
	case 'f':
		return x.typed(tFalse), nil
	case '[':
		r := &itemRule{rest: no}
		for _, e := range v.Elems {
			q, err := b.anyOfValues([]*jsontext.Value{e})
			if err != nil {
				return no, err
			}
			r.prefix = append(r.prefix, q)
		}
		return x.and(b.m.items(r), x.atom(opMin, uint64(len(r.prefix)))), nil
	case '{':
		var vals []member
		var has set
		for _, mem := range v.Members {
			q, err := b.anyOfValues([]*jsontext.Value{mem.Val})
			if err != nil {
				return no, err
			}
			w := b.m.word(mem.Key)
			vals = append(vals, member{w, q})
			has = x.sets.add(has, w)
		}
		return x.and(b.m.members(vals, nil, no), x.atom(opHas, uint64(has))), nil
	}
	return b.anyOfValues([]*jsontext.Value{v})
}

// list is the schemas of an array keyword.
func (b *builder) list(p place, in uint64, name string) ([]expr, error) {
	v := p.get(name)
	es := make([]expr, len(v.Items()))
	for i, e := range v.Items() {
		var err error
		if es[i], err = b.schema(b.child(p, e, name, strconv.Itoa(i)), in); err != nil {
			return nil, err
		}
	}
	return es, nil
}

// one is the schema of a keyword; found tells whether there is any.
func (b *builder) one(p place, in uint64, name string) (e expr, found bool, err error) {
	v := p.get(name)
	if v == nil {
		return yes, false, nil
	}
	e, err = b.schema(b.child(p, v, name), in)
	return e, true, err
}

// combined is about allOf, anyOf, oneOf, not, if.
func (b *builder) combined(p place, in uint64, add func(expr)) error {
	x := b.x
	for _, k := range []struct {
		name string
		of   func(...expr) expr
	}{{"allOf", x.and}, {"anyOf", x.or}, {"oneOf", x.one}} {
		v := p.get(k.name)
		if v == nil {
			continue
		}
		if len(v.Items()) > b.l.limits.Width {
			return &LimitError{Limit: "width", Max: b.l.limits.Width, Path: p.path.String(), Keyword: k.name}
		}
		es, err := b.list(p, in, k.name)
		if err != nil {
			return err
		}
		add(k.of(es...))
	}
	e, found, err := b.one(p, in, "not")
	if err != nil {
		return err
	}
	if found {
		add(x.neg(e))
	}
	c, found, err := b.one(p, in, "if")
	if err != nil || !found {
		return err
	}
	then, _, err := b.one(p, in, "then")
	if err != nil {
		return err
	}
	other, _, err := b.one(p, in, "else")
	if err != nil {
		return err
	}
	add(x.or(x.neg(c), then))
	add(x.or(c, other))
	return nil
}

func (b *builder) objects(p place, in uint64, add func(expr)) error {
	x := b.x
	var vals []member
	if props := p.get("properties"); props != nil {
		at := b.l.to(p.path, "properties")
		vals = make([]member, 0, len(props.Members))
		for _, m := range props.Members {
			e, err := b.schema(place{m.Val, p.in, b.l.to(at, m.Key)}, in)
			if err != nil {
				return err
			}
			vals = append(vals, member{b.m.word(m.Key), e})
		}
	}
	var patterns []patternRule
	for _, m := range p.get("patternProperties").List() {
		e, err := b.schema(b.child(p, m.Val, "patternProperties", m.Key), in)
		if err != nil {
			return err
		}
		b.m.at = origin{b.child(p, nil, "patternProperties").path, m.Key}
		t, err := b.m.textID(textRule{op: textPattern, val: m.Key})
		if err != nil {
			return wrap(err, b.child(p, nil, "patternProperties"), m.Key)
		}
		patterns = append(patterns, patternRule{t, e})
	}
	rest, hasRest, err := b.one(p, in, "additionalProperties")
	if err != nil {
		return err
	}
	if len(vals) > 0 || len(patterns) > 0 || hasRest {
		add(x.when(tObject, b.m.members(vals, patterns, rest)))
	}
	if e, found, err := b.one(p, in, "propertyNames"); err != nil {
		return err
	} else if found {
		add(x.when(tObject, x.atom(opNames, 0, e)))
	}
	if v := p.get("required"); v != nil {
		add(x.when(tObject, b.m.has(v.Elems)))
	}
	if v := p.get("minProperties"); v != nil {
		add(x.when(tObject, x.atom(opMinKeys, count(v))))
	}
	if v := p.get("maxProperties"); v != nil {
		add(x.when(tObject, x.atom(opMaxKeys, count(v))))
	}
	for _, name := range []string{"dependentRequired", "dependencies", "dependentSchemas"} {
		for _, m := range p.get(name).List() {
			if m.Val.Kind == '[' {
				add(x.or(x.neg(b.m.hasKey(m.Key)), b.m.has(m.Val.Elems)))
				continue
			}
			e, err := b.schema(b.child(p, m.Val, name, m.Key), in)
			if err != nil {
				return err
			}
			add(x.or(x.neg(b.m.hasKey(m.Key)), e))
		}
	}
	e, found, err := b.one(p, in, "unevaluatedProperties")
	if err != nil || !found || e == yes {
		return err
	}
	cs := &covers{b: b, visiting: map[buildKey]bool{}}
	if err := cs.within(p, in, yes, true); err != nil {
		return err
	}
	add(x.when(tObject, b.m.left(opFree, e, cs.list, cs.when)))
	return nil
}

func (b *builder) arrays(p place, in uint64, add func(expr)) error {
	x := b.x
	r := &itemRule{rest: yes}
	tuple, rest := tupleKeywords(p)
	if tuple != "" {
		es, err := b.list(p, in, tuple)
		if err != nil {
			return err
		}
		r.prefix = es
	}
	e, found, err := b.one(p, in, rest)
	if err != nil {
		return err
	}
	if found {
		r.rest = e
	}
	add(x.when(tArray, b.m.items(r)))
	if v := p.get("minItems"); v != nil {
		add(x.when(tArray, x.atom(opMin, count(v))))
	}
	if v := p.get("maxItems"); v != nil {
		add(x.when(tArray, x.atom(opMax, count(v))))
	}
	if p.get("uniqueItems").IsTrue() {
		add(x.when(tArray, x.intern(opUnique, 0, 0, nil)))
	}
	if e, found, err = b.one(p, in, "contains"); err != nil {
		return err
	} else if found {
		lo := uint64(1)
		if v := p.get("minContains"); v != nil {
			lo = count(v)
		}
		add(x.when(tArray, x.atom(opSome, lo, e)))
		if v := p.get("maxContains"); v != nil {
			add(x.when(tArray, x.atom(opFew, count(v), e)))
		}
	}
	e, found, err = b.one(p, in, "unevaluatedItems")
	if err != nil || !found || e == yes {
		return err
	}
	cs := &covers{b: b, visiting: map[buildKey]bool{}}
	if err := cs.within(p, in, yes, false); err != nil {
		return err
	}
	add(x.when(tArray, b.m.left(opRest, e, cs.list, cs.when)))
	return nil
}

// tupleKeywords names the keywords of the first items and of the others; "" if
// there is none.
func tupleKeywords(p place) (tuple, rest string) {
	if p.in.draft >= Draft2020 {
		return "prefixItems", "items"
	}
	if p.get("items") != nil && p.get("items").Kind == '[' {
		return "items", "additionalItems"
	}
	return "", "items"
}

// covers gathers what the keywords of a schema evaluate of an object or array,
// and when.
type covers struct {
	b        *builder
	visiting map[buildKey]bool
	list     coverage
	when     []expr
}

func (c *covers) add(v cover, when expr) {
	c.list = append(c.list, v)
	c.when = append(c.when, when)
}

// within adds what p evaluates under the condition when. The schema whose
// unevaluated keyword is asked about is top: that keyword itself is left out.
func (c *covers) within(p place, in uint64, when expr, object bool) error {
	return c.schema(p, in, when, object, true)
}

func (c *covers) schema(p place, in uint64, when expr, object, top bool) error {
	if p.v.Kind != '{' || when == no {
		return nil
	}
	b := c.b
	if r := b.l.roots[p.v]; r != nil {
		p.in = r
		in = b.enter(in, r)
	}
	key := buildKey{p.v, in}
	if c.visiting[key] {
		return refuse(p.path, "", "refers to itself without going into the value")
	}
	c.visiting[key] = true
	defer delete(c.visiting, key)
	to, scopes, err := b.references(p, in)
	if err != nil {
		return err
	}
	for i, t := range to {
		if err := c.schema(t, scopes[i], when, object, false); err != nil {
			return err
		}
	}
	if p.in.draft <= Draft07 && len(to) > 0 {
		return nil
	}
	if object {
		err = c.members(p, in, when, top)
	} else {
		err = c.items(p, in, when, top)
	}
	if err != nil {
		return err
	}
	return c.parts(p, in, when, object)
}

func (c *covers) members(p place, in uint64, when expr, top bool) error {
	b := c.b
	if p.get("additionalProperties") != nil || !top && p.get("unevaluatedProperties") != nil {
		c.add(cover{all: true}, when)
		return nil
	}
	var v cover
	for _, m := range p.get("properties").List() {
		v.keys = b.x.sets.add(v.keys, b.m.word(m.Key))
	}
	for _, m := range p.get("patternProperties").List() {
		b.m.at = origin{b.child(p, nil, "patternProperties").path, m.Key}
		t, err := b.m.textID(textRule{op: textPattern, val: m.Key})
		if err != nil {
			return wrap(err, b.child(p, nil, "patternProperties"), m.Key)
		}
		v.patterns = append(v.patterns, t)
	}
	if v.keys != 0 || len(v.patterns) > 0 {
		c.add(v, when)
	}
	return nil
}

func (c *covers) items(p place, in uint64, when expr, top bool) error {
	tuple, rest := tupleKeywords(p)
	if p.get(rest) != nil || !top && p.get("unevaluatedItems") != nil {
		c.add(cover{all: true}, when)
		return nil
	}
	if n := len(p.get(tuple).Items()); n > 0 {
		c.add(cover{items: uint32(n)}, when)
	}
	if p.in.draft >= Draft2020 && p.get("contains") != nil {
		e, _, err := c.b.one(p, in, "contains")
		if err != nil {
			return err
		}
		c.add(cover{some: e}, when)
	}
	return nil
}

// parts goes into the subschemas that see the same value.
func (c *covers) parts(p place, in uint64, when expr, object bool) error {
	b, x := c.b, c.b.x
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		for i, v := range p.get(name).Items() {
			part := b.child(p, v, name, strconv.Itoa(i))
			cond := when
			if name != "allOf" {
				e, err := b.schema(part, in)
				if err != nil {
					return err
				}
				cond = x.and(when, e)
			}
			if err := c.schema(part, in, cond, object, false); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"dependentSchemas", "dependencies"} {
		for _, m := range p.get(name).List() {
			if m.Val.Kind == '[' {
				continue
			}
			if err := c.schema(b.child(p, m.Val, name, m.Key), in, x.and(when, b.m.hasKey(m.Key)), object, false); err != nil {
				return err
			}
		}
	}
	test, found, err := b.one(p, in, "if")
	if err != nil || !found {
		return err
	}
	for _, k := range []struct {
		name string
		cond expr
	}{{"if", test}, {"then", test}, {"else", x.neg(test)}} {
		if v := p.get(k.name); v != nil {
			if err := c.schema(b.child(p, v, k.name), in, x.and(when, k.cond), object, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLoops refuses schemas that refer to themselves about the same value:
// what they mean is not defined.
func (b *builder) checkLoops() error {
	const onTheWay, seen = 1, 2
	defs := make([]uint8, len(b.m.defs))
	formulas := map[expr]uint8{}
	var look func(e expr, def int) error
	visit := func(def int) error {
		if defs[def] == seen {
			return nil
		}
		if defs[def] == onTheWay {
			return b.loop(def)
		}
		defs[def] = onTheWay
		err := look(b.m.defs[def], def)
		defs[def] = seen
		return err
	}
	look = func(e expr, def int) error {
		d := b.x.nodes[e]
		args := d.args
		switch d.op {
		case opRef:
			return visit(int(d.n))
		case opAnd, opOr, opOne, opNot:
		case opFree, opRest:
			args = args[1:]
		default:
			return nil
		}
		switch formulas[e] {
		case seen:
			return nil
		case onTheWay:
			return b.loop(def)
		}
		formulas[e] = onTheWay
		for _, a := range args {
			if err := look(a, def); err != nil {
				return err
			}
		}
		formulas[e] = seen
		return nil
	}
	for i := range defs {
		if err := visit(i); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) loop(def int) error {
	return refuse(b.defs[def], "", "refers to itself without going into the value")
}
