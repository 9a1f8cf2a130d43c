package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/models/cost"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/prefix"
	"github.com/toolsidecar/sidecar/tokenbudget"
)

// StageConfig says which stages run and how far they may go.
type StageConfig struct {
	// Each stage has its own switch. With all off, and without Observe, every
	// request is forwarded unchanged.
	Retrieval, Prefix, Grammar, TokenBudget bool
	// Observe runs the stages in shadow: the wire carries the client's bytes.
	Observe bool

	// Catalog gives the tools of the server as of now; nil for none. A request
	// keeps what it was given.
	Catalog func() *catalog.Catalog
	Pins    []string // names always in the front block
	TopK    int      // most tools that one turn, or one search of the model, adds
	Rounds  int      // searches of the model answered within one request; 0 for none
	Tokens  int      // schema tokens of the front block and of what one turn adds, together
	MaxLate int      // schema tokens of all late blocks of a conversation, before a new epoch is priced; beyond twice as many one is started
	World   grammar.World
	Budget  tokenbudget.Config
	Counter *tokenizer.Tokenizer // counts tokens; exact when it is the engine's vocabulary
	Ledger  store.Ledger         // of conversations; nil for one in memory. The caller closes it
	// Secret keys the names in Ledger, so that it must be the same as long as that
	// lives; nil for a random one.
	Secret      []byte
	LedgerBytes int // of the ledger in memory, without Ledger
	// Embedder gives vectors of tools and queries in the place of the table in the
	// program; nil for none. EmbedderName is what the record calls it.
	Embedder      Embedder
	EmbedderName  string
	EmbedDeadline time.Duration // that a request waits for the vectors of its query; 150 ms
	// Clients says which tools each client may use; nil lets all use all. Not
	// enforced when observing, which puts no tool on the wire.
	Clients *Clients
	// Usage remembers which calls succeeded, tenant by tenant; nil for nobody. The
	// caller closes it.
	Usage    *store.Usage
	Sessions int // decision records kept for /sidecar/v1/sessions
	// Volatile are rules for lines of the system text that change from turn to
	// turn; nil leaves all where they are. Not applied when observing.
	Volatile prefix.VolatileRules
	// CacheSalt parts the engine's prefix cache by tenant, with a salt of ours in
	// each request. Not applied when observing.
	CacheSalt bool
	Cost      *cost.Calculator // prices lost prefill in the report; nil for no price
	GPUHour   float64          // price of a GPU-hour in the operator's currency; 0 for none
	Family    string           // wire format by name; "auto" or "" asks the engine

	Mode      string    // ModeTokenIn or ModeOwned; ModeAuto or "" is the first that the engine allows
	Compare   int       // one prompt of so many is compared with the engine's rendering in the background; 64; below 0 none
	PromptLog io.Writer // each prompt as text, a JSON line; nil for none
}

func (c *StageConfig) setDefaults() {
	for _, d := range []struct {
		n   *int
		def int
	}{{&c.TopK, DefaultTopK}, {&c.Tokens, DefaultTokens}, {&c.MaxLate, DefaultMaxLate}, {&c.LedgerBytes, DefaultLedger}, {&c.Sessions, DefaultSessions}, {&c.Compare, DefaultCompare}} {
		if *d.n == 0 {
			*d.n = d.def
		}
	}
}

// Defaults of StageConfig. The tokens come from the specification: 1,200 for what
// a turn carries, 6,000 for all late tools still in the context together.
const (
	DefaultTopK    = 12
	DefaultRounds  = 3
	DefaultTokens  = 1200
	DefaultMaxLate = 6000
	DefaultLedger  = 256 << 20

	DefaultSessions = 256
	DefaultCompare  = 64
)

