package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// chat is a chat completion request as far as the stages read it. Everything
// else stays in the client's bytes.
type chat struct {
	object       *openai.Object
	model        string
	raw          []openai.Value   // the messages as the client sent them
	order        []int            // raw[order[i]] is messages[i]
	messages     []prefix.Message // in the order of prefix.SortResults
	tools        openai.Value     // the client's tools array, zero when absent
	choice       grammar.Choice
	allowed      []string // names of tool_choice "allowed_tools"; nil for all
	stream       bool
	includeUsage bool
	choices      int            // n; 1 when absent
	most         map[string]int // max_tokens and max_completion_tokens, where the client set them
	wantsIDs     bool           // return_token_ids
	stops        bool           // stop has strings
	format       []byte         // the client's response_format unless it is plain text
	schema       []byte         // that a text for format must fit
	declared     bool           // and it is the client's own, rather than that of any object
}

// unstaged says that a request is forwarded unchanged, and why.
type unstaged struct{ reason string }

func (u *unstaged) Error() string { return u.reason }

func badRequest(param, format string, args ...any) *openai.Error {
	return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Message: fmt.Sprintf(format, args...)}
}

// readChat reads a scanned request. The error is *openai.Error for a request
// that no engine could serve, *unstaged for one that the stages leave alone.
func readChat(o *openai.Object) (*chat, error) {
	c := &chat{object: o, choice: grammar.Choice{Mode: grammar.Auto, Parallel: true}}
	for _, legacy := range []string{"functions", "function_call"} {
		if v, ok := o.Get(legacy); ok && v.Kind() != 'n' {
			return nil, &unstaged{"legacy field " + legacy}
		}
	}
	if v, ok := o.Get("continue_final_message"); ok {
		if open, _ := v.Bool(); open {
			return nil, &unstaged{"continue_final_message: the last message is no turn yet"}
		}
	}
	if v, ok := o.Get("model"); ok {
		c.model, _ = v.String()
	}
	if v, ok := o.Get("stream"); ok {
		c.stream, _ = v.Bool()
	}
	c.choices = integer(o, "n", 1)
	if v, ok := o.Get("return_token_ids"); ok {
		c.wantsIDs, _ = v.Bool()
	}
	if v, ok := o.Get("stop"); ok {
		c.stops = v.Kind() == '"' || len(openai.Elements(v)) > 0
	}
	c.most = map[string]int{}
	for _, key := range []string{"max_tokens", "max_completion_tokens"} {
		if n := integer(o, key, -1); n >= 0 {
			c.most[key] = n
		}
	}
	if v, ok := o.Get("stream_options"); ok {
		if opts, ok := openai.ObjectOf(v); ok {
			if u, ok := opts.Get("include_usage"); ok {
				c.includeUsage, _ = u.Bool()
			}
		}
	}
	if v, ok := o.Get("tools"); ok && v.Kind() != 'n' {
		if v.Kind() != '[' {
			return nil, badRequest("tools", "tools must be an array of tool definitions")
		}
		c.tools = v
	}
	if v, ok := o.Get("parallel_tool_calls"); ok && v.Kind() != 'n' {
		parallel, ok := v.Bool()
		if !ok {
			return nil, badRequest("parallel_tool_calls", "parallel_tool_calls must be true or false")
		}
		c.choice.Parallel = parallel
	}
	if err := c.readFormat(o); err != nil {
		return nil, err
	}
	if err := c.readChoice(o); err != nil {
		return nil, err
	}
	if err := c.readMessages(o); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *chat) readFormat(o *openai.Object) error {
	v, ok := o.Get("response_format")
	if !ok || v.Kind() == 'n' {
		return nil
	}
	obj, ok := openai.ObjectOf(v)
	if !ok {
		return badRequest("response_format", "response_format must be an object")
	}
	kind := ""
	if t, ok := obj.Get("type"); ok {
		kind, _ = t.String()
	}
	switch kind {
	case "text":
	case "json_object":
		c.format, c.schema = v.Raw, []byte(`{"type":"object","additionalProperties":true}`)
	case "json_schema":
		c.format, c.declared = v.Raw, true
		inner, _ := obj.Get("json_schema")
		if o, ok := openai.ObjectOf(inner); ok {
			schema, _ := o.Get("schema")
			c.schema = schema.Raw
		}
		if c.schema == nil {
			return badRequest("response_format", "response_format of type json_schema needs json_schema.schema")
		}
	default:
		return &unstaged{fmt.Sprintf("response_format of type %q is the client's own constraint", cutText(kind, 100))}
	}
	return nil
}

