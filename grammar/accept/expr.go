package accept

import "slices"

// types is a set of the kinds of values that the first byte tells apart.
type types uint8

const (
	tNull types = 1 << iota
	tFalse
	tTrue
	tNumber
	tString
	tArray
	tObject
	anyType types = 1<<iota - 1
	tBool         = tFalse | tTrue
)

// An expr is a question about one value: a formula of atoms, hash-consed.
// An atom about objects, say, is false for every other value.
type expr uint32

const (
	no  expr = 0
	yes expr = 1
)

type op uint8

const (
	opNo      op = iota
	opYes        // is a value
	opAnd        // all of args
	opOr         // one or more of args
	opOne        // just one of args, which are distinct
	opNot        // not args[0]: an atom or opOne
	opRef        // definition n
	opType       // of a type in n
	opStrIn      // a string of the set n
	opStr        // a string of which text predicate n is true
	opNum        // a number of which number predicate n is true
	opMember     // an object whose members fit member rule n
	opNames      // an object whose keys all fit args[0]
	opHas        // an object that has all keys of the set n
	opMinKeys    // an object of n members or more; here and below n > 0
	opMaxKeys    // an object of n members or fewer
	opFree       // an object whose members that rule n of coverage leaves over fit args[0]; args[1:] are conditions, see cover
	opItems      // an array whose items fit item rule n, from its item m on
	opMin        // an array of n items or more
	opMax        // an array of n items or fewer
	opSome       // an array of which n items or more fit args[0]
	opFew        // an array of which n items or fewer fit args[0]
	opUnique     // an array without equal items, none of them a value of the set n
	opRest       // as opFree, of items
)

// about gives the type that an atom is about.
func (o op) about() types {
	switch {
	case o == opStrIn || o == opStr:
		return tString
	case o == opNum:
		return tNumber
	case o >= opMember && o <= opFree:
		return tObject
	case o >= opItems:
		return tArray
	}
	return 0
}

type node struct {
	op   op
	m    uint32
	n    uint64
	args []expr
	next expr // of the same hash
}

// exprs holds every formula of an automaton.
type exprs struct {
	nodes []node
	ids   map[uint64]expr
	not   map[expr]expr
	sets  *sets
	parts int      // of all nodes, themselves included
	spare [][]expr // see take
}

func newExprs(s *sets) *exprs {
	x := &exprs{ids: map[uint64]expr{}, not: map[expr]expr{}, sets: s}
	x.nodes = append(make([]node, 0, 64), node{op: opNo}, node{op: opYes})
	return x
}

func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

// intern makes the node, without any thought about what it means. It keeps args.
func (x *exprs) intern(o op, n uint64, m uint32, args []expr) expr {
	h := mix(mix(uint64(o)+1, n), uint64(m))
	for _, a := range args {
		h = mix(h, uint64(a))
	}
	first := x.ids[h]
	for e := first; e != 0; e = x.nodes[e].next {
		if d := &x.nodes[e]; d.op == o && d.n == n && d.m == m && slices.Equal(d.args, args) {
			return e
		}
	}
	e := expr(len(x.nodes))
	x.nodes = append(x.nodes, node{o, m, n, args, first})
	x.ids[h] = e
	x.parts += 1 + len(args)
	return e
}

func (x *exprs) atom(o op, n uint64, args ...expr) expr {
	switch o {
	case opStrIn:
		if n == 0 {
			return no
		}
	case opHas, opMinKeys:
		if n == 0 {
			return x.typed(tObject)
		}
	case opMin, opSome:
		if n == 0 {
			return x.typed(tArray)
		}
		if o == opSome && args[0] == no {
			return no
		}
		if o == opSome && args[0] == yes {
			return x.atom(opMin, n)
		}
	case opFew:
		if args[0] == no {
			return x.typed(tArray)
		}
		if args[0] == yes {
			return x.atom(opMax, n)
		}
	case opNames:
		if args[0] == yes {
			return x.typed(tObject)
		}
	}
	return x.intern(o, n, 0, args)
}

