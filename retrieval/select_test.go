package retrieval

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func selectIndex(t testing.TB) *Index {
	var tools []Tool
	for i, n := range []string{"invoice_send", "invoice_list", "invoice_void", "weather_now", "mail_send", "big_invoice"} {
		size := 100
		if n == "big_invoice" {
			size = 1150
		}
		tools = append(tools, Tool{Name: n, Raw: json.RawMessage(strings.Repeat("x", size+i))})
	}
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// printed writes a selection as names, tokens and reasons.
func printed(ix *Index, s Selection) string {
	var b strings.Builder
	for _, t := range s.Tools {
		fmt.Fprintf(&b, "+%s ", ix.Tool(t).Name)
	}
	for _, d := range s.Dropped {
		fmt.Fprintf(&b, "-%s(%s) ", ix.Tool(d.Tool).Name, d.Why)
	}
	for _, n := range s.Unknown {
		fmt.Fprintf(&b, "?%s ", n)
	}
	fmt.Fprintf(&b, "=%d", s.Tokens)
	if s.Over {
		b.WriteString(" over")
	}
	return b.String()
}

func bytesOf(s string) int { return len(s) }

func TestSelect(t *testing.T) {
	ix := selectIndex(t)
	shown := func(names ...string) func(string) bool {
		return func(n string) bool { return slices.Contains(names, n) }
	}
	for _, x := range []struct {
		name, query string
		cfg         SelectConfig
		want        string
	}{
		{"plain", "void the invoice", SelectConfig{Floor: -1}, "+invoice_void +invoice_send +invoice_list -big_invoice(over the token budget) =303"},
		{"nothing matches", "hello there", SelectConfig{}, "=0"},
		{"large gives way", "invoice", SelectConfig{Tokens: 350}, "+invoice_send +invoice_list +invoice_void -big_invoice(over the token budget) =303"},
		{"count", "invoice", SelectConfig{Tools: 1, Tokens: 5000}, "+invoice_send -big_invoice(enough tools) -invoice_list(enough tools) -invoice_void(enough tools) =100"},
		{"shown", "void the invoice", SelectConfig{Tokens: 350, Floor: -1, Margin: -1, Shown: shown("invoice_void", "invoice_send")}, "+invoice_list -invoice_void(already shown) -invoice_send(already shown) -big_invoice(over the token budget) =101"},
		{"the one that fits is shown", "void the invoice", SelectConfig{Tokens: 350, Floor: -1, Margin: 0.01, Shown: shown("invoice_void")}, "-invoice_void(already shown) -invoice_send(a tool on view fits better) -big_invoice(a tool on view fits better) -invoice_list(a tool on view fits better) =0"},
		{"beyond the window", "void the invoice", SelectConfig{Tokens: 5000, Floor: -1, Margin: -1, Window: 2, Shown: shown("invoice_void")}, "+invoice_send -invoice_void(already shown) -big_invoice(too far down the ranking) -invoice_list(too far down the ranking) =100"},
		{"far behind what is shown", "void the invoice", SelectConfig{Margin: -1, Floor: 0.9, Shown: shown("invoice_void", "invoice_send")}, "-invoice_void(already shown) -invoice_send(already shown) -big_invoice(score below the floor) -invoice_list(score below the floor) =0"},
		{"always", "weather", SelectConfig{Always: []string{"mail_send", "nope", "mail_send"}}, "+mail_send +weather_now ?nope =207"},
		{"always and shown", "weather", SelectConfig{Always: []string{"mail_send"}, Shown: shown("mail_send")}, "+weather_now =103"},
		{"always over budget", "weather", SelectConfig{Always: []string{"big_invoice"}, Tokens: 200}, "+big_invoice -weather_now(over the token budget) =1155 over"},
		{"always is not dropped for its hit", "weather", SelectConfig{Always: []string{"weather_now"}}, "+weather_now =103"},
		{"floor", "void the invoice", SelectConfig{Tokens: 5000}, "+invoice_void -invoice_send(score below the floor) -big_invoice(score below the floor) -invoice_list(score below the floor) =102"},
		{"named beats floor", "void the invoice, then weather_now", SelectConfig{Floor: 2, Tokens: 5000}, "+weather_now -invoice_void(score below the floor) -invoice_send(score below the floor) -big_invoice(score below the floor) -invoice_list(score below the floor) =103"},
		{"weak while tools are on view", "void the invoice", SelectConfig{Tokens: 350, Floor: -1, Margin: -1, Weak: 0.9, Shown: shown("invoice_void")}, "-invoice_void(already shown) -invoice_send(hardly related) -big_invoice(hardly related) -invoice_list(hardly related) =0"},
		{"weak at the start", "void the invoice", SelectConfig{Tokens: 350, Floor: -1, Margin: -1, Weak: 0.9}, "+invoice_void +invoice_send +invoice_list -big_invoice(over the token budget) =303"},
		{"per tool", "weather", SelectConfig{PerTool: 7}, "+weather_now =110"},
	} {
		got := printed(ix, Select(ix, ix.Search(Text(x.query), 10), x.cfg, bytesOf))
		if got != x.want {
			t.Errorf("%s: %s; want %s", x.name, got, x.want)
		}
	}
}

func TestSelectKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := toolsGen().Draw(t, "catalog")
		for i := range tools {
			tools[i].Raw = json.RawMessage(strings.Repeat("x", rapid.IntRange(1, 400).Draw(t, "size")))
		}
		ix, err := NewIndex(tools, Config{})
		if err != nil {
			t.Fatal(err)
		}
		hits := ix.Search(queryGen(tools).Draw(t, "query"), 16)
		on := map[string]bool{}
		for range rapid.IntRange(0, 5).Draw(t, "shown") {
			on[tools[rapid.IntRange(0, len(tools)-1).Draw(t, "on")].Name] = true
		}
		cfg := SelectConfig{
			Tools: rapid.IntRange(1, 6).Draw(t, "most"), Tokens: rapid.IntRange(1, 1500).Draw(t, "budget"),
			PerTool: rapid.IntRange(0, 3).Draw(t, "per tool"), Shown: func(n string) bool { return on[n] },
			Costs: NewCosts(ix),
		}
		if rapid.Bool().Draw(t, "pin") {
			cfg.Always = []string{tools[0].Name}
		}
		s := Select(ix, hits, cfg, bytesOf)
		again := Select(ix, hits, cfg, func(string) int { panic("counted twice") })
		if printed(ix, s) != printed(ix, again) {
			t.Fatalf("%s; again %s", printed(ix, s), printed(ix, again))
		}
		sum := 0
		for _, x := range s.Tools {
			sum += len(tools[x].Raw) + cfg.PerTool
			if on[tools[x].Name] {
				t.Fatalf("%s was on view", tools[x].Name)
			}
		}
		if sum != s.Tokens || s.Tokens > cfg.Tokens && !s.Over || s.Over && len(s.Tools) > len(cfg.Always) {
			t.Fatalf("%s of %d; %d in fact", printed(ix, s), cfg.Tokens, sum)
		}
		if len(s.Tools) > cfg.Tools+len(cfg.Always) {
			t.Fatalf("%d tools; at most %d", len(s.Tools), cfg.Tools)
		}
		for _, h := range hits { // each is in exactly one place
			n := 0
			for _, x := range s.Tools {
				if x == h.Tool {
					n++
				}
			}
			for _, d := range s.Dropped {
				if d.Tool == h.Tool {
					n++
				}
			}
			if n != 1 {
				t.Fatalf("%s stands in %d places of %s", tools[h.Tool].Name, n, printed(ix, s))
			}
		}
	})
}

func TestCostsConcurrently(t *testing.T) {
	ix := selectIndex(t)
	c := NewCosts(ix)
	all := 0
	for i := range ix.Len() {
		all += len(ix.Tool(i).Raw)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range ix.Len() {
				if got := c.Of(ix, i, bytesOf); got != len(ix.Tool(i).Raw) {
					t.Errorf("tool %d: %d tokens", i, got)
				}
			}
			for range 2 {
				if got := c.All(ix, bytesOf); got != all {
					t.Errorf("%d tokens in all, want %d", got, all)
				}
			}
		}()
	}
	wg.Wait()
}
