package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/prefix"
)

// TestHistoryBounded: what is remembered of requests has an end, in bytes, in
// conversations and in branches of one.
func TestHistoryBounded(t *testing.T) {
	var h history
	request := func(text string) *prefix.Request {
		return &prefix.Request{Messages: []prefix.Message{{Role: "user", Text: text}}}
	}
	put := func(key historyKey, text string, size int) {
		r := request(text)
		h.keep(key, h.before(key, r), &sent{request: r, bytes: size})
	}
	for i := range 40 {
		put(historyKey{byte(i)}, "big", maxHistoryBytes/8)
	}
	for i := range 2 * maxHistory {
		put(historyKey{1, byte(i), byte(i >> 8)}, "small", 1)
	}
	for i := range 3 * maxBranches {
		put(historyKey{1, 255, 7}, fmt.Sprint(i), 1)
	}
	sum := 0
	for _, list := range h.branches {
		for _, s := range list {
			sum += s.bytes
		}
	}
	if sum > maxHistoryBytes || sum != h.bytes || len(h.branches) != maxHistory || len(h.keys) != maxHistory {
		t.Errorf("%d bytes, counted as %d, in %d conversations of %d keys", sum, h.bytes, len(h.branches), len(h.keys))
	}
	if n := len(h.branches[historyKey{1, 255, 7}]); n != maxBranches {
		t.Errorf("%d branches of one conversation", n)
	}
	last := fmt.Sprint(3*maxBranches - 2)
	if s := h.before(historyKey{1, 255, 7}, request(last)); s == nil || s.request.Messages[0].Text != last {
		t.Error("the branch that a request continues is not found")
	}
}

