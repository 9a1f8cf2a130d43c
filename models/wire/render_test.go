package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var writeRequests = flag.Bool("write-requests", false, "write testdata/requests.jsonl; then render it with tools/render-golden.py")

const goldenSeed, goldenRequests = 1, 80

func readLines[T any](t *testing.T, name string) []T {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%s:%d: %v", name, len(out)+1, err)
		}
		out = append(out, v)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRenderGolden compares with renderings of the models' own templates.
func TestRenderGolden(t *testing.T) {
	if *writeRequests {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		for _, r := range corpus(goldenSeed, goldenRequests) {
			if err := enc.Encode(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile("testdata/requests.jsonl", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	requests := readLines[request](t, "requests.jsonl")
	for _, family := range []string{"qwen3", "chatml"} {
		f, err := ByName(family)
		if err != nil {
			t.Fatal(err)
		}
		golden := readLines[struct{ Text, Error string }](t, family+".golden.jsonl")
		if len(golden) != len(requests) || len(golden) == 0 {
			t.Fatalf("%s: %d renderings of %d requests", family, len(golden), len(requests))
		}
		for i, want := range golden {
			if want.Error != "" {
				t.Fatalf("%s: request %d: the template failed: %s", family, i, want.Error)
			}
			if got := requests[i].render(f); got != want.Text {
				t.Errorf("%s: request %d:\ngot  %q\nwant %q", family, i, got, want.Text)
			}
		}
	}
}
