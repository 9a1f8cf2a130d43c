package usage

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/retrieval"
)

// Config says how a memory behaves.
type Config struct {
	// MaxBytes bounds the memory, in bytes by its own estimate; 0 means 8 MiB, which
	// is some 4,500 queries.
	MaxBytes int
	// Strength multiplies what the memory adds to scores; 0 means 1.
	Strength float64
}

const defaultBytes = 8 << 20

// Memory is what one tenant's calls have taught. It is safe for concurrent use.
type Memory struct {
	cfg Config

	// mu guards the fields below.
	mu      sync.RWMutex
	entries []entry
	at      map[[16]byte]int32 // hash of a query -> its entry
	words   map[string][]posting
	spaces  map[string]*space
	tools   []string
	tool    map[string]int32
	after   map[int32]*tally // tool called last -> what was called then
	bytes   int
}

// entry is one query and what was called for it.
type entry struct {
	key    [16]byte
	words  []retrieval.Word
	space  string // key of spaces; "" without a vector
	row    int32
	last   int32   // tool called last, -1 for none
	tools  []int32 // ascending
	seen   int64   // Unix seconds
	weight int     // bytes
}

// posting is one entry in a word's list.
type posting struct {
	entry  int32
	weight float32
}

// space holds the vectors of the entries that have one of the same kind.
type space struct {
	dim     int
	rows    []float32 // row × dim, whole numbers
	scale   []float32 // times the row it is of length 1
	entries []int32   // row -> entry
}

// tally counts the queries behind one tool that led to each other.
type tally struct {
	sum   int
	tools map[int32]int
}

// New returns an empty memory. Errors: a configuration out of range.
func New(cfg Config) (*Memory, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultBytes
	}
	if cfg.Strength == 0 {
		cfg.Strength = 1
	}
	if cfg.MaxBytes < 64<<10 {
		return nil, fmt.Errorf("usage memory of %d bytes; at least %d are needed", cfg.MaxBytes, 64<<10)
	}
	if !(cfg.Strength > 0 && cfg.Strength <= 10) {
		return nil, fmt.Errorf("usage memory of strength %v; above 0 and at most 10 are possible", cfg.Strength)
	}
	m := &Memory{cfg: cfg}
	m.reset()
	return m, nil
}

func (m *Memory) reset() {
	m.entries, m.tools, m.bytes = nil, nil, 0
	m.at = make(map[[16]byte]int32)
	m.words = make(map[string][]posting)
	m.spaces = make(map[string]*space)
	m.tool = make(map[string]int32)
	m.after = make(map[int32]*tally)
}

// Clear forgets everything.
func (m *Memory) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reset()
}

// Stats reports the queries held, the tools known and the bytes that they take.
func (m *Memory) Stats() (queries, tools, bytes int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.entries), len(m.tools), m.bytes
}

