package wire

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Form is what calls look like.
type Form uint8

const (
	// Object is one JSON object that holds name and arguments.
	Object Form = iota
	// Value is a name in tags and the arguments as one JSON value.
	Value
	// Parameters is a name in tags and every argument in tags of its own: text
	// as it is, anything else as JSON.
	Parameters
	// Channels is a message to a tool among messages of other channels.
	Channels
)

// Syntax is how a family writes calls. A call is
//
//	Open Name name Arguments arguments Close
//
// and the calls of a turn are
//
//	Section call Join call … SectionEnd
type Syntax struct {
	Form Form
	// Section and SectionEnd stand around the calls of a turn; "" for nothing.
	Section    string
	SectionEnd string
	// Lead stands between the content of a turn and its calls, Join between two
	// calls.
	Lead string
	Join string

	Open      string // what a call begins with; "" when Name does
	Name      string // from there to the name
	Arguments string // from the name to the arguments, or to the id
	Close     string // what follows the arguments
	Tag       string // what Close ends with; "" when the arguments end the call
	// NameEnds, of Value and Parameters, end the name in generated text: the first
	// is the usual one.
	NameEnds []string
	// Before is a tag that may stand before a call that begins without one.
	Before string

	// Keys, of Object, are the keys of the arguments, the usual one first.
	Keys []string

	// ID, of Value, is a regular expression for what stands between Arguments
	// and AfterID; "" for nothing.
	ID      string
	AfterID string
	// Numbered says that a call is named Prefix, name, ":", id, with digits for id.
	Numbered bool
	// IDText is the id of call number n of a turn, with the verb for n.
	IDText string
	// Prefix may stand before the name and is no part of it when it does.
	Prefix string
	// Listed, of Value, says that a JSON list of Objects may follow Open.
	Listed bool

	// A parameter, of Parameters, is Parameter, key, Is, value, End, Gap. Wrapped
	// says that one newline at either end of the value is framing.
	Parameter string
	Is        string
	End       string
	Gap       string
	Wrapped   bool
	// Bars are texts that the engines' own parsers take for the end of a value.
	Bars []string
	// Coerce, of Parameters, says how the family's engines read a value.
	Coerce Coercion

	// Only are the characters of names beside ASCII letters and digits; "" when
	// names are held to nothing but the tags around them.
	Only string

	starts []string // the tags that start calls in text
}

// ready fills in what follows from the rest.
func (s *Syntax) ready() {
	for _, t := range []string{s.Section, s.Open, s.Before} {
		if t != "" {
			s.starts = append(s.starts, t)
		}
	}
}

// A NameError is a name that a family's calls can't carry.
type NameError struct {
	Family string
	Name   string
	Why    string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("the name %q can't be written in a call of family %s: %s", e.Name, e.Family, e.Why)
}

// maxName is how many bytes of a name, an id or a key are read.
const maxName = 1024

// CheckName says why a tool of this name can't be called, as a *NameError. A
// name inside a JSON object is escaped there and may hold anything; any other
// must be one that can't be taken for the tags around it.
func (f *Family) CheckName(name string) error {
	s := &f.Calls
	switch {
	case name == "":
		return &NameError{f.Name, name, "it is empty"}
	case !utf8.ValidString(name):
		return &NameError{f.Name, name, "it is no UTF-8"}
	case len(name) > maxName:
		return &NameError{f.Name, name[:40] + "…", fmt.Sprintf("it is longer than %d bytes", maxName)}
	case s.Form == Object:
		return nil
	}
	for _, r := range name {
		if s.Only != "" && !(r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))) && !strings.ContainsRune(s.Only, r) {
			return &NameError{f.Name, name, fmt.Sprintf("%q is not among letters, digits and %s", r, s.Only)}
		}
	}
	if why := tagged(name); why != "" {
		return &NameError{f.Name, name, why}
	}
	return nil
}

// CheckKey is CheckName for the key of a parameter.
func (f *Family) CheckKey(key string) error {
	if f.Calls.Form != Parameters {
		return nil
	}
	switch {
	case key == "":
		return &NameError{f.Name, key, "the key is empty"}
	case len(key) > maxName:
		return &NameError{f.Name, key[:40] + "…", fmt.Sprintf("the key is longer than %d bytes", maxName)}
	}
	if why := tagged(key); why != "" {
		return &NameError{f.Name, key, why}
	}
	return nil
}

