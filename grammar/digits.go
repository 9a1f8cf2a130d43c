package grammar

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/grammar/dialect"
)

func itoa(i int) string { return strconv.Itoa(i) }

func ratInt(i int64) *big.Rat { return new(big.Rat).SetInt64(i) }

func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) } // Div rounds down for positive divisors

func ceil(r *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(r)))
}

// decimal writes r in decimal digits, if it ends within maxPlaces.
func decimal(r *big.Rat) (string, bool) {
	for p := 0; p <= maxPlaces; p++ {
		scaled := new(big.Rat).Mul(r, new(big.Rat).SetInt(pow10(p)))
		if scaled.IsInt() {
			return r.FloatString(p), true
		}
	}
	return "", false
}

func pow10(p int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(p)), nil) }

// number writes the decimals between the bounds of l. It never fails: narrow
// makes sure by within that there is one.
func (w *drafter) number(l *lang) *dialect.Expr {
	w.size += 64
	switch {
	case l.lo != nil || l.hi != nil:
		w.size += 512
		return w.rule("number", dialect.Lexeme(dialect.Or(between(l)...)))
	case l.kind == integer:
		return dialect.Lexeme(dialect.Or(dialect.Text("0"), dialect.Then(dialect.Maybe(dialect.Text("-")), dialect.One('1', '9'), digits(0, maxPlaces-1))))
	}
	return w.rule("number", dialect.Lexeme(dialect.Then(
		dialect.Maybe(dialect.Text("-")),
		dialect.Or(dialect.Text("0"), dialect.Then(dialect.One('1', '9'), digits(0, maxPlaces-1))),
		dialect.Maybe(dialect.Then(dialect.Text("."), digits(1, maxPlaces))),
		dialect.Maybe(dialect.Then(dialect.One('E', 'E', 'e', 'e'), dialect.Maybe(dialect.One('+', '+', '-', '-')), digits(1, 2))),
	)))
}

func digits(least, most int) *dialect.Expr { return dialect.Times(dialect.One('0', '9'), least, most) }

func digit(from, to byte) *dialect.Expr { return dialect.One(rune(from), rune(to)) }

// ends settles missing bounds: 15 digits, or one digit more than the bound
// which is there.
func ends(l *lang) (lo, hi *big.Rat, loOpen, hiOpen bool) {
	lo, hi = l.lo, l.hi
	far := func(b *big.Rat) *big.Rat {
		limit := ratInt(maxWhole + 1)
		if b == nil || new(big.Rat).Abs(b).Cmp(limit) < 0 {
			return limit
		}
		return new(big.Rat).Mul(new(big.Rat).Abs(b), ratInt(10))
	}
	loOpen, hiOpen = l.loOpen || lo == nil, l.hiOpen || hi == nil
	if l.lo == nil {
		lo = new(big.Rat).Neg(far(l.hi))
	}
	if l.hi == nil {
		hi = far(l.lo)
	}
	return lo, hi, loOpen, hiOpen
}

// between gives alternatives; none if no number with that many places lies
// between the bounds.
func between(l *lang) []*dialect.Expr {
	lo, hi, loOpen, hiOpen := ends(l)
	a, b, ok := grid(lo, hi, loOpen, hiOpen, l.places)
	if !ok {
		return nil
	}
	var alts []*dialect.Expr
	if a.Sign() < 0 {
		from := big.NewInt(1)
		if l.places > 0 {
			from.SetInt64(0) // "-0.0" is 0, and saves the rules that would exclude it
		}
		if b.Sign() < 0 {
			from = new(big.Int).Neg(b)
		}
		for _, e := range magnitudes(from, new(big.Int).Neg(a), l.places) {
			alts = append(alts, dialect.Then(dialect.Text("-"), e))
		}
	}
	if b.Sign() >= 0 {
		from := a
		if a.Sign() < 0 {
			from = new(big.Int)
		}
		alts = append(alts, magnitudes(from, b, l.places)...)
	}
	return alts
}

// magnitudes writes a·10^-places to b·10^-places, 0 <= a <= b. Every number on
// the grid has a spelling; trailing zeros are optional.
func magnitudes(a, b *big.Int, places int) []*dialect.Expr {
	unit := pow10(places)
	ai, af := new(big.Int).QuoRem(a, unit, new(big.Int))
	bi, bf := new(big.Int).QuoRem(b, unit, new(big.Int))
	frac := func(f *big.Int) string {
		if places == 0 {
			return ""
		}
		return fmt.Sprintf("%0*s", places, f.String())
	}
	zeros, nines := strings.Repeat("0", places), strings.Repeat("9", places)
	var alts []*dialect.Expr
	add := func(whole *dialect.Expr, from, to string) {
		alts = append(alts, dialect.Then(whole, fraction(from, to)))
	}
	if ai.Cmp(bi) == 0 {
		add(dialect.Text(ai.String()), frac(af), frac(bf))
		return alts
	}
	one := big.NewInt(1)
	from, to := ai, bi
	if strings.Trim(frac(af), "0") != "" {
		add(dialect.Text(ai.String()), frac(af), nines)
		from = new(big.Int).Add(ai, one)
	}
	if frac(bf) != nines {
		to = new(big.Int).Sub(bi, one)
	}
	if from.Cmp(to) <= 0 {
		add(dialect.Or(wholes(from, to)...), zeros, nines)
	}
	if frac(bf) != nines {
		add(dialect.Text(bi.String()), zeros, frac(bf))
	}
	return alts
}

