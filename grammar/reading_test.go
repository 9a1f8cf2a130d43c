package grammar

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/wire"
)

const readSchema = `{"type":"object","properties":{
	"s":{"type":"string","maxLength":6},"n":{"type":["string","null"]},"m":{"enum":["null","ab",null,3]},
	"i":{"type":"integer","minimum":-5,"maximum":120},"f":{"type":"number"},"b":{"type":"boolean"},
	"u":{},"x":{"type":["integer","string"]},"l":{"type":"array","items":{"type":"string"},"maxItems":2},
	"o":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false},"z":{"const":null}},
	"required":["i"],"additionalProperties":false}`

// TestReading: what is read byte by byte in parameters in tags is what the
// family's parser reads, and fits if that fits.
func TestReading(t *testing.T) {
	tool := Tool{Name: "t", Schema: []byte(readSchema)}
	c := compileTest(t, readSchema, Closed)
	a, err := accept.Compile(context.Background(), c.judge.schema, accept.Options{})
	if err != nil {
		t.Fatal(err)
	}
	values := []string{"", "null", " NULL ", "nul", "\u00a0null", "ab", "a<b", "</para", "</arg_", "\n", "x\n", "3", "-1", "121", "1.5", "1e3", "true", "False", "{}", `{"a":"b"}`, `["a"]`, `["<","b"]`, `["a","b","c"]`, `"x"`, "é\"\\", "aaaaaaa", "<<"}
	for _, name := range []string{"qwen3-coder", "glm-4.5", "glm-4.7"} {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		syntax := SyntaxOf(f)
		p := syntax.Parameters
		w, err := c.WrittenIn(syntax, StructuralTag)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(5, 5))
		fits, not, unread := 0, 0, 0
		for n := range 1500 {
			var text string
			if n%3 == 0 {
				text, _ = w.Derive(rng, 1+rng.IntN(80))
			} else {
				for _, k := range rng.Perm(11)[:1+rng.IntN(3)] {
					text += p.Open + strings.Split("s n m i f b u x l o z", " ")[k] + p.Is + values[rng.IntN(len(values))] + p.Close
				}
			}
			r, err := newReading(p, c, a)
			if err != nil {
				t.Fatal(err)
			}
			state := r.Start()
			for i := 0; i < len(text) && state != 0 && err == nil; i++ {
				state, err = r.Step(state, text[i])
			}
			if err != nil {
				unread++
				continue
			}
			calls, _, fault := readAnswer(f, []Tool{tool}, syntax.Begin("t")+text+syntax.End)
			right := fault == "" && len(calls) == 1 && len(c.Misfits([]byte(calls[0].args), false)) == 0
			if got := state != 0 && r.Accepting(state); got != right {
				t.Fatalf("%s: %q: %v, the parser reads %q, %s", name, text, got, calls, fault)
			} else if got {
				fits++
			} else {
				not++
			}
		}
		if fits < 150 || not < 150 {
			t.Errorf("%s: of the texts %d fit, %d don't, %d are not looked at", name, fits, not, unread)
		}
		t.Logf("%s: %d fit, %d don't, %d are not looked at", name, fits, not, unread)
	}
}

// TestProveTags: arguments in tags are proved to fit as the parser reads them,
// and a text that doesn't is found.
func TestProveTags(t *testing.T) {
	for _, name := range []string{"qwen3-coder", "glm-4.5", "glm-4.7"} {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		syntax := SyntaxOf(f)
		for _, tt := range []struct{ schema, status string }{
			{`{"properties":{"q":{"type":"string"},"n":{"type":"integer"},"k":{"enum":["a","b"]}},"required":["q"]}`, "proved"},
			{`{"properties":{"q":{"type":"string","maxLength":20}},"required":["q"]}`, "proved"},
			{`{"properties":{"q":{"type":["string","null"]},"b":{"type":"boolean"},"l":{"type":"array","items":{"type":"number"}}}}`, "proved"},
			{`{"properties":{"q":{"type":"string","maxLength":20000}}}`, "bounded"},
			{`{"properties":{"q":{"type":"string","pattern":"^a+$"}}}`, "checked"},
			{`{}`, "proved"},
		} {
			c := compileTest(t, tt.schema, Closed)
			for _, target := range []Target{StructuralTag, GBNF} {
				if strings.Contains(tt.schema, "maxLength") && (target == GBNF || name != "qwen3-coder") {
					continue // a second each
				}
				w, err := c.WrittenIn(syntax, target)
				if err != nil {
					t.Fatal(err)
				}
				p, err := w.Prove()
				status, _, _ := strings.Cut(p.Status, "(")
				if err != nil || status != tt.status || p.Accept.Err != nil || (p.Accept.Wrong != nil) != (tt.status == "checked") {
					t.Errorf("%s, %s as %s: %+v, %v", name, tt.schema, target, p, err)
				}
			}
		}
		c := compileTest(t, `{"properties":{"q":{"type":"string","maxLength":6}},"required":["q"]}`, Closed)
		p, err := c.parameters(syntax.Parameters)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range [][2]string{{"max_chars=6", "max_chars=7"}, {"q", "r"}} {
			w, err := c.WrittenIn(syntax, StructuralTag)
			if err != nil {
				t.Fatal(err)
			}
			g, err := dialect.ReadEBNF(strings.ReplaceAll(p.String(), change[0], change[1]))
			if err != nil {
				t.Fatal(err)
			}
			if w.written, err = g.Machine("", "root"); err != nil {
				t.Fatal(err)
			}
			if p, err := w.Prove(); err != nil || p.Status != "unconstrained" || p.Accept.Wrong == nil || !w.Accepts(*p.Accept.Wrong) {
				t.Errorf("%s, %s for %s: %+v, %v", name, change[1], change[0], p, err)
			}
		}
	}
}
