package token

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Calls is what a model may answer when it has tools: text, calls, or an
// object of the client's own format.
type Calls struct {
	// Trigger begins every call and only calls.
	Trigger string
	// Separator stands between calls where no text may.
	Separator string
	Tools     []Tool
	// Response is what may stand instead of calls; nil: nothing.
	Response func() (Source, error)
	// FreeText allows text before, between and after calls, which doesn't spell
	// the trigger. Without it the answer is calls alone, or the response.
	FreeText bool
	// Most is how many calls there may be, negative for any number.
	Most int
	// Special are tokens that stand for their spelling where the trigger, Begin
	// and End of a tool or the separator have it; the bytes count as well.
	Special map[string]int32
}

// A Tool is what may be called.
type Tool struct {
	Begin string // before the arguments; it starts with the trigger
	End   string // behind them
	// Arguments opens the automaton of the arguments, when Begin is written.
	Arguments func() (Source, error)
}

// Source is the answer as an automaton. Tools of the same Begin are an error,
// as is one whose Begin continues another's.
func (c Calls) Source() (Source, error) {
	s := &calls{Calls: c, index: map[string]uint32{}, states: make([][]thread, 1), open: make([]Source, len(c.Tools)+1), tables: map[[256]uint8]*[256]uint8{}}
	if c.Trigger == "" && (c.FreeText || len(c.Tools) > 0) {
		return nil, fmt.Errorf("calls have no trigger")
	}
	order := make([]int32, len(c.Tools))
	for i := range order {
		order[i] = int32(i)
		if !strings.HasPrefix(c.Tools[i].Begin, c.Trigger) || len(c.Tools[i].Begin) == len(c.Trigger) {
			return nil, fmt.Errorf("%q doesn't begin with the trigger %q and something behind it", c.Tools[i].Begin, c.Trigger)
		}
	}
	slices.SortFunc(order, func(x, y int32) int { return strings.Compare(c.Tools[x].Begin, c.Tools[y].Begin) })
	for k := 1; k < len(order); k++ {
		if a, b := c.Tools[order[k-1]].Begin, c.Tools[order[k]].Begin; strings.HasPrefix(b, a) {
			return nil, fmt.Errorf("%q and %q can't be told apart", a, b)
		}
	}
	s.sorted = order
	s.border = borders(c.Trigger)
	s.specials = make([]string, 0, len(c.Special))
	for spelling := range c.Special {
		s.specials = append(s.specials, spelling)
	}
	slices.Sort(s.specials)
	return s, nil
}

// borders[k] is the longest proper prefix of trigger[:k] that it also ends with.
func borders(trigger string) []int32 {
	b := make([]int32, len(trigger)+1)
	k := int32(0)
	for i := 1; i < len(trigger); i++ {
		for k > 0 && trigger[k] != trigger[i] {
			k = b[k]
		}
		if trigger[k] == trigger[i] {
			k++
		}
		b[i+1] = k
	}
	return b
}

// calls is Calls as a source. A state is a set of threads, as the end of the
// arguments and what follows them may begin alike.
type calls struct {
	Calls
	sorted   []int32 // tools by their Begin
	border   []int32
	specials []string // spellings, sorted
	open     []Source // of tools and then of the response, when they are needed
	states   [][]thread
	index    map[string]uint32
	tables   map[[256]uint8]*[256]uint8
	set      []thread // scratch
	work     int
	bytes    int
}

// A thread is a place in the answer. n calls are complete, up to Most.
type thread struct {
	kind kind
	utf8 uint8  // inText: what is left of a character
	n    int32  // calls; 0 where any number is allowed, but for whether there was one
	at   int32  // inText: bytes of the trigger; inBegin, inEnd, inSeparator: bytes read
	lo   int32  // inBegin: the tools sorted[lo:hi] that begin so; inArguments, inEnd: the tool
	hi   int32  // inBegin
	s    uint32 // inArguments: the state
}

type kind uint8

const (
	inText kind = iota
	inBegin
	inArguments
	inEnd
	inSeparator // at is 0 behind a call
	finished
)

