package token

import (
	"bytes"
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
	own     bool    // base belongs to no slice
	patches []patch // what comes on top, by word
	dense   atomic.Pointer[bitmap]
}

// A patch is tokens of one word of a mask.
type patch struct {
	word uint32
	bits uint64
}

// maxPatches is how many words a mask patches before it has a bitmap of its
// own. 128 take 2 KiB and add 0.1 µs to writing a mask out; a bitmap of Qwen3's
// vocabulary takes 19 KiB.
const maxPatches = 128

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
	m.Write(b)
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
	m = t.intern(m)
	if same != dead {
		same.mask.CompareAndSwap(nil, m)
		m = same.mask.Load()
		s.mask.CompareAndSwap(nil, m)
	}
	return m, nil
}

// intern makes equal masks one.
func (t *table) intern(m *Mask) *Mask {
	sum := uint64(len(m.patches))
	if m.own {
		for _, w := range *m.base {
			sum = (sum ^ w) * 0x9E3779B97F4A7C15
			sum ^= sum >> 32
		}
	}
	for _, p := range m.patches {
		sum = (sum ^ p.bits ^ uint64(p.word)<<32) * 0x9E3779B97F4A7C15
		sum ^= sum >> 32
	}
	for _, o := range t.masks[sum] {
		if o == m || slices.Equal(o.patches, m.patches) && (o.base == m.base || o.own && m.own && slices.Equal(*o.base, *m.base)) {
			return o
		}
	}
	t.masks[sum] = append(t.masks[sum], m)
	t.kept += 96 + 16*len(m.patches)
	if m.own {
		t.kept += 8 * len(*m.base)
	}
	t.account()
	return m
}

