package proxy

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// Config says how a Proxy behaves. Zero numbers and durations mean the default
// named beside them.
type Config struct {
	Engine       string // base URL, with or without /v1; required
	EngineAPIKey string // sent as bearer token in place of the client's Authorization; "" passes the client's on

	MaxBody    int // bytes of a request body; 32 MiB. 413 beyond
	MaxHeader  int // bytes of a request's head; 16 KiB. 431 beyond
	MaxDepth   int // nested levels of a request body; openai.DefaultMaxDepth. 400 beyond
	MaxStreams int // requests under /v1 at a time; 4096. 429 with Retry-After beyond
	MaxReply   int // bytes of a reply that is not a stream; 64 MiB. 502 beyond
	MaxEvent   int // bytes of one event of a stream; 4 MiB. Error event beyond

	HeaderTimeout    time.Duration // for a client to send a request's head; 5 s
	BodyTimeout      time.Duration // for a client to send a request's body; 60 s
	IdleTimeout      time.Duration // a client's connection may wait for its next request; 120 s
	WriteTimeout     time.Duration // for a client to take what is written to it; 30 s
	ConnectTimeout   time.Duration // to connect to the engine; 5 s
	FirstByteTimeout time.Duration // for the engine's reply to begin, queue and prefill included; 10 min
	StallTimeout     time.Duration // between two pieces of the engine's reply; 2 min

	AllowEngineFields []string  // private fields let through (fields.go); "all" for every one
	AccessLog         io.Writer // one JSON line a request, without bodies and keys; nil for none
	ErrorLog          io.Writer // faults of our own, with their stack, and what an operator should know; nil for none

	// Stages run between the client and the engine; the zero value makes the
	// proxy transparent.
	Stages StageConfig
}

func (c *Config) setDefaults() {
	number := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	span := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	number(&c.MaxBody, 32<<20)
	number(&c.MaxHeader, 16<<10)
	number(&c.MaxDepth, 256)
	number(&c.MaxStreams, 4096)
	number(&c.MaxReply, 64<<20)
	number(&c.MaxEvent, 4<<20)
	span(&c.HeaderTimeout, 5*time.Second)
	span(&c.BodyTimeout, 60*time.Second)
	span(&c.IdleTimeout, 120*time.Second)
	span(&c.WriteTimeout, 30*time.Second)
	span(&c.ConnectTimeout, 5*time.Second)
	span(&c.FirstByteTimeout, 10*time.Minute)
	span(&c.StallTimeout, 2*time.Minute)
}

// baseURL returns scheme and host of the engine and the path in front of /v1.
func (c *Config) baseURL() (*url.URL, error) {
	u, err := url.Parse(c.Engine)
	switch {
	case c.Engine == "":
		return nil, fmt.Errorf("no engine: its base URL is needed, as in http://127.0.0.1:8000")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("engine URL %q: http://host:port or https://host is expected", c.Engine)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("engine URL %q: no query, fragment or password is allowed in it", u.Redacted())
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1"), "/")
	return u, nil
}
