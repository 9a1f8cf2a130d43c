package tokenizer

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The packed form of a vocabulary whose ids 0 to 255 are the single bytes in
// some order, and whose merge i makes id 256 + i, is one zlib stream of
//
//	uint32 length of the header, little-endian, as all numbers here
//	header, JSON: see packHeader
//	256 bytes: the byte of ids 0 to 255
//	low, middle and high 8 bits of the left ids of all merges: n bytes each
//	the same of the right ids
//
// The bytes of a token follow from its merge, so they aren't stored. By planes,
// Qwen3's 151,387 merges compress to 0.53 MB; its tokens as text to 0.64 MB.
type packHeader struct {
	Name        string
	Pattern     string
	NFC         bool
	Merges      int
	Added       []Added
	Unreachable []int32 // see source.unreachable
}

// Pack writes a tokenizer.json in the form that the package embeds. It is for
// the generator of that file.
func Pack(w io.Writer, tokenizerJSON []byte, name string) error {
	src, err := parseJSON(tokenizerJSON)
	if err != nil {
		return err
	}
	if src.wholeFirst {
		return errors.New("pack: ignore_merges is set")
	}
	t, err := build(src)
	if err != nil {
		return err
	}
	h := packHeader{Name: name, Pattern: src.pattern.name, NFC: src.nfc, Merges: len(src.merges), Added: t.added, Unreachable: []int32{}}
	if n := src.vocab.size(); n != 256+len(src.merges) {
		return fmt.Errorf("pack: %d ids are not 256 and one for each of %d merges", n, len(src.merges))
	}
	planes := make([]byte, 256, 256+6*len(src.merges))
	for id := range int32(src.vocab.size()) {
		b := src.vocab.token(id)
		if id < 256 {
			if len(b) != 1 {
				return fmt.Errorf("pack: token %d is not a single byte", id)
			}
			planes[id] = b[0]
		} else if _, ok := t.pieces.find(string(b)); !ok {
			h.Unreachable = append(h.Unreachable, id)
		}
	}
	for _, side := range []func(pairMerge) int32{
		func(p pairMerge) int32 { return p.left },
		func(p pairMerge) int32 { return p.right },
	} {
		for shift := 0; shift < 24; shift += 8 {
			for i, p := range src.merges {
				if p.merge.rank != int32(i) || p.merge.id != int32(256+i) {
					return fmt.Errorf("pack: merge %d makes id %d", p.merge.rank, p.merge.id)
				}
				planes = append(planes, byte(side(p)>>shift))
			}
		}
	}
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	z, err := zlib.NewWriterLevel(w, zlib.BestCompression)
	if err != nil {
		return err
	}
	for _, b := range [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head, planes} {
		if _, err := z.Write(b); err != nil {
			return err
		}
	}
	return z.Close()
}

func unpack(packed []byte) (*source, error) {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	if len(data) < 4 || uint64(len(data)-4) < uint64(binary.LittleEndian.Uint32(data)) {
		return nil, io.ErrUnexpectedEOF
	}
	n := int(binary.LittleEndian.Uint32(data))
	var h packHeader
	if err := json.Unmarshal(data[4:4+n], &h); err != nil {
		return nil, err
	}
	planes := data[4+n:]
	if len(planes) != 256+6*h.Merges {
		return nil, fmt.Errorf("%d bytes of merges, want %d", len(planes), 256+6*h.Merges)
	}
	src := &source{name: h.Name, pattern: patternByName(h.Pattern), nfc: h.NFC, added: h.Added, unreachable: h.Unreachable}
	if src.pattern == nil {
		return nil, fmt.Errorf("pattern %q is unknown", h.Pattern)
	}
	v := &src.vocab
	v.bytes = make([]byte, 256, 8*(256+h.Merges))
	v.start = make([]uint32, 257, 257+h.Merges)
	for i := range 256 {
		v.bytes[i] = planes[i]
		v.start[i+1] = uint32(i + 1)
	}
	planes = planes[256:]
	src.merges = make([]pairMerge, h.Merges)
	for i := range src.merges {
		id := func(plane int) int32 {
			return int32(planes[plane*h.Merges+i]) | int32(planes[(plane+1)*h.Merges+i])<<8 | int32(planes[(plane+2)*h.Merges+i])<<16
		}
		made := int32(256 + i)
		l, r := id(0), id(3)
		if l >= made || r >= made {
			return nil, fmt.Errorf("merge %d uses id %d before it is made", i, max(l, r))
		}
		src.merges[i] = pairMerge{l, r, merge{int32(i), made}}
		v.bytes = append(v.bytes, v.token(l)...)
		v.bytes = append(v.bytes, v.token(r)...)
		v.start = append(v.start, uint32(len(v.bytes)))
	}
	return src, nil
}
