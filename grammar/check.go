package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Tool is what grammar needs to know of a tool.
type Tool struct {
	Name string
	// Schema is the JSON Schema of the arguments. Empty, null and {} mean a
	// tool without parameters.
	Schema []byte
}

// Checked is a compiled tool: immutable, safe for concurrent use.
type Checked struct {
	name    string
	raw     string
	world   World
	accept  *jsonschema.Schema
	work    []int // see workOf
	content content
	// shared by all names of the tool
	automaton *automatonOnce
	parts     *parts
}

// Name is the tool's name.
func (c *Checked) Name() string { return c.name }

// A Misfit says where and why arguments don't fit.
type Misfit struct {
	// Loc is a JSON pointer into the arguments; "" is all of them.
	Loc string
	// InputValue is the JSON text at Loc, cut after 256 bytes. When the
	// arguments aren't JSON it is what stands around the offending byte.
	InputValue string
	// ErrorType is the schema keyword that failed, or one of json_syntax,
	// duplicate_key, trailing_data, invalid_utf8, too_deep, too_long.
	ErrorType string
	Message   string
	// Expected is what would have fitted, in words or values.
	Expected string
	// Offset is the byte at which the text stops being JSON; -1 if it is JSON.
	Offset int

	// For the envelope: Loc as JSON texts, the library's cause, and the schema
	// that was broken, by its place and as such.
	path   []string
	kind   jsonschema.ErrorKind
	schema string
	broken *jsonschema.Schema
}

func (m *Misfit) Error() string {
	at := m.Loc
	if at == "" {
		at = "arguments"
	}
	return at + ": " + m.Message
}

// Check tells whether the arguments of a call fit the tool; if not the error
// is a *Misfit. The text must be one JSON object: UTF-8, no key twice, nothing
// after it. Numbers are compared exactly, whatever their size.
func (c *Checked) Check(arguments []byte) error {
	v, ve, m := c.judge(arguments, true)
	if ve != nil {
		m = misfitOf(v, ve)
		m.broken = c.find(m.schema)
	}
	if m != nil {
		return m
	}
	return nil
}

// Misfits gives every independent cause why a text doesn't fit, in the order
// of the text; none if it fits. With object the text must be an object, as the
// arguments of a call, and the result is empty if and only if Check takes it;
// without, it may be any JSON value, as the instances of a bare schema.
func (c *Checked) Misfits(text []byte, object bool) []*Misfit {
	v, ve, m := c.judge(text, object)
	if ve == nil {
		if m == nil {
			return nil
		}
		return []*Misfit{m}
	}
	var all []*Misfit
	for _, cause := range causesOf(v, ve) {
		m := cause.misfit(v)
		if len(all) < maxEnvelopeErrors { // the others are counted only
			m.broken = c.find(m.schema)
		}
		all = append(all, m)
	}
	return all
}

// judge parses and validates. What fits gives neither an error nor a misfit.
func (c *Checked) judge(text []byte, object bool) (*jsontext.Value, *jsonschema.ValidationError, *Misfit) {
	if len(text) > maxArgumentBytes {
		return nil, nil, &Misfit{ErrorType: "too_long", Message: "arguments longer than 16 MiB", Expected: "at most 16 MiB", Offset: -1}
	}
	v, err := jsontext.Parse(text, min(len(c.work)-1, maxJSONDepth))
	if err != nil {
		e := err.(*jsontext.SyntaxError)
		want := "one JSON value"
		if object {
			want = "one JSON object"
		}
		return nil, nil, &Misfit{InputValue: around(text, e.Offset), ErrorType: e.Code, Message: e.Error(), Expected: want, Offset: e.Offset}
	}
	if object && v.Kind != '{' {
		return nil, nil, &Misfit{InputValue: clip(v), ErrorType: "type", Message: "the arguments are not an object", Expected: "object", Offset: -1}
	}
	if n, d := v.Size(); n > maxWork/c.work[d] {
		return nil, nil, &Misfit{ErrorType: "too_long", Message: "too many values for this schema to be checked", Expected: "fewer values", Offset: -1}
	}
	err = c.accept.Validate(v.Plain())
	if err == nil {
		return v, nil, nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return nil, nil, &Misfit{ErrorType: "schema", Message: err.Error(), Expected: "a value that fits the schema", Offset: -1}
	}
	return v, ve, nil
}