// A walker finds a mask.
type walker struct {
	t     *table
	v     *Vocabulary
	base  *bitmap
	found bitmap // all zero between masks
	dirty bitmap // words of found that aren't
	work  int

	leaves      [][]leaver // what ids in the trie mean; nil: tokens
	least, most int        // chars of leavers that count
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
	m := &Mask{words: len(w.found), base: w.base}
	n := 0
	for _, d := range w.dirty {
		n += bits.OnesCount64(d)
	}
	if n <= maxPatches {
		m.patches = make([]patch, 0, n)
	} else {
		own := make(bitmap, len(w.found))
		if w.base != nil {
			copy(own, *w.base)
		}
		m.base, m.own = &own, true
	}
	for i, d := range w.dirty {
		for ; d != 0; d &= d - 1 {
			at := i*64 + bits.TrailingZeros64(d)
			if w.found[at] == 0 {
				continue
			}
			if n <= maxPatches {
				m.patches = append(m.patches, patch{uint32(at), w.found[at]})
			} else {
				(*m.base)[at] |= w.found[at]
			}
			w.found[at] = 0
		}
		w.dirty[i] = 0
	}
	return m
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
	r := w.t.rowOf(s)
	w.special(s)
	text := w.t.textOf(s)
	if text == noText {
		loop, ok, err := w.loop(s, r)
		if err != nil {
			return err
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
	if !text.Free {
		for i := range len(text.Ends) {
			if err := w.below(w.v.leaving(sl, text.Ends[i]), s); err != nil {
				return err
			}
		}
		return nil
	}
	return w.free(s, text, sl)
}

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
			return fmt.Errorf("token: a free run without a plain character") // a bug of the source
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
		ls := w.v.behind(sl, text.Ends[i])
		w.leaves = ls.by
		if err := w.below(&ls.trie, end); err != nil {
			return err
		}
	}
	w.leaves = nil
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
		at, end, ok := w.along(word, 0, uint32(len(t.b)), false)
		if ok {
			at, ok = t.child('"', at, end)
		}
		if !ok {
			continue
		}
		for _, id := range t.id[at:t.end[at]] {
			if id >= 0 {
				w.remove(id)
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
	var alive []string
	for i, word := range text.Words {
		n, err := w.t.behind(text, i)
		if err != nil {
			return err
		}
		if n == dead {
			continue
		}
		alive = append(alive, word)
		i, end, ok := w.along(word, at, end, true)
		if ok {
			i, ok = t.child('"', i, end)
		}
		if !ok {
			continue
		}
		if err := w.from(t, n, i); err != nil {
			return err
		}
	}
	for i := range w.v.escapes {
		e := &w.v.escapes[i]
		if e.quoted != quoted {
			continue
		}
		if e.long {
			if err := w.whole(e.id, s, quoted); err != nil {
				return err
			}
			continue
		}
		if slices.ContainsFunc(alive, e.begins) {
			w.add(e.id)
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
	ls := w.v.behind(sl, '"')
	i := ls.trie.first['"']
	if i == ls.trie.first['"'+1] {
		return nil
	}
	other, err := w.t.behind(text, -1)
	if err != nil {
		return err
	}
	if other != dead {
		w.leaves, w.least, w.most = ls.by, 0, far
		if err := w.from(&ls.trie, other, i); err != nil {
			return err
		}
		w.leaves = nil
	}
	// Whether these are words isn't seen by their bytes.
	for _, id := range ls.spelled {
		w.remove(id)
		if err := w.whole(id, s, false); err != nil {
			return err
		}
	}
	return nil
}

// along follows a word through the nodes from at to end of the vocabulary's
// trie, and adds the tokens on the way if told so. It returns the children of
// its last byte.
func (w *walker) along(word string, at, end uint32, add bool) (uint32, uint32, bool) {
	t := &w.v.trie
	for k := range len(word) {
		i, ok := t.child(word[k], at, end)
		if !ok {
			return 0, 0, false
		}
		if add && t.id[i] >= 0 {
			w.add(t.id[i])
		}
		at, end = i+1, t.end[i]
	}
	return at, end, true
}

func (w *walker) remove(id int32) { w.found[id>>6] &^= 1 << (id & 63) }

// Where a walk over the tokens of a loop takes 0.1 ms and more, a slice of the
// vocabulary is worth its making. More leavers than that take as long to walk.
const (
	minLoop    = 23      // characters below 0x80
	maxLeavers = 1 << 14 // tokens
)

// loop finds out whether s is where a run of many characters leads from s, as
// in [a-z_]+, whatever the source knows of it.
func (w *walker) loop(s *state, r *row) (Text, bool, error) {
	const printable = 0xFFFFFFFF_00000000
	text := Text{Max: -1, Free: true}
	if bits.OnesCount64(r.live[0]&printable)+bits.OnesCount64(r.live[1]) < minLoop {
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
	if looped < minLoop {
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
	if bits.OnesCount64(text.Chars.ASCII[0])+bits.OnesCount64(text.Chars.ASCII[1]) < minLoop {
		return text, false, nil
	}
	others, err := w.loopBeyond(s)
	if err != nil {
		return text, false, err
	}
	if text.Chars.Others = others; others {
		ends = slices.DeleteFunc(ends, func(b byte) bool { return b >= 0x80 })
	}
	text.Ends = string(ends)
	return text, w.v.slice(text.Chars).leavers(text.Ends) <= maxLeavers, nil
}

// loopBeyond tells whether every character from U+0080 on leads from s to s.
func (w *walker) loopBeyond(s *state) (bool, error) {
	for _, first := range [...]struct{ from, to, lo, hi, more byte }{
		{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
		{0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2}, {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
	} {
		n, err := w.through(s, first.from, first.to, false)
		if n == nil || err != nil {
			return false, err
		}
		if n, err = w.through(n, first.lo, first.hi, true); n == nil || err != nil {
			return false, err
		}
		for range first.more {
			if n, err = w.through(n, 0x80, 0xBF, true); n == nil || err != nil {
				return false, err
			}
		}
		if n != s {
			return false, nil
		}
	}
	return true, nil
}

// through is where each of the bytes from lo to hi leads, nil if not to one
// state; alone means that no other byte may lead anywhere.
func (w *walker) through(s *state, lo, hi byte, alone bool) (*state, error) {
	class := w.t.rowOf(s).class
	for b := range 256 {
		if in := byte(b) >= lo && byte(b) <= hi; in && class[b] != class[lo] || !in && alone && class[b] != 0 {
			return nil, nil
		}
	}
	n, err := w.next(s, lo)
	if n == dead {
		n = nil
	}
	return n, err
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
	for _, id := range w.v.blanks {
		w.reached(id)
	}
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
		end uint32
	}
	if i >= end {
		return nil
	}
	var stack [far + 2]level
	depth := 0
	for {
		n, err := w.next(s, t.b[i])
		if err != nil {
			return err
		}
		if n == dead {
			i = t.end[i]
		} else {
			if id := t.id[i]; id >= 0 {
				w.reached(id)
			}
			if i++; i < t.end[i-1] {
				stack[depth] = level{s, end}
				depth++
				s, end = n, t.end[i-1]
				continue
			}
		}
		for i >= end {
			if depth == 0 {
				return nil
			}
			depth--
			s, end = stack[depth].s, stack[depth].end
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
