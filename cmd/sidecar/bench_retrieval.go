package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	retrievalbench "github.com/toolsidecar/sidecar/bench/retrieval"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/embedder"
	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/retrieval"
)

// retrievalFlags are what 'bench retrieval' was told.
type retrievalFlags struct {
	catalogs   []string
	queries    string
	names      string
	ks         []int
	tokenCap   int
	vocabulary string
	embedder   embedder.Config
	index      string
	indexCache string
	grow       int
	json       string
	perQuery   string
	usageSplit int64
}

func newBenchRetrievalCmd() *cobra.Command {
	var o retrievalFlags
	cmd := &cobra.Command{
		Use:   "retrieval --catalog FILE --queries FILE",
		Short: "How many of the needed tools are found, in how many tokens and microseconds",
		Long: `Ranks the tools of a catalog for every query of a file and compares with the
tools that the query is known to need.

A line of the queries file holds "query", a text, or "messages", the
conversation so far in OpenAI's form, and "gold", the names of the tools needed
next, or "gold_any", a list of alternatives a step. Queries that need a tool
which the catalog lacks are left out. Shares are means over queries in percent.

With --usage-split, half of the dialogues are taken for a log of calls, which a
usage memory learns, and the other half is asked. "unlogged" are the queries none
of whose tools the log has, without and with the memory.`,
		Example: `  sidecar bench retrieval --catalog catalog.jsonl --queries queries.jsonl
  sidecar bench retrieval --catalog catalog.jsonl --names subset.txt --queries queries.jsonl --json - --per-query ranks.jsonl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return benchRetrieval(cmd, &o) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.catalogs, "catalog", nil, "`FILE`, directory or demo with the tools (repeatable)")
	f.StringVar(&o.queries, "queries", "", "`FILE` of judged queries, JSON lines")
	f.StringVar(&o.names, "names", "", "`FILE` with the names of the tools to use, one a line (default: all)")
	f.IntSliceVar(&o.ks, "k", []int{1, 4, 8}, "places of the ranking that count")
	f.IntVar(&o.tokenCap, "token-cap", 1200, "schema tokens of a turn, the front block included")
	f.StringVar(&o.vocabulary, "tokenizer", "", "tokenizer.json or *.tiktoken `FILE` to count schema tokens with (default: Qwen3)")
	embedderFlags(cmd, &o.embedder)
	f.Int64Var(&o.usageSplit, "usage-split", 0, "learn from one half of the dialogues, drawn by `SEED`, and ask the other")
	f.StringVar(&o.index, "index", "auto", "how near tools are found: scan or exact (all vectors), hnsw (a graph) or auto (the graph from 10,000 tools on)")
	f.StringVar(&o.indexCache, "index-cache", "", "`DIR` that keeps the graph between runs")
	f.IntVar(&o.grow, "grow", 0, "add seeded variants of the tools until there are `N`")
	f.StringVar(&o.json, "json", "", "write the figures to `FILE`; - is standard output")
	f.StringVar(&o.perQuery, "per-query", "", "write the ranks of every query to `FILE`, JSON lines; - is standard output")
	return cmd
}

func (o *retrievalFlags) check() error {
	switch {
	case len(o.catalogs) == 0:
		return &usageError{errors.New("bench retrieval: no --catalog"), "give the tools, as in --catalog tools.jsonl"}
	case o.queries == "":
		return &usageError{errors.New("bench retrieval: no --queries"), "give the judged queries, as in --queries queries.jsonl"}
	case o.tokenCap < 1:
		return &usageError{fmt.Errorf("bench retrieval: --token-cap %d", o.tokenCap), "give the schema tokens of a turn, 1 or more"}
	case !slices.Contains([]string{"auto", "scan", "exact", "hnsw"}, o.index):
		return &usageError{fmt.Errorf("bench retrieval: --index %q", o.index), "give scan, hnsw or auto"}
	case o.grow < 0 || o.grow > growMost:
		return &usageError{fmt.Errorf("bench retrieval: --grow %d", o.grow), fmt.Sprintf("give a number of tools up to %d", growMost)}
	case len(o.ks) == 0:
		return &usageError{errors.New("bench retrieval: no --k"), "give places, as in --k 1,4,8"}
	}
	for _, k := range o.ks {
		if k < 1 || k > 1000 {
			return &usageError{fmt.Errorf("bench retrieval: --k %d is not from 1 to 1000", k), "give places, as in --k 1,4,8"}
		}
	}
	slices.Sort(o.ks)
	o.ks = slices.Compact(o.ks)
	return nil
}

func benchRetrieval(cmd *cobra.Command, o *retrievalFlags) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	c, err := openCatalogs(ctx, o.catalogs, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if o.names != "" {
		if c, err = subset(c, o.names); err != nil {
			return err
		}
	}
	if c, err = grown(c, o.grow); err != nil {
		return err
	}
	queries, err := readQueries(o.queries)
	if err != nil {
		return err
	}
	ix := c.Index()
	kept, left := retrievalbench.Known(queries, ix)
	if len(kept) == 0 {
		return &usageError{fmt.Errorf("bench retrieval: %d queries, and none all of whose tools the catalog has", len(queries)), "are --catalog, --names and --queries of the same set?"}
	}
	if left > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "sidecar: left out: %d of %d queries, which need tools that the catalog lacks\n", left, len(queries))
	}
	count, err := openTokenizer("bench retrieval: ", o.vocabulary)
	if err != nil {
		return err
	}
	if o.embedder.URL != "" {
		if ix, err = embedWith(ctx, cmd.ErrOrStderr(), "bench retrieval: ", ix, queryTexts(ix, kept), o.embedder); err != nil {
			return err
		}
	}
	if o.index == "hnsw" || o.index == "auto" && ix.Len() >= retrieval.GraphFrom {
		if ix, err = withGraph(ctx, cmd.ErrOrStderr(), ix, o.indexCache); err != nil {
			return err
		}
	}
	cfg := retrievalbench.Config{Ks: o.ks, TokenCap: o.tokenCap, Core: proxy.CoreTokens(ix, o.tokenCap, count.Count), Count: count.Count}

	var split *retrievalbench.Split
	if cmd.Flags().Changed("usage-split") {
		if split, err = retrievalbench.NewSplit(ix, kept, o.usageSplit); err != nil {
			return &usageError{fmt.Errorf("bench retrieval: --usage-split %d: %w", o.usageSplit, err), "give more dialogues, or another seed"}
		}
		kept, cfg.Memory = split.Asked, split.Memory
	}

	each, finish, err := outcomeWriter(cmd.OutOrStdout(), o.perQuery)
	if err != nil {
		return err
	}
	r, err := retrievalbench.Run(ctx, ix, kept, cfg, each)
	if err := errors.Join(err, finish()); err != nil {
		return err
	}
	table := cmd.OutOrStdout()
	if o.json == "-" || o.perQuery == "-" {
		table = cmd.ErrOrStderr()
	}
	if split != nil {
		r.Unlogged = split.Unlogged()
	}
	if err := errors.Join(r.Print(table, cfg), retrievalbench.PrintDialogues(table, ix, kept, cfg)); err != nil {
		return err
	}
	if split != nil {
		if err := split.Print(table); err != nil {
			return err
		}
	}
	return fileJSON(cmd.OutOrStdout(), o.json, r)
}

// growMost bounds --grow: a million tools take some gigabytes.
const growMost = 1 << 20

// grown is c with variants of its tools, n in all.
func grown(c *catalog.Catalog, n int) (*catalog.Catalog, error) {
	if n <= c.Len() {
		return c, nil
	}
	tools, err := retrievalbench.Grow(c.Tools(), n, 1)
	if err != nil {
		return nil, err
	}
	return catalog.New(fmt.Sprintf("%s, grown to %d", c.Name(), n), tools)
}

// withGraph is ix with the graph of an index cache, or one that is built; w is told
// how long that took.
func withGraph(ctx context.Context, w io.Writer, ix *retrieval.Index, dir string) (*retrieval.Index, error) {
	start := time.Now()
	g, problem, err := catalog.OpenGraph(ctx, dir, ix)
	if problem != nil {
		fmt.Fprintf(w, "sidecar: %v\n", problem)
	}
	if err != nil {
		return nil, fmt.Errorf("bench retrieval: %w", err)
	}
	fmt.Fprintf(w, "sidecar: graph of %d tools ready in %.1f s\n", g.Len(), time.Since(start).Seconds())
	return ix.WithGraph(g)
}

// queryTexts are the texts whose vectors the queries need.
func queryTexts(ix *retrieval.Index, queries []retrievalbench.Query) (texts []string) {
	for i := range queries {
		q := ix.Segment(queries[i].Messages)
		texts = append(texts, ix.Texts(&q)...)
	}
	return texts
}

// fileJSON writes v to a file, to w where the name is -, nowhere where it is
// empty.
func fileJSON(w io.Writer, name string, v any) error {
	switch name {
	case "":
		return nil
	case "-":
		return writeJSON(w, v)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, v), f.Close())
}

// outcomeWriter returns where outcomes go, and what ends the writing; each is nil
// without a name.
func outcomeWriter(w io.Writer, name string) (each func(retrievalbench.Outcome), finish func() error, err error) {
	if name == "" {
		return nil, func() error { return nil }, nil
	}
	closed := func() error { return nil }
	if name != "-" {
		f, err := os.Create(name)
		if err != nil {
			return nil, nil, err
		}
		w, closed = f, f.Close
	}
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	var failed error
	each = func(o retrievalbench.Outcome) { failed = errors.Join(failed, enc.Encode(o)) }
	return each, func() error { return errors.Join(failed, b.Flush(), closed()) }, nil
}

func readQueries(name string) ([]retrievalbench.Query, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &usageError{fmt.Errorf("queries %w", err), "give a file of JSON lines"}
	}
	defer f.Close()
	queries, err := retrievalbench.ReadQueries(f)
	if err != nil {
		return nil, fmt.Errorf("queries %s: %w", name, err)
	}
	return queries, nil
}

// subset keeps the tools of a catalog whose names stand in a file.
func subset(c *catalog.Catalog, file string) (*catalog.Catalog, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, &usageError{fmt.Errorf("names %w", err), "give a file with one name a line"}
	}
	wanted := make(map[string]bool)
	for line := range strings.Lines(string(raw)) {
		if name := strings.TrimSpace(line); name != "" {
			wanted[name] = true
		}
	}
	var tools []retrieval.Tool
	for _, t := range c.Tools() {
		if wanted[t.Name] {
			tools = append(tools, t)
			delete(wanted, t.Name)
		}
	}
	for name := range wanted {
		return nil, &usageError{fmt.Errorf("names %s: the catalog has no %q, nor %d more", file, name, len(wanted)-1), "name tools of the catalog"}
	}
	return catalog.New(c.Name(), tools)
}
