package proxy

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolsidecar/sidecar/models/cost"
	"github.com/toolsidecar/sidecar/prefix"
)

// Record is what was decided about one chat request, and what came of it. It is
// served under /sidecar/v1/sessions and summed up under /sidecar/v1/report.
type Record struct {
	ID           string    `json:"id"`
	Time         time.Time `json:"time"`
	Model        string    `json:"model"`
	Conversation string    `json:"conversation,omitempty"` // see prefix.Name
	Epoch        string    `json:"epoch,omitempty"`        // why a new epoch was started, at the turn that did
	Mode         string    `json:"mode"`                   // token-in, owned, passthrough, observe or refused
	Reason       string    `json:"reason,omitempty"`       // why a request was passed through, or what is doubtful about its mode
	Stream       bool      `json:"stream"`

	Messages   int  `json:"messages"`
	Recognised int  `json:"recognised"`      // messages with a recorded decision
	Retry      bool `json:"retry,omitempty"` // the tools of this turn were chosen by an earlier request

	AllTools       int      `json:"all_tools"`        // tools on offer
	AllToolsTokens int      `json:"all_tools_tokens"` // schema tokens of all of them
	Shown          int      `json:"shown"`            // tools in the prompt, front and late
	Visible        []string `json:"visible"`          // their names
	ShownTokens    int      `json:"shown_tokens"`
	FrontTokens    int      `json:"front_tokens"` // of these, in the front block
	Added          []Chosen `json:"added,omitempty"`
	AddedTokens    int      `json:"added_tokens"`
	Searches       []Search `json:"searches,omitempty"` // of the model, answered within the request
	Dropped        []string `json:"dropped,omitempty"`  // found but not added, and why

	Constraint string   `json:"constraint"`           // structural tag, legacy tag, gbnf, checked or off
	Held       []Held   `json:"held,omitempty"`       // how well the engine holds each callable tool
	CompileMS  float64  `json:"compile_ms,omitempty"` // predicted for the engine's first use of a structural tag, processor time
	Checked    []string `json:"checked,omitempty"`    // tools whose arguments the tag can't hold exactly, and why
	Fallback   string   `json:"fallback,omitempty"`   // what was given up, and why
	Shaped     []Shaped `json:"shaped,omitempty"`

	// Counts are exact when the tokenizer is the engine's own, else estimates.
	TokensExact    bool `json:"tokens_exact"`
	PromptTokens   int  `json:"prompt_tokens"`          // as rendered by us; 0 when not known
	PrefixTokens   int  `json:"prefix_tokens"`          // shared with what the engine saw before
	ExpectedCached int  `json:"expected_cached_tokens"` // PrefixTokens down to the cache block
	// Kept is where the template leaves out the reasoning of an earlier turn, in
	// token-in mode: the prompt before can't be continued beyond. 0 for nowhere.
	Kept int `json:"kept_tokens,omitempty"`

	Reported *Reported `json:"reported,omitempty"`       // by the engine, for the last round
	Earlier  *Earlier  `json:"earlier_rounds,omitempty"` // sums of the rounds that ended in a search
	Calls    []string  `json:"calls,omitempty"`
	Finish   []string  `json:"finish,omitempty"`
	Error    string    `json:"error,omitempty"`

	Volatile []prefix.VolatileLine `json:"volatile,omitempty"` // lines taken out of the system text

	Autopsy *Autopsy `json:"autopsy,omitempty"` // of the cache, where there was a turn before

	tenant string // whose request it was; see tenant

	Timing []StageTime `json:"timing,omitempty"`
	// FirstByte and Total are milliseconds from the request's arrival to the
	// engine's first event and to the end.
	FirstByte float64 `json:"first_byte_ms,omitempty"`
	Total     float64 `json:"total_ms,omitempty"`
}

// staged says that the prompt was laid out by the stages.
func (r *Record) staged() bool { return r.Mode == ModeTokenIn || r.Mode == ModeOwned }

// fallBack notes that something was given up.
func (r *Record) fallBack(why string) {
	if r.Fallback != "" {
		r.Fallback += "; "
	}
	r.Fallback += why
}

