package grammar

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A DefaultError names a default that can't be put in. Loc is its JSON pointer
// in the schema, "#/properties/limit/default".
type DefaultError struct {
	Tool string
	Loc  string
	Msg  string
}

func (e *DefaultError) Error() string {
	return "tool " + strconv.Quote(e.Tool) + ": schema " + e.Loc + ": " + e.Msg
}

// FillDefaults is Checked.FillDefaults for a schema taken by the letter.
func FillDefaults(schema, arguments []byte) ([]byte, error) {
	c, err := Compile(Tool{Name: "arguments", Schema: schema}, Open)
	if err != nil {
		return nil, err
	}
	return c.FillDefaults(arguments)
}

// maxDefaultDepth bounds defaults put into defaults: a schema may hold itself.
const maxDefaultDepth = 32

// FillDefaults gives the arguments with the values that stand for what the
// model left out: each missing optional property that has a default gets it,
// after the other members of its object, in declared order, written ", " and
// ": " between. Nested objects, those in arrays and those just put in are
// filled the same way. No other byte changes, nothing is overwritten, and
// filling again changes nothing.
//
// The schemas that apply are those reached by properties, items, prefixItems,
// additionalProperties, $ref into the document and allOf; of several defaults
// for one key the first counts. Those below anyOf, oneOf, if, not,
// dependentSchemas and patternProperties depend on the value and are not used.
//
// Errors: a *Misfit if the arguments are not one JSON object; a *DefaultError
// if a default that is due does not fit its own schema, if defaults hold one
// another without end or grow beyond 16 MiB, or if arguments that fitted
// would no longer fit with them. Whether the arguments fit is not judged.
func (c *Checked) FillDefaults(arguments []byte) ([]byte, error) {
	_, ve, m := c.judge(arguments, true)
	if m != nil {
		return nil, m
	}
	root := &jsontext.Value{Kind: '{'}
	if len(c.raw) > 0 {
		v, err := jsontext.Parse([]byte(c.raw), maxJSONDepth)
		if err != nil {
			return nil, err // compiled, so it is JSON
		}
		root = v
	}
	plainRefs, err := survey(c.name, root)
	if err != nil {
		return nil, err
	}
	f := &filler{c: c, root: root, plainRefs: plainRefs, fits: map[*jsontext.Value]error{}}
	out, err := f.text(arguments, []located{{root, c.accept, "#"}}, 0)
	if err != nil {
		return nil, err
	}
	if f.put > 0 && ve == nil {
		if err := c.Check(out); err != nil {
			return nil, &DefaultError{c.name, f.first, "with the defaults put in, the arguments no longer fit: " + err.Error()}
		}
	}
	return out, nil
}

// located is a schema that applies to a value: as written, compiled, and where
// it stands.
type located struct {
	v   *jsontext.Value
	s   *jsonschema.Schema
	loc string
}

type filler struct {
	c         *Checked
	root      *jsontext.Value
	plainRefs bool
	fits      map[*jsontext.Value]error // verdicts on defaults
	put       int                       // bytes put in
	first     string                    // place of the first default put in
}

// all adds to places the schemas that apply to the same value as they do.
func (f *filler) all(places []located) []located {
	out := slices.Clip(places)
	for i := 0; i < len(out); i++ {
		p := out[i]
		add := func(v *jsontext.Value, s *jsonschema.Schema, loc string) {
			if v == nil || s == nil || v.Kind != '{' || slices.ContainsFunc(out, func(q located) bool { return q.v == v }) {
				return
			}
			out = append(out, located{v, s, loc})
		}
		if r := p.v.Get("$ref"); r != nil && r.Kind == '"' && f.plainRefs {
			t, _ := resolve(f.root, r.Str)
			add(t, p.s.Ref, r.Str)
			if p.s.DraftVersion < draft2019 {
				continue // siblings of $ref don't count
			}
		}
		for k, e := range elemsOf(p.v.Get("allOf")) {
			if k < len(p.s.AllOf) {
				add(e, p.s.AllOf[k], p.loc+"/allOf/"+strconv.Itoa(k))
			}
		}
	}
	return out
}

func elemsOf(v *jsontext.Value) []*jsontext.Value {
	if v == nil {
		return nil
	}
	return v.Elems
}

// member gives the schemas of a member, nil if none is known.
func (f *filler) member(places []located, key string) []located {
	var out []located
	for _, p := range places {
		at := ""
		v, s := p.v.Get("properties").Get(key), p.s.Properties[key]
		if v == nil {
			if v = p.v.Get("additionalProperties"); v == nil {
				continue
			}
			s, _ = p.s.AdditionalProperties.(*jsonschema.Schema)
			at = "/additionalProperties"
			for r := range p.s.PatternProperties {
				if r.MatchString(key) {
					s = nil
				}
			}
		}
		if v.Kind != '{' || s == nil {
			continue
		}
		if at == "" {
			at = "/properties/" + escapePointer(key)
		}
		out = append(out, located{v, s, p.loc + at})
	}
	return out
}

