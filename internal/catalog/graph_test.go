package catalog

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/retrieval/hnsw"
)

// The graph of a cache is the one that was built; one that is damaged is
// reported and built anew.
func TestIndexCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	demo := Demo()
	c, err := New("some", demo.Tools()[:120])
	if err != nil {
		t.Fatal(err)
	}
	first, problem, err := OpenGraph(t.Context(), dir, c.Index())
	if err != nil || problem != nil || first.Len() != 120 {
		t.Fatal(problem, err)
	}
	path := filepath.Join(dir, graphFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again, problem, err := OpenGraph(t.Context(), dir, c.Index())
	var b bytes.Buffer
	if err != nil || problem != nil || again.Save(&b) != nil || !bytes.Equal(b.Bytes(), raw) {
		t.Fatalf("another graph: %v, %v", problem, err)
	}

	for name, damaged := range map[string][]byte{"cut": raw[:len(raw)/2], "empty": {}, "another": append([]byte("x"), raw...), "flipped": bytes.Replace(raw, raw[500:510], []byte("0123456789"), 1)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		g, problem, err := OpenGraph(t.Context(), dir, c.Index())
		var corrupt *hnsw.CorruptError
		if err != nil || g.Len() != 120 || !errors.As(problem, &corrupt) {
			t.Errorf("%s: %v, %v", name, problem, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, raw) {
			t.Errorf("%s: the file is not as it was: %v", name, err)
		}
	}

	// Other tools: those that are gone are taken out, the new ones put in.
	other, err := New("some", demo.Tools()[50:200])
	if err != nil {
		t.Fatal(err)
	}
	if g, problem, err := OpenGraph(t.Context(), dir, other.Index()); err != nil || problem != nil || g.Len() != 150 {
		t.Errorf("%v, %v", problem, err)
	}

	ended, end := context.WithCancel(context.Background())
	end()
	if _, _, err := OpenGraph(ended, "", Demo().Index()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A catalog that changes keeps its graph, which follows; versions in use keep
// their tools.
func TestLiveGraph(t *testing.T) {
	file := write(t, t.TempDir(), "a.json", `[{"name":"read_file"},{"name":"send_mail"}]`)
	cache := t.TempDir()
	if err := os.WriteFile(filepath.Join(cache, graphFile), []byte("HNSW, or not"), 0o600); err != nil {
		t.Fatal(err)
	}
	var r reports
	l, err := Open(t.Context(), LiveConfig{Sources: []Source{source(t, file)}, Report: r.add, GraphFrom: 2, IndexCache: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tools := func() int {
		if g := l.Catalog().Index().Graph(); g != nil {
			return g.Len()
		}
		return 0
	}
	until(t, "a graph", func() bool { return tools() == 2 })
	if !r.has("build the index anew") {
		t.Error(r.said)
	}
	first := l.Catalog()
	write(t, filepath.Dir(file), "a.json", `[{"name":"read_file"},{"name":"book_flight"},{"name":"pay_bill"}]`)
	until(t, "the new tools in the graph", func() bool {
		_, ok := l.Catalog().Lookup("book_flight")
		return ok && tools() == 4 // send_mail may be asked for still
	})
	for c, want := range map[*Catalog]string{first: "send_mail", l.Catalog(): "book_flight"} {
		hits := c.Index().Search(retrieval.Text("a mail about the flight"), 1)
		if len(hits) != 1 || c.Tools()[hits[0].Tool].Name != want {
			t.Errorf("%v; %s is wanted", hits, want)
		}
	}
}
