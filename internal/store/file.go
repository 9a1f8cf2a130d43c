package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/prefix"
)

// FileConfig says how a File behaves.
type FileConfig struct {
	Dir string // of its own; made if it is not there
	// Key encrypts the entries; at least MinKey bytes. With another key than last
	// time the ledger starts empty.
	Key []byte
	// MaxBytes bounds the files together. Entries take three quarters of it at
	// most, which leaves room to write before what is gone is cleaned away.
	MaxBytes int64
	// CacheBytes bounds the entries kept in memory beside the files; 0 is a quarter
	// of MaxBytes, 64 MiB at most.
	CacheBytes int
	TTL        time.Duration    // how long an entry is kept that nobody uses; 0 is for ever
	Now        func() time.Time // the clock; nil for time.Now
	// Log takes one line about what could not be read or written; nil for none.
	Log func(line string)
}

// File is a Ledger in files of one directory: a log of records in segments, with an
// index in memory. What was put survives the end of the process in whatever way it
// comes, as the operating system has it; after a loss of power the last seconds may
// be missing. Nothing that is gone from the ledger stays readable in the files.
type File struct {
	cfg         FileConfig
	seal        *sealer
	cache       *Memory
	lock        *os.File
	segmentSize int64

	// mu guards the fields below. Entries are read from files without it.
	mu       sync.Mutex
	index    index
	segments []*segment // by number; the last one is written to. Empty when closed
	live     int64      // bytes of the records that the index points to
	total    int64      // bytes of the files
	evicted  int
	failing  bool // the last write failed, and that was logged
}

// Sizes of FileConfig.
const (
	MinFileBytes = 1 << 20

	// There are some sixteen segments, as each is read, cleaned and removed as one;
	// 8 MiB take about 5 ms to copy.
	segmentsWanted = 16
	maxSegment     = 8 << 20
	// maxEntry is the largest entry kept, which bounds a segment file to twice this.
	maxEntry = 64 << 20
)

// OpenFile opens a ledger, or makes it. Files that are damaged, cut or of another
// key are used as far as they can be, and the log says what was not.
func OpenFile(cfg FileConfig) (*File, error) {
	if cfg.MaxBytes < MinFileBytes {
		return nil, fmt.Errorf("ledger %s: %d bytes are too few; at least %d are needed", cfg.Dir, cfg.MaxBytes, MinFileBytes)
	}
	seal, err := newSealer(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", cfg.Dir, err)
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = int(min(cfg.MaxBytes/4, 64<<20))
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	f := &File{cfg: cfg, seal: seal, cache: NewMemory(cfg.CacheBytes), index: newIndex()}
	f.cache.TTL, f.cache.Now = cfg.TTL, cfg.Now
	f.segmentSize = min(cfg.MaxBytes/segmentsWanted, maxSegment)
	if f.lock, err = lock(cfg.Dir); err != nil {
		return nil, err
	}
	if err := f.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger %s: %w", cfg.Dir, err), f.Close())
	}
	return f, nil
}

// recover reads the segments that are there and opens the last one, or a new one,
// for writing.
func (f *File) recover() error {
	paths, err := filepath.Glob(filepath.Join(f.cfg.Dir, "*.log"))
	if err != nil {
		return err
	}
	slices.Sort(paths) // by number, which has eight digits
	now := f.now()
	var buf []byte // for one segment after the other
	for _, path := range paths {
		var number uint32
		if _, err := fmt.Sscanf(filepath.Base(path), "%d.log", &number); err != nil || segmentPath(f.cfg.Dir, number) != path {
			f.logf("%s is no segment and is left alone", filepath.Base(path))
			continue
		}
		if buf, err = f.load(path, number, now, buf); err != nil {
			return err
		}
	}
	if n := len(f.segments); n == 0 || f.segments[n-1].size >= f.segmentSize {
		if err := f.roll(); err != nil {
			return err
		}
	}
	f.room()
	return nil
}

// load reads one segment into the index. Later records replace earlier ones. It
// reads into buf, which it returns as large as it has grown.
func (f *File) load(path string, number, now uint32, buf []byte) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return buf, err
	}
	b, why := f.segmentBytes(file, buf)
	if why != "" {
		f.logf("%s %s: it is removed, and its conversations start anew", filepath.Base(path), why)
		return buf, errors.Join(file.Close(), os.Remove(path))
	}
	g := &segment{number: number, file: file, size: int64(len(b))}
	f.segments = append(f.segments, g)
	f.total += g.size
	kept := 0
	end, bad := scan(b, func(r record) {
		if !r.put {
			return
		}
		if i, ok := f.index.at[shorten(r.key)]; ok {
			f.drop(i) // replaced, or copied, when the process ended
		}
		g.live += r.size()
		f.live += r.size()
		kept++
		f.index.add(slot{key: shorten(r.key), name: number64(r.name), segment: number, offset: uint32(r.offset), size: uint32(r.size()), used: min(r.time, now)})
	})
	if bad > 0 {
		f.logf("%s: %d of %d bytes can't be read and are skipped, as after a write that was cut; %d entries are kept", filepath.Base(path), bad, len(b), kept)
		if err := file.Truncate(end); err == nil {
			f.total -= g.size - end
			g.size = end
		}
	}
	return b, nil
}

