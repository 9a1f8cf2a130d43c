package embedder

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// The cache file, numbers little-endian; records are only appended:
//
//	8 bytes      "EMBVEC1\n"
//	a record a text:
//	  32 bytes   SHA-256 of the text
//	  4 bytes    d, the dimensions
//	  4 d bytes  the vector, float32
//	  4 bytes    CRC-32 (IEEE) of the record so far
//
// A record that is cut short or whose sum is wrong ends the file, and so does one of
// other dimensions than the first: it and what follows is cut off and asked for
// again. Several processes may append to a file.
const cacheMagic = "EMBVEC1\n"

// maxCached bounds the vectors kept; those after are not remembered. 200,000 of
// 384 dimensions are 300 MB.
const maxCached = 200_000

// maxCachedDim bounds a vector read from a file.
const maxCachedDim = 1 << 16

type cache struct {
	mu   sync.Mutex // guards all below
	have map[[sha256.Size]byte][]float32
	dim  int      // of all vectors; 0 before the first
	file *os.File // nil without a folder
}

// openCache reads the file of one server and model in a folder, which is made if
// there is none.
func openCache(dir, maker string) (*cache, error) {
	c := &cache{have: make(map[[sha256.Size]byte][]float32)}
	if dir == "" {
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := sha256.Sum256([]byte(maker))
	f, err := os.OpenFile(filepath.Join(dir, hex.EncodeToString(name[:8])+".vectors"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	end, err := c.read(f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil && end == 0 {
		_, err = f.WriteString(cacheMagic)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cache of vectors: %w", err), f.Close())
	}
	c.file = f
	return c, nil
}

// read takes in the records of a file and returns where the good ones end.
func (c *cache) read(f *os.File) (end int64, err error) {
	raw, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(raw, []byte(cacheMagic)) {
		return 0, nil
	}
	at := len(cacheMagic)
	for at+sha256.Size+4 <= len(raw) {
		dim := int(binary.LittleEndian.Uint32(raw[at+sha256.Size:]))
		size := sha256.Size + 4 + 4*dim
		if dim > maxCachedDim || c.dim > 0 && dim != c.dim || at+size+4 > len(raw) || crc32.ChecksumIEEE(raw[at:at+size]) != binary.LittleEndian.Uint32(raw[at+size:]) {
			break
		}
		c.dim = dim
		v := make([]float32, dim)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[at+sha256.Size+4+4*i:]))
		}
		if len(c.have) < maxCached {
			c.have[[sha256.Size]byte(raw[at:])] = v
		}
		at += size + 4
	}
	return int64(at), nil
}

func (c *cache) get(text string) ([]float32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.have[sha256.Sum256([]byte(text))]
	return v, ok
}

// put remembers the vectors of texts, but for those that point nowhere, which the
// server may mend. Vectors of other dimensions than those before are an error: they
// can't be compared with them.
func (c *cache) put(texts []string, vectors [][]float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range vectors {
		if c.dim > 0 && len(v) != c.dim {
			return fmt.Errorf("embeddings: vectors of %d dimensions, where those before had %d; if the model is another now, name another folder for the cache, and start anew", len(v), c.dim)
		}
	}
	var out []byte
	for i, t := range texts {
		key := sha256.Sum256([]byte(t))
		if _, ok := c.have[key]; ok || len(c.have) >= maxCached || !slices.ContainsFunc(vectors[i], func(x float32) bool { return x != 0 }) {
			continue
		}
		c.dim = len(vectors[i])
		c.have[key] = vectors[i]
		start := len(out)
		out = append(out, key[:]...)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(vectors[i])))
		for _, x := range vectors[i] {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
		out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out[start:]))
	}
	if c.file == nil || len(out) == 0 {
		return nil
	}
	_, err := c.file.Write(out)
	return err
}

func (c *cache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}
