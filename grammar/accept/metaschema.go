package accept

import (
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// metaschema gives the schema of a draft's schemas, written from the table of
// keywords, for references to it. It means what the published one means; its
// inner layout is its own, but for the definitions of drafts 04 to 07.
func metaschema(uri string) ([]byte, bool) {
	metaschemas.Lock()
	defer metaschemas.Unlock()
	if b, ok := metaschemas.texts[uri]; ok {
		return b, true
	}
	b := writeMetaschema(uri)
	if b == nil {
		return nil, false
	}
	metaschemas.texts[uri] = b
	return b, true
}

// metaschemas are kept once written: at most one of each URI that
// writeMetaschema knows.
var metaschemas = struct {
	sync.Mutex
	texts map[string][]byte
}{texts: map[string][]byte{}}

func writeMetaschema(uri string) []byte {
	if d, ok := draftOf(uri); ok && d != OpenAPI31 && !strings.HasSuffix(uri, "json-schema.org/schema") {
		return metaschemaOf(uri, d, allVocabularies)
	}
	for _, g := range []struct {
		prefix string
		draft  Draft
	}{{"https://json-schema.org/draft/2019-09/meta/", Draft2019}, {"https://json-schema.org/draft/2020-12/meta/", Draft2020}} {
		if name, ok := strings.CutPrefix(uri, g.prefix); ok && vocabularyNames[name] != 0 {
			bit := vocabularyNames[name]
			if g.draft == Draft2019 {
				if bit == vUnevaluated {
					return nil
				}
				if bit == vApplicator {
					bit |= vUnevaluated
				}
			}
			return metaschemaOf(uri, g.draft, bit)
		}
	}
	return nil
}

func metaschemaOf(uri string, d Draft, vocab vocabulary) []byte {
	self := `{"$ref":"#"}`
	out := []byte(`{"$schema":`)
	head := func(schema, id string) {
		out = jsontext.AppendString(out, schema)
		out = append(out, `,"`+id+`":`...)
	}
	switch d {
	case Draft04:
		head(uri+"#", "id")
	case Draft06, Draft07:
		head(uri+"#", "$id")
	case Draft2019:
		self = `{"$recursiveRef":"#"}`
		head("https://json-schema.org/draft/2019-09/schema", "$id")
	default:
		self = `{"$dynamicRef":"#meta"}`
		head("https://json-schema.org/draft/2020-12/schema", "$id")
	}
	if d <= Draft07 {
		uri += "#"
	}
	out = jsontext.AppendString(out, uri)
	switch d {
	case Draft2019:
		out = append(out, `,"$recursiveAnchor":true`...)
	case Draft2020:
		out = append(out, `,"$dynamicAnchor":"meta"`...)
	}
	defs := map[string]shape{"schemaArray": schemasShape, "stringArray": stringsShape}
	if d == Draft04 {
		defs["positiveInteger"], defs["positiveIntegerDefault0"], defs["stringArray"] = countShape, countShape, stringsShape1
		out = append(out, `,"type":"object","dependencies":{"exclusiveMaximum":["maximum"],"exclusiveMinimum":["minimum"]}`...)
	} else {
		defs["nonNegativeInteger"], defs["nonNegativeIntegerDefault0"] = countShape, countShape
		out = append(out, `,"type":["object","boolean"]`...)
	}
	name := "$defs"
	if d <= Draft07 {
		name = "definitions"
	}
	out = append(out, `,"`+name+`":{"simpleTypes":{"enum":["array","boolean","integer","null","number","object","string"]}`...)
	for _, n := range []string{"schemaArray", "stringArray", "positiveInteger", "positiveIntegerDefault0", "nonNegativeInteger", "nonNegativeIntegerDefault0"} {
		if s, ok := defs[n]; ok {
			out = append(out, `,"`+n+`":`+s.schema(self, d)...)
		}
	}
	out = append(out, `},"properties":{`...)
	first := true
	for i := range keywords {
		k := &keywords[i]
		if k.in&d == 0 || k.vocab&vocab == 0 {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = jsontext.AppendString(out, k.name)
		out = append(out, ':')
		out = append(out, k.shape.schema(self, d)...)
	}
	return append(out, "}}"...)
}

// schema is the shape as a schema, in which self is any schema.
func (s shape) schema(self string, d Draft) string {
	array := `{"type":"array","minItems":1,"items":` + self + `}`
	strs := `{"type":"array","items":{"type":"string"},"uniqueItems":true}`
	switch s {
	case schemaShape:
		return self
	case schemasShape:
		return array
	case schemaMapShape:
		return `{"type":"object","additionalProperties":` + self + `}`
	case patternMapShape:
		if d == Draft04 {
			return `{"type":"object","additionalProperties":` + self + `}`
		}
		return `{"type":"object","additionalProperties":` + self + `,"propertyNames":{"format":"regex"}}`
	case itemsShape:
		return `{"anyOf":[` + self + `,` + array + `]}`
	case boolOrSchema:
		return `{"anyOf":[{"type":"boolean"},` + self + `]}`
	case dependShape:
		return `{"type":"object","additionalProperties":{"anyOf":[` + self + `,` + strs + `]}}`
	case countShape:
		return `{"type":"integer","minimum":0}`
	case numberShape:
		return `{"type":"number"}`
	case positiveShape:
		if d == Draft04 {
			return `{"type":"number","minimum":0,"exclusiveMinimum":true}`
		}
		return `{"type":"number","exclusiveMinimum":0}`
	case stringShape:
		return `{"type":"string"}`
	case uriShape:
		return `{"type":"string","format":"uri-reference"}`
	case uriNoFragment:
		return `{"type":"string","format":"uri-reference","pattern":"^[^#]*#?$"}`
	case anchorShape:
		return `{"type":"string","pattern":"^[A-Za-z_][-A-Za-z0-9._]*$"}`
	case patternShape:
		return `{"type":"string","format":"regex"}`
	case boolShape:
		return `{"type":"boolean"}`
	case stringsShape:
		return strs
	case stringsShape1:
		return strings.TrimSuffix(strs, "}") + `,"minItems":1}`
	case stringsMap:
		return `{"type":"object","additionalProperties":` + strs + `}`
	case typeShape:
		types := `{"enum":["array","boolean","integer","null","number","object","string"]}`
		return `{"anyOf":[` + types + `,{"type":"array","minItems":1,"uniqueItems":true,"items":` + types + `}]}`
	case listShape:
		return `{"type":"array"}`
	case enumShape:
		return `{"type":"array","minItems":1,"uniqueItems":true}`
	case objectShape:
		return `{"type":"object"}`
	}
	if d == Draft04 {
		return `{}`
	}
	return `true`
}
