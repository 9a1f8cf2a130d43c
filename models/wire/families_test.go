package wire

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files of the families")

// TestFamiliesGolden shows the texts of every family.
func TestFamiliesGolden(t *testing.T) {
	var b strings.Builder
	calls := []Call{{Name: "get_weather", Arguments: `{"city": "Zürich\nHB", "days": 3, "flags": [true, null]}`}, {Name: "now"}}
	for _, name := range Names() {
		f, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "=== %s, also %s\n--- triggers %q\n", f.Name, strings.Join(f.Aliases, ", "), f.Triggers())
		fmt.Fprintf(&b, "--- call\n%s\n--- turn\n%s\n", f.CallText(calls[0]), f.TurnText("One moment.", calls))
		if !f.TemplateOnly {
			fmt.Fprintf(&b, "--- tools\n%s\n--- late\n%s\n", f.ToolsText([]json.RawMessage{weather}, "Also: mail."), f.LateText([]json.RawMessage{weather}))
		}
	}
	const file = "testdata/families.golden.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the texts of the families changed; read the diff and run with -update:\n%s", b.String())
	}
}

// parsedCall is a call as read back.
type parsedCall struct {
	name, id, args string
	whole          bool
}

// readCalls feeds text in pieces and gathers its calls, text and faults.
func readCalls(f *Family, schema func(string) json.RawMessage, pieces ...string) (calls []parsedCall, text string, malformed []string, p *Parser) {
	p = f.NewParser()
	p.Schema = schema
	var b strings.Builder
	take := func(evs []Event) {
		for _, e := range evs {
			switch e.Kind {
			case Text:
				b.WriteString(e.Text)
			case CallStart:
				calls = append(calls, parsedCall{name: e.Name, id: e.ID})
			case Arguments:
				calls[len(calls)-1].args += e.Text
			case CallEnd:
				calls[len(calls)-1].whole = true
			case Malformed:
				malformed = append(malformed, e.Text)
			}
		}
	}
	for _, s := range pieces {
		take(p.Feed(s))
	}
	take(p.Close())
	return calls, b.String(), malformed, p
}

