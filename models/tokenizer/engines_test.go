//go:build engines

package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Run(m)) }

// TestVLLMTokenize: the ids of a serving engine are ours, for Qwen3 and for
// SmolLM2, on fuzzed texts, on real ones and on 100 kB of one letter.
func TestVLLMTokenize(t *testing.T) {
	root, err := enginetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []enginetest.Model{enginetest.Tiny, enginetest.SmolLM2} {
		eng := enginetest.VLLM(t, enginetest.Options{Model: m})
		tok := Qwen3()
		if m == enginetest.SmolLM2 {
			if tok, err = Load(filepath.Join(root, ".cache/models/smollm2-135m/tokenizer.json")); err != nil {
				t.Fatal(err)
			}
		}
		texts := []string{string(readme), strings.Repeat("a", 100_000), "", "<|im_start|>user\nhi<|im_end|>\n<tool_call>"}
		r := rand.New(rand.NewPCG(1, uint64(len(m))))
		for range 300 {
			texts = append(texts, fuzzText(r, 200))
		}
		total := 0
		for _, text := range texts {
			ids, err := engineIDs(eng, text)
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Encode(nil, text); !slices.Equal(got, ids) {
				t.Fatalf("%s: %q\n got %v\nwant %v", m, text[:min(len(text), 200)], got[:min(len(got), 40)], ids[:min(len(ids), 40)])
			}
			total += len(ids)
		}
		t.Logf("%s: %d texts, %d ids, all equal", m, len(texts), total)
	}
}

func engineIDs(eng *enginetest.Server, text string) ([]int32, error) {
	body, err := json.Marshal(map[string]any{"model": eng.Model, "prompt": text, "add_special_tokens": false})
	if err != nil {
		return nil, err
	}
	resp, err := http.Post(eng.URL+"/tokenize", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var reply struct{ Tokens []int32 }
	if err := json.Unmarshal(raw, &reply); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/tokenize: %s: %.300s", resp.Status, raw)
	}
	return reply.Tokens, nil
}
