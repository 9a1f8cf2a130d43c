package grammar

import "github.com/santhosh-tekuri/jsonschema/v6"

// The work of a check. A schema may apply many subschemas to one value: two
// allOf branches that both refer on, sixty times over, are 2^60. So Compile
// counts: work[d] bounds how many subschemas are applied along one path from
// the root of arguments nested d deep to a leaf. Arguments nested deeper than
// the table, or with more values × work than maxWork, are not checked but
// refused.
const (
	maxPathWork = 1_000_000
	maxWork     = 500_000_000 // subschema applications; some 100 ns each
)

// workOf gives the table; empty if even a flat value costs too much.
func workOf(root *jsonschema.Schema) []int {
	w := worker{schemas: []*jsonschema.Schema{root}, index: map[*jsonschema.Schema]int{root: 0}}
	for i := 0; i < len(w.schemas); i++ {
		w.each(w.schemas[i], func(sub *jsonschema.Schema, _ int) {
			if _, ok := w.index[sub]; !ok {
				w.index[sub] = len(w.schemas)
				w.schemas = append(w.schemas, sub)
			}
		})
	}
	var table []int
	before := make([]int, len(w.schemas))
	for d := 0; d <= maxJSONDepth; d++ {
		now := make([]int, len(w.schemas)) // 0: not known yet
		for i := range w.schemas {
			w.cost(i, before, now, d)
		}
		same := true
		for i := range now {
			same = same && now[i] == before[i]
		}
		if same { // deeper values cost nothing more
			for ; d <= maxJSONDepth; d++ {
				table = append(table, now[0])
			}
			break
		}
		if now[0] > maxPathWork {
			break
		}
		table = append(table, now[0])
		before = now
	}
	return table
}

type worker struct {
	schemas []*jsonschema.Schema
	index   map[*jsonschema.Schema]int
}

// Where a subschema applies.
const (
	onSelf    = iota // to the same value
	onMember         // to a child named by one keyword entry: the costliest counts
	onItem           // the same for arrays
	onMembers        // to any child
	onItems
)

func (w *worker) each(s *jsonschema.Schema, f func(sub *jsonschema.Schema, where int)) {
	one := func(where int, subs ...*jsonschema.Schema) {
		for _, sub := range subs {
			if sub != nil {
				f(sub, where)
			}
		}
	}
	one(onSelf, s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else)
	if s.DynamicRef != nil {
		one(onSelf, s.DynamicRef.Ref)
	}
	one(onSelf, s.AllOf...)
	one(onSelf, s.AnyOf...)
	one(onSelf, s.OneOf...)
	for _, sub := range s.DependentSchemas {
		one(onSelf, sub)
	}
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok {
			one(onSelf, sub)
		}
	}
	for _, sub := range s.Properties {
		one(onMember, sub)
	}
	for _, sub := range s.PatternProperties {
		one(onMembers, sub)
	}
	one(onMembers, s.PropertyNames, s.UnevaluatedProperties)
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		one(onMembers, sub)
	}
	one(onItem, s.PrefixItems...)
	one(onItems, s.Items2020, s.Contains, s.UnevaluatedItems)
	switch it := s.Items.(type) {
	case *jsonschema.Schema:
		one(onItems, it)
	case []*jsonschema.Schema:
		one(onItem, it...)
	}
	if sub, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
		one(onItems, sub)
	}
}

// cost fills now[i] from the costs of children one level less deep.
func (w *worker) cost(i int, before, now []int, depth int) int {
	if now[i] != 0 {
		return max(now[i], 0)
	}
	now[i] = -1 // being counted: a cycle in place is refused by the validator
	s := w.schemas[i]
	self := 1
	if s.Enum != nil {
		self += len(s.Enum.Values) / 8
	}
	var member, item, members, items int
	w.each(s, func(sub *jsonschema.Schema, where int) {
		k := w.index[sub]
		switch where {
		case onSelf:
			self = capped(self + w.cost(k, before, now, depth))
		case onMember:
			member = max(member, before[k])
		case onItem:
			item = max(item, before[k])
		case onMembers:
			members = capped(members + before[k])
		case onItems:
			items = capped(items + before[k])
		}
	})
	now[i] = capped(self + max(member+members, item+items))
	return now[i]
}

func capped(n int) int { return min(n, 4*maxPathWork) }
