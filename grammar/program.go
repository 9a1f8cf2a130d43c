package grammar

import (
	"cmp"
	"fmt"
	"math/big"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Limits of an automaton. What a schema makes beyond them is a *LimitError.
const (
	maxNodes   = 1 << 20 // of a program; 16 bytes each
	maxThreads = 1 << 14 // of a configuration
	maxNesting = 128     // brackets open at once in what is generated
)

// A LimitError says that a schema asks for more than an automaton may cost.
type LimitError struct {
	Limit string // "nodes", "threads" or "nesting"
	Max   int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the automaton needs more %s than %d", e.Limit, e.Max)
}

// A program is a lang as a nondeterministic automaton over bytes with a stack.
// The stack holds where to go on after a call of a definition, and how often a
// repetition has been gone round: a bound of a million is one number, not a
// million nodes. Every node of it can reach the end, within maxNesting as
// need tells.
type program struct {
	nodes   []node
	ranges  []byteRange // of opSet nodes
	targets []int32     // of opFork nodes
	loops   []loop
	loopAt  map[int32]int32 // by body, of loops with a set
	start   int32
	need    []int32 // by node: brackets open at once, counted from its call, on the way that needs fewest
	depth   int32   // brackets that may be open at once
}

type node struct {
	op     opcode
	lo, hi byte  // opByte
	open   int32 // brackets that the body has open here; of opByte, if it opens one: with it
	a, b   int32
}

type opcode byte

const (
	opByte  opcode = iota // a byte from lo to hi, then a
	opSet                 // a byte of ranges[a:a+b]
	opFork                // any of targets[a:a+b]
	opEnter               // begin loop a, at node b unless it is 0
	opNext                // loop a has been gone round
	opCall                // the definition at a, then b
	opReturn
	opAccept
)

type byteRange struct {
	lo, hi byte
	to     int32
}

type loop struct {
	min, max   int32 // max -1: no limit
	body, exit int32
	again      int32    // its opNext
	nullable   bool     // the body may be empty; then min is 0
	set        *loopSet // the body is one character of the set; nil for any other body
}

// assembler writes a program from its end to its start: a piece gets the node
// that follows it and returns where it begins.
type assembler struct {
	p     *program
	entry map[*def]int32 // opFork nodes of one target, filled when the def is written
	defs  []*def         // those of entry, in the order they were met
	named map[*lang]*def // langs that are definitions, also where they stand themselves
	any   int32          // the same for any value; 0: not used
	open  int32
	sets  map[string]*loopSet
	err   error
	// Entries of one raw character and of the two kinds of escapes, where these
	// are called instead of copied; nil: they are copied.
	pieces *[3]int32
}

// assemble writes l, nested at most depth deep. defs are those that l refers to.
func assemble(l *lang, defs []*def, depth int) (*program, error) {
	w := &assembler{p: &program{depth: int32(depth)}, entry: map[*def]int32{}, named: map[*lang]*def{}}
	return w.p, w.assemble(l, defs)
}

func (w *assembler) assemble(l *lang, defs []*def) error {
	p := w.p
	for _, d := range defs {
		w.named[d.lang] = d
	}
	w.node(node{op: opReturn}) // node 0: the common return
	accept := w.node(node{op: opAccept})
	start := w.value(l, accept)
	if w.any > 0 {
		w.writeAny()
	}
	for i := 0; i < len(w.defs) && w.err == nil; i++ {
		w.open = 0
		w.link(w.entry[w.defs[i]], w.inline(w.defs[i].lang, 0))
		if w.any > 0 && p.nodes[w.any].b == 0 {
			w.writeAny()
		}
	}
	if w.err != nil {
		return w.err
	}
	p.start = start
	p.measureNeed()
	if p.need[start] > p.depth {
		return &LimitError{"nesting", int(p.depth)}
	}
	return nil
}

func (w *assembler) writeAny() {
	w.open = 0
	any := &lang{kind: anyValue}
	w.link(w.any, w.value(&lang{kind: choice, alts: []*lang{
		{kind: object, max: -1, rest: any}, {kind: array, max: -1, item: any}, {kind: text, max: -1},
		{kind: number, places: maxPlaces}, {kind: literals, lits: []string{"true", "false", "null"}},
	}}, 0))
}

func (w *assembler) node(n node) int32 {
	if len(w.p.nodes) >= maxNodes {
		w.err = &LimitError{"nodes", maxNodes}
		return 0
	}
	w.p.nodes = append(w.p.nodes, n)
	return int32(len(w.p.nodes) - 1)
}

// link fills a fork made before its targets.
func (w *assembler) link(at int32, to ...int32) {
	n := &w.p.nodes[at]
	n.a, n.b = int32(len(w.p.targets)), int32(len(to))
	w.p.targets = append(w.p.targets, to...)
}

func (w *assembler) byte(b byte, next int32) int32 {
	return w.node(node{op: opByte, lo: b, hi: b, a: next})
}

func (w *assembler) bytes(s string, next int32) int32 {
	for i := len(s) - 1; i >= 0; i-- {
		next = w.byte(s[i], next)
	}
	return next
}

func (w *assembler) fork(to ...int32) int32 {
	if len(to) == 1 {
		return to[0]
	}
	at := int32(len(w.p.targets))
	w.p.targets = append(w.p.targets, to...)
	return w.node(node{op: opFork, a: at, b: int32(len(to))})
}

func (w *assembler) set(rs []byteRange) int32 {
	if len(rs) == 1 {
		return w.node(node{op: opByte, lo: rs[0].lo, hi: rs[0].hi, a: rs[0].to})
	}
	at := int32(len(w.p.ranges))
	w.p.ranges = append(w.p.ranges, rs...)
	return w.node(node{op: opSet, a: at, b: int32(len(rs))})
}

// space is [ \n\t]?.
func (w *assembler) space(next int32) int32 {
	return w.fork(w.set([]byteRange{{'\t', '\n', next}, {' ', ' ', next}}), next)
}

func (w *assembler) value(l *lang, next int32) int32 {
	if d := w.named[l]; d != nil {
		return w.call(d, next)
	}
	return w.inline(l, next)
}

func (w *assembler) call(d *def, next int32) int32 {
	at, ok := w.entry[d]
	if !ok {
		at = w.node(node{op: opFork})
		w.entry[d] = at
		w.defs = append(w.defs, d)
	}
	return w.node(node{op: opCall, open: w.open, a: at, b: next})
}

func (w *assembler) inline(l *lang, next int32) int32 {
	if w.err != nil {
		return 0
	}
	switch l.kind {
	case anyValue:
		if w.any == 0 {
			w.any = w.node(node{op: opFork})
		}
		return w.node(node{op: opCall, open: w.open, a: w.any, b: next})
	case literals:
		return w.words(l.lits, next)
	case boolean:
		return w.fork(w.bytes("true", next), w.bytes("false", next))
	case integer, number:
		return w.number(l, next)
	case text:
		return w.text(l, next)
	case array:
		return w.array(l, next)
	case object:
		return w.object(l, next)
	case choice:
		alts := make([]int32, len(l.alts))
		for i, a := range l.alts {
			alts[i] = w.value(a, next)
		}
		return w.fork(alts...)
	case reference:
		return w.call(l.def, next)
	}
	panic("grammar: a lang without values is written")
}

// words is a trie of the texts.
func (w *assembler) words(lits []string, next int32) int32 {
	sorted := slices.Clone(lits)
	slices.Sort(sorted)
	return w.trie(slices.Compact(sorted), 0, next)
}

func (w *assembler) trie(words []string, from int, next int32) int32 {
	if len(words) == 1 {
		return w.bytes(words[0][from:], next)
	}
	// What all words share, without recursion: a trie is as deep as it branches.
	shared := from
	for last := words[len(words)-1]; shared < len(words[0]) && words[0][shared] == last[shared]; shared++ {
	}
	var alts []int32
	i := 0
	if len(words[0]) == shared {
		alts = append(alts, next)
		i = 1
	}
	var rs []byteRange
	for i < len(words) {
		k := i + 1
		for k < len(words) && words[k][shared] == words[i][shared] {
			k++
		}
		c := words[i][shared]
		rs = append(rs, byteRange{c, c, w.trie(words[i:k], shared+1, next)})
		i = k
	}
	alts = append(alts, w.set(rs))
	return w.bytes(words[0][from:shared], w.fork(alts...))
}

func (w *assembler) opening(b byte, next int32) int32 {
	w.open++
	n := w.node(node{op: opByte, lo: b, hi: b, open: w.open, a: next})
	w.open--
	return n
}

// repeat is body{l.min,l.max}; body gets the node to go on to.
func (w *assembler) repeat(l loop, next int32, body func(next int32) int32) int32 {
	switch {
	case l.max == 0:
		return next
	case l.max == 1 && l.min == 1:
		return body(next)
	case l.max == 1:
		return w.fork(body(next), next)
	}
	l.exit = next
	i := int32(len(w.p.loops))
	w.p.loops = append(w.p.loops, l)
	if l.min == 0 && l.max < 0 { // nothing to count
		at := w.node(node{op: opFork})
		b := body(at)
		w.link(at, b, next)
		w.body(i, b)
		return at
	}
	again := w.node(node{op: opNext, a: i})
	b := body(again)
	w.body(i, b)
	w.p.loops[i].again = again
	return w.node(node{op: opEnter, a: i})
}

func (w *assembler) body(i, at int32) {
	l := &w.p.loops[i]
	if l.body = at; l.set != nil {
		if w.p.loopAt == nil {
			w.p.loopAt = map[int32]int32{}
		}
		w.p.loopAt[at] = i
	}
}

func (w *assembler) array(l *lang, next int32) int32 {
	w.open++
	end := w.byte(']', next)
	closed := w.space(end)
	least, most := max(0, l.min-len(l.prefix)), minus(l.max, len(l.prefix))
	sep := func(to int32) int32 { return w.byte(',', w.space(to)) }
	var first int32
	switch {
	case l.item == nil || most == 0:
		first = closed
	case len(l.prefix) > 0:
		first = w.repeat(loop{min: int32(least), max: int32(most)}, closed, func(to int32) int32 { return sep(w.value(l.item, to)) })
	default:
		// item (sep item)*: one item, entered from the bracket and from the
		// comma. Counted are the items after the first.
		first = w.list(max(0, least-1), minus(most, 1), closed, sep, func(to int32) int32 { return w.value(l.item, to) })
		if least == 0 {
			first = w.fork(first, end)
		}
		first = w.space(first)
	}
	for i := len(l.prefix) - 1; i >= 0; i-- {
		first = w.value(l.prefix[i], first)
		if i > 0 {
			first = sep(first)
		} else {
			first = w.space(first)
		}
	}
	w.open--
	return w.opening('[', first)
}

// list is item (sep item){least,most}, with one copy of item.
func (w *assembler) list(least, most int, next int32, sep func(int32) int32, item func(int32) int32) int32 {
	if most == 0 {
		return item(next)
	}
	if least == 0 && most < 0 {
		at := w.node(node{op: opFork})
		it := item(at)
		w.link(at, sep(it), next)
		return it
	}
	i := int32(len(w.p.loops))
	w.p.loops = append(w.p.loops, loop{min: int32(least) + 1, max: int32(min(plusOne(most), 1<<30)), exit: next})
	// The loop counts items; its body leads from the comma to the item, and
	// the first time right to the item.
	it := item(w.node(node{op: opNext, a: i}))
	b := sep(it)
	w.p.loops[i].body = b
	return w.node(node{op: opEnter, a: i, b: it})
}

func plusOne(n int) int {
	if n < 0 {
		return n
	}
	return n + 1
}

func (w *assembler) object(l *lang, next int32) int32 {
	w.open++
	end := w.byte('}', next)
	closed := w.space(end)
	sep := func(to int32) int32 { return w.byte(',', w.space(to)) }
	var first int32
	switch {
	case len(l.fields) == 0 && (l.rest == nil || l.max == 0):
		first = closed
	case len(l.fields) == 0:
		key := l.key
		if key == nil {
			key = &lang{kind: text, max: -1}
		}
		first = w.list(max(0, l.min-1), minus(l.max, 1), closed, sep, func(to int32) int32 {
			return w.value(key, w.byte(':', w.space(w.value(l.rest, to))))
		})
		if l.min == 0 {
			first = w.fork(first, end)
		}
		first = w.space(first)
	default:
		// after[i]: a member has been written, and i is the next that may be.
		// begin: none has been written yet. bare: the same after a comma.
		after, begin, bare, must := closed, []int32{end}, []int32(nil), false
		for i := len(l.fields) - 1; i >= 0; i-- {
			f := l.fields[i]
			must = must || f.required
			member := w.bytes(string(jsontext.AppendString(nil, f.key))+":", w.space(w.value(f.lang, after)))
			if f.required {
				begin, bare = begin[:0], bare[:0]
			}
			begin, bare = append(begin, member), append(bare, member)
			if i > 0 {
				// One comma for all that may follow; a chain of forks, so that
				// n optional members make n nodes and not n².
				keys := w.fork(bare...)
				bare = append(bare[:0], keys)
				if after = sep(keys); !must {
					after = w.fork(after, closed)
				}
			}
			if len(begin) > 1 {
				begin = append(begin[:0], w.fork(begin...))
			}
		}
		first = w.space(w.fork(begin...))
	}
	w.open--
	return w.opening('{', first)
}

// ---- strings

// char is one character of a set, as it is spelled.
func (w *assembler) char(s charSet, anyEscape bool, next int32) int32 {
	if w.pieces != nil && slices.Equal(s.raw, rawChars) {
		return w.inPieces(s, anyEscape, next)
	}
	var seqs [][]bytePair
	for i := 0; i < len(s.raw); i += 2 {
		seqs = runes(seqs, s.raw[i], s.raw[i+1])
	}
	rs := w.sequences(seqs, next)
	switch {
	case anyEscape:
		rs = append(rs, byteRange{'\\', '\\', w.escape(next)})
	case s.escaped != "":
		codes := []byte(s.escaped)
		slices.Sort(codes)
		var es []byteRange
		for _, c := range codes {
			es = append(es, byteRange{c, c, next})
		}
		rs = append(rs, byteRange{'\\', '\\', w.set(es)})
	}
	slices.SortFunc(rs, func(a, b byteRange) int { return cmp.Compare(a.lo, b.lo) })
	return w.set(rs)
}

// escape is what may stand behind a backslash: no halves of surrogate pairs.
func (w *assembler) escape(next int32) int32 {
	hex := func(to int32) int32 {
		return w.set([]byteRange{{'0', '9', to}, {'A', 'F', to}, {'a', 'f', to}})
	}
	h3 := hex(next)
	h2 := hex(h3)
	h1 := hex(h2)
	low := w.set([]byteRange{{'0', '7', h2}})
	u := w.set([]byteRange{{'0', '9', h1}, {'A', 'C', h1}, {'D', 'D', low}, {'E', 'F', h1}, {'a', 'c', h1}, {'d', 'd', low}, {'e', 'f', h1}})
	var rs []byteRange
	for _, c := range `"/\bfnrt` {
		rs = append(rs, byteRange{byte(c), byte(c), next})
	}
	return w.set(append(rs, byteRange{'u', 'u', u}))
}

// A bytePair is the bytes from lo to hi.
type bytePair struct{ lo, hi byte }

// runes appends the characters lo to hi, none of them a surrogate, as
// sequences of byte ranges in order. The first ranges of two sequences, of
// these or of other characters, are equal or disjoint.
func runes(seqs [][]bytePair, lo, hi rune) [][]bytePair {
	for _, top := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= top && hi > top {
			seqs = runes(seqs, lo, top)
			lo = top + 1
		}
	}
	return spans(seqs, nil, utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi))
}

