package accept

import (
	"context"
	"sort"

	"github.com/toolsidecar/sidecar/grammar/lexical"
	"github.com/toolsidecar/sidecar/grammar/token"
)

// Source is the automaton as a source of states for token masks. Sources of one
// automaton share what it found out.
func (a *Automaton) Source() (token.Source, error) { return &source{a: a}, nil }

type source struct {
	a    *Automaton
	work int
}

func (s *source) Start() (uint32, error) { return uint32(s.a.Start()), nil }

// stepWork is about what a step costs beside the formulas that it looks at, in
// units of 50 ns.
const stepWork = 20

// Step doesn't keep where it led: who makes masks does.
func (s *source) Step(at uint32, b byte) (uint32, error) {
	s.work += stepWork
	if at == 0 {
		return 0, nil
	}
	r := s.a.row(State(at))
	if m := r.config.mode; space(b) && (m == atKey || m == atColon || m == atValue || m == afterValue || m == atEnd) {
		return at, nil // white space
	}
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	to, _, err := s.a.find(r, b, s.a.limits.Memory)
	return uint32(to), err
}

func (s *source) Accepting(at uint32) bool { return s.a.Accepting(State(at)) }

func (s *source) Cost() (bytes, work int) { return s.a.MemoryBytes(), s.work }

func (s *source) Classes(at uint32) *[256]uint8 {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.a.m.bytesOf(s.a.row(State(at)).config)
}

// table puts the bytes of each text into a class, those of a text of more than
// one byte into one.
func table(texts ...string) *[256]uint8 {
	var class [256]uint8
	for i, t := range texts {
		for k := range len(t) {
			class[t[k]] = uint8(i + 1)
		}
	}
	return &class
}

const blank = " \n\t\r"

// What may stand between values.
var (
	toKey, toKeyOrEnd      = table(blank, "\""), table(blank, "\"", "}")
	toColon, toEnd         = table(blank, ":"), table(blank)
	afterMember, afterItem = table(blank, ",", "}"), table(blank, ",", "]")
	inWord                 [256]*[256]uint8
)

func init() {
	for _, w := range words {
		for i := range len(w) {
			inWord[w[i]] = table(w[i : i+1])
		}
	}
}

// bytesOf puts bytes that lead to the same config into one class. Those of
// class 0 lead nowhere; others may do so too.
func (m *machine) bytesOf(c config) *[256]uint8 {
	switch c.mode {
	case atValue:
		return m.first(c)
	case inNull, inTrue, inFalse:
		return inWord[words[c.mode][c.sub]]
	case inNumber:
		q := m.asks[m.frames[c.top].ask]
		class := m.part(q, 3).tally.lex.Classes(c.lex)
		if q.record {
			return apart(class)
		}
		return class
	case inString, inKey:
		r, record := m.quotedBy(c)
		if record {
			return apart(r.lex.Classes(c.lex, m.closedTo(c, r)))
		}
		return m.classesOf(c, r)
	case atKey:
		if c.sub == 1 {
			return toKeyOrEnd
		}
		return toKey
	case atColon:
		return toColon
	case afterValue:
		if m.frames[c.top].kind == frameObject {
			return afterMember
		}
		return afterItem
	}
	return toEnd
}

// classesOf is the classes within a string or key at c that isn't kept.
func (m *machine) classesOf(c config, r *reader) *[256]uint8 {
	closed := m.closedTo(c, r)
	if !closed && m.hopeless(c, r) {
		return r.lex.Hopeful(c.lex)
	}
	return r.lex.Classes(c.lex, closed)
}

// hopeless tells that strings or keys at c need a pattern, a format or a list.
func (m *machine) hopeless(c config, r *reader) bool {
	if m.hopes == nil {
		m.hopes = map[uint64]bool{}
	}
	key := quotedAt(c)
	is, ok := m.hopes[key]
	if !ok {
		is = true
		for _, o := range r.lex.Hopeless() {
			to, err := m.afterQuoted(c, r, o)
			is = is && err == nil && to == dead
		}
		m.hopes[key] = is
	}
	return is
}

// quotedAt is where a string or key stands.
func quotedAt(c config) uint64 {
	key := uint64(c.top) << 1
	if c.mode == inKey {
		key++
	}
	return key
}

// apart gives each byte of a class its own, where the bytes are kept.
func apart(class *[256]uint8) *[256]uint8 {
	each := *class
	n := uint8(0)
	for b := range each {
		if each[b] != 0 {
			n++
			each[b] = n
		}
	}
	return &each
}

