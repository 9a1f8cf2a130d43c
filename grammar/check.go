package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
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
	if len(arguments) > maxArgumentBytes {
		return &Misfit{ErrorType: "too_long", Message: "arguments longer than 16 MiB", Offset: -1}
	}
	v, err := parseJSON(arguments, min(len(c.work)-1, maxJSONDepth))
	if err != nil {
		e := err.(*jsonError)
		return &Misfit{InputValue: around(arguments, e.offset), ErrorType: e.code, Message: e.Error(), Expected: "one JSON object", Offset: e.offset}
	}
	if v.kind != '{' {
		return &Misfit{InputValue: clip(v), ErrorType: "type", Message: "the arguments are not an object", Expected: "object", Offset: -1}
	}
	if n, d := v.size(); n > maxWork/c.work[d] {
		return &Misfit{ErrorType: "too_long", Message: "too many values for this schema to be checked", Offset: -1}
	}
	err = c.accept.Validate(v.plain())
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return &Misfit{ErrorType: "schema", Message: err.Error(), Offset: -1}
	}
	return misfitOf(v, ve)
}

// size gives the number of values in v and how deep they are nested.
func (v *value) size() (n, depth int) {
	n = 1
	for _, e := range v.elems {
		k, d := e.size()
		n, depth = n+k, max(depth, d+1)
	}
	for _, m := range v.members {
		k, d := m.val.size()
		n, depth = n+k, max(depth, d+1)
	}
	return n, depth
}

// misfitOf picks the cause to tell: the deepest place in the arguments, and
// among branches of equal depth the first.
func misfitOf(root *value, ve *jsonschema.ValidationError) *Misfit {
	leaf := ve
	best := -1
	var walk func(e *jsonschema.ValidationError, typeMiss bool)
	walk = func(e *jsonschema.ValidationError, branch bool) {
		_, any := e.ErrorKind.(*kind.AnyOf)
		_, one := e.ErrorKind.(*kind.OneOf)
		if len(e.Causes) == 0 || one && len(e.Causes) == 0 {
			score := 2 * len(e.InstanceLocation)
			if _, isType := e.ErrorKind.(*kind.Type); !isType || !branch {
				score++
			}
			if score > best {
				best, leaf = score, e
			}
			return
		}
		for _, cause := range e.Causes {
			walk(cause, any || one || branch)
		}
	}
	walk(ve, false)
	m := &Misfit{Offset: -1}
	at := root
	for _, tok := range leaf.InstanceLocation {
		m.Loc += "/" + escapePointer(tok)
		switch {
		case at == nil:
		case at.kind == '{':
			at = at.get(tok)
		case at.kind == '[':
			i := 0
			if _, err := fmt.Sscanf(tok, "%d", &i); err == nil && i < len(at.elems) {
				at = at.elems[i]
			}
		}
	}
	if at != nil {
		m.InputValue = clip(at)
	}
	m.ErrorType, m.Message, m.Expected = explain(leaf.ErrorKind)
	return m
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
		expected = "at least " + k.Want.RatString()
		message = "is below " + k.Want.RatString()
	case *kind.Maximum:
		expected = "at most " + k.Want.RatString()
		message = "is above " + k.Want.RatString()
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

func clip(v *value) string { return clipText(string(v.appendTo(nil)), 256) }

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
