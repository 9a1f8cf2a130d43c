package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// The operations of an OpenAPI 3.0 or 3.1 description become tools:
//
//   - the name is operationId, else method and path, as [a-zA-Z0-9_-]{1,64};
//   - the description is summary and description, else method and path;
//   - each parameter is a property of its name (path_id and query_id where two
//     have one name), and the request body is the property body;
//   - references into the document are written out, those of schemas that
//     contain themselves go under $defs; nothing is fetched;
//   - schemas of 3.0 become JSON Schema: nullable, boolean exclusiveMinimum
//     and exclusiveMaximum; readOnly properties, which a request doesn't send,
//     and what only documents (example, xml, externalDocs, discriminator, x-…)
//     are left out.
//
// An operation that can't be made a tool is a Problem of its own. Source: the
// OpenAPI Specification 3.0.4 and 3.1.1, sections Operation, Parameter, Schema.

// Limits of what one operation may expand to.
const (
	maxInline   = 2_000  // values; beyond it every reference goes under $defs
	maxExpanded = 50_000 // values, in all
)

var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// openAPI adds the operations of a description. done is false if raw is none.
func (l *loader) openAPI(path, server string, raw []byte) (done bool, err error) {
	root, err := jsontext.Parse(raw, maxYAMLDepth)
	if err != nil {
		return false, &FileError{path, err}
	}
	if v := root.Get("swagger"); v != nil && root.Get("paths") != nil {
		return true, &FileError{path, fmt.Errorf("OpenAPI (Swagger) %s; convert it to 3.0 or 3.1", v.Str)}
	}
	version := root.Get("openapi")
	if version == nil || version.Kind != '"' {
		return false, nil
	}
	doc := &description{root: root}
	switch {
	case strings.HasPrefix(version.Str, "3.0"):
		doc.old = true
	case strings.HasPrefix(version.Str, "3.1"):
	default:
		return true, &FileError{path, fmt.Errorf("OpenAPI %.20s; 3.0 and 3.1 are supported", version.Str)}
	}
	if title := root.Get("info").Get("title"); server == "" && title != nil && title.Kind == '"' {
		server = strings.ToLower(toolName(title.Str, 24))
	}
	mend := l.mend
	l.mend = true
	defer func() { l.mend = mend }()
	entry := 0
	for _, p := range root.Get("paths").List() {
		item, err := doc.deref(p.Val)
		if err != nil {
			entry++
			l.problems = append(l.problems, Problem{File: path, Entry: entry, Name: p.Key, Reason: err.Error()})
			continue
		}
		for _, m := range item.List() {
			if !slices.Contains(methods, m.Key) || m.Val.Kind != '{' {
				continue
			}
			entry++
			at := Problem{File: path, Entry: entry}
			tool, err := doc.operation(m.Key, p.Key, item, m.Val)
			if err != nil {
				at.Name, at.Reason = strings.ToUpper(m.Key)+" "+p.Key, err.Error()
				l.problems = append(l.problems, at)
				continue
			}
			l.add(at, server, tool.AppendTo(nil))
		}
	}
	return true, nil
}

// A description is an OpenAPI document.
type description struct {
	root *jsontext.Value
	old  bool // 3.0
}

// maxRefs bounds a chain of references to references.
const maxRefs = 32

// deref follows a reference object.
func (d *description) deref(v *jsontext.Value) (*jsontext.Value, error) {
	for range maxRefs {
		ref := v.Get("$ref")
		if ref == nil {
			return v, nil
		}
		to, err := d.at(ref)
		if err != nil {
			return nil, err
		}
		v = to
	}
	return nil, errors.New("references without an end")
}

// at is what a local reference means.
func (d *description) at(ref *jsontext.Value) (*jsontext.Value, error) {
	if ref.Kind != '"' {
		return nil, errors.New("$ref is not a string")
	}
	pointer, ok := strings.CutPrefix(ref.Str, "#/")
	if !ok {
		return nil, fmt.Errorf("$ref %.80q leaves the document; bundle it into one file", ref.Str)
	}
	v := d.root
	for _, tok := range strings.Split(pointer, "/") {
		if v, _ = v.Child(unescapePointer(tok)); v == nil {
			return nil, fmt.Errorf("$ref %.80q points to nothing", ref.Str)
		}
	}
	return v, nil
}

// unescapePointer reads a token of a JSON pointer in a URI (RFC 6901, section 6).
func unescapePointer(tok string) string {
	if plain, err := url.PathUnescape(tok); err == nil {
		tok = plain
	}
	return jsontext.UnescapePointer(tok)
}

