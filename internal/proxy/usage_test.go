package proxy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/internal/catalog"
	"github.com/toolsidecar/sidecar/internal/store"
)

// TestUsage: a call that succeeded teaches its tenant, across restarts, until it is
// cleared; one that failed, and another tenant's, teach nothing.
func TestUsage(t *testing.T) {
	eng, srv := newScripted(t)
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	var s *sidecar
	var u *store.Usage
	restart := func() {
		t.Helper()
		if u != nil {
			if err := u.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if u, err = store.OpenUsage(store.UsageConfig{Path: path}); err != nil {
			t.Fatal(err)
		}
		cfg := allStages()
		cfg.Catalog, cfg.Usage = catalog.Demo, u
		s = newSidecar(t, srv.URL, cfg)
	}
	restart()
	defer func() { u.Close() }()
	const asks, again = "my parcel came smashed, give me the money back", "my parcel came smashed, I want the money back"
	teach := func(key, result string) {
		t.Helper()
		eng.say(scriptedReply{text: "Done."})
		body := fmt.Sprintf(`[{"role":"user","content":%q},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"orders__refund_order","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":%q}]`, asks, result)
		if r := s.askAs(key, chatBody("", body, "")); r.status != 200 {
			t.Fatal(r.status, r.body)
		}
		eng.took()
	}
	added := func(key string) (why string) {
		t.Helper()
		eng.say(scriptedReply{text: "Done."})
		if r := s.askAs(key, chatBody("", userSays(again), "")); r.status != 200 {
			t.Fatal(r.status, r.body)
		}
		eng.took()
		for _, c := range s.last().Added {
			if c.Name == "orders__refund_order" {
				return c.Why
			}
		}
		return ""
	}
	report := func(key string) (r UsageReport) {
		t.Helper()
		if got := s.call(key, "GET", "/sidecar/v1/usage", ""); json.Unmarshal([]byte(got.body), &r) != nil {
			t.Fatal(got.body)
		}
		return r
	}

	teach("one", `{"error":"no such order"}`)
	if r := report("one"); r.Queries != 0 {
		t.Errorf("a call that failed was learned: %+v", r)
	}
	teach("one", `{"refunded":true}`)
	teach("one", `{"refunded":true}`) // a retry
	if r := report("one"); r.Queries != 1 || len(r.Events) != 1 || r.Events[0].Tools[0] != "orders__refund_order" {
		t.Errorf("the report is %+v", r)
	}
	for range 2 {
		if why := added("one"); !strings.Contains(why, "called for queries like this") {
			t.Errorf("the tenant that called it gets it for %q", why)
		}
		for _, key := range []string{"two", ""} {
			if why := added(key); why != "" {
				t.Errorf("key %q gets it for %q", key, why)
			}
			if r := report(key); r.Queries != 0 {
				t.Errorf("key %q is told %+v", key, r)
			}
		}
		restart()
	}
	if r := s.call("two", "DELETE", "/sidecar/v1/usage", ""); r.status != 200 || !strings.Contains(r.body, `"deleted":false`) {
		t.Errorf("clearing nothing: %d %s", r.status, r.body)
	}
	if r := s.call("one", "DELETE", "/sidecar/v1/usage", ""); r.status != 200 || !strings.Contains(r.body, `"queries":1`) {
		t.Errorf("clearing: %d %s", r.status, r.body)
	}
	restart()
	if why := added("one"); why != "" {
		t.Errorf("cleared, and still found for %q", why)
	}
}

func TestUsageOff(t *testing.T) {
	_, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	for _, method := range []string{"GET", "DELETE"} {
		if r := s.call("", method, "/sidecar/v1/usage", ""); r.status != 404 || !strings.Contains(r.body, "--usage") {
			t.Errorf("%s: %d %s", method, r.status, r.body)
		}
	}
}
