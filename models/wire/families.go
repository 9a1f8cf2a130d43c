package wire

import "strings"

// The families. What their texts say is the models' own templates' wording
// where the template shows tools in the system turn; the others show tools where
// content can't (a turn or a tag of their own), and get plain words.

const hermesUse = "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
	"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"

const toolsHead = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
	"You are provided with function signatures within <tools></tools> XML tags:\n<tools>"

var hermes = Family{
	Name:          "hermes",
	Aliases:       []string{"qwen3"},
	TurnStart:     "<|im_start|>",
	TurnEnd:       "<|im_end|>\n",
	StopTokens:    []string{"<|im_end|>", "<|endoftext|>"},
	Controls:      qwenControls,
	TemplateTools: true,
	ToolsHead:     toolsHead,
	ToolsTail:     "\n</tools>",
	ToolsUse:      hermesUse,
	LateOpen:      "<tools>",
	LateClose:     "</tools>",
	Calls: Syntax{
		Form:      Object,
		Lead:      "\n",
		Join:      "\n",
		Open:      "<tool_call>",
		Name:      "\n{\"name\": \"",
		Arguments: `", "arguments": `,
		Close:     "}\n</tool_call>",
		Tag:       "</tool_call>",
		Keys:      []string{"arguments"},
	},
	ResultRole:    "user",
	ResponseOpen:  "<tool_response>\n",
	ResponseClose: "\n</tool_response>",
	ResponseJoin:  "\n",
	ThinkOpen:     "<think>",
	ThinkClose:    "</think>",
	ThoughtOpen:   "<think>\n",
	ThoughtClose:  "\n</think>\n\n",
	render:        (*Family).renderTools,
	prompt:        (*Family).promptChatML,
}

var chatml = hermes.with(func(f *Family) {
	f.Name = "chatml"
	f.Aliases = []string{"smollm2"}
	f.DefaultSystem = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
	f.TemplateTools = false
	f.Controls = smolControls
	f.ThinkOpen, f.ThinkClose = "", ""
	f.render = (*Family).renderPlain
})

// Qwen3-Coder: parameters in tags, tools as tags too, no reasoning.
var qwen3coder = hermes.with(func(f *Family) {
	f.Name = "qwen3-coder"
	f.Aliases = []string{"qwen3_coder"}
	f.ToolsHead = "# Tools\n\nYou have access to the following tools:\n\n<tools>"
	f.ToolsUse = "If you choose to call a tool ONLY reply in the following format with NO suffix:\n\n" +
		"<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n" +
		"<parameter=example_parameter_2>\nvalue_2\n</parameter>\n</function>\n</tool_call>\n\n" +
		"<IMPORTANT>\nReminder:\n" +
		"- Function calls MUST follow the specified format: the tool calling block MUST begin with an opening <tool_call> tag and end with a closing </tool_call> tag.\n" +
		"- Required parameters MUST be specified\n" +
		"- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n" +
		"- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls\n" +
		"</IMPORTANT>"
	f.Calls = Syntax{
		Form:      Parameters,
		Lead:      "\n\n",
		Join:      "\n",
		Open:      "<tool_call>",
		Name:      "\n<function=",
		NameEnds:  []string{">"},
		Arguments: ">\n",
		Parameter: "<parameter=",
		Is:        ">",
		End:       "</parameter>",
		Gap:       "\n",
		Wrapped:   true,
		Close:     "</function>\n</tool_call>",
		Tag:       "</tool_call>",
		Bars:      []string{"<parameter=", "</function>"},
		Coerce:    TextUnlessTyped,
	}
	f.ResponseClose, f.ResponseJoin = "\n</tool_response>\n", ""
	f.ThinkOpen, f.ThinkClose = "", ""
	f.tool = appendToolTags
	f.render = (*Family).renderCoder
})

