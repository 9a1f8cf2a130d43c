package lexical

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Classes puts bytes that lead to the same state into one class and gives the
// number of each, 0 for bytes that don't fit. If listed, only bytes count that
// can still become a word, see Words. Nobody changes the table.
func (s *Strings) Classes(q State, listed bool) *[256]uint8 {
	if q <= Lost {
		return new([256]uint8)
	}
	b, _ := s.split(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &b.sorted
	if listed {
		at = &b.listed
	}
	if *at == nil {
		*at = new([256]uint8)
		if listed {
			s.sortListed(b.form, *at)
		} else {
			s.sort(b.form, *at)
		}
		s.bytes += 256
	}
	return *at
}

// sort finds the classes of a form.
func (s *Strings) sort(f form, class *[256]uint8) {
	n := 0
	alone := func(b byte) {
		n++
		class[b] = uint8(n)
	}
	if f.mode != plain {
		type to struct {
			form
			read int
		}
		known := map[to]uint8{}
		for b := range 256 {
			g, read, ok := s.next(f, byte(b))
			if !ok {
				continue
			}
			k := to{g, read}
			if known[k] == 0 {
				alone(byte(b))
				known[k] = class[b]
			}
			class[b] = known[k]
		}
		return
	}
	t := s.x.all[f.text]
	alone('"')
	alone('\\')
	var known [256]uint8 // by class of characters
	for b := byte(' '); b < 0x80; b++ {
		if b == '"' || b == '\\' {
			continue
		}
		k := s.x.classOf(rune(b))
		if t.keeps || int(k) >= len(known) || s.x.goesOn(t, rune(b), rune(b)) {
			alone(b)
			continue
		}
		if known[k] == 0 {
			alone(b)
			known[k] = class[b]
		}
		class[b] = known[k]
	}
	// Of the first bytes of longer characters those with the same choice for
	// the next are alike, if nothing tells the characters apart.
	if s.oneClass(f.text, 0x80, 0x10FFFF) < 0 {
		for b := 0xC2; b <= 0xF4; b++ {
			alone(byte(b))
		}
		return
	}
	for _, like := range [...]string{"\xC2\xDF", "\xE0\xE0", "\xE1\xEC\xEE\xEF", "\xED\xED", "\xF0\xF0", "\xF1\xF3", "\xF4\xF4"} {
		n++
		for i := 0; i < len(like); i += 2 {
			for b := int(like[i]); b <= int(like[i+1]); b++ {
				class[b] = uint8(n)
			}
		}
	}
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
	for _, w := range s.x.words[t.lo:t.hi] {
		rest := w.text[t.depth:]
		for i := range len(rest) {
			if rest[i] < ' ' || rest[i] == '"' || rest[i] == '\\' || rest[i] == '/' {
				return nil, false
			}
		}
		words = append(words, Word{rest, s.x.outcomeOf(&w)})
	}
	return words, true
}

// Other is the outcome of strings that are no word, see Words.
func (s *Strings) Other() Outcome { return s.x.outcomeOf(&word{label: -1}) }

// OnlyLists tells that all predicates list their values, so that besides names
// and those nothing matters.
func (s *Strings) OnlyLists() bool {
	return !slices.ContainsFunc(s.x.preds, func(p *predicate) bool {
		return p.values == nil || p.prog != nil || p.scan != nil || p.min > 0 || p.max >= 0
	})
}

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
