package grammar

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
	"pgregory.net/rapid"
)

func grammarOf(t fataler, a *Automaton, v *token.Vocabulary) *token.Grammar {
	t.Helper()
	g, err := token.New(v, 0, a.Source)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func matcherOf(t fataler, a *Automaton, v *token.Vocabulary) *token.Matcher {
	t.Helper()
	g, err := a.Grammar(v)
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Matcher()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func nextOf(m *token.Matcher) string {
	b, err := m.Next()
	return fmt.Sprint(b, err)
}

// slowly is the twin of an automaton's masks.
func slowly(t fataler, a *Automaton) *tokentest.Twin {
	t.Helper()
	src, err := a.Source()
	if err != nil {
		t.Fatal(err)
	}
	return tokentest.New(t, src)
}

// TestMaskSample: masks on random places of the sample's grammars are those of
// the whole-vocabulary walk; random decoding ends, and what it writes fits
// where the tool is exact.
func TestMaskSample(t *testing.T) {
	v := qwenVocabulary(t)
	cs := sample(t, 8)
	places, exact := 0, 0
	for i, c := range cs {
		a := automatonOf(t, c)
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		twin := slowly(t, a)
		n := 0
		text := tokentest.Walk(t, grammarOf(t, a, v), twin, rng, 30, func(_ *token.Matcher, text []byte, mask []uint64) {
			if n++; n == 1 || rng.IntN(15) == 0 && n < 80 && i%4 == 0 {
				places++
				tokentest.Compare(t, v, c.name, text, mask, twin.Mask(v, text, true))
			}
		})
		if len(c.content.reasons) == 0 {
			exact++
			if err := c.Check(text); err != nil {
				t.Errorf("%s: %v: %s", c.name, err, clipText(string(text), 600))
			}
		}
	}
	t.Logf("%d schemas, %d places compared, %d texts of exact tools", len(cs), places, exact)
}

// TestMaskStrings: bounded strings, loops over classes, and what follows them.
func TestMaskStrings(t *testing.T) {
	v := qwenVocabulary(t)
	for _, s := range []string{
		`{"type":"string"}`,
		`{"type":"string","maxLength":3}`,
		`{"type":"string","minLength":2,"maxLength":140}`,
		`{"type":"string","minLength":30}`,
		`{"type":"string","maxLength":100000}`,
		`{"type":"string","pattern":"^[a-z]+$"}`,
		`{"type":"string","pattern":"^[A-Za-z .]{1,1000}$"}`,
		`{"type":"string","pattern":"^[^/]+/[^/]+$"}`,
		`{"type":"string","pattern":"^[é-ü]*[è-ÿ]x$"}`,
		`{"type":"string","pattern":"^(a?b?){3,20}$"}`,
		`{"type":"string","pattern":"[0-9]{3}"}`,
		`{"type":"string","pattern":"^[a-z]{1,400}[0-9]{2,5}$"}`,
		`{"type":"string","pattern":"^([a-z]{2,300},)+x?$"}`,
		`{"type":"string","format":"uuid"}`,
		`{"type":"string","pattern":"^p:([a-z-]+)?:([a-z-]+|x.*)[0-9]+$"}`,
		`{"type":"string","pattern":"^[a-z]*[a-z0-9]{2,40}$"}`,
		`{"anyOf":[{"type":"string","maxLength":5},{"type":"array","items":{"type":"string","maxLength":9},"minItems":2,"maxItems":300},{"type":"number","minimum":-1.5}]}`,
		`{"enum":["red","green","\u00e9","a\"b\\"]}`,
		`{"type":"object","additionalProperties":{"type":"integer"},"maxProperties":4}`,
		`{}`,
	} {
		c := compileTest(t, `{"properties":{"a":`+s+`,"b":{"type":"boolean"}},"required":["a"]}`, Closed)
		a := automatonOf(t, c)
		twin := slowly(t, a)
		for seed := range 3 {
			rng := rand.New(rand.NewPCG(uint64(seed), 5))
			n := 0
			tokentest.Walk(t, grammarOf(t, a, v), twin, rng, 12+60*seed, func(_ *token.Matcher, text []byte, mask []uint64) {
				if n++; n > 3 && n < 7 || n > 3 && rng.IntN(24) == 0 {
					tokentest.Compare(t, v, c.name, text, mask, twin.Mask(v, text, true))
				}
			})
		}
	}
}

// TestRollback: taking back n steps is the same as not having taken them.
func TestRollback(t *testing.T) {
	v := qwenVocabulary(t)
	cs := sample(t, 40)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(cs).Draw(t, "schema")
		a := automatonOf(t, c)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		m := matcherOf(t, a, v)
		var ids []int32
		got, want := make([]uint64, v.Words()), make([]uint64, v.Words())
		for range rapid.IntRange(1, 30).Draw(t, "ops") {
			if rapid.IntRange(0, 3).Draw(t, "op") > 0 && !m.Done() {
				if err := m.Fill(got); err != nil {
					t.Fatal(err)
				}
				id := tokentest.Draw(rng, got)
				if err := m.Advance(id); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
				continue
			}
			n := rapid.IntRange(0, len(ids)).Draw(t, "n")
			if err := m.Rollback(n); err != nil {
				t.Fatal(err)
			}
			ids = ids[:len(ids)-n]
			if m.Rollback(len(ids)+1) == nil {
				t.Fatal("more steps back than were taken")
			}
		}
		replay := matcherOf(t, a, v)
		for _, id := range ids {
			if err := replay.Advance(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Fill(got); err != nil {
			t.Fatal(err)
		}
		if err := replay.Fill(want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || m.Accepts() != replay.Accepts() || m.Done() != replay.Done() || string(m.Forced()) != string(replay.Forced()) {
			t.Fatalf("%s: rolled back and replayed differ after %v", c.name, ids)
		}
	})
}

// TestMatcherRefuses: what doesn't fit changes nothing.
func TestMatcherRefuses(t *testing.T) {
	v := qwenVocabulary(t)
	c := compileTest(t, `{"properties":{"city":{"const":"Paris"}},"required":["city"]}`, Closed)
	m := matcherOf(t, automatonOf(t, c), v)
	if f := string(m.Forced()); f != `{` {
		t.Errorf("forced %q", f)
	}
	call, _ := v.Tokenizer().ID("<tool_call>")
	for _, id := range []int32{call, v.Ends()[0], 1 << 30, -1, v.Single('x')} {
		if err := m.Advance(id); err == nil {
			t.Errorf("token %d is taken", id)
		}
	}
	err := m.AdvanceBytes([]byte(`{"city": "Pxris`))
	if e, ok := err.(*token.RefusedError); !ok || e.Offset != 11 {
		t.Errorf("%v", err)
	}
	if err := m.AdvanceBytes([]byte(`{"ci`)); err != nil {
		t.Fatal(err)
	}
	if f := string(m.Forced()); f != `ty":` {
		t.Errorf("forced %q", f)
	}
	if err := m.AdvanceBytes([]byte(`ty": "Paris"}`)); err != nil || !m.Accepts() {
		t.Fatal(err)
	}
	mask := make([]uint64, v.Words()+2)
	mask[v.Words()] = 7
	if err := m.Fill(mask); err != nil {
		t.Fatal(err)
	}
	want := make([]uint64, v.Words()+2)
	end := v.Ends()[0]
	want[end>>6] |= 1 << (end & 63)
	if !slices.Equal(mask, want) {
		t.Error("more than the end is allowed at the end")
	}
	if err := m.Advance(v.Ends()[0]); err != nil || !m.Done() {
		t.Fatal(err)
	}
	if err := m.AdvanceBytes([]byte(" ")); err == nil {
		t.Error("a byte after the end")
	}
}

// TestShared: many use one automaton at once, small enough to start anew again
// and again, and all see the same masks.
func TestShared(t *testing.T) {
	v := qwenVocabulary(t)
	schema := `{"properties":{"a":{"type":"string","maxLength":300},"b":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":200},"c":{"enum":["x","yy"]}},"required":["a","b"],
		"$defs":{"t":{"type":"object","properties":{"n":{"type":"integer","minimum":-5},"t":{"$ref":"#/$defs/t"}}}}}`
	c, err := compile(context.Background(), "t", json.RawMessage(schema), Closed)
	if err != nil {
		t.Fatal(err)
	}
	a := automatonOf(t, c)
	g, err := token.New(v, 400<<10, a.Source)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([][]byte, 8)
	sums := make([]uint64, 8)
	var wg sync.WaitGroup
	for i := range texts {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i/2), 9))
			texts[i] = tokentest.Walk(t, g, slowly(t, a), rng, 150, func(_ *token.Matcher, _ []byte, mask []uint64) {
				for k, w := range mask {
					sums[i] = sums[i]*31 + w ^ uint64(k)
				}
			})
		})
	}
	wg.Wait()
	for i := 0; i < len(texts); i += 2 {
		if string(texts[i]) != string(texts[i+1]) || sums[i] != sums[i+1] {
			t.Errorf("equal draws, but\n%s\n%s", texts[i], texts[i+1])
		}
		if err := c.Check(texts[i]); err != nil {
			t.Errorf("%v: %s", err, texts[i])
		}
	}
	if g.Epochs() < 3 {
		t.Errorf("started anew %d times: the test is too small", g.Epochs())
	}
	if n := g.MemoryBytes(); n > 1<<20 {
		t.Errorf("%d bytes held", n)
	}
}

