package simengine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// server is an engine behind real HTTP.
type server struct {
	*Engine
	t      testing.TB
	url    string
	client *http.Client
}

func start(t testing.TB, cfg Config) *server {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(e)
	tr := &http.Transport{}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		hs.Close()
		if running, waiting, usage := e.sched.load(); running != 0 || waiting != 0 || usage != 0 {
			t.Errorf("at the end %d requests run, %d wait, usage %v", running, waiting, usage)
		}
	})
	return &server{e, t, hs.URL, &http.Client{Transport: tr}}
}

func (s *server) do(ctx context.Context, method, path, body, fault string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if fault != "" {
		req.Header.Set(FaultHeader, fault)
	}
	return s.client.Do(req)
}

func (s *server) post(path, body string) (int, string) {
	s.t.Helper()
	resp, err := s.do(s.t.Context(), "POST", path, body, "")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

type reply struct {
	Choices []struct {
		Message struct {
			Content   *string
			ToolCalls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Text         string
		FinishReason string  `json:"finish_reason"`
		StopReason   any     `json:"stop_reason"`
		TokenIDs     []int32 `json:"token_ids"`
		PromptIDs    []int32 `json:"prompt_token_ids"` // in text completions
	}
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Usage          struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
		Details          *struct {
			Cached  int  `json:"cached_tokens"`
			Created *int `json:"created_cache_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Model       string
	Fingerprint string `json:"system_fingerprint"`
}

func (r *reply) content() string {
	if c := r.Choices[0].Message.Content; c != nil {
		return *c
	}
	return ""
}

func (s *server) ok(path, body string) *reply {
	s.t.Helper()
	status, text := s.post(path, body)
	if status != 200 {
		s.t.Fatalf("%s %s: %d %s", path, body, status, text)
	}
	var r reply
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return &r
}

func marshal(v any) string { return string(encode(v)) }

const chat, completions = "/v1/chat/completions", "/v1/completions"

const twoTools = `[
 {"type":"function","function":{"name":"get_weather","description":"Current weather of a city","parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":30},"unit":{"enum":["fahrenheit","celsius"]}},"required":["city"],"additionalProperties":false}}},
 {"type":"function","function":{"name":"send_email","parameters":{"type":"object","properties":{"to":{"type":"string","format":"email"},"body":{"type":"string"}},"required":["to","body"]}}}]`

func TestSaysWhatItIs(t *testing.T) {
	s := start(t, Config{MaxModelLen: 5000})
	r := s.ok(chat, `{"messages":[{"role":"user","content":"Hello there"}]}`)
	if !strings.HasPrefix(r.Fingerprint, "sidecar-sim-") || r.Model != "sim-qwen3" {
		t.Errorf("fingerprint %q, model %q", r.Fingerprint, r.Model)
	}
	resp, err := s.do(t.Context(), "GET", "/v1/models", "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var models struct {
		Data []struct {
			ID      string
			OwnedBy string `json:"owned_by"`
			Max     int    `json:"max_model_len"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&models); err != nil {
		t.Fatal(err)
	}
	if len(models.Data) != 1 || models.Data[0].ID != "sim-qwen3" || models.Data[0].OwnedBy != "sidecar-sim" || models.Data[0].Max != 5000 {
		t.Errorf("models: %+v", models)
	}
}

