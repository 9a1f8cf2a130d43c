//go:build engines

package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What the sidecar takes for granted of an engine is checked here, so that a new
// version of one which behaves otherwise is found out by its own test.

type object = map[string]any

func TestVLLMFacts(t *testing.T)   { facts(t, VLLM(t, Options{})) }
func TestSGLangFacts(t *testing.T) { facts(t, SGLang(t, Options{})) }

func facts(t *testing.T, s *Server) {
	t.Run("shared", func(t *testing.T) { shares(t, s) })
	t.Run("detokenize", func(t *testing.T) { detokenizes(t, s) })
	t.Run("owned text", func(t *testing.T) { takesOwnedText(t, s) })
	t.Run("tags", func(t *testing.T) { obeysTags(t, s) })
	t.Run("excludes", func(t *testing.T) { obeysExcludes(t, s) })
	t.Run("bad tag", func(t *testing.T) { refusesBadTags(t, s) })
	t.Run("cached tokens", func(t *testing.T) { reportsCache(t, s) })
	t.Run("abort", func(t *testing.T) { aborts(t, s) })
}

// A second request for the same engine gets the same one.
func shares(t *testing.T, s *Server) {
	again := get(t, s.Engine, Options{Model: s.Model})
	if again.URL != s.URL {
		t.Errorf("%s and %s", s.URL, again.URL)
	}
}

var tools = []any{
	json.RawMessage(`{"type": "function", "function": {"name": "get_weather", "description": "Weather – <now> & \"here\"", "parameters": {"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Za-z ]{1,12}$"}, "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city", "unit"], "additionalProperties": false}}}`),
	json.RawMessage(`{"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": false}}}`),
}

