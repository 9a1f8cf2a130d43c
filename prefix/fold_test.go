package prefix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// talk is a conversation of three rounds with two parallel calls, shaped results,
// reasoning and late tools, played against a ledger: what a client has at its end,
// and how the last prompt was laid out with the reply behind it.
type talk struct {
	ledger   mapLedger
	messages []Message
	layout   string
}

var talkCalls = []Call{{"c1", "weather", `{"city": "Oslo", "days": 2, "unit": null}`}, {"c2", "weather", `{"city": "Bergen", "days": 3}`}}

// play lays out msgs as a sidecar does, deciding what is not decided, and records
// what the engine said.
func (k *talk) play(t interface{ Fatal(...any) }, tools string, msgs []Message, said Message, raw string) string {
	sorted := make([]Message, len(msgs))
	for i, j := range SortResults(msgs) {
		sorted[i] = msgs[j]
	}
	c := Open(k.ledger, testScope, tools, sorted)
	if c.Front() == nil {
		c.SetFront(&Block{Tools: []Shown{{"core", `{"name": "core"}`}}, Directory: "more of " + tools})
	}
	for i := range c.Len() {
		if m := c.Message(i); m.Role == "tool" && !c.Decided(i) {
			c.Decide(i, "short "+m.Text, true)
		}
	}
	if last := c.Len() - 1; !c.Decided(last) {
		var late []*Block
		if c.Message(last).Role == "user" {
			late = append(late, &Block{Query: c.Message(last).Text, Tools: []Shown{{"weather", `{"name": "weather"}`}}})
		}
		c.Decide(last, "", false, late...)
	}
	laid := dump(c.Layout(hermes(t)))
	if raw != "" {
		c.Reply(said, Generated{Text: raw, Reasoning: said.Reasoning})
	}
	return laid
}

func newTalk(t interface{ Fatal(...any) }) *talk {
	k := &talk{ledger: mapLedger{}}
	say := func(m ...Message) { k.messages = append(k.messages, m...) }
	step := func(said Message, raw string) {
		k.layout = k.play(t, "tools", k.messages, said, raw)
		say(said)
	}
	say(Message{Role: "system", Text: "Be brief."}, Message{Role: "user", Text: "Weather?"})
	step(Message{Role: "assistant", Reasoning: "Two cities.", Text: "Let me look.\n", Calls: talkCalls}, "Let me look.\n\n<raw calls>")
	say(Message{Role: "tool", CallID: "c1", Text: "rain"}, Message{Role: "tool", CallID: "c2", Text: "sun"})
	step(Message{Role: "assistant", Text: "Rain and sun."}, "Rain and sun.")
	say(Message{Role: "user", Text: "And tomorrow?"})
	step(Message{Role: "assistant", Text: " The same. "}, " The same. ")
	k.layout += dump([]Turn{{Role: "assistant", Text: " The same. ", Client: -1}})
	return k
}

func cloneMessages(msgs []Message) []Message {
	out := slices.Clone(msgs)
	for i := range out {
		out[i].Calls = slices.Clone(out[i].Calls)
	}
	return out
}

// manglings are what clients do to the messages of a talk that mean the same
// afterwards.
var manglings = map[string]func([]Message){
	"ids numbered anew":        func(m []Message) { renumber(m, "x", "y") },
	"ids exchanged":            func(m []Message) { renumber(m, m[2].Calls[1].ID, m[2].Calls[0].ID) },
	"results in another order": func(m []Message) { m[3], m[4] = m[4], m[3] },
	"arguments written anew": func(m []Message) {
		m[2].Calls[0].Arguments = `{"unit":null,"days":2.0,"city":"\u004fslo"}`
	},
	"nulls left out":             func(m []Message) { m[2].Calls[0].Arguments = `{"days":2,"city":"Oslo"}` },
	"reasoning dropped":          func(m []Message) { m[2].Reasoning = "" },
	"reasoning put into content": func(m []Message) { m[2].Text = "<think>\nTwo cities.\n</think>\n\nLet me look." },
	"text trimmed":               func(m []Message) { m[2].Text, m[7].Text = "Let me look.", "The same." },
	"names of functions added":   func(m []Message) { m[3].Name, m[4].Name, m[2].Name = "weather", "weather", "assistant" },
}

// renumber gives both calls other ids, and their results with them.
func renumber(m []Message, ids ...string) {
	to := map[string]string{m[2].Calls[0].ID: ids[0], m[2].Calls[1].ID: ids[1]}
	for i := range m[2].Calls {
		m[2].Calls[i].ID = to[m[2].Calls[i].ID]
	}
	for i := 3; i <= 4; i++ {
		m[i].CallID = to[m[i].CallID]
	}
}

