package catalog

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/retrieval"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// golden compares with a file of testdata, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s changed; got\n%s\nwant\n%s", path, got, want)
	}
}

func TestTasksNeedToolsOfTheCatalog(t *testing.T) {
	tasks := Tasks()
	if len(tasks) != 12 {
		t.Errorf("%d tasks; 12 are promised", len(tasks))
	}
	for _, task := range tasks {
		var need []string
		for _, turn := range task.Turns {
			for _, n := range turn.Need {
				if _, ok := Demo().Lookup(n); !ok {
					t.Errorf("%s: no tool %s in the demo catalog", task.Name, n)
				}
				if !slices.Contains(need, n) {
					need = append(need, n)
				}
			}
		}
		if len(need) < 2 || len(need) > 5 {
			t.Errorf("%s needs %d tools; 2 to 5 are promised", task.Name, len(need))
		}
	}
}

// TestTaskRecall plays each task with all calls made as needed and records the
// rank of every needed tool. The tasks and the catalog are our own, so that
// the figures say how the demo looks, not how good retrieval is.
func TestTaskRecall(t *testing.T) {
	ix := Demo().Index()
	var b strings.Builder
	fmt.Fprintln(&b, "# Rank of each needed tool among 3,200; - is beyond 50. Rewrite with -update.")
	needed, at1, at4, at8 := 0, 0, 0, 0
	for _, task := range Tasks() {
		fmt.Fprintf(&b, "%s\n", task.Name)
		var msgs []retrieval.Message
		for _, turn := range task.Turns {
			msgs = append(msgs, retrieval.Message{Role: "user", Text: turn.Say})
			hits := ix.Search(ix.Segment(msgs), 50)
			for _, n := range turn.Need {
				rank := 1 + slices.IndexFunc(hits, func(h retrieval.Hit) bool { return ix.Tool(h.Tool).Name == n })
				place := fmt.Sprint(rank)
				if rank == 0 {
					place = "-"
					rank = 51
				}
				fmt.Fprintf(&b, "  %3s %s\n", place, n)
				needed++
				for _, x := range [...]struct {
					k int
					n *int
				}{{1, &at1}, {4, &at4}, {8, &at8}} {
					if rank <= x.k {
						*x.n++
					}
				}
			}
			msgs = append(msgs, retrieval.Message{Role: "assistant", Calls: turn.Need})
			for _, n := range turn.Need {
				msgs = append(msgs, retrieval.Message{Role: "tool", Text: Toy(n, []byte(`{"limit":3}`))})
			}
		}
	}
	fmt.Fprintf(&b, "recall@1 %d/%d, recall@4 %d/%d, recall@8 %d/%d\n", at1, needed, at4, needed, at8, needed)
	golden(t, "tasks.txt", b.String())
}
