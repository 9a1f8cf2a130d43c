package lexical

// A Run is characters that may come one after the other, in any order: which
// ones makes no difference to the state, or none that is known before the end.
type Run struct {
	Alike  bool      // none to the state
	ASCII  [2]uint64 // bit c%64 of word c/64: character c, which needs no escape
	Others bool      // all characters from U+0080 on; else none
}

// One is a character of the run.
func (r *Run) One() byte {
	for c := byte(' '); c < 0x7F; c++ {
		if r.ASCII[c>>6]>>(c&63)&1 == 1 {
			return c
		}
	}
	return 0
}

// minRun is how many characters below U+0080 a run has. What takes fewer is
// soon told of each.
const minRun = 20

// run is that of a text; nil: not known.
type run struct {
	Run
	ok bool
}

// Run tells whether q stands within a run: from q on, far characters of it lead
// on alike, or until no character of it makes a difference any more.
func (s *Strings) Run(q State, far int) (r Run, ok bool) {
	if q <= Lost {
		return r, false
	}
	b, _ := s.split(q)
	if b.mode != plain {
		return r, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.x.all[b.text]
	if t.run == nil {
		t.run = s.x.findRun(t, far)
		s.x.bytes += 32
	}
	return t.run.Run, t.run.ok
}

func (x *texts) findRun(t *text, far int) *run {
	r := &run{}
	if t.keeps && len(x.preds) == 1 && len(x.words) == 0 {
		if p := x.preds[0]; p.prog == nil && p.min == 0 && p.max < 0 && p.scan.run != nil {
			r.Run, r.ok = p.scan.run(x.scans[0].states[t.scans[0]])
		}
	}
	if !t.rests || t.lo < t.hi {
		return r
	}
	// Most of the characters lead to one text, but for those that change nothing
	// any more.
	size := map[int32]int{}
	best := int32(-1)
	var to [0x80]int32
	for c := rune(' '); c < 0x7F; c++ {
		if to[c] = x.stepClass(t.id, x.classOf(c)); c == '"' || c == '\\' || to[c] < 0 || x.spent(x.all[to[c]]) {
			continue
		}
		if size[to[c]]++; best < 0 || size[to[c]] > size[best] {
			best = to[c]
		}
	}
	if best < 0 || size[best] < minRun {
		return r
	}
	in := make([]bool, len(x.parts))
	for c := rune(' '); c < 0x7F; c++ {
		if to[c] == best && c != '"' && c != '\\' {
			in[x.classOf(c)] = true
			r.ASCII[c>>6] |= 1 << (c & 63)
		}
	}
	for at, n := best, 0; n < far; n++ {
		next := int32(-1)
		for class, is := range in {
			if !is {
				continue
			}
			k := x.stepClass(at, int32(class))
			if k < 0 || next >= 0 && k != next {
				return &run{}
			}
			next = k
		}
		if next == at {
			break
		}
		at = next
	}
	r.ok, r.Alike, r.Others = true, true, true
	for class, sample := range x.samples() {
		if r.Others = in[class] || !other(sample, charset{0x80, 0x10FFFF}, nil); !r.Others {
			break
		}
	}
	return r
}
