package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/embedder"
	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/models/wire"
)

// serveConfig is what `sidecar serve` runs with.
type serveConfig struct {
	Listen       string
	DrainTimeout time.Duration
	AccessLog    string
	File         string
	Catalogs     []string
	PinFile      string
	IndexCache   string
	AllowTools   []string
	DenyTools    []string
	Refresh      time.Duration
	Tokenizer    string
	World        string
	Ledger       ledgerConfig
	Usage        []string
	Embedder     embedder.Config
	ClientsFile  string
	Model, GPU   string // cards of the report's estimate
	Volatile     volatileConfig
	PromptLog    string
	Proxy        proxy.Config

	live *catalog.Live
}

// serveOptions is the one table of the options of `sidecar serve`. Each row is
// a flag --name, an environment variable SIDECAR_NAME and a key of the
// configuration file; a flag counts more than the environment, that more than
// the file, that more than the default.
func serveOptions(c *serveConfig) []*option {
	p := &c.Proxy
	st := &p.Stages
	return []*option{
		text("listen", &c.Listen, "127.0.0.1:8080", "`ADDRESS` to serve on; port 0 takes a free one"),
		text("engine", &p.Engine, "", "base `URL` of the engine, as in http://127.0.0.1:8000"),
		text("engine-api-key", &p.EngineAPIKey, "", "`KEY` sent to the engine in place of the client's"),
		text("config", &c.File, "", "configuration `FILE` in YAML: these options by name"),

		size("max-body", &p.MaxBody, 32<<20, 1<<10, 1<<30, "largest request body"),
		size("max-header", &p.MaxHeader, 16<<10, 1<<10, 1<<20, "largest head of a request"),
		number("max-depth", &p.MaxDepth, 256, 8, 900, "deepest nesting of a request body"),
		number("max-streams", &p.MaxStreams, 4096, 1, 1<<20, "most requests served at a time"),
		size("max-reply", &p.MaxReply, 64<<20, 1<<10, 1<<30, "largest reply that is not a stream"),
		size("max-event", &p.MaxEvent, 4<<20, 1<<10, 1<<28, "largest event of a stream"),

		span("header-timeout", &p.HeaderTimeout, 5*time.Second, 100*time.Millisecond, time.Hour, "for a client to send a request's head"),
		span("body-timeout", &p.BodyTimeout, time.Minute, 100*time.Millisecond, time.Hour, "for a client to send a request's body"),
		span("idle-timeout", &p.IdleTimeout, 2*time.Minute, time.Second, 24*time.Hour, "for a client's connection between requests"),
		span("write-timeout", &p.WriteTimeout, 30*time.Second, 100*time.Millisecond, time.Hour, "for a client to take what is written to it"),
		span("connect-timeout", &p.ConnectTimeout, 5*time.Second, 10*time.Millisecond, time.Hour, "to connect to the engine"),
		span("first-byte-timeout", &p.FirstByteTimeout, 10*time.Minute, 10*time.Millisecond, 24*time.Hour, "for the engine's reply to begin, queue and prefill included"),
		span("stall-timeout", &p.StallTimeout, 2*time.Minute, 10*time.Millisecond, 24*time.Hour, "between two pieces of the engine's reply"),
		span("drain-timeout", &c.DrainTimeout, 30*time.Second, 0, 24*time.Hour, "for live requests to end after SIGTERM, before they are cut"),

		list("allow-engine-field", &p.AllowEngineFields, "`NAME` of a request field that steers the engine and shall pass; all for every one"),
		text("access-log", &c.AccessLog, "off", "where a line for each request goes: off, stdout, stderr or a `FILE`"),

		toggle("observe", &st.Observe, false, "forward requests as they are and run the stages in shadow"),
		toggle("retrieval", &st.Retrieval, true, "choose tools by the conversation; off shows all of them in front"),
		toggle("prefix", &st.Prefix, true, "replay what was sent, so that the engine's prefix cache hits"),
		toggle("grammar", &st.Grammar, true, "hold tool calls to their schemas"),
		toggle("tokenbudget", &st.TokenBudget, true, "cut tool results to their allowance"),
		list("catalog", &c.Catalogs, "tools of the server, as [name=]`SOURCE`: demo, a file (tools or OpenAPI, JSON or YAML), a folder of them, a URL (OpenAPI document or MCP server), stdio:COMMAND of an MCP server"),
		text("catalog-pins", &c.PinFile, "", "`FILE` of approved tools: one that its source changes is held back until 'sidecar catalog approve'"),
		text("index-cache", &c.IndexCache, "", "`DIR` that keeps the index of a catalog of 10,000 tools and more between runs"),
		span("catalog-refresh", &c.Refresh, 5*time.Minute, time.Second, 24*time.Hour, "between two looks at URLs and MCP servers that announce nothing"),
		list("allow-tool", &c.AllowTools, "`PATTERN` of tool names (* and ?); with one, the server's other tools are not served"),
		list("deny-tool", &c.DenyTools, "`PATTERN` of tool names of the server that are not served"),
		clients(&c.ClientsFile, &st.Clients),
		list("pin", &st.Pins, "`NAME` of a tool that is always in front"),
		number("top-k", &st.TopK, proxy.DefaultTopK, 1, 128, "most tools that one turn adds"),
		number("search-rounds", &st.Rounds, proxy.DefaultRounds, 0, 16, "searches of the model (tool_search) answered within one request; 0 offers it none"),
		number("tool-tokens", &st.Tokens, proxy.DefaultTokens, 128, 1<<20, "tokens of the front block, its directory included, and of what a turn adds, together"),
		number("late-tokens", &st.MaxLate, proxy.DefaultMaxLate, 128, 1<<20, "schema tokens of all added tools of a conversation, before a new epoch"),
		number("observation-tokens", &st.Budget.MaxTokens, 2048, 64, 1<<20, "tokens of one tool result"),
		choice("world", &c.World, "closed", []string{"closed", "open"}, "what a tool's schema means that is silent on undeclared keys"),
		text("ledger", &c.Ledger.Where, "memory", "`WHERE` conversations are kept: memory, or file:DIR, which survives the process"),
		size("ledger-bytes", &st.LedgerBytes, proxy.DefaultLedger, 1<<20, 1<<36, "size of the ledger, in memory or in files; what was used longest ago leaves first"),
		span("ledger-ttl", &c.Ledger.TTL, 0, 0, 10*365*24*time.Hour, "how long a conversation is kept that nobody continues; 0 is for ever"),
		text("ledger-key", &c.Ledger.Key, "", "`KEY` that encrypts a ledger in files, 16 bytes or more; better given as SIDECAR_LEDGER_KEY"),
		text("ledger-key-file", &c.Ledger.KeyFile, "", "`FILE` that holds the key; without a key it is DIR.key, made if it is not there"),
		text("embedder", &c.Embedder.URL, "", "`URL` of an OpenAI-compatible /v1/embeddings whose vectors retrieval uses; without it, and while it is late or down, the table in the program"),
		text("embedder-model", &c.Embedder.Model, "", "`NAME` of its model"),
		text("embedder-key", &c.Embedder.Key, "", "its `KEY`; better given as SIDECAR_EMBEDDER_KEY"),
		text("embedder-cache", &c.Embedder.Dir, "", "`DIR` that keeps its vectors, so that a restart asks for nothing twice"),
		span("embedder-deadline", &st.EmbedDeadline, proxy.DefaultEmbedDeadline, time.Millisecond, time.Minute, "that a request waits for the vectors of its query"),
		list("usage", &c.Usage, "`FILE` that remembers, tenant by tenant, which tools were called for which queries, made if it is not there; a log of conversations is learned from and left as it is"),
		number("sessions", &st.Sessions, proxy.DefaultSessions, 1, 1<<16, "decision records kept for /sidecar/v1/sessions"),
		toggle("cache-salt", &st.CacheSalt, false, "part the engine's prefix cache by the clients' keys, so that none can find out by timing what another sent"),
		text("volatile", &c.Volatile.Action, "off", "lines of the system text that change from turn to turn (dates, hashes, counters): move puts them at the end of the last user message, strip leaves them out, off lets them be"),
		text("volatile-rules", &c.Volatile.File, "", "YAML `FILE` of rules for such lines, in the place of the built-in ones"),
		text("model", &c.Model, "", "`CARD` of the model that lost prefill is priced on in the report, as in Qwen/Qwen3-8B"),
		text("gpu", &c.GPU, "H100-SXM-80GB", "`CARD` of its GPU"),
		float("gpu-hour", &st.GPUHour, 0, 0, 1e6, "price of a GPU-hour, in any currency"),
		text("tokenizer", &c.Tokenizer, "", "vocabulary `FILE` (tokenizer.json or *.tiktoken); without it Qwen3's, whose counts are estimates for other models"),
		mode(&st.Mode),
		text("log-prompts", &c.PromptLog, "off", "where each prompt goes as text, with all that the client wrote in it: off, stdout, stderr or a `FILE`"),
		choice("family", &st.Family, "auto", slices.Concat([]string{"auto"}, wire.Names(), wire.Aliases()), "the model's way to write turns and calls"),
	}
}

