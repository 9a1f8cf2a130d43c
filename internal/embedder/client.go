package embedder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says which server makes the vectors.
type Config struct {
	URL   string // its address, with or without /v1
	Model string // sent with every request; empty means "default"
	Key   string // sent as bearer token; empty means none
	Dir   string // folder of the cache file; empty means that vectors are kept in memory alone

	Batch int           // texts a request; 0 means 64
	Tries int           // of one request; 0 means 4
	Pause time.Duration // before the second try, doubled for each further one; 0 means 200 ms

	HTTP *http.Client // nil means one with a time-out of 60 s a request
}

// StatusError is an answer that is not a success.
type StatusError struct {
	Status int
	Body   string // its beginning
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("embeddings: status %d: %s", e.Status, e.Body)
}

// Client gets vectors. It is safe for concurrent use.
type Client struct {
	cfg   Config
	url   string
	cache *cache
}

// maxReply bounds the answer to one request in bytes: 64 vectors of 4,096 numbers
// in 20 characters each are 5 MB.
const maxReply = 64 << 20

// New returns a client, its cache read. Errors: an address that is none, a cache
// folder that can't be used.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("embedder %q: not an address like http://127.0.0.1:8081", cfg.URL)
	}
	path := strings.TrimSuffix(u.Path, "/")
	switch {
	case strings.HasSuffix(path, "/embeddings"):
	case strings.HasSuffix(path, "/v1"):
		path += "/embeddings"
	default:
		path += "/v1/embeddings"
	}
	u.Path = path
	if cfg.Model == "" {
		cfg.Model = "default"
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 64
	}
	if cfg.Tries <= 0 {
		cfg.Tries = 4
	}
	if cfg.Pause <= 0 {
		cfg.Pause = 200 * time.Millisecond
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Timeout: time.Minute}
	}
	c := &Client{cfg: cfg, url: u.String()}
	if c.cache, err = openCache(cfg.Dir, c.url+"\x00"+cfg.Model); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the use of the cache file.
func (c *Client) Close() error { return c.cache.close() }

// Embed returns the vectors of texts, of length 1, by text. When ctx ends or the
// server fails, the error comes with what is known.
func (c *Client) Embed(ctx context.Context, texts []string) (map[string][]float32, error) {
	out := make(map[string][]float32, len(texts))
	var missing []string
	for _, t := range texts {
		if _, ok := out[t]; ok {
			continue
		}
		v, ok := c.cache.get(t)
		if !ok {
			missing = append(missing, t)
		}
		out[t] = v
	}
	for len(missing) > 0 {
		batch := missing[:min(len(missing), c.cfg.Batch)]
		vectors, err := c.ask(ctx, batch)
		if err == nil {
			err = c.cache.put(batch, vectors)
		}
		if err != nil {
			for _, t := range missing {
				delete(out, t)
			}
			return out, err
		}
		for i, t := range batch {
			out[t] = vectors[i]
		}
		missing = missing[len(batch):]
	}
	return out, nil
}

// ask sends one batch, and again while the server may yet answer.
func (c *Client) ask(ctx context.Context, texts []string) ([][]float32, error) {
	pause := c.cfg.Pause
	for try := 1; ; try++ {
		vectors, wait, err := c.request(ctx, texts)
		if err == nil || wait < 0 || try >= c.cfg.Tries {
			return vectors, err
		}
		timer := time.NewTimer(max(pause, wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
		pause *= 2
	}
}

// request sends one batch once. wait is how long the server asks to be left
// alone, below 0 where another try is of no use.
func (c *Client) request(ctx context.Context, texts []string) (vectors [][]float32, wait time.Duration, err error) {
	body, err := json.Marshal(struct {
		Model  string   `json:"model"`
		Input  []string `json:"input"`
		Format string   `json:"encoding_format"`
	}{c.cfg.Model, texts, "float"})
	if err != nil {
		return nil, -1, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, -1, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, -1, err
		}
		return nil, 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		err = &StatusError{resp.StatusCode, string(raw[:min(len(raw), 200)])}
		if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 {
			return nil, -1, err
		}
		if s, e := strconv.Atoi(resp.Header.Get("Retry-After")); e == nil && s > 0 {
			wait = time.Duration(min(s, 60)) * time.Second
		}
		return nil, wait, err
	}
	vectors, err = readVectors(raw, len(texts))
	return vectors, -1, err
}

// readVectors reads the vectors of n texts and makes them one long.
func readVectors(raw []byte, n int) ([][]float32, error) {
	if len(raw) > maxReply {
		return nil, fmt.Errorf("embeddings: the answer is longer than %d bytes", maxReply)
	}
	var reply struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return nil, fmt.Errorf("embeddings: %w", err)
	}
	if len(reply.Data) != n {
		return nil, fmt.Errorf("embeddings: %d vectors for %d texts", len(reply.Data), n)
	}
	out := make([][]float32, n)
	for _, d := range reply.Data {
		if d.Index < 0 || d.Index >= n || out[d.Index] != nil {
			return nil, fmt.Errorf("embeddings: index %d, of %d texts, is none or comes twice", d.Index, n)
		}
		if len(d.Embedding) == 0 || len(d.Embedding) != len(reply.Data[0].Embedding) {
			return nil, fmt.Errorf("embeddings: vectors of %d and of %d dimensions", len(reply.Data[0].Embedding), len(d.Embedding))
		}
		unit(d.Embedding)
		out[d.Index] = d.Embedding
	}
	return out, nil
}

func unit(v []float32) {
	square := 0.0
	for _, x := range v {
		square += float64(x) * float64(x)
	}
	if square == 0 || math.IsInf(square, 0) || math.IsNaN(square) {
		clear(v)
		return
	}
	by := float32(1 / math.Sqrt(square))
	for i := range v {
		v[i] *= by
	}
}
