package prefix

// Epoch is what starting a conversation's prompt anew would change. The old prompt
// is in the engine's cache and costs nothing to send again; but tools in it that
// nobody calls are attended to by every token that is generated from then on.
type Epoch struct {
	Prompt int // tokens of the prompt as it stands
	Dead   int // of these, the ones that a new epoch leaves out
	Turns  int // turns that are expected to follow
	Output int // tokens that one of them generates
}

// carry is what one cached token costs one generated token, in tokens of prefill:
// reading its KV against computing it. For Qwen3-8B on an H100, with the
// utilisations of models/cost: 147,456 B / (3.35 TB/s · 0.8) = 55 ns against
// 2 · 8.2e9 FLOP / (989 TFLOP/s · 0.5) = 33 µs.
const carry = 1.0 / 600

// Saves is what a new epoch is expected to save, in tokens of prefill: what the
// dead tokens would cost, less the prefill of the prompt without them.
func (e Epoch) Saves() float64 {
	return float64(e.Turns)*float64(e.Output)*float64(e.Dead)*carry - float64(e.Prompt-e.Dead)
}

// Expected is how many turns are expected to follow so many. Nothing is known of
// the client's plans; conversations have a heavy tail, so that the one which has
// lasted goes on as long again.
func Expected(turns int) int { return turns }
