package wire

import "strings"

// Controls of Qwen3's vocabulary that can part or end turns, or start modes, of
// Llama 3's, and of SmolLM2's.
var (
	qwenControls = []string{
		"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
		"<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
		"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
	}
	llamaControls = []string{
		"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|finetune_right_pad_id|>", "<|python_tag|>",
	}
	smolControls = []string{
		"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>",
		"<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>", "<jupyter_output>",
		"<jupyter_script>", "<empty_output>",
	}
)

// Neutral is text in which no control token is spelled: a space follows the
// first character of each spelling, so that the engine reads plain text where it
// would have read the end of a turn. Everything else is unchanged, and text
// without such spellings is returned as it is.
func (f *Family) Neutral(text string) string { return apart(text, f.Controls) }

// NeutralResult is Neutral for the text of a tool result, which can spell neither
// the tags of its frame nor those around late tools or around calls either.
func (f *Family) NeutralResult(text string) string {
	c := &f.Calls
	frame := []string{strings.TrimSpace(f.ResponseOpen), strings.TrimSpace(f.ResponseClose), f.LateOpen, f.LateClose}
	if c.Section != "" || c.Form == Channels || c.Listed {
		// These are control tokens of the vocabulary.
		frame = append(frame, c.Section, c.SectionEnd, c.Open, c.Tag, c.AfterID)
		frame = append(frame, c.NameEnds...)
	}
	return apart(text, f.Controls, frame)
}

// apart puts a space behind the first character of each spelling. The spellings
// start with '<' or '[', have no space, and none overlaps another, so that the
// space makes no new one.
func apart(text string, lists ...[]string) string {
	if strings.IndexByte(text, '<') < 0 && strings.IndexByte(text, '[') < 0 {
		return text
	}
	for _, list := range lists {
		for _, s := range list {
			if s != "" && strings.Contains(text, s) {
				text = strings.ReplaceAll(text, s, s[:1]+" "+s[1:])
			}
		}
	}
	return text
}
