package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestScan(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string // "" for accepted, else "line:column@offset message"
	}{
		{`{}`, ""},
		{" \t\r\n{ } \n", ""},
		{`{"a":1,"b":[1,-0,2.5e-3,1E+400,9007199254740993],"c":{"a":null,"b":true,"c":false}}`, ""},
		{`{"é":"\ud83d\ude00 😀 \u0000 \/"}`, ""},
		{`{"a":"` + strings.Repeat("x", 100) + `\"` + strings.Repeat("é", 50) + `"}`, ""},
		{`[{"a":1},{"a":1}]`, `1:1@0 a JSON object is expected, found '['`},
		{``, `1:1@0 the body is empty; a JSON object is expected`},
		{" \n ", `2:2@3 the body is empty; a JSON object is expected`},
		{"\ufeff{}", `1:1@0 byte order mark before the object; send UTF-8 without one`},
		{`{} {}`, `1:4@3 data after the object: '{'`},
		{"{}\x00", `1:3@2 data after the object: byte 0x00`},
		{`{"a":1,"a":2}`, `1:8@7 duplicate key "a"`},
		{`{"a":1,"\u0061":2}`, `1:8@7 duplicate key "a"`},
		{"{\"x\":[\n  {\"k\":1, \"k\":1}]}", `2:11@17 duplicate key "k"`},
		{`{"a":1,"A":2}`, ""},
		{`{"a":{"a":{"a":1}},"b":{"a":1}}`, ""},
		{"{\"a\":\"\xff\"}", `1:7@6 invalid UTF-8`},
		{"{\"a\":\"0123456789\xed\xa0\x80\"}", `1:17@16 invalid UTF-8`},
		{"{\"a\":\"é\xc3", `1:9@8 invalid UTF-8`},
		{"{\"\xc0\x80\":1}", `1:3@2 invalid UTF-8`},
		{`{"a":"\ud800"}`, `1:7@6 lone surrogate \ud800 is not a character`},
		{`{"a":"\udc00\ud800"}`, `1:7@6 lone surrogate \udc00 is not a character`},
		{`{"a":"\ud800\ud800"}`, `1:7@6 lone surrogate \ud800 is not a character`},
		{`{"a":"\uD83D\uDE00"}`, ""},
		{`{"a":"\ud83`, `1:12@11 the body ends inside an escape`},
		{`{"a":"\u12g4"}`, `1:11@10 four hexadecimal digits are expected after \u, found 'g'`},
		{`{"a":"\x"}`, `1:7@6 invalid escape \'x'`},
		{"{\"a\":\"b\nc\"}", `1:8@7 control character 0x0a in a string must be escaped`},
		{"{\"a\":\"01234567\x01\"}", `1:15@14 control character 0x01 in a string must be escaped`},
		{`{"a":"b`, `1:8@7 the body ends inside a string`},
		{`{"a":01}`, `1:7@6 a number must not start with 0`},
		{`{"a":1.}`, `1:8@7 a digit is expected, found '}'`},
		{`{"a":-}`, `1:7@6 a digit is expected, found '}'`},
		{`{"a":1e`, `1:8@7 the body ends inside a number`},
		{`{"a":+1}`, `1:6@5 a value is expected, found '+'`},
		{`{"a":NaN}`, `1:6@5 NaN and Infinity are not JSON; use null or leave the field out`},
		{`{"a":-Infinity}`, `1:7@6 a digit is expected, found 'I'`},
		{`{"a":tru}`, `1:9@8 expected true, found '}'`},
		{`{"a":nul`, `1:9@8 the body ends inside null`},
		{`{"a" 1}`, `1:6@5 a colon is expected after the key, found '1'`},
		{`{"a":1,}`, `1:8@7 a key in double quotes is expected, found '}'`},
		{`{,}`, `1:2@1 a key in double quotes is expected, found ','`},
		{`{a:1}`, `1:2@1 a key in double quotes is expected, found 'a'`},
		{`{"a":[1,]}`, `1:9@8 a value is expected, found ']'`},
		{`{"a":[1 2]}`, `1:9@8 a comma or ] is expected, found '2'`},
		{`{"a":1 "b":2}`, `1:8@7 a comma or } is expected, found '"'`},
		{`{"a":[`, `1:7@6 the body ends where a value is expected`},
		{`{"a":[1`, `1:8@7 the body ends inside an array`},
		{`{`, `1:2@1 the body ends where a key is expected`},
		{`{"a"`, `1:5@4 the body ends after a key`},
		{`{"a":1`, `1:7@6 the body ends inside an object`},
		{`{"a":[[[[]]]]}`, ""},
		{`{"a":[[[[[]]]]]}`, `1:10@9 nested deeper than 5 levels`},
		{`{"a":1}//x`, `1:8@7 data after the object: '/'`},
	} {
		_, err := Scan([]byte(tt.in), Limits{MaxDepth: 5})
		got := ""
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Errorf("Scan(%q): error %T", tt.in, err)
				continue
			}
			got = fmt.Sprintf("%d:%d@%d %s", se.Line, se.Column, se.Offset, se.Msg)
		}
		if got != tt.want {
			t.Errorf("Scan(%q)\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
}

func TestScanSize(t *testing.T) {
	_, err := Scan([]byte(`{"a":1}`), Limits{MaxBytes: 6})
	var se *SizeError
	if !errors.As(err, &se) || se.Size != 7 || se.Max != 6 {
		t.Errorf("got %v", err)
	}
	if _, err := Scan([]byte(`{"a":1}`), Limits{MaxBytes: 7}); err != nil {
		t.Error(err)
	}
}

// Duplicates are found among few keys, among many, and at the last of many.
func TestScanManyKeys(t *testing.T) {
	for _, n := range []int{7, 8, 9, 10, 32, 33, 1000, 60_000} {
		var b bytes.Buffer
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"key%d":{"key1":%d},`, i, i)
		}
		unique := b.String() + `"last":1}`
		if _, err := Scan([]byte(unique), Limits{}); err != nil {
			t.Errorf("%d keys: %v", n, err)
		}
		for _, again := range []int{0, n / 2, n - 1} {
			_, err := Scan(fmt.Appendf(nil, `%s"key%d":1}`, b.String(), again), Limits{})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`duplicate key "key%d"`, again)) {
				t.Errorf("%d keys, key%d again: %v", n, again, err)
			}
		}
	}
}

// What would cost memory beyond the body's own is refused: too many keys, in
// one object or in those it stands in, and too many levels.
func TestScanHostile(t *testing.T) {
	keys := func(n int, tail string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"%d":0,`, i)
		}
		return b.String() + tail
	}
	for _, tt := range []struct{ name, body, want string }{
		{"many keys", keys(DefaultMaxKeys-1, `"x":0}`), ""},
		{"many keys again and again", `{"a":[` + keys(60_000, `"x":0},`) + keys(60_000, `"x":0}]}`), ""},
		{"too many keys", keys(1_000_000, `"x":0}`), "more than 65536 keys"},
		{"too many keys in nested objects", keys(30_000, `"x":`+keys(30_000, `"x":`+keys(30_000, `"x":0}}}`))), "more than 65536 keys"},
		{"too many levels", `{"a":` + strings.Repeat("[", 1_000_000), "deeper than 256 levels"},
		{"too many levels of objects", strings.Repeat(`{"a":`, 1_000_000), "deeper than 256 levels"},
	} {
		_, err := Scan([]byte(tt.body), Limits{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// naiveAccepts is the slow twin of Scan: encoding/json for the syntax, a
// token walk for duplicates, and the stricter rules one by one.
func naiveAccepts(raw []byte, maxDepth int) bool {
	if !json.Valid(raw) || !utf8.Valid(raw) || len(bytes.TrimLeft(raw, " \t\r\n")) == 0 || bytes.TrimLeft(raw, " \t\r\n")[0] != '{' {
		return false
	}
	// A surrogate is lone when encoding/json makes U+FFFD of it.
	plain := bytes.ReplaceAll(raw, []byte("\ufffd"), []byte("?"))
	plain = replaceEscape(plain, "fffd")
	dec := json.NewDecoder(bytes.NewReader(plain))
	type frame struct {
		keys  map[string]bool // nil for an array
		onKey bool
	}
	var stack []frame
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return false
		}
		if s, ok := tok.(string); ok && strings.Contains(s, "\ufffd") {
			return false
		}
		if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if top.onKey = !top.onKey; top.onKey {
				key := tok.(string)
				if top.keys[key] {
					return false
				}
				top.keys[key] = true
			}
		}
		if d, ok := tok.(json.Delim); ok {
			f := frame{}
			if d == '{' {
				f.keys = map[string]bool{}
			}
			if stack = append(stack, f); len(stack) > maxDepth {
				return false
			}
		}
	}
}

