package proxy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/prefix"
	"github.com/toolsidecar/sidecar/retrieval"
)

// late counts the schema tokens of all late blocks.
func (s *stages) late(t *turn) int {
	n := 0
	for i := range t.conv.Len() {
		for _, b := range t.conv.Late(i) {
			n += s.tokens(t.set, b.Tools)
		}
	}
	return n
}

// epoch says why the conversation's prompt should start anew, "" when it should
// not. It does so at a message of the user only: within a tool loop the prompt
// stays. Beyond the bound of late tools the price decides, beyond twice the bound
// the bound.
func (s *stages) epoch(t *turn) string {
	last := t.conv.Len() - 1
	late := s.late(t)
	if late <= s.cfg.MaxLate || last < 0 || t.messages[last].Role != "user" {
		return ""
	}
	if late > 2*s.cfg.MaxLate {
		return fmt.Sprintf("the late tools have %d tokens, more than twice %d", late, s.cfg.MaxLate)
	}
	called := map[string]bool{}
	e := prefix.Epoch{Prompt: s.tokens(t.set, t.conv.Shown())}
	turns := 0
	for i := range t.messages {
		m := &t.messages[i]
		n := s.cfg.Counter.Count(t.conv.Text(i))
		e.Prompt += n
		if m.Role != "assistant" {
			continue
		}
		turns++
		e.Output += n
		for _, k := range m.Calls {
			called[k.Name] = true
		}
	}
	if turns == 0 {
		return ""
	}
	e.Output /= turns
	e.Turns = prefix.Expected(turns)
	for i := range t.conv.Len() {
		for _, b := range t.conv.Late(i) {
			e.Dead += s.tokens(t.set, slices.DeleteFunc(slices.Clone(b.Tools), func(tool prefix.Shown) bool { return called[tool.Name] }))
		}
	}
	saves := e.Saves()
	if saves <= 0 {
		return ""
	}
	return fmt.Sprintf("%d tokens of tools that nobody calls, over %d expected turns, cost %.0f tokens of prefill more than a new prompt", e.Dead, e.Turns, saves)
}

func (s *stages) tokens(set *catalog.Catalog, shown []prefix.Shown) int {
	n := 0
	for _, tool := range shown {
		if i, ok := set.Index().Lookup(tool.Name); ok && tool.JSON == string(set.Index().Tool(i).Raw) {
			n += set.Costs(s.cfg.Counter.Name()).Of(set.Index(), i, s.cfg.Counter.Count)
			continue
		}
		n += s.cfg.Counter.Count(tool.JSON)
	}
	return n
}

// front decides the front block: all tools when they fit or nothing is
// retrieved, else tool_search, the pins and a directory of what else exists.
func (s *stages) front(t *turn) *prefix.Block {
	ix := t.set.Index()
	if s.allInFront(t.set) {
		b := &prefix.Block{}
		for i := range ix.Len() {
			if s.usable(t, i) {
				b.Tools = append(b.Tools, shown(ix.Tool(i)))
			}
		}
		return b
	}
	b := &prefix.Block{Directory: directory(ix, s.cfg.Rounds > 0, min(directoryTokens, s.cfg.Tokens/3), s.cfg.Counter.Count)}
	if _, taken := ix.Lookup(prefix.SearchTool); s.cfg.Rounds > 0 && !taken {
		b.Tools = append(b.Tools, prefix.Shown{Name: prefix.SearchTool, JSON: searchTool})
	}
	for _, pin := range s.cfg.Pins {
		if i, ok := ix.Lookup(pin); ok && s.usable(t, i) {
			b.Tools = append(b.Tools, shown(ix.Tool(i)))
		}
	}
	return b
}

// allInFront says that nothing of a set is left to retrieval.
func (s *stages) allInFront(set *catalog.Catalog) bool {
	return !s.cfg.Retrieval || s.allTokens(set) <= s.cfg.Tokens
}

// allTokens is the price of showing every tool.
func (s *stages) allTokens(set *catalog.Catalog) int {
	return set.Costs(s.cfg.Counter.Name()).All(set.Index(), s.cfg.Counter.Count)
}

func shown(t *retrieval.Tool) prefix.Shown {
	return prefix.Shown{Name: t.Name, JSON: string(t.Raw)}
}

// CoreTokens is the price of a front block without pins: tool_search and the
// directory of a catalog that doesn't fit in tokens.
func CoreTokens(ix *retrieval.Index, tokens int, count func(string) int) int {
	return count(searchTool) + count(directory(ix, true, min(directoryTokens, tokens/3), count))
}

// directoryTokens bounds the directory of the front block; a third of --tool-tokens
// does so too, so that it leaves room for tools.
const directoryTokens = 400

// What stands in a directory before its lists.
const (
	byName   = " By name: "
	byServer = " By server: "
)

// directory names what exists beyond the front block: the tools by name while
// they fit in most tokens, else the servers with their sizes, else only the count.
func directory(ix *retrieval.Index, search bool, most int, count func(string) int) string {
	names := make([]string, ix.Len())
	servers := map[string]int{}
	for i := range names {
		t := ix.Tool(i)
		names[i] = t.Name
		servers[t.Origin()]++
	}
	slices.Sort(names)
	head := fmt.Sprintf("%d more tools exist. The ones that fit the task are added to the conversation as it goes; call only tools whose signature you have seen.", len(names))
	if search {
		head += " If none fits, call " + prefix.SearchTool + "."
	}
	if text := head + byName + strings.Join(names, ", "); count(text) <= most {
		return text
	}
	delete(servers, "")
	list := make([]string, 0, len(servers))
	for name, n := range servers {
		list = append(list, fmt.Sprintf("%s (%d)", name, n))
	}
	slices.Sort(list)
	if text := head + byServer + strings.Join(list, ", "); len(list) > 1 && count(text) <= most {
		return text
	}
	return head
}

// listsWithheld says whether a directory names a tool of whole, or a server all of
// whose tools are of whole, that was cut from set.
func listsWithheld(directory string, set, whole *catalog.Catalog) bool {
	if set == whole || whole == nil {
		return false
	}
	if _, names, ok := strings.Cut(directory, byName); ok {
		return slices.ContainsFunc(strings.Split(names, ", "), func(name string) bool { return withheldFrom(set, whole, name) })
	}
	_, list, ok := strings.Cut(directory, byServer)
	if !ok {
		return false
	}
	servers := func(c *catalog.Catalog) map[string]bool {
		m := map[string]bool{}
		for i := range c.Tools() {
			m[c.Tools()[i].Origin()] = true
		}
		return m
	}
	left, all := servers(set), servers(whole)
	return slices.ContainsFunc(strings.Split(list, ", "), func(entry string) bool {
		name, _, _ := strings.Cut(entry, " (")
		return all[name] && !left[name]
	})
}

// withheldFrom says that a tool of whole was cut from set.
func withheldFrom(set, whole *catalog.Catalog, name string) bool {
	if set == whole || whole == nil {
		return false
	}
	_, ok := set.Lookup(name)
	_, exists := whole.Lookup(name)
	return exists && !ok
}
