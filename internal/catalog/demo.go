package catalog

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/retrieval"
)

// The demo catalog is 64 domains of 50 tools: domain × verb × object, made
// from three tables of our own words by a seeded generator. Its bytes are the
// same on every machine.

//go:embed demo/domains.txt
var demoDomains string

//go:embed demo/fields.txt
var demoFields string

//go:embed demo/verbs.txt
var demoVerbs string

const (
	demoSeed      = 20261130
	demoPerDomain = 50 // × 64 domains = 3,200 tools
)

// Domain is one area of the demo catalog.
type Domain struct {
	Name    string // prefix of its tools' names, before "__"
	Title   string
	Note    string   // ends the description of each of its tools; may be empty
	Objects []string // what its tools deal with
}

// Domains lists the domains of the demo catalog.
func Domains() []Domain {
	d := demo()
	out := make([]Domain, len(d.domains))
	for i, x := range d.domains {
		out[i] = x.Domain
		out[i].Objects = make([]string, len(x.objects))
		for j, o := range x.objects {
			out[i].Objects[j] = o.name
		}
	}
	return out
}

// Demo returns the demo catalog of 3,200 tools in 64 domains.
func Demo() *Catalog { return demo().catalog }

var demo = sync.OnceValue(func() *demoCatalog {
	d := generate(demoSeed)
	c, err := New("demo", d.tools)
	if err != nil {
		panic("demo catalog: " + err.Error())
	}
	d.catalog = c
	return d
})

type demoCatalog struct {
	catalog *Catalog
	tools   []retrieval.Tool
	domains []demoDomain
	fields  map[string]fieldType
	spec    map[string]demoSpec // by tool name, for the toy handlers
}

type demoDomain struct {
	Domain
	objects []demoObject
}

type demoObject struct {
	name     string // snake case, singular
	gloss    string // "a bill sent to a customer"
	fields   []demoField
	verbs    []string // of its own
	readOnly bool
}

type demoField struct {
	name     string
	required bool
	enum     []string // instead of a type from the table
}

type demoVerb struct {
	name, text string
	params     []string
	general    bool // stands before the blank line of verbs.txt: fits every object
}

// demoSpec is what a toy handler needs to know of a tool.
type demoSpec struct {
	domain string
	verb   string
	object *demoObject
}

// fieldType is one line of fields.txt.
type fieldType struct {
	kind  string // string, text, id, integer, number, boolean, date, time, enum, pattern, strings, object, objects
	args  []string
	about string
}

// lcg is a splitmix64 sequence, fixed so that no library can change the demo.
type lcg uint64

func (s *lcg) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to n-1.
func (s *lcg) below(n int) int { return int(s.next() % uint64(n)) }

func generate(seed uint64) *demoCatalog {
	d := &demoCatalog{
		domains: parseDomains(demoDomains),
		fields:  parseFields(demoFields),
		spec:    make(map[string]demoSpec),
	}
	verbs, general := parseVerbs(demoVerbs)
	rnd := lcg(seed)
	for i := range d.domains {
		dom := &d.domains[i]
		for _, c := range chooseVerbs(dom, general, &rnd) {
			v, ok := verbs[c.verb]
			if !ok {
				panic(fmt.Sprintf("demo catalog: %s: verb %q is not in verbs.txt", c.object.name, c.verb))
			}
			name := dom.Name + "__" + c.verb + "_" + c.object.name
			if c.verb == "list" || c.verb == "search" || c.verb == "export" || c.verb == "count" || c.verb == "import" || c.verb == "batch_update" {
				name = dom.Name + "__" + c.verb + "_" + plural(c.object.name)
			}
			about := d.describe(dom, c.object, v, &rnd)
			schema := d.schema(c.object, v, &rnd)
			tool := retrieval.Tool{Name: name, Description: about, Server: dom.Name}
			tool.Raw, tool.Schema = assemble(name, about, schema)
			d.tools = append(d.tools, tool)
			d.spec[name] = demoSpec{dom.Name, c.verb, c.object}
		}
	}
	return d
}

type chosen struct {
	verb   string
	object *demoObject
}

// readOnlyVerbs are the general verbs that change nothing.
var readOnlyVerbs = []string{"get", "list", "search", "export", "count", "share", "annotate", "watch", "compare", "summarize"}

