package retrieval

import (
	"cmp"
	"math"
	"slices"
)

// With a graph, tools are scored one by one, when they are looked at. Which ones
// have to be is told by a bound: the postings of a query's terms are read, those
// first that can give much for their length, and what the others give at most is
// known. Long postings of common words are mostly left unread.

// termList is what one term of a query gives to tools.
type termList struct {
	post   []posting
	weight float32
	most   float32 // what it gives to any tool at most
}

// wordBound says what the words of a query, or of a clause, give to tools at most.
type wordBound struct {
	lists []termList // not read yet, the next one last
	rest  float32    // what they give together at most
	top   float32    // the greatest sum of what is read
}

const (
	// unreadShare stops the reading for a query: what is left unread gives a tool so
	// much at most, in units of Hit.Score. More of it and more tools have to be looked
	// at, less and longer postings are read.
	unreadShare = 0.03
	// unreadClause is the same for a clause, as a share of its best sum: there only
	// the best tool is looked for.
	unreadClause = 0.4
	// wordSlack covers the roundings of sums in different orders.
	wordSlack = 1 + 1e-5
)

// open takes the terms of a query or a clause.
func (b *wordBound) open(ix *Index, terms []queryTerm) {
	b.lists, b.rest, b.top = b.lists[:0], 0, 0
	for _, t := range terms {
		l := termList{ix.post[ix.start[t.term]:ix.start[t.term+1]], t.weight, float32(t.weight * ix.peak[t.term])}
		b.lists = append(b.lists, l)
		b.rest += l.most
	}
	slices.SortFunc(b.lists, func(x, y termList) int {
		return cmp.Compare(x.most*float32(len(y.post)), y.most*float32(len(x.post)))
	})
}

// next returns the list to read next, and false where all are read.
func (b *wordBound) next() (l termList, ok bool) {
	last := len(b.lists) - 1
	if last < 0 {
		return l, false
	}
	l, b.lists = b.lists[last], b.lists[:last]
	b.rest = 0
	for _, l := range b.lists {
		b.rest += l.most
	}
	return l, true
}

// sumOf is what terms give to a tool. s.slot must hold their places.
func (ix *Index) sumOf(s *scratch, tool int32, terms []queryTerm) float32 {
	ix.gainOf(s, tool)
	sum := float32(0)
	for i, t := range terms {
		sum += float32(t.weight * s.gain[i])
	}
	s.forget()
	return sum
}

// gainOf fills s.gain for the terms that s.slot has places of; forget empties it.
func (ix *Index) gainOf(s *scratch, tool int32) {
	long := ix.long(tool)
	for _, w := range ix.bags[tool].words {
		if at := s.slot[w.term]; at > 0 {
			s.gain[at-1] = ix.gain(w, long)
			s.gained = append(s.gained, at-1)
		}
	}
}

func (s *scratch) forget() {
	for _, at := range s.gained {
		s.gain[at] = 0
	}
	s.gained = s.gained[:0]
}

// boundWords fills s.upper and s.most from s.terms, of which s.slot has the
// places, and returns the best score, as accumulate does.
func (ix *Index) boundWords(s *scratch) (best float32) {
	s.room(len(s.terms))
	b := &s.bound
	b.open(ix, s.terms)
	ix.readLists(s, func() bool { return b.rest <= unreadShare*(b.top+ix.damp) && 2*b.rest <= b.top })
	for {
		best = 0
		for _, least := range [...]float32{b.top, 0} { // a look at the likeliest first spares most of the others
			for i, most := range s.most {
				if most < least || !((most+b.rest)*wordSlack > best) {
					continue
				}
				for tool := i * block; tool < min((i+1)*block, len(s.upper)); tool++ {
					if u := s.upper[tool]; u >= least && (u+b.rest)*wordSlack > best && s.allowed(int32(tool)) {
						best = max(best, ix.sumOf(s, int32(tool), s.terms))
					}
				}
			}
		}
		if len(b.lists) == 0 || best >= b.rest*wordSlack {
			return best
		}
		ix.readLists(s, func() bool { return false }) // few tools are allowed
	}
}

// readLists reads postings into s.upper until enough says so or all are read, and
// brings s.most up to date.
func (ix *Index) readLists(s *scratch, enough func() bool) {
	b := &s.bound
	some := false
	for !enough() {
		l, ok := b.next()
		if !ok {
			break
		}
		some = true
		for _, p := range l.post {
			sum := s.upper[p.tool] + float32(l.weight*p.impact)
			s.upper[p.tool] = sum
			if sum > b.top {
				b.top = sum
			}
		}
	}
	if !some {
		return
	}
	for i := range s.most {
		s.most[i] = greatest(s.upper[i*block : min((i+1)*block, len(s.upper))])
	}
}

// greatest is the greatest of numbers of which none is below 0, so that they compare
// as their bits do: which of them is greater is no branch then.
func greatest(list []float32) float32 {
	var a, b, c, d uint32
	for ; len(list) >= 4; list = list[4:] {
		a = max(a, math.Float32bits(list[0]))
		b = max(b, math.Float32bits(list[1]))
		c = max(c, math.Float32bits(list[2]))
		d = max(d, math.Float32bits(list[3]))
	}
	for _, x := range list {
		a = max(a, math.Float32bits(x))
	}
	return math.Float32frombits(max(a, b, c, d))
}

