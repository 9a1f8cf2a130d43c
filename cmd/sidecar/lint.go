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
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/catalog"
)

func newLintCmd() *cobra.Command {
	var (
		sources  []string
		severity string
		only     []string
		most     int
		list     bool
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "lint [flags] [FILE…]",
		Short: "Look for what makes models call tools wrongly, or do harm by them",
		Long: `Look for what makes models call tools wrongly, or do harm by them: missing
units, bounds and descriptions, contradictory schemas and options, unsafe
defaults, tools that can't be told apart. 'sidecar lint --list' gives the rules.

The exit status is 1 if there is a finding of severity error, otherwise 0.`,
		Example: `  sidecar lint tools.json
  sidecar lint --catalog demo --rule dry-run-missing
  sidecar lint --severity error --json tools.json | jq -r '.findings[].loc'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var least grammar.Severity
			if err := least.UnmarshalText([]byte(severity)); err != nil {
				return &usageError{fmt.Errorf("lint: --severity %s", severity), "give error, warning or info"}
			}
			known := lintRules()
			for _, id := range only {
				if !slices.ContainsFunc(known, func(r grammar.Rule) bool { return r.ID == id }) {
					return &usageError{fmt.Errorf("lint: no rule %q", id), "see 'sidecar lint --list'"}
				}
			}
			if most < 0 {
				return &usageError{fmt.Errorf("lint: --places %d", most), "give a number of places, 0 for all"}
			}
			if list {
				return printRules(cmd.OutOrStdout(), known, asJSON)
			}
			if sources = append(sources, args...); len(sources) == 0 {
				sources = []string{"demo"}
			}
			r, err := lint(cmd.Context(), sources)
			if err != nil {
				return err
			}
			if len(only) > 0 && !cmd.Flags().Changed("severity") {
				least = grammar.Info
			}
			r.filter(least, only)
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), r)
			} else {
				if len(only) > 0 && !cmd.Flags().Changed("places") {
					most = 0
				}
				err = r.print(cmd.OutOrStdout(), most)
			}
			if err == nil && r.Errors > 0 {
				err = fmt.Errorf("lint: %s of severity error", counted(r.Errors, "finding"))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&sources, "catalog", nil, "catalog to look at: demo, FILE or DIR; may be repeated (default: the FILEs, else demo)")
	f.StringVar(&severity, "severity", "warning", "least severity to show: error, warning or info; with --rule everything")
	f.StringArrayVar(&only, "rule", nil, "show only findings of the rule `ID`, all places; may be repeated")
	f.IntVar(&most, "places", 5, "places to list under a rule, 0 for all")
	f.BoolVar(&list, "list", false, "list the rules")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// refused is the rule for tools that never get as far as the others.
var refused = grammar.Rule{
	ID: "tool-refused", Severity: grammar.Error, Title: "an entry of the catalog can't be served", Fix: "correct or remove the entry",
	Source: "Tool Interface Schemas: Anatomy of the tool declaration (five-tuple)",
}

func lintRules() []grammar.Rule { return append([]grammar.Rule{refused}, grammar.Rules()...) }

// lintReport is the JSON answer of the command.
type lintReport struct {
	Catalogs []string `json:"catalogs"`
	Tools    int      `json:"tools"`
	// Of the findings listed.
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
	// Left out by --severity or --rule.
	Hidden   int               `json:"hidden"`
	Findings []grammar.Finding `json:"findings"`

	least grammar.Severity
}

func lint(ctx context.Context, sources []string) (*lintReport, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	r := &lintReport{Catalogs: sources, Findings: []grammar.Finding{}}
	var tools []grammar.Described
	for _, s := range sources {
		c, problems, err := catalog.Load(ctx, s)
		for _, p := range problems {
			r.Findings = append(r.Findings, grammar.Finding{Rule: refused.ID, Severity: refused.Severity, Tool: p.Name, Message: p.String(), Fix: refused.Fix})
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, &usageError{fmt.Errorf("catalog %w", err), "give a JSON or JSON lines file, a directory of such files, or demo"}
		case errors.Is(err, catalog.ErrNoTools) && len(problems) > 0:
			continue
		case err != nil:
			return nil, fmt.Errorf("catalog %w", err)
		}
		for _, t := range c.Tools() {
			tools = append(tools, grammar.Described{Tool: grammar.Tool{Name: t.Name, Schema: t.Schema}, Description: t.Description})
		}
	}
	r.Tools = len(tools)
	r.Findings = append(r.Findings, grammar.Lint(tools)...)
	return r, nil
}

// filter leaves out findings below a severity and those of other rules, and
// counts.
func (r *lintReport) filter(least grammar.Severity, only []string) {
	r.least = least
	all := len(r.Findings)
	r.Findings = slices.DeleteFunc(r.Findings, func(f grammar.Finding) bool {
		return f.Severity < least || len(only) > 0 && !slices.Contains(only, f.Rule)
	})
	r.Hidden = all - len(r.Findings)
	for _, f := range r.Findings {
		switch f.Severity {
		case grammar.Error:
			r.Errors++
		case grammar.Warning:
			r.Warnings++
		default:
			r.Infos++
		}
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

// print groups the findings by rule, in the order of the rules.
func (r *lintReport) print(w io.Writer, most int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s", strings.Join(r.Catalogs, ", "), counted(r.Tools, "tool"), counted(r.Errors, "error"))
	if r.least <= grammar.Warning {
		fmt.Fprintf(&b, ", %s", counted(r.Warnings, "warning"))
	}
	if r.least <= grammar.Info {
		fmt.Fprintf(&b, ", %s", counted(r.Infos, "note"))
	}
	if r.Hidden > 0 {
		fmt.Fprintf(&b, "; %s not shown", counted(r.Hidden, "finding"))
		if r.least > grammar.Info {
			b.WriteString(", see --severity info")
		}
	}
	b.WriteByte('\n')
	for _, rule := range lintRules() {
		var mine []grammar.Finding
		tools := map[string]bool{}
		for _, f := range r.Findings {
			if f.Rule == rule.ID {
				mine = append(mine, f)
				tools[f.Tool] = true
			}
		}
		if len(mine) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s  %s: %s\n", rule.Severity, rule.ID, rule.Title)
		fmt.Fprintf(&b, "  %s in %s; to do: %s\n", counted(len(mine), "place"), counted(len(tools), "tool"), rule.Fix)
		shown := mine
		if most > 0 && len(mine) > most {
			shown = mine[:most]
		}
		wide, at := 0, 0
		for _, f := range shown {
			wide, at = max(wide, min(utf8.RuneCountInString(f.Tool), 40)), max(at, min(utf8.RuneCountInString(f.Loc), 48))
		}
		for _, f := range shown {
			line := fmt.Sprintf("    %-*s  %-*s  %s", wide, oneLine(f.Tool, 64), at, oneLine(f.Loc, 200), oneLine(f.Message, 160))
			fmt.Fprintln(&b, strings.TrimRight(line, " "))
		}
		if len(shown) < len(mine) {
			fmt.Fprintf(&b, "    %s more: --rule %s\n", thousands(len(mine)-len(shown)), rule.ID)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printRules(w io.Writer, rules []grammar.Rule, asJSON bool) error {
	if asJSON {
		return writeJSON(w, rules)
	}
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "%-8s %-22s %s\n%32s%s\n%32sfrom: %s\n", r.Severity, r.ID, r.Title, "", r.Fix, "", r.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeJSON writes v indented, without HTML escapes.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
