//go:build engines

package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/enginetest"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/prefix"
)

func TestLlamaTokenInLoop(t *testing.T) { loops(t, enginetest.Llama(t, enginetest.Options{})) }

func TestLlamaForgedTokens(t *testing.T) { forgedOn(t, enginetest.Llama(t, enginetest.Options{})) }

// smolLM2 are stages with the vocabulary of SmolLM2.
func smolLM2(t *testing.T) StageConfig {
	t.Helper()
	root, err := enginetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(filepath.Join(root, ".cache/vocab/smollm2.json"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := idStages()
	cfg.Catalog, cfg.Counter = nil, tok
	return cfg
}

// TestLlamaSmolLM2: a tool loop of 20 turns with real weights, and text between the
// calls, in which characters of several tokens stand.
func TestLlamaSmolLM2(t *testing.T) {
	s := enginetest.Llama(t, enginetest.Options{Model: enginetest.SmolLM2})
	p, base := start(t, "fiber", Config{Engine: s.URL, Stages: smolLM2(t)})
	a := &agent{t: t, base: base, model: string(s.Model), stream: true, more: map[string]any{
		"tools": json.RawMessage(toolList(40)), "max_tokens": 40, "temperature": 0.7, "seed": 3,
	}}
	a.say("system", fmt.Sprintf("Session %x. Use many emojis 🎉🦙 and 漢字.", rand.Uint64()))
	calls := 0
	for i := range 20 {
		if n := len(a.msgs); n > 0 {
			if list, ok := a.msgs[n-1]["tool_calls"].([]map[string]any); ok {
				calls += len(list)
				for _, k := range list {
					a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": fmt.Sprintf(`{"rows": [%d, "🎉"]}`, i)})
				}
			}
		}
		a.more["tool_choice"] = []string{"auto", "required"}[i%2]
		if i%2 == 0 {
			a.say("user", fmt.Sprintf("Write only emojis about the weather of customer %d 🌧️", i))
		}
		turn := a.ask()
		rec := record(t, p)
		if rec.Mode != ModeTokenIn || rec.Fallback != "" || rec.Constraint != "gbnf" {
			t.Fatalf("turn %d: mode %s, constraint %s, fallback %q, %s", i, rec.Mode, rec.Constraint, rec.Fallback, rec.Reason)
		}
		if i > 0 {
			before := a.turns[i-1]
			if ceiling := before.Prompt + before.Completion - 1; turn.Cached < ceiling {
				t.Errorf("turn %d: %d tokens cached of %d", i, turn.Cached, ceiling)
			}
			if d := turn.Cached - rec.ExpectedCached; d < -1 || d > 1 {
				t.Errorf("turn %d: %d tokens cached, %d expected", i, turn.Cached, rec.ExpectedCached)
			}
		}
	}
	if calls == 0 {
		t.Error("no calls")
	}
	t.Logf("%d calls, last prompt %d tokens", calls, a.turns[19].Prompt)
}

// TestLlamaOwnedLoop: owned mode with real weights, 20 turns within the window.
func TestLlamaOwnedLoop(t *testing.T) {
	s := enginetest.Llama(t, enginetest.Options{Model: enginetest.SmolLM2})
	ownedLoop(t, s.URL, string(s.Model), smolLM2(t), map[string]any{"max_tokens": 40, "temperature": 0})
}

// TestLlamaBranches: six conversations on four slots, which go on, go back behind a
// message, and come back: what the server finds is what was foretold.
func TestLlamaBranches(t *testing.T) {
	s := enginetest.Llama(t, enginetest.Options{})
	eng, engineURL := inFrontOfServer(t, s)
	cfg := idStages()
	cfg.Catalog, cfg.Compare = nil, -1
	p, base := start(t, "fiber", Config{Engine: engineURL, Stages: cfg})
	rng := rand.New(rand.NewPCG(7, 8))
	tree := prefix.NewSeen(1 << 20)
	session, agents := rand.Uint64(), make([]*agent, 6)
	for i := range agents {
		agents[i] = &agent{t: t, base: base, model: string(s.Model), more: map[string]any{"tools": json.RawMessage(toolList(3)), "tool_choice": "none", "max_tokens": 8, "seed": 5}}
		agents[i].say("system", fmt.Sprintf("%d. Session %x. %s", i, session, strings.Repeat(fmt.Sprint("Rule ", i, ". "), 20)))
	}
	kinds, apart, gone := map[string]int{}, 0, 0
	for i := range 80 {
		a := agents[rng.IntN(len(agents))]
		kind := []string{"append", "append", "branch", "long branch", "retry"}[rng.IntN(5)]
		if len(a.msgs) < 3 {
			kind = "append"
		}
		switch kind {
		case "append":
			a.say("user", fmt.Sprint("Question ", i, strings.Repeat(" and more", rng.IntN(30)), "?"))
		case "retry":
			a.msgs = a.msgs[:len(a.msgs)-1]
		default:
			a.msgs = slices.Clone(a.msgs[:1+rng.IntN(len(a.msgs)/2)*2])
			n := 1
			if kind == "long branch" {
				n = 120
			}
			a.say("user", fmt.Sprint("Another ", i, strings.Repeat(" way", n)))
		}
		kinds[kind]++
		turn := a.ask()
		rec := record(t, p)
		if rec.Mode != ModeTokenIn {
			t.Fatalf("turn %d: mode %s: %s", i, rec.Mode, rec.Fallback)
		}
		// What the probe left in the slots is not known: a few tokens of framing.
		if d := turn.Cached - rec.ExpectedCached; d < -4 || d > 1 {
			apart++
			t.Logf("turn %d, %s: %d of %d tokens cached, %d expected", i, kind, turn.Cached, turn.Prompt, rec.ExpectedCached)
		}
		ids := eng.last().ids
		if min(tree.Match(ids), len(ids)-1) > turn.Cached+1 {
			gone++
		}
		tree.Add(ids)
	}
	if apart > 0 {
		t.Errorf("in %d of 80 turns expected and reported are apart", apart)
	}
	if gone == 0 {
		t.Error("nothing that was computed was given up: the test shows nothing")
	}
	t.Logf("%v; in %d turns something that was computed was gone", kinds, gone)
}

// TestLlamaReplies: what a client asks of a chat it gets from /completion.
func TestLlamaReplies(t *testing.T) {
	s := enginetest.Llama(t, enginetest.Options{Model: enginetest.SmolLM2})
	p, base := start(t, "nethttp", Config{Engine: s.URL, Stages: smolLM2(t)})
	ask := func(t *testing.T, stream bool, more map[string]any) (agentTurn, Record) {
		t.Helper()
		a := &agent{t: t, base: base, model: string(s.Model), stream: stream, more: map[string]any{
			"tools": json.RawMessage(toolList(4)), "max_tokens": 24, "temperature": 0, "seed": 7,
		}}
		for key, value := range more {
			a.more[key] = value
		}
		a.say("user", "What is the capital of France?")
		turn := a.ask()
		return turn, record(t, p)
	}
	texts := func(turn agentTurn) (list []string) {
		for _, m := range turn.Choices {
			list = append(list, fmt.Sprint(m["content"]))
		}
		return list
	}
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			ask(t, stream, nil) // all that follow find the same in the cache
			plain, rec := ask(t, stream, nil)
			if rec.Mode != ModeTokenIn || len(plain.Choices) != 1 || texts(plain)[0] == "" {
				t.Fatalf("mode %s, %+v", rec.Mode, plain)
			}
			again, rec := ask(t, stream, nil)
			if !slices.Equal(texts(again), texts(plain)) {
				t.Errorf("temperature 0: %q, then %q", texts(plain), texts(again))
			}
			if want := again.Prompt - 1; again.Cached < want-1 || again.Cached != rec.ExpectedCached {
				t.Errorf("%d of %d tokens cached, %d expected", again.Cached, again.Prompt, rec.ExpectedCached)
			}
			cut, _ := ask(t, stream, map[string]any{"max_tokens": 3})
			if cut.Finish[0] != "length" || cut.Completion != 3 || !strings.HasPrefix(texts(plain)[0], texts(cut)[0]) {
				t.Errorf("3 tokens: %+v", cut)
			}
			stop, _ := ask(t, stream, map[string]any{"stop": []string{" is", "zzz"}})
			if before, _, ok := strings.Cut(texts(plain)[0], " is"); ok && (stop.Finish[0] != "stop" || texts(stop)[0] != before) {
				t.Errorf("stop string: %+v", stop)
			}
			several, rec := ask(t, stream, map[string]any{"n": 3, "temperature": 1})
			if len(several.Choices) != 3 || rec.Error != "" {
				t.Errorf("three choices: %+v, %s", several, rec.Error)
			}
			if logged, _ := ask(t, stream, map[string]any{"logprobs": true, "top_logprobs": 2}); !slices.Equal(texts(logged), texts(plain)) {
				t.Errorf("with log probabilities %q", texts(logged))
			}
			named, rec := ask(t, stream, map[string]any{"tool_choice": json.RawMessage(`{"type":"function","function":{"name":"` + firstTool(t) + `"}}`), "max_tokens": 200})
			if calls, _ := named.Choices[0]["tool_calls"].([]map[string]any); named.Finish[0] != "length" && (len(calls) != 1 || calls[0]["function"].(map[string]any)["name"] != firstTool(t)) {
				t.Errorf("named: %+v, %s", named, rec.Fallback)
			}
		})
	}
}

