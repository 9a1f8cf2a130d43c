package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/embedder"
	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

func newServeCmd() *cobra.Command {
	var cfg serveConfig
	options := serveOptions(&cfg)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the OpenAI API in front of an engine",
		Long: `Serve the OpenAI API in front of an engine.

Each option is a flag, an environment variable (--max-body is SIDECAR_MAX_BODY)
and a key of the configuration file (max-body). A flag counts more than the
environment, that more than the file. SIGTERM drains: /readyz turns 503, new
requests are refused, live ones have --drain-timeout to end.`,
		Example: "  sidecar serve --engine http://127.0.0.1:8000",
		Args:    noArgs,
	}
	addFlags(cmd, options)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var file *option
		for _, o := range options {
			if o.name == "config" {
				file = o
			}
		}
		if err := resolve(options, file, os.LookupEnv); err != nil {
			return &usageError{err, "see 'sidecar serve --help'"}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		return serve(ctx, stop, &cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// serve runs until ctx ends, then drains. restore gives signals their default
// effect back, so that a second one ends the process at once.
func serve(ctx context.Context, restore func(), cfg *serveConfig, stdout, stderr io.Writer) error {
	for _, l := range []struct {
		option, to string
		dst        *io.Writer
	}{{"access-log", cfg.AccessLog, &cfg.Proxy.AccessLog}, {"log-prompts", cfg.PromptLog, &cfg.Proxy.Stages.PromptLog}} {
		switch l.to {
		case "off", "":
		case "stdout":
			*l.dst = stdout
		case "stderr":
			*l.dst = stderr
		default:
			f, err := os.OpenFile(l.to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return &usageError{fmt.Errorf("%s: %w", strings.ReplaceAll(l.option, "-", " "), err), "give --" + l.option + " a file that can be written, stderr or off"}
			}
			defer f.Close()
			*l.dst = f
		}
	}
	cfg.Proxy.ErrorLog = stderr
	if err := loadStages(ctx, cfg, stderr); err != nil {
		return err
	}
	defer cfg.live.Close()
	ledger, secret, err := openLedger(&cfg.Ledger, cfg.Proxy.Stages.LedgerBytes, stderr)
	if err != nil {
		return err
	}
	defer func() {
		if err := ledger.Close(); err != nil {
			fmt.Fprintf(stderr, "sidecar: closing the ledger: %v\n", err)
		}
	}()
	cfg.Proxy.Stages.Ledger, cfg.Proxy.Stages.Secret = ledger, secret
	if cfg.Embedder.URL != "" {
		client, err := embedder.New(cfg.Embedder)
		if err != nil {
			return &usageError{fmt.Errorf("--embedder: %w", err), "give the address of a server, as in --embedder http://127.0.0.1:8081"}
		}
		defer client.Close()
		cfg.Proxy.Stages.Embedder, cfg.Proxy.Stages.EmbedderName = client, strings.TrimSpace(cfg.Embedder.URL+" "+cfg.Embedder.Model)
	}
	if len(cfg.Usage) > 0 {
		u, err := openUsage(cfg.Usage, cfg.live.Catalog(), stderr)
		if err != nil {
			return err
		}
		defer u.Close()
		cfg.Proxy.Stages.Usage = u
	}
	p, err := proxy.New(cfg.Proxy)
	if err != nil {
		return &usageError{err, "see 'sidecar serve --help'"}
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		hint := "give --listen a free address, as in 127.0.0.1:0"
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = "another program listens there; " + hint
		}
		return &usageError{err, hint}
	}
	defer p.Close()
	server := proxy.NewServer(p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	fmt.Fprintf(stdout, "sidecar: listening on http://%s, engine %s\n", ln.Addr(), cfg.Proxy.Engine)

	if err := p.Ready(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "sidecar: the engine at %s does not serve yet: %v\n", cfg.Proxy.Engine, err)
	}

	select {
	case err := <-served:
		return fmt.Errorf("server stopped: %w", err)
	case <-ctx.Done():
	}
	restore()
	fmt.Fprintf(stderr, "sidecar: draining for at most %v\n", cfg.DrainTimeout)
	limit, cancel := context.WithTimeout(context.Background(), cfg.DrainTimeout)
	defer cancel()
	cut, err := server.Shutdown(limit)
	<-served
	if cut > 0 {
		fmt.Fprintf(stderr, "sidecar: %d requests were cut at the end of --drain-timeout\n", cut)
	}
	return err
}

// openTokenizer loads what --tokenizer names, Qwen3's vocabulary for "". An
// error begins with of.
func openTokenizer(of, path string) (*tokenizer.Tokenizer, error) {
	if path == "" {
		return tokenizer.Qwen3(), nil
	}
	t, err := tokenizer.Load(path)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s--tokenizer %s: %w", of, path, err), "give the model's tokenizer.json, or a *.tiktoken file"}
	}
	return t, nil
}

// loadStages reads the files that the stages need and opens the catalogs, which
// the caller closes as cfg.live. Tools that can't be served
// are named on stderr; the rest is served.
func loadStages(ctx context.Context, cfg *serveConfig, stderr io.Writer) error {
	st := &cfg.Proxy.Stages
	var err error
	if st.Counter, err = openTokenizer("", cfg.Tokenizer); err != nil {
		return err
	}
	if cfg.Model != "" {
		if st.Cost, err = calculator("--model", cfg.Model, "--gpu", cfg.GPU); err != nil {
			return err
		}
	}
	if st.Volatile, err = loadVolatile(&cfg.Volatile); err != nil {
		return err
	}
	if cfg.World == "open" {
		st.World = grammar.Open
	}
	if cfg.ClientsFile != "" {
		if st.Clients, err = loadClients(cfg.ClientsFile); err != nil {
			return &usageError{fmt.Errorf("--clients: %w", err), "give a file like 'default: {max_risk: A0}'"}
		}
	}
	if st.Clients != nil && !st.Clients.Default() {
		fmt.Fprintln(stderr, "sidecar: clients has no default entry: keys that are not listed, and requests without one, have no tools")
	}
	sources, err := parseSources(cfg.Catalogs, os.LookupEnv)
	if err != nil {
		return err
	}
	live := catalog.LiveConfig{Sources: sources, Allow: cfg.AllowTools, Deny: cfg.DenyTools, Refresh: cfg.Refresh, IndexCache: cfg.IndexCache, Report: func(source string, what error) {
		fmt.Fprintf(stderr, "sidecar: --catalog %s: %v\n", source, what)
	}}
	if cfg.PinFile != "" {
		if live.Pins, err = catalog.OpenPins(cfg.PinFile); err != nil {
			return &usageError{fmt.Errorf("--catalog-pins: %w", err), "give a file that 'sidecar catalog approve' wrote, or one that doesn't exist yet"}
		}
	}
	if cfg.live, err = catalog.Open(ctx, live); err != nil {
		return &usageError{fmt.Errorf("--catalog: %w", err), sourceHint}
	}
	if len(sources) > 0 {
		st.Catalog = cfg.live.Catalog
	}
	joined := cfg.live.Catalog()
	for _, pin := range st.Pins {
		if joined == nil {
			break
		}
		if _, ok := joined.Lookup(pin); !ok {
			fmt.Fprintf(stderr, "sidecar: --pin %s is in no catalog; it is in front only for clients that send it\n", pin)
		}
	}
	return nil
}
