package accept

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestSample judges the instances of the sample schemas, formats asserted, as
// its README says its labels were made.
func TestSample(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(dataDir(t), "jsonschemabench/*/*.json"))
	if len(files) == 0 {
		t.Fatal("no sample schemas")
	}
	var refused, right, perhaps, wide, narrow, instances int
	var compile []time.Duration
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Schema json.RawMessage
			Tests  []struct {
				Valid bool
				Data  json.RawMessage
			}
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(f)) + "/" + filepath.Base(f)
		began := time.Now()
		a, err := Compile(context.Background(), file.Schema, Options{Formats: true})
		compile = append(compile, time.Since(began))
		if err != nil {
			refused++
			t.Logf("%s: refused: %v", name, err)
			continue
		}
		ok := true
		for _, tt := range file.Tests {
			instances++
			err := a.Check(tt.Data)
			var stop *StopError
			switch {
			case err != nil && !errors.As(err, &stop):
				t.Errorf("%s: %v", name, err)
				ok = false
			case err == nil && !tt.Valid:
				wide++
				ok = false
				t.Errorf("%s: accepts the invalid %.300s", name, tt.Data)
			case err != nil && tt.Valid:
				narrow++
				ok = false
				t.Errorf("%s: %v: %.300s", name, err, tt.Data)
			}
		}
		if ok {
			right++
		}
		if n := a.Undecided(); n > 0 {
			perhaps++
			t.Logf("%s: %d states perhaps alive", name, n)
		}
	}
	slices.Sort(compile)
	t.Logf("%d schemas, %d instances: %d right, %d refused; %d invalid accepted, %d valid rejected; %d with states perhaps alive",
		len(files), instances, right, refused, wide, narrow, perhaps)
	t.Logf("compile: p50 %v, p99 %v, max %v", compile[len(compile)/2], compile[len(compile)*99/100], compile[len(compile)-1])
}
