//go:build judges

package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// theirs is what an engine's parser made of an answer.
type theirs struct {
	Calls [][2]*string
	Text  string
	Error string
}

// withArguments puts {} where a call has no arguments.
func (a theirs) withArguments() theirs {
	none := "{}"
	a.Calls = slices.Clone(a.Calls)
	for i, c := range a.Calls {
		if c[1] != nil && *c[1] == "" {
			a.Calls[i][1] = &none
		}
	}
	return a
}

type parserJudge struct {
	in  *json.Encoder
	out *bufio.Reader
}

func startParsers(t *testing.T, engine, venv string) *parserJudge {
	t.Helper()
	root := filepath.Join("..", "..")
	python := filepath.Join(root, ".venv", venv, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("%s is required: %v", python, err)
		}
		t.Skipf("%s is absent; make .venv/%s makes it", python, venv)
	}
	cmd := exec.Command(python, filepath.Join(root, "tools", "parser_judge.py"), engine)
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
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &parserJudge{in: json.NewEncoder(in), out: bufio.NewReaderSize(out, 1<<20)}
}

// answerTools are the tools of generated answers; typed says what strings,
// numbers and the rest are in families whose parsers go by the schema.
var answerTools = []struct {
	name  string
	types map[string]string
}{
	{"get_weather", map[string]string{"city": "string", "days": "integer", "deep": "boolean"}},
	{"send-mail", map[string]string{"to": "array", "text": "string", "options": "object", "size": "number"}},
	{"now", map[string]string{}},
}

func answerSchema(name string) json.RawMessage {
	for _, a := range answerTools {
		if a.name == name {
			properties := map[string]any{}
			for k, v := range a.types {
				properties[k] = map[string]string{"type": v}
			}
			out, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
			return out
		}
	}
	return nil
}

// answerGen draws answers as models write them: text, then calls.
type answerGen struct {
	*rand.Rand
	f *Family
}

func (g *answerGen) word() string {
	w := answerWords[g.IntN(len(answerWords))]
	if g.IntN(3) == 0 {
		w += " " + answerWords[g.IntN(len(answerWords))]
	}
	return w
}

func (g *answerGen) value(kind string) any {
	switch kind {
	case "string":
		return g.word()
	case "integer":
		return g.IntN(2000) - 1000
	case "number":
		return float64(g.IntN(4000)-2000) / 8
	case "boolean":
		return g.IntN(2) == 0
	case "array":
		out := []any{}
		for range g.IntN(3) {
			out = append(out, g.word())
		}
		return out
	}
	return map[string]any{"a": g.word(), "n": nil, "l": []any{1, true, map[string]any{}}}
}

func (g *answerGen) call() Call {
	tool := answerTools[g.IntN(len(answerTools))]
	args := map[string]any{}
	for k, kind := range tool.types {
		if g.IntN(4) > 0 {
			args[k] = g.value(kind)
		}
	}
	raw, _ := json.Marshal(args)
	if g.f.Calls.Form != Parameters || g.IntN(2) == 0 {
		raw, _ = AppendPython(nil, raw)
	}
	return Call{Name: tool.name, Arguments: string(raw)}
}

// pieces cuts a text at random, but not inside the tags in whole: an engine
// hands a special token on in one piece.
func (g *answerGen) pieces(text string, whole []string) []string {
	return g.cut(text, []int{1, 4, 8, 12, 24, 48, 100, 200}[g.IntN(8)], whole)
}

