package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Tool is what grammar needs to know of a tool.
type Tool struct {
	Name string
	// Schema is the JSON Schema of the arguments. Empty, null and {} mean a
	// tool without parameters.
	Schema []byte
}

// Checked is a compiled tool: immutable, safe for concurrent use.
type Checked struct {
	name    string
	raw     string
	world   World
	content content
	// shared by all names of the tool
	judge     *judge
	automaton *automatonOnce
	parts     *parts
	proofs    *proofs
}

// Name is the tool's name.
func (c *Checked) Name() string { return c.name }

// A judge decides what fits a schema by its automaton, which grows as it is
// used. One that has grown by judgeBytes is replaced by a fresh one.
type judge struct {
	schema  []byte // closed, in the closed world
	fresh   int    // bytes of an automaton not used yet
	current atomic.Pointer[accept.Automaton]
	bytes   atomic.Int64 // of current, as of some of the last checks
	checks  atomic.Int64
}

// judgeBytes is some hundred times what the automaton of a function schema
// comes to, and judgeEffort some thousand times what a text takes it: a quarter
// of a second.
const (
	judgeBytes  = 8 << 20
	judgeEffort = 300_000
)

// judgeOptions are those for a schema. Half the memory is for a shared automaton,
// which begins with some 20 bytes for each of the schema; a text that needs more
// is judged as a whole.
func judgeOptions(schema []byte) accept.Options {
	return accept.Options{Limits: accept.Limits{Effort: judgeEffort, Memory: 2 * (judgeBytes + 20*len(schema))}}
}

func newJudge(ctx context.Context, schema []byte) (*judge, error) {
	a, err := accept.Compile(ctx, schema, judgeOptions(schema))
	if err != nil {
		return nil, err
	}
	j := &judge{schema: schema, fresh: a.MemoryBytes()}
	j.current.Store(a)
	j.bytes.Store(int64(j.fresh))
	return j, nil
}

// check judges a text. The error is a *accept.StopError or a *accept.LimitError.
func (j *judge) check(text []byte) error {
	a := j.current.Load()
	f := a.NewFollower()
	err := f.Feed(text)
	if err == nil {
		err = f.End()
	}
	if j.checks.Add(1)%16 != 0 && len(text) < 64<<10 {
		return err
	}
	n := a.MemoryBytes()
	j.bytes.Store(int64(n))
	if n > j.fresh+judgeBytes {
		if fresh, err := accept.Compile(context.Background(), j.schema, judgeOptions(j.schema)); err == nil {
			j.current.CompareAndSwap(a, fresh)
		}
	}
	return err
}

// reading is the schema for those who want to know more than yes or no.
func (j *judge) reading() (*accept.Reading, error) {
	return accept.Read(context.Background(), j.schema, judgeOptions(j.schema))
}

// A Misfit says where and why arguments don't fit.
type Misfit struct {
	// Loc is a JSON pointer into the arguments; "" is all of them.
	Loc string
	// InputValue is the JSON text at Loc, cut after 256 bytes. When the
	// arguments aren't JSON it is what stands around the offending byte.
	InputValue string
	// ErrorType is the schema keyword that failed, or one of json_syntax,
	// duplicate_key, trailing_data, invalid_utf8, too_deep, too_long.
	ErrorType string
	Message   string
	// Expected is what would have fitted, in words or values.
	Expected string
	// Offset is the byte at which the text stops being JSON; -1 if it is JSON.
	Offset int

	path  []string // Loc as JSON texts
	words *wording // of the envelope; nil: those above
}

func (m *Misfit) Error() string {
	at := m.Loc
	if at == "" {
		at = "arguments"
	}
	return at + ": " + m.Message
}

// Check tells whether the arguments of a call fit the tool; if not the error
// is a *Misfit. The text must be one JSON object: UTF-8, no key twice, nothing
// after it. Numbers are compared exactly, whatever their size.
func (c *Checked) Check(arguments []byte) error {
	f, m := c.judged(arguments, true)
	if f != nil {
		m = f.deepest()
	}
	if m != nil {
		return m
	}
	return nil
}