func (x *exprs) typed(t types) expr {
	switch t {
	case 0:
		return no
	case anyType:
		return yes
	}
	return x.intern(opType, uint64(t), 0, nil)
}

// when is e for values of type t, true for others.
func (x *exprs) when(t types, e expr) expr { return x.or(x.typed(anyType&^t), e) }

func (x *exprs) and(es ...expr) expr { return x.join(opAnd, es) }
func (x *exprs) or(es ...expr) expr  { return x.join(opOr, es) }

// take gives a slice to work in.
func (x *exprs) take() []expr {
	if n := len(x.spare); n > 0 {
		list := x.spare[n-1]
		x.spare = x.spare[:n-1]
		return list
	}
	return make([]expr, 0, 16)
}

// join is the conjunction or disjunction of es in its simplest form.
func (x *exprs) join(o op, es []expr) expr {
	unit, zero := yes, no
	if o == opOr {
		unit, zero = no, yes
	}
	list := x.take()
	defer func() { x.spare = append(x.spare, list[:0]) }()
	for _, e := range es {
		switch d := &x.nodes[e]; {
		case e == zero:
			return zero
		case e == unit:
		case d.op == o:
			list = append(list, d.args...)
		default:
			list = append(list, e)
		}
	}
	if len(list) > 1 {
		slices.Sort(list)
		list = slices.Compact(list)
	}
	if len(list) > 1 {
		var ok bool
		if o == opAnd {
			list, ok = x.meet(list)
		} else {
			list, ok = x.widen(list)
		}
		if !ok {
			return zero
		}
	}
	switch len(list) {
	case 0:
		return unit
	case 1:
		return list[0]
	}
	for _, e := range list { // x and not x
		if d := &x.nodes[e]; d.op == opNot {
			if _, found := slices.BinarySearch(list, d.args[0]); found {
				return zero
			}
		}
	}
	if o == opAnd {
		if short, changed := x.settle(list); changed {
			return x.join(o, short)
		}
	}
	return x.intern(o, 0, 0, slices.Clone(list))
}

// meet simplifies a conjunction; false if it can't be true.
func (x *exprs) meet(list []expr) ([]expr, bool) {
	t, about := anyType, anyType
	var in, out set
	pos, counted := false, 0
	var lo, hi [2]int64 // keys, items
	lo, hi = [2]int64{-1, -1}, [2]int64{-1, -1}
	has, hasN := set(0), 0
	for _, e := range list {
		d := &x.nodes[e]
		if a := d.op.about(); a != 0 {
			about &= a
		}
		switch d.op {
		case opType:
			t &= types(d.n)
			counted++
		case opStrIn:
			if pos {
				in = x.sets.combine(setBoth, in, set(d.n))
			} else {
				in = set(d.n)
			}
			pos = true
			counted++
		case opNot:
			if f := &x.nodes[d.args[0]]; f.op == opStrIn {
				out = x.sets.combine(setUnion, out, set(f.n))
				counted++
			}
		case opHas:
			has = x.sets.combine(setUnion, has, set(d.n))
			hasN++
			counted++
		case opMinKeys:
			lo[0] = max(lo[0], int64(d.n))
			counted++
		case opMaxKeys:
			hi[0] = lower(hi[0], int64(d.n))
			counted++
		case opMin:
			lo[1] = max(lo[1], int64(d.n))
			counted++
		case opMax:
			hi[1] = lower(hi[1], int64(d.n))
			counted++
		}
	}
	if t == 0 || about == 0 || about&t == 0 {
		return nil, false
	}
	if pos {
		in = x.sets.combine(setMinus, in, out)
		if in == 0 {
			return nil, false
		}
		out = 0
	}
	for i := range lo {
		if lo[i] >= 0 && hi[i] >= 0 && lo[i] > hi[i] {
			return nil, false
		}
	}
	if hasN > 0 {
		n := int64(x.sets.len(has))
		if hi[0] >= 0 && n > hi[0] {
			return nil, false
		}
		if lo[0] >= 0 && n >= lo[0] {
			lo[0] = -1
		}
	}
	if counted == 0 && about == anyType {
		return list, true
	}
	list = slices.DeleteFunc(list, func(e expr) bool {
		d := &x.nodes[e]
		switch d.op {
		case opType, opStrIn, opHas, opMinKeys, opMaxKeys, opMin, opMax:
			return true
		case opNot:
			a := x.nodes[d.args[0]].op
			return a == opStrIn || a.about() != 0 && a.about()&t&about == 0
		}
		return false
	})
	if about == anyType && t != anyType {
		list = append(list, x.typed(t))
	}
	if pos {
		list = append(list, x.atom(opStrIn, uint64(in)))
	}
	if out != 0 && t&about&tString != 0 {
		list = append(list, x.neg(x.atom(opStrIn, uint64(out))))
	}
	if hasN > 0 && has != 0 {
		list = append(list, x.atom(opHas, uint64(has)))
	}
	for i, o := range []op{opMinKeys, opMin} {
		if lo[i] > 0 {
			list = append(list, x.atom(o, uint64(lo[i])))
		}
	}
	for i, o := range []op{opMaxKeys, opMax} {
		if hi[i] >= 0 {
			list = append(list, x.atom(o, uint64(hi[i])))
		}
	}
	slices.Sort(list)
	return list, true
}

