package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/catalog"
)

const sourceHint = "a source is demo, a JSON, JSONL or YAML file of tools or an OpenAPI description, a folder of such files, a URL, or stdio:COMMAND; name=SOURCE names it"

// parseSources reads sources as they stand on a command line. The token of a
// named one is in the environment: SIDECAR_CATALOG_TOKEN_GITHUB of github=….
func parseSources(specs []string, env func(string) (string, bool)) ([]catalog.Source, error) {
	out := make([]catalog.Source, 0, len(specs))
	for _, spec := range specs {
		s, err := catalog.ParseSource(spec)
		if err != nil {
			return nil, &usageError{fmt.Errorf("catalog %s: %w", spec, err), sourceHint}
		}
		if s.Name != "" {
			s.Token, _ = env("SIDECAR_CATALOG_TOKEN_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")))
		}
		out = append(out, s)
	}
	return out, nil
}

func newImportCmd() *cobra.Command {
	var out string
	var list bool
	cmd := &cobra.Command{
		Use:   "import SOURCE…",
		Short: "Write the tools of OpenAPI descriptions, MCP servers and files as one catalog",
		Long: `Write the tools of OpenAPI descriptions, MCP servers and files as one catalog:
one tool a line in OpenAI's shape, canonical bytes, names that are unique and
that every client takes. What a source declares of a tool's risk is kept as
x-risk.

` + sourceHint + `.
The bearer token of a named URL is taken from SIDECAR_CATALOG_TOKEN_NAME.`,
		Example: "  sidecar import petstore.yaml -o tools.jsonl\n  sidecar import github=https://mcp.example/mcp files='stdio:mcp-files --root .'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{fmt.Errorf("no source to import"), sourceHint}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCatalogs(cmd.Context(), args, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var b bytes.Buffer
			for i := range c.Tools() {
				t := &c.Tools()[i]
				if list {
					fmt.Fprintln(&b, t.Name)
					continue
				}
				b.Write(catalog.WithRisk(t))
				b.WriteByte('\n')
			}
			if out == "" || out == "-" {
				_, err := b.WriteTo(cmd.OutOrStdout())
				return err
			}
			if err := os.WriteFile(out, b.Bytes(), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "sidecar: %d tools in %s\n", c.Len(), out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "`FILE` to write; - is standard output, the default")
	f.BoolVar(&list, "names", false, "write the names alone")
	return cmd
}

func newCatalogCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "catalog", Short: "What changed at a source of tools, and approving it", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newCatalogDiffCmd(), newCatalogApproveCmd())
	return cmd
}

// pinned are the flags that diff and approve share.
type pinned struct {
	sources []string
	pins    string
}

func (p *pinned) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&p.sources, "catalog", nil, "`SOURCE`, as for serve; may be repeated")
	cmd.Flags().StringVar(&p.pins, "catalog-pins", "", "`FILE` of approved tools, as for serve")
}

// each calls do with every source's tools.
func (p *pinned) each(cmd *cobra.Command, do func(*catalog.Pins, catalog.Source, *catalog.Catalog) error) error {
	if p.pins == "" || len(p.sources) == 0 {
		return &usageError{fmt.Errorf("--catalog and --catalog-pins are needed"), "give them as for 'sidecar serve'"}
	}
	pins, err := catalog.OpenPins(p.pins)
	if err != nil {
		return err
	}
	list, err := parseSources(p.sources, os.LookupEnv)
	if err != nil {
		return err
	}
	for _, s := range list {
		c, problems, err := s.Load(cmd.Context())
		for _, pr := range problems {
			fmt.Fprintf(cmd.ErrOrStderr(), "sidecar: left out: %v\n", pr)
		}
		if err != nil {
			return fmt.Errorf("catalog %w", err)
		}
		if err := do(pins, s, c); err != nil {
			return err
		}
	}
	return nil
}

func newCatalogDiffCmd() *cobra.Command {
	var p pinned
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what a source changed since it was approved",
		Long: `Show what a source changed since it was approved: tools added, changed, removed,
with the lines of description and schema that differ. The exit status is 1 if
a tool has changed, 0 otherwise.`,
		Example: "  sidecar catalog diff --catalog github=https://mcp.example/mcp --catalog-pins pins.json",
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all := []catalog.Change{}
		changed := 0
		err := p.each(cmd, func(pins *catalog.Pins, s catalog.Source, c *catalog.Catalog) error {
			for _, ch := range pins.Diff(s.Label(), c.Tools()) {
				all = append(all, ch)
				if ch.Kind == catalog.Changed {
					changed++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if asJSON {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(all); err != nil {
				return err
			}
		} else {
			for _, ch := range all {
				printChange(w, ch)
			}
			if len(all) == 0 {
				fmt.Fprintln(w, "nothing changed")
			}
		}
		if changed > 0 {
			return fmt.Errorf("%d tools have changed; approve them with 'sidecar catalog approve'", changed)
		}
		return nil
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// printChange writes a change with the lines that differ.
func printChange(w io.Writer, ch catalog.Change) {
	fmt.Fprintf(w, "%-8s %s %s\n", ch.Kind, ch.Source, ch.Name)
	if ch.Kind != catalog.Changed {
		return
	}
	before, after := lines(ch.Before), lines(ch.After)
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	for _, l := range before {
		fmt.Fprintf(w, "  - %s\n", l)
	}
	for _, l := range after {
		fmt.Fprintf(w, "  + %s\n", l)
	}
}

// lines is a tool as indented JSON. Control characters can't be in it, and what
// could hide text on a terminal is shown escaped.
func lines(raw []byte) []string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return []string{string(raw)}
	}
	var out []string
	for _, l := range strings.Split(b.String(), "\n") {
		q := fmt.Sprintf("%q", l)
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), `\\`, `\`))
	}
	return out
}

func newCatalogApproveCmd() *cobra.Command {
	var p pinned
	cmd := &cobra.Command{
		Use:     "approve [NAME…]",
		Short:   "Approve tools as their source has them now: all, or those named",
		Example: "  sidecar catalog approve --catalog github=https://mcp.example/mcp --catalog-pins pins.json create_issue",
		RunE: func(cmd *cobra.Command, args []string) error {
			left := map[string]bool{}
			for _, n := range args {
				left[n] = true
			}
			err := p.each(cmd, func(pins *catalog.Pins, s catalog.Source, c *catalog.Catalog) error {
				done, err := pins.Approve(s.Label(), c.Tools(), args...)
				for _, ch := range done {
					fmt.Fprintf(cmd.OutOrStdout(), "approved %s %s (%s)\n", ch.Source, ch.Name, ch.Kind)
					delete(left, ch.Name)
				}
				return err
			})
			for n := range left {
				if err == nil {
					err = fmt.Errorf("%s: no source has changed it", n)
				}
			}
			return err
		},
	}
	p.flags(cmd)
	return cmd
}