func (c *chat) readChoice(o *openai.Object) error {
	v, ok := o.Get("tool_choice")
	if !ok || v.Kind() == 'n' {
		return nil
	}
	if s, ok := v.String(); ok {
		switch mode := grammar.Mode(s); mode {
		case grammar.Auto, grammar.Required, grammar.None:
			c.choice.Mode = mode
			return nil
		}
		return badRequest("tool_choice", "tool_choice %q is none of auto, required, none, or an object that names a function", cutText(s, 100))
	}
	obj, ok := openai.ObjectOf(v)
	if !ok {
		return badRequest("tool_choice", "tool_choice must be a string or an object")
	}
	kind := text(obj, "type")
	switch kind {
	case "function":
		f, ok := obj.Get("function")
		fo, isObject := openai.ObjectOf(f)
		if !ok || !isObject || text(fo, "name") == "" {
			return badRequest("tool_choice", "tool_choice of type function needs function.name")
		}
		c.choice.Mode, c.choice.Name = grammar.Named, text(fo, "name")
		return nil
	case "allowed_tools":
		a, _ := obj.Get("allowed_tools")
		ao, ok := openai.ObjectOf(a)
		if !ok {
			return badRequest("tool_choice", "tool_choice of type allowed_tools needs allowed_tools.tools")
		}
		if mode := grammar.Mode(text(ao, "mode")); mode == grammar.Required {
			c.choice.Mode = mode
		}
		list, _ := ao.Get("tools")
		c.allowed = []string{}
		for _, e := range openai.Elements(list) {
			eo, ok := openai.ObjectOf(e)
			if !ok {
				continue
			}
			f, _ := eo.Get("function")
			if fo, ok := openai.ObjectOf(f); ok && text(fo, "name") != "" {
				c.allowed = append(c.allowed, text(fo, "name"))
			}
		}
		if len(c.allowed) == 0 {
			return badRequest("tool_choice", "allowed_tools names no function")
		}
		return nil
	}
	return &unstaged{fmt.Sprintf("tool_choice of type %q", cutText(kind, 100))}
}

// text is the string member of an object, "" when absent or of another type.
func text(o *openai.Object, key string) string {
	v, ok := o.Get(key)
	if !ok {
		return ""
	}
	s, _ := v.String()
	return s
}

func (c *chat) readMessages(o *openai.Object) error {
	v, ok := o.Get("messages")
	if !ok || v.Kind() != '[' {
		return badRequest("messages", "messages must be an array")
	}
	c.raw = openai.Elements(v)
	if len(c.raw) == 0 {
		return badRequest("messages", "messages is empty; send at least one")
	}
	unsorted := make([]prefix.Message, len(c.raw))
	for i, e := range c.raw {
		m, err := readMessage(e, i)
		if err != nil {
			return err
		}
		unsorted[i] = m
	}
	c.order = prefix.SortResults(unsorted)
	c.messages = make([]prefix.Message, len(unsorted))
	for i, j := range c.order {
		c.messages[i] = unsorted[j]
	}
	return nil
}

