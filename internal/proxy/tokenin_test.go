package proxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/internal/simengine"
	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// idEngine stands in front of an engine and keeps the bodies which it is sent.
type idEngine struct {
	next http.Handler
	// edit changes a request before the engine sees it, or refuses it with nil.
	edit func(path string, body map[string]json.RawMessage) map[string]json.RawMessage

	mu     sync.Mutex // guards bodies
	bodies []idBody
}

type idBody struct {
	path     string
	ids      []int32
	messages []struct{ Role, Content string }
}

func newIDEngine(t testing.TB, cfg simengine.Config) (*idEngine, string) {
	t.Helper()
	cfg.PromptTokensDetails = true
	if cfg.MaxModelLen == 0 {
		cfg.MaxModelLen = 1 << 20
	}
	sim, err := simengine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return inFrontOf(t, sim)
}

func inFrontOf(t testing.TB, next http.Handler) (*idEngine, string) {
	e := &idEngine{next: next}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	return e, srv.URL
}

func (e *idEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if e.edit != nil {
			var body map[string]json.RawMessage
			if json.Unmarshal(raw, &body) == nil {
				if body = e.edit(r.URL.Path, body); body == nil {
					http.Error(w, `{"error":{"message":"refused"}}`, http.StatusBadRequest)
					return
				}
				if raw, err = json.Marshal(body); err != nil {
					panic(err)
				}
			}
		}
		var body struct {
			Messages   []struct{ Role, Content string }
			Prompt     []int32
			Input      []int32 `json:"input_ids"`
			KVTransfer struct {
				IDs []int32 `json:"prompt_token_ids"`
			} `json:"kv_transfer_params"`
		}
		_ = json.Unmarshal(raw, &body) // what does not fit is not looked at
		if strings.HasSuffix(r.URL.Path, "/completions") || r.URL.Path == engine.Completion.Path() {
			e.mu.Lock()
			e.bodies = append(e.bodies, idBody{r.URL.Path, slices.Concat(body.KVTransfer.IDs, body.Prompt, body.Input), body.Messages})
			e.mu.Unlock()
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	}
	e.next.ServeHTTP(w, r)
}

// last is the last body of a chat or text completion.
func (e *idEngine) last() idBody {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bodies[len(e.bodies)-1]
}

// idStages are all stages with the demo catalog and no searches of the model, so
// that a request is one prompt.
func idStages() StageConfig {
	cfg := allStages()
	cfg.Mode, cfg.Catalog, cfg.Rounds = ModeAuto, catalog.Demo, 0
	return cfg
}

// agent is a plain client with its own copy of the conversation.
type agent struct {
	t       testing.TB
	base    string
	model   string
	stream  bool
	more    map[string]any // further fields of each request
	msgs    []map[string]any
	headers http.Header // of the last reply
	turns   []agentTurn
}

type agentTurn struct {
	Prompt, Completion, Cached int
	Finish                     []string
	Choices                    []map[string]any // as messages
	IDs                        []int32          // of the first choice, where they were asked for
}

func (a *agent) say(role, text string) {
	a.msgs = append(a.msgs, map[string]any{"role": role, "content": text})
}

// ask sends the conversation and takes the first choice into it.
func (a *agent) ask() agentTurn {
	a.t.Helper()
	body := map[string]any{"model": cmp.Or(a.model, "sim-qwen3"), "messages": a.msgs, "stream": a.stream}
	if a.stream {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	for k, v := range a.more {
		body[k] = v
	}
	raw, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.Post(a.base+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		a.t.Fatalf("status %d, %v: %s", resp.StatusCode, err, out)
	}
	a.headers = resp.Header
	turn := a.read(out)
	a.turns = append(a.turns, turn)
	a.msgs = append(a.msgs, turn.Choices[0])
	return turn
}

func (a *agent) read(out []byte) agentTurn {
	a.t.Helper()
	type function struct{ Name, Arguments string }
	type message struct {
		Content   *string
		Reasoning string `json:"reasoning_content"`
		Calls     []struct {
			Index    int
			ID       string
			Function function
		} `json:"tool_calls"`
	}
	type chunk struct {
		Object  string
		IDs     json.RawMessage `json:"prompt_token_ids"`
		Choices []struct {
			Index          int
			Message, Delta message
			Finish         *string         `json:"finish_reason"`
			IDs            json.RawMessage `json:"token_ids"`
		}
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	events := []string{string(out)}
	if a.stream {
		events = nil
		for line := range strings.Lines(string(out)) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" {
				events = append(events, data)
			}
		}
	}
	var turn agentTurn
	type building struct {
		text, reasoning string
		calls           []map[string]any
	}
	var choices []*building
	for _, e := range events {
		var c chunk
		if err := json.Unmarshal([]byte(e), &c); err != nil {
			a.t.Fatalf("%v in %s", err, e)
		}
		if want := map[bool]string{true: "chat.completion.chunk", false: "chat.completion"}[a.stream]; c.Object != want {
			a.t.Fatalf("object %q, want %q", c.Object, want)
		}
		if given(c.IDs) && a.more["return_token_ids"] != true {
			a.t.Fatalf("the client is shown the ids of the prompt: %.200s", e)
		}
		if u := c.Usage; u != nil {
			turn.Prompt, turn.Completion, turn.Cached = u.Prompt, u.Completion, u.Details.Cached
		}
		for _, ch := range c.Choices {
			for len(choices) <= ch.Index {
				choices = append(choices, &building{})
				turn.Finish = append(turn.Finish, "")
			}
			if given(ch.IDs) && a.more["return_token_ids"] != true {
				a.t.Fatalf("the client is shown the ids of the reply: %.200s", e)
			}
			if ch.Index == 0 && given(ch.IDs) {
				var ids []int32
				if err := json.Unmarshal(ch.IDs, &ids); err != nil {
					a.t.Fatal(err)
				}
				turn.IDs = append(turn.IDs, ids...)
			}
			b := choices[ch.Index]
			for _, m := range []message{ch.Message, ch.Delta} {
				if m.Content != nil {
					b.text += *m.Content
				}
				b.reasoning += m.Reasoning
				for i, k := range m.Calls {
					at := k.Index
					if !a.stream {
						at = i
					}
					for len(b.calls) <= at {
						b.calls = append(b.calls, map[string]any{"id": k.ID, "type": "function", "function": map[string]any{"name": k.Function.Name, "arguments": ""}})
					}
					f := b.calls[at]["function"].(map[string]any)
					f["arguments"] = f["arguments"].(string) + k.Function.Arguments
				}
			}
			if ch.Finish != nil {
				turn.Finish[ch.Index] = *ch.Finish
			}
		}
	}
	for _, b := range choices {
		m := map[string]any{"role": "assistant", "content": b.text}
		if b.calls != nil {
			m["tool_calls"] = b.calls
		}
		if b.reasoning != "" {
			m["reasoning_content"] = b.reasoning
		}
		turn.Choices = append(turn.Choices, m)
	}
	return turn
}

