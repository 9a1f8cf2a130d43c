package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// Kind is the program that serves the model.
type Kind string

const (
	VLLM     Kind = "vllm"
	SGLang   Kind = "sglang"
	LlamaCpp Kind = "llamacpp"
	Sim      Kind = "sim"     // the simulated engine of this project
	Unknown  Kind = "unknown" // speaks the OpenAI API, nothing more is known
)

// Info is what the probe found out.
type Info struct {
	Kind    Kind
	Version string
	Models  []Model
	// BlockSize is the granularity of the prefix cache in tokens; 0 when the
	// engine does not tell.
	BlockSize int
	// Family is the wire format that was proved equal to the engine's own chat
	// template on the probe conversation; nil with the reason in FamilyReason.
	Family       *wire.Family
	FamilyReason string
	// TokenizerExact says that the given tokenizer gave the engine's ids for the
	// probe conversation. Otherwise its counts are estimates.
	TokenizerExact bool
	// StructuralTag says that the engine takes xgrammar's structural tag with the
	// whitespace bound.
	StructuralTag bool
	// GBNF says that the engine holds a reply to a grammar of llama.cpp.
	GBNF bool
	// LegacyTag says that it takes the older form, of structures and triggers,
	// though not the newer: a guidance backend.
	LegacyTag bool
	// TagReason says why it takes no StructuralTag or GBNF.
	TagReason string
	// TokenIn is how prompts are sent as ids; "" when they can't be, for
	// TokenInReason.
	TokenIn       Transport
	TokenInReason string
	// Thinking are the values of the template's enable_thinking under which its
	// framing is known too.
	Thinking []bool
	// CachedTokens says that the engine reports how much of a prompt it found
	// cached.
	CachedTokens bool
	// CacheOff says that the engine has no prefix cache, or has it turned off.
	CacheOff bool
	// Metrics says that the engine has /metrics.
	Metrics bool
	// CacheSize is the capacity of the prefix cache in tokens; 0 when not told.
	CacheSize int
	// Slots is how many conversations a llama-server serves at a time, each with a
	// cache of its own; 0 for other engines.
	Slots int
	// Reasoning says that the engine splits reasoning off the text.
	Reasoning bool
	// Started is when the engine's process began, in seconds since 1970; 0 when it
	// does not tell.
	Started float64
}

// XGrammar is the version of xgrammar that this engine ships with, "" when it is
// not known. The simulated engine follows vLLM 0.32.
func (i *Info) XGrammar() string {
	switch {
	case i.Kind == Sim, i.Kind == VLLM && strings.HasPrefix(i.Version, "0.32."):
		return "0.2.8"
	case i.Kind == SGLang && strings.HasPrefix(i.Version, "0.5.23"):
		return "0.2.7"
	}
	return ""
}

// Model is one entry of /v1/models.
type Model struct {
	ID      string
	Context int // tokens; 0 when not told
}

// Prober asks one engine.
type Prober struct {
	Client *http.Client
	Base   string // URL without the /v1
	Key    string // bearer token, or ""
	// Family forces a family by name; "" or "auto" probes for it.
	Family string
	// Text leaves out how ids are taken, for those who send text.
	Text bool
	// Tokenizer is compared with the engine's /tokenize.
	Tokenizer *tokenizer.Tokenizer
}

// maxAnswer bounds one answer of the engine in bytes; /metrics of a busy vLLM is
// about 100 kB, SGLang's /server_info 30 kB.
const maxAnswer = 8 << 20

