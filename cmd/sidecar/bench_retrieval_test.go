package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runBenchRetrieval executes the command on files of a few tools and queries.
func runBenchRetrieval(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := newRoot()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{"bench", "retrieval"}, args...))
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func benchFiles(t *testing.T) (catalog, queries, names string) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var tools strings.Builder
	for _, n := range []string{"send_mail", "list_invoices", "get_weather", "book_flight"} {
		fmt.Fprintf(&tools, `{"type":"function","function":{"name":%q,"description":"To %s."}}`+"\n", n, strings.ReplaceAll(n, "_", " "))
	}
	return file("catalog.jsonl", tools.String()),
		file("queries.jsonl", `{"id":"a","query":"what will the weather be","gold":["get_weather"]}`+"\n"+`{"id":"b","query":"show the invoices","gold":["list_invoices","no_such_tool"],"gold_any":[["list_invoices","no_such_tool"]]}`+"\n"+`{"id":"c","query":"x","gold":["elsewhere"]}`+"\n"),
		file("names.txt", "get_weather\nsend_mail\n")
}

func TestBenchRetrieval(t *testing.T) {
	catalog, queries, names := benchFiles(t)
	dir := t.TempDir()
	figures, ranks := filepath.Join(dir, "f.json"), filepath.Join(dir, "r.jsonl")
	out, errs, err := runBenchRetrieval(t, "--catalog", catalog, "--queries", queries, "--json", figures, "--per-query", ranks, "--k", "4,1")
	if err != nil || !strings.Contains(out, "4 tools, 2 queries") || !strings.Contains(errs, "1 of 3 queries") {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	raw, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Tools, Queries int
		Recall, All    map[string]float64
		MRR10          float64
		Latency        map[string]float64 `json:"latency_us"`
		Tokens         map[string]int
		Index          string
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if r.Tools != 4 || r.Queries != 2 || r.Recall["1"] != 100 || r.Recall["4"] != 100 || len(r.Recall) != 4 || r.MRR10 != 100 || r.Latency["p99"] <= 0 || r.Tokens["all_schemas"] == 0 || r.Index != "exact" {
		t.Errorf("%s", raw)
	}
	lines, err := os.ReadFile(ranks)
	if err != nil || strings.Count(string(lines), "\n") != 2 || !strings.HasPrefix(string(lines), `{"id":"a","ranks":[1],"top":["get_weather"`) {
		t.Errorf("%v\n%s", err, lines)
	}
	out, _, err = runBenchRetrieval(t, "--catalog", catalog, "--queries", queries, "--names", names, "--json", "-")
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || r.Tools != 2 || r.Queries != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBenchRetrievalWithGraph(t *testing.T) {
	catalog, queries, _ := benchFiles(t)
	cache := t.TempDir()
	for _, said := range []string{"graph of 60 tools", "is of no use"} {
		out, errs, err := runBenchRetrieval(t, "--catalog", catalog, "--queries", queries, "--grow", "60", "--index", "hnsw", "--index-cache", cache)
		if err != nil || !strings.Contains(out, "60 tools, 2 queries, index hnsw") || !strings.Contains(errs, said) {
			t.Errorf("%v\n%s\n%s", err, out, errs)
		}
		files, err := os.ReadDir(cache)
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		if err := os.Truncate(filepath.Join(cache, files[0].Name()), 100); err != nil { // to be built anew
			t.Fatal(err)
		}
	}
}

func TestBenchIndex(t *testing.T) {
	catalog, queries, _ := benchFiles(t)
	dir := t.TempDir()
	out, _, err := runCommand(t, "", "bench", "index", "--catalog", catalog, "--queries", queries, "--grow", "80", "--uniform", "50", "--export", dir, "--json", "-")
	var reports []struct {
		Vectors int
		Of      string
		Recall  float64 `json:"recall10"`
	}
	if err != nil || json.Unmarshal([]byte(out), &reports) != nil || len(reports) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, r := range reports {
		if r.Of != []string{"tools", "uniform"}[i] || r.Vectors != []int{80, 50}[i] || r.Recall != 1 {
			t.Errorf("%+v", r)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "vectors.f32")); err != nil || info.Size() != 8+80*256*4 {
		t.Errorf("%v", err)
	}
	for _, args := range [][]string{{}, {"--catalog", catalog}, {"--catalog", catalog, "--queries", queries, "--grow", "-1"}} {
		var usage *usageError
		if _, _, err := runCommand(t, "", append([]string{"bench", "index"}, args...)...); !errors.As(err, &usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// embeddingsServer answers with [vector] of each text until it is told to fail.
func embeddingsServer(t *testing.T, vector func(text string) string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		var parts []string
		for i, s := range in.Input {
			parts = append(parts, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, vector(s)))
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(parts, ","))
	}))
	t.Cleanup(server.Close)
	return server
}

func TestBenchRetrievalWithEmbedder(t *testing.T) {
	catalog, queries, _ := benchFiles(t)
	server := embeddingsServer(t, func(text string) string { return fmt.Sprintf("[%d,1,2]", len(text)) })
	if out, _, err := runBenchRetrieval(t, "--catalog", catalog, "--queries", queries, "--embedder", server.URL); err != nil || !strings.Contains(out, "4 tools, 2 queries") {
		t.Errorf("%v\n%s", err, out)
	}
	server.Config.Handler = http.NotFoundHandler()
	if _, _, err := runBenchRetrieval(t, "--catalog", catalog, "--queries", queries, "--embedder", server.URL); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}

func TestBenchRetrievalUsage(t *testing.T) {
	catalog, queries, names := benchFiles(t)
	for _, args := range [][]string{
		{}, {"--catalog", catalog}, {"--queries", queries}, {"--catalog", catalog, "--queries", queries, "--k", "0"},
		{"--catalog", catalog, "--queries", queries, "--token-cap", "0"}, {"--catalog", catalog, "--queries", "none.jsonl"},
		{"--catalog", "none.jsonl", "--queries", queries}, {"--catalog", catalog, "--queries", queries, "--names", queries},
		{"--catalog", catalog, "--queries", queries, "--names", "none.txt"}, {"--catalog", "demo", "--queries", queries},
		{"--catalog", catalog, "--queries", queries, "--embedder", "nowhere"}, {"--catalog", catalog, "--queries", queries, "--index", "tree"},
		{"--catalog", catalog, "--queries", queries, "--grow", "-1"}, {"--catalog", catalog, "--queries", queries, "more"},
	} {
		var usage *usageError
		if _, _, err := runBenchRetrieval(t, args...); !errors.As(err, &usage) || usage.hint == "" {
			t.Errorf("%v: %v", args, err)
		}
	}
	var line interface{ Unwrap() error }
	if _, _, err := runBenchRetrieval(t, "--catalog", catalog, "--queries", names); !errors.As(err, &line) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("%v", err)
	}
}