// segmentBytes are the bytes of a segment file, or why they are of no use.
func (f *File) segmentBytes(file *os.File, buf []byte) (b []byte, why string) {
	info, err := file.Stat()
	if err != nil || info.Size() > 2*maxEntry {
		return nil, "is no file that this ledger has written"
	}
	b = slices.Grow(buf[:0], int(info.Size()))[:info.Size()]
	n, _ := file.ReadAt(b, 0)
	b = b[:n]
	if len(b) < segmentHead || string(b[:len(segmentMagic)]) != segmentMagic {
		return nil, "does not begin as a segment does"
	}
	if string(b[len(segmentMagic):segmentHead]) != string(f.seal.id[:]) {
		return nil, "is encrypted with another key"
	}
	return b, ""
}

// Get returns the entry under k and marks it as used.
func (f *File) Get(k prefix.Key) (*prefix.Entry, bool) {
	for {
		f.mu.Lock()
		f.expire()
		i, ok := f.index.at[shorten(k)]
		if !ok {
			f.mu.Unlock()
			return nil, false
		}
		f.index.use(i, f.now())
		s := f.index.slots[i]
		g := f.segment(s.segment)
		f.mu.Unlock()
		if e, ok := f.cache.Get(k); ok {
			return e, true
		}
		e, err := f.fetch(g, s, k)
		f.mu.Lock()
		again, ok := f.index.at[shorten(k)]
		if !ok || f.index.slots[again].segment != s.segment || f.index.slots[again].offset != s.offset {
			f.mu.Unlock() // it moved, was replaced or deleted meanwhile
			continue
		}
		if err != nil {
			if !g.faulty {
				g.faulty = true
				f.logf("%s: the entry at byte %d is dropped: %v", filepath.Base(g.file.Name()), s.offset, err)
			}
			f.drop(again)
		} else {
			f.cache.Put(k, e)
		}
		f.mu.Unlock()
		return e, err == nil
	}
}

// fetch reads an entry from its file. It holds no lock.
func (f *File) fetch(g *segment, s slot, k prefix.Key) (*prefix.Entry, error) {
	b, err := g.read(int64(s.offset), int64(s.size))
	if err != nil {
		return nil, err
	}
	r, ok := parseHead(b)
	if !ok || !r.put || r.key != k || r.size() != int64(s.size) {
		return nil, errors.New("its record is damaged")
	}
	plain, err := f.seal.open(b[recordHead:], r.about())
	if err != nil {
		return nil, errors.New("it does not pass its check")
	}
	e := &prefix.Entry{}
	return e, e.UnmarshalBinary(plain)
}

// Put stores e under k, replacing what was there.
func (f *File) Put(k prefix.Key, e *prefix.Entry) {
	r := record{put: true, key: k, name: e.Conversation, time: f.now()}
	plain, _ := e.AppendBinary(make([]byte, 0, 256+len(e.Text))) // does not fail
	r.length = uint32(len(plain) + sealedOver)
	b := make([]byte, 0, int(r.size()))
	b = f.seal.seal(r.appendHead(b), plain, r.about())

	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	if i, ok := f.index.at[shorten(k)]; ok {
		f.drop(i)
	}
	if r.size() > min(f.cfg.MaxBytes/4, maxEntry) {
		f.evicted++
		return
	}
	if len(f.segments) == 0 || !f.write(&r, b) {
		return
	}
	f.cache.Put(k, e)
	f.room()
}

// write appends a record and points the index to it, used at r.time. The caller
// holds mu.
func (f *File) write(r *record, b []byte) bool {
	g := f.segments[len(f.segments)-1]
	if g.size >= f.segmentSize {
		if err := f.roll(); err != nil {
			f.failed(err)
			return false
		}
		g = f.segments[len(f.segments)-1]
	}
	offset, sealed, err := g.append(b)
	if sealed {
		err = errors.Join(err, f.roll())
	}
	if err != nil {
		f.failed(err)
		return false
	}
	f.failing = false
	n := int64(len(b))
	f.total, f.live, g.live = f.total+n, f.live+n, g.live+n
	f.index.add(slot{key: shorten(r.key), name: number64(r.name), segment: g.number, offset: uint32(offset), size: uint32(n), used: r.time})
	return true
}

// failed logs the first of a row of writes that failed: an entry that is not
// written costs prefill.
func (f *File) failed(err error) {
	if !f.failing {
		f.failing = true
		f.logf("entries can't be written and are lost until they can: %v", err)
	}
}

// roll begins a new segment.
func (f *File) roll() error {
	number := uint32(1)
	if n := len(f.segments); n > 0 {
		number = f.segments[n-1].number + 1
	}
	g, err := create(f.cfg.Dir, number, f.seal.id)
	if err != nil {
		return err
	}
	f.segments = append(f.segments, g)
	f.total += g.size
	return nil
}

