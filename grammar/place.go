package grammar

import (
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar/token"
)

// A place is where a text has come to. Within a long bounded string only the
// number of characters changes, so that it isn't part of the config: c stands
// for the loop at its minimum, and over is how many rounds more there have
// been. It is 0 everywhere else, and where the bound is nearer than a token
// may reach.
type place struct {
	c    *config
	over int32
}

// lone is the frame of the bounded loop over characters in which all of ts are
// or which they are just leaving, if it has reached its minimum.
func (p *program) lone(ts []thread) *frame {
	for _, t := range ts {
		f := t.top
		if f == nil || f.node >= 0 {
			continue
		}
		l := &p.loops[^f.node]
		if l.set == nil || l.max < 0 || f.count < l.min {
			continue
		}
		for _, o := range ts {
			if o.top != f && o.top != f.up {
				return nil
			}
		}
		return f
	}
	return nil
}

// move is where byte b leads; c is nil if it doesn't fit.
func (a *source) move(p place, b byte) (place, error) {
	n, err := a.next(p.c, b)
	if n == nil || err != nil {
		return place{}, err
	}
	f := p.c.lone
	if f == nil {
		return place{n, 0}, nil
	}
	l := &a.p.loops[^f.node]
	switch g := n.lone; {
	case g == f:
		return place{n, p.over}, nil
	case g != nil && g.node == f.node && g.up == f.up:
		if f.count > l.min { // near the bound
			return place{n, 0}, nil
		}
		if l.max-l.min-p.over-1 > far {
			return place{a.lower(n), p.over + 1}, nil
		}
		return place{a.raise(n, p.over), 0}, nil
	case p.over == 0 || !n.within(f):
		return place{n, 0}, nil
	}
	n, err = a.next(a.raise(p.c, p.over), b)
	return place{n, 0}, err
}

// within tells whether a thread of c is still in the loop of f.
func (c *config) within(f *frame) bool {
	for _, t := range c.threads {
		for at := t.top; at != nil; at = at.up {
			if at.node == f.node && at.up == f.up {
				return true
			}
		}
	}
	return false
}

// lower is c with its lone loop at the minimum.
func (a *source) lower(c *config) *config {
	if c.low == nil {
		c.low = a.raise(c, a.p.loops[^c.lone.node].min-c.lone.count)
	}
	return c.low
}

// raise is c with n more rounds of its lone loop.
func (a *source) raise(c *config, n int32) *config {
	if n == 0 {
		return c
	}
	k := c.lone.frameKey
	k.count += n
	to := a.frame(k, c.lone.depth)
	a.set.reset()
	a.set.found = append(a.set.found, c.threads...)
	for i, t := range a.set.found {
		if t.top == c.lone {
			a.set.found[i].top = to
		}
	}
	return a.intern()
}

// far is how many rounds of a loop no token reaches across: the longest have
// 128 bytes, and a round takes at least one.
const far = 128

// Canonical is a state with the mask of s: where a loop is more than far rounds
// away from its bounds the count doesn't matter.
func (a *source) Canonical(s uint32) uint32 {
	p := a.places[s]
	// over is 0 where the bound is near.
	c := p.c
	same := true
	a.set.reset()
	for _, t := range c.threads {
		f := a.canonicalFrame(t.top)
		same = same && f == t.top
		if t = (thread{t.node, f}); a.set.add(t) {
			a.set.found = append(a.set.found, t)
		}
	}
	if same {
		if p.over == 0 {
			return s
		}
		return a.state(place{c: c})
	}
	return a.state(place{c: a.intern()})
}

func (a *source) canonicalFrame(f *frame) *frame {
	if f == nil || f.canon != nil {
		if f != nil {
			f = f.canon
		}
		return f
	}
	k := f.frameKey
	k.up = a.canonicalFrame(f.up)
	if k.node < 0 {
		l := &a.p.loops[^k.node]
		switch {
		case l.min-k.count > far:
			k.count = 0
		case k.count >= l.min && l.max-k.count > far:
			k.count = l.min
		}
	}
	f.canon = f
	if k != f.frameKey {
		f.canon = a.frame(k, f.depth)
	}
	return f.canon
}

// Text finds a loop over characters in s that a slice of the vocabulary stands
// for.
func (a *source) Text(s uint32) (token.Text, bool) {
	c := a.places[s].c
	var loops []*loopSet
	var left [8]int // by loop: rounds that it may still take; far stands for more
	for _, t := range c.threads {
		i, ok := a.p.loopAt[t.node]
		if !ok {
			continue
		}
		l := &a.p.loops[i]
		if l.set.chars == nil {
			continue
		}
		k := slices.Index(loops, l.set)
		if k < 0 {
			if k = len(loops); k == len(left) {
				continue
			}
			loops = append(loops, l.set)
		}
		n := far
		if l.max >= 0 {
			n = int(min(far, l.max-t.top.count))
		}
		left[k] = max(left[k], n)
	}
	for k, set := range loops {
		if t, ok := a.text(c, set, left[k]); ok {
			return t, true
		}
	}
	return token.Text{}, false
}

