package simengine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestGrammars: a grammar holds the whole answer, a structured output, one
// alternative and the arguments of a call, by the policy and at random.
func TestGrammars(t *testing.T) {
	const counted = `root ::= "{" ws "\"k\":" ws "\"" max "\"" ws "}"
max[max_chars=3] ::= [a-z]*
ws ::= [ \n\t]?
`
	object := regexp.MustCompile(`^\{\s?"k":\s?"[a-z]{0,3}"\s?\}$`)
	ebnf := string(mustJSON(t, counted))
	grammar := `{"type":"grammar","grammar":` + ebnf + `}`
	call := func(arguments string) string {
		return `{"type":"tag","begin":"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ","content":` + arguments + `,"end":"}\n</tool_call>"}`
	}
	for _, random := range []bool{false, true} {
		s := start(t, Config{Random: random})
		for seed := range 5 {
			ask := func(constraint string) string {
				return s.ok(chat, fmt.Sprintf(`{"seed":%d,"max_tokens":400,"messages":[{"role":"user","content":"x"}],%s}`, seed, constraint)).content()
			}
			for name, constraint := range map[string]string{
				"format":     `"response_format":{"type":"structural_tag","format":` + grammar + `}`,
				"structured": `"structured_outputs":{"grammar":` + ebnf + `}`,
			} {
				if got := ask(constraint); !object.MatchString(got) {
					t.Errorf("random %v, seed %d, %s: %q", random, seed, name, got)
				}
			}
			got := ask(`"response_format":{"type":"structural_tag","format":` + call(grammar) + `}`)
			args := strings.TrimPrefix(got, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ")
			if args, ok := strings.CutSuffix(args, "}\n</tool_call>"); !ok || !object.MatchString(args) {
				t.Errorf("random %v, seed %d: %q", random, seed, got)
			}
			got = ask(`"response_format":{"type":"structural_tag","format":{"type":"or","elements":[{"type":"tags_with_separator","tags":[` + call(grammar) + `],"separator":"\n","at_least_one":true},` + grammar + `]}}`)
			if !object.MatchString(got) && !strings.HasPrefix(got, "<tool_call>") {
				t.Errorf("random %v, seed %d: %q", random, seed, got)
			}
		}
	}
}

// TestGrammarRefused: what can't be read is refused by name, and what has no text.
func TestGrammarRefused(t *testing.T) {
	s := start(t, Config{})
	for text, want := range map[string]string{
		"root ::= (":                   "can't read the grammar",
		"start: /a/":                   "can't read the grammar",
		"root ::= missing":             "missing",
		`root ::= "a" root`:            "it has no text",
		"root ::= \"a\"\nroot ::= \"b": "can't read the grammar",
	} {
		for param, constraint := range map[string]string{
			"response_format":    `"response_format":{"type":"structural_tag","format":{"type":"grammar","grammar":` + string(mustJSON(t, text)) + `}}`,
			"structured_outputs": `"structured_outputs":{"grammar":` + string(mustJSON(t, text)) + `}`,
		} {
			status, body := s.post(chat, `{"messages":[{"role":"user","content":"x"}],`+constraint+`}`)
			if status != 400 || !strings.Contains(body, want) || !strings.Contains(body, param) {
				t.Errorf("%q: status %d: %s", text, status, body)
			}
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestRefuse: the fault refuses tags as engines do, and nothing else.
func TestRefuse(t *testing.T) {
	s := start(t, Config{})
	for _, tt := range []struct {
		fault, format string
		status        int
	}{
		{"refuse=tag", `{"type":"structural_tag","format":{"type":"const_string","value":"x"}}`, 400},
		{"refuse=tag", `{"type":"structural_tag","structures":[{"begin":"<a>","schema":{},"end":"</a>"}],"triggers":["<a>"]}`, 200},
		{"refuse=all", `{"type":"structural_tag","structures":[{"begin":"<a>","schema":{},"end":"</a>"}],"triggers":["<a>"]}`, 400},
		{"refuse=all", `{"type":"json_object"}`, 200},
		{"refuse=much", `{"type":"text"}`, 400},
	} {
		resp, err := s.do(t.Context(), "POST", chat, `{"messages":[{"role":"user","content":"x"}],"max_tokens":50,"response_format":`+tt.format+`}`, tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s: status %d, want %d", tt.fault, tt.format, resp.StatusCode, tt.status)
		}
	}
}
