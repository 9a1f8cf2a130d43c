package token

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// TestSlices compares slices with what a scan of each token says.
func TestSlices(t *testing.T) {
	more := []string{"\u2028", "a\u2028", "a\u2029b", "é\u2028\"x", "\xE2\x80", "a\xE2", `\u2028"`, `a\u00`, `b\n"c`, `\ud83d\ude00"`, `a\"b`, "日本\"", "\x80a", "a\x80", "\xE2\x28"}
	few, err := NewVocabulary(ranks(t, more...))
	if err != nil {
		t.Fatal(err)
	}
	many, err := NewVocabulary(tokenizer.Qwen3())
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	sets := []Chars{
		AnyChar,
		withEscapes(AnyChar, EscapeShort|EscapeU),
		withEscapes(AnyChar, EscapeShort|EscapeU|EscapePairs|EscapeHalf),
		withEscapes(AnyChar, EscapeN|EscapePairs),
		{ASCII: AnyChar.ASCII, Others: true, Except: "\u2028\u2029"},
		{ASCII: AnyChar.ASCII, Others: true, Except: "é日", Escapes: EscapeShort | EscapeU},
		{ASCII: [2]uint64{0x3FF << 48, 0x7E_0000_007E}},
	}
	for range 6 {
		c := Chars{ASCII: [2]uint64{rng.Uint64() | rng.Uint64(), rng.Uint64() | rng.Uint64()}, Others: rng.IntN(2) == 0}
		if c.ASCII[1] &^= 1 << ('\\' - 64); c.Others && rng.IntN(2) == 0 {
			c.Except = "\u0080é\u2028😀"
		}
		sets = append(sets, c)
	}
	for _, v := range []*Vocabulary{few, many} {
		for _, c := range sets {
			s := v.slice(c)
			type left struct {
				id    int32
				chars uint8
			}
			want := map[byte][]left{}
			bounds := []int{0, 1, 2, 5, 20, far}
			for id := range int32(v.size) {
				if !v.index.all.has(id) {
					continue
				}
				text, _, _ := v.tok.Token(id)
				r := c.scan(text)
				if s.whole.has(id) != r.whole {
					t.Fatalf("%x %v: token %q: %v", c.ASCII, c.Others, text, r)
				}
				for _, n := range bounds {
					if v.within(s, n).has(id) != (r.whole && r.chars <= n) {
						t.Fatalf("%x %v: token %q within %d: %v", c.ASCII, c.Others, text, n, r)
					}
				}
				if !r.whole && r.clean {
					want[text[r.n]] = append(want[text[r.n]], left{id, uint8(r.chars)})
				}
			}
			for b := range 256 {
				var got []left
				g := v.group(s, byte(b))
				for _, st := range g.stems {
					for _, id := range v.trie.id[st.node:v.trie.end[st.node]] {
						if id < 0 {
							continue
						}
						text, _, _ := v.tok.Token(id)
						if text[st.skip] != byte(b) || !bytes.Equal(text[:st.depth], v.text(st.node)[:st.depth]) || g.chars[st.chars>>6]>>(st.chars&63)&1 == 0 {
							t.Fatalf("%x %v: %q has stem %v", c.ASCII, c.Others, text, st)
						}
						got = append(got, left{id, st.chars})
					}
				}
				slices.SortFunc(got, func(x, y left) int { return int(x.id - y.id) })
				if !slices.Equal(got, want[byte(b)]) {
					t.Fatalf("%x %v: %d tokens leave at %q, not %d", c.ASCII, c.Others, len(got), byte(b), len(want[byte(b)]))
				}
			}
		}
	}
}
