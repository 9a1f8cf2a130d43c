package lexical

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// A Vector is a set of predicates: those that hold. Vectors are equal if they
// hold the same.
type Vector string

// Has tells whether predicate i holds.
func (v Vector) Has(i int) bool { return i/8 < len(v) && v[i/8]>>(i%8)&1 != 0 }

// A word is a string that is told from all others, since it has a name or is
// a value of OneOf.
type word struct {
	text  string
	label int   // index of the name; -1: none
	in    []int // predicates that list it
}

// texts runs predicates over characters. A text is interned by what is known
// of it: the states of the patterns, which words it may become, and all of it
// if a predicate is decided at the end. It counts no characters: its callers
// do.
type texts struct {
	preds   []*predicate
	lim     Limits
	runners []*runner
	runs    []int // of the predicates; -1: no pattern
	words   []word
	scans   []*scanner
	scan    []int       // of the predicates; -1: none
	starts  []rune      // where a stretch of characters of one class starts
	classes []int32     // of the stretches
	ascii   [0x80]int32 // classes of the first of them
	parts   [][]uint16  // by class: classes of the runners
	sample  []charset   // see samples
	cuts    []int       // counts at which a length predicate changes
	all     []*text
	slab    []text
	index   map[string]int32 // of those with states
	byWord  map[isWord]int32 // of those without
	scratch []byte
	views   uint32  // searches so far, see near.go
	hints   []int32 // classes of characters that led to ends lately
	bytes   int
	limit   *LimitError
}

// A text is what is known of the characters so far.
type text struct {
	id      int32
	states  []int32 // of the runners
	lo, hi  int32   // words that start with it
	depth   int32   // bytes of it that they share
	scans   []int32 // of the scanners
	rests   bool    // all of them do
	keeps   bool    // some scanner tells any two characters apart
	next    []int32 // by class, for characters that no word goes on with; -1: not known
	special []special
	free    int8 // whether every character leads to itself: 0 not known, 1, -1
	vectors []Vector
	after   []int32 // the texts after one more character; nil: not known
	ends    []end   // see near.go
	run     *run    // see run.go; nil: not known
	seen    struct {
		view  uint32
		after int32
	}
}

// A special is where a character leads that a word goes on with or that a
// scanner tells from others.
type special struct {
	r  rune
	to int32
}

// isWord is a text that is known by the words that it may become alone.
type isWord struct{ lo, hi, depth int32 }

func newTexts(preds []Predicate, names []string, lim Limits) (*texts, error) {
	x := &texts{lim: lim, index: map[string]int32{}, byWord: map[isWord]int32{}}
	byProg := map[string]int{}
	for i, p := range preds {
		p := p.get()
		x.preds = append(x.preds, p)
		run := -1
		if p.prog != nil {
			id, ok := byProg[p.key]
			if !ok {
				id = len(x.runners)
				byProg[p.key] = id
				r := newRunner(p.prog, lim)
				if x.runners = append(x.runners, r); x.work() > lim.Work {
					return nil, &LimitError{"work", lim.Work}
				} else if r.over {
					return nil, &LimitError{"width", lim.Width}
				}
				if x.memory() > lim.Bytes {
					return nil, &LimitError{"bytes", lim.Bytes}
				}
			}
			run = id
		}
		x.runs = append(x.runs, run)
		if p.scan != nil {
			x.scan = append(x.scan, len(x.scans))
			x.scans = append(x.scans, newScanner(p.scan))
		} else {
			x.scan = append(x.scan, -1)
		}
		for _, v := range p.values {
			x.words = append(x.words, word{text: v, label: -1, in: []int{i}})
			x.bytes += 8
		}
		for _, cut := range [...]int{p.min, p.max + 1} {
			if cut > 0 {
				x.cuts = append(x.cuts, cut)
			}
		}
	}
	slices.Sort(x.cuts)
	x.cuts = slices.Compact(x.cuts)
	for i, n := range names {
		x.words = append(x.words, word{text: decoded(n), label: i})
	}
	x.words = sortWords(x.words)
	x.bytes += 64 * len(x.words)
	if !x.partition() {
		return nil, &LimitError{"work", lim.Work}
	}
	states := make([]int32, len(x.runners))
	scans := make([]int32, len(x.scans))
	for i := range scans {
		scans[i] = starting
	}
	first := text{states: states, hi: int32(len(x.words)), scans: scans}
	x.settle(&first)
	x.intern(first)
	if x.memory() > lim.Bytes {
		return nil, &LimitError{"bytes", lim.Bytes}
	}
	return x, nil
}

