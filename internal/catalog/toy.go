package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Toy answers a call of a demo tool with made-up data that depends on nothing
// but name and arguments: the same call has the same answer everywhere. The
// answer is a JSON object of 60 bytes to about 30 kB; lists, exports in text,
// logs and queries are the long ones. A call that cannot be answered has the
// member "error".
func Toy(name string, args []byte) string {
	spec, ok := demo().spec[name]
	if !ok {
		return toyError("unknown_tool", "there is no tool named "+name)
	}
	given := map[string]any{}
	if len(bytes.TrimSpace(args)) > 0 {
		dec := json.NewDecoder(bytes.NewReader(args))
		dec.UseNumber()
		if err := dec.Decode(&given); err != nil || given == nil {
			return toyError("bad_arguments", "the arguments are not a JSON object")
		}
	}
	sorted, err := json.Marshal(given) // sorts keys, so that their order doesn't matter
	if err != nil {
		panic("catalog: arguments of decoded JSON: " + err.Error())
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), sorted...))
	t := toy{spec: spec, given: given, rnd: lcg(binary.LittleEndian.Uint64(sum[:]))}
	return t.answer()
}

func toyError(code, message string) string {
	return `{"error":{"code":` + quote(code) + `,"message":` + quote(message) + `}}`
}

// toyEpoch is the day all made-up times lie around.
var toyEpoch = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

type toy struct {
	spec  demoSpec
	given map[string]any
	rnd   lcg
	out   []byte
}

func (t *toy) answer() string {
	o := t.spec.object
	t.out = append(t.out, '{')
	switch v := t.spec.verb; v {
	case "list", "search":
		t.list(plural(o.name), t.rows(), func() { t.record(o, "") })
		t.comma()
		t.out = append(t.out, `"next_cursor":`...)
		if t.rnd.below(3) == 0 {
			t.out = append(t.out, "null"...)
		} else {
			t.out = append(t.out, quote(t.token("cur", 12))...)
		}
	case "get", "track", "verify", "validate":
		t.member(o.name)
		t.record(o, t.text(o.name+"_id"))
		if v == "track" {
			t.comma()
			t.list("events", 3+t.rnd.below(5), func() { t.event() })
		}
	case "count":
		t.list("groups", 2+t.rnd.below(6), func() {
			t.out = fmt.Appendf(t.out, `{"key":%s,"count":%d}`, quote(t.word()), 1+t.rnd.below(900))
		})
	case "audit":
		t.list("entries", 4+t.rnd.below(30), func() { t.event() })
	case "query", "run", "simulate", "forecast", "scan", "replay", "transcribe", "measure":
		t.pair("status", "finished")
		t.comma()
		t.list("rows", 10+t.rnd.below(150), func() {
			t.out = fmt.Appendf(t.out, `{"at":%s,"value":%s,"note":%s}`, quote(t.time()), t.number(0, 1000), quote(t.sentence()))
		})
	case "summarize", "translate", "compare":
		t.pair("text", t.paragraph(3+t.rnd.below(5)))
	case "export", "download":
		format := t.text("format")
		if format == "" {
			format = "csv"
		}
		t.pair("url", "https://files.example/"+t.token("f", 16)+"."+format)
		t.comma()
		t.out = fmt.Appendf(t.out, `"rows":%d,`, 10+t.rnd.below(5000))
		t.pair("expires_at", t.time())
	case "create", "copy", "import":
		t.pair(o.name+"_id", t.token(prefix(o.name), 8))
		t.comma()
		t.pair("status", "created")
		t.echo("")
	default:
		id := t.text(o.name + "_id")
		if id == "" {
			id = t.token(prefix(o.name), 8)
		}
		t.pair(o.name+"_id", id)
		t.comma()
		t.pair("done", strings.ReplaceAll(v, "_", " "))
		t.comma()
		t.pair("at", t.time())
		t.echo(o.name + "_id")
	}
	return string(append(t.out, '}'))
}

// rows is how many records a list has, at most what was asked for: mostly a
// few, one time in three a long page.
func (t *toy) rows() int {
	n := 2 + t.rnd.below(12)
	if t.rnd.below(3) == 0 {
		n = 50 + t.rnd.below(50)
	}
	if lim, ok := t.given["limit"].(json.Number); ok {
		if l, err := strconv.Atoi(lim.String()); err == nil {
			n = min(n, max(l, 0))
		}
	}
	return n
}

