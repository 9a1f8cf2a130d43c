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
	// Clauses are the wishes of the last message where it has several; [Text] and
	// [Index.Segment] cut them.
	Clauses []string
	// Embed gives the vectors of Parts and Clauses in the index's space; nil means
	// the space's own function. See [Space.Embed].
	Embed func(text string) []float32
	// Allow says which tools there are for this query; nil means all. Others are
	// neither found nor compared with. It must be safe for concurrent use.
	Allow func(tool int) bool
	// Memory, where it is not nil, knows what was called for queries like this one.
	Memory Memory
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
func Text(s string) Query { return Query{Parts: []Part{{s, 1}}, Clauses: clauses(s)} }

// Hit is one tool found.
type Hit struct {
	Tool    int     // index in the catalog
	Score   float64 // the sum of its reasons; never above that of the hit before, named ones apart
	Lexical float64 // BM25F score of the words alone
	Near    float64 // cosine of the query's vector and the tool's; 0 without a space
	Fit     float64 // what of Score the query's text gives: neither calls nor other hits nor the memory
	Memory  float64 // what of Score Query.Memory gives or takes
	Named   bool    // spelled out in the text or asked for by name
	Called  bool    // called before, for which Config.Called was taken
	Why     []Reason
}

// Reason is one share of a hit's score.
type Reason struct {
	Kind  ReasonKind
	Term  string  // the word, for a stem with a hyphen behind it; or the name, server or tool that the reason is about
	Field Field   // for ReasonTerm
	Score float64 // in units of Hit.Score; 0 for ReasonNamed
}

// ReasonKind says what a reason is about.
type ReasonKind uint8

const (
	ReasonTerm    ReasonKind = iota // a word of the query, or its stem, in a field of the tool
	ReasonNamed                     // the tool was named
	ReasonServer                    // its server was called lately
	ReasonCalled                    // it was called before
	ReasonMeaning                   // its vector is near the query's
	ReasonCover                     // the query spells its name
	ReasonClause                    // it fits one clause by its words
	ReasonGist                      // it fits one clause by its vector
	ReasonStyle                     // its name is written like that of the tool last called
	ReasonChain                     // the parameters of the best tool speak of it
	ReasonApart                     // a better tool is found by the same words
	ReasonAlike                     // it was called for queries like this one
	ReasonAfter                     // it was called behind the tool called last
	ReasonDoubt                     // what the memory takes from all the tools that it knows
)

var reasonNames = [...]string{"word", "named in the query", "server in use", "called before", "meaning", "name spelled out",
	"fits a clause", "meaning of a clause", "name written alike", "feeds the best tool", "same words as a better tool", "called for queries like this", "called after", "weighed by what is remembered"}

func (k ReasonKind) String() string { return reasonNames[k] }

const (
	// candidates and fewCandidates, of manyTools and more, are how many tools the last
	// steps look at: those that need a vector a clause, and the second look at what a
	// better tool was found by.
	candidates, fewCandidates = 64, 32
	manyTools                 = 10_000
	// apartFirst and apartAmong bound the choice of tools found by different words:
	// the first so many places, filled from the best so many.
	apartFirst = 12
	apartAmong = 32
	// apartTerms is how many terms of a query are compared then.
	apartTerms = 128
	// apartClauses is how many clauses a message has at least where tools should
	// differ. A message of one wish is best answered with the likely tools, however
	// alike.
	apartClauses = 3
)

