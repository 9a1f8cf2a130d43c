package lexical

import (
	"cmp"
	"slices"
	"sort"
	"unicode/utf8"
)

// Classes puts bytes that lead to the same state into one class and gives the
// number of each, 0 for bytes that don't fit. If listed, only bytes count that
// can still become a word, see Words. Nobody changes the table.
func (s *Strings) Classes(q State, listed bool) *[256]uint8 {
	if listed {
		return s.classes(q, onlyWords)
	}
	return s.classes(q, everything)
}

// Hopeful is Classes without bytes that are known to end all hope: what follows
// them has one of the outcomes of Hopeless.
func (s *Strings) Hopeful(q State) *[256]uint8 { return s.classes(q, hopeful) }

// What classes are asked of.
const (
	everything = iota
	onlyWords
	hopeful
	kindsOfClasses
)

func (s *Strings) classes(q State, kind int) *[256]uint8 {
	if q <= Lost {
		return new([256]uint8)
	}
	b, _ := s.split(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &b.sorted[kind]
	if *at == nil {
		*at = new([256]uint8)
		switch {
		case kind == onlyWords:
			s.sortListed(b.form, *at)
		case b.mode == plain:
			s.sort(b.form, kind == hopeful, *at)
		default:
			s.sortPart(b.form, kind == hopeful, *at)
		}
		s.bytes += 256
	}
	return *at
}

// Hopeless is what a string can turn out to be of which nothing but its length
// matters, as it is no word, and no pattern and no format takes it.
func (s *Strings) Hopeless() []Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hopeless != nil {
		return s.hopeless
	}
	for span := range len(s.x.cuts) + 1 {
		count := 0
		if span > 0 {
			count = s.x.cuts[span-1]
		}
		bits := make([]byte, (len(s.x.preds)+7)/8)
		for i, p := range s.x.preds {
			if p.values == nil && p.prog == nil && p.scan == nil && count >= p.min && (p.max < 0 || count <= p.max) {
				bits[i/8] |= 1 << (i % 8)
			}
		}
		s.hopeless = append(s.hopeless, Outcome{Vector(bits), -1})
	}
	return s.hopeless
}

// lost tells whether t is the beginning of Hopeless strings alone.
func (x *texts) lost(text int32) bool {
	if text < 0 {
		return false
	}
	t := x.all[text]
	if !x.spent(t) {
		return false
	}
	for _, s := range t.scans {
		if s == passed {
			return false
		}
	}
	return true
}

// sort finds the classes of a form between characters.
func (s *Strings) sort(f form, hopeful bool, class *[256]uint8) {
	x, t := s.x, s.x.all[f.text]
	n := uint8(0)
	alone := func(b byte) {
		n++
		class[b] = n
	}
	alone('"')
	alone('\\')
	apart := x.apart(t)
	known := map[int32]uint8{}          // by where it leads
	seen := make([]int32, len(x.parts)) // by class of characters: where it leads, and one more
	for b := byte(' '); b < 0x80; b++ {
		if b == '"' || b == '\\' {
			continue
		}
		if apart[b>>6]>>(b&63)&1 == 1 {
			if !hopeful || t.keeps || !x.lost(x.step(f.text, rune(b))) {
				alone(b)
			}
			continue
		}
		k := x.ascii[b]
		if seen[k] == 0 {
			seen[k] = x.stepClass(f.text, k) + 1
		}
		to := seen[k] - 1
		switch {
		case to < 0:
			alone(b)
		case known[to] != 0:
			class[b] = known[to]
		case !hopeful || !x.lost(to):
			alone(b)
			known[to] = class[b]
		}
	}
	// Of the first bytes of longer characters those with the same choice for
	// the next are alike, if nothing tells the characters apart.
	if all := s.oneClass(f.text, 0x80, 0x10FFFF); all >= 0 {
		if hopeful && x.lost(x.stepClass(f.text, all)) {
			return
		}
		for _, like := range [...]string{"\xC2\xDF", "\xE0\xE0", "\xE1\xEC\xEE\xEF", "\xED\xED", "\xF0\xF0", "\xF1\xF3", "\xF4\xF4"} {
			n++
			for i := 0; i < len(like); i += 2 {
				for b := int(like[i]); b <= int(like[i+1]); b++ {
					class[b] = n
				}
			}
		}
		return
	}
	for b := 0xC2; b <= 0xF4; b++ {
		if g, _, _ := s.nextPlain(f, byte(b)); !hopeful || !s.lost(g) {
			alone(byte(b))
		}
	}
}

// sortPart finds the classes of a form within a character.
func (s *Strings) sortPart(f form, hopeful bool, class *[256]uint8) {
	type to struct {
		form
		read int
	}
	known := map[to]uint8{}
	n := uint8(0)
	for b := range 256 {
		g, read, ok := s.next(f, byte(b))
		if !ok || hopeful && s.lost(g) {
			continue
		}
		k := to{g, read}
		if known[k] == 0 {
			n++
			known[k] = n
		}
		class[b] = known[k]
	}
}

// lost tells whether a form is known to be the beginning of Hopeless strings
// alone.
func (s *Strings) lost(f form) bool {
	switch {
	case f.mode == plain:
		return s.x.lost(f.text)
	case f.mode == utf8Tail && f.class >= 0, f.mode == hex && f.class >= 0:
		return s.x.lost(s.x.stepClass(f.text, f.class))
	}
	return false
}

