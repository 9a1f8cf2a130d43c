package prefix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// Request is a chat completion request as far as a prompt is made of it, its
// messages in the client's order.
type Request struct {
	Messages []Message
	Tools    []json.RawMessage
}

// Relation is how a prompt stands to an earlier one.
type Relation string

const (
	Equal   Relation = "equal"
	Extends Relation = "extends" // it begins with the earlier one
	Within  Relation = "within"  // it is the beginning of the earlier one
	Breaks  Relation = "breaks"
)

// Kind is what stands where two prompts part.
type Kind string

const (
	Date          Kind = "date"
	Hash          Kind = "hash" // a UUID or another identifier made by chance
	Counter       Kind = "counter"
	Whitespace    Kind = "whitespace"
	SystemText    Kind = "system text"
	EditedMessage Kind = "edited message"
	DroppedTurns  Kind = "dropped messages" // left out, or put together, as in compaction
	InsertedTurns Kind = "inserted messages"
	OtherResults  Kind = "reordered results"
	Redumped      Kind = "re-dumped arguments"
	Stripped      Kind = "stripped reasoning"
	ReorderedTool Kind = "reordered tools"
	ChangedTool   Kind = "changed tool"
	AddedTool     Kind = "added tool"
	RemovedTool   Kind = "removed tool"
	TemplateRule  Kind = "template"
	Eviction      Kind = "eviction" // nothing parts them: the engine had lost its cache
)

// Owner is who can mend a break.
type Owner string

const (
	Client   Owner = "client"
	Tools    Owner = "tools" // wherever the list of tools comes from
	Template Owner = "template"
	Engine   Owner = "engine"
)

// Diff is where a prompt parts from an earlier one.
type Diff struct {
	Relation Relation `json:"relation"`
	Byte     int      `json:"byte"`  // of the rendered prompt, the first that differs
	Token    int      `json:"token"` // the first that differs, which may begin before Byte
	// What follows is empty unless Relation is Breaks.
	Path   string `json:"path,omitempty"` // JSON pointer into the later request; into the earlier one where the later has nothing there
	Kind   Kind   `json:"kind,omitempty"`
	Owner  Owner  `json:"owner,omitempty"`
	Before string `json:"before,omitempty"` // the line at Path where they part, cut to excerptBytes
	After  string `json:"after,omitempty"`

	BeforeTokens int `json:"before_tokens"` // of the earlier prompt
	AfterTokens  int `json:"after_tokens"`  // of the later one
	// LostTokens must be computed anew though their place in the prompt was
	// computed before: what both have behind the first token that differs.
	LostTokens int `json:"lost_tokens"`
}

// excerptBytes bounds the lines of a Diff.
const excerptBytes = 200

// Compare renders two requests, of which before was sent first, in the words of a
// family and tells where they part. No generation prompt is rendered: the reply to
// before, if after has it, is what after is extended by.
func Compare(before, after *Request, f *wire.Family, tok *tokenizer.Tokenizer) *Diff {
	c := &comparison{family: f, before: before, after: after, text: render(f, before)}
	later := render(f, after)
	c.at = commonPrefix(c.text, later)
	d := &Diff{Byte: c.at}
	d.tokens(f, tok, c.text, later)
	switch {
	case c.at == len(c.text) && c.at == len(later):
		d.Relation = Equal
	case c.at == len(c.text):
		d.Relation = Extends
	case c.at == len(later):
		d.Relation = Within
	default:
		d.Relation = Breaks
		d.LostTokens = min(d.BeforeTokens, d.AfterTokens) - d.Token
		c.explain(d)
	}
	return d
}

// tokens counts both prompts and finds the first token that differs. Up to the
// last control token that both have their tokens are the same.
func (d *Diff) tokens(f *wire.Family, tok *tokenizer.Tokenizer, before, after string) {
	at := 0
	if f.TurnStart != "" {
		at = max(0, strings.LastIndex(before[:d.Byte], f.TurnStart))
	}
	same := tok.Count(before[:at])
	a, b := tok.Encode(nil, before[at:]), tok.Encode(nil, after[at:])
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	d.Token, d.BeforeTokens, d.AfterTokens = same+n, same+len(a), same+len(b)
}

