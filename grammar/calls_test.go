package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/wire"
)

// grammarsOf are the grammars in a tag, line by line.
func grammarsOf(t *testing.T, format json.RawMessage) [][]string {
	t.Helper()
	var tag struct {
		Tags []struct{ Content struct{ Grammar string } }
	}
	if err := json.Unmarshal(format, &tag); err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for _, x := range tag.Tags {
		out = append(out, strings.Split(strings.TrimSpace(x.Content.Grammar), "\n"))
	}
	return out
}

// TestCallsShareRules: a tool more changes the line of the calls and adds the
// rules that no other has; every rule stands there once, and what is written of
// a tool is what is proved of it.
func TestCallsShareRules(t *testing.T) {
	var tools []*Checked
	for i := range 20 {
		schema := fmt.Sprintf(`{"properties":{"query":{"type":"string"},"only%d":{"type":"string","maxLength":%d},"tree":{"$ref":"#/$defs/t"},"n":{"type":"number"}},"required":["query"],"$defs":{"t":{"properties":{"c":{"type":"array","items":{"$ref":"#/$defs/t"}}}}}}`, i, 5+i%3)
		c, err := Compile(Tool{fmt.Sprint("tool", i), []byte(schema)}, Closed)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, c)
	}
	var before []string
	for n := 2; n <= len(tools); n++ {
		e, err := Tag(hermes, tools[:n], Choice{Mode: Auto}, xgrammar028)
		if err != nil {
			t.Fatal(err)
		}
		gs := grammarsOf(t, e.Format)
		if len(gs) != 1 {
			t.Fatalf("%d grammars", len(gs))
		}
		lines := gs[0]
		if before != nil && !slices.Equal(before[1:], lines[1:len(before)]) {
			t.Fatalf("tool %d changed lines of those before", n)
		}
		if added := len(lines) - len(before); before != nil && added > 4 && n > 4 {
			t.Errorf("tool %d adds %d lines: %q", n, added, lines[len(before):])
		}
		before = lines
		if _, err := dialect.ReadEBNF(strings.Join(lines, "\n")); err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools[:n] {
			for line := range strings.Lines(strings.TrimPrefix(tool.content.String(), "root ::= "+tool.content.Root()+"\n")) {
				if !slices.Contains(lines, strings.TrimSpace(line)) {
					t.Fatalf("%s is not in the tag: %s", tool.name, line)
				}
			}
		}
	}
	again, err := Tag(hermes, tools, Choice{Mode: Auto}, xgrammar028)
	if err != nil || !slices.Equal(before, grammarsOf(t, again.Format)[0]) {
		t.Error("equal tools, other bytes")
	}
}

// TestNamesClash: two rules of one name don't become one.
func TestNamesClash(t *testing.T) {
	one := func(body string) *fragment {
		f := fragmentOf(&dialect.Grammar{Rules: []dialect.Rule{{Name: "root", Body: dialect.Then(dialect.Text("{"), dialect.Use("x"))}, {Name: "x", Body: dialect.Text(body)}}})
		f.Rules[1].Line = strings.Replace(f.Rules[1].Line, f.Rules[1].Name, "x-clash", 1)
		f.Rules[1].Name = "x-clash"
		return &f
	}
	var g grammarNode
	for i, tt := range []struct {
		body string
		ok   bool
	}{{"a", true}, {"a", true}, {"b", false}} {
		if g.add(one(tt.body)) != tt.ok {
			t.Errorf("fragment %d: taken %v", i+1, !tt.ok)
		}
	}
	s := hermes
	tags := s.put(nil, s.Begin("a"), one("a"))
	tags = s.put(tags, s.Begin("b"), one("b"))
	tags = s.put(tags, s.Begin("c"), one("a"))
	if len(tags) != 2 || len(tags[0].begins) != 2 {
		t.Errorf("%d tags", len(tags))
	}
}

