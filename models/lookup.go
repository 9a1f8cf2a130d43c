package models

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

//go:embed models.jsonl
var modelLines []byte

//go:embed gpus.jsonl
var gpuLines []byte

var (
	modelCards = sync.OnceValue(func() []Model { return cards[Model](modelLines) })
	gpuCards   = sync.OnceValue(func() []GPU { return cards[GPU](gpuLines) })
)

// cards decodes embedded lines. They are part of the program, so that a line that
// does not decode is our own bug.
func cards[T any](lines []byte) []T {
	dec := json.NewDecoder(bytes.NewReader(lines))
	dec.DisallowUnknownFields()
	var all []T
	for {
		var card T
		err := dec.Decode(&card)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			panic(fmt.Sprintf("models: card %d: %v", len(all)+1, err))
		}
		all = append(all, card)
	}
}

// Models returns all model cards in the order of models.jsonl.
func Models() []Model { return slices.Clone(modelCards()) }

// GPUs returns all GPU cards in the order of gpus.jsonl.
func GPUs() []GPU { return slices.Clone(gpuCards()) }

// UnknownIDError says that there is no card of this id.
type UnknownIDError struct {
	Kind string   // "model" or "GPU"
	ID   string   // as asked for
	Near []string // ids of cards, nearest first; at most maxNear
}

func (e *UnknownIDError) Error() string {
	return fmt.Sprintf("no %s card %q; nearest: %s", e.Kind, e.ID, strings.Join(e.Near, ", "))
}

// ByID returns the card of a model. Case does not matter, and the owner may be
// left out: "qwen3-8b" finds "Qwen/Qwen3-8B". The error is an *UnknownIDError.
func ByID(id string) (*Model, error) {
	all := modelCards()
	i, err := find("model", id, len(all), func(i int) string { return all[i].ID })
	if err != nil {
		return nil, err
	}
	m := all[i]
	return &m, nil
}

// GPUByID returns the card of a GPU; case does not matter. The error is an
// *UnknownIDError.
func GPUByID(id string) (*GPU, error) {
	all := gpuCards()
	i, err := find("GPU", id, len(all), func(i int) string { return all[i].ID })
	if err != nil {
		return nil, err
	}
	g := all[i]
	return &g, nil
}

// maxNear bounds the ids that an error suggests: one line of a terminal.
const maxNear = 4

func find(kind, id string, n int, name func(int) string) (int, error) {
	want := strings.ToLower(strings.TrimSpace(id))
	for i := range n {
		if have := strings.ToLower(name(i)); have == want || short(have) == want {
			return i, nil
		}
	}
	type near struct {
		id   string
		dist int
	}
	all := make([]near, n)
	for i := range n {
		have := strings.ToLower(name(i))
		d := distance(short(want), short(have))
		if strings.Contains(have, short(want)) || strings.Contains(want, short(have)) {
			d = 0
		}
		all[i] = near{name(i), d}
	}
	slices.SortStableFunc(all, func(a, b near) int { return a.dist - b.dist })
	e := &UnknownIDError{Kind: kind, ID: id}
	for _, c := range all[:min(maxNear, n)] {
		e.Near = append(e.Near, c.id)
	}
	return 0, e
}

// short is the id without its owner.
func short(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// distance is the edit distance of two ids in bytes. What is beyond maxID bytes
// of the asked id only adds to it.
func distance(a, b string) int {
	const maxID = 200
	extra := max(len(a)-maxID, 0)
	a = a[:len(a)-extra]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diag+cost)
		}
	}
	return row[len(b)] + extra
}