func render(f *wire.Family, r *Request) string {
	msgs := make([]wire.Message, len(r.Messages))
	for i := range r.Messages {
		m := &r.Messages[i]
		msgs[i] = wire.Message{Role: m.Role, Content: m.Text, Reasoning: m.Reasoning}
		if m.Opaque != nil {
			msgs[i].Content = string(m.Opaque)
		}
		for _, k := range m.Calls {
			msgs[i].Calls = append(msgs[i].Calls, wire.Call{Name: k.Name, Arguments: k.Arguments})
		}
	}
	return string(f.Render(nil, msgs, r.Tools, wire.Options{}))
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// comparison looks for the part of the requests that makes their prompts part. It
// is found by trial: put from after into before, it makes before part from itself
// at the same byte. So no rule of a template has to be known here.
type comparison struct {
	family        *wire.Family
	before, after *Request
	text          string // before, rendered
	at            int    // where it parts from after
}

// parts says whether an edit makes before part from itself at the byte that is to
// be explained.
func (c *comparison) parts(edit func(*Request)) bool {
	r := Request{Messages: slices.Clone(c.before.Messages), Tools: c.before.Tools}
	edit(&r)
	return commonPrefix(c.text, render(c.family, &r)) == c.at
}

// maxTrials bounds the messages that are tried, each of which costs a rendering.
const maxTrials = 64

func (c *comparison) explain(d *Diff) {
	a, b := c.before.Messages, c.after.Messages
	shared := min(len(a), len(b))
	trials := 0
	try := func(i int) bool {
		if i >= shared || trials == maxTrials || sameMessage(&a[i], &b[i]) {
			return false
		}
		trials++
		return c.parts(func(r *Request) { r.Messages[i] = b[i] })
	}
	// What stands first in a prompt is tried first: the system message, the tools.
	if try(0) {
		c.message(d, 0)
		return
	}
	if !slices.EqualFunc(c.before.Tools, c.after.Tools, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) }) &&
		c.parts(func(r *Request) { r.Tools = c.after.Tools }) {
		c.tools(d)
		return
	}
	for i := 1; i < shared; i++ {
		if try(i) {
			c.message(d, i)
			return
		}
	}
	// No message alone does it: the rules of the template do, as the messages
	// behind have changed. They drop reasoning first of all.
	for i := range a {
		m := withoutReasoning(c.family, a[i])
		if trials == maxTrials || a[i].Role != "assistant" || sameMessage(&m, &a[i]) {
			continue
		}
		trials++
		if c.parts(func(r *Request) { r.Messages[i] = m }) {
			d.Path, d.Kind, d.Owner = fmt.Sprintf("/messages/%d/reasoning_content", i), Stripped, Template
			d.Before = excerpt(reasoningOf(c.family, a[i]), 0)
			return
		}
	}
	// Else a message that is there on one side only.
	for i := range shared {
		if !sameMessage(&a[i], &b[i]) {
			c.message(d, i)
			return
		}
	}
	d.Kind, d.Owner, d.Path = TemplateRule, Template, fmt.Sprintf("/messages/%d", max(shared-1, 0))
}

// sameMessage says whether a template can't tell two messages apart.
func sameMessage(a, b *Message) bool {
	return a.Role == b.Role && a.Text == b.Text && a.Reasoning == b.Reasoning && bytes.Equal(a.Opaque, b.Opaque) &&
		slices.EqualFunc(a.Calls, b.Calls, func(x, y Call) bool { return x.Name == y.Name && x.Arguments == y.Arguments })
}

// withoutReasoning is a message as a client keeps it that drops reasoning.
func withoutReasoning(f *wire.Family, m Message) Message {
	m.Reasoning = ""
	if f.ThinkClose != "" {
		if i := strings.LastIndex(m.Text, f.ThinkClose); i >= 0 {
			m.Text = strings.TrimLeft(m.Text[i+len(f.ThinkClose):], "\n")
		}
	}
	return m
}

func reasoningOf(f *wire.Family, m Message) string {
	if m.Reasoning != "" {
		return m.Reasoning
	}
	text, _, _ := strings.Cut(m.Text, f.ThinkClose)
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(text), f.ThinkOpen), "\n")
}

