package accept

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func dataDir(t testing.TB) string {
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(dir, "schemas")); err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("no schemas under %s", dir)
		}
		t.Skipf("no schemas under %s", dir)
	}
	return filepath.Join(dir, "schemas")
}

// remotes are the documents of the suite, by the URI that its README gives them.
func remotes(t testing.TB, suite string) map[string][]byte {
	docs := map[string][]byte{}
	root := filepath.Join(suite, "remotes")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		docs["http://localhost:1234/"+filepath.ToSlash(rel)] = b
		return err
	})
	if err != nil || len(docs) == 0 {
		t.Fatalf("%d remotes under %s: %v", len(docs), root, err)
	}
	return docs
}

type suiteGroup struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

func TestSuite(t *testing.T) {
	suite := filepath.Join(dataDir(t), "json-schema-test-suite")
	docs := remotes(t, suite)
	for _, d := range []struct {
		folder string
		draft  Draft
	}{{"draft2020-12", Draft2020}, {"draft7", Draft07}} {
		for _, part := range []struct {
			glob    string
			formats bool
		}{{"*.json", false}, {"optional/*.json", false}, {"optional/format/*.json", true}} {
			files, _ := filepath.Glob(filepath.Join(suite, "tests", d.folder, part.glob))
			if len(files) == 0 {
				t.Fatalf("no tests in %s/%s", d.folder, part.glob)
			}
			var cases, wrong, refused int
			required := part.glob == "*.json"
			for _, f := range files {
				raw, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				var groups []suiteGroup
				if err := json.Unmarshal(raw, &groups); err != nil {
					t.Fatal(err)
				}
				for _, g := range groups {
					name := d.folder + strings.TrimPrefix(f, filepath.Join(suite, "tests", d.folder)) + ": " + g.Description
					cases += len(g.Tests)
					a, err := Compile(context.Background(), g.Schema, Options{Draft: d.draft, Formats: part.formats, Documents: docs})
					if err != nil {
						refused += len(g.Tests)
						t.Logf("%s: refused: %v", name, err)
						var r *RefusedError
						if !errors.As(err, &r) {
							t.Errorf("%s: %v", name, err)
						}
						continue
					}
					for _, tt := range g.Tests {
						err := a.Check(tt.Data)
						var stop *StopError
						if err != nil && !errors.As(err, &stop) {
							t.Errorf("%s: %s: %v", name, tt.Description, err)
						}
						agrees(t, a, tt.Data, err)
						if (err == nil) != tt.Valid {
							wrong++
							if required {
								t.Errorf("%s: %s: valid %v, got %v: %s", name, tt.Description, tt.Valid, err, tt.Data)
							} else {
								t.Logf("%s: %s: valid %v, got %v: %s", name, tt.Description, tt.Valid, err, tt.Data)
							}
						}
					}
				}
			}
			t.Logf("%s/%s: %d cases, %d wrong, %d refused", d.folder, part.glob, cases, wrong, refused)
			if required && refused > 10 {
				t.Errorf("%s: %d refused", d.folder, refused)
			}
		}
	}
}
