package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// renderCoder is the template of Qwen3-Coder, which writes tools and calls in
// tags and keeps no reasoning.
func (f *Family) renderCoder(dst []byte, msgs []Message, tools []json.RawMessage, _ Options) []byte {
	hasSystem := len(msgs) > 0 && msgs[0].Role == "system"
	switch {
	case hasSystem:
		dst = append(dst, "<|im_start|>system\n"+msgs[0].Content...)
		msgs = msgs[1:]
	case len(tools) > 0:
		dst = append(dst, "<|im_start|>system\nYou are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."...)
	}
	if len(tools) > 0 {
		dst = append(dst, "\n\n"...)
		dst = f.appendTools(dst, tools, "")
	}
	if hasSystem || len(tools) > 0 {
		dst = append(dst, f.TurnEnd...)
	}
	for i, m := range msgs {
		switch {
		case m.Role == "assistant" && len(m.Calls) > 0:
			dst = append(dst, "<|im_start|>assistant"...)
			if c := pythonStrip(m.Content); c != "" {
				dst = append(dst, "\n"+c+"\n"...)
			}
			for _, c := range m.Calls {
				dst = append(append(append(dst, "\n<tool_call>\n<function="...), c.Name...), ">\n"...)
				eachMember(json.RawMessage(c.Arguments), func(key string, v json.RawMessage) {
					dst = append(append(append(dst, "<parameter="...), key...), ">\n"...)
					dst = appendPythonText(dst, v)
					dst = append(dst, "\n</parameter>\n"...)
				})
				dst = append(dst, f.Calls.Close...)
			}
			dst = append(dst, f.TurnEnd...)
		case m.Role == "tool":
			if i > 0 && msgs[i-1].Role != "tool" {
				dst = append(dst, "<|im_start|>user\n"...)
			}
			dst = append(append(append(dst, f.ResponseOpen...), m.Content...), f.ResponseClose...)
			if i == len(msgs)-1 || msgs[i+1].Role != "tool" {
				dst = append(dst, f.TurnEnd...)
			}
		default:
			dst = f.appendTurn(dst, m.Role, m.Content)
		}
	}
	return dst
}

// appendToolTags writes a tool in the tags of Qwen3-Coder.
func appendToolTags(dst []byte, tool json.RawMessage) []byte {
	outer, members := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	eachMember(tool, func(k string, v json.RawMessage) { outer[k] = v })
	function := outer["function"]
	if function == nil {
		function = tool
	}
	eachMember(function, func(k string, v json.RawMessage) { members[k] = v })
	if members["name"] == nil {
		return AppendTool(dst, tool)
	}
	if v := outer["defer_loading"]; v != nil && string(v) != "null" && (members["defer_loading"] == nil || string(members["defer_loading"]) == "null") {
		members["defer_loading"] = v
	}
	dst = append(append(append(dst, "<function>\n<name>"...), appendPythonText(nil, members["name"])...), "</name>"...)
	dst = append(append(append(dst, "\n<description>"...), pythonStrip(string(appendPythonText(nil, members["description"])))...), "</description>"...)
	dst = append(dst, "\n<parameters>"...)
	params := map[string]json.RawMessage{}
	eachMember(members["parameters"], func(k string, v json.RawMessage) { params[k] = v })
	eachMember(params["properties"], func(name string, schema json.RawMessage) {
		dst = append(append(append(dst, "\n<parameter>\n<name>"...), name...), "</name>"...)
		fields := map[string]json.RawMessage{}
		eachMember(schema, func(k string, v json.RawMessage) { fields[k] = v })
		if t, ok := fields["type"]; ok {
			dst = append(append(append(dst, "\n<type>"...), appendPythonRepr(nil, t, false)...), "</type>"...)
		}
		if t, ok := fields["description"]; ok {
			dst = append(append(append(dst, "\n<description>"...), pythonStrip(string(appendPythonRepr(nil, t, false)))...), "</description>"...)
		}
		dst = appendExtra(dst, schema, "name", "type", "description")
		dst = append(dst, "\n</parameter>"...)
	})
	dst = appendExtra(dst, members["parameters"], "type", "properties")
	dst = append(dst, "\n</parameters>"...)
	for _, k := range []string{"strict", "defer_loading"} {
		if v := members[k]; v != nil && string(v) != "null" {
			dst = append(append(append(dst, "\n<"+k+">"...), appendPythonText(nil, v)...), "</"+k+">"...)
		}
	}
	return append(dst, "\n</function>"...)
}