// spans appends the byte strings from a to b behind head. They are of one
// length, and their bytes after the first of a character are 80 to BF.
func spans(seqs [][]bytePair, head []bytePair, a, b []byte) [][]bytePair {
	head = slices.Clip(head)
	if len(a) == 1 {
		return append(seqs, append(head, bytePair{a[0], b[0]}))
	}
	all := func(s []byte, c byte) bool {
		return !slices.ContainsFunc(s, func(x byte) bool { return x != c })
	}
	floor, top := slices.Repeat([]byte{0x80}, len(a)-1), slices.Repeat([]byte{0xBF}, len(a)-1)
	if a[0] == b[0] {
		return spans(seqs, append(head, bytePair{a[0], a[0]}), a[1:], b[1:])
	}
	from, to := a[0], b[0]
	if !all(a[1:], 0x80) {
		seqs = spans(seqs, append(head, bytePair{from, from}), a[1:], top)
		from++
	}
	last := !all(b[1:], 0xBF)
	if last {
		to--
	}
	if from <= to {
		full := append(head, bytePair{from, to})
		for range floor {
			full = append(full, bytePair{0x80, 0xBF})
		}
		seqs = append(seqs, full)
	}
	if last {
		seqs = spans(seqs, append(head, bytePair{b[0], b[0]}), floor, b[1:])
	}
	return seqs
}

