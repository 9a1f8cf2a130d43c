package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Case is a schema with instances whose label is known.
type Case struct {
	File   string // below the folder that was read, with #N for the Nth group of a suite's file
	Schema []byte
	Tests  []Test
	// Draft is the name of the draft that the place of a suite's file tells, as
	// in "draft7"; empty where the schema has to.
	Draft string
	// Formats tells whether the labels take format for an assertion.
	Formats bool
}

// A Test is an instance as compact JSON.
type Test struct {
	Valid bool
	Text  []byte
}

type test struct {
	Valid *bool
	Data  json.RawMessage
}

// Schemas reads all files {schema, tests:[{valid,data}]} below dir. Other JSON
// files are an error.
func Schemas(dir string) ([]Case, error) {
	var out []Case
	err := jsonFiles(dir, func(name string, raw []byte) error {
		var file struct {
			Schema json.RawMessage
			Tests  []test
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if file.Schema == nil {
			return fmt.Errorf("%s: no schema; a file is {schema, tests:[{valid,data}]}, for the official form use --suite", name)
		}
		c, err := newCase(name, file.Schema, file.Tests)
		c.Formats = true
		out = append(out, c)
		return err
	})
	return out, err
}

// Suite reads files of the official suite below dir: lists of groups
// {schema, tests}. Format asserts in optional/format only. Documents is what
// lies in the folder remotes beside or above the files, by its address.
func Suite(dir string) (cases []Case, documents map[string][]byte, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	err = jsonFiles(dir, func(name string, raw []byte) error {
		if strings.HasPrefix(name, "remotes/") {
			return nil
		}
		var groups []struct {
			Schema json.RawMessage
			Tests  []test
		}
		if err := json.Unmarshal(raw, &groups); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		whole := filepath.ToSlash(filepath.Join(abs, name))
		for i, g := range groups {
			c, err := newCase(fmt.Sprintf("%s#%d", name, i), g.Schema, g.Tests)
			if err != nil {
				return err
			}
			for _, part := range strings.Split(whole, "/") {
				if strings.HasPrefix(part, "draft") && len(part) > 5 && part[5] >= '0' && part[5] <= '9' {
					c.Draft = part
				}
			}
			c.Formats = strings.Contains(whole, "/optional/format/")
			cases = append(cases, c)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for at := abs; ; at = filepath.Dir(at) {
		remotes := filepath.Join(at, "remotes")
		if i, err := os.Stat(remotes); err == nil && i.IsDir() {
			documents = map[string][]byte{}
			err := jsonFiles(remotes, func(name string, raw []byte) error {
				documents["http://localhost:1234/"+name] = raw
				return nil
			})
			return cases, documents, err
		}
		if at == filepath.Dir(at) {
			return cases, nil, nil
		}
	}
}

func newCase(name string, schema json.RawMessage, tests []test) (Case, error) {
	c := Case{File: name, Schema: schema}
	for i, t := range tests {
		if t.Valid == nil || t.Data == nil {
			return c, fmt.Errorf("%s: test %d: a test is {valid,data}", name, i)
		}
		var text bytes.Buffer
		if err := json.Compact(&text, t.Data); err != nil {
			return c, fmt.Errorf("%s: test %d: %w", name, i, err)
		}
		c.Tests = append(c.Tests, Test{*t.Valid, text.Bytes()})
	}
	return c, nil
}

// jsonFiles calls f with every *.json below dir, in order.
func jsonFiles(dir string, f func(name string, raw []byte) error) error {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".json") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: no *.json below it", dir)
	}
	slices.Sort(names)
	for _, path := range names {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := f(filepath.ToSlash(name), raw); err != nil {
			return err
		}
	}
	return nil
}
