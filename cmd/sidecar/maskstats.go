package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	grammarbench "github.com/toolsidecar/sidecar/bench/grammar"
	"github.com/toolsidecar/sidecar/bench/quantile"
	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/grammar/token"
)

// maxMaskWalk is how many tokens one answer may have; a model that answers at
// random ends sooner, since it is led to the end from half of it on.
const maxMaskWalk = 1024

// maskReport is what compile --target mask-stats writes.
type maskReport struct {
	Target     string `json:"target"`
	Tokenizer  string `json:"tokenizer"`
	Vocabulary struct {
		Tokens int `json:"tokens"`
		Bytes  int `json:"memory_bytes"`
	} `json:"vocabulary"`
	Tools []maskStats `json:"tools"`
	Total maskStats   `json:"total"`
}

// maskStats is what one tool's masks are like, on answers at random.
type maskStats struct {
	Name  string `json:"name"`
	Exact bool   `json:"exact"`
	// From schema bytes to the first mask, which is written out.
	CompileUS float64             `json:"compile_us"`
	Answers   int                 `json:"answers"`
	Finished  int                 `json:"finished"`
	States    int                 `json:"states"`
	Masks     int                 `json:"masks"`          // walked: one a token, and one for the end
	Distinct  int                 `json:"distinct_masks"` // kept
	Bytes     int                 `json:"memory_bytes"`   // of states and masks
	Allowed   counts              `json:"tokens_allowed"` // of a mask
	MaskUS    grammarbench.Spread `json:"mask_us"`        // the first of an answer over what earlier ones left
	Written   int                 `json:"written_bytes"`  // of all answers
	Forced    int                 `json:"forced_bytes"`   // of these, those that could be no other
	Share     float64             `json:"forced_share"`   // of written_bytes
	allowed   []int
	times     []time.Duration
}

type counts struct {
	P50 int `json:"p50"`
	P99 int `json:"p99"`
	Max int `json:"max"`
}

func maskStatsOf(v *token.Vocabulary, tools []grammar.Tool, w grammar.World, answers int) (*maskReport, error) {
	r := &maskReport{Target: "mask-stats", Tokenizer: v.Tokenizer().Name(), Tools: []maskStats{}}
	r.Vocabulary.Tokens, r.Vocabulary.Bytes = v.Size(), v.MemoryBytes()
	rng := rand.New(rand.NewPCG(1, 1))
	total := maskStats{Name: "total", Exact: true}
	for _, t := range tools {
		s, err := maskStatsOfTool(v, t, w, answers, rng)
		if err != nil {
			return nil, fmt.Errorf("compile: %w", err)
		}
		total.add(s)
		r.Tools = append(r.Tools, *s)
	}
	total.sum()
	r.Total = total
	return r, nil
}

func maskStatsOfTool(v *token.Vocabulary, t grammar.Tool, w grammar.World, answers int, rng *rand.Rand) (*maskStats, error) {
	s := &maskStats{Name: t.Name}
	mask := make([]uint64, v.Words())
	begin := time.Now()
	c, err := grammar.Compile(t, w)
	if err != nil {
		return nil, err
	}
	a, err := c.Automaton()
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	g, err := token.New(v, 0, a.Source)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	m, err := g.Matcher()
	if err == nil {
		err = m.Fill(mask)
	}
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	s.CompileUS = micros(time.Since(begin))
	s.Exact = len(c.Reasons()) == 0
	for range answers {
		if err := s.answer(g, mask, rng); err != nil {
			return nil, fmt.Errorf("tool %q: %w", t.Name, err)
		}
	}
	s.States, s.Distinct = g.States()
	s.Bytes = g.MemoryBytes()
	s.sum()
	return s, nil
}

// answer writes one answer at random.
func (s *maskStats) answer(g *token.Grammar, mask []uint64, rng *rand.Rand) error {
	v := g.Vocabulary()
	m, err := g.Matcher()
	if err != nil {
		return err
	}
	s.Answers++
	written, forced := 0, 0 // forced: up to which byte it is known what comes
	for n := 0; n < maxMaskWalk && !m.Done(); n++ {
		if written >= forced {
			f := m.Forced()
			s.Forced += len(f)
			forced = written + len(f)
		}
		begin := time.Now()
		err := m.Fill(mask)
		s.times = append(s.times, time.Since(begin))
		if err != nil {
			return err
		}
		var ids []int32
		for i, word := range mask {
			for b := range 64 {
				if word>>b&1 == 1 {
					ids = append(ids, int32(64*i+b))
				}
			}
		}
		s.allowed = append(s.allowed, len(ids))
		if len(ids) == 0 {
			return fmt.Errorf("no token may follow %d bytes", written)
		}
		id := ids[rng.IntN(len(ids))]
		if n > maxMaskWalk/16 { // towards the end
			for _, way := range append(slices.Clone(v.Ends()), v.Single('"'), v.Single('}'), v.Single(']')) {
				if way >= 0 && mask[way>>6]>>(way&63)&1 == 1 {
					id = way
					break
				}
			}
		}
		if err := m.Advance(id); err != nil {
			return err
		}
		if !m.Done() {
			text, _, _ := v.Tokenizer().Token(id)
			written += len(text)
		}
	}
	s.Written += written
	s.Forced -= max(0, forced-written) // of an answer that was cut
	if m.Done() {
		s.Finished++
	}
	return nil
}

func (s *maskStats) add(o *maskStats) {
	s.Exact = s.Exact && o.Exact
	s.CompileUS += o.CompileUS
	s.Answers += o.Answers
	s.Finished += o.Finished
	s.States += o.States
	s.Distinct += o.Distinct
	s.Bytes += o.Bytes
	s.Written += o.Written
	s.Forced += o.Forced
	s.allowed = append(s.allowed, o.allowed...)
	s.times = append(s.times, o.times...)
}

func (s *maskStats) sum() {
	if s.Masks = len(s.times); s.Masks == 0 {
		return
	}
	slices.Sort(s.allowed)
	s.Allowed = counts{quantile.Of(s.allowed, .5), quantile.Of(s.allowed, .99), quantile.Of(s.allowed, 1)}
	s.MaskUS = grammarbench.SpreadOf(s.times)
	if s.Written > 0 {
		s.Share = float64(s.Forced) / float64(s.Written)
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func (r *maskReport) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s tokens, %s kB\n", r.Tokenizer, thousands(r.Vocabulary.Tokens), thousands(r.Vocabulary.Bytes/1000))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, strings.Join([]string{"tool", "compile µs", "states", "masks", "distinct", "allowed p50", "p99", "mask µs avg", "p50", "p99", "kB", "forced", "finished", ""}, "\t"))
	for _, s := range append(slices.Clip(r.Tools), r.Total) {
		fmt.Fprintf(t, "%s\t%.0f\t%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%d\t%.0f %%\t%d of %d\t\n", s.Name, s.CompileUS, s.States, s.Masks, s.Distinct,
			s.Allowed.P50, s.Allowed.P99, s.MaskUS.Avg, s.MaskUS.P50, s.MaskUS.P99, s.Bytes/1000, 100*s.Share, s.Finished, s.Answers)
	}
	return t.Flush()
}

// writeMaskStats is the command with --target mask-stats.
func writeMaskStats(cmd *cobra.Command, vocabulary string, tools []grammar.Tool, w grammar.World, answers int, asJSON bool) error {
	v, _, err := openVocabulary(vocabulary)
	if err != nil {
		return err
	}
	r, err := maskStatsOf(v, tools, w, answers)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return r.print(cmd.OutOrStdout())
}