// given says that a member is there and not null.
func given(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

// step says the next thing: the results of the last calls, or words of the user.
func (a *agent) step(i int) {
	tasks := catalog.Tasks()
	if n := len(a.msgs); n > 0 {
		if calls, ok := a.msgs[n-1]["tool_calls"].([]map[string]any); ok {
			for _, k := range calls {
				f := k["function"].(map[string]any)
				a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": catalog.Toy(f["name"].(string), []byte(f["arguments"].(string)))})
			}
			return
		}
	}
	task := tasks[i%len(tasks)]
	a.say("user", task.Turns[0].Say)
}

func record(t testing.TB, p *Proxy) Record {
	t.Helper()
	p.stages.(*stages).records.settled(t.Context())
	all := p.stages.(*stages).records.last()
	return all[len(all)-1]
}

// counted is the sum of a counter over its labels.
func counted(t testing.TB, p *Proxy, name string) (sum float64) {
	t.Helper()
	families, err := p.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestTokenInLoop: in a tool loop with tools appearing, each prompt goes out as
// ids, the real messages beside them, and the engine finds all of the turn before
// in its cache, as expected.
func TestTokenInLoop(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, block := range []int{16, 64} {
			t.Run(fmt.Sprintf("stream=%v/block=%d", stream, block), func(t *testing.T) {
				eng, url := newIDEngine(t, simengine.Config{BlockSize: block})
				p, base := start(t, "fiber", Config{Engine: url, Stages: idStages()})
				a := &agent{t: t, base: base, stream: stream}
				a.say("system", "You are an assistant with many tools.")
				appeared := 0
				for i := range 12 {
					a.step(i)
					turn := a.ask()
					rec := record(t, p)
					body := eng.last()
					if rec.Mode != ModeTokenIn || a.headers.Get("X-Sidecar-Mode") != ModeTokenIn || rec.Fallback != "" {
						t.Fatalf("turn %d: mode %s, fallback %q", i, rec.Mode, rec.Fallback)
					}
					if len(body.ids) != turn.Prompt || len(body.messages) == 0 || turn.Prompt != rec.PromptTokens {
						t.Errorf("turn %d: %d ids and %d messages were sent, %d tokens were counted", i, len(body.ids), len(body.messages), turn.Prompt)
					}
					if turn.Cached != rec.ExpectedCached {
						t.Errorf("turn %d: %d tokens cached, %d expected", i, turn.Cached, rec.ExpectedCached)
					}
					if i > 0 {
						before := a.turns[i-1]
						if ceiling := (before.Prompt + before.Completion - 1) / block * block; turn.Cached < ceiling {
							t.Errorf("turn %d: %d tokens cached of %d", i, turn.Cached, ceiling)
						}
					}
					if len(rec.Added) > 0 {
						appeared++
					}
				}
				if appeared < 3 {
					t.Errorf("tools appeared in %d turns", appeared)
				}
			})
		}
	}
}

// ownedLoop runs a tool loop of 20 turns in owned mode, in which tools appear, and
// wants 95 % of the ceiling over all turns together. Each loss is told with its
// reason: a turn that the model did not write in the tokens that its text is read as,
// or an engine that found less than was foretold.
func ownedLoop(t *testing.T, engine, model string, cfg StageConfig, more map[string]any) {
	cfg.Mode = ModeOwned
	// What a model writes is its own affair, so it is always asked the same, with a
	// salt that parts the run from what an engine has seen before.
	cfg.CacheSalt = true
	p, base := start(t, "fiber", Config{Engine: engine, Stages: cfg})
	a := &agent{t: t, base: base, model: model, more: map[string]any{"tools": json.RawMessage(toolList(40)), "return_token_ids": true}}
	for key, value := range more {
		a.more[key] = value
	}
	a.say("system", fmt.Sprintf("%s. You look things up.", t.Name()))
	topics := []string{"weather", "invoice", "calendar", "warehouse", "ticket", "recipe", "payroll", "playlist", "translation", "kubernetes"}
	cached, ceilings, appeared, calls := 0, 0, 0, 0
	for i := range 20 {
		if list, ok := a.msgs[len(a.msgs)-1]["tool_calls"].([]map[string]any); ok {
			calls += len(list)
			for _, k := range list {
				a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": fmt.Sprintf(`{"rows": [%d, %d]}`, i, i*i)})
			}
		}
		if i%2 == 0 {
			a.say("user", fmt.Sprintf("Look up the %s of customer %d.", topics[i/2%len(topics)], i))
		}
		a.more["tool_choice"] = []string{"required", "auto"}[i%2]
		turn := a.ask()
		rec := record(t, p)
		if rec.Mode != ModeOwned || rec.Epoch != "" {
			t.Fatalf("turn %d: mode %s, %s, epoch %q", i, rec.Mode, rec.Reason, rec.Epoch)
		}
		if len(rec.Added) > 0 {
			appeared++
		}
		info, err := p.stages.(*stages).engine.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := turn.Cached - rec.ExpectedCached; d < -info.BlockSize || d > info.BlockSize {
			t.Errorf("turn %d: %d tokens cached, %d expected", i, turn.Cached, rec.ExpectedCached)
		}
		if i == 0 {
			continue
		}
		before := a.turns[i-1]
		ceiling := (before.Prompt + before.Completion - 1) / info.BlockSize * info.BlockSize
		cached, ceilings = cached+min(turn.Cached, ceiling), ceilings+ceiling
		if turn.Cached < ceiling {
			t.Logf("turn %d: %d of %d tokens found, %d expected: %s", i, turn.Cached, ceiling, rec.ExpectedCached, respelled(cfg.Counter, before.IDs))
		}
	}
	share := float64(cached) / float64(ceilings)
	if share < 0.95 {
		t.Errorf("%.1f %% of the ceiling over 20 turns", 100*share)
	}
	if appeared < 3 || calls < 5 {
		t.Errorf("tools appeared in %d turns, %d calls", appeared, calls)
	}
	t.Logf("owned mode, 20 turns: %.2f %% of the ceiling, last prompt %d tokens, tools appeared in %d turns, %d calls", 100*share, a.turns[19].Prompt, appeared, calls)
}

// respelled says where generated ids are not those that their text is read as.
func respelled(tok *tokenizer.Tokenizer, ids []int32) string {
	text, err := tok.Decode(nil, ids)
	if err != nil {
		return err.Error()
	}
	canonical := tok.Encode(nil, string(text))
	at := prefix.Common(ids, canonical)
	if at == len(ids) {
		return "the turn before was written in the tokens that its text is read as"
	}
	wrote, _ := tok.Decode(nil, ids[at:min(at+3, len(ids))])
	return fmt.Sprintf("the model wrote %q as %d, which is read as %d", wrote, ids[at:min(at+3, len(ids))], canonical[min(at, len(canonical)):min(at+3, len(canonical))])
}

// TestOwnedLoop on the simulated engine.
func TestOwnedLoop(t *testing.T) {
	_, url := newIDEngine(t, simengine.Config{})
	cfg := idStages()
	cfg.Catalog = nil
	ownedLoop(t, url, "sim-qwen3", cfg, nil)
}

// TestTokenInIsOwned: the ids are those of the text that owned mode sends, and the
// client is told the same.
func TestTokenInIsOwned(t *testing.T) {
	tok := tokenizer.Qwen3()
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		ids  []int32
		said string
	}
	var runs [2][]outcome
	for i, mode := range []string{ModeTokenIn, ModeOwned} {
		eng, url := newIDEngine(t, simengine.Config{})
		cfg := idStages()
		cfg.Mode = mode
		_, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
		a := &agent{t: t, base: base}
		for j := range 6 {
			a.step(j)
			turn := a.ask()
			calls, _ := turn.Choices[0]["tool_calls"].([]map[string]any)
			for _, c := range calls {
				c["id"] = "x" // random
			}
			body := eng.last()
			if mode == ModeOwned {
				var msgs []wire.Message
				for _, m := range body.messages {
					msgs = append(msgs, wire.Message{Role: m.Role, Content: m.Content})
				}
				body.ids = tok.Encode(nil, string(f.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true})))
			}
			runs[i] = append(runs[i], outcome{body.ids, fmt.Sprint(turn.Choices, turn.Finish, turn.Completion)})
		}
	}
	for j := range runs[0] {
		if a, b := runs[0][j], runs[1][j]; !slices.Equal(a.ids, b.ids) || a.said != b.said {
			t.Errorf("turn %d: %d ids against %d, %s against %s", j, len(a.ids), len(b.ids), a.said, b.said)
		}
	}
}

