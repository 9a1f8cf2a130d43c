package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/internal/racetest"
	"github.com/toolsidecar/sidecar/internal/simengine"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

var updateLoop = flag.Bool("update-loop", false, "record the loop of testdata/loop anew")

const loopFile = "testdata/loop/loop.jsonl"

// loopTurn is one request of a recorded loop as what changed since the one before:
// messages From to To are left out, Set are put in the place of others, Append
// comes behind, Tools replace the tools.
type loopTurn struct {
	Note   string                  `json:"note,omitempty"` // what the client did beside going on
	Drop   []int                   `json:"drop,omitempty"` // from, to
	Set    map[int]json.RawMessage `json:"set,omitempty"`
	Append []json.RawMessage       `json:"append"`
	Tools  []json.RawMessage       `json:"tools,omitempty"`
	Flood  int                     `json:"flood,omitempty"` // words of a foreign prompt that the engine gets first
}

// loopState is the request that the turns so far have made.
type loopState struct {
	messages, tools []json.RawMessage
}

func (s *loopState) apply(t *loopTurn) {
	s.messages = slices.Clone(s.messages)
	if len(t.Drop) == 2 {
		s.messages = slices.Delete(s.messages, t.Drop[0], t.Drop[1])
	}
	for i, m := range t.Set {
		s.messages[i] = m
	}
	s.messages = append(s.messages, t.Append...)
	if t.Tools != nil {
		s.tools = t.Tools
	}
}

func (s *loopState) body() string {
	raw := func(list []json.RawMessage) string { return "[" + string(bytes.Join(asBytes(list), []byte(","))) + "]" }
	return `{"model":"sim-qwen3","max_tokens":120,"messages":` + raw(s.messages) + `,"tools":` + raw(s.tools) + `}`
}

func asBytes(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, m := range list {
		out[i] = m
	}
	return out
}

