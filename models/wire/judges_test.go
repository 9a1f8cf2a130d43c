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

// rendered renders requests with a template by Jinja. It needs .venv/render and
// the template, and skips without them unless SIDECAR_REQUIRE_DATA=1.
func rendered(t *testing.T, template string, requests []request) []struct{ Text, Error string } {
	t.Helper()
	root := filepath.Join("..", "..")
	python := filepath.Join(root, ".venv", "render", "bin", "python")
	template = filepath.Join(root, template)
	for _, need := range []string{python, template} {
		if _, err := os.Stat(need); err != nil {
			if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
				t.Fatalf("%s is required: %v", need, err)
			}
			t.Skipf("%s is absent; make test-install makes it", need)
		}
	}
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
	raw, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []struct{ Text, Error string }
	s := bufio.NewScanner(bytes.NewReader(raw))
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var one struct{ Text, Error string }
		if err := json.Unmarshal(s.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
	if len(out) != len(requests) {
		t.Fatalf("%d renderings of %d requests", len(out), len(requests))
	}
	return out
}

// TestRenderJudge compares fresh random conversations with the templates
// themselves. What a template refuses, such as two calls in one turn of Llama's,
// isn't compared.
func TestRenderJudge(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, tt := range []struct {
		family, template string
		n                int
		fits             func(*request) bool
	}{
		{"qwen3", ".cache/qwen3/tokenizer_config.json", 2000, nil},
		{"qwen3-coder", ".cache/templates/Qwen3-Coder.jinja", 2000, nil},
		{"llama3", ".cache/templates/meta-llama-Llama-3.1-8B-Instruct.jinja", 2000, func(r *request) bool {
			for _, m := range r.Messages {
				if len(m.Calls) > 1 {
					return false
				}
			}
			// A first message with calls is shown as a user message, by its text.
			first := r.Messages
			if first[0].Role == "system" {
				first = first[1:]
			}
			return len(first) > 0 || len(r.Tools) == 0
		}},
		{"deepseek-v3.1", ".cache/templates/deepseek-ai-DeepSeek-V3.1.jinja", 2000, nil},
		{"glm-4.5", ".cache/templates/GLM-4.6.jinja", 2000, nil},
		{"glm-4.7", ".cache/templates/GLM-4.7-Flash.jinja", 2000, nil},
		{"kimi-k2", ".cache/templates/Kimi-K2-Instruct.jinja", 2000, nil},
		{"mistral", ".cache/templates/unsloth-mistral-Devstral-Small-2507.jinja", 2000, func(r *request) bool {
			// Without a system message the template has words of its own.
			return r.Messages[0].Role == "system"
		}},
	} {
		t.Run(tt.family, func(t *testing.T) {
			f, err := ByName(tt.family)
			if err != nil {
				t.Fatal(err)
			}
			var requests []request
			for _, r := range corpus(seed, tt.n) {
				if tt.fits == nil || tt.fits(&r) {
					requests = append(requests, r)
				}
			}
			bad, compared := 0, 0
			for i, want := range rendered(t, tt.template, requests) {
				if want.Error != "" && tt.family != "llama3" {
					t.Fatalf("request %d: the template failed: %s", i, want.Error)
				}
				if want.Error != "" {
					continue
				}
				compared++
				if got := requests[i].render(f); got != want.Text {
					raw, _ := json.Marshal(requests[i])
					if bad++; bad <= 3 {
						t.Errorf("request %d: %s\ngot  %q\nwant %q", i, raw, got, want.Text)
					}
				}
			}
			t.Logf("%d compared, %d differ", compared, bad)
			if compared < tt.n/4 {
				t.Errorf("only %d of %d could be compared", compared, tt.n)
			}
		})
	}
}