// sequences is a trie of the sequences: ranges of first bytes, disjoint.
func (w *assembler) sequences(seqs [][]bytePair, next int32) []byteRange {
	var rs []byteRange
	for i := 0; i < len(seqs); {
		first := seqs[i][0]
		var tails [][]bytePair
		full := true
		k := i
		for ; k < len(seqs) && seqs[k][0] == first; k++ {
			t := seqs[k][1:]
			tails = append(tails, t)
			full = full && !slices.ContainsFunc(t, func(p bytePair) bool { return p != bytePair{0x80, 0xBF} })
		}
		to := next
		switch {
		case full:
			to = w.tail(len(tails[0]), next)
		default:
			to = w.set(w.sequences(tails, next))
		}
		rs = append(rs, byteRange{first.lo, first.hi, to})
		i = k
	}
	return rs
}

// tail is n bytes from 80 to BF.
func (w *assembler) tail(n int, next int32) int32 {
	for range n {
		next = w.node(node{op: opByte, lo: 0x80, hi: 0xBF, a: next})
	}
	return next
}

// chars is a repetition of one character of a set.
func (w *assembler) chars(s charSet, anyEscape bool, least, most int, next int32) int32 {
	l := loop{min: int32(least), max: int32(most), set: w.loopSet(s, anyEscape)}
	return w.repeat(l, next, func(to int32) int32 { return w.char(s, anyEscape, to) })
}