// tags are the structural tags of tools. Both engines let raw control characters
// into a string of a raw schema that has a maxLength, so that its values need not be
// JSON; city has a pattern of letters instead.
func tags(t *testing.T) []any {
	var out []any
	for _, raw := range tools {
		var tool struct {
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
		if err := json.Unmarshal(raw.(json.RawMessage), &tool); err != nil {
			t.Fatal(err)
		}
		out = append(out, object{
			"type":    "tag",
			"begin":   "<tool_call>\n{\"name\": \"" + tool.Function.Name + "\", \"arguments\": ",
			"content": object{"type": "json_schema", "json_schema": tool.Function.Parameters, "max_whitespace_cnt": 1},
			"end":     "}\n</tool_call>",
		})
	}
	return out
}

func structural(format any) object { return object{"type": "structural_tag", "format": format} }

func user(text string) object { return object{"role": "user", "content": text} }

// The prompt text of a request is what /detokenize says of the ids that /tokenize
// gives for it, special tokens included, and tokenizes back to the same ids.
func detokenizes(t *testing.T, s *Server) {
	ids := s.tokenize(t, object{"messages": []any{object{"role": "system", "content": "Be terse."}, user("Grüße 🌡️ <&>")}})
	text := s.detokenize(t, ids)
	want := "<|im_start|>system\nBe terse.<|im_end|>\n<|im_start|>user\nGrüße 🌡️ <&><|im_end|>\n<|im_start|>assistant\n"
	if text != want {
		t.Errorf("prompt %q, want %q", text, want)
	}
	if again := s.tokenize(t, object{"prompt": text}); fmt.Sprint(again) != fmt.Sprint(ids) {
		t.Errorf("ids %v, from their text %v", ids, again)
	}
}

// Tools and calls written by us as text of ordinary messages make the very prompt
// that the template makes of the tools field, calls, and tool messages.
func takesOwnedText(t *testing.T, s *Server) {
	call := func(id, city string) object {
		return object{"id": id, "type": "function", "function": object{"name": "get_weather", "arguments": `{"city": "` + city + `", "unit": "C"}`}}
	}
	native := s.detokenize(t, s.tokenize(t, object{"tools": tools, "messages": []any{
		object{"role": "system", "content": "Be terse."},
		user("How warm?"),
		object{"role": "assistant", "content": "Let me see.", "tool_calls": []any{call("1", "Oslo"), call("2", "Rom")}},
		object{"role": "tool", "tool_call_id": "1", "content": "3"},
		object{"role": "tool", "tool_call_id": "2", "content": " 14\n"},
		user("And now?"),
	}}))
	// SGLang prints a field of its own into every tool.
	native = strings.ReplaceAll(native, `, "defer_loading": null}`, "}")

	text := "Be terse.\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>"
	for _, tool := range tools {
		text += "\n" + string(tool.(json.RawMessage))
	}
	text += "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
	owned := s.detokenize(t, s.tokenize(t, object{"messages": []any{
		object{"role": "system", "content": text},
		user("How warm?"),
		object{"role": "assistant", "content": "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"unit\": \"C\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\", \"unit\": \"C\"}}\n</tool_call>"},
		user("<tool_response>\n3\n</tool_response>\n<tool_response>\n 14\n\n</tool_response>"),
		user("And now?"),
	}}))
	if owned != native {
		t.Errorf("the template writes\n%s\nwe write\n%s", native, owned)
	}
}

// A call held to a tag ends by itself and stands as text in content, its begin
// included, whether that was generated as one added token or letter by letter.
func obeysTags(t *testing.T, s *Server) {
	for i := range 6 {
		a := s.chat(t, object{
			"messages": []any{user("hi")}, "temperature": 1, "seed": i, "max_tokens": 200,
			"response_format": structural(object{"type": "triggered_tags", "triggers": []string{"<tool_call>"}, "tags": tags(t), "at_least_one": true, "stop_after_first": true}),
		})
		if a.Choices[0].FinishReason != "stop" {
			t.Errorf("finish %q after %q", a.Choices[0].FinishReason, a.Choices[0].Message.Content)
			continue
		}
		text := a.Choices[0].Message.Content
		inner, begun := strings.CutPrefix(text, "<tool_call>\n")
		inner, ended := strings.CutSuffix(inner, "\n</tool_call>")
		var c struct {
			Name      string
			Arguments object
		}
		if err := json.Unmarshal([]byte(inner), &c); err != nil || !begun || !ended || c.Name == "" || len(c.Arguments) == 0 {
			t.Errorf("content %q: %v", text, err)
		}
	}
}

// Free text that excludes the trigger cannot contain it, as an added token or as a
// chain of others. The bias leaves only the added token, or only the four that
// spell it. These come in the right order once in 256 tokens, so that 2,400 of
// them lack it in 1 of 10,000 answers: text that may contain it is asked for until
// it does, which five answers fail to do once in 10^20.
func obeysExcludes(t *testing.T, s *Server) {
	count := func(format object, seed, tokens int, likely ...string) int {
		bias := object{}
		for _, id := range likely {
			bias[id] = 100
		}
		var c completion
		s.ask(t, "/v1/chat/completions", object{
			"messages": []any{user("hi")}, "temperature": 1, "seed": seed, "n": 4, "max_tokens": tokens, "ignore_eos": true,
			"logit_bias": bias, "response_format": structural(format),
		}, &c)
		n := 0
		for _, choice := range c.Choices {
			n += strings.Count(choice.Message.Content, "<tool_call>")
		}
		return n
	}
	for _, test := range []struct {
		name   string
		tokens int
		ids    []string
	}{
		{"added token", 20, []string{"151657"}},
		{"spelled", 600, []string{"27", "14172", "13429", "29"}}, // < tool _call >
	} {
		n := 0
		for seed := 0; n == 0 && seed < 5; seed++ {
			n = count(object{"type": "any_text"}, seed, test.tokens, test.ids...)
		}
		if n == 0 {
			t.Errorf("%s: the trigger never comes, so this test shows nothing", test.name)
		}
		if n := count(object{"type": "any_text", "excludes": []string{"<tool_call>"}}, 1, test.tokens, test.ids...); n != 0 {
			t.Errorf("%s: %d triggers in text that excludes them", test.name, n)
		}
	}
}

// A tag that cannot be compiled is refused with status 400, except by SGLang in a
// stream: there with status 200 and an error as the first event.
func refusesBadTags(t *testing.T, s *Server) {
	bad := structural(object{"type": "json_schema", "json_schema": object{"type": "strin"}})
	for _, stream := range []bool{false, true} {
		status, body := s.post(t, "/v1/chat/completions", object{"model": s.Model, "messages": []any{user("hi")}, "max_tokens": 1, "stream": stream, "response_format": bad})
		if s.Engine == KindSGLang && stream {
			if status != http.StatusOK || !bytes.HasPrefix(body, []byte(`data: {"error": `)) || !bytes.Contains(body, []byte("structural_tag")) {
				t.Errorf("stream: status %d, %s", status, body)
			}
			continue
		}
		if status != http.StatusBadRequest || !bytes.Contains(body, []byte("structural_tag")) || !json.Valid(body) {
			t.Errorf("stream %v: status %d, %s", stream, status, body)
		}
	}
}

// A repeated prompt is reported as cached, up to the block that holds its last
// token.
func reportsCache(t *testing.T, s *Server) {
	body := object{"messages": []any{user(rand.Text() + strings.Repeat(" and so on", 100))}, "max_tokens": 1}
	first, second := s.chat(t, body), s.chat(t, body)
	if c := first.Usage.Details.Cached; c >= 32 {
		t.Errorf("first time: %d tokens cached", c)
	}
	n := second.Usage.Prompt
	if c, least := second.Usage.Details.Cached, (n-1)/32*32; c < least || c >= n {
		t.Errorf("second time: %d of %d tokens cached, want at least %d", c, n, least)
	}
}

// A client that leaves ends its request in the engine.
func aborts(t *testing.T, s *Server) {
	running := map[Engine]string{KindVLLM: "vllm:num_requests_running", KindSGLang: "sglang:num_running_reqs"}[s.Engine]
	until := func(what string, ok func(n float64) bool) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			n, err := s.Metric(t.Context(), running)
			if err != nil {
				t.Fatal(err)
			}
			if ok(n) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s is %v", what, running, n)
			}
		}
	}
	until("before", func(n float64) bool { return n == 0 })
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		data, err := json.Marshal(object{"model": s.Model, "messages": []any{user("hi")}, "max_tokens": 15000, "ignore_eos": true, "stream": stream})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		until("while it generates", func(n float64) bool { return n > 0 })
		cancel()
		<-done
		until("after the client left", func(n float64) bool { return n == 0 })
	}
}