// first is how a value at c may begin.
func (m *machine) first(c config) *[256]uint8 {
	q := m.asks[m.frames[c.top].ask]
	var numbers *tally
	key := startOf{sub: c.sub, record: q.record}
	for i := range 7 {
		p := m.part(q, i)
		if p.goal == no {
			continue
		}
		key.types |= 1 << i
		if i == 3 {
			if t, err := m.tallyOf(p); err == nil {
				numbers, key.tally = t, t
			}
		}
	}
	if class := m.starts[key]; class != nil {
		return class
	}
	class := table(blank)
	n := uint8(1)
	add := func(b byte) {
		n++
		class[b] = n
	}
	if c.sub == 1 {
		add(']')
	}
	for i, first := range []byte("nft\x00\"[{") {
		if first != 0 && key.types>>i&1 == 1 {
			add(first)
		}
	}
	if numbers != nil {
		for b, k := range numbers.lex.Classes(numbers.lex.Start()) {
			if k > 0 {
				class[b] = n + k
			}
		}
	}
	if m.starts == nil {
		m.starts = map[startOf]*[256]uint8{}
	}
	if q.record {
		class = apart(class)
	}
	m.starts[key] = class
	return class
}

// A startOf is what tells apart how values may begin.
type startOf struct {
	types  uint8
	record bool
	sub    uint16
	tally  *tally
}

// far is how many bytes a token may have.
const far = 128

func (s *source) Canonical(at uint32) uint32 {
	a := s.a
	c := a.row(State(at)).config
	if c.mode != inString || c.kept != 0 {
		return at
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.m.part(a.m.asks[a.m.frames[c.top].ask], 4).reader
	if c.lex = r.lex.Like(c.lex, far); c.lex == a.row(State(at)).lex {
		return at
	}
	return uint32(a.intern(c))
}

func (s *source) Text(at uint32) (token.Text, bool) {
	c := s.a.row(State(at)).config
	if c.mode != inString && c.mode != inKey {
		return token.Text{}, false
	}
	s.a.mu.Lock()
	r, record := s.a.m.quotedBy(c)
	t, ok := s.listed(c, r, record)
	s.a.mu.Unlock()
	if ok {
		return t, true
	}
	least, max, free := r.lex.Free(c.lex)
	if !free {
		if s.open(c, r, record) {
			return t, true
		}
		return s.run(c, r, record)
	}
	// How many characters may follow: from some number on one more is too many.
	most := far
	if max >= 0 {
		most = min(max+1, far)
	}
	states, ok := along(c.lex, r, 'a', most)
	if !ok {
		return t, false
	}
	t.Max = s.a.most(c, states)
	// The run is free if it may end after each of these numbers alike.
	t.Alike = !record
	t.Free = !record && least == 0 && (max < 0 || max >= far || t.Max >= 0 && t.Max <= max)
	return t, true
}

// open tells that any characters may follow c, whichever they are, as the string
// or key can always turn out to be one that fits.
func (s *source) open(c config, r *reader, record bool) bool {
	if !r.lex.Between(c.lex) {
		return false
	}
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	m := s.a.m
	if m.opens == nil {
		m.opens = map[uint64]bool{}
	}
	key := quotedAt(c)
	is, ok := m.opens[key]
	if ok {
		return is
	}
	outcomes := r.lex.Open()
	is = len(outcomes) > 0
	for _, o := range outcomes {
		if record {
			is = is && m.fresh(c, r, o)
			continue
		}
		to, err := m.afterQuoted(c, r, o)
		is = is && err == nil && to != dead
	}
	if is || !m.live.tired() {
		m.opens[key] = is
	}
	return is
}

// fresh tells that of the strings or keys at c which turn out to be o, and which
// are kept, one that was never there surely fits. There is no end of those of
// an open outcome.
func (m *machine) fresh(c config, r *reader, o lexical.Outcome) bool {
	class := m.classAt(r, o)
	if c.mode == inKey {
		return m.live.behind(c.top, class) == surely
	}
	p := m.part(m.asks[m.frames[c.top].ask], 4)
	return m.live.leave(c.top, m.stringOutcome(p, class), 0) == surely
}

// run is the run at c where characters of a set lead on alike.
func (s *source) run(c config, r *reader, record bool) (token.Text, bool) {
	set, ok := r.lex.Run(c.lex, far)
	if !ok {
		return token.Text{}, false
	}
	t := token.Text{Chars: token.Chars{ASCII: set.ASCII, Others: set.Others}, Alike: set.Alike && !record}
	states, ok := along(c.lex, r, set.One(), far)
	if !ok {
		return t, false
	}
	t.Max = s.a.most(c, states)
	if t.Max >= 0 {
		states = states[:t.Max]
	}
	closes := record || s.a.closes(c, r, states)
	var ends []byte
	for b, fits := range s.ending(c, r, record, states) {
		if fits && !t.Chars.Has(byte(b)) && (b < 0x80 || !set.Others) && (b != '"' || closes) {
			ends = append(ends, byte(b))
		}
	}
	t.Ends = string(ends)
	return t, true
}

// ending is the bytes that may follow the string or key at c or one of the states
// that come next.
func (s *source) ending(c config, r *reader, record bool, states []lexical.State) (fits [256]bool) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	var last *[256]uint8
	for i := -1; i < len(states); i++ {
		if i >= 0 {
			c.lex = states[i]
		}
		class := r.lex.Classes(c.lex, false)
		if !record {
			class = s.a.m.classesOf(c, r)
		}
		if class == last {
			continue
		}
		last = class
		for b, k := range class {
			fits[b] = fits[b] || k > 0
		}
	}
	return fits
}