func (c *calls) Start() (uint32, error) {
	c.set = c.set[:0]
	if c.FreeText {
		c.add(thread{kind: inText})
	} else if len(c.Tools) > 0 && c.Most != 0 {
		c.begin(0, 0)
	}
	if c.Response != nil {
		if err := c.arguments(int32(len(c.Tools)), 0); err != nil {
			return 0, err
		}
	}
	return c.intern(), nil
}

func (c *calls) add(t thread) {
	if !slices.Contains(c.set, t) {
		c.set = append(c.set, t)
	}
}

// begin is a call of which at bytes are read.
func (c *calls) begin(at, n int32) {
	c.add(thread{kind: inBegin, at: at, n: n, hi: int32(len(c.sorted))})
}

// arguments begins the arguments of a tool.
func (c *calls) arguments(tool, n int32) error {
	if c.open[tool] == nil {
		open := c.Response
		if int(tool) < len(c.Tools) {
			open = c.Tools[tool].Arguments
		}
		src, err := open()
		if err != nil {
			return err
		}
		c.open[tool] = src
	}
	s, err := c.open[tool].Start()
	if s != 0 && err == nil {
		c.add(thread{kind: inArguments, lo: tool, n: n, s: s})
	}
	return err
}

// after is what may follow a call, the nth.
func (c *calls) after(n int32) {
	if n++; c.Most < 0 {
		n = 1
	}
	switch {
	case c.Most >= 0 && int(n) >= c.Most:
		c.add(thread{kind: finished})
	case c.FreeText:
		c.add(thread{kind: inText, n: n})
	default:
		c.add(thread{kind: inSeparator, n: n})
		if c.Separator == "" {
			c.begin(0, n)
		}
	}
}

func (c *calls) intern() uint32 {
	if len(c.set) == 0 {
		return 0
	}
	slices.SortFunc(c.set, func(x, y thread) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.lo, y.lo), cmp.Compare(x.at, y.at), cmp.Compare(x.s, y.s), cmp.Compare(x.n, y.n), cmp.Compare(x.hi, y.hi), cmp.Compare(x.utf8, y.utf8))
	})
	var room [128]byte
	key := room[:0]
	for _, t := range c.set {
		key = append(key, byte(t.kind), t.utf8)
		for _, x := range [...]int32{t.n, t.at, t.lo, t.hi, int32(t.s)} {
			key = binary.LittleEndian.AppendUint32(key, uint32(x))
		}
	}
	if s, ok := c.index[string(key)]; ok {
		return s
	}
	s := uint32(len(c.states))
	c.states = append(c.states, slices.Clone(c.set))
	c.index[string(key)] = s
	c.bytes += 80 + 46*len(c.set)
	return s
}

func (c *calls) Accepting(s uint32) bool {
	return slices.ContainsFunc(c.states[s], func(t thread) bool {
		switch t.kind {
		case inText:
			return t.utf8 == 0
		case inArguments:
			return int(t.lo) == len(c.Tools) && c.open[t.lo].Accepting(t.s)
		case inSeparator:
			return t.at == 0
		}
		return t.kind == finished
	})
}

func (c *calls) Step(s uint32, b byte) (uint32, error) {
	c.work++
	c.set = c.set[:0]
	for _, t := range c.states[s] {
		if err := c.step(t, b); err != nil {
			return 0, err
		}
	}
	return c.intern(), nil
}

func (c *calls) step(t thread, b byte) error {
	switch t.kind {
	case inText:
		left, ok := utf8Step(t.utf8, b)
		if !ok {
			return nil
		}
		k := t.at
		for k > 0 && c.Trigger[k] != b {
			k = c.border[k]
		}
		if c.Trigger[k] == b {
			k++
		}
		if int(k) == len(c.Trigger) {
			if len(c.Tools) > 0 {
				c.begin(k, t.n)
			}
			return nil
		}
		t.at, t.utf8 = k, left
		c.add(t)
	case inBegin:
		return c.beginByte(t, b)
	case inArguments:
		src := c.open[t.lo]
		if int(t.lo) < len(c.Tools) && src.Accepting(t.s) {
			c.literal(thread{kind: inEnd, lo: t.lo, n: t.n}, b)
		}
		to, err := src.Step(t.s, b)
		if to != 0 && err == nil {
			t.s = to
			c.add(t)
		}
		return err
	case inEnd, inSeparator:
		c.literal(t, b)
	}
	return nil
}

