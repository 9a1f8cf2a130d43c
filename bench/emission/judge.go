package emission

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
)

// A Judge is a process that compiles grammars with a real constraint engine and
// walks its matcher: tools/grammar_judge.py, which says what goes in and out.
// It belongs to one goroutine.
type Judge struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Ask is one grammar to be judged. One of Tag, Lark, Regex and Schema is given.
type Ask struct {
	ID        string          `json:"id"`
	Engine    string          `json:"engine"`
	Tag       json.RawMessage `json:"tag,omitempty"`
	Lark      string          `json:"lark,omitempty"`
	Regex     string          `json:"regex,omitempty"`
	Schema    json.RawMessage `json:"json_schema,omitempty"`
	Cache     bool            `json:"cache,omitempty"` // with what was compiled before
	Accept    []string        `json:"accept,omitempty"`
	Walks     int             `json:"walks,omitempty"`
	MaxTokens int             `json:"max_tokens,omitempty"`
	Seed      int             `json:"seed,omitempty"`
	Prefix    string          `json:"prefix,omitempty"`
	Wander    float64         `json:"wander"`
}

// Answer is what the engine makes of it.
type Answer struct {
	OK        bool    `json:"ok"`
	Error     string  `json:"error"`
	CompileMS float64 `json:"compile_ms"`
	Accept    []bool  `json:"accept"`
	Walks     []struct {
		Bytes  []byte `json:"bytes"`
		Done   bool   `json:"done"`
		Stuck  bool   `json:"stuck"`
		Tokens int    `json:"tokens"`
		Error  string `json:"error"`
	} `json:"walks"`
}

// StartJudge starts the process; python has the engines' packages, vocabulary
// is a tokenizer.json. The process ends with ctx or by Close.
func StartJudge(ctx context.Context, python, script, vocabulary string) (*Judge, error) {
	cmd := exec.CommandContext(ctx, python, script, vocabulary)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the judge doesn't start: %w", err)
	}
	return &Judge{cmd, in, bufio.NewReaderSize(out, 1<<20)}, nil
}

// Judge waits for the answer.
func (j *Judge) Judge(a Ask) (Answer, error) {
	line, err := json.Marshal(a)
	if err != nil {
		return Answer{}, err
	}
	if _, err := j.in.Write(append(line, '\n')); err != nil {
		return Answer{}, fmt.Errorf("%s: the judge died: %w", a.ID, err)
	}
	if line, err = j.out.ReadBytes('\n'); err != nil {
		return Answer{}, fmt.Errorf("%s: the judge died: %w", a.ID, err)
	}
	var r Answer
	if err := json.Unmarshal(line, &r); err != nil {
		return Answer{}, fmt.Errorf("%s: the judge's answer: %w", a.ID, err)
	}
	return r, nil
}

// Close ends the process.
func (j *Judge) Close() error {
	j.in.Close()
	return j.cmd.Wait()
}
