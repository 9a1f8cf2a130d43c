package usage

import (
	"encoding/json"
	"strings"

	"github.com/toolsidecar/sidecar/retrieval"
)

// Message is one message of a conversation as far as calls are concerned.
type Message struct {
	Role  string
	Text  string
	Calls []Call // of an assistant message
	// ResultOf is the id of the call that a tool message answers; "" where clients
	// give none, which then answers the calls in their order.
	ResultOf string
}

// Call is one call of a tool.
type Call struct{ ID, Name string }

// Succeeded returns the calls of the assistant message at place i whose results
// follow it and are no errors, each name once.
func Succeeded(msgs []Message, i int) []string {
	var names []string
	answered := make([]bool, len(msgs[i].Calls))
	for _, m := range msgs[i+1:] {
		if m.Role != "tool" {
			break
		}
		for j, c := range msgs[i].Calls {
			if answered[j] || m.ResultOf != "" && m.ResultOf != c.ID {
				continue
			}
			answered[j] = true
			if !Failed(m.Text) {
				names = append(names, c.Name)
			}
			break
		}
	}
	return distinct(names)
}

func distinct(names []string) []string {
	seen := make(map[string]bool, len(names))
	kept := names[:0]
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			kept = append(kept, n)
		}
	}
	return kept
}

// Failed says whether a tool's result tells of an error. Results have no field for
// it, so that it goes by what tools write: nothing at all, a text that begins with
// a word for failure, or a JSON object that says so. What is doubtful counts as
// failed: a call less is learned.
func Failed(result string) bool {
	text := strings.TrimSpace(result)
	if text == "" {
		return true
	}
	if text[0] == '{' {
		var o map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &o) == nil {
			return failedObject(o)
		}
	}
	text = strings.ToLower(text[:min(len(text), 64)])
	for _, word := range [...]string{"error", "failed", "failure", "exception", "traceback", "fatal", "invalid", "denied", "forbidden",
		"unauthorized", "not found", "timeout", "timed out", "cannot ", "can't ", "could not ", "couldn't ", "unable to ", "unknown "} {
		if strings.HasPrefix(strings.TrimLeft(text, "[(*<\"' "), word) {
			return true
		}
	}
	return false
}

func failedObject(o map[string]json.RawMessage) bool {
	for key, raw := range o {
		value := string(raw)
		switch strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key)) {
		case "error", "errors", "err", "exception", "errormessage", "errorcode":
			switch value {
			case "null", "false", `""`, "[]", "{}", "0":
			default:
				return true
			}
		case "iserror", "failed":
			if value == "true" {
				return true
			}
		case "success", "ok", "succeeded":
			if value == "false" {
				return true
			}
		case "status", "state", "outcome":
			switch strings.ToLower(strings.Trim(value, `"`)) {
			case "error", "failed", "failure", "fail", "denied", "timeout":
				return true
			}
			if len(value) == 3 && (value[0] == '4' || value[0] == '5') { // of HTTP
				return true
			}
		}
	}
	return false
}

// Learned returns what the assistant message at place i teaches: its calls that
// succeeded, for the conversation before it. ok is false where that is nothing,
// and where the catalog knows none of the tools.
func Learned(ix *retrieval.Index, msgs []Message, i int) (e Event, ok bool) {
	for _, name := range Succeeded(msgs, i) {
		if _, known := ix.Lookup(name); known {
			e.Tools = append(e.Tools, name)
		}
	}
	if len(e.Tools) == 0 {
		return e, false
	}
	said := make([]retrieval.Message, i)
	for j, m := range msgs[:i] {
		said[j] = retrieval.Message{Role: m.Role, Text: m.Text}
		for _, c := range m.Calls {
			said[j].Calls = append(said[j].Calls, c.Name)
		}
	}
	e.Trace = ix.Trace(ix.Segment(said))
	return e, e.check() == nil
}
