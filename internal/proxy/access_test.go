package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/store"
	"github.com/toolsidecar/sidecar/retrieval"
)

// askAs posts a chat request with an API key, "" for none.
func (s *sidecar) askAs(key, body string) reply {
	s.t.Helper()
	return s.call(key, "POST", "/v1/chat/completions", body)
}

func (s *sidecar) call(key, method, path, body string) reply {
	s.t.Helper()
	var header []string
	if key != "" {
		header = []string{"Authorization", "Bearer " + key}
	}
	return ask(s.t, newClientFor(s.t), method, s.srv.URL+path, body, header...)
}

func clientsOf(t *testing.T, list ...Client) *Clients {
	t.Helper()
	c, err := NewClients(list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func userSays(text string) string {
	return fmt.Sprintf(`[{"role":"user","content":%q}]`, text)
}

// TestAccess: what a client may not use is nowhere in what the engine is sent, is
// not counted, is found by no search and by no name, and can't be called; another
// client has it.
func TestAccess(t *testing.T) {
	eng, srv := newScripted(t)
	cfg := allStages()
	cfg.Catalog = catalog.Demo
	cfg.Clients = clientsOf(t,
		Client{Name: "reader", Keys: []string{"r"}, Rules: catalog.AccessRules{Deny: []string{"orders__*", "payments__*"}}},
		Client{Name: "all", Keys: []string{"a"}})
	s := newSidecar(t, srv.URL, cfg)
	const refund = "refund the order of a customer with orders__refund_order"

	for _, x := range []struct {
		name, says string
		rounds     int
	}{
		{"retrieval and names", "I can't.", 1},
		{"search by words", searchFor("refund an order"), 2},
		{"search by name", searchFor("select:orders__refund_order,payments__refund_charge"), 2},
	} {
		replies := []scriptedReply{{text: x.says}}
		if x.rounds == 2 {
			replies = append(replies, scriptedReply{text: "I can't."})
		}
		eng.say(replies...)
		if r := s.askAs("r", chatBody("", userSays(refund+"; "+x.name), "")); r.status != 200 {
			t.Fatalf("%s: status %d: %s", x.name, r.status, r.body)
		}
		sent := eng.took()
		if len(sent) != x.rounds {
			t.Errorf("%s: %d rounds, want %d", x.name, len(sent), x.rounds)
		}
		text := strings.ReplaceAll(printSent(sent[len(sent)-1]), refund, "")
		text = strings.ReplaceAll(text, "select:orders__refund_order,payments__refund_charge", "")
		for _, name := range []string{"orders__", "payments__"} {
			if strings.Contains(text, name) {
				t.Errorf("%s: the prompt has %s:\n%s", x.name, name, text)
			}
		}
		rec := s.last()
		allowed := 0
		for _, tool := range catalog.Demo().Tools() {
			if !strings.HasPrefix(tool.Name, "orders__") && !strings.HasPrefix(tool.Name, "payments__") {
				allowed++
			}
		}
		if rec.AllTools != allowed {
			t.Errorf("%s: %d tools are counted, want %d", x.name, rec.AllTools, allowed)
		}
		if raw, _ := json.Marshal(rec); strings.Contains(string(raw), `"orders__`) {
			t.Errorf("%s: the record names what is forbidden: %s", x.name, raw)
		}
	}

	call := "<tool_call>\n{\"name\": \"orders__refund_order\", \"arguments\": {}}\n</tool_call>"
	eng.say(scriptedReply{text: call})
	if r := s.askAs("r", chatBody("", userSays(refund), "")); r.status == 200 || strings.Contains(r.body, "tool_calls") {
		t.Errorf("a forbidden call passed: %d %s", r.status, r.body)
	}
	eng.took()
	named := `,"tool_choice":{"type":"function","function":{"name":"orders__refund_order"}}`
	if r := s.askAs("r", chatBody("", userSays(refund), named)); r.status != 400 || !strings.Contains(r.body, "not among the tools") {
		t.Errorf("tool_choice of a forbidden tool: %d %s", r.status, r.body)
	}

	eng.say(scriptedReply{text: "Done."})
	s.askAs("a", chatBody("", userSays(refund), ""))
	if sent := printSent(eng.took()[0]); !strings.Contains(strings.ReplaceAll(sent, refund, ""), "orders__refund_order") {
		t.Errorf("the other client lacks the tool:\n%s", sent)
	}

	// Without a default entry, a client that is not known has nothing, with its own
	// tools or the server's.
	for _, key := range []string{"", "x"} {
		eng.say(scriptedReply{text: "Hello."})
		r := s.askAs(key, chatBody("", userSays(refund), ""))
		sent := printSent(eng.took()[0])
		if r.status != 200 || strings.Contains(strings.ReplaceAll(sent, refund, ""), "__") {
			t.Errorf("key %q: status %d, prompt\n%s", key, r.status, sent)
		}
		if r := s.askAs(key, chatBody(toolList(3), userSays(refund), "")); r.status != 403 || len(eng.took()) > 0 {
			t.Errorf("key %q with tools of its own: status %d: %s", key, r.status, r.body)
		}
	}
}

// TestAccessByRisk: the ceiling holds for the client's own tools too, whatever it
// declares of them; a request that would be forwarded is refused if it has more.
func TestAccessByRisk(t *testing.T) {
	eng, srv := newScripted(t)
	cfg := allStages()
	cfg.Clients = clientsOf(t, Client{Name: DefaultClient, Rules: catalog.AccessRules{MaxRisk: catalog.A0}})
	s := newSidecar(t, srv.URL, cfg)
	tools := strings.TrimSuffix(toolList(4), "]") + `,{"type":"function","x-risk":"A0","function":{"name":"delete_weather"}},{"type":"function","x-risk":"A2","function":{"name":"get_storm"}}]`
	eng.say(scriptedReply{text: "Sunny."})
	if r := s.askAs("", chatBody(tools, userSays("delete the weather"), "")); r.status != 200 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	sent := printSent(eng.took()[0])
	if !strings.Contains(sent, "get_weather") || strings.Contains(sent, "delete_weather") || strings.Contains(sent, "get_storm") {
		t.Errorf("the prompt is\n%s", sent)
	}
	for name, body := range map[string]string{
		"a part that is no text": chatBody(tools, `[{"role":"user","content":"a"}]`, `,"continue_final_message":true`),
		"legacy functions":       `{"model":"m","functions":[{"name":"delete_weather"}],"messages":[{"role":"user","content":"a"}]}`,
		"a tool of another type": chatBody(`[{"type":"web_search"}]`, userSays("a"), ""),
	} {
		if r := s.askAs("", body); r.status != 403 || !strings.Contains(r.body, "tool_not_allowed") || len(eng.took()) > 0 {
			t.Errorf("%s: status %d: %s", name, r.status, r.body)
		}
	}
	eng.say(scriptedReply{text: "Sunny."})
	if r := s.askAs("", chatBody(toolList(4), userSays("a"), `,"continue_final_message":true`)); r.status != 200 {
		t.Errorf("a forwarded request with allowed tools: status %d: %s", r.status, r.body)
	}
}

// TestAccessWithdrawn: a tool that stands in a recorded prompt and is allowed no
// more makes the prompt start anew.
func TestAccessWithdrawn(t *testing.T) {
	eng, srv := newScripted(t)
	cfg := allStages()
	cfg.Catalog = catalog.Demo
	cfg.Ledger, cfg.Secret = store.NewMemory(1<<20), []byte("0123456789abcdef")
	first := newSidecar(t, srv.URL, cfg)
	eng.say(scriptedReply{text: "Done."}, scriptedReply{text: "No."})
	messages := userSays("refund an order")
	first.ask(chatBody("", messages, ""))
	if sent := printSent(eng.took()[0]); !strings.Contains(sent, "orders__refund_order") {
		t.Fatalf("not shown at first:\n%s", sent)
	}
	cfg.Clients = clientsOf(t, Client{Name: DefaultClient, Rules: catalog.AccessRules{Deny: []string{"orders__*"}}})
	second := newSidecar(t, srv.URL, cfg)
	second.ask(chatBody("", strings.TrimSuffix(messages, "]")+`,{"role":"assistant","content":"Done."},{"role":"user","content":"thanks"}]`, ""))
	if sent := printSent(eng.took()[0]); strings.Contains(sent, "orders__") {
		t.Errorf("still shown:\n%s", sent)
	}
	if rec := second.last(); !strings.Contains(rec.Epoch, "not allowed to this client any more") {
		t.Errorf("epoch %q", rec.Epoch)
	}
}

// TestAccessWithdrawnDirectory: nor does what a recorded directory names stay, be
// it a tool or a whole server.
func TestAccessWithdrawnDirectory(t *testing.T) {
	for _, x := range []struct {
		name       string
		catalog    *catalog.Catalog
		tokens     int
		deny, want string
	}{
		{"tools", catalogOf(t, "get_weather", "get_storm", "delete_weather"), 300, "delete_*", "delete_weather"},
		{"servers", catalog.Demo(), 1200, "orders__*", "orders ("},
	} {
		eng, srv := newScripted(t)
		cfg := allStages()
		cfg.Catalog = func() *catalog.Catalog { return x.catalog }
		cfg.Ledger, cfg.Secret = store.NewMemory(1<<20), []byte("0123456789abcdef")
		cfg.Tokens = x.tokens
		first := newSidecar(t, srv.URL, cfg)
		eng.say(scriptedReply{text: "Done."}, scriptedReply{text: "No."})
		messages := userSays("hello")
		first.ask(chatBody("", messages, ""))
		if sent := printSent(eng.took()[0]); !strings.Contains(sent, x.want) {
			t.Fatalf("%s: not named at first:\n%s", x.name, sent)
		}
		cfg.Clients = clientsOf(t, Client{Name: DefaultClient, Rules: catalog.AccessRules{Deny: []string{x.deny}}})
		second := newSidecar(t, srv.URL, cfg)
		second.ask(chatBody("", strings.TrimSuffix(messages, "]")+`,{"role":"assistant","content":"Done."},{"role":"user","content":"thanks"}]`, ""))
		if sent := printSent(eng.took()[0]); strings.Contains(sent, x.want) {
			t.Errorf("%s: still named:\n%s", x.name, sent)
		}
	}
}

// catalogOf has tools of these names, described at length.
func catalogOf(t *testing.T, names ...string) *catalog.Catalog {
	t.Helper()
	var tools []retrieval.Tool
	for _, name := range names {
		tool, err := catalog.Canonical(fmt.Appendf(nil, `{"name":%q,"description":%q}`, name, strings.Repeat("says what it does, ", 30)), catalog.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool)
	}
	c, err := catalog.New("test", tools)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReportOfClients: the sums over all clients tell a restricted one neither how
// many tools there are nor what others sent.
func TestReportOfClients(t *testing.T) {
	eng, srv := newScripted(t)
	cfg := allStages()
	cfg.Catalog = catalog.Demo
	cfg.Clients = clientsOf(t, Client{Name: "all", Keys: []string{"a"}}, Client{Name: DefaultClient, Rules: catalog.AccessRules{MaxRisk: catalog.A0}})
	s := newSidecar(t, srv.URL, cfg)
	eng.say(scriptedReply{text: "Hello."}, scriptedReply{text: "Hello."})
	s.askAs("a", chatBody("", userSays("hello"), ""))
	s.askAs("a", chatBody(`[{"type":"web_search"}]`, userSays("hello"), ""))
	for key, whole := range map[string]bool{"a": true, "": false} {
		var r Report
		if err := json.Unmarshal([]byte(s.call(key, "GET", "/sidecar/v1/report", "").body), &r); err != nil {
			t.Fatal(err)
		}
		if (r.AllToolsTokens > 0) != whole || (r.SavedTokens > 0) != whole || (len(r.PassReasons) > 0) != whole || r.Requests != 2 {
			t.Errorf("key %q is told %+v", key, r)
		}
	}
}

// TestSchemaAfterTools: a conversation that had tools and goes on with a schema alone
// is served, and is no fault.
func TestSchemaAfterTools(t *testing.T) {
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	eng.say(scriptedReply{text: "Done."}, scriptedReply{text: `{"a":1}`})
	messages := userSays("hello")
	s.ask(chatBody(toolList(3), messages, ""))
	const format = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}`
	s.ask(chatBody("", strings.TrimSuffix(messages, "]")+`,{"role":"assistant","content":"Done."},{"role":"user","content":"thanks"}]`, format))
	if rec := s.last(); strings.Contains(rec.Reason, "fault") || !rec.staged() {
		t.Errorf("mode %s, %s", rec.Mode, rec.Reason)
	}
}

// TestTenants: one key is one tenant however the header spells its scheme, and no two
// keys are one.
func TestTenants(t *testing.T) {
	seen := map[string]int{}
	for i, spellings := range [][]string{
		{"", " ", "Bearer", "bearer "},
		{"Bearer k", "bearer k", "BEARER k", "Bearer  k ", "k"},
		{"Bearer K"}, {"Bearer kk"}, {"Bearer k k"},
		{"Basic k", "basic k"}, {"Digest k"},
	} {
		for _, s := range spellings {
			who := tenant(&Request{Header: http.Header{"Authorization": {s}}})
			if at, ok := seen[who]; ok && at != i {
				t.Errorf("%q is tenant %q, as in row %d", s, who, at)
			} else if !ok && s != spellings[0] {
				t.Errorf("%q is tenant %q, another than %q", s, who, spellings[0])
			}
			seen[who] = i
		}
	}
}

// TestClients: who an Authorization header is.
func TestClients(t *testing.T) {
	const hash = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc
	c := clientsOf(t, Client{Name: "hashed", Keys: []string{hash}}, Client{Name: "plain", Keys: []string{"k1", "k2"}}, Client{Name: DefaultClient})
	for header, want := range map[string]string{
		"Bearer abc": "hashed", "bearer k1": "plain", "Bearer k2": "plain", "k2": "plain", "Bearer k3": DefaultClient, "": DefaultClient,
		"Bearer " + hash: DefaultClient, "Basic k1": DefaultClient,
	} {
		if got := c.of(header).Name; got != want {
			t.Errorf("%q is %s, want %s", header, got, want)
		}
	}
	for _, x := range []struct {
		list []Client
		want string
	}{
		{[]Client{{Name: "a", Keys: []string{"k"}}, {Name: "b", Keys: []string{"k"}}}, "the same key"},
		{[]Client{{Name: "a", Keys: []string{"sha256:12"}}}, "64 hexadecimal digits"},
		{[]Client{{Name: "a"}}, "no key"},
		{[]Client{{Name: "a", Keys: []string{""}}}, "empty"},
		{[]Client{{Name: "a", Keys: []string{"Bearer k"}}}, "without Bearer"},
		{[]Client{{Name: "a", Keys: []string{"k"}, Rules: catalog.AccessRules{Allow: []string{"["}}}}, "pattern"},
		{[]Client{{Name: DefaultClient, Keys: []string{"k"}}}, "takes none"},
	} {
		if _, err := NewClients(x.list); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: error %v, want %q", x.list, err, x.want)
		}
	}
}

// TestSessionsOfTenants: a tenant sees and deletes its own sessions and no others;
// the operator sees all.
func TestSessionsOfTenants(t *testing.T) {
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	list := func(key string, header ...string) (ids []string) {
		h := header
		if key != "" {
			h = append(h, "Authorization", "Bearer "+key)
		}
		var all struct{ Sessions []Record }
		r := ask(t, newClientFor(t), "GET", s.srv.URL+"/sidecar/v1/sessions", "", h...)
		if err := json.Unmarshal([]byte(r.body), &all); err != nil {
			t.Fatal(err, r.body)
		}
		for _, rec := range all.Sessions {
			ids = append(ids, rec.ID+" "+rec.Conversation)
		}
		return ids
	}
	for _, key := range []string{"one", "two"} {
		eng.say(scriptedReply{text: "Hello."})
		if r := s.askAs(key, chatBody(toolList(3), userSays("hello"), "")); r.status != 200 {
			t.Fatal(r.status, r.body)
		}
	}
	one, two := list("one"), list("two")
	if len(one) != 1 || len(two) != 1 || one[0] == two[0] {
		t.Fatalf("one sees %v, two %v", one, two)
	}
	if all := list(""); len(all) != 2 {
		t.Errorf("the operator sees %v", all)
	}
	if all := list("", "X-Forwarded-For", "10.0.0.1"); len(all) != 0 {
		t.Errorf("a client without a key behind another server sees %v", all)
	}
	id, conversation, _ := strings.Cut(one[0], " ")
	for _, name := range []string{id, conversation} {
		for _, key := range []string{"two", ""} {
			if r := s.call(key, "DELETE", "/sidecar/v1/sessions/"+name, ""); r.status != http.StatusNotFound {
				t.Errorf("key %q deletes %s of another: %d %s", key, name, r.status, r.body)
			}
		}
	}
	if r := s.call("one", "DELETE", "/sidecar/v1/sessions/"+conversation, ""); r.status != 200 {
		t.Errorf("deleting one's own: %d %s", r.status, r.body)
	}
	if len(list("one")) != 0 || len(list("two")) != 1 {
		t.Error("what is left is not what was")
	}
}
