package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// event is one of /completion as a llama-server writes it.
func event(index int, content string, predicted int, tokens ...int32) string {
	ids, _ := json.Marshal(append([]int32{}, tokens...))
	text, _ := json.Marshal(content)
	return fmt.Sprintf(`{"index":%d,"content":%s,"tokens":%s,"stop":false,"id_slot":0,"tokens_predicted":%d,"tokens_evaluated":9}`, index, text, ids, predicted)
}

func last(index, predicted, cached int, stop string) string {
	return fmt.Sprintf(`{"index":%d,"content":"","tokens":[],"id_slot":0,"stop":true,"model":"m","tokens_predicted":%d,"tokens_evaluated":9,"generation_settings":{},"prompt":"…","truncated":false,"stop_type":%q,"stopping_word":"","tokens_cached":12,"timings":{"cache_n":%d,"prompt_n":2}}`, index, predicted, stop, cached)
}

// fed is what a client of the stream gets of events: text, ids, finish reasons by
// choice, and usage.
func fed(t *testing.T, choices, top int, events ...string) (texts map[int]string, ids map[int][]int32, finish map[int]string, usage string) {
	t.Helper()
	l := newLlamaStream(tokenizer.Qwen3(), "m", choices, top)
	texts, ids, finish = map[int]string{}, map[int][]int32{}, map[int]string{}
	roles := map[int]int{}
	for _, e := range events {
		chunks, err := l.read([]byte(e))
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range chunks {
			var c struct {
				Object  string
				Model   string
				Choices []struct {
					Index  int
					Delta  struct{ Role, Content string }
					Finish string  `json:"finish_reason"`
					IDs    []int32 `json:"token_ids"`
				}
				Usage json.RawMessage
			}
			if err := json.Unmarshal(raw, &c); err != nil || c.Object != "chat.completion.chunk" || c.Model != "m" {
				t.Fatalf("%v: %s", err, raw)
			}
			if c.Usage != nil && (len(c.Choices) > 0 || usage != "") {
				t.Errorf("usage stands in %s", raw)
			}
			usage += string(c.Usage)
			for _, choice := range c.Choices {
				texts[choice.Index] += choice.Delta.Content
				ids[choice.Index] = append(ids[choice.Index], choice.IDs...)
				finish[choice.Index] += choice.Finish
				if choice.Delta.Role != "" {
					roles[choice.Index]++
				}
			}
		}
	}
	for i, n := range roles {
		if n != 1 {
			t.Errorf("choice %d has its role %d times", i, n)
		}
	}
	return texts, ids, finish, usage
}

func TestLlamaStreamShape(t *testing.T) {
	texts, ids, finish, usage := fed(t, 2, 0,
		event(0, "He", 1, 1519), event(1, "", 1, 151645), last(1, 1, 7, "eos"),
		event(0, "llo", 2, 385), last(0, 2, 7, "limit"))
	if texts[0] != "Hello" || texts[1] != "" || finish[0] != "length" || finish[1] != "stop" || !slices.Equal(ids[0], []int32{1519, 385}) {
		t.Errorf("%v %v %v", texts, ids, finish)
	}
	if want := `{"completion_tokens":3,"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":7},"total_tokens":12}`; usage != want {
		t.Errorf("usage %s", usage)
	}
	if _, err := newLlamaStream(tokenizer.Qwen3(), "m", 1, 0).read([]byte(last(0, 1, 0, "none"))); err == nil {
		t.Error("a reply that ends for no reason is none")
	}
}

// TestLlamaStreamIDs: the engine leaves out the events of tokens that end within a
// character.
func TestLlamaStreamIDs(t *testing.T) {
	tok := tokenizer.Qwen3()
	for _, text := range []string{"plain", "é", "naïve 🙂 ok", "🙂🙂", "漢字 𠀀𠀁", " 🦙!"} {
		want := tok.Encode(nil, text)
		var events []string
		held := ""
		for i, id := range want {
			b, _, _ := tok.Token(id)
			held += string(b)
			if strings.ToValidUTF8(held, "") == held {
				events = append(events, event(0, held, i+1, id))
				held = ""
			}
		}
		events = append(events, last(0, len(want), 0, "limit"))
		texts, ids, _, _ := fed(t, 1, 0, events...)
		if texts[0] != text || !slices.Equal(ids[0], want) {
			t.Errorf("%q: text %q, ids %v, want %v", text, texts[0], ids[0], want)
		}
	}
	// Where the bytes were no text there is no telling.
	if _, ids, _, _ := fed(t, 1, 0, event(0, "\ufffda", 2, 64)); !slices.Equal(ids[0], []int32{64}) {
		t.Errorf("ids of bytes that are no text: %v", ids[0])
	}
}

