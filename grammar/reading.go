package grammar

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A reading judges arguments that are written one by one in tags, byte by byte:
// it reads them as the family's parser does and steps the automaton of the
// schema by the JSON that they come to. It knows nothing of how they are written,
// and takes the tags as the family spells them and in no other way.
type reading struct {
	p      *Parameters
	schema json.RawMessage
	a      *accept.Automaton
	json   *accept.Automaton // of any JSON
	states []readState
	ids    map[readState]uint32
}

// errUnread is about what stands where nothing of a family can stand. The parser
// may make something of it, which isn't looked at.
var errUnread = errors.New("parameters are written in a way that is not looked at")

// A readState is where a reading is.
type readState struct {
	in   readPlace
	at   accept.State // of the JSON so far
	tag  string       // of the tag or key that is being read, or of the end of a value
	key  string       // of the value
	any  bool         // a parameter was read
	kind readKind
	// word is a text so far that may turn out to be null, as before says what
	// came before it; "" also where that is decided.
	word   string
	null   bool
	before accept.State
	json   accept.State // of a value that is JSON, by itself
}

type readPlace uint8

const (
	betweenParameters readPlace = iota
	inKey
	inParameter
	behindValue
)

// readKind is how a value is read.
type readKind uint8

const (
	undecided readKind = iota // no byte was read
	asText
	asJSON
)

// newReading begins with the object that holds the parameters.
func newReading(p *Parameters, c *Checked, a *accept.Automaton) (*reading, error) {
	any, err := accept.Compile(context.Background(), []byte("true"), accept.Options{})
	if err != nil {
		return nil, err
	}
	r := &reading{p: p, schema: json.RawMessage(c.raw), a: a, json: any, ids: map[readState]uint32{}}
	r.states = []readState{{}} // dead
	at, err := r.step(a.Start(), `{`)
	if err == nil {
		r.id(readState{at: at})
	}
	return r, err
}

// dead tells that nothing right can come of it.
func (s *readState) dead() bool { return s.at == 0 && !s.null && s.json == 0 }

func (r *reading) id(s readState) uint32 {
	if s.dead() {
		return 0
	}
	n, ok := r.ids[s]
	if !ok {
		n = uint32(len(r.states))
		r.ids[s] = n
		r.states = append(r.states, s)
	}
	return n
}

func (r *reading) step(at accept.State, text string) (accept.State, error) {
	for i := 0; i < len(text) && at != 0; i++ {
		var err error
		if at, err = r.a.Step(at, text[i]); err != nil {
			return 0, err
		}
	}
	return at, nil
}

func (r *reading) Start() uint32 { return 1 }

func (r *reading) Accepting(state uint32) bool {
	s := r.states[state]
	if s.in != betweenParameters || s.tag != "" {
		return false
	}
	at, err := r.step(s.at, `}`)
	return err == nil && at != 0 && r.a.Accepting(at)
}

func (r *reading) Step(state uint32, b byte) (uint32, error) {
	s := r.states[state]
	var err error
	switch s.in {
	case betweenParameters:
		s, err = r.literal(s, b, r.p.Open, readState{in: inKey, any: s.any})
	case inKey:
		if s.tag += string([]byte{b}); !strings.HasSuffix(s.tag, r.p.Is) {
			break
		}
		s, err = r.open(s, strings.TrimSuffix(s.tag, r.p.Is))
	case inParameter:
		s, err = r.value(s, b)
	case behindValue:
		s, err = r.literal(s, b, r.p.behind(), readState{any: true})
	}
	if err != nil {
		return 0, err
	}
	return r.id(s), nil
}

// literal reads a tag, behind which the state is next.
func (r *reading) literal(s readState, b byte, tag string, next readState) (readState, error) {
	if tag[len(s.tag)] != b {
		return s, errUnread
	}
	if s.tag += string([]byte{b}); s.tag == tag {
		next.at = s.at
		return next, nil
	}
	return s, nil
}

// open begins a value.
func (r *reading) open(s readState, key string) (readState, error) {
	if key == "" || strings.TrimSpace(key) != key {
		return s, errUnread
	}
	text := string(jsontext.AppendString(nil, key)) + ":"
	if s.any {
		text = "," + text
	}
	at, err := r.step(s.at, text)
	return readState{in: inParameter, at: at, key: key}, err
}

// wrap is what may stand around a value and is not part of it.
func (p *Parameters) wrap() string { return p.Close[:strings.Index(p.Close, p.End)] }

// behind is what follows the end of a value.
func (p *Parameters) behind() string { return p.Close[len(p.wrap())+len(p.End):] }

