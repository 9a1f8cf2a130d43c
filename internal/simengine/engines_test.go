//go:build engines

package simengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Run(m)) }

// judge is a running vLLM with Qwen3's tokenizer.
func judge(t *testing.T) (url, model string, block, maxLen int) {
	url = enginetest.VLLM(t, enginetest.Options{}).URL
	var models struct {
		Data []struct {
			ID  string
			Max int `json:"max_model_len"`
		}
	}
	if err := json.Unmarshal([]byte(read(t, "GET", url+"/v1/models", "")), &models); err != nil || len(models.Data) == 0 {
		t.Fatalf("/v1/models: %v", err)
	}
	m := regexp.MustCompile(`vllm:cache_config_info\{[^}]*block_size="(\d+)"`).FindStringSubmatch(read(t, "GET", url+"/metrics", ""))
	if m == nil {
		t.Fatal("the engine does not tell its block size")
	}
	block, _ = strconv.Atoi(m[1])
	return url, models.Data[0].ID, block, models.Data[0].Max
}

func read(t *testing.T, method, url, body string) string {
	_, text := request(t, method, url, body)
	return text
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestVLLMCache sends the same random requests to vLLM and to the simulated
// engine: conversations that grow, branch, change their tools, and repeat. Both
// report the same prompt tokens and the same cached tokens each time.
func TestVLLMCache(t *testing.T) {
	url, model, block, maxLen := judge(t)
	rng := rand.New(rand.NewPCG(1, 0))
	s := start(t, Config{Model: model, BlockSize: block, MaxModelLen: maxLen, PromptTokensDetails: true})
	tool := func(i int) string {
		return fmt.Sprintf(`{"type":"function","function":{"name":"tool_%d","description":"Does the thing number %d for the user","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}`, i, i)
	}
	words := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(terms(corpus)[rng.IntN(9)] + " ")
		}
		return b.String()
	}
	type conversation struct {
		msgs  []object
		tools []string
		salt  string
	}
	session := time.Now().UnixNano() // apart from what an engine that was kept has seen
	salts := []string{fmt.Sprintf("a%d", session), fmt.Sprintf("b%d", session)}
	var all []conversation
	hits, queries := 0, 0
	for i := range 60 {
		var c conversation
		if len(all) == 0 || rng.IntN(6) == 0 {
			c.salt = salts[rng.IntN(2)]
			for k := range rng.IntN(4) {
				c.tools = append(c.tools, tool(k))
			}
			c.msgs = []object{{"role": "system", "content": words(40)}, {"role": "user", "content": words(20)}}
		} else {
			old := all[rng.IntN(len(all))]
			c = conversation{append([]object(nil), old.msgs...), append([]string(nil), old.tools...), old.salt}
			switch rng.IntN(6) {
			case 0: // the same again
			case 1:
				c.tools = append(c.tools, tool(len(c.tools)))
			case 2:
				c.salt = salts[rng.IntN(2)]
			case 3:
				c.msgs = c.msgs[:max(2, len(c.msgs)-2)]
			default:
				c.msgs = append(c.msgs, object{"role": "assistant", "content": words(10 + rng.IntN(60))}, object{"role": "user", "content": words(rng.IntN(60))})
			}
		}
		all = append(all, c)
		body := object{"model": model, "messages": c.msgs, "max_tokens": 1, "cache_salt": c.salt}
		if len(c.tools) > 0 {
			body["tools"] = json.RawMessage("[" + strings.Join(c.tools, ",") + "]")
		}
		status, text := request(t, "POST", url+chat, marshal(body))
		var want reply
		if err := json.Unmarshal([]byte(text), &want); status != 200 || err != nil {
			t.Fatalf("request %d: %d %s", i, status, text)
		}
		got := s.ok(chat, marshal(body))
		if got.Usage.PromptTokens != want.Usage.PromptTokens || want.Usage.Details == nil || marshal(got.Usage.Details) != marshal(want.Usage.Details) {
			t.Fatalf("request %d: %d tokens, %s; vLLM: %d, %s", i, got.Usage.PromptTokens, marshal(got.Usage.Details), want.Usage.PromptTokens, marshal(want.Usage.Details))
		}
		hits += got.Usage.Details.Cached
		queries += got.Usage.PromptTokens
	}
	if hits == 0 {
		t.Error("nothing was cached: this test shows nothing")
	}
	t.Logf("60 requests, blocks of %d, %d prompt tokens, %d cached in both", block, queries, hits)
}