// An option is one row of a table of options.
type option struct {
	name  string
	usage string   // a name in backquotes is what help calls the value
	kind  string   // what help calls the value otherwise
	tags  []string // YAML tags a value may have in the file
	def   string   // as help shows it
	many  bool     // a list: the flag repeats, the variable is cut at commas, the key may hold a sequence
	// set takes the values from one source. Its error says what is expected.
	set func(values []string) error
	// mapping takes a mapping that stands in the file in the place of a value; nil
	// where none may.
	mapping func(file string, v *yaml.Node) error

	given []string // by flags
}

// String, Set and Type make an option the value of a flag, which collects what
// is given and leaves it to resolve to judge.
func (o *option) String() string { return o.def }
func (o *option) Type() string   { return o.kind }
func (o *option) Set(v string) error {
	if !o.many {
		o.given = nil
	}
	o.given = append(o.given, v)
	return nil
}

func (o *option) env() string {
	return "SIDECAR_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

func text(name string, dst *string, def, usage string) *option {
	*dst = def
	return &option{name: name, usage: usage, kind: "text", tags: []string{"!!str"}, def: def, set: func(v []string) error {
		*dst = v[0]
		return nil
	}}
}

func choice(name string, dst *string, def string, of []string, usage string) *option {
	*dst = def
	usage += ": " + strings.Join(of, ", ")
	return &option{name: name, usage: usage, kind: "name", tags: []string{"!!str"}, def: def, set: func(v []string) error {
		if !slices.Contains(of, v[0]) {
			return fmt.Errorf("%q is not one of %s", v[0], strings.Join(of, ", "))
		}
		*dst = v[0]
		return nil
	}}
}

// mode is the option that says what the engine is given.
func mode(dst *string) *option {
	o := choice("mode", dst, proxy.ModeAuto, []string{proxy.ModeAuto, proxy.ModeTokenIn, proxy.ModeOwned},
		"what the engine is given, token ids or messages of ours; auto takes ids where the engine does")
	set := o.set
	o.set = func(v []string) error {
		if v[0] == "native" {
			return errors.New(`"native", tools through the model's own template, is not built: use auto, token-in or owned`)
		}
		return set(v)
	}
	return o
}

func list(name string, dst *[]string, usage string) *option {
	return &option{name: name, usage: usage + " (repeatable)", kind: "text", tags: []string{"!!str"}, many: true, set: func(v []string) error {
		*dst = v
		return nil
	}}
}

func toggle(name string, dst *bool, def bool, usage string) *option {
	*dst = def
	return &option{name: name, usage: usage, kind: "bool", tags: []string{"!!bool"}, def: strconv.FormatBool(def), set: func(v []string) error {
		b, err := strconv.ParseBool(v[0])
		if err != nil {
			return fmt.Errorf("%q is not true or false", v[0])
		}
		*dst = b
		return nil
	}}
}

func number(name string, dst *int, def, least, most int, usage string) *option {
	*dst = def
	return &option{name: name, usage: usage, kind: "n", tags: []string{"!!int"}, def: strconv.Itoa(def), set: func(v []string) error {
		n, err := strconv.Atoi(v[0])
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", v[0], least, most)
		}
		*dst = n
		return nil
	}}
}

