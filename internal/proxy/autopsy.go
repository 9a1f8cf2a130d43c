package proxy

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/models/cost"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
)

// Autopsy is what became of the cache between a turn and the turn before it, as
// the client sent them.
type Autopsy struct {
	Before string `json:"before_id"` // id of the request before
	prefix.Diff
	// Expected are the tokens that the engine would have found cached if this
	// prompt had begun with the one before, in whole blocks; Shared those that
	// both in fact begin with. Reported are those that it found, -1 when it does
	// not tell; they may be more than Shared by the reply, which it has cached too.
	Expected int `json:"expected_cached_tokens"`
	Shared   int `json:"shared_cached_tokens"`
	Reported int `json:"reported_cached_tokens"`
	// Lost is what was computed anew and need not have been: Expected less
	// Reported when that is more than a block, or what the prompts tell when the
	// engine does not.
	Lost    int     `json:"lost_tokens"`
	prompt  int     // tokens, as the engine reported them
	seconds float64 // of prefill for Lost
	block   int     // of the engine
}

// sent is a request that a later one may continue.
type sent struct {
	id           string
	conversation string
	request      *prefix.Request
	reported     *Reported
	bytes        int
	link         historyKey // of its last assistant message; zero without one
}

// history remembers the last requests of conversations, as their clients sent
// them. A conversation is known by its first user message, so that a change above
// it (a date in the system text, another order of tools) is still seen as the same
// conversation; where that message is gone, as after compaction, by the last
// assistant message that it shares with an earlier request. Several branches of a
// conversation are kept, such as those of parallel agents.
type history struct {
	// mu guards the fields below.
	mu       sync.Mutex
	branches map[historyKey][]*sent // newest last
	links    map[historyKey]historyKey
	keys     []historyKey // used longest ago first
	bytes    int
}

// historyKey is an HMAC over tenant and a message.
type historyKey [sha256.Size]byte

// Bounds of a history: a window of 128k tokens is about 600 kB.
const (
	maxHistory      = 1024
	maxHistoryBytes = 64 << 20
	maxBranches     = 4
	maxLinks        = 8 // assistant messages that are asked for an earlier request
)

// known is the key of the conversation that one of the links leads to, or key
// itself when that is known or nothing is.
func (h *history) known(key historyKey, links []historyKey) historyKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.branches[key] != nil {
		return key
	}
	for _, l := range links {
		if k, ok := h.links[l]; ok {
			return k
		}
	}
	return key
}

// before is the request that r continues most likely: the one with most messages
// at the same place, the newest of several. nil when there is none.
func (h *history) before(key historyKey, r *prefix.Request) *sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	var best *sent
	most := -1
	for _, s := range h.branches[key] {
		if n := s.request.Alike(r); n >= most {
			best, most = s, n
		}
	}
	return best
}

// keep remembers now in the place of the request that it continues.
func (h *history) keep(key historyKey, before, now *sent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.branches == nil {
		h.branches, h.links = map[historyKey][]*sent{}, map[historyKey]historyKey{}
	}
	list := h.branches[key]
	if list != nil {
		i := slices.Index(h.keys, key)
		h.keys = slices.Delete(h.keys, i, i+1)
	}
	h.keys = append(h.keys, key)
	if i := slices.Index(list, before); i >= 0 && before.request.Alike(now.request) == min(len(before.request.Messages), len(now.request.Messages)) {
		h.unlink(list[i])
		list = slices.Delete(list, i, i+1)
	}
	for len(list) >= maxBranches {
		h.unlink(list[0])
		list = slices.Delete(list, 0, 1)
	}
	h.branches[key] = append(list, now)
	h.bytes += now.bytes
	if now.link != (historyKey{}) {
		h.links[now.link] = key
	}
	for h.bytes > maxHistoryBytes || len(h.keys) > maxHistory {
		h.drop(h.keys[0])
	}
}

// unlink takes a request out of the sums; the caller holds mu.
func (h *history) unlink(s *sent) {
	h.bytes -= s.bytes
	delete(h.links, s.link)
}

// drop forgets a conversation; the caller holds mu.
func (h *history) drop(key historyKey) {
	for _, s := range h.branches[key] {
		h.unlink(s)
	}
	delete(h.branches, key)
	h.keys = slices.DeleteFunc(h.keys, func(k historyKey) bool { return k == key })
}