// fraction writes the point and the digits after it, between from and to,
// both of full length. The empty text stands for all zeros.
func fraction(from, to string) *dialect.Expr {
	if from == "" {
		return dialect.Then()
	}
	if strings.Trim(from, "0") == "" {
		if strings.Trim(to, "9") == "" {
			return dialect.Maybe(dialect.Then(dialect.Text("."), digits(1, len(from))))
		}
		return dialect.Maybe(dialect.Then(dialect.Text("."), places(from, to)))
	}
	return dialect.Then(dialect.Text("."), places(from, to))
}

// places writes one or more digits d with from <= d <= to, where d shorter
// than from stands for d followed by zeros.
func places(from, to string) *dialect.Expr {
	n := len(from)
	if n == 0 {
		return dialect.Then()
	}
	if strings.Trim(to, "0") == "" {
		return dialect.Times(digit('0', '0'), 1, n)
	}
	rest := func(f, t string) *dialect.Expr { // zero or more digits
		zero, nine := strings.Trim(f, "0") == "", strings.Trim(t, "9") == ""
		switch {
		case f == "":
			return dialect.Then()
		case strings.Trim(t, "0") == "":
			return dialect.Times(digit('0', '0'), 0, len(t))
		case zero && nine:
			return digits(0, len(f))
		case zero:
			return dialect.Maybe(places(f, t))
		}
		return places(f, t)
	}
	a, b := from[0], to[0]
	tail0, tail9 := strings.Repeat("0", n-1), strings.Repeat("9", n-1)
	if a == b {
		return dialect.Then(digit(a, a), rest(from[1:], to[1:]))
	}
	var alts []*dialect.Expr
	lo, hi := a, b
	if from[1:] != tail0 {
		alts = append(alts, dialect.Then(digit(a, a), rest(from[1:], tail9)))
		lo++
	}
	if to[1:] != tail9 {
		hi--
	}
	if lo <= hi {
		alts = append(alts, dialect.Then(digit(lo, hi), rest(tail0, tail9)))
	}
	if to[1:] != tail9 {
		alts = append(alts, dialect.Then(digit(b, b), rest(tail0, to[1:])))
	}
	return dialect.Or(alts...)
}

// wholes writes the integers a to b, 0 <= a <= b.
func wholes(a, b *big.Int) []*dialect.Expr {
	x, y := a.String(), b.String()
	if len(x) == len(y) {
		return []*dialect.Expr{sameLength(x, y)}
	}
	var alts []*dialect.Expr
	if x == "0" {
		alts, x = append(alts, dialect.Text("0")), "1"
		if len(y) == 1 {
			return append(alts, sameLength(x, y))
		}
	}
	if strings.Trim(x[1:], "0") != "" || x[0] != '1' {
		alts = append(alts, sameLength(x, strings.Repeat("9", len(x))))
		x = "1" + strings.Repeat("0", len(x))
	}
	full := strings.Trim(y, "9") == ""
	to := len(y)
	if !full {
		to--
	}
	if len(x) <= to {
		alts = append(alts, dialect.Then(digit('1', '9'), digits(len(x)-1, to-1)))
	}
	if !full {
		alts = append(alts, sameLength("1"+strings.Repeat("0", len(y)-1), y))
	}
	return alts
}

// sameLength writes the digit strings x to y of equal length.
func sameLength(x, y string) *dialect.Expr {
	if x == "" {
		return dialect.Then()
	}
	n := len(x) - 1
	zeros, nines := strings.Repeat("0", n), strings.Repeat("9", n)
	if x[1:] == zeros && y[1:] == nines {
		return dialect.Then(digit(x[0], y[0]), digits(n, n))
	}
	if x[0] == y[0] {
		return dialect.Then(digit(x[0], x[0]), sameLength(x[1:], y[1:]))
	}
	var alts []*dialect.Expr
	lo, hi := x[0], y[0]
	if x[1:] != zeros {
		alts = append(alts, dialect.Then(digit(lo, lo), sameLength(x[1:], nines)))
		lo++
	}
	if y[1:] != nines {
		hi--
	}
	if lo <= hi {
		alts = append(alts, sameLength(string(lo)+zeros, string(hi)+nines))
	}
	if y[1:] != nines {
		alts = append(alts, dialect.Then(digit(y[0], y[0]), sameLength(zeros, y[1:])))
	}
	return dialect.Or(alts...)
}
