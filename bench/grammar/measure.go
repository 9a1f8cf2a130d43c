// Package grammar measures token masks over schemas with labelled instances:
// whether each instance that should be written can be, whether each that
// shouldn't is stopped, and how long compiling and masking take.
//
// An instance is compact JSON in the tokens that the vocabulary's own encoder
// makes of it. Before every token the mask is asked. The instance is accepted
// if every token was in the mask and the end of the turn is in the last.
package grammar

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolsidecar/sidecar/bench/quantile"
	"github.com/toolsidecar/sidecar/grammar/token"
)

// Config says what is measured.
type Config struct {
	Vocabulary *token.Vocabulary
	// Compile is from schema bytes to grammar. An error that has Place, as those
	// of the packages grammar and accept do, names the place.
	Compile func(Case) (*Language, error)
	// Answers is how many answers are timed over a fresh grammar: valid
	// instances in turn, else invalid ones. 0 is 1.
	Answers int
}

// A Language is what a schema was compiled to.
type Language struct {
	*token.Grammar
	// Narrow: it is some of what the schema says, so that a valid instance may
	// lie outside.
	Narrow bool
	// Wider are the places and keywords that it leaves to a check afterwards, so
	// that an invalid instance may lie inside.
	Wider []string
}

// Refused is a schema that isn't compiled.
type Refused struct {
	File    string `json:"file"`
	Path    string `json:"path"`
	Keyword string `json:"keyword"`
	Reason  string `json:"reason"`
}

// Wrong is an instance that is judged against its label, and not as the language
// says of itself.
type Wrong struct {
	File  string `json:"file"`
	Test  int    `json:"test"`
	Valid bool   `json:"valid"`
}

// Known is an instance that is judged against its label as the language says of
// itself: it is narrower than the schema, or wider.
type Known struct {
	File    string   `json:"file"`
	Test    int      `json:"test"`
	Reasons []string `json:"reasons,omitempty"` // why it is wider
}

// A Report is what was found.
type Report struct {
	Tokenizer    string    `json:"tokenizer"`
	Schemas      int       `json:"schemas"`
	Compiled     int       `json:"compiled"`
	Refused      []Refused `json:"refused"`
	SchemasRight int       `json:"schemas_right"` // compiled, and no instance in wrong
	Valid        struct {
		Accepted int `json:"accepted"`
		Rejected int `json:"rejected"`
	} `json:"valid"`
	Invalid struct {
		Rejected int `json:"rejected"`
		Accepted int `json:"accepted"`
	} `json:"invalid"`
	CompileUS  Spread  `json:"compile_us"` // from schema bytes to the first mask
	MaskUS     Spread  `json:"mask_us"`    // written out, over a fresh grammar
	WarmMaskUS Warm    `json:"warm_mask_us"`
	Masks      int     `json:"masks"` // timed for mask_us
	Memory     Memory  `json:"memory_bytes"`
	Wrong      []Wrong `json:"wrong"`
	Narrower   []Known `json:"narrower,omitempty"` // valid and outside
	Wider      []Known `json:"wider,omitempty"`    // invalid and inside

	Peers map[string]*Report `json:"peers,omitempty"`
}

