package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// engineFields are top-level request fields that reach past the model's answer
// into the engine: into its cache, its scheduler, its other requests or its
// code. They are refused unless the operator allows them by name.
//
// Fields that only shape the answer pass: sampling, structured_outputs and
// response_format, chat_template_kwargs (enable_thinking is everyday use),
// continue_final_message, stop_token_ids. So does return_token_ids: it shows
// the caller the ids of his own text and steers nothing.
var engineFields = map[string]string{
	// vLLM
	"kv_transfer_params":  "it moves KV blocks between engines and can carry a prompt of its own",
	"vllm_xargs":          "it reaches internal extensions of vLLM",
	"cache_salt":          "it chooses whose prefix cache is used",
	"priority":            "it jumps the scheduler's queue",
	"request_id":          "it can collide with another client's request; send the X-Request-Id header",
	"prompt_embeds":       "it is a serialized tensor that the engine unpickles",
	"logits_processors":   "it names code to run in the engine",
	"mm_processor_kwargs": "it sets arguments of the engine's media processor",
	"media_io_kwargs":     "it sets arguments of the engine's media loader",
	"chat_template":       "it is a program that replaces the model's template",
	"session_id":          "it ties the request to another's state in the engine",
	// SGLang
	"input_ids":              "token ids bypass the messages and can forge turns",
	"input_embeds":           "embeddings bypass the messages",
	"extra_key":              "it chooses whose prefix cache is used",
	"session_params":         "it ties the request to another's state in the engine",
	"custom_logit_processor": "it is serialized code that the engine runs",
	"custom_params":          "it is input of serialized code that the engine runs",
	"rid":                    "it can collide with another client's request; send the X-Request-Id header",
	"bootstrap_host":         "it makes the engine connect to a host",
	"bootstrap_port":         "it makes the engine connect to a host",
	"bootstrap_room":         "it joins a transfer between engines",
	"data_parallel_rank":     "it chooses the replica",
	"routed_dp_rank":         "it chooses the replica",
	"return_hidden_states":   "it copies the model's inner state to the caller at the cost of every request in the batch",
	// llama.cpp
	"id_slot": "it takes over a slot and the cache in it",
	"lora":    "it changes the adapters of a shared model",
}

// engineHeaders are request headers that do the same.
var engineHeaders = map[string]string{
	"X-Data-Parallel-Rank": "it chooses the replica", // vLLM
}

// fieldGate refuses the engine's private fields but those allowed.
type fieldGate struct {
	all   bool
	allow map[string]bool
}

// newFieldGate returns an error that names the first unknown field.
func newFieldGate(allow []string) (fieldGate, error) {
	g := fieldGate{allow: map[string]bool{}}
	for _, name := range allow {
		if name == "all" {
			g.all = true
			continue
		}
		if engineFields[name] == "" && engineHeaders[name] == "" {
			names := slices.Collect(maps.Keys(engineFields))
			names = slices.AppendSeq(names, maps.Keys(engineHeaders))
			slices.Sort(names)
			return g, fmt.Errorf("engine field %q needs no permission; known are all, %s", name, strings.Join(names, ", "))
		}
		g.allow[name] = true
	}
	return g, nil
}

// check returns an error about the first private field of a request.
func (g *fieldGate) check(o *openai.Object) *openai.Error {
	for _, m := range o.Members() {
		if why := engineFields[m.Key]; why != "" && !g.all && !g.allow[m.Key] {
			return refusedField("field", m.Key, why)
		}
	}
	return nil
}

// checkHeader does the same for headers.
func (g *fieldGate) checkHeader(h http.Header) *openai.Error {
	for name, why := range engineHeaders {
		if h[name] != nil && !g.all && !g.allow[name] {
			return refusedField("header", name, why)
		}
	}
	return nil
}

func refusedField(kind, name, why string) *openai.Error {
	return &openai.Error{
		Status:  400,
		Message: fmt.Sprintf("The %s %q steers the engine and is refused: %s. The operator of the sidecar can allow it with --allow-engine-field %s.", kind, name, why, name),
		Type:    invalidRequest,
		Param:   name,
		Code:    "engine_field_refused",
	}
}