// forged are texts that spell control tokens, by family.
func forged(t testing.TB) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/forged.json")
	if err != nil {
		t.Fatal(err)
	}
	var corpus map[string][]string
	if err := json.Unmarshal(raw, &corpus); err != nil {
		t.Fatal(err)
	}
	if len(corpus) == 0 {
		t.Fatal("the corpus is empty")
	}
	return corpus
}

// forge asks two turns of a conversation in which text stands in the words of
// system, developer and user, in names and arguments of calls, in their results, and
// in description and schema of a tool. The name of a tool can't hold it: see
// TestForgedNames.
func forge(a *agent, text string) {
	quoted := func(s string) string { return string(openai.AppendString(nil, s)) }
	tool := func(name string) json.RawMessage {
		return json.RawMessage(`{"type":"function","function":{"name":` + quoted(name) + `,"description":` + quoted("Reads "+text) +
			`,"parameters":{"type":"object","properties":{"x":{"type":"string","description":` + quoted(text) + `,"enum":["a",` + quoted(text) + `]}}}}}`)
	}
	a.more["tools"] = []json.RawMessage{tool("read_it")}
	a.msgs = []map[string]any{
		{"role": "system", "content": "Be terse. " + text},
		{"role": "user", "content": text},
		{"role": "assistant", "content": "", "tool_calls": []map[string]any{{"id": "c", "type": "function", "function": map[string]any{"name": "read_it", "arguments": `{"x":` + quoted(text) + `}`}},
			{"id": "d", "type": "function", "function": map[string]any{"name": "read_" + text, "arguments": text}}}},
		{"role": "tool", "tool_call_id": "c", "content": text},
		{"role": "tool", "tool_call_id": "d", "content": text},
		{"role": "developer", "content": text},
		{"role": "user", "content": []map[string]any{{"type": "text", "text": text}, {"type": "text", "text": "go on"}}},
	}
	a.ask()
	if calls, ok := a.msgs[len(a.msgs)-1]["tool_calls"].([]map[string]any); ok {
		for _, k := range calls {
			a.msgs = append(a.msgs, map[string]any{"role": "tool", "tool_call_id": k["id"], "content": text})
		}
	}
	a.say("user", text)
	a.ask()
}

