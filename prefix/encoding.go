package prefix

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry as bytes, for stores that outlive the process:
//
//	1      entryVersion
//	1      bits: which of the following there are
//	8      Conversation
//	Text, Reasoning                          strings
//	Front, Late                              blocks; Late with its count in front
//	Origin                                   a key
//	Tokens                                   two keys, two lists of ids
//	Calls                                    their count in front, id, name and arguments of each
//
// A string is its length as a uvarint and its bytes; a count is a uvarint.
const entryVersion = 1

const (
	hasReplaced = 1 << iota
	hasOpen
	hasFront
	hasOrigin
	hasTokens
	hasCalls
	unknownBits
)

// AppendBinary appends the entry as bytes. It does not fail.
func (e *Entry) AppendBinary(b []byte) ([]byte, error) {
	bits := byte(0)
	for _, f := range []struct {
		has bool
		bit byte
	}{{e.Replaced, hasReplaced}, {e.Open, hasOpen}, {e.Front != nil, hasFront}, {e.Origin != nil, hasOrigin}, {e.Tokens != nil, hasTokens}, {len(e.Calls) > 0, hasCalls}} {
		if f.has {
			bits |= f.bit
		}
	}
	b = append(append(b, entryVersion, bits), e.Conversation[:]...)
	b = appendText(appendText(b, e.Text), e.Reasoning)
	if e.Front != nil {
		b = appendBlock(b, e.Front)
	}
	b = binary.AppendUvarint(b, uint64(len(e.Late)))
	for _, l := range e.Late {
		b = appendBlock(b, l)
	}
	if e.Origin != nil {
		b = append(b, e.Origin[:]...)
	}
	if t := e.Tokens; t != nil {
		b = append(append(b, t.From[:]...), t.Sum[:]...)
		b = appendText(appendText(b, string(t.Head)), string(t.Output))
	}
	if len(e.Calls) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Calls)))
		for _, k := range e.Calls {
			b = appendText(appendText(appendText(b, k.ID), k.Name), k.Arguments)
		}
	}
	return b, nil
}

// MarshalBinary is AppendBinary to nothing.
func (e *Entry) MarshalBinary() ([]byte, error) { return e.AppendBinary(nil) }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBlock(b []byte, l *Block) []byte {
	for _, s := range []string{l.Query, l.Call, string(l.CallIDs), l.Note, l.Directory} {
		b = appendText(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(l.Tools)))
	for _, t := range l.Tools {
		b = appendText(appendText(b, t.Name), t.JSON)
	}
	return b
}

var errEntry = errors.New("prefix: bytes that are no entry")

// UnmarshalBinary reads what AppendBinary wrote into an empty entry. Bytes of
// another version, cut bytes and bytes behind the end are errors.
func (e *Entry) UnmarshalBinary(data []byte) error { return e.Unmarshal(string(data)) }

// Unmarshal is UnmarshalBinary of bytes in a string, which the texts of the entry
// are then part of.
func (e *Entry) Unmarshal(data string) error {
	if len(data) < 2+len(e.Conversation) {
		return errEntry
	}
	if data[0] != entryVersion {
		return fmt.Errorf("prefix: entry of version %d; this program reads version %d", data[0], entryVersion)
	}
	bits := data[1]
	if bits >= unknownBits {
		return errEntry
	}
	out := Entry{Replaced: bits&hasReplaced != 0, Open: bits&hasOpen != 0}
	copy(out.Conversation[:], data[2:])
	r := &entryReader{rest: data[2+len(out.Conversation):]}
	out.Text, out.Reasoning = r.text(), r.text()
	if bits&hasFront != 0 {
		out.Front = r.block()
	}
	for range r.count() {
		out.Late = append(out.Late, r.block())
	}
	if bits&hasOrigin != 0 {
		k := r.key()
		out.Origin = &k
	}
	if bits&hasTokens != 0 {
		out.Tokens = &Tokens{From: r.key(), Sum: r.key(), Head: r.ids(), Output: r.ids()}
	}
	if bits&hasCalls != 0 {
		for range r.count() {
			out.Calls = append(out.Calls, Call{r.text(), r.text(), r.text()})
		}
	}
	if r.bad || len(r.rest) > 0 {
		return errEntry
	}
	*e = out
	return nil
}

// entryReader takes pieces off the front; after a fault it gives zero values.
type entryReader struct {
	rest string
	bad  bool
}

// count reads a number of things that take at least one byte each, so that no
// count asks for more memory than the bytes are worth.
func (r *entryReader) count() int {
	n, w := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if w <= 0 || n > uint64(len(r.rest)-w) {
		r.rest, r.bad = "", true
		return 0
	}
	r.rest = r.rest[w:]
	return int(n)
}

func (r *entryReader) text() string {
	n := r.count()
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *entryReader) ids() IDs {
	p := IDs(r.text())
	if len(p) == 0 {
		return nil
	}
	if p.check() != nil {
		r.bad = true
	}
	return p
}

func (r *entryReader) key() (k Key) {
	if len(r.rest) < len(k) {
		r.rest, r.bad = "", true
		return k
	}
	copy(k[:], r.rest)
	r.rest = r.rest[len(k):]
	return k
}

func (r *entryReader) block() *Block {
	b := &Block{Query: r.text(), Call: r.text(), CallIDs: r.ids(), Note: r.text(), Directory: r.text()}
	for range r.count() {
		b.Tools = append(b.Tools, Shown{Name: r.text(), JSON: r.text()})
	}
	return b
}
