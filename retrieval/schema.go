package retrieval

import (
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// schemaLevels is how many levels of nested properties are read: the
	// parameters, their fields, and the fields of those.
	schemaLevels = 3
	// schemaEnum is how many values of one enum are read.
	schemaEnum = 20
)

// parameterText appends to dst the words' sources in a schema: property names,
// their descriptions and enum values, separated by spaces, in no promised
// order. The schema must be valid JSON; what is not an object has no text.
func parameterText(dst []byte, schema []byte) []byte {
	w := walker{raw: schema, out: dst}
	w.schema(0)
	return w.out
}

// parameterNames appends the property names alone, as written.
func parameterNames(dst []byte, schema []byte) []byte {
	if len(schema) == 0 {
		return dst
	}
	w := walker{raw: schema, out: dst, names: true}
	w.schema(0)
	return w.out
}

// walker reads valid JSON without building it. Its position is always at the
// start of a value or at white space before one.
type walker struct {
	raw   []byte
	pos   int
	out   []byte
	names bool // property names alone are wanted
}

func (w *walker) space() byte {
	for w.pos < len(w.raw) {
		switch c := w.raw[w.pos]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			w.pos++
		default:
			return c
		}
	}
	return 0
}

// token returns the next string or scalar as written and moves past it.
func (w *walker) token() []byte {
	start := w.pos
	if w.raw[w.pos] == '"' {
		w.pos++
		for w.raw[w.pos] != '"' {
			if w.raw[w.pos] == '\\' {
				w.pos++
			}
			w.pos++
		}
		w.pos++
		return w.raw[start:w.pos]
	}
	for w.pos < len(w.raw) {
		switch w.raw[w.pos] {
		case ' ', '\t', '\r', '\n', ',', ':', '}', ']':
			return w.raw[start:w.pos]
		}
		w.pos++
	}
	return w.raw[start:w.pos]
}

// skip moves past one value of any kind, without recursion.
func (w *walker) skip() {
	depth := 0
	for {
		switch w.space() {
		case 0:
			return
		case '{', '[':
			depth++
			w.pos++
		case '}', ']':
			depth--
			w.pos++
		default:
			w.token()
		}
		if depth <= 0 {
			return
		}
	}
}

// members calls f at each member's value with its key as written; f must move
// past the value. A value that is not an object is skipped.
func (w *walker) members(f func(key []byte)) {
	if w.space() != '{' {
		w.skip()
		return
	}
	w.pos++
	for w.space() != '}' {
		key := w.token()
		w.space()
		f(key)
	}
	w.pos++
}

// schema reads one schema whose properties stand at the given level.
func (w *walker) schema(level int) {
	w.members(func(key []byte) {
		if level < schemaLevels && string(key) == `"properties"` {
			w.members(func(name []byte) {
				w.text(name)
				w.property(level)
			})
			return
		}
		w.skip()
	})
}

// property reads one property: its own words, its fields and its items'.
func (w *walker) property(level int) {
	w.members(func(key []byte) {
		switch string(key) {
		case `"description"`:
			if w.space() == '"' && !w.names {
				w.text(w.token())
				return
			}
		case `"enum"`:
			if w.space() == '[' && !w.names {
				w.pos++
				for n := 0; w.space() != ']'; n++ {
					switch w.space() {
					case '{', '[':
						w.skip()
						continue
					}
					if v := w.token(); n < schemaEnum {
						w.text(v)
					}
				}
				w.pos++
				return
			}
		case `"properties"`:
			if level+1 < schemaLevels {
				w.members(func(name []byte) {
					w.text(name)
					w.property(level + 1)
				})
				return
			}
		case `"items"`:
			w.schema(level + 1)
			return
		}
		w.skip()
	})
}

// text appends a string or scalar as written, escapes resolved.
func (w *walker) text(token []byte) {
	w.out = append(w.out, ' ')
	if len(token) < 2 || token[0] != '"' {
		w.out = append(w.out, token...)
		return
	}
	for _, c := range token {
		if c == '\\' {
			var s string
			if json.Unmarshal(token, &s) == nil {
				w.out = append(w.out, s...)
			}
			return
		}
	}
	w.out = append(w.out, token[1:len(token)-1]...)
}

// SchemaError is a tool whose parameters are not JSON.
type SchemaError struct {
	Tool string // its name
	Err  error  // what the JSON decoder said
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("tool %q: parameters: %v", e.Tool, e.Err)
}

func (e *SchemaError) Unwrap() error { return e.Err }

func checkSchema(t *Tool) error {
	if len(t.Schema) == 0 || json.Valid(t.Schema) {
		return nil
	}
	var v any
	return &SchemaError{t.Name, json.Unmarshal(t.Schema, &v)}
}

func trim(s string) string { return strings.TrimSpace(s) }
