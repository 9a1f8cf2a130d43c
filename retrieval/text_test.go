package retrieval

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func allWords(text string) []string {
	var out []string
	w := words{text: text}
	for x := w.next(); x != nil; x = w.next() {
		out = append(out, string(x))
	}
	return out
}

// allTerms are the words of a text and their stems.
func allTerms(text string) []string {
	var out []string
	w := words{text: text}
	for x := w.next(); x != nil; x = w.next() {
		out = append(out, string(x))
		out = append(out, string(w.stem(x)))
	}
	return out
}

func TestWords(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", ""},
		{"the of and", ""},
		{"getUserProfile", "get user profile"},
		{"HTTPServer parseJSONBody", "http server parse json body"},
		{"list_open_invoices-v2.pdf", "list open invoice v 2 pdf"},
		{"order66Status", "order 66 statu"},
		{"ABC", "abc"},
		{"iOS 17", "os 17"}, // "i" is a stop word once split off
		{"queries access bus gas policies series ties", "query access bus gas policy sery tie"},
		{"Überweisung Straße ΑΒΓ", "überweisung straße αβγ"},
		{"查询天气 weather", "查 询 天 气 weather"},
		{"naïve café's", "naïve café"},
		{"a\xffb", "b"},
		{"emoji 🙂 ok", "emoji ok"},
		{strings.Repeat("x", 1000), strings.Repeat("x", maxWord)},
	} {
		if got := strings.Join(allWords(x.text), " "); got != x.want {
			t.Errorf("words of %.60q: %q; want %q", x.text, got, x.want)
		}
	}
}

func TestSentence(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"One. Two! Three?", "One.|Two!|Three?"},
		{"v1.2 stays. Next", "v1.2 stays.|Next"},
		{"line\nbreak\n\nthere", "line|break|there"},
		{"句子。 下一", "句子。|下一"},
		{"  ", ""},
	} {
		var got []string
		for rest := x.text; rest != ""; {
			var s string
			if s, rest = sentence(rest); s != "" {
				got = append(got, s)
			}
		}
		if s := strings.Join(got, "|"); s != x.want {
			t.Errorf("sentences of %q: %q; want %q", x.text, s, x.want)
		}
	}
}

func TestParameterText(t *testing.T) {
	for _, x := range []struct{ schema, want string }{
		{`{}`, ""}, {`true`, ""}, {`[1,{"properties":{"a":{}}}]`, ""}, {`null`, ""}, {`"properties"`, ""},
		{`{"type":"object","properties":{"city":{"type":"string","description":"Name of the \"town\"\u00e9"}},"required":["city"]}`, `city Name of the "town"é`},
		{`{"properties":{"unit":{"enum":["kg",1,2.50,true,null,{"x":"no"},["no"]]}}}`, "unit kg 1 2.50 true null"},
		{`{"properties":{"a":{"properties":{"b":{"properties":{"c":{"description":"deep","properties":{"d":{}}}}}}}}}`, "a b c deep"},
		{`{"properties":{"list":{"items":{"properties":{"sku":{"description":"unit"}}}}}}`, "list sku unit"},
		{`{"properties":{"p":true,"q":[],"r":{"description":5,"enum":"no","items":[{"properties":{"x":{}}}],"properties":7}}}`, "p q r"},
		{`{"description":"of the whole is not read","properties":{"a":{}}}`, "a"},
	} {
		got := strings.Join(strings.Fields(string(parameterText(nil, []byte(x.schema)))), " ")
		if got != x.want {
			t.Errorf("%s: %q; want %q", x.schema, got, x.want)
		}
	}
	var many []string
	for range 50 {
		many = append(many, `"v"`)
	}
	got := strings.Fields(string(parameterText(nil, []byte(`{"properties":{"e":{"enum":[`+strings.Join(many, ",")+`]}}}`))))
	if len(got) != 1+schemaEnum {
		t.Errorf("%d words of an enum of 50; %d are read", len(got)-1, schemaEnum)
	}
}

// slowParameterText is the twin of parameterText on decoded JSON.
func slowParameterText(v any, level int) []string {
	m, _ := v.(map[string]any)
	props, _ := m["properties"].(map[string]any)
	if level >= schemaLevels {
		return nil
	}
	var out []string
	for name, p := range props {
		out = append(out, allWords(name)...)
		p, _ := p.(map[string]any)
		if d, ok := p["description"].(string); ok {
			out = append(out, allWords(d)...)
		}
		if e, ok := p["enum"].([]any); ok {
			n := 0
			for _, x := range e {
				switch x := x.(type) {
				case string:
					if n < schemaEnum {
						out = append(out, allWords(x)...)
					}
				case map[string]any, []any:
					n--
				default:
					if n < schemaEnum {
						b, _ := json.Marshal(x)
						out = append(out, allWords(string(b))...)
					}
				}
				n++
			}
		}
		out = append(out, slowParameterText(p, level+1)...)
		out = append(out, slowParameterText(p["items"], level+1)...)
	}
	return out
}

func FuzzParameterText(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"description":"x y","enum":["p q",1],"items":{"properties":{"b":{}}}}}}`))
	f.Add([]byte(`{"properties" : {"a" : {"properties" : { } } , "b\"" : [ ] } }`))
	f.Add([]byte(`[[[{"properties":{}}]]]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		got := allWords(string(parameterText(nil, raw)))
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil || duplicateKeys(raw) {
			return // of equal keys the twin sees the last only
		}
		want := slowParameterText(v, 0)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q; the twin has %q", raw, got, want)
		}
	})
}

// duplicateKeys says whether any object of valid JSON has two members whose
// keys mean the same, or a key spelled with escapes.
func duplicateKeys(raw []byte) bool {
	if strings.Contains(string(raw), `\`) {
		return true
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	type frame struct {
		keys map[string]bool
		key  bool
	}
	var stack []frame
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		if d, ok := tok.(json.Delim); ok {
			switch d {
			case '{':
				stack = append(stack, frame{map[string]bool{}, true})
			case '[':
				stack = append(stack, frame{nil, false})
			default:
				stack = stack[:len(stack)-1]
				if n := len(stack); n > 0 && stack[n-1].keys != nil {
					stack[n-1].key = true
				}
			}
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if top.key {
				k := tok.(string)
				if top.keys[k] {
					return true
				}
				top.keys[k] = true
			}
			top.key = !top.key
		}
	}
}
