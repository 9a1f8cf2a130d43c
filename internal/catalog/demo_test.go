package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/retrieval"
)

// The demo is the same bytes everywhere and always; a change is a decision.
func TestDemoBytes(t *testing.T) {
	c := Demo()
	size, most := 0, 0
	for _, x := range c.Tools() {
		size += len(x.Raw)
		most = max(most, len(x.Raw))
	}
	tokens := 0
	for _, x := range c.Tools() {
		tokens += tokenizer.Qwen3().Count(string(x.Raw))
	}
	got := fmt.Sprintf("tools %d\ndomains %d\nbytes %d\nmean bytes %d\nlargest %d\nQwen3 tokens %d\nmean tokens %d\nsha256 %x\n",
		c.Len(), len(Domains()), size, size/c.Len(), most, tokens, tokens/c.Len(), c.Key())
	if mean := tokens / c.Len(); mean < 80 || mean > 150 {
		t.Errorf("%d tokens a tool; schemas of 80 to 150 are promised", mean)
	}
	golden(t, "demo.txt", got)
	again := generate(demoSeed)
	h := sha256.New()
	for _, x := range again.tools {
		fmt.Fprintf(h, "%s\n", x.Raw)
	}
	key := c.Key()
	if !bytes.Equal(h.Sum(nil), key[:]) {
		t.Error("a second run of the generator differs")
	}
}

func TestDemoTools(t *testing.T) {
	c := Demo()
	if c.Len() != 3200 {
		t.Errorf("%d tools", c.Len())
	}
	domains := Domains()
	per := map[string]int{}
	about := map[string]string{}
	triples := map[string]string{}
	for i := range c.Tools() {
		x := &c.Tools()[i]
		again, err := Canonical(x.Raw, DefaultLimits)
		if err != nil || !bytes.Equal(again.Raw, x.Raw) || again.Name != x.Name || again.Description != x.Description || !bytes.Equal(again.Schema, x.Schema) {
			t.Errorf("%s is not canonical: %v", x.Name, err)
		}
		spec := demo().spec[x.Name]
		triple := spec.domain + " " + spec.verb + " " + spec.object.name
		if other := triples[triple]; other != "" {
			t.Errorf("%s and %s are both %s", x.Name, other, triple)
		}
		triples[triple] = x.Name
		per[x.Server]++
		if strings.ContainsAny(x.Description, "{}|") || strings.Contains(x.Description, "..") || len(x.Description) < 12 {
			t.Errorf("%s: description %q", x.Name, x.Description)
		}
		if other := about[x.Server+x.Description]; other != "" {
			t.Errorf("%s and %s have the same description", x.Name, other)
		}
		about[x.Server+x.Description] = x.Name
	}
	for _, d := range domains {
		if per[d.Name] != demoPerDomain || len(d.Objects) != 6 || d.Title == "" {
			t.Errorf("%s: %d tools, objects %v", d.Name, per[d.Name], d.Objects)
		}
	}
	if len(domains) != 64 {
		t.Errorf("%d domains", len(domains))
	}
}

// Every schema compiles, every number has bounds, and nearly all strings do.
func TestDemoSchemas(t *testing.T) {
	free, strs := 0, 0
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(name, x)
			}
		case map[string]any:
			switch v["type"] {
			case "integer", "number":
				if v["minimum"] == nil || v["maximum"] == nil {
					t.Errorf("%s: a number without bounds: %v", name, v)
				}
			case "string":
				strs++
				if v["maxLength"] == nil && v["enum"] == nil {
					free++
				}
			case "array":
				if v["maxItems"] == nil {
					t.Errorf("%s: a list without end: %v", name, v)
				}
			}
			for _, x := range v {
				walk(name, x)
			}
		}
	}
	for _, x := range Demo().Tools() {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(x.Schema))
		if err != nil {
			t.Fatalf("%s: %v", x.Name, err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("mem:///"+x.Name, v); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compile("mem:///" + x.Name); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		walk(x.Name, v)
	}
	if strs < 5000 || free > strs/20 {
		t.Errorf("%d of %d strings without a bound", free, strs)
	}
}

