package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/racetest"
	"github.com/toolsidecar/sidecar/internal/simengine"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// mangle sends a conversation back as some clients do: ids renumbered, arguments
// dumped anew with their keys in another order, reasoning dropped, the results of
// one turn in another order, keys of messages in another order.
func mangle(rng *rand.Rand, msgs []map[string]any) []map[string]any {
	out := make([]map[string]any, len(msgs))
	for i, m := range msgs {
		c := map[string]any{}
		for k, v := range m {
			c[k] = v
		}
		delete(c, "reasoning_content")
		if id, ok := c["tool_call_id"].(string); ok {
			c["tool_call_id"] = "renumbered-" + id
		}
		if calls, ok := c["tool_calls"].([]map[string]any); ok {
			var again []map[string]any
			for _, k := range calls {
				f := k["function"].(map[string]any)
				args := f["arguments"].(string)
				var object map[string]any
				dec := json.NewDecoder(strings.NewReader(args))
				dec.UseNumber()
				if dec.Decode(&object) == nil {
					raw, err := json.MarshalIndent(object, "", "\t") // its keys are sorted
					if err != nil {
						panic(err)
					}
					args = string(raw)
				}
				again = append(again, map[string]any{"id": "renumbered-" + k["id"].(string), "type": "function", "function": map[string]any{"arguments": args, "name": f["name"]}})
			}
			c["tool_calls"] = again
		}
		out[i] = c
	}
	for i := 0; i < len(out); i++ {
		j := i
		for j < len(out) && out[j]["role"] == "tool" {
			j++
		}
		rng.Shuffle(max(j-i, 0), func(a, b int) { out[i+a], out[i+b] = out[i+b], out[i+a] })
		i = max(i, j-1)
	}
	return out
}

