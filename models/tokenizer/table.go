package tokenizer

import "hash/maphash"

// A vocabulary holds the bytes of every ordinary token, one after the other.
type vocabulary struct {
	bytes []byte
	start []uint32 // of token id; one longer than the number of ids
}

func (v *vocabulary) size() int { return len(v.start) - 1 }

// token is the bytes of id, empty if id has none.
func (v *vocabulary) token(id int32) []byte {
	a, b := v.start[id], v.start[id+1]
	return v.bytes[a:b:b]
}

// A pieceTable finds the token that is spelled as a whole piece. It probes
// linearly from the hash of the bytes; a slot holds 32 bits of that hash and
// the id + 1.
type pieceTable struct {
	seed  maphash.Seed
	slots []pieceSlot // power of two, at most half full
	vocab *vocabulary
}

type pieceSlot struct {
	tag uint32
	id1 int32 // id + 1; 0 is an empty slot
}

func newPieceTable(v *vocabulary, n int) *pieceTable {
	return &pieceTable{seed: maphash.MakeSeed(), slots: make([]pieceSlot, slotsFor(n)), vocab: v}
}

// slotsFor is the number of slots for n entries: the power of two that leaves
// at least half of them empty.
func slotsFor(n int) int {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return size
}

// add enters id under its bytes and reports whether they were new.
func (t *pieceTable) add(id int32) bool {
	b := t.vocab.token(id)
	h := maphash.Bytes(t.seed, b)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s.id1 == 0 {
			t.slots[i] = pieceSlot{uint32(h >> 32), id + 1}
			return true
		}
		if s.tag == uint32(h>>32) && string(t.vocab.token(s.id1-1)) == string(b) {
			return false
		}
	}
}

func (t *pieceTable) find(p string) (int32, bool) {
	h := maphash.String(t.seed, p)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s.id1 == 0 {
			return 0, false
		}
		if s.tag == uint32(h>>32) && string(t.vocab.token(s.id1-1)) == p {
			return s.id1 - 1, true
		}
	}
}

// A merge replaces two neighbouring tokens by one; the lowest rank goes first.
type merge struct {
	rank int32
	id   int32
}

// none is the merge of a pair that doesn't merge.
var none = merge{rank: noRank, id: -1}

const noRank = 1<<31 - 1

// A pairTable finds the merge of two tokens. It probes linearly.
type pairTable struct {
	slots []pairSlot // power of two, at most half full
	shift uint8      // 64 - log2(len(slots))
}

type pairSlot struct {
	pair  uint64 // left + 1, then right + 1; 0 is an empty slot
	merge merge
}

func newPairTable(n int) *pairTable {
	t := &pairTable{slots: make([]pairSlot, slotsFor(n)), shift: 64}
	for size := len(t.slots); size > 1; size /= 2 {
		t.shift--
	}
	return t
}

func pairKey(left, right int32) uint64 { return uint64(left+1)<<32 | uint64(uint32(right+1)) }

func (t *pairTable) home(key uint64) uint64 {
	return key * 0x9e3779b97f4a7c15 >> t.shift // 2^64 / golden ratio
}

// add keeps the merge of lower rank if the pair is there already.
func (t *pairTable) add(left, right int32, m merge) {
	key := pairKey(left, right)
	mask := uint64(len(t.slots) - 1)
	for i := t.home(key); ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.pair == 0 {
			*s = pairSlot{key, m}
			return
		}
		if s.pair == key {
			if m.rank < s.merge.rank {
				s.merge = m
			}
			return
		}
	}
}

func (t *pairTable) find(left, right int32) merge {
	key := pairKey(left, right)
	mask := uint64(len(t.slots) - 1)
	for i := t.home(key); ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.pair == key {
			return s.merge
		}
		if s.pair == 0 {
			return none
		}
	}
}
