package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// fake answers the probe's requests as an engine of the given kind would.
type fake struct {
	kind      Kind
	family    string // how it renders conversations
	system    string // text that its template adds at the start, to be of no known family
	untoken   bool   // no /tokenize
	refuseTag bool
	models    string
}

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []wire.Message
		Tools    []json.RawMessage
		Tokens   []int32
		Format   json.RawMessage `json:"response_format"`
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	tok := tokenizer.Qwen3()
	fam, err := wire.ByName(f.family)
	if err != nil {
		panic(err)
	}
	switch r.URL.Path {
	case "/v1/models":
		models := f.models
		if models == "" {
			models = `[{"id":"m","owned_by":"vllm","max_model_len":4096}]`
			if f.kind == Sim {
				models = `[{"id":"m","owned_by":"sidecar-sim","max_model_len":4096}]`
			}
		}
		fmt.Fprintf(w, `{"data":%s}`, models)
	case "/version":
		if f.kind != VLLM && f.kind != Sim {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"version":"0.32.0"}`)
	case "/metrics":
		fmt.Fprint(w, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"32\",mamba_block_size=\"None\"} 1.0\n")
	case "/server_info":
		if f.kind != SGLang {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"version":"0.5.23","page_size":1}`)
	case "/tokenize":
		if f.untoken {
			http.NotFound(w, r)
			return
		}
		text := f.system + string(fam.Render(nil, body.Messages, body.Tools, wire.Options{AddGenerationPrompt: true}))
		json.NewEncoder(w).Encode(map[string]any{"tokens": tok.Encode(nil, text)})
	case "/detokenize":
		text, err := tok.Decode(nil, body.Tokens)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(map[string]string{"prompt": string(text)})
	case "/v1/chat/completions":
		if f.refuseTag || !strings.Contains(string(body.Format), "max_whitespace_cnt") {
			http.Error(w, `{"error":{"message":"Invalid response_format structural_tag specification."}}`, http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"choices":[{"index":0}]}`)
	default:
		http.NotFound(w, r)
	}
}

func TestProbe(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fake  http.Handler
		force string
		want  string
	}{
		{"vllm", fake{kind: VLLM, family: "hermes"}, "", "vllm 0.32.0 block=32 family=hermes exact=true tag=true"},
		{"simulated", fake{kind: Sim, family: "hermes"}, "auto", "sim 0.32.0 block=32 family=hermes exact=true tag=true"},
		{"sglang", fake{kind: SGLang, family: "hermes"}, "", "sglang 0.5.23 block=1 family=hermes exact=true tag=true"},
		{"template without tools", fake{kind: VLLM, family: "chatml"}, "", "vllm 0.32.0 block=32 family=chatml exact=true tag=true"},
		{"llama.cpp", llamaFake{family: "hermes"}, "", "llamacpp b1 block=1 family=hermes exact=true tag=false gbnf"},
		{"llama.cpp that keeps to no grammar", llamaFake{family: "hermes", deaf: true}, "", "llamacpp b1 block=1 family=hermes exact=true tag=false"},
		{"foreign template", fake{kind: VLLM, family: "hermes", system: "<s>"}, "", "vllm 0.32.0 block=32 family=none exact=true tag=true"},
		{"no tokenize", fake{kind: VLLM, family: "hermes", untoken: true}, "", "vllm 0.32.0 block=32 family=none exact=false tag=true"},
		{"refuses tags", fake{kind: VLLM, family: "hermes", refuseTag: true}, "", "vllm 0.32.0 block=32 family=hermes exact=true tag=false"},
		{"unknown server", fake{kind: Unknown, family: "hermes"}, "", "unknown  block=0 family=hermes exact=true tag=false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.fake)
			defer srv.Close()
			p := Prober{Client: srv.Client(), Base: srv.URL, Family: tt.force, Tokenizer: tokenizer.Qwen3()}
			info, err := p.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			family := "none"
			if info.Family != nil {
				family = info.Family.Name
			} else if info.FamilyReason == "" {
				t.Error("no family and no reason")
			}
			if !info.StructuralTag && !info.GBNF && info.TagReason == "" {
				t.Error("no constraint and no reason")
			}
			got := fmt.Sprintf("%s %s block=%d family=%s exact=%v tag=%v", info.Kind, info.Version, info.BlockSize, family, info.TokenizerExact, info.StructuralTag)
			if info.GBNF {
				got += " gbnf"
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if info.Models[0] != (Model{"m", 4096}) {
				t.Errorf("model %+v", info.Models[0])
			}
		})
	}
}

func TestProbeFails(t *testing.T) {
	srv := httptest.NewServer(fake{kind: VLLM, family: "hermes", models: "[]"})
	defer srv.Close()
	p := Prober{Client: srv.Client(), Base: srv.URL}
	if _, err := p.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "lists no model") {
		t.Errorf("no model: %v", err)
	}
	p.Family = "nosuch"
	srv2 := httptest.NewServer(fake{kind: VLLM, family: "hermes"})
	defer srv2.Close()
	p.Base = srv2.URL
	if _, err := p.Probe(t.Context()); err == nil {
		t.Error("an unknown family was accepted")
	}
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer stuck.Close()
	p.Base = stuck.URL
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Probe(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("a stuck engine: %v", err)
	}
}

// TestProbeOfBusyEngine: an answer that says nothing lasting is no finding about
// the engine: the probe fails, and the next one finds out.
func TestProbeOfBusyEngine(t *testing.T) {
	for _, route := range []string{"/v1/models", "/version", "/tokenize", "/detokenize", "/v1/chat/completions"} {
		for _, status := range []int{429, 503, 0} { // 0: the connection breaks
			var busy atomic.Bool
			busy.Store(true)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !busy.Load() || r.URL.Path != route:
					fake{kind: VLLM, family: "hermes"}.ServeHTTP(w, r)
				case status == 0:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(status)
				}
			}))
			p := Prober{Client: srv.Client(), Base: srv.URL, Tokenizer: tokenizer.Qwen3()}
			if info, err := p.Probe(t.Context()); err == nil {
				t.Errorf("%s answers %d: taken for %+v", route, status, info)
			}
			busy.Store(false)
			if info, err := p.Probe(t.Context()); err != nil || info.Family == nil || !info.StructuralTag {
				t.Errorf("%s answered %d before: %+v, %v", route, status, info, err)
			}
			srv.Close()
		}
	}
}

func TestProbeWithoutKey(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	defer srv.Close()
	p := Prober{Client: srv.Client(), Base: srv.URL}
	if _, err := p.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "--engine-api-key") {
		t.Errorf("an engine that wants a key: %v", err)
	}
}

// TestProbeFindsFamilies: a family is found by how the engine renders, and by
// the model's name where two render alike.
func TestProbeFindsFamilies(t *testing.T) {
	for _, tt := range []struct{ family, model, want string }{
		{"hermes", "m", "hermes"}, {"chatml", "m", "chatml"}, {"qwen3-coder", "m", "qwen3-coder"}, {"llama3", "m", "llama3"},
		{"deepseek-v3.1", "m", "deepseek-v3.1"}, {"glm-4.5", "m", "glm-4.5"}, {"glm-4.7", "m", "glm-4.7"}, {"kimi-k2", "m", "kimi-k2"},
		{"mistral", "m", "mistral"}, {"mistral-v11", "Mistral-Small-3.2", "mistral-v11"}, {"hermes", "Qwen3-Coder", "hermes"},
	} {
		srv := httptest.NewServer(fake{kind: VLLM, family: tt.family, models: `[{"id":"` + tt.model + `","max_model_len":4096}]`})
		p := Prober{Client: srv.Client(), Base: srv.URL, Tokenizer: tokenizer.Qwen3()}
		info, err := p.Probe(t.Context())
		srv.Close()
		switch {
		case err != nil:
			t.Errorf("%s: %v", tt.family, err)
		case info.Family == nil || info.Family.Name != tt.want:
			t.Errorf("%s, model %s: %v, %s", tt.family, tt.model, info.Family, info.FamilyReason)
		}
	}
	srv := httptest.NewServer(fake{kind: VLLM, family: "hermes"})
	defer srv.Close()
	p := Prober{Client: srv.Client(), Base: srv.URL, Family: "harmony", Tokenizer: tokenizer.Qwen3()}
	if info, err := p.Probe(t.Context()); err != nil || info.Family != nil || !strings.Contains(info.FamilyReason, "own template only") {
		t.Errorf("harmony: %+v, %v", info, err)
	}
}

// TestSame: an engine is the one that was probed until its process, its version, its
// models or its cache are others. One that does not tell is no other.
func TestSame(t *testing.T) {
	models, version, metrics := `{"data":[{"id":"m","owned_by":"vllm","max_model_len":8}]}`, `{"version":"0.32.0"}`, ""
	config := func(start, block string) string {
		return "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds " + start +
			"\n# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"" + block + "\"} 1\n"
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]string{"/v1/models": models, "/version": version, "/metrics": metrics}[r.URL.Path]
		if body == "" {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, body)
	}))
	defer srv.Close()
	p := &Prober{Client: srv.Client(), Base: srv.URL}
	metrics = config("1", "16")
	info, err := p.identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		models, version, metrics string
		same, told               bool
	}{
		{models, version, config("1", "16"), true, true},
		{models, version, config("2", "16"), false, true},
		{models, version, config("1", "32"), false, true},
		{models, `{"version":"0.33.0"}`, config("1", "16"), false, true},
		{strings.Replace(models, `"m"`, `"n"`, 1), version, config("1", "16"), false, true},
		{strings.Replace(models, `8`, `9`, 1), version, config("1", "16"), false, true},
		{models, version, "", false, false},
		{"", version, config("1", "16"), false, false},
		{models, "", config("1", "16"), false, false},
	} {
		models, version, metrics = tt.models, tt.version, tt.metrics
		if same, err := p.Same(t.Context(), info); same != tt.same || (err == nil) != tt.told {
			t.Errorf("%+v: same %v, error %v", tt, same, err)
		}
	}
}
