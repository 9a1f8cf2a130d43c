package emission

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// A Judge is a process that compiles grammars with a real constraint engine and
// walks its matcher: tools/grammar_judge.py, which says what goes in and out.
// It belongs to one goroutine.
type Judge struct {
	// Limit is how long the process may work on one grammar; 0 is without end.
	Limit time.Duration
	ctx   context.Context
	args  []string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	sound bool // it has answered
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
	After     json.RawMessage `json:"after,omitempty"` // a tag that is compiled before, by the same compiler
	Accept    []string        `json:"accept,omitempty"`
	Walks     int             `json:"walks,omitempty"`
	MaxTokens int             `json:"max_tokens,omitempty"`
	Seed      int             `json:"seed,omitempty"`
	Prefix    string          `json:"prefix,omitempty"`
	Wander    float64         `json:"wander"`
	Probe     int             `json:"probe,omitempty"` // allowed tokens that each step of a walk tries
}

// Answer is what the engine makes of it.
type Answer struct {
	OK        bool    `json:"ok"`
	Error     string  `json:"error"`
	Died      bool    `json:"-"` // no answer: the process ended, or was ended at Limit
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
	j := &Judge{ctx: ctx, args: []string{python, script, vocabulary}}
	return j, j.start()
}

func (j *Judge) start() error {
	cmd := exec.CommandContext(j.ctx, j.args[0], j.args[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the judge doesn't start: %w", err)
	}
	j.cmd, j.in, j.out = cmd, in, bufio.NewReaderSize(out, 1<<20)
	return nil
}

// Judge waits for the answer. An engine that dies of a grammar, or is at it for
// longer than Limit, is an answer too, and the process is started anew.
func (j *Judge) Judge(a Ask) (Answer, error) {
	line, err := json.Marshal(a)
	if err != nil {
		return Answer{}, err
	}
	if j.Limit > 0 {
		p := j.cmd.Process
		defer time.AfterFunc(j.Limit, func() { p.Kill() }).Stop()
	}
	_, err = j.in.Write(append(line, '\n'))
	if err == nil {
		line, err = j.out.ReadBytes('\n')
	}
	if err != nil {
		j.in.Close()
		ended := j.cmd.Wait()
		if j.ctx.Err() != nil {
			return Answer{}, j.ctx.Err()
		}
		if !j.sound {
			return Answer{}, fmt.Errorf("%s: the judge died: %w", a.ID, err)
		}
		return Answer{Died: true, Error: fmt.Sprintf("no answer: %v", ended)}, j.start()
	}
	var r Answer
	if err := json.Unmarshal(line, &r); err != nil {
		return Answer{}, fmt.Errorf("%s: the judge's answer: %w", a.ID, err)
	}
	j.sound = true
	return r, nil
}

// Close ends the process.
func (j *Judge) Close() error {
	j.in.Close()
	return j.cmd.Wait()
}
