package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// cacheModel is what the engine's prefix cache should hold, over all conversations
// and modes. It speaks of engines whose vocabulary is ours.
type cacheModel struct {
	inherited bool // the ledger had entries when this process began

	// mu guards the fields below, which hold for one engine, and turn.overlap.
	mu    sync.Mutex
	first *engine.Info // the engine that an inherited ledger is taken to speak of
	info  *engine.Info
	seen  *prefix.Seen
	slots *prefix.Slots   // of a llama-server; nil otherwise
	held  map[*turn][]int // slots that are answering
	sent  map[*turn]bool  // prompts whose answer has not begun
}

// maxSeen bounds the model in tokens of 4 bytes. It goes no further than the
// engine's own capacity.
const maxSeen = 8 << 20

// known starts anew when the engine is another one. The caller holds mu.
func (c *cacheModel) known(info *engine.Info) {
	if c.info == info {
		return
	}
	size := maxSeen
	if info.CacheSize > 0 {
		size = min(size, info.CacheSize)
	}
	if c.info == nil {
		c.first = info
	}
	c.info, c.seen, c.sent = info, prefix.NewSeen(size), map[*turn]bool{}
	if c.slots = nil; info.Slots > 0 {
		c.slots, c.held = prefix.NewSlots(info.Slots, maxSeen), map[*turn][]int{}
	}
}

// expect works out how much of the prompt t.ids the engine should find. before is
// what it holds of it by the ledger's account if that is older than this process.
func (c *cacheModel) expect(t *turn, before func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known(t.info)
	rec := t.record
	rec.PromptTokens = len(t.ids)
	salt := salted(t.object)
	t.key = slices.Concat(salt, t.ids)
	rec.PrefixTokens = max(c.seen.Match(t.key)-len(salt), 0)
	if c.slots != nil {
		rec.PrefixTokens = min(rec.PrefixTokens, c.slots.Match(t.key))
	}
	if c.inherited && c.info == c.first && len(salt) == 0 && !c.seen.Full() {
		rec.PrefixTokens = max(rec.PrefixTokens, before())
	}
	rec.ExpectedCached = t.blocks(rec.PrefixTokens)
	t.overlap = 0
	for other := range c.sent {
		n := prefix.Common(t.key, other.key) - len(salt)
		t.overlap, other.overlap = max(t.overlap, n), max(other.overlap, n)
	}
	c.sent[t] = true
}

// blocks is what of a shared beginning is found. An engine computes at least the
// last token of a prompt anew.
func (t *turn) blocks(shared int) int {
	if t.info.BlockSize == 0 || t.info.CacheOff {
		return 0
	}
	return max(min(shared, len(t.ids)-1), 0) / t.info.BlockSize * t.info.BlockSize
}

// begun notes that the engine has the KV of the prompt.
func (c *cacheModel) begun(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sent, t)
	if c.info != t.info || t.key == nil {
		return
	}
	c.seen.Add(t.key)
	if c.slots == nil {
		return
	}
	c.free(t) // of an earlier round
	if at := c.slots.Take(t.key); at >= 0 {
		c.held[t] = []int{at}
	}
}

// free gives back the slots that answered a turn. The caller holds mu.
func (c *cacheModel) free(t *turn) {
	for _, at := range c.held[t] {
		c.slots.Free(at)
	}
	delete(c.held, t)
}

// over notes that the request has ended, in whatever way.
func (c *cacheModel) over(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sent, t)
	c.free(t)
}

// generated notes the KV of what followed the prompt, in one of several choices.
func (c *cacheModel) generated(t *turn, choice int, output []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.info != t.info || t.key == nil || len(output) == 0 {
		return
	}
	whole := slices.Concat(t.key, output)
	c.seen.Add(whole)
	switch held := c.held[t]; {
	case len(held) == 0:
	case choice == 0:
		c.slots.Hold(held[0], whole)
	default:
		c.slots.Beside(whole)
	}
}

// concede settles what could not be known before: of prompts with a common
// beginning that are computed at the same time the engine may compute it once, or
// for each. What it reports within that range is as expected.
func (c *cacheModel) concede(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := t.record
	if most := t.blocks(t.overlap); rec.Reported != nil && rec.Reported.Cached > rec.ExpectedCached && most > rec.ExpectedCached {
		rec.ExpectedCached = min(rec.Reported.Cached, most)
	}
}

// salted are numbers in front of the ids of a request with a cache_salt, of which
// the engine finds nothing under another salt. No token has a number below 0.
func salted(o *openai.Object) []int32 {
	salt := text(o, "cache_salt")
	if salt == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(salt))
	ids := make([]int32, 4)
	for i := range ids {
		ids[i] = -1 - int32(binary.LittleEndian.Uint32(sum[4*i:])>>1)
	}
	return ids
}

// expect foretells what the engine's cache holds of the prompt. It needs the
// engine's own vocabulary, else the record says nothing about it.
func (s *stages) expect(t *turn) {
	switch {
	case !t.info.TokenizerExact:
		t.ids = nil
		return
	case t.prompt != nil:
		t.ids = t.prompt.IDs
		t.record.Kept = max(t.prompt.Dropped, 0)
	default:
		t.ids = s.cfg.Counter.Encode(nil, t.rendered(t.layout))
	}
	s.cache.expect(t, func() int { return s.replayed(t) })
}

// rendered is the prompt that the engine makes of turns that are text.
func (t *turn) rendered(turns []prefix.Turn) string {
	msgs := make([]wire.Message, len(turns))
	for i, m := range turns {
		msgs[i] = wire.Message{Role: m.Role, Content: m.Text}
	}
	return string(t.info.Family.Render(nil, msgs, nil, wire.Options{AddGenerationPrompt: true, EnableThinking: t.enableThinking()}))
}

// replayed is how much of the prompt was the engine's before, by the ledger: up to
// the end of the last reply in it, whose last token has no KV.
func (s *stages) replayed(t *turn) int {
	if t.prompt != nil {
		n := t.prompt.Replayed - 1
		if t.prompt.Dropped >= 0 {
			n = min(n, t.prompt.Dropped)
		}
		return n
	}
	i := len(t.layout) - 1
	for i >= 0 && !t.layout[i].Generated {
		i--
	}
	if i < 0 {
		return 0
	}
	before := s.cfg.Counter.Encode(nil, t.rendered(t.layout[:i])+t.layout[i].Text)
	return prefix.Common(t.ids, before)
}

// output is the ids behind a prompt whose KV a reply leaves: those that the engine
// gave back but the last, else what its text is read as.
func (s *stages) output(t *turn, c *choice) []int32 {
	if len(c.ids) > 0 {
		return c.ids[:len(c.ids)-1]
	}
	if t.prompt != nil {
		return nil
	}
	return s.cfg.Counter.Encode(nil, prefix.WithReasoning(t.info.Family, strings.TrimSpace(c.reasoning.String()), c.raw()))
}

// askIDs has the engine give back what it generates as ids, also where the prompt
// is text.
func (t *turn) askIDs(o *openai.Object) {
	if t.ids == nil {
		return
	}
	switch t.info.Kind {
	case engine.VLLM, engine.Sim:
		o.Set("return_token_ids", []byte("true"))
	case engine.SGLang:
		o.Set("return_output_ids_in_sglext", []byte("true"))
		o.Delete("return_token_ids") // refused in a stream
	}
}