func TestLlamaStreamLogprobs(t *testing.T) {
	probs := `,"completion_probabilities":[{"id":1519,"token":"He","bytes":[72,101],"logprob":-0.5,"top_logprobs":[{"id":1519,"token":"He","bytes":[72,101],"logprob":-0.5},{"id":385,"token":"llo","bytes":[108,108,111],"logprob":-2}]}]}`
	e := strings.TrimSuffix(event(0, "He", 1, 1519), "}") + probs
	for top, want := range map[int]string{
		0:  `{"content":[{"token":"He","logprob":-0.5,"bytes":[72,101],"top_logprobs":[]}]}`,
		1:  `{"content":[{"token":"He","logprob":-0.5,"bytes":[72,101],"top_logprobs":[{"token":"He","logprob":-0.5,"bytes":[72,101]}]}]}`,
		-1: `{"content":[{"token":"He","logprob":-0.5,"bytes":[72,101],"top_logprobs":[{"token":"He","logprob":-0.5,"bytes":[72,101]},{"token":"llo","logprob":-2,"bytes":[108,108,111]}]}]}`,
	} {
		chunks, err := newLlamaStream(tokenizer.Qwen3(), "m", 1, top).read([]byte(e))
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Choices []struct{ Logprobs json.RawMessage }
		}
		if err := json.Unmarshal(chunks[0], &c); err != nil || string(c.Choices[0].Logprobs) != want {
			t.Errorf("%d alternatives: %v %s", top, err, chunks[0])
		}
	}
}

// scriptedLlama is a llama-server with the Qwen3 vocabulary that answers the probe
// and then with what reply gives for a body of /completion.
type scriptedLlama struct {
	mu    sync.Mutex // guards texts
	texts map[string]string
	reply func(w http.ResponseWriter, body map[string]json.RawMessage)
}

