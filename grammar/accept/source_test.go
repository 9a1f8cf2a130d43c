package accept

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
)

// small is a vocabulary of all bytes and some tokens that cross what JSON
// consists of.
func small(t testing.TB) *token.Vocabulary {
	t.Helper()
	pieces := strings.Fields(`aa ab abc "a "ab" "b ": "," "}} ]} ]] {" ["" [[ 12 34 00 0. .5 1e e- true null tr ull é\" à ü \n \u \u00 00e \\ \\" \" \ud8 kK Kk 2024- T1 :00 Z" aé éa b", a":a","b": "key name na \n" \"" a\" \u0061"`)
	pieces = append(pieces, strings.Repeat("a", 40), strings.Repeat("ab", 30), `": "`, `", "`, "\n\n", "\r\n", " \t", "  ", ": ", ", ", ` "`, `}, {`, " 1", " {", "}\n")
	v, err := token.NewVocabulary(tokentest.Ranks(t, pieces...), 1)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// compare walks a schema's grammar by random tokens and looks at every mask.
func compare(t testing.TB, v *token.Vocabulary, name string, schema []byte, o Options, walks, length int, tests ...string) int {
	t.Helper()
	a, err := Compile(context.Background(), schema, o)
	if err != nil {
		return 0
	}
	src, err := a.Source()
	if err != nil {
		t.Fatal(err)
	}
	g, err := Tokens(context.Background(), v, schema, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	if g.Empty() {
		return 0
	}
	twin := tokentest.New(t, src)
	places := 0
	at := func(m *token.Matcher, text []byte) {
		mask := make([]uint64, v.Words())
		if err := m.Fill(mask); err != nil {
			t.Fatalf("%s: after %q: %v", name, text, err)
		}
		places++
		tokentest.Compare(t, v, name, text, mask, twin.Mask(v, text, false))
	}
	for _, x := range tests {
		m, err := g.Matcher()
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(x) {
			if rand.IntN(1+len(x)/20) == 0 {
				at(m, []byte(x[:i]))
			}
			if m.AdvanceBytes([]byte{x[i]}) != nil {
				break
			}
		}
	}
	for seed := range uint64(walks) {
		m, err := g.Matcher()
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 21))
		var text []byte
		for i := 0; i < length && !m.Done(); i++ {
			at(m, text)
			k, err := m.Mask()
			if err != nil {
				t.Fatal(err)
			}
			id := tokentest.Draw(rng, k.Bits())
			if rng.IntN(3) > 0 { // what goes on with the structure
				for range 30 {
					if b := []byte(`"}],:{[0123at`)[rng.IntN(13)]; k.Has(v.Single(b)) {
						id = v.Single(b)
						break
					}
				}
			}
			if id < 0 {
				if a.Undecided() == 0 {
					t.Fatalf("%s: stuck after %q", name, text)
				}
				break
			}
			if err := m.Advance(id); err != nil {
				t.Fatalf("%s: allowed after %q: %v", name, text, err)
			}
			b, _, _ := v.Tokenizer().Token(id)
			text = append(text, b...)
		}
	}
	return places
}

// TestMasks: masks are those of the whole vocabulary at places of hand-made
// schemas: names, lists of values, bounds, patterns, numbers.
func TestMasks(t *testing.T) {
	v := small(t)
	for i, s := range []string{
		`true`,
		`{"type":"object"}`,
		`{"type":"object","properties":{"a":{"type":"string"},"ab":{"type":"integer"},"abc":{},"key":{"const":"name"}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"string"},"ab":{"type":"integer"},"key":{"type":"null"}},"required":["ab"],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":true},"patternProperties":{"^b":{"type":"integer"}},"additionalProperties":false}`,
		`{"type":"object","propertyNames":{"enum":["a","ab","é"]},"minProperties":2}`,
		`{"enum":["a","ab","abc",12,null,{"a":[1,2]},"é\"","k/K"]}`,
		`{"anyOf":[{"enum":["a","ab"]},{"type":"string","minLength":4}]}`,
		`{"not":{"enum":["a","ab",""]}}`,
		`{"type":"string","maxLength":3}`,
		`{"type":"string","minLength":2,"maxLength":300}`,
		`{"type":"string","minLength":150}`,
		`{"anyOf":[{"type":"string","maxLength":1},{"type":"string","minLength":3,"maxLength":5}]}`,
		`{"not":{"type":"string","maxLength":130}}`,
		`{"type":"string","pattern":"^a*$"}`,
		`{"type":"string","pattern":"ab"}`,
		`{"type":"string","pattern":"^[a-zA-Z0-9_]+$"}`,
		`{"type":"string","format":"date"}`,
		`{"type":"string","format":"email"}`,
		`{"type":"string","format":"email","maxLength":20}`,
		`{"type":"string","format":"hostname"}`,
		`{"type":"string","format":"regex"}`,
		`{"not":{"type":"string","format":"regex"}}`,
		`{"type":"string","pattern":"^[a-zA-Z]{2,70}[0-9]*$"}`,
		`{"type":"string","pattern":"^([a-z0-9]{1,60}-)+[A-Z]{3}$"}`,
		`{"type":"array","items":{"format":"email","pattern":"^[a-z@.]*$"},"uniqueItems":true}`,
		`{"propertyNames":{"pattern":"^[a-z]{1,5}b?$"},"minProperties":1}`,
		`{"type":"array","items":{"type":"object","properties":{"a":{"enum":["a","ab"]},"key":{"type":"string"}}},"uniqueItems":true}`,
		`{"type":"array","items":{"type":"string"},"uniqueItems":true,"maxItems":3}`,
		`{"type":"array","items":{"enum":["a","ab"]},"uniqueItems":true,"minItems":2}`,
		`{"type":"array","prefixItems":[{"type":"integer","minimum":3,"maximum":1200},{"type":"number"}],"contains":{"const":"a"}}`,
		`{"type":"array","items":{"type":"integer"},"uniqueItems":true,"minItems":2}`,
		`{"type":"array","items":{"type":["number","object"],"additionalProperties":{"type":"number"}},"uniqueItems":true}`,
		`{"type":"integer","multipleOf":5}`,
		`{"if":{"properties":{"a":{"const":"a"}},"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":1}}`,
		`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"a":{"$ref":"#/$defs/t"}},"additionalProperties":{"type":"boolean"}}}}`,
		`{"properties":{"a\"b":{"type":"null"},"a\nb":{"type":"null"},"ab":{"type":"string"}},"additionalProperties":false}`,
	} {
		n := compare(t, v, fmt.Sprint(i, " ", s), []byte(s), Options{Formats: true}, 12, 30)
		if n == 0 {
			t.Errorf("%s: nothing compared", s)
		}
	}
}

