package catalog

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/retrieval"
)

func TestRiskOf(t *testing.T) {
	for _, x := range []struct {
		tool string
		want Risk
	}{
		// By name.
		{`{"name":"get_user"}`, A0}, {`{"name":"searchFlights"}`, A0}, {`{"name":"crm__list_contacts"}`, A0}, {`{"name":"weather_forecast"}`, A0},
		{`{"name":"create_user"}`, A1}, {`{"name":"updateUser"}`, A1},
		{`{"name":"send_email"}`, A2}, {`{"name":"bookFlight"}`, A2}, {`{"name":"list_and_send_email"}`, A2}, {`{"name":"get_or_create"}`, A1},
		{`{"name":"delete_user"}`, A3}, {`{"name":"get_and_delete_user"}`, A3}, {`{"name":"users_purge"}`, A3}, {`{"name":"HTTPExec"}`, A3},
		{`{"name":"exchange_rate"}`, A3}, {`{"name":"frobnicate"}`, A3}, // nobody can tell
		// Annotations of MCP.
		{`{"name":"delete_user","annotations":{"readOnlyHint":true}}`, A0},
		{`{"name":"get_user","annotations":{"readOnlyHint":false}}`, A3},
		{`{"name":"get_user","annotations":{"destructiveHint":true}}`, A3},
		{`{"name":"get_user","annotations":{"readOnlyHint":true,"destructiveHint":true}}`, A3},
		{`{"name":"x","annotations":{"readOnlyHint":false,"destructiveHint":false}}`, A1},
		{`{"name":"x","annotations":{"destructiveHint":false,"openWorldHint":true}}`, A2},
		{`{"name":"get_user","annotations":{"title":"Get"}}`, A0},
		{`{"name":"get_user","annotations":"none"}`, A0},
		// x-risk wins, in either place.
		{`{"name":"get_user","x-risk":"A2","annotations":{"readOnlyHint":true}}`, A2},
		{`{"type":"function","function":{"name":"delete_user","x-risk":"a1"}}`, A1},
		{`{"type":"function","x-risk":"A0","function":{"name":"delete_user"}}`, A0},
	} {
		tool, err := Canonical([]byte(x.tool), DefaultLimits)
		if err != nil {
			t.Fatal(x.tool, err)
		}
		if got := RiskOf(&tool); got != x.want {
			t.Errorf("%s is %v, want %v", x.tool, got, x.want)
		}
	}
	for _, bad := range []string{`{"name":"x","x-risk":"A9"}`, `{"name":"x","x-risk":1}`} {
		if _, err := Canonical([]byte(bad), DefaultLimits); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

func TestRiskOfOperations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.yaml")
	const api = `
openapi: 3.0.0
info: {title: t, version: "1"}
paths:
  /a:
    get: {operationId: fetchIt, responses: {}}
    post: {operationId: thing, responses: {}}
    put: {operationId: setIt, responses: {}}
    delete: {operationId: drop_it, responses: {}}
    patch: {operationId: sendIt, responses: {}}
  /b:
    get: {operationId: deleteIt, responses: {}}
    post: {operationId: createIt, x-risk: A2, responses: {}}
  /c:
    x-risk: A3
    get: {operationId: readIt, responses: {}}
  /d:
    post: {operationId: search, responses: {}}
`
	if err := os.WriteFile(path, []byte(api), 0o644); err != nil {
		t.Fatal(err)
	}
	c, problems, err := Load(context.Background(), path)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	want := map[string]Risk{"fetchIt": A0, "thing": A2, "setIt": A1, "drop_it": A3, "sendIt": A2, "deleteIt": A3, "createIt": A2, "readIt": A3, "search": A1}
	for i := range c.Tools() {
		tool := &c.Tools()[i]
		if got := RiskOf(tool); got != want[tool.Name] {
			t.Errorf("%s is %v, want %v", tool.Name, got, want[tool.Name])
		}
		if strings.Contains(string(tool.Raw), "x-") {
			t.Errorf("the class is shown to models: %s", tool.Raw)
		}
	}
	if c.Len() != len(want) {
		t.Errorf("%d tools", c.Len())
	}
}

func TestPermitted(t *testing.T) {
	tools := func(names ...string) []retrieval.Tool {
		var out []retrieval.Tool
		for _, n := range names {
			tool, err := Canonical([]byte(`{"name":"`+n+`"}`), DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, tool)
		}
		return out
	}
	whole, err := New("whole", tools("get_a", "get_b", "send_a", "delete_a"))
	if err != nil {
		t.Fatal(err)
	}
	cache := NewCache(0)
	for _, x := range []struct {
		rules AccessRules
		want  string
	}{
		{AccessRules{}, "get_a get_b send_a delete_a"},
		{AccessRules{Allow: []string{"*_a"}}, "get_a send_a delete_a"},
		{AccessRules{Allow: []string{"*_a"}, Deny: []string{"send_*"}}, "get_a delete_a"},
		{AccessRules{MaxRisk: A0}, "get_a get_b"},
		{AccessRules{MaxRisk: A2, Deny: []string{"get_b"}}, "get_a send_a"},
		{AccessRules{Deny: []string{"*"}}, ""},
		{AccessRules{MaxRisk: A3}, "get_a get_b send_a delete_a"},
	} {
		c, err := cache.Permitted(whole, &x.rules)
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(c); got != x.want {
			t.Errorf("%+v lets through %q, want %q", x.rules, got, x.want)
		}
		if again, _ := cache.Permitted(whole, &x.rules); again != c {
			t.Errorf("%+v is cut twice", x.rules)
		}
	}
}

// TestDeniedNameOfTwo: a tool that is denied by its source's name for it stays so
// when another source brings one of the same name, and both get others; what its
// name says of its risk stays too. A name that is allowed admits no other tool.
func TestDeniedNameOfTwo(t *testing.T) {
	of := func(name string, names ...string) *Catalog {
		var tools []retrieval.Tool
		for _, n := range names {
			tool, err := Canonical([]byte(`{"name":"`+n+`"}`), DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			tools = append(tools, tool)
		}
		c, err := New(name, tools)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	long := "delete_" + strings.Repeat("x", 50) + "_now" // too long for a server's name before it
	ours := of("ours", "delete_all", long, "get_a")
	theirs := of("theirs", "delete_all", long, "get_a", "ours__delete_all")
	whole, err := Join(ours, theirs)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		rules AccessRules
		want  string
	}{
		{AccessRules{Deny: []string{"delete_all", long}}, "ours__get_a theirs__get_a ours__delete_all"}, // the last is named so by its source
		{AccessRules{Deny: []string{"delete_*", "*__delete_all"}}, "ours__get_a theirs__get_a"},
		{AccessRules{Allow: []string{"get_a"}}, ""},
		{AccessRules{MaxRisk: A2}, "ours__get_a theirs__get_a"},
	} {
		c, err := NewCache(0).Permitted(whole, &x.rules)
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(c); got != x.want {
			t.Errorf("%+v lets through %q, want %q", x.rules, got, x.want)
		}
	}
}

// TestPinnedRisk: a source that lowers what it declares of a tool's risk, or
// declares less than the name says, has changed the tool.
func TestPinnedRisk(t *testing.T) {
	tool := func(text string) retrieval.Tool {
		one, err := Canonical([]byte(text), DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	for _, x := range []struct {
		before, now string
		held        bool
	}{
		{`{"name":"drop_it"}`, `{"name":"drop_it","annotations":{"readOnlyHint":true}}`, true},
		{`{"name":"get_it"}`, `{"name":"get_it","annotations":{"readOnlyHint":true}}`, false},
		{`{"name":"get_it"}`, `{"name":"get_it","annotations":{"destructiveHint":true}}`, false},
		{`{"name":"x","x-risk":"A3"}`, `{"name":"x","x-risk":"A1"}`, true},
		{`{"name":"x","x-risk":"A1"}`, `{"name":"x","x-risk":"A1"}`, false},
		{`{"name":"x","x-risk":"A1"}`, `{"name":"x"}`, true},
	} {
		pins, err := OpenPins(filepath.Join(t.TempDir(), "pins.json"))
		if err != nil {
			t.Fatal(err)
		}
		if _, held, err := pins.Screen("s", []retrieval.Tool{tool(x.before)}); err != nil || len(held) > 0 {
			t.Fatal(held, err)
		}
		now := []retrieval.Tool{tool(x.now)}
		if _, held, _ := pins.Screen("s", now); (len(held) > 0) != x.held {
			t.Errorf("%s, then %s: held %v", x.before, x.now, held)
		}
		if done, err := pins.Approve("s", now); err != nil || (len(done) > 0) != x.held {
			t.Errorf("%s: approved %v, %v", x.now, done, err)
		}
		if _, held, _ := pins.Screen("s", now); len(held) > 0 {
			t.Errorf("%s is held after its approval", x.now)
		}
	}
}

func namesOf(c *Catalog) string {
	var names []string
	for _, tool := range c.Tools() {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}
