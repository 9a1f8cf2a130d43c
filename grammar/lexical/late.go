package lexical

import "slices"

// A scan decides what no automaton made of a pattern does at a fair size, by
// keeping what it has to of the text. Two of its states are at rest.
type scan struct {
	start  string
	step   func(state string, r rune) string
	accept func(state string) bool
	told   func(state string) told        // nil: no two characters are alike
	run    func(state string) (Run, bool) // characters of which none ends all hope, where all are told apart; nil: none
}

// Told is which characters a state tells from all others.
type told struct {
	all   bool   // from one another too
	runes []rune // sorted
}

const (
	hasFailed = ""  // and will
	hasPassed = "*" // and will
)

// A scanner interns the states of a scan. Those at rest are failed and passed.
type scanner struct {
	*scan
	states []string
	told   []told // by state
	ids    map[string]int32
	bytes  int
}

const failed, passed, starting int32 = 0, 1, 2

func newScanner(s *scan) *scanner {
	x := &scanner{scan: s, ids: map[string]int32{}}
	for _, state := range []string{hasFailed, hasPassed, s.start} {
		x.id(state)
	}
	return x
}

func (s *scanner) id(state string) int32 {
	id, ok := s.ids[state]
	if !ok {
		id = int32(len(s.states))
		what := told{all: id > passed && s.scan.told == nil}
		if id > passed && s.scan.told != nil {
			what = s.scan.told(state)
		}
		s.states, s.told = append(s.states, state), append(s.told, what)
		s.ids[state] = id
		s.bytes += 96 + len(state)
	}
	return id
}

// outside stands for all characters that a state doesn't tell from others.
const outside rune = -1

func (s *scanner) step(state int32, r rune) int32 {
	if state <= passed {
		return state
	}
	return s.id(s.scan.step(s.states[state], r))
}

func (s *scanner) accepts(state int32) bool {
	return state == passed || state > passed && s.scan.accept(s.states[state])
}

// tells is whether some character of lo to hi matters to a scanner by itself.
func (s *scanner) tells(state int32, lo, hi rune) bool {
	w := &s.told[state]
	k, _ := slices.BinarySearch(w.runes, lo)
	return w.all || k < len(w.runes) && w.runes[k] <= hi
}