// forget drops what is remembered of a conversation and says whether it was
// anything.
func (h *history) forget(conversation string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.keys)
	for _, key := range slices.Clone(h.keys) {
		if slices.ContainsFunc(h.branches[key], func(s *sent) bool { return s.conversation == conversation }) {
			h.drop(key)
		}
	}
	return len(h.keys) < n
}

// dissection is the autopsy of one turn on its way.
type dissection struct {
	key    historyKey
	name   prefix.Name // of the conversation, where the ledger gave it none
	now    *sent
	before *sent // nil for the first turn
	diff   *prefix.Diff
}

// open finds the turn that a request continues. It returns nil for a request that
// is not looked at: one without a user message, or too large.
func (s *stages) open(id, tenant string, r *prefix.Request) *dissection {
	i := slices.IndexFunc(r.Messages, func(m prefix.Message) bool { return m.Role == "user" })
	if i < 0 {
		return nil
	}
	for i := range r.Tools { // what is remembered must not hold the request's body
		r.Tools[i] = bytes.Clone(r.Tools[i])
	}
	for i := range r.Messages {
		r.Messages[i].Opaque = bytes.Clone(r.Messages[i].Opaque)
	}
	d := &dissection{now: &sent{id: id, request: r, bytes: r.Size()}}
	if d.now.bytes > maxHistoryBytes {
		return nil
	}
	key := func(kind, said string) (k historyKey) {
		mac := hmac.New(sha256.New, s.cfg.Secret)
		mac.Write([]byte(kind + "\x00" + tenant + "\x00" + said))
		mac.Sum(k[:0])
		return k
	}
	var links []historyKey // the newest first
	for i := len(r.Messages) - 1; i >= 0 && len(links) < maxLinks; i-- {
		if m := &r.Messages[i]; m.Role == "assistant" {
			links = append(links, key("assistant", m.Said()))
		}
	}
	d.key = key("user", r.Messages[i].Text)
	if len(links) > 0 {
		d.now.link = links[0]
		d.key = s.history.known(d.key, links)
		d.before = s.history.before(d.key, r)
	}
	d.name = prefix.Scope{Secret: s.cfg.Secret, Tenant: tenant}.Named(d.key[:])
	return d
}

// compare finds where the prompts part. It is the costly half.
func (s *stages) compare(d *dissection, f *wire.Family) {
	if d.before != nil {
		d.diff = prefix.Compare(d.before.request, d.now.request, f, s.cfg.Counter)
	}
}

// conclude judges the turn, once it is known what the engine found, and remembers
// it for the next one. info is what is known of the engine, nil for nothing.
func (s *stages) conclude(d *dissection, rec *Record, info *engine.Info) {
	if rec.Conversation == "" {
		rec.Conversation = d.name.String()
	}
	d.now.conversation, d.now.reported = rec.Conversation, rec.Reported
	s.history.keep(d.key, d.before, d.now)
	if d.before == nil || info == nil || info.Family == nil {
		return
	}
	block := info.BlockSize
	a := &Autopsy{Before: d.before.id, Reported: -1, block: block}
	prompt, ledger := 0, rec.ExpectedCached // what the ledger says should be found
	if rec.Reported != nil {
		a.Reported, prompt = rec.Reported.Cached, rec.Reported.Prompt
	}
	if e := rec.Earlier; e != nil { // the first round is what follows the turn before
		a.Reported, prompt, ledger = e.first.Cached, e.first.Prompt, e.firstExpected
	}
	if d.before.reported != nil && prompt > 0 {
		a.Expected = wholeBlocks(min(d.before.reported.Prompt, prompt-1), block)
	}
	a.prompt = prompt
	measured := a.Reported >= 0 && a.Expected > 0
	ours := rec.staged() // the client's own prompt was not sent
	if ours && (!measured || a.Expected-a.Reported <= max(block, 1)) {
		return
	}
	if d.diff == nil {
		s.compare(d, info.Family)
	}
	a.Diff = *d.diff
	if !ours && a.Relation == prefix.Breaks {
		s.records.broken(where(&a.Diff, d.now.request), a.Diff.LostTokens)
	}
	a.Lost = a.Diff.LostTokens
	a.Shared = a.Expected
	if a.Relation == prefix.Breaks {
		a.Shared = a.Token
		if !info.TokenizerExact && prompt > 0 { // our count of the same text is another
			a.Shared = int(float64(a.Token) * float64(prompt) / float64(max(a.AfterTokens, 1)))
		}
		a.Shared = min(wholeBlocks(a.Shared, block), a.Expected)
	}
	if measured {
		a.Lost = 0
		if lost := a.Expected - a.Reported; lost > max(block, 1) {
			a.Lost = lost
		}
	}
	if ours {
		s.ownLoss(a, rec, ledger)
	}
	if a.Lost > 0 && a.Kind == "" {
		a.Kind, a.Owner = prefix.Eviction, prefix.Engine
	}
	a.seconds = s.prefillSeconds(prompt, a.Reported, a.Lost)
	rec.Autopsy = a
}