// loopSet gives equal sets one pointer.
func (w *assembler) loopSet(s charSet, anyEscape bool) *loopSet {
	key := s.key(anyEscape)
	l := w.sets[key]
	if l == nil {
		if w.sets == nil {
			w.sets = map[string]*loopSet{}
		}
		l = newLoopSet(s, anyEscape)
		w.sets[key] = l
	}
	return l
}

var anyChar = charSet{raw: rawChars}

func (w *assembler) text(l *lang, next int32) int32 {
	end := w.byte('"', next)
	if l.pattern == nil {
		return w.byte('"', w.chars(anyChar, true, l.min, l.max, end))
	}
	var alts []int32
	for _, b := range l.pattern.branches {
		to := end
		if !b.end {
			to = w.chars(anyChar, true, 0, -1, end)
		}
		for i := len(b.seq) - 1; i >= 0; i-- {
			to = w.regexp(b.seq[i], to)
		}
		if !b.start {
			to = w.chars(anyChar, true, 0, -1, to)
		}
		alts = append(alts, to)
	}
	return w.byte('"', w.fork(alts...))
}

func (w *assembler) regexp(re *syntax.Regexp, next int32) int32 {
	if w.err != nil {
		return 0
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return next
	case syntax.OpCapture:
		return w.regexp(re.Sub[0], next)
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			s := jsontext.AppendString(nil, string(re.Rune))
			return w.bytes(string(s[1:len(s)-1]), next)
		}
		for i := len(re.Rune) - 1; i >= 0; i-- {
			one := *re
			one.Rune = re.Rune[i : i+1]
			next = w.char(setOf(&one), false, next)
		}
		return next
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return w.char(setOf(re), false, next)
	case syntax.OpConcat:
		for i := len(re.Sub) - 1; i >= 0; i-- {
			next = w.regexp(re.Sub[i], next)
		}
		return next
	case syntax.OpAlternate:
		alts := make([]int32, len(re.Sub))
		for i, sub := range re.Sub {
			alts[i] = w.regexp(sub, next)
		}
		return w.fork(alts...)
	}
	from, to := bounds(re)
	sub := re.Sub[0]
	if single(sub) {
		for sub.Op == syntax.OpCapture {
			sub = sub.Sub[0]
		}
		// A repeated character is spelled as in a class, an ordinary one as in
		// a literal: that tells for \b and \u0008.
		if s := setOf(sub); len(s.raw) > 0 || s.escaped != "" && (sub.Op != syntax.OpLiteral || to < 0 || to-from > 8) {
			return w.chars(s, false, from, to, next)
		}
	}
	lo, _, _, _ := measure(sub)
	if lo == 0 {
		from = 0 // an empty round counts as none
	}
	return w.repeat(loop{min: int32(from), max: int32(to), nullable: lo == 0}, next, func(to int32) int32 { return w.regexp(sub, to) })
}