// appendExtra writes the members of an object but some, each in tags.
func appendExtra(dst []byte, object json.RawMessage, but ...string) []byte {
	eachMember(object, func(k string, v json.RawMessage) {
		if !contains(but, k) {
			dst = append(append(append(dst, "\n<"...), k...), '>')
			dst = appendPythonText(dst, v)
			dst = append(append(append(dst, "</"...), k...), '>')
		}
	})
	return dst
}

// eachMember calls do for the members of an object, of a repeated key with its
// last value in the place of the first, as Python reads it.
func eachMember(raw json.RawMessage, do func(key string, v json.RawMessage)) {
	if _, err := AppendPython(nil, raw); err != nil {
		return
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return
	}
	var keys []string
	values := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var v json.RawMessage
		if err != nil || !ok || d.Decode(&v) != nil {
			return
		}
		if _, ok := values[key]; !ok {
			keys = append(keys, key)
		}
		values[key] = v
	}
	for _, key := range keys {
		do(key, values[key])
	}
}

// appendPythonText writes a value as templates do that print text and other
// scalars by str() and all else as JSON.
func appendPythonText(dst []byte, v json.RawMessage) []byte {
	if len(v) > 0 && (v[0] == '{' || v[0] == '[') {
		if out, err := AppendPython(dst, v); err == nil {
			return out
		}
	}
	return appendPythonRepr(dst, v, false)
}

// appendPythonRepr writes a value as Python's str() does, or repr() when quoted.
func appendPythonRepr(dst []byte, v json.RawMessage, quote bool) []byte {
	switch {
	case len(v) == 0 || string(v) == "null":
		return append(dst, "None"...)
	case string(v) == "true":
		return append(dst, "True"...)
	case string(v) == "false":
		return append(dst, "False"...)
	case v[0] == '"':
		var s string
		if json.Unmarshal(v, &s) != nil {
			return append(dst, v...)
		}
		if !quote {
			return append(dst, s...)
		}
		return appendPythonQuoted(dst, s)
	case v[0] == '[':
		var list []json.RawMessage
		if json.Unmarshal(v, &list) != nil {
			return append(dst, v...)
		}
		dst = append(dst, '[')
		for i, e := range list {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPythonRepr(dst, e, true)
		}
		return append(dst, ']')
	case v[0] == '{':
		dst = append(dst, '{')
		first := true
		eachMember(v, func(k string, v json.RawMessage) {
			if !first {
				dst = append(dst, ", "...)
			}
			first = false
			dst = append(appendPythonQuoted(dst, k), ": "...)
			dst = appendPythonRepr(dst, v, true)
		})
		return append(dst, '}')
	}
	out, err := AppendPython(nil, v)
	if err != nil {
		return append(dst, v...)
	}
	return append(dst, bytes.ReplaceAll(out, []byte("Infinity"), []byte("inf"))...)
}

// appendPythonQuoted is repr() of a string.
func appendPythonQuoted(dst []byte, s string) []byte {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	dst = append(dst, q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < 0x20 || r >= 0x7F && r < 0xA0:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case !unicode.IsPrint(r) && r < 0x10000:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		case !unicode.IsPrint(r):
			dst = fmt.Appendf(dst, `\U%08x`, r)
		default:
			dst = append(dst, string(r)...)
		}
	}
	return append(dst, q)
}

