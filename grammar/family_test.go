package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models/wire"
)

// TestFamilyGolden shows the tag of every family.
func TestFamilyGolden(t *testing.T) {
	schema := `{"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":0,"maximum":9}},"required":["city"]}`
	c, err := Compile(Tool{"get_weather", []byte(schema)}, Closed)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range wire.Names() {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, choice := range []Choice{{Mode: Auto, Parallel: true}, {Mode: Named, Name: "get_weather"}, {Mode: None}} {
			e, err := Tag(SyntaxOf(f), []*Checked{c}, choice, xgrammar028)
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, e.Format, "", " "); err != nil {
				t.Fatalf("%s: %v: %s", name, err, e.Format)
			}
			fmt.Fprintf(&b, "=== %s, %s, exact %v\n%s\n", name, choice.Mode, len(e.Tools) == 0 || e.Tools[0].Exact, pretty.String())
		}
	}
	golden(t, "testdata/families.golden.txt", []byte(b.String()))
}

// TestFamilyRefusals says that what a family's calls can't carry is refused by
// name, or left out where it is optional, and never written as something else.
func TestFamilyRefusals(t *testing.T) {
	object := func(properties, required string) string {
		return `{"type":"object","properties":{` + properties + `},"required":[` + required + `]}`
	}
	for _, tt := range []struct{ family, name, schema, want string }{
		{"hermes", `a"b>`, "{}", ""},
		{"llama3", "a\nb", "{}", ""},
		{"qwen3-coder", "a>b", "{}", `the name "a>b"`},
		{"glm-4.5", "x</arg_key>", "{}", `the name "x</arg_key>"`},
		{"deepseek-v3.1", "a\nb", "{}", `the name "a\nb"`},
		{"kimi-k2", "a:0", "{}", `the name "a:0"`},
		{"harmony", "a b", "{}", `the name "a b"`},
		{"mistral", "[ARGS]", "{}", `the name "[ARGS]"`},
		{"qwen3-coder", "f", object(`"a>b":{"type":"string"}`, `"a>b"`), `the name "a>b"`},
		{"qwen3-coder", "f", object(`"a>b":{"type":"string"},"c":{"type":"integer"}`, ""), ""},
		{"qwen3-coder", "f", object(`"a":{"enum":["</parameter>"]}`, `"a"`), "no value that could be written"},
		{"qwen3-coder", "f", object(`"a":{"enum":["</parameter>","b"]}`, `"a"`), ""},
		{"glm-4.5", "f", object(`"a":{"enum":["7",8]}`, `"a"`), ""},
		{"qwen3-coder", "f", `{"type":"object","minProperties":1,"additionalProperties":{"type":"string"}}`, "doesn't name"},
	} {
		f, err := wire.ByName(tt.family)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Compile(Tool{tt.name, []byte(tt.schema)}, Closed)
		if err != nil {
			t.Fatalf("%s: %v", tt.schema, err)
		}
		s := SyntaxOf(f)
		_, tagErr := Tag(s, []*Checked{c}, Choice{Mode: Auto}, xgrammar028)
		for _, err := range []error{s.Carries(c), tagErr} {
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, %q, %s: %v, want %q", tt.family, tt.name, tt.schema, err, tt.want)
			}
			var ne *wire.NameError
			if strings.HasPrefix(tt.want, "the name") && !errors.As(err, &ne) {
				t.Errorf("%s, %q: %T is no name error", tt.family, tt.name, err)
			}
		}
	}
}
