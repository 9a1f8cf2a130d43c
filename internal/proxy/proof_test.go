package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestHeld: what is known of a tool is asked for beside the request and stands in
// the records after it, in a header, in the report and in the metrics; a tool that
// nothing holds is said to be such.
func TestHeld(t *testing.T) {
	const tools = `[{"type":"function","function":{"name":"get_weather","description":"weather","parameters":{"type":"object","properties":{"id":{"type":"integer"},"held":{"type":"string","maxLength":7}}}}},
		{"type":"function","function":{"name":"get_rain","description":"rain","parameters":{"type":"object","properties":{"id":{"type":"array","items":{"type":"string"},"uniqueItems":true}}}}}]`
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	held := func() string {
		eng.say(scriptedReply{text: "no"})
		_, header, _ := s.ask(chatBody(tools, `[{"role":"user","content":"weather"}]`, ""))
		return header.Get("X-Sidecar-Held")
	}
	if got := held(); got != "checked=1, unproved=1" && got != "proved=1, checked=1" { // the prover is quick
		t.Errorf("held at first: %s", got)
	}
	eventually(t, "a proof", func() bool { return held() == "proved=1, checked=1" })
	eventually(t, "a record of it", func() bool { return s.report().Held["proved"] > 0 })
	for _, h := range s.last().Held {
		if want := map[string]string{"get_weather": "proved", "get_rain": "checked"}[h.Name]; h.Status != want {
			t.Errorf("%s is %s, want %s", h.Name, h.Status, want)
		}
	}
	eventually(t, "a turn that nothing holds", func() bool {
		no := scriptedReply{status: 400, body: `{"error":{"message":"Invalid response_format structural_tag specification.","code":400}}`}
		eng.say(no, no, scriptedReply{text: "no"}) // the tag and the legacy tag
		_, header, _ := s.ask(chatBody(tools, `[{"role":"user","content":"weather"}]`, ""))
		return header.Get("X-Sidecar-Held") == "unconstrained=2"
	})
	eventually(t, "the sum of it in the metrics", func() bool {
		resp, err := http.Get(s.srv.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		metrics, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(metrics), `sidecar_tools_held_total{status="unconstrained"}`)
	})
}

// TestHeldByEngine: of a request that passes through each tool is said to be
// unconstrained, with the reason.
func TestHeldByEngine(t *testing.T) {
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	eng.say(scriptedReply{text: "no"})
	tools := `[{"type":"function","function":{"name":"get_weather","parameters":{}}},{"type":"other"}]`
	_, header, _ := s.ask(chatBody(tools, `[{"role":"user","content":"weather"}]`, `,"response_format":{"type":"structural_tag","format":{"type":"any_text"}}`))
	eventually(t, "a record", func() bool { return len(s.p.stages.(*stages).records.last()) > 0 })
	if r := s.last(); len(r.Held) != 1 || r.Held[0] != (Held{"get_weather", unconstrained}) || r.Reason == "" {
		t.Errorf("%+v, %q, %v", r.Held, r.Reason, header)
	}
}

// TestProverSurvives: a fault in one proof is told, and ends neither the prover nor
// the process.
func TestProverSurvives(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	faults := make(chan any, 2)
	p := newProver(ctx, func(fault any) { faults <- fault })
	for range 2 {
		p.want(unprovedTool{})
		<-faults
	}
	stop()
	p.wg.Wait()
}
