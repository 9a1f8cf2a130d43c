package token

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestShelf puts random masks on a shelf again and again: equal ones are one
// while they are there, each is written as its base and patches say however
// often, and what is kept stays below the bound.
func TestShelf(t *testing.T) {
	const words = 500
	rng := rand.New(rand.NewPCG(1, 2))
	var s shelf
	var bases [3]*bitmap
	for i := range bases[1:] {
		b := make(bitmap, words)
		for w := range b {
			b[w] = rng.Uint64()
		}
		bases[i+1] = &b
	}
	type twin struct {
		base    *bitmap
		patches []patch
		dense   bitmap
	}
	twins := make([]twin, 4000)
	for i := range twins {
		w := &twins[i]
		w.base, w.dense = bases[rng.IntN(3)], make(bitmap, words)
		if w.base != nil {
			copy(w.dense, *w.base)
		}
		for at := rng.IntN(words); at < words; at += 1 + rng.IntN(3) {
			p := patch{uint32(at), rng.Uint64()}
			w.patches = append(w.patches, p)
			w.dense[at] |= p.bits
		}
	}
	last := map[int]*Mask{}
	shared := 0
	dst := make([]uint64, words+1)
	for n := range 20000 {
		i := rng.IntN(50)
		if rng.IntN(4) == 0 {
			i = rng.IntN(len(twins))
		}
		m := s.mask(words, twins[i].base, twins[i].patches)
		if m == last[i] {
			shared++
		} else if last[i] != nil && i < 50 {
			t.Fatalf("mask %d was dropped while it was in use", i)
		}
		last[i] = m
		dst[words] = 1
		if m.Write(dst); dst[words] != 0 || !slices.Equal(dst[:words], twins[i].dense) {
			t.Fatalf("mask %d is written wrongly", i)
		}
		for id := int32(n % 97); id < words*64; id += 997 {
			if m.Has(id) != twins[i].dense.has(id) {
				t.Fatalf("mask %d: token %d", i, id)
			}
		}
		if kept := s.bytes(); kept > 2*maxShelf {
			t.Fatalf("the shelf holds %d bytes", kept)
		}
	}
	if shared < 10000 || len(s.old) == 0 {
		t.Errorf("%d shared, %d old: the test is too small", shared, len(s.old))
	}
}
