package retrieval

import (
	"testing"

	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// Turns that need no new tool add at most a quarter of what always four tools add,
// and no more than a point of recall is lost for that.
func TestIdleTurns(t *testing.T) {
	for _, set := range []string{"api-bank", "bfcl-multiturn"} {
		ix, queries := openSet(t, set, nil)
		count := tokenizer.Qwen3().Count
		cfg := Config{TokenCap: 1200, Core: proxy.CoreTokens(ix, 1200, count), Count: count}
		always, ours := Replay(ix, queries, Policies()[0], cfg), Replay(ix, queries, Policy{}, cfg)
		t.Logf("%s: %d of %d turns need no new tool: %d tokens, always four add %d; recall %.1f, always four %.1f", set, ours.Idle, ours.Turns, ours.Wasted, always.Wasted, ours.Recall, always.Recall)
		if ours.Idle == 0 || 4*ours.Wasted > always.Wasted {
			t.Errorf("%s: turns that need no new tool add %d tokens; always four add %d", set, ours.Wasted, always.Wasted)
		}
		if ours.Recall < always.Recall-1 {
			t.Errorf("%s: recall %.1f; always four have %.1f", set, ours.Recall, always.Recall)
		}
	}
}
