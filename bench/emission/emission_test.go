package emission

import (
	"context"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar"
)

var hermes = grammar.Syntax{
	Trigger:   "<tool_call>",
	Begin:     func(name string) string { return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " },
	End:       "}\n</tool_call>",
	Separator: "\n",
	Tokens:    []string{"<tool_call>", "</tool_call>"},
}

// TestRun counts what each kind of tool comes to.
func TestRun(t *testing.T) {
	tool := func(name, schema string) grammar.Tool { return grammar.Tool{Name: name, Schema: []byte(schema)} }
	sets := []Set{
		{Name: "exact", Tools: []grammar.Tool{tool("exact", `{"properties":{"s":{"type":"string","maxLength":50},"n":{"type":"integer"}},"required":["s"]}`)}},
		{Name: "many", Tools: []grammar.Tool{
			tool("loose", `{"properties":{"l":{"type":"array","items":{"type":"integer"},"uniqueItems":true}},"required":["l"]}`),
			tool("tree", `{"properties":{"c":{"type":"array","items":{"$ref":"#"}}}}`),
			tool("bad", `{"type":"strin"}`),
		}},
	}
	for _, tt := range []struct {
		target                    grammar.Target
		refused, proved, narrower int
	}{{grammar.GBNF, 1, 2, 0}, {grammar.Lark, 1, 2, 0}, {grammar.Regex, 2, 1, 0}, {grammar.StructuralTag, 1, 2, 1}} {
		r, err := Run(context.Background(), sets, Config{Target: tt.target, Syntax: hermes, Derived: 3, Seed: 1}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if r.Sets != 2 || r.Tools != 4 || len(r.Refused) != tt.refused || r.Emitted != 4-tt.refused || r.Proved != tt.proved || r.Checked != 1 || r.Bounded != 0 || r.Wider != 0 || r.Narrower != tt.narrower {
			t.Errorf("%s: %+v", tt.target, r)
		}
		if tt.target == grammar.GBNF && (r.Judged != 3*2*3 || r.JudgeDisagreements != 0) {
			t.Errorf("%d texts judged, %+v", r.Judged, r.Disagreements)
		}
		if tt.refused > 0 && r.Refused[len(r.Refused)-1].Name != "many: bad" {
			t.Errorf("refused %+v", r.Refused)
		}
	}
}

func TestMiss(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		if m := miss(rng, `{"a": "é😀"}`); !utf8.ValidString(m) {
			t.Errorf("%q", m)
		}
	}
	miss(rng, "")
}
