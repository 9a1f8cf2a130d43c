// Package simengine is a simulated inference server with the HTTP interface of
// vLLM, for demos, tests and measurements on machines without a GPU. It says
// that it is one: system_fingerprint starts with "sidecar-sim-", models are
// owned by "sidecar-sim".
//
// Exact are: the prompt (chat template with tools, tokens), token counts, the
// prefix cache (blocks, hash chain, capacity, order of eviction), the admission
// of requests, the names of metrics, and the shapes of requests, responses and
// errors. Time is a formula (see [Latency]). What is generated is written by a
// policy, no model: a deterministic function of prompt, constraint and seed
// that calls tools by the words they share with the user's request, fills
// arguments that fit their schemas, and stays inside response_format. It is a
// policy and not a mask: of the texts that a constraint admits it knows how to
// write one.
//
// Different from a real server, on purpose: the blocks of prompt and answer are
// reserved when a request is admitted, so that nothing is preempted; the blocks
// of a prompt can be found from its admission on; the choices of one request
// run one after the other; sampling parameters but seed, max_tokens and stop
// have no effect; logprobs, images, grammar constraints and continued messages
// are refused; /v1/embeddings answers with hashed words, where a server of a
// generating model answers 4xx.
package simengine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// Config is the configuration of an [Engine]. The zero value is usable.
type Config struct {
	// Model is the id of the served model; "" is "sim-qwen3".
	Model string
	// Family is the wire format, see models/wire; "" is "qwen3".
	Family string
	// Tokenizer is the vocabulary; nil is Qwen3's.
	Tokenizer *tokenizer.Tokenizer
	// BlockSize is the tokens of a cache block; 0 is 16.
	BlockSize int
	// KVBlocks is the capacity of the cache in blocks; 0 is 16,384 blocks or the
	// fewest that hold MaxModelLen. It must hold MaxModelLen.
	KVBlocks int
	// MaxModelLen is the most tokens of prompt and answer; 0 is 40,960.
	MaxModelLen int
	// MaxNumSeqs is the most requests that run at a time; 0 is 256. Others wait.
	MaxNumSeqs int
	// Seed steers the policy.
	Seed uint64
	// PromptTokensDetails reports cached tokens in usage.
	PromptTokensDetails bool
	// Reasoning lets unconstrained answers begin with reasoning between the
	// family's think tags, unless the prompt closes them. As on a server without
	// a reasoning parser it is part of the content.
	Reasoning bool
	// Random makes constrained answers of random tokens that the masks of the
	// constraint allow, instead of the policy's. Needs a vocabulary with all bytes.
	Random bool
	// Latency is how long things take; the zero value is no time at all.
	Latency Latency
	// Clock is the time of the latency; nil is WallClock.
	Clock Clock
}

// Latency is the formula of time: the first token comes after PrefillOverhead
// plus PrefillPerToken for each prompt token not in the cache, every later one
// after TimePerOutputToken. Waiting for admission comes on top.
type Latency struct {
	PrefillOverhead    time.Duration
	PrefillPerToken    time.Duration
	TimePerOutputToken time.Duration
}

// Engine is a simulated inference server. It has no goroutines of its own.
type Engine struct {
	cfg       Config
	family    *wire.Family
	plain     *wire.Family // the family without reasoning, as a server without a reasoning parser reads it
	tok       *tokenizer.Tokenizer
	eos       int32
	special   map[string]int32 // tokens of calls by their spelling
	decoder   *decoder         // nil: the vocabulary is too small for masks
	sched     *scheduler
	metrics   *metrics
	mux       *http.ServeMux
	serial    atomic.Uint64
	signature string
}

