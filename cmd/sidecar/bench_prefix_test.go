package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/racetest"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// TestBenchPrefix: in token-in mode a loop finds all of its prompts in the simulated
// engine's cache, and computes a fraction of what the ways without the sidecar do.
func TestBenchPrefix(t *testing.T) {
	if racetest.Enabled {
		t.Skip("one request after the other: TestTokenInLoop shows the race detector the same")
	}
	file := filepath.Join(t.TempDir(), "prefix.json")
	var out bytes.Buffer
	cmd := newBenchPrefixCmd()
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--engine", "sim", "--turns", "9", "--block", "64", "--mode", "token-in", "--json", file})
	if err := cmd.Execute(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Turns []struct{ Prompt, Completion, Cached, Ceiling, Expected int }
		Bare  struct {
			Closure  float64
			Prefill  int `json:"prefill_tokens"`
			Baseline struct {
				All struct {
					Prefill int `json:"prefill_tokens"`
				} `json:"all_tools"`
				Rewrite struct {
					Prefill int `json:"prefill_tokens"`
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &r.Bare); err != nil {
		t.Fatal(err)
	}
	if len(r.Turns) != 9 || r.Bare.Closure != 1 {
		t.Errorf("%d turns, closure %v", len(r.Turns), r.Bare.Closure)
	}
	prefill := 0
	for i, turn := range r.Turns {
		prefill += turn.Prompt - turn.Cached
		if turn.Cached != turn.Expected || i > 0 && turn.Ceiling != (r.Turns[i-1].Prompt+r.Turns[i-1].Completion-1)/64*64 {
			t.Errorf("turn %d: %+v", i+1, turn)
		}
	}
	b := r.Bare.Baseline
	if prefill != r.Bare.Prefill || b.All.Prefill < 15*prefill || b.Rewrite.Prefill < 2*prefill {
		t.Errorf("prefill %d (%d), with all tools %d, rewritten %d", prefill, r.Bare.Prefill, b.All.Prefill, b.Rewrite.Prefill)
	}
	if !strings.Contains(out.String(), "closure 1.0000") {
		t.Errorf("table:\n%s", out.String())
	}
}

func TestBenchPrefixRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--turns", "1"}, {"--mode", "native"}, {"--mode", "fast"}, {"--family", "nosuch"}, {"--tool-choice", "none"}, {"--tokenizer", "nosuch.json"}, {"--calls", "0"},
		{"--engine", "nosuch"}, {"--engine", "ftp://127.0.0.1"}, {"--engine", ""},
	} {
		cmd := newBenchPrefixCmd()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(args)
		var usage *usageError
		if err := cmd.Execute(); !errors.As(err, &usage) || usage.hint == "" {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestDoctor: what is found of a simulated engine, and the flag for what it lacks.
func TestDoctor(t *testing.T) {
	for _, details := range []bool{true, false} {
		url, stop, err := startSimulated(simengine.Config{BlockSize: 32, PromptTokensDetails: details})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		file := filepath.Join(t.TempDir(), "doctor.json")
		for _, args := range [][]string{{"--json", file}, {"--json=" + file}, {"--json"}} {
			var out, table bytes.Buffer
			cmd := newDoctorCmd()
			cmd.SetOut(&out)
			cmd.SetErr(&table)
			cmd.SetArgs(append([]string{"--engine", url + "/v1"}, args...))
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(args) == 1 && args[0] == "--json" {
				raw, out = out.Bytes(), table
			}
			var r doctorReport
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			if r.Kind != "sim" || r.BlockSize != 32 || r.CacheTokens != 16384*32 || r.Mode != "token-in" || r.Transport == "" || r.LateSlot == "none" || r.CachedTokens != details {
				t.Errorf("%+v", r)
			}
			flag := "--enable-prompt-tokens-details"
			if details == (len(r.Missing) > 0) || details == strings.Contains(out.String(), flag) {
				t.Errorf("missing %+v:\n%s", r.Missing, out.String())
			}
		}
	}
	cmd := newDoctorCmd()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(io.Discard)
	cmd.SetArgs([]string{"--engine", "http://127.0.0.1:1"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "could not be probed") {
		t.Errorf("no engine: %v", err)
	}
}
