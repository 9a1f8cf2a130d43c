package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// Modes of a staged request: what the engine is given.
const (
	ModeAuto    = "auto"     // token-in where the probe passes, else owned
	ModeTokenIn = "token-in" // token ids
	ModeOwned   = "owned"    // messages whose text is ours
)

// tokenIn is what token-in mode knows beside the ledger.
type tokenIn struct {
	vocabulary *tokenizer.Tokenizer
	prober     *engine.Prober // for the background comparison
	every      int            // one prompt of so many is compared
	base       context.Context
	inherited  bool // the ledger had entries when this process began
	log        func(format string, args ...any)
	metrics    *stageMetrics

	count   atomic.Int64 // prompts sent
	running atomic.Bool  // a comparison is
	wg      sync.WaitGroup

	// mu guards the fields below, which hold for one engine.
	mu        sync.Mutex
	first     *engine.Info // the engine that an inherited ledger is taken to speak of
	info      *engine.Info
	seen      *prefix.Seen
	different string                 // why no prompt is sent as ids any more
	outOfStep map[prefix.Name]string // conversations that fell back, and why
}

// Bounds of what token-in mode remembers. The engine's cache is modelled up to its
// own capacity, or to maxSeen tokens of 4 bytes.
const (
	maxSeen      = 8 << 20
	maxOutOfStep = 4096
)

// known starts anew when the engine is another one. The caller holds mu.
func (s *tokenIn) known(info *engine.Info) {
	if s.info == info {
		return
	}
	size := maxSeen
	if info.CacheSize > 0 {
		size = min(size, info.CacheSize)
	}
	if s.info == nil {
		s.first = info
	}
	s.info, s.seen, s.different, s.outOfStep = info, prefix.NewSeen(size), "", map[prefix.Name]string{}
	switch {
	case info.TokenIn != "":
		s.log("the engine takes token ids: %s", info.TokenIn)
	default:
		s.log("prompts go to the engine as text: %s", info.TokenInReason)
	}
}

// lower says why a request can't be sent as ids, "" when it can.
func (s *tokenIn) lower(t *turn) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known(t.info)
	switch {
	case t.info.TokenIn == "":
		return t.info.TokenInReason
	case s.different != "":
		return s.different
	}
	if why, ok := s.outOfStep[t.conv.Name()]; ok {
		return why
	}
	for i := range t.messages {
		if t.messages[i].Opaque != nil {
			return "content that is not text"
		}
	}
	for _, m := range t.object.Members() {
		if !plainFields[m.Key] {
			return "the field " + cutText(m.Key, 60) + ", which may change the prompt"
		}
	}
	return ""
}

// plainFields are request fields that don't change how messages become a prompt:
// the ones that the stages read themselves, and those of sampling and accounting.
var plainFields = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range []string{
		"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "response_format",
		"n", "seed", "temperature", "top_p", "top_k", "min_p", "typical_p", "max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids",
		"ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty", "length_penalty", "logit_bias", "logprobs", "top_logprobs",
		"allowed_token_ids", "bad_words", "include_stop_str_in_output", "no_stop_trim", "skip_special_tokens", "spaces_between_special_tokens", "return_token_ids",
		"include_reasoning", "separate_reasoning", "stream_reasoning",
		"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "cache_salt", "priority", "request_id", "rid",
	} {
		set[name] = true
	}
	return set
}()

// prompt lays the turn out as ids.
func (s *tokenIn) prompt(t *turn) error {
	p, err := t.conv.Prompt(t.info.Family, s.vocabulary)
	if err != nil {
		return err
	}
	for _, id := range p.IDs { // one id beyond the vocabulary kills an SGLang server
		if _, _, ok := s.vocabulary.Token(id); !ok {
			return fmt.Errorf("id %d is not in the vocabulary", id)
		}
	}
	t.prompt = p
	return nil
}

// expect works out how much of the prompt the engine's cache should hold.
func (s *tokenIn) expect(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known(t.info)
	rec, ids := t.record, t.prompt.IDs
	rec.PromptTokens = len(ids)
	salt := salted(t.object)
	rec.PrefixTokens = max(s.seen.Match(slices.Concat(salt, ids))-len(salt), 0)
	rec.Kept = max(t.prompt.Dropped, 0)
	if s.inherited && s.info == s.first && len(salt) == 0 && !s.seen.Full() {
		// What the ledger replays and the model does not hold was sent before this
		// process began. The last generated token of it has no KV.
		before := t.prompt.Replayed - 1
		if t.prompt.Dropped >= 0 {
			before = min(before, t.prompt.Dropped)
		}
		rec.PrefixTokens = max(rec.PrefixTokens, before)
	}
	if t.info.BlockSize > 0 {
		// An engine computes at least the last prompt token anew.
		rec.ExpectedCached = min(rec.PrefixTokens, len(ids)-1) / t.info.BlockSize * t.info.BlockSize
	}
}

// sent notes that the engine computes, or has computed, the KV of ids.
func (s *tokenIn) sent(t *turn, ids ...[]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info == t.info {
		s.seen.Add(slices.Concat(append([][]int32{salted(t.object)}, ids...)...))
	}
}

// salted are numbers in front of the ids of a request with a cache_salt, of which
// the engine finds nothing under another salt. No token has a number below 0.
func salted(o *openai.Object) []int32 {
	salt := text(o, "cache_salt")
	if salt == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(salt))
	ids := make([]int32, 4)
	for i := range ids {
		ids[i] = -1 - int32(binary.LittleEndian.Uint32(sum[4*i:])>>1)
	}
	return ids
}

// generated notes the KV of generated ids; that of the last one is not computed.
func (s *tokenIn) generated(t *turn, output []int32) {
	if len(output) > 1 {
		s.sent(t, t.prompt.IDs, output[:len(output)-1])
	}
}

