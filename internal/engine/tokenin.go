package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
)

// Transport is how an engine takes a prompt as token ids and gives back the ids
// that it generated.
type Transport string

const (
	// ChatKV is vLLM's chat endpoint with kv_transfer_params.prompt_token_ids.
	// The API pages don't mention it, so that it is trusted only when probed.
	ChatKV Transport = "chat with kv_transfer_params.prompt_token_ids"
	// ChatInput is SGLang's chat endpoint with input_ids.
	ChatInput Transport = "chat with input_ids"
	// Completions is /v1/completions with ids as the prompt.
	Completions Transport = "completions"
	// Completion is llama.cpp's /completion with ids as the prompt.
	Completion Transport = "completion"
)

// frames are conversations, in the form of the sidecar's own layouts, whose
// framing must be the engine's to the token before ids of ours are sent: they
// cover each kind of turn at each place.
var frames = [][]wire.Message{
	probeConversation,
	{{Role: "user", Content: "no system turn"}},
	{{Role: "system", Content: ""}, {Role: "user", Content: ""}},
	{{Role: "system", Content: "s\n"}, {Role: "user", Content: "\nnewlines around\n\n"}, {Role: "assistant", Content: " spaces around "}, {Role: "user", Content: "\t"}},
	{
		{Role: "system", Content: "s"}, {Role: "user", Content: "two calls"},
		{Role: "assistant", Content: "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"b\", \"arguments\": {\"x\": [1, 2.50]}}\n</tool_call>"},
		{Role: "user", Content: "<tool_response>\n1\n</tool_response>\n<tool_response>\n\n</tool_response>"},
	},
	{
		{Role: "system", Content: "s"}, {Role: "user", Content: "reasoning in the tool loop of the last question"},
		{Role: "assistant", Content: "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>"},
		{Role: "user", Content: "<tool_response>\nx\n</tool_response>"},
		{Role: "assistant", Content: "<think>\nhm, hm\n</think>\n\nso"},
		{Role: "user", Content: "<tool_response>\ny\n</tool_response>"},
	},
	{
		{Role: "system", Content: "s"}, {Role: "user", Content: "reasoning before the last question"},
		{Role: "assistant", Content: "<think>\nhm\n</think>\n\nYes."},
		{Role: "user", Content: "another"},
	},
	{
		{Role: "user", Content: "e\u0301 🙂 \u00a0 1234567 don't\r\nstop"}, {Role: "assistant", Content: "ok"},
		{Role: "system", Content: "a system turn in the middle"}, {Role: "user", Content: "go on"},
	},
}

// tokenIn finds out whether prompts can be sent as ids, and how.
func (p *Prober) tokenIn(ctx context.Context, info *Info) error {
	reason := func(format string, args ...any) error {
		info.TokenInReason = fmt.Sprintf(format, args...)
		return nil
	}
	switch {
	case info.Family == nil:
		return reason("%s", info.FamilyReason)
	case p.Tokenizer == nil:
		return reason("no vocabulary is loaded")
	case !info.TokenizerExact:
		return reason("the vocabulary %s is not the engine's; give the model's with --tokenizer", p.Tokenizer.Name())
	case info.Kind == Unknown:
		return reason("no way to send ids to this engine is known")
	}
	for _, token := range info.Family.Seams() {
		if _, ok := p.Tokenizer.ID(token); !ok {
			return reason("%s, which parts turns, is no token of the vocabulary: ids can't be joined there", token)
		}
	}
	if different, err := p.framing(ctx, info, Switches{}); err != nil || different != "" {
		if passing(err) {
			return err
		}
		if err != nil {
			different = err.Error()
		}
		return reason("%s", different)
	}
	candidates := []Transport{ChatKV, Completions}
	switch info.Kind {
	case SGLang:
		candidates = []Transport{ChatInput}
	case LlamaCpp:
		candidates = []Transport{Completion}
	}
	var whys []string
	for _, t := range candidates {
		err := p.transport(ctx, info, t)
		if passing(err) {
			return err
		}
		if err == nil {
			info.TokenIn, info.TokenInReason = t, ""
			break
		}
		whys = append(whys, fmt.Sprintf("%s: %v", t, err))
	}
	if info.TokenIn == "" {
		return reason("%s", strings.Join(whys, "; "))
	}
	for _, thinking := range []bool{false, true} {
		different, err := p.framing(ctx, info, Switches{Thinking: &thinking})
		if passing(err) {
			return err
		}
		if err == nil && different == "" {
			info.Thinking = append(info.Thinking, thinking)
		}
	}
	return p.reasoning(ctx, info)
}