// replaceEscape replaces the escape \uhex, in any case of its letters, by '?'.
// A backslash that is itself escaped starts none.
func replaceEscape(raw []byte, hex string) []byte {
	var out []byte
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+1 < len(raw) {
			if raw[i+1] == 'u' && i+6 <= len(raw) && strings.EqualFold(string(raw[i+2:i+6]), hex) {
				out = append(out, '?')
				i += 5
				continue
			}
			out = append(out, raw[i], raw[i+1])
			i++
			continue
		}
		out = append(out, raw[i])
	}
	return out
}

var scanSeeds = []string{
	`{"model":"m","messages":[{"role":"user","content":"hé\n\ud83d\ude00"}],"temperature":0.7}`,
	`{"a":{"b":[1,2,{"c":null}]}, "d" : -1.5e+10 }`,
	`{"a":1,"\u0061":2}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":"\\ud800"}`, `{"\ufffd":"�"}`,
	`{"a":[[[[[[[[]]]]]]]]}`, `{}`, `{"":""}`, `{"a":1}x`, "\ufeff{}", `{"a":"` + "\u2028" + `"}`,
	`{"k1":1,"k2":1,"k3":1,"k4":1,"k5":1,"k6":1,"k7":1,"k8":1,"k9":1,"k10":1,"k9":1}`,
}

