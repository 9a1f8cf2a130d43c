package accept

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/toolsidecar/sidecar/models/jsontext"
)

// FuzzSchema: any bytes give an automaton, or an error that says why.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#"}},"unevaluatedProperties":false}`,
		`{"$dynamicRef":"#a","$defs":{"x":{"$dynamicAnchor":"a","oneOf":[{"contains":{}},{"not":{"const":[1,{"a":2}]}}]}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","items":[{"enum":[1,"a",null]}],"additionalItems":false}`,
		`{"if":{"minLength":2},"then":{"pattern":"^a+$"},"else":{"multipleOf":0.1,"maximum":3}}`, `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`,
	} {
		f.Add([]byte(s), []byte(`{"a":[1,{"b":"x"}]}`))
	}
	limits := Limits{Formulas: 20_000, Values: 2000, Work: 50_000, Search: 200, Memory: 4 << 20}
	f.Fuzz(func(t *testing.T, schema, text []byte) {
		a, err := Compile(context.Background(), schema, Options{Limits: limits, Formats: true})
		var refused *RefusedError
		var limit *LimitError
		var stop *StopError
		if err != nil {
			if !errors.As(err, &refused) && !errors.As(err, &limit) {
				t.Fatal(err)
			}
			return
		}
		if err := a.Check(text); err != nil && !errors.As(err, &stop) && !errors.As(err, &limit) {
			t.Fatal(err)
		}
	})
}

// FuzzText: an automaton of any value accepts what encoding/json does, in UTF-8,
// not too deep, and with no key twice in an object.
func FuzzText(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,"\ud800\u00e9\n",true,null]}`, `[`, `"\ud83d\ude00"`, "\"\xff\"", `01`, ` 1 `, `{"a":1,"a":2}`, ``} {
		f.Add([]byte(s))
	}
	a := compileT(f, `true`, Options{})
	f.Fuzz(func(t *testing.T, text []byte) {
		_, strict := jsontext.Parse(text, 512)
		want := json.Valid(text) && strict == nil
		if err := a.Check(text); want != (err == nil) {
			t.Errorf("%q: %v, but %v", text, err, strict)
		}
	})
}
