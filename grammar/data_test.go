package grammar

import (
	"os"
	"path/filepath"
	"testing"
)

const allSamples = "schemas/jsonschemabench/*/*.json"

// dataFiles are the files of the shared test data that match a pattern. Where
// there are none the test is skipped, or fails if the data is required.
func dataFiles(t testing.TB, pattern string) []string {
	t.Helper()
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = "../../shared/data"
	}
	files, _ := filepath.Glob(filepath.Join(dir, pattern))
	switch {
	case len(files) > 0:
	case os.Getenv("SIDECAR_REQUIRE_DATA") == "1":
		t.Fatalf("no %s under %s", pattern, dir)
	default:
		t.Skipf("no %s under %s", pattern, dir)
	}
	return files
}
