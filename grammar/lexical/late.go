package lexical

import "slices"

// A scan decides what no automaton made of a pattern does at a fair size, by
// keeping what it has to of the text. Two of its states are at rest.
type scan struct {
	start    string
	step     func(state string, r rune) string
	accept   func(state string) bool
	alphabet []rune // sorted; all others are alike. nil: no two are
}

const (
	hasFailed = ""  // and will
	hasPassed = "*" // and will
)

// A scanner interns the states of a scan. Those at rest are failed and passed.
type scanner struct {
	*scan
	states []string
	ids    map[string]int32
	bytes  int
}

const failed, passed, starting int32 = 0, 1, 2

func newScanner(s *scan) *scanner {
	return &scanner{scan: s, states: []string{hasFailed, hasPassed, s.start}, ids: map[string]int32{hasFailed: failed, hasPassed: passed, s.start: starting}}
}

// outside stands for all characters that are in no alphabet.
const outside rune = -1

func (s *scanner) step(state int32, r rune) int32 {
	if state <= passed {
		return state
	}
	to := s.scan.step(s.states[state], r)
	id, ok := s.ids[to]
	if !ok {
		id = int32(len(s.states))
		s.states = append(s.states, to)
		s.ids[to] = id
		s.bytes += 64 + len(to)
	}
	return id
}

func (s *scanner) accepts(state int32) bool {
	return state == passed || state > passed && s.scan.accept(s.states[state])
}

// tells is whether a character matters to a scanner by itself.
func (s *scanner) tells(state int32, r rune) bool {
	if state <= passed {
		return false
	}
	_, is := slices.BinarySearch(s.alphabet, r)
	return is || s.alphabet == nil
}

// regexScan keeps the text whole, since brackets nest.
func regexScan() *scan {
	return &scan{
		start: "/",
		step:  func(state string, r rune) string { return state + string(r) },
		accept: func(state string) bool {
			_, err := parsePattern(state[1:], true)
			return err == nil
		},
	}
}
