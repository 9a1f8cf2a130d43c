package grammar

import (
	"math/bits"
	"sync"
)

// alphabets are tables of which bytes lead to the same, see token.Source, that
// all automata share: most places of most schemas tell apart the same few sets
// of bytes.
var alphabets struct {
	sync.RWMutex                        // guards tables
	tables       map[string]*[256]uint8 // by how the classes follow one another
}

// maxAlphabets bounds how many tables are shared at once, some 350 bytes each.
const maxAlphabets = 4096

// alphabet is the table of classes that follow one another as in runs: pairs of
// a byte and the class from there on, before the first of which it is 0.
func alphabet(runs []byte) *[256]uint8 {
	alphabets.RLock()
	t := alphabets.tables[string(runs)]
	alphabets.RUnlock()
	if t != nil {
		return t
	}
	t = new([256]uint8)
	for i := 0; i < len(runs); i += 2 {
		end := 256
		if i+2 < len(runs) {
			end = int(runs[i+2])
		}
		for b := int(runs[i]); b < end; b++ {
			t[b] = runs[i+1]
		}
	}
	alphabets.Lock()
	defer alphabets.Unlock()
	if known := alphabets.tables[string(runs)]; known != nil {
		return known
	}
	if alphabets.tables == nil || len(alphabets.tables) >= maxAlphabets {
		alphabets.tables = map[string]*[256]uint8{}
	}
	alphabets.tables[string(runs)] = t
	return t
}

// classes sorts bytes by where they lead from ts.
func (p *program) classes(ts []thread) *[256]uint8 {
	var cut [4]uint64 // bytes that may lead elsewhere than the one before
	mark := func(lo, hi byte) {
		cut[lo>>6] |= 1 << (lo & 63)
		if hi < 255 {
			cut[(hi+1)>>6] |= 1 << ((hi + 1) & 63)
		}
	}
	for _, t := range ts {
		switch n := &p.nodes[t.node]; n.op {
		case opByte:
			mark(n.lo, n.hi)
		case opSet:
			for _, r := range p.ranges[n.a : n.a+n.b] {
				mark(r.lo, r.hi)
			}
		}
	}
	type kind struct {
		sum uint64
		of  byte
	}
	var some [16]kind
	var room [64]byte
	kinds, runs := some[:0], room[:0]
	now := uint8(0)
	for i, set := range cut {
		for ; set != 0; set &= set - 1 {
			b := byte(i*64 + bits.TrailingZeros64(set))
			sum := uint64(0)
			for i, t := range ts {
				if to := p.on(t.node, b); to >= 0 {
					sum = (sum ^ uint64(i)<<32 ^ uint64(to) + 1) * 0x9E3779B97F4A7C15
					sum ^= sum >> 29
				}
			}
			class := uint8(0)
			if sum != 0 {
				for k, o := range kinds {
					if o.sum == sum && p.sameTargets(ts, o.of, b) {
						class = uint8(k + 1)
						break
					}
				}
				if class == 0 { // at most 255 of them: byte 0 never fits
					kinds = append(kinds, kind{sum, b})
					class = uint8(len(kinds))
				}
			}
			if class != now {
				runs = append(runs, b, class)
				now = class
			}
		}
	}
	return alphabet(runs)
}

func (p *program) sameTargets(ts []thread, x, y byte) bool {
	for _, t := range ts {
		if p.on(t.node, x) != p.on(t.node, y) {
			return false
		}
	}
	return true
}
