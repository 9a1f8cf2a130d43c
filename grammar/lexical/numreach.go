package lexical

import (
	"math/big"
	"slices"
	"strings"
)

type numberAhead struct {
	vectors []Vector
	exact   bool
}

// Reachable is what a number that begins like this may turn out to be, sorted.
// If exact is false, more may be possible than is listed; what is listed is
// possible.
//
// Until the exponent has begun, digits that may still come and any exponent
// put the number anywhere in stretches [0.w, 0.w+ulp) · 10^j, for every j.
// Within a stretch and between bounds the multiples repeat. Once it has begun
// only the exponent is open, and the truth changes at a few of its values.
func (n *Numbers) Reachable(q State) (found []Vector, exact bool) {
	if q <= Lost {
		return nil, q == Dead
	}
	at := n.node(q)
	n.mu.Lock()
	defer n.mu.Unlock()
	id := uint32(q)
	if a, ok := n.reached[id]; ok {
		return a.vectors, a.exact
	}
	r := &numberReach{n: n, set: map[Vector]bool{}, exact: true, left: n.lim.Visits}
	switch {
	case len(n.preds) == 0:
		r.set[""] = true
	case at.phase >= numE:
		r.exponents(&at.numberForm)
	default:
		r.stretches(&at.numberForm)
	}
	a := numberAhead{exact: r.exact}
	for v := range r.set {
		a.vectors = append(a.vectors, v)
	}
	slices.Sort(a.vectors)
	if n.bytes <= n.lim.Bytes/2 {
		n.reached[id] = a
		n.bytes += 64 + 32*len(a.vectors)
	}
	return a.vectors, a.exact
}

// Near gives what the number may turn out to be if it ends here, after one more
// digit, or after one more digit and an exponent that puts it beyond all bounds
// or next to 0, until yield says stop by true, which it returns. Where one of
// these is good enough it is quicker than Reachable.
func (n *Numbers) Near(q State, yield func(Vector) bool) bool {
	if q <= Lost {
		return false
	}
	if n.Complete(q) && yield(n.Truth(q)) {
		return true
	}
	f := n.node(q).numberForm
	if f.phase >= numE {
		for _, d := range []byte("01") {
			if to := n.Step(q, d); n.Complete(to) && yield(n.Truth(to)) {
				return true
			}
		}
		return false
	}
	far := int64(2)
	for i, p := range n.preds {
		switch p.kind {
		case minimum, maximum, equal:
			far = max(far, n.points[i].exp+2, 2-n.points[i].exp)
		case multipleOf:
			far = max(far, n.steps[i].deep+2)
		}
	}
	forms := make([]numberForm, 0, 11)
	if n.Complete(q) {
		forms = append(forms, f)
	}
	for d := range uint8(10) {
		if g, ok := n.advance(f, d); ok {
			if yield(n.vector(&g, 0)) {
				return true
			}
			forms = append(forms, g)
		}
	}
	for i := range forms {
		g := &forms[i]
		for _, exp := range [...]int64{far - g.mag - min(g.last, 0), -far - max(g.mag, g.last)} {
			if g.nonzero && yield(n.vector(g, exp)) {
				return true
			}
		}
	}
	return false
}

type numberReach struct {
	n     *Numbers
	set   map[Vector]bool
	exact bool
	left  int // visits
}

// spend takes one visit; false if there is none left.
func (r *numberReach) spend() bool {
	if r.left--; r.left < 0 {
		r.exact = false
		return false
	}
	return true
}