// TestMangled: a conversation goes on as it was, whatever of these a client does to
// its messages, alone or together.
func TestMangled(t *testing.T) {
	check := func(t interface {
		Fatal(...any)
		Fatalf(string, ...any)
	}, names []string) {
		k := newTalk(t)
		msgs := cloneMessages(k.messages)
		for _, name := range names {
			manglings[name](msgs)
		}
		msgs = append(msgs, Message{Role: "user", Text: "Thanks."})
		if now := k.play(t, "tools", msgs, Message{}, ""); !strings.HasPrefix(now, k.layout) {
			t.Fatalf("%q: the prompt does not begin with the one before:\n%s\n%s", names, k.layout, now)
		}
	}
	all := slices.Sorted(maps.Keys(manglings))
	for _, name := range all {
		check(t, []string{name})
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID).Draw(t, "manglings"))
	})
}

// TestBranches: what an edit, a retry, compaction or a sibling leaves of a
// conversation's prompt, in turns that stay.
func TestBranches(t *testing.T) {
	lines := func(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }
	for _, tt := range []struct {
		name  string
		edit  func([]Message) []Message
		keeps int    // turns of the prompt before
		tools string // on offer; "" for the same
	}{
		// The layout of a talk: system, user, search, tools; assistant, results;
		// assistant, user, search, tools; assistant.
		{"a retry of the last turn", func(m []Message) []Message { return m[:7] }, 10, ""},
		{"an edit of the last user message", func(m []Message) []Message { m[6].Text = "And today?"; return m[:7] }, 7, ""},
		{"an edit of the first user message", func(m []Message) []Message { m[1].Text = "Sun?"; return m }, 1, ""},
		{"an edit of a result", func(m []Message) []Message { m[4].Text = "snow"; return m[:5] }, 5, ""},
		{"an edit of what the model said", func(m []Message) []Message { m[5].Text = "Rain."; return m[:7] }, 6, ""},
		{"another way from the first reply on", func(m []Message) []Message {
			return append(m[:2:2], Message{Role: "assistant", Text: "No."}, Message{Role: "user", Text: "Why?"})
		}, 4, ""},
		{"a sibling with the same system text", func(m []Message) []Message { return []Message{m[0], {Role: "user", Text: "Stocks?"}} }, 1, ""},
		{"a sibling of the same words", func(m []Message) []Message { return m[:2] }, 4, ""},
		{"compaction", func(m []Message) []Message {
			return []Message{m[0], {Role: "user", Text: "So far: rain and sun."}, m[6], m[7], {Role: "user", Text: "Thanks."}}
		}, 1, ""},
		{"other tools at the end", func(m []Message) []Message { return append(m, Message{Role: "user", Text: "Thanks."}) }, 11, "more tools"},
		{"an edit with other tools", func(m []Message) []Message { m[6].Text = "And today?"; return m[:7] }, 7, "more tools"},
	} {
		k := newTalk(t)
		if n := len(lines(k.layout)); n != 11 {
			t.Fatalf("the talk has %d turns:\n%s", n, k.layout)
		}
		tools := tt.tools
		if tools == "" {
			tools = "tools"
		}
		now := k.play(t, tools, tt.edit(cloneMessages(k.messages)), Message{}, "")
		before, after := lines(k.layout), lines(now)
		n := 0
		for n < min(len(before), len(after)) && before[n] == after[n] {
			n++
		}
		if n != tt.keeps {
			t.Errorf("%s: %d turns stay, want %d:\n%s\n%s", tt.name, n, tt.keeps, k.layout, now)
		}
		// and the conversation before is as it was
		if again := k.play(t, "tools", append(cloneMessages(k.messages), Message{Role: "user", Text: "Thanks."}), Message{}, ""); !strings.HasPrefix(again, k.layout) {
			t.Errorf("%s: the conversation itself has changed:\n%s\n%s", tt.name, k.layout, again)
		}
	}
}

// TestParallelAgents: agents that share a prefix and take turns in any order keep
// each its own prompt.
func TestParallelAgents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newTalk(t)
		const agents = 4
		var msgs [agents][]Message
		var before [agents]string
		for a := range agents {
			msgs[a] = append(cloneMessages(k.messages), Message{Role: "user", Text: fmt.Sprint("task ", a/2)}) // two of each task
			before[a] = k.layout
		}
		for range rapid.IntRange(4, 16).Draw(t, "turns") {
			a := rapid.IntRange(0, agents-1).Draw(t, "agent")
			said := Message{Role: "assistant", Text: fmt.Sprint("agent ", a, " turn ", len(msgs[a]))}
			now := k.play(t, "tools", msgs[a], said, said.Text)
			if !strings.HasPrefix(now, before[a]) {
				t.Fatalf("agent %d: the prompt does not begin with the one before:\n%s\n%s", a, before[a], now)
			}
			before[a] = now + dump([]Turn{{Role: "assistant", Text: said.Text, Client: -1}})
			msgs[a] = append(msgs[a], said, Message{Role: "user", Text: "go on"})
		}
	})
}

