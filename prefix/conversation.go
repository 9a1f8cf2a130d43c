package prefix

import "slices"

// Conversation is one request's message list with the decisions that the ledger
// holds for it. It is used by one goroutine.
type Conversation struct {
	ledger   Ledger
	root     Key
	name     Name
	first    int   // index of the first user message; len(messages) when there is none
	meanings []Key // of the messages
	plain    []Key // chain that does not depend on tools, for aliases
	keys     []Key
	entries  []*Entry // nil where nothing is recorded
	messages []Message
	front    *Block
}

// Open looks the messages up. They must be in the order of SortResults.
//
// toolset identifies the tools on offer. A conversation starts under a root that
// includes it, so that two agents with the same first message and other tools
// stay apart; it keeps that root when the tools change later, which Open finds
// through the alias that a recorded reply leaves under a key free of tools. A
// reply recorded under its own root goes before an alias, which may be that of
// another agent with the same words.
func Open(l Ledger, scope Scope, toolset string, msgs []Message) *Conversation {
	c := &Conversation{
		ledger:   l,
		root:     scope.root("tools", toolset),
		messages: slices.Clone(msgs),
		meanings: meanings(msgs),
	}
	c.plain = chain(scope.root("plain", ""), c.meanings)
	c.first = slices.IndexFunc(msgs, func(m Message) bool { return m.Role == "user" })
	if c.first < 0 {
		c.first = len(msgs)
	}
	c.name = scope.name(c.meanings[:min(c.first+1, len(msgs))])
	own := chain(c.root, c.meanings)
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Role != "assistant" {
			continue
		}
		if _, ok := l.Get(own[i]); ok {
			break
		}
		if e, ok := l.Get(c.plain[i]); ok && e.Origin != nil {
			c.root = *e.Origin
			break
		}
	}
	c.recall()
	return c
}

// Renew forgets what is recorded and starts a new epoch under a root of its own:
// a shown name has changed its meaning. Epoch identifies the new meaning.
func (c *Conversation) Renew(scope Scope, epoch string) {
	c.root = scope.root("epoch", epoch)
	c.recall()
}

func (c *Conversation) recall() {
	c.keys = chain(c.root, c.meanings)
	c.entries = make([]*Entry, len(c.messages))
	c.front = nil
	if e, ok := c.ledger.Get(c.root); ok {
		c.front = e.Front
	}
	for i, k := range c.keys {
		if e, ok := c.ledger.Get(k); ok {
			c.entries[i] = e
			c.asKept(i)
		}
	}
}

// Keep records how assistant messages stand that have calls and that the ledger
// does not have, such as those behind an edit. Their turns are written from what
// the client sends, which it may write otherwise next time. Messages before the
// first of a user belong to no conversation and are not kept.
func (c *Conversation) Keep() {
	for i := c.first; i < len(c.messages); i++ {
		m := &c.messages[i]
		if c.entries[i] != nil || m.Role != "assistant" || len(m.Calls) == 0 || m.Opaque != nil {
			continue
		}
		e := &Entry{Conversation: c.name, Text: m.Text, Reasoning: m.Reasoning, Calls: slices.Clone(m.Calls)}
		for j := range e.Calls {
			e.Calls[j].ID = ""
		}
		c.entries[i] = e
		c.ledger.Put(c.keys[i], e)
	}
}

// asKept gives message i the words that Keep recorded. Its ids stay the client's.
func (c *Conversation) asKept(i int) {
	e, m := c.entries[i], &c.messages[i]
	if e.Replaced || len(e.Calls) == 0 || len(e.Calls) != len(m.Calls) {
		return
	}
	m.Text, m.Reasoning = e.Text, e.Reasoning
	calls := slices.Clone(e.Calls)
	for j := range calls {
		calls[j].ID = m.Calls[j].ID
	}
	m.Calls = calls
}

// chain gives the key after each message.
func chain(k Key, meanings []Key) []Key {
	keys := make([]Key, len(meanings))
	for i, m := range meanings {
		k = k.next(m)
		keys[i] = k
	}
	return keys
}

// Root names the conversation's epoch.
func (c *Conversation) Root() Key { return c.root }

// Name names the conversation through all its epochs.
func (c *Conversation) Name() Name { return c.name }

// Len is the number of messages.
func (c *Conversation) Len() int { return len(c.messages) }

