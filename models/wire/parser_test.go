package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// parse feeds pieces and returns the joined events in printed form.
func parse(f *Family, pieces ...string) (string, *Parser) { return parseWith(f, nil, pieces...) }

func parseWith(f *Family, schema func(string) json.RawMessage, pieces ...string) (string, *Parser) {
	p := f.NewParser()
	p.Schema = schema
	var all []Event
	add := func(evs []Event) {
		for _, e := range evs {
			if n := len(all); n > 0 && e.Kind == all[n-1].Kind && e.Call == all[n-1].Call && (e.Kind == Text || e.Kind == Reasoning || e.Kind == Arguments) {
				all[n-1].Text += e.Text
				continue
			}
			all = append(all, e)
		}
	}
	for _, s := range pieces {
		add(p.Feed(s))
	}
	add(p.Close())
	var b strings.Builder
	for _, e := range all {
		switch e.Kind {
		case CallStart:
			fmt.Fprintf(&b, "start %d %q%s\n", e.Call, e.Name, strings.Repeat(" "+e.ID, min(1, len(e.ID))))
		case CallEnd:
			fmt.Fprintf(&b, "end %d\n", e.Call)
		case Arguments:
			fmt.Fprintf(&b, "arguments %d %q\n", e.Call, e.Text)
		case Malformed:
			fmt.Fprintf(&b, "malformed %d %s\n", e.Call, e.Text)
		default:
			fmt.Fprintf(&b, "%v %q\n", e.Kind, e.Text)
		}
	}
	if p.Open() {
		b.WriteString("open\n")
	}
	return b.String(), p
}

