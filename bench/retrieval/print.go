package retrieval

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Print writes the figures for people.
func (r *Report) Print(w io.Writer, cfg Config) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tools, %d queries, index %s\n\n", r.Tools, r.Queries, r.Index)
	fmt.Fprintf(&b, "%-8s %8s %8s\n", "places", "recall", "all")
	for _, k := range cfg.Ks {
		key := strconv.Itoa(k)
		all := "-"
		if v, ok := r.All[key]; ok {
			all = fmt.Sprintf("%.1f", v)
		}
		fmt.Fprintf(&b, "%-8d %8.1f %8s\n", k, r.Recall[key], all)
	}
	fmt.Fprintf(&b, "%-8s %8.1f\n\n", "MRR@10", r.MRR10)
	fmt.Fprintf(&b, "recall within %d tokens, %d of them for the front block: %.1f with whole schemas, %.1f where those that don't fit are slimmed\n",
		cfg.TokenCap, cfg.Core, r.Recall[within(cfg.TokenCap)], r.Recall[within(cfg.TokenCap)+"_slim"])
	fmt.Fprintf(&b, "tokens a turn: %d median, %d at the 95th percentile, %d at most; all schemas %d\n",
		r.Tokens.InjectedP50, r.Tokens.InjectedP95, r.Tokens.InjectedMax, r.Tokens.AllSchemas)
	fmt.Fprintf(&b, "a choice takes: %.0f µs median, %.0f µs at the 99th percentile\n", r.Latency.P50, r.Latency.P99)
	_, err := io.WriteString(w, b.String())
	return err
}
