package token_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

func qwen(t testing.TB) *token.Vocabulary {
	t.Helper()
	tok := tokenizer.Qwen3()
	end, _ := tok.ID("<|im_end|>")
	v, err := token.NewVocabulary(tok, end)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func arguments(t testing.TB, schema string) func() (token.Source, error) {
	t.Helper()
	c, err := grammar.Compile(grammar.Tool{Name: "t", Schema: []byte(schema)}, grammar.Closed)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Automaton()
	if err != nil {
		t.Fatal(err)
	}
	return a.Source
}

func hermes(t testing.TB, name, schema string) token.Tool {
	return token.Tool{Begin: "<tool_call>\n{\"name\": \"" + name + `", "arguments": `, End: "}\n</tool_call>", Arguments: arguments(t, schema)}
}

// TestCalls: what each tool_choice means, in bytes and in the tokens of Qwen3.
func TestCalls(t *testing.T) {
	v := qwen(t)
	tok := v.Tokenizer()
	special := map[string]int32{}
	for _, s := range []string{"<tool_call>", "</tool_call>"} {
		id, ok := tok.ID(s)
		if !ok {
			t.Fatal(s)
		}
		special[s] = id
	}
	tools := []token.Tool{hermes(t, "now", `{}`), hermes(t, "say", `{"properties":{"text":{"type":"string","maxLength":4}},"required":["text"]}`), hermes(t, "say_twice", `{"properties":{"n":{"type":"integer"}}}`)}
	now := "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
	say := "<tool_call>\n{\"name\": \"say\", \"arguments\": {\"text\": \"hi\"}}\n</tool_call>"
	twice := "<tool_call>\n{\"name\": \"say_twice\", \"arguments\": {\"n\": 12}}\n</tool_call>"
	long := strings.Replace(say, "hi", "12345", 1)
	other := strings.Replace(now, "now", "other", 1)
	response := arguments(t, `{"properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)
	for _, tt := range []struct {
		name     string
		calls    token.Calls
		yes, not []string
	}{
		{"auto", token.Calls{Tools: tools, FreeText: true, Most: -1}, []string{"", "text", now, "text " + now + "\n" + say, now + " text é", "a < b <tool", twice, "<<tool_cal<tool_call" + now}, []string{other, long, "<tool_call>", "x <tool_call>y", now[:30], "\x80", "<tool_call><tool_call>"}},
		{"auto, one", token.Calls{Tools: tools, FreeText: true, Most: 1}, []string{"", "text", "text " + say}, []string{now + "\n" + say, now + now, other, now + " text"}},
		{"required", token.Calls{Tools: tools, Most: -1, Separator: "\n"}, []string{now, now + "\n" + say, say + "\n" + say + "\n" + twice}, []string{"", "text", now + say, "text" + now, now + "\n", now + "text"}},
		{"required, two", token.Calls{Tools: tools, Most: 2, Separator: "\n"}, []string{now, now + "\n" + say}, []string{"", now + "\n" + say + "\n" + say}},
		{"named", token.Calls{Tools: tools[1:2], Most: 1}, []string{say}, []string{now, "", say + "\n" + say, long}},
		{"none", token.Calls{FreeText: true}, []string{"", "text", "<tool_cal", "{}"}, []string{now, "x<tool_call>"}},
		{"response", token.Calls{Tools: tools, Most: -1, Separator: "\n", Response: response}, []string{now, now + "\n" + say, `{"ok": true}`}, []string{"", "text", `{"ok": 1}`, `{"ok": true}` + now}},
		{"response alone", token.Calls{Response: response}, []string{`{"ok":true}`}, []string{"", now, "text"}},
	} {
		tt.calls.Trigger, tt.calls.Special = "<tool_call>", special
		g, err := token.New(v, 0, tt.calls.Source)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range append(append([]string(nil), tt.yes...), tt.not...) {
			want := i < len(tt.yes)
			for way, ids := range [][]int32{tok.Encode(nil, text), tok.EncodeOrdinary(nil, text)} {
				if got := writes(t, g, ids); got != want {
					t.Errorf("%s: %q in %d tokens (%d): %v", tt.name, text, len(ids), way, got)
				}
			}
			m, err := g.Matcher()
			if err != nil {
				t.Fatal(err)
			}
			if got := m.AdvanceBytes([]byte(text)) == nil && m.Accepts(); got != want {
				t.Errorf("%s: %q in bytes: %v", tt.name, text, got)
			}
		}
	}
}

// writes tells whether masks let ids pass and then the end.
func writes(t *testing.T, g *token.Grammar, ids []int32) bool {
	t.Helper()
	m, err := g.Matcher()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range append(ids[:len(ids):len(ids)], g.Vocabulary().Ends()[0]) {
		k, err := m.Mask()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Advance(id); (err == nil) != k.Has(id) {
			t.Fatalf("token %d: mask %v, %v", id, k.Has(id), err)
		} else if err != nil {
			return false
		}
	}
	return true
}

// TestCallsMasks: the masks around calls are those of the whole vocabulary.
func TestCallsMasks(t *testing.T) {
	pieces := strings.Fields("<t <tool _call> >{ {\" \"name \": now \"say say_ now\" \"arguments :{ {} }} <é text ok true \"}")
	pieces = append(pieces, ">\n", "}\n", "\n<", `": "`, `{"name": "`, " <", "<<", "l>\n{", ", ")
	v, err := token.NewVocabulary(tokentest.Ranks(t, pieces...), 1)
	if err != nil {
		t.Fatal(err)
	}
	tools := []token.Tool{hermes(t, "now", `{}`), hermes(t, "say", `{"properties":{"text":{"type":"string","maxLength":4}}}`)}
	for i, c := range []token.Calls{
		{Trigger: "<tool_call>", Tools: tools, FreeText: true, Most: 2},
		{Trigger: "<tool_call>", Tools: tools, Most: -1, Separator: "\n"},
		{Trigger: "<tool_call>", FreeText: true},
		{Trigger: "<tool_call>", Tools: tools, Most: 1, Response: tools[1].Arguments},
	} {
		src, err := c.Source()
		if err != nil {
			t.Fatal(err)
		}
		twin := tokentest.New(t, src)
		g, err := token.New(v, 0, c.Source)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(40) {
			tokentest.Walk(t, g, twin, rand.New(rand.NewPCG(seed, 6)), 60, func(_ *token.Matcher, text []byte, mask []uint64) {
				tokentest.Compare(t, v, fmt.Sprint(i), text, mask, twin.Mask(v, text, false))
			})
		}
	}
}

func TestCallsRefuses(t *testing.T) {
	for _, c := range []token.Calls{
		{Trigger: "<", Tools: []token.Tool{{Begin: "<a"}, {Begin: "<ab"}}},
		{Trigger: "<", Tools: []token.Tool{{Begin: "<a"}, {Begin: "<a"}}},
		{Trigger: "<", Tools: []token.Tool{{Begin: "a"}}},
		{Trigger: "", FreeText: true},
	} {
		if _, err := c.Source(); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// BenchmarkCalls: many tools in one automaton, to its first mask and to the one
// behind a name.
func BenchmarkCalls(b *testing.B) {
	v := qwen(b)
	for _, n := range []int{1, 10, 50, 200, 1000} {
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			c := token.Calls{Trigger: "<tool_call>", FreeText: true, Most: -1}
			for i := range n {
				c.Tools = append(c.Tools, hermes(b, fmt.Sprintf("tool_%d_of_the_list", i*7919%n), `{"properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1}},"required":["city"]}`))
			}
			mask := make([]uint64, v.Words())
			var first, name time.Duration
			for b.Loop() {
				start := time.Now()
				g, err := token.New(v, 0, c.Source)
				if err != nil {
					b.Fatal(err)
				}
				m, err := g.Matcher()
				if err == nil {
					err = m.Fill(mask)
				}
				if err != nil {
					b.Fatal(err)
				}
				first += time.Since(start)
				if err := m.AdvanceBytes([]byte(c.Tools[n/2].Begin[:25])); err != nil {
					b.Fatal(err)
				}
				start = time.Now()
				if err := m.Fill(mask); err != nil {
					b.Fatal(err)
				}
				name += time.Since(start)
			}
			b.ReportMetric(float64(first.Microseconds())/float64(b.N), "first-mask-µs")
			b.ReportMetric(float64(name.Microseconds())/float64(b.N), "name-mask-µs")
		})
	}
}
