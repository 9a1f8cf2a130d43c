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
