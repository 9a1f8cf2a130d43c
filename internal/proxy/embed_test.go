package proxy

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"encoding/json"

	"github.com/toolsidecar/sidecar/internal/catalog"
)

// fakeEmbedder is a server of /v1/embeddings whose behaviour a test sets. A text
// that speaks of money is near "refund", all others stand apart.
type fakeEmbedder struct {
	srv *httptest.Server

	mu    sync.Mutex // guards what follows
	mode  string     // "", slow, 500, dims, nan, zero
	slow  chan struct{}
	texts []string // asked for
}

func newFakeEmbedder(t testing.TB) *fakeEmbedder {
	f := &fakeEmbedder{slow: make(chan struct{})}
	f.srv = httptest.NewServer(f)
	t.Cleanup(f.srv.Close)
	return f
}

func (f *fakeEmbedder) set(mode string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode = mode
}

func (f *fakeEmbedder) asked(text string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.texts {
		if strings.Contains(x, text) {
			n++
		}
	}
	return n
}

func (f *fakeEmbedder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	f.mu.Lock()
	mode := f.mode
	f.texts = append(f.texts, req.Input...)
	f.mu.Unlock()
	if mode == "slow" {
		select {
		case <-f.slow:
		case <-r.Context().Done():
			return
		}
	}
	if mode == "500" {
		http.Error(w, "out of memory", 500)
		return
	}
	var data []string
	for i, text := range req.Input {
		h := fnv.New32a()
		h.Write([]byte(text))
		angle := float64(h.Sum32()%1000) / 1000
		v := fmt.Sprintf("[%.4f,%.4f,0.1]", math.Cos(angle), math.Sin(angle))
		switch low := strings.ToLower(text); {
		case mode == "dims":
			v = "[1,2]"
		case mode == "nan":
			v = "[NaN,1,2]"
		case mode == "zero":
			v = "[0,0,0]"
		case strings.Contains(low, "refund") || strings.Contains(low, "zaster"):
			v = "[0,0.01,-1]"
		}
		data = append(data, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, v))
	}
	fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(data, ","))
}

// wireEmbedder is the client of a fakeEmbedder: one request a call, none repeated.
type wireEmbedder struct{ url string }

