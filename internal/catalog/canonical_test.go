package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCanonical(t *testing.T) {
	for _, x := range []struct{ name, raw, want string }{
		{"openai", `{ "type" : "function", "function" : { "parameters" : {"type":"object","properties":{"b":{"type":"integer","maximum":1e3,"minimum":-0.50},"a":{}}}, "name":"n-1_A", "description":"d", "strict":true } }`,
			`{"type":"function","function":{"name":"n-1_A","description":"d","parameters":{"type":"object","properties":{"b":{"type":"integer","maximum":1e3,"minimum":-0.50},"a":{}}}}}`},
		{"bare", `{"name":"n","parameters":{}}`, `{"type":"function","function":{"name":"n","description":"","parameters":{}}}`},
		{"no parameters", `{"function":{"name":"n","description":null}}`, `{"type":"function","function":{"name":"n","description":"","parameters":{"type":"object","properties":{}}}}`},
		{"null parameters", `{"name":"n","parameters":null}`, `{"type":"function","function":{"name":"n","description":"","parameters":{"type":"object","properties":{}}}}`},
		{"mcp", `{"name":"n","title":"T","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, `{"type":"function","function":{"name":"n","description":"d","parameters":{"type":"object"}}}`},
		{"responses form", `{"type":"function","name":"n","parameters":{"type":"object"}}`, `{"type":"function","function":{"name":"n","description":"","parameters":{"type":"object"}}}`},
		{"shortest strings", `{"name":"n","description":"\u00e9\/\u003c\"\\\n","parameters":{"k\u0065y":"\ud83d\ude42"}}`, `{"type":"function","function":{"name":"n","description":"é/<\"\\\n","parameters":{"key":"🙂"}}}`},
		{"lone surrogate stays as written", `{"name":"n","parameters":{"x":"\ud800"}}`, `{"type":"function","function":{"name":"n","description":"","parameters":{"x":"\ud800"}}}`},
		{"large number", `{"name":"n","parameters":{"maximum":9007199254740993123456789}}`, `{"type":"function","function":{"name":"n","description":"","parameters":{"maximum":9007199254740993123456789}}}`},
	} {
		tool, err := Canonical([]byte(x.raw), DefaultLimits)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if string(tool.Raw) != x.want {
			t.Errorf("%s: %s; want %s", x.name, tool.Raw, x.want)
		}
		if !bytes.Contains(tool.Raw, append([]byte(`"parameters":`), tool.Schema...)) {
			t.Errorf("%s: schema %s is not the one in %s", x.name, tool.Schema, tool.Raw)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 80) + "1" + strings.Repeat("}", 80)
	for _, x := range []struct{ name, raw, want string }{
		{"text", `"x"`, "not an object"},
		{"truncated", "{\"name\":\n \"n\"", "line 2, column 4: unexpected end of JSON input"},
		{"syntax", `{"name":"n",}`, "line 1, column 13: invalid character '}' looking for beginning of object key string"},
		{"no name", `{"description":"d"}`, "no name"},
		{"name is a number", `{"name":1}`, "no name"},
		{"empty name", `{"name":""}`, "empty name"},
		{"space in the name", `{"name":"a b"}`, `name with ' '; letters, digits, _ and - are allowed`},
		{"dot in the name", `{"name":"a.b"}`, `name with '.'; letters, digits, _ and - are allowed`},
		{"long name", `{"name":"` + strings.Repeat("n", 65) + `"}`, "name of 65 characters; at most 64"},
		{"description is a list", `{"name":"n","description":[]}`, "description is not a string"},
		{"long description", `{"name":"n","description":"` + strings.Repeat("d", 70_000) + `"}`, "description of 70000 bytes; at most 65536"},
		{"10 MB", `{"name":"n","description":"` + strings.Repeat("d", 10_000_000) + `"}`, "10000029 bytes; a tool may have 262144"},
		{"parameters are a list", `{"name":"n","parameters":[]}`, "parameters are not an object"},
		{"function is text", `{"type":"function","function":"f"}`, "function is not an object"},
		{"type is a number", `{"type":7,"function":{"name":"n"}}`, "type is not a string"},
		{"deep", `{"name":"n","parameters":` + deep + `}`, "nested deeper than 64 levels"},
		{"key twice", `{"name":"n","parameters":{"a":1,"\u0061":2}}`, `key "a" twice in one object`},
		{"name twice", `{"name":"n","name":"m"}`, `key "name" twice in one object`},
		{"control character", `{"name":"n","description":"a\u001b[2J"}`, "control character U+001B in a string"},
		{"control character in a schema", `{"name":"n","parameters":{"description":"\u0000"}}`, "control character U+0000 in a string"},
		{"C1 control character", "{\"name\":\"n\",\"description\":\"\u0085\"}", "control character U+0085 in a string"},
		{"not UTF-8", "{\"name\":\"n\",\"description\":\"\xff\"}", "not valid UTF-8"},
	} {
		_, err := Canonical([]byte(x.raw), DefaultLimits)
		if err == nil || err.Error() != x.want {
			t.Errorf("%s: %v; want %s", x.name, err, x.want)
		}
	}
	var kind *TypeError
	if _, err := Canonical([]byte(`{"type":"web_search"}`), DefaultLimits); !errors.As(err, &kind) || kind.Type != "web_search" {
		t.Errorf("web_search: %v", err)
	}
}

// What is canonical stays as it is, and means what was read.
func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"type":"function","function":{"name":"n","description":"d\u00e9","parameters":{"a":[1.0,{"b":null}]}}}`))
	f.Add([]byte(`{"name":"n","inputSchema":{"x":"\ud800","y":"\"\\"}}`))
	f.Add([]byte(`{"name":"n","parameters":{"a":{"b":[[],{}]}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tool, err := Canonical(raw, DefaultLimits)
		if err != nil {
			return
		}
		if !json.Valid(tool.Raw) || !utf8.Valid(tool.Raw) {
			t.Fatalf("%q is not JSON", tool.Raw)
		}
		again, err := Canonical(tool.Raw, DefaultLimits)
		if err != nil || !bytes.Equal(again.Raw, tool.Raw) || again.Name != tool.Name || again.Description != tool.Description {
			t.Fatalf("%s again: %s, %v", tool.Raw, again.Raw, err)
		}
		want := decoded(t, raw)
		if f, ok := want["function"].(map[string]any); ok {
			want = f
		}
		got := decoded(t, tool.Raw)["function"].(map[string]any)
		params := any(map[string]any{"type": "object", "properties": map[string]any{}})
		for _, key := range []string{"parameters", "inputSchema", "input_schema"} {
			if p, ok := want[key].(map[string]any); ok {
				params = p
				if reflect.DeepEqual(got["parameters"], params) {
					break
				}
			}
		}
		about, _ := want["description"].(string)
		if !reflect.DeepEqual(got, map[string]any{"name": want["name"], "description": about, "parameters": params}) {
			t.Fatalf("%s became %s", raw, tool.Raw)
		}
	})
}

func decoded(t *testing.T, raw []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}
