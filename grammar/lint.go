package grammar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/models/toolname"
)

// Severity of a rule.
type Severity int

const (
	Info    Severity = iota // could be said better
	Warning                 // models will get calls wrong, or do harm by them
	Error                   // broken, or unsafe as it stands
)

func (s Severity) String() string {
	switch s {
	case Info:
		return "info"
	case Warning:
		return "warning"
	case Error:
		return "error"
	}
	return "severity " + strconv.Itoa(int(s))
}

// MarshalText writes the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads info, warning or error.
func (s *Severity) UnmarshalText(b []byte) error {
	for _, x := range []Severity{Info, Warning, Error} {
		if string(b) == x.String() {
			*s = x
			return nil
		}
	}
	return fmt.Errorf("severity %q; error, warning or info", b)
}

// Described is a tool with its description, as lint looks at it.
type Described struct {
	Tool
	Description string
}

// A Finding is one place that breaks a rule.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Tool     string   `json:"tool"`
	// Loc is a JSON pointer into the function object: "/name",
	// "/description", "/parameters/properties/size".
	Loc     string `json:"loc"`
	Message string `json:"message"`
	Fix     string `json:"fix"` // what to do
}

// Rule is one thing to look for. The rules are data: Rules lists them.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"` // what is wrong
	Fix      string   `json:"fix"`   // what to do
	Source   string   `json:"source"`

	tool    func(*subject, say)
	object  func(*subject, *objectPlace, say)
	param   func(*subject, *param, say)
	catalog func([]*subject, func(tool int, loc, format string, a ...any))
}

type say func(loc, format string, a ...any)

// Rules gives all rules, errors first.
func Rules() []Rule { return slices.Clone(rules) }

// Lint looks at the tools one by one and as a catalog. The findings are in the
// order of the tools, for each in the order of its text. Beside the rules of a
// single tool, which take time linear in its size, overlap compares each tool
// with a bounded number of others; so a catalog takes linear time, too.
//
// Lint judges words by lists of English words. It doesn't see what the tool
// does, and a finding is advice to look, not a proof. The rules of severity
// error are decided by the schema alone, but for unsafe-default.
func Lint(tools []Described) []Finding {
	subjects := make([]*subject, len(tools))
	per := make([][]Finding, len(tools))
	for i := range tools {
		subjects[i] = subjectOf(&tools[i])
		per[i] = subjects[i].lint()
	}
	for r := range rules {
		if rules[r].catalog == nil {
			continue
		}
		rules[r].catalog(subjects, func(i int, loc, format string, a ...any) {
			per[i] = append(per[i], rules[r].finding(tools[i].Name, loc, format, a...))
		})
	}
	return slices.Concat(per...)
}

// maxWorded is how many bytes of a description are judged word by word.
const maxWorded = 8 << 10

// maxFindings bounds what one tool can give; the last one then says so.
const maxFindings = 1000

func (r *Rule) finding(tool, loc, format string, a ...any) Finding {
	return Finding{r.ID, r.Severity, tool, loc, clipText(fmt.Sprintf(format, a...), 400), r.Fix}
}

// subject is a tool taken apart.
type subject struct {
	*Described
	verb    []string // words of the name, without the server before it
	words   []string // words of the whole name
	about   []string // words of the description
	refused *SchemaError
	checked *Checked
	root    *jsontext.Value
	params  []*param // in the order of the text, nested ones after their object
	objects []*objectPlace
}

// objectPlace is a schema of objects: the root, a parameter, an item.
type objectPlace struct {
	loc    string
	places []accept.Subschema // all that apply to it
	params []*param
	root   bool
}

// param is one declared property.
type param struct {
	name     string
	words    []string
	loc      string
	places   []accept.Subschema
	union    bool // more than one branch of anyOf or oneOf beside null
	types    []string
	about    string
	required bool
	root     bool // a parameter of the tool itself
	level    int
	in       *objectPlace
}

