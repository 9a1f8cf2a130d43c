package prefix

import (
	"reflect"
	"testing"
)

// TestEntryWhole: every field of an entry is written. A new field that Append
// forgets comes back empty.
func TestEntryWhole(t *testing.T) {
	e := &Entry{}
	fill(reflect.ValueOf(e).Elem())
	raw, err := e.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	back := &Entry{}
	if err := back.UnmarshalBinary(raw); err != nil || !reflect.DeepEqual(e, back) {
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