// Probe asks the engine. It fails when no model can be listed, and when an answer
// says nothing lasting about the engine: it was busy, starting or gone. Whatever
// else is missing is left at zero with a reason. One request generates a token:
// it sends the first structural tag, which also pins vLLM's backend "auto" to
// xgrammar before any traffic could pin it to another.
func (p *Prober) Probe(ctx context.Context) (*Info, error) {
	info, err := p.identify(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.family(ctx, info); err != nil {
		return nil, err
	}
	if err := p.tag(ctx, info); err != nil {
		return nil, err
	}
	if p.Text {
		info.TokenInReason = "not asked"
	} else if err := p.tokenIn(ctx, info); err != nil {
		return nil, err
	}
	return info, nil
}

// Same asks whether the engine is still the one of an earlier probe: its kind,
// version, models, cache and, where it tells, the start of its process. That takes
// three or four small requests and generates nothing. An error says nothing about
// the engine.
func (p *Prober) Same(ctx context.Context, info *Info) (bool, error) {
	now, err := p.identify(ctx)
	if err != nil {
		return false, err
	}
	if info.Metrics && !now.Metrics {
		return false, errNoMetrics
	}
	return now.Kind == info.Kind && now.Version == info.Version && slices.Equal(now.Models, info.Models) && now.Started == info.Started &&
		now.BlockSize == info.BlockSize && now.CacheSize == info.CacheSize && now.CacheOff == info.CacheOff && now.Slots == info.Slots, nil
}

var errNoMetrics = errors.New("/metrics, which was there, does not answer")

// identify finds out which engine it is, without having it render or generate.
func (p *Prober) identify(ctx context.Context) (*Info, error) {
	info := &Info{Kind: Unknown}
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := p.get(ctx, "/v1/models", &models); err != nil {
		var status *StatusError
		if errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden) {
			return nil, fmt.Errorf("the engine wants a key; give it with --engine-api-key (%w)", err)
		}
		return nil, err
	}
	if len(models.Data) == 0 {
		return nil, fmt.Errorf("%s/v1/models lists no model", p.Base)
	}
	for _, m := range models.Data {
		info.Models = append(info.Models, Model{m.ID, m.Context})
	}
	return info, p.kind(ctx, info, models.Data[0].OwnedBy)
}

// kind tells the engines apart by the routes that only they have.
func (p *Prober) kind(ctx context.Context, info *Info, ownedBy string) error {
	var v struct {
		Version   string `json:"version"`
		PageSize  int    `json:"page_size"`
		MaxTokens int    `json:"max_total_num_tokens"`
		NoCache   bool   `json:"disable_radix_cache"`
	}
	switch err := p.get(ctx, "/version", &v); {
	case err == nil && v.Version != "":
		info.Kind, info.Version = VLLM, v.Version
		if strings.HasPrefix(ownedBy, "sidecar-sim") {
			info.Kind = Sim
		}
		p.vllmCache(ctx, info)
		return ctx.Err()
	case passing(err):
		return err
	}
	for _, route := range []string{"/server_info", "/get_server_info"} {
		switch err := p.get(ctx, route, &v); {
		case err == nil && v.Version != "":
			info.Kind, info.Version, info.BlockSize, info.CacheSize = SGLang, v.Version, v.PageSize, v.MaxTokens
			info.CacheOff = v.NoCache
			_, err := p.do(ctx, http.MethodGet, "/metrics", nil)
			info.Metrics = err == nil
			return ctx.Err()
		case passing(err):
			return err
		}
	}
	if err := p.llamaProps(ctx, info); passing(err) {
		return err
	}
	return ctx.Err()
}

