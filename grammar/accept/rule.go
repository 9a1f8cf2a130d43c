package accept

import (
	"encoding/binary"
	"slices"
)

// Rules are what the atoms about objects and arrays refer to: each is kept once.

// A memberRule says which question a member's value is asked, by its key.
type memberRule struct {
	keys     []uint32 // words, sorted
	vals     []expr   // of each key
	patterns []patternRule
	rest     expr // for keys that are none of these
}

type patternRule struct {
	text uint32 // a text predicate
	e    expr
}

func (r *memberRule) encode() string {
	b := binary.AppendUvarint(nil, uint64(len(r.keys)))
	for i, k := range r.keys {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(k)), uint64(r.vals[i]))
	}
	for _, p := range r.patterns {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.text)), uint64(p.e))
	}
	return string(binary.AppendUvarint(b, uint64(r.rest)))
}

// An itemRule says which question an item is asked, by its place.
type itemRule struct {
	prefix []expr
	rest   expr
}

func (r *itemRule) at(i uint32) expr {
	if int(i) < len(r.prefix) {
		return r.prefix[i]
	}
	return r.rest
}

func (r *itemRule) encode() string {
	var b []byte
	for _, e := range r.prefix {
		b = binary.AppendUvarint(b, uint64(e))
	}
	return string(binary.AppendUvarint(b, uint64(r.rest)))
}

// A cover is what one subschema evaluates, if its condition holds: of an object
// the members that it names, of an array the first items, or those that fit some.
type cover struct {
	all      bool
	keys     set
	patterns []uint32
	items    uint32 // how many more
	some     expr   // no: none
}

// A coverage is the covers of an opFree or opRest, in the order of its
// conditions.
type coverage []cover

func (c coverage) encode() string {
	var b []byte
	for _, v := range c {
		all := byte(0)
		if v.all {
			all = 1
		}
		b = append(b, all)
		for _, n := range []uint64{uint64(v.keys), uint64(v.items), uint64(v.some), uint64(len(v.patterns))} {
			b = binary.AppendUvarint(b, n)
		}
		for _, p := range v.patterns {
			b = binary.AppendUvarint(b, uint64(p))
		}
	}
	return string(b)
}

// rules interns rules by what they hold.
type rules[R interface{ encode() string }] struct {
	list []R
	ids  map[string]uint64
	size int // bytes, about
}

func (r *rules[R]) id(v R) uint64 {
	key := v.encode()
	if id, ok := r.ids[key]; ok {
		return id
	}
	if r.ids == nil {
		r.ids = map[string]uint64{}
	}
	id := uint64(len(r.list))
	r.list = append(r.list, v)
	r.ids[key] = id
	r.size += 200 + 3*len(key)
	return id
}

func (r *memberRule) named(word uint32) (expr, bool) {
	i, ok := slices.BinarySearch(r.keys, word)
	if !ok {
		return no, false
	}
	return r.vals[i], true
}