// message explains a difference at message i, which both have.
func (c *comparison) message(d *Diff, i int) {
	a, b := &c.before.Messages[i], &c.after.Messages[i]
	d.Owner = Client
	d.Path = fmt.Sprintf("/messages/%d", i)
	if k, ok := c.moved(i); ok {
		d.Kind = k
		d.Before, d.After = excerpt(a.Said(), 0), excerpt(b.Said(), 0)
		return
	}
	switch {
	case a.Role != b.Role || a.Opaque != nil || b.Opaque != nil:
		d.Kind = EditedMessage
		d.Before, d.After = excerpt(a.Said(), 0), excerpt(b.Said(), 0)
	case a.Role == "assistant" && (b.Reasoning == "" && a.Reasoning != "" || a.Text != b.Text) && strings.TrimSpace(withoutReasoning(c.family, *a).Text) == strings.TrimSpace(b.Text) && reasoningOf(c.family, *a) != b.Reasoning && b.Reasoning == "":
		d.Kind, d.Path = Stripped, d.Path+"/reasoning_content"
		d.Before = excerpt(reasoningOf(c.family, *a), 0)
	case a.Reasoning != b.Reasoning && c.parts(func(r *Request) { r.Messages[i].Reasoning = b.Reasoning }):
		d.Path += "/reasoning_content"
		d.leaf(a.Reasoning, b.Reasoning, EditedMessage)
	case a.Text != b.Text:
		d.Path += "/content"
		otherwise := EditedMessage
		if isSystem(a.Role) {
			otherwise = SystemText
		}
		d.leaf(a.Text, b.Text, otherwise)
	default:
		c.calls(d, a.Calls, b.Calls)
	}
}

// Said is a message in one text, for people and to know it again.
func (m *Message) Said() string {
	switch {
	case m.Opaque != nil:
		return string(m.Opaque)
	case m.Text == "" && len(m.Calls) > 0:
		var b strings.Builder
		b.WriteString(m.Role + ":")
		for _, c := range m.Calls {
			b.WriteString(" " + c.Name + "(" + c.Arguments + ")")
		}
		return b.String()
	}
	return m.Role + ": " + m.Text
}

// moved says whether message i differs because messages were dropped or inserted
// before it, or results stand in another order.
func (c *comparison) moved(i int) (Kind, bool) {
	a, b := c.before.Messages[i:], c.after.Messages[i:]
	if a[0].Role == "tool" && b[0].Role == "tool" && resultsReordered(a, b) {
		return OtherResults, true
	}
	find := func(in []Message, m *Message) bool {
		return slices.ContainsFunc(in[1:], func(o Message) bool { return sameMessage(&o, m) })
	}
	switch {
	case find(a, &b[0]):
		return DroppedTurns, true
	case find(b, &a[0]):
		return InsertedTurns, true
	case !isSystem(a[0].Role) && len(b) < len(a) && len(a) > 2:
		// Less than before, and something new in its place: a summary.
		return DroppedTurns, true
	}
	return "", false
}

func resultsReordered(a, b []Message) bool {
	run := func(msgs []Message) []string {
		var texts []string
		for i := 0; i < len(msgs) && msgs[i].Role == "tool"; i++ {
			texts = append(texts, msgs[i].Text)
		}
		slices.Sort(texts)
		return texts
	}
	return slices.Equal(run(a), run(b))
}

// calls explains a difference in the calls of the message at d.Path.
func (c *comparison) calls(d *Diff, a, b []Call) {
	for j := range min(len(a), len(b)) {
		path := fmt.Sprintf("%s/tool_calls/%d/function", d.Path, j)
		switch {
		case a[j].Name != b[j].Name:
			d.Path = path + "/name"
			d.leaf(a[j].Name, b[j].Name, EditedMessage)
			return
		case a[j].Arguments != b[j].Arguments:
			d.Path = path + "/arguments"
			d.leaf(a[j].Arguments, b[j].Arguments, EditedMessage)
			if CanonicalJSON(a[j].Arguments) == CanonicalJSON(b[j].Arguments) {
				d.Kind = Redumped
			}
			return
		}
	}
	d.Kind, d.Path = EditedMessage, fmt.Sprintf("%s/tool_calls/%d", d.Path, min(len(a), len(b)))
}

// tools explains a difference in the list of tools.
func (c *comparison) tools(d *Diff) {
	d.Owner = Tools
	a, b := c.before.Tools, c.after.Tools
	names := func(tools []json.RawMessage) []string {
		out := make([]string, len(tools))
		for i, t := range tools {
			out[i] = toolName(t)
		}
		return out
	}
	an, bn := names(a), names(b)
	i := 0
	for i < len(a) && i < len(b) && bytes.Equal(a[i], b[i]) {
		i++
	}
	d.Path = fmt.Sprintf("/tools/%d", i)
	switch {
	case i == len(a):
		d.Kind, d.After = AddedTool, bn[i]
	case i == len(b):
		d.Kind, d.Before = RemovedTool, an[i]
	case an[i] == bn[i]:
		d.changedTool(a[i], b[i])
	default:
		d.Kind, d.Before, d.After = ReorderedTool, an[i], bn[i]
		switch {
		case !slices.Contains(bn, an[i]):
			d.Kind = RemovedTool
		case !slices.Contains(an, bn[i]):
			d.Kind = AddedTool
		}
	}
}

