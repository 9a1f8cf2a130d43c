package lexical

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A NumberPredicate is a set of numbers. The zero value has every number.
type NumberPredicate struct {
	kind      numberKind
	value     *big.Rat
	exclusive bool
}

type numberKind uint8

const (
	anyNumber numberKind = iota
	minimum
	maximum
	multipleOf
	equal
)

// Minimum is the numbers from v up, without v itself if exclusive.
func Minimum(v *big.Rat, exclusive bool) NumberPredicate {
	return NumberPredicate{minimum, new(big.Rat).Set(v), exclusive}
}

// Maximum is the numbers up to v, without v itself if exclusive.
func Maximum(v *big.Rat, exclusive bool) NumberPredicate {
	return NumberPredicate{maximum, new(big.Rat).Set(v), exclusive}
}

// MultipleOf is the whole multiples of v, of either sign; of 0 that is 0.
func MultipleOf(v *big.Rat) NumberPredicate {
	return NumberPredicate{multipleOf, new(big.Rat).Abs(v), false}
}

// Integer is the numbers without a fraction, however they are spelled: 1.0 and
// 1e2 are integers, in every draft, as in santhosh-tekuri/jsonschema. The
// suite of draft-04 has its own view of 1.0 among the optional tests alone.
func Integer() NumberPredicate { return MultipleOf(big.NewRat(1, 1)) }

// Equal is v alone.
func Equal(v *big.Rat) NumberPredicate {
	return NumberPredicate{equal, new(big.Rat).Set(v), false}
}

// Key tells predicates apart.
func (p NumberPredicate) Key() string {
	if p.kind == anyNumber {
		return ""
	}
	return fmt.Sprintf("%d %t %s", p.kind, p.exclusive, p.value.RatString())
}

// errNotDecimal is of a bound that no JSON number can spell.
var errNotDecimal = errors.New("bound without a finite decimal expansion")

// Numbers reads JSON numbers and tells which predicates hold. It is safe for
// concurrent use. A state knows of the digits no more than the predicates ask
// for: without predicates there are nine states; bounds know how the digits
// compare to those of the bounds, and how many there are; multiples know a
// remainder. An exponent costs no more than its own digits.
type Numbers struct {
	preds    []NumberPredicate
	lim      Limits
	points   []decimal // what bounds and Equal compare with, by predicate
	mantissa []string  // of the points, sorted
	longest  int       // of mantissa
	steps    []lattice // of multiples, by predicate
	bounded  bool      // some predicate compares
	stepped  bool      // some predicate is a multiple
	nodes    directory[numberNode]
	limit    atomic.Pointer[LimitError]

	mu      sync.Mutex // guards all below and the making of nodes
	count   int
	index   map[numberForm]uint32
	bytes   int
	reached map[uint32]numberAhead
}

// A decimal is ± 0.digits · 10^exp; digits begin and end with no 0, and are ""
// for 0.
type decimal struct {
	sign   int
	digits string
	exp    int64
	at     int // index in Numbers.mantissa
}

// A lattice is the multiples of p/q. Let x be M · 10^s where M doesn't end
// in 0. If s ≥ 0, x is one if p divides M·q·10^s. If s < 0, it is one if
// p·10^-s divides M·q; as M is not both even and a multiple of 5, that needs
// -s ≤ deep, the larger of the powers of 2 and 5 in q. So M is needed modulo
// p · 10^deep alone.
type lattice struct {
	p, q *big.Int
	deep int64
	mod  *big.Int
}

type phase uint8

const (
	numStart phase = iota
	numMinus
	numZero
	numInt
	numDot
	numFrac
	numE
	numSign
	numExp
)

