package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func names(c *Catalog) string {
	var out []string
	for _, t := range c.Tools() {
		n := t.Name
		if t.Server != "" {
			n = t.Server + ":" + n
		}
		out = append(out, n)
	}
	return strings.Join(out, " ")
}

func TestLoadShapes(t *testing.T) {
	for _, x := range []struct{ file, text, want string }{
		{"a.json", `[{"type":"function","function":{"name":"a"}},{"name":"b","inputSchema":{}}]`, "a b"},
		{"b.json", `{"tools":[{"name":"a"},{"name":"b"}]}`, "a b"},
		{"c.json", `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}`, "a"},
		{"d.json", `{"type":"function","function":{"name":"a"}}`, "a"},
		{"e.json", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n", "a b"},
		{"f.jsonl", "{\"name\":\"a\"}\n\n  {\"name\":\"b\"}", "a b"},
		{"g.json", "\ufeff[{\"name\":\"a\"}]", "a"},
		{"h", `{"name":"tools","parameters":{"tools":"x"}}`, "tools"},
	} {
		c, problems, err := Load(t.Context(), write(t, t.TempDir(), x.file, x.text))
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", x.file, err, problems)
			continue
		}
		if got := names(c); got != x.want {
			t.Errorf("%s: %s; want %s", x.file, got, x.want)
		}
	}
}

// One tool in a hundred that cannot be served takes nothing else with it.
func TestLoadServesTheRest(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "tools.json", `[{"name":"good"},{"name":"bad name"},7,{"type":"web_search"},{"name":"good","description":"again"},{"name":"deep","parameters":`+
		strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100)+`},{"name":"last"}]`)
	c, problems, err := Load(t.Context(), path)
	if err != nil || names(c) != "good last" {
		t.Fatalf("%v, %v", c, err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, strings.TrimPrefix(p.String(), dir+"/"))
	}
	want := []string{
		`tools.json: entry 2 ("bad name"): name with ' '; letters, digits, _ and - are allowed`,
		`tools.json: entry 3: not an object`,
		`tools.json: entry 4: tool type "web_search" is not supported; only functions are`,
		`tools.json: entry 5 ("good"): name already taken by ` + path + `: entry 1`,
		`tools.json: entry 6: nested deeper than 64 levels`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	path = write(t, dir, "lines.jsonl", "{\"name\":\"a\"}\n{\"name\":\n\n{\"name\":\"b\"}\n")
	c, problems, err = Load(t.Context(), path)
	if err != nil || names(c) != "a b" || len(problems) != 1 || problems[0].Line != 2 || problems[0].Entry != 2 {
		t.Errorf("%v %v %v", c, problems, err)
	}
}

func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crm.json", `[{"name":"list"},{"name":"x__y"}]`)
	write(t, dir, "erp.jsonl", `{"name":"list"}`+"\n"+`{"name":"post"}`)
	write(t, dir, "broken.json", `[{"name":`)
	write(t, dir, "notes.txt", `not a catalog`)
	c, problems, err := Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(c); got != "crm:list x__y erp:post" {
		t.Errorf("tools %s", got)
	}
	if len(problems) != 2 || !strings.Contains(problems[0].String(), "broken.json: line 1, column 9: unexpected end") || !strings.Contains(problems[1].String(), "erp.jsonl:1: entry 1 (\"list\"): name already taken") {
		t.Errorf("problems %v", problems)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Load(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct{ name, path, want string }{
		{"absent", filepath.Join(dir, "no.json"), "no.json: no such file or directory"},
		{"empty", write(t, dir, "empty.json", " \n"), "empty.json: empty file"},
		{"a number", write(t, dir, "number.json", "7"), `number.json: neither an array of tools nor an object with "tools"`},
		{"truncated", write(t, dir, "cut.json", "[\n{\"name\":\"a\"}"), "cut.json: line 2, column 12: unexpected end of JSON input"},
		{"no tool", write(t, dir, "none.json", "[]"), "none.json: no usable tool"},
		{"only bad tools", write(t, dir, "bad.json", `[{"name":"?"}]`), "bad.json: no usable tool"},
		{"deeper than any decoder goes", write(t, dir, "deep.json", strings.Repeat("[", 1_000_000)), "deep.json: line 1, column 10001: invalid character '[' exceeded max depth"},
		{"directory without catalogs", t.TempDir(), "no *.json, *.jsonl, *.ndjson, *.yaml or *.yml file in this directory"},
		{"device", "/dev/zero", "/dev/zero: not a regular file"},
	} {
		_, _, err := Load(t.Context(), x.path)
		var file *FileError
		if !errors.As(err, &file) || !strings.HasSuffix(err.Error(), x.want) {
			t.Errorf("%s: %v; want %s", x.name, err, x.want)
		}
	}
}

func TestLoadLimits(t *testing.T) {
	l := loader{lim: DefaultLimits, names: make(map[string]string)}
	l.lim.Tools = 3
	l.lim.FileBytes = 1000
	dir := t.TempDir()
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "{\"name\":\"t%d\"}\n", i)
	}
	if err := l.file(write(t, dir, "five.jsonl", b.String()), ""); err != nil || len(l.tools) != 3 || len(l.problems) != 2 || l.problems[0].Reason != "more than 3 tools" {
		t.Errorf("%d tools, %v, %v", len(l.tools), l.problems, err)
	}
	if err := l.file(write(t, dir, "big.json", strings.Repeat(" ", 1001)), ""); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
}
