//go:build judges

package emission

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/toolsidecar/sidecar/grammar"
)

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// TestEmissionJudged: on real schemas no verdict of the real engines differs
// from that of our readers, on texts that can be written and on near misses,
// and what the engines write under their own masks fits.
func TestEmissionJudged(t *testing.T) {
	python, vocabulary := env("SIDECAR_JUDGE_PYTHON", "../../.venv/judges/bin/python"), env("SIDECAR_QWEN3_TOKENIZER", "../../.cache/qwen3/tokenizer.json")
	files, _ := filepath.Glob(env("SIDECAR_DATA", "../../../shared/data") + "/schemas/jsonschemabench/*/*.json")
	for what, missing := range map[string]bool{python: !there(python), vocabulary: !there(vocabulary), "sample schemas": len(files) == 0} {
		if missing && os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("no %s", what)
		} else if missing {
			t.Skipf("no %s", what)
		}
	}
	every, err := strconv.Atoi(env("SIDECAR_JUDGE_EVERY", "5"))
	if err != nil {
		t.Fatal(err)
	}
	every *= 6 // four targets; the walks of package grammar are denser
	var sets []Set
	for i, f := range files {
		if i%every != 0 {
			continue
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Schema json.RawMessage }
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		sets = append(sets, Set{Name: name, Tools: []grammar.Tool{{Name: name, Schema: file.Schema}}})
	}
	j, err := StartJudge(context.Background(), python, "../../tools/grammar_judge.py", vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, tt := range []struct {
		target grammar.Target
		engine string
	}{{grammar.StructuralTag, "xgrammar"}, {grammar.Lark, "llguidance"}, {grammar.JSONSchema, "llguidance"}, {grammar.LegacyTag, "llguidance"}} {
		cfg := Config{Target: tt.target, Judge: j, Engine: tt.engine, Version: grammar.Engine{Name: "xgrammar", Version: "0.2.8"}, Syntax: hermes, Derived: 4, Walks: 2, Seed: 1}
		r, err := Run(context.Background(), sets, cfg, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Disagreements {
			t.Errorf("%s: %s: the engine %s: %.300s", tt.target, d.Name, d.Engine, d.Text)
		}
		if r.Wider > 0 || r.Judged == 0 || r.Finished == 0 {
			t.Errorf("%s: %d wider, %d texts judged, %d replies finished", tt.target, r.Wider, r.Judged, r.Finished)
		}
		t.Logf("%s: %d of %d emitted, %d proved, %d texts judged, %d replies finished; compile ms p50 %.1f p99 %.1f", tt.target, r.Emitted, r.Tools, r.Proved, r.Judged, r.Finished, r.CompileMS.P50, r.CompileMS.P99)
	}
}

// TestSetsJudged: sets of 1 to 12 real tools, all of a set in one text.
func TestSetsJudged(t *testing.T) {
	python, vocabulary := env("SIDECAR_JUDGE_PYTHON", "../../.venv/judges/bin/python"), env("SIDECAR_QWEN3_TOKENIZER", "../../.cache/qwen3/tokenizer.json")
	file := env("SIDECAR_DATA", "../../../shared/data") + "/retrieval/merged/catalog.jsonl"
	for what, path := range map[string]string{python: python, vocabulary: vocabulary, "catalog of real tools": file} {
		if !there(path) && os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("no %s", what)
		} else if !there(path) {
			t.Skipf("no %s", what)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tools []grammar.Tool
	for line := range bytes.Lines(raw) {
		var tool struct {
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
		if err := json.Unmarshal(line, &tool); err != nil || tool.Function.Name == "" {
			t.Fatalf("no tool: %v: %s", err, line)
		}
		tools = append(tools, grammar.Tool{Name: tool.Function.Name, Schema: tool.Function.Parameters})
	}
	every, err := strconv.Atoi(env("SIDECAR_JUDGE_EVERY", "5"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := StartJudge(context.Background(), python, "../../tools/grammar_judge.py", vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, tt := range []struct {
		target grammar.Target
		engine string
		probe  int
	}{{grammar.StructuralTag, "xgrammar", 40}, {grammar.Lark, "llguidance", 0}} {
		cfg := Config{Target: tt.target, Judge: j, Engine: tt.engine, Version: grammar.Engine{Name: "xgrammar", Version: "0.2.8"}, Syntax: hermes, Derived: 1, Walks: 2, Probe: tt.probe, Seed: 1}
		r, err := Run(context.Background(), Draw(tools, 1+80/every, 0, 1), cfg, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Disagreements {
			t.Errorf("%s: %s: the engine %s: %.300s", tt.target, d.Name, d.Engine, d.Text)
		}
		if r.Wider > 0 || r.Judged == 0 || r.Finished == 0 || len(r.Refused) > 0 {
			t.Errorf("%s: %d wider, %d texts judged, %d replies finished, refused %v", tt.target, r.Wider, r.Judged, r.Finished, r.Refused)
		}
		t.Logf("%s: %d tools, %d proved, %d checked, %d texts judged, %d replies finished; compile ms p50 %.1f p99 %.1f", tt.target, r.Tools, r.Proved, r.Checked, r.Judged, r.Finished, r.CompileMS.P50, r.CompileMS.P99)
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