// TestForget: a deleted conversation leaves the ledger, the records and the
// history, and no other does.
func TestForget(t *testing.T) {
	eng, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	turns := func(user string) string {
		eng.say(scriptedReply{text: "ok"}, scriptedReply{text: "ok"})
		for _, more := range []string{``, `,{"role":"assistant","content":"ok"},{"role":"user","content":"more"}`} {
			if status, _, body := s.ask(chatBody(toolList(100), `[{"role":"user","content":"`+user+`"}`+more+`]`, "")); status != 200 {
				t.Fatalf("status %d: %s", status, body)
			}
		}
		return s.last().Conversation
	}
	one, two := turns("weather please"), turns("an invoice")
	if one == two || len(one) != 16 {
		t.Fatalf("conversations %s and %s", one, two)
	}
	stages := s.p.stages.(*stages)
	held, _, _ := stages.cfg.Ledger.Stats()
	client := newClientFor(t)
	got := ask(t, client, "DELETE", s.srv.URL+"/sidecar/v1/sessions/"+one, "")
	if got.status != 200 || !strings.Contains(got.body, `"records":2`) || !strings.Contains(got.body, `"deleted":true`) {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	if now, _, _ := stages.cfg.Ledger.Stats(); now >= held {
		t.Errorf("the ledger held %d entries and holds %d", held, now)
	}
	for _, r := range stages.records.last() {
		if r.Conversation == one {
			t.Error("a record is left")
		}
	}
	if got := ask(t, client, "DELETE", s.srv.URL+"/sidecar/v1/sessions/"+one, ""); got.status != 404 {
		t.Errorf("the second time: %d: %s", got.status, got.body)
	}
	// by the id of a request
	id := s.last().ID
	if got := ask(t, client, "DELETE", s.srv.URL+"/sidecar/v1/sessions/"+id, ""); got.status != 200 || !strings.Contains(got.body, two) {
		t.Errorf("by request id: %d: %s", got.status, got.body)
	}
	if n := len(stages.history.keys); n != 0 {
		t.Errorf("%d conversations are remembered", n)
	}
	if got := ask(t, client, "DELETE", s.srv.URL+"/sidecar/v1/sessions/nothing", ""); got.status != 404 {
		t.Errorf("an unknown id: %d", got.status)
	}
}

// TestForgetTails: what volatile lines leave in the ledger goes with the
// conversation, whatever the user's message is made of, and also where the
// conversation is passed through.
func TestForgetTails(t *testing.T) {
	date, _ := prefix.Builtin("date", prefix.Move)
	for name, content := range map[string]string{
		"text":  `"hi"`,
		"parts": `[{"type":"text","text":"h"},{"type":"text","text":"i"}]`,
		"image": `[{"type":"text","text":"h"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]`,
		"empty": `[]`,
		"null":  `null`,
	} {
		for _, tools := range []string{toolList(3), ""} {
			t.Run(fmt.Sprint(name, " tools=", tools != ""), func(t *testing.T) {
				eng, srv := newScripted(t)
				config := allStages()
				config.Volatile = prefix.VolatileRules{date}
				s := newSidecar(t, srv.URL, config)
				eng.say(scriptedReply{text: "ok"})
				status, header, body := s.ask(chatBody(tools, `[{"role":"system","content":"It is 10:01"},{"role":"user","content":`+content+`}]`, ""))
				if status != 200 || header.Get("X-Sidecar-Volatile") != "date moved to 1" {
					t.Fatalf("status %d, %q: %s", status, header.Get("X-Sidecar-Volatile"), body)
				}
				ask(t, newClientFor(t), "DELETE", s.srv.URL+"/sidecar/v1/sessions/"+s.last().Conversation, "")
				front := 0 // a front block belongs to no conversation
				if tools != "" {
					front = 1
				}
				if entries, _, _ := s.p.stages.(*stages).cfg.Ledger.Stats(); entries > front {
					t.Errorf("the ledger holds %d entries", entries)
				}
			})
		}
	}
}

// TestPrefixDiff: the endpoint answers with the diff, and says what is wrong with
// what it was sent.
func TestPrefixDiff(t *testing.T) {
	_, srv := newScripted(t)
	s := newSidecar(t, srv.URL, allStages())
	client := newClientFor(t)
	side := func(time string) string {
		return chatBody(toolList(2), `[{"role":"system","content":"It is `+time+`"},{"role":"user","content":"x"}]`, "")
	}
	for body, want := range map[string]string{
		`{"a":` + side("10:01") + `,"b":` + side("10:02") + `}`:                      `200 "relation":"breaks" "path":"/messages/0/content","kind":"date","owner":"client" "before":"It is 10:01" "lost_tokens":`,
		`{"a":` + side("10:01") + `,"b":` + side("10:01") + `,"family":"chatml"}`:    `200 "relation":"equal"`,
		`{"a":` + side("10:01") + `}`:                                                `400 b must be a chat request`,
		`{"a":` + side("10:01") + `,"b":{"messages":[{}]}}`:                          `400 b: messages[0] has no role`,
		`{"a":` + side("10:01") + `,"b":` + side("10:01") + `,"family":"unheard"}`:   `400 unheard`,
		`{"a":{"messages":[{"role":"user","content":"x"}],"tools":3},"b":{"a":"b"}}`: `400 tools must be an array`,
	} {
		got := ask(t, client, "POST", s.srv.URL+"/sidecar/v1/prefix-diff", body)
		status, wants, _ := strings.Cut(want, " ")
		if fmt.Sprint(got.status) != status {
			t.Errorf("%s: status %d: %s", body, got.status, got.body)
		}
		for _, w := range strings.SplitAfter(wants, `" `) {
			if w = strings.TrimSpace(w); !strings.Contains(got.body, w) {
				t.Errorf("%s lacks %s", got.body, w)
			}
		}
	}
}

// TestAutopsyWithoutTools: a conversation without tools, which the stages leave
// alone, is looked at too, and a stream that tells no usage is compared though not
// measured.
func TestAutopsyWithoutTools(t *testing.T) {
	eng, srv := newScripted(t)
	cfg := allStages()
	cfg.Observe = true
	s := newSidecar(t, srv.URL, cfg)
	if _, err := s.p.stages.(*stages).engine.info(t.Context()); err != nil {
		t.Fatal(err)
	}
	history := `{"role":"user","content":"hello"}`
	for i, clock := range []string{"10:01", "10:02", "10:02"} {
		eng.say(scriptedReply{text: "ok"})
		body := chatBody("", `[{"role":"system","content":"It is `+clock+`"},`+history+`]`, "")
		if status, _, answer := s.ask(body); status != 200 {
			t.Fatalf("status %d: %s", status, answer)
		}
		history += `,{"role":"assistant","content":"ok"},{"role":"user","content":"more"}`
		rec := s.last()
		switch a := rec.Autopsy; {
		case i == 0 && a != nil:
			t.Errorf("the first turn has the autopsy %+v", a)
		case i == 1 && (a == nil || a.Kind != prefix.Date || a.Owner != prefix.Client || a.Path != "/messages/0/content" || a.Lost == 0):
			t.Errorf("the clock ticked, and the autopsy is %+v", a)
		case i == 2 && (a == nil || a.Relation != prefix.Extends || a.Lost != 0 || a.Kind != ""):
			t.Errorf("nothing changed, and the autopsy is %+v", a)
		}
		if len(rec.Conversation) != 16 {
			t.Errorf("conversation %q", rec.Conversation)
		}
	}
	if r := s.report(); r.Autopsy.Turns != 2 || r.Autopsy.Measured != 0 || len(r.Autopsy.Causes) != 1 || r.Autopsy.Causes[0].After != "It is 10:02" || r.PrefixBreaks["system message"] != 1 {
		t.Errorf("report %+v, breaks %v", r.Autopsy, r.PrefixBreaks)
	}
}
