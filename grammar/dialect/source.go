package dialect

import "github.com/toolsidecar/sidecar/grammar/token"

// Source is the machine as a source of masks: what an engine that reads the text
// as its reader does may let through. Each call begins with nothing known.
func (m *Machine) Source() token.Source {
	return &source{w: m.walker(nil), sets: []*set{nil}, ids: map[*set]uint32{nil: 0}}
}

// Empty tells that the machine has no text.
func (m *Machine) Empty() bool { return m.walker(nil).at(m.Start) == nil }

// A source numbers the sets of a walker; 0 is the one from which nothing leads.
type source struct {
	w     *walker
	sets  []*set
	ids   map[*set]uint32
	steps int
}

func (s *source) id(of *set) uint32 {
	id, ok := s.ids[of]
	if !ok {
		id = uint32(len(s.sets))
		s.sets = append(s.sets, of)
		s.ids[of] = id
	}
	return id
}

func (s *source) Start() (uint32, error) { return s.id(s.w.at(s.w.m.Start)), nil }

func (s *source) Step(at uint32, b byte) (uint32, error) {
	s.steps++
	return s.id(s.w.step(s.sets[at], b)), nil
}

func (s *source) Accepting(at uint32) bool { return s.sets[at].ends }

func (s *source) Classes(at uint32) *[256]uint8 { return s.w.classOf(s.sets[at]) }

func (s *source) Text(uint32) (token.Text, bool) { return token.Text{}, false }

func (s *source) Canonical(at uint32) uint32 { return at }

// Cost counts 600 bytes for a set with its classes, and 1 µs for a step.
func (s *source) Cost() (bytes, work int) {
	return 600*len(s.sets) + 48*len(s.w.frames), 20 * s.steps
}
