package retrieval

import (
	"fmt"
	"sync/atomic"
)

// SelectConfig bounds what one turn adds to the conversation.
type SelectConfig struct {
	Tools  int // most tools from hits; 0 means 4
	Tokens int // most schema tokens of everything added; 0 means 1,200
	// PerTool is added to the count of each tool: what stands between two
	// schemas, in tokens.
	PerTool int
	// Floor drops hits whose score is less than this share of the best hit's;
	// 0 means 0.35, negative none. On the merged 3,200 tools 0.35 costs no
	// recall@4 (74.6 in 1,200 tokens) and saves 3 % of the tokens, 0.5 costs
	// 0.6 points and saves 10 %.
	Floor float64
	// Always are names that are added whatever they cost, before all hits:
	// the name of tool_choice, tools called in history, pins.
	Always []string
	// Shown says whether a tool is on view already; nil means none is.
	Shown func(name string) bool
	// Costs remembers counts between calls; nil counts anew. It must have been
	// made for the same index and used with the same count function.
	Costs *Costs
}

// Selection is what a turn adds and what it left out.
type Selection struct {
	Tools   []int // in the order to show: Always, then hits as ranked
	Tokens  int   // of Tools together
	Over    bool  // Always alone went beyond SelectConfig.Tokens
	Dropped []Drop
	Unknown []string // names in Always that the catalog lacks
}

// Drop is a hit that was not added.
type Drop struct {
	Tool   int
	Why    DropReason
	Tokens int // of the tool, for DropBudget
}

// DropReason says why a hit was not added.
type DropReason uint8

const (
	DropShown  DropReason = iota + 1 // it is on view already
	DropFloor                        // far behind the best
	DropBudget                       // its schema does not fit the tokens left
	DropCount                        // enough tools were added
)

func (r DropReason) String() string {
	switch r {
	case DropShown:
		return "already shown"
	case DropFloor:
		return "score below the floor"
	case DropBudget:
		return "over the token budget"
	case DropCount:
		return "enough tools"
	}
	return fmt.Sprintf("DropReason(%d)", uint8(r))
}

// Costs holds the schema tokens of an index's tools, filled as they are asked
// for. It is safe for concurrent use.
type Costs struct {
	tokens []atomic.Int32 // 1 + tokens; 0 means not counted yet
	all    atomic.Int64   // the same for their sum
}

// NewCosts returns the empty memory of one index and one count function.
func NewCosts(ix *Index) *Costs { return &Costs{tokens: make([]atomic.Int32, ix.Len())} }

// Of returns the tokens of a tool's canonical bytes.
func (c *Costs) Of(ix *Index, tool int, count func(string) int) int {
	if c == nil {
		return count(string(ix.tools[tool].Raw))
	}
	if n := c.tokens[tool].Load(); n > 0 {
		return int(n - 1)
	}
	n := count(string(ix.tools[tool].Raw))
	c.tokens[tool].Store(int32(n) + 1)
	return n
}

// All returns the tokens of all tools together.
func (c *Costs) All(ix *Index, count func(string) int) int {
	if n := c.all.Load(); n > 0 {
		return int(n - 1)
	}
	n := 0
	for i := range ix.tools {
		n += c.Of(ix, i, count)
	}
	c.all.Store(int64(n) + 1)
	return n
}

// Select decides what the turn adds: the names that must be there, then the
// hits in their order while they are near enough to the best, fit the tokens
// left and the number of tools. A hit too large for the tokens left gives way
// to smaller ones behind it. A query that shares no word with any tool has no
// hits and adds nothing. count returns the tokens of a text.
func Select(ix *Index, hits []Hit, cfg SelectConfig, count func(string) int) Selection {
	if cfg.Tools == 0 {
		cfg.Tools = 4
	}
	if cfg.Tokens == 0 {
		cfg.Tokens = 1200
	}
	if cfg.Floor == 0 {
		cfg.Floor = 0.35
	}
	var sel Selection
	in := func(tool int) bool {
		for _, t := range sel.Tools {
			if t == tool {
				return true
			}
		}
		return false
	}
	shown := func(tool int) bool { return cfg.Shown != nil && cfg.Shown(ix.tools[tool].Name) }
	for _, name := range cfg.Always {
		tool, ok := ix.Lookup(name)
		if !ok {
			sel.Unknown = append(sel.Unknown, name)
			continue
		}
		if in(tool) || shown(tool) {
			continue
		}
		sel.Tools = append(sel.Tools, tool)
		sel.Tokens += cfg.Costs.Of(ix, tool, count) + cfg.PerTool
	}
	sel.Over = sel.Tokens > cfg.Tokens
	always := len(sel.Tools)

	best := 0.0
	for _, h := range hits {
		best = max(best, h.Score)
	}
	for _, h := range hits {
		drop := Drop{Tool: h.Tool}
		switch {
		case in(h.Tool):
			continue
		case shown(h.Tool):
			drop.Why = DropShown
		case !h.Named && h.Score < cfg.Floor*best:
			drop.Why = DropFloor
		case len(sel.Tools)-always >= cfg.Tools:
			drop.Why = DropCount
		default:
			drop.Tokens = cfg.Costs.Of(ix, h.Tool, count) + cfg.PerTool
			if sel.Tokens+drop.Tokens > cfg.Tokens {
				drop.Why = DropBudget
				break
			}
			sel.Tools = append(sel.Tools, h.Tool)
			sel.Tokens += drop.Tokens
			continue
		}
		sel.Dropped = append(sel.Dropped, drop)
	}
	return sel
}
