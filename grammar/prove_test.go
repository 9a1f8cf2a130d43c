package grammar

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestProveSample(t *testing.T) {
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = "../../shared/data"
	}
	files, _ := filepath.Glob(dir + "/schemas/jsonschemabench/*/*.json")
	counts := map[Target]map[string]int{}
	var slow time.Duration
	var spent = map[Target]time.Duration{}
	for i, f := range files {
		if i%5 != 0 {
			continue
		}
		raw, _ := os.ReadFile(f)
		var file struct{ Schema json.RawMessage }
		json.Unmarshal(raw, &file)
		c, err := Judge(Tool{filepath.Base(f), file.Schema}, Closed)
		if err != nil {
			continue
		}
		for _, target := range []Target{StructuralTag, GBNF, Lark, Regex} {
			if counts[target] == nil {
				counts[target] = map[string]int{}
			}
			start := time.Now()
			p, err := c.Prove(target)
			d := time.Since(start)
			spent[target] += d
			if d > slow {
				slow = d
				t.Logf("%v %s %s: %d states", d, target, filepath.Base(f), p.States)
			}
			if err != nil {
				counts[target]["error"]++
				t.Log(err)
				continue
			}
			counts[target][p.Status]++
			if p.Equal {
				counts[target]["equal"]++
			}
			if p.Wider != nil {
				t.Errorf("%s %s: wider %q", target, filepath.Base(f), *p.Wider)
			}
			if p.Narrower != nil && target != StructuralTag {
				t.Errorf("%s %s: narrower %q", target, filepath.Base(f), *p.Narrower)
			}
		}
	}
	t.Log(counts, spent)
}
