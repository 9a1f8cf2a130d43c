package token

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
)

// A shelf holds the masks of a vocabulary that were made last, of whatever
// grammar, so that equal masks are one. It is safe for concurrent use.
type shelf struct {
	mu         sync.Mutex // guards all below
	seed       [2]uint64  // of hashes, so that no schema can make them collide
	young, old map[uint64]*Mask
	size       int // bytes of young
}

// maxShelf bounds each of the two generations of a shelf, in bytes. A mask
// takes 0.1 to 30 kB.
const maxShelf = 8 << 20

// mask is the mask of a base and patches, which are copied if it is new.
func (s *shelf) mask(words int, base *bitmap, patches []patch) *Mask {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.young == nil {
		s.seed = [2]uint64{rand.Uint64(), rand.Uint64()}
		s.young = map[uint64]*Mask{}
	}
	sum := s.seed[1]
	for _, p := range patches {
		hi, lo := bits.Mul64(p.bits^s.seed[0], s.seed[1]^uint64(p.word))
		sum += hi ^ lo
	}
	same := func(m *Mask) bool { return m != nil && m.base == base && slices.Equal(m.patches, patches) }
	if m := s.young[sum]; same(m) {
		return m
	}
	m := s.old[sum]
	if !same(m) {
		m = &Mask{words: words, base: base, patches: slices.Clone(patches)}
	}
	if n := m.bytes(); s.size+n > maxShelf {
		s.old, s.young, s.size = s.young, map[uint64]*Mask{}, n
	} else {
		s.size += n
	}
	s.young[sum] = m
	return m
}

// clear forgets all masks.
func (s *shelf) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.young, s.old, s.size = map[uint64]*Mask{}, nil, 0
}

// bytes is about what the shelf holds.
func (s *shelf) bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.size
	for _, m := range s.old {
		n += m.bytes()
	}
	return n
}
