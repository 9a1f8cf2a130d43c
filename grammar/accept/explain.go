package accept

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/lexical"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// The automaton knows at which byte a text stops fitting. What a person or a
// model wants to be told is which keyword of which schema a value breaks, and
// everything else that is wrong. A Reading walks schema and value side by side
// for that. It judges as the automaton does, which the tests hold it to, but
// only whole values, and of what it found out it keeps the values that are listed.

// A Reading is a schema with what its references mean. It is not safe for
// concurrent use.
type Reading struct {
	b       *builder
	root    Subschema
	texts   map[string]*lexical.Matcher // by predicate
	numbers map[numberRule]*lexical.Numbers
	listed  map[*jsontext.Value]map[string]bool // by enum or const: what it lists, spelled
	values  map[string]int                      // objects and arrays by what they hold, for spell
	alone   map[*jsontext.Value]bool            // of simple
}

// A Subschema is a place in a schema, reached in a certain way from its root.
type Subschema struct {
	r     *Reading
	at    place
	scope uint64
}

// Read reads a schema as Compile does, without making an automaton of it.
func Read(ctx context.Context, schema []byte, o Options) (*Reading, error) {
	l := newLoader(ctx, o)
	doc, err := l.document(o.Base, schema, &path{})
	if err != nil {
		return nil, err
	}
	r := &Reading{
		b: &builder{l: l}, texts: map[string]*lexical.Matcher{}, numbers: map[numberRule]*lexical.Numbers{},
		listed: map[*jsontext.Value]map[string]bool{}, values: map[string]int{}, alone: map[*jsontext.Value]bool{},
	}
	r.b.scopes.id(nil)
	r.root = r.enter(place{doc.root, doc, doc.path}, 0)
	return r, nil
}

// Reading is the schema of the automaton.
func (a *Automaton) Reading(ctx context.Context) (*Reading, error) {
	return Read(ctx, a.schema, a.options)
}

// Root is the whole schema.
func (r *Reading) Root() Subschema { return r.root }

func (r *Reading) enter(p place, scope uint64) Subschema {
	if in := r.b.l.roots[p.v]; in != nil {
		p.in = in
		scope = r.b.enter(scope, in)
	}
	return Subschema{r, p, scope}
}

// Value is the schema as it was written; nil of no schema.
func (s Subschema) Value() *jsontext.Value { return s.at.v }

// Draft is the draft it is read by.
func (s Subschema) Draft() Draft { return s.at.in.draft }

// Get is the value of a keyword; nil if it isn't there or says nothing in this
// draft.
func (s Subschema) Get(keyword string) *jsontext.Value {
	if s.at.v == nil {
		return nil
	}
	return s.at.get(keyword)
}

// Place is the JSON pointer of the subschema, with the URI of its document and
// # before it if that is another one.
func (s Subschema) Place() string { return s.at.path.String() }

// Child is the schema at a keyword and what follows it. There must be one.
func (s Subschema) Child(tokens ...string) Subschema {
	v := s.at.v
	for _, t := range tokens {
		v, _ = v.Child(t)
	}
	return s.child(v, tokens...)
}

func (s Subschema) child(v *jsontext.Value, tokens ...string) Subschema {
	return s.r.enter(s.r.b.child(s.at, v, tokens...), s.scope)
}

// References are the schemas that $ref, $dynamicRef and $recursiveRef lead to.
// If only, its other keywords say nothing, as beside $ref up to draft-07.
func (s Subschema) References() (to []Subschema, only bool, err error) {
	places, scopes, err := s.r.b.references(s.at, s.scope)
	for i, p := range places {
		to = append(to, s.r.enter(p, scopes[i]))
	}
	return to, len(to) > 0 && s.Draft() <= Draft07, err
}

// Tuple names the keywords of the first items and of those after; "" if there
// are none in this draft.
func (s Subschema) Tuple() (first, rest string) { return tupleKeywords(s.at) }

// Matches tells whether a string fits a pattern of the schema.
func (r *Reading) Matches(pattern, s string) (bool, error) {
	return r.text(textRule{op: textPattern, val: pattern}, s)
}

