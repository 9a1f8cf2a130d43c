package proxy

import (
	"errors"
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// stagedPath serves the chat requests that go through the stages.
type stagedPath interface {
	// wants says whether the stages have anything to do for a request.
	wants(o *openai.Object) bool
	// serve answers it as Proxy.Serve promises.
	serve(x *exchange, o *openai.Object)
}

// chat serves /v1/chat/completions: by the stages if they want the request,
// else as it is.
func (p *Proxy) chat(x *exchange) {
	o, ok := p.scan(x)
	if !ok {
		return
	}
	if p.stages != nil && p.stages.wants(o) {
		p.stages.serve(x, o)
		return
	}
	p.forward(x, true)
}

func (p *Proxy) completions(x *exchange) {
	o, ok := p.scan(x)
	if !ok {
		return
	}
	if s, ok := p.stages.(*stages); ok && !s.cfg.Observe {
		s.salt(x, o)
		s.pin(x, o)
	}
	p.forward(x, true)
}

func (p *Proxy) embeddings(x *exchange) {
	if _, ok := p.scan(x); ok {
		p.forward(x, false)
	}
}

func (p *Proxy) models(x *exchange) {
	p.forward(x, false)
}

// forward sends the client's request to the engine as it is and the reply
// back. done says that a stream ends with [DONE].
func (p *Proxy) forward(x *exchange, done bool) {
	resp, e := p.send(x, x.req.Path, x.req.Body)
	if e != nil {
		x.engineFault(e)
		return
	}
	p.relay(x, resp, done)
}

// scan checks the body of a POST. It has answered the request when it returns
// false.
func (p *Proxy) scan(x *exchange) (*openai.Object, bool) {
	if enc := x.req.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		p.refuse(x, "content_encoding", &openai.Error{Status: 415, Type: invalidRequest, Code: "unsupported_content_encoding",
			Message: "Content-Encoding " + cutText(enc, 40) + " is not accepted; send the body as plain JSON."})
		return nil, false
	}
	o, err := openai.Scan(x.req.Body, openai.Limits{MaxBytes: p.cfg.MaxBody, MaxDepth: p.cfg.MaxDepth})
	if err != nil {
		var size *openai.SizeError
		if errors.As(err, &size) {
			p.refuse(x, "body_size", bodyTooLarge(p.cfg.MaxBody))
			return nil, false
		}
		p.refuse(x, "invalid_json", &openai.Error{Status: 400, Type: invalidRequest, Code: "invalid_json", Message: "Request body: " + err.Error()})
		return nil, false
	}
	if e := p.gate.check(o); e != nil {
		p.refuse(x, "engine_field", e)
		return nil, false
	}
	return o, true
}
