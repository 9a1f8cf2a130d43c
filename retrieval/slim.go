package retrieval

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// A schema is slimmed for the prompt alone: what a call must look like is held
// by the constraint, which is made of the whole schema. What is left out:
//
//   - sentences of a description that several tools share, and those behind the
//     first, if the tool's own text goes on beyond slimText bytes
//   - of a parameter's description what follows the first sentence, slimParameter
//     bytes or an example
//   - the keywords in slimKeys, and values of an enum behind the slimEnum-th
const (
	slimText      = 160 // bytes
	slimParameter = 80  // bytes
	slimEnum      = 8   // values
)

// slimKeys are keywords that explain rather than say what may be sent.
var slimKeys = map[string]bool{
	`"title"`: true, `"examples"`: true, `"example"`: true, `"default"`: true, `"$schema"`: true, `"$id"`: true, `"$comment"`: true, `"deprecated"`: true,
}

// Slim returns a tool's canonical bytes made shorter for the prompt, its name and
// the names, types and requirements of its parameters kept. Where nothing can be
// left out, it returns Raw.
func (ix *Index) Slim(tool int) json.RawMessage {
	t := &ix.tools[tool]
	var shape struct {
		Function struct {
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if json.Unmarshal(t.Raw, &shape) != nil {
		return t.Raw
	}
	out := []byte(`{"type":"function","function":{"name":`)
	out = appendString(out, t.Name)
	if about := ix.slimDescription(t.Description); about != "" {
		out = append(out, `,"description":`...)
		out = appendString(out, about)
	}
	if p := shape.Function.Parameters; len(p) > 0 {
		out = append(out, `,"parameters":`...)
		c := slimmer{walker: walker{raw: p, out: out}}
		c.value(false)
		out = c.out
	}
	out = append(out, "}}"...)
	if len(out) >= len(t.Raw) {
		return t.Raw
	}
	return out
}

// slimDescription is a tool's description without sentences that others have too.
func (ix *Index) slimDescription(text string) string {
	var kept strings.Builder
	first := ""
	for rest := text; rest != ""; {
		var s string
		if s, rest = sentence(rest); s == "" {
			continue
		}
		if first == "" {
			first = s
		}
		if ix.repeated[s] {
			continue
		}
		if kept.Len() > 0 {
			if kept.Len()+len(s) >= slimText {
				break
			}
			kept.WriteByte(' ')
		}
		kept.WriteString(s)
	}
	if kept.Len() == 0 { // all of it is shared
		return cutText(first, slimText)
	}
	return cutText(kept.String(), slimText)
}

// cutText cuts a text at a space so that it has at most `most` bytes.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	most -= len("…")
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	s = s[:most]
	if at := strings.LastIndexByte(s, ' '); at > most/2 {
		s = s[:at]
	}
	return s + "…"
}

// slimSentence is the first sentence of a parameter's description, up to an
// example.
func slimSentence(s string) string {
	first, _ := sentence(s)
	for _, mark := range [...]string{"e.g.", "E.g.", "for example", "For example", "such as", "Example:", "example:", "Examples:"} {
		if at := strings.Index(first, mark); at > 0 {
			first = strings.TrimRight(first[:at], " ,;:([")
		}
	}
	return cutText(first, slimParameter)
}

// slimmer copies a schema without what [Index.Slim] leaves out.
type slimmer struct{ walker }

// value copies one value; named says that the keys of an object are names of
// properties or definitions rather than keywords.
func (c *slimmer) value(named bool) {
	switch c.space() {
	case '{':
		c.pos++
		c.out = append(c.out, '{')
		comma := false
		for c.space() != '}' {
			key := c.token()
			k := string(key)
			c.space()
			if !named && slimKeys[k] {
				c.skip()
				continue
			}
			if comma {
				c.out = append(c.out, ',')
			}
			comma = true
			c.out = append(append(c.out, key...), ':')
			switch {
			case named:
				c.value(false)
			case k == `"description"` && c.space() == '"':
				var s string
				if json.Unmarshal(c.token(), &s) == nil {
					c.out = appendString(c.out, slimSentence(s))
				} else {
					c.out = append(c.out, `""`...)
				}
			case k == `"enum"` && c.space() == '[':
				c.enum()
			case k == `"properties"` || k == `"$defs"` || k == `"definitions"` || k == `"patternProperties"` || k == `"dependentSchemas"`:
				c.value(true)
			case k == `"const"` || k == `"required"`:
				c.copy()
			default:
				c.value(false)
			}
		}
		c.pos++
		c.out = append(c.out, '}')
	case '[':
		c.pos++
		c.out = append(c.out, '[')
		for first := true; c.space() != ']'; first = false {
			if !first {
				c.out = append(c.out, ',')
			}
			c.value(false)
		}
		c.pos++
		c.out = append(c.out, ']')
	default:
		c.out = append(c.out, c.token()...)
	}
}

// enum copies the first values of a list.
func (c *slimmer) enum() {
	c.pos++
	c.out = append(c.out, '[')
	for n := 0; c.space() != ']'; n++ {
		switch {
		case n < slimEnum:
			if n > 0 {
				c.out = append(c.out, ',')
			}
			c.copy()
		case n == slimEnum:
			c.out = append(c.out, `,"…"`...)
			c.skip()
		default:
			c.skip()
		}
	}
	c.pos++
	c.out = append(c.out, ']')
}

// copy copies one value as it is.
func (c *slimmer) copy() {
	c.space()
	start := c.pos
	c.skip()
	c.out = append(c.out, c.raw[start:c.pos]...)
}

// appendString appends a JSON string without HTML escapes.
func appendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return append(dst, `""`...) // a string is always encoded
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
