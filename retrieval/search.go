package retrieval

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"
)

// Query is what to look for.
type Query struct {
	Parts  []Part
	Named  []string // tools asked for by exact name; they come first, in this order; unknown names and those after the 64th are ignored
	Called []string // tools called so far, the latest last; they steer the server prior
	// Explain asks for Hit.Why, at the price of allocations.
	Explain bool
}

// Part is one text of a query. A word's weight is the part's times the number
// of its occurrences there, at most Config.TermMost; parts add up. Parts of no
// weight, or less, are ignored.
type Part struct {
	Text   string
	Weight float64
}

// Text returns the query of one text.
func Text(s string) Query { return Query{Parts: []Part{{s, 1}}} }

// Hit is one tool found.
type Hit struct {
	Tool    int     // index in the catalog
	Score   float64 // Lexical relative to the query's best, plus the server prior; above 0 unless Named
	Lexical float64 // BM25F score of the words alone
	Named   bool    // spelled out in the text or asked for by name
	Why     []Reason
}

// Reason is one share of a hit's score.
type Reason struct {
	Kind  ReasonKind
	Term  string  // the word, or the name for ReasonNamed, or the server for ReasonServer
	Field Field   // for ReasonTerm
	Score float64 // in units of Hit.Score; 0 for ReasonNamed
}

// ReasonKind says what a reason is about.
type ReasonKind uint8

const (
	ReasonTerm   ReasonKind = iota // a word of the query in a field of the tool
	ReasonNamed                    // the tool was named
	ReasonServer                   // its server was called lately
	ReasonCalled                   // it was called before
)

// scratch is the state of one search.
type scratch struct {
	score  []float32 // tool -> lexical score; zero between searches
	slot   []int32   // term -> 1 + its place in terms; zero between searches
	terms  []queryTerm
	named  []int32
	prior  []float32 // server -> prior; the last is that of tools without one; zero between searches
	heap   []found
	called []int32 // tools called, ascending
}

type queryTerm struct {
	term   int32
	part   int32 // the part last counted
	count  int32 // occurrences counted in that part
	weight float32
}

type found struct {
	tool  int32
	score float32
}

// Search returns the k best tools: those named first, then by falling score,
// equal scores by name. Tools that share no word with the query are left out
// unless named, however much their server is in use: measured, that prior
// finds nothing without a word to go by.
func (ix *Index) Search(q Query, k int) []Hit { return ix.AppendSearch(nil, q, k) }

// AppendSearch is Search into a slice of the caller's. It allocates nothing
// when dst has room and q.Explain is false.
func (ix *Index) AppendSearch(dst []Hit, q Query, k int) []Hit {
	k = min(k, len(ix.tools))
	if k <= 0 {
		return dst
	}
	s := ix.scratch.Get().(*scratch)
	defer ix.scratch.Put(s)
	ix.read(s, &q)
	best := ix.accumulate(s)
	scale := float32(0)
	if best > 0 {
		scale = 1 / best
	}
	ix.setPrior(s, q.Called)

	from := len(dst)
	for _, tool := range s.named {
		if len(dst)-from == k {
			break
		}
		dst = append(dst, Hit{Tool: int(tool), Score: float64(ix.total(s, tool, scale)), Lexical: float64(s.score[tool]), Named: true})
	}
	room := k - (len(dst) - from)
	ix.top(s, room, scale)
	for _, f := range s.heap {
		dst = append(dst, Hit{Tool: int(f.tool), Score: float64(f.score), Lexical: float64(s.score[f.tool])})
	}
	if q.Explain {
		for i := from; i < len(dst); i++ {
			dst[i].Why = ix.explain(s, &dst[i], float64(scale), q.Called)
		}
	}

	clear(s.score)
	clear(s.prior)
	for _, t := range s.terms {
		s.slot[t.term] = 0
	}
	return dst
}

// clip returns what of a text is read within limit bytes: all of it, or a head
// and a tail cut between characters.
func clip(text string, limit int) (head, tail string) {
	if len(text) <= limit {
		return text, ""
	}
	h, t := limit/2, len(text)-(limit-limit/2)
	for h > 0 && !utf8.RuneStart(text[h]) {
		h--
	}
	for t < len(text) && !utf8.RuneStart(text[t]) {
		t++
	}
	return text[:h], text[t:]
}

// read fills s.terms and s.named from the query.
func (ix *Index) read(s *scratch, q *Query) {
	s.terms, s.named = s.terms[:0], s.named[:0]
	for _, name := range q.Named {
		if tool, ok := ix.byName[name]; ok {
			s.named = appendNew(s.named, tool)
		}
	}
	limit := ix.cfg.QueryBytes
	for i, p := range q.Parts {
		if !(p.Weight > 0) || limit <= 0 {
			continue
		}
		weight := float32(min(p.Weight, 1e6))
		head, tail := clip(p.Text, limit)
		limit -= len(head) + len(tail)
		ix.readText(s, int32(i), weight, head)
		ix.readText(s, int32(i), weight, tail)
	}
}

func (ix *Index) readText(s *scratch, part int32, weight float32, text string) {
	if text == "" {
		return
	}
	s.named = ix.mentioned(s.named, text)
	w := words{text: text}
	for word := w.next(); word != nil; word = w.next() {
		id, ok := ix.terms[string(word)]
		if !ok {
			continue
		}
		at := s.slot[id] - 1
		if at < 0 {
			at = int32(len(s.terms))
			s.slot[id] = at + 1
			s.terms = append(s.terms, queryTerm{term: id, part: part})
		}
		t := &s.terms[at]
		if t.part != part {
			t.part, t.count = part, 0
		}
		if int(t.count) < ix.cfg.TermMost {
			t.count++
			t.weight += weight
		}
	}
}

