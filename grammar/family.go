package grammar

import (
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/models/wire"
)

// SyntaxOf is how a family writes its calls.
func SyntaxOf(f *wire.Family) Syntax {
	c := &f.Calls
	s := Syntax{
		Trigger:    f.Trigger(),
		Triggers:   f.Triggers(),
		Begin:      f.CallBegin,
		Begins:     f.CallBegins,
		End:        f.CallEnd(),
		Separator:  c.Join,
		Section:    c.Section,
		SectionEnd: c.SectionEnd,
		ID:         c.ID,
		AfterID:    c.AfterID,
		Channels:   c.Form == wire.Channels,
		CheckName:  f.CheckName,
	}
	tokens := []string{c.Open, c.Tag}
	if c.Form == wire.Value {
		tokens = append(append(tokens, c.Section, c.SectionEnd, c.AfterID), c.NameEnds...)
	}
	for _, tag := range tokens {
		if tag != "" && !slices.Contains(s.Tokens, tag) {
			s.Tokens = append(s.Tokens, tag)
		}
	}
	if c.Form == wire.Parameters {
		wrap := ""
		if c.Wrapped {
			wrap = "\n"
		}
		s.Parameters = &Parameters{
			Open:  c.Parameter,
			Is:    c.Is + wrap,
			Close: wrap + c.End + c.Gap,
			End:   c.End,
			// What the engines' own parsers take for an end, too.
			Bars:     append([]string{c.End, strings.TrimSpace(c.Tag)}, c.Bars...),
			IsText:   f.TextParameter,
			Read:     f.ReadParameter,
			CheckKey: f.CheckKey,
		}
	}
	return s
}
