package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	prefixbench "github.com/toolsidecar/sidecar/bench/prefix"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// benchPrefixFlags are the flags of sidecar bench prefix.
type benchPrefixFlags struct {
	engine, family, mode, vocabulary string
	file, choice                     string
	turns, block, maxTokens          int
	calls, result                    int
	seed                             uint64
	timeout                          time.Duration
}

func newBenchPrefixCmd() *cobra.Command {
	var f benchPrefixFlags
	cmd := &cobra.Command{
		Use:   "prefix",
		Short: "How much of a conversation's prompts an engine finds in its cache",
		Long: `Runs an agent's tool loop over the demo catalog of 3,200 tools: behind a sidecar,
which adds tools as they are needed, then without it, with all tools in front,
and with the best tools of each turn in front. The counts are the engine's own.

A turn's ceiling is what the engine could have found cached of the turn before:
its prompt and completion but for the last token, in whole blocks. Closure is
cached over ceiling, from the second turn on; prefill is prompt less cached.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			table := cmd.OutOrStdout()
			if f.file == "-" {
				table = cmd.ErrOrStderr()
			}
			return f.run(ctx, cmd.OutOrStdout(), table, cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.engine, "engine", "sim", "`URL` of an engine, or sim for the simulated one inside this process")
	fs.IntVar(&f.turns, "turns", 20, "requests of each loop")
	fs.IntVar(&f.block, "block", 0, "tokens of a cache block: of the simulated engine (0 for 16), else what the engine says")
	fs.StringVar(&f.family, "family", "auto", "the model's way to write turns and calls: auto, hermes, chatml")
	fs.StringVar(&f.mode, "mode", "auto", "of the sidecar: auto, token-in, owned")
	fs.StringVar(&f.vocabulary, "tokenizer", "", "vocabulary `FILE` of the model; without it Qwen3's")
	fs.StringVar(&f.choice, "tool-choice", "required", "required, a call in every reply, or auto")
	fs.IntVar(&f.calls, "calls", 4, "calls that follow one message of the user")
	fs.IntVar(&f.result, "result-bytes", -1, "bytes that tool results are filled up to; -1 for 1250, or less where the model's window is small")
	fs.IntVar(&f.maxTokens, "max-tokens", 512, "tokens of one reply")
	fs.Uint64Var(&f.seed, "seed", 1, "of what the user says, and of the replies where the engine has one")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Minute, "for one request")
	fs.StringVar(&f.file, "json", "", "write the result to `FILE`, - for standard output")
	return cmd
}

// benchPrefixReport is the result with what was measured.
type benchPrefixReport struct {
	Engine  string `json:"engine"`
	Version string `json:"version,omitempty"`
	Model   string `json:"model"`
	Family  string `json:"family"`
	Mode    string `json:"mode"`
	Seed    uint64 `json:"seed"`
	*prefixbench.Result
}

func (f *benchPrefixFlags) run(ctx context.Context, stdout, out, log io.Writer) error {
	if f.turns < 2 || f.maxTokens < 1 || f.block < 0 || f.calls < 1 || f.result < -1 {
		return &usageError{fmt.Errorf("--turns %d, --max-tokens %d, --block %d, --calls %d, --result-bytes %d", f.turns, f.maxTokens, f.block, f.calls, f.result), "turns from 2, tokens and calls from 1, a block from 0"}
	}
	if f.choice != "auto" && f.choice != "required" {
		return &usageError{fmt.Errorf("--tool-choice %q", f.choice), "give auto or required"}
	}
	if err := checkMode(f.mode); err != nil {
		return err
	}
	if f.engine != "sim" {
		if err := checkEngineURL(f.engine); err != nil {
			return err
		}
	}
	vocabulary, err := openTokenizer("", f.vocabulary)
	if err != nil {
		return err
	}
	// A running engine may have the prompts of another run in its cache.
	url, system := engineBase(f.engine), fmt.Sprintf("Session %x.", rand.Uint64())
	if f.engine == "sim" {
		system = ""
		cfg := simengine.Config{Tokenizer: vocabulary, BlockSize: f.block, MaxModelLen: 1 << 20, PromptTokensDetails: true}
		if f.family != "auto" {
			cfg.Family = f.family
		}
		var stop func()
		var err error
		if url, stop, err = startSimulated(cfg); err != nil {
			return &usageError{err, "see 'sidecar bench prefix --help'"}
		}
		defer stop()
	}
	client := &http.Client{Timeout: f.timeout, Transport: &engine.Connections{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	defer client.CloseIdleConnections()
	prober := &engine.Prober{Client: client, Base: url, Family: f.family, Tokenizer: vocabulary, Text: true}
	info, err := prober.Probe(ctx)
	if err != nil {
		return fmt.Errorf("bench prefix: the engine at %s could not be probed: %w", f.engine, err)
	}
	block := info.BlockSize
	if block == 0 {
		block = f.block
	}
	switch {
	case block == 0:
		return &usageError{fmt.Errorf("the engine at %s does not tell its block size", url), "give it with --block"}
	case f.block != 0 && f.block != block:
		return &usageError{fmt.Errorf("--block %d: the engine's blocks have %d tokens", f.block, block), "leave --block out, or start the engine with this block size"}
	}
	result := f.result
	if window := info.Models[0].Context; result < 0 {
		result = 1250
		if window > 0 { // half of the window is left to tools and replies; two bytes a token are few
			result = max(100, min(result, window/f.turns))
		}
	}
	family := ""
	if info.Family != nil {
		family = info.Family.Name
	}
	base, _, stop, err := startLocal(ctx, localConfig{Engine: url, Catalog: []string{"demo"}, Log: log, Edit: func(c *serveConfig) {
		c.Proxy.Stages.Mode, c.Proxy.Stages.Family, c.Tokenizer = f.mode, f.family, f.vocabulary
		c.Proxy.Stages.Rounds = 0 // each request is one prompt
	}})
	if err != nil {
		return fmt.Errorf("bench prefix: %w", err)
	}
	defer stop()
	var says []string
	for _, task := range catalog.Tasks() {
		for _, t := range task.Turns {
			says = append(says, t.Say)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s %s, model %s, blocks of %d tokens\n", info.Kind, info.Version, info.Models[0].ID, block)
	fmt.Fprintln(w, "turn\tprompt\tcompletion\tcached\tceiling\texpected\tmode\ttools that appeared\t")
	n := 0
	res, err := prefixbench.Run(ctx, prefixbench.Config{
		Client: client, Engine: url, Sidecar: strings.TrimRight(base, "/"), Model: info.Models[0].ID, Catalog: catalog.Demo(), System: system, Says: says, Call: catalog.Toy,
		Turns: f.turns, Calls: f.calls, Result: result, Block: block, MaxTokens: f.maxTokens, Required: f.choice == "required", Seed: f.seed, TopK: 4, Context: info.Models[0].Context,
	}, func(t prefixbench.Turn) {
		n++
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", n, t.Prompt, t.Completion, t.Cached, t.Ceiling, t.Expected, t.Mode, cut(t.Tools, 60))
		if t.Fallback != "" {
			fmt.Fprintf(w, "\t\t\t\t\t\t\t%s\t\n", cut(t.Fallback, 80))
		}
	})
	w.Flush()
	if err != nil {
		return fmt.Errorf("bench prefix: %w", err)
	}
	fmt.Fprintf(out, "closure %.4f; prefill over %d turns: %d tokens\n", res.Closure, f.turns, res.Prefill)
	for _, b := range []struct {
		name string
		loop *prefixbench.Loop
	}{{"all tools in front", res.Baseline.AllTools}, {"best tools rewritten in front", res.Baseline.Rewrite}} {
		if b.loop == nil {
			fmt.Fprintf(out, "%s: not measured, %s\n", b.name, res.Baseline.Why)
			continue
		}
		fmt.Fprintf(out, "%s: %d tokens, %.1f times as many\n", b.name, b.loop.Prefill, float64(b.loop.Prefill)/float64(max(res.Prefill, 1)))
	}
	return writeReport(f.file, stdout, benchPrefixReport{f.engine, info.Version, info.Models[0].ID, family, f.mode, f.seed, res})
}

// checkMode refuses modes that there aren't.
func checkMode(mode string) error {
	switch mode {
	case "auto", "token-in", "owned":
		return nil
	case "native":
		return &usageError{fmt.Errorf("--mode native: tools through the model's own template are not built"), "use auto, token-in or owned"}
	}
	return &usageError{fmt.Errorf("--mode %q", mode), "use auto, token-in or owned"}
}

// writeReport writes a report to a file, to standard output for "-", nowhere for "".
func writeReport(file string, out io.Writer, v any) error {
	if file == "" {
		return nil
	}
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if file == "-" {
		_, err = out.Write(raw)
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}