var parserTests = []struct{ name, in, want string }{
	{"text", "Hello, world.\n", "text \"Hello, world.\\n\"\n"},
	{"nothing", "", ""},
	{"only whitespace is text", " \n ", "text \" \\n \"\n"},
	{"call", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
		"start 0 \"f\"\narguments 0 \"{\\\"a\\\": 1}\"\nend 0\n"},
	{"without newlines", `<tool_call>{"name":"f","arguments":{}}</tool_call>`, "start 0 \"f\"\narguments 0 \"{}\"\nend 0\n"},
	{"text around", "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n Done.\n",
		"text \"Let me see.\"\nstart 0 \"f\"\narguments 0 \"{}\"\nend 0\ntext \"\\n Done.\\n\"\n"},
	{"one newline is framing", "A\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
		"text \"A\\n\"\nstart 0 \"f\"\narguments 0 \"{}\"\nend 0\n"},
	{"whitespace between calls", "\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n \n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>\n\n",
		"start 0 \"f\"\narguments 0 \"{}\"\nend 0\nstart 1 \"g\"\narguments 1 \"{}\"\nend 1\n"},
	{"arguments first", `<tool_call>{"arguments": {"x": [1, "}"]} , "name": "f"}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"{\\\"x\\\": [1, \\\"}\\\"]}\"\nend 0\n"},
	{"other members", `<tool_call>{"id": {"name": "no"}, "name": "f", "arguments": 1.5e3, "x": []}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"1.5e3\"\nend 0\n"},
	{"tags inside a string", `<tool_call>{"name": "f", "arguments": {"q": "</tool_call><tool_call>{\"name\": \"g\"}"}}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"{\\\"q\\\": \\\"</tool_call><tool_call>{\\\\\\\"name\\\\\\\": \\\\\\\"g\\\\\\\"}\\\"}\"\nend 0\n"},
	{"escaped name", `<tool_call>{"na\u006de": "a\"\u00e9", "arguments": {}}</tool_call>`,
		"start 0 \"a\\\"é\"\narguments 0 \"{}\"\nend 0\n"},
	{"whitespace of arguments is kept", "<tool_call>{\"name\":\"f\",\"arguments\": \n {\n \"a\" : 1 } \n}</tool_call>",
		"start 0 \"f\"\narguments 0 \"{\\n \\\"a\\\" : 1 }\"\nend 0\n"},
	{"a string as arguments", `<tool_call>{"name":"f","arguments":"{}"}</tool_call>`, "start 0 \"f\"\narguments 0 \"\\\"{}\\\"\"\nend 0\n"},
	{"cut in arguments", `<tool_call>{"name":"f","arguments":{"a": tr`, "start 0 \"f\"\narguments 0 \"{\\\"a\\\": tr\"\nopen\n"},
	{"cut in the trigger", "a\n<tool_ca", "text \"a\\n<tool_ca\"\n"},
	{"tag missing at the end", `<tool_call>{"name":"f","arguments":{}}`, "start 0 \"f\"\narguments 0 \"{}\"\nend 0\n"},
	{"tag cut at the end", "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n</tool", "start 0 \"f\"\narguments 0 \"{}\"\nend 0\n"},
	{"no object", "Use <tool_call> tags.</tool_call> ok", "text \"Use \"\nmalformed -1 't' where the object of the call is expected\ntext \" ok\"\n"},
	{"empty", "<tool_call></tool_call>", "malformed -1 '<' where the object of the call is expected\n"},
	{"name missing", `<tool_call>{"arguments":{}}</tool_call>x`, "malformed -1 the call has no \"name\"\ntext \"x\"\n"},
	{"arguments missing", `<tool_call>{"name":"f"}</tool_call>`, "start 0 \"f\"\nmalformed 0 the call has no \"arguments\"\n"},
	{"arguments twice", `<tool_call>{"name":"f","arguments":1,"arguments":2}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"1\"\nmalformed 0 \"arguments\" stands twice\n"},
	{"name twice", `<tool_call>{"name":"f","name":"g","arguments":2}</tool_call>`, "start 0 \"f\"\nmalformed 0 \"name\" stands twice\n"},
	{"name no string", `<tool_call>{"name":7}</tool_call>`, "malformed -1 '7' where the name is expected, which is a string\n"},
	{"name empty", `<tool_call>{"name":""}</tool_call>`, "malformed -1 the name is empty\n"},
	{"bad value", `<tool_call>{"name":"f","arguments":{"a":01}}</tool_call>.`,
		"start 0 \"f\"\narguments 0 \"{\\\"a\\\":0\"\nmalformed 0 '1' where ',' or the end of '{' is expected\ntext \".\"\n"},
	{"bad bracket", `<tool_call>{"name":"f","arguments":[1}}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"[1\"\nmalformed 0 '}' where ',' or the end of '[' is expected\n"},
	{"number after malformed", `<tool_call>{"name":"f","arguments":[}</tool_call><tool_call>{"name":"g","arguments":{}}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"[\"\nmalformed 0 '}' where a value is expected\nstart 1 \"g\"\narguments 1 \"{}\"\nend 1\n"},
	{"something after the object", `<tool_call>{"name":"f","arguments":{}}}</tool_call>`,
		"start 0 \"f\"\narguments 0 \"{}\"\nmalformed 0 '}' follows the object of the call\n"},
	{"control character", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\n\"}}</tool_call>",
		"start 0 \"f\"\narguments 0 \"{\\\"a\\\":\\\"\"\nmalformed 0 control character '\\n' in a string\n"},
	{"reasoning", "<think>\nI could <tool_call>{} it.\n\nYes.\n</think>\n\nHi\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
		"reasoning \"I could <tool_call>{} it.\\n\\nYes.\"\ntext \"Hi\"\nstart 0 \"f\"\narguments 0 \"{}\"\nend 0\n"},
	{"empty reasoning", " \n<think>\n\n</think>\n\nHi", "text \"Hi\"\n"},
	{"reasoning cut", "<think>\nlong\n\n</thi", "reasoning \"long\\n\\n</thi\"\n"},
	{"reasoning cut at a newline", "<think>\nlong\n\n", "reasoning \"long\"\n"},
	{"almost the tag in reasoning", "<think><</</think</think></think>x", "reasoning \"<</</think\"\ntext \"</think>x\"\n"},
	{"think later is text", "Hi <think>x</think>", "text \"Hi <think>x</think>\"\n"},
	{"almost think", " <thin air", "text \" <thin air\"\n"},
	{"think then only a call", "<think>\nx\n</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n",
		"reasoning \"x\"\nstart 0 \"f\"\narguments 0 \"{}\"\nend 0\n"},
}

func TestParser(t *testing.T) {
	f, _ := ByName("qwen3")
	for _, tt := range parserTests {
		got, p := parse(f, tt.in)
		if got != tt.want {
			t.Errorf("%s: %q:\ngot\n%swant\n%s", tt.name, tt.in, got, tt.want)
		}
		if p.Raw() != tt.in {
			t.Errorf("%s: Raw = %q", tt.name, p.Raw())
		}
		var bytewise []string
		for i := range len(tt.in) {
			bytewise = append(bytewise, tt.in[i:i+1])
		}
		if got, _ := parse(f, bytewise...); got != tt.want {
			t.Errorf("%s, byte by byte:\ngot\n%swant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestParserDepth(t *testing.T) {
	f, _ := ByName("qwen3")
	got, _ := parse(f, `<tool_call>{"name":"f","arguments":`+strings.Repeat("[", 100_000)+`</tool_call>`)
	if !strings.Contains(got, "malformed 0 nested deeper than 500") {
		t.Errorf("got %.300s", got)
	}
}

// TestParserCuts says that the cutting of the text changes nothing, and that
// events hold whole runes.
func TestParserCuts(t *testing.T) {
	f, _ := ByName("qwen3")
	atoms := []string{
		"<tool_call>", "</tool_call>", "<think>", "</think>", "\n", " ", "Hi", "é", "🙂", "{", "}", `{"name": "f", "arguments": `,
		`{"a": "é🙂\u00e9", "b": [1.5, true, null]}`, `"x"`, `,`, `"name":"g"`, `"arguments":{}`, "<", "</", "<tool", "call>", "12", "-", "\\", `"`,
		"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(atoms), 0, 14).Draw(t, "atoms"), "")
		whole, _ := parse(f, text)
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(text)), 0, 12).Draw(t, "cuts")
		p := f.NewParser()
		var pieces []string
		at := 0
		for _, c := range cuts {
			if c < at {
				continue
			}
			pieces = append(pieces, text[at:c])
			at = c
		}
		pieces = append(pieces, text[at:])
		got, _ := parse(f, pieces...)
		if got != whole {
			t.Fatalf("%q cut to %q:\n%snot\n%s", text, pieces, got, whole)
		}
		for _, s := range pieces {
			for _, e := range p.Feed(s) {
				if !utf8.ValidString(e.Text) {
					t.Fatalf("event %+v holds a broken rune", e)
				}
			}
		}
		p.Close()
		if p.Raw() != text {
			t.Fatalf("Raw = %q of %q", p.Raw(), text)
		}
	})
}

// TestParserReadsCallText says that what CallText and TurnText write is read
// back, for any name and any JSON as arguments.
func TestParserReadsCallText(t *testing.T) {
	f, _ := ByName("qwen3")
	rapid.Check(t, func(t *rapid.T) {
		var calls []Call
		var want strings.Builder
		content := rapid.SampledFrom([]string{"", "Hello.", "Let me look\nat it: "}).Draw(t, "content")
		if content != "" {
			fmt.Fprintf(&want, "text %q\n", content)
		}
		g := rapid.Custom(func(t *rapid.T) any { return anyJSON(t, 3) })
		for i := range rapid.IntRange(1, 3).Draw(t, "calls") {
			args, err := json.Marshal(g.Draw(t, "arguments"))
			if err != nil {
				t.Fatal(err)
			}
			c := Call{Name: rapid.StringN(1, 12, -1).Draw(t, "name"), Arguments: string(args)}
			calls = append(calls, c)
			fmt.Fprintf(&want, "start %d %q\narguments %d %q\nend %d\n", i, c.Name, i, c.Arguments, i)
		}
		text := f.TurnText(content, calls)
		if got, _ := parse(f, text); got != want.String() {
			t.Fatalf("%q:\ngot\n%swant\n%s", text, got, want.String())
		}
	})
}

func anyJSON(t *rapid.T, depth int) any {
	k := rapid.IntRange(0, 6).Draw(t, "kind")
	switch {
	case k == 0:
		return nil
	case k == 1:
		return rapid.Bool().Draw(t, "bool")
	case k == 2:
		return rapid.Float64().Draw(t, "number")
	case k == 3 && depth > 0:
		a := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			a = append(a, anyJSON(t, depth-1))
		}
		return a
	case k == 4 && depth > 0:
		o := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			o[rapid.String().Draw(t, "key")] = anyJSON(t, depth-1)
		}
		return o
	}
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"<tool_call>", "</tool_call>", `\"`, "}", "é"})).Draw(t, "string")
}

