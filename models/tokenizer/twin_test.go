package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The twin is the encoder without any of its shortcuts: the split pattern is
// matched by a backtracking interpreter of its regular expression, and every
// piece is merged by looking at all pairs again after each merge. It knows the
// vocabulary by Token alone, whose ids are its ranks.
type twin struct {
	ranks      map[string]int32
	alts       []expr
	wholeFirst bool
	class      *classTable
}

func newTwin(tb testing.TB, t *Tokenizer, regex string, wholeFirst bool) *twin {
	w := &twin{ranks: make(map[string]int32), wholeFirst: wholeFirst, class: t.class}
	for id := range int32(t.Size()) {
		if b, _, ok := t.Token(id); ok && !t.IsAdded(id) {
			w.ranks[string(b)] = id
		}
	}
	p := &parser{s: regex}
	w.alts = p.alternatives()
	if p.s != "" {
		tb.Fatalf("regex: %q is left", p.s)
	}
	return w
}

func (w *twin) encodeOrdinary(text string) []int32 {
	var ids []int32
	for _, p := range w.split(text) {
		ids = append(ids, w.merge(p)...)
	}
	return ids
}

func (w *twin) split(text string) []string {
	var chars []rune // -1 for a byte that isn't UTF-8
	var starts []int
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			r = -1
		}
		chars, starts = append(chars, r), append(starts, i)
		i += n
	}
	starts = append(starts, len(text))
	var pieces []string
	for i := 0; i < len(chars); {
		end := -1
		for _, a := range w.alts {
			if a(w, chars, i, func(j int) bool { end = j; return true }) {
				break
			}
		}
		if end <= i {
			panic(fmt.Sprintf("no match at %q", text[starts[i]:]))
		}
		pieces = append(pieces, text[starts[i]:starts[end]])
		i = end
	}
	return pieces
}

func (w *twin) merge(piece string) []int32 {
	if id, ok := w.ranks[piece]; ok && w.wholeFirst {
		return []int32{id}
	}
	parts := make([]string, len(piece))
	for i := range parts {
		parts[i] = piece[i : i+1]
	}
	for {
		at, best := -1, int32(0)
		for i := 0; i+1 < len(parts); i++ {
			if r, ok := w.ranks[parts[i]+parts[i+1]]; ok && (at < 0 || r < best) {
				at, best = i, r
			}
		}
		if at < 0 {
			break
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
	ids := make([]int32, len(parts))
	for i, p := range parts {
		ids[i] = w.ranks[p]
	}
	return ids
}

// An expr matches at s[i] and calls on with the end of each match in order of
// preference until one is taken.
type expr func(w *twin, s []rune, i int, on func(int) bool) bool

type member func(w *twin, r rune) bool

// A parser reads the part of the syntax that split patterns use.
type parser struct {
	s    string
	fold bool
}

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.s, prefix)
	p.s = rest
	return ok
}

func (p *parser) alternatives() []expr {
	alts := []expr{p.sequence()}
	for p.take("|") {
		alts = append(alts, p.sequence())
	}
	return alts
}

func either(alts []expr) expr {
	return func(w *twin, s []rune, i int, on func(int) bool) bool {
		for _, a := range alts {
			if a(w, s, i, on) {
				return true
			}
		}
		return false
	}
}

func (p *parser) sequence() expr {
	var seq []expr
	for p.s != "" && p.s[0] != '|' && p.s[0] != ')' {
		seq = append(seq, p.repeated())
	}
	var from func(n int) expr
	from = func(n int) expr {
		return func(w *twin, s []rune, i int, on func(int) bool) bool {
			if n == len(seq) {
				return on(i)
			}
			return seq[n](w, s, i, func(j int) bool { return from(n+1)(w, s, j, on) })
		}
	}
	return from(0)
}

func (p *parser) repeated() expr {
	atom := p.atom()
	min, max := 1, 1
	switch {
	case p.take("?"):
		min = 0
	case p.take("*"):
		min, max = 0, 1<<30
	case p.take("+"):
		max = 1 << 30
	case p.take("{1,3}"):
		max = 3
	default:
		return atom
	}
	greedy := func(w *twin, s []rune, i int, on func(int) bool) bool {
		var more func(n, i int) bool
		more = func(n, i int) bool {
			if n < max && atom(w, s, i, func(j int) bool { return more(n+1, j) }) {
				return true
			}
			return n >= min && on(i)
		}
		return more(0, i)
	}
	if !p.take("+") {
		return greedy
	}
	return func(w *twin, s []rune, i int, on func(int) bool) bool { // possessive: the first match only
		end := -1
		return greedy(w, s, i, func(j int) bool { end = j; return true }) && on(end)
	}
}

func (p *parser) atom() expr {
	switch {
	case p.take("(?!\\S)"):
		return func(w *twin, s []rune, i int, on func(int) bool) bool {
			return (i == len(s) || is(space)(w, s[i])) && on(i)
		}
	case p.take("(?i:"):
		p.fold = true
		alts := p.alternatives()
		p.fold = false
		p.take(")")
		return either(alts)
	case p.take("(?:"):
		alts := p.alternatives()
		p.take(")")
		return either(alts)
	case p.take("$"):
		return func(w *twin, s []rune, i int, on func(int) bool) bool { return i == len(s) && on(i) }
	case p.take("[^"):
		in := p.set()
		return one(func(w *twin, r rune) bool { return !in(w, r) })
	case p.take("["):
		return one(p.set())
	}
	return one(p.char())
}

func one(in member) expr {
	return func(w *twin, s []rune, i int, on func(int) bool) bool {
		return i < len(s) && in(w, s[i]) && on(i+1)
	}
}

func (p *parser) set() member {
	var all []member
	for !p.take("]") {
		all = append(all, p.char())
	}
	return func(w *twin, r rune) bool {
		for _, in := range all {
			if in(w, r) {
				return true
			}
		}
		return false
	}
}

func is(c class) member {
	return func(w *twin, r rune) bool {
		if r < 0 {
			return false
		}
		k, _ := w.class.at(string(r), 0)
		return k&c != 0
	}
}

func (p *parser) char() member {
	for name, c := range map[string]class{
		`\p{L}`: letter, `\p{N}`: number, `\p{M}`: mark, `\s`: space,
		`\p{Lu}`: upper, `\p{Lt}`: upper, `\p{Ll}`: lower, `\p{Lm}`: caseless, `\p{Lo}`: caseless,
	} {
		if p.take(name) {
			return is(c)
		}
	}
	want, _, rest, err := strconv.UnquoteChar(p.s, 0)
	if err != nil {
		panic(fmt.Sprintf("regex at %q: %v", p.s, err))
	}
	p.s = rest
	fold := p.fold
	return func(w *twin, r rune) bool {
		if r == want {
			return true
		}
		for x := unicode.SimpleFold(want); fold && x != want; x = unicode.SimpleFold(x) {
			if r == x {
				return true
			}
		}
		return false
	}
}
