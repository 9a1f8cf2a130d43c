package retrieval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// dataFile reads a file of the shared data, or skips the test where the data
// is not there and not required.
func dataFile(t testing.TB, name ...string) []byte {
	t.Helper()
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	path := filepath.Join(append([]string{dir}, name...)...)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("SIDECAR_REQUIRE_DATA") != "1" {
		t.Skipf("no %s: put the shared data there or set SIDECAR_DATA", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func eachLine(t testing.TB, raw []byte, f func(line []byte)) {
	t.Helper()
	sc := bufio.NewScanner(bytes.NewReader(raw))
	sc.Buffer(nil, 16<<20)
	n := 0
	for sc.Scan() {
		f(sc.Bytes())
		n++
	}
	if sc.Err() != nil || n == 0 {
		t.Fatalf("%d lines: %v", n, sc.Err())
	}
}

func setTools(t testing.TB, set string) []Tool {
	var tools []Tool
	eachLine(t, dataFile(t, "retrieval", set, "catalog.jsonl"), func(line []byte) {
		var x struct{ Function json.RawMessage }
		var f struct {
			Name, Description string
			Parameters        json.RawMessage
		}
		if err := errors.Join(json.Unmarshal(line, &x), json.Unmarshal(x.Function, &f)); err != nil {
			t.Fatal(err)
		}
		raw := slices.Concat([]byte(`{"type":"function","function":`), x.Function, []byte("}"))
		tools = append(tools, Tool{Name: f.Name, Description: f.Description, Schema: f.Parameters, Raw: raw})
	})
	return tools
}

// setQueries returns the conversations of a set.
func setQueries(t testing.TB, set string) [][]Message {
	var out [][]Message
	eachLine(t, dataFile(t, "retrieval", set, "queries.jsonl"), func(line []byte) {
		var x struct {
			Query    string
			Messages []struct {
				Role    string
				Content *string
				Calls   []struct{ Function struct{ Name string } } `json:"tool_calls"`
			}
		}
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		var msgs []Message
		if x.Query != "" {
			msgs = []Message{{Role: "user", Text: x.Query}}
		}
		for _, m := range x.Messages {
			o := Message{Role: m.Role}
			if m.Content != nil {
				o.Text = *m.Content
			}
			for _, c := range m.Calls {
				o.Calls = append(o.Calls, c.Function.Name)
			}
			msgs = append(msgs, o)
		}
		out = append(out, msgs)
	})
	return out
}