const corpus = "alpha bravo delta weather Oslo report ticket market engine"

// TestVLLMErrors sends bad requests to both: same status and same error type.
func TestVLLMErrors(t *testing.T) {
	url, model, block, maxLen := judge(t)
	s := start(t, Config{Model: model, BlockSize: block, MaxModelLen: maxLen})
	user := `"messages":[{"role":"user","content":"hi"}]`
	tools := `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`
	for _, body := range []string{
		`{` + user + `,"tools":[]}`,
		`{` + user + `,"tool_choice":"required"}`,
		`{` + user + `,"tool_choice":"none","max_tokens":1}`,
		`{` + user + `,` + tools + `,"tool_choice":"some"}`,
		`{` + user + `,` + tools + `,"tool_choice":{"type":"function","function":{"name":"no"}}}`,
		`{` + user + `,"max_tokens":0}`,
		`{` + user + `,"max_tokens":` + strconv.Itoa(maxLen+1) + `}`,
		`{` + user + `,"n":0}`,
		`{` + user + `,"stop":[""]}`,
		`{` + user + `,"stream_options":{"include_usage":true}}`,
		`{` + user + `,"cache_salt":""}`,
		`{` + user + `,"cache_salt":"a/b"}`,
		`{` + user + `,"model":"other"}`,
		`{"messages":[]}`,
		`{"messages":[{"role":"user","content":"` + strings.Repeat("long ", maxLen+10) + `"}]}`,
		`{` + user + `,"response_format":{"type":"structural_tag","format":{"type":"nope"}}}`,
		`{` + user + `,"response_format":{"type":"structural_tag"}}`,
		`{` + user + `,"response_format":{"type":"json_schema"}}`,
		`{` + user + `,"structured_outputs":{"structural_tag":{}}}`,
		`{` + user + `,"structured_outputs":{"regex":"a","choice":["b"]}}`,
		`{` + user + `,"kv_transfer_params":{"prompt_token_ids":[1,99999999]}}`,
		`{` + user + `,"kv_transfer_params":{"prompt_token_ids":[]}}`,
		`{` + user + `,"kv_transfer_params":{"prompt_token_ids":[1,2,3]},"max_tokens":1}`,
		`{` + user + `,"unknown":1,"max_tokens":1}`,
	} {
		type failure struct {
			Error struct {
				Message, Type string
				Param         *string
				Code          int
			}
		}
		var got, want failure
		gotStatus, gotText := s.post(chat, body)
		wantStatus, wantText := request(t, "POST", url+chat, body)
		if gotStatus != wantStatus {
			t.Errorf("%.120s: %d %.300s\nvLLM: %d %.300s", body, gotStatus, gotText, wantStatus, wantText)
			continue
		}
		if gotStatus == 200 {
			continue
		}
		if err := json.Unmarshal([]byte(gotText), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(wantText), &want); err != nil {
			t.Fatal(err)
		}
		if got.Error.Type != want.Error.Type || got.Error.Code != want.Error.Code || marshal(got.Error.Param) != marshal(want.Error.Param) {
			t.Errorf("%.120s: %s\nvLLM: %s", body, gotText, wantText)
		} else if got.Error.Message != want.Error.Message {
			t.Logf("%.120s: other words: %s\nvLLM: %s", body, got.Error.Message, want.Error.Message)
		}
	}
}

