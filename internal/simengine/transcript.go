package simengine

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
)

// transcript is what the policy reads out of a prompt's tokens. Only control
// tokens part turns: their spelling inside content is text.
type transcript struct {
	tools   []*tool  // shown to the model, in order; a later one of a name replaces the earlier
	request string   // the last user turn that is not tool results
	called  []string // names called since then
	results []string // tool results since then, without those that show tools
	thought bool     // the prompt ends with closed reasoning
	begun   string   // what of the turn to be generated stands in the prompt
}

// tool is a tool that the prompt shows, or that a constraint names.
type tool struct {
	name        string
	description string
	schema      *node // of the arguments
}

type promptTurn struct{ role, content string }

// readTurns cuts a prompt at the family's turn tokens, which begin and end turns, or
// name their roles. A prompt without turns is one user turn.
func readTurns(t *tokenizer.Tokenizer, f *wire.Family, ids []int32) ([]promptTurn, error) {
	starts := map[int32]string{} // with the role, "" where the turn's first line names it
	end := int32(-1)
	if f.Roles == nil {
		start, hasStart := t.ID(f.TurnStart)
		id, hasEnd := t.ID(strings.TrimRight(f.TurnEnd, "\n"))
		if hasStart && hasEnd {
			starts[start], end = "", id
		}
	}
	for role, token := range f.Roles {
		if id, ok := t.ID(token); ok {
			starts[id] = role
		}
	}
	var turns []promptTurn
	var buf []byte
	var err error
	at, open := -1, "" // first token of the open turn, and its role
	for i := 0; i <= len(ids); i++ {
		role, begins := "", false
		if i < len(ids) {
			if role, begins = starts[ids[i]]; !begins && ids[i] != end {
				continue
			}
		}
		if at >= 0 {
			if buf, err = t.Decode(buf[:0], ids[at:i]); err != nil {
				return nil, err
			}
			turn := promptTurn{open, strings.TrimPrefix(string(buf), f.TurnLead)}
			if f.Roles == nil {
				turn.role, turn.content, _ = strings.Cut(string(buf), "\n")
			}
			turns = append(turns, turn)
		}
		if at = -1; begins {
			at, open = i+1, role
		}
	}
	if len(turns) == 0 {
		if buf, err = t.Decode(buf[:0], ids); err != nil {
			return nil, err
		}
		turns = []promptTurn{{"user", string(buf)}}
	}
	return turns, nil
}

func readTranscript(t *tokenizer.Tokenizer, f *wire.Family, ids []int32) (*transcript, error) {
	turns, err := readTurns(t, f, ids)
	if err != nil {
		return nil, err
	}
	var tr transcript
	index := make(map[string]int)
	show := func(text string) bool {
		tools := readTools(f, text)
		for _, tl := range tools {
			if i, ok := index[tl.name]; ok {
				tr.tools[i] = tl
				continue
			}
			index[tl.name] = len(tr.tools)
			tr.tools = append(tr.tools, tl)
		}
		return len(tools) > 0
	}
	for i, turn := range turns {
		responses := readResponses(f, turn.content)
		switch {
		case turn.role == "system":
			show(turn.content)
		case turn.role == "user" && responses == nil:
			tr.request, tr.called, tr.results = turn.content, nil, nil
		case turn.role == "user" || turn.role == "tool":
			if responses == nil {
				responses = []string{turn.content}
			}
			for _, r := range responses {
				if !show(r) {
					tr.results = append(tr.results, r)
				}
			}
		case turn.role == "assistant" && i < len(turns)-1:
			p := f.NewParser()
			for _, e := range append(append([]wire.Event(nil), p.Feed(turn.content)...), p.Close()...) {
				if e.Kind == wire.CallStart {
					tr.called = append(tr.called, e.Name)
				}
			}
		}
	}
	last := turns[len(turns)-1]
	if last.role == "assistant" {
		tr.begun = strings.TrimRight(last.content, "\n")
	}
	tr.thought = f.ThinkClose != "" && strings.HasSuffix(tr.begun, f.ThinkClose)
	return &tr, nil
}

// think is the reasoning before an answer.
func (tr *transcript) think() string {
	return fmt.Sprintf("The user says: %s\nI see %d tools and have called %d.", excerpt(tr.request, 12), len(tr.tools), len(tr.called))
}

// readTools reads the tools between a line with the opening tag and one with the
// closing tag, one JSON object to a line.
func readTools(f *wire.Family, text string) []*tool {
	var out []*tool
	for {
		_, rest, ok := strings.Cut(text, f.LateOpen+"\n")
		if !ok {
			return out
		}
		block, after, ok := strings.Cut(rest, "\n"+f.LateClose)
		if !ok {
			return out
		}
		for line := range strings.Lines(block) {
			if t := readTool(strings.TrimSuffix(line, "\n")); t != nil {
				out = append(out, t)
			}
		}
		text = after
	}
}

func readTool(line string) *tool {
	if !strings.HasPrefix(line, "{") {
		return nil
	}
	type inner struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	var t struct {
		inner
		Function *inner `json:"function"`
	}
	if json.Unmarshal([]byte(line), &t) != nil {
		return nil
	}
	in := t.inner
	if t.Function != nil {
		in = *t.Function
	}
	if in.Name == "" {
		return nil
	}
	out := &tool{name: in.Name, description: in.Description, schema: &node{kind: '{', keys: []string{"type"}, vals: []*node{stringNode("object")}}}
	if len(in.Parameters) > 0 {
		if n, err := parseNode(in.Parameters); err == nil && n.kind == '{' {
			out.schema = n
		}
	}
	return out
}

// readResponses is the tool results of a user turn, nil when it is none.
func readResponses(f *wire.Family, content string) []string {
	open, end := strings.TrimSuffix(f.ResponseOpen, "\n"), strings.TrimPrefix(f.ResponseClose, "\n")
	content = strings.TrimLeft(content, "\n")
	if !strings.HasPrefix(content, open) || !strings.HasSuffix(content, end) {
		return nil
	}
	out := []string{}
	for _, part := range strings.Split(content, f.ResponseClose) {
		if _, r, ok := strings.Cut(part, f.ResponseOpen); ok {
			out = append(out, r)
		}
	}
	return out
}