// decoded is s as encoding/json would have it of a string.
func decoded(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// sortWords makes one word of equal ones. Of two labels the first counts.
func sortWords(ws []word) []word {
	slices.SortFunc(ws, func(a, b word) int { return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.label, b.label)) })
	out := ws[:0]
	for _, w := range ws {
		if n := len(out); n > 0 && out[n-1].text == w.text {
			if out[n-1].label < 0 {
				out[n-1].label = w.label
			}
			out[n-1].in = append(out[n-1].in, w.in...)
			continue
		}
		out = append(out, w)
	}
	return out
}

func (x *texts) memory() int {
	n := x.bytes
	for _, r := range x.runners {
		n += r.bytes
	}
	for _, s := range x.scans {
		n += s.bytes
	}
	return n
}

// work is what the runners have done, see Limits.
func (x *texts) work() int {
	n := 0
	for _, r := range x.runners {
		n += r.work
	}
	return n
}

// partition finds classes of characters that no pattern tells apart; false if
// that is too much work.
func (x *texts) partition() bool {
	var starts []rune
	for _, r := range x.runners {
		starts = append(starts, r.p.starts...)
	}
	starts = append(starts, 0)
	slices.Sort(starts)
	x.starts = slices.Compact(starts)
	if len(x.starts)*len(x.runners) > 16*x.lim.Work {
		return false
	}
	ids := map[string]int32{}
	at := make([]int, len(x.runners))
	part := make([]uint16, len(x.runners))
	var key []byte
	last := int32(-1)
	for _, s := range x.starts {
		same := last >= 0
		for i, r := range x.runners {
			for at[i]+1 < len(r.p.starts) && r.p.starts[at[i]+1] <= s {
				at[i]++
			}
			same = same && part[i] == r.p.classes[at[i]]
			part[i] = r.p.classes[at[i]]
		}
		if !same {
			key = key[:0]
			for _, p := range part {
				key = binary.LittleEndian.AppendUint16(key, p)
			}
			id, ok := ids[string(key)]
			if !ok {
				id = int32(len(x.parts))
				ids[string(key)] = id
				x.parts = append(x.parts, slices.Clone(part))
			}
			last = id
		}
		x.classes = append(x.classes, last)
	}
	for r := range x.ascii {
		x.ascii[r] = x.classes[x.stretch(rune(r))]
	}
	x.bytes += 8*len(x.starts) + 2*len(x.parts)*len(x.runners)
	return true
}

// samples is the characters of each class.
func (x *texts) samples() []charset {
	if x.sample != nil {
		return x.sample
	}
	x.sample = make([]charset, len(x.parts))
	for k, lo := range x.starts {
		hi := rune(utf8.MaxRune)
		if k+1 < len(x.starts) {
			hi = x.starts[k+1] - 1
		}
		to := &x.sample[x.classes[k]]
		if lo < highFirst {
			*to = append(*to, lo, min(hi, highFirst-1))
		}
		if hi > lowLast {
			*to = append(*to, max(lo, lowLast+1), hi)
		}
	}
	x.bytes += 8*len(x.starts) + 24*len(x.sample)
	return x.sample
}

func (x *texts) stretch(r rune) int {
	return sort.Search(len(x.starts), func(i int) bool { return x.starts[i] > r }) - 1
}

func (x *texts) classOf(r rune) int32 {
	if r < 0x80 {
		return x.ascii[r]
	}
	return x.classes[x.stretch(r)]
}

