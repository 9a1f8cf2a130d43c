package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// RanksConfig says what a tiktoken rank file leaves open.
type RanksConfig struct {
	Name    string           // what Tokenizer.Name returns
	Pattern string           // how text is split: "gpt2" (also r50k and p50k), "cl100k", "o200k", "llama3" or "qwen2"
	Special map[string]int32 // special tokens; ids must not be ranks of the file
}

// encodings are the rank files that Load knows by their base name.
var encodings = map[string]RanksConfig{
	"r50k_base": {Pattern: "gpt2", Special: map[string]int32{"<|endoftext|>": 50256}},
	"p50k_base": {Pattern: "gpt2", Special: map[string]int32{"<|endoftext|>": 50256}},
	"cl100k_base": {Pattern: "cl100k", Special: map[string]int32{
		"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276,
	}},
	"o200k_base": {Pattern: "o200k", Special: map[string]int32{"<|endoftext|>": 199999, "<|endofprompt|>": 200018}},
}

// Load reads a vocabulary from a file: a Hugging Face tokenizer.json, or a
// tiktoken rank file named after one of OpenAI's encodings, r50k_base.tiktoken
// to o200k_base.tiktoken. For other rank files see ParseRanks.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	base := filepath.Base(path)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) > 0 && text[0] == '{' {
		t, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		t.name = name
		if base == "tokenizer.json" {
			if abs, err := filepath.Abs(path); err == nil {
				t.name = filepath.Base(filepath.Dir(abs))
			}
		}
		return t, nil
	}
	cfg, ok := encodings[name]
	if !ok {
		return nil, fmt.Errorf("%s: neither JSON nor the rank file of a known encoding (%s)", path, strings.Join(slices.Sorted(maps.Keys(encodings)), ", "))
	}
	cfg.Name = name
	t, err := ParseRanks(data, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// ParseRanks reads a tiktoken rank file: a line for each token, with its bytes
// in base64, a space and its rank, which is also its id.
func ParseRanks(ranks []byte, cfg RanksConfig) (*Tokenizer, error) {
	src := &source{name: cfg.Name, pattern: patternByName(cfg.Pattern), wholeFirst: true}
	if src.pattern == nil {
		return nil, &UnsupportedError{"RanksConfig.Pattern", strconv.Quote(cfg.Pattern), patternNames()}
	}
	var tokens [][]byte // by rank
	sc := bufio.NewScanner(bytes.NewReader(ranks))
	for line := 1; sc.Scan(); line++ {
		if len(sc.Bytes()) == 0 {
			continue
		}
		b64, num, ok := bytes.Cut(sc.Bytes(), []byte(" "))
		if !ok {
			return nil, fmt.Errorf("line %d: no space between token and rank", line)
		}
		b, err := base64.StdEncoding.DecodeString(string(b64))
		if err != nil {
			return nil, fmt.Errorf("line %d: token: %w", line, err)
		}
		rank, err := strconv.Atoi(string(num))
		if err != nil || rank < 0 || rank > maxID {
			return nil, fmt.Errorf("line %d: rank %q is not a number in 0..%d", line, num, maxID)
		}
		if len(b) == 0 || len(b) > maxToken {
			return nil, fmt.Errorf("line %d: token has %d bytes; it must have 1 to %d", line, len(b), maxToken)
		}
		if rank >= len(tokens) {
			tokens = append(tokens, make([][]byte, rank+1-len(tokens))...)
		}
		if tokens[rank] != nil {
			return nil, fmt.Errorf("line %d: second token with rank %d", line, rank)
		}
		tokens[rank] = b
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	for _, s := range slices.Sorted(maps.Keys(cfg.Special)) {
		id := cfg.Special[s]
		switch {
		case s == "":
			return nil, fmt.Errorf("special token %d has an empty spelling", id)
		case id < 0 || id > maxID:
			return nil, fmt.Errorf("special token %q: id %d is not in 0..%d", s, id, maxID)
		case int(id) < len(tokens) && tokens[id] != nil:
			return nil, fmt.Errorf("special token %q: id %d is the rank of %q", s, id, tokens[id])
		}
		src.added = append(src.added, Added{ID: id, Content: s, Special: true})
	}
	src.vocab.start = make([]uint32, 0, len(tokens)+1)
	for _, b := range tokens {
		src.vocab.start = append(src.vocab.start, uint32(len(src.vocab.bytes)))
		src.vocab.bytes = append(src.vocab.bytes, b...)
	}
	src.vocab.start = append(src.vocab.start, uint32(len(src.vocab.bytes)))
	if err := src.mergesOfRanks(); err != nil {
		return nil, err
	}
	return build(src)
}

// mergesOfRanks makes the merges that tiktoken has implicitly: any two tokens
// whose bytes together are a token merge to it, at its rank.
func (src *source) mergesOfRanks() error {
	v := &src.vocab
	table := newPieceTable(v, v.size())
	var single [256]bool
	for id := range int32(v.size()) {
		b := v.token(id)
		if len(b) == 0 {
			continue
		}
		if !table.add(id) {
			return fmt.Errorf("two tokens with the bytes %q, one of them of rank %d", b, id)
		}
		if len(b) == 1 {
			single[b[0]] = true
		}
	}
	if i := slices.Index(single[:], false); i >= 0 {
		return fmt.Errorf("the byte 0x%02x has no token", i)
	}
	for id := range int32(v.size()) {
		b := v.token(id)
		for cut := 1; cut < len(b); cut++ {
			l, ok := table.find(string(b[:cut]))
			if !ok {
				continue
			}
			if r, ok := table.find(string(b[cut:])); ok {
				src.merges = append(src.merges, pairMerge{l, r, merge{id, id}})
			}
		}
	}
	return nil
}
