package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// UnsupportedError is a setting of a tokenizer.json or rank file which we would
// have to ignore to go on, and so would give other ids than the reference.
type UnsupportedError struct {
	Field string // path in the file
	Value string // as the file has it
	Want  string // what we support
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: %s is not supported (supported: %s)", e.Field, e.Value, e.Want)
}

// The parts of tokenizer.json that decide the ids of a text. Truncation,
// padding, post_processor and decoder don't: Encode puts no token in that the
// text doesn't spell.
type jsonFile struct {
	AddedTokens  []jsonAdded      `json:"added_tokens"`
	Normalizer   *jsonNormalizer  `json:"normalizer"`
	PreTokenizer *jsonPretokenize `json:"pre_tokenizer"`
	Model        jsonModel        `json:"model"`
}

type jsonAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type jsonNormalizer struct {
	Type        string           `json:"type"`
	Normalizers []jsonNormalizer `json:"normalizers"`
}

type jsonPretokenize struct {
	Type          string            `json:"type"`
	Pretokenizers []jsonPretokenize `json:"pretokenizers"`

	// Split
	Pattern  map[string]string `json:"pattern"`
	Behavior string            `json:"behavior"`
	Invert   bool              `json:"invert"`

	// ByteLevel; use_regex is true when absent
	AddPrefixSpace bool  `json:"add_prefix_space"`
	UseRegex       *bool `json:"use_regex"`

	// Digits
	IndividualDigits bool `json:"individual_digits"`
}

func (p *jsonPretokenize) regex() bool { return p.UseRegex == nil || *p.UseRegex }

type jsonModel struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       jsonMerges       `json:"merges"`
}

// jsonMerges are pairs, in the file either ["a", "b"] or "a b".
type jsonMerges [][2]string

func (m *jsonMerges) UnmarshalJSON(b []byte) error {
	var pairs [][2]string
	if json.Unmarshal(b, &pairs) == nil {
		*m = pairs
		return nil
	}
	var lines []string
	if err := json.Unmarshal(b, &lines); err != nil {
		return errors.New("merges are neither pairs nor strings")
	}
	for i, s := range lines {
		l, r, ok := strings.Cut(s, " ")
		if !ok || l == "" || r == "" || strings.Contains(r, " ") {
			return fmt.Errorf("merge %d: %q is not two tokens with a space between", i, s)
		}
		*m = append(*m, [2]string{l, r})
	}
	return nil
}

// maxID and maxToken bound the memory and time that a file can make us spend.
// The largest known vocabularies have about 262,000 ids; Qwen3's longest token has
// 128 bytes.
const (
	maxID    = 1 << 22
	maxToken = 1 << 10 // bytes
)

// Parse reads a tokenizer.json of Hugging Face tokenizers with a byte-level BPE
// model.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	src, err := parseJSON(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t, err := build(src)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func parseJSON(data []byte) (*source, error) {
	var f jsonFile
	if err := json.Unmarshal(data, &f); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("at byte %d: %w", syntax.Offset, err)
		}
		return nil, err
	}
	src := &source{wholeFirst: f.Model.IgnoreMerges}
	var err error
	if src.nfc, err = f.Normalizer.nfc("normalizer"); err != nil {
		return nil, err
	}
	if src.pattern, err = f.PreTokenizer.find(); err != nil {
		return nil, err
	}
	if err := f.Model.check(); err != nil {
		return nil, err
	}
	own := make(map[string]bool, len(f.AddedTokens)) // ids in the vocabulary that are added tokens
	for i, a := range f.AddedTokens {
		if a.Content == "" {
			continue // the reference never finds it
		}
		if a.ID < 0 || a.ID > maxID {
			return nil, fmt.Errorf("added_tokens[%d]: id %d is not in 0..%d", i, a.ID, maxID)
		}
		if id, ok := f.Model.Vocab[a.Content]; ok {
			if id != a.ID {
				return nil, fmt.Errorf("added_tokens[%d]: %q has id %d, but %d in model.vocab", i, a.Content, a.ID, id)
			}
			own[a.Content] = true
		}
		src.added = append(src.added, Added{
			ID: a.ID, Content: a.Content, Special: a.Special,
			SingleWord: a.SingleWord, LStrip: a.LStrip, RStrip: a.RStrip, Normalized: a.Normalized,
		})
	}
	if err := src.fill(&f.Model, own); err != nil {
		return nil, err
	}
	return src, nil
}

