// Command withengine runs a command beside real engines.
//
//	withengine ENGINE:MODEL... -- COMMAND [ARGUMENT...]
//
// The engines (vllm, sglang, llama) start with their models (tiny, smollm2) at the same
// time; when all are ready the command runs with their addresses in the
// environment, SIDECAR_TEST_VLLM_URL and so on, and when it ends they are stopped.
// Its exit status is the command's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/toolsidecar/sidecar/internal/enginetest"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "withengine: %v\n", err)
	}
	os.Exit(status)
}

// An engine is one word ENGINE:MODEL of the command line and what came of it.
type engine struct {
	kind    enginetest.Engine
	model   enginetest.Model
	process *enginetest.Process
	err     error
}

func run(args []string) (status int, err error) {
	at := slices.Index(args, "--")
	if at < 1 || at == len(args)-1 {
		return 2, errors.New("usage: withengine ENGINE:MODEL... -- COMMAND [ARGUMENT...]")
	}
	engines := make([]*engine, at)
	for i, word := range args[:at] {
		kind, model, err := enginetest.Parse(word)
		if err != nil {
			return 2, err
		}
		engines[i] = &engine{kind: kind, model: model}
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	defer func() {
		var wg sync.WaitGroup
		for _, e := range engines {
			if e.process == nil {
				continue
			}
			wg.Go(e.process.Stop)
			if status == 0 {
				os.Remove(e.process.Log)
			} else {
				fmt.Fprintf(os.Stderr, "withengine: log of %s %s: %s\n", e.kind, e.model, e.process.Log)
			}
		}
		wg.Wait()
	}()

	begin := time.Now()
	var wg sync.WaitGroup
	for _, e := range engines {
		wg.Go(func() {
			e.process, e.err = enginetest.Start(ctx, e.kind, e.model)
			if e.err != nil {
				cancel() // without one of them the others are of no use
			} else {
				fmt.Fprintf(os.Stderr, "withengine: %s %s is ready at %s after %.1f s\n", e.kind, e.model, e.process.URL, time.Since(begin).Seconds())
			}
		})
	}
	wg.Wait()

	cmd := exec.CommandContext(ctx, args[at+1], args[at+2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = os.Environ()
	if err := firstError(engines); err != nil {
		return 1, err
	}
	for _, e := range engines {
		cmd.Env = append(cmd.Env, e.kind.Variable(e.model)+"="+e.process.URL)
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// firstError is the error that stopped the start: not the cancellation that it
// caused in the others, unless there is nothing else.
func firstError(engines []*engine) error {
	var first error
	for _, e := range engines {
		if e.err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = e.err
		}
	}
	return first
}