// settle takes out of the disjunctions in list, which is sorted, what the rest
// of it decides.
func (x *exprs) settle(list []expr) (short []expr, changed bool) {
	has := set(0)
	for _, e := range list {
		if d := &x.nodes[e]; d.op == opHas {
			has = set(d.n)
		}
	}
	for i, e := range list {
		if x.nodes[e].op != opOr {
			continue
		}
		var kept []expr
		for k, a := range x.nodes[e].args {
			if _, found := slices.BinarySearch(list, a); found {
				kept = []expr{yes}
				changed = true
				break
			}
			if x.denied(a, list, has) {
				if kept == nil {
					kept = append(make([]expr, 0, len(x.nodes[e].args)), x.nodes[e].args[:k]...)
				}
				changed = true
			} else if kept != nil {
				kept = append(kept, a)
			}
		}
		if kept != nil {
			if short == nil {
				short = slices.Clone(list)
			}
			short[i] = x.or(kept...)
		}
	}
	return short, changed
}

// denied tells whether e can't be true where all of list is.
func (x *exprs) denied(e expr, list []expr, has set) bool {
	if d := &x.nodes[e]; d.op == opNot {
		a := &x.nodes[d.args[0]]
		_, found := slices.BinarySearch(list, d.args[0])
		return found || a.op == opHas && has != 0 && x.sets.combine(setMinus, set(a.n), has) == 0
	}
	f, ok := x.not[e]
	if ok {
		_, ok = slices.BinarySearch(list, f)
	}
	return ok
}

func lower(a, b int64) int64 {
	if a < 0 || b < a {
		return b
	}
	return a
}

// widen simplifies a disjunction; false if it can't be false.
func (x *exprs) widen(list []expr) ([]expr, bool) {
	t, missing := types(0), anyType // missing: of what is not an atom
	var in, out set
	neg, n := false, 0
	for _, e := range list {
		switch d := &x.nodes[e]; d.op {
		case opType:
			t |= types(d.n)
			n++
		case opStrIn:
			in = x.sets.combine(setUnion, in, set(d.n))
			n++
		case opNot:
			f := &x.nodes[d.args[0]]
			if a := f.op.about(); a != 0 {
				missing &= a
			}
			if f.op == opStrIn {
				if neg {
					out = x.sets.combine(setBoth, out, set(f.n))
				} else {
					out = set(f.n)
				}
				neg = true
				n++
			}
		}
	}
	if t &= missing; t == missing {
		return nil, false
	}
	if n == 0 {
		return list, true
	}
	list = slices.DeleteFunc(list, func(e expr) bool {
		d := &x.nodes[e]
		switch {
		case d.op == opType || d.op == opStrIn, d.op.about()&(t|anyType&^missing) != 0:
			return true
		case d.op == opNot:
			return x.nodes[d.args[0]].op == opStrIn
		}
		return false
	})
	if neg { // all but out, or in: all but what is in out alone
		out = x.sets.combine(setMinus, out, in)
		in = 0
		if out == 0 {
			return nil, false
		}
		list = append(list, x.neg(x.atom(opStrIn, uint64(out))))
	}
	if in != 0 && t&tString == 0 {
		list = append(list, x.atom(opStrIn, uint64(in)))
	}
	if t != 0 {
		list = append(list, x.typed(t))
	}
	slices.Sort(list)
	return list, true
}

