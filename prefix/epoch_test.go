package prefix

import (
	"testing"

	"github.com/toolsidecar/sidecar/models"
	"github.com/toolsidecar/sidecar/models/cost"
)

// TestCarry compares the price with the cost model's.
func TestCarry(t *testing.T) {
	model, err := models.ByID("Qwen/Qwen3-8B")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := models.GPUByID("H100-SXM-80GB")
	if err != nil {
		t.Fatal(err)
	}
	calc, err := cost.New(cost.Config{Model: model, GPU: gpu})
	if err != nil {
		t.Fatal(err)
	}
	const n = 4096
	far, err := calc.Decode(2 * n)
	if err != nil {
		t.Fatal(err)
	}
	near, err := calc.Decode(n)
	if err != nil {
		t.Fatal(err)
	}
	prefill, err := calc.Prefill(n, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := (far.KVSeconds - near.KVSeconds) / n / (prefill.Seconds / n)
	if got < carry/1.5 || got > carry*1.5 {
		t.Errorf("the cost model says 1/%.0f, carry is 1/%.0f", 1/got, 1/carry)
	}
}

func TestEpochSaves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		epoch Epoch
		pays  bool
	}{
		{"short conversation", Epoch{Prompt: 8000, Dead: 6000, Turns: 3, Output: 50}, false},
		{"long conversation, short prompt", Epoch{Prompt: 8000, Dead: 6000, Turns: 10, Output: 50}, true},
		{"long conversation, long prompt", Epoch{Prompt: 60000, Dead: 6000, Turns: 10, Output: 50}, false},
		{"long replies", Epoch{Prompt: 60000, Dead: 6000, Turns: 20, Output: 500}, true},
		{"nothing dead", Epoch{Prompt: 8000, Turns: 100, Output: 500}, false},
	} {
		if got := tt.epoch.Saves(); got > 0 != tt.pays {
			t.Errorf("%s: saves %.0f tokens", tt.name, got)
		}
	}
}
