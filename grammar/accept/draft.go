package accept

import (
	"fmt"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A Draft is a version of JSON Schema.
type Draft uint8

// The drafts. OpenAPI31 is what OpenAPI 3.1 makes of Draft2020 for its
// component schemas: discriminator, xml, externalDocs and example say nothing
// about validity.
const (
	Default   Draft = 0 // as Draft2020
	Draft04   Draft = 1
	Draft06   Draft = 2
	Draft07   Draft = 4
	Draft2019 Draft = 8
	Draft2020 Draft = 16
	OpenAPI31 Draft = 32
)

func (d Draft) String() string {
	switch d {
	case Draft04:
		return "draft-04"
	case Draft06:
		return "draft-06"
	case Draft07:
		return "draft-07"
	case Draft2019:
		return "2019-09"
	case OpenAPI31:
		return "OpenAPI 3.1"
	}
	return "2020-12"
}

// draftOf finds the draft that a $schema names.
func draftOf(uri string) (Draft, bool) {
	u := strings.TrimSuffix(uri, "#")
	u = strings.TrimPrefix(strings.TrimPrefix(u, "http://"), "https://")
	switch u {
	case "json-schema.org/draft-04/schema":
		return Draft04, true
	case "json-schema.org/draft-06/schema":
		return Draft06, true
	case "json-schema.org/draft-07/schema":
		return Draft07, true
	case "json-schema.org/draft/2019-09/schema":
		return Draft2019, true
	case "json-schema.org/draft/2020-12/schema", "json-schema.org/schema":
		return Draft2020, true
	case "spec.openapis.org/oas/3.1/dialect/base":
		return OpenAPI31, true
	}
	return 0, false
}

// A vocabulary is a group of keywords that a metaschema can leave out.
type vocabulary uint8

const (
	vCore vocabulary = 1 << iota
	vApplicator
	vUnevaluated
	vValidation
	vMeta
	vFormat
	vContent
	allVocabularies = 1<<iota - 1
)

var vocabularyNames = map[string]vocabulary{
	"core": vCore, "applicator": vApplicator, "unevaluated": vUnevaluated, "validation": vValidation, "meta-data": vMeta,
	"format": vFormat, "format-annotation": vFormat, "format-assertion": vFormat, "content": vContent,
}

// A shape is what the value of a keyword must look like.
type shape uint8

const (
	anyShape shape = iota
	schemaShape
	schemasShape    // an array of one schema or more
	schemaMapShape  // an object of schemas
	patternMapShape // the same, with patterns as keys
	itemsShape      // a schema or as schemasShape
	boolOrSchema
	dependShape // an object of schemas or lists of strings
	countShape  // an integer ≥ 0
	numberShape
	positiveShape
	stringShape
	uriShape
	uriNoFragment
	anchorShape
	patternShape
	boolShape
	stringsShape  // an array of different strings
	stringsShape1 // the same, not empty
	stringsMap    // an object of stringsShape
	typeShape
	listShape
	enumShape // a list, not empty, of different values
	objectShape
)

// A keyword is a row of the table that the check of schemas and the
// metaschemas are made from.
type keyword struct {
	name  string
	in    Draft // drafts that know it
	vocab vocabulary
	shape shape
}

const (
	all    = Draft04 | from6
	from6  = Draft06 | from7
	from7  = Draft07 | from19
	from19 = Draft2019 | from20
	from20 = Draft2020 | OpenAPI31
	to7    = Draft04 | Draft06 | Draft07
	to19   = to7 | Draft2019
)

var keywords = []keyword{
	{"id", Draft04, vCore, stringShape},
	{"$id", Draft06 | Draft07, vCore, uriShape},
	{"$id", from19, vCore, uriNoFragment},
	{"$schema", all, vCore, stringShape},
	{"$ref", all, vCore, uriShape},
	{"$anchor", from19, vCore, anchorShape},
	{"$dynamicRef", from20, vCore, uriShape},
	{"$dynamicAnchor", from20, vCore, anchorShape},
	{"$recursiveRef", Draft2019, vCore, uriShape},
	{"$recursiveAnchor", Draft2019, vCore, boolShape},
	{"$vocabulary", from19, vCore, objectShape},
	{"$comment", from7, vCore, stringShape},
	{"$defs", from19, vCore, schemaMapShape},
	{"definitions", all, vCore, schemaMapShape},

	{"allOf", all, vApplicator, schemasShape},
	{"anyOf", all, vApplicator, schemasShape},
	{"oneOf", all, vApplicator, schemasShape},
	{"not", all, vApplicator, schemaShape},
	{"if", from7, vApplicator, schemaShape},
	{"then", from7, vApplicator, schemaShape},
	{"else", from7, vApplicator, schemaShape},
	{"dependentSchemas", from19, vApplicator, schemaMapShape},
	{"dependencies", all, vApplicator, dependShape},
	{"prefixItems", from20, vApplicator, schemasShape},
	{"items", to19, vApplicator, itemsShape},
	{"items", from20, vApplicator, schemaShape},
	{"additionalItems", Draft04, vApplicator, boolOrSchema},
	{"additionalItems", to19 &^ Draft04, vApplicator, schemaShape},
	{"contains", from6, vApplicator, schemaShape},
	{"properties", all, vApplicator, schemaMapShape},
	{"patternProperties", all, vApplicator, patternMapShape},
	{"additionalProperties", Draft04, vApplicator, boolOrSchema},
	{"additionalProperties", from6, vApplicator, schemaShape},
	{"propertyNames", from6, vApplicator, schemaShape},
	{"unevaluatedItems", from19, vUnevaluated, schemaShape},
	{"unevaluatedProperties", from19, vUnevaluated, schemaShape},

	{"type", all, vValidation, typeShape},
	{"const", from6, vValidation, anyShape},
	{"enum", Draft04 | Draft06, vValidation, enumShape},
	{"enum", from7, vValidation, listShape},
	{"multipleOf", all, vValidation, positiveShape},
	{"maximum", all, vValidation, numberShape},
	{"minimum", all, vValidation, numberShape},
	{"exclusiveMaximum", Draft04, vValidation, boolShape},
	{"exclusiveMinimum", Draft04, vValidation, boolShape},
	{"exclusiveMaximum", from6, vValidation, numberShape},
	{"exclusiveMinimum", from6, vValidation, numberShape},
	{"maxLength", all, vValidation, countShape},
	{"minLength", all, vValidation, countShape},
	{"pattern", all, vValidation, patternShape},
	{"maxItems", all, vValidation, countShape},
	{"minItems", all, vValidation, countShape},
	{"uniqueItems", all, vValidation, boolShape},
	{"maxContains", from19, vValidation, countShape},
	{"minContains", from19, vValidation, countShape},
	{"maxProperties", all, vValidation, countShape},
	{"minProperties", all, vValidation, countShape},
	{"required", Draft04, vValidation, stringsShape1},
	{"required", from6, vValidation, stringsShape},
	{"dependentRequired", from19, vValidation, stringsMap},

	{"title", all, vMeta, stringShape},
	{"description", all, vMeta, stringShape},
	{"default", all, vMeta, anyShape},
	{"deprecated", from19, vMeta, boolShape},
	{"readOnly", from7, vMeta, boolShape},
	{"writeOnly", from7, vMeta, boolShape},
	{"examples", from6, vMeta, listShape},
	{"format", all, vFormat, stringShape},
	{"contentEncoding", from7, vContent, stringShape},
	{"contentMediaType", from7, vContent, stringShape},
	{"contentSchema", from19, vContent, schemaShape},
}

var byName = func() map[string][]*keyword {
	m := map[string][]*keyword{}
	for i := range keywords {
		k := &keywords[i]
		m[k.name] = append(m[k.name], k)
	}
	return m
}()

// lookup finds a keyword of a draft; nil if the draft doesn't know it.
func lookup(name string, d Draft) *keyword {
	for _, k := range byName[name] {
		if k.in&d != 0 {
			return k
		}
	}
	return nil
}

// misshapen says what is wrong with the value of a keyword; "" if nothing.
// Schemas within it are looked at by the caller.
func (s shape) misshapen(v *jsontext.Value, d Draft) string {
	ok, want := true, ""
	switch s {
	case schemaShape, boolOrSchema:
		ok, want = v.Kind == '{' || (v.Kind == 't' || v.Kind == 'f') && (d > Draft04 || s == boolOrSchema), "a schema"
	case schemasShape:
		ok, want = v.Kind == '[' && len(v.Elems) > 0, "an array of schemas, not empty"
	case itemsShape:
		ok, want = v.IsSchema() && (d > Draft04 || v.Kind == '{') || v.Kind == '[' && len(v.Elems) > 0, "a schema or an array of them"
	case schemaMapShape, patternMapShape, dependShape, stringsMap, objectShape:
		ok, want = v.Kind == '{', "an object"
	case countShape:
		ok, want = isCount(v), "an integer that isn't negative"
	case numberShape:
		ok, want = v.Kind == '0', "a number"
	case positiveShape:
		r, isNumber := v.Rat()
		ok, want = isNumber && r.Sign() > 0, "a number above 0"
	case stringShape, patternShape:
		ok, want = v.Kind == '"', "a string"
	case uriShape:
		ok, want = v.Kind == '"', "a URI reference"
	case uriNoFragment:
		ok, want = v.Kind == '"' && strings.IndexByte(strings.TrimSuffix(v.Str, "#"), '#') < 0, "a URI reference without fragment"
	case anchorShape:
		ok, want = v.Kind == '"' && isAnchor(v.Str), "a plain name"
	case boolShape:
		ok, want = v.Kind == 't' || v.Kind == 'f', "true or false"
	case stringsShape, stringsShape1:
		ok, want = areStrings(v), "an array of different strings"
		if s == stringsShape1 && len(v.Elems) == 0 {
			ok, want = false, "an array of different strings, not empty"
		}
	case typeShape:
		ok, want = areTypes(v), "a type or an array of different types"
	case listShape, enumShape:
		ok, want = v.Kind == '[', "an array"
		if s == enumShape && len(v.Elems) == 0 {
			ok, want = false, "an array that isn't empty"
		}
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s where %s should be", kindName(v), want)
}

func kindName(v *jsontext.Value) string {
	switch v.Kind {
	case '{':
		return "an object"
	case '[':
		if len(v.Elems) == 0 {
			return "an empty array"
		}
		return "an array"
	case '"':
		return fmt.Sprintf("%.40q", v.Str)
	case '0':
		return fmt.Sprintf("%.40s", v.Str)
	case 't':
		return "true"
	case 'f':
		return "false"
	}
	return "null"
}

func isCount(v *jsontext.Value) bool {
	r, ok := v.Rat()
	return ok && r.IsInt() && r.Sign() >= 0
}

// count is the value of a keyword of countShape. What is beyond any text is
// brought down to maxCount.
func count(v *jsontext.Value) uint64 {
	if r, ok := v.Rat(); ok && r.Num().IsInt64() {
		return min(r.Num().Uint64(), maxCount)
	}
	return maxCount
}

// maxCount is more items, members or characters than a text can have.
const maxCount = 1 << 40

func isAnchor(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c != '-' && c != '.' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != ""
}

func areStrings(v *jsontext.Value) bool {
	if v.Kind != '[' {
		return false
	}
	seen := make(map[string]bool, len(v.Elems))
	for _, e := range v.Elems {
		if e.Kind != '"' || seen[e.Str] {
			return false
		}
		seen[e.Str] = true
	}
	return true
}

var typeNames = map[string]types{
	"null": tNull, "boolean": tBool, "number": tNumber, "integer": tNumber, "string": tString, "array": tArray, "object": tObject,
}

func areTypes(v *jsontext.Value) bool {
	if v.Kind == '"' {
		return typeNames[v.Str] != 0
	}
	if !areStrings(v) || len(v.Elems) == 0 {
		return false
	}
	for _, e := range v.Elems {
		if typeNames[e.Str] == 0 {
			return false
		}
	}
	return true
}
