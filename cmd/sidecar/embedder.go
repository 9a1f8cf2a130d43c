package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/embedder"
	"github.com/toolsidecar/sidecar/retrieval"
)

// embedderFlags are those of commands that rank without serving. The key comes
// from the environment, so that it stands in no list of processes.
func embedderFlags(cmd *cobra.Command, cfg *embedder.Config) {
	f := cmd.Flags()
	f.StringVar(&cfg.URL, "embedder", "", "`URL` of an OpenAI-compatible /v1/embeddings to take vectors from (default: the table in the program); its key is read from SIDECAR_EMBEDDER_KEY")
	f.StringVar(&cfg.Model, "embedder-model", "", "model `NAME` for --embedder")
	f.StringVar(&cfg.Dir, "embedder-cache", "", "`DIR` that keeps its vectors between runs")
}

// embedWith is ix with the vectors of a server, which is asked for those of all
// tools and of the given texts at once; w is told how many.
func embedWith(ctx context.Context, w io.Writer, command string, ix *retrieval.Index, texts []string, cfg embedder.Config) (*retrieval.Index, error) {
	cfg.Key = os.Getenv("SIDECAR_EMBEDDER_KEY")
	client, err := embedder.New(cfg)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s--embedder: %w", command, err), "give the address of a server, as in --embedder http://127.0.0.1:8081"}
	}
	defer client.Close()
	texts = append(ix.ToolTexts(), texts...)
	fmt.Fprintf(w, "sidecar: getting vectors of %d texts\n", len(texts))
	vectors, err := client.Embed(ctx, texts)
	if err != nil {
		return nil, fmt.Errorf("%s--embedder %s: %w", command, cfg.URL, err)
	}
	space := &retrieval.Space{Name: cfg.URL, Embed: func(text string) []float32 { return vectors[text] }}
	for _, v := range vectors {
		space.Dim = len(v)
		break
	}
	return ix.WithSpace(space)
}
