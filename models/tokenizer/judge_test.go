//go:build judges

package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A judge is the Python process with the reference tokenizers.
type judge struct {
	t   *testing.T
	in  *json.Encoder
	out *bufio.Reader
}

type question struct {
	Op       string   `json:"op"`
	Name     string   `json:"name,omitempty"`
	JSON     string   `json:"json,omitempty"`
	Ranks    string   `json:"ranks,omitempty"`
	Encoding string   `json:"encoding,omitempty"`
	Ordinary bool     `json:"ordinary,omitempty"`
	Texts    []string `json:"texts,omitempty"`
	Lib      string   `json:"lib,omitempty"`
	Class    string   `json:"class,omitempty"`
}

type reply struct {
	Error  string    `json:"error"`
	IDs    [][]int32 `json:"ids"`
	Texts  []string  `json:"texts"`
	Ranges [][2]rune `json:"ranges"`
}

const (
	python   = "../../.venv/tokenizers/bin/python"
	vocabDir = "../../.cache/vocab"
)

// need skips the test for want of path, or fails it where everything must be
// there.
func need(t *testing.T, path, how string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
		t.Fatalf("%s is missing; %s", path, how)
	}
	t.Skipf("%s is missing; %s", path, how)
}

func startJudge(t *testing.T) *judge {
	t.Helper()
	need(t, python, "python3 -m venv .venv/tokenizers && .venv/tokenizers/bin/pip install --no-deps -r tools/requirements-tokenizers.txt")
	cmd := exec.Command(python, "../../tools/tokenizer-golden.py", "judge")
	cmd.Stderr = os.Stderr
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
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("judge: %v", err)
		}
	})
	enc := json.NewEncoder(in)
	enc.SetEscapeHTML(false)
	return &judge{t: t, in: enc, out: bufio.NewReaderSize(out, 1<<20)}
}

func (j *judge) ask(q question) reply {
	j.t.Helper()
	// The answer may be longer than the pipe holds, but it is written only after
	// the whole question was read.
	if err := j.in.Encode(q); err != nil {
		j.t.Fatalf("judge: %v", err)
	}
	line, err := j.out.ReadBytes('\n')
	if err != nil {
		j.t.Fatalf("judge: %v", err)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		j.t.Fatalf("judge: %v", err)
	}
	if r.Error != "" {
		j.t.Fatalf("judge: %s %s: %s", q.Op, q.Name, r.Error)
	}
	return r
}

// compare encodes texts both ways and reports the first few that differ.
func compare(t *testing.T, j *judge, tok *Tokenizer, name string, texts []string) {
	t.Helper()
	bad, ids := 0, 0
	for _, ordinary := range []bool{false, true} {
		for chunk := range slices.Chunk(texts, 500) {
			r := j.ask(question{Op: "encode", Name: name, Ordinary: ordinary, Texts: chunk})
			for i, text := range chunk {
				got := tok.Encode(nil, text)
				if ordinary {
					got = tok.EncodeOrdinary(nil, text)
				}
				ids += len(got)
				if !slices.Equal(got, r.IDs[i]) {
					if bad++; bad <= 5 {
						t.Errorf("%s, ordinary %t: %s", name, ordinary, difference(tok, text, got, r.IDs[i]))
					}
				}
			}
		}
	}
	if bad > 0 {
		t.Errorf("%s: %d of %d encodings differ", name, bad, 2*len(texts))
	}
	t.Logf("%s: %d texts both ways, %d ids", name, len(texts), ids)
}

func difference(tok *Tokenizer, text string, got, want []int32) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	from := max(0, n-2)
	show := func(ids []int32) string {
		var b strings.Builder
		for _, id := range ids[min(from, len(ids)):min(n+6, len(ids))] {
			s, _, _ := tok.Token(id)
			fmt.Fprintf(&b, " %d%q", id, s)
		}
		return b.String()
	}
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return fmt.Sprintf("%q at id %d:\n  got %s\n  want%s", text, n, show(got), show(want))
}

// judged are the texts of the comparison: real ones, long pieces, n fuzzed.
func judged(t *testing.T, n int) []string {
	texts := []string{"", prose(t, 200_000), code(t, 200_000), logText(100_000), toolsText(100_000), worldText(100_000)}
	texts = append(texts, fragments...)
	for _, c := range []string{"a", " ", "=", "\n", "0", "é", "中", "ab", "a\u0301", "'s", "A", "aA", "\t "} {
		for _, k := range []int{2, 3, 7, 95, 96, 97, 98, 191, 1000, 10_000} {
			texts = append(texts, strings.Repeat(c, k))
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range n {
		texts = append(texts, fuzzText(r, 12))
	}
	for range n / 100 {
		var b strings.Builder // one piece of letters, with no repetition to help
		for range 100 + r.IntN(3000) {
			b.WriteByte("etaoinshrdlucmfwypvbgkqjxzETAOIN"[r.IntN(32)])
		}
		texts = append(texts, b.String())
	}
	return texts
}

func TestJudgeHuggingFace(t *testing.T) {
	for _, v := range []struct {
		name string
		n    int
	}{{"qwen3", 20_000}, {"smollm2", 10_000}, {"llama3", 10_000}, {"cl100k", 5000}, {"o200k", 10_000}, {"gptoss", 5000}} {
		t.Run(v.name, func(t *testing.T) {
			path := filepath.Join(vocabDir, v.name+".json")
			need(t, path, "python3 tools/tokenizer-golden-vocab.py")
			tok, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			j := startJudge(t)
			j.ask(question{Op: "load", Name: v.name, JSON: path})
			texts := judged(t, v.n)
			compare(t, j, tok, v.name, texts)
			if v.name == "qwen3" {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				var packed bytes.Buffer
				if err := Pack(&packed, data, "qwen3"); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(packed.Bytes(), qwen3Pack) {
					t.Error("qwen3.pack isn't what go generate makes of the file")
				}
				for i, text := range texts {
					if !slices.Equal(Qwen3().Encode(nil, text), tok.Encode(nil, text)) {
						t.Fatalf("the embedded vocabulary and the file differ on text %d, %.100q", i, text)
					}
				}
			}
		})
	}
}

func TestJudgeTikToken(t *testing.T) {
	for _, name := range []string{"r50k_base", "p50k_base", "cl100k_base", "o200k_base"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name+".tiktoken")
			if err := os.WriteFile(path, rankFile(t, name), 0o644); err != nil {
				t.Fatal(err)
			}
			tok, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			j := startJudge(t)
			j.ask(question{Op: "load", Name: name, Ranks: path, Encoding: name})
			compare(t, j, tok, name, judged(t, 5000))
		})
	}
}

