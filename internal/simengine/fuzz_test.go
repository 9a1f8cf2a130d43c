package simengine

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzChat: whatever the body, an answer or an error in JSON, and nothing is
// left running.
func FuzzChat(f *testing.F) {
	for _, b := range bodies {
		f.Add(`{` + b + `}`)
	}
	f.Add(`{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"structural_tag","format":{"type":"repeat","min":2,"max":-1,"content":{"type":"regex","pattern":"a{2}|[^a]"}}}}`)
	f.Add(`{"messages":[{"role":"user","content":"f"}],"tools":[{"function":{"name":"f","parameters":{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#"}]}}}}}]}`)
	e, err := New(Config{MaxModelLen: 2000})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("POST", chat, strings.NewReader(body)))
		if w.Code != 200 && (w.Code < 400 || w.Code >= 500) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if !strings.HasPrefix(w.Body.String(), "data: ") && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%d %q", w.Code, w.Body)
		}
		if running, waiting, usage := e.sched.load(); running != 0 || waiting != 0 || usage != 0 {
			t.Fatalf("%d run, %d wait, usage %v", running, waiting, usage)
		}
	})
}
