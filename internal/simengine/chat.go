package simengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/toolsidecar/sidecar/models/wire"
)

// generateRequest is what chat and text completions share.
type generateRequest struct {
	Model               string          `json:"model"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	N                   *int            `json:"n"`
	Seed                *int64          `json:"seed"`
	MaxTokens           *int            `json:"max_tokens"`
	Stop                json.RawMessage `json:"stop"`
	IncludeStop         bool            `json:"include_stop_str_in_output"`
	Logprobs            json.RawMessage `json:"logprobs"`
	ResponseFormat      json.RawMessage `json:"response_format"`
	StructuredOutputs   json.RawMessage `json:"structured_outputs"`
	ReturnTokenIDs      bool            `json:"return_token_ids"`
	ReturnPromptText    bool            `json:"return_prompt_text"`
	CacheSalt           *string         `json:"cache_salt"`
	ContinueFinal       bool            `json:"continue_final_message"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
}

type streamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

type chatRequest struct {
	generateRequest
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Messages            []chatMessage   `json:"messages"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Parallel            *bool           `json:"parallel_tool_calls"`
	Effort              *string         `json:"reasoning_effort"`
	TemplateArgs        struct {
		EnableThinking *bool `json:"enable_thinking"`
	} `json:"chat_template_kwargs"`
	KVTransfer *struct {
		PromptTokenIDs []int32 `json:"prompt_token_ids"`
	} `json:"kv_transfer_params"`
}

type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        []struct {
		Type     string `json:"type"`
		Function *struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// wireMessages is the messages as the template gets them.
func wireMessages(in []chatMessage) ([]wire.Message, error) {
	out := make([]wire.Message, len(in))
	for i, m := range in {
		if m.Role == "" {
			return nil, badRequest("messages", "messages[%d] has no role", i)
		}
		text, err := contentText(m.Content)
		if err != nil {
			return nil, badRequest("messages", "messages[%d].content %v", i, err)
		}
		out[i] = wire.Message{Role: m.Role, Content: text, Reasoning: m.Reasoning}
		if m.Reasoning == "" {
			out[i].Reasoning = m.ReasoningContent
		}
		for _, c := range m.ToolCalls {
			if c.Type != "" && c.Type != "function" || c.Function == nil {
				return nil, badRequest("tool_calls", "chat completions only support assistant tool_calls of type 'function'.")
			}
			args := string(c.Function.Arguments)
			if strings.HasPrefix(args, `"`) {
				if err := json.Unmarshal(c.Function.Arguments, &args); err != nil {
					return nil, badRequest("tool_calls", "%v", err)
				}
			}
			out[i].Calls = append(out[i].Calls, wire.Call{Name: c.Function.Name, Arguments: args})
		}
	}
	return out, nil
}

// contentText is the text of a content: a string, null, or text parts, which
// are joined by newlines.
func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", errors.New("is neither a string nor a list of parts")
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("has a part of type %q; this engine reads text only", p.Type)
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), nil
}

// readToolsField checks the tools field and reads its tools.
func readToolsField(raw json.RawMessage) (asGiven []json.RawMessage, tools []*tool, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil, nil
	}
	if json.Unmarshal(raw, &asGiven) != nil {
		return nil, nil, badRequest("tools", "`tools` must be a list of tools")
	}
	if len(asGiven) == 0 {
		return nil, nil, badRequest("tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.")
	}
	for i, t := range asGiven {
		var shape struct {
			Function *struct {
				Name       *string         `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if json.Unmarshal(t, &shape) != nil || shape.Function == nil || shape.Function.Name == nil {
			return nil, nil, badRequest("tools", "tools[%d] must be {\"type\": \"function\", \"function\": {\"name\": …}}", i)
		}
		if p := shape.Function.Parameters; len(p) > 0 && p[0] != '{' && string(p) != "null" {
			return nil, nil, badRequest("tools", "tools[%d].function.parameters must be an object", i)
		}
		tools = append(tools, readTool(string(wire.AppendTool(nil, t))))
		if tools[i] == nil {
			return nil, nil, badRequest("tools", "tools[%d] has no usable name", i)
		}
	}
	return asGiven, tools, nil
}

// readNative reads tools and tool_choice.
func readNative(r *chatRequest, tools []*tool) (*nativeTools, error) {
	n := &nativeTools{tools: tools, choice: "auto", parallel: r.Parallel == nil || *r.Parallel}
	if len(r.ToolChoice) > 0 && string(r.ToolChoice) != "null" {
		var word string
		var named struct {
			Type     string `json:"type"`
			Function *struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		switch {
		case json.Unmarshal(r.ToolChoice, &word) == nil:
			if word == "none" && tools == nil {
				return nil, nil
			}
			if tools == nil {
				return nil, badRequest("tool_choice", "When using `tool_choice`, `tools` must be set.")
			}
			if word != "auto" && word != "required" && word != "none" {
				return nil, badRequest("tool_choice", "Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" are supported.", word)
			}
			n.choice = word
		case json.Unmarshal(r.ToolChoice, &named) == nil && named.Function != nil && named.Function.Name != "" && (named.Type == "" || named.Type == "function"):
			if tools == nil {
				return nil, badRequest("tool_choice", "When using `tool_choice`, `tools` must be set.")
			}
			n.choice, n.named = "named", named.Function.Name
			known := false
			for _, t := range tools {
				known = known || t.name == n.named
			}
			if !known {
				return nil, badRequest("tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`")
			}
		default:
			return nil, badRequest("tool_choice", "Invalid value for `tool_choice`! Only named tools, \"none\", \"auto\" or \"required\" are supported.")
		}
	}
	if tools == nil {
		return nil, nil
	}
	return n, nil
}

