package prefix

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/models/wire"
)

// mapLedger never forgets.
type mapLedger map[Key]*Entry

func (m mapLedger) Get(k Key) (*Entry, bool) { e, ok := m[k]; return e, ok }
func (m mapLedger) Put(k Key, e *Entry)      { m[k] = e }

var testScope = Scope{Secret: []byte("secret"), Tenant: "t", Fingerprint: "model"}

func hermes(t interface{ Fatal(...any) }) *wire.Family {
	f, err := wire.ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func dump(turns []Turn) string {
	var b strings.Builder
	for _, t := range turns {
		fmt.Fprintf(&b, "%s %d %q\n", t.Role, t.Client, t.Text)
	}
	return b.String()
}

// TestLayoutGrows plays random conversations as a client would and checks that
// each turn's layout begins with the layout of the turn before followed by the
// generated text, whatever the client does to ids, argument spelling, reasoning
// and the order of results.
func TestLayoutGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, ledger := hermes(t), mapLedger{}
		text := rapid.StringMatching(`[a-z <>"\n]{0,20}`)
		var msgs []Message
		if rapid.Bool().Draw(t, "system") {
			msgs = append(msgs, Message{Role: "system", Text: text.Draw(t, "sys")})
		}
		before := ""
		toolset := "tools"
		for turn := range rapid.IntRange(1, 5).Draw(t, "turns") {
			if n := len(msgs); n > 0 && len(msgs[n-1].Calls) > 0 {
				calls := msgs[n-1].Calls
				for _, i := range rapid.Permutation(indices(len(calls))).Draw(t, "order") {
					msgs = append(msgs, Message{Role: "tool", CallID: calls[i].ID, Text: text.Draw(t, "result")})
				}
			} else {
				msgs = append(msgs, Message{Role: "user", Text: text.Draw(t, "user")})
			}
			if turn > 0 && rapid.IntRange(0, 3).Draw(t, "change tools") == 0 {
				toolset += "+"
			}
			sorted := make([]Message, len(msgs))
			for i, j := range SortResults(msgs) {
				sorted[i] = msgs[j]
			}
			c := Open(ledger, testScope, toolset, sorted)
			if turn > 0 && c.Front() == nil {
				t.Fatalf("turn %d: the conversation was not recognised", turn)
			}
			if c.Front() == nil {
				c.SetFront(&Block{Tools: []Shown{{"pinned", `{"type": "function", "function": {"name": "pinned"}}`}}, Directory: "more exist"})
			}
			last := c.Len() - 1
			if !c.Decided(last) && rapid.Bool().Draw(t, "late") {
				name := fmt.Sprintf("tool%d", turn)
				blocks := []*Block{{Query: text.Draw(t, "query"), Tools: []Shown{{name, `{"name": "` + name + `"}`}}}}
				c.Decide(last, "", false, blocks...)
				if rapid.Bool().Draw(t, "searched") { // a round of the same request
					round := dump(c.Layout(f))
					asked := "let me see\n<raw search>"
					c.Decide(last, "", false, append(blocks, &Block{Call: asked, Note: "nothing found"})...)
					if now := dump(c.Layout(f)); !strings.HasPrefix(now, round+dump([]Turn{{Role: "assistant", Text: asked, Client: -1}})) {
						t.Fatalf("a search round does not continue the prompt:\n%s\n%s", round, now)
					}
				}
			}
			now := dump(c.Layout(f))
			if !strings.HasPrefix(now, before) {
				t.Fatalf("turn %d does not begin with the turn before:\n--- before\n%s--- now\n%s", turn, before, now)
			}
			if again := dump(Open(ledger, testScope, toolset, sorted).Layout(f)); again != now {
				t.Fatalf("a retry is laid out otherwise:\n%s\n%s", now, again)
			}
			// the engine generates; the client keeps its own form of it
			said := Message{Role: "assistant", Text: text.Draw(t, "said")}
			raw := said.Text + "\n<raw>"
			for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
				said.Calls = append(said.Calls, Call{ID: fmt.Sprint(turn, i), Name: "pinned", Arguments: fmt.Sprintf(`{"b": 1.0, "a": [%d, null]}`, i)})
			}
			c.Reply(said, Generated{Text: raw})
			before = now + dump([]Turn{{Role: "assistant", Text: raw, Client: -1}})
			// clients drop reasoning, renumber ids and re-dump arguments
			back := Message{Role: "assistant", Text: said.Text}
			for i, k := range said.Calls {
				back.Calls = append(back.Calls, Call{ID: "x" + k.ID, Name: k.Name, Arguments: fmt.Sprintf(`{"a":[%d,null],"b":1}`, i)})
			}
			msgs = append(msgs, back)
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestKeys: what has another meaning has another key, what has the same has the
// same.
func TestKeys(t *testing.T) {
	base := []Message{{Role: "user", Text: "a"}, {Role: "assistant", Calls: []Call{{"1", "n", `{"x":1}`}, {"2", "m", `{}`}}}, {Role: "tool", CallID: "1", Text: "r"}}
	key := func(edit func([]Message)) Key {
		msgs := make([]Message, len(base))
		copy(msgs, base)
		msgs[1].Calls = append([]Call(nil), base[1].Calls...)
		edit(msgs)
		k := chain(Key{}, meanings(msgs))
		return k[len(k)-1]
	}
	want := key(func([]Message) {})
	for name, edit := range map[string]func([]Message){
		"renumbered ids":     func(m []Message) { m[1].Calls[0].ID, m[2].CallID = "9", "9" },
		"re-dumped":          func(m []Message) { m[1].Calls[0].Arguments = "{ \"x\" : 1.0 }" },
		"reasoning dropped":  func(m []Message) { m[1].Reasoning = "hm" },
		"arguments with e":   func(m []Message) { m[1].Calls[0].Arguments = `{"x":1e0}` },
		"escaped characters": func(m []Message) { m[1].Calls[0].Arguments = `{"\u0078":1}` },
	} {
		if key(edit) != want {
			t.Errorf("%s: another key", name)
		}
	}
	for name, edit := range map[string]func([]Message){
		"text":              func(m []Message) { m[0].Text = "b" },
		"role":              func(m []Message) { m[0].Role = "system" },
		"argument":          func(m []Message) { m[1].Calls[0].Arguments = `{"x":2}` },
		"argument type":     func(m []Message) { m[1].Calls[0].Arguments = `{"x":"1"}` },
		"big integer":       func(m []Message) { m[1].Calls[0].Arguments = `{"x":9007199254740993}` },
		"call name":         func(m []Message) { m[1].Calls[0].Name = "o" },
		"call order":        func(m []Message) { m[1].Calls[0], m[1].Calls[1] = m[1].Calls[1], m[1].Calls[0] },
		"other call":        func(m []Message) { m[2].CallID = "2" },
		"unknown call":      func(m []Message) { m[2].CallID = "3" },
		"text moved across": func(m []Message) { m[0].Role, m[0].Text = "use", "ra" },
	} {
		if key(edit) == want {
			t.Errorf("%s: the same key", name)
		}
	}
}

func TestCanonicalJSON(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"b":1,"a":[true,null,"x"]}`, `{"a":[true,null,"x"],"b":1}`},
		{` {"a" : 1.50e1}`, `{"a":15}`},
		{`{"a":9007199254740993}`, `{"a":9007199254740993}`},
		{`{"a":-0}`, `{"a":0}`},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`}, // repeated: not ours to judge
		{`{"a":1} x`, `{"a":1} x`},
		{`{"a":`, `{"a":`},
		{``, ``},
		{`[1,2`, `[1,2`},
	} {
		if got := CanonicalJSON(tt.in); got != tt.want {
			t.Errorf("CanonicalJSON(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	deep := strings.Repeat("[", 100_000)
	if got := CanonicalJSON(deep); got != deep {
		t.Error("deep text was changed")
	}
}

// TestScopes: tenants, models and secrets don't share entries; the same first
// message under other tools is another conversation.
func TestScopes(t *testing.T) {
	l := mapLedger{}
	msgs := []Message{{Role: "user", Text: "hi"}}
	c := Open(l, testScope, "tools", msgs)
	c.SetFront(&Block{Directory: "mine"})
	c.Decide(0, "", false, &Block{Tools: []Shown{{"a", "{}"}}})
	for name, scope := range map[string]Scope{
		"tenant":      {testScope.Secret, "other", testScope.Fingerprint},
		"fingerprint": {testScope.Secret, testScope.Tenant, "other"},
		"secret":      {[]byte("other"), testScope.Tenant, testScope.Fingerprint},
	} {
		if o := Open(l, scope, "tools", msgs); o.Front() != nil || o.Decided(0) {
			t.Errorf("another %s sees the conversation", name)
		}
	}
	if o := Open(l, testScope, "other tools", msgs); o.Front() != nil || o.Decided(0) {
		t.Error("another toolset sees the conversation")
	}
	if o := Open(l, testScope, "tools", msgs); o.Front() == nil || len(o.Late(0)) == 0 {
		t.Error("the conversation was forgotten")
	}
}

// TestEditBranches: an edited message keeps what stands before it and decides
// anew from there.
func TestEditBranches(t *testing.T) {
	l := mapLedger{}
	first := []Message{{Role: "user", Text: "one"}}
	c := Open(l, testScope, "tools", first)
	c.SetFront(&Block{Directory: "d"})
	c.Decide(0, "", false)
	said := Message{Role: "assistant", Text: "ok"}
	c.Reply(said, Generated{Text: "ok!", Reasoning: "because"})
	c = Open(l, testScope, "tools", append(first, said, Message{Role: "user", Text: "edited"}))
	if !c.Decided(0) || !c.Replaced(1) || c.Text(1) != "ok!" || c.Reasoning(1) != "because" || c.Decided(2) {
		t.Errorf("before the edit: decided %v, reply %q %q; at it: %v", c.Decided(0), c.Text(1), c.Reasoning(1), c.Decided(2))
	}
}

// TestSameWords: two agents with the same words, the same reply and different
// tools keep their own front blocks; the one whose tools change then keeps the
// one it had.
func TestSameWords(t *testing.T) {
	l := mapLedger{}
	msgs := []Message{{Role: "user", Text: "hi"}}
	said := Message{Role: "assistant", Text: "Hello!"}
	for _, agent := range []string{"a", "b"} {
		c := Open(l, testScope, agent, msgs)
		c.SetFront(&Block{Directory: agent})
		c.Reply(said, Generated{Text: said.Text})
	}
	next := []Message{msgs[0], said, {Role: "user", Text: "more"}}
	for toolset, want := range map[string]string{"a": "a", "b": "b", "c": "b"} {
		if f := Open(l, testScope, toolset, next).Front(); f == nil || f.Directory != want {
			t.Errorf("toolset %s: front %+v, want that of %s", toolset, f, want)
		}
	}
}

// TestManyResults: the order of 200,000 results is found in time that a look-up by
// scanning their calls would not do with.
func TestManyResults(t *testing.T) {
	const n = 200_000
	msgs := make([]Message, 1, n+1)
	for i := range n {
		msgs[0].Calls = append(msgs[0].Calls, Call{ID: fmt.Sprint("call_", i), Name: "n"})
		msgs = append(msgs, Message{Role: "tool", CallID: fmt.Sprint("call_", n-1-i)})
	}
	msgs[0].Role = "assistant"
	order := SortResults(msgs)
	if order[1] != n || order[n] != 1 {
		t.Errorf("first %d, last %d", order[1], order[n])
	}
	Open(mapLedger{}, testScope, "tools", msgs)
}