// stages runs retrieval, prefix, grammar and token budget around one chat
// completion. It is safe for concurrent use.
type stages struct {
	cfg       StageConfig
	engine    *engineState
	ledger    prefix.Ledger
	tools     *catalog.Cache
	records   *records
	metrics   *stageMetrics
	history   history // of requests, for the autopsy
	tenants   tenants // seen without a salt
	cache     *cacheModel
	embedding *embedding // nil without an embedder
	tokenIn   *tokenIn   // nil when prompts are sent as text
	prover    *prover

	promptLogMu sync.Mutex // guards writes to cfg.PromptLog
}

func newStages(base context.Context, p *Proxy) (*stages, error) {
	cfg := p.cfg.Stages
	if cfg.Counter == nil {
		return nil, errors.New("the stages need a tokenizer to count with")
	}
	cfg.setDefaults()
	if cfg.Secret == nil {
		cfg.Secret = make([]byte, 32)
		if _, err := rand.Read(cfg.Secret); err != nil {
			return nil, err
		}
	}
	if cfg.Ledger == nil {
		cfg.Ledger = store.NewMemory(cfg.LedgerBytes)
	}
	s := &stages{cfg: cfg, records: newRecords(cfg.Sessions), tools: catalog.NewCache(0)}
	s.records.cost, s.records.gpuHour = cfg.Cost, cfg.GPUHour
	s.metrics = newStageMetrics(p.metrics.registry)
	if cfg.Embedder != nil {
		s.embedding = newEmbedding(base, &cfg, p.log)
	}
	s.ledger = forgetful{}
	if cfg.Prefix {
		s.ledger = cfg.Ledger
	}
	if server := s.server(); server != nil {
		s.allTokens(server) // counted once here, not by the first request
		if s.embedding != nil && !s.allInFront(server) {
			s.embedding.index(server) // begun here
		}
		if cfg.Clients != nil {
			for _, c := range append(slices.Collect(maps.Values(cfg.Clients.byKey)), cfg.Clients.unknown) { // and cut
				if _, err := s.permitted(c, server); err != nil {
					return nil, err
				}
			}
		}
	}
	prober := &engine.Prober{Client: &http.Client{Transport: p.client.transport}, Base: p.engine.String(), Key: p.cfg.EngineAPIKey, Family: cfg.Family, Tokenizer: cfg.Counter, Text: cfg.Mode == ModeOwned || cfg.Observe}
	s.engine = &engineState{probe: prober.Probe, same: prober.Same, base: base, now: time.Now, log: p.log}
	entries, _, _ := cfg.Ledger.Stats()
	s.cache = &cacheModel{inherited: entries > 0}
	switch cfg.Mode {
	case "", ModeAuto, ModeTokenIn:
		s.tokenIn = &tokenIn{vocabulary: cfg.Counter, prober: prober, every: cfg.Compare, base: base, log: p.log, metrics: s.metrics}
	case ModeOwned:
	default:
		return nil, fmt.Errorf("mode %q: there are %s, %s and %s", cfg.Mode, ModeAuto, ModeTokenIn, ModeOwned)
	}
	s.prover = newProver(base, p.fault)
	return s, nil
}

// forgetful is the ledger of a sidecar whose prefix stage is off.
type forgetful struct{}

func (forgetful) Get(prefix.Key) (*prefix.Entry, bool) { return nil, false }

func (forgetful) Put(prefix.Key, *prefix.Entry) {}

// enabled says whether any stage would look at a chat request.
func (c *StageConfig) enabled() bool {
	return c.Retrieval || c.Prefix || c.Grammar || c.TokenBudget || c.Observe || len(c.Volatile) > 0 || c.CacheSalt || c.Clients != nil
}

