//go:build engines

package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/enginetest"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Run(m)) }

// inFrontOfServer records what a running engine is sent.
func inFrontOfServer(t *testing.T, s *enginetest.Server) (*idEngine, string) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	// A kept connection may be closed by the engine at the moment of its next use.
	fresh := &http.Transport{DisableKeepAlives: true}
	return inFrontOf(t, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1, Transport: fresh})
}

// engineLoop runs a tool loop of 20 turns in which tools appear, and checks that the
// engine found all of the turn before in its cache: the ceiling, in whole blocks.
// Length-cut and called turns both occur; the model's weights are random.
func engineLoop(t *testing.T, s *enginetest.Server, stream bool, edit func(path string, body map[string]json.RawMessage) map[string]json.RawMessage) {
	eng, engineURL := inFrontOfServer(t, s)
	eng.edit = edit
	cfg := idStages()
	cfg.Catalog, cfg.Compare = nil, 4
	p, base := start(t, "fiber", Config{Engine: engineURL, Stages: cfg})
	topics := []string{"weather", "invoice", "calendar", "kubernetes", "translation", "warehouse", "payroll", "ticket", "playlist", "recipe"}
	a := &agent{t: t, base: base, model: string(s.Model), stream: stream, more: map[string]any{
		"tools": json.RawMessage(toolList(120)), "tool_choice": "required", "max_tokens": 60, "temperature": 1,
	}}
	a.say("system", fmt.Sprintf("Session %x. Be terse.", rand.Uint64()))
	appeared, open, block := 0, 0, 0
	for i := range 20 {
		if n := len(a.msgs); n > 0 {
			if calls, ok := a.msgs[n-1]["tool_calls"].([]map[string]any); ok {
				for _, k := range calls {
					a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": fmt.Sprintf(`{"rows": [%d, %d]}`, i, i*i)})
				}
			}
		}
		if i%2 == 0 {
			a.say("user", "Look up the "+topics[i/2%len(topics)]+" of customer "+fmt.Sprint(i))
		}
		turn := a.ask()
		rec := record(t, p)
		if rec.Mode != ModeTokenIn || rec.Fallback != "" {
			t.Fatalf("turn %d: mode %s, fallback %q", i, rec.Mode, rec.Fallback)
		}
		if got := eng.last(); len(got.ids) != turn.Prompt {
			t.Errorf("turn %d: %d ids were sent, the engine counted %d", i, len(got.ids), turn.Prompt)
		}
		if len(rec.Added) > 0 {
			appeared++
		}
		if turn.Finish[0] == "length" {
			open++
		}
		info, err := p.stages.(*stages).engine.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		block = info.BlockSize
		// SGLang may have the last sampled token too; and other tests may have
		// sent the beginning of the first prompt.
		if d := turn.Cached - rec.ExpectedCached; i > 0 && (d < 0 || d > block) {
			t.Errorf("turn %d: %d tokens cached, %d expected", i, turn.Cached, rec.ExpectedCached)
		}
		if i > 0 {
			before := a.turns[i-1]
			if ceiling := (before.Prompt + before.Completion - 1) / block * block; turn.Cached < ceiling {
				t.Errorf("turn %d: %d tokens cached of %d", i, turn.Cached, ceiling)
			}
		}
	}
	p.stages.(*stages).tokenIn.wg.Wait()
	if n, alarms := counted(t, p, "sidecar_token_in_compared_total"), counted(t, p, "sidecar_token_in_alarms_total"); n == 0 || alarms > 0 {
		t.Errorf("%v live conversations compared, %v alarms", n, alarms)
	}
	if appeared < 5 {
		t.Errorf("tools appeared in %d turns", appeared)
	}
	t.Logf("blocks of %d tokens, last prompt %d, tools appeared in %d turns, %d turns cut by length", block, a.turns[19].Prompt, appeared, open)
}

// loops runs the loop streamed and not, both at a time unless the engine has its cache
// slot by slot.
func loops(t *testing.T, s *enginetest.Server) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			if s.Engine != enginetest.KindLlama {
				t.Parallel()
			}
			engineLoop(t, s, stream, nil)
		})
	}
}

