//go:build judges

package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestRenderEngine compares with a running vLLM that serves Qwen3's tokenizer:
// the tokens which it makes of messages and tools are those of our text. The
// server is named by SIDECAR_VLLM_URL; "vllm launch render MODEL" will do.
func TestRenderEngine(t *testing.T) {
	url := os.Getenv("SIDECAR_VLLM_URL")
	if url == "" {
		t.Skip("SIDECAR_VLLM_URL is not set")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f, err := ByName("qwen3")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	tokenize := func(body object) []int32 {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(url+"/tokenize", "application/json", bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			Tokens []int32
			Error  any
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v, %v", raw, resp.StatusCode, answer.Error, err)
		}
		return answer.Tokens
	}
	for i, r := range corpus(seed, 300) {
		var messages []object
		for n, m := range r.Messages {
			o := object{"role": m.Role, "content": m.Content}
			if m.Reasoning != "" {
				o["reasoning"] = m.Reasoning
			}
			if m.Role == "tool" {
				o["tool_call_id"] = "x"
			}
			var calls []object
			for k, c := range m.Calls {
				calls = append(calls, object{"id": fmt.Sprintf("c%d-%d", n, k), "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}})
			}
			if calls != nil {
				o["tool_calls"] = calls
			}
			messages = append(messages, o)
		}
		body := object{"messages": messages, "add_generation_prompt": r.AddGenerationPrompt}
		if len(r.Tools) > 0 {
			body["tools"] = r.Tools
		}
		if r.EnableThinking != nil {
			body["chat_template_kwargs"] = object{"enable_thinking": *r.EnableThinking}
		}
		want := tokenize(body)
		if got := tokenize(object{"prompt": r.render(f), "add_special_tokens": false}); !slices.Equal(got, want) {
			t.Fatalf("request %d: %d tokens, the engine makes %d", i, len(got), len(want))
		}
	}
}
