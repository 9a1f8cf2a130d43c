package grammar

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"pgregory.net/rapid"
)

var hermes = Syntax{
	Trigger: "<tool_call>",
	Begin: func(name string) string {
		return "<tool_call>\n{\"name\": " + string(jsontext.AppendString(nil, name)) + ", \"arguments\": "
	},
	End:       "}\n</tool_call>",
	Separator: "\n",
}

var xgrammar028 = Engine{"xgrammar", "0.2.8"}

// fataler is what testing.T and rapid.T share.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

func compileTest(t fataler, schema string, w World) *Checked {
	t.Helper()
	c, err := Judge(Tool{"t", json.RawMessage(schema)}, w)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return c
}

func TestCheck(t *testing.T) {
	const weather = `{"type":"object","properties":{"city":{"type":"string","maxLength":5},"days":{"type":"integer","minimum":1}},"required":["city"]}`
	for _, tt := range []struct {
		schema string
		world  World
		args   string
		typ    string // "" if it fits
		loc    string
	}{
		{weather, Closed, `{"city":"Paris"}`, "", ""},
		{weather, Closed, ` {"days": 2.0, "city":"é😀abc"} `, "", ""},
		{weather, Closed, `{"city":"Paris!"}`, "maxLength", "/city"},
		{weather, Closed, `{"city":"Paris","x":1}`, "additionalProperties", ""},
		{weather, Open, `{"city":"Paris","x":1}`, "", ""},
		{weather, Closed, `{"days":1}`, "required", ""},
		{weather, Closed, `{"city":"a","days":0}`, "minimum", "/days"},
		{weather, Closed, `{"city":"a","days":1.5}`, "type", "/days"},
		{weather, Closed, `{"city":"a","city":"b"}`, "duplicate_key", ""},
		{weather, Closed, `{"city":"a","\u0063ity":"b"}`, "duplicate_key", ""},
		{weather, Closed, `{"city":"a"} x`, "trailing_data", ""},
		{weather, Closed, `{"city":"a"`, "json_syntax", ""},
		{weather, Closed, "{\"city\":\"\xff\"}", "invalid_utf8", ""},
		{weather, Closed, "{\"city\":\"\xed\xa0\x80\"}", "invalid_utf8", ""},
		{weather, Closed, `["city"]`, "type", ""},
		{weather, Closed, ``, "json_syntax", ""},
		{`{"properties":{"n":{"type":"integer","maximum":9007199254740993}}}`, Closed, `{"n":9007199254740993}`, "", ""},
		{`{"properties":{"n":{"type":"integer","maximum":9007199254740993}}}`, Closed, `{"n":9007199254740994}`, "maximum", "/n"},
		{`{"properties":{"n":{"type":"number","maximum":1}}}`, Closed, `{"n":-1e999999999}`, "", ""},
		{`{"properties":{"n":{"type":"number","maximum":1}}}`, Closed, `{"n":1e999999999}`, "maximum", "/n"},
		{`{"properties":{"a":{"type":"array","items":{"type":"string"}}}}`, Closed, `{"a":["x",{"y":1}]}`, "type", "/a/1"},
		{``, Closed, `{}`, "", ""},
		{`null`, Closed, `{}`, "", ""},
		{`{}`, Closed, `{"a":1}`, "additionalProperties", ""},
		{`{"type":"object"}`, Closed, `{"a":1}`, "additionalProperties", ""},
		{`{"type":"object"}`, Open, `{"a":1}`, "", ""},
		{`{"type":"object","additionalProperties":true}`, Closed, `{"a":1}`, "", ""},
	} {
		c := compileTest(t, tt.schema, tt.world)
		err := c.Check([]byte(tt.args))
		var m *Misfit
		if tt.typ == "" {
			if err != nil {
				t.Errorf("%s: %s: %v", tt.schema, tt.args, err)
			}
		} else if !errors.As(err, &m) || m.ErrorType != tt.typ || m.Loc != tt.loc {
			t.Errorf("%s: %s: got %+v, want %s at %q", tt.schema, tt.args, err, tt.typ, tt.loc)
		}
	}
}

func TestStreamPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := jsonObject(t)
		var s Stream
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		if n, err := s.Feed(text[:cut]); err != nil || n != cut {
			t.Fatalf("prefix %q: %d, %v", text[:cut], n, err)
		}
		if _, err := s.Feed(text[cut:]); err != nil || !s.Done() || s.Partial() {
			t.Fatalf("%q: %v, done %v", text, err, s.Done())
		}
	})
}