// alarm is raised when the engine did not use the ids that it was sent. The
// conversation goes on as text.
func (s *tokenIn) alarm(t *turn, counted int) {
	why := fmt.Sprintf("the engine counted %d prompt tokens of %d ids", counted, len(t.prompt.IDs))
	s.metrics.alarms.WithLabelValues("out_of_step").Inc()
	s.log("conversation %s falls back to text: %s", t.record.Conversation, why)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info == t.info {
		if len(s.outOfStep) >= maxOutOfStep {
			clear(s.outOfStep)
		}
		s.outOfStep[t.conv.Name()] = why
	}
}

// compare has the engine render one prompt of so many from its text, in the
// background, and raises an alarm when the framing is not ours: then the engine's
// template has changed since the probe, or writes something that the probe did not
// meet, and no more ids are sent.
func (s *tokenIn) compare(t *turn) {
	if s.every <= 0 || (s.count.Add(1)-1)%int64(s.every) != 0 || !s.running.CompareAndSwap(false, true) {
		return
	}
	msgs := make([]wire.Message, len(t.layout))
	for i, m := range t.layout {
		if m.Client >= 0 && t.messages[m.Client].Reasoning != "" { // in a field of its own
			s.running.Store(false)
			return
		}
		msgs[i] = wire.Message{Role: m.Role, Content: m.Text}
	}
	info, model := t.info, t.model
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.running.Store(false)
		ctx, cancel := context.WithTimeout(s.base, probeTimeout)
		defer cancel()
		theirs, err := s.prober.Tokens(ctx, model, msgs)
		if err != nil {
			return // the next one will tell
		}
		ours := s.vocabulary.Encode(nil, string(info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true})))
		s.metrics.compared.Inc()
		if slices.Equal(ours, theirs) {
			return
		}
		at := 0
		for at < len(ours) && at < len(theirs) && ours[at] == theirs[at] {
			at++
		}
		why := fmt.Sprintf("the engine frames a live conversation otherwise than family %s, from token %d", info.Family.Name, at)
		s.metrics.alarms.WithLabelValues("framing").Inc()
		s.log("prompts go to the engine as text from now on: %s", why)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.info == info {
			s.different = why
		}
	}()
}

// logPrompt writes the prompt as text.
func (s *stages) logPrompt(t *turn) {
	if s.cfg.PromptLog == nil {
		return
	}
	line := struct {
		Time         time.Time `json:"time"`
		ID           string    `json:"id"`
		Conversation string    `json:"conversation"`
		Mode         string    `json:"mode"`
		Tokens       int       `json:"prompt_tokens"`
		Prompt       string    `json:"prompt"`
	}{time.Now().UTC(), t.record.ID, t.record.Conversation, t.record.Mode, t.record.PromptTokens, ""}
	if t.prompt != nil {
		text, err := s.cfg.Counter.Decode(nil, t.prompt.IDs)
		if err != nil {
			panic(err) // the ids were checked
		}
		line.Prompt = string(text)
	} else {
		msgs := make([]wire.Message, len(t.layout))
		for i, m := range t.layout {
			msgs[i] = wire.Message{Role: m.Role, Content: m.Text}
		}
		line.Prompt = string(t.info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true, EnableThinking: t.enableThinking()}))
	}
	raw, err := json.Marshal(line)
	if err != nil {
		panic(err) // strings and numbers
	}
	s.promptLogMu.Lock()
	defer s.promptLogMu.Unlock()
	s.cfg.PromptLog.Write(append(raw, '\n'))
}

// setIDs puts the prompt's ids into the body.
func (t *turn) setIDs(o *openai.Object) {
	ids := appendIDs(nil, t.prompt.IDs)
	switch t.info.TokenIn {
	case engine.ChatKV:
		o.Set("kv_transfer_params", append(append([]byte(`{"prompt_token_ids":`), ids...), '}'))
		o.Set("return_token_ids", []byte("true"))
	case engine.ChatInput:
		o.Set("input_ids", ids)
		o.Set("return_output_ids_in_sglext", []byte("true"))
		o.Delete("return_token_ids") // refused in a stream
	case engine.Completions:
		t.textCompletion(o, ids)
	}
}

// textCompletion makes the body of a chat completion one of a text completion.
func (t *turn) textCompletion(o *openai.Object, ids []byte) {
	o.Delete("messages")
	o.Set("prompt", ids)
	o.Set("return_token_ids", []byte("true"))
	if v, ok := o.Get("max_completion_tokens"); ok {
		o.Set("max_tokens", slices.Clone(v.Raw))
		o.Delete("max_completion_tokens")
	} else if v, ok := o.Get("max_tokens"); !ok || v.Kind() == 'n' {
		// A text completion without it ends after 16 tokens.
		if context := t.context(); context > len(t.prompt.IDs) {
			o.Set("max_tokens", strconv.AppendInt(nil, int64(context-len(t.prompt.IDs)), 10))
		}
	}
	if v, ok := o.Get("logprobs"); ok {
		wanted, isBool := v.Bool()
		if top := integer(o, "top_logprobs", 0); isBool && wanted {
			o.Set("logprobs", strconv.AppendInt(nil, int64(top), 10))
		} else if isBool || v.Kind() == 'n' {
			o.Delete("logprobs")
		}
	}
	o.Delete("top_logprobs")
}

// context is the model's window in tokens, 0 when not told.
func (t *turn) context() int {
	for _, m := range t.info.Models {
		if m.ID == t.model || t.model == "" {
			return m.Context
		}
	}
	return 0
}

func appendIDs(b []byte, ids []int32) []byte {
	b = slices.Grow(b, 7*len(ids)+2)
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}
