package prefix

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestVolatileBuiltins: which lines the built-in rules take.
func TestVolatileBuiltins(t *testing.T) {
	builtins := VolatileBuiltins()
	for line, want := range map[string]string{
		"Current time: 2026-11-30T17:45:00Z":            "date",
		"Today is Monday, November 30, 2026.":           "date",
		"now=1796060700":                                "date",
		"Session: 550e8400-e29b-41d4-a716-446655440000": "hash",
		"x-billing: cc_version=2.1.9; cch=1f3a9b20":     "hash",
		"Tokens remaining: 18,204":                      "counter",
		"12% used":                                      "counter",
		"You are on step 3 of 20":                       "counter",
		"Memory usage: 41%":                             "counter",
		"Budget: $1.25":                                 "counter",
		"Answer in at most 3 sentences.":                "",
		"You are a helpful agent.":                      "",
		"Use HTTP/2 and the 4 tools below.":             "",
		"Always decade, facade and accede.":             "",
		"":                                              "",
	} {
		got := ""
		for _, name := range slices.Sorted(maps.Keys(builtins)) {
			if builtins[name].MatchString(line) {
				got = strings.TrimPrefix(got+" "+name, " ")
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func moveDates() VolatileRules {
	date, _ := Builtin("date", Move)
	return VolatileRules{{Name: "id", Match: regexp.MustCompile(`^id `), Action: Strip}, date}
}

// settle settles a request and records its tails.
func settle(rules VolatileRules, l Ledger, msgs []Message) Settled {
	s := rules.Settle(l, testScope, msgs)
	msgs = slices.Clone(msgs)
	for i := range msgs {
		if text, ok := s.System[i]; ok {
			msgs[i].Text = text
		}
		msgs[i].Text += s.Tails[i]
	}
	s.Keep(l, testScope, msgs)
	return s
}

// settledText is the request after the rules, for people.
func settledText(msgs []Message, s Settled) string {
	var b strings.Builder
	for i, m := range msgs {
		text := m.Text
		if t, ok := s.System[i]; ok {
			text = t
		}
		fmt.Fprintf(&b, "%s %q\n", m.Role, text+s.Tails[i])
	}
	return b.String()
}

// TestSettle plays a conversation in which the clock ticks: the line moves to each
// new user message, once for each value, stays behind the messages that have it,
// and each prompt begins with the one before.
func TestSettle(t *testing.T) {
	l, rules := mapLedger{}, moveDates()
	system := func(clock string) Message {
		return Message{Role: "system", Text: "Be brief.\nid " + clock + "\nIt is " + clock + "\nBye."}
	}
	call := Message{Role: "assistant", Calls: []Call{{"1", "f", "{}"}}}
	steps := []struct {
		clock string
		add   []Message
		want  string // of the messages added, as they are sent
	}{
		{"10:01", []Message{{Role: "user", Text: "one"}}, `user "one\n\nIt is 10:01"`},
		{"10:02", []Message{call, {Role: "tool", CallID: "1", Text: "r"}}, `assistant "" tool "r"`},
		{"10:03", []Message{{Role: "assistant", Text: "a"}, {Role: "user", Text: "two"}}, `assistant "a" user "two\n\nIt is 10:03"`},
		{"10:03", []Message{{Role: "assistant", Text: "b"}, {Role: "user", Text: "three"}}, `assistant "b" user "three"`},
		{"10:01", []Message{{Role: "assistant", Text: "c"}, {Role: "user", Text: "four"}}, `assistant "c" user "four\n\nIt is 10:01"`},
	}
	var history []Message
	before := "system \"Be brief.\\nBye.\"\n"
	for i, step := range steps {
		history = append(history, step.add...)
		msgs := append([]Message{system(step.clock)}, history...)
		s := settle(rules, l, msgs)
		now := settledText(msgs, s)
		added, ok := strings.CutPrefix(now, before)
		if !ok || strings.ReplaceAll(strings.TrimSpace(added), "\n", " ") != step.want {
			t.Fatalf("step %d: %s\nafter %s\nwant %s", i, now, before, step.want)
		}
		before = now
		if len(s.Lines) != 2 || s.Lines[0].Action != Strip || s.Lines[1].Rule != "date" || s.Lines[1].Line != "It is "+step.clock {
			t.Errorf("step %d: lines %+v", i, s.Lines)
		}
		if again := settledText(msgs, settle(rules, l, msgs)); again != now {
			t.Errorf("step %d: a retry is settled otherwise: %s", i, again)
		}
	}
	other := testScope
	other.Tenant = "other"
	msgs := append([]Message{system("10:09")}, history...)
	if s := rules.Settle(l, other, msgs); len(s.Tails) != 1 {
		t.Errorf("another tenant is given %v", s.Tails)
	}
	// The same words at another time say the other time.
	fresh := []Message{system("23:00"), {Role: "user", Text: "one"}}
	if s := rules.Settle(l, testScope, fresh); s.Tails[1] != "\n\nIt is 23:00" {
		t.Errorf("a new conversation with known words is given %v", s.Tails)
	}
	if s := rules.Settle(l, testScope, fresh[:1]); len(s.System)+len(s.Tails)+len(s.Lines) != 0 {
		t.Errorf("without a user message: %+v", s)
	}
}

// TestLongLines: a system text that is one long line with a date in it stays.
func TestLongLines(t *testing.T) {
	long := "It is 10:01. " + strings.Repeat("Be exact. ", 40)
	s := moveDates().Settle(mapLedger{}, testScope, []Message{{Role: "system", Text: long}, {Role: "user", Text: "hi"}})
	if len(s.Lines) != 0 || len(s.System) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSettleNames: a tail is deleted with the conversation that it stands in.
func TestSettleNames(t *testing.T) {
	l := mapLedger{}
	msgs := []Message{{Role: "system", Text: "It is 10:01"}, {Role: "user", Text: "hi"}}
	s := settle(moveDates(), l, msgs)
	msgs[0].Text, msgs[1].Text = s.System[0], msgs[1].Text+s.Tails[1]
	name := Open(l, testScope, "tools", msgs).Name()
	if len(l) == 0 {
		t.Fatal("no tail is recorded")
	}
	for _, e := range l {
		if e.Conversation != name {
			t.Errorf("the tail is of %s, the conversation is %s", e.Conversation, name)
		}
	}
}

// TestSettleLoses: the lines kept and the lines taken are the lines of the text, in
// whatever text, and rules that match nothing change nothing.
func TestSettleLoses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([a-z ]{0,5}(10:01|id x)?(\r?\n)){0,6}[a-z]{0,3}`).Draw(t, "text")
		msgs := []Message{{Role: "system", Text: text}, {Role: "user", Text: "u"}}
		s := moveDates().Settle(mapLedger{}, testScope, msgs)
		kept, ok := s.System[0]
		if !ok {
			kept = text
		}
		var rest []string
		for line := range strings.Lines(kept) {
			rest = append(rest, strings.TrimRight(line, "\r\n"))
		}
		for _, l := range s.Lines {
			rest = append(rest, l.Line)
		}
		var all []string
		for line := range strings.Lines(text) {
			all = append(all, strings.TrimRight(line, "\r\n"))
		}
		slices.Sort(rest)
		slices.Sort(all)
		if !slices.Equal(rest, all) {
			t.Fatalf("%q became %q and %+v", text, kept, s.Lines)
		}
	})
}
