package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/grammar/token/tokentest"
	"github.com/toolsidecar/sidecar/internal/alloctest"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// A twin decides by recursive descent over the emitted grammar whether it
// derives a text. It differs from the engine in what a rule with max_chars
// counts: an escape is one character.
type twin struct {
	rules map[string]*ebnfRule
	text  string
	memo  map[twinKey][]int
}

type twinKey struct {
	n *ebnfNode
	i int
}

func twinAccepts(rules map[string]*ebnfRule, text string) bool {
	w := &twin{rules, text, map[twinKey][]int{}}
	for _, e := range w.ends(rules["root"].body, 0) {
		if e == len(text) {
			return true
		}
	}
	return false
}

// ends lists where n can end when it begins at i.
func (w *twin) ends(n *ebnfNode, i int) []int {
	key := twinKey{n, i}
	if out, ok := w.memo[key]; ok {
		return out
	}
	w.memo[key] = nil // a rule that begins with itself adds nothing by that
	found := map[int]bool{}
	switch n.op {
	case 'l':
		if strings.HasPrefix(w.text[i:], n.text) {
			found[i+len(n.text)] = true
		}
	case 'c':
		c, size := utf8.DecodeRuneInString(w.text[i:])
		for j := 0; size > 0 && (c != utf8.RuneError || size > 1) && j < len(n.set); j += 2 {
			if n.set[j] <= c && c <= n.set[j+1] {
				found[i+size] = true
			}
		}
	case 'r':
		r := w.rules[n.text]
		for _, e := range w.ends(r.body, i) {
			if r.maxChars < 0 || spelled(w.text[i:e]) <= r.maxChars {
				found[e] = true
			}
		}
	case '|':
		for _, sub := range n.subs {
			for _, e := range w.ends(sub, i) {
				found[e] = true
			}
		}
	case 's':
		at := map[int]bool{i: true}
		for _, sub := range n.subs {
			next := map[int]bool{}
			for p := range at {
				for _, e := range w.ends(sub, p) {
					next[e] = true
				}
			}
			at = next
		}
		found = at
	case '*':
		at := map[int]bool{i: true}
		for k := 0; len(at) > 0 && (n.max < 0 || k <= n.max) && k <= n.min+len(w.text); k++ {
			next := map[int]bool{}
			for p := range at {
				if k >= n.min {
					found[p] = true
				}
				for _, e := range w.ends(n.subs[0], p) {
					next[e] = true
				}
			}
			at = next
		}
	}
	out := []int{}
	for e := range found {
		out = append(out, e)
	}
	w.memo[key] = out
	return out
}

// spelled counts the characters that a part of a JSON string stands for.
func spelled(s string) int {
	n := 0
	for i := 0; i < len(s); n++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == 'u':
			i += 6
		case s[i] == '\\':
			i += 2
		default:
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
		}
	}
	return n
}

func automatonOf(t fataler, c *Checked) *Automaton {
	t.Helper()
	a, err := c.Automaton()
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return a
}

func accepts(a *Automaton, text string) bool {
	g, err := a.Grammar(nil)
	if err != nil {
		panic(err)
	}
	m, err := g.Matcher()
	return err == nil && m.AdvanceBytes([]byte(text)) == nil && m.Accepts()
}

// mutate changes a text a little.
func mutate(rng *rand.Rand, text string) string {
	b := []byte(text)
	for range 1 + rng.IntN(2) {
		if len(b) == 0 {
			break
		}
		i := rng.IntN(len(b))
		const pieces = "{}[]\",: \n\t\\0123456789.eE+-uabntrfZ\x00\x1f\x7f\x80\xc3\xe9\xed\xf0\xff"
		switch rng.IntN(5) {
		case 0:
			b = append(b[:i], b[i+1:]...)
		case 1:
			b[i] = pieces[rng.IntN(len(pieces))]
		case 2:
			b = append(b[:i], append([]byte{pieces[rng.IntN(len(pieces))]}, b[i:]...)...)
		case 3:
			k := i + rng.IntN(len(b)-i)
			b = append(b[:i], append([]byte(string(b[i:k])), b[i:]...)...)
		case 4:
			b = append(b[:i], b[i+rng.IntN(len(b)-i):]...)
		}
	}
	return string(b)
}

// checkTwin: the automaton takes what the emitted grammar derives, and of
// mutated texts what its twin takes.
func checkTwin(t fataler, c *Checked, n int) (taken, refused int) {
	t.Helper()
	for _, r := range c.content.reasons {
		if strings.Contains(r, errTooLarge.Error()) {
			return 0, 0 // another language
		}
	}
	rules := readEBNF(t, c.content.String())
	costs(rules)
	if rules["root"].cost >= noCost {
		return 0, 0
	}
	a := automatonOf(t, c)
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 11))
		text := derive(rules, rng, 1+i*20)
		if len(text) > 20_000 || nesting(text) > maxNesting {
			continue
		}
		if !accepts(a, text) {
			t.Errorf("%s: derived, not accepted: %s\n%s", c.name, clipText(text, 600), clipText(c.content.String(), 3000))
			return
		}
		if len(text) > 400 {
			continue
		}
		for range 4 {
			bad := mutate(rng, text)
			want := twinAccepts(rules, bad)
			if got := accepts(a, bad); got != want {
				t.Errorf("%s: accepted %v, by the twin %v: %q\n%s", c.name, got, want, bad, clipText(c.content.String(), 3000))
				return
			}
			if want {
				taken++
			} else {
				refused++
			}
		}
	}
	return taken, refused
}

