// Command sidecar is the inference-server sidecar and its tools.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit status: 0 for success, 1
// for a failure, 2 for a command line that cannot be understood.
func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "sidecar: %v\n", err)
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(os.Stderr, "hint: %s\n", usage.hint)
		return 2
	}
	if strings.HasPrefix(err.Error(), "unknown command ") { // cobra has no type for it
		fmt.Fprintln(os.Stderr, "hint: see 'sidecar --help'")
		return 2
	}
	return 1
}

// usageError is a mistake on the command line, with what to do about it.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "sidecar",
		Short:         "OpenAI-compatible sidecar for vLLM, SGLang and llama.cpp",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err, "see '" + cmd.CommandPath() + " --help'"}
	})
	root.AddCommand(newBenchCmd(), newCatalogCmd(), newCheckCmd(), newCompileCmd(), newDemoCmd(startLocal), newDoctorCmd(), newEngineCmd(), newImportCmd(), newLintCmd(), newPrefixCmd(), newSearchCmd(), newServeCmd(), newUsageCmd())
	return root
}

// noArgs is the argument check of commands that take flags alone. A boolean flag
// takes its value after an equals sign, which is easily forgotten.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see '" + cmd.CommandPath() + " --help'"
	if args[0] == "true" || args[0] == "false" {
		hint = "write the value of a flag behind an equals sign, as in --retrieval=" + args[0]
	}
	return &usageError{fmt.Errorf("%s takes no argument, and was given %q", cmd.CommandPath(), args[0]), hint}
}
