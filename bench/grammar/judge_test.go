//go:build judges

package grammar

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// TestLLGuidance: what llguidance takes of the sample's instances and of texts a
// little beside them we take, too. The other way round it is known to be
// narrower: declared order of keys, one spelling of a number.
func TestLLGuidance(t *testing.T) {
	file := os.Getenv("SIDECAR_QWEN3_TOKENIZER")
	if file == "" {
		file = "../../.cache/qwen3/tokenizer.json"
	}
	for _, f := range []string{file, "../../.venv/peers/bin/python"} {
		if _, err := os.Stat(f); err != nil {
			if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
				t.Fatal(err)
			}
			t.Skipf("no judge: %v (make .venv/peers .cache/qwen3)", err)
		}
	}
	tok, err := tokenizer.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := tok.ID("<|im_end|>")
	v, err := token.NewVocabulary(tok, end)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Schemas(data(t) + "/jsonschemabench")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 17))
	var cases []Case
	refused := 0
schemas:
	for i := 0; i < len(all); i += 10 {
		c := all[i]
		// An annotation for us, so that llguidance can only be narrower.
		g, err := accept.Tokens(context.Background(), v, c.Schema, accept.Options{}, 0)
		if err != nil {
			continue
		}
		texts := [][]byte{}
		for _, x := range c.Tests {
			if len(x.Text) > 4000 {
				continue
			}
			texts = append(texts, x.Text)
			for range 4 {
				if m := beside(rng, x.Text); json.Valid(m) {
					if _, err := jsontext.Parse(m, 500); err == nil { // no key twice
						texts = append(texts, m)
					}
				}
			}
		}
		c.Tests = nil
		for _, x := range texts {
			m := &measurement{cfg: Config{Vocabulary: v}, mask: make([]uint64, v.Words())}
			ok, _, err := m.walk(g, Tokens(v, x), nil)
			var limit *token.LimitError
			if errors.As(err, &limit) { // refused by name, as bench grammar does
				t.Logf("%s: %v", c.File, err)
				refused++
				continue schemas
			}
			if err != nil {
				t.Errorf("%s: %v", c.File, err)
			}
			c.Tests = append(c.Tests, Test{ok, x})
		}
		cases = append(cases, c)
	}
	if refused > 2 {
		t.Errorf("%d schemas are refused by masks", refused)
	}
	reports, err := Peers(t.Context(), "../..", "llguidance", v, file, cases, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	r := reports["llguidance"]
	byFile := map[string]*Case{}
	for i := range cases {
		byFile[cases[i].File] = &cases[i]
	}
	for _, w := range r.Wrong {
		if !w.Valid {
			t.Errorf("%s: llguidance takes what we refuse: %.300s", w.File, byFile[w.File].Tests[w.Test].Text)
		}
	}
	t.Logf("%d schemas, %d compiled there; both take %d, both refuse %d, it alone refuses %d", r.Schemas, r.Compiled, r.Valid.Accepted, r.Invalid.Rejected, r.Valid.Rejected)
	if r.Compiled < 80 || r.Valid.Accepted < 100 || r.Invalid.Rejected < 100 {
		t.Error("too few to tell anything")
	}
}

// beside is a text a little beside another.
func beside(rng *rand.Rand, text []byte) []byte {
	b := append([]byte(nil), text...)
	if len(b) == 0 {
		return b
	}
	i := rng.IntN(len(b))
	pieces := `{}[]",:0123456789.-eE+ truefalsn`
	switch rng.IntN(3) {
	case 0:
		b[i] = pieces[rng.IntN(len(pieces))]
	case 1:
		b = append(b[:i], b[i+1:]...)
	case 2:
		b = append(b[:i], append([]byte{pieces[rng.IntN(len(pieces))]}, b[i:]...)...)
	}
	return b
}
