package main

import (
	"fmt"
	"strings"

	"github.com/toolsidecar/sidecar/models/cost"
)

// demoFormula is that of models/cost, for people.
const demoFormula = "prefill = max( (2·P·T + A·(T·c + T·(T+1)/2)) / (peak·MFU), weights / (bandwidth·BWU) ); " +
	"token = (weights + KV) / (bandwidth·BWU); T new and c cached tokens, P active parameters, A attention FLOPs per pair of tokens"

// demoEstimate is what the prompts of the demo would cost on one GPU, by the cost
// model and nothing else.
type demoEstimate struct {
	GPU     string    `json:"gpu"`
	Model   string    `json:"model"`
	Formula string    `json:"formula"`
	MFU     float64   `json:"mfu"` // assumed share of the peak rate
	BWU     float64   `json:"bwu"` // assumed share of the memory bandwidth
	Sidecar *demoCost `json:"sidecar,omitempty"`
	All     *demoCost `json:"all_tools,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
	Error   string    `json:"error,omitempty"` // why there is no estimate
}

// demoCost is one side of the comparison. Cold is the first turn with nothing
// cached. Warm is the mean of the later turns of a conversation with everything
// cached that can be: what the sidecar's prompts had cached, and for all tools
// the whole of the turn before.
type demoCost struct {
	ColdTokens int     `json:"cold_tokens"`
	ColdMs     float64 `json:"cold_prefill_ms"`
	WarmTokens float64 `json:"warm_new_tokens,omitempty"` // mean
	WarmMs     float64 `json:"warm_prefill_ms,omitempty"` // mean
	LastTokens int     `json:"last_prompt_tokens"`        // the longest prompt
	TokenMs    float64 `json:"token_ms"`                  // each generated token behind it
	KVBytes    float64 `json:"kv_bytes"`                  // of it
}

// prompt is one prompt of a conversation: its tokens and how many are cached.
type prompt struct {
	first         bool // of its conversation
	total, cached int
}

// estimate prices the turns that were counted on both sides.
func estimate(calc *cost.Calculator, turns []demoTurn) *demoEstimate {
	cfg := calc.Config()
	e := &demoEstimate{GPU: cfg.GPU.ID, Model: cfg.Model.ID, Formula: demoFormula, MFU: cfg.MFU, BWU: cfg.BWU}
	var ours, all []prompt
	before, seen := 0, 0
	for _, t := range turns {
		if t.PromptTokens == 0 || t.AllTools == nil {
			continue
		}
		first := t.Task != seen
		seen = t.Task
		o, a := prompt{first, t.PromptTokens, 0}, prompt{first, *t.AllTools, 0}
		if !first {
			switch {
			case t.CachedTokens != nil:
				o.cached = *t.CachedTokens
			case t.ExpectedCached != nil:
				o.cached = *t.ExpectedCached
				e.expectedOnly()
			}
			a.cached = min(before, a.total-1)
		}
		before = *t.AllTools + t.CompletionTokens
		ours, all = append(ours, o), append(all, a)
	}
	if len(ours) == 0 {
		e.Error = "no turn was counted with and without all tools"
		return e
	}
	var err error
	if e.Sidecar, err = price(calc, ours); err == nil {
		e.All, err = price(calc, all)
	}
	if err != nil {
		e.Sidecar, e.All, e.Error = nil, nil, err.Error()
		return e
	}
	if n := cfg.Model.ContextLen; e.All.ColdTokens > n {
		e.Notes = append(e.Notes, fmt.Sprintf("%s has a context of %s tokens: the prompt with all tools would be refused", cfg.Model.ID, thousands(n)))
	}
	if w, err := calc.WeightBytes(); err == nil {
		if w+e.All.KVBytes > calc.MemoryBytes() {
			e.Notes = append(e.Notes, fmt.Sprintf("weights of %s and the KV cache of all tools of %s do not fit the %s of %s together", bytesText(w), bytesText(e.All.KVBytes), bytesText(calc.MemoryBytes()), cfg.GPU.ID))
		}
		if w+e.Sidecar.KVBytes > calc.MemoryBytes() {
			e.Notes = append(e.Notes, fmt.Sprintf("the weights alone take %s of the %s: more than one GPU is needed", bytesText(w), bytesText(calc.MemoryBytes())))
		}
	}
	if omits := calc.Omits(); len(omits) > 0 {
		e.Notes = append(e.Notes, "left out: "+strings.Join(omits, "; "))
	}
	return e
}

func (e *demoEstimate) expectedOnly() {
	const note = "the engine does not report cached tokens: the sidecar's expectation was used"
	if len(e.Notes) == 0 {
		e.Notes = append(e.Notes, note)
	}
}

func price(calc *cost.Calculator, prompts []prompt) (*demoCost, error) {
	c := &demoCost{ColdTokens: prompts[0].total}
	warm := 0
	for i, p := range prompts {
		c.LastTokens = max(c.LastTokens, p.total)
		if i == 0 {
			cold, err := calc.Prefill(p.total, 0)
			if err != nil {
				return nil, err
			}
			c.ColdMs = cold.Seconds * 1e3
		}
		if p.first {
			continue
		}
		f, err := calc.Prefill(p.total-p.cached, p.cached)
		if err != nil {
			return nil, err
		}
		warm++
		c.WarmMs += f.Seconds * 1e3
		c.WarmTokens += float64(p.total - p.cached)
	}
	if warm > 0 {
		c.WarmMs /= float64(warm)
		c.WarmTokens /= float64(warm)
	}
	d, err := calc.Decode(c.LastTokens)
	if err != nil {
		return nil, err
	}
	c.TokenMs = d.Seconds * 1e3
	c.KVBytes = calc.KVBytes(c.LastTokens)
	return c, nil
}
