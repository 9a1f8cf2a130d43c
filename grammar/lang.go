package grammar

import (
	"math/big"
	"regexp/syntax"
)

// A lang is a set of JSON values in one spelling each (but for white space and
// string escapes): what a model is held to. It is made from a schema by
// narrow, which keeps it inside what the schema accepts or says why not.
type lang struct {
	kind langKind
	lits []string // literals: JSON texts

	lo, hi         *big.Rat // numbers: bounds, nil if none
	loOpen, hiOpen bool     // the bound itself is outside
	places         int      // numbers: digits after the point at most

	min, max int      // strings: characters, arrays: items, maps: members; max -1 for no limit
	pattern  *pattern // strings

	prefix []*lang // arrays: the first items
	item   *lang   // arrays: the others; nil if none may follow

	fields []field // objects: members in the order they are written
	key    *lang   // objects without fields: a string; nil for any
	rest   *lang   // objects without fields: what members hold; nil for none

	alts []*lang // alternatives
	def  *def    // a named lang, possibly recursive
}

type langKind byte

const (
	none langKind = iota // no value at all
	anyValue
	literals
	boolean
	integer
	number
	text
	array
	object
	choice
	reference
)

type field struct {
	key      string
	lang     *lang
	required bool
}

type def struct {
	lang *lang // nil while it is being made
	used bool  // referred to: it becomes a rule
	// set by produce
	productive bool
	name       string // of the rule
}

// produce finds out which langs hold a finite value, and takes out what can't
// be written: a schema that requires itself has no value.
func produce(root *lang, defs []*def) *lang {
	for changed := true; changed; {
		changed = false
		for _, d := range defs {
			if !d.productive && finite(d.lang) {
				d.productive, changed = true, true
			}
		}
	}
	for _, d := range defs {
		d.lang = prune(d.lang)
	}
	return prune(root)
}

func finite(l *lang) bool {
	switch l.kind {
	case none:
		return false
	case reference:
		return l.def.productive
	case choice:
		for _, a := range l.alts {
			if finite(a) {
				return true
			}
		}
		return false
	case array:
		for _, p := range l.prefix {
			if !finite(p) {
				return false
			}
		}
		return l.min <= len(l.prefix) || l.item != nil && finite(l.item)
	case object:
		for _, f := range l.fields {
			if f.required && !finite(f.lang) {
				return false
			}
		}
		if l.min > 0 && len(l.fields) == 0 {
			return l.rest != nil && finite(l.rest)
		}
	}
	return true
}

func prune(l *lang) *lang {
	if !finite(l) {
		return &lang{kind: none}
	}
	switch l.kind {
	case choice:
		var alts []*lang
		for _, a := range l.alts {
			if a = prune(a); a.kind != none {
				alts = append(alts, a)
			}
		}
		if len(alts) == 1 {
			return alts[0]
		}
		l.alts = alts
	case array:
		for i, p := range l.prefix {
			l.prefix[i] = prune(p)
		}
		if l.item != nil {
			if l.item = prune(l.item); l.item.kind == none {
				l.item = nil
			}
		}
	case object:
		var fields []field
		for _, f := range l.fields {
			if f.lang = prune(f.lang); f.lang.kind != none {
				fields = append(fields, f)
			}
		}
		l.fields = fields
		if l.rest != nil {
			if l.rest = prune(l.rest); l.rest.kind == none {
				l.rest = nil
			}
		}
	}
	return l
}

// A pattern is a regular expression cut into branches, each free or fixed at
// its ends as its anchors say.
type pattern struct {
	branches []branch
	min, max int // characters; max -1 for no limit
}

type branch struct {
	seq        []*syntax.Regexp
	start, end bool // anchored
}
