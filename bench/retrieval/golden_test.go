package retrieval

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/retrieval"
)

var update = flag.Bool("update", false, "rewrite testdata/figures.txt")

// dataPath returns the path of a file of the shared data, or skips the test
// where the data is not there and not required.
func dataPath(t testing.TB, name ...string) string {
	t.Helper()
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(append([]string{dir, "retrieval"}, name...)...)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && os.Getenv("SIDECAR_REQUIRE_DATA") != "1" {
		t.Skipf("no %s: put the shared data there or set SIDECAR_DATA", path)
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

func openSet(t testing.TB, set string, names map[string]bool) (*retrieval.Index, []Query) {
	c, problems, err := catalog.Load(context.Background(), dataPath(t, set, "catalog.jsonl"))
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if names != nil {
		tools := slices.DeleteFunc(slices.Clone(c.Tools()), func(x retrieval.Tool) bool { return !names[x.Name] })
		if c, err = catalog.New(set, tools); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dataPath(t, set, "queries.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	queries, err := ReadQueries(f)
	if err != nil || len(queries) == 0 {
		t.Fatal(len(queries), err)
	}
	queries, _ = Known(queries, c.Index())
	return c.Index(), queries
}

// TestFigures measures the evaluation sets as they are shipped and compares with
// the golden file, which is a record: a change needs a reason in the commit.
func TestFigures(t *testing.T) {
	var b strings.Builder
	fmt.Fprintln(&b, "# Percent, default weights and space, 1,200 tokens with 200 of them for the front block. Rewrite with -update; a change needs a reason in the commit.")
	fmt.Fprintf(&b, "%-15s %6s %6s %5s %5s %5s %5s %5s %6s %6s\n", "set", "tools", "n", "R@1", "R@4", "R@8", "all@4", "all@8", "MRR@10", "within")
	subset := map[string]bool{}
	raw, err := os.ReadFile(dataPath(t, "merged", "catalog_3200.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		subset[string(bytes.TrimSpace(line))] = true
	}
	for _, x := range []struct {
		name, set string
		names     map[string]bool
		every     int // queries in so many are asked, for time
		least     float64
	}{
		{"merged-3200", "merged", subset, 1, 76.5},
		{"toole/8", "toole", nil, 8, 67.5},
		{"bfcl-multiturn", "bfcl-multiturn", nil, 1, 74},
		{"api-bank", "api-bank", nil, 1, 81},
		{"livemcp", "livemcp", nil, 1, 0},
		{"toolalpaca", "toolalpaca", nil, 1, 0},
	} {
		ix, queries := openSet(t, x.set, x.names)
		var some []Query
		for i := 0; i < len(queries); i += x.every {
			some = append(some, queries[i])
		}
		cfg := Config{Ks: []int{1, 4, 8}, TokenCap: 1200, Core: 200, Count: tokenizer.Qwen3().Count}
		r, err := Run(context.Background(), ix, some, cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Recall["4"] < x.least {
			t.Errorf("%s: recall@4 %.1f; it was at least %.1f", x.name, r.Recall["4"], x.least)
		}
		if r.Tokens.InjectedMax > cfg.TokenCap {
			t.Errorf("%s: %d tokens in a turn; at most %d are allowed", x.name, r.Tokens.InjectedMax, cfg.TokenCap)
		}
		fmt.Fprintf(&b, "%-15s %6d %6d %5.1f %5.1f %5.1f %5.1f %5.1f %6.1f %6.1f\n", x.name, r.Tools, r.Queries,
			r.Recall["1"], r.Recall["4"], r.Recall["8"], r.All["4"], r.All["8"], r.MRR10, r.Recall["tokens_1200"])
	}
	golden := filepath.Join("testdata", "figures.txt")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("figures changed; got\n%s\nwant\n%s", b.String(), want)
	}
}
