package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A StopError says where a text stops fitting.
type StopError struct {
	Offset   int      // of the first byte that doesn't fit; the length of the text if its end doesn't; see Check for texts judged as a whole
	Pointer  string   // JSON pointer to the value that the byte is in or would begin
	Expected []string // what might stand there instead, for people
	Why      string
}

func (e *StopError) Error() string {
	at := e.Pointer
	if at == "" {
		at = "the value"
	}
	s := fmt.Sprintf("byte %d, in %s: %s", e.Offset, at, e.Why)
	if len(e.Expected) > 0 {
		s += "; expected " + strings.Join(e.Expected, " or ")
	}
	return s
}

// longText is from how many bytes on a text that is too much for an automaton is
// judged as a whole before it is begun again.
const longText = 64 << 10

// Check judges a whole text. What it finds out is kept for later, unless the
// automaton is half full; then the text is judged by a machine of its own, or, if
// it is long, as a value. The offset of what is wrong with that is the one where
// the value at fault begins. The error is a *StopError or a *LimitError.
func (a *Automaton) Check(text []byte) error {
	f := a.NewFollower()
	err := f.Feed(text)
	if err == nil {
		return f.End()
	}
	var limit *LimitError
	if !errors.As(err, &limit) || limit.Limit == "effort" {
		return err
	}
	if len(text) >= longText {
		if whole, ok := a.checkWhole(text); ok {
			return whole
		}
	}
	return a.checkAlone(text)
}

// checkWhole judges a text as a value; ok is false where that takes too much, or
// the text is none.
func (a *Automaton) checkWhole(text []byte) (err error, ok bool) {
	root, err := jsontext.Parse(text, a.limits.Depth)
	if err != nil {
		return nil, false
	}
	r, err := a.Reading(context.Background())
	if err != nil {
		return nil, false
	}
	misfits, err := r.Root().Misfits(root)
	switch {
	case err != nil:
		return nil, false
	case len(misfits) == 0:
		return nil, true
	}
	m := misfits[0]
	for len(m.Parts) > 0 && m.Keyword != "anyOf" && m.Keyword != "oneOf" {
		m = m.Parts[0]
	}
	why := "this breaks " + m.Keyword
	if m.Keyword == "" {
		why = "nothing may stand here"
	}
	stop := &StopError{Offset: jsontext.Locate(text, m.Path), Why: why}
	for _, tok := range m.Path {
		stop.Pointer += "/" + jsontext.EscapePointer(tok)
	}
	return stop, true
}

// checkAlone judges a text without keeping anything.
func (a *Automaton) checkAlone(text []byte) error {
	m, err := build(context.Background(), a.schema, a.options)
	if err != nil {
		return err
	}
	var at trace
	c := m.start()
	stop := func(i int, why string) error { return &StopError{Offset: i, Pointer: at.path(), Why: why} }
	effort := 0
	for i, b := range text {
		m.work, m.effort = 0, 0
		next, err := m.step(c, b)
		if err != nil {
			return err
		}
		if i%256 == 0 && m.bytes() > a.limits.Memory {
			return &LimitError{Limit: "memory", Max: a.limits.Memory}
		}
		fits := next != dead && m.alive(next)
		if err := m.exceeded(); err != nil {
			return err
		}
		if effort = max(0, effort+m.work+m.effort-freeEffort); effort > a.limits.Effort {
			return &LimitError{Limit: "effort", Max: a.limits.Effort}
		}
		if !fits || !at.follow(c.mode, next.mode, b) {
			return stop(i, at.why(c.mode, b, a.limits.Depth))
		}
		c = next
	}
	if !m.accepting(c) {
		return stop(len(text), endsHere)
	}
	return nil
}

// freeEffort is what a byte may cost and not count for Limits.Effort, so that
// a text may be long: within a string whose length counts, every character is a
// step that nobody took before.
const freeEffort = 16

const endsHere = "the text ends here"

// A Follower reads a text as it comes.
type Follower struct {
	a      *Automaton
	at     State
	offset int
	leapt  int // no leap before this offset
	effort int // formulas looked at so far that count for the limit
	err    error
	trace
}

// A trace is where in a text one is.
type trace struct {
	levels []level
	key    []byte // of the key being read, with its quotes
}