// along is the states that up to n times a character lead to from q; false if
// some aren't known.
func along(q lexical.State, r *reader, char byte, n int) ([]lexical.State, bool) {
	states := make([]lexical.State, 0, far)
	for len(states) < n {
		next := r.lex.Step(q, char)
		if next <= lexical.Lost {
			return nil, false
		}
		if next == q { // and so on
			break
		}
		states = append(states, next)
		q = next
	}
	return states, true
}

// most is how many of the states that follow c one after the other are alive,
// -1 if all are.
func (a *Automaton) most(c config, states []lexical.State) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	doubts := a.m.live.count
	ends := func(i int) bool {
		c.lex = states[i]
		return !a.m.alive(c)
	}
	// What comes before goes on to what comes later, so that it is enough to
	// halve; but not where "perhaps" is an answer.
	k := sort.Search(len(states), ends)
	if a.m.live.count > doubts {
		a.m.live.count = doubts
		for k = 0; k < len(states) && !ends(k); {
			k++
		}
	}
	if k == len(states) {
		return -1
	}
	return k
}

// closes tells whether the string or key at c may end there, or in one of the
// states that follow.
func (a *Automaton) closes(c config, r *reader, states []lexical.State) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	var last lexical.Outcome
	for i := -1; i < len(states); i++ {
		q := c.lex
		if i >= 0 {
			q = states[i]
		}
		end := r.lex.Step(q, '"')
		if end <= lexical.Lost {
			return true
		}
		o := lexical.Outcome{Vector: r.lex.Truth(end), Label: r.lex.Label(end)}
		if i >= 0 && o == last {
			continue
		}
		last = o
		if to, err := a.m.afterQuoted(c, r, o); err != nil || to != dead {
			return true
		}
	}
	return false
}

// quotedBy is the reader of the string or key that c is within, and whether its
// bytes are kept.
func (m *machine) quotedBy(c config) (*reader, bool) {
	f := &m.frames[c.top]
	if c.mode == inKey {
		return m.readerList[f.keys], f.record
	}
	q := m.asks[f.ask]
	return m.part(q, 4).reader, q.record
}

// listed is the run at c if only words matter in it, or nothing does.
func (s *source) listed(c config, r *reader, record bool) (token.Text, bool) {
	t := token.Text{Chars: token.AnyChar, Max: -1, Ends: `"`}
	t.Chars.Escapes = token.EscapeShort | token.EscapeU | token.EscapePairs | token.EscapeHalf
	if record { // what it turns out to be matters, but any will do
		return t, r.lex.Between(c.lex) && s.a.m.live.anything(c) == surely
	}
	words, ok := r.lex.Words(c.lex)
	if !ok || len(words) == 0 {
		return t, false
	}
	t.Words = make([]string, len(words))
	for i, w := range words {
		t.Words[i] = w.Rest
	}
	t.Closed = s.a.m.closedTo(c, r)
	t.Behind = func(word int) (uint32, error) {
		s.a.mu.Lock()
		defer s.a.mu.Unlock()
		o := r.lex.Other()
		if word >= 0 {
			o = words[word].Outcome
		}
		s.work += stepWork
		to, err := s.a.m.afterQuoted(c, r, o)
		if err != nil || to == dead {
			return 0, err
		}
		return uint32(s.a.intern(to)), s.a.m.exceeded()
	}
	return t, true
}

// afterQuoted is where the string or key at c leads when it has turned out to
// be o; dead if nothing goes on from there.
func (m *machine) afterQuoted(c config, r *reader, o lexical.Outcome) (config, error) {
	m.work = 0
	id := m.classAt(r, o)
	var to config
	var err error
	if c.mode == inKey {
		to, _ = m.endKey(c.top, id, 0)
	} else {
		to, err = m.closeValue(c.top, m.stringOutcome(m.part(m.asks[m.frames[c.top].ask], 4), id), "")
	}
	if err != nil || to == dead || !m.alive(to) {
		return dead, err
	}
	return to, nil
}

// closedTo tells that strings or keys at c can be nothing but words.
func (m *machine) closedTo(c config, r *reader) bool {
	if m.shut == nil {
		m.shut = map[uint64]bool{}
	}
	key := quotedAt(c)
	shut, ok := m.shut[key]
	if !ok {
		to, err := m.afterQuoted(c, r, r.lex.Other())
		shut = r.lex.OnlyLists() && err == nil && to == dead
		m.shut[key] = shut
	}
	return shut
}

// Tokens reads a schema and gives it the masks of a vocabulary. What the
// grammar keeps is bounded by maxBytes, see token.New; when it begins anew the
// schema is read again. The error is that of Compile.
func Tokens(ctx context.Context, v *token.Vocabulary, schema []byte, o Options, maxBytes int) (*token.Grammar, error) {
	a, err := Compile(ctx, schema, o)
	if err != nil {
		return nil, err
	}
	return token.New(v, maxBytes, func() (token.Source, error) {
		now := a
		if a = nil; now == nil {
			var err error
			if now, err = Compile(context.WithoutCancel(ctx), schema, o); err != nil {
				return nil, err
			}
		}
		return now.Source()
	})
}