// Llama 3.1 and 3.2 with calls as JSON. The template shows tools in the first
// user message unless it is told otherwise.
var llama3 = Family{
	Name:          "llama3",
	Aliases:       []string{"llama3-json", "llama3_json", "llama3.1", "llama3.2"},
	TurnStart:     "<|start_header_id|>",
	TurnEnd:       "<|eot_id|>",
	StopTokens:    []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
	Controls:      llamaControls,
	TemplateTools: true,
	ToolsHead: "You have access to the following functions. To call a function, please respond with JSON for a function call." +
		llamaFormat,
	LateOpen:  "<tools>",
	LateClose: "</tools>",
	Calls: Syntax{
		Form:      Object,
		Join:      "; ",
		Name:      `{"name": "`,
		Arguments: `", "parameters": `,
		Close:     "}",
		Before:    "<|python_tag|>",
		Keys:      []string{"parameters", "arguments"},
	},
	ResultRole: "tool",
	tool:       appendToolIndented,
	render:     (*Family).renderLlama,
	prompt:     (*Family).promptLlama,
}

const llamaFormat = `Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.` +
	"Do not use variables.\n"

// DeepSeek-V3.1. The template joins all system messages at the top and knows no
// tools, only calls and results.
var deepseek = Family{
	Name:          "deepseek-v3.1",
	Aliases:       []string{"deepseek_v3_1", "deepseekv31"},
	TurnStart:     "<｜User｜>",
	TurnEnd:       "<｜end▁of▁sentence｜>",
	StopTokens:    []string{"<｜end▁of▁sentence｜>"},
	Controls:      []string{"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"},
	TemplateTools: true,
	ToolsHead:     "## Tools\n\nYou may call the following functions:\n<tools>",
	ToolsTail:     "\n</tools>",
	ToolsUse: "Write calls in this form and in no other:\n" +
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function name<｜tool▁sep｜>arguments as a JSON object<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	LateOpen:  "<tools>",
	LateClose: "</tools>",
	Calls: Syntax{
		Form:       Value,
		Section:    "<｜tool▁calls▁begin｜>",
		SectionEnd: "<｜tool▁calls▁end｜>",
		Open:       "<｜tool▁call▁begin｜>",
		NameEnds:   []string{"<｜tool▁sep｜>"},
		Arguments:  "<｜tool▁sep｜>",
		Close:      "<｜tool▁call▁end｜>",
		Tag:        "<｜tool▁call▁end｜>",
	},
	ResultRole:    "tool",
	ResponseOpen:  "<｜tool▁output▁begin｜>",
	ResponseClose: "<｜tool▁output▁end｜>",
	ThinkOpen:     "<think>",
	ThinkClose:    "</think>",
	ThinkInPrompt: true,
	ThoughtOpen:   "<think>",
	ThoughtClose:  "</think>",
	NoThought:     "</think>",
	render:        (*Family).renderDeepSeek,
	prompt:        (*Family).promptDeepSeek,
}

// GLM-4.5 and 4.6.
var glm45 = Family{
	Name:          "glm-4.5",
	Aliases:       []string{"glm45", "glm-4.6"},
	TurnStart:     "<|user|>",
	Roles:         map[string]string{"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>", "tool": "<|observation|>"},
	TurnLead:      "\n",
	StopTokens:    []string{"<|user|>", "<|observation|>", "<|endoftext|>"},
	Controls:      []string{"<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"},
	TemplateTools: true,
	ToolsHead:     toolsHead,
	ToolsTail:     "\n</tools>",
	ToolsUse: "For each function call, output the function name and arguments within the following XML format:\n" +
		"<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n" +
		"<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>",
	LateOpen:  "<tools>",
	LateClose: "</tools>",
	Calls: Syntax{
		Form:      Parameters,
		Lead:      "\n",
		Join:      "\n",
		Open:      "<tool_call>",
		NameEnds:  []string{"\n", "<arg_key>", "</tool_call>"},
		Arguments: "\n",
		Parameter: "<arg_key>",
		Is:        "</arg_key>\n<arg_value>",
		End:       "</arg_value>",
		Gap:       "\n",
		Close:     "</tool_call>",
		Tag:       "</tool_call>",
		Bars:      []string{"<arg_key>", "</arg_key>", "<arg_value>"},
		Coerce:    JSONUnlessTyped,
	},
	ResultRole:    "tool",
	ResponseOpen:  "<tool_response>\n",
	ResponseClose: "\n</tool_response>",
	ThinkOpen:     "<think>",
	ThinkClose:    "</think>",
	ThoughtOpen:   "\n<think>",
	ThoughtClose:  "</think>",
	NoThought:     "\n<think></think>",
	render:        (*Family).renderGLM,
	prompt:        (*Family).promptGLM,
}

