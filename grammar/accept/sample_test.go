package accept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSample judges the instances of the sample schemas, formats asserted, as
// its README says its labels were made.
// sampleFile is a schema of the sample with its labelled instances.
type sampleFile struct {
	Schema json.RawMessage
	Tests  []struct {
		Valid bool
		Data  json.RawMessage
	}
}

func readSample(t testing.TB, path string) (file sampleFile) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSample(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(dataDir(t), "jsonschemabench/*/*.json"))
	if len(files) == 0 {
		t.Fatal("no sample schemas")
	}
	var refused, right, perhaps, wide, narrow, instances int
	var compile []time.Duration
	for _, f := range files {
		file := readSample(t, f)
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
			agrees(t, a, tt.Data, err)
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

// TestMutants: the sample's instances, changed a little, by us and by
// santhosh-tekuri/jsonschema, formats unasserted, where the two agree.
func TestMutants(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(dataDir(t), "jsonschemabench/*/*.json"))
	rnd := rand.New(rand.NewPCG(1, 2))
	var n, fit, skipped int
	for i, f := range files {
		if i%8 != 0 && os.Getenv("SIDECAR_ALL") == "" { // all of them take half a minute
			continue
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Schema json.RawMessage
			Tests  []struct{ Data json.RawMessage }
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		a, err := Compile(context.Background(), file.Schema, Options{})
		if err != nil {
			skipped++
			continue
		}
		o, err := compileOracle(string(file.Schema), Draft2020)
		if err != nil {
			t.Errorf("%s: the oracle refuses: %v", f, err)
			continue
		}
		for _, tt := range file.Tests[:min(len(file.Tests), 4)] {
			for range 4 {
				v, err := jsonschema.UnmarshalJSON(bytes.NewReader(tt.Data))
				if err != nil {
					t.Fatal(err)
				}
				for range 1 + rnd.IntN(3) {
					v = mutate(rnd, v, nil)
				}
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				want, got := o.Validate(v), a.Check(text)
				agrees(t, a, text, got)
				n++
				if got == nil {
					fit++
				}
				if want != nil && strings.Contains(want.Error(), "is not valid regex") {
					continue // a format that can't be taken from the oracle
				}
				if (want == nil) != (got == nil) {
					t.Errorf("%s: %.500s\nours: %v\noracle: %v", filepath.Base(f), text, got, want)
				}
			}
		}
	}
	t.Logf("%d mutants, %d fit; %d schemas refused", n, fit, skipped)
}

// mutate changes one place in v, or gives another value for it.
func mutate(r *rand.Rand, v any, other any) any {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) == 0 {
			v["x"] = json.Number("1")
			return v
		}
		k := keys[r.IntN(len(keys))]
		switch r.IntN(8) {
		case 0:
			delete(v, k)
		case 1:
			v[k+"x"] = v[k]
			delete(v, k)
		case 2:
			v["extra"] = v[k]
		default:
			v[k] = mutate(r, v[k], v[keys[0]])
		}
		return v
	case []any:
		if len(v) == 0 {
			return []any{other}
		}
		i := r.IntN(len(v))
		switch r.IntN(6) {
		case 0:
			return slices.Delete(v, i, i+1)
		case 1:
			return append(v, v[i])
		}
		v[i] = mutate(r, v[i], v[0])
		return v
	case string:
		return []any{v + "a", "", strings.ToUpper(v), json.Number("0"), nil, v + v, strings.TrimRight(v, "0123456789")}[r.IntN(7)]
	case json.Number:
		return []any{json.Number("-" + strings.TrimPrefix(v.String(), "-")), json.Number("0"), json.Number("1e2"), json.Number("0.5"), v.String(), nil, json.Number("99999999")}[r.IntN(7)]
	}
	return []any{true, false, nil, "a", json.Number("1"), []any{}, map[string]any{}, other}[r.IntN(8)]
}
