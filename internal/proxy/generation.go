package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// generation turns the engine's stream of text into OpenAI deltas: the family's
// parser finds the calls, each call is checked as its bytes arrive, and nothing
// is handed on that is not a prefix of a valid call.
type generation struct {
	family *wire.Family
	tools  map[string]*grammar.Checked       // callable by name; nil arguments check when the value is nil
	schema func(tool string) json.RawMessage // of its arguments, nil for none
	limits openai.Limits
	newID  func() string
	within bool // the prompt has opened reasoning that the engine does not split off
	none   bool // tool_choice none: text is text, also where it looks like a call
	must   bool // tool_choice required or a name: a reply that ends by itself has a call
	single bool // parallel_tool_calls false: it has no second one

	response *grammar.Checked // what a reply without calls must be; nil for any text

	search  bool     // tool_search is answered by the sidecar
	earlier *carried // rounds of the same request before this one

	stream bool // the client has seen what was parsed so far
	stops  bool // and has given stop strings, which the engine looks for in calls too

	ids     bool // the ids of the choices are gathered
	keepIDs bool // and the client wants them too
	top     int  // with so many alternatives to each token
	// read makes an event that is no chat's the chunks of a chat; nil where the
	// engine's are.
	read func(data []byte) ([][]byte, error)

	choices []*choice
	head    *openai.Object // the last chunk with a choice: id, created, model, …
	usage   []byte         // the engine's usage object, nil until it arrives
	size    int            // bytes of text so far, over all choices
}

// maxReplyBytes bounds the text of one reply over all its choices. A reply of
// 128k tokens is about 600 kB.
const maxReplyBytes = 32 << 20

// choice is the state of one choice.
type choice struct {
	index     int
	parser    *wire.Parser // nil when nothing is a call
	text      strings.Builder
	watch     grammar.Watch   // over text that is to be an object of a format
	thought   strings.Builder // reasoning that the parser found in the text
	reasoning strings.Builder // reasoning that the engine split off
	logprobs  [][]byte        // elements of logprobs.content
	ids       []int32         // generated, as far as they are gathered
	calls     []*toolCall
	search    *toolCall // the model's search, which ends the round
	end       int       // bytes of the generated text that count, when over
	over      bool      // what follows is passed over
	stopped   bool      // at a stop string of the client
	half      bool      // within a call
	finish    string
}

// cut says whether a reply with this finish reason was ended before the model would
// have: what it lacks then is no fault of the model.
func (c *choice) cut(reason string) bool { return reason == "length" || c.stopped }

type toolCall struct {
	id, name  string
	arguments strings.Builder
	syntax    grammar.Stream
	watch     grammar.Watch
	complete  bool // its end was seen
}

// maxRepeats is how many bytes of arguments may be the same few over and over.
// A model that can't find the end of a string goes on to max_tokens; a text
// that is meant repeats itself for less, a table of zeros or a line of dashes.
const maxRepeats = 16 << 10

// take adds bytes of arguments, which are JSON that leads somewhere.
func (k *toolCall) take(text string) error {
	if n, err := k.syntax.Feed([]byte(text)); err != nil {
		return &misfit{message: fmt.Sprintf("arguments of %s are no JSON object at byte %d", k.name, k.arguments.Len()+n), detail: err}
	}
	k.watch.Repeats = maxRepeats
	if err := k.watch.Feed([]byte(text)); err != nil {
		return &misfit{message: fmt.Sprintf("arguments of %s lead nowhere: %v", k.name, err), detail: err}
	}
	k.arguments.WriteString(text)
	return nil
}

// delta is one step of one choice as the client sees it.
type delta struct {
	text    string
	thought string
	isCall  bool
	call    int // index of the call, with id and name, or args
	id      string
	name    string
	args    string
}

// misfit is a reply that breaks the contract with the client: an unknown name,
// arguments that don't fit, a call that stopped in the middle.
type misfit struct {
	message  string
	detail   error  // *grammar.Misfit when the schema was broken
	envelope []byte // for the model, of all causes; nil for other faults
}

func (m *misfit) Error() string { return m.message }
func (m *misfit) Unwrap() error { return m.detail }

