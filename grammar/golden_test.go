package grammar

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var rewriteGolden = flag.Bool("golden", false, "rewrite the golden files of the tests that run")

// TestDialectsGolden: what is written in every notation, to be read in review.
func TestDialectsGolden(t *testing.T) {
	var got bytes.Buffer
	for _, tt := range []struct{ name, schema string }{
		{"now", ``},
		{"search", `{"type":"object","properties":{"query":{"type":"string","minLength":1,"maxLength":200},"limit":{"type":"integer","minimum":1,"maximum":50},"order":{"enum":["new","old"]},"price":{"type":"number","minimum":0.5}},"required":["query"]}`},
		{"place", `{"type":"object","properties":{"zip":{"type":"string","pattern":"^[0-9]{5}(-[0-9]{4})?$"},"email":{"type":"string","pattern":"^[^@]+@[^@]+$"},"day":{"type":"string","format":"date"}},"required":["zip","day"]}`},
		{"tree", `{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string","maxLength":40},"minItems":1,"maxItems":30},"children":{"type":"array","items":{"$ref":"#"}}},"required":["name"]}`},
		{"either", `{"type":"object","properties":{"by":{"anyOf":[{"type":"null"},{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]},{"const":{"all":[1,"é😀\n"]}}]}},"required":["by"]}`},
	} {
		c, err := Compile(Tool{tt.name, []byte(tt.schema)}, Closed)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range []Target{StructuralTag, LegacyTag, GBNF, Lark, Regex, JSONSchema} {
			fmt.Fprintf(&got, "== %s as %s\n", tt.name, target)
			var text string
			if target == StructuralTag {
				text = c.content.String()
			} else {
				choice := Choice{Mode: Named, Name: tt.name}
				if target == LegacyTag {
					choice = Choice{Mode: Auto}
				}
				w, err := Write(hermes, []*Checked{c}, choice, target)
				if err != nil {
					text = "refused: " + err.Error() + "\n"
				}
				text += w.Text
			}
			got.WriteString(text)
			if text == "" || text[len(text)-1] != '\n' {
				got.WriteByte('\n')
			}
		}
	}
	frames := func(choice Choice) {
		a, b := compileTest(t, ``, Closed), compileTest(t, ``, Closed)
		two := *b
		two.name = "u"
		for _, target := range []Target{GBNF, Lark, Regex} {
			w, err := Write(hermes, []*Checked{a, &two}, choice, target)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "== %s, parallel %v, as %s, lazy %v\n%s\n", choice.Mode, choice.Parallel, target, w.Lazy, w.Text)
		}
	}
	for _, choice := range []Choice{{Mode: Auto}, {Mode: Auto, Parallel: true}, {Mode: Required}, {Mode: Required, Parallel: true}, {Mode: None}} {
		frames(choice)
	}
	golden(t, "testdata/dialects.golden.txt", got.Bytes())
}

// golden compares a text with that of a file, line by line.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *rewriteGolden {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
		for i := range g {
			if i >= len(w) || !bytes.Equal(g[i], w[i]) {
				t.Fatalf("%s: line %d is\n%s\nand was\n%s\n(go test ./grammar -run '%s$' -golden rewrites it)", file, i+1, g[i], w[min(i, len(w)-1)], t.Name())
			}
		}
		t.Fatalf("%s: lines are missing", file)
	}
}
