package simengine

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// dataFile opens a file of the shared data, or skips the test.
func dataFile(t testing.TB, name ...string) *os.File {
	t.Helper()
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(append([]string{dir}, name...)...)
	f, err := os.Open(path)
	if err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("%s is required: %v", path, err)
		}
		t.Skipf("%s is absent; SIDECAR_DATA names the folder of the shared data", path)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func eachLine(t testing.TB, f *os.File, do func(line []byte)) {
	t.Helper()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	n := 0
	for s.Scan() {
		do(s.Bytes())
		n++
	}
	if err := s.Err(); err != nil || n == 0 {
		t.Fatalf("%s: %d lines, %v", f.Name(), n, err)
	}
}

// TestRealTools: arguments that fit are found for nearly all of 7,089 published
// tools; and shown the right tool of a query among seven others, the policy
// calls it in most cases. The floors are a little below what was measured.
func TestRealTools(t *testing.T) {
	var tools []*tool
	byName := make(map[string]*tool)
	eachLine(t, dataFile(t, "retrieval", "merged", "catalog.jsonl"), func(line []byte) {
		tl := readTool(string(line))
		if tl == nil {
			t.Fatalf("no tool: %s", line)
		}
		tools = append(tools, tl)
		byName[tl.name] = tl
	})
	fit := 0
	for i, tl := range tools {
		if _, ok := fill(tl.schema, "Send the report to Ada in Oslo", uint64(i)); ok {
			fit++
		} else if testing.Verbose() {
			t.Logf("%s: %.300s", tl.name, tl.schema.append(nil))
		}
	}
	t.Logf("arguments that fit: %d of %d tools", fit, len(tools))
	if fit < len(tools)*999/1000 {
		t.Errorf("only %d of %d tools were given arguments that fit", fit, len(tools))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	asked, right, some := 0, 0, 0
	eachLine(t, dataFile(t, "retrieval", "merged", "queries.jsonl"), func(line []byte) {
		var q struct {
			Query string
			Gold  []string
		}
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		if len(q.Gold) != 1 || byName[q.Gold[0]] == nil || q.Query == "" {
			return
		}
		shown := []*tool{byName[q.Gold[0]]}
		for len(shown) < 8 {
			shown = append(shown, tools[rng.IntN(len(tools))])
		}
		rng.Shuffle(len(shown), func(i, j int) { shown[i], shown[j] = shown[j], shown[i] })
		p := newPolicy(&transcript{tools: shown, request: q.Query}, 0, false)
		asked++
		if best := p.best(shown); best != nil {
			some++
			if best.name == q.Gold[0] {
				right++
			}
		}
	})
	t.Logf("right tool among 8: %d of %d queries, another or none: %d and %d", right, asked, some-right, asked-some)
	if asked == 0 || right < asked*85/100 {
		t.Errorf("the right tool was called for %d of %d queries", right, asked)
	}
}
