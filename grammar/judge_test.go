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

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A judge is tools/grammar_judge.py: the real xgrammar in a process of its own.
type engineJudge struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *bufio.Reader
}

type judgeAsk struct {
	ID  string `json:"id"`
	Tag any    `json:"tag,omitempty"`
	// Instead of Tag, the one that xgrammar builds for a model.
	Model       string `json:"model,omitempty"`
	ModelTools  []any  `json:"model_tools,omitempty"`
	ModelChoice string `json:"model_choice,omitempty"`

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

func lacking(t *testing.T, format string, a ...any) {
	t.Helper()
	if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
		t.Fatalf(format, a...)
	}
	t.Skipf(format, a...)
}

func startJudge(t *testing.T) *engineJudge {
	t.Helper()
	python := env("SIDECAR_JUDGE_PYTHON", "../.venv/judges/bin/python")
	vocab := env("SIDECAR_QWEN3_TOKENIZER", "../.cache/qwen3/tokenizer.json")
	for _, f := range []string{python, vocab} {
		if _, err := os.Stat(f); err != nil {
			lacking(t, "no judge: %v (make .venv/judges from tools/requirements-judges.txt, and set SIDECAR_QWEN3_TOKENIZER)", err)
		}
	}
	cmd := exec.Command(python, "../tools/grammar_judge.py", vocab)
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
	j := &engineJudge{cmd, json.NewEncoder(in), bufio.NewReaderSize(out, 1<<20)}
	j.in.SetEscapeHTML(false)
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return j
}

func (j *engineJudge) ask(t *testing.T, a judgeAsk) judgeAnswer {
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

// TestSample is the proof that exact means inside: every finished random walk
// over an exact tool fits by Check, every other is a prefix of JSON.
func TestSample(t *testing.T) {
	j := startJudge(t)
	every, _ := strconv.Atoi(env("SIDECAR_JUDGE_EVERY", "1"))
	offset, _ := strconv.Atoi(env("SIDECAR_JUDGE_OFFSET", "0"))
	walks, _ := strconv.Atoi(env("SIDECAR_JUDGE_WALKS", "3"))
	var n, refused, exact, done, cut, stuck, bad, engineErr, validIn, valid int
	var compile []float64
	reasons := map[string]int{}
	for i, f := range dataFiles(t, allSamples) {
		if i%every != offset {
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
				pv, err := jsontext.Parse(v.Data, maxJSONDepth)
				if err == nil {
					ask.Accept = append(ask.Accept, begin+string(pv.AppendTo(nil))+hermes.End)
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

// TestModes: the real engine takes what each tool_choice means, and nothing else.
func TestModes(t *testing.T) {
	j := startJudge(t)
	c := func(name, schema string) *Checked {
		c, err := Compile(Tool{name, json.RawMessage(schema)}, Closed)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tools := []*Checked{c("now", ``), c("say", `{"properties":{"text":{"type":"string","maxLength":4}},"required":["text"]}`)}
	answer := c("answer", `{"properties":{"ok":{"type":"boolean"}},"required":["ok"]}`)
	now, say := hermes.Begin("now")+"{}"+hermes.End, hermes.Begin("say")+`{"text": "hi"}`+hermes.End
	long := hermes.Begin("say") + `{"text": "12345"}` + hermes.End
	escaped := hermes.Begin("say") + `{"text": "123\u00e9"}` + hermes.End
	other := hermes.Begin("other") + "{}" + hermes.End
	for _, tt := range []struct {
		choice   Choice
		yes, not []string
	}{
		{Choice{Mode: Auto, Parallel: true}, []string{"", "text", now, "text " + now + "\n" + say, now + " text", "a < b <tool", escaped}, []string{other, long, "<tool_call>", "x <tool_call>y", hermes.Begin("now")}},
		{Choice{Mode: Auto}, []string{"", "text", "text " + say}, []string{now + "\n" + say, now + now, other, now + " text"}},
		{Choice{Mode: Required, Parallel: true}, []string{now, now + "\n" + say, say + "\n" + say + "\n" + now}, []string{"", "text", now + say, "text" + now, now + "\n", now + "text"}},
		{Choice{Mode: Required}, []string{now, say}, []string{"", now + "\n" + say, "text"}},
		{Choice{Mode: Named, Name: "say", Parallel: true}, []string{say, escaped}, []string{now, "", say + "\n" + say, long}},
		{Choice{Mode: None}, []string{"", "text", "<tool_cal", "{}"}, []string{now, "x<tool_call>"}},
		{Choice{Mode: Auto, Parallel: true, Response: answer}, []string{now, now + "\n" + say, `{"ok": true}`}, []string{"", "text", `{"ok": 1}`, `{"ok": true}` + now}},
		{Choice{Mode: None, Response: answer}, []string{`{"ok":true}`}, []string{"", now, "text"}},
	} {
		tag, _ := tagOf(t, tools, tt.choice)
		r := j.ask(t, judgeAsk{ID: string(tt.choice.Mode), Tag: tag, Accept: append(slices.Clone(tt.yes), tt.not...)})
		if !r.OK {
			t.Errorf("%+v: %s", tt.choice, r.Error)
			continue
		}
		for i, ok := range r.Accept {
			if want := i < len(tt.yes); ok != want {
				t.Errorf("%+v: %q: accepted %v", tt.choice, append(slices.Clone(tt.yes), tt.not...)[i], ok)
			}
		}
	}
}

// TestLengthsJudged: lengths are exact and cost the same whatever they are.
func TestLengthsJudged(t *testing.T) {
	j := startJudge(t)
	for _, n := range []int{1, 8, 64, 256, 1024, 4096, 100_000} {
		c, err := Compile(Tool{"t", json.RawMessage(fmt.Sprintf(`{"properties":{"s":{"type":"string","maxLength":%d}},"required":["s"]}`, n))}, Closed)
		if err != nil {
			t.Fatal(err)
		}
		tag, _ := tagOf(t, []*Checked{c}, Choice{Mode: Named, Name: "t"})
		of := func(s string) string { return hermes.Begin("t") + `{"s": "` + s + `"}` + hermes.End }
		r := j.ask(t, judgeAsk{ID: fmt.Sprint(n), Tag: tag, Accept: []string{
			of(strings.Repeat("é", n)), of(""), of(strings.Repeat("a", n-1) + `\u00e9`),
			of(strings.Repeat("é", n+1)), of(strings.Repeat("a", n) + `\n`),
		}})
		if got := fmt.Sprint(r.Accept); got != "[true true true false false]" {
			t.Errorf("maxLength %d: %s %s", n, got, r.Error)
		}
		t.Logf("maxLength %d: compile %.0f ms", n, r.CompileMS)
	}
}
