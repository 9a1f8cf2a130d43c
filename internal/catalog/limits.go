package catalog

import "fmt"

// Limits bound what is read, so that no file and no request can take unbounded
// memory or time, or put unreadable text into a prompt. What goes beyond is
// refused tool by tool.
type Limits struct {
	FileBytes        int64 // of one file
	Tools            int   // of one catalog
	ToolBytes        int   // of one tool as written
	DescriptionBytes int   // of a tool's description
	Depth            int   // nested objects and arrays of one tool
	// Names are held to [a-zA-Z0-9_-], 1 to NameBytes, as OpenAI has it.
	NameBytes int
	// Strings and keys anywhere in a tool may not hold control characters
	// (U+0000–U+001F, U+007F–U+009F) other than tab and line breaks.
}

// DefaultLimits are those of [Load] and [NewCache].
var DefaultLimits = Limits{
	FileBytes:        128 << 20, // 100,000 tools of 1.3 kB; reading takes about four times as much memory
	Tools:            200_000,
	ToolBytes:        256 << 10, // about 64k tokens: more than most windows hold beside anything else
	DescriptionBytes: 64 << 10,
	Depth:            64,
	NameBytes:        64,
}

// Problem is a tool that is not served, and why. The rest of its file is.
type Problem struct {
	File   string // path as given, or joined to the directory given
	Line   int    // from 1, in JSON lines; 0 elsewhere
	Entry  int    // from 1, in the order of the file; 0 for the file as a whole
	Name   string // of the tool, where it is known
	Reason string
}

func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d", p.Line)
	}
	if p.Entry > 0 {
		s += fmt.Sprintf(": entry %d", p.Entry)
	}
	if p.Name != "" {
		s += fmt.Sprintf(" (%.80q)", p.Name)
	}
	return s + ": " + p.Reason
}