// FuzzAdvanceBytes: however a text is cut, the automaton takes the same, and
// what an exact tool's automaton accepts fits.
func FuzzAdvanceBytes(f *testing.F) {
	schemas := []string{
		`{"properties":{"a":{"type":"string","maxLength":4},"n":{"type":"number","minimum":0.5,"maximum":20}},"required":["a"]}`,
		`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"type":"array","items":{"$ref":"#/$defs/t"},"minItems":1},"s":{"type":"string","pattern":"^(ab?)+$"}}}}}`,
	}
	var cs []*Checked
	for _, s := range schemas {
		cs = append(cs, compileTest(f, s, Closed))
	}
	f.Add(0, `{"a": "x", "n": 1.25}`, 5)
	f.Add(1, `{"l": [{}, {"s": "aab"}]}`, 9)
	f.Add(0, `{"a": "\u00e9\n"}`, 8)
	f.Fuzz(func(t *testing.T, which int, text string, cut int) {
		c := cs[uint(which)%uint(len(cs))]
		a := automatonOf(t, c)
		whole := matcherOf(t, a, nil)
		err := whole.AdvanceBytes([]byte(text))
		parts := matcherOf(t, a, nil)
		cut = int(uint(cut) % uint(len(text)+1))
		perr := parts.AdvanceBytes([]byte(text[:cut]))
		if perr == nil {
			perr = parts.AdvanceBytes([]byte(text[cut:]))
		}
		if (err == nil) != (perr == nil) || err == nil && (whole.Accepts() != parts.Accepts() || nextOf(whole) != nextOf(parts)) {
			t.Fatalf("%q in one piece: %v; cut at %d: %v", text, err, cut, perr)
		}
		if err == nil && whole.Accepts() {
			if cerr := c.Check([]byte(text)); cerr != nil {
				t.Fatalf("accepted, but %v", cerr)
			}
		}
		if err == nil && len(text) < 300 {
			if got, want := whole.Accepts(), twinAccepts(readEBNF(t, c.content.String()), text); got != want {
				t.Fatalf("%q: accepted %v, by the twin %v", text, got, want)
			}
		}
	})
}

