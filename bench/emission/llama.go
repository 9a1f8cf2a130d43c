package emission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxSampled is how many tokens a sampled reply has at most.
const maxSampled = 300

// A Llama is a running llama-server, which samples replies under a grammar.
type Llama struct {
	URL string // without a path
}

// Reply is a reply under a grammar; done is false if it was cut. An error that
// the server tells, say of a grammar that it can't read, is a *LlamaError.
func (l Llama) Reply(ctx context.Context, grammar string, seed uint64) (text string, done bool, err error) {
	body, err := json.Marshal(map[string]any{
		"prompt": "calls: ", "grammar": grammar, "n_predict": maxSampled, "seed": seed % (1 << 31), "cache_prompt": false,
		"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, // whatever the grammar allows
	})
	if err != nil {
		return "", false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(l.URL, "/")+"/completion", bytes.NewReader(body))
	if err != nil {
		return "", false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<24))
	if err != nil {
		return "", false, err
	}
	var reply struct {
		Content  string `json:"content"`
		StopType string `json:"stop_type"`
	}
	if resp.StatusCode != http.StatusOK {
		return "", false, &LlamaError{resp.StatusCode, string(raw)}
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return "", false, fmt.Errorf("llama-server: %w", err)
	}
	return reply.Content, reply.StopType == "eos", nil
}

// A LlamaError is an answer other than 200.
type LlamaError struct {
	Status int
	Body   string
}

func (e *LlamaError) Error() string { return fmt.Sprintf("llama-server: %d: %.300s", e.Status, e.Body) }
