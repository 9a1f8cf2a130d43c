package store

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/retrieval/usage"
)

// UsageConfig says how a Usage behaves.
type UsageConfig struct {
	Path     string           // of the file; "" keeps all in memory
	MaxBytes int              // of all tenants together, in memory; 0 means 64 MiB
	Strength float64          // see usage.Config
	Now      func() time.Time // the clock; nil for time.Now
	Log      func(string)     // takes one line about what could not be read or written; nil for none
}

// Usage holds the usage memories of all tenants, and keeps them in a file: JSON
// lines, of which the first says what it is, and each other is an event of one
// tenant. It is safe for concurrent use. What was learned survives the end of the
// process in whatever way it comes; what was cleared is gone from the file.
type Usage struct {
	cfg  UsageConfig
	salt []byte
	lock *os.File // nil without a file

	// mu guards the fields below.
	mu      sync.Mutex
	tenants map[string]*tenantUsage // by id
	file    *os.File
	bytes   int   // of all memories
	written int64 // bytes of the file
	stale   bool  // the file has lines of tenants that were dropped
	failing bool  // the last write failed, and that was logged
}

type tenantUsage struct {
	memory *usage.Memory
	used   int64 // Unix seconds of the last event
	bytes  int
}

const (
	usageBytes     = 64 << 20 // of all tenants
	usageTenant    = 8 << 20  // of one
	maxUsageLine   = 1 << 20  // an event of 4,096 dimensions and 256 words takes some 80 kB
	usageSlack     = 1 << 20  // bytes of a file that are never worth rewriting
	usageVersion   = 1
	usageSaltBytes = 16

	usageTemp = ".new-" // behind the file's name, and a number: what it is written anew as
)

// usageLine is one line of the file.
type usageLine struct {
	Version int          `json:"usage_memory,omitempty"` // of the first line
	Salt    string       `json:"salt,omitempty"`
	Tenant  string       `json:"tenant,omitempty"`
	Event   *usage.Event `json:"event,omitempty"`
}

// NotUsageError is a file that no Usage has written.
type NotUsageError struct{ Path string }

func (e *NotUsageError) Error() string { return e.Path + " holds no usage memory" }

