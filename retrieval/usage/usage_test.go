package usage

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolsidecar/sidecar/models/embedding"
	"github.com/toolsidecar/sidecar/retrieval"
)

func index(t testing.TB, space bool) *retrieval.Index {
	t.Helper()
	cfg := retrieval.Default()
	if space {
		table := embedding.Default()
		cfg.Space = &retrieval.Space{Name: "static", Dim: table.Dim(), Embed: table.Embed}
	}
	tools := []retrieval.Tool{
		{Name: "refund_order", Description: "Refund all or part of an order to the customer."},
		{Name: "get_parcel", Description: "Return a parcel with its money value and where it came from, back to the sender."},
		{Name: "archive_parcel", Description: "Move a smashed parcel out of the list."},
		{Name: "get_weather", Description: "The weather of a city."},
	}
	ix, err := retrieval.NewIndex(tools, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func memory(t testing.TB, cfg Config) *Memory {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func learn(t testing.TB, m *Memory, e Event) {
	t.Helper()
	if _, err := m.Learn(e); err != nil {
		t.Fatal(err)
	}
}

// TestRecall: a like query finds what was called; the hit says why; a query of
// another kind, and without a memory any, ranks as it did.
func TestRecall(t *testing.T) {
	for _, space := range []bool{false, true} {
		ix := index(t, space)
		m := memory(t, Config{})
		learn(t, m, Event{Trace: ix.Trace(retrieval.Text("my parcel came smashed, give me the money back")), Tools: []string{"refund_order"}})
		like := retrieval.Text("my parcel came smashed, I want the money back")
		bare := ix.Search(like, 4)
		like.Memory, like.Explain = m, true
		hits := ix.Search(like, 4)
		if ix.Tool(bare[0].Tool).Name == "refund_order" || ix.Tool(hits[0].Tool).Name != "refund_order" {
			t.Fatalf("space %v: without %s, with %s", space, ix.Tool(bare[0].Tool).Name, ix.Tool(hits[0].Tool).Name)
		}
		sum := 0.0
		kinds := map[retrieval.ReasonKind]bool{}
		for _, r := range hits[0].Why {
			sum += r.Score
			kinds[r.Kind] = true
		}
		if !kinds[retrieval.ReasonAlike] || !kinds[retrieval.ReasonDoubt] || math.Abs(sum-hits[0].Score) > 1e-3 {
			t.Errorf("space %v: score %v, of which the reasons give %v: %v", space, hits[0].Score, sum, hits[0].Why)
		}
		for _, h := range hits[1:] { // never called: their scores stay
			at := slices.IndexFunc(bare, func(b retrieval.Hit) bool { return b.Tool == h.Tool })
			if at < 0 || bare[at].Score != h.Score || h.Memory != 0 {
				t.Errorf("space %v: %s, never called, has %v with the memory", space, ix.Tool(h.Tool).Name, h.Score)
			}
		}
		other := retrieval.Text("weather of a city")
		want := ix.Search(other, 4)
		other.Memory = m
		if got := ix.Search(other, 4); !reflect.DeepEqual(got, want) {
			t.Errorf("space %v: another query ranks %v, without memory %v", space, got, want)
		}
	}
}

// TestVectors: two texts without a word in common are alike by their vectors.
func TestVectors(t *testing.T) {
	ix := index(t, true)
	a := ix.Trace(retrieval.Text("refund the customer"))
	if slices.Max(a.Vector) != 127 && slices.Min(a.Vector) != -127 {
		t.Errorf("the vector has no greatest number: %v", a.Vector)
	}
	a.Words = nil
	m := memory(t, Config{})
	learn(t, m, Event{Trace: a, Tools: []string{"x"}})
	if r := m.Recall(&a); len(r.Tools) != 1 || r.Tools[0].Alike <= 0 {
		t.Errorf("the same vector recalls %+v", r)
	}
	b := a
	b.Space = "another"
	if r := m.Recall(&b); r.Tools[0].Alike != 0 {
		t.Errorf("a vector of another space recalls %+v", r)
	}
}

// TestAfter: what follows the tool called last.
func TestAfter(t *testing.T) {
	m := memory(t, Config{})
	for i := range 6 {
		next := "b"
		if i == 0 {
			next = "c"
		}
		learn(t, m, Event{Trace: retrieval.Trace{Last: "a", Words: []retrieval.Word{{Text: fmt.Sprint("w", i), Weight: 1}}}, Tools: []string{next}})
	}
	r := m.Recall(&retrieval.Trace{Last: "a", Words: []retrieval.Word{{Text: "other", Weight: 1}}})
	got := map[string]float64{}
	for _, x := range r.Tools {
		got[x.Tool] = x.After
	}
	if want := map[string]float64{"a": 0, "b": behind * 5 / 8, "c": behind * 1 / 8}; !reflect.DeepEqual(got, want) {
		t.Errorf("after a: %v, want %v", got, want)
	}
}

func drawEvent(t *rapid.T) Event {
	e := Event{At: time.Unix(int64(rapid.IntRange(0, 1000).Draw(t, "at")), 0)}
	e.Tools = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 3, rapid.ID).Draw(t, "tools")
	slices.Sort(e.Tools)
	for _, w := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r", "s", "t"}), 1, 4, rapid.ID).Draw(t, "words") {
		e.Trace.Words = append(e.Trace.Words, retrieval.Word{Text: w, Weight: float32(rapid.IntRange(1, 4).Draw(t, "weight"))})
	}
	slices.SortFunc(e.Trace.Words, func(a, b retrieval.Word) int { return int(a.Text[0]) - int(b.Text[0]) })
	e.Trace.Words = unit(e.Trace.Words)
	if rapid.Bool().Draw(t, "dense") {
		e.Trace.Space = "s"
		e.Trace.Vector = []int8{int8(rapid.IntRange(-127, 127).Draw(t, "x")), int8(rapid.IntRange(1, 127).Draw(t, "y"))}
	}
	e.Trace.Last = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "last")
	return e
}

