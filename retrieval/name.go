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

	general []bool // term -> it says what is done, see chain.go
}

type nameTerm struct {
	tool  int32
	share float32 // of the name
}

// coverNames fills ix.names. All stems of names are terms already.
func (ix *Index) coverNames(old *Index, from []int32) {
	n := len(ix.tools)
	c := &ix.names
	c.own = make([][]int32, n)
	df := make([]uint32, len(ix.term))
	total := 0
	for i := range ix.tools {
		if from[i] >= 0 {
			c.own[i] = old.names.own[from[i]]
		} else {
			c.own[i] = ix.nameStems(ix.tools[i].Short())
		}
		for _, id := range c.own[i] {
			df[id]++
		}
		total += len(c.own[i])
	}
	c.general = make([]bool, len(ix.term))
	for stem := range general {
		if id, ok := ix.terms[stem]; ok {
			c.general[id] = true
		}
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

// nameStems returns the stems of a name, each once, in order.
func (ix *Index) nameStems(name string) []int32 {
	w := words{text: name}
	var own []int32
	for word := w.next(); word != nil; word = w.next() {
		if id, ok := ix.terms[string(w.stem(word))]; ok && !slices.Contains(own, id) {
			own = append(own, id)
		}
	}
	return own
}

func (c *nameCover) weight(terms []int32) float32 {
	sum := float32(0)
	for _, t := range terms {
		sum += c.idf[t]
	}
	return sum
}