// ownLoss finds who is to blame for a loss in a prompt of ours, of which ledger
// tokens were expected to be found. If the engine found less than that by more than
// our prompt had lost before, it is the engine; else what the client changed is,
// with the tools in a new epoch, and where the client changed nothing the template.
func (s *stages) ownLoss(a *Autopsy, rec *Record, ledger int) {
	nothing := prefix.Diff{Relation: a.Relation, Byte: a.Byte, Token: a.Token, BeforeTokens: a.BeforeTokens, AfterTokens: a.AfterTokens}
	switch {
	case rec.TokensExact && ledger-a.Reported > a.Expected-ledger:
		a.Diff = nothing
	case rec.Kept > 0 && a.Reported+max(a.block, 1) >= wholeBlocks(rec.Kept, a.block):
		if a.Kind != prefix.Stripped || a.Owner != prefix.Template { // what else changed cost nothing
			a.Diff = nothing
			a.Kind, a.Owner = prefix.Stripped, prefix.Template
		}
	case rec.Epoch != "":
		a.Diff = nothing
		a.Kind, a.Owner, a.Path, a.After = prefix.ChangedTool, prefix.Tools, "/tools", rec.Epoch
	case a.Kind == "":
		a.Kind, a.Owner = prefix.TemplateRule, prefix.Template
	}
}

func wholeBlocks(tokens, block int) int {
	if block < 1 {
		return tokens
	}
	return tokens / block * block
}

// prefillSeconds is what computing lost tokens anew cost by the cost model, 0
// without one.
func (s *stages) prefillSeconds(prompt, cached, lost int) float64 {
	if s.cfg.Cost == nil || lost == 0 || prompt == 0 {
		return 0
	}
	cached = max(cached, 0)
	n := max(prompt-cached, lost)
	with, err1 := s.cfg.Cost.Prefill(n, cached)
	without, err2 := s.cfg.Cost.Prefill(n-lost, cached+lost)
	if errors.Join(err1, err2) != nil {
		return 0 // the report says why
	}
	return with.Seconds - without.Seconds
}

// AutopsyReport sums up the autopsies since the start.
type AutopsyReport struct {
	Turns    int `json:"turns"`                  // with a turn before them
	Measured int `json:"measured_turns"`         // of which the engine told what it found
	Near     int `json:"turns_within_one_block"` // of these, it found what the prompts share, or more, but for a block
	Prompt   int `json:"prompt_tokens"`          // of the measured turns
	Expected int `json:"expected_cached_tokens"`
	Cached   int `json:"cached_tokens"`
	// Prefill are the tokens of measured turns that were computed; Avoidable are
	// those of all turns that need not have been.
	Prefill        int      `json:"prefill_tokens"`
	Avoidable      int      `json:"avoidable_tokens"`
	AvoidableShare float64  `json:"avoidable_share"` // of Prefill
	Causes         []*Cause `json:"causes"`          // by tokens lost
	Cost           *Toll    `json:"cost,omitempty"`
}

// Cause is one reason for lost cache.
type Cause struct {
	Kind   prefix.Kind  `json:"kind"`
	Owner  prefix.Owner `json:"owner"`
	Path   string       `json:"path,omitempty"` // with * for the index of a message that is not the first
	Before string       `json:"before,omitempty"`
	After  string       `json:"after,omitempty"` // the lines of the last such turn
	Turns  int          `json:"turns"`
	Lost   int          `json:"lost_tokens"`
	Share  float64      `json:"share"` // of all avoidable tokens
	// Seconds of prefill on the model and GPU of the report.
	Seconds float64 `json:"seconds,omitempty"`
}

