package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/token"
	"pgregory.net/rapid"
)

// product walks what a model may write beside what fits, by states, at most most
// pairs of them, and gives the shortest text that is written and doesn't fit.
// done tells whether all pairs were seen.
func product(c *Checked, most int) (wrong string, found, done bool, pairs int, err error) {
	a, err := c.Automaton()
	if err != nil {
		return "", false, false, 0, err
	}
	written, err := a.Source()
	if err != nil {
		return "", false, false, 0, err
	}
	fits := c.Accept()
	type pair struct {
		w uint32
		f accept.State
	}
	type entry struct {
		pair
		from int
		b    byte
	}
	start, err := written.Start()
	if err != nil {
		return "", false, false, 0, err
	}
	queue := []entry{{pair{start, fits.Start()}, -1, 0}}
	seen := map[pair]bool{queue[0].pair: true}
	for i := 0; i < len(queue); i++ {
		at := queue[i].pair
		if at.w != 0 && written.Accepting(at.w) && !fits.Accepting(at.f) || at.w != 0 && at.f == 0 {
			var text []byte
			for k := i; queue[k].from >= 0; k = queue[k].from {
				text = append([]byte{queue[k].b}, text...)
			}
			return string(text), true, false, len(queue), nil
		}
		for b := range 256 {
			w, err := written.Step(at.w, byte(b))
			if err != nil {
				return "", false, false, len(queue), err
			}
			if w == 0 {
				continue
			}
			f, err := fits.Step(at.f, byte(b))
			if err != nil {
				return "", false, false, len(queue), err
			}
			if next := (pair{w, f}); !seen[next] {
				if len(queue) == most {
					return "", false, false, most, nil
				}
				seen[next] = true
				queue = append(queue, entry{next, i, byte(b)})
			}
		}
	}
	return "", false, true, len(queue), nil
}

// checkInside holds a tool to its reasons: what it writes fits, unless some
// keyword is left to Check by name.
func checkInside(t fataler, c *Checked, most int) (done bool) {
	t.Helper()
	wrong, found, done, _, err := product(c, most)
	var full *accept.LimitError
	var limit *token.LimitError
	var own *LimitError
	if err != nil && !errors.As(err, &full) && !errors.As(err, &limit) && !errors.As(err, &own) {
		t.Fatalf("%s: %v", c.raw, err)
	}
	if found && len(c.Reasons()) == 0 {
		t.Fatalf("%s: %s world: %q is written and doesn't fit: %v", c.raw, c.world, wrong, c.Check([]byte(wrong)))
	}
	return done && !found
}

// TestInsideSample: every sixteenth schema of the sample, or all of them with
// SIDECAR_ALL.
func TestInsideSample(t *testing.T) {
	files := dataFiles(t, allSamples)
	every, most := 16, 1500
	if os.Getenv("SIDECAR_ALL") != "" {
		every, most = 1, 50_000
	}
	tools, exact, proved := 0, 0, 0
	for i := 0; i < len(files); i += every {
		raw, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Schema json.RawMessage }
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		for _, w := range []World{Closed, Open} {
			c, err := Compile(Tool{filepath.Base(files[i]), file.Schema}, w)
			if err != nil {
				continue
			}
			tools++
			if len(c.Reasons()) == 0 {
				exact++
			}
			if checkInside(t, c, most) {
				proved++
			}
		}
	}
	t.Logf("%d schemas and worlds, %d without reasons; of %d all pairs of states were seen, and all fit", tools, exact, proved)
	if proved == 0 {
		t.Error("none was walked to the end")
	}
}

// TestInsideRandom is the same of random schemas.
func TestInsideRandom(t *testing.T) {
	proved := 0
	rapid.Check(t, func(t *rapid.T) {
		g := schemaGen{t}
		schema := fmt.Sprintf(`{"type":"object","properties":{"v":%s,"w":%s},"required":["v"],"$defs":{"d":%s,"e":%s}}`, g.schema(3), g.schema(1), g.schema(2), g.schema(1))
		for _, w := range []World{Closed, Open} {
			c, err := Compile(Tool{"t", []byte(schema)}, w)
			if err == nil && checkInside(t, c, 1000) {
				proved++
			}
		}
	})
	if proved == 0 {
		t.Error("none was walked to the end")
	}
}