// choiceAt returns the state of choice i. OpenAI allows n ≤ 128.
func (r *generation) choiceAt(i int) (*choice, error) {
	for _, c := range r.choices {
		if c.index == i {
			return c, nil
		}
	}
	if i < 0 || i >= 128 {
		return nil, fmt.Errorf("the engine sent choice %d", i)
	}
	c := &choice{index: i}
	if !r.none {
		c.parser = r.family.NewParser()
		c.parser.Schema = r.schema
		if r.within {
			c.parser.Thinking()
		}
	}
	r.choices = append(r.choices, c)
	slices.SortFunc(r.choices, func(a, b *choice) int { return a.index - b.index })
	return c, nil
}

// feed takes the text of one upstream delta.
func (r *generation) feed(c *choice, text string) ([]delta, error) {
	if r.size += len(text); r.size > maxReplyBytes {
		return nil, fmt.Errorf("the reply is larger than %d bytes", maxReplyBytes)
	}
	if c.parser == nil {
		return []delta{{text: text}}, r.write(c, text)
	}
	return r.take(c, c.parser.Feed(text))
}

// write adds to the text of a choice. One that is to be an object must lead
// somewhere.
func (r *generation) write(c *choice, text string) error {
	c.text.WriteString(text)
	if r.response == nil {
		return nil
	}
	c.watch.Repeats = maxRepeats
	if err := c.watch.Feed([]byte(text)); err != nil {
		return &misfit{message: fmt.Sprintf("the text for response_format leads nowhere: %v", err), detail: err}
	}
	return nil
}

// close ends choice c with the engine's finish reason and gives the client's.
func (r *generation) close(c *choice, reason string) ([]delta, error) {
	var out []delta
	if c.parser != nil {
		var err error
		if out, err = r.take(c, c.parser.Close()); err != nil {
			return out, err
		}
	}
	if c.parser != nil && c.parser.Open() && !c.cut(reason) {
		return out, &misfit{message: fmt.Sprintf("the engine stopped (%s) in the middle of a tool call", reason)}
	}
	c.half = c.stopped && c.parser != nil && c.parser.Open()
	if c.search != nil {
		if !c.search.complete { // cut
			c.search = nil
		}
		c.finish = reason
		return out, nil
	}
	if n := len(c.calls); n > 0 && c.stopped && !c.calls[n-1].complete {
		// As with a reply cut by length, but nobody is handed half a call who can
		// be spared it.
		if c.finish = reason; r.stream {
			return out, nil
		}
		c.calls = c.calls[:n-1]
	}
	if r.must && len(c.calls) == 0 && !c.cut(reason) {
		return out, &misfit{message: "the model made no call although tool_choice demands one"}
	}
	if r.response != nil && reason == "stop" && len(c.calls) == 0 && !c.stopped {
		if err := r.response.Check([]byte(r.said(c).Text)); err != nil {
			return out, &misfit{message: fmt.Sprintf("the text doesn't fit response_format: %v", err), detail: err,
				envelope: grammar.Envelope("response_format", r.response.Misfits([]byte(r.said(c).Text), true)...)}
		}
	}
	c.finish = reason
	if reason == "stop" && len(c.calls) > 0 {
		c.finish = "tool_calls"
	}
	return out, nil
}

func (r *generation) take(c *choice, events []wire.Event) ([]delta, error) {
	var out []delta
	for _, e := range events {
		if c.over {
			return out, nil
		}
		if c.search != nil {
			if err := r.takeSearch(c, e); err != nil {
				return out, err
			}
			continue
		}
		switch e.Kind {
		case wire.Text:
			out = append(out, delta{text: e.Text})
			if err := r.write(c, e.Text); err != nil {
				return out, err
			}
		case wire.Reasoning:
			c.thought.WriteString(e.Text)
			out = append(out, delta{thought: e.Text})
		case wire.CallStart:
			if r.search && e.Name == prefix.SearchTool {
				if len(c.calls) > 0 {
					// The client's calls come first; the model can search when it
					// has their results.
					c.over, c.end = true, e.Offset
					return out, nil
				}
				c.search = &toolCall{name: e.Name}
				continue
			}
			if _, ok := r.tools[e.Name]; !ok {
				return out, &misfit{message: fmt.Sprintf("the model called %q, which it was not offered", cutText(e.Name, 100))}
			}
			if r.single && len(c.calls) > 0 {
				return out, &misfit{message: fmt.Sprintf("the model made a second call, of %s, although parallel_tool_calls is false", e.Name)}
			}
			k := &toolCall{id: r.newID(), name: e.Name}
			c.calls = append(c.calls, k)
			out = append(out, delta{isCall: true, call: len(c.calls) - 1, id: k.id, name: k.name})
		case wire.Arguments:
			k := c.calls[len(c.calls)-1]
			if err := k.take(e.Text); err != nil {
				return out, err
			}
			out = append(out, delta{isCall: true, call: len(c.calls) - 1, args: e.Text})
		case wire.CallEnd:
			k := c.calls[len(c.calls)-1]
			if checked := r.tools[k.name]; checked != nil {
				if err := checked.Check([]byte(k.arguments.String())); err != nil {
					return out, &misfit{message: fmt.Sprintf("arguments of %s don't fit its schema: %v", k.name, err), detail: err,
						envelope: grammar.Envelope(k.name, checked.Misfits([]byte(k.arguments.String()), true)...)}
				}
			}
			if !k.syntax.Done() {
				return out, &misfit{message: fmt.Sprintf("arguments of %s end in the middle", k.name)}
			}
			k.complete = true
		case wire.Malformed:
			return out, &misfit{message: "malformed tool call: " + e.Text}
		}
	}
	return out, nil
}