// chooseVerbs picks the tools of a domain: each object's own verbs, then get,
// list, create and update, then others at random until there are enough.
func chooseVerbs(dom *demoDomain, general []string, rnd *lcg) []chosen {
	var out []chosen
	var rest []chosen
	for i := range dom.objects {
		o := &dom.objects[i]
		allowed := general
		if o.readOnly {
			allowed = readOnlyVerbs
		}
		for _, v := range allowed {
			switch {
			case v == "get", v == "list", v == "create", v == "update":
				out = append(out, chosen{v, o})
			case !slices.Contains(o.verbs, v):
				rest = append(rest, chosen{v, o})
			}
		}
		for _, v := range o.verbs {
			out = append(out, chosen{v, o})
		}
	}
	for len(out) < demoPerDomain {
		i := rnd.below(len(rest))
		out = append(out, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	if len(out) > demoPerDomain {
		panic(fmt.Sprintf("demo catalog: %s has %d tools of its own; %d at most", dom.Name, len(out), demoPerDomain))
	}
	slices.SortStableFunc(out, func(a, b chosen) int { return strings.Compare(a.object.name, b.object.name) })
	return out
}

func (d *demoCatalog) describe(dom *demoDomain, o *demoObject, v demoVerb, rnd *lcg) string {
	var f, by []string
	for _, x := range o.fields {
		if len(f) < 3 {
			f = append(f, fieldWords(x.name))
		}
		if len(by) < 2 && d.filters(x) {
			by = append(by, fieldWords(x.name))
		}
	}
	filter := ""
	if len(by) > 0 {
		filter = " Can be filtered by " + and(by) + "."
	}
	s := strings.NewReplacer(
		"{a}", article(o.name), "{o}", spoken(o.name), "{os}", spoken(plural(o.name)), "{x}", o.gloss, "{f}", and(f), "{by}", filter,
	).Replace(v.text)
	if !strings.Contains(v.text, "{x}") && rnd.below(5) < 2 {
		s += " " + sentenceCase(article(o.name)) + " is " + o.gloss + "."
	}
	if rnd.below(6) == 0 {
		s += " Part of " + dom.Title + "."
	}
	if dom.Note != "" {
		s += " " + dom.Note
	}
	return s
}

// schema writes the parameters of a verb on an object.
func (d *demoCatalog) schema(o *demoObject, v demoVerb, rnd *lcg) []byte {
	w := schemaWriter{demo: d, object: o}
	w.open()
	for _, p := range v.params {
		p, required := strings.CutSuffix(p, "!")
		switch p {
		case "{id}":
			w.id(o.name+"_id", "Identifier of the "+spoken(o.name)+".", required)
		case "{ids}":
			w.raw(o.name+"_ids", `{"type":"array","description":`+quote("Identifiers of the "+spoken(plural(o.name))+".")+
				`,"items":{"type":"string","maxLength":36},"minItems":1,"maxItems":100}`, required)
		case "{fields}", "{fields?}":
			for _, f := range o.fields {
				w.field(f, f.required && p == "{fields}")
			}
		case "{filters}":
			left := 2
			for _, f := range o.fields {
				if left > 0 && d.filters(f) {
					w.field(f, false)
					left--
				}
			}
		case "{include}":
			w.raw("include", `{"type":"array","description":"Fields to return; all when left out.","items":{"type":"string","enum":`+o.fieldNames()+`},"maxItems":20}`, required)
		case "group_by":
			w.raw(p, `{"type":"string","description":"Field to group by.","enum":`+o.fieldNames()+`}`, required)
		default:
			w.field(demoField{name: p}, required)
		}
	}
	return w.close()
}

func (o *demoObject) fieldNames() string {
	b := []byte{'['}
	for i, f := range o.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(f.name)...)
	}
	return string(append(b, ']'))
}

// filters says whether a field makes a good filter.
func (d *demoCatalog) filters(f demoField) bool {
	if f.enum != nil {
		return true
	}
	switch d.typeOf(f.name).kind {
	case "enum", "date", "id", "boolean":
		return true
	}
	return false
}

type schemaWriter struct {
	demo     *demoCatalog
	object   *demoObject
	out      []byte
	required []string
	names    []string
}

func (w *schemaWriter) open() { w.out = append(w.out, `{"type":"object","properties":{`...) }

func (w *schemaWriter) close() []byte {
	w.out = append(w.out, '}')
	if len(w.required) > 0 {
		w.out = append(w.out, `,"required":[`...)
		for i, n := range w.required {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.out = append(w.out, quote(n)...)
		}
		w.out = append(w.out, ']')
	}
	return append(w.out, '}')
}

func (w *schemaWriter) raw(name, schema string, required bool) {
	if slices.Contains(w.names, name) {
		return
	}
	if len(w.names) > 0 {
		w.out = append(w.out, ',')
	}
	w.names = append(w.names, name)
	w.out = append(w.out, quote(name)...)
	w.out = append(w.out, ':')
	w.out = append(w.out, schema...)
	if required {
		w.required = append(w.required, name)
	}
}

