package token

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
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
	index       index
	backslashed []int32       // tokens with a backslash
	spelled     []int32       // those with \u before a quote, and plain characters but for escapes before that
	blanks      bitmap        // tokens of nothing but JSON's white space
	behindBlank [256][]uint32 // nodes of the trie behind white space only, by their byte

	escapes, quotedEscapes escapes // the latter with a quote before

	leastLoop int // how many characters a loop must have, see minLoop

	shelf shelf

	mu     sync.Mutex // guards all below, and what slices make when needed
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
	all := make([]keyed, 0, v.size)
	var alone [256]bool
	for id := range int32(v.size) {
		if v.added[id] {
			continue
		}
		b, _, ok := tok.Token(id)
		if !ok || len(b) > far {
			continue
		}
		all = append(all, keyed{head(b), id})
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
	text := func(id int32) []byte {
		b, _, _ := v.tok.Token(id)
		return b
	}
	all = sorted(all, text)
	v.trie.build(len(all), func(i int) ([]byte, int32) { return text(all[i].id), all[i].id })
	v.spaces()
	v.index.build(&v.trie, v.size)
	v.backslashes()
	v.leastLoop = minLoop
	digits := Chars{ASCII: [2]uint64{0x3FF << '0'}}
	if of := v.index.whole(&digits); of.count() > manyDigits {
		v.leastLoop = digits.plain()
		v.leavers(v.slice(digits), blank+",.Ee]}") // what may follow in a number
	}
	for _, e := range []Escapes{EscapeShort | EscapeU, EscapeShort | EscapeU | EscapePairs | EscapeHalf} {
		s := v.slice(withEscapes(AnyChar, e)) // what nearly every schema needs
		v.sortBehind(s, '"')
		v.sortOpening(s)
	}
	return v, nil
}

func withEscapes(c Chars, e Escapes) Chars {
	c.Escapes = e
	return c
}

// A keyed token is on its way into a trie.
type keyed struct {
	head uint64 // its first bytes
	id   int32
}

// sorted orders tokens by bytes, those with the same the lowest id last: by
// their first eight bytes one after another, then where these are equal. It
// takes the place of all.
func sorted(all []keyed, text func(id int32) []byte) []keyed {
	var at [8][256]int32 // by place of a byte, from the last: how many there are, then where they go
	for _, k := range all {
		for i := range at {
			at[i][k.head>>(8*i)&0xFF]++
		}
	}
	other := make([]keyed, len(all))
	for i := range at {
		sum := int32(0)
		for b, n := range at[i] {
			at[i][b] = sum
			sum += n
		}
		for _, k := range all {
			to := &at[i][k.head>>(8*i)&0xFF]
			other[*to] = k
			*to++
		}
		all, other = other, all
	}
	for from := 0; from < len(all); {
		end := from + 1
		for end < len(all) && all[end].head == all[from].head {
			end++
		}
		if end > from+1 {
			slices.SortFunc(all[from:end], func(x, y keyed) int {
				return cmp.Or(bytes.Compare(text(x.id), text(y.id)), cmp.Compare(y.id, x.id))
			})
		}
		from = end
	}
	return all
}

// head is the first eight bytes of b as a number, in the order of the bytes.
func head(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	n := uint64(0)
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n << (8 * (8 - len(b)) & 63)
}

