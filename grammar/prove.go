package grammar

import (
	"errors"
	"fmt"
	"slices"

	"github.com/toolsidecar/sidecar/grammar/dialect"
)

// A Proof is how a tool's arguments, read back from the text that was written
// for an engine, compare with what was meant.
type Proof struct {
	Tool string
	// Status is the claim: proved, bounded(k), checked or unconstrained.
	Status string
	dialect.Verdict
	// Reasons, of a checked tool, name what is checked after the reply.
	Reasons []string
}

// proofBudget is how many pairs of states a proof may look at: a second, and
// 100 MB.
const proofBudget = 200_000

// Prove reads what Tag or Write writes of a tool back by the rules of that
// notation, and compares it with the automaton of the tool, which is made
// without any of it.
//
//	proved         every finished call fits: what was written lies inside what
//	               was meant, and that inside the schema
//	bounded(k)     the same for texts of k bytes; more was not looked at
//	checked        what was meant is wider than the schema, for the Reasons
//	unconstrained  a text was found that was written and not meant, or nothing
//	               of the schema is kept
func (c *Checked) Prove(target Target) (Proof, error) {
	p := Proof{Tool: c.name, Reasons: c.content.reasons}
	text, prefix := c.content.ebnf, ""
	if target != StructuralTag {
		part, err := c.parts.of(c, target)
		if err != nil {
			return Proof{}, &TargetError{c.name, target, err}
		}
		text, prefix = part.text, part.prefix
	}
	var g *dialect.Grammar
	var err error
	switch target {
	case StructuralTag:
		g, err = dialect.ReadEBNF(text)
	case GBNF:
		g, err = dialect.ReadGBNF(text)
	case Lark:
		g, err = dialect.ReadLark(text)
	case Regex:
		prefix = ""
		g, err = dialect.ReadRegex(text)
	default:
		err = errors.New("no such notation")
	}
	if err != nil {
		return Proof{}, &TargetError{c.name, target, err}
	}
	written, err := g.Machine(prefix, "root")
	if err != nil {
		return Proof{}, &TargetError{c.name, target, err}
	}
	meant, err := c.machine()
	if err != nil {
		return Proof{}, &TargetError{c.name, target, err}
	}
	p.Verdict = dialect.Compare(written, meant, proofBudget)
	switch {
	case !p.Inside:
		p.Status = "unconstrained"
	case len(p.Reasons) > 0:
		p.Status = "checked"
	case p.Bounded > 0:
		p.Status = fmt.Sprintf("bounded(%d)", p.Bounded)
	default:
		p.Status = "proved"
	}
	return p, nil
}

// machine is the automaton of a tool with its definitions as rules.
func (c *Checked) machine() (*dialect.Machine, error) {
	l, defs, err := c.lang()
	if err != nil {
		return nil, err
	}
	return machineOf(l, defs)
}

func machineOf(l *lang, defs []*def) (*dialect.Machine, error) {
	p := &program{depth: tooDeep - 1}
	w := &assembler{p: p, entry: map[*def]int32{}, named: map[*lang]*def{}}
	w.node(node{op: opReturn})
	w.pieces = w.piecesOfStrings()
	if err := w.assemble(l, defs); err != nil {
		return nil, err
	}
	m := &dialect.Machine{Start: p.start, Rules: map[string]int32{
		dialect.RawPiece: w.pieces[0], dialect.ShortPiece: w.pieces[1], dialect.UnicodePiece: w.pieces[2],
	}}
	for d, at := range w.entry {
		m.Rules[d.name] = at
	}
	if w.any > 0 {
		m.Rules["any"] = w.any
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		var out dialect.Node
		switch n.op {
		case opByte:
			out = dialect.Node{Op: dialect.Read, Ranges: []dialect.Range{{Lo: n.lo, Hi: n.hi, To: n.a}}}
		case opSet:
			out.Op = dialect.Read
			for _, r := range p.ranges[n.a : n.a+n.b] {
				out.Ranges = append(out.Ranges, dialect.Range{Lo: r.lo, Hi: r.hi, To: r.to})
			}
		case opFork:
			out = dialect.Node{Op: dialect.Fork, To: p.targets[n.a : n.a+n.b]}
		case opEnter:
			if out = (dialect.Node{Op: dialect.Enter, Arg: n.a}); n.b > 0 {
				out.To = []int32{n.b}
			}
		case opNext:
			out = dialect.Node{Op: dialect.Next, Arg: n.a}
		case opCall:
			out = dialect.Node{Op: dialect.Call, Arg: n.a, To: []int32{n.b}}
		default:
			out.Op = dialect.Return
		}
		m.Nodes = append(m.Nodes, out)
	}
	for _, l := range p.loops {
		m.Loops = append(m.Loops, dialect.Loop{Min: l.min, Max: l.max, Body: l.body, Exit: l.exit})
	}
	return m, nil
}

// piecesOfStrings writes one raw character and the two kinds of escapes.
func (w *assembler) piecesOfStrings() *[3]int32 {
	entry := func(n int32) int32 {
		at := w.node(node{op: opFork})
		w.link(at, n)
		return at
	}
	raw := entry(w.char(anyChar, false, 0))
	esc := w.p.nodes[w.escape(0)] // a set, of which u is the last
	all := w.p.ranges[esc.a : esc.a+esc.b]
	short := entry(w.byte('\\', w.set(all[:len(all)-1])))
	unicode := entry(w.byte('\\', w.set(all[len(all)-1:])))
	return &[3]int32{raw, short, unicode}
}

// inPieces is char as calls.
func (w *assembler) inPieces(s charSet, anyEscape bool, next int32) int32 {
	call := func(i int) int32 { return w.node(node{op: opCall, open: w.open, a: w.pieces[i], b: next}) }
	alts := []int32{call(0)}
	switch {
	case anyEscape:
		alts = append(alts, call(1), call(2))
	case s.escaped != "":
		var es []byteRange
		for _, c := range []byte(s.escaped) {
			es = append(es, byteRange{c, c, next})
		}
		slices.SortFunc(es, func(a, b byteRange) int { return int(a.lo) - int(b.lo) })
		alts = append(alts, w.byte('\\', w.set(es)))
	}
	return w.fork(alts...)
}