func TestVLLMTokenInLoop(t *testing.T)   { loops(t, enginetest.VLLM(t, enginetest.Options{})) }
func TestSGLangTokenInLoop(t *testing.T) { loops(t, enginetest.SGLang(t, enginetest.Options{})) }

// TestVLLMOwnedLoop: owned mode on a model that writes canonical tokens. 20 turns are
// within its window of 8,192 tokens.
func TestVLLMOwnedLoop(t *testing.T) {
	s := enginetest.VLLM(t, enginetest.Options{Model: enginetest.SmolLM2})
	ownedLoop(t, s.URL, string(s.Model), smolLM2(t), map[string]any{"max_tokens": 60, "temperature": 0})
}

// TestVLLMCompletions: without the undocumented field the ids go to the text
// completion.
func TestVLLMCompletions(t *testing.T) {
	engineLoop(t, enginetest.VLLM(t, enginetest.Options{}), true, withoutKV)
}

// withoutKV is an engine whose chat endpoint refuses to take ids.
func withoutKV(path string, body map[string]json.RawMessage) map[string]json.RawMessage {
	if strings.HasSuffix(path, "/chat/completions") && body["kv_transfer_params"] != nil {
		return nil
	}
	return body
}

// switchesOn: what a template makes of these is known, and the prompt as ids is as long
// as the one that the engine makes of the messages.
func switchesOn(t *testing.T, s *enginetest.Server) {
	prompts := map[string][]int{}
	for _, mode := range []string{ModeTokenIn, ModeOwned} {
		_, engineURL := inFrontOfServer(t, s)
		cfg := idStages()
		cfg.Mode, cfg.Catalog = mode, nil
		_, base := start(t, "nethttp", Config{Engine: engineURL, Stages: cfg})
		for _, more := range []map[string]any{
			{}, {"reasoning_effort": "low"}, {"reasoning_effort": "none"},
			{"chat_template_kwargs": map[string]any{"nobody_reads_it": 1}},
			{"chat_template_kwargs": map[string]any{"enable_thinking": false, "nobody_reads_it": 1}, "reasoning_effort": "high"},
		} {
			a := &agent{t: t, base: base, model: string(s.Model), more: map[string]any{"tools": json.RawMessage(toolList(3)), "max_tokens": 2, "temperature": 0}}
			for key, value := range more {
				a.more[key] = value
			}
			a.say("user", "weather")
			turn := a.ask()
			if got := a.headers.Get("X-Sidecar-Mode"); got != mode {
				t.Errorf("%v: mode %s: %s", more, got, a.headers.Get("X-Sidecar-Fallback"))
			}
			prompts[mode] = append(prompts[mode], turn.Prompt)
		}
	}
	if got, want := fmt.Sprint(prompts[ModeTokenIn]), fmt.Sprint(prompts[ModeOwned]); got != want {
		t.Errorf("prompts as ids have %s tokens, those of messages %s", got, want)
	}
	t.Logf("prompts %v", prompts)
}

func TestVLLMSwitches(t *testing.T)   { switchesOn(t, enginetest.VLLM(t, enginetest.Options{})) }
func TestSGLangSwitches(t *testing.T) { switchesOn(t, enginetest.SGLang(t, enginetest.Options{})) }

func forgedOn(t *testing.T, s *enginetest.Server) {
	eng, engineURL := inFrontOfServer(t, s)
	cfg := idStages()
	cfg.Catalog = nil
	_, base := start(t, "fiber", Config{Engine: engineURL, Stages: cfg})
	checkForged(t, eng, &agent{t: t, base: base, model: string(s.Model), more: map[string]any{"max_tokens": 2, "temperature": 0}}, tokenizer.Qwen3())
}

func TestVLLMForgedTokens(t *testing.T)   { forgedOn(t, enginetest.VLLM(t, enginetest.Options{})) }
func TestSGLangForgedTokens(t *testing.T) { forgedOn(t, enginetest.SGLang(t, enginetest.Options{})) }