// A numberForm is what is known of a number so far.
type numberForm struct {
	phase   phase
	neg     bool
	nonzero bool
	expNeg  bool
	exp     int64  // of numExp, at most maxExp
	mag     int64  // bounded: the number is 0.d… · 10^mag before the exponent
	place   int32  // bounded: how the digits compare to mantissa i: 2i+1 equal, 2i below it and above the one before
	depth   int32  // bounded: digits read while some mantissa still begins with them; -1: none does
	last    int64  // stepped: power of ten of the last digit that isn't 0
	frac    int64  // stepped: digits after the point
	rems    string // stepped: M modulo each lattice's mod
	digits  string // bounded and stepped: M, if not too long
}

// maxExp is where exponents stop to be told apart: far above what the digits
// of a text or of a bound can make up for.
const maxExp = 1 << 40

// maxKnown is how many digits are kept for Reachable to be exact.
const maxKnown = 40

type numberNode struct {
	numberForm
	next  [16]atomic.Uint32 // by symbol: 0 not known, 1 doesn't fit, else id + 1
	truth atomic.Pointer[Vector]
	class atomic.Pointer[[256]uint8]
}

// NewNumbers makes a machine that runs preds side by side.
func NewNumbers(preds []NumberPredicate, lim Limits) (*Numbers, error) {
	n := &Numbers{preds: slices.Clone(preds), lim: lim.orDefault(), count: 1, index: map[numberForm]uint32{}, reached: map[uint32]numberAhead{}}
	n.points, n.steps = make([]decimal, len(preds)), make([]lattice, len(preds))
	for i, p := range preds {
		switch p.kind {
		case minimum, maximum, equal:
			d, ok := decimalOf(p.value)
			if !ok {
				return nil, errNotDecimal
			}
			n.points[i] = d
			n.bounded = true
			n.mantissa = append(n.mantissa, d.digits)
			n.longest = max(n.longest, len(d.digits))
		case multipleOf:
			n.steps[i] = newLattice(p.value)
			n.stepped = true
			n.bytes += n.steps[i].mod.BitLen() / 8
		}
	}
	slices.Sort(n.mantissa)
	n.mantissa = slices.Compact(n.mantissa)
	for i := range n.points {
		n.points[i].at, _ = slices.BinarySearch(n.mantissa, n.points[i].digits)
	}
	if n.bytes > n.lim.Bytes {
		return nil, &LimitError{"bytes", n.lim.Bytes}
	}
	n.intern(numberForm{})
	return n, nil
}

// decimalOf writes r in digits; false if they have no end.
func decimalOf(r *big.Rat) (decimal, bool) {
	d := decimal{sign: r.Sign()}
	if d.sign == 0 {
		return d, true
	}
	twos, rest := split(r.Denom(), 2)
	fives, rest := split(rest, 5)
	if rest.Cmp(big.NewInt(1)) != 0 {
		return d, false
	}
	scale := max(twos, fives)
	num := new(big.Int).Abs(r.Num())
	num.Mul(num, new(big.Int).Exp(big.NewInt(10), big.NewInt(scale), nil))
	num.Quo(num, r.Denom())
	text := num.String()
	d.exp = int64(len(text)) - scale
	d.digits = strings.TrimRight(text, "0")
	return d, true
}

// split divides n by all powers of the prime f in it.
func split(n *big.Int, f int64) (power int64, rest *big.Int) {
	rest = new(big.Int).Set(n)
	prime, rem, quo := big.NewInt(f), new(big.Int), new(big.Int)
	if rest.Sign() == 0 {
		return 0, rest
	}
	// Squares of squares first: a bound of 1e-300000 has as many factors.
	powers := []*big.Int{prime}
	for p := prime; 2*p.BitLen() <= rest.BitLen(); {
		p = new(big.Int).Mul(p, p)
		powers = append(powers, p)
	}
	for i, p := range slices.Backward(powers) {
		for {
			if quo.QuoRem(rest, p, rem); rem.Sign() != 0 {
				break
			}
			rest.Set(quo)
			power += 1 << i
		}
	}
	return power, rest
}