func stringOf(v *jsontext.Value) string {
	if v == nil || v.Kind != '"' {
		return ""
	}
	return strings.TrimSpace(v.Str)
}

func str(s string) *jsontext.Value { return &jsontext.Value{Kind: '"', Str: s} }

func obj(members ...jsontext.Member) *jsontext.Value {
	v := &jsontext.Value{Kind: '{', Members: members}
	v.Index()
	return v
}

// operation is one tool, with name, description and parameters.
func (d *description) operation(method, path string, item, op *jsontext.Value) (*jsontext.Value, error) {
	name := stringOf(op.Get("operationId"))
	if name == "" {
		name = method + " " + path
	}
	about := stringOf(op.Get("summary"))
	if more := stringOf(op.Get("description")); more != "" && more != about {
		if about != "" {
			about += "\n"
		}
		about += more
	}
	if about == "" {
		about = strings.ToUpper(method) + " " + path
	}
	params, err := d.parameters(item, op, false)
	var big *expandError
	if errors.As(err, &big) {
		params, err = d.parameters(item, op, true)
	}
	if err != nil {
		return nil, err
	}
	return obj(append(riskMember(item, op),
		jsontext.Member{Key: "name", Val: str(toolName(name, DefaultLimits.NameBytes))},
		jsontext.Member{Key: "description", Val: str(about)},
		jsontext.Member{Key: "parameters", Val: params},
		jsontext.Member{Key: methodKey, Val: str(method)})...), nil
}

type parameter struct {
	name, in string
	schema   *jsontext.Value
	required bool
}

func (d *description) parameters(item, op *jsontext.Value, byName bool) (*jsontext.Value, error) {
	x := &expander{d: d, byName: byName, open: map[*jsontext.Value]string{}, defs: map[*jsontext.Value]string{}, names: map[string]bool{}}
	var list []parameter
	for _, from := range []*jsontext.Value{item, op} {
		for _, p := range from.Get("parameters").Items() {
			one, keep, err := x.parameter(p)
			if err != nil {
				return nil, err
			}
			if !keep {
				continue
			}
			same := func(o parameter) bool { return o.name == one.name && o.in == one.in }
			if i := slices.IndexFunc(list, same); i >= 0 {
				list[i] = one // the operation's own replaces that of the path
			} else {
				list = append(list, one)
			}
		}
	}
	named := map[string]int{}
	for _, p := range list {
		named[p.name]++
	}
	for i := range list {
		if named[list[i].name] > 1 {
			list[i].name = list[i].in + "_" + list[i].name
		}
	}
	body, err := x.body(op.Get("requestBody"))
	if err != nil {
		return nil, err
	}
	if body.schema != nil {
		for body.name = "body"; slices.ContainsFunc(list, func(p parameter) bool { return p.name == body.name }); {
			body.name = "request_" + body.name
		}
		list = append(list, body)
	}
	var props []jsontext.Member
	var required []*jsontext.Value
	for _, p := range list {
		if slices.ContainsFunc(props, func(m jsontext.Member) bool { return m.Key == p.name }) {
			return nil, fmt.Errorf("two parameters named %.60q", p.name)
		}
		props = append(props, jsontext.Member{Key: p.name, Val: p.schema})
		if p.required {
			required = append(required, str(p.name))
		}
	}
	out := []jsontext.Member{{Key: "type", Val: str("object")}, {Key: "properties", Val: obj(props...)}}
	if len(required) > 0 {
		out = append(out, jsontext.Member{Key: "required", Val: &jsontext.Value{Kind: '[', Elems: required}})
	}
	if len(x.written) > 0 {
		out = append(out, jsontext.Member{Key: "$defs", Val: obj(x.written...)})
	}
	return obj(out...), nil
}

// parameter reads a Parameter Object. Headers that the description itself
// rules out are not kept.
func (x *expander) parameter(v *jsontext.Value) (p parameter, keep bool, err error) {
	if v, err = x.d.deref(v); err != nil {
		return p, false, err
	}
	p.name, p.in = stringOf(v.Get("name")), stringOf(v.Get("in"))
	if p.name == "" || p.in == "" {
		return p, false, errors.New("a parameter without name or in")
	}
	if p.in == "header" {
		switch strings.ToLower(p.name) {
		case "accept", "content-type", "authorization":
			return p, false, nil
		}
	}
	p.required = v.Get("required").IsTrue() || p.in == "path"
	schema := v.Get("schema")
	if schema == nil {
		_, schema = mediaType(v.Get("content"))
	}
	if schema == nil {
		schema = obj()
	}
	if p.schema, err = x.schema(schema); err != nil {
		return p, false, fmt.Errorf("parameter %.60q: %w", p.name, err)
	}
	p.schema = described(p.schema, stringOf(v.Get("description")))
	return p, true, nil
}

