package wire

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// request is one line of the corpus, the input of tools/render-golden.py.
type request struct {
	Messages            []corpusMessage   `json:"messages"`
	Tools               []json.RawMessage `json:"tools,omitempty"`
	AddGenerationPrompt bool              `json:"add_generation_prompt"`
	EnableThinking      *bool             `json:"enable_thinking,omitempty"`
}

type corpusMessage struct {
	Role      string       `json:"role"`
	Content   string       `json:"content"`
	Reasoning string       `json:"reasoning,omitempty"`
	Calls     []corpusCall `json:"calls,omitempty"`
}

type corpusCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (r *request) render(f *Family) string {
	var msgs []Message
	for _, m := range r.Messages {
		out := Message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning}
		for _, c := range m.Calls {
			out.Calls = append(out.Calls, Call{Name: c.Name, Arguments: c.Arguments})
		}
		msgs = append(msgs, out)
	}
	return string(f.Render(nil, msgs, r.Tools, Options{r.AddGenerationPrompt, r.EnableThinking}))
}

// corpus draws n conversations that reach the branches of the templates: tool
// loops, reasoning given apart and inside content, system messages in the
// middle, results at odd places, unusual JSON.
func corpus(seed uint64, n int) []request {
	g := corpusGen{rand.New(rand.NewPCG(seed, 0))}
	out := make([]request, n)
	for i := range out {
		out[i] = g.request()
	}
	return out
}

type corpusGen struct{ *rand.Rand }

func (g corpusGen) chance(percent int) bool { return g.IntN(100) < percent }

func (g corpusGen) pick(s []string) string { return s[g.IntN(len(s))] }

var corpusWords = []string{
	"the", "weather", "in", "Oslo", "close ticket 4711", "zürich", "日本語", "<b>", "&amp;", "\"quoted\"", "it's",
	"back\\slash", "\n", "\n\n", "\t", "€", "🙂", "<think>", "</think>", "<tool_call>", "<tool_response>", "</tool_response>", "{}", "\u007f", "\u2028",
}

func (g corpusGen) text() string {
	var b strings.Builder
	for i, n := 0, g.IntN(8); i < n; i++ {
		if i > 0 && g.chance(80) {
			b.WriteByte(' ')
		}
		b.WriteString(g.pick(corpusWords))
	}
	return b.String()
}

var corpusNumbers = []string{
	"0", "-0", "7", "-12", "123456789012345678901234567890", "1.0", "0.1", "-0.0", "1e5", "1E+16", "1e15", "12345678901234567.0",
	"1e22", "1.5e-7", "0.0001", "0.00001", "5e-324", "1.7976931348623157e308", "1e400", "-1e400", "100000000000000000000.5", "3.14159265358979",
}

func (g corpusGen) jsonString() string {
	if g.chance(15) {
		return g.pick([]string{`"\u00e9\ud83d\ude42"`, `"\/\b\f\u0001\u001f"`, `"a\"b\\c"`, `"\u0041"`, `""`})
	}
	b, _ := json.Marshal(g.text())
	return string(b)
}

func (g corpusGen) space() string { return g.pick([]string{"", "", "", " ", "  ", "\n", "\t "}) }

func (g corpusGen) value(depth int) string {
	switch k := g.IntN(8); {
	case k < 2 && depth > 0:
		return g.object(depth - 1)
	case k == 2 && depth > 0:
		var e []string
		for range g.IntN(4) {
			e = append(e, g.space()+g.value(depth-1)+g.space())
		}
		return "[" + strings.Join(e, ",") + "]"
	case k < 5:
		return g.jsonString()
	case k == 5:
		return g.pick([]string{"true", "false", "null"})
	default:
		return g.pick(corpusNumbers)
	}
}

func (g corpusGen) object(depth int) string {
	var m []string
	for range g.IntN(5) {
		key := g.pick([]string{`"a"`, `"b"`, `"city"`, `"Straße"`, `"x\ny"`, `"\u0061"`, g.jsonString()})
		m = append(m, g.space()+key+g.space()+":"+g.space()+g.value(depth)+g.space())
	}
	return "{" + strings.Join(m, ",") + "}"
}

func (g corpusGen) tool() json.RawMessage {
	var m []string
	add := func(percent int, text string) {
		if g.chance(percent) {
			m = append(m, text)
		}
	}
	add(100, fmt.Sprintf(`"name":"%s_%d"`, g.pick([]string{"get_weather", "mail.send", "Übersetze"}), g.IntN(9)))
	add(70, `"description":`+g.jsonString())
	add(10, `"description":null`)
	add(85, `"parameters":`+g.object(3))
	add(15, `"strict":`+g.pick([]string{"true", "false", "null"}))
	add(10, `"defer_loading":`+g.pick([]string{"true", "false"}))
	add(15, `"vendor":{"x":1}`)
	g.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
	outer := []string{`"function":{` + strings.Join(m, ",") + `}`, `"type":"function"`}
	if g.chance(10) {
		outer = append(outer, `"defer_loading":true`)
	}
	if g.chance(10) {
		outer = append(outer, `"extra":[1]`)
	}
	g.Shuffle(len(outer), func(i, j int) { outer[i], outer[j] = outer[j], outer[i] })
	return json.RawMessage("{" + strings.Join(outer, ",") + "}")
}

func (g corpusGen) request() request {
	r := request{AddGenerationPrompt: g.chance(70)}
	if g.chance(40) {
		on := g.chance(50)
		r.EnableThinking = &on
	}
	for range g.IntN(4) {
		r.Tools = append(r.Tools, g.tool())
	}
	if g.chance(50) {
		r.Messages = append(r.Messages, corpusMessage{Role: "system", Content: g.text()})
	}
	for i, n := 0, 1+g.IntN(7); i < n || len(r.Messages) == 0; i++ {
		m := corpusMessage{Role: g.pick([]string{"user", "user", "assistant", "assistant", "tool", "tool", "system"}), Content: g.text()}
		switch {
		case m.Role == "user" && g.chance(20):
			m.Content = "<tool_response>" + m.Content + "</tool_response>"
		case m.Role == "assistant":
			if g.chance(30) {
				m.Content = "<think>\n" + g.text() + "\n</think>\n\n" + m.Content
			}
			if g.chance(30) {
				m.Reasoning = g.text()
			}
			for range g.IntN(3) {
				c := corpusCall{g.pick([]string{"get_weather", "mail.send", `od"d`}), g.object(3)}
				if g.chance(15) {
					c.Arguments = g.pick([]string{"", "{", "[]", `"text"`, "null", `{"a":1}x`, " {\"a\":1} "})
				}
				m.Calls = append(m.Calls, c)
			}
		}
		r.Messages = append(r.Messages, m)
	}
	return r
}
