package dialect

import "slices"

// A Judge decides byte by byte which texts are right; state 0 is where no text
// is any more.
type Judge interface {
	Start() uint32
	Step(state uint32, b byte) (uint32, error)
	Accepting(state uint32) bool
}

// Inside is whether every text of a machine is right.
type Inside struct {
	// Proved: all states were looked at, and every text is right.
	Proved bool
	// Bounded is how many bytes of every text were looked at otherwise; 0 if
	// Wrong is set.
	Bounded int
	Wrong   *string // a shortest text that isn't right; nil if none was found
	Err     error   // of the judge, if it ended the walk
	States  int     // pairs that were looked at
}

// Inside walks m beside a judge, breadth first, and looks at no more than
// budget pairs of states. A machine whose rules hold themselves has states
// without end, so that nothing is proved of it.
func (m *Machine) Inside(j Judge, budget int) Inside {
	type pairOf struct {
		at    *set
		state uint32
	}
	type place struct {
		pairOf
		from, len int
		b         byte
	}
	w := m.walker(nil)
	var out Inside
	first := w.at(m.Start)
	if first == nil {
		out.Proved = true
		return out
	}
	places := []place{{pairOf{first, j.Start()}, -1, 0, 0}}
	seen := map[pairOf]bool{places[0].pairOf: true}
	wrong := func(i int, last ...byte) {
		var back []byte
		for ; places[i].from >= 0; i = places[i].from {
			back = append(back, places[i].b)
		}
		slices.Reverse(back)
		text := string(append(back, last...))
		out.Wrong = &text
	}
	for i := 0; i < len(places); i++ {
		p := places[i]
		out.States = i
		if i >= budget || w.over {
			out.Bounded = max(p.len-1, 1)
			return out
		}
		if p.at.ends && !j.Accepting(p.state) {
			wrong(i)
			return out
		}
		class := w.classOf(p.at)
		met := map[[2]uint32]bool{}
		for b := range 256 {
			if class[b] == 0 {
				continue
			}
			var state uint32
			if p.state != 0 {
				var err error
				if state, err = j.Step(p.state, byte(b)); err != nil {
					out.Err, out.Bounded = err, max(p.len, 1)
					return out
				}
			}
			if key := [2]uint32{uint32(class[b]), state}; met[key] {
				continue
			} else {
				met[key] = true
			}
			next := w.step(p.at, byte(b))
			if state == 0 {
				// Nothing right comes of it, while m can end.
				if end, ok := m.shortest(next); ok {
					wrong(i, append([]byte{byte(b)}, end...)...)
					return out
				}
			}
			if to := (pairOf{next, state}); !seen[to] {
				seen[to] = true
				places = append(places, place{to, i, p.len + 1, byte(b)})
			}
		}
	}
	out.Proved = true
	return out
}
