package token

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// ranks is a vocabulary of all bytes, and then more.
func ranks(t *testing.T, more ...string) *tokenizer.Tokenizer {
	t.Helper()
	var b strings.Builder
	n := 0
	add := func(s string) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), n)
		n++
	}
	for c := range 256 {
		add(string([]byte{byte(c)}))
	}
	for _, s := range more {
		add(s)
	}
	tok, err := tokenizer.ParseRanks([]byte(b.String()), tokenizer.RanksConfig{Pattern: "o200k"})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestVocabulary(t *testing.T) {
	few, err := tokenizer.Parse([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewVocabulary(few); err == nil || !strings.Contains(err.Error(), "0x09") {
		t.Errorf("almost no bytes: %v", err)
	}
	if _, err := NewVocabulary(ranks(t), 256); err == nil {
		t.Error("an end beyond the vocabulary is taken")
	}
	long := strings.Repeat("a", 130)
	v, err := NewVocabulary(ranks(t, "aa", strings.Repeat("a", 128), long, `a"`, `"}`, "é\"", `\"`), 1)
	if err != nil {
		t.Fatal(err)
	}
	// Every token is in the trie once, in order, and first finds it.
	var found []string
	var walkTrie func(i, end uint32, prefix string)
	walkTrie = func(i, end uint32, prefix string) {
		for i < end {
			text := prefix + string(v.trie.b[i:i+1])
			if id := v.trie.id[i]; id >= 0 {
				b, _, _ := v.tok.Token(id)
				if string(b) != text {
					t.Errorf("token %d is %q, in the trie %q", id, b, text)
				}
				found = append(found, text)
			}
			walkTrie(i+1, v.trie.end[i], text)
			i = v.trie.end[i]
		}
	}
	for c := range 256 {
		walkTrie(v.trie.first[c], v.trie.first[c+1], "")
	}
	if len(found) != v.size-1 || !slices.IsSorted(found) || slices.Contains(found, long) {
		t.Errorf("%d of %d tokens in the trie", len(found), v.size)
	}
}

func TestApply(t *testing.T) {
	inf := float32(math.Inf(-1))
	z := make([]float32, 131)
	for i := range z {
		z[i] = float32(i)
	}
	z[1] = float32(math.Inf(1))
	Apply(z, []uint64{1 << 5, math.MaxUint64})
	for i, x := range z {
		want := inf
		if i == 5 || i >= 64 && i < 128 {
			want = float32(i)
		}
		if x != want {
			t.Errorf("logit %d is %v, want %v", i, x, want)
		}
	}
}

func BenchmarkVocabulary(b *testing.B) {
	tok := tokenizer.Qwen3()
	var v *Vocabulary
	for b.Loop() {
		var err error
		if v, err = NewVocabulary(tok); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(v.MemoryBytes()), "B/vocabulary")
}

// TestSorted compares with a plain sort, on tokens that share beginnings, end
// in zeros and come twice.
func TestSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	texts := make([][]byte, 5000)
	text := func(id int32) []byte { return texts[id] }
	var all []keyed
	for i := range texts {
		b := make([]byte, 1+rng.IntN(12))
		for k := range b {
			b[k] = []byte{0, 1, 'a', 'b', 0xFF}[rng.IntN(1+min(4, 12-k))]
		}
		texts[i] = b
		all = append(all, keyed{head(b), int32(i)})
	}
	want := slices.Clone(all)
	slices.SortFunc(want, func(x, y keyed) int {
		return cmp.Or(bytes.Compare(texts[x.id], texts[y.id]), cmp.Compare(y.id, x.id))
	})
	for i, k := range sorted(all, text) {
		if k.id != want[i].id {
			t.Fatalf("place %d holds %q, not %q", i, texts[k.id], texts[want[i].id])
		}
	}
}
