package accept

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// agrees holds the walk over schema and value to what the automaton said of a
// text.
func agrees(t failer, a *Automaton, text []byte, verdict error) {
	t.Helper()
	v, err := jsontext.Parse(text, 512)
	if err != nil {
		if verdict == nil {
			t.Errorf("%s\n%s: the automaton takes it: %v", a.schema, text, err)
		}
		return
	}
	r, err := a.Reading(context.Background())
	if err != nil {
		t.Errorf("%s: %v", a.schema, err)
		return
	}
	misfits, err := r.Root().Misfits(v)
	var itself *RefusedError
	if errors.As(err, &itself) && strings.Contains(itself.Reason, "refers to itself") {
		return // through what comes to nothing; the automaton doesn't see that
	}
	if err != nil || (len(misfits) == 0) != (verdict == nil) {
		t.Errorf("%s\n%s\nautomaton: %v\nwalk: %s, %v", a.schema, text, verdict, printed(misfits), err)
	}
}

// printed lists misfits: pointer, keyword and place of each, parts in brackets.
func printed(misfits []*Misfit) string {
	s := ""
	for i, m := range misfits {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%q:%s%s", m.Path, m.Schema.Place(), "/"+m.Keyword)
		if len(m.Names) > 0 {
			s += fmt.Sprintf("%q", m.Names)
		}
		if len(m.Two) > 0 {
			s += fmt.Sprint(m.Two)
		}
		if len(m.Parts) > 0 {
			s += "[" + printed(m.Parts) + "]"
		}
	}
	return s
}
