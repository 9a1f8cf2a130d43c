//go:build judges

package grammar

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A judge is tools/tag_judge.py: the real xgrammar in a process of its own.
type judge struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *bufio.Reader
}

type judgeAsk struct {
	ID        string   `json:"id"`
	Tag       any      `json:"tag"`
	Accept    []string `json:"accept,omitempty"`
	Walks     int      `json:"walks,omitempty"`
	MaxTokens int      `json:"max_tokens,omitempty"`
	Seed      int      `json:"seed,omitempty"`
	Prefix    string   `json:"prefix,omitempty"`
	Wander    float64  `json:"wander"`
}

type judgeAnswer struct {
	OK        bool
	Error     string
	CompileMS float64 `json:"compile_ms"`
	Accept    []bool
	Walks     []struct {
		Bytes  string
		Done   bool
		Stuck  bool
		Tokens int
		Error  string
	}
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func absent(t *testing.T, format string, a ...any) {
	t.Helper()
	if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
		t.Fatalf(format, a...)
	}
	t.Skipf(format, a...)
}

func startJudge(t *testing.T) *judge {
	t.Helper()
	python := env("SIDECAR_JUDGE_PYTHON", "../.venv/judges/bin/python")
	vocab := env("SIDECAR_QWEN3_TOKENIZER", "../.cache/qwen3/tokenizer.json")
	for _, f := range []string{python, vocab} {
		if _, err := os.Stat(f); err != nil {
			absent(t, "no judge: %v (make .venv/judges from tools/requirements-judges.txt, and set SIDECAR_QWEN3_TOKENIZER)", err)
		}
	}
	cmd := exec.Command(python, "../tools/tag_judge.py", vocab)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j := &judge{cmd, json.NewEncoder(in), bufio.NewReaderSize(out, 1<<20)}
	j.in.SetEscapeHTML(false)
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return j
}

func (j *judge) ask(t *testing.T, a judgeAsk) judgeAnswer {
	t.Helper()
	if err := j.in.Encode(a); err != nil {
		t.Fatal(err)
	}
	line, err := j.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s: the judge died: %v", a.ID, err)
	}
	var r judgeAnswer
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func tagOf(t testing.TB, c []*Checked, choice Choice) (any, Emission) {
	e, err := Tag(hermes, c, choice, xgrammar028)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"type": "structural_tag", "format": e.Format}, e
}

func sampleFiles(t *testing.T) []string {
	dir := env("SIDECAR_DATA", "../../shared/data")
	files, _ := filepath.Glob(dir + "/schemas/jsonschemabench/*/*.json")
	if len(files) == 0 {
		absent(t, "no sample schemas under %s", dir)
	}
	slices.Sort(files)
	return files
}

// TestSample is the proof that exact means inside: every finished random walk
// over an exact tool fits by Check, every other is a prefix of JSON.
func TestSample(t *testing.T) {
	j := startJudge(t)
	every, _ := strconv.Atoi(env("SIDECAR_JUDGE_EVERY", "1"))
	walks, _ := strconv.Atoi(env("SIDECAR_JUDGE_WALKS", "3"))
	var n, refused, exact, done, cut, stuck, bad, engineErr, validIn, valid int
	var compile []float64
	reasons := map[string]int{}
	for i, f := range sampleFiles(t) {
		if i%every != 0 {
			continue
		}
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
		n++
		id := filepath.Base(f)
		c, err := Compile(Tool{id, file.Schema}, Closed)
		if err != nil {
			refused++
			t.Logf("%s: refused: %v", id, err)
			continue
		}
		tag, e := tagOf(t, []*Checked{c}, Choice{Mode: Named, Name: id})
		begin := hermes.Begin(id)
		ask := judgeAsk{ID: id, Tag: tag, Walks: walks, MaxTokens: 300, Seed: i + 1, Prefix: begin, Wander: 0.3}
		for _, v := range file.Tests {
			if v.Valid && len(v.Data) > 0 && v.Data[0] == '{' {
				pv, err := parseJSON(v.Data, maxJSONDepth)
				if err == nil {
					ask.Accept = append(ask.Accept, begin+string(pv.appendTo(nil))+hermes.End)
				}
			}
		}
		r := j.ask(t, ask)
		if !r.OK {
			engineErr++
			t.Errorf("%s: xgrammar: %s", id, r.Error)
			continue
		}
		compile = append(compile, r.CompileMS)
		for _, ok := range r.Accept {
			valid++
			if ok {
				validIn++
			}
		}
		if e.Tools[0].Exact {
			exact++
		}
		for _, why := range e.Tools[0].Reasons {
			reasons[reasonKind(why)]++
		}
		for _, w := range r.Walks {
			b, _ := base64.StdEncoding.DecodeString(w.Bytes)
			if w.Error != "" {
				t.Errorf("%s: %s", id, w.Error)
				continue
			}
			args := strings.TrimPrefix(string(b), begin)
			if w.Done {
				done++
				args = strings.TrimSuffix(args, hermes.End)
				if err := c.Check([]byte(args)); err != nil && e.Tools[0].Exact {
					bad++
					t.Errorf("%s: exact, but %v: %s", id, err, clipText(args, 400))
				} else if err != nil {
					var s Stream
					if _, err := s.Feed([]byte(args)); err != nil || !s.Done() {
						bad++
						t.Errorf("%s: not JSON: %v: %s", id, err, clipText(args, 400))
					}
				}
				continue
			}
			if w.Stuck {
				stuck++
				t.Errorf("%s: no token allowed after %s", id, clipText(args, 400))
			}
			cut++
			var s Stream
			if k, err := s.Feed([]byte(args)); err != nil && !strings.HasPrefix(hermes.End, args[k:]) {
				bad++
				t.Errorf("%s: cut output is no prefix: %v: %s", id, err, clipText(args, 400))
			}
		}
	}
	slices.Sort(compile)
	q := func(p float64) float64 { return compile[min(len(compile)-1, int(p*float64(len(compile))))] }
	t.Logf("%d schemas: %d refused, %d exact, %d checked after the reply, %d refused by xgrammar", n, refused, exact, n-refused-exact-engineErr, engineErr)
	t.Logf("walks: %d finished, %d cut, %d stuck; violations %d", done, cut, stuck, bad)
	t.Logf("valid sample instances inside: %d of %d", validIn, valid)
	t.Logf("compile ms p50 %.1f p90 %.1f p99 %.1f max %.0f", q(.5), q(.9), q(.99), q(1))
	var kinds []string
	for k := range reasons {
		kinds = append(kinds, fmt.Sprintf("%d %s", reasons[k], k))
	}
	slices.SortFunc(kinds, func(a, b string) int {
		x, _, _ := strings.Cut(a, " ")
		y, _, _ := strings.Cut(b, " ")
		i, _ := strconv.Atoi(x)
		k, _ := strconv.Atoi(y)
		return k - i
	})
	t.Logf("reasons:\n%s", strings.Join(kinds, "\n"))
}

func reasonKind(r string) string {
	loc, why, _ := strings.Cut(r, ": ")
	if i := strings.LastIndexByte(loc, '/'); i >= 0 && known[loc[i+1:]] {
		return loc[i+1:] + ": " + why
	}
	return why
}
