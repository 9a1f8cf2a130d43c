package accept

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/grammar/lexical"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

type textOp uint8

const (
	textPattern textOp = iota
	textFormat
	textLength
)

// A textRule is what a keyword says about strings.
type textRule struct {
	op     textOp
	val    string
	lo, hi int64 // length; hi -1: none
}

type textPredicate struct {
	textRule
	is lexical.Predicate
	origin
}

// An origin is the first place in a schema that a predicate comes from.
type origin struct {
	path    *path
	keyword string
}

// some tells whether a string fits; not to be asked of a pattern.
func (r textRule) some() bool { return r.op == textFormat || r.hi < 0 || r.lo <= r.hi }

type numberOp uint8

const (
	numInteger numberOp = iota
	numMin
	numMax
	numMultiple
	numEqual
)

// A numberRule is what a keyword says about numbers.
type numberRule struct {
	op   numberOp
	val  string
	open bool // of a bound: it is not in
}

type numberPredicate struct {
	numberRule
	v  *big.Rat // integer: 1
	is lexical.NumberPredicate
	origin
}

// undecidable says why lexical can't decide, if that is what err is about.
func undecidable(err error) (string, bool) {
	var pattern *lexical.PatternError
	if errors.As(err, &pattern) {
		return pattern.Error(), true
	}
	var number rangeError
	if errors.As(err, &number) {
		return number.Error(), true
	}
	return "", false
}

// text is the atom of a rule.
func (m *machine) text(r textRule) (expr, error) {
	if r.op == textFormat {
		if _, ok := lexical.Format(r.val); !ok {
			return m.x.typed(tString), nil // a format that nobody knows says nothing
		}
	}
	id, err := m.textID(r)
	return m.x.atom(opStr, uint64(id)), err
}

func (m *machine) textID(r textRule) (uint32, error) {
	var is lexical.Predicate
	var err error
	switch r.op {
	case textPattern:
		if id, ok := m.textIDs["pattern "+r.val]; ok {
			return id, nil
		}
		is, err = lexical.Pattern(r.val)
	case textFormat:
		is, _ = lexical.Format(r.val)
	default:
		is = lexical.Length(int(r.lo), int(r.hi))
	}
	if err != nil {
		return 0, err
	}
	id, ok := m.textIDs[is.Key()]
	if !ok {
		id = uint32(len(m.texts))
		m.texts = append(m.texts, textPredicate{r, is, m.at})
		m.textIDs[is.Key()] = id
	}
	return id, nil
}

// A reader reads strings and tells apart what some formulas ask about them.
type reader struct {
	id     uint32
	lex    *lexical.Strings
	texts  []uint32 // predicates, in the order of lex
	names  []uint32 // words, in the order of lex
	at     map[uint32]int
	common bool // lex serves other automata too
}

// A class is what a reader knows of a whole string.
type class struct {
	reader *reader
	word   uint32 // 0: none of the names
	truth  lexical.Vector
}

// wants gathers what must be told apart.
type wants struct {
	m     *machine
	texts map[uint32]bool
	words map[uint32]bool
	seen  map[expr]bool
}

// string adds what e, which is about strings, asks.
func (w *wants) string(e expr) {
	if e <= yes || w.seen[e] {
		return
	}
	w.seen[e] = true
	d := &w.m.x.nodes[e]
	switch d.op {
	case opStr:
		w.texts[uint32(d.n)] = true
	case opStrIn:
		w.set(set(d.n))
	case opAnd, opOr, opOne, opNot:
		for _, a := range d.args {
			w.string(a)
		}
	}
}

func (w *wants) set(s set) {
	w.m.sets.each(s, func(x uint32) bool {
		w.words[x] = true
		return true
	})
}

// object adds what e, which is about objects, asks of keys.
func (w *wants) object(e expr) {
	if e <= yes || w.seen[e] {
		return
	}
	w.seen[e] = true
	m := w.m
	d := m.x.nodes[e]
	switch d.op {
	case opMember:
		r := m.memberSet.list[d.n]
		for _, k := range r.keys {
			w.words[k] = true
		}
		for _, p := range r.patterns {
			w.texts[p.text] = true
		}
	case opNames:
		w.string(m.about(d.args[0], tString))
	case opHas:
		w.set(set(d.n))
	case opAnd, opOr, opOne, opNot:
		for _, a := range d.args {
			w.object(a)
		}
	case opFree:
		for i, v := range m.coverSet.list[d.n] {
			w.object(d.args[i+1])
			w.set(v.keys)
			for _, p := range v.patterns {
				w.texts[p] = true
			}
		}
	}
}

