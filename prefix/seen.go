package prefix

import "container/list"

// Seen models the prefix cache of an engine: the sequences of tokens that it was
// sent and generated, as a radix tree. It holds at most a number of tokens; the
// ends of the sequences used least recently go first. Used by one goroutine at a
// time.
type Seen struct {
	max    int // tokens
	size   int // tokens
	most   int // nodes
	nodes  int
	full   bool
	root   seenNode
	leaves *list.List // of *seenNode, most recently used first
}

type seenNode struct {
	ids      []int32 // from the parent to here
	parent   *seenNode
	children map[int32]*seenNode // by their first id
	leaf     *list.Element       // nil unless it has no children
}

// maxNodes bounds a model in nodes of some 250 bytes.
const maxNodes = 1 << 18

// NewSeen returns a model that holds at most maxTokens, and maxNodes places where
// sequences part or end.
func NewSeen(maxTokens int) *Seen {
	return &Seen{max: maxTokens, most: maxNodes, leaves: list.New()}
}

// Full says whether anything has left for want of room.
func (s *Seen) Full() bool { return s.full }

// Match is how many of the first ids were seen as the beginning of one sequence.
func (s *Seen) Match(ids []int32) int {
	n, node := 0, &s.root
	for n < len(ids) {
		child := node.children[ids[n]]
		if child == nil {
			break
		}
		same := Common(child.ids, ids[n:])
		n += same
		if same < len(child.ids) {
			break
		}
		node = child
	}
	return n
}

// Add notes a sequence.
func (s *Seen) Add(ids []int32) {
	if len(ids) > s.max {
		ids, s.full = ids[:s.max], true
	}
	node := &s.root
	for len(ids) > 0 {
		child := node.children[ids[0]]
		if child == nil {
			child = &seenNode{ids: append([]int32(nil), ids...), parent: node}
			s.attach(node, child)
			s.size += len(ids)
			ids = nil
			node = child
			break
		}
		same := Common(child.ids, ids)
		if same < len(child.ids) && same < len(ids) {
			child = s.split(child, same)
		}
		ids = ids[same:]
		node = child
	}
	if node.leaf != nil {
		s.leaves.MoveToFront(node.leaf)
	}
	s.shrink()
}

// attach makes child a child of node.
func (s *Seen) attach(node, child *seenNode) {
	if node.children == nil {
		node.children = map[int32]*seenNode{}
	}
	node.children[child.ids[0]] = child
	s.nodes++
	if node.leaf != nil {
		s.leaves.Remove(node.leaf)
		node.leaf = nil
	}
	if child.children == nil {
		child.leaf = s.leaves.PushFront(child)
	}
}

// split puts a node before the last part of n and returns it.
func (s *Seen) split(n *seenNode, at int) *seenNode {
	upper := &seenNode{ids: n.ids[:at:at], parent: n.parent, children: map[int32]*seenNode{n.ids[at]: n}}
	n.parent.children[upper.ids[0]] = upper
	s.nodes++
	n.ids, n.parent = n.ids[at:], upper
	return upper
}

// shrink cuts leaves from their ends, whole ones where there are too many nodes.
func (s *Seen) shrink() {
	for s.size > s.max || s.nodes > s.most {
		s.full = true
		n := s.leaves.Back().Value.(*seenNode)
		cut := len(n.ids)
		if s.nodes <= s.most {
			cut = min(s.size-s.max, cut)
		}
		s.size -= cut
		if cut < len(n.ids) {
			n.ids = n.ids[:len(n.ids)-cut]
			continue
		}
		s.leaves.Remove(n.leaf)
		s.nodes--
		p := n.parent
		delete(p.children, n.ids[0])
		if len(p.children) == 0 && p != &s.root {
			p.children = nil
			p.leaf = s.leaves.PushBack(p)
		}
	}
}

// Common is how many ids two sequences begin with alike.
func Common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
