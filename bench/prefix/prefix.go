// Package prefix measures how much of a conversation's prompts an engine finds in
// its cache: of an agent's tool loop behind the sidecar, and of the same loop
// without it, with all tools in front, and with the best tools of each turn in
// front.
package prefix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/retrieval"
)

// Config says what is measured.
type Config struct {
	Client    *http.Client
	Engine    string // base URLs without /v1
	Sidecar   string
	Model     string
	Catalog   *catalog.Catalog
	System    string   // the system text; "" for none
	Says      []string // what the user says; shuffled by Seed
	Call      func(name string, arguments []byte) string
	Turns     int    // requests of each loop
	Calls     int    // calls that follow one message of the user, one a request
	Result    int    // bytes that a tool result is filled up to
	Block     int    // tokens of a cache block of the engine
	MaxTokens int    // of one reply
	Required  bool   // tool_choice: a call in every reply
	Seed      uint64 // of the order of Says, and sent along
	TopK      int    // tools that the rewriting loop puts in front
	Context   int    // the model's window in tokens; 0 when not known
}

// Turn is one request of a loop, in tokens.
type Turn struct {
	Prompt     int    `json:"prompt"`
	Completion int    `json:"completion"`
	Cached     int    `json:"cached"`         // as the engine reported
	Ceiling    int    `json:"ceiling"`        // what it could have found of the turn before, as far as the template keeps it, in whole blocks
	Expected   int    `json:"expected"`       // by the sidecar; -1 when it does not tell
	Kept       int    `json:"kept,omitempty"` // where the template leaves out reasoning that the turn before had
	Mode       string `json:"mode,omitempty"`
	Fallback   string `json:"fallback,omitempty"`
	Tools      string `json:"tools,omitempty"` // that appeared
}

// Loop is one loop.
type Loop struct {
	Turns   []Turn `json:"turns"`
	Prefill int    `json:"prefill_tokens"` // prompt less cached, over all turns
}

// Result is a measurement.
type Result struct {
	Block int `json:"block"`
	Loop
	// Closure is cached over ceiling of the turns behind the first. What is
	// cached beyond the ceiling of a turn makes up for no other turn.
	Closure  float64  `json:"closure"`
	Baseline Baseline `json:"baseline"`
}

// Baseline are the loops without the sidecar; nil where one can't be measured.
type Baseline struct {
	AllTools *Loop  `json:"all_tools"`
	Rewrite  *Loop  `json:"rewrite"`
	Why      string `json:"why,omitempty"` // one is missing
}

// Run measures the loop behind the sidecar, then the others. report is called for
// each turn of the first.
func Run(ctx context.Context, cfg Config, report func(Turn)) (*Result, error) {
	ours, err := cfg.loop(ctx, cfg.Sidecar, func([]message) ([]json.RawMessage, string) { return nil, "" }, report)
	if err != nil {
		return nil, fmt.Errorf("behind the sidecar, %w", err)
	}
	r := &Result{Block: cfg.Block, Loop: *ours, Closure: closure(ours.Turns)}
	ix := cfg.Catalog.Index()
	var all []json.RawMessage
	bytes := 0
	for i := range ix.Len() {
		all = append(all, ix.Tool(i).Raw)
		bytes += len(ix.Tool(i).Raw)
	}
	// No vocabulary packs more than six bytes of JSON into a token.
	var whys []string
	if cfg.Context > 0 && bytes/6 > cfg.Context {
		whys = append(whys, fmt.Sprintf("%d tools don't fit the model's window of %d tokens", ix.Len(), cfg.Context))
	} else if r.Baseline.AllTools, err = cfg.loop(ctx, cfg.Engine, func([]message) ([]json.RawMessage, string) { return all, "" }, nil); err != nil {
		whys = append(whys, "with all tools in front, "+err.Error())
	}
	if r.Baseline.Rewrite, err = cfg.loop(ctx, cfg.Engine, func(msgs []message) ([]json.RawMessage, string) { return cfg.best(ix, msgs) }, nil); err != nil {
		whys = append(whys, "with the best tools in front, "+err.Error())
	}
	r.Baseline.Why = strings.Join(whys, "; ")
	return r, ctx.Err()
}

func closure(turns []Turn) float64 {
	var cached, ceiling int
	for _, t := range turns[min(1, len(turns)):] {
		cached += min(t.Cached, t.Ceiling)
		ceiling += t.Ceiling
	}
	if ceiling == 0 {
		return 1
	}
	return float64(cached) / float64(ceiling)
}

