package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// smallJSON is a tokenizer.json with all bytes, a few merges and one special
// token, after edit.
func smallJSON(tb testing.TB, edit func(f, model map[string]any)) []byte {
	tb.Helper()
	vocab := make(map[string]int)
	for b, r := range byteAlphabet {
		vocab[string(r)] = b
	}
	var merges [][2]string
	for i, m := range [][2]string{{"l", "l"}, {"h", "e"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}} {
		vocab[m[0]+m[1]] = 256 + i
		merges = append(merges, m)
	}
	model := map[string]any{"type": "BPE", "vocab": vocab, "merges": merges}
	f := map[string]any{
		"added_tokens":  []map[string]any{{"id": 261, "content": "<end>", "special": true}},
		"normalizer":    map[string]any{"type": "NFC"},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{split(regexQwen2), byteLevel(false)}},
		"model":         model,
	}
	if edit != nil {
		edit(f, model)
	}
	data, err := json.Marshal(f)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func split(regex string) map[string]any {
	return map[string]any{"type": "Split", "pattern": map[string]string{"Regex": regex}, "behavior": "Isolated", "invert": false}
}

func byteLevel(regex bool) map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": regex}
}

func pre(steps ...any) func(f, _ map[string]any) {
	return func(f, _ map[string]any) {
		f["pre_tokenizer"] = map[string]any{"type": "Sequence", "pretokenizers": steps}
	}
}

