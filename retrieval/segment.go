package retrieval

import "slices"

// Message is what retrieval needs to know of one message of a conversation.
type Message struct {
	Role  string   // "system", "user", "assistant", "tool"
	Text  string   // its content as text
	Calls []string // names of the tools an assistant message calls
}

const (
	olderMost  = 4   // older messages looked at where the segment says little
	olderFirst = 0.5 // weight of the newest of them
	olderDecay = 0.8 // of each one before, relative to the one after
)

// Segment makes the query of the next turn from a conversation: the last user
// message, everything said since the last tool call before it, and what the
// assistant said after it, newest first. Tool results and system messages are
// left out. Where all that says little (Config.SegmentMass), up to four older
// messages follow with falling weight.
func (ix *Index) Segment(msgs []Message) Query {
	user := -1
	for i, m := range msgs {
		if m.Role == "user" && m.Text != "" {
			user = i
		}
	}
	call := -1
	for i, m := range msgs[:max(user, 0)] {
		if len(m.Calls) > 0 || m.Role == "tool" {
			call = i
		}
	}
	var q Query
	older := olderFirst
	left := olderMost
	var heard map[int32]float64
	mass := 0.0
	for i := len(msgs) - 1; i >= 0; i-- {
		m := &msgs[i]
		if m.Text == "" || m.Role == "tool" || m.Role == "system" || m.Role == "developer" {
			continue
		}
		weight := 1.0
		if i <= call {
			if mass >= ix.cfg.SegmentMass || left == 0 {
				break
			}
			weight = older
			older *= olderDecay
			left--
		}
		q.Parts = append(q.Parts, Part{m.Text, weight})
		if call >= 0 && mass < ix.cfg.SegmentMass {
			if heard == nil {
				heard = make(map[int32]float64)
			}
			mass += ix.mass(heard, m.Text, weight)
		}
	}
	if user >= 0 {
		head, _ := clip(msgs[user].Text, ix.cfg.QueryBytes)
		q.Clauses = clauses(head)
	}
	for _, m := range msgs {
		for _, name := range m.Calls {
			if at := slices.Index(q.Called, name); at >= 0 {
				q.Called = slices.Delete(q.Called, at, at+1)
			}
			q.Called = append(q.Called, name)
		}
	}
	return q
}

// mass returns by how much a text raises the summed idf of what was heard.
func (ix *Index) mass(heard map[int32]float64, text string, weight float64) float64 {
	sum := 0.0
	head, tail := clip(text, ix.cfg.QueryBytes)
	for _, s := range [...]string{head, tail} {
		w := words{text: s}
		for word := w.next(); word != nil; word = w.next() {
			id, ok := ix.terms[string(word)]
			if !ok {
				continue
			}
			if v := weight * ix.idf[id]; v > heard[id] {
				sum += v - heard[id]
				heard[id] = v
			}
		}
	}
	return sum
}
