package grammar

import (
	"encoding/base64"
	"fmt"
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
	// Masks over it, with a token as long as may be.
	for _, s := range []string{`{"maxLength":127}`, `{"maxLength":128}`, `{"maxLength":129}`, `{"minLength":128}`, `{"maxLength":300}`, `{"pattern":"^[a-z]{1,200}$"}`} {
		c := compileTest(t, `{"properties":{"a":{"type":"string",`+s[1:]+`},"required":["a"]}`, Closed)
		a := automatonOf(t, c)
		live := map[*config]bool{}
		for seed := range uint64(5) {
			walk(t, a, v, rand.New(rand.NewPCG(seed, 2)), 40, func(m *Matcher, text []byte, mask bitmap) {
				compareMasks(t, v, c, text, mask, wholeVocabulary(t, v, m, live))
			})
		}
	}
}

// TestForced: what is forced fits, and at each of its bytes nothing else does.
func TestForced(t *testing.T) {
	v := qwenVocabulary(t)
	n := 0
	for i, c := range sample(t, 20) {
		a := automatonOf(t, c)
		walk(t, a, v, rand.New(rand.NewPCG(uint64(i), 4)), 30, func(m *Matcher, text []byte, _ bitmap) {
			forced := m.Forced()
			n += len(forced)
			k := &Matcher{a: a, v: v, now: m.now, done: m.done}
			for _, b := range forced {
				for x := range 256 {
					if err := k.AdvanceBytes([]byte{byte(x)}); err == nil {
						if byte(x) != b {
							t.Fatalf("%s: after %q %q is forced, but %q fits", c.name, text, forced, rune(x))
						}
						if err := k.Rollback(1); err != nil {
							t.Fatal(err)
						}
					}
				}
				if k.Accepts() {
					t.Fatalf("%s: after %q %q is forced, but the text may end", c.name, text, forced)
				}
				if err := k.AdvanceBytes([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if n == 0 {
		t.Error("nothing was ever forced")
	}
}

// TestMaskWork: a mask that would cost too much is an error with a name.
func TestMaskWork(t *testing.T) {
	c := compileTest(t, `{"properties":{"a":{}}}`, Closed)
	w := walker{a: automatonOf(t, c), v: qwenVocabulary(t), work: maxMaskWork}
	_, err := w.mask(w.a.first.Load())
	if e, ok := err.(*LimitError); !ok || e.Limit != "mask work" {
		t.Errorf("%v", err)
	}
}