// A Misfit is one thing that is wrong with a value.
type Misfit struct {
	Path    []string // keys, and indexes in decimal, to the value
	Value   *jsontext.Value
	Schema  Subschema // that is broken
	Keyword string    // that is broken; "" if Schema is false
	Names   []string  // keys: those missing or not allowed; the one that propertyNames doesn't take; the one with dependents, then those missing
	Two     []int     // uniqueItems: indexes of equal items; oneOf: of the alternatives that fit, if two do
	Parts   []*Misfit // what is wrong in detail: with a member or item, or with each alternative
}

// Misfits tells what is wrong with a value that is asked to fit s: each keyword
// that is broken once, with Parts where it applies schemas; none if it fits.
// The error is a *LimitError where that takes too long, or a *RefusedError where
// s refers to itself in a part that the automaton can do without.
func (s Subschema) Misfits(v *jsontext.Value) ([]*Misfit, error) {
	w := &walker{r: s.r, budget: maxSteps, known: map[walked]*finding{}, spelled: map[*spot]string{}}
	f, err := w.judge(s, &spot{v: v})
	if err != nil {
		return nil, err
	}
	return f.misfits, nil
}

// Bounds on one Misfits: a step is a subschema at a value, 0.3 µs and 300 bytes,
// or reading stepBytes of a string; a level of depth takes some 2 kB of stack.
const (
	maxSteps  = 500_000
	stepBytes = 256
	maxWalk   = 20_000
)

// A spot is a value within the one that is judged.
type spot struct {
	v    *jsontext.Value
	up   *spot
	i    int    // index in up
	subs []spot // by index; made when first asked for
}

func (n *spot) child(i int) *spot {
	if n.subs == nil {
		n.subs = make([]spot, max(len(n.v.Elems), len(n.v.Members)))
		for i, e := range n.v.Elems {
			n.subs[i] = spot{v: e, up: n, i: i}
		}
		for i := range n.v.Members {
			n.subs[i] = spot{v: n.v.Members[i].Val, up: n, i: i}
		}
	}
	return &n.subs[i]
}

func (n *spot) path() []string {
	var p []string
	for ; n.up != nil; n = n.up {
		if n.up.v.Kind == '[' {
			p = append(p, strconv.Itoa(n.i))
		} else {
			p = append(p, n.up.v.Members[n.i].Key)
		}
	}
	slices.Reverse(p)
	return p
}

// A walker judges one value. What a subschema says of a value is asked once.
type walker struct {
	r       *Reading
	budget  int // steps left
	known   map[walked]*finding
	spelled map[*spot]string // of objects and arrays
	depth   int              // of judge in judge
}

type walked struct {
	schema *jsontext.Value
	scope  uint64
	at     *spot
}

// A finding is what a subschema says of a value, and which members or items it
// evaluated if it fits.
type finding struct {
	misfits []*Misfit
	seen    []bool // by index; nil: none
	partly  bool   // not known yet
}

func (f *finding) fits() bool { return len(f.misfits) == 0 }

func (w *walker) spend(n int) error {
	if w.budget -= n; w.budget < 0 {
		return &LimitError{Limit: "steps to tell what is wrong", Max: maxSteps}
	}
	return nil
}

func (w *walker) judge(s Subschema, n *spot) (*finding, error) {
	if err := w.spend(1); err != nil {
		return nil, err
	}
	switch s.at.v.Kind {
	case 't':
		return &finding{}, nil
	case 'f':
		return &finding{misfits: []*Misfit{{Path: n.path(), Value: n.v, Schema: s}}}, nil
	}
	if len(n.v.Elems) == 0 && len(n.v.Members) == 0 && s.r.simple(s.at.v) { // not worth remembering
		f := &finding{}
		j := judging{w: w, Subschema: s, n: n, f: f}
		if err := j.values(); err != nil {
			return nil, err
		}
		return f, j.contents()
	}
	key := walked{s.at.v, s.scope, n}
	if f := w.known[key]; f != nil {
		if f.partly {
			return nil, &loopError{s.at.path.String()}
		}
		return f, nil
	}
	if w.depth++; w.depth > maxWalk {
		return nil, &LimitError{Limit: "schemas within one another", Max: maxWalk}
	}
	defer func() { w.depth-- }()
	f := &finding{partly: true}
	w.known[key] = f
	j := judging{w: w, Subschema: s, n: n, f: f}
	refs, only, err := s.References()
	if err != nil {
		return nil, err
	}
	for _, r := range refs {
		if err := j.also("$ref", r); err != nil {
			return nil, err
		}
	}
	if !only {
		for _, step := range []func() error{j.values, j.combined, j.contents} {
			if err := step(); err != nil {
				return nil, err
			}
		}
	}
	if j.loop != nil && f.fits() {
		delete(w.known, key)
		return nil, j.loop
	}
	f.partly = false
	return f, nil
}

