package grammar

import (
	"context"
	"os"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

func data(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(dir + "/schemas"); err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no schemas: %v", err)
	}
	return dir + "/schemas"
}

func qwen(t testing.TB) *token.Vocabulary {
	t.Helper()
	tok := tokenizer.Qwen3()
	end, _ := tok.ID("<|im_end|>")
	v, err := token.NewVocabulary(tok, end)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func BenchmarkFirstAnswer(b *testing.B) {
	v := qwen(b)
	for _, set := range []string{"BFCL", "Glaiveai2K"} {
		b.Run("set="+set, func(b *testing.B) {
			cases, err := Schemas(data(b) + "/jsonschemabench/" + set)
			if err != nil {
				b.Fatal(err)
			}
			cfg := Config{Vocabulary: v, Compile: func(c Case) (*Language, error) {
				g, err := accept.Tokens(context.Background(), v, c.Schema, accept.Options{Formats: true}, 0)
				return &Language{Grammar: g}, err
			}}
			var r *Report
			for b.Loop() {
				if r, err = Run(cfg, cases); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(r.CompileUS.P50, "compile-p50-µs")
			b.ReportMetric(r.CompileUS.P99, "compile-p99-µs")
			b.ReportMetric(r.MaskUS.Avg, "mask-avg-µs")
			b.ReportMetric(r.MaskUS.P50, "mask-p50-µs")
			b.ReportMetric(r.MaskUS.P99, "mask-p99-µs")
		})
	}
}