// Message returns the i-th message.
func (c *Conversation) Message(i int) *Message { return &c.messages[i] }

// Front is the recorded front block, nil when none is.
func (c *Conversation) Front() *Block { return c.front }

// SetFront records the front block.
func (c *Conversation) SetFront(b *Block) {
	c.front = b
	c.ledger.Put(c.root, &Entry{Front: b})
}

// Decided says whether a decision is recorded at message i.
func (c *Conversation) Decided(i int) bool { return c.entries[i] != nil }

// Text is the text that stands in the prompt for message i.
func (c *Conversation) Text(i int) string {
	if e := c.entries[i]; e != nil && e.Replaced {
		return e.Text
	}
	return c.messages[i].Text
}

// Replaced says whether Text(i) is ours rather than the client's.
func (c *Conversation) Replaced(i int) bool { return c.entries[i] != nil && c.entries[i].Replaced }

// Reasoning is what the engine reported apart from the text of an assistant
// message, as recorded; the client may have dropped it, or may send what stands in
// the recorded text.
func (c *Conversation) Reasoning(i int) string {
	if c.Replaced(i) {
		return c.entries[i].Reasoning
	}
	return c.messages[i].Reasoning
}

// Late are the blocks recorded after message i.
func (c *Conversation) Late(i int) []*Block {
	if e := c.entries[i]; e != nil {
		return e.Late
	}
	return nil
}

// Decide records the decision at message i: the text that replaces the client's
// (when replaced) and the late blocks.
func (c *Conversation) Decide(i int, text string, replaced bool, late ...*Block) {
	e := &Entry{Replaced: replaced, Late: late}
	if i >= c.first {
		e.Conversation = c.name
	}
	if replaced {
		e.Text = text
	}
	c.entries[i] = e
	c.ledger.Put(c.keys[i], e)
}

// Generated is what the engine made of an assistant turn.
type Generated struct {
	Text      string
	Reasoning string  // what the engine reported apart from Text
	Open      bool    // it was cut by length, or the client left
	Prompt    *Prompt // what it was generated from; nil when that was no list of ids
	Output    []int32 // the ids of reasoning and text, without the one that ended them; used with Prompt only
}

// Reply records the assistant turn that answers the messages; said is what the
// client was given. A finished turn is not replaced by an open one.
func (c *Conversation) Reply(said Message, g Generated) {
	last := len(c.messages) - 1
	k, plain := c.root, Key{}
	if last >= 0 {
		k, plain = c.keys[last], c.plain[last]
	}
	meaning := said.meaning(positions{})
	k = k.next(meaning)
	if g.Open {
		if e, ok := c.ledger.Get(k); ok && !e.Open {
			return
		}
	}
	e := &Entry{Conversation: c.name, Text: g.Text, Replaced: true, Reasoning: g.Reasoning, Open: g.Open}
	if p := g.Prompt; p != nil && len(g.Output) > 0 {
		e.Tokens = &Tokens{From: p.from, Sum: p.sum, Head: PackIDs(p.IDs[p.head:]), Output: PackIDs(g.Output)}
	}
	c.ledger.Put(k, e)
	if last >= 0 && !c.aliased() {
		root := c.root
		c.ledger.Put(plain.next(meaning), &Entry{Conversation: c.name, Origin: &root})
	}
}

// aliased says whether an alias in the history leads to this root, which Open then
// finds without another one.
func (c *Conversation) aliased() bool {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if c.messages[i].Role != "assistant" {
			continue
		}
		if e, ok := c.ledger.Get(c.plain[i]); ok && e.Origin != nil {
			return *e.Origin == c.root
		}
	}
	return false
}

// Shown lists every tool that stands in the prompt, front first, then late
// blocks in order; a name shown twice appears once, as last shown.
func (c *Conversation) Shown() []Shown {
	var out []Shown
	at := map[string]int{}
	add := func(b *Block) {
		if b == nil {
			return
		}
		for _, t := range b.Tools {
			if i, ok := at[t.Name]; ok {
				out[i] = t
				continue
			}
			at[t.Name] = len(out)
			out = append(out, t)
		}
	}
	add(c.front)
	for i := range c.messages {
		for _, b := range c.Late(i) {
			add(b)
		}
	}
	return out
}