// A level is an open object or array of the text.
type level struct {
	object bool
	key    string
	named  bool // object: key is that of a member being read
	index  int
	keys   map[string]bool // object: what stood before
}

// NewFollower begins a text.
func (a *Automaton) NewFollower() *Follower { return &Follower{a: a, at: a.first} }

// State is where the text so far leads.
func (f *Follower) State() State { return f.at }

// Done tells whether the text may end here.
func (f *Follower) Done() bool { return f.err == nil && f.a.Accepting(f.at) }

// Feed reads more of the text. Once a byte doesn't fit it says so for ever.
func (f *Follower) Feed(text []byte) error {
	if f.err != nil {
		return f.err
	}
	if f.at == 0 {
		return f.stop("no value fits the schema")
	}
	r := f.a.row(f.at)
	for i := 0; i < len(text); i++ {
		b := text[i]
		s, known := r.to(b)
		if !known {
			if n := f.leap(text[i:]); n > 0 {
				r = f.a.row(f.at)
				i += n - 1
				continue
			}
			var err error
			if s, err = f.step(b); err != nil {
				f.err = err
				return err
			}
		} else if f.effort > 0 {
			f.effort = max(0, f.effort-freeEffort)
		}
		if s == f.at && b != ',' && r.mode != inKey {
			f.offset++
			continue
		}
		from := r.mode
		if s == 0 {
			return f.stop(f.why(from, b, f.a.limits.Depth))
		}
		r = f.a.row(s)
		if !f.follow(from, r.mode, b) {
			return f.stop(f.why(from, b, f.a.limits.Depth))
		}
		f.at = s
		f.offset++
	}
	return nil
}

// step finds the way that b leads.
func (f *Follower) step(b byte) (State, error) {
	s, work, err := f.a.stepIn(f.at, b, f.a.limits.Memory/2)
	if f.effort = max(0, f.effort+work-freeEffort); err == nil && f.effort > f.a.limits.Effort {
		err = &LimitError{Limit: "effort", Max: f.a.limits.Effort}
	}
	return s, err
}

// leap reads what it can of a long string at once.
func (f *Follower) leap(text []byte) int {
	if f.offset < f.leapt {
		return 0
	}
	n, to := f.a.leap(f.at, text)
	f.at, f.offset = to, f.offset+n
	if f.a.row(to).mode == inString { // it stops near, or never began
		f.leapt = f.offset + leapFrom
	}
	return n
}

// End tells whether the text fits as a whole.
func (f *Follower) End() error {
	if f.err != nil {
		return f.err
	}
	if !f.a.Accepting(f.at) {
		return f.stop(endsHere)
	}
	return nil
}

func (f *Follower) stop(why string) error {
	f.err = &StopError{f.offset, f.Path(), f.Expected(), why}
	return f.err
}

// follow keeps levels: byte b led from one mode to the other. It is false where
// a key ends that stood in the object before.
func (f *trace) follow(from, to mode, b byte) bool {
	switch from {
	case inString, inNull, inTrue, inFalse:
		return true
	case inKey:
		f.key = append(f.key, b)
		if to != atColon {
			return true
		}
		key, err := jsontext.NewReader(f.key, 0).String()
		if err != nil {
			return true
		}
		l := &f.levels[len(f.levels)-1]
		if l.keys[key] {
			return false
		}
		if l.keys == nil {
			l.keys = map[string]bool{}
		}
		l.keys[key] = true
		l.key, l.named = key, true
		return true
	}
	switch b {
	case '{', '[':
		f.levels = append(f.levels, level{object: b == '{'})
	case '}', ']':
		f.levels = f.levels[:len(f.levels)-1]
	case ',':
		l := &f.levels[len(f.levels)-1]
		l.index++
		l.named = false
	case '"':
		if to == inKey {
			f.key = append(f.key[:0], '"')
		}
	}
	return true
}

// Path is a JSON pointer to the value that comes next or is being read.
func (f *Follower) Path() string { return f.path() }

func (f *trace) path() string {
	var p strings.Builder
	for _, l := range f.levels {
		switch {
		case !l.object:
			p.WriteString("/" + strconv.Itoa(l.index))
		case l.named:
			p.WriteString("/" + jsontext.EscapePointer(l.key))
		}
	}
	return p.String()
}