// TestPromptIsExact: /tokenize, the ids that are returned and the usage are the
// template's rendering, tools included.
func TestPromptIsExact(t *testing.T) {
	s := start(t, Config{})
	messages := `[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Zürich?"},{"type":"text","text":"now"}]},
	 {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Z\\u00fcrich\",  \"n\":1e5}"}}]},
	 {"role":"tool","tool_call_id":"1","content":"cold"}]`
	var tools []json.RawMessage
	if err := json.Unmarshal([]byte(twoTools), &tools); err != nil {
		t.Fatal(err)
	}
	f, _ := wire.ByName("qwen3")
	text := f.Render(nil, []wire.Message{
		{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Zürich?\nnow"},
		{Role: "assistant", Calls: []wire.Call{{Name: "get_weather", Arguments: `{"city":"Zürich","n":100000.0}`}}}, {Role: "tool", Content: "cold"},
	}, tools, wire.Options{AddGenerationPrompt: true})
	want := tokenizer.Qwen3().Encode(nil, string(text))
	r := s.ok(chat, `{"return_token_ids":true,"messages":`+messages+`,"tools":`+twoTools+`}`)
	if !reflect.DeepEqual(r.PromptTokenIDs, want) || r.Usage.PromptTokens != len(want) {
		t.Errorf("%d prompt tokens, usage %d; the template has %d", len(r.PromptTokenIDs), r.Usage.PromptTokens, len(want))
	}
	_, body := s.post("/tokenize", `{"messages":`+messages+`,"tools":`+twoTools+`}`)
	var tok struct {
		Count, MaxModelLen int
		Tokens             []int32
	}
	if err := json.Unmarshal([]byte(body), &tok); err != nil || !reflect.DeepEqual(tok.Tokens, want) || tok.Count != len(want) {
		t.Errorf("/tokenize: %v, %d tokens", err, tok.Count)
	}
	_, body = s.post("/detokenize", `{"tokens":`+marshal(want)+`}`)
	var back struct{ Prompt string }
	if err := json.Unmarshal([]byte(body), &back); err != nil || back.Prompt != string(text) {
		t.Errorf("/detokenize: %q", back.Prompt)
	}
	r = s.ok(chat, `{"messages":[{"role":"user","content":"x"}],"return_token_ids":true,"kv_transfer_params":{"prompt_token_ids":`+marshal(want)+`}}`)
	if !reflect.DeepEqual(r.PromptTokenIDs, want) {
		t.Error("kv_transfer_params.prompt_token_ids is not the prompt")
	}
	r = s.ok(completions, `{"prompt":`+marshal(want)+`,"return_token_ids":true}`)
	if !reflect.DeepEqual(r.Choices[0].PromptIDs, want) || r.Usage.CompletionTokens > 16 {
		t.Errorf("/v1/completions with ids: %d prompt tokens, %d completion tokens", len(r.Choices[0].PromptIDs), r.Usage.CompletionTokens)
	}
}

// TestPrefixCache repeats the numbers of a real vLLM 0.32: 259 tokens, blocks
// of 128, first nothing and then 256 cached; 518 queried, 256 hit.
func TestPrefixCache(t *testing.T) {
	s := start(t, Config{BlockSize: 128, PromptTokensDetails: true})
	body := `{"prompt":` + marshal(ids(1000, 259)) + `,"max_tokens":3}`
	if r := s.ok(completions, body); r.Usage.Details == nil || r.Usage.Details.Cached != 0 {
		t.Errorf("first: %+v", r.Usage)
	}
	if r := s.ok(completions, body); r.Usage.Details == nil || r.Usage.Details.Cached != 256 {
		t.Errorf("second: %+v", r.Usage)
	}
	m := s.metrics()
	for _, line := range []string{
		`vllm:prefix_cache_queries_total{engine="0",model_name="sim-qwen3"} 518`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="sim-qwen3"} 256`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="sim-qwen3"} 2`,
		`vllm:num_requests_running{engine="0",model_name="sim-qwen3"} 0`,
		`vllm:generation_tokens_total{engine="0",model_name="sim-qwen3"} 6`,
	} {
		if !strings.Contains(m, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, part := range []string{`block_size="128"`, `num_gpu_blocks="16384"`, "vllm:prefix_cache_hits_created{", "vllm:kv_cache_usage_perc{", "vllm:num_requests_waiting{", "vllm:time_to_first_token_seconds_bucket{"} {
		if !strings.Contains(m, part) {
			t.Errorf("no %s in the metrics", part)
		}
	}
	if r := s.ok(completions, strings.Replace(body, `{`, `{"cache_salt":"other",`, 1)); r.Usage.Details.Cached != 0 {
		t.Errorf("another salt found %d tokens", r.Usage.Details.Cached)
	}
}

func (s *server) metrics() string {
	resp, err := s.do(s.t.Context(), "GET", "/metrics", "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func TestCachedTokensAreOffByDefault(t *testing.T) {
	s := start(t, Config{})
	for range 2 {
		if _, body := s.post(chat, `{"messages":[{"role":"user","content":"`+strings.Repeat("hello ", 50)+`"}]}`); !strings.Contains(body, `"prompt_tokens_details":null`) {
			t.Error(body)
		}
	}
}

// TestTokenLoop: turns whose prompts are the last one's tokens, the generated
// ones and a tail find everything cached up to the block of the last token with KV.
func TestTokenLoop(t *testing.T) {
	s := start(t, Config{BlockSize: 32, PromptTokensDetails: true})
	tok := tokenizer.Qwen3()
	prompt := tok.Encode(nil, "<|im_start|>user\n"+strings.Repeat("Tell me of Oslo. ", 30)+"<|im_end|>\n<|im_start|>assistant\n")
	before := 0
	for turn := range 6 {
		r := s.ok(chat, `{"messages":[{"role":"user","content":"-"}],"return_token_ids":true,"kv_transfer_params":{"prompt_token_ids":`+marshal(prompt)+`}}`)
		want := max(0, before-1) / 32 * 32
		if r.Usage.Details.Cached != want {
			t.Errorf("turn %d: cached %d of %d, ceiling %d", turn, r.Usage.Details.Cached, len(prompt), want)
		}
		before = r.Usage.TotalTokens
		prompt = append(prompt, r.Choices[0].TokenIDs...)
		if len(prompt) != before {
			t.Fatalf("%d tokens, usage says %d", len(prompt), before)
		}
		prompt = tok.Encode(prompt, fmt.Sprintf("\n<|im_start|>user\nMore of it, number %d.<|im_end|>\n<|im_start|>assistant\n", turn))
	}
}

func TestErrors(t *testing.T) {
	s := start(t, Config{MaxModelLen: 300})
	user := `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{chat, `{`, 400, "no JSON"},
		{chat, `{"messages":7}`, 400, "messages"},
		{chat, `{}`, 400, "empty conversation"},
		{chat, `{"model":"other",` + user + `}`, 404, "NotFoundError"},
		{chat, `{` + user + `,"tools":[]}`, 400, "must not be an empty array"},
		{chat, `{` + user + `,"tools":[{"type":"function"}]}`, 400, "tools[0]"},
		{chat, `{` + user + `,"tool_choice":"required"}`, 400, "`tools` must be set"},
		{chat, `{` + user + `,"tools":` + twoTools + `,"tool_choice":"some"}`, 400, "Invalid value"},
		{chat, `{` + user + `,"tools":` + twoTools + `,"tool_choice":{"type":"function","function":{"name":"nope"}}}`, 400, "does not match any"},
		{chat, `{` + user + `,"tools":` + twoTools + `,"tool_choice":{"type":"allowed_tools"}}`, 400, "Invalid value"},
		{chat, `{` + user + `,"max_tokens":0}`, 400, `"param":"max_tokens"`},
		{chat, `{` + user + `,"max_completion_tokens":1000}`, 400, "max_tokens=1000 cannot be greater than max_model_len=300. Please request fewer output tokens. (parameter=max_tokens, value=1000)"},
		{chat, `{"messages":[{"role":"user","content":"` + strings.Repeat("long ", 400) + `"}]}`, 400, `"param":"input_tokens"`},
		{chat, `{` + user + `,"stream_options":{"include_usage":true}}`, 400, "stream=True"},
		{chat, `{` + user + `,"logprobs":true}`, 400, "logprobs"},
		{chat, `{` + user + `,"n":0}`, 400, "n must be at least 1, got 0."},
		{chat, `{` + user + `,"stop":[""]}`, 400, "stop"},
		{chat, `{` + user + `,"cache_salt":""}`, 400, "cache_salt"},
		{chat, `{` + user + `,"cache_salt":"a/b"}`, 400, "cache_salt"},
		{chat, `{` + user + `,"cache_salt":"` + strings.Repeat("x", 129) + `"}`, 400, "cache_salt"},
		{chat, `{` + user + `,"response_format":{"type":"yaml"}}`, 400, "yaml"},
		{chat, `{` + user + `,"response_format":{"type":"structural_tag","format":{"type":"nope"}}}`, 400, badTag},
		{chat, `{` + user + `,"response_format":{"type":"structural_tag"}}`, 400, badTag},
		{chat, `{` + user + `,"response_format":{"type":"structural_tag","format":{"type":"dispatch"}}}`, 400, "does not support the format dispatch"},
		{chat, `{` + user + `,"response_format":{"type":"structural_tag","format":{"type":"json_schema","json_schema":{},"max_whitespace_cnt":0}}}`, 400, badTag},
		{chat, `{` + user + `,"response_format":{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<b>"],"tags":[{"type":"tag","begin":"<a>","content":{"type":"any_text"},"end":"</a>"}]}}}`, 400, badTag},
		{chat, `{` + user + `,"structured_outputs":{"regex":"a","choice":["b"]}}`, 400, "only use one kind"},
		{chat, `{` + user + `,"structured_outputs":{"structural_tag":{}}}`, 400, "Invalid structured_outputs structural_tag specification. (parameter=structured_outputs)"},
		{chat, `{` + user + `,"kv_transfer_params":{"prompt_token_ids":[1,99999999]}}`, 400, "out of vocabulary"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "image_url"},
		{completions, `{"prompt":""}`, 400, "non-empty"},
		{completions, `{"prompt":{}}`, 400, "prompt must be"},
		{"/tokenize", `{}`, 400, "prompt or messages"},
		{"/detokenize", `{"tokens":[-1]}`, 400, "tokens"},
		{"/v1/embeddings", `{"input":"x","dimensions":0}`, 400, "dimensions"},
		{"/v1/chat/completions/render", `{}`, 403, "Scale-out endpoints are disabled"},
		{"/v1/nothing", `{}`, 404, "Not Found"},
	} {
		status, body := s.post(tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, strings.Trim(marshal(tt.want), `"`)) && !strings.Contains(body, tt.want) {
			t.Errorf("%s %.150s: %d %s; want %d %s", tt.path, tt.body, status, body, tt.status, tt.want)
		}
	}
	if status, body := s.post(chat, `{`+user+`,"unknown_field":[1],"guided_regex":"x","temperature":0.5}`); status != 200 {
		t.Errorf("unknown fields: %d %s", status, body)
	}
}

// streamed is a stream put together again.
type streamed struct {
	text   map[int]string
	names  map[string]string // "choice.call" -> name
	args   map[string]string
	finish map[int]string
	ids    map[int][]int32
	usage  *usage
	done   bool
	events int
}

func readStream(r io.Reader) (*streamed, error) {
	s := &streamed{text: map[int]string{}, names: map[string]string{}, args: map[string]string{}, finish: map[int]string{}, ids: map[int][]int32{}}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<22)
	for sc.Scan() {
		line := sc.Text()
		if line == "" {
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			return s, fmt.Errorf("line %q", line)
		}
		s.events++
		if data == "[DONE]" {
			s.done = true
			continue
		}
		var c struct {
			Choices []struct {
				Index int
				Text  string
				Delta struct {
					Role, Content string
					ToolCalls     []toolCall `json:"tool_calls"`
				}
				Finish string  `json:"finish_reason"`
				IDs    []int32 `json:"token_ids"`
			}
			Usage *usage
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return s, fmt.Errorf("event %d: %w", s.events, err)
		}
		if c.Usage != nil && len(c.Choices) == 0 {
			s.usage = c.Usage
		}
		for _, ch := range c.Choices {
			s.text[ch.Index] += ch.Text + ch.Delta.Content
			s.ids[ch.Index] = append(s.ids[ch.Index], ch.IDs...)
			for _, tc := range ch.Delta.ToolCalls {
				k := fmt.Sprintf("%d.%d", ch.Index, *tc.Index)
				s.names[k] += tc.Function.Name
				if tc.Function.Arguments != nil {
					s.args[k] += *tc.Function.Arguments
				}
			}
			if ch.Finish != "" {
				s.finish[ch.Index] += ch.Finish
			}
		}
	}
	return s, sc.Err()
}

func tagOf(names ...string) string {
	var tags []any
	for _, n := range names {
		tags = append(tags, object{"type": "tag", "begin": "<tool_call>\n{\"name\": \"" + n + "\", \"arguments\": ", "end": "}\n</tool_call>",
			"content": object{"type": "json_schema", "json_schema": object{"type": "object", "properties": object{"city": object{"type": "string", "maxLength": 12}}, "required": []string{"city"}, "additionalProperties": false}, "max_whitespace_cnt": 1}})
	}
	return marshal(object{"type": "structural_tag", "format": object{"type": "triggered_tags", "triggers": []string{"<tool_call>"}, "tags": tags, "at_least_one": true}})
}

var bodies = map[string]string{
	"text":        `"messages":[{"role":"user","content":"Hello there 🙂 naïve friend"}]`,
	"native call": `"messages":[{"role":"user","content":"What is the weather in Zürich in celsius?"}],"tools":` + twoTools,
	"named":       `"messages":[{"role":"user","content":"Hello"}],"tools":` + twoTools + `,"tool_choice":{"type":"function","function":{"name":"send_email"}}`,
	"required":    `"messages":[{"role":"user","content":"Hello"}],"tools":` + twoTools + `,"tool_choice":"required"`,
	"none":        `"messages":[{"role":"user","content":"weather in Oslo"}],"tools":` + twoTools + `,"tool_choice":"none"`,
	"parallel":    `"messages":[{"role":"user","content":"In parallel: the weather in Oslo, and an email to ada@example.com"}],"tools":` + twoTools,
	"n":           `"n":3,"messages":[{"role":"user","content":"Hello"}]`,
	"cut":         `"max_tokens":7,"messages":[{"role":"user","content":"Hello there friend"}]`,
	"cut call":    `"max_tokens":9,"messages":[{"role":"user","content":"weather in Oslo"}],"tools":` + twoTools,
	"stop":        `"stop":["You"," said"],"messages":[{"role":"user","content":"Hello"}]`,
	"stop kept":   `"stop":"You sa","include_stop_str_in_output":true,"messages":[{"role":"user","content":"Hello"}]`,
	"tag":         `"messages":[{"role":"user","content":"weather in Oslo"}],"response_format":` + tagOf("get_weather", "other"),
	"tag, native": `"messages":[{"role":"user","content":"weather in Oslo"}],"tools":` + twoTools + `,"response_format":` + tagOf("get_weather", "other"),
	"json":        `"messages":[{"role":"user","content":"Oslo"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}`,
}

// TestStreamIsWhole: a stream put together is the whole answer, and both have
// the same tokens.
func TestStreamIsWhole(t *testing.T) {
	s := start(t, Config{})
	for name, body := range bodies {
		whole := s.ok(chat, `{"return_token_ids":true,`+body+`}`)
		resp, err := s.do(t.Context(), "POST", chat, `{"return_token_ids":true,"stream":true,"stream_options":{"include_usage":true},`+body+`}`, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := readStream(resp.Body)
		resp.Body.Close()
		if err != nil || !got.done || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("%s: %v, done %v, %s", name, err, got.done, resp.Header.Get("Content-Type"))
			continue
		}
		if got.usage == nil || got.usage.CompletionTokens != whole.Usage.CompletionTokens || got.usage.PromptTokens != whole.Usage.PromptTokens {
			t.Errorf("%s: usage %+v, whole %+v", name, got.usage, whole.Usage)
		}
		tokens := 0
		for i, c := range whole.Choices {
			tokens += len(c.TokenIDs)
			if !reflect.DeepEqual(got.ids[i], c.TokenIDs) {
				t.Errorf("%s: tokens %v, whole %v", name, got.ids[i], c.TokenIDs)
			}
			text := ""
			if c.Message.Content != nil {
				text = *c.Message.Content
			}
			// a cut call is text in a whole answer and fragments in a stream, as in vLLM
			if got.text[i] != text && name != "cut call" {
				t.Errorf("%s: text %q, whole %q", name, got.text[i], text)
			}
			if got.finish[i] != c.FinishReason {
				t.Errorf("%s: finish %q, whole %q", name, got.finish[i], c.FinishReason)
			}
			for k, call := range c.Message.ToolCalls {
				key := fmt.Sprintf("%d.%d", i, k)
				if got.names[key] != call.Function.Name || got.args[key] != call.Function.Arguments || call.Function.Name == "" {
					t.Errorf("%s: call %s(%s), whole %s(%s)", name, got.names[key], got.args[key], call.Function.Name, call.Function.Arguments)
				}
			}
			if n := len(got.names); n != len(c.Message.ToolCalls) && name != "cut call" && len(whole.Choices) == 1 {
				t.Errorf("%s: %d calls, whole %d", name, n, len(c.Message.ToolCalls))
			}
		}
		if tokens != whole.Usage.CompletionTokens {
			t.Errorf("%s: %d tokens, usage %d", name, tokens, whole.Usage.CompletionTokens)
		}
	}
}

func TestAnswers(t *testing.T) {
	s := start(t, Config{})
	calls := func(r *reply) string {
		var out []string
		for _, c := range r.Choices[0].Message.ToolCalls {
			out = append(out, c.Function.Name+c.Function.Arguments)
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct{ name, calls, finish, prefix string }{
		{"text", "", "stop", ""},
		{"native call", `get_weather{"city": "Zürich", "unit": "celsius"}`, "tool_calls", ""},
		{"named", `send_email{"to": "ada@example.com", "body": "Hello"}`, "stop", ""},
		{"none", "", "stop", ""},
		{"parallel", `get_weather{"city": "Oslo"} send_email{"to": "ada@example.com", "body": "In parallel: the weather in Oslo, and an email to ada@example.com"}`, "tool_calls", ""},
		{"cut", "", "length", ""},
		{"cut call", "", "length", "<tool_call>\n{\"name\": \"get"},
		{"tag", "", "stop", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"},
		{"tag, native", `get_weather{"city": "Oslo"}`, "tool_calls", ""},
		{"json", "", "stop", `{"city": "Oslo"}`},
	} {
		r := s.ok(chat, `{`+bodies[tt.name]+`}`)
		if calls(r) != tt.calls || r.Choices[0].FinishReason != tt.finish || !strings.HasPrefix(r.content(), tt.prefix) {
			t.Errorf("%s: %s, %s, %q; want %s, %s, %q", tt.name, calls(r), r.Choices[0].FinishReason, r.content(), tt.calls, tt.finish, tt.prefix)
		}
	}
	if r := s.ok(chat, `{`+bodies["required"]+`}`); len(r.Choices[0].Message.ToolCalls) != 1 || r.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("required: %+v", r)
	}
	if r := s.ok(chat, `{`+bodies["stop"]+`}`); r.Choices[0].StopReason != "You" || strings.Contains(r.content(), "You") || r.Choices[0].FinishReason != "stop" {
		t.Errorf("stop: %q, %v", r.content(), r.Choices[0].StopReason)
	}
	if r := s.ok(chat, `{`+bodies["stop kept"]+`}`); !strings.HasSuffix(r.content(), "You sa") {
		t.Errorf("stop kept: %q", r.content())
	}
	if r := s.ok(chat, `{`+bodies["cut"]+`}`); r.Usage.CompletionTokens != 7 {
		t.Errorf("cut: %d tokens", r.Usage.CompletionTokens)
	}
}

// TestSeed: same seed, same answers; the seed of the engine or of the request
// changes some.
func TestSeed(t *testing.T) {
	answers := func(seed uint64, request int) string {
		s := start(t, Config{Seed: seed})
		var out []string
		for _, name := range []string{"text", "native call", "n", "required", "tag"} {
			r := s.ok(chat, fmt.Sprintf(`{"seed":%d,%s}`, request, bodies[name]))
			out = append(out, marshal(r.Choices))
		}
		return callIDs.Replace(strings.Join(out, "\n"))
	}
	first := answers(1, 0)
	if again := answers(1, 0); again != first {
		t.Errorf("same seed:\n%s\nand\n%s", first, again)
	}
	differs := false
	for seed := range uint64(6) {
		differs = differs || answers(seed+2, 0) != first || answers(1, int(seed)+1) != first
	}
	if !differs {
		t.Error("no seed changes anything")
	}
}

// callIDs hold the seed of the engine, which is no part of the answer.
var callIDs = strings.NewReplacer("sim-1-", "", "sim-2-", "", "sim-3-", "", "sim-4-", "", "sim-5-", "", "sim-6-", "", "sim-7-", "")

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{Family: "gpt"}, "unknown model family"},
		{Config{KVBlocks: 10, BlockSize: 16, MaxModelLen: 1000}, "it takes 63 blocks"},
		{Config{BlockSize: -1}, "must be positive"},
	} {
		if _, err := New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
	}
}

func TestEmbeddings(t *testing.T) {
	s := start(t, Config{})
	var r struct {
		Data []struct{ Embedding []float64 }
	}
	_, body := s.post("/v1/embeddings", `{"input":["weather in Oslo","the weather of Oslo","send an email"],"dimensions":512}`)
	if err := json.Unmarshal([]byte(body), &r); err != nil || len(r.Data) != 3 || len(r.Data[0].Embedding) != 512 {
		t.Fatalf("%v: %.200s", err, body)
	}
	dot := func(a, b []float64) (x float64) {
		for i := range a {
			x += a[i] * b[i]
		}
		return x
	}
	near, far := dot(r.Data[0].Embedding, r.Data[1].Embedding), dot(r.Data[0].Embedding, r.Data[2].Embedding)
	if near < far+0.3 || dot(r.Data[0].Embedding, r.Data[0].Embedding) < 0.999 {
		t.Errorf("near %v, far %v", near, far)
	}
	if _, body := s.post("/v1/embeddings", `{"input":"x","encoding_format":"base64"}`); !strings.Contains(body, `"embedding":"`) {
		t.Errorf("base64: %.100s", body)
	}
}

// TestLatency: the first token after overhead and uncached tokens, the next
// ones after their time, and not a nanosecond earlier.
func TestLatency(t *testing.T) {
	clock := NewVirtualClock(time.Unix(1_000_000_000, 0))
	s := start(t, Config{Clock: clock, BlockSize: 16, Latency: Latency{PrefillOverhead: time.Second, PrefillPerToken: time.Millisecond, TimePerOutputToken: time.Minute}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	await := func(n int) {
		t.Helper()
		if err := clock.Await(ctx, n); err != nil {
			t.Fatalf("%d sleepers never came: %v", n, err)
		}
	}
	for _, prefill := range []time.Duration{time.Second + 100*time.Millisecond, time.Second + 4*time.Millisecond} { // then 96 of 100 tokens are cached
		done := make(chan error, 1)
		go func() {
			resp, err := s.do(ctx, "POST", completions, `{"max_tokens":3,"prompt":`+marshal(ids(1000, 100))+`}`, "")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		begin := clock.Now()
		for _, d := range []time.Duration{prefill, time.Minute, time.Minute} {
			await(1)
			clock.Advance(d - 1)
			await(1)
			select {
			case err := <-done:
				t.Fatalf("answered too early: %v", err)
			default:
			}
			clock.Advance(1)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := clock.Now().Sub(begin); took != prefill+2*time.Minute {
			t.Errorf("took %v", took)
		}
	}
}

// TestQueue: with one slot the second request waits, visibly, and a client that
// leaves makes room at once.
func TestQueue(t *testing.T) {
	clock := NewVirtualClock(time.Unix(1_000_000_000, 0))
	s := start(t, Config{Clock: clock, MaxNumSeqs: 1, Latency: Latency{PrefillOverhead: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	call := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			resp, err := s.do(ctx, "POST", chat, `{`+bodies["text"]+`}`, "")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		return done
	}
	until := func(running, waiting int) {
		t.Helper()
		for ctx.Err() == nil {
			if r, w, _ := s.sched.load(); r == running && w == waiting {
				return
			}
		}
		r, w, _ := s.sched.load()
		t.Fatalf("%d run and %d wait, not %d and %d", r, w, running, waiting)
	}
	firstCtx, leave := context.WithCancel(ctx)
	first := call(firstCtx)
	until(1, 0)
	second := call(ctx)
	until(1, 1)
	thirdCtx, leaveThird := context.WithCancel(ctx)
	third := call(thirdCtx)
	until(1, 2)
	if m := s.metrics(); !strings.Contains(m, `vllm:num_requests_waiting{engine="0",model_name="sim-qwen3"} 2`) || !strings.Contains(m, `vllm:num_requests_running{engine="0",model_name="sim-qwen3"} 1`) {
		t.Error("the metrics don't show the queue")
	}
	leaveThird()
	until(1, 1)
	leave() // no time passes: only the disconnect ends it
	until(1, 0)
	if err := clock.Await(ctx, 1); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	for _, c := range []chan error{first, third} {
		if err := <-c; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left got %v", err)
		}
	}
	if m := s.metrics(); !strings.Contains(m, `finished_reason="stop",model_name="sim-qwen3"} 1`) {
		t.Error("requests whose client left were counted as finished")
	}
}

// TestDisconnectMidStream: the client leaves between two tokens.
func TestDisconnectMidStream(t *testing.T) {
	clock := NewVirtualClock(time.Unix(1_000_000_000, 0))
	s := start(t, Config{Clock: clock, Latency: Latency{TimePerOutputToken: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := s.do(ctx, "POST", chat, `{"stream":true,`+bodies["text"]+`}`, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := clock.Await(ctx, 1); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := clock.Await(ctx, 0); err != nil {
		t.Fatal("the request still sleeps after its client left")
	}
}

func TestFaults(t *testing.T) {
	s := start(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	whole := `{` + bodies["text"] + `}`
	stream := `{"stream":true,` + bodies["text"] + `}`
	for _, tt := range []struct {
		fault, kind, retry string
		status             int
	}{
		{"429", "RateLimitError", "1", 429},
		{"500", "InternalServerError", "", 500},
		{"nonsense", "BadRequestError", "", 400},
		{"cut=x", "BadRequestError", "", 400},
		{"slow=-1s", "BadRequestError", "", 400},
	} {
		for _, body := range []string{whole, stream} {
			resp, err := s.do(ctx, "POST", chat, body, tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != tt.status || resp.Header.Get("Retry-After") != tt.retry || !strings.Contains(string(b), tt.kind) {
				t.Errorf("%s: %d, Retry-After %q, %s", tt.fault, resp.StatusCode, resp.Header.Get("Retry-After"), b)
			}
		}
	}
	for _, body := range []string{whole, stream} {
		// reset
		if _, err := s.do(ctx, "POST", chat, body, "reset"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reset: %v", err)
		}
		// cut at every kind of place
		for _, n := range []int{0, 1, 50, 300} {
			resp, err := s.do(ctx, "POST", chat, body, fmt.Sprintf("cut=%d", n))
			if err != nil {
				t.Fatalf("cut=%d: %v", n, err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(b) != n {
				t.Errorf("cut=%d: %d bytes, %v", n, len(b), err)
			}
		}
		if resp, err := s.do(ctx, "POST", chat, body, "cut=1000000"); err != nil {
			t.Error(err)
		} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("a cut after the end: %v", err)
		} else {
			resp.Body.Close()
		}
		// stall: nothing comes, the request runs until the client leaves
		stallCtx, leave := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			_, err := s.do(stallCtx, "POST", chat, body, "stall")
			done <- err
		}()
		for ctx.Err() == nil {
			if running, _, _ := s.sched.load(); running == 1 {
				break
			}
		}
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("stall: %v", err)
		}
		for ctx.Err() == nil {
			if running, _, _ := s.sched.load(); running == 0 {
				break
			}
		}
		// slow: late, but whole
		resp, err := s.do(ctx, "POST", chat, body, "slow=1ms")
		if err != nil {
			t.Fatal(err)
		}
		slow, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Contains(slow, []byte("sidecar-sim-")) {
			t.Errorf("slow: %v", err)
		}
	}
	// stall after three events, or 40 bytes
	resp, err := s.do(ctx, "POST", chat, stream, "stall-after=3")
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: {") {
			t.Fatalf("stall-after: event %d: %q, %v", i, line, err)
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	resp.Body.Close()
	resp, err = s.do(ctx, "POST", chat, whole, "stall-after=40")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 40)); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	// malformed
	resp, err = s.do(ctx, "POST", chat, stream, "malformed-sse")
	if err != nil {
		t.Fatal(err)
	}
	got, err := readStream(resp.Body)
	resp.Body.Close()
	if err == nil || got.events != 2 {
		t.Errorf("malformed-sse: event %d, %v", got.events, err)
	}
	resp, err = s.do(ctx, "POST", chat, whole, "malformed-sse")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || json.Valid(b) || len(b) == 0 {
		t.Errorf("malformed body: %v, %s", err, b)
	}
	// other routes
	if resp, err := s.do(ctx, "GET", "/v1/models", "", "500"); err != nil || resp.StatusCode != 500 {
		t.Errorf("/v1/models: %v", err)
	} else {
		resp.Body.Close()
	}
	stallCtx, leave := context.WithTimeout(ctx, 50*time.Millisecond)
	defer leave()
	if _, err := s.do(stallCtx, "POST", "/v1/embeddings", `{"input":"x"}`, "stall"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("/v1/embeddings stalled: %v", err)
	}
}