// body reads a Request Body Object.
func (x *expander) body(v *jsontext.Value) (p parameter, err error) {
	if v == nil {
		return p, nil
	}
	if v, err = x.d.deref(v); err != nil {
		return p, err
	}
	kind, schema := mediaType(v.Get("content"))
	if kind == "" {
		return p, nil
	}
	if schema == nil {
		schema = obj()
		if !strings.Contains(kind, "json") {
			schema = obj(jsontext.Member{Key: "type", Val: str("string")})
		}
	}
	if p.schema, err = x.schema(schema); err != nil {
		return p, fmt.Errorf("request body: %w", err)
	}
	p.schema = described(p.schema, stringOf(v.Get("description")))
	p.required = v.Get("required").IsTrue()
	return p, nil
}

// mediaType picks the content that is nearest to JSON.
func mediaType(content *jsontext.Value) (kind string, schema *jsontext.Value) {
	rank := func(k string) int {
		k, _, _ = strings.Cut(strings.ToLower(k), ";")
		switch {
		case k == "application/json":
			return 4
		case strings.HasSuffix(k, "+json"):
			return 3
		case k == "application/x-www-form-urlencoded", k == "multipart/form-data":
			return 2
		}
		return 1
	}
	best := 0
	for _, m := range content.List() {
		if r := rank(m.Key); r > best {
			best, kind, schema = r, m.Key, m.Val.Get("schema")
		}
	}
	return kind, schema
}

// described is a schema with a description, unless it has one.
func described(s *jsontext.Value, about string) *jsontext.Value {
	if about == "" || s.Kind != '{' || s.Has("description") || s.Has("$ref") {
		return s
	}
	return s.With("description", str(about))
}

// An expander writes schemas with their references resolved.
type expander struct {
	d       *description
	byName  bool // every reference goes under $defs
	n       int  // values written
	open    map[*jsontext.Value]string
	defs    map[*jsontext.Value]string // name under $defs
	names   map[string]bool
	written []jsontext.Member
}

type expandError struct{ most int }

func (e *expandError) Error() string {
	return fmt.Sprintf("schemas of more than %d values with their references written out", e.most)
}

func (x *expander) count() error {
	most := maxInline
	if x.byName {
		most = maxExpanded
	}
	if x.n++; x.n > most {
		return &expandError{most}
	}
	return nil
}

// Keywords whose value is a schema, a list of schemas, an object of schemas.
var (
	oneSchema   = []string{"items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"}
	schemaList  = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaTable = []string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
	documenting = []string{"example", "examples", "xml", "externalDocs", "discriminator", "readOnly", "writeOnly", "deprecated", "nullable", "$comment"}
)

func (x *expander) schema(v *jsontext.Value) (*jsontext.Value, error) {
	if err := x.count(); err != nil {
		return nil, err
	}
	if v.Kind == 't' || v.Kind == 'f' {
		return v, nil
	}
	if v.Kind != '{' {
		return nil, errors.New("a schema that is no object")
	}
	if ref := v.Get("$ref"); ref != nil {
		return x.reference(v, ref)
	}
	var out []jsontext.Member
	hidden := map[string]bool{}
	for _, m := range v.Members {
		switch {
		case slices.Contains(documenting, m.Key), strings.HasPrefix(m.Key, "x-"):
			continue
		case slices.Contains(oneSchema, m.Key) && m.Val.IsSchema():
			s, err := x.schema(m.Val)
			if err != nil {
				return nil, err
			}
			m.Val = s
		case slices.Contains(schemaList, m.Key) && m.Val.Kind == '[':
			list := &jsontext.Value{Kind: '['}
			for _, e := range m.Val.Elems {
				s, err := x.schema(e)
				if err != nil {
					return nil, err
				}
				list.Elems = append(list.Elems, s)
			}
			m.Val = list
		case slices.Contains(schemaTable, m.Key) && m.Val.Kind == '{':
			var table []jsontext.Member
			for _, p := range m.Val.Members {
				if m.Key == "properties" && x.readOnly(p.Val) {
					hidden[p.Key] = true
					continue
				}
				s, err := x.schema(p.Val)
				if err != nil {
					return nil, err
				}
				table = append(table, jsontext.Member{Key: p.Key, Val: s})
			}
			m.Val = obj(table...)
		default:
			n, _ := m.Val.Size()
			x.n += n
		}
		out = append(out, m)
	}
	s := obj(out...)
	if len(hidden) > 0 {
		s = withoutRequired(s, hidden)
	}
	if x.d.old {
		s = modern(s, v.Get("nullable").IsTrue())
	}
	return s, nil
}

