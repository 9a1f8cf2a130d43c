package jsontext

import "testing"

// TestPointer: keys of RFC 6901, section 5, and some that are escaped twice.
func TestPointer(t *testing.T) {
	for key, tok := range map[string]string{"": "", "foo": "foo", "a/b": "a~1b", "m~n": "m~0n", "~1": "~01", "~0/": "~00~1", "c%d": "c%d"} {
		if got := EscapePointer(key); got != tok {
			t.Errorf("%q is written %q, not %q", key, got, tok)
		}
		if got := UnescapePointer(tok); got != key {
			t.Errorf("%q is read %q, not %q", tok, got, key)
		}
	}
}