// simple tells whether a schema asks no others about the same value.
func (r *Reading) simple(v *jsontext.Value) bool {
	is, ok := r.alone[v]
	if !ok {
		is = !slices.ContainsFunc(v.Members, func(m jsontext.Member) bool { return inPlace[m.Key] })
		r.alone[v] = is
	}
	return is
}

var inPlace = map[string]bool{
	"$ref": true, "$dynamicRef": true, "$recursiveRef": true, "allOf": true, "anyOf": true, "oneOf": true, "not": true, "if": true,
	"dependentSchemas": true, "dependencies": true,
}

// A loopError is of a schema that asks for itself at the same value. It says
// nothing of that value where all else about the schema decides.
type loopError struct{ path string }

func (e *loopError) Error() string {
	return e.path + ": the schema refers to itself without going into the value"
}

// judging is one subschema at one value.
type judging struct {
	w *walker
	Subschema
	n    *spot
	f    *finding
	loop error // a part that asks for the schema itself
}

// ask judges the value by another schema; nil if that asks for this one.
func (j *judging) ask(s Subschema) (*finding, error) {
	f, err := j.w.judge(s, j.n)
	if l := (*loopError)(nil); errors.As(err, &l) {
		j.loop = err
		return nil, nil
	}
	return f, err
}

// breaks notes a keyword that isn't kept.
func (j *judging) breaks(keyword string) *Misfit {
	m := &Misfit{Path: j.n.path(), Value: j.n.v, Schema: j.Subschema, Keyword: keyword}
	j.w.budget -= len(m.Path) / 8 // what a path takes counts at the next step
	j.f.misfits = append(j.f.misfits, m)
	return m
}

// also is a schema that applies to the same value and must hold.
func (j *judging) also(keyword string, s Subschema) error {
	f, err := j.ask(s)
	if f == nil {
		return err
	}
	if !f.fits() {
		j.breaks(keyword).Parts = f.misfits
	}
	j.saw(f)
	return nil
}

// saw takes over what a schema that fits has evaluated.
func (j *judging) saw(f *finding) {
	if f.fits() {
		for i, seen := range f.seen {
			if seen {
				j.mark(i)
			}
		}
	}
}

func (j *judging) mark(i int) {
	if j.f.seen == nil {
		j.f.seen = make([]bool, max(len(j.n.v.Elems), len(j.n.v.Members)))
	}
	j.f.seen[i] = true
}

