package dialect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Machine is a grammar as nodes that read bytes. Each rule is a part of it
// that begins at its entry and ends in a Return. NewMachine makes it.
type Machine struct {
	Nodes []Node
	Loops []Loop
	Start int32            // where the texts begin; they end in a Return too
	Rules map[string]int32 // entries that other grammars have too, by name

	endings *endings // of Nodes, once they are complete
}

// NewMachine is a machine to which Nodes and Loops are added.
func NewMachine(start int32, rules map[string]int32) *Machine {
	return &Machine{Start: start, Rules: rules, endings: &endings{}}
}

// From is m with texts that begin as rule does.
func (m *Machine) From(rule string) *Machine {
	other := *m
	other.Start = m.Rules[rule]
	return &other
}

// A Node is one step.
type Node struct {
	Op     Step
	Ranges []Range // Read
	To     []int32 // Fork: all that may follow; of others: the one that follows
	Arg    int32   // Call: the entry; Enter, Next and Tick: the loop
	N      int32   // Tick: how many characters
}

// Step says what a Node does.
type Step byte

// The steps of a Machine.
const (
	Read   Step = iota // a byte, which decides what follows
	Fork               // any of To
	Call               // the rule at Arg, then To
	Return             // the end of a rule
	Enter              // begins loop Arg, at To if there is one, else by its body or exit
	Next               // a round of loop Arg is done, the next begins at To if there is one
	Tick               // N characters of loop Arg, if it counts those and not rounds
)

// The names of rules for pieces of strings, which every machine has that uses
// them. As letters they keep long strings from having a dozen states for every
// character.
const (
	RawPiece     = " raw"     // a character out of RawChars
	ShortPiece   = " short"   // an escape of two characters
	UnicodePiece = " unicode" // \u and four digits
)