func float(name string, dst *float64, def, least, most float64, usage string) *option {
	*dst = def
	show := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return &option{name: name, usage: usage, kind: "n", tags: []string{"!!int", "!!float"}, def: show(def), set: func(v []string) error {
		f, err := strconv.ParseFloat(v[0], 64)
		if err != nil || !(f >= least && f <= most) {
			return fmt.Errorf("%q is not a number from %s to %s", v[0], show(least), show(most))
		}
		*dst = f
		return nil
	}}
}

func span(name string, dst *time.Duration, def, least, most time.Duration, usage string) *option {
	*dst = def
	return &option{name: name, usage: usage, kind: "duration", tags: []string{"!!str"}, def: def.String(), set: func(v []string) error {
		d, err := time.ParseDuration(v[0])
		if err != nil || d < least || d > most {
			return fmt.Errorf("%q is not a duration such as 1m30s from %v to %v", v[0], least, most)
		}
		*dst = d
		return nil
	}}
}

func size(name string, dst *int, def, least, most int, usage string) *option {
	*dst = def
	return &option{name: name, usage: usage, kind: "bytes", tags: []string{"!!int", "!!str"}, def: formatSize(def), set: func(v []string) error {
		n, ok := parseSize(v[0])
		if !ok || n < least || n > most {
			return fmt.Errorf("%q is not a number of bytes such as 65536 or 64KiB from %s to %s", v[0], formatSize(least), formatSize(most))
		}
		*dst = n
		return nil
	}}
}

