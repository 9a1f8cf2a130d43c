package simengine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// FaultHeader is the request header that asks for a fault.
const FaultHeader = "X-Sim-Fault"

// FaultHelp says what can stand in [FaultHeader], one fault to a line.
const FaultHelp = `429            answers 429 with Retry-After: 1 and an error body
500            answers 500 with an error body
stall          takes the request (it runs, its slot is held) and never answers
stall-after=N  sends N events of a stream, or N bytes of a whole body, then nothing more
cut=N          closes the connection after N bytes of the body, without its end
malformed-sse  puts an event with broken JSON after the first event of a stream; cuts a whole body in half
refuse=WHAT    answers 400 to a structural tag; WHAT is tag (the newer form, with a format) or all
slow=DURATION  waits that long before each event of a stream, or before a whole body
reset          resets the connection (TCP RST) before any answer`

// fault is one parsed fault.
type fault struct {
	kind string
	n    int
	wait time.Duration
	all  bool // refuse
}

func parseFault(s string) (fault, error) {
	kind, arg, hasArg := strings.Cut(strings.TrimSpace(s), "=")
	f := fault{kind: kind}
	var err error
	switch kind {
	case "429", "500", "stall", "malformed-sse", "reset":
		if hasArg {
			err = fmt.Errorf("takes no value")
		}
	case "stall-after", "cut":
		if f.n, err = strconv.Atoi(arg); err == nil && f.n < 0 {
			err = fmt.Errorf("is negative")
		}
	case "refuse":
		if f.all = arg == "all"; !f.all && arg != "tag" {
			err = fmt.Errorf("takes tag or all")
		}
	case "slow":
		if f.wait, err = time.ParseDuration(arg); err == nil && f.wait < 0 {
			err = fmt.Errorf("is negative")
		}
	default:
		err = fmt.Errorf("is unknown")
	}
	if err != nil {
		return f, badRequest(FaultHeader, "%s: %q: %v. Known faults:\n%s", FaultHeader, s, err, FaultHelp)
	}
	return f, nil
}

type stallKey struct{}

// stalled reports whether the request shall never get its first token.
func stalled(ctx context.Context) bool { return ctx.Value(stallKey{}) != nil }

func (e *Engine) serveFault(w http.ResponseWriter, r *http.Request) {
	header := r.Header.Get(FaultHeader)
	if header == "" {
		e.mux.ServeHTTP(w, r)
		return
	}
	f, err := parseFault(header)
	if err != nil {
		writeError(w, err)
		return
	}
	switch f.kind {
	case "429":
		w.Header().Set("Retry-After", "1")
		writeError(w, &apiError{http.StatusTooManyRequests, "RateLimitError", "Too many requests (simulated).", ""})
	case "500":
		writeError(w, &apiError{http.StatusInternalServerError, "InternalServerError", "Internal server error (simulated).", ""})
	case "stall":
		if r.Method == http.MethodPost && (r.URL.Path == "/v1/chat/completions" || r.URL.Path == "/v1/completions") {
			e.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), stallKey{}, true)))
			return
		}
		// the server notices a client that leaves only once the body is read
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
		<-r.Context().Done()
	case "refuse":
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			writeError(w, badRequest("", "%v", err))
			return
		}
		var req struct {
			Format struct {
				Type   string
				Format json.RawMessage
			} `json:"response_format"`
		}
		_ = json.Unmarshal(body, &req) // what is no request is refused as such below
		if req.Format.Type == "structural_tag" && (f.all || req.Format.Format != nil) {
			writeError(w, errBadTag)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.mux.ServeHTTP(w, r)
	case "reset":
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
		reset(w)
	default:
		e.mux.ServeHTTP(&faultWriter{ResponseWriter: w, r: r, fault: f, clock: e.cfg.Clock}, r)
	}
}

func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // Close then sends RST; without it, FIN is the best there is
	}
	_ = conn.Close()
}

// faultWriter spoils a response while it is written. Each event of a stream
// comes in one Write, a whole body too.
type faultWriter struct {
	http.ResponseWriter
	r      *http.Request
	fault  fault
	clock  Clock
	events int
	bytes  int
}

func (w *faultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *faultWriter) streaming() bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}

func (w *faultWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *faultWriter) WriteHeader(status int) {
	if w.fault.kind == "malformed-sse" {
		w.Header().Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *faultWriter) Write(p []byte) (int, error) {
	switch w.fault.kind {
	case "slow":
		if err := w.clock.Sleep(w.r.Context(), w.fault.wait); err != nil {
			return 0, err
		}
	case "cut":
		if left := w.fault.n - w.bytes; left < len(p) {
			_, _ = w.ResponseWriter.Write(p[:left])
			w.Flush()
			panic(http.ErrAbortHandler)
		}
	case "stall-after":
		if w.streaming() && w.events == w.fault.n {
			w.stall()
		} else if left := w.fault.n - w.bytes; !w.streaming() && left < len(p) {
			_, _ = w.ResponseWriter.Write(p[:left])
			w.stall()
		}
	case "malformed-sse":
		if !w.streaming() {
			_, err := w.ResponseWriter.Write(p[:len(p)/2])
			return len(p), err
		}
		if w.events == 1 {
			if _, err := w.ResponseWriter.Write([]byte("data: {\"id\":\"chatcmpl-broken\",\"choices\":[{\n\n")); err != nil {
				return 0, err
			}
		}
	}
	n, err := w.ResponseWriter.Write(p)
	w.events++
	w.bytes += n
	return n, err
}

// stall sends what was written and waits until the client leaves.
func (w *faultWriter) stall() {
	w.Flush()
	<-w.r.Context().Done()
	panic(http.ErrAbortHandler)
}
