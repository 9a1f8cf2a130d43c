package prefix

import (
	"regexp"
	"slices"
	"strings"
)

// A VolatileAction is what becomes of a line that changes from turn to turn.
type VolatileAction string

const (
	// Move puts the line at the end of the last user message, where it costs no
	// prefix. The message keeps it in later turns, as what was sent stays sent.
	Move VolatileAction = "move"
	// Strip leaves the line out.
	Strip VolatileAction = "strip"
)

// A VolatileRule says what to do with lines of the system text that match.
type VolatileRule struct {
	Name   string
	Match  *regexp.Regexp // a line without its line break
	Action VolatileAction
	// Longest is the longest line in bytes that may match; 0 for any. A clock stands
	// in a line of its own; a long line is text that happens to have a date in it.
	Longest int
}

// builtinLongest is the Longest of built-in rules.
const builtinLongest = 300

func (r *VolatileRule) matches(line string) bool {
	return (r.Longest == 0 || len(line) <= r.Longest) && r.Match.MatchString(line)
}

// VolatileRules are tried in order; the first that matches a line counts.
type VolatileRules []VolatileRule

// VolatileBuiltins match lines that change by themselves, by the name of what is
// in them: "date", "hash", "counter". A number alone is no counter: it must be
// said to count something that runs.
func VolatileBuiltins() map[string]*regexp.Regexp {
	const counted = `(?:tokens?|remaining|left|used|usage|budget|count(?:er)?|turns?|steps?|iterations?|requests?|messages?|memory|uptime|elapsed|spent|cost)`
	hash := `(?:[0-9a-f]*[0-9][0-9a-f]*[a-f][0-9a-f]*|[0-9a-f]*[a-f][0-9a-f]*[0-9][0-9a-f]*)`
	return map[string]*regexp.Regexp{
		"date": detectors[1].pattern,
		"hash": regexp.MustCompile(detectors[0].pattern.String() + `|\b` + hash + `\b`),
		"counter": regexp.MustCompile(`(?i)\b` + counted + `\b[^.\n]{0,40}?[:=]\s*[$€£]?\d` +
			`|\b\d[\d,.]*\s*(?:%|tokens?|turns?|steps?|requests?|messages?|[KMG]i?B)?\s*(?:remaining|left|used|spent|elapsed)\b` +
			`|\b` + counted + `\s+\d+\s*(?:/|of)\s*\d+`),
	}
}

// Builtin is the rule of that name with an action for it; ok is false for a name
// that VolatileBuiltins lacks.
func Builtin(name string, action VolatileAction) (VolatileRule, bool) {
	m, ok := VolatileBuiltins()[name]
	return VolatileRule{Name: name, Match: m, Action: action, Longest: builtinLongest}, ok
}

// A VolatileLine is one line that a rule took out of the system text.
type VolatileLine struct {
	Rule    string         `json:"rule"`
	Action  VolatileAction `json:"action"`
	Message int            `json:"message"` // that it stood in
	Line    string         `json:"line"`
	// To is the user message that the line was put behind in this turn, -1 when it
	// stands in the conversation already, or was stripped.
	To int `json:"to"`
}

// Settled is a request whose system text has no volatile lines left.
type Settled struct {
	System map[int]string // texts of system messages that changed, by message
	Tails  map[int]string // what stands behind the text of user messages
	Lines  []VolatileLine // what was taken out, for the audit

	last int // the user message whose tail is new, -1 for none
	key  Key // under which it is found
}

// Keep records the tail that is new, so that later turns find it, and returns the
// name of the conversation with which it is deleted. The messages are those that
// Settle was given, with their tails.
func (s *Settled) Keep(l Ledger, scope Scope, msgs []Message) Name {
	first := slices.IndexFunc(msgs, func(m Message) bool { return m.Role == "user" })
	name := scope.name(meanings(msgs[:first+1]))
	if s.last >= 0 {
		l.Put(s.key, &Entry{Conversation: name, Text: s.Tails[s.last], Replaced: true})
	}
	return name
}

// Settle takes the lines that match out of the system messages in front and puts
// those to be moved behind the last user message. A line that stands in the
// conversation with the same words is not repeated. What was put behind earlier
// messages is found in the ledger and put there again, so that the prompt begins
// with the one before; where the ledger has lost it, it is gone from the prompt.
// What is put there now is recorded by Keep.
// A tool's result gets nothing: in a loop the line keeps the value that it had
// when the user spoke. Without a user message nothing is taken.
func (rules VolatileRules) Settle(l Ledger, scope Scope, msgs []Message) Settled {
	s := Settled{System: map[int]string{}, Tails: map[int]string{}, last: -1}
	settled := slices.Clone(msgs)
	for i := 0; i < len(msgs) && isSystem(msgs[i].Role); i++ {
		if msgs[i].Opaque != nil {
			continue
		}
		if kept := rules.take(&s, i, msgs[i].Text); kept != msgs[i].Text {
			s.System[i], settled[i].Text = kept, kept
		}
	}
	keys := chain(scope.root("volatile", ""), meanings(settled))
	said := map[string]string{} // by shape of line: the words that count now
	last := -1
	for i := range msgs {
		if msgs[i].Role != "user" {
			continue
		}
		last = i
		if i == len(msgs)-1 {
			break // just said: what stands under its key is of another time
		}
		if e, ok := l.Get(keys[i]); ok {
			s.Tails[i] = e.Text
			for line := range strings.SplitSeq(e.Text, "\n") {
				said[shape(line)] = line
			}
		}
	}
	if last < 0 {
		return Settled{last: -1}
	}
	if _, ok := s.Tails[last]; ok {
		return s
	}
	tail := ""
	for i := range s.Lines {
		line := strings.TrimSpace(s.Lines[i].Line)
		if s.Lines[i].Action != Move || said[shape(line)] == line {
			continue
		}
		said[shape(line)] = line
		s.Lines[i].To = last
		tail += "\n" + line
	}
	if tail == "" {
		return s
	}
	s.Tails[last], s.last, s.key = "\n"+tail, last, keys[last]
	return s
}

// take moves the lines that match from text to s and returns the others.
func (rules VolatileRules) take(s *Settled, message int, text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		words := strings.TrimRight(line, "\r\n")
		took := false
		for _, r := range rules {
			if took = r.matches(words); took {
				s.Lines = append(s.Lines, VolatileLine{Rule: r.Name, Action: r.Action, Message: message, Line: words, To: -1})
				break
			}
		}
		if !took {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

var changing = regexp.MustCompile(`[0-9a-fA-F]*\d[0-9a-fA-F]*`)

// shape is a line without what changes in it, so that its new words replace its
// old ones.
func shape(line string) string {
	return changing.ReplaceAllString(detectors[1].pattern.ReplaceAllString(line, "0"), "0")
}
