package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/grammar/dialect"
)

// A Proof is what is known of the arguments of a tool, read back from the text
// that was written for an engine.
type Proof struct {
	Tool string
	// Status is the claim: proved, bounded(k), checked or unconstrained.
	Status string
	// Verdict compares with what was meant, the automaton of the tool.
	dialect.Verdict
	// Accept compares with the schema itself, by the automaton of package
	// accept, which knows nothing of this one.
	Accept dialect.Inside
	// Reasons, of a checked tool, name what is checked after the reply.
	Reasons []string
}

// Budgets are how many pairs of states a proof may look at: about a second
// each. A pair with what was meant costs 5 µs and 500 bytes, one with the
// schema 50 to 400 µs, because its states are made on the way. One of arguments
// in tags costs 30 µs, as most of them only differ in what of a tag was read.
const (
	proofBudget  = 200_000
	acceptBudget = 4_000
	tagsBudget   = 30_000
)

// Prove is Prove of what is Written.
func (c *Checked) Prove(target Target) (Proof, error) {
	w, err := c.Written(target)
	if err != nil {
		return Proof{}, err
	}
	return w.Prove()
}

// proofs are what was found out about a tool, under all its names.
type proofs struct {
	mu sync.Mutex // guards made
	// by what it is about, made when first asked for
	made map[proofOf]proved
}

type proved struct {
	Proof
	err error
}

// proofOf is what a proof is about: a notation, and a family if its arguments
// stand in tags.
type proofOf struct {
	target Target
	tags   string
}

func (s *Syntax) proofOf(target Target) proofOf {
	if s.Parameters == nil {
		return proofOf{target: target}
	}
	return proofOf{target, s.Parameters.texts()}
}

// errProofFault stands for a proof that ended in a panic: it would do so again.
var errProofFault = errors.New("the proof met a fault of ours")

// Proved is Prove of what is written in a syntax, once: what was found, an
// error or a panic too, is kept with what was compiled.
func (c *Checked) Proved(s Syntax, target Target) (p Proof, err error) {
	if p, ok, err := c.Known(s, target); ok {
		return p, err
	}
	err = errProofFault
	defer func() {
		c.proofs.mu.Lock()
		defer c.proofs.mu.Unlock()
		if c.proofs.made == nil {
			c.proofs.made = map[proofOf]proved{}
		}
		c.proofs.made[s.proofOf(target)] = proved{p, err}
	}()
	p, err = c.proveIn(s, target)
	return p, err
}

func (c *Checked) proveIn(s Syntax, target Target) (Proof, error) {
	w, err := c.WrittenIn(s, target)
	if err != nil {
		return Proof{}, err
	}
	return w.Prove()
}

// Known is what Proved found, and whether it was asked yet.
func (c *Checked) Known(s Syntax, target Target) (p Proof, ok bool, err error) {
	c.proofs.mu.Lock()
	found, ok := c.proofs.made[s.proofOf(target)]
	c.proofs.mu.Unlock()
	found.Tool = c.name
	return found.Proof, ok, found.err
}

// Written is what Tag or Write writes of one tool, read back by the rules of
// the notation. It belongs to one goroutine.
type Written struct {
	c       *Checked
	target  Target
	tags    *Parameters // how arguments stand in tags; nil if they are a JSON object
	reasons []string    // why it isn't exact
	prefix  string
	rules   *dialect.Grammar
	written *dialect.Machine
	meant   *dialect.Machine // nil: not made
	derive  *dialect.Deriver // nil: not made
}

// Written reads back. The error is a *TargetError, as from Write, or if the
// text can't be read: a fault of ours.
func (c *Checked) Written(target Target) (*Written, error) {
	w := &Written{c: c, target: target, reasons: c.reasons(target)}
	text := c.content.String()
	if target != StructuralTag {
		part, err := c.parts.of(c, target)
		if err != nil {
			return nil, &TargetError{c.name, target, err}
		}
		text, w.prefix = part.text, part.prefix
	}
	var err error
	switch target {
	case StructuralTag:
		if w.rules, err = dialect.ReadEBNF(text); err == nil {
			w.rules.Rename(c.content.Known)
		}
	case GBNF:
		w.rules, err = dialect.ReadGBNF(text)
	case Lark:
		w.rules, err = dialect.ReadLark(text)
	case Regex:
		w.prefix = ""
		w.rules, err = dialect.ReadRegex(text)
	case JSONSchema, LegacyTag:
		return w, w.readSchema(text)
	default:
		err = errors.New("no such notation")
	}
	if err == nil {
		w.written, err = w.rules.Machine(w.prefix, "root")
	}
	if err != nil {
		return nil, &TargetError{c.name, target, err}
	}
	return w, nil
}

