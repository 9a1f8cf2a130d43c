//go:build engines

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/enginetest"
	"github.com/toolsidecar/sidecar/internal/proxy"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Run(m)) }

// boundedTool is a tool whose arguments cannot grow without end, so that a model
// with random weights comes to one.
func boundedTool(i int) (name string, tool json.RawMessage) {
	rng := rand.New(rand.NewPCG(uint64(i), 7))
	topics := []string{"weather", "invoice", "calendar", "cluster", "translation", "pallet", "salary", "ticket", "playlist", "recipe", "voucher", "parcel"}
	verbs := []string{"get", "list", "create", "update", "archive", "share"}
	topic, verb := topics[i%len(topics)], verbs[i/len(topics)%len(verbs)]
	name = fmt.Sprintf("%s_%s_%d", verb, topic, i)
	kinds := []string{
		`{"type":"string","maxLength":12,"description":"short note"}`,
		`{"type":"string","enum":["low","high \"quoted\"","größer"]}`,
		`{"type":"integer","minimum":-5,"maximum":999}`,
		`{"type":"boolean"}`,
		`{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1,"maxItems":3}`,
		`{"type":"object","properties":{"x":{"type":"integer","minimum":0,"maximum":9},"y":{"type":["boolean","null"]}},"required":["x"]}`,
		`{"type":"string","pattern":"^[A-Z]{2}[0-9]{3}$"}`,
		`{"anyOf":[{"type":"integer","minimum":0,"maximum":9},{"type":"string","maxLength":4}]}`,
		`{"type":"array","items":{"type":"integer","minimum":0,"maximum":9},"maxItems":3,"uniqueItems":true}`,
	}
	var props, required []string
	for j := range 1 + rng.IntN(4) {
		key := fmt.Sprintf("p%d", j)
		props = append(props, fmt.Sprintf("%q:%s", key, kinds[rng.IntN(len(kinds))]))
		if rng.IntN(3) > 0 {
			required = append(required, fmt.Sprintf("%q", key))
		}
	}
	return name, json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"%s the %s of one customer, variant %d.","parameters":{"type":"object","properties":{%s},"required":[%s]}}}`,
		name, strings.ToUpper(verb[:1])+verb[1:], topic, i, strings.Join(props, ","), strings.Join(required, ",")))
}

func boundedTools(n int) (names []string, tools []json.RawMessage) {
	for i := range n {
		name, tool := boundedTool(i)
		names, tools = append(names, name), append(tools, tool)
	}
	return names, tools
}

// ask makes the calls with a client library and returns the answers by id.
func ask(t *testing.T, client *enginetest.Client, calls []enginetest.Call) map[string]*enginetest.Answer {
	t.Helper()
	answers := make([]*enginetest.Answer, len(calls))
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() { answers[i], errs[i] = client.Do(t.Context(), calls[i]) })
	}
	wg.Wait()
	by := map[string]*enginetest.Answer{}
	for i, c := range calls {
		if errs[i] != nil {
			t.Fatalf("%s: %v", c.ID, errs[i])
		}
		by[c.ID] = answers[i]
	}
	return by
}

// sessions fetches the decision records by request id.
func sessions(t *testing.T, baseURL string) map[string]proxy.Record {
	t.Helper()
	resp, err := http.Get(baseURL + "/sidecar/v1/sessions")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Sessions []proxy.Record }
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	by := map[string]proxy.Record{}
	for _, r := range list.Sessions {
		by[r.ID] = r
	}
	return by
}

// judge compiles schemas apart from our own code, closed as a tool's are.
type judge map[string]*jsonschema.Schema

func newJudge(t *testing.T, tools []json.RawMessage) judge {
	j := judge{}
	for _, raw := range tools {
		var tool struct {
			Function struct {
				Name       string
				Parameters map[string]any
			}
		}
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		closeObjects(tool.Function.Parameters)
		c := jsonschema.NewCompiler()
		if err := c.AddResource("mem:tool", tool.Function.Parameters); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile("mem:tool")
		if err != nil {
			t.Fatal(err)
		}
		j[tool.Function.Name] = s
	}
	return j
}

// closeObjects adds additionalProperties false to every object schema.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, sub := range v {
			closeObjects(sub)
		}
	case []any:
		for _, sub := range v {
			closeObjects(sub)
		}
	}
}

// fits says what is wrong with a finished call, "" for nothing.
func (j judge) fits(name, arguments string) string {
	s, ok := j[name]
	if !ok {
		return "unknown tool " + name
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments))
	if err != nil {
		return fmt.Sprintf("%s: %q is not JSON: %v", name, arguments, err)
	}
	if err := s.Validate(v); err != nil {
		return fmt.Sprintf("%s: %s: %v", name, arguments, err)
	}
	return ""
}

// tallies count what came of the answers. Withheld are calls that broke a schema
// which the engine could not hold: the client got an error instead of them.
type tallies struct{ answers, finished, cut, calls, withheld, refused int }

// check judges one answer of a model that was made to call.
func (j judge) check(t *testing.T, a *enginetest.Answer, rec proxy.Record, sum *tallies) {
	t.Helper()
	sum.answers++
	visible := rec.Visible
	if !a.OK && rec.Error == "tool_call_misfit" && slices.ContainsFunc(rec.Checked, func(why string) bool {
		name, _, _ := strings.Cut(why, ":")
		return strings.Contains(a.Error.Message, "arguments of "+name+" don't fit")
	}) {
		sum.withheld++
		return
	}
	if !a.OK {
		sum.refused++
		t.Errorf("%s: HTTP %d: %v", a.ID, a.Status, a.Error)
		return
	}
	shown := map[string]bool{}
	for _, name := range visible {
		shown[name] = true
	}
	switch a.FinishReason {
	case "tool_calls":
		sum.finished++
	case "length":
		sum.cut++
	default:
		t.Errorf("%s: finish_reason %q", a.ID, a.FinishReason)
	}
	if a.FinishReason == "tool_calls" && len(a.ToolCalls) == 0 {
		t.Errorf("%s: finished without a call", a.ID)
	}
	for i, c := range a.ToolCalls {
		sum.calls++
		if !shown[c.Name] {
			t.Errorf("%s: called %s, which is not visible (%v)", a.ID, c.Name, visible)
		}
		if a.FinishReason == "length" && i == len(a.ToolCalls)-1 {
			var s grammar.Stream
			if n, err := s.Feed([]byte(c.Arguments)); err != nil {
				t.Errorf("%s: cut arguments %q are no prefix of an object at byte %d: %v", a.ID, c.Arguments, n, err)
			} else if !s.Done() {
				continue
			}
		}
		if msg := j.fits(c.Name, c.Arguments); msg != "" {
			t.Errorf("%s: %s", a.ID, msg)
		}
	}
}

// toolCounts are the sizes of the client's list in the matrix.
var toolCounts = []int{1, 8, 64, 512, 3200}

// matrix is the requests of one library: streaming and not, required and named,
// one call and several, from 1 to 3,200 tools.
func matrix(repeat int) []enginetest.Call {
	var calls []enginetest.Call
	for _, n := range toolCounts {
		names, tools := boundedTools(n)
		for r := range repeat {
			for _, stream := range []bool{false, true} {
				for _, mode := range []string{"required", "named"} {
					i := (r*31 + 17*len(calls)) % n
					var choice any = "required"
					if mode == "named" {
						choice = map[string]any{"type": "function", "function": map[string]string{"name": names[i]}}
					}
					calls = append(calls, enginetest.Call{
						ID: fmt.Sprintf("%d tools %s stream=%v #%d", n, mode, stream, r), Stream: stream,
						Params: map[string]any{
							"model": "tiny", "messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("Use %s for customer %d.", strings.ReplaceAll(names[i], "_", " "), r)}},
							"tools": tools, "tool_choice": choice, "parallel_tool_calls": r%2 == 0,
							"temperature": 1, "seed": 100*n + r, "max_tokens": 256,
						},
					})
				}
			}
		}
	}
	return calls
}

// TestClientsRandomModel: what a model with random weights is made to say
// through the sidecar parses, fits, and names a visible tool, for both libraries;
// and the same prompts without the sidecar, as many tools as fit, for comparison.
func TestClientsRandomModel(t *testing.T) {
	eng := enginetest.VLLM(t, enginetest.Options{Model: enginetest.Tiny})
	base := startSidecar(t, eng.URL, nil)
	_, tools := boundedTools(3200)
	j := newJudge(t, tools)
	repeat := 4
	for _, library := range enginetest.Libraries {
		calls := matrix(repeat)
		answers := ask(t, enginetest.Connect(t, library, base+"/v1", 4), calls)
		records := sessions(t, base)
		var sum tallies
		constraints := map[string]int{}
		for _, c := range calls {
			a := answers[c.ID]
			rec := records[a.Headers["x-request-id"]]
			constraints[rec.Constraint]++
			j.check(t, a, rec, &sum)
			if rec.TokensExact && rec.Reported != nil && rec.PromptTokens != rec.Reported.Prompt {
				t.Errorf("%s: the prompt has %d tokens by the engine, %d by us", c.ID, rec.Reported.Prompt, rec.PromptTokens)
			}
		}
		t.Logf("%s through the sidecar: %d answers, %d finished, %d cut by length, %d withheld, %d calls, %d errors; held by %v",
			library, sum.answers, sum.finished, sum.cut, sum.withheld, sum.calls, sum.refused, constraints)
		if sum.withheld > sum.answers/10 {
			t.Errorf("%d of %d answers were withheld", sum.withheld, sum.answers)
		}
		if sum.finished < sum.answers/2 {
			t.Errorf("only %d of %d answers came to an end", sum.finished, sum.answers)
		}
	}

	// Without the sidecar: the engine's own tools, its own parser.
	var direct []enginetest.Call
	for _, c := range matrix(repeat) {
		if tools := c.Params.(map[string]any)["tools"].([]json.RawMessage); len(tools) <= 64 {
			direct = append(direct, c)
		}
	}
	good, bad, cut, other := 0, map[string]int{}, 0, 0
	for _, a := range ask(t, enginetest.Connect(t, enginetest.OpenAIPython, eng.URL+"/v1", 4), direct) {
		switch {
		case !a.OK || len(a.ToolCalls) == 0 && a.FinishReason != "length":
			other++
		case a.FinishReason == "length":
			cut++
		default:
			reason := ""
			for _, c := range a.ToolCalls {
				if msg := j.fits(c.Name, c.Arguments); msg != "" {
					reason = "misfit"
				}
			}
			if reason == "" {
				good++
			} else {
				bad[reason]++
			}
		}
	}
	t.Logf("without the sidecar, up to 64 tools (more don't fit the context): %d answers, %d whole and fitting, %d with calls that don't fit, %d cut by length, %d without a call or refused",
		len(direct), good, bad["misfit"], cut, other)
}

// startSidecar runs `sidecar serve` in this process in front of an engine.
func startSidecar(t *testing.T, engineURL string, edit func(*serveConfig)) string {
	t.Helper()
	base, _, stop, err := startLocal(t.Context(), localConfig{Engine: engineURL, Log: t.Output(), Edit: func(c *serveConfig) {
		c.Proxy.Stages.Sessions = 4096
		if edit != nil {
			edit(c)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return base
}

// TestVLLMConversation: several turns on the random model; each prompt has the
// tokens that the ledger counts, and the engine finds what was expected in its
// cache, which is more than the prompt before.
func TestVLLMConversation(t *testing.T) {
	eng := enginetest.VLLM(t, enginetest.Options{Model: enginetest.Tiny})
	conversation(t, eng)
}

func conversation(t *testing.T, eng *enginetest.Server) {
	base := startSidecar(t, eng.URL, nil)
	client := enginetest.Connect(t, enginetest.OpenAIPython, base+"/v1", 1)
	_, tools := boundedTools(400)
	messages := []any{map[string]any{"role": "user", "content": fmt.Sprintf("Run %d: list the invoice of customer 5", rand.Int())}}
	before, met := 0, 0
	const turns = 8
	for turn := range turns {
		params := map[string]any{"model": eng.Model, "messages": messages, "tools": tools, "temperature": 1, "seed": turn, "max_tokens": 256, "parallel_tool_calls": false,
			"tool_choice": "required"}
		a := ask(t, client, []enginetest.Call{{ID: "t", Stream: turn%2 == 1, Params: withUsage(params, turn%2 == 1)}})["t"]
		if !a.OK {
			t.Fatalf("turn %d: HTTP %d: %v", turn, a.Status, a.Error)
		}
		rec := sessions(t, base)[a.Headers["x-request-id"]]
		if rec.Mode != proxy.ModeTokenIn {
			t.Errorf("turn %d: mode %s, fallback %q", turn, rec.Mode, rec.Fallback)
		}
		if rec.Reported == nil {
			t.Fatalf("turn %d: no usage", turn)
		}
		t.Logf("turn %d: prompt %5d tokens (ours %5d), shared with the turn before %5d, expected cached %5d, reported %5d, finish %s, added %d tools",
			turn, rec.Reported.Prompt, rec.PromptTokens, rec.PrefixTokens, rec.ExpectedCached, rec.Reported.Cached, a.FinishReason, len(rec.Added))
		if rec.TokensExact && rec.PromptTokens != rec.Reported.Prompt {
			t.Errorf("turn %d: the prompt has %d tokens by the engine, %d by us", turn, rec.Reported.Prompt, rec.PromptTokens)
		}
		if turn > 0 && rec.Reported.Cached < before {
			t.Errorf("turn %d: %d cached tokens, but the prompt before had %d in whole blocks", turn, rec.Reported.Cached, before)
		}
		if turn > 0 && rec.Reported.Cached >= rec.ExpectedCached {
			met++
		}
		before = (rec.Reported.Prompt - 1) / 32 * 32
		if a.FinishReason != "tool_calls" {
			messages = append(messages, map[string]any{"role": "user", "content": "Go on with the ticket."})
			continue
		}
		messages = append(messages, a.Message)
		for _, c := range a.ToolCalls {
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": strings.Repeat("42 ", 40*turn)})
		}
		if turn%3 == 2 {
			messages = append(messages, map[string]any{"role": "user", "content": "Now share the playlist and archive the recipe."})
		}
	}
	if met < turns-1 {
		t.Errorf("the expectation was met in %d of %d turns", met, turns-1)
	}
}

// TestClientsSmolLM2: real weights, mostly with tool_choice auto: text stays text,
// a call fits its schema. Nothing is claimed of the choice of the tool.
func TestClientsSmolLM2(t *testing.T) {
	eng := enginetest.VLLM(t, enginetest.Options{Model: enginetest.SmolLM2})
	base := startSidecar(t, eng.URL, nil)
	_, tools := boundedTools(100)
	j := newJudge(t, tools)
	prompts := []string{"What is the capital of France?", "Say hello.", "Call a tool: get the weather of customer 3.", "List the invoice of customer 9 with a tool call.", "Write one sentence on the sea."}
	texts, called, cut := 0, 0, 0
	for _, library := range enginetest.Libraries {
		var calls []enginetest.Call
		for i := range 18 {
			choice := "auto"
			if i >= 15 { // the model calls nothing by itself
				choice = "required"
			}
			calls = append(calls, enginetest.Call{ID: fmt.Sprint(i), Stream: i%2 == 1, Params: map[string]any{
				"tool_choice": choice,
				"model":       "smollm2", "messages": []map[string]string{{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": prompts[i%len(prompts)]}},
				"tools": tools[:[]int{3, 20, 100}[i%3]], "temperature": 0.7, "seed": i, "max_tokens": 100,
			}})
		}
		answers := ask(t, enginetest.Connect(t, library, base+"/v1", 2), calls)
		records := sessions(t, base)
		for _, c := range calls {
			a := answers[c.ID]
			if !a.OK {
				t.Errorf("%s %s: HTTP %d: %v", library, c.ID, a.Status, a.Error)
				continue
			}
			rec := records[a.Headers["x-request-id"]]
			if rec.Mode != "owned" {
				t.Errorf("%s %s: mode %s: %s", library, c.ID, rec.Mode, rec.Reason)
			}
			text := a.Content()
			switch {
			case len(a.ToolCalls) > 0:
				var sum tallies
				j.check(t, a, rec, &sum)
				called++
			case a.FinishReason == "length":
				cut++
			case text == "" && (rec.Reported == nil || rec.Reported.Completion > 1): // its end alone is an answer
				t.Errorf("%s %s: neither text nor call, finish %s, %+v", library, c.ID, a.FinishReason, rec.Reported)
			default:
				texts++
			}
			if strings.Contains(text, "<tool_call>") {
				t.Errorf("%s %s: a call stands in the text: %q", library, c.ID, text)
			}
		}
	}
	if called == 0 {
		t.Error("no call was made, not even where one was required")
	}
	t.Logf("SmolLM2, auto and required: %d answers in text, %d with calls, %d cut by length", texts, called, cut)
}

// TestSGLangMainJob is the smaller run against SGLang.
func TestSGLangMainJob(t *testing.T) {
	eng := enginetest.SGLang(t, enginetest.Options{Model: enginetest.Tiny})
	base := startSidecar(t, eng.URL, nil)
	_, tools := boundedTools(3200)
	j := newJudge(t, tools)
	calls := matrix(1)
	for i := range calls {
		delete(calls[i].Params.(map[string]any), "seed") // SGLang ignores it
	}
	answers := ask(t, enginetest.Connect(t, enginetest.OpenAIPython, base+"/v1", 4), calls)
	records := sessions(t, base)
	var sum tallies
	for _, c := range calls {
		a := answers[c.ID]
		rec := records[a.Headers["x-request-id"]]
		j.check(t, a, rec, &sum)
		if rec.Constraint != "structural tag" {
			t.Errorf("%s: held by %q, fallback %q", c.ID, rec.Constraint, rec.Fallback)
		}
	}
	t.Logf("openai-python through the sidecar to SGLang: %d answers, %d finished, %d cut by length, %d withheld, %d calls", sum.answers, sum.finished, sum.cut, sum.withheld, sum.calls)
	conversation(t, eng)
}
