package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// tagOf reads the structural tag of a response_format.
func tagOf(t *testing.T, raw []byte) (kind string, begins []string, format map[string]any) {
	t.Helper()
	var f struct {
		Type   string         `json:"type"`
		Format map[string]any `json:"format"`
	}
	if err := json.Unmarshal(raw, &f); err != nil || f.Type != "structural_tag" {
		t.Fatalf("%v: %s", err, raw)
	}
	tags, _ := f.Format["tags"].([]any)
	for _, x := range tags {
		begins = append(begins, x.(map[string]any)["begin"].(string))
	}
	return f.Format["type"].(string), begins, f.Format
}

func TestCompileNames(t *testing.T) {
	out, errs, err := runCommand(t, "", "compile", "orders__refund_order", "orders__get_order", "orders__refund_order")
	if err != nil {
		t.Fatal(err)
	}
	kind, begins, format := tagOf(t, []byte(out))
	if kind != "triggered_tags" || len(begins) != 2 || !strings.Contains(begins[0], `"orders__refund_order"`) || !strings.HasPrefix(begins[1], "<tool_call>") || format["stop_after_first"] != true {
		t.Errorf("%s %q", kind, begins)
	}
	if !strings.HasSuffix(errs, " bytes\n") || !strings.Contains(errs, "orders__get_order\n") || !strings.Contains(errs, "2 tools: ") {
		t.Errorf("report\n%s", errs)
	}
	again, _, _ := runCommand(t, "", "compile", "orders__refund_order", "orders__get_order")
	if again != out {
		t.Error("not the same bytes again")
	}
}

func TestCompileChoice(t *testing.T) {
	for _, x := range []struct {
		choice, kind string
		tags         int
		stop         any
	}{
		{"auto", "triggered_tags", 2, false}, {"required", "tags_with_separator", 2, false}, {"orders__get_order", "tags_with_separator", 1, true}, {"none", "any_text", 0, nil},
	} {
		out, _, err := runCommand(t, "", "compile", "--json", "--parallel", "--choice", x.choice, "orders__get_order", "orders__refund_order")
		var r compileReport
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		kind, begins, format := tagOf(t, r.Format)
		if kind != x.kind || len(begins) != x.tags || format["stop_after_first"] != x.stop || len(r.Tools) != x.tags || r.Exact+r.Checked != x.tags || r.Bytes == 0 {
			t.Errorf("%s: %s, %q, %+v", x.choice, kind, begins, format["stop_after_first"])
		}
	}
}

// TestCompileReport: a tool that the engine can't be held to is named with the
// reason, one that it can is exact.
func TestCompileReport(t *testing.T) {
	exact := writeFile(t, "exact.json", `{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"]}`)
	loose := writeFile(t, "loose.json", `{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"},"uniqueItems":true}}}`)
	out, errs, err := runCommand(t, "", "compile", "--schema", exact, "--schema", loose)
	if err != nil || !strings.HasPrefix(errs, "exact    exact\nchecked  loose\n           #/properties/l/uniqueItems: ") || !strings.Contains(errs, "2 tools: 1 exact, 1 checked after the reply") {
		t.Errorf("%v\n%s", err, errs)
	}
	if _, begins, _ := tagOf(t, []byte(out)); len(begins) != 2 {
		t.Errorf("%q", begins)
	}
	_, errs, err = runCommand(t, "", "compile", "--schema", exact, "--xgrammar", "0.3.0")
	if err != nil || !strings.Contains(errs, "xgrammar 0.3.0 has not been measured") {
		t.Errorf("%v\n%s", err, errs)
	}
}

func TestCompileErrors(t *testing.T) {
	bad := writeFile(t, "bad.json", `{"pattern":"("}`)
	for _, x := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"--target", "wasm"}, `compile: no target "wasm"`, true},
		{[]string{"nope"}, "compile: no tool nope", true},
		{[]string{"--choice", "nope", "orders__get_order"}, "compile: --choice nope: no such tool among those given", true},
		{[]string{"--family", "nope"}, "mistral, mistral-v13, mistral-v15, mistral-v11", true},
		{[]string{"--world", "flat"}, "compile: --world flat", true},
		{[]string{"--catalog", "nope.json"}, "catalog nope.json: no such file or directory", true},
		{[]string{"--schema", "nope.json"}, "compile: --schema nope.json: no such file or directory", false},
		{[]string{"--schema", bad, "--schema", bad}, "compile: two tools are named bad", true},
		{[]string{"--schema", bad}, "missing closing ): `(`", false},
		{[]string{"--xgrammar", "0.1.9", "orders__get_order"}, "xgrammar from 0.2.7 on is supported", false},
	} {
		out, _, err := runCommand(t, "", append([]string{"compile"}, x.args...)...)
		var usage *usageError
		if err == nil || !strings.HasSuffix(err.Error(), x.want) || errors.As(err, &usage) != x.usage || out != "" {
			t.Errorf("compile %q: %v, output %.200q; want %s", x.args, err, out, x.want)
		}
	}
}
