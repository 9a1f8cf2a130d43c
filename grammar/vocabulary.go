package grammar

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// A Vocabulary is the tokens of a model laid out for masks: a trie of their
// bytes. Make it once, which takes about 0.1 s, and share it; it is safe for
// concurrent use.
//
// Special and added tokens stand for themselves: no bytes of a grammar match
// them, and only those given as ends are ever allowed. Tokens of more than 128
// bytes never are, and of several with the same bytes only the first is.
type Vocabulary struct {
	tok  *tokenizer.Tokenizer
	size int
	ends []int32

	trie trie

	mu     sync.Mutex // guards slices
	slices []*slice   // those in use first
}

// A trie holds tokens in depth-first order: node i has byte b[i], its
// descendants are the nodes up to end[i], and the token that ends there is
// id[i] or -1. Children stand in the order of their bytes.
//
//	b    end  id
//	'a'  3    64     "a"
//	'b'  3    -1
//	'c'  3    13997  "abc"
//	'b'  4    65     "b"
type trie struct {
	b     []byte
	end   []uint32
	id    []int32
	first [257]uint32 // by byte: where its node at the top begins
}

// NewVocabulary lays out the tokens of tok. ends are the ids that end a turn,
// such as <|im_end|>. A vocabulary must have each byte that JSON may hold as a
// token, so that from every allowed token the model can go on.
func NewVocabulary(tok *tokenizer.Tokenizer, ends ...int32) (*Vocabulary, error) {
	v := &Vocabulary{tok: tok, size: tok.Size(), ends: slices.Clone(ends)}
	var all []token
	var alone [256]bool
	for id := range int32(v.size) {
		if tok.IsAdded(id) {
			continue
		}
		b, _, ok := tok.Token(id)
		if !ok || len(b) > far {
			continue
		}
		all = append(all, token{b, id})

		if len(b) == 1 {
			alone[b[0]] = true
		}
	}
	for c := '\t'; c < 0xF5; c++ {
		inJSON := c == '\t' || c == '\n' || c >= ' ' && c < 0x7F || c >= 0x80 && c < 0xC0 || c > 0xC1
		if inJSON && !alone[c] {
			return nil, fmt.Errorf("vocabulary %q has no token for byte %#02x alone", tok.Name(), c)
		}
	}
	for _, id := range ends {
		if id < 0 || int(id) >= v.size {
			return nil, fmt.Errorf("end of turn %d is not in vocabulary %q", id, tok.Name())
		}
	}
	slices.SortFunc(all, func(a, b token) int { return cmp.Or(bytes.Compare(a.b, b.b), cmp.Compare(b.id, a.id)) })
	v.trie.build(all)
	v.slice(&loopSet{anyChar, true})
	return v, nil
}

type token struct {
	b  []byte
	id int32
}

// build takes tokens sorted by bytes. Of those with the same the last counts.
func (t *trie) build(tokens []token) {
	var open []uint32 // nodes on the way to the last token
	var prev []byte
	for _, tk := range tokens {
		shared := 0
		for shared < len(prev) && shared < len(tk.b) && prev[shared] == tk.b[shared] {
			shared++
		}
		for len(open) > shared {
			t.end[open[len(open)-1]] = uint32(len(t.b))
			open = open[:len(open)-1]
		}
		for _, c := range tk.b[shared:] {
			open = append(open, uint32(len(t.b)))
			t.b = append(t.b, c)
			t.end = append(t.end, 0)
			t.id = append(t.id, -1)
		}
		t.id[len(t.id)-1] = tk.id
		prev = tk.b
	}
	for _, n := range open {
		t.end[n] = uint32(len(t.b))
	}
	n := uint32(0)
	for c := range 257 {
		for n < uint32(len(t.b)) && int(t.b[n]) < c {
			n = t.end[n]
		}
		t.first[c] = n
	}
}

// Size is 1 + the largest id.
func (v *Vocabulary) Size() int { return v.size }

// Words is the length of a mask: bit id%64 of word id/64 is set if the token
// is allowed.
func (v *Vocabulary) Words() int { return (v.size + 63) / 64 }

// MemoryBytes is about what the vocabulary holds beside its tokenizer.
func (v *Vocabulary) MemoryBytes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.trie.bytes()
	for _, s := range v.slices {
		n += s.size
	}
	return n
}

func (t *trie) bytes() int { return 9*len(t.b) + 4*len(t.first) }
