// Package tokentest holds slow and obvious twins of what package token does,
// for the tests of its sources.
package tokentest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// T is what is needed of a test.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A Twin walks a source byte by byte and remembers nothing but its steps.
type Twin struct {
	t     T
	src   token.Source
	start uint32
	rows  map[uint32]*[256]int64 // 0: not asked; else 1 + where it leads
	live  map[uint32]bool
}

// New is the twin of a source that nobody else uses.
func New(t T, src token.Source) *Twin {
	t.Helper()
	start, err := src.Start()
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return &Twin{t, src, start, map[uint32]*[256]int64{}, map[uint32]bool{}}
}

// Step is where b leads from s.
func (w *Twin) Step(s uint32, b byte) uint32 {
	if s == 0 {
		return 0
	}
	r := w.rows[s]
	if r == nil {
		r = new([256]int64)
		w.rows[s] = r
	}
	if r[b] == 0 {
		n, err := w.src.Step(s, b)
		if err != nil {
			w.t.Fatalf("step: %v", err)
		}
		r[b] = 1 + int64(n)
	}
	return uint32(r[b] - 1)
}

// At is where text leads.
func (w *Twin) At(text []byte) uint32 {
	s := w.start
	for _, b := range text {
		s = w.Step(s, b)
	}
	return s
}

// Accepts tells whether the source accepts text.
func (w *Twin) Accepts(text []byte) bool {
	s := w.At(text)
	return s != 0 && w.src.Accepting(s)
}

// Mask is every token's bytes through the source, and if live is set then a
// search for a way to the end.
func (w *Twin) Mask(v *token.Vocabulary, text []byte, live bool) []uint64 {
	w.t.Helper()
	from := w.At(text)
	out := make([]uint64, v.Words())
	tok := v.Tokenizer()
	for id := range int32(v.Size()) {
		b, _, ok := tok.Token(id)
		if !ok || tok.IsAdded(id) || len(b) > 128 || from == 0 {
			continue
		}
		s := from
		for _, x := range b {
			if s = w.Step(s, x); s == 0 {
				break
			}
		}
		if s == 0 {
			continue
		}
		if live {
			if _, ok, _ := w.Ending(s); !ok {
				continue
			}
		}
		out[id>>6] |= 1 << (id & 63)
	}
	if from != 0 && w.src.Accepting(from) {
		for _, id := range v.Ends() {
			out[id>>6] |= 1 << (id & 63)
		}
	}
	return out
}

const closers = "{[tn ,0\"]}" // the last first

// Ending finds bytes that lead from s to an accepting state, or to one known to
// be live. It gets tired of sources that recurse too widely.
func (w *Twin) Ending(s uint32) (text []byte, ok, tired bool) {
	if w.src.Accepting(s) {
		return nil, true, false
	}
	return w.ending(s)
}

func (w *Twin) ending(s uint32) (text []byte, ok, tired bool) {
	if w.live[s] {
		return nil, true, false
	}
	type at struct {
		s  uint32
		of []byte // still to be tried, the last first
	}
	// What closes comes first, so that the search is short.
	choices := func(s uint32) []byte {
		class := w.src.Classes(s)
		n := int(slices.Max(class[:]))
		of := make([]byte, 0, n)
		for k := 1; k <= n; k++ {
			// Of a class the byte that closes most.
			best := byte(bytes.IndexByte(class[:], uint8(k)))
			for i := len(closers) - 1; i >= 0; i-- {
				if int(class[closers[i]]) == k {
					best = closers[i]
					break
				}
			}
			of = append(of, best)
		}
		order := closers
		if class['~'] != 0 { // in a string
			order += "\""
		}
		last := func(b byte) int { return bytes.LastIndexByte([]byte(order), b) }
		slices.SortStableFunc(of, func(x, y byte) int { return last(x) - last(y) })
		return of
	}
	seen := map[uint32]bool{s: true}
	path := []at{{s, choices(s)}}
	for steps := 0; len(path) > 0; steps++ {
		if steps > 500_000 {
			return nil, false, true
		}
		top := &path[len(path)-1]
		if len(top.of) == 0 || len(path) > 100_000 {
			path = path[:len(path)-1]
			text = text[:max(0, len(text)-1)]
			continue
		}
		b := top.of[len(top.of)-1]
		top.of = top.of[:len(top.of)-1]
		n := w.Step(top.s, b)
		if n == 0 || seen[n] {
			continue
		}
		seen[n] = true
		text = append(text, b)
		if w.src.Accepting(n) || w.live[n] {
			for _, p := range path {
				w.live[p.s] = true
			}
			w.live[n] = true
			return text, true, false
		}
		path = append(path, at{n, choices(n)})
	}
	return nil, false, false
}

