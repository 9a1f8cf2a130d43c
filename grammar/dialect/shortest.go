package dialect

import "sync"

// Shortest ends are found without a search: of each node it is known how many
// bytes it takes at least to the end of its rule, or of a round of the loop
// that it is in, and what stands around a thread is in its frames.

// endings are the shortest ways on from the nodes of a machine.
type endings struct {
	once   sync.Once
	bytes  []int64 // to the end; never where there is none
	choice []int32 // of Fork and Read: which way
}

// never is more bytes than any way has that is told: longer ones are cut off.
const never = int64(1) << 40

// maxExample bounds a text that is written out, in bytes.
const maxExample = 1 << 20

// ends looks at all nodes once for a machine.
func (m *Machine) ends() *endings {
	e := m.endings
	e.once.Do(func() {
		e.bytes, e.choice = make([]int64, len(m.Nodes)), make([]int32, len(m.Nodes))
		for i := range e.bytes {
			e.bytes[i] = never
		}
		// A way is taken only if it is shorter than the one before, so that ways
		// never lead in circles.
		for changed := true; changed; {
			changed = false
			for i := range m.Nodes {
				if n, way := e.from(m, &m.Nodes[i]); n < e.bytes[i] {
					e.bytes[i], e.choice[i], changed = n, way, true
				}
			}
		}
	})
	return e
}

func (e *endings) from(m *Machine, n *Node) (bytes int64, way int32) {
	bytes = never
	switch n.Op {
	case Read:
		for i, r := range n.Ranges {
			if b := 1 + e.bytes[r.To]; b < bytes {
				bytes, way = b, int32(i)
			}
		}
	case Fork:
		for i, to := range n.To {
			if e.bytes[to] < bytes {
				bytes, way = e.bytes[to], int32(i)
			}
		}
	case Tick:
		bytes = e.bytes[n.To[0]]
	case Call:
		bytes = e.bytes[n.Arg] + e.bytes[n.To[0]]
	case Enter:
		l := &m.Loops[n.Arg]
		if len(n.To) > 0 { // up to the end of a round
			bytes = e.bytes[n.To[0]] + e.bytes[l.Exit]
		} else {
			bytes = e.rounds(l, l.Min) + e.bytes[l.Exit]
		}
	default: // the end of a rule or of a round
		bytes = 0
	}
	return min(bytes, never), way
}

// rounds is what n rounds of a loop take.
func (e *endings) rounds(l *Loop, n int32) int64 {
	switch body := e.bytes[l.Body]; {
	case n <= 0:
		return 0
	case body >= never/int64(n):
		return never
	default:
		return body * int64(n)
	}
}

// left is how many rounds must follow the one that a frame is in.
func (l *Loop) left(f *frame) int32 {
	if l.Chars {
		return l.Min - f.count
	}
	return l.Min - f.count - 1
}

// shortest is a shortest text from a set to the end; false if there is none, or
// none that can be written out.
func (m *Machine) shortest(at *set) (string, bool) {
	if at == nil {
		return "", false
	}
	e := m.ends()
	best, least := thread{}, never
	for _, t := range at.threads {
		n := e.bytes[t.node]
		for f := t.top; f != nil && n < never; f = f.up {
			if f.node >= 0 {
				n += e.bytes[f.node]
			} else {
				l := &m.Loops[^f.node]
				n += e.rounds(l, l.left(f)) + e.bytes[l.Exit]
			}
		}
		if n < least {
			best, least = t, n
		}
	}
	if least > maxExample {
		return "", false
	}
	out := e.spell(m, nil, best.node)
	for f := best.top; f != nil; f = f.up {
		if f.node >= 0 {
			out = e.spell(m, out, f.node)
			continue
		}
		l := &m.Loops[^f.node]
		for range l.left(f) {
			out = e.spell(m, out, l.Body)
		}
		out = e.spell(m, out, l.Exit)
	}
	return string(out), true
}

// word is a shortest text of the rule at an entry.
func (m *Machine) word(entry int32) (string, bool) {
	e := m.ends()
	if e.bytes[entry] > maxExample {
		return "", false
	}
	return string(e.spell(m, nil, entry)), true
}

// spell appends the shortest text from a node to the end of its rule or round.
func (e *endings) spell(m *Machine, out []byte, at int32) []byte {
	for {
		n := &m.Nodes[at]
		switch n.Op {
		case Read:
			b, to := e.read(n, at)
			out, at = append(out, b), to
		case Fork:
			at = e.fork(m, n, at)
		case Tick:
			at = n.To[0]
		case Call:
			out, at = e.spell(m, out, n.Arg), n.To[0]
		case Enter:
			l := &m.Loops[n.Arg]
			if len(n.To) > 0 {
				out = e.spell(m, out, n.To[0])
			} else {
				for range l.Min {
					out = e.spell(m, out, l.Body)
				}
			}
			at = l.Exit
		default:
			return out
		}
	}
}

// liked are bytes that a reader likes to see.
const liked = "a0 "

// read is the next byte of a shortest way, and where it leads.
func (e *endings) read(n *Node, at int32) (byte, int32) {
	for _, b := range []byte(liked) {
		for _, r := range n.Ranges {
			if r.Lo <= b && b <= r.Hi && 1+e.bytes[r.To] == e.bytes[at] {
				return b, r.To
			}
		}
	}
	r := n.Ranges[e.choice[at]]
	return r.Lo, r.To
}

// fork is where a shortest way leads on, to a byte that is liked if it can.
func (e *endings) fork(m *Machine, n *Node, at int32) int32 {
	for _, b := range []byte(liked) {
		for _, to := range n.To {
			if r := &m.Nodes[to]; r.Op == Read && e.bytes[to] == e.bytes[at] {
				if got, _ := e.read(r, to); got == b {
					return to
				}
			}
		}
	}
	return n.To[e.choice[at]]
}
