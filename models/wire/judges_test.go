//go:build judges

package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRenderJudge compares fresh random conversations with the template itself,
// rendered by Jinja. It needs .venv/render and .cache/qwen3, see
// tools/render-golden.py, and skips without them unless SIDECAR_REQUIRE_DATA=1.
func TestRenderJudge(t *testing.T) {
	const n = 2000
	root := filepath.Join("..", "..")
	python := filepath.Join(root, ".venv", "render", "bin", "python")
	template := filepath.Join(root, ".cache", "qwen3", "tokenizer_config.json")
	for _, need := range []string{python, template} {
		if _, err := os.Stat(need); err != nil {
			if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
				t.Fatalf("%s is required: %v", need, err)
			}
			t.Skipf("%s is absent; tools/render-golden.py says how to make it", need)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	requests := corpus(seed, n)
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	for _, r := range requests {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, filepath.Join(root, "tools", "render-golden.py"), "render", template)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := ByName("qwen3")
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, 1<<24)
	i := 0
	for ; s.Scan(); i++ {
		var want struct{ Text, Error string }
		if err := json.Unmarshal(s.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if want.Error != "" {
			t.Fatalf("request %d: the template failed: %s", i, want.Error)
		}
		if got := requests[i].render(f); got != want.Text {
			raw, _ := json.Marshal(requests[i])
			t.Fatalf("request %d: %s\ngot  %q\nwant %q", i, raw, got, want.Text)
		}
	}
	if i != n {
		t.Fatalf("%d renderings of %d requests", i, n)
	}
}