// ---- numbers

func (w *assembler) number(l *lang, next int32) int32 {
	if l.kind == number && l.lo == nil && l.hi == nil {
		return w.anyNumber(next)
	}
	if l.lo == nil && l.hi == nil { // 0|-?[1-9][0-9]{0,14}
		to := next
		for range maxPlaces - 1 {
			to = w.fork(w.node(node{op: opByte, lo: '0', hi: '9', a: to}), next)
		}
		to = w.node(node{op: opByte, lo: '1', hi: '9', a: to})
		return w.fork(w.byte('0', next), w.byte('-', to), to)
	}
	lo, hi, loOpen, hiOpen := ends(l)
	a, b, ok := grid(lo, hi, loOpen, hiOpen, l.places)
	if !ok {
		panic("grammar: no number between bounds is written")
	}
	var alts []int32
	if a.Sign() < 0 {
		from := big.NewInt(1)
		if l.places > 0 {
			from.SetInt64(0)
		}
		if b.Sign() < 0 {
			from = new(big.Int).Neg(b)
		}
		alts = append(alts, w.byte('-', w.magnitude(from, new(big.Int).Neg(a), l.places, next)))
	}
	if b.Sign() >= 0 {
		from := a
		if a.Sign() < 0 {
			from = new(big.Int)
		}
		alts = append(alts, w.magnitude(from, b, l.places, next))
	}
	return w.fork(alts...)
}

