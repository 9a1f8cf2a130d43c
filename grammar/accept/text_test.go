package accept

import (
	"context"
	"testing"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		schema, prefix string
		want           Text
		ok             bool
	}{
		{`{}`, `"ab`, Text{Open: true, Free: true, Max: -1}, true},
		{`{}`, `"ab\`, Text{}, false},
		{`{}`, "\"ab\xc3", Text{}, false},
		{`{}`, `[1`, Text{}, false},
		{`{"maxLength":5,"minLength":4}`, `"ab`, Text{Free: true, Min: 2, Max: 3}, true},
		{`{"minLength":4}`, `"ab`, Text{Open: true, Free: true, Min: 2, Max: -1}, true},
		{`{"pattern":"^a"}`, `"`, Text{}, true},
		{`{"pattern":"^a"}`, `"a`, Text{Open: true, Free: true, Max: -1}, true},
		{`{"enum":["abc"]}`, `"ab`, Text{}, true},
		{`{"not":{"enum":["abc"]}}`, `"ab`, Text{Open: true}, true},
		{`{"properties":{"abc":{}}}`, `{"ab`, Text{Key: true, Open: true}, true},
		{`{"properties":{"abc":{}}}`, `{"x`, Text{Key: true, Open: true, Free: true, Max: -1}, true},
		{`{"properties":{"abc":{}},"additionalProperties":false}`, `{"ab`, Text{Key: true}, true},
		{`{"anyOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"a":{"type":["string","null"]}},"required":["b"]}]}`, `{"a":"`, Text{Open: true, Free: true, Max: -1}, true},
		{`{"uniqueItems":true}`, `["a`, Text{Open: true}, true},
	} {
		a, err := Compile(context.Background(), []byte(c.schema), Options{})
		if err != nil {
			t.Fatal(err)
		}
		f := a.NewFollower()
		if err := f.Feed([]byte(c.prefix)); err != nil {
			t.Fatalf("%s: %v", c.schema, err)
		}
		if got, ok := a.Text(f.State()); got != c.want || ok != c.ok {
			t.Errorf("%s after %q: %+v %v, want %+v %v", c.schema, c.prefix, got, ok, c.want, c.ok)
		}
	}
}

// TestBytes: what Bytes says is what steps say.
func TestBytes(t *testing.T) {
	for _, c := range []struct{ schema, text string }{
		{`{"type":"object","properties":{"name":{"enum":["up","down","ü\"x"]},"n":{"type":"integer"},"o":{}},"required":["name"],"additionalProperties":false}`,
			`{"n": -12e1, "o":{"x":[null,true]},"name":"down"} `},
		{`{"patternProperties":{"^a":{"type":"string","minLength":2}},"additionalProperties":{"$ref":"#"}}`, `{"ab":"x\u0041y","b":{"c":{}}}`},
		{`{"items":{"enum":["a","b"]},"uniqueItems":true}`, `["b","a"]`},
	} {
		a := compileT(t, c.schema, Options{})
		s := a.Start()
		for i := 0; ; i++ {
			set, err := a.Bytes(s)
			if err != nil {
				t.Fatal(err)
			}
			for b := range 256 {
				n, err := a.Step(s, byte(b))
				if err != nil {
					t.Fatal(err)
				}
				if set.Has(byte(b)) != (n != 0) {
					t.Errorf("%s after %q: %#02x leads to %d", c.schema, c.text[:i], byte(b), n)
				}
			}
			if i == len(c.text) {
				break
			}
			s, _ = a.Step(s, c.text[i])
		}
		if !a.Accepting(s) {
			t.Errorf("%s: %s does not fit", c.schema, c.text)
		}
	}
}
