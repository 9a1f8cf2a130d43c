package proxy

import (
	"bytes"
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
)

// splice writes the body for the engine: the client's request with what is ours in
// it changed.
func (t *turn) splice() {
	o := t.object
	o.Set("messages", t.messagesJSON())
	for _, key := range []string{"tools", "tool_choice", "parallel_tool_calls"} {
		o.Delete(key)
	}
	t.constraint.put(o)
	o.Set("stream", []byte("true"))
	options := []byte(`{"include_usage":true}`)
	if v, ok := o.Get("stream_options"); ok {
		if own, ok := openai.ObjectOf(v); ok {
			own.Set("include_usage", []byte("true"))
			options = own.Bytes()
		}
	}
	o.Set("stream_options", options)
	t.encode()
}

// encode writes the body for the engine as the turn is now.
func (t *turn) encode() {
	o, err := openai.Scan(t.object.Bytes(), openai.Limits{})
	if err != nil {
		panic("proxy: a body of ours: " + err.Error())
	}
	t.path = "/v1/chat/completions"
	if t.prompt != nil {
		t.setIDs(o)
		t.path = t.info.TokenIn.Path()
	} else {
		t.askIDs(o)
	}
	t.body = o.Bytes()
}

func (t *turn) messagesJSON() []byte {
	b := []byte{'['}
	for i, m := range t.layout {
		if i > 0 {
			b = append(b, ',')
		}
		if m.Client >= 0 {
			b = append(b, neutral(t.info.Family, t.raw[t.order[m.Client]])...)
			continue
		}
		b = openai.AppendString(append(b, `{"role":`...), m.Role)
		b = openai.AppendString(append(b, `,"content":`...), m.Text)
		if m.Role == "tool" {
			b = append(b, `,"tool_call_id":"call"`...) // the text of calls holds no ids
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// enableThinking is the template's enable_thinking: what the engine was found to make
// of the request, else what chat_template_kwargs says.
func (t *turn) enableThinking() *bool {
	if t.switches != nil {
		return t.switches.Thinking
	}
	v, ok := t.object.Get("chat_template_kwargs")
	if !ok {
		return nil
	}
	o, ok := openai.ObjectOf(v)
	if !ok {
		return nil
	}
	e, ok := o.Get("enable_thinking")
	if !ok {
		return nil
	}
	b, ok := e.Bool()
	if !ok {
		return nil
	}
	return &b
}

// within says that a reply begins inside reasoning, which the prompt has opened and
// the engine does not split off. A constraint that holds from the first token on keeps
// the model from reasoning.
func (t *turn) within() bool {
	f := t.info.Family
	if !f.ThinkInPrompt || t.info.Reasoning || !t.constraint.none() {
		return false
	}
	msgs := make([]wire.Message, len(t.layout))
	for i, m := range t.layout {
		msgs[i].Role = m.Role
	}
	return strings.HasSuffix(f.AnswerPrompt(msgs, wire.Options{EnableThinking: t.enableThinking()}), f.ThinkOpen)
}

// otherwise says that enable_thinking changes what the template writes.
func (t *turn) otherwise() bool {
	thinking := t.enableThinking()
	if thinking == nil {
		return false
	}
	msgs := []wire.Message{{Role: "user", Content: "?"}, {Role: "assistant", Content: "."}, {Role: "user", Content: "?"}}
	plain := t.info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true})
	return !bytes.Equal(plain, t.info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true, EnableThinking: thinking}))
}
