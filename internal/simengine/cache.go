package simengine

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
)

// blockHash names a block of tokens and all that stands before it.
type blockHash [sha256.Size]byte

// rootHash is the parent of a first block; a salt keeps its requests apart.
func rootHash(salt string) blockHash { return sha256.Sum256([]byte("sidecar-sim\x00" + salt)) }

func chainHash(parent blockHash, tokens []int32) blockHash {
	buf := make([]byte, 0, len(parent)+4*len(tokens))
	buf = append(buf, parent[:]...)
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(t))
	}
	return sha256.Sum256(buf)
}

// blockCache is the KV cache: a number of blocks, each free, held by requests,
// or kept for its content while nobody holds it. Only full blocks have content
// that can be found again. Of the kept blocks the least recently held goes
// first, of one request the last block first. Not safe for concurrent use.
type blockCache struct {
	size     int // tokens of a block
	capacity int // blocks
	blocks   map[blockHash]*block
	kept     *list.List // of *block without holders, the next to go in front
	held     int        // blocks with a holder
}

type block struct {
	hash    blockHash
	holders int
	kept    *list.Element
}

func newBlockCache(size, capacity int) *blockCache {
	return &blockCache{size: size, capacity: capacity, blocks: make(map[blockHash]*block), kept: list.New()}
}

// lease is what one request holds.
type lease struct {
	found  []*block // blocks with content, in order
	blank  int      // blocks without content that can be found
	filled int      // blocks of tokens accounted for
	last   blockHash
}

// acquire takes the blocks for a request of prompt tokens that will grow to
// total tokens. cached is the number of its tokens whose KV is found: whole
// blocks, and never the last token of the prompt, which must be computed to
// sample from it. It returns nil if the blocks are not to be had now.
func (c *blockCache) acquire(prompt []int32, salt string, total int) (l *lease, cached int) {
	full := len(prompt) / c.size
	hashes := make([]blockHash, full)
	parent := rootHash(salt)
	for i := range hashes {
		parent = chainHash(parent, prompt[i*c.size:(i+1)*c.size])
		hashes[i] = parent
	}
	hits, freeing := 0, 0
	for limit := (len(prompt) - 1) / c.size; hits < limit; hits++ {
		b := c.blocks[hashes[hits]]
		if b == nil {
			break
		}
		if b.holders == 0 {
			freeing++
		}
	}
	need := (total+c.size-1)/c.size - hits
	if need > c.capacity-c.held-freeing {
		return nil, 0
	}
	l = &lease{filled: full, last: parent}
	for _, h := range hashes[:hits] {
		l.found = append(l.found, c.hold(c.blocks[h]))
	}
	for range need {
		c.take()
	}
	l.blank = need
	for _, h := range hashes[hits:] {
		c.name(l, h)
	}
	return l, hits * c.size
}

func (c *blockCache) hold(b *block) *block {
	if b.holders == 0 {
		c.kept.Remove(b.kept)
		b.kept = nil
		c.held++
	}
	b.holders++
	return b
}

// take makes room for one more held block.
func (c *blockCache) take() {
	if c.held+c.kept.Len() == c.capacity {
		e := c.kept.Front()
		delete(c.blocks, e.Value.(*block).hash)
		c.kept.Remove(e)
	}
	c.held++
}

// name gives content to a blank block of the lease. When another block has that
// content already, that one stays the one that is found.
func (c *blockCache) name(l *lease, h blockHash) {
	if c.blocks[h] != nil {
		return
	}
	b := &block{hash: h, holders: 1}
	c.blocks[h] = b
	l.found = append(l.found, b)
	l.blank--
}

// grow accounts for the KV of all tokens so far, of which the last sampled one
// is no part.
func (c *blockCache) grow(l *lease, tokens []int32) {
	for (l.filled+1)*c.size <= len(tokens) {
		l.last = chainHash(l.last, tokens[l.filled*c.size:(l.filled+1)*c.size])
		l.filled++
		c.name(l, l.last)
	}
}

func (c *blockCache) release(l *lease) {
	for i := len(l.found) - 1; i >= 0; i-- {
		b := l.found[i]
		if b.holders--; b.holders == 0 {
			c.held--
			b.kept = c.kept.PushBack(b)
		}
	}
	c.held -= l.blank
	l.found, l.blank = nil, 0
}

// usage is the held share of the blocks, 0 to 1.
func (c *blockCache) usage() float64 { return float64(c.held) / float64(c.capacity) }
