package lexical

import (
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Strings reads JSON strings, from after the opening quote through the closing
// one, and tells which predicates hold for what they spell. It reads what
// encoding/json reads, but for bytes that are not UTF-8, which it refuses; a
// lone surrogate is U+FFFD. It is safe for concurrent use.
//
// A State is a base, which is what is known of the text and of a character
// half read, and a number of characters in its low bits; so that a length of
// 100,000 takes no more memory than one of 10. Counts above 65,535 have a base
// per 65,536.
type Strings struct {
	onlyLists bool // see OnlyLists
	last      int  // count from which on nothing changes
	shift     uint
	lim       Limits
	bases     directory[base]
	limit     atomic.Pointer[LimitError]
	reached   sync.Map         // of State: *lookahead
	opens     func() []Outcome // see Open

	mu       sync.Mutex // guards all below and the making of what a base holds
	x        *texts
	slab     []base
	count    int // of bases
	index    map[form]uint32
	bytes    int
	vistas   map[vista]*lookahead
	hopeless []Outcome // see Hopeless; nil: not known
}

type mode uint8

const (
	plain     mode = iota
	utf8Tail       // need bytes of a character are to come
	slash          // after a backslash
	hex            // need digits of \uXXXX are to come
	high           // after the escape of a high surrogate
	highSlash      // and a backslash
	highHex        // and need digits of an escape
	closed
)

// A form is what a base stands for.
type form struct {
	text   int32
	mode   mode
	need   uint8
	lo, hi rune  // utf8Tail, hex, highHex: the code points that it can be
	class  int32 // utf8Tail, hex: the one class of them, then lo and hi are next bytes or 0; -1: several
	high   rune  // the high surrogate, if pair is -1
	pair   int32 // class of all characters that the high surrogate begins; -1: several
	chunk  int32 // characters / 65536
}

type base struct {
	form
	id       uint32
	pages    [8]atomic.Pointer[[32]atomic.Uint32] // by byte: id of the next base, 2 bits of characters read; 0 not known
	outcomes []atomic.Pointer[Outcome]            // closed: by span
	free     atomic.Int32                         // plain: as text.free
	live     []*predicate                         // free: those that only their length can still fail
	ways     *ways                                // see reach.go; guarded by mu
	sorted   [kindsOfClasses]*[256]uint8          // see classes.go; guarded by mu
}

const deadEnd = 3 // an edge: the byte doesn't fit

// An Outcome is what a whole string turned out to be.
type Outcome struct {
	Vector
	Label int // index of its name; -1: none
}

// NewStrings makes a machine that runs preds side by side and tells the names
// apart. The error is a *LimitError.
func NewStrings(preds []Predicate, names []string, lim Limits) (*Strings, error) {
	lim = lim.orDefault()
	x, err := newTexts(preds, names, lim)
	if err != nil {
		return nil, err
	}
	s := &Strings{lim: lim, x: x, index: map[form]uint32{}, count: 1, shift: 1, vistas: map[vista]*lookahead{}}
	s.onlyLists = !slices.ContainsFunc(x.preds, func(p *predicate) bool {
		return p.values == nil || p.prog != nil || p.scan != nil || p.min > 0 || p.max >= 0
	})
	if n := len(x.cuts); n > 0 {
		s.last = x.cuts[n-1]
	}
	for s.shift < 16 && 1<<s.shift <= s.last {
		s.shift++
	}
	s.opens = sync.OnceValue(s.findOpen)
	s.intern(form{mode: plain, class: -1, pair: -1})
	return s, nil
}

// Start is the state after the opening quote.
func (s *Strings) Start() State { return 1 << s.shift }

// Limit is the limit that made a state Lost; nil if none did. A machine that
// has reached a limit is made anew by NewStrings.
func (s *Strings) Limit() *LimitError { return s.limit.Load() }

// Bytes is about the memory held.
func (s *Strings) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes + s.x.memory()
}

func (s *Strings) split(q State) (*base, int) {
	b := s.bases.at(uint32(q) >> s.shift)
	return b, int(b.chunk)<<s.shift + int(q)&(1<<s.shift-1)
}

// Step is the state after one more byte.
func (s *Strings) Step(q State, c byte) State {
	if q <= Lost {
		return q
	}
	b, count := s.split(q)
	e := uint32(0)
	if p := b.pages[c>>5].Load(); p != nil {
		e = p[c&31].Load()
	}
	if e == 0 {
		if e = s.edge(b, c); e == 0 {
			return Lost
		}
	}
	if e == deadEnd {
		return Dead
	}
	next := e >> 2
	if n := int(e & 3); n > 0 {
		count = min(count+n, s.last)
	}
	if chunk := count >> s.shift; chunk != int(b.chunk) {
		if next = s.move(next, chunk); next == 0 {
			return Lost
		}
	}
	return State(next<<s.shift | uint32(count)&(1<<s.shift-1))
}