// fill sets vocab and merges.
func (src *source) fill(m *jsonModel, own map[string]bool) error {
	size, total := 0, 0
	for s, id := range m.Vocab {
		if id < 0 || id > maxID {
			return fmt.Errorf("model.vocab: %q has id %d, which is not in 0..%d", s, id, maxID)
		}
		size = max(size, int(id)+1)
		total += len(s)
	}
	spelling := make([]string, size)
	for s, id := range m.Vocab {
		if own[s] {
			continue
		}
		if spelling[id] != "" {
			return fmt.Errorf("model.vocab: %q and %q both have id %d", spelling[id], s, id)
		}
		spelling[id] = s
	}
	src.vocab = vocabulary{bytes: make([]byte, 0, total), start: make([]uint32, 0, size+1)}
	for id, s := range spelling {
		src.vocab.start = append(src.vocab.start, uint32(len(src.vocab.bytes)))
		for _, r := range s {
			b, ok := byteOf(r)
			if !ok {
				return fmt.Errorf("model.vocab: token %d, %q, has %q, which the byte-level alphabet doesn't", id, s, r)
			}
			src.vocab.bytes = append(src.vocab.bytes, b)
		}
		if n := len(src.vocab.bytes) - int(src.vocab.start[id]); n > maxToken {
			return fmt.Errorf("model.vocab: token %d has %d bytes; the limit is %d", id, n, maxToken)
		}
	}
	src.vocab.start = append(src.vocab.start, uint32(len(src.vocab.bytes)))

	src.merges = make([]pairMerge, 0, len(m.Merges))
	for rank, p := range m.Merges {
		l, okl := m.Vocab[p[0]]
		r, okr := m.Vocab[p[1]]
		id, ok := m.Vocab[p[0]+p[1]]
		if !okl || !okr || !ok {
			return fmt.Errorf("model.merges[%d]: %q and %q and what they make are not all in model.vocab", rank, p[0], p[1])
		}
		if own[p[0]] || own[p[1]] || own[p[0]+p[1]] {
			continue // an added token is never made by merging
		}
		src.merges = append(src.merges, pairMerge{l, r, merge{int32(rank), id}})
	}
	if m.UnkToken != nil && *m.UnkToken != "" {
		have := 0
		for i := range size {
			if src.vocab.start[i+1]-src.vocab.start[i] == 1 {
				have++
			}
		}
		if have < 256 {
			return &UnsupportedError{"model.unk_token", fmt.Sprintf("%q with %d of 256 bytes in the vocabulary", *m.UnkToken, have), "null, or all bytes in the vocabulary"}
		}
	}
	return nil
}

// nfc reports whether the normaliser is NFC; it may also be absent.
func (n *jsonNormalizer) nfc(path string) (bool, error) {
	switch {
	case n == nil:
		return false, nil
	case n.Type == "NFC":
		return true, nil
	case n.Type == "Sequence":
		found := false
		for i := range n.Normalizers {
			one, err := n.Normalizers[i].nfc(fmt.Sprintf("%s.normalizers[%d]", path, i))
			if err != nil {
				return false, err
			}
			found = found || one
		}
		return found, nil
	}
	return false, &UnsupportedError{path + ".type", n.Type, "NFC or none"}
}

