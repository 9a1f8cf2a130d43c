package grammar

import (
	"slices"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// content is what the engine holds the arguments of one tool to.
type content struct {
	ebnf    string
	quoted  string   // ebnf as a JSON string
	reasons []string // why the grammar isn't inside the schema; none if it is
	lang    *lang    // what ebnf writes, unless that is too large
	defs    []*def   // those that lang refers to
}

// contentOf narrows a schema to a grammar of JSON objects.
func contentOf(root *jsontext.Value, plainRefs bool) content {
	n := &narrower{root: root, draft: draftOf(root), plainRefs: plainRefs, defs: map[*jsontext.Value]*def{}, seen: map[string]bool{}, budget: maxNarrowed}
	l := n.schema(root, "#")
	for _, f := range n.later {
		f()
	}
	l = objectsOnly(l, map[*def]bool{})
	l = produce(l, n.order)
	if l.kind == none {
		n.because("#", "no object fits that could be written")
		l = &lang{kind: object, max: -1, rest: &lang{kind: anyValue}}
	}
	var defs []*def
	for _, d := range n.order {
		if d.productive && d.lang.kind != none {
			defs = append(defs, d)
		}
	}
	g, err := write(l, defs)
	if err != nil {
		n.because("#", "%v", err)
		g, _ = write(&lang{kind: object, max: -1, rest: &lang{kind: anyValue}}, nil)
	}
	slices.Sort(n.reasons)
	return content{g, string(jsontext.AppendString(nil, g)), n.reasons, l, defs}
}

// objectsOnly leaves out the values that aren't objects: arguments are one.
func objectsOnly(l *lang, seen map[*def]bool) *lang {
	switch l.kind {
	case object:
		return l
	case anyValue:
		return &lang{kind: object, max: -1, rest: &lang{kind: anyValue}}
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
