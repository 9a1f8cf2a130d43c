package retrieval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// SelectConfig bounds what one turn adds to the conversation.
type SelectConfig struct {
	Tools  int // most tools from hits; 0 means 12
	Tokens int // most schema tokens of everything added; 0 means 1,200
	// PerTool is added to the count of each tool: what stands between two
	// schemas, in tokens.
	PerTool int
	// Window is how many places of the ranking are looked at, those of tools on
	// view counted: a turn whose likely tools are on view adds few or none. 0 means
	// 6, negative all.
	Window int
	// Wishes is the number of clauses of the query (len(Query.Clauses)); two places
	// a wish are looked at, if Window is 0, at most 12.
	Wishes int
	// Margin: when a tool on view fits the text of the query (Hit.Fit) better by
	// this than every other within the window, nothing is added. 0 means 0.2,
	// negative never.
	Margin float64
	// Floor drops hits both whose score and whose fit are less than this share of
	// the best hit's; 0 means 0.35, negative none.
	Floor float64
	// Near drops hits that share no word with the query and whose cosine with it is
	// less; 0 means 0.3, negative none. Small talk is near every chat tool by 0.2.
	Near float64
	// Weak drops, while a tool among the hits is on view, those whose Fit is less and
	// whose cosine is less than Near: an answer to a question ("my name is Jane") shares
	// words with many tools and asks for none. 0 means 0.4, or none in an index without
	// vectors, where words are all that a fit is made of; negative none.
	Weak float64
	// Slim lets schemas be shown shorter (see [Index.Slim]) where they don't fit
	// whole; the best hits stay whole as far as the tokens go.
	Slim bool
	// Always are names that are added whatever they cost, before all hits:
	// the name of tool_choice, tools called in history, pins.
	Always []string
	// Shown says whether a tool is on view already; nil means none is.
	Shown func(name string) bool
	// Costs remembers counts between calls; nil counts anew. It must have been
	// made for the same index and used with the same count function.
	Costs *Costs
}

// The window of a message of one wish, and the widest.
const (
	windowLeast = 6
	windowMost  = 12
)

// fill puts defaults in the place of zeros; vectors says whether the index has any.
func (c *SelectConfig) fill(vectors bool) {
	if c.Tools == 0 {
		c.Tools = 12
	}
	if c.Tokens == 0 {
		c.Tokens = 1200
	}
	if c.Window == 0 {
		c.Window = max(windowLeast, min(2*c.Wishes, windowMost))
	}
	if c.Margin == 0 {
		c.Margin = 0.2
	}
	if c.Floor == 0 {
		c.Floor = 0.35
	}
	if c.Near == 0 {
		c.Near = 0.3
	}
	if c.Weak == 0 && vectors {
		c.Weak = 0.4
	}
}

// Selection is what a turn adds and what it left out.
type Selection struct {
	Tools   []int // in the order to show: Always, then hits as ranked
	Slimmed []int // those of Tools that are shown slimmed
	Tokens  int   // of Tools together, as shown
	Over    bool  // Always alone went beyond SelectConfig.Tokens
	Dropped []Drop
	Unknown []string // names in Always that the catalog lacks
}

// JSON returns a selected tool's bytes as they are to be shown.
func (s *Selection) JSON(ix *Index, tool int) json.RawMessage {
	if slices.Contains(s.Slimmed, tool) {
		return ix.Slim(tool)
	}
	return ix.tools[tool].Raw
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
	DropShown   DropReason = iota + 1 // it is on view already
	DropFloor                         // far behind the best
	DropBudget                        // its schema does not fit the tokens left
	DropCount                         // enough tools were added
	DropPlace                         // too far down the ranking
	DropCovered                       // a tool on view fits better
	DropFaint                         // no word in common or none that tells, and no meaning to speak of
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
	case DropPlace:
		return "too far down the ranking"
	case DropCovered:
		return "a tool on view fits better"
	case DropFaint:
		return "hardly related"
	}
	return fmt.Sprintf("DropReason(%d)", uint8(r))
}

// Costs holds the schema tokens of an index's tools, filled as they are asked
// for. It is safe for concurrent use.
type Costs struct {
	tokens []atomic.Int32 // 1 + tokens; 0 means not counted yet
	slim   []atomic.Int32 // the same of slimmed schemas
	all    atomic.Int64   // the same of the sum of tokens
}

// NewCosts returns the empty memory of one index and one count function.
func NewCosts(ix *Index) *Costs {
	return &Costs{tokens: make([]atomic.Int32, ix.Len()), slim: make([]atomic.Int32, ix.Len())}
}

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

