package retrieval

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/toolsidecar/sidecar/retrieval"
)

func TestGrow(t *testing.T) {
	tools := []retrieval.Tool{
		{Name: "files__readAll", Description: "Reads all the files.", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "sendMail", Description: "Sends a mail to someone."},
	}
	grown, err := Grow(tools, 200, 7)
	if err != nil || len(grown) != 200 || !reflect.DeepEqual(grown[:2], tools) {
		t.Fatalf("%d tools, %v", len(grown), err)
	}
	again, _ := Grow(tools, 200, 7)
	other, _ := Grow(tools, 200, 8)
	if !reflect.DeepEqual(grown, again) || reflect.DeepEqual(grown, other) {
		t.Error("not made of the seed")
	}
	for i := range grown[2:] {
		x := &grown[2+i]
		var raw struct {
			Function struct{ Name, Description string }
		}
		if err := json.Unmarshal(x.Raw, &raw); err != nil || raw.Function.Name != x.Name || raw.Function.Description != x.Description || len(x.Name) > 64 {
			t.Fatalf("%s: %s, %v", x.Name, x.Raw, err)
		}
	}
	if err := retrieval.Check(grown); err != nil {
		t.Error(err)
	}
	if few, err := Grow(tools, 1, 7); err != nil || len(few) != 2 {
		t.Error(few, err)
	}
}