// exponents tries those at which something changes, and one within each
// stretch of the others.
func (r *numberReach) exponents(f *numberForm) {
	if !f.nonzero {
		r.set[r.n.vector(f, 0)] = true
		return
	}
	cuts := []int64{0}
	cut := func(e int64) { cuts = append(cuts, e-1, e, e+1) }
	for i, p := range r.n.preds {
		switch p.kind {
		case minimum, maximum, equal:
			cut(r.n.points[i].exp - f.mag)
		case multipleOf:
			l := &r.n.steps[i]
			twos, _ := split(l.p, 2)
			fives, _ := split(l.p, 5)
			for s := -l.deep - 1; s <= max(twos, fives)+1; s++ {
				if !r.spend() {
					return
				}
				cuts = append(cuts, s-f.last)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	// Between two cuts all is the same, so one of each gap will do.
	var ranges [][2]int64
	ranges = append(ranges, [2]int64{-maxExp, cuts[0] - 1})
	for i, c := range cuts {
		ranges = append(ranges, [2]int64{c, c})
		end := int64(maxExp)
		if i+1 < len(cuts) {
			end = cuts[i+1] - 1
		}
		ranges = append(ranges, [2]int64{c + 1, end})
	}
	for _, g := range ranges {
		if e, ok := f.exponentIn(g[0], g[1]); ok {
			if !r.spend() {
				return
			}
			r.set[r.n.vector(f, e)] = true
		}
	}
}

// exponentIn is an exponent of lo to hi that f can come to; false if it can
// come to none.
func (f *numberForm) exponentIn(lo, hi int64) (int64, bool) {
	if lo > hi {
		return 0, false
	}
	switch {
	case f.phase == numE:
		return lo, true
	case f.expNeg:
		e, ok := f.sizeIn(-hi, -lo)
		return -e, ok
	}
	return f.sizeIn(lo, hi)
}

// sizeIn is exponentIn without a sign: what digits to come make of f.exp is
// f.exp · 10^k up to 10^k - 1 more.
func (f *numberForm) sizeIn(lo, hi int64) (int64, bool) {
	lo = max(lo, 0)
	if lo > hi {
		return 0, false
	}
	if f.phase == numSign || f.exp == 0 {
		return lo, true
	}
	for from, wide := f.exp, int64(1); from <= hi; from, wide = 10*from, 10*wide {
		if from+wide-1 >= lo {
			return max(from, lo), true
		}
	}
	return 0, f.exp >= maxExp && hi >= maxExp
}

// A piece is an interval of positive numbers, hi excluded; of them only
// mantissas are meant, from 1/10 to 1.
type piece struct {
	lo, hi *big.Rat
	open   bool // without lo
}

func (r *numberReach) stretches(f *numberForm) {
	if !f.nonzero {
		zero := numberForm{neg: f.neg}
		r.set[r.n.vector(&zero, 0)] = true
		whole := piece{lo: big.NewRat(1, 10), hi: big.NewRat(1, 1)}
		r.scaled(f.neg, whole)
		if f.phase == numStart {
			r.scaled(true, whole)
		}
		return
	}
	p, ok := r.n.piece(f)
	if !ok {
		r.exact = false // the digits are no longer known
		return
	}
	r.scaled(f.neg, p)
}

// piece is where the mantissas that begin like f are.
func (n *Numbers) piece(f *numberForm) (piece, bool) {
	w := ""
	switch {
	case n.bounded && n.stepped:
		if f.digits == "" {
			return piece{}, false
		}
		w = f.digits + strings.Repeat("0", int(f.frac+f.last))
	case !n.bounded:
		// Far from 0 every stretch is as wide as one likes, so that all
		// that can be is in each.
		return piece{lo: big.NewRat(1, 10), hi: big.NewRat(1, 1)}, true
	case f.depth >= 0:
		m := n.mantissa[f.place/2]
		w = m[:min(len(m), int(f.depth))]
		w += strings.Repeat("0", int(f.depth)-len(w))
	default: // between two mantissas
		i := int(f.place / 2)
		p := piece{lo: big.NewRat(1, 10), hi: big.NewRat(1, 1)}
		if i > 0 && n.mantissa[i-1] != "" {
			p.lo, p.open = ofDigits(n.mantissa[i-1]), true
		}
		if i < len(n.mantissa) {
			p.hi = ofDigits(n.mantissa[i])
		}
		return p, true
	}
	p := piece{lo: ofDigits(w)}
	p.hi = new(big.Rat).Add(p.lo, tenTo(-int64(len(w))))
	return p, true
}

// ofDigits is 0.w
func ofDigits(w string) *big.Rat {
	x, _ := new(big.Int).SetString(w, 10)
	return new(big.Rat).Mul(new(big.Rat).SetInt(x), tenTo(-int64(len(w))))
}

func tenTo(e int64) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(e, -e)), nil)
	if e < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), p)
	}
	return new(big.Rat).SetInt(p)
}

// magnitude is the decimal logarithm of a positive number, to within 1.
func magnitude(v *big.Rat) int64 {
	return int64(v.Num().BitLen()-v.Denom().BitLen()) * 30103 / 100000
}

// maxSpread is how far apart powers of ten may be that are tried one by one.
const maxSpread = 2000

