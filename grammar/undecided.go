package grammar

import (
	"strconv"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Undecided names what the schema says and Check doesn't judge: keywords that
// are annotations in the standard, though people often mean them. Each entry
// is a place and a reason, in the order of the text.
func (c *Checked) Undecided() []string { return Undecided([]byte(c.raw)) }

// Undecided is the same of a schema; nothing if that is not JSON.
func Undecided(schema []byte) []string {
	root, err := jsontext.Parse(schema, maxJSONDepth)
	if err != nil {
		return nil
	}
	var out []string
	var walk func(v *jsontext.Value, loc string)
	walk = func(v *jsontext.Value, loc string) {
		for _, key := range []string{"format", "contentEncoding", "contentMediaType", "contentSchema"} {
			if a := v.Get(key); a != nil {
				what := ""
				if a.Kind == '"' {
					what = " " + strconv.Quote(clipText(a.Str, 64))
				}
				out = append(out, loc+"/"+key+":"+what+" is an annotation and not judged")
			}
		}
		eachSubschema(v, func(at string, sub *jsontext.Value) { walk(sub, loc+at) })
	}
	walk(root, "#")
	return out
}
