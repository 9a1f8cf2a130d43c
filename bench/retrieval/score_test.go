package retrieval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/retrieval"
)

func TestScores(t *testing.T) {
	for _, x := range []struct {
		names string
		gold  [][]string
		ranks []int
		at1   float64
		at2   float64
		all2  bool
		mrr   float64
	}{
		{"a b c", [][]string{{"a"}}, []int{1}, 1, 1, true, 1},
		{"a b c", [][]string{{"b"}, {"d"}}, []int{2, 0}, 0, 0.5, false, 0.5},
		{"a b c", [][]string{{"d", "b"}, {"a"}}, []int{2, 1}, 0.5, 1, true, 1},
		{"", [][]string{{"a"}}, []int{0}, 0, 0, false, 0},
		{"1 2 3 4 5 6 7 8 9 10 a", [][]string{{"a"}}, []int{11}, 0, 0, false, 0},
	} {
		r := ranks(strings.Fields(x.names), x.gold)
		one, _ := recall(r, 1)
		two, all := recall(r, 2)
		if !slices.Equal(r, x.ranks) || one != x.at1 || two != x.at2 || all != x.all2 || reciprocal(r) != x.mrr {
			t.Errorf("%s, %v: ranks %v, %v at 1, %v at 2, %v, %v", x.names, x.gold, r, one, two, all, reciprocal(r))
		}
	}
}

func TestReadQueries(t *testing.T) {
	qs, err := ReadQueries(strings.NewReader(`{"id":7,"query":"find it","gold":["a","b"]}

{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"a"}}]}],"gold":["b"],"gold_any":[["b","c"]],"group":3,"set":"s"}
`))
	if err != nil || len(qs) != 2 {
		t.Fatal(qs, err)
	}
	if q := qs[0]; q.ID != "7" || len(q.Gold) != 2 || q.Messages[0].Text != "find it" {
		t.Errorf("%+v", q)
	}
	if q := qs[1]; q.ID != "3" || q.Group != "3" || len(q.Gold) != 1 || len(q.Gold[0]) != 2 || q.Messages[0].Text != "x\ny" || q.Messages[1].Calls[0] != "a" {
		t.Errorf("%+v", q)
	}
	for _, line := range []string{`{`, `{"query":"x"}`, `{"gold":["a"]}`, `{"messages":[{"role":"user","content":5}],"gold":["a"]}`, `[]`} {
		var at *LineError
		if _, err := ReadQueries(strings.NewReader("\n" + line)); !errors.As(err, &at) || at.Line != 2 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// toys returns a catalog, one dialogue of three turns and a question.
func toys(t *testing.T) (*retrieval.Index, []Query) {
	var tools []retrieval.Tool
	for _, n := range []string{"mail__send", "mail__list", "mail__delete", "calendar__create_event", "calendar__list_events", "weather__get_forecast", "files__read"} {
		about := strings.ReplaceAll(n, "_", " ")
		raw, err := json.Marshal(map[string]any{"type": "function", "function": map[string]any{"name": n, "description": about}})
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, retrieval.Tool{Name: n, Description: about, Raw: raw})
	}
	ix, err := retrieval.NewIndex(tools, retrieval.Config{})
	if err != nil {
		t.Fatal(err)
	}
	user := func(s string) retrieval.Message { return retrieval.Message{Role: "user", Text: s} }
	call := func(n string) retrieval.Message { return retrieval.Message{Role: "assistant", Calls: []string{n}} }
	first := []retrieval.Message{user("get the weather forecast")}
	second := append(slices.Clone(first), call("weather__get_forecast"), user("and the weather forecast of the day after, list it"))
	return ix, []Query{
		{ID: "2", Group: "g", Messages: second, Gold: [][]string{{"weather__get_forecast"}}},
		{ID: "1", Group: "g", Messages: first, Gold: [][]string{{"weather__get_forecast"}}},
		{ID: "3", Messages: []retrieval.Message{user("read the files")}, Gold: [][]string{{"files__read"}}},
		{ID: "4", Messages: []retrieval.Message{user("fly")}, Gold: [][]string{{"none"}}},
	}
}

func TestRun(t *testing.T) {
	ix, all := toys(t)
	queries, left := Known(all, ix)
	if len(queries) != 3 || left != 1 {
		t.Fatal(len(queries), left)
	}
	cfg := Config{Ks: []int{1, 4}, TokenCap: 220, Core: 20, Count: func(s string) int { return len(s) }}
	var seen []string
	r, err := Run(context.Background(), ix, queries, cfg, func(o Outcome) { seen = append(seen, fmt.Sprint(o.ID, o.Ranks, o.Selected)) })
	if err != nil {
		t.Fatal(err)
	}
	// The second turn has the forecast on view, so that nothing is added.
	if got := strings.Join(seen, " "); got != "2[1] [] 1[1] [weather__get_forecast] 3[1] [files__read]" {
		t.Errorf("outcomes: %s", got)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"tools", "queries", "recall", "all", "mrr10", "latency_us", "tokens", "index", "unlogged"} {
		if _, ok := keys[k]; !ok {
			t.Errorf("no %q in %s", k, raw)
		}
		delete(keys, k)
	}
	if len(keys) > 0 || r.Recall["1"] != 100 || r.Recall["4"] != 100 || r.Recall["tokens_220"] != 100 || r.Recall["tokens_220_slim"] != 100 || r.MRR10 != 100 {
		t.Errorf("%s", raw)
	}
	if r.Tokens.InjectedMax > 220 || r.Tokens.InjectedMax <= 20 || len(r.All) != 1 {
		t.Errorf("%s", raw)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, ix, queries, cfg, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestReplay(t *testing.T) {
	ix, all := toys(t)
	queries, _ := Known(all, ix)
	cfg := Config{TokenCap: 1000, Count: func(s string) int { return len(s) }}
	always := Replay(ix, queries, Policies()[0], cfg)
	ours := Replay(ix, queries, Policy{}, cfg)
	if always.Turns != 3 || always.Idle != 1 || always.Wasted == 0 || always.Recall != 100 {
		t.Errorf("always: %+v", always)
	}
	if ours.Wasted != 0 || ours.Recall != 100 || ours.Tokens >= always.Tokens {
		t.Errorf("ours: %+v", ours)
	}
}
