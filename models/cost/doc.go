// Package cost estimates what tokens cost on a model and a GPU, from their cards
// alone: bytes of KV cache, seconds of prefill, seconds per generated token.
//
// With T new tokens behind c cached ones, P active parameters, A the attention
// work of one pair of query and key, and each query attending to all keys up to
// its own:
//
//	KV(n)      = kv·n + windowed·min(n, window)/window + 4·state
//	pairs      = T·c + T·(T+1)/2
//	FLOPs      = 2·P·T + A·pairs
//	Prefill    = max(FLOPs / (peak·MFU·GPUs), weights(T) / (bandwidth·BWU·GPUs))
//	Decode(n)  = (weights(1) + KV(n)) / (bandwidth·BWU·GPUs)
//
// weights(T) are the bytes of weights that T tokens read. Of a mixture of experts
// with k of E chosen per token, a token leaves one expert alone with probability
// 1 − k/E if the choice is even, so that T tokens read the share 1 − (1 − k/E)ᵀ of
// the experts.
//
// These are estimates. They leave out scheduling, kernel launches, communication
// between GPUs, batching with other requests and what Omits names for a model; the
// two utilisations stand in for an engine that nobody has measured yet. A quantity
// that a card lacks makes the estimate fail with an *UnknownError that names it.
//
// The FLOPs are those of Kaplan et al. 2020 (arXiv:2001.08361, section 2.1) with
// the attention term kept, which is over half of the work at 60,000 tokens of
// context; the bandwidth utilisation is that of ai-dynamo/aiconfigurator@095f58a5.
package cost