// framesOf are frames with results as the family's layouts have them: in a user turn,
// or as messages that the template frames.
func framesOf(f *wire.Family) [][]wire.Message {
	if f.ResultRole == "user" {
		return frames
	}
	out := make([][]wire.Message, len(frames))
	for i, msgs := range frames {
		for _, m := range msgs {
			const open, end = "<tool_response>\n", "\n</tool_response>"
			if m.Role != "user" || !strings.HasPrefix(m.Content, open) {
				out[i] = append(out[i], m)
				continue
			}
			for _, result := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(m.Content, open), end), end+"\n"+open) {
				out[i] = append(out[i], wire.Message{Role: f.ResultRole, Content: result})
			}
		}
	}
	return out
}

// framing says in which of frames our tokens differ from the engine's.
func (p *Prober) framing(ctx context.Context, info *Info, with Switches) (different string, err error) {
	for i, msgs := range framesOf(info.Family) {
		from, err := p.Differs(ctx, info, info.Models[0].ID, msgs, with)
		if err != nil {
			return "", err
		}
		if from != "" {
			return fmt.Sprintf("the engine frames probe conversation %d otherwise than family %s, %s", i, info.Family.Name, from), nil
		}
	}
	return "", nil
}

// Switches are what a request says to the chat template beside its messages.
type Switches struct {
	Thinking *bool                      // enable_thinking; nil where it is not set
	Effort   string                     // reasoning_effort; "" where it is not set
	Others   map[string]json.RawMessage // of chat_template_kwargs
}

// arguments are the switches as chat_template_kwargs.
func (w Switches) arguments(kind Kind) map[string]any {
	args := map[string]any{}
	for key, v := range w.Others {
		args[key] = v
	}
	if w.Effort != "" {
		args["reasoning_effort"] = w.Effort
	}
	if w.Thinking != nil {
		args["enable_thinking"] = *w.Thinking
		if _, own := w.Others["thinking"]; w.Effort != "" && kind == SGLang && !own {
			args["thinking"] = *w.Thinking // what it makes of the effort
		}
	}
	return args
}

// Switched finds out whether the family frames conversations as the engine does with
// a request's switches, because the template does not read them or as it reads
// enable_thinking; from where on they differ otherwise. Engines make an enable_thinking
// of reasoning_effort, each in its own way: resolved has the one that counts, of which
// a prompt of the chat endpoint tells, for which a token is generated.
func (p *Prober) Switched(ctx context.Context, info *Info, with Switches) (resolved Switches, different string, err error) {
	if with.Effort != "" && with.Thinking == nil {
		count, err := p.promptTokens(ctx, info, with)
		if err != nil {
			return with, "", err
		}
		thinking := with.Effort != "none"
		switch count {
		case len(p.prompt(info, &thinking, probeConversation...)):
			with.Thinking = &thinking
		case len(p.prompt(info, nil, probeConversation...)):
		default:
			return with, "reasoning_effort changes the prompt", nil
		}
	}
	different, err = p.framing(ctx, info, with)
	return with, different, err
}

// promptTokens counts the probe conversation at the chat endpoint.
func (p *Prober) promptTokens(ctx context.Context, info *Info, with Switches) (int, error) {
	body := conversationBody(info.Models[0].ID, probeConversation, nil, nil)
	body["max_tokens"], body["temperature"] = 1, 0
	if with.Effort != "" {
		body["reasoning_effort"] = with.Effort
	}
	if len(with.Others) > 0 {
		body["chat_template_kwargs"] = with.Others
	}
	var reply struct {
		Usage usage `json:"usage"`
	}
	err := p.post(ctx, "/v1/chat/completions", body, &reply)
	return reply.Usage.Prompt, err
}

func commonIDs(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Differs says from where on the engine's prompt of messages is another than the
// family's, "" when it is the same to the token.
//
// With llama.cpp it is the same to the byte: where a tokenizer normalises what it
// reads, that of llama.cpp does not.
func (p *Prober) Differs(ctx context.Context, info *Info, modelID string, msgs []wire.Message, with Switches) (from string, err error) {
	theirs, err := p.tokens(ctx, info.Kind, modelID, msgs, nil, with)
	if err != nil {
		return "", err
	}
	ours := string(info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true, EnableThinking: with.Thinking}))
	if info.Kind == LlamaCpp {
		text, err := p.detokenize(ctx, modelID, theirs)
		if err == nil && text != ours {
			from = fmt.Sprint("from byte ", commonPrefix(ours, text))
		}
		return from, err
	}
	ids := p.Tokenizer.Encode(nil, ours)
	if at := commonIDs(ids, theirs); at < len(ids) || at < len(theirs) {
		from = fmt.Sprint("from token ", at)
	}
	return from, nil
}