// anyNumber is -?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?
func (w *assembler) anyNumber(next int32) int32 {
	digit := func(to int32) int32 { return w.node(node{op: opByte, lo: '0', hi: '9', a: to}) }
	digits := func(n int, end int32) int32 { // 1 to n of them
		to := end
		for i := range n {
			if i > 0 {
				to = w.fork(to, end)
			}
			to = digit(to)
		}
		return to
	}
	e := digits(2, next)
	e = w.set([]byteRange{{'E', 'E', w.fork(w.set([]byteRange{{'+', '+', e}, {'-', '-', e}}), e)}})
	e = w.set([]byteRange{{'E', 'E', w.p.nodes[e].a}, {'e', 'e', w.p.nodes[e].a}})
	afterPoint := w.fork(e, next)
	point := w.byte('.', digits(maxPlaces, afterPoint))
	afterWhole := w.fork(point, e, next)
	more := w.fork(digits(maxPlaces-1, afterWhole), afterWhole)
	whole := w.set([]byteRange{{'0', '0', afterWhole}, {'1', '9', more}})
	return w.fork(w.byte('-', whole), whole)
}

// magnitude reads digits and compares them with both bounds as they come.
// Every state of it leads to a number.
func (w *assembler) magnitude(a, b *big.Int, places int, next int32) int32 {
	unit := pow10(places)
	split := func(x *big.Int) (string, string) {
		whole, frac := new(big.Int).QuoRem(x, unit, new(big.Int))
		if places == 0 {
			return whole.String(), ""
		}
		return whole.String(), fmt.Sprintf("%0*s", places, frac.String())
	}
	m := magnitude{w: w, next: next}
	m.lo, m.loFrac = split(a)
	m.hi, m.hiFrac = split(b)
	m.memo = make([]int32, (max(len(m.hi), places)+1)*36)
	return m.read(digitState{})
}

