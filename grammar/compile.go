package grammar

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Compile checks a tool's schema and compiles it. The error is a *SchemaError
// that names the place; a schema that no object fits is refused too, since a
// model held to it could write nothing. Results, refusals among them, are
// cached by the hash of schema and world, so that the same bytes are compiled
// once.
//
// Compile does bounded work: size, nesting and number of subschemas have
// limits, nothing is fetched, patterns are RE2 and therefore linear. `format`
// is an annotation in every draft: Check doesn't look at it.
func Compile(t Tool, world World) (*Checked, error) {
	c, err := Judge(t, world)
	if err == nil && c.content.barren != nil {
		return nil, &SchemaError{t.Name, "#", c.content.barren.Error()}
	}
	return c, err
}

// Judge is Compile for those who only Check: any schema will do, also one that
// nothing fits.
func Judge(t Tool, world World) (*Checked, error) {
	raw := t.Schema
	if len(raw) > maxSchemaBytes {
		return nil, &SchemaError{t.Name, "#", fmt.Sprintf("%d bytes; at most 1 MiB", len(raw))}
	}
	key := sha256.Sum256(append([]byte{byte(world)}, raw...))
	c, err, ok := compiled.get(key)
	if !ok {
		c, err = compile(t.Name, raw, world)
		compiled.put(key, c, err, len(raw))
	}
	if err != nil {
		var se *SchemaError
		if errors.As(err, &se) && se.Tool != t.Name {
			again := *se
			again.Tool = t.Name
			return nil, &again
		}
		return nil, err
	}
	if c.name != t.Name {
		named := *c
		named.name = t.Name
		return &named, nil
	}
	return c, nil
}

const schemaURL = "https://tool.invalid/schema.json"

func compile(name string, raw []byte, world World) (c *Checked, err error) {
	// The schema library panics on some malformed metaschemas.
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, &SchemaError{name, "#", fmt.Sprint("cannot be compiled: ", r)}
		}
	}()
	root := &jsontext.Value{Kind: '{'}
	if len(raw) > 0 && string(raw) != "null" {
		if root, err = jsontext.Parse(raw, maxJSONDepth); err != nil {
			return nil, &SchemaError{name, "#", err.Error()}
		}
		if root.Kind == 'n' {
			root = &jsontext.Value{Kind: '{'}
		}
	}
	if !root.IsSchema() {
		return nil, &SchemaError{name, "#", "a schema is an object, true or false"}
	}
	if root.Kind == 't' {
		root = &jsontext.Value{Kind: '{'}
	}
	if r := root.Get("$schema"); r != nil && r.Kind != '"' {
		return nil, &SchemaError{name, "#/$schema", "not a string"}
	}
	plainRefs, err := survey(name, root)
	if err != nil {
		return nil, err
	}
	if world == Closed {
		root = closeWorld(root, plainRefs)
	}
	comp := jsonschema.NewCompiler()
	comp.DefaultDraft(jsonschema.Draft2020)
	comp.UseLoader(noLoader{})
	if err := comp.AddResource(schemaURL, withoutFormat(root).Plain()); err != nil {
		return nil, &SchemaError{name, "#", oneLine(err)}
	}
	accept, err := comp.Compile(schemaURL)
	if err != nil {
		loc := "#"
		var ve *jsonschema.SchemaValidationError
		var re *jsonschema.InvalidRegexError
		switch {
		case errors.As(err, &ve):
			var inner *jsonschema.ValidationError
			if errors.As(ve.Err, &inner) {
				m := misfitOf(root, inner)
				return nil, &SchemaError{name, "#" + m.Loc, "not a valid schema: " + m.Message}
			}
		case errors.As(err, &re):
			return nil, &SchemaError{name, loc, fmt.Sprintf("pattern %q is not RE2: %v", clipText(re.Regex, 80), re.Err)}
		}
		return nil, &SchemaError{name, loc, oneLine(err)}
	}
	c = &Checked{name: name, raw: string(raw), world: world, accept: accept, parts: &parts{}}
	if c.work = workOf(accept); len(c.work) == 0 {
		return nil, &SchemaError{name, "#", "applies more than 1,000,000 subschemas to one value"}
	}
	c.content = contentOf(root, plainRefs)
	c.automaton = &automatonOnce{lang: c.content.lang, defs: c.content.defs}
	c.content.lang, c.content.defs = nil, nil
	return c, nil
}

func oneLine(err error) string {
	s := []byte(err.Error())
	for i, b := range s {
		if b == '\n' {
			s[i] = ' '
		}
	}
	return clipText(string(s), 300)
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside this schema; nothing is fetched: inline it under $defs", url)
}

// withoutFormat takes out every format keyword, which the schema library would
// assert in drafts 4 to 7; to us it is an annotation everywhere.
func withoutFormat(v *jsontext.Value) *jsontext.Value {
	out := *v
	for i, e := range v.Elems {
		if s := withoutFormat(e); s != e {
			if &out.Elems[0] == &v.Elems[0] {
				out.Elems = slices.Clone(v.Elems)
			}
			out.Elems[i] = s
		}
	}
	changed := len(v.Elems) > 0 && &out.Elems[0] != &v.Elems[0]
	out.Members = nil
	for _, m := range v.Members {
		if m.Key == "format" && m.Val.Kind == '"' {
			changed = true
			continue
		}
		if m.Key != "enum" && m.Key != "const" && m.Key != "default" && m.Key != "examples" {
			if s := withoutFormat(m.Val); s != m.Val {
				m.Val, changed = s, true
			}
		}
		out.Members = append(out.Members, m)
	}
	if !changed {
		return v
	}
	out.Index()
	return &out
}

// compiled remembers results. 4,096 tools or 64 MiB of schema text, whichever
// is less: a catalog of 3,200 tools stays in it.
var compiled = &cache{entries: map[[32]byte]*list.Element{}, order: list.New(), maxEntries: 4096, maxBytes: 64 << 20}

type cache struct {
	mu sync.Mutex // guards all below
	// least recently used at the back
	order      *list.List
	entries    map[[32]byte]*list.Element
	bytes      int
	maxEntries int
	maxBytes   int
}

type cached struct {
	key   [32]byte
	c     *Checked
	err   error
	bytes int
}

func (l *cache) get(key [32]byte) (*Checked, error, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[key]
	if !ok {
		return nil, nil, false
	}
	l.order.MoveToFront(e)
	v := e.Value.(*cached)
	return v.c, v.err, true
}

func (l *cache) put(key [32]byte, c *Checked, err error, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.entries[key]; ok {
		return
	}
	l.entries[key] = l.order.PushFront(&cached{key, c, err, bytes})
	l.bytes += bytes
	for len(l.entries) > l.maxEntries || l.bytes > l.maxBytes && len(l.entries) > 1 {
		last := l.order.Back()
		v := last.Value.(*cached)
		l.order.Remove(last)
		delete(l.entries, v.key)
		l.bytes -= v.bytes
	}
}