// pythonStrip is str.strip().
func pythonStrip(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || 0x1C <= r && r <= 0x1F })
}

// renderLlama is the template of Llama 3.1, with its fixed date: tools in the
// first user message, one call a turn.
func (f *Family) renderLlama(dst []byte, msgs []Message, tools []json.RawMessage, _ Options) []byte {
	turn := func(role, content string) {
		dst = append(append(append(append(append(dst, "<|start_header_id|>"...), role...), "<|end_header_id|>\n\n"...), content...), f.TurnEnd...)
	}
	dst = append(dst, "<|begin_of_text|>"...)
	var system string
	if len(msgs) > 0 && msgs[0].Role == "system" {
		system, msgs = pythonStrip(msgs[0].Content), msgs[1:]
	}
	head := ""
	if len(tools) > 0 {
		head = "Environment: ipython\n"
	}
	turn("system", head+"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"+system)
	if len(tools) > 0 && len(msgs) > 0 {
		text := "Given the following functions, please respond with a JSON for a function call " +
			"with its proper arguments that best answers the given prompt.\n\n" + llamaFormat + "\n"
		for _, t := range tools {
			text += string(appendIndented(nil, AppendTool(nil, t))) + "\n\n"
		}
		turn("user", text+pythonStrip(msgs[0].Content))
		msgs = msgs[1:]
	}
	for _, m := range msgs {
		switch {
		case len(m.Calls) > 0:
			var text []byte
			for _, c := range m.Calls {
				text = f.appendCall(text, c)
			}
			turn("assistant", string(text))
		case m.Role == "tool" || m.Role == "ipython":
			turn("ipython", string(appendString(nil, m.Content)))
		default:
			turn(m.Role, pythonStrip(m.Content))
		}
	}
	return dst
}

func (f *Family) promptLlama(dst []byte, _ []Message, _ Options) []byte {
	return append(dst, "<|start_header_id|>assistant<|end_header_id|>\n\n"...)
}

// appendToolIndented writes a tool as Llama's template does in a system turn.
func appendToolIndented(dst []byte, tool json.RawMessage) []byte {
	return append(appendIndented(dst, AppendTool(nil, tool)), '\n')
}

