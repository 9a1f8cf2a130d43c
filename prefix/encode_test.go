package prefix

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func drawBlock(t *rapid.T, label string) *Block {
	text := rapid.StringN(0, 12, -1)
	b := &Block{Query: text.Draw(t, label+" query"), Call: text.Draw(t, label+" call"), Note: text.Draw(t, label+" note"), Directory: text.Draw(t, label+" directory")}
	for range rapid.IntRange(0, 3).Draw(t, label+" tools") {
		b.Tools = append(b.Tools, Shown{text.Draw(t, "name"), text.Draw(t, "json")})
	}
	return b
}

// TestEntryRoundTrip: an entry comes back as it was, and no cut of its bytes is
// taken for one.
func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 40, -1)
		e := &Entry{Text: text.Draw(t, "text"), Reasoning: text.Draw(t, "reasoning"), Replaced: rapid.Bool().Draw(t, "replaced")}
		copy(e.Conversation[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "name"))
		if rapid.Bool().Draw(t, "origin") {
			e.Origin = (*Key)(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		}
		if rapid.Bool().Draw(t, "front") {
			e.Front = drawBlock(t, "front")
		}
		for range rapid.IntRange(0, 2).Draw(t, "late") {
			e.Late = append(e.Late, drawBlock(t, "late"))
		}
		b := e.Append(nil)
		back, err := DecodeEntry(b)
		if err != nil || !reflect.DeepEqual(e, back) {
			t.Fatalf("%+v came back as %+v, %v", e, back, err)
		}
		if n := rapid.IntRange(0, len(b)-1).Draw(t, "cut"); n < len(b) {
			if _, err := DecodeEntry(b[:n]); err == nil {
				t.Fatalf("%d of %d bytes were taken for an entry", n, len(b))
			}
		}
	})
}

// TestEntryWhole: every field of an entry is written. A new field that Append
// forgets comes back empty.
func TestEntryWhole(t *testing.T) {
	e := &Entry{}
	fill(reflect.ValueOf(e).Elem())
	back, err := DecodeEntry(e.Append(nil))
	if err != nil || !reflect.DeepEqual(e, back) {
		t.Errorf("%+v came back as %+v, %v", e, back, err)
	}
}

// fill gives every field a value that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	default:
		panic("fill does not know " + v.Kind().String())
	}
}

// FuzzDecodeEntry: bytes that are no entry are an error, and what is one is
// written again as it was read.
func FuzzDecodeEntry(f *testing.F) {
	e := &Entry{}
	fill(reflect.ValueOf(e).Elem())
	f.Add(e.Append(nil))
	f.Add((&Entry{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(e.Append(nil))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Errorf("%+v came back as %+v, %v", e, again, err)
		}
		if len(e.Append(nil)) > len(b) {
			t.Errorf("%d bytes for %d read", len(e.Append(nil)), len(b))
		}
	})
}