func FuzzScan(f *testing.F) {
	for _, s := range scanSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		const depth = 8
		orig := bytes.Clone(raw)
		o, err := Scan(raw, Limits{MaxDepth: depth})
		if !bytes.Equal(orig, raw) {
			t.Fatalf("Scan changed its input")
		}
		if want := naiveAccepts(raw, depth); (err == nil) != want {
			t.Fatalf("Scan(%q): %v; the twin says %v", raw, err, want)
		}
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) || se.Offset < 0 || se.Offset > len(raw) || se.Line < 1 || se.Column < 1 {
				t.Fatalf("position out of range: %#v", err)
			}
			return
		}
		if !Valid(raw) {
			t.Fatalf("Scan accepts what Valid does not: %q", raw)
		}
		checkView(t, raw, o)
	})
}

func FuzzValid(f *testing.F) {
	for _, s := range scanSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		first := bytes.TrimLeft(raw, " \t\r\n")
		want := json.Valid(raw) && utf8.Valid(raw) && len(first) > 0 && first[0] == '{'
		if got := Valid(raw); got != want && strings.Count(string(raw), "[")+strings.Count(string(raw), "{") <= DefaultMaxDepth {
			t.Fatalf("Valid(%q) = %v", raw, got)
		}
	})
}

// checkView holds the views of a scanned document against encoding/json.
func checkView(t *testing.T, raw []byte, o *Object) {
	t.Helper()
	var want map[string]json.RawMessage
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if len(o.Members()) != len(want) {
		t.Fatalf("%q: %d members, want %d", raw, len(o.Members()), len(want))
	}
	var walk func(v Value)
	walk = func(v Value) {
		if !bytes.Equal(raw[v.Start:v.End], v.Raw) {
			t.Fatalf("value at [%d:%d] is %q, Raw %q", v.Start, v.End, raw[v.Start:v.End], v.Raw)
		}
		switch v.Kind() {
		case '"':
			var want string
			if err := json.Unmarshal(v.Raw, &want); err != nil {
				t.Fatal(err)
			}
			if got, ok := v.String(); !ok || got != want {
				t.Fatalf("String of %s = %q, want %q", v.Raw, got, want)
			}
		case '[':
			var want []json.RawMessage
			if err := json.Unmarshal(v.Raw, &want); err != nil {
				t.Fatal(err)
			}
			es := Elements(v)
			if len(es) != len(want) {
				t.Fatalf("%d elements of %s, want %d", len(es), v.Raw, len(want))
			}
			for i, e := range es {
				if !bytes.Equal(e.Raw, want[i]) {
					t.Fatalf("element %d is %s, want %s", i, e.Raw, want[i])
				}
				walk(e)
			}
		case '{':
			n, ok := ObjectOf(v)
			if !ok || !bytes.Equal(n.Bytes(), v.Raw) {
				t.Fatalf("ObjectOf(%s)", v.Raw)
			}
			for _, m := range n.Members() {
				walk(m.Value)
			}
		}
	}
	for _, m := range o.Members() {
		w, ok := want[m.Key]
		if !ok || !bytes.Equal(w, m.Raw) {
			t.Fatalf("member %q is %s, want %s", m.Key, m.Raw, w)
		}
		walk(m.Value)
	}
}