// Chosen is one tool that a turn added.
type Chosen struct {
	Name   string  `json:"name"`
	Score  float64 `json:"score"`
	Tokens int     `json:"tokens"`
	Why    string  `json:"why"`
}

// Shaped is one tool result that was cut to its allowance.
type Shaped struct {
	Message int `json:"message"` // index in the client's list
	Tokens  int `json:"tokens"`
	Kept    int `json:"kept"`
}

// Reported is the engine's own accounting.
type Reported struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Cached     int `json:"cached_tokens"` // -1 when the engine does not tell
}

// Earlier sums up the rounds of a request before its last.
type Earlier struct {
	Rounds         int `json:"rounds"`
	Reported           // Cached is -1 when the engine does not tell
	ExpectedCached int `json:"expected_cached_tokens"`

	first         Reported // of the first round
	firstExpected int
}

// StageTime is the time of one stage in milliseconds.
type StageTime struct {
	Stage        string  `json:"stage"`
	Milliseconds float64 `json:"ms"`
}

// Report sums up all records since the start.
type Report struct {
	Requests    int            `json:"requests"`
	TokenIn     int            `json:"token_in"`
	Owned       int            `json:"owned"`
	Observed    int            `json:"observed"`
	Passed      int            `json:"passed_through"`
	Refused     int            `json:"refused"`
	PassReasons map[string]int `json:"pass_reasons"`
	// AllToolsTokens and ShownTokens compare, over staged and observed turns, the
	// schema tokens of showing every tool with those that were or would have been
	// shown.
	AllToolsTokens int `json:"all_tools_tokens"`
	ShownTokens    int `json:"shown_tokens"`
	SavedTokens    int `json:"saved_tokens"`
	// ObservationTokens went in as tool results and ObservationKept remained.
	ObservationTokens int            `json:"observation_tokens"`
	ObservationKept   int            `json:"observation_kept"`
	PromptTokens      int            `json:"prompt_tokens"` // as the engine reported them
	CachedTokens      int            `json:"cached_tokens"`
	CachedUnknown     int            `json:"requests_without_cached_tokens"` // the engine does not tell
	ExpectedCached    int            `json:"expected_cached_tokens"`
	Epochs            int            `json:"epochs"`
	Fallbacks         map[string]int `json:"fallbacks"`
	Held              map[string]int `json:"held"` // tools of all turns by how well the engine held them
	Misfits           int            `json:"misfits"`
	// PrefixBreaks counts, by what stands at the first difference, the turns
	// whose prompt as the client sent it does not begin with the turn before.
	PrefixBreaks map[string]int `json:"prefix_breaks"`
	PrefixLost   int            `json:"prefix_lost_tokens"` // tokens of both behind that point

	Autopsy AutopsyReport `json:"autopsy"`
}

// maxReasons bounds the distinct reasons that a report counts one by one.
const maxReasons = 64

// records keeps the last records and their sum.
type records struct {
	cost    *cost.Calculator // see StageConfig
	gpuHour float64

	// mu guards the fields below.
	mu   sync.Mutex
	ring []Record
	next int
	sum  Report
	due  map[*Record]chan struct{} // closed once the record is kept
}

func newRecords(keep int) *records {
	return &records{ring: make([]Record, 0, max(keep, 1)), due: map[*Record]chan struct{}{}, sum: Report{PassReasons: map[string]int{}, Fallbacks: map[string]int{}, Held: map[string]int{}, PrefixBreaks: map[string]int{}}}
}

