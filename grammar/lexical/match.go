package lexical

// A Matcher tells of whole strings whether they are in a set. It is safe for
// concurrent use.
type Matcher struct{ s *Strings }

// NewMatcher makes a matcher. The error is a *LimitError.
func NewMatcher(p Predicate, lim Limits) (*Matcher, error) {
	s, err := NewStrings([]Predicate{p}, nil, lim)
	if err != nil {
		return nil, err
	}
	return &Matcher{s}, nil
}

// Match tells whether text is in the set. The error is a *LimitError; after it
// the matcher is of no more use.
func (m *Matcher) Match(text string) (bool, error) {
	q := m.s.Start()
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '"' || c == '\\':
			q = m.s.Step(q, '\\')
		case c < 0x20:
			for _, b := range []byte{'\\', 'u', '0', '0', "0123456789abcdef"[c>>4]} {
				q = m.s.Step(q, b)
			}
			c = "0123456789abcdef"[c&15]
		}
		if q = m.s.Step(q, c); q == Lost {
			return false, m.s.Limit()
		}
	}
	return m.s.Truth(m.s.Step(q, '"')).Has(0), nil
}