func (x *texts) intern(t text) int32 {
	if t.lo == t.hi {
		t.lo, t.hi, t.depth = 0, 0, 0
	}
	if len(t.states) == 0 && len(t.scans) == 0 {
		key := isWord{t.lo, t.hi, t.depth}
		id, ok := x.byWord[key]
		if !ok {
			id = x.add(t)
			x.byWord[key] = id
		}
		return id
	}
	k := x.scratch[:0]
	for _, s := range t.states {
		k = binary.AppendUvarint(k, uint64(s))
	}
	for _, s := range t.scans {
		k = binary.AppendUvarint(k, uint64(s))
	}
	for _, v := range [...]int32{t.lo, t.hi, t.depth} {
		k = binary.AppendVarint(k, int64(v))
	}
	x.scratch = k
	if id, ok := x.index[string(k)]; ok {
		return id
	}
	id := x.add(t)
	x.index[string(k)] = id
	x.bytes += len(k) + 4*len(t.states)
	return id
}

func (x *texts) add(t text) int32 {
	t.id = int32(len(x.all))
	if len(x.slab) == 0 {
		x.slab = make([]text, min(32, 4+len(x.all)))
	}
	x.slab[0] = t
	x.all = append(x.all, &x.slab[0])
	x.slab = x.slab[1:]
	x.bytes += 240
	return t.id
}

// narrow finds the words of t that go on with r.
func (x *texts) narrow(t *text, r rune) (lo, hi, depth int32) {
	if t.lo == t.hi {
		return 0, 0, 0
	}
	var buf [utf8.UTFMax]byte
	want := string(buf[:utf8.EncodeRune(buf[:], r)])
	ws := x.words[t.lo:t.hi]
	rest := func(i int) string { return ws[i].text[t.depth:] }
	from := sort.Search(len(ws), func(i int) bool { return rest(i) >= want })
	to := from + sort.Search(len(ws)-from, func(i int) bool { return !strings.HasPrefix(rest(from+i), want) })
	return t.lo + int32(from), t.lo + int32(to), t.depth + int32(len(want))
}

// step is the text after one more character; -1 if a limit was reached.
func (x *texts) step(id int32, r rune) int32 {
	t := x.all[id]
	if i, ok := slices.BinarySearchFunc(t.special, r, bySpecial); ok {
		return t.special[i].to
	}
	lo, hi, depth := x.narrow(t, r)
	if lo == hi && !x.tells(t, r) {
		return x.stepClass(id, x.classOf(r))
	}
	to := x.advance(t, text{lo: lo, hi: hi, depth: depth}, r, x.classOf(r))
	if to >= 0 {
		i, _ := slices.BinarySearchFunc(t.special, r, bySpecial)
		t.special = slices.Insert(t.special, i, special{r, to})
		x.bytes += 8
	}
	return to
}

func bySpecial(s special, r rune) int { return int(s.r - r) }

// tells is whether a scanner tells r from others.
func (x *texts) tells(t *text, r rune) bool {
	if t.rests {
		return false
	}
	for i, s := range x.scans {
		if s.tells(t.scans[i], r, r) {
			return true
		}
	}
	return false
}

// stepClass is step for a character that no word goes on with and that no
// scanner tells from others.
func (x *texts) stepClass(id, class int32) int32 {
	t := x.all[id]
	if t.next == nil {
		t.next = make([]int32, len(x.parts))
		for i := range t.next {
			t.next[i] = -1
		}
		x.bytes += 4 * len(t.next)
	}
	if t.next[class] < 0 {
		t.next[class] = x.advance(t, text{}, outside, class)
	}
	return t.next[class]
}

