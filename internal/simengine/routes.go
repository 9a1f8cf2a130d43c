package simengine

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"strings"

	"github.com/toolsidecar/sidecar/models/wire"
)

// version is what /version answers; the fingerprint says that no vLLM is here.
const version = "0.32.0+sim"

func (e *Engine) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/chat/completions", e.serveChat)
	m.HandleFunc("POST /v1/completions", e.serveCompletion)
	m.HandleFunc("POST /v1/embeddings", e.serveEmbeddings)
	m.HandleFunc("POST /tokenize", e.serveTokenize)
	m.HandleFunc("POST /detokenize", e.serveDetokenize)
	m.HandleFunc("GET /v1/models", e.serveModels)
	m.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": version, "system_fingerprint": e.signature})
	})
	m.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })
	m.HandleFunc("GET /ping", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })
	m.Handle("GET /metrics", e.metrics.handler)
	for _, path := range []string{"/v1/chat/completions/render", "/v1/completions/render", "/inference/v1/generate"} {
		m.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			writeError(w, &apiError{http.StatusForbidden, "PermissionDeniedError", "Scale-out endpoints are disabled: the simulated engine has none.", ""})
		})
	}
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]any{"detail": "Not Found"})
	})
	return m
}

func (e *Engine) serveModels(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": e.cfg.Model, "object": "model", "created": e.metrics.started, "owned_by": "sidecar-sim",
		"root": e.cfg.Model, "parent": nil, "max_model_len": e.cfg.MaxModelLen, "permission": []any{},
	}}})
}

func (e *Engine) serveTokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model            string          `json:"model"`
		Prompt           *string         `json:"prompt"`
		AddSpecialTokens *bool           `json:"add_special_tokens"`
		Messages         []chatMessage   `json:"messages"`
		Tools            json.RawMessage `json:"tools"`
		Generation       *bool           `json:"add_generation_prompt"`
		TokenStrings     bool            `json:"return_token_strs"`
		TemplateArgs     struct {
			EnableThinking *bool `json:"enable_thinking"`
		} `json:"chat_template_kwargs"`
	}
	err := readBody(w, r, &req)
	var text string
	switch {
	case err != nil:
	case req.Model != "" && req.Model != e.cfg.Model:
		err = &apiError{http.StatusNotFound, "NotFoundError", fmt.Sprintf("The model `%s` does not exist.", req.Model), "model"}
	case req.Prompt != nil:
		text = *req.Prompt
	case req.Messages != nil:
		var raw []json.RawMessage
		var msgs []wire.Message
		if raw, _, err = readToolsField(req.Tools); err == nil {
			msgs, err = wireMessages(req.Messages)
		}
		if err == nil {
			opt := wire.Options{AddGenerationPrompt: req.Generation == nil || *req.Generation, EnableThinking: req.TemplateArgs.EnableThinking}
			text = string(e.family.Render(nil, msgs, raw, opt))
		}
	default:
		err = badRequest("prompt", "either prompt or messages must be given")
	}
	if err != nil {
		writeError(w, err)
		return
	}
	ids := e.tok.Encode([]int32{}, text)
	var spelled []string
	if req.TokenStrings {
		spelled = []string{}
		for _, id := range ids {
			b, _, _ := e.tok.Token(id)
			spelled = append(spelled, strings.ToValidUTF8(string(b), "\ufffd"))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": e.cfg.MaxModelLen, "tokens": ids, "token_strs": spelled})
}

func (e *Engine) serveDetokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Tokens []int32 `json:"tokens"`
	}
	err := readBody(w, r, &req)
	var text []byte
	if err == nil {
		if text, err = e.tok.Decode(nil, req.Tokens); err != nil {
			err = badRequest("tokens", "%v", err)
		}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"prompt": strings.ToValidUTF8(string(text), "\ufffd")})
}

// embeddingSize is the length of an embedding without dimensions.
const embeddingSize = 256

func (e *Engine) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Dimensions *int            `json:"dimensions"`
		Encoding   string          `json:"encoding_format"`
	}
	err := readBody(w, r, &req)
	size := embeddingSize
	var inputs [][]int32
	switch {
	case err != nil:
	case req.Model != "" && req.Model != e.cfg.Model:
		err = &apiError{http.StatusNotFound, "NotFoundError", fmt.Sprintf("The model `%s` does not exist.", req.Model), "model"}
	case req.Dimensions != nil && (*req.Dimensions < 1 || *req.Dimensions > 4096):
		err = badRequest("dimensions", "dimensions must be from 1 to 4096")
	case req.Encoding != "" && req.Encoding != "float" && req.Encoding != "base64":
		err = badRequest("encoding_format", "encoding_format must be float or base64")
	default:
		if inputs, err = e.readPrompts(req.Input); err != nil {
			err = badRequest("input", "input must be a text, a list of token ids, or a list of either")
		}
	}
	if err == nil && req.Dimensions != nil {
		size = *req.Dimensions
	}
	var data []any
	tokens := 0
	for i, ids := range inputs {
		if err != nil {
			break
		}
		var text []byte
		if text, err = e.tok.Decode(nil, ids); err != nil {
			err = badRequest("input", "%v", err)
			break
		}
		tokens += len(ids)
		v := hashedWords(string(text), size)
		item := map[string]any{"object": "embedding", "index": i, "embedding": v}
		if req.Encoding == "base64" {
			var raw []byte
			for _, x := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			item["embedding"] = base64.StdEncoding.EncodeToString(raw)
		}
		data = append(data, item)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list", "model": e.cfg.Model, "data": data,
		"usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens},
	})
}

// hashedWords is the unit vector of a text's words, each hashed to a place and
// a sign.
func hashedWords(text string, size int) []float32 {
	v := make([]float32, size)
	for _, w := range terms(text) {
		h := fnv.New64a()
		h.Write([]byte(w))
		sum := h.Sum64()
		if sum>>63 == 0 {
			v[sum%uint64(size)]++
		} else {
			v[sum%uint64(size)]--
		}
	}
	var norm float64
	for _, x := range v {
		norm += float64(x) * float64(x)
	}
	if norm == 0 {
		v[0], norm = 1, 1
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(norm))
	}
	return v
}