// turn is one chat request on its way through the stages.
type turn struct {
	*chat
	ctx        context.Context // of the request
	tenant     string          // see tenant
	client     *Client
	info       *engine.Info
	set        *catalog.Catalog
	conv       *prefix.Conversation
	offered    map[string]*grammar.Checked // callable names
	schemas    map[string]json.RawMessage  // of the arguments of the same
	layout     []prefix.Turn
	constraint constraint     // that the engine is sent
	prompt     *prefix.Prompt // nil when the engine is given text
	ids        []int32        // of the prompt; nil when the vocabulary is not the engine's
	key        []int32        // of the prompt in the model of the cache
	overlap    int            // tokens shared with prompts that were computed at the same time; guarded by cacheModel.mu
	path       string
	body       []byte
	record     *Record
	switches   *engine.Switches // for the template, as the engine reads them; nil where that is not known

	noTag     bool   // the engine refused the structural tag of this request
	refused   bool   // and every other constraint
	again     func() // writes the next constraint when one is refused; nil for none
	rounds    int    // searches of the model that may still be answered
	canSearch bool   // tool_search is among offered, and is the sidecar's
	earlier   carried
}

// plan decides everything about a request before it is sent. It returns
// *unstaged when the request is to be forwarded unchanged.
func (s *stages) plan(ctx context.Context, req *Request, o *openai.Object, rec *Record) (*turn, error) {
	mark := time.Now()
	lap := func(stage string) {
		now := time.Now()
		rec.Timing = append(rec.Timing, StageTime{stage, milliseconds(now.Sub(mark))})
		mark = now
	}
	c, err := readChat(o)
	if err != nil {
		return nil, err
	}
	rec.Model, rec.Messages = c.model, len(c.messages)
	whole, err := s.merged(c.tools.Raw)
	client := s.client(req)
	var set *catalog.Catalog
	if err == nil {
		set, err = s.permitted(client, whole)
	}
	var foreign *catalog.TypeError
	var bad *catalog.ClientError
	switch {
	case errors.As(err, &foreign):
		return nil, &unstaged{foreign.Error()}
	case errors.As(err, &bad):
		return nil, badRequest(bad.Param(), "%v", bad)
	case err != nil:
		return nil, badRequest("tools", "%v", err)
	case set == nil || set.Len() == 0:
		if c.choice.Mode == grammar.Required || c.choice.Mode == grammar.Named {
			return nil, badRequest("tool_choice", "tool_choice %s needs tools, and there are none", c.choice.Mode)
		}
		if !s.cfg.Grammar || !c.declared {
			return nil, &unstaged{"no tools"}
		}
		// A schema alone is held as one beside tools.
		if set, err = s.tools.FromClient([]byte("[]")); err != nil {
			panic("proxy: no tools: " + err.Error())
		}
		c.choice.Mode = grammar.None
	}
	lap("read")
	info, err := s.engine.info(ctx)
	if err != nil {
		return nil, &unstaged{fmt.Sprintf("the engine could not be probed: %v", err)}
	}
	if info.Family == nil {
		return nil, &unstaged{info.FamilyReason}
	}
	t := &turn{chat: c, ctx: ctx, tenant: tenant(req), client: client, info: info, set: set, record: rec}
	if c.choices <= 1 {
		t.rounds = s.cfg.Rounds
	}
	rec.TokensExact = info.TokenizerExact
	unread := ""
	if s.tokenIn != nil && !s.cfg.Observe {
		unread = s.tokenIn.read(t)
	}
	rec.Mode, rec.Reason = ModeOwned, info.FamilyReason // of a family that was named and doesn't render alike
	s.converse(t, req, whole)
	if s.tokenIn != nil && !s.cfg.Observe {
		if why := cmp.Or(s.tokenIn.lower(t), unread); why != "" {
			rec.fallBack("owned mode: " + why)
		} else {
			rec.Mode = ModeTokenIn
		}
	}
	lap("prefix")
	if s.cfg.TokenBudget {
		s.shape(t)
		lap("tokenbudget")
	}
	s.learn(t)
	s.foresee(t)
	if err := s.retrieve(t); err != nil {
		return nil, err
	}
	lap("retrieval")
	if err := s.constrain(t); err != nil {
		return nil, err
	}
	lap("grammar")
	s.compose(t)
	lap("layout")
	return t, nil
}

