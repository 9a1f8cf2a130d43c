package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/simengine"
)

func TestEngineCommand(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := newEngineCmd()
	cmd.SetArgs([]string{"--listen", "127.0.0.1:0", "--model", "m"})
	r, w := io.Pipe()
	cmd.SetErr(w)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(line[strings.Index(line, "http://"):])
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url + "/models")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), `"id":"m"`) {
		t.Errorf("%v: %s", err, body)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("after the end: %v", err)
	}
	if _, err := client.Get(url + "/models"); err == nil {
		t.Error("it still serves")
	}
}

func TestEngineUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--latency", "some"},
		{"--family", "gpt"},
		{"--kv-blocks", "3"},
		{"--no-such-flag"},
	} {
		if got := run(append([]string{"engine"}, args...)); got != 2 {
			t.Errorf("%v: status %d", args, got)
		}
	}
	if got := run([]string{"engine", "--tokenizer", "no-such-file.json"}); got != 1 {
		t.Errorf("missing vocabulary: status %d", got)
	}
	var help bytes.Buffer
	cmd := newEngineCmd()
	cmd.SetOut(&help)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(simengine.FaultHelp, "\n") {
		if !strings.Contains(help.String(), line) {
			t.Errorf("the help lacks %q", line)
		}
	}
}
