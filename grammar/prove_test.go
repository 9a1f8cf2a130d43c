package grammar

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/dialect"
)

// TestProveSample: what is written of real schemas, in every notation, is what
// was meant; and where nothing is left to the check after the reply, it lies
// inside the schema.
func TestProveSample(t *testing.T) {
	files := dataFiles(t, allSamples)
	every := 120
	if n, err := strconv.Atoi(os.Getenv("SIDECAR_PROVE_EVERY")); err == nil {
		every = n
	}
	counts := map[Target]map[string]int{}
	for i, f := range files {
		if i%every != 0 {
			continue
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Schema json.RawMessage }
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		c, err := Judge(Tool{name, file.Schema}, Closed)
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		for _, target := range []Target{StructuralTag, GBNF, Lark, Regex, JSONSchema} {
			n := counts[target]
			if n == nil {
				n = map[string]int{}
				counts[target] = n
			}
			p, err := c.Prove(target)
			if err != nil {
				n["refused"]++
				if target != Regex && target != JSONSchema {
					t.Error(err)
				}
				continue
			}
			status, _, _ := strings.Cut(p.Status, "(")
			n[status]++
			switch {
			case p.Equal:
				n["equal"]++
			case p.Narrower != nil:
				n["narrower"]++
				// A string with a limit on xgrammar, and numbers without bounds
				// in a schema, are narrower by intent.
				if target != StructuralTag && target != JSONSchema {
					t.Errorf("%s as %s: not written: %q", name, target, *p.Narrower)
				}
			}
			if p.Wider != nil {
				t.Errorf("%s as %s: written and not meant: %q", name, target, *p.Wider)
			}
			switch {
			case p.Accept.Proved:
				n["inside the schema"]++
			case p.Accept.Wrong != nil && len(p.Reasons) == 0:
				t.Errorf("%s as %s: exact, but doesn't fit: %q", name, target, *p.Accept.Wrong)
			case p.Accept.Wrong != nil:
				n["not inside the schema"]++
			}
		}
	}
	for target, n := range counts {
		t.Log(target, n)
	}
}

// TestProofSees: a text that is changed by little is told from the right one,
// with an example.
func TestProofSees(t *testing.T) {
	const schema = `{"properties":{"a":{"type":"string","minLength":1,"maxLength":20},"n":{"type":"integer","minimum":3,"maximum":120},"t":{"$ref":"#/$defs/t"}},"required":["n"],
		"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"x":{"enum":["u","v"]}},"required":["x"]}}}`
	c := compileTest(t, schema, Closed)
	meant, err := c.machine()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ target, old, new, wider, narrower string }{
		{"gbnf", "", "", "", ""},
		{"gbnf", `"\"v\""`, `"\"w\""`, `{"n":3,"t":{"x":"w"}}`, `{"n":3,"t":{"x":"v"}}`},
		{"gbnf", `[ \n\t]? "}"`, `[ \n\t]* "}"`, "{\"n\":3\t\t}", ""},
		{"gbnf", `{16}`, `{15}`, "", `{"a":"aaaaaaaaaaaaaaaaaaaa","n":3}`},
		{"lark", `{1,20}`, `{1,21}`, `{"a":"` + strings.Repeat("a", 21) + `","n":3}`, ""},
		{"lark", `{1,20}`, `{0,20}`, `{"a":"","n":3}`, ""},
		{"lark", `"\"x\""`, `"\"y\""`, `{"n":3,"t":{"y":"u"}}`, `{"n":3,"t":{"x":"u"}}`},
		{"lark", `\uE000-`, `\uE001-`, "", "{\"a\":\"\ue000\",\"n\":3}"},
	} {
		p, err := c.parts.of(c, Target(tt.target))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(p.text, tt.old, tt.new)
		if tt.old == "" {
			text = p.text
		} else if text == p.text {
			t.Errorf("%s: no %s in\n%s", tt.target, tt.old, text)
		}
		read := dialect.ReadGBNF
		if tt.target == "lark" {
			read = dialect.ReadLark
		}
		g, err := read(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := g.Machine(p.prefix, "root")
		if err != nil {
			t.Fatal(err)
		}
		v := dialect.Compare(m, meant, proofBudget)
		show := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		if show(v.Wider) != tt.wider || show(v.Narrower) != tt.narrower || v.Equal != (tt.old == "") || v.Inside != (tt.wider == "") || v.Bounded > 0 {
			t.Errorf("%s, %s for %s: %+v, wider %q, narrower %q", tt.target, tt.new, tt.old, v, show(v.Wider), show(v.Narrower))
		}
	}
}

// TestProvedOnce: an outcome is kept, an error too, so that nobody asks again.
func TestProvedOnce(t *testing.T) {
	c, err := Compile(Tool{Name: "f", Schema: []byte(`{"type":"object","properties":{"a":{"type":"integer"}}}`)}, Closed)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []Target{StructuralTag, "no such notation"} {
		if _, asked, _ := c.Known(hermes, target); asked {
			t.Errorf("%s is known before it was asked", target)
		}
		p, err := c.Proved(hermes, target)
		known, asked, again := c.Known(hermes, target)
		if !asked || again != err || known.Status != p.Status {
			t.Errorf("%s: %q, %v; known is %v: %q, %v", target, p.Status, err, asked, known.Status, again)
		}
	}
	if _, err := c.Proved(hermes, "no such notation"); err == nil {
		t.Error("a notation that there is not was proved")
	}
}
