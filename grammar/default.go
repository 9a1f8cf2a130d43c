package grammar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/toolsidecar/sidecar/grammar/accept"
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
	if _, m := oneValue(arguments, true); m != nil {
		return nil, m
	}
	fits := c.Check(arguments) == nil
	r, err := c.judge.reading()
	if err != nil {
		return nil, err
	}
	f := &filler{c: c, r: r, fits: map[*jsontext.Value]error{}}
	out, err := f.text(arguments, []accept.Subschema{r.Root()}, 0)
	if err = cmp.Or(err, f.err); err != nil {
		return nil, err
	}
	if f.put > 0 && fits {
		if err := c.Check(out); err != nil {
			return nil, &DefaultError{c.name, f.first, "with the defaults put in, the arguments no longer fit: " + err.Error()}
		}
	}
	return out, nil
}

type filler struct {
	c     *Checked
	r     *accept.Reading
	fits  map[*jsontext.Value]error // verdicts on defaults
	put   int                       // bytes put in
	first string                    // place of the first default put in
	err   error                     // the first of all and member
}

// all adds to places the schemas that apply to the same value as they do.
func (f *filler) all(places []accept.Subschema) []accept.Subschema {
	out := slices.Clip(places)
	var in map[*jsontext.Value]bool // out
	add := func(s accept.Subschema) {
		if in == nil {
			in = map[*jsontext.Value]bool{}
			for _, q := range out {
				in[q.Value()] = true
			}
		}
		if s.Value().Kind == '{' && !in[s.Value()] {
			in[s.Value()] = true
			out = append(out, s)
		}
	}
	for i := 0; i < len(out); i++ {
		p := out[i]
		refs, only, err := p.References()
		if err != nil && f.err == nil {
			f.err = err
		}
		for _, r := range refs {
			add(r)
		}
		if only {
			continue
		}
		for k := range p.Get("allOf").Items() {
			add(p.Child("allOf", strconv.Itoa(k)))
		}
	}
	return out
}

// member gives the schemas of a member, nil if none is known.
func (f *filler) member(places []accept.Subschema, key string) []accept.Subschema {
	var out []accept.Subschema
	for _, p := range places {
		v, at := p.Get("properties").Get(key), []string{"properties", key}
		if v == nil {
			v, at = p.Get("additionalProperties"), []string{"additionalProperties"}
			for _, m := range p.Get("patternProperties").List() {
				matches, err := f.r.Matches(m.Key, key)
				if err != nil && f.err == nil {
					f.err = err
				}
				if matches {
					v = nil
				}
			}
		}
		if v != nil && v.Kind == '{' {
			out = append(out, p.Child(at...))
		}
	}
	return out
}

func (f *filler) item(places []accept.Subschema, i int) []accept.Subschema {
	var out []accept.Subschema
	for _, p := range places {
		first, rest := p.Tuple()
		v, at := p.Get(rest), []string{rest}
		if firsts := p.Get(first).Items(); i < len(firsts) {
			v, at = firsts[i], []string{first, strconv.Itoa(i)}
		}
		if v != nil && v.Kind == '{' {
			out = append(out, p.Child(at...))
		}
	}
	return out
}

// text fills one JSON text to which the places apply; depth counts the
// defaults around it.
func (f *filler) text(b []byte, places []accept.Subschema, depth int) ([]byte, error) {
	w := &writer{f: f, b: b, p: jsontext.NewReader(b, maxJSONDepth), depth: depth}
	if err := w.value(places); err != nil {
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

func (w *writer) value(places []accept.Subschema) error {
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
			if err := w.value(w.f.item(places, i)); err != nil {
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
		if err := w.value(w.f.member(places, key)); err != nil {
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
		for _, m := range at.Get("properties").List() {
			if have[m.Key] || required[m.Key] {
				continue
			}
			child := w.f.all(w.f.member([]accept.Subschema{at}, m.Key))
			for _, q := range child {
				d := q.Get("default")
				if d == nil {
					continue
				}
				// All that applies to the key: an allOf branch may say more.
				text, err := w.f.due(d, child[0], "#"+q.Place()+"/default", w.f.member(places, m.Key), w.depth)
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

func requiredOf(places []accept.Subschema) map[string]bool {
	m := map[string]bool{}
	for _, p := range places {
		for _, key := range p.Get("required").Items() {
			m[key.Str] = true
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
func (f *filler) due(d *jsontext.Value, s accept.Subschema, loc string, places []accept.Subschema, depth int) ([]byte, error) {
	if depth >= maxDefaultDepth {
		return nil, &DefaultError{f.c.name, loc, "defaults hold one another without end"}
	}
	err, ok := f.fits[d]
	if !ok {
		err = f.c.fit(d, s, loc)
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

// fit tells whether a default fits the subschema s.
func (c *Checked) fit(d *jsontext.Value, s accept.Subschema, loc string) error {
	misfits, err := s.Misfits(d)
	if err != nil {
		return &DefaultError{c.name, loc, "too much to be checked against its schema: " + err.Error()}
	}
	if len(misfits) == 0 {
		return nil
	}
	f := faults{d, causesOf(d, misfits)}
	m := f.deepest()
	why := m.Message
	if m.Loc != "" {
		why = m.Loc + " " + why
	}
	return &DefaultError{c.name, loc, fmt.Sprintf("%s does not fit its own schema: %s", clipText(string(d.AppendTo(nil)), 80), why)}
}