// checkForged sends the corpus and compares the added tokens of each prompt with
// those of the same conversation in harmless words.
func checkForged(t *testing.T, eng *idEngine, a *agent, tok *tokenizer.Tokenizer) {
	prompts := func(text string) [][]int32 {
		eng.mu.Lock()
		from := len(eng.bodies)
		eng.mu.Unlock()
		forge(a, text)
		var out [][]int32
		eng.mu.Lock()
		defer eng.mu.Unlock()
		for _, b := range eng.bodies[from:] {
			out = append(out, b.ids)
		}
		return out
	}
	added := func(ids []int32) map[int32]int {
		n := map[int32]int{}
		for _, id := range ids {
			if tok.IsAdded(id) {
				n[id]++
			}
		}
		return n
	}
	prompts("harmless") // behind the probe
	want := added(prompts("harmless")[0])
	mark, reach := 0, 0
	for family, texts := range forged(t) {
		for _, text := range texts {
			got := prompts(text)
			for i, ids := range got {
				if len(ids) == 0 {
					t.Fatalf("%s: %q: request %d was not sent as ids: %s", family, text, i, a.headers.Get("X-Sidecar-Fallback"))
				}
				// The first prompt's framing is known; that of the second has the
				// engine's own reply in it.
				if have := added(ids); i == 0 && fmt.Sprint(have) != fmt.Sprint(want) {
					reach++
					plain, _ := tok.Decode(nil, ids)
					t.Errorf("%s: %q: added tokens %v, want %v:\n%s", family, text, have, want, plain)
				}
				for _, id := range []string{"<|im_start|>", "<|im_end|>", "<|user|>", "<|observation|>"} {
					if control, ok := tok.ID(id); ok && i == 1 {
						if have, base := added(ids)[control], added(got[0])[control]; have < base || have > base+6 {
							t.Errorf("%s: %q: %d %s in the second prompt, %d in the first", family, text, have, id, base)
						}
					}
				}
				mark++
			}
		}
	}
	t.Logf("%d prompts, %d with forged tokens", mark, reach)
}

// TestForgedTokens: no text of a client, a tool or a schema reaches the engine as a
// control token.
func TestForgedTokens(t *testing.T) {
	for family, tok := range map[string]*tokenizer.Tokenizer{"hermes": tokenizer.Qwen3(), "glm-4.5": glmVocabulary(t, "glm-4.5"), "glm-4.7": glmVocabulary(t, "glm-4.7")} {
		t.Run(family, func(t *testing.T) {
			eng, url := newIDEngine(t, simengine.Config{Family: family, Tokenizer: tok})
			cfg := idStages()
			cfg.Catalog, cfg.Counter = nil, tok
			_, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
			checkForged(t, eng, &agent{t: t, base: base, more: map[string]any{}}, tok)
		})
	}
}

// TestForgedNames: a name that spells a control token is refused.
func TestForgedNames(t *testing.T) {
	_, url := newIDEngine(t, simengine.Config{})
	cfg := idStages()
	cfg.Catalog = nil
	_, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
	for family, texts := range forged(t) {
		for _, text := range texts {
			body := []byte(`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":` + string(openai.AppendString(nil, text)) + `}}]}`)
			resp, err := http.Post(base+"/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: a tool named %q: status %d", family, text, resp.StatusCode)
			}
		}
	}
}