// one is true if just one of es is.
func (x *exprs) one(es ...expr) expr {
	list := slices.Clone(es)
	slices.Sort(list)
	var certain int
	var never []expr
	kept := list[:0]
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		switch {
		case list[i] == no:
		case list[i] == yes:
			certain += n
		case n > 1:
			never = append(never, x.neg(list[i]))
		default:
			kept = append(kept, list[i])
		}
		i += n
	}
	switch {
	case certain > 1:
		return no
	case certain == 1:
		for _, e := range kept {
			never = append(never, x.neg(e))
		}
		return x.and(never...)
	case len(kept) == 0:
		return no
	case len(kept) == 1:
		return x.and(append(never, kept[0])...)
	}
	if len(kept) <= maxApart && x.apart(kept) {
		return x.and(append(never, x.or(kept...))...)
	}
	return x.and(append(never, x.intern(opOne, 0, 0, slices.Clone(kept)))...)
}

// maxApart bounds the pairs that one looks at: 16·15/2 conjunctions.
const maxApart = 16

// apart tells whether no two of es can be true of the same value, as far as
// that is plain.
func (x *exprs) apart(es []expr) bool {
	for i, e := range es {
		for _, f := range es[:i] {
			if x.masks(e)&x.masks(f) != 0 && x.and(e, f) != no {
				return false
			}
		}
	}
	return true
}

// masks is a set of types outside which e is false.
func (x *exprs) masks(e expr) types {
	d := &x.nodes[e]
	switch d.op {
	case opNo:
		return 0
	case opType:
		return types(d.n)
	case opAnd:
		t := anyType
		for _, a := range d.args {
			if f := x.nodes[a].op; f != opAnd && f != opOr && f != opOne {
				t &= x.masks(a)
			}
		}
		return t
	}
	if t := d.op.about(); t != 0 {
		return t
	}
	return anyType
}

// neg is the opposite of e.
func (x *exprs) neg(e expr) expr {
	if f, ok := x.not[e]; ok {
		return f
	}
	d := x.nodes[e]
	var f expr
	switch d.op {
	case opNo:
		return yes
	case opYes:
		return no
	case opNot:
		return d.args[0]
	case opType:
		return x.typed(anyType &^ types(d.n))
	case opAnd, opOr:
		fs := make([]expr, len(d.args))
		for i, a := range d.args {
			fs[i] = x.neg(a)
		}
		if d.op == opAnd {
			f = x.or(fs...)
		} else {
			f = x.and(fs...)
		}
	case opMinKeys:
		f = x.or(x.typed(anyType&^tObject), x.atom(opMaxKeys, d.n-1))
	case opMaxKeys:
		f = x.or(x.typed(anyType&^tObject), x.atom(opMinKeys, d.n+1))
	case opMin:
		f = x.or(x.typed(anyType&^tArray), x.atom(opMax, d.n-1))
	case opMax:
		f = x.or(x.typed(anyType&^tArray), x.atom(opMin, d.n+1))
	case opSome:
		f = x.or(x.typed(anyType&^tArray), x.atom(opFew, d.n-1, d.args[0]))
	case opFew:
		f = x.or(x.typed(anyType&^tArray), x.atom(opSome, d.n+1, d.args[0]))
	default:
		f = x.intern(opNot, 0, 0, []expr{e})
	}
	x.not[e] = f
	return f
}

// conjuncts is what must be true for e to be.
func (x *exprs) conjuncts(e expr) []expr {
	if e == yes {
		return nil
	}
	if d := &x.nodes[e]; d.op == opAnd {
		return d.args
	}
	return []expr{e}
}