type magnitude struct {
	w              *assembler
	lo, hi         string // whole parts
	loFrac, hiFrac string // digits after the point, all of them
	next           int32
	memo           []int32 // by index of state: 2 + where it is read, 0: not known
}

// A digitState is where a reader of digits stands.
type digitState struct {
	n      int  // digits read of the part
	point  bool // that part is behind the point
	zero   bool // it begins with 0, so no other whole digit follows
	lo, hi int  // what was read against the same digits of the bounds: -1 less, 0 equal, 1 more
}

const impossible = -1

func (s digitState) index() int {
	i := (s.n*3+s.lo+1)*3 + s.hi + 1
	if i *= 4; s.point {
		i += 2
	}
	if s.zero {
		i++
	}
	return i
}

// read gives the node for what follows s; impossible if nothing fits.
func (m *magnitude) read(s digitState) int32 {
	if at := m.memo[s.index()]; at != 0 {
		return at - 2
	}
	var alts []int32
	if s.n > 0 && m.ends(s) {
		alts = append(alts, m.next)
	}
	if !s.point && s.n > 0 && m.loFrac != "" {
		// The whole part is done: it is below or above a bound for good, or equal.
		lo, hi := order(s, len(m.lo), s.lo), order(s, len(m.hi), s.hi)
		if lo >= 0 && hi <= 0 {
			if f := m.read(digitState{point: true, lo: lo, hi: hi}); f != impossible {
				alts = append(alts, m.w.byte('.', f))
			}
		}
	}
	var rs []byteRange
	for d := byte('0'); d <= '9'; d++ {
		next, ok := m.digit(s, d)
		if !ok {
			continue
		}
		if to := m.read(next); to != impossible {
			if n := len(rs); n > 0 && rs[n-1].to == to && rs[n-1].hi == d-1 {
				rs[n-1].hi = d
			} else {
				rs = append(rs, byteRange{d, d, to})
			}
		}
	}
	if len(rs) > 0 {
		alts = append(alts, m.w.set(rs))
	}
	at := int32(impossible)
	if len(alts) > 0 {
		at = m.w.fork(alts...)
	}
	m.memo[s.index()] = at + 2
	return at
}