// build takes n tokens sorted by bytes, of which token gives the text and what
// id says of it. Of those with the same text the last counts.
func (t *trie) build(n int, token func(i int) ([]byte, int32)) {
	nodes := 0
	same := make([]uint8, n) // bytes that a token shares with the one before
	var prev []byte
	for i := range n {
		text, _ := token(i)
		k := shared(prev, text)
		same[i] = uint8(k)
		nodes += len(text) - k
		prev = text
	}
	t.b, t.end, t.id = make([]byte, nodes), make([]uint32, nodes), make([]int32, nodes)
	var open [far + 1]uint32 // nodes on the way to the last token
	depth, at := 0, 0
	for i := range n {
		text, id := token(i)
		for ; depth > int(same[i]); depth-- {
			t.end[open[depth-1]] = uint32(at)
		}
		for _, c := range text[depth:] {
			open[depth] = uint32(at)
			depth++
			t.b[at], t.id[at] = c, -1
			at++
		}
		t.id[at-1] = id
	}
	for _, n := range open[:depth] {
		t.end[n] = uint32(at)
	}
	first := uint32(0)
	for c := range 257 {
		for first < uint32(len(t.b)) && int(t.b[first]) < c {
			first = t.end[first]
		}
		t.first[c] = first
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

// Escapes are the tokens that begin to spell characters of a string by their
// codes: plain ones, a backslash, and maybe u and digits.
type escapes struct {
	short [256][]escape // by the first byte before the backslash, 0 if there is none
	long  []int32       // whose code is whole, and maybe more follows
}

type escape struct {
	id     int32
	plain  string // before the backslash
	digits string // of the code, in lower case
}

// backslashes finds the tokens with a backslash, and what they are to escapes.
func (v *Vocabulary) backslashes() {
	for i, set := range v.index.has['\\'] {
		for ; set != 0; set &= set - 1 {
			id := int32(i*64 + bits.TrailingZeros64(set))
			text, _, _ := v.tok.Token(id)
			v.backslashed = append(v.backslashed, id)
			if u := bytes.Index(text, []byte(`\u`)); u >= 0 && bytes.IndexByte(text[u:], '"') > 0 {
				v.spelled = append(v.spelled, id)
			}
			v.escape(id, text)
		}
	}
}

func (v *Vocabulary) escape(id int32, text []byte) {
	to := &v.escapes
	if text[0] == '"' {
		to = &v.quotedEscapes
		text = text[1:]
	}
	at := bytes.IndexByte(text, '\\')
	if at < 0 || !AnyChar.scan(text[:at]).whole {
		return
	}
	e := escape{id: id, plain: string(text[:at])}
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
			if i == 3 {
				to.long = append(to.long, id)
				return
			}
		}
	}
	first := byte(0)
	if e.plain != "" {
		first = e.plain[0]
	}
	to.short[first] = append(to.short[first], e)
}

// spell adds the tokens, not those of whole codes, with which the spelling of a
// word can begin.
func (es *escapes) spell(word string, add func(id int32)) {
	if word == "" {
		return
	}
	for _, list := range [...][]escape{es.short[0], es.short[word[0]]} {
		for i := range list {
			if e := &list[i]; e.begins(word) {
				add(e.id)
			}
		}
	}
}

func (e *escape) begins(word string) bool {
	if len(e.plain) >= len(word) || word[:len(e.plain)] != e.plain {
		return false
	}
	if e.digits == "" {
		return true
	}
	r, _ := utf8.DecodeRuneInString(word[len(e.plain):])
	if r > 0xFFFF {
		r, _ = utf16.EncodeRune(r)
	}
	for i := range len(e.digits) {
		if d, _ := hexDigit(e.digits[i]); rune(d) != r>>(12-4*i)&15 {
			return false
		}
	}
	return true
}

const blank = "\t\n\r "

// spaces finds the tokens of white space and what stands behind it.
func (v *Vocabulary) spaces() {
	t := &v.trie
	v.blanks = make(bitmap, v.Words())
	var below func(i, end uint32)
	below = func(i, end uint32) {
		for ; i < end; i = t.end[i] {
			if !isBlank(t.b[i]) {
				v.behindBlank[t.b[i]] = append(v.behindBlank[t.b[i]], i)
				continue
			}
			if t.id[i] >= 0 {
				v.blanks.set(t.id[i])
			}
			below(i+1, t.end[i])
		}
	}
	for _, b := range []byte(blank) {
		if i := t.first[b]; i < t.first[int(b)+1] {
			if t.id[i] >= 0 {
				v.blanks.set(t.id[i])
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
	n := v.trie.bytes() + v.index.bytes() + len(v.added) + 8*len(v.blanks) + 4*len(v.backslashed) + 4*len(v.spelled) + v.shelf.bytes()
	for _, at := range v.behindBlank {
		n += 4 * len(at)
	}
	for _, s := range v.slices {
		n += s.size
	}
	return n
}
