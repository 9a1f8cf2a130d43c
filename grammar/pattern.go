package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// formats are the values of format that are written by a pattern. Only those
// whose every value has the shape: an address or a URI of the wild may not.
var formats = map[string]string{
	"date":      "^" + dateShape + "$",
	"time":      "^" + timeShape + "$",
	"date-time": "^" + dateShape + "T" + timeShape + "$",
	"uuid":      "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
	"ipv4":      `^(?:` + byteShape + `\.){3}` + byteShape + `$`,
}

const (
	dateShape = `[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))`
	timeShape = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	byteShape = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
)

// maxPatternStates bounds what a pattern may cost the engine: about the number
// of character positions after repeats are unrolled. Measured on xgrammar
// 0.2.8 with the Qwen3 vocabulary a position of a broad class costs 15–25 ms
// to compile, of digits 0.1 ms.
const maxPatternStates = 2000

var (
	errAnchor   = errors.New("pattern with ^, $ or a word boundary inside")
	errBroad    = errors.New("pattern too large for the engine")
	errSlow     = errors.New("patterns that the engine would take seconds to compile")
	errNoString = errors.New("pattern that no string in canonical spelling matches")
)

// parsePattern reads a pattern of a schema.
func parsePattern(src string) (*pattern, error) {
	plain, err := re2Of(src)
	if err != nil {
		return nil, err
	}
	re, err := syntax.Parse(plain, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	p := &pattern{}
	p.split(re, branch{})
	p.min, p.max = -1, 0
	states := 0
	for _, b := range p.branches {
		lo, hi := 0, 0
		for _, re := range b.seq {
			l, h, s, err := measure(re)
			if err != nil {
				return nil, err
			}
			lo, hi = lo+l, plus(hi, h)
			states += s
		}
		if !b.start || !b.end {
			hi = -1
		}
		if p.min < 0 || lo < p.min {
			p.min = lo
		}
		if p.max >= 0 && (hi < 0 || hi > p.max) {
			p.max = hi
		}
	}
	if states > maxPatternStates {
		return nil, errBroad
	}
	if len(p.branches) == 0 {
		return nil, errNoString
	}
	return p, nil
}

// split cuts a pattern at the alternatives of its top level, which may each be
// anchored.
func (p *pattern) split(re *syntax.Regexp, b branch) {
	switch re.Op {
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			p.split(sub, b)
		}
		return
	case syntax.OpCapture:
		p.split(re.Sub[0], b)
		return
	case syntax.OpConcat:
		b.seq = re.Sub
	default:
		b.seq = []*syntax.Regexp{re}
	}
	for len(b.seq) > 0 && (b.seq[0].Op == syntax.OpBeginText || b.seq[0].Op == syntax.OpEmptyMatch) {
		b.start = b.start || b.seq[0].Op == syntax.OpBeginText
		b.seq = b.seq[1:]
	}
	for len(b.seq) > 0 && (b.seq[len(b.seq)-1].Op == syntax.OpEndText || b.seq[len(b.seq)-1].Op == syntax.OpEmptyMatch) {
		b.end = b.end || b.seq[len(b.seq)-1].Op == syntax.OpEndText
		b.seq = b.seq[:len(b.seq)-1]
	}
	if len(b.seq) == 1 && (b.seq[0].Op == syntax.OpCapture || b.seq[0].Op == syntax.OpAlternate || b.seq[0].Op == syntax.OpConcat) {
		p.split(b.seq[0], branch{start: b.start, end: b.end})
		return
	}
	p.branches = append(p.branches, b)
}

func plus(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return min(a+b, 1<<30)
}

func times(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	if a < 0 || b < 0 {
		return -1
	}
	return int(min(int64(a)*int64(b), 1<<30))
}