func readMessage(v openai.Value, i int) (prefix.Message, error) {
	param := fmt.Sprintf("messages[%d]", i)
	o, ok := openai.ObjectOf(v)
	if !ok {
		return prefix.Message{}, badRequest(param, "%s must be an object", param)
	}
	m := prefix.Message{Role: text(o, "role"), Name: text(o, "name"), CallID: text(o, "tool_call_id")}
	switch m.Role {
	case "system", "developer", "user", "assistant", "tool":
	case "":
		return m, badRequest(param+".role", "%s has no role", param)
	default:
		return m, &unstaged{fmt.Sprintf("%s has role %q", param, cutText(m.Role, 100))}
	}
	if m.Role == "tool" && m.CallID == "" {
		return m, badRequest(param+".tool_call_id", "%s has role tool but no tool_call_id", param)
	}
	for _, key := range []string{"reasoning_content", "reasoning"} {
		if s := text(o, key); s != "" {
			m.Reasoning = s
		}
	}
	if v, ok := o.Get("function_call"); ok && v.Kind() != 'n' { // openai-python sends null
		return m, &unstaged{param + " has the legacy field function_call"}
	}
	if content, ok := o.Get("content"); ok {
		switch content.Kind() {
		case 'n':
		case '"':
			m.Text, _ = content.String()
		case '[':
			m.Text, ok = textParts(content)
			if !ok {
				m.Opaque = v.Raw
			}
		default:
			return m, badRequest(param+".content", "%s.content must be a string or an array of parts", param)
		}
	}
	calls, ok := o.Get("tool_calls")
	if !ok || calls.Kind() == 'n' {
		return m, nil
	}
	for j, e := range openai.Elements(calls) {
		call, ok := openai.ObjectOf(e)
		if !ok {
			return m, badRequest(fmt.Sprintf("%s.tool_calls[%d]", param, j), "a tool call must be an object")
		}
		param := fmt.Sprintf("%s.tool_calls[%d]", param, j)
		if kind := text(call, "type"); kind != "" && kind != "function" {
			return m, &unstaged{fmt.Sprintf("%s is of type %q", param, cutText(kind, 100))}
		}
		f, _ := call.Get("function")
		fo, ok := openai.ObjectOf(f)
		if !ok || text(fo, "name") == "" {
			return m, badRequest(param+".function", "a tool call needs function.name and function.arguments")
		}
		k := prefix.Call{ID: text(call, "id"), Name: text(fo, "name")}
		switch arguments, _ := fo.Get("arguments"); arguments.Kind() {
		case '"':
			k.Arguments, _ = arguments.String()
		case '{': // some clients send the object itself, and engines take it
			k.Arguments = string(arguments.Raw)
		case 0, 'n':
		default:
			return m, badRequest(param+".function.arguments", "%s.function.arguments must be a string of JSON", param)
		}
		m.Calls = append(m.Calls, k)
	}
	if len(m.Calls) > 0 && m.Opaque != nil {
		return m, &unstaged{param + " has calls beside content that is not text"}
	}
	return m, nil
}

// textParts joins the parts of a content array as vLLM does for templates that
// want a string; ok is false when a part is not text.
func textParts(v openai.Value) (string, bool) {
	var parts []string
	for _, e := range openai.Elements(v) {
		o, ok := openai.ObjectOf(e)
		if !ok || text(o, "type") != "text" {
			return "", false
		}
		parts = append(parts, text(o, "text"))
	}
	return strings.Join(parts, "\n"), true
}

// neutral is a client's message in which no text spells a control token of the
// family: see [wire.Family.Neutral]. Every other byte stays.
func neutral(f *wire.Family, v openai.Value) []byte {
	if bytes.IndexByte(v.Raw, '<') < 0 && !bytes.Contains(v.Raw, []byte(`\u`)) {
		return v.Raw
	}
	o, ok := openai.ObjectOf(v)
	if !ok {
		return v.Raw
	}
	for _, key := range []string{"content", "reasoning_content", "reasoning"} {
		m, _ := o.Get(key)
		switch m.Kind() {
		case '"':
			neutralMember(f, o, key)
		case '[':
			parts, changed := []byte{'['}, false
			for i, e := range openai.Elements(m) {
				if i > 0 {
					parts = append(parts, ',')
				}
				if part, ok := openai.ObjectOf(e); ok && neutralMember(f, part, "text") {
					parts, changed = append(parts, part.Bytes()...), true
					continue
				}
				parts = append(parts, e.Raw...)
			}
			if changed {
				o.Set(key, append(parts, ']'))
			}
		}
	}
	return o.Bytes()
}

// neutralMember does it to one string of an object and says whether it changed.
func neutralMember(f *wire.Family, o *openai.Object, key string) bool {
	s := text(o, key)
	n := f.Neutral(s)
	if n == s {
		return false
	}
	o.Set(key, openai.AppendString(nil, n))
	return true
}