func (t *toy) comma() {
	if last := t.out[len(t.out)-1]; last != '{' && last != '[' {
		t.out = append(t.out, ',')
	}
}

func (t *toy) member(name string) {
	t.out = append(t.out, quote(name)...)
	t.out = append(t.out, ':')
}

func (t *toy) pair(name, value string) {
	t.member(name)
	t.out = append(t.out, quote(value)...)
}

func (t *toy) list(name string, n int, each func()) {
	t.member(name)
	t.out = append(t.out, '[')
	for range n {
		t.comma()
		each()
	}
	t.out = append(t.out, ']')
}

// echo repeats the short arguments, as APIs do.
func (t *toy) echo(except string) {
	keys := make([]string, 0, len(t.given))
	for k, v := range t.given {
		switch x := v.(type) {
		case string:
			if len(x) <= 64 && k != except && k != "status" && k != "done" && k != "at" {
				keys = append(keys, k)
			}
		case json.Number, bool:
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k == t.spec.object.name+"_id" {
			continue
		}
		t.comma()
		t.member(k)
		switch x := t.given[k].(type) {
		case string:
			t.out = append(t.out, quote(x)...)
		case json.Number:
			t.out = append(t.out, x.String()...)
		case bool:
			t.out = strconv.AppendBool(t.out, x)
		}
	}
}

func (t *toy) text(name string) string {
	s, _ := t.given[name].(string)
	return s
}

// record writes one object with all its fields.
func (t *toy) record(o *demoObject, id string) {
	if id == "" {
		id = t.token(prefix(o.name), 8)
	}
	t.out = append(t.out, '{')
	t.pair("id", id)
	for _, f := range o.fields {
		t.out = append(t.out, ',')
		t.member(f.name)
		if f.enum != nil {
			t.out = append(t.out, quote(f.enum[t.rnd.below(len(f.enum))])...)
			continue
		}
		t.value(f.name)
	}
	t.out = append(t.out, '}')
}

func (t *toy) value(name string) {
	ft := demo().typeOf(name)
	switch ft.kind {
	case "id":
		p := ft.args[0]
		if p == "" {
			p = prefix(strings.TrimSuffix(name, "_id"))
		}
		t.out = append(t.out, quote(t.token(p, 8))...)
	case "integer", "number":
		low, high, _ := strings.Cut(ft.args[0], "..")
		l, _ := strconv.ParseFloat(low, 64)
		h, _ := strconv.ParseFloat(high, 64)
		most := 999.0 // small enough to look real whatever the field allows
		if strings.HasSuffix(name, "_count") || name == "quantity" {
			most = 24
		}
		h = min(h, max(l, 0)+most)
		if ft.kind == "integer" {
			t.out = strconv.AppendInt(t.out, int64(l)+int64(t.rnd.below(int(h-l)+1)), 10)
			return
		}
		t.out = append(t.out, t.number(l, h)...)
	case "boolean":
		t.out = strconv.AppendBool(t.out, t.rnd.below(2) == 0)
	case "date":
		t.out = append(t.out, quote(t.time()[:10])...)
	case "time":
		t.out = append(t.out, quote(t.time())...)
	case "enum":
		t.out = append(t.out, quote(ft.args[t.rnd.below(len(ft.args))])...)
	case "strings":
		t.out = append(t.out, '[')
		for range 1 + t.rnd.below(3) {
			t.comma()
			t.out = append(t.out, quote(t.word())...)
		}
		t.out = append(t.out, ']')
	case "object", "objects":
		args, n := ft.args, 1
		if ft.kind == "objects" {
			args, n = args[1:], 1+t.rnd.below(3)
			t.out = append(t.out, '[')
		}
		for i := range n {
			if i > 0 {
				t.out = append(t.out, ',')
			}
			t.out = append(t.out, '{')
			for i, f := range args {
				if i > 0 {
					t.out = append(t.out, ',')
				}
				f = strings.TrimSuffix(f, "!")
				t.member(f)
				t.value(f)
			}
			t.out = append(t.out, '}')
		}
		if ft.kind == "objects" {
			t.out = append(t.out, ']')
		}
	case "text":
		t.out = append(t.out, quote(t.paragraph(1+t.rnd.below(2)))...)
	default: // string, pattern
		t.out = append(t.out, quote(t.named(name))...)
	}
}

// named makes a value that fits the name of a string field.
func (t *toy) named(name string) string {
	has := func(part string) bool { return strings.Contains(name, part) }
	switch {
	case has("email"):
		return t.word() + "." + t.word() + "@mail.example"
	case has("url"):
		return "https://" + t.word() + ".example/" + t.token("p", 6)
	case has("phone"):
		return fmt.Sprintf("+49 30 555%04d", t.rnd.below(10000))
	case has("ip_address"):
		return fmt.Sprintf("192.0.2.%d", 1+t.rnd.below(254))
	case has("cidr"):
		return fmt.Sprintf("198.51.100.%d/28", 16*t.rnd.below(16))
	case has("hostname"):
		return t.word() + ".example"
	case has("postal_code"):
		return fmt.Sprintf("%05d", 10000+t.rnd.below(89999))
	case has("version"):
		return fmt.Sprintf("%d.%d.%d", 1+t.rnd.below(4), t.rnd.below(20), t.rnd.below(10))
	case has("cron"):
		return fmt.Sprintf("%d %d * * 1-5", t.rnd.below(60), t.rnd.below(24))
	case has("sku"), has("symbol"), has("number"), has("code"):
		return strings.ToUpper(strings.ReplaceAll(t.token(t.word()[:2], 5), "_", "-"))
	case has("_airport"):
		return []string{"BER", "OSL", "LIS", "JFK", "NRT", "YYZ"}[t.rnd.below(6)]
	case has("city"):
		return []string{"Berlin", "Oslo", "Lisbon", "Leeds", "Kyoto", "Toronto"}[t.rnd.below(6)]
	case name == "locale":
		return "de-DE"
	}
	return t.word() + " " + t.word()
}

func (t *toy) event() {
	t.out = fmt.Appendf(t.out, `{"at":%s,"actor":%s,"field":%s,"from":%s,"to":%s}`, quote(t.time()), quote(t.token("usr", 6)),
		quote(t.spec.object.fields[t.rnd.below(len(t.spec.object.fields))].name), quote(t.word()), quote(t.word()))
}

func (t *toy) time() string {
	return toyEpoch.Add(time.Duration(t.rnd.below(180*24*4)) * 15 * time.Minute).Format(time.RFC3339)
}

// number returns a number with two decimals at most, in JSON.
func (t *toy) number(low, high float64) string {
	cents := int((high - low) * 100)
	return strconv.FormatFloat(low+float64(t.rnd.below(cents+1))/100, 'f', -1, 64)
}

func (t *toy) token(prefix string, n int) string {
	const letters = "0123456789abcdefghjkmnpqrstvwxyz"
	b := append([]byte(prefix), '_')
	for range n {
		b = append(b, letters[t.rnd.below(len(letters))])
	}
	return string(b)
}

// prefix shortens an object's name for its identifiers.
func prefix(object string) string {
	var b []byte
	for _, w := range strings.Split(object, "_") {
		b = append(b, w[0])
	}
	if len(b) == 1 {
		return object[:min(3, len(object))]
	}
	return string(b)
}

var toyWords = strings.Fields(`amber birch cedar delta ember fjord garnet harbor indigo juniper kestrel linden maple nectar onyx pebble quartz
	river saffron timber umber velvet willow xenon yarrow zephyr anchor beacon copper dune elm falcon granite heron ivory jasper kelp lagoon meadow north`)

func (t *toy) word() string { return toyWords[t.rnd.below(len(toyWords))] }

func (t *toy) sentence() string {
	return fmt.Sprintf([]string{
		"The %s near %s was checked.", "Nothing new about %s since %s.", "A person from %s asked for %s.", "%s and %s agree.", "Waiting for %s before %s.",
	}[t.rnd.below(5)], t.word(), t.word())
}

func (t *toy) paragraph(n int) string {
	s := make([]string, n)
	for i := range s {
		s[i] = sentenceCase(t.sentence())
	}
	return strings.Join(s, " ")
}
