package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/toolsidecar/sidecar/models/jsontext"
	"pgregory.net/rapid"
)

// complaints are the places in a value of which a ValidationError says something
// that isn't made of other errors, with the keywords; stops are those where the
// validator, having found a wrong type, const or enum, looks no further.
type complaints struct {
	at    map[string]map[string]bool
	stops []string
	names bool // of propertyNames, whose place it overwrites later
	cycle bool // of a schema that refers to itself without going into the value
}

func (c *complaints) add(e *jsonschema.ValidationError) {
	for _, cause := range e.Causes {
		c.add(cause)
	}
	loc := ""
	for _, tok := range e.InstanceLocation {
		loc += "/" + jsontext.EscapePointer(tok)
	}
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		return
	case *kind.RefCycle:
		c.cycle = true
		return
	case *kind.PropertyNames:
		c.names = true
		return
	case *kind.Type, *kind.Const, *kind.Enum:
		c.stops = append(c.stops, loc)
	}
	if c.at[loc] == nil {
		c.at[loc] = map[string]bool{}
	}
	key := "not_declared"
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		key = path[0]
	}
	if _, is := e.ErrorKind.(*kind.Not); is {
		key = "not"
	}
	c.at[loc][key] = true
}

// explains tells whether the validator complains of the place and keyword, or
// stopped at the value or one around it.
func (c *complaints) explains(m *Misfit) bool {
	for _, stop := range c.stops {
		if m.Loc == stop || strings.HasPrefix(m.Loc, stop+"/") {
			return true
		}
	}
	for around := m.Loc; around != ""; { // what a not evaluates that fails it takes for evaluated
		around = around[:strings.LastIndex(around, "/")]
		if c.at[around]["not"] {
			return true
		}
	}
	return c.at[m.Loc][m.ErrorType] || m.ErrorType == "propertyNames" && c.names
}

func oracleOf(schema string) (*jsonschema.Schema, error) {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("file:///schema.json", v); err != nil {
		return nil, err
	}
	return c.Compile("file:///schema.json")
}

// value draws a value of few keys and values, which meet in schemaGen's.
func (g schemaGen) value(depth int) any {
	k := rapid.IntRange(0, 9).Draw(g.t, "kind")
	if depth == 0 {
		k %= 6
	}
	switch k {
	case 0:
		return nil
	case 1:
		return true
	case 2, 3:
		return json.Number(g.pick("0", "1", "3", "-1", "1.5", "12", "13"))
	case 4, 5:
		return g.pick("", "x", "y", "xyz", "long text")
	case 6:
		list := make([]any, rapid.IntRange(0, 4).Draw(g.t, "items"))
		for i := range list {
			list[i] = g.value(depth - 1)
		}
		return list
	}
	obj := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(g.t, "members") {
		obj[g.pick("a", "b", "c", "z", "ab")] = g.value(depth - 1)
	}
	return obj
}

// near draws a value beside v: one part of it is another, or gone.
func (g schemaGen) near(v any, depth int) any {
	switch v := v.(type) {
	case []any:
		if len(v) > 0 && depth > 0 && rapid.IntRange(0, 2).Draw(g.t, "within") > 0 {
			out := append([]any(nil), v...)
			i := rapid.IntRange(0, len(v)-1).Draw(g.t, "item")
			out[i] = g.near(v[i], depth-1)
			return out
		}
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = e
		}
		key := g.pick("a", "b", "c", "z", "ab")
		if e, ok := v[key]; ok && rapid.IntRange(0, 3).Draw(g.t, "within") > 0 {
			out[key] = g.near(e, depth-1)
		} else if ok {
			delete(out, key)
		} else {
			out[key] = g.value(1)
		}
		return out
	}
	return g.value(1)
}

// TestCheckOracle: random schemas, and values and others beside them, by Check
// and Misfits and by santhosh-tekuri/jsonschema. The verdicts are the same. Each
// misfit is at a place, and of a keyword, that the validator complains of; or
// at or beneath a value whose type, const or enum is wrong, where it looks no
// further; or of a member of an object that a not denies, which it takes for
// evaluated. The envelope says the same places, or a key right below.
func TestCheckOracle(t *testing.T) {
	var schemas, fit, not, misfits, beneath int
	rapid.Check(t, func(t *rapid.T) {
		g := schemaGen{t}
		schema := fmt.Sprintf(`{"properties":{"a":%s,"b":%s},"allOf":[%s],"$defs":{"d":%s,"e":%s}}`, g.schema(2), g.schema(1), g.schema(2), g.schema(1), g.schema(1))
		c, err := Judge(Tool{"t", []byte(schema)}, Open)
		o, oerr := oracleOf(schema)
		if err != nil || oerr != nil {
			if oerr == nil && !strings.Contains(err.Error(), "refers to itself") {
				t.Fatalf("%s: %v", schema, err)
			}
			t.Skip(err, oerr)
		}
		schemas++
		v := g.value(3)
		for range 12 {
			v = g.near(v, 3)
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			verdict, all := o.Validate(v), c.Misfits(text, false)
			if (verdict == nil) != (len(all) == 0) {
				t.Fatalf("%s: %s: ours: %v; the oracle: %v", schema, text, all, verdict)
			}
			_, object := v.(map[string]any)
			one := c.Check(text)
			if (one == nil) != (verdict == nil && object) {
				t.Fatalf("%s: %s: Check: %v; the oracle: %v", schema, text, one, verdict)
			}
			if verdict == nil {
				fit++
				continue
			}
			not++
			var e *jsonschema.ValidationError
			if !errors.As(verdict, &e) {
				t.Fatal(verdict)
			}
			theirs := &complaints{at: map[string]map[string]bool{}}
			theirs.add(e)
			if theirs.cycle {
				continue
			}
			if m := (*Misfit)(nil); object && errors.As(one, &m) {
				all = append(all, m)
			}
			for _, m := range all {
				misfits++
				if !theirs.explains(m) {
					t.Fatalf("%s: %s: %s at %q (%s); the oracle: %#v", schema, text, m.ErrorType, m.Loc, m.Message, verdict)
				}
				if theirs.at[m.Loc] == nil {
					beneath++
				}
				inEnvelope(t, m)
			}
		}
	})
	t.Logf("%d schemas; %d values fit, %d don't, by %d misfits, %d of them beneath where the oracle stops", schemas, fit, not, misfits, beneath)
	if fit < 50 || not < 50 {
		t.Error("too few to tell anything")
	}
}

// inEnvelope checks that each error of the envelope is of the place of its
// misfit, or of a key right below it.
func inEnvelope(t *rapid.T, m *Misfit) {
	var e struct {
		Errors []struct{ Loc []any }
	}
	if err := json.Unmarshal(m.Envelope("t"), &e); err != nil || len(e.Errors) == 0 {
		t.Fatalf("%v: %s", err, m.Envelope("t"))
	}
	for _, x := range e.Errors {
		loc := ""
		for _, tok := range x.Loc {
			loc += "/" + jsontext.EscapePointer(fmt.Sprint(tok))
		}
		if loc != m.Loc && (len(x.Loc) == 0 || !strings.HasPrefix(loc, m.Loc+"/") || strings.Contains(loc[len(m.Loc)+1:], "/")) {
			t.Fatalf("the envelope says %s of %s", loc, m.Loc)
		}
	}
}
