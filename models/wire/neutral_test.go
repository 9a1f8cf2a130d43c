package wire

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// TestNeutral says that no text gives a control token of Qwen3's vocabulary
// once it is neutral, that nothing else changes, and that a result can't close
// its frame.
func TestNeutral(t *testing.T) {
	f, _ := ByName("qwen3")
	tok := tokenizer.Qwen3()
	special := func(text string) bool {
		return slices.ContainsFunc(tok.Encode(nil, text), func(id int32) bool {
			_, special, _ := tok.Token(id)
			return special
		})
	}
	for _, c := range f.Controls {
		if _, ok := tok.ID(c); !ok {
			t.Errorf("%s is no token of %s", c, tok.Name())
		}
	}
	for _, a := range tok.Added() {
		if a.Special && !slices.Contains(f.Controls, a.Content) {
			t.Errorf("the control token %s is missing", a.Content)
		}
	}
	pieces := append([]string{"a", " ", "<", "|", ">", "im_start", "<|im_", "end|>", "\n", "é", "</tool_response>", "<tool_response>", "<tools>", "</tools>"}, f.Controls...)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		got := f.Neutral(text)
		if special(got) {
			t.Fatalf("%q -> %q has a control token", text, got)
		}
		if !special(text) && slices.IndexFunc(f.Controls, func(c string) bool { return strings.Contains(text, c) }) < 0 && got != text {
			t.Fatalf("%q -> %q", text, got)
		}
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(text, " ", "") {
			t.Fatalf("%q -> %q changes more than spaces", text, got)
		}
		result := f.NeutralResult(text)
		for _, tag := range []string{"<tool_response>", "</tool_response>", "<tools>", "</tools>", "<|im_end|>"} {
			if strings.Contains(result, tag) {
				t.Fatalf("%q -> %q has %s", text, result, tag)
			}
		}
	})
}