// beginByte narrows the tools that a call may be of.
func (c *calls) beginByte(t thread, b byte) error {
	from := func(b int) int32 { // the first that goes on with b or more
		return t.lo + int32(sort.Search(int(t.hi-t.lo), func(i int) bool {
			return int(c.Tools[c.sorted[int(t.lo)+i]].Begin[t.at]) >= b
		}))
	}
	t.lo, t.hi = from(int(b)), from(int(b)+1)
	if t.at++; t.lo < t.hi {
		return c.began(t)
	}
	return nil
}

// began adds a call of which something more was read.
func (c *calls) began(t thread) error {
	if tool := c.sorted[t.lo]; t.hi-t.lo == 1 && int(t.at) == len(c.Tools[tool].Begin) {
		return c.arguments(tool, t.n)
	}
	c.add(t)
	return nil
}

// text is what an end or a separator has to say.
func (c *calls) text(t thread) string {
	if t.kind == inSeparator {
		return c.Separator
	}
	return c.Tools[t.lo].End
}

func (c *calls) literal(t thread, b byte) {
	text := c.text(t)
	if text == "" || text[t.at] != b {
		return
	}
	t.at++
	c.read(t)
}

// read adds an end or a separator of which something more was read.
func (c *calls) read(t thread) {
	switch {
	case int(t.at) < len(c.text(t)):
		c.add(t)
	case t.kind == inEnd:
		c.after(t.n)
	default:
		c.begin(0, t.n)
	}
}

// rest is what must come next at t, as far as it is one text.
func (c *calls) rest(t thread) string {
	switch t.kind {
	case inText:
		if t.utf8 == 0 && len(c.Tools) > 0 {
			return c.Trigger
		}
	case inBegin:
		first, last := c.Tools[c.sorted[t.lo]].Begin, c.Tools[c.sorted[t.hi-1]].Begin
		n := int(t.at)
		for n < len(first) && n < len(last) && first[n] == last[n] {
			n++
		}
		return first[t.at:n]
	case inArguments:
		if int(t.lo) < len(c.Tools) && c.open[t.lo].Accepting(t.s) {
			return c.Tools[t.lo].End
		}
	case inEnd, inSeparator:
		return c.text(t)[t.at:]
	}
	return ""
}

func (c *calls) Tokens(s uint32) []int32 {
	var out []int32
	for _, t := range c.states[s] {
		rest := c.rest(t)
		for _, spelling := range c.specials {
			if spelling != "" && strings.HasPrefix(rest, spelling) {
				out = append(out, c.Special[spelling])
			}
		}
	}
	return out
}

func (c *calls) StepToken(s uint32, id int32) (uint32, error) {
	c.set = c.set[:0]
	for _, t := range c.states[s] {
		rest := c.rest(t)
		for _, spelling := range c.specials {
			if c.Special[spelling] != id || spelling == "" || !strings.HasPrefix(rest, spelling) {
				continue
			}
			n := int32(len(spelling))
			switch t.kind {
			case inText:
				if int(n) == len(c.Trigger) {
					c.begin(n, t.n)
				} else {
					t.at = n
					c.add(t)
				}
			case inBegin:
				t.at += n
				if err := c.began(t); err != nil {
					return 0, err
				}
			case inArguments:
				c.read(thread{kind: inEnd, lo: t.lo, n: t.n, at: n})
			default:
				t.at += n
				c.read(t)
			}
		}
	}
	return c.intern(), nil
}

