package grammar

import (
	"fmt"
	"strings"
)

// Slow are cases made to be slow: long bounds, broad patterns, many branches.
func Slow() []Case {
	one := func(name, schema, instance string) Case {
		return Case{File: name, Schema: []byte(schema), Tests: []Test{{Valid: true, Text: []byte(instance)}}}
	}
	text := strings.TrimSpace(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 16))
	object := func(s string) string { return `{"type":"object","properties":{"s":` + s + `},"required":["s"]}` }
	var out []Case
	for _, bound := range []string{``, `,"maxLength":1000`, `,"maxLength":2000`, `,"maxLength":100000`, `,"pattern":"^[A-Za-z .]{1,1000}$"`, `,"pattern":"^[A-Za-z .]+$"`} {
		name := "string" + strings.NewReplacer(`"`, "", ",", " ").Replace(bound)
		out = append(out, one(name, object(`{"type":"string"`+bound+`}`), `{"s":"`+text+`"}`))
	}
	for _, n := range []int{10, 50, 200} {
		var tools []string
		for i := range n {
			tools = append(tools, fmt.Sprintf(`{"type":"object","properties":{"name":{"const":"tool_%d"},"arguments":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"],"additionalProperties":false}},"required":["name","arguments"],"additionalProperties":false}`, i))
		}
		out = append(out, one(fmt.Sprintf("%d tools as anyOf", n), `{"anyOf":[`+strings.Join(tools, ",")+`]}`, fmt.Sprintf(`{"name":"tool_%d","arguments":{"city":"Oslo","days":3}}`, n/2)))
	}
	var keys, values []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf(`"key_%d":{"type":"string"}`, i))
		values = append(values, fmt.Sprintf(`"value %d"`, i*7919%10007))
	}
	out = append(out,
		one("200 optional keys", `{"type":"object","properties":{`+strings.Join(keys, ",")+`},"additionalProperties":false}`, `{"key_3":"a","key_77":"b","key_199":"c"}`),
		one("enum of 200", object(`{"enum":[`+strings.Join(values, ",")+`]}`), `{"s":`+values[120]+`}`),
		one("number of a range", object(`{"type":"integer","minimum":17,"maximum":123456}`), `{"s":98765}`),
	)
	return out
}