// piece is the texts of one of those names.
func piece(name string) *Expr {
	esc := anyEscape()
	switch name {
	case ShortPiece:
		return Then(Text(`\`), esc.Subs[0])
	case UnicodePiece:
		return Then(Text(`\`), esc.Subs[1])
	}
	return &Expr{Op: Class, Set: RawChars}
}

// A Range leads on from the bytes Lo to Hi.
type Range struct {
	Lo, Hi byte
	To     int32
}

// A Loop is gone round Min to Max times, -1 for no limit.
type Loop struct {
	Min, Max   int32
	Body, Exit int32
	Chars      bool // what is counted are the Ticks on the way
}

// maxNodes bounds a machine.
const maxNodes = 4 << 20

// Machine makes a machine of g. With rules behind prefix only the part of one
// tool is meant: names lose the prefix, and the start is prefix + start. An
// error names a rule that has no such form.
func (g *Grammar) Machine(prefix, start string) (m *Machine, err error) {
	defer func() {
		if e, ok := recover().(machineError); ok {
			m, err = nil, e
		}
	}()
	w := &machinist{m: NewMachine(0, map[string]int32{}), g: g, byName: map[string]*Rule{}, entry: map[string]int32{}, loop: -1}
	for i := range g.Rules {
		w.byName[g.Rules[i].Name] = &g.Rules[i]
	}
	if w.byName[prefix+start] == nil {
		return nil, machineError("no rule " + prefix + start)
	}
	w.node(Node{Op: Return}) // node 0
	w.m.Start = w.call(prefix+start, 0)
	for i := 0; i < len(w.todo); i++ {
		w.rule(w.todo[i])
	}
	for name, at := range w.pieces {
		w.m.Rules[name] = at
		w.whole = true
		w.m.Nodes[at].To = []int32{w.expr(piece(name), 0)}
	}
	for name, at := range w.entry {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			w.m.Rules[name[len(prefix):]] = at
		}
	}
	return w.m, nil
}

type machineError string

func (e machineError) Error() string { return string(e) }

type machinist struct {
	m      *Machine
	g      *Grammar
	byName map[string]*Rule
	entry  map[string]int32
	todo   []string
	loop   int32            // that counts characters here; -1: none
	gates  map[string]int32 // where a round of it ends, by what is repeated
	pieces map[string]int32
	whole  bool // pieces are written as they are
}

func (w *machinist) piece(name string, chars, next int32) int32 {
	if w.pieces == nil {
		w.pieces = map[string]int32{}
	}
	at, ok := w.pieces[name]
	if !ok {
		at = w.node(Node{Op: Fork})
		w.pieces[name] = at
	}
	return w.node(Node{Op: Call, Arg: at, To: []int32{w.tick(chars, next)}})
}

func (w *machinist) tick(chars, next int32) int32 {
	if w.loop < 0 {
		return next
	}
	return w.node(Node{Op: Tick, Arg: w.loop, N: chars, To: []int32{next}})
}

func (w *machinist) node(n Node) int32 {
	if len(w.m.Nodes) >= maxNodes {
		panic(machineError(fmt.Sprintf("more than %d nodes", maxNodes)))
	}
	w.m.Nodes = append(w.m.Nodes, n)
	return int32(len(w.m.Nodes) - 1)
}

func (w *machinist) call(name string, next int32) int32 {
	at, ok := w.entry[name]
	if !ok {
		at = w.node(Node{Op: Fork})
		w.entry[name] = at
		w.todo = append(w.todo, name)
	}
	return w.node(Node{Op: Call, Arg: at, To: []int32{next}})
}

func (w *machinist) rule(name string) {
	r := w.byName[name]
	if r.Body == nil {
		panic(machineError("rule " + name + " is not read"))
	}
	at := w.entry[name]
	if r.MaxChars == 0 {
		w.m.Nodes[at].To = []int32{w.expr(r.Body, 0)}
		return
	}
	w.loop = int32(len(w.m.Loops))
	w.m.Loops = append(w.m.Loops, Loop{Max: int32(r.MaxChars), Chars: true})
	w.gates = map[string]int32{}
	enter := Node{Op: Enter, Arg: w.loop, To: []int32{w.counted(r.Body, 0)}}
	w.loop = -1
	if len(w.gates) == 0 {
		panic(machineError("rule " + name + " has a limit of characters and repeats none"))
	}
	w.m.Nodes[at].To = []int32{w.node(enter)}
}

// counted writes the body of a rule with a limit of characters. xgrammar ends
// such a rule at the first place where its body may end once the limit is
// reached, so what matters is where that is: the gates. Known are a loop, and
// rules whose alternatives each end in a reference to another, or are empty.
func (w *machinist) counted(e *Expr, depth int) int32 {
	unknown := func() { panic(machineError("a rule has a limit of characters and no known shape")) }
	if depth > 64 {
		unknown()
	}
	gate := func(name string) int32 {
		at := w.node(Node{Op: Next, Arg: w.loop})
		w.gates[name] = at
		return at
	}
	switch {
	case e.Op == Repeat && e.Min == 0 && e.Max < 0:
		at := gate("*")
		w.m.Nodes[at].To = []int32{w.expr(e.Subs[0], at)}
		return at
	case e.Op == Ref:
		if at, ok := w.gates[e.Text]; ok {
			return at
		}
		r := w.byName[e.Text]
		if r.MaxChars > 0 || r.Body == nil {
			unknown()
		}
		if !slices.ContainsFunc(alternatives(r.Body), isEmpty) {
			return w.counted(r.Body, depth+1)
		}
		at := gate(r.Name)
		to := w.rounds(alternatives(r.Body), depth)
		w.m.Nodes[at].To = []int32{w.node(Node{Op: Fork, To: to})}
		return at
	}
	return w.node(Node{Op: Fork, To: w.rounds(alternatives(e), depth)})
}

// rounds are the alternatives that are not empty, up to the next gate.
func (w *machinist) rounds(alts []*Expr, depth int) (to []int32) {
	for _, a := range alts {
		n := len(a.Subs)
		switch {
		case isEmpty(a):
		case a.Op != Seq || n < 2 || a.Subs[n-1].Op != Ref:
			panic(machineError("a rule has a limit of characters and no known shape"))
		default:
			to = append(to, w.expr(Then(a.Subs[:n-1]...), w.counted(a.Subs[n-1], depth+1)))
		}
	}
	return to
}

func isEmpty(e *Expr) bool { return e.Op == Lit && e.Text == "" || e.Op == Seq && len(e.Subs) == 0 }

func alternatives(e *Expr) []*Expr {
	if e.Op == Alt {
		return e.Subs
	}
	return []*Expr{e}
}

var anyEscapeText = anyEscape().String()

// isAnyEscape knows the one spelling of it that our writers use; of any other
// only the comparison takes longer.
func isAnyEscape(e *Expr) bool { return e.Op == Alt && e.String() == anyEscapeText }

// expr writes e so that next follows.
func (w *machinist) expr(e *Expr, next int32) int32 {
	switch e.Op {
	case Lit:
		rs := []rune(e.Text)
		for i := len(rs) - 1; i >= 0; i-- {
			next = w.chars([]rune{rs[i], rs[i]}, next)
		}
		return next
	case Class:
		if !w.whole && slices.Equal(e.Set, RawChars) {
			return w.piece(RawPiece, 1, next)
		}
		return w.chars(e.Set, next)
	case Token:
		return w.expr(e.Subs[0], next)
	case Seq:
		for i := len(e.Subs) - 1; i >= 0; i-- {
			s := e.Subs[i]
			if i > 0 && !w.whole && isAnyEscape(s) && e.Subs[i-1].Op == Lit && strings.HasSuffix(e.Subs[i-1].Text, `\`) {
				next = w.node(Node{Op: Fork, To: []int32{w.piece(ShortPiece, 2, next), w.piece(UnicodePiece, 6, next)}})
				i--
				s = Text(strings.TrimSuffix(e.Subs[i].Text, `\`))
			}
			next = w.expr(s, next)
		}
		return next
	case Alt:
		to := make([]int32, len(e.Subs))
		for i, s := range e.Subs {
			to[i] = w.expr(s, next)
		}
		return w.node(Node{Op: Fork, To: to})
	case Ref:
		if w.loop >= 0 {
			panic(machineError("rule " + e.Text + " stands within a limit of characters"))
		}
		return w.call(e.Text, next)
	case Chars:
		return w.expr(Times(spelled(e), e.Min, e.Max), next)
	case Repeat:
		return w.repeat(e, next)
	}
	panic(machineError(fmt.Sprintf("expression %v is not read", e)))
}

func (w *machinist) repeat(e *Expr, next int32) int32 {
	if e.Max == 1 && e.Min == 0 {
		return w.node(Node{Op: Fork, To: []int32{w.expr(e.Subs[0], next), next}})
	}
	if e.Min == 0 && e.Max < 0 {
		at := w.node(Node{Op: Fork})
		body := w.expr(e.Subs[0], at)
		w.m.Nodes[at].To = []int32{body, next}
		return at
	}
	if max(e.Min, e.Max) > 1000 && w.mayBeEmpty(e.Subs[0], 0) {
		panic(machineError("what may be empty is repeated more than 1,000 times"))
	}
	if w.loop >= 0 {
		panic(machineError("a counted repetition stands within a limit of characters"))
	}
	i := int32(len(w.m.Loops))
	w.m.Loops = append(w.m.Loops, Loop{Min: int32(e.Min), Max: int32(e.Max), Exit: next})
	body := w.expr(e.Subs[0], w.node(Node{Op: Next, Arg: i}))
	w.m.Loops[i].Body = body
	return w.node(Node{Op: Enter, Arg: i})
}

// mayBeEmpty tells whether the empty text is one of e; of rules in rules deeper
// than it looks it says so to be safe.
func (w *machinist) mayBeEmpty(e *Expr, depth int) bool {
	empty := func(s *Expr) bool { return w.mayBeEmpty(s, depth+1) }
	switch {
	case depth > 64:
		return true
	case e.Op == Lit:
		return e.Text == ""
	case e.Op == Seq:
		return !slices.ContainsFunc(e.Subs, func(s *Expr) bool { return !empty(s) })
	case e.Op == Alt:
		return slices.ContainsFunc(e.Subs, empty)
	case e.Op == Repeat, e.Op == Token:
		return e.Op == Repeat && e.Min == 0 || empty(e.Subs[0])
	case e.Op == Ref:
		return w.byName[e.Text].Body == nil || empty(w.byName[e.Text].Body)
	}
	return e.Op == Chars && e.Min == 0
}

// chars is one character of the pairs, by its bytes. Surrogates are bytes that
// are not UTF-8, as engines that go by numbers write them.
func (w *machinist) chars(pairs []rune, next int32) int32 {
	next = w.tick(1, next)
	var to []int32
	for i := 0; i < len(pairs); i += 2 {
		for _, seq := range byteRanges(nil, pairs[i], pairs[i+1]) {
			at := next
			for k := len(seq) - 1; k >= 0; k-- {
				at = w.node(Node{Op: Read, Ranges: []Range{{seq[k].Lo, seq[k].Hi, at}}})
			}
			to = append(to, at)
		}
	}
	if len(to) == 1 {
		return to[0]
	}
	return w.node(Node{Op: Fork, To: to})
}

// byteRanges appends the encodings of the characters lo to hi, as sequences of
// ranges.
func byteRanges(seqs [][]Range, lo, hi rune) [][]Range {
	for _, top := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= top && hi > top {
			return byteRanges(byteRanges(seqs, lo, top), top+1, hi)
		}
	}
	a, b := encoded(lo), encoded(hi)
	// Cut where one byte more than the first differs and the rest isn't full.
	for n := 1; n < len(a); n++ {
		low := rune(1)<<(6*n) - 1
		if lo&^low == hi&^low {
			continue
		}
		if lo&low != 0 {
			return byteRanges(byteRanges(seqs, lo, lo|low), (lo|low)+1, hi)
		}
		if hi&low != low {
			return byteRanges(byteRanges(seqs, lo, hi&^low-1), hi&^low, hi)
		}
	}
	var seq []Range
	for i := range a {
		seq = append(seq, Range{Lo: a[i], Hi: b[i]})
	}
	return append(seqs, seq)
}

func encoded(r rune) []byte {
	if r >= 0xD800 && r < 0xE000 {
		return []byte{0xED, 0x80 | byte(r>>6)&0x3F, 0x80 | byte(r)&0x3F}
	}
	return utf8.AppendRune(nil, r)
}

// ---- determinising

// A frame says where to go on after a call, or which round of a loop this is.
type frame struct {
	up    *frame
	node  int32 // calls: where to go on; loops: ^index
	count int32
}

type thread struct {
	node int32
	top  *frame
}

// A set is threads that each read a byte, call a letter or end: all that the
// text so far may mean.
type set struct {
	threads []thread
	ends    bool
	next    map[byte]*set // by class, see classes
	calls   map[int32]*set
	class   *[256]uint8
	classes []byte // a byte of each class
}

// A walker determinises a machine. Entries in letters are not entered: a call
// of one is read like a byte.
type walker struct {
	m       *Machine
	letters map[int32]bool
	frames  map[frame]*frame
	sets    map[uint64][]*set
	n       int // sets made
	salt    uint64
	ends    []int64 // by node, see endings
	seen    map[thread]bool
	found   []thread
	queue   []thread // scratch
	ids     map[*frame]uint64
	over    bool // more than maxFound threads
}

// maxFound bounds the threads of a set.
const maxFound = 1 << 14

func (m *Machine) walker(letters map[int32]bool) *walker {
	return &walker{m: m, letters: letters, frames: map[frame]*frame{}, sets: map[uint64][]*set{}, salt: rand.Uint64(), ends: m.ends().bytes, ids: map[*frame]uint64{nil: 1}, seen: map[thread]bool{}}
}

func (w *walker) frame(f frame) *frame {
	p := w.frames[f]
	if p == nil {
		p = &f
		w.frames[f] = p
		w.ids[p] = uint64(len(w.ids) + 1)
	}
	return p
}

// at is the set at a node, outside all rules and loops.
func (w *walker) at(n int32) *set {
	w.begin()
	w.close(thread{n, nil})
	return w.intern()
}

func (w *walker) begin() {
	clear(w.seen)
	w.found = w.found[:0]
}

// close finds the threads that t leads to without reading.
func (w *walker) close(t thread) {
	queue := append(w.queue[:0], t)
	defer func() { w.queue = queue }()
	for len(queue) > 0 {
		t := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if w.ends[t.node] >= never || w.seen[t] {
			continue
		}
		w.seen[t] = true
		n := &w.m.Nodes[t.node]
		decide := func(f frame, body int32) {
			l := &w.m.Loops[n.Arg]
			if f.count >= l.Min {
				queue = append(queue, thread{l.Exit, f.up})
			}
			if l.Max < 0 || f.count < l.Max {
				queue = append(queue, thread{body, w.frame(f)})
			}
		}
		switch n.Op {
		case Fork:
			for _, to := range n.To {
				queue = append(queue, thread{to, t.top})
			}
		case Enter:
			f := frame{t.top, ^n.Arg, 0}
			if len(n.To) > 0 {
				queue = append(queue, thread{n.To[0], w.frame(f)})
			} else {
				decide(f, w.m.Loops[n.Arg].Body)
			}
		case Next:
			f := *t.top
			l := &w.m.Loops[n.Arg]
			body := l.Body
			if len(n.To) > 0 {
				body = n.To[0]
			}
			if !l.Chars {
				f.count++
			}
			if l.Max < 0 {
				f.count = min(f.count, l.Min)
			}
			decide(f, body)
		case Tick:
			f := *t.top
			f.count = min(f.count+n.N, w.m.Loops[n.Arg].Max)
			queue = append(queue, thread{n.To[0], w.frame(f)})
		case Call:
			if w.letters[n.Arg] {
				w.add(t)
				continue
			}
			top := t.top
			if w.m.Nodes[n.To[0]].Op != Return {
				top = w.frame(frame{top, n.To[0], 0})
			}
			queue = append(queue, thread{n.Arg, top})
		case Return:
			if t.top == nil {
				w.add(t)
				continue
			}
			queue = append(queue, thread{t.top.node, t.top.up})
		default:
			w.add(t)
		}
	}
}

func (w *walker) add(t thread) {
	if len(w.found) >= maxFound {
		w.over = true
		return
	}
	w.found = append(w.found, t)
}

// intern makes a set of what was found; nil if that is nothing.
func (w *walker) intern() *set {
	ts := w.subsume(w.found)
	if len(ts) == 0 {
		return nil
	}
	slices.SortFunc(ts, func(a, b thread) int {
		if a.node != b.node {
			return int(a.node - b.node)
		}
		return int(w.ids[a.top]) - int(w.ids[b.top])
	})
	sum := w.salt
	for _, t := range ts {
		sum = (sum ^ uint64(uint32(t.node))<<32 ^ w.ids[t.top]) * 0x9E3779B97F4A7C15
		sum ^= sum >> 31
	}
	for _, s := range w.sets[sum] {
		if slices.Equal(s.threads, ts) {
			return s
		}
	}
	s := &set{threads: slices.Clone(ts), next: map[byte]*set{}}
	for _, t := range ts {
		s.ends = s.ends || w.m.Nodes[t.node].Op == Return
	}
	w.sets[sum] = append(w.sets[sum], s)
	w.n++
	return s
}

// subsume leaves out threads that mean nothing new: in the same place, a loop
// past its minimum in fewer rounds can do all that it can in more.
func (w *walker) subsume(ts []thread) []thread {
	type place struct {
		node, loop int32
		up         *frame
	}
	var least map[place]int32
	of := func(t thread) (place, bool) {
		if t.top == nil || t.top.node >= 0 || t.top.count < w.m.Loops[^t.top.node].Min {
			return place{}, false
		}
		return place{t.node, t.top.node, t.top.up}, true
	}
	for _, t := range ts {
		if p, ok := of(t); ok {
			if least == nil {
				least = map[place]int32{}
			}
			if c, ok := least[p]; !ok || t.top.count < c {
				least[p] = t.top.count
			}
		}
	}
	if least == nil {
		return ts
	}
	return slices.DeleteFunc(ts, func(t thread) bool {
		p, ok := of(t)
		return ok && t.top.count > least[p]
	})
}

// shape tells the shape of s and its rounds, if it is in one loop past its
// minimum: then fewer rounds can do all that more can.
func (w *walker) shape(s *set) (out shape, rounds int32, ok bool) {
	var f *frame
	for _, t := range s.threads {
		if t.top != nil && t.top.node < 0 {
			if f != nil && f != t.top {
				return shape{}, 0, false
			}
			f = t.top
		}
	}
	if f == nil || f.count < w.m.Loops[^f.node].Min {
		return shape{}, 0, false
	}
	out = shape{w.salt, f.node, f.up}
	for _, t := range s.threads {
		id := uint64(0)
		if t.top != f {
			id = w.ids[t.top]
		}
		out.hash = (out.hash ^ uint64(uint32(t.node))<<32 ^ id) * 0x9E3779B97F4A7C15
		out.hash ^= out.hash >> 31
	}
	return out, f.count, true
}

// classOf tells which bytes lead to the same from s: 0 to none.
func (w *walker) classOf(s *set) *[256]uint8 {
	if s.class != nil {
		return s.class
	}
	s.class = new([256]uint8)
	s.classes = []byte{0}
	var cut [257]bool
	for _, t := range s.threads {
		for _, r := range w.m.Nodes[t.node].Ranges {
			cut[r.Lo], cut[int(r.Hi)+1] = true, true
		}
	}
	sums := map[uint64]uint8{}
	class := uint8(0)
	for b := range 256 {
		if b == 0 || cut[b] {
			sum := w.salt
			for i, t := range s.threads {
				for _, r := range w.m.Nodes[t.node].Ranges {
					if r.Lo <= byte(b) && byte(b) <= r.Hi && w.ends[r.To] < never {
						sum = (sum ^ uint64(i)<<32 ^ uint64(r.To) + 1) * 0x9E3779B97F4A7C15
						sum ^= sum >> 29
					}
				}
			}
			class = 0
			if sum != w.salt {
				var ok bool
				if class, ok = sums[sum]; !ok {
					class = uint8(len(s.classes))
					sums[sum] = class
					s.classes = append(s.classes, byte(b))
				}
			}
		}
		s.class[b] = class
	}
	return s.class
}

// step is where b leads from s; nil if nowhere.
func (w *walker) step(s *set, b byte) *set {
	c := w.classOf(s)[b]
	if c == 0 {
		return nil
	}
	if n, ok := s.next[c]; ok {
		return n
	}
	w.begin()
	for _, t := range s.threads {
		for _, r := range w.m.Nodes[t.node].Ranges {
			if r.Lo <= b && b <= r.Hi {
				w.close(thread{r.To, t.top})
			}
		}
	}
	n := w.intern()
	s.next[c] = n
	return n
}

// calling are the letters that may follow s.
func (w *walker) calling(s *set) []int32 {
	var out []int32
	for _, t := range s.threads {
		if n := &w.m.Nodes[t.node]; n.Op == Call && !slices.Contains(out, n.Arg) {
			out = append(out, n.Arg)
		}
	}
	return out
}

// after is where a letter leads from s.
func (w *walker) after(s *set, letter int32) *set {
	if n, ok := s.calls[letter]; ok {
		return n
	}
	w.begin()
	for _, t := range s.threads {
		if n := &w.m.Nodes[t.node]; n.Op == Call && n.Arg == letter {
			w.close(thread{n.To[0], t.top})
		}
	}
	n := w.intern()
	if s.calls == nil {
		s.calls = map[int32]*set{}
	}
	s.calls[letter] = n
	return n
}

// Accepts tells whether m derives the text.
func (m *Machine) Accepts(text string) bool { return m.walker(nil).accepts(text) }

func (w *walker) accepts(text string) bool {
	s := w.at(w.m.Start)
	for i := 0; i < len(text) && s != nil; i++ {
		s = w.step(s, text[i])
	}
	return s != nil && s.ends
}
