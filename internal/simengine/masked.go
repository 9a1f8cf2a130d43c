package simengine

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// maxGrammarBytes is what the grammars of an engine keep together.
const maxGrammarBytes = 128 << 20

// decoder samples constrained answers by token masks.
type decoder struct {
	v        *token.Vocabulary
	grammars *token.Cache
}

// vocabularyOf lays out a vocabulary for masks; that of Qwen3 once for all
// engines.
func vocabularyOf(tok *tokenizer.Tokenizer, eos int32) (*token.Vocabulary, error) {
	if tok == tokenizer.Qwen3() {
		if end, ok := tok.ID("<|im_end|>"); ok && end == eos {
			return qwen3()
		}
	}
	return token.NewVocabulary(tok, eos)
}

var qwen3 = sync.OnceValues(func() (*token.Vocabulary, error) {
	tok := tokenizer.Qwen3()
	end, _ := tok.ID("<|im_end|>")
	return token.NewVocabulary(tok, end)
})

// grammar is the format as token masks, nil if it isn't one that masks are made
// for: calls, with text or without, or one JSON value.
func (e *Engine) grammar(f *format, shown []*tool) *token.Grammar {
	c := token.Calls{Trigger: e.family.Calls.Open, Special: e.special}
	var key strings.Builder
	if e.decoder == nil || e.family.Calls.Form != wire.Object || c.Trigger == "" || !e.calls(&c, f, shown, &key) {
		return nil
	}
	g, err := e.decoder.grammars.Get(key.String(), func() (*token.Grammar, error) { return token.New(e.decoder.v, 0, c.Source) })
	if err != nil || g.Empty() {
		return nil
	}
	return g
}

// calls reads a format into c, and into key what tells it from others.
func (e *Engine) calls(c *token.Calls, f *format, shown []*tool, key *strings.Builder) bool {
	fmt.Fprintf(key, "%s %v %v %q;", f.kind, f.one, f.stop, f.text)
	c.Most = -1
	if f.stop {
		c.Most = 1
	}
	switch f.kind {
	case "json_schema":
		// What generates is a language of objects.
		if f.schema.get("type").text() != "object" {
			return false
		}
		c.Response = arguments(f.schema, grammar.Open, key)
		return c.Response != nil
	case "grammar":
		c.Response = f.masks(key)
		return true
	case "any_text":
		c.FreeText = true
		return slices.Equal(f.excludes, []string{c.Trigger})
	case "triggered_tags":
		c.FreeText = true
		return !f.one && len(f.excludes) == 0 && slices.Equal(f.triggers, []string{c.Trigger}) && e.tools(c, f, shown, key)
	case "tags_with_separator":
		c.Separator = f.text
		return f.one && e.tools(c, f, shown, key)
	case "or":
		if len(f.parts) != 2 || f.parts[0].kind != "tags_with_separator" || f.parts[1].kind != "json_schema" && f.parts[1].kind != "grammar" {
			return false
		}
		var alone token.Calls
		if !e.calls(&alone, f.parts[1], shown, key) || !e.calls(c, f.parts[0], shown, key) {
			return false
		}
		c.Response = alone.Response
		return true
	}
	return false
}

func (e *Engine) tools(c *token.Calls, f *format, shown []*tool, key *strings.Builder) bool {
	for _, tag := range f.parts {
		content := tag.parts[0]
		if len(tag.ends) != 1 || tag.ends[0] == "" || content.kind != "json_schema" && content.kind != "grammar" {
			return false
		}
		fmt.Fprintf(key, "%q %q ", tag.text, tag.ends[0])
		if content.kind == "grammar" {
			c.Tools = append(c.Tools, token.Tool{Begin: tag.text, End: tag.ends[0], Arguments: content.masks(key)})
			continue
		}
		schema := content.schema
		if name := beginName(tag.text); schema.kind == 't' {
			schema = &node{kind: '{'}
			for _, t := range shown {
				if t.name == name && t.schema.kind == '{' {
					schema = t.schema
				}
			}
		}
		open := arguments(schema, grammar.Closed, key)
		if open == nil {
			return false
		}
		c.Tools = append(c.Tools, token.Tool{Begin: tag.text, End: tag.ends[0], Arguments: open})
	}
	return len(c.Tools) > 0
}

// masks opens the automaton of a grammar.
func (f *format) masks(key *strings.Builder) func() (token.Source, error) {
	fmt.Fprintf(key, "%q;", f.text)
	return func() (token.Source, error) { return f.machine.Source(), nil }
}

// arguments opens the automaton of a schema; nil if it has none.
func arguments(schema *node, world grammar.World, key *strings.Builder) func() (token.Source, error) {
	raw := schema.append(nil)
	fmt.Fprintf(key, "%d %s;", world, raw)
	c, err := grammar.Compile(grammar.Tool{Name: "answer", Schema: raw}, world)
	if err != nil {
		return nil
	}
	a, err := c.Automaton()
	if err != nil {
		return nil
	}
	return a.Source
}

// hold decodes an answer within the format: the policy's tokens as far as masks
// allow them. It gives them as they are for a format without masks.
func (e *Engine) hold(f *format, tr *transcript, want []int32, seed uint64, most int) []int32 {
	g := e.grammar(f, tr.tools)
	if g == nil {
		return want
	}
	if e.cfg.Random {
		want = nil
	} else {
		want = append(want[:len(want):len(want)], e.eos)
	}
	ids := e.decode(g, want, seed, most+1)
	if ids == nil {
		return want
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id == e.eos })
}

// decode takes the wanted tokens as long as masks allow them and goes on with
// random ones, at most most in all. It is nil if a mask can't be made.
func (e *Engine) decode(g *token.Grammar, want []int32, seed uint64, most int) []int32 {
	m, err := g.Matcher()
	if err != nil {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	mask := make([]uint64, e.decoder.v.Words())
	var out []int32
	for followed := true; len(out) < most && !m.Done(); {
		if m.Fill(mask) != nil {
			return nil
		}
		id := int32(-1)
		if n := len(out); followed && n < len(want) {
			id = want[n]
		}
		if followed = id >= 0 && mask[id>>6]>>(id&63)&1 == 1; !followed {
			id = e.decoder.draw(rng, mask, len(out)-len(want))
		}
		if id < 0 || m.Advance(id) != nil {
			return nil
		}
		out = append(out, id)
	}
	return out
}

// draw is a random token of the mask. The more of them there were, the more
// often it is one that brings the end nearer, so that an answer has an end.
func (d *decoder) draw(rng *rand.Rand, mask []uint64, before int) int32 {
	has := func(id int32) bool { return id >= 0 && mask[id>>6]>>(id&63)&1 == 1 }
	if rng.IntN(100) < min(90, 20+max(0, before)/2) {
		for _, id := range d.v.Ends() {
			if has(id) {
				return id
			}
		}
		for _, b := range []byte(`"}]e0`) {
			if id := d.v.Single(b); has(id) {
				return id
			}
		}
	}
	n := 0
	for _, w := range mask {
		n += bits.OnesCount64(w)
	}
	if n == 0 {
		return -1
	}
	n = rng.IntN(n)
	for i, w := range mask {
		if k := bits.OnesCount64(w); n >= k {
			n -= k
			continue
		}
		for ; n > 0; n-- {
			w &= w - 1
		}
		return int32(i*64 + bits.TrailingZeros64(w))
	}
	return -1
}
