package proxy

import (
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/prefix"
)

// Forgotten is the answer to a deleted session.
type Forgotten struct {
	ID           string `json:"id"` // as asked for
	Object       string `json:"object"`
	Deleted      bool   `json:"deleted"`
	Conversation string `json:"conversation"`
	Entries      int    `json:"entries"` // of the ledger
	Records      int    `json:"records"` // of /sidecar/v1/sessions
}

// serveForget deletes a conversation: its entries in the ledger, in memory and on
// disk, its records, and what of its prompts is remembered. It is named by its
// conversation, or by the id of any request of it that still has a record. That of
// another tenant is none.
func (p *Proxy) serveForget(x *exchange) {
	id := strings.TrimPrefix(x.req.Path, "/sidecar/v1/sessions/")
	s, ok := p.stages.(*stages)
	if !ok {
		x.fail("", unknownSession(id))
		return
	}
	s.records.settled(x.ctx)
	conversation := s.records.conversation(id, tenant(x.req))
	if conversation == "" {
		conversation = id
	}
	name, ok := prefix.ParseName(conversation)
	if scope := (prefix.Scope{Secret: s.cfg.Secret, Tenant: tenant(x.req)}); !ok || !scope.Owns(name) {
		x.fail("", unknownSession(id))
		return
	}
	entries, err := s.cfg.Ledger.Delete(name)
	if err != nil {
		x.fail("", serverError(500, "ledger", "Deleting from the ledger: "+err.Error()))
		return
	}
	records := s.records.forget(conversation)
	prompts := s.history.forget(conversation)
	if entries == 0 && records == 0 && !prompts {
		x.fail("", unknownSession(id))
		return
	}
	x.replyJSON(Forgotten{ID: id, Object: "session.deleted", Deleted: true, Conversation: conversation, Entries: entries, Records: records})
}

func unknownSession(id string) *openai.Error {
	return &openai.Error{Status: 404, Type: invalidRequest, Code: "unknown_session",
		Message: "There is no session " + cutText(id, 100) + "; GET /sidecar/v1/sessions lists them, each with its conversation."}
}

// conversation is that of a tenant's request with this id, "" when no record has it.
func (r *records) conversation(id, tenant string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.ring, func(rec Record) bool { return rec.ID == id && rec.tenant == tenant })
	if i < 0 {
		return ""
	}
	return r.ring[i].Conversation
}

// forget drops the records of a conversation; the sums stay.
func (r *records) forget(conversation string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := make([]Record, 0, cap(r.ring))
	for _, rec := range slices.Concat(r.ring[r.next:], r.ring[:r.next]) {
		if rec.Conversation != conversation {
			kept = append(kept, rec)
		}
	}
	n = len(r.ring) - len(kept)
	r.ring, r.next = kept, 0
	return n
}