// Toll is what avoidable prefill costs, by the cost model and nothing else.
type Toll struct {
	Model    string  `json:"model"`
	GPU      string  `json:"gpu"`
	Seconds  float64 `json:"avoidable_seconds"`
	PerHour  float64 `json:"gpu_hour_price,omitempty"` // as configured, in whatever currency
	Price    float64 `json:"avoidable_price,omitempty"`
	Estimate string  `json:"estimate"` // what this number is
	Error    string  `json:"error,omitempty"`
}

// maxCauses bounds the causes counted one by one.
const maxCauses = 64

var messageIndex = regexp.MustCompile(`^/messages/[1-9]\d*`)

// add counts one autopsy.
func (r *AutopsyReport) add(a *Autopsy) {
	r.Turns++
	if a.Reported >= 0 {
		r.Measured++
		r.Prompt += a.prompt
		r.Cached += a.Reported
		r.Prefill += a.prompt - a.Reported
		r.Expected += a.Expected
		if a.Reported >= a.Shared-max(a.block, 1) {
			r.Near++
		}
	}
	r.Avoidable += a.Lost
	if a.Lost == 0 {
		return
	}
	path := messageIndex.ReplaceAllString(a.Path, "/messages/*")
	i := slices.IndexFunc(r.Causes, func(c *Cause) bool { return c.Kind == a.Kind && c.Owner == a.Owner && c.Path == path })
	if i < 0 {
		if i = len(r.Causes); i == maxCauses {
			i--
			r.Causes[i].Kind, r.Causes[i].Owner, r.Causes[i].Path = "other", "", ""
		} else {
			r.Causes = append(r.Causes, &Cause{Kind: a.Kind, Owner: a.Owner, Path: path})
		}
	}
	c := r.Causes[i]
	c.Before, c.After = a.Diff.Before, a.After
	c.Turns++
	c.Lost += a.Lost
	c.Seconds += a.seconds
}

// finished is a copy for people: shares worked out, causes in order.
func (r AutopsyReport) finished(calc *cost.Calculator, perHour float64) AutopsyReport {
	causes := r.Causes
	r.Causes = []*Cause{}
	seconds := 0.0
	for _, c := range causes {
		copied := *c
		if r.Avoidable > 0 {
			copied.Share = float64(c.Lost) / float64(r.Avoidable)
		}
		seconds += c.Seconds
		r.Causes = append(r.Causes, &copied)
	}
	slices.SortStableFunc(r.Causes, func(a, b *Cause) int { return cmp.Compare(b.Lost, a.Lost) })
	if r.Prefill > 0 {
		r.AvoidableShare = min(1, float64(r.Avoidable)/float64(r.Prefill))
	}
	if calc == nil {
		return r
	}
	cfg := calc.Config()
	r.Cost = &Toll{Model: cfg.Model.ID, GPU: cfg.GPU.ID, Seconds: seconds, PerHour: perHour, Price: seconds / 3600 * perHour,
		Estimate: "from the cards of model and GPU alone, see models/cost; not measured"}
	if _, err := calc.Prefill(1, 0); err != nil {
		r.Cost.Error = err.Error()
	}
	return r
}

// where names the place of a break for the counters of the report.
func where(d *prefix.Diff, r *prefix.Request) string {
	if strings.HasPrefix(d.Path, "/tools") {
		return "tools"
	}
	rest, _ := strings.CutPrefix(d.Path, "/messages/")
	index, _, _ := strings.Cut(rest, "/")
	n := 0
	for _, c := range []byte(index) {
		n = n*10 + int(c-'0')
	}
	if n < len(r.Messages) {
		return r.Messages[n].Role + " message"
	}
	return "start"
}

// dissect is the autopsy of an answered turn.
func (s *stages) dissect(x *exchange, t *turn) {
	defer func() {
		if fault := recover(); fault != nil { // the client has its answer
			x.p.fault(fault)
		}
	}()
	if d := s.open(x.id, tenant(x.req), t.request()); d != nil && t.record.Reported != nil {
		s.conclude(d, t.record, t.info)
	}
}
