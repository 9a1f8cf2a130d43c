// Package emission measures what is written to hold engines to tools: how much
// of it is proved, what the engines make of it, and what it costs them.
package emission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/bench/quantile"
	"github.com/toolsidecar/sidecar/grammar"
)

// A Set is tools that one request shows.
type Set struct {
	Name  string
	Tools []grammar.Tool
	// Texts are whole arguments to be judged beside those that are made up.
	Texts []string
}

// maxDrawn is how many tools a drawn set has at most: as many as retrieval
// shows in a turn.
const maxDrawn = 12

// Draw is n random sets, each of size tools, or of 1 to 12 if size is 0.
func Draw(tools []grammar.Tool, n, size int, seed uint64) []Set {
	rng := rand.New(rand.NewPCG(seed, 6))
	out := make([]Set, n)
	for i := range out {
		out[i].Name = fmt.Sprint("set ", i+1)
		k := size
		if k == 0 {
			k = 1 + rng.IntN(min(maxDrawn, len(tools)))
		}
		for _, j := range rng.Perm(len(tools))[:k] {
			out[i].Tools = append(out[i].Tools, tools[j])
		}
	}
	return out
}

// Config says what is measured.
type Config struct {
	Target grammar.Target
	// Judge is nil for the reader of the notation alone, which is the judge of
	// GBNF.
	Judge *Judge
	// Llama, of GBNF, writes Walks replies of each set; nil: there are none.
	Llama  *Llama
	Engine string // of the judge: xgrammar or llguidance
	// Version is the constraint engine that a structural tag is written for.
	Version grammar.Engine
	World   grammar.World
	Syntax  grammar.Syntax
	// Derived is how many texts of a tool are made up, as many near misses
	// beside them, and Walks how many random replies the engine writes.
	Derived, Walks int
	// Probe is how many of the tokens that a mask allows each step of a reply
	// tries; the matcher of xgrammar must take them.
	Probe int
	// Raw compiles the schemas as they are, too.
	Raw bool
	// Grow compiles each set of several tools a second time, after the same set
	// without its last tool and by the same compiler.
	Grow bool
	Seed uint64
}

// Report is the outcome. Tools are counted, not sets.
type Report struct {
	Sets     int       `json:"sets"`
	Tools    int       `json:"tools"`
	Emitted  int       `json:"emitted"`
	Refused  []Refusal `json:"refused"`
	Proved   int       `json:"proved"`  // every text fits the schema
	Bounded  int       `json:"bounded"` // the same up to a length
	Checked  int       `json:"checked"` // wider than the schema by a named keyword; checked after the reply
	Equal    int       `json:"equal"`   // what was written is what was meant
	Wider    int       `json:"wider"`   // a text was written and not meant
	Narrower int       `json:"narrower"`
	// Judged are the texts that the engine and our reader of the notation both
	// judged, Disagreements those on which they differ; JudgeDisagreements
	// counts them and the replies of the engine that don't fit.
	Judged             int            `json:"judged"`
	Finished           int            `json:"walks_finished"`
	Stuck              int            `json:"walks_stuck"`
	JudgeDisagreements int            `json:"judge_disagreements"`
	Disagreements      []Disagreement `json:"disagreements"`
	CompileMS          Quantiles      `json:"engine_compile_ms"`
	Slowest            []Slow         `json:"slowest"` // of what is emitted
	// ByPredicted is what a structural tag took by what was predicted.
	ByPredicted *Quantiles `json:"compile_by_predicted,omitempty"`
	GrowMS      *Quantiles `json:"one_tool_more_ms,omitempty"`
	// RawCompileMS counts a schema that the engine died of, or was at when the
	// judge's limit came, with that limit.
	RawCompileMS *Quantiles `json:"raw_schema_compile_ms,omitempty"`
	RawGrowMS    *Quantiles `json:"raw_schema_one_tool_more_ms,omitempty"`
	RawRefused   int        `json:"raw_schema_refused,omitempty"`
	RawDied      int        `json:"raw_schema_died,omitempty"`
}

// Slow is what took an engine long.
type Slow struct {
	Name      string  `json:"name"`
	CompileMS float64 `json:"compile_ms"`
	Predicted float64 `json:"predicted_ms,omitempty"`
}

