package lexical

// A scan decides what no automaton of a sane size does, by keeping what it has
// to of the text: "" is a text that has failed, and stays so.
type scan struct {
	start  string
	step   func(state string, r rune) string
	accept func(state string) bool
}

// A scanner interns the states of a scan.
type scanner struct {
	*scan
	states []string
	ids    map[string]int32
	bytes  int
}

// failed is the state of a scanner in which nothing is kept any more.
const failed int32 = 0

func newScanner(s *scan) *scanner {
	return &scanner{scan: s, states: []string{"", s.start}, ids: map[string]int32{"": failed, s.start: 1}}
}

func (s *scanner) step(state int32, r rune) int32 {
	if state == failed {
		return failed
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
	return state != failed && s.scan.accept(s.states[state])
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