func (m *machine) wants() *wants {
	return &wants{m: m, texts: map[uint32]bool{}, words: map[uint32]bool{}, seen: map[expr]bool{}}
}

// reader makes or finds the reader that tells apart what w wants.
func (w *wants) reader() (*reader, error) {
	m := w.m
	texts, words := sortedKeys(w.texts), sortedKeys(w.words)
	var key strings.Builder
	for _, t := range texts {
		key.WriteString(strconv.Itoa(int(t)) + ",")
	}
	key.WriteByte(';')
	for _, t := range words {
		key.WriteString(strconv.Itoa(int(t)) + ",")
	}
	if r := m.readers[key.String()]; r != nil {
		return r, nil
	}
	r := &reader{id: uint32(len(m.readerList)), texts: texts, names: words, at: make(map[uint32]int, len(texts))}
	preds := make([]lexical.Predicate, len(texts))
	for i, t := range texts {
		preds[i] = m.texts[t].is
		r.at[t] = i
	}
	names := make([]string, len(words))
	for i, n := range words {
		names[i] = m.words.list[n]
	}
	if err := r.open(preds, names, m.lexicalLimits()); err != nil {
		return nil, m.lexical(err, m.askedBy(texts, nil))
	}
	m.readers[key.String()] = r
	m.readerList = append(m.readerList, r)
	return r, nil
}

// open finds or makes the machine of a reader.
func (r *reader) open(preds []lexical.Predicate, names []string, lim lexical.Limits) (err error) {
	make := func() (*lexical.Strings, error) { return lexical.NewStrings(preds, names, lim) }
	if len(names) > 0 {
		r.lex, err = make()
		return err
	}
	keys := []string{}
	for _, p := range preds {
		keys = append(keys, p.Key())
	}
	r.lex, r.common, err = machineOf(&commonStrings, keys, lim, make)
	return err
}

func (m *machine) lexicalLimits() lexical.Limits { return lexical.Limits{Bytes: m.limits.Memory / 4} }

// askedBy is the origin of the first of some predicates.
func (m *machine) askedBy(texts, nums []uint32) origin {
	switch {
	case len(texts) > 0:
		return m.texts[texts[0]].origin
	case len(nums) > 0:
		return m.nums[nums[0]].origin
	}
	return origin{}
}

// lexical makes a LimitError of ours.
func (m *machine) lexical(err error, of origin) error {
	var limit *lexical.LimitError
	if errors.As(err, &limit) {
		return &LimitError{Limit: "lexical " + limit.What, Max: limit.Max, Path: of.path.String(), Keyword: of.keyword}
	}
	return err
}