// move is base id for a larger count; 0 if a limit was reached.
func (s *Strings) move(id uint32, chunk int) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.bases.at(id).form
	f.chunk = int32(chunk)
	return s.intern(f)
}

// edge finds where a byte leads; 0 if a limit was reached.
func (s *Strings) edge(b *base, c byte) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := b.pages[c>>5].Load()
	if p == nil {
		p = new([32]atomic.Uint32)
		s.bytes += 128
		b.pages[c>>5].Store(p)
	}
	if e := p[c&31].Load(); e != 0 {
		return e
	}
	f, read, ok := s.next(b.form, c)
	e := uint32(deadEnd)
	if ok {
		if f.text < 0 {
			s.limit.CompareAndSwap(nil, s.x.limit)
			return 0
		}
		id := s.intern(f)
		if id == 0 {
			return 0
		}
		e = id<<2 | uint32(read)
	}
	p[c&31].Store(e)
	return e
}

func (s *Strings) intern(f form) uint32 {
	if id, ok := s.index[f]; ok {
		return id
	}
	id := uint32(s.count)
	most := min(maxStates, 1<<(32-s.shift))
	if s.count >= most {
		s.limit.CompareAndSwap(nil, &LimitError{"states", most})
		return 0
	}
	if s.bytes+s.x.memory() > s.lim.Bytes {
		s.limit.CompareAndSwap(nil, &LimitError{"bytes", s.lim.Bytes})
		return 0
	}
	if len(s.slab) == 0 {
		s.slab = make([]base, min(32, 3+s.count))
	}
	b := &s.slab[0]
	s.slab = s.slab[1:]
	b.form, b.id = f, id
	if f.mode == closed {
		b.outcomes = make([]atomic.Pointer[Outcome], len(s.x.cuts)+1)
		s.bytes += 8 * len(b.outcomes)
	}
	s.bytes += 300 + s.bases.put(id, b)
	s.count++
	s.index[f] = id
	return id
}

// next is where a byte leads and how many characters it completes. A text of
// -1 says that a limit was reached.
func (s *Strings) next(f form, c byte) (to form, read int, ok bool) {
	switch f.mode {
	case plain:
		return s.nextPlain(f, c)
	case utf8Tail:
		return s.nextTail(f, c)
	case slash:
		return s.nextSlash(f, c)
	case hex:
		return s.nextHex(f, c)
	case high:
		if c == '\\' {
			f.mode = highSlash
			return f, 0, true
		}
		to, read, ok = s.nextPlain(s.lone(f, plain), c)
		return to, read + 1, ok
	case highSlash:
		if c == 'u' {
			f.mode, f.need, f.lo, f.hi = highHex, 4, 0, 0xFFFF
			return f, 0, true
		}
		to, read, ok = s.nextSlash(s.lone(f, slash), c)
		return to, read + 1, ok
	case highHex:
		return s.nextHighHex(f, c)
	}
	return f, 0, false
}

// at is the form between two characters.
func (f form) at(text int32) form {
	return form{text: text, mode: plain, class: -1, pair: -1, chunk: f.chunk}
}

// lone reads a high surrogate that stands alone.
func (s *Strings) lone(f form, m mode) form {
	g := f.at(s.step(f.text, utf8.RuneError))
	g.mode = m
	return g
}

func (s *Strings) step(text int32, r rune) int32 {
	if text < 0 {
		return text
	}
	return s.x.step(text, r)
}

func (s *Strings) char(f form, r rune) (form, int, bool) {
	return f.at(s.step(f.text, r)), 1, true
}

