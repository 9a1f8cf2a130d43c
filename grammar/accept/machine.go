package accept

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A machine holds all that judging by one schema needs, and all that was found
// out in doing so. It is not safe for concurrent use; Automaton guards it.
type machine struct {
	limits Limits
	sets   *sets
	x      *exprs
	defs   []expr // what opRef refers to
	at     origin // of the predicates that are made
	root   expr

	words     vocabularyOf // strings that a schema names
	texts     []textPredicate
	textIDs   map[string]uint32
	nums      []numberPredicate
	numIDs    map[string]uint32
	integer   expr // of numInteger; no: not made yet
	memberSet rules[*memberRule]
	itemSet   rules[*itemRule]
	coverSet  rules[coverage]

	spec       map[uint64]expr // see about
	lists      rules[exprList]
	asks       []*question
	askIDs     map[ask]uint32
	readers    map[string]*reader // of strings, by what they tell apart
	tallies    map[string]*tally  // of numbers
	readerList []*reader
	classes    []class
	classOf    map[class]uint32
	frames     []frame
	frameOf    map[frame]uint32
	trails     []trail
	trailOf    map[trail]uint32
	values     map[string]uint32
	derived    map[derivation]expr
	begun      map[keyed]uint32 // see endKey; 0: no frame
	givens     map[keyed]expr   // see given, by formula
	work       int              // formulas looked at in this step
	effort     int              // and to find out whether the state it led to is alive
	live       *liveness
	shut       map[uint64]bool         // see closedTo
	hopes      map[uint64]bool         // see hopeless
	opens      map[uint64]bool         // see open
	starts     map[startOf]*[256]uint8 // see first
}

type exprList []expr

func (l exprList) encode() string {
	var b []byte
	for _, e := range l {
		b = binary.AppendUvarint(b, uint64(e))
	}
	return string(b)
}

// vocabularyOf numbers strings, from 1.
type vocabularyOf struct {
	list []string
	ids  map[string]uint32
}

func newMachine(l Limits) *machine {
	s := newSets()
	m := &machine{
		limits: l, sets: s, x: newExprs(s),
		words:   vocabularyOf{list: []string{""}, ids: map[string]uint32{}},
		textIDs: map[string]uint32{}, numIDs: map[string]uint32{},
		spec: map[uint64]expr{}, askIDs: map[ask]uint32{}, readers: map[string]*reader{}, tallies: map[string]*tally{},
		classes: make([]class, 1), classOf: map[class]uint32{}, frames: make([]frame, 1, 16), frameOf: make(map[frame]uint32, 28),
		trails: make([]trail, 1), trailOf: map[trail]uint32{}, values: map[string]uint32{}, derived: map[derivation]expr{},
		begun: map[keyed]uint32{}, givens: map[keyed]expr{},
	}
	m.live = newLiveness(m)
	m.lists.id(nil)
	return m
}

func (m *machine) bytes() int {
	return m.sets.bytes() + 80*len(m.x.nodes) + 4*m.x.parts + 16*len(m.x.ids) + 24*len(m.spec) + 24*len(m.derived) + 16*(len(m.begun)+len(m.givens)) +
		m.memberSet.size + m.itemSet.size + m.coverSet.size + m.lists.size +
		160*len(m.asks) + 80*len(m.classes) + 150*len(m.frames) + 40*len(m.trails) + 60*len(m.values) + m.live.bytes() + m.scalarBytes()
}

func (m *machine) word(s string) uint32 {
	if w, ok := m.words.ids[s]; ok {
		return w
	}
	w := uint32(len(m.words.list))
	m.words.list = append(m.words.list, s)
	m.words.ids[s] = w
	return w
}

func (m *machine) items(r *itemRule) expr {
	for len(r.prefix) > 0 && r.prefix[len(r.prefix)-1] == r.rest {
		r.prefix = r.prefix[:len(r.prefix)-1]
	}
	if len(r.prefix) == 0 && r.rest == yes {
		return m.x.typed(tArray)
	}
	return m.x.intern(opItems, m.itemSet.id(r), 0, nil)
}

// A member is a key and what its value is asked.
type member struct {
	word uint32
	e    expr
}

// members makes the atom of a member rule. It reorders vals.
func (m *machine) members(vals []member, patterns []patternRule, rest expr) expr {
	idle := rest == yes && len(vals) == 0 // a key that is named can't come twice
	slices.SortFunc(vals, func(x, y member) int { return cmp.Compare(x.word, y.word) })
	r := &memberRule{rest: rest, patterns: patterns, keys: make([]uint32, len(vals)), vals: make([]expr, len(vals))}
	for i, v := range vals {
		r.keys[i], r.vals[i] = v.word, v.e
	}
	for _, p := range patterns {
		idle = idle && p.e == yes
	}
	if idle {
		return m.x.typed(tObject)
	}
	return m.x.atom(opMember, m.memberSet.id(r))
}

// has is true of objects that have all keys of list.
func (m *machine) has(list []*jsontext.Value) expr {
	var s set
	for _, k := range list {
		s = m.sets.add(s, m.word(k.Str))
	}
	return m.x.atom(opHas, uint64(s))
}

// hasKey is true of objects with that key.
func (m *machine) hasKey(key string) expr { return m.x.atom(opHas, uint64(m.sets.of(m.word(key)))) }

// left is opFree or opRest: what the covers leave over fits e.
func (m *machine) left(o op, e expr, c coverage, when []expr) expr {
	args := make([]expr, 1, 1+len(when))
	args[0] = e
	kept := coverage{}
	for i, w := range when {
		if w == no {
			continue
		}
		if w == yes && c[i].all {
			return m.x.typed(o.about())
		}
		args = append(args, w)
		kept = append(kept, c[i])
	}
	return m.x.intern(o, m.coverSet.id(kept), 0, args)
}