// tagged says why a text can't stand between tags.
func tagged(s string) string {
	if strings.TrimSpace(s) != s {
		return "space at its ends is framing"
	}
	for _, r := range s {
		switch {
		case strings.ContainsRune("<>[]{}|", r):
			return fmt.Sprintf("%q belongs to the tags", r)
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			return fmt.Sprintf("%q is a control character", r)
		}
	}
	return ""
}

// ends are the tags that close a call, without the space between them.
func (s *Syntax) ends() []string {
	if s.Form == Object {
		if s.Tag == "" {
			return nil
		}
		return []string{s.Tag}
	}
	return strings.Fields(s.Close)
}

// keyEnd and valueOpen are the tags of Is.
func (s *Syntax) keyEnd() string {
	end, _, _ := strings.Cut(s.Is, ">")
	return end + ">"
}

func (s *Syntax) valueOpen() string {
	_, open, _ := strings.Cut(s.Is, ">")
	return strings.TrimSpace(open)
}

// Trigger is the text that starts calls.
func (f *Family) Trigger() string { return f.Triggers()[0] }

// Triggers are all texts that start calls, the usual one first.
func (f *Family) Triggers() []string {
	s := &f.Calls
	if s.Form == Object && s.Open == "" {
		return []string{s.Name, s.Before}
	}
	return s.starts
}

// CallTags are the tags of calls, some of which may be tokens of the vocabulary.
func (f *Family) CallTags() []string {
	s := &f.Calls
	var out []string
	for _, t := range append([]string{s.Section, s.SectionEnd, s.Open, s.Before, s.AfterID, s.Tag, s.Parameter, s.End}, s.NameEnds...) {
		if t = strings.TrimSpace(t); t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// CallBegin is the text of a call to name up to its arguments, or to its id if
// calls have one.
func (f *Family) CallBegin(name string) string {
	s := &f.Calls
	return s.Open + s.Name + s.nameText(name) + s.Arguments
}

// CallBegins are all spellings of CallBegin, the usual one first.
func (f *Family) CallBegins(name string) []string {
	s := &f.Calls
	out := []string{f.CallBegin(name)}
	switch {
	case s.Before != "":
		out = append(out, s.Before+out[0])
	case s.Form == Channels:
		to := " to=" + s.Prefix + name + channelTag + "commentary"
		out = append(out, channelTag+"commentary to="+s.Prefix+name+"<|constrain|>json"+messageTag, to+" <|constrain|>json"+messageTag, to+" json"+messageTag)
	}
	return out
}

// CallEnd is the text of a call after its arguments.
func (f *Family) CallEnd() string { return f.Calls.Close }

// nameText is a name as it stands in a call: inside quotes in Object.
func (s *Syntax) nameText(name string) string {
	if s.Form != Object {
		return name
	}
	q := appendString(nil, name)
	return string(q[1 : len(q)-1])
}

// CallText is the text of a call as a model writes it; no arguments at all are
// written as {}.
func (f *Family) CallText(c Call) string { return f.callText(c, 0) }

// callText is CallText for call number n of a turn.
func (f *Family) callText(c Call, n int) string {
	args := c.Arguments
	if args == "" {
		args = "{}"
	}
	s := &f.Calls
	out := []byte(f.CallBegin(c.Name))
	if s.ID != "" {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf(s.IDText, n)
		}
		out = append(append(out, id...), s.AfterID...)
	}
	if s.Form == Parameters {
		out = f.appendParameters(out, args)
	} else {
		out = append(out, args...)
	}
	return string(append(out, f.CallEnd()...))
}

// TurnText is the content of an assistant turn: content and calls joined as the
// template joins them.
func (f *Family) TurnText(content string, calls []Call) string {
	if len(calls) == 0 {
		return content
	}
	var b strings.Builder
	b.WriteString(content)
	if content != "" {
		b.WriteString(f.Calls.Lead)
	}
	b.WriteString(f.Calls.Section)
	for i, c := range calls {
		if i > 0 {
			b.WriteString(f.Calls.Join)
		}
		b.WriteString(f.callText(c, i))
	}
	b.WriteString(f.Calls.SectionEnd)
	return b.String()
}