// maxChoices is the most choices of a request.
const maxChoices = 128

// idsParam is the parameter that gives the prompt as tokens.
const idsParam = "kv_transfer_params.prompt_token_ids"

// generation checks what chat and text completions share.
func (e *Engine) generation(r *generateRequest, maxTokens *int, prompt []int32) (*generation, int, error) {
	if r.Model != "" && r.Model != e.cfg.Model {
		return nil, 0, &apiError{http.StatusNotFound, "NotFoundError", fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", r.Model, e.cfg.Model), "model"}
	}
	if r.StreamOptions != nil && !r.Stream {
		return nil, 0, badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	if l := string(r.Logprobs); l != "" && l != "null" && l != "false" && l != "0" {
		return nil, 0, badRequest("logprobs", "the simulated engine has no logprobs; leave the field out")
	}
	if r.ContinueFinal {
		return nil, 0, badRequest("continue_final_message", "the simulated engine does not continue messages")
	}
	n := 1
	if r.N != nil {
		n = *r.N
	}
	if n < 1 {
		return nil, 0, badRequest("", "n must be at least 1, got %d.", n)
	}
	if n > maxChoices {
		return nil, 0, badRequest("", "n must be at most %d, got %d.", maxChoices, n)
	}
	g := &generation{prompt: prompt, includeEnd: r.IncludeStop, parallel: true}
	if r.Seed != nil {
		g.seed = uint64(*r.Seed)
	}
	if r.CacheSalt != nil {
		g.salt = *r.CacheSalt
		if g.salt == "" {
			return nil, 0, badRequest("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
		}
		if len(g.salt) > 128 || strings.ContainsAny(g.salt, "@/\\\x00") {
			return nil, 0, badRequest("cache_salt", "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\', or NUL.")
		}
	}
	if len(r.Stop) > 0 && string(r.Stop) != "null" {
		var one string
		if json.Unmarshal(r.Stop, &one) == nil {
			g.stop = []string{one}
		} else if json.Unmarshal(r.Stop, &g.stop) != nil {
			return nil, 0, badRequest("stop", "stop must be a string or a list of strings")
		}
		for _, s := range g.stop {
			if s == "" {
				return nil, 0, badRequest("", "stop cannot contain an empty string.")
			}
		}
	}
	if len(prompt) == 0 {
		return nil, 0, badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	}
	for _, id := range prompt {
		if _, _, ok := e.tok.Token(id); !ok {
			return nil, 0, badRequest(idsParam, "Token id %d is out of vocabulary", id)
		}
	}
	room := e.cfg.MaxModelLen - len(prompt)
	if room < 1 {
		return nil, 0, badValue("input_tokens", len(prompt), "This model's maximum context length is %d tokens. However, your prompt contains %d input tokens, "+
			"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.", e.cfg.MaxModelLen, len(prompt))
	}
	g.maxTokens = room
	if maxTokens != nil {
		if *maxTokens < 1 {
			return nil, 0, badValue("max_tokens", *maxTokens, "max_tokens must be at least 1, got %d.", *maxTokens)
		}
		if *maxTokens > e.cfg.MaxModelLen {
			return nil, 0, badValue("max_tokens", *maxTokens, "max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", *maxTokens, e.cfg.MaxModelLen)
		}
		g.maxTokens = min(*maxTokens, room)
	}
	var err error
	g.constraint, err = parseConstraint(r.ResponseFormat, r.StructuredOutputs)
	return g, n, err
}

func (e *Engine) serveChat(w http.ResponseWriter, r *http.Request) {
	var req chatRequest
	if err := readBody(w, r, &req); err != nil {
		writeError(w, err)
		return
	}
	if err := e.chat(w, r, &req); err != nil {
		writeError(w, err)
	}
}

func (e *Engine) chat(w http.ResponseWriter, r *http.Request, req *chatRequest) error {
	if len(req.Messages) == 0 {
		return badRequest("", "Cannot apply chat template to an empty conversation. Provide at least one message.")
	}
	raw, tools, err := readToolsField(req.Tools)
	if err != nil {
		return err
	}
	native, err := readNative(req, tools)
	if err != nil {
		return err
	}
	msgs, err := wireMessages(req.Messages)
	if err != nil {
		return err
	}
	var prompt []int32
	if req.KVTransfer != nil && req.KVTransfer.PromptTokenIDs != nil {
		if prompt = req.KVTransfer.PromptTokenIDs; len(prompt) == 0 {
			return badRequest(idsParam, "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.")
		}
	} else {
		opt := wire.Options{AddGenerationPrompt: req.AddGenerationPrompt == nil || *req.AddGenerationPrompt, EnableThinking: req.TemplateArgs.EnableThinking}
		if req.Effort != nil && opt.EnableThinking == nil {
			thinks := *req.Effort != "none"
			opt.EnableThinking = &thinks
		}
		prompt = e.tok.Encode(nil, string(e.family.Render(nil, msgs, raw, opt)))
	}
	maxTokens := req.MaxTokens
	if req.MaxCompletionTokens != nil {
		maxTokens = req.MaxCompletionTokens
	}
	g, n, err := e.generation(&req.generateRequest, maxTokens, prompt)
	if err != nil {
		return err
	}
	g.native = native
	g.parallel = req.Parallel == nil || *req.Parallel
	choices, err := e.planAll(g, n)
	if err != nil {
		return err
	}
	a := &answer{
		e: e, req: &req.generateRequest, prompt: prompt, choices: choices, chat: true,
		parse: native != nil && native.choice != "none", named: native != nil && native.choice == "named",
	}
	return a.serve(w, r)
}

func (e *Engine) planAll(g *generation, n int) ([]*choice, error) {
	out := make([]*choice, n)
	for i := range out {
		c, err := e.plan(g, i)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

type completionRequest struct {
	generateRequest
	Prompt json.RawMessage `json:"prompt"`
	Echo   bool            `json:"echo"`
	Suffix *string         `json:"suffix"`
}

func (e *Engine) serveCompletion(w http.ResponseWriter, r *http.Request) {
	var req completionRequest
	err := readBody(w, r, &req)
	if err == nil {
		err = e.completion(w, r, &req)
	}
	if err != nil {
		writeError(w, err)
	}
}

// completionDefault is the max_tokens of a text completion that gives none.
const completionDefault = 16

func (e *Engine) completion(w http.ResponseWriter, r *http.Request, req *completionRequest) error {
	if req.Echo || req.Suffix != nil {
		return badRequest("echo", "the simulated engine has neither echo nor suffix")
	}
	prompts, err := e.readPrompts(req.Prompt)
	if err != nil {
		return err
	}
	if req.MaxTokens == nil {
		d := completionDefault
		req.MaxTokens = &d
	}
	a := &answer{e: e, req: &req.generateRequest, prompt: prompts[0]}
	for _, p := range prompts {
		g, n, err := e.generation(&req.generateRequest, req.MaxTokens, p)
		if err != nil {
			return err
		}
		choices, err := e.planAll(g, n)
		if err != nil {
			return err
		}
		a.choices = append(a.choices, choices...)
		a.others += len(p)
	}
	a.others -= len(prompts[0])
	return a.serve(w, r)
}

// readPrompts reads a prompt: a text, token ids, or a list of either.
func (e *Engine) readPrompts(raw json.RawMessage) ([][]int32, error) {
	var text string
	var texts []string
	var ids []int32
	var lists [][]int32
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return [][]int32{e.tok.Encode(nil, text)}, nil
	case json.Unmarshal(raw, &ids) == nil && len(ids) > 0:
		return [][]int32{ids}, nil
	case json.Unmarshal(raw, &texts) == nil && len(texts) > 0:
		for _, t := range texts {
			lists = append(lists, e.tok.Encode(nil, t))
		}
		return lists, nil
	case json.Unmarshal(raw, &lists) == nil && len(lists) > 0:
		return lists, nil
	}
	return nil, badRequest("prompt", "prompt must be a text, a list of token ids, or a list of either")
}

// gone reports whether an error means that nobody reads the answer any more.
func gone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errGone)
}