func subjectOf(d *Described) *subject {
	s := &subject{Described: d, words: toolname.Words(d.Name), about: toolname.Words(clipText(d.Description, maxWorded)), root: &jsontext.Value{Kind: '{'}}
	short := d.Name
	if i := strings.LastIndex(short, "__"); i >= 0 && i+2 < len(short) {
		short = short[i+2:]
	}
	s.verb = toolname.Words(short)
	c, err := Judge(d.Tool, Open)
	if err != nil {
		se, ok := err.(*SchemaError)
		if !ok {
			se = &SchemaError{Tool: d.Name, Loc: "#", Msg: err.Error()}
		}
		s.refused = se
		return s
	}
	s.checked = c
	if len(d.Schema) > 0 {
		if v, err := jsontext.Parse(d.Schema, maxJSONDepth); err == nil && v.Kind == '{' {
			s.root = v
		}
	}
	r, err := c.judge.reading()
	if err != nil {
		return s // compiled, so it can be read
	}
	w := &surveyor{s: s, f: &filler{c: c, r: r}, seen: map[*jsontext.Value]bool{}, inside: map[*jsontext.Value]bool{}}
	w.objects([]accept.Subschema{r.Root()}, 0)
	return s
}

func (s *subject) lint() []Finding {
	var out []Finding
	for i := range rules {
		r := &rules[i]
		say := func(loc, format string, a ...any) {
			if len(out) < maxFindings {
				out = append(out, r.finding(s.Name, loc, format, a...))
			}
		}
		if r.tool != nil {
			r.tool(s, say)
		}
		for _, o := range s.objects {
			if r.object != nil {
				r.object(s, o, say)
			}
		}
		for _, p := range s.params {
			if r.param != nil {
				r.param(s, p, say)
			}
		}
	}
	if len(out) == maxFindings {
		out[maxFindings-1].Message += " (and no more of this tool is listed)"
	}
	order := map[string]int{"/name": 1, "/description": 2}
	for i, o := range s.objects {
		order[o.loc] = 3 + i
	}
	for _, p := range s.params {
		order[p.loc] = len(order) + 3
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return order[a.Loc] - order[b.Loc] })
	return out
}

// surveyor finds the objects and parameters of a schema, each once.
type surveyor struct {
	s      *subject
	f      *filler
	seen   map[*jsontext.Value]bool // objects
	inside map[*jsontext.Value]bool // items and values of maps
}

// effective is what applies to a value: f.all, and the branch of a union that
// isn't null. branches are those of a union proper.
func (w *surveyor) effective(places []accept.Subschema) (out []accept.Subschema, branches []accept.Subschema) {
	out = w.f.all(places)
	for i := 0; i < len(out); i++ {
		p := out[i]
		for _, u := range []string{"anyOf", "oneOf"} {
			var some []accept.Subschema
			for k, e := range p.Get(u).Items() {
				if e.Kind != '{' {
					continue
				}
				if t := e.Get("type"); t != nil && t.Str == "null" {
					continue
				}
				some = append(some, p.Child(u, strconv.Itoa(k)))
			}
			if len(some) == 1 {
				for _, q := range w.f.all(some) {
					if !slices.ContainsFunc(out, func(o accept.Subschema) bool { return o.Value() == q.Value() }) {
						out = append(out, q)
					}
				}
			} else {
				branches = append(branches, some...)
			}
		}
	}
	return out, branches
}

// pointerOf is the place in the function object.
func pointerOf(s accept.Subschema) string { return "/parameters" + s.Place() }

func (w *surveyor) objects(places []accept.Subschema, level int) {
	places, branches := w.effective(places)
	w.object(places, level)
	for _, b := range branches {
		if !w.inside[b.Value()] {
			w.inside[b.Value()] = true
			w.objects([]accept.Subschema{b}, level)
		}
	}
}

func (w *surveyor) object(places []accept.Subschema, level int) {
	key, loc := places[0].Value(), pointerOf(places[0])
	for _, p := range places {
		if len(p.Get("properties").List()) > 0 {
			key, loc = p.Value(), pointerOf(p)
			break
		}
	}
	if w.seen[key] || level > maxSchemaDepth {
		return
	}
	w.seen[key] = true
	o := &objectPlace{loc: loc, places: places, root: level == 0}
	w.s.objects = append(w.s.objects, o)
	done, required, speak := map[string]bool{}, requiredOf(places), declaring(places)
	for _, at := range places {
		for _, m := range at.Get("properties").List() {
			if done[m.Key] {
				continue
			}
			done[m.Key] = true
			own := w.f.member(speak.of(m.Key), m.Key)
			if len(own) == 0 { // true or false
				continue
			}
			p := &param{name: m.Key, words: toolname.Words(m.Key), loc: pointerOf(own[0]), root: o.root, required: required[m.Key], level: level + 1, in: o}
			var branches []accept.Subschema
			p.places, branches = w.effective(own)
			p.union = len(branches) > 0
			for _, q := range append(slices.Clip(p.places), branches...) {
				p.addTypes(q.Value())
			}
			p.about = clipText(cmp.Or(p.text("description"), p.text("title")), maxWorded)
			o.params = append(o.params, p)
			w.s.params = append(w.s.params, p)
			w.below(p.places, level+1)
			for _, b := range branches {
				w.below(w.f.all([]accept.Subschema{b}), level+1)
			}
		}
	}
}