func (s *Strings) nextPlain(f form, c byte) (form, int, bool) {
	switch {
	case c == '"':
		g := f.at(f.text)
		g.mode = closed
		return g, 0, true
	case c == '\\':
		g := f.at(f.text)
		g.mode = slash
		return g, 0, true
	case c < 0x20:
		return f, 0, false
	case c < 0x80:
		return s.char(f, rune(c))
	}
	g := f.at(f.text)
	g.mode = utf8Tail
	switch {
	case 0xC2 <= c && c <= 0xDF:
		g.need, g.lo = 1, rune(c&31)<<6
	case 0xE0 <= c && c <= 0xEF:
		g.need, g.lo = 2, rune(c&15)<<12
	case 0xF0 <= c && c <= 0xF4:
		g.need, g.lo = 3, rune(c&7)<<18
	default:
		return f, 0, false
	}
	g.hi = g.lo | (1<<(6*g.need) - 1)
	switch c {
	case 0xE0:
		g.lo = 0x800
	case 0xED:
		g.hi = 0xD7FF
	case 0xF0:
		g.lo = 0x10000
	case 0xF4:
		g.hi = 0x10FFFF
	}
	return s.joinTail(g), 0, true
}

// joinTail forgets which character it is where that doesn't matter, but not
// which bytes may come next.
func (s *Strings) joinTail(f form) form {
	if class := s.oneClass(f.text, f.lo, f.hi); class >= 0 {
		down := 6 * (f.need - 1)
		f.class, f.lo, f.hi = class, 0x80|f.lo>>down&63, 0x80|f.hi>>down&63
	}
	return f
}

func (s *Strings) nextTail(f form, c byte) (form, int, bool) {
	if c&0xC0 != 0x80 {
		return f, 0, false
	}
	f.need--
	if f.class >= 0 {
		if rune(c) < f.lo || rune(c) > f.hi {
			return f, 0, false
		}
		if f.need == 0 {
			return f.at(s.x.stepClass(f.text, f.class)), 1, true
		}
		f.lo, f.hi = 0x80, 0xBF
		return f, 0, true
	}
	down := 6 * f.need
	at := f.lo>>(down+6)<<(down+6) | rune(c&63)<<down
	lo, hi := max(at, f.lo), min(at|(1<<down-1), f.hi)
	if lo > hi {
		return f, 0, false
	}
	if f.need == 0 {
		return s.char(f, lo)
	}
	f.lo, f.hi = lo, hi
	return s.joinTail(f), 0, true
}

// oneClass is the class of all characters of lo to hi, if nothing tells them
// apart for text; else -1.
func (s *Strings) oneClass(text int32, lo, hi rune) int32 {
	if text < 0 {
		return -1
	}
	t := s.x.all[text]
	if s.x.goesOn(t, lo, hi) {
		return -1
	}
	class := int32(-1)
	for i := s.x.stretch(lo); i < len(s.x.starts) && s.x.starts[i] <= hi; i++ {
		if class >= 0 && s.x.classes[i] != class {
			return -1
		}
		class = s.x.classes[i]
	}
	return class
}

func (s *Strings) nextSlash(f form, c byte) (form, int, bool) {
	switch c {
	case '"', '\\', '/':
		return s.char(f, rune(c))
	case 'b':
		return s.char(f, '\b')
	case 'f':
		return s.char(f, '\f')
	case 'n':
		return s.char(f, '\n')
	case 'r':
		return s.char(f, '\r')
	case 't':
		return s.char(f, '\t')
	case 'u':
		g := f.at(f.text)
		g.mode, g.need, g.hi = hex, 4, 0xFFFF
		return g, 0, true
	}
	return f, 0, false
}

const (
	highFirst, highLast = 0xD800, 0xDBFF
	lowFirst, lowLast   = 0xDC00, 0xDFFF
	astral              = 0x10000 // the first character that takes two surrogates
)

// digit narrows lo to hi by one hex digit.
func (f *form) digit(c byte) bool {
	d := hexDigit(c)
	if d < 0 {
		return false
	}
	f.need--
	f.lo |= rune(d) << (4 * f.need)
	f.hi = f.lo | (1<<(4*f.need) - 1)
	return true
}

func (s *Strings) nextHex(f form, c byte) (form, int, bool) {
	if f.class >= 0 {
		if hexDigit(c) < 0 {
			return f, 0, false
		}
		if f.need--; f.need == 0 {
			return f.at(s.x.stepClass(f.text, f.class)), 1, true
		}
		return f, 0, true
	}
	if f.pair >= 0 {
		if hexDigit(c) < 0 {
			return f, 0, false
		}
		if f.need--; f.need == 0 {
			f.mode = high
		}
		return f, 0, true
	}
	if !f.digit(c) {
		return f, 0, false
	}
	return s.escape(f)
}

