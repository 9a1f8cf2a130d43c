package grammar

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/accept"
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

// A wording is what the envelope says of a misfit: one error for each key that
// is missing or too many.
type wording struct {
	count int             // of errors
	errs  []envelopeError // the first maxEnvelopeErrors
}

// errors gives the errors of a misfit; at most as many as asked for, and how
// many there are.
func (m *Misfit) errors(most int) (n int, errs []envelopeError) {
	most = max(most, 0)
	if m.words != nil {
		return m.words.count, m.words.errs[:min(most, len(m.words.errs))]
	}
	path := m.path
	if path == nil && m.Loc != "" { // a misfit made by hand
		for _, tok := range strings.Split(m.Loc[1:], "/") {
			path = append(path, quoted(jsontext.UnescapePointer(tok), maxEnvelopeText))
		}
	}
	e := envelopeError{path: path, input: inputJSON(m.InputValue), code: m.ErrorType, message: m.Message, domain: m.Expected}
	switch e.code {
	case "type":
		e.code, e.message = "object_type", "Input should be an object"
	case "too_long", "too_deep":
		e.code = "input_" + e.code
	}
	return 1, []envelopeError{e}[:min(1, most)]
}

// wordingOf words what is wrong at a place as Pydantic does.
func wordingOf(m *Misfit, f *accept.Misfit) *wording {
	s := f.Schema
	e := envelopeError{path: m.path, input: inputJSON(m.InputValue), code: m.ErrorType, domain: domain(s)}
	each := func(keys []string, code, message string, of func(key string) string) *wording {
		w := &wording{count: len(keys)}
		for _, key := range keys[:min(len(keys), maxEnvelopeErrors)] {
			w.errs = append(w.errs, envelopeError{append(slices.Clip(m.path), quoted(key, maxEnvelopeText)), "null", code, message, of(key)})
		}
		return w
	}
	missing := func(keys []string, message string) *wording {
		return each(keys, "missing", message, func(key string) string {
			if s.Get("properties").Get(key) != nil {
				return domain(s.Child("properties", key))
			}
			return "any value"
		})
	}
	number := func() string { return boundText(numberAt(s, f.Keyword)) }
	counted := func(what string) string { return plural(numberAt(s, f.Keyword), what) }
	switch f.Keyword {
	case "required":
		return missing(f.Names, "Field required")
	case "dependentRequired", "dependencies":
		return missing(f.Names[1:], "Field required beside "+strconv.Quote(clipText(f.Names[0], maxEnvelopeText)))
	case "additionalProperties":
		return each(f.Names, "extra_forbidden", "Extra inputs are not permitted", func(string) string { return declared(s) })
	case "":
		e.code, e.message, e.domain = "extra_forbidden", "Extra inputs are not permitted", "nothing here"
	case "type":
		e.code, e.message = typeError(typeWords(s))
	case "enum":
		e.code, e.message = "enum", "Input should be "+anyOfText(s.Get("enum").Items())
	case "const":
		e.code, e.message = "literal_error", "Input should be "+jsonText(s.Get("const"))
	case "minimum", "exclusiveMinimum":
		e.code, e.message = "greater_than", "Input should be greater than "+number()
		if f.Keyword == "minimum" && !open(f) {
			e.code, e.message = "greater_than_equal", "Input should be greater than or equal to "+number()
		}
	case "maximum", "exclusiveMaximum":
		e.code, e.message = "less_than", "Input should be less than "+number()
		if f.Keyword == "maximum" && !open(f) {
			e.code, e.message = "less_than_equal", "Input should be less than or equal to "+number()
		}
	case "multipleOf":
		e.code, e.message = "multiple_of", "Input should be a multiple of "+number()
	case "minLength":
		e.code, e.message = "string_too_short", "String should have at least "+counted("character")+", not "+strconv.Itoa(utf8.RuneCountInString(f.Value.Str))
	case "maxLength":
		e.code, e.message = "string_too_long", "String should have at most "+counted("character")+", not "+strconv.Itoa(utf8.RuneCountInString(f.Value.Str))
	case "pattern":
		e.code, e.message = "string_pattern_mismatch", "String should match pattern '"+s.Get("pattern").Str+"'"
	case "minItems":
		e.code, e.message = "too_short", "List should have at least "+counted("item")+", not "+strconv.Itoa(len(f.Value.Elems))
	case "maxItems":
		e.code, e.message = "too_long", "List should have at most "+counted("item")+", not "+strconv.Itoa(len(f.Value.Elems))
	case "format", "contains", "maxContains", "minProperties", "maxProperties", "not":
		e.message, e.domain = "Input "+m.Message, m.Expected
	default:
		e.message = "Input " + m.Message
	}
	return &wording{1, []envelopeError{e}}
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

func plural(n *big.Rat, what string) string {
	if n.Cmp(big.NewRat(1, 1)) == 0 {
		return "1 " + what
	}
	return boundText(n) + " " + what + "s"
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

// declared names the keys that an object may have.
func declared(s accept.Subschema) string {
	var names []string
	for _, m := range s.Get("properties").List() {
		names = append(names, clipText(m.Key, maxEnvelopeText))
	}
	if len(names) == 0 {
		return "no keys"
	}
	slices.Sort(names)
	return "keys " + strings.Join(names, ", ")
}

// domain says in one line which values fit a schema, as far as one line can.
func domain(s accept.Subschema) string { return clipText(domainOf(s, 3), maxEnvelopeDomain) }

func domainOf(s accept.Subschema, depth int) string {
	has := func(keywords ...string) bool {
		return slices.ContainsFunc(keywords, func(k string) bool { return s.Get(k) != nil })
	}
	for range 8 {
		refs, only, err := s.References()
		if err != nil || len(refs) == 0 || !only && (has("type", "enum") || len(s.Get("properties").List()) > 0) {
			break
		}
		s = refs[0]
	}
	switch {
	case s.Value().IsFalse():
		return "nothing here"
	case has("const"):
		return jsonText(s.Get("const"))
	case has("enum"):
		return "one of " + joinJSON(s.Get("enum").Items(), ", ")
	}
	types := typeWords(s)
	if len(types) == 0 {
		switch {
		case len(s.Get("properties").List()) > 0 || has("required"):
			types = []string{"object"}
		case depth > 0 && has("anyOf", "oneOf"):
			var alts []string
			for _, name := range []string{"anyOf", "oneOf"} {
				for i := range s.Get(name).Items() {
					if len(alts) == 4 {
						return strings.Join(append(alts, "…"), " or ")
					}
					alts = append(alts, domainOf(s.Child(name, strconv.Itoa(i)), depth-1))
				}
			}
			return strings.Join(alts, " or ")
		case depth > 0 && len(s.Get("allOf").Items()) == 1:
			return domainOf(s.Child("allOf", "0"), depth-1)
		case has("pattern", "minLength", "maxLength"):
			types = []string{"string"}
		case has("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
			types = []string{"number"}
		case has("minItems", "maxItems") || s.Get("uniqueItems").IsTrue():
			types = []string{"array"}
		default:
			return "any value"
		}
	}
	types = slices.Clone(types)
	for i, t := range types {
		switch t {
		case "integer", "number":
			types[i] += interval(s)
		case "string":
			types[i] += counted(s, "minLength", "maxLength", "character")
			if has("pattern") {
				types[i] += " matching " + s.Get("pattern").Str
			}
			if has("format") {
				types[i] += " of format " + s.Get("format").Str
			}
		case "array":
			types[i] += counted(s, "minItems", "maxItems", "item")
			if s.Get("uniqueItems").IsTrue() {
				types[i] += ", all different"
			}
			if _, rest := s.Tuple(); rest == "items" && has("items") && depth > 0 {
				types[i] += ", each " + domainOf(s.Child("items"), depth-1)
			}
		case "object":
			types[i] += counted(s, "minProperties", "maxProperties", "key")
			var names []string
			for _, name := range s.Get("required").Items() {
				names = append(names, name.Str)
			}
			if len(names) > 0 {
				types[i] += " with " + strings.Join(names, ", ")
			}
		}
	}
	return strings.Join(types, " or ")
}

func interval(s accept.Subschema) string {
	number := func(keyword string) *big.Rat {
		r, _ := s.Get(keyword).Rat()
		return r
	}
	low, high := number("minimum"), number("maximum")
	left, right := "[", "]"
	if s.Draft() == accept.Draft04 {
		if s.Get("exclusiveMinimum").IsTrue() {
			left = "("
		}
		if s.Get("exclusiveMaximum").IsTrue() {
			right = ")"
		}
	}
	if x := number("exclusiveMinimum"); x != nil && (low == nil || x.Cmp(low) >= 0) {
		low, left = x, "("
	}
	if x := number("exclusiveMaximum"); x != nil && (high == nil || x.Cmp(high) <= 0) {
		high, right = x, ")"
	}
	text := ""
	switch {
	case low != nil && high != nil:
		text = " in range " + left + boundText(low) + ", " + boundText(high) + right
	case low != nil && left == "(":
		text = " greater than " + boundText(low)
	case low != nil:
		text = " of at least " + boundText(low)
	case high != nil && right == ")":
		text = " less than " + boundText(high)
	case high != nil:
		text = " of at most " + boundText(high)
	}
	if x := number("multipleOf"); x != nil {
		text += ", a multiple of " + boundText(x)
	}
	return text
}

func counted(s accept.Subschema, least, most, what string) string {
	low, hasLow := s.Get(least).Rat()
	high, hasHigh := s.Get(most).Rat()
	number := func(r *big.Rat) string { return plural(r, what) }
	switch {
	case hasLow && hasHigh && low.Cmp(high) == 0:
		return " of " + number(low)
	case hasLow && hasHigh:
		return " of " + boundText(low) + " to " + number(high)
	case hasLow:
		return " of at least " + number(low)
	case hasHigh:
		return " of at most " + number(high)
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

func jsonText(v *jsontext.Value) string {
	var b bytes.Buffer
	left := maxEnvelopeText
	if json.Compact(&b, beginning(v, &left, maxEnvelopeText).AppendTo(nil)) != nil {
		return "the listed value" // values come from JSON
	}
	return clipText(b.String(), maxEnvelopeText)
}

// beginning is as much of a value as a text of so many bytes can show of it: of
// each string text bytes.
func beginning(v *jsontext.Value, left *int, text int) *jsontext.Value {
	out := &jsontext.Value{Kind: v.Kind, Str: v.Str}
	if *left--; len(v.Str) > text && v.Kind == '"' {
		out.Str = clipText(v.Str, text)
	} else if len(v.Str) > text { // a number; whoever shows it cuts it again
		out.Str = v.Str[:text+1]
	}
	for _, e := range v.Elems {
		if *left <= 0 {
			break
		}
		out.Elems = append(out.Elems, beginning(e, left, text))
	}
	for _, m := range v.Members {
		if *left <= 0 {
			break
		}
		out.Members = append(out.Members, jsontext.Member{Key: clipText(m.Key, text), Val: beginning(m.Val, left, text)})
	}
	return out
}

func joinJSON(values []*jsontext.Value, sep string) string {
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

func anyOfText(values []*jsontext.Value) string {
	if n := len(values); n > 1 && n <= 8 {
		return joinJSON(values[:n-1], ", ") + " or " + jsonText(values[n-1])
	}
	return joinJSON(values, ", ")
}