// scratch is the state of one search. Slices over tools and terms hold zeros
// between searches.
type scratch struct {
	score     []float32 // tool -> lexical score
	most      []float32 // block of tools -> the best of their scores
	cover     []float32 // tool -> share of its name that is spelled
	mostCover []float32 // block of tools -> the greatest of these
	clause    []float32 // tool -> how well it fits its best clause by words, 0 to 1
	near      []float32 // tool -> cosine; meaningful with a space only, and may be unknown with a graph
	known     []int32   // with a graph, the tools whose cosine is known
	one       []float32 // tool -> lexical score for one clause
	hit       []int32   // tools with a score in one
	slot      []int32   // term -> 1 + its place in terms
	terms     []queryTerm
	parts     []queryTerm // terms of one clause
	named     []int32
	prior     []float32 // server -> prior
	style     [styles]float32
	heap      []found
	spoken    []bool  // term -> the tool that chains start from speaks of it
	called    []int32 // tools called, ascending

	dense   bool      // the query has a vector
	touch   float32   // sum of numbers that were fetched ahead
	query   []float32 // rounded vector of the query
	clauses []float32 // the same of its clauses, one after another
	allow   func(tool int) bool
	proof   []float32 // candidate × term: what a term gives a candidate
	chained int32     // the tool that chains start from
	last    string    // the tool that the memory was asked about

	// With a graph and a query that has a vector, tools are scored as they are
	// looked at, see bound.go; score, clause and near of others are not known.
	lazy        bool
	nearest     chan neighbours
	upper       []float32 // tool -> what the postings read so far give it
	bound       wordBound // of the query
	clauseBound wordBound // of one clause
	gain        []float32 // place of a term -> what it gives the tool at hand; zeros between tools
	gained      []int32   // places of gain that are not zero
	wishes      []wish
	wishTerms   []wishTerm
	extra       []int32 // terms of clauses that terms lacks
	wishMost    float32 // what a clause gives at most, 0 to 1
	wishScale   float32 // and at most per score; infinite where clauses are of another text than the query
}

func newScratch(ix *Index) *scratch {
	n := len(ix.tools)
	s := &scratch{
		score: make([]float32, n), cover: make([]float32, n), clause: make([]float32, n), one: make([]float32, n),
		most: make([]float32, (n+block-1)/block), mostCover: make([]float32, (n+block-1)/block),
		slot: make([]int32, len(ix.term)), spoken: make([]bool, len(ix.term)), prior: make([]float32, len(ix.servers)),
	}
	if ix.dense != nil {
		s.near = make([]float32, n)
		s.query = make([]float32, ix.dense.space.Dim)
		if ix.graph != nil {
			for i := range s.near {
				s.near[i] = unknown
			}
			s.upper = make([]float32, n)
			s.nearest = make(chan neighbours, 1)
		}
	}
	return s
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
	gist  float32 // shares of score
	chain float32
	apart float32 // taken from score

	memory recalled
}

// Search returns the k best tools: those named first, then by falling score,
// equal scores by name. Tools that share no word with the query and are not near
// it in meaning (Config.Near) are left out unless named, however much their
// server is in use. The first k of a longer search are the same.
func (ix *Index) Search(q Query, k int) []Hit { return ix.AppendSearch(nil, q, k) }

// AppendSearch is Search into a slice of the caller's. Without a space it
// allocates nothing when dst has room and q.Explain is false.
func (ix *Index) AppendSearch(dst []Hit, q Query, k int) []Hit {
	k = min(k, len(ix.tools))
	if k <= 0 {
		return dst
	}
	s := ix.scratch.Get().(*scratch) // not put back after a panic: it is in no order then
	s.allow = q.Allow
	ix.read(s, &q)
	ix.embedQuery(s, &q)
	ix.setPrior(s, q.Called)
	s.lazy = ix.graph != nil && s.dense
	best := float32(0)
	if s.lazy {
		go ix.nearest(s, s.wanted())
		best = ix.boundWords(s)
	} else {
		best = ix.accumulate(s)
	}
	scale := float32(0)
	if best > 0 {
		scale = 1 / (best + ix.damp)
	}
	ix.coverage(s)
	if s.lazy {
		ix.boundClauses(s, &q)
	} else {
		ix.fitClauses(s, &q)
	}

	ix.top(s, max(k, ix.candidates()), scale)
	ix.lookAgain(s, scale)
	if len(q.Clauses) >= apartClauses {
		ix.setApart(s, scale)
	}
	if q.Memory != nil {
		ix.remember(s, &q, scale)
	}

	from := len(dst)
	for _, tool := range s.named {
		if len(dst)-from == k {
			break
		}
		dst = append(dst, ix.hit(s, found{tool: tool, score: ix.value(s, tool, scale)}, true))
	}
	for _, f := range s.heap[:min(len(s.heap), k-(len(dst)-from))] {
		dst = append(dst, ix.hit(s, f, false))
		if q.Explain {
			dst[len(dst)-1].Why = ix.explain(s, f, scale)
		}
	}
	if q.Explain {
		for i := from; i < len(dst) && dst[i].Named; i++ {
			why := ix.explain(s, found{tool: int32(dst[i].Tool)}, scale)
			dst[i].Why = append([]Reason{{Kind: ReasonNamed, Term: ix.tools[dst[i].Tool].Name}}, why...)
		}
	}

	if s.lazy {
		ix.forgetKnown(s)
	} else {
		clear(s.score)
		clear(s.cover)
		clear(s.clause)
	}
	s.allow = nil
	clear(s.mostCover)
	clear(s.prior)
	clear(s.style[:])
	for _, t := range s.terms {
		s.slot[t.term] = 0
	}
	ix.scratch.Put(s)
	return dst
}