func (w *schemaWriter) id(name, about string, required bool) {
	w.raw(name, `{"type":"string","description":`+quote(about)+`,"maxLength":36}`, required)
}

func (w *schemaWriter) field(f demoField, required bool) {
	if f.enum != nil {
		w.raw(f.name, `{"type":"string","description":`+quote(sentenceCase(spoken(f.name))+" of the "+spoken(w.object.name)+".")+`,"enum":`+quoteAll(f.enum)+`}`, required)
		return
	}
	w.raw(f.name, w.typed(f.name, w.demo.typeOf(f.name), 0), required)
}

// typed returns the schema of a field.
func (w *schemaWriter) typed(name string, t fieldType, depth int) string {
	about := strings.ReplaceAll(t.about, "{o}", spoken(w.object.name))
	if about == "" {
		about = sentenceCase(spoken(strings.TrimSuffix(name, "_id"))) + " of the " + spoken(w.object.name) + "."
	}
	head := func(kind string) string { return `{"type":"` + kind + `","description":` + quote(about) }
	span := func() string {
		low, high, _ := strings.Cut(t.args[0], "..")
		return `,"minimum":` + low + `,"maximum":` + high + `}`
	}
	switch t.kind {
	case "string", "text":
		return head("string") + `,"maxLength":` + t.args[0] + `}`
	case "id":
		return head("string") + `,"maxLength":36}`
	case "integer", "number":
		return head(t.kind) + span()
	case "boolean":
		return head("boolean") + `}`
	case "date":
		return head("string") + `,"format":"date","maxLength":10}`
	case "time":
		return head("string") + `,"format":"date-time","maxLength":32}`
	case "enum":
		return head("string") + `,"enum":` + quoteAll(t.args) + `}`
	case "pattern":
		return head("string") + `,"pattern":` + quote(strings.Join(t.args[1:], " ")) + `,"maxLength":` + t.args[0] + `}`
	case "strings":
		return head("array") + `,"items":{"type":"string","maxLength":` + t.args[1] + `},"maxItems":` + t.args[0] + `}`
	case "object":
		return head("object") + "," + w.nested(t.args, depth) + "}"
	case "objects":
		return head("array") + `,"items":{"type":"object",` + w.nested(t.args[1:], depth) + `},"maxItems":` + t.args[0] + `}`
	}
	panic("demo catalog: " + name + ": no type " + t.kind)
}

func (w *schemaWriter) nested(fields []string, depth int) string {
	if depth > 1 {
		panic("demo catalog: fields nested too deep")
	}
	var props, required []string
	for _, f := range fields {
		f, must := strings.CutSuffix(f, "!")
		props = append(props, quote(f)+":"+w.typed(f, w.demo.typeOf(f), depth+1))
		if must {
			required = append(required, f)
		}
	}
	s := `"properties":{` + strings.Join(props, ",") + `}`
	if len(required) > 0 {
		s += `,"required":` + quoteAll(required)
	}
	return s
}