func (r *records) add(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, rec)
	} else {
		r.ring[r.next] = rec
		r.next = (r.next + 1) % len(r.ring)
	}
	s := &r.sum
	s.Requests++
	switch rec.Mode {
	case ModeTokenIn:
		s.TokenIn++
	case ModeOwned:
		s.Owned++
	case "observe":
		s.Observed++
	case "refused":
		s.Refused++
	default:
		s.Passed++
		tally(s.PassReasons, rec.Reason)
	}
	if rec.staged() || rec.Mode == "observe" {
		s.AllToolsTokens += rec.AllToolsTokens
		s.ShownTokens += rec.ShownTokens
		s.SavedTokens = s.AllToolsTokens - s.ShownTokens
		s.ExpectedCached += rec.ExpectedCached
	}
	for _, o := range rec.Shaped {
		s.ObservationTokens += o.Tokens
		s.ObservationKept += o.Kept
	}
	if e := rec.Earlier; e != nil {
		s.PromptTokens += e.Prompt
		s.CachedTokens += max(e.Cached, 0)
		s.ExpectedCached += e.ExpectedCached
	}
	if rec.Reported != nil {
		s.PromptTokens += rec.Reported.Prompt
		s.CachedTokens += max(rec.Reported.Cached, 0)
		if rec.Reported.Cached < 0 {
			s.CachedUnknown++
		}
	}
	if rec.Epoch != "" {
		s.Epochs++
	}
	for _, h := range rec.Held {
		s.Held[statusOf(h.Status)]++
	}
	if rec.Autopsy != nil {
		s.Autopsy.add(rec.Autopsy)
	}
	if rec.Fallback != "" {
		tally(s.Fallbacks, rec.Fallback)
	}
}

// tally counts a reason; beyond maxReasons distinct ones they count as "other".
func tally(m map[string]int, reason string) {
	if _, ok := m[reason]; !ok && len(m) >= maxReasons {
		reason = "other"
	}
	m[reason]++
}

// expect says that the client of rec may have its whole answer before rec is kept.
func (r *records) expect(rec *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due[rec] = make(chan struct{})
}

// settle says that rec is kept, or never will be.
func (r *records) settle(rec *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept := r.due[rec]; kept != nil {
		close(kept)
		delete(r.due, rec)
	}
}

// settleTime bounds how long a reader waits for records that are due: longer than
// drainTime and the autopsy of a long prompt.
const settleTime = 2 * time.Second

// settled waits for the records of all answers that have ended, so that whoever
// asks after an answer finds its record. It gives up with ctx and after settleTime.
func (r *records) settled(ctx context.Context) {
	r.mu.Lock()
	due := slices.Collect(maps.Values(r.due))
	r.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, kept := range due {
		select {
		case <-kept:
		case <-ctx.Done():
			return
		}
	}
}

// last returns the records kept, oldest first.
func (r *records) last() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Record, 0, len(r.ring))
	out = append(out, r.ring[r.next:]...)
	return append(out, r.ring[:r.next]...)
}

// report returns a copy of the sum.
func (r *records) report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sum
	s.PassReasons, s.Fallbacks, s.PrefixBreaks = maps.Clone(s.PassReasons), maps.Clone(s.Fallbacks), maps.Clone(s.PrefixBreaks)
	s.Held = maps.Clone(s.Held)
	s.Autopsy = s.Autopsy.finished(r.cost, r.gpuHour)
	return s
}

func (r *records) misfit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Misfits++
}

// broken counts one turn whose prompt lost tokens of the turn before.
func (r *records) broken(where string, tokens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tally(r.sum.PrefixBreaks, where)
	r.sum.PrefixLost += tokens
}

// maxRecordText bounds the texts of a record that may repeat what a client wrote,
// in bytes.
const maxRecordText = 300

// note keeps a record, and counts it.
func (s *stages) note(rec *Record) {
	for _, text := range []*string{&rec.Model, &rec.Reason, &rec.Fallback, &rec.Epoch} {
		*text = cutText(*text, maxRecordText)
	}
	s.records.add(*rec)
	s.metrics.count(rec)
}

// serveSessions lists the last decision records of the tenant that asks, newest
// last; to the operator those of all.
func (p *Proxy) serveSessions(x *exchange) {
	list := []Record{}
	if s, ok := p.stages.(*stages); ok {
		s.records.settled(x.ctx)
		who, all := tenant(x.req), s.operator(x.req)
		list = slices.DeleteFunc(s.records.last(), func(r Record) bool { return !all && r.tenant != who })
	}
	x.replyJSON(map[string][]Record{"sessions": list})
}

// serveReport sums up what the stages did, or would have done, since the start.
func (p *Proxy) serveReport(x *exchange) {
	var r Report
	if s, ok := p.stages.(*stages); ok {
		s.records.settled(x.ctx)
		r = s.records.report()
		if !s.client(x.req).Rules.All() { // sums over all clients tell of tools and requests that aren't its own
			r.AllToolsTokens, r.SavedTokens, r.PassReasons, r.Fallbacks = 0, 0, map[string]int{}, map[string]int{}
		}
	}
	x.replyJSON(r)
}