// apart is the characters below 0x80 that words or scanners tell from others.
func (x *texts) apart(t *text) (set [2]uint64) {
	if t.keeps {
		return [2]uint64{^uint64(0), ^uint64(0)}
	}
	add := func(r rune) {
		if r < 0x80 {
			set[r>>6] |= 1 << (r & 63)
		}
	}
	if !t.rests {
		for i, s := range x.scans {
			for _, r := range s.told[t.scans[i]].runes {
				add(r)
			}
		}
	}
	for i := t.lo; i < t.hi; {
		rest := x.words[i].text[t.depth:]
		if rest == "" {
			i++
			continue
		}
		if rest[0] >= 0x80 {
			break // as are all that follow
		}
		add(rune(rest[0]))
		i += int32(sort.Search(int(t.hi-i), func(k int) bool {
			next := x.words[i+int32(k)].text[t.depth:]
			return next[0] > rest[0]
		}))
	}
	return set
}

// sortListed gives each byte that keeps a word possible a class of its own.
func (s *Strings) sortListed(f form, class *[256]uint8) {
	n := 0
	alone := func(b byte) {
		n++
		class[b] = uint8(n)
	}
	t := s.x.all[f.text]
	if t.lo == t.hi {
		return
	}
	switch f.mode {
	case plain:
		if s.x.word(t) != nil {
			alone('"')
		}
		alone('\\')
		for i := t.lo; i < t.hi; i++ {
			if rest := s.x.words[i].text[t.depth:]; rest != "" && rest[0] >= ' ' && class[rest[0]] == 0 && rest[0] != '"' {
				alone(rest[0])
			}
		}
	case slash:
		for i, c := range []byte(`"\/bfnrt`) {
			if r := rune("\"\\/\b\f\n\r\t"[i]); s.x.goesOn(t, r, r) {
				alone(c)
			}
		}
		alone('u')
	default:
		for b := range 256 {
			if _, _, ok := s.next(f, byte(b)); ok {
				alone(byte(b))
			}
		}
	}
}

// Like is a state from which at most far more characters mean what they mean
// from q: where no length is that near, how many there were doesn't matter.
func (s *Strings) Like(q State, far int) State {
	if q <= Lost {
		return q
	}
	b, count := s.split(q)
	if b.mode == closed || count == 0 {
		return q
	}
	i := s.x.span(count)
	from := 0
	if i > 0 {
		from = s.x.cuts[i-1]
	}
	if from == count || i < len(s.x.cuts) && s.x.cuts[i]-count <= far {
		return q
	}
	id := b.id
	if chunk := from >> s.shift; chunk != int(b.chunk) {
		if id = s.move(id, chunk); id == 0 {
			return q
		}
	}
	return State(id<<s.shift | uint32(from)&(1<<s.shift-1))
}

// maxListed bounds how many words Words gives.
const maxListed = 256

// A Word is what a string may still become.
type Word struct {
	Rest string // what is to come
	Outcome
}

// Words is what the string may still become, if words are all that matters:
// names, and values of predicates that list them. Any other string has the
// outcome Other. ok is false if something else matters, within a character, for
// words that can't be written without escapes, and for very many.
func (s *Strings) Words(q State) (words []Word, ok bool) {
	if q <= Lost || !s.OnlyLists() {
		return nil, false
	}
	b, _ := s.split(q)
	if b.mode != plain {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.x.all[b.text]
	if t.hi-t.lo > maxListed {
		return nil, false
	}
	words = make([]Word, 0, t.hi-t.lo)
	for i := t.lo; i < t.hi; i++ {
		w := &s.x.words[i]
		rest := w.text[t.depth:]
		for i := range len(rest) {
			if rest[i] < ' ' || rest[i] == '"' || rest[i] == '\\' || rest[i] == '/' {
				return nil, false
			}
		}
		words = append(words, Word{rest, s.x.outcomeOf(w)})
	}
	return words, true
}

// Other is the outcome of strings that are no word, see Words.
func (s *Strings) Other() Outcome { return s.x.outcomeOf(&word{label: -1}) }

// OnlyLists tells that all predicates list their values, so that besides names
// and those nothing matters.
func (s *Strings) OnlyLists() bool { return s.onlyLists }

// outcomeOf is what a word turns out to be where only lists matter.
func (x *texts) outcomeOf(w *word) Outcome {
	if len(x.preds) == 0 {
		return Outcome{Label: w.label}
	}
	bits := make([]byte, (len(x.preds)+7)/8)
	for _, i := range w.in {
		bits[i/8] |= 1 << (i % 8)
	}
	return Outcome{Vector(bits), w.label}
}

// reachListed is Reachable where only lists matter, between characters and at
// the start of an escape.
func (s *Strings) reachListed(b *base) (*lookahead, bool) {
	escape := b.mode == slash || b.mode == hex && b.need == 4
	if b.mode != plain && !escape || !s.OnlyLists() {
		return nil, false
	}
	t := s.x.all[b.text]
	if t.hi-t.lo > maxListed {
		return nil, false
	}
	out := []Outcome{s.Other()}
	for i := t.lo; i < t.hi; i++ {
		w := &s.x.words[i]
		rest := w.text[t.depth:]
		if escape { // of what can be escaped one way or the other
			if r, _ := utf8.DecodeRuneInString(rest); rest == "" || b.mode == hex && r > 0xFFFF {
				return nil, false
			}
		}
		out = append(out, s.x.outcomeOf(w))
	}
	slices.SortFunc(out, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Vector, b.Vector), cmp.Compare(a.Label, b.Label))
	})
	return &lookahead{slices.Compact(out), true}, true
}
