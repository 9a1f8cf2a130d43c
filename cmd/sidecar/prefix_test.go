package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/prefix"
)

// TestPrefixDiffCommand: what the command says and how it ends.
func TestPrefixDiffCommand(t *testing.T) {
	dir := t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	request := func(clock, more string) string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":"It is %s."},{"role":"user","content":"hi"}%s]}`, clock, more)
	}
	a := file("a.json", request("10:01", ""))
	longer := file("longer.json", request("10:01", `,{"role":"assistant","content":"ho"},{"role":"user","content":"hi"}`))
	later := file("later.json", request("10:02", `,{"role":"assistant","content":"ho"},{"role":"user","content":"hi"}`))
	out := filepath.Join(dir, "out.json")
	for _, tt := range []struct {
		args   string
		status int
		want   []string // in what is printed
	}{
		{a + " " + a, 0, []string{"equal"}},
		{a + " " + longer, 0, []string{"extends", "shared 20"}},
		{longer + " " + a, 0, []string{"within"}},
		{a + " " + later, 1, []string{"breaks", "date", "client", "/messages/0/content", "It is 10:01.", "It is 10:02.", "computed anew", "part at token"}},
		{a + " " + later + " --family chatml --json " + out, 1, []string{"breaks"}},
		{a + " " + later + " --json -", 1, []string{`"kind": "date"`, "first difference"}},
		{a, 2, []string{"two requests are needed"}},
		{"- -", 2, []string{"both requests are standard input"}},
		{a + " " + a + " --family unheard", 2, []string{"--family"}},
		{a + " " + a + " --tokenizer " + a, 2, []string{"--tokenizer"}},
		{a + " " + filepath.Join(dir, "none.json"), 1, []string{"none.json: no such file"}},
		{a + " " + file("bad.json", `{"messages":[`), 1, []string{"bad.json: ", "line 1"}},
		{a + " " + file("empty.json", `{"messages":[]}`), 1, []string{"empty.json: messages is empty"}},
		{a + " " + file("legacy.json", `{"messages":[{"role":"function","content":"x"}]}`), 1, []string{`legacy.json: messages[0] has role "function"`}},
	} {
		cmd := command(t, append([]string{"prefix", "diff"}, strings.Fields(tt.args)...)...)
		var both bytes.Buffer
		cmd.Stdout, cmd.Stderr = &both, &both
		err := cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != tt.status {
			t.Errorf("%s: status %d, want %d, %v\n%s", tt.args, got, tt.status, err, &both)
		}
		for _, w := range tt.want {
			if !strings.Contains(both.String(), w) {
				t.Errorf("%s: %q is missing in\n%s", tt.args, w, &both)
			}
		}
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var d prefix.Diff
	if err := json.Unmarshal(raw, &d); err != nil || d.Relation != prefix.Breaks || d.Kind != prefix.Date || d.LostTokens <= 0 {
		t.Errorf("--json: %v, %+v", err, d)
	}
}
