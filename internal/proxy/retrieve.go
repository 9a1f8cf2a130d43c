package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/prefix"
	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/tokenbudget"
)

// shape bounds every tool result that has no decision yet.
func (s *stages) shape(t *turn) {
	for i := range t.conv.Len() {
		m := t.conv.Message(i)
		if m.Role != "tool" || m.Opaque != nil || t.conv.Decided(i) {
			continue
		}
		shaped := tokenbudget.Shape(m.Text, s.cfg.Budget, s.cfg.Counter.Count)
		t.conv.Decide(i, shaped.Text, shaped.Cut)
		if shaped.Cut {
			t.record.Shaped = append(t.record.Shaped, Shaped{Message: t.order[i], Tokens: shaped.OriginalTokens, Kept: shaped.KeptTokens})
		}
	}
}

// retrieve adds the tools that this turn needs and does not see yet. When the
// last message was decided before, the request is a retry: what was added stays,
// and only names that another tool_choice demands come behind it.
func (s *stages) retrieve(t *turn) error {
	ix := t.set.Index()
	visible := t.visible()
	t.record.AllTools, t.record.AllToolsTokens = ix.Len(), s.allTokens(t.set)
	if t.choice.Mode == grammar.Named {
		if _, ok := ix.Lookup(t.choice.Name); !ok {
			return badRequest("tool_choice", "tool_choice names %q, which is not among the tools", t.choice.Name)
		}
	}
	always := s.demanded(t, visible)
	q := ix.Segment(s.segment(t))
	last := t.conv.Len() - 1
	recorded := t.conv.Late(last)
	needed := t.choice.Mode == grammar.Required && !slices.ContainsFunc(t.conv.Shown(), func(tool prefix.Shown) bool {
		return tool.JSON != searchTool && t.allows(tool.Name)
	})
	var hits []retrieval.Hit
	if s.cfg.Retrieval && t.choice.Mode != grammar.None && t.messages[last].Role == "user" && (recorded == nil || needed) {
		q.Explain, q.Memory = true, s.memory(t)
		most := 4*s.cfg.TopK + len(visible)
		if t.allowed != nil {
			most = ix.Len() // the ones allowed may stand anywhere in the order
		}
		hits = slices.DeleteFunc(s.find(t, q, most), func(h retrieval.Hit) bool { return !t.allows(ix.Tool(h.Tool).Name) })
	}
	if needed && len(hits) == 0 {
		// A call is demanded and the words point nowhere: the tools in the order
		// in which they were given.
		for i := range ix.Len() {
			if len(hits) < s.cfg.TopK && t.allows(ix.Tool(i).Name) {
				hits = append(hits, retrieval.Hit{Tool: i, Score: 1})
			}
		}
	}
	front := t.conv.Front()
	budget := s.cfg.Tokens - s.tokens(t.set, front.Tools) - s.cfg.Counter.Count(front.Directory)
	sel := s.choose(t, hits, always, visible, max(budget, 1), len(q.Clauses))
	if needed && len(sel.Tools) == 0 && len(hits) > 0 { // none fits the budget
		sel = s.choose(t, hits, []string{ix.Tool(hits[0].Tool).Name}, visible, max(budget, 1), 1)
	}
	for _, block := range recorded {
		t.record.Retry = true
		for _, tool := range block.Tools {
			t.record.Added = append(t.record.Added, Chosen{Name: tool.Name, Tokens: s.tokens(t.set, []prefix.Shown{tool}), Why: "recorded"})
		}
	}
	sel.Tools = slices.DeleteFunc(sel.Tools, func(i int) bool { return !s.usable(t, i) })
	if len(sel.Tools) > 0 {
		t.add(&prefix.Block{Query: searchText(q, sel, ix)}, sel)
	} else if !t.conv.Decided(last) {
		t.conv.Decide(last, "", false)
	}
	s.explain(t, sel, hits)
	s.count(t)
	return nil
}

// visible are the names that stand in the prompt.
func (t *turn) visible() map[string]bool {
	names := map[string]bool{}
	for _, tool := range t.conv.Shown() {
		names[tool.Name] = true
	}
	return names
}

// choose selects from hits within tokens, behind the names that are always taken
// and without those that are visible. wishes is how many things the query asks for.
func (s *stages) choose(t *turn, hits []retrieval.Hit, always []string, visible map[string]bool, tokens, wishes int) retrieval.Selection {
	return retrieval.Select(t.set.Index(), hits, retrieval.SelectConfig{
		Tools: s.cfg.TopK, Tokens: tokens, Wishes: wishes, Slim: true, Always: always, Costs: t.set.Costs(s.cfg.Counter.Name()),
		Shown: func(name string) bool { return visible[name] },
	}, s.cfg.Counter.Count)
}

// usable says whether a tool can be held to its schema; one that can't be is not
// shown, and the record says why. The client is told instead (see constrain) where
// it can mend it and is told every time: of a tool that it names, and of its own
// tools when all of them stand in front.
func (s *stages) usable(t *turn, i int) bool {
	if !t.mayUse(i) {
		return false
	}
	tool := t.set.Index().Tool(i)
	if !s.cfg.Grammar || t.choice.Mode == grammar.Named && tool.Name == t.choice.Name || i < t.set.Client() && s.allInFront(t.set) {
		return true
	}
	_, err := grammar.Compile(grammar.Tool{Name: tool.Name, Schema: tool.Schema}, s.cfg.World)
	if err != nil && !slices.Contains(t.record.Dropped, err.Error()) {
		t.record.Dropped = append(t.record.Dropped, err.Error())
	}
	return err == nil
}

