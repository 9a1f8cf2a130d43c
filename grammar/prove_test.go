package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// TestProofMutations: texts that were changed at random. What a verdict says holds
// for what random derivations of both sides say: an example of a difference is one,
// and where no difference is claimed none is met.
func TestProofMutations(t *testing.T) {
	schemas := []string{
		`{"properties":{"a":{"type":"string","minLength":1,"maxLength":6},"n":{"type":"integer","minimum":3,"maximum":120}},"required":["n"]}`,
		`{"properties":{"t":{"$ref":"#/$defs/t"},"k":{"enum":["low","high",null]}},"required":["t"],
			"$defs":{"t":{"type":"object","properties":{"l":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":3},"x":{"enum":["u","v"]}},"required":["x"]}}}`,
		`{"properties":{"d":{"type":"string","format":"date"},"p":{"type":"string","pattern":"^[a-f]{2,4}-[0-9]+$"},"b":{"type":"boolean"}},"required":["p","b"]}`,
		`{"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"number","minimum":-2,"maximum":2}},"required":["kind","x"]},{"properties":{"kind":{"const":"b"},"y":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2}},"required":["kind","y"]}]}`,
	}
	readers := map[Target]func(string) (*dialect.Grammar, error){StructuralTag: dialect.ReadEBNF, GBNF: dialect.ReadGBNF, Lark: dialect.ReadLark}
	rng := rand.New(rand.NewPCG(17, 4))
	counts := map[string]int{}
	for i, schema := range schemas {
		c := compileTest(t, schema, Closed)
		meant, err := c.machine()
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range []Target{StructuralTag, GBNF, Lark} {
			w, err := c.Written(target)
			if err != nil {
				t.Fatal(err)
			}
			text := c.content.String()
			if target != StructuralTag {
				p, err := c.parts.of(c, target)
				if err != nil {
					t.Fatal(err)
				}
				text = p.text
			}
			var right []string // texts that were meant
			for range 60 {
				if text, ok := w.Derive(rng, rng.IntN(60)); ok {
					right = append(right, text)
				}
			}
			for n := range 150 {
				changed := mutated(rng, text)
				g, err := readers[target](changed)
				if err != nil {
					counts["unreadable"]++
					continue
				}
				if target == StructuralTag {
					g.Rename(c.content.Known)
				}
				m, err := g.Machine(w.prefix, "root")
				if err != nil {
					counts["unreadable"]++
					continue
				}
				fail := func(format string, args ...any) {
					t.Helper()
					t.Errorf("schema %d as %s, change %d: %s\n%s", i, target, n, fmt.Sprintf(format, args...), changedLine(text, changed))
				}
				v := dialect.Compare(m, meant, 20_000)
				derive := g.Deriver(w.prefix, "root")
				var written []string
				for range 40 {
					if s, ok := derive.Text(rng, rng.IntN(60)); ok {
						if !m.Accepts(s) {
							fail("%q is derived and not read", s)
						}
						written = append(written, s)
					}
				}
				switch {
				case v.Equal && (!v.Inside || v.Wider != nil || v.Narrower != nil || v.Bounded > 0), v.Inside && v.Wider != nil:
					fail("%+v contradicts itself", v)
				case v.Equal:
					counts["equal"]++
				case v.Wider != nil:
					counts["wider"]++
				case v.Inside && v.Bounded == 0:
					counts["inside"]++
				default:
					counts["bounded"]++
				}
				if s := v.Wider; s != nil && (!m.Accepts(*s) || meant.Accepts(*s)) {
					fail("%q is no text that is written and not meant", *s)
				}
				if s := v.Narrower; s != nil && (m.Accepts(*s) || !meant.Accepts(*s)) {
					fail("%q is no text that is meant and not written", *s)
				}
				for _, s := range written {
					if !meant.Accepts(s) && v.Inside && (v.Bounded == 0 || len(s) <= v.Bounded) {
						fail("%+v, but %q is written and not meant", v, s)
					}
				}
				for _, s := range right {
					if !m.Accepts(s) && v.Equal {
						fail("%+v, but %q is meant and not written", v, s)
					}
				}
			}
		}
	}
	t.Log(counts)
	for _, kind := range []string{"equal", "wider", "inside"} {
		if counts[kind] < 20 {
			t.Errorf("%d verdicts %s", counts[kind], kind)
		}
	}
}

// mutated is text with one small change: a character written, left out or doubled,
// two neighbours that change places, or a line that goes or comes twice.
func mutated(rng *rand.Rand, text string) string {
	lines := strings.SplitAfter(text, "\n")
	if k := rng.IntN(len(lines)); rng.IntN(8) == 0 {
		if rng.IntN(2) == 0 {
			return strings.Join(slices.Delete(lines, k, k+1), "")
		}
		return strings.Join(slices.Insert(lines, k, lines[k]), "")
	}
	r := []rune(text)
	k := rng.IntN(len(r) - 1)
	switch rng.IntN(4) {
	case 0:
		r = slices.Delete(r, k, k+1)
	case 1:
		r = slices.Insert(r, k, r[k])
	case 2:
		r[k], r[k+1] = r[k+1], r[k]
	default:
		const some = `0123456789abcuvxy{}[]()"?*+|,-: `
		r[k] = rune(some[rng.IntN(len(some))])
	}
	return string(r)
}

// changedLine is the first line in which two texts differ.
func changedLine(old, new string) string {
	a, b := strings.Split(old, "\n"), strings.Split(new, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + "\n→ " + b[i]
		}
	}
	return "at the end"
}

// TestProofFault: a proof that panics is not begun again, and its tool is known as
// one of which nothing is known.
func TestProofFault(t *testing.T) {
	c := &Checked{name: "broken", proofs: &proofs{}} // nothing was compiled
	begun := func() (fault any, err error) {
		defer func() { fault = recover() }()
		_, err = c.Proved(hermes, StructuralTag)
		return fault, err
	}
	if fault, _ := begun(); fault == nil {
		t.Fatal("the proof has no fault: this test shows nothing")
	}
	if fault, err := begun(); fault != nil || err == nil {
		t.Errorf("begun again: fault %v, error %v", fault, err)
	}
	if p, asked, err := c.Known(hermes, StructuralTag); !asked || err == nil || p.Status != "" {
		t.Errorf("known: %+v, asked %v, error %v", p, asked, err)
	}
}
