package proxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// gather takes the ids that stand beside the choices off a chunk: those of the
// prompt, which vLLM repeats, and those that SGLang sends in a chunk of their own.
func (r *generation) gather(o *openai.Object, choices int) error {
	if !r.keepIDs {
		o.Delete("prompt_token_ids")
	}
	v, ok := o.Get("sglext")
	if !ok {
		return nil
	}
	ext, ok := openai.ObjectOf(v)
	if !ok {
		return nil
	}
	lists, ok := ext.Get("output_ids")
	if !ok {
		return nil
	}
	for i, list := range openai.Elements(lists) {
		c, err := r.choiceAt(i)
		if err != nil {
			return err
		}
		if c.ids, err = readIDs(c.ids[:0], list); err != nil {
			return err
		}
	}
	ext.Delete("output_ids")
	if len(ext.Members()) > 0 {
		o.Set("sglext", ext.Bytes())
		return nil
	}
	o.Delete("sglext")
	if v, _ := o.Get("usage"); choices == 0 && v.Kind() != '{' { // it brought nothing else
		for _, m := range o.Members() {
			o.Delete(m.Key)
		}
	}
	return nil
}

func readIDs(dst []int32, list openai.Value) ([]int32, error) {
	for _, e := range openai.Elements(list) {
		id, ok := e.Int()
		if !ok || id < 0 || id > math.MaxInt32 {
			return nil, errors.New("the engine sent a token id that is none")
		}
		dst = append(dst, int32(id))
	}
	return dst, nil
}

// completions makes a chunk of a text completion one of a chat completion, which
// begins with the role.
func (r *generation) completions(data []byte) ([][]byte, error) {
	o, err := openai.Scan(data, r.limits)
	if err != nil {
		return nil, err
	}
	o.Set("object", []byte(`"chat.completion.chunk"`))
	v, _ := o.Get("choices")
	elements := openai.Elements(v)
	if len(elements) == 0 {
		return [][]byte{o.Bytes()}, nil
	}
	list := []byte{'['}
	for i, e := range elements {
		co, ok := openai.ObjectOf(e)
		if !ok {
			return nil, errors.New("the engine sent a choice that is no object")
		}
		delta := []byte(`{`)
		if len(r.choices) == 0 {
			delta = append(delta, `"role":"assistant",`...)
		}
		delta = openai.AppendString(append(delta, `"content":`...), text(co, "text"))
		co.Delete("text")
		co.Set("delta", append(delta, '}'))
		if lv, ok := co.Get("logprobs"); ok && lv.Kind() == '{' {
			chat, err := chatLogprobs(lv.Raw, r.top)
			if err != nil {
				return nil, err
			}
			co.Set("logprobs", chat)
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, co.Bytes()...)
	}
	o.Set("choices", append(list, ']'))
	return [][]byte{o.Bytes()}, nil
}

// tokenProb is a token with its log probability, as a chat tells it.
type tokenProb struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// position is one of a reply's tokens, with its alternatives.
type position struct {
	tokenProb
	Top []tokenProb `json:"top_logprobs"`
}

// alternatives are the first so many of a list, or all of it where the number is
// negative, as engines have it.
func alternatives(list []tokenProb, top int) []tokenProb {
	if top < 0 || top > len(list) {
		return list
	}
	return list[:top]
}

// chatLogprobs writes the log probabilities of a text completion as those of a chat,
// with so many alternatives: a text completion has the chosen token beside them.
func chatLogprobs(raw []byte, top int) ([]byte, error) {
	var in struct {
		Tokens []string             `json:"tokens"`
		Probs  []*float64           `json:"token_logprobs"`
		Top    []map[string]float64 `json:"top_logprobs"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the engine's logprobs: %w", err)
	}
	bytesOf := func(s string) []int {
		b := make([]int, len(s))
		for i := range len(s) {
			b[i] = int(s[i])
		}
		return b
	}
	out := struct {
		Content []position `json:"content"`
	}{make([]position, len(in.Tokens))}
	for i, t := range in.Tokens {
		p := position{tokenProb{t, 0, bytesOf(t)}, []tokenProb{}}
		if i < len(in.Probs) && in.Probs[i] != nil {
			p.Logprob = *in.Probs[i]
		}
		if i < len(in.Top) {
			for t, prob := range in.Top[i] {
				p.Top = append(p.Top, tokenProb{t, prob, bytesOf(t)})
			}
			slices.SortFunc(p.Top, func(a, b tokenProb) int {
				return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.Token, b.Token))
			})
			p.Top = alternatives(p.Top, top)
		}
		out.Content[i] = p
	}
	return json.Marshal(out)
}
