package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/toolsidecar/sidecar/internal/proxy"
	"github.com/toolsidecar/sidecar/internal/simengine"
)

// localConfig says what startLocal starts.
type localConfig struct {
	Engine  string    // base URL of a running engine; "" starts the simulated one
	Catalog []string  // as for --catalog
	Log     io.Writer // faults and problems; nil for none
	// Edit changes the options of the sidecar before it starts; nil for none.
	Edit func(*serveConfig)
}

// startLocal starts a sidecar in this process on a free loopback port, and a
// simulated engine when no other is named. stop ends both and waits for them.
func startLocal(ctx context.Context, c localConfig) (baseURL, engineURL string, stop func(), err error) {
	if c.Log == nil {
		c.Log = io.Discard
	}
	engineURL = c.Engine
	stopEngine := func() {}
	if engineURL == "" {
		if engineURL, stopEngine, err = startSimulated(simengine.Config{
			MaxModelLen:         1 << 20,
			PromptTokensDetails: true,
			Latency:             simengine.Latency{PrefillOverhead: 5 * time.Millisecond, PrefillPerToken: 20 * time.Microsecond, TimePerOutputToken: 2 * time.Millisecond},
		}); err != nil {
			return "", "", nil, err
		}
	}
	fail := func(err error) (string, string, func(), error) {
		stopEngine()
		return "", "", nil, err
	}
	var cfg serveConfig
	serveOptions(&cfg) // sets the defaults
	cfg.Catalogs, cfg.Proxy.Engine, cfg.Proxy.ErrorLog = c.Catalog, engineURL, c.Log
	if c.Edit != nil {
		c.Edit(&cfg)
	}
	if err := loadStages(ctx, &cfg, c.Log); err != nil {
		return fail(err)
	}
	stopOnlyEngine := stopEngine
	stopEngine = func() {
		cfg.live.Close()
		stopOnlyEngine()
	}
	p, err := proxy.New(cfg.Proxy)
	if err != nil {
		return fail(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Close()
		return fail(err)
	}
	server := proxy.NewServer(p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	stop = func() {
		limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := server.Shutdown(limit); err != nil {
			fmt.Fprintf(c.Log, "sidecar: %v\n", err)
		}
		<-served
		p.Close()
		stopEngine()
	}
	return "http://" + ln.Addr().String(), engineURL, stop, nil
}

// startSimulated serves a simulated engine on a free loopback port.
func startSimulated(cfg simengine.Config) (url string, stop func(), err error) {
	eng, err := simengine.New(cfg)
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: eng, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() {
		srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			panic("simulated engine: " + err.Error()) // nothing else closes it
		}
	}, nil
}