// Misfits gives every independent cause why a text doesn't fit, in the order
// of the text; none if it fits. With object the text must be an object, as the
// arguments of a call, and the result is empty if and only if Check takes it;
// without, it may be any JSON value, as the instances of a bare schema.
func (c *Checked) Misfits(text []byte, object bool) []*Misfit {
	f, m := c.judged(text, object)
	if f == nil {
		if m == nil {
			return nil
		}
		return []*Misfit{m}
	}
	return f.all()
}

// Accept is the automaton that Check judges by: what the schema says, closed in
// the closed world.
func (c *Checked) Accept() *accept.Automaton { return c.judge.current.Load() }

// judged judges a text. What fits gives neither faults nor a misfit.
func (c *Checked) judged(text []byte, object bool) (*faults, *Misfit) {
	if len(text) > maxArgumentBytes {
		return nil, &Misfit{ErrorType: "too_long", Message: "arguments longer than 16 MiB", Expected: "at most 16 MiB", Offset: -1}
	}
	verdict := c.judge.check(text)
	if verdict == nil && (!object || firstByte(text) == '{') {
		return nil, nil
	}
	root, m := oneValue(text, object)
	if m != nil {
		return nil, m
	}
	var stop *accept.StopError
	if errors.As(verdict, &stop) {
		return faultsOf(c.judge.reading, root, stop)
	}
	// What is too much byte by byte may be little for a value as a whole.
	misfits, err := misfitsOf(c.judge.reading, root)
	if err != nil {
		verdict = c.Accept().Check(text)
	}
	switch {
	case err != nil && verdict == nil:
		return nil, nil
	case err != nil && errors.As(verdict, &stop):
		return nil, stoppedAt(root, stop)
	case err != nil:
		return nil, &Misfit{ErrorType: "too_long", Message: "too much for this schema to be checked: " + verdict.Error(), Expected: "fewer values", Offset: -1}
	case len(misfits) == 0:
		return nil, nil
	}
	return &faults{root, causesOf(root, misfits)}, nil
}

// misfitsOf walks a value.
func misfitsOf(read func() (*accept.Reading, error), root *jsontext.Value) ([]*accept.Misfit, error) {
	r, err := read()
	if err != nil {
		return nil, err
	}
	return r.Root().Misfits(root)
}

// oneValue reads a text that must be one JSON value, or object.
func oneValue(text []byte, object bool) (*jsontext.Value, *Misfit) {
	root, err := jsontext.Parse(text, maxJSONDepth)
	if err != nil {
		e := err.(*jsontext.SyntaxError)
		want := "one JSON value"
		if object {
			want = "one JSON object"
		}
		return nil, &Misfit{InputValue: around(text, e.Offset), ErrorType: e.Code, Message: e.Error(), Expected: want, Offset: e.Offset}
	}
	if object && root.Kind != '{' {
		return nil, &Misfit{InputValue: clip(root), ErrorType: "type", Message: "the arguments are not an object", Expected: "object", Offset: -1}
	}
	return root, nil
}

func firstByte(text []byte) byte {
	for _, b := range text {
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			return b
		}
	}
	return 0
}

// Explain says what is wrong with a text in which an automaton stopped: every
// independent cause, in the order of the text, at least one. With object the
// text should have been an object.
func Explain(a *accept.Automaton, text []byte, object bool, stop *accept.StopError) []*Misfit {
	root, m := oneValue(text, object)
	if m != nil {
		return []*Misfit{m}
	}
	f, m := faultsOf(func() (*accept.Reading, error) { return a.Reading(context.Background()) }, root, stop)
	if m != nil {
		return []*Misfit{m}
	}
	return f.all()
}

// faults are what is wrong with a value: at least one cause.
type faults struct {
	root   *jsontext.Value
	causes []cause
}

// maxLocBytes bounds the pointers of all misfits of a text together: its keys
// may be long, and stand in each.
const maxLocBytes = 4 << 20

