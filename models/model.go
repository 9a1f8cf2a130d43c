package models

// Model is the card of one model.
type Model struct {
	ID        string `json:"id"` // as its publisher spells it: owner/name
	Family    string `json:"family"`
	Attention string `json:"attention"` // in words

	Layers           int `json:"layers"`
	FullAttnLayers   int `json:"full_attn_layers"` // their KV grows with every token
	SlidingLayers    int `json:"sliding_layers"`   // their KV ends at WindowTokens
	LinearLayers     int `json:"linear_layers"`    // recurrent state in the place of KV
	WindowTokens     int `json:"window_tokens"`
	WindowOnlyLayers int `json:"window_only_layers"`

	Hidden          int `json:"hidden"`
	QHeads          int `json:"q_heads"`
	KVHeads         int `json:"kv_heads"`
	HeadDim         int `json:"head_dim"`
	KVLoRARank      int `json:"kv_lora_rank"` // MLA
	QKNopeHeadDim   int `json:"qk_nope_head_dim"`
	QKRopeHeadDim   int `json:"qk_rope_head_dim"`
	VHeadDim        int `json:"v_head_dim"`
	Intermediate    int `json:"intermediate"`
	MoEIntermediate int `json:"moe_intermediate"`
	Experts         int `json:"experts"` // 0 for a dense model, and where a card does not tell
	ExpertsPerTok   int `json:"experts_per_tok"`
	SharedExperts   int `json:"shared_experts"`
	Vocab           int `json:"vocab"`
	ContextLen      int `json:"context_len"` // tokens

	// Sparse says that a query attends to a choice of the keys only, so that
	// AttnFLOPs times all pairs would overstate the attention.
	Sparse bool `json:"sparse"`
	// IndexerElems is the number of elements per token of the keys by which
	// sparse attention chooses. They are not part of KVBytesPerToken.
	IndexerElems   int `json:"indexer_elems_per_token"`
	LayersRatio4   int `json:"compressed_layers_ratio4"`   // one KV entry per 4 tokens
	LayersRatio128 int `json:"compressed_layers_ratio128"` // one KV entry per 128 tokens

	ParamsTotalB  *float64 `json:"params_total_b"`  // 10⁹ parameters
	ParamsActiveB *float64 `json:"params_active_b"` // 10⁹ parameters that one token uses
	ParamsSource  string   `json:"params_source"`

	// KVBytesPerToken is what one more token of context adds to the KV cache at 2
	// bytes per element, once the windowed layers are full.
	KVBytesPerToken    int64 `json:"kv_bytes_per_token_fp16"`
	KVBytesPerTokenFP8 int64 `json:"kv_bytes_per_token_fp8"`
	// KVBytesPerTokenAll is the same for an engine that keeps windowed layers whole.
	KVBytesPerTokenAll int64 `json:"kv_bytes_per_token_fp16_if_engine_keeps_all_layers"`
	// KVWindowBytes is the KV of the windowed layers of one sequence once they are
	// full, at 2 bytes per element.
	KVWindowBytes int64 `json:"kv_fixed_bytes_per_seq_fp16"`
	// StateElems is the number of elements of recurrent state of one sequence.
	StateElems int64 `json:"recurrent_state_elems_per_seq"`
	// AttnFLOPs is the work of one pair of query token and attended key, summed
	// over the layers with full attention.
	AttnFLOPs *float64 `json:"attn_flops_per_query_per_kv_token"`

	Derived bool   `json:"derived"` // KV bytes were derived from a config's ratios, not stated
	Note    string `json:"note"`
	Source  string `json:"source"`
}

// Unknown names the quantities that the card lacks, as they are called in
// models.jsonl.
func (m *Model) Unknown() []string {
	var names []string
	for _, q := range []struct {
		name string
		v    *float64
	}{
		{"params_total_b", m.ParamsTotalB},
		{"params_active_b", m.ParamsActiveB},
		{"attn_flops_per_query_per_kv_token", m.AttnFLOPs},
	} {
		if q.v == nil {
			names = append(names, q.name)
		}
	}
	return names
}

// GPU is the card of one accelerator.
type GPU struct {
	ID       string  `json:"id"`
	MemGB    float64 `json:"mem_gb"`             // 10⁹ or 2³⁰ bytes, as its maker counts
	MemBytes *int64  `json:"mem_bytes_reported"` // by the driver
	BWGBs    float64 `json:"bw_gbs"`             // memory bandwidth in 10⁹ bytes per second

	// Peak rates without structured sparsity, in 10¹² operations per second.
	BF16TFLOPS       *float64 `json:"bf16_tflops_dense"`
	FP8TFLOPS        *float64 `json:"fp8_tflops_dense"`
	FP8TFLOPSFP16Acc *float64 `json:"fp8_tflops_dense_fp16acc"` // accumulating in FP16
	FP4TFLOPS        *float64 `json:"fp4_tflops_dense"`
	INT8TOPS         *float64 `json:"int8_tops"`

	NVLinkGBs float64 `json:"nvlink_gbs_uni"` // one direction
	PCIeGBs   float64 `json:"pcie_gbs"`

	Derived bool   `json:"derived"` // some figures were derived from others
	Note    string `json:"note"`
	Source  string `json:"source"`
}