func (x *exchange) replyJSON(v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	x.reply(200, http.Header{"Content-Type": {"application/json"}}, append(body, '\n'))
}

// stageMetrics count what the stages decided.
type stageMetrics struct {
	turns, fallbacks, held, schemaTokens, promptTokens, epochs *prometheus.CounterVec
	stage                                                      *prometheus.HistogramVec
	alarms                                                     *prometheus.CounterVec
	compared, embedFallbacks                                   prometheus.Counter
}

func newStageMetrics(r *prometheus.Registry) *stageMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &stageMetrics{
		turns:        counter("sidecar_turns_total", "Chat requests by mode: token-in, owned, passthrough, observe or refused.", "mode"),
		fallbacks:    counter("sidecar_constraint_total", "Chat requests by how their tool calls were held to the schemas.", "constraint"),
		held:         counter("sidecar_tools_held_total", "Callable tools of all turns by how well the engine held them: proved, bounded, checked, unconstrained or unproved.", "status"),
		schemaTokens: counter("sidecar_schema_tokens_total", "Schema tokens of all tools on offer, and of those shown.", "which"),
		promptTokens: counter("sidecar_prompt_tokens_total", "Prompt tokens as the engine reported them, those it found cached, and those the ledger expected cached.", "which"),
		epochs:       counter("sidecar_epochs_total", "Conversations whose prompt had to start anew."),
		stage: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sidecar_stage_seconds", Help: "Time of one stage for one request.",
			Buckets: []float64{25e-6, 100e-6, 250e-6, 1e-3, 2.5e-3, 10e-3, 50e-3, 250e-3},
		}, []string{"stage"}),
	}
	m.alarms = counter("sidecar_token_in_alarms_total", "What showed that ids and the engine are out of step: its count of prompt tokens, or its framing of a live conversation.", "what")
	m.compared = prometheus.NewCounter(prometheus.CounterOpts{Name: "sidecar_token_in_compared_total", Help: "Live conversations whose framing was compared with the engine's in the background."})
	m.embedFallbacks = prometheus.NewCounter(prometheus.CounterOpts{Name: "sidecar_embedder_fallbacks_total", Help: "Searches with the built-in table because the embedder's vectors were not there in time."})
	r.MustRegister(m.embedFallbacks, m.alarms, m.compared, m.turns, m.fallbacks, m.held, m.schemaTokens, m.promptTokens, m.epochs, m.stage)
	return m
}

func (m *stageMetrics) count(rec *Record) {
	m.turns.WithLabelValues(rec.Mode).Inc()
	for _, t := range rec.Timing {
		m.stage.WithLabelValues(t.Stage).Observe(t.Milliseconds / 1e3)
	}
	if rec.Reported != nil {
		m.promptTokens.WithLabelValues("reported").Add(float64(rec.Reported.Prompt))
		m.promptTokens.WithLabelValues("cached").Add(float64(max(rec.Reported.Cached, 0)))
		m.promptTokens.WithLabelValues("expected_cached").Add(float64(rec.ExpectedCached))
	}
	if e := rec.Earlier; e != nil {
		m.promptTokens.WithLabelValues("reported").Add(float64(e.Prompt))
		m.promptTokens.WithLabelValues("cached").Add(float64(max(e.Cached, 0)))
		m.promptTokens.WithLabelValues("expected_cached").Add(float64(e.ExpectedCached))
	}
	if !rec.staged() && rec.Mode != "observe" {
		return
	}
	m.fallbacks.WithLabelValues(rec.Constraint).Inc()
	for _, h := range rec.Held {
		m.held.WithLabelValues(statusOf(h.Status)).Inc()
	}
	m.schemaTokens.WithLabelValues("all").Add(float64(rec.AllToolsTokens))
	m.schemaTokens.WithLabelValues("shown").Add(float64(rec.ShownTokens))
	if rec.Epoch != "" {
		m.epochs.WithLabelValues().Inc()
	}
}
