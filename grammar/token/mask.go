package token

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// A Mask is a set of tokens, shared and never changed.
type Mask struct {
	words   int
	base    *bitmap // nil: none
	patches []patch // what comes on top, by word
	written atomic.Int32
	dense   atomic.Pointer[bitmap]
}

// A patch is tokens of one word of a mask.
type patch struct {
	word uint32
	bits uint64
}

// A mask of more than maxPatches words beside its base is written out as a
// bitmap of its own from the time it was written maxSparse times: 128 patches
// add 0.1 µs to writing a mask, while a bitmap of Qwen3's vocabulary takes
// 19 KiB and as long to make as ten masks of some 400 patches to write.
const (
	maxPatches = 128
	maxSparse  = 8
)

// bytes is about what the mask takes beside its base, with a bitmap of its own
// if it may get one.
func (m *Mask) bytes() int {
	n := 96 + 16*len(m.patches)
	if len(m.patches) > maxPatches {
		n += 8 * m.words
	}
	return n
}

// Len is how many words the mask has: bit id%64 of word id/64 is set if the
// token is allowed.
func (m *Mask) Len() int { return m.words }

// Has tells whether a token is in the mask.
func (m *Mask) Has(id int32) bool {
	if id < 0 || int(id>>6) >= m.words {
		return false
	}
	if m.base != nil && m.base.has(id) {
		return true
	}
	at, ok := slices.BinarySearchFunc(m.patches, uint32(id>>6), func(p patch, w uint32) int { return int(p.word) - int(w) })
	return ok && m.patches[at].bits>>(id&63)&1 == 1
}

// Write makes dst, of at least Len words, the mask. Words beyond are cleared.
func (m *Mask) Write(dst []uint64) {
	if b := m.dense.Load(); b != nil {
		clear(dst[copy(dst, *b):])
		return
	}
	if len(m.patches) > maxPatches && m.written.Add(1) > maxSparse {
		clear(dst[copy(dst, m.Bits()):])
		return
	}
	m.fill(dst)
}

func (m *Mask) fill(dst []uint64) {
	n := 0
	if m.base != nil {
		n = copy(dst, *m.base)
	}
	clear(dst[n:])
	for _, p := range m.patches {
		dst[p.word] |= p.bits
	}
}

// Bits is the mask as a bitmap, which nobody may change. It is made at the
// first call and then shared.
func (m *Mask) Bits() []uint64 {
	if b := m.dense.Load(); b != nil {
		return *b
	}
	if m.base != nil && len(m.patches) == 0 {
		m.dense.Store(m.base)
		return *m.base
	}
	b := make(bitmap, m.words)
	m.fill(b)
	m.dense.CompareAndSwap(nil, &b)
	return *m.dense.Load()
}

// Apply is z' = z + M of constrained decoding: M is 0 for the tokens in mask
// and minus infinity for all others. Logits beyond the mask, with which engines
// pad the vocabulary, are masked too.
func Apply(logits []float32, mask []uint64) {
	minus := float32(math.Inf(-1))
	for w := 0; w*64 < len(logits); w++ {
		var m uint64
		if w < len(mask) {
			m = mask[w]
		}
		part := logits[w*64 : min(w*64+64, len(logits))]
		switch m {
		case 0:
			for i := range part {
				part[i] = minus
			}
		case math.MaxUint64:
		default:
			for no := ^m; no != 0; no &= no - 1 {
				if i := bits.TrailingZeros64(no); i < len(part) {
					part[i] = minus
				}
			}
		}
	}
}

// A LimitError says that a mask or a grammar would cost too much.
type LimitError struct {
	Limit string // "mask work"
	Max   int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the grammar needs more %s than %d", e.Limit, e.Max)
}

// maxMaskWork bounds the work of a source on one mask, in units of 50 ns.
const maxMaskWork = 4 << 20