// TestVLLMReplies: with a seed the client gets the same reply in every mode and over
// both transports, log probabilities and all. Each is asked for once before it counts,
// so that all find the same of the prompt in the cache and the engine computes the
// same: a sum that is made of other parts can tip a draw.
func TestVLLMReplies(t *testing.T) {
	s := enginetest.VLLM(t, enginetest.Options{})
	session := fmt.Sprintf("Session %x.", rand.Uint64())
	ask := func(t *testing.T, mode string, edit func(string, map[string]json.RawMessage) map[string]json.RawMessage, stream bool, more map[string]any) said {
		eng, engineURL := inFrontOfServer(t, s)
		eng.edit = edit
		cfg := idStages()
		cfg.Mode, cfg.Catalog = mode, nil
		_, base := start(t, "nethttp", Config{Engine: engineURL, Stages: cfg})
		body := map[string]any{
			"model": string(s.Model), "stream": stream, "tools": json.RawMessage(toolList(12)), "seed": 11, "temperature": 1, "max_tokens": 24,
			"messages": []map[string]string{{"role": "system", "content": session}, {"role": "user", "content": "weather"}},
		}
		for k, v := range more {
			body[k] = v
		}
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(base+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Sidecar-Mode") != mode {
			t.Fatalf("status %d, mode %s %s: %s", resp.StatusCode, resp.Header.Get("X-Sidecar-Mode"), resp.Header.Get("X-Sidecar-Fallback"), out)
		}
		a := &agent{t: t, stream: stream, more: more}
		turn := a.read(out)
		for _, m := range turn.Choices {
			calls, _ := m["tool_calls"].([]map[string]any)
			for j, c := range calls {
				c["id"] = fmt.Sprint("call", j) // random
			}
		}
		return said{fmt.Sprint(turn.Choices, turn.Finish), logprobs(t, stream, out)}
	}
	for name, more := range map[string]map[string]any{
		"plain":       {},
		"required":    {"tool_choice": "required"},
		"choices":     {"n": 2},
		"log":         {"logprobs": true, "top_logprobs": 2},
		"stop string": {"stop": []string{"e", " "}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", name, stream), func(t *testing.T) {
				ask(t, ModeOwned, nil, stream, more)
				want := ask(t, ModeOwned, nil, stream, more)
				if more["logprobs"] != nil && len(want.log) == 0 {
					t.Error("no log probabilities")
				}
				if got := ask(t, ModeTokenIn, nil, stream, more); !got.equal(want) {
					t.Errorf("chat:\n%v\nwant\n%v", got, want)
				}
				if got := ask(t, ModeTokenIn, withoutKV, stream, more); !got.equal(want) {
					t.Errorf("text completion:\n%v\nwant\n%v", got, want)
				}
			})
		}
	}
}

// said is a reply: its choices and how they ended, and what is known of its tokens.
type said struct {
	text string
	log  []logged
}

// logged is the log probability of a token and the number of its alternatives. A text
// completion spells a token that is part of a character otherwise than a chat.
type logged struct {
	logprob float64
	top     int
}

// equal takes floats that end otherwise for the same.
func (a said) equal(b said) bool {
	return a.text == b.text && slices.EqualFunc(a.log, b.log, func(x, y logged) bool {
		return x.top == y.top && math.Abs(x.logprob-y.logprob) < 0.05
	})
}

func logprobs(t *testing.T, stream bool, out []byte) (list []logged) {
	t.Helper()
	events := []string{string(out)}
	if stream {
		events = strings.Split(strings.ReplaceAll(string(out), "data: [DONE]", ""), "data: ")
	}
	for _, e := range events {
		if strings.TrimSpace(e) == "" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Logprobs struct {
					Content []struct {
						Logprob float64
						Top     []struct{ Token string } `json:"top_logprobs"`
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(e), &chunk); err != nil {
			t.Fatalf("%v in %s", err, e)
		}
		for _, c := range chunk.Choices {
			for _, l := range c.Logprobs.Content {
				list = append(list, logged{l.Logprob, len(l.Top)})
			}
		}
	}
	return list
}
