package retrieval

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func toolOf(t testing.TB, function string) Tool {
	t.Helper()
	var f struct {
		Name, Description string
		Parameters        json.RawMessage
	}
	if err := json.Unmarshal([]byte(function), &f); err != nil {
		t.Fatal(err)
	}
	return Tool{Name: f.Name, Description: f.Description, Schema: f.Parameters, Raw: json.RawMessage(`{"type":"function","function":` + function + `}`)}
}

func TestSlim(t *testing.T) {
	shared := "Needs the scope of the key to be set before."
	tools := []Tool{{Name: "x", Description: shared}, {Name: "y", Description: shared}}
	long := strings.Repeat("word ", 60)
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf(`"v%d"`, i))
	}
	for _, x := range []struct{ name, function, want string }{
		{"nothing to leave out", `{"name":"a","description":"Do it.","parameters":{"type":"object","properties":{"id":{"type":"string"}}}}`, ""},
		{"shared sentence", `{"name":"a","description":"Do it. ` + shared + `"}`, `{"name":"a","description":"Do it."}`},
		{"shared alone", `{"name":"a","description":"` + shared + ` ` + shared + `"}`, `{"name":"a","description":"` + shared + `"}`},
		{"long description", `{"name":"a","description":"First. ` + long + `"}`, `{"name":"a","description":"First."}`},
		{"long sentence", `{"name":"a","description":"` + long + `"}`, `{"name":"a","description":"` + strings.TrimSpace(strings.Repeat("word ", 31)) + `…"}`},
		{"keywords", `{"name":"a","parameters":{"title":"T","$schema":"s","type":"object","properties":{"title":{"title":"Title","type":"string","default":"x","examples":["y"]},"default":{"type":"integer","minimum":1}},"required":["title"]}}`,
			`{"name":"a","parameters":{"type":"object","properties":{"title":{"type":"string"},"default":{"type":"integer","minimum":1}},"required":["title"]}}`},
		{"parameter text", `{"name":"a","parameters":{"properties":{"c":{"description":"The city, e.g. Oslo. More about it."},"d":{"description":"Kind of thing. And more."}}}}`,
			`{"name":"a","parameters":{"properties":{"c":{"description":"The city"},"d":{"description":"Kind of thing."}}}}`},
		{"enum", `{"name":"a","parameters":{"properties":{"e":{"enum":[` + strings.Join(many, ",") + `]}}}}`,
			`{"name":"a","parameters":{"properties":{"e":{"enum":[` + strings.Join(many[:8], ",") + `,"…"]}}}}`},
		{"const is kept", `{"name":"a","parameters":{"properties":{"k":{"const":{"title":"x"},"title":"drop"}}}}`, `{"name":"a","parameters":{"properties":{"k":{"const":{"title":"x"}}}}}`},
		{"nested", `{"name":"a","parameters":{"properties":{"o":{"type":"array","items":{"properties":{"p":{"title":"P","anyOf":[{"title":"Q","type":"null"}]}}}}}}}`,
			`{"name":"a","parameters":{"properties":{"o":{"type":"array","items":{"properties":{"p":{"anyOf":[{"type":"null"}]}}}}}}}`},
	} {
		tool := toolOf(t, x.function)
		ix, err := NewIndex(append(slices.Clone(tools), tool), Config{})
		if err != nil {
			t.Fatal(err)
		}
		want := string(tool.Raw)
		if x.want != "" {
			want = `{"type":"function","function":` + x.want + `}`
		}
		if got := string(ix.Slim(2)); got != want {
			t.Errorf("%s: %s; want %s", x.name, got, want)
		}
	}
	ix, err := NewIndex([]Tool{{Name: "broken", Raw: json.RawMessage(`not JSON`)}}, Config{})
	if err != nil || string(ix.Slim(0)) != "not JSON" {
		t.Error("bytes that are no tool are changed")
	}
}

// shape is what a call must look like: names, types and requirements.
func shape(v any) any {
	o, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := map[string]any{"type": o["type"], "required": o["required"], "items": shape(o["items"])}
	if p, ok := o["properties"].(map[string]any); ok {
		names := map[string]any{}
		for k, x := range p {
			names[k] = shape(x)
		}
		out["properties"] = names
	}
	return out
}

// Slimming keeps what a call must look like, and makes nothing longer.
func TestSlimKeepsTheShape(t *testing.T) {
	tools := setTools(t, "merged")
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	whole, slim := 0, 0
	for i := range tools {
		var a, b struct {
			Type     string
			Function struct {
				Name       string
				Parameters any
			}
		}
		raw := ix.Slim(i)
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatalf("%s: %v in %s", tools[i].Name, err, raw)
		}
		if err := json.Unmarshal(tools[i].Raw, &a); err != nil {
			t.Fatal(err)
		}
		if b.Type != "function" || b.Function.Name != tools[i].Name || !reflect.DeepEqual(shape(a.Function.Parameters), shape(b.Function.Parameters)) {
			t.Fatalf("%s became %s", tools[i].Raw, raw)
		}
		if len(raw) > len(tools[i].Raw) {
			t.Fatalf("%s is longer than %s", raw, tools[i].Raw)
		}
		whole += len(tools[i].Raw)
		slim += len(raw)
	}
	t.Logf("%d bytes slimmed to %d", whole, slim)
	if slim > whole*9/10 {
		t.Errorf("%d bytes slimmed to %d", whole, slim)
	}
}

func TestSelectSlims(t *testing.T) {
	var tools []Tool
	for i := range 4 {
		tools = append(tools, toolOf(t, fmt.Sprintf(`{"name":"invoice_send_%d","description":"Send. %s"}`, i, strings.Repeat(fmt.Sprint("more", i, " "), 60))))
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	whole, slim := len(tools[0].Raw), len(ix.Slim(0))
	for _, x := range []struct {
		tokens, tools, slimmed int
	}{{4 * whole, 4, 0}, {4*whole - 1, 4, 1}, {4 * slim, 4, 4}, {4*slim - 1, 3, 3}, {slim - 1, 0, 0}} {
		hits := ix.Search(Text("send the invoice"), 4)
		sel := Select(ix, hits, SelectConfig{Tokens: x.tokens, Slim: true, Costs: NewCosts(ix)}, bytesOf)
		sum := 0
		for _, tool := range sel.Tools {
			sum += len(sel.JSON(ix, tool))
		}
		if len(sel.Tools) != x.tools || len(sel.Slimmed) != x.slimmed || sel.Tokens != sum || sum > x.tokens {
			t.Errorf("%d bytes: %d tools, %d slimmed, %d counted, %d shown; want %d and %d", x.tokens, len(sel.Tools), len(sel.Slimmed), sel.Tokens, sum, x.tools, x.slimmed)
		}
		if len(sel.Slimmed) > 0 && len(sel.Slimmed) < len(sel.Tools) && slices.Contains(sel.Slimmed, sel.Tools[0]) {
			t.Error("the best is slimmed before the others")
		}
	}
	var always []string
	for i := range tools {
		always = append(always, tools[i].Name)
	}
	sel := Select(ix, nil, SelectConfig{Tokens: 4 * slim, Slim: true, Always: always}, bytesOf)
	if len(sel.Tools) != 4 || sel.Over || sel.Tokens != 4*slim {
		t.Errorf("%+v", sel)
	}
}