// measure gives the fewest and most characters of what re matches and its
// positions, and refuses what write can't write.
func measure(re *syntax.Regexp) (lo, hi, states int, err error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return 0, 0, 0, nil
	case syntax.OpLiteral:
		n := len(re.Rune)
		return n, n, n, nil
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		if s := setOf(re); len(s.raw) == 0 && s.escaped == "" {
			return 0, 0, 0, errNoString
		}
		return 1, 1, 1, nil
	case syntax.OpCapture:
		return measure(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		lo, hi, states, err = measure(re.Sub[0])
		if err != nil {
			return 0, 0, 0, err
		}
		from, to := bounds(re)
		lo = times(lo, from)
		if to < 0 {
			hi = -1
		} else {
			hi = times(hi, to)
		}
		n := max(from, 1)
		if to > 0 && !single(re.Sub[0]) {
			n = to
		}
		return lo, hi, times(states, n), nil
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			l, h, s, err := measure(sub)
			if err != nil {
				return 0, 0, 0, err
			}
			lo, hi, states = plus(lo, l), plus(hi, h), plus(states, s)
		}
		return lo, hi, states, nil
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			l, h, s, err := measure(sub)
			if err != nil {
				return 0, 0, 0, err
			}
			if i == 0 || l < lo {
				lo = l
			}
			if i == 0 || hi >= 0 && (h < 0 || h > hi) {
				hi = h
			}
			states = plus(states, s)
		}
		return lo, hi, states, nil
	}
	return 0, 0, 0, errAnchor
}

func bounds(re *syntax.Regexp) (from, to int) {
	switch re.Op {
	case syntax.OpStar:
		return 0, -1
	case syntax.OpPlus:
		return 1, -1
	case syntax.OpQuest:
		return 0, 1
	}
	return re.Min, re.Max
}

func single(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpCapture:
		return single(re.Sub[0])
	case syntax.OpLiteral:
		return len(re.Rune) == 1
	}
	return re.Op == syntax.OpCharClass || re.Op == syntax.OpAnyChar || re.Op == syntax.OpAnyCharNotNL
}

// fit draws length bounds into a pattern that is one repeat of one character
// class between anchors.
func (p *pattern) fit(lo, hi *int) {
	if len(p.branches) != 1 {
		return
	}
	b := p.branches[0]
	if !b.start || !b.end || len(b.seq) != 1 || !single(b.seq[0]) && (len(b.seq[0].Sub) != 1 || !single(b.seq[0].Sub[0])) {
		return
	}
	re := b.seq[0]
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
	default:
		return
	}
	from, to := bounds(re)
	from = max(from, *lo)
	if *hi >= 0 && (to < 0 || to > *hi) {
		to = *hi
	}
	if to >= 0 && from > to {
		return
	}
	again := *re
	again.Op, again.Min, again.Max = syntax.OpRepeat, from, to
	p.branches[0].seq = []*syntax.Regexp{&again}
	p.min, p.max = from, to
}

// A charSet is a set of characters as a JSON string spells them: raw, or as
// one of the escapes of two characters.
type charSet struct {
	raw     []rune // pairs, inclusive, sorted
	escaped string // what stands behind the backslash
}

// rawChars are the characters a JSON string may hold unescaped, surrogates
// apart: xgrammar would write those as bytes that are not UTF-8.
var rawChars = []rune{' ', '!', '#', '[', ']', 0xD7FF, 0xE000, unicode.MaxRune}

func setOf(re *syntax.Regexp) charSet {
	var in []rune
	switch re.Op {
	case syntax.OpCapture:
		return setOf(re.Sub[0])
	case syntax.OpLiteral:
		r := re.Rune[0]
		in = []rune{r, r}
		if re.Flags&syntax.FoldCase != 0 {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				in = append(in, f, f)
			}
		}
	case syntax.OpAnyChar:
		in = []rune{0, unicode.MaxRune}
	case syntax.OpAnyCharNotNL:
		in = []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
	default:
		in = re.Rune
	}
	return spell(in)
}

func spell(in []rune) charSet {
	var s charSet
	for i := 0; i < len(in); i += 2 {
		for k := 0; k < len(rawChars); k += 2 {
			if lo, hi := max(in[i], rawChars[k]), min(in[i+1], rawChars[k+1]); lo <= hi {
				s.raw = append(s.raw, lo, hi)
			}
		}
		for _, e := range [...]struct {
			r rune
			c string
		}{{'"', `"`}, {'\\', `\`}, {'\n', "n"}, {'\r', "r"}, {'\t', "t"}, {'\b', "b"}, {'\f', "f"}} {
			if in[i] <= e.r && e.r <= in[i+1] {
				s.escaped += e.c
			}
		}
	}
	type pair struct{ lo, hi rune }
	var ps []pair
	for i := 0; i < len(s.raw); i += 2 {
		ps = append(ps, pair{s.raw[i], s.raw[i+1]})
	}
	slices.SortFunc(ps, func(a, b pair) int { return int(a.lo - b.lo) })
	s.raw = s.raw[:0]
	for _, p := range ps {
		s.raw = append(s.raw, p.lo, p.hi)
	}
	return s
}
