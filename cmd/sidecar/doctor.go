package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/embedder"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/proxy"
)

func newDoctorCmd() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Ask an engine what it can do, and say which flag turns on what is missing",
		Long: `Probes a running engine as 'sidecar serve' does at its start: kind, version,
cache, chat template, how it takes token ids. A handful of requests, of which
three or four generate a token. For each thing that is missing the flag is
named that turns it on. The exit status is 1 if the engine can't be probed.`,
		Example: "  sidecar doctor --engine http://127.0.0.1:8000",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && f.json == "-" { // --json FILE
				f.json = args[0]
				return nil
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.engine, "engine", "", "base `URL` of the engine")
	fs.StringVar(&f.key, "engine-api-key", "", "`KEY` for the engine")
	fs.StringVar(&f.family, "family", "auto", "the model's way to write turns and calls: auto, hermes, chatml")
	fs.StringVar(&f.vocabulary, "tokenizer", "", "vocabulary `FILE` of the model; without it Qwen3's")
	fs.StringVar(&f.embedder.URL, "embedder", "", "`URL` of an embedder to ask too, as for serve; its key is SIDECAR_EMBEDDER_KEY")
	fs.StringVar(&f.embedder.Model, "embedder-model", "", "`NAME` of its model")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "for the whole probe")
	fs.StringVar(&f.json, "json", "", "write the findings to `FILE`, - or nothing for standard output")
	fs.Lookup("json").NoOptDefVal = "-"
	return cmd
}

type doctorFlags struct {
	engine, key, family, vocabulary, json string
	timeout                               time.Duration
	embedder                              embedder.Config
}

// doctorReport is what was found.
type doctorReport struct {
	Engine       string        `json:"engine"`
	Kind         engine.Kind   `json:"kind"`
	Version      string        `json:"version"`
	Models       []doctorModel `json:"models"`
	BlockSize    int           `json:"block_size"`   // tokens; 0 when not told
	CacheTokens  int           `json:"cache_tokens"` // capacity; 0 when not told
	PrefixCache  bool          `json:"prefix_cache"`
	CachedTokens bool          `json:"cached_tokens_reported"`
	Family       string        `json:"family"`
	Vocabulary   bool          `json:"vocabulary_exact"`
	Structural   bool          `json:"structural_tag"`
	GBNF         bool          `json:"gbnf"`
	Slots        int           `json:"slots,omitempty"` // of llama.cpp: conversations at a time, each with a cache of its own
	Reasoning    bool          `json:"reasoning_parser"`
	Transport    string        `json:"transport"` // of token ids; "" for none
	LateSlot     string        `json:"late_slot"` // where tools can be added in the middle of a conversation
	Mode         string        `json:"mode"`      // that --mode auto takes
	Modes        []doctorMode  `json:"modes"`

	Missing []engine.Missing `json:"missing"`
}

type doctorModel struct {
	ID      string `json:"id"`
	Context int    `json:"context"` // tokens; 0 when not told
}

type doctorMode struct {
	Mode string `json:"mode"`
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"` // not
}

// askEmbedder asks the embedder for one vector.
func (f *doctorFlags) askEmbedder(ctx context.Context, w io.Writer) error {
	cfg := f.embedder
	cfg.Key, cfg.Tries = os.Getenv("SIDECAR_EMBEDDER_KEY"), 1
	client, err := embedder.New(cfg)
	if err != nil {
		return &usageError{fmt.Errorf("doctor: --embedder: %w", err), "give the address of a server, as in --embedder http://127.0.0.1:8081"}
	}
	defer client.Close()
	const text = "refund an order"
	start := time.Now()
	vectors, err := client.Embed(ctx, []string{text})
	if err != nil {
		return fmt.Errorf("doctor: the embedder at %s: %w", cfg.URL, err)
	}
	fmt.Fprintf(w, "sidecar: the embedder at %s gives vectors of %d dimensions, one in %v; serve waits %v for those of a query (--embedder-deadline)\n",
		cfg.URL, len(vectors[text]), time.Since(start).Round(time.Millisecond), proxy.DefaultEmbedDeadline)
	return nil
}

