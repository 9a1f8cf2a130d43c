package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// A reader of the EBNF we write, and a random deriver: the language of a
// grammar without the engine.
type ebnfNode struct {
	op   byte // 'l' literal, 'c' class, 'r' rule, 's' sequence, '|' choice, '*' repeat
	text string
	set  []rune // pairs
	subs []*ebnfNode
	min  int
	max  int
}

type ebnfRule struct {
	body     *ebnfNode
	maxChars int // -1: none
	cost     int // fewest characters; -1 unknown
}

type ebnfReader struct {
	t     fataler
	s     string
	i     int
	rules map[string]*ebnfRule
}

func readEBNF(t fataler, g string) map[string]*ebnfRule {
	r := &ebnfReader{t: t, rules: map[string]*ebnfRule{}}
	for _, line := range strings.Split(strings.TrimSpace(g), "\n") {
		head, body, ok := strings.Cut(line, " ::= ")
		if !ok {
			t.Fatalf("no rule: %q", line)
		}
		rule := &ebnfRule{maxChars: -1}
		if name, opt, ok := strings.Cut(head, "[max_chars="); ok {
			head = name
			rule.maxChars, _ = strconv.Atoi(strings.TrimSuffix(opt, "]"))
		}
		if r.rules[head] != nil {
			t.Fatalf("rule %s stands twice", head)
		}
		r.s, r.i = body, 0
		rule.body = r.choice()
		if r.i < len(r.s) {
			t.Fatalf("rule %s: rest %q", head, r.s[r.i:])
		}
		r.rules[head] = rule
	}
	return r.rules
}

func (r *ebnfReader) space() {
	for r.i < len(r.s) && r.s[r.i] == ' ' {
		r.i++
	}
}

func (r *ebnfReader) choice() *ebnfNode {
	n := &ebnfNode{op: '|', subs: []*ebnfNode{r.sequence()}}
	for r.i < len(r.s) && r.s[r.i] == '|' {
		r.i++
		n.subs = append(n.subs, r.sequence())
	}
	return n
}

func (r *ebnfReader) sequence() *ebnfNode {
	n := &ebnfNode{op: 's'}
	for {
		r.space()
		if r.i >= len(r.s) || r.s[r.i] == '|' || r.s[r.i] == ')' {
			return n
		}
		if strings.HasPrefix(r.s[r.i:], "(= ") { // lookahead: no part of the text
			for depth, quoted := 0, false; ; r.i++ {
				switch c := r.s[r.i]; {
				case c == '\\':
					r.i++
				case c == '"':
					quoted = !quoted
				case !quoted && c == '(':
					depth++
				case !quoted && c == ')':
					depth--
				}
				if depth == 0 {
					r.i++
					break
				}
			}
			continue
		}
		n.subs = append(n.subs, r.repeat(r.element()))
	}
}

func (r *ebnfReader) repeat(e *ebnfNode) *ebnfNode {
	if r.i >= len(r.s) {
		return e
	}
	n := &ebnfNode{op: '*', subs: []*ebnfNode{e}, max: -1}
	switch r.s[r.i] {
	case '*':
	case '+':
		n.min = 1
	case '?':
		n.max = 1
	case '{':
		end := strings.IndexByte(r.s[r.i:], '}') + r.i
		lo, hi, both := strings.Cut(r.s[r.i+1:end], ",")
		n.min, _ = strconv.Atoi(lo)
		n.max = n.min
		if both {
			n.max = -1
			if hi != "" {
				n.max, _ = strconv.Atoi(hi)
			}
		}
		r.i = end
	default:
		return e
	}
	r.i++
	return n
}

func (r *ebnfReader) char() rune {
	c, n := utf8.DecodeRuneInString(r.s[r.i:])
	r.i += n
	if c != '\\' {
		return c
	}
	e := r.s[r.i]
	r.i++
	digits := map[byte]int{'u': 4, 'U': 8}[e]
	if digits > 0 {
		v, err := strconv.ParseInt(r.s[r.i:r.i+digits], 16, 32)
		if err != nil {
			r.t.Fatal(err)
		}
		r.i += digits
		return rune(v)
	}
	switch e {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case '"', '\\', '[', ']', '+', '-':
		return rune(e)
	}
	r.t.Fatalf("escape %q", e)
	return 0
}

func (r *ebnfReader) element() *ebnfNode {
	switch c := r.s[r.i]; {
	case c == '"':
		r.i++
		var b strings.Builder
		for r.s[r.i] != '"' {
			b.WriteRune(r.char())
		}
		r.i++
		return &ebnfNode{op: 'l', text: b.String()}
	case c == '[':
		r.i++
		n := &ebnfNode{op: 'c'}
		for r.s[r.i] != ']' {
			lo := r.char()
			hi := lo
			if r.s[r.i] == '-' && r.s[r.i+1] != ']' {
				r.i++
				hi = r.char()
			}
			n.set = append(n.set, lo, hi)
		}
		r.i++
		return n
	case c == '(':
		r.i++
		n := r.choice()
		if r.i >= len(r.s) || r.s[r.i] != ')' {
			r.t.Fatalf("no ) in %q", r.s)
		}
		r.i++
		return n
	}
	from := r.i
	for r.i < len(r.s) && (r.s[r.i] >= 'a' && r.s[r.i] <= 'z' || r.s[r.i] >= '0' && r.s[r.i] <= '9' || r.s[r.i] == '-') {
		r.i++
	}
	if r.i == from {
		r.t.Fatalf("what is %q in %q", r.s[from:], r.s)
	}
	return &ebnfNode{op: 'r', text: r.s[from:r.i]}
}

