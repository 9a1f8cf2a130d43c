package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/internal/simengine"
	"github.com/toolsidecar/sidecar/models/tokenizer"
)

// TestVolatileLine: one line at the top of a 60,000-token prompt that changes each
// turn leaves nothing of the cache; moved, it leaves at least 95 %. With tools, in
// the sidecar's own layout, and without any, passed through.
func TestVolatileLine(t *testing.T) {
	manual := strings.Builder{}
	for i := 0; manual.Len() < 177_000; i++ {
		fmt.Fprintf(&manual, "Rule %d: an order of kind %d is checked by clerk %d before it is sent on. ", i, i%17, i%29)
	}
	if n := tokenizer.Qwen3().Count(manual.String()); n < 60_000 {
		t.Fatalf("the prompt has %d tokens", n)
	}
	tool := `{"type":"function","function":{"name":"get_order","description":"Get an order.","parameters":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}}}`
	for _, tt := range []struct {
		volatile, tools string
		least, most     float64
	}{
		{"off", `,"tools":[` + tool + `]`, 0, 0.01},
		{"move", `,"tools":[` + tool + `]`, 0.95, 1},
		{"move", ``, 0.95, 1},
		{"strip", ``, 0.95, 1},
	} {
		t.Run(tt.volatile+fmt.Sprint(len(tt.tools) > 0), func(t *testing.T) {
			engine, stopEngine, err := startSimulated(simengine.Config{PromptTokensDetails: true, MaxModelLen: 1 << 18})
			if err != nil {
				t.Fatal(err)
			}
			defer stopEngine()
			base, _, stop, err := startLocal(t.Context(), localConfig{Engine: engine, Log: os.Stderr, Edit: func(c *serveConfig) { c.Volatile.Action = tt.volatile }})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			var history []string
			for turn := range 3 {
				history = append(history, fmt.Sprintf(`{"role":"user","content":"Question %d about the rules."}`, turn))
				system := marshal(t, fmt.Sprintf("Current time: 10:0%d:00\n%s", turn, manual.String()))
				body := `{"model":"sim-qwen3","max_tokens":20,"messages":[{"role":"system","content":` + string(system) + `},` + strings.Join(history, ",") + `]` + tt.tools + `}`
				resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				raw, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("status %d, %v: %s", resp.StatusCode, err, raw)
				}
				var reply struct {
					Choices []struct{ Message json.RawMessage }
					Usage   struct {
						Prompt  int `json:"prompt_tokens"`
						Details struct {
							Cached int `json:"cached_tokens"`
						} `json:"prompt_tokens_details"`
					}
				}
				if err := json.Unmarshal(raw, &reply); err != nil {
					t.Fatal(err)
				}
				history = append(history, string(reply.Choices[0].Message))
				if turn == 0 {
					continue
				}
				share := float64(reply.Usage.Details.Cached) / float64(reply.Usage.Prompt)
				t.Logf("turn %d: %d of %d tokens cached, %.1f %%", turn+1, reply.Usage.Details.Cached, reply.Usage.Prompt, 100*share)
				if share < tt.least || share > tt.most || reply.Usage.Prompt < 60_000 {
					t.Errorf("turn %d: %d of %d tokens cached", turn+1, reply.Usage.Details.Cached, reply.Usage.Prompt)
				}
				audit := resp.Header.Get("X-Sidecar-Volatile")
				var sessions struct{ Sessions []proxy.Record }
				if err := getJSON(t.Context(), http.DefaultClient, "", base+"/sidecar/v1/sessions", &sessions); err != nil {
					t.Fatal(err)
				}
				lines := sessions.Sessions[len(sessions.Sessions)-1].Volatile
				if on := tt.volatile != "off"; on != (audit != "") || on != (len(lines) == 1 && lines[0].Line == fmt.Sprintf("Current time: 10:0%d:00", turn) && string(lines[0].Action) == tt.volatile) {
					t.Errorf("turn %d: header %q, record %+v", turn+1, audit, lines)
				}
			}
		})
	}
}

// TestVolatileRules: what a file of rules may say.
func TestVolatileRules(t *testing.T) {
	for _, tt := range []struct{ action, file, want string }{
		{"off", "rules:\n  - name: clock\n    match: '^Current time:'\n  - builtin: hash\n    action: strip\n", "clock move, hash strip"},
		{"strip", "- match: x\n- {builtin: date, action: move}\n", "rule 1 strip, date move"},
		{"off", "rules: []", "it has no rules"},
		{"off", "", "it is empty"},
		{"off", "- match: '('", "rule 1: match: error parsing regexp"},
		{"off", "- builtin: moon", `builtin "moon" is none of counter, date, hash`},
		{"off", "- {match: x, builtin: date}", "rule 1: either match or builtin is needed"},
		{"off", "- {match: x, action: hide}", `rule 1: action "hide" is neither move nor strip`},
		{"off", "- {match: x, acton: move}", "field acton not found"},
		{"hide", "- match: x", `--volatile "hide"`},
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		rules, err := loadVolatile(&volatileConfig{tt.action, path})
		var got []string
		for _, r := range rules {
			got = append(got, r.Name+" "+string(r.Action))
		}
		text := strings.Join(got, ", ")
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, tt.want) {
			t.Errorf("%q: %s, want %s", tt.file, text, tt.want)
		}
	}
	if rules, err := loadVolatile(&volatileConfig{"off", ""}); rules != nil || err != nil {
		t.Errorf("off: %v, %v", rules, err)
	}
}