// maxExpected bounds what Expected names, and maxExpectedWork the formulas looked
// at to find out: some milliseconds.
const (
	maxExpected     = 20
	maxExpectedWork = 20_000
)

// Expected says what may come next, for people.
func (f *Follower) Expected() []string {
	if f.at == 0 {
		return nil
	}
	a := f.a
	var out []string
	add := func(s string) {
		if len(out) < maxExpected && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	r := a.row(f.at)
	a.mu.Lock()
	class := a.m.bytesOf(r.config)
	a.mu.Unlock()
	var leads [256]struct { // by class
		known bool
		to    State
	}
	for b, k := range class {
		at := &leads[k]
		if k > 0 && !at.known {
			at.to, _ = a.Step(f.at, byte(b))
			at.known = true
		}
		if at.to == 0 || space(byte(b)) && r.mode != inString && r.mode != inKey {
			continue
		}
		for _, w := range a.words(f.at, r, byte(b)) {
			add(w)
		}
	}
	if a.Accepting(f.at) {
		add("the end of the text")
	}
	return out
}

// words names what may begin with byte b in a state.
func (a *Automaton) words(s State, r *row, b byte) []string {
	switch {
	case r.mode == atKey && b == '"':
		return a.names(s, b, "a key")
	case r.mode == atValue && b == '"':
		return a.names(s, b, "a string")
	case r.mode == inString || r.mode == inKey:
		return a.names(s, 0, "more of the string")
	case (r.mode == atValue || r.mode == inNumber) && (b == '-' || b >= '0' && b <= '9'):
		if r.mode == inNumber {
			return []string{"a digit"}
		}
		return []string{"a number"}
	case r.mode == atValue:
		switch b {
		case '{':
			return []string{"an object"}
		case '[':
			return []string{"an array"}
		case 't':
			return []string{"true"}
		case 'f':
			return []string{"false"}
		case 'n':
			return []string{"null"}
		}
	}
	return []string{"'" + string(rune(b)) + "'"}
}

// names lists the strings that a string can turn out to be, if they are few;
// b, if it isn't 0, is read first.
func (a *Automaton) names(s State, b byte, otherwise string) []string {
	if b != 0 {
		s, _ = a.Step(s, b)
	}
	if s == 0 {
		return nil
	}
	c := a.row(s).config
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.m
	f := &m.frames[c.top]
	var rd *reader
	if c.mode == inKey {
		rd = m.readerList[f.keys]
	} else if c.mode == inString {
		rd = m.part(m.asks[f.ask], 4).reader
	}
	if rd == nil {
		return []string{otherwise}
	}
	found, exact := rd.lex.Reachable(c.lex)
	var out []string
	more := !exact
	m.work, m.effort = 0, 0
	for _, o := range found {
		if len(out) == maxExpected || m.work+m.effort > maxExpectedWork {
			more = true
			break
		}
		id := m.classAt(rd, o)
		fits := false
		if c.mode == inKey {
			var next config
			next, fits = m.endKey(c.top, id, 0)
			fits = fits && m.alive(next)
		} else {
			fits = m.stringOutcome(m.part(m.asks[f.ask], 4), id).fits
		}
		switch {
		case !fits:
		case m.classes[id].word == 0:
			more = true
		default:
			out = append(out, strconv.Quote(m.words.list[m.classes[id].word]))
		}
	}
	if more || len(out) == 0 {
		out = append(out, otherwise)
	}
	return out
}

// why says why byte b doesn't fit.
func (f *trace) why(mo mode, b byte, depth int) string {
	what := fmt.Sprintf("%q", b)
	if b >= 0x80 {
		what = fmt.Sprintf("byte %#02x", b)
	}
	closing := b == '}' || b == ']'
	switch {
	case mo == inKey && b == '"':
		return "this key doesn't fit here, or stood before"
	case mo == atValue && (b == '{' || b == '[') && len(f.levels) >= depth:
		return fmt.Sprintf("nested more than %d deep", depth)
	case mo == inString && b == '"':
		return "the string doesn't fit"
	case mo == inNumber && (b == ',' || closing || space(b)):
		return "the number doesn't fit"
	case mo == afterValue && closing:
		return what + " would end it too early"
	}
	return what + " doesn't fit"
}