// readOnly says whether a property stands in answers only.
func (x *expander) readOnly(p *jsontext.Value) bool {
	p, err := x.d.deref(p)
	return err == nil && p.Get("readOnly").IsTrue()
}

func withoutRequired(s *jsontext.Value, hidden map[string]bool) *jsontext.Value {
	r := s.Get("required")
	if r == nil {
		return s
	}
	kept := &jsontext.Value{Kind: '['}
	for _, e := range r.Elems {
		if !hidden[e.Str] {
			kept.Elems = append(kept.Elems, e)
		}
	}
	if len(kept.Elems) == 0 {
		return s.Without("required")
	}
	return s.With("required", kept)
}

// modern turns a schema of 3.0 into one of JSON Schema 2020-12.
func modern(s *jsontext.Value, nullable bool) *jsontext.Value {
	for _, k := range [][2]string{{"exclusiveMinimum", "minimum"}, {"exclusiveMaximum", "maximum"}} {
		v := s.Get(k[0])
		if v == nil || v.Kind != 't' && v.Kind != 'f' {
			continue
		}
		if bound := s.Get(k[1]); v.Kind == 't' && bound != nil {
			s = s.With(k[0], bound).Without(k[1])
		} else {
			s = s.Without(k[0])
		}
	}
	if !nullable {
		return s
	}
	t := s.Get("type")
	if t == nil || t.Kind != '"' {
		return s // without a type null is allowed already
	}
	s = s.With("type", &jsontext.Value{Kind: '[', Elems: []*jsontext.Value{t, str("null")}})
	if e := s.Get("enum"); e != nil && !slices.ContainsFunc(e.Elems, func(v *jsontext.Value) bool { return v.Kind == 'n' }) {
		s = s.With("enum", &jsontext.Value{Kind: '[', Elems: append(slices.Clone(e.Elems), &jsontext.Value{Kind: 'n', Str: "null"})})
	}
	return s
}

// reference writes out what v refers to. In 3.1 more may stand beside $ref.
func (x *expander) reference(v, ref *jsontext.Value) (*jsontext.Value, error) {
	s, err := x.referred(v, ref)
	if err != nil {
		return nil, err
	}
	beside := v.Without("$ref", "description", "summary")
	if x.d.old || len(beside.Members) == 0 {
		return described(s, stringOf(v.Get("description"))), nil
	}
	more, err := x.schema(beside)
	if err != nil {
		return nil, err
	}
	if len(more.Members) == 0 {
		return described(s, stringOf(v.Get("description"))), nil
	}
	both := obj(jsontext.Member{Key: "allOf", Val: &jsontext.Value{Kind: '[', Elems: []*jsontext.Value{s, more}}})
	return described(both, stringOf(v.Get("description"))), nil
}

// referred is the schema that ref leads to, or a reference to it under $defs.
func (x *expander) referred(v, ref *jsontext.Value) (*jsontext.Value, error) {
	to, err := x.d.deref(v)
	if err != nil {
		return nil, err
	}
	if name, ok := x.defs[to]; ok {
		return pointTo(name), nil
	}
	name, open := x.open[to]
	if open { // it contains itself
		if name == "" {
			name = x.define(ref.Str)
			x.open[to] = name
		}
		return pointTo(name), nil
	}
	x.open[to] = ""
	if x.byName {
		x.open[to] = x.define(ref.Str)
	}
	s, err := x.schema(to)
	if err != nil {
		return nil, err
	}
	name = x.open[to]
	delete(x.open, to)
	if name == "" {
		return s, nil
	}
	x.defs[to] = name
	x.written = append(x.written, jsontext.Member{Key: name, Val: s})
	return pointTo(name), nil
}

func pointTo(name string) *jsontext.Value {
	return obj(jsontext.Member{Key: "$ref", Val: str("#/$defs/" + name)})
}

// define finds a free name under $defs.
func (x *expander) define(ref string) string {
	name := free(toolName(ref[strings.LastIndexByte(ref, '/')+1:], DefaultLimits.NameBytes), func(s string) bool { return x.names[s] })
	x.names[name] = true
	return name
}