func (ix *Index) hit(s *scratch, f found, named bool) Hit {
	ix.look(s, f.tool)
	h := Hit{Tool: int(f.tool), Score: float64(f.score), Lexical: float64(s.score[f.tool]), Named: named, Memory: float64(f.memory.sum())}
	fit := f.score - ix.priorOf(s, f.tool) - f.chain + f.apart - f.memory.sum()
	if _, h.Called = slices.BinarySearch(s.called, f.tool); h.Called {
		fit += float32(ix.cfg.Called)
	}
	h.Fit = float64(fit)
	h.Near = float64(ix.near(s, f.tool))
	return h
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
	defer func() {
		s.named = slices.DeleteFunc(s.named, func(tool int32) bool { return !s.allowed(tool) })
	}()
	limit := ix.cfg.QueryBytes
	for i, p := range q.Parts {
		if !(p.Weight > 0) || limit <= 0 {
			continue
		}
		weight := float32(min(p.Weight, 1e6))
		head, tail := clip(p.Text, limit)
		limit -= len(head) + len(tail)
		for _, text := range [...]string{head, tail} {
			s.named = ix.mentioned(s.named, text)
			s.terms = ix.readText(s, s.terms, int32(i), weight, text)
		}
	}
}

// readText adds the terms of a text: its words and their stems.
func (ix *Index) readText(s *scratch, terms []queryTerm, part int32, weight float32, text string) []queryTerm {
	add := func(id int32) {
		if ix.start[id] == ix.start[id+1] { // of tools that are gone
			return
		}
		at := s.slot[id] - 1
		if at < 0 {
			at = int32(len(terms))
			s.slot[id] = at + 1
			terms = append(terms, queryTerm{term: id, part: part})
		}
		t := &terms[at]
		if t.part != part {
			t.part, t.count = part, 0
		}
		if int(t.count) < ix.cfg.TermMost {
			t.count++
			t.weight += weight
		}
	}
	w := words{text: text}
	for word := w.next(); word != nil; word = w.next() {
		if filler(word) {
			continue
		}
		if id, ok := ix.terms[string(word)]; ok {
			add(id)
		}
		if id, ok := ix.terms[string(w.stem(word))]; ok {
			add(id)
		}
	}
	return terms
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
	for b := range s.most {
		part := s.score[b*block : min((b+1)*block, len(s.score))]
		most := float32(0)
		for _, x := range part {
			most = max(most, x)
		}
		s.most[b] = most
		if most <= best {
			continue
		}
		for i, x := range part {
			if x > best && s.allowed(int32(b*block+i)) {
				best = x
			}
		}
	}
	return best
}

// block is how many tools s.most tells the best score of: a look at a catalog
// passes over those that have none, or too low a one.
const block = 64

// coverage fills s.cover. A word of an older message covers by its weight.
func (ix *Index) coverage(s *scratch) {
	if ix.cfg.Cover == 0 {
		return
	}
	for _, t := range s.terms {
		weight := min(t.weight, 1)
		for _, p := range ix.names.post[ix.names.start[t.term]:ix.names.start[t.term+1]] {
			cover := s.cover[p.tool] + float32(weight*p.share)
			s.cover[p.tool] = cover
			if b := p.tool / block; cover > s.mostCover[b] {
				s.mostCover[b] = cover
			}
		}
	}
}

