package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsidecar/sidecar/retrieval"
)

// FileError is a file that could not be used as a whole.
type FileError struct {
	File string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.File, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// ErrNoTools is a source without one usable tool.
var ErrNoTools = errors.New("no usable tool")

// Load reads a catalog. path is "demo", a file, or a directory, whose *.json,
// *.jsonl, *.ndjson, *.yaml and *.yml files are read in the order of their
// names. A file holds an array of tools, an object with the member "tools" (or
// an MCP answer with it under "result"), one tool, one tool a line, or an
// OpenAPI 3 description, whose operations become tools; *.yaml and *.yml hold
// the same as YAML. [Canonical] says what a tool may look like.
//
// Tools that cannot be served are left out and reported; so are files of a
// directory. Of two tools with the same name the first is served. The error is
// a [*FileError] when nothing can be served.
func Load(ctx context.Context, path string) (*Catalog, []Problem, error) {
	if path == "demo" {
		return Demo(), nil, nil
	}
	l := newLoader()
	if _, err := os.Stat(path); err != nil {
		return nil, nil, &FileError{path, reason(err)}
	}
	var err error
	if isDir(path) {
		err = l.directory(ctx, path)
	} else {
		err = l.file(path, "")
	}
	if err != nil {
		return nil, l.problems, err
	}
	return l.catalog(path)
}

// catalog is what was loaded.
func (l *loader) catalog(name string) (*Catalog, []Problem, error) {
	if len(l.tools) == 0 {
		return nil, l.problems, &FileError{name, ErrNoTools}
	}
	c, err := New(name, l.tools)
	if err != nil {
		return nil, l.problems, &FileError{name, err}
	}
	return c, l.problems, nil
}

// reason takes the path off an error of the file system: it is named beside it.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

type loader struct {
	lim      Limits
	tools    []retrieval.Tool
	names    map[string]string // name -> where it was first seen
	problems []Problem
	mend     bool // names are made such that clients take them; none is lost
}

func newLoader() *loader { return &loader{lim: DefaultLimits, names: make(map[string]string)} }

func (l *loader) directory(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &FileError{dir, reason(err)}
	}
	n := 0
	for _, e := range entries {
		if !toolFile(e.Name()) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		path := filepath.Join(dir, e.Name())
		err := l.file(path, strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())))
		var whole *FileError
		if errors.As(err, &whole) {
			l.problems = append(l.problems, Problem{File: path, Reason: whole.Err.Error()})
		} else if err != nil {
			return err
		}
	}
	if n == 0 {
		return &FileError{dir, errors.New("no *.json, *.jsonl, *.ndjson, *.yaml or *.yml file in this directory")}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// toolFile says whether a file of a directory is read.
func toolFile(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json", ".jsonl", ".ndjson", ".yaml", ".yml":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// file reads one file; server is given to tools whose names don't have one.
func (l *loader) file(path, server string) error {
	f, err := os.Open(path)
	if err != nil {
		return &FileError{path, reason(err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return &FileError{path, reason(err)}
	}
	if !info.Mode().IsRegular() {
		return &FileError{path, errors.New("not a regular file")}
	}
	raw, err := io.ReadAll(io.LimitReader(f, l.lim.FileBytes+1))
	if err != nil {
		return &FileError{path, reason(err)}
	}
	if int64(len(raw)) > l.lim.FileBytes {
		return &FileError{path, fmt.Errorf("larger than %d MB; split it", l.lim.FileBytes>>20)}
	}
	return l.text(path, strings.ToLower(filepath.Ext(path)), server, raw)
}

// text reads what a file or a document holds. ext is that of its name.
func (l *loader) text(path, ext, server string, raw []byte) error {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	if len(bytes.TrimSpace(raw)) == 0 {
		return &FileError{path, errors.New("empty file")}
	}
	if ext == ".yaml" || ext == ".yml" {
		var err error
		if raw, err = yamlToJSON(raw, int(l.lim.FileBytes)); err != nil {
			return &FileError{path, err}
		}
	}
	if isOpenAPI(raw) {
		if done, err := l.openAPI(path, server, raw); done || err != nil {
			return err
		}
	}
	if ext == ".jsonl" || ext == ".ndjson" || perLine(raw) {
		l.lines(path, server, raw)
		return nil
	}
	return l.whole(path, server, raw)
}

// perLine says whether a text without a telling name holds one tool a line: at
// least two lines, each of the first two an object by itself.
func perLine(raw []byte) bool {
	n := 0
	for line := range bytes.Lines(raw) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] != '{' || line[len(line)-1] != '}' {
			return false
		}
		if n++; n == 2 {
			return true
		}
	}
	return false
}

func (l *loader) lines(path, server string, raw []byte) {
	at, entry := 0, 0
	for line := range bytes.Lines(raw) {
		at++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			entry++
			l.add(Problem{File: path, Line: at, Entry: entry}, server, line)
		}
	}
}

func (l *loader) whole(path, server string, raw []byte) error {
	spans, err := toolList(raw)
	if err != nil {
		return &FileError{path, err}
	}
	for i, s := range spans {
		l.add(Problem{File: path, Entry: i + 1}, server, s)
	}
	return nil
}

func (l *loader) add(at Problem, server string, raw []byte) {
	t, err := canonical(raw, &l.lim, form{mend: l.mend})
	if err == nil && l.mend && l.names[t.Name] != "" {
		t = renamed(t, l.free(t.Name))
	}
	at.Name = t.Name
	switch {
	case err != nil:
		at.Reason = err.Error()
	case len(l.tools) >= l.lim.Tools:
		at.Reason = fmt.Sprintf("more than %d tools", l.lim.Tools)
	case l.names[t.Name] != "":
		at.Reason = "name already taken by " + l.names[t.Name]
	default:
		where := at
		where.Name = ""
		l.names[t.Name] = strings.TrimSuffix(where.String(), ": ")
		if server != "" && !strings.Contains(t.Name, "__") {
			t.Server = server
		}
		l.tools = append(l.tools, t)
		return
	}
	l.problems = append(l.problems, at)
}

// free is a name like this one that no tool has yet.
func (l *loader) free(name string) string {
	return free(name, func(s string) bool { return l.names[s] != "" })
}

// toolList finds the tools in a JSON text of any of the shapes of a file.
func toolList(raw []byte) ([][]byte, error) {
	compact, err := compactOutline(raw)
	if err != nil {
		return nil, err
	}
	for range 2 { // {"tools":[…]}, {"result":{"tools":[…]}}
		if compact[0] != '{' {
			break
		}
		var inner []byte
		for key, v := range members(compact) {
			if key == "tools" && v[0] == '[' || key == "result" && v[0] == '{' && inner == nil {
				inner = v
			}
		}
		if inner == nil {
			return [][]byte{compact}, nil
		}
		compact = inner
	}
	if compact[0] != '[' {
		return nil, errors.New(`neither an array of tools nor an object with "tools"`)
	}
	return slices.Collect(elements(compact)), nil
}

// compactOutline takes the white space out of JSON of any depth and leaves
// everything else as it is; the rest is judged tool by tool.
func compactOutline(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(raw))
	if json.Compact(&b, raw) != nil {
		return nil, syntaxError(raw)
	}
	return b.Bytes(), nil
}