// leave begins a streamed turn, reads at least so many bytes of text and closes the
// connection. It returns the text that was read.
func (a *agent) leave(least int) string {
	a.t.Helper()
	body := map[string]any{"model": "sim-qwen3", "messages": a.msgs, "stream": true}
	for k, v := range a.more {
		body[k] = v
	}
	raw, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.base, "http://"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequest(http.MethodPost, a.base+"/v1/chat/completions", bytes.NewReader(raw))
	if err != nil {
		a.t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		a.t.Fatal(err)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && text.Len() < least; {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			a.t.Fatalf("%v in %s", err, data)
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return text.String()
}

// TestClosure plays random conversations: tools appear and disappear, the client
// branches, leaves, retries, is cut by length, asks for several choices and mangles
// its copy. What the engine reports as cached is what was expected, at most one block
// apart in 99 of 100 turns; and where a turn only adds to the one before, all of that
// one is cached, down to the block, or what the template keeps of it.
func TestClosure(t *testing.T) {
	for _, tt := range []struct {
		family    string
		block     int
		reasoning bool
	}{{"hermes", 16, false}, {"hermes", 64, true}, {"hermes", 528, false}, {"glm-4.5", 16, true}, {"glm-4.5", 64, false}, {"glm-4.7", 64, true}, {"glm-4.7", 16, false}} {
		t.Run(fmt.Sprintf("%s/block=%d/reasoning=%v", tt.family, tt.block, tt.reasoning), func(t *testing.T) {
			cfg := simengine.Config{Family: tt.family, BlockSize: tt.block, Reasoning: tt.reasoning}
			n := 8
			if tt.family != "hermes" {
				cfg.Tokenizer, n = glmVocabulary(t, tt.family), 4
			}
			if racetest.Enabled { // a request at a time needs few of them
				n /= 4
			}
			playClosure(t, cfg, n)
		})
	}
}

// glmVocabulary is one of bytes with the tokens of GLM: those of turns are control
// tokens, those of calls and reasoning are not.
func glmVocabulary(t *testing.T, family string) *tokenizer.Tokenizer {
	t.Helper()
	f, err := wire.ByName(family)
	if err != nil {
		t.Fatal(err)
	}
	vocabulary, next := map[string]int{}, '\u0100'
	for b := range 256 { // as byte-level BPE spells bytes
		r := rune(b)
		if r < '!' || r > '~' && r < '¡' || r == '\u00ad' {
			r, next = next, next+1
		}
		vocabulary[string(r)] = b
	}
	type added struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	}
	var more []added
	for _, s := range f.Controls {
		more = append(more, added{256 + len(more), s, true})
	}
	for _, s := range append(f.CallTags(), f.ThinkOpen, f.ThinkClose) {
		if strings.HasPrefix(s, "<") && !slices.ContainsFunc(more, func(a added) bool { return a.Content == s }) {
			more = append(more, added{256 + len(more), s, false})
		}
	}
	raw, err := json.Marshal(map[string]any{
		"added_tokens":  more,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"model":         map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func playClosure(t *testing.T, engine simengine.Config, conversations int) {
	block := engine.BlockSize
	_, url := newIDEngine(t, engine)
	cfg := idStages()
	cfg.Catalog = nil
	if engine.Tokenizer != nil {
		// The simulated engine reads no grammar of arguments in tags.
		cfg.Counter, cfg.Grammar = engine.Tokenizer, false
	}
	p, base := start(t, "fiber", Config{Engine: url, Stages: cfg})
	demo := catalog.Demo().Index()
	var tools []json.RawMessage
	for i := 0; i < demo.Len(); i += 16 {
		tools = append(tools, demo.Tool(i).Raw)
	}
	turns, apart, closed, kinds := 0, 0, 0, map[string]int{}
	for c := range conversations {
		rng := rand.New(rand.NewPCG(uint64(c), uint64(block)))
		says := func() string {
			tool := demo.Tool(rng.IntN(demo.Len()/16) * 16)
			return fmt.Sprintf("%s for number %d%s", tool.Name, rng.IntN(100), []string{"", " and tell me at once, in parallel", ". Why?"}[rng.IntN(3)])
		}
		a := &agent{t: t, base: base, more: map[string]any{}}
		shown := slices.Clone(tools)
		a.say("system", fmt.Sprintf("Conversation %d.", c))
		continues, before := false, agentTurn{}
		for range 14 {
			clear(a.more)
			a.more["tools"], a.more["seed"] = shown, rng.IntN(1000)
			a.stream = rng.IntN(2) == 0
			kind := []string{"append", "append", "append", "append", "append", "retry", "branch", "leave", "cut", "choices", "mangle", "mangle", "tools"}[rng.IntN(13)]
			if len(a.turns) == 0 || kind == "tools" && !cfg.Grammar { // nothing keeps it from calling what is gone
				kind = "append"
			}
			switch kind {
			case "retry": // the last reply is asked for again
				for len(a.msgs) > 1 && a.msgs[len(a.msgs)-1]["role"] != "assistant" {
					a.msgs = a.msgs[:len(a.msgs)-1]
				}
				if len(a.msgs) > 2 {
					a.msgs = a.msgs[:len(a.msgs)-1]
				}
				if last := a.msgs[len(a.msgs)-1]["role"]; last != "user" && last != "tool" {
					a.say("user", says())
				}
				continues = false
			case "branch": // an earlier message of the user is edited
				var users []int
				for i, m := range a.msgs {
					if m["role"] == "user" {
						users = append(users, i)
					}
				}
				at := users[rng.IntN(len(users))]
				a.msgs = append(slices.Clone(a.msgs[:at]), map[string]any{"role": "user", "content": says()})
				continues = false
			default:
				switch kind {
				case "mangle":
					a.msgs = mangle(rng, a.msgs)
				case "tools":
					shown = slices.Clone(tools[:len(tools)/2+rng.IntN(len(tools)/2)])
					a.more["tools"] = shown
				case "cut":
					a.more["max_tokens"] = 1 + rng.IntN(12)
				case "choices":
					a.more["n"] = 2
				}
				results(a, rng)
				if last := a.msgs[len(a.msgs)-1]["role"]; last != "tool" || rng.IntN(4) == 0 {
					a.say("user", says())
				}
			}
			kinds[kind]++
			if kind == "leave" {
				if text := a.leave(1 + rng.IntN(30)); text != "" && rng.IntN(2) == 0 {
					a.msgs = append(a.msgs, map[string]any{"role": "assistant", "content": text})
				}
				p.settled()
				continues = false
				continue
			}
			turn := a.ask()
			rec := record(t, p)
			if rec.Mode != ModeTokenIn {
				t.Fatalf("conversation %d, %s: mode %s: %s", c, kind, rec.Mode, rec.Fallback)
			}
			turns++
			if d := turn.Cached - rec.ExpectedCached; d < -block || d > block {
				apart++
				t.Logf("conversation %d, %s: %d cached, %d expected", c, kind, turn.Cached, rec.ExpectedCached)
			}
			if continues && rec.Epoch == "" {
				ceiling := before.Prompt + before.Completion - 1
				if rec.Kept > 0 {
					ceiling = min(ceiling, rec.Kept)
				}
				if ceiling = ceiling / block * block; turn.Cached < ceiling {
					t.Errorf("conversation %d, %s: %d tokens cached of %d", c, kind, turn.Cached, ceiling)
				}
				closed++
			}
			// Of several choices the completion tokens are one sum.
			continues, before = kind != "choices", turn
			if n := len(turn.Choices); n > 1 && rng.IntN(2) == 0 {
				a.msgs[len(a.msgs)-1] = turn.Choices[n-1]
			}
		}
	}
	if 100*apart > turns {
		t.Errorf("in %d of %d turns expected and reported are more than a block apart", apart, turns)
	}
	t.Logf("%d turns, %d of them continue the one before; %v", turns, closed, kinds)
}

// results answers the calls of the last message.
func results(a *agent, rng *rand.Rand) {
	calls, _ := a.msgs[len(a.msgs)-1]["tool_calls"].([]map[string]any)
	for _, k := range calls {
		f := k["function"].(map[string]any)
		a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": catalog.Toy(f["name"].(string), []byte(f["arguments"].(string))) + fmt.Sprint(rng.IntN(1000))})
	}
}

// settled waits until no request is being served.
func (p *Proxy) settled() {
	for {
		p.mu.Lock()
		n := len(p.live)
		p.mu.Unlock()
		if n == 0 {
			return
		}
		runtime.Gosched()
	}
}
