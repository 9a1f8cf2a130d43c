//go:build engines

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/toolsidecar/sidecar/internal/enginetest"
)

const (
	loopSystem = "You keep a warehouse – answer with tools. Prices are in €."
	loopResult = `{"ok": true, "rows": ["Zürich; 12 €", "Łódź; 7 €"], "note": "see \"B\"\n"}`
)

// loopTools are the tools of the agent loops; those in other languages declare the
// same in their own way.
var loopTools = []json.RawMessage{
	json.RawMessage(`{"type":"function","function":{"name":"find_orders","description":"Orders of a city, newest first.","parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":12},"status":{"type":"string","enum":["open","paid & sent"]},"limit":{"type":["integer","null"],"minimum":1,"maximum":20}},"required":["city","status"]}}}`),
	json.RawMessage(`{"type":"function","function":{"name":"move_stock","description":"Moves an article within the warehouse.","parameters":{"type":"object","properties":{"article":{"type":"integer","minimum":0,"maximum":9999},"to":{"type":"object","properties":{"aisle":{"type":"integer","minimum":1,"maximum":99},"shelf":{"type":"string","enum":["low","high"]}},"required":["aisle","shelf"]},"tags":{"type":"array","items":{"type":"string","enum":["fragile","größer"]},"maxItems":2}},"required":["article","to","tags"]}}}`),
}

// openaiGoLoop is the agent loop with openai-go.
func openaiGoLoop(ctx context.Context, loop enginetest.Loop) ([]enginetest.LoopAnswer, error) {
	client := openai.NewClient(openaioption.WithBaseURL(loop.BaseURL), openaioption.WithAPIKey("none"), openaioption.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{Model: loop.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(loopSystem)}}
	for _, raw := range loopTools {
		var tool struct {
			Function shared.FunctionDefinitionParam
		}
		if err := json.Unmarshal(raw, &tool); err != nil {
			return nil, err
		}
		params.Tools = append(params.Tools, openai.ChatCompletionFunctionTool(tool.Function))
	}
	var options []openaioption.RequestOption
	for name, value := range loop.Params {
		options = append(options, openaioption.WithJSONSet(name, value))
	}
	var answers []enginetest.LoopAnswer
	for _, user := range loop.Users {
		params.Messages = append(params.Messages, openai.UserMessage(user))
		for turn := range loop.Rounds + 1 {
			params.ToolChoice.OfAuto = openai.String("required")
			params.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{}
			if turn == loop.Rounds {
				params.ToolChoice.OfAuto = openai.String("none")
				params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
					Name: "closing", Schema: map[string]any{"type": "object", "properties": map[string]any{"state": map[string]any{"type": "string", "enum": []string{"done", "to be continued"}}}, "required": []string{"state"}},
				}}
			}
			completion, err := openaiGoCompletion(ctx, &client, params, loop.Stream, options)
			if err != nil {
				return answers, err
			}
			choice := completion.Choices[0]
			params.Messages = append(params.Messages, choice.Message.ToParam())
			cached := int(completion.Usage.PromptTokensDetails.CachedTokens)
			answer := enginetest.LoopAnswer{Text: choice.Message.Content, FinishReason: choice.FinishReason}
			answer.Usage.Prompt, answer.Usage.Completion, answer.Usage.Cached = int(completion.Usage.PromptTokens), int(completion.Usage.CompletionTokens), &cached
			for _, c := range choice.Message.ToolCalls {
				answer.ToolCalls = append(answer.ToolCalls, enginetest.LoopCall{ID: c.ID, Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
				params.Messages = append(params.Messages, openai.ToolMessage(loopResult, c.ID))
			}
			answers = append(answers, answer)
		}
	}
	return answers, nil
}

func openaiGoCompletion(ctx context.Context, client *openai.Client, params openai.ChatCompletionNewParams, stream bool, options []openaioption.RequestOption) (*openai.ChatCompletion, error) {
	if !stream {
		return client.Chat.Completions.New(ctx, params, options...)
	}
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	events := client.Chat.Completions.NewStreaming(ctx, params, options...)
	defer events.Close()
	var sum openai.ChatCompletionAccumulator
	for events.Next() {
		if !sum.AddChunk(events.Current()) {
			return nil, fmt.Errorf("a chunk that does not fit the ones before: %s", events.Current().RawJSON())
		}
	}
	return &sum.ChatCompletion, events.Err()
}