func (f *doctorFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.engine == "" {
		return &usageError{errors.New("doctor: no --engine"), "give its base URL, as in http://127.0.0.1:8000"}
	}
	if err := checkEngineURL(f.engine); err != nil {
		return err
	}
	vocabulary, err := openTokenizer("", f.vocabulary)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if f.embedder.URL != "" {
		if err := f.askEmbedder(ctx, stderr); err != nil {
			return err
		}
	}
	client := &http.Client{Transport: &engine.Connections{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	defer client.CloseIdleConnections()
	prober := &engine.Prober{Client: client, Base: engineBase(f.engine), Key: f.key, Family: f.family, Tokenizer: vocabulary}
	info, err := prober.Probe(ctx)
	if err != nil {
		return fmt.Errorf("doctor: the engine at %s could not be probed: %w", f.engine, err)
	}
	r := report(engineBase(f.engine), info)
	table := stdout
	if f.json == "-" {
		table = stderr
	}
	r.print(table)
	return writeReport(f.json, stdout, r)
}

func report(url string, info *engine.Info) *doctorReport {
	r := &doctorReport{
		Engine: url, Kind: info.Kind, Version: info.Version, BlockSize: info.BlockSize, CacheTokens: info.CacheSize, PrefixCache: !info.CacheOff,
		CachedTokens: info.CachedTokens, Vocabulary: info.TokenizerExact, Structural: info.StructuralTag, GBNF: info.GBNF, Slots: info.Slots, Reasoning: info.Reasoning,
		Transport: string(info.TokenIn), LateSlot: "none", Mode: "passthrough", Missing: info.Missing(),
	}
	for _, m := range info.Models {
		r.Models = append(r.Models, doctorModel{m.ID, m.Context})
	}
	owned := doctorMode{Mode: "owned", OK: info.Family != nil, Why: info.FamilyReason}
	if info.Family != nil {
		r.Family, r.LateSlot, r.Mode = info.Family.Name, "tool result", "owned"
		owned.Why = ""
	}
	tokenIn := doctorMode{Mode: "token-in", OK: info.TokenIn != "", Why: info.TokenInReason}
	if tokenIn.OK {
		r.Mode = "token-in"
	}
	r.Modes = []doctorMode{tokenIn, owned, {Mode: "native", Why: "not built"}}
	if r.Missing == nil {
		r.Missing = []engine.Missing{}
	}
	return r
}

func (r *doctorReport) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	told := func(n int) string {
		if n == 0 {
			return "not told"
		}
		return fmt.Sprintf("%d tokens", n)
	}
	yes := func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	}
	row("engine", fmt.Sprintf("%s %s at %s", r.Kind, r.Version, r.Engine))
	for _, m := range r.Models {
		row("model", fmt.Sprintf("%s, window %s", m.ID, told(m.Context)))
	}
	row("prefix cache", fmt.Sprintf("%s, blocks of %s, capacity %s", map[bool]string{true: "on", false: "off"}[r.PrefixCache], told(r.BlockSize), told(r.CacheTokens)))
	if r.Slots > 0 {
		row("slots", fmt.Sprintf("%d, a cache of one conversation in each", r.Slots))
	}
	row("cached tokens reported", yes(r.CachedTokens))
	row("model family", orNone(r.Family))
	row("vocabulary is the engine's", yes(r.Vocabulary))
	holds := "nothing"
	switch {
	case r.Structural:
		holds = "structural tags"
	case r.GBNF:
		holds = "grammars (GBNF)"
	}
	row("calls are held by", holds)
	row("reasoning parser", yes(r.Reasoning))
	row("token ids", orNone(r.Transport))
	row("late tools", r.LateSlot)
	for _, m := range r.Modes {
		state := yes(m.OK)
		if m.Why != "" {
			state += ": " + m.Why
		}
		row("mode "+m.Mode, state)
	}
	row("--mode auto takes", r.Mode)
	w.Flush()
	for _, m := range r.Missing {
		fmt.Fprintf(out, "missing: %s (%s)\n   flag: %s\n", m.What, m.Why, m.Flag)
	}
	if len(r.Missing) == 0 {
		fmt.Fprintln(out, "nothing is missing")
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
