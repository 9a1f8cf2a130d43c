//go:build engines

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolsidecar/sidecar/internal/enginetest"
)

// TestVLLMHardSchemas and TestSGLangHardSchemas: a model with random weights is
// asked for calls and objects of a hundred schemas that constraint engines get
// wrong. What it says through the sidecar fits, or is the beginning of what fits;
// and the engine is still there afterwards.
func TestVLLMHardSchemas(t *testing.T) {
	hardOn(t, enginetest.VLLM(t, enginetest.Options{Model: enginetest.Tiny}))
}

func TestSGLangHardSchemas(t *testing.T) {
	hardOn(t, enginetest.SGLang(t, enginetest.Options{Model: enginetest.Tiny}))
}

func hardOn(t *testing.T, eng *enginetest.Server) {
	if len(hardSchemas) != 100 {
		t.Fatalf("%d schemas", len(hardSchemas))
	}
	if !testing.Short() && eng.Engine == enginetest.KindVLLM { // SGLang takes no seeds: what it says alone is another thing each time
		hardAlone(t, eng)
	}
	began := time.Now()
	base := startSidecar(t, eng.URL, nil)
	calls := hardCalls(eng.Engine == enginetest.KindVLLM)
	if testing.Short() {
		calls = oneWay(calls)
	}
	answers := ask(t, enginetest.Connect(t, enginetest.OpenAIPython, base+"/v1", 8), calls)
	records := sessions(t, base)
	var sum hardTally
	for _, c := range calls {
		sum.judge(t, hardRequest(c.ID), answers[c.ID], records[answers[c.ID].Headers["x-request-id"]])
	}
	t.Logf("through the sidecar, in %.0f s: %d answers, %d ended by themselves, %d were cut by length, %d withheld", time.Since(began).Seconds(), len(calls), sum.stop, sum.length, sum.withheld)
	for _, k := range slices.Sorted(maps.Keys(sum.notes)) {
		t.Logf("  %s: %s", k, strings.Join(sum.notes[k], ", "))
	}
	if 100*sum.stop < 95*len(calls) {
		t.Errorf("%d of %d answers ended by themselves", sum.stop, len(calls))
	}
	if _, err := eng.Metric(t.Context(), map[enginetest.Engine]string{enginetest.KindVLLM: "vllm:num_requests_running", enginetest.KindSGLang: "sglang:num_running_reqs"}[eng.Engine]); err != nil {
		t.Errorf("the engine after all that: %v", err)
	}
}

// rawEngine asks the engine for each schema without the sidecar, and says which
// it refuses, which it answers with something that does not fit, and for which no
// answer ends. The schema is sent as a client would, for a few tokens, since random
// weights write white space for ever where it has no bound; then with one.
func rawEngine(t *testing.T, eng *enginetest.Server) map[string][]string {
	verdicts := make([]string, len(hardSchemas))
	var wg sync.WaitGroup
	turn := make(chan struct{}, 8)
	for i, h := range hardSchemas {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			verdicts[i] = "endless"
			for try := range 6 {
				format, most := any(hardFormat(i)), 8
				if try > 0 {
					format = map[string]any{"type": "structural_tag", "format": map[string]any{"type": "json_schema", "json_schema": json.RawMessage(h.schema), "max_whitespace_cnt": 1}}
					most = 160
				}
				status, finish, text := plainly(t, eng, map[string]any{
					"model": "tiny", "messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("Value %d of %s", try, h.name)}},
					"temperature": 1, "seed": 10*i + try, "max_tokens": most, "response_format": format,
				})
				switch {
				case status != http.StatusOK:
					verdicts[i] = "refused"
					return
				case finish != "stop":
				case h.fits(text, false) != "":
					verdicts[i] = "wrong"
					return
				default:
					verdicts[i] = "ok"
				}
			}
		})
	}
	wg.Wait()
	by := map[string][]string{}
	for i, v := range verdicts {
		by[v] = append(by[v], hardSchemas[i].name)
	}
	return by
}

// hardAlone shows that the schemas are hard.
func hardAlone(t *testing.T, eng *enginetest.Server) {
	t.Helper()
	began := time.Now()
	raw := rawEngine(t, eng)
	t.Logf("the engine alone, in %.0f s: %d of %d schemas refused, %d answered with what does not fit, %d never ended, %d without a fault in what was tried",
		time.Since(began).Seconds(), len(raw["refused"]), len(hardSchemas), len(raw["wrong"]), len(raw["endless"]), len(raw["ok"]))
	for _, kind := range []string{"refused", "wrong", "endless", "ok"} {
		t.Logf("  %s: %s", kind, strings.Join(raw[kind], ", "))
	}
	if n := len(raw["refused"]) + len(raw["wrong"]); n < 60 {
		t.Errorf("the engine alone refuses or breaks %d of the schemas: these are not hard", n)
	}
}

// plainly asks the engine itself.
func plainly(t *testing.T, eng *enginetest.Server, params map[string]any) (status int, finish, text string) {
	t.Helper()
	body, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(eng.URL+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	var out struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct{ Content string }
		}
	}
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, "", string(answer)
	}
	if err := json.Unmarshal(answer, &out); err != nil || len(out.Choices) == 0 {
		t.Errorf("%v: %s", err, answer)
		return 0, "", ""
	}
	return resp.StatusCode, out.Choices[0].FinishReason, out.Choices[0].Message.Content
}
