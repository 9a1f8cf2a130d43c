package lexical

import (
	"strings"
	"testing"
)

// TestToNames: a byte leads to a name just if some name begins with what was
// read and the byte.
func TestToNames(t *testing.T) {
	names := []string{"", "a", "ab", "aé", "ax\"y", "b\n"}
	s, err := NewStrings(nil, names, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "a", "ab", "ax", "b", "zz"} {
		q := s.Start()
		for i := range len(prefix) {
			q = s.Step(q, prefix[i])
		}
		got, ok := s.ToNames(q)
		if !ok {
			t.Fatalf("%q: not between characters", prefix)
		}
		var want Bytes
		for _, n := range names {
			switch {
			case n == prefix:
				want.Add('"')
			case strings.HasPrefix(n, prefix):
				want.Add('\\')
				if c := n[len(prefix)]; c != '"' && c >= 0x20 {
					want.Add(c)
				}
			}
		}
		if got != want {
			t.Errorf("%q: %b, want %b", prefix, got, want)
		}
	}
	q := s.Step(s.Start(), '\\')
	if _, ok := s.ToNames(q); ok {
		t.Error("within an escape")
	}
}
