package hnsw

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync/atomic"
)

// The form of a snapshot, little endian:
//
//	magic    8 bytes  "HNSW\x00\x00\x00\x01", the last byte is the version
//	config   u32 dim, u32 metric (and 256 if shared), u32 M, u32 build, u32 search, u64 seed
//	size     u32 nodes
//	entry    i64 slot, -1 for none
//	nodes    u64 key, u8 dead, u8 levels, f32[dim], for each level: u16 n, u32[n]
//	checksum u32 CRC-32C of all before it
const sharedBit = 256

const magic = "HNSW\x00\x00\x00\x01"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A CorruptError is a snapshot that can't be used: build the index anew.
type CorruptError struct{ Why string }

func (e *CorruptError) Error() string { return "hnsw: snapshot: " + e.Why + "; build the index anew" }

// Save writes the index. Writers wait; searches don't.
func (x *Index) Save(w io.Writer) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	sum := crc32.New(castagnoli)
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	le := binary.LittleEndian
	var buf []byte
	buf = append(buf, magic...)
	metric := int(x.cfg.Metric)
	if x.cfg.Shared {
		metric |= sharedBit
	}
	for _, n := range []int{x.cfg.Dim, metric, x.cfg.M, x.cfg.Build, x.cfg.Search} {
		buf = le.AppendUint32(buf, uint32(n))
	}
	buf = le.AppendUint64(buf, x.cfg.Seed)
	g := x.now.Load()
	size := g.size.Load()
	buf = le.AppendUint32(buf, size)
	buf = le.AppendUint64(buf, uint64(g.entry.Load()))
	for s := range size {
		n := g.node(s)
		buf = le.AppendUint64(buf, n.key)
		dead := byte(0)
		if n.dead.Load() {
			dead = 1
		}
		buf = append(buf, dead, byte(len(n.links)))
		for _, f := range n.vec {
			buf = le.AppendUint32(buf, math.Float32bits(f))
		}
		for l := range n.links {
			links := n.at(l)
			buf = le.AppendUint16(buf, uint16(len(links)))
			for _, to := range links {
				buf = le.AppendUint32(buf, to)
			}
		}
		if _, err := b.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if _, err := b.Write(buf); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	_, err := w.Write(le.AppendUint32(nil, sum.Sum32()))
	return err
}

// Load reads what Save wrote. A text that isn't that, whole and unchanged, is a
// *CorruptError. Where share is not nil and returns the very vector that was
// read for a key, that is kept in the place of a copy; the index must have been
// made with Config.Shared.
func Load(r io.Reader, share func(key uint64) []float32) (*Index, error) {
	d := &decoder{share: share, r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(castagnoli)}
	if got := d.bytes(len(magic)); d.err == nil && string(got) != magic {
		return nil, &CorruptError{"not a snapshot of this version"}
	}
	var cfg Config
	cfg.Dim = int(d.u32())
	metric := d.u32()
	cfg.Metric, cfg.Shared = Metric(min(metric&^sharedBit, 255)), metric&sharedBit != 0
	cfg.M, cfg.Build, cfg.Search = int(d.u32()), int(d.u32()), int(d.u32())
	cfg.Seed = d.u64()
	size, first := d.u32(), int64(d.u64())
	if d.err != nil {
		return nil, d.err
	}
	x, err := New(cfg)
	if err != nil {
		return nil, &CorruptError{err.Error()}
	}
	if x.cfg != cfg || first < -1 || first >= int64(size) || (first < 0) != (size == 0) {
		return nil, &CorruptError{"its head makes no sense"}
	}
	g := x.now.Load()
	for s := range size {
		if err := d.node(x, g, s, size); err != nil {
			return nil, err
		}
	}
	sum := d.sum.Sum32()
	if got := d.u32(); d.err == nil && got != sum {
		return nil, &CorruptError{"the checksum is another"}
	}
	if d.err != nil {
		return nil, d.err
	}
	if _, err := d.r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, &CorruptError{"more follows it"}
	}
	// Links lead to nodes that are on their level.
	for s := range size {
		n := g.node(s)
		for l := range n.links {
			for _, to := range n.at(l) {
				if g.node(to).level() < l || to == s {
					return nil, &CorruptError{"a link leads nowhere"}
				}
			}
		}
	}
	g.entry.Store(first)
	return x, nil
}

type decoder struct {
	r   *bufio.Reader
	sum hash.Hash32
	buf []byte
	err error

	share func(key uint64) []float32
}

func (d *decoder) bytes(n int) []byte {
	if cap(d.buf) < n {
		d.buf = make([]byte, n)
	}
	b := d.buf[:n]
	if d.err != nil {
		clear(b)
		return b
	}
	if _, err := io.ReadFull(d.r, b); err != nil {
		clear(b)
		d.err = err
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			d.err = &CorruptError{"it ends too early"}
		}
		return b
	}
	d.sum.Write(b)
	return b
}

func (d *decoder) u8() byte    { return d.bytes(1)[0] }
func (d *decoder) u16() uint16 { return binary.LittleEndian.Uint16(d.bytes(2)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.bytes(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.bytes(8)) }

func (d *decoder) node(x *Index, g *graph, slot, size uint32) error {
	n := g.grow()
	n.key = d.u64()
	dead, levels := d.u8(), int(d.u8())
	if d.err == nil && (dead > 1 || levels < 1 || levels > maxLevel) {
		return &CorruptError{fmt.Sprintf("node %d makes no sense", slot)}
	}
	n.vec = make([]float32, x.cfg.Dim)
	raw := d.bytes(4 * x.cfg.Dim)
	for i := range n.vec {
		f := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		if f != f || math.IsInf(float64(f), 0) {
			return &CorruptError{fmt.Sprintf("node %d holds no numbers", slot)}
		}
		n.vec[i] = f
	}
	if x.cfg.Shared && d.share != nil {
		if v := d.share(n.key); slices.Equal(v, n.vec) {
			n.vec = v
		}
	}
	n.links = make([]atomic.Pointer[[]uint32], levels)
	for l := range n.links {
		count := int(d.u16())
		if count > 2*x.cfg.M {
			return &CorruptError{fmt.Sprintf("node %d has %d links", slot, count)}
		}
		links := make([]uint32, count)
		for i := range links {
			if links[i] = d.u32(); links[i] >= size {
				return &CorruptError{"a link leads nowhere"}
			}
		}
		n.links[l].Store(&links)
	}
	if d.err != nil {
		return d.err
	}
	if dead == 1 {
		n.dead.Store(true)
		x.dead++
	} else if _, twice := x.slots[n.key]; twice {
		return &CorruptError{fmt.Sprintf("key %d twice", n.key)}
	} else {
		x.slots[n.key] = slot
	}
	g.size.Store(slot + 1)
	return nil
}
