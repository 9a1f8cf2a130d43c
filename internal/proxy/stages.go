package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/grammar"
	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/engine"
	"github.com/toolsidecar/sidecar/internal/openai"
	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/models/tokenizer"
	"github.com/toolsidecar/sidecar/models/wire"
	"github.com/toolsidecar/sidecar/prefix"
	"github.com/toolsidecar/sidecar/retrieval"
	"github.com/toolsidecar/sidecar/tokenbudget"
)

// StageConfig says which stages run and how far they may go.
type StageConfig struct {
	// Each stage has its own switch. With all off, and without Observe, every
	// request is forwarded unchanged.
	Retrieval, Prefix, Grammar, TokenBudget bool
	// Observe runs the stages in shadow: the wire carries the client's bytes.
	Observe bool

	Catalog  *catalog.Catalog // tools of the server; nil for none
	Pins     []string         // names always in the front block
	TopK     int              // most tools that one turn, or one search of the model, adds
	Rounds   int              // searches of the model answered within one request; 0 for none
	Tokens   int              // schema tokens of the front block and of what one turn adds, together
	MaxLate  int              // schema tokens of all late blocks of a conversation, before a new epoch
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
	if cfg.Catalog != nil {
		s.allTokens(cfg.Catalog) // counted once here, not by the first request
	}
	prober := &engine.Prober{Client: &http.Client{Transport: p.client.transport}, Base: p.engine.String(), Key: p.cfg.EngineAPIKey, Family: cfg.Family, Tokenizer: cfg.Counter}
	s.engine = &engineState{probe: prober.Probe, base: base}
	return s, nil
}

// forgetful is the ledger of a sidecar whose prefix stage is off.
type forgetful struct{}

func (forgetful) Get(prefix.Key) (*prefix.Entry, bool) { return nil, false }
func (forgetful) Put(prefix.Key, *prefix.Entry)        {}

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
	layout  []prefix.Turn
	emitted grammar.Emission
	body    []byte
	record  *Record

	refused   bool // the engine refused a constraint of this request
	rounds    int  // searches of the model that may still be answered
	canSearch bool // tool_search is among offered, and is the sidecar's
	earlier   carried
}

// allows says whether tool_choice lets the model call a tool, beside its mode.
func (t *turn) allows(name string) bool {
	return t.allowed == nil || slices.Contains(t.allowed, name)
}