// text is what c means to the loops over set.
func (a *source) text(c *config, set *loopSet, left int) (token.Text, bool) {
	out := token.Text{Chars: *set.chars, Max: left}
	if left == far {
		out.Max = -1
	}
	var ends byteSet
	members, others := 0, false
	var end []thread // what the loops' end leads to
	for _, t := range c.threads {
		i, in := a.p.loopAt[t.node]
		if !in || a.p.loops[i].set != set {
			continue
		}
		members++
		l := &a.p.loops[i]
		up := t.top
		if l.min > 0 || l.max >= 0 {
			out.Min = int(max(0, l.min-t.top.count))
			up = t.top.up
		}
		a.set.reset()
		if a.close(l.exit, up) != nil {
			return out, false
		}
		for _, x := range a.set.found {
			a.firstBytes(x.node, &ends)
		}
		end = append(end, a.set.found...)
	}
	for _, t := range c.threads {
		if i, in := a.p.loopAt[t.node]; in && a.p.loops[i].set == set {
			continue
		}
		a.firstBytes(t.node, &ends)
		others = others || out.Min > 0 || !slices.Contains(end, t)
	}
	out.Free = members == 1 && !others
	if set.anyEscape {
		// Whatever else is going on inside the string, each of its characters
		// is one of the set, and it ends with a quote.
		if left < far && others {
			return out, false
		}
		var quote byteSet
		quote.add('"', '"')
		out.Free = out.Free && ends == quote // or what precedes the quote matters
		ends = quote
	}
	if ends.meets(&set.first) {
		return out, false
	}
	out.Ends = ends.string()
	return out, true
}

func (a *source) firstBytes(n int32, to *byteSet) {
	switch n := &a.p.nodes[n]; n.op {
	case opByte:
		to.add(n.lo, n.hi)
	case opSet:
		for _, r := range a.p.ranges[n.a : n.a+n.b] {
			to.add(r.lo, r.hi)
		}
	}
}

// A byteSet has bit b%64 of word b/64 set for its bytes.
type byteSet [4]uint64

func (s *byteSet) add(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

func (s *byteSet) meets(o *byteSet) bool {
	return s[0]&o[0]|s[1]&o[1]|s[2]&o[2]|s[3]&o[3] != 0
}

func (s *byteSet) string() string {
	var out []byte
	for b := range 256 {
		if s[b>>6]>>(b&63)&1 == 1 {
			out = append(out, byte(b))
		}
	}
	return string(out)
}

// loopSet is the set of characters of a loop.
type loopSet struct {
	anyEscape bool
	chars     *token.Chars // the same; nil if it can't be said so, or few tokens are inside
	first     byteSet      // bytes that begin a character
}

func newLoopSet(s charSet, anyEscape bool) *loopSet {
	l := &loopSet{anyEscape: anyEscape}
	c := token.Chars{}
	plain := 0
	beyond := 0 // characters from U+0080 on
	for i := 0; i < len(s.raw); i += 2 {
		for r := s.raw[i]; r <= min(s.raw[i+1], 0x7F); r++ {
			c.ASCII[r>>6] |= 1 << (r & 63)
			l.first.add(byte(r), byte(r))
			plain++
		}
		if s.raw[i+1] > 0x7F {
			beyond += int(s.raw[i+1]-max(0x80, s.raw[i])) + 1
		}
	}
	const all = 0x110000 - 0x80 - 0x800 // without surrogates
	if c.Others = beyond == all; c.Others {
		l.first.add(0xC2, 0xF4)
	}
	for i, e := range `"\/bfnrt` {
		if strings.ContainsRune(s.escaped, e) {
			c.Escapes |= 1 << i
		}
	}
	if anyEscape {
		c.Escapes = token.EscapeShort | token.EscapeU
	}
	if c.Escapes != 0 {
		l.first.add('\\', '\\')
	}
	// A walk over few characters is quick: hexadecimal digits take 60 µs.
	if (beyond == 0 || c.Others) && (plain > 22 || c.Others) {
		l.chars = &c
	}
	return l
}

// key is equal for equal loops.
func (s *charSet) key(anyEscape bool) string {
	var b strings.Builder
	for _, r := range s.raw {
		b.WriteRune(r)
	}
	b.WriteByte(0)
	b.WriteString(s.escaped)
	if anyEscape {
		b.WriteByte(0)
	}
	return b.String()
}
