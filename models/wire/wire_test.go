package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var weather = json.RawMessage(`{"function":{"parameters":{"type":"object","properties":{"city":{"type":"string"}}},"name":"get_weather"},"type":"function"}`)

const weatherText = `{"type": "function", "function": {"name": "get_weather", "description": null, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}`

func TestByName(t *testing.T) {
	for alias, want := range map[string]string{"hermes": "hermes", "qwen3": "hermes", "chatml": "chatml", "smollm2": "chatml"} {
		f, err := ByName(alias)
		if err != nil || f.Name != want {
			t.Errorf("ByName(%q) = %v, %v", alias, f, err)
		}
	}
	if _, err := ByName("gpt"); err == nil || !strings.Contains(err.Error(), "hermes, qwen3") {
		t.Errorf("ByName(gpt): %v", err)
	}
}

func TestAppendTool(t *testing.T) {
	for in, want := range map[string]string{
		string(weather):                        weatherText,
		`{"name":"x","description":"d"}`:       `{"type": "function", "function": {"name": "x", "description": "d", "parameters": null}}`,
		`{"function":{"name":"x","strict":1}}`: `{"type": "function", "function": {"name": "x", "description": null, "parameters": null, "strict": 1}}`,
		`[1,2]`:                                `[1,2]`,
		`{"function":7}`:                       `{"function":7}`,
		`nonsense`:                             `nonsense`,
	} {
		if got := string(AppendTool(nil, json.RawMessage(in))); got != want {
			t.Errorf("AppendTool(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestAppendPythonErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "ends where a value",
		"{":                       "a key is expected",
		`{"a" 1}`:                 "':' is expected",
		`[1 2]`:                   "',' or ']'",
		`01`:                      "something follows",
		`1.`:                      "a digit",
		`NaN`:                     "unexpected 'N'",
		`"a`:                      "does not end",
		`"\x"`:                    "bad escape",
		"\"\n\"":                  "control character",
		`tru`:                     "unknown word",
		strings.Repeat("[", 5000): "nested deeper",
	} {
		got, err := AppendPython([]byte("kept"), []byte(in))
		if err == nil || !strings.Contains(err.Error(), want) || string(got) != "kept" {
			t.Errorf("AppendPython(%.20q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// TestOwnedText says that a conversation whose tools, calls and results are
// written into the content of plain turns renders as the template renders them.
func TestOwnedText(t *testing.T) {
	f, _ := ByName("qwen3")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "Hi", "a\nb", "{}"})
		call := Call{Name: "get_weather", Arguments: `{"city": "Oslo"}`}
		var native, owned []Message
		hasSystem := rapid.Bool().Draw(t, "system")
		system := text.Draw(t, "system text")
		if hasSystem {
			native = append(native, Message{Role: "system", Content: system})
		}
		owned = append(owned, Message{Role: "system", Content: f.SystemText(system, hasSystem, f.ToolsText([]json.RawMessage{weather}, ""))})
		for range rapid.IntRange(1, 3).Draw(t, "turns") {
			user := Message{Role: "user", Content: text.Draw(t, "user")}
			content := text.Draw(t, "content")
			calls := make([]Call, rapid.IntRange(1, 2).Draw(t, "calls"))
			var results []string
			var tools []Message
			for i := range calls {
				calls[i] = call
				results = append(results, text.Draw(t, "result"))
				tools = append(tools, Message{Role: "tool", Content: results[i]})
			}
			native = append(append(native, user, Message{Role: "assistant", Content: content, Calls: calls}), tools...)
			owned = append(owned, user, Message{Role: "assistant", Content: f.TurnText(content, calls)}, Message{Role: "user", Content: f.ResponseText(results)})
		}
		opt := Options{AddGenerationPrompt: true}
		got, want := string(f.Render(nil, owned, nil, opt)), string(f.Render(nil, native, []json.RawMessage{weather}, opt))
		if got != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

func TestTexts(t *testing.T) {
	f, _ := ByName("hermes")
	if got, want := f.LateText([]json.RawMessage{weather, weather}), "<tools>\n"+weatherText+"\n"+weatherText+"\n</tools>"; got != want {
		t.Errorf("LateText = %q", got)
	}
	c := Call{Name: "a\"b", Arguments: `{"x":1}`}
	if got, want := f.CallText(c), "<tool_call>\n{\"name\": \"a\\\"b\", \"arguments\": {\"x\":1}}\n</tool_call>"; got != want {
		t.Errorf("CallText = %q", got)
	}
	if !strings.HasPrefix(f.CallBegin("x"), f.Trigger()) || !strings.HasSuffix(f.CallEnd(), f.Calls.Tag) {
		t.Error("a call does not start with the trigger or end with the tag")
	}
	plain, with := f.ToolsText(nil, ""), f.ToolsText(nil, "Also: mail, calendar.")
	if strings.Replace(with, "Also: mail, calendar.\n\n", "", 1) != plain {
		t.Errorf("ToolsText with a directory = %q", with)
	}
}

func FuzzAppendPython(f *testing.F) {
	f.Add(`{"a":[1,2.5e3,"\u00e9"],"a":null}`)
	f.Fuzz(func(t *testing.T, in string) {
		once, err := AppendPython(nil, []byte(in))
		if err == nil && !json.Valid([]byte(in)) {
			t.Fatalf("%q is no JSON but was read", in)
		}
		if err != nil || strings.Contains(string(once), "Infinity") {
			return
		}
		twice, err := AppendPython(nil, once)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%q -> %q -> %q, %v", in, once, twice, err)
		}
	})
}