// TestMaskPlaces compares masks at places that random texts seldom reach.
func TestMaskPlaces(t *testing.T) {
	v := qwenVocabulary(t)
	a250 := strings.Repeat("a", 250)
	for _, tt := range []struct{ schema, text string }{
		{`{"type":"string","pattern":"^p:([a-z-]+)?:x$"}`, `p:`},
		{`{"type":"string","pattern":"^p:([a-z-]{3,9})?:x$"}`, `p:a`},
		{`{"type":"string","pattern":"\\\\+$"}`, `x`},
		{`{"type":"string","maxLength":400}`, a250},
		{`{"type":"string","maxLength":400}`, a250 + a250[:40]},
		{`{"type":"string","maxLength":400}`, a250 + a250[:145]},
		{`{"type":"string","minLength":3,"maxLength":260}`, a250 + "é\\"},
		{`{"type":"string","pattern":"^[a-z]{2,300}x?[0-9]{1,200}$"}`, a250 + "x11"},
	} {
		c := compileTest(t, `{"properties":{"a":`+tt.schema+`},"required":["a"]}`, Closed)
		m := matcherOf(t, automatonOf(t, c), v)
		text := `{"a": "` + tt.text
		if err := m.AdvanceBytes([]byte(text)); err != nil {
			t.Fatalf("%s: %q: %v", tt.schema, text, err)
		}
		mask := make([]uint64, v.Words())
		if err := m.Fill(mask); err != nil {
			t.Fatal(err)
		}
		tokentest.Compare(t, v, c.name, []byte(text), mask, slowly(t, automatonOf(t, c)).Mask(v, []byte(text), true))
	}
}

