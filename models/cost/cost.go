package cost

import (
	"fmt"
	"math"
)

// KVBytes returns the KV cache of one sequence of n tokens, counted once however
// many GPUs hold parts or copies of it. An n below 0 counts as 0.
func (c *Calculator) KVBytes(n int) float64 {
	m := c.cfg.Model
	perToken, windowed := float64(m.KVBytesPerToken), float64(m.KVWindowBytes)
	if c.cfg.KV == FP8 {
		perToken, windowed = float64(m.KVBytesPerTokenFP8), windowed/2
	}
	if n <= 0 {
		return 0
	}
	kv := perToken*float64(n) + float64(m.StateElems)*stateBytes
	if m.WindowTokens > 0 {
		kv += windowed * float64(min(n, m.WindowTokens)) / float64(m.WindowTokens)
	}
	return kv
}

// WeightBytes returns the size of all weights. It fails when the card does not
// tell the number of parameters.
func (c *Calculator) WeightBytes() (float64, error) {
	total := c.cfg.Model.ParamsTotalB
	if total == nil {
		return 0, &UnknownError{Card: c.cfg.Model.ID, Quantity: "params_total_b"}
	}
	return *total * 1e9 * c.cfg.Weights.bytes(), nil
}

// weightsRead returns the bytes of weights that one pass of n tokens reads. Where
// a card tells of active parameters but not of experts, it is what one token reads
// and so too low.
func (c *Calculator) weightsRead(n int) (float64, error) {
	m := c.cfg.Model
	total, err := c.WeightBytes()
	if err != nil {
		return 0, err
	}
	if m.ParamsActiveB == nil {
		return 0, &UnknownError{Card: m.ID, Quantity: "params_active_b"}
	}
	active := *m.ParamsActiveB * 1e9 * c.cfg.Weights.bytes()
	E, k := float64(m.Experts), float64(m.ExpertsPerTok)
	if m.Experts <= m.ExpertsPerTok {
		return active, nil
	}
	// total = shared + E·expert, active = shared + k·expert.
	expert := (total - active) / (E - k)
	shared := active - k*expert
	return shared + E*expert*(1-math.Pow(1-k/E, float64(n))), nil
}

// Prefill is the estimate of one prefill.
type Prefill struct {
	New, Cached    int     // tokens
	LinearFLOPs    float64 // 2·P·T
	AttentionFLOPs float64 // A·pairs
	ComputeSeconds float64
	WeightSeconds  float64 // to read the weights once
	Seconds        float64 // the larger of the two
}

// Prefill estimates the prefill of n new tokens behind cached ones, as one pass.
// No new token costs nothing. The error is an *UnknownError, or says that a count
// is negative.
func (c *Calculator) Prefill(n, cached int) (Prefill, error) {
	m := c.cfg.Model
	if n < 0 || cached < 0 {
		return Prefill{}, fmt.Errorf("cost: prefill of %d tokens behind %d", n, cached)
	}
	if m.ParamsActiveB == nil {
		return Prefill{}, &UnknownError{Card: m.ID, Quantity: "params_active_b"}
	}
	if m.AttnFLOPs == nil || m.Sparse {
		e := &UnknownError{Card: m.ID, Quantity: "attn_flops_per_query_per_kv_token"}
		if m.Sparse {
			e.Why = "sparse attention: the work is not a multiple of the pairs"
		}
		return Prefill{}, e
	}
	if c.peak == 0 {
		_, name := peak(c.cfg.GPU, c.cfg.Weights)
		return Prefill{}, &UnknownError{Card: c.cfg.GPU.ID, Quantity: name}
	}
	weights, err := c.weightsRead(n)
	if err != nil {
		return Prefill{}, err
	}
	p := Prefill{New: n, Cached: cached}
	if n == 0 {
		return p, nil
	}
	T := float64(n)
	p.LinearFLOPs = 2 * *m.ParamsActiveB * 1e9 * T
	p.AttentionFLOPs = *m.AttnFLOPs * (T*float64(cached) + T*(T+1)/2)
	p.ComputeSeconds = (p.LinearFLOPs + p.AttentionFLOPs) / c.peak
	p.WeightSeconds = weights / c.bw
	p.Seconds = max(p.ComputeSeconds, p.WeightSeconds)
	return p, nil
}

// Decode is the estimate of generating one token, alone in its batch.
type Decode struct {
	Context       int     // tokens before it
	WeightSeconds float64 // to read the weights
	KVSeconds     float64 // to read the KV cache: what the context adds to every token
	Seconds       float64
}

// Decode estimates the time of one generated token behind a context of n tokens.
// The error is an *UnknownError, or says that n is negative.
func (c *Calculator) Decode(n int) (Decode, error) {
	if n < 0 {
		return Decode{}, fmt.Errorf("cost: decode behind %d tokens", n)
	}
	weights, err := c.weightsRead(1)
	if err != nil {
		return Decode{}, err
	}
	d := Decode{Context: n, WeightSeconds: weights / c.bw, KVSeconds: c.KVBytes(n) / c.bw}
	d.Seconds = d.WeightSeconds + d.KVSeconds
	return d, nil
}

// MemoryBytes returns the memory of all GPUs: as the driver reports it, else as
// the maker counts, in 10⁹ bytes.
func (c *Calculator) MemoryBytes() float64 {
	per := c.cfg.GPU.MemGB * 1e9
	if c.cfg.GPU.MemBytes != nil {
		per = float64(*c.cfg.GPU.MemBytes)
	}
	return per * float64(c.cfg.GPUs)
}

// Omits names what the estimates for this model leave out, so that they are too
// low, or rest on.
func (c *Calculator) Omits() []string {
	m := c.cfg.Model
	var out []string
	if m.SlidingLayers > 0 {
		out = append(out, fmt.Sprintf("attention of %d windowed layers within %d tokens", m.SlidingLayers, m.WindowTokens))
	}
	if m.LinearLayers > 0 {
		out = append(out, fmt.Sprintf("state updates of %d linear layers", m.LinearLayers))
	}
	if m.IndexerElems > 0 {
		out = append(out, fmt.Sprintf("indexer keys, %d elements per token", m.IndexerElems))
	}
	if mixture(m) && m.Experts == 0 {
		out = append(out, "weights of experts that a token does not use")
	}
	if m.Derived {
		out = append(out, "KV bytes derived from the config's ratios")
	}
	return out
}