// TestJudgeAddedFlags: a small vocabulary whose added tokens have every
// combination of flags.
func TestJudgeAddedFlags(t *testing.T) {
	const path = "testdata/flags.json"
	tok, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	j := startJudge(t)
	j.ask(question{Op: "load", Name: "flags", JSON: path})
	r := rand.New(rand.NewPCG(7, 8))
	var texts []string
	parts := []string{" ", "  ", "\n", "\u00a0", "a", "b", "é", "e\u0301", "_", "1", ".", "!", "\u0301", "ö", "日", "\u200d", "½", "'s"}
	for _, a := range tok.Added() {
		parts = append(parts, a.Content)
	}
	for range 20_000 {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		texts = append(texts, b.String())
	}
	compare(t, j, tok, "flags", texts)
}

func TestJudgeClasses(t *testing.T) {
	j := startJudge(t)
	table := classes()
	for _, c := range []struct {
		regex string
		class class
	}{{`\s`, space}, {`\p{L}`, letter}, {`\p{N}`, number}, {`\p{M}`, mark}, {`\p{Lu}\p{Lt}`, upper}, {`\p{Ll}`, lower}, {`\p{Lm}\p{Lo}`, caseless}} {
		for _, lib := range []string{"hf", "tiktoken"} {
			want := make(map[rune]bool)
			for _, r := range j.ask(question{Op: "class", Lib: lib, Class: c.regex}).Ranges {
				for x := r[0]; x <= r[1]; x++ {
					want[x] = true
				}
			}
			bad := 0
			for x := rune(0); x <= utf8.MaxRune; x++ {
				if !utf8.ValidRune(x) {
					continue
				}
				k, _ := table.at(string(x), 0)
				if (k&c.class != 0) != want[x] {
					if bad++; bad <= 5 {
						t.Errorf("%s of %s: U+%04X: reference %t", c.regex, lib, x, want[x])
					}
				}
			}
			t.Logf("%s of %s: %d code points", c.regex, lib, len(want))
		}
	}
}

// TestJudgeNFC: every code point alone, and between marks that normalising has
// to order or compose it with.
func TestJudgeNFC(t *testing.T) {
	var texts []string
	for x := rune(0); x <= utf8.MaxRune; x++ {
		if !utf8.ValidRune(x) {
			continue
		}
		p := norm.NFC.PropertiesString(string(x))
		switch {
		case p.CCC() != 0 || p.Decomposition() != nil:
			texts = append(texts, string(x), "a\u0323"+string(x)+"\u0301", "\u0345"+string(x)+"\u3099\u05b0", norm.NFD.String(string(x)), "a\u0301"+string(x), string(x)+"\u0327")
		case x%7 == 0 || x < 0x3000:
			texts = append(texts, "\u0301"+string(x)+"\u0323")
		}
	}
	// Characters that are marks to Go 15 tables or to newer ones.
	for _, r := range since15 {
		for x := r.lo; x <= r.hi && r.class != caseless; x++ {
			texts = append(texts, "a\u0301"+string(x)+"\u0323")
		}
	}
	r := rand.New(rand.NewPCG(9, 10))
	for range 20_000 {
		texts = append(texts, fuzzText(r, 6))
	}
	for range 500 { // long enough for package norm to insert U+034F
		var b strings.Builder
		for range 1 + r.IntN(4) {
			b.WriteString([]string{"a", "e\u0301", "가", "日", "ö"}[r.IntN(5)])
			for range r.IntN(80) {
				b.WriteRune(0x300 + rune(r.IntN(0x70)))
			}
		}
		texts = append(texts, b.String())
	}
	j := startJudge(t)
	bad := 0
	for chunk := range slices.Chunk(texts, 5000) {
		for i, want := range j.ask(question{Op: "nfc", Texts: chunk}).Texts {
			if got := nfc(chunk[i]); got != want {
				if bad++; bad <= 20 {
					t.Errorf("nfc(%+q) = %+q, want %+q", chunk[i], got, want)
				}
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d texts differ", bad, len(texts))
	}
	t.Logf("%d texts", len(texts))
}