var sizeUnits = []struct {
	name  string
	shift int
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

func parseSize(s string) (int, bool) {
	shift := 0
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			s, shift = digits, u.shift
			break
		}
	}
	n, err := strconv.Atoi(s)
	return n << shift, err == nil && n >= 0 && n <= math.MaxInt>>shift
}

func formatSize(n int) string {
	for _, u := range sizeUnits {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.Itoa(n>>u.shift) + u.name
		}
	}
	return strconv.Itoa(n)
}

// addFlags gives cmd a flag for each option.
func addFlags(cmd *cobra.Command, options []*option) {
	cmd.Flags().SortFlags = false
	for _, o := range options {
		f := cmd.Flags().VarPF(o, o.name, "", o.usage)
		if o.kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// resolve sets every option from the first source that has it: flags, the
// environment, the configuration file. file is the option that names the file.
// The error tells all that is wrong and where.
func resolve(options []*option, file *option, lookup func(string) (string, bool)) error {
	var faults []error
	fromEnv := func(o *option) []string {
		v, ok := lookup(o.env())
		if !ok {
			return nil
		}
		if !o.many {
			return []string{v}
		}
		var values []string
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				values = append(values, part)
			}
		}
		if values == nil {
			values = []string{}
		}
		return values
	}
	inFile := map[string]fileValue{}
	path := file.given
	if path == nil {
		path = fromEnv(file)
	}
	if path != nil && path[0] != "" {
		var err error
		if inFile, err = readConfig(path[0], options, file); err != nil {
			faults = append(faults, err)
		}
	}
	for _, o := range options {
		values, where := o.given, "--"+o.name
		if values == nil {
			values, where = fromEnv(o), o.env()
		}
		if v := inFile[o.name]; values == nil && v.node != nil {
			if err := o.mapping(path[0], v.node); err != nil {
				faults = append(faults, err)
			}
			continue
		}
		if values == nil {
			v, ok := inFile[o.name]
			if !ok {
				continue
			}
			values, where = v.values, v.where+": "+o.name
		}
		if err := o.set(values); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", where, err))
		}
	}
	return errors.Join(faults...)
}