// value reads a byte of a value, or of its end.
func (r *reading) value(s readState, b byte) (readState, error) {
	held := s.tag + string([]byte{b})
	// What may still be the end stays held, with a line feed before it.
	k := 0
	for n := min(len(held), len(r.p.End)); n > 0; n-- {
		if strings.HasSuffix(held, r.p.End[:n]) {
			k = n
			break
		}
	}
	n := len(held) - k
	if wrap := r.p.wrap(); wrap != "" && strings.HasSuffix(held[:n], wrap) {
		n -= len(wrap)
	}
	var err error
	for i := 0; i < n && !s.dead(); i++ {
		if s, err = r.content(s, held[i]); err != nil {
			return s, err
		}
	}
	s.tag = held[n:]
	if k < len(r.p.End) || s.dead() {
		return s, nil
	}
	return r.close(s)
}

// content reads a byte of what a value says.
func (r *reading) content(s readState, b byte) (readState, error) {
	if s.kind == undecided {
		var err error
		if s, err = r.begin(s, b); err != nil {
			return s, err
		}
	}
	if s.kind == asJSON {
		var err error
		if s.json, err = r.json.Step(s.json, b); err == nil && s.json == 0 {
			err = errUnread // what is no JSON may be text, and fit as such
		}
		if err == nil {
			s.at, err = r.step(s.at, string([]byte{b}))
		}
		return s, err
	}
	at, err := r.step(s.at, escaped(b))
	s.at = at
	if s.null {
		if s.word, s.null = maybeNull(s.word + string([]byte{b})); !s.null {
			s.before = 0
		}
	}
	return s, err
}

// begin decides by the first byte how a value is read.
func (r *reading) begin(s readState, b byte) (readState, error) {
	var err error
	if r.p.IsText(r.schema, s.key) {
		s.kind = asText
		s.null = string(r.p.Read(r.schema, s.key, "null")) == "null"
		if s.null {
			s.before = s.at
		}
		s.at, err = r.step(s.at, `"`)
		return s, err
	}
	if like := jsonLike(b); like == "" || string(r.p.Read(r.schema, s.key, like)) != like {
		return s, errUnread
	}
	s.kind, s.json = asJSON, r.json.Start()
	return s, nil
}

// jsonLike is a JSON value of the kind that begins with b, "" for none: one of each
// kind tells how all of it are read.
func jsonLike(b byte) string {
	switch {
	case b == '"':
		return `"x"`
	case b == '{':
		return "{}"
	case b == '[':
		return "[]"
	case b == 't':
		return "true"
	case b == 'f':
		return "false"
	case b == 'n':
		return "null"
	case b == '-', '0' <= b && b <= '9':
		return "1"
	}
	return ""
}

// close ends a value.
func (r *reading) close(s readState) (readState, error) {
	at, err := s.at, error(nil)
	switch {
	case s.kind == asJSON && !r.json.Accepting(s.json):
		return s, errUnread
	case s.kind == asJSON:
	case s.kind == undecided && !r.p.IsText(r.schema, s.key):
		return s, errUnread
	case s.null && string(r.p.Read(r.schema, s.key, s.word)) == "null":
		at, err = r.step(s.before, "null")
	case s.kind == undecided:
		at, err = r.step(s.at, `""`)
	default:
		at, err = r.step(s.at, `"`)
	}
	next := readState{in: behindValue, at: at}
	if r.p.behind() == "" {
		next = readState{at: at, any: true}
	}
	return next, err
}

// maybeNull tells whether a text may still be the word with white space around
// it, and gives a shorter text of which the same is true.
func maybeNull(text string) (string, bool) {
	whole := len(text)
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				whole = len(text) - n
			}
			break
		}
	}
	if tail := text[whole:]; tail != "" && !slices.ContainsFunc(wideSpaces, func(s string) bool { return strings.HasPrefix(s, tail) }) {
		return "", false
	}
	word := strings.TrimSpace(text[:whole])
	if !strings.HasPrefix("null", strings.ToLower(word)) {
		return "", false
	}
	if word != "" && strings.TrimRightFunc(text[:whole], unicode.IsSpace) != text[:whole] {
		word += " "
	}
	return word + text[whole:], true
}

// wideSpaces are the white space of Unicode that has several bytes.
var wideSpaces = func() (out []string) {
	for _, r := range unicode.White_Space.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			if c >= utf8.RuneSelf {
				out = append(out, string(c))
			}
		}
	}
	return out
}()

// escaped is a byte of a text as it stands in a JSON string.
func escaped(b byte) string {
	switch {
	case b == '"' || b == '\\':
		return `\` + string([]byte{b})
	case b < ' ':
		const hex = "0123456789abcdef"
		return `\u00` + string([]byte{hex[b>>4], hex[b&15]})
	}
	return string([]byte{b})
}
