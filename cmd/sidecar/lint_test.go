package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runCommand executes sidecar with args and standard input.
func runCommand(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := newRoot()
	var out, errs bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const badTools = `[{"name":"write_file","description":"Writes text into a file of the workspace.","parameters":{"type":"object","properties":{
	"path":{"type":"string","description":"Absolute path.","maxLength":4096},"overwrite":{"type":"boolean","description":"Replace what is there.","default":true},
	"timeout":{"type":"integer","minimum":1,"maximum":10,"description":"How long to wait."}},"required":["path","text"],"additionalProperties":false}},
	{"name":"no good"}]`

// TestLintDemo: the demo has no errors, one thing said once, every rule found
// once.
func TestLintDemo(t *testing.T) {
	out, errs, err := runCommand(t, "", "lint")
	if err != nil || errs != "" {
		t.Fatalf("%v, %s", err, errs)
	}
	first, rest, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(first, "demo: 3,200 tools, 0 errors, ") || !strings.HasSuffix(first, " findings not shown, see --severity info") {
		t.Error(first)
	}
	blocks := strings.Split(strings.TrimSpace(rest), "\n\n")
	if len(blocks) < 5 || strings.Contains(out, "\x1b") {
		t.Errorf("output\n%s", out)
	}
	for _, b := range blocks {
		lines := strings.Split(b, "\n")
		if !strings.HasPrefix(lines[0], "warning  ") || !strings.Contains(lines[1], "; to do: ") || len(lines) > 8 {
			t.Errorf("block\n%s", b)
		}
	}
	out, _, err = runCommand(t, "", "lint", "--rule", "dry-run-missing", "--json")
	var r lintReport
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || r.Tools != 3200 || len(r.Findings) == 0 || len(r.Findings) != r.Warnings || r.Hidden == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range r.Findings {
		if f.Rule != "dry-run-missing" || f.Loc != "/parameters" || f.Fix == "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestLintFile(t *testing.T) {
	path := writeFile(t, "tools.json", badTools)
	out, _, err := runCommand(t, "", "lint", path)
	if err == nil || err.Error() != "lint: 3 findings of severity error" {
		t.Error(err)
	}
	want := path + `: 1 tool, 3 errors, 1 warning; 2 findings not shown, see --severity info

error  tool-refused: an entry of the catalog can't be served
  1 place in 1 tool; to do: correct or remove the entry
    no good    ` + path + `: entry 2 ("no good"): name with ' '; letters, digits, _ and - are allowed

error  required-undeclared: a required key is not a declared parameter
  1 place in 1 tool; to do: declare it under properties, or take it out of required
    write_file  /parameters/required  required "text" is not declared: a closed tool can never be called

error  unsafe-default: left out, the parameter does harm
  1 place in 1 tool; to do: let the default be the value that changes or loses nothing
    write_file  /parameters/properties/overwrite/default  "overwrite" is true when the model says nothing

warning  unit-missing: a quantity is given without its unit
  1 place in 1 tool; to do: put the unit into the name (timeout_seconds) and the description
    write_file  /parameters/properties/timeout  "timeout": of what unit?
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	out, _, err = runCommand(t, "", "lint", "--severity", "error", "--rule", "unit-missing", path)
	if err != nil || out != path+": 1 tool, 0 errors; 6 findings not shown, see --severity info\n" {
		t.Errorf("%v\n%s", err, out)
	}
	// One name in two files is a finding here, and one file twice is that.
	if out, _, err = runCommand(t, "", "lint", "--rule", "name-duplicate", path, "--catalog", path); err == nil || !strings.Contains(out, "also the name of tool 1") {
		t.Errorf("%v\n%s", err, out)
	}
	hostile := writeFile(t, "hostile.json", "[{\"name\":\"a\",\"description\":\"Reads \\u202e a file \\u200b of it.\"}]")
	if out, _, err = runCommand(t, "", "lint", hostile); err == nil || !strings.Contains(out, "character U+202E at byte 6") || strings.Contains(out, "\u202e") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestLintList(t *testing.T) {
	out, _, err := runCommand(t, "", "lint", "--list", "--json")
	var rules []struct{ ID, Severity, Title, Fix, Source string }
	if err != nil || json.Unmarshal([]byte(out), &rules) != nil || len(rules) != len(lintRules()) || rules[0].ID != "tool-refused" {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, _, err = runCommand(t, "", "lint", "--list"); err != nil || strings.Count(out, "\n") != 3*len(rules) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestLintErrors(t *testing.T) {
	for _, x := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"nope.json"}, "catalog nope.json: no such file or directory", true},
		{[]string{"--severity", "bad"}, "lint: --severity bad", true},
		{[]string{"--rule", "nope"}, `lint: no rule "nope"`, true},
		{[]string{"--places", "-1"}, "lint: --places -1", true},
		{[]string{writeFile(t, "x.json", "[")}, "", false},
		{[]string{writeFile(t, "x.json", "[]")}, "no usable tool", false},
	} {
		out, _, err := runCommand(t, "", append([]string{"lint"}, x.args...)...)
		var usage *usageError
		if err == nil || !strings.HasSuffix(err.Error(), x.want) || errors.As(err, &usage) != x.usage || out != "" {
			t.Errorf("lint %q: %v, output %q; want %s", x.args, err, out, x.want)
		}
	}
}
