//go:build engines

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/toolsidecar/sidecar/internal/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Run(m)) }

// TestVLLMRender compares with a running vLLM that serves Qwen3's tokenizer: the
// tokens which it makes of messages and tools are those of our text.
func TestVLLMRender(t *testing.T) {
	url := enginetest.VLLM(t, enginetest.Options{}).URL
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
	for i, r := range corpus(9, 300) {
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
