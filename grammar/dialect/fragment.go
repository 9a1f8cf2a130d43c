package dialect

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
)

// A Fragment is a grammar for xgrammar from 0.2.7 on, as rules that can stand
// beside those of others. A rule is named after what it holds, so that rules
// with one name in several fragments are one rule: the engine does its work for
// it once.
type Fragment struct {
	Rules []NamedRule // the first is where a text starts
	// Known are the names here of the rules of the grammar that was written.
	Known map[string]string
}

// A NamedRule is a line, which ends in a line feed.
type NamedRule struct {
	Name, Line string
	Cost       Cost
}

// EBNF writes g. Rules that g speaks of and doesn't hold are those of other
// fragments.
//
// A string of at most N characters is a rule with max_chars=N: the engine
// counts at run time, and compiling takes 35 ms whatever N is, where its own
// json_schema takes 6 s for 4,096. It counts characters as they are spelled
// and may finish an escape that it has begun, so a string of it has at most N
// characters.
func EBNF(g *Grammar) *Fragment {
	x := xgrammar{newLowering(g)}
	low := lowered(g, x.lowering, x.expr)
	f := &Fragment{Known: map[string]string{}}
	name := contentNames(low)
	for _, r := range g.Rules {
		f.Known[name[r.Name]] = r.Name
	}
	called := func(n string) string {
		if at, ok := name[n]; ok {
			return at
		}
		return n
	}
	seen := map[string]bool{}
	for i := range low.Rules {
		r := &low.Rules[i]
		if n := name[r.Name]; !seen[n] {
			seen[n] = true
			var b strings.Builder
			bnfRule(&b, r, r.Name, called)
			f.Rules = append(f.Rules, NamedRule{n, b.String(), costOf(r)})
		}
	}
	return f
}

// Root is the name of the rule where a text starts.
func (f *Fragment) Root() string { return f.Rules[0].Name }

// String is the grammar as a whole.
func (f *Fragment) String() string {
	var b strings.Builder
	b.WriteString("root ::= " + f.Root() + "\n")
	for _, r := range f.Rules {
		b.WriteString(r.Line)
	}
	return b.String()
}

// contentNames gives each rule a name that depends on nothing but what the rule
// derives: the hash of its body, in which rules are spoken of by such names.
// Rules that are part of one another are hashed together.
func contentNames(g *Grammar) map[string]string {
	at := map[string]int{}
	for i, r := range g.Rules {
		at[r.Name] = i
	}
	name := map[string]string{}
	for _, ring := range rings(g, at) {
		inside := func(n string) string {
			i, ok := at[n]
			if !ok {
				return n
			}
			if k, ok := slices.BinarySearch(ring, i); ok {
				return fmt.Sprint("@", k)
			}
			return name[n]
		}
		var b strings.Builder
		for _, i := range ring {
			bnfRule(&b, &g.Rules[i], g.Rules[i].Name, inside)
		}
		for k, i := range ring {
			sum := sha256.Sum256([]byte(fmt.Sprint(k, "\n", b.String())))
			kind := strings.TrimRight(g.Rules[i].Name, "0123456789")
			if i == 0 {
				kind = "args"
			}
			name[g.Rules[i].Name] = kind + "-" + nameEncoding.EncodeToString(sum[:nameBytes])
		}
	}
	return name
}

// nameBytes of a hash are in a name: 48 bits keep the 10,000 rules of a large
// set apart. Who joins fragments sees to it that a name has one line.
const nameBytes = 6

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// rings are the sets of rules that refer to one another, as sorted indices; a
// set comes after those that it refers to. The algorithm is Tarjan's.
func rings(g *Grammar, at map[string]int) [][]int {
	var out [][]int
	var stack []int
	n := len(g.Rules)
	index, low, on := make([]int, n), make([]int, n), make([]bool, n)
	next := 0
	var visit func(int)
	visit = func(i int) {
		next++
		index[i], low[i], on[i] = next, next, true
		stack = append(stack, i)
		each := func(name string) {
			k, ok := at[name]
			switch {
			case !ok:
			case index[k] == 0:
				visit(k)
				low[i] = min(low[i], low[k])
			case on[k]:
				low[i] = min(low[i], index[k])
			}
		}
		refs(g.Rules[i].Body, each)
		if g.Rules[i].Follow != nil {
			refs(g.Rules[i].Follow, each)
		}
		if low[i] == index[i] {
			from := slices.Index(stack, i)
			ring := slices.Clone(stack[from:])
			stack = stack[:from]
			for _, k := range ring {
				on[k] = false
			}
			slices.Sort(ring)
			out = append(out, ring)
		}
	}
	for i := range g.Rules {
		if index[i] == 0 {
			visit(i)
		}
	}
	return out
}

func refs(e *Expr, each func(string)) {
	if e.Op == Ref {
		each(e.Text)
	}
	for _, s := range e.Subs {
		refs(s, each)
	}
}

// A Cost is what xgrammar has to do for rules.
type Cost struct {
	Broad   int // places where most characters may come
	Rules   int // with those that it makes of groups and repetitions
	States  int // places where a character may come, in alternatives that it merges too
	Counted int // rules with max_chars
	Free    int // bytes of the triggers that free text around the rules is read for
}

// Add is both together.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.Broad + d.Broad, c.Rules + d.Rules, c.States + d.States, c.Counted + d.Counted, c.Free + d.Free}
}

// MS is about the milliseconds of processor time that xgrammar 0.2.8 takes to
// compile a grammar of such rules, with the vocabulary of Qwen3, 151,669 tokens.
// The numbers are fitted to 306 tags: of 300, four in five took 0.9 to 1.1 times
// as long, and the slowest 3.7 times.
//
// Each state costs a little for every rule, because the engine sets a parser up
// for each state, which looks at all rules. In a grammar that counts characters
// it follows every token where most may come, and in free text it does so at
// each byte of a trigger.
func (c Cost) MS() float64 {
	broad, free := 18.0, 0.0
	if c.Free > 0 {
		free = 8
	}
	if c.Counted > 0 {
		broad, free = 35, 20*float64(c.Free)
	}
	return 0.5 + free + broad*float64(c.Broad) + 0.007*float64(c.Rules) + float64(c.States)*(0.0052+2.75e-6*float64(c.Rules))
}

func costOf(r *Rule) Cost {
	c := Cost{Rules: 1}
	if r.MaxChars > 0 {
		c.Counted = 1
	}
	var walk func(e *Expr, within bool)
	walk = func(e *Expr, within bool) {
		switch e.Op {
		case Class:
			if c.States++; broad(e.Set) {
				c.Broad++
			}
		case Lit:
			c.States += len(e.Text)
		case Alt:
			if within {
				c.Rules++
			}
		case Repeat:
			c.Rules += max(1, min(max(e.Min, e.Max), 128))
		}
		for _, s := range e.Subs {
			walk(s, within || e.Op != Alt)
		}
	}
	walk(r.Body, false)
	return c
}