// TestTokenInLowers: what may change the prompt, or is not text, goes in owned mode,
// and the reply says why; the next request is sent as ids again.
func TestTokenInLowers(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	// A template that reads these.
	eng.edit = func(path string, body map[string]json.RawMessage) map[string]json.RawMessage {
		kwargs := string(body["chat_template_kwargs"])
		rendered := path == "/tokenize" && (strings.Contains(kwargs, "tools_in_user_message") || strings.Contains(kwargs, `"high"`))
		if rendered || string(body["reasoning_effort"]) == `"xhigh"` {
			body["messages"] = json.RawMessage(`[{"role":"system","content":"of the template"},` + string(body["messages"][1:]))
		}
		return body
	}
	_, base := start(t, "nethttp", Config{Engine: url, Stages: idStages()})
	for _, tt := range []struct {
		field string
		value any
		mode  string
		why   string
	}{
		{"temperature", 0.5, ModeTokenIn, ""},
		{"stop", "zzz", ModeTokenIn, ""},
		{"seed", 7, ModeTokenIn, ""},
		{"max_completion_tokens", 40, ModeTokenIn, ""},
		{"metadata", map[string]string{"a": "b"}, ModeTokenIn, ""},
		{"chat_template_kwargs", map[string]bool{"enable_thinking": false}, ModeTokenIn, ""},
		{"chat_template_kwargs", map[string]bool{"enable_thinking": true}, ModeTokenIn, ""},
		{"chat_template_kwargs", map[string]bool{}, ModeTokenIn, ""},
		{"chat_template_kwargs", map[string]any{"enable_thinking": nil}, ModeOwned, "enable_thinking"},
		{"chat_template_kwargs", map[string]bool{"enable_thinking": false, "tools_in_user_message": true}, ModeOwned, "tools_in_user_message may change the prompt"},
		{"chat_template_kwargs", map[string]any{"enable_thinking": false, "nobody_reads_it": []int{1}}, ModeTokenIn, ""},
		{"chat_template_kwargs", map[string]string{"long": strings.Repeat("x", maxSwitches)}, ModeOwned, "bytes"},
		{"add_generation_prompt", true, ModeOwned, "add_generation_prompt"},
		{"reasoning_effort", "low", ModeTokenIn, ""},
		{"reasoning_effort", "none", ModeTokenIn, ""},
		{"reasoning_effort", nil, ModeTokenIn, ""},
		{"reasoning_effort", "high", ModeOwned, "reasoning_effort may change the prompt"},
		{"reasoning_effort", "xhigh", ModeOwned, "reasoning_effort may change the prompt: reasoning_effort changes"},
		{"documents", []any{}, ModeOwned, "documents"},
		{"something_new", 1, ModeOwned, "something_new"},
	} {
		a := &agent{t: t, base: base, more: map[string]any{tt.field: tt.value}}
		a.step(0)
		a.ask()
		body := eng.last()
		if a.headers.Get("X-Sidecar-Mode") != tt.mode || !strings.Contains(a.headers.Get("X-Sidecar-Fallback"), tt.why) || (len(body.ids) > 0) != (tt.mode == ModeTokenIn) {
			t.Errorf("%s: mode %s, fallback %q, %d ids", tt.field, a.headers.Get("X-Sidecar-Mode"), a.headers.Get("X-Sidecar-Fallback"), len(body.ids))
		}
	}
	// The simulated engine reads no images; what it is sent is what counts.
	a := &agent{t: t, base: base}
	raw := `{"model":"sim-qwen3","messages":[{"role":"user","content":[{"type":"text","text":"refund an order"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`
	resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("X-Sidecar-Mode") != ModeOwned || !strings.Contains(resp.Header.Get("X-Sidecar-Fallback"), "not text") {
		t.Errorf("an image: mode %s, fallback %q", resp.Header.Get("X-Sidecar-Mode"), resp.Header.Get("X-Sidecar-Fallback"))
	}
	a.step(0)
	a.ask()
	if a.headers.Get("X-Sidecar-Mode") != ModeTokenIn {
		t.Errorf("afterwards: mode %s", a.headers.Get("X-Sidecar-Mode"))
	}
}

// TestOutOfStep: an engine that stops using the ids is found out by its count; the
// conversation goes on as text, and others are not touched.
func TestOutOfStep(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	var ignore atomic.Bool
	eng.edit = func(path string, body map[string]json.RawMessage) map[string]json.RawMessage {
		if path == "/v1/chat/completions" && ignore.Load() {
			delete(body, "kv_transfer_params")
			// Text of its own in front, as another template would have.
			body["messages"] = json.RawMessage(`[{"role":"system","content":"of the template"},` + string(body["messages"][1:]))
		}
		return body
	}
	var log bytes.Buffer
	p, base := start(t, "nethttp", Config{Engine: url, Stages: idStages(), ErrorLog: &log})
	a := &agent{t: t, base: base}
	a.step(0)
	a.ask()
	ignore.Store(true)
	a.step(1)
	a.ask()
	ignore.Store(false)
	a.step(2)
	a.ask()
	if mode, why := a.headers.Get("X-Sidecar-Mode"), a.headers.Get("X-Sidecar-Fallback"); mode != ModeOwned || !strings.Contains(why, "prompt tokens of") {
		t.Errorf("after the alarm: mode %s, fallback %q", mode, why)
	}
	if n := counted(t, p, "sidecar_token_in_alarms_total"); n != 1 {
		t.Errorf("%v alarms", n)
	}
	if !strings.Contains(log.String(), "falls back to text") {
		t.Errorf("log: %s", log.String())
	}
	other := &agent{t: t, base: base}
	other.step(5)
	other.ask()
	if mode := other.headers.Get("X-Sidecar-Mode"); mode != ModeTokenIn {
		t.Errorf("another conversation: mode %s", mode)
	}
}

