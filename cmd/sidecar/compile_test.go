package main

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
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

// names are the tools that the grammar of a tag goes on with.
func names(format map[string]any) string {
	var out []string
	tags, _ := format["tags"].([]any)
	for _, x := range tags {
		text, _ := x.(map[string]any)["content"].(map[string]any)["grammar"].(string)
		root, _, _ := strings.Cut(text, "\n")
		for _, m := range regexp.MustCompile(`"(orders__\w+)\\"`).FindAllStringSubmatch(root, -1) {
			out = append(out, m[1])
		}
	}
	return strings.Join(out, " ")
}

func TestCompileNames(t *testing.T) {
	out, errs, err := runCommand(t, "", "compile", "orders__refund_order", "orders__get_order", "orders__refund_order")
	if err != nil {
		t.Fatal(err)
	}
	kind, begins, format := tagOf(t, []byte(out))
	if kind != "triggered_tags" || !slices.Equal(begins, []string{"<tool_call>\n{\"name\": \""}) || names(format) != "orders__refund_order orders__get_order" || format["stop_after_first"] != true {
		t.Errorf("%s %q %s", kind, begins, names(format))
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
		begins       []string
		tools        int
		stop         any
	}{
		{"auto", "triggered_tags", []string{"<tool_call>\n{\"name\": \""}, 2, false},
		{"required", "tags_with_separator", []string{"<tool_call>\n{\"name\": \""}, 2, false},
		{"orders__get_order", "tags_with_separator", []string{"<tool_call>\n{\"name\": \"orders__get_order\", \"arguments\": "}, 1, true},
		{"none", "any_text", nil, 0, nil},
	} {
		out, _, err := runCommand(t, "", "compile", "--json", "--parallel", "--choice", x.choice, "orders__get_order", "orders__refund_order")
		var r compileReport
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		kind, begins, format := tagOf(t, r.Format)
		if kind != x.kind || !slices.Equal(begins, x.begins) || format["stop_after_first"] != x.stop || len(r.Tools) != x.tools || r.Exact+r.Checked != x.tools || r.Bytes == 0 {
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
	if _, begins, _ := tagOf(t, []byte(out)); len(begins) != 1 {
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
		{[]string{"--schema", bad}, `pattern "(": unclosed group at byte 0`, false},
		{[]string{"--xgrammar", "0.1.9", "orders__get_order"}, "xgrammar from 0.2.7 on is supported", false},
	} {
		out, _, err := runCommand(t, "", append([]string{"compile"}, x.args...)...)
		var usage *usageError
		if err == nil || !strings.HasSuffix(err.Error(), x.want) || errors.As(err, &usage) != x.usage || out != "" {
			t.Errorf("compile %q: %v, output %.200q; want %s", x.args, err, out, x.want)
		}
	}
}

// TestCompileProve: every family's tools are proved, whether their arguments are
// JSON or stand in tags.
func TestCompileProve(t *testing.T) {
	exact := writeFile(t, "exact.json", `{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9},"q":{"type":"string"}},"required":["n"]}`)
	for _, family := range []string{"hermes", "qwen3-coder", "glm-4.5", "glm-4.7", "kimi-k2"} {
		out, errs, err := runCommand(t, "", "compile", "--schema", exact, "--family", family, "--prove", "--json")
		var r struct{ Tools []provedTool }
		if err != nil || json.Unmarshal([]byte(out), &r) != nil || len(r.Tools) != 1 {
			t.Fatalf("%s: %v\n%s", family, err, errs)
		}
		if p := r.Tools[0]; p.Status != "proved" {
			t.Errorf("%s: %+v", family, p)
		}
	}
}