// misfitOf picks the cause to tell: the deepest place in the arguments, among
// equals the first in the order of the text.
func misfitOf(root *jsontext.Value, ve *jsonschema.ValidationError) *Misfit {
	all := causesOf(root, ve)
	best := all[0]
	for _, c := range all[1:] {
		if c.score > best.score {
			best = c
		}
	}
	return best.misfit(root)
}

// cause is one reason why a value doesn't fit, not counting those that only
// say that a part doesn't.
type cause struct {
	err   *jsonschema.ValidationError
	score int   // deeper places tell more; at equal depth the wrong branch of a union least
	at    []int // of the place: index of the member or item on each level
	code  string
	msg   string
}

// causesOf gives the causes in the order of the text; of a union only one, the
// one that came farthest, or the union itself if each branch failed at once.
func causesOf(root *jsontext.Value, ve *jsonschema.ValidationError) []cause {
	var all []cause
	var walk func(e *jsonschema.ValidationError, branch bool)
	leaf := func(e *jsonschema.ValidationError, branch bool) {
		score := 2 * len(e.InstanceLocation)
		if _, isType := e.ErrorKind.(*kind.Type); !isType || !branch {
			score++
		}
		c := cause{err: e, score: score, at: root.Order(e.InstanceLocation)}
		c.code, c.msg, _ = explain(e.ErrorKind)
		all = append(all, c)
	}
	walk = func(e *jsonschema.ValidationError, branch bool) {
		if len(e.Causes) == 0 {
			leaf(e, branch)
			return
		}
		switch e.ErrorKind.(type) {
		case *kind.PropertyNames: // its causes are about the name, not about a place
			leaf(e, branch)
		case *kind.AnyOf, *kind.OneOf:
			mine := len(all)
			for _, c := range e.Causes {
				walk(c, true)
			}
			best := -1
			for i := mine; i < len(all); i++ {
				if best < 0 || all[i].score > all[best].score || all[i].score == all[best].score && all[i].before(&all[best]) {
					best = i
				}
			}
			if all[best].score == 2*len(e.InstanceLocation) { // every branch wants another type
				all = all[:mine]
				leaf(e, branch)
				return
			}
			all[mine] = all[best]
			all = all[:mine+1]
		default:
			for _, c := range e.Causes {
				walk(c, branch)
			}
		}
	}
	walk(ve, false)
	// The library goes through members in random order.
	slices.SortStableFunc(all, func(a, b cause) int {
		switch {
		case a.before(&b):
			return -1
		case b.before(&a):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(all, func(a, b cause) bool { return !a.before(&b) && !b.before(&a) })
}

func (c *cause) before(d *cause) bool {
	if n := slices.Compare(c.at, d.at); n != 0 {
		return n < 0
	}
	if c.code != d.code {
		return c.code < d.code
	}
	return c.msg < d.msg
}

func (c *cause) misfit(root *jsontext.Value) *Misfit {
	m := &Misfit{Offset: -1, kind: c.err.ErrorKind, schema: c.err.SchemaURL}
	m.locate(root, c.err.InstanceLocation)
	m.ErrorType, m.Message, m.Expected = explain(c.err.ErrorKind)
	return m
}

// MisfitAt is what a judge says that knows no more than where a text stops
// fitting: at a byte of the value at a JSON pointer.
func MisfitAt(text []byte, offset int, pointer, why, expected string) *Misfit {
	m := &Misfit{ErrorType: "schema", Message: why, Expected: expected, Offset: offset}
	root, err := jsontext.Parse(text, maxJSONDepth)
	if err != nil { // what is at the pointer has no end, then
		root = nil
	}
	var toks []string
	if pointer != "" {
		toks = strings.Split(pointer[1:], "/")
	}
	for i, tok := range toks {
		toks[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tok)
	}
	m.locate(root, toks)
	return m
}

// locate sets the place of a misfit in the arguments, and the value there.
func (m *Misfit) locate(root *jsontext.Value, toks []string) {
	at := root
	for _, tok := range toks {
		m.Loc += "/" + escapePointer(tok)
		if at != nil && at.Kind == '[' {
			if i, err := strconv.Atoi(tok); err == nil {
				m.path = append(m.path, strconv.Itoa(i))
			}
		} else {
			m.path = append(m.path, quoted(tok, maxEnvelopeText))
		}
		at, _ = at.Child(tok)
	}
	if at != nil {
		m.InputValue = clip(at)
	}
}

func explain(k jsonschema.ErrorKind) (code, message, expected string) {
	code = "schema"
	if p := k.KeywordPath(); len(p) > 0 {
		code = p[0]
	}
	switch k := k.(type) {
	case *kind.Type:
		expected = strings.Join(k.Want, " or ")
		message = "is " + k.Got + " where " + expected + " should be"
	case *kind.Required:
		expected = strings.Join(k.Missing, ", ")
		message = "lacks " + quoteAll(k.Missing)
	case *kind.AdditionalProperties:
		names := slices.Sorted(slices.Values(k.Properties))
		expected = "no key " + strings.Join(names, ", ")
		message = "has " + quoteAll(names) + ", not declared"
	case *kind.Enum:
		expected = clipText(fmt.Sprint(k.Want...), 256)
		message = "is not one of the listed values"
	case *kind.Const:
		expected = clipText(fmt.Sprint(k.Want), 256)
		message = "is not the one value that fits"
	case *kind.MinLength:
		expected = fmt.Sprintf("at least %d characters", k.Want)
		message = fmt.Sprintf("has %d characters, fewer than %d", k.Got, k.Want)
	case *kind.MaxLength:
		expected = fmt.Sprintf("at most %d characters", k.Want)
		message = fmt.Sprintf("has %d characters, more than %d", k.Got, k.Want)
	case *kind.MinItems:
		expected = fmt.Sprintf("at least %d items", k.Want)
		message = fmt.Sprintf("has %d items, fewer than %d", k.Got, k.Want)
	case *kind.MaxItems:
		expected = fmt.Sprintf("at most %d items", k.Want)
		message = fmt.Sprintf("has %d items, more than %d", k.Got, k.Want)
	case *kind.Pattern:
		expected = clipText(k.Want, 256)
		message = "does not match the pattern"
	case *kind.Minimum:
		expected = "at least " + boundText(k.Want)
		message = "is below " + boundText(k.Want)
	case *kind.Maximum:
		expected = "at most " + boundText(k.Want)
		message = "is above " + boundText(k.Want)
	case *kind.ExclusiveMinimum:
		expected = "more than " + boundText(k.Want)
		message = "is not above " + boundText(k.Want)
	case *kind.ExclusiveMaximum:
		expected = "less than " + boundText(k.Want)
		message = "is not below " + boundText(k.Want)
	case *kind.MultipleOf:
		expected = "a multiple of " + boundText(k.Want)
		message = "is not a multiple of " + boundText(k.Want)
	case *kind.DependentRequired:
		expected = strings.Join(k.Missing, ", ")
		message = fmt.Sprintf("has %q and lacks %s", k.Prop, quoteAll(k.Missing))
	case *kind.Dependency:
		expected = strings.Join(k.Missing, ", ")
		message = fmt.Sprintf("has %q and lacks %s", k.Prop, quoteAll(k.Missing))
	case *kind.UniqueItems:
		expected = "items all different"
		message = fmt.Sprintf("holds one value twice, as items %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.PropertyNames:
		expected = "names that keep propertyNames"
		message = fmt.Sprintf("has the name %q, which does not fit propertyNames", clipText(k.Property, 64))
	case *kind.AnyOf:
		expected = "one of the alternatives"
		message = "fits none of the alternatives"
	case *kind.OneOf:
		expected = "exactly one of the alternatives"
		message = "fits none of the alternatives"
		if len(k.Subschemas) > 1 {
			message = fmt.Sprintf("fits more than one alternative, %d and %d", k.Subschemas[0], k.Subschemas[1])
		}
	case *kind.FalseSchema:
		code = "not_declared"
		expected = "nothing here"
		message = "must not be there"
	default:
		message = "breaks " + code
		expected = "a value that keeps " + code
	}
	return code, message, expected
}

func quoteAll(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i == 5 {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", n)
	}
	return b.String()
}

func clip(v *jsontext.Value) string { return clipText(string(v.AppendTo(nil)), 256) }

func clipText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func around(b []byte, at int) string {
	from, to := max(0, at-40), min(len(b), at+40)
	return strings.ToValidUTF8(string(b[from:to]), "\uFFFD")
}
