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

	"github.com/spf13/cobra"

	grammarbench "github.com/toolsidecar/sidecar/bench/grammar"
	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

type grammarBench struct {
	schemas, suite, vocabulary, file, out string
	language, draft                       string
	subsets                               []string
	formats, peers, slow                  bool
	answers, every                        int
}

func newBenchGrammarCmd() *cobra.Command {
	var b grammarBench
	cmd := &cobra.Command{
		Use:   "grammar (--schemas DIR | --suite DIR | --slow) [flags]",
		Short: "Judge labelled instances by token masks, and time compiling and masking",
		Long: `Compiles every schema below DIR, walks its instances token by token, and asks
for the mask before each token. An instance is accepted if all of its tokens
were allowed and then the end of the turn. Times are in µs: compile_us from
schema bytes to the first mask; mask_us of the first answer over a fresh
grammar, each mask written out; warm_mask_us of masks that are known. Let the
machine be idle.

A file of --schemas is {schema, tests:[{valid,data}]}; one of --suite has the
official form, and remotes beside the tests are given as documents.

What a model is held to (--language gen) is narrower than the schema by design,
and where its reasons say so wider. Instances judged against their label for that
are listed as narrower and wider, not as wrong.`,
		Example: `  sidecar bench grammar --schemas schemas/ --subset BFCL --json report.json
  sidecar bench grammar --suite JSON-Schema-Test-Suite/tests/draft7`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.schemas, "schemas", "", "`DIR` of files {schema, tests}, read with all folders below it")
	f.StringVar(&b.suite, "suite", "", "`DIR` of the official test suite or a part of it")
	f.BoolVar(&b.slow, "slow", false, "cases made to be slow, each measured alone: long bounds, broad patterns, many branches")
	f.IntVar(&b.every, "every", 1, "only every `N`th schema")
	f.StringVar(&b.vocabulary, "tokenizer", "", "tokenizer.json or *.tiktoken `FILE` (default: Qwen3's vocabulary)")
	f.StringVar(&b.file, "json", "", "write the report to `FILE`, - for standard output")
	f.StringVar(&b.out, "out", "table", "what is printed: table, markdown or none")
	f.StringVar(&b.language, "language", "accept", "accept: what a schema says, or gen: what a model is held to")
	f.StringVar(&b.draft, "draft", "", "draft of schemas that don't say: 2020-12, 2019-09, 7, 6, 4 or openapi-3.1 (default: 2020-12, or what the suite's folder says)")
	f.StringSliceVar(&b.subsets, "subset", nil, "only files below these `FOLDERS` of DIR")
	f.BoolVar(&b.formats, "formats", true, "format asserts; a suite's file says itself")
	f.BoolVar(&b.peers, "peers", false, "measure xgrammar, llguidance and outlines-core on the same tokens (see make peers)")
	f.IntVar(&b.answers, "answers", 1, "answers over a fresh grammar that are timed for mask_us")
	return cmd
}

func (b *grammarBench) run(cmd *cobra.Command) error {
	given := 0
	for _, is := range []bool{b.schemas != "", b.suite != "", b.slow} {
		if is {
			given++
		}
	}
	if given != 1 {
		return &usageError{errors.New("bench grammar: give one of --schemas, --suite and --slow"), "as in: sidecar bench grammar --schemas DIR"}
	}
	if b.answers < 1 || b.every < 1 || !slices.Contains([]string{"table", "markdown", "none"}, b.out) {
		return &usageError{fmt.Errorf("bench grammar: --answers %d, --every %d, --out %s", b.answers, b.every, b.out), "numbers are at least 1; print table, markdown or none"}
	}
	v, path, err := openVocabulary(b.vocabulary)
	if err != nil {
		return err
	}
	var cases []grammarbench.Case
	var documents map[string][]byte
	switch {
	case b.schemas != "":
		cases, err = grammarbench.Schemas(b.schemas)
	case b.suite != "":
		cases, documents, err = grammarbench.Suite(b.suite)
	default:
		cases = grammarbench.Slow()
	}
	if err != nil {
		return fmt.Errorf("bench grammar: %w", err)
	}
	cases = slices.DeleteFunc(cases, func(c grammarbench.Case) bool {
		return len(b.subsets) > 0 && !slices.ContainsFunc(b.subsets, func(s string) bool { return strings.HasPrefix(c.File, strings.TrimSuffix(s, "/")+"/") })
	})
	n := 0
	cases = slices.DeleteFunc(cases, func(grammarbench.Case) bool { n++; return n%b.every != 1%b.every })
	if len(cases) == 0 {
		return &usageError{fmt.Errorf("bench grammar: no schema in --subset %s", strings.Join(b.subsets, ",")), "a subset is a folder of DIR"}
	}
	compile, err := b.compiler(cmd.Context(), v, documents)
	if err != nil {
		return err
	}
	if !b.slow {
		r, err := b.measure(cmd, v, path, compile, cases)
		if err != nil {
			return err
		}
		if err := b.write(cmd, r); err != nil {
			return err
		}
		return b.print(cmd, r)
	}
	type alone struct {
		File string `json:"file"`
		*grammarbench.Report
	}
	var all []alone
	for i := range cases {
		r, err := b.measure(cmd, v, path, compile, cases[i:i+1])
		if err != nil {
			return err
		}
		if b.out != "none" {
			fmt.Fprintf(b.table(cmd), "\n%s\n", cases[i].File)
		}
		if err := b.print(cmd, r); err != nil {
			return err
		}
		all = append(all, alone{cases[i].File, r})
	}
	return b.write(cmd, all)
}