// all is a misfit for each cause, up to maxLocBytes.
func (f *faults) all() []*Misfit {
	var all []*Misfit
	size := 0
	for _, cause := range f.causes {
		m := cause.misfit(f.root)
		if size += len(m.Loc); size > maxLocBytes && len(all) > 0 {
			break
		}
		all = append(all, m)
	}
	return all
}

// faultsOf finds what is wrong with a value that the automaton stopped in. If
// that takes too long the misfit is all that the automaton knows.
func faultsOf(read func() (*accept.Reading, error), root *jsontext.Value, stop *accept.StopError) (*faults, *Misfit) {
	misfits, err := misfitsOf(read, root)
	if err != nil || len(misfits) == 0 {
		return nil, stoppedAt(root, stop)
	}
	return &faults{root, causesOf(root, misfits)}, nil
}

// stoppedAt is the misfit where no more is known than where a text stops.
func stoppedAt(root *jsontext.Value, stop *accept.StopError) *Misfit {
	m := &Misfit{ErrorType: "schema", Message: stop.Why, Expected: strings.Join(stop.Expected, " or "), Offset: -1}
	var toks []string
	if stop.Pointer != "" {
		toks = strings.Split(stop.Pointer[1:], "/")
	}
	for i, tok := range toks {
		toks[i] = jsontext.UnescapePointer(tok)
	}
	m.locate(root, toks)
	return m
}

// deepest picks the cause to tell: the deepest place in the arguments, among
// equals the first in the order of the text.
func (f *faults) deepest() *Misfit {
	best := f.causes[0]
	for _, c := range f.causes[1:] {
		if c.score > best.score {
			best = c
		}
	}
	return best.misfit(f.root)
}

// cause is one reason why a value doesn't fit, not counting those that only
// say that a part doesn't.
type cause struct {
	*accept.Misfit
	score int   // deeper places tell more; at equal depth the wrong branch of a union least
	at    []int // of the place: index of the member or item on each level
	code  string
	msg   string
}

// maxCauses bounds how many misfits are looked at for causes.
const maxCauses = 100_000

