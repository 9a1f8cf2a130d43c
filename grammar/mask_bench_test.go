package grammar

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
)

// percentiles reports durations as microseconds under name/p50, name/p99.
func percentiles(b *testing.B, name string, ds []time.Duration) {
	slices.Sort(ds)
	sum := time.Duration(0)
	for _, d := range ds {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(us(sum)/float64(len(ds)), name+"-avg-µs")
	b.ReportMetric(us(ds[len(ds)/2]), name+"-p50-µs")
	b.ReportMetric(us(ds[len(ds)*99/100]), name+"-p99-µs")
	b.ReportMetric(us(ds[len(ds)-1]), name+"-max-µs")
}

// instances are texts that random decoding of a fresh automaton wrote, as the
// tokens the vocabulary's encoder makes of them: what a model would write.
func instances(b *testing.B, v *token.Vocabulary, c *Checked, n int) [][]int32 {
	a := automatonOf(b, c)
	var out [][]int32
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 13))
		out = append(out, v.Tokenizer().EncodeOrdinary(nil, string(tokentest.Walk(b, grammarOf(b, a, v), slowly(b, a), rng, 40, nil))))
	}
	return out
}

// BenchmarkFirstMask is from schema bytes to the first mask, nothing cached.
func BenchmarkFirstMask(b *testing.B) {
	v := qwenVocabulary(b)
	mask := make([]uint64, v.Words())
	for _, set := range []string{"Glaiveai2K", "BFCL", "MCPspec"} {
		b.Run("set="+set, func(b *testing.B) {
			cs := sample(b, 1, set)
			var whole, own []time.Duration
			for b.Loop() {
				whole, own = whole[:0], own[:0]
				for _, c := range cs {
					start := time.Now()
					fresh, err := compile(b.Context(), c.name, []byte(c.raw), Closed)
					if err != nil {
						b.Fatal(err)
					}
					mid := time.Now()
					if err := matcherOf(b, automatonOf(b, fresh), v).Fill(mask); err != nil {
						b.Fatal(err)
					}
					end := time.Now()
					whole, own = append(whole, end.Sub(start)), append(own, end.Sub(mid))
				}
			}
			percentiles(b, "schema-to-mask", whole)
			percentiles(b, "lang-to-mask", own)
		})
	}
}

// BenchmarkMasks asks for the mask before every token of written texts: on
// fresh automata, and again when all is known.
func BenchmarkMasks(b *testing.B) {
	v := qwenVocabulary(b)
	mask := make([]uint64, v.Words())
	for _, set := range []string{"Glaiveai2K", "BFCL", "MCPspec", "*"} {
		b.Run("set="+set, func(b *testing.B) {
			every := 1
			if set == "*" {
				every = 3
			}
			cs := sample(b, every, set)
			texts := make([][][]int32, len(cs))
			for i, c := range cs {
				texts[i] = instances(b, v, c, 1)
			}
			var cold, warm, advance []time.Duration
			memory := 0
			for b.Loop() {
				cold, warm, advance = cold[:0], warm[:0], advance[:0]
				memory = 0
				for i, c := range cs {
					fresh, err := compile(b.Context(), c.name, []byte(c.raw), Closed)
					if err != nil {
						b.Fatal(err)
					}
					a := automatonOf(b, fresh)
					for round, to := range []*[]time.Duration{&cold, &warm} {
						for _, ids := range texts[i] {
							m := matcherOf(b, a, v)
							for _, id := range ids {
								start := time.Now()
								if err := m.Fill(mask); err != nil {
									b.Fatal(err)
								}
								mid := time.Now()
								*to = append(*to, mid.Sub(start))
								if err := m.Advance(id); err != nil {
									b.Fatal(err)
								}
								if round == 1 {
									advance = append(advance, time.Since(mid))
								}
							}
						}
					}
					g, _ := a.Grammar(v)
					memory += g.MemoryBytes()
				}
			}
			percentiles(b, "cold", cold)
			percentiles(b, "warm", warm)
			percentiles(b, "advance", advance)
			b.ReportMetric(float64(memory/len(cs)), "B/grammar")
			b.ReportMetric(float64(len(cold)), "masks")
		})
	}
}

// BenchmarkBoundedString decodes one string of 160 tokens under a bound.
func BenchmarkBoundedString(b *testing.B) {
	v := qwenVocabulary(b)
	mask := make([]uint64, v.Words())
	for _, bound := range []string{"", `,"maxLength":1000`, `,"maxLength":2000`, `,"maxLength":100000`, `,"pattern":"^[A-Za-z .]{1,1000}$"`} {
		b.Run(fmt.Sprintf("bound=%q", bound), func(b *testing.B) {
			schema := []byte(`{"properties":{"s":{"type":"string"` + bound + `}},"required":["s"]}`)
			ids := v.Tokenizer().EncodeOrdinary(nil, `{"s": "`)
			for len(ids) < 160 {
				ids = v.Tokenizer().EncodeOrdinary(ids, "The quick brown fox jumps over the lazy dog. ")
			}
			var compiles, masks, advance []time.Duration
			for b.Loop() {
				start := time.Now()
				c, err := compile(b.Context(), "t", schema, Closed)
				if err != nil {
					b.Fatal(err)
				}
				a := automatonOf(b, c)
				compiles = append(compiles, time.Since(start))
				m := matcherOf(b, a, v)
				for _, id := range ids {
					start := time.Now()
					if err := m.Fill(mask); err != nil {
						b.Fatal(err)
					}
					mid := time.Now()
					masks = append(masks, mid.Sub(start))
					if err := m.Advance(id); err != nil {
						b.Fatal(err)
					}
					advance = append(advance, time.Since(mid))
				}
			}
			percentiles(b, "compile", compiles)
			percentiles(b, "mask", masks)
			percentiles(b, "advance", advance)
		})
	}
}

// BenchmarkCopy is the floor of a warm mask: as many bytes from cache to cache.
func BenchmarkCopy(b *testing.B) {
	v := qwenVocabulary(b)
	from, to := make([]uint64, v.Words()), make([]uint64, v.Words())
	for b.Loop() {
		copy(to, from)
	}
}