func TestValues(t *testing.T) {
	o, err := Scan([]byte(`{"s":"a\"b","i":-12,"f":1.0,"big":9223372036854775808,"t":true,"n":null}`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	kinds := ""
	for _, m := range o.Members() {
		kinds += string(m.Kind())
	}
	if kinds != `"000tn` {
		t.Errorf("kinds %s", kinds)
	}
	get := func(k string) Value { v, _ := o.Get(k); return v }
	if n, ok := get("i").Int(); !ok || n != -12 {
		t.Errorf("i = %d %v", n, ok)
	}
	for _, k := range []string{"f", "big", "s", "absent"} {
		if _, ok := get(k).Int(); ok {
			t.Errorf("%s is no Int", k)
		}
	}
	if b, ok := get("t").Bool(); !ok || !b {
		t.Error("t")
	}
	if _, ok := get("n").Bool(); ok {
		t.Error("null is no Bool")
	}
	if _, ok := get("n").String(); ok {
		t.Error("null is no String")
	}
	if _, ok := ObjectOf(get("n")); ok || Elements(get("n")) != nil {
		t.Error("null has no parts")
	}
}

// Every other byte of the document survives Set and Delete.
func TestSplice(t *testing.T) {
	for _, tt := range []struct{ in, edit, want string }{
		{`{"a":1,"b":2,"c":3}`, `a=9`, `{"a":9,"b":2,"c":3}`},
		{"{ \"a\" : 1 ,\n \"b\" :\t2 }\n", `b={"x":[]}`, "{ \"a\" : 1 ,\n \"b\" :\t{\"x\":[]} }\n"},
		{`{"a":1,"b":2,"c":3}`, `-a`, `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, `-b`, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, `-c`, `{"a":1,"b":2}`},
		{"{\n  \"a\": 1,\n  \"b\": 2\n}", `-a`, "{\n  \"b\": 2\n}"},
		{"{\n  \"a\": 1,\n  \"b\": 2\n}", `-b`, "{\n  \"a\": 1\n}"},
		{"{\n  \"a\": 1,\n  \"b\": 2\n}", `c=3`, "{\n  \"a\": 1,\n  \"b\": 2,\"c\":3\n}"},
		{`{}`, `a=1`, `{"a":1}`},
		{` { } `, `a=1 b=2`, ` {"a":1,"b":2 } `},
		{`{"a":1,"b":2}`, `-a -b`, `{}`},
		{`{"a":1,"b":2}`, `-a -b c=3`, `{"c":3}`},
		{`{"a":1}`, `-a a=2`, `{"a":2}`},
		{`{"a":1}`, `b=2 b=3 a=0`, `{"a":0,"b":3}`},
		{`{"a":1}`, `b=2 -b`, `{"a":1}`},
		{`{"\u0061":1,"q\"":2}`, `a=3`, `{"\u0061":3,"q\"":2}`},
		{`{"a":1.0,"x":1e2,"y":9007199254740993}`, `a=2`, `{"a":2,"x":1e2,"y":9007199254740993}`},
	} {
		o, err := Scan([]byte(tt.in), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range strings.Fields(tt.edit) {
			if key, ok := strings.CutPrefix(e, "-"); ok {
				o.Delete(key)
				if _, ok := o.Get(key); ok {
					t.Errorf("%s: Get finds a deleted key", tt.edit)
				}
			} else {
				key, val, _ := strings.Cut(e, "=")
				o.Set(key, []byte(val))
				if v, ok := o.Get(key); !ok || string(v.Raw) != val {
					t.Errorf("%s: Get after Set is %s", tt.edit, v.Raw)
				}
			}
		}
		if got := string(o.Bytes()); got != tt.want {
			t.Errorf("%q %s\n got %q\nwant %q", tt.in, tt.edit, got, tt.want)
		}
		if _, err := Scan(o.Bytes(), Limits{}); err != nil {
			t.Errorf("%q %s gives invalid JSON %q: %v", tt.in, tt.edit, o.Bytes(), err)
		}
	}
}

// A random sequence of edits means what it means to a map, and untouched
// members keep their bytes and their order.
func TestSpliceProperty(t *testing.T) {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t", "  "})
	rapid.Check(t, func(t *rapid.T) {
		var doc strings.Builder
		model := map[string]string{}
		var order []string
		doc.WriteString(space.Draw(t, "s") + "{" + space.Draw(t, "s"))
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			key := fmt.Sprintf("k%d", i)
			val := rapid.SampledFrom([]string{`1.0`, `"x\"]},{"`, `[1, {"k1":2}]`, `{"k0": {} }`, `null`}).Draw(t, "v")
			if i > 0 {
				doc.WriteString("," + space.Draw(t, "s"))
			}
			doc.WriteString(`"` + key + `"` + space.Draw(t, "s") + ":" + space.Draw(t, "s") + val + space.Draw(t, "s"))
			model[key] = val
			order = append(order, key)
		}
		doc.WriteString("}" + space.Draw(t, "s"))
		o, err := Scan([]byte(doc.String()), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 8).Draw(t, "edits") {
			key := fmt.Sprintf("k%d", rapid.IntRange(0, 14).Draw(t, "key"))
			if rapid.Bool().Draw(t, "delete") {
				o.Delete(key)
				delete(model, key)
				for i, k := range order {
					if k == key {
						order = append(order[:i:i], order[i+1:]...)
						break
					}
				}
			} else {
				val := rapid.SampledFrom([]string{`7`, `"set"`, `{"a":[ ]}`}).Draw(t, "set")
				o.Set(key, []byte(val))
				if _, ok := model[key]; !ok {
					order = append(order, key)
				}
				model[key] = val
			}
		}
		again, err := Scan(o.Bytes(), Limits{})
		if err != nil {
			t.Fatalf("%q became %q: %v", doc.String(), o.Bytes(), err)
		}
		var gotOrder, viewOrder []string
		for _, m := range again.Members() {
			gotOrder = append(gotOrder, m.Key)
			if string(m.Raw) != model[m.Key] {
				t.Fatalf("%s is %s, want %s", m.Key, m.Raw, model[m.Key])
			}
		}
		for _, m := range o.Members() {
			viewOrder = append(viewOrder, m.Key)
		}
		if len(order) == 0 {
			order = nil
		}
		if !reflect.DeepEqual(gotOrder, order) || !reflect.DeepEqual(viewOrder, order) {
			t.Fatalf("order %v and %v, want %v", gotOrder, viewOrder, order)
		}
	})
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a\"b\\c", "<&>\u2028", "\x00\x1f\x7f", "\xff\xed\xa0\x80", "é😀\n\r\t\b\f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString(nil, s)
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		var a, b string
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if err := json.Unmarshal(buf.Bytes(), &b); err != nil || a != b {
			t.Fatalf("AppendString(%q) = %s means %q, want %q", s, got, a, b)
		}
		v := Value{Raw: got}
		if back, ok := v.String(); !ok || back != b {
			t.Fatalf("String of %s = %q", got, back)
		}
	})
}

func TestErrorBody(t *testing.T) {
	e := &Error{Status: 400, Message: "bad \"x\"\n", Type: "invalid_request_error", Param: "tools", Code: "duplicate_key"}
	if got, want := string(e.Body()), `{"error":{"message":"bad \"x\"\n","type":"invalid_request_error","param":"tools","code":"duplicate_key"}}`; got != want {
		t.Errorf("got %s", got)
	}
	if got, want := string((&Error{Message: "m", Type: "t"}).Body()), `{"error":{"message":"m","type":"t","param":null,"code":null}}`; got != want {
		t.Errorf("got %s", got)
	}
}

func BenchmarkScan(b *testing.B) {
	for _, size := range []int{1, 64, 400} {
		for _, text := range []string{"ascii", "utf8", "escaped"} {
			body := chatBody(size<<10, text)
			b.Run(fmt.Sprintf("size=%dKB/text=%s", size, text), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Scan(body, Limits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// chatBody is a chat request of about size bytes: half messages, half tools.
func chatBody(size int, text string) []byte {
	line := map[string]string{
		"ascii":   "The quick brown fox jumps over the lazy dog and goes on for a while. ",
		"utf8":    "Съешь же ещё этих мягких французских булок — да выпей чаю. ",
		"escaped": "func main() {\\n\\tfmt.Println(\\\"hello\\\")\\n}\\n",
	}[text]
	var b bytes.Buffer
	b.WriteString(`{"model":"m","messages":[`)
	for i := 0; b.Len() < size/2; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"user","content":"%s"}`, strings.Repeat(line, 1+min(size/20000, 30)))
	}
	b.WriteString(`],"tools":[`)
	for i := 0; b.Len() < size-300 || i == 0; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"tool_%d","description":"%s","parameters":{"type":"object","properties":{"path":{"type":"string","description":"%s"},"limit":{"type":"integer","minimum":1,"maximum":100}},"required":["path"],"additionalProperties":false}}}`, i, line, line)
	}
	b.WriteString(`],"stream":true}`)
	return b.Bytes()
}
