package tokenizer

import (
	"fmt"
	"slices"
)

// A source is what a file says, before the tables are built.
type source struct {
	name    string
	pattern *pattern
	nfc     bool
	vocab   vocabulary // bytes of the ordinary tokens; ids of added tokens are empty
	merges  []pairMerge
	added   []Added

	// wholeFirst: a piece that spells a token is that token, whether or not
	// merging would lead there (tiktoken; ignore_merges in tokenizer.json).
	wholeFirst bool
	// unreachable are the tokens of two bytes and more which merging doesn't
	// make of their own bytes, rising. nil: find them.
	unreachable []int32
}

type pairMerge struct {
	left, right int32
	merge       merge
}

func build(src *source) (*Tokenizer, error) {
	t := &Tokenizer{
		name: src.name, pattern: src.pattern, nfc: src.nfc, class: classes(),
		vocab: src.vocab, added: src.added,
		byID: make(map[int32]int, len(src.added)), ids: make(map[string]int32, len(src.added)),
		size: src.vocab.size(),
	}
	slices.SortStableFunc(t.added, func(a, b Added) int { return int(a.ID) - int(b.ID) })
	for i, a := range t.added {
		if j, ok := t.byID[a.ID]; ok {
			return nil, fmt.Errorf("added tokens %q and %q both have id %d", t.added[j].Content, a.Content, a.ID)
		}
		if id, ok := t.ids[a.Content]; ok {
			return nil, fmt.Errorf("added token %q has two ids, %d and %d", a.Content, id, a.ID)
		}
		if int(a.ID) < t.vocab.size() && len(t.vocab.token(a.ID)) > 0 {
			return nil, fmt.Errorf("added token %q has id %d, which is that of the ordinary token %q", a.Content, a.ID, t.vocab.token(a.ID))
		}
		t.byID[a.ID], t.ids[a.Content] = i, a.ID
		t.size = max(t.size, int(a.ID)+1)
	}
	var raw, after []Added
	for _, a := range t.added {
		if a.Normalized {
			after = append(after, a)
		} else {
			raw = append(raw, a)
		}
	}
	t.raw = newFinder(raw, func(a Added) string { return a.Content })
	t.after = newFinder(after, func(a Added) string { return t.normalize(a.Content) })

	m := &t.merger
	for b := range m.byteID {
		m.byteID[b] = -1
	}
	count := 0
	for id := range int32(t.vocab.size()) {
		switch b := t.vocab.token(id); len(b) {
		case 0:
		case 1:
			m.byteID[b[0]] = id
			fallthrough
		default:
			count++
		}
	}
	m.first = make([]merge, 1<<16)
	for i := range m.first {
		m.first[i] = none
	}
	m.pairs = newPairTable(len(src.merges))
	for _, p := range src.merges {
		m.pairs.add(p.left, p.right, p.merge)
	}
	for _, p := range src.merges {
		if l, r := t.vocab.token(p.left), t.vocab.token(p.right); len(l) == 1 && len(r) == 1 {
			m.first[int(l[0])<<8|int(r[0])] = m.pairs.find(p.left, p.right)
		}
	}

	t.pieces = newPieceTable(&t.vocab, count)
	skip := src.unreachable
	var buf []int32
	for id := range int32(t.vocab.size()) {
		b := t.vocab.token(id)
		if len(b) == 0 {
			continue
		}
		if !src.wholeFirst && len(b) > 1 {
			if src.unreachable != nil {
				if len(skip) > 0 && skip[0] == id {
					skip = skip[1:]
					continue
				}
			} else if buf = m.merge(buf[:0], string(b)); len(buf) != 1 || buf[0] != id {
				continue
			}
		}
		if !t.pieces.add(id) {
			return nil, fmt.Errorf("two tokens with the bytes %q, one of them id %d", b, id)
		}
	}
	return t, nil
}