// TestMasksSample: the same on schemas and instances of the wild.
func TestMasksSample(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(dataDir(t), "jsonschemabench/*/*.json"))
	if len(files) == 0 {
		t.Fatal("no sample schemas")
	}
	slices.Sort(files)
	v := small(t)
	places := 0
	for i := 0; i < len(files); i += 12 {
		file := readSample(t, files[i])
		if len(file.Schema) > 20_000 {
			continue
		}
		var tests []string
		for _, x := range file.Tests {
			if x.Valid && len(x.Data) < 3000 {
				tests = append(tests, string(x.Data))
				break
			}
		}
		places += compare(t, v, filepath.Base(files[i]), file.Schema, Options{Formats: true}, 1, 15, tests...)
	}
	t.Logf("%d places", places)
}

// TestTokensShared: many use one grammar that begins anew again and again.
func TestTokensShared(t *testing.T) {
	v := small(t)
	schema := []byte(`{"type":"object","properties":{"a":{"type":"string","maxLength":200},"b":{"type":"array","items":{"type":"integer","minimum":3}}},"additionalProperties":{"$ref":"#"}}`)
	g, err := Tokens(context.Background(), v, schema, Options{}, 40<<10)
	if err != nil {
		t.Fatal(err)
	}
	sums := make([]uint64, 6)
	var wg sync.WaitGroup
	for i := range sums {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i/2), 4))
			for range 12 {
				m, err := g.Matcher()
				if err != nil {
					t.Error(err)
					return
				}
				for range 80 {
					k, err := m.Mask()
					if err != nil {
						t.Error(err)
						return
					}
					for at, w := range k.Bits() {
						sums[i] = sums[i]*31 + w ^ uint64(at)
					}
					if id := tokentest.Draw(rng, k.Bits()); m.Advance(id) != nil || m.Done() {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	for i := 0; i < len(sums); i += 2 {
		if sums[i] != sums[i+1] {
			t.Errorf("equal draws, different masks: %d", i)
		}
	}
	if g.Epochs() < 2 {
		t.Errorf("began %d times: the test is too small", g.Epochs())
	}
}

// FuzzTokens: whatever tokens come, the mask allows those that Advance takes,
// and taking them back leads to where they began.
func FuzzTokens(f *testing.F) {
	v := small(f)
	var grammars []*token.Grammar
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"type":"string","maxLength":3},"ab":{"type":"number","minimum":0.5}},"required":["a"],"additionalProperties":false}`,
		`{"properties":{"a":{"enum":["a","ab",1]},"key":{"pattern":"^[a-z]+$"}},"propertyNames":{"maxLength":4}}`,
		`{"type":"array","items":{"type":["integer","string"]},"uniqueItems":true}`,
	} {
		g, err := Tokens(context.Background(), v, []byte(s), Options{Formats: true}, 0)
		if err != nil {
			f.Fatal(err)
		}
		grammars = append(grammars, g)
	}
	f.Add(0, []byte(`{"a":"ab","ab":1e1}`))
	f.Add(1, []byte("{\xff\"\x10a\":1}"))
	f.Add(2, []byte(`[1,2,"x",1.0]`))
	f.Fuzz(func(t *testing.T, which int, ids []byte) {
		m, err := grammars[uint(which)%uint(len(grammars))].Matcher()
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		for i := 0; i < len(ids) && i < 200 && !m.Done(); i++ {
			id := int32(ids[i])
			if id == 255 && i+1 < len(ids) { // beyond the bytes: the longer tokens
				i++
				id = 256 + int32(ids[i])%int32(v.Size()-256)
			}
			k, err := m.Mask()
			if err != nil {
				t.Fatal(err)
			}
			err = m.Advance(id)
			if (err == nil) != k.Has(id) || k.Has(id) != (k.Bits()[id>>6]>>(id&63)&1 == 1) {
				t.Fatalf("token %d: mask %v, %v", id, k.Has(id), err)
			}
			if err == nil {
				steps++
			}
		}
		first, _ := grammars[uint(which)%uint(len(grammars))].Matcher()
		if err := m.Rollback(steps); err != nil {
			t.Fatal(err)
		}
		a, err := m.Mask()
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := first.Mask(); b == nil || !slices.Equal(a.Bits(), b.Bits()) {
			t.Fatal("taken back, and not at the start")
		}
	})
}
