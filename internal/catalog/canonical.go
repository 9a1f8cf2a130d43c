package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/retrieval"
)

// TypeError is a tool that is not a function, such as {"type":"web_search"}.
type TypeError struct{ Type string }

func (e *TypeError) Error() string {
	return fmt.Sprintf("tool type %.40q is not supported; only functions are", e.Type)
}

// Canonical reads one tool written as {"type":"function","function":{…}}, as a
// bare function object, or as an MCP tool with inputSchema, and returns it in
// canonical bytes. Unknown keys beside the function's name, description and
// parameters are dropped, but for what they say of its risk. Errors: [*TypeError],
// or what is wrong in words.
func Canonical(raw []byte, lim Limits) (retrieval.Tool, error) {
	return canonical(raw, &lim, form{})
}

// form says what is asked of a tool's text.
type form struct {
	nested bool // only the form of OpenAI chat requests will do
	mend   bool // a name that clients don't take is made one, see toolName
}

// canonical is Canonical with the form asked for.
func canonical(raw []byte, lim *Limits, f form) (retrieval.Tool, error) {
	var t retrieval.Tool
	if len(raw) > lim.ToolBytes {
		return t, fmt.Errorf("%d bytes; a tool may have %d", len(raw), lim.ToolBytes)
	}
	compact, err := compactJSON(raw, lim.Depth)
	if err != nil {
		return t, err
	}
	if len(compact) == 0 || compact[0] != '{' {
		return t, errors.New("not an object")
	}
	var name, about, params, function []byte
	kind := "function"
	bare := compact
	take := func(key string, v []byte) {
		switch key {
		case "name":
			name = v
		case "description":
			about = v
		case "parameters", "inputSchema", "input_schema":
			params = v
		}
	}
	for key, v := range members(compact) {
		switch key {
		case "type":
			if v[0] != '"' {
				return t, errors.New("type is not a string")
			}
			kind = text(v)
		case "function":
			function = v
		}
	}
	if kind != "function" {
		return t, &TypeError{kind}
	}
	if function != nil {
		if function[0] != '{' {
			return t, errors.New("function is not an object")
		}
		bare = function
	} else if f.nested {
		return t, errors.New("no function object")
	}
	for key, v := range members(bare) {
		take(key, v)
	}
	risk, err := declared(compact)
	if risk == 0 && err == nil && function != nil {
		risk, err = declared(function)
	}
	if err != nil && !f.nested { // of a client's own tool nothing depends on it
		return t, err
	}
	t.Risk = uint8(risk)

	if name == nil || name[0] != '"' {
		return t, errors.New("no name")
	}
	if t.Name = text(name); f.mend {
		t.Name = toolName(t.Name, lim.NameBytes)
	}
	if err := checkName(t.Name, lim.NameBytes); err != nil {
		return t, err
	}
	switch {
	case about == nil, string(about) == "null":
	case about[0] != '"':
		return t, errors.New("description is not a string")
	default:
		t.Description = text(about)
	}
	if len(t.Description) > lim.DescriptionBytes {
		return t, fmt.Errorf("description of %d bytes; at most %d", len(t.Description), lim.DescriptionBytes)
	}
	switch {
	case params == nil, string(params) == "null":
		params = []byte(`{"type":"object","properties":{}}`)
	case params[0] != '{':
		return t, errors.New("parameters are not an object")
	}
	t.Raw, t.Schema = assemble(t.Name, t.Description, params)
	return t, nil
}

// assemble writes the canonical bytes; schema is the part of raw that holds
// the parameters.
func assemble(name, about string, params []byte) (raw, schema json.RawMessage) {
	b := make([]byte, 0, len(name)+len(about)+len(params)+80)
	b = append(b, `{"type":"function","function":{"name":`...)
	b = jsontext.AppendString(b, name)
	b = append(b, `,"description":`...)
	b = jsontext.AppendString(b, about)
	b = append(b, `,"parameters":`...)
	from := len(b)
	b = append(b, params...)
	to := len(b)
	b = append(b, "}}"...)
	return b, json.RawMessage(b[from:to:to])
}

func checkName(name string, most int) error {
	if name == "" {
		return errors.New("empty name")
	}
	if len(name) > most {
		return fmt.Errorf("name of %d characters; at most %d", len(name), most)
	}
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-') {
			return fmt.Errorf("name with %q; letters, digits, _ and - are allowed", r)
		}
	}
	return nil
}

