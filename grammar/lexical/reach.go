package lexical

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"
)

// lookahead is what Reachable has found.
type lookahead struct {
	outcomes []Outcome
	exact    bool
}

// ways are the texts that can follow a base, by the number of characters that
// come before them: layer i after i characters. From layer loop on they come
// round again, the last one being followed by layer loop.
type ways struct {
	layers [][]int32
	loop   int
	exact  bool
}

// Reachable is what the whole string may turn out to be, sorted. If exact is
// false, more may be possible than is listed; what is listed is possible. The
// caller doesn't change found.
func (s *Strings) Reachable(q State) (found []Outcome, exact bool) {
	if q <= Lost {
		return nil, q == Dead
	}
	if l, ok := s.reached.Load(q); ok {
		l := l.(*lookahead)
		return l.outcomes, l.exact
	}
	if s.Closed(q) {
		return []Outcome{s.outcome(q)}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, count := s.split(q)
	l, ok := s.reachListed(b)
	if !ok {
		l = s.lookAhead(b, count)
	}
	if s.bytes+s.x.memory() <= s.lim.Bytes/2 {
		s.reached.Store(q, l)
		s.bytes += 100
	}
	return l.outcomes, l.exact
}

// A vista is what decides where a state leads: the ways, and the count, or
// only which cuts it is between if the ways come to rest before the next.
type vista struct {
	ways  *ways
	span  int
	count int
}

func (s *Strings) lookAhead(b *base, count int) *lookahead {
	if b.ways == nil {
		found := map[Outcome]bool{}
		all := s.x.possible(b.text, count)
		w := s.findWays(b.form, func(i int, layer []int32) bool {
			s.take(found, layer, count+i)
			return len(found) < all
		})
		if w == nil {
			return sorted(found, true)
		}
		b.ways = w
		for _, l := range w.layers {
			s.bytes += 24 + 4*len(l)
		}
	}
	v := vista{b.ways, s.x.span(count), -1}
	if w := b.ways; s.x.span(count+len(w.layers)) != v.span || len(w.layers)-w.loop > 1 && v.span < len(s.x.cuts) {
		v.count = count
	}
	l, ok := s.vistas[v]
	if !ok {
		l = s.collect(b.ways, count)
		l.exact = l.exact || len(l.outcomes) == s.x.possible(b.text, count)
		s.vistas[v] = l
		s.bytes += 100 + 40*len(l.outcomes)
	}
	return l
}

// possible is no less than how many outcomes a text can come to.
func (x *texts) possible(text int32, count int) int {
	t := x.all[text]
	open := 0
	for i, p := range x.preds {
		switch {
		case p.max >= 0 && count > p.max,
			x.runs[i] >= 0 && x.runners[x.runs[i]].dead(t.states[x.runs[i]]),
			x.scan[i] >= 0 && t.scans[x.scan[i]] == failed,
			p.values != nil && t.lo == t.hi:
		default:
			open++
		}
	}
	if open > 20 || t.lo < t.hi {
		return math.MaxInt
	}
	return 1 << open
}

func (s *Strings) take(found map[Outcome]bool, layer []int32, count int) {
	for _, t := range layer {
		found[s.x.outcome(t, min(count, s.last))] = true
	}
}

func sorted(found map[Outcome]bool, exact bool) *lookahead {
	l := &lookahead{exact: exact}
	for o := range found {
		l.outcomes = append(l.outcomes, o)
	}
	slices.SortFunc(l.outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Vector, b.Vector), cmp.Compare(a.Label, b.Label))
	})
	return l
}

// collect takes what each layer may turn out to be, after count characters.
func (s *Strings) collect(w *ways, count int) *lookahead {
	found := map[Outcome]bool{}
	for i, layer := range w.layers {
		s.take(found, layer, count+i)
	}
	exact := w.exact
	if period := len(w.layers) - w.loop; period > 0 {
		// The rest of the counts, stretch by stretch.
		at := count + len(w.layers)
		for visits := 0; ; {
			end := -1
			if span := s.x.span(at); span < len(s.x.cuts) {
				end = s.x.cuts[span]
			}
			for i := 0; i < period && (end < 0 || at+i < end); i++ {
				layer := w.layers[w.loop+(at+i-count-w.loop)%period]
				s.take(found, layer, at+i)
				visits += len(layer)
			}
			if end < 0 {
				break
			}
			if visits > 16*s.lim.Visits {
				exact = false
				break
			}
			at = end
		}
	}
	return sorted(found, exact)
}

// findWays looks ahead from a form, at most lim.Visits texts far; nil if more
// says of a layer that it is enough.
func (s *Strings) findWays(f form, more func(i int, layer []int32) bool) *ways {
	w := &ways{exact: true}
	layers, ok := s.enter(f)
	seen := map[string]int{}
	visits := 0
	for i := 0; ok; i++ {
		var layer []int32
		if i < len(layers) {
			layer = layers[i]
		}
		if i > 0 {
			for _, t := range w.layers[i-1] {
				next, fine := s.successors(t)
				if ok = ok && fine; !ok {
					break
				}
				layer = append(layer, next...)
			}
		}
		slices.Sort(layer)
		layer = slices.Compact(layer)
		// Half of memory and work is for Step alone.
		visits += 1 + len(layer)
		if visits > s.lim.Visits || s.bytes+s.x.memory() > s.lim.Bytes/2 || s.x.work() > s.lim.Work/2 {
			ok = false
		}
		if !ok {
			break
		}
		if i >= len(layers) {
			key := make([]byte, 0, 4*len(layer))
			for _, t := range layer {
				key = binary.LittleEndian.AppendUint32(key, uint32(t))
			}
			if at, again := seen[string(key)]; again {
				w.loop = at
				return w
			}
			seen[string(key)] = i
		}
		w.layers = append(w.layers, layer)
		if !more(i, layer) {
			return nil
		}
	}
	w.exact = false
	w.loop = len(w.layers)
	return w
}

