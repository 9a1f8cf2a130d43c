package proxy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// llamaCompletion makes the body of a chat completion one of llama.cpp's
// /completion, which has the fields of sampling, n and the bounds of a reply under
// the same names.
func (t *turn) llamaCompletion(o *openai.Object, ids []byte) {
	promptOf(o, ids)
	o.Set("cache_prompt", []byte("true"))
	o.Set("return_tokens", []byte("true"))
	o.Delete("return_token_ids")
	if v, ok := o.Get("logprobs"); ok {
		if wanted, _ := v.Bool(); wanted {
			o.Set("n_probs", fmt.Append(nil, max(integer(o, "top_logprobs", 0), 1)))
		}
		o.Delete("logprobs")
	}
	o.Delete("top_logprobs")
	if v, ok := o.Get("response_format"); ok {
		if v.Kind() != 'n' && t.format != nil { // the client's, without a grammar of ours
			o.Set("json_schema", slices.Clone(t.schema))
		}
		o.Delete("response_format")
	}
	f := t.info.Family
	syntax := grammar.SyntaxOf(f)
	// Control tokens are left out of the text unless they are named.
	tags := []string{}
	for _, tag := range append(syntax.Tokens, f.ThinkOpen, f.ThinkClose) {
		if tag != "" {
			tags = append(tags, tag)
		}
	}
	o.Set("preserved_tokens", encoded(tags))
	if t.constraint.lazy() {
		type trigger struct {
			Type  int    `json:"type"`
			Value string `json:"value"`
		}
		const word = 1
		list := []trigger{}
		for _, w := range syntax.Triggers {
			list = append(list, trigger{word, w})
		}
		if len(list) == 0 {
			list = append(list, trigger{word, syntax.Trigger})
		}
		o.Set("grammar_lazy", []byte("true"))
		o.Set("grammar_triggers", encoded(list))
	}
}

// encoded is a value of ours as JSON.
func encoded(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("proxy: " + err.Error())
	}
	return raw
}

// llamaStream makes the events of /completion those of a chat. One event is one
// token; the ids of tokens that end within a character are left out by the engine,
// which waits for the rest of it, and are found again here.
type llamaStream struct {
	vocabulary *tokenizer.Tokenizer
	id, model  string
	created    int64
	choices    int // n
	top        int // with so many alternatives to each token

	known     map[int]int // ids of each choice so far
	finished  int         // choices
	prompt    int         // tokens
	generated int         // tokens, over all choices
	cached    int         // of the prompt
}

func newLlamaStream(vocabulary *tokenizer.Tokenizer, model string, choices, top int) *llamaStream {
	return &llamaStream{
		vocabulary: vocabulary, id: "chatcmpl-" + uuid.NewString(), model: model, created: time.Now().Unix(),
		choices: max(choices, 1), top: top, known: map[int]int{},
	}
}

// llamaEvent is an event of /completion.
type llamaEvent struct {
	Index     int     `json:"index"`
	Content   string  `json:"content"`
	Tokens    []int32 `json:"tokens"`
	Stop      bool    `json:"stop"`
	Predicted int     `json:"tokens_predicted"`
	Evaluated int     `json:"tokens_evaluated"`
	StopType  string  `json:"stop_type"`
	StopWord  string  `json:"stopping_word"`
	Timings   struct {
		Cached int `json:"cache_n"`
	} `json:"timings"`
	Probs []llamaProb `json:"completion_probabilities"`
}

type llamaProb struct {
	tokenProb
	Top []tokenProb `json:"top_logprobs"`
}

