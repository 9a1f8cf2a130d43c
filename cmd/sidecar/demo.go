package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/models"
	"github.com/toolsidecar/sidecar/models/cost"
)

// demoFlags are the flags of sidecar demo.
type demoFlags struct {
	engine, catalog  string
	tasks, maxTokens int
	timeout          time.Duration
	json, noColour   bool
	gpu, card        string
}

// newDemoCmd makes the command; start is startLocal.
func newDemoCmd(start startFunc) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run an agent over 3,200 tools and show what the sidecar does",
		Long: `Demo starts the simulated engine (or takes yours) and a sidecar in front of it,
and runs an agent through several tasks. The agent is a plain OpenAI client: it
sends messages, no tools; the tools are found by the sidecar, their calls are
answered by toy handlers that always say the same.

Each turn shows the tools found and why, the calls, the tokens of the prompt
beside those with all tools in front, the cached tokens beside the sidecar's
expectation, and where the time went. A summary, an estimate for one GPU and
the commands to do it by hand follow. The exit status is 1 when a turn failed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			log := &tailLog{}
			err := f.run(ctx, cmd.OutOrStdout(), log, start)
			if err != nil {
				for _, l := range log.lines() {
					fmt.Fprintln(cmd.ErrOrStderr(), "log:", l)
				}
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.engine, "engine", "", "`URL` of the engine (default: a simulated engine inside this process)")
	fs.StringVar(&f.catalog, "catalog", "demo", "catalog of tools; the tasks and handlers know \"demo\" only")
	fs.IntVar(&f.tasks, "tasks", 3, "number of tasks to run, 0 for all")
	fs.IntVar(&f.maxTokens, "max-tokens", 512, "tokens that one turn may generate")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Minute, "for one turn")
	fs.BoolVar(&f.json, "json", false, "write one JSON document instead of text")
	fs.StringVar(&f.gpu, "gpu", "H100-SXM-80GB", "GPU `card` of the estimate")
	fs.StringVar(&f.card, "model-card", "Qwen/Qwen3-8B", "model `card` of the estimate")
	fs.BoolVar(&f.noColour, "no-color", false, "no colours (as with NO_COLOR set)")
	return cmd
}

// demoReport is the whole of a demo, as --json writes it.
type demoReport struct {
	Engine struct {
		URL       string `json:"url"`
		Model     string `json:"model"`
		Context   int    `json:"context,omitempty"` // tokens; left out when the engine does not tell
		Simulated bool   `json:"simulated"`
	} `json:"engine"`
	Sidecar string `json:"sidecar"`
	Catalog struct {
		Name  string `json:"name"`
		Tools int    `json:"tools"`
	} `json:"catalog"`
	Baseline string        `json:"all_tools_counted_by,omitempty"`
	Tasks    []string      `json:"tasks"`
	Turns    []demoTurn    `json:"turns"`
	Summary  demoSummary   `json:"summary"`
	Estimate *demoEstimate `json:"estimate"`
	Commands []string      `json:"commands"`
}

// demoSummary sums up the turns: calls and tokens of those that did not fail, the
// rest of all. A figure that one turn lacks is null.
type demoSummary struct {
	Turns          int     `json:"turns"`
	Failed         int     `json:"failed"`
	Calls          int     `json:"calls"`
	Needed         int     `json:"needed_tools"` // that the tasks need
	NeededFound    int     `json:"needed_tools_found"`
	PromptTokens   int     `json:"prompt_tokens"`
	AllTools       *int    `json:"all_tools_prompt_tokens"`
	CachedTokens   *int    `json:"cached_tokens"`
	ExpectedCached *int    `json:"expected_cached_tokens"`
	TotalMs        float64 `json:"total_ms"`
	StagesMs       float64 `json:"stages_ms"`
}

// demoTasks returns the first n tasks of the demo catalog, all for 0.
func demoTasks(n int) []catalog.Task {
	all := catalog.Tasks()
	if n == 0 {
		return all
	}
	return all[:min(n, len(all))]
}

// callToy answers a call with the toy handler. A name that is not in the catalog
// or arguments that are no object must not come out of the sidecar, so that they
// are errors here and no text for the model.
func callToy(name string, arguments json.RawMessage) (string, error) {
	if _, ok := catalog.Demo().Lookup(name); !ok {
		return "", errors.New("no such tool in the catalog")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &object); err != nil || object == nil {
		return "", fmt.Errorf("the arguments are not a JSON object: %s", arguments)
	}
	return catalog.Toy(name, arguments), nil
}

// failedTurnsError says that the demo ran to its end, with failures.
type failedTurnsError struct{ failed, turns int }

func (e *failedTurnsError) Error() string {
	return fmt.Sprintf("demo: %d of %d turns failed", e.failed, e.turns)
}

// startFunc starts the simulated engine, unless cfg names another, and a sidecar
// in front of it, both inside this process.
type startFunc func(ctx context.Context, cfg localConfig) (baseURL, engineURL string, stop func(), err error)

func (f *demoFlags) run(ctx context.Context, out, log io.Writer, start startFunc) error {
	calc, err := f.check()
	if err != nil {
		return err
	}
	base, engine, stop, err := start(ctx, localConfig{Engine: engineBase(f.engine), Catalog: []string{f.catalog}, Log: log})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer stop()
	return f.demo(calc, base, engine, out).run(ctx, out)
}

// engineBase is an engine's URL without the /v1 that OpenAI clients want.
func engineBase(u string) string {
	return strings.TrimSuffix(strings.TrimRight(u, "/"), "/v1")
}

// checkEngineURL refuses what no engine can be reached at.
func checkEngineURL(s string) error {
	if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &usageError{fmt.Errorf("--engine %q is no base URL", s), "give one as in http://127.0.0.1:8000"}
	}
	return nil
}

// tailLog keeps the end of what is written to it.
type tailLog struct {
	mu   sync.Mutex
	tail []byte // guarded by mu
}

const tailLogBytes = 4 << 10

func (l *tailLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if over := len(l.tail) - tailLogBytes; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
	return len(p), nil
}

// lines returns the whole lines that were kept, fit for a terminal.
func (l *tailLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(string(l.tail)) {
		out = append(out, plain(line))
	}
	return out
}

// demo puts together one run against a sidecar and its engine.
func (f *demoFlags) demo(calc *cost.Calculator, base, engine string, out io.Writer) *demo {
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	d := &demo{
		flags: f,
		calc:  calc,
		agent: &agent{client: client, base: strings.TrimRight(base, "/"), maxTokens: f.maxTokens, timeout: f.timeout, now: time.Now, call: callToy},
		tasks: demoTasks(f.tasks),
		view:  &demoView{t: newTerminal(out, f.noColour, os.Getenv)},
	}
	if f.json {
		d.view.t = &terminal{w: io.Discard, width: plainWidth}
	}
	for _, t := range catalog.Demo().Tools() {
		d.tools = append(d.tools, t.Raw)
	}
	d.report.Sidecar = base
	d.report.Engine.URL, d.report.Engine.Simulated = engine, f.engine == ""
	d.report.Catalog.Name = f.catalog
	return d
}

// check refuses what cannot work before anything is started.
func (f *demoFlags) check() (*cost.Calculator, error) {
	if f.catalog != "demo" {
		return nil, &usageError{fmt.Errorf("demo: no tasks for catalog %q", f.catalog), "the tasks and handlers know --catalog demo only; for your own tools use 'sidecar serve --catalog'"}
	}
	if f.tasks < 0 || f.maxTokens < 1 || f.timeout <= 0 {
		return nil, &usageError{fmt.Errorf("demo: --tasks %d, --max-tokens %d, --timeout %v", f.tasks, f.maxTokens, f.timeout), "tasks from 0, tokens and timeout above 0"}
	}
	if f.engine != "" {
		u, err := url.Parse(f.engine)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, &usageError{fmt.Errorf("demo: --engine %q is no URL", f.engine), "for example http://127.0.0.1:8000"}
		}
	}
	return calculator("demo: --model-card", f.card, "demo: --gpu", f.gpu)
}

// calculator is the cost model of two cards, which were given by these flags.
func calculator(modelFlag, modelCard, gpuFlag, gpuCard string) (*cost.Calculator, error) {
	model, err := models.ByID(modelCard)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", modelFlag, err), "give one of the ids"}
	}
	gpu, err := models.GPUByID(gpuCard)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", gpuFlag, err), "give one of the ids"}
	}
	return cost.New(cost.Config{Model: model, GPU: gpu})
}

// demo is one run.
type demo struct {
	flags  *demoFlags
	calc   *cost.Calculator
	agent  *agent
	tasks  []catalog.Task
	tools  []json.RawMessage
	view   *demoView
	report demoReport
	base   *baseline
}

func (d *demo) run(ctx context.Context, out io.Writer) error {
	defer d.agent.client.CloseIdleConnections()
	r := &d.report
	r.Catalog.Tools = len(d.tools)
	r.Engine.URL = engineBase(r.Engine.URL)
	var err error
	d.view.begin("asking the engine")
	r.Engine.Model, r.Engine.Context, err = firstModel(ctx, d.agent.client, r.Engine.URL)
	if err == nil {
		d.agent.model = r.Engine.Model
		d.base, err = newBaseline(ctx, d.agent.client, r.Engine.URL, r.Engine.Model, d.tools)
	}
	d.view.end()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	r.Baseline = d.base.method
	r.Turns = []demoTurn{}
	d.view.head(r)
	for i, task := range d.tasks {
		r.Tasks = append(r.Tasks, task.Name)
		d.view.rule(fmt.Sprintf("Task %d of %d: %s", i+1, len(d.tasks), task.Name))
		err := d.task(ctx, i+1, task)
		if ctx.Err() != nil {
			return errors.New("demo: interrupted")
		}
		var gone *unreachableError
		if errors.As(err, &gone) {
			break // so would be every later turn
		}
	}
	r.sum()
	r.Estimate = estimate(d.calc, r.Turns)
	r.Commands = d.commands()
	d.view.summary(r)
	d.view.estimate(r.Estimate)
	d.view.commands(r.Commands)
	if d.flags.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	if d.view.err != nil {
		return fmt.Errorf("demo: writing: %w", d.view.err)
	}
	if r.Summary.Failed > 0 {
		return &failedTurnsError{r.Summary.Failed, r.Summary.Turns}
	}
	return nil
}

// task runs one conversation. It ends at the first turn that fails, with its error.
func (d *demo) task(ctx context.Context, number int, task catalog.Task) error {
	var messages []demoMessage
	n := 0
	found := map[string]bool{}
	for _, turn := range task.Turns {
		text := turn.Say
		messages = append(messages, demoMessage{Role: "user", Content: &text})
		d.view.user(text)
		user, need := text, turn.Need
		for round := 1; ; round++ {
			n++
			t := demoTurn{Task: number, Turn: n, User: user, Need: need}
			user, need = "", nil
			more, err := d.turn(ctx, messages, &t)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil && len(t.Calls) > 0 && round == maxRounds {
				err = fmt.Errorf("still no text answer after %d turns", maxRounds)
			}
			if err != nil {
				t.Error = err.Error()
			}
			for _, f := range t.Found {
				found[f.Name] = true
			}
			for _, name := range t.Need {
				if !found[name] {
					t.Missed = append(t.Missed, name)
				}
			}
			d.view.turn(&t)
			d.report.Turns = append(d.report.Turns, t)
			if err != nil {
				return err
			}
			messages = append(messages, more...)
			if len(t.Calls) == 0 {
				break
			}
		}
	}
	return nil
}

// turn asks once, counts what all tools would have been, and runs the calls.
func (d *demo) turn(ctx context.Context, messages []demoMessage, t *demoTurn) ([]demoMessage, error) {
	d.view.begin(fmt.Sprintf("turn %d.%d", t.Task, t.Turn))
	calls, err := d.agent.turn(ctx, messages, t, d.view.progress)
	d.view.end()
	if err != nil {
		return nil, err
	}
	switch {
	case t.Mode == "":
		return nil, fmt.Errorf("no X-Sidecar-Mode in the reply: %s does not answer as a sidecar with its stages on", d.agent.base)
	case t.Mode != "owned" && t.Mode != "token-in":
		return nil, fmt.Errorf("the sidecar passed the request through without tools: %s", t.Reason)
	}
	d.view.begin("counting the prompt with all tools")
	if n, err := d.base.count(ctx, messages, t.Task == 1 && t.Turn == 2); err == nil {
		t.AllTools = &n
	}
	d.view.end()
	return d.agent.run(t, calls)
}

// sum fills in the summary.
func (r *demoReport) sum() {
	s := demoSummary{Turns: len(r.Turns)}
	var all, cached, expected int
	counted, told, foretold := true, true, true
	for _, t := range r.Turns {
		s.TotalMs += t.TotalMs
		s.StagesMs += t.stagesMs()
		s.Needed += len(t.Need)
		s.NeededFound += len(t.Need) - len(t.Missed)
		if t.Error != "" {
			s.Failed++
			continue
		}
		s.Calls += len(t.Calls)
		s.PromptTokens += t.PromptTokens
		counted = add(&all, t.AllTools, counted)
		told = add(&cached, t.CachedTokens, told)
		foretold = add(&expected, t.ExpectedCached, foretold)
	}
	if s.Failed == s.Turns {
		counted, told, foretold = false, false, false
	}
	if counted {
		s.AllTools = &all
	}
	if told {
		s.CachedTokens = &cached
	}
	if foretold {
		s.ExpectedCached = &expected
	}
	r.Summary = s
}

// longestBaseline is the longest prompt with all tools, nil when none was counted.
func (r *demoReport) longestBaseline() *int {
	var longest *int
	for _, t := range r.Turns {
		if t.AllTools != nil && (longest == nil || *t.AllTools > *longest) {
			longest = t.AllTools
		}
	}
	return longest
}

// add sums up a figure that every turn must have for the sum to be one.
func add(sum, n *int, known bool) bool {
	if n == nil {
		return false
	}
	*sum += *n
	return known
}

// commands do by hand what the demo did.
func (d *demo) commands() []string {
	const listen = "127.0.0.1:8080"
	engine := d.report.Engine.URL
	var out []string
	if d.report.Engine.Simulated {
		engine = "http://127.0.0.1:8000"
		out = append(out, "bin/sidecar engine --listen 127.0.0.1:8000 --enable-prompt-tokens-details")
	}
	out = append(out, fmt.Sprintf("bin/sidecar serve --listen %s --engine %s --catalog %s", listen, shellWord(engine), shellWord(d.report.Catalog.Name)))
	text := "What can you do?"
	if len(d.tasks) > 0 {
		text = d.tasks[0].Turns[0].Say
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(struct {
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
		Options  map[string]bool `json:"stream_options"`
		Messages []message       `json:"messages"`
	}{d.report.Engine.Model, true, map[string]bool{"include_usage": true}, []message{{"user", text}}})
	if err != nil {
		panic(err) // strings and booleans always marshal
	}
	out = append(out,
		"curl -sN http://"+listen+`/v1/chat/completions \`,
		`  -H 'Content-Type: application/json' \`,
		"  -d '"+strings.ReplaceAll(string(body), "'", `\u0027`)+"'",
		"curl -s http://"+listen+"/sidecar/v1/sessions")
	return out
}

// shellWord quotes s for a shell when it needs it.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-[]@%+=,") == "" && !strings.ContainsAny(s, "[]") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
