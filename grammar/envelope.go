package grammar

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Bounds on an envelope. It goes back into a model's context, so it is held to
// some 4 KB, a thousand tokens, whatever the arguments were: 8 errors of at
// most 64+16·68+128+192 bytes would be more, but only arguments made for the
// purpose reach every bound at once; maxEnvelope then drops errors from the
// end.
const (
	maxEnvelope       = 4096
	maxEnvelopeErrors = 8
	maxEnvelopePath   = 16  // levels of loc, the last ones
	maxEnvelopeText   = 64  // bytes of one key
	maxEnvelopeInput  = 128 // bytes of input_value
	maxEnvelopeDomain = 192 // bytes of expected_domain and message
)

// Envelope is Envelope of one misfit.
func (m *Misfit) Envelope(tool string) []byte { return Envelope(tool, m) }

// Envelope is the answer to a call whose arguments don't fit: compact JSON,
// the same for the same misfits, at most 4 KB.
//
//	{"status":"validation_error","tool_name":"fs_read_bytes","error_count":1,"errors":[
//	 {"loc":["max_bytes"],"input_value":2097152,"error_type":"less_than_equal",
//	  "message":"Input should be less than or equal to 1048576",
//	  "expected_domain":"integer in range [1, 1048576]"}]}
//
// loc is the path to the value, keys as strings and indexes as numbers; of a
// missing or undeclared key it ends with that key. input_value is the value as
// it was written, or a string with its beginning if that is long; null for a
// missing or undeclared key. error_type and message are worded as Pydantic words them,
// which models have seen most; keywords that Pydantic doesn't know keep their
// name in JSON Schema. error_count counts the errors left out, too.
func Envelope(tool string, misfits ...*Misfit) []byte {
	var errs []envelopeError
	count := 0
	for _, m := range misfits {
		n, es := m.errors(maxEnvelopeErrors - len(errs))
		count += n
		errs = append(errs, es...)
	}
	for {
		out := append([]byte(nil), `{"status":"validation_error","tool_name":`...)
		out = append(out, quoted(tool, maxEnvelopeInput)...)
		out = append(out, `,"error_count":`...)
		out = strconv.AppendInt(out, int64(count), 10)
		out = append(out, `,"errors":[`...)
		for i, e := range errs {
			if i > 0 {
				out = append(out, ',')
			}
			out = e.appendTo(out)
		}
		out = append(out, "]}"...)
		if len(out) <= maxEnvelope || len(errs) <= 1 {
			return out
		}
		errs = errs[:len(errs)-1]
	}
}

type envelopeError struct {
	path    []string // JSON texts
	input   string   // JSON text
	code    string
	message string
	domain  string
}

func (e *envelopeError) appendTo(out []byte) []byte {
	out = append(out, `{"loc":[`...)
	path := e.path
	if len(path) > maxEnvelopePath {
		path = append([]string{`"…"`}, path[len(path)-maxEnvelopePath:]...)
	}
	out = append(out, strings.Join(path, ",")...)
	out = append(out, `],"input_value":`...)
	out = append(out, e.input...)
	out = append(out, `,"error_type":`...)
	out = jsontext.AppendString(out, e.code)
	out = append(out, `,"message":`...)
	out = append(out, quoted(e.message, maxEnvelopeDomain)...)
	out = append(out, `,"expected_domain":`...)
	out = append(out, quoted(e.domain, maxEnvelopeDomain)...)
	return append(out, '}')
}

