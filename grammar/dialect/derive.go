package dialect

import (
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Deriver writes random texts of a grammar.
type Deriver struct {
	rules map[string]*derivedRule
	start string
}

type derivedRule struct {
	Rule
	cost int // fewest characters
}

// noCost is that of what derives nothing.
const noCost = 1 << 20

// Deriver finds out how texts of g can end. With a prefix it is as in Machine.
func (g *Grammar) Deriver(prefix, start string) *Deriver {
	d := &Deriver{rules: map[string]*derivedRule{}, start: prefix + start}
	for _, r := range g.Rules {
		d.rules[r.Name] = &derivedRule{r, noCost}
	}
	for changed := true; changed; {
		changed = false
		for _, r := range d.rules {
			if r.Body == nil {
				continue
			}
			if c := d.cost(r.Body); c < r.cost {
				r.cost, changed = c, true
			}
		}
	}
	return d
}

func (d *Deriver) cost(e *Expr) int {
	switch e.Op {
	case Lit:
		return utf8.RuneCountInString(e.Text)
	case Class:
		return 1
	case Ref:
		if r := d.rules[e.Text]; r != nil {
			return r.cost
		}
		return noCost
	case Seq:
		sum := 0
		for _, s := range e.Subs {
			sum = min(noCost, sum+d.cost(s))
		}
		return sum
	case Alt:
		best := noCost
		for _, s := range e.Subs {
			best = min(best, d.cost(s))
		}
		return best
	case Token:
		return d.cost(e.Subs[0])
	case Repeat:
		return min(noCost, e.Min*d.cost(e.Subs[0]))
	case Chars:
		return e.Min
	}
	return noCost
}

// Text is a random text; false if the grammar derives none. After about chars
// characters it makes for the end.
func (d *Deriver) Text(rng *rand.Rand, chars int) (string, bool) {
	r := d.rules[d.start]
	if r == nil || r.cost >= noCost {
		return "", false
	}
	t := &derivation{d: d, rng: rng, left: chars}
	t.run(r.Body)
	return t.out.String(), true
}

type derivation struct {
	d     *Deriver
	rng   *rand.Rand
	out   strings.Builder
	left  int   // characters until it makes for the end
	caps  []int // what is left of the limits of characters that it is in
	depth int
}

func (t *derivation) write(s string) {
	t.out.WriteString(s)
	n := utf8.RuneCountInString(s)
	t.left -= n
	for i := range t.caps {
		t.caps[i] -= n
	}
}

func (t *derivation) hurry() bool {
	return t.left <= 0 || t.depth > 400 || slices.ContainsFunc(t.caps, func(c int) bool { return c <= 0 })
}

func (t *derivation) run(e *Expr) {
	t.depth++
	defer func() { t.depth-- }()
	switch e.Op {
	case Lit:
		t.write(e.Text)
	case Class:
		i := t.rng.IntN(len(e.Set)/2) * 2
		lo, hi := e.Set[i], e.Set[i+1]
		if t.rng.IntN(4) > 0 {
			hi = min(hi, lo+127)
		}
		t.write(string(lo + rune(t.rng.IntN(int(hi-lo)+1))))
	case Ref:
		r := t.d.rules[e.Text]
		if r.MaxChars > 0 {
			t.caps = append(t.caps, r.MaxChars)
			defer func() { t.caps = t.caps[:len(t.caps)-1] }()
		}
		t.run(r.Body)
	case Seq, Token:
		for _, s := range e.Subs {
			t.run(s)
		}
	case Alt:
		best := noCost - 1
		if t.hurry() {
			for _, s := range e.Subs {
				best = min(best, t.d.cost(s))
			}
		}
		subs := slices.DeleteFunc(slices.Clone(e.Subs), func(s *Expr) bool { return t.d.cost(s) > best })
		t.run(subs[t.rng.IntN(len(subs))])
	case Repeat:
		for i := 0; e.Max < 0 || i < e.Max; i++ {
			if i >= e.Min && (t.hurry() || t.rng.IntN(3) == 0 || t.d.cost(e.Subs[0]) >= noCost) {
				break
			}
			t.run(e.Subs[0])
		}
	case Chars:
		t.run(Times(spelled(e), e.Min, e.Max))
	}
}
