//go:build engines

package enginetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const eventHead = `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,`

// events writes chat chunks, each given as what follows "index":0.
func events(w http.ResponseWriter, choices ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, c := range choices {
		fmt.Fprint(w, eventHead, c, "}]}\n\n")
	}
}

// What each library makes of answers, good and broken, from a server whose answer
// is chosen by the model's name.
func TestClientsRunners(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
		w.Header().Set("X-Echo", r.Header.Get("X-Ask"))
		switch r.Header.Get("X-Ask") {
		case "calls":
			events(w,
				`"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null`,
				`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]},"finish_reason":null`,
				`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":null`,
				`"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":null`,
				`"delta":{},"finish_reason":"tool_calls"`)
			fmt.Fprint(w, "data: [DONE]\n\n")
		case "error event":
			events(w, `"delta":{"role":"assistant","content":"so far"},"finish_reason":null`)
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"the call does not fit\",\"type\":\"server_error\",\"param\":null,\"code\":\"misfit\"}}\n\n")
		case "limit":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"message":"slow down","type":"rate_limit_error","param":"p","code":"busy"}}`)
		case "cut":
			events(w, `"delta":{"role":"assistant","content":"so far"},"finish_reason":null`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "endless":
			for r.Context().Err() == nil {
				events(w, `"delta":{"content":"x"},"finish_reason":null`)
				w.(http.Flusher).Flush()
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"whole – 🌡️"}}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`)
		}
	}))
	defer server.Close()
	for _, lib := range Libraries {
		t.Run(string(lib), func(t *testing.T) {
			client := Connect(t, lib, server.URL+"/v1", 2)
			do := func(ask string, stream bool, change func(*Call)) *Answer {
				t.Helper()
				call := Call{ID: ask, Stream: stream, Headers: map[string]string{"X-Ask": ask}, Params: object{"model": "m", "messages": []any{user("hi")}, "return_token_ids": true}}
				if change != nil {
					change(&call)
				}
				a, err := client.Do(t.Context(), call)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}

			if a := do("whole", false, nil); !a.OK || a.Status != 200 || a.Content() != "whole – 🌡️" || a.FinishReason != "stop" ||
				!strings.Contains(string(a.Usage), `"total_tokens"`) || a.Headers["x-echo"] != "whole" || a.Headers["x-path"] != "/v1/chat/completions" {
				t.Errorf("whole: %+v", a)
			}
			a := do("calls", true, nil)
			if !a.OK || a.FinishReason != "tool_calls" || a.Chunks != 5 || fmt.Sprint(a.ToolCalls) != `[{a f {"x":1}} {b g {}}]` {
				t.Errorf("calls: %+v", a)
			}
			a = do("error event", true, nil)
			if a.OK || a.Error == nil || !strings.Contains(a.Error.Message, "the call does not fit") || a.FinishReason != "" || a.Content() != "so far" {
				t.Errorf("error event: %+v, %v", a, a.Error)
			}
			a = do("limit", false, nil)
			if a.OK || a.Status != 429 || a.Error.Kind != "RateLimitError" || a.Error.Code != "busy" || a.Headers["retry-after"] != "7" {
				t.Errorf("limit: %+v, %v", a, a.Error)
			}
			if a = do("cut", true, nil); a.OK || a.Error == nil || a.FinishReason != "" {
				t.Errorf("cut: %+v", a)
			}
			a = do("endless", true, func(c *Call) { c.CancelAfter = 3 })
			if !a.OK || !a.Cancelled || a.Chunks != 3 {
				t.Errorf("endless: %+v, %v", a, a.Error)
			}
		})
	}
}

// Both libraries against the engine itself, streaming and not, at the same time:
// what later passes through the sidecar works without it.
func TestClientsDirect(t *testing.T) {
	engine := VLLM(t, Options{})
	for _, lib := range Libraries {
		t.Run(string(lib), func(t *testing.T) {
			client := Connect(t, lib, engine.URL+"/v1", 4)
			const text = "whole – 🌡️ \"said\"\n"
			params := object{"model": engine.Model, "messages": []any{user("hi")}, "max_tokens": 80, "response_format": structural(object{"type": "const_string", "value": text})}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					a, err := client.Do(t.Context(), Call{ID: fmt.Sprint(i), Stream: i%2 == 1, Params: params})
					if err != nil {
						t.Error(err)
						return
					}
					if !a.OK || a.FinishReason != "stop" || a.Content() != text {
						t.Errorf("%d: %+v, %v", i, a, a.Error)
					}
				})
			}
			wg.Wait()
			a, err := client.Do(t.Context(), Call{ID: "models", Call: "models"})
			if err != nil || !a.OK || !strings.Contains(string(a.Body), `"tiny"`) {
				t.Errorf("models: %+v, %v", a, err)
			}
		})
	}
}