// order compares a whole part of s.n digits with a bound of n digits; same is
// how their first digits compare.
func order(s digitState, n, same int) int {
	if s.n != n {
		return cmp.Compare(s.n, n)
	}
	return same
}

// ends tells whether the number may end here.
func (m *magnitude) ends(s digitState) bool {
	if !s.point {
		lo, hi := order(s, len(m.lo), s.lo), order(s, len(m.hi), s.hi)
		return hi <= 0 && (lo > 0 || lo == 0 && strings.Trim(m.loFrac, "0") == "")
	}
	return s.hi <= 0 && (s.lo > 0 || s.lo == 0 && strings.Trim(m.loFrac[s.n:], "0") == "")
}

func (m *magnitude) digit(s digitState, d byte) (digitState, bool) {
	if s.point {
		if s.n == len(m.loFrac) {
			return s, false
		}
		if s.lo == 0 {
			s.lo = cmp.Compare(d, m.loFrac[s.n])
		}
		if s.hi == 0 {
			s.hi = cmp.Compare(d, m.hiFrac[s.n])
		}
		s.n++
		return s, s.lo >= 0 && s.hi <= 0
	}
	if s.zero || s.n == len(m.hi) {
		return s, false
	}
	if s.lo == 0 && s.n < len(m.lo) {
		s.lo = cmp.Compare(d, m.lo[s.n])
	}
	if s.hi == 0 {
		s.hi = cmp.Compare(d, m.hi[s.n])
	}
	s.n++
	s.zero = s.n == 1 && d == '0'
	return s, true
}

// grid brings bounds to multiples of 10^-places, with closed ends; ok is false
// if none lies between.
func grid(lo, hi *big.Rat, loOpen, hiOpen bool, places int) (a, b *big.Int, ok bool) {
	scale := new(big.Rat).SetInt(pow10(places))
	scaled := new(big.Rat).Mul(lo, scale)
	if a = ceil(scaled); loOpen && scaled.IsInt() {
		a.Add(a, big.NewInt(1))
	}
	scaled.Mul(hi, scale)
	if b = floor(scaled); hiOpen && scaled.IsInt() {
		b.Sub(b, big.NewInt(1))
	}
	return a, b, a.Cmp(b) <= 0
}

// ---- nesting

const tooDeep = 1 << 30

// measureNeed finds the least nesting of every node: that of the calls and
// brackets on the way to the end of its body that needs fewest.
func (p *program) measureNeed() {
	p.need = make([]int32, len(p.nodes))
	for i := range p.need {
		p.need[i] = tooDeep
	}
	// A pass settles what needs one call more; with more than maxNesting calls
	// the rest is too deep or a chain of references that lead nowhere new.
	for range 2 * maxNesting {
		changed := false
		for i := range p.nodes {
			if n := p.needOf(&p.nodes[i]); n < p.need[i] {
				p.need[i], changed = n, true
			}
		}
		if !changed {
			return
		}
	}
}

func (p *program) needOf(n *node) int32 {
	least := int32(tooDeep)
	switch n.op {
	case opByte:
		return max(n.open, p.need[n.a])
	case opSet:
		for _, r := range p.ranges[n.a : n.a+n.b] {
			least = min(least, p.need[r.to])
		}
	case opFork:
		for _, to := range p.targets[n.a : n.a+n.b] {
			least = min(least, p.need[to])
		}
	case opEnter:
		if n.b > 0 {
			return p.need[n.b]
		}
		l := &p.loops[n.a]
		if least = p.need[l.body]; l.min == 0 {
			least = min(least, p.need[l.exit])
		}
	case opNext: // what another round needs was met by the first
		return p.need[p.loops[n.a].exit]
	case opCall:
		if e := p.need[n.a]; e < tooDeep {
			return max(n.open+e, p.need[n.b])
		}
	case opReturn, opAccept:
		return 0
	}
	return least
}
