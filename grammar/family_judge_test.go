//go:build judges

package grammar

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models/wire"
)

// familyTools cover what families write differently: text beside numbers, lists
// and objects, optional and nullable members, enums, no parameters at all.
var familyTools = []Tool{
	{"get_weather", []byte(`{"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":0,"maximum":99},
		"unit":{"enum":["c","f"]}},"required":["city"]}`)},
	{"now", []byte(`{"type":"object","properties":{}}`)},
	{"save", []byte(`{"type":"object","properties":{"text":{"type":"string","minLength":2,"maxLength":6},"tags":{"type":"array","maxItems":2,"items":{"type":"string","maxLength":4}},
		"note":{"type":["string","null"],"maxLength":4},"flag":{"type":"boolean"},"at":{"type":"object","properties":{"x":{"type":"number","minimum":0,"maximum":1}},"required":["x"]}},
		"required":["text","flag","at"]}`)},
}

func compileTools(t fataler, tools []Tool) []*Checked {
	t.Helper()
	var out []*Checked
	for _, tool := range tools {
		c, err := Compile(tool, Closed)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// TestFamilyTags holds the tag of every family against xgrammar: what the family
// writes for arguments that fit is taken, near misses are not, and every
// finished random walk is read back by the family's parser as calls that fit, of
// the tools and in the number that the choice allows.
func TestFamilyTags(t *testing.T) {
	j := startJudge(t)
	checked := compileTools(t, familyTools)
	fits := map[string][]string{
		"get_weather": {`{"city": "Oslo"}`, `{"city": "a<b\n\"c", "days": 7, "unit": "c"}`, `{"city": "", "unit": "f"}`},
		"now":         {`{}`},
		"save":        {`{"text": "ab", "flag": true, "at": {"x": 0.5}}`, `{"text": "日本語", "tags": ["a", "b"], "note": "n", "flag": false, "at": {"x": 1}}`},
	}
	for _, name := range wire.Names() {
		f, err := wire.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "chatml" {
			continue // calls as hermes
		}
		t.Run(name, func(t *testing.T) {
			var done, cut, calls int
			for k, choice := range []Choice{{Mode: Auto, Parallel: true}, {Mode: Auto}, {Mode: Required, Parallel: true}, {Mode: Required}, {Mode: Named, Name: "save"}, {Mode: None}} {
				e, err := Tag(SyntaxOf(f), checked, choice, xgrammar028)
				if err != nil {
					t.Fatal(err)
				}
				for _, te := range e.Tools {
					if !te.Exact {
						t.Errorf("%s: %v", te.Name, te.Reasons)
					}
				}
				must := choice.Mode == Required || choice.Mode == Named
				ask := judgeAsk{ID: name, Tag: map[string]any{"type": "structural_tag", "format": e.Format}, Walks: 3, MaxTokens: 200, Seed: k + 1, Wander: 0.1}
				want := []bool{}
				add := func(ok bool, text string) {
					ask.Accept, want = append(ask.Accept, text), append(want, ok)
				}
				rng := rand.New(rand.NewPCG(1, uint64(k)))
				call := func() wire.Call {
					n := familyTools[rng.IntN(len(familyTools))].Name
					if choice.Mode == Named {
						n = choice.Name
					}
					return wire.Call{Name: n, Arguments: fits[n][rng.IntN(len(fits[n]))]}
				}
				lead := ""
				if f.Calls.Form == wire.Channels {
					lead = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant"
					add(!must, "<|channel|>final<|message|>Hi<|return|>")
				} else {
					add(!must, "Hello.")
				}
				for range 5 {
					one := f.TurnText("", []wire.Call{call()})
					add(choice.Mode != None, one)
					add(choice.Mode != None, lead+one)
					add(choice.Mode != None && choice.Mode != Named && choice.Parallel, f.TurnText("", []wire.Call{call(), call()}))
					if f.Calls.Form != wire.Channels {
						add(choice.Mode == Auto, f.TurnText("Let me see.", []wire.Call{call()}))
					}
				}
				add(false, f.TurnText("", []wire.Call{{Name: "nosuch", Arguments: "{}"}}))
				add(false, f.TurnText("", []wire.Call{{Name: "get_weather", Arguments: `{"days": 3}`}}))
				add(false, f.TurnText("", []wire.Call{{Name: "get_weather", Arguments: `{"city": "too long to fit"}`}}))
				add(false, f.TurnText("", []wire.Call{{Name: "save", Arguments: `{"text": "a", "flag": true, "at": {"x": 1}}`}}))
				r := j.ask(t, ask)
				if !r.OK {
					t.Fatalf("%+v: %s\n%s", choice, r.Error, e.Format)
				}
				for i, ok := range r.Accept {
					if ok != want[i] {
						t.Errorf("%+v: %q: taken %v, should be %v", choice, ask.Accept[i], ok, want[i])
					}
				}
				for _, w := range r.Walks {
					b, _ := base64.StdEncoding.DecodeString(w.Bytes)
					text := string(b)
					switch {
					case w.Error != "" || w.Stuck:
						t.Errorf("%+v: %s, stuck %v after %q", choice, w.Error, w.Stuck, text)
						continue
					case !w.Done:
						cut++
						continue
					}
					done++
					if why := holds(f, choice, checked, text, &calls); why != "" {
						t.Errorf("%+v: %s: %q", choice, why, text)
					}
				}
			}
			t.Logf("walks: %d finished with %d calls, %d cut", done, calls, cut)
			if done == 0 || calls == 0 {
				t.Error("nothing was proved")
			}
		})
	}
}

// holds says why an answer isn't what the choice allows.
func holds(f *wire.Family, choice Choice, checked []*Checked, text string, n *int) string {
	calls, _, fault := readAnswer(f, familyTools, text)
	*n += len(calls)
	must := choice.Mode == Required || choice.Mode == Named
	switch {
	case fault != "":
		return fault
	case must && len(calls) == 0:
		return "no call"
	case choice.Mode == None && len(calls) > 0:
		return "a call"
	case len(calls) > 1 && (!choice.Parallel || choice.Mode == Named):
		return fmt.Sprintf("%d calls", len(calls))
	}
	for _, c := range calls {
		known := false
		for _, k := range checked {
			if k.name != c.name {
				continue
			}
			known = true
			if err := k.Check([]byte(c.args)); err != nil {
				return fmt.Sprintf("arguments of %s: %v: %s", c.name, err, c.args)
			}
		}
		if !known || choice.Mode == Named && c.name != choice.Name {
			return "a call of " + c.name
		}
	}
	return ""
}

// TestFamilyTagOracle compares the formats with those that xgrammar builds in:
// the texts that its own tag takes and ours doesn't are named.
func TestFamilyTagOracle(t *testing.T) {
	j := startJudge(t)
	checked := compileTools(t, familyTools[:2])
	type function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
		Strict     bool            `json:"strict"`
	}
	var tools []any
	for _, tool := range familyTools[:2] {
		tools = append(tools, map[string]any{"type": "function", "function": function{tool.Name, tool.Schema, true}})
	}
	for family, model := range map[string]string{"hermes": "qwen_3", "qwen3-coder": "qwen_3_coder", "deepseek-v3.1": "deepseek_v3_1", "kimi-k2": "kimi", "llama3": "llama", "glm-4.7": "glm_4_7", "harmony": "harmony"} {
		f, err := wire.ByName(family)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []Mode{Auto, Required} {
			e, err := Tag(SyntaxOf(f), checked, Choice{Mode: mode, Parallel: true}, xgrammar028)
			if err != nil {
				t.Fatal(err)
			}
			calls := []wire.Call{{Name: "get_weather", Arguments: `{"city": "Oslo", "days": 7, "unit": "c"}`}, {Name: "now", Arguments: "{}"}}
			var texts []string
			// What theirs refuses though it is a call: an empty line is wanted where
			// no parameters are, and no space behind a recipient.
			refused := map[string]bool{}
			switch family {
			case "qwen3-coder":
				refused[f.TurnText("", calls[1:])] = true
			case "harmony":
				for _, c := range calls {
					refused[f.TurnText("", []wire.Call{c})] = true
					texts = append(texts, strings.Replace(f.TurnText("", []wire.Call{c}), " <|constrain|>", "<|constrain|>", 1))
				}
			}
			for _, c := range calls {
				texts = append(texts, f.TurnText("", []wire.Call{c}))
			}
			if f.Calls.Form != wire.Channels {
				texts = append(texts, f.TurnText("Hm.", calls[:1]), "Hm.", f.TurnText("", []wire.Call{{Name: "nosuch", Arguments: "{}"}}))
			}
			texts = append(texts, f.TurnText("", []wire.Call{{Name: "get_weather", Arguments: `{"days": 1}`}}))
			ours := j.ask(t, judgeAsk{ID: family, Tag: map[string]any{"type": "structural_tag", "format": e.Format}, Accept: texts})
			theirs := j.ask(t, judgeAsk{ID: family, Model: model, ModelTools: tools, ModelChoice: string(mode), Accept: texts})
			if !ours.OK || !theirs.OK {
				t.Fatalf("%s: %s %s", family, ours.Error, theirs.Error)
			}
			for i, text := range texts {
				if refused[text] && ours.Accept[i] && !theirs.Accept[i] {
					continue
				}
				if ours.Accept[i] != theirs.Accept[i] || refused[text] {
					t.Errorf("%s, %s: %q: ours %v, theirs %v", family, mode, text, ours.Accept[i], theirs.Accept[i])
				}
			}
		}
	}
}