func (f *filler) item(places []located, i int) []located {
	var out []located
	for _, p := range places {
		v, s, loc := p.v.Get("items"), p.s.Items2020, p.loc+"/items"
		first, rest := p.v.Get("prefixItems"), p.s.PrefixItems
		at := p.loc + "/prefixItems/"
		if p.s.DraftVersion < draft2020 {
			switch it := p.s.Items.(type) {
			case *jsonschema.Schema:
				s = it
			case []*jsonschema.Schema:
				first, rest, at = v, it, loc+"/"
				v = p.v.Get("additionalItems")
				s, _ = p.s.AdditionalItems.(*jsonschema.Schema)
				loc = p.loc + "/additionalItems"
			}
		}
		if i < len(elemsOf(first)) && i < len(rest) {
			v, s, loc = first.Elems[i], rest[i], at+strconv.Itoa(i)
		}
		if v != nil && v.Kind == '{' && s != nil {
			out = append(out, located{v, s, loc})
		}
	}
	return out
}

// text fills one JSON text to which the places apply; depth counts the
// defaults around it.
func (f *filler) text(b []byte, places []located, depth int) ([]byte, error) {
	w := &writer{f: f, b: b, p: jsontext.NewReader(b, maxJSONDepth), depth: depth}
	if err := w.value(places, 0); err != nil {
		return nil, err
	}
	return append(w.out, b[w.copied:]...), nil
}

// writer walks a valid JSON text and copies it with what is put in.
type writer struct {
	f      *filler
	b      []byte
	p      *jsontext.Reader
	out    []byte
	copied int // bytes of the text in out
	depth  int
}

func (w *writer) value(places []located, level int) error {
	p := w.p
	p.Space()
	if places = w.f.all(places); len(places) == 0 || p.Byte() != '{' && p.Byte() != '[' {
		_, err := p.Value()
		return err
	}
	if p.Byte() == '[' {
		p.Skip()
		for i := 0; ; i++ {
			if p.Space(); p.Byte() == ']' {
				p.Skip()
				return nil
			}
			if err := w.value(w.f.item(places, i), level+1); err != nil {
				return err
			}
			if p.Space(); p.Byte() == ',' {
				p.Skip()
			}
		}
	}
	p.Skip()
	end := p.Offset() // of the last member
	have := map[string]bool{}
	for {
		if p.Space(); p.Byte() == '}' {
			break
		}
		key, err := p.String()
		if err != nil {
			return err
		}
		have[key] = true
		p.Space()
		p.Skip() // the colon
		if err := w.value(w.f.member(places, key), level+1); err != nil {
			return err
		}
		end = p.Offset()
		if p.Space(); p.Byte() == ',' {
			p.Skip()
		}
	}
	p.Skip()
	first, required := len(have) == 0, requiredOf(places)
	for _, at := range places {
		for _, m := range at.v.Get("properties").List() {
			if have[m.Key] || required[m.Key] {
				continue
			}
			child := w.f.all(w.f.member([]located{at}, m.Key))
			for _, q := range child {
				d := q.v.Get("default")
				if d == nil {
					continue
				}
				// All that applies to the key: an allOf branch may say more.
				text, err := w.f.due(d, child[0].s, q.loc+"/default", w.f.member(places, m.Key), w.depth, level+1)
				if err != nil {
					return err
				}
				w.put(end, m.Key, text, first)
				have[m.Key], first = true, false
				break
			}
		}
	}
	return nil
}

func requiredOf(places []located) map[string]bool {
	m := map[string]bool{}
	for _, p := range places {
		for _, key := range p.s.Required {
			m[key] = true
		}
	}
	return m
}

func (w *writer) put(at int, key string, text []byte, first bool) {
	w.out = append(w.out, w.b[w.copied:at]...)
	w.copied = at
	if !first {
		w.out = append(w.out, ", "...)
	}
	w.out = jsontext.AppendString(w.out, key)
	w.out = append(w.out, ": "...)
	w.out = append(w.out, text...)
}

// due is the text of a default, filled itself, if it fits the schema s.
func (f *filler) due(d *jsontext.Value, s *jsonschema.Schema, loc string, places []located, depth, level int) ([]byte, error) {
	if depth >= maxDefaultDepth {
		return nil, &DefaultError{f.c.name, loc, "defaults hold one another without end"}
	}
	err, ok := f.fits[d]
	if !ok {
		err = f.c.fit(d, s, loc, level)
		f.fits[d] = err
	}
	if err != nil {
		return nil, err
	}
	text := d.AppendTo(nil)
	if f.put += len(text) + 4; f.put > maxArgumentBytes {
		return nil, &DefaultError{f.c.name, loc, "defaults of more than 16 MiB"}
	}
	if f.first == "" {
		f.first = loc
	}
	return f.text(text, places, depth+1)
}

// fit tells whether a default fits the subschema s, level levels below the
// root.
func (c *Checked) fit(d *jsontext.Value, s *jsonschema.Schema, loc string, level int) error {
	n, deep := d.Size()
	if deep+level >= len(c.work) || n > maxWork/c.work[deep+level] {
		return &DefaultError{c.name, loc, "too much to be checked against its schema"}
	}
	err := s.Validate(d.Plain())
	if err == nil {
		return nil
	}
	why := err.Error()
	if ve, ok := err.(*jsonschema.ValidationError); ok {
		m := misfitOf(d, ve)
		why = m.Message
		if m.Loc != "" {
			why = m.Loc + " " + why
		}
	}
	return &DefaultError{c.name, loc, fmt.Sprintf("%s does not fit its own schema: %s", clipText(string(d.AppendTo(nil)), 80), why)}
}
