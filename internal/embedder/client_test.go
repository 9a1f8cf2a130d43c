package embedder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy answers with vectors (length of the text, 1), and fails as fail says.
type toy struct {
	mu      sync.Mutex
	asked   [][]string
	auth    string
	path    string
	fail    func(request int, w http.ResponseWriter) bool
	reverse bool // vectors come in the order of falling index
}

func (t *toy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model string
		Input []string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Model != "m" {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	t.asked = append(t.asked, in.Input)
	n := len(t.asked)
	t.auth, t.path = r.Header.Get("Authorization"), r.URL.Path
	t.mu.Unlock()
	if t.fail != nil && t.fail(n, w) {
		return
	}
	var parts []string
	for i, s := range in.Input {
		parts = append(parts, fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[%d,1]}`, i, len(s)))
	}
	if t.reverse {
		for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
			parts[i], parts[j] = parts[j], parts[i]
		}
	}
	fmt.Fprintf(w, `{"object":"list","data":[%s]}`, strings.Join(parts, ","))
}

func (t *toy) requests() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.asked)
}

func start(t *testing.T, server http.Handler, change func(*Config)) *Client {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	cfg := Config{URL: s.URL, Model: "m", Pause: time.Millisecond, HTTP: s.Client()}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func check(t *testing.T, got map[string][]float32, texts ...string) {
	t.Helper()
	for _, s := range texts {
		n := float64(len(s))
		want := n / math.Hypot(n, 1)
		if v := got[s]; len(v) != 2 || math.Abs(float64(v[0])-want) > 1e-6 {
			t.Errorf("%q: %v; its first number is %v", s, v, want)
		}
	}
}

func TestEmbedInBatches(t *testing.T) {
	server := &toy{reverse: true}
	c := start(t, server, func(cfg *Config) { cfg.Batch, cfg.Key = 2, "secret" })
	got, err := c.Embed(t.Context(), []string{"a", "bb", "a", "ccc", "dddd", "eeeee"})
	if err != nil || len(got) != 5 {
		t.Fatal(got, err)
	}
	check(t, got, "a", "bb", "ccc", "dddd", "eeeee")
	if n := server.requests(); n != 3 || server.auth != "Bearer secret" || server.path != "/v1/embeddings" {
		t.Errorf("%d requests, %q, %s", n, server.auth, server.path)
	}
	if _, err := c.Embed(t.Context(), []string{"bb", "ccc"}); err != nil || server.requests() != 3 {
		t.Errorf("texts are asked for again: %v", err)
	}
}

func TestEmbedTriesAgain(t *testing.T) {
	server := &toy{fail: func(n int, w http.ResponseWriter) bool {
		switch n {
		case 1:
			http.Error(w, "busy", http.StatusTooManyRequests)
		case 2:
			http.Error(w, "down", http.StatusBadGateway)
		}
		return n <= 2
	}}
	c := start(t, server, nil)
	got, err := c.Embed(t.Context(), []string{"a"})
	if err != nil || server.requests() != 3 {
		t.Fatal(got, err, server.requests())
	}
	check(t, got, "a")
}

func TestEmbedGivesUp(t *testing.T) {
	for _, x := range []struct {
		status, requests int
	}{{http.StatusUnauthorized, 1}, {http.StatusInternalServerError, 4}} {
		server := &toy{fail: func(_ int, w http.ResponseWriter) bool { http.Error(w, "no", x.status); return true }}
		c := start(t, server, nil)
		_, err := c.Embed(t.Context(), []string{"a"})
		var status *StatusError
		if !errors.As(err, &status) || status.Status != x.status || server.requests() != x.requests {
			t.Errorf("%d: %v after %d requests; want %d", x.status, err, server.requests(), x.requests)
		}
	}
	// What is known comes with the error.
	server := &toy{fail: func(n int, w http.ResponseWriter) bool {
		if n > 1 {
			http.Error(w, "no", http.StatusForbidden)
		}
		return n > 1
	}}
	c := start(t, server, func(cfg *Config) { cfg.Batch = 1 })
	got, err := c.Embed(t.Context(), []string{"a", "bb"})
	if err == nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	check(t, got, "a")
}

func TestEmbedEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := &toy{fail: func(_ int, w http.ResponseWriter) bool {
		cancel()
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return true
	}}
	c := start(t, server, func(cfg *Config) { cfg.Pause = time.Hour })
	if _, err := c.Embed(ctx, []string{"a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, body := range []string{
		``, `{}`, `{"data":[]}`, `{"data":[{"index":1,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[]}]}`,
		`{"data":[{"index":0,"embedding":["x"]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`,
	} {
		c := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }), nil)
		if got, err := c.Embed(t.Context(), []string{"a"}); err == nil {
			t.Errorf("%s: %v", body, got)
		}
	}
	for _, url := range []string{"", "localhost", "ftp://x", "http://", "::"} {
		if _, err := New(Config{URL: url}); err == nil {
			t.Errorf("%q is taken for an address", url)
		}
	}
}

func TestCacheOnDisk(t *testing.T) {
	dir := t.TempDir()
	server := &toy{}
	s := httptest.NewServer(server)
	defer s.Close()
	open := func() *Client { return clientOn(t, s, dir) }
	embed := func(texts ...string) {
		t.Helper()
		c := open()
		got, err := c.Embed(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		check(t, got, texts...)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	embed("a", "bb", "ccc")
	embed("ccc", "a")
	if n := server.requests(); n != 1 {
		t.Errorf("%d requests; the second client has the file", n)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 1 {
		t.Fatal(files)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	// Whatever byte is broken, what is asked for comes back right, and the file
	// is whole again afterwards.
	for at := 0; at < len(raw); at += 7 {
		broken := append([]byte(nil), raw...)
		broken[at] ^= 0x55
		if at%2 == 0 {
			broken = broken[:at]
		}
		if err := os.WriteFile(files[0], broken, 0o600); err != nil {
			t.Fatal(err)
		}
		embed("a", "bb", "ccc")
		n := server.requests()
		embed("a", "bb", "ccc")
		if server.requests() != n {
			t.Fatalf("byte %d: the file is not whole again", at)
		}
	}
}

// TestCacheKeepsOneSpace: a vector that points nowhere is asked for again, and one of
// other dimensions is an error that spoils nothing.
func TestCacheKeepsOneSpace(t *testing.T) {
	reply := "[0,0]"
	n := 0
	c := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprintf(w, `{"data":[{"index":0,"embedding":%s}]}`, reply)
	}), func(cfg *Config) { cfg.Dir = t.TempDir() })
	for _, x := range []struct {
		text, reply string
		requests    int
		err         string
	}{
		{"a", "[0,0]", 1, ""}, {"a", "[0,1]", 2, ""}, {"a", "[0,0]", 2, ""},
		{"b", "[1,0,0]", 3, "3 dimensions, where those before had 2"}, {"b", "[1,0]", 4, ""}, {"b", "[1,0,0]", 4, ""},
	} {
		reply = x.reply
		_, err := c.Embed(t.Context(), []string{x.text})
		if n != x.requests || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s as %s: %d requests, want %d; error %v, want %q", x.text, x.reply, n, x.requests, err, x.err)
		}
	}
}

// TestCacheOfTwo: two processes lose nothing of what each appends to one file.
func TestCacheOfTwo(t *testing.T) {
	dir := t.TempDir()
	server := &toy{}
	s := httptest.NewServer(server)
	defer s.Close()
	open := func() *Client { return clientOn(t, s, dir) }
	one, two := open(), open()
	var texts []string
	for i := range 10 {
		text := strings.Repeat("x", i+1)
		texts = append(texts, text)
		if _, err := []*Client{one, two}[i%2].Embed(t.Context(), []string{text}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(one.Close(), two.Close()); err != nil {
		t.Fatal(err)
	}
	before := server.requests()
	three := open()
	defer three.Close()
	got, err := three.Embed(t.Context(), texts)
	if err != nil || server.requests() != before {
		t.Errorf("%d texts were asked for again, %v", server.requests()-before, err)
	}
	check(t, got, texts...)
}

// clientOn is a client of s that keeps vectors in dir.
func clientOn(t *testing.T, s *httptest.Server, dir string) *Client {
	t.Helper()
	c, err := New(Config{URL: s.URL + "/v1", Model: "m", Dir: dir, HTTP: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
