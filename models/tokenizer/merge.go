package tokenizer

import "container/heap"

// A merger is byte-pair encoding within one piece: start from single bytes and,
// as long as any two neighbours merge, do the merge of the lowest rank, the
// leftmost of these first.
type merger struct {
	byteID [256]int32 // token of a single byte; -1 if the vocabulary has none, then the byte is left out
	// first are the merges of two bytes, left byte × 256 + right byte: the look-ups
	// that every piece starts with, in a table that fits the second-level cache.
	first []merge
	pairs *pairTable
}

// shortPiece is the length in bytes up to which a piece is merged by scanning
// an array for the lowest rank at every step, which is quadratic in the length
// but has the lower constant.
const shortPiece = 96

// merge appends the tokens of piece p to dst.
func (m *merger) merge(dst []int32, p string) []int32 {
	if len(p) <= shortPiece {
		return m.mergeShort(dst, p)
	}
	return m.mergeLong(dst, p)
}

func (m *merger) mergeShort(dst []int32, p string) []int32 {
	// Symbol i is ids[i]; ranks[i] and made[i] are its merge with symbol i+1.
	var ids, ranks, made [shortPiece]int32
	n := 0
	prev := byte(0)
	for i := range len(p) {
		id := m.byteID[p[i]]
		if id < 0 {
			continue
		}
		ids[n] = id
		if n > 0 {
			c := m.first[int(prev)<<8|int(p[i])]
			ranks[n-1], made[n-1] = c.rank, c.id
		}
		prev = p[i]
		n++
	}
	for n > 1 {
		at, best := 0, ranks[0]
		for i, r := range ranks[1 : n-1] {
			if r < best {
				at, best = i+1, r
			}
		}
		if best == noRank {
			break
		}
		ids[at] = made[at]
		n--
		for i := at + 1; i < n; i++ {
			ids[i], ranks[i-1], made[i-1] = ids[i+1], ranks[i], made[i]
		}
		if at < n-1 {
			c := m.pairs.find(ids[at], ids[at+1])
			ranks[at], made[at] = c.rank, c.id
		}
		if at > 0 {
			c := m.pairs.find(ids[at-1], ids[at])
			ranks[at-1], made[at-1] = c.rank, c.id
		}
	}
	return append(dst, ids[:n]...)
}

// mergeLong takes O(n log n) time at worst, and less for the long repetitions
// that make long pieces. The candidates wait in runs: positions of one rank in
// rising order, which is how they arise. A heap holds the front of every run,
// so it has about as many entries as there are distinct ranks. A candidate that
// isn't behind the last one of its rank begins a run of its own.
func (m *merger) mergeLong(dst []int32, p string) []int32 {
	type symbol struct {
		id         int32
		prev, next int32 // -1 at the ends
	}
	sym := make([]symbol, 0, len(p))
	for i := range len(p) {
		if id := m.byteID[p[i]]; id >= 0 {
			n := int32(len(sym))
			sym = append(sym, symbol{id, n - 1, n + 1})
		}
	}
	if len(sym) == 0 {
		return dst
	}
	sym[len(sym)-1].next = -1

	q := newQueue(len(sym))
	propose := func(i int32) {
		if j := sym[i].next; j >= 0 {
			if c := m.pairs.find(sym[i].id, sym[j].id); c.rank != noRank {
				q.push(c.rank, i)
			}
		}
	}
	for i := range len(sym) {
		propose(int32(i))
	}
	for {
		rank, i, ok := q.pop()
		if !ok {
			break
		}
		// Stale if the symbol is gone or has another neighbour since.
		s := &sym[i]
		j := s.next
		if s.id < 0 || j < 0 {
			continue
		}
		c := m.pairs.find(s.id, sym[j].id)
		if c.rank != rank {
			continue
		}
		s.id = c.id
		s.next = sym[j].next
		sym[j].id = -1
		if s.next >= 0 {
			sym[s.next].prev = i
		}
		if s.prev >= 0 {
			propose(s.prev)
		}
		propose(i)
	}
	for i := int32(0); i >= 0; i = sym[i].next {
		dst = append(dst, sym[i].id)
	}
	return dst
}

// A queue gives back (rank, position) pairs in rising order.
type queue struct {
	fronts runHeap
	open   map[int32]int32 // rank -> the run that is added to, by index in runs
	runs   []run
	cells  []cell
	free   int32 // list of cells given back, -1 at the end

	lastRank, lastRun int32 // of the last push
}

// A run is a list of cells with rising positions.
type run struct {
	rank        int32
	front, back int32 // index of a cell; front -1 is an empty run, which has no entry in fronts
}

type cell struct {
	pos  int32
	next int32 // -1 at the end
}

type runHeap struct {
	key []uint64 // rank, then the position of the front
	run []int32
}

func (h *runHeap) Len() int           { return len(h.key) }
func (h *runHeap) Less(i, j int) bool { return h.key[i] < h.key[j] }
func (h *runHeap) Swap(i, j int) {
	h.key[i], h.key[j] = h.key[j], h.key[i]
	h.run[i], h.run[j] = h.run[j], h.run[i]
}
func (h *runHeap) Push(any) { panic("tokenizer: entries are appended by queue.push") }
func (h *runHeap) Pop() any {
	h.key = h.key[:len(h.key)-1]
	h.run = h.run[:len(h.run)-1]
	return nil
}

func newQueue(n int) *queue {
	return &queue{open: make(map[int32]int32), cells: make([]cell, 0, n), free: -1, lastRank: -1}
}

func key(rank, pos int32) uint64 { return uint64(rank)<<32 | uint64(uint32(pos)) }

func (q *queue) push(rank, pos int32) {
	c := q.free
	if c >= 0 {
		q.free = q.cells[c].next
		q.cells[c] = cell{pos, -1}
	} else {
		c = int32(len(q.cells))
		q.cells = append(q.cells, cell{pos, -1})
	}
	r, ok := q.lastRun, q.lastRank == rank
	if !ok {
		r, ok = q.open[rank]
	}
	if ok {
		u := &q.runs[r]
		if u.front >= 0 && q.cells[u.back].pos < pos {
			q.cells[u.back].next = c
			u.back = c
			q.lastRank, q.lastRun = rank, r
			return
		}
	}
	r = int32(len(q.runs))
	q.runs = append(q.runs, run{rank, c, c})
	q.open[rank] = r
	q.lastRank, q.lastRun = rank, r
	q.fronts.key = append(q.fronts.key, key(rank, pos))
	q.fronts.run = append(q.fronts.run, r)
	heap.Fix(&q.fronts, q.fronts.Len()-1)
}

func (q *queue) pop() (rank, pos int32, ok bool) {
	if q.fronts.Len() == 0 {
		return 0, 0, false
	}
	r := &q.runs[q.fronts.run[0]]
	c := &q.cells[r.front]
	rank, pos = r.rank, c.pos
	r.front, q.free, c.next = c.next, r.front, q.free
	if r.front < 0 {
		heap.Pop(&q.fronts)
	} else {
		q.fronts.key[0] = key(rank, q.cells[r.front].pos)
		heap.Fix(&q.fronts, 0)
	}
	return rank, pos, true
}
