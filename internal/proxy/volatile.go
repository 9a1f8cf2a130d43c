package proxy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/prefix"
)

// volatile takes the volatile lines out of the system text of a request, before
// anything else looks at it, and notes each in the record. A request that can't be
// read stays as it is, as it does after a fault of the stage's own.
func (s *stages) volatile(x *exchange, o *openai.Object, rec *Record) {
	if len(s.cfg.Volatile) == 0 {
		return
	}
	defer func() {
		if fault := recover(); fault != nil {
			x.p.fault(fault)
		}
	}()
	c := &chat{object: o}
	if c.readMessages(o) != nil {
		return // the stages or the engine say what is wrong
	}
	r := c.request()
	scope := prefix.Scope{Secret: s.cfg.Secret, Tenant: tenant(x.req), Fingerprint: text(o, "model")}
	done := s.cfg.Volatile.Settle(s.cfg.Ledger, scope, r.Messages)
	if len(done.Lines) == 0 && len(done.Tails) == 0 {
		return
	}
	messages := []byte{'['}
	for i, raw := range c.raw {
		if i > 0 {
			messages = append(messages, ',')
		}
		if text, ok := done.System[i]; ok {
			raw.Raw = withContent(raw, openai.AppendString(nil, text))
		}
		if tail, ok := done.Tails[i]; ok {
			raw.Raw = withTail(raw, tail)
		}
		messages = append(messages, raw.Raw...)
	}
	o.Set("messages", append(messages, ']'))
	now := &chat{object: o}
	if now.readMessages(o) == nil {
		rec.Conversation = done.Keep(s.cfg.Ledger, scope, now.request().Messages).String()
	}
	x.req.Body = o.Bytes()
	for _, line := range done.Lines {
		line.Line = cutText(line.Line, maxRecordText)
		rec.Volatile = append(rec.Volatile, line)
	}
}

// withContent is a message with another content.
func withContent(message openai.Value, content []byte) []byte {
	o, ok := openai.ObjectOf(message)
	if !ok {
		return message.Raw
	}
	o.Set("content", content)
	return o.Bytes()
}

// withTail is a message with a text behind its content.
func withTail(message openai.Value, tail string) []byte {
	o, ok := openai.ObjectOf(message)
	if !ok {
		return message.Raw
	}
	content, _ := o.Get("content")
	switch content.Kind() {
	case '"':
		said, _ := content.String()
		return withContent(message, openai.AppendString(nil, said+tail))
	case '[':
		part := openai.AppendString([]byte(`{"type":"text","text":`), strings.TrimLeft(tail, "\n"))
		parts := slices.Clone(content.Raw[:len(content.Raw)-1])
		if len(openai.Elements(content)) > 0 {
			parts = append(parts, ',')
		}
		return withContent(message, append(append(parts, part...), "}]"...))
	}
	return withContent(message, openai.AppendString(nil, strings.TrimLeft(tail, "\n")))
}

// volatileHeader sums up what was taken out, "" for nothing.
func volatileHeader(lines []prefix.VolatileLine) string {
	var parts []string
	for _, l := range lines {
		did := "stripped"
		switch {
		case l.To >= 0:
			did = fmt.Sprintf("moved to %d", l.To)
		case l.Action == prefix.Move:
			did = "said before"
		}
		parts = append(parts, fmt.Sprintf("%s %s", l.Rule, did))
	}
	return strings.Join(parts, ", ")
}
