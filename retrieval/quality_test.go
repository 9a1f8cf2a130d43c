package retrieval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

var update = flag.Bool("update", false, "rewrite testdata/recall.txt")

// dataFile reads a file of the shared data, or skips the test where the data
// is not there and not required.
func dataFile(t testing.TB, name ...string) []byte {
	t.Helper()
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	path := filepath.Join(append([]string{dir}, name...)...)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("SIDECAR_REQUIRE_DATA") != "1" {
		t.Skipf("no %s: put the shared data there or set SIDECAR_DATA", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func eachLine(t testing.TB, raw []byte, f func(line []byte)) {
	t.Helper()
	sc := bufio.NewScanner(bytes.NewReader(raw))
	sc.Buffer(nil, 16<<20)
	n := 0
	for sc.Scan() {
		f(sc.Bytes())
		n++
	}
	if sc.Err() != nil || n == 0 {
		t.Fatalf("%d lines: %v", n, sc.Err())
	}
}

func setTools(t testing.TB, set string) []Tool {
	var tools []Tool
	eachLine(t, dataFile(t, "retrieval", set, "catalog.jsonl"), func(line []byte) {
		var x struct{ Function json.RawMessage }
		var f struct {
			Name, Description string
			Parameters        json.RawMessage
		}
		if err := errors.Join(json.Unmarshal(line, &x), json.Unmarshal(x.Function, &f)); err != nil {
			t.Fatal(err)
		}
		raw := slices.Concat([]byte(`{"type":"function","function":`), x.Function, []byte("}"))
		tools = append(tools, Tool{Name: f.Name, Description: f.Description, Schema: f.Parameters, Raw: raw})
	})
	return tools
}

type judged struct {
	set  string
	msgs []Message
	gold [][]string
}

func setQueries(t testing.TB, set string) []judged {
	var out []judged
	eachLine(t, dataFile(t, "retrieval", set, "queries.jsonl"), func(line []byte) {
		var x struct {
			Query    string
			Messages []struct {
				Role    string
				Content *string
				Calls   []struct{ Function struct{ Name string } } `json:"tool_calls"`
			}
			Gold []string
			Any  [][]string `json:"gold_any"`
			Set  string
		}
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		q := judged{set: x.Set, gold: x.Any}
		if len(x.Any) == 0 {
			for _, g := range x.Gold {
				q.gold = append(q.gold, []string{g})
			}
		}
		if x.Query != "" {
			q.msgs = []Message{{Role: "user", Text: x.Query}}
		}
		for _, m := range x.Messages {
			o := Message{Role: m.Role}
			if m.Content != nil {
				o.Text = *m.Content
			}
			for _, c := range m.Calls {
				o.Calls = append(o.Calls, c.Function.Name)
			}
			q.msgs = append(q.msgs, o)
		}
		out = append(out, q)
	})
	return out
}

// merged3200 returns the M = 3,200 subset of the merged set.
func merged3200(t testing.TB) ([]Tool, []judged) {
	in := make(map[string]bool)
	eachLine(t, dataFile(t, "retrieval", "merged", "catalog_3200.txt"), func(line []byte) { in[string(line)] = true })
	tools := slices.DeleteFunc(setTools(t, "merged"), func(x Tool) bool { return !in[x.Name] })
	qs := slices.DeleteFunc(setQueries(t, "merged"), func(q judged) bool {
		return slices.ContainsFunc(q.gold, func(any []string) bool {
			return slices.ContainsFunc(any, func(g string) bool { return !in[g] })
		})
	})
	if len(tools) != 3200 || len(qs) != 2501 {
		t.Fatalf("%d tools and %d queries; 3200 and 2501 are known", len(tools), len(qs))
	}
	return tools, qs
}

// figures are means over queries, in percent.
type figures struct {
	n                      int
	r1, r4, r8, all4, all8 float64
	mrr                    float64 // of the first gold tool among eight
}

func (f *figures) add(names []string, gold [][]string) {
	found := func(k int) (share, all float64) {
		n := 0
		for _, any := range gold {
			if slices.ContainsFunc(names[:min(k, len(names))], func(x string) bool { return slices.Contains(any, x) }) {
				n++
			}
		}
		if n == len(gold) {
			all = 1
		}
		return float64(n) / float64(len(gold)), all
	}
	f.n++
	for i, x := range names {
		if slices.ContainsFunc(gold, func(any []string) bool { return slices.Contains(any, x) }) {
			f.mrr += 1 / float64(i+1)
			break
		}
	}
	a, _ := found(1)
	b, ball := found(4)
	c, call := found(8)
	f.r1, f.r4, f.r8, f.all4, f.all8 = f.r1+a, f.r4+b, f.r8+c, f.all4+ball, f.all8+call
}

func (f *figures) String() string {
	m := func(x float64) float64 { return 100 * x / float64(f.n) }
	return fmt.Sprintf("%6d %5.1f %5.1f %5.1f %5.1f %5.1f %5.1f", f.n, m(f.r1), m(f.r4), m(f.r8), m(f.all4), m(f.all8), m(f.mrr))
}

func measure(ix *Index, qs []judged) (all figures, bySet map[string]*figures) {
	bySet = make(map[string]*figures)
	var hits []Hit
	var names []string
	for _, q := range qs {
		hits = ix.AppendSearch(hits[:0], ix.Segment(q.msgs), 8)
		names = names[:0]
		for _, h := range hits {
			names = append(names, ix.Tool(h.Tool).Name)
		}
		all.add(names, q.gold)
		if bySet[q.set] == nil {
			bySet[q.set] = new(figures)
		}
		bySet[q.set].add(names, q.gold)
	}
	return all, bySet
}

// selected measures what is left of the recall in 1,200 schema tokens of Qwen3.
func selected(t *testing.T, b *strings.Builder, ix *Index, qs []judged) {
	t.Helper()
	costs := NewCosts(ix)
	count := tokenizer.Qwen3().Count
	whole := 0
	for i := range ix.Len() {
		whole += costs.Of(ix, i, count)
	}
	for _, k := range []int{4, 8} {
		var f figures
		var tokens []int
		sum, tools := 0, 0
		for _, q := range qs {
			s := Select(ix, ix.Search(ix.Segment(q.msgs), 4*k), SelectConfig{Tools: k, Costs: costs}, count)
			var names []string
			for _, x := range s.Tools {
				names = append(names, ix.Tool(x).Name)
			}
			f.add(names, q.gold)
			tokens = append(tokens, s.Tokens)
			sum += s.Tokens
			tools += len(s.Tools)
			if s.Tokens > 1200 {
				t.Errorf("%d tokens selected; 1,200 are allowed", s.Tokens)
			}
		}
		slices.Sort(tokens)
		fmt.Fprintf(b, "%-28s %6d %s\n", fmt.Sprintf("merged 3200, select %d", k), ix.Len(), &f)
		fmt.Fprintf(b, "  tokens: all tools %d; selected mean %d, p95 %d, most %d; tools mean %.2f\n",
			whole, sum/len(qs), tokens[len(tokens)*95/100], tokens[len(tokens)-1], float64(tools)/float64(len(qs)))
	}
}

// TestRecall measures the evaluation sets and compares with the golden file
// and with what the same recipe reached in the reference measurement.
func TestRecall(t *testing.T) {
	var b strings.Builder
	fmt.Fprintln(&b, "# Recall in percent: segment query, default weights. Rewrite with -update; a change needs a reason in the commit.")
	fmt.Fprintf(&b, "%-28s %6s %6s %5s %5s %5s %5s %5s %5s\n", "set", "tools", "n", "R@1", "R@4", "R@8", "all@4", "all@8", "MRR@8")
	line := func(name string, tools int, f *figures) { fmt.Fprintf(&b, "%-28s %6d %s\n", name, tools, f) }
	for _, set := range []string{"seal-tools", "toole", "bfcl", "bfcl-multiturn", "api-bank", "livemcp", "toolalpaca"} {
		ix, err := NewIndex(setTools(t, set), Config{})
		if err != nil {
			t.Fatal(err)
		}
		f, _ := measure(ix, setQueries(t, set))
		line(set, ix.Len(), &f)
	}
	reference := func(name string, f *figures, r4, r8 float64) {
		for _, x := range [...]struct {
			k         int
			got, want float64
		}{{4, f.r4, r4}, {8, f.r8, r8}} {
			if got := 100 * x.got / float64(f.n); got < x.want-1 {
				t.Errorf("%s: recall@%d %.1f; the reference measurement has %.1f", name, x.k, got, x.want)
			}
		}
	}
	tools, qs := merged3200(t)
	ix, err := NewIndex(tools, Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, bySet := measure(ix, qs)
	line("merged 3200", ix.Len(), &f)
	for _, set := range []string{"bfcl", "bfcl-multiturn", "api-bank", "seal-tools", "livemcp", "toolalpaca"} {
		line("merged 3200, "+set, ix.Len(), bySet[set])
	}
	reference("merged 3200", &f, 74.7, 80.5)

	selected(t, &b, ix, qs)

	if ix, err = NewIndex(setTools(t, "merged"), Config{}); err != nil {
		t.Fatal(err)
	}
	f, _ = measure(ix, setQueries(t, "merged"))
	line("merged", ix.Len(), &f)
	reference("merged", &f, 73.2, 80.7)

	golden := filepath.Join("testdata", "recall.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("recall changed; got\n%s\nwant\n%s", b.String(), want)
	}
}
