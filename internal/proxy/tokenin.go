package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	log        func(format string, args ...any)
	metrics    *stageMetrics

	count   atomic.Int64 // prompts sent
	running atomic.Bool  // a comparison is
	wg      sync.WaitGroup

	// mu guards the fields below, which hold for one engine.
	mu        sync.Mutex
	info      *engine.Info
	different string                 // why no prompt is sent as ids any more
	outOfStep map[prefix.Name]string // conversations that fell back, and why
	switched  map[string]switched    // what is known of switches, by their bytes

	asking sync.Mutex // held while the engine is asked about switches
}

// switched is what the engine makes of a request's switches for the template.
type switched struct {
	with engine.Switches
	why  string // a prompt with them is not known; "" when it is
}

// Bounds of what clients can have the engine asked about.
const (
	maxSwitched = 64
	maxSwitches = 512 // bytes of one request's
)

// maxOutOfStep bounds the conversations that are remembered.
const maxOutOfStep = 4096

// known starts anew when the engine is another one. The caller holds mu.
func (s *tokenIn) known(info *engine.Info) {
	if s.info == info {
		return
	}
	s.info, s.different, s.outOfStep, s.switched = info, "", map[prefix.Name]string{}, map[string]switched{}
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
		if !plainFields[m.Key] && m.Key != "chat_template_kwargs" && m.Key != "reasoning_effort" {
			return "the field " + cutText(m.Key, 60) + ", which may change the prompt"
		}
	}
	return ""
}

// read finds out what the engine's template makes of chat_template_kwargs and
// reasoning_effort, and says why a prompt with them is not known, "" when it is. Of
// enable_thinking alone the probe knows; about others the engine is asked, once.
func (s *tokenIn) read(t *turn) (why string) {
	if t.info.TokenIn == "" {
		return ""
	}
	with, size, why := t.readSwitches()
	switch {
	case why != "" || size == 0:
		return why
	case with.Effort == "" && len(with.Others) == 0:
		if with.Thinking != nil && !slices.Contains(t.info.Thinking, *with.Thinking) {
			return fmt.Sprintf("the engine frames prompts with enable_thinking %v otherwise than family %s", *with.Thinking, t.info.Family.Name)
		}
		return ""
	case size > maxSwitches:
		return fmt.Sprintf("chat_template_kwargs of %d bytes, which may change the prompt", size)
	}
	kwargs, _ := t.object.Get("chat_template_kwargs")
	key := with.Effort + "\x00" + string(kwargs.Raw)
	found, ok := s.recall(t.info, key)
	if !ok {
		if found, ok = s.ask(t, with, key); !ok {
			return "what the engine's template makes of " + named(with) + " is not known yet"
		}
	}
	if found.why == "" {
		t.switches = &found.with
	}
	return found.why
}

func (s *tokenIn) recall(info *engine.Info, key string) (switched, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known(info)
	found, ok := s.switched[key]
	return found, ok
}

// ask has the engine render the probe's conversations with the switches. Requests
// with others wait; an engine that does not answer is asked again by the next.
func (s *tokenIn) ask(t *turn, with engine.Switches, key string) (switched, bool) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if found, ok := s.recall(t.info, key); ok {
		return found, true
	}
	ctx, cancel := context.WithTimeout(t.ctx, checkTimeout)
	defer cancel()
	resolved, different, err := s.prober.Switched(ctx, t.info, with)
	var refused *engine.StatusError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusBadRequest: // and it will refuse the request
		different = err.Error()
	case err != nil:
		return switched{}, false
	}
	if thinking := resolved.Thinking; different == "" && thinking != nil && !slices.Contains(t.info.Thinking, *thinking) {
		different = fmt.Sprintf("enable_thinking %v does", *thinking)
	}
	found := switched{with: resolved}
	if different != "" {
		found.why = named(with) + " may change the prompt: " + different
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info == t.info {
		if len(s.switched) >= maxSwitched {
			clear(s.switched)
		}
		s.switched[key] = found
	}
	return found, true
}

// readSwitches reads a request's switches, and how many bytes they are; why is said
// where they can't be read.
func (t *turn) readSwitches() (with engine.Switches, size int, why string) {
	if v, ok := t.object.Get("reasoning_effort"); ok && v.Kind() != 'n' {
		if with.Effort, ok = v.String(); !ok || with.Effort == "" {
			return with, 0, "reasoning_effort is no word"
		}
		size += len(v.Raw)
	}
	v, ok := t.object.Get("chat_template_kwargs")
	if !ok || v.Kind() == 'n' {
		return with, size, ""
	}
	o, ok := openai.ObjectOf(v)
	if !ok {
		return with, 0, "chat_template_kwargs is no object"
	}
	size += len(v.Raw)
	for _, m := range o.Members() {
		value, _ := o.Get(m.Key)
		if m.Key != "enable_thinking" {
			if with.Others == nil {
				with.Others = map[string]json.RawMessage{}
			}
			with.Others[m.Key] = slices.Clone(value.Raw)
			continue
		}
		thinking, ok := value.Bool()
		if !ok {
			return with, 0, "enable_thinking is not true or false"
		}
		with.Thinking = &thinking
	}
	return with, size, ""
}

// named are the names of switches.
func named(with engine.Switches) string {
	var names []string
	if with.Effort != "" {
		names = append(names, "reasoning_effort")
	}
	for _, key := range slices.Sorted(maps.Keys(with.Others)) {
		names = append(names, cutText(key, 60))
	}
	return strings.Join(names, ", ")
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
	p, err := t.conv.Prompt(t.info.Family, s.vocabulary, t.enableThinking())
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
	info, model, with := t.info, t.model, engine.Switches{Thinking: t.enableThinking()}
	if t.switches != nil {
		with = *t.switches
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.running.Store(false)
		ctx, cancel := context.WithTimeout(s.base, probeTimeout)
		defer cancel()
		from, err := s.prober.Differs(ctx, info, model, msgs, with)
		if err != nil {
			return // the next one will tell
		}
		s.metrics.compared.Inc()
		if from == "" {
			return
		}
		why := fmt.Sprintf("the engine frames a live conversation otherwise than family %s, %s", info.Family.Name, from)
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
		line.Prompt = t.rendered(t.layout)
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
	case engine.Completion:
		t.llamaCompletion(o, ids)
	}
}

// promptOf puts ids in the place of messages and of what the template is told with them.
func promptOf(o *openai.Object, ids []byte) {
	o.Delete("messages")
	o.Delete("chat_template_kwargs")
	o.Delete("reasoning_effort")
	o.Set("prompt", ids)
}

// textCompletion makes the body of a chat completion one of a text completion.
func (t *turn) textCompletion(o *openai.Object, ids []byte) {
	promptOf(o, ids)
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