// errors gives the errors of a misfit, one for each key that is missing or too
// many; at most as many as asked for, and how many there are.
func (m *Misfit) errors(most int) (n int, errs []envelopeError) {
	path := m.path
	if path == nil && m.Loc != "" { // a misfit made by hand
		for _, tok := range strings.Split(m.Loc[1:], "/") {
			tok = strings.NewReplacer("~1", "/", "~0", "~").Replace(tok)
			path = append(path, quoted(tok, maxEnvelopeText))
		}
	}
	e := envelopeError{path: path, input: inputJSON(m.InputValue), code: m.ErrorType, message: m.Message, domain: m.Expected}
	if m.broken != nil {
		e.domain = domain(m.broken)
	}
	each := func(keys []string, code, message string, of func(key string) string) {
		n = len(keys)
		for _, key := range keys[:min(n, max(most, 0))] {
			k := e
			k.path = append(slices.Clip(path), quoted(key, maxEnvelopeText))
			k.code, k.message, k.domain, k.input = code, message, of(key), "null"
			errs = append(errs, k)
		}
	}
	missing := func(keys []string, message string) {
		each(keys, "missing", message, func(key string) string {
			if m.broken != nil && m.broken.Properties[key] != nil {
				return domain(m.broken.Properties[key])
			}
			return "any value"
		})
	}
	switch k := m.kind.(type) {
	case *kind.Required:
		missing(k.Missing, "Field required")
		return n, errs
	case *kind.DependentRequired:
		missing(k.Missing, "Field required beside "+strconv.Quote(clipText(k.Prop, maxEnvelopeText)))
		return n, errs
	case *kind.Dependency:
		missing(k.Missing, "Field required beside "+strconv.Quote(clipText(k.Prop, maxEnvelopeText)))
		return n, errs
	case *kind.AdditionalProperties:
		names := slices.Sorted(slices.Values(k.Properties))
		each(names, "extra_forbidden", "Extra inputs are not permitted", func(string) string { return declared(m.broken) })
		return n, errs
	case *kind.FalseSchema:
		e.code, e.message, e.domain = "extra_forbidden", "Extra inputs are not permitted", "nothing here"
	case *kind.Type:
		e.code, e.message = typeError(k.Want)
	case *kind.Enum:
		e.code, e.message = "enum", "Input should be "+anyOfText(k.Want)
	case *kind.Const:
		e.code, e.message = "literal_error", "Input should be "+jsonText(k.Want)
	case *kind.Minimum:
		e.code, e.message = "greater_than_equal", "Input should be greater than or equal to "+boundText(k.Want)
	case *kind.Maximum:
		e.code, e.message = "less_than_equal", "Input should be less than or equal to "+boundText(k.Want)
	case *kind.ExclusiveMinimum:
		e.code, e.message = "greater_than", "Input should be greater than "+boundText(k.Want)
	case *kind.ExclusiveMaximum:
		e.code, e.message = "less_than", "Input should be less than "+boundText(k.Want)
	case *kind.MultipleOf:
		e.code, e.message = "multiple_of", "Input should be a multiple of "+boundText(k.Want)
	case *kind.MinLength:
		e.code, e.message = "string_too_short", "String should have at least "+plural(k.Want, "character")+", not "+strconv.Itoa(k.Got)
	case *kind.MaxLength:
		e.code, e.message = "string_too_long", "String should have at most "+plural(k.Want, "character")+", not "+strconv.Itoa(k.Got)
	case *kind.Pattern:
		e.code, e.message = "string_pattern_mismatch", "String should match pattern '"+k.Want+"'"
	case *kind.MinItems:
		e.code, e.message = "too_short", "List should have at least "+plural(k.Want, "item")+", not "+strconv.Itoa(k.Got)
	case *kind.MaxItems:
		e.code, e.message = "too_long", "List should have at most "+plural(k.Want, "item")+", not "+strconv.Itoa(k.Got)
	case nil: // not JSON, or not looked at
		if e.code == "type" {
			e.code, e.message = "object_type", "Input should be an object"
		}
		if e.code == "too_long" || e.code == "too_deep" {
			e.code = "input_" + e.code
		}
	default:
		e.message = "Input " + e.message
	}
	return 1, []envelopeError{e}[:min(1, max(most, 0))]
}

var typeNames = map[string][2]string{
	"string": {"string_type", "a valid string"}, "integer": {"int_type", "a valid integer"}, "number": {"float_type", "a valid number"},
	"boolean": {"bool_type", "a valid boolean"}, "array": {"list_type", "a valid list"}, "object": {"object_type", "an object"}, "null": {"none_required", "null"},
}