// cut cuts a text into pieces at random.
func cut(t *rapid.T, text string) []string {
	var pieces []string
	for text != "" {
		n := rapid.IntRange(1, min(len(text), rapid.SampledFrom([]int{1, 3, 9, 200}).Draw(t, "most"))).Draw(t, "n")
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

// schemaOf is a schema that names the type of every member of an object.
func schemaOf(arguments string) json.RawMessage {
	var members map[string]json.RawMessage
	json.Unmarshal([]byte(arguments), &members)
	properties := map[string]any{}
	for k, v := range members {
		properties[k] = map[string]string{"type": valueType(v)}
	}
	out, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return out
}

func sameJSON(t interface{ Fatalf(string, ...any) }, a, b string) bool {
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("no JSON: %q: %v", a, err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("no JSON: %q: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}

// TestFamiliesReadTurnText says that what TurnText writes is read back as the
// calls it was written from, however it is cut.
func TestFamiliesReadTurnText(t *testing.T) {
	for _, name := range Names() {
		f, _ := ByName(name)
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var calls []Call
				schemas := map[string]json.RawMessage{}
				for i := range rapid.IntRange(1, 3).Draw(t, "calls") {
					args := map[string]any{}
					for range rapid.IntRange(0, 4).Draw(t, "members") {
						key := rapid.StringMatching(`[a-zA-Zé_$][a-zA-Z0-9_. -]{0,6}[a-z]`).Draw(t, "key")
						args[key] = anyJSON(t, 2)
					}
					raw, err := json.Marshal(args)
					if err != nil {
						t.Fatal(err)
					}
					c := Call{Name: fmt.Sprintf("%s%d", rapid.StringMatching(`[a-z_.-]{1,9}`).Draw(t, "name"), i), Arguments: string(raw)}
					if err := f.CheckName(c.Name); err != nil {
						t.Fatal(err)
					}
					calls = append(calls, c)
					schemas[c.Name] = schemaOf(c.Arguments)
				}
				content := rapid.SampledFrom([]string{"", "Hello.", "Let me look\nat it: "}).Draw(t, "content")
				if f.Calls.Form == Channels && content != "" {
					content = "<|channel|>commentary<|message|>" + content + "<|end|><|start|>assistant"
				}
				text := f.TurnText(content, calls)
				got, said, malformed, p := readCalls(f, func(n string) json.RawMessage { return schemas[n] }, cut(t, text)...)
				if len(malformed) > 0 || len(got) != len(calls) || p.Open() {
					t.Fatalf("%q: %d of %d calls, malformed %q, open %v", text, len(got), len(calls), malformed, p.Open())
				}
				for i, c := range got {
					if c.name != calls[i].Name || !c.whole || !sameJSON(t, c.args, calls[i].Arguments) && !spells(f, calls[i].Arguments) {
						t.Fatalf("%q: call %d is %+v, not %+v", text, i, c, calls[i])
					}
				}
				if f.Calls.Form != Channels && said != content {
					t.Fatalf("%q: text %q, not %q", text, said, content)
				}
				if p.Raw() != text {
					t.Fatal("Raw differs")
				}
			})
		})
	}
}

// spells says that arguments hold the end of a value, which is written apart.
func spells(f *Family, arguments string) bool {
	var v any
	json.Unmarshal([]byte(arguments), &v)
	return f.Calls.End != "" && strings.Contains(fmt.Sprint(v), f.Calls.End)
}

// atoms are pieces of a family's syntax, and of its faults.
func atoms(f *Family) []string {
	s := &f.Calls
	out := []string{"\n", " ", "Hi", "é", "🙂", "{", "}", "[", "]", `"`, ",", ":", "<", ">", "f", "1", "null", `{"a": "é🙂", "b": [1]}`, `{"name": "f", "parameters": {}}`, `{"name": "f", "arguments": {"x": 1}}`}
	for _, t := range []string{s.Section, s.SectionEnd, s.Open, s.Name, s.Arguments, s.Close, s.Tag, s.Before, s.Prefix, s.AfterID, s.Parameter, s.Is, s.End, s.Join, f.ThinkOpen, f.ThinkClose} {
		if t != "" {
			out = append(out, t)
		}
	}
	if s.Form == Channels {
		out = append(out, messageStart+"assistant", channelTag, messageTag, "analysis", "final", "commentary", " to=functions.f", " to=python", "<|end|>", "<|return|>", "<|constrain|>json")
	}
	call := f.CallText(Call{Name: "f", Arguments: `{"city": "Oslo"}`})
	half := strings.Index(call, "Oslo")
	return append(out, append([]string{call, call[:half], call[half:]}, s.NameEnds...)...)
}

// TestFamiliesCuts says that the cutting of any text changes nothing, that
// events hold whole runes, that arguments of whole calls are JSON, and that a
// text that holds a trigger yields a call, a fault or an open end.
func TestFamiliesCuts(t *testing.T) {
	schema := func(string) json.RawMessage {
		return json.RawMessage(`{"properties": {"city": {"type": "string"}, "f": {"type": ["integer", "null"]}, "a": {}}}`)
	}
	for _, name := range Names() {
		f, _ := ByName(name)
		all := atoms(f)
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(all), 0, 14).Draw(t, "atoms"), "")
				whole, _ := parseWith(f, schema, text)
				if got, _ := parseWith(f, schema, cut(t, text)...); got != whole {
					t.Fatalf("%q:\n%snot\n%s", text, got, whole)
				}
				calls, said, malformed, p := readCalls(f, schema, text)
				for _, c := range calls {
					if c.whole && !json.Valid([]byte(c.args)) {
						t.Fatalf("%q: arguments %q", text, c.args)
					}
				}
				if f.ThinkOpen == "" && f.Calls.Form != Channels && f.Calls.Open != "" && strings.Contains(text, f.Trigger()) && len(calls) == 0 && len(malformed) == 0 && !p.Open() {
					t.Fatalf("%q: a trigger is in it, but there is no call and no fault: text %q", text, said)
				}
				q := f.NewParser()
				q.Schema = schema
				for _, s := range cut(t, text) {
					for _, e := range q.Feed(s) {
						if !utf8.ValidString(e.Text) {
							t.Fatalf("event %+v holds a broken rune", e)
						}
					}
				}
			})
		})
	}
}

func TestCheckName(t *testing.T) {
	for _, family := range Names() {
		f, _ := ByName(family)
		for _, name := range []string{"get_weather", "a-b.c", "X1"} {
			if err := f.CheckName(name); err != nil {
				t.Errorf("%s: %v", family, err)
			}
		}
		bad := []string{"", "\xff", strings.Repeat("x", 2000)}
		if f.Calls.Form != Object {
			bad = append(bad, `a>b`, "a\nb", "</function>", " a", "a ", "a<b", "a[b", "a|b", "x</arg_key>", "[ARGS]", "\u2028")
		}
		if f.Calls.Only != "" {
			bad = append(bad, "a:0", "a b", "é", `"`)
		}
		for _, name := range bad {
			var e *NameError
			if err := f.CheckName(name); !errors.As(err, &e) || e.Family != f.Name {
				t.Errorf("%s: name %.20q: %v", family, name, err)
			}
		}
		if f.Calls.Form == Parameters {
			for _, key := range []string{"", "a>b", "x\ny", "</parameter>"} {
				if f.CheckKey(key) == nil {
					t.Errorf("%s: key %q passes", family, key)
				}
			}
		}
	}
}