func TestParse(t *testing.T) {
	set := func(key string, v any) func(_, m map[string]any) { return func(_, m map[string]any) { m[key] = v } }
	for _, c := range []struct {
		name string
		edit func(f, model map[string]any)
		text string
		want string // ids, or what the error says
	}{
		{"plain", nil, "hello<end>hellz w", "[259 261 258 122 260]"},
		{"merges as strings", set("merges", []string{"l l", "h e", "he ll"}), "hello", "[258 111]"},
		{"order of merges", set("merges", []string{"he ll", "h e"}), "hello", "[257 108 108 111]"},
		{"unreachable token", set("merges", []string{}), "hello", "[104 101 108 108 111]"},
		{"ignore_merges", func(_, m map[string]any) { m["merges"], m["ignore_merges"] = []string{}, true }, "hello", "[259]"},
		{"no normaliser", func(f, _ map[string]any) { f["normalizer"] = nil }, "e\u0301", "[101 204 129]"},
		{"NFC", nil, "e\u0301", "[195 169]"},
		{"NFC in a sequence", func(f, _ map[string]any) {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "NFC"}}}
		}, "e\u0301", "[195 169]"},
		{"byte level alone", func(f, _ map[string]any) { f["pre_tokenizer"] = byteLevel(true) }, "l ll", "[108 32 256]"},
		{"digits", pre(map[string]any{"type": "Digits", "individual_digits": true}, byteLevel(true)), "1 w", "[49 260]"},
		{"removed, inverted", pre(map[string]any{"type": "Split", "pattern": map[string]string{"Regex": regexO200k}, "behavior": "Removed", "invert": true}, byteLevel(false)), "hello", "[259]"},
		{"added token made by merging", func(f, _ map[string]any) {
			f["added_tokens"] = []map[string]any{{"id": 259, "content": "hello"}}
		}, "hello hello", "[259 32 259]"},
		{"bytes without token", set("vocab", map[string]int{"a": 0, "b": 1, "ab": 2, "Ā": 3}), "axb", "error: model.merges[0]"},
		{"left out", func(_, m map[string]any) {
			m["vocab"], m["merges"] = map[string]int{"a": 0, "b": 1, "ab": 2}, []string{"a b"}
		}, "axb", "[2]"},
		{"unk with bytes missing", func(_, m map[string]any) {
			m["vocab"], m["merges"], m["unk_token"] = map[string]int{"a": 0, "b": 1}, []string{}, "a"
		}, "", "error: model.unk_token"},

		{"unknown pattern", pre(split(`\w+|\W+`), byteLevel(false)), "", `error: pre_tokenizer.pretokenizers[0].pattern.Regex: \w+|\W+ is not supported`},
		{"string pattern", pre(map[string]any{"type": "Split", "pattern": map[string]string{"String": " "}, "behavior": "Isolated"}, byteLevel(false)), "", "error: pre_tokenizer.pretokenizers[0].pattern"},
		{"behaviour", pre(map[string]any{"type": "Split", "pattern": map[string]string{"Regex": regexQwen2}, "behavior": "MergedWithNext"}, byteLevel(false)), "", "error: pre_tokenizer.pretokenizers[0].behavior"},
		{"three steps", pre(split(`\p{N}`), split(regexQwen2), byteLevel(false)), "", "error: pre_tokenizer: Split, Split, ByteLevel"},
		{"two splits by regex", pre(split(regexQwen2), byteLevel(true)), "", "error: pre_tokenizer.pretokenizers[1].use_regex"},
		{"byte level without regex", func(f, _ map[string]any) { f["pre_tokenizer"] = byteLevel(false) }, "", "error: pre_tokenizer.use_regex"},
		{"digits together", pre(map[string]any{"type": "Digits"}, byteLevel(true)), "", "error: pre_tokenizer.pretokenizers[0].individual_digits"},
		{"prefix space", pre(split(regexQwen2), map[string]any{"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}), "", "error: pre_tokenizer.pretokenizers[1].add_prefix_space"},
		{"metaspace", func(f, _ map[string]any) { f["pre_tokenizer"] = map[string]any{"type": "Metaspace"} }, "", "error: pre_tokenizer: Metaspace"},
		{"no pre-tokeniser", func(f, _ map[string]any) { f["pre_tokenizer"] = nil }, "", "error: pre_tokenizer: null"},
		{"normaliser", func(f, _ map[string]any) { f["normalizer"] = map[string]any{"type": "NFKC"} }, "", "error: normalizer.type: NFKC"},
		{"nested normaliser", func(f, _ map[string]any) {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Lowercase"}}}
		}, "", "error: normalizer.normalizers[0].type: Lowercase"},
		{"model", set("type", "Unigram"), "", "error: model.type: Unigram"},
		{"dropout", set("dropout", 0.1), "", "error: model.dropout: 0.1"},
		{"suffix", set("end_of_word_suffix", "</w>"), "", "error: model.end_of_word_suffix"},
		{"prefix", set("continuing_subword_prefix", "##"), "", "error: model.continuing_subword_prefix"},
		{"byte fallback", set("byte_fallback", true), "", "error: model.byte_fallback"},
		{"empty vocabulary", set("vocab", map[string]int{}), "", "error: model.vocab is empty"},
		{"alphabet", set("vocab", map[string]int{"\u4e2d": 0}), "", "error: model.vocab: token 0"},
		{"same id", set("vocab", map[string]int{"a": 0, "b": 0}), "", "both have id 0"},
		{"negative id", set("vocab", map[string]int{"a": -1}), "", "has id -1"},
		{"huge id", set("vocab", map[string]int{"a": 1 << 30}), "", "has id 1073741824"},
		{"long token", set("vocab", map[string]int{strings.Repeat("a", maxToken+1): 0}), "", "the limit is 1024"},
		{"merge of unknown", set("merges", []string{"l x"}), "", `error: model.merges[0]: "l" and "x"`},
		{"merge line", set("merges", []string{"l"}), "", `merge 0: "l" is not two tokens`},
		{"merges", set("merges", 7), "", "merges are neither"},
		{"added over ordinary", func(f, _ map[string]any) {
			f["added_tokens"] = []map[string]any{{"id": 97, "content": "<x>"}}
		}, "", `error: added token "<x>" has id 97`},
		{"added against vocabulary", func(f, _ map[string]any) {
			f["added_tokens"] = []map[string]any{{"id": 300, "content": "hello"}}
		}, "", `error: added_tokens[0]: "hello" has id 300, but 259 in model.vocab`},
		{"added twice", func(f, _ map[string]any) {
			f["added_tokens"] = []map[string]any{{"id": 300, "content": "<a>"}, {"id": 301, "content": "<a>"}}
		}, "", "has two ids, 300 and 301"},
		{"added id twice", func(f, _ map[string]any) {
			f["added_tokens"] = []map[string]any{{"id": 300, "content": "<a>"}, {"id": 300, "content": "<b>"}}
		}, "", "both have id 300"},
		{"added id", func(f, _ map[string]any) {
			f["added_tokens"] = []map[string]any{{"id": -5, "content": "<a>"}}
		}, "", "id -5 is not in"},
	} {
		tok, err := Parse(smallJSON(t, c.edit))
		if err != nil {
			if got := "error: " + strings.TrimPrefix(err.Error(), "tokenizer.json: "); c.want[0] == '[' || !strings.Contains(got, c.want) {
				t.Errorf("%s: %s; want %s", c.name, got, c.want)
			}
			var un *UnsupportedError
			if strings.Contains(err.Error(), "not supported") != errors.As(err, &un) {
				t.Errorf("%s: %T", c.name, err)
			}
			continue
		}
		if got := fmt.Sprint(tok.Encode(nil, c.text)); got != c.want {
			t.Errorf("%s: Encode(%q) = %s, want %s", c.name, c.text, got, c.want)
		}
	}
	for _, bad := range []string{"", "{", `{"model":{"vocab":{"a":"b"}}}`, "[]", "null", `{"model": nul}`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("Parse(%q): no error", bad)
		}
	}
}

