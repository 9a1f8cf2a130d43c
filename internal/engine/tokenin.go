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
	case info.Kind == LlamaCpp:
		return reason("llama.cpp takes ids at /completion only, which is not built")
	case info.Kind == Unknown:
		return reason("no way to send ids to this engine is known")
	}
	for _, token := range []string{info.Family.TurnStart, strings.TrimRight(info.Family.TurnEnd, "\n")} {
		if _, ok := p.Tokenizer.ID(token); !ok {
			return reason("%s, which parts turns, is no token of the vocabulary: ids can't be joined there", token)
		}
	}
	if different, err := p.framing(ctx, info); err != nil || different != "" {
		if passing(err) {
			return err
		}
		if err != nil {
			different = err.Error()
		}
		return reason("%s", different)
	}
	candidates := []Transport{ChatKV, Completions}
	if info.Kind == SGLang {
		candidates = []Transport{ChatInput}
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
	return p.reasoning(ctx, info)
}

// framing says in which of frames our tokens differ from the engine's.
func (p *Prober) framing(ctx context.Context, info *Info) (different string, err error) {
	for i, msgs := range frames {
		ids, err := p.Tokens(ctx, info.Models[0].ID, msgs)
		if err != nil {
			return "", err
		}
		ours := p.Tokenizer.Encode(nil, string(info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true})))
		if at := commonIDs(ours, ids); at < len(ours) || at < len(ids) {
			return fmt.Sprintf("the engine frames probe conversation %d otherwise than family %s, from token %d", i, info.Family.Name, at), nil
		}
	}
	return "", nil
}

func commonIDs(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Tokens are the ids that the engine makes of messages.
func (p *Prober) Tokens(ctx context.Context, modelID string, msgs []wire.Message) ([]int32, error) {
	return p.tokens(ctx, modelID, msgs, nil)
}

// transport sends a prompt as ids and checks that it was the prompt, to the token
// where the engine tells.
func (p *Prober) transport(ctx context.Context, info *Info, t Transport) error {
	// The message that travels along is longer than the ids, so that a prompt made
	// of it is told apart.
	ids := p.prompt(info, wire.Message{Role: "user", Content: "Say ok."})
	body := map[string]any{"model": info.Models[0].ID, "max_tokens": 1, "temperature": 0}
	if t == Completions {
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
		}
		if err := json.Unmarshal(e.Data, &chunk); err != nil {
			return fmt.Errorf("its stream is not JSON: %w", err)
		}
		if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
			return &otherPromptError{fmt.Sprintf("the engine reported %s", chunk.Error)}
		}
		prompt = append(prompt, chunk.PromptIDs...)
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
	if t == Completions {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

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
	}
	return nil
}

// prompt is a conversation as ids.
func (p *Prober) prompt(info *Info, msgs ...wire.Message) []int32 {
	return p.Tokenizer.Encode(nil, string(info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true})))
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
		held, err := p.heldAtOnce(ctx, info, nil)
		if err == nil && !held {
			info.Reasoning = true
			info.TokenIn, info.TokenInReason = "", "the engine splits reasoning off at the chat endpoint, and takes ids at the other one only"
		}
		return err
	}
	held, err := p.heldAtOnce(ctx, info, p.prompt(info, wire.Message{Role: "user", Content: "Say ok."}))
	if err != nil || held {
		return err // without a parser every text is held at once
	}
	info.Reasoning = true
	// The framing of a tool loop keeps the reasoning.
	held, err = p.heldAtOnce(ctx, info, p.prompt(info,
		wire.Message{Role: "user", Content: "Say ok."},
		wire.Message{Role: "assistant", Content: f.ThinkOpen + "\nhm\n" + f.ThinkClose + "\n\n" + f.CallText(wire.Call{Name: "a", Arguments: "{}"})},
		wire.Message{Role: "user", Content: f.ResponseText([]string{"ok"})}))
	if held {
		info.TokenIn, info.TokenInReason = "", "the engine's reasoning parser takes an old "+f.ThinkClose+" in the prompt for the end of the reasoning"
	}
	return err
}

// heldAtOnce says whether the first tokens behind a prompt, of messages without ids,
// obey a constraint.
func (p *Prober) heldAtOnce(ctx context.Context, info *Info, ids []int32) (bool, error) {
	body := map[string]any{
		"model": info.Models[0].ID, "max_tokens": 4, "temperature": 0,
		"response_format": json.RawMessage(`{"type":"structural_tag","format":{"type":"const_string","value":"ok ok ok ok"}}`),
	}
	body["messages"] = []map[string]string{{"role": "user", "content": "Say ok."}}
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
