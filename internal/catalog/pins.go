package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/toolsidecar/sidecar/retrieval"
)

// Pins remember each tool of each source as it was approved: name, description
// and schema, in canonical bytes, and the risk that it declares. A tool that a source changes is held back
// until somebody approves the change, since a description is text that a model
// obeys. What a source adds is pinned as it comes. Pins are safe for
// concurrent use.
type Pins struct {
	path string // "" keeps them in memory

	mu      sync.Mutex // guards sources
	sources map[string]map[string]json.RawMessage
}

// pinFile is the file of pins. Tools are kept whole, so that a change can be
// shown.
type pinFile struct {
	Version int                                   `json:"version"`
	Sources map[string]map[string]json.RawMessage `json:"sources"`
}

// OpenPins reads the file at path, which need not exist yet; "" is for pins
// that end with the process.
func OpenPins(path string) (*Pins, error) {
	p := &Pins{path: path, sources: make(map[string]map[string]json.RawMessage)}
	if path == "" {
		return p, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	var f pinFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, &FileError{path, syntaxError(raw)}
	}
	if f.Version != 1 {
		return nil, &FileError{path, fmt.Errorf("pins of version %d; this program reads version 1", f.Version)}
	}
	for source, tools := range f.Sources {
		at := make(map[string]json.RawMessage, len(tools))
		for name, t := range tools {
			compact, err := compactJSON(t, DefaultLimits.Depth)
			if err != nil {
				return nil, &FileError{path, fmt.Errorf("%s: %s: %w", source, name, err)}
			}
			at[name] = compact
		}
		p.sources[source] = at
	}
	return p, nil
}

// ChangeKind is what happened to a tool since it was approved.
type ChangeKind string

const (
	Added   ChangeKind = "added"
	Changed ChangeKind = "changed"
	Removed ChangeKind = "removed"
)

// A Change is a tool of a source that is not as it was approved. Before and
// After are canonical bytes, nil where there is no tool.
type Change struct {
	Source, Name  string
	Kind          ChangeKind
	Before, After json.RawMessage
}

// Diff compares the tools of a source with its pins, in the order of names.
func (p *Pins) Diff(source string, tools []retrieval.Tool) []Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.diff(source, tools)
}

func (p *Pins) diff(source string, tools []retrieval.Tool) []Change {
	var out []Change
	was := p.sources[source]
	now := make(map[string]bool, len(tools))
	for i := range tools {
		t := &tools[i]
		now[t.Name] = true
		before, known := was[t.Name]
		switch {
		case !known:
			out = append(out, Change{source, t.Name, Added, nil, WithRisk(t)})
		case changed(before, t):
			out = append(out, Change{source, t.Name, Changed, before, WithRisk(t)})
		}
	}
	for name, before := range was {
		if !now[name] {
			out = append(out, Change{source, name, Removed, before, nil})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// WithRisk is a tool as files keep it: its canonical bytes, and behind them the
// class of risk that it declares, which reading them gives back.
func WithRisk(t *retrieval.Tool) json.RawMessage {
	if t.Risk == 0 {
		return t.Raw
	}
	return slices.Concat(t.Raw[:len(t.Raw)-1], []byte(`,"x-risk":"`+Risk(t.Risk).String()+`"}`))
}

// changed says whether a tool is not what was approved. A class that is declared
// where none was is a change if it is below what the name says: otherwise nothing
// is allowed that was not before.
func changed(before json.RawMessage, t *retrieval.Tool) bool {
	if bytes.Equal(before, WithRisk(t)) {
		return false
	}
	silent := *t
	silent.Risk = 0
	return !bytes.Equal(before, t.Raw) || RiskOf(t) < RiskOf(&silent)
}

// Screen pins what the source adds and returns the tools that may be served,
// with a Problem for each that is held back. Pins of tools that are gone stay:
// a tool that comes back changed is held back too. The error is that of the
// file; what is served doesn't depend on it.
func (p *Pins) Screen(source string, tools []retrieval.Tool) (served []retrieval.Tool, held []Problem, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.sources[source]
	if at == nil {
		at = make(map[string]json.RawMessage)
		p.sources[source] = at
	}
	added := false
	for _, t := range tools {
		before, known := at[t.Name]
		if known && changed(before, &t) {
			held = append(held, Problem{File: source, Name: t.Name, Reason: "changed since it was approved; see `sidecar catalog diff`, then `sidecar catalog approve`"})
			continue
		}
		if !known {
			at[t.Name], added = WithRisk(&t), true
		}
		served = append(served, t)
	}
	if added {
		err = p.save()
	}
	return served, held, err
}

// Approve pins the tools of a source as they are now: those of the names
// given, or all if there are none. It returns what it approved.
func (p *Pins) Approve(source string, tools []retrieval.Tool, names ...string) ([]Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var done []Change
	at := p.sources[source]
	if at == nil {
		at = make(map[string]json.RawMessage)
		p.sources[source] = at
	}
	for _, c := range p.diff(source, tools) {
		if len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		if c.After == nil {
			delete(at, c.Name)
		} else {
			at[c.Name] = c.After
		}
		done = append(done, c)
	}
	if len(done) == 0 {
		return nil, nil
	}
	return done, p.save()
}

// save writes the file in one step. p.mu is held.
func (p *Pins) save() error {
	if p.path == "" {
		return nil
	}
	raw, err := json.MarshalIndent(pinFile{1, p.sources}, "", " ")
	if err != nil {
		return err
	}
	return replaceFile(p.path, func(w io.Writer) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
}

// replaceFile writes a file in one step: readers see the old one or the new one.
func replaceFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err = write(tmp); err == nil {
		err = tmp.Sync()
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