// Refusal names what is not emitted.
type Refusal struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Disagreement is a text on which an engine and we differ.
type Disagreement struct {
	Name   string `json:"name"`
	Text   string `json:"text"`
	Engine string `json:"engine"` // accepts, refuses, or what went wrong
}

// Quantiles are of processor time in milliseconds, on one thread, but for
// Report.ByPredicted.
type Quantiles struct {
	P1  float64 `json:"p1"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	all []float64
}

func (q *Quantiles) settle() {
	slices.Sort(q.all)
	q.P1, q.P50, q.P99, q.Max = quantile.Of(q.all, .01), quantile.Of(q.all, .5), quantile.Of(q.all, .99), quantile.Of(q.all, 1)
}

// maxListed bounds the disagreements that are listed.
const maxListed = 50

// Run measures the sets in order. progress is called after each. An error is
// that of ctx or of the judge's process.
func Run(ctx context.Context, sets []Set, cfg Config, progress func(done int)) (*Report, error) {
	r := &Report{Refused: []Refusal{}, Disagreements: []Disagreement{}, Slowest: []Slow{}}
	if cfg.Grow {
		r.GrowMS = &Quantiles{}
	}
	if cfg.Target == grammar.StructuralTag && cfg.Judge != nil {
		r.ByPredicted = &Quantiles{}
	}
	if cfg.Raw {
		if r.RawCompileMS = (&Quantiles{}); cfg.Grow {
			r.RawGrowMS = &Quantiles{}
		}
	}
	for i, set := range sets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.set(ctx, set, cfg, uint64(i)); err != nil {
			return nil, err
		}
		progress(i + 1)
	}
	for _, q := range []*Quantiles{&r.CompileMS, r.ByPredicted, r.GrowMS, r.RawCompileMS, r.RawGrowMS} {
		if q != nil {
			q.settle()
		}
	}
	return r, nil
}

func (r *Report) differ(name, text, engine string) {
	if r.JudgeDisagreements++; len(r.Disagreements) < maxListed {
		r.Disagreements = append(r.Disagreements, Disagreement{name, text, engine})
	}
}

func (r *Report) set(ctx context.Context, set Set, cfg Config, n uint64) error {
	r.Sets++
	var held []*grammar.Checked
	var written []*grammar.Written
	for _, t := range set.Tools {
		r.Tools++
		name := t.Name
		if set.Name != t.Name {
			name = set.Name + ": " + t.Name
		}
		c, err := grammar.Judge(t, cfg.World)
		var w *grammar.Written
		if err == nil {
			w, err = c.Written(cfg.Target)
		}
		var p grammar.Proof
		if err == nil {
			p, err = w.Prove()
		}
		if err != nil {
			why := err
			var te *grammar.TargetError
			var se *grammar.SchemaError
			if errors.As(err, &te) {
				why = te.Err
			} else if errors.As(err, &se) {
				why = errors.New(se.Loc + ": " + se.Msg)
			}
			r.Refused = append(r.Refused, Refusal{name, why.Error()})
			continue
		}
		r.Emitted++
		held, written = append(held, c), append(written, w)
		switch {
		case p.Status == "proved":
			r.Proved++
		case p.Status == "checked":
			r.Checked++
		case strings.HasPrefix(p.Status, "bounded"):
			r.Bounded++
		}
		if p.Equal {
			r.Equal++
		}
		if p.Wider != nil {
			r.Wider++
		}
		if p.Narrower != nil {
			r.Narrower++
		}
	}
	if len(held) == 0 {
		return nil
	}
	ask := Ask{ID: set.Name, Engine: cfg.Engine, Seed: int(cfg.Seed + n), Walks: cfg.Walks, MaxTokens: 300, Wander: 0.3, Probe: cfg.Probe}
	var want []bool // of each text: what our reader says
	var args []string
	var of []int // the tool of each
	rng := rand.New(rand.NewPCG(cfg.Seed, n))
	for i, c := range held {
		texts := slices.Clone(set.Texts)
		for k := range cfg.Derived {
			if t, ok := written[i].Derive(rng, 1+60*k); ok {
				texts = append(texts, t, miss(rng, t))
			}
		}
		for _, t := range texts {
			ask.Accept = append(ask.Accept, cfg.Syntax.Begin(c.Name())+t+cfg.Syntax.End)
			args, of = append(args, t), append(of, i)
			want = append(want, written[i].Accepts(t))
		}
	}
	if cfg.Judge == nil {
		// Our reader against the automaton of the tool.
		for i, t := range args {
			meant, err := written[of[i]].Meant(t)
			if err != nil {
				return err
			}
			if r.Judged++; meant != want[i] {
				r.differ(held[of[i]].Name(), t, map[bool]string{true: "accepts", false: "refuses"}[want[i]])
			}
		}
		if cfg.Llama == nil {
			return nil
		}
		return r.sample(ctx, set.Name, held, written, cfg, cfg.Seed+n)
	}
	choice := grammar.Choice{Mode: grammar.Required}
	switch cfg.Target {
	case grammar.LegacyTag:
		choice.Mode = grammar.Auto
	case grammar.JSONSchema: // the arguments alone
		ask.Accept = args
	}
	predicted, err := ask.fill(cfg, held, choice)
	if err != nil {
		return err
	}
	a, err := cfg.Judge.Judge(ask)
	if err != nil {
		return err
	}
	if !a.OK {
		r.differ(set.Name, "", a.Error)
		return nil
	}
	r.CompileMS.all = append(r.CompileMS.all, a.CompileMS)
	r.Slowest = append(r.Slowest, Slow{set.Name, a.CompileMS, predicted})
	if predicted > 0 {
		r.ByPredicted.all = append(r.ByPredicted.all, a.CompileMS/predicted)
	}
	slices.SortFunc(r.Slowest, func(a, b Slow) int { return cmp.Compare(b.CompileMS, a.CompileMS) })
	r.Slowest = r.Slowest[:min(len(r.Slowest), 100)]
	schema := cfg.Target == grammar.JSONSchema || cfg.Target == grammar.LegacyTag
	for i, ok := range a.Accept {
		r.Judged++
		// Of a schema the engine may make less: its own white space and spellings.
		if ok != want[i] && (ok || !schema) {
			r.differ(set.Name, args[i], map[bool]string{true: "accepts", false: "refuses"}[ok])
		}
	}
	for _, w := range a.Walks {
		r.walk(set.Name, held, written, cfg, string(w.Bytes), w.Done, w.Stuck, w.Error)
	}
	if cfg.Grow && len(held) > 1 {
		less := Ask{ID: set.Name, Engine: cfg.Engine}
		if _, err := less.fill(cfg, held[:len(held)-1], choice); err != nil {
			return err
		}
		if err := r.grow(cfg, Ask{ID: set.Name, Engine: cfg.Engine, After: less.Tag, Tag: ask.Tag}, r.GrowMS); err != nil {
			return err
		}
	}
	if cfg.Raw {
		return r.raw(set, cfg)
	}
	return nil
}

// sample judges replies that llama-server writes.
func (r *Report) sample(ctx context.Context, name string, held []*grammar.Checked, written []*grammar.Written, cfg Config, seed uint64) error {
	text, err := grammar.Write(cfg.Syntax, held, grammar.Choice{Mode: grammar.Required}, grammar.GBNF)
	if err != nil {
		return err
	}
	for i := range cfg.Walks {
		reply, done, err := cfg.Llama.Reply(ctx, text.Text, seed+uint64(i))
		var refused *LlamaError
		if errors.As(err, &refused) {
			r.differ(name, "", refused.Error())
			return nil
		} else if err != nil {
			return err
		}
		r.walk(name, held, written, cfg, reply, done, false, "")
	}
	return nil
}

func (r *Report) grow(cfg Config, ask Ask, into *Quantiles) error {
	a, err := cfg.Judge.Judge(ask)
	if err == nil && a.OK {
		into.all = append(into.all, a.CompileMS)
	}
	return err
}

// walk judges a reply that the engine wrote.
func (r *Report) walk(name string, held []*grammar.Checked, written []*grammar.Written, cfg Config, text string, done, stuck bool, failed string) {
	s := cfg.Syntax
	if cfg.Target == grammar.JSONSchema {
		s.Begin, s.End = func(string) string { return "" }, ""
	}
	switch {
	case failed != "":
		r.differ(name, text, failed)
	case stuck:
		r.Stuck++
		r.differ(name, text, "allows no token")
	case done:
		r.Finished++
		for i, c := range held {
			args, ok := strings.CutPrefix(text, s.Begin(c.Name()))
			if !ok {
				continue
			}
			args = strings.TrimSuffix(args, s.End)
			if !written[i].Accepts(args) {
				r.differ(name, text, "wrote it")
			} else if written[i].Exact() && len(c.Misfits([]byte(args), false)) > 0 {
				r.differ(name, text, "wrote it, and it doesn't fit the schema")
			}
			return
		}
		if cfg.Target != grammar.LegacyTag { // which lets free text through
			r.differ(name, text, "wrote a call of no tool")
		}
	}
}

// fill writes the tools. For a structural tag it predicts the milliseconds.
func (a *Ask) fill(cfg Config, held []*grammar.Checked, choice grammar.Choice) (predicted float64, err error) {
	switch cfg.Target {
	case grammar.StructuralTag:
		e, err := grammar.Tag(cfg.Syntax, held, choice, cfg.Version)
		if err != nil {
			return 0, err
		}
		a.Tag = append(append([]byte(`{"type":"structural_tag","format":`), e.Format...), '}')
		return e.CompileMS, nil
	}
	t, err := grammar.Write(cfg.Syntax, held, choice, cfg.Target)
	if err != nil {
		return 0, err
	}
	switch cfg.Target {
	case grammar.Lark:
		a.Lark = t.Text
	case grammar.Regex:
		a.Regex = t.Text
	case grammar.LegacyTag:
		a.Tag = json.RawMessage(t.Text)
	case grammar.JSONSchema:
		a.Schema = json.RawMessage(t.Text)
	default:
		return 0, fmt.Errorf("%s takes no %s", cfg.Engine, cfg.Target)
	}
	return 0, nil
}

// rawTag is what a client would send: the schemas themselves in tags.
func rawTag(tools []grammar.Tool, s grammar.Syntax) (json.RawMessage, error) {
	type content struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"json_schema"`
	}
	type tag struct {
		Type    string  `json:"type"`
		Begin   string  `json:"begin"`
		Content content `json:"content"`
		End     string  `json:"end"`
	}
	var tags []tag
	for _, t := range tools {
		tags = append(tags, tag{"tag", s.Begin(t.Name), content{"json_schema", t.Schema}, s.End})
	}
	return json.Marshal(map[string]any{"type": "structural_tag", "format": map[string]any{
		"type": "tags_with_separator", "tags": tags, "separator": s.Separator, "at_least_one": true, "stop_after_first": true,
	}})
}