// TestFramingAlarm: when the engine renders a live conversation otherwise than at the
// probe, no more ids are sent.
func TestFramingAlarm(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	var changed atomic.Bool
	eng.edit = func(path string, body map[string]json.RawMessage) map[string]json.RawMessage {
		if path == "/tokenize" && changed.Load() {
			body["messages"] = json.RawMessage(`[{"role":"system","content":"of the template"},` + string(body["messages"][1:]))
		}
		return body
	}
	cfg := idStages()
	cfg.Compare = 1
	p, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
	s := p.stages.(*stages)
	a := &agent{t: t, base: base}
	a.step(0)
	a.ask()
	s.tokenIn.wg.Wait()
	if n := counted(t, p, "sidecar_token_in_compared_total"); n != 1 || counted(t, p, "sidecar_token_in_alarms_total") != 0 {
		t.Errorf("%v compared before the change", n)
	}
	changed.Store(true)
	a.step(1)
	a.ask()
	s.tokenIn.wg.Wait()
	a.step(2)
	a.ask()
	if mode, why := a.headers.Get("X-Sidecar-Mode"), a.headers.Get("X-Sidecar-Fallback"); mode != ModeOwned || !strings.Contains(why, "frames a live conversation otherwise") {
		t.Errorf("after the change: mode %s, fallback %q", mode, why)
	}
}

// TestTokenInStopString: a stop string of the client that stands in each call ends the
// reply, streamed or not, and the conversation goes on.
func TestTokenInStopString(t *testing.T) {
	for _, stream := range []bool{false, true} {
		_, url := newIDEngine(t, simengine.Config{})
		p, base := start(t, "nethttp", Config{Engine: url, Stages: idStages()})
		a := &agent{t: t, base: base, stream: stream, more: map[string]any{"stop": "arguments", "tool_choice": "required"}}
		a.say("user", "What is the weather in Oslo?")
		turn := a.ask()
		if _, half := turn.Choices[0]["tool_calls"]; turn.Finish[0] != "stop" || half && !stream {
			t.Errorf("stream %v: %v %v", stream, turn.Finish, turn.Choices[0])
		}
		delete(a.more, "stop")
		a.say("user", "And in Bergen?")
		if turn = a.ask(); turn.Finish[0] != "tool_calls" {
			t.Errorf("stream %v: then %v", stream, turn.Finish)
		}
		if rec := record(t, p); rec.Mode != ModeTokenIn || turn.Cached < rec.ExpectedCached-16 {
			t.Errorf("stream %v: mode %s, %d tokens cached, %d expected", stream, rec.Mode, turn.Cached, rec.ExpectedCached)
		}
	}
}

// TestTokenInThinking: a switch of the template that the probe knows stays with ids.
// The prompt of the first turn is the template's to the token, each turn continues
// the one before, and who turns the switch has a history of its own.
func TestTokenInThinking(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	p, base := start(t, "nethttp", Config{Engine: url, Stages: idStages()})
	off := map[string]any{"chat_template_kwargs": map[string]bool{"enable_thinking": false}}
	a := &agent{t: t, base: base, more: off}
	a.say("system", "You are an assistant with many tools.")
	for i := range 8 {
		if i == 6 { // back to the default
			a.more = nil
		}
		a.step(i)
		turn := a.ask()
		rec := record(t, p)
		if rec.Mode != ModeTokenIn || rec.Fallback != "" {
			t.Fatalf("turn %d: mode %s, %s", i, rec.Mode, rec.Fallback)
		}
		text, err := tokenizer.Qwen3().Decode(nil, eng.last().ids)
		if err != nil {
			t.Fatal(err)
		}
		const tail = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
		if strings.HasSuffix(string(text), tail) != (i < 6) {
			t.Errorf("turn %d ends with %q", i, text[max(0, len(text)-60):])
		}
		if d := turn.Cached - rec.ExpectedCached; d < -16 || d > 16 {
			t.Errorf("turn %d: %d tokens cached, %d expected", i, turn.Cached, rec.ExpectedCached)
		}
		if i == 0 {
			var msgs []wire.Message
			for _, m := range eng.last().messages {
				msgs = append(msgs, wire.Message{Role: m.Role, Content: m.Content})
			}
			thinking := false
			f, err := wire.ByName("hermes")
			if err != nil {
				t.Fatal(err)
			}
			if want := f.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true, EnableThinking: &thinking}); string(want) != string(text) {
				t.Errorf("the first prompt is %q, the template's %q", text, want)
			}
		}
		if i > 0 && i < 6 {
			before := a.turns[i-1]
			if ceiling := (before.Prompt + before.Completion - 1) / 16 * 16; turn.Cached < ceiling {
				t.Errorf("turn %d: %d tokens cached of %d", i, turn.Cached, ceiling)
			}
		}
		if (rec.Recognised == 0) != (i == 0 || i == 6) {
			t.Errorf("turn %d: %d messages recognised", i, rec.Recognised)
		}
	}
}

