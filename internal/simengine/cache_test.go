package simengine

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func ids(from, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(from + i)
	}
	return out
}

// TestCacheFullHit: numbers that a real vLLM 0.32 reported for identical requests.
func TestCacheFullHit(t *testing.T) {
	for _, tt := range []struct{ tokens, block, want int }{
		{259, 128, 256},
		{256, 128, 128}, // the last token is always computed
		{257, 128, 256},
		{127, 128, 0},
		{1364, 32, 1344},
		{1, 16, 0},
	} {
		c := newBlockCache(tt.block, 1000)
		prompt := ids(0, tt.tokens)
		l, cached := c.acquire(prompt, "", tt.tokens+1)
		if l == nil || cached != 0 {
			t.Fatalf("first request of %d tokens: %v, cached %d", tt.tokens, l, cached)
		}
		c.release(l)
		l, cached = c.acquire(prompt, "", tt.tokens+1)
		if l == nil || cached != tt.want {
			t.Errorf("%d tokens in blocks of %d: cached %d, want %d", tt.tokens, tt.block, cached, tt.want)
		}
		other, cached := c.acquire(prompt, "salt", tt.tokens+1)
		if other == nil || cached != 0 {
			t.Errorf("%d tokens with another salt: cached %d", tt.tokens, cached)
		}
	}
}

// TestCacheAgentLoop: prompt + completion of a turn, and what vLLM found cached
// of them in the next turn, which began with the same tokens (blocks of 32).
func TestCacheAgentLoop(t *testing.T) {
	c := newBlockCache(32, 1000)
	sizes := []int{415, 579, 730, 881, 1034, 1187, 1343}
	want := []int{384, 576, 704, 864, 1024, 1184, 1312}
	const completion = 50
	for i, total := range sizes {
		prompt := ids(0, total-completion)
		l, cached := c.acquire(prompt, "", total)
		if i > 0 && cached != want[i-1] {
			t.Errorf("turn %d: cached %d, want %d", i, cached, want[i-1])
		}
		c.grow(l, ids(0, total-1)) // the last sampled token has no KV
		c.release(l)
	}
	l, cached := c.acquire(ids(0, 2000), "", 2001)
	if l == nil || cached != want[len(want)-1] {
		t.Errorf("last turn: cached %d, want %d", cached, want[len(want)-1])
	}
}

func TestCacheEviction(t *testing.T) {
	c := newBlockCache(4, 6)
	run := func(from, n int) int {
		l, cached := c.acquire(ids(from, n), "", n)
		if l == nil {
			t.Fatalf("no room for %d tokens", n)
		}
		c.release(l)
		return cached
	}
	run(0, 12)   // blocks A1 A2 A3
	run(100, 12) // B1 B2 B3; full
	if got := run(0, 13); got != 12 {
		t.Fatalf("A: cached %d, want 12", got) // takes one block: of B the last goes
	}
	if got := run(100, 13); got != 8 {
		t.Errorf("B: cached %d, want 8, its last block evicted", got)
	}
	l, _ := c.acquire(ids(0, 20), "", 20)
	if l == nil || c.usage() != 5.0/6 {
		t.Fatalf("usage %v, want 5/6", c.usage())
	}
	if l, _ := c.acquire(ids(300, 8), "", 8); l != nil {
		t.Error("two blocks were given out where one is free")
	}
	c.release(l)
	if c.usage() != 0 {
		t.Errorf("usage %v after the last release", c.usage())
	}
}

// slowCache is the obvious twin: every named block is a text of all tokens up
// to its end, the kept ones stand in a slice.
type slowCache struct {
	size, capacity int
	holders        map[string]int // of named blocks, 0 for kept
	kept           []string
	blank          int
}

type slowLease struct {
	names []string
	blank int
}

func (c *slowCache) key(tokens []int32, salt string, n int) string {
	return salt + fmt.Sprint(tokens[:n])
}

func (c *slowCache) held() int {
	n := c.blank
	for _, h := range c.holders {
		if h > 0 {
			n++
		}
	}
	return n
}

