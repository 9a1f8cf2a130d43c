package embedding

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

func tokens(t *Table, text string) (ids []int32) {
	t.pieces.tokens(text, func(id int32) { ids = append(ids, id) })
	return ids
}

func lines(t *testing.T, name string) []string {
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
}

// The ids of the teacher's own tokenizer, written by train.py --golden, are ours.
// Only special tokens spelled in a text differ: here they are text.
func TestWordpieceAgainstReference(t *testing.T) {
	texts, want := lines(t, "testdata/texts.txt"), lines(t, "testdata/wordpiece.txt")
	if len(texts) != len(want) || len(texts) < 10 {
		t.Fatalf("%d texts, %d lines of ids", len(texts), len(want))
	}
	for i, text := range texts {
		if strings.Contains(text, "[UNK]") {
			continue
		}
		got := strings.Trim(fmt.Sprint(tokens(Default(), text)), "[]")
		if got != want[i] {
			t.Errorf("%q: %s; want %s", text, got, want[i])
		}
	}
}

func TestWordsWithoutPieces(t *testing.T) {
	unk := Default().pieces.unknown
	for _, text := range []string{strings.Repeat("a", 101), "\U00010348"} {
		if got := tokens(Default(), text); !slices.Equal(got, []int32{unk}) {
			t.Errorf("%.20q: %v; want the unknown token", text, got)
		}
	}
	if got := tokens(Default(), " \t\n\x00\x7f\xff\u200b"); len(got) != 0 {
		t.Errorf("nothing to see: %v", got)
	}
}

func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func TestMeaning(t *testing.T) {
	e := Default().Embed
	for _, x := range [...]struct{ text, near, far string }{
		{"book a flight to Oslo", "reserve an airline ticket", "delete a file"},
		{"what will the weather be like tomorrow", "get the forecast of rain and temperature", "send money to a friend"},
		{"remove the document", "delete a file", "play a song"},
		{"purchase shares of a company", "buy stock", "book a hotel room"},
	} {
		if n, f := cosine(e(x.text), e(x.near)), cosine(e(x.text), e(x.far)); n < f+0.1 {
			t.Errorf("%q: %.2f to %q, %.2f to %q", x.text, n, x.near, f, x.far)
		}
	}
}

func TestEmbedIsOneLong(t *testing.T) {
	table := Default()
	if table.Dim() != 256 {
		t.Errorf("%d dimensions", table.Dim())
	}
	for _, text := range lines(t, "testdata/texts.txt") {
		v := table.Embed(text)
		if l := cosine(v, v); len(v) != 256 || math.Abs(l-1) > 1e-5 && l != 0 {
			t.Errorf("%q: length² %v", text, l)
		}
	}
	if v := table.Embed(""); cosine(v, v) != 0 {
		t.Error("no text has a vector")
	}
	// The sum is over tokens: their order says nothing.
	if a, b := table.Embed("red green blue"), table.Embed("blue red green"); cosine(a, b) < 1-1e-6 {
		t.Error("the order of words matters")
	}
}

func TestEmbedConcurrently(t *testing.T) {
	want := Default().Embed("refund the order")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if !slices.Equal(Default().Embed("refund the order"), want) {
					t.Error("another vector")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestParseErrors(t *testing.T) {
	table := func(n, dim uint32, rest int) string {
		b := []byte(tableMagic)
		b = binary.LittleEndian.AppendUint32(b, n)
		b = binary.LittleEndian.AppendUint32(b, dim)
		return string(append(b, make([]byte, rest)...))
	}
	for _, x := range [...]struct{ name, table, vocab string }{
		{"empty", "", ""},
		{"another file", "PK\x03\x04 and so on, some bytes", "a\n"},
		{"short", table(2, 4, 8+7), "a\nb\n"},
		{"long", table(2, 4, 8+9), "a\nb\n"},
		{"no dimensions", table(2, 0, 8), "a\nb\n"},
		{"huge", table(math.MaxUint32, math.MaxUint32, 100), "a\nb\n"},
		{"vocabulary", table(2, 4, 8+8), "a\n"},
	} {
		if _, err := Parse(x.table, x.vocab); err == nil {
			t.Errorf("%s: accepted", x.name)
		}
	}
	if _, err := Parse(table(2, 4, 8+8), "a\nb\n"); err != nil {
		t.Error(err)
	}
}

func FuzzEmbed(f *testing.F) {
	f.Add("Refund the order, 查询")
	f.Fuzz(func(t *testing.T, text string) {
		v := Default().Embed(text)
		for _, x := range v {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("%q: %v", text, x)
			}
		}
	})
}

// A query of a dozen words.
func BenchmarkEmbed(b *testing.B) {
	Default()
	b.ReportAllocs()
	for b.Loop() {
		Default().Embed("cancel the order of yesterday and give the customer her money back")
	}
}