// raw compiles what a client would send: the schema itself in a tag, or the
// schemas of all tools as alternatives.
func (r *Report) raw(set Set, cfg Config) error {
	ask := Ask{ID: set.Name, Engine: cfg.Engine}
	var err error
	if cfg.Engine == "xgrammar" {
		ask.Tag, err = rawTag(set.Tools, cfg.Syntax)
	} else {
		var each []json.RawMessage
		for _, t := range set.Tools {
			each = append(each, t.Schema)
		}
		ask.Schema, err = json.Marshal(map[string]any{"anyOf": each})
	}
	if err != nil {
		return err
	}
	a, err := cfg.Judge.Judge(ask)
	if err != nil {
		return err
	}
	switch {
	case a.Died:
		r.RawDied++
		a.CompileMS = float64(cfg.Judge.Limit.Milliseconds())
	case !a.OK:
		r.RawRefused++
		return nil
	}
	r.RawCompileMS.all = append(r.RawCompileMS.all, a.CompileMS)
	if a.Died {
		return nil
	}
	if n := len(set.Tools); cfg.Grow && n > 1 {
		if ask.After, err = rawTag(set.Tools[:n-1], cfg.Syntax); err != nil {
			return err
		}
		return r.grow(cfg, ask, r.RawGrowMS)
	}
	return nil
}

// miss changes a text a little, so that it is valid UTF-8 still.
func miss(rng *rand.Rand, text string) string {
	rs := []rune(text)
	pieces := []rune("{}[]\",: \n\t\\0123456789.eE+-uabntrfZé😀")
	for range 1 + rng.IntN(2) {
		if len(rs) == 0 {
			break
		}
		i := rng.IntN(len(rs))
		switch p := pieces[rng.IntN(len(pieces))]; rng.IntN(3) {
		case 0:
			rs[i] = p
		case 1:
			rs = slices.Insert(rs, i, p)
		default:
			rs = slices.Delete(rs, i, i+1)
		}
	}
	return string(rs)
}
