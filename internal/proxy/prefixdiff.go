package proxy

import (
	"cmp"
	"errors"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// ReadRequest reads the body of a chat completion as the stages do, for those who
// compare prompts. The error is for people.
func ReadRequest(body []byte) (*prefix.Request, error) {
	o, err := openai.Scan(body, openai.Limits{})
	if err != nil {
		return nil, err
	}
	return readRequest(o)
}

func readRequest(o *openai.Object) (*prefix.Request, error) {
	c := &chat{object: o}
	if err := c.readMessages(o); err != nil {
		return nil, plain(err)
	}
	if v, ok := o.Get("tools"); ok && v.Kind() != 'n' {
		if v.Kind() != '[' {
			return nil, errors.New("tools must be an array of tool definitions")
		}
		c.tools = v
	}
	return c.request(), nil
}

// plain is an error as one that is not sent to a client as it is.
func plain(err error) error {
	var e *openai.Error
	if errors.As(err, &e) {
		return errors.New(e.Message)
	}
	return err
}

// request is what the client sent, in its own order.
func (c *chat) request() *prefix.Request {
	r := &prefix.Request{Messages: make([]prefix.Message, len(c.messages)), Tools: rawElements(c.tools)}
	for i, j := range c.order {
		r.Messages[j] = c.messages[i]
	}
	return r
}

// servePrefixDiff compares two requests: {"a": …, "b": …, "family": "hermes"}.
func (p *Proxy) servePrefixDiff(x *exchange) {
	o, ok := p.scan(x)
	if !ok {
		return
	}
	s, ok := p.stages.(*stages)
	if !ok {
		x.fail("", serverError(503, "no_stages", "Prompts are compared by the stages, which are all off."))
		return
	}
	var sides [2]*prefix.Request
	for i, name := range []string{"a", "b"} {
		v, _ := o.Get(name)
		side, ok := openai.ObjectOf(v)
		if !ok {
			x.fail("", badRequest(name, `%s must be a chat request; send {"a": the earlier request, "b": the later one}`, name))
			return
		}
		var err error
		if sides[i], err = readRequest(side); err != nil {
			x.fail("", badRequest(name, "%s: %v", name, err))
			return
		}
	}
	name := cmp.Or(text(o, "family"), s.cfg.Family)
	if name == "" || name == "auto" {
		name = "hermes"
		s.engine.mu.Lock()
		if known := s.engine.known; known != nil && known.Family != nil {
			name = known.Family.Name
		}
		s.engine.mu.Unlock()
	}
	f, err := wire.ByName(name)
	if err != nil {
		x.fail("", badRequest("family", "family: %v", err))
		return
	}
	x.replyJSON(prefix.Compare(sides[0], sides[1], f, s.cfg.Counter))
}
