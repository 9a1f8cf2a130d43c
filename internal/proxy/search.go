package proxy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/prefix"
	"github.com/toolsidecar/sidecar/retrieval"
)

// searchTool is the tool that the sidecar answers itself, within the request: the
// second path to a tool which the conversation's own words did not find.
const (
	searchSchema = `{"type":"object","properties":{"query":{"type":"string","maxLength":200,"description":"What the tool should do, in a few words; or select:NAME for a tool known by name."}},"required":["query"]}`
	searchTool   = `{"type":"function","function":{"name":"` + prefix.SearchTool + `","description":"Find more tools by what they do. Answers with the signatures of the best matches, which can be called from then on.","parameters":` + searchSchema + `}}`
)

// searches says whether the model may search in this round: it must be free to
// choose among all tools, with one choice, and searches must be left.
func (t *turn) searches() bool {
	return t.rounds > 0 && t.allowed == nil && (t.choice.Mode == grammar.Auto || t.choice.Mode == grammar.Required)
}

// carried is what earlier rounds of a request leave to the next: the client sees
// one reply.
type carried struct {
	Earlier     // the sums, for the client's usage and the record
	text        string
	reasoning   string
	logprobs    [][]byte
	id, created []byte // members of every chunk, as the first round had them
}

// Search is one search of the model.
type Search struct {
	Query string   `json:"query"`
	Found []string `json:"found"`
}

// search answers the model's search, which ended r, and prepares the next round:
// the reply so far and the tools found become a late block behind the last
// message, so that the next prompt continues this one.
func (s *stages) search(t *turn, r *generation) error {
	c := r.choices[0]
	query := searchQuery(c.search.arguments.String())
	ix := t.set.Index()
	visible := t.visible()
	var always []string
	var hits []retrieval.Hit
	wishes := 1
	if names, ok := strings.CutPrefix(query, "select:"); ok {
		room := s.cfg.Tokens
		for name := range strings.SplitSeq(names, ",") {
			name = strings.TrimSpace(name)
			i, known := ix.Lookup(name)
			if !known || visible[name] || len(always) == s.cfg.TopK {
				continue
			}
			room -= t.set.Costs(s.cfg.Counter.Name()).Of(ix, i, s.cfg.Counter.Count)
			if room < 0 && len(always) > 0 { // the first is shown whatever it costs
				break
			}
			always = append(always, name)
		}
	} else {
		q := retrieval.Text(query)
		q.Explain, q.Memory = true, s.memory(t)
		wishes = len(q.Clauses)
		hits = s.find(t, q, 4*s.cfg.TopK+len(visible))
	}
	sel := s.choose(t, hits, always, visible, s.cfg.Tokens, wishes)
	sel.Tools = slices.DeleteFunc(sel.Tools, func(i int) bool { return !s.usable(t, i) })
	block := &prefix.Block{Query: query, Call: prefix.WithReasoning(t.info.Family, c.reasoning.String(), c.raw())}
	if t.prompt != nil {
		output, err := prefix.Output(t.info.Family, s.cfg.Counter, c.ids, c.reasoning.String(), c.raw())
		if err != nil {
			t.record.fallBack("the search goes on as text: " + err.Error())
		} else {
			block.CallIDs = prefix.PackIDs(output)
		}
	}
	found := Search{Query: query, Found: []string{}}
	for _, i := range sel.Tools {
		found.Found = append(found.Found, ix.Tool(i).Name)
	}
	if len(sel.Tools) == 0 {
		block.Note = "No further tool matches."
	}
	t.record.Searches = append(t.record.Searches, found)
	t.add(block, sel)
	s.explain(t, sel, hits)
	s.count(t)

	t.rounds--
	t.carry(r)
	if err := s.constrain(t); err != nil {
		return err
	}
	t.limit()
	s.compose(t)
	return nil
}

// searchQuery reads the checked arguments of a search.
func searchQuery(arguments string) string {
	var a struct{ Query string }
	if err := json.Unmarshal([]byte(arguments), &a); err != nil {
		return ""
	}
	return strings.Join(strings.Fields(a.Query), " ")
}

// carry adds a finished round to what the next one starts with.
func (t *turn) carry(r *generation) {
	e, c := &t.earlier, r.choices[0]
	e.Rounds++
	e.ExpectedCached += t.record.ExpectedCached
	e.text += c.text.String()
	e.reasoning += c.reasoning.String() + c.thought.String()
	e.logprobs = append(e.logprobs, c.logprobs...)
	if e.id == nil {
		e.id, e.created = member(r.head, "id"), member(r.head, "created")
	}
	if u := reported(r.usage); u != nil {
		e.Reported = e.plus(*u)
		if e.Rounds == 1 {
			e.first, e.firstExpected = *u, t.record.ExpectedCached
		}
	}
	sums := e.Earlier
	t.record.Earlier = &sums
}

// plus adds what the engine reported for another round.
func (r Reported) plus(u Reported) Reported {
	sum := Reported{r.Prompt + u.Prompt, r.Completion + u.Completion, r.Cached + u.Cached}
	if r.Cached < 0 || u.Cached < 0 {
		sum.Cached = -1
	}
	return sum
}

func member(o *openai.Object, key string) []byte {
	v, ok := o.Get(key)
	if !ok {
		return nil
	}
	return slices.Clone(v.Raw)
}

// limit takes the tokens of earlier rounds off the client's max_tokens.
func (t *turn) limit() {
	for _, key := range []string{"max_tokens", "max_completion_tokens"} {
		if n, ok := t.most[key]; ok {
			t.object.Set(key, fmt.Appendf(nil, "%d", max(n-t.earlier.Completion, 1)))
		}
	}
}

// total is the usage of all rounds in the form of the last one's.
func (e *carried) total(usage []byte) []byte {
	u := reported(usage)
	if e.Rounds == 0 || u == nil {
		return usage
	}
	o, err := openai.Scan(slices.Clone(usage), openai.Limits{})
	if err != nil {
		return usage
	}
	sum := e.plus(*u)
	o.Set("prompt_tokens", fmt.Append(nil, sum.Prompt))
	o.Set("completion_tokens", fmt.Append(nil, sum.Completion))
	o.Set("total_tokens", fmt.Append(nil, sum.Prompt+sum.Completion))
	if v, ok := o.Get("prompt_tokens_details"); ok && sum.Cached >= 0 {
		if d, ok := openai.ObjectOf(v); ok {
			d.Set("cached_tokens", fmt.Append(nil, sum.Cached))
			o.Set("prompt_tokens_details", d.Bytes())
		}
	}
	return o.Bytes()
}