// endings give types to the fields that fields.txt doesn't list: the last
// words of a name, the type, and what follows "X of the object".
var endings = []struct {
	end  string
	kind string
	arg  string
	unit string
}{
	{"_id", "id", "", ""},
	{"_on", "date", "", ""},
	{"_at", "time", "", ""},
	{"_hour", "integer", "0..23", ", hour of the day"},
	{"_count", "integer", "0..100000", ""},
	{"_index", "integer", "0..100000", ""},
	{"floor_number", "integer", "-5..200", ""}, {"page_number", "integer", "1..100000", ""},
	{"line_number", "integer", "1..1000000", ""}, {"season_number", "integer", "1..100", ""},
	{"level_number", "integer", "1..1000", ""}, {"revision_number", "integer", "1..10000", ""},
	{"version_number", "integer", "1..10000", ""}, {"port_number", "integer", "1..512", ""},
	{"dock_number", "integer", "1..200", ""}, {"zone_number", "integer", "1..99", ""},
	{"question_number", "integer", "1..1000", ""}, {"table_number", "integer", "1..500", ""},
	{"year_number", "integer", "1400..2100", ", four digits"},
	{"_number", "string", "24", ""},
	{"_percent", "number", "0..100", " in percent"},
	{"_ms", "integer", "0..3600000", " in milliseconds"},
	{"_seconds", "integer", "0..86400", " in seconds"},
	{"_minutes", "integer", "0..10080", " in minutes"},
	{"minutes", "integer", "0..10080", ""},
	{"_hours", "integer", "0..8760", " in hours"},
	{"_days", "integer", "0..3650", " in days"},
	{"_months", "integer", "1..120", " in months"},
	{"_amount", "number", "0..1000000", " in major units of the currency"},
	{"_price", "number", "0..1000000", " in major units of the currency"},
	{"_cost", "number", "0..1000000", " in major units of the currency"},
	{"_fee", "number", "0..10000", " in major units of the currency"},
	{"_rent", "number", "0..100000", " in major units of the currency"},
	{"_budget", "number", "0..1000000", " in major units of the currency"},
	{"_limit", "number", "0..1000000", " in major units of the currency"},
	{"_value", "number", "0..10000000", " in major units of the currency"},
	{"_total", "number", "0..1000000", " in major units of the currency"},
	{"income", "number", "0..100000000", " in major units of the currency"},
	{"sum_insured", "number", "0..100000000", " in major units of the currency"},
	{"price_per_kwh", "number", "0..10", " in major units of the currency"},
	{"price_per_word", "number", "0..10", " in major units of the currency"},
	{"capacity_per_hour", "integer", "1..100000", ", pieces"},
	{"_kg", "number", "0..50000", " in kilograms"},
	{"_g", "number", "0..5000", " in grams"},
	{"_ml", "integer", "0..10000", " in millilitres"},
	{"litres", "number", "0..10000", " in litres"},
	{"_cm", "number", "0..10000", " in centimetres"},
	{"_m", "number", "0..100000", " in metres"},
	{"_m2", "number", "1..1000000", " in square metres"},
	{"_km", "number", "0..1000000", " in kilometres"},
	{"_ha", "number", "0..100000", " in hectares"},
	{"_kwh", "number", "0..1000000", " in kilowatt hours"},
	{"_kw", "number", "0..100000", " in kilowatts"},
	{"_kcal", "integer", "0..10000", " in kilocalories"},
	{"_bpm", "integer", "20..250", " in beats a minute"},
	{"_rpm", "integer", "0..100000", " in revolutions a minute"},
	{"_c", "number", "-80..200", " in degrees Celsius"},
	{"_k", "integer", "1000..10000", " in kelvin"},
	{"_gb", "integer", "1..65536", " in gigabytes"},
	{"_mb", "integer", "1..1048576", " in megabytes"},
	{"_mbit", "integer", "10..400000", " in megabits a second"},
	{"_millicores", "integer", "10..128000", " in thousandths of a core"},
	{"_gsm", "integer", "20..600", " in grams a square metre"},
	{"_degrees", "number", "0..90", " in degrees"},
	{"latency_mode", "string", "16", ""},
}

// typeOf returns the type of a field: from the table, else by its ending.
func (d *demoCatalog) typeOf(name string) fieldType {
	if t, ok := d.fields[name]; ok {
		return t
	}
	for _, e := range endings {
		if name == e.end || strings.HasPrefix(e.end, "_") && strings.HasSuffix(name, e.end) || strings.HasSuffix(name, "_"+e.end) {
			stem := strings.TrimSuffix(name, "_id")
			if e.unit != "" && strings.HasPrefix(e.unit, " in ") && strings.HasPrefix(e.end, "_") && !strings.HasPrefix(e.unit, " in major") {
				stem = strings.TrimSuffix(name, e.end)
			}
			about := sentenceCase(spoken(stem)) + " of the {o}" + e.unit + "."
			switch e.kind {
			case "id":
				about = "Identifier of the " + spoken(stem) + "."
			case "date":
				about = moment(strings.TrimSuffix(name, "_on")) + ", YYYY-MM-DD."
			case "time":
				about = moment(strings.TrimSuffix(name, "_at")) + ", RFC 3339 with time zone."
			}
			return fieldType{e.kind, []string{e.arg}, about}
		}
	}
	switch {
	case strings.HasPrefix(name, "is_"), strings.HasPrefix(name, "has_"), strings.HasPrefix(name, "can_"), strings.HasPrefix(name, "avoid_"),
		strings.HasSuffix(name, "_wanted"), strings.HasSuffix(name, "_detection"):
		return fieldType{"boolean", nil, "Whether: " + spoken(name) + "."}
	case strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "ss"):
		return fieldType{"strings", []string{"20", "64"}, ""}
	case name == "summary", name == "cover_letter", name == "biography", name == "opening_hours":
		return fieldType{"text", []string{"2000"}, ""}
	}
	return fieldType{"string", []string{"64"}, ""}
}

