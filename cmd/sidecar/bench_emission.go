package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/bench/emission"
	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/models/wire"
)

func newBenchEmissionCmd() *cobra.Command {
	var (
		cfg                         emission.Config
		tools, schemas              []string
		target, judge, family, file string
		python, script, vocabulary  string
		version, llama              string
		sets, size, every           int
		limit                       time.Duration
	)
	cmd := &cobra.Command{
		Use:   "emission",
		Short: "What is written to hold engines to tools: proof, the engines' verdict, their compile time",
		Long: `Writes every schema or set of tools in the notation of an engine, reads it back
and proves it, and lets the real engine judge: texts that can be written, near
misses of them, and replies that the engine writes at random under its own
masks. The judge of llama.cpp is our reader of its notation, and with --llama a
running llama-server, which samples replies under the grammar.

--schemas DIR takes every .json below DIR: a schema, or an object with schema
and tests, whose data are judged too. --tools FILE is one set, or with --sets
that many random sets, of 1 to 12 tools unless --size says how many.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := wire.ByName(family)
			if err != nil || f.Trigger() == "" {
				return &usageError{fmt.Errorf("bench emission: --family %s has no calls", family), "give a family with tools, such as hermes"}
			}
			if cfg.Syntax = grammar.SyntaxOf(f); cfg.Syntax.Parameters != nil || cfg.Syntax.Channels {
				return &usageError{fmt.Errorf("bench emission: family %s writes no JSON objects for calls", f.Name), "give a family that does, such as hermes"}
			}
			cfg.Target, cfg.Engine = grammar.Target(target), judge
			fits := map[string][]string{"xgrammar": {"structural-tag", "regex"}, "llguidance": {"lark", "json-schema", "legacy-tag"}, "llama.cpp": {"gbnf"}, "none": {"structural-tag", "legacy-tag", "gbnf", "lark", "regex", "json-schema"}}
			if !slices.Contains(fits[judge], target) {
				return &usageError{fmt.Errorf("bench emission: --judge %s of --target %s", judge, target), "xgrammar judges structural-tag and regex, llguidance lark, json-schema and legacy-tag, llama.cpp gbnf; none judges nothing"}
			}
			if judge != "xgrammar" || target != "structural-tag" {
				if cfg.Probe > 0 || cfg.Grow {
					return &usageError{fmt.Errorf("bench emission: --probe and --grow ask xgrammar about structural tags"), "leave them out, or give --judge xgrammar --target structural-tag"}
				}
			}
			if llama != "" {
				if judge != "llama.cpp" {
					return &usageError{fmt.Errorf("bench emission: --llama beside --judge %s", judge), "give --judge llama.cpp --target gbnf"}
				}
				cfg.Llama = &emission.Llama{URL: llama}
			}
			cfg.Version = grammar.Engine{Name: "xgrammar", Version: version}
			var all []emission.Set
			switch {
			case len(schemas) > 0 && len(tools) > 0 || len(schemas)+len(tools) == 0:
				return &usageError{fmt.Errorf("bench emission: give --tools or --schemas"), "for example --schemas DIR"}
			case len(schemas) > 0:
				all, err = schemaSets(schemas, every)
			default:
				all, err = toolSets(cmd, tools, sets, size, cfg.Seed)
			}
			if err != nil {
				return err
			}
			if judge == "xgrammar" || judge == "llguidance" {
				if cfg.Judge, err = emission.StartJudge(cmd.Context(), python, script, vocabulary); err != nil {
					return err
				}
				cfg.Judge.Limit = limit
				defer cfg.Judge.Close()
			}
			r, err := emission.Run(cmd.Context(), all, cfg, func(done int) {
				if done%100 == 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s sets\n", thousands(done), thousands(len(all)))
				}
			})
			if err != nil {
				return fmt.Errorf("bench emission: %w", err)
			}
			return printEmission(cmd, r, cfg, file)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&tools, "tools", nil, "`FILE` of tools, or demo; may be repeated")
	f.StringArrayVar(&schemas, "schemas", nil, "`DIR` of schemas; may be repeated")
	f.IntVar(&every, "every", 1, "take every `N`th schema")
	f.IntVar(&sets, "sets", 0, "random sets of tools; 0 for one set of all")
	f.IntVar(&size, "size", 0, "tools of a random set; 0 for 1 to 12")
	f.StringVar(&target, "target", "structural-tag", "what to write: structural-tag, legacy-tag, gbnf, lark, regex or json-schema")
	f.StringVar(&judge, "judge", "xgrammar", "xgrammar, llguidance, llama.cpp or none")
	f.StringVar(&family, "family", "hermes", "model family, which says how a call is written")
	f.StringVar(&version, "xgrammar", "0.2.8", "`VERSION` of xgrammar that tags are written for")
	f.IntVar(&cfg.Derived, "texts", 6, "texts made up for each tool, and as many near misses")
	f.IntVar(&cfg.Walks, "walks", 2, "replies that the engine writes at random")
	f.IntVar(&cfg.Probe, "probe", 0, "allowed tokens that each step of a reply tries, of xgrammar")
	f.BoolVar(&cfg.Grow, "grow", false, "compile each set again after the set without its last tool, of xgrammar")
	f.BoolVar(&cfg.Raw, "raw", false, "compile the schemas as they are, too")
	f.DurationVar(&limit, "limit", time.Minute, "how long an engine may work on one grammar, its texts and replies")
	f.Uint64Var(&cfg.Seed, "seed", 1, "of texts and sets")
	f.StringVar(&python, "python", ".venv/judges/bin/python", "interpreter that has the engines (make .venv/judges)")
	f.StringVar(&script, "script", "tools/grammar_judge.py", "the judge's script")
	f.StringVar(&vocabulary, "tokenizer", ".cache/qwen3/tokenizer.json", "tokenizer.json of the judge (make .cache/qwen3)")
	f.StringVar(&llama, "llama", "", "`URL` of a running llama-server (tools/serve.sh llama tiny PORT)")
	f.StringVar(&file, "json", "", "write the report to `FILE` (- for standard output)")
	return cmd
}

// schemaSets takes every schema for one set.
func schemaSets(dirs []string, every int) ([]emission.Set, error) {
	var paths []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".json" {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("bench emission: --schemas: %w", err)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("bench emission: no .json under %s", strings.Join(dirs, ", "))
	}
	slices.Sort(paths)
	var out []emission.Set
	for i, path := range paths {
		if i%max(every, 1) != 0 {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		set := emission.Set{Name: name}
		var file struct {
			Schema json.RawMessage `json:"schema"`
			Tests  []struct {
				Data json.RawMessage `json:"data"`
			} `json:"tests"`
		}
		if err := json.Unmarshal(raw, &file); err != nil || len(file.Schema) == 0 || file.Tests == nil {
			file.Schema = raw
		}
		for _, t := range file.Tests {
			var compact bytes.Buffer
			if json.Compact(&compact, t.Data) == nil && compact.Len() < 20_000 {
				set.Texts = append(set.Texts, compact.String())
			}
		}
		set.Tools = []grammar.Tool{{Name: name, Schema: file.Schema}}
		out = append(out, set)
	}
	return out, nil
}

func toolSets(cmd *cobra.Command, sources []string, sets, size int, seed uint64) ([]emission.Set, error) {
	c, err := openCatalogs(cmd.Context(), sources, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	var tools []grammar.Tool
	for _, t := range c.Tools() {
		tools = append(tools, grammar.Tool{Name: t.Name, Schema: t.Schema})
	}
	if sets == 0 {
		return []emission.Set{{Name: "all", Tools: tools}}, nil
	}
	if size < 0 || size > len(tools) {
		return nil, &usageError{fmt.Errorf("bench emission: --size %d of %d tools", size, len(tools)), "give a smaller size"}
	}
	return emission.Draw(tools, sets, size, seed), nil
}

func printEmission(cmd *cobra.Command, r *emission.Report, cfg emission.Config, file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	out := cmd.OutOrStdout()
	if file == "-" {
		out = cmd.ErrOrStderr()
		if _, err := cmd.OutOrStdout().Write(raw); err != nil {
			return err
		}
	} else if file != "" {
		if err := os.WriteFile(file, raw, 0o644); err != nil {
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, judged by %s\n", cfg.Target, cfg.Engine)
	for _, row := range []struct {
		name string
		n    int
	}{
		{"sets", r.Sets}, {"tools", r.Tools}, {"emitted", r.Emitted}, {"refused", len(r.Refused)}, {"proved", r.Proved}, {"bounded", r.Bounded},
		{"checked after the reply", r.Checked}, {"equal to what was meant", r.Equal}, {"wider", r.Wider}, {"narrower", r.Narrower},
		{"texts judged", r.Judged}, {"replies finished", r.Finished}, {"replies stuck", r.Stuck}, {"disagreements", r.JudgeDisagreements},
	} {
		fmt.Fprintf(&b, "  %-26s %9s\n", row.name, thousands(row.n))
	}
	for _, row := range []struct {
		name string
		q    *emission.Quantiles
	}{{"engine compile, ms", &r.CompileMS}, {"one tool more", r.GrowMS}, {"of the schemas themselves", r.RawCompileMS}, {"one tool more", r.RawGrowMS}} {
		if cfg.Judge != nil && row.q != nil {
			fmt.Fprintf(&b, "  %-26s p50 %.1f  p99 %.1f  max %.0f\n", row.name, row.q.P50, row.q.P99, row.q.Max)
		}
	}
	if q := r.ByPredicted; q != nil {
		fmt.Fprintf(&b, "  %-26s p1 %.2f  p50 %.2f  p99 %.2f  max %.1f\n", "by what was predicted", q.P1, q.P50, q.P99, q.Max)
	}
	if r.RawCompileMS != nil {
		fmt.Fprintf(&b, "  %-26s %9s\n", "schemas refused by it", thousands(r.RawRefused))
		fmt.Fprintf(&b, "  %-26s %9s\n", "without an answer", thousands(r.RawDied))
	}
	for i, x := range r.Refused {
		if i == 10 {
			fmt.Fprintf(&b, "  … %d more refused\n", len(r.Refused)-i)
			break
		}
		fmt.Fprintf(&b, "  refused %s: %s\n", x.Name, oneLine(x.Reason, 160))
	}
	for i, x := range r.Disagreements {
		if i == 10 {
			fmt.Fprintf(&b, "  … %d more disagreements\n", r.JudgeDisagreements-i)
			break
		}
		fmt.Fprintf(&b, "  %s: the engine %s: %s\n", x.Name, oneLine(x.Engine, 100), oneLine(x.Text, 160))
	}
	_, err = out.Write([]byte(b.String()))
	return err
}
