package lexical

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// dataDir is the folder of suites and samples, which is not part of the
// repository; the test is skipped without it.
func dataDir(t *testing.T) string {
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skip("no test data: ", err)
	}
	return dir
}

// The official suite's format tests, of every draft, all of them.
func TestFormatSuite(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(dataDir(t), "schemas/json-schema-test-suite/tests/*/optional/format/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no format tests: ", err)
	}
	asked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []struct {
			Schema struct{ Format string }
			Tests  []struct {
				Description string
				Data        any
				Valid       bool
			}
		}
		if err := json.Unmarshal(data, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			p, ok := Format(g.Schema.Format)
			if !ok {
				if g.Schema.Format != "unknown" {
					t.Errorf("%s: no format %q", file, g.Schema.Format)
				}
				continue
			}
			for _, c := range g.Tests {
				text, is := c.Data.(string)
				if !is {
					continue
				}
				asked++
				if got := holds(t, p, text); got != c.Valid {
					t.Errorf("%s of %s: %q is %t: %s", g.Schema.Format, filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file)))), text, got, c.Description)
				}
			}
		}
	}
	if asked < 500 {
		t.Errorf("%d strings asked", asked)
	}
}
