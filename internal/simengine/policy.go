package simengine

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"unicode"
)

// policy decides what to generate. It is a deterministic function of the
// transcript, the constraint and the seed, no model: it calls the tools whose
// words match the user's, one an answer, and then sums up their results.
type policy struct {
	tr        *transcript
	seed      uint64
	parallel  bool // may call several tools in one answer
	words     []string
	documents map[string]int // tools by word
	emitted   int            // calls of this answer
	used      map[string]bool
}

func newPolicy(tr *transcript, seed uint64, parallel bool) *policy {
	p := &policy{tr: tr, seed: seed, used: map[string]bool{}, documents: map[string]int{}}
	p.parallel = parallel && containsAny(strings.ToLower(tr.request), "in parallel", "at the same time", "at once")
	p.words = content(tr.request)
	for _, name := range tr.called {
		p.used[name] = true
	}
	for _, t := range tr.tools {
		for w := range t.words() {
			p.documents[w]++
		}
	}
	return p
}

func containsAny(s string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// searchTool is called when no other tool fits; see models/wire on how tools
// are shown late.
const searchTool = "tool_search"

// words of a tool with their weight: 3 in the name, 1 elsewhere.
func (t *tool) words() map[string]float64 {
	w := make(map[string]float64)
	for _, x := range terms(t.description) {
		w[x] = 1
	}
	if props := t.schema.get("properties"); props != nil {
		for _, k := range props.keys {
			for _, x := range terms(k) {
				w[x] = 1
			}
		}
	}
	for _, x := range terms(t.name) {
		w[x] = 3
	}
	return w
}

// best is the tool among candidates that fits the request best and was not
// called for it yet; nil when none fits.
func (p *policy) best(candidates []*tool) *tool {
	open := p.open(candidates)
	var best *tool
	var top float64
	n := float64(len(p.tr.tools))
	var search *tool
	for _, t := range candidates {
		if p.used[t.name] {
			continue
		}
		if t.name == searchTool {
			search = t
			continue
		}
		score := 0.0
		if mentionsName(p.tr.request, t.name) {
			score = 1000
		}
		inName, elsewhere := 0, 0
		words := t.words()
		for i, w := range open {
			weight, ok := words[w]
			if !ok {
				continue
			}
			if weight > 1 {
				inName++
			} else {
				elsewhere++
			}
			// what is asked first is done first
			early := 1 - 0.5*float64(i)/float64(len(open))
			score += early * weight * math.Log(1+(1+n)/float64(1+p.documents[w]))
		}
		if score < 1000 && inName == 0 && elsewhere < 2 {
			continue
		}
		score -= 0.001 * float64(len(words)) // of equal ones the more specific
		if best == nil || score > top || score == top && t.name < best.name {
			best, top = t, score
		}
	}
	if best == nil && search != nil && len(p.tr.called) == 0 && len(p.words) >= 2 {
		return search
	}
	return best
}

// open is the words of the request that the tools called for it don't cover.
func (p *policy) open(candidates []*tool) []string {
	covered := make(map[string]bool)
	for _, list := range [][]*tool{p.tr.tools, candidates} {
		for _, t := range list {
			if p.used[t.name] {
				for w := range t.words() {
					covered[w] = true
				}
			}
		}
	}
	var out []string
	for _, w := range p.words {
		if !covered[w] {
			out = append(out, w)
		}
	}
	return out
}

// forced is the tool to call when one must be called.
func (p *policy) forced(candidates []*tool) *tool {
	if t := p.best(candidates); t != nil {
		return t
	}
	for _, t := range candidates {
		if !p.used[t.name] && t.name != searchTool {
			return t
		}
	}
	return candidates[0]
}

// arguments fills the schema of a tool; the same call is filled alike.
func (p *policy) arguments(t *tool) (string, bool) {
	h := fnv.New64a()
	h.Write([]byte(t.name))
	v, ok := fill(t.schema, p.tr.request, p.seed^h.Sum64())
	return string(v), ok
}

// call marks a tool as called.
func (p *policy) call(t *tool) {
	p.used[t.name] = true
	p.emitted++
}

// again reports whether one more call may follow in this answer.
func (p *policy) again() bool { return p.emitted == 0 || p.parallel }

var openings = []string{"Here is what I found.", "Done.", "This is the result.", "All steps are complete."}
var replies = []string{"I can answer that without a tool.", "No tool is needed for this.", "This is a simulated answer."}

// answer is text for the user: the results so far, or an echo.
func (p *policy) answer() string {
	if p.emitted > 0 {
		return ""
	}
	var b strings.Builder
	if len(p.tr.results) > 0 {
		b.WriteString(openings[p.seed%uint64(len(openings))])
		for _, r := range p.tr.results {
			b.WriteString(" ")
			b.WriteString(gist(r))
		}
		return b.String()
	}
	b.WriteString(replies[p.seed%uint64(len(replies))])
	if e := excerpt(p.tr.request, 16); e != "" {
		b.WriteString(" You said: ")
		b.WriteString(e)
	}
	return b.String()
}

// gist says of a result what a reader wants to know: of a JSON object its first
// plain members, of other text the first words.
func gist(result string) string {
	n, err := parseNode([]byte(result))
	if err != nil || n.kind != '{' {
		return excerpt(result, 24)
	}
	var facts []string
	for i, key := range n.keys {
		if v := n.vals[i]; (v.kind == '"' || v.kind == '0') && len(facts) < 3 {
			facts = append(facts, strings.ReplaceAll(key, "_", " ")+" "+excerpt(v.str+v.num.String(), 6))
		}
	}
	if len(facts) == 0 {
		return fmt.Sprintf("The result has %d fields.", len(n.keys))
	}
	return strings.Join(facts, ", ") + "."
}

// excerpt is the first words of a text on one line, without what looks like a tag.
func excerpt(s string, words int) string {
	if len(s) > 4096 {
		s = s[:4096]
	}
	s = strings.ToValidUTF8(s, "")
	s = strings.Map(func(r rune) rune {
		if r == '<' || r == '>' || !unicode.IsPrint(r) && r != ' ' && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, s)
	f := strings.Fields(s)
	if len(f) > words {
		f = append(f[:words:words], "…")
	}
	return strings.Join(f, " ")
}

// terms are the lower-case words of a text, names cut at case and underscores,
// with endings of plural and verb taken off.
func terms(s string) []string {
	if len(s) > 1<<14 {
		s = s[:1<<14]
	}
	var out []string
	var w []rune
	end := func() {
		if len(w) > 1 {
			out = append(out, stem(string(w)))
		}
		w = w[:0]
	}
	var last rune
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
		case unicode.IsUpper(r) && unicode.IsLower(last):
			end()
			w = append(w, unicode.ToLower(r))
		default:
			w = append(w, unicode.ToLower(r))
		}
		last = r
	}
	end()
	return out
}

