package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	retrievalbench "github.com/toolsidecar/sidecar/bench/retrieval"
)

func newBenchIndexCmd() *cobra.Command {
	var catalogs []string
	var queries, export, file string
	var grow, uniform int
	cmd := &cobra.Command{
		Use:   "index --catalog FILE --queries FILE",
		Short: "The graph that finds near vectors against a look at all: building, recall, time",
		Long: `Builds the graph of a catalog's vectors, asks it for the ten nearest to each query,
and compares with a scan of all vectors. --uniform measures as many random
directions beside it, which have no neighbourhoods to find.`,
		Example: `  sidecar bench index --catalog catalog.jsonl --queries queries.jsonl --grow 100000 --uniform 100000
  sidecar bench index --catalog catalog.jsonl --queries queries.jsonl --export vectors`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(catalogs) == 0:
				return &usageError{errors.New("bench index: no --catalog"), "give the tools, as in --catalog tools.jsonl"}
			case queries == "":
				return &usageError{errors.New("bench index: no --queries"), "give the queries, as in --queries queries.jsonl"}
			case grow < 0 || grow > growMost || uniform < 0 || uniform > growMost:
				return &usageError{fmt.Errorf("bench index: --grow %d --uniform %d", grow, uniform), fmt.Sprintf("give numbers up to %d", growMost)}
			}
			ctx := cmd.Context()
			c, err := openCatalogs(ctx, catalogs, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if c, err = grown(c, grow); err != nil {
				return err
			}
			asked, err := readQueries(queries)
			if err != nil {
				return err
			}
			vectors, askedVectors := retrievalbench.ToolVectors(c.Index(), asked)
			if export != "" {
				if err := retrievalbench.ExportVectors(export, vectors, askedVectors); err != nil {
					return fmt.Errorf("bench index: --export %s: %w", export, err)
				}
			}
			var reports []*retrievalbench.IndexReport
			add := func(of string, vectors, queries [][]float32) error {
				r, err := retrievalbench.MeasureIndex(ctx, of, vectors, queries)
				if err != nil {
					return fmt.Errorf("bench index: %w", err)
				}
				reports = append(reports, r)
				return nil
			}
			if err := add("tools", vectors, askedVectors); err != nil {
				return err
			}
			if uniform > 0 {
				all := retrievalbench.UniformVectors(uniform+len(askedVectors), len(vectors[0]), 1)
				if err := add("uniform", all[:uniform], all[uniform:]); err != nil {
					return err
				}
			}
			table := cmd.OutOrStdout()
			if file == "-" {
				table = cmd.ErrOrStderr()
			}
			if err := retrievalbench.PrintIndex(table, reports); err != nil {
				return err
			}
			return fileJSON(cmd.OutOrStdout(), file, reports)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&catalogs, "catalog", nil, "`FILE`, directory or demo with the tools (repeatable)")
	f.StringVar(&queries, "queries", "", "`FILE` of queries, JSON lines as for bench retrieval")
	f.IntVar(&grow, "grow", 0, "add seeded variants of the tools until there are `N`")
	f.IntVar(&uniform, "uniform", 0, "measure `N` random directions, too")
	f.StringVar(&export, "export", "", "write the vectors to `DIR`, for other programs")
	f.StringVar(&file, "json", "", "write the figures to `FILE`; - is standard output")
	return cmd
}
