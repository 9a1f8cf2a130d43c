package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"time"
)

// Handler returns the net/http adapter. It is what Server is tested against.
func (p *Proxy) Handler() http.Handler { return handler{p} }

type handler struct{ p *Proxy }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(r.Context(), func() { cancel(errClientGone) })()
	sink := &writerSink{w: w, rc: http.NewResponseController(w), timeout: h.p.cfg.WriteTimeout}
	sink.rc.SetReadDeadline(time.Now().Add(h.p.cfg.BodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.p.cfg.MaxBody)))
	if err != nil {
		status := 400
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			status = 413
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status = 408
		}
		e := h.p.adapterError(status)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Connection", "close")
		w.WriteHeader(e.Status)
		w.Write(e.Body())
		return
	}
	sink.rc.SetReadDeadline(time.Time{})
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	local := err == nil && from.Addr().IsLoopback()
	req := &Request{Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Header: r.Header, Local: local, Body: body}
	h.p.Serve(ctx, req, sink)
	sink.rc.SetWriteDeadline(time.Time{})
}

type writerSink struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	whole   bool
}

func (s *writerSink) Start(status int, h http.Header) error {
	s.whole = h.Get("Content-Length") != ""
	for key, values := range h {
		s.w.Header()[key] = values
	}
	s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	s.w.WriteHeader(status)
	if s.whole {
		return nil
	}
	return s.rc.Flush()
}

func (s *writerSink) Write(p []byte) (int, error) {
	s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	n, err := s.w.Write(p)
	if err == nil && !s.whole {
		err = s.rc.Flush()
	}
	return n, err
}