func (c wireEmbedder) Embed(ctx context.Context, texts []string) (map[string][]float32, error) {
	body, _ := json.Marshal(map[string]any{"input": texts})
	req, err := http.NewRequestWithContext(ctx, "POST", c.url, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	var reply struct {
		Data []struct{ Embedding []float32 }
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return nil, err
	}
	out := map[string][]float32{}
	for i, d := range reply.Data {
		out[texts[i]] = d.Embedding
	}
	return out, nil
}

func embedSidecar(t *testing.T, engine string, f *fakeEmbedder, deadline time.Duration) *sidecar {
	cfg := allStages()
	cfg.Catalog = catalog.Demo
	cfg.Embedder, cfg.EmbedderName, cfg.EmbedDeadline = wireEmbedder{f.srv.URL}, "fake", deadline
	s := newSidecar(t, engine, cfg)
	e := s.embedding()
	e.mu.Lock()
	e.retry = time.Millisecond
	e.mu.Unlock()
	return s
}

func (s *sidecar) embedding() *embedding { return s.p.stages.(*stages).embedding }

func (s *sidecar) embedded() {
	s.t.Helper()
	eventually(s.t, "the tools to be embedded", func() bool {
		_, _, reason := s.embedding().index(catalog.Demo())
		return reason == ""
	})
}

// zaster asks for what only the embedder understands, n times anew.
func (s *sidecar) zaster(eng *scripted, n int) Record {
	s.t.Helper()
	eng.say(scriptedReply{text: "Sorry."})
	if status, _, body := s.ask(chatBody("", userSays(fmt.Sprintf("Zaster zurueck, Nummer %d", n)), "")); status != 200 {
		s.t.Fatalf("status %d: %s", status, body)
	}
	eng.took()
	return s.last()
}

func addedRefund(rec Record) bool {
	for _, c := range rec.Added {
		if strings.Contains(c.Name, "refund") {
			return true
		}
	}
	return false
}

// TestEmbedder: tools and queries get the embedder's vectors; each text is asked
// for once; what the model says is embedded before the next turn asks.
func TestEmbedder(t *testing.T) {
	eng, srv := newScripted(t)
	f := newFakeEmbedder(t)
	s := embedSidecar(t, srv.URL, f, time.Minute)
	s.embedded()
	rec := s.zaster(eng, 1)
	if !addedRefund(rec) || rec.Fallback != "" {
		t.Errorf("added %v, fallback %q", rec.Added, rec.Fallback)
	}
	eventually(t, "the reply to be embedded", func() bool { return f.asked("Sorry.") == 1 })
	eng.say(scriptedReply{text: "Fine."})
	s.ask(chatBody("", `[{"role":"user","content":"Zaster zurueck, Nummer 1"},{"role":"assistant","content":"Sorry."},{"role":"user","content":"bitte"}]`, ""))
	for text, want := range map[string]int{"Nummer 1": 1, "Sorry.": 1, "bitte": 1} {
		if n := f.asked(text); n != want {
			t.Errorf("%q was asked for %d times", text, n)
		}
	}
	if got := s.call("", "GET", "/readyz", ""); !strings.Contains(got.body, "embedder fake: ready") {
		t.Errorf("readyz: %s", got.body)
	}
}

// TestEmbedderFails: with an embedder that fails, in whatever way and whenever, each
// request is answered by the table in the program, in time, with the reason; when
// the embedder is well again, it is used again.
func TestEmbedderFails(t *testing.T) {
	for _, x := range []struct{ mode, want string }{
		{"slow", "no vectors within"}, {"500", "status 500"}, {"dims", "dimensions"}, {"nan", "invalid character"}, {"zero", "points nowhere"},
	} {
		t.Run(x.mode, func(t *testing.T) {
			eng, srv := newScripted(t)
			f := newFakeEmbedder(t)
			s := embedSidecar(t, srv.URL, f, 20*time.Millisecond)
			s.embedded()
			f.set(x.mode)
			rec := s.zaster(eng, 1)
			if addedRefund(rec) || !strings.Contains(rec.Fallback, x.want) || !strings.Contains(rec.Fallback, "built-in table") {
				t.Errorf("added %v, fallback %q", rec.Added, rec.Fallback)
			}
			f.set("")
			close(f.slow)
			n := 1
			eventually(t, "the embedder to be used again", func() bool {
				n++
				rec := s.zaster(eng, n)
				return addedRefund(rec) && rec.Fallback == ""
			})
		})
	}
	for _, mode := range []string{"500", "nan"} {
		t.Run(mode+" at start", func(t *testing.T) {
			eng, srv := newScripted(t)
			f := newFakeEmbedder(t)
			f.set(mode)
			s := embedSidecar(t, srv.URL, f, time.Second)
			eventually(t, "the failure to show", func() bool {
				return strings.Contains(s.call("", "GET", "/readyz", "").body, "embedder fake: down")
			})
			if rec := s.zaster(eng, 1); addedRefund(rec) || !strings.Contains(rec.Fallback, "built-in table") {
				t.Errorf("added %v, fallback %q", rec.Added, rec.Fallback)
			}
			f.set("")
			n := 1
			eventually(t, "the embedder to be used", func() bool {
				n++
				return addedRefund(s.zaster(eng, n))
			})
		})
	}
}

// waiting is an embedder that answers nobody until its context ends.
type waiting struct{ running atomic.Int32 }

func (w *waiting) Embed(ctx context.Context, _ []string) (map[string][]float32, error) {
	w.running.Add(1)
	defer w.running.Add(-1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestEmbedderOfManyCatalogs: a client with ever new tools keeps the embedder at no
// more catalogs than are remembered, and one that was given up is no failure.
func TestEmbedderOfManyCatalogs(t *testing.T) {
	w := &waiting{}
	ctx, stop := context.WithCancel(t.Context())
	e := newEmbedding(ctx, &StageConfig{Embedder: w}, t.Logf)
	tools := catalog.NewCache(0)
	for i := range 3 * embedIndices {
		c, err := tools.FromClient([]byte(strings.ReplaceAll(toolList(2), "get_", fmt.Sprintf("get%d_", i))))
		if err != nil {
			t.Fatal(err)
		}
		e.index(c)
	}
	eventually(t, "builds to be given up", func() bool { return int(w.running.Load()) == embedIndices })
	if s := e.state(); !strings.Contains(s, "embedding tools") {
		t.Error(s)
	}
	stop()
	e.wg.Wait()
	if e.down != nil {
		t.Error(e.down)
	}
}