// TestParserJudgesJSON compares with encoding/json which arguments are JSON.
func TestParserJudgesJSON(t *testing.T) {
	f, _ := ByName("qwen3")
	atoms := []string{"{", "}", "[", "]", ",", ":", `"a"`, `"`, `\`, "u00e9", "n", "true", "tru", "null", "false", "0", "1", "-", ".", "e", "+", "5", " ", "\n", "é"}
	rapid.Check(t, func(t *rapid.T) {
		args := strings.Join(rapid.SliceOfN(rapid.SampledFrom(atoms), 1, 10).Draw(t, "atoms"), "")
		text := `<tool_call>{"name":"f","arguments":` + args + `}</tool_call>`
		got, _ := parse(f, text)
		whole := strings.HasSuffix(got, "end 0\n")
		var o map[string]json.RawMessage
		object := strings.TrimSuffix(strings.TrimPrefix(text, "<tool_call>"), "</tool_call>")
		valid := json.Unmarshal([]byte(object), &o) == nil && strings.Count(object, "arguments") == 1
		if whole != valid {
			t.Fatalf("%q: call is whole: %v; JSON is valid: %v\n%s", object, whole, valid, got)
		}
		if whole {
			if want := fmt.Sprintf("arguments 0 %q\n", string(o["arguments"])); !strings.Contains(got, want) && len(o) == 2 {
				t.Fatalf("%q: got\n%swant %s", object, got, want)
			}
		}
	})
}

func FuzzParser(f *testing.F) {
	for _, tt := range parserTests {
		f.Add(tt.in, uint(3))
	}
	fam, _ := ByName("qwen3")
	f.Fuzz(func(t *testing.T, text string, cut uint) {
		whole, p := parse(fam, text)
		if p.Raw() != text {
			t.Fatal("Raw differs")
		}
		n := int(cut % uint(len(text)+1))
		if got, _ := parse(fam, text[:n], text[n:]); got != whole {
			t.Fatalf("cut at %d:\n%snot\n%s", n, got, whole)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	f, _ := ByName("qwen3")
	text := strings.Repeat("Some words before the call, and so on.\n", 20) +
		f.CallText(Call{Name: "get_weather", Arguments: `{"city": "` + strings.Repeat("Oslo and more ", 100) + `"}`})
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		p := f.NewParser()
		for i := 0; i < len(text); i += 5 {
			p.Feed(text[i:min(i+5, len(text))])
		}
		p.Close()
	}
}
