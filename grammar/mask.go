package grammar

import (
	"math"
	"math/bits"
	"slices"
)

// A mask is a set of tokens: those of base, if there is one, and ids.
type mask struct {
	base *bitmap
	own  bool // base belongs to no slice
	ids  []int32
}

type bitmap []uint64

func (b bitmap) set(id int32) { b[id>>6] |= 1 << (id & 63) }

// maskOf is a config's mask for one vocabulary.
type maskOf struct {
	v    *Vocabulary
	m    *mask
	next *maskOf
}

// maxIDs is how many ids a mask lists before it is a bitmap: 1024 take 4 KiB
// and 0.5 µs to write out, a bitmap of Qwen3's vocabulary takes 19 KiB.
const maxIDs = 1024

// maxMaskWork bounds the work on one mask, in threads that were moved over a
// byte which nobody had met before; 50 ns each.
const maxMaskWork = 4 << 20

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

// write makes dst the mask.
func (m *mask) write(dst []uint64) {
	n := 0
	if m.base != nil {
		n = copy(dst, *m.base)
	}
	clear(dst[n:])
	for _, id := range m.ids {
		dst[id>>6] |= 1 << (id & 63)
	}
}

// mask gives the tokens of v that may follow c.
func (a *Automaton) mask(v *Vocabulary, c *config) (*mask, error) {
	if m := c.maskFor(v); m != nil {
		return m, nil
	}
	same := a.canonical(c)
	m := same.maskFor(v)
	if m == nil {
		w := walker{a: a, v: v}
		var err error
		if m, err = w.mask(same); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := same.maskFor(v); old != nil {
		m = old
	} else {
		if m.own {
			m.base = a.shared(m.base)
		}
		a.kept += 80 + 4*cap(m.ids)
		same.masks.Store(&maskOf{v, m, same.masks.Load()})
	}
	if c != same && c.maskFor(v) == nil {
		a.kept += 32
		c.masks.Store(&maskOf{v, m, c.masks.Load()})
	}
	return m, nil
}

func (c *config) maskFor(v *Vocabulary) *mask {
	for m := c.masks.Load(); m != nil; m = m.next {
		if m.v == v {
			return m.m
		}
	}
	return nil
}

// shared makes equal bitmaps one.
func (a *Automaton) shared(b *bitmap) *bitmap {
	sum := a.salt
	for _, w := range *b {
		sum = (sum ^ w) * 0x9E3779B97F4A7C15
		sum ^= sum >> 32
	}
	for _, o := range a.dense[sum] {
		if slices.Equal(*o, *b) {
			return o
		}
	}
	a.dense[sum] = append(a.dense[sum], b)
	a.kept += 8 * len(*b)
	return b
}

// far is how many rounds of a loop no token reaches across: the longest have
// 128 bytes, and a round takes at least one.
const far = 128

// canonical is a config whose mask is that of c: where a loop is more than far
// rounds away from its bounds the count doesn't matter.
func (a *Automaton) canonical(c *config) *config {
	if k := c.canon.Load(); k != nil {
		return k
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	same := true
	a.set.reset()
	for _, t := range c.threads {
		f := a.canonicalFrame(t.top)
		same = same && f == t.top
		if t = (thread{t.node, f}); a.set.add(t) {
			a.set.found = append(a.set.found, t)
		}
	}
	k := c
	if !same {
		k = a.intern()
	}
	c.canon.Store(k)
	return k
}

func (a *Automaton) canonicalFrame(f *frame) *frame {
	if f == nil || f.canon != nil {
		if f != nil {
			f = f.canon
		}
		return f
	}
	k := f.frameKey
	k.up = a.canonicalFrame(f.up)
	if k.node < 0 {
		l := &a.p.loops[^k.node]
		switch {
		case l.min-k.count > far:
			k.count = 0
		case k.count >= l.min && l.max-k.count > far:
			k.count = l.min
		}
	}
	f.canon = f
	if k != f.frameKey {
		f.canon = a.frame(k, f.depth)
	}
	return f.canon
}

// A walker finds a mask.
type walker struct {
	a     *Automaton
	v     *Vocabulary
	base  *bitmap
	ids   []int32
	dense bitmap // instead of ids, when there are many
	work  int

	leaves      [][]leaver // what ids in the trie mean; nil: tokens
	least, most int        // chars of leavers that count
}

func (w *walker) mask(c *config) (*mask, error) {
	if err := w.all(c); err != nil {
		return nil, err
	}
	if c.accepting {
		for _, id := range w.v.ends {
			w.add(id)
		}
	}
	if w.dense != nil {
		return &mask{base: &w.dense, own: true}, nil
	}
	return &mask{base: w.base, ids: slices.Clone(w.ids)}, nil
}

// all adds what may follow c: what a slice knows, and the tokens that leave
// its loop, or whatever fits of the whole vocabulary.
func (w *walker) all(c *config) error {
	s, ok := w.a.slicing(w.v, c)
	if !ok {
		return w.walk(&w.v.trie, c)
	}
	w.base = s.s.within(s.chars)
	for _, b := range s.exits {
		if s.exit == nil {
			if err := w.walk(w.v.leaving(s.s, b), c); err != nil {
				return err
			}
			continue
		}
		// What precedes the end is characters of the loop; only their number counts.
		ls := w.v.behind(s.s, b)
		w.leaves, w.least, w.most = ls.by, s.least, s.chars
		if err := w.walk(&ls.trie, s.exit); err != nil {
			return err
		}
		w.leaves = nil
	}
	return nil
}

func (w *walker) add(id int32) {
	if w.dense == nil {
		if len(w.ids) < maxIDs {
			w.ids = append(w.ids, id)
			return
		}
		w.dense = make(bitmap, w.v.Words())
		if w.base != nil {
			copy(w.dense, *w.base)
		}
		for _, id := range w.ids {
			w.dense.set(id)
		}
	}
	w.dense.set(id)
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

// walk adds the tokens of t whose bytes c can take.
func (w *walker) walk(t *trie, c *config) error {
	e := w.a.edgesOf(c)
	for b := range 256 {
		if e.index(byte(b)) != 0 && t.first[b] < t.first[b+1] {
			if err := w.subtree(t, c, t.first[b], t.first[b+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// subtree walks the nodes from i to end, children of the place where c is.
func (w *walker) subtree(t *trie, c *config, i, end uint32) error {
	type level struct {
		c   *config
		end uint32
	}
	var stack [far + 2]level
	levels := append(stack[:0], level{c, end})
	for {
		top := &levels[len(levels)-1]
		if i >= top.end {
			if levels = levels[:len(levels)-1]; len(levels) == 0 {
				return nil
			}
			continue
		}
		n, err := w.next(top.c, t.b[i])
		if err != nil {
			return err
		}
		if n == nil {
			i = t.end[i]
			continue
		}
		if id := t.id[i]; id >= 0 {
			w.reached(id)
		}
		if i++; i < t.end[i-1] {
			levels = append(levels, level{n, t.end[i-1]})
		}
	}
}

func (w *walker) next(c *config, b byte) (*config, error) {
	if e := c.edges.Load(); e != nil {
		i := e.index(b)
		if i == 0 {
			return nil, nil
		}
		if n := e.next[i].Load(); n != nil {
			return n, nil
		}
	}
	if w.work += 1 + len(c.threads); w.work > maxMaskWork {
		return nil, &LimitError{"mask work", maxMaskWork}
	}
	return w.a.step(c, b)
}