// advance completes n, what follows t after a character of class.
func (x *texts) advance(t *text, n text, r rune, class int32) int32 {
	if x.memory() > x.lim.Bytes {
		return x.reached("bytes", x.lim.Bytes)
	}
	if x.work() > x.lim.Work {
		return x.reached("work", x.lim.Work)
	}
	if len(x.runners) > 0 {
		n.states = make([]int32, len(x.runners))
	}
	for i, run := range x.runners {
		n.states[i] = run.step(t.states[i], x.parts[class][i])
		if run.over {
			run.forget()
			if x.work() > x.lim.Work {
				return x.reached("work", x.lim.Work)
			}
			return x.reached("width", x.lim.Width)
		}
	}
	n.scans = t.scans
	if !t.rests {
		n.scans = make([]int32, len(x.scans))
		for i, s := range x.scans {
			n.scans[i] = s.step(t.scans[i], r)
			if len(s.states[n.scans[i]]) > x.lim.Kept {
				return x.reached("kept", x.lim.Kept)
			}
		}
		for i, scan := range x.scan {
			if scan >= 0 && x.runs[i] >= 0 && x.runners[x.runs[i]].dead(n.states[x.runs[i]]) {
				n.scans[scan] = failed
			}
		}
	}
	x.settle(&n)
	return x.intern(n)
}

// settle finds out what the scanners of t still do.
func (x *texts) settle(t *text) {
	t.rests = true
	for i, s := range x.scans {
		if t.scans[i] > passed {
			t.rests = false
			t.keeps = t.keeps || s.told[t.scans[i]].all
		}
	}
}

func (x *texts) reached(what string, max int) int32 {
	x.limit = &LimitError{what, max}
	return -1
}

// goesOn tells whether some word of t goes on with a character of lo to hi, or
// some scanner tells one apart.
func (x *texts) goesOn(t *text, lo, hi rune) bool {
	if !t.rests {
		for i, s := range x.scans {
			if s.tells(t.scans[i], lo, hi) {
				return true
			}
		}
	}
	if t.lo == t.hi {
		return false
	}
	ws := x.words[t.lo:t.hi]
	i := sort.Search(len(ws), func(i int) bool {
		rest := ws[i].text[t.depth:]
		if rest == "" {
			return false
		}
		r, _ := utf8.DecodeRuneInString(rest)
		return r >= lo
	})
	if i == len(ws) {
		return false
	}
	r, _ := utf8.DecodeRuneInString(ws[i].text[t.depth:])
	return r <= hi
}

// label is the name that t is; -1 if none.
func (x *texts) label(t *text) int {
	if w := x.word(t); w != nil {
		return w.label
	}
	return -1
}

func (x *texts) word(t *text) *word {
	if t.lo < t.hi && len(x.words[t.lo].text) == int(t.depth) {
		return &x.words[t.lo]
	}
	return nil
}

// span is which stretch between cuts a count is in.
func (x *texts) span(count int) int {
	return sort.Search(len(x.cuts), func(i int) bool { return x.cuts[i] > count })
}

// vector tells which predicates hold for t as a whole of count characters.
func (x *texts) vector(t *text, count int) Vector {
	span := x.span(count)
	if t.vectors == nil {
		t.vectors = make([]Vector, len(x.cuts)+1)
		x.bytes += 16 * len(t.vectors)
	}
	if v := t.vectors[span]; v != "" || len(x.preds) == 0 {
		return v
	}
	bits := make([]byte, (len(x.preds)+7)/8)
	for i, p := range x.preds {
		ok := count >= p.min && (p.max < 0 || count <= p.max)
		if ok && p.values != nil {
			w := x.word(t)
			ok = w != nil && slices.Contains(w.in, i)
		}
		if ok && x.holdsBut(t, i) {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	t.vectors[span] = Vector(bits)
	x.bytes += len(bits)
	return Vector(bits)
}

// holdsBut tells whether predicate i holds for t as a whole, but for its length
// and its values.
func (x *texts) holdsBut(t *text, i int) bool {
	if run := x.runs[i]; run >= 0 && !x.runners[run].accepts(t.states[run]) {
		return false
	}
	scan := x.scan[i]
	return scan < 0 || x.scans[scan].accepts(t.scans[scan])
}

// isFree tells whether every character leads from t to t.
func (x *texts) isFree(id int32) bool {
	t := x.all[id]
	if t.free == 0 {
		t.free = 1
		if t.lo < t.hi || !t.rests {
			t.free = -1
		}
		for class := 0; class < len(x.parts) && t.free > 0; class++ {
			if s := x.samples()[class]; len(s) > 0 && x.step(id, s[0]) != id {
				t.free = -1
			}
		}
	}
	return t.free > 0
}
