package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/embedder"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/retrieval"
)

func newSearchCmd() *cobra.Command {
	var (
		sources []string
		k       int
		explain bool
		asJSON  bool

		vocabulary string
		logs       []string
		tenant     string
		after      []string
		embed      embedder.Config
	)
	cmd := &cobra.Command{
		Use:   "search [flags] QUERY…",
		Short: "Find tools of a catalog for a text, and say why",
		Long: `Find tools of a catalog for a text, and say why.

The words of QUERY are joined with spaces. A tool named in the text comes
first. Tools that neither share a word with it nor are near it in meaning are
not listed.`,
		Example: `  sidecar search "refund the broken order"
  sidecar search --catalog tools.json -k 10 --explain "open incidents of this week"
  sidecar search --catalog demo --json "book a flight" | jq -r '.hits[].name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(strings.Join(args, "")) == "" {
				return &usageError{errors.New("search: no query"), `say what to look for, as in: sidecar search "refund an order"`}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if k < 1 {
				return &usageError{fmt.Errorf("search: -k %d", k), "give the number of tools to list, 1 or more"}
			}
			c, err := openCatalogs(cmd.Context(), sources, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			count, err := openTokenizer("search: ", vocabulary)
			if err != nil {
				return err
			}
			q := retrieval.Text(strings.Join(args, " "))
			q.Called = after
			for _, log := range logs {
				if _, err := os.Stat(log); err != nil {
					return &usageError{fmt.Errorf("--usage: %w", err), usageHint}
				}
			}
			if len(logs) > 0 {
				u, err := openUsage(logs, c, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				defer u.Close()
				if tenant == "" {
					tenant = u.Tenant("")
				}
				if m := u.Memory(tenant); m != nil {
					q.Memory = m
				}
			}
			ix := c.Index()
			if embed.URL != "" {
				if ix, err = embedWith(cmd.Context(), cmd.ErrOrStderr(), "search: ", ix, ix.Texts(&q), embed); err != nil {
					return err
				}
			}
			r := search(c.Name(), ix, q, k, count)
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				return enc.Encode(r)
			}
			return r.print(cmd.OutOrStdout(), explain)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&sources, "catalog", []string{"demo"}, "catalog to search, as for serve: demo, FILE, DIR, URL or stdio:COMMAND; may be repeated")
	f.IntVarP(&k, "count", "k", 8, "number of tools to list")
	f.StringVar(&vocabulary, "tokenizer", "", "tokenizer.json or *.tiktoken FILE to count schema tokens with (default: Qwen3)")
	f.StringArrayVar(&logs, "usage", nil, "usage memory or log FILE whose calls count, as for serve; may be repeated")
	f.StringVar(&tenant, "tenant", "", "whose memory, by the ID that 'sidecar usage show' lists (default: that of clients without a key)")
	f.StringArrayVar(&after, "called", nil, "NAME of a tool called before; may be repeated, the latest last")
	embedderFlags(cmd, &embed)
	f.BoolVar(&explain, "explain", false, "list every word that counted, with its field and share")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// openCatalogs loads the sources as one catalog. Tools that are left out are
// reported to w, the first ten in full.
func openCatalogs(ctx context.Context, sources []string, w io.Writer) (*catalog.Catalog, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	var all []*catalog.Catalog
	var problems []catalog.Problem
	report := func() {
		const most = 10
		for i, p := range problems {
			if i == most {
				fmt.Fprintf(w, "sidecar: %d more tools left out\n", len(problems)-most)
				break
			}
			fmt.Fprintf(w, "sidecar: left out: %s\n", p)
		}
	}
	defer func() { report() }()
	list, err := parseSources(sources, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		c, p, err := s.Load(ctx)
		problems = append(problems, p...)
		if errors.Is(err, os.ErrNotExist) {
			return nil, &usageError{fmt.Errorf("catalog %w", err), sourceHint}
		}
		if err != nil {
			return nil, fmt.Errorf("catalog %w", err)
		}
		all = append(all, c)
	}
	c, err := catalog.Join(all...)
	if err != nil {
		return nil, &usageError{err, sourceHint}
	}
	return c, nil
}

// searchReport is the JSON answer of the command.
type searchReport struct {
	Query   string      `json:"query"`
	Catalog string      `json:"catalog"`
	Tools   int         `json:"tools"`
	Hits    []searchHit `json:"hits"`
}

type searchHit struct {
	Rank    int            `json:"rank"`
	Name    string         `json:"name"`
	Score   float64        `json:"score"`
	Named   bool           `json:"named,omitempty"`
	Tokens  int            `json:"tokens"` // of the schema, by the tokenizer
	Why     []searchReason `json:"why"`
	Summary string         `json:"description"`
}

type searchReason struct {
	Term  string  `json:"term"`
	Field string  `json:"field"`
	Score float64 `json:"score"`
}

func search(name string, ix *retrieval.Index, q retrieval.Query, k int, count *tokenizer.Tokenizer) *searchReport {
	q.Explain = true
	r := &searchReport{Query: q.Parts[0].Text, Catalog: name, Tools: ix.Len(), Hits: []searchHit{}}
	for i, h := range ix.Search(q, k) {
		t := ix.Tool(h.Tool)
		hit := searchHit{
			Rank: i + 1, Name: t.Name, Score: round3(h.Score), Named: h.Named, Why: []searchReason{},
			Tokens: count.Count(string(t.Raw)), Summary: t.Description,
		}
		for _, why := range h.Why {
			field := why.Kind.String()
			if why.Kind == retrieval.ReasonTerm {
				field = why.Field.String()
			}
			hit.Why = append(hit.Why, searchReason{why.Term, field, round3(why.Score)})
		}
		r.Hits = append(r.Hits, hit)
	}
	return r
}

func round3(x float64) float64 { return float64(int(x*1000+0.5)) / 1000 }

func (r *searchReport) print(w io.Writer, explain bool) error {
	var b strings.Builder
	if len(r.Hits) == 0 {
		fmt.Fprintf(&b, "no tool of %s (%d tools) shares a word with %q or is near it in meaning\n", r.Catalog, r.Tools, r.Query)
		_, err := io.WriteString(w, b.String())
		return err
	}
	wide := len("name")
	for _, h := range r.Hits {
		wide = max(wide, utf8.RuneCountInString(h.Name))
	}
	fmt.Fprintf(&b, "%4s  %-*s  %6s  %6s  %s\n", "rank", wide, "name", "score", "tokens", "why")
	for _, h := range r.Hits {
		fmt.Fprintf(&b, "%4d  %-*s  %6.3f  %6d  %s\n", h.Rank, wide, h.Name, h.Score, h.Tokens, h.brief())
		if !explain {
			continue
		}
		fmt.Fprintf(&b, "      %s\n", oneLine(h.Summary, 160))
		for _, why := range h.Why {
			fmt.Fprintf(&b, "      %+7.3f  %-16s  %s\n", why.Score, why.Term, why.Field)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// brief names the words that counted most, each once and without their stems.
func (h *searchHit) brief() string {
	if h.Named {
		return "named in the query"
	}
	const most = 4
	var words []string
	for _, why := range h.Why {
		root, stem := strings.CutSuffix(why.Term, "-")
		if why.Term == "" || why.Score < 0 || slices.ContainsFunc(words, func(w string) bool { return w == why.Term || stem && strings.HasPrefix(w, root) }) {
			continue
		}
		if len(words) == most {
			words = append(words, "…")
			break
		}
		words = append(words, why.Term)
	}
	if len(words) == 0 {
		return "meaning"
	}
	return strings.Join(words, " ")
}

// oneLine cuts a text to n characters without line breaks or control
// characters.
func oneLine(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if n == 0 {
			b.WriteString("…")
			break
		}
		n--
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}
