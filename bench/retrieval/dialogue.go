package retrieval

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/retrieval"
)

// A Policy says how a turn of a dialogue adds tools to those on view.
type Policy struct {
	Name   string
	Select retrieval.SelectConfig
	Forget bool // tools added before are not on view, only those called
}

// Policies are compared by [Replay]: always the four best, and windows and margins
// around the default.
func Policies() []Policy {
	always := retrieval.SelectConfig{Tools: 4, Window: -1, Margin: -1, Floor: -1, Near: -1, Weak: -1}
	out := []Policy{{"always 4, of which only the called stay", always, true}, {"always 4 new ones", always, false}}
	for _, x := range []struct {
		window       int
		margin, weak float64
	}{{4, -1, -1}, {4, 0.2, -1}, {6, -1, -1}, {6, 0.3, -1}, {6, 0.2, -1}, {6, 0.1, -1}, {8, 0.2, -1}, {6, 0.2, 0.3}, {0, 0, 0}, {6, 0.2, 0.5}, {8, 0.2, 0.4}} {
		p := Policy{Name: fmt.Sprintf("window %d", x.window), Select: retrieval.SelectConfig{Window: x.window, Margin: x.margin, Weak: x.weak}}
		if x.margin > 0 {
			p.Name += fmt.Sprintf(", margin %.1f", x.margin)
		}
		if x.weak > 0 {
			p.Name += fmt.Sprintf(", weak %.1f", x.weak)
		}
		if x.window == 0 {
			p.Name = "the default"
		}
		out = append(out, p)
	}
	return out
}

// A Replayed holds what a policy comes to over all turns of the dialogues.
type Replayed struct {
	Policy
	Turns  int     // all
	Idle   int     // turns that need no new tool: all their calls were made before
	Recall float64 // share of needed tools on view or added, percent
	Tokens int     // of schemas added
	Wasted int     // of them in idle turns
}

// Replay plays every dialogue (queries of one group, the shorter first) under a
// policy.
func Replay(ix *retrieval.Index, queries []Query, p Policy, cfg Config) Replayed {
	costs := retrieval.NewCosts(ix)
	p.Select.Costs, p.Select.Tokens, p.Select.Slim = costs, max(cfg.TokenCap-cfg.Core, 1), true
	groups := make(map[string][]*Query)
	var order []string
	for i := range queries {
		q := &queries[i]
		key := q.Set + "\x00" + q.Group
		if q.Group == "" {
			key += fmt.Sprint(i)
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], q)
	}
	r := Replayed{Policy: p}
	var found mean
	for _, key := range order {
		turns := groups[key]
		slices.SortStableFunc(turns, func(a, b *Query) int { return len(a.Messages) - len(b.Messages) })
		view := make(map[string]bool)
		for _, q := range turns {
			query := ix.Segment(q.Messages)
			if p.Forget {
				clear(view)
			}
			for _, name := range query.Called {
				view[name] = true
			}
			sc := p.Select
			sc.Wishes = len(query.Clauses)
			sc.Shown = func(name string) bool { return view[name] }
			sel := retrieval.Select(ix, ix.Search(query, chooseAmong+len(view)), sc, cfg.Count)
			idle := true
			for _, step := range q.Gold {
				idle = idle && slices.ContainsFunc(step, func(g string) bool { return slices.Contains(query.Called, g) })
			}
			r.Turns++
			r.Tokens += sel.Tokens
			if idle {
				r.Idle++
				r.Wasted += sel.Tokens
			}
			for _, name := range toolNames(ix, sel.Tools) {
				view[name] = true
			}
			n := 0
			for _, step := range q.Gold {
				if slices.ContainsFunc(step, func(g string) bool { return view[g] }) {
					n++
				}
			}
			found.add(float64(n) / float64(len(q.Gold)))
		}
	}
	r.Recall = found.percent()
	return r
}

// PrintDialogues compares the policies where the queries are dialogues in which
// some turn needs no new tool; elsewhere it prints nothing.
func PrintDialogues(w io.Writer, ix *retrieval.Index, queries []Query, cfg Config) error {
	var b strings.Builder
	var first Replayed
	for i, p := range Policies() {
		r := Replay(ix, queries, p, cfg)
		if r.Idle == 0 {
			return nil
		}
		if i == 0 {
			first = r
			fmt.Fprintf(&b, "\n%d turns, %d of which need no new tool\n%-40s %7s %14s %18s\n", r.Turns, r.Idle, "what a turn adds", "recall", "tokens a turn", "where none needed")
		}
		fmt.Fprintf(&b, "%-40s %7.1f %14d %9d (%3.0f %%)\n", r.Name, r.Recall, r.Tokens/r.Turns, r.Wasted/r.Idle, 100*float64(r.Wasted)/float64(max(first.Wasted, 1)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