// TestTokenInReplies: over both transports the client is given what owned mode gives
// it, in whatever form it asks.
func TestTokenInReplies(t *testing.T) {
	ask := func(t *testing.T, mode string, edit func(string, map[string]json.RawMessage) map[string]json.RawMessage, stream bool, more map[string]any, reasoning bool) (out []string) {
		eng, url := newIDEngine(t, simengine.Config{Reasoning: reasoning})
		eng.edit = edit
		cfg := idStages()
		cfg.Mode = mode
		_, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
		a := &agent{t: t, base: base, stream: stream, more: more}
		for i, say := range []string{"Please refund order ord_5512kk.", "hm", "zebra crossing"} {
			if i == 1 {
				a.step(1)
			} else {
				a.say("user", say)
			}
			turn := a.ask()
			if got := a.headers.Get("X-Sidecar-Mode"); got != mode {
				t.Fatalf("mode %s, fallback %q", got, a.headers.Get("X-Sidecar-Fallback"))
			}
			for _, m := range turn.Choices {
				calls, _ := m["tool_calls"].([]map[string]any)
				for j, c := range calls {
					c["id"] = fmt.Sprint("call", j) // random
				}
				out = append(out, fmt.Sprint(m))
			}
			out = append(out, fmt.Sprint(turn.Finish, turn.Prompt, turn.Completion))
		}
		return out
	}
	for name, more := range map[string]map[string]any{
		"plain":       {},
		"stop string": {"stop": []string{"tool", "crossing", "result"}},
		"length":      {"max_tokens": 9},
		"length, new": {"max_completion_tokens": 9},
		"choices":     {"n": 3, "seed": 5},
		"required":    {"tool_choice": "required"},
		"none":        {"tool_choice": "none"},
		"ids":         {"return_token_ids": true},
	} {
		for _, stream := range []bool{false, true} {
			for _, reasoning := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/stream=%v/reasoning=%v", name, stream, reasoning), func(t *testing.T) {
					want := ask(t, ModeOwned, nil, stream, more, reasoning)
					if got := ask(t, ModeTokenIn, nil, stream, more, reasoning); !slices.Equal(got, want) {
						t.Errorf("chat:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					if got := ask(t, ModeTokenIn, onlyText, stream, more, reasoning); !slices.Equal(got, want) {
						t.Errorf("text completion:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
				})
			}
		}
	}
}

// onlyText is an engine whose chat endpoint takes no ids.
func onlyText(path string, body map[string]json.RawMessage) map[string]json.RawMessage {
	if path == "/v1/chat/completions" && body["kv_transfer_params"] != nil {
		return nil
	}
	return body
}

// TestChatLogprobs: those of a text completion in the form of a chat.
func TestChatLogprobs(t *testing.T) {
	got, err := chatLogprobs([]byte(`{"text_offset":[0,2],"tokens":["ok","!"],"token_logprobs":[-0.5,null],"top_logprobs":[{"no":-2,"ok":-0.5,"or":-3},null]}`), 2)
	want := `{"content":[{"token":"ok","logprob":-0.5,"bytes":[111,107],"top_logprobs":[{"token":"ok","logprob":-0.5,"bytes":[111,107]},{"token":"no","logprob":-2,"bytes":[110,111]}]},` +
		`{"token":"!","logprob":0,"bytes":[33],"top_logprobs":[]}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
	if all, err := chatLogprobs([]byte(`{"tokens":["ok"],"token_logprobs":[-0.5],"top_logprobs":[{"no":-2,"ok":-0.5}]}`), -1); err != nil || strings.Count(string(all), `"token"`) != 3 {
		t.Errorf("all alternatives: %s (%v)", all, err)
	}
}

// TestIDsOfSGLang: ids that come in a chunk of their own are gathered, and the chunk
// is not passed on.
func TestIDsOfSGLang(t *testing.T) {
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	r := &generation{family: f, ids: true}
	for _, c := range []struct {
		chunk  string
		passed int
	}{
		{`{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"ok"},"finish_reason":null},{"index":1,"delta":{"content":"no"}}]}`, 2},
		{`{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, 1},
		{`{"id":"1","choices":[],"sglext":{"output_ids":[[562,151645],[2152]]}}`, 0},
		{`{"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`, 1},
	} {
		chunks, err := r.chunk([]byte(c.chunk), true)
		if err != nil || len(chunks) != c.passed {
			t.Fatalf("%s: %d chunks, %v", c.chunk, len(chunks), err)
		}
	}
	if got := fmt.Sprint(r.choices[0].ids, r.choices[1].ids); got != "[562 151645] [2152]" {
		t.Errorf("ids %s", got)
	}
	if _, err := r.chunk([]byte(`{"choices":[],"sglext":{"output_ids":[[-1]]}}`), true); err == nil {
		t.Error("an id below 0 was taken")
	}
}

