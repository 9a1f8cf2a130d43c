package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// An Agent is a client library with a script below tools/clients that runs an
// agent loop as the library's users write it: its own tools, its own history.
type Agent string

const (
	LoopOpenAIPython Agent = "openai-python"
	LoopOpenAINode   Agent = "openai-node"
	LoopLangChain    Agent = "langchain"
	LoopPydanticAI   Agent = "pydantic-ai"
	LoopLiteLLM      Agent = "litellm"
	LoopAISDK        Agent = "ai-sdk"
)

// Agents are all of them.
var Agents = []Agent{LoopOpenAIPython, LoopOpenAINode, LoopLangChain, LoopPydanticAI, LoopLiteLLM, LoopAISDK}

// A Loop is one conversation: for each user text so many rounds of calls, which
// the request makes the model do, and a closing answer.
type Loop struct {
	ID      string         `json:"id"` // unique among the loops of one Runner
	BaseURL string         `json:"base_url"`
	Model   string         `json:"model"`
	Stream  bool           `json:"stream"`
	Users   []string       `json:"users"`
	Rounds  int            `json:"rounds"`
	Params  map[string]any `json:"params"` // sampling, by the API's names
}

// A LoopAnswer is one reply of the model as the library shows it.
type LoopAnswer struct {
	Text         string     `json:"text"`
	ToolCalls    []LoopCall `json:"tool_calls"`
	FinishReason string     `json:"finish_reason"` // in the library's words
	Usage        struct {
		Prompt     int  `json:"prompt"`
		Completion int  `json:"completion"`
		Cached     *int `json:"cached"` // nil when the library shows none
	} `json:"usage"`
}

// A LoopCall is a tool call with its arguments read by the library.
type LoopCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// A LoopRunner is a running Agent.
type LoopRunner struct{ runner *runner }

// StartLoops starts an agent on the terms of Connect.
func StartLoops(t testing.TB, agent Agent) *LoopRunner {
	t.Helper()
	scripts := map[Agent]string{
		LoopOpenAIPython: "python/loop_openai.py", LoopLangChain: "python/loop_langchain.py",
		LoopPydanticAI: "python/loop_pydantic_ai.py", LoopLiteLLM: "python/loop_litellm.py",
		LoopOpenAINode: "node/loop_openai.mjs", LoopAISDK: "node/loop_ai_sdk.mjs",
	}
	return &LoopRunner{startRunner(t, string(agent), scripts[agent])}
}

// Run runs one loop. The error is the client's, or about it.
func (r *LoopRunner) Run(ctx context.Context, loop Loop) ([]LoopAnswer, error) {
	var reply struct {
		Answers []LoopAnswer `json:"answers"`
		Error   string       `json:"error"`
	}
	if err := r.runner.exchange(ctx, loop.ID, loop, &reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return reply.Answers, errors.New(reply.Error)
	}
	return reply.Answers, nil
}
