package simengine

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/toolsidecar/sidecar/models/wire"
)

// answer serves the choices of one request, as a stream or whole.
type answer struct {
	e       *Engine
	req     *generateRequest
	prompt  []int32
	others  int // tokens of further prompts
	choices []*choice
	chat    bool
	parse   bool // calls in the text become tool_calls
	named   bool // by a named tool_choice

	id        string
	created   int64
	generated int
	cached    int
	w         http.ResponseWriter
}

type usage struct {
	PromptTokens     int            `json:"prompt_tokens"`
	TotalTokens      int            `json:"total_tokens"`
	CompletionTokens int            `json:"completion_tokens"`
	PromptDetails    *promptDetails `json:"prompt_tokens_details"`
	OutputDetails    *int           `json:"completion_tokens_details"` // always null
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
	// CreatedTokens is the prompt tokens that are in the cache from now on; null
	// in text completions.
	CreatedTokens    *int `json:"created_cache_tokens"`
	MultimodalTokens *int `json:"multimodal_tokens"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function callFunction `json:"function"`
}

type callFunction struct {
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
}

func (a *answer) serve(w http.ResponseWriter, r *http.Request) error {
	n := a.e.serial.Add(1)
	prefix := "cmpl"
	if a.chat {
		prefix = "chatcmpl"
	}
	a.id = fmt.Sprintf("%s-sim-%x-%d", prefix, a.e.cfg.Seed, n)
	a.created = a.e.cfg.Clock.Now().Unix()
	a.w = w
	if a.req.Stream {
		return a.stream(r)
	}
	return a.whole(r)
}

func (a *answer) usage() *usage {
	u := &usage{PromptTokens: len(a.prompt) + a.others, CompletionTokens: a.generated}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if a.e.cfg.PromptTokensDetails {
		u.PromptDetails = &promptDetails{CachedTokens: a.cached}
		if a.chat {
			block := a.e.cfg.BlockSize
			created := max(0, len(a.prompt)/block*block-a.cached)
			u.PromptDetails.CreatedTokens = &created
		}
	}
	return u
}

func (a *answer) object(stream bool) string {
	switch {
	case !a.chat:
		return "text_completion"
	case stream:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (a *answer) callID(choice, call int) string {
	return fmt.Sprintf("chatcmpl-tool-%s-%d-%d", a.id[len("chatcmpl-"):], choice, call)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// ran notes what a choice took.
func (a *answer) ran(i int, c *choice) {
	a.generated += len(c.seq.output)
	if i == 0 {
		a.cached = c.seq.cached
	}
}

func (a *answer) whole(r *http.Request) error {
	var list []any
	for i, c := range a.choices {
		if err := a.e.run(r.Context(), c.seq, c.finish, func(int) error { return nil }); err != nil {
			if gone(err) {
				return nil
			}
			return err
		}
		a.ran(i, c)
		out := map[string]any{"index": i, "logprobs": nil, "finish_reason": c.finish, "stop_reason": orNull(c.stop)}
		if a.req.ReturnTokenIDs {
			out["token_ids"] = c.seq.output
		}
		if !a.chat {
			out["text"] = c.text
			if a.req.ReturnTokenIDs {
				out["prompt_token_ids"] = c.seq.prompt
			}
			list = append(list, out)
			continue
		}
		msg := map[string]any{"role": "assistant", "content": c.text, "refusal": nil, "annotations": nil, "audio": nil, "function_call": nil, "reasoning": nil}
		if a.parse {
			if text, calls := a.wholeCalls(i, c.text); len(calls) > 0 {
				if strings.TrimSpace(text) == "" {
					text = "" // then null, but a stream sends it
				}
				msg["content"], msg["tool_calls"] = orNull(text), calls
				if c.finish == "stop" && !a.named {
					out["finish_reason"] = "tool_calls"
				}
			}
		}
		out["message"] = msg
		list = append(list, out)
	}
	body := map[string]any{
		"id": a.id, "object": a.object(false), "created": a.created, "model": a.e.cfg.Model,
		"choices": list, "usage": a.usage(), "system_fingerprint": a.e.signature, "service_tier": nil, "kv_transfer_params": nil,
	}
	if a.req.ReturnTokenIDs && a.chat {
		body["prompt_token_ids"] = a.prompt
	}
	if a.req.ReturnPromptText {
		body["prompt_text"] = a.promptText()
	}
	writeJSON(a.w, http.StatusOK, body)
	return nil
}

func (a *answer) promptText() string {
	text, err := a.e.tok.Decode(nil, a.prompt)
	if err != nil {
		return "" // the ids were checked when the request was read
	}
	return string(text)
}

// wholeCalls reads the calls of a whole text, with arguments written anew as
// Python writes them. As in vLLM a call that can't be read leaves all as text.
func (a *answer) wholeCalls(choice int, text string) (content string, calls []toolCall) {
	p := a.e.plain.NewParser()
	for _, evs := range [][]wire.Event{append([]wire.Event(nil), p.Feed(text)...), p.Close()} {
		for _, ev := range evs {
			switch ev.Kind {
			case wire.CallStart:
				if len(calls) == 0 {
					content = text[:ev.Offset]
				}
				args := ""
				calls = append(calls, toolCall{ID: a.callID(choice, ev.Call), Type: "function", Function: callFunction{ev.Name, &args}})
			case wire.Arguments:
				*calls[ev.Call].Function.Arguments += ev.Text
			case wire.Malformed:
				return text, nil
			}
		}
	}
	if p.Open() {
		return text, nil
	}
	for i := range calls {
		args := calls[i].Function.Arguments
		if b, err := wire.AppendPython(nil, []byte(*args)); err == nil {
			*args = string(b)
		}
	}
	return content, calls
}

func (a *answer) send(v map[string]any) error {
	v["id"], v["object"], v["created"], v["model"], v["system_fingerprint"] = a.id, a.object(true), a.created, a.e.cfg.Model, a.e.signature
	return a.event(encode(v))
}

// event writes one event of the stream in one write.
func (a *answer) event(data []byte) error {
	buf := make([]byte, 0, len(data)+8)
	buf = append(buf, "data: "...)
	buf = append(buf, data...)
	buf = append(buf, "\n\n"...)
	if _, err := a.w.Write(buf); err != nil {
		return errGone
	}
	if f, ok := a.w.(http.Flusher); ok {
		f.Flush()
	}
	return nil
}

func (a *answer) stream(r *http.Request) error {
	opened := false
	open := func() {
		if !opened {
			opened = true
			a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			a.w.Header().Set("Cache-Control", "no-cache")
			a.w.WriteHeader(http.StatusOK)
		}
	}
	for i, c := range a.choices {
		s := &choiceStream{a: a, index: i, c: c}
		if a.parse {
			s.parser = a.e.plain.NewParser()
		}
		err := a.e.run(r.Context(), c.seq, c.finish, func(k int) error {
			open()
			return s.token(k)
		})
		if err != nil {
			if gone(err) {
				return nil
			}
			if opened { // too late for a status
				return a.event(encode(map[string]any{"error": map[string]any{"message": err.Error(), "type": "InternalServerError", "param": nil, "code": 500}}))
			}
			return err
		}
		a.ran(i, c)
	}
	if o := a.req.StreamOptions; o != nil && o.IncludeUsage {
		if err := a.send(map[string]any{"choices": []any{}, "usage": a.usage()}); err != nil {
			return nil
		}
	}
	_ = a.event([]byte("[DONE]")) // nobody is told if the client has gone by now
	return nil
}

// choiceStream is one choice of a stream.
type choiceStream struct {
	a      *answer
	index  int
	c      *choice
	parser *wire.Parser
	called bool
	sent   int // bytes of content before the first call
}

// token sends what output token k adds.
func (s *choiceStream) token(k int) error {
	a, c := s.a, s.c
	last := k == len(c.pieces)-1
	if k == 0 && a.chat {
		first := map[string]any{"choices": []any{map[string]any{
			"index": s.index, "delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil,
		}}}
		if s.index == 0 {
			if a.req.ReturnTokenIDs {
				first["prompt_token_ids"] = a.prompt
			}
			if a.req.ReturnPromptText {
				first["prompt_text"] = a.promptText()
			}
		}
		if err := a.send(first); err != nil {
			return err
		}
	}
	var deltas []map[string]any
	switch {
	case !a.chat:
		d := map[string]any{"text": c.pieces[k]}
		if k == 0 && a.req.ReturnTokenIDs {
			d["prompt_token_ids"] = c.seq.prompt
		}
		deltas = append(deltas, d)
	case s.parser == nil:
		if d := (map[string]any{"content": c.pieces[k]}); c.pieces[k] != "" || !last {
			deltas = append(deltas, map[string]any{"delta": d})
		}
	default:
		evs := append([]wire.Event(nil), s.parser.Feed(c.pieces[k])...)
		if last {
			evs = append(evs, s.parser.Close()...)
		}
		for _, ev := range evs {
			for _, d := range s.deltas(ev) {
				deltas = append(deltas, map[string]any{"delta": d})
			}
		}
	}
	if len(deltas) == 0 && (last || a.req.ReturnTokenIDs) {
		d := map[string]any{"content": ""}
		if last {
			d = map[string]any{}
		}
		deltas = append(deltas, map[string]any{"delta": d})
	}
	for i, choice := range deltas {
		choice["index"], choice["logprobs"], choice["finish_reason"] = s.index, nil, nil
		if a.req.ReturnTokenIDs {
			choice["token_ids"] = []int32{}
			if i == 0 {
				choice["token_ids"] = c.seq.output[k : k+1]
			}
		}
		if last && i == len(deltas)-1 {
			finish := c.finish
			if s.called && finish == "stop" && !a.named {
				finish = "tool_calls"
			}
			choice["finish_reason"], choice["stop_reason"] = finish, orNull(c.stop)
		}
		msg := map[string]any{"choices": []any{choice}}
		if o := a.req.StreamOptions; o != nil && o.ContinuousUsage {
			u := a.usage()
			u.CompletionTokens += k + 1
			u.TotalTokens += k + 1
			msg["usage"] = u
		}
		if err := a.send(msg); err != nil {
			return err
		}
	}
	return nil
}

// deltas are what an event of the parser says in a chat stream. As in vLLM all
// text before the first call is content, the newline before it too, and no text
// after it.
func (s *choiceStream) deltas(ev wire.Event) []map[string]any {
	call := func(t toolCall) map[string]any {
		t.Index = &ev.Call
		return map[string]any{"content": nil, "tool_calls": []toolCall{t}}
	}
	switch ev.Kind {
	case wire.Text:
		if s.called {
			return nil
		}
		s.sent += len(ev.Text)
		return []map[string]any{{"content": ev.Text}}
	case wire.CallStart:
		var out []map[string]any
		if framing := s.parser.Raw()[min(s.sent, ev.Offset):ev.Offset]; !s.called && framing != "" {
			out = append(out, map[string]any{"content": framing})
		}
		s.called = true
		return append(out, call(toolCall{ID: s.a.callID(s.index, ev.Call), Type: "function", Function: callFunction{Name: ev.Name}}))
	case wire.Arguments:
		return []map[string]any{call(toolCall{Function: callFunction{Arguments: &ev.Text}})}
	}
	return nil
}