// End is Ending without the use of what is known, so that text leads to an
// accepting state.
func (w *Twin) End(text []byte) (rest []byte, ok, tired bool) {
	fresh := &Twin{w.t, w.src, w.start, w.rows, map[uint32]bool{}}
	return fresh.Ending(fresh.At(text))
}

// Walk goes through random tokens that masks allow, n at most and then on the
// way to the end that w finds; nil if that gets tired. visit sees every place.
func Walk(t T, g *token.Grammar, w *Twin, rng *rand.Rand, n int, visit func(m *token.Matcher, text []byte, mask []uint64)) []byte {
	t.Helper()
	m, err := g.Matcher()
	if err != nil {
		t.Fatalf("matcher: %v", err)
	}
	v := g.Vocabulary()
	mask := make([]uint64, v.Words())
	var text, rest []byte
	hurry := false
	for i := 0; !m.Done(); i++ {
		if err := m.Fill(mask); err != nil {
			t.Fatalf("mask after %q: %v", text, err)
		}
		if visit != nil {
			visit(m, text, mask)
		}
		if i >= n && !hurry {
			var ok, tired bool
			if rest, ok, tired = w.End(text); tired {
				return nil
			}
			if !ok {
				t.Fatalf("no end after %q", text)
			}
			hurry = true
		}
		id := int32(-1)
		switch {
		case hurry && len(rest) == 0:
			id = v.Ends()[0]
		case hurry:
			id = v.Single(rest[0])
			rest = rest[1:]
		default:
			id = Draw(rng, mask)
		}
		if id < 0 || mask[id>>6]>>(id&63)&1 == 0 {
			t.Fatalf("stuck after %q", text)
		}
		if err := m.Advance(id); err != nil {
			t.Fatalf("allowed after %q: %v", text, err)
		}
		if !m.Done() {
			b, _, _ := v.Tokenizer().Token(id)
			text = append(text, b...)
		}
	}
	if !m.Accepts() {
		t.Fatalf("done, but not accepted: %q", text)
	}
	return text
}

// Ranks is a vocabulary of all bytes, and then more.
func Ranks(t T, more ...string) *tokenizer.Tokenizer {
	t.Helper()
	var b bytes.Buffer
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
	tok, err := tokenizer.ParseRanks(b.Bytes(), tokenizer.RanksConfig{Pattern: "o200k"})
	if err != nil {
		t.Fatalf("ranks: %v", err)
	}
	return tok
}

// Draw picks one of some allowed tokens; -1 if there is none.
func Draw(rng *rand.Rand, mask []uint64) int32 {
	var ids []int32
	from := rng.IntN(len(mask))
	for k := range mask {
		w := (from + k) % len(mask)
		for b := range 64 {
			if mask[w]>>b&1 == 1 {
				ids = append(ids, int32(w*64+b))
			}
		}
		if len(ids) > 0 {
			return ids[rng.IntN(len(ids))]
		}
	}
	return -1
}

// Compare fails where two masks differ.
func Compare(t T, v *token.Vocabulary, name string, text []byte, got, want []uint64) {
	t.Helper()
	for w := range got {
		if got[w] == want[w] {
			continue
		}
		for b := range 64 {
			id := int32(w*64 + b)
			if g, x := got[w]>>b&1, want[w]>>b&1; g != x {
				tok, _, _ := v.Tokenizer().Token(id)
				t.Fatalf("%s: after %.300q token %d %q: mask %d, whole vocabulary %d", name, text, id, tok, g, x)
			}
		}
	}
}