// room evicts what was used longest ago until entries take no more than their
// share, then cleans until the files keep to theirs. The caller holds mu.
func (f *File) room() {
	for f.live > f.cfg.MaxBytes/4*3 {
		f.evicted++
		f.drop(f.index.last())
	}
	for f.total > f.cfg.MaxBytes {
		if !f.clean() {
			return
		}
	}
}

// clean copies what lives in the segment with the least of it to the end of the
// log and removes the segment.
func (f *File) clean() bool {
	if len(f.segments) < 2 {
		if err := f.roll(); err != nil {
			f.failed(err)
			return false
		}
	}
	old := f.segments[:len(f.segments)-1]
	g := slices.MinFunc(old, func(a, b *segment) int { return cmp.Compare(a.live*b.size, b.live*a.size) })
	b, err := g.read(0, g.size)
	if err != nil {
		f.failed(err)
		return false
	}
	scan(b, func(r record) {
		i, ok := f.index.at[shorten(r.key)]
		if !ok || !r.put || f.index.slots[i].segment != g.number || f.index.slots[i].offset != uint32(r.offset) {
			return
		}
		s := f.index.slots[i]
		r.time = s.used
		moved := append(r.appendHead(make([]byte, 0, r.size())), b[r.offset+recordHead:r.offset+r.size()]...)
		last := f.segments[len(f.segments)-1]
		if last.size >= f.segmentSize {
			if err := f.roll(); err != nil {
				f.failed(err)
				return
			}
			last = f.segments[len(f.segments)-1]
		}
		offset, _, err := last.append(moved)
		if err != nil {
			f.failed(err)
			return
		}
		f.total += r.size()
		last.live += r.size()
		g.live -= r.size()
		f.index.slots[i].segment, f.index.slots[i].offset = last.number, uint32(offset)
	})
	for i := f.index.last(); i != 0 && g.live > 0; { // what could not be copied goes with its segment
		before := f.index.slots[i].prev
		if f.index.slots[i].segment == g.number {
			f.drop(i)
		}
		i = before
	}
	f.segments = slices.DeleteFunc(f.segments, func(o *segment) bool { return o == g })
	f.total -= g.size
	if err := errors.Join(g.file.Close(), os.Remove(g.file.Name())); err != nil {
		f.failed(err)
	}
	return true
}

// drop takes an entry out of the index and overwrites its record. The caller
// holds mu.
func (f *File) drop(i int32) error {
	s := f.index.slots[i]
	f.index.remove(i)
	g := f.segment(s.segment)
	n := int64(s.size)
	f.live, g.live = f.live-n, g.live-n
	err := g.erase(int64(s.offset), n)
	if err != nil {
		f.failed(err)
	}
	return err
}

// expire drops what nobody used for the TTL. The caller holds mu.
func (f *File) expire() {
	if f.cfg.TTL == 0 {
		return
	}
	now, ttl := f.now(), uint32(min(f.cfg.TTL/time.Second, 1<<31))
	for i := f.index.last(); i != 0 && now > ttl && f.index.slots[i].used < now-ttl; i = f.index.last() {
		f.drop(i)
	}
}

// Delete removes the entries of a conversation for good. It looks at every entry
// of the index, and returns when the files are on disk.
func (f *File) Delete(n prefix.Name) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cache.Delete(n)
	var faults []error
	touched := map[uint32]bool{}
	name, entries := number64(n), 0
	for i := range f.index.slots {
		if s := f.index.slots[i]; i > 0 && s.size > 0 && s.name == name {
			touched[s.segment] = true
			entries++
			faults = append(faults, f.drop(int32(i)))
		}
	}
	for number := range touched {
		faults = append(faults, f.segment(number).file.Sync())
	}
	return entries, errors.Join(faults...)
}

// segment is the open segment of that number. The caller holds mu.
func (f *File) segment(number uint32) *segment {
	i, _ := slices.BinarySearchFunc(f.segments, number, func(g *segment, n uint32) int { return cmp.Compare(g.number, n) })
	return f.segments[i]
}

// Stats reports entries held, the bytes of their records, and how many entries
// were evicted since the start.
func (f *File) Stats() (entries, bytes, evicted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.index.at), int(f.live), f.evicted
}

// Close writes what the operating system still holds to disk and lets go of the
// files.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var faults []error
	for _, g := range f.segments {
		faults = append(faults, g.file.Sync(), g.file.Close())
	}
	f.segments, f.index = nil, newIndex()
	f.cache.Close()
	if f.lock != nil {
		faults = append(faults, f.lock.Close())
		f.lock = nil
	}
	return errors.Join(faults...)
}

// now is in seconds since 1970, as records and the index have it.
func (f *File) now() uint32 { return uint32(f.cfg.Now().Unix()) }

func (f *File) logf(format string, args ...any) {
	f.cfg.Log(fmt.Sprintf("ledger %s: "+format, append([]any{f.cfg.Dir}, args...)...))
}