// fitClauses fills s.clause.
func (ix *Index) fitClauses(s *scratch, q *Query) {
	if ix.cfg.Clause == 0 {
		return
	}
	for _, t := range s.terms {
		s.slot[t.term] = 0
	}
	limit := ix.cfg.QueryBytes
	for _, text := range q.Clauses {
		text, _ = clip(text, limit)
		limit -= len(text)
		s.parts = ix.readText(s, s.parts[:0], 0, 1, text)
		s.hit = s.hit[:0]
		best := float32(0)
		for _, t := range s.parts {
			s.slot[t.term] = 0
			for _, p := range ix.post[ix.start[t.term]:ix.start[t.term+1]] {
				if s.one[p.tool] == 0 {
					s.hit = append(s.hit, p.tool)
				}
				s.one[p.tool] += float32(t.weight * p.impact)
			}
		}
		for _, tool := range s.hit {
			if s.one[tool] > best && s.allowed(tool) {
				best = s.one[tool]
			}
		}
		scale := 1 / (best + ix.damp/2)
		for _, tool := range s.hit {
			s.clause[tool] = max(s.clause[tool], float32(s.one[tool]*scale))
			s.one[tool] = 0
		}
	}
}

// allowed says whether a tool may be found.
func (s *scratch) allowed(tool int32) bool { return s.allow == nil || s.allow(int(tool)) }

// embedQuery fills s.near, without a graph, and the vectors of clauses, and says
// in s.dense whether there is a vector to go by.
func (ix *Index) embedQuery(s *scratch, q *Query) {
	d := ix.dense
	s.clauses = s.clauses[:0]
	s.dense = false
	if d == nil {
		return
	}
	embed := q.Embed
	if embed == nil {
		embed = d.space.Embed
	}
	if s.dense = d.vector(s.query, pieces(q.Parts, ix.cfg.QueryBytes), embed); !s.dense {
		return
	}
	if ix.graph == nil {
		for i := range d.rows {
			s.near[i] = d.near(int32(i), s.query)
		}
	}
	if ix.cfg.Gist == 0 {
		return
	}
	dim := d.space.Dim
	for _, text := range q.Clauses {
		n := len(s.clauses)
		s.clauses = slices.Grow(s.clauses, dim)[:n+dim]
		if !d.vector(s.clauses[n:], pieces([]Part{{text, 1}}, ix.cfg.QueryBytes), embed) {
			s.clauses = s.clauses[:n]
		}
	}
}

// unknown stands for a cosine that nobody asked for yet.
const unknown = 2

// near is the cosine of a tool with the query, 0 where there is none.
func (ix *Index) near(s *scratch, tool int32) float32 {
	if !s.dense {
		return 0
	}
	ix.look(s, tool)
	return s.near[tool]
}