// appendIndented is json.dumps(…, indent=4) of what AppendPython wrote.
func appendIndented(dst, compact []byte) []byte {
	depth, inString := 0, false
	line := func() {
		dst = append(dst, '\n')
		for range depth {
			dst = append(dst, "    "...)
		}
	}
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		switch {
		case inString:
			dst = append(dst, c)
			if c == '\\' {
				i++
				dst = append(dst, compact[i])
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
			dst = append(dst, c)
		case (c == '{' || c == '[') && i+1 < len(compact) && compact[i+1] != '}' && compact[i+1] != ']':
			depth++
			dst = append(dst, c)
			line()
		case c == '{' || c == '[':
			i++
			dst = append(dst, c, compact[i])
		case c == '}' || c == ']':
			depth--
			line()
			dst = append(dst, c)
		case c == ',':
			i++ // the space behind it
			dst = append(dst, c)
			line()
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// renderDeepSeek is the template of DeepSeek-V3.1.
func (f *Family) renderDeepSeek(dst []byte, msgs []Message, _ []json.RawMessage, _ Options) []byte {
	dst = append(dst, "<｜begin▁of▁sentence｜>"...)
	first := true
	for _, m := range msgs {
		if m.Role == "system" {
			if !first {
				dst = append(dst, "\n\n"...)
			}
			dst, first = append(dst, m.Content...), false
		}
	}
	lastUser, lastTool := false, false
	for _, m := range msgs {
		switch m.Role {
		case "user":
			lastUser, lastTool = true, false
			dst = append(append(dst, "<｜User｜>"...), m.Content...)
		case "assistant":
			if lastUser {
				dst = append(dst, "<｜Assistant｜></think>"...)
			}
			content := m.Content
			if len(m.Calls) == 0 && !lastTool {
				if _, after, ok := strings.Cut(content, f.ThinkClose); ok {
					content = after
				}
			}
			dst = append(dst, content...)
			if len(m.Calls) > 0 {
				dst = append(dst, f.Calls.Section...)
				for _, c := range m.Calls {
					dst = f.appendCall(dst, c)
				}
				dst = append(dst, f.Calls.SectionEnd...)
			}
			dst = append(dst, f.TurnEnd...)
			lastUser, lastTool = false, false
		case "tool":
			lastUser, lastTool = false, true
			dst = append(append(append(dst, f.ResponseOpen...), m.Content...), f.ResponseClose...)
		}
	}
	return dst
}

// promptDeepSeek asks for an answer after a user message only.
func (f *Family) promptDeepSeek(dst []byte, msgs []Message, opt Options) []byte {
	lastUser := false
	for _, m := range msgs {
		switch m.Role {
		case "user":
			lastUser = true
		case "assistant", "tool":
			lastUser = false
		}
	}
	switch {
	case !lastUser:
	case opt.EnableThinking != nil && *opt.EnableThinking:
		dst = append(dst, "<｜Assistant｜><think>"...)
	default:
		dst = append(dst, "<｜Assistant｜></think>"...)
	}
	return dst
}

// glm is what the two templates of GLM share; nl is the newline of 4.5.
func (f *Family) glm(dst []byte, msgs []Message, tools []json.RawMessage, opt Options, nl string) []byte {
	dst = append(dst, "[gMASK]<sop>"...)
	if len(tools) > 0 {
		dst = append(dst, "<|system|>\n"...)
		dst = f.appendTools(dst, tools, "")
	}
	lastUser := -1
	for i, m := range msgs {
		if m.Role == "user" {
			lastUser = i
		}
	}
	for i, m := range msgs {
		switch m.Role {
		case "user":
			dst = append(dst, "<|user|>"+nl+m.Content...)
			if nl != "" && opt.EnableThinking != nil && !*opt.EnableThinking && !strings.HasSuffix(m.Content, "/nothink") {
				dst = append(dst, "/nothink"...)
			}
		case "assistant":
			content, reasoning := m.Content, m.Reasoning
			if reasoning == "" {
				content, reasoning = f.SplitReasoning(content)
			}
			dst = append(dst, "<|assistant|>"...)
			switch {
			case i > lastUser && reasoning != "":
				dst = append(dst, nl+f.ThinkOpen+pythonStrip(reasoning)+f.ThinkClose...)
			case nl != "":
				dst = append(dst, nl+f.ThinkOpen+f.ThinkClose...)
			default:
				dst = append(dst, f.ThinkClose...)
			}
			if content = pythonStrip(content); content != "" {
				dst = append(dst, nl+content...)
			}
			for _, c := range m.Calls {
				dst = append(append(append(dst, nl+f.Calls.Open...), c.Name...), f.Calls.Arguments...)
				dst = append(f.appendParameters(dst, c.Arguments), f.Calls.Close...)
			}
		case "tool":
			if i == 0 || msgs[i-1].Role != "tool" {
				dst = append(dst, "<|observation|>"...)
			}
			dst = append(append(append(dst, nl+f.ResponseOpen...), m.Content...), f.ResponseClose...)
		case "system":
			dst = append(dst, "<|system|>"+nl+m.Content...)
		}
	}
	return dst
}

func (f *Family) renderGLM(dst []byte, msgs []Message, tools []json.RawMessage, opt Options) []byte {
	return f.glm(dst, msgs, tools, opt, "\n")
}

func (f *Family) promptGLM(dst []byte, _ []Message, opt Options) []byte {
	dst = append(dst, "<|assistant|>"...)
	if opt.EnableThinking != nil && !*opt.EnableThinking {
		dst = append(dst, "\n<think></think>"...)
	}
	return dst
}

func (f *Family) renderGLM47(dst []byte, msgs []Message, tools []json.RawMessage, opt Options) []byte {
	return f.glm(dst, msgs, tools, opt, "")
}

func (f *Family) promptGLM47(dst []byte, _ []Message, opt Options) []byte {
	if opt.EnableThinking != nil && !*opt.EnableThinking {
		return append(dst, "<|assistant|></think>"...)
	}
	return append(dst, "<|assistant|><think>"...)
}

// renderKimi is the template of Kimi-K2: calls are numbered through the
// conversation, and results named after them in their order.
func (f *Family) renderKimi(dst []byte, msgs []Message, tools []json.RawMessage, _ Options) []byte {
	if len(tools) > 0 {
		dst = append(dst, "<|im_system|>tool_declare<|im_middle|>["...)
		for i, t := range tools {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = AppendTool(dst, t)
		}
		dst = append(dst, "]<|im_end|>"...)
	}
	if len(msgs) > 0 && msgs[0].Role != "system" {
		dst = append(dst, "<|im_system|>system<|im_middle|>"+f.DefaultSystem+"<|im_end|>\n"...)
	}
	var ids []string
	n := 0
	for _, m := range msgs {
		switch m.Role {
		case "user", "assistant":
			dst = append(dst, "<|im_"+m.Role+"|>"...)
		default:
			dst = append(dst, "<|im_system|>"...)
		}
		dst = append(dst, m.Role+"<|im_middle|>"...)
		switch {
		case m.Role == "assistant" && len(m.Calls) > 0:
			dst = append(append(dst, m.Content...), f.Calls.Section...)
			for _, c := range m.Calls {
				id := fmt.Sprintf("functions.%s:%d", c.Name, n)
				n++
				ids = append(ids, id)
				dst = append(append(append(dst, f.Calls.Open...), id...), f.Calls.AfterID...)
				dst = append(appendArguments(dst, c.Arguments), f.Calls.Close...)
			}
			dst = append(dst, f.Calls.SectionEnd...)
		case m.Role == "tool":
			id := fmt.Sprintf("functions.unknown:%d", n)
			if len(ids) > 0 {
				id, ids = ids[0], ids[1:]
			}
			dst = append(dst, "## Return of "+id+"\n"+m.Content...)
		default:
			dst = append(dst, m.Content...)
		}
		dst = append(dst, f.TurnEnd...)
	}
	return dst
}

func (f *Family) promptKimi(dst []byte, _ []Message, _ Options) []byte {
	return append(dst, "<|im_assistant|>assistant<|im_middle|>"...)
}

// renderMistral is the framing of tokenizer v13: tools before the first user
// message. Ids of results, which v11 prints, are left out.
func (f *Family) renderMistral(dst []byte, msgs []Message, tools []json.RawMessage, _ Options) []byte {
	dst = append(dst, "<s>"...)
	shown := len(tools) == 0
	show := func() {
		if shown {
			return
		}
		shown = true
		dst = append(dst, "[AVAILABLE_TOOLS]["...)
		for i, t := range tools {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = AppendTool(dst, t)
		}
		dst = append(dst, "][/AVAILABLE_TOOLS]"...)
	}
	for i, m := range msgs {
		if i > 0 || m.Role != "system" {
			show()
		}
		switch m.Role {
		case "system":
			dst = append(dst, "[SYSTEM_PROMPT]"+m.Content+"[/SYSTEM_PROMPT]"...)
		case "user":
			dst = append(dst, "[INST]"+m.Content+"[/INST]"...)
		case "assistant":
			dst = append(dst, m.Content...)
			for n, c := range m.Calls {
				c.Arguments = string(appendArguments(nil, c.Arguments))
				dst = append(dst, f.callText(c, n)...)
			}
			dst = append(dst, "</s>"...)
		case "tool":
			dst = append(append(append(dst, f.ResponseOpen...), m.Content...), f.ResponseClose...)
		}
	}
	show()
	return dst
}

func (f *Family) promptNothing(dst []byte, _ []Message, _ Options) []byte { return dst }