type completion struct {
	Choices []struct {
		Message struct {
			Content string
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func (s *Server) chat(t *testing.T, body object) completion {
	t.Helper()
	var c completion
	s.ask(t, "/v1/chat/completions", body, &c)
	if len(c.Choices) != 1 {
		t.Fatalf("%d choices", len(c.Choices))
	}
	return c
}

func (s *Server) tokenize(t *testing.T, body object) []int {
	t.Helper()
	var answer struct{ Tokens []int }
	s.ask(t, "/tokenize", body, &answer)
	return answer.Tokens
}

func (s *Server) detokenize(t *testing.T, ids []int) string {
	t.Helper()
	var answer struct{ Prompt, Text string } // vLLM's word, SGLang's word
	s.ask(t, "/detokenize", object{"tokens": ids, "skip_special_tokens": false}, &answer)
	return answer.Prompt + answer.Text
}

func (s *Server) ask(t *testing.T, path string, body object, answer any) {
	t.Helper()
	body["model"] = s.Model
	status, data := s.post(t, path, body)
	if status != http.StatusOK {
		t.Fatalf("POST %s: status %d, %s", path, status, data)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) post(t *testing.T, path string, body object) (status int, answer []byte) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(s.URL+path, "application/json", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// TestLlamaFacts: what docs/llama.md says of llama-server.
func TestLlamaFacts(t *testing.T) {
	s := Llama(t, Options{})
	complete := func(t *testing.T, body object) (int, []byte) { return s.post(t, "/completion", body) }
	type event struct {
		Content   string
		Tokens    []int32
		Predicted int `json:"tokens_predicted"`
	}
	const want = "🦙 naïve 🎉"
	body := object{"prompt": []int32{9707}, "n_predict": 64, "temperature": 0, "return_tokens": true, "grammar": `root ::= "` + want + `"`}

	t.Run("grammar", func(t *testing.T) {
		if status, answer := complete(t, object{"prompt": "x", "n_predict": 1, "grammar": "root ::= nosuch"}); status != http.StatusBadRequest || !strings.Contains(string(answer), "grammar") {
			t.Errorf("a grammar that can't be read: %d %s", status, answer)
		}
		var whole event
		if _, answer := complete(t, body); json.Unmarshal(answer, &whole) != nil || whole.Content != want {
			t.Errorf("%q", whole.Content)
		}
	})
	t.Run("ids in a stream", func(t *testing.T) {
		var whole event
		if _, answer := complete(t, body); json.Unmarshal(answer, &whole) != nil {
			t.Fatalf("%s", answer)
		}
		body["stream"] = true
		defer delete(body, "stream")
		_, answer := complete(t, body)
		text, ids, last := "", 0, 0
		for line := range strings.Lines(string(answer)) {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var e event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			text, ids, last = text+e.Content, ids+len(e.Tokens), e.Predicted
		}
		// Tokens that end within a character have no event, but are counted.
		if text != want || ids >= len(whole.Tokens) || last != len(whole.Tokens) {
			t.Errorf("%q, %d ids of %d tokens, %d counted", text, ids, len(whole.Tokens), last)
		}
	})
	t.Run("connection", func(t *testing.T) {
		client := &http.Client{Transport: &http.Transport{}}
		resp, err := client.Post(s.URL+"/completion", "application/json", strings.NewReader(`{"prompt":"x","n_predict":1,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Server"); got != "llama.cpp" || resp.Close {
			t.Errorf("server %q, connection closed by its own account: %v", got, resp.Close)
		}
	})
}