// TestVLLMShape: what vLLM's stream and whole answer hold where they have a
// value, ours hold too, under the same names.
func TestVLLMShape(t *testing.T) {
	url, model, block, maxLen := judge(t)
	s := start(t, Config{Model: model, BlockSize: block, MaxModelLen: maxLen, PromptTokensDetails: true})
	named := `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"enum":["x"]}},"required":["a"],"additionalProperties":false},"strict":true}}],"tool_choice":"required"`
	tag := `,"response_format":{"type":"structural_tag","format":{"type":"const_string","value":"fixed"}}`
	for _, extra := range []string{tag, named, tag + `,"return_token_ids":true`} {
		base := `"model":"` + model + `","messages":[{"role":"user","content":"hi"}],"max_tokens":60` + extra
		for _, body := range []string{`{` + base + `}`, `{"stream":true,"stream_options":{"include_usage":true},` + base + `}`} {
			_, gotText := s.post(chat, body)
			_, wantText := request(t, "POST", url+chat, body)
			got, want := map[string]bool{}, map[string]bool{}
			for text, paths := range map[string]map[string]bool{gotText: got, wantText: want} {
				for _, line := range strings.Split(text, "\n") {
					line = strings.TrimPrefix(line, "data: ")
					var v any
					if json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&v) == nil {
						collect(v, "", paths)
					}
				}
			}
			for p := range want {
				// the random model may end by another stop token, or be cut inside a call
				if !got[p] && p != ".choices[].stop_reason" && p != ".choices[].message.content" {
					t.Errorf("%s\nlacks %s\nvLLM: %.600s\nours: %.600s", body, p, wantText, gotText)
				}
			}
		}
	}
}

// TestVLLMCalls gives both the same text by a constant constraint, and
// compares what becomes of it: content, calls and finish, whole and streamed.
func TestVLLMCalls(t *testing.T) {
	url, model, block, maxLen := judge(t)
	s := start(t, Config{Model: model, BlockSize: block, MaxModelLen: maxLen})
	tools := `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]`
	for _, text := range []string{
		"plain text", "\n\n", "é🙂 naïve",
		"Hi there\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  1e5}}\n</tool_call>\nbye",
		"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\":[1,{\"y\":\"<tool_call>\"}]}}\n</tool_call>",
		"\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"é\"}}</tool_call>",
	} {
		format := `,"response_format":` + marshal(object{"type": "structural_tag", "format": object{"type": "const_string", "value": text}})
		for _, extra := range []string{"", tools, tools + `,"tool_choice":"none"`, `,"stop":["ain","na"]`, `,"stop":" te","include_stop_str_in_output":true`, tools + `,"stop":"}"`} {
			base := `"model":"` + model + `","messages":[{"role":"user","content":"hi"}],"max_tokens":200` + extra + format
			var got, want reply
			_, body := s.post(chat, `{`+base+`}`)
			_, judged := request(t, "POST", url+chat, `{`+base+`}`)
			if json.Unmarshal([]byte(body), &got) != nil || json.Unmarshal([]byte(judged), &want) != nil || len(want.Choices) != 1 {
				t.Fatalf("%s\n%s", body, judged)
			}
			plain := func(r *reply) string {
				c := r.Choices[0]
				for i := range c.Message.ToolCalls {
					c.Message.ToolCalls[i].ID = ""
				}
				if c.StopReason == 151643.0 {
					c.StopReason = nil // the random model's other end
				}
				return marshal([]any{c.Message, c.FinishReason, c.StopReason})
			}
			if plain(&got) != plain(&want) {
				t.Errorf("%q %s: %s, vLLM %s", text, extra, plain(&got), plain(&want))
			}
			_, body = s.post(chat, `{"stream":true,`+base+`}`)
			_, judged = request(t, "POST", url+chat, `{"stream":true,`+base+`}`)
			a, errA := readStream(strings.NewReader(body))
			b, errB := readStream(strings.NewReader(judged))
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			joined := func(s *streamed) string { return fmt.Sprintf("%v %v %v %v", s.text, s.names, s.args, s.finish) }
			if joined(a) != joined(b) {
				t.Errorf("%q %s, streamed: %s, vLLM %s", text, extra, joined(a), joined(b))
			}
		}
	}
}

func collect(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			collect(x, path+"."+k, out)
		}
	case []any:
		for _, x := range v {
			collect(x, path+"[]", out)
		}
	case nil:
	default:
		out[path] = true
	}
}
