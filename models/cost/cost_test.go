package cost

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models"
	"pgregory.net/rapid"
)

func calc(t testing.TB, model, gpu string, change func(*Config)) *Calculator {
	t.Helper()
	m, err := models.ByID(model)
	if err != nil {
		t.Fatal(err)
	}
	g, err := models.GPUByID(gpu)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Model: m, GPU: g}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// near compares to a relative 1e-9, or to half a unit of the last decimal given.
func near(got, want, unit float64) bool {
	return math.Abs(got-want) <= max(unit/2, 1e-9*math.Abs(want))
}

const h100 = "H100-SXM-80GB"

func TestKVBytes(t *testing.T) {
	for _, c := range []struct {
		model string
		kv    Precision
		n     int
		want  float64
	}{
		{"Llama-3.1-70B", BF16, 1, 2 * 2 * 80 * 8 * 128},
		{"Llama-3.1-70B", BF16, 15000, 4_915_200_000},
		{"Llama-3.1-70B", FP8, 15000, 2_457_600_000},
		{"Llama-3.1-70B", BF16, 0, 0},
		{"Llama-3.1-70B", BF16, -5, 0},
		// Half a window of 128, then a full one: 12 layers · 8 heads · 64 · 2 · 2 bytes.
		{"gpt-oss-20b", BF16, 64, 24576*64 + 24576*64},
		{"gpt-oss-20b", BF16, 1000, 24576*1000 + 24576*128},
		{"gpt-oss-20b", FP8, 1000, 12288*1000 + 12288*128},
		// 39,223,296 elements of state at 4 bytes, whatever the length.
		{"Qwen3.5-27B", BF16, 1, 65536 + 156_893_184},
		{"Qwen3.5-27B", BF16, 1000, 65_536_000 + 156_893_184},
		{"DeepSeek-V3", BF16, 1000, 61 * (512 + 64) * 2 * 1000},
	} {
		got := calc(t, c.model, h100, func(cfg *Config) { cfg.KV = c.kv }).KVBytes(c.n)
		if !near(got, c.want, 0) {
			t.Errorf("%s, %v, %d tokens: %.0f bytes, want %.0f", c.model, c.kv, c.n, got, c.want)
		}
	}
}

// TestObservation is an observation of 10,000 tokens behind 60,000 on one H100 at
// half of its bf16 peak, worked out by hand to the digits given: seconds of
// prefill, MB of KV, and milliseconds on every later token.
func TestObservation(t *testing.T) {
	for _, c := range []struct {
		model           string
		prefill, kv, ms float64
	}{
		{"Llama-3.1-8B", 1.01, 1311, 0.49},
		{"Llama-3.1-70B", 6.30, 3277, 1.22},
		{"Qwen3-32B", 4.08, 2621, 0.98},
		{"Qwen3-30B-A3B", 1.17, 983, 0.37},
		{"Qwen3.6-35B-A3B", 0.34, 205, 0.08},
		{"Qwen3-235B-A22B", 4.94, 1925, 0.72},
		{"DeepSeek-V3", 8.07, 703, 0.26},
		{"Kimi-K2-Instruct", 4.58, 703, 0.26},
		{"GLM-4.5", 7.24, 3768, 1.41},
		{"gpt-oss-120b", 0.59, 369, 0.14},
		{"gemma-3-27b", 1.31, 819, 0.31},
	} {
		k := calc(t, c.model, h100, func(cfg *Config) { cfg.MFU = 0.5 })
		p, err := k.Prefill(10000, 60000)
		if err != nil {
			t.Fatal(err)
		}
		before, err := k.Decode(60000)
		if err != nil {
			t.Fatal(err)
		}
		after, err := k.Decode(70000)
		if err != nil {
			t.Fatal(err)
		}
		kv := (k.KVBytes(70000) - k.KVBytes(60000)) / 1e6
		ms := (after.Seconds - before.Seconds) * 1e3
		if !near(p.Seconds, c.prefill, 0.01) || !near(kv, c.kv, 1) || !near(ms, c.ms, 0.01) {
			t.Errorf("%s: %.3f s, %.1f MB, %.3f ms; want %v, %v, %v", c.model, p.Seconds, kv, ms, c.prefill, c.kv, c.ms)
		}
	}
}