func typeError(want []string) (code, message string) {
	var words []string
	code = "type"
	for _, w := range want {
		if t, ok := typeNames[w]; ok {
			words = append(words, t[1])
			if len(want) == 1 {
				code = t[0]
			}
		}
	}
	return code, "Input should be " + strings.Join(words, " or ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// quoted is s as a JSON string whose text has at most n bytes and, if it was
// cut, ends with an ellipsis.
func quoted(s string, n int) string {
	q := jsontext.AppendString(nil, clipText(s, n))
	for cut := n; len(q) > n+len(`"…"`); {
		cut = cut * 3 / 4
		q = jsontext.AppendString(nil, clipText(s, cut))
	}
	return string(q)
}

// inputJSON is a text as a JSON value: itself if it is one and short,
// otherwise a string with its beginning.
func inputJSON(s string) string {
	if s == "" {
		return "null"
	}
	if len(s) <= maxEnvelopeInput {
		var b bytes.Buffer
		if json.Compact(&b, []byte(s)) == nil {
			return b.String()
		}
	}
	return quoted(s, maxEnvelopeInput)
}

// find is the compiled schema at a place; nil if there is none.
func (c *Checked) find(location string) *jsonschema.Schema {
	w := worker{}
	seen := map[*jsonschema.Schema]bool{c.accept: true}
	queue := []*jsonschema.Schema{c.accept}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.Location == location {
			return s
		}
		w.each(s, func(sub *jsonschema.Schema, _ int) {
			if !seen[sub] {
				seen[sub] = true
				queue = append(queue, sub)
			}
		})
	}
	return nil
}

// declared names the keys that an object may have.
func declared(s *jsonschema.Schema) string {
	if s == nil || len(s.Properties) == 0 {
		return "no keys"
	}
	var names []string
	for name := range s.Properties {
		names = append(names, clipText(name, maxEnvelopeText))
	}
	slices.Sort(names)
	return "keys " + strings.Join(names, ", ")
}

// domain says in one line which values fit a schema, as far as one line can.
func domain(s *jsonschema.Schema) string { return clipText(domainOf(s, 3), maxEnvelopeDomain) }

func domainOf(s *jsonschema.Schema, depth int) string {
	for range 8 {
		if s.Ref == nil || s.Types != nil && !s.Types.IsEmpty() || s.Enum != nil || len(s.Properties) > 0 {
			break
		}
		s = s.Ref
	}
	switch {
	case s.Bool != nil && !*s.Bool:
		return "nothing here"
	case s.Const != nil:
		return jsonText(*s.Const)
	case s.Enum != nil:
		return "one of " + joinJSON(s.Enum.Values, ", ")
	}
	var types []string
	if s.Types != nil {
		types = s.Types.ToStrings()
	}
	if len(types) == 0 {
		switch {
		case len(s.Properties) > 0 || len(s.Required) > 0:
			types = []string{"object"}
		case depth > 0 && len(s.AnyOf)+len(s.OneOf) > 0:
			var alts []string
			for i, sub := range append(slices.Clip(s.AnyOf), s.OneOf...) {
				if i == 4 {
					alts = append(alts, "…")
					break
				}
				alts = append(alts, domainOf(sub, depth-1))
			}
			return strings.Join(alts, " or ")
		case depth > 0 && len(s.AllOf) == 1:
			return domainOf(s.AllOf[0], depth-1)
		case s.Pattern != nil || s.MinLength != nil || s.MaxLength != nil:
			types = []string{"string"}
		case s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil:
			types = []string{"number"}
		case s.MinItems != nil || s.MaxItems != nil || s.UniqueItems:
			types = []string{"array"}
		default:
			return "any value"
		}
	}
	for i, t := range types {
		switch t {
		case "integer", "number":
			types[i] += interval(s)
		case "string":
			types[i] += counted(s.MinLength, s.MaxLength, "character")
			if s.Pattern != nil {
				types[i] += " matching " + s.Pattern.String()
			}
		case "array":
			types[i] += counted(s.MinItems, s.MaxItems, "item")
			if s.UniqueItems {
				types[i] += ", all different"
			}
			item, ok := s.Items.(*jsonschema.Schema)
			if s.Items2020 != nil {
				item, ok = s.Items2020, true
			}
			if ok && depth > 0 {
				types[i] += ", each " + domainOf(item, depth-1)
			}
		case "object":
			types[i] += counted(s.MinProperties, s.MaxProperties, "key")
			if len(s.Required) > 0 {
				types[i] += " with " + strings.Join(s.Required, ", ")
			}
		}
	}
	return strings.Join(types, " or ")
}

func interval(s *jsonschema.Schema) string {
	low, high := s.Minimum, s.Maximum
	open, shut := "[", "]"
	if x := s.ExclusiveMinimum; x != nil && (low == nil || x.Cmp(low) >= 0) {
		low, open = x, "("
	}
	if x := s.ExclusiveMaximum; x != nil && (high == nil || x.Cmp(high) <= 0) {
		high, shut = x, ")"
	}
	text := ""
	switch {
	case low != nil && high != nil:
		text = " in range " + open + boundText(low) + ", " + boundText(high) + shut
	case low != nil && open == "(":
		text = " greater than " + boundText(low)
	case low != nil:
		text = " of at least " + boundText(low)
	case high != nil && shut == ")":
		text = " less than " + boundText(high)
	case high != nil:
		text = " of at most " + boundText(high)
	}
	if s.MultipleOf != nil {
		text += ", a multiple of " + boundText(s.MultipleOf)
	}
	return text
}

func counted(low, high *int, what string) string {
	switch {
	case low != nil && high != nil && *low == *high:
		return " of " + plural(*low, what)
	case low != nil && high != nil:
		return " of " + strconv.Itoa(*low) + " to " + plural(*high, what)
	case low != nil:
		return " of at least " + plural(*low, what)
	case high != nil:
		return " of at most " + plural(*high, what)
	}
	return ""
}

// boundText writes a bound as a schema would: exact, or with 17 digits where
// that would be longer than 40.
func boundText(r *big.Rat) string {
	if n, exact := r.FloatPrec(); exact && n <= 40 {
		if s := r.FloatString(n); len(s) <= 40 {
			return s
		}
	}
	return new(big.Float).SetPrec(64).SetRat(r).Text('g', 17)
}

func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "the listed value" // values come from JSON
	}
	return clipText(strings.TrimSuffix(b.String(), "\n"), maxEnvelopeText)
}

func joinJSON(values []any, sep string) string {
	var b strings.Builder
	for i, v := range values {
		if b.Len() > maxEnvelopeDomain {
			break
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(jsonText(v))
	}
	return b.String()
}

func anyOfText(values []any) string {
	if n := len(values); n > 1 && n <= 8 {
		return joinJSON(values[:n-1], ", ") + " or " + jsonText(values[n-1])
	}
	return joinJSON(values, ", ")
}