// WrittenIn is Written in a syntax.
func (c *Checked) WrittenIn(s Syntax, target Target) (*Written, error) {
	if s.Parameters == nil {
		return c.Written(target)
	}
	w := &Written{c: c, target: target, tags: s.Parameters}
	var err error
	if target == StructuralTag {
		var p parameters
		if p, err = c.parameters(s.Parameters); err == nil {
			w.reasons = p.reasons
			w.rules, err = dialect.ReadEBNF(p.String())
		}
	} else if err = s.writes(target); err == nil {
		var g *dialect.Grammar
		if g, w.reasons, err = s.Parameters.content(c, false); err == nil {
			w.rules, err = dialect.ReadGBNF(dialect.GBNF(g, ""))
		}
	}
	if err == nil {
		w.written, err = w.rules.Machine("", "root")
	}
	if err != nil {
		return nil, &TargetError{c.name, target, err}
	}
	w.reasons = append(slices.Clip(c.content.reasons), w.reasons...)
	return w, nil
}

// readSchema reads a schema as Compile reads one.
func (w *Written) readSchema(text string) error {
	c, err := Judge(Tool{w.c.name, []byte(text)}, Open)
	if err == nil {
		var l *lang
		var defs []*def
		if l, defs, err = c.lang(); err == nil {
			if w.rules, err = draft(l, defs); err == nil {
				w.written, err = machineOf(l, defs)
			}
		}
	}
	if err != nil {
		return &TargetError{w.c.name, w.target, err}
	}
	w.prefix = ""
	return nil
}

// Exact tells whether what was meant lies inside the schema.
func (w *Written) Exact() bool { return len(w.reasons) == 0 }

// Accepts tells whether a text can be written as arguments.
func (w *Written) Accepts(text string) bool { return w.written.Accepts(text) }

// Derive is random arguments that can be written; after about so many
// characters they come to an end. It is false if there are none.
func (w *Written) Derive(rng *rand.Rand, chars int) (string, bool) {
	if w.derive == nil {
		w.derive = w.rules.Deriver(w.prefix, "root")
	}
	return w.derive.Text(rng, chars)
}

// Meant tells whether the automaton of the tool takes a text.
func (w *Written) Meant(text string) (bool, error) {
	if err := w.makeMeant(); err != nil {
		return false, err
	}
	return w.meant.Accepts(text), nil
}

func (w *Written) makeMeant() (err error) {
	if w.meant == nil {
		if w.meant, err = w.c.machine(); err != nil {
			err = &TargetError{w.c.name, w.target, err}
		}
	}
	return err
}

// Prove compares what was written with the automaton of the tool and with that
// of the schema, neither of which is made with any of it. Arguments in tags are
// compared with the schema alone, by what the family's parser reads in them.
//
//	proved         every finished call fits: what was written lies inside what
//	               was meant or inside the schema, and of neither comparison
//	               anything else is known
//	bounded(k)     the same for texts of k bytes; more was not looked at
//	checked        what was meant is wider than the schema, for the Reasons
//	unconstrained  a text was found that was written, and not meant or, without
//	               Reasons, not right
func (w *Written) Prove() (Proof, error) {
	p := Proof{Tool: w.c.name, Reasons: w.reasons}
	if w.tags == nil {
		if err := w.makeMeant(); err != nil {
			return Proof{}, err
		}
		p.Verdict = dialect.Compare(w.written, w.meant, proofBudget)
	} else {
		p.Verdict = dialect.Verdict{Inside: true, Bounded: 1} // nothing is known
	}
	p.Accept = w.inside()
	switch {
	case !p.Inside, len(p.Reasons) == 0 && p.Accept.Wrong != nil:
		p.Status = "unconstrained"
	case len(p.Reasons) > 0:
		p.Status = "checked"
	case p.Bounded > 0 && !p.Accept.Proved:
		p.Status = fmt.Sprintf("bounded(%d)", max(p.Bounded, p.Accept.Bounded))
	default:
		p.Status = "proved"
	}
	return p, nil
}

// inside compares with the schema.
func (w *Written) inside() dialect.Inside {
	a, err := accept.Compile(context.Background(), w.c.judge.schema, accept.Options{Limits: accept.Limits{Depth: 1 << 16}})
	if err != nil {
		return dialect.Inside{Err: err}
	}
	if w.tags == nil {
		return w.written.Inside(schemaJudge{a}, acceptBudget)
	}
	r, err := newReading(w.tags, w.c, a)
	if err != nil {
		return dialect.Inside{Err: err}
	}
	return w.written.Inside(r, tagsBudget)
}

// A schemaJudge is the automaton of a schema.
type schemaJudge struct{ a *accept.Automaton }

func (j schemaJudge) Start() uint32 { return uint32(j.a.Start()) }
func (j schemaJudge) Step(s uint32, b byte) (uint32, error) {
	next, err := j.a.Step(accept.State(s), b)
	return uint32(next), err
}
func (j schemaJudge) Accepting(s uint32) bool { return j.a.Accepting(accept.State(s)) }

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
	m := dialect.NewMachine(p.start, map[string]int32{
		dialect.RawPiece: w.pieces[0], dialect.ShortPiece: w.pieces[1], dialect.UnicodePiece: w.pieces[2],
	})
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
