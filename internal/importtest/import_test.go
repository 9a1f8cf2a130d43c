package importtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/toolsidecar/sidecar/"

// rules say which of our packages a package may import, tests excepted. The
// first rule whose pattern matches applies; a package without a rule fails. A
// pattern ending in "/..." also matches the packages below it.
var rules = []struct {
	pkg   string
	allow []string
}{
	{"cmd/...", []string{"..."}},
	{"models", nil},
	{"models/...", []string{"models", "models/jsontext"}},
	{"retrieval", []string{"retrieval/hnsw"}},
	{"retrieval/usage", []string{"retrieval"}},
	{"retrieval/...", nil},
	{"grammar/lexical", []string{"models/..."}},
	{"grammar/...", []string{"grammar/...", "models/..."}},
	{"prefix/...", []string{"models/..."}},
	{"tokenbudget/...", []string{"models/..."}},
	{"internal/openai", nil},
	{"internal/engine", []string{"internal/openai", "models/..."}},
	{"internal/catalog", []string{"retrieval", "models/embedding", "models/jsontext", "models/toolname"}},
	{"internal/embedder", nil},
	{"internal/store", []string{"prefix", "tokenbudget", "retrieval/..."}},
	{"internal/store/storetest", []string{"internal/store", "prefix"}},
	{"internal/proxy", []string{"internal/openai", "internal/engine", "internal/catalog", "internal/store", "retrieval/...", "grammar/...", "prefix", "tokenbudget", "models/..."}},
	{"internal/simengine", []string{"bench/...", "internal/...", "retrieval/...", "grammar/...", "prefix", "tokenbudget", "models/..."}},
	{"bench/...", []string{"bench/...", "internal/...", "retrieval/...", "grammar/...", "prefix", "tokenbudget", "models/..."}},
	{"internal/enginetest/...", []string{"..."}},
	{"internal/importtest", nil},
	{"internal/alloctest", []string{"internal/racetest"}},
	{"internal/racetest", nil},
}

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	n := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
		pkg := strings.TrimPrefix(p.ImportPath, module)
		allow, ok := ruleFor(pkg)
		if !ok {
			t.Errorf("%s: no import rule; add one to rules", pkg)
			continue
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module)
			if ours && !slices.ContainsFunc(allow, func(pat string) bool { return matches(pat, dep) }) {
				t.Errorf("%s imports %s; allowed are %v", pkg, dep, allow)
			}
		}
	}
	if n == 0 {
		t.Fatal("go list found no package")
	}
}

func ruleFor(pkg string) ([]string, bool) {
	for _, r := range rules {
		if matches(r.pkg, pkg) {
			return r.allow, true
		}
	}
	return nil, false
}

func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pattern == pkg
}
