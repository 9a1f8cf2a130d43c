package grammar

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyWays: what is too much byte by byte is judged as a whole.
func TestManyWays(t *testing.T) {
	schema := `{"$ref":"#/$defs/d0","$defs":{"d20":{"type":"object"}`
	var members []string
	for i := range 20 {
		schema += fmt.Sprintf(`,"d%d":{"oneOf":[{"properties":{"a%d":{"const":0}},"required":["a%d"],"$ref":"#/$defs/d%d"},{"properties":{"a%d":{"const":1}},"required":["a%d"],"$ref":"#/$defs/d%d"}]}`, i, i, i, i+1, i, i, i+1)
		members = append(members, fmt.Sprintf(`"a%d":1`, i))
	}
	c := compileTest(t, schema+"}}", Open)
	text := `{` + strings.Join(members, ",") + `}`
	if err := c.Check([]byte(text)); err != nil {
		t.Error(err)
	}
	m, ok := c.Check([]byte(strings.Replace(text, `"a7":1`, `"a7":2`, 1))).(*Misfit)
	if !ok || m.ErrorType == "too_long" {
		t.Errorf("%v", m)
	}
}

// TestReferenceCycle: definitions that offer each other for the same value are
// refused by name: what they mean is left open by the specification.
func TestReferenceCycle(t *testing.T) {
	_, err := Compile(Tool{"t", []byte(`{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"string"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}`)}, Closed)
	refused, ok := err.(*SchemaError)
	if !ok || !strings.HasPrefix(refused.Loc, "#/$defs/") || !strings.Contains(refused.Msg, "refers to itself") {
		t.Errorf("%v", err)
	}
}
