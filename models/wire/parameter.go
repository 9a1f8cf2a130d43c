package wire

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Coercion is how a family's engines read the value of a parameter whose schema
// names no type, or null.
type Coercion uint8

const (
	// TextUnlessTyped takes it for text, and "null" in any case for null unless
	// the schema asks for a string: Qwen3-Coder.
	TextUnlessTyped Coercion = iota
	// JSONUnlessTyped takes it for JSON if it is some: GLM.
	JSONUnlessTyped
)

// parameter is the one that is being read.
type parameter struct {
	seen  []string
	defs  *schemaView
	text  bool     // the value is text and handed on as it comes
	kind  typeView // what the schema says of the value
	value []byte   // of a value that is not handed on as it comes
	begun bool     // a byte of the value was seen
}

func (p *Parser) key(key string) {
	d := &p.param
	switch {
	case key == "":
		p.malformed("the key of a parameter is empty")
		return
	case contains(d.seen, key):
		p.malformed(quoted(key) + " stands twice")
		return
	}
	if len(d.seen) > 0 {
		p.emit(Arguments, []byte(", "))
	} else if p.Schema != nil {
		d.defs = viewSchema(p.Schema(p.name))
	}
	d.seen = append(d.seen, key)
	p.emit(Arguments, append(appendString(nil, key), ": "...))
	d.kind = d.defs.property(key)
	if open := p.f.Calls.valueOpen(); open != "" {
		p.await(valueOpen, open)
		return
	}
	p.value()
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func quoted(s string) string { return string(appendString(nil, s)) }

func (p *Parser) value() {
	d := &p.param
	p.mode = inValue
	p.held = p.held[:0]
	d.value, d.begun = d.value[:0], false
	if d.text = d.kind.text(); d.text {
		p.emit(Arguments, []byte{'"'})
	}
}

func (p *Parser) stepValue(c byte) {
	s, d := &p.f.Calls, &p.param
	if !d.begun {
		d.begun = true
		if s.Wrapped && c == '\n' {
			return
		}
	}
	p.held = append(p.held, c)
	k := len(keepPrefix(p.held, s.End))
	n := len(p.held) - k
	if s.Wrapped && n > 0 && p.held[n-1] == '\n' {
		n--
	}
	if d.text {
		p.emit(Arguments, appendEscaped(nil, p.held[:n]))
	} else {
		d.value = append(d.value, p.held[:n]...)
	}
	if k < len(s.End) {
		p.held = append(p.held[:0], p.held[n:]...)
		return
	}
	if d.text {
		p.emit(Arguments, []byte{'"'})
	} else {
		p.emit(Arguments, d.kind.read(d.value, s.Coerce))
	}
	p.await(parameterOpen, s.Parameter, s.ends()[0])
}

func (p *Parser) endParameters() { p.emit(Arguments, []byte{'}'}) }

// appendEscaped appends bytes of a JSON string's inside.
func appendEscaped(dst, b []byte) []byte {
	const hex = "0123456789abcdef"
	for _, c := range b {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// read is the JSON that a value stands for.
func (t typeView) read(value []byte, c Coercion) []byte {
	word := strings.ToLower(string(bytes.TrimSpace(value)))
	text := func() []byte { return append(append([]byte{'"'}, appendEscaped(nil, value)...), '"') }
	trimmed := bytes.TrimSpace(value)
	switch {
	case word == "null" && (t.null || t.name != "string") && (c == TextUnlessTyped || string(trimmed) == word):
		return []byte(word)
	case t.name == "string":
		return text()
	case t.name == "" && c == TextUnlessTyped:
		return text()
	case t.name == "boolean" && (word == "true" || word == "false"):
		return []byte(word)
	case (t.name == "integer" || t.name == "number") && !number(trimmed), t.name == "boolean":
		return text()
	case json.Valid(trimmed):
		return trimmed
	}
	return text()
}

func number(b []byte) bool {
	return json.Valid(b) && (b[0] == '-' || '0' <= b[0] && b[0] <= '9')
}

// TextParameter says whether the parser takes whatever stands as the value of a
// parameter for a string, given the schema of the tool's arguments.
func (f *Family) TextParameter(schema json.RawMessage, key string) bool {
	t := viewSchema(schema).property(key)
	return t.name == "string" || t.name == "" && f.Calls.Coerce == TextUnlessTyped
}

// ReadParameter is the JSON that text stands for as the value of a parameter.
func (f *Family) ReadParameter(schema json.RawMessage, key, text string) json.RawMessage {
	return viewSchema(schema).property(key).read([]byte(text), f.Calls.Coerce)
}

// appendParameters writes arguments parameter by parameter, as templates do:
// strings as they are, anything else as JSON. Text that spells the end of a
// value gets a space behind its first character. What is no JSON object has no
// parameters.
func (f *Family) appendParameters(dst []byte, arguments string) []byte {
	s := &f.Calls
	eachMember(json.RawMessage(arguments), func(key string, v json.RawMessage) {
		dst = append(append(append(dst, s.Parameter...), key...), s.Is...)
		if s.Wrapped {
			dst = append(dst, '\n')
		}
		var text string
		if v[0] == '"' && json.Unmarshal(v, &text) == nil {
			dst = append(dst, apart(text, []string{s.End})...)
		} else if out, err := AppendPython(dst, v); err == nil {
			dst = out
		}
		if s.Wrapped {
			dst = append(dst, '\n')
		}
		dst = append(append(dst, s.End...), s.Gap...)
	})
	return dst
}

// schemaView is what is read of a schema to tell the type of a parameter.
type schemaView struct {
	Type       json.RawMessage
	Properties map[string]json.RawMessage
	AnyOf      []json.RawMessage
	OneOf      []json.RawMessage
	AllOf      []json.RawMessage
	Enum       []json.RawMessage
	Const      json.RawMessage
	Items      json.RawMessage
	Ref        string                     `json:"$ref"`
	Defs       map[string]json.RawMessage `json:"$defs"`
	Defs7      map[string]json.RawMessage `json:"definitions"`
}

// typeView is the type of a parameter, as far as it decides how text is read.
type typeView struct {
	name string // "" when the schema names none
	null bool   // null is a value too
}

// text says that any text is a value, and stands for itself.
func (t typeView) text() bool { return t.name == "string" && !t.null }

// maxRefs is how many references in a row are followed.
const maxRefs = 16

func viewSchema(raw json.RawMessage) *schemaView {
	var v schemaView
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return &v
}

// property is the type of a property: of the schema itself, or when it declares
// none of a branch of its anyOf, oneOf or allOf.
func (v *schemaView) property(key string) typeView {
	if v == nil {
		return typeView{}
	}
	if raw, ok := v.find(v, key, maxRefs); ok {
		return v.typeOf(raw, maxRefs)
	}
	return typeView{}
}

func (v *schemaView) find(in *schemaView, key string, depth int) (json.RawMessage, bool) {
	if in == nil || depth == 0 {
		return nil, false
	}
	if in.Properties != nil {
		raw, ok := in.Properties[key]
		return raw, ok
	}
	for _, list := range [][]json.RawMessage{in.AnyOf, in.OneOf, in.AllOf} {
		for _, b := range list {
			if raw, ok := v.find(v.follow(viewSchema(b), depth), key, depth-1); ok {
				return raw, true
			}
		}
	}
	if in.Ref != "" {
		return v.find(v.follow(in, depth), key, depth-1)
	}
	return nil, false
}

// follow is the schema that a reference names.
func (v *schemaView) follow(in *schemaView, depth int) *schemaView {
	for ; in != nil && in.Ref != "" && depth > 0; depth-- {
		name, ok := strings.CutPrefix(in.Ref, "#/$defs/")
		defs := v.Defs
		if !ok {
			name, _ = strings.CutPrefix(in.Ref, "#/definitions/")
			defs = v.Defs7
		}
		in = viewSchema(defs[jsontext.UnescapePointer(name)])
	}
	return in
}

// typeOf follows the order in which the engines look: type, anyOf and oneOf, the
// values of enum and const, allOf, and what properties or items give away.
func (v *schemaView) typeOf(raw json.RawMessage, depth int) typeView {
	in := v.follow(viewSchema(raw), depth)
	if in == nil || depth == 0 {
		return typeView{}
	}
	var one string
	var many []string
	switch {
	case json.Unmarshal(in.Type, &one) == nil && one != "":
		return typeView{one, one == "null"}
	case json.Unmarshal(in.Type, &many) == nil && len(many) > 0:
		return firstOf(many, false)
	}
	if list := append(in.AnyOf[:len(in.AnyOf):len(in.AnyOf)], in.OneOf...); len(list) > 0 {
		var names []string
		null := false
		for _, b := range list {
			t := v.typeOf(b, depth-1)
			if null = null || t.null; t.name != "" {
				names = append(names, t.name)
			}
		}
		if len(names) > 0 {
			t := firstOf(names, true)
			t.null = t.null || null
			return t
		}
	}
	if in.Const != nil {
		in.Enum = []json.RawMessage{in.Const}
	}
	if len(in.Enum) > 0 {
		var names []string
		for _, e := range in.Enum {
			names = append(names, valueType(e))
		}
		t := firstOf(names, true)
		for _, n := range names {
			if n != "null" && n != t.name {
				t.name = "string"
			}
		}
		return t
	}
	for _, b := range in.AllOf {
		if t := v.typeOf(b, depth-1); t.name != "" {
			return t
		}
	}
	switch {
	case in.Properties != nil:
		return typeView{name: "object"}
	case in.Items != nil:
		return typeView{name: "array"}
	}
	return typeView{}
}

// firstOf is the first type that isn't null, or string before any other.
func firstOf(names []string, stringFirst bool) typeView {
	t := typeView{name: "null"}
	for _, n := range names {
		switch {
		case n == "null":
			t.null = true
		case t.name == "null" || stringFirst && n == "string":
			t.name = n
		}
	}
	return t
}

func valueType(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if bytes.ContainsAny(raw, ".eE") {
		return "number"
	}
	return "integer"
}