// TestBounds: strings and lists of just the allowed sizes fit, however they
// are fed; one more or one less doesn't.
func TestBounds(t *testing.T) {
	for _, n := range []int{1, 2, 100, 127, 128, 129, 130, 200, 300, 1000} {
		for _, char := range []string{"a", "é", `\n`, `\u00e9`, "😀"} {
			for _, tt := range []struct{ schema, head, tail string }{
				{fmt.Sprintf(`{"type":"string","maxLength":%d}`, n), `"`, `"`},
				{fmt.Sprintf(`{"type":"string","minLength":1,"maxLength":%d}`, n), `"`, `"`},
				{fmt.Sprintf(`{"type":"string","pattern":"^[^b]{1,%d}b+$"}`, n), `"`, `bb"`},
				{fmt.Sprintf(`{"type":"array","items":{"type":"string","maxLength":%d},"maxItems":2}`, n), `["", "`, `"]`},
			} {
				if char == `\u00e9` && strings.Contains(tt.schema, "pattern") {
					continue // not how a class spells it
				}
				c := compileTest(t, `{"properties":{"a":`+tt.schema+`},"required":["a"]}`, Closed)
				a := automatonOf(t, c)
				for _, k := range []int{n - 1, n, n + 1} {
					text := `{"a": ` + tt.head + strings.Repeat(char, k) + tt.tail + `}`
					want := k <= n && (k > 0 || !strings.Contains(tt.schema, "1,") && !strings.Contains(tt.schema, `"minLength":1`))
					if got := accepts(a, text); got != want {
						t.Errorf("%s: %d times %q: accepted %v", tt.schema, k, char, got)
					}
					m := matcherOf(t, a, nil)
					var err error
					for i := 0; i < len(text) && err == nil; i += 3 {
						err = m.AdvanceBytes([]byte(text[i:min(i+3, len(text))]))
					}
					if got := err == nil && m.Accepts(); got != want {
						t.Errorf("%s: %d times %q in pieces: accepted %v", tt.schema, k, char, got)
					}
				}
			}
		}
		c := compileTest(t, fmt.Sprintf(`{"properties":{"a":{"type":"array","items":{"type":"null"},"minItems":%d,"maxItems":%d}},"required":["a"]}`, n, n+1), Closed)
		for k := n - 1; k <= n+2; k++ {
			list := strings.TrimSuffix(strings.Repeat("null,", k), ",")
			if got, want := accepts(automatonOf(t, c), `{"a":[`+list+`]}`), k >= n && k <= n+1; got != want {
				t.Errorf("%d to %d items: %d accepted %v", n, n+1, k, got)
			}
		}
	}
}

// TestMaskLongTokens: masks with tokens as long as may be.
func TestMaskLongTokens(t *testing.T) {
	v, err := token.NewVocabulary(tokentest.Ranks(t, "aa", strings.Repeat("a", 128), strings.Repeat("a", 130), `a"`, `"}`, "é\"", `\"`), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{`{"maxLength":127}`, `{"maxLength":128}`, `{"maxLength":129}`, `{"minLength":128}`, `{"maxLength":300}`, `{"pattern":"^[a-z]{1,200}$"}`} {
		c := compileTest(t, `{"properties":{"a":{"type":"string",`+s[1:]+`},"required":["a"]}`, Closed)
		a := automatonOf(t, c)
		twin := slowly(t, a)
		for seed := range uint64(5) {
			tokentest.Walk(t, grammarOf(t, a, v), twin, rand.New(rand.NewPCG(seed, 2)), 40, func(_ *token.Matcher, text []byte, mask []uint64) {
				tokentest.Compare(t, v, c.name, text, mask, twin.Mask(v, text, true))
			})
		}
	}
}

// TestForced: what is forced fits, and at each of its bytes nothing else does.
func TestForced(t *testing.T) {
	v := qwenVocabulary(t)
	n := 0
	for i, c := range sample(t, 20) {
		a := automatonOf(t, c)
		tokentest.Walk(t, grammarOf(t, a, v), slowly(t, a), rand.New(rand.NewPCG(uint64(i), 4)), 30, func(m *token.Matcher, text []byte, _ []uint64) {
			forced := m.Forced()
			n += len(forced)
			k := matcherOf(t, a, v)
			if err := k.AdvanceBytes(text); err != nil || m.Done() {
				return
			}
			for _, b := range forced {
				for x := range 256 {
					if err := k.AdvanceBytes([]byte{byte(x)}); err == nil {
						if byte(x) != b {
							t.Fatalf("%s: after %q %q is forced, but %q fits", c.name, text, forced, rune(x))
						}
						if err := k.Rollback(1); err != nil {
							t.Fatal(err)
						}
					}
				}
				if k.Accepts() {
					t.Fatalf("%s: after %q %q is forced, but the text may end", c.name, text, forced)
				}
				if err := k.AdvanceBytes([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if n == 0 {
		t.Error("nothing was ever forced")
	}
}