func newLattice(v *big.Rat) lattice {
	l := lattice{p: v.Num(), q: v.Denom()}
	twos, _ := split(l.q, 2)
	fives, _ := split(l.q, 5)
	l.deep = max(twos, fives)
	l.mod = new(big.Int).Exp(big.NewInt(10), big.NewInt(l.deep), nil)
	l.mod.Mul(l.mod, l.p)
	return l
}

// has tells whether M · 10^s is a multiple; rem is M modulo mod.
func (l *lattice) has(rem *big.Int, s int64) bool {
	if l.p.Sign() == 0 {
		return false // 0 is, and is never asked
	}
	x := new(big.Int).Mul(rem, l.q)
	if s < 0 {
		if -s > l.deep {
			return false
		}
		d := new(big.Int).Exp(big.NewInt(10), big.NewInt(-s), nil)
		d.Mul(d, l.p)
		return x.Mod(x, d).Sign() == 0
	}
	x.Mod(x, l.p)
	left := new(big.Int).Quo(l.p, new(big.Int).GCD(nil, nil, x, l.p))
	twos, left := split(left, 2)
	fives, left := split(left, 5)
	return left.Cmp(big.NewInt(1)) == 0 && max(twos, fives) <= s
}

// Start is the state before the first byte.
func (n *Numbers) Start() State { return 2 }

// Limit is the limit that made a state Lost; nil if none did.
func (n *Numbers) Limit() *LimitError { return n.limit.Load() }

// Bytes is about the memory held.
func (n *Numbers) Bytes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bytes
}

func (n *Numbers) node(q State) *numberNode { return n.nodes.at(uint32(q) - 1) }

// symbols are the bytes of numbers by their low bits and what tells them
// apart: digits are themselves.
var symbols = func() (s [256]uint8) {
	for i := range s {
		s[i] = 15
	}
	for d := range 10 {
		s['0'+d] = uint8(d)
	}
	s['.'], s['e'], s['E'], s['+'], s['-'] = 10, 11, 11, 12, 13
	return s
}()

// Step is the state after one more byte.
func (n *Numbers) Step(q State, c byte) State {
	if q <= Lost {
		return q
	}
	sym := symbols[c]
	if sym == 15 {
		return Dead
	}
	at := n.node(q)
	to := at.next[sym].Load()
	if to == 0 {
		to = n.edge(at, sym)
	}
	if to == 1 {
		return Dead
	}
	if to == 0 {
		return Lost
	}
	return State(to)
}

func (n *Numbers) edge(at *numberNode, sym uint8) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	to := uint32(1)
	f, ok := n.advance(at.numberForm, sym)
	if ok {
		if max(f.mag, -f.mag, f.frac, f.last) > int64(n.lim.Digits) {
			n.limit.CompareAndSwap(nil, &LimitError{"digits", n.lim.Digits})
			return 0
		}
		id := n.intern(f)
		if id == 0 {
			return 0
		}
		to = id + 1
	}
	at.next[sym].Store(to)
	return to
}

func (n *Numbers) intern(f numberForm) uint32 {
	if id, ok := n.index[f]; ok {
		return id
	}
	if n.count >= maxStates {
		n.limit.CompareAndSwap(nil, &LimitError{"states", maxStates})
		return 0
	}
	if n.bytes > n.lim.Bytes {
		n.limit.CompareAndSwap(nil, &LimitError{"bytes", n.lim.Bytes})
		return 0
	}
	id := uint32(n.count)
	n.bytes += 480 + len(f.rems) + len(f.digits) + n.nodes.put(id, &numberNode{numberForm: f})
	n.count++
	n.index[f] = id
	return id
}

