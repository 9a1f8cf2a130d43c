package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/simengine"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

func newEngineCmd() *cobra.Command {
	var (
		cfg     simengine.Config
		listen  string
		vocab   string
		latency string
		formula simengine.Latency
	)
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Serve a simulated engine with the interface of vLLM",
		Long: `Serves a simulated engine with the HTTP interface of vLLM: exact chat template, tokens, prefix
cache and metrics; a seeded policy in place of a model, which calls the tools whose words match the
user's, with arguments that fit their schemas; time by a formula. It says that it is one: its
system_fingerprint starts with "sidecar-sim-".

The policy stays inside response_format and tool_choice: its tokens pass through the token masks of
the constraint, and with --random the masks alone choose. It shows that the path around an engine
works, not how well a model chooses.

A request asks for a fault with the header ` + simengine.FaultHeader + `:
  ` + strings.ReplaceAll(simengine.FaultHelp, "\n", "\n  "),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch latency {
			case "none":
			case "formula":
				cfg.Latency = formula
			default:
				return &usageError{fmt.Errorf("--latency is %q", latency), "use none or formula"}
			}
			if vocab != "" {
				t, err := tokenizer.Load(vocab)
				if err != nil {
					return err
				}
				cfg.Tokenizer = t
			}
			e, err := simengine.New(cfg)
			if err != nil {
				return &usageError{err, "see 'sidecar engine --help'"}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			ln, err := net.Listen("tcp", listen)
			if err != nil {
				return &usageError{err, "give --listen a free address, as in 127.0.0.1:0"}
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "simulated engine: http://%s/v1\n", ln.Addr())
			return serveEngine(ctx, ln, e)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8000", "address to listen on; port 0 takes a free one")
	f.StringVar(&cfg.Family, "family", "qwen3", "chat template and call syntax: qwen3 (hermes), chatml or qwen3-coder")
	f.StringVar(&vocab, "tokenizer", "", "tokenizer.json or *.tiktoken file (default: Qwen3's vocabulary)")
	f.StringVar(&cfg.Model, "model", "sim-qwen3", "id of the served model")
	f.IntVar(&cfg.MaxModelLen, "max-model-len", 40960, "tokens of prompt and answer")
	f.IntVar(&cfg.MaxNumSeqs, "max-num-seqs", 256, "requests that run at a time; others wait")
	f.IntVar(&cfg.BlockSize, "block-size", 16, "tokens of a cache block")
	f.IntVar(&cfg.KVBlocks, "kv-blocks", 16384, "blocks of the cache; they must hold --max-model-len")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed of the policy")
	f.BoolVar(&cfg.Random, "random", false, "constrained answers are random tokens that the constraint's masks allow")
	f.BoolVar(&cfg.PromptTokensDetails, "enable-prompt-tokens-details", false, "report cached tokens in usage")
	f.BoolVar(&cfg.Reasoning, "reasoning", false, "begin unconstrained answers with reasoning between think tags, as part of the content")
	f.StringVar(&latency, "latency", "none", "none, or formula: overhead + uncached prompt tokens, then time per output token")
	f.DurationVar(&formula.PrefillOverhead, "prefill-overhead", 20*time.Millisecond, "time to the first token of a prompt that is cached, with --latency formula")
	f.DurationVar(&formula.PrefillPerToken, "prefill-per-token", 100*time.Microsecond, "time per prompt token that is not cached, with --latency formula")
	f.DurationVar(&formula.TimePerOutputToken, "time-per-output-token", 10*time.Millisecond, "time per token after the first, with --latency formula")
	return cmd
}

// serveEngine serves until ctx is done, then ends: requests that still run are
// cut off, as there is nothing to lose.
func serveEngine(ctx context.Context, ln net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	closeErr := srv.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return closeErr
}