// escape goes on with an escape of which it is known to be lo to hi.
func (s *Strings) escape(f form) (form, int, bool) {
	switch {
	case highFirst <= f.lo && f.hi <= highLast:
		from, to := astral+(f.lo-highFirst)<<10, astral+(f.hi-highFirst)<<10|0x3FF
		if class := s.oneClass(f.text, from, to); class >= 0 {
			f.pair, f.lo, f.hi = class, 0, 0
			if f.need == 0 {
				f.mode = high
			}
			return f, 0, true
		}
		if f.need == 0 {
			f.mode, f.high, f.lo, f.hi = high, f.lo, 0, 0
		}
		return f, 0, true
	case lowFirst <= f.lo && f.hi <= lowLast:
		if f.need == 0 {
			return s.char(f, utf8.RuneError)
		}
		if class := s.oneClass(f.text, utf8.RuneError, utf8.RuneError); class >= 0 {
			f.class, f.lo, f.hi = class, 0, 0
			return f, 0, true
		}
		f.lo, f.hi = lowFirst, lowFirst|(1<<(4*f.need)-1)
		return f, 0, true
	case f.need == 0:
		return s.char(f, f.lo)
	case f.hi < highFirst || f.lo > lowLast:
		if class := s.oneClass(f.text, f.lo, f.hi); class >= 0 {
			f.class, f.lo, f.hi = class, 0, 0
		}
	}
	return f, 0, true
}

func (s *Strings) nextHighHex(f form, c byte) (form, int, bool) {
	if !f.digit(c) {
		return f, 0, false
	}
	if f.hi < lowFirst || f.lo > lowLast {
		g := s.lone(f, hex)
		g.need, g.lo, g.hi = f.need, f.lo, f.hi
		to, read, ok := s.escape(g)
		return to, read + 1, ok
	}
	if f.need > 0 {
		if f.pair >= 0 && f.lo >= lowFirst {
			f.lo = lowFirst
			f.hi = f.lo | (1<<(4*f.need) - 1)
		}
		return f, 0, true
	}
	if f.pair >= 0 {
		return f.at(s.x.stepClass(f.text, f.pair)), 1, true
	}
	return s.char(f, astral+(f.high-highFirst)<<10+f.lo-lowFirst)
}

// Closed tells whether the closing quote was the last byte.
func (s *Strings) Closed(q State) bool {
	if q <= Lost {
		return false
	}
	b, _ := s.split(q)
	return b.mode == closed
}

// Between tells whether q stands between characters.
func (s *Strings) Between(q State) bool {
	if q <= Lost {
		return false
	}
	b, _ := s.split(q)
	return b.mode == plain
}

// Truth is which predicates hold, in the order of NewStrings, for the string
// read. It is "" before the closing quote.
func (s *Strings) Truth(q State) Vector { return s.outcome(q).Vector }

// Label is the index in names of the string read; -1 if it is none of them.
// Of names twice the same it is the first.
func (s *Strings) Label(q State) int { return s.outcome(q).Label }

func (s *Strings) outcome(q State) Outcome {
	if !s.Closed(q) {
		return Outcome{Label: -1}
	}
	b, count := s.split(q)
	at := &b.outcomes[s.x.span(count)]
	if o := at.Load(); o != nil {
		return *o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.x.outcome(b.text, count)
	at.Store(&o)
	s.bytes += 40
	return o
}

func (x *texts) outcome(text int32, count int) Outcome {
	t := x.all[text]
	return Outcome{x.vector(t, count), x.label(t)}
}

// Free tells whether nothing but the number of characters matters any more:
// whichever come, no pattern and no name is touched by them. Then a string
// that ends after min to max more satisfies every predicate that can still
// hold; max -1 is no bound. ok is false if something else matters, if no
// number satisfies them all, or within a character.
func (s *Strings) Free(q State) (min, max int, ok bool) {
	if q <= Lost {
		return 0, 0, false
	}
	b, count := s.split(q)
	if b.mode != plain {
		return 0, 0, false
	}
	free := b.free.Load()
	if free == 0 {
		free = s.findFree(b)
	}
	if free < 0 {
		return 0, 0, false
	}
	max = -1
	for _, p := range b.live {
		if p.max >= 0 && p.max < count {
			continue // failed
		}
		if p.min-count > min {
			min = p.min - count
		}
		if p.max >= 0 && (max < 0 || p.max-count < max) {
			max = p.max - count
		}
	}
	return min, max, max < 0 || min <= max
}

func (s *Strings) findFree(b *base) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := int32(-1)
	if s.x.isFree(b.text) {
		free = 1
		t := s.x.all[b.text]
		for i, p := range s.x.preds {
			if p.values == nil && s.x.holdsBut(t, i) {
				b.live = append(b.live, p)
			}
		}
	}
	b.free.Store(free)
	return free
}
