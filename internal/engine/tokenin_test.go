package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// idFake is a fake that takes token ids.
type idFake struct {
	fake
	chat, text bool // by which endpoint
	ignore     bool // takes them and uses its own prompt
	mute       bool // gives no ids back
	silent     bool // tells no cached tokens
	parser     bool // splits reasoning off, and waits for its end before it holds a text
	fooled     bool // an old </think> is the end for it
	frame      string
}

func (f idFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	var body struct {
		Stream   bool
		Prompt   []int32
		Input    []int32 `json:"input_ids"`
		Transfer struct {
			IDs []int32 `json:"prompt_token_ids"`
		} `json:"kv_transfer_params"`
		Messages []struct{ Content string }
	}
	_ = json.Unmarshal(raw, &body) // what does not fit is not looked at
	ids := slices.Concat(body.Prompt, body.Input, body.Transfer.IDs)
	switch {
	case r.URL.Path == "/tokenize" && f.frame != "" && bytes.Contains(raw, []byte("system turn in the middle")):
		fmt.Fprint(w, `{"tokens":[1,2,3]}`)
		return
	case bytes.Contains(raw, []byte("const_string")), r.URL.Path == "/v1/completions" && f.text, r.URL.Path == "/v1/chat/completions" && len(ids) > 0 && f.chat:
	case r.URL.Path == "/v1/chat/completions" && len(ids) > 0, r.URL.Path == "/v1/completions":
		http.Error(w, `{"error":{"message":"unknown field"}}`, http.StatusBadRequest)
		return
	default:
		f.fake.ServeHTTP(w, r)
		return
	}
	cached := `,"prompt_tokens_details":{"cached_tokens":0}`
	if f.silent {
		cached = ""
	}
	if !body.Stream { // the question about the reasoning
		text, _ := tokenizer.Qwen3().Decode(nil, ids)
		message := `{"content":"ok o"}`
		switch {
		case f.fooled && bytes.Contains(text, []byte("</think>")): // held, and then taken for reasoning
			message = `{"content":null,"reasoning":"ok o"}`
		case f.parser:
			message = `{"content":null,"reasoning":"Hm, the user"}`
		}
		fmt.Fprintf(w, `{"choices":[{"message":%s}]}`, message)
		return
	}
	prompt, back := string(must(json.Marshal(ids))), `,"token_ids":[562]`
	count := len(ids)
	if f.ignore {
		prompt, count = "[1,2]", 2
	}
	if f.mute {
		back = ""
	}
	if f.kind == SGLang {
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"}}]}\n\ndata: {\"choices\":[],\"sglext\":{\"output_ids\":[[562]]}}\n\n")
	} else {
		fmt.Fprintf(w, "data: {\"prompt_token_ids\":%s,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"}%s}]}\n\n", prompt, back)
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d%s}}\n\ndata: [DONE]\n\n", count, cached)
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}

func TestTokenIn(t *testing.T) {
	vllm, sglang := fake{kind: VLLM, family: "hermes"}, fake{kind: SGLang, family: "hermes"}
	for _, tt := range []struct {
		name   string
		engine http.Handler
		want   Transport
		why    string
	}{
		{"vllm", idFake{fake: vllm, chat: true, text: true}, ChatKV, ""},
		{"vllm without the field", idFake{fake: vllm, text: true}, Completions, ""},
		{"vllm without either", idFake{fake: vllm}, "", "unknown field"},
		{"its own prompt", idFake{fake: vllm, chat: true, ignore: true}, "", "counted 2 prompt tokens"},
		{"no ids back", idFake{fake: vllm, chat: true, mute: true}, "", "no ids of what it generated"},
		{"sglang", idFake{fake: sglang, chat: true}, ChatInput, ""},
		{"sglang that refuses", idFake{fake: sglang, text: true}, "", "unknown field"},
		{"another framing", idFake{fake: vllm, chat: true, frame: "other"}, "", "frames probe conversation"},
		{"a parser", idFake{fake: vllm, chat: true, parser: true}, ChatKV, ""},
		{"a parser at the other endpoint", idFake{fake: vllm, text: true, parser: true}, "", "at the chat endpoint"},
		{"a fooled parser", idFake{fake: vllm, chat: true, parser: true, fooled: true}, "", "old </think>"},
		{"another vocabulary", fake{kind: VLLM, family: "hermes", untoken: true}, "", "not the engine's"},
		{"foreign template", fake{kind: VLLM, family: "hermes", system: "<s>"}, "", "no family known"},
		{"llama.cpp", llamaFake{family: "hermes"}, Completion, ""},
		{"llama.cpp with its own prompt", llamaFake{family: "hermes", begin: 1}, "", "counted"},
		{"llama.cpp without ids", llamaFake{family: "hermes", mute: true}, "", "no ids of what it generated"},
		{"unknown server", fake{kind: Unknown, family: "hermes"}, "", "no way"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.engine)
			defer srv.Close()
			p := Prober{Client: srv.Client(), Base: srv.URL, Tokenizer: tokenizer.Qwen3()}
			if f, ok := tt.engine.(fake); ok && f.untoken {
				p.Family = f.family // it can't be told
			}
			info, err := p.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if info.TokenIn != tt.want || !strings.Contains(info.TokenInReason, tt.why) || (info.TokenIn == "") != (info.TokenInReason != "") {
				t.Errorf("transport %q, reason %q", info.TokenIn, info.TokenInReason)
			}
			if f, ok := tt.engine.(idFake); ok && info.TokenIn != "" && (info.Reasoning != f.parser || info.CachedTokens == f.silent) {
				t.Errorf("reasoning parser %v, cached tokens %v", info.Reasoning, info.CachedTokens)
			}
		})
	}
}

// TestMissing: for each thing that is missing the flag that turns it on.
func TestMissing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		engine http.Handler
		want   []string
	}{
		{"nothing", idFake{fake: fake{kind: VLLM, family: "hermes"}, chat: true}, nil},
		{"vllm accounting", idFake{fake: fake{kind: VLLM, family: "hermes"}, chat: true, silent: true}, []string{"vllm serve --enable-prompt-tokens-details"}},
		{"sglang accounting", idFake{fake: fake{kind: SGLang, family: "hermes"}, chat: true, silent: true}, []string{"sglang --enable-cache-report"}},
		{"simulated", idFake{fake: fake{kind: Sim, family: "hermes"}, chat: true, silent: true}, []string{"sidecar engine --enable-prompt-tokens-details"}},
		{"tags", idFake{fake: fake{kind: SGLang, family: "hermes", refuseTag: true}, chat: true}, []string{"sglang --grammar-backend xgrammar"}},
		{"family", idFake{fake: fake{kind: VLLM, family: "hermes", system: "<s>"}, chat: true}, []string{"vllm serve --enable-prompt-tokens-details", "sidecar serve --family NAME"}},
	} {
		srv := httptest.NewServer(tt.engine)
		p := Prober{Client: srv.Client(), Base: srv.URL, Tokenizer: tokenizer.Qwen3()}
		info, err := p.Probe(t.Context())
		srv.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range info.Missing() {
			got = append(got, m.Flag)
			if m.What == "" || m.Why == "" {
				t.Errorf("%s: %+v", tt.name, m)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	off := Info{Kind: VLLM, CacheOff: true, CachedTokens: true, StructuralTag: true, BlockSize: 16, TokenizerExact: true}
	if list := off.Missing(); len(list) != 2 || list[0].Flag != "vllm serve --enable-prefix-caching" {
		t.Errorf("no prefix cache: %+v", list)
	}
}