// mask is the tokens of v that may follow s.
func (t *table) mask(v *Vocabulary, s *state) (*Mask, error) {
	if m := s.mask.Load(); m != nil {
		return m, nil
	}
	same := s
	if s != dead {
		same = t.canonical(s)
	}
	m := same.mask.Load()
	if m != nil {
		s.mask.Store(m)
		return m, nil
	}
	w := walkers.Get().(*walker)
	defer walkers.Put(w)
	m, err := w.mask(t, v, same)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(m)
	if same != dead {
		same.mask.CompareAndSwap(nil, m)
		m = same.mask.Load()
		s.mask.CompareAndSwap(nil, m)
	}
	return m, nil
}

// keep counts a mask, which others may hold as well.
func (t *table) keep(m *Mask) {
	if _, ok := t.masks[m]; !ok {
		t.masks[m] = struct{}{}
		t.kept += 16 + m.bytes()
		t.account()
	}
}

// A walker finds a mask.
type walker struct {
	t     *table
	v     *Vocabulary
	base  *bitmap
	found bitmap // all zero between masks
	dirty bitmap // words of found that aren't
	work  int
	asked int // steps

	patches []patch  // scratch
	alive   []string // scratch
	passed  []int32  // scratch

	leaves      [][]leaver // what ids in the trie mean; nil: tokens
	least, most int        // chars of leavers that count
	parts       int        // see maxParts
}

var walkers = sync.Pool{New: func() any { return new(walker) }}

func (w *walker) mask(t *table, v *Vocabulary, s *state) (*Mask, error) {
	w.t, w.v, w.base, w.leaves, w.work = t, v, nil, nil, 0
	if n := v.Words(); len(w.found) != n {
		w.found, w.dirty = make(bitmap, n), make(bitmap, (n+63)/64)
	}
	err := w.all(s)
	if s.accepting {
		for _, id := range v.ends {
			w.add(id)
		}
	}
	m := w.take()
	w.t, w.v = nil, nil
	return m, err
}

// take is what was found as a mask.
func (w *walker) take() *Mask {
	w.patches = w.patches[:0]
	for i, d := range w.dirty {
		if d == 0 {
			continue
		}
		w.dirty[i] = 0
		for ; d != 0; d &= d - 1 {
			at := i*64 + bits.TrailingZeros64(d)
			if set := w.found[at]; set != 0 {
				w.patches = append(w.patches, patch{uint32(at), set})
				w.found[at] = 0
			}
		}
	}
	return w.v.shelf.mask(len(w.found), w.base, w.patches)
}

func (w *walker) add(id int32) {
	w.found[id>>6] |= 1 << (id & 63)
	w.dirty[id>>12] |= 1 << (id >> 6 & 63)
}

func (w *walker) reached(id int32) {
	if w.leaves == nil {
		w.add(id)
		return
	}
	for _, l := range w.leaves[id] {
		if int(l.chars) > w.most {
			break
		}
		if int(l.chars) >= w.least {
			w.add(l.id)
		}
	}
}

// all adds what may follow s: what a slice knows and the tokens that leave the
// run, or whatever fits of the whole vocabulary.
func (w *walker) all(s *state) error {
	if s == dead {
		return nil
	}
	w.special(s)
	text := w.t.textOf(s)
	if text == noText {
		r := w.t.rowOf(s)
		loop, ok, err := w.loop(s, r)
		if err != nil {
			return err
		}
		if !ok {
			if loop, ok, err = w.region(s, r); err != nil {
				return err
			}
		}
		if !ok {
			return w.outside(s, r)
		}
		text = &loop
	}
	if text.Behind != nil {
		return w.words(s, text)
	}
	sl := w.v.slice(text.Chars)
	w.base = w.v.within(sl, text.Max)
	switch {
	case text.Free:
		return w.free(s, text, sl)
	case text.Alike:
		return w.alike(s, text, sl)
	}
	for i := range len(text.Ends) {
		if err := w.leaving(s, w.v.group(sl, text.Ends[i]).stems); err != nil {
			return err
		}
	}
	return nil
}

