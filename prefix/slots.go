package prefix

import "slices"

// Slots models the cache of a llama-server, which is no tree: each slot has the one
// sequence that it served last, and a sequence of which a slot is about to lose more
// than half is put by in memory (release 11434, --slot-prompt-similarity 0.1). What is
// given up behind a branch that keeps at least half is gone. Used by one goroutine at
// a time.
type Slots struct {
	slots []slot
	by    [][]int32 // put by, oldest first
	max   int       // tokens of by
	clock int
}

type slot struct {
	ids  []int32
	used int // by clock
	busy bool
}

// NewSlots returns a model of n slots, all empty, that puts by at most maxTokens.
func NewSlots(n, maxTokens int) *Slots { return &Slots{slots: make([]slot, n), max: maxTokens} }

// Match is how many of the first ids of a prompt would be found.
func (s *Slots) Match(ids []int32) int {
	i, loses := s.choose(ids)
	if i < 0 {
		return 0
	}
	have := s.slots[i].ids
	if j := s.better(have, ids); loses && j >= 0 {
		have = s.by[j]
	}
	return Common(have, ids)
}

// Take gives a prompt to a slot, which is busy until Free. It returns its number, -1
// when all are busy.
func (s *Slots) Take(ids []int32) int {
	i, loses := s.choose(ids)
	if i < 0 {
		return -1
	}
	if loses {
		had := s.slots[i].ids
		s.putBy(had)
		if j := s.better(had, ids); j >= 0 {
			s.by = slices.Delete(s.by, j, j+1)
		}
	}
	s.slots[i].busy = true
	s.Hold(i, ids)
	return i
}

// Beside takes the first free slot for a further choice of a prompt, -1 when all are
// busy. What it had is gone.
func (s *Slots) Beside(ids []int32) int {
	i := slices.IndexFunc(s.slots, func(o slot) bool { return !o.busy })
	if i >= 0 {
		s.Hold(i, ids)
	}
	return i
}

// Hold says which sequence a slot has now.
func (s *Slots) Hold(i int, ids []int32) {
	s.clock++
	s.slots[i].ids, s.slots[i].used = ids, s.clock
}

// Free says that a slot has answered.
func (s *Slots) Free(i int) { s.slots[i].busy = false }

// choose picks the free slot with the longest common beginning, if that is more than
// a tenth of the prompt, else the one used least recently. loses says that the slot
// keeps less than half of what it has.
func (s *Slots) choose(ids []int32) (at int, loses bool) {
	const similar = 0.1
	best := float32(0)
	at = -1
	for i, o := range s.slots {
		if share := float32(Common(o.ids, ids)) / float32(len(ids)); !o.busy && share > best && share > similar {
			at, best = i, share
		}
	}
	if at >= 0 {
		return at, best*float32(len(ids))/float32(len(s.slots[at].ids)) < 0.5
	}
	for i, o := range s.slots {
		if !o.busy && (at < 0 || o.used <= s.slots[at].used) {
			at = i
		}
	}
	return at, true
}

// better is the sequence put by that shares more with a prompt than have does, and
// loses less by it; -1 for none.
func (s *Slots) better(have, ids []int32) int {
	share := func(of []int32) (keeps, shares float32) {
		n := float32(Common(of, ids))
		return n / float32(len(of)), n / float32(len(ids))
	}
	keeps, shares := float32(-1), float32(0)
	if len(have) > 0 {
		keeps, shares = share(have)
	}
	at := -1
	for i, of := range s.by {
		if k, sh := share(of); k >= 0.25 && k > keeps && sh > shares {
			at, keeps, shares = i, k, sh
		}
	}
	return at
}

// putBy keeps a sequence unless one has it already, instead of those that it has.
func (s *Slots) putBy(ids []int32) {
	if len(ids) == 0 || slices.ContainsFunc(s.by, func(of []int32) bool { return Common(of, ids) == len(ids) }) {
		return
	}
	s.by = slices.DeleteFunc(s.by, func(of []int32) bool { return Common(of, ids) == len(of) })
	s.by = append(s.by, ids)
	size := 0
	for _, of := range s.by {
		size += len(of)
	}
	for size > s.max && len(s.by) > 0 {
		size -= len(s.by[0])
		s.by = s.by[1:]
	}
}