// TestAddedNeverMerged: the id of an added token that is listed among the merges
// too doesn't come from plain text.
func TestAddedNeverMerged(t *testing.T) {
	tok, err := Parse(smallJSON(t, func(f, _ map[string]any) {
		f["added_tokens"] = []map[string]any{{"id": 259, "content": "hello", "special": true}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(tok.EncodeOrdinary(nil, "hello")); got != "[258 111]" {
		t.Errorf("EncodeOrdinary = %s", got)
	}
}

func TestParseRanks(t *testing.T) {
	var b strings.Builder
	for i := range 256 {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	all := b.String()
	line := func(s string, rank int) string {
		return fmt.Sprintf("%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), rank)
	}
	gpt2 := RanksConfig{Name: "x", Pattern: "gpt2", Special: map[string]int32{"<e>": 300}}
	for _, c := range []struct {
		name, file string
		cfg        RanksConfig
		want       string
	}{
		{"bytes", all, gpt2, "[97 98 99 300]"},
		{"merges", all + line("ab", 256) + line("bc", 257), gpt2, "[256 99 300]"},
		{"lower rank first", all + line("ab", 257) + line("bc", 256), gpt2, "[97 256 300]"},
		{"whole piece", all + line("abc", 256), gpt2, "[256 300]"},
		{"gaps, blank lines", all + "\n" + line("ab", 299) + "\n", gpt2, "[299 99 300]"},
		{"pattern", all, RanksConfig{Pattern: "nope"}, `error: RanksConfig.Pattern: "nope" is not supported`},
		{"byte missing", strings.Join(strings.SplitAfter(all, "\n")[1:], ""), gpt2, "error: the byte 0x00 has no token"},
		{"base64", all + "!! 256\n", gpt2, "error: line 257: token"},
		{"no rank", all + "YWI=\n", gpt2, "error: line 257: no space"},
		{"rank", all + "YWI= x\n", gpt2, `error: line 257: rank "x"`},
		{"large rank", all + "YWI= 99999999999\n", gpt2, "error: line 257: rank"},
		{"rank twice", all + line("ab", 5), gpt2, "error: line 257: second token with rank 5"},
		{"bytes twice", all + line("a", 256), gpt2, "error: two tokens with the bytes"},
		{"empty", all + " 256\n", gpt2, "error: line 257: token has 0 bytes"},
		{"long", all + line(strings.Repeat("a", 2000), 256), gpt2, "error: line 257: token has 2000 bytes"},
		{"long line", all + strings.Repeat("a", 1<<20), gpt2, "error: bufio.Scanner: token too long"},
		{"special over rank", all, RanksConfig{Pattern: "gpt2", Special: map[string]int32{"<e>": 97}}, `error: special token "<e>": id 97 is the rank of "a"`},
		{"empty special", all, RanksConfig{Pattern: "gpt2", Special: map[string]int32{"": 300}}, "error: special token 300 has an empty spelling"},
		{"special id", all, RanksConfig{Pattern: "gpt2", Special: map[string]int32{"<e>": -1}}, "error: special token \"<e>\": id -1"},
	} {
		tok, err := ParseRanks([]byte(c.file), c.cfg)
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = fmt.Sprint(tok.Encode(nil, "abc<e>"))
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "Small-1B")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, name string }{
		{write("tokenizer.json", smallJSON(t, nil)), "Small-1B"},
		{write("other.json", smallJSON(t, nil)), "other"},
		{write("r50k_base.tiktoken", rankFile(t, "r50k_base")), "r50k_base"},
	} {
		tok, err := Load(c.path)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
		} else if tok.Name() != c.name {
			t.Errorf("%s: name %q, want %q", c.path, tok.Name(), c.name)
		}
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "absent.json"), "no such file"},
		{write("my.tiktoken", []byte("YQ== 0\n")), "neither JSON nor the rank file of a known encoding"},
		{write("bad.json", []byte("{")), "bad.json: tokenizer.json: at byte 1"},
	} {
		if _, err := Load(c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", c.path, err, c.want)
		}
	}
}

func TestPack(t *testing.T) {
	data := smallJSON(t, func(_, m map[string]any) {
		m["merges"] = []string{"l l", "h e", "he ll", "hell o", "Ġ w"}
	})
	tok, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := Pack(&packed, data, "small"); err != nil {
		t.Fatal(err)
	}
	src, err := unpack(packed.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	back, err := build(src)
	if err != nil {
		t.Fatal(err)
	}
	if back.Name() != "small" || back.Size() != tok.Size() || !slices.Equal(back.Added(), tok.Added()) {
		t.Errorf("name %q, size %d, added %v", back.Name(), back.Size(), back.Added())
	}
	for _, s := range append(fragments, "hello world<end>", "hell", "lll") {
		if got, want := back.Encode(nil, s), tok.Encode(nil, s); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	for i := range packed.Len() {
		if _, err := unpack(packed.Bytes()[:i]); err == nil {
			t.Fatalf("no error for %d of %d bytes", i, packed.Len())
		}
	}
	if err := Pack(&packed, smallJSON(t, func(_, m map[string]any) { m["merges"] = []string{"h e"} }), "x"); err == nil {
		t.Error("packs a vocabulary with tokens that no merge makes")
	}
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	text := toolsText(20_000) + worldText(5000) + strings.Repeat("a", 1000) + "<|im_end|>"
	want := Qwen3().Encode(nil, text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if got := Qwen3().Encode(nil, text); !slices.Equal(got, want) {
					t.Error("other ids when run at once")
				}
			}
		})
	}
	wg.Wait()
}

// FuzzParse: no file makes Parse or what it returns panic.
func FuzzParse(f *testing.F) {
	f.Add(smallJSON(f, nil))
	f.Add(smallJSON(f, func(_, m map[string]any) { m["merges"] = []string{"he ll", "h e"} }))
	f.Add([]byte(`{"added_tokens":[{"id":1,"content":" ","lstrip":true,"rstrip":true,"normalized":true,"single_word":true}],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"vocab":{"a":0},"merges":[]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		for _, s := range []string{"", "a", "hello <end> world\n\n 12 'll", "  a  ", "\xff"} {
			ids := tok.Encode(nil, s)
			if _, err := tok.Decode(nil, ids); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			for _, id := range tok.EncodeOrdinary(nil, s) {
				if tok.IsAdded(id) {
					t.Fatalf("%q: added token %d from plain text", s, id)
				}
			}
		}
	})
}

// FuzzParseRanks: no file makes ParseRanks panic.
func FuzzParseRanks(f *testing.F) {
	f.Add([]byte("YQ== 0\nYg== 1\nYWI= 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := ParseRanks(data, RanksConfig{Pattern: "o200k"}); err == nil {
			tok.Encode(nil, "hello world")
		}
	})
}
