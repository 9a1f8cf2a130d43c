package proxy

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCacheSalt: off, a request carries no salt and the operator is told of a
// second tenant, once; on, each tenant has a salt of its own, which stays the same,
// in prompts of ours and in requests that are passed on.
func TestCacheSalt(t *testing.T) {
	eng, srv := newScripted(t)
	salts := func(cfg StageConfig) (got []string, log string) {
		var lines strings.Builder
		p, err := New(Config{Engine: srv.URL, Stages: cfg, ErrorLog: &lines, AllowEngineFields: []string{"cache_salt"}})
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(p.Handler())
		defer func() { web.Close(); p.Close() }()
		client := newClientFor(t)
		for _, r := range []struct{ key, tools, more string }{
			{"a", toolList(3), ""}, {"a", toolList(3), ""}, {"b", toolList(3), ""}, {"a", "", ""}, {"", toolList(3), ""}, {"a", toolList(3), `,"cache_salt":"own"`},
		} {
			eng.say(scriptedReply{text: "ok"})
			header := []string{}
			if r.key != "" {
				header = []string{"Authorization", "Bearer " + r.key}
			}
			reply := ask(t, client, "POST", web.URL+chatPath, chatBody(r.tools, `[{"role":"user","content":"weather"}]`, r.more), header...)
			if reply.status != 200 {
				t.Fatalf("status %d: %s", reply.status, reply.body)
			}
			var sent struct {
				Salt string `json:"cache_salt"`
			}
			if err := json.Unmarshal(eng.took()[0].raw, &sent); err != nil {
				t.Fatal(err)
			}
			got = append(got, sent.Salt)
		}
		return got, lines.String()
	}
	off, log := salts(allStages())
	if strings.Join(off, ",") != ",,,,,own" || strings.Count(log, "share the engine's prefix cache") != 1 {
		t.Errorf("off: salts %q, log %q", off, log)
	}
	cfg := allStages()
	cfg.CacheSalt = true
	on, log := salts(cfg)
	for i, salt := range on {
		if len(salt) != 2*saltBytes {
			t.Errorf("request %d has the salt %q", i, salt)
		}
	}
	if on[0] != on[1] || on[0] != on[3] || on[0] == on[2] || on[0] == on[4] || on[0] == on[5] || log != "" {
		t.Errorf("on: salts %q, log %q", on, log)
	}
}