func (g *answerGen) cut(text string, most int, whole []string) []string {
	var out []string
	for text != "" {
		n := 1 + g.IntN(min(most, len(text)))
		for n < len(text) && text[n]&0xC0 == 0x80 {
			n++
		}
		for _, w := range whole {
			for i := max(0, n-len(w)+1); i < n; i++ {
				if strings.HasPrefix(text[i:], w) {
					if n = i; n == 0 {
						n = len(w)
					}
					break
				}
			}
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

// A peer is a parser of an engine.
type peer struct {
	family, parser string
	parallel       bool     // it reads more than one call
	lead           bool     // text may stand before calls
	whole          []string // tags that the engine hands on in one piece
	start          string   // of an answer, where the engine's prompt doesn't end with it
}

// peersOf are the parsers of an engine, and the set of Python that has them.
var peersOf = []struct {
	engine, venv string
	answers      int // a family, unless SIDECAR_PARSER_ANSWERS says how many
	peers        []peer
}{
	{"sglang", "parsers", 10_000, sglangPeers},
	{"vllm", "vllm", 1_000, vllmPeers}, // ten times as slow
}

var answerWords = []string{"Oslo", "Zürich HB", "日本語", "🙂", "a\"b", `back\slash`, "it's", "1 < 2", "{}", "x}", "two\nlines", "tab\there", "&amp;", "a=b", "</b>", "[1]", "true story"}

var sglangPeers = []peer{
	{family: "hermes", parser: "qwen25", parallel: true, lead: true},
	{family: "qwen3-coder", parser: "qwen3_coder", parallel: true, lead: true},
	{family: "llama3", parser: "llama3"},
	{family: "deepseek-v3.1", parser: "deepseekv31", parallel: true, lead: true, whole: specials("deepseek-v3.1")},
	{family: "kimi-k2", parser: "kimi_k2", parallel: true, lead: true, whole: specials("kimi-k2")},
	{family: "glm-4.5", parser: "glm45", parallel: true, lead: true},
	{family: "glm-4.7", parser: "glm47", parallel: true, lead: true},
	{family: "mistral", parser: "mistral", parallel: true, lead: true},
	{family: "harmony", parser: "gpt-oss", parallel: true, whole: specials("harmony"), start: "<|start|>assistant"},
}

// vLLM's tell tags by their tokens, which come in one piece.
var vllmPeers = []peer{
	{family: "hermes", parser: "hermes", parallel: true, lead: true, whole: specials("hermes")},
	{family: "qwen3-coder", parser: "qwen3_coder", parallel: true, lead: true, whole: specials("qwen3-coder")},
	{family: "llama3", parser: "llama3_json", parallel: true, whole: []string{"<|python_tag|>"}},
	{family: "deepseek-v3.1", parser: "deepseek_v31", parallel: true, lead: true, whole: specials("deepseek-v3.1")},
	{family: "kimi-k2", parser: "kimi_k2", parallel: true, lead: true, whole: specials("kimi-k2")},
	{family: "glm-4.5", parser: "glm45", parallel: true, lead: true, whole: append(specials("glm-4.5"), glmTags...)},
	{family: "glm-4.7", parser: "glm47", parallel: true, lead: true, whole: append(specials("glm-4.7"), glmTags...)},
	{family: "mistral", parser: "mistral", parallel: true, lead: true, whole: specials("mistral")},
	{family: "harmony", parser: "openai", parallel: true, whole: specials("harmony")},
}

var glmTags = []string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}

// excuse names the fault of theirs that explains why they read a stream
// otherwise: they read the same text as we do when it is cut otherwise.
func (g *answerGen) excuse(t *testing.T, j *parserJudge, p peer, tools []any, pieces []string, ours []parsedCall, a theirs) string {
	if differs(t, ours, a.withArguments()) == "" {
		return "a call with {} as arguments streams none"
	}
	nudged := append(slices.Clone(pieces), make([]string, len(pieces)+8)...)
	if differs(t, ours, j.read(t, p, tools, nudged)["stream"].withArguments()) == "" {
		return "a piece is read one step at a time, and the last step waits for a piece that never comes"
	}
	for _, most := range []int{1, 4, 12} {
		if differs(t, ours, j.read(t, p, tools, g.cut(strings.Join(pieces, ""), most, p.whole))["stream"].withArguments()) == "" {
			return "the same text cut otherwise is read as we read it"
		}
	}
	return ""
}

func (j *parserJudge) read(t *testing.T, p peer, tools []any, pieces []string) map[string]theirs {
	t.Helper()
	if err := j.in.Encode(map[string]any{"parser": p.parser, "specials": append([]string{}, p.whole...), "tools": tools, "pieces": pieces}); err != nil {
		t.Fatal(err)
	}
	line, err := j.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the judge died: %v", err)
	}
	var answer map[string]theirs
	if err := json.Unmarshal(line, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func specials(family string) []string {
	f, _ := ByName(family)
	c := &f.Calls
	out := append([]string{c.Section, c.SectionEnd, c.Open, c.Tag, c.AfterID}, c.NameEnds...)
	if c.Form == Channels {
		out = append([]string{}, f.Controls...)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// TestParserPeers holds every family's parser against SGLang's: on generated
// answers, cut at random, both find the same calls with the same arguments, or
// the difference has a name.
func TestParserPeers(t *testing.T) {
	most, _ := strconv.Atoi(os.Getenv("SIDECAR_PARSER_ANSWERS"))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var tools []any
	for _, a := range answerTools {
		tools = append(tools, map[string]any{"type": "function", "function": map[string]any{"name": a.name, "parameters": answerSchema(a.name)}})
	}
	for _, e := range peersOf {
		t.Run(e.engine, func(t *testing.T) {
			t.Parallel()
			n := e.answers
			if most > 0 {
				n = most
			}
			j := startParsers(t, e.engine, e.venv)
			for _, p := range e.peers {
				t.Run(p.family, func(t *testing.T) { testPeer(t, j, p, seed, n, tools) })
			}
		})
	}
}

func testPeer(t *testing.T, j *parserJudge, p peer, seed uint64, n int, tools []any) {
	f, err := ByName(p.family)
	if err != nil {
		t.Fatal(err)
	}
	g := &answerGen{rand.New(rand.NewPCG(seed, 1)), f}
	known, same, bad := map[string]int{}, 0, 0
	for i := range n {
		var calls []Call
		for k := range 1 + g.IntN(3) {
			if k == 0 || p.parallel {
				calls = append(calls, g.call())
			}
		}
		content := ""
		if p.lead && g.IntN(2) == 0 {
			content = g.word()
		}
		text := p.start + f.TurnText(content, calls)
		pieces := g.pieces(text, p.whole)
		answer := j.read(t, p, tools, pieces)
		got, _, malformed, open := readCalls(f, answerSchema, pieces...)
		if len(malformed) > 0 || open.Open() || len(got) != len(calls) {
			t.Fatalf("%q: %d calls of %d, malformed %q", text, len(got), len(calls), malformed)
		}
		for _, mode := range []string{"stream", "whole"} {
			why := differs(t, got, answer[mode])
			if why == "" {
				same++
				continue
			}
			name := ""
			if mode == "stream" {
				name = g.excuse(t, j, p, tools, pieces, got, answer[mode])
			}
			if name != "" {
				known[mode+": "+name]++
				continue
			}
			if bad++; bad <= 5 {
				t.Errorf("answer %d, %s: %s\n%q", i, mode, why, pieces)
			}
		}
	}
	t.Logf("%d answers, %d readings the same, %d not", n, same, bad)
	for name, times := range known {
		t.Logf("%d of their own: %s", times, name)
	}
}

// differs says how an engine's reading differs from ours.
func differs(t *testing.T, ours []parsedCall, a theirs) string {
	if a.Error != "" {
		return a.Error
	}
	if len(a.Calls) != len(ours) {
		return fmt.Sprintf("%d calls, we read %d", len(a.Calls), len(ours))
	}
	for i, c := range a.Calls {
		name, args := "", ""
		if c[0] != nil {
			name = *c[0]
		}
		if c[1] != nil {
			args = *c[1]
		}
		switch {
		case name != ours[i].name:
			return fmt.Sprintf("call of %q, we read %q", name, ours[i].name)
		case !json.Valid([]byte(args)):
			return fmt.Sprintf("arguments %q are no JSON, we read %q", args, ours[i].args)
		case !sameJSON(t, args, ours[i].args):
			return fmt.Sprintf("arguments %q, we read %q", args, ours[i].args)
		}
	}
	return ""
}