// about is what e asks of values of the one type t: no atom of another type,
// no opType and no opRef is left.
func (m *machine) about(e expr, t types) expr {
	if e <= yes {
		return e
	}
	d := &m.x.nodes[e]
	switch {
	case d.op == opType:
		if types(d.n)&t != 0 {
			return yes
		}
		return no
	case d.op.about() == t && d.op != opFree && d.op != opRest:
		return e
	case d.op.about() != 0 && d.op.about() != t:
		return no
	}
	key := uint64(e)<<7 | uint64(t)
	if f, ok := m.spec[key]; ok {
		return f
	}
	var f expr
	n, o, args := d.n, d.op, d.args
	if o == opRef {
		f = m.about(m.defs[n], t)
	} else {
		parts := make([]expr, len(args))
		for i, a := range args {
			if i == 0 && (o == opFree || o == opRest) {
				parts[i] = a
				continue
			}
			parts[i] = m.about(a, t)
		}
		switch o {
		case opAnd:
			f = m.x.and(parts...)
		case opOr:
			f = m.x.or(parts...)
		case opOne:
			f = m.x.one(parts...)
		case opNot:
			f = m.x.neg(parts[0])
		default:
			f = m.left(o, args[0], m.coverSet.list[n], parts[1:])
			if m.x.nodes[f].op == opType {
				f = yes
			}
		}
	}
	f = m.bare(f, t)
	if f != e && (o == opOne || o == opNot) {
		f = m.about(f, t) // what neg writes has opType in it
	}
	m.spec[key] = f
	return f
}

// bare takes opType, which atoms without a condition turn into, out of what is
// about t alone.
func (m *machine) bare(f expr, t types) expr {
	if d := &m.x.nodes[f]; d.op == opType {
		if types(d.n)&t != 0 {
			return yes
		}
		return no
	}
	return f
}

// An ask is what a value is judged by: goal must be true of it, and of each of
// qs the answer is wanted.
type ask struct {
	goal   expr
	qs     uint32 // a list
	record bool   // the value itself is wanted, for uniqueItems
}

// A question is an ask and, made when they are first needed, its parts by type.
type question struct {
	ask
	by [7]*part
}

// A part is a question about values of one type.
type part struct {
	goal   expr
	qs     uint32
	reader *reader // of strings, or of the keys of objects
	tally  *tally  // of numbers
	known  map[uint32]outcome
}

// An outcome is what is known at the end of a value.
type outcome struct {
	fits    bool
	answers set // of the indices of those of qs that are true
}

func (m *machine) ask(a ask) uint32 {
	if id, ok := m.askIDs[a]; ok {
		return id
	}
	id := uint32(len(m.asks))
	m.asks = append(m.asks, &question{ask: a})
	m.askIDs[a] = id
	return id
}

// part gives the question about values of type t, index i.
func (m *machine) part(q *question, i int) *part {
	if p := q.by[i]; p != nil {
		return p
	}
	t := types(1) << i
	p := &part{goal: m.about(q.goal, t)}
	qs := m.lists.list[q.qs]
	if len(qs) > 0 {
		ps := make(exprList, len(qs))
		for k, e := range qs {
			ps[k] = m.about(e, t)
		}
		p.qs = uint32(m.lists.id(ps))
	}
	q.by[i] = p
	return p
}

// outcomeOf decides what is made of constants.
func (m *machine) outcomeOf(goal expr, qs uint32, end func(expr) bool) outcome {
	o := outcome{fits: m.truth(goal, end)}
	if o.fits {
		for i, e := range m.lists.list[qs] {
			if m.truth(e, end) {
				o.answers = m.sets.add(o.answers, uint32(i))
			}
		}
	}
	return o
}

// truth is the value of a formula whose atoms have the values that end gives.
func (m *machine) truth(e expr, end func(expr) bool) bool {
	d := &m.x.nodes[e]
	m.work++
	switch d.op {
	case opNo:
		return false
	case opYes:
		return true
	case opAnd:
		for _, a := range d.args {
			if !m.truth(a, end) {
				return false
			}
		}
		return true
	case opOr:
		for _, a := range d.args {
			if m.truth(a, end) {
				return true
			}
		}
		return false
	case opNot:
		return !m.truth(d.args[0], end)
	case opOne:
		n := 0
		for _, a := range d.args {
			if m.truth(a, end) {
				if n++; n > 1 {
					return false
				}
			}
		}
		return n == 1
	}
	return end(e)
}

// atTheEnd is the value of an atom about an object or array that ends here.
func (m *machine) atTheEnd(e expr) bool {
	switch m.x.nodes[e].op {
	case opHas, opMinKeys, opMin, opSome:
		return false
	}
	return true
}

// A frame is an open object or array, or the text as a whole; frames are
// interned, each with those that it is in. It has no gaps, as a config.
type frame struct {
	up     uint32
	depth  int32
	goal   expr   // what is left to be true
	qs     uint32 // what is left of the answers that are wanted
	of     uint32 // the ask of this value
	keys   uint32 // object: reader of its keys
	seen   set    // object: words that were keys
	class  uint32 // object: the key of the member that is read
	ask    uint32 // of the member or item that is read; meaningless between
	kept   uint32 // record: trail of what was read
	kind   frameKind
	within bool // a member or item is read
	record bool
}

type frameKind uint16

const (
	frameText frameKind = iota
	frameObject
	frameArray
)

func (m *machine) frame(f frame) uint32 {
	if id, ok := m.frameOf[f]; ok {
		return id
	}
	id := uint32(len(m.frames))
	m.frames = append(m.frames, f)
	m.frameOf[f] = id
	return id
}