func firstTool(t *testing.T) string {
	t.Helper()
	var list []struct{ Function struct{ Name string } }
	if err := json.Unmarshal([]byte(toolList(1)), &list); err != nil {
		t.Fatal(err)
	}
	return list[0].Function.Name
}

// TestLlamaOwned: without the vocabulary prompts go as text to the chat endpoint,
// held to a grammar where a call is demanded.
func TestLlamaOwned(t *testing.T) {
	s := enginetest.Llama(t, enginetest.Options{})
	cfg := idStages()
	cfg.Mode, cfg.Catalog = ModeOwned, nil
	p, base := start(t, "nethttp", Config{Engine: s.URL, Stages: cfg})
	a := &agent{t: t, base: base, model: string(s.Model), more: map[string]any{"tools": json.RawMessage(toolList(4)), "max_tokens": 300, "temperature": 1, "seed": 5}}
	a.say("system", "Be terse.")
	a.say("user", "invoice")
	for i, tt := range []struct{ choice, constraint string }{{"required", "gbnf"}, {"auto", "checked"}, {"required", "gbnf"}} {
		a.more["tool_choice"] = tt.choice
		turn := a.ask()
		rec := record(t, p)
		if rec.Mode != ModeOwned || rec.Constraint != tt.constraint {
			t.Errorf("%s: mode %s, constraint %s, %s", tt.choice, rec.Mode, rec.Constraint, rec.Fallback)
		}
		if calls, _ := turn.Choices[0]["tool_calls"].([]map[string]any); tt.choice == "required" && len(calls) == 0 && turn.Finish[0] != "length" {
			t.Errorf("no call: %+v", turn)
		}
		if rec.PromptTokens != turn.Prompt {
			t.Errorf("turn %d: %d prompt tokens by the engine, %d by us", i, turn.Prompt, rec.PromptTokens)
		}
		if calls, ok := a.msgs[len(a.msgs)-1]["tool_calls"].([]map[string]any); ok {
			for _, k := range calls {
				a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": "1"})
			}
		}
		a.say("user", "go on")
	}
}
