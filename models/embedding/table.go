package embedding

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
)

// The file of vectors, numbers little-endian:
//
//	8 bytes        "TOKVEC1\n"
//	4 bytes        n, the number of tokens
//	4 bytes        d, the dimensions of a vector
//	4 n bytes      a float32 a token, its scale
//	n d bytes      an int8 a token and dimension; times the scale it is the vector
const tableMagic = "TOKVEC1\n"

const tableHeader = len(tableMagic) + 4 + 4

//go:embed table.bin
var tableFile string

//go:embed vocab.txt
var vocabFile string

// Table maps texts to unit vectors. It is immutable and safe for concurrent use.
type Table struct {
	dim    int
	scale  []float32
	rows   string // int8, token by token
	pieces *wordpiece
}

// Default returns the shipped table. Reading it takes some milliseconds, once.
var Default = sync.OnceValue(func() *Table {
	t, err := Parse(tableFile, vocabFile)
	if err != nil {
		panic("embedding: " + err.Error())
	}
	return t
})

// Parse reads a table of vectors and its vocabulary, a piece a line.
func Parse(table, vocab string) (*Table, error) {
	if len(table) < tableHeader || table[:len(tableMagic)] != tableMagic {
		return nil, fmt.Errorf("table: no %q at its beginning", tableMagic)
	}
	n := int64(binary.LittleEndian.Uint32([]byte(table[len(tableMagic):])))
	dim := int64(binary.LittleEndian.Uint32([]byte(table[len(tableMagic)+4:])))
	if want := int64(tableHeader) + n*4 + n*dim; n > math.MaxInt32 || dim == 0 || dim > 1<<16 || int64(len(table)) != want {
		return nil, fmt.Errorf("table: %d bytes; %d tokens of %d dimensions take %d", len(table), n, dim, want)
	}
	pieces := strings.Split(strings.TrimSuffix(vocab, "\n"), "\n")
	if int64(len(pieces)) != n {
		return nil, fmt.Errorf("vocabulary: %d lines for %d tokens", len(pieces), n)
	}
	t := &Table{dim: int(dim), scale: make([]float32, n), rows: table[int64(tableHeader)+n*4:], pieces: newWordpiece(pieces)}
	for i := range t.scale {
		at := tableHeader + 4*i
		t.scale[i] = math.Float32frombits(binary.LittleEndian.Uint32([]byte(table[at : at+4])))
	}
	return t, nil
}

// Dim returns the dimensions of the vectors.
func (t *Table) Dim() int { return t.dim }

// Embed returns the vector of a text, of length 1, or of zeros where the text
// holds nothing that the vocabulary knows. The same text has the same vector on
// every machine.
func (t *Table) Embed(text string) []float32 {
	sum := make([]float32, t.dim)
	t.pieces.tokens(text, func(id int32) {
		if id < 0 {
			return
		}
		scale := t.scale[id]
		row := t.rows[int(id)*t.dim:][:len(sum)]
		for i := range sum {
			sum[i] += float32(scale * float32(int8(row[i])))
		}
	})
	square := 0.0
	for _, v := range sum {
		square += float64(float64(v) * float64(v))
	}
	if square > 0 {
		by := float32(1 / math.Sqrt(square))
		for i := range sum {
			sum[i] *= by
		}
	}
	return sum
}
