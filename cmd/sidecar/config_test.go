package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// load resolves a configuration as the serve command does.
func load(t *testing.T, flags []string, env map[string]string, yaml string) (serveConfig, error) {
	t.Helper()
	var cfg serveConfig
	options := serveOptions(&cfg)
	cmd := &cobra.Command{Use: "serve", RunE: func(*cobra.Command, []string) error { return nil }, SilenceErrors: true, SilenceUsage: true}
	addFlags(cmd, options)
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "sidecar.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append([]string{"--config", path}, flags...)
	}
	cmd.SetArgs(append([]string{}, flags...))
	if err := cmd.Execute(); err != nil {
		return cfg, err
	}
	var file *option
	for _, o := range options {
		if o.name == "config" {
			file = o
		}
	}
	err := resolve(options, file, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return cfg, err
}

func TestDefaults(t *testing.T) {
	cfg, err := load(t, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	p, st := cfg.Proxy, cfg.Proxy.Stages
	if cfg.Listen != "127.0.0.1:8080" || cfg.DrainTimeout != 30*time.Second || p.MaxBody != 32<<20 || p.MaxHeader != 16<<10 || p.FirstByteTimeout != 10*time.Minute ||
		st.Observe || !st.Retrieval || !st.Prefix || !st.Grammar || !st.TokenBudget || st.Tokens != 1200 || st.Budget.MaxTokens != 2048 || st.Family != "auto" || st.Pins != nil {
		t.Errorf("%+v", cfg)
	}
}

// A flag counts more than the environment, that more than the file, that more
// than the default; of lists too the whole.
func TestPrecedence(t *testing.T) {
	yaml := "engine: http://file\nlisten: 127.0.0.1:1\nmax-depth: 10\nretrieval: false\npin: [a, b]\nmax-body: 1MiB\nstall-timeout: 7s\n"
	env := map[string]string{"SIDECAR_ENGINE": "http://env", "SIDECAR_LISTEN": "127.0.0.1:2", "SIDECAR_PIN": "c, d,", "SIDECAR_GRAMMAR": "false", "SIDECAR_MAX_BODY": "2097152"}
	flags := []string{"--engine", "http://flag", "--pin", "e", "--pin=f", "--grammar", "--prefix=false", "--catalog", "a,b"}
	cfg, err := load(t, flags, env, yaml)
	if err != nil {
		t.Fatal(err)
	}
	p, st := cfg.Proxy, cfg.Proxy.Stages
	if p.Engine != "http://flag" || cfg.Listen != "127.0.0.1:2" || p.MaxDepth != 10 || st.Retrieval || !st.Grammar || st.Prefix || p.MaxBody != 2<<20 || p.StallTimeout != 7*time.Second {
		t.Errorf("%+v", cfg)
	}
	if !reflect.DeepEqual(st.Pins, []string{"e", "f"}) || !reflect.DeepEqual(cfg.Catalogs, []string{"a,b"}) {
		t.Errorf("pins %q catalogs %q", st.Pins, cfg.Catalogs)
	}
	cfg, err = load(t, nil, env, yaml)
	if err != nil || !reflect.DeepEqual(cfg.Proxy.Stages.Pins, []string{"c", "d"}) || cfg.Proxy.Engine != "http://env" {
		t.Errorf("%v %+v", err, cfg)
	}
	cfg, err = load(t, nil, nil, yaml)
	if err != nil || !reflect.DeepEqual(cfg.Proxy.Stages.Pins, []string{"a", "b"}) {
		t.Errorf("%v %+v", err, cfg)
	}
	cfg, err = load(t, nil, map[string]string{"SIDECAR_PIN": ""}, yaml)
	if err != nil || len(cfg.Proxy.Stages.Pins) != 0 {
		t.Errorf("an empty variable empties the list: %v %q", err, cfg.Proxy.Stages.Pins)
	}
}

// Every option can be given in every way.
func TestEveryOption(t *testing.T) {
	var cfg serveConfig
	file := filepath.Join(t.TempDir(), "clients.yaml")
	if err := os.WriteFile(file, []byte("default:\n  deny: [x]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range serveOptions(&cfg) {
		sample := map[string]string{"text": "x", "name": "auto", "bool": "true", "n": "200", "duration": "20s", "bytes": "64KiB"}[o.kind]
		switch o.name {
		case "top-k":
			sample = "20"
		case "search-rounds":
			sample = "2"
		case "world":
			sample = "open"
		case "ledger-bytes":
			sample = "64MiB"
		case "clients":
			sample = file
		}
		if _, err := load(t, []string{"--" + o.name + "=" + sample}, nil, ""); err != nil && o.name != "config" {
			t.Errorf("--%s: %v", o.name, err)
		}
		if o.name == "config" {
			continue
		}
		if _, err := load(t, nil, map[string]string{o.env(): sample}, ""); err != nil {
			t.Errorf("%s: %v", o.env(), err)
		}
		if _, err := load(t, nil, nil, o.name+": "+sample+"\n"); err != nil {
			t.Errorf("key %s: %v", o.name, err)
		}
		if o.usage == "" || strings.ToLower(o.name) != o.name {
			t.Errorf("%s: usage %q", o.name, o.usage)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		env   map[string]string
		yaml  string
		want  []string
	}{
		{nil, nil, "engine: http://e\nmax-bdy: 3\n", []string{"sidecar.yaml:2: max-bdy: unknown key; is max-body meant?"}},
		{nil, nil, "MAX_BODY: 65536\n", []string{"sidecar.yaml:1: MAX_BODY: unknown key; is max-body meant?"}},
		{nil, nil, "something_else_entirely: 3\n", []string{"unknown key; see 'sidecar serve --help'"}},
		{nil, nil, "config: other.yaml\n", []string{"sidecar.yaml:1: config: unknown key; a configuration file can't name another"}},
		{nil, nil, "pin: &a [b, *a]\n", []string{"sidecar.yaml:1: pin: text or a list of texts is expected, found a list"}},
		{nil, nil, "top-k: 3\n---\ntop-k: 4\n", []string{"more than one YAML document"}},
		{nil, nil, "top-k: 3\n---\n: [\n", []string{"more than one YAML document"}},
		{nil, nil, "max-depth: ten\n", []string{`sidecar.yaml:1: max-depth: a whole number is expected, found str "ten"`}},
		{nil, nil, "max-depth: 10.5\n", []string{`a whole number is expected, found float "10.5"`}},
		{nil, nil, "max-depth: 5\n", []string{`sidecar.yaml:1: max-depth: "5" is not a whole number from 8 to 900`}},
		{nil, nil, "max-depth:\n", []string{"a whole number is expected, found nothing"}},
		{nil, nil, "retrieval: maybe\n", []string{`true or false is expected, found str "maybe"`}},
		{nil, nil, "stall-timeout: 30\n", []string{`a duration such as 30s is expected, found int "30"`}},
		{nil, nil, "stall-timeout: 30 s\n", []string{`"30 s" is not a duration`}},
		{nil, nil, "listen: 8080\n", []string{`sidecar.yaml:1: listen: text is expected, found int "8080"`}},
		{nil, nil, "engine: [a]\n", []string{`text is expected, found a list`}},
		{nil, nil, "pin:\n - a\n - {b: c}\n", []string{`sidecar.yaml:2: pin: text or a list of texts is expected, found a mapping`}},
		{nil, nil, "engine: a\nmax-depth: 9\nengine: b\n", []string{`sidecar.yaml:3: engine: already given at`, `sidecar.yaml:1`}},
		{nil, nil, "- engine\n", []string{`sidecar.yaml:1: a mapping is expected`}},
		{nil, nil, "engine: \"x\n", []string{`sidecar.yaml: `}},
		{nil, nil, "max-body: 12MB\nfamily: llama\nlogging: on\n", []string{`sidecar.yaml:1: max-body: "12MB" is not`, `sidecar.yaml:2: family: "llama" is not one of auto, hermes, chatml`, `sidecar.yaml:3: logging: unknown key`}},
		{nil, nil, "clients:\n  default: {max_risk: A7}\n", []string{`sidecar.yaml:2: clients: default: max_risk: risk "A7"`}},
		{nil, nil, "clients:\n  k:\n    alow: [a]\n", []string{"sidecar.yaml:3: clients: k: unknown key alow"}},
		{nil, nil, "clients:\n  k: [a]\n", []string{"sidecar.yaml:2: clients: k: a mapping with allow, deny or max_risk is expected, found a list"}},
		{nil, nil, "clients:\n  a: {key: x}\n  b: {key: x}\n", []string{"client b: it has the same key as a"}},
		{nil, nil, "clients:\n  sk-secret-key: {allow: [']x[']}\n", []string{"clients: client sk-…: pattern"}},
		{nil, map[string]string{"SIDECAR_MAX_STREAMS": "0"}, "", []string{`SIDECAR_MAX_STREAMS: "0" is not a whole number from 1`}},
		{nil, map[string]string{"SIDECAR_OBSERVE": "on"}, "", []string{`SIDECAR_OBSERVE: "on" is not true or false`}},
		{[]string{"--write-timeout", "0s"}, nil, "", []string{`--write-timeout: "0s" is not a duration such as 1m30s from 100ms to 1h`}},
		{[]string{"--max-body", "9999999999999GiB"}, nil, "", []string{`--max-body: `}},
		{[]string{"--max-body", "-1"}, nil, "", []string{`--max-body: `}},
		{[]string{"--config", "absent.yaml"}, nil, "", []string{"absent.yaml: no such file"}},
		{[]string{"--nonsense"}, nil, "", []string{"unknown flag"}},
	} {
		_, err := load(t, tt.flags, tt.env, tt.yaml)
		if err == nil {
			t.Errorf("%q %v %q: accepted", tt.flags, tt.env, tt.yaml)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q %v %q: %v\nhas no %q", tt.flags, tt.env, tt.yaml, err, want)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "1": 1, "64KiB": 64 << 10, "3MiB": 3 << 20, "1GiB": 1 << 30} {
		if n, ok := parseSize(text); !ok || n != want {
			t.Errorf("%s: %d %v", text, n, ok)
		}
		if back, ok := parseSize(formatSize(want)); !ok || back != want {
			t.Errorf("%s: printed as %s", text, formatSize(want))
		}
	}
	for _, text := range []string{"", "KiB", "1 KiB", "-1", "1kb", "1.5MiB", "0x10", "99999999999GiB"} {
		if n, ok := parseSize(text); ok {
			t.Errorf("%q accepted as %d", text, n)
		}
	}
}
