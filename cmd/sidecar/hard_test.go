package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/enginetest"
	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// TestHardSchemasSimulated: the simulated engine reads the constraints as xgrammar
// does and writes at random inside them.
func TestHardSchemasSimulated(t *testing.T) {
	engine, stop, err := startSimulated(simengine.Config{MaxModelLen: 1 << 16, Random: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	base, _, stop, err := startLocal(t.Context(), localConfig{Engine: engine, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var sum hardTally
	calls := oneWay(hardCalls(true))
	for _, c := range calls {
		params := c.Params.(map[string]any)
		params["stream"] = false
		delete(params, "stream_options")
		params["model"] = "sim-qwen3"
		body, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(base+"/v1/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			Error *struct {
				Message string
				Code    any // a number where the engine's own error is handed on
			}
			Choices []struct {
				Message json.RawMessage
				Finish  string `json:"finish_reason"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		a := &enginetest.Answer{Status: resp.StatusCode, OK: resp.StatusCode == http.StatusOK}
		rec := proxy.Record{Constraint: "structural tag"}
		if out.Error != nil {
			a.Error = &enginetest.ClientError{Message: out.Error.Message}
			rec.Error, _ = out.Error.Code.(string)
		}
		if len(out.Choices) > 0 {
			a.Message, a.FinishReason = out.Choices[0].Message, out.Choices[0].Finish
			var m struct {
				Calls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			if err := json.Unmarshal(a.Message, &m); err != nil {
				t.Fatal(err)
			}
			for _, k := range m.Calls {
				a.ToolCalls = append(a.ToolCalls, enginetest.ToolCall{Name: k.Function.Name, Arguments: k.Function.Arguments})
			}
		}
		if why := resp.Header.Get("X-Sidecar-Fallback"); strings.Contains(why, "refused") {
			t.Errorf("%s: %s", c.ID, why)
		}
		sum.judge(t, hardRequest(c.ID), a, rec)
	}
	t.Logf("%d answers, %d ended by themselves, %d were cut by length, %d withheld", len(calls), sum.stop, sum.length, sum.withheld)
	if 100*sum.stop < 95*len(calls) {
		t.Errorf("%d of %d answers ended by themselves: %v", sum.stop, len(calls), sum.notes)
	}
}

// hardTokens is the length of an answer; the text of "long" may have 20,000
// characters, and a random model ends a string after a hundred tokens or so.
const hardTokens = 768

// hardKinds are the ways in which each schema is asked for.
var hardKinds = []string{"named", "required", "auto with response_format", "response_format"}

// A hardID says what a request asks for: the schema, and how.
type hardID struct{ schema, kind int }

func (id hardID) String() string {
	return hardSchemas[id.schema].name + " " + hardKinds[id.kind]
}

func hardRequest(id string) (out hardID) {
	for i := range hardSchemas {
		for k := range hardKinds {
			if (hardID{i, k}).String() == id {
				return hardID{i, k}
			}
		}
	}
	panic(id)
}

func hardTool(i int) map[string]any {
	return map[string]any{"type": "function", "function": map[string]any{"name": hardSchemas[i].name, "description": "Takes a value.", "parameters": json.RawMessage(hardSchemas[i].schema)}}
}

func hardFormat(i int) map[string]any {
	return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "value", "strict": true, "schema": json.RawMessage(hardSchemas[i].schema)}}
}

// hardCalls are the requests: each schema in each way, half of them streamed.
func hardCalls(seeded bool) []enginetest.Call {
	var calls []enginetest.Call
	for i, h := range hardSchemas {
		for k := range hardKinds {
			params := map[string]any{
				"model": "tiny", "messages": []map[string]string{{"role": "user", "content": "Give a value of " + strings.ReplaceAll(h.name, "-", " ")}},
				"temperature": 1, "max_tokens": hardTokens,
			}
			if seeded {
				params["seed"] = 4*i + k
			}
			if k < 3 {
				params["tools"] = []any{hardTool(i), hardTool((i + 37) % len(hardSchemas))}
			}
			switch k {
			case 0:
				params["tool_choice"] = map[string]any{"type": "function", "function": map[string]string{"name": h.name}}
			case 1:
				params["tool_choice"], params["parallel_tool_calls"] = "required", i%4 == 0
			case 2:
				params["tool_choice"], params["parallel_tool_calls"] = "auto", false
				fallthrough
			case 3:
				params["response_format"] = hardFormat(i)
			}
			stream := (i+k)%2 == 1
			calls = append(calls, enginetest.Call{ID: hardID{i, k}.String(), Stream: stream, Params: withUsage(params, stream), Timeout: 300})
		}
	}
	return calls
}

// oneWay keeps one request of each schema.
func oneWay(calls []enginetest.Call) []enginetest.Call {
	var out []enginetest.Call
	for i, c := range calls {
		if i%len(hardKinds) == i/len(hardKinds)%len(hardKinds) {
			out = append(out, c)
		}
	}
	return out
}

type hardTally struct {
	stop, length, withheld int
	notes                  map[string][]string
}

func (s *hardTally) note(what string, id hardID) {
	if s.notes == nil {
		s.notes = map[string][]string{}
	}
	s.notes[what] = append(s.notes[what], id.String())
}

func (s *hardTally) judge(t *testing.T, id hardID, a *enginetest.Answer, rec proxy.Record) {
	t.Helper()
	if !a.OK {
		if rec.Error != "tool_call_misfit" {
			t.Errorf("%s: HTTP %d: %v", id, a.Status, a.Error)
			return
		}
		s.withheld++
		s.note("withheld, as "+cmp.Or(strings.Join(rec.Checked, "; "), "nothing is said to be checked"), id)
		return
	}
	if rec.Constraint != "structural tag" {
		t.Errorf("%s: held by %q, fallback %q, mode %s %s", id, rec.Constraint, rec.Fallback, rec.Mode, rec.Reason)
	}
	switch a.FinishReason {
	case "stop", "tool_calls":
		s.stop++
	case "length":
		s.length++
		s.note("cut by length", id)
	default:
		t.Errorf("%s: finish_reason %q", id, a.FinishReason)
		return
	}
	cut := a.FinishReason == "length"
	for i, c := range a.ToolCalls {
		schema := slices.IndexFunc(hardSchemas, func(h hardSchema) bool { return h.name == c.Name })
		if schema != id.schema && schema != (id.schema+37)%len(hardSchemas) || id.kind == 0 && schema != id.schema || id.kind == 3 {
			t.Errorf("%s: called %q", id, c.Name)
			continue
		}
		if msg := hardSchemas[schema].fits(c.Arguments, cut && i == len(a.ToolCalls)-1); msg != "" {
			t.Errorf("%s: %s: %s", id, c.Name, msg)
		}
	}
	if len(a.ToolCalls) > 0 {
		return
	}
	if id.kind < 2 && !cut {
		t.Errorf("%s: no call", id)
	}
	if id.kind >= 2 {
		if msg := hardSchemas[id.schema].fits(a.Content(), cut); msg != "" {
			t.Errorf("%s: %s", id, msg)
		}
	}
}

func withUsage(params map[string]any, stream bool) map[string]any {
	if stream {
		params["stream_options"] = map[string]any{"include_usage": true}
	}
	return params
}