func stem(w string) string {
	for _, e := range []string{"ing", "ies", "es", "ed", "s"} {
		if len(w) > len(e)+3 && strings.HasSuffix(w, e) {
			w = w[:len(w)-len(e)]
			if e == "ies" {
				w += "y"
			}
			break
		}
	}
	if len(w) > 4 {
		w = strings.TrimSuffix(w, "e")
	}
	return w
}

var stopwords = func() map[string]bool {
	m := make(map[string]bool)
	for _, w := range terms("a an the and or of to in on for with by at from is are was be it its this that these those i you we me my your our he she they them " +
		"please can could would should will do does did what which who how when where why not no yes all any some about into as if then than so there here " +
		"have has had get use using tool tools call need want like now also just first next after before parallel same time once let lets make") {
		m[w] = true
	}
	return m
}()

// content is the words of a request that say something, each once.
func content(s string) []string {
	seen := make(map[string]bool)
	var out []string
	for _, w := range terms(s) {
		if !seen[w] && !stopwords[w] {
			seen[w] = true
			out = append(out, w)
		}
	}
	return out
}

// mentionsName reports whether the request has the exact name of a tool, if the
// name is not a plain word.
func mentionsName(request, name string) bool {
	if !strings.ContainsAny(name, "_.-/") && strings.ToLower(name) == name {
		return false
	}
	h := hints{lower: strings.ToLower(request)}
	return h.mentions(name)
}
