package prefix

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func drawBlock(t *rapid.T) *Block {
	text := rapid.String()
	b := &Block{Query: text.Draw(t, "query"), Call: text.Draw(t, "call"), CallIDs: drawIDs(t), Note: text.Draw(t, "note"), Directory: text.Draw(t, "directory")}
	for range rapid.IntRange(0, 3).Draw(t, "tools") {
		b.Tools = append(b.Tools, Shown{text.Draw(t, "name"), text.Draw(t, "json")})
	}
	return b
}

func drawIDs(t *rapid.T) IDs {
	return PackIDs(rapid.SliceOf(rapid.Int32Min(0)).Draw(t, "ids"))
}

func drawKey(t *rapid.T) (k Key) {
	copy(k[:], rapid.SliceOfN(rapid.Byte(), len(k), len(k)).Draw(t, "key"))
	return k
}

func drawEntry(t *rapid.T) *Entry {
	e := &Entry{Text: rapid.String().Draw(t, "text"), Reasoning: rapid.String().Draw(t, "reasoning"), Replaced: rapid.Bool().Draw(t, "replaced"), Open: rapid.Bool().Draw(t, "open")}
	for range rapid.IntRange(0, 2).Draw(t, "late") {
		e.Late = append(e.Late, drawBlock(t))
	}
	if rapid.Bool().Draw(t, "front") {
		e.Front = drawBlock(t)
	}
	if rapid.Bool().Draw(t, "origin") {
		k := drawKey(t)
		e.Origin = &k
	}
	if rapid.Bool().Draw(t, "tokens") {
		e.Tokens = &Tokens{From: drawKey(t), Sum: drawKey(t), Head: drawIDs(t), Output: drawIDs(t)}
	}
	return e
}

// TestEntryBytes: an entry survives its form as bytes, and no cut of it is taken
// for an entry.
func TestEntryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		raw, err := e.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back Entry
		if err := back.UnmarshalBinary(raw); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&back, e) {
			t.Fatalf("read back\n%+v\nwant\n%+v", back, *e)
		}
		cut := rapid.IntRange(0, len(raw)-1).Draw(t, "cut")
		if err := new(Entry).UnmarshalBinary(raw[:cut]); err == nil {
			t.Fatalf("%d of %d bytes were taken for an entry", cut, len(raw))
		}
		if err := new(Entry).UnmarshalBinary(append(raw, 0)); err == nil {
			t.Fatal("a byte behind the end was overlooked")
		}
	})
}

func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.Int32Min(0)).Draw(t, "ids")
		got := PackIDs(ids).Append([]int32{7})
		if len(got) != len(ids)+1 || got[0] != 7 || !reflect.DeepEqual(append([]int32{7}, ids...), got) {
			t.Fatalf("got %v, want 7 and %v", got, ids)
		}
	})
}

// FuzzEntryBytes: whatever bytes a store gives back, reading them ends in an entry
// that is written as the same bytes, or in an error.
func FuzzEntryBytes(f *testing.F) {
	e := &Entry{Text: "t", Replaced: true, Tokens: &Tokens{Head: PackIDs([]int32{1, 151644}), Output: PackIDs([]int32{9})}, Front: &Block{Tools: []Shown{{"n", "{}"}}}}
	raw, _ := e.MarshalBinary() // does not fail
	f.Add(raw)
	f.Add([]byte{entryVersion, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e Entry
		if e.UnmarshalBinary(raw) != nil {
			return
		}
		again, _ := e.MarshalBinary()
		var back Entry
		if err := back.UnmarshalBinary(again); err != nil || !reflect.DeepEqual(e, back) {
			t.Fatalf("%+v became %+v: %v", e, back, err)
		}
		if e.Tokens != nil {
			e.Tokens.Head.Append(nil)
			e.Tokens.Output.Append(nil)
		}
	})
}