// transport sends a prompt as ids and checks that it was the prompt, to the token
// where the engine tells.
func (p *Prober) transport(ctx context.Context, info *Info, t Transport) error {
	// The message that travels along is longer than the ids, so that a prompt made
	// of it is told apart.
	ids := p.prompt(info, nil, wire.Message{Role: "user", Content: "Say ok."})
	body := map[string]any{"model": info.Models[0].ID, "max_tokens": 1, "temperature": 0}
	if t.Text() {
		body["prompt"] = ids
	} else {
		body["messages"] = []map[string]string{{"role": "user", "content": "This message is not what shall be the prompt. Say no."}}
	}
	for key, value := range t.Fields(ids) {
		body[key] = value
	}
	body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if raw, err = p.do(ctx, http.MethodPost, t.Path(), raw); err != nil {
		return err
	}
	events := openai.NewReader(bytes.NewReader(raw), maxAnswer)
	var prompt, output []int32
	promptTokens := -1
	for {
		e, err := events.Next()
		if err == io.EOF || err == nil && string(e.Data) == "[DONE]" {
			break
		}
		if err != nil {
			return err
		}
		var chunk struct {
			Error           json.RawMessage `json:"error"`
			PromptIDs       []int32         `json:"prompt_token_ids"`
			Usage           *usage          `json:"usage"`
			SGLangExtension struct {
				Output [][]int32 `json:"output_ids"`
			} `json:"sglext"`
			Choices []struct {
				PromptIDs []int32 `json:"prompt_token_ids"`
				IDs       []int32 `json:"token_ids"`
			} `json:"choices"`
			// llama.cpp
			IDs       []int32 `json:"tokens"`
			Evaluated *int    `json:"tokens_evaluated"`
			Timings   struct {
				Cached *int `json:"cache_n"`
			} `json:"timings"`
		}
		if err := json.Unmarshal(e.Data, &chunk); err != nil {
			return fmt.Errorf("its stream is not JSON: %w", err)
		}
		if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
			return &otherPromptError{fmt.Sprintf("the engine reported %s", chunk.Error)}
		}
		prompt, output = append(prompt, chunk.PromptIDs...), append(output, chunk.IDs...)
		if chunk.Evaluated != nil {
			promptTokens = *chunk.Evaluated
			info.CachedTokens = info.CachedTokens || chunk.Timings.Cached != nil
		}
		for _, c := range chunk.Choices {
			prompt, output = append(prompt, c.PromptIDs...), append(output, c.IDs...)
		}
		for _, o := range chunk.SGLangExtension.Output {
			output = append(output, o...)
		}
		if chunk.Usage != nil {
			promptTokens = chunk.Usage.Prompt
			info.CachedTokens = chunk.Usage.tellsCached()
		}
	}
	switch {
	case promptTokens != len(ids):
		return &otherPromptError{fmt.Sprintf("the engine counted %d prompt tokens of %d ids", promptTokens, len(ids))}
	case len(prompt) > 0 && !slices.Equal(prompt, ids):
		return &otherPromptError{"the engine used another prompt"}
	case len(output) == 0:
		return &otherPromptError{"the engine gave back no ids of what it generated"}
	}
	return nil
}

// otherPromptError is an answer that shows that ids are not taken this way.
type otherPromptError struct{ what string }

func (e *otherPromptError) Error() string { return e.what }

type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Details *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *usage) tellsCached() bool { return u != nil && u.Details != nil && u.Details.Cached != nil }

// Path is the route that takes the ids.
func (t Transport) Path() string {
	switch t {
	case Completions:
		return "/v1/completions"
	case Completion:
		return "/completion"
	}
	return "/v1/chat/completions"
}

// Text says that the route completes texts, so that its replies are no chat's.
func (t Transport) Text() bool { return t == Completions || t == Completion }