// leaving adds the tokens of stems that s takes.
func (w *walker) leaving(s *state, stems []stem) error {
	t := &w.v.trie
	var at [far + 1]*state // by how many bytes of text came
	at[0] = s
	var text []byte
	known := 0 // bytes of text whose state is known
	for _, st := range stems {
		next := w.v.text(st.node)[:st.depth]
		known = min(known, shared(text, next))
		if text = next; at[known] == dead {
			continue
		}
		for known < len(text) && at[known] != dead {
			n, err := w.next(at[known], text[known])
			if err != nil {
				return err
			}
			known++
			at[known] = n
		}
		if at[known] != dead {
			if err := w.from(t, at[known], st.node); err != nil {
				return err
			}
		}
	}
	return nil
}

// text is that of some token at a node of the trie or below.
func (v *Vocabulary) text(node uint32) []byte {
	for v.trie.id[node] < 0 {
		node++
	}
	b, _, _ := v.tok.Token(v.trie.id[node])
	return b
}

// alike adds the tokens that leave a run whose characters lead on alike.
func (w *walker) alike(s *state, text *Text, sl *slice) error {
	one, ok := text.Chars.one()
	if !ok {
		return errNoCharacter
	}
	most := text.Max
	if most < 0 {
		most = far
	}
	var run [far + 1]*state // by how many characters came
	run[0] = s
	last := 0 // how many of run are known; from then on all are like it
	loops := false
	for i := range len(text.Ends) {
		b := text.Ends[i]
		g := w.v.group(sl, b)
		var to [far + 1]*state // by characters: behind b
		alive := false
		for i, set := range g.chars {
			for ; set != 0; set &= set - 1 {
				n := i*64 + bits.TrailingZeros64(set)
				if n > most {
					break
				}
				for last < n && !loops {
					next, err := w.next(run[last], one)
					if err != nil {
						return err
					}
					if loops = next == run[last]; !loops {
						last++
						run[last] = next
					}
				}
				var err error
				if to[n], err = w.next(run[min(n, last)], b); err != nil {
					return err
				}
				alive = alive || to[n] != dead
			}
		}
		if !alive {
			continue
		}
		for _, st := range g.stems {
			if int(st.chars) > most || to[st.chars] == dead {
				continue
			}
			if err := w.behindStem(to[st.chars], st); err != nil {
				return err
			}
		}
	}
	return nil
}

// behindStem adds the tokens of a stem of which the first byte behind the run
// has led to s.
func (w *walker) behindStem(s *state, st stem) error {
	if st.depth > st.skip+1 {
		for _, b := range w.v.text(st.node)[st.skip+1 : st.depth] {
			var err error
			if s, err = w.next(s, b); s == dead || err != nil {
				return err
			}
		}
	}
	return w.from(&w.v.trie, s, st.node)
}

var errNoCharacter = errors.New("token: a run without a plain character") // a bug of the source

// free adds the tokens that leave a free run: what precedes its end is
// characters of the run, of which only the number counts.
func (w *walker) free(s *state, text *Text, sl *slice) error {
	if text.Min > far {
		return nil
	}
	end := s
	if text.Min > 0 {
		b, ok := text.Chars.one()
		if !ok {
			return errNoCharacter
		}
		for range text.Min {
			var err error
			if end, err = w.next(end, b); err != nil {
				return err
			}
		}
	}
	w.least, w.most = text.Min, text.Max
	if text.Max < 0 {
		w.most = far
	}
	for i := range len(text.Ends) {
		b := text.Ends[i]
		n, err := w.next(end, b)
		if err != nil {
			return err
		}
		if n == dead {
			continue
		}
		if err := w.departing(n, sl, b); err != nil {
			return err
		}
	}
	return nil
}

// departing adds the tokens that leave a run with b, which leads to s behind
// any least to most characters.
func (w *walker) departing(s *state, sl *slice, b byte) error {
	if ls := w.v.behind(sl, b); ls != nil {
		i := ls.trie.first[b]
		if i == ls.trie.first[int(b)+1] {
			return nil
		}
		w.leaves = ls.by
		err := w.from(&ls.trie, s, i)
		w.leaves = nil
		return err
	}
	for _, st := range w.v.group(sl, b).stems {
		if int(st.chars) < w.least || int(st.chars) > w.most {
			continue
		}
		if err := w.behindStem(s, st); err != nil {
			return err
		}
	}
	return nil
}

