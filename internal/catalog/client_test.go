package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func clientList(names ...string) []byte {
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"about %s"}}`, n, n))
	}
	return []byte("[" + strings.Join(parts, ",") + "]")
}

func TestFromClientIsBuiltOnce(t *testing.T) {
	c := NewCache(0)
	raw := clientList("a", "b")
	var wg sync.WaitGroup
	var got [16]*Catalog
	for i := range got {
		wg.Add(1)
		go func() {
			defer wg.Done()
			own := append([]byte(nil), raw...) // same bytes, other memory
			x, err := c.FromClient(own)
			if err != nil {
				t.Error(err)
			}
			got[i] = x
		}()
	}
	wg.Wait()
	for _, x := range got {
		if x != got[0] || x.Len() != 2 || x.Client() != 2 {
			t.Fatalf("catalogs %p and %p", got[0], x)
		}
	}
	if s := c.Stats(); s.Misses != 1 || s.Hits != 15 || s.Entries != 1 || s.Bytes != got[0].Bytes() {
		t.Errorf("%+v", s)
	}
	other, err := c.FromClient(append([]byte(" "), raw...))
	if err != nil || other == got[0] || other.Key() != got[0].Key() {
		t.Errorf("other bytes of the same meaning: %v", err)
	}
}

// While a catalog is built the others wait for it instead of building it too.
func TestGetBuildsOnceUnderWait(t *testing.T) {
	c := NewCache(0)
	var builds atomic.Int32
	started, release := make(chan struct{}), make(chan struct{})
	build := func() (*Catalog, error) {
		if builds.Add(1) == 1 {
			close(started)
		}
		<-release
		return fromClient(clientList("a"), &c.lim)
	}
	var wg sync.WaitGroup
	get := func() {
		defer wg.Done()
		if _, err := c.get(cacheKey{}, build); err != nil {
			t.Error(err)
		}
	}
	wg.Add(1)
	go get()
	<-started
	for range 8 {
		wg.Add(1)
		go get()
	}
	close(release)
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestFromClientErrors(t *testing.T) {
	c := NewCache(0)
	for _, x := range []struct{ raw, want, param string }{
		{`{}`, "tools: not an array", "tools"},
		{`[`, "tools: line 1, column 1: unexpected end of JSON input", "tools"},
		{`[{"name":"n"}]`, "tools[0]: no function object", "tools[0]"},
		{`[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a b"}}]`, "tools[1]: name with ' '; letters, digits, _ and - are allowed", "tools[1]"},
		{string(clientList("a", "b", "a")), `tools[2]: name "a" already used by tools[0]`, "tools[2]"},
		{`[{"type":"web_search"}]`, `tools[0]: tool type "web_search" is not supported; only functions are`, "tools[0]"},
		{`[null]`, "tools[0]: not an object", "tools[0]"},
	} {
		for range 2 { // a failure is not kept
			_, err := c.FromClient([]byte(x.raw))
			var client *ClientError
			if !errors.As(err, &client) || err.Error() != x.want || client.Param() != x.param {
				t.Errorf("%s: %v; want %s", x.raw, err, x.want)
			}
			var kind *TypeError
			if errors.As(err, &kind) != strings.Contains(x.raw, "web_search") {
				t.Errorf("%s: %T", x.raw, err)
			}
		}
	}
	if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 || s.Hits != 0 {
		t.Errorf("failures left %+v", s)
	}
	if empty, err := c.FromClient([]byte(`[]`)); err != nil || empty.Len() != 0 {
		t.Errorf("an empty list: %v", err)
	}
}

func TestCacheKeepsTheLatestUsed(t *testing.T) {
	lists := make([][]byte, 6)
	for i := range lists {
		lists[i] = clientList(fmt.Sprintf("tool_%d", i))
	}
	one, err := fromClient(lists[0], &DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCache(3*one.Bytes() + one.Bytes()/2)
	get := func(i int) *Catalog {
		x, err := c.FromClient(lists[i])
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	first := get(0)
	get(1)
	get(2)
	if get(0) != first { // now 1 is the oldest
		t.Error("the first was not kept")
	}
	get(3)
	if get(0) != first {
		t.Error("the latest used was thrown out")
	}
	before := c.Stats()
	get(1)
	if after := c.Stats(); after.Misses != before.Misses+1 || after.Entries != 3 || after.Bytes > 3*one.Bytes()+one.Bytes()/2 {
		t.Errorf("%+v then %+v", before, after)
	}
	small := NewCache(1)
	if x, err := small.FromClient(lists[0]); err != nil || x.Len() != 1 {
		t.Errorf("a catalog larger than the cache: %v", err)
	}
	if s := small.Stats(); s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("kept %+v", s)
	}
}

func TestMerged(t *testing.T) {
	c := NewCache(0)
	server, err := fromClient(clientList("b", "c"), &DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	raw := []byte(`[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b","description":"the client's"}}]`)
	m, err := c.Merged(raw, server)
	if err != nil || names(m) != "a b c" || m.Client() != 2 {
		t.Fatalf("%v %v", m, err)
	}
	if b, ok := m.Lookup("b"); !ok || b.Description != "the client's" {
		t.Errorf("b is %+v", b)
	}
	if again, _ := c.Merged(raw, server); again != m {
		t.Error("the same pair was merged twice")
	}
	if only, _ := c.Merged(nil, server); only != server {
		t.Error("no list of the client's own is not the server's catalog")
	}
	if _, err := c.Merged([]byte(`[{"type":"code_interpreter"}]`), server); err == nil {
		t.Error("a tool that is not a function was merged")
	}
	if costs := m.Costs("x"); costs != m.Costs("x") || costs == m.Costs("y") {
		t.Error("one memory of costs for each counter")
	}
}

// A list is read whole or refused with its place; nothing in between.
func FuzzFromClient(f *testing.F) {
	f.Add([]byte(`[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b","parameters":{"x":[1,"]"]}}}]`))
	f.Add([]byte(`[{"type":"web_search"}]`))
	f.Add([]byte(` [ [ ] , "a\\" , { } ] `))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := fromClient(raw, &DefaultLimits)
		var client *ClientError
		if err != nil {
			if !errors.As(err, &client) {
				t.Fatalf("%s: %T", raw, err)
			}
		} else {
			var list []struct{ Function struct{ Name string } }
			if err := json.Unmarshal(raw, &list); err != nil || len(list) != c.Len() {
				t.Fatalf("%s: %d tools of %d, %v", raw, c.Len(), len(list), err)
			}
		}
		l := loader{lim: DefaultLimits, names: make(map[string]string)}
		if err := l.whole("f", "", raw); err == nil && c != nil && len(l.tools) != c.Len() {
			t.Fatalf("%s: %d tools from a file, %d from a client", raw, len(l.tools), c.Len())
		}
		l.lines("f", "", raw)
	})
}

func BenchmarkFromClient(b *testing.B) {
	for _, n := range []int{100, 1000, 3200} {
		var raw []byte
		raw = append(raw, '[')
		for i, t := range Demo().Tools()[:n] {
			if i > 0 {
				raw = append(raw, ',')
			}
			raw = append(raw, t.Raw...)
		}
		raw = append(raw, ']')
		b.Run(fmt.Sprintf("tools=%d/cache=miss", n), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := fromClient(raw, &DefaultLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("tools=%d/cache=hit", n), func(b *testing.B) {
			c := NewCache(0)
			if _, err := c.FromClient(raw); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.FromClient(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
