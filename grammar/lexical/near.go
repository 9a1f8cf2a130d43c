package lexical

import "slices"

// nearVisits bounds the texts that Near looks at, breadth first and then depth
// first: enough for the end of a date with its time.
const (
	nearVisits = 64
	deepVisits = 1024
)

// Near gives what the whole string may turn out to be, by looking at a few
// hundred texts before it, until yield says stop by true, which it returns. It
// is quicker than Reachable where the first that comes is good enough. An
// outcome may come more than once.
func (s *Strings) Near(q State, yield func(Outcome) bool) bool {
	if q <= Lost {
		return false
	}
	if s.Closed(q) {
		return yield(s.outcome(q))
	}
	s.mu.Lock()
	b, count := s.split(q)
	layers, ok := s.enter(b.form)
	s.mu.Unlock()
	var found []Outcome
	give := func() bool {
		for _, o := range found {
			if yield(o) {
				return true
			}
		}
		found = found[:0]
		return false
	}
	take := func(t int32, after int) {
		if t >= 0 {
			found = append(found, s.x.outcome(t, min(count+after, s.last)))
		}
	}
	var last []int32
	at := 0
	for visits := 0; ok && visits < nearVisits; at++ {
		var layer []int32
		if at < len(layers) {
			layer = slices.Clone(layers[at])
		}
		s.mu.Lock()
		for _, t := range last {
			next, fine := s.successors(t)
			layer = append(layer, next...)
			ok = ok && fine
		}
		slices.Sort(layer)
		layer = slices.Compact(layer)
		for _, t := range layer {
			take(t, at)
		}
		s.mu.Unlock()
		if give() {
			return true
		}
		if at >= len(layers) && count+at > s.last && slices.Equal(layer, last) {
			return false
		}
		last = layer
		visits += 1 + len(layer)
	}
	type deep struct {
		text  int32
		after int
	}
	var stack []deep
	seen := map[int32]bool{}
	for _, t := range last {
		stack = append(stack, deep{t, at - 1})
		seen[t] = true
	}
	for visits := 0; ok && len(stack) > 0 && visits < deepVisits; {
		s.mu.Lock()
		for range 32 {
			if len(stack) == 0 || !ok {
				break
			}
			d := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			var next []int32
			if next, ok = s.successors(d.text); !ok {
				break
			}
			for _, t := range next {
				if visits++; t >= 0 && !seen[t] {
					seen[t] = true
					take(t, d.after+1)
					stack = append(stack, deep{t, d.after + 1})
				}
			}
		}
		s.mu.Unlock()
		if give() {
			return true
		}
	}
	return false
}