// TestStreamMutations: what encoding/json rejects is rejected at or before the end.
func TestStreamMutations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := jsonObject(t)
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		text[at] = rapid.Byte().Draw(t, "byte")
		var s Stream
		n, err := s.Feed(text)
		object := json.Valid(text) && strings.HasPrefix(strings.TrimLeft(string(text), " \t\r\n"), "{")
		if got, want := err == nil && s.Done(), object && utf8.Valid(text); got != want {
			t.Fatalf("%q: stream %v (%v), encoding/json %v", text, got, err, want)
		}
		// The place where it stopped is the first that can't be completed.
		if err != nil && n < len(text) {
			var again Stream
			if _, err := again.Feed(text[:n]); err != nil {
				t.Fatalf("%q: stopped at %d, and before", text, n)
			}
		}
		var bytewise Stream
		for i := range text {
			if _, e := bytewise.Feed(text[i : i+1]); e != nil {
				if i != n {
					t.Fatalf("%q: stopped at %d bytewise, at %d in one piece", text, i, n)
				}
				break
			}
		}
	})
}

// jsonObject draws a JSON object with odd spacing and spelling.
func jsonObject(t *rapid.T) []byte {
	space := rapid.SampledFrom([]string{"", "", " ", "\n", "\t \r"})
	str := func() string {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "é", "😀", `\n`, `\u00e9`, `\ud83d\ude00`, `\"`, `\\`, " ", "/", `\/`, "\x7f"}), 0, 5).Draw(t, "str")
		return `"` + strings.Join(parts, "") + `"`
	}
	var gen func(depth int) string
	object := func(depth int) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range rapid.IntRange(0, 3).Draw(t, "members") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(space.Draw(t, "s") + str() + space.Draw(t, "s") + ":" + space.Draw(t, "s") + gen(depth-1) + space.Draw(t, "s"))
		}
		return b.String() + space.Draw(t, "s") + "}"
	}
	gen = func(depth int) string {
		k := rapid.IntRange(0, 6).Draw(t, "kind")
		if depth <= 0 {
			k = k % 4
		}
		switch k {
		case 0:
			return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")
		case 1:
			return rapid.SampledFrom([]string{"0", "-0", "1", "-12", "0.5", "10.25e+3", "1E-2", "1e5", "123456789012345678901234567890"}).Draw(t, "num")
		case 2, 3:
			return str()
		case 4:
			var b strings.Builder
			b.WriteByte('[')
			for i := range rapid.IntRange(0, 3).Draw(t, "items") {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(space.Draw(t, "s") + gen(depth-1) + space.Draw(t, "s"))
			}
			return b.String() + space.Draw(t, "s") + "]"
		}
		return object(depth)
	}
	return []byte(space.Draw(t, "s") + object(4) + space.Draw(t, "s"))
}

func FuzzCompile(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"string","pattern":"^a+$"},"b":{"enum":[1,"x"]}},"anyOf":[{"required":["a"]}]}`, `{"a":"aa"}`)
	f.Add(`{"$ref":"#/$defs/x","$defs":{"x":{"allOf":[{"$ref":"#"}]}}}`, `{}`)
	f.Add(`{"properties":{"n":{"type":"number","minimum":-1.5,"multipleOf":0.5,"maximum":3e2}},"additionalProperties":{"not":{}}}`, `{"n":1e5}`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"t":{"items":[{"type":"null"}],"minItems":1,"exclusiveMinimum":true}}}`, `{"t":[null]}`)
	f.Add(`{"patternProperties":{"^[a-c]$":{"oneOf":[{"type":"string"},{"maxLength":3}]}},"propertyNames":{"minLength":1},"minProperties":2}`, `{"a":"x"}`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		for _, w := range []World{Closed, Open} {
			c, err := Judge(Tool{"t", json.RawMessage(schema)}, w)
			if err != nil {
				continue
			}
			fits := c.Check([]byte(args)) == nil
			if fits && w == Closed {
				// What fits the closed world fits the open one.
				if o, err := Compile(Tool{"t", json.RawMessage(schema)}, Open); err != nil || o.Check([]byte(args)) != nil {
					t.Fatalf("%s: %s fits closed, not open", schema, args)
				}
			}
			checkDerivations(t, c, 3)
			checkTwin(t, c, 2)
		}
	})
}
