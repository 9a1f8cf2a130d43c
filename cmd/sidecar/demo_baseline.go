package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// How the prompt with all tools is counted, the first that works.
const (
	byTemplate   = "the engine's /tokenize with messages and tools"
	byPrompt     = "the engine's /tokenize of the text that the hermes template makes of messages and tools"
	byVocabulary = "the Qwen3 vocabulary, of the text that the hermes template makes of messages and tools; the engine's own may differ"
)

// baseline counts the prompt of a conversation with every tool of the catalog in
// front. The prompt is counted, never sent to be answered: few models have a
// context for it.
type baseline struct {
	client *http.Client
	engine string // URL without /v1
	model  string
	tools  []json.RawMessage
	method string
	hermes *wire.Family
	// extra is what the tools add to a prompt, when that is known to be the same
	// for every conversation: 3,200 tools take an engine a second to render.
	extra    int
	constant bool
}

// newBaseline finds out how to count. An engine whose template leaves the tools
// out gives the same number with and without them.
func newBaseline(ctx context.Context, client *http.Client, engine, model string, tools []json.RawMessage) (*baseline, error) {
	b := &baseline{client: client, engine: engine, model: model, tools: tools}
	var err error
	if b.hermes, err = wire.ByName("hermes"); err != nil {
		return nil, err
	}
	hello := "hello"
	probe := []demoMessage{{Role: "user", Content: &hello}}
	without, err := b.tokenize(ctx, map[string]any{"model": model, "messages": probe})
	if err == nil {
		with, err := b.tokenize(ctx, map[string]any{"model": model, "messages": probe, "tools": tools})
		if err == nil && with > without {
			b.method = byTemplate
			b.extra, b.constant = with-without, true
			return b, nil
		}
	}
	if n, err := b.tokenize(ctx, map[string]any{"model": model, "prompt": "hello", "add_special_tokens": false}); err == nil && n > 0 {
		b.method = byPrompt
		return b, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.method = byVocabulary
	return b, nil
}

// count returns the tokens of the prompt which asks for the next message of the
// conversation. With check set it does not trust extra, but finds out.
func (b *baseline) count(ctx context.Context, messages []demoMessage, check bool) (int, error) {
	switch b.method {
	case byTemplate:
		with := -1
		if check || !b.constant {
			n, err := b.tokenize(ctx, map[string]any{"model": b.model, "messages": messages, "tools": b.tools})
			if err != nil || !b.constant {
				return n, err
			}
			with = n
		}
		without, err := b.tokenize(ctx, map[string]any{"model": b.model, "messages": messages})
		if err != nil {
			return 0, err
		}
		if check && with != without+b.extra {
			b.constant = false
			return with, nil
		}
		return without + b.extra, nil
	case byPrompt:
		return b.tokenize(ctx, map[string]any{"model": b.model, "prompt": string(b.render(messages)), "add_special_tokens": false})
	}
	return tokenizer.Qwen3().Count(string(b.render(messages))), nil
}

func (b *baseline) render(messages []demoMessage) []byte {
	msgs := make([]wire.Message, len(messages))
	for i, m := range messages {
		msgs[i].Role = m.Role
		if m.Content != nil {
			msgs[i].Content = *m.Content
		}
		for _, c := range m.ToolCalls {
			msgs[i].Calls = append(msgs[i].Calls, wire.Call{Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
	}
	return b.hermes.Render(nil, msgs, b.tools, wire.Options{AddGenerationPrompt: true})
}

func (b *baseline) tokenize(ctx context.Context, body map[string]any) (int, error) {
	var answer struct {
		Count *int `json:"count"`
	}
	addr := b.engine + "/tokenize"
	if err := postJSON(ctx, b.client, "the engine", addr, body, &answer); err != nil {
		return 0, err
	}
	if answer.Count == nil {
		return 0, fmt.Errorf("the engine at %s gives no count", addr)
	}
	return *answer.Count, nil
}
