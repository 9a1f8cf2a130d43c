package token

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// A Vocabulary is the tokens of a model laid out for masks. Make it once and
// share it; it is safe for concurrent use.
//
// Special and added tokens stand for themselves: no bytes match them. They are
// allowed where they are given as ends and where a source demands one. Tokens
// of more than 128 bytes never are, and of several with the same bytes only the
// first is.
type Vocabulary struct {
	tok   *tokenizer.Tokenizer
	size  int
	ends  []int32
	added []bool // by id

	trie        trie
	blanks      []int32       // tokens of nothing but JSON's white space
	behindBlank [256][]uint32 // nodes of the trie behind white space only, by their byte
	escapes     []escape

	mu     sync.Mutex // guards slices and what they make when needed
	slices []*slice   // those in use first
}

// far is how many bytes a token may have, and so how many characters of a run
// it reaches across.
const far = 128

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
	v.added = make([]bool, v.size)
	for _, a := range tok.Added() {
		v.added[a.ID] = true
	}
	all := make([]entry, 0, v.size)
	var alone [256]bool
	for id := range int32(v.size) {
		if v.added[id] {
			continue
		}
		b, _, ok := tok.Token(id)
		if !ok || len(b) > far {
			continue
		}
		all = append(all, entry{b, id})
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
	v.trie.build(sorted(all))
	v.spaces()
	v.trie.each(v.escape)
	for _, e := range []Escapes{EscapeShort | EscapeU, EscapeShort | EscapeU | EscapePairs | EscapeHalf} {
		s := v.slice(withEscapes(AnyChar, e)) // what nearly every schema needs
		v.behind(s, '"')
		v.opening(s)
	}
	return v, nil
}

func withEscapes(c Chars, e Escapes) Chars {
	c.Escapes = e
	return c
}

// An entry is a token, or part of one, on its way into a trie.
type entry struct {
	b  []byte
	id int32
}

// sorted orders tokens by bytes, those with the same the lowest id last.
func sorted(all []entry) []entry {
	type keyed struct {
		head uint64 // the first eight bytes
		at   int32
	}
	keys := make([]keyed, len(all))
	var head [8]byte
	for i, e := range all {
		if len(e.b) >= 8 {
			keys[i] = keyed{binary.BigEndian.Uint64(e.b), int32(i)}
			continue
		}
		clear(head[copy(head[:], e.b):])
		keys[i] = keyed{binary.BigEndian.Uint64(head[:]), int32(i)}
	}
	slices.SortFunc(keys, func(x, y keyed) int {
		if x.head != y.head {
			return cmp.Compare(x.head, y.head)
		}
		a, b := &all[x.at], &all[y.at]
		return cmp.Or(bytes.Compare(a.b, b.b), cmp.Compare(b.id, a.id))
	})
	out := make([]entry, len(all))
	for i, k := range keys {
		out[i] = all[k.at]
	}
	return out
}

