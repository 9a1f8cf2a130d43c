package retrieval

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/toolsidecar/sidecar/bench/quantile"
	"github.com/toolsidecar/sidecar/retrieval"
)

// Config says what is measured.
type Config struct {
	Ks       []int            // tools of a ranking that count, ascending
	TokenCap int              // schema tokens of a turn, Core included
	Core     int              // tokens of the front block, which every turn carries
	Count    func(string) int // tokens of a text
	Memory   retrieval.Memory // of earlier calls; nil for none
}

// A Report holds the figures of one catalog and its queries. Shares are means
// over queries in percent.
type Report struct {
	Tools    int                `json:"tools"`
	Queries  int                `json:"queries"`
	Recall   map[string]float64 `json:"recall"` // by k, and within the token cap
	All      map[string]float64 `json:"all"`    // queries with every tool found, by k above 1
	MRR10    float64            `json:"mrr10"`
	Latency  Latency            `json:"latency_us"`
	Tokens   Tokens             `json:"tokens"`
	Index    string             `json:"index"`
	Unlogged *Unlogged          `json:"unlogged"` // null without a usage split
}

// Latency is of a whole choice, from messages to selected tools, in microseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Tokens are of schemas; injected is what a turn carries, the front block included.
type Tokens struct {
	AllSchemas  int `json:"all_schemas"`
	InjectedP50 int `json:"injected_p50"`
	InjectedP95 int `json:"injected_p95"`
	InjectedMax int `json:"injected_max"`
}

// An Outcome is what became of one query.
type Outcome struct {
	ID       string   `json:"id"`
	Set      string   `json:"set,omitempty"`
	Ranks    []int    `json:"ranks"` // of each step of gold; 0 beyond the hundredth
	Top      []string `json:"top"`
	Selected []string `json:"selected"` // what the turn adds beside the tools called before
	Tokens   int      `json:"tokens"`   // that the turn carries
	Micros   float64  `json:"us"`
}

// rankMost is how deep a ranking is looked at.
const rankMost = 100

// within is the key of the recall within a budget of tokens.
func within(tokens int) string { return fmt.Sprintf("tokens_%d", tokens) }

// indexKind is how an index finds what is near: by comparing all vectors, or by a
// graph.
func indexKind(ix *retrieval.Index) string {
	if ix.Graph() != nil {
		return "hnsw"
	}
	return "exact"
}

// Run asks every query once unmeasured, then once measured. each, which may be
// nil, is told every outcome in order.
func Run(ctx context.Context, ix *retrieval.Index, queries []Query, cfg Config, each func(Outcome)) (*Report, error) {
	costs := retrieval.NewCosts(ix)
	r := &Report{Tools: ix.Len(), Queries: len(queries), Recall: map[string]float64{}, All: map[string]float64{}, Index: indexKind(ix)}
	r.Tokens.AllSchemas = costs.All(ix, cfg.Count)
	deep := max(rankMost, slices.Max(cfg.Ks))
	share, every := make([]mean, len(cfg.Ks)), make([]mean, len(cfg.Ks))
	var first, whole, slim mean
	var micros []float64
	var tokens []int
	var hits []retrieval.Hit
	var names []string
	for i := range queries {
		if i%64 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		q := &queries[i]
		query := ix.Segment(q.Messages)
		query.Memory = cfg.Memory
		hits = ix.AppendSearch(hits[:0], query, deep)
		names = names[:0]
		for _, h := range hits {
			names = append(names, ix.Tool(h.Tool).Name)
		}
		found := ranks(names, q.Gold)
		for j, k := range cfg.Ks {
			s, all := recall(found, k)
			share[j].add(s)
			every[j].add(one(all))
		}
		first.add(reciprocal(found))

		room := max(cfg.TokenCap-cfg.Core, 1)
		all := retrieval.SelectConfig{Tools: rankMost, Tokens: room, Window: -1, Margin: -1, Floor: -1, Near: -1, Costs: costs}
		full := retrieval.Select(ix, hits, all, cfg.Count)
		s, _ := recall(ranks(toolNames(ix, full.Tools), q.Gold), len(full.Tools))
		whole.add(s)
		all.Slim = true
		full = retrieval.Select(ix, hits, all, cfg.Count)
		s, _ = recall(ranks(toolNames(ix, full.Tools), q.Gold), len(full.Tools))
		slim.add(s)

		start := time.Now()
		turn := choose(ix, q.Messages, room, costs, &cfg)
		us := float64(time.Since(start).Nanoseconds()) / 1e3
		micros = append(micros, us)
		tokens = append(tokens, cfg.Core+turn.Tokens)
		if each != nil {
			each(Outcome{ID: q.ID, Set: q.Set, Ranks: found, Top: slices.Clone(names[:min(len(names), 10)]),
				Selected: toolNames(ix, turn.Tools), Tokens: cfg.Core + turn.Tokens, Micros: us})
		}
	}
	for j, k := range cfg.Ks {
		r.Recall[strconv.Itoa(k)] = share[j].percent()
		if k > 1 {
			r.All[strconv.Itoa(k)] = every[j].percent()
		}
	}
	r.MRR10 = first.percent()
	r.Recall[within(cfg.TokenCap)] = whole.percent()
	r.Recall[within(cfg.TokenCap)+"_slim"] = slim.percent()
	slices.Sort(micros)
	slices.Sort(tokens)
	r.Latency = Latency{quantile.Of(micros, .5), quantile.Of(micros, .99)}
	r.Tokens.InjectedP50, r.Tokens.InjectedP95, r.Tokens.InjectedMax = quantile.Of(tokens, .5), quantile.Of(tokens, .95), quantile.Of(tokens, 1)
	return r, nil
}

// choose is one turn as the sidecar takes it: the tools called so far are on view.
func choose(ix *retrieval.Index, messages []retrieval.Message, room int, costs *retrieval.Costs, cfg *Config) retrieval.Selection {
	q := ix.Segment(messages)
	q.Memory = cfg.Memory
	hits := ix.Search(q, chooseAmong+len(q.Called))
	return retrieval.Select(ix, hits, retrieval.SelectConfig{
		Tokens: room, Slim: true, Wishes: len(q.Clauses), Costs: costs,
		Shown: func(name string) bool { return slices.Contains(q.Called, name) },
	}, cfg.Count)
}

// chooseAmong is how many hits a turn is chosen from, beside those on view.
const chooseAmong = 16

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func toolNames(ix *retrieval.Index, tools []int) []string {
	out := make([]string, len(tools))
	for i, t := range tools {
		out[i] = ix.Tool(t).Name
	}
	return out
}
