package proxy

import (
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// splice writes the body for the engine: the client's request with what is ours in
// it changed.
func (t *turn) splice() {
	o := t.object
	o.Set("messages", t.messagesJSON())
	for _, key := range []string{"tools", "tool_choice", "parallel_tool_calls"} {
		o.Delete(key)
	}
	if t.emitted.Format != nil {
		o.Set("response_format", append(append([]byte(`{"type":"structural_tag","format":`), t.emitted.Format...), '}'))
	}
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
	t.path, t.body = "/v1/chat/completions", t.object.Bytes()
	if t.prompt == nil {
		return
	}
	o, err := openai.Scan(t.body, openai.Limits{})
	if err != nil {
		panic("proxy: a body of ours: " + err.Error())
	}
	t.setIDs(o)
	t.path, t.body = t.info.TokenIn.Path(), o.Bytes()
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

// expect works out how many prompt tokens the engine should find in its cache:
// what this prompt shares with the previous turn's prompt and reply. It needs
// the engine's own tokenizer, else the record says nothing about it.
func (s *stages) expect(t *turn) {
	if !t.info.TokenizerExact {
		return
	}
	f, count := t.info.Family, s.cfg.Counter
	messages := func(turns []prefix.Turn) []wire.Message {
		out := make([]wire.Message, len(turns))
		for i, m := range turns {
			out[i] = wire.Message{Role: m.Role, Content: m.Text}
		}
		return out
	}
	opt := wire.Options{AddGenerationPrompt: true, EnableThinking: t.enableThinking()}
	prompt := string(f.Render(nil, messages(t.layout), nil, opt))
	i := len(t.layout) - 1
	for i >= 0 && !t.layout[i].Generated {
		i--
	}
	if i < 0 {
		t.record.PromptTokens = count.Count(prompt)
		return
	}
	before := string(f.Render(nil, messages(t.layout[:i]), nil, opt)) + t.layout[i].Text
	// Up to a control token that both have, the tokens are the same: encoded once.
	at := max(0, strings.LastIndex(prompt[:commonPrefix(prompt, before)], f.TurnStart))
	same := count.Count(prompt[:at])
	rest, previous := count.Encode(nil, prompt[at:]), count.Encode(nil, before[at:])
	n := 0
	for n < len(previous) && n < len(rest) && previous[n] == rest[n] {
		n++
	}
	t.record.PromptTokens, t.record.PrefixTokens = same+len(rest), same+n
	if t.info.BlockSize > 0 {
		// An engine computes at least the last prompt token anew.
		t.record.ExpectedCached = min(same+n, t.record.PromptTokens-1) / t.info.BlockSize * t.info.BlockSize
	}
}

// enableThinking reads chat_template_kwargs.enable_thinking.
func (t *turn) enableThinking() *bool {
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
