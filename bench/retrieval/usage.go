package retrieval

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/retrieval/usage"
)

// A Split is a log of calls and what is asked after it. No dialogue stands on
// both sides; queries without a dialogue that say the same stand on one.
type Split struct {
	Asked  []Query
	Memory *usage.Memory // what the log taught, at its default strength

	ix     *retrieval.Index
	log    []Query
	logged map[string]bool // tools of the log
}

// Unlogged is recall@4 of the queries none of whose tools the log has.
type Unlogged struct {
	Queries   int     `json:"queries"`
	Base      float64 `json:"base"`
	WithUsage float64 `json:"with_usage"`
}

// NewSplit draws half of the dialogues as a log. Errors: a side without a query.
func NewSplit(ix *retrieval.Index, queries []Query, seed int64) (*Split, error) {
	s := &Split{ix: ix, logged: make(map[string]bool)}
	for _, q := range queries {
		key := q.Group
		if key == "" {
			for _, m := range q.Messages {
				if m.Role == "user" {
					key = strings.ToLower(m.Text)
				}
			}
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", q.Set, key, seed))
		if sum[0]&1 == 1 {
			s.Asked = append(s.Asked, q)
			continue
		}
		s.log = append(s.log, q)
		for _, step := range q.Gold {
			s.logged[step[0]] = true
		}
	}
	if len(s.Asked) == 0 || len(s.log) == 0 {
		return nil, errors.New("one half is empty")
	}
	var err error
	s.Memory, err = s.learn(1)
	return s, err
}

// learn makes the memory of the log at a strength. Of alternatives, the first was
// called.
func (s *Split) learn(strength float64) (*usage.Memory, error) {
	m, err := usage.New(usage.Config{Strength: strength})
	if err != nil {
		return nil, err
	}
	for i, q := range s.log {
		e := usage.Event{Trace: s.ix.Trace(s.ix.Segment(q.Messages)), At: time.Unix(int64(i), 0)}
		for _, step := range q.Gold {
			e.Tools = append(e.Tools, step[0])
		}
		if len(e.Trace.Words) == 0 && len(e.Trace.Vector) == 0 {
			continue // says nothing
		}
		if _, err := m.Learn(e); err != nil {
			return nil, fmt.Errorf("query %s: %w", q.ID, err)
		}
	}
	return m, nil
}

// recall is recall@4 of all queries asked, and of those none of whose tools the
// log has.
func (s *Split) recall(memory retrieval.Memory) (all, unlogged mean) {
	var hits []retrieval.Hit
	for i := range s.Asked {
		q := s.ix.Segment(s.Asked[i].Messages)
		q.Memory = memory
		hits = s.ix.AppendSearch(hits[:0], q, 4)
		names := make([]string, len(hits))
		for j, h := range hits {
			names[j] = s.ix.Tool(h.Tool).Name
		}
		share, _ := recall(ranks(names, s.Asked[i].Gold), 4)
		all.add(share)
		if !slices.ContainsFunc(s.Asked[i].Gold, func(step []string) bool {
			return slices.ContainsFunc(step, func(name string) bool { return s.logged[name] })
		}) {
			unlogged.add(share)
		}
	}
	return all, unlogged
}

// Unlogged measures without and with the memory.
func (s *Split) Unlogged() *Unlogged {
	_, base := s.recall(nil)
	_, with := s.recall(s.Memory)
	return &Unlogged{base.n, base.percent(), with.percent()}
}

// Print writes the curve: what more strength gains, and what it costs the tools
// that were never called.
func (s *Split) Print(w io.Writer) error {
	queries, tools, bytes := s.Memory.Stats()
	var b strings.Builder
	fmt.Fprintf(&b, "\nusage memory of %d queries and %d tools, %d kB; %d queries asked\n", queries, tools, bytes>>10, len(s.Asked))
	fmt.Fprintf(&b, "%-10s %8s %22s\n", "strength", "recall@4", "of tools never called")
	for _, strength := range []float64{0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3} {
		var memory retrieval.Memory
		if strength > 0 {
			m, err := s.learn(strength)
			if err != nil {
				return err
			}
			memory = m
		}
		all, unlogged := s.recall(memory)
		fmt.Fprintf(&b, "%-10.2f %8.1f %22.1f\n", strength, all.percent(), unlogged.percent())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
