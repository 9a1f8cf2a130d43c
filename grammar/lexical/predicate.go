package lexical

import (
	"fmt"
	"slices"
	"strings"
)

// A Predicate is a set of strings. Two of the same Key are the same set. The
// zero Predicate has every string.
type Predicate struct{ *predicate }

// A predicate has what all its parts have.
type predicate struct {
	key      string
	prog     *program // nil: any
	min, max int      // characters; max -1: no bound
	values   []string // nil: any
	scan     *scan    // nil: any
}

var anyString = &predicate{max: -1}

func (p Predicate) get() *predicate {
	if p.predicate == nil {
		return anyString
	}
	return p.predicate
}

// Key tells predicates apart.
func (p Predicate) Key() string { return p.get().key }

// Pattern is the strings in which an ECMA-262 pattern with the u flag matches
// somewhere. The error is a *PatternError.
func Pattern(src string) (Predicate, error) {
	p, err := compile(src)
	if err != nil {
		return Predicate{}, err
	}
	p.key = "pattern " + src
	return Predicate{p}, nil
}

func compile(src string) (*predicate, error) {
	root, err := parsePattern(src, false)
	if err != nil {
		return nil, err
	}
	p := &predicate{max: -1}
	if rest, lo, hi, ok := counted(root); ok {
		root, p.min, p.max = rest, lo, hi
	}
	p.prog, err = newProgram(src, root)
	return p, err
}

// Length is the strings of min to max characters, counted as code points; a
// max of -1 is no bound.
func Length(min, max int) Predicate {
	const most = 1 << 40 // more than any text has
	switch {
	case min < 0:
		min = 0
	case min > most:
		min = most
	}
	if max < 0 || max > most {
		max = -1
	}
	return Predicate{&predicate{key: fmt.Sprintf("length %d %d", min, max), min: min, max: max}}
}

// OneOf is the strings listed.
func OneOf(values []string) Predicate {
	vs := make([]string, len(values))
	for i, v := range values {
		vs[i] = decoded(v)
	}
	slices.Sort(vs)
	vs = slices.Compact(vs)
	if vs == nil {
		vs = []string{}
	}
	var key strings.Builder
	key.WriteString("one of")
	for _, v := range vs {
		fmt.Fprintf(&key, " %q", v)
	}
	return Predicate{&predicate{key: key.String(), max: -1, values: vs}}
}
