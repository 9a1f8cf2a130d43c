package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// tokenized are texts by their ids: llama.cpp normalises nothing, so that they come
// back as they were.
var tokenized sync.Map

// llamaFake answers the probe as a llama-server does.
type llamaFake struct {
	family string
	deaf   bool // goes on without the grammar
	mute   bool // gives no ids back
	begin  int  // tokens that it puts in front of a prompt
	quiet  bool // no /metrics
}

func (f llamaFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []wire.Message
		Tools    []json.RawMessage
		Content  string
		Tokens   []int32
		Prompt   json.RawMessage
		Grammar  string
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	family, err := wire.ByName(f.family)
	if err != nil {
		panic(err)
	}
	reply := func(v any) { json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx_train":40960}}]}`)
	case "/props":
		fmt.Fprint(w, `{"build_info":"b1","total_slots":4,"default_generation_settings":{"n_ctx":4096}}`)
	case "/metrics":
		if f.quiet {
			http.Error(w, `{"error":{"code":501,"message":"This server does not support metrics endpoint. Start it with `+"`--metrics`"+`"}}`, http.StatusNotImplemented)
		}
	case "/apply-template":
		reply(map[string]string{"prompt": string(family.Render(nil, body.Messages, body.Tools, wire.Options{AddGenerationPrompt: true}))})
	case "/tokenize":
		ids := tokenizer.Qwen3().Encode(nil, body.Content)
		tokenized.Store(fmt.Sprint(ids), body.Content)
		reply(map[string]any{"tokens": ids})
	case "/detokenize":
		text, _ := tokenized.Load(fmt.Sprint(body.Tokens))
		reply(map[string]any{"content": text})
	case "/completion":
		if body.Grammar != "" {
			text := "ok ok"
			if f.deaf {
				text = "No."
			}
			reply(map[string]any{"content": text, "stop": true, "stop_type": "eos"})
			return
		}
		var ids []int32
		if err := json.Unmarshal(body.Prompt, &ids); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n, back := len(ids)+f.begin, "[562]"
		if f.mute {
			back = "[]"
		}
		fmt.Fprintf(w, "data: {\"index\":0,\"content\":\"ok\",\"tokens\":%s,\"stop\":false,\"tokens_predicted\":1,\"tokens_evaluated\":%d}\n\n", back, n)
		fmt.Fprintf(w, "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":true,\"tokens_predicted\":1,\"tokens_evaluated\":%d,\"stop_type\":\"limit\",\"timings\":{\"cache_n\":0,\"prompt_n\":%d}}\n\n", n, n)
	default:
		http.NotFound(w, r)
	}
}

func TestProbeLlama(t *testing.T) {
	srv := httptest.NewServer(llamaFake{family: "hermes"})
	defer srv.Close()
	info, err := (&Prober{Client: srv.Client(), Base: srv.URL, Tokenizer: tokenizer.Qwen3()}).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Slots != 4 || info.Models[0].Context != 4096 || !info.CachedTokens || !info.Metrics || info.Reasoning {
		t.Errorf("%+v", info)
	}
	if list := info.Missing(); len(list) > 0 {
		t.Errorf("missing %+v", list)
	}
	srv.Config.Handler = llamaFake{family: "hermes", quiet: true, deaf: true}
	if info, err = (&Prober{Client: srv.Client(), Base: srv.URL, Tokenizer: tokenizer.Qwen3()}).Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := info.Missing()
	if len(list) != 2 || list[0].Flag != "llama-server --metrics" || list[1].What != "grammars" {
		t.Errorf("missing %+v", list)
	}
}

// TestConnectionsToLlama: a llama-server closes a connection behind a stream without
// saying so. No request is sent on one that it may be closing.
func TestConnectionsToLlama(t *testing.T) {
	var opened atomic.Int32
	serve := func(server string) *httptest.Server {
		opened.Store(0)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server", server)
			fmt.Fprint(w, "ok")
		}))
		srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				opened.Add(1)
			}
		}
		srv.Start()
		t.Cleanup(srv.Close)
		return srv
	}
	for server, want := range map[string]int32{"llama.cpp": 5, "uvicorn": 1} {
		srv := serve(server)
		client := &http.Client{Transport: &Connections{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
		for range 5 {
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		client.CloseIdleConnections()
		if n := opened.Load(); n != want {
			t.Errorf("%s: %d connections for 5 requests, want %d", server, n, want)
		}
	}
}