// moment describes a date or time named by what happens then.
func moment(stem string) string {
	last := stem[strings.LastIndexByte(stem, '_')+1:]
	switch {
	case strings.HasSuffix(last, "ed"), slices.Contains([]string{"paid", "taken", "given", "held", "bought", "lost", "born", "read", "drunk", "eaten"}, last):
		return "When the {o} was " + spoken(stem)
	case strings.HasSuffix(last, "s"):
		return "When the {o} " + spoken(stem)
	case last == "until":
		return sentenceCase(spoken(stem)) + " this date"
	}
	return sentenceCase(spoken(stem)) + " date"
}

// fieldWords names a field in a sentence.
func fieldWords(name string) string {
	for _, end := range [...]string{"_on", "_at"} {
		if stem, ok := strings.CutSuffix(name, end); ok {
			return spoken(strings.TrimSuffix(stem, "s")) + " date"
		}
	}
	return spoken(strings.TrimSuffix(name, "_id"))
}

func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

func tableLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
}

func cells(line string, n int) []string {
	c := strings.Split(line, " | ")
	if len(c) != n {
		panic(fmt.Sprintf("demo catalog: %d cells, want %d: %s", len(c), n, line))
	}
	return c
}

func parseDomains(text string) []demoDomain {
	var out []demoDomain
	for _, l := range tableLines(text) {
		if l == "" {
			continue
		}
		if head, ok := strings.CutPrefix(l, "domain "); ok {
			name, title, _ := strings.Cut(head, ": ")
			title, note, _ := strings.Cut(title, ". ")
			out = append(out, demoDomain{Domain: Domain{Name: name, Title: title, Note: note}})
			continue
		}
		c := cells(l, 4)
		o := demoObject{name: c[0], gloss: c[1], verbs: strings.Fields(c[3])}
		if o.verbs[0] == "~" {
			o.readOnly, o.verbs = true, o.verbs[1:]
		}
		for _, f := range strings.Fields(c[2]) {
			name, enum, isEnum := strings.Cut(f, "=")
			x := demoField{}
			x.name, x.required = strings.CutSuffix(name, "!")
			if isEnum {
				x.enum = strings.Split(enum, ",")
			}
			o.fields = append(o.fields, x)
		}
		last := &out[len(out)-1]
		last.objects = append(last.objects, o)
	}
	return out
}

func parseFields(text string) map[string]fieldType {
	m := make(map[string]fieldType)
	for _, l := range tableLines(text) {
		if l == "" {
			continue
		}
		c := strings.SplitN(l, " | ", 3)
		t := strings.Fields(c[1])
		m[c[0]] = fieldType{t[0], t[1:], c[2]}
	}
	return m
}

func parseVerbs(text string) (verbs map[string]demoVerb, general []string) {
	verbs = make(map[string]demoVerb)
	own := false
	for _, l := range tableLines(text) {
		if l == "" {
			own = own || len(verbs) > 0
			continue
		}
		c := cells(l, 3)
		verbs[c[0]] = demoVerb{c[0], c[1], strings.Fields(c[2]), !own}
		if !own {
			general = append(general, c[0])
		}
	}
	return verbs, general
}

var acronyms = map[string]string{
	"mfa": "MFA", "sso": "SSO", "sla": "SLA", "nda": "NDA", "vpn": "VPN", "dns": "DNS", "ip": "IP", "api": "API", "url": "URL", "kpi": "KPI",
	"utm": "UTM", "id": "ID", "cpu": "CPU", "cidr": "CIDR", "ab": "A/B", "sku": "SKU", "iban": "IBAN", "ci": "CI", "cve": "CVE", "vip": "VIP", "tls": "TLS",
}

// spoken turns a snake case name into words.
func spoken(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words {
		if a, ok := acronyms[w]; ok {
			words[i] = a
		}
	}
	return strings.Join(words, " ")
}

func article(name string) string {
	s := spoken(name)
	if strings.ContainsRune("aeioAEIMNS", rune(s[0])) || strings.HasPrefix(s, "up") {
		return "an " + s
	}
	return "a " + s
}

func sentenceCase(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func plural(s string) string {
	switch {
	case strings.HasSuffix(s, "y") && !strings.HasSuffix(s, "ay") && !strings.HasSuffix(s, "ey") && !strings.HasSuffix(s, "oy"):
		return s[:len(s)-1] + "ies"
	case strings.HasSuffix(s, "s"), strings.HasSuffix(s, "x"), strings.HasSuffix(s, "ch"), strings.HasSuffix(s, "sh"):
		return s + "es"
	}
	return s + "s"
}

// quote returns a JSON string.
func quote(s string) string { return string(jsontext.AppendString(nil, s)) }

func quoteAll(list []string) string {
	b := []byte{'['}
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.AppendString(b, s)
	}
	return string(append(b, ']'))
}