// OpenUsage opens the file, or makes it. Lines that can't be read are skipped, and
// the log says so. Errors: [*NotUsageError], another process that has it open, and
// those of the file system.
func OpenUsage(cfg UsageConfig) (*Usage, error) {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, usageBytes)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	u := &Usage{cfg: cfg, tenants: make(map[string]*tenantUsage), salt: make([]byte, usageSaltBytes)}
	if _, err := rand.Read(u.salt); err != nil {
		return nil, err
	}
	if cfg.Path == "" {
		return u, nil
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, err
	}
	var err error
	if u.lock, err = lockFile(cfg.Path + ".lock"); errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%s: %w; stop it, or ask it with GET and DELETE /sidecar/v1/usage", cfg.Path, err)
	} else if err != nil {
		return nil, err
	}
	err = u.load()
	if err == nil {
		err = u.sweep()
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// load reads the file and opens it for appending.
func (u *Usage) load() error {
	f, err := os.Open(u.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return u.rewrite()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := usageReader{r: bufio.NewReaderSize(f, 64<<10)}
	n, bad := 0, 0
	for {
		text, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		var line usageLine
		err = json.Unmarshal(text, &line)
		if n++; n == 1 {
			if u.salt, _ = hex.DecodeString(line.Salt); err != nil || line.Version != usageVersion || len(u.salt) != usageSaltBytes {
				return &NotUsageError{u.cfg.Path}
			}
			continue
		}
		if err != nil || line.Event == nil || line.Tenant == "" {
			bad++
			continue
		}
		if _, err := u.learn(line.Tenant, *line.Event); err != nil {
			bad++
		}
	}
	if n == 0 {
		return u.rewrite()
	}
	if bad > 0 {
		u.cfg.Log(fmt.Sprintf("%s: %d lines can't be read and are dropped, as after a write that was cut", u.cfg.Path, bad))
		return u.rewrite()
	}
	if u.file, err = os.OpenFile(u.cfg.Path, os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if u.written = lines.read; lines.open || u.written > 2*int64(u.bytes)+usageSlack {
		return u.rewrite()
	}
	return nil
}

// usageReader reads lines that are not blank, and of one that is longer than
// maxUsageLine the beginning alone, which is no event.
type usageReader struct {
	r    *bufio.Reader
	line []byte
	read int64 // bytes
	open bool  // the last line has no end
}

func (l *usageReader) next() ([]byte, error) {
	for {
		l.line = l.line[:0]
		for {
			piece, err := l.r.ReadSlice('\n')
			l.read += int64(len(piece))
			l.line = append(l.line, piece[:min(len(piece), maxUsageLine-len(l.line))]...)
			if err == bufio.ErrBufferFull {
				continue
			}
			l.open = err != nil && len(piece) > 0
			if err != nil && (err != io.EOF || len(l.line) == 0) {
				return nil, err
			}
			break
		}
		if line := bytes.TrimSpace(l.line); len(line) > 0 {
			return line, nil
		}
	}
}

// sweep takes away what rewrites have left that a killed process did not finish:
// it may hold what was cleared since.
func (u *Usage) sweep() error {
	dir, base := filepath.Split(u.cfg.Path)
	files, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), base+usageTemp) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	return err
}

// Tenant is the id under which a client's key has its memory: it tells nothing of
// the key.
func (u *Usage) Tenant(key string) string {
	mac := hmac.New(sha256.New, u.salt)
	io.WriteString(mac, key)
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Memory is that of a tenant, nil where nothing is known.
func (u *Usage) Memory(tenant string) *usage.Memory {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.tenants[tenant]; t != nil {
		return t.memory
	}
	return nil
}

// Learn remembers an event of a tenant as of now. An event that can't be written
// is remembered none the less, and the log says so.
func (u *Usage) Learn(tenant string, e usage.Event) error {
	e.At = u.cfg.Now()
	return u.Add(tenant, e)
}

// Add is Learn for an event of its own time, as a log has it.
func (u *Usage) Add(tenant string, e usage.Event) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	fresh, err := u.learn(tenant, e)
	if err != nil || !fresh || u.file == nil {
		return err
	}
	u.append(usageLine{Tenant: tenant, Event: &e})
	if live := int64(u.bytes); u.written > 2*live+usageSlack {
		if err := u.rewrite(); err != nil {
			u.failed(err)
		}
	}
	return nil
}

func (u *Usage) learn(tenant string, e usage.Event) (fresh bool, err error) {
	t := u.tenants[tenant]
	if t == nil {
		m, err := usage.New(usage.Config{MaxBytes: min(usageTenant, u.cfg.MaxBytes), Strength: u.cfg.Strength})
		if err != nil {
			return false, err
		}
		t = &tenantUsage{memory: m}
	}
	if fresh, err = t.memory.Learn(e); err != nil {
		return false, err
	}
	u.tenants[tenant] = t
	t.used = max(t.used, e.At.Unix())
	_, _, bytes := t.memory.Stats()
	u.bytes += bytes - t.bytes
	t.bytes = bytes
	for u.bytes > u.cfg.MaxBytes && len(u.tenants) > 1 {
		oldest := ""
		for id, x := range u.tenants {
			if x != t && (oldest == "" || x.used < u.tenants[oldest].used || x.used == u.tenants[oldest].used && id < oldest) {
				oldest = id
			}
		}
		u.drop(oldest)
		u.stale = true
	}
	return fresh, nil
}

func (u *Usage) drop(tenant string) {
	u.bytes -= u.tenants[tenant].bytes
	delete(u.tenants, tenant)
}

// append writes one line; the caller holds mu.
func (u *Usage) append(line usageLine) {
	b, err := json.Marshal(line)
	if err != nil {
		panic(err) // our own types
	}
	n, err := u.file.Write(append(b, '\n'))
	u.written += int64(n)
	if err != nil {
		u.failed(err)
		return
	}
	u.failing = false
}

// failed logs the first of a row of writes that failed.
func (u *Usage) failed(err error) {
	if !u.failing {
		u.cfg.Log(fmt.Sprintf("usage memory: %v; what is learned from here on may be lost at the end of the process", err))
	}
	u.failing = true
}

// rewrite makes the file anew from what is held; the caller holds mu, or is the
// only one.
func (u *Usage) rewrite() error {
	tmp, err := os.CreateTemp(filepath.Dir(u.cfg.Path), filepath.Base(u.cfg.Path)+usageTemp)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(tmp)
	enc := json.NewEncoder(w)
	err = enc.Encode(usageLine{Version: usageVersion, Salt: hex.EncodeToString(u.salt)})
	for _, id := range u.ids() {
		for _, e := range u.tenants[id].memory.Events() {
			err = errors.Join(err, enc.Encode(usageLine{Tenant: id, Event: &e}))
		}
	}
	size := int64(0)
	if err = errors.Join(err, w.Flush(), tmp.Chmod(0o600), tmp.Sync()); err == nil {
		size, err = tmp.Seek(0, io.SeekEnd)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), u.cfg.Path)
	}
	if err != nil {
		return errors.Join(err, tmp.Close(), os.Remove(tmp.Name()))
	}
	if u.file != nil {
		u.file.Close()
	}
	u.file, u.written, u.stale = tmp, size, false
	return nil
}

func (u *Usage) ids() []string {
	ids := make([]string, 0, len(u.tenants))
	for id := range u.tenants {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Tenants lists the tenants that have a memory, by id.
func (u *Usage) Tenants() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ids()
}

// Clear forgets what a tenant taught, in the file too, and says how many queries
// that were.
func (u *Usage) Clear(tenant string) (queries int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.tenants[tenant]
	if t == nil {
		if u.stale && u.file != nil { // it may be one of them
			err = u.rewrite()
		}
		return 0, err
	}
	u.drop(tenant)
	if u.file != nil {
		if err := u.rewrite(); err != nil { // what the file holds is not forgotten
			u.tenants[tenant] = t
			u.bytes += t.bytes
			return 0, err
		}
	}
	queries, _, _ = t.memory.Stats()
	t.memory.Clear() // for searches that hold it
	return queries, nil
}

// Close lets go of the file.
func (u *Usage) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var err error
	if u.file != nil {
		err = u.file.Close()
		u.file = nil
	}
	if u.lock != nil {
		err = errors.Join(err, u.lock.Close())
		u.lock = nil
	}
	return err
}
