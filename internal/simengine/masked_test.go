package simengine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/grammar"
)

// TestRandomAnswers: random tokens of the masks make calls that parse and fit,
// whatever the seed.
func TestRandomAnswers(t *testing.T) {
	s := start(t, Config{Random: true})
	var tools []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(twoTools), &tools); err != nil {
		t.Fatal(err)
	}
	checks := map[string]*grammar.Checked{}
	for _, x := range tools {
		c, err := grammar.Compile(grammar.Tool{Name: x.Function.Name, Schema: x.Function.Parameters}, grammar.Closed)
		if err != nil {
			t.Fatal(err)
		}
		checks[x.Function.Name] = c
	}
	called := map[string]int{}
	stopped := 0
	for seed := range 30 {
		r := s.ok(chat, fmt.Sprintf(`{"seed":%d,"max_tokens":2000,"messages":[{"role":"user","content":"x"}],"tools":%s,"tool_choice":"required"}`, seed, twoTools))
		if r.Choices[0].FinishReason == "length" {
			continue
		}
		stopped++
		calls := r.Choices[0].Message.ToolCalls
		if len(calls) == 0 {
			t.Fatalf("seed %d: no call in %q", seed, r.content())
		}
		for _, c := range calls {
			called[c.Function.Name]++
			if err := checks[c.Function.Name].Check([]byte(c.Function.Arguments)); err != nil {
				t.Errorf("seed %d: %v: %s", seed, err, c.Function.Arguments)
			}
		}
	}
	if len(called) != 2 || stopped < 25 {
		t.Errorf("%d of 30 answers ended, with calls of %v", stopped, called)
	}
	schema := `{"type":"object","properties":{"n":{"type":"integer","minimum":-3,"maximum":12},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["n","tags"],"additionalProperties":false}`
	c, err := grammar.Compile(grammar.Tool{Name: "answer", Schema: []byte(schema)}, grammar.Open)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for seed := range 20 {
		r := s.ok(chat, fmt.Sprintf(`{"seed":%d,"max_tokens":500,"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":%s}}}`, seed, schema))
		if err := c.Check([]byte(r.content())); err != nil {
			t.Errorf("seed %d: %v: %s", seed, err, r.content())
		}
		texts[strings.Join(strings.Fields(r.content()), "")] = true
	}
	if len(texts) < 5 {
		t.Errorf("only %d different answers", len(texts))
	}
}

// TestPolicyHeld: a policy's token that the mask doesn't allow isn't written.
func TestPolicyHeld(t *testing.T) {
	s := start(t, Config{})
	f := &format{kind: "json_schema", schema: &node{kind: '{', keys: []string{"type"}, vals: []*node{stringNode("object")}}}
	g := s.grammar(f, nil)
	if g == nil {
		t.Fatal("no masks")
	}
	want := s.encodeOutput(`{"a": nonsense`)
	ids := s.decode(g, want, 1, 400)
	text, err := s.tok.Decode(nil, ids)
	if err != nil || !strings.HasPrefix(string(text), `{"a":`) || strings.Contains(string(text), "nonsense") {
		t.Fatalf("%q, %v", text, err)
	}
	if ids[len(ids)-1] != s.eos || !json.Valid([]byte(strings.TrimSuffix(string(text), "<|im_end|>"))) {
		t.Errorf("%q", text)
	}
}