func (j *judging) each(name string, f func(i int, s Subschema) error) error {
	for i, v := range j.Get(name).Items() {
		if err := f(i, j.child(v, name, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

func (j *judging) values() error {
	v := j.n.v
	if err := j.w.spend(len(v.Str) / stepBytes); err != nil {
		return err
	}
	if t := j.Get("type"); t != nil {
		fits := false
		for _, name := range append(t.Items(), t) {
			if name.Kind != '"' {
				continue
			}
			is, err := j.typed(name.Str)
			if err != nil {
				return err
			}
			fits = fits || is
		}
		if !fits {
			j.breaks("type")
		}
	}
	for _, name := range []string{"const", "enum"} {
		k := j.Get(name)
		if k == nil {
			continue
		}
		list := k.Elems
		if name == "const" {
			list = []*jsontext.Value{k}
		}
		listed, err := j.w.spellings(k, list)
		if err != nil {
			return err
		}
		if !listed[j.w.spell(j.n)] {
			j.breaks(name)
		}
	}
	switch v.Kind {
	case '0':
		for i := range bounds {
			k := &bounds[i]
			b := j.Get(k.name)
			if b == nil || b.Kind != '0' {
				continue
			}
			open := k.open
			if j.Draft() == Draft04 && k.draft04 != "" {
				open = j.Get(k.draft04).IsTrue()
			}
			fits, err := j.r.number(numberRule{k.op, b.Str, open}, v.Str)
			if err != nil {
				return err
			}
			if !fits {
				j.breaks(k.name)
			}
		}
	case '"':
		n := uint64(utf8.RuneCountInString(v.Str))
		if k := j.Get("minLength"); k != nil && n < count(k) {
			j.breaks("minLength")
		}
		if k := j.Get("maxLength"); k != nil && n > count(k) {
			j.breaks("maxLength")
		}
		if k := j.Get("pattern"); k != nil {
			fits, err := j.r.text(textRule{op: textPattern, val: k.Str}, v.Str)
			if err != nil {
				return err
			}
			if !fits {
				j.breaks("pattern")
			}
		}
		if k := j.Get("format"); k != nil && j.at.in.formats {
			fits, err := j.r.text(textRule{op: textFormat, val: k.Str}, v.Str)
			if err != nil {
				return err
			}
			if !fits {
				j.breaks("format")
			}
		}
	}
	return nil
}

func (j *judging) typed(name string) (bool, error) {
	switch j.n.v.Kind {
	case '0':
		if name == "integer" && !plainInteger(strings.TrimPrefix(j.n.v.Str, "-")) {
			return j.r.number(numberRule{op: numInteger}, j.n.v.Str)
		}
		return name == "number" || name == "integer", nil
	case '"':
		return name == "string", nil
	case '{':
		return name == "object", nil
	case '[':
		return name == "array", nil
	case 'n':
		return name == "null", nil
	}
	return name == "boolean", nil
}

func (j *judging) combined() error {
	err := j.each("allOf", func(_ int, s Subschema) error { return j.also("allOf", s) })
	if err != nil {
		return err
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if j.Get(name) == nil {
			continue
		}
		var fit []int
		var parts []*Misfit
		before := j.loop
		err := j.each(name, func(i int, s Subschema) error {
			f, err := j.ask(s)
			if f == nil {
				return err
			}
			if f.fits() {
				fit = append(fit, i)
				j.saw(f)
				return nil
			}
			parts = append(parts, f.misfits...)
			return nil
		})
		switch {
		case err != nil:
			return err
		case len(fit) > 0 && name == "anyOf":
			j.loop = before
		case len(fit) < 2 && j.loop != before:
		case len(fit) == 0:
			j.breaks(name).Parts = parts
		case len(fit) > 1 && name == "oneOf":
			j.breaks(name).Two = fit[:2]
		}
	}
	if v := j.Get("not"); v != nil {
		f, err := j.ask(j.child(v, "not"))
		if err != nil {
			return err
		}
		if f != nil && f.fits() {
			j.breaks("not")
		}
	}
	v := j.Get("if")
	if v == nil {
		return nil
	}
	f, err := j.ask(j.child(v, "if"))
	if f == nil {
		return err
	}
	branch := "else"
	if f.fits() {
		branch = "then"
		j.saw(f)
	}
	if v := j.Get(branch); v != nil {
		return j.also(branch, j.child(v, branch))
	}
	return nil
}

func (j *judging) contents() error {
	switch j.n.v.Kind {
	case '{':
		return j.members()
	case '[':
		return j.items()
	}
	return nil
}

// within is a schema that applies to a member or item.
func (j *judging) within(keyword string, s Subschema, i int) error {
	f, err := j.w.judge(s, j.n.child(i))
	if err != nil {
		return err
	}
	if !f.fits() {
		j.breaks(keyword).Parts = f.misfits
	}
	j.mark(i)
	return nil
}

func (j *judging) members() error {
	v := j.n.v
	size := uint64(len(v.Members))
	if k := j.Get("minProperties"); k != nil && size < count(k) {
		j.breaks("minProperties")
	}
	if k := j.Get("maxProperties"); k != nil && size > count(k) {
		j.breaks("maxProperties")
	}
	if k := j.Get("required"); k != nil {
		if err := j.w.spend(len(k.Elems) / 8); err != nil {
			return err
		}
		if missing := lacking(v, k.Elems); len(missing) > 0 {
			j.breaks("required").Names = missing
		}
	}
	if err := j.dependents(); err != nil {
		return err
	}
	props, names := j.Get("properties"), j.Get("propertyNames")
	patterns := j.Get("patternProperties").List()
	rest := j.Get("additionalProperties")
	var extra []string
	for i := range v.Members {
		key := v.Members[i].Key
		if err := j.w.spend(1 + len(patterns)*(1+len(key)/stepBytes)); err != nil {
			return err
		}
		if names != nil {
			f, err := j.w.judge(j.child(names, "propertyNames"), &spot{v: &jsontext.Value{Kind: '"', Str: key}})
			if err != nil {
				return err
			}
			if !f.fits() {
				j.breaks("propertyNames").Names = []string{key}
			}
		}
		declared := false
		if p := props.Get(key); p != nil {
			declared = true
			if err := j.within("properties", j.child(p, "properties", key), i); err != nil {
				return err
			}
		}
		for k := range patterns {
			fits, err := j.r.text(textRule{op: textPattern, val: patterns[k].Key}, key)
			if err != nil {
				return err
			}
			if fits {
				declared = true
				if err := j.within("patternProperties", j.child(patterns[k].Val, "patternProperties", patterns[k].Key), i); err != nil {
					return err
				}
			}
		}
		switch {
		case declared || rest == nil:
		case rest.Kind == 'f':
			extra = append(extra, key)
			j.mark(i)
		default:
			if err := j.within("additionalProperties", j.child(rest, "additionalProperties"), i); err != nil {
				return err
			}
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		j.breaks("additionalProperties").Names = extra
	}
	return j.unevaluated("unevaluatedProperties", len(v.Members))
}

// lacking gives the names in list that are no keys of v.
func lacking(v *jsontext.Value, list []*jsontext.Value) []string {
	var missing []string
	for _, name := range list {
		if !v.Has(name.Str) {
			missing = append(missing, name.Str)
		}
	}
	return missing
}

func (j *judging) dependents() error {
	for _, name := range []string{"dependentRequired", "dependencies", "dependentSchemas"} {
		for _, m := range j.Get(name).List() {
			if err := j.w.spend(1); err != nil {
				return err
			}
			if !j.n.v.Has(m.Key) {
				continue
			}
			if m.Val.Kind == '[' {
				if err := j.w.spend(len(m.Val.Elems) / 8); err != nil {
					return err
				}
				if missing := lacking(j.n.v, m.Val.Elems); len(missing) > 0 {
					j.breaks(name).Names = append([]string{m.Key}, missing...)
				}
			} else if err := j.also(name, j.child(m.Val, name, m.Key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unevaluated asks the members or items that nothing in place has evaluated.
func (j *judging) unevaluated(keyword string, n int) error {
	v := j.Get(keyword)
	if v == nil {
		return nil
	}
	s := j.child(v, keyword)
	for i := range n {
		if j.f.seen == nil || !j.f.seen[i] {
			if err := j.within(keyword, s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *judging) items() error {
	v := j.n.v
	size := uint64(len(v.Elems))
	if k := j.Get("minItems"); k != nil && size < count(k) {
		j.breaks("minItems")
	}
	if k := j.Get("maxItems"); k != nil && size > count(k) {
		j.breaks("maxItems")
	}
	if j.Get("uniqueItems").IsTrue() {
		first := make(map[string]int, len(v.Elems))
		for i := range v.Elems {
			if err := j.w.spend(1); err != nil {
				return err
			}
			text := j.w.spell(j.n.child(i))
			if k, ok := first[text]; ok {
				j.breaks("uniqueItems").Two = []int{k, i}
				break
			}
			first[text] = i
		}
	}
	tuple, rest := j.Tuple()
	firsts := j.Get(tuple).Items()
	for i := range v.Elems {
		if i < len(firsts) {
			if err := j.within(tuple, j.child(firsts[i], tuple, strconv.Itoa(i)), i); err != nil {
				return err
			}
		} else if k := j.Get(rest); k != nil {
			if err := j.within(rest, j.child(k, rest), i); err != nil {
				return err
			}
		}
	}
	if k := j.Get("contains"); k != nil {
		fit, s := uint64(0), j.child(k, "contains")
		for i := range v.Elems {
			f, err := j.w.judge(s, j.n.child(i))
			if err != nil {
				return err
			}
			if f.fits() {
				fit++
				if j.Draft() >= Draft2020 {
					j.mark(i)
				}
			}
		}
		least := uint64(1)
		if m := j.Get("minContains"); m != nil {
			least = count(m)
		}
		if fit < least {
			j.breaks("contains")
		}
		if m := j.Get("maxContains"); m != nil && fit > count(m) {
			j.breaks("maxContains")
		}
	}
	return j.unevaluated("unevaluatedItems", len(v.Elems))
}

// text tells whether a string fits a rule.
func (r *Reading) text(rule textRule, s string) (bool, error) {
	var is lexical.Predicate
	var err error
	if rule.op == textFormat {
		var ok bool
		if is, ok = lexical.Format(rule.val); !ok {
			return true, nil
		}
	} else if is, err = lexical.Pattern(rule.val); err != nil {
		return false, err
	}
	lex := r.texts[is.Key()]
	if lex == nil {
		if lex, err = lexical.NewMatcher(is, lexical.Limits{}); err != nil {
			return false, err
		}
		r.texts[is.Key()] = lex
	}
	fits, err := lex.Match(s)
	if err != nil {
		delete(r.texts, is.Key())
	}
	return fits, err
}

// number tells whether a number fits a rule.
func (r *Reading) number(rule numberRule, s string) (bool, error) {
	lex := r.numbers[rule]
	if lex == nil {
		is, _, err := rule.predicate()
		if err != nil {
			return false, err
		}
		if lex, err = lexical.NewNumbers([]lexical.NumberPredicate{is}, lexical.Limits{}); err != nil {
			return false, err
		}
		r.numbers[rule] = lex
	}
	q := lex.Start()
	for i := range len(s) {
		if q = lex.Step(q, s[i]); q == lexical.Lost {
			delete(r.numbers, rule)
			return false, lex.Limit()
		}
	}
	return lex.Truth(q).Has(0), nil
}

// spellings are the texts of the values that keyword k lists. They are made
// once in a Reading, however many values are looked up.
func (w *walker) spellings(k *jsontext.Value, list []*jsontext.Value) (map[string]bool, error) {
	listed, ok := w.r.listed[k]
	if !ok {
		n, _ := k.Size()
		if err := w.spend(n / 8); err != nil {
			return nil, err
		}
		listed = make(map[string]bool, len(list))
		for _, e := range list {
			listed[w.spell(&spot{v: e})] = true
		}
		w.r.listed[k] = listed
	}
	return listed, nil
}

// spell is a text that equal values share, and no others.
func (w *walker) spell(n *spot) string {
	switch n.v.Kind {
	case '"':
		return `"` + n.v.Str
	case '0':
		return canonicalNumber(n.v.Str)
	case '{', '[':
	default:
		return string(n.v.Kind)
	}
	if s, ok := w.spelled[n]; ok {
		return s
	}
	parts := make([]string, max(len(n.v.Elems), len(n.v.Members)))
	for i := range parts {
		text := w.spell(n.child(i))
		if n.v.Kind == '{' {
			key := n.v.Members[i].Key
			parts[i] = strconv.Itoa(len(key)) + ":" + key
		}
		parts[i] += strconv.Itoa(len(text)) + ":" + text
	}
	if n.v.Kind == '{' {
		slices.Sort(parts)
	}
	whole := string(n.v.Kind) + strings.Join(parts, "")
	id, ok := w.r.values[whole]
	if !ok {
		id = len(w.r.values)
		w.r.values[whole] = id
	}
	s := string(n.v.Kind) + strconv.Itoa(id)
	w.spelled[n] = s
	return s
}