// A fileValue is what a configuration file says of one option.
type fileValue struct {
	values []string
	node   *yaml.Node // a mapping; nil for values
	where  string     // file:line
}

// readConfig reads a YAML mapping from option names to values.
func readConfig(path string, options []*option, file *option) (map[string]fileValue, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&doc); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if dec.Decode(&second) != io.EOF {
		return nil, fmt.Errorf("%s: more than one YAML document; only one is read", path)
	}
	found := map[string]fileValue{}
	if len(doc.Content) == 0 {
		return found, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: a mapping is expected, as in 'engine: http://127.0.0.1:8000'", path, root.Line)
	}
	var faults []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		where := fmt.Sprintf("%s:%d", path, key.Line)
		at := slices.IndexFunc(options, func(o *option) bool { return o.name == key.Value && o != file })
		if at < 0 {
			hint := nearest(key.Value, options)
			if key.Value == file.name {
				hint = "; a configuration file can't name another"
			}
			faults = append(faults, fmt.Errorf("%s: %s: unknown key%s", where, key.Value, hint))
			continue
		}
		o := options[at]
		if before, ok := found[o.name]; ok {
			faults = append(faults, fmt.Errorf("%s: %s: already given at %s", where, o.name, before.where))
			continue
		}
		if value = aliased(value); o.mapping != nil && value.Kind == yaml.MappingNode {
			found[o.name] = fileValue{node: value, where: where}
			continue
		}
		values, err := o.fromYAML(value)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", path, value.Line, o.name, err))
			continue
		}
		found[o.name] = fileValue{values: values, where: where}
	}
	return found, errors.Join(faults...)
}

func (o *option) fromYAML(v *yaml.Node) ([]string, error) {
	if v = aliased(v); v.Kind != yaml.SequenceNode || !o.many {
		return o.scalar(v)
	}
	values := []string{}
	for _, item := range v.Content {
		one, err := o.scalar(aliased(item)) // a list in the list is none: it may be the list itself
		if err != nil {
			return nil, err
		}
		values = append(values, one...)
	}
	return values, nil
}

func aliased(v *yaml.Node) *yaml.Node {
	if v.Kind == yaml.AliasNode {
		return v.Alias // of an anchor, which stands at no alias
	}
	return v
}

func (o *option) scalar(v *yaml.Node) ([]string, error) {
	if v.Kind != yaml.ScalarNode || !slices.Contains(o.tags, v.ShortTag()) {
		want := map[string]string{"text": "text", "name": "text", "bool": "true or false", "n": "a whole number",
			"duration": "a duration such as 30s", "bytes": "a number of bytes such as 65536 or 64KiB"}[o.kind]
		if o.many {
			want = "text or a list of texts"
		}
		return nil, fmt.Errorf("%s is expected, found %s", want, describe(v))
	}
	return []string{v.Value}, nil
}

func describe(v *yaml.Node) string {
	switch v.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if v.ShortTag() == "!!null" {
		return "nothing"
	}
	return strings.TrimPrefix(v.ShortTag(), "!!") + " " + strconv.Quote(v.Value)
}

// nearest suggests the option whose name is close to a misspelled key.
func nearest(key string, options []*option) string {
	best, name := 4, ""
	for _, o := range options {
		if d := distance(strings.ReplaceAll(strings.ToLower(key), "_", "-"), o.name); d < best {
			best, name = d, o.name
		}
	}
	if name == "" {
		return "; see 'sidecar serve --help' for the keys"
	}
	return fmt.Sprintf("; is %s meant?", name)
}

// distance counts the single-byte edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