func sortedKeys(set map[uint32]bool) []uint32 {
	ks := make([]uint32, 0, len(set))
	for k := range set {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// classAt is the class of the string that was read to state q.
func (m *machine) classAt(r *reader, o lexical.Outcome) uint32 {
	c := class{reader: r, truth: o.Vector}
	if o.Label >= 0 {
		c.word = r.names[o.Label]
	}
	if id, ok := m.classOf[c]; ok {
		return id
	}
	id := uint32(len(m.classes))
	m.classes = append(m.classes, c)
	m.classOf[c] = id
	return id
}

// holds tells whether text predicate p is true of the strings of a class.
func (m *machine) holds(id, p uint32) bool {
	c := &m.classes[id]
	i, ok := c.reader.at[p]
	return ok && c.truth.Has(i)
}

// textTruth tells whether e is true of the strings of a class.
func (m *machine) textTruth(e expr, id uint32) bool {
	return m.truth(m.about(e, tString), func(a expr) bool {
		d := &m.x.nodes[a]
		if d.op == opStrIn {
			w := m.classes[id].word
			return w != 0 && m.sets.has(set(d.n), w)
		}
		return m.holds(id, uint32(d.n))
	})
}

// readerOf makes the reader of a part about strings or objects.
func (m *machine) readerOf(p *part, object bool) (*reader, error) {
	if p.reader != nil {
		return p.reader, nil
	}
	w := m.wants()
	add := w.string
	if object {
		add = w.object
	}
	add(p.goal)
	for _, e := range m.lists.list[p.qs] {
		add(e)
	}
	r, err := w.reader()
	p.reader = r
	return r, err
}

// stringOutcome is what a part says of the strings of a class.
func (m *machine) stringOutcome(p *part, id uint32) outcome {
	if o, ok := p.known[id]; ok {
		return o
	}
	o := m.outcomeOf(p.goal, p.qs, func(a expr) bool { return m.textTruth(a, id) })
	if p.known == nil {
		p.known = map[uint32]outcome{}
	}
	p.known[id] = o
	return o
}

// A rangeError is of a number in a schema that is too large or too close to 0.
type rangeError string

func (e rangeError) Error() string {
	return fmt.Sprintf("%.40s is beyond 1e±2000", string(e))
}

// predicate is the rule as lexical reads it, and its number.
func (r numberRule) predicate() (is lexical.NumberPredicate, v *big.Rat, err error) {
	v = big.NewRat(1, 1)
	if r.op != numInteger {
		plain := jsontext.TameNumber(r.val)
		var ok bool
		if v, ok = v.SetString(plain); !ok || plain != r.val && v.Sign() != 0 {
			return is, nil, rangeError(r.val)
		}
	}
	switch r.op {
	case numInteger:
		is = lexical.Integer()
	case numMin:
		is = lexical.Minimum(v, r.open)
	case numMax:
		is = lexical.Maximum(v, r.open)
	case numMultiple:
		is = lexical.MultipleOf(v)
	case numEqual:
		is = lexical.Equal(v)
	}
	return is, v, nil
}

// number is the atom of a rule.
func (m *machine) number(r numberRule) (expr, error) {
	if r.op == numInteger && m.integer != no {
		return m.integer, nil
	}
	is, v, err := r.predicate()
	if err != nil {
		return no, err
	}
	key := is.Key()
	id, ok := m.numIDs[key]
	if !ok {
		id = uint32(len(m.nums))
		m.nums = append(m.nums, numberPredicate{r, v, is, m.at})
		m.numIDs[key] = id
	}
	e := m.x.atom(opNum, uint64(id))
	if r.op == numInteger {
		m.integer = e
	}
	return e, nil
}

// numbers is true of the numbers listed.
func (m *machine) numbers(list []string) (expr, error) {
	es := make([]expr, len(list))
	for i, s := range list {
		var err error
		if es[i], err = m.number(numberRule{op: numEqual, val: s}); err != nil {
			return no, err
		}
	}
	return m.x.or(es...), nil
}

// someNumber tells whether there is a number that fits all of es, if they are
// bounds, and integer perhaps; unasked if they aren't.
func (m *machine) someNumber(es []expr) answer {
	var lo, hi *numberPredicate
	integer := false
	for _, e := range es {
		d := &m.x.nodes[e]
		if d.op == opOr && len(es) == 1 && m.x.nodes[d.args[0]].op == opNum {
			return surely
		}
		if d.op != opNum {
			return unasked
		}
		switch p := &m.nums[d.n]; {
		case p.op == numInteger:
			integer = true
		case p.op == numMin && lo == nil:
			lo = p
		case p.op == numMax && hi == nil:
			hi = p
		case len(es) == 1:
			return surely
		default:
			return unasked
		}
	}
	if lo == nil || hi == nil {
		return surely
	}
	if !integer {
		c := lo.v.Cmp(hi.v)
		return answerOf(c < 0 || c == 0 && !lo.open && !hi.open)
	}
	least, most := floor(lo.v), floor(hi.v)
	if !lo.v.IsInt() || lo.open {
		least.Add(least, big.NewInt(1))
	}
	if hi.v.IsInt() && hi.open {
		most.Sub(most, big.NewInt(1))
	}
	return answerOf(least.Cmp(most) <= 0)
}

// equals gives the numbers that e, which is about numbers, lists; ok is false
// if it doesn't list them.
func (m *machine) equals(e expr) (list []*numberPredicate, ok bool) {
	es := []expr{e}
	if d := &m.x.nodes[e]; d.op == opOr {
		es = d.args
	}
	for _, a := range es {
		d := &m.x.nodes[a]
		if d.op != opNum || m.nums[d.n].op != numEqual {
			return nil, false
		}
		list = append(list, &m.nums[d.n])
	}
	return list, true
}

// known is the value of a number of which those predicates hold; 0 if they
// don't say.
func (m *machine) known(t *tally, v lexical.Vector) uint32 {
	for i, n := range t.nums {
		if m.nums[n].op == numEqual && v.Has(i) {
			return m.value(canonicalNumber(m.nums[n].val))
		}
	}
	return 0
}

// few tells whether a part may have no more values than were met: where it
// isn't known that there is no end of them.
func (m *machine) few(p *part) bool {
	for _, e := range m.x.conjuncts(p.goal) {
		switch d := &m.x.nodes[e]; d.op {
		case opStr:
			if m.texts[d.n].op == textFormat {
				continue
			}
		case opNum:
			if o := m.nums[d.n].op; o == numInteger || o == numMin || o == numMultiple {
				continue
			}
		}
		return true
	}
	return false
}

func floor(v *big.Rat) *big.Int { return new(big.Int).Div(v.Num(), v.Denom()) }

// A tally reads numbers and tells apart what some formulas ask about them.
type tally struct {
	lex    *lexical.Numbers
	nums   []uint32 // predicates, in the order of lex
	at     map[uint32]int
	ids    map[lexical.Vector]uint32
	list   []lexical.Vector
	common bool // lex serves other automata too
}

// tallyOf makes the tally of a part about numbers.
func (m *machine) tallyOf(p *part) (*tally, error) {
	if p.tally != nil {
		return p.tally, nil
	}
	set := map[uint32]bool{}
	seen := map[expr]bool{}
	var add func(e expr)
	add = func(e expr) {
		if e <= yes || seen[e] {
			return
		}
		seen[e] = true
		d := &m.x.nodes[e]
		if d.op == opNum {
			set[uint32(d.n)] = true
			return
		}
		for _, a := range d.args {
			add(a)
		}
	}
	add(p.goal)
	for _, e := range m.lists.list[p.qs] {
		add(e)
	}
	nums := sortedKeys(set)
	var key strings.Builder
	for _, n := range nums {
		key.WriteString(strconv.Itoa(int(n)) + ",")
	}
	t := m.tallies[key.String()]
	if t == nil {
		t = &tally{nums: nums, at: make(map[uint32]int, len(nums)), ids: map[lexical.Vector]uint32{}}
		preds := make([]lexical.NumberPredicate, len(nums))
		for i, n := range nums {
			preds[i] = m.nums[n].is
			t.at[n] = i
		}
		keys := make([]string, len(preds))
		for i, p := range preds {
			keys[i] = p.Key()
		}
		lim := m.lexicalLimits()
		var err error
		t.lex, t.common, err = machineOf(&commonNumbers, keys, lim, func() (*lexical.Numbers, error) { return lexical.NewNumbers(preds, lim) })
		if err != nil {
			return nil, m.lexical(err, m.askedBy(nil, nums))
		}
		m.tallies[key.String()] = t
	}
	p.tally = t
	return t, nil
}

// numberOutcome is what a part says of a number of which those predicates hold.
func (m *machine) numberOutcome(p *part, v lexical.Vector) outcome {
	t := p.tally
	id, ok := t.ids[v]
	if !ok {
		id = uint32(len(t.list))
		t.list = append(t.list, v)
		t.ids[v] = id
	}
	if o, ok := p.known[id]; ok {
		return o
	}
	o := m.outcomeOf(p.goal, p.qs, func(a expr) bool { return v.Has(t.at[uint32(m.x.nodes[a].n)]) })
	if p.known == nil {
		p.known = map[uint32]outcome{}
	}
	p.known[id] = o
	return o
}

func (m *machine) scalarBytes() int {
	n := 0
	for _, r := range m.readerList {
		n += held(r.lex, r.common)
	}
	for _, t := range m.tallies {
		n += held(t.lex, t.common)
	}
	return n
}
