package accept

import "fmt"

// Limits bound what a schema, and the texts judged by it, may cost. A zero
// field has the default that its comment names.
type Limits struct {
	Bytes    int // of one schema document; 4 MiB
	Nesting  int // of a schema document; 512
	Values   int // JSON values in all documents of a schema together; 200,000
	Scopes   int // schemas that are read once more because $dynamicRef means something else in them; 2,000
	Formulas int // that a schema is turned into, with their parts; 2,000,000
	Width    int // schemas of one allOf, anyOf or oneOf; 100,000
	Work     int // formulas looked at in one step from byte to byte; 1,000,000
	Effort   int // formulas looked at in all steps of one text, beside 16 for each byte; 5,000,000
	Memory   int // bytes kept of what using the automaton found out; 64 MiB
	Depth    int // of brackets in a text that is judged; 512
	Search   int // steps of one search whether a text can still be completed; 2,000
}

// each is every limit with its default.
func (l *Limits) each() []limit {
	return []limit{
		{&l.Bytes, 4 << 20}, {&l.Nesting, 512}, {&l.Values, 2e5}, {&l.Scopes, 2e3}, {&l.Formulas, 2e6}, {&l.Width, 1e5}, {&l.Work, 1e6}, {&l.Effort, 5e6},
		{&l.Memory, 64 << 20}, {&l.Depth, 512}, {&l.Search, 2000},
	}
}

type limit struct {
	at *int
	to int // default
}

func (l Limits) orDefault() Limits {
	for _, f := range l.each() {
		if *f.at <= 0 {
			*f.at = f.to
		}
	}
	return l
}

// A LimitError says which of the Limits was reached.
type LimitError struct {
	Limit   string // its name in Limits, in lower case; of a scalar with "lexical" before it
	Max     int
	Path    string // as in RefusedError, of a scalar the first place that asks it; "" where no place is to blame more than another
	Keyword string
}

func (e *LimitError) Error() string {
	path, keyword, reason := e.Place()
	if path == "" && keyword == "" {
		return reason
	}
	return (&RefusedError{path, keyword, reason}).Error()
}

// Place is the parts of the error.
func (e *LimitError) Place() (path, keyword, reason string) {
	return e.Path, e.Keyword, fmt.Sprintf("the schema needs more than %d %s", e.Max, e.Limit)
}

// A RefusedError says what in a schema is wrong or can't be decided.
type RefusedError struct {
	Path    string // JSON pointer into the schema, with the document's URI before # if it is another one
	Keyword string // "" if the schema itself is meant
	Reason  string
}

// Place is the parts of the error.
func (e *RefusedError) Place() (path, keyword, reason string) { return e.Path, e.Keyword, e.Reason }

func (e *RefusedError) Error() string {
	at := e.Path
	if at == "" {
		at = "the schema"
	}
	if e.Keyword != "" {
		return fmt.Sprintf("%s: %s: %s", at, e.Keyword, e.Reason)
	}
	return fmt.Sprintf("%s: %s", at, e.Reason)
}
