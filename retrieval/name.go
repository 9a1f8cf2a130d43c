package retrieval

import (
	"slices"
	"strings"
)

// nameStyle is how a name is written: tools of one origin without a server
// prefix are mostly written alike.
type nameStyle uint8

const (
	styleNone   nameStyle = iota // of a tool with a server
	styleLower                   // lookup
	styleSnake                   // look_up
	styleMixed                   // Look_Up
	styleDots                    // look.up
	styleKebab                   // look-up
	stylePascal                  // LookUp
	styleCamel                   // lookUp
	styles      = iota
)

func styleOf(name string) nameStyle {
	folded := strings.ToLower(name)
	switch {
	case strings.Contains(name, "_") && name == folded:
		return styleSnake
	case strings.Contains(name, "_"):
		return styleMixed
	case strings.Contains(name, "."):
		return styleDots
	case strings.Contains(name, "-"):
		return styleKebab
	case name == folded:
		return styleLower
	case 'A' <= name[0] && name[0] <= 'Z' && name != strings.ToUpper(name):
		return stylePascal
	}
	return styleCamel
}

// nameCover says how much of a tool's name a query spells: by stems, each
// weighted by how rare it is among names.
type nameCover struct {
	// The tools with term t in their name are post[start[t]:start[t+1]].
	start []uint32
	post  []nameTerm
	own   [][]int32 // tool -> the stems of its name within its server, each once, in order
	idf   []float32 // term -> how rare it is among names; 0 where no name has it
}

type nameTerm struct {
	tool  int32
	share float32 // of the name
}

// coverNames fills ix.names. All stems of names are terms already.
func (ix *Index) coverNames() {
	n := len(ix.tools)
	c := &ix.names
	c.own = make([][]int32, n)
	df := make([]uint32, len(ix.term))
	total := 0
	for i := range ix.tools {
		w := words{text: ix.tools[i].Short()}
		var own []int32
		for word := w.next(); word != nil; word = w.next() {
			id, ok := ix.terms[string(w.stem(word))]
			if !ok || slices.Contains(own, id) {
				continue
			}
			own = append(own, id)
			df[id]++
			total++
		}
		c.own[i] = own
	}
	c.idf = make([]float32, len(ix.term))
	c.start = make([]uint32, len(ix.term)+1)
	for t, k := range df {
		c.start[t+1] = c.start[t] + k
		if k > 0 {
			c.idf[t] = float32(idf(n, int(k)))
		}
	}
	c.post = make([]nameTerm, total)
	next := make([]uint32, len(ix.term))
	copy(next, c.start)
	for i, own := range c.own {
		whole := c.weight(own)
		for _, t := range own {
			c.post[next[t]] = nameTerm{int32(i), float32(c.idf[t] / whole)}
			next[t]++
		}
	}
}

func (c *nameCover) weight(terms []int32) float32 {
	sum := float32(0)
	for _, t := range terms {
		sum += c.idf[t]
	}
	return sum
}