func TestToyAnswersEveryTool(t *testing.T) {
	long, sum := 0, 0
	for _, x := range Demo().Tools() {
		got := Toy(x.Name, []byte(`{"note":"n","count":2}`))
		var v map[string]any
		if err := json.Unmarshal([]byte(got), &v); err != nil || len(v) == 0 || v["error"] != nil {
			t.Fatalf("%s: %v: %.200s", x.Name, err, got)
		}
		if _, err := compactJSON([]byte(got), 64); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		sum += len(got)
		if len(got) > 4000 {
			long++
		}
		if len(got) < 20 || len(got) > 100_000 {
			t.Errorf("%s answers with %d bytes", x.Name, len(got))
		}
	}
	if long < 100 || long > 1000 {
		t.Errorf("%d of 3,200 answers are longer than 4 kB", long)
	}
	t.Logf("mean answer %d bytes, %d longer than 4 kB", sum/3200, long)
}

func TestToy(t *testing.T) {
	a := Toy("billing__refund_payment", []byte(`{"payment_id":"pay_1","amount":19.90,"reason":"late"}`))
	if b := Toy("billing__refund_payment", []byte(` {"reason":"late", "amount":19.90,"payment_id":"pay_1"}`)); a != b {
		t.Errorf("the order of arguments counts:\n%s\n%s", a, b)
	}
	if b := Toy("billing__refund_payment", []byte(`{"payment_id":"pay_2","amount":19.90,"reason":"late"}`)); a == b {
		t.Error("arguments don't count")
	}
	for _, want := range []string{`"payment_id":"pay_1"`, `"amount":19.90`, `"done":"refund"`} {
		if !strings.Contains(a, want) {
			t.Errorf("%s lacks %s", a, want)
		}
	}
	var list struct{ Invoices []any }
	if err := json.Unmarshal([]byte(Toy("billing__list_invoices", []byte(`{"limit":1}`))), &list); err != nil || len(list.Invoices) != 1 {
		t.Errorf("limit 1: %d invoices, %v", len(list.Invoices), err)
	}
	for _, x := range [...]struct{ name, args, want string }{
		{"nope", `{}`, `{"error":{"code":"unknown_tool","message":"there is no tool named nope"}}`},
		{"billing__get_invoice", `[1]`, `{"error":{"code":"bad_arguments","message":"the arguments are not a JSON object"}}`},
		{"billing__get_invoice", `null`, `{"error":{"code":"bad_arguments","message":"the arguments are not a JSON object"}}`},
		{"billing__get_invoice", `{"a":`, `{"error":{"code":"bad_arguments","message":"the arguments are not a JSON object"}}`},
	} {
		if got := Toy(x.name, []byte(x.args)); got != x.want {
			t.Errorf("%s(%s): %s", x.name, x.args, got)
		}
	}
	golden(t, "toy.txt", a+"\n"+Toy("hotel__get_guest_room", nil)+"\n"+Toy("shipping__track_shipment", []byte(`{"shipment_id":"s_1"}`))+"\n")
}

func FuzzToy(f *testing.F) {
	f.Add("billing__list_invoices", []byte(`{"limit":5}`))
	f.Add("billing__create_invoice", []byte(`{"status":1e400,"x":{"y":[]},"invoice_id":"\u0000"}`))
	f.Fuzz(func(t *testing.T, name string, args []byte) {
		if got := Toy(name, args); !json.Valid([]byte(got)) || got != Toy(name, args) {
			t.Errorf("%s(%q): %s", name, args, got)
		}
	})
}

func TestDomainsAreNamedInTools(t *testing.T) {
	for _, d := range Domains() {
		if !slices.ContainsFunc(Demo().Tools(), func(x retrieval.Tool) bool { return strings.HasPrefix(x.Name, d.Name+"__") }) {
			t.Errorf("no tool of %s", d.Name)
		}
	}
}

func BenchmarkDemo(b *testing.B) {
	b.Run("generate", func(b *testing.B) {
		for b.Loop() {
			generate(demoSeed)
		}
	})
	b.Run("generate-and-index", func(b *testing.B) {
		for b.Loop() {
			if _, err := New("demo", generate(demoSeed).tools); err != nil {
				b.Fatal(err)
			}
		}
	})
}
