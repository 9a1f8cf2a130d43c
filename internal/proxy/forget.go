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
// conversation, or by the id of any request of it that still has a record. A request
// that belongs to none, as it was passed through, loses its record. That of another
// tenant is none.
func (p *Proxy) serveForget(x *exchange) {
	id := strings.TrimPrefix(x.req.Path, "/sidecar/v1/sessions/")
	s, ok := p.stages.(*stages)
	if !ok {
		x.fail("", unknownSession(id))
		return
	}
	s.records.settled(x.ctx)
	conversation, known := s.records.conversation(id, tenant(x.req))
	switch {
	case known && conversation == "":
		s.records.forget(func(r *Record) bool { return r.ID == id && r.tenant == tenant(x.req) })
		x.replyJSON(Forgotten{ID: id, Object: "session.deleted", Deleted: true, Records: 1})
		return
	case !known:
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
	records := s.records.forget(func(r *Record) bool { return r.Conversation == conversation })
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

// conversation is that of a tenant's request with this id, "" for none; false when no
// record has the id.
func (r *records) conversation(id, tenant string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.ring, func(rec Record) bool { return rec.ID == id && rec.tenant == tenant })
	if i < 0 {
		return "", false
	}
	return r.ring[i].Conversation, true
}

// forget drops the records that are meant; the sums stay.
func (r *records) forget(meant func(*Record) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := make([]Record, 0, cap(r.ring))
	for _, rec := range slices.Concat(r.ring[r.next:], r.ring[:r.next]) {
		if !meant(&rec) {
			kept = append(kept, rec)
		}
	}
	n = len(r.ring) - len(kept)
	r.ring, r.next = kept, 0
	return n
}