func (c *calls) Classes(s uint32) *[256]uint8 {
	var class [256]uint8
	for i, t := range c.states[s] {
		if t.kind == inArguments && len(c.states[s]) == 1 && (int(t.lo) == len(c.Tools) || !c.open[t.lo].Accepting(t.s)) {
			return c.open[t.lo].Classes(t.s)
		}
		var own [256]uint8
		c.classes(t, &own)
		if i == 0 {
			class = own
			continue
		}
		pairs := map[[2]uint8]uint8{{}: 0}
		for b := range 256 {
			p := [2]uint8{class[b], own[b]}
			k, ok := pairs[p]
			if !ok {
				k = uint8(len(pairs))
				pairs[p] = k
			}
			class[b] = k
		}
	}
	known := c.tables[class]
	if known == nil {
		known = &class
		c.tables[class] = known
		c.bytes += 600
	}
	return known
}

// classes of one thread.
func (c *calls) classes(t thread, class *[256]uint8) {
	alone := func(b byte) { // puts b into a class of its own
		class[b] = 1 + slices.Max(class[:])
	}
	switch t.kind {
	case inText:
		for b := range 256 {
			if left, ok := utf8Step(t.utf8, byte(b)); ok {
				class[b] = left + 1
			}
		}
		for k := t.at; ; k = c.border[k] {
			if class[c.Trigger[k]] != 0 {
				alone(c.Trigger[k])
			}
			if k == 0 {
				break
			}
		}
	case inBegin:
		for _, i := range c.sorted[t.lo:t.hi] {
			if b := c.Tools[i].Begin[t.at]; class[b] == 0 {
				alone(b)
			}
		}
	case inArguments:
		src := c.open[t.lo]
		*class = *src.Classes(t.s)
		if int(t.lo) < len(c.Tools) && src.Accepting(t.s) {
			alone(c.Tools[t.lo].End[0])
		}
	case inEnd, inSeparator:
		if rest := c.text(t)[t.at:]; rest != "" {
			alone(rest[0])
		}
	}
}

func (c *calls) Text(s uint32) (Text, bool) {
	if len(c.states[s]) != 1 {
		return Text{}, false
	}
	switch t := c.states[s][0]; {
	case t.kind == inArguments && !c.open[t.lo].Accepting(t.s):
		return c.open[t.lo].Text(t.s)
	case t.kind == inText && t.at == 0 && t.utf8 == 0:
		any := Chars{ASCII: [2]uint64{^uint64(0), ^uint64(0)}, Others: true}
		b := c.Trigger[0]
		if b >= 0x80 {
			return Text{}, false
		}
		any.ASCII[b>>6] &^= 1 << (b & 63)
		return Text{Chars: any, Max: -1, Free: true, Ends: c.Trigger[:1]}, true
	}
	return Text{}, false
}

func (c *calls) Canonical(s uint32) uint32 {
	if len(c.states[s]) != 1 || c.states[s][0].kind != inArguments {
		return s
	}
	t := c.states[s][0]
	if t.s = c.open[t.lo].Canonical(t.s); t.s == c.states[s][0].s {
		return s
	}
	c.set = append(c.set[:0], t)
	return c.intern()
}

func (c *calls) Cost() (bytes, work int) {
	bytes, work = c.bytes+8*len(c.Tools), c.work
	for _, src := range c.open {
		if src != nil {
			b, w := src.Cost()
			bytes, work = bytes+b, work+w
		}
	}
	return bytes, work
}

// utf8Step is what is left of a character after b: 0 nothing, 1 to 3 that many
// bytes, 4 to 7 as many with fewer choices for the next.
func utf8Step(left uint8, b byte) (uint8, bool) {
	follows := b >= 0x80 && b <= 0xBF
	switch left {
	case 0:
		switch {
		case b < 0x80:
			return 0, true
		case b >= 0xC2 && b <= 0xDF:
			return 1, true
		case b == 0xE0:
			return 4, true
		case b == 0xED:
			return 5, true
		case b >= 0xE1 && b <= 0xEF:
			return 2, true
		case b == 0xF0:
			return 6, true
		case b == 0xF4:
			return 7, true
		case b >= 0xF1 && b <= 0xF3:
			return 3, true
		}
		return 0, false
	case 4:
		return 1, follows && b >= 0xA0
	case 5:
		return 1, follows && b <= 0x9F
	case 6:
		return 2, follows && b >= 0x90
	case 7:
		return 2, follows && b <= 0x8F
	}
	return left - 1, follows
}
