package retrieval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/toolsidecar/sidecar/retrieval"
)

// A Query is one turn of a conversation with the tools that it needs.
type Query struct {
	ID       string
	Set      string // part of a merged set; may be empty
	Group    string // names the dialogue; may be empty
	Messages []retrieval.Message
	Gold     [][]string // a list of alternatives a step
}

// A LineError is a line that is not a query.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// maxLine is the length of a line in bytes; a dialogue is some kilobytes.
const maxLine = 16 << 20

// wireQuery is a line of a queries file: either a text or the messages so far in
// OpenAI's form, and the names to find, of which gold_any gives alternatives.
type wireQuery struct {
	ID       json.RawMessage `json:"id"`
	Set      string          `json:"set"`
	Group    json.RawMessage `json:"group"`
	Query    string          `json:"query"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Calls   []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Gold []string   `json:"gold"`
	Any  [][]string `json:"gold_any"`
}

// ReadQueries reads JSON lines, empty ones apart. Errors: [*LineError], those of r.
func ReadQueries(r io.Reader) ([]Query, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	var out []Query
	n := 0
	for sc.Scan() {
		n++
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		q, err := readQuery(sc.Bytes())
		if err != nil {
			return nil, &LineError{n, err}
		}
		if q.ID == "" {
			q.ID = fmt.Sprint(n)
		}
		out = append(out, q)
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &LineError{n + 1, fmt.Errorf("longer than %d bytes", maxLine)}
	} else if err != nil {
		return nil, err
	}
	return out, nil
}

func readQuery(line []byte) (Query, error) {
	var w wireQuery
	if err := json.Unmarshal(line, &w); err != nil {
		return Query{}, err
	}
	q := Query{ID: scalar(w.ID), Set: w.Set, Group: scalar(w.Group), Gold: w.Any}
	if len(w.Any) == 0 {
		for _, g := range w.Gold {
			q.Gold = append(q.Gold, []string{g})
		}
	}
	if len(q.Gold) == 0 {
		return q, errors.New(`neither "gold" nor "gold_any" names a tool`)
	}
	if w.Query != "" {
		q.Messages = []retrieval.Message{{Role: "user", Text: w.Query}}
	}
	for _, m := range w.Messages {
		text, err := Content(m.Content)
		if err != nil {
			return q, err
		}
		msg := retrieval.Message{Role: m.Role, Text: text}
		for _, c := range m.Calls {
			msg.Calls = append(msg.Calls, c.Function.Name)
		}
		q.Messages = append(q.Messages, msg)
	}
	if len(q.Messages) == 0 {
		return q, errors.New(`neither "query" nor "messages"`)
	}
	return q, nil
}

// scalar is a string as it is and anything else as it is written.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Content is the text of a message: a string, null, or the text parts of a list.
func Content(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", errors.New(`"content" is neither a text nor a list of parts`)
	}
	for i, p := range parts {
		if i > 0 {
			s += "\n"
		}
		s += p.Text
	}
	return s, nil
}

// Known keeps the queries all of whose steps can be found in the catalog, and
// says how many were left out.
func Known(queries []Query, ix *retrieval.Index) (kept []Query, left int) {
	for _, q := range queries {
		known := true
		for _, step := range q.Gold {
			any := false
			for _, name := range step {
				_, ok := ix.Lookup(name)
				any = any || ok
			}
			known = known && any
		}
		if known {
			kept = append(kept, q)
		}
	}
	return kept, len(queries) - len(kept)
}