func nesting(text string) int {
	deepest, depth := 0, 0
	for i, quoted := 0, false; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// sample compiles every n-th schema of the public sample.
func sample(t testing.TB, n int, sets ...string) []*Checked {
	t.Helper()
	var files []string
	if len(sets) == 0 {
		sets = []string{"*"}
	}
	for _, s := range sets {
		files = append(files, dataFiles(t, "schemas/jsonschemabench/"+s+"/*.json")...)
	}
	var out []*Checked
	for i := 0; i < len(files); i += n {
		raw, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Schema json.RawMessage }
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		if c, err := Compile(Tool{filepath.Base(files[i]), file.Schema}, Closed); err == nil {
			out = append(out, c)
		}
	}
	return out
}

func TestTwinSample(t *testing.T) {
	cs := sample(t, 1)
	taken, refused := 0, 0
	for _, c := range cs {
		if _, err := c.Automaton(); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		y, n := checkTwin(t, c, 6)
		taken, refused = taken+y, refused+n
	}
	t.Logf("%d schemas; of mutated texts %d fit, %d don't", len(cs), taken, refused)
	if taken < 100 || refused < 1000 {
		t.Error("too few to tell anything")
	}
}

var qwen = sync.OnceValues(func() (*token.Vocabulary, error) {
	tok := tokenizer.Qwen3()
	end, _ := tok.ID("<|im_end|>")
	return token.NewVocabulary(tok, end)
})

func qwenVocabulary(t testing.TB) *token.Vocabulary {
	t.Helper()
	v, err := qwen()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestHostileAutomaton: schemas made to cost much get their masks in bounded
// time and memory, or an error that names the limit.
func TestHostileAutomaton(t *testing.T) {
	v := qwenVocabulary(t)
	props := func(n int, of func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(of(i))
		}
		return b.String()
	}
	p := func(inner string) string { return `{"properties":{"p":` + inner + `},"required":["p"]}` }
	chain := `{"$ref":"#/$defs/d0","$defs":{` + props(300, func(i int) string {
		return fmt.Sprintf(`"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}},"required":["a"]}`, i, i+1, i+1)
	}) + `,"d300":{"type":"object"}}}`
	for _, tt := range []struct{ name, schema, limit string }{
		{"items", p(`{"type":"array","items":{"type":"string"},"minItems":1000000000}`), ""},
		{"characters", p(`{"type":"string","maxLength":1000000000000000}`), ""},
		{"optional", `{"properties":{` + props(5000, func(i int) string { return fmt.Sprintf(`"key%d":{"type":"string"}`, i) }) + `}}`, ""},
		{"enum", p(`{"enum":[` + props(20_000, func(i int) string { return fmt.Sprintf(`"value %d"`, i*7919) }) + `]}`), ""},
		{"branches", p(`{"anyOf":[` + props(2000, func(i int) string {
			return fmt.Sprintf(`{"type":"object","properties":{"k":{"const":%d},"v":{"type":"string","maxLength":%d}},"required":["k","v"]}`, i, i+1)
		}) + `]}`), ""},
		{"stars", p(`{"type":"string","pattern":"^((a*)*b*)*c$"}`), ""},
		{"counts", p(`{"type":"string","pattern":"^.*[a-z]{900,1000}x$"}`), ""},
		{"windows", p(`{"type":"string","pattern":"^(.*a.{99}){8}$"}`), ""},
		{"nested counts", p(`{"type":"string","pattern":"^((a?b?){0,30}c?){0,30}$"}`), ""},
		{"tree", `{"type":"object","properties":{"l":{"$ref":"#"},"r":{"$ref":"#"},"v":{}},"required":["v"]}`, ""},
		{"chain", chain, "nesting"},
		{"nested", p(strings.Repeat(`{"type":"array","minItems":1,"items":`, 60) + `{"type":"null"}` + strings.Repeat(`}`, 60)), ""},
	} {
		start := time.Now()
		c := compileTest(t, tt.schema, Closed)
		compiled := time.Since(start)
		a, err := c.Automaton()
		var le *LimitError
		if tt.limit != "" {
			if !errors.As(err, &le) || le.Limit != tt.limit {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		built := time.Since(start)
		g := grammarOf(t, a, v)
		m, err := g.Matcher()
		if err != nil {
			t.Fatal(err)
		}
		mask := make([]uint64, v.Words())
		rng := rand.New(rand.NewPCG(1, 1))
		if tt.name == "counts" { // the text that keeps a thread for every count
			if err := m.AdvanceBytes([]byte(`{"p": "` + strings.Repeat("a", 899))); err != nil {
				t.Fatal(err)
			}
		}
		slowest, n := time.Duration(0), 0
		var most alloctest.Cost
		for ; n < 60 && !m.Done(); n++ {
			from := time.Now()
			cost := alloctest.Of(func() { err = m.Fill(mask) })
			most.Bytes, most.Objects = max(most.Bytes, cost.Bytes), max(most.Objects, cost.Objects)
			if err != nil {
				var le *token.LimitError
				if !errors.As(err, &le) {
					t.Errorf("%s: %v", tt.name, err)
				}
				t.Logf("%s: after %d tokens: %v", tt.name, n, err)
				break
			}
			slowest = max(slowest, time.Since(from))
			if err := m.Advance(tokentest.Draw(rng, mask)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				break
			}
		}
		t.Logf("%s: compiled in %v, automaton %v, %d masks, slowest %v, most %v allocated, %d bytes", tt.name, compiled, built-compiled, n, slowest, most, g.MemoryBytes())
		// What a mask looks at is bounded by its mask work; it keeps what it found.
		if !most.Within(alloctest.Cost{Bytes: 32 << 20, Objects: 300_000}) || g.MemoryBytes() > 4*token.MaxBytes {
			t.Errorf("%s: too much", tt.name)
		}
	}
}