// build takes tokens sorted by bytes. Of those with the same the last counts.
func (t *trie) build(tokens []entry) {
	nodes := 0
	var prev []byte
	for _, tk := range tokens {
		nodes += len(tk.b) - shared(prev, tk.b)
		prev = tk.b
	}
	t.b, t.end, t.id = make([]byte, 0, nodes), make([]uint32, nodes), make([]int32, nodes)
	var open [far + 1]uint32 // nodes on the way to the last token
	depth := 0
	prev = nil
	for _, tk := range tokens {
		same := shared(prev, tk.b)
		for depth > same {
			depth--
			t.end[open[depth]] = uint32(len(t.b))
		}
		for _, c := range tk.b[same:] {
			open[depth] = uint32(len(t.b))
			depth++
			t.id[len(t.b)] = -1
			t.b = append(t.b, c)
		}
		t.id[len(t.b)-1] = tk.id
		prev = tk.b
	}
	for _, n := range open[:depth] {
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

func shared(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// child is the node of byte b among those from at to end.
func (t *trie) child(b byte, at, end uint32) (uint32, bool) {
	if at == 0 && end == uint32(len(t.b)) {
		at, end = t.first[b], t.first[int(b)+1]
	}
	for at < end && t.b[at] < b {
		at = t.end[at]
	}
	return at, at < end && t.b[at] == b
}

func (t *trie) bytes() int { return 9*len(t.b) + 4*len(t.first) }

// each calls f with every token of the trie in order.
func (t *trie) each(f func(id int32, text []byte)) {
	var text [far]byte
	var ends [far]uint32
	depth := 0
	for i := range uint32(len(t.b)) {
		for depth > 0 && ends[depth-1] <= i {
			depth--
		}
		text[depth], ends[depth] = t.b[i], t.end[i]
		depth++
		if id := t.id[i]; id >= 0 {
			f(id, text[:depth])
		}
	}
}

// An escape is a token that begins to spell characters of a string by their
// codes: plain ones, a backslash, and maybe u and digits.
type escape struct {
	id     int32
	quoted bool   // a quote comes first
	plain  string // before the backslash
	digits string // of the code, in lower case
	long   bool   // the code is whole, and maybe more follows
}

func (v *Vocabulary) escape(id int32, text []byte) {
	e := escape{id: id}
	if text[0] == '"' {
		e.quoted = true
		text = text[1:]
	}
	at := bytes.IndexByte(text, '\\')
	if at < 0 || !AnyChar.scan(text[:at]).whole {
		return
	}
	e.plain = string(text[:at])
	if text = text[at+1:]; len(text) > 0 {
		if text[0] != 'u' {
			return
		}
		text = text[1:]
		e.digits = string(bytes.ToLower(text))
		for i, b := range text[:min(4, len(text))] {
			if _, ok := hexDigit(b); !ok {
				return
			}
			e.long = i == 3
		}
	}
	v.escapes = append(v.escapes, e)
}

// begins tells whether a word can be spelled so.
func (e *escape) begins(word string) bool {
	if len(e.plain) >= len(word) || word[:len(e.plain)] != e.plain {
		return false
	}
	r, _ := utf8.DecodeRuneInString(word[len(e.plain):])
	if r > 0xFFFF {
		r, _ = utf16.EncodeRune(r)
	}
	return e.digits == "" || strings.HasPrefix(fmt.Sprintf("%04x", r), e.digits)
}

const blank = "\t\n\r "

// spaces finds the tokens of white space and what stands behind it.
func (v *Vocabulary) spaces() {
	t := &v.trie
	var below func(i, end uint32)
	below = func(i, end uint32) {
		for ; i < end; i = t.end[i] {
			if !isBlank(t.b[i]) {
				v.behindBlank[t.b[i]] = append(v.behindBlank[t.b[i]], i)
				continue
			}
			if t.id[i] >= 0 {
				v.blanks = append(v.blanks, t.id[i])
			}
			below(i+1, t.end[i])
		}
	}
	for _, b := range []byte(blank) {
		if i := t.first[b]; i < t.first[int(b)+1] {
			if t.id[i] >= 0 {
				v.blanks = append(v.blanks, t.id[i])
			}
			below(i+1, t.end[i])
		}
	}
}

func isBlank(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// Size is 1 + the largest id.
func (v *Vocabulary) Size() int { return v.size }

// Words is the length of a mask: bit id%64 of word id/64 is set if the token
// is allowed.
func (v *Vocabulary) Words() int { return (v.size + 63) / 64 }

// Tokenizer is what the vocabulary was made of.
func (v *Vocabulary) Tokenizer() *tokenizer.Tokenizer { return v.tok }

// Single is the token of one byte alone, -1 if there is none.
func (v *Vocabulary) Single(b byte) int32 {
	if i := v.trie.first[b]; i < v.trie.first[int(b)+1] {
		return v.trie.id[i]
	}
	return -1
}

// Ends are the tokens that end a turn.
func (v *Vocabulary) Ends() []int32 { return slices.Clone(v.ends) }

// MemoryBytes is about what the vocabulary holds beside its tokenizer.
func (v *Vocabulary) MemoryBytes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.trie.bytes() + len(v.added) + 4*len(v.blanks)
	for _, at := range v.behindBlank {
		n += 4 * len(at)
	}
	for _, s := range v.slices {
		n += s.size
	}
	return n
}
