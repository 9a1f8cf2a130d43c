package models

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCardsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Models() {
		if m.ID == "" || m.Source == "" || m.ParamsSource == "" || m.Layers == 0 || m.KVBytesPerToken == 0 || m.ContextLen == 0 {
			t.Errorf("%q: a card needs id, sources, layers, KV bytes and context length", m.ID)
		}
		if m.KVBytesPerTokenFP8*2 != m.KVBytesPerToken {
			t.Errorf("%s: KV at 1 byte %d, at 2 bytes %d", m.ID, m.KVBytesPerTokenFP8, m.KVBytesPerToken)
		}
		if m.KVWindowBytes > 0 && m.WindowTokens == 0 {
			t.Errorf("%s: windowed KV without a window", m.ID)
		}
		if m.ParamsActiveB != nil && m.ParamsTotalB != nil && *m.ParamsActiveB > *m.ParamsTotalB {
			t.Errorf("%s: more active than total parameters", m.ID)
		}
		// Independent of the stated figure: plain GQA and MLA follow from the shape.
		if strings.HasPrefix(m.Attention, "GQA full") {
			if want := int64(m.FullAttnLayers) * 2 * int64(m.KVHeads) * int64(m.HeadDim) * 2; m.KVBytesPerToken != want {
				t.Errorf("%s: KV bytes per token %d, shape says %d", m.ID, m.KVBytesPerToken, want)
			}
			if want := float64(m.FullAttnLayers * 2 * m.QHeads * 2 * m.HeadDim); m.AttnFLOPs == nil || *m.AttnFLOPs != want {
				t.Errorf("%s: attention FLOPs, shape says %g", m.ID, want)
			}
		}
		if strings.HasPrefix(m.Attention, "MLA") {
			if want := int64(m.FullAttnLayers) * int64(m.KVLoRARank+m.QKRopeHeadDim) * 2; m.KVBytesPerToken != want {
				t.Errorf("%s: KV bytes per token %d, shape says %d", m.ID, m.KVBytesPerToken, want)
			}
		}
		if seen[strings.ToLower(short(m.ID))] {
			t.Errorf("%s: name without owner is not unique", m.ID)
		}
		seen[strings.ToLower(short(m.ID))] = true
	}
	for _, g := range GPUs() {
		if g.ID == "" || g.Source == "" || g.MemGB == 0 || g.BWGBs == 0 || g.BF16TFLOPS == nil {
			t.Errorf("%q: a card needs id, source, memory, bandwidth and BF16 rate", g.ID)
		}
	}
}

// TestCardsMatchData compares every fact with the files that the cards were
// written from.
func TestCardsMatchData(t *testing.T) {
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	dir = filepath.Join(dir, "models")
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no data folder: %v", err)
	}
	for _, c := range []struct {
		file, key string
		lines     []byte
		leaveOut  []string
	}{
		{"models.json", "models", modelLines, nil},
		{"gpus.json", "gpus", gpuLines, []string{"ridge_flops_per_byte_bf16"}}, // a quotient of two others
	} {
		raw, err := os.ReadFile(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		var want []map[string]any
		if err := json.Unmarshal(doc[c.key], &want); err != nil {
			t.Fatal(err)
		}
		got := cards[map[string]any](c.lines)
		if len(want) == 0 || len(got) != len(want) {
			t.Fatalf("%s: %d cards for %d entries", c.file, len(got), len(want))
		}
		for i, w := range want {
			for _, k := range c.leaveOut {
				delete(w, k)
			}
			for k, v := range w {
				if v == nil || v == 0.0 {
					v = nil
				}
				have := got[i][k]
				if k == "source" || k == "params_source" || k == "note" {
					if have == nil && v != nil || have != nil && !sameWords(have.(string), v.(string)) {
						t.Errorf("%v: %s = %v, data says %v", w["id"], k, have, v)
					}
					continue
				}
				if have != v {
					t.Errorf("%v: %s = %v, data says %v", w["id"], k, have, v)
				}
			}
		}
	}
}

// indexID is how some sources in the data point into a file index that readers of
// the cards don't have.
var indexID = regexp.MustCompile(` ?\((file index )?id \d+\)| and id \d+`)

func sameWords(have, data string) bool {
	data = indexID.ReplaceAllString(data, "")
	return have == data || strings.HasPrefix(data, "same, and ") && strings.HasSuffix(have, strings.TrimPrefix(data, "same, and "))
}

func TestLookup(t *testing.T) {
	for _, c := range []struct{ ask, want string }{
		{"Qwen/Qwen3-8B", "Qwen/Qwen3-8B"},
		{"qwen3-8b", "Qwen/Qwen3-8B"},
		{" meta-llama/llama-3.1-70b ", "meta-llama/Llama-3.1-70B"},
		{"PHI-4", "microsoft/phi-4"},
	} {
		m, err := ByID(c.ask)
		if err != nil || m.ID != c.want {
			t.Errorf("ByID(%q) = %v, %v; want %s", c.ask, m, err, c.want)
		}
	}
	if g, err := GPUByID("h100-sxm-80gb"); err != nil || g.ID != "H100-SXM-80GB" {
		t.Errorf("GPUByID = %v, %v", g, err)
	}
	for _, c := range []struct{ ask, near string }{
		{"qwen3-9b", "Qwen/Qwen3-8B"},
		{"Qwen/Qwen3-8", "Qwen/Qwen3-8B"},
		{"gemma3", "google/gemma-3-27b"},
		{"glm-4.6", "zai-org/GLM-4.5"},
		{"", ""},
		{strings.Repeat("x", 100000), ""},
	} {
		_, err := ByID(c.ask)
		var e *UnknownIDError
		if !errors.As(err, &e) {
			t.Fatalf("ByID(%.20q): %v", c.ask, err)
		}
		if len(e.Near) != maxNear || c.near != "" && !strings.Contains(strings.Join(e.Near, " "), c.near) {
			t.Errorf("ByID(%.20q): nearest %v, want %q among them", c.ask, e.Near, c.near)
		}
	}
	_, err := GPUByID("H100")
	if got, want := err.Error(), `no GPU card "H100"; nearest: H100-SXM-80GB, H100-PCIe-80GB, `; !strings.HasPrefix(got, want) {
		t.Errorf("error %q, want %q…", got, want)
	}
}

func TestCardsAreCopies(t *testing.T) {
	a, _ := ByID("phi-4")
	a.Layers = -1
	if b, _ := ByID("phi-4"); b.Layers == -1 {
		t.Error("a caller changed the card of all")
	}
}

func TestUnknown(t *testing.T) {
	for id, want := range map[string]string{
		"Qwen3-8B":        "",
		"Kimi-K3":         "params_active_b",
		"MiniMax-M2.7":    "params_total_b params_active_b",
		"DeepSeek-V4-Pro": "attn_flops_per_query_per_kv_token",
		"MiMo-V2-Flash":   "params_total_b params_active_b",
	} {
		m, err := ByID(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Unknown(), " "); got != want {
			t.Errorf("%s lacks %q, want %q", id, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	id := rapid.StringMatching(`[a-c-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		if got, want := distance(a, b), slowDistance(a, b); got != want {
			t.Fatalf("distance(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

// slowDistance is the definition of the edit distance.
func slowDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	if a[0] == b[0] {
		return slowDistance(a[1:], b[1:])
	}
	return 1 + min(slowDistance(a[1:], b), slowDistance(a, b[1:]), slowDistance(a[1:], b[1:]))
}