func toolName(tool json.RawMessage) string {
	var t struct {
		Name     string
		Function struct{ Name string }
	}
	if json.Unmarshal(tool, &t) != nil {
		return ""
	}
	if t.Function.Name != "" {
		return t.Function.Name
	}
	return t.Name
}

// changedTool finds what of one tool is another now.
func (d *Diff) changedTool(a, b json.RawMessage) {
	before, after := string(a), string(b)
	x, errX := jsontext.Parse(a, maxCanonicalDepth)
	y, errY := jsontext.Parse(b, maxCanonicalDepth)
	if errX == nil && errY == nil {
		var path string
		if path, x, y = firstChange("", x, y); x != nil && y != nil {
			before, after = leafText(x), leafText(y)
		}
		d.Path += path
	}
	d.leaf(before, after, ChangedTool)
	if d.Kind == Whitespace {
		d.Kind = ChangedTool
	}
}

func leafText(v *jsontext.Value) string {
	if v.Kind == '"' {
		return v.Str
	}
	return string(v.AppendTo(nil))
}

// firstChange descends to the first member or item, in the order of the earlier
// value, that is another one in the later.
func firstChange(path string, a, b *jsontext.Value) (string, *jsontext.Value, *jsontext.Value) {
	if a.Kind != b.Kind {
		return path, a, b
	}
	switch a.Kind {
	case '{':
		for i, m := range a.Members {
			if i >= len(b.Members) || b.Members[i].Key != m.Key {
				return path, a, b // a member that is gone, new or elsewhere
			}
			if !sameValue(m.Val, b.Members[i].Val) {
				return firstChange(path+"/"+jsontext.EscapePointer(m.Key), m.Val, b.Members[i].Val)
			}
		}
	case '[':
		for i, e := range a.Elems {
			if i >= len(b.Elems) {
				break
			}
			if !sameValue(e, b.Elems[i]) {
				return firstChange(fmt.Sprintf("%s/%d", path, i), e, b.Elems[i])
			}
		}
	}
	return path, a, b
}

func sameValue(a, b *jsontext.Value) bool { return bytes.Equal(a.AppendTo(nil), b.AppendTo(nil)) }

// leaf explains a difference between two texts.
func (d *Diff) leaf(before, after string, otherwise Kind) {
	d.Kind = classify(before, after)
	if d.Kind == "" {
		d.Kind = otherwise
	}
	n := commonPrefix(before, after)
	d.Before, d.After = excerpt(before, n), excerpt(after, n)
}

// excerpt is the line of text around byte n, cut to excerptBytes.
func excerpt(text string, n int) string {
	start, end := lineAround(text, n)
	if end-start > excerptBytes {
		start = max(start, n-excerptBytes/4)
		end = min(end, start+excerptBytes)
	}
	return strings.ToValidUTF8(strings.TrimRight(text[start:end], "\r"), "")
}

// lineAround is the line that byte n of text belongs to; a line break belongs to
// the line that it ends.
func lineAround(text string, n int) (start, end int) {
	n = min(n, len(text))
	start = strings.LastIndexByte(text[:n], '\n') + 1
	end = len(text)
	if i := strings.IndexByte(text[n:], '\n'); i >= 0 {
		end = n + i
	}
	return start, end
}

// Alike counts the messages that stand at the same place in both requests.
func (r *Request) Alike(o *Request) int {
	n := 0
	for i := range min(len(r.Messages), len(o.Messages)) {
		if sameMessage(&r.Messages[i], &o.Messages[i]) {
			n++
		}
	}
	return n
}

// Size is the memory of a request in bytes, for those who bound it.
func (r *Request) Size() int {
	n := 0
	for i := range r.Messages {
		m := &r.Messages[i]
		n += 160 + len(m.Text) + len(m.Reasoning) + len(m.Opaque)
		for _, c := range m.Calls {
			n += 64 + len(c.ID) + len(c.Name) + len(c.Arguments)
		}
	}
	for _, t := range r.Tools {
		n += 24 + len(t)
	}
	return n
}
