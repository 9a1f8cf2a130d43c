package lexical

import "unicode/utf8"

// A Bytes is a set of bytes.
type Bytes [4]uint64

// Add puts b into the set.
func (s *Bytes) Add(b byte) { s[b>>6] |= 1 << (b & 63) }

// Has tells whether b is in the set.
func (s *Bytes) Has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// ToNames is the bytes after which the string may still become one of the
// names, or has become it; among them the backslash, as any character can be
// spelled by an escape. It is for states between two characters; ok is false
// elsewhere.
func (s *Strings) ToNames(q State) (set Bytes, ok bool) {
	if q <= Lost {
		return set, false
	}
	b, _ := s.split(q)
	if b.mode != plain {
		return set, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.x.all[b.text]
	if s.x.label(t) >= 0 {
		set.Add('"')
	}
	for _, r := range s.x.continuations(t) {
		set.Add('\\')
		if r != '"' && r != '\\' && r >= 0x20 {
			var buf [utf8.UTFMax]byte
			utf8.EncodeRune(buf[:], r)
			set.Add(buf[0])
		}
	}
	return set, true
}