// TestFamilyDialects shows two tools in every family and notation, or why they
// aren't written.
func TestFamilyDialects(t *testing.T) {
	a, err := Compile(Tool{"get_weather", []byte(`{"properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":0,"maximum":9}},"required":["city"]}`)}, Closed)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Compile(Tool{"now", []byte(`{"properties":{"zone":{"enum":["UTC","local"]}}}`)}, Closed)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, name := range wire.Names() {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		s := SyntaxOf(f)
		if s.Trigger == "" {
			continue
		}
		for _, target := range []Target{StructuralTag, LegacyTag, GBNF, Lark, Regex, JSONSchema} {
			fmt.Fprintf(&got, "== %s as %s\n", name, target)
			choice, tools := Choice{Mode: Required, Parallel: true}, []*Checked{a, b}
			if target == LegacyTag {
				choice = Choice{Mode: Auto, Parallel: true}
			}
			if target == JSONSchema {
				tools = tools[:1]
			}
			if target == StructuralTag {
				e, err := Tag(s, tools, choice, xgrammar028)
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Indent(&got, e.Format, "", " "); err != nil {
					t.Fatal(err)
				}
				got.WriteByte('\n')
				continue
			}
			w, err := Write(s, tools, choice, target)
			if err != nil {
				fmt.Fprintf(&got, "refused: %v\n", err)
				continue
			}
			got.WriteString(strings.TrimSuffix(w.Text, "\n") + "\n")
		}
	}
	golden(t, "testdata/familydialects.golden.txt", got.Bytes())
}

// callsIn are the calls that a format takes, as far as its tags tell: what stands
// before the arguments, their grammar, and the end.
type callsIn struct {
	begin, end string
	holds      *dialect.Machine
}

func callsOf(t *testing.T, v any) []callsIn {
	t.Helper()
	var out []callsIn
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = append(out, callsOf(t, e)...)
		}
	case map[string]any:
		content, _ := v["content"].(map[string]any)
		if text, ok := content["grammar"].(string); ok && v["type"] == "tag" {
			g, err := dialect.ReadEBNF(text)
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			m, err := g.Machine("", "root")
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			end, _ := v["end"].(string)
			return []callsIn{{v["begin"].(string), end, m}}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out = append(out, callsOf(t, v[key])...)
		}
	}
	return out
}

// TestNamesTogether: in one grammar for all tools each name goes with its own
// arguments and no others, whatever the names have in common with each other or
// with the notation, in every family.
func TestNamesTogether(t *testing.T) {
	names := []string{"a", "ab", "a_b", "a-b", "b", "A", "é", "日本", "n\U0001F642", `q"`, `q\`, `a", "arguments": {"k0": 0}}`, "a.b", "a b", "a[0-9]", "root"}
	for _, family := range wire.Names() {
		f, err := wire.ByName(family)
		if err != nil {
			t.Fatal(err)
		}
		s := SyntaxOf(f)
		var tools []*Checked
		var args []string
		for i, name := range names {
			more := ""
			if s.ID != "" { // a rule that the id may share
				more = `,"s":{"type":"string","pattern":"^` + s.ID + `$"}`
			}
			c, err := Compile(Tool{name, fmt.Appendf(nil, `{"properties":{"k%d":{"const":%d}%s},"required":["k%d"]}`, i, i, more, i)}, Closed)
			if err != nil || s.Carries(c) != nil {
				continue
			}
			tools, args = append(tools, c), append(args, fmt.Sprintf(`{"k%d": %d}`, i, i))
		}
		if len(tools) < 5 {
			t.Fatalf("%s: %d tools", family, len(tools))
		}
		for _, choice := range []Choice{{Mode: Auto, Parallel: true}, {Mode: Required}, {Mode: Named, Name: "a"}, {Mode: Auto, Response: tools[0]}} {
			e, err := Tag(s, tools, choice, xgrammar028)
			if err != nil {
				t.Fatalf("%s: %v", family, err)
			}
			var format any
			if err := json.Unmarshal(e.Format, &format); err != nil {
				t.Fatalf("%s: %v", family, err)
			}
			calls := callsOf(t, format)
			takes := func(text string) bool {
				return slices.ContainsFunc(calls, func(c callsIn) bool {
					_, rest, ok := strings.Cut(text, c.begin)
					end := strings.LastIndex(rest, c.end)
					return ok && c.begin != "" && end >= 0 && c.holds.Accepts(rest[:end])
				})
			}
			for i, tool := range tools {
				for k := range tools {
					text := f.CallText(wire.Call{Name: tool.name, Arguments: args[k]})
					want := i == k && (choice.Mode != Named || tool.name == choice.Name)
					if got := takes(text); got != want {
						t.Errorf("%s, %s: taken %v: %s", family, choice.Mode, got, text)
					}
				}
			}
		}
	}
}