// scaled looks at a piece times every power of ten.
func (r *numberReach) scaled(neg bool, p piece) {
	n := r.n
	low, high := int64(0), int64(0)
	wide := big.NewInt(1) // a stretch that long holds all that multiples can make
	for i, q := range n.preds {
		switch q.kind {
		case minimum, maximum, equal:
			if d := n.points[i]; d.sign != 0 {
				low, high = min(low, d.exp), max(high, d.exp)
			}
		case multipleOf:
			if v := q.value; v.Sign() > 0 {
				low = min(low, magnitude(v)-2)
				wide.Mul(wide, v.Num()) // the least common multiple divides it
			}
		}
	}
	if n.stepped {
		narrow := new(big.Rat).Sub(p.hi, p.lo)
		high += magnitude(new(big.Rat).SetInt(wide)) + 2 - magnitude(narrow) + 2
	}
	if high-low > maxSpread {
		r.exact = false
		return
	}
	var points []*big.Rat
	for i, q := range n.preds {
		if q.kind == minimum || q.kind == maximum || q.kind == equal {
			if d := n.points[i]; d.sign != 0 && (d.sign < 0) == neg {
				points = append(points, new(big.Rat).Abs(q.value))
			}
		}
	}
	slices.SortFunc(points, (*big.Rat).Cmp)
	points = slices.CompactFunc(points, func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })
	for j := low - 1; j <= high+1; j++ {
		ten := tenTo(j)
		lo, hi := new(big.Rat).Mul(p.lo, ten), new(big.Rat).Mul(p.hi, ten)
		if !p.open && !r.value(neg, lo) {
			return
		}
		for _, b := range points {
			if b.Cmp(lo) <= 0 || b.Cmp(hi) >= 0 {
				continue
			}
			if !r.between(neg, lo, b) || !r.value(neg, b) {
				return
			}
			lo = b
		}
		if !r.between(neg, lo, hi) {
			return
		}
	}
}

// value takes what the predicates say of x.
func (r *numberReach) value(neg bool, x *big.Rat) bool {
	if !r.spend() {
		return false
	}
	if neg {
		x = new(big.Rat).Neg(x)
	}
	r.set[r.n.of(x)] = true
	return true
}

// of tells which predicates hold for x.
func (n *Numbers) of(x *big.Rat) Vector {
	bits := make([]byte, (len(n.preds)+7)/8)
	for i, p := range n.preds {
		if p.has(x) {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return Vector(bits)
}

func (p *NumberPredicate) has(x *big.Rat) bool {
	switch p.kind {
	case multipleOf:
		if p.value.Sign() == 0 {
			return x.Sign() == 0
		}
		return new(big.Rat).Quo(x, p.value).IsInt()
	case minimum, maximum, equal:
		c := x.Cmp(p.value)
		return c == 0 && !p.exclusive || c > 0 && p.kind == minimum || c < 0 && p.kind == maximum
	}
	return true
}

// between takes what numbers of lo to hi, both excluded, can be, no bound
// being among them: multiples of each choice of the lattices, up to where they
// repeat, and a number that is a multiple of nothing.
func (r *numberReach) between(neg bool, lo, hi *big.Rat) bool {
	var steps []*big.Rat
	for _, p := range r.n.preds {
		if p.kind == multipleOf && p.value.Sign() > 0 && !slices.ContainsFunc(steps, func(s *big.Rat) bool { return s.Cmp(p.value) == 0 }) {
			steps = append(steps, p.value)
		}
	}
	if len(steps) > 8 {
		r.exact = false
		return r.value(neg, offLattice(lo, hi, steps))
	}
	if !r.value(neg, offLattice(lo, hi, steps)) {
		return false
	}
	for choice := 1; choice < 1<<len(steps); choice++ {
		var step *big.Rat
		common := big.NewRat(1, 1)
		for i, s := range steps {
			if choice>>i&1 != 0 {
				step = leastCommon(step, s)
			}
			common = leastCommon(common, s)
		}
		x := new(big.Rat).Quo(lo, step)
		k := new(big.Int).Quo(x.Num(), x.Denom())
		x.SetInt(k).Mul(x, step)
		end := new(big.Rat).Add(x, common)
		for x.Add(x, step); x.Cmp(hi) < 0; x.Add(x, step) {
			if !r.value(neg, x) {
				return false
			}
			if x.Cmp(end) > 0 {
				break
			}
		}
	}
	return true
}

func leastCommon(a, b *big.Rat) *big.Rat {
	if a == nil {
		return b
	}
	// lcm(p/q, r/s) = lcm(p, r) / gcd(q, s) in lowest terms.
	g := new(big.Int).GCD(nil, nil, a.Num(), b.Num())
	l := new(big.Int).Mul(a.Num(), b.Num())
	l.Quo(l, g)
	return new(big.Rat).SetFrac(l, new(big.Int).GCD(nil, nil, a.Denom(), b.Denom()))
}

// offLattice is a decimal between lo and hi that is a multiple of no step.
func offLattice(lo, hi *big.Rat, steps []*big.Rat) *big.Rat {
	wide := new(big.Rat).Sub(hi, lo)
	e := magnitude(wide) - 1
	for _, s := range steps {
		e = min(e, magnitude(s)-1)
	}
	for ; ; e-- {
		unit := tenTo(e)
		x := new(big.Rat).Quo(lo, unit)
		x.SetInt(new(big.Int).Quo(x.Num(), x.Denom()))
		x.Mul(x, unit)
		for range 3 {
			x = new(big.Rat).Add(x, unit)
			if x.Cmp(lo) > 0 && x.Cmp(hi) < 0 && !slices.ContainsFunc(steps, func(s *big.Rat) bool { return new(big.Rat).Quo(x, s).IsInt() }) {
				return x
			}
		}
	}
}
