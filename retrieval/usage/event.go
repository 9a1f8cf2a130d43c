package usage

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/retrieval"
)

// An Event is one call that succeeded, or several for one query.
type Event struct {
	Trace retrieval.Trace // of the query that it was called for
	Tools []string
	At    time.Time // to the second
}

// Bounds of an event that comes from outside.
const (
	maxWords = 256
	maxDim   = 4096
	maxTools = 128
	maxName  = 256 // bytes of a tool's name, of a word, of a space's name
)

// check says what is wrong with an event.
func (e *Event) check() error {
	t := &e.Trace
	switch {
	case len(e.Tools) == 0:
		return errors.New("no tool was called")
	case len(e.Tools) > maxTools:
		return fmt.Errorf("%d tools; at most %d", len(e.Tools), maxTools)
	case len(t.Words) == 0 && len(t.Vector) == 0:
		return errors.New("neither words nor a vector tell what it was called for")
	case len(t.Words) > maxWords:
		return fmt.Errorf("%d words; at most %d", len(t.Words), maxWords)
	case len(t.Vector) > maxDim:
		return fmt.Errorf("a vector of %d numbers; at most %d", len(t.Vector), maxDim)
	}
	for _, name := range slices.Concat(e.Tools, []string{t.Last, t.Space}) {
		if len(name) > maxName {
			return fmt.Errorf("a name of %d bytes; at most %d", len(name), maxName)
		}
	}
	if slices.Contains(e.Tools, "") {
		return errors.New("a tool without a name")
	}
	for _, w := range t.Words {
		if w.Text == "" || len(w.Text) > maxName {
			return fmt.Errorf("a word of %d bytes; from 1 to %d", len(w.Text), maxName)
		}
		if !(w.Weight >= 0 && w.Weight <= math.MaxFloat32) {
			return fmt.Errorf("word %q weighs %v; 0 or more is expected", w.Text, w.Weight)
		}
	}
	return nil
}

// wire is an event as JSON.
type wire struct {
	Tools  []string           `json:"tools"`
	Last   string             `json:"last,omitempty"` // the tool called before
	Words  map[string]float32 `json:"words,omitempty"`
	Vector string             `json:"vector,omitempty"` // base64, a byte a number in two's complement
	Space  string             `json:"space,omitempty"`
	At     int64              `json:"at"` // Unix seconds
}

// MarshalJSON writes one line: tools, last, words with weights, vector, space, at.
func (e Event) MarshalJSON() ([]byte, error) {
	w := wire{Tools: e.Tools, Last: e.Trace.Last, Space: e.Trace.Space, At: e.At.Unix()}
	if len(e.Trace.Words) > 0 {
		w.Words = make(map[string]float32, len(e.Trace.Words))
		for _, x := range e.Trace.Words {
			w.Words[x.Text] = x.Weight
		}
	}
	raw := make([]byte, len(e.Trace.Vector))
	for i, x := range e.Trace.Vector {
		raw[i] = byte(x)
	}
	w.Vector = base64.StdEncoding.EncodeToString(raw)
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes. What a memory could not learn is an
// error.
func (e *Event) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(w.Vector)
	if err != nil {
		return fmt.Errorf("vector: %w", err)
	}
	*e = Event{Tools: w.Tools, At: time.Unix(w.At, 0), Trace: retrieval.Trace{Last: w.Last, Space: w.Space}}
	for text, weight := range w.Words {
		e.Trace.Words = append(e.Trace.Words, retrieval.Word{Text: text, Weight: weight})
	}
	slices.SortFunc(e.Trace.Words, func(a, b retrieval.Word) int { return cmp.Compare(a.Text, b.Text) })
	if len(raw) > 0 {
		e.Trace.Vector = make([]int8, len(raw))
	}
	for i, x := range raw {
		e.Trace.Vector[i] = int8(x)
	}
	return e.check()
}

// key tells queries apart: equal words and weights, vector and last tool are one
// query.
func key(t *retrieval.Trace) string {
	var b strings.Builder
	for _, w := range t.Words {
		b.WriteString(w.Text)
		fmt.Fprintf(&b, "\x00%x\x00", math.Float32bits(w.Weight))
	}
	b.WriteByte(1)
	for _, x := range t.Vector {
		b.WriteByte(byte(x))
	}
	b.WriteByte(1)
	b.WriteString(t.Space)
	b.WriteByte(0)
	b.WriteString(t.Last)
	return b.String()
}