// setPrior gives the servers of the latest calls their prior.
func (ix *Index) setPrior(s *scratch, called []string) {
	weight := float32(ix.cfg.Server)
	latest := true
	for i := len(called) - 1; i >= 0 && weight > 1e-3; i-- {
		tool, ok := ix.byName[called[i]]
		if !ok {
			continue
		}
		srv := ix.server[tool]
		if srv >= 0 && s.prior[srv] == 0 {
			s.prior[srv] = weight
			weight /= 2
		}
		if srv < 0 && latest {
			s.style[ix.style[tool]] = float32(ix.cfg.Style)
		}
		latest = false
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

// priorOf is what a tool gets for its server, or for its style if it has none.
func (ix *Index) priorOf(s *scratch, tool int32) float32 {
	if srv := ix.server[tool]; srv >= 0 {
		return s.prior[srv]
	}
	return s.style[ix.style[tool]]
}

// value is the score of a tool before the second look.
func (ix *Index) value(s *scratch, tool int32, scale float32) float32 {
	near := ix.near(s, tool)
	v := float32(s.score[tool] * scale)
	v += float32(float32(ix.cfg.Dense) * max(near, 0)) // a word in common stands whatever the vectors say
	v += float32(float32(ix.cfg.Cover) * float32(s.cover[tool]*s.cover[tool]))
	v += float32(float32(ix.cfg.Clause) * s.clause[tool])
	v += ix.priorOf(s, tool)
	if _, called := slices.BinarySearch(s.called, tool); called {
		v -= float32(ix.cfg.Called)
	}
	return v
}

// related says whether anything but its server speaks for a tool.
func (ix *Index) related(s *scratch, tool int32) bool {
	near := ix.near(s, tool) // makes the score known, too
	return s.score[tool] > 0 || s.dense && near >= float32(ix.cfg.Near)
}

// order puts the better hit first; equal scores go by name.
func (ix *Index) order(a, b found) int {
	if c := cmp.Compare(b.score, a.score); c != 0 {
		return c
	}
	return cmp.Compare(ix.rank[a.tool], ix.rank[b.tool])
}

// top fills s.heap with the best `room` tools that are not named, in order.
func (ix *Index) top(s *scratch, room int, scale float32) {
	s.heap = s.heap[:0]
	if ix.graph != nil && s.dense {
		ix.topByGraph(s, room, scale)
	} else {
		for i := range ix.tools {
			ix.consider(s, int32(i), room, scale)
		}
	}
	slices.SortFunc(s.heap, ix.order)
}

// consider puts a tool into s.heap if it is among the best `room` so far. The
// worst of them is on top.
func (ix *Index) consider(s *scratch, tool int32, room int, scale float32) {
	if !ix.related(s, tool) || !s.allowed(tool) {
		return
	}
	f := found{tool: tool, score: ix.value(s, tool, scale)}
	if !(f.score > 0) {
		return
	}
	h := s.heap
	if len(h) == room && ix.order(f, h[0]) > 0 || slices.Contains(s.named, tool) {
		return
	}
	if len(h) < room {
		h = append(h, f)
		for c := len(h) - 1; c > 0; {
			p := (c - 1) / 2
			if ix.order(h[p], h[c]) > 0 {
				break
			}
			h[p], h[c] = h[c], h[p]
			c = p
		}
		s.heap = h
		return
	}
	h[0] = f
	for p := 0; ; {
		c := 2*p + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && ix.order(h[c], h[c+1]) < 0 {
			c++
		}
		if ix.order(h[p], h[c]) > 0 {
			break
		}
		h[p], h[c] = h[c], h[p]
		p = c
	}
}

func (ix *Index) candidates() int {
	if len(ix.tools) < manyTools {
		return candidates
	}
	return fewCandidates
}

// lookAgain adds to the best candidates what is too dear to compute for all: how
// near their clauses are, and which tools the best of them depends on.
func (ix *Index) lookAgain(s *scratch, scale float32) {
	h, candidates := s.heap, ix.candidates()
	least := float32(math.Inf(1))
	for i := range h[:min(len(h), candidates)] {
		ix.addGist(s, &h[i])
		least = min(least, h[i].score)
	}
	for i := candidates; i < len(h); i++ {
		h[i].lower(least)
	}
	slices.SortFunc(h, ix.order)
	s.chained = -1
	if len(h) == 0 || ix.cfg.Chain == 0 {
		return
	}
	s.chained = h[0].tool
	ix.eachFeeder(s, s.chained, func(tool int32, share float32) {
		if _, called := slices.BinarySearch(s.called, tool); called || slices.Contains(s.named, tool) || !s.allowed(tool) {
			return
		}
		at := slices.IndexFunc(h, func(f found) bool { return f.tool == tool })
		missing := at < 0
		if missing {
			at = len(h)
			h = append(h, found{})
		}
		if missing || at >= candidates { // not looked at again yet
			h[at] = found{tool: tool, score: ix.value(s, tool, scale)}
			ix.addGist(s, &h[at])
		}
		h[at].chain = float32(float32(ix.cfg.Chain) * share)
		h[at].score += h[at].chain
	})
	s.heap = slices.DeleteFunc(h, func(f found) bool { return !(f.score > 0) })
	slices.SortFunc(s.heap, ix.order)
}

// lower brings a score down to most.
func (f *found) lower(most float32) {
	if f.score > most {
		f.apart += f.score - most
		f.score = most
	}
}

func (ix *Index) addGist(s *scratch, f *found) {
	if len(s.clauses) == 0 {
		return
	}
	best := float32(0)
	for c := range slices.Chunk(s.clauses, ix.dense.space.Dim) {
		best = max(best, ix.dense.near(f.tool, c))
	}
	f.gist = float32(float32(ix.cfg.Gist) * best)
	f.score += f.gist
}

// setApart orders the first places anew so that a message of several wishes gets
// a tool for each: one after another, a candidate loses in proportion to how
// much the words that found it found a better one.
func (ix *Index) setApart(s *scratch, scale float32) {
	h := s.heap[:min(len(s.heap), apartAmong)]
	terms := s.terms[:min(len(s.terms), apartTerms)]
	if ix.cfg.Apart == 0 || len(h) < 3 || len(terms) == 0 {
		return
	}
	n := len(terms)
	s.proof = slices.Grow(s.proof[:0], len(h)*n)[:len(h)*n]
	for i := range h {
		row := s.proof[i*n:][:n]
		square := float32(0)
		for j, t := range terms {
			row[j] = float32(t.weight * ix.impact(t.term, h[i].tool))
			square += float32(row[j] * row[j])
		}
		if square > 0 {
			by := float32(1 / math.Sqrt(float64(square)))
			for j := range row {
				row[j] *= by
			}
		}
	}
	for place := 0; place < min(apartFirst, len(h)-1); place++ {
		// h[place] is chosen; what it was found by counts less from here on.
		last := s.proof[place*n:][:n]
		best := place + 1
		for i := place + 1; i < len(h); i++ {
			alike := float32(0)
			for j, v := range s.proof[i*n:][:n] {
				alike += float32(v * last[j])
			}
			if loss := float32(float32(ix.cfg.Apart) * alike); loss > h[i].apart {
				h[i].score -= loss - h[i].apart
				h[i].apart = loss
			}
			if ix.order(h[i], h[best]) < 0 {
				best = i
			}
		}
		if best != place+1 {
			h[place+1], h[best] = h[best], h[place+1]
			a, b := s.proof[(place+1)*n:][:n], s.proof[best*n:][:n]
			for j := range a {
				a[j], b[j] = b[j], a[j]
			}
		}
	}
	rest := s.heap[min(len(s.heap), apartFirst+1):]
	slices.SortFunc(rest, ix.order)
	for i := 1; i < len(s.heap); i++ { // those not compared may score above the ones that were
		s.heap[i].lower(s.heap[i-1].score)
	}
}

// impact is what one occurrence of a term in the query adds to a tool's score.
func (ix *Index) impact(term, tool int32) float32 {
	if w := ix.find(term, tool); w != nil {
		return ix.gain(*w, ix.long(tool))
	}
	return 0
}

// explain splits a hit's score into its reasons: what it owes the conversation,
// then the rest, the greatest first. A word's score is shared among the fields by
// their weighted occurrences.
func (ix *Index) explain(s *scratch, f found, scale float32) []Reason {
	tool := f.tool
	var why []Reason
	add := func(kind ReasonKind, term string, score float32) {
		if score != 0 {
			why = append(why, Reason{Kind: kind, Term: term, Score: float64(score)})
		}
	}
	kind, term := ReasonServer, ix.tools[tool].Origin()
	if ix.server[tool] < 0 {
		kind, term = ReasonStyle, ix.tools[tool].Name
	}
	add(kind, term, ix.priorOf(s, tool))
	if _, was := slices.BinarySearch(s.called, tool); was {
		add(ReasonCalled, ix.tools[tool].Name, -float32(ix.cfg.Called))
	}
	fixed := len(why)
	add(ReasonMeaning, "", float32(ix.cfg.Dense)*max(ix.near(s, tool), 0))
	add(ReasonCover, "", float32(ix.cfg.Cover)*s.cover[tool]*s.cover[tool])
	add(ReasonClause, "", float32(ix.cfg.Clause)*s.clause[tool])
	add(ReasonGist, "", f.gist)
	if f.chain != 0 {
		add(ReasonChain, ix.tools[s.chained].Name, f.chain)
	}
	add(ReasonApart, "", -f.apart)
	add(ReasonAlike, "", f.memory.alike)
	if f.memory.after != 0 {
		add(ReasonAfter, s.last, f.memory.after)
	}
	add(ReasonDoubt, "", f.memory.doubt)
	for _, t := range s.terms {
		w := ix.find(t.term, tool)
		if w == nil {
			continue
		}
		gain := float64(t.weight) * float64(ix.gain(*w, ix.long(tool))) * float64(scale)
		count := w.counts()
		whole := ix.cfg.weigh(count)
		for f, n := range count {
			if n == 0 || whole == 0 {
				continue
			}
			var one lengths
			one[f] = n
			why = append(why, Reason{ReasonTerm, ix.spelling(t.term), Field(f), gain * ix.cfg.weigh(one) / whole})
		}
	}
	slices.SortStableFunc(why[fixed:], func(a, b Reason) int { return cmp.Compare(math.Abs(b.Score), math.Abs(a.Score)) })
	return why
}

// spelling is a term for people.
func (ix *Index) spelling(term int32) string {
	if s := ix.term[term]; s[0] == stemMark {
		return s[1:] + "-"
	}
	return ix.term[term]
}
