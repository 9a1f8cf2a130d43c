package lexical

import "slices"

// found tells where a pattern, or a part of one, can match whatever came
// before.
type found uint8

const (
	unsure   found = iota // nowhere that is known
	atTheEnd              // where the text ends
	anywhere              // also where it goes on
)

// find tells it of a pattern by its form alone.
func find(n *node) found {
	switch n.op {
	case opEmpty:
		return anywhere
	case opSet:
		if len(n.set.minus(surrogates)) > 0 { // which no text has
			return anywhere
		}
	case opEnd:
		return atTheEnd
	case opAlt:
		best := unsure
		for _, s := range n.sub {
			best = max(best, find(s))
		}
		return best
	case opCat:
		for i, s := range n.sub {
			if f := find(s); f == unsure || f == atTheEnd && i < len(n.sub)-1 {
				return unsure
			} else if i == len(n.sub)-1 {
				return f
			}
		}
		return anywhere
	case opLoop:
		switch f := find(n.sub[0]); {
		case n.min == 0:
			return anywhere
		case n.min == 1 || f == anywhere:
			return f
		}
	}
	return unsure
}

// bounded tells whether each match of n begins with ^, or ends with $.
func bounded(n *node, by op) bool {
	switch n.op {
	case by:
		return true
	case opAlt:
		return !slices.ContainsFunc(n.sub, func(s *node) bool { return !bounded(s, by) })
	case opCat:
		if len(n.sub) > 0 && by == opStart {
			return bounded(n.sub[0], by)
		}
		return len(n.sub) > 0 && bounded(n.sub[len(n.sub)-1], by)
	}
	return false
}

// maxOpen bounds the predicates that Open leaves undecided: each doubles the
// outcomes.
const maxOpen = 3

// Open is outcomes of which one can come about in any number of ways, whatever
// was read: patterns that can match anywhere are still met, those of the whole
// text missed by a character that they don't have, names and lists left. None if
// that isn't known.
func (s *Strings) Open() []Outcome { return s.opens() }

func (s *Strings) findOpen() []Outcome {
	x := s.x
	if len(x.cuts) > 0 {
		return nil
	}
	met := make([]byte, (len(x.preds)+7)/8)
	var either, whole []int
	ends := 0
	for i, p := range x.preds {
		switch {
		case p.values != nil:
			continue
		case p.scan == nil && p.prog != nil && p.prog.whole:
			whole = append(whole, i)
			continue
		case p.scan != nil, p.prog != nil && p.prog.found == unsure:
			either = append(either, i)
			continue
		case p.prog != nil && p.prog.found == atTheEnd:
			ends++
		}
		met[i/8] |= 1 << (i % 8)
	}
	if !x.missed(whole) {
		either = append(either, whole...)
	}
	if len(either) > maxOpen || ends > 1 {
		return nil
	}
	var out []Outcome
	for set := range 1 << len(either) {
		v := slices.Clone(met)
		for k, i := range either {
			if set>>k&1 == 1 {
				v[i/8] |= 1 << (i % 8)
			}
		}
		out = append(out, Outcome{Vector(v), -1})
	}
	return out
}

// missed tells whether there is a character that no set of the patterns of
// these predicates has.
func (x *texts) missed(preds []int) bool {
	for k, part := range x.parts {
		if len(x.samples()[k]) > 0 && !slices.ContainsFunc(preds, func(i int) bool {
			class := int(part[x.runs[i]])
			return slices.ContainsFunc(x.runners[x.runs[i]].p.members, func(set []uint64) bool { return in(set, class) })
		}) {
			return true
		}
	}
	return false
}