// Learn remembers an event, and forgets what was not seen for longest when there
// is no room. It reports whether anything is new. Errors: an event that says
// nothing, or too much.
func (m *Memory) Learn(e Event) (fresh bool, err error) {
	if err := e.check(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh = m.learn(&e)
	if m.bytes > m.cfg.MaxBytes {
		m.shrink()
	}
	return fresh, nil
}

func (m *Memory) learn(e *Event) (fresh bool) {
	t := e.Trace
	t.Words = unit(t.Words) // as they are kept and exported
	sum := sha256.Sum256([]byte(key(&t)))
	k := [16]byte(sum[:])
	i, known := m.at[k]
	if !known {
		i = m.enter(k, &t)
	}
	x := &m.entries[i]
	x.seen = max(x.seen, e.At.Unix())
	for _, name := range e.Tools {
		tool := m.intern(name)
		at, has := slices.BinarySearch(x.tools, tool)
		if has {
			continue
		}
		fresh = true
		x.tools = slices.Insert(x.tools, at, tool)
		x.weight += 4
		m.bytes += 4
		if x.last >= 0 {
			t := m.after[x.last]
			if t == nil {
				t = &tally{tools: make(map[int32]int)}
				m.after[x.last] = t
			}
			t.sum++
			t.tools[tool]++
		}
	}
	return fresh
}

// enter makes the entry of a query, whose words have length 1 together.
func (m *Memory) enter(k [16]byte, t *retrieval.Trace) int32 {
	x := entry{key: k, words: t.Words, last: -1}
	i := int32(len(m.entries))
	x.weight = 160 + 4*len(t.Vector)
	for _, w := range x.words {
		m.words[w.Text] = append(m.words[w.Text], posting{i, w.Weight})
		x.weight += 40 + len(w.Text) // the word, its posting, its share of the map
	}
	if t.Last != "" {
		x.last = m.intern(t.Last)
	}
	if scale := lengthOf(t.Vector); scale > 0 {
		x.space = spaceKey(t)
		sp := m.spaces[x.space]
		if sp == nil {
			sp = &space{dim: len(t.Vector)}
			m.spaces[x.space] = sp
		}
		x.row = int32(len(sp.entries))
		for _, v := range t.Vector {
			sp.rows = append(sp.rows, float32(v))
		}
		sp.scale = append(sp.scale, scale)
		sp.entries = append(sp.entries, i)
	}
	m.entries = append(m.entries, x)
	m.at[k] = i
	m.bytes += x.weight
	return i
}

// spaceKey tells vectors apart that can't be compared.
func spaceKey(t *retrieval.Trace) string { return fmt.Sprintf("%d %s", len(t.Vector), t.Space) }

func (m *Memory) intern(name string) int32 {
	if i, ok := m.tool[name]; ok {
		return i
	}
	i := int32(len(m.tools))
	m.tools = append(m.tools, name)
	m.tool[name] = i
	m.bytes += 2*len(name) + 80
	return i
}

// unit brings words to length 1 together, those of no weight left out.
func unit(words []retrieval.Word) []retrieval.Word {
	out := make([]retrieval.Word, 0, len(words))
	square := 0.0
	for _, w := range words {
		if w.Weight > 0 {
			out = append(out, w)
			square += float64(w.Weight) * float64(w.Weight)
		}
	}
	for i := range out {
		out[i].Weight = float32(float64(out[i].Weight) / math.Sqrt(square))
	}
	return out
}

// lengthOf returns what brings a vector to length 1, 0 where nothing does.
func lengthOf(v []int8) float32 {
	square := 0
	for _, x := range v {
		square += int(x) * int(x)
	}
	if square == 0 {
		return 0
	}
	return float32(1 / math.Sqrt(float64(square)))
}

// shrink keeps the entries seen last that fill three quarters of the room, and
// makes all else anew from them.
func (m *Memory) shrink() {
	events := m.events()
	slices.SortStableFunc(events, func(a, b Event) int { return b.At.Compare(a.At) })
	m.reset()
	n := 0
	for n < len(events) && m.bytes < m.cfg.MaxBytes/4*3 {
		m.learn(&events[n])
		n++
	}
	kept := events[:n]
	slices.Reverse(kept)
	m.reset()
	for i := range kept {
		m.learn(&kept[i])
	}
}

// Events returns what is held, one event a query, those seen first at the front.
func (m *Memory) Events() []Event {
	m.mu.RLock()
	events := m.events()
	m.mu.RUnlock()
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events
}

func (m *Memory) events() []Event {
	out := make([]Event, len(m.entries))
	for i := range m.entries {
		x := &m.entries[i]
		e := Event{At: time.Unix(x.seen, 0), Trace: retrieval.Trace{Words: x.words}}
		for _, tool := range x.tools {
			e.Tools = append(e.Tools, m.tools[tool])
		}
		slices.SortFunc(e.Tools, strings.Compare)
		if x.last >= 0 {
			e.Trace.Last = m.tools[x.last]
		}
		if sp := m.spaces[x.space]; sp != nil {
			_, e.Trace.Space, _ = strings.Cut(x.space, " ")
			for _, v := range sp.rows[int(x.row)*sp.dim:][:sp.dim] {
				e.Trace.Vector = append(e.Trace.Vector, int8(v))
			}
		}
		out[i] = e
	}
	return out
}