// advance is what is known after one more symbol.
func (n *Numbers) advance(f numberForm, sym uint8) (numberForm, bool) {
	digit := sym < 10
	switch f.phase {
	case numStart, numMinus:
		switch {
		case sym == 13 && f.phase == numStart:
			f.phase = numMinus
			f.neg = n.bounded
			return f, true
		case sym == 0:
			f.phase = numZero
			return f, true
		case digit:
			f.phase = numInt
			n.take(&f, sym)
			return f, true
		}
	case numZero, numInt, numFrac:
		switch {
		case digit && f.phase != numZero:
			n.take(&f, sym)
			return f, true
		case sym == 10 && f.phase != numFrac:
			f.phase = numDot
			return f, true
		case sym == 11:
			f.phase = numE
			f.forget()
			return f, true
		}
	case numDot:
		if digit {
			f.phase = numFrac
			n.take(&f, sym)
			return f, true
		}
	case numE:
		switch {
		case sym == 12 || sym == 13:
			f.phase, f.expNeg = numSign, sym == 13 && f.nonzero
			return f, true
		case digit:
			return f.power(sym), true
		}
	case numSign, numExp:
		if digit {
			return f.power(sym), true
		}
	}
	return f, false
}

// forget drops what only further digits could ask for.
func (f *numberForm) forget() {
	f.frac, f.depth, f.digits = 0, 0, ""
	if !f.nonzero {
		*f = numberForm{phase: f.phase, neg: f.neg}
	}
}

func (f numberForm) power(d uint8) numberForm {
	f.phase = numExp
	if f.nonzero {
		f.exp = min(10*f.exp+int64(d), maxExp)
	}
	return f
}

// take reads a digit before the exponent.
func (n *Numbers) take(f *numberForm, d uint8) {
	if !n.bounded && !n.stepped {
		return
	}
	if n.stepped {
		if f.phase == numFrac {
			f.frac++
		} else if f.nonzero {
			f.last++
		}
	}
	if d == 0 && !f.nonzero {
		if f.phase == numFrac && n.bounded {
			f.mag--
		}
		return
	}
	first := !f.nonzero
	f.nonzero = true
	if n.bounded {
		if f.phase != numFrac {
			f.mag++
		}
		n.compare(f, d, first)
	}
	if n.stepped && d != 0 {
		at := -f.frac
		n.remain(f, d, first, f.last-at)
		f.last = at
	}
}

// compare reads a digit into how the digits compare.
func (n *Numbers) compare(f *numberForm, d uint8, first bool) {
	if f.depth < 0 {
		return
	}
	var w []byte
	if !first {
		m := n.mantissa[f.place/2]
		w = append(w, m[:min(len(m), int(f.depth))]...)
		for len(w) < int(f.depth) {
			w = append(w, '0')
		}
	}
	w = append(w, '0'+d)
	value := string(bytes.TrimRight(w, "0"))
	i, is := slices.BinarySearch(n.mantissa, value)
	f.place, f.depth = int32(2*i), -1
	if is {
		f.place++
	}
	if i < len(n.mantissa) && (is || strings.HasPrefix(n.mantissa[i], string(w))) {
		f.depth = int32(min(len(w), n.longest))
	}
}

// remain reads a digit that isn't 0, down powers of ten after the one before.
func (n *Numbers) remain(f *numberForm, d uint8, first bool, down int64) {
	var rems []*big.Int
	if !first {
		rems = n.remainders(f.rems)
	}
	var out []byte
	ten := new(big.Int)
	k := 0
	for i, p := range n.preds {
		if p.kind != multipleOf {
			continue
		}
		mod := n.steps[i].mod
		r := new(big.Int)
		if mod.Sign() > 0 {
			if !first {
				ten.Exp(big.NewInt(10), big.NewInt(down), mod)
				r.Mul(rems[k], ten)
			}
			r.Add(r, big.NewInt(int64(d)))
			r.Mod(r, mod)
		}
		k++
		b := r.Bytes()
		out = append(out, byte(len(b)), byte(len(b)>>8), byte(len(b)>>16))
		out = append(out, b...)
	}
	f.rems = string(out)
	if n.bounded {
		switch {
		case first:
			f.digits = string('0' + rune(d))
		case f.digits != "" && int64(len(f.digits))+down <= maxKnown:
			f.digits += strings.Repeat("0", int(down-1)) + string('0'+rune(d))
		default:
			f.digits = ""
		}
	}
}