// accumulate fills s.score and returns the best. The conversions of products
// keep compilers from fusing multiply and add, so that every machine rounds
// alike.
func (ix *Index) accumulate(s *scratch) (best float32) {
	for _, t := range s.terms {
		for _, p := range ix.post[ix.start[t.term]:ix.start[t.term+1]] {
			s.score[p.tool] += float32(t.weight * p.impact)
		}
	}
	for _, v := range s.score {
		best = max(best, v)
	}
	return best
}

// setPrior gives the servers of the latest calls their prior.
func (ix *Index) setPrior(s *scratch, called []string) {
	weight := float32(ix.cfg.Server)
	for i := len(called) - 1; i >= 0 && weight > 1e-3; i-- {
		tool, ok := ix.byName[called[i]]
		if !ok {
			continue
		}
		if srv := ix.server[tool]; srv >= 0 && s.prior[srv] == 0 {
			s.prior[srv] = weight
			weight /= 2
		}
	}
	s.called = s.called[:0]
	if ix.cfg.Called > 0 {
		for _, name := range called {
			if tool, ok := ix.byName[name]; ok {
				s.called = append(s.called, tool)
			}
		}
		slices.Sort(s.called)
		s.called = slices.Compact(s.called)
	}
}

func (ix *Index) priorOf(s *scratch, tool int32) float32 {
	if srv := ix.server[tool]; srv >= 0 {
		return s.prior[srv]
	}
	return 0
}

func (ix *Index) total(s *scratch, tool int32, scale float32) float32 {
	if s.score[tool] == 0 {
		return 0
	}
	v := float32(s.score[tool]*scale) + ix.priorOf(s, tool)
	if _, called := slices.BinarySearch(s.called, tool); called {
		v -= float32(ix.cfg.Called)
	}
	return v
}

// before is the order of hits.
func (ix *Index) before(a, b found) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return ix.rank[a.tool] < ix.rank[b.tool]
}

// top fills s.heap with the best `room` tools that are not named, in order.
// While it looks, s.heap is a heap with the worst of them on top.
func (ix *Index) top(s *scratch, room int, scale float32) {
	h := s.heap[:0]
	defer func() { s.heap = h }()
	if room <= 0 {
		return
	}
	next := 0 // in s.called
	for i, lexical := range s.score {
		tool := int32(i)
		if lexical == 0 {
			continue
		}
		v := float32(lexical * scale)
		if srv := ix.server[i]; srv >= 0 {
			v += s.prior[srv]
		}
		for next < len(s.called) && s.called[next] < tool {
			next++
		}
		if next < len(s.called) && s.called[next] == tool {
			v -= float32(ix.cfg.Called)
		}
		if !(v > 0) {
			continue
		}
		f := found{tool, v}
		if len(h) == room && !ix.before(f, h[0]) {
			continue
		}
		if slices.Contains(s.named, tool) {
			continue
		}
		if len(h) < room {
			h = append(h, f)
			for c := len(h) - 1; c > 0; {
				p := (c - 1) / 2
				if !ix.before(h[p], h[c]) {
					break
				}
				h[p], h[c] = h[c], h[p]
				c = p
			}
			continue
		}
		h[0] = f
		for p := 0; ; {
			c := 2*p + 1
			if c >= len(h) {
				break
			}
			if c+1 < len(h) && ix.before(h[c], h[c+1]) {
				c++
			}
			if !ix.before(h[p], h[c]) {
				break
			}
			h[p], h[c] = h[c], h[p]
			p = c
		}
	}
	slices.SortFunc(h, func(a, b found) int {
		if c := cmp.Compare(b.score, a.score); c != 0 {
			return c
		}
		return cmp.Compare(ix.rank[a.tool], ix.rank[b.tool])
	})
}

// explain splits a hit's score into its reasons, the greatest first. A word's
// score is shared among the fields by their weighted occurrences.
func (ix *Index) explain(s *scratch, h *Hit, scale float64, called []string) []Reason {
	tool := int32(h.Tool)
	var why []Reason
	if h.Named {
		why = append(why, Reason{Kind: ReasonNamed, Term: ix.tools[tool].Name, Score: 0})
	}
	if v := ix.priorOf(s, tool); v > 0 && h.Lexical > 0 {
		why = append(why, Reason{Kind: ReasonServer, Term: ix.tools[tool].Origin(), Score: float64(v)})
	}
	if _, was := slices.BinarySearch(s.called, tool); was && h.Lexical > 0 {
		why = append(why, Reason{Kind: ReasonCalled, Term: ix.tools[tool].Name, Score: -ix.cfg.Called})
	}
	fixed := len(why)
	for _, t := range s.terms {
		list := ix.post[ix.start[t.term]:ix.start[t.term+1]]
		at, ok := slices.BinarySearchFunc(list, tool, func(p posting, tool int32) int { return cmp.Compare(p.tool, tool) })
		if !ok {
			continue
		}
		gain := float64(t.weight) * float64(list[at].impact) * scale
		freq := ix.freq[int(ix.start[t.term])+at]
		var count lengths
		for f, n := range freq {
			count[f] = uint64(n)
		}
		whole := ix.cfg.weigh(count)
		for f, n := range count {
			if n == 0 || whole == 0 {
				continue
			}
			var one lengths
			one[f] = n
			why = append(why, Reason{ReasonTerm, ix.term[t.term], Field(f), gain * ix.cfg.weigh(one) / whole})
		}
	}
	slices.SortStableFunc(why[fixed:], func(a, b Reason) int { return cmp.Compare(math.Abs(b.Score), math.Abs(a.Score)) })
	return why
}
