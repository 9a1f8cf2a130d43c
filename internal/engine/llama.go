package engine

import (
	"context"
	"net/http"
	"strings"
)

// llamaProps reads what /props of a llama-server tells. It has one window for all
// models; each of its slots keeps the tokens of the conversation that it served
// last, one by one.
func (p *Prober) llamaProps(ctx context.Context, info *Info) error {
	var props struct {
		Build    string `json:"build_info"`
		Slots    int    `json:"total_slots"`
		Defaults struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := p.get(ctx, "/props", &props); err != nil {
		return err
	}
	info.Kind, info.Version, info.BlockSize, info.Slots = LlamaCpp, props.Build, 1, props.Slots
	for i := range info.Models {
		if n := props.Defaults.Context; n > 0 {
			info.Models[i].Context = n
		}
	}
	_, err := p.do(ctx, http.MethodGet, "/metrics", nil)
	info.Metrics = err == nil
	return ctx.Err()
}

// llamaTokens are the ids that a llama-server's chat endpoint makes of a
// conversation: it has no route that gives them in one step.
func (p *Prober) llamaTokens(ctx context.Context, modelID string, conversation map[string]any) ([]int32, error) {
	var rendered struct {
		Prompt string `json:"prompt"`
	}
	if err := p.post(ctx, "/apply-template", conversation, &rendered); err != nil {
		return nil, err
	}
	var tok struct {
		Tokens []int32 `json:"tokens"`
	}
	// The prompt comes without the token that begins a text; add_special puts it
	// there, as the chat endpoint does.
	body := map[string]any{"model": modelID, "content": rendered.Prompt, "add_special": true, "parse_special": true}
	if err := p.post(ctx, "/tokenize", body, &tok); err != nil {
		return nil, err
	}
	if len(tok.Tokens) == 0 {
		return nil, errNoIDs
	}
	return tok.Tokens, nil
}

// gbnf finds out whether a reply is held to a grammar. Some versions have gone on
// without one that they could not read (ggml-org/llama.cpp#19051).
func (p *Prober) gbnf(ctx context.Context, info *Info) error {
	const want = "ok ok ok ok"
	body := map[string]any{
		"model": info.Models[0].ID, "prompt": "Say no.", "n_predict": 16, "temperature": 0, "cache_prompt": true,
		"grammar": `root ::= "` + want + `"`,
	}
	var reply struct {
		Content string `json:"content"`
	}
	err := p.post(ctx, Completion.Path(), body, &reply)
	switch {
	case passing(err):
		return err
	case err != nil:
		info.TagReason = err.Error()
	case reply.Content == "" || !strings.HasPrefix(want, reply.Content):
		info.TagReason = "the engine did not keep to the grammar of the probe"
	default:
		info.GBNF = true
	}
	return nil
}
