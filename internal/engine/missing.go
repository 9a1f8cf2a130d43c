package engine

// Missing is something that the sidecar does better with, and what turns it on.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`  // it matters
	Flag string `json:"flag"` // of the engine, or of the sidecar where it says so
}

// Missing lists what the probe did not find.
func (i *Info) Missing() []Missing {
	var list []Missing
	flag := func(vllm, sglang string) string {
		switch i.Kind {
		case VLLM:
			return "vllm serve " + vllm
		case SGLang:
			return "sglang " + sglang
		case Sim:
			return "sidecar engine " + vllm
		}
		return "none known for this engine"
	}
	add := func(what, why, flag string) { list = append(list, Missing{what, why, flag}) }
	if i.CacheOff {
		add("prefix cache", "every prompt is computed whole", flag("--enable-prefix-caching", "without --disable-radix-cache"))
	}
	if !i.CachedTokens {
		add("cached tokens in usage", "whether prompts are found in the cache can't be told", flag("--enable-prompt-tokens-details", "--enable-cache-report"))
	}
	if i.BlockSize == 0 {
		add("block size", "how much of a prompt should be cached can't be worked out", flag("without --disable-log-stats, so that /metrics has vllm:cache_config_info", "of a version whose /server_info has page_size"))
	}
	if !i.Metrics {
		const why = "load and cache can't be watched"
		switch i.Kind {
		case SGLang:
			add("metrics", why, flag("", "--enable-metrics"))
		case LlamaCpp:
			add("metrics", why, "llama-server --metrics")
		}
	}
	if i.Kind == LlamaCpp && !i.GBNF {
		add("grammars", "calls are checked, but not held to their schemas: "+i.TagReason, "of another version: none turns them on")
	}
	if !i.StructuralTag && (i.Kind == VLLM || i.Kind == SGLang) {
		add("structural tags", "calls are checked, but not held to their schemas: "+i.TagReason, flag(`--structured-outputs-config '{"backend":"xgrammar"}'`, "--grammar-backend xgrammar"))
	}
	if i.Family == nil {
		add("model family", "requests with tools are passed through: "+i.FamilyReason, "sidecar serve --family NAME")
	} else if !i.TokenizerExact {
		add("vocabulary", "prompts can't be sent as token ids, and counts are estimates", "sidecar serve --tokenizer tokenizer.json")
	}
	return list
}