// words adds the tokens of a run that ends unlike others where it is a word.
func (w *walker) words(s *state, text *Text) error {
	t := &w.v.trie
	if text.Closed {
		return w.listed(s, text, 0, uint32(len(t.b)), false)
	}
	if err := w.others(s, text); err != nil {
		return err
	}
	for i, word := range text.Words {
		w.passed = w.passed[:0]
		at, end, ok := w.along(word, 0, uint32(len(t.b)))
		if ok {
			at, ok = t.child('"', at, end)
		}
		if !ok {
			continue
		}
		for _, id := range t.id[at:t.end[at]] {
			if id >= 0 {
				w.found.remove(id)
			}
		}
		n, err := w.t.behind(text, i)
		if err == nil && n != dead {
			err = w.from(t, n, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// from adds the token of node i, which leads to s, and what s can take below.
func (w *walker) from(t *trie, s *state, i uint32) error {
	if id := t.id[i]; id >= 0 {
		w.reached(id)
	}
	return w.subtree(t, s, i+1, t.end[i])
}

// listed adds the tokens of a run that can be nothing but a word, of those at
// the nodes from at to end. Those whose quote was before stand below a quote.
func (w *walker) listed(s *state, text *Text, at, end uint32, quoted bool) error {
	t := &w.v.trie
	alive := w.alive[:0]
	for i, word := range text.Words {
		w.passed = w.passed[:0]
		from, to, ok := w.along(word, at, end)
		if ok {
			from, ok = t.child('"', from, to)
		}
		if ok || len(text.Words) > 1 { // or it is alive, as s is
			n, err := w.t.behind(text, i)
			if err != nil {
				return err
			}
			if n == dead {
				continue
			}
			if ok {
				if err := w.from(t, n, from); err != nil {
					return err
				}
			}
		}
		for _, id := range w.passed {
			w.add(id)
		}
		alive = append(alive, word)
	}
	w.alive = alive
	escapes := &w.v.escapes
	if quoted {
		escapes = &w.v.quotedEscapes
	}
	for _, word := range alive {
		escapes.spell(word, w.add)
	}
	for _, id := range escapes.long {
		if err := w.whole(id, s, quoted); err != nil {
			return err
		}
	}
	return nil
}

// whole adds a token if s can take its bytes, but for a quote before.
func (w *walker) whole(id int32, s *state, quoted bool) error {
	b, _, _ := w.v.tok.Token(id)
	if quoted {
		b = b[1:]
	}
	for _, x := range b {
		var err error
		if s, err = w.next(s, x); s == dead || err != nil {
			return err
		}
	}
	w.add(id)
	return nil
}

// others adds the tokens of a run that is no word.
func (w *walker) others(s *state, text *Text) error {
	sl := w.v.slice(text.Chars)
	w.base = w.v.within(sl, -1)
	other, err := w.t.behind(text, -1)
	if err != nil {
		return err
	}
	if other != dead {
		w.least, w.most = 0, far
		if err := w.departing(other, sl, '"'); err != nil {
			return err
		}
	}
	// Whether these are words isn't seen by their bytes.
	for _, id := range w.v.spelled {
		w.found.remove(id)
		if err := w.whole(id, s, false); err != nil {
			return err
		}
	}
	return nil
}

// along follows a word through the nodes from at to end of the vocabulary's
// trie, and puts the tokens on the way into passed. It returns the children of
// its last byte.
func (w *walker) along(word string, at, end uint32) (uint32, uint32, bool) {
	t := &w.v.trie
	for k := range len(word) {
		i, ok := t.child(word[k], at, end)
		if !ok {
			return 0, 0, false
		}
		if id := t.id[i]; id >= 0 {
			w.passed = append(w.passed, id)
		}
		at, end = i+1, t.end[i]
	}
	return at, end, true
}

// Where a walk over the tokens of a loop takes 0.1 ms and more, a slice of the
// vocabulary is worth its making. More leavers than that take as long to walk.
const (
	minLoop    = 23                  // characters below 0x80
	manyDigits = 100                 // tokens of digits alone, from which on ten digits are enough
	printable  = 0xFFFFFFFF_00000000 // those from a space on, of 64
	maxLeavers = 1 << 14             // tokens
)

// loop finds out whether s is where a run of many characters leads from s, as
// in [a-z_]+, whatever the source knows of it.
func (w *walker) loop(s *state, r *row) (Text, bool, error) {
	text := Text{Max: -1, Free: true}
	least := w.v.leastLoop
	if bits.OnesCount64(r.live[0]&printable)+bits.OnesCount64(r.live[1]) < least {
		return text, false, nil
	}
	// First the large classes, which most often settle that it is none.
	var size [256]int
	for b := range 0x80 {
		size[r.class[b]]++
	}
	var to [256]*state // by class
	looped := 0
	for k, n := range size[1:] {
		if n < 4 {
			continue
		}
		at := bytes.IndexByte(r.class[:], byte(k+1))
		next, err := w.next(s, byte(at))
		if err != nil {
			return text, false, err
		}
		if to[k+1] = next; next == s {
			looped += n
		}
	}
	if looped < least {
		return text, false, nil
	}
	var ends []byte
	for i, set := range r.live {
		for ; set != 0; set &= set - 1 {
			b := byte(i*64 + bits.TrailingZeros64(set))
			n := to[r.class[b]]
			if n == nil {
				var err error
				if n, err = w.next(s, b); err != nil {
					return text, false, err
				}
				to[r.class[b]] = n
			}
			switch {
			case n == s && b < 0x80:
				text.Chars.ASCII[b>>6] |= 1 << (b & 63)
			case n != dead:
				ends = append(ends, b)
			}
		}
	}
	if text.Chars.plain() < least {
		return text, false, nil
	}
	if r.live[3] == 0 {
		text.Ends = string(ends)
		return text, w.v.leavers(w.v.slice(text.Chars), text.Ends) <= maxLeavers, nil
	}
	c, err := w.charsOf(s, r, true)
	if err != nil {
		return text, false, err
	}
	if c.others && len(c.beyond) == 1 && c.beyond[0] == s {
		text.Chars.Others, text.Chars.Except = true, c.except
		ends = slices.DeleteFunc(ends, func(b byte) bool { return b >= 0x80 })
	}
	text.Ends = string(ends)
	return text, w.v.leavers(w.v.slice(text.Chars), text.Ends) <= maxLeavers, nil
}

// outside adds the tokens of the vocabulary whose bytes s can take.
func (w *walker) outside(s *state, r *row) error {
	t, live := &w.v.trie, r.live
	if n, err := w.blankLoop(s, r); err != nil {
		return err
	} else if n != nil {
		live[0] &^= blanks
		if err := w.blank(n); err != nil {
			return err
		}
	}
	for i, set := range live {
		for ; set != 0; set &= set - 1 {
			b := byte(i*64 + bits.TrailingZeros64(set))
			from := t.first[b]
			if from == t.first[int(b)+1] {
				continue
			}
			n, err := w.next(s, b)
			if err != nil {
				return err
			}
			if n == dead {
				continue
			}
			if b == '"' {
				if text := w.t.textOf(n); text != noText && !text.Chars.Has('"') {
					if id := t.id[from]; id >= 0 {
						w.reached(id)
					}
					if err := w.open(n, text); err != nil {
						return err
					}
					continue
				}
			}
			if err := w.from(t, n, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// blanks has the bits of JSON's white space.
const blanks = 1<<'\t' | 1<<'\n' | 1<<'\r' | 1<<' '

// blankLoop is where white space leads from s, if that takes any amount of it;
// else nil.
func (w *walker) blankLoop(s *state, r *row) (*state, error) {
	if r.live[0]&blanks != blanks || r.class['\t'] != r.class[' '] || r.class['\n'] != r.class[' '] || r.class['\r'] != r.class[' '] {
		return nil, nil
	}
	n, err := w.next(s, ' ')
	if err != nil || n == dead {
		return nil, err
	}
	if n != s {
		r := w.t.rowOf(n)
		if r.live[0]&blanks != blanks {
			return nil, nil
		}
		for _, b := range []byte(blank) {
			if to, err := w.next(n, b); to != n || err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// blank adds the tokens that begin with white space, of which n takes any.
func (w *walker) blank(n *state) error {
	w.base = &w.v.blanks // outside of a run, nothing else is known
	r, t := w.t.rowOf(n), &w.v.trie
	for i, set := range r.live {
		for ; set != 0; set &= set - 1 {
			b := byte(i*64 + bits.TrailingZeros64(set))
			at := w.v.behindBlank[b]
			if len(at) == 0 || isBlank(b) {
				continue
			}
			to, err := w.next(n, b)
			if err != nil {
				return err
			}
			if to == dead {
				continue
			}
			for _, i := range at {
				if err := w.from(t, to, i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// open adds the tokens that begin with the quote that led to s, beside the
// quote alone.
func (w *walker) open(s *state, text *Text) error {
	if text.Closed {
		i := w.v.trie.first['"']
		return w.listed(s, text, i+1, w.v.trie.end[i], true)
	}
	o := w.v.opening(w.v.slice(text.Chars))
	if o == nil {
		t := &w.v.trie
		i := t.first['"']
		return w.subtree(t, s, i+1, t.end[i])
	}
	for _, l := range o.pure {
		if text.Max >= 0 && int(l.chars) > text.Max {
			break
		}
		w.add(l.id)
	}
	return w.below(&o.rest, s)
}

// below adds the tokens of t whose bytes s can take.
func (w *walker) below(t *trie, s *state) error {
	for i, set := range w.t.rowOf(s).live {
		for ; set != 0; set &= set - 1 {
			b := i*64 + bits.TrailingZeros64(set)
			if err := w.subtree(t, s, t.first[b], t.first[b+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// subtree walks the nodes from i to end, children of the place where s is.
func (w *walker) subtree(t *trie, s *state, i, end uint32) error {
	type level struct {
		s   *state
		r   *row
		end uint32
	}
	if i >= end {
		return nil
	}
	var stack [far + 2]level
	depth := 0
	text, ends, ids := t.b, t.end[:len(t.b)], t.id[:len(t.b)]
	r := w.t.rowOf(s)
	for {
		b := text[i]
		n := r.next[r.class[b]].Load()
		if n == nil {
			var err error
			if n, err = w.next(s, b); err != nil {
				return err
			}
		}
		if n == dead {
			i = ends[i]
		} else {
			if id := ids[i]; id < 0 {
			} else if w.leaves == nil {
				w.add(id)
			} else {
				w.reached(id)
			}
			if below := ends[i]; i+1 < below {
				stack[depth] = level{s, r, end}
				depth++
				i, end, s = i+1, below, n
				if r = n.row.Load(); r == nil {
					r = w.t.rowOf(n)
				}
				continue
			}
			i++
		}
		for i >= end {
			if depth == 0 {
				return nil
			}
			depth--
			s, r, end = stack[depth].s, stack[depth].r, stack[depth].end
		}
	}
}

func (w *walker) next(s *state, b byte) (*state, error) {
	if r := s.row.Load(); r != nil {
		if n := r.next[r.class[b]].Load(); n != nil {
			return n, nil
		}
	}
	n, work, err := w.t.step(s, b)
	w.asked++
	if w.work += work; w.work > maxMaskWork {
		return nil, &LimitError{"mask work", maxMaskWork}
	}
	return n, err
}

// special adds the tokens that stand for themselves and that s takes.
func (w *walker) special(s *state) {
	for _, id := range w.t.tokens(s) {
		if id >= 0 && int(id) < w.v.size {
			w.add(id)
		}
	}
}
