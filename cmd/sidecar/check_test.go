package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestCheckSchema(t *testing.T) {
	schema := writeFile(t, "schema.json", `{"type":"array","items":{"type":"object","properties":{"day":{"type":"string","format":"date"},"n":{"type":"integer","maximum":3}}}}`)
	good := writeFile(t, "good.json", `[{"day":"x","other":1}]`)
	bad := writeFile(t, "bad.json", `[{"n":4}]`)
	out, errs, err := runCommand(t, "", "check", "--schema", schema, good, bad)
	want := `not judged: #/items/properties/day/format: "date" is an annotation and not judged
` + good + `: fits ` + schema + ` (open world)
` + bad + `: does not fit ` + schema + ` (open world)
  stops fitting at byte 6, in /0/n; expected a number
  {"status":"validation_error","tool_name":"` + schema + `","error_count":1,"errors":[{"loc":[0,"n"],"input_value":4,"error_type":"less_than_equal","message":"Input should be less than or equal to 3","expected_domain":"integer of at most 3"}]}
`
	if out != want || errs != "" || err == nil || err.Error() != "check: 1 of 2 instances not found to fit" {
		t.Errorf("%v %s\n got %s\nwant %s", err, errs, out, want)
	}
	if out, _, err = runCommand(t, "", "check", "--schema", schema, "--world", "closed", good); err == nil || !strings.Contains(out, "extra_forbidden") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = runCommand(t, "7", "check", "--schema", writeFile(t, "s.json", `{"type":"integer"}`)); err != nil || !strings.HasPrefix(out, "-: fits") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = runCommand(t, `{"const":1}`, "check", "--schema", "-", writeFile(t, "i.json", "1.0")); err != nil || !strings.Contains(out, "fits - (open") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCheckAutomaton: what only the automaton reads, where a text stops, and
// formats when asked for.
func TestCheckAutomaton(t *testing.T) {
	schema := writeFile(t, "schema.json", `{"properties":{"day":{"format":"date"},"id":{"pattern":"^(?=a)[a-z]+$"}},"required":["id"]}`)
	for _, x := range []struct {
		stdin, flag, verdict string
		offset               int // -1: none
	}{
		{`{"id":"abc","day":"x"}`, "--formats=false", "fits", -1},
		{`{"id":"abc","day":"x"}`, "--formats", "misfit", 19},
		{`{"id":"bc"}`, "--formats", "misfit", 7},
		{`{"id":"abc"`, "--formats", "misfit", 11},
		{`{"day":"2024-02-29"}`, "--formats", "misfit", 19},
	} {
		out, _, err := runCommand(t, x.stdin, "check", "--schema", schema, x.flag, "--json")
		var r checkReport
		if e := json.Unmarshal([]byte(out), &r); e != nil || len(r.Results) != 1 || (err == nil) != (x.verdict == "fits") {
			t.Errorf("%s: %v, %v\n%s", x.stdin, err, e, out)
			continue
		}
		got, at := r.Results[0], -1
		if got.Offset != nil {
			at = *got.Offset
		}
		if got.Verdict != x.verdict || at != x.offset || (got.Envelope == nil) != (x.verdict == "fits") {
			t.Errorf("%s %s: %+v, offset %d", x.stdin, x.flag, got, at)
		}
	}
	schema = writeFile(t, "schema.json", `{"items":{"properties":{"a/b":{"items":{"format":"ipv4"}}}}}`)
	out, _, _ := runCommand(t, `[{},{"a/b":["1.2.3.4","1.2.3"]}]`, "check", "--schema", schema, "--formats")
	if want := `"loc":[1,"a/b",1],"input_value":"1.2.3","error_type":"format","message":"Input is no valid ipv4","expected_domain":"`; !strings.Contains(out, want) {
		t.Errorf("got %s want %s", out, want)
	}
	bound := writeFile(t, "schema.json", `{"minimum":1,"exclusiveMinimum":true}`)
	if out, _, err := runCommand(t, "1", "check", "--schema", bound, "--draft", "4"); err == nil || !strings.Contains(out, "does not fit") {
		t.Errorf("draft 4: %v\n%s", err, out)
	}
	if _, _, err := runCommand(t, "1", "check", "--schema", bound); err == nil || !strings.Contains(err.Error(), "exclusiveMinimum") {
		t.Errorf("2020-12: %v", err)
	}
	if out, _, err := runCommand(t, `{"a":1,"\u0061":2}`, "check", "--schema", writeFile(t, "s.json", `{}`)); err == nil || !strings.Contains(out, "duplicate_key") {
		t.Errorf("a key twice: %v\n%s", err, out)
	}
}

func TestCheckTool(t *testing.T) {
	for _, x := range []struct {
		stdin, verdict string
		offset         int // -1 for none
		want           string
	}{
		{`{"order_id":"o1"}`, "fits", -1, ""},
		{`{"order_id":7}`, "misfit", 12, "string_type"},
		{`{"order_id":"o1","verbose":true}`, "misfit", 18, "extra_forbidden"},
		{`{"order_id":"o1",}`, "misfit", 17, "a member name"},
		{`{"order_id":"o1"`, "misfit", 16, "the text ends where"},
		{`{"order_id":"o1"} x`, "misfit", 18, "trailing_data"},
		{`{"order_id":"o1","order_id":"o1"}`, "misfit", 18, "stands twice"},
		{`[1]`, "misfit", 0, "object_type"},
		{`{"order_id":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "misfit", 12, "too deep"},
	} {
		out, _, err := runCommand(t, x.stdin, "check", "--tool", "orders__get_order", "--json")
		var r checkReport
		if e := json.Unmarshal([]byte(out), &r); e != nil || len(r.Results) != 1 || r.World != "closed" || r.Name != "orders__get_order" || (err == nil) != (x.verdict == "fits") {
			t.Errorf("%s: %v, %v\n%s", x.stdin, err, e, out)
			continue
		}
		got := r.Results[0]
		at := -1
		if got.Offset != nil {
			at = *got.Offset
		}
		if got.Verdict != x.verdict || at != x.offset || !strings.Contains(out, x.want) || (got.Envelope == nil) != (x.verdict == "fits") {
			t.Errorf("%.60s: %+v, offset %d\n%s", x.stdin, got, at, out)
		}
	}
	out, _, err := runCommand(t, `{"order_id":"o1",}`, "check", "--tool", "orders__get_order")
	if err == nil || !strings.Contains(out, "  stops fitting at byte 17, in the value; expected \"include\"\n") {
		t.Errorf("%v\n%s", err, out)
	}
	// The closed world judges what the open world does.
	loop := writeFile(t, "loop.json", `{"not":{"$ref":"#"}}`)
	for _, world := range []string{"open", "closed"} {
		if _, _, err := runCommand(t, `1`, "check", "--schema", loop, "--world", world); err == nil || !strings.Contains(err.Error(), "refers to itself") {
			t.Errorf("%s: %v", world, err)
		}
	}
	if out, _, err := runCommand(t, `{"order_id":"o1","verbose":true}`, "check", "--tool", "orders__get_order", "--world", "open"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCheckErrors(t *testing.T) {
	schema := writeFile(t, "schema.json", `{"pattern":"(a)\\1"}`)
	for _, x := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{nil, "give either --schema or --tool", true},
		{[]string{"--schema", "a", "--tool", "b"}, "give either --schema or --tool", true},
		{[]string{"--schema", "nope.json"}, "check: --schema nope.json: no such file or directory", false},
		{[]string{"--schema", t.TempDir()}, "is a directory", false},
		{[]string{"--schema", schema}, `pattern "(a)\\1": backreference at byte 3`, false},
		{[]string{"--schema", writeFile(t, "s.json", "null")}, "a schema is an object, true or false", false},
		{[]string{"--schema", writeFile(t, "s.json", "{}"), "nope.json"}, "check: nope.json: no such file or directory", false},
		{[]string{"--schema", writeFile(t, "s.json", "{}"), "--world", "flat"}, "check: --world flat", true},
		{[]string{"--schema", writeFile(t, "s.json", "{}"), "--draft", "3"}, `draft "3"`, true},
		{[]string{"--tool", "nope"}, "check: no tool nope in demo", true},
		{[]string{"--tool", "x", "--catalog", "nope.json"}, "catalog nope.json: no such file or directory", true},
	} {
		out, _, err := runCommand(t, "{}", append([]string{"check"}, x.args...)...)
		var usage *usageError
		if err == nil || !strings.HasSuffix(err.Error(), x.want) || errors.As(err, &usage) != x.usage || out != "" {
			t.Errorf("check %q: %v, output %q; want %s", x.args, err, out, x.want)
		}
	}
}
