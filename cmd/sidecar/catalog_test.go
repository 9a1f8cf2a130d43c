package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
)

func TestImport(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	api := put("api.yaml", "openapi: 3.1.0\ninfo: {title: Shop}\npaths:\n  /a:\n    get: {operationId: search, summary: Finds}\n")
	list := put("tools.json", `[{"name":"search"},{"name":"other"}]`)
	out, _, err := runCommand(t, "", "import", api, "mine="+list, "--names")
	if err != nil || out != "api__search\nmine__search\nother\n" {
		t.Errorf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "all.jsonl")
	if _, stderr, err := runCommand(t, "", "import", api, list, "-o", file); err != nil || !strings.Contains(stderr, "3 tools") {
		t.Errorf("%v %s", err, stderr)
	}
	again, problems, err := catalog.Load(t.Context(), file)
	if err != nil || len(problems) > 0 || again.Len() != 3 {
		t.Errorf("what was written can't be read: %v %v", err, problems)
	}

	// What a source declares of a risk is kept, from one file to the next.
	api = put("risky.yaml", "openapi: 3.1.0\ninfo: {title: Shop}\npaths:\n  /a:\n    post: {operationId: look, x-risk: A0}\n    delete: {operationId: get_it}\n")
	list = put("hints.json", `{"tools":[{"name":"frob","inputSchema":{},"annotations":{"readOnlyHint":true}},{"name":"get_plain","inputSchema":{}}]}`)
	for _, from := range [][]string{{api, list}, {file}} {
		if _, stderr, err := runCommand(t, "", append([]string{"import", "-o", file}, from...)...); err != nil {
			t.Fatal(err, stderr)
		}
		again, problems, err := catalog.Load(t.Context(), file)
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		got := map[string]string{}
		for i := range again.Tools() {
			tool := &again.Tools()[i]
			got[tool.Name] = catalog.Risk(tool.Risk).String()
		}
		if want := map[string]string{"look": "A0", "get_it": "A3", "frob": "A0", "get_plain": "none"}; !maps.Equal(got, want) {
			t.Errorf("declared %v, want %v", got, want)
		}
	}

	var usage *usageError
	if _, _, err := runCommand(t, "", "import"); !errors.As(err, &usage) {
		t.Errorf("%v", err)
	}
}

func TestCatalogApproval(t *testing.T) {
	dir := t.TempDir()
	file, pins := filepath.Join(dir, "a.json"), filepath.Join(dir, "pins.json")
	set := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--catalog", "src=" + file, "--catalog-pins", pins}
	catalogCmd := func(args ...string) (string, error) {
		out, _, err := runCommand(t, "", append(append([]string{"catalog"}, args...), flags...)...)
		return out, err
	}
	set(`[{"name":"a","description":"Reads"},{"name":"b"}]`)
	if out, err := catalogCmd("approve"); err != nil || out != "approved src a (added)\napproved src b (added)\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := catalogCmd("diff"); err != nil || out != "nothing changed\n" {
		t.Errorf("%v\n%s", err, out)
	}
	set(`[{"name":"a","description":"Reads\u200b all"},{"name":"c"}]`)
	out, err := catalogCmd("diff")
	if err == nil || !strings.Contains(out, "changed  src a\n") || !strings.Contains(out, `  + `) || !strings.Contains(out, `Reads\u200b all`) ||
		!strings.Contains(out, "removed  src b\n") || !strings.Contains(out, "added    src c\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := catalogCmd("approve", "nope"); err == nil {
		t.Error("approved a tool that isn't there")
	}
	if out, err := catalogCmd("approve", "a"); err != nil || out != "approved src a (changed)\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := catalogCmd("diff"); err != nil {
		t.Errorf("%v", err)
	}
}