// TestNamesStayInside says that no name that CheckName lets through is read as
// anything but itself.
func TestNamesStayInside(t *testing.T) {
	parts := []string{"a", "é", `"`, "'", "\\", ">", "<", "\n", " ", "</function>", "<arg_key>", ":1", "functions.", "[ARGS]", "{", "}", ",", "/", "to=", "<|call|>", "日本"}
	for _, family := range Names() {
		f, _ := ByName(family)
		rapid.Check(t, func(t *rapid.T) {
			name := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 5).Draw(t, "parts"), "")
			if f.CheckName(name) != nil {
				return
			}
			text := f.TurnText("", []Call{{Name: name, Arguments: `{"a": 1}`}})
			got, said, malformed, _ := readCalls(f, nil, text)
			if len(got) != 1 || got[0].name != name || !got[0].whole || said != "" || len(malformed) > 0 {
				t.Fatalf("%s: %q is read as %+v, text %q, malformed %q", family, text, got, said, malformed)
			}
		})
	}
}

func TestReadParameter(t *testing.T) {
	schema := json.RawMessage(`{"$defs": {"n": {"type": "integer"}}, "properties": {"s": {"type": "string"}, "n": {"type": "integer"},
		"f": {"type": "number"}, "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"items": {}}, "m": {"type": ["string", "null"]},
		"u": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "e": {"enum": ["7", 8]}, "c": {"const": 5}, "r": {"$ref": "#/$defs/n"}, "x": {}}}`)
	for _, tt := range []struct{ family, key, text, want string }{
		{"qwen3-coder", "s", "1", `"1"`}, {"qwen3-coder", "s", "null", `"null"`}, {"qwen3-coder", "m", "NULL", "null"}, {"qwen3-coder", "m", "x", `"x"`},
		{"qwen3-coder", "n", "12", "12"}, {"qwen3-coder", "n", "1_0", `"1_0"`}, {"qwen3-coder", "n", "null", "null"}, {"qwen3-coder", "f", "1e5", "1e5"},
		{"qwen3-coder", "b", "True", "true"}, {"qwen3-coder", "b", "yes", `"yes"`}, {"qwen3-coder", "o", `{"a":1}`, `{"a":1}`}, {"qwen3-coder", "o", `{'a':1}`, `"{'a':1}"`},
		{"qwen3-coder", "l", " [1] ", "[1]"}, {"qwen3-coder", "u", "5", `"5"`}, {"qwen3-coder", "e", "8", `"8"`}, {"qwen3-coder", "c", "5", "5"},
		{"qwen3-coder", "r", "5", "5"}, {"qwen3-coder", "x", "5", `"5"`}, {"qwen3-coder", "nosuch", "5", `"5"`}, {"qwen3-coder", "nosuch", "null", "null"},
		{"glm-4.5", "s", "1", `"1"`}, {"glm-4.5", "x", "5", "5"}, {"glm-4.5", "x", "five", `"five"`}, {"glm-4.5", "nosuch", `{"a":1}`, `{"a":1}`},
		{"glm-4.5", "s", "null", `"null"`}, {"glm-4.5", "n", "null", "null"}, {"glm-4.5", "b", "true", "true"}, {"glm-4.5", "s", "a\"\\\n\x01", `"a\"\\\n\u0001"`},
	} {
		f, _ := ByName(tt.family)
		if got := string(f.ReadParameter(schema, tt.key, tt.text)); got != tt.want {
			t.Errorf("%s: %s %q is %s, not %s", tt.family, tt.key, tt.text, got, tt.want)
		}
	}
}

func FuzzFamilies(f *testing.F) {
	for i, name := range Names() {
		fam, _ := ByName(name)
		for _, a := range atoms(fam) {
			f.Add(a+a, uint(1), uint(i))
		}
	}
	f.Fuzz(func(t *testing.T, text string, at, which uint) {
		fam := families[which%uint(len(families))]
		whole, p := parse(fam, text)
		if p.Raw() != text {
			t.Fatal("Raw differs")
		}
		n := int(at % uint(len(text)+1))
		if got, _ := parse(fam, text[:n], text[n:]); got != whole {
			t.Fatalf("%s: cut at %d:\n%snot\n%s", fam.Name, n, got, whole)
		}
	})
}

func TestForModel(t *testing.T) {
	for model, want := range map[string]string{
		"Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder", "Qwen/Qwen3-8B": "hermes", "meta-llama/Llama-3.1-8B-Instruct": "llama3",
		"deepseek-ai/DeepSeek-V3.1": "deepseek-v3.1", "zai-org/GLM-4.6": "glm-4.5", "zai-org/GLM-4.7-Flash": "glm-4.7",
		"moonshotai/Kimi-K2-Instruct": "kimi-k2", "openai/gpt-oss-120b": "harmony", "mistralai/Devstral-Small-2507": "mistral",
		"mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral-v11", "someone/else": "",
	} {
		got := ""
		if f := ForModel(model); f != nil {
			got = f.Name
		}
		if got != want {
			t.Errorf("%s is of family %q, not %q", model, got, want)
		}
	}
	for _, name := range append(Names(), Aliases()...) {
		if _, err := ByName(name); err != nil {
			t.Error(err)
		}
	}
}