// compose lays the conversation out and writes the body for the engine.
func (s *stages) compose(t *turn) {
	t.layout = t.conv.Layout(t.info.Family)
	t.prompt = nil
	if t.record.Mode == ModeTokenIn {
		if err := s.tokenIn.prompt(t); err != nil {
			t.record.Mode = ModeOwned
			t.record.fallBack("owned mode: " + err.Error())
		}
	}
	if t.prompt == nil && t.constraint.lazy() {
		// The chat endpoint applies a grammar from the first token on.
		t.release()
		t.record.Constraint = "checked"
		t.record.fallBack("the chat endpoint of this engine takes no grammar that waits for a call")
	}
	s.expect(t)
	t.splice()
	if t.prompt != nil {
		s.tokenIn.compare(t)
	}
	s.logPrompt(t)
}

// server is the tools of the server as of now, nil for none.
func (s *stages) server() *catalog.Catalog {
	if s.cfg.Catalog == nil {
		return nil
	}
	return s.cfg.Catalog()
}

// merged is the client's tools with the server's behind them, nil for none.
func (s *stages) merged(tools []byte) (*catalog.Catalog, error) {
	server := s.server()
	switch {
	case len(tools) == 0:
		return server, nil
	case server == nil:
		return s.tools.FromClient(tools)
	}
	return s.tools.Merged(tools, server)
}

// converse looks the conversation up and starts a new epoch when a tool that
// stands in its prompt means something else now, or is its client's no more. whole
// is the set before it was cut to what the client may use.
func (s *stages) converse(t *turn, req *Request, whole *catalog.Catalog) {
	print := []string{t.model, t.info.Family.Name, t.info.Version, s.cfg.Counter.Name()}
	if t.otherwise() { // and has a history of its own
		print = append(print, fmt.Sprint("enable_thinking=", *t.enableThinking()))
	}
	scope := prefix.Scope{Secret: s.cfg.Secret, Tenant: tenant(req), Fingerprint: strings.Join(print, "\x00")}
	id := t.set.Key()
	t.conv = prefix.Open(s.ledger, scope, hex.EncodeToString(id[:]), t.messages)
	for _, shown := range t.conv.Shown() {
		i, ok := t.set.Index().Lookup(shown.Name)
		if withdrawn := withheldFrom(t.set, whole, shown.Name); !withdrawn && (!ok || string(t.set.Index().Tool(i).Raw) == shown.JSON || string(t.set.Index().Slim(i)) == shown.JSON) {
			continue
		}
		t.conv.Renew(scope, hex.EncodeToString(id[:]))
		t.record.Epoch = fmt.Sprintf("%s has another definition now", shown.Name)
		if !ok {
			t.record.Epoch = shown.Name + " is not allowed to this client any more"
		}
		break
	}
	if front := t.conv.Front(); front != nil && listsWithheld(front.Directory, t.set, whole) {
		t.conv.Renew(scope, hex.EncodeToString(id[:]))
		t.record.Epoch = "the directory names what is not allowed to this client any more"
	}
	if why := s.epoch(t); why != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d", t.conv.Root(), t.conv.Len()))
		t.conv.Renew(scope, hex.EncodeToString(sum[:]))
		t.record.Epoch = why
	}
	t.record.Conversation = t.conv.Name().String()
	for i := range t.conv.Len() {
		if t.conv.Decided(i) {
			t.record.Recognised++
		}
	}
	t.conv.Keep()
	if t.conv.Front() == nil {
		t.conv.SetFront(s.front(t))
	}
}

// tenant is the client's API key in the one spelling that it has here, with the
// scheme in front; without keys there is one tenant, "".
func tenant(req *Request) string {
	scheme, key := credentials(req.Header.Get("Authorization"))
	if key == "" {
		return ""
	}
	return scheme + " " + key
}
