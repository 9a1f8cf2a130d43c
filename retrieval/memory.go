package retrieval

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// A Memory knows which tools earlier queries led to; retrieval/usage has one. It
// must be safe for concurrent use.
type Memory interface {
	// Recall says what was called for queries like t.
	Recall(t *Trace) Recollection
}

// Recollection is what a memory says to one query, in units of Hit.Score.
type Recollection struct {
	// Tools are all that the memory knows, each once, those that nothing speaks for
	// too. Names that the catalog lacks are ignored.
	Tools []Recalled
	// Doubt divides the scores of the tools that the memory knows by 1 + Doubt, and
	// leaves the others as they are: where like queries are remembered, a known tool
	// needs more than its words, while one that was never called is not pushed aside.
	Doubt float64
}

// Recalled is what a memory says for one tool.
type Recalled struct {
	Tool  string
	Alike float64 // it was called for queries like this one
	After float64 // it was called behind the tool that was called last
}

// Trace is what a query is recognised by when it comes again in other words.
type Trace struct {
	Words  []Word // of the catalog, stems left out, the weightiest 64; by spelling
	Vector []int8 // its direction; nil without a space, or where the text has no vector
	Space  string // name of Vector's space
	Last   string // the tool called last; "" for none
}

// Word is one word of a trace. The squares of all their weights add up to 1.
type Word struct {
	Text   string
	Weight float32 // occurrences times inverse document frequency, to scale
}

// traceWords bounds a trace: its weightiest words say what a query is about.
const traceWords = 64

// Trace returns what q is recognised by.
func (ix *Index) Trace(q Query) Trace {
	s := ix.scratch.Get().(*scratch)
	defer ix.scratch.Put(s)
	ix.read(s, &q)
	for _, t := range s.terms {
		s.slot[t.term] = 0
	}
	ix.embedQuery(s, &q)
	return ix.trace(s, &q)
}

// trace is that of a query which has been read and embedded.
func (ix *Index) trace(s *scratch, q *Query) Trace {
	var t Trace
	for _, x := range s.terms {
		if text := ix.term[x.term]; text[0] != stemMark {
			t.Words = append(t.Words, Word{text, float32(float64(x.weight) * ix.idf[x.term])})
		}
	}
	slices.SortFunc(t.Words, func(a, b Word) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Text, b.Text))
	})
	t.Words = t.Words[:min(len(t.Words), traceWords)]
	square := 0.0
	for _, w := range t.Words {
		square += float64(w.Weight) * float64(w.Weight)
	}
	for i := range t.Words {
		t.Words[i].Weight = float32(float64(t.Words[i].Weight) / math.Sqrt(square))
	}
	slices.SortFunc(t.Words, func(a, b Word) int { return strings.Compare(a.Text, b.Text) })
	if s.dense {
		t.Space = ix.dense.space.Name
		t.Vector = direction(s.query)
	}
	for _, name := range slices.Backward(q.Called) {
		if _, ok := ix.byName[name]; ok {
			t.Last = name
			break
		}
	}
	return t
}

// direction is a vector in whole numbers, the greatest of them 127.
func direction(v []float32) []int8 {
	most := float32(0)
	for _, x := range v {
		most = max(most, float32(math.Abs(float64(x))))
	}
	out := make([]int8, len(v))
	for i, x := range v {
		out[i] = int8(math.Round(float64(x) / float64(most) * 127))
	}
	return out
}

// recalled is what a memory gave a hit; its parts are shares of the score.
type recalled struct{ alike, after, doubt float32 }

func (r recalled) sum() float32 { return r.alike + r.after + r.doubt }

// remember lets a memory speak: for the best candidates and for whatever it
// recalls, which may share no word with the query.
func (ix *Index) remember(s *scratch, q *Query, scale float32) {
	t := ix.trace(s, q)
	told := q.Memory.Recall(&t)
	if len(told.Tools) == 0 {
		return
	}
	s.last = t.Last
	h, candidates := s.heap, ix.candidates()
	place := make(map[int32]int, len(h))
	for i, f := range h {
		place[f.tool] = i
	}
	looked := make([]bool, len(h), len(h)+len(told.Tools))
	for i := range looked[:min(len(h), candidates)] {
		looked[i] = true
	}
	for _, r := range told.Tools {
		tool, ok := ix.byName[r.Tool]
		if !ok || slices.Contains(s.named, tool) || !s.allowed(tool) {
			continue
		}
		speaks := r.Alike+r.After > 0
		at, found := place[tool]
		switch {
		case !found && !speaks, found && at >= candidates && !speaks:
			continue
		case !found:
			at = len(h)
			h = append(h, ix.weigh(s, tool, scale))
			looked = append(looked, true)
		case !looked[at]:
			h[at], looked[at] = ix.weigh(s, tool, scale), true
		}
		f := &h[at]
		f.memory.alike, f.memory.after = float32(r.Alike), float32(r.After)
		whole := f.score + f.memory.alike + f.memory.after
		f.memory.doubt = float32(float64(whole)/(1+told.Doubt)) - whole
		f.score = whole + f.memory.doubt
	}
	least := float32(math.Inf(1))
	for i := range h {
		if looked[i] {
			least = min(least, h[i].score)
		}
	}
	for i := range h {
		if !looked[i] {
			h[i].lower(least)
		}
	}
	s.heap = slices.DeleteFunc(h, func(f found) bool { return !(f.score > 0) })
	slices.SortFunc(s.heap, ix.order)
}

// weigh is a tool as the look at the best candidates leaves it.
func (ix *Index) weigh(s *scratch, tool int32, scale float32) found {
	f := found{tool: tool, score: ix.value(s, tool, scale)}
	ix.addGist(s, &f)
	return f
}
