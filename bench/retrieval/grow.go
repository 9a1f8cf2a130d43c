package retrieval

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/toolsidecar/sidecar/retrieval"
)

// growKeep is the share of words that a variant keeps; the others are words that
// stand somewhere in the catalog, the frequent ones more often.
const growKeep = 0.8

// Grow returns n tools: the given ones, and behind them seeded variants of them
// as other servers might offer them, under names and with descriptions of which
// every fifth word is another. Parameters stay. It returns tools as it is if
// there are so many.
func Grow(tools []retrieval.Tool, n int, seed uint64) ([]retrieval.Tool, error) {
	if n <= len(tools) {
		return tools, nil
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var names, words []string
	taken := make(map[string]bool, n)
	for i := range tools {
		t := &tools[i]
		taken[t.Name] = true
		names = append(names, nameWords(t.Short())...)
		words = append(words, strings.Fields(t.Description)...)
	}
	out := append(make([]retrieval.Tool, 0, n), tools...)
	for len(out) < n {
		t := tools[r.IntN(len(tools))]
		parts := nameWords(t.Short())
		for i := range parts {
			if r.Float64() >= growKeep {
				parts[i] = names[r.IntN(len(names))]
			}
		}
		server := t.Origin()
		if server == "" {
			server = "other"
		}
		name := fmt.Sprintf("%s%d__%s", server, r.IntN(1+n/len(tools)), strings.Join(parts, "_"))
		if len(name) > 64 || taken[name] {
			name = fmt.Sprintf("%.50s_%d", name, len(out))
		}
		taken[name] = true
		about := strings.Fields(t.Description)
		for i := range about {
			if r.Float64() >= growKeep {
				about[i] = words[r.IntN(len(words))]
			}
		}
		t.Name, t.Server, t.Description = name, "", strings.Join(about, " ")
		var err error
		if t.Raw, err = json.Marshal(wireTool{"function", wireFunction{t.Name, t.Description, t.Schema}}); err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// nameWords cuts a name at joints and capitals.
func nameWords(name string) []string {
	var out []string
	word := 0
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_' || c == '-' || c == '.' || c == '/' || c == ' ':
			if i > word {
				out = append(out, name[word:i])
			}
			word = i + 1
		case 'A' <= c && c <= 'Z' && i > word && 'a' <= name[i-1] && name[i-1] <= 'z':
			out = append(out, name[word:i])
			word = i
		}
	}
	if word < len(name) {
		out = append(out, name[word:])
	}
	return out
}