// Fields are the members of a body that carry the ids, but for the prompt of a
// text completion, and ask for the generated ones back in a stream.
func (t Transport) Fields(ids []int32) map[string]any {
	switch t {
	case ChatKV:
		return map[string]any{"kv_transfer_params": map[string][]int32{"prompt_token_ids": ids}, "return_token_ids": true}
	case ChatInput:
		return map[string]any{"input_ids": ids, "return_output_ids_in_sglext": true}
	case Completions:
		return map[string]any{"return_token_ids": true}
	case Completion:
		return map[string]any{"return_tokens": true, "cache_prompt": true}
	}
	return nil
}

// prompt is a conversation as ids.
func (p *Prober) prompt(info *Info, thinking *bool, msgs ...wire.Message) []int32 {
	return p.Tokenizer.Encode(nil, string(info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true, EnableThinking: thinking})))
}

// reasoning finds out whether the engine splits reasoning off, which delays a
// constraint until the reasoning has ended, and whether the end of an old reasoning
// in the prompt is taken for it. Then a constraint would clamp the reasoning.
func (p *Prober) reasoning(ctx context.Context, info *Info) error {
	f := info.Family
	if f.ThinkClose == "" || !info.StructuralTag {
		return nil
	}
	if info.TokenIn == Completions {
		held, err := p.heldAtOnce(ctx, info, nil, nil)
		if err == nil && !held {
			info.Reasoning = true
			info.TokenIn, info.TokenInReason = "", "the engine splits reasoning off at the chat endpoint, and takes ids at the other one only"
		}
		return err
	}
	held, err := p.heldAtOnce(ctx, info, p.prompt(info, nil, wire.Message{Role: "user", Content: "Say ok."}), nil)
	if err != nil || held {
		return err // without a parser every text is held at once
	}
	info.Reasoning = true
	// The framing of a tool loop keeps the reasoning.
	result := wire.Message{Role: f.ResultRole, Content: "ok"}
	if f.ResultRole == "user" {
		result.Content = f.ResponseText([]string{"ok"})
	}
	held, err = p.heldAtOnce(ctx, info, p.prompt(info, nil,
		wire.Message{Role: "user", Content: "Say ok."},
		wire.Message{Role: "assistant", Content: f.ThinkOpen + "\nhm\n" + f.ThinkClose + "\n\n" + f.CallText(wire.Call{Name: "a", Arguments: "{}"})},
		result), nil)
	if err != nil {
		return err
	}
	if held {
		info.TokenIn, info.TokenInReason = "", "the engine's reasoning parser takes an old "+f.ThinkClose+" in the prompt for the end of the reasoning"
		return nil
	}
	// Without reasoning the parser must wait for none.
	off := false
	if slices.Contains(info.Thinking, off) {
		held, err = p.heldAtOnce(ctx, info, p.prompt(info, &off, wire.Message{Role: "user", Content: "Say ok."}), &off)
		if err == nil && !held {
			info.Thinking = slices.DeleteFunc(info.Thinking, func(thinking bool) bool { return !thinking })
		}
	}
	return err
}

// heldAtOnce says whether the first tokens behind a prompt, of messages without ids,
// obey a constraint.
func (p *Prober) heldAtOnce(ctx context.Context, info *Info, ids []int32, thinking *bool) (bool, error) {
	body := map[string]any{
		"model": info.Models[0].ID, "max_tokens": 4, "temperature": 0,
		"response_format": json.RawMessage(`{"type":"structural_tag","format":{"type":"const_string","value":"ok ok ok ok"}}`),
	}
	body["messages"] = []map[string]string{{"role": "user", "content": "Say ok."}}
	if thinking != nil {
		body["chat_template_kwargs"] = map[string]bool{"enable_thinking": *thinking}
	}
	if ids != nil {
		for key, value := range info.TokenIn.Fields(ids) {
			if key != "return_output_ids_in_sglext" { // of streams
				body[key] = value
			}
		}
	}
	var reply struct {
		Choices []struct {
			Message struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning"`         // vLLM
				Thought   string `json:"reasoning_content"` // SGLang
			} `json:"message"`
		} `json:"choices"`
	}
	if err := p.post(ctx, "/v1/chat/completions", body, &reply); err != nil {
		if passing(err) {
			return false, err
		}
		return true, nil // a constraint that is refused holds nothing up
	}
	if len(reply.Choices) == 0 {
		return false, nil
	}
	// A parser may take a text for reasoning that was held all the same.
	m := reply.Choices[0].Message
	text := m.Reasoning + m.Thought + m.Content
	return text != "" && strings.HasPrefix("ok ok ok ok", text), nil
}