var (
	surrogates   = charset{highFirst, lowLast}
	noSurrogates = surrogates.negate()
	bmp          = charset{0, highFirst - 1, lowLast + 1, 0xFFFF}
)

// enter is the texts that completing the character half read gives, by the
// number of characters that takes.
func (s *Strings) enter(f form) (layers [][]int32, ok bool) {
	var one, two []int32
	fine := true
	add := func(to *[]int32, text int32, set charset) {
		next, ok := s.through(text, set)
		fine = fine && ok
		*to = append(*to, next...)
	}
	class := func(to *[]int32, text, class int32) {
		if text >= 0 {
			text = s.x.stepClass(text, class)
		}
		fine = fine && text >= 0
		*to = append(*to, text)
	}
	pair := func() { // the character that a high surrogate begins
		switch {
		case f.pair >= 0:
			class(&one, f.text, f.pair)
		case f.mode == highHex:
			from := astral + (f.high-highFirst)<<10
			add(&one, f.text, charset{from + max(f.lo, lowFirst) - lowFirst, from + min(f.hi, lowLast) - lowFirst})
		default:
			from := astral + (f.high-highFirst)<<10
			add(&one, f.text, charset{from, from | 0x3FF})
		}
	}
	switch f.mode {
	case plain:
		return [][]int32{{f.text}}, true
	case utf8Tail:
		if f.class >= 0 {
			class(&one, f.text, f.class)
		} else {
			add(&one, f.text, charset{f.lo, f.hi})
		}
	case slash:
		add(&one, f.text, noSurrogates)
	case hex:
		switch {
		case f.class >= 0:
			class(&one, f.text, f.class)
		case f.pair >= 0:
			add(&one, f.text, charset{utf8.RuneError, utf8.RuneError})
			pair()
		default:
			add(&one, f.text, escaped(f.lo, f.hi))
		}
	case high, highSlash, highHex:
		if f.pair >= 0 || f.mode != highHex || f.hi >= lowFirst && f.lo <= lowLast {
			pair()
		}
		alone := s.step(f.text, utf8.RuneError)
		switch f.mode {
		case high:
			one = append(one, alone)
			fine = fine && alone >= 0
		case highSlash:
			add(&two, alone, noSurrogates)
		case highHex:
			if f.lo < lowFirst { // a low surrogate would make a pair
				add(&two, alone, escaped(f.lo, f.hi))
			}
		}
	}
	return [][]int32{nil, one, two}, fine
}

// escaped is the characters that an escape of lo to hi can begin.
func escaped(lo, hi rune) charset {
	var set charset
	for i := 0; i < len(bmp); i += 2 {
		if from, to := max(lo, bmp[i]), min(hi, bmp[i+1]); from <= to {
			set = append(set, from, to)
		}
	}
	if from, to := max(lo, highFirst), min(hi, highLast); from <= to {
		set = append(set, astral+(from-highFirst)<<10, astral+(to-highFirst)<<10|0x3FF, utf8.RuneError, utf8.RuneError)
	}
	if max(lo, lowFirst) <= min(hi, lowLast) {
		set = append(set, utf8.RuneError, utf8.RuneError)
	}
	return set.normal()
}

// successors is the texts after one more character.
func (s *Strings) successors(text int32) ([]int32, bool) {
	if t := s.x.all[text]; t.after != nil {
		return t.after, true
	}
	next, ok := s.through(text, noSurrogates)
	if ok {
		slices.Sort(next)
		next = slices.Compact(next)
		s.x.all[text].after = next
		s.x.bytes += 4 * len(next)
	}
	return next, ok
}

// through is the texts after one character of set; false if a limit was
// reached or if there are too many to look at.
func (s *Strings) through(text int32, set charset) ([]int32, bool) {
	if text < 0 {
		return nil, false
	}
	t := s.x.all[text]
	if t.keeps {
		return nil, false
	}
	var next []int32
	words := s.x.continuations(t)
	if len(words) > s.lim.Visits {
		return nil, false
	}
	for _, r := range words {
		if set.has(r) {
			next = append(next, s.x.step(text, r))
		}
	}
	for class, sample := range s.x.samples() {
		if other(sample, set, words) {
			next = append(next, s.x.stepClass(text, int32(class)))
		}
	}
	return next, !slices.Contains(next, -1)
}

// other tells whether a character is in both sets, and not in words, which is
// sorted.
func other(a, b charset, words []rune) bool {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		lo, hi := max(a[i], b[k]), min(a[i+1], b[k+1])
		for r := lo; r <= hi; r++ {
			if _, is := slices.BinarySearch(words, r); !is {
				return true
			}
		}
		if a[i+1] < b[k+1] {
			i += 2
		} else {
			k += 2
		}
	}
	return false
}

// continuations is the characters that words of t go on with or that scanners
// tell apart, sorted.
func (x *texts) continuations(t *text) []rune {
	var rs []rune
	for i := t.lo; i < t.hi; {
		rest := x.words[i].text[t.depth:]
		if rest == "" {
			i++
			continue
		}
		r, _ := utf8.DecodeRuneInString(rest)
		rs = append(rs, r)
		_, i, _ = x.narrow(t, r)
	}
	if !t.rests {
		for i, s := range x.scans {
			rs = append(rs, s.told[t.scans[i]].runes...)
		}
		slices.Sort(rs)
		rs = slices.Compact(rs)
	}
	return rs
}