// boundClauses reads the clauses: what look needs of them, and what one of them
// gives to any tool at most.
func (ix *Index) boundClauses(s *scratch, q *Query) {
	for _, t := range s.terms {
		s.slot[t.term] = 0
	}
	s.wishes, s.wishTerms, s.extra = s.wishes[:0], s.wishTerms[:0], s.extra[:0]
	s.wishMost, s.wishScale = 0, 0
	if ix.cfg.Clause > 0 {
		limit := ix.cfg.QueryBytes
		for _, text := range q.Clauses {
			text, _ = clip(text, limit)
			limit -= len(text)
			s.parts = ix.readText(s, s.parts[:0], 0, 1, text)
			best := ix.bestOfClause(s, s.parts)
			scale := 1 / (best + ix.damp/2)
			for _, t := range s.parts {
				s.slot[t.term] = 0
				s.wishTerms = append(s.wishTerms, wishTerm{term: t.term, weight: t.weight})
			}
			s.wishes = append(s.wishes, wish{len(s.wishTerms), scale})
			s.wishMost = max(s.wishMost, float32(best*scale))
			s.wishScale = max(s.wishScale, scale)
		}
	}
	for i, t := range s.terms {
		s.slot[t.term] = int32(i) + 1
	}
	for i := range s.wishTerms {
		w := &s.wishTerms[i]
		at := s.slot[w.term] - 1
		if at < 0 { // clauses of a text that the query lacks
			at = int32(len(s.terms) + len(s.extra))
			s.extra = append(s.extra, w.term)
			s.slot[w.term] = at + 1
		}
		if int(at) >= len(s.terms) || s.terms[at].weight < w.weight {
			s.wishScale = float32(math.Inf(1))
		}
		w.at = at
	}
	s.room(len(s.terms) + len(s.extra))
}

// wish is one clause: its terms are those of s.wishTerms from the end of the wish
// before to its own.
type wish struct {
	end   int
	scale float32
}

type wishTerm struct {
	term   int32
	at     int32 // its place in s.gain
	weight float32
}

// bestOfClause returns the best score of any tool for the terms of one clause, of
// which s.slot has the places.
func (ix *Index) bestOfClause(s *scratch, terms []queryTerm) (best float32) {
	s.room(len(terms))
	b := &s.clauseBound
	b.open(ix, terms)
	s.hit = s.hit[:0]
	unread := float32(unreadClause)
	for {
		for b.rest > unread*b.top {
			l, ok := b.next()
			if !ok {
				break
			}
			for _, p := range l.post {
				if s.one[p.tool] == 0 {
					s.hit = append(s.hit, p.tool)
				}
				sum := s.one[p.tool] + float32(l.weight*p.impact)
				s.one[p.tool] = sum
				if sum > b.top {
					b.top = sum
				}
			}
		}
		best = 0
		for _, least := range [...]float32{b.top, 0} {
			for _, tool := range s.hit {
				if u := s.one[tool]; u >= least && (u+b.rest)*wordSlack > best && s.allowed(tool) {
					best = max(best, ix.sumOf(s, tool, terms))
				}
			}
		}
		if len(b.lists) == 0 || best >= b.rest*wordSlack {
			break
		}
		unread = 0 // few tools are allowed
	}
	for _, tool := range s.hit {
		s.one[tool] = 0
	}
	return best
}

// look fills the scores of a tool, which with a graph are not known before.
func (ix *Index) look(s *scratch, tool int32) {
	if !s.lazy || s.near[tool] != unknown {
		return
	}
	s.known = append(s.known, tool)
	s.near[tool] = ix.dense.near(tool, s.query)
	ix.gainOf(s, tool)
	sum := float32(0)
	for i, t := range s.terms {
		sum += float32(t.weight * s.gain[i])
	}
	s.score[tool] = sum
	most, from := float32(0), 0
	for _, w := range s.wishes {
		one := float32(0)
		for _, t := range s.wishTerms[from:w.end] {
			one += float32(t.weight * s.gain[t.at])
		}
		most = max(most, float32(one*w.scale))
		from = w.end
	}
	s.clause[tool] = most
	s.forget()
}

// forgetKnown makes the scores of all tools unknown again.
func (ix *Index) forgetKnown(s *scratch) {
	for _, tool := range s.known {
		s.near[tool], s.score[tool], s.clause[tool] = unknown, 0, 0
	}
	for _, term := range s.extra {
		s.slot[term] = 0
	}
	s.known, s.extra = s.known[:0], s.extra[:0]
	clear(s.upper)
	clear(s.cover)
}

// atMost is what a tool's value is at most if its words are given upper and it is
// no nearer than reach; its server and name style are not in it.
func (ix *Index) atMost(s *scratch, upper, cover, scale, reach float32) float32 {
	words := (upper + s.bound.rest) * wordSlack
	return words*scale + float32(ix.cfg.Dense)*max(reach, 0) + float32(ix.cfg.Cover)*cover*cover +
		float32(ix.cfg.Clause)*min(s.wishMost, words*s.wishScale) + graphSlack
}

// room makes s.gain hold n places.
func (s *scratch) room(n int) {
	if len(s.gain) < n {
		s.gain = make([]float32, 2*n)
	}
}

// fetchWords is [hnsw.Fetch] for the words of a tool.
func fetchWords(words []wordCount) (sum float32) {
	const line = 8
	for i := 0; i < len(words); i += line {
		sum += float32(words[i].term)
	}
	return sum
}
