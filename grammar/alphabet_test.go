package grammar

import (
	"math/rand/v2"
	"testing"
)

// TestAlphabet compares classes with where each byte leads, over random sets
// of nodes; equal tables are one until there are too many.
func TestAlphabet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range maxAlphabets + 200 {
		w := &assembler{p: &program{}}
		var ts []thread
		for range 1 + rng.IntN(3) {
			var rs []byteRange
			for b := rng.IntN(300); b < 256; b += 1 + rng.IntN(120) {
				hi := min(255, b+rng.IntN(30))
				rs = append(rs, byteRange{byte(b), byte(hi), int32(rng.IntN(3))})
				b = hi
			}
			if len(rs) > 0 {
				ts = append(ts, thread{node: w.set(rs)})
			}
		}
		var leads [256][3]int32
		for b := range leads {
			leads[b] = [3]int32{-1, -1, -1}
			for i, t := range ts {
				leads[b][i] = w.p.on(t.node, byte(b))
			}
		}
		class := w.p.classes(ts)
		for b := range 256 {
			if dead := leads[b] == [3]int32{-1, -1, -1}; dead != (class[b] == 0) {
				t.Fatalf("byte %#x leads to %v and is of class %d", b, leads[b], class[b])
			}
			for o := rng.IntN(9); o < b; o += 1 + rng.IntN(9) {
				if (leads[b] == leads[o]) != (class[b] == class[o]) {
					t.Fatalf("bytes %#x and %#x lead to %v and %v and are of classes %d and %d", b, o, leads[b], leads[o], class[b], class[o])
				}
			}
		}
	}
	if n := len(alphabets.tables); n == 0 || n > maxAlphabets {
		t.Errorf("%d tables are shared", n)
	}
	w := &assembler{p: &program{}}
	one, other := []thread{{node: w.byte('x', 0)}}, []thread{{node: w.byte('x', 1)}}
	if w.p.classes(one) != w.p.classes(other) {
		t.Error("equal tables are two")
	}
}