// best are the tools that retrieval finds for what was said last: by the user, and
// by the last message.
func (cfg *Config) best(ix *retrieval.Index, msgs []message) ([]json.RawMessage, string) {
	last := len(msgs) - 1
	query := msgs[last].Content
	for i := last - 1; i >= 0 && msgs[last].Role != "user"; i-- {
		if msgs[i].Role == "user" {
			query = msgs[i].Content + "\n" + query
			break
		}
	}
	var tools []json.RawMessage
	var names []string
	for _, h := range ix.Search(retrieval.Text(query), cfg.TopK) {
		tools = append(tools, ix.Tool(h.Tool).Raw)
		names = append(names, ix.Tool(h.Tool).Name)
	}
	return tools, strings.Join(names, ",")
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Calls   []call `json:"tool_calls,omitempty"`
	CallID  string `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// loop is an agent that says the next of Says whenever the model has nothing to
// call, or has made its calls.
func (cfg *Config) loop(ctx context.Context, base string, tools func([]message) ([]json.RawMessage, string), report func(Turn)) (*Loop, error) {
	rng := rand.New(rand.NewPCG(cfg.Seed, 0))
	order := rng.Perm(len(cfg.Says))
	said := 0
	var msgs []message
	if cfg.System != "" {
		msgs = append(msgs, message{Role: "system", Content: cfg.System})
	}
	say := func() {
		msgs = append(msgs, message{Role: "user", Content: cfg.Says[order[said%len(order)]]})
		said++
	}
	say()
	l := &Loop{}
	row := 0 // calls in a row
	for i := range cfg.Turns {
		list, names := tools(msgs)
		t, reply, err := cfg.ask(ctx, base, msgs, list)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
		if names != "" {
			t.Tools = names
		}
		if i > 0 {
			before := l.Turns[i-1]
			t.Ceiling = before.Prompt + before.Completion - 1
			if t.Kept > 0 {
				t.Ceiling = min(t.Ceiling, t.Kept)
			}
			t.Ceiling = t.Ceiling / cfg.Block * cfg.Block
		}
		l.Turns = append(l.Turns, t)
		l.Prefill += t.Prompt - t.Cached
		if report != nil {
			report(t)
		}
		if base == cfg.Engine {
			// An engine takes no half of a call back, as a reply cut by length has.
			for j := range reply.Calls {
				if f := &reply.Calls[j].Function; !json.Valid([]byte(f.Arguments)) {
					f.Arguments = "{}"
				}
			}
		}
		msgs = append(msgs, reply)
		for _, c := range reply.Calls {
			msgs = append(msgs, message{Role: "tool", CallID: c.ID, Content: cfg.result(rng, c)})
		}
		if row++; len(reply.Calls) == 0 || row == cfg.Calls {
			row = 0
			say()
		}
	}
	return l, nil
}

// result is the answer to a call, filled up with rows of a table.
func (cfg *Config) result(rng *rand.Rand, c call) string {
	b := strings.Builder{}
	b.WriteString(cfg.Call(c.Function.Name, []byte(c.Function.Arguments)))
	for i := 1; b.Len() < cfg.Result; i++ {
		fmt.Fprintf(&b, "\nrow %d: reference %06d, amount %d.%02d, checked", i, rng.IntN(1e6), rng.IntN(1000), rng.IntN(100))
	}
	return b.String()
}

// ask sends one request.
func (cfg *Config) ask(ctx context.Context, base string, msgs []message, tools []json.RawMessage) (Turn, message, error) {
	body := map[string]any{"model": cfg.Model, "messages": msgs, "max_tokens": cfg.MaxTokens, "seed": cfg.Seed, "temperature": 1, "parallel_tool_calls": false}
	if tools != nil {
		body["tools"] = tools
	}
	if cfg.Required && (tools == nil || len(tools) > 0) {
		body["tool_choice"] = "required"
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return Turn{}, message{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(raw))
	if err != nil {
		return Turn{}, message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := cfg.Client.Do(req)
	if err != nil {
		return Turn{}, message{}, err
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(resp.Body); err != nil {
		return Turn{}, message{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return Turn{}, message{}, fmt.Errorf("status %d: %s", resp.StatusCode, raw[:min(len(raw), 500)])
	}
	var reply struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Choices) == 0 {
		return Turn{}, message{}, fmt.Errorf("no completion: %v, %s", err, raw[:min(len(raw), 500)])
	}
	u := reply.Usage
	if u.Details == nil || u.Details.Cached == nil {
		return Turn{}, message{}, fmt.Errorf("the engine does not report cached tokens: start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report")
	}
	t := Turn{Prompt: u.Prompt, Completion: u.Completion, Cached: *u.Details.Cached, Expected: -1,
		Mode: resp.Header.Get("X-Sidecar-Mode"), Fallback: resp.Header.Get("X-Sidecar-Fallback"), Tools: resp.Header.Get("X-Sidecar-Tools")}
	if n, err := strconv.Atoi(resp.Header.Get("X-Sidecar-Expected-Cached-Tokens")); err == nil {
		t.Expected = n
	}
	t.Kept, _ = strconv.Atoi(resp.Header.Get("X-Sidecar-Kept-Tokens")) // "" is 0
	m := reply.Choices[0].Message
	m.Role = "assistant"
	return t, m, nil
}