// TestForgetful: whatever entries a ledger has lost, every message of the client
// stands in the prompt, the results in full or as they were shortened, and the
// reply's key is still found.
func TestForgetful(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newTalk(t)
		for _, key := range slices.SortedFunc(maps.Keys(k.ledger), func(a, b Key) int { return strings.Compare(string(a[:]), string(b[:])) }) {
			if rapid.Bool().Draw(t, "lost") {
				delete(k.ledger, key)
			}
		}
		now := k.play(t, "tools", append(cloneMessages(k.messages), Message{Role: "user", Text: "Thanks."}), Message{}, "")
		for _, text := range []string{"Be brief.", "Weather?", "Let me look.", "rain", "sun", "Rain and sun.", "And tomorrow?", "The same.", "Thanks."} {
			if !strings.Contains(now, text) {
				t.Fatalf("%q is missing in\n%s", text, now)
			}
		}
	})
}

// TestMeaning: texts that a client may trim or not mean the same, and nothing else
// does.
func TestMeaning(t *testing.T) {
	for _, tt := range []struct {
		a, b Message
		same bool
	}{
		{Message{Role: "assistant", Text: "a"}, Message{Role: "assistant", Text: " a\n"}, true},
		{Message{Role: "assistant", Text: "a b"}, Message{Role: "assistant", Text: "a  b"}, false},
		{Message{Role: "user", Text: "a"}, Message{Role: "user", Text: "a "}, false},
		{Message{Role: "tool", Text: "a"}, Message{Role: "tool", Text: "a\n"}, false},
		{Message{Role: "system", Text: "a"}, Message{Role: "system", Text: "a\n"}, false},
		{Message{Role: "user", Text: "a", Name: "x"}, Message{Role: "user", Text: "a", Name: "y"}, false},
		{Message{Role: "assistant", Calls: []Call{{"", "f", ""}}}, Message{Role: "assistant", Calls: []Call{{"", "f", "{}"}}}, true},
		{Message{Role: "assistant", Calls: []Call{{"", "f", `{"a":null}`}}}, Message{Role: "assistant", Calls: []Call{{"", "f", "{}"}}}, true},
		{Message{Role: "assistant", Calls: []Call{{"", "f", `{"a":[null]}`}}}, Message{Role: "assistant", Calls: []Call{{"", "f", `{"a":[]}`}}}, false},
		{Message{Role: "assistant", Calls: []Call{{"", "f", `{"a":0}`}}}, Message{Role: "assistant", Calls: []Call{{"", "f", "{}"}}}, false},
	} {
		if same := tt.a.meaning(positions{}) == tt.b.meaning(positions{}); same != tt.same {
			t.Errorf("%+v and %+v: the same is %v", tt.a, tt.b, same)
		}
	}
}

// TestKeep: calls behind an edit, which the ledger does not have, stand in later
// prompts as they did when they were first seen, whatever the client makes of them.
func TestKeep(t *testing.T) {
	k := newTalk(t)
	edit := func(r []Message) []Message {
		r = cloneMessages(r)
		r[1].Text = "Weather, please?"
		return r
	}
	lay := func(msgs []Message) string {
		sorted := make([]Message, len(msgs))
		for i, j := range SortResults(msgs) {
			sorted[i] = msgs[j]
		}
		c := Open(k.ledger, testScope, "tools", sorted)
		for i := range c.Len() {
			if c.Message(i).Role == "tool" && !c.Decided(i) {
				c.Decide(i, "", false)
			}
		}
		c.Keep()
		return dump(c.Layout(hermes(t)))
	}
	before := lay(edit(k.messages))
	for _, name := range []string{"ids numbered anew", "results in another order", "arguments written anew", "nulls left out", "reasoning dropped"} {
		msgs := edit(k.messages)
		manglings[name](msgs)
		if now := lay(append(msgs, Message{Role: "user", Text: "Thanks."})); !strings.HasPrefix(now, before) {
			t.Errorf("%s: the prompt does not begin with the one before:\n%s\n%s", name, before, now)
		}
	}
}
