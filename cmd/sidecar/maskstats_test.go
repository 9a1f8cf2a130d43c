package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMaskStats(t *testing.T) {
	fixed := writeFile(t, "fixed.json", `{"properties":{"mode":{"const":"only this will do"}},"required":["mode"]}`)
	free := writeFile(t, "free.json", `{"properties":{"text":{"type":"string"},"list":{"type":"array","uniqueItems":true}},"required":["text"]}`)
	out, _, err := runCommand(t, "", "compile", "--target", "mask-stats", "--schema", fixed, "--schema", free, "--answers", "3", "--json")
	var r maskReport
	if e := json.Unmarshal([]byte(out), &r); err != nil || e != nil || len(r.Tools) != 2 || r.Target != "mask-stats" || r.Vocabulary.Tokens < 150_000 {
		t.Fatalf("%v, %v\n%s", err, e, out)
	}
	f := r.Tools[0]
	if !f.Exact || f.Finished != 3 || f.Share < 0.8 || f.Share > 1 || f.Masks < 9 || f.States < 30 || f.CompileUS <= 0 || f.MaskUS.P50 <= 0 || f.Bytes <= 0 {
		t.Errorf("%+v", f)
	}
	g := r.Tools[1]
	if g.Exact || g.Share > 0.8 || g.Allowed.Max < 100_000 || g.Allowed.P50 > g.Allowed.P99 || g.Allowed.P99 > g.Allowed.Max {
		t.Errorf("%+v", g)
	}
	if n := r.Total; n.Masks != f.Masks+g.Masks || n.Answers != 6 || n.Exact || n.States != f.States+g.States {
		t.Errorf("%+v", n)
	}
	out, _, err = runCommand(t, "", "compile", "--target", "mask-stats", "orders__get_order")
	if err != nil || !strings.Contains(out, "orders__get_order") || !strings.Contains(out, "allowed p50") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{"--prove"}, {"--answers", "0"}, {"--tokenizer", "nope.json"}} {
		if _, _, err := runCommand(t, "", append([]string{"compile", "--target", "mask-stats", "--schema", fixed}, args...)...); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