// New returns an engine; it serves until its last request has ended.
func New(cfg Config) (*Engine, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if cfg.Model == "" {
		cfg.Model = "sim-qwen3"
	}
	if cfg.Family == "" {
		cfg.Family = "qwen3"
	}
	if cfg.Tokenizer == nil {
		cfg.Tokenizer = tokenizer.Qwen3()
	}
	if cfg.Clock == nil {
		cfg.Clock = WallClock{}
	}
	def(&cfg.BlockSize, 16)
	def(&cfg.MaxModelLen, 40960)
	def(&cfg.MaxNumSeqs, 256)
	for _, c := range []struct {
		name string
		v    int
	}{{"block size", cfg.BlockSize}, {"max model length", cfg.MaxModelLen}, {"max number of sequences", cfg.MaxNumSeqs}, {"KV blocks", cfg.KVBlocks}} {
		if c.v < 0 {
			return nil, fmt.Errorf("%s is %d; it must be positive", c.name, c.v)
		}
	}
	least := (cfg.MaxModelLen + cfg.BlockSize - 1) / cfg.BlockSize
	def(&cfg.KVBlocks, max(16384, least))
	if cfg.KVBlocks < least {
		return nil, fmt.Errorf("%d KV blocks of %d tokens don't hold the max model length of %d tokens; it takes %d blocks",
			cfg.KVBlocks, cfg.BlockSize, cfg.MaxModelLen, least)
	}
	family, err := wire.ByName(cfg.Family)
	if err != nil {
		return nil, err
	}
	if family.TurnStart != "<|im_start|>" && family.Roles == nil {
		return nil, fmt.Errorf("the simulated engine reads turns in ChatML, as hermes, chatml and qwen3-coder frame them, and those of GLM, not those of family %s", family.Name)
	}
	var eos int32
	found := false
	for _, s := range family.StopTokens {
		if eos, found = cfg.Tokenizer.ID(s); found {
			break
		}
	}
	if !found {
		return nil, fmt.Errorf("the vocabulary %s has none of the stop tokens %q of family %s", cfg.Tokenizer.Name(), family.StopTokens, family.Name)
	}
	plain := *family
	plain.ThinkOpen, plain.ThinkClose = "", ""
	h := fnv.New32a()
	fmt.Fprint(h, cfg.Family, cfg.Tokenizer.Name(), cfg.Seed)
	e := &Engine{
		cfg: cfg, family: family, plain: &plain, tok: cfg.Tokenizer, eos: eos,
		sched:     newScheduler(newBlockCache(cfg.BlockSize, cfg.KVBlocks), cfg.MaxNumSeqs),
		signature: fmt.Sprintf("sidecar-sim-%s-%08x", family.Name, h.Sum32()),
	}
	e.special = map[string]int32{}
	for _, s := range family.CallTags() {
		if id, ok := e.tok.ID(s); ok && s != "" {
			e.special[s] = id
		}
	}
	if v, err := vocabularyOf(e.tok, eos); err == nil {
		e.decoder = &decoder{v, token.NewCache(maxGrammarBytes)}
	} else if cfg.Random {
		return nil, err
	}
	e.metrics = newMetrics(e)
	e.mux = e.routes()
	return e, nil
}

// ServeHTTP serves the routes of the engine, with the faults that the request asks for.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.serveFault(w, r) }

// sequence is one choice that is generated.
type sequence struct {
	prompt []int32
	salt   string
	output []int32 // with the stop token, if it ends by one

	lease  *lease
	cached int // prompt tokens found in the cache
}

// run takes a sequence through admission, prefill and decoding, and calls emit
// with the index of each output token when it is there.
func (e *Engine) run(ctx context.Context, seq *sequence, reason string, emit func(i int) error) error {
	arrived := e.cfg.Clock.Now()
	if err := e.sched.admit(ctx, seq); err != nil {
		return err
	}
	defer e.sched.release(seq)
	e.metrics.admitted(seq)
	if stalled(ctx) {
		<-ctx.Done()
		return ctx.Err()
	}
	l := e.cfg.Latency
	if err := e.cfg.Clock.Sleep(ctx, l.PrefillOverhead+time.Duration(len(seq.prompt)-seq.cached)*l.PrefillPerToken); err != nil {
		return err
	}
	e.metrics.firstToken(e.cfg.Clock.Now().Sub(arrived))
	tokens := append([]int32(nil), seq.prompt...)
	for i := range seq.output {
		if i > 0 {
			// the token before this one went through the model
			tokens = append(tokens, seq.output[i-1])
			if len(tokens)%e.cfg.BlockSize == 0 {
				e.sched.advance(seq, tokens)
			}
			if err := e.cfg.Clock.Sleep(ctx, l.TimePerOutputToken); err != nil {
				return err
			}
			e.metrics.nextToken(l.TimePerOutputToken)
		}
		if err := emit(i); err != nil {
			return err
		}
	}
	e.metrics.finished(seq, reason, e.cfg.Clock.Now().Sub(arrived))
	return nil
}

var errGone = errors.New("the client has gone")

// encodeOutput gives the tokens of a generated text: those of calls and of
// reasoning as the model's own tokens, everything else as plain text, so that
// words of the user never become control tokens.
func (e *Engine) encodeOutput(text string) []int32 {
	var ids []int32
	for text != "" {
		at, mark, id := len(text), "", int32(0)
		for _, m := range []string{e.family.Calls.Open, e.family.Calls.Tag, e.family.ThinkOpen, e.family.ThinkClose} {
			if m == "" {
				continue
			}
			if i := indexBefore(text, m, at); i >= 0 {
				if found, ok := e.tok.ID(m); ok {
					at, mark, id = i, m, found
				}
			}
		}
		ids = e.tok.EncodeOrdinary(ids, text[:at])
		if mark == "" {
			break
		}
		ids = append(ids, id)
		text = text[at+len(mark):]
	}
	return ids
}