// plan decides everything about a request before it is sent. It returns
// *unstaged when the request is to be forwarded unchanged.
func (s *stages) plan(ctx context.Context, req *Request, o *openai.Object, rec *Record) (*turn, error) {
	mark := time.Now()
	lap := func(stage string) {
		now := time.Now()
		rec.Timing = append(rec.Timing, StageTime{stage, float64(now.Sub(mark)) / 1e6})
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
	if err := s.converse(t, req); err != nil {
		return nil, err
	}
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
	t.layout = t.conv.Layout(info.Family)
	t.splice()
	s.expect(t)
	lap("layout")
	return t, nil
}

// merged is the client's tools with the server's behind them, nil for none.
func (s *stages) merged(tools []byte) (*catalog.Catalog, error) {
	switch {
	case len(tools) == 0:
		return s.cfg.Catalog, nil
	case s.cfg.Catalog == nil:
		return s.tools.FromClient(tools)
	}
	return s.tools.Merged(tools, s.cfg.Catalog)
}

// converse looks the conversation up and starts a new epoch when a tool that
// stands in its prompt means something else now.
func (s *stages) converse(t *turn, req *Request) error {
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
	return nil
}

// tenant is the client's API key; without keys there is one tenant.
func tenant(req *Request) string { return req.Header.Get("Authorization") }

// late counts the schema tokens of all late blocks.
func (s *stages) late(t *turn) int {
	n := 0
	for i := range t.conv.Len() {
		for _, b := range t.conv.Late(i) {
			n += s.tokens(t.set, b.Tools)
		}
	}
	return n
}

func (s *stages) tokens(set *catalog.Catalog, shown []prefix.Shown) int {
	n := 0
	for _, tool := range shown {
		if i, ok := set.Index().Lookup(tool.Name); ok {
			n += set.Costs(s.cfg.Counter.Name()).Of(set.Index(), i, s.cfg.Counter.Count)
			continue
		}
		n += s.cfg.Counter.Count(tool.JSON)
	}
	return n
}

// front decides the front block: all tools when they fit or nothing is
// retrieved, else tool_search, the pins and a directory of what else exists.
func (s *stages) front(t *turn) *prefix.Block {
	ix := t.set.Index()
	if s.allInFront(t.set) {
		b := &prefix.Block{}
		for i := range ix.Len() {
			if s.usable(t, i) {
				b.Tools = append(b.Tools, shown(ix.Tool(i)))
			}
		}
		return b
	}
	b := &prefix.Block{Directory: directory(ix, s.cfg.Rounds > 0, min(directoryTokens, s.cfg.Tokens/3), s.cfg.Counter.Count)}
	if _, taken := ix.Lookup(prefix.SearchTool); s.cfg.Rounds > 0 && !taken {
		b.Tools = append(b.Tools, prefix.Shown{Name: prefix.SearchTool, JSON: searchTool})
	}
	for _, pin := range s.cfg.Pins {
		if i, ok := ix.Lookup(pin); ok {
			b.Tools = append(b.Tools, shown(ix.Tool(i)))
		}
	}
	return b
}

// allInFront says that nothing of a set is left to retrieval.
func (s *stages) allInFront(set *catalog.Catalog) bool {
	return !s.cfg.Retrieval || s.allTokens(set) <= s.cfg.Tokens
}

// allTokens is the price of showing every tool.
func (s *stages) allTokens(set *catalog.Catalog) int {
	n := 0
	for i := range set.Index().Len() {
		n += set.Costs(s.cfg.Counter.Name()).Of(set.Index(), i, s.cfg.Counter.Count)
	}
	return n
}

func shown(t *retrieval.Tool) prefix.Shown {
	return prefix.Shown{Name: t.Name, JSON: string(t.Raw)}
}

// directoryTokens bounds the directory of the front block; a third of --tool-tokens
// does so too, so that it leaves room for tools.
const directoryTokens = 400

// directory names what exists beyond the front block: the tools by name while
// they fit in most tokens, else the servers with their sizes, else only the count.
func directory(ix *retrieval.Index, search bool, most int, count func(string) int) string {
	names := make([]string, ix.Len())
	servers := map[string]int{}
	for i := range names {
		t := ix.Tool(i)
		names[i] = t.Name
		servers[t.Origin()]++
	}
	slices.Sort(names)
	head := fmt.Sprintf("%d more tools exist. The ones that fit the task are added to the conversation as it goes; call only tools whose signature you have seen.", len(names))
	if search {
		head += " If none fits, call " + prefix.SearchTool + "."
	}
	if text := head + " By name: " + strings.Join(names, ", "); count(text) <= most {
		return text
	}
	delete(servers, "")
	list := make([]string, 0, len(servers))
	for name, n := range servers {
		list = append(list, fmt.Sprintf("%s (%d)", name, n))
	}
	slices.Sort(list)
	if text := head + " By server: " + strings.Join(list, ", "); len(list) > 1 && count(text) <= most {
		return text
	}
	return head
}

// shape bounds every tool result that has no decision yet.
func (s *stages) shape(t *turn) {
	for i := range t.conv.Len() {
		m := t.conv.Message(i)
		if m.Role != "tool" || m.Opaque != nil || t.conv.Decided(i) {
			continue
		}
		shaped := tokenbudget.Shape(m.Text, s.cfg.Budget, s.cfg.Counter.Count)
		t.conv.Decide(i, shaped.Text, shaped.Cut)
		if shaped.Cut {
			t.record.Shaped = append(t.record.Shaped, Shaped{Message: t.order[i], Tokens: shaped.OriginalTokens, Kept: shaped.KeptTokens})
		}
	}
}

// retrieve adds the tools that this turn needs and does not see yet. When the
// last message was decided before, the request is a retry: what was added stays,
// and only names that another tool_choice demands come behind it.
func (s *stages) retrieve(t *turn) error {
	ix := t.set.Index()
	visible := map[string]bool{}
	for _, tool := range t.conv.Shown() {
		visible[tool.Name] = true
	}
	t.record.AllTools, t.record.AllToolsTokens = ix.Len(), s.allTokens(t.set)
	if t.choice.Mode == grammar.Named {
		if _, ok := ix.Lookup(t.choice.Name); !ok {
			return badRequest("tool_choice", "tool_choice names %q, which is not among the tools", t.choice.Name)
		}
	}
	always := s.demanded(t, visible)
	q := ix.Segment(s.segment(t))
	last := t.conv.Len() - 1
	recorded := t.conv.Late(last)
	needed := t.choice.Mode == grammar.Required && !slices.ContainsFunc(t.conv.Shown(), func(tool prefix.Shown) bool {
		return tool.JSON != searchTool && t.allows(tool.Name)
	})
	var hits []retrieval.Hit
	if s.cfg.Retrieval && t.choice.Mode != grammar.None && t.messages[last].Role == "user" && (recorded == nil || needed) {
		q.Explain = true
		most := 4*s.cfg.TopK + len(visible)
		if t.allowed != nil {
			most = ix.Len() // the ones allowed may stand anywhere in the order
		}
		hits = slices.DeleteFunc(ix.Search(q, most), func(h retrieval.Hit) bool { return !t.allows(ix.Tool(h.Tool).Name) })
	}
	if needed && len(hits) == 0 {
		// A call is demanded and the words point nowhere: the tools in the order
		// in which they were given.
		for i := range ix.Len() {
			if len(hits) < s.cfg.TopK && t.allows(ix.Tool(i).Name) {
				hits = append(hits, retrieval.Hit{Tool: i, Score: 1})
			}
		}
	}
	front := t.conv.Front()
	budget := s.cfg.Tokens - s.tokens(t.set, front.Tools) - s.cfg.Counter.Count(front.Directory)
	choose := func(always []string) retrieval.Selection {
		return retrieval.Select(ix, hits, retrieval.SelectConfig{
			Tools: s.cfg.TopK, Tokens: max(budget, 1), Always: always, Costs: t.set.Costs(s.cfg.Counter.Name()),
			Shown: func(name string) bool { return visible[name] },
		}, s.cfg.Counter.Count)
	}
	sel := choose(always)
	if needed && len(sel.Tools) == 0 && len(hits) > 0 { // none fits the budget
		sel = choose([]string{ix.Tool(hits[0].Tool).Name})
	}
	for _, block := range recorded {
		t.record.Retry = true
		for _, tool := range block.Tools {
			t.record.Added = append(t.record.Added, Chosen{Name: tool.Name, Tokens: s.tokens(t.set, []prefix.Shown{tool}), Why: "recorded"})
		}
	}
	sel.Tools = slices.DeleteFunc(sel.Tools, func(i int) bool { return !s.usable(t, i) })
	if len(sel.Tools) > 0 {
		block := &prefix.Block{Query: searchText(q, sel, ix)}
		for _, i := range sel.Tools {
			block.Tools = append(block.Tools, shown(ix.Tool(i)))
		}
		t.add(block)
	} else if !t.conv.Decided(last) {
		t.conv.Decide(last, "", false)
	}
	s.explain(t, sel, hits)
	s.count(t)
	return nil
}

// usable says whether a tool of the server can be held to its schema; one that
// can't be is not shown, and the record says why. What is wrong with a client's
// own tool, or with the one that it names, is said to the client: see constrain.
func (s *stages) usable(t *turn, i int) bool {
	tool := t.set.Index().Tool(i)
	if !s.cfg.Grammar || i < t.set.Client() || t.choice.Mode == grammar.Named && tool.Name == t.choice.Name {
		return true
	}
	_, err := grammar.Compile(grammar.Tool{Name: tool.Name, Schema: tool.Schema}, s.cfg.World)
	if err != nil && !slices.Contains(t.record.Dropped, err.Error()) {
		t.record.Dropped = append(t.record.Dropped, err.Error())
	}
	return err == nil
}

// add appends a block behind the last message.
func (t *turn) add(block *prefix.Block) {
	last := t.conv.Len() - 1
	t.conv.Decide(last, t.conv.Text(last), t.conv.Replaced(last), append(slices.Clone(t.conv.Late(last)), block)...)
}

// demanded are the names that must be callable whatever they cost and are not
// visible yet: the one that tool_choice asks for; those called in history, which
// a lost ledger may have hidden; and where nothing is left to retrieval all of
// them, as the tools may have changed since the front block was decided. What the
// catalog lacks can't be shown.
func (s *stages) demanded(t *turn, visible map[string]bool) []string {
	ix := t.set.Index()
	var names []string
	seen := maps.Clone(visible)
	demand := func(name string) {
		if _, known := ix.Lookup(name); known && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for i := range t.messages {
		for _, k := range t.messages[i].Calls {
			demand(k.Name)
		}
	}
	if t.choice.Mode == grammar.Named {
		demand(t.choice.Name)
	}
	if len(t.allowed) <= s.cfg.TopK {
		for _, name := range t.allowed {
			demand(name)
		}
	}
	if s.allInFront(t.set) {
		for i := range ix.Len() {
			demand(ix.Tool(i).Name)
		}
	}
	return names
}

// segment is the conversation as retrieval reads it. Calls of tools that the
// catalog lacks tell it nothing.
func (s *stages) segment(t *turn) []retrieval.Message {
	msgs := make([]retrieval.Message, len(t.messages))
	for i := range t.messages {
		m := &t.messages[i]
		msgs[i] = retrieval.Message{Role: m.Role, Text: m.Text}
		for _, k := range m.Calls {
			if _, known := t.set.Index().Lookup(k.Name); known {
				msgs[i].Calls = append(msgs[i].Calls, k.Name)
			}
		}
	}
	return msgs
}

// maxQuery bounds the query text of a late block in bytes: it stands in the
// prompt, and the user's own words stand right above it.
const maxQuery = 120

// searchText is the query that a late block claims to answer: the user's words,
// cut at a space.
func searchText(q retrieval.Query, sel retrieval.Selection, ix *retrieval.Index) string {
	if len(q.Parts) == 0 {
		names := make([]string, len(sel.Tools))
		for i, tool := range sel.Tools {
			names[i] = ix.Tool(tool).Name
		}
		return "select:" + strings.Join(names, ",")
	}
	text := strings.Join(strings.Fields(q.Parts[0].Text), " ")
	if len(text) <= maxQuery {
		return text
	}
	text = strings.ToValidUTF8(text[:maxQuery], "")
	if i := strings.LastIndexByte(text, ' '); i > 0 {
		text = text[:i]
	}
	return text
}

// explain puts the choice into the record.
func (s *stages) explain(t *turn, sel retrieval.Selection, hits []retrieval.Hit) {
	ix := t.set.Index()
	for _, i := range sel.Tools {
		c := Chosen{Name: ix.Tool(i).Name, Tokens: t.set.Costs(s.cfg.Counter.Name()).Of(ix, i, s.cfg.Counter.Count), Why: "must be callable"}
		for _, h := range hits {
			if h.Tool == i {
				c.Score, c.Why = h.Score, why(h)
			}
		}
		t.record.Added = append(t.record.Added, c)
		t.record.AddedTokens += c.Tokens
	}
	for _, d := range sel.Dropped {
		if d.Why != retrieval.DropShown {
			t.record.Dropped = append(t.record.Dropped, ix.Tool(d.Tool).Name+": "+d.Why.String())
		}
	}
}

// why is a hit's reasons in a few words, the weightiest first.
func why(h retrieval.Hit) string {
	reasons := slices.Clone(h.Why)
	slices.SortStableFunc(reasons, func(a, b retrieval.Reason) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	var words []string
	for _, r := range reasons[:min(3, len(reasons))] {
		switch r.Kind {
		case retrieval.ReasonNamed:
			words = append(words, "named")
		case retrieval.ReasonServer:
			words = append(words, "server "+r.Term)
		case retrieval.ReasonTerm:
			words = append(words, fmt.Sprintf("%s in %s", r.Term, r.Field))
		}
	}
	return strings.Join(words, ", ")
}

// count sums up what the prompt shows.
func (s *stages) count(t *turn) {
	all := t.conv.Shown()
	t.record.Shown, t.record.Visible = len(all), nil
	for _, tool := range all {
		t.record.Visible = append(t.record.Visible, tool.Name)
	}
	t.record.FrontTokens = s.tokens(t.set, t.conv.Front().Tools) + s.cfg.Counter.Count(t.conv.Front().Directory)
	t.record.ShownTokens = t.record.FrontTokens + s.late(t)
}

// constrain compiles the callable tools and writes the constraint.
func (s *stages) constrain(t *turn) error {
	var err error
	t.offered, t.canSearch = map[string]*grammar.Checked{}, false
	if t.choice.Mode == grammar.None {
		t.record.Constraint = "none"
	}
	ix := t.set.Index()
	var tools []*grammar.Checked
	for _, shown := range t.conv.Shown() {
		i, ok := ix.Lookup(shown.Name)
		if !ok && shown.JSON == searchTool && t.searches() {
			checked, err := grammar.Compile(grammar.Tool{Name: shown.Name, Schema: []byte(searchSchema)}, grammar.Closed)
			if err != nil {
				panic("proxy: the schema of tool_search: " + err.Error()) // our own
			}
			t.offered[shown.Name], t.canSearch = checked, true
			tools = append(tools, checked)
			continue
		}
		if !ok || !t.allows(shown.Name) || t.choice.Mode == grammar.None {
			continue
		}
		if t.choice.Mode == grammar.Named && shown.Name != t.choice.Name {
			continue
		}
		if !s.cfg.Grammar {
			t.offered[shown.Name] = nil
			continue
		}
		checked, err := grammar.Compile(grammar.Tool{Name: shown.Name, Schema: ix.Tool(i).Schema}, s.cfg.World)
		if err != nil && i >= t.set.Client() && t.choice.Mode != grammar.Named {
			// The client can't mend a tool of the server.
			t.record.Dropped = append(t.record.Dropped, err.Error())
			continue
		}
		if err != nil {
			return badRequest("tools", "%v", err)
		}
		t.offered[shown.Name] = checked
		tools = append(tools, checked)
	}
	if len(t.offered) == 0 && (t.choice.Mode == grammar.Required || t.choice.Mode == grammar.Named) {
		return badRequest("tool_choice", "tool_choice %s: none of the tools it allows is on offer in this turn", t.choice.Mode)
	}
	if !s.cfg.Grammar {
		t.record.Constraint = "off"
		return nil
	}
	if t.format != nil {
		if t.choice.Response, err = response(t.format); err != nil {
			return err
		}
	}
	if t.refused {
		return nil
	}
	if !t.info.StructuralTag {
		t.record.Constraint, t.record.Fallback = "checked", "no structural tag: "+t.info.TagReason
		return nil
	}
	emitted, err := grammar.Tag(syntax(t.info.Family), tools, t.choice, grammar.Engine{Name: "xgrammar", Version: t.info.XGrammar()})
	if err != nil {
		t.record.Constraint, t.record.Fallback = "checked", err.Error()
		return nil
	}
	t.emitted = emitted
	t.record.Constraint, t.record.Checked = "structural tag", nil
	for _, e := range emitted.Tools {
		if !e.Exact {
			t.record.Checked = append(t.record.Checked, e.Name+": "+strings.Join(e.Reasons, "; "))
		}
	}
	return nil
}

// response compiles the client's own response_format, which then holds for the
// text of a reply without calls.
func response(format []byte) (*grammar.Checked, error) {
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(format, &f); err != nil {
		return nil, badRequest("response_format", "response_format: %v", err)
	}
	schema := []byte(`{"type":"object","additionalProperties":true}`)
	if f.Type == "json_schema" {
		schema = f.Schema.Schema
	}
	c, err := grammar.Compile(grammar.Tool{Name: "response_format", Schema: schema}, grammar.Open)
	if err != nil {
		return nil, badRequest("response_format", "response_format: %v", err)
	}
	return c, nil
}

func syntax(f *wire.Family) grammar.Syntax {
	return grammar.Syntax{Trigger: f.Trigger(), Begin: f.CallBegin, End: f.CallEnd(), Separator: "\n"}
}

// splice writes the body for the engine into a copy of the client's request.
func (t *turn) splice() {
	o := t.object
	o.Set("messages", t.messagesJSON())
	for _, key := range []string{"tools", "tool_choice", "parallel_tool_calls"} {
		o.Delete(key)
	}
	if t.emitted.Format != nil {
		o.Set("response_format", append(append([]byte(`{"type":"structural_tag","format":`), t.emitted.Format...), '}'))
	}
	o.Set("stream", []byte("true"))
	options := []byte(`{"include_usage":true}`)
	if v, ok := o.Get("stream_options"); ok {
		if own, ok := openai.ObjectOf(v); ok {
			own.Set("include_usage", []byte("true"))
			options = own.Bytes()
		}
	}
	o.Set("stream_options", options)
	t.body = o.Bytes()
}

func (t *turn) messagesJSON() []byte {
	b := []byte{'['}
	for i, m := range t.layout {
		if i > 0 {
			b = append(b, ',')
		}
		if m.Client >= 0 {
			b = append(b, neutral(t.info.Family, t.raw[t.order[m.Client]])...)
			continue
		}
		b = openai.AppendString(append(b, `{"role":`...), m.Role)
		b = openai.AppendString(append(b, `,"content":`...), m.Text)
		b = append(b, '}')
	}
	return append(b, ']')
}

// expect works out how many prompt tokens the engine should find in its cache:
// what this prompt shares with the previous turn's prompt and reply. It needs
// the engine's own tokenizer, else the record says nothing about it.
func (s *stages) expect(t *turn) {
	if !t.info.TokenizerExact {
		return
	}
	f, count := t.info.Family, s.cfg.Counter
	messages := func(turns []prefix.Turn) []wire.Message {
		out := make([]wire.Message, len(turns))
		for i, m := range turns {
			out[i] = wire.Message{Role: m.Role, Content: m.Text}
		}
		return out
	}
	opt := wire.Options{AddGenerationPrompt: true, EnableThinking: t.enableThinking()}
	prompt := string(f.Render(nil, messages(t.layout), nil, opt))
	i := len(t.layout) - 1
	for i >= 0 && !t.layout[i].Generated {
		i--
	}
	if i < 0 {
		t.record.PromptTokens = count.Count(prompt)
		return
	}
	before := string(f.Render(nil, messages(t.layout[:i]), nil, opt)) + t.layout[i].Text
	// Up to a control token that both have, the tokens are the same: encoded once.
	at := max(0, strings.LastIndex(prompt[:commonPrefix(prompt, before)], f.TurnStart))
	same := count.Count(prompt[:at])
	rest, previous := count.Encode(nil, prompt[at:]), count.Encode(nil, before[at:])
	n := 0
	for n < len(previous) && n < len(rest) && previous[n] == rest[n] {
		n++
	}
	t.record.PromptTokens, t.record.PrefixTokens = same+len(rest), same+n
	if t.info.BlockSize > 0 {
		// An engine computes at least the last prompt token anew.
		t.record.ExpectedCached = min(same+n, t.record.PromptTokens-1) / t.info.BlockSize * t.info.BlockSize
	}
}

// enableThinking reads chat_template_kwargs.enable_thinking.
func (t *turn) enableThinking() *bool {
	v, ok := t.object.Get("chat_template_kwargs")
	if !ok {
		return nil
	}
	o, ok := openai.ObjectOf(v)
	if !ok {
		return nil
	}
	e, ok := o.Get("enable_thinking")
	if !ok {
		return nil
	}
	b, ok := e.Bool()
	if !ok {
		return nil
	}
	return &b
}

// header is the decision as response headers.
func (r *Record) header() http.Header {
	h := http.Header{}
	h.Set("X-Sidecar-Mode", r.Mode)
	if r.Reason != "" {
		h.Set("X-Sidecar-Reason", headerText(r.Reason))
	}
	if r.Mode == "owned" {
		h.Set("X-Sidecar-Tools", headerNames(r.Added))
		h.Set("X-Sidecar-Tool-Tokens", fmt.Sprint(r.ShownTokens))
		h.Set("X-Sidecar-Prefix-Tokens", fmt.Sprint(r.PrefixTokens))
		h.Set("X-Sidecar-Expected-Cached-Tokens", fmt.Sprint(r.ExpectedCached))
	}
	if r.Fallback != "" {
		h.Set("X-Sidecar-Fallback", headerText(r.Fallback))
	}
	parts := make([]string, len(r.Timing))
	for i, t := range r.Timing {
		parts[i] = fmt.Sprintf("%s;dur=%.3f", t.Stage, t.Milliseconds)
	}
	if len(parts) > 0 {
		h.Set("Server-Timing", strings.Join(parts, ", "))
	}
	return h
}

// maxHeaderNames bounds the list of names in a header, in bytes: Node's clients
// take 16 kB of headers. The record has them all.
const maxHeaderNames = 2048

// headerNames lists the tools that a turn added, as many as fit.
func headerNames(added []Chosen) string {
	var b strings.Builder
	for i, c := range added {
		if b.Len()+len(c.Name) > maxHeaderNames {
			fmt.Fprintf(&b, ",+%d", len(added)-i)
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(c.Name)
	}
	return b.String()
}

// headerText makes a reason fit a header: one line of printable ASCII, at most
// 200 bytes.
func headerText(s string) string {
	b := []byte(s[:min(len(s), 200)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = ' '
		}
	}
	return string(b)
}