// takeSearch follows the model's search. What the model says behind it is passed
// over: it has not seen the answer yet.
func (r *generation) takeSearch(c *choice, e wire.Event) error {
	k := c.search
	switch e.Kind {
	case wire.Arguments:
		return k.take(e.Text)
	case wire.CallEnd:
		if checked := r.tools[k.name]; checked != nil {
			if err := checked.Check([]byte(k.arguments.String())); err != nil {
				return &misfit{message: fmt.Sprintf("arguments of %s don't fit its schema: %v", k.name, err), detail: err}
			}
		}
		k.complete, c.over, c.end = true, true, e.Offset
	case wire.Malformed:
		return &misfit{message: "malformed tool call: " + e.Text}
	}
	return nil
}

// upstreamEvent is an error that the engine reported inside its stream.
type upstreamEvent struct{ raw []byte }

func (e *upstreamEvent) Error() string { return "the engine reported an error: " + string(e.raw) }

// chunk takes one event of the engine's stream and returns the chunks for the
// client, each a whole JSON object. The chunks before an error are still good.
func (r *generation) chunk(data []byte, includeUsage bool) ([][]byte, error) {
	o, err := openai.Scan(data, r.limits)
	if err != nil {
		return nil, fmt.Errorf("the engine's stream is not JSON: %w", err)
	}
	if v, ok := o.Get("error"); ok && v.Kind() != 'n' {
		return nil, &upstreamEvent{slices.Clone(v.Raw)}
	}
	if r.read == nil {
		return r.chatChunk(o, includeUsage)
	}
	events, err := r.read(data)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, e := range events {
		if o, err = openai.Scan(e, openai.Limits{}); err != nil {
			panic("proxy: a chunk of ours: " + err.Error())
		}
		chunks, err := r.chatChunk(o, includeUsage)
		out = append(out, chunks...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// chatChunk does it for a chunk of a chat.
func (r *generation) chatChunk(o *openai.Object, includeUsage bool) ([][]byte, error) {
	if v, ok := o.Get("usage"); ok && v.Kind() == '{' {
		r.usage = slices.Clone(v.Raw)
	}
	v, _ := o.Get("choices")
	elements := openai.Elements(v)
	if r.ids {
		if err := r.gather(o, len(elements)); err != nil {
			return nil, err
		}
		if len(elements) == 0 && len(o.Members()) == 0 {
			return nil, nil
		}
	}
	again := r.earlier != nil && r.earlier.Rounds > 0
	if again {
		o.Set("id", r.earlier.id)
		o.Set("created", r.earlier.created)
	}
	if len(elements) == 0 {
		if !includeUsage || len(r.choices) > 0 && r.choices[0].search != nil {
			return nil, nil
		}
		if again && r.usage != nil {
			o.Set("usage", r.earlier.total(r.usage))
		}
		return [][]byte{slices.Clone(o.Bytes())}, nil
	}
	r.head = o
	if !includeUsage {
		o.Delete("usage")
	}
	var out [][]byte
	for _, e := range elements {
		chunks, err := r.choiceChunk(o, e)
		out = append(out, chunks...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// choiceChunk handles one choice of a chunk. The engine's own members of the
// choice and of its delta survive; content is replaced by what the parser made
// of it.
func (r *generation) choiceChunk(head *openai.Object, v openai.Value) ([][]byte, error) {
	co, ok := openai.ObjectOf(v)
	if !ok {
		return nil, errors.New("the engine sent a choice that is no object")
	}
	index := 0
	if iv, ok := co.Get("index"); ok {
		if n, ok := iv.Int(); ok {
			index = int(n)
		}
	}
	c, err := r.choiceAt(index)
	if err != nil {
		return nil, err
	}
	if r.ids {
		v, _ := co.Get("token_ids")
		if c.ids, err = readIDs(c.ids, v); err != nil {
			return nil, err
		}
		if !r.keepIDs {
			co.Delete("token_ids")
			co.Delete("prompt_token_ids")
		}
	}
	dv, _ := co.Get("delta")
	do, ok := openai.ObjectOf(dv)
	if !ok {
		return nil, errors.New("the engine sent a chunk without a delta")
	}
	if tv, ok := do.Get("tool_calls"); ok && len(openai.Elements(tv)) > 0 {
		return nil, errors.New("the engine parsed tool calls although it was sent no tools")
	}
	do.Delete("tool_calls")
	if r.earlier != nil && r.earlier.Rounds > 0 {
		do.Delete("role") // the client has it
	}
	for _, key := range []string{"reasoning_content", "reasoning"} {
		if s := text(do, key); s != "" {
			c.reasoning.WriteString(s)
			break
		}
	}
	if lv, ok := co.Get("logprobs"); ok {
		if lo, ok := openai.ObjectOf(lv); ok {
			content, _ := lo.Get("content")
			for _, e := range openai.Elements(content) {
				c.logprobs = append(c.logprobs, e.Raw)
			}
		}
	}
	content, hasContent := do.Get("content")
	var deltas []delta
	if hasContent {
		if s, ok := content.String(); ok {
			deltas, err = r.feed(c, s)
		}
	}
	finish := text(co, "finish_reason")
	c.stopped = finish == "stop" && r.stopString(co)
	if err == nil && finish != "" {
		if c.finish != "" {
			return nil, fmt.Errorf("the engine finished choice %d twice", index)
		}
		var more []delta
		more, err = r.close(c, finish)
		deltas = append(deltas, more...)
	}
	chunks := r.encode(head, co, do, hasContent, deltas, c.finish, err == nil && finish != "" && c.search == nil)
	return chunks, err
}

// stopString says whether the choice that ends here does so at a stop string: vLLM
// and SGLang name it, and give a number or null for what ended otherwise. Where the
// engine says nothing, a reply to a client with stop strings may have.
func (r *generation) stopString(co *openai.Object) bool {
	told := false
	for _, key := range []string{"stop_reason", "matched_stop"} {
		v, ok := co.Get(key)
		if ok && v.Kind() == '"' {
			return r.stops
		}
		told = told || ok
	}
	return r.stops && !told
}

// encode writes the deltas into copies of the engine's chunk. Members of the
// engine's choice, such as logprobs, go with the first chunk only, and also when
// nothing of the text can be shown yet.
func (r *generation) encode(head, co, do *openai.Object, hadContent bool, deltas []delta, finish string, finished bool) [][]byte {
	var out [][]byte
	emit := func(deltaJSON []byte, last bool) {
		co.Set("delta", deltaJSON)
		if last {
			co.Set("finish_reason", openai.AppendString(nil, finish))
		} else {
			co.Set("finish_reason", []byte("null"))
		}
		choice := co.Bytes()
		array := make([]byte, 0, len(choice)+2)
		array = append(append(append(array, '['), choice...), ']')
		head.Set("choices", array)
		out = append(out, slices.Clone(head.Bytes()))
		for _, key := range onceMembers {
			co.Delete(key)
		}
	}
	first := do
	for i, d := range deltas {
		last := finished && i == len(deltas)-1
		plain := !d.isCall && d.thought == ""
		if i == 0 && !plain && otherMembers(do) {
			// keep the role or reasoning that came along with the text
			do.Delete("content")
			emit(slices.Clone(do.Bytes()), false)
		}
		if i > 0 || !plain {
			first = nil
		}
		switch {
		case d.isCall:
			emit(d.callJSON(), last)
		case d.thought != "":
			emit(append(openai.AppendString([]byte(`{"reasoning_content":`), d.thought), '}'), last)
		case first != nil:
			first.Set("content", openai.AppendString(nil, d.text))
			emit(slices.Clone(first.Bytes()), last)
		default:
			emit(append(openai.AppendString([]byte(`{"content":`), d.text), '}'), last)
		}
	}
	if len(deltas) > 0 {
		return out
	}
	// Nothing of the text can be shown yet, or the chunk had none.
	if hadContent {
		if cv, _ := do.Get("content"); cv.Kind() == '"' && len(cv.Raw) > 2 {
			do.Delete("content")
		}
	}
	once := slices.ContainsFunc(onceMembers, func(key string) bool { v, ok := co.Get(key); return ok && v.Kind() != 'n' })
	if finished || once || len(do.Members()) > 0 {
		emit(slices.Clone(do.Bytes()), finished)
	}
	return out
}

// onceMembers are those of a choice that speak of the tokens of its chunk.
var onceMembers = []string{"logprobs", "token_ids"}

// otherMembers says whether a delta carries more than content.
func otherMembers(do *openai.Object) bool {
	return slices.ContainsFunc(do.Members(), func(m openai.Member) bool { return m.Key != "content" })
}

func (d *delta) callJSON() []byte {
	b := fmt.Appendf(nil, `{"tool_calls":[{"index":%d`, d.call)
	if d.name != "" {
		b = openai.AppendString(append(b, `,"id":`...), d.id)
		b = openai.AppendString(append(b, `,"type":"function","function":{"name":`...), d.name)
		b = append(b, `,"arguments":""`...)
	} else {
		b = openai.AppendString(append(b, `,"function":{"arguments":`...), d.args)
	}
	return append(b, `}}]}`...)
}

// finished says whether every choice has its finish reason.
func (r *generation) finished() bool {
	return len(r.choices) > 0 && !slices.ContainsFunc(r.choices, func(c *choice) bool { return c.finish == "" })
}

// completion is the whole reply for a client that does not stream.
func (r *generation) completion() []byte {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type wireCall struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	type message struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		ToolCalls []wireCall `json:"tool_calls,omitempty"`
	}
	type wholeChoice struct {
		Index        int     `json:"index"`
		Message      message `json:"message"`
		Logprobs     any     `json:"logprobs"` // null, or {"content":[…]}
		FinishReason string  `json:"finish_reason"`
	}
	choices := make([]wholeChoice, len(r.choices))
	for i, c := range r.choices {
		said := r.said(c)
		m := message{Role: "assistant", Reasoning: said.Reasoning}
		if s := said.Text; s != "" || len(c.calls) == 0 {
			m.Content = &s
		}
		for _, k := range c.calls {
			m.ToolCalls = append(m.ToolCalls, wireCall{k.id, "function", function{k.name, k.arguments.String()}})
		}
		choices[i] = wholeChoice{Index: c.index, Message: m, FinishReason: c.finish}
		logprobs := c.logprobs
		if r.earlier != nil {
			logprobs = slices.Concat(r.earlier.logprobs, c.logprobs)
		}
		if logprobs != nil {
			content := slices.Concat([]byte("["), bytes.Join(logprobs, []byte(",")), []byte("]"))
			choices[i].Logprobs = map[string]json.RawMessage{"content": content}
		}
	}
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(choices); err != nil {
		panic("proxy: choices do not marshal: " + err.Error()) // strings, integers and scanned JSON only
	}
	o := r.head
	o.Set("object", []byte(`"chat.completion"`))
	o.Set("choices", bytes.TrimSpace(raw.Bytes()))
	if r.usage != nil {
		usage := r.usage
		if r.earlier != nil {
			usage = r.earlier.total(usage)
		}
		o.Set("usage", usage)
	}
	return o.Bytes()
}

// raw is the text that the engine generated for the choice, as far as it counts.
func (c *choice) raw() string {
	if c.parser == nil {
		return c.text.String()
	}
	if c.over {
		return c.parser.Raw()[:c.end]
	}
	return c.parser.Raw()
}

// said is what the client was given for a choice, as it will send it back: the
// text of all rounds, and the calls.
func (r *generation) said(c *choice) prefix.Message {
	m := prefix.Message{Role: "assistant", Text: c.text.String(), Reasoning: c.reasoning.String() + c.thought.String()}
	if r.earlier != nil {
		m.Text, m.Reasoning = r.earlier.text+m.Text, r.earlier.reasoning+m.Reasoning
	}
	for _, k := range c.calls {
		m.Calls = append(m.Calls, prefix.Call{ID: k.id, Name: k.name, Arguments: k.arguments.String()})
	}
	return m
}