// maxRests is how many of the schemas of one object are asked what they say of
// keys that they don't declare.
const maxRests = 100

// speaking finds the schemas of an object that say something of a key.
type speaking struct {
	places   []accept.Subschema
	declared map[string][]int // indexes of places, ascending
	rests    []int            // that say something of keys not declared, ascending
}

func declaring(places []accept.Subschema) *speaking {
	s := &speaking{places: places, declared: map[string][]int{}}
	for i, p := range places {
		for _, m := range p.Get("properties").List() {
			s.declared[m.Key] = append(s.declared[m.Key], i)
		}
		if p.Get("additionalProperties") != nil && len(s.rests) < maxRests {
			s.rests = append(s.rests, i)
		}
	}
	return s
}

func (s *speaking) of(key string) []accept.Subschema {
	at := slices.Concat(s.declared[key], s.rests)
	slices.Sort(at)
	var out []accept.Subschema
	for _, i := range slices.Compact(at) {
		out = append(out, s.places[i])
	}
	return out
}

// below looks for objects in a value: itself, its items, the values of a map.
func (w *surveyor) below(places []accept.Subschema, level int) {
	if level > maxSchemaDepth {
		return
	}
	object := false
	for _, p := range places {
		object = object || p.Get("properties") != nil
		for _, key := range []string{"items", "additionalProperties"} {
			sub := p.Get(key)
			if sub == nil || sub.Kind != '{' {
				continue
			}
			var inner []accept.Subschema
			if key == "items" {
				inner = w.f.item([]accept.Subschema{p}, len(p.Get("prefixItems").Items()))
			} else {
				inner = []accept.Subschema{p.Child(key)}
			}
			if len(inner) == 0 || w.inside[sub] {
				continue
			}
			w.inside[sub] = true
			eff, branches := w.effective(inner)
			w.below(eff, level+1)
			for _, b := range branches {
				w.below(w.f.all([]accept.Subschema{b}), level+1)
			}
		}
	}
	if object {
		w.object(places, level)
	}
}

func (p *param) addTypes(v *jsontext.Value) {
	add := func(t string) {
		if t != "" && !slices.Contains(p.types, t) {
			p.types = append(p.types, t)
		}
	}
	switch t := v.Get("type"); {
	case t != nil && t.Kind == '"':
		add(t.Str)
	case t != nil:
		for _, e := range t.Elems {
			add(e.Str)
		}
	default:
		values := v.Get("enum").Items()
		if c := v.Get("const"); c != nil {
			values = append(slices.Clip(values), c)
		}
		for _, e := range values {
			add(map[byte]string{'"': "string", '0': "number", 't': "boolean", 'f': "boolean", 'n': "null", '[': "array", '{': "object"}[e.Kind])
		}
		if v.Has("properties") {
			add("object")
		}
	}
}

// only tells whether the parameter is of these types, null aside.
func (p *param) only(types ...string) bool {
	n := 0
	for _, t := range p.types {
		if t == "null" {
			continue
		}
		if !slices.Contains(types, t) {
			return false
		}
		n++
	}
	return n > 0 && !p.union
}

func (p *param) get(key string) *jsontext.Value {
	for _, q := range p.places {
		if v := q.Value().Get(key); v != nil {
			return v
		}
	}
	return nil
}

func (p *param) has(keys ...string) bool {
	for _, k := range keys {
		if p.get(k) != nil {
			return true
		}
	}
	return false
}

func (p *param) text(key string) string {
	if v := p.get(key); v != nil && v.Kind == '"' {
		return strings.TrimSpace(v.Str)
	}
	return ""
}

// listed tells whether the values are given one by one.
func (p *param) listed() bool { return p.has("enum", "const") }

// named tells whether a word of the parameter's name is one of the set.
func (p *param) named(set map[string]bool) bool {
	return slices.ContainsFunc(p.words, func(w string) bool { return set[w] })
}

func (p *param) last() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[len(p.words)-1]
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
