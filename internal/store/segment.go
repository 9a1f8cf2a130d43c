package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/toolsidecar/sidecar/prefix"
)

// A segment is one file of a File, 00000001.log and so on, written at its end:
//
//	magic    8 bytes  "ledger 1"
//	key id   8 bytes  which key its records are encrypted with
//	records
//
// A record, in little endian:
//
//	magic    4 bytes  "put\n", or "gone" when it was erased
//	length   4 bytes  of the sealed entry
//	time     8 bytes  seconds since 1970, when it was written or last used
//	key      32 bytes
//	name     8 bytes  of the conversation
//	check    4 bytes  CRC-32C of the above
//	sealed   nonce, encrypted prefix.Entry, tag
//
// The check tells where records begin, also behind a damaged stretch. The tag
// covers the entry, its key and its name. A record is erased in place: its key,
// name and sealed entry are overwritten with zeros.
type segment struct {
	number uint32
	file   *os.File
	size   int64 // of the file
	live   int64 // bytes of the records that the index points to
	faulty bool  // a fault in it was logged
}

const (
	segmentMagic = "ledger 1"
	segmentHead  = len(segmentMagic) + 8

	recordPut  = "put\n"
	recordGone = "gone"
	recordHead = 4 + 4 + 8 + 32 + 8 + 4
	sealedOver = 12 + 16 // nonce and tag
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is the head of a record, and where it stands.
type record struct {
	put    bool
	offset int64
	length uint32 // of the sealed entry
	time   uint32
	key    prefix.Key
	name   prefix.Name
}

func (r *record) size() int64 { return recordHead + int64(r.length) }

// appendHead appends the head in bytes.
func (r *record) appendHead(b []byte) []byte {
	start := len(b)
	if r.put {
		b = append(b, recordPut...)
	} else {
		b = append(b, recordGone...)
	}
	b = binary.LittleEndian.AppendUint32(b, r.length)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.time))
	b = append(b, r.key[:]...)
	b = append(b, r.name[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// parseHead reads a head; ok is false for what is none.
func parseHead(b []byte) (r record, ok bool) {
	if len(b) < recordHead || crc32.Checksum(b[:recordHead-4], castagnoli) != binary.LittleEndian.Uint32(b[recordHead-4:]) {
		return r, false
	}
	switch string(b[:4]) {
	case recordPut:
		r.put = true
	case recordGone:
	default:
		return r, false
	}
	r.length = binary.LittleEndian.Uint32(b[4:])
	r.time = uint32(binary.LittleEndian.Uint64(b[8:]))
	copy(r.key[:], b[16:48])
	copy(r.name[:], b[48:56])
	return r, true
}

// about is what the tag of an entry covers beside the entry.
func (r *record) about() []byte {
	return append(append(make([]byte, 0, 40), r.key[:]...), r.name[:]...)
}

// scan calls each for the records of a segment's bytes in order and returns the end
// of the last one, and how many bytes are no records. A stretch that is none ends
// at the next head whose check holds.
func scan(b []byte, each func(record)) (end int64, bad int64) {
	end = int64(min(segmentHead, len(b)))
	for at := segmentHead; at < len(b); {
		r, ok := parseHead(b[at:])
		if ok && int64(at)+r.size() <= int64(len(b)) {
			r.offset = int64(at)
			each(r)
			at += int(r.size())
			end = int64(at)
			continue
		}
		next := nextHead(b, at+1)
		bad += int64(next - at)
		at = next
	}
	return end, bad
}

// nextHead is where the next head from there on begins, or the end.
func nextHead(b []byte, from int) int {
	for at := from; at+recordHead <= len(b); at++ {
		switch string(b[at : at+4]) {
		case recordPut, recordGone:
			if _, ok := parseHead(b[at:]); ok {
				return at
			}
		}
	}
	return len(b)
}

func segmentPath(dir string, number uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.log", number))
}

// create makes a new segment file.
func create(dir string, number uint32, id [8]byte) (*segment, error) {
	f, err := os.OpenFile(segmentPath(dir, number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(append([]byte(segmentMagic), id[:]...)); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	return &segment{number: number, file: f, size: int64(segmentHead)}, nil
}

// append writes records, whole or not at all, and returns where they begin. After
// an error the segment can't be written to any more if its end could not be
// restored, which sealed tells.
func (g *segment) append(b []byte) (offset int64, sealed bool, err error) {
	if _, err = g.file.WriteAt(b, g.size); err != nil {
		return 0, g.file.Truncate(g.size) != nil, err
	}
	offset = g.size
	g.size += int64(len(b))
	return offset, false, nil
}

// erase overwrites a record.
func (g *segment) erase(offset int64, size int64) error {
	gone := record{length: uint32(size - recordHead)}
	b := gone.appendHead(make([]byte, 0, size))
	_, err := g.file.WriteAt(b[:size], offset)
	return err
}

// read returns the bytes of a record.
func (g *segment) read(offset, size int64) ([]byte, error) {
	b := make([]byte, size)
	_, err := g.file.ReadAt(b, offset)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}