// find is the pattern that splits as the pre-tokeniser does.
func (p *jsonPretokenize) find() (*pattern, error) {
	const want = "ByteLevel, Digits and ByteLevel, or Split by a known pattern and ByteLevel"
	if p == nil {
		return nil, &UnsupportedError{"pre_tokenizer", "null", want}
	}
	seq, path := []jsonPretokenize{*p}, "pre_tokenizer"
	if p.Type == "Sequence" {
		seq = p.Pretokenizers
	}
	at := func(i int) string {
		if p.Type == "Sequence" {
			return fmt.Sprintf("%s.pretokenizers[%d]", path, i)
		}
		return path
	}
	var types []string
	for i, s := range seq {
		types = append(types, s.Type)
		if s.Type == "ByteLevel" && s.AddPrefixSpace {
			return nil, &UnsupportedError{at(i) + ".add_prefix_space", "true", "false"}
		}
	}
	switch kinds := strings.Join(types, ", "); kinds {
	case "ByteLevel":
		if !seq[0].regex() {
			return nil, &UnsupportedError{at(0) + ".use_regex", "false", "true where no Split precedes"}
		}
		return patternByName("gpt2"), nil
	case "Digits, ByteLevel":
		if !seq[0].IndividualDigits {
			return nil, &UnsupportedError{at(0) + ".individual_digits", "false", "true"}
		}
		if !seq[1].regex() {
			return nil, &UnsupportedError{at(1) + ".use_regex", "false", "true where no Split precedes"}
		}
		return patternByName("smollm"), nil
	case "Split, ByteLevel":
		s := seq[0]
		if seq[1].regex() {
			return nil, &UnsupportedError{at(1) + ".use_regex", "true", "false behind a Split"}
		}
		// The patterns match every character, so keeping the matches or what
		// lies between them as well is the same.
		if b := fmt.Sprintf("%s, invert %t", s.Behavior, s.Invert); b != "Isolated, invert false" && b != "Removed, invert true" {
			return nil, &UnsupportedError{at(0) + ".behavior", b, "Isolated, invert false; Removed, invert true"}
		}
		regex, ok := s.Pattern["Regex"]
		if !ok {
			return nil, &UnsupportedError{at(0) + ".pattern", fmt.Sprint(s.Pattern), "Regex"}
		}
		for i := range patterns {
			for _, known := range patterns[i].regexes {
				if regex == known {
					return &patterns[i], nil
				}
			}
		}
		return nil, &UnsupportedError{at(0) + ".pattern.Regex", regex, patternNames()}
	default:
		return nil, &UnsupportedError{path, kinds, want}
	}
}

func patternByName(name string) *pattern {
	for i := range patterns {
		if patterns[i].name == name {
			return &patterns[i]
		}
	}
	return nil
}

func patternNames() string {
	var names []string
	for i := range patterns {
		names = append(names, patterns[i].name)
	}
	return "the patterns of " + strings.Join(names, ", ")
}

func (m *jsonModel) check() error {
	switch {
	case m.Type != "BPE" && m.Type != "": // old files leave it out
		return &UnsupportedError{"model.type", m.Type, "BPE"}
	case m.Dropout != nil && *m.Dropout != 0:
		return &UnsupportedError{"model.dropout", fmt.Sprint(*m.Dropout), "null"}
	case m.Prefix != nil && *m.Prefix != "":
		return &UnsupportedError{"model.continuing_subword_prefix", *m.Prefix, "none"}
	case m.Suffix != nil && *m.Suffix != "":
		return &UnsupportedError{"model.end_of_word_suffix", *m.Suffix, "none"}
	case m.ByteFallback:
		return &UnsupportedError{"model.byte_fallback", "true", "false"}
	case len(m.Vocab) == 0:
		return errors.New("model.vocab is empty")
	}
	return nil
}

// The byte-level alphabet spells a byte by one printable character: a printable
// byte of Latin-1 by itself, the n-th of the others by U+0100 + n.
var byteAlphabet = func() (a [256]rune) {
	n := rune(0)
	for b := range rune(256) {
		if '!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b && b <= 'ÿ' {
			a[b] = b
		} else {
			a[b] = 0x100 + n
			n++
		}
	}
	return a
}()

var byteOfRune = func() (t [0x100 + 68]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteAlphabet {
		t[r] = int16(b)
	}
	return t
}()

func byteOf(r rune) (byte, bool) {
	if r < 0 || int(r) >= len(byteOfRune) || byteOfRune[r] < 0 {
		return 0, false
	}
	return byte(byteOfRune[r]), true
}