func (b *grammarBench) measure(cmd *cobra.Command, v *token.Vocabulary, path string, compile func(grammarbench.Case) (*grammarbench.Language, error), cases []grammarbench.Case) (*grammarbench.Report, error) {
	r, err := grammarbench.Run(grammarbench.Config{Vocabulary: v, Compile: compile, Answers: b.answers}, cases)
	if err == nil && b.peers {
		r.Peers, err = grammarbench.Peers(cmd.Context(), ".", "", v, path, cases, cmd.ErrOrStderr())
	}
	if err != nil {
		return nil, fmt.Errorf("bench grammar: %w", err)
	}
	return r, nil
}

// write writes what was measured to the file that was asked for.
func (b *grammarBench) write(cmd *cobra.Command, report any) error {
	switch b.file {
	case "":
		return nil
	case "-":
		return writeJSON(cmd.OutOrStdout(), report)
	}
	raw, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.file, append(raw, '\n'), 0o644)
}

// table is where tables go: not into the JSON.
func (b *grammarBench) table(cmd *cobra.Command) io.Writer {
	if b.file == "-" {
		return cmd.ErrOrStderr()
	}
	return cmd.OutOrStdout()
}

func (b *grammarBench) print(cmd *cobra.Command, r *grammarbench.Report) error {
	if b.out == "none" {
		return nil
	}
	return grammarbench.Table(b.table(cmd), r, b.out == "markdown")
}

// openVocabulary loads a tokenizer, with the tokens of models that end a turn.
func openVocabulary(path string) (v *token.Vocabulary, file string, err error) {
	tok := tokenizer.Qwen3()
	if path != "" {
		if tok, err = tokenizer.Load(path); err != nil {
			return nil, "", err
		}
	}
	for _, end := range []string{"<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "</s>"} {
		if id, ok := tok.ID(end); ok {
			v, err = token.NewVocabulary(tok, id)
			return v, path, err
		}
	}
	return nil, "", fmt.Errorf("vocabulary %s has no token that is known to end a turn", tok.Name())
}

// draftOf reads the name of a draft.
func draftOf(name string) (accept.Draft, error) {
	for _, d := range []struct {
		name string
		is   accept.Draft
	}{{"", accept.Default}, {"2020-12", accept.Draft2020}, {"2019-09", accept.Draft2019}, {"7", accept.Draft07}, {"6", accept.Draft06}, {"4", accept.Draft04}, {"openapi-3.1", accept.OpenAPI31}} {
		if name == d.name {
			return d.is, nil
		}
	}
	return 0, &usageError{fmt.Errorf("draft %q", name), "give 2020-12, 2019-09, 7, 6, 4 or openapi-3.1"}
}

// compiler is how a language is compiled.
func (b *grammarBench) compiler(ctx context.Context, v *token.Vocabulary, documents map[string][]byte) (func(grammarbench.Case) (*grammarbench.Language, error), error) {
	draft, err := draftOf(b.draft)
	if err != nil {
		return nil, err
	}
	switch b.language {
	case "accept":
		return func(c grammarbench.Case) (*grammarbench.Language, error) {
			o := accept.Options{Draft: draft, Formats: b.formats && c.Formats, Documents: documents}
			if b.draft == "" && c.Draft != "" {
				d, err := draftOf(strings.TrimPrefix(c.Draft, "draft"))
				if err != nil {
					return nil, err
				}
				o.Draft = d
			}
			g, err := accept.Tokens(ctx, v, c.Schema, o, 0)
			return &grammarbench.Language{Grammar: g}, err
		}, nil
	case "gen":
		return func(c grammarbench.Case) (*grammarbench.Language, error) {
			checked, err := grammar.Compile(grammar.Tool{Name: c.File, Schema: c.Schema}, grammar.Open)
			if err != nil {
				return nil, err
			}
			a, err := checked.Automaton()
			if err != nil {
				return nil, err
			}
			g, err := token.New(v, 0, a.Source)
			wider := checked.Reasons()
			if b.formats && c.Formats { // annotations to it
				wider = append(wider, checked.Undecided()...)
			}
			return &grammarbench.Language{Grammar: g, Narrow: true, Wider: wider}, err
		}, nil
	}
	return nil, &usageError{fmt.Errorf("bench grammar: --language %s", b.language), "give accept or gen"}
}
