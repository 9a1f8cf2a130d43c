package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBenchGrammar(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("schemas/a/good.json", `{"schema":{"properties":{"n":{"type":"integer"},"d":{"format":"date"}},"required":["n"]},
		"tests":[{"valid":true,"data":{"n": 1.0}},{"valid":false,"data":{"n":1.5}},{"valid":false,"data":{}},{"valid":false,"data":{"n":1,"d":"2023-02-29"}}]}`)
	write("schemas/b/wrong.json", `{"schema":{"type":"string"},"tests":[{"valid":true,"data":1},{"valid":false,"data":"x"}]}`)
	write("schemas/b/refused.json", `{"schema":{"items":{"pattern":"(a)\\1"}},"tests":[{"valid":true,"data":[]}]}`)
	var r struct {
		Schemas, Compiled int
		Refused           []struct{ File, Path, Keyword string }
		SchemasRight      int `json:"schemas_right"`
		Valid, Invalid    struct{ Accepted, Rejected int }
		CompileUS         struct{ P50, P90, P99, Max float64 }      `json:"compile_us"`
		MaskUS            struct{ Avg, P50, P90, P99, Max float64 } `json:"mask_us"`
		WarmMaskUS        struct{ P50 float64 }                     `json:"warm_mask_us"`
		Narrower, Wider   []struct {
			File    string
			Test    int
			Reasons []string
		}
		Wrong []struct{ File string }
	}
	run := func(args ...string) string {
		t.Helper()
		file := filepath.Join(dir, "report.json")
		out, _, err := runCommand(t, "", append([]string{"bench", "grammar", "--json", file}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		raw, err := os.ReadFile(file)
		r.Narrower, r.Wider = nil, nil // left out where there are none
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := run("--schemas", filepath.Join(dir, "schemas"))
	if r.Schemas != 3 || r.Compiled != 2 || r.SchemasRight != 1 || r.Valid.Accepted != 1 || r.Valid.Rejected != 1 || r.Invalid.Rejected != 3 || r.Invalid.Accepted != 1 {
		t.Errorf("%+v", r)
	}
	if len(r.Refused) != 1 || r.Refused[0].File != "b/refused.json" || r.Refused[0].Path != "/items" || r.Refused[0].Keyword != "pattern" {
		t.Errorf("refused %+v", r.Refused)
	}
	if r.CompileUS.P50 <= 0 || r.MaskUS.Avg <= 0 || r.MaskUS.Max < r.MaskUS.P50 || r.WarmMaskUS.P50 > r.MaskUS.Max {
		t.Errorf("times %+v %+v %+v", r.CompileUS, r.MaskUS, r.WarmMaskUS)
	}
	if !strings.Contains(out, "sidecar") || !strings.Contains(out, "wrong b/wrong.json: test 0 is valid and was rejected") {
		t.Error(out)
	}
	run("--schemas", filepath.Join(dir, "schemas"), "--subset", "a", "--formats=false", "--answers", "3")
	if r.Schemas != 1 || r.SchemasRight != 0 || r.Invalid.Accepted != 1 {
		t.Errorf("one folder, no formats: %+v", r)
	}

	// What a model is held to is narrower by design, and wider where it says so.
	write("gen/keys.json", `{"schema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}},"tests":[{"valid":true,"data":{"a":1,"b":2}},{"valid":true,"data":{"b":1,"a":2}},{"valid":false,"data":{"a":""}}]}`)
	write("gen/unique.json", `{"schema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"},"uniqueItems":true}}},"tests":[{"valid":true,"data":{"a":[1,2]}},{"valid":false,"data":{"a":[1,1]}}]}`)
	write("gen/date.json", `{"schema":{"type":"object","properties":{"a":{"type":"string","format":"hostname"}}},"tests":[{"valid":false,"data":{"a":"-"}}]}`)
	write("gen/lying.json", `{"schema":{"type":"object","properties":{"a":{"type":"integer"}}},"tests":[{"valid":false,"data":{"a":1}}]}`)
	write("gen/string.json", `{"schema":{"type":"string"},"tests":[{"valid":true,"data":""}]}`)
	write("gen/pattern.json", `{"schema":{"type":"object","properties":{"a":{"pattern":"(a)\\1"}}},"tests":[]}`)
	out = run("--schemas", filepath.Join(dir, "gen"), "--language", "gen")
	if r.Schemas != 6 || r.Compiled != 4 || r.SchemasRight != 3 || r.Valid.Rejected != 1 || r.Invalid.Accepted != 3 {
		t.Errorf("gen: %+v", r)
	}
	if len(r.Narrower) != 1 || r.Narrower[0].File != "keys.json" || r.Narrower[0].Test != 1 || len(r.Wider) != 2 || r.Wider[0].File != "date.json" || r.Wider[1].File != "unique.json" || len(r.Wider[1].Reasons) != 1 || len(r.Wrong) != 1 || r.Wrong[0].File != "lying.json" {
		t.Errorf("gen: narrower %v, wider %v, wrong %v", r.Narrower, r.Wider, r.Wrong)
	}
	if len(r.Refused) != 2 || r.Refused[0].Path != "/properties/a" || r.Refused[0].Keyword != "pattern" || r.Refused[1].Path != "" || r.Refused[1].Keyword != "type" {
		t.Errorf("gen: refused %+v", r.Refused)
	}
	if !strings.Contains(out, "wider unique.json: test 1; left to the check: #/properties/a/uniqueItems") || !strings.Contains(out, "the first keys.json: test 1") {
		t.Error(out)
	}

	write("suite/tests/draft7/x.json", `[{"schema":{"$ref":"http://localhost:1234/n.json"},"tests":[{"valid":true,"data":1},{"valid":false,"data":"x"}]},
		{"schema":{"items":[{"type":"null"}]},"tests":[{"valid":true,"data":[null,1]},{"valid":false,"data":[1]}]}]`)
	write("suite/tests/draft7/optional/format/date.json", `[{"schema":{"format":"date"},"tests":[{"valid":false,"data":"x"}]}]`)
	write("suite/remotes/n.json", `{"type":"integer"}`)
	run("--suite", filepath.Join(dir, "suite/tests/draft7"))
	if r.Schemas != 3 || r.SchemasRight != 3 || len(r.Refused) != 0 {
		t.Errorf("suite: %+v", r)
	}
	run("--suite", filepath.Join(dir, "suite"))
	if r.Schemas != 3 || r.SchemasRight != 3 {
		t.Errorf("suite from above: %+v", r)
	}

	// A folder of any name that begins with draft says nothing of the draft.
	write("drafts/x.json", `[{"schema":{"prefixItems":[{"type":"null"}]},"tests":[{"valid":true,"data":null},{"valid":false,"data":[1]}]}]`)
	run("--suite", filepath.Join(dir, "drafts"))
	if r.Schemas != 1 || r.SchemasRight != 1 || len(r.Refused) != 0 {
		t.Errorf("a folder named drafts: %+v", r)
	}
	write("unlabelled/x.json", `{"schema":{},"tests":[{"valid":true,"data":1},{"data":1}]}`)
	write("empty/x.json", `{"schema":{},"tests":[{"valid":true}]}`)

	for _, x := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"--schemas", filepath.Join(dir, "unlabelled")}, "x.json: test 1: a test is {valid,data}", false},
		{[]string{"--schemas", filepath.Join(dir, "empty")}, "x.json: test 0: a test is {valid,data}", false},
		{nil, "give one of --schemas, --suite and --slow", true},
		{[]string{"--schemas", dir, "--suite", dir}, "give one of", true},
		{[]string{"--schemas", filepath.Join(dir, "suite/tests")}, "cannot unmarshal array", false},
		{[]string{"--schemas", filepath.Join(dir, "suite/remotes")}, "no schema; a file is {schema", false},
		{[]string{"--schemas", filepath.Join(dir, "schemas"), "--subset", "nope"}, "no schema in --subset nope", true},
		{[]string{"--schemas", filepath.Join(dir, "schemas"), "--draft", "3"}, `draft "3"`, true},
		{[]string{"--schemas", filepath.Join(dir, "schemas"), "--answers", "0"}, "--answers 0", true},
		{[]string{"--schemas", t.TempDir()}, "no *.json below it", false},
		{[]string{"--schemas", filepath.Join(dir, "schemas"), "--peers"}, "give --tokenizer", false},
	} {
		_, _, err := runCommand(t, "", append([]string{"bench", "grammar"}, x.args...)...)
		var usage *usageError
		if err == nil || !strings.Contains(err.Error(), x.want) || errors.As(err, &usage) != x.usage {
			t.Errorf("%q: %v; want %s", x.args, err, x.want)
		}
	}
}
