package token

import (
	"math/bits"
	"slices"
)

// chars is what the characters mean to a state: bytes below 0x80, and, if that
// was asked, those of more bytes in UTF-8.
type chars struct {
	ascii  [2]uint64 // those that lead on
	to     []branch  // where to, without repetition
	asked  bool
	others bool     // all beyond lead on, but for except
	except string   // those that lead nowhere, in the order of their codes
	beyond []*state // where the others lead, without repetition
}

// A branch is where some characters lead.
type branch struct {
	ascii [2]uint64
	to    *state
}

// charsOf finds out what the characters mean to s, the first time; those beyond
// ASCII if asked for.
func (w *walker) charsOf(s *state, r *row, others bool) (*chars, error) {
	c := r.chars.Load()
	switch {
	case c == nil:
		var err error
		if c, err = w.asciiOf(s, r); err != nil {
			return nil, err
		}
	case c.asked || !others:
		return c, nil
	default:
		c = &chars{ascii: c.ascii, to: c.to}
	}
	if others {
		c.asked = true
		w.parts = 0
		var none []rune
		ok, err := w.beyond(s, r, c, &none)
		if err != nil {
			return nil, err
		}
		if c.others = ok; ok {
			slices.Sort(none)
			c.except = string(none)
		} else {
			c.beyond = nil
		}
	}
	r.chars.Store(c)
	w.t.hold(160 + 24*len(c.to) + len(c.except) + 8*len(c.beyond))
	return c, nil
}

func (w *walker) asciiOf(s *state, r *row) (*chars, error) {
	c := &chars{}
	var of [256]int // by class: 1 + its place in c.to
	for b := range 0x80 {
		k := r.class[b]
		if k == 0 {
			continue
		}
		if of[k] == 0 {
			n, err := w.next(s, byte(b))
			if err != nil {
				return nil, err
			}
			at := slices.IndexFunc(c.to, func(o branch) bool { return o.to == n })
			if at < 0 {
				at = len(c.to)
				c.to = append(c.to, branch{to: n})
			}
			of[k] = at + 1
		}
		c.to[of[k]-1].ascii[b>>6] |= 1 << (b & 63)
	}
	c.to = slices.DeleteFunc(c.to, func(o branch) bool { return o.to == dead })
	for _, o := range c.to {
		c.ascii[0] |= o.ascii[0]
		c.ascii[1] |= o.ascii[1]
	}
	return c, nil
}

// beyond finds out where the characters from U+0080 on lead, and which lead
// nowhere; false if these are many, or hard to find out.
func (w *walker) beyond(s *state, r *row, c *chars, none *[]rune) (bool, error) {
	for _, first := range [...]struct {
		lo, hi, mask, second, last byte
		more                       int
	}{
		{0xC2, 0xDF, 0x1F, 0x80, 0xBF, 1}, {0xE0, 0xE0, 0x0F, 0xA0, 0xBF, 2}, {0xE1, 0xEC, 0x0F, 0x80, 0xBF, 2}, {0xED, 0xED, 0x0F, 0x80, 0x9F, 2},
		{0xEE, 0xEF, 0x0F, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x07, 0x90, 0xBF, 3}, {0xF1, 0xF3, 0x07, 0x80, 0xBF, 3}, {0xF4, 0xF4, 0x07, 0x80, 0x8F, 3},
	} {
		for b := first.lo; b <= first.hi; {
			end, known := run(r, b, first.hi), len(*none)
			n, err := w.next(s, b)
			if n == dead || err != nil {
				return false, err
			}
			for ; b <= end; b++ {
				if ok, err := w.behindLead(n, rune(b&first.mask), first.second, first.last, first.more, c, none); !ok || err != nil {
					return false, err
				}
				if len(*none) == known { // and so for all of them
					b = end
				}
			}
		}
	}
	return true, nil
}

// run is the last byte up to hi that all bytes from b on share their class with.
func run(r *row, b, hi byte) byte {
	end := b
	for end < hi && r.class[end+1] == r.class[b] {
		end++
	}
	return end
}

// behindLead is beyond for characters of which the bytes so far spell code and
// have led to s; more bytes follow, the first of which is between lo and hi.
func (w *walker) behindLead(s *state, code rune, lo, hi byte, more int, c *chars, none *[]rune) (bool, error) {
	if w.parts++; w.parts > maxParts {
		return false, nil
	}
	r := w.t.rowOf(s)
	for b, k := range r.class {
		if k != 0 && (b < int(lo) || b > int(hi)) {
			return false, nil
		}
	}
	for b := lo; b <= hi; {
		end, known := run(r, b, hi), len(*none)
		n, err := w.next(s, b)
		if err != nil {
			return false, err
		}
		for ; b <= end; b++ {
			now := code<<6 | rune(b&0x3F)
			switch {
			case n == dead && (more > 1 || len(*none) == maxExcept):
				return false, nil
			case n == dead:
				*none = append(*none, now)
				continue
			case more > 1:
				if ok, err := w.behindLead(n, now, 0x80, 0xBF, more-1, c, none); !ok || err != nil {
					return false, err
				}
			case !slices.Contains(c.beyond, n):
				if len(c.beyond) == maxBranches {
					return false, nil
				}
				c.beyond = append(c.beyond, n)
			}
			if len(*none) == known {
				b = end
			}
		}
	}
	return true, nil
}

