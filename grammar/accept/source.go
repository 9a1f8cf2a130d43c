package accept

import (
	"context"

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

func (s *source) Step(at uint32, b byte) (uint32, error) {
	s.work += stepWork
	to, err := s.a.Step(State(at), b)
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
		class := m.digits(m.part(q, 3).tally, c.lex)
		if q.record {
			return apart(class)
		}
		return class
	case inString, inKey:
		r, record := m.quotedBy(c)
		class := r.lex.Classes(c.lex, m.closedTo(c, r))
		if record {
			return apart(class)
		}
		return class
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
		for b, k := range m.digits(numbers, numbers.lex.Start()) {
			if k > 0 && !space(byte(b)) && b != ',' && b != ']' && b != '}' {
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
	sub    uint8
	record bool
	tally  *tally
}

// digits is what may follow in a number read to q, or after it.
func (m *machine) digits(t *tally, q lexical.State) *[256]uint8 {
	if class := t.classes[q]; class != nil {
		return class
	}
	const all = "0123456789.eE+-"
	var known [len(all)]lexical.State
	class := new([256]uint8)
	if t.lex.Complete(q) {
		class = table(blank, ",", "]", "}")
	}
	n := uint8(4)
	for i := range len(all) {
		if known[i] = t.lex.Step(q, all[i]); known[i] == lexical.Dead {
			continue
		}
		k := 0
		for known[k] != known[i] {
			k++
		}
		if k == i {
			n++
			class[all[i]] = n
		} else {
			class[all[i]] = class[all[k]]
		}
	}
	if t.classes == nil {
		t.classes = map[lexical.State]*[256]uint8{}
	}
	t.classes[q] = class
	return class
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
		return t, false
	}
	// How many characters may follow: from some number on one more is too many.
	most := far
	if max >= 0 {
		most = min(max+1, far)
	}
	to := State(at)
	for k := range most {
		next, err := s.a.Step(to, 'a')
		if err != nil {
			return t, false
		}
		if next == 0 {
			t.Max = k
			break
		}
		if next == to { // and so on
			break
		}
		to = next
	}
	// The run is free if it may end after each of these numbers alike.
	t.Free = !record && least == 0 && (max < 0 || max >= far || t.Max >= 0 && t.Max <= max)
	return t, true
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

// listed is the run at c if only words matter in it.
func (s *source) listed(c config, r *reader, record bool) (token.Text, bool) {
	t := token.Text{Chars: token.AnyChar, Max: -1, Ends: `"`}
	t.Chars.Escapes = token.EscapeShort | token.EscapeU | token.EscapePairs | token.EscapeHalf
	if record {
		return t, false
	}
	words, ok := r.lex.Words(c.lex)
	if !ok || len(words) == 0 {
		return t, false
	}
	for _, w := range words {
		t.Words = append(t.Words, w.Rest)
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
	key := uint64(c.top) << 1
	if c.mode == inKey {
		key++
	}
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
