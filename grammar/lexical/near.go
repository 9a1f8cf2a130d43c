package lexical

import "slices"

// nearVisits bounds the texts that Near looks at: enough to reach the end of a
// date with its time.
const nearVisits = 512

// Near gives what the whole string may turn out to be, that with the fewest
// further characters first, until yield says stop by true, which it returns.
// It is a quick look before Reachable: it ends after a few hundred texts. An
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
	var last []int32
	for i, visits := 0, 0; ok && visits < nearVisits; i++ {
		var layer []int32
		if i < len(layers) {
			layer = slices.Clone(layers[i])
		}
		s.mu.Lock()
		for _, t := range last {
			next, fine := s.successors(t)
			layer = append(layer, next...)
			ok = ok && fine
		}
		slices.Sort(layer)
		layer = slices.Compact(layer)
		found := make([]Outcome, 0, len(layer))
		for _, t := range layer {
			if t >= 0 {
				found = append(found, s.x.outcome(t, min(count+i, s.last)))
			}
		}
		s.mu.Unlock()
		for _, o := range found {
			if yield(o) {
				return true
			}
		}
		if i >= len(layers) && count+i > s.last && slices.Equal(layer, last) {
			break
		}
		last = layer
		visits += 1 + len(layer)
	}
	return false
}
