package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

func newPrefixCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prefix",
		Short: "What of a prompt an engine can find in its cache",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("prefix: no command %q", args[0]), "the one command is: sidecar prefix diff A.json B.json"}
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newPrefixDiffCmd())
	return cmd
}

func newPrefixDiffCmd() *cobra.Command {
	var family, vocabulary, file string
	cmd := &cobra.Command{
		Use:   "diff A.json B.json",
		Short: "Find the first byte and token in which the prompt of B parts from that of A",
		Long: `Find the first byte and token in which the prompt of B parts from that of A,
what stands there and who owns it. A and B are bodies of chat completions, of
which A was sent first; one of them may be - for standard input.

The exit status is 0 if the prompt of B begins with that of A, or is its
beginning, so that an engine finds it in its cache; 1 if they part.`,
		Example: "  sidecar prefix diff turn3.json turn4.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &usageError{fmt.Errorf("prefix diff: two requests are needed, %d given", len(args)), "as in: sidecar prefix diff turn3.json turn4.json"}
			}
			if args[0] == "-" && args[1] == "-" {
				return &usageError{errors.New("prefix diff: both requests are standard input"), "give a file for one of them"}
			}
			f, err := wire.ByName(family)
			if err != nil {
				return &usageError{fmt.Errorf("prefix diff: --family: %w", err), "give the family whose template renders the prompt"}
			}
			tok, err := openTokenizer("prefix diff: ", vocabulary)
			if err != nil {
				return err
			}
			var sides [2]*prefix.Request
			for i, path := range args {
				body, err := readInput(cmd, path)
				if err != nil {
					return fmt.Errorf("prefix diff: %w", err)
				}
				if len(body) == maxInstance {
					return fmt.Errorf("prefix diff: %s is larger than %s", path, formatSize(maxInstance-1))
				}
				if sides[i], err = proxy.ReadRequest(body); err != nil {
					return fmt.Errorf("prefix diff: %s: %w", path, err)
				}
			}
			d := prefix.Compare(sides[0], sides[1], f, tok)
			table := cmd.OutOrStdout()
			switch file {
			case "":
			case "-":
				table = cmd.ErrOrStderr()
				err = writeJSON(cmd.OutOrStdout(), d)
			default:
				err = writeJSONFile(file, d)
			}
			if err == nil {
				err = printDiff(table, d)
			}
			if err == nil && d.Relation == prefix.Breaks {
				err = fmt.Errorf("prefix diff: the prompts part at token %d", d.Token)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&family, "family", "hermes", "`NAME` of the family whose template renders the prompt")
	fs.StringVar(&vocabulary, "tokenizer", "", "vocabulary `FILE` (tokenizer.json or *.tiktoken); without it Qwen3's")
	fs.StringVar(&file, "json", "", "write the result to `FILE` as JSON; - for standard output, the table then goes to standard error")
	return cmd
}

func writeJSONFile(path string, v any) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, v), f.Close())
}

// printDiff writes a diff for people.
func printDiff(w io.Writer, d *prefix.Diff) error {
	says := map[prefix.Relation]string{
		prefix.Equal:   "the prompts are equal",
		prefix.Extends: "B extends A: all of A can be found in the cache",
		prefix.Within:  "B is the beginning of A: all of it can be found in the cache",
		prefix.Breaks:  "B parts from A",
	}[d.Relation]
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("relation", fmt.Sprintf("%s: %s", d.Relation, says))
	row("tokens", fmt.Sprintf("A %d, B %d, shared %d", d.BeforeTokens, d.AfterTokens, d.Token))
	if d.Relation == prefix.Breaks {
		row("first difference", fmt.Sprintf("byte %d, token %d", d.Byte, d.Token))
		row("at", d.Path)
		row("what", d.Kind)
		row("owner", d.Owner)
		row("before", oneLine(d.Before, 120))
		row("after", oneLine(d.After, 120))
		row("lost", fmt.Sprintf("%d tokens are computed anew", d.LostTokens))
	}
	return t.Flush()
}