// loopEngine is the engine of the loop: its cache holds a little more than the
// longest prompt.
func loopEngine(t testing.TB) string {
	url, stop, err := startSimulated(simengine.Config{PromptTokensDetails: true, Reasoning: true, MaxModelLen: 16 << 10, KVBlocks: 1100, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

func post(t testing.TB, url, body string) []byte {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v: %s", url, resp.StatusCode, err, raw)
	}
	return raw
}

func flood(t testing.TB, engine string, words int) {
	t.Helper()
	post(t, engine+"/v1/completions", fmt.Sprintf(`{"model":"sim-qwen3","max_tokens":1,"prompt":%q}`, strings.Repeat("another tenant's words ", words/3)))
}

func marshal(t testing.TB, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// TestRecordLoop records 30 turns of an agent that talks to the simulated engine.
func TestRecordLoop(t *testing.T) {
	if !*updateLoop {
		t.Skip("records with -update-loop")
	}
	engine := loopEngine(t)
	var out bytes.Buffer
	for _, turn := range runLoop(t, engine, engine) {
		out.Write(append(marshal(t, turn), '\n'))
	}
	if err := os.WriteFile(loopFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runLoop is an agent of 30 turns that does, at times, what clients do to a prompt.
// It talks to base, and knows the engine behind that only to fill its cache.
func runLoop(t *testing.T, base, engine string) []loopTurn {
	rng := rand.New(rand.NewPCG(1, 2))
	var tools []json.RawMessage
	var asks []string
	tasks := catalog.Tasks()
	for _, i := range []int{0, 1, 5, 6, 2} {
		for _, turn := range tasks[i].Turns {
			asks = append(asks, turn.Say)
			for _, name := range turn.Need {
				tool, ok := catalog.Demo().Lookup(name)
				if !ok {
					t.Fatalf("no tool %s", name)
				}
				tools = append(tools, json.RawMessage(tool.Raw))
			}
		}
	}
	few := len(tools) - 1
	clock, session, left := "2026-11-30 17:30", "550e8400-e29b-41d4-a716-446655440000", 20000
	system := func(gap string) json.RawMessage {
		return marshal(t, map[string]string{"role": "system", "content": fmt.Sprintf("You keep the books of a small company.\nCurrent time: %s\nSession: %s\nTokens remaining: %d\nCall tools when you need data.%s\n%s", clock, session, left, gap, strings.Repeat("Follow the house rules: be exact, name your sources, and never guess a number. ", 20))})
	}
	user := func() json.RawMessage {
		m := marshal(t, map[string]string{"role": "user", "content": asks[0]})
		asks = append(asks[1:], asks[0])
		return m
	}
	var state loopState
	var turns []loopTurn
	next := loopTurn{Append: []json.RawMessage{system(""), user()}, Tools: tools[:few]}
	for turn := 1; turn <= 30; turn++ {
		switch turn {
		case 5, 15, 25:
			clock = fmt.Sprintf("2026-11-30 17:%02d", 30+turn)
			next.Note, next.Set = "the clock in the system text ticks", map[int]json.RawMessage{0: system("")}
		case 8:
			reordered := slices.Clone(state.tools)
			rng.Shuffle(len(reordered), func(i, j int) { reordered[i], reordered[j] = reordered[j], reordered[i] })
			next.Note, next.Tools = "a server reconnects and lists its tools in another order", reordered
		case 11:
			next.Note, next.Tools = "a server offers one more tool", append(slices.Clone(state.tools), tools[few])
		case 13:
			next.Note, next.Set = "the client writes the arguments of old calls anew", redumped(t, state.messages)
		case 17:
			next.Note, next.Set = "the system text is built with another line break", map[int]json.RawMessage{0: system(" ")}
		case 20:
			next.Note, next.Flood = "other requests take the cache", 12000
		case 22:
			left = 7311
			next.Note, next.Set = "the system text counts tokens", map[int]json.RawMessage{0: system(" ")}
		case 27:
			next.Note, next.Drop = "the client puts its oldest turns together", []int{1, len(state.messages) / 2}
			next.Set = map[int]json.RawMessage{1: marshal(t, map[string]string{"role": "user", "content": "So far you listed the entries of two weeks."})}
		case 29:
			session = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
			next.Note, next.Set = "a new session id in the system text", map[int]json.RawMessage{0: system(" ")}
		}
		turns = append(turns, next)
		if next.Flood > 0 {
			flood(t, engine, next.Flood)
		}
		state.apply(&next)
		var reply struct {
			Choices []struct {
				Message struct {
					Role      string  `json:"role"`
					Content   *string `json:"content"`
					ToolCalls []struct {
						ID       string `json:"id"`
						Type     string `json:"type"`
						Function struct {
							Name      string `json:"name"`
							Arguments string `json:"arguments"`
						} `json:"function"`
					} `json:"tool_calls,omitempty"`
				}
			}
		}
		if err := json.Unmarshal(post(t, base+"/v1/chat/completions", state.body()), &reply); err != nil {
			t.Fatal(err)
		}
		said := reply.Choices[0].Message
		next = loopTurn{Append: []json.RawMessage{marshal(t, said)}}
		for _, call := range said.ToolCalls {
			rows := make([]string, 6+rng.IntN(20))
			for i := range rows {
				rows[i] = fmt.Sprintf("%d;%s;%d.%02d", 1000+rng.IntN(9000), []string{"open", "paid", "late"}[rng.IntN(3)], rng.IntN(900), rng.IntN(100))
			}
			next.Append = append(next.Append, marshal(t, map[string]string{"role": "tool", "tool_call_id": call.ID, "content": call.Function.Name + ":\n" + strings.Join(rows, "\n")}))
		}
		if len(said.ToolCalls) == 0 {
			next.Append = append(next.Append, user())
		}
	}
	return turns
}

// redumped are the messages with calls of more than one argument, with the
// arguments in the opposite order.
func redumped(t *testing.T, messages []json.RawMessage) map[int]json.RawMessage {
	set := map[int]json.RawMessage{}
	for i, m := range messages {
		var said map[string]any
		if err := json.Unmarshal(m, &said); err != nil {
			t.Fatal(err)
		}
		calls, _ := said["tool_calls"].([]any)
		for _, c := range calls {
			f := c.(map[string]any)["function"].(map[string]any)
			var arguments map[string]json.RawMessage
			if err := json.Unmarshal([]byte(f["arguments"].(string)), &arguments); err != nil {
				t.Fatal(err)
			}
			if len(arguments) < 2 {
				continue
			}
			var names, members []string
			for name := range arguments {
				names = append(names, name)
			}
			slices.Sort(names)
			slices.Reverse(names)
			for _, name := range names {
				members = append(members, fmt.Sprintf("%q: %s", name, arguments[name]))
			}
			f["arguments"] = "{" + strings.Join(members, ", ") + "}"
			set[i] = marshal(t, said)
		}
	}
	return set
}

// recordedLoop are the 30 turns of the recording.
func recordedLoop(t *testing.T) (turns []loopTurn) {
	t.Helper()
	f, err := os.Open(loopFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var turn loopTurn
		if err := json.Unmarshal(lines.Bytes(), &turn); err != nil {
			t.Fatal(err)
		}
		turns = append(turns, turn)
	}
	if len(turns) != 30 || lines.Err() != nil {
		t.Fatalf("%d turns are recorded, %v", len(turns), lines.Err())
	}
	return turns
}

// TestObserveLoop replays the recorded loop with --observe: every turn reaches the
// engine as it was, and the autopsy names what the client did where it did it.
func TestObserveLoop(t *testing.T) {
	engine := loopEngine(t)
	base, _, stop, err := startLocal(t.Context(), localConfig{Engine: engine, Log: os.Stderr, Edit: func(c *serveConfig) {
		c.Proxy.Stages.Observe = true
		c.Model, c.Proxy.Stages.GPUHour = "Qwen/Qwen3-8B", 2
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	records := func() []proxy.Record {
		var sessions struct{ Sessions []proxy.Record }
		if err := getJSON(t.Context(), http.DefaultClient, "", base+"/sidecar/v1/sessions", &sessions); err != nil {
			t.Fatal(err)
		}
		return sessions.Sessions
	}
	// A shadow waits for no probe when its answer is there: the engine is known
	// first.
	first := 0
	for first == 0 || records()[first-1].Mode != "observe" {
		if first++; first > 200 {
			t.Fatal("the engine is not probed")
		}
		post(t, base+"/v1/chat/completions", `{"model":"sim-qwen3","max_tokens":1,"messages":[{"role":"user","content":"."}],"tools":[{"type":"function","function":{"name":"f"}}]}`)
	}
	notes := map[int]string{}
	var state loopState
	for i, turn := range recordedLoop(t) {
		notes[i+1] = turn.Note
		if turn.Flood > 0 {
			flood(t, engine, turn.Flood)
		}
		state.apply(&turn)
		post(t, base+"/v1/chat/completions", state.body())
	}
	var report proxy.Report
	if err := getJSON(t.Context(), http.DefaultClient, "", base+"/sidecar/v1/report", &report); err != nil {
		t.Fatal(err)
	}
	got := map[int]string{}
	for i, r := range records()[first:] {
		if r.Mode != "observe" || i > 0 && r.Autopsy == nil {
			t.Fatalf("turn %d: mode %s, autopsy %+v: %s", i+1, r.Mode, r.Autopsy, r.Reason)
		}
		if i == 0 {
			continue
		}
		a := r.Autopsy
		if a.Lost > 0 {
			got[i+1] = fmt.Sprintf("%s, %s, %s", a.Kind, a.Owner, a.Path)
		}
		t.Logf("turn %2d: prompt %5d, expected %5d, reported %5d, lost %5d %s %s", i+1, r.Reported.Prompt, a.Expected, a.Reported, a.Lost, got[i+1], notes[i+1])
	}
	for turn, want := range map[int]string{
		5: "date, client, /messages/0/content", 15: "date, client, /messages/0/content", 25: "date, client, /messages/0/content",
		8: "reordered tools, tools, /tools/0", 11: "added tool, tools, /tools/16", 17: "whitespace, client, /messages/0/content",
		20: "eviction, engine, ", 22: "counter, client, /messages/0/content", 27: "dropped messages, client, /messages/1", 29: "hash, client, /messages/0/content",
	} {
		if got[turn] != want {
			t.Errorf("turn %d: %q, want %q", turn, got[turn], want)
		}
	}
	if !strings.HasPrefix(got[13], "re-dumped arguments, client, /messages/") {
		t.Errorf("turn 13: %q", got[13])
	}
	for turn, kind := range got {
		if notes[turn] == "" && !strings.HasPrefix(kind, "stripped reasoning, template") {
			t.Errorf("turn %d: %q, though the client went on as it should", turn, kind)
		}
	}
	a := report.Autopsy
	sum := 0
	for _, c := range a.Causes {
		t.Logf("%-20s %-9s %2d turns %6d tokens %4.1f %% %.3f s  %s | %s | %s", c.Kind, c.Owner, c.Turns, c.Lost, 100*c.Share, c.Seconds, c.Path, c.Before, c.After)
		sum += c.Lost
	}
	t.Logf("prefill %d, avoidable %d (%.1f %%), measured %d, near %d, cost %+v", a.Prefill, a.Avoidable, 100*a.AvoidableShare, a.Measured, a.Near, a.Cost)
	if a.Turns != 29 || a.Measured != 29 || sum != a.Avoidable || a.Avoidable == 0 || a.Avoidable > a.Prefill || a.Cost == nil || a.Cost.Seconds <= 0 || a.Cost.Price <= 0 {
		t.Errorf("report %+v", a)
	}
}

// TestTokenInLoop plays the same agent through the sidecar. What the ledger makes
// good (arguments written anew, tools that come or change their places, reasoning)
// loses nothing; what changes the words of the prompt still does, and is named.
func TestTokenInLoop(t *testing.T) {
	engine := loopEngine(t)
	base, _, stop, err := startLocal(t.Context(), localConfig{Engine: engine, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	turns := runLoop(t, base, engine)
	var sessions struct{ Sessions []proxy.Record }
	if err := getJSON(t.Context(), http.DefaultClient, "", base+"/sidecar/v1/sessions", &sessions); err != nil {
		t.Fatal(err)
	}
	want := map[int]string{
		5: "date, client", 15: "date, client", 25: "date, client", 17: "whitespace, client", 20: "eviction, engine",
		22: "counter, client", 27: "dropped messages, client", 29: "hash, client",
	}
	prompt, cached := 0, 0
	for i, r := range sessions.Sessions {
		got := ""
		if a := r.Autopsy; a != nil && a.Lost > 0 {
			got = fmt.Sprintf("%s, %s", a.Kind, a.Owner)
		}
		prompt, cached = prompt+r.Reported.Prompt, cached+r.Reported.Cached
		t.Logf("turn %2d: %s, prompt %5d, cached %5d %s %s", i+1, r.Mode, r.Reported.Prompt, r.Reported.Cached, got, turns[i].Note)
		if r.Mode != proxy.ModeTokenIn || got != want[i+1] {
			t.Errorf("turn %d (%s): mode %s, %q, want %q", i+1, turns[i].Note, r.Mode, got, want[i+1])
		}
	}
	t.Logf("prompt %d, prefill %d", prompt, prompt-cached)
}

// replies stands in front of the loop's engine and has it say what was recorded, so
// that a replay goes on as the recording did.
type replies struct {
	next *httputil.ReverseProxy
	say  string // the text of the next reply; "" for the engine's own
}

func (e *replies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/chat/completions" && e.say != "" {
		var body map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, err := json.Marshal(e.say)
		if err != nil {
			panic(err)
		}
		body["response_format"] = json.RawMessage(`{"type":"structural_tag","format":{"type":"const_string","value":` + string(text) + `}}`)
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	}
	e.next.ServeHTTP(w, r)
}

// recordedReply is what the engine generated at a turn, as the turn after it tells:
// the text in the family's words.
func recordedReply(t *testing.T, f *wire.Family, next *loopTurn) string {
	t.Helper()
	var said struct {
		Content   string
		ToolCalls []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(next.Append[0], &said); err != nil {
		t.Fatal(err)
	}
	var calls []wire.Call
	for _, c := range said.ToolCalls {
		calls = append(calls, wire.Call{Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	return f.TurnText(said.Content, calls)
}

// TestLoopThreeWays replays the recorded loop past the sidecar, with --observe, and
// in token-in mode. The requests of the client and the words of the model are the
// same in all three.
func TestLoopThreeWays(t *testing.T) {
	if racetest.Enabled {
		t.Skip("one request after the other: TestTokenInLoop shows the race detector the same")
	}
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	recorded := recordedLoop(t)
	type sums struct{ prompt, cached, completion int }
	play := func(t *testing.T, mode string) sums {
		u, err := url.Parse(loopEngine(t))
		if err != nil {
			t.Fatal(err)
		}
		front := &replies{next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1}}
		engine := httptest.NewServer(front)
		t.Cleanup(engine.Close)
		base := engine.URL
		if mode != "direct" {
			var stop func()
			base, _, stop, err = startLocal(t.Context(), localConfig{Engine: engine.URL, Log: os.Stderr, Edit: func(c *serveConfig) {
				c.Proxy.Stages.Observe = mode == "observe"
				c.Proxy.Stages.Tokens = 4000 // all 17 tools in front, as in the recording
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
		}
		var state loopState
		var sum sums
		for i, turn := range recorded {
			if turn.Flood > 0 {
				flood(t, u.String(), turn.Flood)
			}
			state.apply(&turn)
			front.say = ""
			if i+1 < len(recorded) {
				front.say = recordedReply(t, f, &recorded[i+1])
			}
			var reply struct {
				Choices []struct {
					Message struct {
						Content   *string
						ToolCalls []struct {
							Function struct{ Name, Arguments string }
						} `json:"tool_calls"`
					}
				}
				Usage struct {
					Prompt     int `json:"prompt_tokens"`
					Completion int `json:"completion_tokens"`
					Details    struct {
						Cached int `json:"cached_tokens"`
					} `json:"prompt_tokens_details"`
				}
			}
			if err := json.Unmarshal(post(t, base+"/v1/chat/completions", state.body()), &reply); err != nil {
				t.Fatal(err)
			}
			u := reply.Usage
			sum = sums{sum.prompt + u.Prompt, sum.cached + u.Details.Cached, sum.completion + u.Completion}
		}
		if mode != "token-in" {
			return sum
		}
		var sessions struct{ Sessions []proxy.Record }
		if err := getJSON(t.Context(), http.DefaultClient, "", base+"/sidecar/v1/sessions", &sessions); err != nil {
			t.Fatal(err)
		}
		want := map[int]string{
			5: "date", 15: "date", 25: "date", 17: "whitespace", 20: "eviction", 22: "counter", 27: "dropped messages", 29: "hash",
		}
		for i, r := range sessions.Sessions {
			got := ""
			if a := r.Autopsy; a != nil && a.Lost > 0 && a.Owner != prefix.Template {
				got = string(a.Kind)
			}
			if r.Mode != proxy.ModeTokenIn || r.Error != "" || got != want[i+1] {
				t.Errorf("turn %d (%s): mode %s, %q, want %q; %s %s", i+1, recorded[i].Note, r.Mode, got, want[i+1], r.Fallback, r.Error)
			}
			// Every reply in the history is one that the engine gave, but behind an edit.
			if got == "" && i > 0 && r.Recognised < r.Messages/2 {
				t.Errorf("turn %d: %d of %d messages recognised", i+1, r.Recognised, r.Messages)
			}
		}
		return sum
	}
	got := map[string]sums{}
	for _, mode := range []string{"direct", "observe", "token-in"} {
		got[mode] = play(t, mode)
		t.Logf("%-8s prompt %6d, cached %6d, prefill %6d", mode, got[mode].prompt, got[mode].cached, got[mode].prompt-got[mode].cached)
	}
	if got["direct"] != got["observe"] {
		t.Errorf("observing changed what the engine did: %+v, %+v", got["direct"], got["observe"])
	}
	if ours, direct := got["token-in"].prompt-got["token-in"].cached, got["direct"].prompt-got["direct"].cached; ours >= direct {
		t.Errorf("prefill of %d tokens, %d without", ours, direct)
	}
}