// TestStaticCatalog is 15,000 schema tokens on Llama-3.1-70B and 8 H100 at 40 % of
// 989 TFLOP/s: 2·70.6e9·15,000 = 2.118e15 FLOPs in 669 ms, and the pairs on top.
func TestStaticCatalog(t *testing.T) {
	p, err := calc(t, "Llama-3.1-70B", h100, func(c *Config) { c.GPUs, c.MFU = 8, 0.4 }).Prefill(15000, 0)
	if err != nil {
		t.Fatal(err)
	}
	rate := 8 * 989e12 * 0.4
	if !near(p.LinearFLOPs, 2.118e15, 0) || !near(p.LinearFLOPs/rate, 0.669, 0.001) {
		t.Errorf("linear part %.4g FLOPs, %.4f s", p.LinearFLOPs, p.LinearFLOPs/rate)
	}
	if want := 2621440 * 112_507_500.0; p.AttentionFLOPs != want {
		t.Errorf("attention part %.6g FLOPs, want %.6g", p.AttentionFLOPs, want)
	}
	if want := (2.118e15 + 2621440*112_507_500) / rate; !near(p.Seconds, want, 0) {
		t.Errorf("%.6f s, want %.6f", p.Seconds, want)
	}
}

// TestWeightBound: 16 tokens on an 8B model take as long as reading its weights,
// 16.38 GB at 0.8 · 3,350 GB/s.
func TestWeightBound(t *testing.T) {
	k := calc(t, "Qwen3-8B", h100, nil)
	p, err := k.Prefill(16, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if want := 16.38e9 / (0.8 * 3350e9); !near(p.WeightSeconds, want, 0) || p.Seconds != p.WeightSeconds || p.ComputeSeconds >= want {
		t.Errorf("%+v, want %.6f s", p, want)
	}
	if p, err := k.Prefill(0, 1000); err != nil || p.Seconds != 0 {
		t.Errorf("nothing new: %+v, %v", p, err)
	}
	d, err := k.Decode(1000)
	if err != nil {
		t.Fatal(err)
	}
	if want := (16.38e9 + 147_456_000) / (0.8 * 3350e9); !near(d.Seconds, want, 0) {
		t.Errorf("decode %.9f s, want %.9f", d.Seconds, want)
	}
}

// TestExperts: of 61 GB in 128 experts and what all tokens share, one token reads
// the active 6.6 GB, and many tokens read all.
func TestExperts(t *testing.T) {
	k := calc(t, "Qwen3-30B-A3B", h100, nil)
	if k.Config().MFU != ExpertsMFU {
		t.Errorf("MFU %v", k.Config().MFU)
	}
	expert := (61e9 - 6.6e9) / 120
	for _, c := range []struct {
		n    int
		want float64
	}{
		{1, 6.6e9},
		{2, 6.6e9 - 8*expert + 128*expert*(1-0.9375*0.9375)},
		{100000, 61e9},
	} {
		got, err := k.weightsRead(c.n)
		if err != nil || !near(got, c.want, 0) {
			t.Errorf("%d tokens read %.4g bytes, %v; want %.4g", c.n, got, err, c.want)
		}
	}
}

func TestPrecision(t *testing.T) {
	k := calc(t, "Qwen3-8B", h100, func(c *Config) { c.Weights = FP8 })
	p, err := k.Prefill(10000, 0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := calc(t, "Qwen3-8B", h100, nil).Prefill(10000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !near(p.Seconds*2, q.Seconds, 0) || !near(p.WeightSeconds*2, q.WeightSeconds, 0) {
		t.Errorf("fp8 %+v, bf16 %+v", p, q)
	}
}

func TestRefused(t *testing.T) {
	prefill := func(k *Calculator) error { _, err := k.Prefill(10, 0); return err }
	decode := func(k *Calculator) error { _, err := k.Decode(10); return err }
	for _, c := range []struct {
		model, gpu string
		weights    Precision
		do         func(*Calculator) error
		want       string
	}{
		{"Kimi-K3", h100, BF16, prefill, "the card of moonshotai/Kimi-K3 has no params_active_b"},
		{"Kimi-K3", h100, BF16, decode, "the card of moonshotai/Kimi-K3 has no params_active_b"},
		{"MiniMax-M2.7", h100, BF16, decode, "the card of MiniMaxAI/MiniMax-M2.7 has no params_total_b"},
		{"DeepSeek-V4-Pro", h100, BF16, prefill, "has no attn_flops_per_query_per_kv_token"},
		{"DeepSeek-V3.2", h100, BF16, prefill, "(sparse attention"},
		{"MiniMax-M3", h100, BF16, prefill, "(sparse attention"},
		{"Qwen3-8B", "A100-SXM-80GB", FP8, prefill, "the card of A100-SXM-80GB has no fp8_tflops_dense"},
		{"Qwen3-8B", h100, FP4, prefill, "has no fp4_tflops_dense"},
		{"DeepSeek-V4-Pro", h100, BF16, decode, ""},
		{"Qwen3-8B", "A100-SXM-80GB", FP8, decode, ""},
	} {
		err := c.do(calc(t, c.model, c.gpu, func(cfg *Config) { cfg.Weights = c.weights }))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.model, err)
			}
			continue
		}
		var e *UnknownError
		if !errors.As(err, &e) || !strings.Contains(e.Error(), c.want) {
			t.Errorf("%s on %s in %v: %v, want %q", c.model, c.gpu, c.weights, err, c.want)
		}
	}
	k := calc(t, "Qwen3-8B", h100, nil)
	if _, err := k.Prefill(-1, 0); err == nil {
		t.Error("prefill of -1 tokens")
	}
	if _, err := k.Decode(-1); err == nil {
		t.Error("decode behind -1 tokens")
	}
}