// add fills a block with the tools selected and appends it behind the last
// message.
func (t *turn) add(block *prefix.Block, sel retrieval.Selection) {
	ix := t.set.Index()
	for _, i := range sel.Tools {
		block.Tools = append(block.Tools, prefix.Shown{Name: ix.Tool(i).Name, JSON: string(sel.JSON(ix, i))})
	}
	last := t.conv.Len() - 1
	t.conv.Decide(last, t.conv.Text(last), t.conv.Replaced(last), append(slices.Clone(t.conv.Late(last)), block)...)
}

// demanded are the names that must be callable whatever they cost and are not
// visible yet: the one that tool_choice asks for; those called in history, which
// a lost ledger may have hidden; and where nothing is left to retrieval all of
// them, as the tools may have changed since the front block was decided. What the
// catalog lacks can't be shown.
func (s *stages) demanded(t *turn, visible map[string]bool) []string {
	ix := t.set.Index()
	var names []string
	seen := maps.Clone(visible)
	demand := func(name string) {
		if _, known := ix.Lookup(name); known && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for i := range t.messages {
		for _, k := range t.messages[i].Calls {
			demand(k.Name)
		}
	}
	if t.choice.Mode == grammar.Named {
		demand(t.choice.Name)
	}
	if len(t.allowed) <= s.cfg.TopK {
		for _, name := range t.allowed {
			demand(name)
		}
	}
	if s.allInFront(t.set) {
		for i := range ix.Len() {
			demand(ix.Tool(i).Name)
		}
	}
	return names
}

// segment is the conversation as retrieval reads it. Calls of tools that the
// catalog lacks tell it nothing.
func (s *stages) segment(t *turn) []retrieval.Message {
	msgs := make([]retrieval.Message, len(t.messages))
	for i := range t.messages {
		m := &t.messages[i]
		msgs[i] = retrieval.Message{Role: m.Role, Text: m.Text}
		for _, k := range m.Calls {
			if _, known := t.set.Index().Lookup(k.Name); known {
				msgs[i].Calls = append(msgs[i].Calls, k.Name)
			}
		}
	}
	return msgs
}

// maxQuery bounds the query text of a late block in bytes: it stands in the
// prompt, and the user's own words stand right above it.
const maxQuery = 120

// searchText is the query that a late block claims to answer: the user's words,
// cut at a space.
func searchText(q retrieval.Query, sel retrieval.Selection, ix *retrieval.Index) string {
	if len(q.Parts) == 0 {
		names := make([]string, len(sel.Tools))
		for i, tool := range sel.Tools {
			names[i] = ix.Tool(tool).Name
		}
		return "select:" + strings.Join(names, ",")
	}
	text := strings.Join(strings.Fields(q.Parts[0].Text), " ")
	if len(text) <= maxQuery {
		return text
	}
	text = strings.ToValidUTF8(text[:maxQuery], "")
	if i := strings.LastIndexByte(text, ' '); i > 0 {
		text = text[:i]
	}
	return text
}

// explain puts the choice into the record.
func (s *stages) explain(t *turn, sel retrieval.Selection, hits []retrieval.Hit) {
	ix := t.set.Index()
	for _, i := range sel.Tools {
		costs := t.set.Costs(s.cfg.Counter.Name())
		c := Chosen{Name: ix.Tool(i).Name, Tokens: costs.Of(ix, i, s.cfg.Counter.Count), Why: "must be callable"}
		for _, h := range hits {
			if h.Tool == i {
				c.Score, c.Why = h.Score, why(h)
			}
		}
		if slices.Contains(sel.Slimmed, i) {
			c.Tokens = costs.Slim(ix, i, s.cfg.Counter.Count)
			c.Why += "; slimmed"
		}
		t.record.Added = append(t.record.Added, c)
		t.record.AddedTokens += c.Tokens
	}
	for _, d := range sel.Dropped {
		if d.Why != retrieval.DropShown {
			t.record.Dropped = append(t.record.Dropped, ix.Tool(d.Tool).Name+": "+d.Why.String())
		}
	}
}

// why is a hit's reasons in a few words, the weightiest first.
func why(h retrieval.Hit) string {
	reasons := slices.Clone(h.Why)
	slices.SortStableFunc(reasons, func(a, b retrieval.Reason) int { return cmp.Compare(b.Score, a.Score) })
	var words []string
	for _, r := range reasons[:min(3, len(reasons))] {
		switch r.Kind {
		case retrieval.ReasonNamed:
			words = append(words, "named")
		case retrieval.ReasonServer:
			words = append(words, "server "+r.Term)
		case retrieval.ReasonTerm:
			words = append(words, fmt.Sprintf("%s in %s", r.Term, r.Field))
		default:
			words = append(words, r.Kind.String())
		}
	}
	return strings.Join(words, ", ")
}

// count sums up what the prompt shows.
func (s *stages) count(t *turn) {
	all := t.conv.Shown()
	t.record.Shown, t.record.Visible = len(all), nil
	for _, tool := range all {
		t.record.Visible = append(t.record.Visible, tool.Name)
	}
	t.record.FrontTokens = s.tokens(t.set, t.conv.Front().Tools) + s.cfg.Counter.Count(t.conv.Front().Directory)
	t.record.ShownTokens = t.record.FrontTokens + s.late(t)
}
