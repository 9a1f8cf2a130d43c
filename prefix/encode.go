package prefix

import (
	"encoding/binary"
	"fmt"
)

// An entry in bytes, for ledgers that keep it outside of this process:
//
//	version  1 byte
//	flags    1 byte: Replaced, Front is there, Origin is there
//	name     8 bytes, Conversation
//	origin   32 bytes, if there
//	text, reasoning
//	front    a block, if there
//	late     count, blocks
//
// A block is query, call, note, directory, count, and name and JSON of each tool.
// A text is its length and its bytes; lengths and counts are varints.
const entryVersion = 1

const (
	flagReplaced = 1 << iota
	flagFront
	flagOrigin
)

// Append appends the entry in bytes.
func (e *Entry) Append(b []byte) []byte {
	flags := byte(0)
	if e.Replaced {
		flags |= flagReplaced
	}
	if e.Front != nil {
		flags |= flagFront
	}
	if e.Origin != nil {
		flags |= flagOrigin
	}
	b = append(b, entryVersion, flags)
	b = append(b, e.Conversation[:]...)
	if e.Origin != nil {
		b = append(b, e.Origin[:]...)
	}
	b = appendText(appendText(b, e.Text), e.Reasoning)
	if e.Front != nil {
		b = e.Front.append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(e.Late)))
	for _, l := range e.Late {
		b = l.append(b)
	}
	return b
}

func (k *Block) append(b []byte) []byte {
	for _, s := range []string{k.Query, k.Call, k.Note, k.Directory} {
		b = appendText(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(k.Tools)))
	for _, t := range k.Tools {
		b = appendText(appendText(b, t.Name), t.JSON)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// DecodeEntry reads what Append wrote. The entry shares no memory with b.
func DecodeEntry(b []byte) (*Entry, error) {
	d := decoder{rest: string(b)}
	if v := d.byte(); v != entryVersion {
		return nil, fmt.Errorf("entry of version %d; %d is read", v, entryVersion)
	}
	flags := d.byte()
	e := &Entry{Replaced: flags&flagReplaced != 0}
	copy(e.Conversation[:], d.take(len(e.Conversation)))
	if flags&flagOrigin != 0 {
		e.Origin = new(Key)
		copy(e.Origin[:], d.take(len(e.Origin)))
	}
	e.Text, e.Reasoning = d.text(), d.text()
	if flags&flagFront != 0 {
		e.Front = d.block()
	}
	// A block has five bytes at least, a tool two: no count makes for more memory
	// than its bytes.
	if n := d.count(5); n > 0 {
		e.Late = make([]*Block, n)
		for i := range e.Late {
			e.Late[i] = d.block()
		}
	}
	if d.bad || d.rest != "" {
		return nil, fmt.Errorf("entry of %d bytes is cut or has more behind its end", len(b))
	}
	return e, nil
}

// decoder reads from rest; bad is set for good when something is missing.
type decoder struct {
	rest string
	bad  bool
}

func (d *decoder) take(n int) string {
	if d.bad || n > len(d.rest) {
		d.bad = true
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) byte() byte {
	if s := d.take(1); s != "" {
		return s[0]
	}
	return 0
}

// count reads how many things follow of which each takes at least size bytes.
func (d *decoder) count(size int) int {
	// A varint has at most binary.MaxVarintLen64 bytes.
	n, used := binary.Uvarint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	if used <= 0 || n > uint64(len(d.rest)-used)/uint64(size) {
		d.bad = true
		return 0
	}
	d.rest = d.rest[used:]
	return int(n)
}

func (d *decoder) text() string { return d.take(d.count(1)) }

func (d *decoder) block() *Block {
	k := &Block{Query: d.text(), Call: d.text(), Note: d.text(), Directory: d.text()}
	if n := d.count(2); n > 0 {
		k.Tools = make([]Shown, n)
		for i := range k.Tools {
			k.Tools[i] = Shown{d.text(), d.text()}
		}
	}
	return k
}
