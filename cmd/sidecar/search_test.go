package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runSearch executes sidecar search with args.
func runSearch(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := newRoot()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{"search"}, args...))
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func TestSearchTable(t *testing.T) {
	out, errs, err := runSearch(t, "-k", "3", "refund", "the", "order")
	if err != nil || errs != "" {
		t.Fatalf("%v, %s", err, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "rank  name") || !strings.Contains(lines[1], "orders__refund_order") || !strings.HasSuffix(lines[1], "refund order") {
		t.Errorf("output\n%s", out)
	}
	if strings.ContainsRune(out, '\x1b') {
		t.Error("escape sequences where there is no terminal")
	}
	out, _, err = runSearch(t, "-k", "1", "--explain", "call travel__book_flight")
	if err != nil || !strings.Contains(out, "named in the query") || !strings.Contains(out, "+0.000  travel__book_flight") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = runSearch(t, "xyzzy")
	if err != nil || out != "no tool of demo (3200 tools) shares a word with \"xyzzy\" or is near it in meaning\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSearchJSON(t *testing.T) {
	out, _, err := runSearch(t, "--json", "-k", "2", "refund the order")
	if err != nil {
		t.Fatal(err)
	}
	var r searchReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Tools != 3200 || len(r.Hits) != 2 || r.Hits[0].Rank != 1 || r.Hits[0].Name != "orders__refund_order" || r.Hits[0].Tokens == 0 || len(r.Hits[0].Why) == 0 {
		t.Errorf("%+v", r)
	}
	if out, _, err = runSearch(t, "--json", "xyzzy"); err != nil || !strings.Contains(out, `"hits": []`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSearchOwnCatalog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(path, []byte(`[{"name":"greet","description":"Say hello\u0009to a <person>"},{"name":"no good"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, err := runSearch(t, "--catalog", path, "--explain", "hello")
	if err != nil || !strings.Contains(out, "greet") || !strings.Contains(out, "Say hello to a <person>") {
		t.Errorf("%v\n%s", err, out)
	}
	if errs != "sidecar: left out: "+path+": entry 2 (\"no good\"): name with ' '; letters, digits, _ and - are allowed\n" {
		t.Errorf("left out: %s", errs)
	}
	out, _, err = runSearch(t, "--catalog", path, "--catalog", "demo", "-k", "1", "hello")
	if err != nil || !strings.Contains(out, "greet") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSearchErrors(t *testing.T) {
	twin := filepath.Join(t.TempDir(), "twin.json")
	if err := os.WriteFile(twin, []byte(`[{"name":"orders__get_order"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{nil, "search: no query", true},
		{[]string{" "}, "search: no query", true},
		{[]string{"-k", "0", "x"}, "search: -k 0", true},
		{[]string{"--catalog", "nope.json", "x"}, "catalog nope.json: no such file or directory", true},
		{[]string{"--catalog", t.TempDir(), "x"}, "no *.json, *.jsonl, *.ndjson, *.yaml or *.yml file in this directory", false},
		{[]string{"--tokenizer", "nope.json", "x"}, "search: --tokenizer nope.json: open nope.json: no such file or directory", true},
		{[]string{"--catalog", twin, "--catalog", twin, "x"}, "catalog " + twin + " twice; give one of them another name, as in name=" + twin, true},
		{[]string{"--catalog", "stdio:", "x"}, "catalog stdio:: stdio: without a command; write stdio:COMMAND ARG…", true},
		{[]string{"--nope", "x"}, "unknown flag: --nope", true},
	} {
		out, _, err := runSearch(t, x.args...)
		var usage *usageError
		if err == nil || !strings.HasSuffix(err.Error(), x.want) || errors.As(err, &usage) != x.usage || out != "" {
			t.Errorf("search %q: %v, output %q; want %s", x.args, err, out, x.want)
		}
	}
}

// The vectors of a server rank tools that share no word with the query.
func TestSearchWithEmbedder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.jsonl")
	tools := `{"type":"function","function":{"name":"alpha","description":"Feline matters."}}
{"type":"function","function":{"name":"beta","description":"Canine matters."}}
`
	if err := os.WriteFile(file, []byte(tools), 0o600); err != nil {
		t.Fatal(err)
	}
	server := embeddingsServer(t, func(text string) string {
		if strings.Contains(text, "Feline") || strings.Contains(text, "kitten") {
			return "[1,0]"
		}
		return "[0,1]"
	})
	args := []string{"--catalog", file, "--embedder", server.URL, "--embedder-cache", filepath.Join(t.TempDir(), "vectors"), "--json", "kitten"}
	for range 2 { // the second time from the cache
		out, _, err := runSearch(t, args...)
		var r searchReport
		if err := errors.Join(err, json.Unmarshal([]byte(out), &r)); err != nil || len(r.Hits) == 0 || r.Hits[0].Name != "alpha" || r.Hits[0].Why[0].Field != "meaning" {
			t.Fatalf("%v\n%s", err, out)
		}
		server.Config.Handler = http.NotFoundHandler()
	}
	if _, _, err := runSearch(t, "--catalog", file, "--embedder", server.URL, "puppy"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
	var usage *usageError
	if _, _, err := runSearch(t, "--catalog", file, "--embedder", "nowhere", "puppy"); !errors.As(err, &usage) {
		t.Errorf("%v", err)
	}
}