func (c *slowCache) unkeep(k string) {
	for i, x := range c.kept {
		if x == k {
			c.kept = append(c.kept[:i:i], c.kept[i+1:]...)
			return
		}
	}
}

func (c *slowCache) acquire(prompt []int32, salt string, total int) (*slowLease, int) {
	hits := 0
	for (hits+1)*c.size < len(prompt) {
		if _, ok := c.holders[c.key(prompt, salt, (hits+1)*c.size)]; !ok {
			break
		}
		hits++
	}
	need := (total+c.size-1)/c.size - hits
	fresh := 0
	for i := range hits {
		if c.holders[c.key(prompt, salt, (i+1)*c.size)] == 0 {
			fresh++
		}
	}
	if c.held()+fresh+need > c.capacity {
		return nil, 0
	}
	l := &slowLease{}
	for i := range hits {
		k := c.key(prompt, salt, (i+1)*c.size)
		c.unkeep(k)
		c.holders[k]++
		l.names = append(l.names, k)
	}
	for range need {
		if c.held()+len(c.kept) == c.capacity {
			delete(c.holders, c.kept[0])
			c.kept = c.kept[1:]
		}
		c.blank++
		l.blank++
	}
	for i := hits; (i+1)*c.size <= len(prompt); i++ {
		c.name(l, c.key(prompt, salt, (i+1)*c.size))
	}
	return l, hits * c.size
}

func (c *slowCache) name(l *slowLease, k string) {
	if _, ok := c.holders[k]; !ok {
		c.holders[k] = 1
		l.names = append(l.names, k)
		l.blank--
		c.blank--
	}
}

func (c *slowCache) release(l *slowLease) {
	for i := len(l.names) - 1; i >= 0; i-- {
		k := l.names[i]
		if c.holders[k]--; c.holders[k] == 0 {
			c.kept = append(c.kept, k)
		}
	}
	c.blank -= l.blank
}

func TestCacheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		capacity := rapid.IntRange(1, 14).Draw(t, "capacity")
		c := newBlockCache(size, capacity)
		slow := &slowCache{size: size, capacity: capacity, holders: map[string]int{}}
		type pair struct {
			l      *lease
			s      *slowLease
			tokens []int32
			salt   string
			prompt int
		}
		var open []pair
		var log strings.Builder
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			if len(open) > 0 && rapid.IntRange(0, 2).Draw(t, "release") == 0 {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				p := open[i]
				have := rapid.IntRange(p.prompt, len(p.tokens)).Draw(t, "generated")
				c.grow(p.l, p.tokens[:have])
				for n := p.prompt/size + 1; n*size <= have; n++ {
					slow.name(p.s, slow.key(p.tokens, p.salt, n*size))
				}
				c.release(p.l)
				slow.release(p.s)
				open = append(open[:i:i], open[i+1:]...)
				continue
			}
			tokens := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 14).Draw(t, "tokens")
			prompt := rapid.IntRange(1, len(tokens)).Draw(t, "prompt")
			salt := rapid.SampledFrom([]string{"", "s"}).Draw(t, "salt")
			l, got := c.acquire(tokens[:prompt], salt, len(tokens))
			s, want := slow.acquire(tokens[:prompt], salt, len(tokens))
			fmt.Fprintf(&log, "%v %d %q -> %d\n", tokens, prompt, salt, got)
			if (l == nil) != (s == nil) || got != want {
				t.Fatalf("granted %v, cached %d; twin: %v, %d\n%s", l != nil, got, s != nil, want, log.String())
			}
			if l != nil {
				open = append(open, pair{l, s, tokens, salt, prompt})
			}
			if c.held != slow.held() || c.kept.Len() != len(slow.kept) {
				t.Fatalf("held %d, kept %d; twin: %d, %d\n%s", c.held, c.kept.Len(), slow.held(), len(slow.kept), log.String())
			}
			if c.held+c.kept.Len() > capacity {
				t.Fatalf("%d blocks of %d", c.held+c.kept.Len(), capacity)
			}
		}
	})
}
