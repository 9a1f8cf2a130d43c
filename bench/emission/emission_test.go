package emission

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/models/jsontext"
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

// TestJudgeDies: an engine that dies of a grammar, or is at it for too long, is
// asked on.
func TestJudgeDies(t *testing.T) {
	script := filepath.Join(t.TempDir(), "judge.sh")
	const lines = `while read -r line; do case $line in
	*die*) exit 3;;
	*think*) exec sleep 600;;
	*) echo '{"ok":true,"compile_ms":1}';;
esac; done`
	if err := os.WriteFile(script, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := StartJudge(context.Background(), "sh", script, "")
	if err != nil {
		t.Skip(err)
	}
	defer j.Close()
	for _, tt := range []struct {
		id   string
		died bool
	}{{"a", false}, {"die", true}, {"b", false}, {"think", true}, {"c", false}} {
		if j.Limit = 0; tt.id == "think" {
			j.Limit = 50 * time.Millisecond
		}
		if a, err := j.Judge(Ask{ID: tt.id}); err != nil || a.Died != tt.died || a.OK == tt.died {
			t.Errorf("%s: %+v, %v", tt.id, a, err)
		}
	}
	if dead, err := StartJudge(context.Background(), "sh", script, ""); err == nil {
		if _, err := dead.Judge(Ask{ID: "die"}); err == nil {
			t.Error("a judge that never answered is asked on")
		}
	}
}

// TestSample judges what a llama-server writes.
func TestSample(t *testing.T) {
	const right = "<tool_call>\n{\"name\": \"t\", \"arguments\": {\"n\":7}}\n</tool_call>"
	replies := map[string]string{
		"right":   `{"content":` + string(jsontext.AppendString(nil, right)) + `,"stop_type":"eos"}`,
		"cut":     `{"content":"<tool_call>\n{","stop_type":"limit"}`,
		"wrong":   `{"content":` + string(jsontext.AppendString(nil, strings.Replace(right, "7", "17", 1))) + `,"stop_type":"eos"}`,
		"no call": `{"content":"hello","stop_type":"eos"}`,
	}
	var reply string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reply == "refused" {
			http.Error(w, "failed to parse grammar", http.StatusBadRequest)
			return
		}
		w.Write([]byte(replies[reply]))
	}))
	defer s.Close()
	set := Set{Name: "t", Tools: []grammar.Tool{{Name: "t", Schema: []byte(`{"properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"]}`)}}}
	for name, want := range map[string]struct{ finished, differ int }{"right": {1, 0}, "cut": {0, 0}, "wrong": {1, 1}, "no call": {1, 1}, "refused": {0, 1}} {
		reply = name
		r, err := Run(t.Context(), []Set{set}, Config{Target: grammar.GBNF, Syntax: hermes, Walks: 1, Llama: &Llama{URL: s.URL + "/"}}, func(int) {})
		if err != nil || r.Finished != want.finished || r.JudgeDisagreements != want.differ {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