func (n *Numbers) remainders(s string) []*big.Int {
	var rems []*big.Int
	for s != "" {
		l := int(s[0]) | int(s[1])<<8 | int(s[2])<<16
		rems = append(rems, new(big.Int).SetBytes([]byte(s[3:3+l])))
		s = s[3+l:]
	}
	return rems
}

// Complete tells whether a number may end here.
func (n *Numbers) Complete(q State) bool {
	if q <= Lost {
		return false
	}
	switch n.node(q).phase {
	case numZero, numInt, numFrac, numExp:
		return true
	}
	return false
}

// Truth is which predicates hold, in the order of NewNumbers, if the number
// ends here; "" where it can't.
func (n *Numbers) Truth(q State) Vector {
	if !n.Complete(q) {
		return ""
	}
	at := n.node(q)
	if v := at.truth.Load(); v != nil {
		return *v
	}
	v := n.vector(&at.numberForm, at.exponent())
	at.truth.Store(&v)
	return v
}

func (f *numberForm) exponent() int64 {
	if f.expNeg {
		return -f.exp
	}
	return f.exp
}

// Classes puts bytes that lead to the same state into one class and gives the
// number of each, 0 for bytes that don't fit. Where a number may end, white
// space and each of , ] } have classes too: of what stands behind it. Nobody
// changes the table.
func (n *Numbers) Classes(q State) *[256]uint8 {
	if q <= Lost {
		return new([256]uint8)
	}
	at := n.node(q)
	if class := at.class.Load(); class != nil {
		return class
	}
	class := new([256]uint8)
	k := uint8(0)
	if n.Complete(q) {
		for i, b := range []byte(" ,]}") {
			class[b] = uint8(i + 1)
		}
		class['\n'], class['\t'], class['\r'] = class[' '], class[' '], class[' ']
		k = 4
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	const all = "0123456789.e+-"
	var known [len(all)]numberForm
	for i := range len(all) {
		to, ok := n.advance(at.numberForm, symbols[all[i]])
		if !ok {
			continue
		}
		known[i] = to
		same := 0
		for same < i && (class[all[same]] == 0 || known[same] != to) {
			same++
		}
		if same < i {
			class[all[i]] = class[all[same]]
			continue
		}
		k++
		class[all[i]] = k
	}
	class['E'] = class['e']
	at.class.Store(class)
	n.bytes += 256
	return class
}

// vector tells which predicates hold for the digits of f with an exponent.
func (n *Numbers) vector(f *numberForm, exp int64) Vector {
	var rems []*big.Int
	if f.nonzero && n.stepped {
		rems = n.remainders(f.rems)
	}
	bits := make([]byte, (len(n.preds)+7)/8)
	k := 0
	for i, p := range n.preds {
		ok := true
		switch p.kind {
		case multipleOf:
			if f.nonzero {
				ok = n.steps[i].has(rems[k], f.last+exp)
			}
			k++
		case minimum, maximum, equal:
			c := n.order(f, exp, &n.points[i])
			switch {
			case c == 0:
				ok = !p.exclusive
			case p.kind == minimum:
				ok = c > 0
			case p.kind == maximum:
				ok = c < 0
			default:
				ok = false
			}
		}
		if ok {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return Vector(bits)
}

// order compares f with an exponent to d.
func (n *Numbers) order(f *numberForm, exp int64, d *decimal) int {
	sign := 0
	if f.nonzero {
		sign = 1
		if f.neg {
			sign = -1
		}
	}
	if sign != d.sign || sign == 0 {
		return sign - d.sign
	}
	switch mag := f.mag + exp; {
	case mag > d.exp:
		return sign
	case mag < d.exp:
		return -sign
	}
	return sign * (int(f.place) - (2*d.at + 1))
}
