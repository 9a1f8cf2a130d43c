package store

import (
	"encoding/binary"

	"github.com/toolsidecar/sidecar/prefix"
)

// index tells where the entries of a File stand, in the order of their use. It
// holds no pointers but two, so that millions of entries cost the garbage
// collector nothing. An entry takes about 90 bytes of it.
type index struct {
	at    map[short]int32
	slots []slot // slot 0 is the ring's head: its next is used last, its prev first
	free  int32  // first free slot, linked by next; 0 for none
}

// short is the first half of a key: 128 bits of a hash are enough to tell entries
// apart, and a record is read back with its whole key.
type short [16]byte

func shorten(k prefix.Key) short { return short(k[:16]) }

// slot is one entry.
type slot struct {
	key        short
	name       uint64 // of the conversation
	segment    uint32
	offset     uint32 // in the segment, of the record
	size       uint32 // of the record in bytes
	used       uint32 // seconds since 1970
	prev, next int32
}

func newIndex() index {
	return index{at: map[short]int32{}, slots: make([]slot, 1)}
}

func number64(n prefix.Name) uint64 { return binary.LittleEndian.Uint64(n[:]) }

// add puts a slot in front. Its key must not be there.
func (x *index) add(s slot) {
	i := x.free
	if i != 0 {
		x.free = x.slots[i].next
	} else {
		i = int32(len(x.slots))
		x.slots = append(x.slots, slot{})
	}
	x.slots[i] = s
	x.link(i)
	x.at[s.key] = i
}

func (x *index) link(i int32) {
	first := x.slots[0].next
	x.slots[i].prev, x.slots[i].next = 0, first
	x.slots[first].prev, x.slots[0].next = i, i
}

func (x *index) unlink(i int32) {
	s := &x.slots[i]
	x.slots[s.prev].next, x.slots[s.next].prev = s.next, s.prev
}

// use puts a slot in front.
func (x *index) use(i int32, now uint32) {
	x.slots[i].used = now
	x.unlink(i)
	x.link(i)
}

func (x *index) remove(i int32) {
	x.unlink(i)
	delete(x.at, x.slots[i].key)
	x.slots[i] = slot{next: x.free}
	x.free = i
}

// last is the slot used longest ago, 0 when there is none.
func (x *index) last() int32 { return x.slots[0].prev }
