package tokenizer

import (
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Added is a token that stands for its spelling as a whole. It is found in the
// text before splitting and never made by merging. Control tokens such as
// <|im_end|> are Special: engines leave them out of the text they return. Others
// such as <tool_call> are not, and appear in it.
type Added struct {
	ID      int32
	Content string
	Special bool

	SingleWord bool // only between characters that aren't word characters
	LStrip     bool // takes the white space before it along
	RStrip     bool // takes the white space behind it along
	Normalized bool // found after normalising the text instead of before
}

// A finder finds added tokens in a text: the leftmost, and there the longest.
type finder struct {
	starts [256]bool // first bytes of all spellings
	nodes  []trieNode
	added  []Added
	class  *classTable
}

// A trieNode is a state of the trie of spellings; node 0 is the root.
type trieNode struct {
	edges []trieEdge // by rising byte
	added int32      // index into added, -1 if no spelling ends here
}

type trieEdge struct {
	b    byte
	node int32
}

// newFinder finds the tokens under spelling(token), which isn't empty; nil if
// there are none. Of two with one spelling the later is found.
func newFinder(added []Added, spelling func(Added) string) *finder {
	if len(added) == 0 {
		return nil
	}
	f := &finder{nodes: []trieNode{{added: -1}}, added: added, class: classes()}
	for i, a := range added {
		s := spelling(a)
		f.starts[s[0]] = true
		n := int32(0)
		for j := range len(s) {
			at, ok := f.edge(n, s[j])
			if !ok {
				next := int32(len(f.nodes))
				f.nodes = append(f.nodes, trieNode{added: -1})
				f.nodes[n].edges = slices.Insert(f.nodes[n].edges, at, trieEdge{s[j], next})
			}
			n = f.nodes[n].edges[at].node
		}
		f.nodes[n].added = int32(i)
	}
	return f
}

func (f *finder) edge(n int32, b byte) (int, bool) {
	return slices.BinarySearchFunc(f.nodes[n].edges, b, func(e trieEdge, b byte) int { return cmp.Compare(e.b, b) })
}

// A find is one added token in a text.
type find struct {
	start, end int // with the white space that the token takes along
	resume     int // where to look for the next one
	id         int32
}

// next is the first added token at or behind text[from], where text[:taken] has
// been given out already. The white space which one token takes along behind
// it may reach over the next one: then start < taken.
func (f *finder) next(text string, from, taken int) (find, bool) {
	if f == nil {
		return find{}, false
	}
	for i := from; i < len(text); {
		if !f.starts[text[i]] {
			i++
			continue
		}
		end, best := 0, int32(-1)
		for n, j := int32(0), i; j < len(text); {
			at, ok := f.edge(n, text[j])
			if !ok {
				break
			}
			n = f.nodes[n].edges[at].node
			j++
			if f.nodes[n].added >= 0 {
				end, best = j, f.nodes[n].added
			}
		}
		if best < 0 {
			i++
			continue
		}
		a := &f.added[best]
		if a.SingleWord && (f.wordBefore(text[:i]) || f.wordAfter(text[end:])) {
			i = end // the references don't try a shorter token here either
			continue
		}
		m := find{start: i, end: end, resume: end, id: a.ID}
		if a.LStrip {
			for m.start > taken {
				r, w := utf8.DecodeLastRuneInString(text[:m.start])
				if !unicode.Is(unicode.White_Space, r) {
					break
				}
				m.start -= w
			}
		}
		if a.RStrip {
			m.end = f.class.run(text, m.end, space)
		}
		return m, true
	}
	return find{}, false
}

func (f *finder) wordBefore(s string) bool {
	_, w := utf8.DecodeLastRuneInString(s)
	return w > 0 && f.isWord(s[len(s)-w:])
}

func (f *finder) wordAfter(s string) bool { return s != "" && f.isWord(s) }

// isWord reports whether s starts with a \w of the references: UTS 18, Annex C.
func (f *finder) isWord(s string) bool {
	c, w := f.class.at(s, 0)
	if c&(letter|mark) != 0 {
		return true
	}
	r, _ := utf8.DecodeRuneInString(s[:w])
	return unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