func (f *scriptedLlama) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []wire.Message
		Tools    []json.RawMessage
		Content  string
		Tokens   []int32
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(raw) > 0 && json.Unmarshal(raw, &body) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	answer := func(v any) { json.NewEncoder(w).Encode(v) }
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"llamacpp"}]}`)
	case "/props":
		fmt.Fprint(w, `{"build_info":"b1","total_slots":4,"default_generation_settings":{"n_ctx":40960}}`)
	case "/metrics":
	case "/apply-template":
		f, err := wire.ByName("hermes")
		if err != nil {
			panic(err)
		}
		answer(map[string]string{"prompt": string(f.Render(nil, body.Messages, body.Tools, wire.Options{AddGenerationPrompt: true}))})
	case "/tokenize":
		ids := tokenizer.Qwen3().Encode(nil, body.Content)
		f.texts[fmt.Sprint(ids)] = body.Content
		answer(map[string]any{"tokens": ids})
	case "/detokenize":
		answer(map[string]any{"content": f.texts[fmt.Sprint(body.Tokens)]})
	case "/completion":
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			panic(err)
		}
		var ids []int32
		switch grammar := string(members["grammar"]); {
		case strings.Contains(grammar, "ok ok ok ok"):
			answer(map[string]any{"content": "ok ok", "stop": true, "stop_type": "eos"})
		case json.Unmarshal(members["prompt"], &ids) == nil && string(members["max_tokens"]) == "1": // the probe of ids
			fmt.Fprint(counting{w, len(ids)}, "data: ", event(0, "ok", 1, 562), "\n\n")
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			f.reply(counting{w, len(ids)}, members)
		}
	default:
		http.NotFound(w, r)
	}
}

// counting is a writer that tells n tokens of the prompt where the events of a test
// tell 9.
type counting struct {
	http.ResponseWriter
	n int
}

func (c counting) Write(b []byte) (int, error) {
	_, err := c.ResponseWriter.Write(bytes.ReplaceAll(b, []byte(`"tokens_evaluated":9`), fmt.Appendf(nil, `"tokens_evaluated":%d`, c.n)))
	return len(b), err
}

func newScriptedLlama(t *testing.T) (*scriptedLlama, *sidecar) {
	f := &scriptedLlama{texts: map[string]string{}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	cfg := allStages()
	cfg.Mode = ModeAuto
	return f, newSidecar(t, srv.URL, cfg)
}

// llamaCall is the events of a reply that calls get_weather.
func llamaCall() string {
	tok := tokenizer.Qwen3()
	ids := tok.Encode(nil, callWeather)
	var b strings.Builder
	for i, id := range ids {
		text, _, _ := tok.Token(id)
		fmt.Fprintf(&b, "data: %s\n\n", event(0, string(text), i+1, id))
	}
	fmt.Fprintf(&b, "data: %s\n\n", last(0, len(ids), 0, "eos"))
	return b.String()
}

// weatherBody is a request whose every field token-in mode knows.
func weatherBody(more string) string {
	return `{"messages":[{"role":"user","content":"weather"}],"tools":` + toolList(3) + more + `}`
}

// TestLlamaCut: wherever the stream of a llama-server ends, the client gets the
// whole reply or an error.
func TestLlamaCut(t *testing.T) {
	f, s := newScriptedLlama(t)
	stream := llamaCall()
	end := len(stream) - 8
	var cut int
	f.reply = func(w http.ResponseWriter, _ map[string]json.RawMessage) {
		io.WriteString(w, stream[:cut])
	}
	for _, more := range []string{"", `,"stream":true`} {
		for cut = 0; cut <= len(stream); cut += 1 + 100*min(1, max(0, end-cut)/100) {
			status, header, body := s.ask(weatherBody(more))
			if header.Get("X-Sidecar-Mode") != ModeTokenIn {
				t.Fatalf("mode %q: %s", header.Get("X-Sidecar-Mode"), s.last().Fallback)
			}
			whole := cut == len(stream)
			done := bytes.Contains(body, []byte(`"finish_reason":"tool_calls"`))
			if failed := bytes.Contains(body, []byte(`"error"`)); done != whole || failed == whole || more == "" && (status == 200) != whole {
				t.Fatalf("cut at %d of %d%s: status %d: %s", cut, len(stream), more, status, body)
			}
		}
	}
	if c := s.p.stages.(*stages).cache; len(c.sent) != 0 {
		t.Errorf("%d prompts are taken to be computed still", len(c.sent))
	}
}

// TestLlamaRefusal: a grammar that is refused is left out with all that belongs to
// it, and the client's own format is back.
func TestLlamaRefusal(t *testing.T) {
	f, s := newScriptedLlama(t)
	var bodies []map[string]json.RawMessage
	f.reply = func(w http.ResponseWriter, body map[string]json.RawMessage) {
		bodies = append(bodies, body)
		if body["grammar"] != nil {
			http.Error(w, `{"error":{"code":400,"message":"Failed to parse grammar","type":"invalid_request_error"}}`, http.StatusBadRequest)
			return
		}
		io.WriteString(w, llamaCall())
	}
	const format = `,"response_format":{"type":"json_schema","json_schema":{"name":"r","schema":{"type":"object","properties":{"n":{"type":"integer"}}}}}`
	for _, more := range []string{"", `,"tool_choice":"required"`, format, `,"logprobs":true,"top_logprobs":-1`} {
		bodies = nil
		status, header, answer := s.ask(weatherBody(more))
		if status != 200 || !bytes.Contains(answer, []byte("get_weather")) || header.Get("X-Sidecar-Held") != "unconstrained=3" || s.last().Constraint != "checked" {
			t.Errorf("%s: status %d, held %q: %s", more, status, header.Get("X-Sidecar-Held"), answer)
		}
		if len(bodies) != 2 || bodies[0]["json_schema"] != nil {
			t.Fatalf("%s: %d bodies", more, len(bodies))
		}
		for _, key := range []string{"grammar", "grammar_lazy", "grammar_triggers", "response_format", "tools"} {
			if v := bodies[1][key]; v != nil {
				t.Errorf("%s: sent again with %s %s", more, key, v)
			}
		}
		if got := bodies[1]["json_schema"] != nil; got != (more == format) {
			t.Errorf("%s: sent again with json_schema %s", more, bodies[1]["json_schema"])
		}
	}
}

// FuzzLlamaStream: whatever a llama-server sends becomes chunks of a chat or an
// error.
func FuzzLlamaStream(f *testing.F) {
	for _, e := range []string{
		event(0, "He", 1, 1519), event(1, "🙂", 3, 64), event(0, "\ufffd", 2), event(0, "ab", 1<<62, 1, 2, 3), event(-1, "", -5, -7), event(127, " ", 2, 1<<30),
		last(0, 2, 7, "eos"), last(1, 2, 7, "limit"), last(0, 0, -1, ""), `{"error":{"message":"x"}}`,
		`{"content":"x","tokens":[1],"completion_probabilities":[{"token":"x","logprob":-1,"bytes":null,"top_logprobs":null},{"top_logprobs":[{"logprob":1e308}]}]}`,
	} {
		f.Add(e, 0)
		f.Add(e+"\n"+e, -1)
	}
	family, err := wire.ByName("hermes")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, events string, top int) {
		r := &generation{family: family, ids: true, top: top, newID: func() string { return "call" }}
		r.read = newLlamaStream(tokenizer.Qwen3(), "m", 2, top).read
		for _, e := range strings.Split(events, "\n") {
			chunks, err := r.chunk([]byte(e), true)
			for _, c := range chunks {
				if !json.Valid(c) {
					t.Errorf("%q became %q", e, c)
				}
			}
			if err != nil {
				return
			}
		}
	})
}