// A region of texts is what can follow s whatever characters of a set come:
// each leads to where any other of them may come next, up to a number, as in a
// pattern that is looked for anywhere, or in a name of bounded length. Unlike
// in a loop it matters which they are once something else comes.
func (w *walker) region(s *state, r *row) (Text, bool, error) {
	text := Text{}
	if bits.OnesCount64(r.live[0]&printable)+bits.OnesCount64(r.live[1]) < minLoop {
		return text, false, nil
	}
	w.asked = 0
	c, err := w.charsOf(s, r, r.live[3] != 0)
	if err != nil {
		return text, false, err
	}
	set := Chars{ASCII: c.ascii, Others: c.others, Except: c.except}
	set.ASCII[0] &^= 1 << '"' // which ends strings
	set.ASCII[1] &^= 1 << ('\\' - 64)
	for range maxNarrowed {
		if set.plain() < minLoop {
			return text, false, nil
		}
		most, narrower, live, ok, err := w.reach(s, set)
		if err != nil {
			return text, false, err
		}
		if !ok {
			set = narrower
			continue
		}
		text.Chars, text.Max = set, most
		text.Ends = set.ends(live)
		return text, most != 0 && w.v.leavers(w.v.slice(set), text.Ends) <= maxLeavers, nil
	}
	return text, false, nil
}

const (
	maxNarrowed = 6    // times that a region is tried with fewer characters
	maxBranches = 16   // states that the characters of one lead to; of more, no two may ever meet
	maxReach    = 512  // states that are looked at for a region
	maxAsked    = 1024 // steps that are taken for the first time, 1 ms and more; another mask may go on there
	maxParts    = 256  // beginnings of characters that are looked at in a state
)

// plain is how many characters below U+0080 are in the set.
func (c *Chars) plain() int { return bits.OnesCount64(c.ASCII[0]) + bits.OnesCount64(c.ASCII[1]) }

// ends is the bytes among live that may stand behind a run of the set.
func (s *Chars) ends(live byteSet) string {
	var leads byteSet
	for _, x := range s.Except {
		leads.add(string(x)[0])
	}
	var out []byte
	for i, live := range live {
		for ; live != 0; live &= live - 1 {
			b := byte(i*64 + bits.TrailingZeros64(live))
			if !s.Has(b) && (b < 0x80 || !s.Others || leads[b>>6]>>(b&63)&1 == 1) {
				out = append(out, b)
			}
		}
	}
	return string(out)
}

// reach is how many characters of a set can follow s, whichever they are: at
// most far, then -1. If that isn't the same for all of them it gives a narrower
// set of which it may be. live is what else may follow on the way.
func (w *walker) reach(s *state, set Chars) (most int, narrower Chars, live byteSet, ok bool, err error) {
	met := map[*state]struct{}{s: {}}
	layer, looked := []*state{s}, 0
	for n := range far {
		var next []*state
		fresh := false
		add := func(to *state) {
			if !slices.Contains(next, to) {
				next = append(next, to)
				if _, ok := met[to]; !ok {
					met[to] = struct{}{}
					fresh = true
				}
			}
		}
		narrower = set
		none := true // all of the layer take no character of the set
		for _, at := range layer {
			if looked++; looked > maxReach || w.asked > maxAsked {
				return 0, Chars{}, live, false, nil
			}
			r := w.t.rowOf(at)
			for i := range live {
				live[i] |= r.live[i]
			}
			c, err := w.charsOf(at, r, set.Others)
			if err != nil || len(c.to) > maxBranches {
				return 0, Chars{}, live, false, err
			}
			for _, o := range c.to {
				if o.ascii[0]&set.ASCII[0]|o.ascii[1]&set.ASCII[1] != 0 {
					none = false
					add(o.to)
				}
			}
			if set.Others {
				none = none && r.live[3] == 0 // bytes from C0 on
				for _, to := range c.beyond {
					add(to)
				}
			}
			narrower.narrow(c)
		}
		switch {
		case narrower == set && !fresh: // it goes on like this
			return -1, set, live, true, nil
		case narrower == set:
			layer = next
		case none:
			return n, set, live, true, nil
		default:
			return 0, narrower, live, false, nil
		}
	}
	return -1, set, live, true, nil
}

// narrow leaves in the set what leads on by c.
func (s *Chars) narrow(c *chars) {
	s.ASCII[0] &= c.ascii[0]
	s.ASCII[1] &= c.ascii[1]
	if !s.Others || !c.others {
		s.Others, s.Except = false, ""
		return
	}
	if c.except == "" || c.except == s.Except {
		return
	}
	all := append([]rune(s.Except), []rune(c.except)...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > maxExcept {
		s.Others, s.Except = false, ""
		return
	}
	s.Except = string(all)
}