// causesOf gives the causes in the order of the text; of a union only one, the
// one that came farthest, or the union itself if each branch failed at once.
func causesOf(root *jsontext.Value, misfits []*accept.Misfit) []cause {
	type visit struct {
		*accept.Misfit
		branch bool
	}
	left := maxCauses
	unions := map[*accept.Misfit]cause{}
	leaf := func(m *accept.Misfit, branch bool) cause {
		c := cause{Misfit: m, score: 2 * len(m.Path), at: root.Order(m.Path)}
		if m.Keyword != "type" || !branch {
			c.score++
		}
		c.code, c.msg, _ = explain(m)
		return c
	}
	var collect func(misfits []*accept.Misfit, branch bool) []cause
	union := func(m *accept.Misfit) cause {
		if c, ok := unions[m]; ok {
			return c
		}
		all := collect(m.Parts, true)
		best := leaf(m, false)
		if len(all) > 0 {
			far := all[0]
			for _, c := range all[1:] {
				if c.score > far.score || c.score == far.score && c.before(&far) {
					far = c
				}
			}
			if far.score != 2*len(m.Path) { // else every branch wants another type
				best = far
			}
		}
		unions[m] = best
		return best
	}
	collect = func(misfits []*accept.Misfit, branch bool) []cause {
		var all []cause
		seen := map[visit]bool{}
		var walk func(m *accept.Misfit)
		walk = func(m *accept.Misfit) {
			if left--; seen[visit{m, branch}] || left < 0 && len(all) > 0 {
				return
			}
			seen[visit{m, branch}] = true
			switch {
			case len(m.Parts) == 0:
				all = append(all, leaf(m, branch))
			case m.Keyword == "anyOf" || m.Keyword == "oneOf":
				all = append(all, union(m))
			default:
				for _, part := range m.Parts {
					walk(part)
				}
			}
		}
		for _, m := range misfits {
			walk(m)
		}
		return all
	}
	all := collect(misfits, false)
	slices.SortStableFunc(all, func(a, b cause) int {
		switch {
		case a.before(&b):
			return -1
		case b.before(&a):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(all, func(a, b cause) bool { return !a.before(&b) && !b.before(&a) })
}

func (c *cause) before(d *cause) bool {
	if n := slices.Compare(c.at, d.at); n != 0 {
		return n < 0
	}
	if c.code != d.code {
		return c.code < d.code
	}
	return c.msg < d.msg
}

func (c *cause) misfit(root *jsontext.Value) *Misfit {
	m := &Misfit{Offset: -1}
	m.locate(root, c.Path)
	m.ErrorType, m.Message, m.Expected = explain(c.Misfit)
	m.words = wordingOf(m, c.Misfit)
	return m
}

// locate sets the place of a misfit in the arguments, and the value there.
func (m *Misfit) locate(root *jsontext.Value, toks []string) {
	at := root
	var loc strings.Builder
	for _, tok := range toks {
		loc.WriteString("/" + jsontext.EscapePointer(tok))
		if at != nil && at.Kind == '[' {
			if i, err := strconv.Atoi(tok); err == nil {
				m.path = append(m.path, strconv.Itoa(i))
			}
		} else {
			m.path = append(m.path, quoted(tok, maxEnvelopeText))
		}
		at, _ = at.Child(tok)
	}
	m.Loc = loc.String()
	if at != nil {
		m.InputValue = clip(at)
	}
}

// typeWords are the types that a schema wants.
func typeWords(s accept.Subschema) []string {
	t := s.Get("type")
	if t == nil {
		return nil
	}
	if t.Kind == '"' {
		return []string{t.Str}
	}
	var words []string
	for _, e := range t.Elems {
		words = append(words, e.Str)
	}
	return words
}

var kindWords = map[byte]string{'{': "object", '[': "array", '"': "string", '0': "number", 't': "boolean", 'f': "boolean", 'n': "null"}

// numberAt is the number at a keyword.
func numberAt(s accept.Subschema, keyword string) *big.Rat {
	r, ok := s.Get(keyword).Rat()
	if !ok {
		return new(big.Rat) // compiled, so it is a number
	}
	return r
}

// open tells whether minimum or maximum are made exclusive by draft-04's
// keyword.
func open(m *accept.Misfit) bool {
	switch m.Keyword {
	case "minimum":
		return m.Schema.Draft() == accept.Draft04 && m.Schema.Get("exclusiveMinimum").IsTrue()
	case "maximum":
		return m.Schema.Draft() == accept.Draft04 && m.Schema.Get("exclusiveMaximum").IsTrue()
	}
	return false
}

func explain(m *accept.Misfit) (code, message, expected string) {
	s := m.Schema
	code = m.Keyword
	length := func() int { return utf8.RuneCountInString(m.Value.Str) }
	switch m.Keyword {
	case "":
		return "not_declared", "must not be there", "nothing here"
	case "type":
		expected = strings.Join(typeWords(s), " or ")
		message = "is " + kindWords[m.Value.Kind] + " where " + expected + " should be"
	case "required":
		expected = joined(m.Names)
		message = "lacks " + quoteAll(m.Names)
	case "additionalProperties":
		expected = "no key " + joined(m.Names)
		message = "has " + quoteAll(m.Names) + ", not declared"
	case "enum":
		expected = clipText(joinJSON(s.Get("enum").Items(), " "), 256)
		message = "is not one of the listed values"
	case "const":
		expected = clipText(jsonText(s.Get("const")), 256)
		message = "is not the one value that fits"
	case "minLength":
		expected = "at least " + boundText(numberAt(s, code)) + " characters"
		message = fmt.Sprintf("has %d characters, fewer than %s", length(), boundText(numberAt(s, code)))
	case "maxLength":
		expected = "at most " + boundText(numberAt(s, code)) + " characters"
		message = fmt.Sprintf("has %d characters, more than %s", length(), boundText(numberAt(s, code)))
	case "minItems":
		expected = "at least " + boundText(numberAt(s, code)) + " items"
		message = fmt.Sprintf("has %d items, fewer than %s", len(m.Value.Elems), boundText(numberAt(s, code)))
	case "maxItems":
		expected = "at most " + boundText(numberAt(s, code)) + " items"
		message = fmt.Sprintf("has %d items, more than %s", len(m.Value.Elems), boundText(numberAt(s, code)))
	case "pattern":
		expected = clipText(s.Get("pattern").Str, 256)
		message = "does not match the pattern"
	case "format":
		name := s.Get("format").Str
		expected = "a string of format " + clipText(name, 64)
		message = "is no valid " + clipText(name, 64)
	case "minProperties":
		expected = "at least " + plural(numberAt(s, code), "key")
		message = fmt.Sprintf("has %d keys, fewer than %s", len(m.Value.Members), boundText(numberAt(s, code)))
	case "maxProperties":
		expected = "at most " + plural(numberAt(s, code), "key")
		message = fmt.Sprintf("has %d keys, more than %s", len(m.Value.Members), boundText(numberAt(s, code)))
	case "contains":
		least := big.NewRat(1, 1)
		if s.Get("minContains") != nil {
			least = numberAt(s, "minContains")
		}
		expected = "at least " + plural(least, "item") + " of " + domain(s.Child("contains"))
		message = "has too few items that fit contains"
	case "maxContains":
		expected = "at most " + plural(numberAt(s, code), "item") + " of " + domain(s.Child("contains"))
		message = "has too many items that fit contains"
	case "not":
		expected = "anything but " + domain(s.Child("not"))
		message = "is what the schema denies"
	case "minimum", "exclusiveMinimum":
		least := boundText(numberAt(s, m.Keyword))
		if m.Keyword == "minimum" && !open(m) {
			expected, message = "at least "+least, "is below "+least
		} else {
			expected, message = "more than "+least, "is not above "+least
		}
	case "maximum", "exclusiveMaximum":
		most := boundText(numberAt(s, m.Keyword))
		if m.Keyword == "maximum" && !open(m) {
			expected, message = "at most "+most, "is above "+most
		} else {
			expected, message = "less than "+most, "is not below "+most
		}
	case "multipleOf":
		expected = "a multiple of " + boundText(numberAt(s, code))
		message = "is not a multiple of " + boundText(numberAt(s, code))
	case "dependentRequired", "dependencies", "dependentSchemas":
		expected = joined(m.Names[1:])
		message = fmt.Sprintf("has %q and lacks %s", m.Names[0], quoteAll(m.Names[1:]))
	case "uniqueItems":
		expected = "items all different"
		message = fmt.Sprintf("holds one value twice, as items %d and %d", m.Two[0], m.Two[1])
	case "propertyNames":
		expected = "names that keep propertyNames"
		message = fmt.Sprintf("has the name %q, which does not fit propertyNames", clipText(m.Names[0], 64))
	case "anyOf":
		expected = "one of the alternatives"
		message = "fits none of the alternatives"
	case "oneOf":
		expected = "exactly one of the alternatives"
		message = "fits none of the alternatives"
		if len(m.Two) > 1 {
			message = fmt.Sprintf("fits more than one alternative, %d and %d", m.Two[0], m.Two[1])
		}
	default:
		message = "breaks " + code
		expected = "a value that keeps " + code
	}
	return code, message, expected
}

func quoteAll(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i == 5 {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", n)
	}
	return b.String()
}

// joined is the names with commas between, as many as 1,024 bytes take.
func joined(names []string) string {
	size := 0
	for i, n := range names {
		if size += len(n) + 2; size > 1024 {
			return clipText(strings.Join(names[:i+1], ", "), 1024)
		}
	}
	return strings.Join(names, ", ")
}

func clip(v *jsontext.Value) string {
	left := 256
	return clipText(string(beginning(v, &left, 256).AppendTo(nil)), 256)
}

func clipText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func around(b []byte, at int) string {
	from, to := max(0, at-40), min(len(b), at+40)
	return strings.ToValidUTF8(string(b[from:to]), "\uFFFD")
}
