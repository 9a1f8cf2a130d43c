package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/wire"
)

var writeTools = []Tool{
	{"get_weather", []byte(`{"type":"object","properties":{"city":{"type":"string","minLength":2,"maxLength":8},"days":{"type":"integer","minimum":0,"maximum":9}},"required":["city"]}`)},
	{"send-mail", []byte(`{"type":"object","properties":{"to":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":2},"text":{"type":"string"},"kind":{"enum":["a<b","plain"]}},"required":["to"]}`)},
	{"now", []byte(`{"type":"object"}`)},
}

// writable says whether a family's calls have a form in a notation.
func writable(f *wire.Family, target Target) bool {
	switch f.Calls.Form {
	case wire.Channels:
		return false
	case wire.Parameters:
		return target == GBNF
	}
	return target != Lark || !strings.HasPrefix(f.Calls.Open, "[")
}

// TestWriteFamilies reads back what is written for every family: random texts of
// it are read by the family's parser as calls of the tools that fit, and what the
// family writes of fitting calls is in it.
func TestWriteFamilies(t *testing.T) {
	var tools []*Checked
	for _, tool := range writeTools {
		c, err := Compile(tool, Closed)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, c)
	}
	for _, name := range wire.Names() {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range []Target{GBNF, Lark, Regex} {
			t.Run(fmt.Sprintf("%s %s", name, target), func(t *testing.T) {
				w, err := Write(SyntaxOf(f), tools, Choice{Mode: Required, Parallel: true}, target)
				if !writable(f, target) {
					if err == nil {
						t.Fatal("is written")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				rules, root := readBack(t, w.Text, target)
				m, err := rules.Machine("", root)
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(1, 2))
				d := rules.Deriver("", root)
				for range 60 {
					text, ok := d.Text(rng, 200)
					if !ok {
						t.Fatal("nothing can be written")
					}
					if checkCalls(t, f, tools, text) == 0 {
						t.Fatalf("no call in %q", text)
					}
				}
				if target == Regex {
					testFree(t, f, tools)
				}
				for _, calls := range [][]wire.Call{
					{{Name: "now", Arguments: "{}"}},
					{{Name: "get_weather", Arguments: `{"city": "Oslo", "days": 3}`}, {Name: "now", Arguments: "{}"}},
					{{Name: "send-mail", Arguments: `{"to": ["a", "b"], "text": "two\nlines & <b>", "kind": "a<b"}`}},
				} {
					if text := f.TurnText("", calls); !m.Accepts(text) {
						t.Errorf("%q can't be written", text)
					}
				}
				for _, calls := range [][]wire.Call{
					{{Name: "now", Arguments: `{"a": 1}`}},
					{{Name: "later", Arguments: "{}"}},
					{{Name: "get_weather", Arguments: `{"days": 3}`}},
					{{Name: "get_weather", Arguments: `{"city": "Oslo", "days": 10}`}},
				} {
					if text := f.TurnText("", calls); m.Accepts(text) {
						t.Errorf("%q can be written", text)
					}
				}
			})
		}
	}
}

func readBack(t *testing.T, text string, target Target) (*dialect.Grammar, string) {
	t.Helper()
	read, root := dialect.ReadGBNF, "root"
	switch target {
	case Lark:
		read, root = dialect.ReadLark, "start"
	case Regex:
		read = dialect.ReadRegex
	}
	g, err := read(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return g, root
}

type readCall struct{ name, args string }

// readAnswer reads an answer by the family's own parser.
func readAnswer(f *wire.Family, tools []Tool, text string) (calls []readCall, said string, fault string) {
	p := f.NewParser()
	p.Schema = func(name string) json.RawMessage {
		for _, t := range tools {
			if t.Name == name {
				return t.Schema
			}
		}
		return nil
	}
	whole := 0
	for _, evs := range [][]wire.Event{append([]wire.Event(nil), p.Feed(text)...), p.Close()} {
		for _, e := range evs {
			switch e.Kind {
			case wire.Text:
				said += e.Text
			case wire.CallStart:
				calls = append(calls, readCall{name: e.Name})
			case wire.Arguments:
				calls[len(calls)-1].args += e.Text
			case wire.CallEnd:
				whole++
			case wire.Malformed:
				return calls, said, "malformed: " + e.Text
			}
		}
	}
	if p.Open() || whole != len(calls) {
		return calls, said, "open"
	}
	return calls, said, ""
}

// checkCalls reads a reply by the family's parser.
func checkCalls(t *testing.T, f *wire.Family, tools []*Checked, text string) int {
	t.Helper()
	calls, _, fault := readAnswer(f, writeTools, text)
	if fault != "" {
		t.Fatalf("%q: %s", text, fault)
	}
	for _, c := range calls {
		found := false
		for _, tool := range tools {
			if tool.name != c.name {
				continue
			}
			found = true
			if err := tool.Check([]byte(c.args)); err != nil && !checkedLater(f, c.name) {
				t.Fatalf("%q: %v", text, err)
			}
		}
		if !found {
			t.Fatalf("%q calls %q", text, c.name)
		}
	}
	return len(calls)
}

// testFree is checkCalls for replies that may be text.
func testFree(t *testing.T, f *wire.Family, tools []*Checked) {
	t.Helper()
	w, err := Write(SyntaxOf(f), tools, Choice{Mode: Auto, Parallel: true}, Regex)
	if f.Name == "llama3" { // text without its trigger, {"name": ", holds the quote twice
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	rules, root := readBack(t, w.Text, Regex)
	m, err := rules.Machine("", root)
	if err != nil {
		t.Fatal(err)
	}
	for _, calls := range [][]wire.Call{nil, {{Name: "now", Arguments: "{}"}}} {
		for _, content := range []string{"", "It is < 3."} {
			if text := f.TurnText(content, calls); !m.Accepts(text) {
				t.Errorf("%q can't be written", text)
			}
		}
	}
	d := rules.Deriver("", root)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		if text, ok := d.Text(rng, 200); ok {
			checkCalls(t, f, tools, text)
		}
	}
}

// checkedLater says that the length of a text of the tool isn't held.
func checkedLater(f *wire.Family, tool string) bool {
	return f.Calls.Form == wire.Parameters && tool == "get_weather"
}
