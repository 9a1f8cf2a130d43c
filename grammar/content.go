package grammar

import (
	"fmt"
	"slices"

	"github.com/toolsidecar/sidecar/grammar/dialect"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// content is what the engine holds the arguments of one tool to.
type content struct {
	fragment
	reasons []string // why the grammar isn't inside the schema; none if it is
	manner  manner
	barren  error  // no object fits; then fragment lets any through
	lang    *lang  // what fragment writes, unless that is too large
	defs    []*def // those that lang refers to
}

// maxCompileMS is how long an engine may take for one tool, by what is
// predicted of xgrammar; the slowest of 1,537 schemas of the wild takes 650 ms.
// What takes longer is written wider. maxSpreadMS is the same where keywords are
// spread: a choice is not worth more than its check.
const (
	maxCompileMS = 2000
	maxSpreadMS  = 500
)

// A manner is how a schema is narrowed. What the engine would take too long for
// is done without.
type manner struct {
	coarse bool // no keyword is spread
	plain  bool // no pattern is written
}

// contentOf narrows a schema to a grammar.
func contentOf(root *jsontext.Value, plainRefs bool) content {
	var c content
	var g *dialect.Grammar
	for as, last := (manner{}), false; !last; {
		c.manner = as
		var used manner
		c.lang, c.defs, c.reasons, used, c.barren = langOf(root, plainRefs, as)
		var err error
		if g, err = draft(c.lang, c.defs); err == nil {
			c.fragment = fragmentOf(g)
			ms := c.cost().MS()
			if ms <= maxSpreadMS || !used.coarse && ms <= maxCompileMS {
				break
			}
			err = fmt.Errorf("the engine would take %.1f s to compile it", ms/1000)
		}
		switch {
		case used.coarse && !as.coarse:
			as = manner{coarse: true}
		case used.plain && !as.plain:
			as = manner{coarse: true, plain: true}
		default: // not even without patterns
			last = true
			c.reasons = append(c.reasons, "#: "+err.Error())
			slices.Sort(c.reasons)
			g, _ = draft(anyObject(), nil)
			c.fragment = fragmentOf(g)
		}
	}
	return c
}

// langOf narrows a schema to JSON objects. If none fits barren says so, a
// *barrenError, and l is the other values that fit, or all objects. used is the
// manner that would have left something out.
func langOf(root *jsontext.Value, plainRefs bool, as manner) (l *lang, defs []*def, reasons []string, used manner, barren error) {
	n := &narrower{root: root, draft: draftOf(root), plainRefs: plainRefs, defs: map[*jsontext.Value]*def{}, seen: map[string]bool{}, budget: maxNarrowed, manner: as}
	all := n.schema(root, "#")
	for _, f := range n.later {
		f()
	}
	l = produce(objectsOnly(all, map[*def]bool{}), n.order)
	switch {
	case l.kind != none:
	case n.budget < 0:
		l = anyObject()
	default:
		e := &barrenError{loc: n.barren}
		if l = prune(all); l.kind == none {
			l, n.reasons = anyObject(), []string{"#: " + e.Error()}
		} else {
			e.others = true
		}
		e.keyword = e.blame(root)
		barren = e
	}
	for _, d := range n.order {
		if d.productive && d.lang.kind != none {
			d.name = "d" + itoa(len(defs))
			defs = append(defs, d)
		}
	}
	slices.Sort(n.reasons)
	return l, defs, n.reasons, manner{coarse: n.spreads, plain: n.patterned}, barren
}

func anyObject() *lang { return &lang{kind: object, max: -1, rest: &lang{kind: anyValue}} }

// A barrenError says that a schema lets no object through that a model could
// write.
type barrenError struct {
	loc    string // where nothing fits; "" if values don't end
	others bool   // but other values fit
	// keyword is the one by which the schema lets no object through; "" where
	// that can't be told.
	keyword string
}

// blame finds the keyword.
func (e *barrenError) blame(root *jsontext.Value) string {
	switch {
	case e.others:
		for _, key := range []string{"type", "enum", "const", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"} {
			if root.Has(key) {
				return key
			}
		}
	case e.loc == "":
		return "$ref"
	case e.loc != "#":
		return "required"
	}
	return ""
}

func (e *barrenError) Error() string {
	switch {
	case e.others:
		return "no object fits, and arguments are one"
	case e.loc == "":
		return "no object fits that could be written: a value would never end"
	}
	return "no object fits that could be written: nothing fits " + e.loc
}

// objectsOnly leaves out the values that aren't objects: arguments are one.
func objectsOnly(l *lang, seen map[*def]bool) *lang {
	switch l.kind {
	case object:
		return l
	case anyValue:
		return anyObject()
	case literals:
		out := &lang{kind: literals}
		for _, s := range l.lits {
			if s[0] == '{' {
				out.lits = append(out.lits, s)
			}
		}
		if len(out.lits) == 0 {
			return &lang{kind: none}
		}
		return out
	case choice:
		out := &lang{kind: choice}
		for _, a := range l.alts {
			if a = objectsOnly(a, seen); a.kind != none {
				out.alts = append(out.alts, a)
			}
		}
		if len(out.alts) == 0 {
			return &lang{kind: none}
		}
		return out
	case reference:
		if seen[l.def] || l.def.lang == nil {
			return &lang{kind: none}
		}
		seen[l.def] = true
		return objectsOnly(l.def.lang, seen)
	}
	return &lang{kind: none}
}
