package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	proxybench "github.com/toolsidecar/sidecar/bench/proxy"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure the sidecar", Args: noArgs}
	cmd.AddCommand(newBenchEmissionCmd(), newBenchGrammarCmd(), newBenchPrefixCmd(), newBenchProxyCmd(), newBenchRetrievalCmd(), newBenchIndexCmd())
	return cmd
}

func newBenchProxyCmd() *cobra.Command {
	var (
		cfg      proxybench.Config
		kib      []int
		file     string
		flags    []string
		asEngine bool
	)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "What the sidecar adds to a request: direct against through, in pairs",
		Long: `Sends the same request to a fake engine directly and through a sidecar, in
turns, one at a time. Client, sidecar and engine are three processes, as they
are in use. The times are for the whole reply, or with --stream for the first
event of a stream. Let the machine be idle: it measures tens of microseconds.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asEngine {
				return benchEngine(cmd)
			}
			if cfg.Pairs < 10 || cfg.Runs < 1 {
				return &usageError{fmt.Errorf("--pairs is at least 10 and --runs at least 1"), "the defaults are a good start"}
			}
			for _, k := range kib {
				if k < 1 || k > 16<<10 {
					return &usageError{fmt.Errorf("--kib %d is not from 1 to 16384", k), "give sizes as in --kib 1,64,400"}
				}
				cfg.Sizes = append(cfg.Sizes, k<<10)
			}
			return benchProxy(cmd, cfg, file, flags)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&kib, "kib", []int{1, 64, 400}, "sizes of the request body in KiB")
	f.IntVar(&cfg.Pairs, "pairs", 2000, "pairs of requests a size and run")
	f.IntVar(&cfg.Runs, "runs", 5, "runs, each reported")
	f.BoolVar(&cfg.Stream, "stream", false, "time the first event of a stream")
	f.StringVar(&file, "json", "", "write the rows to `FILE`")
	f.StringArrayVar(&flags, "serve", []string{"--retrieval=false", "--prefix=false", "--grammar=false", "--tokenbudget=false"},
		"`FLAG` for the measured 'sidecar serve' (repeatable; the default turns the stages off)")
	f.BoolVar(&asEngine, "as-engine", false, "be the fake engine until standard input ends")
	f.MarkHidden("as-engine")
	return cmd
}

// benchEngine is the fake engine's process.
func benchEngine(cmd *cobra.Command) error {
	engine, err := proxybench.StartEngine()
	if err != nil {
		return err
	}
	defer engine.Close()
	fmt.Fprintf(cmd.OutOrStdout(), "fake engine: listening on http://%s, for the benchmark\n", engine.Addr())
	_, err = io.Copy(io.Discard, cmd.InOrStdin())
	return err
}

func benchProxy(cmd *cobra.Command, cfg proxybench.Config, file string, flags []string) error {
	engine, stopEngine, err := startSelf([]string{"bench", "proxy", "--as-engine"}, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer stopEngine()
	through, stop, err := startSelf(append([]string{"serve", "--listen", "127.0.0.1:0", "--engine", "http://" + engine}, flags...), io.Discard)
	if err != nil {
		return err
	}
	defer stop()
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s/%s, %d cores, %s; times in µs\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(out, "%4s %8s | %9s %9s | %9s %9s | %9s %9s %9s\n", "run", "bytes", "direct50", "direct99", "thru50", "thru99", "added50", "added99", "paired50")
	var rows []proxybench.Row
	err = proxybench.Run(cmd.Context(), cfg, engine, through, func(r proxybench.Row) {
		rows = append(rows, r)
		fmt.Fprintf(out, "%4d %8d | %9.1f %9.1f | %9.1f %9.1f | %9.1f %9.1f %9.1f\n",
			r.Run, r.Bytes, r.DirectP50, r.DirectP99, r.ThroughP50, r.ThroughP99, r.AddedP50, r.AddedP99, r.PairedP50)
	})
	if err != nil || file == "" {
		return err
	}
	raw, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

// startSelf runs this program with args as a process of its own and returns the
// address that it says it listens on.
func startSelf(args []string, stderr io.Writer) (addr string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		stdin.Close()
		cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_, rest, ok := strings.Cut(line, "http://")
	if err != nil || !ok {
		stop()
		return "", nil, fmt.Errorf("sidecar %s did not start", strings.Join(args, " "))
	}
	addr, _, _ = strings.Cut(rest, ",")
	return addr, stop, nil
}