// GLM-4.7 and 5: the same without newlines.
var glm47 = glm45.with(func(f *Family) {
	f.Name = "glm-4.7"
	f.Aliases = []string{"glm47", "glm-5"}
	f.ToolsUse = "For each function call, output the function name and arguments within the following XML format:\n" +
		"<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>" +
		"<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>"
	s := &f.Calls
	s.Lead, s.Join, s.Arguments, s.Is, s.Gap = "", "", "", "</arg_key><arg_value>", ""
	f.ResponseOpen, f.ResponseClose = "<tool_response>", "</tool_response>"
	f.TurnLead = ""
	f.ThinkInPrompt = true
	f.ThoughtOpen, f.NoThought = "<think>", "</think>"
	f.render = (*Family).renderGLM47
	f.prompt = (*Family).promptGLM47
})

// Kimi-K2. Tools stand in a turn of their own at the top; the id of a call names
// its function and its number in the conversation.
var kimi = Family{
	Name:          "kimi-k2",
	Aliases:       []string{"kimi_k2", "kimi"},
	TurnStart:     "<|im_user|>",
	TurnEnd:       "<|im_end|>",
	DefaultSystem: "You are Kimi, an AI assistant created by Moonshot AI.",
	StopTokens:    []string{"<|im_end|>", "[EOS]"},
	Controls:      []string{"<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "[BOS]", "[EOS]", "[EOT]", "[UNK]", "[PAD]"},
	TemplateTools: true,
	ToolsHead:     "# Tools\n\nYou may call the following functions:\n<tools>",
	ToolsTail:     "\n</tools>",
	ToolsUse: "Write calls in this form and in no other, with 0, 1, … for N:\n" +
		"<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:N<|tool_call_argument_begin|>arguments as a JSON object<|tool_call_end|><|tool_calls_section_end|>",
	LateOpen:  "<tools>",
	LateClose: "</tools>",
	Calls: Syntax{
		Form:       Value,
		Section:    "<|tool_calls_section_begin|>",
		SectionEnd: "<|tool_calls_section_end|>",
		Open:       "<|tool_call_begin|>",
		Name:       "functions.",
		Prefix:     "functions.",
		NameEnds:   []string{"<|tool_call_argument_begin|>"},
		Arguments:  ":",
		Numbered:   true,
		ID:         "[0-9]{1,6}",
		IDText:     "%d",
		AfterID:    "<|tool_call_argument_begin|>",
		Close:      "<|tool_call_end|>",
		Tag:        "<|tool_call_end|>",
		Only:       "_.-",
	},
	ResultRole:   "tool",
	ThinkOpen:    "<think>",
	ThinkClose:   "</think>",
	ThoughtOpen:  "<think>\n",
	ThoughtClose: "\n</think>\n\n",
	render:       (*Family).renderKimi,
	prompt:       (*Family).promptKimi,
}

// gpt-oss. Its tools are part of the developer message that the engine writes.
var harmony = Family{
	Name:         "harmony",
	Aliases:      []string{"gpt-oss"},
	TurnStart:    messageStart,
	TurnEnd:      "<|end|>",
	StopTokens:   []string{"<|return|>", "<|call|>"},
	Controls:     []string{messageStart, "<|end|>", messageTag, channelTag, "<|constrain|>", "<|return|>", "<|call|>", "<|startoftext|>", "<|endoftext|>"},
	TemplateOnly: true,
	LateOpen:     "<tools>",
	LateClose:    "</tools>",
	Calls: Syntax{
		Form:      Channels,
		Open:      channelTag + "commentary to=",
		Name:      "functions.",
		Prefix:    "functions.",
		Arguments: " <|constrain|>json" + messageTag,
		Close:     "<|call|>",
		Tag:       "<|call|>",
		Join:      messageStart + "assistant",
		Only:      "_.-",
	},
	ResultRole: "tool",
}

// Mistral since tokenizer v13: a call is named before its arguments.
var mistral = Family{
	Name:          "mistral",
	Aliases:       []string{"mistral-v13", "mistral-v15"},
	TurnStart:     "[INST]",
	TurnEnd:       "</s>",
	StopTokens:    []string{"</s>"},
	Controls:      []string{"<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"},
	TemplateTools: true,
	ToolsHead:     "# Tools\n\nYou may call the following functions:\n<tools>",
	ToolsTail:     "\n</tools>",
	ToolsUse:      "Write calls in this form and in no other:\n[TOOL_CALLS]function name[ARGS]arguments as a JSON object",
	LateOpen:      "<tools>",
	LateClose:     "</tools>",
	Calls: Syntax{
		Form:      Value,
		Open:      "[TOOL_CALLS]",
		NameEnds:  []string{"[ARGS]", "[CALL_ID]"},
		Arguments: "[ARGS]",
		Listed:    true,
		Keys:      []string{"arguments", "parameters"},
	},
	ResultRole:    "tool",
	ResponseOpen:  "[TOOL_RESULTS]",
	ResponseClose: "[/TOOL_RESULTS]",
	ThinkOpen:     "[THINK]",
	ThinkClose:    "[/THINK]",
	ThoughtOpen:   "[THINK]\n",
	ThoughtClose:  "\n[/THINK]\n\n",
	render:        (*Family).renderMistral,
	prompt:        (*Family).promptNothing,
}

// Mistral with tokenizer v11: an id of nine characters stands before the
// arguments.
var mistral11 = mistral.with(func(f *Family) {
	f.Name = "mistral-v11"
	f.Aliases = nil
	f.ToolsUse = "Write calls in this form and in no other, with nine letters or digits for id:\n[TOOL_CALLS]function name[CALL_ID]id[ARGS]arguments as a JSON object"
	s := &f.Calls
	s.NameEnds = []string{"[CALL_ID]", "[ARGS]"}
	s.Arguments = "[CALL_ID]"
	s.ID, s.IDText, s.AfterID = "[a-zA-Z0-9]{9}", "call%05d", "[ARGS]"
	f.ThinkOpen, f.ThinkClose = "", ""
})

func (f Family) with(change func(*Family)) Family {
	change(&f)
	return f
}

var families = func() []*Family {
	all := []*Family{&hermes, &chatml, &llama3, &qwen3coder, &deepseek, &glm45, &glm47, &kimi, &harmony, &mistral, &mistral11}
	for _, f := range all {
		f.Calls.ready()
	}
	return all
}()

// Names are the names of all families, without their aliases.
func Names() []string {
	var out []string
	for _, f := range families {
		out = append(out, f.Name)
	}
	return out
}

// Aliases are the other names that ByName takes.
func Aliases() []string {
	var out []string
	for _, f := range families {
		out = append(out, f.Aliases...)
	}
	return out
}

// ForModel guesses the family from the name of a model, nil if it tells none.
func ForModel(model string) *Family {
	m := strings.ToLower(model)
	for _, g := range []struct {
		part string
		f    *Family
	}{
		{"qwen3-coder", &qwen3coder}, {"qwen3", &hermes}, {"qwen2.5", &hermes}, {"hermes", &hermes}, {"smollm2", &chatml},
		{"llama-3.1", &llama3}, {"llama-3.2", &llama3}, {"llama-3.3", &llama3}, {"deepseek-v3.1", &deepseek},
		{"glm-4.7", &glm47}, {"glm-5", &glm47}, {"glm-4.5", &glm45}, {"glm-4.6", &glm45}, {"kimi-k2", &kimi}, {"gpt-oss", &harmony},
		{"mistral-small-3.2", &mistral11}, {"devstral", &mistral}, {"magistral", &mistral}, {"ministral-3", &mistral},
	} {
		if strings.Contains(m, g.part) {
			return g.f
		}
	}
	return nil
}