// TestOrder: what a memory says depends on what it learned, not on the order, nor
// on how often; exported and learned again it says the same.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 12).Draw(t, "events")
		ask := drawEvent(t).Trace
		said := func(list []Event) map[string]retrieval.Recalled {
			m, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if _, err := m.Learn(e); err != nil {
					t.Fatal(err)
				}
			}
			raw, err := json.Marshal(m.Events())
			if err != nil {
				t.Fatal(err)
			}
			var back []Event
			if err := json.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			again, _ := New(Config{})
			for _, e := range back {
				if fresh, err := again.Learn(e); err != nil || !fresh {
					t.Fatalf("an exported event is not new, or no event: %v", err)
				}
			}
			out := map[string]retrieval.Recalled{}
			one, two := m.Recall(&ask), again.Recall(&ask)
			for _, r := range one.Tools {
				out[r.Tool] = r
			}
			for _, r := range two.Tools {
				if x := out[r.Tool]; math.Abs(x.Alike-r.Alike) > 1e-5 || x.After != r.After {
					t.Fatalf("%s: %+v, after an export %+v", r.Tool, x, r)
				}
			}
			return out
		}
		want := said(events)
		mixed := append(slices.Clone(events), events...)
		rand.New(rand.NewPCG(uint64(len(events)), 1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		got := said(mixed)
		if len(got) != len(want) {
			t.Fatalf("%d tools, in another order %d", len(want), len(got))
		}
		for name, w := range want {
			if g := got[name]; math.Abs(g.Alike-w.Alike) > 1e-9 || g.After != w.After {
				t.Fatalf("%s: %+v, in another order %+v", name, w, g)
			}
		}
	})
}

// TestBytes: the bound holds, and what was seen last stays.
func TestBytes(t *testing.T) {
	m := memory(t, Config{MaxBytes: 64 << 10})
	for i := range 2000 {
		v := make([]int8, 64)
		v[i%64], v[i/64] = 100, 50
		learn(t, m, Event{At: time.Unix(int64(i), 0), Tools: []string{fmt.Sprint("tool", i)}, Trace: retrieval.Trace{Space: "s", Vector: v, Words: []retrieval.Word{{Text: fmt.Sprint("word", i), Weight: 1}}}})
		if _, _, bytes := m.Stats(); bytes > 64<<10 {
			t.Fatalf("%d bytes after %d events", bytes, i+1)
		}
	}
	events := m.Events()
	if n := len(events); n < 50 || events[n-1].Tools[0] != "tool1999" || events[0].Tools[0] != fmt.Sprint("tool", 2000-n) {
		t.Errorf("%d events are left, from %v on", n, events[0].Tools)
	}
}

func TestFailed(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "  ": true, "Error: no such file": true, `{"error":"x"}`: true, `{"error":null,"rows":[]}`: false, `{"errors":[]}`: false,
		`{"isError":true}`: true, `{"is_error":false}`: false, `{"success":false}`: true, `{"status":"failed"}`: true, `{"status":"ok"}`: false,
		`{"status":404}`: true, `{"status":"shipped"}`: false, "42 degrees": false, "[]": false, "Traceback (most recent call last)": true,
		"The file was not found, so I made it": false, "errors are counted": true, "Unable to reach": true, `{"error":`: false,
	} {
		if got := Failed(text); got != want {
			t.Errorf("Failed(%q) = %v", text, got)
		}
	}
}

func TestSucceeded(t *testing.T) {
	call := func(ids ...string) Message {
		m := Message{Role: "assistant"}
		for _, id := range ids {
			m.Calls = append(m.Calls, Call{id, "tool_" + id})
		}
		return m
	}
	result := func(id, text string) Message { return Message{Role: "tool", ResultOf: id, Text: text} }
	for _, x := range []struct {
		msgs []Message
		want []string
	}{
		{[]Message{call("1", "2"), result("2", "ok"), result("1", "error")}, []string{"tool_2"}},
		{[]Message{call("1", "2"), result("", "error"), result("", "ok")}, []string{"tool_2"}},
		{[]Message{call("1"), result("9", "ok")}, nil},
		{[]Message{call("1"), {Role: "user"}, result("1", "ok")}, nil},
		{[]Message{call("1", "1"), result("1", "ok"), result("1", "ok")}, []string{"tool_1"}},
	} {
		if got := Succeeded(x.msgs, 0); !slices.Equal(got, x.want) {
			t.Errorf("%v: %v, want %v", x.msgs, got, x.want)
		}
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"tools":["a"],"words":{"b":1},"vector":"AQI=","space":"s","at":3}`))
	f.Add([]byte(`{"tools":["a"],"words":{"b":-1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e Event
		if json.Unmarshal(raw, &e) != nil {
			return
		}
		m := memory(t, Config{})
		if _, err := m.Learn(e); err != nil {
			t.Fatalf("read and not learned: %v", err)
		}
		m.Recall(&e.Trace)
		if got := m.Events(); len(got) != 1 {
			t.Fatalf("%d events of one", len(got))
		}
	})
}