func TestConfig(t *testing.T) {
	m, _ := models.ByID("Qwen3-8B")
	g, _ := models.GPUByID(h100)
	for _, cfg := range []Config{
		{}, {Model: m}, {GPU: g},
		{Model: m, GPU: g, GPUs: -1},
		{Model: m, GPU: g, MFU: 1.5},
		{Model: m, GPU: g, MFU: -0.1},
		{Model: m, GPU: g, MFU: math.NaN()},
		{Model: m, GPU: g, BWU: 2},
		{Model: m, GPU: g, KV: FP4},
		{Model: m, GPU: g, Weights: 7},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) took it", cfg)
		}
	}
	k, err := New(Config{Model: m, GPU: g})
	if err != nil {
		t.Fatal(err)
	}
	if c := k.Config(); c.GPUs != 1 || c.MFU != DenseMFU || c.BWU != BandwidthUtilisation {
		t.Errorf("defaults %+v", c)
	}
	if k.MemoryBytes() != 85899345920 {
		t.Errorf("memory %v", k.MemoryBytes())
	}
}

func TestOmits(t *testing.T) {
	for model, want := range map[string]string{
		"Qwen3-8B":              "",
		"gemma-3-27b":           "attention of 52 windowed layers within 1024 tokens",
		"Qwen3.5-27B":           "state updates of 48 linear layers",
		"DeepSeek-V3.2":         "indexer keys, 7808 elements per token",
		"Llama-4-Scout-17B-16E": "attention of 36 windowed layers within 8192 tokens; weights of experts that a token does not use",
	} {
		if got := strings.Join(calc(t, model, h100, nil).Omits(), "; "); got != want {
			t.Errorf("%s omits %q, want %q", model, got, want)
		}
	}
}

// TestPrefillAdds: the work of a prompt does not depend on where it is cut.
func TestPrefillAdds(t *testing.T) {
	k := calc(t, "Qwen3-32B", h100, nil)
	work := func(t *rapid.T, n, cached int) float64 {
		p, err := k.Prefill(n, cached)
		if err != nil {
			t.Fatal(err)
		}
		return p.LinearFLOPs + p.AttentionFLOPs
	}
	n := rapid.IntRange(0, 200_000)
	rapid.Check(t, func(t *rapid.T) {
		a, b, cached := n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "cached")
		whole, cut := work(t, a+b, cached), work(t, a, cached)+work(t, b, cached+a)
		if !near(cut, whole, 0) {
			t.Fatalf("%d+%d behind %d: %g in two, %g in one", a, b, cached, cut, whole)
		}
	})
}

// TestEveryCard: an estimate is a positive number or names what is missing.
func TestEveryCard(t *testing.T) {
	for _, m := range models.Models() {
		for _, g := range models.GPUs() {
			k, err := New(Config{Model: &m, GPU: &g})
			if err != nil {
				t.Fatal(err)
			}
			var e *UnknownError
			if p, err := k.Prefill(1000, 1000); !errors.As(err, &e) && !(err == nil && p.Seconds > 0 && !math.IsInf(p.Seconds, 0)) {
				t.Errorf("%s on %s: %+v, %v", m.ID, g.ID, p, err)
			}
			if d, err := k.Decode(1000); !errors.As(err, &e) && !(err == nil && d.Seconds > 0 && !math.IsInf(d.Seconds, 0)) {
				t.Errorf("%s on %s: %+v, %v", m.ID, g.ID, d, err)
			}
		}
	}
}