// TestOpenBranch: a turn that was cut by length, or that the client left, is replayed
// as generated when it comes back; the finished turn of a retry stands beside it.
func TestOpenBranch(t *testing.T) {
	_, url := newIDEngine(t, simengine.Config{})
	p, base := start(t, "fiber", Config{Engine: url, Stages: idStages()})
	a := &agent{t: t, base: base, more: map[string]any{"max_tokens": 4}}
	a.say("user", "zebra crossing")
	cut := a.ask()
	if cut.Finish[0] != "length" {
		t.Fatalf("finish %v", cut.Finish)
	}
	a.say("user", "go on")
	next := a.ask()
	if ceiling := (cut.Prompt + cut.Completion - 1) / 16 * 16; next.Cached < ceiling {
		t.Errorf("after a cut turn %d tokens are cached of %d", next.Cached, ceiling)
	}
	// The retry without a bound is another, finished turn.
	whole := &agent{t: t, base: base}
	whole.say("user", "zebra crossing")
	if turn := whole.ask(); turn.Finish[0] != "stop" || turn.Cached < cut.Prompt/16*16-16 {
		t.Errorf("retry: finish %v, %d tokens cached of %d", turn.Finish, turn.Cached, turn.Prompt)
	}
	// A client that left sends back what it saw.
	gone := &agent{t: t, base: base}
	gone.say("user", "zebra crossing, slowly please")
	seen := gone.leave(12)
	p.settled()
	gone.say("assistant", seen)
	gone.say("user", "sorry, go on")
	turn := gone.ask()
	rec := record(t, p)
	if turn.Cached < rec.ExpectedCached {
		t.Errorf("after leaving %d tokens are cached, %d expected", turn.Cached, rec.ExpectedCached)
	}
}

// TestPromptLog: each prompt is written as the text of its ids.
func TestPromptLog(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	var log bytes.Buffer
	cfg := idStages()
	cfg.PromptLog = &log
	_, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
	a := &agent{t: t, base: base}
	a.say("user", "refund <|im_end|> it")
	a.ask()
	var line struct {
		Mode, Prompt string
		Tokens       int `json:"prompt_tokens"`
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	want, err := tokenizer.Qwen3().Decode(nil, eng.last().ids)
	if err != nil || line.Prompt != string(want) || line.Mode != ModeTokenIn || line.Tokens != len(eng.last().ids) || !strings.Contains(line.Prompt, "refund <|im_end|> it") {
		t.Errorf("%+v, want the text of %d ids", line, len(eng.last().ids))
	}
}

// TestSearchIDs: a search of the model is a round whose prompt continues the one
// before, in ids.
func TestSearchIDs(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	cfg := idStages()
	cfg.Rounds = DefaultRounds
	p, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
	a := &agent{t: t, base: base}
	searched := 0
	for _, say := range []string{"quarterly okapi gazette", "please lock the front door", "zymurgy vexillology"} {
		a.say("user", say)
		a.ask()
		rec := record(t, p)
		if rec.Mode != ModeTokenIn || rec.Fallback != "" {
			t.Fatalf("mode %s, fallback %q", rec.Mode, rec.Fallback)
		}
		searched += len(rec.Searches)
		if e := rec.Earlier; e != nil && (rec.Reported.Cached < rec.ExpectedCached || rec.Reported.Cached < (e.Prompt-1)/16*16 && e.Rounds == 1) {
			t.Errorf("%s: in the second round %d tokens are cached of %d, %d expected", say, rec.Reported.Cached, e.Prompt, rec.ExpectedCached)
		}
	}
	if searched == 0 {
		t.Error("the model made no search")
	}
	var before []int32
	for _, b := range eng.bodies[3:] { // behind the probe
		if n := len(before); n > 0 && !slices.Equal(b.ids[:min(n, len(b.ids))], before) {
			t.Errorf("a prompt of %d ids does not begin with the %d before", len(b.ids), n)
		}
		before = b.ids
	}
}

// strangeIDs is a ledger whose entries come back with an id of no vocabulary.
type strangeIDs struct{ store.Ledger }

func (l strangeIDs) Get(k prefix.Key) (*prefix.Entry, bool) {
	e, ok := l.Ledger.Get(k)
	if !ok || e.Tokens == nil {
		return e, ok
	}
	strange, tokens := *e, *e.Tokens
	tokens.Output = prefix.PackIDs(append(tokens.Output.Append(nil), 151_999))
	strange.Tokens = &tokens
	return &strange, true
}

// TestStrangeIDs: an id beyond the vocabulary, which ends an SGLang server, is never
// sent.
func TestStrangeIDs(t *testing.T) {
	eng, url := newIDEngine(t, simengine.Config{})
	cfg := idStages()
	cfg.Ledger = strangeIDs{store.NewMemory(1 << 20)}
	_, base := start(t, "nethttp", Config{Engine: url, Stages: cfg})
	a := &agent{t: t, base: base}
	for i := range 3 {
		a.step(i)
		a.ask()
		mode, why := a.headers.Get("X-Sidecar-Mode"), a.headers.Get("X-Sidecar-Fallback")
		if i > 0 && (mode != ModeOwned || !strings.Contains(why, "151999 is not in the vocabulary") || len(eng.last().ids) > 0) {
			t.Errorf("turn %d: mode %s, fallback %q, %d ids", i, mode, why, len(eng.last().ids))
		}
	}
}