// passing says that a failure may be over at the next attempt: no answer, or one
// of an engine that is busy or starting. Another answer is the engine's last word.
func passing(err error) bool {
	if err == nil {
		return false
	}
	var status *StatusError
	if errors.As(err, &status) {
		switch status.Status {
		case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var other *otherPromptError
	return !errors.As(err, &other) && !errors.As(err, &syntax) && !errors.As(err, &kind) && !errors.Is(err, errNoIDs)
}

// vllmCache reads what vllm:cache_config_info tells, and when the process began.
func (p *Prober) vllmCache(ctx context.Context, info *Info) {
	raw, err := p.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	if err != nil {
		return
	}
	// Several processes that serve one address tell of their counters alone.
	for _, name := range []string{"process_start_time_seconds", "vllm:prompt_tokens_created"} {
		for _, m := range families[name].GetMetric() {
			info.Started = max(info.Started, m.GetGauge().GetValue())
		}
		if info.Started > 0 {
			break
		}
	}
	for _, m := range families["vllm:cache_config_info"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		info.Metrics = true
		info.BlockSize, _ = strconv.Atoi(labels["block_size"]) // "None" means not told
		info.CacheSize, _ = strconv.Atoi(labels["kv_cache_size_tokens"])
		info.CacheOff = labels["enable_prefix_caching"] == "False"
	}
}

// probeConversation is a conversation as the sidecar lays it out: tools text in
// the system turn, a call and its result as text.
var probeConversation = []wire.Message{
	{Role: "system", Content: "You are terse.\n\n# Tools\n\nnone yet"},
	{Role: "user", Content: "Weather in Zürich & Oslo? <b>1 < 2</b>"},
	{Role: "assistant", Content: "Looking.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>"},
	{Role: "user", Content: "<tool_response>\n{\"c\": -3.5}\n</tool_response>"},
	{Role: "assistant", Content: "-3.5 °C"},
	{Role: "user", Content: "And 2024?\n"},
}

// family renders the probe conversation by the engine and compares it with each
// family's own rendering.
func (p *Prober) family(ctx context.Context, info *Info) error {
	forced := p.Family != "" && p.Family != "auto"
	if forced {
		f, err := wire.ByName(p.Family)
		if err != nil {
			return err
		}
		if f.TemplateOnly {
			info.FamilyReason = "the tools of family " + f.Name + " can be shown by the engine's own template only"
			return nil
		}
		info.Family = f
	}
	ids, text, err := p.render(ctx, info, false)
	if err != nil {
		if passing(err) {
			return err
		}
		if !forced {
			info.FamilyReason = fmt.Sprintf("the engine does not render conversations for us (%v); name the family with --family", err)
		}
		return nil
	}
	if p.Tokenizer != nil {
		info.TokenizerExact = slices.Equal(ids, p.Tokenizer.Encode(nil, text))
	}
	if forced {
		if got := string(info.Family.Render(nil, probeConversation, nil, wire.Options{AddGenerationPrompt: true})); got != text {
			info.FamilyReason = "the engine renders the probe conversation otherwise than family " + p.Family
		}
		return nil
	}
	withTools, shown, err := p.render(ctx, info, true)
	if err != nil {
		if passing(err) {
			return err
		}
		withTools = ids
	}
	name := "chatml" // the template ignores tools
	if len(withTools) != len(ids) {
		name = "hermes"
	}
	likely, err := wire.ByName(name)
	if err != nil {
		return err
	}
	candidates := []*wire.Family{likely}
	named := wire.ForModel(info.Models[0].ID)
	if named != nil && named != likely {
		candidates = []*wire.Family{named, likely}
	}
	for _, name := range wire.Names() {
		f, err := wire.ByName(name)
		if err != nil {
			return err
		}
		candidates = append(candidates, f)
	}
	// Families can differ in nothing but how tools are shown.
	same := func(f *wire.Family, tools []json.RawMessage, text string) bool {
		return string(f.Render(nil, probeConversation, tools, wire.Options{AddGenerationPrompt: true})) == text
	}
	for _, f := range candidates {
		if f.TemplateOnly || !same(f, nil, text) {
			continue
		}
		if info.Family == nil {
			info.Family = f
		}
		if same(f, []json.RawMessage{probeTool}, shown) {
			info.Family = f
			break
		}
	}
	if info.Family != nil {
		return nil
	}
	if named != nil && named.TemplateOnly {
		info.FamilyReason = "the tools of family " + named.Name + " can be shown by the engine's own template only"
		return nil
	}
	got := string(likely.Render(nil, probeConversation, nil, wire.Options{AddGenerationPrompt: true}))
	info.FamilyReason = fmt.Sprintf("the engine's chat template is of no family known here (nearest %s, first difference at byte %d)", name, commonPrefix(got, text))
	return nil
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

var probeTool = json.RawMessage(`{"type":"function","function":{"name":"probe","description":"probe","parameters":{"type":"object","properties":{}}}}`)

var errNoIDs = errors.New("/tokenize gives no ids")

// render gives the engine's ids and text of the probe conversation.
func (p *Prober) render(ctx context.Context, info *Info, tools bool) ([]int32, string, error) {
	var shown json.RawMessage
	if tools {
		shown = slices.Concat([]byte("["), probeTool, []byte("]"))
	}
	ids, err := p.tokens(ctx, info.Kind, info.Models[0].ID, probeConversation, shown, Switches{})
	if err != nil {
		return nil, "", err
	}
	text, err := p.detokenize(ctx, info.Models[0].ID, ids)
	return ids, text, err
}

// detokenize is the text of ids, control tokens included.
func (p *Prober) detokenize(ctx context.Context, modelID string, ids []int32) (string, error) {
	var text struct {
		Prompt  string `json:"prompt"`
		Text    string `json:"text"`    // SGLang
		Content string `json:"content"` // llama.cpp
	}
	err := p.post(ctx, "/detokenize", map[string]any{"model": modelID, "tokens": ids, "skip_special_tokens": false}, &text)
	return text.Prompt + text.Text + text.Content, err
}

// tokens are the engine's ids of a conversation.
func (p *Prober) tokens(ctx context.Context, kind Kind, modelID string, conversation []wire.Message, tools json.RawMessage, with Switches) ([]int32, error) {
	body := conversationBody(modelID, conversation, tools, with.arguments(kind))
	if kind == LlamaCpp {
		return p.llamaTokens(ctx, modelID, body)
	}
	var tok struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := p.post(ctx, "/tokenize", body, &tok); err != nil {
		return nil, err
	}
	if len(tok.Tokens) == 0 {
		return nil, errNoIDs
	}
	return tok.Tokens, nil
}

// conversationBody is the body of a request that renders a conversation, with the
// variables of its template.
func conversationBody(modelID string, conversation []wire.Message, tools json.RawMessage, template map[string]any) map[string]any {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		CallID  string `json:"tool_call_id,omitempty"`
	}
	msgs := make([]message, len(conversation))
	for i, m := range conversation {
		msgs[i] = message{Role: m.Role, Content: m.Content}
		if m.Role == "tool" {
			msgs[i].CallID = "call" // the text of calls holds no ids
		}
	}
	body := map[string]any{"model": modelID, "messages": msgs, "add_generation_prompt": true}
	if tools != nil {
		body["tools"] = tools
	}
	if len(template) > 0 {
		body["chat_template_kwargs"] = template
	}
	return body
}

// tag sends one small constraint.
func (p *Prober) tag(ctx context.Context, info *Info) error {
	switch info.Kind {
	case LlamaCpp:
		return p.gbnf(ctx, info)
	case Unknown:
		info.TagReason = "this engine has no structural tags"
		return nil
	}
	ask := func(format string) (*usage, error) {
		var reply struct {
			Usage *usage `json:"usage"`
		}
		err := p.post(ctx, "/v1/chat/completions", map[string]any{
			"model": info.Models[0].ID, "messages": []map[string]string{{"role": "user", "content": "Say ok."}},
			"max_tokens": 1, "temperature": 0, "response_format": json.RawMessage(format),
		}, &reply)
		return reply.Usage, err
	}
	usage, err := ask(`{"type":"structural_tag","format":{"type":"tag","begin":"ok ","content":{"type":"json_schema","json_schema":{"type":"boolean"},"max_whitespace_cnt":1},"end":""}}`)
	switch {
	case passing(err):
		return err
	case err == nil:
		info.StructuralTag, info.CachedTokens = true, usage.tellsCached()
		return nil
	}
	info.TagReason = err.Error()
	usage, err = ask(`{"type":"structural_tag","structures":[{"begin":"ok ","schema":{"type":"boolean"},"end":"!"}],"triggers":["ok"]}`)
	switch {
	case passing(err):
		return err
	case err == nil:
		info.LegacyTag, info.CachedTokens = true, usage.tellsCached()
	}
	return nil
}

// StatusError is an answer other than 200.
type StatusError struct {
	Route  string
	Status int
	Body   string // its first kilobyte
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: HTTP %d: %s", e.Route, e.Status, e.Body)
}

func (p *Prober) get(ctx context.Context, route string, into any) error {
	raw, err := p.do(ctx, http.MethodGet, route, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func (p *Prober) post(ctx context.Context, route string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if raw, err = p.do(ctx, http.MethodPost, route, raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func (p *Prober) do(ctx context.Context, method, route string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(p.Base, "/")+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.Key != "" {
		req.Header.Set("Authorization", "Bearer "+p.Key)
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", route, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &StatusError{route, resp.StatusCode, string(raw[:min(len(raw), 1024)])}
	}
	return raw, nil
}