// Spread is a distribution of microseconds.
type Spread struct {
	Avg float64 `json:"avg"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Warm is masks that are known: handed out as a pointer, written out, and a
// plain copy of as many bytes in the same run. Medians in microseconds.
type Warm struct {
	P50    float64 `json:"p50"`
	Copy   float64 `json:"copy_p50"`
	Memcpy float64 `json:"memcpy_p50"`
}

// Memory is what a grammar held at the end, beside its vocabulary.
type Memory struct {
	Avg int `json:"avg"`
	Max int `json:"max"`
}

// Run measures all cases.
func Run(cfg Config, cases []Case) (*Report, error) {
	r := &Report{Tokenizer: cfg.Vocabulary.Tokenizer().Name(), Refused: []Refused{}, Wrong: []Wrong{}}
	m := &measurement{cfg: cfg, report: r, mask: make([]uint64, cfg.Vocabulary.Words())}
	for i := range cases {
		if err := m.measure(&cases[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", cases[i].File, err)
		}
	}
	r.CompileUS, r.MaskUS = SpreadOf(m.compile), SpreadOf(m.cold)
	r.Masks = len(m.cold)
	r.WarmMaskUS = Warm{P50: SpreadOf(m.pointer).P50, Copy: SpreadOf(m.copies).P50, Memcpy: SpreadOf(m.memcpy).P50}
	if r.Compiled > 0 {
		r.Memory.Avg /= r.Compiled
	}
	return r, nil
}

type measurement struct {
	cfg    Config
	report *Report
	mask   []uint64

	compile, cold           []time.Duration
	pointer, copies, memcpy []time.Duration
}

func (m *measurement) measure(c *Case) error {
	r := m.report
	r.Schemas++
	begin := time.Now()
	g, err := m.cfg.Compile(*c)
	if err == nil {
		var k *token.Matcher
		if k, err = g.Matcher(); err == nil {
			err = k.Fill(m.mask)
		}
	}
	took := time.Since(begin)
	if err != nil {
		return m.refuse(c, err)
	}
	order := order(c.Tests)
	ids := make([][]int32, len(c.Tests))
	for i, t := range c.Tests {
		ids[i] = Tokens(m.cfg.Vocabulary, t.Text)
	}
	cold, verdicts := []time.Duration{}, make([]bool, len(c.Tests))
	for i := range max(m.cfg.Answers, 1) {
		if len(order) == 0 {
			break
		}
		at := order[i%len(order)]
		if verdicts[at], cold, err = m.walk(g.Grammar, ids[at], cold); err != nil {
			return m.refuse(c, err)
		}
	}
	for i := range c.Tests {
		if verdicts[i], _, err = m.walk(g.Grammar, ids[i], nil); err != nil {
			return m.refuse(c, err)
		}
	}
	r.Compiled++
	m.compile = append(m.compile, took)
	m.cold = append(m.cold, cold...)
	r.Memory.Avg += g.MemoryBytes()
	r.Memory.Max = max(r.Memory.Max, g.MemoryBytes())
	right := true
	for i, t := range c.Tests {
		switch {
		case t.Valid && verdicts[i]:
			r.Valid.Accepted++
		case t.Valid:
			r.Valid.Rejected++
		case verdicts[i]:
			r.Invalid.Accepted++
		default:
			r.Invalid.Rejected++
		}
		switch {
		case t.Valid == verdicts[i]:
		case t.Valid && g.Narrow:
			r.Narrower = append(r.Narrower, Known{File: c.File, Test: i})
		case !t.Valid && len(g.Wider) > 0:
			r.Wider = append(r.Wider, Known{c.File, i, g.Wider})
		default:
			right = false
			r.Wrong = append(r.Wrong, Wrong{c.File, i, t.Valid})
		}
	}
	if right {
		r.SchemasRight++
	}
	if len(order) > 0 {
		return m.warm(g.Grammar, ids[order[0]])
	}
	return nil
}

func (m *measurement) refuse(c *Case, err error) error {
	why := Refused{File: c.File, Reason: err.Error()}
	var at interface {
		Place() (path, keyword, reason string)
	}
	if errors.As(err, &at) {
		why.Path, why.Keyword, why.Reason = at.Place()
	}
	m.report.Refused = append(m.report.Refused, why)
	return nil
}

// order is valid instances first.
func order(tests []Test) []int {
	var out []int
	for i, t := range tests {
		if t.Valid {
			out = append(out, i)
		}
	}
	if len(out) == 0 && len(tests) > 0 {
		out = append(out, 0)
	}
	return out
}

// walk asks for the mask before every token, and once more for the end. It
// appends the times to cold unless that is nil.
func (m *measurement) walk(g *token.Grammar, ids []int32, cold []time.Duration) (bool, []time.Duration, error) {
	k, err := g.Matcher()
	if err != nil {
		return false, cold, err
	}
	for i := 0; ; i++ {
		begin := time.Now()
		err := k.Fill(m.mask)
		if took := time.Since(begin); cold != nil {
			cold = append(cold, took)
		}
		if err != nil {
			return false, cold, err
		}
		id := m.cfg.Vocabulary.Ends()[0]
		if i < len(ids) {
			id = ids[i]
		}
		allowed := m.mask[id>>6]>>(id&63)&1 == 1
		err = k.Advance(id)
		var no *token.RefusedError
		switch {
		case err != nil && !errors.As(err, &no):
			return false, cold, err
		case (err == nil) != allowed:
			return false, cold, fmt.Errorf("token %d: mask says %v, the automaton %v", id, allowed, err)
		case err != nil || i == len(ids):
			return err == nil, cold, nil
		}
	}
}

// times is how often a warm mask is asked at a place: a clock costs as much as
// handing out a pointer.
const times = 16

// warm times masks that are known.
func (m *measurement) warm(g *token.Grammar, ids []int32) error {
	k, err := g.Matcher()
	if err != nil {
		return err
	}
	other := make([]uint64, len(m.mask))
	for _, id := range ids {
		known, err := k.Mask()
		if err != nil {
			return err
		}
		begin := time.Now()
		for range times {
			if known, err = k.Mask(); err != nil {
				return err
			}
		}
		pointer := time.Now()
		for range times {
			known.Write(m.mask)
		}
		written := time.Now()
		for range times {
			copy(other, m.mask)
		}
		done := time.Now()
		m.pointer = append(m.pointer, pointer.Sub(begin)/times)
		m.copies = append(m.copies, written.Sub(pointer)/times)
		m.memcpy = append(m.memcpy, done.Sub(written)/times)
		if k.Advance(id) != nil {
			return nil
		}
	}
	return nil
}

// Tokens is text in the tokens of the vocabulary's own encoder. Text that the
// encoder would change by normalising goes in tokens of one byte each.
func Tokens(v *token.Vocabulary, text []byte) []int32 {
	tok := v.Tokenizer()
	ids := tok.EncodeOrdinary(nil, string(text))
	if back, err := tok.Decode(nil, ids); err == nil && bytes.Equal(back, text) {
		return ids
	}
	ids = ids[:0]
	for _, b := range text {
		ids = append(ids, v.Single(b))
	}
	return ids
}

// SpreadOf is the distribution of times; zero of none.
func SpreadOf(ds []time.Duration) Spread {
	if len(ds) == 0 {
		return Spread{}
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	sum := time.Duration(0)
	for _, d := range ds {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	at := func(q float64) float64 { return us(quantile.Of(ds, q)) }
	return Spread{us(sum) / float64(len(ds)), at(.5), at(.9), at(.99), at(1)}
}