// read makes an event the chunks of a chat: the last event of a reply is its end
// and its usage.
func (l *llamaStream) read(data []byte) ([][]byte, error) {
	var e llamaEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("the engine's stream is not JSON: %w", err)
	}
	type choice struct {
		Index    int             `json:"index"`
		Delta    json.RawMessage `json:"delta"`
		Logprobs any             `json:"logprobs"`
		Finish   *string         `json:"finish_reason"`
		StopWord string          `json:"stop_reason,omitempty"` // as vLLM names it
		IDs      []int32         `json:"token_ids,omitempty"`
	}
	c := choice{Index: e.Index}
	before, begun := l.known[e.Index]
	if len(e.Tokens) == 1 && e.Predicted > before+1 {
		c.IDs = l.between(e.Predicted-before-1, e.Content, e.Tokens[0])
	}
	c.IDs = append(c.IDs, e.Tokens...)
	l.known[e.Index] = max(before, e.Predicted)
	delta := []byte(`{`)
	if !begun {
		delta = append(delta, `"role":"assistant"`...)
	}
	if e.Content != "" || !begun {
		if !begun {
			delta = append(delta, ',')
		}
		delta = openai.AppendString(append(delta, `"content":`...), e.Content)
	}
	c.Delta = append(delta, '}')
	if len(e.Probs) > 0 {
		content := make([]position, len(e.Probs))
		for i, p := range e.Probs {
			content[i] = position{p.tokenProb, alternatives(p.Top, l.top)}
		}
		c.Logprobs = map[string]any{"content": content}
	}
	if e.Stop {
		finish := "stop"
		switch e.StopType {
		case "eos", "word":
		case "limit":
			finish = "length"
		default:
			return nil, fmt.Errorf("the engine ended its reply for the reason %q", cutText(e.StopType, 40))
		}
		c.Finish, c.StopWord = &finish, e.StopWord
	}
	out := [][]byte{l.chunk([]choice{c}, nil)}
	if !e.Stop {
		return out, nil
	}
	l.generated += e.Predicted
	if l.finished++; l.finished == 1 || e.Index == 0 {
		l.prompt, l.cached = e.Evaluated, e.Timings.Cached
	}
	if l.finished == l.choices {
		out = append(out, l.chunk([]choice{}, map[string]any{
			"prompt_tokens": l.prompt, "completion_tokens": l.generated, "total_tokens": l.prompt + l.generated,
			"prompt_tokens_details": map[string]int{"cached_tokens": l.cached},
		}))
	}
	return out, nil
}

func (l *llamaStream) chunk(choices, usage any) []byte {
	return encoded(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		Model   string `json:"model"`
		Choices any    `json:"choices"`
		Usage   any    `json:"usage,omitempty"`
	}{l.id, "chat.completion.chunk", l.created, l.model, choices, usage})
}

// between finds the ids that came before last and whose events were left out. Their
// bytes are those of the text in front of last's. Of several ways to spell them the
// tokenizer's own is taken, else there is no telling, and the reply goes on as text.
func (l *llamaStream) between(missing int, text string, last int32) []int32 {
	spelled, _, ok := l.vocabulary.Token(last)
	if !ok || !strings.HasSuffix(text, string(spelled)) || strings.Contains(text, "\ufffd") || len(text)-len(spelled) > maxBetween {
		return nil
	}
	if own := l.vocabulary.EncodeOrdinary(nil, text); len(own) == missing+1 && own[missing] == last {
		return own[:missing]
	}
	var found []int32
	ways := 0
	var walk func(rest string, ids []int32)
	walk = func(rest string, ids []int32) {
		if len(ids) == missing {
			if rest == "" {
				found, ways = slices.Clone(ids), ways+1
			}
			return
		}
		for end := 1; end <= len(rest)-(missing-len(ids)-1) && ways < 2; end++ {
			if id, ok := l.vocabulary.Ordinary(rest[:end]); ok {
				walk(rest[end:], append(ids, id))
			}
		}
	}
	if walk(text[:len(text)-len(spelled)], nil); ways != 1 {
		return nil
	}
	return found
}

// maxBetween bounds what is looked for, in bytes: a character has four, and a token
// may bring a few in front of it.
const maxBetween = 16
