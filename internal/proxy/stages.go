package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/internal/store"
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
	Catalog  func() *catalog.Catalog
	Pins     []string // names always in the front block
	TopK     int      // most tools that one turn, or one search of the model, adds
	Rounds   int      // searches of the model answered within one request; 0 for none
	Tokens   int      // schema tokens of the front block and of what one turn adds, together
	MaxLate  int      // schema tokens of all late blocks of a conversation, before a new epoch
	World    grammar.World
	Budget   tokenbudget.Config
	Counter  *tokenizer.Tokenizer // counts tokens; exact when it is the engine's vocabulary
	Ledger   int                  // bytes of the conversation ledger
	Sessions int                  // decision records kept for /sidecar/v1/sessions
	Family   string               // wire format by name; "auto" or "" asks the engine
}

func (c *StageConfig) setDefaults() {
	for _, d := range []struct {
		n   *int
		def int
	}{{&c.TopK, DefaultTopK}, {&c.Tokens, DefaultTokens}, {&c.MaxLate, DefaultMaxLate}, {&c.Ledger, DefaultLedger}, {&c.Sessions, DefaultSessions}} {
		if *d.n == 0 {
			*d.n = d.def
		}
	}
}

// Defaults of StageConfig. The tokens come from the specification: 1,200 for what
// a turn carries, 6,000 for all late tools still in the context together.
const (
	DefaultTopK    = 4
	DefaultRounds  = 3
	DefaultTokens  = 1200
	DefaultMaxLate = 6000
	DefaultLedger  = 256 << 20

	DefaultSessions = 256
)

// stages runs retrieval, prefix, grammar and token budget around one chat
// completion. It is safe for concurrent use.
type stages struct {
	cfg     StageConfig
	engine  *engineState
	ledger  prefix.Ledger
	tools   *catalog.Cache
	records *records
	metrics *stageMetrics
	prompts prompts // observe only
	secret  []byte
}

func newStages(base context.Context, p *Proxy) (*stages, error) {
	cfg := p.cfg.Stages
	if cfg.Counter == nil {
		return nil, errors.New("the stages need a tokenizer to count with")
	}
	cfg.setDefaults()
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	s := &stages{cfg: cfg, secret: secret, records: newRecords(cfg.Sessions), tools: catalog.NewCache(0)}
	s.metrics = newStageMetrics(p.metrics.registry)
	s.ledger = forgetful{}
	if cfg.Prefix {
		s.ledger = store.NewMemory(cfg.Ledger)
	}
	if server := s.server(); server != nil {
		s.allTokens(server) // counted once here, not by the first request
	}
	prober := &engine.Prober{Client: &http.Client{Transport: p.client.transport}, Base: p.engine.String(), Key: p.cfg.EngineAPIKey, Family: cfg.Family, Tokenizer: cfg.Counter}
	s.engine = &engineState{probe: prober.Probe, base: base}
	return s, nil
}

// forgetful is the ledger of a sidecar whose prefix stage is off.
type forgetful struct{}

func (forgetful) Get(prefix.Key) (*prefix.Entry, bool) { return nil, false }

func (forgetful) Put(prefix.Key, *prefix.Entry) {}

// enabled says whether any stage would look at a chat request.
func (c *StageConfig) enabled() bool {
	return c.Retrieval || c.Prefix || c.Grammar || c.TokenBudget || c.Observe
}

// turn is one chat request on its way through the stages.
type turn struct {
	*chat
	info    *engine.Info
	set     *catalog.Catalog
	conv    *prefix.Conversation
	offered map[string]*grammar.Checked // callable names
	schemas map[string]json.RawMessage  // of the arguments of the same
	layout  []prefix.Turn
	emitted grammar.Emission
	body    []byte
	record  *Record

	refused   bool // the engine refused a constraint of this request
	rounds    int  // searches of the model that may still be answered
	canSearch bool // tool_search is among offered, and is the sidecar's
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
	set, err := s.merged(c.tools.Raw)
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
		return nil, &unstaged{"no tools"}
	}
	lap("read")
	info, err := s.engine.info(ctx)
	if err != nil {
		return nil, &unstaged{fmt.Sprintf("the engine could not be probed: %v", err)}
	}
	if info.Family == nil {
		return nil, &unstaged{info.FamilyReason}
	}
	t := &turn{chat: c, info: info, set: set, record: rec}
	if c.choices <= 1 {
		t.rounds = s.cfg.Rounds
	}
	rec.TokensExact = info.TokenizerExact
	rec.Mode, rec.Reason = "owned", info.FamilyReason // of a family that was named and doesn't render alike
	s.converse(t, req)
	lap("prefix")
	if s.cfg.TokenBudget {
		s.shape(t)
		lap("tokenbudget")
	}
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
	t.splice()
	s.expect(t)
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
// stands in its prompt means something else now.
func (s *stages) converse(t *turn, req *Request) {
	scope := prefix.Scope{Secret: s.secret, Tenant: tenant(req), Fingerprint: strings.Join([]string{t.model, t.info.Family.Name, t.info.Version}, "\x00")}
	id := t.set.Key()
	t.conv = prefix.Open(s.ledger, scope, hex.EncodeToString(id[:]), t.messages)
	for _, shown := range t.conv.Shown() {
		i, ok := t.set.Index().Lookup(shown.Name)
		if !ok || string(t.set.Index().Tool(i).Raw) == shown.JSON {
			continue
		}
		t.conv.Renew(scope, hex.EncodeToString(id[:]))
		t.record.Epoch = fmt.Sprintf("%s has another definition now", shown.Name)
		break
	}
	if s.late(t) > s.cfg.MaxLate {
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d", t.conv.Root(), t.conv.Len()))
		t.conv.Renew(scope, hex.EncodeToString(sum[:]))
		t.record.Epoch = fmt.Sprintf("the late tools went beyond %d tokens", s.cfg.MaxLate)
	}
	root := t.conv.Root()
	t.record.Conversation = hex.EncodeToString(root[:6])
	for i := range t.conv.Len() {
		if t.conv.Decided(i) {
			t.record.Recognised++
		}
	}
	if t.conv.Front() == nil {
		t.conv.SetFront(s.front(t))
	}
}

// tenant is the client's API key; without keys there is one tenant.
func tenant(req *Request) string { return req.Header.Get("Authorization") }
