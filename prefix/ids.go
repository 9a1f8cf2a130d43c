package prefix

import (
	"encoding/binary"
	"errors"
	"math"
)

// IDs is a list of token ids in varints of seven bits: two bytes for the 16,384
// first ids of a vocabulary, which are its frequent ones, three for the others.
// Ids stand in the ledger once, each entry with those that follow the entry
// before it.
type IDs []byte

// PackIDs packs a list. An id below 0 is a fault of the caller.
func PackIDs(ids []int32) IDs {
	if len(ids) == 0 {
		return nil
	}
	b := make(IDs, 0, 5*len(ids)/2)
	for _, id := range ids {
		if id < 0 {
			panic("prefix: a token id below 0")
		}
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// Append appends the ids to dst.
func (p IDs) Append(dst []int32) []int32 {
	for len(p) > 0 {
		id, n := binary.Uvarint(p)
		if n <= 0 {
			panic("prefix: ids that were not packed") // bytes from outside are checked where they come in
		}
		dst = append(dst, int32(id))
		p = p[n:]
	}
	return dst
}

var errIDs = errors.New("prefix: bytes that are no list of token ids")

// check says whether the bytes are what PackIDs makes.
func (p IDs) check() error {
	for len(p) > 0 {
		id, n := binary.Uvarint(p)
		if n <= 0 || id > math.MaxInt32 {
			return errIDs
		}
		p = p[n:]
	}
	return nil
}
