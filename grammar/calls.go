package grammar

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// A fragment is the arguments of one tool in the notation of xgrammar, with
// each line as it stands in JSON.
type fragment struct {
	*dialect.Fragment
	quoted []string // without the quotes
}

func fragmentOf(g *dialect.Grammar) fragment {
	f := fragment{Fragment: dialect.EBNF(g)}
	for _, r := range f.Rules {
		f.quoted = append(f.quoted, inJSON(r.Line))
	}
	return f
}

// bytes is about what it holds.
func (f *fragment) bytes() int {
	n := 0
	for i, r := range f.Rules {
		n += 2*len(r.Name) + len(r.Line) + len(f.quoted[i]) + 100
	}
	return n
}

func inJSON(s string) string {
	q := jsontext.AppendString(nil, s)
	return string(q[1 : len(q)-1])
}

func (f *fragment) cost() dialect.Cost {
	var c dialect.Cost
	for _, r := range f.Rules {
		c = c.Add(r.Cost)
	}
	return c
}

// A grammarNode is the content of a tag: the rules of several tools, each once.
// xgrammar works on each rule of each grammar anew, and some rules cost it 30 ms.
type grammarNode struct {
	lines map[string]string // by name
	text  []byte            // as it stands in JSON
	cost  dialect.Cost
}

// add takes the rules of f in. It is false, and nothing is taken, if a name
// stands for two rules: whoever writes the schemas may look for such.
func (g *grammarNode) add(f *fragment) bool {
	for _, r := range f.Rules {
		if line, ok := g.lines[r.Name]; ok && line != r.Line {
			return false
		}
	}
	if g.lines == nil {
		g.lines = map[string]string{}
	}
	for i, r := range f.Rules {
		if _, ok := g.lines[r.Name]; !ok {
			g.lines[r.Name] = r.Line
			g.text = append(g.text, f.quoted[i]...)
			g.cost = g.cost.Add(r.Cost)
		}
	}
	return true
}

// node is the format that begins with root.
func (g *grammarNode) node(root *dialect.Expr) []byte {
	f := fragmentOf(&dialect.Grammar{Rules: []dialect.Rule{{Name: "root", Body: root}}})
	out := append([]byte(`{"type":"grammar","grammar":"root`), strings.TrimPrefix(f.quoted[0], f.Root())...)
	for _, line := range f.quoted[1:] {
		out = append(out, line...)
	}
	g.cost = g.cost.Add(f.cost())
	return append(append(out, g.text...), `"}`...)
}

// A callsTag is the tag of all calls that begin alike: one grammar holds what
// follows.
type callsTag struct {
	begins []string
	args   []*fragment
	grammarNode
}

// tags are the tags of all calls, with commas between them: one for each
// trigger.
func (e *Emission) tags(s Syntax, tools []*Checked, eng Engine) ([]byte, error) {
	var tags []*callsTag
	for _, t := range tools {
		if s.CheckName != nil {
			if err := s.CheckName(t.name); err != nil {
				return nil, err
			}
		}
		te, args := t.emission(eng), &t.content.fragment
		if s.Parameters != nil {
			p, err := t.parameters(s.Parameters)
			if err != nil {
				return nil, err
			}
			args = &p.fragment
			te.Reasons = append(te.Reasons[:len(te.Reasons):len(te.Reasons)], p.reasons...)
			te.Exact = len(te.Reasons) == 0
		}
		e.Tools = append(e.Tools, te)
		for _, begin := range s.begins(t.name) {
			tags = s.put(tags, begin, args)
		}
	}
	var out []byte
	for _, c := range tags {
		if len(out) > 0 {
			out = append(out, ',')
		}
		common := s.before(c.begins)
		var calls []*dialect.Expr
		for i, begin := range c.begins {
			call := dialect.Use(c.args[i].Root())
			if s.ID != "" {
				call = dialect.Then(s.id(), dialect.Text(s.AfterID), call)
			}
			if rest := begin[len(common):]; rest != "" {
				call = dialect.Then(dialect.Text(rest), call)
			}
			calls = append(calls, call)
		}
		out = append(out, tag(common, c.node(dialect.Or(calls...)), s.End)...)
		e.cost = e.cost.Add(c.cost)
	}
	return out, nil
}

// id is the ids of calls.
func (s *Syntax) id() *dialect.Expr {
	re, err := syntax.Parse(s.ID, syntax.Perl)
	if err != nil {
		panic("grammar: the id of a family: " + err.Error())
	}
	return (&drafter{}).regexp(re)
}

// begins are all spellings of what stands before the arguments.
func (s *Syntax) begins(name string) []string {
	if s.Begins != nil {
		return s.Begins(name)
	}
	return []string{s.Begin(name)}
}

// triggerOf is the trigger that a call begins with; "" within a section.
func (s *Syntax) triggerOf(begin string) string {
	for _, t := range s.triggers() {
		if strings.HasPrefix(begin, t) {
			return t
		}
	}
	return ""
}

// before is what calls have in common before the name; all, if it is one call.
func (s *Syntax) before(begins []string) string {
	p := begins[0]
	if len(begins) == 1 {
		return p
	}
	others := slices.Concat(begins, s.begins("a"), s.begins("b")) // of any name
	for _, t := range others {
		for s.triggerOf(t) == s.triggerOf(begins[0]) && !strings.HasPrefix(t, p) {
			_, n := utf8.DecodeLastRuneInString(p)
			p = p[:len(p)-n]
		}
	}
	return p
}

// put adds a call to the tag of its trigger, or to a new one where that tag
// knows the name of one of its rules otherwise.
func (s *Syntax) put(tags []*callsTag, begin string, args *fragment) []*callsTag {
	for _, c := range tags {
		if s.triggerOf(c.begins[0]) == s.triggerOf(begin) && c.add(args) {
			c.begins, c.args = append(c.begins, begin), append(c.args, args)
			return tags
		}
	}
	c := &callsTag{begins: []string{begin}, args: []*fragment{args}}
	c.add(args)
	return append(tags, c)
}

// parameters are the arguments of a tool as parameters in tags.
type parameters struct {
	fragment
	reasons []string
}

// texts tells families apart.
func (p *Parameters) texts() string {
	return strings.Join(append([]string{p.Open, p.Is, p.Close}, p.Bars...), "\x00")
}

// parameters writes them once for each family; the texts of two are never the
// same.
func (c *Checked) parameters(p *Parameters) (parameters, error) {
	key := p.texts()
	c.parts.mu.Lock()
	defer c.parts.mu.Unlock()
	if out, ok := c.parts.inTags[key]; ok {
		return out, nil
	}
	g, reasons, err := p.content(c, true)
	if err != nil {
		return parameters{}, err
	}
	if c.parts.inTags == nil {
		c.parts.inTags = map[string]parameters{}
	}
	out := parameters{fragmentOf(g), reasons}
	c.parts.inTags[key] = out
	return out, nil
}