// syntaxError turns what encoding/json says into a place.
func syntaxError(raw []byte) error {
	var v any
	err := json.Unmarshal(raw, &v)
	var syn *json.SyntaxError
	if errors.As(err, &syn) {
		before := raw[:min(int(syn.Offset), len(raw))]
		line := bytes.Count(before, []byte{'\n'}) + 1
		column := len(before) - (bytes.LastIndexByte(before, '\n') + 1)
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

// compactJSON checks raw (one JSON value: syntax, UTF-8, depth, no key twice,
// no control characters) and returns it without white space, every string in
// its shortest spelling and every number as it was.
func compactJSON(raw []byte, depth int) ([]byte, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("not valid UTF-8")
	}
	if !json.Valid(raw) {
		return nil, syntaxError(raw)
	}
	c := compacter{raw: raw, out: make([]byte, 0, len(raw)), depth: depth}
	if err := c.value(0); err != nil {
		return nil, err
	}
	return c.out, nil
}

// compacter walks valid JSON.
type compacter struct {
	raw   []byte
	pos   int
	out   []byte
	depth int
}

func (c *compacter) space() byte {
	for {
		switch b := c.raw[c.pos]; b {
		case ' ', '\t', '\r', '\n':
			c.pos++
		default:
			return b
		}
	}
}

func (c *compacter) value(depth int) error {
	switch b := c.space(); b {
	case '{', '[':
		if depth >= c.depth {
			return fmt.Errorf("nested deeper than %d levels", c.depth)
		}
		return c.group(b, depth)
	case '"':
		_, err := c.str()
		return err
	default:
		from := c.pos
		for c.pos < len(c.raw) {
			switch c.raw[c.pos] {
			case ' ', '\t', '\r', '\n', ',', '}', ']':
				c.out = append(c.out, c.raw[from:c.pos]...)
				return nil
			}
			c.pos++
		}
		c.out = append(c.out, c.raw[from:]...)
		return nil
	}
}

func (c *compacter) group(open byte, depth int) error {
	c.pos++
	c.out = append(c.out, open)
	var keys keySet
	for n := 0; ; n++ {
		b := c.space()
		if b == '}' || b == ']' {
			c.pos++
			c.out = append(c.out, b)
			return nil
		}
		if n > 0 { // a comma
			c.pos++
			c.out = append(c.out, ',')
		}
		if open == '{' {
			c.space()
			key, err := c.str()
			if err != nil {
				return err
			}
			if !keys.add(key) {
				return fmt.Errorf("key %.80s twice in one object", key)
			}
			c.space()
			c.pos++ // the colon
			c.out = append(c.out, ':')
		}
		if err := c.value(depth + 1); err != nil {
			return err
		}
	}
}

// str copies one string and returns its canonical spelling, quotes included.
func (c *compacter) str() ([]byte, error) {
	from := c.pos
	escaped := false
	c.pos++
	for c.raw[c.pos] != '"' {
		if c.raw[c.pos] == '\\' {
			escaped = true
			c.pos++
		}
		c.pos++
	}
	c.pos++
	token := c.raw[from:c.pos]
	at := len(c.out)
	if escaped && !loneSurrogate(token) {
		s := text(token)
		if r, bad := controlIn(s); bad {
			return nil, fmt.Errorf("control character %U in a string", r)
		}
		c.out = jsontext.AppendString(c.out, s)
	} else {
		if r, bad := controlIn(string(token)); bad {
			return nil, fmt.Errorf("control character %U in a string", r)
		}
		c.out = append(c.out, token...)
	}
	return c.out[at:len(c.out):len(c.out)], nil
}

// loneSurrogate says whether a string spells half of a surrogate pair, which
// no UTF-8 can hold; such a string stays as written.
func loneSurrogate(token []byte) bool {
	if !bytes.Contains(token, []byte(`\u`)) {
		return false
	}
	return bytes.ContainsRune([]byte(text(token)), utf8.RuneError)
}

func controlIn(s string) (rune, bool) {
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || 0x7f <= r && r <= 0x9f {
			return r, true
		}
	}
	return 0, false
}

// keySet holds the keys of one object; small ones are searched in order.
type keySet struct {
	few  [][]byte
	many map[string]struct{}
}

func (k *keySet) add(key []byte) bool {
	if k.many == nil {
		for _, x := range k.few {
			if bytes.Equal(x, key) {
				return false
			}
		}
		if len(k.few) < 16 {
			k.few = append(k.few, bytes.Clone(key))
			return true
		}
		k.many = make(map[string]struct{})
		for _, x := range k.few {
			k.many[string(x)] = struct{}{}
		}
	}
	if _, dup := k.many[string(key)]; dup {
		return false
	}
	k.many[string(key)] = struct{}{}
	return true
}

// members yields key and value of each member of a compact object.
func members(object []byte) func(yield func(key string, value []byte) bool) {
	return func(yield func(string, []byte) bool) {
		pos := 1
		for object[pos] != '}' {
			if object[pos] == ',' {
				pos++
			}
			key := object[pos:skipString(object, pos)]
			pos += len(key) + 1 // the colon
			from := pos
			pos = skipValue(object, pos)
			if !yield(text(key), object[from:pos:pos]) {
				return
			}
		}
	}
}

// elements yields each value of a compact array.
func elements(array []byte) func(yield func(value []byte) bool) {
	return func(yield func([]byte) bool) {
		pos := 1
		for array[pos] != ']' {
			if array[pos] == ',' {
				pos++
			}
			from := pos
			pos = skipValue(array, pos)
			if !yield(array[from:pos:pos]) {
				return
			}
		}
	}
}

// skipString returns the position after the string that begins at pos.
func skipString(b []byte, pos int) int {
	for pos++; b[pos] != '"'; pos++ {
		if b[pos] == '\\' {
			pos++
		}
	}
	return pos + 1
}

// skipValue returns the position after the value that begins at pos in compact JSON.
func skipValue(b []byte, pos int) int {
	depth := 0
	for pos < len(b) {
		switch b[pos] {
		case '"':
			pos = skipString(b, pos)
			if depth == 0 {
				return pos
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return pos
			}
			if depth--; depth == 0 {
				return pos + 1
			}
		case ',':
			if depth == 0 {
				return pos
			}
		}
		pos++
	}
	return pos
}

// text returns what a JSON string means.
func text(token []byte) string {
	if bytes.IndexByte(token, '\\') < 0 {
		return string(token[1 : len(token)-1])
	}
	var s string
	if err := json.Unmarshal(token, &s); err != nil {
		panic("catalog: string of checked JSON: " + err.Error())
	}
	return s
}
