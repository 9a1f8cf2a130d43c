package proxy

import (
	"net/http"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/retrieval/usage"
)

// learn remembers the calls whose results this request brings: those of the last
// assistant message, so that a conversation teaches each once. A retry teaches
// nothing new.
func (s *stages) learn(t *turn) {
	if s.cfg.Usage == nil {
		return
	}
	last := -1
	msgs := make([]usage.Message, len(t.messages))
	for i := range t.messages {
		m := &t.messages[i]
		msgs[i] = usage.Message{Role: m.Role, Text: m.Text, ResultOf: m.CallID}
		for _, k := range m.Calls {
			msgs[i].Calls = append(msgs[i].Calls, usage.Call{ID: k.ID, Name: k.Name})
		}
		if m.Role == "assistant" {
			last = i
		}
	}
	if last < 0 {
		return
	}
	if e, ok := usage.Learned(s.traced(t), msgs, last); ok {
		_ = s.cfg.Usage.Learn(s.cfg.Usage.Tenant(t.tenant), e) // Learned has checked it
	}
}

// memory is what the tenant's calls have taught, nil for nothing.
func (s *stages) memory(t *turn) retrieval.Memory {
	if s.cfg.Usage == nil {
		return nil
	}
	if m := s.cfg.Usage.Memory(s.cfg.Usage.Tenant(t.tenant)); m != nil {
		return m
	}
	return nil
}

// UsageReport is what a tenant's calls have taught.
type UsageReport struct {
	Tenant  string        `json:"tenant"`
	Queries int           `json:"queries"`
	Tools   int           `json:"tools"`
	Bytes   int           `json:"bytes"`
	Events  []usage.Event `json:"events"` // one a query
}

// Cleared is the answer to a deleted usage memory.
type Cleared struct {
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
	Tenant  string `json:"tenant"`
	Queries int    `json:"queries"`
}

// serveUsage exports (GET) or clears (DELETE) the memory of the client that asks.
func (p *Proxy) serveUsage(x *exchange) {
	s, ok := p.stages.(*stages)
	if !ok || s.cfg.Usage == nil {
		x.fail("", &openai.Error{Status: http.StatusNotFound, Type: invalidRequest, Code: "usage_off",
			Message: "No usage is remembered here; the sidecar was started without --usage."})
		return
	}
	who := s.cfg.Usage.Tenant(tenant(x.req))
	if x.req.Method == http.MethodDelete {
		n, err := s.cfg.Usage.Clear(who)
		if err != nil {
			x.fail("", serverError(500, "usage", "Clearing the usage memory: "+err.Error()))
			return
		}
		x.replyJSON(Cleared{Object: "usage.deleted", Deleted: n > 0, Tenant: who, Queries: n})
		return
	}
	r := UsageReport{Tenant: who, Events: []usage.Event{}}
	if m := s.cfg.Usage.Memory(who); m != nil {
		r.Queries, r.Tools, r.Bytes = m.Stats()
		r.Events = m.Events()
	}
	x.replyJSON(r)
}