const noCost = 1 << 20

// costs finds the fewest characters of every rule, so that a derivation can end.
func costs(rules map[string]*ebnfRule) {
	for _, r := range rules {
		r.cost = noCost
	}
	for changed := true; changed; {
		changed = false
		for _, r := range rules {
			if c := cost(rules, r.body); c < r.cost {
				r.cost, changed = c, true
			}
		}
	}
}

func cost(rules map[string]*ebnfRule, n *ebnfNode) int {
	switch n.op {
	case 'l':
		return utf8.RuneCountInString(n.text)
	case 'c':
		return 1
	case 'r':
		if rules[n.text] == nil {
			panic("no rule " + n.text)
		}
		return rules[n.text].cost
	case 's':
		sum := 0
		for _, s := range n.subs {
			sum = min(noCost, sum+cost(rules, s))
		}
		return sum
	case '|':
		best := noCost
		for _, s := range n.subs {
			best = min(best, cost(rules, s))
		}
		return best
	}
	return min(noCost, n.min*cost(rules, n.subs[0]))
}

type deriver struct {
	rules map[string]*ebnfRule
	rng   *rand.Rand
	out   strings.Builder
	left  int   // characters before the derivation hurries to its end
	caps  []int // budgets of the max_chars rules it is in
	depth int
}

func (d *deriver) write(s string) {
	d.out.WriteString(s)
	n := utf8.RuneCountInString(s)
	d.left -= n
	for i := range d.caps {
		d.caps[i] -= n
	}
}

func (d *deriver) hurry() bool {
	if d.left <= 0 || d.depth > 200 {
		return true
	}
	for _, c := range d.caps {
		if c <= 0 {
			return true
		}
	}
	return false
}

func (d *deriver) run(n *ebnfNode) {
	d.depth++
	defer func() { d.depth-- }()
	switch n.op {
	case 'l':
		d.write(n.text)
	case 'c':
		k := d.rng.IntN(len(n.set)/2) * 2
		lo, hi := n.set[k], n.set[k+1]
		if d.rng.IntN(4) > 0 && hi > lo+127 {
			hi = lo + 127
		}
		d.write(string(lo + rune(d.rng.IntN(int(hi-lo)+1))))
	case 'r':
		r := d.rules[n.text]
		if r.maxChars >= 0 {
			d.caps = append(d.caps, r.maxChars)
			defer func() { d.caps = d.caps[:len(d.caps)-1] }()
		}
		d.run(r.body)
	case 's':
		for _, s := range n.subs {
			d.run(s)
		}
	case '|':
		subs := n.subs
		if d.hurry() {
			best := noCost
			for _, s := range subs {
				best = min(best, cost(d.rules, s))
			}
			subs = slices.DeleteFunc(slices.Clone(subs), func(s *ebnfNode) bool { return cost(d.rules, s) > best })
		}
		d.run(subs[d.rng.IntN(len(subs))])
	case '*':
		for i := 0; n.max < 0 || i < n.max; i++ {
			if i >= n.min && (d.hurry() || d.rng.IntN(3) == 0) {
				break
			}
			d.run(n.subs[0])
		}
	}
}

func derive(rules map[string]*ebnfRule, rng *rand.Rand, chars int) string {
	d := &deriver{rules: rules, rng: rng, left: chars}
	d.run(rules["root"].body)
	return d.out.String()
}

// checkDerivations: what the grammar of an exact tool derives fits; all else is JSON.
func checkDerivations(t fataler, c *Checked, n int) {
	t.Helper()
	rules := readEBNF(t, c.content.String())
	costs(rules)
	if rules["root"].cost >= noCost {
		t.Errorf("%s: the grammar derives nothing\n%s", c.name, c.content.String())
		return
	}
	for i := range n {
		text := derive(rules, rand.New(rand.NewPCG(uint64(i), 7)), 1+i*40)
		err := c.Check([]byte(text))
		if err == nil {
			continue
		}
		var s Stream
		if _, serr := s.Feed([]byte(text)); serr != nil || !s.Done() {
			t.Errorf("%s: no JSON: %v: %s", c.name, serr, text)
			return
		}
		if len(c.content.reasons) == 0 {
			t.Errorf("%s: exact, but %v: %s", c.name, err, clipText(text, 600))
			return
		}
	}
}

func TestDeriveSample(t *testing.T) {
	files := dataFiles(t, allSamples)
	exact, refused := 0, 0
	per := map[string][2]int{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Schema json.RawMessage }
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		set := filepath.Base(filepath.Dir(f))
		n := per[set]
		n[1]++
		c, err := Compile(Tool{filepath.Base(f), file.Schema}, Closed)
		if err != nil {
			refused++
			t.Logf("%s: %v", filepath.Base(f), err)
		} else {
			if len(c.content.reasons) == 0 {
				exact++
				n[0]++
			}
			checkDerivations(t, c, 12)
		}
		per[set] = n
	}
	t.Logf("%d schemas, %d refused, %d exact", len(files), refused, exact)
	var sets []string
	for s, n := range per {
		sets = append(sets, fmt.Sprintf("%s %d/%d", s, n[0], n[1]))
	}
	slices.Sort(sets)
	t.Log(strings.Join(sets, ", "))
}
