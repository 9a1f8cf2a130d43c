package grammar

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/toolsidecar/sidecar/grammar/token"
)

// The script that measures peers and the interpreter it needs, below the root
// of the repository.
const (
	peersScript = "tools/peers.py"
	peersPython = ".venv/peers/bin/python"
)

// Peers measures other engines on the same schemas and tokens, each in a
// process of its own. file is the vocabulary's tokenizer.json, root the root of
// the repository, where make has installed them. names are separated by commas;
// "" is all.
func Peers(ctx context.Context, root, names string, v *token.Vocabulary, file string, cases []Case, log io.Writer) (map[string]*Report, error) {
	if file == "" {
		return nil, fmt.Errorf("peers need the vocabulary as a file: give --tokenizer tokenizer.json")
	}
	script, python := filepath.Join(root, peersScript), filepath.Join(root, peersPython)
	for _, f := range []string{script, python} {
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("peers: %w; in the root of the repository: make .venv/peers", err)
		}
	}
	args := []string{script, file}
	if names != "" {
		args = append(args, "--engines", names)
	}
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	type instance struct {
		Valid bool    `json:"valid"`
		IDs   []int32 `json:"ids"`
	}
	w := bufio.NewWriter(in)
	enc := json.NewEncoder(w)
	err = enc.Encode(map[string]any{"end": v.Ends()[0], "size": v.Size()})
	for _, c := range cases {
		tests := []instance{}
		for _, t := range c.Tests {
			tests = append(tests, instance{t.Valid, Tokens(v, t.Text)})
		}
		if err == nil {
			err = enc.Encode(map[string]any{"file": c.File, "schema": string(c.Schema), "tests": tests})
		}
	}
	if err == nil {
		err = w.Flush()
	}
	in.Close()
	reports := map[string]*Report{}
	if err == nil {
		err = json.NewDecoder(out).Decode(&reports)
	}
	if failed := cmd.Wait(); failed != nil {
		return nil, fmt.Errorf("peers: %w", failed)
	}
	return reports, err
}