// Slim returns the tokens of a tool's slimmed bytes.
func (c *Costs) Slim(ix *Index, tool int, count func(string) int) int {
	if c == nil {
		return count(string(ix.Slim(tool)))
	}
	if n := c.slim[tool].Load(); n > 0 {
		return int(n - 1)
	}
	n := count(string(ix.Slim(tool)))
	c.slim[tool].Store(int32(n) + 1)
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
// hits in their order while they are among the first places, near enough to the
// best, fit the tokens left and the number of tools. A hit too large for the
// tokens left gives way to smaller ones behind it. Nothing is added where a tool
// on view is what the query asks for. count returns the tokens of a text.
func Select(ix *Index, hits []Hit, cfg SelectConfig, count func(string) int) Selection {
	cfg.fill(ix.dense != nil)
	var sel Selection
	shown := func(tool int) bool { return cfg.Shown != nil && cfg.Shown(ix.tools[tool].Name) }
	cost := func(tool int) int {
		if cfg.Slim {
			return min(cfg.Costs.Slim(ix, tool, count), cfg.Costs.Of(ix, tool, count)) + cfg.PerTool
		}
		return cfg.Costs.Of(ix, tool, count) + cfg.PerTool
	}
	for _, name := range cfg.Always {
		tool, ok := ix.Lookup(name)
		if !ok {
			sel.Unknown = append(sel.Unknown, name)
			continue
		}
		if slices.Contains(sel.Tools, tool) || shown(tool) {
			continue
		}
		sel.Tools = append(sel.Tools, tool)
		sel.Tokens += cost(tool)
	}
	sel.Over = sel.Tokens > cfg.Tokens
	always := len(sel.Tools)

	score, fit := 0.0, 0.0
	for _, h := range hits {
		score, fit = max(score, h.Score), max(fit, h.Fit)
	}
	places := ix.places(hits)
	covered := ix.covered(hits, places, cfg.Window, cfg.Margin, shown)
	begun := slices.ContainsFunc(hits, func(h Hit) bool { return shown(h.Tool) })
	for i, h := range hits {
		drop := Drop{Tool: h.Tool}
		switch {
		case slices.Contains(sel.Tools, h.Tool):
			continue
		case shown(h.Tool):
			drop.Why = DropShown
		case !h.Named && covered:
			drop.Why = DropCovered
		case !h.Named && h.Score < cfg.Floor*score && h.Fit < cfg.Floor*fit:
			drop.Why = DropFloor
		case !h.Named && (h.Lexical == 0 || begun && h.Fit < cfg.Weak) && h.Near < cfg.Near && h.Memory <= 0:
			drop.Why = DropFaint
		case len(sel.Tools)-always >= cfg.Tools:
			drop.Why = DropCount
		case !h.Named && cfg.Window > 0 && places[i] > cfg.Window:
			drop.Why = DropPlace
		default:
			drop.Tokens = cost(h.Tool)
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
	if cfg.Slim {
		sel.fatten(ix, &cfg, count)
	}
	return sel
}

// places returns each hit's place in the ranking, from 1 on, what was taken for
// calls given back: whether a tool was called says nothing of what the turn needs.
func (ix *Index) places(hits []Hit) []int {
	score := func(h *Hit) float64 {
		if h.Called {
			return h.Score + ix.cfg.Called
		}
		return h.Score
	}
	order := make([]int, len(hits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(score(&hits[j]), score(&hits[i])) })
	out := make([]int, len(hits))
	for place, i := range order {
		out[i] = place + 1
	}
	return out
}

// covered says whether a tool on view fits the query's text better by margin than
// every other within the window.
func (ix *Index) covered(hits []Hit, places []int, window int, margin float64, shown func(int) bool) bool {
	if margin < 0 {
		return false
	}
	on, off := math.Inf(-1), math.Inf(-1)
	for i, h := range hits {
		if shown(h.Tool) {
			on = max(on, h.Fit)
		} else if window < 0 || places[i] <= window {
			off = max(off, h.Fit+max(h.Memory, 0))
		}
	}
	return on-off >= margin && !math.IsInf(on, 0) && !math.IsInf(off, 0)
}

// fatten shows selected schemas whole again, the first ones first, as far as the
// tokens go; Tokens counts all of them slimmed so far.
func (sel *Selection) fatten(ix *Index, cfg *SelectConfig, count func(string) int) {
	for _, tool := range sel.Tools {
		whole, slim := cfg.Costs.Of(ix, tool, count), cfg.Costs.Slim(ix, tool, count)
		switch {
		case whole <= slim:
		case sel.Tokens+whole-slim <= cfg.Tokens:
			sel.Tokens += whole - slim
		default:
			sel.Slimmed = append(sel.Slimmed, tool)
		}
	}
}
